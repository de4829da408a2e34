//! Requests for admission, whichever protocol carried them.

use super::answer::Asker;
use super::api::LoginOwner;
use super::half_open::Source;
use usher_core::Instant;
use usher_radius::attribute::{Attributes, kind};

/// A request that came.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) owner: LoginOwner,
    pub(super) pending: Pending,
}

impl Ask {
    /// The user's name as the request has it.
    pub(super) fn name(&self) -> &[u8] {
        self.pending.request.get(kind::USER_NAME).unwrap_or_default()
    }
    /// What is told of it where no session here has it.
    pub(super) const fn begun(&self) -> Begun {
        let Pending { asker, arrived, .. } = self.pending;
        Begun { at: arrived, asker: Some(asker), client: self.owner.client() }
    }
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) asker: Asker,
    /// Where it came from.
    pub(super) source: Source,
    /// When it came.
    pub(super) arrived: Instant,
    /// What it said.
    pub(super) request: Attributes,
}

impl Pending {
    /// Calling-Station-Id; empty: none.
    pub(super) fn station(&self) -> &[u8] {
        self.request.get(kind::CALLING_STATION_ID).unwrap_or_default()
    }
}

/// A login that no session here has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) at: Instant,
    /// Who waits; `None`: nobody.
    pub(super) asker: Option<Asker>,
    /// The RADIUS client.
    pub(super) client: Option<u32>,
}

/// How a login ended that no session here has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// A home server let it in.
    Accepted,
    Rejected(super::Reason),
    /// It got no verdict.
    Undecided(super::Reason),
}

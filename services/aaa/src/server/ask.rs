//! Requests for admission, whichever protocol carried them.

use super::answer::RequestToken;
use super::api::LoginOwner;
use super::half_open::RequestSource;
use usher_core::Instant;
use usher_radius::attribute::{AttributeList, kind};

/// A request that came.
#[derive(Debug)]
pub(super) struct LoginRequest {
    pub(super) owner: LoginOwner,
    pub(super) pending: PendingRequest,
}

impl LoginRequest {
    /// The user's name as the request has it.
    pub(super) fn name(&self) -> &[u8] {
        self.pending.request.get(kind::USER_NAME).unwrap_or_default()
    }
    /// What is told of it where no session here has it.
    pub(super) const fn sessionless_login(&self) -> SessionlessLogin {
        let PendingRequest { asker, arrived, .. } = self.pending;
        SessionlessLogin { started_at: arrived, asker: Some(asker), client: self.owner.client_index() }
    }
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) asker: RequestToken,
    /// Where it came from.
    pub(super) source: RequestSource,
    /// When it came.
    pub(super) arrived: Instant,
    /// What it said.
    pub(super) request: AttributeList,
}

impl PendingRequest {
    /// Calling-Station-Id; empty: none.
    pub(super) fn station(&self) -> &[u8] {
        self.request.get(kind::CALLING_STATION_ID).unwrap_or_default()
    }
}

/// A login that no session here has.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionlessLogin {
    pub(super) started_at: Instant,
    /// Who waits; `None`: nobody.
    pub(super) asker: Option<RequestToken>,
    /// The RADIUS client.
    pub(super) client: Option<u32>,
}

/// How a login ended that no session here has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LoginOutcome {
    /// A home server let it in.
    Accepted,
    Rejected(super::RejectCause),
    /// It got no verdict.
    Undecided(super::RejectCause),
}

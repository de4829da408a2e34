//! Access requests, independent of the protocol.

use super::answer::RequestToken;
use super::api::LoginOwner;
use super::half_open::SessionFairnessKey;
use usher_core::Instant;
use usher_radius::attribute::{AttributeList, kind};

/// An access request.
#[derive(Debug)]
pub(super) struct LoginRequest {
    pub(super) owner: LoginOwner,
    pub(super) pending: PendingRequest,
}

impl LoginRequest {
    /// Returns its user name.
    pub(super) fn name(&self) -> &[u8] {
        self.pending.request.get(kind::USER_NAME).unwrap_or_default()
    }
    /// Returns its identification for events if it has no session here.
    pub(super) const fn sessionless_login(&self) -> LoginWithoutLocalSession {
        let PendingRequest { asker, arrived, .. } = self.pending;
        LoginWithoutLocalSession {
            started_at: arrived,
            asker: Some(asker),
            client: self.owner.client_index(),
        }
    }
}

/// A request that is not answered yet.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) asker: RequestToken,
    /// Source.
    pub(super) source: SessionFairnessKey,
    /// Time of arrival.
    pub(super) arrived: Instant,
    /// Its attributes.
    pub(super) request: AttributeList,
}

impl PendingRequest {
    /// Calling-Station-Id; empty: none.
    pub(super) fn station(&self) -> &[u8] {
        self.request.get(kind::CALLING_STATION_ID).unwrap_or_default()
    }
}

/// A login without a session here.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoginWithoutLocalSession {
    pub(super) started_at: Instant,
    /// The pending request. `None`: it is already answered.
    pub(super) asker: Option<RequestToken>,
    /// The RADIUS client.
    pub(super) client: Option<u32>,
}

/// The end of a login without a session here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LoginOutcome {
    /// A home server accepted it.
    Accepted,
    Rejected(super::RejectCause),
    /// It got no verdict.
    Undecided(super::RejectCause),
}

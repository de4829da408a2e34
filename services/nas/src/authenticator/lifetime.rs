//! The lifetime of an admitted session: as a reply states it, and as a CoA-Request changes it.

use super::ports::StationStatus;
use usher_access::{AccessReply, DynamicRequest, DynamicRequestKind, ErrorCause, LoginRoundState};
use usher_core::{Duration, Instant};
use usher_radius::attribute::kind;

/// Delay of a reauthentication that an Authorization-Lifetime of zero requests (RFC 6733 §8.9). A server that sends
/// zero in each reply then causes repeated reauthentication, but with a pause.
const AT_ONCE: Duration = Duration::from_secs(10);

/// The session's end as a reply states it: its time, or the time of reauthentication with the state for the AAA
/// server.
pub(super) struct SessionLifetime {
    pub(super) ends: Option<Duration>,
    pub(super) reauthentication: Option<(Duration, LoginRoundState)>,
}

impl SessionLifetime {
    pub(super) fn from_reply(reply: &AccessReply) -> Self {
        let ends = reply.session_timeout();
        let again = reply.reauthentication_delay().filter(|again| ends.is_none_or(|ends| *again <= ends));
        let again = again.map(|after| {
            let mut next = LoginRoundState::new();
            reply.fill_continuation(&mut next);
            (if after.is_zero() { AT_ONCE } else { after }, next)
        });
        Self { ends, reauthentication: again }
    }
}

/// Attributes that a CoA-Request may change: Session-Timeout, and the Termination-Action at its end. State
/// accompanies them (RFC 5176 §3.3).
const CHANGEABLE: [u8; 3] = [kind::SESSION_TIMEOUT, kind::TERMINATION_ACTION, kind::STATE];

/// The changes of a CoA-Request. Omitted attributes keep their values (RFC 5176 §3.6, note 3).
#[derive(Default)]
pub(super) struct AuthorizationChange {
    pub(super) lasts: Option<Duration>,
    /// True if the station is authenticated again at that time.
    pub(super) requires_reauth: Option<bool>,
    /// State for the AAA server at that time.
    pub(super) state: Option<LoginRoundState>,
}

impl AuthorizationChange {
    pub(super) fn from_request(request: &DynamicRequest) -> Result<Self, ErrorCause> {
        let content = &request.content;
        if request.kind != DynamicRequestKind::Change {
            return Ok(Self::default());
        }
        if !request.changed_attribute_numbers().all(|kind| CHANGEABLE.contains(&kind)) {
            return Err(ErrorCause::UnsupportedAttribute);
        }
        let again = match content.value(kind::TERMINATION_ACTION) {
            None => None,
            Some([0, 0, 0, action @ 0..=1]) => Some(*action == 1),
            Some(_) => return Err(ErrorCause::InvalidAttributeValue),
        };
        let state = content.value(kind::STATE).map(|_| {
            let mut next = LoginRoundState::new();
            content.fill_continuation(&mut next);
            next
        });
        if state.is_some() && again != Some(true) {
            return Err(ErrorCause::InvalidRequest);
        }
        Ok(Self { lasts: content.session_timeout(), requires_reauth: again, state })
    }

    pub(super) fn apply_change_to_status(
        &self,
        now: Instant,
        status: StationStatus,
    ) -> Result<StationStatus, ErrorCause> {
        let (until, again) = match status {
            _ if self.lasts.is_none() && self.requires_reauth.is_none() => return Ok(status),
            StationStatus::In(until) => (until, false),
            StationStatus::ReauthenticateAt(at) => (Some(at), true),
            // The decision that is pending will replace these values, so a change now would be lost.
            StationStatus::Running(..) | StationStatus::Quiet(_) => {
                return Err(ErrorCause::ResourcesUnavailable);
            }
        };
        let until = self.lasts.map(|lasts| now + lasts).or(until);
        match (self.requires_reauth.unwrap_or(again), until) {
            (false, _) => Ok(StationStatus::In(until)),
            (true, Some(at)) => Ok(StationStatus::ReauthenticateAt(at)),
            // A session without an end has no time at which to reauthenticate.
            (true, None) => Err(ErrorCause::MissingAttribute),
        }
    }
}

//! What the gateway waits for.

use usher_ike::machine::SaId;

/// What is due at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum GatewayTimer {
    /// A session ends.
    SessionEnd(SaId),
    /// The AAA server is told how a session is.
    Interim(SaId),
    /// A connection is begun again.
    Reconnect(usize),
    /// A connection is begun again whose IKE_SA this side has ended for that.
    Renew(usize),
    /// This side is to prove anew who it is.
    Reauthenticate(SaId),
    /// An IKE_SA has not been replaced in its time.
    Expire(SaId),
    /// A CHILD_SA has not.
    ExpireChild(u32),
    /// What the last CHILD_SAs of a session have carried is not waited for any more.
    Close(SaId),
    /// Whoever leaves does not wait for AAA servers any more.
    Farewell,
}

//! Timers of the gateway.

use usher_ike::machine::SaId;

/// A timer of the gateway.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum GatewayTimer {
    /// The session timeout is reached.
    SessionEnd(SaId),
    /// An interim accounting record is due.
    Interim(SaId),
    /// A connection is to be initiated again.
    Reconnect(usize),
    /// A connection is to be initiated again after this side ended it for reauthentication.
    Renew(usize),
    /// A reauthentication is due.
    Reauthenticate(SaId),
    /// The lifetime of an IKE_SA that was not replaced ends.
    Expire(SaId),
    /// The lifetime of a CHILD_SA that was not replaced ends.
    ExpireChild(u32),
    /// The wait for the last traffic reports of a session ends.
    Close(SaId),
    /// The wait for AAA servers at the shutdown ends.
    Farewell,
}

//! Timers of the gateway.

use usher_ike::machine::IkeSaId;

/// A timer of the gateway.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum GatewayTimer {
    /// The session timeout is reached.
    SessionEnd(IkeSaId),
    /// An interim accounting record is due.
    Interim(IkeSaId),
    /// A connection is to be initiated again.
    Reconnect(usize),
    /// A connection is to be initiated again after this side ended it for reauthentication.
    Renew(usize),
    /// A reauthentication is due.
    Reauthenticate(IkeSaId),
    /// The lifetime of an IKE_SA that was not replaced ends.
    Expire(IkeSaId),
    /// The lifetime of a CHILD_SA that was not replaced ends.
    ExpireChild(u32),
    /// The wait for the last traffic reports of a session ends.
    Close(IkeSaId),
    /// The wait for AAA servers at the shutdown ends.
    Farewell,
}

//! Timers of the gateway.

use usher_ike::machine::IkeSaId;

/// A timer of the gateway.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum GatewayTimer {
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
}

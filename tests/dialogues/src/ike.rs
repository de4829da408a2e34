//! An IKEv2 gateway with an AAA server, and clients that log in by EAP, a shared key or a certificate.
//!
//! Each client knows one password and may claim any identity. An input loses, repeats, delays and forges datagrams,
//! and moves clients. It also replaces or ends IKE_SAs from either side.

mod budget;
mod host;
mod world;

use crate::{DialogueOperation, InvariantBreach, OracleBelief, parse_operations};
use world::IkeTestNetwork;

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunOutcome {
    /// Sessions in total. A session spans the IKE_SAs that replace each other.
    pub sessions: usize,
    /// Failed EAP logins.
    pub refused: usize,
    /// Sessions reported to the AAA server.
    pub accounted: usize,
}

/// The kind of an operation. Its code is the index in [`OperationKind::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationKind {
    /// Another client takes the slot and connects.
    ReplaceClient,
    /// Time passes, at least the delay of a datagram.
    Run,
    /// Two seconds pass, which is longer than a login.
    Play,
    /// The client's next datagram is lost, repeated, late, or from another address.
    Fate,
    /// An earlier datagram of any client arrives again, from its address or another.
    Replay,
    /// The client or the gateway rekeys an IKE_SA or its CHILD_SAs.
    Rekey,
    /// The client changes its address (RFC 4555).
    Move,
    /// The client ends its IKE_SA.
    Down,
    /// The client connects again.
    Connect,
    /// The client is switched off.
    SwitchOff,
    /// The gateway closes IKE_SAs.
    Close,
    /// The AAA server disconnects sessions (RFC 5176).
    Dynamic,
    /// The gateway restarts.
    Restart,
    /// The gateway's jobs are delayed, done or refused one by one, or all done.
    Jobs,
}

impl OperationKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [Self; 14] = [
        Self::ReplaceClient,
        Self::Run,
        Self::Play,
        Self::Fate,
        Self::Replay,
        Self::Rekey,
        Self::Move,
        Self::Down,
        Self::Connect,
        Self::SwitchOff,
        Self::Close,
        Self::Dynamic,
        Self::Restart,
        Self::Jobs,
    ];
}

/// Carries out the operations of an input.
///
/// # Errors
/// An invariant does not hold.
pub fn run_ike_input(octets: &[u8]) -> Result<RunOutcome, InvariantBreach> {
    run_believing(octets, OracleBelief::Sound)
}

/// As [`run_ike_input`], with another assumption about passwords.
///
/// # Errors
/// An invariant does not hold.
pub fn run_believing(octets: &[u8], belief: OracleBelief) -> Result<RunOutcome, InvariantBreach> {
    let mut world = IkeTestNetwork::new(belief);
    for operation in parse_operations(octets) {
        let DialogueOperation { code, slot, how } = operation;
        let deed = OperationKind::ALL[usize::from(code) % OperationKind::ALL.len()];
        let slot = usize::from(slot) % world::SLOTS;
        match deed {
            OperationKind::ReplaceClient => world.start_client(slot, how),
            OperationKind::Run => world.pass_time(how),
            OperationKind::Play => world.play_dialogue(),
            OperationKind::Fate => world.set_fate(slot, how),
            OperationKind::Replay => world.replay_datagram(how)?,
            OperationKind::Rekey => world.rekey_sas(slot, how),
            OperationKind::Move => world.move_client(slot, how),
            OperationKind::Down => world.disconnect_client(slot),
            OperationKind::Connect => world.connect_client(slot),
            OperationKind::SwitchOff => world.switch_off(slot),
            OperationKind::Close => world.close_sessions(how),
            OperationKind::Dynamic => world.disconnect_user(how),
            OperationKind::Restart => world.restart_gateway(),
            OperationKind::Jobs => world.control_jobs(how),
        }
        world.check_invariants().map_err(|InvariantBreach(what)| {
            InvariantBreach(format!("after {deed:?} of {operation:?}: {what}"))
        })?;
    }
    world.finish_run()
}

#[cfg(test)]
mod tests;

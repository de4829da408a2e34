//! An IKEv2 gateway, whose users an AAA server judges; clients by EAP, by a shared key and by a certificate.
//!
//! Each client knows one password, and may claim any identity. An input loses, repeats, delays and forges their datagrams, moves them, and
//! replaces or ends IKE_SAs from either side.

mod budget;
mod host;
mod world;

use crate::{DialogueOperation, InvariantBreach, OracleBelief, parse_operations};
use world::IkeTestNetwork;

/// What came of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunOutcome {
    /// Sessions that there were, one for all IKE_SAs that take each other's places.
    pub sessions: usize,
    /// Logins of EAP that came to nothing.
    pub refused: usize,
    /// Sessions that the AAA server was told of.
    pub accounted: usize,
}

/// What an operation does; its code counts by the number of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationKind {
    /// Another client is at the place, and connects.
    ReplaceClient,
    /// So much time passes as one datagram takes, or more.
    Run,
    /// Two seconds pass: a login takes less.
    Play,
    /// The client's next datagram is lost, repeated, late, or from elsewhere.
    Fate,
    /// An earlier datagram of anybody's once more, from where it came or from elsewhere.
    Replay,
    /// An IKE_SA or its CHILD_SAs are replaced, by the client or by the gateway.
    Rekey,
    /// The client's address is another (RFC 4555).
    Move,
    /// The client ends its IKE_SA.
    Down,
    /// The client connects again.
    Connect,
    /// The client is switched off.
    SwitchOff,
    /// The gateway ends IKE_SAs.
    Close,
    /// The AAA server has sessions ended.
    Dynamic,
    /// The gateway begins anew.
    Restart,
    /// What the gateway asks of its helpers waits, is done or refused one by one, or all of it.
    Jobs,
}

impl OperationKind {
    /// All of them, in the order of their codes.
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

/// The same with another belief about people.
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

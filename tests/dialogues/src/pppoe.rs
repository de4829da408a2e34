//! A PPPoE access concentrator, whose hosts an AAA server judges; hosts on one Ethernet.
//!
//! Each host knows one password, and may claim any name and any address of the Ethernet. An input loses, repeats, delays and forges their
//! frames, and ends sessions from either side.

mod budget;
mod ethernet;
mod world;

use crate::{DialogueOperation, InvariantBreach, OracleBelief, parse_operations};
use world::PppoeTestNetwork;

/// What came of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunOutcome {
    /// Hosts that were let in.
    pub let_in: usize,
    /// Hosts that were turned away.
    pub refused: usize,
    /// Sessions that the AAA server was told of.
    pub accounted: usize,
}

/// What an operation does; its code counts by the number of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationKind {
    /// Another host is at the place, and connects.
    ReplaceHost,
    /// So much time passes as one frame takes, or more.
    Run,
    /// Two seconds pass: a login takes less.
    Play,
    /// The host's next frame is lost, repeated, late, or from another station or of another session.
    Fate,
    /// An earlier frame of anybody's once more, as it was or from another station or of another session.
    Replay,
    /// The host disconnects.
    Disconnect,
    /// The host connects again.
    Connect,
    /// The host is switched off.
    SwitchOff,
    /// The concentrator ends sessions.
    Close,
    /// The AAA server has sessions ended.
    Dynamic,
    /// The concentrator begins anew.
    Restart,
}

impl OperationKind {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 11] = [
        Self::ReplaceHost,
        Self::Run,
        Self::Play,
        Self::Fate,
        Self::Replay,
        Self::Disconnect,
        Self::Connect,
        Self::SwitchOff,
        Self::Close,
        Self::Dynamic,
        Self::Restart,
    ];
}

/// Carries out the operations of an input.
///
/// # Errors
/// An invariant does not hold.
pub fn run_pppoe_input(octets: &[u8]) -> Result<RunOutcome, InvariantBreach> {
    run_believing(octets, OracleBelief::Sound)
}

/// The same with another belief about people.
///
/// # Errors
/// An invariant does not hold.
pub fn run_believing(octets: &[u8], belief: OracleBelief) -> Result<RunOutcome, InvariantBreach> {
    let mut world = PppoeTestNetwork::new(belief);
    for operation in parse_operations(octets) {
        let DialogueOperation { code, slot, how } = operation;
        let deed = OperationKind::ALL[usize::from(code) % OperationKind::ALL.len()];
        let slot = usize::from(slot) % world::SLOTS;
        match deed {
            OperationKind::ReplaceHost => world.start_host(slot, operation),
            OperationKind::Run => world.pass_time(how),
            OperationKind::Play => world.play_dialogue(),
            OperationKind::Fate => world.set_fate(slot, how),
            OperationKind::Replay => world.replay_frame(how)?,
            OperationKind::Disconnect => world.disconnect_host(slot),
            OperationKind::Connect => world.connect_host(slot),
            OperationKind::SwitchOff => world.switch_off(slot),
            OperationKind::Close => world.close_sessions(how),
            OperationKind::Dynamic => world.disconnect_user(how),
            OperationKind::Restart => world.restart_concentrator(),
        }
        world.check_invariants().map_err(|InvariantBreach(what)| {
            InvariantBreach(format!("after {deed:?} of {operation:?}: {what}"))
        })?;
    }
    world.finish_run()
}

#[cfg(test)]
mod tests;

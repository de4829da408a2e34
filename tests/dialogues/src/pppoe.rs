//! A PPPoE access concentrator with an AAA server, and hosts on one Ethernet.
//!
//! Each host knows one password. It may claim any name and any address of the Ethernet. An input loses, repeats,
//! delays and forges frames, and ends sessions from either side.

mod budget;
mod ethernet;
mod world;

use crate::{DialogueOperation, InvariantBreach, OracleBelief, parse_operations};
use world::PppoeTestNetwork;

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunOutcome {
    /// Accepted hosts.
    pub let_in: usize,
    /// Rejected hosts.
    pub refused: usize,
    /// Sessions reported to the AAA server.
    pub accounted: usize,
}

/// The kind of an operation. Its code is the index in [`OperationKind::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationKind {
    /// Another host takes the slot and connects.
    ReplaceHost,
    /// Time passes, at least the delay of a frame.
    Run,
    /// Two seconds pass, which is longer than a login.
    Play,
    /// The host's next frame is lost, repeated, late, or from another station or session.
    Fate,
    /// An earlier frame of any host arrives again, unchanged or from another station or session.
    Replay,
    /// The host disconnects.
    Disconnect,
    /// The host connects again.
    Connect,
    /// The host is switched off.
    SwitchOff,
    /// The concentrator closes sessions.
    Close,
    /// The AAA server disconnects sessions (RFC 5176).
    Dynamic,
    /// The concentrator restarts.
    Restart,
}

impl OperationKind {
    /// All kinds, in the order of their codes.
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

/// As [`run_pppoe_input`], with another assumption about passwords.
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

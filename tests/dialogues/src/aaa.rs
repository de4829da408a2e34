//! The AAA server, its ledger and its store; stations and access servers in front of them.
//!
//! Access servers speak RADIUS, RadSec and Diameter. Stations know one password each and may claim any name. Access servers are honest: they pass EAP on, and tell of sessions by the name
//! and the Class of the Access-Accept. Between both an input repeats, splices, swaps and delays.

mod diameter;
mod oracle;
mod sessions;
mod station;
mod wire;
mod world;

pub use station::ProofMethod;

use crate::{DialogueOperation, InvariantBreach, OracleBelief, parse_operations};
use world::AaaTestNetwork;

/// What came of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunOutcome {
    /// Logins that the server accepted.
    pub accepted: usize,
    /// Access-Rejects that access servers received.
    pub rejected: usize,
    /// Sessions whose Accounting-Start was acknowledged.
    pub started: usize,
}

/// What an operation does; its code counts by the number of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationKind {
    /// A station comes to the port, whoever was there before.
    StartLogin,
    /// One request, and its answer.
    Step,
    /// Requests and answers until the login is decided.
    Play,
    /// The last request once more; with `how[0]` odd from another port.
    Repeat,
    /// An earlier request of anybody's once more.
    Replay,
    /// The next answer is lost.
    Lose,
    /// The next request has the EAP packet of another port's station, or its State.
    Splice,
    /// The station says again what it said before.
    Stale,
    /// The next request has another User-Name.
    Rename,
    /// The station is at another access server from now on.
    Roam,
    /// Time passes.
    PassTime,
    /// What the server asks of its host waits, is answered one by one, or all of it.
    Jobs,
    /// Accounting of the port's session.
    Account,
    /// An access server begins anew, or goes down.
    RestartAccessServer,
    /// The store goes away, or comes back.
    Store,
    /// The server forgets users that it has looked up, or is configured anew.
    EvictOrReload,
    /// The server begins anew with what its store has.
    Restart,
}

impl OperationKind {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 17] = [
        Self::StartLogin,
        Self::Step,
        Self::Play,
        Self::Repeat,
        Self::Replay,
        Self::Lose,
        Self::Splice,
        Self::Stale,
        Self::Rename,
        Self::Roam,
        Self::PassTime,
        Self::Jobs,
        Self::Account,
        Self::RestartAccessServer,
        Self::Store,
        Self::EvictOrReload,
        Self::Restart,
    ];
}

/// Carries out the operations of an input.
///
/// # Errors
/// An invariant does not hold.
pub fn run_aaa_input(octets: &[u8]) -> Result<RunOutcome, InvariantBreach> {
    run_believing(octets, OracleBelief::Sound)
}

/// The same with another belief about people.
///
/// # Errors
/// An invariant does not hold.
pub fn run_believing(octets: &[u8], belief: OracleBelief) -> Result<RunOutcome, InvariantBreach> {
    let mut world = AaaTestNetwork::new(belief);
    for operation in parse_operations(octets) {
        let DialogueOperation { code, slot, how } = operation;
        let deed = OperationKind::ALL[usize::from(code) % OperationKind::ALL.len()];
        let slot = usize::from(slot) % world::SLOTS;
        match deed {
            OperationKind::StartLogin => world.start_login(slot, operation)?,
            OperationKind::Step => world.step_login(slot)?,
            OperationKind::Play => world.play_login(slot)?,
            OperationKind::Repeat => world.repeat_request(slot, how)?,
            OperationKind::Replay => world.replay_request(how)?,
            OperationKind::Lose => world.lose_reply(slot),
            OperationKind::Splice => world.splice_request(slot, how)?,
            OperationKind::Stale => world.send_stale(slot)?,
            OperationKind::Rename => world.rename_user(slot, how)?,
            OperationKind::Roam => world.move_login(slot, how),
            OperationKind::PassTime => world.wait_span(how)?,
            OperationKind::Jobs => world.control_jobs(how)?,
            OperationKind::Account => world.run_accounting(slot, how)?,
            OperationKind::RestartAccessServer => world.restart_access_server(how)?,
            OperationKind::Store => world.toggle_store(),
            OperationKind::EvictOrReload => world.evict_or_reload(how)?,
            OperationKind::Restart => world.restart_server()?,
        }
        world.check_invariants().map_err(|InvariantBreach(what)| {
            InvariantBreach(format!("after {deed:?} of {operation:?}: {what}"))
        })?;
    }
    world.finish_run()
}

#[cfg(test)]
mod tests;

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

use crate::{InvariantBreach, Operation, OracleBelief, operations};
use world::World;

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
    Begin,
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
    Wait,
    /// What the server asks of its host waits, is answered one by one, or all of it.
    Jobs,
    /// Accounting of the port's session.
    Account,
    /// An access server begins anew, or goes down.
    RestartAccessServer,
    /// The store goes away, or comes back.
    Store,
    /// The server forgets users that it has looked up, or is configured anew.
    Forget,
    /// The server begins anew with what its store has.
    Restart,
}

impl OperationKind {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 17] = [
        Self::Begin,
        Self::Step,
        Self::Play,
        Self::Repeat,
        Self::Replay,
        Self::Lose,
        Self::Splice,
        Self::Stale,
        Self::Rename,
        Self::Roam,
        Self::Wait,
        Self::Jobs,
        Self::Account,
        Self::RestartAccessServer,
        Self::Store,
        Self::Forget,
        Self::Restart,
    ];
}

/// Carries out the operations of an input.
///
/// # Errors
/// An invariant does not hold.
pub fn run(octets: &[u8]) -> Result<RunOutcome, InvariantBreach> {
    run_believing(octets, OracleBelief::Sound)
}

/// The same with another belief about people.
///
/// # Errors
/// An invariant does not hold.
pub fn run_believing(octets: &[u8], belief: OracleBelief) -> Result<RunOutcome, InvariantBreach> {
    let mut world = World::new(belief);
    for operation in operations(octets) {
        let Operation { code, slot, how } = operation;
        let deed = OperationKind::ALL[usize::from(code) % OperationKind::ALL.len()];
        let slot = usize::from(slot) % world::SLOTS;
        match deed {
            OperationKind::Begin => world.begin(slot, operation)?,
            OperationKind::Step => world.step(slot)?,
            OperationKind::Play => world.play(slot)?,
            OperationKind::Repeat => world.repeat(slot, how)?,
            OperationKind::Replay => world.replay(how)?,
            OperationKind::Lose => world.lose(slot),
            OperationKind::Splice => world.splice(slot, how)?,
            OperationKind::Stale => world.stale(slot)?,
            OperationKind::Rename => world.rename(slot, how)?,
            OperationKind::Roam => world.roam(slot, how),
            OperationKind::Wait => world.wait(how)?,
            OperationKind::Jobs => world.jobs(how)?,
            OperationKind::Account => world.account(slot, how)?,
            OperationKind::RestartAccessServer => world.restart_access_server(how)?,
            OperationKind::Store => world.toggle_store(),
            OperationKind::Forget => world.forget(how)?,
            OperationKind::Restart => world.restart()?,
        }
        world.check().map_err(|InvariantBreach(what)| {
            InvariantBreach(format!("after {deed:?} of {operation:?}: {what}"))
        })?;
    }
    world.finish()
}

#[cfg(test)]
mod tests;

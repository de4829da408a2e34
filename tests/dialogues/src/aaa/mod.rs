//! The AAA server, its ledger and its store; stations and access servers in front of them.
//!
//! Stations know one password each and may claim any name. Access servers are honest: they pass EAP on, and tell of sessions by the name
//! and the Class of the Access-Accept. Between both an input repeats, splices, swaps and delays.

mod oracle;
mod sessions;
mod station;
mod wire;
mod world;

pub use station::ProofMethod;

use crate::{Belief, Breach, Operation, operations};
use world::World;

/// What came of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Logins that the server accepted.
    pub accepted: usize,
    /// Access-Rejects that access servers received.
    pub rejected: usize,
    /// Sessions whose Accounting-Start was acknowledged.
    pub started: usize,
}

/// What an operation does; its code counts by the number of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
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

impl Deed {
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
pub fn run(octets: &[u8]) -> Result<Outcome, Breach> {
    run_believing(octets, Belief::Sound)
}

/// The same with another belief about people.
///
/// # Errors
/// An invariant does not hold.
pub fn run_believing(octets: &[u8], belief: Belief) -> Result<Outcome, Breach> {
    let mut world = World::new(belief);
    for operation in operations(octets) {
        let Operation { code, slot, how } = operation;
        let deed = Deed::ALL[usize::from(code) % Deed::ALL.len()];
        let slot = usize::from(slot) % world::SLOTS;
        match deed {
            Deed::Begin => world.begin(slot, operation)?,
            Deed::Step => world.step(slot)?,
            Deed::Play => world.play(slot)?,
            Deed::Repeat => world.repeat(slot, how)?,
            Deed::Replay => world.replay(how)?,
            Deed::Lose => world.lose(slot),
            Deed::Splice => world.splice(slot, how)?,
            Deed::Stale => world.stale(slot)?,
            Deed::Rename => world.rename(slot, how)?,
            Deed::Roam => world.roam(slot, how),
            Deed::Wait => world.wait(how)?,
            Deed::Jobs => world.jobs(how)?,
            Deed::Account => world.account(slot, how)?,
            Deed::RestartAccessServer => world.restart_access_server(how)?,
            Deed::Store => world.toggle_store(),
            Deed::Forget => world.forget(how)?,
            Deed::Restart => world.restart()?,
        }
        world.check().map_err(|Breach(what)| Breach(format!("after {deed:?} of {operation:?}: {what}")))?;
    }
    world.finish()
}

#[cfg(test)]
mod tests;

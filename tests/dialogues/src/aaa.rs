//! The AAA server with its ledger and store, and stations behind access servers.
//!
//! Access servers speak RADIUS, RadSec and Diameter. They are honest: they pass EAP on, and account for sessions by
//! the name and Class of the Access-Accept. Each station knows one password and may claim any name. An input repeats,
//! splices, swaps and delays messages between them.

mod diameter;
mod oracle;
mod sessions;
mod station;
mod wire;
mod world;

pub use station::ProofMethod;

use crate::{DialogueOperation, InvariantBreach, OracleBelief, parse_operations};
use world::AaaTestNetwork;

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunOutcome {
    /// Logins that the server accepted.
    pub accepted: usize,
    /// Access-Rejects that access servers received.
    pub rejected: usize,
    /// Sessions whose Accounting-Start was acknowledged.
    pub started: usize,
}

/// The kind of an operation. Its code is the index in [`OperationKind::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationKind {
    /// A station takes the port and starts a login.
    StartLogin,
    /// One request and its reply.
    Step,
    /// Requests and replies until the login is decided.
    Play,
    /// The last request again. If `how[0]` is odd, from another port.
    Repeat,
    /// An earlier request of any station again.
    Replay,
    /// The next reply is lost.
    Lose,
    /// The next request carries the EAP packet or the State of another port's login.
    Splice,
    /// The station repeats its previous response.
    Stale,
    /// The next request has another User-Name.
    Rename,
    /// The station moves to another access server.
    Roam,
    /// Time passes.
    PassTime,
    /// The server's jobs are delayed, done one by one, or all done.
    Jobs,
    /// Accounting of the port's session.
    Account,
    /// An access server restarts or goes down.
    RestartAccessServer,
    /// The store fails or recovers.
    Store,
    /// The server drops cached users, or reloads its configuration.
    EvictOrReload,
    /// The server restarts with the contents of its store.
    Restart,
}

impl OperationKind {
    /// All kinds, in the order of their codes.
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

/// As [`run_aaa_input`], with another assumption about passwords.
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

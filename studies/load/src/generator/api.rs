//! Commands, events and errors of a generator.

use crate::pace::LoginPace;
use usher_core::Duration;

/// The reason why a generator cannot be created.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The clients' configuration is invalid.
    #[error(transparent)]
    Client(#[from] usher_access::ConfigError),
    /// A value is out of range.
    #[error("{0}")]
    Invalid(&'static str),
}

/// A command to a generator.
#[derive(Clone, Debug)]
pub enum GeneratorCommand {
    /// Continues at another pace and drops the backlog.
    Pace(LoginPace),
    /// Begins a window of measurement now. Take the statistics of the last window first.
    Measure,
    /// Starts no more logins, and finishes when the outstanding ones have ended.
    Stop,
    /// Closes the window now, as at the end of a ramp's step. Unfinished logins of the window are
    /// [`LoginFailure::Overdue`](crate::tally::LoginFailure::Overdue) if they were due longer ago than this limit, and cut off otherwise. Logins continue
    /// without counting.
    Close(Duration),
    /// Drops all outstanding logins silently. Those of an open window are cut off.
    Abandon,
}

/// An event of a generator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GeneratorEvent {
    /// The run has finished and the statistics are complete.
    Finished,
}

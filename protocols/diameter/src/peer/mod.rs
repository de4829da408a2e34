//! One peer: the state machine of RFC 6733 §5.6 ([`automaton`]), the watchdog of RFC 3539 §3.4
//! ([`watchdog`]) and the capabilities exchange of §5.3 ([`capabilities`]).

pub mod automaton;
pub mod capabilities;
pub mod watchdog;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A line of one of the two tables in the words of its RFC, to be held against that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// In this state,
    pub state: &'static str,
    /// on this event, with its condition if there is one,
    pub event: String,
    /// do this in order
    pub actions: Vec<&'static str>,
    /// and go there.
    pub next: &'static str,
}

impl fmt::Display for Line {
    /// As [`vectors`](crate::vectors) prints them: `state; event; action, action; next`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}; {}; {}", self.state, self.event, self.actions.join(", "), self.next)
    }
}

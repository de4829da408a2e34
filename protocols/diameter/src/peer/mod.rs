//! One peer: the state machine of RFC 6733 §5.6 ([`automaton`]), the watchdog of RFC 3539 §3.4
//! ([`watchdog`]) and the capabilities exchange of §5.3 ([`capabilities`]).

pub mod automaton;
pub mod capabilities;
pub mod watchdog;

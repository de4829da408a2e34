//! A peer: the state machine of RFC 6733 §5.6 ([`automaton`]), the watchdog of RFC 3539 §3.4 ([`watchdog`]) and the
//! capabilities exchange of RFC 6733 §5.3 ([`capabilities`]).

pub mod automaton;
pub mod capabilities;
pub mod watchdog;

use usher_core::automaton::AutomatonDiagram;

/// The tables of the peer and of its watchdog, as diagrams.
pub const AUTOMATA: [AutomatonDiagram; 2] =
    [automaton::PeerAutomaton::DIAGRAM, watchdog::WatchdogAutomaton::DIAGRAM];

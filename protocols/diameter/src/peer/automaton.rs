//! The peer state machine as the table of RFC 6733 §5.6.
//!
//! `I` is the connection we initiate, `R` the one we respond on.

use super::Line;

/// An enum whose variants have names in the RFC.
macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[$m:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name { $($(#[$m])* $variant,)* }
        impl $name {
            /// Every one, in the RFC's order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// As the RFC writes it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

named! {
    /// The states of RFC 6733 §5.6.
    State {
        /// No connection.
        Closed = "Closed",
        /// Our connection is being opened.
        WaitConnAck = "Wait-Conn-Ack",
        /// Our CER is sent.
        WaitICea = "Wait-I-CEA",
        /// Our connection is being opened and the peer's is already there.
        WaitConnAckElect = "Wait-Conn-Ack/Elect",
        /// Two connections; who drops which is being settled.
        WaitReturns = "Wait-Returns",
        /// Open on the peer's connection.
        ROpen = "R-Open",
        /// Open on our connection.
        IOpen = "I-Open",
        /// DPR sent or answered.
        Closing = "Closing",
    }
}

impl State {
    /// Messages of applications may pass.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::ROpen | Self::IOpen)
    }
}

named! {
    /// The events of RFC 6733 §5.6.2.
    Event {
        /// The local node wants a connection.
        Start = "Start",
        /// A CER came on a new connection of the peer.
        RConnCer = "R-Conn-CER",
        /// Our connection is up.
        IRcvConnAck = "I-Rcv-Conn-Ack",
        /// Our connection failed to come up.
        IRcvConnNack = "I-Rcv-Conn-Nack",
        /// The state lasted too long.
        Timeout = "Timeout",
        /// CEA on our connection.
        IRcvCea = "I-Rcv-CEA",
        /// Something other than a CEA where one is due.
        IRcvNonCea = "I-Rcv-Non-CEA",
        /// Our connection is gone.
        IPeerDisc = "I-Peer-Disc",
        /// The peer's connection is gone.
        RPeerDisc = "R-Peer-Disc",
        /// We won the election.
        WinElection = "Win-Election",
        /// A message is to be sent.
        SendMessage = "Send-Message",
        /// A message other than CER, CEA, DPR, DPA, DWR, DWA on the peer's connection.
        RRcvMessage = "R-Rcv-Message",
        /// The same on ours.
        IRcvMessage = "I-Rcv-Message",
        /// DWR on the peer's connection.
        RRcvDwr = "R-Rcv-DWR",
        /// DWR on ours.
        IRcvDwr = "I-Rcv-DWR",
        /// DWA on the peer's connection.
        RRcvDwa = "R-Rcv-DWA",
        /// DWA on ours.
        IRcvDwa = "I-Rcv-DWA",
        /// The local node wants to disconnect.
        Stop = "Stop",
        /// DPR on the peer's connection.
        RRcvDpr = "R-Rcv-DPR",
        /// DPR on ours.
        IRcvDpr = "I-Rcv-DPR",
        /// DPA on the peer's connection.
        RRcvDpa = "R-Rcv-DPA",
        /// DPA on ours.
        IRcvDpa = "I-Rcv-DPA",
    }
}

named! {
    /// The actions of RFC 6733 §5.6.3.
    Action {
        /// Open our connection.
        ISndConnReq = "I-Snd-Conn-Req",
        /// Take the peer's connection.
        RAccept = "R-Accept",
        /// Refuse the peer's connection.
        RReject = "R-Reject",
        /// Process the CER.
        ProcessCer = "Process-CER",
        /// Process the CEA.
        ProcessCea = "Process-CEA",
        /// Send a CER on our connection.
        ISndCer = "I-Snd-CER",
        /// Send a CEA on the peer's connection.
        RSndCea = "R-Snd-CEA",
        /// Drop what is left of an attempt.
        Cleanup = "Cleanup",
        /// Drop the connections at once.
        Error = "Error",
        /// Compare the identities (RFC 6733 §5.6.4).
        Elect = "Elect",
        /// Close our connection.
        IDisc = "I-Disc",
        /// Close the peer's connection.
        RDisc = "R-Disc",
        /// Send the message on the peer's connection.
        RSndMessage = "R-Snd-Message",
        /// Send the message on ours.
        ISndMessage = "I-Snd-Message",
        /// Process the message.
        Process = "Process",
        /// Process the DWR.
        ProcessDwr = "Process-DWR",
        /// Process the DWA.
        ProcessDwa = "Process-DWA",
        /// Send a DWA on the peer's connection.
        RSndDwa = "R-Snd-DWA",
        /// Send a DWA on ours.
        ISndDwa = "I-Snd-DWA",
        /// Send a DPR on the peer's connection.
        RSndDpr = "R-Snd-DPR",
        /// Send a DPR on ours.
        ISndDpr = "I-Snd-DPR",
        /// Send a DPA on the peer's connection.
        RSndDpa = "R-Snd-DPA",
        /// Send a DPA on ours.
        ISndDpa = "I-Snd-DPA",
    }
}

/// One line of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// In this state,
    pub state: State,
    /// on this event,
    pub event: Event,
    /// do this in order
    pub actions: &'static [Action],
    /// and go there.
    pub next: State,
}

macro_rules! table {
    ($($state:ident { $($event:ident => [$($action:ident),*] $next:ident;)* })*) => {
        &[$($(Row { state: State::$state, event: Event::$event, actions: &[$(Action::$action),*], next: State::$next },)*)*]
    };
}

/// The table of RFC 6733 §5.6.
#[rustfmt::skip]
pub const TABLE: &[Row] = table! {
    Closed {
        Start        => [ISndConnReq]                  WaitConnAck;
        RConnCer     => [RAccept, ProcessCer, RSndCea] ROpen;
    }
    WaitConnAck {
        IRcvConnAck  => [ISndCer]                      WaitICea;
        IRcvConnNack => [Cleanup]                      Closed;
        RConnCer     => [RAccept, ProcessCer]          WaitConnAckElect;
        Timeout      => [Error]                        Closed;
    }
    WaitICea {
        IRcvCea      => [ProcessCea]                   IOpen;
        RConnCer     => [RAccept, ProcessCer, Elect]   WaitReturns;
        IPeerDisc    => [IDisc]                        Closed;
        IRcvNonCea   => [Error]                        Closed;
        Timeout      => [Error]                        Closed;
    }
    WaitConnAckElect {
        IRcvConnAck  => [ISndCer, Elect]               WaitReturns;
        IRcvConnNack => [RSndCea]                      ROpen;
        RPeerDisc    => [RDisc]                        WaitConnAck;
        RConnCer     => [RReject]                      WaitConnAckElect;
        Timeout      => [Error]                        Closed;
    }
    WaitReturns {
        WinElection  => [IDisc, RSndCea]               ROpen;
        IPeerDisc    => [IDisc, RSndCea]               ROpen;
        IRcvCea      => [RDisc]                        IOpen;
        RPeerDisc    => [RDisc]                        WaitICea;
        RConnCer     => [RReject]                      WaitReturns;
        Timeout      => [Error]                        Closed;
    }
    ROpen {
        SendMessage  => [RSndMessage]                  ROpen;
        RRcvMessage  => [Process]                      ROpen;
        RRcvDwr      => [ProcessDwr, RSndDwa]          ROpen;
        RRcvDwa      => [ProcessDwa]                   ROpen;
        RConnCer     => [RReject]                      ROpen;
        Stop         => [RSndDpr]                      Closing;
        RRcvDpr      => [RSndDpa]                      Closing;
        RPeerDisc    => [RDisc]                        Closed;
    }
    IOpen {
        SendMessage  => [ISndMessage]                  IOpen;
        IRcvMessage  => [Process]                      IOpen;
        IRcvDwr      => [ProcessDwr, ISndDwa]          IOpen;
        IRcvDwa      => [ProcessDwa]                   IOpen;
        RConnCer     => [RReject]                      IOpen;
        Stop         => [ISndDpr]                      Closing;
        IRcvDpr      => [ISndDpa]                      Closing;
        IPeerDisc    => [IDisc]                        Closed;
    }
    Closing {
        IRcvDpa      => [IDisc]                        Closed;
        RRcvDpa      => [RDisc]                        Closed;
        Timeout      => [Error]                        Closed;
        IPeerDisc    => [IDisc]                        Closed;
        RPeerDisc    => [RDisc]                        Closed;
    }
};

/// The table in the RFC's words, line by line in its order.
pub fn rows() -> impl Iterator<Item = Line> {
    TABLE.iter().map(|row| Line {
        state: row.state.name(),
        event: row.event.name().into(),
        actions: row.actions.iter().map(|a| a.name()).collect(),
        next: row.next.name(),
    })
}

const STATES: usize = State::ALL.len();
const EVENTS: usize = Event::ALL.len();

/// Row number plus one by state and event, 0 where the table has none.
const INDEX: [[u8; EVENTS]; STATES] = {
    let mut index = [[0; EVENTS]; STATES];
    let mut i = 0;
    while i < TABLE.len() {
        index[TABLE[i].state as usize][TABLE[i].event as usize] = i as u8 + 1;
        i += 1;
    }
    index
};

/// The line for this state and event, if the table has one; an event without a line is ignored.
pub fn step(state: State, event: Event) -> Option<&'static Row> {
    let i = INDEX[state as usize][event as usize] as usize;
    TABLE.get(i.checked_sub(1)?)
}

/// Whether the local identity wins the election: it succeeds the remote one, letter case ignored
/// (RFC 6733 §5.6.4). The winner keeps the peer's connection and drops its own.
pub fn wins_election(local: &str, remote: &str) -> bool {
    let lower = |s: &str| s.bytes().map(|b| b.to_ascii_lowercase()).collect::<alloc::vec::Vec<u8>>();
    lower(local) > lower(remote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_found_and_nothing_else_is() {
        let mut found = 0;
        for &state in State::ALL {
            for &event in Event::ALL {
                let expected = TABLE.iter().find(|r| r.state == state && r.event == event);
                assert_eq!(step(state, event), expected, "{state:?} {event:?}");
                found += usize::from(expected.is_some());
            }
        }
        assert_eq!((found, TABLE.len()), (43, 43));
    }

    #[test]
    fn the_table_is_the_rfcs() {
        let ours: Vec<_> = rows().map(|line| line.to_string()).collect();
        assert_eq!(ours, crate::vectors::PEER.lines().collect::<Vec<_>>());
    }

    #[test]
    fn elections_ignore_case() {
        assert!(wins_election("b.example", "A.example"));
        assert!(!wins_election("A.example", "b.example"));
        assert!(wins_election("aa", "a"));
        assert!(!wins_election("A", "a"));
    }
}

//! The peer state machine as the table of RFC 6733 §5.6.
//!
//! `I` is the connection we initiate, `R` the one we respond on.

/// The states of RFC 6733 §5.6.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// No connection.
    Closed,
    /// Our connection is being opened.
    WaitConnAck,
    /// Our CER is sent.
    WaitICea,
    /// Our connection is being opened and the peer's is already there.
    WaitConnAckElect,
    /// Two connections; who drops which is being settled.
    WaitReturns,
    /// Open on the peer's connection.
    ROpen,
    /// Open on our connection.
    IOpen,
    /// DPR sent or answered.
    Closing,
}

impl State {
    /// Messages of applications may pass.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::ROpen | Self::IOpen)
    }
}

macro_rules! events {
    ($($(#[$m:meta])* $name:ident,)*) => {
        /// The events of RFC 6733 §5.6.2.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Event { $($(#[$m])* $name,)* }
        impl Event {
            /// Every event.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}
events! {
    /// The local node wants a connection.
    Start,
    /// A CER came on a new connection of the peer.
    RConnCer,
    /// Our connection is up.
    IRcvConnAck,
    /// Our connection failed to come up.
    IRcvConnNack,
    /// The state lasted too long.
    Timeout,
    /// CEA on our connection.
    IRcvCea,
    /// Something other than a CEA where one is due.
    IRcvNonCea,
    /// Our connection is gone.
    IPeerDisc,
    /// The peer's connection is gone.
    RPeerDisc,
    /// We won the election.
    WinElection,
    /// A message is to be sent.
    SendMessage,
    /// A message other than CER, CEA, DPR, DPA, DWR, DWA on the peer's connection.
    RRcvMessage,
    /// The same on ours.
    IRcvMessage,
    /// DWR on the peer's connection.
    RRcvDwr,
    /// DWR on ours.
    IRcvDwr,
    /// DWA on the peer's connection.
    RRcvDwa,
    /// DWA on ours.
    IRcvDwa,
    /// The local node wants to disconnect.
    Stop,
    /// DPR on the peer's connection.
    RRcvDpr,
    /// DPR on ours.
    IRcvDpr,
    /// DPA on the peer's connection.
    RRcvDpa,
    /// DPA on ours.
    IRcvDpa,
}

/// The actions of RFC 6733 §5.6.3.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Open our connection.
    ISndConnReq,
    /// Take the peer's connection.
    RAccept,
    /// Refuse the peer's connection.
    RReject,
    /// Process the CER.
    ProcessCer,
    /// Process the CEA.
    ProcessCea,
    /// Send a CER on our connection.
    ISndCer,
    /// Send a CEA on the peer's connection.
    RSndCea,
    /// Drop what is left of an attempt.
    Cleanup,
    /// Drop the connections at once.
    Error,
    /// Compare the identities (RFC 6733 §5.6.4).
    Elect,
    /// Close our connection.
    IDisc,
    /// Close the peer's connection.
    RDisc,
    /// Send the message on the peer's connection.
    RSndMessage,
    /// Send the message on ours.
    ISndMessage,
    /// Process the message.
    Process,
    /// Process the DWR.
    ProcessDwr,
    /// Process the DWA.
    ProcessDwa,
    /// Send a DWA on the peer's connection.
    RSndDwa,
    /// Send a DWA on ours.
    ISndDwa,
    /// Send a DPR on the peer's connection.
    RSndDpr,
    /// Send a DPR on ours.
    ISndDpr,
    /// Send a DPA on the peer's connection.
    RSndDpa,
    /// Send a DPA on ours.
    ISndDpa,
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

const STATES: usize = 8;
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
        for state in [
            State::Closed,
            State::WaitConnAck,
            State::WaitICea,
            State::WaitConnAckElect,
            State::WaitReturns,
            State::ROpen,
            State::IOpen,
            State::Closing,
        ] {
            for &event in Event::ALL {
                let expected = TABLE.iter().find(|r| r.state == state && r.event == event);
                assert_eq!(step(state, event), expected, "{state:?} {event:?}");
                found += usize::from(expected.is_some());
            }
        }
        assert_eq!((found, TABLE.len()), (43, 43));
    }

    #[test]
    fn elections_ignore_case() {
        assert!(wins_election("b.example", "A.example"));
        assert!(!wins_election("A.example", "b.example"));
        assert!(wins_election("aa", "a"));
        assert!(!wins_election("A", "a"));
    }
}

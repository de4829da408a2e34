//! The peer state machine as the table of RFC 6733 §5.6.
//!
//! `I` is the connection that we initiate, `R` the one that we accept.

use usher_core::{automaton, names};

names! {
    /// The states of RFC 6733 §5.6.
    pub State {
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
    /// True if application messages may pass.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::ROpen | Self::IOpen)
    }
}

names! {
    /// The events of RFC 6733 §5.6.2.
    pub Event {
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

names! {
    /// The actions of RFC 6733 §5.6.3.
    pub Action {
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

automaton! {
    /// The table of RFC 6733 §5.6.
    pub PeerAutomaton("diameter-peer", "RFC 6733, 5.6"): State from Closed, on Event, do Action;
    Closed {
        Start => [ISndConnReq] WaitConnAck;
        RConnCer => [RAccept, ProcessCer, RSndCea] ROpen;
        ! ignored [IRcvConnAck, IRcvConnNack, Timeout, IRcvCea, IRcvNonCea, IPeerDisc, RPeerDisc,
            WinElection, SendMessage, RRcvMessage, IRcvMessage, RRcvDwr, IRcvDwr, RRcvDwa, IRcvDwa, Stop,
            RRcvDpr, IRcvDpr, RRcvDpa, IRcvDpa]:
            "there is no connection; late input of a dropped one is not for this peer";
    }
    WaitConnAck {
        IRcvConnAck => [ISndCer] WaitICea;
        IRcvConnNack => [Cleanup] Closed;
        RConnCer => [RAccept, ProcessCer] WaitConnAckElect;
        Timeout => [Error] Closed;
        ! ignored [Start, IRcvCea, IRcvNonCea, IPeerDisc, RPeerDisc, WinElection, SendMessage, RRcvMessage,
            IRcvMessage, RRcvDwr, IRcvDwr, RRcvDwa, IRcvDwa, Stop, RRcvDpr, IRcvDpr, RRcvDpa, IRcvDpa]:
            "neither connection is up";
    }
    WaitICea {
        IRcvCea => [ProcessCea] IOpen;
        RConnCer => [RAccept, ProcessCer, Elect] WaitReturns;
        IPeerDisc => [IDisc] Closed;
        IRcvNonCea => [Error] Closed;
        Timeout => [Error] Closed;
        ! ignored [Start, IRcvConnAck, IRcvConnNack, RPeerDisc, WinElection, SendMessage, RRcvMessage,
            IRcvMessage, RRcvDwr, IRcvDwr, RRcvDwa, IRcvDwa, Stop, RRcvDpr, IRcvDpr, RRcvDpa, IRcvDpa]:
            "our connection carries nothing before the CEA, and the peer has no connection";
    }
    WaitConnAckElect {
        IRcvConnAck => [ISndCer, Elect] WaitReturns;
        IRcvConnNack => [RSndCea] ROpen;
        RPeerDisc => [RDisc] WaitConnAck;
        RConnCer => [RReject] WaitConnAckElect;
        Timeout => [Error] Closed;
        ! ignored [Start, IRcvCea, IRcvNonCea, IPeerDisc, WinElection, SendMessage, RRcvMessage,
            IRcvMessage, RRcvDwr, IRcvDwr, RRcvDwa, IRcvDwa, Stop, RRcvDpr, IRcvDpr, RRcvDpa, IRcvDpa]:
            "our connection is not up, and the peer's carries nothing before its CEA";
    }
    WaitReturns {
        WinElection => [IDisc, RSndCea] ROpen;
        IPeerDisc => [IDisc, RSndCea] ROpen;
        IRcvCea => [RDisc] IOpen;
        RPeerDisc => [RDisc] WaitICea;
        RConnCer => [RReject] WaitReturns;
        Timeout => [Error] Closed;
        ! ignored [IRcvNonCea]: "the node closes our connection, which is I-Peer-Disc";
        ! ignored [Start, IRcvConnAck, IRcvConnNack, SendMessage, RRcvMessage, IRcvMessage, RRcvDwr,
            IRcvDwr, RRcvDwa, IRcvDwa, Stop, RRcvDpr, IRcvDpr, RRcvDpa, IRcvDpa]:
            "neither connection has exchanged capabilities";
    }
    ROpen {
        SendMessage => [RSndMessage] ROpen;
        RRcvMessage => [Process] ROpen;
        RRcvDwr => [ProcessDwr, RSndDwa] ROpen;
        RRcvDwa => [ProcessDwa] ROpen;
        RConnCer => [RReject] ROpen;
        Stop => [RSndDpr] Closing;
        RRcvDpr => [RSndDpa] Closing;
        RPeerDisc => [RDisc] Closed;
        ! ignored [Start, IRcvConnAck, IRcvConnNack, Timeout, IRcvCea, IRcvNonCea, IPeerDisc, WinElection,
            IRcvMessage, IRcvDwr, IRcvDwa, IRcvDpr, RRcvDpa, IRcvDpa]:
            "our connection is closed, and no attempt is in progress";
    }
    IOpen {
        SendMessage => [ISndMessage] IOpen;
        IRcvMessage => [Process] IOpen;
        IRcvDwr => [ProcessDwr, ISndDwa] IOpen;
        IRcvDwa => [ProcessDwa] IOpen;
        RConnCer => [RReject] IOpen;
        Stop => [ISndDpr] Closing;
        IRcvDpr => [ISndDpa] Closing;
        IPeerDisc => [IDisc] Closed;
        ! ignored [Start, IRcvConnAck, IRcvConnNack, Timeout, IRcvCea, IRcvNonCea, RPeerDisc, WinElection,
            RRcvMessage, RRcvDwr, RRcvDwa, RRcvDpr, RRcvDpa, IRcvDpa]:
            "our connection is up and is the only one";
    }
    Closing {
        IRcvDpa => [IDisc] Closed;
        RRcvDpa => [RDisc] Closed;
        Timeout => [Error] Closed;
        IPeerDisc => [IDisc] Closed;
        RPeerDisc => [RDisc] Closed;
        ! ignored [Start, RConnCer, IRcvConnAck, IRcvConnNack, IRcvCea, IRcvNonCea, WinElection,
            SendMessage, RRcvMessage, IRcvMessage, RRcvDwr, IRcvDwr, RRcvDwa, IRcvDwa, Stop, RRcvDpr,
            IRcvDpr]: "a DPR was sent or received: all but its answer and the end of the connection is late";
    }
}

/// True if the local identity wins the election: it is greater than the remote one, ignoring letter case (RFC 6733
/// §5.6.4). The winner keeps the peer's connection and drops its own.
pub fn wins_election(local: &str, remote: &str) -> bool {
    let lower = |s: &str| s.bytes().map(|b| b.to_ascii_lowercase()).collect::<alloc::vec::Vec<u8>>();
    lower(local) > lower(remote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_rfcs() {
        let ours: Vec<_> = PeerAutomaton::DIAGRAM.lines.iter().map(|line| line.to_string()).collect();
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

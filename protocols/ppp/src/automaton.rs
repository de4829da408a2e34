//! The option negotiation automaton, as the table of RFC 1661 §4.1. LCP and each network control protocol run one.

use usher_core::{automaton, names};

names! {
    /// The states of RFC 1661 §4.2.
    pub State {
        /// No lower layer, and nobody wants one.
        Initial = "Initial",
        /// No lower layer, and one is wanted.
        Starting = "Starting",
        /// A lower layer, and nobody wants it.
        Closed = "Closed",
        /// It is waited for the lower layer's end, or for the peer.
        Stopped = "Stopped",
        /// Terminate-Request is sent, and nobody wants the layer.
        Closing = "Closing",
        /// Terminate-Request is sent or answered, and the layer is still wanted.
        Stopping = "Stopping",
        /// Configure-Request is sent.
        ReqSent = "Req-Sent",
        /// And acknowledged.
        AckRcvd = "Ack-Rcvd",
        /// It is sent, and the peer's is acknowledged.
        AckSent = "Ack-Sent",
        /// Both are acknowledged.
        Opened = "Opened",
    }
}

names! {
    /// The events of RFC 1661 §4.3.
    pub Event {
        /// The lower layer can carry packets.
        Up = "Up",
        /// It cannot any more.
        Down = "Down",
        /// The layer is wanted.
        Open = "Open",
        /// It is not wanted any more.
        Close = "Close",
        /// The Restart timer has run out, and the counter has not.
        TimeoutAgain = "TO+",
        /// Both have run out.
        TimeoutLast = "TO-",
        /// A Configure-Request that is acceptable.
        RequestGood = "RCR+",
        /// One that is not.
        RequestBad = "RCR-",
        /// A Configure-Ack.
        Ack = "RCA",
        /// A Configure-Nak or Configure-Reject.
        NakOrReject = "RCN",
        /// A Terminate-Request.
        TerminateRequest = "RTR",
        /// A Terminate-Ack.
        TerminateAck = "RTA",
        /// A code that is not known.
        UnknownCode = "RUC",
        /// A rejection of an optional code or protocol.
        RejectPermitted = "RXJ+",
        /// A rejection of an essential code or protocol.
        RejectCatastrophic = "RXJ-",
        /// An Echo-Request, Echo-Reply or Discard-Request.
        Echo = "RXR",
    }
}

names! {
    /// The actions of RFC 1661 §4.4.
    pub Action {
        /// This-Layer-Up.
        LayerUp = "tlu",
        /// This-Layer-Down.
        LayerDown = "tld",
        /// This-Layer-Started.
        LayerStarted = "tls",
        /// This-Layer-Finished.
        LayerFinished = "tlf",
        /// Initialize-Restart-Count.
        InitializeCount = "irc",
        /// Zero-Restart-Count.
        ZeroCount = "zrc",
        /// Send-Configure-Request.
        SendRequest = "scr",
        /// Send-Configure-Ack.
        SendAck = "sca",
        /// Send-Configure-Nak or -Reject.
        SendNak = "scn",
        /// Send-Terminate-Request.
        SendTerminateRequest = "str",
        /// Send-Terminate-Ack.
        SendTerminateAck = "sta",
        /// Send-Code-Reject.
        SendCodeReject = "scj",
        /// Send-Echo-Reply.
        SendEchoReply = "ser",
    }
}

automaton! {
    /// The table of RFC 1661 §4.1. Its footnotes:
    ///
    /// - \[p\]: no passive option. A PPPoE session has a beginning and an end (§4.2, Stopped).
    /// - \[r\]: an Open event in an open layer does nothing. This crate does not restart a negotiation by it (§4.3,
    ///   Open).
    /// - \[x\]: a second reply to a request is invalid (§4.3, RCA) and does not reach the table. A duplicated frame
    ///   therefore takes no link down. The rows stand as the RFC has them.
    ///
    /// For the same reason RCR+ in Opened does not reach the table if the request is a copy of the acknowledged one. A
    /// copy is identical and comes less than a Restart timer later. It is acknowledged again.
    pub OptionNegotiation("ppp-option-negotiation", "RFC 1661, 4.1"): State from Initial, on Event, do Action;
    Initial {
        Up => [] Closed;
        Open => [LayerStarted] Starting;
        Close => [] Initial;
        ! never [Down, TimeoutAgain, TimeoutLast, RequestGood, RequestBad, Ack, NakOrReject, TerminateRequest,
            TerminateAck, UnknownCode, RejectPermitted, RejectCatastrophic, Echo]:
            "there is no lower layer that could go down or bring a packet";
    }
    Starting {
        Up => [InitializeCount, SendRequest] ReqSent;
        Open => [] Starting;
        Close => [LayerFinished] Initial;
        ! never [Down, TimeoutAgain, TimeoutLast, RequestGood, RequestBad, Ack, NakOrReject, TerminateRequest,
            TerminateAck, UnknownCode, RejectPermitted, RejectCatastrophic, Echo]:
            "there is no lower layer that could go down or bring a packet";
    }
    Closed {
        Down => [] Initial;
        Open => [InitializeCount, SendRequest] ReqSent;
        Close => [] Closed;
        RequestGood => [SendTerminateAck] Closed;
        RequestBad => [SendTerminateAck] Closed;
        Ack => [SendTerminateAck] Closed;
        NakOrReject => [SendTerminateAck] Closed;
        TerminateRequest => [SendTerminateAck] Closed;
        TerminateAck => [] Closed;
        UnknownCode => [SendCodeReject] Closed;
        RejectPermitted => [] Closed;
        RejectCatastrophic => [LayerFinished] Closed;
        Echo => [] Closed;
        ! never [Up, TimeoutAgain, TimeoutLast]: "the lower layer is up, and the Restart timer does not run";
    }
    Stopped {
        Down => [LayerStarted] Starting;
        Open => [] Stopped;
        Close => [] Closed;
        RequestGood => [InitializeCount, SendRequest, SendAck] AckSent;
        RequestBad => [InitializeCount, SendRequest, SendNak] ReqSent;
        Ack => [SendTerminateAck] Stopped;
        NakOrReject => [SendTerminateAck] Stopped;
        TerminateRequest => [SendTerminateAck] Stopped;
        TerminateAck => [] Stopped;
        UnknownCode => [SendCodeReject] Stopped;
        RejectPermitted => [] Stopped;
        RejectCatastrophic => [LayerFinished] Stopped;
        Echo => [] Stopped;
        ! never [Up, TimeoutAgain, TimeoutLast]: "the lower layer is up, and the Restart timer does not run";
    }
    Closing {
        Down => [] Initial;
        Open => [] Stopping;
        Close => [] Closing;
        TimeoutAgain => [SendTerminateRequest] Closing;
        TimeoutLast => [LayerFinished] Closed;
        RequestGood => [] Closing;
        RequestBad => [] Closing;
        Ack => [] Closing;
        NakOrReject => [] Closing;
        TerminateRequest => [SendTerminateAck] Closing;
        TerminateAck => [LayerFinished] Closed;
        UnknownCode => [SendCodeReject] Closing;
        RejectPermitted => [] Closing;
        RejectCatastrophic => [LayerFinished] Closed;
        Echo => [] Closing;
        ! never [Up]: "the lower layer is up";
    }
    Stopping {
        Down => [] Starting;
        Open => [] Stopping;
        Close => [] Closing;
        TimeoutAgain => [SendTerminateRequest] Stopping;
        TimeoutLast => [LayerFinished] Stopped;
        RequestGood => [] Stopping;
        RequestBad => [] Stopping;
        Ack => [] Stopping;
        NakOrReject => [] Stopping;
        TerminateRequest => [SendTerminateAck] Stopping;
        TerminateAck => [LayerFinished] Stopped;
        UnknownCode => [SendCodeReject] Stopping;
        RejectPermitted => [] Stopping;
        RejectCatastrophic => [LayerFinished] Stopped;
        Echo => [] Stopping;
        ! never [Up]: "the lower layer is up";
    }
    ReqSent {
        Down => [] Starting;
        Open => [] ReqSent;
        Close => [InitializeCount, SendTerminateRequest] Closing;
        TimeoutAgain => [SendRequest] ReqSent;
        TimeoutLast => [LayerFinished] Stopped;
        RequestGood => [SendAck] AckSent;
        RequestBad => [SendNak] ReqSent;
        Ack => [InitializeCount] AckRcvd;
        NakOrReject => [InitializeCount, SendRequest] ReqSent;
        TerminateRequest => [SendTerminateAck] ReqSent;
        TerminateAck => [] ReqSent;
        UnknownCode => [SendCodeReject] ReqSent;
        RejectPermitted => [] ReqSent;
        RejectCatastrophic => [LayerFinished] Stopped;
        Echo => [] ReqSent;
        ! never [Up]: "the lower layer is up";
    }
    AckRcvd {
        Down => [] Starting;
        Open => [] AckRcvd;
        Close => [InitializeCount, SendTerminateRequest] Closing;
        TimeoutAgain => [SendRequest] ReqSent;
        TimeoutLast => [LayerFinished] Stopped;
        RequestGood => [SendAck, LayerUp] Opened;
        RequestBad => [SendNak] AckRcvd;
        Ack => [SendRequest] ReqSent;
        NakOrReject => [SendRequest] ReqSent;
        TerminateRequest => [SendTerminateAck] ReqSent;
        TerminateAck => [] ReqSent;
        UnknownCode => [SendCodeReject] AckRcvd;
        RejectPermitted => [] ReqSent;
        RejectCatastrophic => [LayerFinished] Stopped;
        Echo => [] AckRcvd;
        ! never [Up]: "the lower layer is up";
    }
    AckSent {
        Down => [] Starting;
        Open => [] AckSent;
        Close => [InitializeCount, SendTerminateRequest] Closing;
        TimeoutAgain => [SendRequest] AckSent;
        TimeoutLast => [LayerFinished] Stopped;
        RequestGood => [SendAck] AckSent;
        RequestBad => [SendNak] ReqSent;
        Ack => [InitializeCount, LayerUp] Opened;
        NakOrReject => [InitializeCount, SendRequest] AckSent;
        TerminateRequest => [SendTerminateAck] ReqSent;
        TerminateAck => [] AckSent;
        UnknownCode => [SendCodeReject] AckSent;
        RejectPermitted => [] AckSent;
        RejectCatastrophic => [LayerFinished] Stopped;
        Echo => [] AckSent;
        ! never [Up]: "the lower layer is up";
    }
    Opened {
        Down => [LayerDown] Starting;
        Open => [] Opened;
        Close => [LayerDown, InitializeCount, SendTerminateRequest] Closing;
        RequestGood => [LayerDown, SendRequest, SendAck] AckSent;
        RequestBad => [LayerDown, SendRequest, SendNak] ReqSent;
        Ack => [LayerDown, SendRequest] ReqSent;
        NakOrReject => [LayerDown, SendRequest] ReqSent;
        TerminateRequest => [LayerDown, ZeroCount, SendTerminateAck] Stopping;
        TerminateAck => [LayerDown, SendRequest] ReqSent;
        UnknownCode => [SendCodeReject] Opened;
        RejectPermitted => [] Opened;
        RejectCatastrophic => [LayerDown, InitializeCount, SendTerminateRequest] Stopping;
        Echo => [SendEchoReply] Opened;
        ! never [Up, TimeoutAgain, TimeoutLast]: "the lower layer is up, and the Restart timer does not run";
    }
}

impl State {
    /// True if the Restart timer may run in this state (RFC 1661 §4.1).
    pub(crate) const fn may_run_restart_timer(self) -> bool {
        matches!(self, Self::Closing | Self::Stopping | Self::ReqSent | Self::AckRcvd | Self::AckSent)
    }
    /// True if the lower layer is up, so that packets can come.
    pub(crate) const fn is_lower_layer_up(self) -> bool {
        !matches!(self, Self::Initial | Self::Starting)
    }
}

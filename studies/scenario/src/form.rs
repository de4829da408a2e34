//! The names of the closed forms that a figure can draw beside its results. `usher-theory` computes them.

usher_core::named! {
    "a closed form";
    /// A closed form, with its assumptions.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ClosedFormName {
        /// Mean delay in seconds of a completed EAP-MD5 authentication over RADIUS/UDP. The policy retransmits each of
        /// two requests until it and its reply both survive independent loss. Propagation delays only, without
        /// transmission times and queues.
        RadiusDelay = "radius-delay",
        /// Packets between NAS and AAA server, in both directions, for each EAP-MD5 login over RADIUS/UDP without loss,
        /// in the long run. They are two requests with their replies, and one request with its reply for each
        /// accounting record.
        RadiusPackets = "radius-packets",
        /// Accounting records for each login in the long run: Start, Stop and the Interims of a session of constant or
        /// exponential length.
        AccountingRecords = "accounting-records",
        /// Mean delay in seconds of acknowledged accounting records: a round trip, and over RADIUS the waits of its
        /// policy where request or reply is lost. Propagation delays only, without transmission times and queues.
        AccountingDelay = "accounting-delay",
        /// Mean delay in seconds of dialogues of one round over their clients' persistent TCP connections, with
        /// independent loss of requests only. It includes head-of-line blocking. A fixed timeout (rto_min = rto_max)
        /// repairs each loss. Propagation delays only, without transmission times, queues and fast retransmission
        /// (docs/explanation/head-of-line.md).
        HolDelay = "hol-delay",
        /// Share of successful MIH transactions over UDP, with independent loss of each packet. With MIH
        /// acknowledgements, by the standard's rule to give up (docs/explanation/mih.md), and with responses of several
        /// packets. Propagation delays, and the time of an 802.11 frame.
        MihSuccess = "mih-success",
        /// Share of successful MIH transactions over UDP if each message were independent and never late: (1 - p^3)^2
        /// for requests with MIH acknowledgement and two retransmissions.
        MihSuccessBound = "mih-success-bound",
        /// Mean delay in seconds of successful MIH transactions over UDP (docs/explanation/mih.md).
        MihDelay = "mih-delay",
        /// MIH packets over UDP for each message that carries information (docs/explanation/mih.md).
        MihOverhead = "mih-overhead",
        /// Mean delay in seconds over TCP without MIH acknowledgement (docs/explanation/mih.md). For indications: with
        /// one segment in flight that has room for most waiting messages; with delayed acknowledgements only without
        /// loss. For requests: a lower bound, that of lone segments.
        MihTcpDelay = "mih-tcp-delay",
        /// TCP segments of both sides for each indication without MIH acknowledgement, where the model of mih-tcp-delay
        /// holds. Without loss also for each request or response, with delayed acknowledgements
        /// (docs/explanation/mih.md).
        MihTcpSegments = "mih-tcp-segments",
        /// Share of data in the octets of packets with data, for dialogues of one round over persistent TCP connections
        /// without loss. One side writes or reads the requests a few octets at a time. Propagation delays only
        /// (docs/explanation/silly-window.md).
        TcpDataShare = "tcp-data-share",
        /// Time in seconds from EAP's success to a station's traffic keys over an idle 802.16 cell without loss. Two
        /// uplink messages are each requested, granted, sent and answered in 2 + uplink_lead frames. Without the
        /// symbols within a frame, processors and collisions.
        KeysDelay = "keys-delay",
    }
}

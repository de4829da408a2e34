//! The names of the closed forms that a figure can draw beside its results. `usher-theory` computes them.

usher_core::named! {
    "the name of a closed form";
    /// A closed form, and under which assumptions it holds.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ClosedForm {
        /// Mean delay in seconds of an EAP-MD5 authentication over RADIUS/UDP that completes: each of two requests is
        /// repeated by its policy until it and its reply both survive independent loss; propagation delays alone, without
        /// transmission times and queues.
        RadiusDelay = "radius-delay",
        /// Packets between NAS and AAA server, both ways, for each login by EAP-MD5 over RADIUS/UDP without loss: two
        /// requests with their answers, and one with its answer for each record of accounting, in the long run.
        RadiusPackets = "radius-packets",
        /// Records of accounting for each login in the long run: Start, Stop and the Interims of a session of constant or
        /// exponential length.
        AccountingRecords = "accounting-records",
        /// Mean delay in seconds of the records of accounting that are acknowledged: a round trip, and over RADIUS what its
        /// policy waits for where request or answer is lost; propagation delays alone, without transmission times and
        /// queues.
        AccountingDelay = "accounting-delay",
        /// Mean delay in seconds of dialogues of one round over their clients' persistent TCP connections, whose requests
        /// alone are lost, independently: what losses hold up behind them included, each repaired by a timeout that is
        /// fixed (rto_min = rto_max); propagation delays alone, without transmission times and queues, and without fast
        /// retransmission (docs/head-of-line.md).
        HolDelay = "hol-delay",
        /// Share of MIH transactions over UDP that succeed, each packet lost by itself: with MIH acknowledgement by the
        /// standard's rule to give up (docs/mih.md), a response of several packets included; propagation delays, and the
        /// time of a frame of 802.11.
        MihSuccess = "mih-success",
        /// Share of MIH transactions over UDP that would succeed if each message counted by itself and nothing were ever
        /// too late: (1 - p^3)^2 for requests with MIH acknowledgement and two retransmissions.
        MihSuccessBound = "mih-success-bound",
        /// Mean delay in seconds of MIH transactions over UDP that succeed (docs/mih.md).
        MihDelay = "mih-delay",
        /// MIH packets over UDP for each message that carries information (docs/mih.md).
        MihOverhead = "mih-overhead",
        /// Mean delay in seconds over TCP without MIH acknowledgement: of indications, one segment being under way at a
        /// time, while few find no room in it, with acknowledgements that wait without loss alone; of requests a lower
        /// bound, that of segments that nothing waits for (docs/mih.md).
        MihTcpDelay = "mih-tcp-delay",
        /// TCP segments of both sides for each indication without MIH acknowledgement, where mih-tcp-delay's model holds;
        /// without loss for each request or response, too, with acknowledgements that wait (docs/mih.md).
        MihTcpSegments = "mih-tcp-segments",
        /// Share of data in the octets of packets with data, of dialogues of one round over persistent TCP connections
        /// without loss, whose requests one side writes or reads a few octets at a time; propagation delays alone
        /// (docs/silly-window.md).
        TcpDataShare = "tcp-data-share",
        /// Time in seconds from EAP's success to a station's traffic keys over an idle 802.16 cell without loss: two
        /// messages up, each asked for, granted, said and answered, in 2 + uplink_lead frames; without the symbols within a
        /// frame, processors and collisions.
        KeysDelay = "keys-delay",
    }
}

//! Counters of a data plane.

usher_core::counters! {
    /// What became of packets. All but the first four are packets that went no further.
    pub struct EspCounters {
        /// Packets that were sealed.
        sealed,
        /// Packets that were opened and were of their SA's traffic.
        opened,
        /// Packets that went on as they were, by a policy.
        forwarded,
        /// Packets that waited for an SA.
        held,
        /// Packets that a policy, or the lack of one, had dropped; those that came by an SA and that a policy drops among them.
        discarded,
        /// Packets that waited for an SA and were dropped: others came, or no SA did.
        not_held,
        /// What was to be sent and was no IP packet.
        not_ip,
        /// Packets that transport mode cannot carry: fragments, and IPv6 with headers that routers look into.
        not_transportable,
        /// Packets for an SA that had carried as much as it may.
        expired,
        /// Packets that came for no SA of ours.
        unknown_spi,
        /// Packets that came too short for their SA, or not in whole blocks.
        length,
        /// Packets that came again.
        replayed,
        /// Packets that came when the window had passed them.
        late,
        /// Packets that came and were not authentic.
        integrity,
        /// Packets that were authentic with padding that was not.
        padding,
        /// Packets that carried nothing on purpose.
        dummies,
        /// Packets that carried what is not of their SA's traffic, or no IP packet.
        selectors,
        /// Keepalives.
        keepalives,
        /// Datagrams of port 4500 that were nothing.
        not_esp,
    }
}

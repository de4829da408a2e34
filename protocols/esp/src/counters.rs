//! Counters of a data plane.

usher_core::counters! {
    /// Packets of a data plane. All but the first four counters are drops.
    pub struct EspCounters {
        /// Packets encrypted.
        sealed,
        /// Packets decrypted that match their SA's selectors.
        opened,
        /// Packets sent in the clear, by a policy.
        forwarded,
        /// Packets that waited for an SA.
        queued,
        /// Packets dropped by a policy, or for lack of one, including packets received through an SA.
        discarded,
        /// Waiting packets dropped: newer ones came, or no SA did.
        queue_dropped,
        /// Outgoing data that is not an IP packet.
        not_ip,
        /// Packets that transport mode cannot carry: fragments, and IPv6 with headers for routers.
        not_transportable,
        /// Packets for an SA at its limit.
        expired,
        /// Packets received with an unknown SPI.
        unknown_spi,
        /// Packets received that are too short for their SA, or not in whole blocks.
        length,
        /// Packets received twice.
        replayed,
        /// Packets received that are older than the anti-replay window.
        late,
        /// Packets received that failed the integrity check.
        integrity,
        /// Authentic packets with invalid padding.
        padding,
        /// Dummy packets received (traffic flow confidentiality).
        dummies,
        /// Packets received that do not match their SA's selectors, or contain no IP packet.
        selectors,
        /// Keepalives.
        keepalives,
        /// Datagrams at port 4500 that are neither ESP nor IKE nor a keepalive.
        not_esp,
    }
}

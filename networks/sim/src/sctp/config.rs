//! Settings of an association. Each default names its standard.

use usher_core::Duration;

/// The initial congestion window of a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum InitialWindow {
    /// min(4·PMDCS, max(2·PMDCS, 4404 bytes)): RFC 9260 §7.2.1.
    #[default]
    Rfc9260,
    /// The same with this number of octets in place of 4404; RFC 4960 has 4380.
    Bytes(u32),
    /// This number of full-sized packets.
    Packets(u32),
}

impl InitialWindow {
    /// Returns the window in octets for packets with at most `pmdcs` octets of chunks.
    pub fn window_bytes(self, pmdcs: u32) -> u32 {
        match self {
            Self::Rfc9260 => Self::Bytes(4404).window_bytes(pmdcs),
            Self::Bytes(n) => pmdcs.saturating_mul(4).min(pmdcs.saturating_mul(2).max(n)),
            Self::Packets(n) => n.max(1).saturating_mul(pmdcs),
        }
    }
}

/// The algorithm of loss detection and recovery.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LossRecovery {
    /// RFC 9260 §6.3.3, §7.2.3 and §7.2.4.
    #[default]
    Rfc9260,
    /// ns-2's Agent/SCTP (`sctp.cc`), which differs as follows.
    ///
    /// - A SACK that reveals losses permits one packet of them regardless of the window; more follow at the next
    ///   SACK.
    /// - Chunks waiting for retransmission collect missing reports like those in flight.
    /// - Missing reports count below the highest TSN newly acknowledged since the cumulative TSN last advanced.
    /// - Recovery outlasts a timeout, and a loss behind its end starts another.
    /// - A timeout with a window of one packet keeps the threshold.
    /// - A SACK of a fast retransmission permits four packets.
    /// - T3-rtx restarts for the earliest chunk only if others are in flight.
    /// - Chunks waiting for retransmission do not extend a recovery's end.
    Ns2,
}

/// Settings of an association; associations share them by [`Arc`](std::sync::Arc).
#[derive(Clone, PartialEq, Debug)]
pub struct SctpConfig {
    /// Retransmission timeout before the first measurement, and of the setup; 1 s (RFC 9260 §16 RTO.Initial).
    pub rto_initial: Duration,
    /// Minimum retransmission timeout; 1 s (RTO.Min).
    pub rto_min: Duration,
    /// Maximum retransmission timeout; 60 s (RTO.Max).
    pub rto_max: Duration,
    /// Maximum wait of an acknowledgement for data to ride on; 200 ms (RFC 9260 §6.2; the standard's bound is 500
    /// ms). `None` acknowledges every packet at once.
    pub sack_delay: Option<Duration>,
    /// Packets with data that end the wait; 2 (RFC 9260 §6.2).
    pub sack_frequency: u32,
    /// Acknowledge the first data of an association at once (RFC 9260 §5.1); on.
    pub first_sack_at_once: bool,
    /// Measure round trips by chunks sent before a retransmission and acknowledged behind it; off (RFC 9260 §6.3.1
    /// C5).
    pub measure_behind_retransmission: bool,
    /// After T3-rtx one packet is in flight until data is acknowledged; on (RFC 9260 §7.2.1). Off: one packet of lost
    /// chunks, then at the next SACK or message as the window permits (ns-2 and Linux).
    pub one_packet_after_timeout: bool,
    /// Grow the congestion window only when the cumulative TSN advances, and count lost data as in flight; off (RFC
    /// 9260 §7.2.1). On: ns-2; RFC 4960 has the first half.
    pub cumulative_growth: bool,
    /// Acknowledge at once the chunk that fills the last gap; on (RFC 9260 §6.7 requires it while there is a gap).
    /// Off: delayed as any other (ns-2 and Linux).
    pub filled_gap_at_once: bool,
    /// An immediate acknowledgement of a duplicate restarts the delay; on. Off: it keeps the count of packets and the
    /// timer (ns-2).
    pub duplicate_resets_delay: bool,
    /// Count headers and padding of DATA chunks as in flight; on (RFC 9260 §7.2.2). Off: only user data (Linux).
    pub headers_in_window: bool,
    /// Deliver data to the application before packets are sent, so that a SACK announces the freed window (ns-2).
    /// Off: send first, as a kernel.
    pub deliver_first: bool,
    /// Loss recovery; RFC 9260's.
    pub loss_recovery: LossRecovery,
    /// Bundle acknowledgements with data (RFC 9260 §6.1); on. Off: they are sent alone when due (ns-2).
    pub bundle_sacks: bool,
    /// Initial congestion window of each path; RFC 9260's.
    pub initial_window: InitialWindow,
    /// Delay data that does not fill a packet while data is unacknowledged; off. RFC 9260 §6.1 permits it; most
    /// stacks do it by default. Fragments of a message never wait.
    pub nagle: bool,
    /// Requested outbound streams; 10. [`SctpEvent::Up`](super::SctpEvent::Up) gives the negotiated number.
    pub outbound_streams: u16,
    /// Outbound streams of an accepted association, offered by INIT ACK (RFC 9260 §3.3.3). `None` offers the number
    /// that INIT requested in the other direction. The peer's limit bounds either number (§5.1.1).
    pub accepted_streams: Option<u16>,
    /// Maximum inbound streams; 2048.
    pub max_inbound_streams: u16,
    /// Octets of the largest SCTP packet, from the common header on: the path MTU less the IP header. 1480:
    /// Ethernet's 1500 less 20 octets of IPv4 header. The minimum is 508.
    pub max_packet: u32,
    /// Maximum new data packets per burst; 4 (RFC 9260 §6.1 Max.Burst). `None`: only the congestion window limits it.
    pub max_burst: Option<u32>,
    /// Maximum consecutive retransmissions over all paths before the association fails; 10 (Association.Max.Retrans).
    /// `None` for no limit.
    pub max_association_retransmissions: Option<u32>,
    /// Send ABORT to an unreachable peer, as FreeBSD; off (RFC 9260 §8.1 and §9.2 only end the association).
    pub abort_unreachable: bool,
    /// Maximum consecutive retransmissions on a path before it fails; 5 (Path.Max.Retrans).
    pub max_path_retransmissions: u32,
    /// Maximum retransmissions of INIT, and of COOKIE ECHO, before the setup fails; 8 (Max.Init.Retransmits). `None`
    /// for no limit.
    pub max_init_retransmissions: Option<u32>,
    /// Idle time, beside one RTO, after which a heartbeat probes a path; 30 s (HB.interval). `None` sends no
    /// heartbeats: a failed path recovers only if data sent on it is acknowledged.
    pub heartbeat_interval: Option<Duration>,
    /// Receive buffer in octets of user data, which the window announces; 131072. The minimum is 1500 (RFC 9260
    /// §3.3.2), the maximum 1 GiB. A message must fit into it.
    pub receive_buffer: u32,
    /// Lifetime of a cookie; 60 s (Valid.Cookie.Life).
    pub cookie_life: Duration,
    /// Probe a closed window at once, as FreeBSD. Off: after one RTO (RFC 9260 §6.1 A).
    pub probe_at_once: bool,
}

impl Default for SctpConfig {
    fn default() -> Self {
        Self {
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_secs(1),
            rto_max: Duration::from_secs(60),
            sack_delay: Some(Duration::from_millis(200)),
            sack_frequency: 2,
            first_sack_at_once: true,
            measure_behind_retransmission: false,
            one_packet_after_timeout: true,
            cumulative_growth: false,
            filled_gap_at_once: true,
            duplicate_resets_delay: true,
            headers_in_window: true,
            deliver_first: false,
            loss_recovery: LossRecovery::default(),
            bundle_sacks: true,
            initial_window: InitialWindow::default(),
            nagle: false,
            outbound_streams: 10,
            accepted_streams: None,
            max_inbound_streams: 2048,
            max_packet: 1480,
            max_burst: Some(4),
            max_association_retransmissions: Some(10),
            abort_unreachable: false,
            max_path_retransmissions: 5,
            max_init_retransmissions: Some(8),
            heartbeat_interval: Some(Duration::from_secs(30)),
            receive_buffer: 131_072,
            cookie_life: Duration::from_secs(60),
            probe_at_once: false,
        }
    }
}

impl SctpConfig {
    /// Returns the octets of the largest sent packet: a whole number of words.
    pub(super) fn packet_size(&self) -> u32 {
        self.max_packet.clamp(508, 65_532) & !3
    }
    /// Returns the PMDCS: the octets of a packet for chunks (RFC 9260 §1.6).
    pub(super) fn pmdcs(&self) -> u32 {
        self.packet_size() - super::COMMON_HEADER
    }
    /// Returns the maximum octets of user data in a DATA chunk.
    pub(super) fn max_data_chunk_payload(&self) -> u32 {
        self.pmdcs() - super::DATA_HEADER
    }
    /// Returns the receive buffer within its bounds.
    pub(super) fn bounded_receive_buffer(&self) -> u32 {
        self.receive_buffer.clamp(super::MIN_WINDOW, 1 << 30)
    }
}

/// Values that a host draws for an association.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InitialAssociationValues {
    /// Local verification tag; never 0 (0 becomes 1).
    pub tag: u32,
    /// First local TSN.
    pub tsn: u32,
    /// Key of the host's cookies, the same for all its associations.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for InitialAssociationValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Initial {{ tag: {:#010x}, tsn: {}, .. }}", self.tag, self.tsn)
    }
}

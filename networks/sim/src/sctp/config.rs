//! What can be set about an association, with the standard that gives each default.

use usher_core::Duration;

/// The congestion window of a path before data is sent on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum InitialWindow {
    /// min(4·PMDCS, max(2·PMDCS, 4404 bytes)): RFC 9260 §7.2.1.
    #[default]
    Rfc9260,
    /// The same with this many bytes for 4404; RFC 4960 has 4380.
    Bytes(u32),
    /// This many full-sized packets.
    Packets(u32),
}

impl InitialWindow {
    /// The window in bytes where a packet takes at most `pmdcs` bytes of chunks.
    pub fn window_bytes(self, pmdcs: u32) -> u32 {
        match self {
            Self::Rfc9260 => Self::Bytes(4404).window_bytes(pmdcs),
            Self::Bytes(n) => pmdcs.saturating_mul(4).min(pmdcs.saturating_mul(2).max(n)),
            Self::Packets(n) => n.max(1).saturating_mul(pmdcs),
        }
    }
}

/// How losses are found and repaired.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LossRecovery {
    /// RFC 9260 §6.3.3, §7.2.3 and §7.2.4.
    #[default]
    Rfc9260,
    /// As ns-2's Agent/SCTP has it (`sctp.cc`): each SACK that finds losses lets one packet of them out whatever the window, and
    /// more leaves at the next SACK only; what waits to be sent again is missed like what is in
    /// flight; a miss is counted below the highest TSN that was newly acknowledged since the cumulative one last
    /// advanced; recovery outlasts a timeout, and a loss behind its end begins another; a timeout of a window of one
    /// packet leaves the threshold alone; a SACK of what was fast retransmitted lets out four packets; T3-rtx begins anew for
    /// the earliest chunk only where others are in flight; what waits to be sent again is none of a recovery's end.
    Ns2,
}

/// The settings of an association; many associations share one by [`Arc`](std::sync::Arc).
#[derive(Clone, PartialEq, Debug)]
pub struct SctpConfig {
    /// Retransmission timeout before the first measurement, and of the set-up; 1 s (RFC 9260 §16
    /// RTO.Initial).
    pub rto_initial: Duration,
    /// Its lower bound; 1 s (RTO.Min).
    pub rto_min: Duration,
    /// Its upper bound; 60 s (RTO.Max).
    pub rto_max: Duration,
    /// The longest an acknowledgement waits for data to ride on; 200 ms (RFC 9260 §6.2; the standard's
    /// bound is 500 ms). `None` acknowledges every packet at once.
    pub sack_delay: Option<Duration>,
    /// Packets with data that may come before an acknowledgement no longer waits; 2 (RFC 9260 §6.2).
    pub sack_frequency: u32,
    /// Acknowledge the first data of an association at once, which RFC 9260 §5.1 asks for; on.
    pub first_sack_at_once: bool,
    /// What was sent before a retransmission and comes behind it measures round trips; off (RFC 9260 §6.3.1 C5).
    pub measure_behind_retransmission: bool,
    /// After T3-rtx one packet is in flight until data is acknowledged; on (RFC 9260 §7.2.1). Off, one packet of what is lost
    /// leaves, and at the next SACK or message what the window takes, as ns-2 and Linux have it.
    pub one_packet_after_timeout: bool,
    /// The congestion window grows only where the cumulative TSN advances, and what is held for lost then counts as in
    /// flight; off (RFC 9260 §7.2.1). On, as ns-2 has it; RFC 4960 had the first half.
    pub cumulative_growth: bool,
    /// What fills the last gap is acknowledged at once; on (what RFC 9260 §6.7 asks for while there is one). Off, it waits
    /// as any other does, as ns-2 and Linux have it.
    pub filled_gap_at_once: bool,
    /// An acknowledgement that goes at once for a duplicate begins the delay anew; on. Off, it leaves the count of packets
    /// and the timer alone, as ns-2 has it.
    pub duplicate_resets_delay: bool,
    /// Headers and padding of DATA chunks count in flight and against the congestion window; on (RFC 9260 §7.2.2). Off,
    /// user data alone, as Linux has it.
    pub headers_in_window: bool,
    /// The application hears of what has come before anything leaves, so that a SACK announces the room that it made; off, as
    /// of a kernel. On, as ns-2 has it.
    pub deliver_first: bool,
    /// How losses are found and repaired; RFC 9260's.
    pub loss_recovery: LossRecovery,
    /// An acknowledgement rides on data that leaves, as RFC 9260 §6.1 asks for; on. Off, it goes alone and when it is
    /// due, as ns-2 has it.
    pub bundle_sacks: bool,
    /// Initial congestion window of each path; RFC 9260's.
    pub initial_window: InitialWindow,
    /// Hold data that does not fill a packet back while data is unacknowledged; off. RFC 9260 §6.1 allows
    /// it, most stacks do it unless the application says otherwise. Pieces of a fragmented message never
    /// wait.
    pub nagle: bool,
    /// Outbound streams asked for; 10. What is negotiated is told by [`SctpEvent::Up`](super::SctpEvent::Up).
    pub outbound_streams: u16,
    /// Outbound streams of an association that is accepted, which INIT ACK offers (RFC 9260 §3.3.3); `None` offers
    /// as many as INIT asked for the other way. Either side's number is bounded by what the other takes (§5.1.1).
    pub accepted_streams: Option<u16>,
    /// Inbound streams granted at most; 2048.
    pub max_inbound_streams: u16,
    /// The largest SCTP packet in bytes, from the common header on: the path MTU less the IP header. 1480,
    /// that is Ethernet's 1500 less 20 bytes of IPv4 header. At least 508 is used.
    pub max_packet: u32,
    /// New data packets that one occasion to send may let out; 4 (RFC 9260 §6.1 Max.Burst). `None` leaves
    /// it to the congestion window.
    pub max_burst: Option<u32>,
    /// Retransmissions in a row, over all paths, before the association is given up; 10
    /// (Association.Max.Retrans). `None` never gives up.
    pub max_association_retransmissions: Option<u32>,
    /// Send ABORT to a side that is given up for silent, as FreeBSD does; off (RFC 9260 §8.1 and §9.2 ask for the
    /// end only).
    pub abort_unreachable: bool,
    /// Retransmissions in a row on one path before it is held for failed; 5 (Path.Max.Retrans).
    pub max_path_retransmissions: u32,
    /// Retransmissions of INIT, and of COOKIE ECHO, before the set-up is given up; 8
    /// (Max.Init.Retransmits). `None` never gives up.
    pub max_init_retransmissions: Option<u32>,
    /// A path that is idle for this long and one RTO is probed by a heartbeat; 30 s (HB.interval). `None`
    /// sends no heartbeats: a path that failed then stays so until data that was sent on it is
    /// acknowledged.
    pub heartbeat_interval: Option<Duration>,
    /// Receive buffer in bytes of user data, which the window announces; 131072. At least 1500 is used
    /// (RFC 9260 §3.3.2), 1 GiB at most. A message must fit into it.
    pub receive_buffer: u32,
    /// How long a cookie may be echoed; 60 s (Valid.Cookie.Life).
    pub cookie_life: Duration,
    /// The first probe of a closed window leaves at once, as FreeBSD has it; off: after one RTO (RFC 9260 §6.1 A).
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
    /// The largest packet that is sent: a whole number of words.
    pub(super) fn packet_size(&self) -> u32 {
        self.max_packet.clamp(508, 65_532) & !3
    }
    /// PMDCS: what chunks may take of a packet, in bytes (RFC 9260 §1.6).
    pub(super) fn pmdcs(&self) -> u32 {
        self.packet_size() - super::COMMON_HEADER
    }
    /// User data in one DATA chunk at most, in bytes.
    pub(super) fn max_data(&self) -> u32 {
        self.pmdcs() - super::DATA_HEADER
    }
    /// The receive buffer within its bounds.
    pub(super) fn bounded_receive_buffer(&self) -> u32 {
        self.receive_buffer.clamp(super::MIN_WINDOW, 1 << 30)
    }
}

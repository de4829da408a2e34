//! TCP's loss recovery on traces worked out by hand, to the nanosecond.
//!
//! The link takes 10 ms each way and, if it has a rate, 1 us per byte (8 Mb/s). SYN and SYN-ACK have 20 + 24 bytes, an
//! acknowledgement 40, a full segment 1040. Acknowledgements are not delayed. Times are those at which the sender gives
//! a packet to the link, before queue and loss.

use crate::wire::{
    MessageLinkConfig, MessageTransport, ScheduledWireMessage, TimedPacket, simulate_planned_messages,
};
use crate::{OracleFinding, VerificationOracle};
use usher_core::impair::LossModel;
use usher_core::{Duration, Instant, Seed};
use usher_sim::tcp::{InitialWindow, LossRecoveryAlgorithm, TcpConfig};

pub(crate) const ORACLES: &[VerificationOracle] = &[
    VerificationOracle {
        group: "tcp",
        name: "timeouts",
        description: "a segment lost four times: the timeout of 1 s, the lower bound, doubles each time",
        source: "RFC 6298 sections 2.4 and 5.5, by hand",
        run: check_timeouts,
    },
    VerificationOracle {
        group: "tcp",
        name: "measured-timeout",
        description: "the first segment lost three times, without the lower bound: the handshake's round trip of 20 ms, \
                measured once, gives 20 + 4 · 10 ms",
        source: "RFC 6298 sections 2.2 and 5.5, by hand",
        run: check_measured_timeout,
    },
    VerificationOracle {
        group: "tcp",
        name: "smoothed-timeout",
        description: "a segment lost after two measurements of 20 ms: RTTVAR is 3/4 · 10 ms, the timeout 20 + 4 · 7.5 ms",
        source: "RFC 6298 section 2.3, by hand",
        run: check_smoothed_timeout,
    },
    VerificationOracle {
        group: "tcp",
        name: "fast-retransmit",
        description: "the third of ten segments is lost: the third duplicate acknowledgement triggers its \
                      retransmission",
        source: "RFC 5681 section 3.2, by hand",
        run: fast_retransmit,
    },
    VerificationOracle {
        group: "tcp",
        name: "partial-acknowledgement",
        description: "the third and sixth of ten segments are lost: the acknowledgement of the first repair \
                      triggers the retransmission of the sixth (NewReno)",
        source: "RFC 6582 section 3.2, by hand",
        run: check_partial_ack,
    },
    VerificationOracle {
        group: "tcp",
        name: "repair-lost",
        description: "the third of ten segments and its fast retransmission are lost. The timeout repairs \
                      it, after a restart by the last acknowledgement of new data",
        source: "RFC 6298 sections 5.3 and 5.4, RFC 5681 section 3.2, by hand",
        run: repair_lost,
    },
];

const DELAY: Duration = Duration::from_millis(10);
const SEGMENT: u32 = 1000;

fn tcp_config() -> TcpConfig {
    TcpConfig {
        mss: SEGMENT as u16,
        recovery: LossRecoveryAlgorithm::NewReno,
        initial_window: InitialWindow::Segments(10),
        nagle: false,
        delayed_ack: None,
        min_rto: Duration::from_secs(1),
        ..TcpConfig::default()
    }
}

/// A packet of a trace: its time after the beginning, and its segment's number from 0.
type SegmentTransmission = (Duration, u32);

/// Returns the data segments of a capture. Sequence numbers count from the octet after the SYN.
fn data_segment_steps(sent: &[TimedPacket]) -> Result<Vec<SegmentTransmission>, String> {
    let mut first = None;
    let mut steps = Vec::new();
    for (at, packet) in sent {
        let header = packet.get(20..40).ok_or("a packet without a TCP header")?;
        let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        if header[13] & 0x02 != 0 {
            first = Some(sequence.wrapping_add(1));
            continue;
        }
        let headers = 20 + usize::from(header[12] >> 4) * 4;
        if packet.len() > headers {
            let first = first.ok_or("data before a SYN")?;
            steps.push((at.duration_since(Instant::ZERO), sequence.wrapping_sub(first) / SEGMENT));
        }
    }
    Ok(steps)
}

fn format_steps(steps: &[SegmentTransmission]) -> String {
    let texts: Vec<String> = steps.iter().map(|(at, segment)| format!("{segment} at {at}")).collect();
    texts.join(", ")
}

/// Runs a trace. Each message fills a segment; `lost` are the ordinals of lost packets on the link (the SYN is 0).
fn check_trace(
    config: TcpConfig,
    rate: Option<u64>,
    at: &[Instant],
    lost: &[u64],
    expected: &[SegmentTransmission],
    complete: Duration,
) -> Result<Vec<OracleFinding>, String> {
    let way = MessageLinkConfig {
        rate,
        delay: DELAY,
        loss: LossModel::Script(lost.to_vec()),
        lossy_from: Instant::ZERO,
        captures_packets: true,
    };
    let plan: Vec<ScheduledWireMessage> =
        at.iter().map(|at| ScheduledWireMessage { send_at: *at, lane: 0, bytes: SEGMENT }).collect();
    let until = Instant::ZERO + Duration::from_secs(100);
    let outcome =
        simulate_planned_messages(Seed::new(1), MessageTransport::Tcp(1, config), &way, &plan, until)
            .map_err(|e| e.to_string())?;
    let last = outcome.delivered.last().copied().flatten();
    let obtained = last.map_or("never".to_owned(), |at| at.duration_since(Instant::ZERO).to_string());
    Ok(vec![
        OracleFinding::expect_equal(
            "segments sent",
            format_steps(expected),
            format_steps(&data_segment_steps(&outcome.sent)?),
        ),
        OracleFinding::expect_equal("the last is delivered at", complete, obtained),
    ])
}

const fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}
const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn check_timeouts() -> Result<Vec<OracleFinding>, String> {
    // The handshake takes 20 ms, and the first segment leaves at its end. The second, packet 2, is lost at 100 ms and
    // after 1, 1 + 2 and 1 + 2 + 4 s. The copy after 1 + 2 + 4 + 8 s arrives 10 ms later.
    let again = [millis(100), millis(1_100), millis(3_100), millis(7_100), millis(15_100)].map(|at| (at, 1));
    let expected = [&[(millis(20), 0)][..], &again].concat();
    let at = [Instant::ZERO, Instant::ZERO + millis(100)];
    check_trace(tcp_config(), None, &at, &[2, 3, 4, 5], &expected, millis(15_110))
}

fn check_measured_timeout() -> Result<Vec<OracleFinding>, String> {
    // SRTT = 20 ms, RTTVAR = 10 ms, RTO = 60 ms: sent at 20 ms, then 60, 120 and 240 ms later each.
    let config = TcpConfig { min_rto: millis(1), ..tcp_config() };
    let expected = [millis(20), millis(80), millis(200), millis(440)].map(|at| (at, 0));
    check_trace(config, None, &[Instant::ZERO], &[1, 2, 3], &expected, millis(450))
}

fn check_smoothed_timeout() -> Result<Vec<OracleFinding>, String> {
    // The handshake measures 20 ms, and so does the first segment, sent at 20 ms and acknowledged at 40 ms. RTTVAR
    // becomes 3/4 · 10 + 1/4 · 0 = 7.5 ms, RTO 50 ms. The second segment leaves at 100 ms and is lost.
    let config = TcpConfig { min_rto: millis(1), ..tcp_config() };
    let expected = [(millis(20), 0), (millis(100), 1), (millis(150), 1)];
    let at = [Instant::ZERO, Instant::ZERO + millis(100)];
    // Packets: SYN, first segment, second segment. The acknowledgement of the first travels in the other direction.
    check_trace(config, None, &at, &[2], &expected, millis(160))
}

/// 1 us per byte, in bits per second.
const RATE: u64 = 8_000_000;
/// SYN and SYN-ACK take 44 us and 10 ms each. Then ten segments leave at once and arrive 1040 us apart: segment i, from
/// 0, at 20088 + 1040 (i + 1) + 10000 us. An acknowledgement arrives 40 us and 10 ms later.
const OPEN: u64 = 20_088;

/// Returns the arrival of the acknowledgement for segment `i` of the first ten.
const fn tcp_ack_arrival(i: u64) -> u64 {
    OPEN + 1_040 * (i + 1) + 10_000 + 10_040
}

fn ten_segment_steps() -> Vec<SegmentTransmission> {
    (0..10).map(|i| (micros(OPEN), i)).collect()
}

const TEN: [Instant; 10] = [Instant::ZERO; 10];

fn fast_retransmit() -> Result<Vec<OracleFinding>, String> {
    // Packets: SYN 0, segment i is 1 + i. Segment 2 is lost; segments 3, 4 and 5 trigger the duplicates.
    let again = tcp_ack_arrival(5);
    let expected = [ten_segment_steps(), vec![(micros(again), 2)]].concat();
    check_trace(tcp_config(), Some(RATE), &TEN, &[3], &expected, micros(again + 1_040 + 10_000))
}

fn check_partial_ack() -> Result<Vec<OracleFinding>, String> {
    // Segments 2 and 5 are lost; 3, 4 and 6 trigger the duplicates. The acknowledgement of the first retransmission
    // arrives 1040 + 10000 + 40 + 10000 us after it was sent, and the second leaves then.
    let first = tcp_ack_arrival(6);
    let second = first + 1_040 + 10_000 + 10_040;
    let expected = [ten_segment_steps(), vec![(micros(first), 2), (micros(second), 5)]].concat();
    check_trace(tcp_config(), Some(RATE), &TEN, &[3, 6], &expected, micros(second + 1_040 + 10_000))
}

fn repair_lost() -> Result<Vec<OracleFinding>, String> {
    // The retransmission is the eleventh segment, packet 11, and is lost. The last acknowledgement of new data was that
    // of segment 1. The timer restarted then with 1 s, the minimum.
    let (again, expires) = (tcp_ack_arrival(5), tcp_ack_arrival(1) + 1_000_000);
    let expected = [ten_segment_steps(), vec![(micros(again), 2), (micros(expires), 2)]].concat();
    check_trace(tcp_config(), Some(RATE), &TEN, &[3, 11], &expected, micros(expires + 1_040 + 10_000))
}

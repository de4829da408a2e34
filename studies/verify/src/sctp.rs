//! SCTP's loss recovery on traces worked out by hand, to the nanosecond, and its checksum.
//!
//! The link takes 10 ms each way and, if it has a rate, 1 us per byte (8 Mb/s). A packet with a message of 1000 bytes
//! has 1048 bytes: 20 of IPv4, 12 of SCTP and 16 of the DATA chunk. A SACK has 48 bytes, and 4 more per gap block.
//! Acknowledgements are not delayed. Messages start after the set-up of the association. Times count from the first
//! message. They are those at which the sender gives a packet to the link, before queue and loss.

use crate::wire::{
    MessageLinkConfig, MessageTransport, ScheduledWireMessage, TimedPacket, simulate_planned_messages,
};
use crate::{OracleFinding, VerificationOracle};
use usher_core::impair::LossModel;
use usher_core::{Duration, Instant, Seed};
use usher_sim::sctp::{InitialWindow, SctpConfig};

pub(crate) const ORACLES: &[VerificationOracle] = &[
    VerificationOracle {
        group: "sctp",
        name: "crc32c",
        description: "the CRC-32C that these checks use, and the checksum of each packet of an association \
                      by it",
        source: "RFC 3720 appendix B.4, RFC 9260 section 6.8 and appendix A",
        run: check_checksums,
    },
    VerificationOracle {
        group: "sctp",
        name: "timeouts",
        description: "a chunk lost four times: T3-rtx of 1 s, the lower bound, doubles each time",
        source: "RFC 9260 sections 6.3.1 and 6.3.3, by hand",
        run: check_timeouts,
    },
    VerificationOracle {
        group: "sctp",
        name: "smoothed-timeout",
        description: "a chunk lost after three measurements of 20 ms, without the lower bound: RTTVAR is 3/4 · 3/4 · 10 ms, \
                T3-rtx 20 + 4 · 5.625 ms",
        source: "RFC 9260 section 6.3.1 C2 and C3, by hand",
        run: check_smoothed_timeout,
    },
    VerificationOracle {
        group: "sctp",
        name: "fast-retransmit",
        description: "the third of ten chunks is lost: the third SACK that misses it triggers its \
                      retransmission",
        source: "RFC 9260 section 7.2.4, by hand",
        run: fast_retransmit,
    },
    VerificationOracle {
        group: "sctp",
        name: "two-lost",
        description: "the third and sixth of ten chunks are lost: for each, the third SACK that misses it \
                      triggers its retransmission",
        source: "RFC 9260 section 7.2.4, by hand",
        run: check_two_lost_chunks,
    },
    VerificationOracle {
        group: "sctp",
        name: "repair-lost",
        description: "the third of ten chunks and its fast retransmission are lost. T3-rtx repairs it, after \
                      a restart by the fast retransmission of the earliest outstanding chunk",
        source: "RFC 9260 sections 6.3.3 and 7.2.4, by hand",
        run: repair_lost,
    },
    VerificationOracle {
        group: "sctp",
        name: "sender-delay",
        description: "a second message while the first is unanswered. With the sender's delay it waits for \
                      the delayed SACK: 200 ms after the first arrives, plus the round trip. Without, it \
                      leaves at once. A report of go-diameter's users (number 225) is of this kind: 190.6 ms \
                      an operation with the delay, 0.156 ms without. Those values are not reproduced",
        source: "RFC 9260 sections 6.1 and 6.2, by hand; github.com/fiorix/go-diameter, number 225 of its tracker",
        run: check_sctp_sender_delay,
    },
];

const DELAY: Duration = Duration::from_millis(10);
const MESSAGE: u32 = 1000;
/// Long after the set-up, whose packets are 0 (INIT) and 1 (COOKIE ECHO).
const BEGIN: Instant = Instant::from_nanos(1_000_000_000);

fn sctp_config() -> SctpConfig {
    SctpConfig {
        initial_window: InitialWindow::Packets(20),
        sack_delay: None,
        max_burst: None,
        heartbeat_interval: None,
        ..SctpConfig::default()
    }
}

/// A chunk of a trace: its time after the beginning, and its number from 0.
type ChunkTransmission = (Duration, u32);

/// Returns the DATA chunks of a capture.
fn data_chunk_steps(sent: &[TimedPacket]) -> Result<Vec<ChunkTransmission>, String> {
    let mut first = None;
    let mut steps = Vec::new();
    for (at, packet) in sent {
        let mut chunks = packet.get(32..).ok_or("a packet without SCTP's header")?;
        while let Some([kind, _, high, low]) = chunks.first_chunk() {
            let length = usize::from(u16::from_be_bytes([*high, *low])).max(4);
            if let (0, Some(tsn)) = (*kind, chunks.get(4..8)) {
                let tsn = u32::from_be_bytes([tsn[0], tsn[1], tsn[2], tsn[3]]);
                steps.push((at.duration_since(BEGIN), tsn.wrapping_sub(*first.get_or_insert(tsn))));
            }
            chunks = chunks.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
    Ok(steps)
}

fn format_steps(steps: &[ChunkTransmission]) -> String {
    let texts: Vec<String> = steps.iter().map(|(at, chunk)| format!("{chunk} at {at}")).collect();
    texts.join(", ")
}

fn capture_packets(
    config: SctpConfig,
    rate: Option<u64>,
    after: &[Duration],
    lost: &[u64],
) -> Result<(Vec<TimedPacket>, Option<Instant>), String> {
    let way = MessageLinkConfig {
        rate,
        delay: DELAY,
        loss: LossModel::Script(lost.to_vec()),
        lossy_from: Instant::ZERO,
        captures_packets: true,
    };
    let planned =
        |after: &Duration| ScheduledWireMessage { send_at: BEGIN + *after, lane: 0, bytes: MESSAGE };
    let plan: Vec<ScheduledWireMessage> = after.iter().map(planned).collect();
    let until = BEGIN + Duration::from_secs(100);
    let outcome =
        simulate_planned_messages(Seed::new(1), MessageTransport::Sctp(1, config), &way, &plan, until)
            .map_err(|e| e.to_string())?;
    Ok((outcome.sent, outcome.delivered.last().copied().flatten()))
}

/// Runs a trace. `lost` are the ordinals of lost packets on the link.
fn check_trace(
    config: SctpConfig,
    rate: Option<u64>,
    after: &[Duration],
    lost: &[u64],
    expected: &[ChunkTransmission],
    complete: Duration,
) -> Result<Vec<OracleFinding>, String> {
    let (sent, last) = capture_packets(config, rate, after, lost)?;
    let obtained = last.map_or("never".to_owned(), |at| at.duration_since(BEGIN).to_string());
    Ok(vec![
        OracleFinding::expect_equal(
            "chunks sent",
            format_steps(expected),
            format_steps(&data_chunk_steps(&sent)?),
        ),
        OracleFinding::expect_equal("the last is delivered at", complete, obtained),
    ])
}

/// CRC-32C, bit by bit: the polynomial 0x1EDC6F41 with reversed bits.
fn crc32c(octets: &[u8]) -> u32 {
    let bit = |crc: u32, _: u32| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
    !octets.iter().fold(!0, |crc, octet| (0..8).fold(crc ^ u32::from(*octet), bit))
}

fn check_checksums() -> Result<Vec<OracleFinding>, String> {
    let up: Vec<u8> = (0..32).collect();
    let down: Vec<u8> = (0..32).rev().collect();
    let hex = |value: u32| format!("{value:08x}");
    let vector = |case: &str, expected: u32, octets: &[u8]| {
        OracleFinding::expect_equal(case, hex(expected), hex(crc32c(octets)))
    };
    let mut findings = vec![
        vector("32 zeros", 0x8a91_36aa, &[0; 32]),
        vector("32 ones", 0x62a8_ab43, &[0xff; 32]),
        vector("32 octets rising", 0x46dd_794e, &up),
        vector("32 octets falling", 0x113f_db5c, &down),
    ];
    let (sent, _) = capture_packets(sctp_config(), None, &[Duration::ZERO; 4], &[])?;
    let mut right = 0;
    for (_, packet) in &sent {
        let mut packet = packet.get(20..).ok_or("a packet without a header")?.to_vec();
        let checksum = packet.get_mut(8..12).ok_or("a packet without SCTP's header")?;
        // The checksum is sent with its lowest octet first, and counts as zeros.
        let printed = u32::from_le_bytes([checksum[0], checksum[1], checksum[2], checksum[3]]);
        checksum.fill(0);
        right += usize::from(crc32c(&packet) == printed);
    }
    let all = format!("{} of {}", sent.len(), sent.len());
    findings.push(OracleFinding::expect_equal(
        "packets with the right one",
        all,
        format!("{right} of {}", sent.len()),
    ));
    Ok(findings)
}

const fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}
const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn check_timeouts() -> Result<Vec<OracleFinding>, String> {
    // Lost at the beginning and after 1, 1 + 2 and 1 + 2 + 4 s. The copy after 1 + 2 + 4 + 8 s arrives 10 ms later.
    let expected = [0, 1_000, 3_000, 7_000, 15_000].map(|at| (millis(at), 0));
    check_trace(sctp_config(), None, &[Duration::ZERO], &[2, 3, 4, 5], &expected, millis(15_010))
}

fn check_smoothed_timeout() -> Result<Vec<OracleFinding>, String> {
    // Each exchange of the set-up and the first chunk measure 20 ms: SRTT 20 ms, RTTVAR 10, 7.5, 5.625 ms, RTO 42.5 ms.
    // The second chunk, packet 3, is lost at 100 ms.
    let config = SctpConfig { rto_min: millis(1), ..sctp_config() };
    let expected = [(Duration::ZERO, 0), (millis(100), 1), (micros(142_500), 1)];
    check_trace(config, None, &[Duration::ZERO, millis(100)], &[3], &expected, micros(152_500))
}

/// 1 us per byte, in bits per second.
const RATE: u64 = 8_000_000;

/// Returns the arrival of the SACK for chunk `i` of the first ten, with this number of gap blocks. Chunks arrive 1048
/// us apart.
const fn sctp_sack_arrival(i: u64, gaps: u64) -> u64 {
    1_048 * (i + 1) + 10_000 + 48 + 4 * gaps + 10_000
}

fn ten_chunk_steps() -> Vec<ChunkTransmission> {
    (0..10).map(|i| (Duration::ZERO, i)).collect()
}

const TEN: [Duration; 10] = [Duration::ZERO; 10];

fn fast_retransmit() -> Result<Vec<OracleFinding>, String> {
    // Packets: chunk i is 2 + i. Chunk 2 is lost; the SACKs of 3, 4 and 5 report it missing, with one gap block.
    let again = sctp_sack_arrival(5, 1);
    let expected = [ten_chunk_steps(), vec![(micros(again), 2)]].concat();
    check_trace(sctp_config(), Some(RATE), &TEN, &[4], &expected, micros(again + 1_048 + 10_000))
}

fn check_two_lost_chunks() -> Result<Vec<OracleFinding>, String> {
    // Chunks 2 and 5 are lost. The SACKs of 3, 4 (one gap block) and 6 (two) report 2 missing; those of 6, 7 and 8
    // (two) report 5. In fast recovery, a SACK counts for a chunk only if it advances the highest acknowledged TSN or
    // the cumulative TSN. Each of these does.
    let (first, second) = (sctp_sack_arrival(6, 2), sctp_sack_arrival(8, 2));
    let expected = [ten_chunk_steps(), vec![(micros(first), 2), (micros(second), 5)]].concat();
    // Both arrive in order; the last message waits for both.
    check_trace(sctp_config(), Some(RATE), &TEN, &[4, 7], &expected, micros(second + 1_048 + 10_000))
}

fn repair_lost() -> Result<Vec<OracleFinding>, String> {
    // The retransmission is packet 12, which is lost. T3-rtx is 1 s, the minimum.
    let again = sctp_sack_arrival(5, 1);
    let expires = again + 1_000_000;
    let expected = [ten_chunk_steps(), vec![(micros(again), 2), (micros(expires), 2)]].concat();
    check_trace(sctp_config(), Some(RATE), &TEN, &[4, 12], &expected, micros(expires + 1_048 + 10_000))
}

fn check_sctp_sender_delay() -> Result<Vec<OracleFinding>, String> {
    // The receiver sends no data within the SACK delay: 1048 us and 10 ms there, 200 ms, 48 us and 10 ms back.
    let back = micros(1_048 + 10_000 + 200_000 + 48 + 10_000);
    let after = [Duration::ZERO, millis(5)];
    // The first message makes the association an established one.
    let delayed = |nagle| SctpConfig {
        nagle,
        sack_delay: Some(millis(200)),
        first_sack_at_once: false,
        ..sctp_config()
    };
    let there = micros(1_048 + 10_000);
    let one = [(Duration::ZERO, 0), (back, 1)];
    let mut findings = check_trace(delayed(true), Some(RATE), &after, &[], &one, back + there)?;
    let two = [(Duration::ZERO, 0), (millis(5), 1)];
    findings.extend(check_trace(delayed(false), Some(RATE), &after, &[], &two, millis(5) + there)?);
    for (finding, case) in findings.iter_mut().zip(["with", "with", "without", "without"]) {
        finding.case = format!("{}, {case} the sender's delay", finding.case);
    }
    Ok(findings)
}

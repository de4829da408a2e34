//! TCP's presets on traces worked out by hand, to the nanosecond.
//!
//! The link takes 10 ms each way and has no rate. Unless stated otherwise, the handshake takes the first 20 ms and
//! gives an SRTT of 20 ms and an RTTVAR of 10 ms. A segment holds 1000 bytes with `rfc`, 988 with `linux` (timestamps
//! take 12), and 536 with `ns-2` and `ns-3`. A trace lists the segments that the sender gives to the link before loss,
//! and the acknowledgements that reach it.

use crate::wire::{
    MessageLinkConfig, MessageTransport, ScheduledWireMessage, WireRunResult, simulate_planned_messages,
};
use crate::{OracleFinding, VerificationOracle, study};
use usher_core::impair::LossModel;
use usher_core::{Duration, Instant, Seed};
use usher_sim::IpVersion;
use usher_sim::tcp::TcpConfig;

pub(crate) const ORACLES: &[VerificationOracle] = &[
    VerificationOracle {
        group: "presets",
        name: "back-off",
        description: "a message that is lost once, and another 4 s later: the rest of the first one's \
                      doubled timeout",
        source: "RFC 6298 sections 2.3 and 5; tcp-full.cc newack(); tcp-socket-base.cc NewAck(); tcp_input.c tcp_ack_update_rtt(), \
                 tcp_rtt_estimator(), tcp_output.c tcp_schedule_loss_probe(); by hand",
        run: back_off,
    },
    VerificationOracle {
        group: "presets",
        name: "nagle-rest",
        description: "a message of 1200 bytes: the time at which its last, small segment leaves",
        source: "RFC 896; tcp-full.cc need_send(); tcp_output.c tcp_minshall_check(); by hand",
        run: check_nagle_partial_segment,
    },
    VerificationOracle {
        group: "presets",
        name: "nagle-lost",
        description: "200 lost bytes with 100 waiting behind them: the content of the retransmission",
        source: "RFC 896; tcp-full.cc foutput(); tcp_output.c; by hand",
        run: check_nagle_after_loss,
    },
    VerificationOracle {
        group: "presets",
        name: "acknowledgements",
        description: "four messages of 200 bytes, 10 ms apart, without Nagle: the acknowledgements and their \
                      times",
        source: "RFC 5681 section 4.2; tcp-full.cc need_send(); tcp_input.c __tcp_ack_snd_check(); \
                 by hand",
        run: check_acknowledgements,
    },
    VerificationOracle {
        group: "presets",
        name: "recover",
        description: "six of twenty segments are lost, and one again after the timeout: duplicates of data \
                      sent before it",
        source: "RFC 5681 section 3.2; tcp-full.cc dupack_action(); by hand",
        run: check_loss_recovery,
    },
    VerificationOracle {
        group: "presets",
        name: "initial-window",
        description: "the first flight of 20000 bytes, also after two lost SYNs",
        source: "RFC 6928 section 2, RFC 5681 section 3.1; ns-default.tcl windowInit_; tcp_input.c tcp_init_transfer(); \
                 by hand",
        run: initial_window,
    },
    VerificationOracle {
        group: "presets",
        name: "limited-transmit",
        description: "the first of ten segments is lost, two more wait: the segments that duplicates release \
                      before the repair",
        source: "RFC 3042 section 2; tcp-full.cc, which does not read singledup_; by hand",
        run: limited_transmit,
    },
    VerificationOracle {
        group: "presets",
        name: "lost-syn",
        description: "the SYN and the first message are lost: the timeout before a measurement",
        source: "RFC 6298 sections 2.1 and 5.7; ns-default.tcl rtxcur_init_; by hand",
        run: check_lost_syn,
    },
];

/// Returns the settings of a preset, with further lines of a study.
fn preset_tcp_config(name: &str, own: &str) -> Result<TcpConfig, String> {
    let plan = study::parse_study_plan(&format!(
        r#"
[run]
duration = "1 s"
[run.replications]
min = 2
max = 2
[hosts.client]
[hosts.server]
[links.l]
between = ["client", "server"]
delay = "10 ms"
[transport.tcp]
preset = "{name}"
{own}
[workload]
kind = "dialogue"
clients = "client"
server = "server"
transport = "tcp"
rounds = [{{ request = "20 B", answer = "20 B" }}]
give_up = "5 s"
arrivals = {{ kind = "constant", interval = "1 s", count = 1 }}
"#
    ))?;
    let point = plan.points.first().ok_or("the study has no point")?;
    Ok(usher_runner::world::tcp_config(&point.scenario.transport.tcp, IpVersion::V4, 1040))
}

/// Bytes of a write, and its time in milliseconds after the beginning.
type TimedTcpWrite = (u64, u32);

/// Simulates writes on a connection with these settings. `lost` are the numbers of the sender's lost packets.
fn simulate_tcp_writes(
    config: TcpConfig,
    writes: &[TimedTcpWrite],
    lost: &[u64],
) -> Result<WireRunResult, String> {
    let loss = LossModel::Script(lost.to_vec());
    let delay = Duration::from_millis(10);
    let way =
        MessageLinkConfig { rate: None, delay, loss, lossy_from: Instant::ZERO, captures_packets: true };
    let plan: Vec<ScheduledWireMessage> = writes
        .iter()
        .map(|&(at, bytes)| ScheduledWireMessage {
            send_at: Instant::ZERO + Duration::from_millis(at),
            lane: 0,
            bytes,
        })
        .collect();
    let until = Instant::ZERO + Duration::from_secs(60);
    simulate_planned_messages(Seed::new(1), MessageTransport::Tcp(1, config), &way, &plan, until)
        .map_err(|e| e.to_string())
}

/// Returns sequence number, acknowledgement number, flags and payload length of a TCP header.
fn parse_tcp_header(packet: &[u8]) -> Option<(u32, u32, u8, u32)> {
    let h = packet.get(20..40)?;
    let number = |at: usize| u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
    let headers = 20 + usize::from(h[12] >> 4) * 4;
    Some((number(4), number(8), h[13], packet.len().checked_sub(headers)? as u32))
}

const SYN: u8 = 2;

/// Formats the segments sent: `0+200 at 20 ms` is the first 200 bytes.
fn sent_segments(outcome: &WireRunResult) -> Result<Vec<String>, String> {
    let mut first = None;
    let mut lines = Vec::new();
    for (at, packet) in &outcome.sent {
        let (sequence, _, flags, len) = parse_tcp_header(packet).ok_or("a packet without a TCP header")?;
        if flags & SYN != 0 {
            first = Some(sequence.wrapping_add(1));
        } else if len > 0 {
            let offset = sequence.wrapping_sub(first.ok_or("data before a SYN")?);
            lines.push(format!("{offset}+{len} at {}", at.duration_since(Instant::ZERO)));
        }
    }
    Ok(lines)
}

/// Formats the acknowledgements received: `200 at 80 ms` acknowledges the first 200 bytes.
fn received_acks(outcome: &WireRunResult) -> Result<Vec<String>, String> {
    let (_, packet) = outcome.sent.first().ok_or("no segment was sent")?;
    let first = parse_tcp_header(packet).ok_or("a packet without a TCP header")?.0.wrapping_add(1);
    let mut lines = Vec::new();
    for (at, packet) in &outcome.received {
        let (_, acknowledgement, flags, _) =
            parse_tcp_header(packet).ok_or("a packet without a TCP header")?;
        if flags & SYN == 0 {
            lines.push(format!(
                "{} at {}",
                acknowledgement.wrapping_sub(first),
                at.duration_since(Instant::ZERO)
            ));
        }
    }
    Ok(lines)
}

/// Formats the expected segments: offset, length and time in microseconds.
fn expected_segments(expected: &[(u32, u32, u64)]) -> String {
    let line =
        |(offset, len, at): &(u32, u32, u64)| format!("{offset}+{len} at {}", Duration::from_micros(*at));
    expected.iter().map(line).collect::<Vec<_>>().join(", ")
}

/// A preset's case: name, further lines, writes, losses, and expected segments.
type TcpPresetCase<'a> = (&'a str, &'a str, &'a [TimedTcpWrite], &'a [u64], &'a [(u32, u32, u64)]);

fn compare_preset_traces(cases: &[TcpPresetCase<'_>]) -> Result<Vec<OracleFinding>, String> {
    let one = |(name, own, writes, lost, expected): &TcpPresetCase<'_>| {
        let outcome = simulate_tcp_writes(preset_tcp_config(name, own)?, writes, lost)?;
        let case = if own.is_empty() { (*name).to_owned() } else { format!("{name}, {own}") };
        Ok(OracleFinding::expect_equal(
            case,
            expected_segments(expected),
            sent_segments(&outcome)?.join(", "),
        ))
    };
    cases.iter().map(one).collect()
}

fn back_off() -> Result<Vec<OracleFinding>, String> {
    let writes: &[TimedTcpWrite] = &[(0, 200), (1000, 200), (5000, 200)];
    // Packets: SYN 0, the messages 1 and 2, the retransmission 3, and 4.
    compare_preset_traces(&[
        // Timeouts are 1 s, the minimum. The first message is acknowledged after 220 ms. The second gives no
        // measurement, so the third has 2 s.
        (
            "rfc",
            "",
            writes,
            &[2, 4],
            &[
                (0, 200, 20_000),
                (200, 200, 1_000_000),
                (200, 200, 2_000_000),
                (400, 200, 5_000_000),
                (400, 200, 7_000_000),
            ],
        ),
        // The first acknowledgement waits for the tick at 100 ms, which makes nine ticks of 10 ms. SRTT is 2 + 7/8
        // ticks and RTTVAR 25 ms: below the minimum of 200 ms. The acknowledgement of the second message ends the
        // backoff.
        (
            "ns-2",
            "",
            writes,
            &[2, 4],
            &[
                (0, 200, 20_000),
                (200, 200, 1_000_000),
                (200, 200, 1_200_000),
                (400, 200, 5_000_000),
                (400, 200, 5_200_000),
            ],
        ),
        // The first message is acknowledged at once, the second after 220 ms, without a pure acknowledgement in
        // between. A retransmission gives no measurement: the timeout is 1 s. Packet 1 only acknowledges the handshake.
        (
            "ns-3",
            "",
            writes,
            &[3, 5],
            &[
                (0, 200, 20_000),
                (200, 200, 1_000_000),
                (200, 200, 2_000_000),
                (400, 200, 5_000_000),
                (400, 200, 6_000_000),
            ],
        ),
        // The first acknowledgements leave at once. SRTT is 20 ms and 4 RTTVAR less than 200 ms: a timeout of 220 ms. A
        // probe of one segment would wait 2 * 20 + 200 ms, so it leaves when the timer would expire. By timestamps it
        // measures 20 ms again. It does not extend beyond the sent data, so the third message has no probe: 220 ms. On
        // the timer wheel of 4 ms these are 55 ticks and the current one: 224 ms.
        (
            "linux",
            "",
            writes,
            &[2, 4],
            &[
                (0, 200, 20_000),
                (200, 200, 1_000_000),
                (200, 200, 1_224_000),
                (400, 200, 5_000_000),
                (400, 200, 5_224_000),
            ],
        ),
    ])
}

fn check_nagle_partial_segment() -> Result<Vec<OracleFinding>, String> {
    let writes: &[TimedTcpWrite] = &[(1000, 1200)];
    compare_preset_traces(&[
        // One full segment does not trigger an acknowledgement: it leaves 200 ms after the segment's arrival, at 1210
        // ms.
        ("rfc", "", writes, &[], &[(0, 1000, 1_000_000), (1000, 200, 1_220_000)]),
        // Two segments fill the window and are acknowledged at once.
        ("ns-2", "", writes, &[], &[(0, 536, 1_000_000), (536, 536, 1_000_000), (1072, 128, 1_020_000)]),
        // Without Nagle's algorithm, all segments leave.
        ("ns-3", "", writes, &[], &[(0, 536, 1_000_000), (536, 536, 1_000_000), (1072, 128, 1_000_000)]),
        // No earlier small segment is unacknowledged.
        ("linux", "", writes, &[], &[(0, 988, 1_000_000), (988, 212, 1_000_000)]),
    ])
}

fn check_nagle_after_loss() -> Result<Vec<OracleFinding>, String> {
    let writes: &[TimedTcpWrite] = &[(1000, 200), (1005, 100)];
    // Packets: SYN 0, the acknowledgement of the handshake 1, the first message 2.
    compare_preset_traces(&[
        // The timeout is 1 s. The acknowledgement leaves 200 ms after 2010 ms.
        ("rfc", "", writes, &[2], &[(0, 200, 1_000_000), (0, 200, 2_000_000), (200, 100, 2_220_000)]),
        // The timeout is the minimum of 200 ms, above 20 + 40 ms.
        ("ns-2", "", writes, &[2], &[(0, 200, 1_000_000), (0, 300, 1_200_000)]),
        // The second segment leaves at once and is reported; one report does not mark a loss. The timeout is 1 s.
        ("ns-3", "", writes, &[2], &[(0, 200, 1_000_000), (200, 100, 1_005_000), (0, 200, 2_000_000)]),
        // The timeout is 20 + 200 ms, on the wheel 224. A probe with the waiting data leaves then. Its SACK at 1244 ms
        // shows the loss.
        ("linux", "", writes, &[2], &[(0, 200, 1_000_000), (200, 100, 1_224_000), (0, 200, 1_244_000)]),
        // Without a probe, the acknowledgement of the retransmission leaves at once.
        (
            "linux",
            "tail_loss_probe = false",
            writes,
            &[2],
            &[(0, 200, 1_000_000), (0, 200, 1_224_000), (200, 100, 1_244_000)],
        ),
    ])
}

fn check_acknowledgements() -> Result<Vec<OracleFinding>, String> {
    // Messages arrive at 1010 to 1040 ms. Acknowledgements arrive 10 ms after they leave. A run ends with the last
    // message, so a fifth message follows.
    let writes: &[TimedTcpWrite] = &[(1000, 200), (1010, 200), (1020, 200), (1030, 200), (2000, 200)];
    let waits = "quick_ack = false\nack_on_read = false\ndelayed_ack_max = \"off\"";
    let cases = [
        // 800 bytes are less than two segments of 1000: 200 ms after the first.
        ("rfc", "", &[(800, 1220)][..]),
        // 600 bytes fill a segment of 536. The rest waits for the tick at 1100 ms.
        ("ns-2", "", &[(600, 1040), (800, 1110)]),
        // The first at once, and then every second segment, whatever its size.
        ("ns-3", "", &[(200, 1020), (600, 1040), (800, 1250)]),
        // The first sixteen acknowledgements leave at once.
        ("linux", "", &[(200, 1020), (400, 1030), (600, 1040), (800, 1050)]),
        // 600 bytes are more than 536, the minimum of the largest segment. The rest waits for 40 ms, on the wheel 44.
        ("linux", waits, &[(600, 1040), (800, 1094)]),
    ];
    let one = |(name, own, expected): &(&str, &str, &[(u32, u64)])| {
        let outcome =
            simulate_tcp_writes(preset_tcp_config(name, &format!("nagle = false\n{own}"))?, writes, &[])?;
        let lines = expected.iter().map(|(bytes, ms)| format!("{bytes} at {}", Duration::from_millis(*ms)));
        let expected: Vec<String> = lines.collect();
        let case = if own.is_empty() {
            (*name).to_owned()
        } else {
            format!("{name} without immediate acknowledgements")
        };
        Ok(OracleFinding::expect_equal(case, expected.join(", "), received_acks(&outcome)?.join(", ")))
    };
    cases.iter().map(one).collect()
}

fn check_loss_recovery() -> Result<Vec<OracleFinding>, String> {
    const S: u32 = 536;
    let at = |segment: u32, ms: u64| (segment * S, S, ms * 1000);
    let writes: &[TimedTcpWrite] = &[(0, 20 * S)];
    // Packets: SYN 0, segments 1 to 20, with the first six lost; retransmissions from 21 on.
    let lost = &[1, 2, 3, 4, 5, 6, 25];
    // 40 ms: fourteen duplicate acknowledgements. The third triggers the retransmission of segment 0; ssthresh is ten
    // segments. 60 ms: its acknowledgement ends recovery, and the timer restarts with 200 ms. 260 ms: timeout, ssthresh
    // five, cwnd one. 280 ms: segment 1 is acknowledged, cwnd two. 300 ms: segments 2 and 3, cwnd four; segment 4 is
    // lost again.
    let mut begun: Vec<_> = (0..20).map(|segment| at(segment, 20)).collect();
    begun.extend(
        [(0, 40), (1, 260), (2, 280), (3, 280), (4, 300), (5, 300), (6, 300), (7, 300)]
            .map(|(s, t)| at(s, t)),
    );
    // 320 ms: three duplicate acknowledgements of segment 4. They lie below the data sent before the timeout, so ns-2
    // waits for the timer, which restarted at 300 ms.
    let waits = [begun.clone(), vec![at(4, 500)]].concat();
    // RFC 5681 alone allows fast recovery, with a window of 2 + 3 segments for four in flight.
    let repairs = [begun, vec![at(4, 320), at(8, 320)]].concat();
    let window = "initial_window = \"20 segments\"";
    let plain = "initial_window = \"20 segments\"\nloss_recovery = \"rfc5681\"\nreno_recover = false";
    compare_preset_traces(&[("ns-2", window, writes, lost, &waits), ("ns-2", plain, writes, lost, &repairs)])
}

fn initial_window() -> Result<Vec<OracleFinding>, String> {
    // Bytes of the first flight, after lost SYNs at 0 and 1 s, or 0 and 3 s. On Linux's timer wheel, 250 and 500 ticks
    // end in slots of 32 ms: at 1024 ms and at 3040 ms.
    let cases: [(&str, &[u64], u64, u32); 8] = [
        ("rfc", &[], 20, 10 * 1000),
        ("ns-2", &[], 20, 2 * 536),
        ("ns-3", &[], 20, 10 * 536),
        ("linux", &[], 20, 10 * 988),
        ("rfc", &[0, 1], 3020, 1000),
        ("ns-2", &[0, 1], 9020, 2 * 536),
        ("ns-3", &[0, 1], 9020, 10 * 536),
        ("linux", &[0, 1], 3060, 988),
    ];
    let one = |(name, lost, at, bytes): &(&str, &[u64], u64, u32)| {
        let outcome = simulate_tcp_writes(preset_tcp_config(name, "")?, &[(0, 20_000)], lost)?;
        let flight = |t: Instant| t.duration_since(Instant::ZERO) < Duration::from_millis(at + 20);
        let sent = outcome.sent.iter().filter(|(t, _)| flight(*t));
        let obtained: u32 =
            sent.filter_map(|(_, packet)| parse_tcp_header(packet)).map(|(.., len)| len).sum();
        let case = if lost.is_empty() { (*name).to_owned() } else { format!("{name}, two SYNs lost") };
        Ok(OracleFinding::expect_equal(case, bytes, obtained))
    };
    cases.iter().map(one).collect()
}

fn limited_transmit() -> Result<Vec<OracleFinding>, String> {
    let trace = |size: u32, then: [u32; 3]| {
        let first = (0..10).map(move |segment| (segment, 20_000));
        let all = first.chain(then.map(|segment| (segment, 40_000)));
        all.map(|(segment, at)| (segment * size, size, at)).collect::<Vec<_>>()
    };
    // Nine duplicates at 40 ms. The first two release a new segment each. The window of ns-2, 5 + 3 segments, releases
    // the first at the sixth.
    let (early, late) = ([10, 11, 0], [0, 10, 11]);
    // ns-3's ssthresh is seven segments. With twelve in flight, recovery sends 7/12 of the arriving data: a segment at
    // the sixth duplicate and at each later one. There is no new data, so it retransmits unreported segments.
    let again = (7..11).map(|segment| (segment * 536, 536, 40_000)).collect();
    let ns3 = [trace(536, early), again].concat();
    compare_preset_traces(&[
        ("rfc", "", &[(0, 12_000)], &[1], &trace(1000, early)),
        ("ns-2", "initial_window = \"10 segments\"", &[(0, 12 * 536)], &[1], &trace(536, late)),
        ("ns-3", "", &[(0, 12 * 536)], &[2], &ns3),
        ("linux", "", &[(0, 12 * 988)], &[1], &trace(988, early)),
    ])
}

fn check_lost_syn() -> Result<Vec<OracleFinding>, String> {
    // Packets: SYN 0 and 1, the message 2. Without a measurement, the timeout is 3 s.
    compare_preset_traces(&[
        ("rfc", "", &[(0, 200)], &[0, 2], &[(0, 200, 1_020_000), (0, 200, 4_020_000)]),
        ("ns-2", "", &[(0, 200)], &[0, 2], &[(0, 200, 3_020_000), (0, 200, 6_020_000)]),
    ])
}

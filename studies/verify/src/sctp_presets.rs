//! SCTP's presets on traces worked out by hand. A client and a server are 10 ms apart, without a rate; the study names
//! the preset and no other setting of SCTP. The set-up starts with the run: INIT ACK arrives after 20 ms and COOKIE ACK
//! after 40 ms. A trace has the client's packets: the time, `>` for sent and `<` for received, and the chunks. DATA is
//! numbered from 0 in each direction.

use crate::study::parse_study_plan;
use crate::{OracleFinding, VerificationOracle};
use std::any::Any;
use usher_core::{Duration, Instant};
use usher_runner::world::ScenarioRun;
use usher_sim::PacketTap;

pub(crate) const ORACLES: &[VerificationOracle] = &[
    VerificationOracle {
        group: "sctp",
        name: "presets-set-up",
        description: "INIT, lost nine times: the timeout begins with RTO.Initial and doubles up to RTO.Max. \
                      The attempt ends after eight retransmissions, and another begins a second later",
        source: "docs/reference/transports.md (rto_initial, rto_max, init_retransmissions); RFC 9260 sections 5.1.6 and 6.3.3, \
                 by hand",
        run: set_up,
    },
    VerificationOracle {
        group: "sctp",
        name: "presets-bundled-sacks",
        description: "two requests, answered within 50 ms: the first data is acknowledged at once, the \
                      second request with the answer, or alone after 200 ms",
        source: "docs/reference/transports.md (bundle_sacks, sack_delay); RFC 9260 sections 5.1, 6.1 and 6.2, by hand",
        run: check_bundling,
    },
    VerificationOracle {
        group: "sctp",
        name: "presets-second-packet",
        description: "three requests, one every 100 ms, answered after 290 ms. Every second packet is \
                      acknowledged at once. With the sender's delay, a message waits for unacknowledged data \
                      before it",
        source: "docs/reference/transports.md (sack_frequency, nagle); RFC 9260 sections 6.1 and 6.2, by hand",
        run: check_sack_of_second_packet,
    },
    VerificationOracle {
        group: "sctp",
        name: "presets-windows",
        description: "two requests of 40,000 B: the packets of the initial window, the packets that their \
                      acknowledgements release, and the burst of the second request with its larger \
                      congestion window",
        source: "docs/reference/transports.md (initial_window_bytes, headers_in_window, max_burst); RFC 9260 sections 6.1 D and \
                 7.2.1, by hand",
        run: check_congestion_windows,
    },
    VerificationOracle {
        group: "sctp",
        name: "presets-timeouts",
        description: "a request lost three times: its timeout is RTO.Min, far above the round trip, and doubles",
        source: "docs/reference/transports.md (rto_min); RFC 9260 sections 6.3.1 and 6.3.3, by hand",
        run: check_timeouts,
    },
    VerificationOracle {
        group: "sctp",
        name: "presets-filled-gap",
        description: "the second of three requests is lost: the packet that fills the gap after the timeout \
                      is acknowledged at once, or after 200 ms",
        source: "docs/reference/transports.md (filled_gap_at_once); RFC 9260 section 6.7; sctp.cc ProcessChunk(); \
                 sm_sideeffect.c sctp_gen_sack(); by hand",
        run: check_sack_of_filled_gap,
    },
    VerificationOracle {
        group: "sctp",
        name: "presets-behind-timeout",
        description: "a request lost twice, and another in between: does the second leave while the first is \
                      unacknowledged",
        source: "docs/reference/transports.md (one_packet_after_timeout, filled_gap_at_once, nagle); RFC 9260 sections 6.1, 6.3.3 and \
                 7.2.1; sctp.cc TimeoutRtx(), SendMuch(); by hand",
        run: check_chunk_behind_timeout,
    },
    VerificationOracle {
        group: "sctp",
        name: "presets-heartbeats",
        description: "an idle association: each side probes its path after HB.interval and its own timeout, \
                      which is RTO.Initial without a measurement",
        source: "docs/reference/transports.md (heartbeat); RFC 9260 section 8.3, by hand",
        run: check_heartbeats,
    },
];

/// Packets at the client: the time, whether it sent them, and the packet from its IPv4 header on.
#[derive(Debug, Default)]
struct RecordingTap(Vec<(Instant, bool, Vec<u8>)>);

impl PacketTap for RecordingTap {
    fn capture_packet(&mut self, now: Instant, _: u16, outward: bool, bytes: &[u8]) {
        self.0.push((now, outward, bytes.to_vec()));
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// A packet of the trace: its time and its chunks.
struct TraceLine {
    elapsed: Duration,
    sent: bool,
    chunks: Vec<String>,
}

impl TraceLine {
    fn has_chunk(&self, chunk: &str) -> bool {
        self.chunks.iter().any(|c| c.starts_with(chunk))
    }
    fn to_text(&self) -> String {
        format!("{} {} {}", self.elapsed, if self.sent { '>' } else { '<' }, self.chunks.join(" + "))
    }
}

/// Returns the client's trace. `up` are settings of the link to the server, `workload` those of the dialogues.
fn trace_client_packets(preset: &str, up: &str, workload: &str) -> Result<Vec<TraceLine>, String> {
    let plan = parse_study_plan(&format!(
        r#"
[run]
duration = "400 s"
[run.replications]
min = 1
max = 1
[hosts.client]
[hosts.server]
[links.line]
between = ["client", "server"]
delay = "10 ms"
up = {{ {up} }}
[transport.sctp]
preset = "{preset}"
[workload]
kind = "dialogue"
clients = "client"
server = "server"
transport = "sctp"
give_up = "unlimited"
{workload}
"#
    ))?;
    let point = plan.points.first().ok_or("the study has no point")?;
    let tap = Some(Box::<RecordingTap>::default() as Box<dyn PacketTap>);
    let world = ScenarioRun::new(&point.scenario, point.replication_seed(0), &["line".to_owned()], tap);
    let captured =
        world.and_then(ScenarioRun::run_to_end).map_err(|e| e.to_string())?.capture.ok_or("no capture")?;
    let packets = captured.tap.into_any().downcast::<RecordingTap>().map_err(|_| "another capture")?;
    let mut first = [None; 2];
    let mut lines = Vec::new();
    for (at, sent, bytes) in packets.0 {
        let mut rest = bytes.get(32..).ok_or("a packet without SCTP's header")?;
        let mut chunks = Vec::new();
        while let Some([kind, _, high, low]) = rest.first_chunk() {
            let length = usize::from(u16::from_be_bytes([*high, *low])).max(4);
            chunks.push(match (*kind, rest.get(4..8)) {
                (0, Some(tsn)) => {
                    let tsn = u32::from_be_bytes([tsn[0], tsn[1], tsn[2], tsn[3]]);
                    format!("DATA {}", tsn.wrapping_sub(*first[usize::from(sent)].get_or_insert(tsn)))
                }
                (1, _) => "INIT".to_owned(),
                (3, _) => "SACK".to_owned(),
                (4, _) => "HEARTBEAT".to_owned(),
                (other, _) => format!("chunk {other}"),
            });
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        lines.push(TraceLine { elapsed: at.duration_since(Instant::ZERO), sent, chunks });
    }
    Ok(lines)
}

fn join_lines(lines: impl Iterator<Item = TraceLine>) -> String {
    lines.map(|line| line.to_text()).collect::<Vec<_>>().join(", ")
}

const PRESETS: [&str; 3] = ["rfc", "ns-2", "linux"];

/// Runs a trace for each preset and compares the result of `of` with the expected text.
fn check_sctp_presets(
    up: &str,
    workload: &str,
    of: fn(Vec<TraceLine>) -> String,
    expected: [&str; 3],
) -> Result<Vec<OracleFinding>, String> {
    let one = |(preset, expected): (&str, &str)| -> Result<OracleFinding, String> {
        Ok(OracleFinding::expect_equal(preset, expected, of(trace_client_packets(preset, up, workload)?)))
    };
    PRESETS.into_iter().zip(expected).map(one).collect()
}

fn arrivals_toml(start: &str, interval: &str, count: u32) -> String {
    format!(
        "arrivals = {{ kind = \"constant\", interval = \"{interval}\", start = \"{start}\", count = {count} }}"
    )
}

fn set_up() -> Result<Vec<OracleFinding>, String> {
    let workload = format!(
        "rounds = [{{ request = \"100 B\", answer = \"100 B\" }}]\n{}",
        arrivals_toml("399 s", "1 s", 1)
    );
    // With 1 s: 0, and with each doubling 1, 3, 7, 15, 31, 63; then every 60 s: 123, 183; abandoned at 243. With 3 s:
    // 0, 3, 9, 21, 45, 93, then 153, 213, 273, 333.
    let three = "0 s, 3 s, 9 s, 21 s, 45 s, 93 s, 153 s, 213 s, 273 s, 334 s";
    let of = |lines: Vec<TraceLine>| {
        let inits = lines.iter().filter(|line| line.sent && line.has_chunk("INIT"));
        inits.take(10).map(|line| line.elapsed.to_string()).collect::<Vec<_>>().join(", ")
    };
    check_sctp_presets(
        "loss = { kind = \"script\", packets = [0, 1, 2, 3, 4, 5, 6, 7, 8] }",
        &workload,
        of,
        ["0 s, 1 s, 3 s, 7 s, 15 s, 31 s, 63 s, 123 s, 183 s, 244 s", three, three],
    )
}

/// Formats the packets with DATA or SACK.
fn format_data_and_sacks(lines: Vec<TraceLine>) -> String {
    join_lines(lines.into_iter().filter(|line| line.has_chunk("DATA") || line.has_chunk("SACK")))
}

fn check_bundling() -> Result<Vec<OracleFinding>, String> {
    let workload = format!(
        "rounds = [{{ request = \"100 B\", answer = \"100 B\" }}]\nturnaround = \"50 ms\"\n{}",
        arrivals_toml("1 s", "1 s", 2)
    );
    // The first data in each direction is acknowledged at once. The second request arrives at 2.01 s and is answered at
    // 2.06 s. Its SACK is bundled with the answer, or is due at 2.21 s. The second answer arrives at 2.07 s and is
    // acknowledged 200 ms later.
    let first = "1 s > DATA 0, 1.02 s < SACK, 1.07 s < DATA 0, 1.07 s > SACK";
    let rides = format!("{first}, 2 s > DATA 1, 2.07 s < SACK + DATA 1, 2.27 s > SACK");
    let alone = format!("{first}, 2 s > DATA 1, 2.07 s < DATA 1, 2.22 s < SACK, 2.27 s > SACK");
    check_sctp_presets("", &workload, format_data_and_sacks, [&rides, &alone, &rides])
}

fn check_sack_of_second_packet() -> Result<Vec<OracleFinding>, String> {
    let workload = format!(
        "rounds = [{{ request = \"100 B\", answer = \"100 B\" }}]\nturnaround = \"290 ms\"\n{}",
        arrivals_toml("1 s", "100 ms", 3)
    );
    // After the first request, whose SACK leaves at once, the second arrives at 1.11 s. The third arrives at 1.21 s and
    // is the second packet. The answers leave at 1.3, 1.4 and 1.5 s, and the third is the second packet.
    let at_once = "1 s > DATA 0, 1.02 s < SACK, 1.1 s > DATA 1, 1.2 s > DATA 2, 1.22 s < SACK, 1.31 s < DATA 0, \
                   1.31 s > SACK, 1.41 s < DATA 1, 1.51 s < DATA 2, 1.51 s > SACK";
    // The third request waits for the SACK of the second. That SACK is bundled with the first answer; the third request
    // leaves with the SACK of that answer. The second answer, at 1.4 s, carries the SACK of the third request. The
    // client's SACK of it is due at 1.61 s. The third answer, due at 1.32 s + 290 ms, waits for it at the server until
    // 1.62 s. Its own SACK is due at 1.83 s.
    let waits = "1 s > DATA 0, 1.02 s < SACK, 1.1 s > DATA 1, 1.31 s < SACK + DATA 0, 1.31 s > SACK + DATA 2, \
                 1.41 s < SACK + DATA 1, 1.61 s > SACK, 1.63 s < DATA 2, 1.83 s > SACK";
    check_sctp_presets("", &workload, format_data_and_sacks, [at_once, at_once, waits])
}

fn check_congestion_windows() -> Result<Vec<OracleFinding>, String> {
    let workload = format!(
        "rounds = [{{ request = \"40000 B\", answer = \"100 B\" }}]\nturnaround = \"5 s\"\n{}",
        arrivals_toml("1 s", "900 ms", 2)
    );
    // A packet holds 1468 bytes of chunks. RFC 9260: min(4 · 1468, max(2 · 1468, 4404)) = 4404 bytes, three packets.
    // The SACKs of the first and third packet arrive together. The first makes room for 1468 + 1468 bytes, the second
    // for 2 · 1468 + 1468. RFC 4960's 4380 bytes allow the same packets.
    //
    // ns-2's window also grows by 1468 bytes at each SACK that finds it full. Two SACKs at 1.02 s make it 7316, two at
    // 1.04 s 10252, three at 1.06 s 14656. At 1.08 s two more make it 17592. Then the last of the 28 packets has left,
    // and the window is full no more. Without a burst limit, 12 packets leave at 1.9 s, because 11 take 16148 bytes.
    // The windows of the other presets exceed their burst limit of 4.
    //
    // Linux counts user data only: 4380 bytes are not full before the fourth chunk of 1452. The first SACK makes 5832
    // bytes of it; 2 packets leave with 4356 bytes in flight. The second makes 7300, and 3 packets leave.
    let of = |lines: Vec<TraceLine>| {
        let data: Vec<Duration> =
            lines.iter().filter(|l| l.sent && l.has_chunk("DATA")).map(|l| l.elapsed).collect();
        let count = |at: u64| {
            let at = Duration::from_millis(at);
            format!("{} at {at}", data.iter().filter(|&&sent| sent == at).count())
        };
        [1000, 1020, 1900].map(count).join(", ")
    };
    let standard = "3 at 1 s, 5 at 1.02 s, 4 at 1.9 s";
    let linux = "4 at 1 s, 5 at 1.02 s, 4 at 1.9 s";
    check_sctp_presets("", &workload, of, [standard, "3 at 1 s, 5 at 1.02 s, 12 at 1.9 s", linux])
}

fn check_timeouts() -> Result<Vec<OracleFinding>, String> {
    let workload = format!(
        "rounds = [{{ request = \"100 B\", answer = \"100 B\" }}]\n{}",
        arrivals_toml("1 s", "1 s", 1)
    );
    let of = |lines: Vec<TraceLine>| {
        join_lines(lines.into_iter().filter(|line| line.sent && line.has_chunk("DATA")))
    };
    let expected = "1 s > DATA 0, 2 s > DATA 0, 4 s > DATA 0, 8 s > DATA 0";
    // Packets after INIT and COOKIE ECHO.
    check_sctp_presets("loss = { kind = \"script\", packets = [2, 3, 4] }", &workload, of, [expected; 3])
}

fn check_sack_of_filled_gap() -> Result<Vec<OracleFinding>, String> {
    // Full packets, so that no sender delays them; the answers come later.
    let workload = format!(
        "rounds = [{{ request = \"1452 B\", answer = \"100 B\" }}]\nturnaround = \"5 s\"\n{}",
        arrivals_toml("1 s", "100 ms", 3)
    );
    let of = |lines: Vec<TraceLine>| {
        let exchanged = lines.into_iter().filter(|line| line.has_chunk("DATA") || line.has_chunk("SACK"));
        join_lines(exchanged.take(7))
    };
    // The third request is out of order and acknowledged at once. The timeout of the second starts at 1.1 s, and its
    // retransmission arrives at 2.11 s.
    let before = "1 s > DATA 0, 1.02 s < SACK, 1.1 s > DATA 1, 1.2 s > DATA 2, 1.22 s < SACK, 2.1 s > DATA 1";
    let (at_once, waits) = (format!("{before}, 2.12 s < SACK"), format!("{before}, 2.32 s < SACK"));
    let lost = "loss = { kind = \"script\", packets = [3] }";
    check_sctp_presets(lost, &workload, of, [&at_once, &waits, &waits])
}

fn check_chunk_behind_timeout() -> Result<Vec<OracleFinding>, String> {
    let workload = format!(
        "rounds = [{{ request = \"100 B\", answer = \"100 B\" }}]\nturnaround = \"5 s\"\n{}",
        arrivals_toml("1 s", "1500 ms", 2)
    );
    let of = |lines: Vec<TraceLine>| {
        let exchanged = lines.into_iter().filter(|line| line.has_chunk("DATA") || line.has_chunk("SACK"));
        join_lines(exchanged.take(6))
    };
    // Lost at 1 s and 2 s, it is sent again at 4 s. By the RFC, and with Linux's delay at the sender, the second waits
    // for its SACK; the second data is then acknowledged after 200 ms. ns-2 sends it at once. Its SACK reports a gap,
    // and the retransmission that fills it is acknowledged after 200 ms.
    let waits = "1 s > DATA 0, 2 s > DATA 0, 4 s > DATA 0, 4.02 s < SACK, 4.02 s > DATA 1, 4.24 s < SACK";
    let goes = "1 s > DATA 0, 2 s > DATA 0, 2.5 s > DATA 1, 2.52 s < SACK, 4 s > DATA 0, 4.22 s < SACK";
    check_sctp_presets("loss = { kind = \"script\", packets = [2, 3] }", &workload, of, [waits, goes, waits])
}

fn check_heartbeats() -> Result<Vec<OracleFinding>, String> {
    let workload = format!(
        "rounds = [{{ request = \"100 B\", answer = \"100 B\" }}]\n{}",
        arrivals_toml("399 s", "1 s", 1)
    );
    let of = |lines: Vec<TraceLine>| {
        let first = |sent| {
            let mut own = lines.iter().filter(move |l| l.sent == sent && l.chunks == ["HEARTBEAT"]);
            own.next().map_or("none".to_owned(), TraceLine::to_text)
        };
        format!("{}, {}", first(true), first(false))
    };
    // The client is established at 40 ms and has measured 20 ms: 30 s and RTO.Min. The server is established at 30 ms:
    // 30 s and RTO.Initial, and 10 ms of delay.
    let three = "31.04 s > HEARTBEAT, 33.04 s < HEARTBEAT";
    check_sctp_presets("", &workload, of, ["31.04 s > HEARTBEAT, 31.04 s < HEARTBEAT", three, three])
}

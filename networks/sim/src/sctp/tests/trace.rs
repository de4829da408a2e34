//! A transfer with given losses, packet by packet, with the sender's window: by RFC 9260 as calculated by hand,
//! and as ns-2, whose traces are beside this file. `tests/ns2/traces/sctp-losses.tcl` of the repository produces
//! them, and a test there compares them with ns-2.
//!
//! 50 ms each way without a rate, chunks of 1452 octets that fill a packet of 1500, all queued from the start. A
//! line has the milliseconds since the first chunk, then the TSNs sent or the cumulative TSNs of the SACKs; then
//! the window and its threshold after a change.

use super::*;

/// Makes each packet a little later than 50 ms. A timer of a second that started ten round trips ago then expires
/// before the SACK of the same millisecond, as with a transmission time.
const EXTRA_DELAY: Duration = Duration::from_nanos(60);

/// The defaults, on one Ethernet path.
fn rfc_config() -> SctpConfig {
    SctpConfig { heartbeat_interval: None, ..SctpConfig::default() }
}

/// The preset `ns-2`.
fn ns2_config() -> SctpConfig {
    SctpConfig {
        measure_behind_retransmission: true,
        one_packet_after_timeout: false,
        cumulative_growth: true,
        filled_gap_at_once: false,
        duplicate_resets_delay: false,
        deliver_first: true,
        loss_recovery: LossRecovery::Ns2,
        bundle_sacks: false,
        rto_initial: millis(3000),
        max_burst: None,
        initial_window: InitialWindow::Bytes(4380),
        ..rfc_config()
    }
}

/// Returns the trace until a time in milliseconds, without the lost packets with data, numbered from 0,
/// retransmissions included.
fn play_trace(config: SctpConfig, lost: &[usize], until: u64) -> Vec<String> {
    const BEGIN: u64 = 200;
    let mut w = SctpTestNetwork::established(config.clone(), config, 1);
    w.delay += EXTRA_DELAY;
    let (lost, mut data) = (lost.to_vec(), 0);
    w.loss = Box::new(move |from, _, _, text| {
        let counts = from == A && text.starts_with("DATA");
        data += usize::from(counts);
        counts && lost.contains(&(data - 1))
    });
    w.with_end(A, |a, now| (0..120).for_each(|_| a.send_message(now, test_message(0, 1452)).unwrap()));
    let mut window = (w.end_a().cwnd(0), u32::MAX);
    let mut trace: Vec<(u64, String)> = Vec::new();
    for at in (0..=until).step_by(50) {
        w.run_to(BEGIN + at + 1);
        for line in std::mem::take(&mut w.log) {
            let words: Vec<&str> = line.split(' ').collect();
            let [at, _, kind, tsn, ..] = words[..] else { panic!("{line}") };
            let at = at.parse::<u64>().unwrap() - BEGIN;
            match trace.last_mut().filter(|(last, text)| *last == at && text.starts_with(kind)) {
                Some((_, text)) => *text += &format!(" {tsn}"),
                None => trace.push((at, format!("{kind} {tsn}"))),
            }
        }
        let now = (w.end_a().cwnd(0), w.end_a().paths[0].ssthresh);
        if now != window {
            let threshold = if now.1 == u32::MAX { "none".to_owned() } else { now.1.to_string() };
            trace.last_mut().unwrap().1 += &format!(" cwnd {} ssthresh {threshold}", now.0);
            window = now;
        }
    }
    trace.into_iter().map(|(at, text)| format!("{at} {text}")).collect()
}

/// TSN 6 is lost once and TSN 7 twice.
#[test]
fn a_retransmission_that_is_lost_waits_for_the_timer_by_hand() {
    let mut expected = vec![
        // 1468 bytes each: three fit into 4404, and the first is acknowledged at once.
        "0 DATA 1 2 3".to_owned(),
        "50 SACK 1 3".to_owned(),
        // Both SACKs find the window full and widen it by a packet: 4, 5; 6, 7, 8.
        "100 DATA 4 5 6 7 8 cwnd 7340 ssthresh none".to_owned(),
        // 5 is the second packet, 8 reveals the gap.
        "150 SACK 5 5".to_owned(),
        // The window grows at the gap block, too (7.2.1): 9, 10, 11; 12, 13.
        "200 DATA 9 10 11 12 13 cwnd 10276 ssthresh none".to_owned(),
        "250 SACK 5 5 5 5 5".to_owned(),
        // The SACK of 9 is the second missing report, finds 10276 octets in flight and permits 14 and 15. That of 10
        // makes the window 13212 and is the third missing report: half remains. 6 is sent regardless of the window. 7
        // follows when 8808 octets in flight are 5872, at the SACK of 12, and 16 at that of 13.
        "300 DATA 14 15 6 7 16 cwnd 6606 ssthresh 6606".to_owned(),
        // 14 and 15; 6, behind which 7 is missing; 16.
        "350 SACK 5 5 6 6".to_owned(),
    ];
    // Each of the four received shows that 7 is missing, which was fast retransmitted once and waits now. The SACK
    // of 6, at 400 ms, restarted T3-rtx. In fast recovery the window stays.
    for round in 0..10 {
        let first = 17 + 4 * round;
        let data: Vec<String> = (first..first + 4).map(|tsn: u64| tsn.to_string()).collect();
        expected.push(format!("{} DATA {}", 400 + 100 * round, data.join(" ")));
        expected.push(format!("{} SACK 6 6 6 6", 450 + 100 * round));
    }
    expected.extend(
        [
            // Four packets are more than half of 6606. All chunks in flight count as lost, 7 and 53 to 56, and 7 is
            // sent. The SACKs of 53 to 56 follow: 53 opens the window of a packet for 54, 54 that of two for 55 and 56.
            // After 55 and 56 two new chunks each are sent.
            "1400 DATA 7 54 55 56 57 58 59 60 cwnd 7340 ssthresh 5872",
            // 7 fills the gap and is acknowledged at once, as are the three received before; 58 and 60 are second
            // packets.
            "1450 SACK 56 56 56 56 58 60",
            // Beyond the threshold: 1468, 2936 and 2936 bytes, which are the window's 7340.
            "1500 DATA 61 62 63 64 65 66 cwnd 8808 ssthresh 5872",
        ]
        .map(str::to_owned),
    );
    assert_eq!(play_trace(rfc_config(), &[5, 6, 16], 1500), expected);
}

fn ns2_trace_lines(trace: &str) -> Vec<String> {
    trace.lines().map(str::to_owned).collect()
}

/// The same two chunks. Four packets clock the RFC's sender, three ns-2's, since its window grows only with the
/// cumulative TSN. The chunk that fills the gap is acknowledged 200 ms later.
#[test]
fn a_retransmission_that_is_lost_waits_for_the_timer_as_in_ns2() {
    assert_eq!(
        play_trace(ns2_config(), &[5, 6, 14], 2100),
        ns2_trace_lines(include_str!("ns2-once-and-twice.txt"))
    );
}

/// Losses behind the end of a recovery each start another. After the timeout a chunk that waits for
/// retransmission gets a third missing report: its fast retransmission makes four packets of the timeout's one.
#[test]
fn fast_retransmission_may_follow_a_timeout_as_in_ns2() {
    let lost = [5, 8, 9, 13, 17, 22, 23, 28];
    assert_eq!(
        play_trace(ns2_config(), &lost, 1700),
        ns2_trace_lines(include_str!("ns2-behind-a-timeout.txt"))
    );
    assert_ne!(
        play_trace(rfc_config(), &lost, 1700),
        ns2_trace_lines(include_str!("ns2-behind-a-timeout.txt"))
    );
}

/// Consecutive timeouts, each of a window of one packet: the timer doubles, and a retransmission alone does not
/// restart it.
#[test]
fn timeouts_in_a_row_are_as_in_ns2() {
    let lost = [8, 12, 18, 19, 21, 22, 24, 26, 27, 30, 33, 35, 40, 41, 44, 46, 49, 52, 53, 57];
    assert_eq!(play_trace(ns2_config(), &lost, 20_000), ns2_trace_lines(include_str!("ns2-timeouts.txt")));
}

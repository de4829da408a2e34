//! Several paths: retransmission, failure, heartbeats and recovery (RFC 9260 §6.4, §8.2, §8.3).

use super::*;

/// Both ends established over `paths` paths; the first fails at 200 ms.
fn primary_dead(config: SctpConfig, paths: u8) -> SctpTestNetwork {
    let mut w = SctpTestNetwork::established(config.clone(), config, paths);
    w.loss = Box::new(|_, path, _, _| path == 0);
    w
}

#[test]
fn a_retransmission_takes_another_path() {
    let mut w = primary_dead(test_config(), 2);
    w.send_message(A, 0, 100);
    w.run_to(3000);
    w.expect_sent(&["200 A0 DATA 1 0:0 100", "1200 A1 DATA 1 0:0 100", "1450 B1 SACK 1"]);
    assert_eq!(w.end_a().rto(0), millis(2000));
    assert!(w.end_a().is_active(0));
    w.is_idle();
}

#[test]
fn retransmissions_go_round() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 3);
    w.loss = Box::new(|_, _, _, _| true);
    w.send_message(A, 0, 100);
    w.run_to(6000);
    let line = |at: u64, path: u8| format!("{at} A{path} DATA 1 0:0 100");
    // Each path has a timeout of its own.
    w.expect_sent(&[&line(200, 0), &line(1200, 1), &line(2200, 2), &line(3200, 0), &line(5200, 1)]);
}

#[test]
fn data_takes_the_other_path_after_the_primary_fails() {
    let mut w = primary_dead(SctpConfig { max_path_retransmissions: 1, ..test_config() }, 2);
    w.send_message(A, 0, 100);
    w.run_to(2000);
    w.send_message(A, 0, 100);
    w.run_to(5000);
    w.expect_events(A, &["4000 path 0 down"]);
    w.expect_only(
        "DATA",
        &[
            "200 A0 DATA 1 0:0 100",
            "1200 A1 DATA 1 0:0 100",
            "2000 A0 DATA 2 0:1 100",
            "4000 A1 DATA 2 0:1 100",
        ],
    );
    w.send_message(A, 0, 100);
    w.run_to(6000);
    w.expect_only("DATA", &["5000 A1 DATA 3 0:2 100"]);
    w.expect_events(B, &["1250 message 0:100", "4050 message 0:100", "5050 message 0:100"]);
    assert_eq!(w.end_a().stats().path_failures, 1);
    w.is_idle();
}

#[test]
fn an_idle_association_with_heartbeats_probes_its_paths() {
    let beating = SctpConfig { heartbeat_interval: Some(millis(3000)), ..test_config() };
    let mut w = SctpTestNetwork::established(beating, test_config(), 2);
    w.run_to(4300);
    w.expect_sent(&[
        "4200 A0 HEARTBEAT",
        "4200 A1 HEARTBEAT",
        "4250 B0 HEARTBEAT-ACK",
        "4250 B1 HEARTBEAT-ACK",
    ]);
    assert_eq!(w.end_a().srtt(1), Some(millis(100)));
    // Data on a path defers its heartbeat.
    w.run_to(8000);
    w.clear_log();
    w.send_message(A, 0, 100);
    w.run_to(8300);
    w.expect_only("HEARTBEAT", &["8200 A1 HEARTBEAT", "8250 B1 HEARTBEAT-ACK"]);
}

#[test]
fn lost_heartbeats_fail_a_path_and_answered_ones_bring_it_back() {
    let beating =
        SctpConfig { heartbeat_interval: Some(millis(3000)), max_path_retransmissions: 1, ..test_config() };
    let mut w = SctpTestNetwork::established(beating, test_config(), 2);
    w.loss = Box::new(|_, path, _, _| path == 0);
    w.run_to(20_000);
    // Sent at 4200 and lost at 5200, sent at 8200 and lost, with twice the timeout, at 10200.
    w.expect_events(A, &["10200 path 0 down"]);
    w.send_message(A, 0, 100);
    w.run_to(20_500);
    w.expect_only("DATA", &["20000 A1 DATA 1 0:0 100"]);
    w.loss = Box::new(|_, _, _, _| false);
    w.run_to(40_000);
    let back = std::mem::take(&mut w.event_lines[A]);
    assert_eq!(back.len(), 1);
    assert!(back[0].ends_with("path 0 up"));
    w.clear_log();
    w.send_message(A, 0, 100);
    w.expect_sent(&["40000 A0 DATA 2 0:1 100"]);
}

#[test]
fn all_paths_dead_is_the_end() {
    let mut w = SctpTestNetwork::established(
        SctpConfig { max_association_retransmissions: Some(3), ..test_config() },
        test_config(),
        2,
    );
    w.loss = Box::new(|_, _, _, _| true);
    w.send_message(A, 0, 100);
    w.run_to(60_000);
    // 200, then a second on each path, then two.
    w.expect_events(A, &["6200 down TimedOut"]);
}

#[test]
fn data_that_is_acknowledged_brings_a_path_back() {
    // Both paths fail, then both recover: data itself detects it.
    let config =
        SctpConfig { max_path_retransmissions: 0, max_association_retransmissions: None, ..test_config() };
    let mut w = SctpTestNetwork::established(config.clone(), config, 2);
    w.loss = Box::new(|_, _, _, _| true);
    w.send_message(A, 0, 100);
    w.run_to(2500);
    w.expect_events(A, &["1200 path 0 down", "2200 path 1 down"]);
    w.loss = Box::new(|_, _, _, _| false);
    w.run_to(20_000);
    let heard = std::mem::take(&mut w.event_lines[A]);
    assert!(heard.len() == 1 && heard[0].ends_with("up"), "{heard:?}");
    w.is_idle();
}

#[test]
fn sacks_go_back_on_the_path_of_the_data() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 2);
    let data = DataChunk {
        tsn: 1,
        beginning: true,
        ending: true,
        payload: Payload::with_length(5),
        ..DataChunk::default()
    };
    w.inject_packet(B, 1, SctpPacket { vtag: 11, chunks: vec![Chunk::Data(data)] });
    w.run_to(420);
    w.expect_sent(&["400 B1 SACK 1"]);
}

#[test]
fn lost_heartbeats_on_an_idle_path_do_not_end_the_association() {
    let beating = SctpConfig {
        heartbeat_interval: Some(millis(3000)),
        max_path_retransmissions: 1,
        max_association_retransmissions: Some(2),
        ..test_config()
    };
    // Only A sends heartbeats, and only on the failed path, so the counter is never reset.
    let lost = |dead: u8| {
        let mut w = SctpTestNetwork::established(beating.clone(), test_config(), 2);
        w.end_a().paths[usize::from(1 - dead)].heartbeat_at = Instant::FAR_FUTURE;
        w.loss = Box::new(move |_, path, _, _| path == dead);
        w.run_to(60_000);
        (std::mem::take(&mut w.event_lines[A]), w.end_a().errors)
    };
    let (heard, errors) = lost(1);
    assert_eq!(heard, ["10200 path 1 down"]);
    assert_eq!(errors, 0);
    // On the data's path they count, until it fails and the data moves to the other.
    let (heard, errors) = lost(0);
    assert_eq!(heard, ["10200 path 0 down"]);
    assert_eq!(errors, 2);
    // With a single path, they end the association.
    let mut w = SctpTestNetwork::established(beating, test_config(), 1);
    w.loss = Box::new(|_, _, _, _| true);
    w.run_to(60_000);
    let heard = std::mem::take(&mut w.event_lines[A]);
    assert!(heard.last().is_some_and(|line| line.ends_with("down TimedOut")), "{heard:?}");
}

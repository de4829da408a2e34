//! T3-rtx and fast retransmit (RFC 9260 §6.3, §7.2.4), and head-of-line blocking.

use super::*;

fn all_lost(config: SctpConfig) -> SctpTestNetwork {
    let mut w = SctpTestNetwork::established(config.clone(), config, 1);
    w.loss = Box::new(|_, _, _, _| true);
    w
}

#[test]
fn the_timeout_doubles() {
    let mut w = all_lost(test_config());
    w.send_message(A, 0, 100);
    w.run_to(16_000);
    let again = |at: u64| format!("{at} A0 DATA 1 0:0 100");
    w.expect_sent(&[&again(200), &again(1200), &again(3200), &again(7200), &again(15_200)]);
    assert_eq!(w.end_a().stats().timeouts, 4);
    assert_eq!(w.end_a().stats().retransmitted_chunks, 4);
    assert_eq!(w.end_a().stats().data_chunks, 5);
    assert_eq!(w.end_a().rto(0), millis(16_000));
}

#[test]
fn its_bounds_can_be_set() {
    // The setup measured 100 ms twice: RTTVAR is 37.5 ms and RTO 250 ms.
    let bounds = SctpConfig { rto_min: millis(20), rto_max: millis(800), ..test_config() };
    let mut w = all_lost(bounds);
    assert_eq!(w.end_a().rto(0), millis(250));
    w.send_message(A, 0, 100);
    w.run_to(2700);
    let again = |at: u64| format!("{at} A0 DATA 1 0:0 100");
    w.expect_sent(&[&again(200), &again(450), &again(950), &again(1750), &again(2550)]);
    // B has no measurement: RTO.Initial applies, within the bounds from the first timeout on.
    let mut w = all_lost(SctpConfig { rto_initial: millis(3000), rto_min: millis(20), ..test_config() });
    w.send_message(B, 0, 100);
    w.run_to(10_000);
    w.expect_sent(&["200 B0 DATA 1001 0:0 100", "3200 B0 DATA 1001 0:0 100", "9200 B0 DATA 1001 0:0 100"]);
}

#[test]
fn too_many_timeouts_end_the_association() {
    let mut w = all_lost(SctpConfig { max_association_retransmissions: Some(2), ..test_config() });
    w.send_message(A, 0, 100);
    w.run_to(20_000);
    w.expect_only("DATA", &["200 A0 DATA 1 0:0 100", "1200 A0 DATA 1 0:0 100", "3200 A0 DATA 1 0:0 100"]);
    w.expect_events(A, &["7200 down TimedOut"]);
    assert_eq!(w.end_a().poll_timeout(), None);
    w.expect_only("ABORT", &[]);
    // As FreeBSD, the peer gets an ABORT.
    let two =
        SctpConfig { max_association_retransmissions: Some(2), abort_unreachable: true, ..test_config() };
    let mut w = all_lost(two);
    w.send_message(A, 0, 100);
    w.run_to(20_000);
    w.expect_only("ABORT", &["7200 A0 ABORT []"]);
}

#[test]
fn a_measurement_takes_the_doubling_back() {
    let mut w = all_lost(test_config());
    w.send_message(A, 0, 100);
    w.run_to(2000);
    w.loss = Box::new(|_, _, _, _| false);
    w.run_to(4000);
    assert_eq!(w.end_a().rto(0), millis(4000), "a chunk that was sent twice measures nothing");
    w.send_message(A, 0, 100);
    w.run_to(5000);
    assert_eq!(w.end_a().rto(0), millis(1000));
    w.is_idle();
}

#[test]
fn after_a_timeout_one_packet_leaves_and_the_rest_await_a_sack() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.loss = Box::new(|from, _, n, _| from == A && n < 3);
    for _ in 0..3 {
        w.send_message(A, 0, 600);
    }
    w.run_to(1700);
    w.expect_only(
        "DATA",
        &[
            "200 A0 DATA 1 0:0 600",
            "200 A0 DATA 2 0:1 600",
            "200 A0 DATA 3 0:2 600",
            "1200 A0 DATA 1 0:0 600",
            "1500 A0 DATA 2 0:1 600",
            "1500 A0 DATA 3 0:2 600",
        ],
    );
    // One packet, whose SACK waits its 200 ms; the window is then a packet and the 616 bytes more.
    w.run_to(3000);
    w.is_idle();
}

#[test]
fn three_missing_reports_retransmit_at_once() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.loss = Box::new(|from, _, n, _| from == A && n == 0);
    for _ in 0..5 {
        w.send_message(A, 0, 500);
    }
    w.run_to(200);
    w.clear_log();
    w.run_to(1000);
    w.expect_sent(&[
        "250 B0 SACK 0 gap 2-2 win 130572",
        "250 B0 SACK 0 gap 2-3 win 130072",
        "250 B0 SACK 0 gap 2-4 win 129572",
        "250 B0 SACK 0 gap 2-5 win 129072",
        "300 A0 DATA 1 0:0 500",
        "350 B0 SACK 5",
    ]);
    assert_eq!(w.end_a().stats().fast_retransmits, 1);
    assert_eq!(w.end_a().stats().timeouts, 0);
    // Half of 4000 is less than the minimum of four packets.
    assert_eq!(w.end_a().cwnd(0), 4000);
    w.expect_events(B, &["350 message 0:500"; 5]);
    w.is_idle();
}

#[test]
fn two_missing_reports_do_not() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.loss = Box::new(|from, _, n, _| from == A && n == 0);
    for _ in 0..3 {
        w.send_message(A, 0, 500);
    }
    w.run_to(1250);
    assert_eq!(w.end_a().stats().fast_retransmits, 0);
    assert_eq!(w.end_a().stats().timeouts, 1);
    assert_eq!(w.messages[B].len(), 3);
}

#[test]
fn what_fast_retransmit_lost_again_waits_for_the_timer() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.loss = Box::new(|_, _, _, text| text.starts_with("DATA 1 "));
    for _ in 0..6 {
        w.send_message(A, 0, 300);
    }
    w.run_to(1000);
    w.send_message(A, 0, 300);
    w.run_to(1299);
    w.expect_only("DATA 1 ", &["200 A0 DATA 1 0:0 300", "300 A0 DATA 1 0:0 300"]);
    w.loss = Box::new(|_, _, _, _| false);
    // T3-rtx restarted at 300 with the first chunk in flight.
    w.run_to(1300);
    w.expect_only("DATA 1 ", &["1300 A0 DATA 1 0:0 300"]);
    w.run_to(3000);
    assert_eq!(w.messages[B].len(), 7);
    w.is_idle();
}

#[test]
fn a_loss_keeps_its_own_stream_waiting_and_no_other() {
    let times = |streams: [u16; 4]| {
        let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
        w.loss = Box::new(|from, _, n, _| from == A && n == 0);
        for stream in streams {
            w.send_message(A, stream, 10);
        }
        w.run_to(5000);
        std::mem::take(&mut w.event_lines[B])
    };
    assert_eq!(times([0; 4]), ["350 message 0:10"; 4]);
    let across = times([0, 1, 2, 1]);
    assert_eq!(across, ["250 message 1:10", "250 message 2:10", "250 message 1:10", "350 message 0:10"]);
}

#[test]
fn unordered_messages_wait_for_nothing() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.loss = Box::new(|from, _, n, _| from == A && n == 0);
    w.send_message(A, 0, 11);
    w.with_end(A, |a, now| {
        a.send_message(now, UserMessage { unordered: true, ..test_message(0, 22) }).unwrap()
    });
    w.send_message(A, 0, 33);
    w.run_to(5000);
    w.expect_events(B, &["250 message 0:22", "1250 message 0:11", "1250 message 0:33"]);
}

#[test]
fn a_lost_sack_costs_nothing_where_another_follows() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.loss = Box::new(|from, _, n, _| from == B && n == 0);
    for _ in 0..4 {
        w.send_message(A, 0, 10);
    }
    w.run_to(5000);
    w.expect_only("SACK", &["250 B0 SACK 2", "250 B0 SACK 4"]);
    assert_eq!(w.end_a().stats().timeouts, 0);
    w.is_idle();
}

#[test]
fn acknowledging_what_was_never_sent_aborts() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    let sack = SackChunk { cumulative: 5, window: 2000, ..SackChunk::default() };
    w.inject_packet(A, 0, SctpPacket { vtag: 10, chunks: vec![Chunk::Sack(sack)] });
    w.expect_events(A, &["200 down Reset"]);
    w.run_to(300);
    w.expect_events(B, &["250 down Reset"]);
}

#[test]
fn a_receiver_that_takes_its_word_back_gets_it_again() {
    let mut w = SctpTestNetwork::established(test_config(), test_config(), 1);
    w.loss = Box::new(|_, _, _, _| true);
    for _ in 0..2 {
        w.send_message(A, 0, 100);
    }
    let sack = |gaps| SctpPacket {
        vtag: 10,
        chunks: vec![Chunk::Sack(SackChunk { cumulative: 0, window: 9000, gaps, ..SackChunk::default() })],
    };
    w.inject_packet(A, 0, sack(vec![(2, 2)]));
    w.inject_packet(A, 0, sack(vec![]));
    w.clear_log();
    w.run_to(1200);
    w.expect_sent(&["1200 A0 DATA 1 0:0 100 | DATA 2 0:1 100"]);
}

/// Returns the first path's window after each step: three chunks, the first of them lost, and their SACKs.
#[test]
fn the_window_grows_by_gap_blocks_or_by_the_cumulative_tsn_only() {
    for (cumulative_growth, window) in [(false, 4000 + 616), (true, 4000)] {
        let sender = SctpConfig { cumulative_growth, max_burst: None, ..test_config() };
        let mut w = SctpTestNetwork::established(sender, SctpConfig { sack_delay: None, ..test_config() }, 1);
        w.end_a().paths[0].cwnd = 4000;
        w.loss = Box::new(|from, _, n, _| from == A && n == 0);
        for _ in 0..7 {
            w.send_message(A, 0, 600);
        }
        // The SACK of the second chunk alone, behind which the window is full: 7 · 616 bytes.
        w.loss = Box::new(|from, _, n, _| from == B && n > 0);
        w.run_to(305);
        assert_eq!(w.end_a().paths[0].cwnd, window);
    }
}

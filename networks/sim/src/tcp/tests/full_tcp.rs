//! ns-2's FullTcp sender. Expected values were calculated by hand from tcp-full.cc; `tests/ns2` of the repository
//! compares whole transfers and dialogues with ns-2.

use super::*;

/// An initial window of `segments`, and the settings of the ns-2 preset that matter here.
fn open_full_tcp(recovery: LossRecoveryAlgorithm, segments: u32) -> ScriptedConnection {
    let config = TcpConfig {
        recovery,
        loss_recovery: LossRecovery::Ns2,
        reno_recover: true,
        fast_retransmit_restarts: true,
        deliver_first: true,
        delayed_ack: None,
        initial_window: InitialWindow::Segments(segments),
        ..test_config()
    };
    ScriptedConnection::open_to(config, "S. 0:0(0) ack 1 <mss 1000,sackOK>")
}

#[test]
fn after_a_timeout_duplicates_neither_send_nor_move_the_window() {
    let mut s = open_full_tcp(LossRecoveryAlgorithm::Sack, 8);
    s.write(12_000);
    s.run_to(1000);
    s.expect_sent(&[
        "0 . 1:1001(1000) ack 1",
        "0 . 1001:2001(1000) ack 1",
        "0 . 2001:3001(1000) ack 1",
        "0 . 3001:4001(1000) ack 1",
        "0 . 4001:5001(1000) ack 1",
        "0 . 5001:6001(1000) ack 1",
        "0 . 6001:7001(1000) ack 1",
        "0 . 7001:8001(1000) ack 1",
        "1000 . 1:1001(1000) ack 1",
    ]);
    assert_eq!((s.c.cwnd(), s.c.ssthresh()), (1000, 4000));
    for end in [3001, 4001, 5001] {
        s.inject_segment(&format!(". 1:1(0) ack 1 <sack 2001:{end}>"));
    }
    // Acknowledgements below the end of data sent before the timeout do not open the window; each permits a segment.
    s.inject_segment(". 1:1(0) ack 1001 <sack 2001:5001>");
    s.inject_segment(". 1:1(0) ack 5001");
    s.expect_sent(&["1000 . 1001:2001(1000) ack 1", "1000 . 5001:6001(1000) ack 1"]);
    assert_eq!((s.c.cwnd(), s.c.stats().fast_retransmits), (1000, 0));
    s.inject_segment(". 1:1(0) ack 8001");
    assert_eq!(s.c.cwnd(), 2000);
}

#[test]
fn sack_recovery_halves_the_window_even_below_the_threshold() {
    let mut s = open_full_tcp(LossRecoveryAlgorithm::Sack, 3);
    s.write(10_000);
    s.sent.clear();
    for end in [2001, 3001] {
        s.inject_segment(&format!(". 1:1(0) ack 1 <sack 1001:{end}>"));
    }
    s.inject_segment(". 1:1(0) ack 1");
    // Half of three: one segment may be in flight, and one is; the threshold is two.
    assert_eq!((s.c.cwnd(), s.c.ssthresh(), s.c.stats().fast_retransmits), (1500, 2000, 1));
    s.expect_sent(&["0 . 1:1001(1000) ack 1"]);
    s.inject_segment(". 1:1(0) ack 3001");
    // 1.5 segments; below the threshold an acknowledgement opens it by one.
    assert_eq!(s.c.cwnd(), 2500);
    s.expect_sent(&["0 . 3001:4001(1000) ack 1", "0 . 4001:5001(1000) ack 1"]);
}

#[test]
fn a_fast_retransmission_leaves_alone_until_the_next_ack() {
    let mut s = open_full_tcp(LossRecoveryAlgorithm::Reno, 4);
    s.write(20_000);
    s.sent.clear();
    for _ in 0..3 {
        s.inject_segment(". 1:1(0) ack 1");
    }
    // Two segments and one per duplicate: the fifth is permitted now.
    assert_eq!(s.c.cwnd(), 5000);
    s.expect_sent(&["0 . 1:1001(1000) ack 1"]);
    s.inject_segment(". 1:1(0) ack 1");
    s.expect_sent(&["0 . 4001:5001(1000) ack 1", "0 . 5001:6001(1000) ack 1"]);
    // A second loss in the same window is repaired like the first, without a timeout in between.
    s.inject_segment(". 1:1(0) ack 2001");
    s.sent.clear();
    for _ in 0..3 {
        s.inject_segment(". 1:1(0) ack 2001");
    }
    s.expect_sent(&["0 . 2001:3001(1000) ack 1"]);
    assert_eq!(s.c.stats().fast_retransmits, 2);
}

#[test]
fn a_partial_ack_retransmits_at_once_and_sends_at_most_two_more() {
    let mut s = open_full_tcp(LossRecoveryAlgorithm::NewReno, 8);
    s.write(20_000);
    s.sent.clear();
    for _ in 0..8 {
        s.inject_segment(". 1:1(0) ack 1");
    }
    // 4 + 3 segments, and one more for each of five duplicates: twelve; eight are in flight.
    s.expect_sent(&[
        "0 . 1:1001(1000) ack 1",
        "0 . 8001:9001(1000) ack 1",
        "0 . 9001:10001(1000) ack 1",
        "0 . 10001:11001(1000) ack 1",
        "0 . 11001:12001(1000) ack 1",
    ]);
    s.inject_segment(". 1:1(0) ack 5001");
    s.expect_sent(&["0 . 5001:6001(1000) ack 1"]);
    // Data sent by then is acknowledged now. The next segment's data is not acknowledged at once. The window of
    // four segments permits two more at a time.
    s.feed_segment("P. 1:101(100) ack 11001");
    s.c.report_all_delivered();
    s.collect_output();
    s.expect_sent(&[
        "0 . 11001:12001(1000) ack 1",
        "0 . 12001:13001(1000) ack 101",
        "0 . 13001:14001(1000) ack 101",
    ]);
}

#[test]
fn a_filled_gap_is_acknowledged_again_after_the_answer() {
    let mut s = open_full_tcp(LossRecoveryAlgorithm::Sack, 8);
    s.inject_segment("P. 201:301(100) ack 1");
    s.c.report_all_delivered();
    s.collect_output();
    s.expect_sent(&["0 . 1:1(0) ack 1 <sack 201:301>"]);
    s.feed_segment("P. 1:201(200) ack 1");
    s.write(50);
    s.c.report_all_delivered();
    s.collect_output();
    s.expect_sent(&["0 P. 1:51(50) ack 301", "0 . 51:51(0) ack 301"]);
}

#[test]
fn a_block_that_grows_keeps_its_place_and_three_are_told() {
    let mut s = open_full_tcp(LossRecoveryAlgorithm::Sack, 8);
    for start in [1001, 3001, 5001, 7001, 2001] {
        s.feed_segment(&format!(". {start}:{}(1000) ack 1", start + 1000));
        s.c.report_all_delivered();
        s.collect_output();
    }
    // The last joins the first two to one block, which stays the oldest.
    let [.., four, three] = s.sent.as_slice() else { panic!("{:?}", s.sent) };
    assert_eq!(four, "0 . 1:1(0) ack 1 <sack 7001:8001,sack 5001:6001,sack 3001:4001>");
    assert_eq!(three, "0 . 1:1(0) ack 1 <sack 7001:8001,sack 5001:6001,sack 1001:4001>");
}

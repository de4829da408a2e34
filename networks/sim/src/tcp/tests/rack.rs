//! Loss detection by time: RACK (RFC 8985 §6) and the tail-loss probe (§7), after a round trip of 20 ms.

use super::*;

fn by_time() -> TcpConfig {
    let least = Duration::from_millis(200);
    let recovery = LossRecoveryAlgorithm::Sack;
    TcpConfig {
        recovery,
        min_rto: least,
        granularity: least,
        rack: true,
        tail_loss_probe: true,
        ..test_config()
    }
}

/// A connection opened at 20 ms.
fn open_connection(config: TcpConfig) -> ScriptedConnection {
    let mut s = ScriptedConnection::connect(config);
    s.run_to(20);
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000,sackOK>");
    s.expect_sent(&["0 S 0:0(0) <mss 1000,sackOK>", "20 . 1:1(0) ack 1"]);
    s
}

#[test]
fn a_lone_segment_is_probed_at_the_timeout_and_keeps_the_window() {
    // The timeout is 20 + 200 ms, the probe's 2 * 20 + 200.
    let mut s = open_connection(by_time());
    s.write(100);
    s.run_to(300);
    s.expect_sent(&["20 P. 1:101(100) ack 1", "240 P. 1:101(100) ack 1"]);
    assert_eq!((s.c.stats().timeouts, s.c.cwnd()), (0, 4000));
    // No second probe: the timer, which restarted with the first.
    s.run_to(500);
    s.expect_sent(&["460 P. 1:101(100) ack 1"]);
    assert_eq!((s.c.stats().timeouts, s.c.cwnd()), (1, 1000));

    let mut s = open_connection(TcpConfig { tail_loss_probe: false, ..by_time() });
    s.write(100);
    s.run_to(300);
    s.expect_sent(&["20 P. 1:101(100) ack 1", "240 P. 1:101(100) ack 1"]);
    assert_eq!((s.c.stats().timeouts, s.c.cwnd()), (1, 1000));
}

#[test]
fn a_probe_of_the_last_segment_shows_what_else_is_lost() {
    let mut s = open_connection(by_time());
    s.write(1000);
    s.write(100);
    s.run_to(82);
    s.expect_sent(&["20 P. 1:1001(1000) ack 1", "20 P. 1001:1101(100) ack 1", "62 P. 1001:1101(100) ack 1"]);
    s.inject_segment(". 1:1(0) ack 1 <sack 1001:1101>");
    s.expect_sent(&["82 . 1:1001(1000) ack 1"]);
    s.run_to(102);
    s.inject_segment(". 1:1(0) ack 1101");
    assert_eq!((s.c.stats().timeouts, s.c.stats().fast_retransmits), (0, 1));
    assert_eq!(s.c.poll_timeout(), None);
}

#[test]
fn only_a_probe_that_repaired_a_loss_reduces_the_window() {
    // Both acknowledgements are late: the second reports that the segment arrived.
    let mut s = open_connection(by_time());
    s.write(100);
    s.run_to(250);
    s.inject_segment(". 1:1(0) ack 101");
    s.inject_segment(". 1:1(0) ack 101 <sack 1:101>");
    s.write(100);
    s.run_to(270);
    s.inject_segment(". 1:1(0) ack 201");
    assert_eq!(s.c.ssthresh(), u32::MAX);

    let mut s = open_connection(by_time());
    s.write(100);
    s.run_to(260);
    s.inject_segment(". 1:1(0) ack 101");
    s.write(100);
    assert_eq!(s.c.ssthresh(), u32::MAX, "it may still have come twice");
    s.run_to(280);
    s.inject_segment(". 1:1(0) ack 201");
    assert_eq!((s.c.ssthresh(), s.c.cwnd()), (2000, 2000));
}

#[test]
fn a_probe_is_new_data_where_there_is_some() {
    let mut s = open_connection(TcpConfig { initial_window: InitialWindow::Segments(1), ..by_time() });
    s.write(2500);
    s.run_to(260);
    s.expect_sent(&["20 . 1:1001(1000) ack 1", "240 . 1001:2001(1000) ack 1"]);
    s.inject_segment(". 1:1(0) ack 2001");
    s.expect_sent(&["260 P. 2001:2501(500) ack 1"]);
    assert_eq!(s.c.ssthresh(), u32::MAX);
}

#[test]
fn a_segment_is_lost_a_quarter_round_trip_after_a_later_arrival() {
    let mut s = open_connection(TcpConfig { tail_loss_probe: false, ..by_time() });
    s.write(100);
    s.run_to(21);
    s.write(100);
    s.run_to(41);
    s.inject_segment(". 1:1(0) ack 1 <sack 101:201>");
    // Sent at 20, a round trip of 20 and 5 more.
    assert_eq!(s.c.poll_timeout(), Some(at_millis(45)));
    s.run_to(65);
    s.expect_sent(&["20 P. 1:101(100) ack 1", "21 P. 101:201(100) ack 1", "45 . 1:101(100) ack 1"]);
    s.inject_segment(". 1:1(0) ack 201");
    assert_eq!((s.c.stats().timeouts, s.c.poll_timeout()), (0, None));

    // By duplicates it needs the timer.
    let mut s = open_connection(TcpConfig { rack: false, tail_loss_probe: false, ..by_time() });
    s.write(100);
    s.run_to(21);
    s.write(100);
    s.run_to(41);
    s.inject_segment(". 1:1(0) ack 1 <sack 101:201>");
    s.run_to(250);
    s.expect_sent(&["20 P. 1:101(100) ack 1", "21 P. 101:201(100) ack 1", "240 P. 1:201(200) ack 1"]);
}

#[test]
fn a_reordered_segment_widens_the_reordering_window_for_good() {
    let mut s = open_connection(TcpConfig { tail_loss_probe: false, ..by_time() });
    s.write(100);
    s.run_to(21);
    s.write(100);
    s.run_to(41);
    s.inject_segment(". 1:1(0) ack 1 <sack 101:201>");
    s.run_to(43);
    s.inject_segment(". 1:1(0) ack 201");
    s.run_to(50);
    // Three reported segments would otherwise be enough.
    for _ in 0..4 {
        s.write(100);
    }
    s.run_to(70);
    s.inject_segment(". 1:1(0) ack 201 <sack 301:601>");
    assert_eq!(s.c.stats().retransmitted, 0);
    assert_eq!(s.c.poll_timeout(), Some(at_millis(75)));
}

#[test]
fn a_repair_that_is_lost_is_repaired_again_without_the_timer() {
    let mut s = open_connection(by_time());
    for _ in 0..3 {
        s.write(1000);
    }
    s.run_to(40);
    s.inject_segment(". 1:1(0) ack 1 <sack 1001:3001>");
    s.run_to(50);
    // It was retransmitted at 45, and new data after it.
    s.write(1000);
    s.run_to(70);
    s.inject_segment(". 1:1(0) ack 1 <sack 1001:4001>");
    s.expect_sent(&[
        "20 P. 1:1001(1000) ack 1",
        "20 P. 1001:2001(1000) ack 1",
        "20 P. 2001:3001(1000) ack 1",
        "45 . 1:1001(1000) ack 1",
        "50 P. 3001:4001(1000) ack 1",
        "70 . 1:1001(1000) ack 1",
    ]);
    assert_eq!((s.c.stats().timeouts, s.c.stats().fast_retransmits), (0, 1));
}

#[test]
fn a_segment_window_counts_small_segments_and_grows_when_full() {
    let two = TcpConfig { initial_window: InitialWindow::Segments(2), ..by_time() };
    let mut s = open_connection(TcpConfig { window_unit: WindowUnit::Segments, ..two.clone() });
    for _ in 0..4 {
        s.write(100);
    }
    s.expect_sent(&["20 P. 1:101(100) ack 1", "20 P. 101:201(100) ack 1"]);
    // Pending data leaves as one segment; the window was full and has grown by a segment.
    s.run_to(40);
    s.inject_segment(". 1:1(0) ack 101");
    s.expect_sent(&["40 P. 201:401(200) ack 1"]);
    assert_eq!(s.c.cwnd(), 3000);
    s.run_to(41);
    s.inject_segment(". 1:1(0) ack 401");
    assert_eq!(s.c.cwnd(), 3000, "two of three segments were in flight");

    let mut s = open_connection(two);
    for _ in 0..4 {
        s.write(100);
    }
    assert_eq!(s.sent.len(), 4, "400 bytes of 2000");
}

#[test]
fn a_loss_shrinks_a_segment_window_and_delays_retransmissions() {
    let mut s = open_connection(TcpConfig { window_unit: WindowUnit::Segments, ..by_time() });
    for _ in 0..4 {
        s.write(100);
    }
    s.sent.clear();
    s.run_to(40);
    s.inject_segment(". 1:1(0) ack 1 <sack 301:401>");
    s.run_to(45);
    // Two of four segments are kept: one is retransmitted per delivery, and new data waits.
    s.write(100);
    s.expect_sent(&["45 . 1:301(300) ack 1", "45 P. 401:501(100) ack 1"]);
    assert_eq!((s.c.ssthresh(), s.c.cwnd()), (2000, 2000));
    s.write(100);
    s.expect_sent(&[]);
    s.run_to(65);
    s.inject_segment(". 1:1(0) ack 401");
    s.expect_sent(&["65 P. 501:601(100) ack 1"]);
}

#[test]
fn after_a_timeout_a_segment_window_is_one_segment_of_any_size() {
    let one_by_one = TcpConfig { window_unit: WindowUnit::Segments, tail_loss_probe: false, ..by_time() };
    let mut s = open_connection(one_by_one);
    for _ in 0..3 {
        s.write(600);
    }
    s.sent.clear();
    s.run_to(240);
    s.expect_sent(&["240 . 1:1001(1000) ack 1"]);
    s.run_to(260);
    s.inject_segment(". 1:1(0) ack 1001");
    s.expect_sent(&["260 P. 1001:1801(800) ack 1"]);
}

#[test]
fn a_retransmission_is_filled_with_following_unreported_data() {
    for (retransmit_collapse, second) in [
        (true, vec!["45 . 301:501(200) ack 1"]),
        (false, vec!["45 . 301:401(100) ack 1", "45 . 401:501(100) ack 1"]),
    ] {
        let mut s = open_connection(TcpConfig { retransmit_collapse, ..by_time() });
        for _ in 0..6 {
            s.write(100);
        }
        s.sent.clear();
        s.run_to(40);
        s.inject_segment(". 1:1(0) ack 1 <sack 201:301>");
        s.inject_segment(". 1:1(0) ack 1 <sack 501:601,sack 201:301>");
        s.run_to(45);
        let mut all = vec!["45 . 1:201(200) ack 1"];
        all.extend(second);
        s.expect_sent(&all);
        s.run_to(65);
        s.inject_segment(". 1:1(0) ack 601");
        assert_eq!(s.c.poll_timeout(), None);
    }
}

#[test]
fn a_fast_retransmission_may_restart_the_timer() {
    for (fast_retransmit_restarts, timeout) in [(true, 260), (false, 240)] {
        let mut s =
            open_connection(TcpConfig { fast_retransmit_restarts, tail_loss_probe: false, ..by_time() });
        for _ in 0..4 {
            s.write(1000);
        }
        s.sent.clear();
        s.run_to(40);
        s.inject_segment(". 1:1(0) ack 1 <sack 1001:4001>");
        s.expect_sent(&["40 . 1:1001(1000) ack 1"]);
        assert_eq!(s.c.poll_timeout(), Some(at_millis(timeout)));
    }
}

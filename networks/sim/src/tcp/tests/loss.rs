//! Timeouts, fast retransmit and recovery without SACK.

use super::*;

/// Eight segments of 1000 octets in flight, four more pending.
fn eight_in_flight(recovery: LossRecoveryAlgorithm, limited_transmit: bool) -> ScriptedConnection {
    let initial_window = InitialWindow::Segments(8);
    let mut s = ScriptedConnection::established(TcpConfig {
        recovery,
        limited_transmit,
        initial_window,
        ..test_config()
    });
    s.write(12_000);
    s.sent.clear();
    assert_eq!(s.c.bytes_in_flight(), 8000);
    s
}
fn inject_acks(s: &mut ScriptedConnection, ack: u32, n: u32) {
    for _ in 0..n {
        s.inject_segment(&format!(". 1:1(0) ack {ack}"));
    }
}

#[test]
fn the_timeout_doubles_until_the_limit() {
    let mut s = ScriptedConnection::established(TcpConfig { max_retransmissions: Some(3), ..test_config() });
    s.write(200);
    s.run_to(14_999);
    let line = |at| format!("{at} P. 1:201(200) ack 1");
    s.expect_sent(&[&line(0), &line(1000), &line(3000), &line(7000)]);
    assert_eq!(s.c.rto(), Duration::from_secs(8));
    s.run_to(15_000);
    s.closed_for(CloseReason::TimedOut);
    assert_eq!((s.c.stats().timeouts, s.c.stats().retransmitted), (4, 3));
}

#[test]
fn the_timeout_is_bounded_and_may_never_give_up() {
    let max_rto = Duration::from_secs(2);
    let mut s =
        ScriptedConnection::established(TcpConfig { max_retransmissions: None, max_rto, ..test_config() });
    s.write(200);
    s.run_to(200_000);
    // 0, 1 s, 3 s, then every two seconds.
    assert_eq!(s.sent.len(), 2 + 99);
}

#[test]
fn round_trips_are_smoothed_and_retransmissions_not_measured() {
    let mut s =
        ScriptedConnection::connect(TcpConfig { min_rto: Duration::from_millis(200), ..test_config() });
    s.run_to(100);
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
    // SRTT 100, RTTVAR 50.
    assert_eq!(s.c.rto(), Duration::from_millis(300));
    s.write(200);
    s.run_to(200);
    s.inject_segment(". 1:1(0) ack 201");
    // RTTVAR 37.5.
    assert_eq!(s.c.rto(), Duration::from_millis(250));
    s.write(200);
    s.run_to(500);
    s.inject_segment(". 1:1(0) ack 401");
    assert_eq!(s.c.rto(), Duration::from_millis(500), "backed off, and kept");
    s.write(200);
    s.run_to(600);
    s.inject_segment(". 1:1(0) ack 601");
    // RTTVAR 28.125.
    assert_eq!(s.c.rto(), Duration::from_micros(212_500));
    s.expect_sent(&[
        "0 S 0:0(0) <mss 1000>",
        "100 . 1:1(0) ack 1",
        "100 P. 1:201(200) ack 1",
        "200 P. 201:401(200) ack 1",
        "450 P. 201:401(200) ack 1",
        "500 P. 401:601(200) ack 1",
    ]);
}

#[test]
fn an_acknowledgement_of_new_data_restarts_the_timer() {
    let mut s = ScriptedConnection::established(test_config());
    s.write(1000);
    s.run_to(300);
    s.write(1000);
    s.run_to(600);
    s.inject_segment(". 1:1(0) ack 1001");
    assert_eq!(s.c.poll_timeout(), Some(at_millis(1600)));
    s.inject_segment(". 1:1(0) ack 2001");
    assert_eq!(s.c.poll_timeout(), None);
}

#[test]
fn a_timeout_goes_back_and_starts_slowly() {
    let mut s = ScriptedConnection::established(test_config());
    s.write(4000);
    s.sent.clear();
    s.run_to(1000);
    s.expect_sent(&["1000 . 1:1001(1000) ack 1"]);
    assert_eq!((s.c.cwnd(), s.c.ssthresh()), (1000, 2000));
    s.run_to(3000);
    s.expect_sent(&["3000 . 1:1001(1000) ack 1"]);
    assert_eq!(s.c.ssthresh(), 2000, "the same segment halves it once");
    s.inject_segment(". 1:1(0) ack 1001");
    s.expect_sent(&["3000 . 1001:2001(1000) ack 1", "3000 . 2001:3001(1000) ack 1"]);
    s.inject_segment(". 1:1(0) ack 4001");
    s.expect_sent(&[]);
    assert_eq!((s.c.stats().timeouts, s.c.stats().retransmitted), (2, 4));
    assert_eq!(s.c.poll_timeout(), None);
}

#[test]
fn third_duplicate_retransmits_and_later_ones_release_new_data() {
    for recovery in [LossRecoveryAlgorithm::Reno, LossRecoveryAlgorithm::NewReno] {
        let mut s = eight_in_flight(recovery, false);
        inject_acks(&mut s, 1, 2);
        s.expect_sent(&[]);
        inject_acks(&mut s, 1, 1);
        s.expect_sent(&["0 . 1:1001(1000) ack 1"]);
        assert_eq!((s.c.cwnd(), s.c.ssthresh()), (7000, 4000));
        inject_acks(&mut s, 1, 4);
        s.expect_sent(&[
            "0 . 8001:9001(1000) ack 1",
            "0 . 9001:10001(1000) ack 1",
            "0 . 10001:11001(1000) ack 1",
        ]);
        inject_acks(&mut s, 8001, 1);
        s.expect_sent(&["0 P. 11001:12001(1000) ack 1"]);
        assert_eq!(s.c.cwnd(), 4000);
        let stats = s.c.stats();
        assert_eq!((stats.fast_retransmits, stats.retransmitted, stats.timeouts), (1, 1, 0));
    }
}

#[test]
fn new_reno_repairs_a_second_loss_on_the_partial_ack() {
    let mut s = eight_in_flight(LossRecoveryAlgorithm::NewReno, false);
    inject_acks(&mut s, 1, 6);
    s.expect_sent(&["0 . 1:1001(1000) ack 1", "0 . 8001:9001(1000) ack 1", "0 . 9001:10001(1000) ack 1"]);
    inject_acks(&mut s, 2001, 1);
    s.expect_sent(&["0 . 2001:3001(1000) ack 1", "0 . 10001:11001(1000) ack 1"]);
    assert_eq!(s.c.cwnd(), 9000);
    inject_acks(&mut s, 2001, 2);
    s.expect_sent(&["0 P. 11001:12001(1000) ack 1"]);
    inject_acks(&mut s, 10_001, 1);
    s.expect_sent(&[]);
    assert_eq!((s.c.cwnd(), s.c.stats().retransmitted, s.c.stats().fast_retransmits), (3000, 2, 1));
}

#[test]
fn only_the_first_partial_acknowledgement_restarts_the_timer() {
    let mut s = eight_in_flight(LossRecoveryAlgorithm::NewReno, false);
    inject_acks(&mut s, 1, 3);
    s.run_to(100);
    inject_acks(&mut s, 1001, 1);
    assert_eq!(s.c.poll_timeout(), Some(at_millis(1100)));
    s.run_to(200);
    inject_acks(&mut s, 2001, 1);
    assert_eq!(s.c.poll_timeout(), Some(at_millis(1100)));
}

#[test]
fn reno_waits_for_the_timer_at_a_second_loss() {
    let mut s = eight_in_flight(LossRecoveryAlgorithm::Reno, false);
    inject_acks(&mut s, 1, 6);
    s.sent.clear();
    inject_acks(&mut s, 2001, 3);
    s.expect_sent(&[]);
    assert_eq!(s.c.cwnd(), 4000);
    s.run_to(1000);
    s.expect_sent(&["1000 . 2001:3001(1000) ack 1"]);
}

#[test]
fn limited_transmit_sends_on_the_first_two_duplicates() {
    let mut s = eight_in_flight(LossRecoveryAlgorithm::NewReno, true);
    inject_acks(&mut s, 1, 1);
    s.expect_sent(&["0 . 8001:9001(1000) ack 1"]);
    inject_acks(&mut s, 1, 1);
    s.expect_sent(&["0 . 9001:10001(1000) ack 1"]);
    assert_eq!(s.c.cwnd(), 8000);
    inject_acks(&mut s, 1, 1);
    s.expect_sent(&["0 . 1:1001(1000) ack 1"]);
    assert_eq!(s.c.ssthresh(), 4000, "half of what was in flight before");
    assert_eq!(s.c.stats().limited_transmits, 2);
}

#[test]
fn duplicates_after_a_timeout_do_not_retransmit_again() {
    for (recovery, fast) in [(LossRecoveryAlgorithm::NewReno, 0), (LossRecoveryAlgorithm::Reno, 1)] {
        let mut s = eight_in_flight(recovery, true);
        s.run_to(1000);
        inject_acks(&mut s, 1001, 4);
        assert_eq!(s.c.stats().fast_retransmits, fast, "{recovery:?}");
    }
}

#[test]
fn what_carries_data_or_changes_the_window_is_no_duplicate() {
    let mut s = eight_in_flight(LossRecoveryAlgorithm::NewReno, false);
    for text in [". 1:101(100) ack 1", ". 101:201(100) ack 1", ". 201:301(100) ack 1"] {
        s.inject_segment(text);
    }
    for win in [60_000, 50_000, 40_000] {
        s.inject_segment(&format!(". 301:301(0) ack 1 win {win}"));
    }
    assert_eq!((s.c.stats().duplicate_acks, s.c.stats().fast_retransmits), (0, 0));
}

#[test]
fn timestamps_measure_retransmissions_too() {
    let mut s = ScriptedConnection::connect(TcpConfig { timestamps: true, ..test_config() });
    s.run_to(100);
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000,ts 7:0>");
    s.write(200);
    s.run_to(1150);
    s.inject_segment(". 1:1(0) ack 201 <ts 8:1100>");
    s.expect_sent(&[
        "0 S 0:0(0) <mss 1000,ts 0:0>",
        "100 . 1:1(0) ack 1 <ts 100:7>",
        "100 P. 1:201(200) ack 1 <ts 100:7>",
        "1100 P. 1:201(200) ack 1 <ts 1100:7>",
    ]);
    assert_eq!(s.c.srtt(), Some(Duration::from_micros(93_750)));
    assert_eq!(s.c.rto(), Duration::from_secs(1));
}

#[test]
fn what_comes_again_for_a_lost_acknowledgement_is_echoed_anew() {
    let mut s =
        ScriptedConnection::connect(TcpConfig { timestamps: true, delayed_ack: None, ..test_config() });
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000,ts 7:0>");
    s.sent.clear();
    s.inject_segment("P. 1:201(200) ack 1 <ts 8:0>");
    // The acknowledgement is lost; after a timeout the peer sends the same again.
    s.run_to(1000);
    s.inject_segment("P. 1:201(200) ack 1 <ts 1008:0>");
    // An older delayed copy gives no measurement, nor does a segment beyond the window.
    s.inject_segment("P. 1:201(200) ack 1 <ts 9:0>");
    s.inject_segment("P. 70001:70201(200) ack 1 <ts 1009:0>");
    s.expect_sent(&[
        "0 . 1:1(0) ack 201 <ts 0:8>",
        "1000 . 1:1(0) ack 201 <ts 1000:1008>",
        "1000 . 1:1(0) ack 201 <ts 1000:1008>",
        "1000 . 1:1(0) ack 201 <ts 1000:1008>",
    ]);
    s.expect_events(&["connected", "data 200"]);
    assert_eq!((s.c.stats().duplicate_data, s.c.stats().old_timestamps), (1, 1));
}

#[test]
fn after_24_days_of_silence_an_old_timestamp_is_taken() {
    let mut s =
        ScriptedConnection::connect(TcpConfig { timestamps: true, delayed_ack: None, ..test_config() });
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000,ts 7:0>");
    s.sent.clear();
    // RFC 7323 section 5.5: the peer's clock may have wrapped meanwhile.
    let days = 25 * 24 * 3600 * 1000;
    s.run_to(days);
    s.inject_segment("P. 1:201(200) ack 1 <ts 5:0>");
    s.inject_segment("P. 201:401(200) ack 1 <ts 6:0>");
    s.expect_sent(&[
        &format!("{days} . 1:1(0) ack 201 <ts {days}:5>"),
        &format!("{days} . 1:1(0) ack 401 <ts {days}:6>"),
    ]);
}

#[test]
fn old_or_missing_timestamps_are_dropped() {
    let mut s = ScriptedConnection::connect(TcpConfig { timestamps: true, ..test_config() });
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000,ts 7:0>");
    s.sent.clear();
    s.inject_segment("P. 1:11(10) ack 1 <ts 6:0>");
    s.expect_sent(&["0 . 1:1(0) ack 1 <ts 0:7>"]);
    s.inject_segment("P. 1:11(10) ack 1");
    s.inject_segment("P. 1:11(10) ack 1 <ts 9:0>");
    s.expect_events(&["connected", "data 10"]);
    assert_eq!((s.c.stats().old_timestamps, s.c.stats().malformed), (1, 1));
    s.run_to(200);
    s.expect_sent(&["200 . 1:1(0) ack 11 <ts 200:9>"]);
}

#[test]
fn an_acknowledgement_of_nothing_sent_is_challenged() {
    let mut s = ScriptedConnection::established(test_config());
    s.write(100);
    s.sent.clear();
    s.inject_segment("P. 1:11(10) ack 102");
    s.expect_sent(&["0 . 101:101(0) ack 1"]);
    s.expect_events(&[]);
    assert_eq!((s.c.stats().unacceptable, s.c.bytes_in_flight()), (1, 100));
}

#[test]
fn progress_begins_the_count_of_retransmissions_anew() {
    let mut s = ScriptedConnection::established(TcpConfig { max_retransmissions: Some(1), ..test_config() });
    for i in 0..3 {
        s.write(100);
        s.run_to(s.c.poll_timeout().unwrap().as_nanos() / 1_000_000);
        s.inject_segment(&format!(". 1:1(0) ack {}", 101 + 100 * i));
    }
    assert_eq!((s.c.state(), s.c.stats().timeouts), (TcpState::Established, 3));
}

//! Timeouts, fast retransmit and recovery without SACK.

use super::*;

/// Eight segments of 1000 bytes in flight, four more waiting; no limited transmit.
fn eight(recovery: Recovery, limited_transmit: bool) -> Script {
    let initial_window = InitialWindow::Segments(8);
    let mut s = Script::open(Config { recovery, limited_transmit, initial_window, ..config() });
    s.write(12_000);
    s.sent.clear();
    assert_eq!(s.c.bytes_in_flight(), 8000);
    s
}
fn acks(s: &mut Script, ack: u32, n: u32) {
    for _ in 0..n {
        s.inject(&format!(". 1:1(0) ack {ack}"));
    }
}

#[test]
fn the_timeout_doubles_until_the_limit() {
    let mut s = Script::open(Config { max_retransmissions: Some(3), ..config() });
    s.write(200);
    s.run_to(14_999);
    let line = |at| format!("{at} P. 1:201(200) ack 1");
    s.expect(&[&line(0), &line(1000), &line(3000), &line(7000)]);
    assert_eq!(s.c.rto(), Duration::from_secs(8));
    s.run_to(15_000);
    s.closed_for(CloseReason::TimedOut);
    assert_eq!((s.c.stats().timeouts, s.c.stats().retransmitted), (4, 3));
}

#[test]
fn the_timeout_is_bounded_and_may_never_give_up() {
    let max_rto = Duration::from_secs(2);
    let mut s = Script::open(Config { max_retransmissions: None, max_rto, ..config() });
    s.write(200);
    s.run_to(200_000);
    // 0, 1 s, 3 s, then every two seconds.
    assert_eq!(s.sent.len(), 2 + 99);
}

#[test]
fn round_trips_are_smoothed_and_retransmissions_are_not_measured() {
    let mut s = Script::connect(Config { min_rto: Duration::from_millis(200), ..config() });
    s.run_to(100);
    s.inject("S. 0:0(0) ack 1 <mss 1000>");
    // SRTT 100, RTTVAR 50.
    assert_eq!(s.c.rto(), Duration::from_millis(300));
    s.write(200);
    s.run_to(200);
    s.inject(". 1:1(0) ack 201");
    // RTTVAR 37.5.
    assert_eq!(s.c.rto(), Duration::from_millis(250));
    s.write(200);
    s.run_to(500);
    s.inject(". 1:1(0) ack 401");
    assert_eq!(s.c.rto(), Duration::from_millis(500), "backed off, and kept");
    s.write(200);
    s.run_to(600);
    s.inject(". 1:1(0) ack 601");
    // RTTVAR 28.125.
    assert_eq!(s.c.rto(), Duration::from_micros(212_500));
    s.expect(&[
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
    let mut s = Script::open(config());
    s.write(1000);
    s.run_to(300);
    s.write(1000);
    s.run_to(600);
    s.inject(". 1:1(0) ack 1001");
    assert_eq!(s.c.poll_timeout(), Some(ms(1600)));
    s.inject(". 1:1(0) ack 2001");
    assert_eq!(s.c.poll_timeout(), None);
}

#[test]
fn a_timeout_goes_back_and_starts_slowly() {
    let mut s = Script::open(config());
    s.write(4000);
    s.sent.clear();
    s.run_to(1000);
    s.expect(&["1000 . 1:1001(1000) ack 1"]);
    assert_eq!((s.c.cwnd(), s.c.ssthresh()), (1000, 2000));
    s.run_to(3000);
    s.expect(&["3000 . 1:1001(1000) ack 1"]);
    assert_eq!(s.c.ssthresh(), 2000, "the same segment halves it once");
    s.inject(". 1:1(0) ack 1001");
    s.expect(&["3000 . 1001:2001(1000) ack 1", "3000 . 2001:3001(1000) ack 1"]);
    s.inject(". 1:1(0) ack 4001");
    s.expect(&[]);
    assert_eq!((s.c.stats().timeouts, s.c.stats().retransmitted), (2, 4));
    assert_eq!(s.c.poll_timeout(), None);
}

#[test]
fn the_third_duplicate_retransmits_and_further_ones_let_new_data_go() {
    for recovery in [Recovery::Reno, Recovery::NewReno] {
        let mut s = eight(recovery, false);
        acks(&mut s, 1, 2);
        s.expect(&[]);
        acks(&mut s, 1, 1);
        s.expect(&["0 . 1:1001(1000) ack 1"]);
        assert_eq!((s.c.cwnd(), s.c.ssthresh()), (7000, 4000));
        acks(&mut s, 1, 4);
        s.expect(&["0 . 8001:9001(1000) ack 1", "0 . 9001:10001(1000) ack 1", "0 . 10001:11001(1000) ack 1"]);
        acks(&mut s, 8001, 1);
        s.expect(&["0 P. 11001:12001(1000) ack 1"]);
        assert_eq!(s.c.cwnd(), 4000);
        let stats = s.c.stats();
        assert_eq!((stats.fast_retransmits, stats.retransmitted, stats.timeouts), (1, 1, 0));
    }
}

#[test]
fn new_reno_repairs_a_second_loss_at_the_partial_acknowledgement() {
    let mut s = eight(Recovery::NewReno, false);
    acks(&mut s, 1, 6);
    s.expect(&["0 . 1:1001(1000) ack 1", "0 . 8001:9001(1000) ack 1", "0 . 9001:10001(1000) ack 1"]);
    acks(&mut s, 2001, 1);
    s.expect(&["0 . 2001:3001(1000) ack 1", "0 . 10001:11001(1000) ack 1"]);
    assert_eq!(s.c.cwnd(), 9000);
    acks(&mut s, 2001, 2);
    s.expect(&["0 P. 11001:12001(1000) ack 1"]);
    acks(&mut s, 10_001, 1);
    s.expect(&[]);
    assert_eq!((s.c.cwnd(), s.c.stats().retransmitted, s.c.stats().fast_retransmits), (3000, 2, 1));
}

#[test]
fn only_the_first_partial_acknowledgement_restarts_the_timer() {
    let mut s = eight(Recovery::NewReno, false);
    acks(&mut s, 1, 3);
    s.run_to(100);
    acks(&mut s, 1001, 1);
    assert_eq!(s.c.poll_timeout(), Some(ms(1100)));
    s.run_to(200);
    acks(&mut s, 2001, 1);
    assert_eq!(s.c.poll_timeout(), Some(ms(1100)));
}

#[test]
fn reno_waits_for_the_timer_at_a_second_loss() {
    let mut s = eight(Recovery::Reno, false);
    acks(&mut s, 1, 6);
    s.sent.clear();
    acks(&mut s, 2001, 3);
    s.expect(&[]);
    assert_eq!(s.c.cwnd(), 4000);
    s.run_to(1000);
    s.expect(&["1000 . 2001:3001(1000) ack 1"]);
}

#[test]
fn limited_transmit_sends_on_the_first_two_duplicates() {
    let mut s = eight(Recovery::NewReno, true);
    acks(&mut s, 1, 1);
    s.expect(&["0 . 8001:9001(1000) ack 1"]);
    acks(&mut s, 1, 1);
    s.expect(&["0 . 9001:10001(1000) ack 1"]);
    assert_eq!(s.c.cwnd(), 8000);
    acks(&mut s, 1, 1);
    s.expect(&["0 . 1:1001(1000) ack 1"]);
    assert_eq!(s.c.ssthresh(), 4000, "half of what was in flight before");
    assert_eq!(s.c.stats().limited_transmits, 2);
}

#[test]
fn duplicates_after_a_timeout_do_not_retransmit_again() {
    for (recovery, fast) in [(Recovery::NewReno, 0), (Recovery::Reno, 1)] {
        let mut s = eight(recovery, true);
        s.run_to(1000);
        acks(&mut s, 1001, 4);
        assert_eq!(s.c.stats().fast_retransmits, fast, "{recovery:?}");
    }
}

#[test]
fn what_carries_data_or_changes_the_window_is_no_duplicate() {
    let mut s = eight(Recovery::NewReno, false);
    for text in [". 1:101(100) ack 1", ". 101:201(100) ack 1", ". 201:301(100) ack 1"] {
        s.inject(text);
    }
    for win in [60_000, 50_000, 40_000] {
        s.inject(&format!(". 301:301(0) ack 1 win {win}"));
    }
    assert_eq!((s.c.stats().duplicate_acks, s.c.stats().fast_retransmits), (0, 0));
}

#[test]
fn timestamps_measure_retransmissions_too() {
    let mut s = Script::connect(Config { timestamps: true, ..config() });
    s.run_to(100);
    s.inject("S. 0:0(0) ack 1 <mss 1000,ts 7:0>");
    s.write(200);
    s.run_to(1150);
    s.inject(". 1:1(0) ack 201 <ts 8:1100>");
    s.expect(&[
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
    let mut s = Script::connect(Config { timestamps: true, delayed_ack: None, ..config() });
    s.inject("S. 0:0(0) ack 1 <mss 1000,ts 7:0>");
    s.sent.clear();
    s.inject("P. 1:201(200) ack 1 <ts 8:0>");
    // The acknowledgement is lost; after a timeout the other side sends the same again.
    s.run_to(1000);
    s.inject("P. 1:201(200) ack 1 <ts 1008:0>");
    // An older copy that was held up is no measure of anything; nor is what lies beyond the window.
    s.inject("P. 1:201(200) ack 1 <ts 9:0>");
    s.inject("P. 70001:70201(200) ack 1 <ts 1009:0>");
    s.expect(&[
        "0 . 1:1(0) ack 201 <ts 0:8>",
        "1000 . 1:1(0) ack 201 <ts 1000:1008>",
        "1000 . 1:1(0) ack 201 <ts 1000:1008>",
        "1000 . 1:1(0) ack 201 <ts 1000:1008>",
    ]);
    s.hear(&["connected", "data 200"]);
    assert_eq!((s.c.stats().duplicate_data, s.c.stats().old_timestamps), (1, 1));
}

#[test]
fn after_24_days_of_silence_an_old_timestamp_is_taken() {
    let mut s = Script::connect(Config { timestamps: true, delayed_ack: None, ..config() });
    s.inject("S. 0:0(0) ack 1 <mss 1000,ts 7:0>");
    s.sent.clear();
    // RFC 7323 section 5.5: the other side's clock may have come round meanwhile.
    let days = 25 * 24 * 3600 * 1000;
    s.run_to(days);
    s.inject("P. 1:201(200) ack 1 <ts 5:0>");
    s.inject("P. 201:401(200) ack 1 <ts 6:0>");
    s.expect(&[
        &format!("{days} . 1:1(0) ack 201 <ts {days}:5>"),
        &format!("{days} . 1:1(0) ack 401 <ts {days}:6>"),
    ]);
}

#[test]
fn old_or_missing_timestamps_are_dropped() {
    let mut s = Script::connect(Config { timestamps: true, ..config() });
    s.inject("S. 0:0(0) ack 1 <mss 1000,ts 7:0>");
    s.sent.clear();
    s.inject("P. 1:11(10) ack 1 <ts 6:0>");
    s.expect(&["0 . 1:1(0) ack 1 <ts 0:7>"]);
    s.inject("P. 1:11(10) ack 1");
    s.inject("P. 1:11(10) ack 1 <ts 9:0>");
    s.hear(&["connected", "data 10"]);
    assert_eq!((s.c.stats().old_timestamps, s.c.stats().malformed), (1, 1));
    s.run_to(200);
    s.expect(&["200 . 1:1(0) ack 11 <ts 200:9>"]);
}

#[test]
fn an_acknowledgement_of_nothing_sent_is_challenged() {
    let mut s = Script::open(config());
    s.write(100);
    s.sent.clear();
    s.inject("P. 1:11(10) ack 102");
    s.expect(&["0 . 101:101(0) ack 1"]);
    s.hear(&[]);
    assert_eq!((s.c.stats().unacceptable, s.c.bytes_in_flight()), (1, 100));
}

#[test]
fn progress_begins_the_count_of_retransmissions_anew() {
    let mut s = Script::open(Config { max_retransmissions: Some(1), ..config() });
    for i in 0..3 {
        s.write(100);
        s.run_to(s.c.poll_timeout().unwrap().as_nanos() / 1_000_000);
        s.inject(&format!(". 1:1(0) ack {}", 101 + 100 * i));
    }
    assert_eq!((s.c.state(), s.c.stats().timeouts), (State::Established, 3));
}

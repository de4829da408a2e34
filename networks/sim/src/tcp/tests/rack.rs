//! Losses found by time: RACK (RFC 8985 §6) and the tail-loss probe (§7), after a round trip of 20 ms.

use super::*;

fn by_time() -> Config {
    let least = Duration::from_millis(200);
    let recovery = Recovery::Sack;
    Config { recovery, min_rto: least, granularity: least, rack: true, tail_loss_probe: true, ..config() }
}

/// Opened at 20 ms.
fn open(config: Config) -> Script {
    let mut s = Script::connect(config);
    s.run_to(20);
    s.inject("S. 0:0(0) ack 1 <mss 1000,sackOK>");
    s.expect(&["0 S 0:0(0) <mss 1000,sackOK>", "20 . 1:1(0) ack 1"]);
    s
}

#[test]
fn a_lone_segment_is_probed_for_when_the_timer_would_expire_and_the_window_stays() {
    // The timeout is 20 + 200 ms, the probe's 2 * 20 + 200.
    let mut s = open(by_time());
    s.write(100);
    s.run_to(300);
    s.expect(&["20 P. 1:101(100) ack 1", "240 P. 1:101(100) ack 1"]);
    assert_eq!((s.c.stats().timeouts, s.c.cwnd()), (0, 4000));
    // No second probe: the timer, which began again with the first.
    s.run_to(500);
    s.expect(&["460 P. 1:101(100) ack 1"]);
    assert_eq!((s.c.stats().timeouts, s.c.cwnd()), (1, 1000));

    let mut s = open(Config { tail_loss_probe: false, ..by_time() });
    s.write(100);
    s.run_to(300);
    s.expect(&["20 P. 1:101(100) ack 1", "240 P. 1:101(100) ack 1"]);
    assert_eq!((s.c.stats().timeouts, s.c.cwnd()), (1, 1000));
}

#[test]
fn a_probe_of_the_last_segment_shows_what_else_is_lost() {
    let mut s = open(by_time());
    s.write(1000);
    s.write(100);
    s.run_to(82);
    s.expect(&["20 P. 1:1001(1000) ack 1", "20 P. 1001:1101(100) ack 1", "62 P. 1001:1101(100) ack 1"]);
    s.inject(". 1:1(0) ack 1 <sack 1001:1101>");
    s.expect(&["82 . 1:1001(1000) ack 1"]);
    s.run_to(102);
    s.inject(". 1:1(0) ack 1101");
    assert_eq!((s.c.stats().timeouts, s.c.stats().fast_retransmits), (0, 1));
    assert_eq!(s.c.poll_timeout(), None);
}

#[test]
fn a_probe_that_repairs_the_only_loss_reduces_the_window_and_one_that_was_not_needed_does_not() {
    // Both acknowledgements came late: the second one reports that the segment had come.
    let mut s = open(by_time());
    s.write(100);
    s.run_to(250);
    s.inject(". 1:1(0) ack 101");
    s.inject(". 1:1(0) ack 101 <sack 1:101>");
    s.write(100);
    s.run_to(270);
    s.inject(". 1:1(0) ack 201");
    assert_eq!(s.c.ssthresh(), u32::MAX);

    let mut s = open(by_time());
    s.write(100);
    s.run_to(260);
    s.inject(". 1:1(0) ack 101");
    s.write(100);
    assert_eq!(s.c.ssthresh(), u32::MAX, "it may still have come twice");
    s.run_to(280);
    s.inject(". 1:1(0) ack 201");
    assert_eq!((s.c.ssthresh(), s.c.cwnd()), (2000, 2000));
}

#[test]
fn a_probe_is_new_data_where_there_is_some() {
    let mut s = open(Config { initial_window: InitialWindow::Segments(1), ..by_time() });
    s.write(2500);
    s.run_to(260);
    s.expect(&["20 . 1:1001(1000) ack 1", "240 . 1001:2001(1000) ack 1"]);
    s.inject(". 1:1(0) ack 2001");
    s.expect(&["260 P. 2001:2501(500) ack 1"]);
    assert_eq!(s.c.ssthresh(), u32::MAX);
}

#[test]
fn a_segment_is_lost_when_a_later_one_came_and_a_quarter_of_the_round_trip_has_passed() {
    let mut s = open(Config { tail_loss_probe: false, ..by_time() });
    s.write(100);
    s.run_to(21);
    s.write(100);
    s.run_to(41);
    s.inject(". 1:1(0) ack 1 <sack 101:201>");
    // Sent at 20, a round trip of 20 and 5 more.
    assert_eq!(s.c.poll_timeout(), Some(ms(45)));
    s.run_to(65);
    s.expect(&["20 P. 1:101(100) ack 1", "21 P. 101:201(100) ack 1", "45 . 1:101(100) ack 1"]);
    s.inject(". 1:1(0) ack 201");
    assert_eq!((s.c.stats().timeouts, s.c.poll_timeout()), (0, None));

    // By the number of duplicates it takes the timer.
    let mut s = open(Config { rack: false, tail_loss_probe: false, ..by_time() });
    s.write(100);
    s.run_to(21);
    s.write(100);
    s.run_to(41);
    s.inject(". 1:1(0) ack 1 <sack 101:201>");
    s.run_to(250);
    s.expect(&["20 P. 1:101(100) ack 1", "21 P. 101:201(100) ack 1", "240 P. 1:201(200) ack 1"]);
}

#[test]
fn a_segment_that_came_in_time_was_only_reordered_and_widens_the_window_for_good() {
    let mut s = open(Config { tail_loss_probe: false, ..by_time() });
    s.write(100);
    s.run_to(21);
    s.write(100);
    s.run_to(41);
    s.inject(". 1:1(0) ack 1 <sack 101:201>");
    s.run_to(43);
    s.inject(". 1:1(0) ack 201");
    s.run_to(50);
    // Three reported segments would else be enough.
    for _ in 0..4 {
        s.write(100);
    }
    s.run_to(70);
    s.inject(". 1:1(0) ack 201 <sack 301:601>");
    assert_eq!(s.c.stats().retransmitted, 0);
    assert_eq!(s.c.poll_timeout(), Some(ms(75)));
}

#[test]
fn a_repair_that_is_lost_is_repaired_again_without_the_timer() {
    let mut s = open(by_time());
    for _ in 0..3 {
        s.write(1000);
    }
    s.run_to(40);
    s.inject(". 1:1(0) ack 1 <sack 1001:3001>");
    s.run_to(50);
    // It was sent again at 45, and what is new after it.
    s.write(1000);
    s.run_to(70);
    s.inject(". 1:1(0) ack 1 <sack 1001:4001>");
    s.expect(&[
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
fn a_window_of_segments_takes_as_many_small_ones_as_full_ones_and_grows_while_it_is_full() {
    let two = Config { initial_window: InitialWindow::Segments(2), ..by_time() };
    let mut s = open(Config { window_unit: WindowUnit::Segments, ..two.clone() });
    for _ in 0..4 {
        s.write(100);
    }
    s.expect(&["20 P. 1:101(100) ack 1", "20 P. 101:201(100) ack 1"]);
    // What waited leaves as one; the window was full and has grown by a segment.
    s.run_to(40);
    s.inject(". 1:1(0) ack 101");
    s.expect(&["40 P. 201:401(200) ack 1"]);
    assert_eq!(s.c.cwnd(), 3000);
    s.run_to(41);
    s.inject(". 1:1(0) ack 401");
    assert_eq!(s.c.cwnd(), 3000, "two of three segments were in flight");

    let mut s = open(two);
    for _ in 0..4 {
        s.write(100);
    }
    assert_eq!(s.sent.len(), 4, "400 bytes of 2000");
}

#[test]
fn a_loss_reduces_a_window_of_segments_and_what_is_lost_waits_for_its_turn() {
    let mut s = open(Config { window_unit: WindowUnit::Segments, ..by_time() });
    for _ in 0..4 {
        s.write(100);
    }
    s.sent.clear();
    s.run_to(40);
    s.inject(". 1:1(0) ack 1 <sack 301:401>");
    s.run_to(45);
    // Of four segments two are kept: one is sent again for each that came, and what is new waits.
    s.write(100);
    s.expect(&["45 . 1:301(300) ack 1", "45 P. 401:501(100) ack 1"]);
    assert_eq!((s.c.ssthresh(), s.c.cwnd()), (2000, 2000));
    s.write(100);
    s.expect(&[]);
    s.run_to(65);
    s.inject(". 1:1(0) ack 401");
    s.expect(&["65 P. 501:601(100) ack 1"]);
}

#[test]
fn after_a_timeout_a_window_of_segments_is_one_however_small_each_is() {
    let one_by_one = Config { window_unit: WindowUnit::Segments, tail_loss_probe: false, ..by_time() };
    let mut s = open(one_by_one);
    for _ in 0..3 {
        s.write(600);
    }
    s.sent.clear();
    s.run_to(240);
    s.expect(&["240 . 1:1001(1000) ack 1"]);
    s.run_to(260);
    s.inject(". 1:1(0) ack 1001");
    s.expect(&["260 P. 1001:1801(800) ack 1"]);
}

#[test]
fn what_is_sent_again_is_filled_up_with_what_follows_and_was_not_reported() {
    for (retransmit_collapse, second) in [
        (true, vec!["45 . 301:501(200) ack 1"]),
        (false, vec!["45 . 301:401(100) ack 1", "45 . 401:501(100) ack 1"]),
    ] {
        let mut s = open(Config { retransmit_collapse, ..by_time() });
        for _ in 0..6 {
            s.write(100);
        }
        s.sent.clear();
        s.run_to(40);
        s.inject(". 1:1(0) ack 1 <sack 201:301>");
        s.inject(". 1:1(0) ack 1 <sack 501:601,sack 201:301>");
        s.run_to(45);
        let mut all = vec!["45 . 1:201(200) ack 1"];
        all.extend(second);
        s.expect(&all);
        s.run_to(65);
        s.inject(". 1:1(0) ack 601");
        assert_eq!(s.c.poll_timeout(), None);
    }
}

#[test]
fn what_is_lost_again_has_the_timers_whole_time_where_sending_it_restarts_it() {
    for (fast_retransmit_restarts, timeout) in [(true, 260), (false, 240)] {
        let mut s = open(Config { fast_retransmit_restarts, tail_loss_probe: false, ..by_time() });
        for _ in 0..4 {
            s.write(1000);
        }
        s.sent.clear();
        s.run_to(40);
        s.inject(". 1:1(0) ack 1 <sack 1001:4001>");
        s.expect(&["40 . 1:1001(1000) ack 1"]);
        assert_eq!(s.c.poll_timeout(), Some(ms(timeout)));
    }
}

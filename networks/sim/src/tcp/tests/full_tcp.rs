//! ns-2's FullTcp as a sender. What the tests expect was worked out by hand from tcp-full.cc; `tests/ns2` of the repository holds
//! whole transfers and dialogues beside ns-2.

use super::*;

/// So many segments to begin with, and the settings of ns-2's preset that these tests see.
fn full(recovery: Recovery, segments: u32) -> Script {
    let config = Config {
        recovery,
        loss_recovery: LossRecovery::Ns2,
        reno_recover: true,
        fast_retransmit_restarts: true,
        deliver_first: true,
        delayed_ack: None,
        initial_window: InitialWindow::Segments(segments),
        ..config()
    };
    Script::open_to(config, "S. 0:0(0) ack 1 <mss 1000,sackOK>")
}

#[test]
fn after_a_timeout_three_duplicates_send_nothing_and_the_window_stays() {
    let mut s = full(Recovery::Sack, 8);
    s.write(12_000);
    s.run_to(1000);
    s.expect(&[
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
        s.inject(&format!(". 1:1(0) ack 1 <sack 2001:{end}>"));
    }
    // Acknowledgements below what had been sent before the timeout do not open the window, and each lets a segment go.
    s.inject(". 1:1(0) ack 1001 <sack 2001:5001>");
    s.inject(". 1:1(0) ack 5001");
    s.expect(&["1000 . 1001:2001(1000) ack 1", "1000 . 5001:6001(1000) ack 1"]);
    assert_eq!((s.c.cwnd(), s.c.stats().fast_retransmits), (1000, 0));
    s.inject(". 1:1(0) ack 8001");
    assert_eq!(s.c.cwnd(), 2000);
}

#[test]
fn a_recovery_with_sack_has_half_the_window_though_that_is_less_than_the_threshold() {
    let mut s = full(Recovery::Sack, 3);
    s.write(10_000);
    s.sent.clear();
    for end in [2001, 3001] {
        s.inject(&format!(". 1:1(0) ack 1 <sack 1001:{end}>"));
    }
    s.inject(". 1:1(0) ack 1");
    // Half of three: one segment may be under way, which one is, and the threshold is two.
    assert_eq!((s.c.cwnd(), s.c.ssthresh(), s.c.stats().fast_retransmits), (1500, 2000, 1));
    s.expect(&["0 . 1:1001(1000) ack 1"]);
    s.inject(". 1:1(0) ack 3001");
    // 1.5 segments; below the threshold an acknowledgement opens it by one.
    assert_eq!(s.c.cwnd(), 2500);
    s.expect(&["0 . 3001:4001(1000) ack 1", "0 . 4001:5001(1000) ack 1"]);
}

#[test]
fn nothing_leaves_with_a_fast_retransmission_until_something_comes() {
    let mut s = full(Recovery::Reno, 4);
    s.write(20_000);
    s.sent.clear();
    for _ in 0..3 {
        s.inject(". 1:1(0) ack 1");
    }
    // Two segments and one for each duplicate: the fifth could leave now.
    assert_eq!(s.c.cwnd(), 5000);
    s.expect(&["0 . 1:1001(1000) ack 1"]);
    s.inject(". 1:1(0) ack 1");
    s.expect(&["0 . 4001:5001(1000) ack 1", "0 . 5001:6001(1000) ack 1"]);
    // A second loss of the same window is repaired as the first, since no timeout was between.
    s.inject(". 1:1(0) ack 2001");
    s.sent.clear();
    for _ in 0..3 {
        s.inject(". 1:1(0) ack 2001");
    }
    s.expect(&["0 . 2001:3001(1000) ack 1"]);
    assert_eq!(s.c.stats().fast_retransmits, 2);
}

#[test]
fn a_partial_acknowledgement_sends_again_at_once_and_two_more_at_most() {
    let mut s = full(Recovery::NewReno, 8);
    s.write(20_000);
    s.sent.clear();
    for _ in 0..8 {
        s.inject(". 1:1(0) ack 1");
    }
    // 4 + 3 segments, and one more for each of five duplicates: twelve, of which eight are there already.
    s.expect(&[
        "0 . 1:1001(1000) ack 1",
        "0 . 8001:9001(1000) ack 1",
        "0 . 9001:10001(1000) ack 1",
        "0 . 10001:11001(1000) ack 1",
        "0 . 11001:12001(1000) ack 1",
    ]);
    s.inject(". 1:1(0) ack 5001");
    s.expect(&["0 . 5001:6001(1000) ack 1"]);
    // What had been sent by then is to be acknowledged now. The data that comes with the next is not acknowledged at once; of a window
    // of four segments, two more may leave at a time.
    s.feed("P. 1:101(100) ack 11001");
    s.c.all_delivered();
    s.flush();
    s.expect(&[
        "0 . 11001:12001(1000) ack 1",
        "0 . 12001:13001(1000) ack 101",
        "0 . 13001:14001(1000) ack 101",
    ]);
}

#[test]
fn a_filled_gap_is_acknowledged_once_more_after_what_is_answered() {
    let mut s = full(Recovery::Sack, 8);
    s.inject("P. 201:301(100) ack 1");
    s.c.all_delivered();
    s.flush();
    s.expect(&["0 . 1:1(0) ack 1 <sack 201:301>"]);
    s.feed("P. 1:201(200) ack 1");
    s.write(50);
    s.c.all_delivered();
    s.flush();
    s.expect(&["0 P. 1:51(50) ack 301", "0 . 51:51(0) ack 301"]);
}

#[test]
fn a_block_that_grows_keeps_its_place_and_three_are_told() {
    let mut s = full(Recovery::Sack, 8);
    for start in [1001, 3001, 5001, 7001, 2001] {
        s.feed(&format!(". {start}:{}(1000) ack 1", start + 1000));
        s.c.all_delivered();
        s.flush();
    }
    // The last joins the first two to one block, which stays the oldest.
    let [.., four, three] = s.sent.as_slice() else { panic!("{:?}", s.sent) };
    assert_eq!(four, "0 . 1:1(0) ack 1 <sack 7001:8001,sack 5001:6001,sack 3001:4001>");
    assert_eq!(three, "0 . 1:1(0) ack 1 <sack 7001:8001,sack 5001:6001,sack 1001:4001>");
}

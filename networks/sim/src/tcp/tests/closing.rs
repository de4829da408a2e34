//! The ways out: FIN and RST in every state (RFC 9293 §3.6, RFC 5961).

use super::*;

/// A connection in each state that knows its peer, with the peer's next sequence number.
fn every_state() -> Vec<(Script, State, u32)> {
    let open = || Script::open(Config { challenge_ack_interval: Duration::ZERO, ..config() });
    let closing = |lines: &[&str]| {
        let mut s = open();
        s.shutdown();
        lines.iter().for_each(|l| s.inject(l));
        s
    };
    let closed_by_peer = || {
        let mut s = open();
        s.inject("F. 1:1(0) ack 1");
        s
    };
    let mut last_ack = closed_by_peer();
    last_ack.shutdown();
    let mut all = vec![
        (Script::accept(config(), "S 0:0(0)"), State::SynReceived, 1),
        (open(), State::Established, 1),
        (closing(&[]), State::FinWait1, 1),
        (closing(&[". 1:1(0) ack 2"]), State::FinWait2, 1),
        (closing(&["F. 1:1(0) ack 1"]), State::Closing, 2),
        (closing(&["F. 1:1(0) ack 2"]), State::TimeWait, 2),
        (closed_by_peer(), State::CloseWait, 2),
        (last_ack, State::LastAck, 2),
    ];
    for (s, state, _) in &mut all {
        assert_eq!(s.c.state(), *state);
        s.sent.clear();
        s.said.clear();
    }
    all
}

#[test]
fn the_first_to_close_waits_for_strays() {
    let mut s = Script::open(config());
    s.write(100);
    s.shutdown();
    s.expect(&["0 P. 1:101(100) ack 1", "0 F. 101:101(0) ack 1"]);
    s.inject(". 1:1(0) ack 102");
    assert_eq!(s.c.state(), State::FinWait2);
    assert_eq!(s.c.poll_timeout(), None);
    s.inject("P. 1:51(50) ack 102");
    s.run_to(300);
    s.inject("F. 51:51(0) ack 102");
    s.hear(&["data 50", "peer closed", "closed Closed"]);
    s.expect(&["200 . 102:102(0) ack 51", "300 . 102:102(0) ack 52"]);
    s.run_to(900);
    s.inject("F. 51:51(0) ack 102");
    s.expect(&["900 . 102:102(0) ack 52"]);
    s.run_to(1899);
    assert_eq!(s.c.state(), State::TimeWait, "the wait began anew");
    s.run_to(1900);
    assert!(s.c.is_closed());
    s.hear(&[]);
}

#[test]
fn the_second_to_close_is_closed_by_the_last_acknowledgement() {
    let mut s = Script::open(config());
    s.inject("F. 1:1(0) ack 1");
    s.hear(&["peer closed"]);
    s.write(100);
    s.shutdown();
    s.expect(&["0 . 1:1(0) ack 2", "0 P. 1:101(100) ack 2", "0 F. 101:101(0) ack 2"]);
    s.inject(". 2:2(0) ack 101");
    assert_eq!(s.c.state(), State::LastAck);
    s.inject(". 2:2(0) ack 102");
    s.closed_for(CloseReason::Closed);
}

#[test]
fn both_may_close_at_once() {
    let mut s = Script::open(config());
    s.shutdown();
    s.inject("F. 1:1(0) ack 1");
    s.expect(&["0 F. 1:1(0) ack 1", "0 . 2:2(0) ack 2"]);
    assert_eq!(s.c.state(), State::Closing);
    s.inject(". 2:2(0) ack 2");
    assert_eq!(s.c.state(), State::TimeWait);
    s.hear(&["peer closed", "closed Closed"]);
}

#[test]
fn a_fin_rides_on_the_last_data_and_on_the_acknowledgement_of_theirs() {
    let mut s = Script::open(config());
    s.feed("F. 1:1(0) ack 1");
    s.c.write(Data::Count(10)).unwrap();
    s.shutdown();
    s.expect(&["0 FP. 1:11(10) ack 2"]);
    assert_eq!(s.c.state(), State::LastAck);
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut s = Script::open(config());
    s.write(100);
    s.shutdown();
    s.inject(". 1:1(0) ack 101");
    s.run_to(3000);
    s.expect(&[
        "0 P. 1:101(100) ack 1",
        "0 F. 101:101(0) ack 1",
        "1000 F. 101:101(0) ack 1",
        "3000 F. 101:101(0) ack 1",
    ]);
    let mut s = Script::open(config());
    s.write(100);
    s.shutdown();
    s.run_to(1000);
    s.inject(". 1:1(0) ack 102");
    s.expect(&["0 P. 1:101(100) ack 1", "0 F. 101:101(0) ack 1", "1000 FP. 1:101(100) ack 1"]);
    assert_eq!(s.c.state(), State::FinWait2);
}

#[test]
fn a_fin_beyond_a_gap_waits_for_it() {
    let mut s = Script::open(config());
    s.inject("F. 101:101(0) ack 1");
    assert_eq!(s.c.state(), State::Established);
    s.inject("P. 1:101(100) ack 1");
    s.hear(&["data 100", "peer closed"]);
    s.expect(&["0 . 1:1(0) ack 1", "0 . 1:1(0) ack 102"]);
}

#[test]
fn closing_before_the_connection_is_up() {
    let mut s = Script::connect(config());
    s.shutdown();
    assert!(s.c.is_closed());
    let mut s = Script::accept(config(), "S 0:0(0)");
    s.shutdown();
    s.inject(". 1:1(0) ack 1");
    s.expect(&["0 S. 0:0(0) ack 1 <mss 1000>", "0 F. 1:1(0) ack 1"]);
    assert_eq!(s.c.state(), State::FinWait1);
}

#[test]
fn nothing_is_written_after_the_end() {
    let mut s = Script::open(config());
    s.shutdown();
    assert!(s.c.write(Data::Count(1)).is_err());
    s.shutdown();
    s.expect(&["0 F. 1:1(0) ack 1"]);
    s.c.abort();
    assert!(s.c.write(Data::Count(1)).is_err());
}

#[test]
fn an_exact_reset_ends_every_state() {
    for (mut s, state, next) in every_state() {
        s.inject(&format!("R {next}:0(0)"));
        s.expect(&[]);
        match state {
            State::TimeWait => assert!(s.c.is_closed() && s.said.is_empty()),
            _ => s.closed_for(CloseReason::Reset),
        }
    }
}

#[test]
fn a_reset_within_the_window_is_challenged_and_one_outside_ignored() {
    for (mut s, state, next) in every_state() {
        s.inject(&format!("R {}:0(0)", next + 60_000));
        let challenges = s.sent.len();
        s.inject(&format!("R {}:0(0)", next + 70_000));
        assert_eq!((challenges, s.sent.len(), s.c.state()), (1, 1, state));
        assert!(s.sent[0].starts_with("0 . "), "{:?}", s.sent);
    }
}

#[test]
fn a_syn_is_challenged_in_every_state_and_not_too_often() {
    // A listener's SYN-RECEIVED goes back to LISTEN instead.
    for (mut s, state, next) in every_state().into_iter().skip(1) {
        s.inject(&format!("S {}:0(0)", next + 100));
        assert_eq!((s.sent.len(), s.c.state(), s.c.stats().challenge_acks), (1, state, 1));
    }
    let mut s = Script::open(config());
    for _ in 0..3 {
        s.inject("S 77:0(0)");
    }
    s.run_to(500);
    s.inject("S 77:0(0)");
    s.expect(&["0 . 1:1(0) ack 1", "500 . 1:1(0) ack 1"]);
}

#[test]
fn a_segment_without_acknowledgement_is_dropped_in_every_state() {
    for (mut s, state, next) in every_state() {
        s.inject(&format!("P {next}:0(10)"));
        assert_eq!((s.c.state(), s.c.stats().malformed), (state, 1));
        s.hear(&[]);
    }
}

#[test]
fn aborting_resets_where_the_peer_knows_of_us() {
    for (mut s, state, _) in every_state() {
        s.c.abort();
        s.flush();
        // RFC 9293 section 3.10.5: where both sides have closed, there is nothing to reset.
        let closed = matches!(state, State::Closing | State::LastAck | State::TimeWait);
        let expected = usize::from(!closed);
        assert_eq!((s.sent.len(), s.c.is_closed()), (expected, true), "{state:?}");
        s.listen();
        s.hear(&[]);
    }
    let mut s = Script::connect(config());
    s.sent.clear();
    s.c.abort();
    s.flush();
    s.expect(&[]);
}

#[test]
fn a_closed_connection_resets_what_still_comes() {
    let mut s = Script::open(config());
    s.c.abort();
    s.flush();
    s.inject(". 1:1(0) ack 1");
    s.inject("S 5:0(0)");
    s.inject("R 5:0(0)");
    s.expect(&["0 R. 1:1(0) ack 1 win 0", "0 R 1:1(0) win 0", "0 R. 0:0(0) ack 6 win 0"]);
}

#[test]
fn data_after_their_fin_is_not_taken() {
    let mut s = Script::open(config());
    s.inject("F. 1:1(0) ack 1");
    s.inject("P. 2:12(10) ack 1");
    s.hear(&["peer closed"]);
}

#[test]
fn a_fin_is_taken_while_the_window_is_closed() {
    let mut s = Script::connect(Config { receive_buffer: 1000, delayed_ack: None, ..config() });
    s.inject("S. 0:0(0) ack 1 <mss 1000>");
    s.c.set_auto_read(false);
    s.sent.clear();
    s.inject(". 1:1001(1000) ack 1");
    s.inject("F. 1001:1001(0) ack 1");
    s.expect(&["0 . 1:1(0) ack 1001 win 0", "0 . 1:1(0) ack 1002 win 0"]);
    assert_eq!(s.c.state(), State::CloseWait);
}

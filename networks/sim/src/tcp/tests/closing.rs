//! Ends of a connection: FIN and RST in every state (RFC 9293 §3.6, RFC 5961).

use super::*;

/// A connection in each synchronized state, with the peer's next sequence number.
fn every_state() -> Vec<(ScriptedConnection, TcpState, u32)> {
    let open = || {
        ScriptedConnection::established(TcpConfig { challenge_ack_interval: Duration::ZERO, ..test_config() })
    };
    let closing = |lines: &[&str]| {
        let mut s = open();
        s.shutdown();
        lines.iter().for_each(|l| s.inject_segment(l));
        s
    };
    let closed_by_peer = || {
        let mut s = open();
        s.inject_segment("F. 1:1(0) ack 1");
        s
    };
    let mut last_ack = closed_by_peer();
    last_ack.shutdown();
    let mut all = vec![
        (ScriptedConnection::accept(test_config(), "S 0:0(0)"), TcpState::SynReceived, 1),
        (open(), TcpState::Established, 1),
        (closing(&[]), TcpState::FinWait1, 1),
        (closing(&[". 1:1(0) ack 2"]), TcpState::FinWait2, 1),
        (closing(&["F. 1:1(0) ack 1"]), TcpState::Closing, 2),
        (closing(&["F. 1:1(0) ack 2"]), TcpState::TimeWait, 2),
        (closed_by_peer(), TcpState::CloseWait, 2),
        (last_ack, TcpState::LastAck, 2),
    ];
    for (s, state, _) in &mut all {
        assert_eq!(s.c.state(), *state);
        s.sent.clear();
        s.event_lines.clear();
    }
    all
}

#[test]
fn the_first_to_close_waits_for_strays() {
    let mut s = ScriptedConnection::established(test_config());
    s.write(100);
    s.shutdown();
    s.expect_sent(&["0 P. 1:101(100) ack 1", "0 F. 101:101(0) ack 1"]);
    s.inject_segment(". 1:1(0) ack 102");
    assert_eq!(s.c.state(), TcpState::FinWait2);
    assert_eq!(s.c.poll_timeout(), None);
    s.inject_segment("P. 1:51(50) ack 102");
    s.run_to(300);
    s.inject_segment("F. 51:51(0) ack 102");
    s.expect_events(&["data 50", "peer closed", "closed Closed"]);
    s.expect_sent(&["200 . 102:102(0) ack 51", "300 . 102:102(0) ack 52"]);
    s.run_to(900);
    s.inject_segment("F. 51:51(0) ack 102");
    s.expect_sent(&["900 . 102:102(0) ack 52"]);
    s.run_to(1899);
    assert_eq!(s.c.state(), TcpState::TimeWait, "the wait began anew");
    s.run_to(1900);
    assert!(s.c.is_closed());
    s.expect_events(&[]);
}

#[test]
fn the_second_to_close_is_closed_by_the_last_acknowledgement() {
    let mut s = ScriptedConnection::established(test_config());
    s.inject_segment("F. 1:1(0) ack 1");
    s.expect_events(&["peer closed"]);
    s.write(100);
    s.shutdown();
    s.expect_sent(&["0 . 1:1(0) ack 2", "0 P. 1:101(100) ack 2", "0 F. 101:101(0) ack 2"]);
    s.inject_segment(". 2:2(0) ack 101");
    assert_eq!(s.c.state(), TcpState::LastAck);
    s.inject_segment(". 2:2(0) ack 102");
    s.closed_for(CloseReason::Closed);
}

#[test]
fn both_may_close_at_once() {
    let mut s = ScriptedConnection::established(test_config());
    s.shutdown();
    s.inject_segment("F. 1:1(0) ack 1");
    s.expect_sent(&["0 F. 1:1(0) ack 1", "0 . 2:2(0) ack 2"]);
    assert_eq!(s.c.state(), TcpState::Closing);
    s.inject_segment(". 2:2(0) ack 2");
    assert_eq!(s.c.state(), TcpState::TimeWait);
    s.expect_events(&["peer closed", "closed Closed"]);
}

#[test]
fn a_fin_rides_on_the_last_data_and_on_the_ack_of_the_peers_fin() {
    let mut s = ScriptedConnection::established(test_config());
    s.feed_segment("F. 1:1(0) ack 1");
    s.c.write(StreamData::Count(10)).unwrap();
    s.shutdown();
    s.expect_sent(&["0 FP. 1:11(10) ack 2"]);
    assert_eq!(s.c.state(), TcpState::LastAck);
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut s = ScriptedConnection::established(test_config());
    s.write(100);
    s.shutdown();
    s.inject_segment(". 1:1(0) ack 101");
    s.run_to(3000);
    s.expect_sent(&[
        "0 P. 1:101(100) ack 1",
        "0 F. 101:101(0) ack 1",
        "1000 F. 101:101(0) ack 1",
        "3000 F. 101:101(0) ack 1",
    ]);
    let mut s = ScriptedConnection::established(test_config());
    s.write(100);
    s.shutdown();
    s.run_to(1000);
    s.inject_segment(". 1:1(0) ack 102");
    s.expect_sent(&["0 P. 1:101(100) ack 1", "0 F. 101:101(0) ack 1", "1000 FP. 1:101(100) ack 1"]);
    assert_eq!(s.c.state(), TcpState::FinWait2);
}

#[test]
fn a_fin_beyond_a_gap_waits_for_it() {
    let mut s = ScriptedConnection::established(test_config());
    s.inject_segment("F. 101:101(0) ack 1");
    assert_eq!(s.c.state(), TcpState::Established);
    s.inject_segment("P. 1:101(100) ack 1");
    s.expect_events(&["data 100", "peer closed"]);
    s.expect_sent(&["0 . 1:1(0) ack 1", "0 . 1:1(0) ack 102"]);
}

#[test]
fn closing_before_the_connection_is_up() {
    let mut s = ScriptedConnection::connect(test_config());
    s.shutdown();
    assert!(s.c.is_closed());
    let mut s = ScriptedConnection::accept(test_config(), "S 0:0(0)");
    s.shutdown();
    s.inject_segment(". 1:1(0) ack 1");
    s.expect_sent(&["0 S. 0:0(0) ack 1 <mss 1000>", "0 F. 1:1(0) ack 1"]);
    assert_eq!(s.c.state(), TcpState::FinWait1);
}

#[test]
fn nothing_is_written_after_the_end() {
    let mut s = ScriptedConnection::established(test_config());
    s.shutdown();
    assert!(s.c.write(StreamData::Count(1)).is_err());
    s.shutdown();
    s.expect_sent(&["0 F. 1:1(0) ack 1"]);
    s.c.abort();
    assert!(s.c.write(StreamData::Count(1)).is_err());
}

#[test]
fn an_exact_reset_ends_every_state() {
    for (mut s, state, next) in every_state() {
        s.inject_segment(&format!("R {next}:0(0)"));
        s.expect_sent(&[]);
        match state {
            TcpState::TimeWait => assert!(s.c.is_closed() && s.event_lines.is_empty()),
            _ => s.closed_for(CloseReason::Reset),
        }
    }
}

#[test]
fn a_reset_in_the_window_is_challenged_and_one_outside_ignored() {
    for (mut s, state, next) in every_state() {
        s.inject_segment(&format!("R {}:0(0)", next + 60_000));
        let challenges = s.sent.len();
        s.inject_segment(&format!("R {}:0(0)", next + 70_000));
        assert_eq!((challenges, s.sent.len(), s.c.state()), (1, 1, state));
        assert!(s.sent[0].starts_with("0 . "), "{:?}", s.sent);
    }
}

#[test]
fn a_syn_is_challenged_in_every_state_and_not_too_often() {
    // A listener's SYN-RECEIVED goes back to LISTEN instead.
    for (mut s, state, next) in every_state().into_iter().skip(1) {
        s.inject_segment(&format!("S {}:0(0)", next + 100));
        assert_eq!((s.sent.len(), s.c.state(), s.c.stats().challenge_acks), (1, state, 1));
    }
    let mut s = ScriptedConnection::established(test_config());
    for _ in 0..3 {
        s.inject_segment("S 77:0(0)");
    }
    s.run_to(500);
    s.inject_segment("S 77:0(0)");
    s.expect_sent(&["0 . 1:1(0) ack 1", "500 . 1:1(0) ack 1"]);
}

#[test]
fn a_segment_without_acknowledgement_is_dropped_in_every_state() {
    for (mut s, state, next) in every_state() {
        s.inject_segment(&format!("P {next}:0(10)"));
        assert_eq!((s.c.state(), s.c.stats().malformed), (state, 1));
        s.expect_events(&[]);
    }
}

#[test]
fn aborting_resets_where_the_peer_knows_of_us() {
    for (mut s, state, _) in every_state() {
        s.c.abort();
        s.collect_output();
        // RFC 9293 section 3.10.5: after both ends closed, no RST is sent.
        let closed = matches!(state, TcpState::Closing | TcpState::LastAck | TcpState::TimeWait);
        let expected = usize::from(!closed);
        assert_eq!((s.sent.len(), s.c.is_closed()), (expected, true), "{state:?}");
        s.collect_events();
        s.expect_events(&[]);
    }
    let mut s = ScriptedConnection::connect(test_config());
    s.sent.clear();
    s.c.abort();
    s.collect_output();
    s.expect_sent(&[]);
}

#[test]
fn a_closed_connection_resets_what_still_comes() {
    let mut s = ScriptedConnection::established(test_config());
    s.c.abort();
    s.collect_output();
    s.inject_segment(". 1:1(0) ack 1");
    s.inject_segment("S 5:0(0)");
    s.inject_segment("R 5:0(0)");
    s.expect_sent(&["0 R. 1:1(0) ack 1 win 0", "0 R 1:1(0) win 0", "0 R. 0:0(0) ack 6 win 0"]);
}

#[test]
fn data_after_their_fin_is_not_taken() {
    let mut s = ScriptedConnection::established(test_config());
    s.inject_segment("F. 1:1(0) ack 1");
    s.inject_segment("P. 2:12(10) ack 1");
    s.expect_events(&["peer closed"]);
}

#[test]
fn a_fin_is_taken_while_the_window_is_closed() {
    let mut s =
        ScriptedConnection::connect(TcpConfig { receive_buffer: 1000, delayed_ack: None, ..test_config() });
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
    s.c.set_auto_read(false);
    s.sent.clear();
    s.inject_segment(". 1:1001(1000) ack 1");
    s.inject_segment("F. 1001:1001(0) ack 1");
    s.expect_sent(&["0 . 1:1(0) ack 1001 win 0", "0 . 1:1(0) ack 1002 win 0"]);
    assert_eq!(s.c.state(), TcpState::CloseWait);
}

//! Connection opening (RFC 9293 §3.5) and negotiated options.

use super::*;

#[test]
fn an_active_open_takes_three_segments() {
    let mut s = ScriptedConnection::connect(test_config());
    s.expect_sent(&["0 S 0:0(0) <mss 1000>"]);
    s.run_to(50);
    s.inject_segment("S. 0:0(0) ack 1 <mss 1460>");
    s.expect_sent(&["50 . 1:1(0) ack 1"]);
    s.expect_events(&["connected"]);
    assert_eq!((s.c.state(), s.c.mss(), s.c.cwnd()), (TcpState::Established, 1000, 4000));
    assert_eq!(s.c.srtt(), Some(Duration::from_millis(50)));
    assert_eq!(s.c.poll_timeout(), None);
}

#[test]
fn a_passive_open_is_established_by_the_acknowledgement() {
    let mut s = ScriptedConnection::accept(test_config(), "S 0:0(0) <mss 700>");
    s.expect_sent(&["0 S. 0:0(0) ack 1 <mss 1000>"]);
    s.expect_events(&[]);
    s.run_to(30);
    s.inject_segment(". 1:1(0) ack 1");
    s.expect_sent(&[]);
    s.expect_events(&["connected"]);
    assert_eq!((s.c.mss(), s.c.srtt()), (700, Some(Duration::from_millis(30))));
}

#[test]
fn data_may_ride_on_the_third_segment() {
    let mut s = ScriptedConnection::connect(test_config());
    s.write(200);
    s.expect_sent(&["0 S 0:0(0) <mss 1000>"]);
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
    s.expect_sent(&["0 P. 1:201(200) ack 1"]);
    let mut s = ScriptedConnection::accept(test_config(), "S 0:0(0)");
    s.inject_segment("P. 1:201(200) ack 1");
    s.expect_events(&["connected", "data 200"]);
    assert_eq!(s.c.mss(), 536, "what is assumed without the option");
}

#[test]
fn data_on_the_syn_ack_is_taken() {
    let mut s = ScriptedConnection::connect(test_config());
    s.inject_segment("S. 0:0(10) ack 1 <mss 1000>");
    s.expect_events(&["connected", "data 10"]);
    s.expect_sent(&["0 S 0:0(0) <mss 1000>", "0 . 1:1(0) ack 11"]);
}

#[test]
fn both_may_open_at_once() {
    let mut s = ScriptedConnection::connect(test_config());
    s.inject_segment("S 0:0(0) <mss 1000>");
    assert_eq!(s.c.state(), TcpState::SynReceived);
    s.expect_sent(&["0 S 0:0(0) <mss 1000>", "0 S. 0:0(0) ack 1 <mss 1000>"]);
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
    s.expect_events(&["connected"]);
    assert_eq!(s.c.state(), TcpState::Established);
}

#[test]
fn a_lost_syn_is_retried_with_doubled_waits_and_then_given_up() {
    let mut s = ScriptedConnection::connect(TcpConfig { max_syn_retransmissions: Some(2), ..test_config() });
    s.run_to(10_000);
    s.expect_sent(&["0 S 0:0(0) <mss 1000>", "1000 S 0:0(0) <mss 1000>", "3000 S 0:0(0) <mss 1000>"]);
    s.closed_for(CloseReason::TimedOut);
    assert_eq!((s.c.stats().timeouts, s.c.stats().retransmitted), (3, 2));
}

#[test]
fn a_lost_syn_sets_a_one_segment_window_and_a_3_second_timeout() {
    let mut s = ScriptedConnection::connect(test_config());
    s.run_to(1100);
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
    assert_eq!((s.c.cwnd(), s.c.rto(), s.c.srtt()), (1000, Duration::from_secs(3), None));
}

#[test]
fn a_lost_syn_ack_comes_again_by_timer_or_when_asked() {
    let mut s = ScriptedConnection::accept(test_config(), "S 0:0(0) <mss 1000>");
    s.run_to(500);
    s.inject_segment("S 0:0(0) <mss 1000>");
    s.run_to(1500);
    let syn_ack = "S. 0:0(0) ack 1 <mss 1000>";
    s.expect_sent(&[&format!("0 {syn_ack}"), &format!("500 {syn_ack}"), &format!("1000 {syn_ack}")]);
    s.inject_segment(". 1:1(0) ack 1");
    assert_eq!((s.c.state(), s.c.srtt(), s.c.cwnd()), (TcpState::Established, None, 1000));
}

#[test]
fn a_repeated_syn_ack_is_acknowledged_again() {
    let mut s = ScriptedConnection::established(test_config());
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
    s.expect_sent(&["0 . 1:1(0) ack 1"]);
    assert_eq!(s.c.state(), TcpState::Established);
}

#[test]
fn a_refusal_must_acknowledge_our_syn() {
    let mut s = ScriptedConnection::connect(test_config());
    s.inject_segment("R 0:0(0)");
    s.inject_segment("R. 0:0(0) ack 7");
    assert_eq!(s.c.state(), TcpState::SynSent);
    s.inject_segment("R. 0:0(0) ack 1");
    s.closed_for(CloseReason::Refused);
}

#[test]
fn an_old_acknowledgement_in_syn_sent_is_reset() {
    let mut s = ScriptedConnection::connect(test_config());
    s.inject_segment("S. 70:70(0) ack 9 <mss 1000>");
    s.expect_sent(&["0 S 0:0(0) <mss 1000>", "0 R 9:9(0) win 0"]);
    s.inject_segment(". 70:70(0) ack 1");
    assert_eq!(s.c.state(), TcpState::SynSent);
}

#[test]
fn syn_received_resets_a_wrong_ack_and_ends_on_a_reset() {
    let mut s = ScriptedConnection::accept(test_config(), "S 0:0(0) <mss 1000>");
    s.inject_segment(". 1:1(0) ack 5");
    s.expect_sent(&["0 S. 0:0(0) ack 1 <mss 1000>", "0 R 5:5(0) win 0"]);
    s.inject_segment("R 1:1(0)");
    s.closed_for(CloseReason::Reset);
}

#[test]
fn only_a_plain_syn_is_accepted() {
    for text in ["S. 0:0(0) ack 1", ". 0:0(0) ack 1", "R 0:0(0)", "SR 0:0(0)"] {
        assert!(
            TcpConnection::accept(Arc::new(test_config()), 0, &parse_segment(text), at_millis(0)).is_none(),
            "{text}"
        );
    }
    let c =
        TcpConnection::accept(Arc::new(test_config()), 0, &parse_segment("S 0:0(9)"), at_millis(0)).unwrap();
    assert_eq!(c.bytes_unread(), 0, "data on a SYN waits for the handshake");
}

#[test]
fn options_hold_only_where_both_sides_want_them() {
    let all = || TcpConfig {
        window_scale: Some(7),
        timestamps: true,
        recovery: LossRecoveryAlgorithm::Sack,
        ..test_config()
    };
    let mut s = ScriptedConnection::connect(all());
    s.expect_sent(&["0 S 0:0(0) <mss 1000,wscale 7,sackOK,ts 0:0>"]);
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
    s.write(2000);
    s.expect_sent(&["0 . 1:1(0) ack 1", "0 . 1:1001(1000) ack 1", "0 P. 1001:2001(1000) ack 1"]);

    let mut s = ScriptedConnection::accept(all(), "S 0:0(0) <mss 1000>");
    s.expect_sent(&["0 S. 0:0(0) ack 1 <mss 1000>"]);
    let mut s = ScriptedConnection::accept(test_config(), "S 0:0(0) <mss 1000,wscale 7,sackOK,ts 5:0>");
    s.expect_sent(&["0 S. 0:0(0) ack 1 <mss 1000>"]);
    let mut s = ScriptedConnection::accept(all(), "S 0:0(0) <mss 1000,wscale 2,sackOK,ts 5:0>");
    s.expect_sent(&["0 S. 0:0(0) ack 1 <mss 1000,wscale 7,sackOK,ts 0:5>"]);
    assert_eq!(s.c.mss(), 988, "timestamps take twelve bytes of each segment");
}

#[test]
fn windows_are_scaled_after_the_handshake_only() {
    let wide = TcpConfig { window_scale: Some(3), receive_buffer: 80_000, ..test_config() };
    let mut s = ScriptedConnection::connect(wide);
    s.inject_segment("S. 0:0(0) ack 1 win 5000 <mss 1000,wscale 4>");
    s.expect_sent(&["0 S 0:0(0) <mss 1000,wscale 3>", "0 . 1:1(0) ack 1 win 10000"]);
    assert_eq!(s.c.peer_window(), 5000);
    s.inject_segment("P. 1:11(10) ack 1 win 5000");
    assert_eq!(s.c.peer_window(), 80_000);
}

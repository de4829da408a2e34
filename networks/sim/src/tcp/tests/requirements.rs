//! Single sentences of the RFCs, each by a trace that failed before it was implemented.

use super::*;

#[test]
fn data_on_a_syn_that_crosses_ours_is_kept() {
    let mut s = ScriptedConnection::connect(test_config());
    s.inject_segment("S 0:0(3) <mss 1000>");
    // RFC 9293 section 3.10.7.3: RCV.NXT lies behind the SYN, and the text is queued until we are ESTABLISHED.
    s.expect_sent(&["0 S 0:0(0) <mss 1000>", "0 S. 0:0(0) ack 1 <mss 1000>"]);
    s.expect_events(&[]);
    s.inject_segment(". 4:4(0) ack 1");
    s.expect_events(&["connected", "data 3"]);
    s.run_to(200);
    s.expect_sent(&["200 . 1:1(0) ack 4"]);
    // The peer may retransmit it instead.
    let mut s = ScriptedConnection::connect(test_config());
    s.inject_segment("S 0:0(3) <mss 1000>");
    s.inject_segment("S. 0:0(3) ack 1 <mss 1000>");
    s.expect_events(&["connected", "data 3"]);
    assert_eq!(s.c.stats().duplicate_data, 1);
}

#[test]
fn syn_data_of_a_passive_open_is_kept_up_to_the_window() {
    let mut s =
        ScriptedConnection::accept(TcpConfig { receive_buffer: 8, ..test_config() }, "SF 0:0(10) <mss 1000>");
    s.inject_segment("S 0:0(10) <mss 1000>");
    s.expect_sent(&["0 S. 0:0(0) ack 1 win 8 <mss 1000>", "0 S. 0:0(0) ack 1 win 8 <mss 1000>"]);
    s.expect_events(&[]);
    s.inject_segment(". 1:1(0) ack 1");
    s.expect_events(&["connected", "data 8"]);
    assert_eq!((s.c.state(), s.c.bytes_unread()), (TcpState::Established, 0));
}

#[test]
fn bytes_on_a_syn_are_the_bytes_that_are_read() {
    let mut syn = parse_segment("S 0:0(3) <mss 1000>");
    syn.payload = Some(Arc::from(*b"abc"));
    let mut c = TcpConnection::accept(Arc::new(test_config()), 0, &syn, at_millis(0)).unwrap();
    assert!(c.poll_transmit(at_millis(0)).is_some_and(|s| s.ack == 1));
    c.handle_segment(at_millis(0), &parse_segment(". 1:1(0) ack 1"));
    assert_eq!(c.poll_event(), Some(TcpEvent::Connected));
    assert_eq!(c.poll_event(), Some(TcpEvent::Data { len: 3, payload: Some(Arc::from(*b"abc")) }));
    // A payload that contradicts its length is dropped.
    syn.len = 2;
    let c = TcpConnection::accept(Arc::new(test_config()), 0, &syn, at_millis(0)).unwrap();
    assert_eq!((c.stats().malformed, c.bytes_unread()), (1, 0));
}

#[test]
fn the_window_of_a_syn_ack_is_not_scaled_where_syns_cross() {
    let mut s = ScriptedConnection::connect(TcpConfig { window_scale: Some(3), ..test_config() });
    s.inject_segment("S 0:0(0) win 5000 <mss 1000,wscale 4>");
    assert_eq!(s.c.peer_window(), 5000);
    // RFC 7323 section 2.2.
    s.inject_segment("S. 0:0(0) ack 1 win 6000 <mss 1000,wscale 4>");
    assert_eq!((s.c.state(), s.c.peer_window()), (TcpState::Established, 6000));
    s.inject_segment(". 1:1(0) ack 1 win 6000");
    assert_eq!(s.c.peer_window(), 96_000);
}

#[test]
fn a_reset_has_the_next_number_to_be_sent_after_a_timeout_too() {
    // The peer may have received all of it: a reset at the retransmitted number would lie before its window.
    let mut s = ScriptedConnection::established(test_config());
    s.write(4000);
    s.run_to(1000);
    s.sent.clear();
    s.c.abort();
    s.collect_output();
    s.expect_sent(&["1000 R. 4001:4001(0) ack 1 win 0"]);
}

#[test]
fn what_is_sent_beside_a_probe_keeps_the_number_before_it() {
    // The probe's octet was not accepted, and no data beyond a closed window is acceptable.
    let mut s = ScriptedConnection::established(test_config());
    s.inject_segment(". 1:1(0) ack 1 win 0");
    s.write(500);
    s.run_to(1000);
    s.inject_segment("P. 1:201(200) ack 1 win 0");
    s.run_to(1200);
    s.expect_sent(&["1000 . 1:2(1) ack 1", "1200 . 1:1(0) ack 201"]);
    s.c.abort();
    s.collect_output();
    s.expect_sent(&["1200 R. 1:1(0) ack 201 win 0"]);
}

#[test]
fn an_attempt_to_open_lasts_three_minutes_at_least() {
    let mut s = ScriptedConnection::connect(test_config());
    s.run_to(182_999);
    assert_eq!(s.c.state(), TcpState::SynSent, "RFC 9293 section 3.8.3, R2 for a SYN");
    let times: Vec<&str> = s.sent.iter().map(|l| l.split(' ').next().unwrap()).collect();
    assert_eq!(times, ["0", "1000", "3000", "7000", "15000", "31000", "63000", "123000"]);
    s.run_to(183_000);
    s.closed_for(CloseReason::TimedOut);
}

#[test]
fn a_lost_syn_does_not_lower_a_timeout_of_three_seconds_or_more() {
    // RFC 6298 section 5.7 applies below 3 s only; a doubled timeout stays until a measurement.
    for (initial, backoff_reset, expected) in [
        (2, BackoffReset::Measurement, 3),
        (5, BackoffReset::Measurement, 10),
        (5, BackoffReset::Acknowledgement, 5),
    ] {
        let initial_rto = Duration::from_secs(initial);
        let mut s = ScriptedConnection::connect(TcpConfig { initial_rto, backoff_reset, ..test_config() });
        s.run_to(initial * 1000 + 100);
        s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
        assert_eq!(s.c.rto(), Duration::from_secs(expected), "{initial} {backoff_reset:?}");
    }
}

#[test]
fn ten_segments_are_kept_after_one_lost_syn_and_not_after_two() {
    // RFC 6928 section 2; RFC 5681 section 3.1 for the windows before it.
    for (initial_window, syns, segments) in [
        (InitialWindow::Rfc3390, 1, 1),
        (InitialWindow::Segments(2), 1, 1),
        (InitialWindow::Rfc6928, 1, 10),
        (InitialWindow::Rfc6928, 2, 1),
    ] {
        let mut s = ScriptedConnection::connect(TcpConfig { initial_window, ..test_config() });
        s.run_to(if syns == 1 { 1100 } else { 3100 });
        s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
        assert_eq!(s.c.cwnd(), segments * 1000, "{initial_window:?} {syns}");
        let mut s =
            ScriptedConnection::accept(TcpConfig { initial_window, ..test_config() }, "S 0:0(0) <mss 1000>");
        s.run_to(if syns == 1 { 1100 } else { 3100 });
        s.inject_segment(". 1:1(0) ack 1");
        assert_eq!(s.c.cwnd(), segments * 1000, "{initial_window:?} {syns}");
    }
}

#[test]
fn unanswered_probes_do_not_count_as_retransmissions() {
    let mut s = ScriptedConnection::established(TcpConfig { max_retransmissions: Some(3), ..test_config() });
    s.inject_segment(". 1:1(0) ack 1 win 0");
    s.write(8000);
    s.run_to(3000);
    s.expect_sent(&["1000 . 1:2(1) ack 1", "3000 . 1:2(1) ack 1"]);
    s.inject_segment(". 1:1(0) ack 1");
    assert_eq!(s.c.bytes_in_flight(), 4000);
    // The first timeout of this segment: the threshold is half of what is in flight (RFC 5681 equation 4).
    s.run_to(4000);
    assert_eq!((s.c.ssthresh(), s.c.stats().timeouts), (2000, 1));
    // And three more transmissions, at 1, 3 and 7 s after the first.
    s.run_to(17_999);
    assert_eq!((s.c.state(), s.c.stats().timeouts), (TcpState::Established, 3));
    s.run_to(18_000);
    s.closed_for(CloseReason::TimedOut);
}

/// Eight segments of 1000 octets in flight to a peer with SACK, with `waiting` octets more.
fn eight_in_flight(waiting: u32, limited_transmit: bool) -> ScriptedConnection {
    let initial_window = InitialWindow::Segments(8);
    let config = TcpConfig {
        recovery: LossRecoveryAlgorithm::Sack,
        limited_transmit,
        initial_window,
        ..test_config()
    };
    let mut s = ScriptedConnection::open_to(config, "S. 0:0(0) ack 1 <mss 1000,sackOK>");
    s.write(8000 + waiting);
    s.sent.clear();
    s
}

#[test]
fn an_ack_of_new_data_that_reports_losses_starts_recovery() {
    // RFC 6675 sections 2 and 5: it is a duplicate whether or not it advances the acknowledgement.
    let mut s = eight_in_flight(0, false);
    s.inject_segment(". 1:1(0) ack 1001 <sack 2001:5001>");
    s.expect_sent(&["0 . 1001:2001(1000) ack 1"]);
    assert_eq!((s.c.stats().fast_retransmits, s.c.ssthresh()), (1, 3500));
    // It also counts as the first of three: small pieces are less than three segments.
    let mut s = eight_in_flight(0, false);
    s.inject_segment(". 1:1(0) ack 1001 <sack 2001:2101>");
    s.inject_segment(". 1:1(0) ack 1001 <sack 2001:2201>");
    s.expect_sent(&[]);
    s.inject_segment(". 1:1(0) ack 1001 <sack 2001:2301>");
    s.expect_sent(&["0 . 1001:2001(1000) ack 1"]);
}

#[test]
fn an_overtaken_ack_counts_by_its_sack_blocks() {
    let mut s = eight_in_flight(0, false);
    s.inject_segment(". 1:1(0) ack 2001");
    s.inject_segment(". 1:1(0) ack 1001 <sack 3001:4001>");
    s.inject_segment(". 1:1(0) ack 1001 <sack 3001:5001>");
    s.expect_sent(&[]);
    s.inject_segment(". 1:1(0) ack 1001 <sack 3001:6001>");
    s.expect_sent(&["0 . 2001:3001(1000) ack 1"]);
}

#[test]
fn the_rescue_waits_until_the_first_repair_is_acknowledged() {
    // RFC 6675 section 5 step (4.3), and section 4 rule (4): the last segment may still be in flight.
    let mut s = eight_in_flight(0, false);
    for end in [2001, 3001, 4001] {
        s.inject_segment(&format!(". 1:1(0) ack 1 <sack 1001:{end}>"));
    }
    s.expect_sent(&["0 . 1:1001(1000) ack 1"]);
    for end in [5001, 6001, 7001] {
        s.inject_segment(&format!(". 1:1(0) ack 1 <sack 1001:{end}>"));
    }
    s.expect_sent(&[]);
    s.inject_segment(". 1:1(0) ack 7001");
    s.expect_sent(&["0 P. 7001:8001(1000) ack 1"]);
}

#[test]
fn limited_transmit_answers_what_reports_something_new() {
    let mut s = eight_in_flight(4000, true);
    s.inject_segment(". 1:1(0) ack 1");
    s.expect_sent(&[]);
    s.inject_segment(". 1:1(0) ack 1 <sack 1001:2001>");
    s.expect_sent(&["0 . 8001:9001(1000) ack 1"]);
    s.inject_segment(". 1:1(0) ack 1 <sack 1001:2001>");
    s.expect_sent(&[]);
    assert_eq!(s.c.cwnd(), 8000);
}

#[test]
fn a_syn_ends_a_passive_open_and_is_challenged_in_an_active_one() {
    // RFC 9293 section 3.10.7.4, fourth check: a listener returns to LISTEN without an event.
    let mut s = ScriptedConnection::accept(test_config(), "S 0:0(0) <mss 1000>");
    s.sent.clear();
    s.inject_segment("S 100:100(0)");
    s.expect_sent(&[]);
    s.expect_events(&[]);
    assert!(s.c.is_closed());
    let mut s = ScriptedConnection::connect(test_config());
    s.inject_segment("S 0:0(0) <mss 1000>");
    s.sent.clear();
    s.inject_segment("S 100:100(0)");
    s.expect_sent(&["0 . 1:1(0) ack 1"]);
    assert_eq!(s.c.state(), TcpState::SynReceived);
}

#[test]
fn resets_are_taken_with_data_and_while_the_window_is_closed() {
    // RFC 9293 section 3.5.3.
    let mut s = ScriptedConnection::established(test_config());
    s.inject_segment("R 1:11(10)");
    s.closed_for(CloseReason::Reset);
    // Section 3.10.7.4, first check.
    let mut s = ScriptedConnection::connect(TcpConfig { receive_buffer: 1000, ..test_config() });
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
    s.c.set_auto_read(false);
    s.inject_segment(". 1:1001(1000) ack 1");
    s.expect_events(&["connected"]);
    s.inject_segment("R 1001:1001(0)");
    s.closed_for(CloseReason::Reset);
}

#[test]
fn what_arrives_together_is_acknowledged_by_one_segment() {
    // RFC 9293 section 3.10.7.4: MUST-58 and MUST-59.
    let mut s = ScriptedConnection::established(test_config());
    for i in 0..5 {
        s.feed_segment(&format!(". {}:0(1000) ack 1", 1 + 1000 * i));
    }
    s.collect_output();
    s.expect_sent(&["0 . 1:1(0) ack 5001"]);
}

#[test]
fn a_shrunken_window_holds_new_data_but_allows_retransmission() {
    // RFC 9293 section 3.8.6.
    let mut s = ScriptedConnection::established(test_config());
    s.write(8000);
    s.sent.clear();
    // The edge was 65 536; 2500 octets in flight lie beyond the new one.
    s.inject_segment(". 1:1(0) ack 1001 win 500");
    s.expect_sent(&[]);
    s.run_to(1000);
    s.expect_sent(&["1000 . 1001:2001(1000) ack 1"]);
    // It shrinks to zero; retransmissions probe it without limit.
    for at in [3000, 7000, 15_000, 31_000] {
        s.inject_segment(". 1:1(0) ack 1001 win 0");
        s.run_to(at);
        s.expect_sent(&[&format!("{at} . 1001:2001(1000) ack 1")]);
    }
    s.inject_segment(". 1:1(0) ack 4001");
    s.expect_sent(&["31000 . 4001:5001(1000) ack 1", "31000 . 5001:6001(1000) ack 1"]);
}

#[test]
fn a_shift_beyond_fourteen_is_fourteen() {
    // RFC 7323 section 2.3.
    let config = TcpConfig { window_scale: Some(1), ..test_config() };
    let mut s = ScriptedConnection::open_to(config, "S. 0:0(0) ack 1 <mss 1000,wscale 20>");
    s.inject_segment(". 1:1(0) ack 1 win 5");
    assert_eq!(s.c.peer_window(), 5 << 14);
}

#[test]
fn a_reset_needs_no_timestamp() {
    // RFC 7323 section 5.2: neither an old timestamp nor none blocks a reset.
    for reset in ["R 1:1(0)", "R 1:1(0) <ts 3:0>"] {
        let config = TcpConfig { timestamps: true, ..test_config() };
        let mut s = ScriptedConnection::open_to(config, "S. 0:0(0) ack 1 <mss 1000,ts 7:0>");
        s.inject_segment(reset);
        s.closed_for(CloseReason::Reset);
    }
}

#[test]
fn timestamps_are_echoed_as_in_the_standards_examples() {
    // RFC 7323 section 4.3: delayed acknowledgements echo the earliest, ...
    let open = |delayed_ack| {
        let config = TcpConfig { timestamps: true, delayed_ack, ..test_config() };
        ScriptedConnection::open_to(config, "S. 0:0(0) ack 1 <mss 1000,ts 1:0>")
    };
    let every = |n| Some(DelayedAck { every: AckThreshold::Segments(n), ..Default::default() });
    let mut s = open(every(3));
    for (seq, val) in [(1, 1), (101, 2), (201, 3)] {
        s.inject_segment(&format!("P. {seq}:0(100) ack 1 <ts {val}:0>"));
    }
    s.expect_sent(&["0 . 1:1(0) ack 301 <ts 0:1>"]);
    // ... and segments out of order the last that advanced: A, C, B, E, D.
    let mut s = open(None);
    for (seq, val) in [(1, 1), (201, 3), (101, 2), (401, 5), (301, 4)] {
        s.inject_segment(&format!("P. {seq}:0(100) ack 1 <ts {val}:0>"));
    }
    let ack = |n, echo| format!("0 . 1:1(0) ack {n} <ts 0:{echo}>");
    s.expect_sent(&[&ack(101, 1), &ack(101, 1), &ack(301, 2), &ack(301, 2), &ack(501, 4)]);
}

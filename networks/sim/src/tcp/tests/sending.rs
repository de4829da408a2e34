//! When data is sent: Nagle, silly windows, closed windows, growth and idle time.

use super::*;

#[test]
fn nagle_holds_a_small_segment_while_anything_is_unacknowledged() {
    let mut s = ScriptedConnection::established(TcpConfig { nagle: true, ..test_config() });
    for _ in 0..3 {
        s.write(200);
    }
    s.expect_sent(&["0 P. 1:201(200) ack 1"]);
    s.inject_segment(". 1:1(0) ack 201");
    s.expect_sent(&["0 P. 201:601(400) ack 1"]);
}

#[test]
fn nagle_lets_full_segments_go() {
    let mut s = ScriptedConnection::established(TcpConfig { nagle: true, ..test_config() });
    s.write(200);
    s.write(1500);
    s.expect_sent(&["0 P. 1:201(200) ack 1", "0 . 201:1201(1000) ack 1"]);
    s.inject_segment(". 1:1(0) ack 201");
    s.expect_sent(&[]);
    s.inject_segment(". 1:1(0) ack 1201");
    s.expect_sent(&["0 P. 1201:1701(500) ack 1"]);
}

#[test]
fn nagle_does_not_hold_the_last_segment_of_a_closing_side() {
    let mut s = ScriptedConnection::established(TcpConfig { nagle: true, ..test_config() });
    s.write(200);
    s.write(100);
    s.shutdown();
    s.expect_sent(&["0 P. 1:201(200) ack 1", "0 FP. 201:301(100) ack 1"]);
}

#[test]
fn without_nagle_each_write_leaves_unless_writes_are_batched() {
    let mut s = ScriptedConnection::established(test_config());
    s.write(200);
    s.write(200);
    s.expect_sent(&["0 P. 1:201(200) ack 1", "0 P. 201:401(200) ack 1"]);
    s.c.write(StreamData::Count(200)).unwrap();
    s.write(300);
    s.expect_sent(&["0 P. 401:901(500) ack 1"]);
}

#[test]
fn a_sender_does_not_fill_the_rest_of_a_window() {
    let mut s = ScriptedConnection::open_to(test_config(), "S. 0:0(0) ack 1 win 1500 <mss 1000>");
    s.write(3000);
    s.expect_sent(&["0 . 1:1001(1000) ack 1"]);
    s.inject_segment(". 1:1(0) ack 1001 win 1500");
    s.expect_sent(&["0 . 1001:2001(1000) ack 1"]);
    s.inject_segment(". 1:1(0) ack 2001 win 1500");
    s.expect_sent(&["0 P. 2001:3001(1000) ack 1"]);
}

#[test]
fn half_of_the_largest_window_is_worth_sending() {
    let mut s = ScriptedConnection::open_to(test_config(), "S. 0:0(0) ack 1 win 600 <mss 1000>");
    s.write(2000);
    s.expect_sent(&["0 . 1:601(600) ack 1"]);
    s.inject_segment(". 1:1(0) ack 601 win 299");
    s.expect_sent(&[]);
    s.inject_segment(". 1:1(0) ack 601 win 300");
    s.expect_sent(&["0 . 601:901(300) ack 1"]);
}

#[test]
fn a_small_window_is_used_when_the_timer_overrides() {
    let mut s = ScriptedConnection::established(test_config());
    s.inject_segment(". 1:1(0) ack 1 win 400");
    s.write(1000);
    s.expect_sent(&[]);
    s.run_to(1500);
    s.expect_sent(&["1000 . 1:401(400) ack 1"]);
    assert_eq!((s.c.stats().window_probes, s.c.stats().retransmitted), (0, 0));
}

#[test]
fn a_closed_window_is_probed_with_doubled_waits() {
    let mut s = ScriptedConnection::established(TcpConfig { max_retransmissions: Some(3), ..test_config() });
    s.inject_segment(". 1:1(0) ack 1 win 0");
    s.write(500);
    for at in [1000, 3000, 7000, 15_000, 31_000, 63_000, 123_000, 183_000] {
        s.run_to(at);
        s.expect_sent(&[&format!("{at} . 1:2(1) ack 1")]);
        // Answers keep the connection open, however long the window stays closed.
        s.inject_segment(". 1:1(0) ack 1 win 0");
        s.expect_sent(&[]);
    }
    s.inject_segment(". 1:1(0) ack 1 win 2000");
    s.expect_sent(&["183000 P. 1:501(500) ack 1"]);
    let stats = s.c.stats();
    assert_eq!((stats.window_probes, stats.retransmitted, stats.duplicate_acks), (8, 0, 0));
    s.inject_segment(". 1:1(0) ack 501 win 0");
    s.write(10);
    s.run_to(184_000);
    s.expect_sent(&["184000 . 501:502(1) ack 1"]);
}

#[test]
fn what_is_written_meanwhile_does_not_put_a_probe_off() {
    let mut s = ScriptedConnection::established(test_config());
    s.inject_segment(". 1:1(0) ack 1 win 0");
    s.write(500);
    s.run_to(900);
    s.write(500);
    s.run_to(1000);
    s.expect_sent(&["1000 . 1:2(1) ack 1"]);
}

#[test]
fn a_probe_that_is_taken_moves_on() {
    let mut s = ScriptedConnection::established(test_config());
    s.inject_segment(". 1:1(0) ack 1 win 0");
    s.write(500);
    s.run_to(1000);
    s.inject_segment(". 1:1(0) ack 2 win 0");
    s.run_to(3000);
    s.expect_sent(&["1000 . 1:2(1) ack 1", "3000 . 2:3(1) ack 1"]);
}

#[test]
fn unanswered_probes_give_up() {
    let mut s = ScriptedConnection::established(TcpConfig { max_retransmissions: Some(2), ..test_config() });
    s.inject_segment(". 1:1(0) ack 1 win 0");
    s.write(500);
    s.run_to(7000);
    s.expect_sent(&["1000 . 1:2(1) ack 1", "3000 . 1:2(1) ack 1"]);
    s.closed_for(CloseReason::TimedOut);
}

#[test]
fn a_slow_reader_closes_the_window_and_reopens_it_by_segments() {
    let mut s =
        ScriptedConnection::connect(TcpConfig { receive_buffer: 4000, delayed_ack: None, ..test_config() });
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
    s.c.set_auto_read(false);
    s.expect_sent(&["0 S 0:0(0) win 4000 <mss 1000>", "0 . 1:1(0) ack 1 win 4000"]);
    for seq in [1, 1001, 2001, 3001] {
        s.inject_segment(&format!(". {seq}:0(1000) ack 1"));
    }
    s.expect_sent(&[
        "0 . 1:1(0) ack 1001 win 3000",
        "0 . 1:1(0) ack 2001 win 2000",
        "0 . 1:1(0) ack 3001 win 1000",
        "0 . 1:1(0) ack 4001 win 0",
    ]);
    s.expect_events(&["connected"]);
    s.inject_segment(". 4001:4002(1) ack 1");
    s.expect_sent(&["0 . 1:1(0) ack 4001 win 0"]);
    for (heard, sent) in [("data 500", None), ("data 500", Some("0 . 1:1(0) ack 4001 win 1000"))] {
        s.c.grant_credit(500);
        s.collect_events();
        s.collect_output();
        s.expect_events(&[heard]);
        s.expect_sent(sent.as_slice());
    }
    assert_eq!(s.c.bytes_unread(), 3000);
    s.c.set_auto_read(true);
    s.collect_events();
    s.expect_events(&["data 3000"]);
    s.inject_segment(". 4001:5001(1000) ack 1");
    s.expect_sent(&["0 . 1:1(0) ack 5001 win 4000"]);
}

#[test]
fn credit_that_comes_first_waits_for_data() {
    let mut s = ScriptedConnection::established(test_config());
    s.c.set_auto_read(false);
    s.c.grant_credit(150);
    s.inject_segment("P. 1:101(100) ack 1");
    s.inject_segment("P. 101:201(100) ack 1");
    s.inject_segment("F. 201:201(0) ack 1");
    s.expect_events(&["data 100", "data 50"]);
    s.c.grant_credit(1000);
    s.collect_events();
    s.expect_events(&["data 50", "peer closed"]);
}

#[test]
fn slow_start_doubles_and_avoidance_adds_one_segment_a_window() {
    let one =
        TcpConfig { initial_window: InitialWindow::Segments(1), initial_ssthresh: 4000, ..test_config() };
    let mut s = ScriptedConnection::established(one);
    s.write(100_000);
    let mut una = 1;
    let mut cwnds = Vec::new();
    for _ in 0..11 {
        una += 1000;
        s.inject_segment(&format!(". 1:1(0) ack {una}"));
        cwnds.push(s.c.cwnd() / 1000);
        assert_eq!(s.c.bytes_in_flight(), s.c.cwnd());
    }
    assert_eq!(cwnds, [2, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5]);
    s.inject_segment(&format!(". 1:1(0) ack {}", una + 1000));
    assert_eq!(s.c.cwnd(), 6000);
}

#[test]
fn initial_windows_are_those_of_their_standards() {
    for (window, mss, bytes) in [
        (InitialWindow::Rfc3390, 536, 2144),
        (InitialWindow::Rfc3390, 1460, 4380),
        (InitialWindow::Rfc3390, 8000, 16_000),
        (InitialWindow::Rfc6928, 1000, 10_000),
        (InitialWindow::Rfc6928, 1460, 14_600),
        (InitialWindow::Rfc6928, 9000, 18_000),
        (InitialWindow::Segments(3), 1000, 3000),
        (InitialWindow::Segments(0), 1000, 1000),
    ] {
        assert_eq!(window.window_bytes(mss), bytes, "{window:?} {mss}");
    }
}

#[test]
fn silence_takes_the_window_back_to_the_initial_one() {
    for (restart_after_idle, burst) in [(true, 4000), (false, 8000)] {
        let mut s = ScriptedConnection::established(TcpConfig { restart_after_idle, ..test_config() });
        s.write(4000);
        for ack in [1001, 2001, 3001, 4001] {
            s.inject_segment(&format!(". 1:1(0) ack {ack}"));
        }
        assert_eq!(s.c.cwnd(), 8000);
        s.run_to(1001);
        s.write(9000);
        assert_eq!(s.c.bytes_in_flight(), burst);
    }
}

#[test]
fn bytes_travel_and_are_cut_where_the_segment_ends() {
    let mut c =
        TcpConnection::accept(Arc::new(test_config()), 0, &parse_segment("S 0:0(0) <mss 64>"), at_millis(0))
            .unwrap();
    let _ = c.poll_transmit(at_millis(0));
    c.handle_segment(at_millis(0), &parse_segment(". 1:1(0) ack 1"));
    let bytes: Vec<u8> = (0..100).collect();
    c.write(StreamData::Bytes(&bytes[..60])).unwrap();
    c.write(StreamData::Bytes(&bytes[60..])).unwrap();
    let payloads: Vec<_> =
        std::iter::from_fn(|| c.poll_transmit(at_millis(0))).map(|s| s.payload.unwrap()).collect();
    assert_eq!(payloads.concat(), bytes);
    assert_eq!(payloads[0].len(), 64);
}

#[test]
fn no_more_is_taken_than_sequence_numbers_can_tell_apart() {
    let mut s = ScriptedConnection::established(test_config());
    s.c.write(StreamData::Count(1 << 30)).unwrap();
    assert!(s.c.write(StreamData::Count(1)).is_err());
    s.collect_output();
    assert_eq!(s.c.bytes_unsent(), (1 << 30) - 4000);
}

fn without_avoidance(config: TcpConfig) -> TcpConfig {
    TcpConfig { silly_window_avoidance: false, ..config }
}

#[test]
fn without_avoidance_a_sender_fills_the_rest_of_a_window() {
    let mut s =
        ScriptedConnection::open_to(without_avoidance(test_config()), "S. 0:0(0) ack 1 win 1500 <mss 1000>");
    s.write(3000);
    s.expect_sent(&["0 . 1:1001(1000) ack 1", "0 . 1001:1501(500) ack 1"]);
    s.inject_segment(". 1:1(0) ack 1501 win 0");
    s.inject_segment(". 1:1(0) ack 1501 win 1");
    s.inject_segment(". 1:1(0) ack 1501 win 2");
    s.expect_sent(&["0 . 1501:1502(1) ack 1", "0 . 1502:1503(1) ack 1"]);
    let mut s = ScriptedConnection::open_to(
        without_avoidance(TcpConfig { nagle: true, ..test_config() }),
        "S. 0:0(0) ack 1 win 1500 <mss 1000>",
    );
    s.write(3000);
    s.expect_sent(&["0 . 1:1001(1000) ack 1"]);
    s.inject_segment(". 1:1(0) ack 1001 win 7");
    s.expect_sent(&["0 . 1001:1008(7) ack 1"]);
}

/// A connection with explicit reads, whose buffer of 4000 octets is full.
fn full_receiver(config: TcpConfig) -> ScriptedConnection {
    let mut s = ScriptedConnection::connect(TcpConfig { receive_buffer: 4000, ..config });
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
    s.c.set_auto_read(false);
    for seq in [1, 1001, 2001, 3001] {
        s.inject_segment(&format!(". {seq}:0(1000) ack 1"));
    }
    s.expect_events(&["connected"]);
    s.sent.clear();
    s
}

#[test]
fn without_avoidance_each_octet_that_is_read_opens_the_window() {
    let mut s = full_receiver(without_avoidance(TcpConfig { delayed_ack: None, ..test_config() }));
    for sent in ["0 . 1:1(0) ack 4001 win 1", "0 . 1:1(0) ack 4001 win 2"] {
        s.c.grant_credit(1);
        s.collect_events();
        s.collect_output();
        s.expect_events(&["data 1"]);
        s.expect_sent(&[sent]);
    }
}

#[test]
fn without_avoidance_a_window_update_waits_for_the_delayed_ack() {
    let mut s = full_receiver(without_avoidance(test_config()));
    for at in [50, 100, 249] {
        s.run_to(at);
        s.c.grant_credit(1);
        s.collect_events();
        s.collect_output();
    }
    s.expect_sent(&[]);
    s.run_to(1000);
    s.expect_sent(&["250 . 1:1(0) ack 4001 win 3"]);
    assert_eq!(s.c.poll_timeout(), None, "nothing more was read");
}

#[test]
fn memory_is_the_control_block_and_what_waits() {
    let own = TcpConnection::CONTROL_BLOCK;
    let mut s = ScriptedConnection::connect(test_config());
    assert_eq!(s.c.memory_octets(), own);
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
    s.write(1500);
    assert_eq!(s.c.memory_octets(), own + 1500);
    s.inject_segment(". 1:1(0) ack 1001");
    assert_eq!(s.c.memory_octets(), own + 500);
    s.inject_segment(". 101:301(200) ack 1501");
    s.inject_segment(". 401:501(100) ack 1501");
    assert_eq!(s.c.memory_octets(), own + 300, "behind two gaps");
    s.c.set_auto_read(false);
    s.inject_segment(". 1:101(100) ack 1501");
    assert_eq!((s.c.bytes_unread(), s.c.memory_octets()), (300, own + 400));
    s.c.set_auto_read(true);
    s.collect_events();
    assert_eq!(s.c.memory_octets(), own + 100);
    s.shutdown();
    s.inject_segment(". 501:501(0) ack 1502");
    assert_eq!(s.c.memory_octets(), own + 100, "a FIN takes no room");
}

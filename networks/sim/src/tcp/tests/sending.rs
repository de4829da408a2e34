//! What may leave and when: Nagle, silly windows, closed windows, growth and idleness.

use super::*;

#[test]
fn nagle_holds_a_small_segment_while_anything_is_unacknowledged() {
    let mut s = Script::open(Config { nagle: true, ..config() });
    for _ in 0..3 {
        s.write(200);
    }
    s.expect(&["0 P. 1:201(200) ack 1"]);
    s.inject(". 1:1(0) ack 201");
    s.expect(&["0 P. 201:601(400) ack 1"]);
}

#[test]
fn nagle_lets_full_segments_go() {
    let mut s = Script::open(Config { nagle: true, ..config() });
    s.write(200);
    s.write(1500);
    s.expect(&["0 P. 1:201(200) ack 1", "0 . 201:1201(1000) ack 1"]);
    s.inject(". 1:1(0) ack 201");
    s.expect(&[]);
    s.inject(". 1:1(0) ack 1201");
    s.expect(&["0 P. 1201:1701(500) ack 1"]);
}

#[test]
fn nagle_does_not_hold_the_last_segment_of_a_closing_side() {
    let mut s = Script::open(Config { nagle: true, ..config() });
    s.write(200);
    s.write(100);
    s.shutdown();
    s.expect(&["0 P. 1:201(200) ack 1", "0 FP. 201:301(100) ack 1"]);
}

#[test]
fn without_nagle_each_write_leaves_unless_output_waits_for_several() {
    let mut s = Script::open(config());
    s.write(200);
    s.write(200);
    s.expect(&["0 P. 1:201(200) ack 1", "0 P. 201:401(200) ack 1"]);
    s.c.write(Data::Count(200)).unwrap();
    s.write(300);
    s.expect(&["0 P. 401:901(500) ack 1"]);
}

#[test]
fn a_sender_does_not_fill_the_rest_of_a_window() {
    let mut s = Script::open_to(config(), "S. 0:0(0) ack 1 win 1500 <mss 1000>");
    s.write(3000);
    s.expect(&["0 . 1:1001(1000) ack 1"]);
    s.inject(". 1:1(0) ack 1001 win 1500");
    s.expect(&["0 . 1001:2001(1000) ack 1"]);
    s.inject(". 1:1(0) ack 2001 win 1500");
    s.expect(&["0 P. 2001:3001(1000) ack 1"]);
}

#[test]
fn half_of_the_largest_window_is_worth_sending() {
    let mut s = Script::open_to(config(), "S. 0:0(0) ack 1 win 600 <mss 1000>");
    s.write(2000);
    s.expect(&["0 . 1:601(600) ack 1"]);
    s.inject(". 1:1(0) ack 601 win 299");
    s.expect(&[]);
    s.inject(". 1:1(0) ack 601 win 300");
    s.expect(&["0 . 601:901(300) ack 1"]);
}

#[test]
fn a_small_window_is_used_when_the_timer_overrides() {
    let mut s = Script::open(config());
    s.inject(". 1:1(0) ack 1 win 400");
    s.write(1000);
    s.expect(&[]);
    s.run_to(1500);
    s.expect(&["1000 . 1:401(400) ack 1"]);
    assert_eq!((s.c.stats().window_probes, s.c.stats().retransmitted), (0, 0));
}

#[test]
fn a_closed_window_is_probed_with_doubled_waits() {
    let mut s = Script::open(Config { max_retransmissions: Some(3), ..config() });
    s.inject(". 1:1(0) ack 1 win 0");
    s.write(500);
    for at in [1000, 3000, 7000, 15_000, 31_000, 63_000, 123_000, 183_000] {
        s.run_to(at);
        s.expect(&[&format!("{at} . 1:2(1) ack 1")]);
        // Answers keep the connection open however long the window stays closed.
        s.inject(". 1:1(0) ack 1 win 0");
        s.expect(&[]);
    }
    s.inject(". 1:1(0) ack 1 win 2000");
    s.expect(&["183000 P. 1:501(500) ack 1"]);
    let stats = s.c.stats();
    assert_eq!((stats.window_probes, stats.retransmitted, stats.duplicate_acks), (8, 0, 0));
    s.inject(". 1:1(0) ack 501 win 0");
    s.write(10);
    s.run_to(184_000);
    s.expect(&["184000 . 501:502(1) ack 1"]);
}

#[test]
fn what_is_written_meanwhile_does_not_put_a_probe_off() {
    let mut s = Script::open(config());
    s.inject(". 1:1(0) ack 1 win 0");
    s.write(500);
    s.run_to(900);
    s.write(500);
    s.run_to(1000);
    s.expect(&["1000 . 1:2(1) ack 1"]);
}

#[test]
fn a_probe_that_is_taken_moves_on() {
    let mut s = Script::open(config());
    s.inject(". 1:1(0) ack 1 win 0");
    s.write(500);
    s.run_to(1000);
    s.inject(". 1:1(0) ack 2 win 0");
    s.run_to(3000);
    s.expect(&["1000 . 1:2(1) ack 1", "3000 . 2:3(1) ack 1"]);
}

#[test]
fn unanswered_probes_give_up() {
    let mut s = Script::open(Config { max_retransmissions: Some(2), ..config() });
    s.inject(". 1:1(0) ack 1 win 0");
    s.write(500);
    s.run_to(7000);
    s.expect(&["1000 . 1:2(1) ack 1", "3000 . 1:2(1) ack 1"]);
    s.closed_for(CloseReason::TimedOut);
}

#[test]
fn a_slow_reader_closes_the_window_and_opens_it_by_whole_segments() {
    let mut s = Script::connect(Config { receive_buffer: 4000, delayed_ack: None, ..config() });
    s.inject("S. 0:0(0) ack 1 <mss 1000>");
    s.c.set_auto_read(false);
    s.expect(&["0 S 0:0(0) win 4000 <mss 1000>", "0 . 1:1(0) ack 1 win 4000"]);
    for seq in [1, 1001, 2001, 3001] {
        s.inject(&format!(". {seq}:0(1000) ack 1"));
    }
    s.expect(&[
        "0 . 1:1(0) ack 1001 win 3000",
        "0 . 1:1(0) ack 2001 win 2000",
        "0 . 1:1(0) ack 3001 win 1000",
        "0 . 1:1(0) ack 4001 win 0",
    ]);
    s.hear(&["connected"]);
    s.inject(". 4001:4002(1) ack 1");
    s.expect(&["0 . 1:1(0) ack 4001 win 0"]);
    for (heard, sent) in [("data 500", None), ("data 500", Some("0 . 1:1(0) ack 4001 win 1000"))] {
        s.c.read(500);
        s.listen();
        s.flush();
        s.hear(&[heard]);
        s.expect(sent.as_slice());
    }
    assert_eq!(s.c.bytes_unread(), 3000);
    s.c.set_auto_read(true);
    s.listen();
    s.hear(&["data 3000"]);
    s.inject(". 4001:5001(1000) ack 1");
    s.expect(&["0 . 1:1(0) ack 5001 win 4000"]);
}

#[test]
fn credit_that_comes_first_waits_for_data() {
    let mut s = Script::open(config());
    s.c.set_auto_read(false);
    s.c.read(150);
    s.inject("P. 1:101(100) ack 1");
    s.inject("P. 101:201(100) ack 1");
    s.inject("F. 201:201(0) ack 1");
    s.hear(&["data 100", "data 50"]);
    s.c.read(1000);
    s.listen();
    s.hear(&["data 50", "peer closed"]);
}

#[test]
fn slow_start_doubles_and_avoidance_adds_one_segment_a_window() {
    let one = Config { initial_window: InitialWindow::Segments(1), initial_ssthresh: 4000, ..config() };
    let mut s = Script::open(one);
    s.write(100_000);
    let mut una = 1;
    let mut cwnds = Vec::new();
    for _ in 0..11 {
        una += 1000;
        s.inject(&format!(". 1:1(0) ack {una}"));
        cwnds.push(s.c.cwnd() / 1000);
        assert_eq!(s.c.bytes_in_flight(), s.c.cwnd());
    }
    assert_eq!(cwnds, [2, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5]);
    s.inject(&format!(". 1:1(0) ack {}", una + 1000));
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
        assert_eq!(window.bytes(mss), bytes, "{window:?} {mss}");
    }
}

#[test]
fn silence_takes_the_window_back_to_the_initial_one() {
    for (restart_after_idle, burst) in [(true, 4000), (false, 8000)] {
        let mut s = Script::open(Config { restart_after_idle, ..config() });
        s.write(4000);
        for ack in [1001, 2001, 3001, 4001] {
            s.inject(&format!(". 1:1(0) ack {ack}"));
        }
        assert_eq!(s.c.cwnd(), 8000);
        s.run_to(1001);
        s.write(9000);
        assert_eq!(s.c.bytes_in_flight(), burst);
    }
}

#[test]
fn bytes_travel_and_are_cut_where_the_segment_ends() {
    let mut c = Connection::accept(Arc::new(config()), 0, &segment("S 0:0(0) <mss 64>"), ms(0)).unwrap();
    let _ = c.poll_transmit(ms(0));
    c.handle_segment(ms(0), &segment(". 1:1(0) ack 1"));
    let bytes: Vec<u8> = (0..100).collect();
    c.write(Data::Bytes(&bytes[..60])).unwrap();
    c.write(Data::Bytes(&bytes[60..])).unwrap();
    let payloads: Vec<_> =
        std::iter::from_fn(|| c.poll_transmit(ms(0))).map(|s| s.payload.unwrap()).collect();
    assert_eq!(payloads.concat(), bytes);
    assert_eq!(payloads[0].len(), 64);
}

#[test]
fn no_more_is_taken_than_sequence_numbers_can_tell_apart() {
    let mut s = Script::open(config());
    s.c.write(Data::Count(1 << 30)).unwrap();
    assert!(s.c.write(Data::Count(1)).is_err());
    s.flush();
    assert_eq!(s.c.bytes_unsent(), (1 << 30) - 4000);
}

fn silly(config: Config) -> Config {
    Config { silly_window_avoidance: false, ..config }
}

#[test]
fn without_avoidance_a_sender_fills_the_rest_of_a_window() {
    let mut s = Script::open_to(silly(config()), "S. 0:0(0) ack 1 win 1500 <mss 1000>");
    s.write(3000);
    s.expect(&["0 . 1:1001(1000) ack 1", "0 . 1001:1501(500) ack 1"]);
    s.inject(". 1:1(0) ack 1501 win 0");
    s.inject(". 1:1(0) ack 1501 win 1");
    s.inject(". 1:1(0) ack 1501 win 2");
    s.expect(&["0 . 1501:1502(1) ack 1", "0 . 1502:1503(1) ack 1"]);
    let mut s =
        Script::open_to(silly(Config { nagle: true, ..config() }), "S. 0:0(0) ack 1 win 1500 <mss 1000>");
    s.write(3000);
    s.expect(&["0 . 1:1001(1000) ack 1"]);
    s.inject(". 1:1(0) ack 1001 win 7");
    s.expect(&["0 . 1001:1008(7) ack 1"]);
}

/// A connection that does not read by itself, whose buffer of 4000 bytes is full.
fn full(config: Config) -> Script {
    let mut s = Script::connect(Config { receive_buffer: 4000, ..config });
    s.inject("S. 0:0(0) ack 1 <mss 1000>");
    s.c.set_auto_read(false);
    for seq in [1, 1001, 2001, 3001] {
        s.inject(&format!(". {seq}:0(1000) ack 1"));
    }
    s.hear(&["connected"]);
    s.sent.clear();
    s
}

#[test]
fn without_avoidance_each_octet_that_is_read_opens_the_window() {
    let mut s = full(silly(Config { delayed_ack: None, ..config() }));
    for sent in ["0 . 1:1(0) ack 4001 win 1", "0 . 1:1(0) ack 4001 win 2"] {
        s.c.read(1);
        s.listen();
        s.flush();
        s.hear(&["data 1"]);
        s.expect(&[sent]);
    }
}

#[test]
fn without_avoidance_what_is_read_is_told_with_the_delayed_acknowledgement() {
    let mut s = full(silly(config()));
    for at in [50, 100, 249] {
        s.run_to(at);
        s.c.read(1);
        s.listen();
        s.flush();
    }
    s.expect(&[]);
    s.run_to(1000);
    s.expect(&["250 . 1:1(0) ack 4001 win 3"]);
    assert_eq!(s.c.poll_timeout(), None, "nothing more was read");
}

#[test]
fn memory_is_the_control_block_and_what_waits() {
    let own = Connection::CONTROL_BLOCK;
    let mut s = Script::connect(config());
    assert_eq!(s.c.memory(), own);
    s.inject("S. 0:0(0) ack 1 <mss 1000>");
    s.write(1500);
    assert_eq!(s.c.memory(), own + 1500);
    s.inject(". 1:1(0) ack 1001");
    assert_eq!(s.c.memory(), own + 500);
    s.inject(". 101:301(200) ack 1501");
    s.inject(". 401:501(100) ack 1501");
    assert_eq!(s.c.memory(), own + 300, "behind two gaps");
    s.c.set_auto_read(false);
    s.inject(". 1:101(100) ack 1501");
    assert_eq!((s.c.bytes_unread(), s.c.memory()), (300, own + 400));
    s.c.set_auto_read(true);
    s.listen();
    assert_eq!(s.c.memory(), own + 100);
    s.shutdown();
    s.inject(". 501:501(0) ack 1502");
    assert_eq!(s.c.memory(), own + 100, "a FIN takes no room");
}

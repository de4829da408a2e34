//! Linux's acknowledgements: quick-ack mode, dialogues, reads, and the sender's rate.

use super::*;

fn linux_config() -> TcpConfig {
    let delayed = DelayedAck { timeout: Duration::from_millis(40), every: AckThreshold::LargestSeen(2) };
    TcpConfig { delayed_ack: Some(delayed), quick_ack: true, ..test_config() }
}

/// Injects small segments that each end a write, at these times; the first has the number `first`.
fn inject_small(s: &mut ScriptedConnection, first: u32, times: &[u64]) {
    for (n, &at) in times.iter().enumerate() {
        s.run_to(at);
        s.inject_segment(&format!("P. {}:0(100) ack 1", first + 100 * n as u32));
    }
}

#[test]
fn the_first_sixteen_segments_are_acknowledged_at_once() {
    let mut s = ScriptedConnection::established(linux_config());
    let times: Vec<u64> = (1..=17).map(|n| 10 * n).collect();
    inject_small(&mut s, 1, &times[..16]);
    let at_once: Vec<String> = (1..=16).map(|n| format!("{} . 1:1(0) ack {}", 10 * n, 1 + 100 * n)).collect();
    s.expect_sent(&at_once.iter().map(String::as_str).collect::<Vec<_>>());
    inject_small(&mut s, 1601, &times[16..]);
    s.run_to(1000);
    s.expect_sent(&["210 . 1:1(0) ack 1701"]);

    let mut s = ScriptedConnection::established(TcpConfig { quick_ack: false, ..linux_config() });
    inject_small(&mut s, 1, &[10]);
    s.run_to(1000);
    s.expect_sent(&["50 . 1:1(0) ack 101"]);
}

#[test]
fn an_answer_starts_a_dialogue_and_an_ack_timeout_ends_it() {
    let mut s = ScriptedConnection::established(linux_config());
    inject_small(&mut s, 1, &[10]);
    s.write(50);
    s.expect_sent(&["10 . 1:1(0) ack 101", "10 P. 1:51(50) ack 101"]);
    s.run_to(20);
    s.inject_segment("P. 101:201(100) ack 51");
    s.run_to(50);
    s.write(50);
    s.expect_sent(&["50 P. 51:101(50) ack 201"]);
    s.run_to(60);
    s.inject_segment("P. 201:301(100) ack 101");
    s.run_to(150);
    s.expect_sent(&["100 . 101:101(0) ack 301"]);
    s.inject_segment("P. 301:401(100) ack 101");
    s.expect_sent(&["150 . 101:101(0) ack 401"]);
}

#[test]
fn data_that_comes_twice_ends_a_dialogue() {
    let mut s = ScriptedConnection::established(linux_config());
    inject_small(&mut s, 1, &[10]);
    s.write(50);
    s.run_to(20);
    s.inject_segment("P. 1:101(100) ack 51");
    s.inject_segment("P. 101:201(100) ack 51");
    s.expect_sent(&[
        "10 . 1:1(0) ack 101",
        "10 P. 1:51(50) ack 101",
        "20 . 51:51(0) ack 101",
        "20 . 51:51(0) ack 201",
    ]);
}

#[test]
fn reading_acks_data_and_a_dialogue_acks_the_second_segment() {
    let reads = TcpConfig { quick_ack: false, ack_on_read: true, ..linux_config() };
    let mut s = ScriptedConnection::established(reads.clone());
    inject_small(&mut s, 1, &[10]);
    s.write(50);
    s.expect_sent(&["10 . 1:1(0) ack 101", "10 P. 1:51(50) ack 101"]);
    s.run_to(20);
    s.inject_segment("P. 101:201(100) ack 51");
    s.expect_sent(&[]);
    s.inject_segment("P. 201:301(100) ack 51");
    s.expect_sent(&["20 . 51:51(0) ack 301"]);

    // An application with explicit reads.
    let mut s = ScriptedConnection::established(reads);
    s.c.set_auto_read(false);
    inject_small(&mut s, 1, &[10]);
    s.expect_sent(&[]);
    s.run_to(25);
    s.c.grant_credit(60);
    s.collect_events();
    s.collect_output();
    s.expect_sent(&[]);
    s.c.grant_credit(40);
    s.collect_events();
    s.collect_output();
    s.expect_sent(&["25 . 1:1(0) ack 101 win 65435"]);
}

#[test]
fn the_delay_follows_the_senders_pace_up_to_the_round_trip() {
    let delayed_ack_max = Some(Duration::from_millis(200));
    let mut s =
        ScriptedConnection::connect(TcpConfig { quick_ack: false, delayed_ack_max, ..linux_config() });
    s.run_to(100);
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
    // 40 ms, without data to ride on, so 80 next.
    inject_small(&mut s, 1, &[100]);
    // Half of 80 plus 70 since then: 110; the round trip limits it to 100.
    inject_small(&mut s, 101, &[170]);
    s.run_to(400);
    s.expect_sent(&[
        "0 S 0:0(0) <mss 1000>",
        "100 . 1:1(0) ack 1",
        "140 . 1:1(0) ack 101",
        "270 . 1:1(0) ack 201",
    ]);
}

//! When Linux acknowledges: quick-ack mode, dialogues, what was read, and the sender's pace.

use super::*;

fn linux() -> Config {
    let delayed = DelayedAck { timeout: Duration::from_millis(40), every: AckEvery::LargestSeen(2) };
    Config { delayed_ack: Some(delayed), quick_ack: true, ..config() }
}

/// Small segments that each end a write, at these times; the first has the number `first`.
fn small(s: &mut Script, first: u32, times: &[u64]) {
    for (n, &at) in times.iter().enumerate() {
        s.run_to(at);
        s.inject(&format!("P. {}:0(100) ack 1", first + 100 * n as u32));
    }
}

#[test]
fn the_first_sixteen_segments_are_acknowledged_at_once() {
    let mut s = Script::open(linux());
    let times: Vec<u64> = (1..=17).map(|n| 10 * n).collect();
    small(&mut s, 1, &times[..16]);
    let at_once: Vec<String> = (1..=16).map(|n| format!("{} . 1:1(0) ack {}", 10 * n, 1 + 100 * n)).collect();
    s.expect(&at_once.iter().map(String::as_str).collect::<Vec<_>>());
    small(&mut s, 1601, &times[16..]);
    s.run_to(1000);
    s.expect(&["210 . 1:1(0) ack 1701"]);

    let mut s = Script::open(Config { quick_ack: false, ..linux() });
    small(&mut s, 1, &[10]);
    s.run_to(1000);
    s.expect(&["50 . 1:1(0) ack 101"]);
}

#[test]
fn an_answer_begins_a_dialogue_and_an_acknowledgement_that_waits_in_vain_ends_it() {
    let mut s = Script::open(linux());
    small(&mut s, 1, &[10]);
    s.write(50);
    s.expect(&["10 . 1:1(0) ack 101", "10 P. 1:51(50) ack 101"]);
    s.run_to(20);
    s.inject("P. 101:201(100) ack 51");
    s.run_to(50);
    s.write(50);
    s.expect(&["50 P. 51:101(50) ack 201"]);
    s.run_to(60);
    s.inject("P. 201:301(100) ack 101");
    s.run_to(150);
    s.expect(&["100 . 101:101(0) ack 301"]);
    s.inject("P. 301:401(100) ack 101");
    s.expect(&["150 . 101:101(0) ack 401"]);
}

#[test]
fn data_that_comes_twice_ends_a_dialogue() {
    let mut s = Script::open(linux());
    small(&mut s, 1, &[10]);
    s.write(50);
    s.run_to(20);
    s.inject("P. 1:101(100) ack 51");
    s.inject("P. 101:201(100) ack 51");
    s.expect(&[
        "10 . 1:1(0) ack 101",
        "10 P. 1:51(50) ack 101",
        "20 . 51:51(0) ack 101",
        "20 . 51:51(0) ack 201",
    ]);
}

#[test]
fn what_is_read_is_acknowledged_and_in_a_dialogue_at_the_second_segment() {
    let reads = Config { quick_ack: false, ack_on_read: true, ..linux() };
    let mut s = Script::open(reads.clone());
    small(&mut s, 1, &[10]);
    s.write(50);
    s.expect(&["10 . 1:1(0) ack 101", "10 P. 1:51(50) ack 101"]);
    s.run_to(20);
    s.inject("P. 101:201(100) ack 51");
    s.expect(&[]);
    s.inject("P. 201:301(100) ack 51");
    s.expect(&["20 . 51:51(0) ack 301"]);

    // An application that reads when it likes.
    let mut s = Script::open(reads);
    s.c.set_auto_read(false);
    small(&mut s, 1, &[10]);
    s.expect(&[]);
    s.run_to(25);
    s.c.read(60);
    s.listen();
    s.flush();
    s.expect(&[]);
    s.c.read(40);
    s.listen();
    s.flush();
    s.expect(&["25 . 1:1(0) ack 101 win 65435"]);
}

#[test]
fn the_delay_follows_the_senders_pace_up_to_the_round_trip() {
    let delayed_ack_max = Some(Duration::from_millis(200));
    let mut s = Script::connect(Config { quick_ack: false, delayed_ack_max, ..linux() });
    s.run_to(100);
    s.inject("S. 0:0(0) ack 1 <mss 1000>");
    // 40 ms; in vain, so 80 next.
    small(&mut s, 1, &[100]);
    // Half of 80 and the 70 since: 110, and the round trip is 100.
    small(&mut s, 101, &[170]);
    s.run_to(400);
    s.expect(&[
        "0 S 0:0(0) <mss 1000>",
        "100 . 1:1(0) ack 1",
        "140 . 1:1(0) ack 101",
        "270 . 1:1(0) ack 201",
    ]);
}

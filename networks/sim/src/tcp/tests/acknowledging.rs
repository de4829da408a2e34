//! When acknowledgements are sent (RFC 1122 §4.2.3.2, RFC 5681 §4.2).

use super::*;

#[test]
fn a_lone_segment_is_acknowledged_after_200_ms() {
    let mut s = ScriptedConnection::established(test_config());
    s.run_to(10);
    s.inject_segment("P. 1:201(200) ack 1");
    s.expect_events(&["data 200"]);
    assert_eq!(s.c.poll_timeout(), Some(at_millis(210)));
    s.run_to(1000);
    s.expect_sent(&["210 . 1:1(0) ack 201"]);
    assert_eq!(s.c.stats().pure_acks_sent, 2, "the handshake's and this");
}

#[test]
fn every_second_segment_is_acknowledged_at_once() {
    let mut s = ScriptedConnection::established(test_config());
    for (seq, at) in [(1, 10), (201, 20), (401, 30), (601, 40)] {
        s.run_to(at);
        s.inject_segment(&format!("P. {seq}:0(200) ack 1"));
    }
    s.expect_sent(&["20 . 1:1(0) ack 401", "40 . 1:1(0) ack 801"]);
    assert_eq!(s.c.poll_timeout(), None);
}

#[test]
fn the_count_can_be_another_or_that_of_full_segments() {
    let every =
        |every| TcpConfig { delayed_ack: Some(DelayedAck { every, ..Default::default() }), ..test_config() };
    let mut s = ScriptedConnection::established(every(AckThreshold::Segments(3)));
    for seq in [1, 201, 401] {
        s.inject_segment(&format!("P. {seq}:0(200) ack 1"));
    }
    s.expect_sent(&["0 . 1:1(0) ack 601"]);

    let mut s = ScriptedConnection::established(every(AckThreshold::FullSized(2)));
    for seq in [1, 201, 401] {
        s.inject_segment(&format!("P. {seq}:0(200) ack 1"));
    }
    s.expect_sent(&[]);
    s.inject_segment(". 601:0(1000) ack 1");
    s.expect_sent(&[]);
    s.inject_segment(". 1601:0(400) ack 1");
    s.expect_sent(&["0 . 1:1(0) ack 2001"]);
}

#[test]
fn linux_acks_more_than_the_largest_segment_received() {
    let delayed_ack = Some(DelayedAck { every: AckThreshold::LargestSeen(2), ..Default::default() });
    let mut s = ScriptedConnection::established(TcpConfig { delayed_ack, ..test_config() });
    // Before a larger segment it is 536 octets: 400 are not more, 600 are.
    for seq in [1, 201, 401] {
        s.inject_segment(&format!("P. {seq}:0(200) ack 1"));
    }
    s.expect_sent(&["0 . 1:1(0) ack 601"]);
    // A full segment does not exceed itself; the next segment does.
    s.inject_segment(". 601:0(1000) ack 1");
    s.expect_sent(&[]);
    s.inject_segment("P. 1601:0(1) ack 1");
    s.expect_sent(&["0 . 1:1(0) ack 1602"]);
    // From now on small ones must exceed that.
    for i in 0..5 {
        s.inject_segment(&format!("P. {}:0(200) ack 1", 1602 + 200 * i));
    }
    s.expect_sent(&[]);
    s.inject_segment("P. 2602:0(1) ack 1");
    s.expect_sent(&["0 . 1:1(0) ack 2603"]);
}

#[test]
fn without_delay_every_segment_is_acknowledged() {
    let mut s = ScriptedConnection::established(TcpConfig { delayed_ack: None, ..test_config() });
    s.inject_segment("P. 1:201(200) ack 1");
    s.inject_segment("P. 201:401(200) ack 1");
    s.expect_sent(&["0 . 1:1(0) ack 201", "0 . 1:1(0) ack 401"]);
}

#[test]
fn an_answer_carries_the_acknowledgement() {
    for delayed_ack in [None, Some(DelayedAck::default())] {
        let mut s = ScriptedConnection::established(TcpConfig { delayed_ack, ..test_config() });
        let before = s.c.stats().pure_acks_sent;
        for i in 0..3u32 {
            let seq = 1 + 200 * i;
            s.feed_segment(&format!("P. {seq}:0(200) ack {seq}"));
            s.write(200);
            s.expect_sent(&[&format!("0 P. {seq}:{}(200) ack {}", seq + 200, seq + 200)]);
        }
        s.run_to(900);
        s.expect_sent(&[]);
        assert_eq!(s.c.stats().pure_acks_sent, before);
    }
}

#[test]
fn a_gap_and_its_filling_are_acknowledged_at_once() {
    let mut s = ScriptedConnection::established(test_config());
    s.inject_segment(". 1001:2001(1000) ack 1");
    s.inject_segment(". 3001:4001(1000) ack 1");
    s.inject_segment(". 1:1001(1000) ack 1");
    s.inject_segment(". 2001:3001(1000) ack 1");
    let ack = |n| format!("0 . 1:1(0) ack {n}");
    s.expect_sent(&[&ack(1), &ack(1), &ack(2001), &ack(4001)]);
    s.expect_events(&["data 2000", "data 2000"]);
    assert_eq!(s.c.stats().out_of_order, 2);
}

#[test]
fn duplicates_are_acknowledged_and_not_delivered() {
    let mut s = ScriptedConnection::established(test_config());
    s.inject_segment("P. 1:201(200) ack 1");
    s.inject_segment("P. 1:201(200) ack 1");
    s.expect_sent(&["0 . 1:1(0) ack 201"]);
    s.inject_segment("P. 101:301(200) ack 1");
    s.expect_events(&["data 200", "data 100"]);
    assert_eq!(s.c.stats().duplicate_data, 1);
}

#[test]
fn a_fin_is_acknowledged_at_once() {
    let mut s = ScriptedConnection::established(test_config());
    s.inject_segment("FP. 1:201(200) ack 1");
    s.expect_sent(&["0 . 1:1(0) ack 202"]);
    s.expect_events(&["data 200", "peer closed"]);
}

#[test]
fn a_small_buffer_does_not_wait_for_the_timer() {
    let mut s = ScriptedConnection::connect(TcpConfig { receive_buffer: 1500, ..test_config() });
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
    s.inject_segment(". 1:1001(1000) ack 1");
    s.expect_sent(&[
        "0 S 0:0(0) win 1500 <mss 1000>",
        "0 . 1:1(0) ack 1 win 1500",
        "0 . 1:1(0) ack 1001 win 1500",
    ]);
}

#[test]
fn data_beyond_the_window_is_cut_off() {
    let mut s = ScriptedConnection::connect(TcpConfig { receive_buffer: 500, ..test_config() });
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000>");
    s.inject_segment("F. 1:1001(1000) ack 1");
    s.expect_events(&["connected", "data 500"]);
    assert_eq!(s.c.state(), TcpState::Established, "the FIN lay beyond it");
    s.inject_segment(". 1101:0(10) ack 1");
    assert_eq!(s.c.stats().unacceptable, 1);
}

//! Selective acknowledgement: reports, and repairs by them.

use super::*;

fn sack_config() -> TcpConfig {
    TcpConfig { recovery: LossRecoveryAlgorithm::Sack, limited_transmit: false, ..test_config() }
}
/// Segments in flight to a peer with SACK, with `waiting` octets more.
fn open_in_flight(segments: u32, waiting: u32) -> ScriptedConnection {
    let initial_window = InitialWindow::Segments(segments);
    let config = TcpConfig { initial_window, ..sack_config() };
    let mut s = ScriptedConnection::open_to(config, "S. 0:0(0) ack 1 <mss 1000,sackOK>");
    s.write(segments * 1000 + waiting);
    s.sent.clear();
    s
}

#[test]
fn the_latest_block_is_reported_first() {
    let mut s = ScriptedConnection::open_to(sack_config(), "S. 0:0(0) ack 1 <mss 1000,sackOK>");
    for seq in [1001, 3001, 5001, 7001, 9001, 2001, 1] {
        s.inject_segment(&format!(". {seq}:0(1000) ack 1"));
    }
    let ack = |n, sack: &[&str]| format!("0 . 1:1(0) ack {n} <sack {}>", sack.join(",sack "));
    let lines = [
        ack(1, &["1001:2001"]),
        ack(1, &["3001:4001", "1001:2001"]),
        ack(1, &["5001:6001", "3001:4001", "1001:2001"]),
        ack(1, &["7001:8001", "5001:6001", "3001:4001", "1001:2001"]),
        ack(1, &["9001:10001", "7001:8001", "5001:6001", "3001:4001"]),
        ack(1, &["1001:4001", "9001:10001", "7001:8001", "5001:6001"]),
        ack(4001, &["9001:10001", "7001:8001", "5001:6001"]),
    ];
    s.expect_sent(&lines.each_ref().map(String::as_str));
}

#[test]
fn timestamps_leave_room_for_three_blocks_and_shrink_the_data() {
    let config = TcpConfig { timestamps: true, ..sack_config() };
    let mut s = ScriptedConnection::open_to(config, "S. 0:0(0) ack 1 <mss 1000,sackOK,ts 1:0>");
    for seq in [1001, 3001, 5001, 7001] {
        s.feed_segment(&format!(". {seq}:0(500) ack 1 <ts 1:0>"));
    }
    s.write(1000);
    let blocks = "<ts 0:1,sack 7001:7501,sack 5001:5501,sack 3001:3501>";
    // 1000 less 12 of timestamps and 28 of blocks.
    s.expect_sent(&[&format!("0 . 1:961(960) ack 1 {blocks}"), &format!("0 P. 961:1001(40) ack 1 {blocks}")]);
}

#[test]
fn several_holes_are_repaired_in_one_round_trip() {
    let mut s = open_in_flight(10, 5000);
    let mut step = |text: &str, out: &[&str]| {
        s.inject_segment(&format!(". 1:1(0) {text}>"));
        let out: Vec<String> = out
            .iter()
            .map(|range| {
                let flags = if range.starts_with("14001") { "P." } else { "." };
                format!("0 {flags} {range}(1000) ack 1")
            })
            .collect();
        s.expect_sent(&out.iter().map(String::as_str).collect::<Vec<_>>());
        s.c.cwnd()
    };
    // The 1st, 3rd and 5th segment are lost.
    step("ack 1 <sack 1001:2001", &[]);
    step("ack 1 <sack 3001:4001,sack 1001:2001", &[]);
    // Three ranges above the first hole: recovery, with half of ten segments.
    let cwnd = step("ack 1 <sack 5001:6001,sack 3001:4001,sack 1001:2001", &["1:1001"]);
    assert_eq!(cwnd, 5000);
    // In the pipe: the retransmission, one of two holes (the other now counts as lost), three at the end.
    step("ack 1 <sack 5001:7001,sack 3001:4001,sack 1001:2001", &[]);
    step("ack 1 <sack 5001:8001,sack 3001:4001,sack 1001:2001", &["2001:3001", "4001:5001"]);
    step("ack 1 <sack 5001:9001,sack 3001:4001,sack 1001:2001", &["10001:11001"]);
    step("ack 1 <sack 5001:10001,sack 3001:4001,sack 1001:2001", &["11001:12001"]);
    step("ack 2001 <sack 5001:10001,sack 3001:4001", &["12001:13001"]);
    step("ack 4001 <sack 5001:10001", &["13001:14001"]);
    let cwnd = step("ack 10001 <", &["14001:15001"]);
    assert_eq!(cwnd, 5000);
    let stats = s.c.stats();
    assert_eq!((stats.fast_retransmits, stats.retransmitted, stats.timeouts), (1, 3, 0));
}

#[test]
fn the_last_segment_of_a_window_is_rescued() {
    let mut s = open_in_flight(5, 0);
    s.inject_segment(". 1:1(0) ack 1 <sack 1001:2001>");
    s.inject_segment(". 1:1(0) ack 1 <sack 1001:3001>");
    s.inject_segment(". 1:1(0) ack 1 <sack 1001:4001>");
    s.expect_sent(&["0 . 1:1001(1000) ack 1"]);
    s.inject_segment(". 1:1(0) ack 4001");
    s.expect_sent(&["0 P. 4001:5001(1000) ack 1"]);
    s.inject_segment(". 1:1(0) ack 4001");
    s.expect_sent(&[]);
}

#[test]
fn a_timeout_forgets_the_blocks_and_skips_what_is_reported_anew() {
    let mut s = open_in_flight(5, 0);
    s.inject_segment(". 1:1(0) ack 1 <sack 1001:2001>");
    s.run_to(1000);
    s.expect_sent(&["1000 . 1:1001(1000) ack 1"]);
    s.inject_segment(". 1:1(0) ack 1001 <sack 2001:3001>");
    s.expect_sent(&["1000 . 1001:2001(1000) ack 1"]);
    s.inject_segment(". 1:1(0) ack 3001");
    s.expect_sent(&["1000 . 3001:4001(1000) ack 1", "1000 P. 4001:5001(1000) ack 1"]);
}

#[test]
fn nonsense_blocks_are_no_duplicates() {
    let mut s = open_in_flight(5, 0);
    for block in ["5001:6001", "9:1", "0:1", "1:1001", "4001:5002"] {
        s.inject_segment(&format!(". 1:1(0) ack 1 <sack {block}>"));
    }
    assert_eq!(s.c.stats().duplicate_acks, 0);
    s.expect_sent(&[]);
}

#[test]
fn without_the_peers_consent_it_is_new_reno() {
    let mut s = ScriptedConnection::established(TcpConfig {
        initial_window: InitialWindow::Segments(8),
        ..sack_config()
    });
    s.write(8000);
    s.sent.clear();
    for _ in 0..3 {
        s.inject_segment(". 1:1(0) ack 1");
    }
    s.expect_sent(&["0 . 1:1001(1000) ack 1"]);
    assert_eq!(s.c.cwnd(), 7000);
}

#[test]
fn going_back_stops_where_the_peer_holds_data() {
    let mut s = open_in_flight(5, 0);
    s.run_to(1000);
    s.sent.clear();
    s.inject_segment(". 1:1(0) ack 1001 <sack 1501:3001>");
    s.expect_sent(&["1000 . 1001:1501(500) ack 1"]);
}

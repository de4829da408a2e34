//! Differences of ns-3 from the RFCs, each setting alone.

use super::*;

#[test]
fn an_acknowledgement_that_rides_on_data_moves_the_echo_or_not() {
    use TimestampEcho::{PureAcknowledgements, Rfc7323};
    for (timestamp_echo, second, third) in [(Rfc7323, 200, 300), (PureAcknowledgements, 100, 100)] {
        let config = TcpConfig { timestamps: true, timestamp_echo, ..test_config() };
        let mut s = ScriptedConnection::open_to(config, "S. 0:0(0) ack 1 <mss 1000,ts 50:0>");
        // A pure acknowledgement ended the handshake, so the first segment's timestamp is taken.
        s.feed_segment("P. 1:101(100) ack 1 <ts 100:0>");
        s.write(10);
        s.feed_segment("P. 101:201(100) ack 11 <ts 200:0>");
        s.write(10);
        s.feed_segment("P. 201:301(100) ack 21 <ts 300:0>");
        s.write(10);
        s.expect_sent(&[
            "0 P. 1:11(10) ack 101 <ts 0:100>",
            &format!("0 P. 11:21(10) ack 201 <ts 0:{second}>"),
            &format!("0 P. 21:31(10) ack 301 <ts 0:{third}>"),
        ]);
        // Beyond a gap a pure acknowledgement is sent, and the timestamp of the segment that fills the gap is taken
        // again.
        s.inject_segment("P. 401:501(100) ack 31 <ts 400:0>");
        s.inject_segment("P. 301:401(100) ack 31 <ts 500:0>");
        s.expect_sent(&[&format!("0 . 31:31(0) ack 301 <ts 0:{third}>"), "0 . 31:31(0) ack 501 <ts 0:500>"]);
    }
}

#[test]
fn an_acknowledgement_either_way_forgets_the_doubled_timeout() {
    use BackoffReset::{Acknowledgement, EitherAcknowledgement, Measurement};
    let second = Duration::from_secs(1);
    for (backoff_reset, received, sent) in
        [(Measurement, 2, 2), (Acknowledgement, 1, 2), (EitherAcknowledgement, 1, 1)]
    {
        let open = || {
            ScriptedConnection::established(TcpConfig { backoff_reset, delayed_ack: None, ..test_config() })
        };
        let mut s = open();
        s.write(200);
        s.run_to(1100);
        s.inject_segment(". 1:1(0) ack 201");
        assert_eq!(s.c.rto(), second * received, "{backoff_reset:?}, one that came");
        let mut s = open();
        s.write(200);
        s.run_to(1100);
        s.inject_segment("P. 1:101(100) ack 1");
        assert_eq!(s.c.rto(), second * sent, "{backoff_reset:?}, one that left");
    }
}

#[test]
fn an_ack_clears_the_backoff_before_it_restarts_the_timer() {
    let backoff_reset = BackoffReset::EitherAcknowledgement;
    let mut s = ScriptedConnection::established(TcpConfig { backoff_reset, ..test_config() });
    s.write(200);
    s.write(300);
    s.run_to(1100);
    s.inject_segment(". 1:1(0) ack 201");
    // A second after 1100 ms, and not two.
    s.run_to(2200);
    s.expect_sent(&[
        "0 P. 1:201(200) ack 1",
        "0 P. 201:501(300) ack 1",
        "1000 P. 1:501(500) ack 1",
        "2100 P. 201:501(300) ack 1",
    ]);
}

fn ns3_config() -> TcpConfig {
    TcpConfig {
        recovery: LossRecoveryAlgorithm::Sack,
        congestion: CongestionControl::Cubic,
        loss_recovery: LossRecovery::Ns3,
        initial_window: InitialWindow::Segments(10),
        ..test_config()
    }
}

/// Segments of 100 octets in flight.
fn small_in_flight(segments: u32) -> ScriptedConnection {
    let mut s = ScriptedConnection::open_to(ns3_config(), "S. 0:0(0) ack 1 <mss 1000,sackOK>");
    (0..segments).for_each(|_| s.write(100));
    s.expect_sent(
        &(0..segments)
            .map(|n| format!("0 P. {}:{}(100) ack 1", n * 100 + 1, n * 100 + 101))
            .collect::<Vec<_>>()
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    );
    s
}

#[test]
fn data_below_three_small_segments_is_lost_and_leaves_in_pairs() {
    let mut s = small_in_flight(6);
    s.inject_segment(". 1:1(0) ack 1 <sack 301:401>");
    s.inject_segment(". 1:1(0) ack 1 <sack 301:501>");
    s.expect_sent(&[]);
    // Three segments are lost, and two of them fit one segment of ns-3; the window permits the third. Seven of ten
    // segments are kept. A recovery permits as much as arrives, at least a segment at first.
    s.inject_segment(". 1:1(0) ack 1 <sack 301:601>");
    assert_eq!(s.c.ssthresh(), 7000);
    s.expect_sent(&["0 . 1:201(200) ack 1", "0 . 201:301(100) ack 1"]);
}

#[test]
fn after_a_timeout_sack_reports_stay_and_losses_leave_in_pairs() {
    let mut s = small_in_flight(6);
    s.inject_segment(". 1:1(0) ack 1 <sack 201:301>");
    s.run_to(1000);
    assert_eq!((s.c.cwnd(), s.c.ssthresh()), (1000, 7000));
    s.expect_sent(&["1000 . 1:201(200) ack 1", "1000 . 301:501(200) ack 1", "1000 P. 501:601(100) ack 1"]);
    // Duplicates do not count now.
    for end in [401, 501, 601] {
        s.inject_segment(&format!(". 1:1(0) ack 1 <sack 201:301,sack 301:{end}>"));
    }
    s.expect_sent(&[]);
    s.inject_segment(". 1:1(0) ack 601");
    assert_eq!((s.c.cwnd(), s.c.bytes_in_flight()), (1000, 0));
}

#[test]
fn a_due_ack_leaves_before_data_that_carries_no_sack() {
    let mut s = ScriptedConnection::open_to(
        TcpConfig { deliver_first: true, ..ns3_config() },
        "S. 0:0(0) ack 1 <mss 1000,sackOK>",
    );
    s.feed_segment("P. 101:201(100) ack 1");
    s.c.write(StreamData::Count(50)).unwrap();
    s.collect_output();
    s.expect_sent(&["0 . 1:1(0) ack 1 <sack 101:201>", "0 P. 1:51(50) ack 1"]);
}

#[test]
fn the_first_data_of_a_passive_side_is_acknowledged_at_once() {
    let mut s = ScriptedConnection::accept(ns3_config(), "S 0:0(0) win 65535 <mss 1000,sackOK>");
    s.inject_segment(". 1:1(0) ack 1");
    s.inject_segment("P. 1:101(100) ack 1");
    s.inject_segment("P. 101:201(100) ack 1");
    s.expect_sent(&["0 S. 0:0(0) ack 1 <mss 1000,sackOK>", "0 . 1:1(0) ack 101"]);
}

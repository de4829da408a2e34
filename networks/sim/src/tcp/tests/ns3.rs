//! What ns-3 does otherwise than the RFCs, each setting alone.

use super::*;

#[test]
fn an_acknowledgement_that_rides_on_data_moves_the_echo_or_not() {
    use TimestampEcho::{PureAcknowledgements, Rfc7323};
    for (timestamp_echo, second, third) in [(Rfc7323, 200, 300), (PureAcknowledgements, 100, 100)] {
        let config = Config { timestamps: true, timestamp_echo, ..config() };
        let mut s = Script::open_to(config, "S. 0:0(0) ack 1 <mss 1000,ts 50:0>");
        // The handshake was acknowledged without data, so that the first segment's timestamp is taken.
        s.feed("P. 1:101(100) ack 1 <ts 100:0>");
        s.write(10);
        s.feed("P. 101:201(100) ack 11 <ts 200:0>");
        s.write(10);
        s.feed("P. 201:301(100) ack 21 <ts 300:0>");
        s.write(10);
        s.expect(&[
            "0 P. 1:11(10) ack 101 <ts 0:100>",
            &format!("0 P. 11:21(10) ack 201 <ts 0:{second}>"),
            &format!("0 P. 21:31(10) ack 301 <ts 0:{third}>"),
        ]);
        // Beyond a gap an acknowledgement leaves alone, and what fills the gap is taken again.
        s.inject("P. 401:501(100) ack 31 <ts 400:0>");
        s.inject("P. 301:401(100) ack 31 <ts 500:0>");
        s.expect(&[&format!("0 . 31:31(0) ack 301 <ts 0:{third}>"), "0 . 31:31(0) ack 501 <ts 0:500>"]);
    }
}

#[test]
fn an_acknowledgement_either_way_forgets_the_doubled_timeout() {
    use BackoffReset::{Acknowledgement, EitherAcknowledgement, Measurement};
    let second = Duration::from_secs(1);
    for (backoff_reset, received, sent) in
        [(Measurement, 2, 2), (Acknowledgement, 1, 2), (EitherAcknowledgement, 1, 1)]
    {
        let open = || Script::open(Config { backoff_reset, delayed_ack: None, ..config() });
        let mut s = open();
        s.write(200);
        s.run_to(1100);
        s.inject(". 1:1(0) ack 201");
        assert_eq!(s.c.rto(), second * received, "{backoff_reset:?}, one that came");
        let mut s = open();
        s.write(200);
        s.run_to(1100);
        s.inject("P. 1:101(100) ack 1");
        assert_eq!(s.c.rto(), second * sent, "{backoff_reset:?}, one that left");
    }
}

#[test]
fn an_acknowledgement_forgets_the_doubled_timeout_before_it_restarts_the_timer() {
    let backoff_reset = BackoffReset::EitherAcknowledgement;
    let mut s = Script::open(Config { backoff_reset, ..config() });
    s.write(200);
    s.write(300);
    s.run_to(1100);
    s.inject(". 1:1(0) ack 201");
    // A second after 1100 ms, and not two.
    s.run_to(2200);
    s.expect(&[
        "0 P. 1:201(200) ack 1",
        "0 P. 201:501(300) ack 1",
        "1000 P. 1:501(500) ack 1",
        "2100 P. 201:501(300) ack 1",
    ]);
}

fn sender() -> Config {
    Config {
        recovery: Recovery::Sack,
        congestion: CongestionControl::Cubic,
        loss_recovery: LossRecovery::Ns3,
        initial_window: InitialWindow::Segments(10),
        ..config()
    }
}

/// So many segments of 100 bytes are under way.
fn small(segments: u32) -> Script {
    let mut s = Script::open_to(sender(), "S. 0:0(0) ack 1 <mss 1000,sackOK>");
    (0..segments).for_each(|_| s.write(100));
    s.expect(
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
fn what_lies_below_three_small_segments_is_lost_and_two_of_it_leave_as_one() {
    let mut s = small(6);
    s.inject(". 1:1(0) ack 1 <sack 301:401>");
    s.inject(". 1:1(0) ack 1 <sack 301:501>");
    s.expect(&[]);
    // Three segments are lost, and two of them fit what ns-3 puts together; the third goes by the window. Seven of ten segments
    // are kept, and a recovery lets as much leave as arrives, at least a segment at first.
    s.inject(". 1:1(0) ack 1 <sack 301:601>");
    assert_eq!(s.c.ssthresh(), 7000);
    s.expect(&["0 . 1:201(200) ack 1", "0 . 201:301(100) ack 1"]);
}

#[test]
fn after_a_timeout_reports_are_kept_and_what_is_lost_leaves_two_by_two() {
    let mut s = small(6);
    s.inject(". 1:1(0) ack 1 <sack 201:301>");
    s.run_to(1000);
    assert_eq!((s.c.cwnd(), s.c.ssthresh()), (1000, 7000));
    s.expect(&["1000 . 1:201(200) ack 1", "1000 . 301:501(200) ack 1", "1000 P. 501:601(100) ack 1"]);
    // Duplicates do not count now.
    for end in [401, 501, 601] {
        s.inject(&format!(". 1:1(0) ack 1 <sack 201:301,sack 301:{end}>"));
    }
    s.expect(&[]);
    s.inject(". 1:1(0) ack 601");
    assert_eq!((s.c.cwnd(), s.c.bytes_in_flight()), (1000, 0));
}

#[test]
fn an_acknowledgement_that_is_due_leaves_before_data_which_reports_nothing() {
    let mut s =
        Script::open_to(Config { deliver_first: true, ..sender() }, "S. 0:0(0) ack 1 <mss 1000,sackOK>");
    s.feed("P. 101:201(100) ack 1");
    s.c.write(Data::Count(50)).unwrap();
    s.flush();
    s.expect(&["0 . 1:1(0) ack 1 <sack 101:201>", "0 P. 1:51(50) ack 1"]);
}

#[test]
fn the_first_data_of_a_passive_side_is_acknowledged_at_once() {
    let mut s = Script::accept(sender(), "S 0:0(0) win 65535 <mss 1000,sackOK>");
    s.inject(". 1:1(0) ack 1");
    s.inject("P. 1:101(100) ack 1");
    s.inject("P. 101:201(100) ack 1");
    s.expect(&["0 S. 0:0(0) ack 1 <mss 1000,sackOK>", "0 . 1:1(0) ack 101"]);
}

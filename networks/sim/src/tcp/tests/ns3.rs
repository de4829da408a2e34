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

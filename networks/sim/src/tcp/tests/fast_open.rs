//! Fast Open (RFC 7413), and ICMP errors before a connection is established (RFC 9293 §3.9.2.2).

use super::*;

const COOKIE: &str = "FO 0102030405060708";

fn learned_cache(answers: &[&str]) -> FastOpenCache {
    let mut cache = FastOpenCache::default();
    for answer in answers {
        open_with_answer(&mut cache, answer);
    }
    cache
}

/// Opens with 100 octets to write and handles the answer. Returns the SYN and the segments after it.
fn open_with_answer(cache: &mut FastOpenCache, answer: &str) -> ScriptedConnection {
    let mut c = cache.connect(Arc::new(test_config()), 0, Instant::ZERO);
    c.write(StreamData::Count(100)).unwrap();
    let mut s = ScriptedConnection::from_connection(c);
    s.inject_segment(answer);
    cache.update_fast_open_cache(&s.c);
    s
}

#[test]
fn a_cookie_is_asked_for_and_used_the_next_time() {
    let mut cache = FastOpenCache::default();
    let mut first = open_with_answer(&mut cache, &format!("S. 0:0(0) ack 1 <mss 1000,{COOKIE}>"));
    first.expect_sent(&["0 S 0:0(0) <mss 1000,FO>", "0 P. 1:101(100) ack 1"]);
    let mut second = open_with_answer(&mut cache, "S. 0:0(0) ack 101 <mss 1000>");
    second.expect_sent(&[&format!("0 S 0:100(100) <mss 1000,{COOKIE}>"), "0 . 101:101(0) ack 1"]);
    assert_eq!((second.c.state(), second.c.bytes_in_flight()), (TcpState::Established, 0));
    // A SYN-ACK with data or FIN makes no difference.
    second.inject_segment("P. 1:51(50) ack 101");
    second.expect_events(&["connected", "data 50"]);
    let mut third = open_with_answer(&mut cache, "S. 0:0(0) ack 101 <mss 1000,FO 0a0b0c0d>");
    third.expect_sent(&[&format!("0 S 0:100(100) <mss 1000,{COOKIE}>"), "0 . 101:101(0) ack 1"]);
    let fourth = open_with_answer(&mut cache, "S. 0:0(0) ack 101");
    assert!(fourth.sent[0].contains("FO 0a0b0c0d"), "{:?}", fourth.sent);
}

/// §4.2.2: unacknowledged data of the SYN goes with the next segments. §4.1.3.1: Fast Open then pauses, unless
/// the server gave another cookie.
#[test]
fn data_that_is_not_taken_goes_again_at_once() {
    let with = format!("S. 0:0(0) ack 1 <mss 1000,{COOKIE}>");
    for (answer, then) in [
        ("S. 0:0(0) ack 1 <mss 1000>", "0 S 0:0(0) <mss 1000>"),
        ("S. 0:0(0) ack 1 <mss 1000,FO 0a0b0c0d>", "0 S 0:100(100) <mss 1000,FO 0a0b0c0d>"),
    ] {
        let mut cache = learned_cache(&[&with]);
        let mut s = open_with_answer(&mut cache, answer);
        s.expect_sent(&[&format!("0 S 0:100(100) <mss 1000,{COOKIE}>"), "0 P. 1:101(100) ack 1"]);
        s.inject_segment(". 1:1(0) ack 101");
        assert_eq!((s.c.bytes_in_flight(), s.c.stats().retransmitted), (0, 0));
        let next = open_with_answer(&mut cache, answer);
        assert_eq!(next.sent[0], then);
    }
    // No cookie, or one of an invalid length: the server does not support Fast Open.
    let mut cache = learned_cache(&["S. 0:0(0) ack 1 <mss 1000>"]);
    let mut s = open_with_answer(&mut cache, "S. 0:0(0) ack 1 <mss 1000>");
    s.expect_sent(&["0 S 0:0(0) <mss 1000>", "0 P. 1:101(100) ack 1"]);
}

/// §4.2.2: "when the SYN timer fires, the client SHOULD retransmit a SYN packet without data and Fast Open options".
#[test]
fn a_syn_that_goes_again_is_an_ordinary_one() {
    let cache = learned_cache(&[&format!("S. 0:0(0) ack 1 <mss 1000,{COOKIE}>")]);
    let mut c = cache.connect(Arc::new(test_config()), 0, Instant::ZERO);
    c.write(StreamData::Count(2000)).unwrap();
    let mut s = ScriptedConnection::from_connection(c);
    s.run_to(1000);
    // 16 bytes of options leave 984 of the 1000.
    s.expect_sent(&[&format!("0 S 0:984(984) <mss 1000,{COOKIE}>"), "1000 S 0:0(0) <mss 1000>"]);
    // The first may have arrived nevertheless.
    s.inject_segment("S. 0:0(0) ack 985 <mss 1000>");
    s.expect_sent(&["1000 . 985:1985(1000) ack 1"]);
}

/// RFC 9293 section 3.1: 40 octets hold all options.
#[test]
fn a_cookie_rides_on_the_syn_while_the_options_have_room() {
    let long = FastOpenCookie::new(&[7; 16]).unwrap();
    for (others, fits) in [(0, true), (20, true), (24, false), (40, false)] {
        let mut cache = FastOpenCache::default();
        open_with_answer(&mut cache, &format!("S. 0:0(0) ack 1 <mss 1000,FO {}>", "07".repeat(16)));
        let mut c = cache.connect(Arc::new(test_config()), 0, Instant::ZERO);
        c.write(StreamData::Count(100)).unwrap();
        // 18 octets of option are padded to 20.
        assert_eq!(c.data_on_syn(others), fits.then_some((long, 100)), "beside {others} octets");
    }
}

#[test]
fn the_option_has_the_lengths_of_the_standard() {
    for len in 0..40 {
        let good = [0, 4, 6, 8, 10, 12, 14, 16].contains(&len);
        assert_eq!(FastOpenCookie::new(&vec![7; len]).is_some(), good, "{len}");
        if good && len > 0 {
            let syn = parse_segment(&format!("S 1:1(0) <mss 1000,FO {}>", "07".repeat(len)));
            let mut bytes = Vec::new();
            syn.encode_into(1, 2, &mut bytes);
            assert_eq!(Segment::parse(&bytes), Ok((1, 2, syn)));
        }
    }
    // On the wire an invalid one is skipped, and the options after it are parsed.
    let mut syn = vec![0; 20];
    syn[12..14].copy_from_slice(&[8 << 4, 2]);
    syn.extend([34, 7, 1, 2, 3, 4, 5, 2, 4, 5, 0xb4, 0]);
    let (_, _, read) = Segment::parse(&syn).unwrap();
    assert_eq!(read.options, Some(Box::new(TcpOptions { mss: Some(1460), ..TcpOptions::default() })));
}

#[test]
fn a_hard_error_ends_what_is_not_open_and_nothing_else() {
    let mut s = ScriptedConnection::connect(test_config());
    for (seq, hard) in [(0, false), (1, true), (u32::MAX, true)] {
        s.c.handle_icmp_error(seq, hard);
        assert_eq!(s.c.state(), TcpState::SynSent, "{seq} {hard}");
    }
    s.c.handle_icmp_error(0, true);
    s.collect_events();
    s.closed_for(CloseReason::Refused);

    let mut s = ScriptedConnection::established(test_config());
    s.write(100);
    s.c.handle_icmp_error(1, true);
    assert_eq!((s.c.state(), s.c.bytes_in_flight()), (TcpState::Established, 100));
}

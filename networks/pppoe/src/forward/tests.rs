use super::clamp::tests::segment;
use super::*;
use proptest::prelude::*;
use std::net::Ipv4Addr;

const PORTS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const HOST: [u8; 6] = [2, 0, 0, 0, 1, 1];

fn session(number: u16) -> Session {
    Session {
        number,
        port: 0,
        peer: HOST,
        mtu: 1492,
        ipv4: Some(Ipv4Addr::new(10, 0, 0, number as u8)),
        gateway: Some(Ipv4Addr::new(10, 0, 0, 254)),
        networks: vec![(Ipv4Addr::new(192, 168, number as u8, 0), 24)],
        ipv6: vec![(format!("2001:db8:{number:x}::").parse().unwrap(), 48)],
        link_local: Some([2, 0, 0, 0, 0, 0, 0, 9]),
        rate_up: None,
        rate_down: None,
        clamp_mss: false,
    }
}

fn table() -> Forwarder {
    let mut table = Forwarder::new(PORTS.to_vec(), 7);
    table.install(session(1)).unwrap();
    table.install(session(2)).unwrap();
    table
}

fn packet(source: &str, destination: &str) -> Vec<u8> {
    segment(source.parse().unwrap(), destination.parse().unwrap(), 0x10, &[], b"twelve bytes")
}

/// A frame of a host, as it comes at a port.
fn frame(to: [u8; 6], from: [u8; 6], number: u16, protocol: u16, packet: &[u8]) -> Vec<u8> {
    let mut all = [&to[..], &from, &[0x88, 0x64, 0x11, 0], &number.to_be_bytes()].concat();
    all.extend((packet.len() as u16 + 2).to_be_bytes());
    all.extend(protocol.to_be_bytes());
    all.extend(packet);
    all
}

fn comes(table: &mut Forwarder, port: usize, mut frame: Vec<u8>) -> Upstream {
    table.upstream(Instant::from_nanos(1), port, &mut frame, false)
}

fn goes(table: &mut Forwarder, mut packet: Vec<u8>) -> Option<Downstream> {
    let octets = packet.len();
    table.downstream(Instant::from_nanos(1), &mut packet, false, 1, octets, octets)
}

#[test]
fn a_packet_of_a_session_passes_both_ways_and_is_counted() {
    let mut table = table();
    for (source, protocol) in [("10.0.0.1", IPV4), ("192.168.1.77", IPV4), ("2001:db8:1:5::1", IPV6)] {
        let elsewhere = if protocol == IPV4 { "203.0.113.1" } else { "2001:db8:ffff::1" };
        let sent = packet(source, elsewhere);
        let mut padded = frame(PORTS[0], HOST, 1, protocol, &sent);
        padded.extend([0; 9]);
        assert_eq!(comes(&mut table, 0, padded), Upstream::Packet(HEADROOM..HEADROOM + sent.len()));
        let answer = packet(elsewhere, source);
        let to = goes(&mut table, answer.clone()).unwrap();
        let mut front = [0; HEADROOM];
        to.write(answer.len(), &mut front);
        assert_eq!(
            (to.port, [&front[..], &answer].concat()),
            (0, frame(HOST, PORTS[0], 1, protocol, &answer))
        );
    }
    let each = (2 * packet("10.0.0.1", "10.0.0.2").len() + packet("2001:db8::", "2001:db8::").len()) as u64;
    let usage =
        Usage { octets_in: each, octets_out: each, packets_in: 3, packets_out: 3, spoofed: 0, limited: 0 };
    assert_eq!(table.usage(1), Some(usage));
    assert_eq!(table.changed(), [1]);
    assert!(table.changed().is_empty());
    assert_eq!(table.remove(1), Some(usage));
    assert_eq!(
        comes(&mut table, 0, frame(PORTS[0], HOST, 1, IPV4, &packet("10.0.0.1", "10.0.0.2"))),
        Upstream::Dropped
    );
    assert_eq!(goes(&mut table, packet("10.0.0.2", "10.0.0.1")), None);
    assert_eq!((table.counters.no_session, table.counters.no_host), (1, 1));
}

#[test]
fn what_is_not_the_sessions_own_is_dropped() {
    let good = packet("10.0.0.1", "203.0.113.1");
    let other = [2, 0, 0, 0, 1, 7];
    let cases: &[(&str, usize, Vec<u8>)] = &[
        ("no_session", 0, frame(PORTS[0], HOST, 9, IPV4, &good)),
        ("no_session", 0, frame(PORTS[0], HOST, 0, IPV4, &good)),
        ("no_session", 0, frame(PORTS[0], HOST, 0xffff, IPV4, &good)),
        ("wrong_station", 1, frame(PORTS[1], HOST, 1, IPV4, &good)),
        ("wrong_station", 0, frame(PORTS[0], other, 1, IPV4, &good)),
        ("wrong_station", 0, frame([0xff; 6], HOST, 1, IPV4, &good)),
        ("spoofed", 0, frame(PORTS[0], HOST, 1, IPV4, &packet("10.0.0.2", "203.0.113.1"))),
        ("spoofed", 0, frame(PORTS[0], HOST, 1, IPV4, &packet("192.168.2.1", "203.0.113.1"))),
        ("spoofed", 0, frame(PORTS[0], HOST, 1, IPV6, &packet("2001:db8:2::1", "2001:db8:ffff::1"))),
        ("spoofed", 0, frame(PORTS[0], HOST, 1, IPV6, &packet("fe80::9", "ff02::2"))),
        ("malformed", 0, frame(PORTS[0], HOST, 1, IPV6, &good)),
        ("malformed", 0, frame(PORTS[0], HOST, 1, IPV4, &packet("2001:db8:1::1", "2001:db8::1"))),
        ("malformed", 0, frame(PORTS[0], HOST, 1, IPV4, &good[..good.len() - 1])),
        ("malformed", 0, frame(PORTS[0], HOST, 1, IPV4, &good)[..60].to_vec()),
        ("malformed", 0, frame(PORTS[0], HOST, 1, IPV4, &[])),
        ("malformed", 0, PORTS[0].to_vec()),
    ];
    for (counter, port, frame) in cases {
        let mut table = table();
        assert_eq!(comes(&mut table, *port, frame.clone()), Upstream::Dropped, "{counter}: {frame:02x?}");
        let counted: Vec<_> =
            table.counters.iter().filter(|(name, n)| *n > 0 && *name != "frames_in").collect();
        assert_eq!(counted, [(*counter, 1)], "{frame:02x?}");
        let spoofed = u64::from(*counter == "spoofed");
        assert_eq!(table.usage(1), Some(Usage { spoofed, ..Usage::default() }));
    }
    let mut version = frame(PORTS[0], HOST, 1, IPV4, &good);
    version[14] = 0x21;
    assert_eq!(comes(&mut table(), 0, version), Upstream::Dropped);
}

#[test]
fn what_hosts_and_concentrator_say_to_each_other_is_handed_up() {
    let mut table = table();
    let lcp = frame(PORTS[0], HOST, 77, 0xc021, &[1, 1, 0, 4]);
    let discovery = [&[0xff; 6][..], &HOST, &[0x88, 0x63, 0x11, 9, 0, 0, 0, 0]].concat();
    // What a router is asked, from the address that IPv6CP gave or from none, and by an address of the session's.
    let asked = [
        packet("fe80::200:0:0:9", "ff02::2"),
        packet("::", "ff02::1:ff00:1"),
        packet("2001:db8:1::5", "fe80::1"),
    ];
    for frame in
        [lcp, discovery].into_iter().chain(asked.map(|packet| frame(PORTS[0], HOST, 1, IPV6, &packet)))
    {
        assert_eq!(comes(&mut table, 0, frame.clone()), Upstream::Control, "{frame:02x?}");
    }
    assert_eq!((table.counters.control, table.usage(1)), (5, Some(Usage::default())));
}

#[test]
fn a_rate_limit_holds_and_an_update_that_keeps_it_gives_no_new_burst() {
    let mut table = table();
    let limited = Session { rate_up: Some(1_000_000), rate_down: Some(1_000_000), ..session(1) };
    table.install(limited.clone()).unwrap();
    let sent = packet("10.0.0.1", "203.0.113.1");
    let passes = |table: &mut Forwarder| {
        let up =
            (0..9000).filter(|_| comes(table, 0, frame(PORTS[0], HOST, 1, IPV4, &sent)) != Upstream::Dropped);
        let up = up.count();
        (up, (0..9000).filter(|_| goes(table, packet("203.0.113.1", "10.0.0.1")).is_some()).count())
    };
    let most = (1 << 17) / sent.len();
    assert_eq!(passes(&mut table), (most, most));
    table.install(Session { mtu: 1400, ..limited.clone() }).unwrap();
    assert_eq!(passes(&mut table), (0, 0));
    let usage = table.usage(1).unwrap();
    assert_eq!((usage.limited, table.counters.limited), (36_000 - 2 * most as u64, 36_000 - 2 * most as u64));
    table.install(session(1)).unwrap();
    assert_eq!(passes(&mut table), (9000, 9000));
}

#[test]
fn sizes_are_lowered_both_ways_and_too_long_packets_lost() {
    let mut table = table();
    table.install(Session { clamp_mss: true, ..session(1) }).unwrap();
    let (own, other): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "203.0.113.1".parse().unwrap());
    let mut came = frame(PORTS[0], HOST, 1, IPV4, &segment(own, other, 2, &[2, 4, 0x05, 0xb4], b""));
    let Upstream::Packet(range) = table.upstream(Instant::from_nanos(1), 0, &mut came, false) else {
        panic!()
    };
    assert_eq!(came[range], segment(own, other, 2, &[2, 4, 0x05, 0xac], b""));
    let mut went = segment(other, own, 0x12, &[2, 4, 0x05, 0xb4], b"");
    assert!(table.downstream(Instant::from_nanos(1), &mut went, false, 1, 44, 44).is_some());
    assert_eq!(went, segment(other, own, 0x12, &[2, 4, 0x05, 0xac], b""));
    let long = segment(own, other, 0x10, &[], &[0; 1453]);
    assert_eq!(comes(&mut table, 0, frame(PORTS[0], HOST, 1, IPV4, &long)), Upstream::Dropped);
    assert_eq!(goes(&mut table, segment(other, own, 0x10, &[], &[0; 1453])), None);
    assert_eq!(table.counters.too_long, 2);
}

#[test]
fn a_session_that_cannot_be_changes_nothing() {
    let mut table = table();
    let network = "192.168.2.0".parse().unwrap();
    let taken = Session { networks: vec![(Ipv4Addr::new(192, 168, 2, 0), 24)], ..session(1) };
    assert_eq!(table.install(taken), Err(SessionError::Taken { network, bits: 24, other: 2 }));
    for (wrong, error) in [
        (Session { number: 0xffff, ..session(3) }, SessionError::Number(0xffff)),
        (Session { port: 2, ..session(3) }, SessionError::Port { port: 2, ports: 2 }),
        (Session { mtu: 1279, ..session(3) }, SessionError::Mtu { mtu: 1279, least: 1280 }),
        (Session { networks: vec![([10, 0, 0, 0].into(), 33)], ..session(3) }, {
            SessionError::Length { network: [10, 0, 0, 0].into(), bits: 33 }
        }),
    ] {
        assert_eq!(table.install(wrong), Err(error));
    }
    assert!(goes(&mut table, packet("203.0.113.1", "192.168.1.1")).is_some());
    assert_eq!(table.usage(3), None);
    // An address that an update leaves out is the session's no more.
    table.install(Session { networks: Vec::new(), ..session(1) }).unwrap();
    assert!(goes(&mut table, packet("203.0.113.1", "192.168.1.1")).is_none());
    assert!(goes(&mut table, packet("203.0.113.1", "10.0.0.1")).is_some());
}

proptest! {
    #[test]
    fn whatever_comes_nothing_passes_that_is_not_the_sessions_own(
        octets in proptest::collection::vec(any::<u8>(), 0..200), from in 0usize..24,
    ) {
        prop_assert!(fuzz::forward(&octets));
        let good = frame([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], 0x0102, IPV4, &packet("10.0.0.2", "203.0.113.1"));
        let mut altered = good.clone();
        for (at, octet) in altered.iter_mut().skip(from).zip(&octets) {
            *at = *octet;
        }
        prop_assert!(fuzz::forward(&altered));
        prop_assert!(fuzz::forward(good.get(18..).unwrap()));
    }
}

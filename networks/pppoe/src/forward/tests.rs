use super::clamp::tests::tcp_segment;
use super::*;
use proptest::prelude::*;
use std::net::Ipv4Addr;

const PORTS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const HOST: [u8; 6] = [2, 0, 0, 0, 1, 1];

fn test_session(number: u16) -> DataPlaneSession {
    DataPlaneSession {
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

fn test_table() -> ForwardingTable {
    let mut table = ForwardingTable::new(PORTS.to_vec(), 7);
    table.install(test_session(1)).unwrap();
    table.install(test_session(2)).unwrap();
    table
}

fn test_packet(source: &str, destination: &str) -> Vec<u8> {
    tcp_segment(source.parse().unwrap(), destination.parse().unwrap(), 0x10, &[], b"twelve bytes")
}

/// Builds a frame of a host as it arrives at a port.
fn session_frame(to: [u8; 6], from: [u8; 6], number: u16, protocol: u16, packet: &[u8]) -> Vec<u8> {
    let mut all = [&to[..], &from, &[0x88, 0x64, 0x11, 0], &number.to_be_bytes()].concat();
    all.extend((packet.len() as u16 + 2).to_be_bytes());
    all.extend(protocol.to_be_bytes());
    all.extend(packet);
    all
}

fn receive_frame(table: &mut ForwardingTable, port: usize, mut frame: Vec<u8>) -> UpstreamVerdict {
    table.process_upstream(Instant::from_nanos(1), port, &mut frame, false)
}

fn route_packet(table: &mut ForwardingTable, mut packet: Vec<u8>) -> Option<DownstreamFrameHeader> {
    let octets = packet.len();
    table.process_downstream(Instant::from_nanos(1), &mut packet, false, 1, octets, octets)
}

#[test]
fn a_packet_of_a_session_passes_both_ways_and_is_counted() {
    let mut table = test_table();
    for (source, protocol) in [("10.0.0.1", IPV4), ("192.168.1.77", IPV4), ("2001:db8:1:5::1", IPV6)] {
        let elsewhere = if protocol == IPV4 { "203.0.113.1" } else { "2001:db8:ffff::1" };
        let sent = test_packet(source, elsewhere);
        let mut padded = session_frame(PORTS[0], HOST, 1, protocol, &sent);
        padded.extend([0; 9]);
        assert_eq!(
            receive_frame(&mut table, 0, padded),
            UpstreamVerdict::Packet(HEADROOM..HEADROOM + sent.len())
        );
        let answer = test_packet(elsewhere, source);
        let to = route_packet(&mut table, answer.clone()).unwrap();
        let mut front = [0; HEADROOM];
        to.write_session_headers(answer.len(), &mut front);
        assert_eq!(
            (to.port, [&front[..], &answer].concat()),
            (0, session_frame(HOST, PORTS[0], 1, protocol, &answer))
        );
    }
    let each = (2 * test_packet("10.0.0.1", "10.0.0.2").len() + test_packet("2001:db8::", "2001:db8::").len())
        as u64;
    let usage = DataPlaneUsage {
        octets_in: each,
        octets_out: each,
        packets_in: 3,
        packets_out: 3,
        spoofed: 0,
        limited: 0,
    };
    assert_eq!(table.usage(1), Some(usage));
    assert_eq!(table.take_changed(), [1]);
    assert!(table.take_changed().is_empty());
    assert_eq!(table.remove(1), Some(usage));
    assert_eq!(
        receive_frame(
            &mut table,
            0,
            session_frame(PORTS[0], HOST, 1, IPV4, &test_packet("10.0.0.1", "10.0.0.2"))
        ),
        UpstreamVerdict::Dropped
    );
    assert_eq!(route_packet(&mut table, test_packet("10.0.0.2", "10.0.0.1")), None);
    assert_eq!((table.counters.no_session, table.counters.no_host), (1, 1));
}

#[test]
fn what_is_not_the_sessions_own_is_dropped() {
    let good = test_packet("10.0.0.1", "203.0.113.1");
    let other = [2, 0, 0, 0, 1, 7];
    let cases: &[(&str, usize, Vec<u8>)] = &[
        ("no_session", 0, session_frame(PORTS[0], HOST, 9, IPV4, &good)),
        ("no_session", 0, session_frame(PORTS[0], HOST, 0, IPV4, &good)),
        ("no_session", 0, session_frame(PORTS[0], HOST, 0xffff, IPV4, &good)),
        ("wrong_station", 1, session_frame(PORTS[1], HOST, 1, IPV4, &good)),
        ("wrong_station", 0, session_frame(PORTS[0], other, 1, IPV4, &good)),
        ("wrong_station", 0, session_frame([0xff; 6], HOST, 1, IPV4, &good)),
        ("spoofed", 0, session_frame(PORTS[0], HOST, 1, IPV4, &test_packet("10.0.0.2", "203.0.113.1"))),
        ("spoofed", 0, session_frame(PORTS[0], HOST, 1, IPV4, &test_packet("192.168.2.1", "203.0.113.1"))),
        (
            "spoofed",
            0,
            session_frame(PORTS[0], HOST, 1, IPV6, &test_packet("2001:db8:2::1", "2001:db8:ffff::1")),
        ),
        ("spoofed", 0, session_frame(PORTS[0], HOST, 1, IPV6, &test_packet("fe80::9", "ff02::2"))),
        ("malformed", 0, session_frame(PORTS[0], HOST, 1, IPV6, &good)),
        (
            "malformed",
            0,
            session_frame(PORTS[0], HOST, 1, IPV4, &test_packet("2001:db8:1::1", "2001:db8::1")),
        ),
        ("malformed", 0, session_frame(PORTS[0], HOST, 1, IPV4, &good[..good.len() - 1])),
        ("malformed", 0, session_frame(PORTS[0], HOST, 1, IPV4, &good)[..60].to_vec()),
        ("malformed", 0, session_frame(PORTS[0], HOST, 1, IPV4, &[])),
        ("malformed", 0, PORTS[0].to_vec()),
    ];
    for (counter, port, frame) in cases {
        let mut table = test_table();
        assert_eq!(
            receive_frame(&mut table, *port, frame.clone()),
            UpstreamVerdict::Dropped,
            "{counter}: {frame:02x?}"
        );
        let counted: Vec<_> =
            table.counters.iter().filter(|(name, n)| *n > 0 && *name != "frames_in").collect();
        assert_eq!(counted, [(*counter, 1)], "{frame:02x?}");
        let spoofed = u64::from(*counter == "spoofed");
        assert_eq!(table.usage(1), Some(DataPlaneUsage { spoofed, ..DataPlaneUsage::default() }));
    }
    let mut version = session_frame(PORTS[0], HOST, 1, IPV4, &good);
    version[14] = 0x21;
    assert_eq!(receive_frame(&mut test_table(), 0, version), UpstreamVerdict::Dropped);
}

#[test]
fn what_hosts_and_concentrator_say_to_each_other_is_handed_up() {
    let mut table = test_table();
    let lcp = session_frame(PORTS[0], HOST, 77, 0xc021, &[1, 1, 0, 4]);
    let discovery = [&[0xff; 6][..], &HOST, &[0x88, 0x63, 0x11, 9, 0, 0, 0, 0]].concat();
    // Link-scope packets: from a link-local address, from the unspecified one, and to a link-local address.
    let asked = [
        test_packet("fe80::200:0:0:9", "ff02::2"),
        test_packet("::", "ff02::1:ff00:1"),
        test_packet("2001:db8:1::5", "fe80::1"),
    ];
    for frame in [lcp, discovery]
        .into_iter()
        .chain(asked.map(|packet| session_frame(PORTS[0], HOST, 1, IPV6, &packet)))
    {
        assert_eq!(receive_frame(&mut table, 0, frame.clone()), UpstreamVerdict::Control, "{frame:02x?}");
    }
    assert_eq!((table.counters.control, table.usage(1)), (5, Some(DataPlaneUsage::default())));
}

#[test]
fn a_rate_limit_holds_and_an_unchanged_one_gives_no_new_burst() {
    let mut table = test_table();
    let limited =
        DataPlaneSession { rate_up: Some(1_000_000), rate_down: Some(1_000_000), ..test_session(1) };
    table.install(limited.clone()).unwrap();
    let sent = test_packet("10.0.0.1", "203.0.113.1");
    let passes = |table: &mut ForwardingTable| {
        let up = (0..9000).filter(|_| {
            receive_frame(table, 0, session_frame(PORTS[0], HOST, 1, IPV4, &sent)) != UpstreamVerdict::Dropped
        });
        let up = up.count();
        (
            up,
            (0..9000)
                .filter(|_| route_packet(table, test_packet("203.0.113.1", "10.0.0.1")).is_some())
                .count(),
        )
    };
    let most = (1 << 17) / sent.len();
    assert_eq!(passes(&mut table), (most, most));
    table.install(DataPlaneSession { mtu: 1400, ..limited.clone() }).unwrap();
    assert_eq!(passes(&mut table), (0, 0));
    let usage = table.usage(1).unwrap();
    assert_eq!((usage.limited, table.counters.limited), (36_000 - 2 * most as u64, 36_000 - 2 * most as u64));
    table.install(test_session(1)).unwrap();
    assert_eq!(passes(&mut table), (9000, 9000));
}

#[test]
fn sizes_are_lowered_both_ways_and_too_long_packets_lost() {
    let mut table = test_table();
    table.install(DataPlaneSession { clamp_mss: true, ..test_session(1) }).unwrap();
    let (own, other): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "203.0.113.1".parse().unwrap());
    let mut came =
        session_frame(PORTS[0], HOST, 1, IPV4, &tcp_segment(own, other, 2, &[2, 4, 0x05, 0xb4], b""));
    let UpstreamVerdict::Packet(range) = table.process_upstream(Instant::from_nanos(1), 0, &mut came, false)
    else {
        panic!()
    };
    assert_eq!(came[range], tcp_segment(own, other, 2, &[2, 4, 0x05, 0xac], b""));
    let mut went = tcp_segment(other, own, 0x12, &[2, 4, 0x05, 0xb4], b"");
    assert!(table.process_downstream(Instant::from_nanos(1), &mut went, false, 1, 44, 44).is_some());
    assert_eq!(went, tcp_segment(other, own, 0x12, &[2, 4, 0x05, 0xac], b""));
    let long = tcp_segment(own, other, 0x10, &[], &[0; 1453]);
    assert_eq!(
        receive_frame(&mut table, 0, session_frame(PORTS[0], HOST, 1, IPV4, &long)),
        UpstreamVerdict::Dropped
    );
    assert_eq!(route_packet(&mut table, tcp_segment(other, own, 0x10, &[], &[0; 1453])), None);
    assert_eq!(table.counters.too_long, 2);
}

#[test]
fn a_session_that_cannot_be_changes_nothing() {
    let mut table = test_table();
    let network = "192.168.2.0".parse().unwrap();
    let taken = DataPlaneSession { networks: vec![(Ipv4Addr::new(192, 168, 2, 0), 24)], ..test_session(1) };
    assert_eq!(table.install(taken), Err(SessionInstallError::NetworkTaken { network, bits: 24, other: 2 }));
    for (wrong, error) in [
        (DataPlaneSession { number: 0xffff, ..test_session(3) }, SessionInstallError::Number(0xffff)),
        (DataPlaneSession { port: 2, ..test_session(3) }, SessionInstallError::Port { port: 2, ports: 2 }),
        (
            DataPlaneSession { mtu: 1279, ..test_session(3) },
            SessionInstallError::Mtu { mtu: 1279, least: 1280 },
        ),
        (DataPlaneSession { networks: vec![([10, 0, 0, 0].into(), 33)], ..test_session(3) }, {
            SessionInstallError::Length { network: [10, 0, 0, 0].into(), bits: 33 }
        }),
    ] {
        assert_eq!(table.install(wrong), Err(error));
    }
    assert!(route_packet(&mut table, test_packet("203.0.113.1", "192.168.1.1")).is_some());
    assert_eq!(table.usage(3), None);
    // An address that is missing in an update no longer belongs to the session.
    table.install(DataPlaneSession { networks: Vec::new(), ..test_session(1) }).unwrap();
    assert!(route_packet(&mut table, test_packet("203.0.113.1", "192.168.1.1")).is_none());
    assert!(route_packet(&mut table, test_packet("203.0.113.1", "10.0.0.1")).is_some());
}

proptest! {
    #[test]
    fn whatever_comes_nothing_passes_that_is_not_the_sessions_own(
        octets in proptest::collection::vec(any::<u8>(), 0..200), from in 0usize..24,
    ) {
        prop_assert!(fuzz::check_forwarding(&octets));
        let good = session_frame([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], 0x0102, IPV4, &test_packet("10.0.0.2", "203.0.113.1"));
        let mut altered = good.clone();
        for (at, octet) in altered.iter_mut().skip(from).zip(&octets) {
            *at = *octet;
        }
        prop_assert!(fuzz::check_forwarding(&altered));
        prop_assert!(fuzz::check_forwarding(good.get(18..).unwrap()));
    }
}

//! Databases: what becomes of which packet, and by which SA.

use super::{gcm, mirrored, network, pair, udp, v4};
use crate::ip::{self, IpPacket};
use crate::plane::{Arrival, Carried, Config, Decision, Mode, OperationError, Outer, Received};
use crate::sa::Expiry;
use crate::{Action, Event, Lifetime, Operation, Plane, Policy, PolicyId, SaPair, TrafficSelector};
use std::net::SocketAddr;
use usher_core::{Duration, Instant, SecureRng};

const NOW: Instant = Instant::ZERO;

fn plane(config: Config) -> Plane {
    Plane::new(config, SecureRng::from_seed([1; 32]))
}

fn install(plane: &mut Plane, pair: SaPair) {
    assert_eq!(plane.apply(NOW, Operation::Install(pair.into())), Ok(()));
}

/// A plane with this pair, and one with that of the other side.
fn two(pair: &SaPair) -> (Plane, Plane) {
    let (mut a, mut b) = (plane(Config::default()), plane(Config::default()));
    install(&mut a, pair.clone());
    install(&mut b, mirrored(pair));
    (a, b)
}

fn decide(plane: &mut Plane, packet: &[u8]) -> Decision {
    plane.outbound(NOW, &IpPacket::parse(packet).unwrap())
}

/// Sends a packet by whatever pair is for it.
fn send(plane: &mut Plane, packet: &[u8]) -> Option<(Vec<u8>, Carried)> {
    let parsed = IpPacket::parse(packet).unwrap();
    let Decision::Protect(spi) = plane.outbound(NOW, &parsed) else { return None };
    let carried = plane.carried(spi, &parsed)?;
    let transform = *plane.transform(spi)?;
    let octets = &packet[carried.payload.clone()];
    let mut buf = vec![0; transform.packet_len(octets.len())];
    buf[transform.headroom()..][..octets.len()].copy_from_slice(octets);
    let length = plane.seal(spi, &mut buf, octets.len(), carried.next_header)?;
    buf.truncate(length);
    Some((buf, carried))
}

/// Receives it as the other side does.
fn receive(plane: &mut Plane, sent: &(Vec<u8>, Carried)) -> Option<Vec<u8>> {
    let outer = sent.1.outer;
    let outer = Outer { local: outer.remote, remote: outer.local, ..outer };
    take(plane, sent.0.clone(), outer, sent.1.traffic_class)
}

fn take(plane: &mut Plane, mut octets: Vec<u8>, outer: Outer, traffic_class: u8) -> Option<Vec<u8>> {
    match plane.open(NOW, &Arrival { outer, traffic_class }, &mut octets)? {
        Received::Packet(range) => Some(octets[range].to_vec()),
        Received::Payload { payload, protocol, source, destination, traffic_class } => {
            let mut packet = Vec::new();
            ip::write_header(&mut packet, source, destination, protocol, traffic_class, payload.len());
            packet.extend(&octets[payload]);
            Some(packet)
        }
    }
}

fn policy(id: u32, local: &str, remote: &str, action: Action) -> Policy {
    Policy { id: PolicyId(id), local: vec![network(local)], remote: vec![network(remote)], action }
}

fn events(plane: &mut Plane) -> Vec<Event> {
    std::iter::from_fn(|| plane.poll_event()).collect()
}

#[test]
fn packets_of_both_families_go_through_a_tunnel() {
    let mut pair = pair(true, gcm(), 20);
    pair.local.push(network("2001:db8:1::/48"));
    pair.remote.push(network("2001:db8:2::/48"));
    let (mut a, mut b) = two(&pair);
    for packet in [
        udp("10.1.0.7", "10.2.0.9", (1000, 2000), b"there"),
        udp("2001:db8:1::1", "2001:db8:2::1", (1, 2), b"there, too"),
    ] {
        let sent = send(&mut a, &packet).unwrap();
        assert_eq!(sent.1.outer, pair.outer);
        assert!(!sent.0.windows(5).any(|octets| octets == b"there"), "it is enciphered");
        assert_eq!(receive(&mut b, &sent), Some(packet));
    }
    let back = udp("10.2.0.9", "10.1.0.7", (2000, 1000), b"and back");
    let sent = send(&mut b, &back).unwrap();
    assert_eq!(receive(&mut a, &sent), Some(back));
    let usage = a.usage(pair.inbound).unwrap();
    assert_eq!((usage.sent.packets, usage.received.packets, usage.received.octets), (2, 1, 36));
    assert_eq!((usage.last_received, a.pairs()), (Some(NOW), vec![pair.inbound]));
}

#[test]
fn what_is_behind_the_inner_packet_is_padding() {
    let pair = pair(true, gcm(), 20);
    let (mut a, mut b) = two(&pair);
    let packet = udp("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    let padded = [&packet[..], &[0x55; 300]].concat();
    let mut buf = vec![0; gcm().packet_len(padded.len())];
    buf[16..16 + padded.len()].copy_from_slice(&padded);
    let length = a.seal(pair.inbound, &mut buf, padded.len(), 4).unwrap();
    let sent = (
        buf[..length].to_vec(),
        Carried { payload: 0..0, next_header: 4, traffic_class: 0, outer: pair.outer },
    );
    assert_eq!(receive(&mut b, &sent), Some(packet));
}

#[test]
fn what_comes_by_an_sa_and_is_not_of_its_traffic_is_dropped() {
    let pair = pair(true, gcm(), 20);
    let (mut a, mut b) = two(&pair);
    let good = udp("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    for (octets, next) in [
        (udp("10.3.0.7", "10.2.0.9", (1, 2), b"data"), 4),
        (udp("10.1.0.7", "10.9.0.9", (1, 2), b"data"), 4),
        (udp("10.2.0.9", "10.1.0.7", (1, 2), b"data"), 4),
        (udp("2001:db8:1::1", "2001:db8:2::1", (1, 2), b"data"), 41),
        (good.clone(), 41),
        (good.clone(), 17),
        (good[..19].to_vec(), 4),
        (Vec::new(), 4),
    ] {
        let mut buf = vec![0; gcm().packet_len(octets.len())];
        buf[16..16 + octets.len()].copy_from_slice(&octets);
        let length = a.seal(pair.inbound, &mut buf, octets.len(), next).unwrap();
        let before = b.counters().selectors;
        assert_eq!(take(&mut b, buf[..length].to_vec(), mirrored(&pair).outer, 0), None);
        assert_eq!(b.counters().selectors, before + 1, "{octets:02x?}");
    }
    assert_eq!((b.counters().opened, b.counters().integrity), (0, 0));
}

#[test]
fn ports_and_protocols_select_too() {
    let mut one = pair(true, gcm(), 20);
    let web = TrafficSelector { protocol: 17, start_port: 80, end_port: 90, ..network("10.2.0.0/16") };
    one.remote = vec![web];
    let (mut a, _) = two(&one);
    for (port, decision) in
        [(79, Decision::Discard), (80, Decision::Protect(one.inbound)), (91, Decision::Discard)]
    {
        assert_eq!(decide(&mut a, &udp("10.1.0.7", "10.2.0.9", (5, port), b"data")), decision, "{port}");
    }
    // A later fragment has no ports, and is of an SA for all of them, or for what cannot be seen.
    let mut fragment = udp("10.1.0.7", "10.2.0.9", (5, 80), b"data");
    fragment[7] = 9;
    assert_eq!(decide(&mut a, &fragment), Decision::Discard);
    let mut opaque = pair(true, gcm(), 20);
    (opaque.inbound, opaque.outbound) = (0x2001, 0x2002);
    opaque.remote =
        vec![TrafficSelector { protocol: 17, start_port: u16::MAX, end_port: 0, ..network("10.2.0.0/16") }];
    install(&mut a, opaque);
    assert_eq!(decide(&mut a, &fragment), Decision::Protect(0x2001));
    assert_eq!(decide(&mut a, &udp("10.1.0.7", "10.2.0.9", (5, 79), b"data")), Decision::Discard);
}

#[test]
fn the_first_policy_that_a_packet_is_of_decides() {
    let mut plane = plane(Config { otherwise: Action::Forward, ..Config::default() });
    let policies = vec![
        policy(1, "10.1.0.0/16", "10.2.5.0/24", Action::Forward),
        policy(2, "10.1.9.0/24", "10.2.0.0/16", Action::Discard),
        policy(3, "10.1.0.0/16", "10.2.0.0/16", Action::Protect),
    ];
    assert_eq!(plane.apply(NOW, Operation::Policies(policies)), Ok(()));
    install(&mut plane, SaPair { policy: Some(PolicyId(3)), ..pair(true, gcm(), 20) });
    for (source, destination, decision) in [
        ("10.1.9.1", "10.2.5.1", Decision::Forward),
        ("10.1.9.1", "10.2.6.1", Decision::Discard),
        ("10.1.8.1", "10.2.6.1", Decision::Protect(0x1001)),
        ("10.7.8.1", "10.2.6.1", Decision::Forward),
    ] {
        for _ in 0..2 {
            let packet = udp(source, destination, (1, 2), b"data");
            assert_eq!(decide(&mut plane, &packet), decision, "{source} {destination}");
        }
    }
    assert_eq!((plane.counters().forwarded, plane.counters().discarded), (4, 2));
    // An SA of one policy carries nothing of another, though its traffic would fit.
    let other = vec![policy(4, "10.1.0.0/16", "10.2.0.0/16", Action::Protect)];
    assert_eq!(plane.apply(NOW, Operation::Policies(other)), Ok(()));
    let packet = udp("10.1.8.1", "10.2.6.1", (1, 2), b"data");
    assert_eq!(decide(&mut plane, &packet), Decision::Hold(PolicyId(4)));
}

/// The way a ping begins: the first packet asks for an SA, and goes when it is there.
#[test]
fn the_first_packet_asks_for_an_sa_and_waits_for_it() {
    let mut plane = plane(Config::default());
    let policies = vec![policy(7, "10.1.0.0/16", "10.2.0.0/16", Action::Protect)];
    assert_eq!(plane.apply(NOW, Operation::Policies(policies)), Ok(()));
    let packets: Vec<_> = (0..3).map(|n| udp("10.1.0.7", "10.2.0.9", (1, n), b"first")).collect();
    for packet in &packets {
        assert_eq!(decide(&mut plane, packet), Decision::Hold(PolicyId(7)));
        plane.hold(NOW, PolicyId(7), packet);
    }
    let flow = IpPacket::parse(&packets[0]).unwrap().flow;
    assert_eq!(events(&mut plane), [Event::Acquire { policy: PolicyId(7), flow }], "it is asked for once");
    assert_eq!(plane.poll_released(), None);
    install(&mut plane, SaPair { policy: Some(PolicyId(7)), ..pair(true, gcm(), 20) });
    let released: Vec<_> = std::iter::from_fn(|| plane.poll_released()).collect();
    assert_eq!(released, packets);
    assert_eq!(decide(&mut plane, &packets[0]), Decision::Protect(0x1001));
    assert_eq!((plane.counters().held, plane.counters().not_held), (3, 0));
}

#[test]
fn what_waits_is_bounded_in_number_size_and_time() {
    let config = Config { held_packets: 3, held_octets: 200, ..Config::default() };
    let mut plane = plane(config);
    let policies = vec![policy(7, "10.1.0.0/16", "10.2.0.0/16", Action::Protect)];
    assert_eq!(plane.apply(NOW, Operation::Policies(policies.clone())), Ok(()));
    let packet = |n: u16, size| udp("10.1.0.7", "10.2.0.9", (1, n), &vec![0; size]);
    let wait = |plane: &mut Plane, at: u64, packet: &[u8]| {
        let now = NOW + Duration::from_secs(at);
        let parsed = IpPacket::parse(packet).unwrap();
        assert_eq!(plane.outbound(now, &parsed), Decision::Hold(PolicyId(7)));
        plane.hold(now, PolicyId(7), packet);
        plane.counters().held - plane.counters().not_held
    };
    assert_eq!((0..5).map(|n| wait(&mut plane, 0, &packet(n, 1))).collect::<Vec<_>>(), [1, 2, 3, 3, 3]);
    assert_eq!(wait(&mut plane, 1, &packet(9, 150)), 1, "an octet more than fits beside it");
    assert_eq!(wait(&mut plane, 1, &packet(9, 500)), 0, "more than is kept of all");
    assert_eq!(wait(&mut plane, 2, &packet(10, 1)), 1);
    assert_eq!(wait(&mut plane, 40, &packet(11, 1)), 1, "the one before has waited too long");
    let asked = events(&mut plane);
    assert_eq!(asked.len(), 2, "asked again after five seconds, not before: {asked:?}");
    // Whoever was asked says that there will be none.
    assert_eq!(plane.apply(NOW, Operation::Abandon(PolicyId(7))), Ok(()));
    assert_eq!(plane.counters().held, plane.counters().not_held);
    wait(&mut plane, 41, &packet(12, 1));
    assert_eq!(events(&mut plane).len(), 1, "and the next packet asks again");
    // Another policy may let go what waits.
    let forward = vec![policy(8, "10.1.0.0/16", "10.2.0.0/16", Action::Forward)];
    let later = NOW + Duration::from_secs(42);
    assert_eq!(plane.apply(later, Operation::Policies(forward)), Ok(()));
    assert_eq!(plane.poll_released(), Some(packet(12, 1)));
}

#[test]
fn a_new_pair_takes_the_place_of_an_old_one() {
    let old = pair(true, gcm(), 20);
    let new = SaPair { inbound: 0x2001, outbound: 0x2002, replaces: Some(0x1001), ..old.clone() };
    let packet = udp("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    // Who asked for it sends by it at once; the other side then does, too.
    let (mut a, mut b) = two(&old);
    install(&mut b, SaPair { after_peer: true, replaces: Some(0x1002), ..mirrored(&new) });
    let back = udp("10.2.0.9", "10.1.0.7", (2, 1), b"back");
    assert_eq!(decide(&mut b, &back), Decision::Protect(0x1002), "the other side may not have it yet");
    install(&mut a, new.clone());
    assert_eq!(decide(&mut a, &packet), Decision::Protect(0x2001));
    let sent = send(&mut a, &packet).unwrap();
    assert_eq!(receive(&mut b, &sent), Some(packet.clone()));
    assert_eq!(decide(&mut b, &back), Decision::Protect(0x2002));
    // Or the old one goes before anything came.
    let (_, mut b) = two(&old);
    install(&mut b, SaPair { after_peer: true, replaces: Some(0x1002), ..mirrored(&new) });
    assert_eq!(b.apply(NOW, Operation::Remove { inbound: 0x1002 }), Ok(()));
    assert_eq!(decide(&mut b, &back), Decision::Protect(0x2002));
    // What is under way by the old one arrives as long as that is there.
    let sent = {
        let (mut a, _) = two(&old);
        send(&mut a, &packet).unwrap()
    };
    assert_eq!(receive(&mut b, &sent), None);
    assert_eq!(b.counters().unknown_spi, 1);
}

/// As when somebody proves anew who he is by an IKE_SA of its own: nothing says which pair the new one is to replace.
#[test]
fn a_new_pair_of_the_same_traffic_waits_for_its_peer_too() {
    let old = pair(true, gcm(), 20);
    let new = SaPair { inbound: 0x2001, outbound: 0x2002, ..old.clone() };
    let (mut a, mut b) = two(&old);
    install(&mut b, SaPair { after_peer: true, ..mirrored(&new) });
    let back = udp("10.2.0.9", "10.1.0.7", (2, 1), b"back");
    assert_eq!(decide(&mut b, &back), Decision::Protect(0x1002));
    install(&mut a, new);
    let sent = send(&mut a, &udp("10.1.0.7", "10.2.0.9", (1, 2), b"data")).unwrap();
    assert!(receive(&mut b, &sent).is_some());
    assert_eq!(decide(&mut b, &back), Decision::Protect(0x2002));
    // One of other traffic waits for nobody.
    let other = SaPair { inbound: 0x3001, outbound: 0x3002, remote: vec![network("10.3.0.0/16")], ..old };
    install(&mut b, SaPair { after_peer: true, ..mirrored(&other) });
    assert_eq!(decide(&mut b, &udp("10.3.0.9", "10.1.0.7", (2, 1), b"back")), Decision::Protect(0x3002));
}

#[test]
fn what_pairs_have_carried_is_told_once() {
    let (mut a, mut b) = two(&pair(true, gcm(), 20));
    assert_eq!((a.changed(), b.changed()), (vec![], vec![]));
    let packet = udp("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    let sent = send(&mut a, &packet).unwrap();
    receive(&mut b, &sent).unwrap();
    let told: Vec<_> = b.changed();
    assert_eq!((told.len(), told[0].0, told[0].1.received.packets), (1, 0x1002, 1));
    assert_eq!(told[0].1.received.octets, packet.len() as u64);
    assert_eq!((b.changed(), b.usages()), (vec![], told), "nothing has changed since");
    assert_eq!(a.changed()[0].1.sent.packets, 1);
}

/// What was agreed on with somebody is not asked for again by a policy.
#[test]
fn a_pair_of_no_policy_serves_one() {
    let mut plane = plane(Config::default());
    let protect = vec![policy(7, "10.1.0.0/16", "10.2.0.0/16", Action::Protect)];
    assert_eq!(plane.apply(NOW, Operation::Policies(protect)), Ok(()));
    let packet = udp("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    assert_eq!(decide(&mut plane, &packet), Decision::Hold(PolicyId(7)));
    install(&mut plane, pair(true, gcm(), 20));
    assert_eq!(decide(&mut plane, &packet), Decision::Protect(0x1001));
}

#[test]
fn many_pairs_are_found_by_their_hosts() {
    let mut plane = plane(Config::default());
    let host = |n: u32| v4(&format!("10.2.{}.{}", n / 250, n % 250));
    for n in 0..1000 {
        let one = SaPair {
            inbound: 0x10_000 + n,
            outbound: 0x20_000 + n,
            remote: vec![TrafficSelector::address(host(n))],
            ..pair(true, gcm(), 20)
        };
        install(&mut plane, one);
    }
    for n in [0, 1, 500, 999] {
        let packet = udp("10.1.0.7", &host(n).to_string(), (1, 2), b"data");
        assert_eq!(decide(&mut plane, &packet), Decision::Protect(0x10_000 + n));
        assert_eq!(plane.apply(NOW, Operation::Remove { inbound: 0x10_000 + n }), Ok(()));
        assert_eq!(decide(&mut plane, &packet), Decision::Discard);
        assert!(
            matches!(events(&mut plane)[..], [Event::Removed { inbound, .. }] if inbound == 0x10_000 + n)
        );
    }
}

#[test]
fn a_pair_moves_with_its_other_side() {
    let mut one = pair(true, gcm(), 20);
    one.follow = true;
    let (mut a, mut b) = two(&one);
    let packet = udp("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    let back = udp("10.2.0.9", "10.1.0.7", (2, 1), b"back");
    let elsewhere: SocketAddr = "198.51.100.9:40000".parse().unwrap();
    let from = |local, remote| Outer { local, remote, encapsulated: true };
    let first = send(&mut b, &back).unwrap().0;
    let second = send(&mut b, &back).unwrap().0;
    // A NAT has given the other side another address, and an old packet does not lead back.
    assert!(take(&mut a, second, from(one.outer.local, elsewhere), 0).is_some());
    assert_eq!(events(&mut a), [Event::Roamed { inbound: 0x1001, remote: elsewhere }]);
    assert!(take(&mut a, first, from(one.outer.local, one.outer.remote), 0).is_some());
    assert_eq!(send(&mut a, &packet).unwrap().1.outer.remote, elsewhere);
    assert_eq!(events(&mut a), []);
    // By MOBIKE it is said where it is, to an IPv6 address if need be.
    let outer = Outer {
        local: "[2001:db8::1]:4500".parse().unwrap(),
        remote: "[2001:db8::2]:4500".parse().unwrap(),
        encapsulated: false,
    };
    assert_eq!(a.apply(NOW, Operation::Move { inbound: 0x1001, outer }), Ok(()));
    assert_eq!(send(&mut a, &packet).unwrap().1.outer, outer);
    let mixed = Outer { remote: elsewhere, ..outer };
    let moved = a.apply(NOW, Operation::Move { inbound: 0x1001, outer: mixed });
    assert_eq!(moved, Err(OperationError::Nothing(0x1001)));
}

#[test]
fn transport_mode_carries_payloads_between_the_two_ends() {
    for encapsulated in [true, false] {
        let mut one = pair(true, gcm(), 20);
        one.mode = Mode::Transport;
        one.outer.encapsulated = encapsulated;
        one.local = vec![network("192.0.2.1/32")];
        one.remote = vec![network("192.0.2.2/32")];
        let (mut a, mut b) = two(&one);
        let packet = udp("192.0.2.1", "192.0.2.2", (1000, 2000), b"there");
        let sent = send(&mut a, &packet).unwrap();
        assert_eq!((sent.1.payload.clone(), sent.1.next_header), (20..33, 17));
        let received = receive(&mut b, &sent).unwrap();
        assert_eq!(received[20..], packet[20..]);
        let read = IpPacket::parse(&received).unwrap();
        assert_eq!(read.flow, IpPacket::parse(&packet).unwrap().flow);
        let mut fragment = packet.clone();
        fragment[6] = 0x20;
        assert_eq!(send(&mut a, &fragment), None);
        assert_eq!(a.counters().not_transportable, 1);
    }
    // Behind a NAT the addresses are others, and so is the checksum that TCP and UDP have of them (RFC 3948 §3.1.2).
    let mut one = pair(true, gcm(), 20);
    one.mode = Mode::Transport;
    one.local = vec![network("192.0.2.1/32")];
    one.remote = vec![network("0.0.0.0/0")];
    let mut theirs = mirrored(&one);
    theirs.local = vec![network("10.0.0.5/32")];
    let (mut a, mut b) = (plane(Config::default()), plane(Config::default()));
    install(&mut a, one.clone());
    install(&mut b, theirs);
    let packet = udp("10.0.0.5", "192.0.2.1", (9, 10), b"from behind");
    let sent = send(&mut b, &packet).unwrap();
    let nat =
        Outer { local: one.outer.local, remote: "198.51.100.1:4500".parse().unwrap(), encapsulated: true };
    let received = take(&mut a, sent.0, nat, 0).unwrap();
    assert_eq!(received[20..], udp("198.51.100.1", "192.0.2.1", (9, 10), b"from behind")[20..]);
}

#[test]
fn class_and_congestion_are_those_of_the_inner_packet() {
    let one = pair(true, gcm(), 20);
    let (mut a, mut b) = two(&one);
    let mut packet = udp("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    packet[1] = 0xb8 | 2;
    packet[10..12].fill(0);
    let code = ip::checksum(ip::sum(&packet[..20], 0));
    packet[10..12].copy_from_slice(&code);
    let (octets, carried) = send(&mut a, &packet).unwrap();
    assert_eq!(carried.traffic_class, 0xb8 | 2);
    // A router on the way has met congestion.
    let received = take(&mut b, octets, mirrored(&one).outer, 0xb8 | 3).unwrap();
    assert_eq!(received[1], 0xb8 | 3);
    assert_eq!(ip::checksum(ip::sum(&received[..20], 0)), [0, 0]);
}

#[test]
fn the_end_of_an_sa_is_told() {
    let lifetime = Lifetime { soft_packets: Some(1), hard_packets: Some(2), ..Lifetime::default() };
    let one = SaPair { lifetime, ..pair(true, gcm(), 20) };
    let (mut a, mut b) = two(&one);
    let packet = udp("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    let sent: Vec<_> = (0..3).map(|_| send(&mut a, &packet)).collect();
    assert!(sent[2].is_none());
    let expiries = |inbound| [Expiry::Soft, Expiry::Hard].map(|expiry| Event::Expire { inbound, expiry });
    assert_eq!((events(&mut a), a.counters().expired), (expiries(0x1001).to_vec(), 1));
    sent.iter().flatten().for_each(|sent| assert!(receive(&mut b, sent).is_some()));
    assert_eq!(events(&mut b), expiries(0x1002)[..1]);
}

#[test]
fn operations_that_cannot_be_change_nothing() {
    let one = pair(true, gcm(), 20);
    let (mut a, _) = two(&one);
    let refused = |a: &mut Plane, pair: SaPair| a.apply(NOW, Operation::Install(pair.into())).unwrap_err();
    assert_eq!(refused(&mut a, one.clone()), OperationError::SpiTaken(0x1001));
    let other = SaPair { inbound: 0x3001, ..one.clone() };
    assert_eq!(refused(&mut a, SaPair { outbound: 255, ..other.clone() }), OperationError::ReservedSpi(255));
    assert_eq!(
        refused(&mut a, SaPair { local: Vec::new(), ..other.clone() }),
        OperationError::Nothing(0x3001)
    );
    let outer = Outer { local: "[::1]:4500".parse().unwrap(), ..one.outer };
    assert_eq!(refused(&mut a, SaPair { outer, ..other.clone() }), OperationError::Nothing(0x3001));
    let mut keyless = other;
    keyless.inbound_keys.cipher = Vec::new().into();
    assert!(matches!(refused(&mut a, keyless), OperationError::Transform(0x3001, _)));
    for unknown in [Operation::Remove { inbound: 9 }, Operation::Move { inbound: 9, outer: one.outer }] {
        assert_eq!(a.apply(NOW, unknown), Err(OperationError::UnknownSpi(9)));
    }
    assert_eq!(a.pairs(), [0x1001]);
}

#[test]
fn what_is_no_packet_of_ours_is_counted() {
    let (mut a, _) = two(&pair(true, gcm(), 20));
    let arrival = Arrival { outer: pair(true, gcm(), 20).outer, traffic_class: 0 };
    for octets in [&[0; 7][..], &[0, 0, 0x10, 1, 0, 0, 0, 1], &[9; 40]] {
        assert_eq!(a.open(NOW, &arrival, &mut octets.to_vec()), None);
    }
    assert_eq!(a.other(&[0xff]), None);
    assert_eq!(a.other(&[1, 2]), None);
    assert_eq!(a.other(&[0, 0, 0, 0, 7]), Some(&[7][..]));
    let counted = a.counters();
    assert_eq!((counted.length, counted.unknown_spi, counted.keepalives, counted.not_esp), (2, 1, 1, 1));
}

/// RFC 4303 §2.1: up to 255 they are reserved.
#[test]
fn the_first_spi_that_may_be_is_256() {
    let first = SaPair { inbound: 256, outbound: 256, ..pair(true, gcm(), 20) };
    let mut plane = plane(Config::default());
    for outbound in [255, 0] {
        let reserved = Operation::Install(SaPair { outbound, ..first.clone() }.into());
        assert_eq!(plane.apply(NOW, reserved), Err(OperationError::ReservedSpi(outbound)));
    }
    install(&mut plane, first);
    assert_eq!(plane.pairs(), [256]);
}

#[test]
fn an_sa_that_does_not_come_is_asked_for_again_when_its_time_is_over() {
    let mut plane = plane(Config { again: Duration::from_secs(5), ..Config::default() });
    let policies = vec![policy(7, "10.1.0.0/16", "10.2.0.0/16", Action::Protect)];
    assert_eq!(plane.apply(NOW, Operation::Policies(policies)), Ok(()));
    let packet = udp("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    let parsed = IpPacket::parse(&packet).unwrap();
    for (millis, asked) in [(0, 1), (4999, 0), (5000, 1), (5001, 0), (9999, 0), (10_000, 1)] {
        let now = NOW + Duration::from_millis(millis);
        assert_eq!(plane.outbound(now, &parsed), Decision::Hold(PolicyId(7)));
        assert_eq!(events(&mut plane).len(), asked, "at {millis} ms");
    }
}

/// A policy before all SAs holds in both directions, however wide an SA is that was agreed on.
#[test]
fn what_a_policy_drops_is_not_taken_by_an_sa_either() {
    let (mut a, mut b) = two(&pair(true, gcm(), 20));
    let policies = vec![
        policy(1, "10.2.0.0/16", "10.1.9.0/24", Action::Discard),
        policy(2, "10.2.0.0/16", "10.1.8.0/24", Action::Forward),
    ];
    b.apply(NOW, Operation::Policies(policies)).unwrap();
    for (source, taken) in [("10.1.9.7", false), ("10.1.8.7", true), ("10.1.7.7", true)] {
        let packet = udp(source, "10.2.0.9", (5, 6), b"data");
        let sent = send(&mut a, &packet).unwrap();
        assert_eq!(receive(&mut b, &sent).is_some(), taken, "{source}");
    }
    assert_eq!((b.counters().discarded, b.counters().opened, b.counters().selectors), (1, 2, 0));
    // What says that it is of a network that the SA is not for is counted apart.
    let mut wide = pair(true, gcm(), 20);
    wide.local = vec![network("10.0.0.0/8")];
    let (mut a, _) = two(&wide);
    let (_, mut b) = two(&pair(true, gcm(), 20));
    let sent = send(&mut a, &udp("10.7.0.1", "10.2.0.9", (5, 6), b"data")).unwrap();
    assert_eq!((receive(&mut b, &sent), b.counters().selectors), (None, 1));
    // So is what this side would send and is of no network of its own.
    let stranger = udp("10.7.0.1", "10.1.0.9", (5, 6), b"data");
    assert_eq!((decide(&mut b, &stranger), b.counters().discarded), (Decision::Discard, 1));
}

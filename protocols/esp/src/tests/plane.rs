//! The data plane: the decision on each packet, and its SA.

use super::{gcm_transform, ipv4_address, mirror_pair, network_selector, test_pair, udp_packet};
use crate::ip::{self, IpPacket};
use crate::plane::{
    EspDataPlaneConfig, IpsecMode, IpsecOperationError, OutboundDecision, OutboundPayload, OuterAddresses,
    PacketArrival, ReceivedPacket,
};
use crate::sa::SaExpiry;
use crate::{
    EspDataPlane, EspEvent, IpsecOperation, PolicyAction, SaLifetime, SaPair, SecurityPolicy,
    SecurityPolicyId, TrafficSelector,
};
use std::net::SocketAddr;
use usher_core::{Duration, Instant, SecureRng};

const NOW: Instant = Instant::ZERO;

fn test_plane(config: EspDataPlaneConfig) -> EspDataPlane {
    EspDataPlane::new(config, SecureRng::from_seed([1; 32]))
}

fn install_pair(plane: &mut EspDataPlane, pair: SaPair) {
    assert_eq!(plane.apply_operation(NOW, IpsecOperation::Install(pair.into())), Ok(()));
}

/// A data plane with this pair, and one with its mirror.
fn plane_pair(pair: &SaPair) -> (EspDataPlane, EspDataPlane) {
    let (mut a, mut b) =
        (test_plane(EspDataPlaneConfig::default()), test_plane(EspDataPlaneConfig::default()));
    install_pair(&mut a, pair.clone());
    install_pair(&mut b, mirror_pair(pair));
    (a, b)
}

fn decide_packet(plane: &mut EspDataPlane, packet: &[u8]) -> OutboundDecision {
    plane.decide_outbound(NOW, &IpPacket::parse(packet).unwrap())
}

/// Sends a packet by the pair that matches it.
fn send_packet(plane: &mut EspDataPlane, packet: &[u8]) -> Option<(Vec<u8>, OutboundPayload)> {
    let parsed = IpPacket::parse(packet).unwrap();
    let OutboundDecision::Protect(spi) = plane.decide_outbound(NOW, &parsed) else { return None };
    let carried = plane.outbound_payload(spi, &parsed)?;
    let transform = *plane.transform(spi)?;
    let octets = &packet[carried.payload.clone()];
    let mut buf = vec![0; transform.packet_len(octets.len())];
    buf[transform.headroom()..][..octets.len()].copy_from_slice(octets);
    let length = plane.seal(spi, &mut buf, octets.len(), carried.next_header)?;
    buf.truncate(length);
    Some((buf, carried))
}

/// Receives it at the other end.
fn receive_packet(plane: &mut EspDataPlane, sent: &(Vec<u8>, OutboundPayload)) -> Option<Vec<u8>> {
    let outer = sent.1.outer;
    let outer = OuterAddresses { local: outer.remote, remote: outer.local, ..outer };
    open_packet(plane, sent.0.clone(), outer, sent.1.traffic_class)
}

fn open_packet(
    plane: &mut EspDataPlane,
    mut octets: Vec<u8>,
    outer: OuterAddresses,
    traffic_class: u8,
) -> Option<Vec<u8>> {
    match plane.open(NOW, &PacketArrival { outer, traffic_class }, &mut octets)? {
        ReceivedPacket::Packet(range) => Some(octets[range].to_vec()),
        ReceivedPacket::Payload { payload, protocol, source, destination, traffic_class } => {
            let mut packet = Vec::new();
            ip::write_header(&mut packet, source, destination, protocol, traffic_class, payload.len());
            packet.extend(&octets[payload]);
            Some(packet)
        }
    }
}

fn test_policy(id: u32, local: &str, remote: &str, action: PolicyAction) -> SecurityPolicy {
    SecurityPolicy {
        id: SecurityPolicyId(id),
        local: vec![network_selector(local)],
        remote: vec![network_selector(remote)],
        action,
    }
}

fn drain_events(plane: &mut EspDataPlane) -> Vec<EspEvent> {
    std::iter::from_fn(|| plane.poll_event()).collect()
}

#[test]
fn packets_of_both_families_go_through_a_tunnel() {
    let mut pair = test_pair(true, gcm_transform(), 20);
    pair.local.push(network_selector("2001:db8:1::/48"));
    pair.remote.push(network_selector("2001:db8:2::/48"));
    let (mut a, mut b) = plane_pair(&pair);
    for packet in [
        udp_packet("10.1.0.7", "10.2.0.9", (1000, 2000), b"there"),
        udp_packet("2001:db8:1::1", "2001:db8:2::1", (1, 2), b"there, too"),
    ] {
        let sent = send_packet(&mut a, &packet).unwrap();
        assert_eq!(sent.1.outer, pair.outer);
        assert!(!sent.0.windows(5).any(|octets| octets == b"there"), "it is enciphered");
        assert_eq!(receive_packet(&mut b, &sent), Some(packet));
    }
    let back = udp_packet("10.2.0.9", "10.1.0.7", (2000, 1000), b"and back");
    let sent = send_packet(&mut b, &back).unwrap();
    assert_eq!(receive_packet(&mut a, &sent), Some(back));
    let usage = a.pair_usage(pair.inbound).unwrap();
    assert_eq!((usage.sent.packets, usage.received.packets, usage.received.octets), (2, 1, 36));
    assert_eq!((usage.last_received, a.inbound_spis()), (Some(NOW), vec![pair.inbound]));
}

#[test]
fn what_is_behind_the_inner_packet_is_padding() {
    let pair = test_pair(true, gcm_transform(), 20);
    let (mut a, mut b) = plane_pair(&pair);
    let packet = udp_packet("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    let padded = [&packet[..], &[0x55; 300]].concat();
    let mut buf = vec![0; gcm_transform().packet_len(padded.len())];
    buf[16..16 + padded.len()].copy_from_slice(&padded);
    let length = a.seal(pair.inbound, &mut buf, padded.len(), 4).unwrap();
    let sent = (
        buf[..length].to_vec(),
        OutboundPayload { payload: 0..0, next_header: 4, traffic_class: 0, outer: pair.outer },
    );
    assert_eq!(receive_packet(&mut b, &sent), Some(packet));
}

#[test]
fn what_comes_by_an_sa_and_is_not_of_its_traffic_is_dropped() {
    let pair = test_pair(true, gcm_transform(), 20);
    let (mut a, mut b) = plane_pair(&pair);
    let good = udp_packet("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    for (octets, next) in [
        (udp_packet("10.3.0.7", "10.2.0.9", (1, 2), b"data"), 4),
        (udp_packet("10.1.0.7", "10.9.0.9", (1, 2), b"data"), 4),
        (udp_packet("10.2.0.9", "10.1.0.7", (1, 2), b"data"), 4),
        (udp_packet("2001:db8:1::1", "2001:db8:2::1", (1, 2), b"data"), 41),
        (good.clone(), 41),
        (good.clone(), 17),
        (good[..19].to_vec(), 4),
        (Vec::new(), 4),
    ] {
        let mut buf = vec![0; gcm_transform().packet_len(octets.len())];
        buf[16..16 + octets.len()].copy_from_slice(&octets);
        let length = a.seal(pair.inbound, &mut buf, octets.len(), next).unwrap();
        let before = b.counters().selectors;
        assert_eq!(open_packet(&mut b, buf[..length].to_vec(), mirror_pair(&pair).outer, 0), None);
        assert_eq!(b.counters().selectors, before + 1, "{octets:02x?}");
    }
    assert_eq!((b.counters().opened, b.counters().integrity), (0, 0));
}

#[test]
fn ports_and_protocols_select_too() {
    let mut one = test_pair(true, gcm_transform(), 20);
    let web =
        TrafficSelector { protocol: 17, start_port: 80, end_port: 90, ..network_selector("10.2.0.0/16") };
    one.remote = vec![web];
    let (mut a, _) = plane_pair(&one);
    for (port, decision) in [
        (79, OutboundDecision::Discard),
        (80, OutboundDecision::Protect(one.inbound)),
        (91, OutboundDecision::Discard),
    ] {
        assert_eq!(
            decide_packet(&mut a, &udp_packet("10.1.0.7", "10.2.0.9", (5, port), b"data")),
            decision,
            "{port}"
        );
    }
    // A later fragment has no ports. Its SA covers all ports, or OPAQUE ones.
    let mut fragment = udp_packet("10.1.0.7", "10.2.0.9", (5, 80), b"data");
    fragment[7] = 9;
    assert_eq!(decide_packet(&mut a, &fragment), OutboundDecision::Discard);
    let mut opaque = test_pair(true, gcm_transform(), 20);
    (opaque.inbound, opaque.outbound) = (0x2001, 0x2002);
    opaque.remote = vec![TrafficSelector {
        protocol: 17,
        start_port: u16::MAX,
        end_port: 0,
        ..network_selector("10.2.0.0/16")
    }];
    install_pair(&mut a, opaque);
    assert_eq!(decide_packet(&mut a, &fragment), OutboundDecision::Protect(0x2001));
    assert_eq!(
        decide_packet(&mut a, &udp_packet("10.1.0.7", "10.2.0.9", (5, 79), b"data")),
        OutboundDecision::Discard
    );
}

#[test]
fn the_first_policy_that_a_packet_is_of_decides() {
    let mut plane =
        test_plane(EspDataPlaneConfig { otherwise: PolicyAction::Forward, ..EspDataPlaneConfig::default() });
    let policies = vec![
        test_policy(1, "10.1.0.0/16", "10.2.5.0/24", PolicyAction::Forward),
        test_policy(2, "10.1.9.0/24", "10.2.0.0/16", PolicyAction::Discard),
        test_policy(3, "10.1.0.0/16", "10.2.0.0/16", PolicyAction::Protect),
    ];
    assert_eq!(plane.apply_operation(NOW, IpsecOperation::Policies(policies)), Ok(()));
    install_pair(
        &mut plane,
        SaPair { policy: Some(SecurityPolicyId(3)), ..test_pair(true, gcm_transform(), 20) },
    );
    for (source, destination, decision) in [
        ("10.1.9.1", "10.2.5.1", OutboundDecision::Forward),
        ("10.1.9.1", "10.2.6.1", OutboundDecision::Discard),
        ("10.1.8.1", "10.2.6.1", OutboundDecision::Protect(0x1001)),
        ("10.7.8.1", "10.2.6.1", OutboundDecision::Forward),
    ] {
        for _ in 0..2 {
            let packet = udp_packet(source, destination, (1, 2), b"data");
            assert_eq!(decide_packet(&mut plane, &packet), decision, "{source} {destination}");
        }
    }
    assert_eq!((plane.counters().forwarded, plane.counters().discarded), (4, 2));
    // An SA of one policy carries nothing of another, even if its selectors match.
    let other = vec![test_policy(4, "10.1.0.0/16", "10.2.0.0/16", PolicyAction::Protect)];
    assert_eq!(plane.apply_operation(NOW, IpsecOperation::Policies(other)), Ok(()));
    let packet = udp_packet("10.1.8.1", "10.2.6.1", (1, 2), b"data");
    assert_eq!(decide_packet(&mut plane, &packet), OutboundDecision::Queue(SecurityPolicyId(4)));
}

/// Like a ping: the first packet requests an SA, and is sent when the SA is there.
#[test]
fn the_first_packet_asks_for_an_sa_and_waits_for_it() {
    let mut plane = test_plane(EspDataPlaneConfig::default());
    let policies = vec![test_policy(7, "10.1.0.0/16", "10.2.0.0/16", PolicyAction::Protect)];
    assert_eq!(plane.apply_operation(NOW, IpsecOperation::Policies(policies)), Ok(()));
    let packets: Vec<_> = (0..3).map(|n| udp_packet("10.1.0.7", "10.2.0.9", (1, n), b"first")).collect();
    for packet in &packets {
        assert_eq!(decide_packet(&mut plane, packet), OutboundDecision::Queue(SecurityPolicyId(7)));
        plane.queue_packet(NOW, SecurityPolicyId(7), packet);
    }
    let flow = IpPacket::parse(&packets[0]).unwrap().flow;
    assert_eq!(
        drain_events(&mut plane),
        [EspEvent::Acquire { policy: SecurityPolicyId(7), flow }],
        "it is asked for once"
    );
    assert_eq!(plane.poll_released_packet(), None);
    install_pair(
        &mut plane,
        SaPair { policy: Some(SecurityPolicyId(7)), ..test_pair(true, gcm_transform(), 20) },
    );
    let released: Vec<_> = std::iter::from_fn(|| plane.poll_released_packet()).collect();
    assert_eq!(released, packets);
    assert_eq!(decide_packet(&mut plane, &packets[0]), OutboundDecision::Protect(0x1001));
    assert_eq!((plane.counters().queued, plane.counters().queue_dropped), (3, 0));
}

#[test]
fn what_waits_is_bounded_in_number_size_and_time() {
    let config =
        EspDataPlaneConfig { max_queued_packets: 3, max_queued_octets: 200, ..EspDataPlaneConfig::default() };
    let mut plane = test_plane(config);
    let policies = vec![test_policy(7, "10.1.0.0/16", "10.2.0.0/16", PolicyAction::Protect)];
    assert_eq!(plane.apply_operation(NOW, IpsecOperation::Policies(policies.clone())), Ok(()));
    let packet = |n: u16, size| udp_packet("10.1.0.7", "10.2.0.9", (1, n), &vec![0; size]);
    let wait = |plane: &mut EspDataPlane, at: u64, packet: &[u8]| {
        let now = NOW + Duration::from_secs(at);
        let parsed = IpPacket::parse(packet).unwrap();
        assert_eq!(plane.decide_outbound(now, &parsed), OutboundDecision::Queue(SecurityPolicyId(7)));
        plane.queue_packet(now, SecurityPolicyId(7), packet);
        plane.counters().queued - plane.counters().queue_dropped
    };
    assert_eq!((0..5).map(|n| wait(&mut plane, 0, &packet(n, 1))).collect::<Vec<_>>(), [1, 2, 3, 3, 3]);
    assert_eq!(wait(&mut plane, 1, &packet(9, 150)), 1, "an octet more than fits beside it");
    assert_eq!(wait(&mut plane, 1, &packet(9, 500)), 0, "more than is kept of all");
    assert_eq!(wait(&mut plane, 2, &packet(10, 1)), 1);
    assert_eq!(wait(&mut plane, 40, &packet(11, 1)), 1, "the one before has waited too long");
    let asked = drain_events(&mut plane);
    assert_eq!(asked.len(), 2, "asked again after five seconds, not before: {asked:?}");
    // The reply is that there will be no SA.
    assert_eq!(plane.apply_operation(NOW, IpsecOperation::Abandon(SecurityPolicyId(7))), Ok(()));
    assert_eq!(plane.counters().queued, plane.counters().queue_dropped);
    wait(&mut plane, 41, &packet(12, 1));
    assert_eq!(drain_events(&mut plane).len(), 1, "and the next packet asks again");
    // Another policy may release queued packets.
    let forward = vec![test_policy(8, "10.1.0.0/16", "10.2.0.0/16", PolicyAction::Forward)];
    let later = NOW + Duration::from_secs(42);
    assert_eq!(plane.apply_operation(later, IpsecOperation::Policies(forward)), Ok(()));
    assert_eq!(plane.poll_released_packet(), Some(packet(12, 1)));
}

#[test]
fn a_new_pair_takes_the_place_of_an_old_one() {
    let old = test_pair(true, gcm_transform(), 20);
    let new = SaPair { inbound: 0x2001, outbound: 0x2002, replaces: Some(0x1001), ..old.clone() };
    let packet = udp_packet("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    // The side that requested the pair sends on it at once; the peer follows.
    let (mut a, mut b) = plane_pair(&old);
    install_pair(&mut b, SaPair { after_peer: true, replaces: Some(0x1002), ..mirror_pair(&new) });
    let back = udp_packet("10.2.0.9", "10.1.0.7", (2, 1), b"back");
    assert_eq!(
        decide_packet(&mut b, &back),
        OutboundDecision::Protect(0x1002),
        "the other side may not have it yet"
    );
    install_pair(&mut a, new.clone());
    assert_eq!(decide_packet(&mut a, &packet), OutboundDecision::Protect(0x2001));
    let sent = send_packet(&mut a, &packet).unwrap();
    assert_eq!(receive_packet(&mut b, &sent), Some(packet.clone()));
    assert_eq!(decide_packet(&mut b, &back), OutboundDecision::Protect(0x2002));
    // Or the old pair is removed before anything arrives.
    let (_, mut b) = plane_pair(&old);
    install_pair(&mut b, SaPair { after_peer: true, replaces: Some(0x1002), ..mirror_pair(&new) });
    assert_eq!(b.apply_operation(NOW, IpsecOperation::Remove { inbound: 0x1002 }), Ok(()));
    assert_eq!(decide_packet(&mut b, &back), OutboundDecision::Protect(0x2002));
    // Packets on the way by the old pair arrive while it exists.
    let sent = {
        let (mut a, _) = plane_pair(&old);
        send_packet(&mut a, &packet).unwrap()
    };
    assert_eq!(receive_packet(&mut b, &sent), None);
    assert_eq!(b.counters().unknown_spi, 1);
}

/// As in a reauthentication by a separate IKE_SA: nothing names the pair that the new one replaces.
#[test]
fn a_new_pair_of_the_same_traffic_waits_for_its_peer_too() {
    let old = test_pair(true, gcm_transform(), 20);
    let new = SaPair { inbound: 0x2001, outbound: 0x2002, ..old.clone() };
    let (mut a, mut b) = plane_pair(&old);
    install_pair(&mut b, SaPair { after_peer: true, ..mirror_pair(&new) });
    let back = udp_packet("10.2.0.9", "10.1.0.7", (2, 1), b"back");
    assert_eq!(decide_packet(&mut b, &back), OutboundDecision::Protect(0x1002));
    install_pair(&mut a, new);
    let sent = send_packet(&mut a, &udp_packet("10.1.0.7", "10.2.0.9", (1, 2), b"data")).unwrap();
    assert!(receive_packet(&mut b, &sent).is_some());
    assert_eq!(decide_packet(&mut b, &back), OutboundDecision::Protect(0x2002));
    // A pair of other traffic does not wait.
    let other =
        SaPair { inbound: 0x3001, outbound: 0x3002, remote: vec![network_selector("10.3.0.0/16")], ..old };
    install_pair(&mut b, SaPair { after_peer: true, ..mirror_pair(&other) });
    assert_eq!(
        decide_packet(&mut b, &udp_packet("10.3.0.9", "10.1.0.7", (2, 1), b"back")),
        OutboundDecision::Protect(0x3002)
    );
}

#[test]
fn what_pairs_have_carried_is_told_once() {
    let (mut a, mut b) = plane_pair(&test_pair(true, gcm_transform(), 20));
    assert_eq!((a.take_changed_usages(), b.take_changed_usages()), (vec![], vec![]));
    let packet = udp_packet("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    let sent = send_packet(&mut a, &packet).unwrap();
    receive_packet(&mut b, &sent).unwrap();
    let told: Vec<_> = b.take_changed_usages();
    assert_eq!((told.len(), told[0].0, told[0].1.received.packets), (1, 0x1002, 1));
    assert_eq!(told[0].1.received.octets, packet.len() as u64);
    assert_eq!((b.take_changed_usages(), b.all_usages()), (vec![], told), "nothing has changed since");
    assert_eq!(a.take_changed_usages()[0].1.sent.packets, 1);
}

/// A policy uses a pair without a policy and requests no other.
#[test]
fn a_pair_of_no_policy_serves_one() {
    let mut plane = test_plane(EspDataPlaneConfig::default());
    let protect = vec![test_policy(7, "10.1.0.0/16", "10.2.0.0/16", PolicyAction::Protect)];
    assert_eq!(plane.apply_operation(NOW, IpsecOperation::Policies(protect)), Ok(()));
    let packet = udp_packet("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    assert_eq!(decide_packet(&mut plane, &packet), OutboundDecision::Queue(SecurityPolicyId(7)));
    install_pair(&mut plane, test_pair(true, gcm_transform(), 20));
    assert_eq!(decide_packet(&mut plane, &packet), OutboundDecision::Protect(0x1001));
}

#[test]
fn many_pairs_are_found_by_their_hosts() {
    let mut plane = test_plane(EspDataPlaneConfig::default());
    let host = |n: u32| ipv4_address(&format!("10.2.{}.{}", n / 250, n % 250));
    for n in 0..1000 {
        let one = SaPair {
            inbound: 0x10_000 + n,
            outbound: 0x20_000 + n,
            remote: vec![TrafficSelector::from_address(host(n))],
            ..test_pair(true, gcm_transform(), 20)
        };
        install_pair(&mut plane, one);
    }
    for n in [0, 1, 500, 999] {
        let packet = udp_packet("10.1.0.7", &host(n).to_string(), (1, 2), b"data");
        assert_eq!(decide_packet(&mut plane, &packet), OutboundDecision::Protect(0x10_000 + n));
        assert_eq!(plane.apply_operation(NOW, IpsecOperation::Remove { inbound: 0x10_000 + n }), Ok(()));
        assert_eq!(decide_packet(&mut plane, &packet), OutboundDecision::Discard);
        assert!(
            matches!(drain_events(&mut plane)[..], [EspEvent::Removed { inbound, .. }] if inbound == 0x10_000 + n)
        );
    }
}

#[test]
fn a_pair_moves_with_its_other_side() {
    let mut one = test_pair(true, gcm_transform(), 20);
    one.follow = true;
    let (mut a, mut b) = plane_pair(&one);
    let packet = udp_packet("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    let back = udp_packet("10.2.0.9", "10.1.0.7", (2, 1), b"back");
    let elsewhere: SocketAddr = "198.51.100.9:40000".parse().unwrap();
    let from = |local, remote| OuterAddresses { local, remote, encapsulated: true };
    let first = send_packet(&mut b, &back).unwrap().0;
    let second = send_packet(&mut b, &back).unwrap().0;
    // A NAT has changed the peer's address. An old packet does not change it back.
    assert!(open_packet(&mut a, second, from(one.outer.local, elsewhere), 0).is_some());
    assert_eq!(drain_events(&mut a), [EspEvent::Roamed { inbound: 0x1001, remote: elsewhere }]);
    assert!(open_packet(&mut a, first, from(one.outer.local, one.outer.remote), 0).is_some());
    assert_eq!(send_packet(&mut a, &packet).unwrap().1.outer.remote, elsewhere);
    assert_eq!(drain_events(&mut a), []);
    // MOBIKE reports the address, possibly an IPv6 one.
    let outer = OuterAddresses {
        local: "[2001:db8::1]:4500".parse().unwrap(),
        remote: "[2001:db8::2]:4500".parse().unwrap(),
        encapsulated: false,
    };
    assert_eq!(a.apply_operation(NOW, IpsecOperation::Move { inbound: 0x1001, outer }), Ok(()));
    assert_eq!(send_packet(&mut a, &packet).unwrap().1.outer, outer);
    let mixed = OuterAddresses { remote: elsewhere, ..outer };
    let moved = a.apply_operation(NOW, IpsecOperation::Move { inbound: 0x1001, outer: mixed });
    assert_eq!(moved, Err(IpsecOperationError::UnusablePair(0x1001)));
}

#[test]
fn transport_mode_carries_payloads_between_the_two_ends() {
    for encapsulated in [true, false] {
        let mut one = test_pair(true, gcm_transform(), 20);
        one.mode = IpsecMode::Transport;
        one.outer.encapsulated = encapsulated;
        one.local = vec![network_selector("192.0.2.1/32")];
        one.remote = vec![network_selector("192.0.2.2/32")];
        let (mut a, mut b) = plane_pair(&one);
        let packet = udp_packet("192.0.2.1", "192.0.2.2", (1000, 2000), b"there");
        let sent = send_packet(&mut a, &packet).unwrap();
        assert_eq!((sent.1.payload.clone(), sent.1.next_header), (20..33, 17));
        let received = receive_packet(&mut b, &sent).unwrap();
        assert_eq!(received[20..], packet[20..]);
        let read = IpPacket::parse(&received).unwrap();
        assert_eq!(read.flow, IpPacket::parse(&packet).unwrap().flow);
        let mut fragment = packet.clone();
        fragment[6] = 0x20;
        assert_eq!(send_packet(&mut a, &fragment), None);
        assert_eq!(a.counters().not_transportable, 1);
    }
    // A NAT changes the addresses, and so the checksums of TCP and UDP (RFC 3948 §3.1.2).
    let mut one = test_pair(true, gcm_transform(), 20);
    one.mode = IpsecMode::Transport;
    one.local = vec![network_selector("192.0.2.1/32")];
    one.remote = vec![network_selector("0.0.0.0/0")];
    let mut theirs = mirror_pair(&one);
    theirs.local = vec![network_selector("10.0.0.5/32")];
    let (mut a, mut b) =
        (test_plane(EspDataPlaneConfig::default()), test_plane(EspDataPlaneConfig::default()));
    install_pair(&mut a, one.clone());
    install_pair(&mut b, theirs);
    let packet = udp_packet("10.0.0.5", "192.0.2.1", (9, 10), b"from behind");
    let sent = send_packet(&mut b, &packet).unwrap();
    let nat = OuterAddresses {
        local: one.outer.local,
        remote: "198.51.100.1:4500".parse().unwrap(),
        encapsulated: true,
    };
    let received = open_packet(&mut a, sent.0, nat, 0).unwrap();
    assert_eq!(received[20..], udp_packet("198.51.100.1", "192.0.2.1", (9, 10), b"from behind")[20..]);
}

#[test]
fn class_and_congestion_are_those_of_the_inner_packet() {
    let one = test_pair(true, gcm_transform(), 20);
    let (mut a, mut b) = plane_pair(&one);
    let mut packet = udp_packet("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    packet[1] = 0xb8 | 2;
    packet[10..12].fill(0);
    let code = ip::fold_checksum(ip::sum_octets(&packet[..20], 0));
    packet[10..12].copy_from_slice(&code);
    let (octets, carried) = send_packet(&mut a, &packet).unwrap();
    assert_eq!(carried.traffic_class, 0xb8 | 2);
    // A router on the path has set the congestion mark.
    let received = open_packet(&mut b, octets, mirror_pair(&one).outer, 0xb8 | 3).unwrap();
    assert_eq!(received[1], 0xb8 | 3);
    assert_eq!(ip::fold_checksum(ip::sum_octets(&received[..20], 0)), [0, 0]);
}

#[test]
fn the_end_of_an_sa_is_told() {
    let lifetime = SaLifetime { soft_packets: Some(1), hard_packets: Some(2), ..SaLifetime::default() };
    let one = SaPair { lifetime, ..test_pair(true, gcm_transform(), 20) };
    let (mut a, mut b) = plane_pair(&one);
    let packet = udp_packet("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    let sent: Vec<_> = (0..3).map(|_| send_packet(&mut a, &packet)).collect();
    assert!(sent[2].is_none());
    let expiries =
        |inbound| [SaExpiry::Soft, SaExpiry::Hard].map(|expiry| EspEvent::Expire { inbound, expiry });
    assert_eq!((drain_events(&mut a), a.counters().expired), (expiries(0x1001).to_vec(), 1));
    sent.iter().flatten().for_each(|sent| assert!(receive_packet(&mut b, sent).is_some()));
    assert_eq!(drain_events(&mut b), expiries(0x1002)[..1]);
}

#[test]
fn operations_that_cannot_be_change_nothing() {
    let one = test_pair(true, gcm_transform(), 20);
    let (mut a, _) = plane_pair(&one);
    let refused = |a: &mut EspDataPlane, pair: SaPair| {
        a.apply_operation(NOW, IpsecOperation::Install(pair.into())).unwrap_err()
    };
    assert_eq!(refused(&mut a, one.clone()), IpsecOperationError::SpiTaken(0x1001));
    let other = SaPair { inbound: 0x3001, ..one.clone() };
    assert_eq!(
        refused(&mut a, SaPair { outbound: 255, ..other.clone() }),
        IpsecOperationError::ReservedSpi(255)
    );
    assert_eq!(
        refused(&mut a, SaPair { local: Vec::new(), ..other.clone() }),
        IpsecOperationError::UnusablePair(0x3001)
    );
    let outer = OuterAddresses { local: "[::1]:4500".parse().unwrap(), ..one.outer };
    assert_eq!(refused(&mut a, SaPair { outer, ..other.clone() }), IpsecOperationError::UnusablePair(0x3001));
    let mut keyless = other;
    keyless.inbound_keys.cipher = Vec::new().into();
    assert!(matches!(refused(&mut a, keyless), IpsecOperationError::Transform(0x3001, _)));
    for unknown in
        [IpsecOperation::Remove { inbound: 9 }, IpsecOperation::Move { inbound: 9, outer: one.outer }]
    {
        assert_eq!(a.apply_operation(NOW, unknown), Err(IpsecOperationError::UnknownSpi(9)));
    }
    assert_eq!(a.inbound_spis(), [0x1001]);
}

#[test]
fn what_is_no_packet_of_ours_is_counted() {
    let (mut a, _) = plane_pair(&test_pair(true, gcm_transform(), 20));
    let arrival = PacketArrival { outer: test_pair(true, gcm_transform(), 20).outer, traffic_class: 0 };
    for octets in [&[0; 7][..], &[0, 0, 0x10, 1, 0, 0, 0, 1], &[9; 40]] {
        assert_eq!(a.open(NOW, &arrival, &mut octets.to_vec()), None);
    }
    assert_eq!(a.handle_non_esp_datagram(&[0xff]), None);
    assert_eq!(a.handle_non_esp_datagram(&[1, 2]), None);
    assert_eq!(a.handle_non_esp_datagram(&[0, 0, 0, 0, 7]), Some(&[7][..]));
    let counted = a.counters();
    assert_eq!((counted.length, counted.unknown_spi, counted.keepalives, counted.not_esp), (2, 1, 1, 1));
}

/// RFC 4303 §2.1: SPIs up to 255 are reserved.
#[test]
fn the_first_spi_that_may_be_is_256() {
    let first = SaPair { inbound: 256, outbound: 256, ..test_pair(true, gcm_transform(), 20) };
    let mut plane = test_plane(EspDataPlaneConfig::default());
    for outbound in [255, 0] {
        let reserved = IpsecOperation::Install(SaPair { outbound, ..first.clone() }.into());
        assert_eq!(plane.apply_operation(NOW, reserved), Err(IpsecOperationError::ReservedSpi(outbound)));
    }
    install_pair(&mut plane, first);
    assert_eq!(plane.inbound_spis(), [256]);
}

#[test]
fn a_missing_sa_is_requested_again_after_a_timeout() {
    let mut plane = test_plane(EspDataPlaneConfig {
        acquire_interval: Duration::from_secs(5),
        ..EspDataPlaneConfig::default()
    });
    let policies = vec![test_policy(7, "10.1.0.0/16", "10.2.0.0/16", PolicyAction::Protect)];
    assert_eq!(plane.apply_operation(NOW, IpsecOperation::Policies(policies)), Ok(()));
    let packet = udp_packet("10.1.0.7", "10.2.0.9", (1, 2), b"data");
    let parsed = IpPacket::parse(&packet).unwrap();
    for (millis, asked) in [(0, 1), (4999, 0), (5000, 1), (5001, 0), (9999, 0), (10_000, 1)] {
        let now = NOW + Duration::from_millis(millis);
        assert_eq!(plane.decide_outbound(now, &parsed), OutboundDecision::Queue(SecurityPolicyId(7)));
        assert_eq!(drain_events(&mut plane).len(), asked, "at {millis} ms");
    }
}

/// A discard policy before all SAs applies in both directions, however wide an SA is.
#[test]
fn what_a_policy_drops_is_not_taken_by_an_sa_either() {
    let (mut a, mut b) = plane_pair(&test_pair(true, gcm_transform(), 20));
    let policies = vec![
        test_policy(1, "10.2.0.0/16", "10.1.9.0/24", PolicyAction::Discard),
        test_policy(2, "10.2.0.0/16", "10.1.8.0/24", PolicyAction::Forward),
    ];
    b.apply_operation(NOW, IpsecOperation::Policies(policies)).unwrap();
    for (source, taken) in [("10.1.9.7", false), ("10.1.8.7", true), ("10.1.7.7", true)] {
        let packet = udp_packet(source, "10.2.0.9", (5, 6), b"data");
        let sent = send_packet(&mut a, &packet).unwrap();
        assert_eq!(receive_packet(&mut b, &sent).is_some(), taken, "{source}");
    }
    assert_eq!((b.counters().discarded, b.counters().opened, b.counters().selectors), (1, 2, 0));
    // A packet from a network outside of the SA's selectors has its own counter.
    let mut wide = test_pair(true, gcm_transform(), 20);
    wide.local = vec![network_selector("10.0.0.0/8")];
    let (mut a, _) = plane_pair(&wide);
    let (_, mut b) = plane_pair(&test_pair(true, gcm_transform(), 20));
    let sent = send_packet(&mut a, &udp_packet("10.7.0.1", "10.2.0.9", (5, 6), b"data")).unwrap();
    assert_eq!((receive_packet(&mut b, &sent), b.counters().selectors), (None, 1));
    // So has an outbound packet from a network that is not local.
    let stranger = udp_packet("10.7.0.1", "10.1.0.9", (5, 6), b"data");
    assert_eq!((decide_packet(&mut b, &stranger), b.counters().discarded), (OutboundDecision::Discard, 1));
}

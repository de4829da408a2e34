//! Router advertisements and delegated prefixes on a session.

use super::*;
use crate::DelegatedPrefix;
use crate::auth::AuthenticationProtocol;
use crate::ipv6::dhcp::{Dhcpv6Message, Dhcpv6MessageType, Dhcpv6Status, IaPd, IaPrefix, link_layer_duid};
use crate::ipv6::neighbor::{PrefixInformation, RouterAdvertisement};
use crate::ipv6::{
    ALL_DHCP_SERVERS, ALL_ROUTERS, LinkLocalPacket, LinkLocalPayload, dhcp_packet, icmp_packet,
};
use crate::packet::PppProtocol;
use proptest::prelude::*;
use std::net::Ipv6Addr;

fn delegation_config() -> ClientConfig {
    ClientConfig { delegation: true, ..client_config(1, &[AuthenticationProtocol::Chap]) }
}

fn sent_advertisements(world: &PppoeTestNetwork) -> Vec<RouterAdvertisement> {
    let events = world.net.recorded_events(world.clients[0]).iter();
    let all = events.filter_map(|(_, event)| match event {
        ClientEvent::Advertised { advertisement } => Some(advertisement.clone()),
        _ => None,
    });
    all.collect()
}

fn delegated_prefixes(world: &PppoeTestNetwork) -> Vec<DelegatedPrefix> {
    let events = world.net.recorded_events(world.clients[0]).iter();
    let all = events.filter_map(|(_, event)| match event {
        ClientEvent::Delegated { delegation } => Some(delegation.clone()),
        _ => None,
    });
    all.collect()
}

/// Returns the types of the DHCPv6 messages that a host of the network sent.
fn dhcp_message_types(world: &PppoeTestNetwork, from: usize) -> Vec<Dhcpv6MessageType> {
    let all = world.net.sent_transmits().iter().filter(|sent| sent.from == from);
    let all = all.filter_map(|sent| {
        let (protocol, octets) = PppProtocol::split_packet(PppoeFrame::parse(&sent.bytes).ok()?.payload)?;
        match LinkLocalPacket::parse(octets).filter(|_| protocol == PppProtocol::IPV6)?.payload {
            LinkLocalPayload::Dhcp { message, .. } => Some(Dhcpv6Message::parse(message)?.kind),
            LinkLocalPayload::Icmp { .. } => None,
        }
    });
    all.collect()
}

#[test]
fn a_host_gets_the_link_prefix_and_a_delegated_prefix() {
    let mut world = PppoeTestNetwork::new(concentrator_config(), vec![delegation_config()]);
    world.connect_first();
    world.net.run_for(secs(10));
    let [prefix, behind] = test_prefixes()[..] else { panic!("two") };
    let first = &sent_advertisements(&world)[0];
    let information =
        PrefixInformation { prefix, on_link: false, autonomous: true, valid: 7200, preferred: 3600 };
    assert_eq!((&first.prefixes[..], first.mtu, first.lifetime), (&[information][..], Some(1492), 1800));
    assert!(first.other && !first.managed);
    let delegation = DelegatedPrefix { prefix: behind, preferred: 3600, valid: 7200, dns: vec![DNS6] };
    assert_eq!(delegated_prefixes(&world), [delegation]);
    let kinds = [Dhcpv6MessageType::SOLICIT, Dhcpv6MessageType::REQUEST];
    assert_eq!(dhcp_message_types(&world, 1), kinds);
    assert_eq!(dhcp_message_types(&world, 0), [Dhcpv6MessageType::ADVERTISE, Dhcpv6MessageType::REPLY]);
}

#[test]
fn advertisements_go_on_and_prefixes_are_renewed() {
    let mut world = PppoeTestNetwork::new(concentrator_config(), vec![delegation_config()]);
    world.connect_first();
    let began = world.net.now();
    world.net.run_for(secs(4000));
    // Three initial ones 16 s apart, then one every 200 to 600 s, and perhaps one for a solicitation.
    let of = |world: &PppoeTestNetwork| {
        let all = world.net.recorded_events(world.clients[0]).iter();
        let all = all.filter(|(_, event)| matches!(event, ClientEvent::Advertised { .. }));
        all.map(|(at, _)| at.duration_since(began).as_secs()).collect::<Vec<_>>()
    };
    let at = of(&world);
    assert!((9..=25).contains(&at.len()), "{at:?}");
    assert!(at.windows(2).all(|two| two[1] - two[0] >= 3 - 1 && two[1] - two[0] <= 600), "{at:?}");
    // T1 is 1800 s.
    assert_eq!(delegated_prefixes(&world).len(), 3);
    let renewals = dhcp_message_types(&world, 1).into_iter().filter(|kind| *kind == Dhcpv6MessageType::RENEW);
    assert_eq!(renewals.count(), 2);
}

#[test]
fn each_message_may_be_lost_once() {
    let mut world = PppoeTestNetwork::new(concentrator_config(), vec![delegation_config()]);
    world.connect_first();
    world.net.run_for(secs(3));
    let frames = world.net.sent_transmits().len();
    for lost in 0..frames {
        let mut world = PppoeTestNetwork::new(concentrator_config(), vec![delegation_config()]);
        world.net.intercept_transmits(move |n, _| if n == lost { vec![] } else { vec![Duration::ZERO] });
        world.connect_client(0);
        world.net.run_for(secs(60));
        assert!(!sent_advertisements(&world).is_empty(), "frame {lost} of {frames}");
        assert_eq!(delegated_prefixes(&world).len(), 1, "frame {lost} of {frames}");
    }
}

#[test]
fn what_a_client_should_not_have_is_taken_back() {
    let mut world =
        PppoeTestNetwork::new(concentrator_config(), vec![client_config(1, &[AuthenticationProtocol::Chap])]);
    let (_, number) = world.connect_first();
    let Some(NegotiatedAddresses::Ipv6 { local: host_address, remote: router, .. }) = world
        .client_networks(0)
        .into_iter()
        .find(|network| matches!(network, NegotiatedAddresses::Ipv6 { .. }))
    else {
        panic!("IPv6")
    };
    let server = link_layer_duid(AC.0);
    let ask = |world: &mut PppoeTestNetwork, message: &Dhcpv6Message<'_>| {
        let since = world.net.sent_transmits().len();
        let packet = dhcp_packet(host_address, ALL_DHCP_SERVERS, true, &message.to_vec());
        let packet = [&PppProtocol::IPV6.0.to_be_bytes(), &packet[..]].concat();
        world.deliver_frame(&session_frame(host_mac(1), number, &packet));
        let sent = world.sent_to(host_mac(1), since);
        sent.first().map(|bytes| {
            let (_, octets) = PppProtocol::split_packet(PppoeFrame::parse(bytes).unwrap().payload).unwrap();
            let packet = LinkLocalPacket::parse(octets).unwrap();
            assert_eq!(packet.source, router);
            let LinkLocalPayload::Dhcp { for_server: false, message } = packet.payload else {
                panic!("DHCPv6")
            };
            let message = Dhcpv6Message::parse(message).unwrap();
            assert_eq!((message.client, message.server), (Some(&b"me"[..]), Some(&server[..])));
            (message.kind, message.delegations, message.status)
        })
    };
    let of = |kind| Dhcpv6Message {
        client: Some(b"me"),
        server: Some(&server),
        ..Dhcpv6Message::new(kind, [1, 2, 3])
    };
    let other = Ipv6Prefix::new("2001:db8:aa00::".parse().unwrap(), 56).unwrap();
    let stray = IaPrefix { prefix: other, preferred: 10, valid: 20 };
    let wish = |iaid| IaPd { iaid, prefixes: vec![stray], ..IaPd::default() };
    let renew = Dhcpv6Message { delegations: vec![wish(7), wish(8)], ..of(Dhcpv6MessageType::RENEW) };
    let (kind, granted, _) = ask(&mut world, &renew).unwrap();
    assert_eq!((kind, granted[0].iaid, granted[1].iaid), (Dhcpv6MessageType::REPLY, 7, 8));
    assert_eq!(granted[0].prefixes[0].prefix, test_prefixes()[1]);
    assert_eq!(granted[0].prefixes[1], IaPrefix { preferred: 0, valid: 0, ..stray });
    assert_eq!(granted[1].status, Some(Dhcpv6Status::NO_BINDING), "the session has one prefix");
    let (_, granted, _) = ask(
        &mut world,
        &Dhcpv6Message { delegations: vec![wish(1), wish(2)], ..of(Dhcpv6MessageType::REQUEST) },
    )
    .unwrap();
    assert_eq!(granted[1].status, Some(Dhcpv6Status::NO_PREFIXES));
    let (_, _, status) = ask(&mut world, &of(Dhcpv6MessageType::RELEASE)).unwrap();
    assert_eq!(status, Some(Dhcpv6Status::SUCCESS));
    // RFC 8415 §16: discard messages for another server, without a client, or with a forbidden server DUID.
    let another = Dhcpv6Message { server: Some(b"you"), ..of(Dhcpv6MessageType::REQUEST) };
    let nobody = Dhcpv6Message { client: None, ..of(Dhcpv6MessageType::RENEW) };
    for wrong in [
        another,
        nobody,
        of(Dhcpv6MessageType::SOLICIT),
        of(Dhcpv6MessageType::REBIND),
        of(Dhcpv6MessageType::REPLY),
    ] {
        assert_eq!(ask(&mut world, &wrong), None, "{wrong:?}");
    }
    assert_eq!(world.net[world.ac].counters().data, 5);
}

#[test]
fn solicitations_are_rate_limited_and_only_taken_from_the_link() {
    let mut world =
        PppoeTestNetwork::new(concentrator_config(), vec![client_config(1, &[AuthenticationProtocol::Chap])]);
    let (_, number) = world.connect_first();
    world.net.run_for(secs(60));
    let before = sent_advertisements(&world).len();
    let from: Ipv6Addr = "fe80::77".parse().unwrap();
    let good = icmp_packet(from, ALL_ROUTERS, vec![133, 0, 0, 0, 0, 0, 0, 0]);
    let mut far = good.clone();
    far[7] = 64;
    let mut wrong = good.clone();
    wrong[42] ^= 1;
    let lies = icmp_packet(from, ALL_ROUTERS, vec![133, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    let give = |world: &mut PppoeTestNetwork, packet: &[u8]| {
        let packet = [&PppProtocol::IPV6.0.to_be_bytes(), packet].concat();
        world.deliver_frame(&session_frame(host_mac(1), number, &packet));
    };
    for packet in [&far, &wrong, &lies, &good[..47].to_vec()] {
        give(&mut world, packet);
    }
    world.net.run_for(secs(2));
    assert_eq!((sent_advertisements(&world).len(), world.net[world.ac].counters().data), (before, 4));
    for _ in 0..100 {
        give(&mut world, &good);
        world.net.run_for(Duration::from_millis(100));
    }
    let answers = sent_advertisements(&world).len() - before;
    assert!((3..=4).contains(&answers), "{answers} in 10 s");
}

#[test]
fn packets_of_the_data_plane_are_left_to_it() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    let (_, number) = world.connect_first();
    let since = world.net.sent_transmits().len();
    let mut packet =
        icmp_packet("fe80::77".parse().unwrap(), "2001:db8::1".parse().unwrap(), vec![128, 0, 0, 0]);
    for octets in [&packet.clone()[..], &packet[..40], &packet[..3], &[]] {
        let octets = [&PppProtocol::IPV6.0.to_be_bytes(), octets].concat();
        world.deliver_frame(&session_frame(host_mac(1), number, &octets));
    }
    packet[0] = 0x45;
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &[&PppProtocol::IPV4.0.to_be_bytes(), &packet[..]].concat(),
    ));
    assert_eq!((world.net[world.ac].counters().data, world.net.sent_transmits().len()), (5, since));
}

#[test]
fn a_client_asks_again_if_its_server_forgot_or_gives_no_prefix() {
    // The AAA server gives no prefix: the client learns it, and asks again later.
    let mut world = PppoeTestNetwork::new(concentrator_config(), vec![delegation_config()]);
    world.judge.lock().unwrap().without_delegation = true;
    world.connect_first();
    world.net.run_for(secs(100));
    assert!(delegated_prefixes(&world).is_empty());
    let solicits = dhcp_message_types(&world, 1).len();
    assert!((4..=8).contains(&solicits), "{solicits}");
}

/// RFC 4443 §2.3, computed by hand: a solicitation of fe80::77 to ff02::2.
#[test]
fn a_solicitation_is_as_it_should_be_on_the_wire() {
    let packet = icmp_packet("fe80::77".parse().unwrap(), ALL_ROUTERS, vec![133, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(&packet[..8], [0x60, 0, 0, 0, 0, 8, 58, 255]);
    // fe80 + 77 + ff02 + 2 + 8 + 3a + 8500 = 2833d; 833d + 2 = 833f; the complement is 7cc0.
    assert_eq!(&packet[40..], [133, 0, 0x7c, 0xc0, 0, 0, 0, 0]);
    let read = LinkLocalPacket::parse(&packet).unwrap();
    assert_eq!(read.payload, LinkLocalPayload::Icmp { kind: 133, code: 0, body: &[0, 0, 0, 0] });
}

#[test]
fn prefixes_are_cut_to_their_length() {
    let of =
        |length| Ipv6Prefix::new("2001:db8:ffff:ffff::1".parse().unwrap(), length).map(|p| p.to_string());
    assert_eq!(of(56).as_deref(), Some("2001:db8:ffff:ff00::/56"));
    assert_eq!((of(0).as_deref(), of(129)), (Some("::/0"), None));
    assert_eq!(of(128).as_deref(), Some("2001:db8:ffff:ffff::1/128"));
}

proptest! {
    #[test]
    fn advertisements_and_messages_are_parsed_as_they_were_emitted(
        numbers: (u8, bool, bool, u16, u32, u32),
        mtu: Option<u32>,
        prefixes in proptest::collection::vec((any::<u128>(), 0u8..=128, any::<(bool, bool)>(), any::<u32>(), any::<u32>()), 0..4),
        ids in proptest::array::uniform2(proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20))),
        rest: (Option<u16>, Option<u8>, Option<u16>, bool),
        dns in proptest::collection::vec(any::<u128>(), 0..4),
        addresses in proptest::collection::vec(any::<u32>(), 0..3),
    ) {
        let prefix = |bits, length| Ipv6Prefix::new(Ipv6Addr::from_bits(bits), length).unwrap();
        let advertisement = RouterAdvertisement {
            hop_limit: numbers.0,
            managed: numbers.1,
            other: numbers.2,
            lifetime: numbers.3,
            reachable: numbers.4,
            retransmit: numbers.5,
            mtu,
            prefixes: prefixes.iter().map(|&(bits, length, (on_link, autonomous), a, b)| PrefixInformation {
                prefix: prefix(bits, length),
                on_link,
                autonomous,
                valid: a.max(b),
                preferred: a.min(b),
            }).collect(),
        };
        prop_assert_eq!(RouterAdvertisement::parse(&advertisement.to_vec()[4..]), Some(advertisement));
        let [client, server] = ids.each_ref().map(Option::as_deref);
        let delegation = IaPd {
            iaid: numbers.4,
            t1: numbers.5,
            t2: 9,
            prefixes: prefixes.iter().map(|&(bits, length, _, a, b)| IaPrefix {
                prefix: prefix(bits, length),
                preferred: a.min(b),
                valid: a.max(b),
            }).collect(),
            status: rest.2.map(Dhcpv6Status),
        };
        let message = Dhcpv6Message {
            client,
            server,
            elapsed: rest.0,
            preference: rest.1,
            addresses,
            delegations: vec![delegation],
            status: rest.2.map(Dhcpv6Status),
            wants_dns: rest.3,
            dns: dns.into_iter().map(Ipv6Addr::from_bits).collect(),
            ..Dhcpv6Message::new(Dhcpv6MessageType(numbers.0), [1, 2, 3])
        };
        let octets = message.to_vec();
        prop_assert_eq!(Dhcpv6Message::parse(&octets), Some(message));
    }
}

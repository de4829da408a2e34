//! Router advertisements and delegated prefixes on a session.

use super::*;
use crate::Delegation;
use crate::auth::AuthenticationProtocol as P;
use crate::ipv6::dhcp::{IaPd, IaPrefix, Message, MessageType, Status, duid};
use crate::ipv6::neighbor::{PrefixInformation, RouterAdvertisement};
use crate::ipv6::{ALL_DHCP_SERVERS, ALL_ROUTERS, Carried, Local, dhcp_packet, icmp};
use crate::packet::Protocol;
use proptest::prelude::*;
use std::net::Ipv6Addr;

fn asking() -> ClientConfig {
    ClientConfig { delegation: true, ..client(1, &[P::Chap]) }
}

fn advertised(world: &World) -> Vec<RouterAdvertisement> {
    let events = world.net.events(world.clients[0]).iter();
    let all = events.filter_map(|(_, event)| match event {
        ClientEvent::Advertised { advertisement } => Some(advertisement.clone()),
        _ => None,
    });
    all.collect()
}

fn delegated(world: &World) -> Vec<Delegation> {
    let events = world.net.events(world.clients[0]).iter();
    let all = events.filter_map(|(_, event)| match event {
        ClientEvent::Delegated { delegation } => Some(delegation.clone()),
        _ => None,
    });
    all.collect()
}

/// The messages of DHCPv6 that a host of the network sent.
fn messages(world: &World, from: usize) -> Vec<MessageType> {
    let all = world.net.sent().iter().filter(|sent| sent.from == from);
    let all = all.filter_map(|sent| {
        let (protocol, octets) = Protocol::split(Frame::parse(&sent.bytes).ok()?.payload)?;
        match Local::parse(octets).filter(|_| protocol == Protocol::IPV6)?.carried {
            Carried::Dhcp { message, .. } => Some(Message::parse(message)?.kind),
            Carried::Icmp { .. } => None,
        }
    });
    all.collect()
}

#[test]
fn a_host_hears_of_the_links_prefix_and_gets_one_for_its_network() {
    let mut world = World::new(config(), vec![asking()]);
    world.up();
    world.net.run(secs(10));
    let [prefix, behind] = prefixes()[..] else { panic!("two") };
    let first = &advertised(&world)[0];
    let information =
        PrefixInformation { prefix, on_link: false, autonomous: true, valid: 7200, preferred: 3600 };
    assert_eq!((&first.prefixes[..], first.mtu, first.lifetime), (&[information][..], Some(1492), 1800));
    assert!(first.other && !first.managed);
    let delegation = Delegation { prefix: behind, preferred: 3600, valid: 7200, dns: vec![DNS6] };
    assert_eq!(delegated(&world), [delegation]);
    let kinds = [MessageType::SOLICIT, MessageType::REQUEST];
    assert_eq!(messages(&world, 1), kinds);
    assert_eq!(messages(&world, 0), [MessageType::ADVERTISE, MessageType::REPLY]);
}

#[test]
fn advertisements_go_on_and_prefixes_are_renewed() {
    let mut world = World::new(config(), vec![asking()]);
    world.up();
    let began = world.net.now();
    world.net.run(secs(4000));
    // Three in the beginning 16 s apart, and then one in 200 to 600 s; one more may have been asked for.
    let of = |world: &World| {
        let all = world.net.events(world.clients[0]).iter();
        let all = all.filter(|(_, event)| matches!(event, ClientEvent::Advertised { .. }));
        all.map(|(at, _)| at.since(began).as_secs()).collect::<Vec<_>>()
    };
    let at = of(&world);
    assert!((9..=25).contains(&at.len()), "{at:?}");
    assert!(at.windows(2).all(|two| two[1] - two[0] >= 3 - 1 && two[1] - two[0] <= 600), "{at:?}");
    // T1 is 1800 s.
    assert_eq!(delegated(&world).len(), 3);
    let renewals = messages(&world, 1).into_iter().filter(|kind| *kind == MessageType::RENEW);
    assert_eq!(renewals.count(), 2);
}

#[test]
fn each_message_may_be_lost_once() {
    let mut world = World::new(config(), vec![asking()]);
    world.up();
    world.net.run(secs(3));
    let frames = world.net.sent().len();
    for lost in 0..frames {
        let mut world = World::new(config(), vec![asking()]);
        world.net.meddle(move |n, _| if n == lost { vec![] } else { vec![Duration::ZERO] });
        world.connect(0);
        world.net.run(secs(60));
        assert!(!advertised(&world).is_empty(), "frame {lost} of {frames}");
        assert_eq!(delegated(&world).len(), 1, "frame {lost} of {frames}");
    }
}

#[test]
fn what_a_client_should_not_have_is_taken_back() {
    let mut world = World::new(config(), vec![client(1, &[P::Chap])]);
    let (_, number) = world.up();
    let Some(Network::Ipv6 { local: host_address, remote: router, .. }) =
        world.client_networks(0).into_iter().find(|network| matches!(network, Network::Ipv6 { .. }))
    else {
        panic!("IPv6")
    };
    let server = duid(AC.0);
    let ask = |world: &mut World, message: &Message<'_>| {
        let since = world.net.sent().len();
        let packet = dhcp_packet(host_address, ALL_DHCP_SERVERS, true, &message.to_vec());
        let packet = [&Protocol::IPV6.0.to_be_bytes(), &packet[..]].concat();
        world.give(&session_frame(host(1), number, &packet));
        let sent = world.sent_to(host(1), since);
        sent.first().map(|bytes| {
            let (_, octets) = Protocol::split(Frame::parse(bytes).unwrap().payload).unwrap();
            let packet = Local::parse(octets).unwrap();
            assert_eq!(packet.source, router);
            let Carried::Dhcp { for_server: false, message } = packet.carried else { panic!("DHCPv6") };
            let message = Message::parse(message).unwrap();
            assert_eq!((message.client, message.server), (Some(&b"me"[..]), Some(&server[..])));
            (message.kind, message.delegations, message.status)
        })
    };
    let of = |kind| Message { client: Some(b"me"), server: Some(&server), ..Message::new(kind, [1, 2, 3]) };
    let other = Prefix::new("2001:db8:aa00::".parse().unwrap(), 56).unwrap();
    let stray = IaPrefix { prefix: other, preferred: 10, valid: 20 };
    let wish = |iaid| IaPd { iaid, prefixes: vec![stray], ..IaPd::default() };
    let renew = Message { delegations: vec![wish(7), wish(8)], ..of(MessageType::RENEW) };
    let (kind, granted, _) = ask(&mut world, &renew).unwrap();
    assert_eq!((kind, granted[0].iaid, granted[1].iaid), (MessageType::REPLY, 7, 8));
    assert_eq!(granted[0].prefixes[0].prefix, prefixes()[1]);
    assert_eq!(granted[0].prefixes[1], IaPrefix { preferred: 0, valid: 0, ..stray });
    assert_eq!(granted[1].status, Some(Status::NO_BINDING), "the session has one prefix");
    let (_, granted, _) =
        ask(&mut world, &Message { delegations: vec![wish(1), wish(2)], ..of(MessageType::REQUEST) })
            .unwrap();
    assert_eq!(granted[1].status, Some(Status::NO_PREFIXES));
    let (_, _, status) = ask(&mut world, &of(MessageType::RELEASE)).unwrap();
    assert_eq!(status, Some(Status::SUCCESS));
    // What RFC 8415 §16 wants discarded: of another server, without a client, with a server where none may be.
    let another = Message { server: Some(b"you"), ..of(MessageType::REQUEST) };
    let nobody = Message { client: None, ..of(MessageType::RENEW) };
    for wrong in [another, nobody, of(MessageType::SOLICIT), of(MessageType::REBIND), of(MessageType::REPLY)]
    {
        assert_eq!(ask(&mut world, &wrong), None, "{wrong:?}");
    }
    assert_eq!(world.net[world.ac].counters().data, 5);
}

#[test]
fn solicitations_are_answered_at_a_bounded_rate_and_only_from_the_link() {
    let mut world = World::new(config(), vec![client(1, &[P::Chap])]);
    let (_, number) = world.up();
    world.net.run(secs(60));
    let before = advertised(&world).len();
    let from: Ipv6Addr = "fe80::77".parse().unwrap();
    let good = icmp(from, ALL_ROUTERS, vec![133, 0, 0, 0, 0, 0, 0, 0]);
    let mut far = good.clone();
    far[7] = 64;
    let mut wrong = good.clone();
    wrong[42] ^= 1;
    let lies = icmp(from, ALL_ROUTERS, vec![133, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    let give = |world: &mut World, packet: &[u8]| {
        let packet = [&Protocol::IPV6.0.to_be_bytes(), packet].concat();
        world.give(&session_frame(host(1), number, &packet));
    };
    for packet in [&far, &wrong, &lies, &good[..47].to_vec()] {
        give(&mut world, packet);
    }
    world.net.run(secs(2));
    assert_eq!((advertised(&world).len(), world.net[world.ac].counters().data), (before, 4));
    for _ in 0..100 {
        give(&mut world, &good);
        world.net.run(Duration::from_millis(100));
    }
    let answers = advertised(&world).len() - before;
    assert!((3..=4).contains(&answers), "{answers} in 10 s");
}

#[test]
fn packets_of_the_data_plane_are_left_to_it() {
    let mut world = World::with(P::Chap);
    let (_, number) = world.up();
    let since = world.net.sent().len();
    let mut packet = icmp("fe80::77".parse().unwrap(), "2001:db8::1".parse().unwrap(), vec![128, 0, 0, 0]);
    for octets in [&packet.clone()[..], &packet[..40], &packet[..3], &[]] {
        let octets = [&Protocol::IPV6.0.to_be_bytes(), octets].concat();
        world.give(&session_frame(host(1), number, &octets));
    }
    packet[0] = 0x45;
    world.give(&session_frame(host(1), number, &[&Protocol::IPV4.0.to_be_bytes(), &packet[..]].concat()));
    assert_eq!((world.net[world.ac].counters().data, world.net.sent().len()), (5, since));
}

#[test]
fn a_client_asks_anew_when_its_server_has_forgotten_or_gives_none() {
    // The judge gives a prefix to nobody: the client is told so, and asks again later.
    let mut world = World::new(config(), vec![asking()]);
    world.judge.lock().unwrap().without_delegation = true;
    world.up();
    world.net.run(secs(100));
    assert!(delegated(&world).is_empty());
    let solicits = messages(&world, 1).len();
    assert!((4..=8).contains(&solicits), "{solicits}");
}

/// RFC 4443 §2.3, by hand: a solicitation of fe80::77 to ff02::2.
#[test]
fn a_solicitation_is_as_it_should_be_on_the_wire() {
    let packet = icmp("fe80::77".parse().unwrap(), ALL_ROUTERS, vec![133, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(&packet[..8], [0x60, 0, 0, 0, 0, 8, 58, 255]);
    // fe80 + 77 + ff02 + 2 + 8 + 3a + 8500 = 2833d; 833d + 2 = 833f; the complement is 7cc0.
    assert_eq!(&packet[40..], [133, 0, 0x7c, 0xc0, 0, 0, 0, 0]);
    let read = Local::parse(&packet).unwrap();
    assert_eq!(read.carried, Carried::Icmp { kind: 133, code: 0, body: &[0, 0, 0, 0] });
}

#[test]
fn prefixes_are_cut_to_their_length() {
    let of = |length| Prefix::new("2001:db8:ffff:ffff::1".parse().unwrap(), length).map(|p| p.to_string());
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
        let prefix = |bits, length| Prefix::new(Ipv6Addr::from_bits(bits), length).unwrap();
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
            status: rest.2.map(Status),
        };
        let message = Message {
            client,
            server,
            elapsed: rest.0,
            preference: rest.1,
            addresses,
            delegations: vec![delegation],
            status: rest.2.map(Status),
            wants_dns: rest.3,
            dns: dns.into_iter().map(Ipv6Addr::from_bits).collect(),
            ..Message::new(MessageType(numbers.0), [1, 2, 3])
        };
        let octets = message.to_vec();
        prop_assert_eq!(Message::parse(&octets), Some(message));
    }
}

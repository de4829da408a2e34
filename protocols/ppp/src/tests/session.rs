//! A session's life: loss, keepalive, ends, restarts.

use super::*;
use crate::auth::AuthenticationProtocol as P;
use crate::packet::{Code as Control, Packet, Protocol};
use usher_core::impair::Loss;

#[test]
fn each_frame_may_be_lost_once() {
    for protocol in P::ALL {
        let mut world = World::with(protocol);
        world.up();
        let frames = world.net.sent().len();
        for lost in 0..frames {
            let mut world = World::with(protocol);
            world.net.meddle(move |n, _| if n == lost { vec![] } else { vec![Duration::ZERO] });
            world.connect(0);
            world.net.run(secs(50));
            // EAP-Success has no reply, and MD5 leaves the peer in doubt without it: such a session begins again.
            if world.installed() != 2 {
                assert_eq!(protocol, P::Eap, "frame {lost} of {frames}");
                assert!(
                    Frame::parse(&world.net.sent()[lost].bytes)
                        .unwrap()
                        .payload
                        .starts_with(&[0xc2, 0x27, 3])
                );
                continue;
            }
            let ends = (world.ended(), world.client_ended(0));
            assert_eq!(ends, (vec![], vec![]), "{protocol}, frame {lost} of {frames}");
        }
    }
}

#[test]
fn frames_that_come_twice_take_no_link_down() {
    for protocol in P::ALL {
        let mut world = World::with(protocol);
        world.net.meddle(|_, _| vec![Duration::ZERO, Duration::from_millis(1)]);
        world.connect(0);
        world.net.run(secs(100));
        let installs = world.net.events(world.ac).iter();
        let installs = installs.filter(|(_, event)| matches!(event, ConcentratorEvent::Install { .. }));
        assert_eq!((installs.count(), world.installed()), (2, 2), "{protocol}");
        assert_eq!(world.net[world.ac].sessions(), 1);
        assert_eq!((world.ended(), world.client_ended(0)), (vec![], vec![]));
    }
}

#[test]
fn hosts_come_in_over_a_lossy_link() {
    let config = |n| ClientConfig { persist: true, attempts: 0, ..client(n, &[P::MsChapV2]) };
    let mut world = World::new(super::config(), (1..=8).map(config).collect());
    let loss = Loss::Bernoulli(0.2);
    for n in 0..8 {
        let channel =
            ChannelConfig { loss: loss.clone(), delay: Duration::from_millis(3), ..ChannelConfig::default() };
        world.net.link(world.ac, world.clients[n], &channel);
        world.connect(n);
    }
    world.net.run(secs(240));
    for n in 0..8 {
        let link = world.net[world.clients[n]].has_session();
        assert!(link && world.client_networks(n).len() >= 2, "host {n}: {:?}", world.client_ended(n));
    }
}

#[test]
fn either_side_may_close() {
    let mut world = World::with(P::Chap);
    let (session, number) = world.up();
    world.net.command(world.ac, ConcentratorCommand::Close(session)).unwrap();
    assert_eq!(world.installed(), 0, "nothing passes from now on");
    world.net.run(secs(5));
    assert_eq!(world.ended(), [EndReason::Closed]);
    let other = world.client_ended(0);
    assert!(other == [EndReason::PeerClosed] || other == [EndReason::Padt], "{other:?}");
    assert_eq!(world.net[world.ac].sessions(), 0);
    assert!(world.net[world.ac].subscriber(session).is_none());

    let mut world = World::with(P::Chap);
    world.up();
    world.net.command(world.clients[0], ClientCommand::Disconnect).unwrap();
    world.net.run(secs(5));
    assert_eq!((world.installed(), world.client_ended(0)), (0, vec![EndReason::Closed]));
    assert_eq!(world.ended().len(), 1);
    let last = world.net.sent().iter().rev().find(|sent| sent.from == 1).unwrap();
    let frame = Frame::parse(&last.bytes).unwrap();
    assert_eq!((frame.code, frame.session), (Code::PADT, number), "and says so");

    let mut world = World::new(super::config(), (1..=3).map(|n| client(n, &[P::Pap])).collect());
    (0..3).for_each(|n| world.connect(n));
    world.net.run(secs(2));
    assert_eq!(world.net[world.ac].sessions(), 3);
    world.net.command(world.ac, ConcentratorCommand::CloseAll).unwrap();
    world.net.run(secs(10));
    assert_eq!((world.net[world.ac].sessions(), world.installed()), (0, 0));
}

#[test]
fn a_peer_that_falls_silent_is_missed() {
    let mut world = World::with(P::Eap);
    world.up();
    world.net.run(secs(300));
    assert_eq!(world.installed(), 2, "its replies keep it");
    let gone = world.net.now();
    world.net.silence(world.clients[0], true);
    world.net.run(secs(100));
    assert_eq!((world.ended(), world.installed()), (vec![EndReason::Unreachable], 0));
    let (at, _) = world.net.events(world.ac).last().unwrap();
    // Three Echo-Requests 20 s apart, and the time for the third's reply.
    assert!((60..=80).contains(&at.since(gone).as_secs()), "{}", at.since(gone));

    let mut world = World::with(P::Eap);
    world.up();
    world.net.silence(world.ac, true);
    world.net.run(secs(100));
    assert_eq!(world.client_ended(0), [EndReason::Unreachable]);
}

#[test]
fn a_concentrator_that_restarts_gets_its_hosts_back() {
    let config = |n| ClientConfig { persist: true, ..client(n, &[P::MsChapV2]) };
    let mut world = World::new(super::config(), (1..=5).map(config).collect());
    (0..5).for_each(|n| world.connect(n));
    world.net.run(secs(2));
    assert_eq!(world.net[world.ac].sessions(), 5);
    let fresh = Concentrator::new(super::config(), SecureRng::from_seed([99; 32])).unwrap();
    world.net[world.ac] = fresh;
    // Each host's next Echo-Request is answered by PADT.
    world.net.run(secs(30));
    assert_eq!((world.net[world.ac].sessions(), world.net[world.ac].outside()), (5, 0));
    for n in 0..5 {
        assert_eq!(world.client_ended(n), [EndReason::Padt]);
    }
}

#[test]
fn a_host_that_restarts_takes_its_old_sessions_place() {
    let config = ConcentratorConfig { sessions_per_station: 1, ..config() };
    let mut world = World::new(config, vec![client(1, &[P::Chap])]);
    world.up();
    world.net[world.clients[0]] = Client::new(client(1, &[P::Chap]), SecureRng::from_seed([55; 32]));
    world.connect(0);
    world.net.run(secs(5));
    assert_eq!(world.ended(), [EndReason::Replaced]);
    assert_eq!((world.net[world.ac].sessions(), world.installed()), (1, 2));
    assert_eq!(world.net[world.ac].counters().replaced, 1);
}

#[test]
fn a_network_that_one_side_does_not_want_leaves_the_other() {
    let mut world = World::new(config(), vec![ClientConfig { ipv6: None, ..client(1, &[P::Chap]) }]);
    world.connect(0);
    world.net.run(secs(20));
    assert_eq!((world.installed(), world.client_networks(0).len()), (1, 1));
    let mut world = World::with(P::Chap);
    world.judge.lock().unwrap().without_ipv6 = true;
    world.connect(0);
    world.net.run(secs(20));
    assert_eq!((world.installed(), world.client_networks(0).len()), (1, 1));
    assert_eq!((world.ended(), world.client_ended(0)), (vec![], vec![]));
    let only = ClientConfig { ipv4: false, ..client(1, &[P::Chap]) };
    let mut world = World::new(config(), vec![only]);
    world.judge.lock().unwrap().without_ipv6 = true;
    world.connect(0);
    world.net.run(secs(20));
    assert_eq!(world.ended().len(), 1, "with neither in common the session is of no use");
    assert_eq!(world.installed(), 0);
}

#[test]
fn a_protocol_that_is_not_known_is_rejected() {
    let mut world = World::with(P::Chap);
    let (_, number) = world.up();
    let since = world.net.sent().len();
    // Compression Control Protocol (RFC 1962): Configure-Request without options.
    let packet = [0x80, 0xfd, 1, 1, 0, 4];
    world.give(&session_frame(host(1), number, &packet));
    let sent = world.sent_to(host(1), since);
    let (protocol, lcp) = Protocol::split(Frame::parse(&sent[0]).unwrap().payload).unwrap();
    let reject = Packet::parse(lcp).unwrap();
    assert_eq!((protocol, reject.code), (Protocol::LCP, Control::PROTOCOL_REJECT));
    assert_eq!(reject.data, packet);
    // And a code that LCP does not know by Code-Reject.
    let since = world.net.sent().len();
    world.give(&session_frame(host(1), number, &[0xc0, 0x21, 77, 5, 0, 6, 1, 2]));
    let sent = world.sent_to(host(1), since);
    let (_, lcp) = Protocol::split(Frame::parse(&sent[0]).unwrap().payload).unwrap();
    let reject = Packet::parse(lcp).unwrap();
    assert_eq!((reject.code, reject.data), (Control::CODE_REJECT, &[77, 5, 0, 6, 1, 2][..]));
    assert_eq!(world.installed(), 2);
}

#[test]
fn longer_packets_pass_once_one_has_passed() {
    let ports = vec![Port { port: PORT, address: AC, mtu: 9000 }];
    let config = ConcentratorConfig { ports, ..config() };
    let jumbo = ClientConfig { mtu: 4008, ..client(1, &[P::Chap]) };
    let mtus = |world: &World| {
        let events = world.net.events(world.ac).iter();
        let mtus = events.filter_map(|(_, event)| match event {
            ConcentratorEvent::Install { mtu, .. } | ConcentratorEvent::Mtu { mtu, .. } => Some(*mtu),
            _ => None,
        });
        mtus.max()
    };
    let mut world = World::new(config.clone(), vec![jumbo.clone()]);
    world.connect(0);
    world.net.run(secs(10));
    assert_eq!(mtus(&world), Some(4000));
    // An Ethernet on the way that does not take them: the session is as ever.
    let mut world = World::new(config.clone(), vec![jumbo]);
    world.net.meddle(|_, sent| if sent.bytes.len() > 1514 { vec![] } else { vec![Duration::ZERO] });
    world.connect(0);
    world.net.run(secs(10));
    assert_eq!((mtus(&world), world.installed()), (Some(1492), 2));
    // A host that says nothing of it.
    let mut world = World::new(config, vec![client(1, &[P::Chap])]);
    world.connect(0);
    world.net.run(secs(10));
    assert_eq!(mtus(&world), Some(1492));
}

/// Which tag it is says who can do something about it.
#[test]
fn a_client_that_is_refused_a_session_is_told_why() {
    let config = ConcentratorConfig { sessions: 1, ..config() };
    let mut world = World::new(config, vec![client(1, &[P::Chap]), client(2, &[P::Chap])]);
    world.connect(0);
    world.connect(1);
    world.net.run(secs(5));
    let told = world.net.events(world.clients[1]).iter().find_map(|(_, event)| match event {
        ClientEvent::Told { message } => Some(String::from_utf8_lossy(message).into_owned()),
        _ => None,
    });
    assert_eq!(told.as_deref(), Some("AC-System-Error: too many sessions"));
    assert_eq!(world.client_ended(1), [EndReason::Refused]);
}

#[test]
fn a_client_tries_again_with_longer_waits_and_gives_up() {
    let mut world = World::with(P::Chap);
    world.net.silence(world.ac, true);
    world.connect(0);
    world.net.run(secs(100));
    let at: Vec<u64> = world.net.sent().iter().map(|sent| sent.at.as_nanos() / 1_000_000_000).collect();
    assert_eq!(at, [0, 1, 3, 7, 15]);
    assert_eq!(world.client_ended(0), [EndReason::NoConcentrator]);
    assert!(world.net.command(world.clients[0], ClientCommand::Connect).is_ok(), "and may be told again");
}

#[test]
fn the_work_is_told() {
    let mut world = World::with(P::Chap);
    world.up();
    let work = world.net.take_work();
    // Two packets each way, each sent and received; a cookie made and one checked, a challenge and its response.
    assert_eq!((work["ppp.discovery"], work["ppp.digest"]), (8, 4));
    assert!(work["ppp.control"] >= 24, "{work:?}");
}

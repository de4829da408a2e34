//! A session's life: loss, keepalive, ends, renegotiations.

use super::*;
use crate::auth::AuthenticationProtocol;
use crate::packet::{ControlCode, ControlPacket, PppProtocol};
use usher_core::impair::LossModel;

#[test]
fn each_frame_may_be_lost_once() {
    for protocol in AuthenticationProtocol::ALL {
        let mut world = PppoeTestNetwork::with_protocol(protocol);
        world.connect_first();
        let frames = world.net.sent_transmits().len();
        for lost in 0..frames {
            let mut world = PppoeTestNetwork::with_protocol(protocol);
            world.net.intercept_transmits(move |n, _| if n == lost { vec![] } else { vec![Duration::ZERO] });
            world.connect_client(0);
            world.net.run_for(secs(50));
            // EAP-Success has no reply. If it is lost, a peer of EAP-MD5 is left in doubt, and the session starts over.
            if world.installed_count() != 2 {
                assert_eq!(protocol, AuthenticationProtocol::Eap, "frame {lost} of {frames}");
                assert!(
                    PppoeFrame::parse(&world.net.sent_transmits()[lost].bytes)
                        .unwrap()
                        .payload
                        .starts_with(&[0xc2, 0x27, 3])
                );
                continue;
            }
            let ends = (world.end_reasons(), world.client_end_reasons(0));
            assert_eq!(ends, (vec![], vec![]), "{protocol}, frame {lost} of {frames}");
        }
    }
}

#[test]
fn frames_that_come_twice_take_no_link_down() {
    for protocol in AuthenticationProtocol::ALL {
        let mut world = PppoeTestNetwork::with_protocol(protocol);
        world.net.intercept_transmits(|_, _| vec![Duration::ZERO, Duration::from_millis(1)]);
        world.connect_client(0);
        world.net.run_for(secs(100));
        let installs = world.net.recorded_events(world.ac).iter();
        let installs = installs.filter(|(_, event)| matches!(event, ConcentratorEvent::Install { .. }));
        assert_eq!((installs.count(), world.installed_count()), (2, 2), "{protocol}");
        assert_eq!(world.net[world.ac].session_count(), 1);
        assert_eq!((world.end_reasons(), world.client_end_reasons(0)), (vec![], vec![]));
    }
}

#[test]
fn hosts_come_in_over_a_lossy_link() {
    let config = |n| ClientConfig {
        persist: true,
        attempts: 0,
        ..client_config(n, &[AuthenticationProtocol::MsChapV2])
    };
    let mut world = PppoeTestNetwork::new(super::concentrator_config(), (1..=8).map(config).collect());
    let loss = LossModel::Bernoulli(0.2);
    for n in 0..8 {
        let channel =
            ChannelConfig { loss: loss.clone(), delay: Duration::from_millis(3), ..ChannelConfig::default() };
        world.net.link_hosts(world.ac, world.clients[n], &channel);
        world.connect_client(n);
    }
    world.net.run_for(secs(240));
    for n in 0..8 {
        let link = world.net[world.clients[n]].has_pppoe_session();
        assert!(link && world.client_networks(n).len() >= 2, "host {n}: {:?}", world.client_end_reasons(n));
    }
}

#[test]
fn either_side_may_close() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    let (session, number) = world.connect_first();
    world.net.send_command(world.ac, ConcentratorCommand::Close(session)).unwrap();
    assert_eq!(world.installed_count(), 0, "nothing passes from now on");
    world.net.run_for(secs(5));
    assert_eq!(world.end_reasons(), [EndReason::Closed]);
    let other = world.client_end_reasons(0);
    assert!(other == [EndReason::PeerClosed] || other == [EndReason::Padt], "{other:?}");
    assert_eq!(world.net[world.ac].session_count(), 0);
    assert!(world.net[world.ac].subscriber(session).is_none());

    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    world.connect_first();
    world.net.send_command(world.clients[0], ClientCommand::Disconnect).unwrap();
    world.net.run_for(secs(5));
    assert_eq!((world.installed_count(), world.client_end_reasons(0)), (0, vec![EndReason::Closed]));
    assert_eq!(world.end_reasons().len(), 1);
    let last = world.net.sent_transmits().iter().rev().find(|sent| sent.from == 1).unwrap();
    let frame = PppoeFrame::parse(&last.bytes).unwrap();
    assert_eq!((frame.code, frame.session), (PppoeCode::PADT, number), "and says so");

    let mut world = PppoeTestNetwork::new(
        super::concentrator_config(),
        (1..=3).map(|n| client_config(n, &[AuthenticationProtocol::Pap])).collect(),
    );
    (0..3).for_each(|n| world.connect_client(n));
    world.net.run_for(secs(2));
    assert_eq!(world.net[world.ac].session_count(), 3);
    world.net.send_command(world.ac, ConcentratorCommand::CloseAll).unwrap();
    world.net.run_for(secs(10));
    assert_eq!((world.net[world.ac].session_count(), world.installed_count()), (0, 0));
}

#[test]
fn a_peer_that_falls_silent_is_missed() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Eap);
    world.connect_first();
    world.net.run_for(secs(300));
    assert_eq!(world.installed_count(), 2, "its replies keep it");
    let gone = world.net.now();
    world.net.set_silent(world.clients[0], true);
    world.net.run_for(secs(100));
    assert_eq!((world.end_reasons(), world.installed_count()), (vec![EndReason::Unreachable], 0));
    let (at, _) = world.net.recorded_events(world.ac).last().unwrap();
    // Three Echo-Requests 20 s apart, and the wait for the third reply.
    assert!((60..=80).contains(&at.duration_since(gone).as_secs()), "{}", at.duration_since(gone));

    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Eap);
    world.connect_first();
    world.net.set_silent(world.ac, true);
    world.net.run_for(secs(100));
    assert_eq!(world.client_end_reasons(0), [EndReason::Unreachable]);
}

#[test]
fn a_concentrator_that_restarts_gets_its_hosts_back() {
    let config = |n| ClientConfig { persist: true, ..client_config(n, &[AuthenticationProtocol::MsChapV2]) };
    let mut world = PppoeTestNetwork::new(super::concentrator_config(), (1..=5).map(config).collect());
    (0..5).for_each(|n| world.connect_client(n));
    world.net.run_for(secs(2));
    assert_eq!(world.net[world.ac].session_count(), 5);
    let fresh = PppoeConcentrator::new(super::concentrator_config(), SecureRng::from_seed([99; 32])).unwrap();
    world.net[world.ac] = fresh;
    // A PADT answers each host's next Echo-Request.
    world.net.run_for(secs(30));
    assert_eq!((world.net[world.ac].session_count(), world.net[world.ac].unauthenticated_count()), (5, 0));
    for n in 0..5 {
        assert_eq!(world.client_end_reasons(n), [EndReason::Padt]);
    }
}

#[test]
fn a_host_that_restarts_takes_its_old_sessions_place() {
    let config = ConcentratorConfig { sessions_per_station: 1, ..concentrator_config() };
    let mut world = PppoeTestNetwork::new(config, vec![client_config(1, &[AuthenticationProtocol::Chap])]);
    world.connect_first();
    world.net[world.clients[0]] =
        PppoeClient::new(client_config(1, &[AuthenticationProtocol::Chap]), SecureRng::from_seed([55; 32]));
    world.connect_client(0);
    world.net.run_for(secs(5));
    assert_eq!(world.end_reasons(), [EndReason::Replaced]);
    assert_eq!((world.net[world.ac].session_count(), world.installed_count()), (1, 2));
    assert_eq!(world.net[world.ac].counters().replaced, 1);
}

#[test]
fn a_network_that_one_side_does_not_want_leaves_the_other() {
    let mut world = PppoeTestNetwork::new(
        concentrator_config(),
        vec![ClientConfig { ipv6: None, ..client_config(1, &[AuthenticationProtocol::Chap]) }],
    );
    world.connect_client(0);
    world.net.run_for(secs(20));
    assert_eq!((world.installed_count(), world.client_networks(0).len()), (1, 1));
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    world.judge.lock().unwrap().without_ipv6 = true;
    world.connect_client(0);
    world.net.run_for(secs(20));
    assert_eq!((world.installed_count(), world.client_networks(0).len()), (1, 1));
    assert_eq!((world.end_reasons(), world.client_end_reasons(0)), (vec![], vec![]));
    let only = ClientConfig { ipv4: false, ..client_config(1, &[AuthenticationProtocol::Chap]) };
    let mut world = PppoeTestNetwork::new(concentrator_config(), vec![only]);
    world.judge.lock().unwrap().without_ipv6 = true;
    world.connect_client(0);
    world.net.run_for(secs(20));
    assert_eq!(world.end_reasons().len(), 1, "with neither in common the session is of no use");
    assert_eq!(world.installed_count(), 0);
}

#[test]
fn a_protocol_that_is_not_known_is_rejected() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    let (_, number) = world.connect_first();
    let since = world.net.sent_transmits().len();
    // Compression ControlCode Protocol (RFC 1962): Configure-Request without options.
    let packet = [0x80, 0xfd, 1, 1, 0, 4];
    world.deliver_frame(&session_frame(host_mac(1), number, &packet));
    let sent = world.sent_to(host_mac(1), since);
    let (protocol, lcp) = PppProtocol::split_packet(PppoeFrame::parse(&sent[0]).unwrap().payload).unwrap();
    let reject = ControlPacket::parse(lcp).unwrap();
    assert_eq!((protocol, reject.code), (PppProtocol::LCP, ControlCode::PROTOCOL_REJECT));
    assert_eq!(reject.data, packet);
    // LCP answers an unknown code by Code-Reject.
    let since = world.net.sent_transmits().len();
    world.deliver_frame(&session_frame(host_mac(1), number, &[0xc0, 0x21, 77, 5, 0, 6, 1, 2]));
    let sent = world.sent_to(host_mac(1), since);
    let (_, lcp) = PppProtocol::split_packet(PppoeFrame::parse(&sent[0]).unwrap().payload).unwrap();
    let reject = ControlPacket::parse(lcp).unwrap();
    assert_eq!((reject.code, reject.data), (ControlCode::CODE_REJECT, &[77, 5, 0, 6, 1, 2][..]));
    assert_eq!(world.installed_count(), 2);
}

#[test]
fn longer_packets_pass_once_one_has_passed() {
    let ports = vec![ConcentratorPort { port: PORT, address: AC, mtu: 9000 }];
    let config = ConcentratorConfig { ports, ..concentrator_config() };
    let jumbo = ClientConfig { mtu: 4008, ..client_config(1, &[AuthenticationProtocol::Chap]) };
    let mtus = |world: &PppoeTestNetwork| {
        let events = world.net.recorded_events(world.ac).iter();
        let mtus = events.filter_map(|(_, event)| match event {
            ConcentratorEvent::Install { mtu, .. } | ConcentratorEvent::Mtu { mtu, .. } => Some(*mtu),
            _ => None,
        });
        mtus.max()
    };
    let mut world = PppoeTestNetwork::new(config.clone(), vec![jumbo.clone()]);
    world.connect_client(0);
    world.net.run_for(secs(10));
    assert_eq!(mtus(&world), Some(4000));
    // An Ethernet on the path drops long frames: the session works as usual.
    let mut world = PppoeTestNetwork::new(config.clone(), vec![jumbo]);
    world
        .net
        .intercept_transmits(|_, sent| if sent.bytes.len() > 1514 { vec![] } else { vec![Duration::ZERO] });
    world.connect_client(0);
    world.net.run_for(secs(10));
    assert_eq!((mtus(&world), world.installed_count()), (Some(1492), 2));
    // A host that sends no PPP-Max-Payload.
    let mut world = PppoeTestNetwork::new(config, vec![client_config(1, &[AuthenticationProtocol::Chap])]);
    world.connect_client(0);
    world.net.run_for(secs(10));
    assert_eq!(mtus(&world), Some(1492));
}

/// The type of the error tag tells who can correct the error.
#[test]
fn a_client_that_is_refused_a_session_is_told_why() {
    let config = ConcentratorConfig { sessions: 1, ..concentrator_config() };
    let mut world = PppoeTestNetwork::new(
        config,
        vec![
            client_config(1, &[AuthenticationProtocol::Chap]),
            client_config(2, &[AuthenticationProtocol::Chap]),
        ],
    );
    world.connect_client(0);
    world.connect_client(1);
    world.net.run_for(secs(5));
    let told = world.net.recorded_events(world.clients[1]).iter().find_map(|(_, event)| match event {
        ClientEvent::RefusalMessage { message } => Some(String::from_utf8_lossy(message).into_owned()),
        _ => None,
    });
    assert_eq!(told.as_deref(), Some("AC-System-Error: too many sessions"));
    assert_eq!(world.client_end_reasons(1), [EndReason::Refused]);
}

#[test]
fn a_client_tries_again_with_longer_waits_and_gives_up() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    world.net.set_silent(world.ac, true);
    world.connect_client(0);
    world.net.run_for(secs(100));
    let at: Vec<u64> =
        world.net.sent_transmits().iter().map(|sent| sent.sent_at.as_nanos() / 1_000_000_000).collect();
    assert_eq!(at, [0, 1, 3, 7, 15]);
    assert_eq!(world.client_end_reasons(0), [EndReason::NoConcentrator]);
    assert!(
        world.net.send_command(world.clients[0], ClientCommand::Connect).is_ok(),
        "and may be told again"
    );
}

#[test]
fn the_work_is_told() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    world.connect_first();
    let work = world.net.take_work();
    // Two packets in each direction, each sent and received. Digests: a cookie made and checked, a challenge, a
    // response.
    assert_eq!((work["ppp.discovery"], work["ppp.digest"]), (8, 4));
    assert!(work["ppp.control"] >= 24, "{work:?}");
}

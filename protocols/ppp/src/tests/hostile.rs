//! Attacks: forged frames, wrong lengths, loops, endless negotiations.

use super::*;
use crate::auth::AuthenticationProtocol;
use crate::auth::authenticator::ProofVerdict;
use crate::link::{PppLink, PppLinkOutput, PppLinkRole};
use crate::packet::{ConfigOption, ControlCode, ControlPacket, PppProtocol};
use crate::{LinkConfig, NegotiationConfig};
use proptest::prelude::*;
use usher_core::Instant;

fn lcp_packet(code: ControlCode, identifier: u8, data: &[u8]) -> Vec<u8> {
    [&PppProtocol::LCP.0.to_be_bytes(), &ControlPacket { code, identifier, data }.to_vec()[..]].concat()
}

/// Returns the concentrator's control packets of a session to a station.
fn control_packets(
    world: &PppoeTestNetwork,
    to: MacAddress,
    since: usize,
) -> Vec<(PppProtocol, ControlCode, u8, Vec<u8>)> {
    let frames = world.sent_to(to, since);
    let frames = frames.iter().map(|bytes| PppoeFrame::parse(bytes).unwrap());
    let is_data = |frame: &PppoeFrame<'_>| frame.payload.starts_with(&PppProtocol::IPV6.0.to_be_bytes());
    let packets = frames.filter(|frame| frame.stage == PppoeStage::Session && !is_data(frame));
    let packets = packets.map(|frame| {
        let (protocol, octets) = PppProtocol::split_packet(frame.payload).unwrap();
        let packet = ControlPacket::parse(octets).unwrap();
        (protocol, packet.code, packet.identifier, packet.data.to_vec())
    });
    packets.collect()
}

#[test]
fn only_its_own_host_ends_a_session_by_padt() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    let (_, number) = world.connect_first();
    let none = DiscoveryTags::default();
    world.deliver_frame(&discovery_frame(host_mac(9), AC, PppoeCode::PADT, number, &none));
    let forged = DiscoveryTags { host_uniq: Some(b"another"), ..none.clone() };
    world.deliver_frame(&discovery_frame(host_mac(1), AC, PppoeCode::PADT, number, &forged));
    world.deliver_frame(&discovery_frame(host_mac(1), AC, PppoeCode::PADT, number ^ 1, &none));
    let counters = *world.net[world.ac].counters();
    assert_eq!((counters.spoofed, counters.forged_padt, counters.unknown_session), (1, 1, 1));
    assert_eq!((world.installed_count(), world.net[world.ac].session_count()), (2, 1));
    world.deliver_frame(&discovery_frame(host_mac(1), AC, PppoeCode::PADT, number, &none));
    assert_eq!((world.installed_count(), world.end_reasons()), (0, vec![EndReason::Padt]));
    // A guessed PADT is ignored, unless it has the session's Host-Uniq.
    for knows in [false, true] {
        let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
        let (_, number) = world.connect_first();
        for n in 1..=6 {
            world.deliver_frame(&discovery_frame(host_mac(1), AC, PppoeCode::PADT, number ^ n, &none));
        }
        let sent: Vec<_> = world.net.sent_transmits().iter().map(|sent| sent.bytes.clone()).collect();
        let mut frames = sent.iter().filter_map(|bytes| PppoeFrame::parse(bytes).ok());
        let request = frames.rfind(|frame| frame.code == PppoeCode::PADR).unwrap();
        let host_uniq = DiscoveryTags::parse(request.payload).unwrap().host_uniq.filter(|_| knows);
        assert_eq!(host_uniq.is_some(), knows);
        let told = DiscoveryTags { host_uniq, ..none.clone() };
        world.deliver_frame(&discovery_frame(host_mac(1), AC, PppoeCode::PADT, number, &told));
        assert_eq!(world.net[world.ac].counters().guessed_padt, u64::from(!knows));
        assert_eq!(world.net[world.ac].session_count(), usize::from(!knows));
        // A restarted host is accepted again after a while.
        world.net.run_for(secs(15));
        world.deliver_frame(&discovery_frame(host_mac(1), AC, PppoeCode::PADT, number, &none));
        assert_eq!(world.end_reasons(), [EndReason::Padt]);
    }
    // The client accepts PADT only from its concentrator.
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    let (_, number) = world.connect_first();
    for (from, tags) in [(host_mac(9), DiscoveryTags::default()), (AC, forged)] {
        let frame = discovery_frame(from, host_mac(1), PppoeCode::PADT, number, &tags);
        world.net.inject_input(world.clients[0], MachineInput::Frame { port: PORT, data: &frame });
    }
    assert!(world.net[world.clients[0]].has_pppoe_session());
    let counters = world.net[world.clients[0]].counters();
    assert_eq!((counters.not_for_us, counters.forged_padt), (1, 1));
}

#[test]
fn a_session_number_is_of_use_to_its_station_alone() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    let (_, number) = world.connect_first();
    let since = world.net.sent_transmits().len();
    let terminate = lcp_packet(ControlCode::TERMINATE_REQUEST, 1, &[]);
    world.deliver_frame(&session_frame(host_mac(9), number, &terminate));
    assert_eq!(world.net[world.ac].counters().spoofed, 1);
    assert_eq!(world.net.sent_transmits().len(), since, "nothing is said to it");
    // A PADT answers an unknown SESSION_ID, at a bounded rate.
    for _ in 0..5000 {
        world.deliver_frame(&session_frame(host_mac(9), number ^ 1, &terminate));
    }
    assert_eq!(world.sent_to(host_mac(9), since).len(), 2000);
    assert_eq!(world.installed_count(), 2);
}

#[test]
fn nothing_of_a_network_is_heard_before_its_host_is_let_in() {
    let mut world = PppoeTestNetwork::new(concentrator_config(), vec![]);
    let number = run_discovery(&mut world, host_mac(1));
    let ipcp = [&PppProtocol::IPCP.0.to_be_bytes()[..], &[1, 1, 0, 10, 3, 6, 192, 0, 2, 99]].concat();
    let ipv4 = [&PppProtocol::IPV4.0.to_be_bytes()[..], &[0x45; 20]].concat();
    let try_both = |world: &mut PppoeTestNetwork| {
        let since = world.net.sent_transmits().len();
        world.deliver_frame(&session_frame(host_mac(1), number, &ipcp));
        world.deliver_frame(&session_frame(host_mac(1), number, &ipv4));
        assert_eq!(world.net.sent_transmits().len(), since);
    };
    try_both(&mut world);
    // LCP opens: both Configure-Requests are acknowledged.
    let (_, _, identifier, options) = control_packets(&world, host_mac(1), 0).remove(0);
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &lcp_packet(ControlCode::CONFIGURE_ACK, identifier, &options),
    ));
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &lcp_packet(ControlCode::CONFIGURE_REQUEST, 1, &[]),
    ));
    let since = world.net.sent_transmits().len();
    world.deliver_frame(&session_frame(host_mac(1), number, &ipcp));
    world.deliver_frame(&session_frame(host_mac(1), number, &ipv4));
    assert_eq!(world.net.sent_transmits().len(), since);
    let counters = world.net[world.ac].counters();
    assert_eq!((counters.early, counters.data), (3, 1));
    world.net.run_for(secs(300));
    assert_eq!(world.installed_count(), 0);
    assert_eq!(world.net[world.ac].session_count(), 0, "it has not shown who it is, and is gone");
}

#[test]
fn who_rejects_authentication_is_not_let_in() {
    let mut world = PppoeTestNetwork::new(concentrator_config(), vec![]);
    let number = run_discovery(&mut world, host_mac(1));
    let (_, _, identifier, options) = control_packets(&world, host_mac(1), 0).remove(0);
    let wanted = ConfigOption::parse_all_options(&options).unwrap();
    let mut only = Vec::new();
    wanted.iter().find(|option| option.kind == 3).unwrap().emit(&mut only);
    let since = world.net.sent_transmits().len();
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &lcp_packet(ControlCode::CONFIGURE_REJECT, identifier, &only),
    ));
    let sent = control_packets(&world, host_mac(1), since);
    assert_eq!(sent.iter().map(|sent| sent.1).collect::<Vec<_>>(), [ControlCode::TERMINATE_REQUEST]);
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &lcp_packet(ControlCode::CONFIGURE_REQUEST, 1, &[]),
    ));
    world.net.run_for(secs(20));
    assert_eq!((world.end_reasons(), world.installed_count()), (vec![EndReason::NoAuthentication], 0));
}

/// RFC 1661 §1.2: silently discarded packets are counted.
#[test]
fn a_control_packet_of_which_nothing_follows_is_counted() {
    let mut world = PppoeTestNetwork::new(concentrator_config(), vec![]);
    let number = run_discovery(&mut world, host_mac(1));
    let give = |world: &mut PppoeTestNetwork, packet: &[u8]| {
        let since = world.net.sent_transmits().len();
        world.deliver_frame(&session_frame(host_mac(1), number, packet));
        let sent = world.net.sent_transmits().len() - since;
        let counters = world.net[world.ac].counters();
        (sent, counters.ignored, counters.pending)
    };
    let echo = lcp_packet(ControlCode::ECHO_REQUEST, 9, &[0; 4]);
    assert_eq!(give(&mut world, &echo), (0, 1, 0), "LCP is not open (RFC 1661 §5.8)");
    assert_eq!(give(&mut world, &lcp_packet(ControlCode::TERMINATE_ACK, 9, &[])), (0, 2, 0), "of no request");
    // PAP is agreed, and the password comes twice before the verdict.
    let nak = |protocol: PppProtocol| [&[3, 4][..], &protocol.0.to_be_bytes()].concat();
    let (_, _, identifier, _) = control_packets(&world, host_mac(1), 0).remove(0);
    let since = world.net.sent_transmits().len();
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &lcp_packet(ControlCode::CONFIGURE_NAK, identifier, &nak(PppProtocol::PAP)),
    ));
    let (_, _, identifier, options) = control_packets(&world, host_mac(1), since).remove(0);
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &lcp_packet(ControlCode::CONFIGURE_ACK, identifier, &options),
    ));
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &lcp_packet(ControlCode::CONFIGURE_REQUEST, 1, &[]),
    ));
    world.judge.lock().unwrap().silent = true;
    let request = [&[5][..], b"alice", &[8], PASSWORD].concat();
    for (identifier, pending) in [(1, 0), (2, 1), (3, 2)] {
        let pap = ControlPacket { code: ControlCode(1), identifier, data: &request }.to_vec();
        let pap = [&PppProtocol::PAP.0.to_be_bytes()[..], &pap].concat();
        assert_eq!(give(&mut world, &pap), (0, 2, pending));
    }
    // A network that is not negotiated is rejected, and a closing session starts no network.
    let refused = lcp_packet(ControlCode::PROTOCOL_REJECT, 9, &PppProtocol::IPCP.0.to_be_bytes());
    let asked = world.net[world.ac].counters().not_asked;
    assert_eq!(give(&mut world, &refused), (0, 2, 2));
    assert_eq!(world.net[world.ac].counters().not_asked, asked + 1);
    world.net.send_command(world.ac, ConcentratorCommand::CloseAll).unwrap();
    assert_eq!(give(&mut world, &lcp_packet(ControlCode::CONFIGURE_REQUEST, 2, &[])), (0, 3, 2));
    assert_eq!(give(&mut world, &lcp_packet(ControlCode::TERMINATE_REQUEST, 2, &[])), (1, 3, 2));
}

#[test]
fn a_password_that_is_asked_again_gets_the_answer_of_before() {
    let mut world = PppoeTestNetwork::new(concentrator_config(), vec![]);
    let number = run_discovery(&mut world, host_mac(1));
    let sent = control_packets(&world, host_mac(1), 0).remove(0);
    let mut nak = Vec::new();
    ConfigOption { kind: 3, data: AuthenticationProtocol::Pap.lcp_option() }.emit(&mut nak);
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &lcp_packet(ControlCode::CONFIGURE_NAK, sent.2, &nak),
    ));
    let sent = control_packets(&world, host_mac(1), 0).pop().unwrap();
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &lcp_packet(ControlCode::CONFIGURE_ACK, sent.2, &sent.3),
    ));
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &lcp_packet(ControlCode::CONFIGURE_REQUEST, 1, &[]),
    ));
    let ask = |world: &mut PppoeTestNetwork, identifier, password: &[u8]| {
        let since = world.net.sent_transmits().len();
        let mut data = Vec::new();
        crate::auth::message::PapRequest { name: b"alice", password }.emit(&mut data);
        let packet = ControlPacket { code: ControlCode(1), identifier, data: &data }.to_vec();
        world.deliver_frame(&session_frame(host_mac(1), number, &[&[0xc0, 0x23], &packet[..]].concat()));
        world.net.run_for(Duration::from_millis(20));
        let sent = control_packets(world, host_mac(1), since);
        let pap = sent.into_iter().filter(|sent| sent.0 == PppProtocol::PAP);
        pap.map(|sent| (sent.1.0, sent.2)).collect::<Vec<_>>()
    };
    assert_eq!(ask(&mut world, 1, PASSWORD), [(2, 1)]);
    assert_eq!(ask(&mut world, 2, PASSWORD), [(2, 2)], "the Ack was lost");
    assert_eq!(
        ask(&mut world, 3, b"something else"),
        [(2, 3)],
        "and nothing else is learned (RFC 1334, 2.2.1)"
    );
}

#[test]
fn lengths_that_lie_are_dropped_and_counted() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    let (_, number) = world.connect_first();
    let since = world.net.sent_transmits().len();
    let padi =
        discovery_frame(host_mac(2), MacAddress::BROADCAST, PppoeCode::PADI, 0, &DiscoveryTags::default());
    world.deliver_frame(&padi);
    for cut in 0..padi.len() {
        world.deliver_frame(&padi[..cut]);
    }
    let mut tags = vec![0x01, 0x01, 0x00, 0x00, 0x01, 0x03, 0xff, 0xff, 1, 2];
    let frame = |payload: &[u8]| {
        let mut out = Vec::new();
        let (destination, source, stage) = (MacAddress::BROADCAST, host_mac(2), PppoeStage::Discovery);
        PppoeFrame { destination, source, stage, code: PppoeCode::PADI, session: 0, payload }.emit(&mut out);
        out
    };
    world.deliver_frame(&frame(&tags));
    tags.truncate(5);
    world.deliver_frame(&frame(&tags));
    let two = DiscoveryTags { services: vec![b"", b""], ..DiscoveryTags::default() };
    world.deliver_frame(&discovery_frame(host_mac(2), MacAddress::BROADCAST, PppoeCode::PADI, 0, &two));
    // The reply has no room for the host's echoed tags.
    let long = [7; 1470];
    let long = DiscoveryTags { services: vec![b""], host_uniq: Some(&long), ..DiscoveryTags::default() };
    world.deliver_frame(&discovery_frame(host_mac(2), MacAddress::BROADCAST, PppoeCode::PADI, 0, &long));
    for packet in [
        &[0xc0][..],
        &[0xc0, 0x21],
        &[0xc0, 0x21, 1, 1, 0, 3],
        &[0xc0, 0x21, 1, 1, 0, 99],
        &[0xc0, 0x21, 1, 1, 0, 6, 1, 1],
        &[0xc0, 0x21, 1, 1, 0, 6, 1, 9],
        &[0xc0, 0x21, 9, 1, 0, 6, 0, 0],
        &[0xc2, 0x23, 2, 1, 0, 5, 200],
    ] {
        world.deliver_frame(&session_frame(host_mac(1), number, packet));
    }
    let counters = *world.net[world.ac].counters();
    assert_eq!((counters.service_count, counters.oversized), (2, 1));
    assert_eq!((counters.malformed, counters.bad_packet), (padi.len() as u64 + 2, 7));
    assert_eq!(world.net.sent_transmits().len(), since, "nothing is said to any of it");
    assert_eq!(world.installed_count(), 2);
}

#[test]
fn frames_that_are_not_for_a_concentrator_are_dropped() {
    let mut world = PppoeTestNetwork::new(concentrator_config(), vec![]);
    let any = DiscoveryTags { services: vec![b""], ..DiscoveryTags::default() };
    let broadcast = MacAddress::BROADCAST;
    world.deliver_frame(&discovery_frame(host_mac(1), host_mac(2), PppoeCode::PADI, 0, &any));
    world.deliver_frame(&discovery_frame(host_mac(1), broadcast, PppoeCode::PADR, 0, &any));
    world.deliver_frame(&discovery_frame(broadcast, broadcast, PppoeCode::PADI, 0, &any));
    world.deliver_frame(&discovery_frame(MacAddress::default(), broadcast, PppoeCode::PADI, 0, &any));
    world.deliver_frame(&discovery_frame(host_mac(1), broadcast, PppoeCode::PADI, 5, &any));
    world.deliver_frame(&discovery_frame(host_mac(1), AC, PppoeCode::PADO, 0, &any));
    let data = discovery_frame(host_mac(1), broadcast, PppoeCode::PADI, 0, &any);
    world.net.inject_input(world.ac, MachineInput::Frame { port: LinkLayerPortId(4), data: &data });
    let mut other = data.clone();
    other[12..14].copy_from_slice(&[8, 0]);
    world.deliver_frame(&other);
    let counters = *world.net[world.ac].counters();
    assert_eq!((counters.not_for_us, counters.malformed), (2, 2));
    assert_eq!((counters.unexpected, counters.not_ours), (2, 2));
    assert!(world.net.sent_transmits().is_empty());
}

#[test]
fn another_magic_number_is_dropped_and_ones_own_is_a_loop() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    let (_, number) = world.connect_first();
    let since = world.net.sent_transmits().len();
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &lcp_packet(ControlCode::ECHO_REQUEST, 1, &[1, 2, 3, 4]),
    ));
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &lcp_packet(ControlCode::ECHO_REPLY, 1, &[1, 2, 3, 4]),
    ));
    assert_eq!(world.net[world.ac].counters().bad_magic, 2);
    assert_eq!(world.net.sent_transmits().len(), since);
    let requests = control_packets(&world, host_mac(1), 0);
    let (_, _, _, options) = requests
        .iter()
        .rfind(|sent| sent.0 == PppProtocol::LCP && sent.1 == ControlCode::CONFIGURE_REQUEST)
        .unwrap();
    let options = ConfigOption::parse_all_options(options).unwrap();
    let magic = options.iter().find(|option| option.kind == 5).unwrap().data;
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &lcp_packet(ControlCode::ECHO_REQUEST, 1, magic),
    ));
    assert_eq!((world.end_reasons(), world.installed_count()), (vec![EndReason::Looped], 0));
}

#[test]
fn a_link_that_is_looped_back_is_noticed() {
    for role in [
        PppLinkRole::Authenticator {
            name: b"ac".to_vec(),
            protocols: Arc::new([AuthenticationProtocol::Chap]),
            duid: vec![],
        },
        PppLinkRole::Peer {
            credentials: Arc::new(test_credentials(&[AuthenticationProtocol::Chap], b"x")),
            requires_authentication: false,
            ipv4: true,
            dns: true,
            ipv6: None,
            delegation: None,
        },
    ] {
        let (mut now, wall) = (usher_core::Instant::ZERO, WallTime::UNIX_EPOCH);
        let rng = SecureRng::from_seed([4; 32]);
        let mut link = PppLink::new(role, LinkConfig::default(), 1492, rng, now, wall);
        let mut ended = None;
        for _ in 0..100 {
            let all = link.take_link_outputs();
            let quiet = all.is_empty();
            for said in all {
                match said {
                    PppLinkOutput::Send(protocol, packet) => {
                        let packet = [&protocol.0.to_be_bytes(), &packet[..]].concat();
                        let _ = link.receive_packet(now, wall, &packet);
                    }
                    PppLinkOutput::Ended(reason) => ended = Some(reason),
                    other => {
                        assert!(
                            !matches!(other, PppLinkOutput::Up(_) | PppLinkOutput::Authenticated),
                            "{other:?}"
                        )
                    }
                }
            }
            if ended.is_some() {
                break;
            }
            if quiet {
                now = link.poll_timeout().unwrap().max(now);
                link.handle_timeout(now, wall);
            }
        }
        // The authenticator's own request comes back, and this side offers no such protocol. Either reason ends the
        // loop.
        assert!(matches!(ended, Some(EndReason::Looped | EndReason::NoAuthentication)), "{ended:?}");
    }
}

/// Two hosts that do not authenticate one another: the one that requires authentication leaves, without a network.
#[test]
fn a_host_that_requires_authentication_leaves_without_it() {
    for asked in [false, true] {
        let link = |seed, asked| {
            let role = PppLinkRole::Peer {
                credentials: Arc::new(test_credentials(&[AuthenticationProtocol::Eap], b"x")),
                requires_authentication: asked,
                ipv4: true,
                dns: true,
                ipv6: None,
                delegation: None,
            };
            let (now, wall) = (usher_core::Instant::ZERO, WallTime::UNIX_EPOCH);
            PppLink::new(role, LinkConfig::default(), 1492, SecureRng::from_seed([seed; 32]), now, wall)
        };
        let (now, wall) = (usher_core::Instant::ZERO, WallTime::UNIX_EPOCH);
        let mut links = [link(1, asked), link(2, false)];
        let mut said = [Vec::new(), Vec::new()];
        for turn in 0..40 {
            let (from, to) = (turn % 2, 1 - turn % 2);
            for one in links[from].take_link_outputs() {
                match one {
                    PppLinkOutput::Send(protocol, packet) => {
                        let packet = [&protocol.0.to_be_bytes(), &packet[..]].concat();
                        let _ = links[to].receive_packet(now, wall, &packet);
                    }
                    other => said[from].push(other),
                }
            }
        }
        assert_eq!(said[0].contains(&PppLinkOutput::Authenticated), !asked, "{said:?}");
        assert_eq!(
            said[0].contains(&PppLinkOutput::Ended(EndReason::AuthenticationNotRequested)),
            asked,
            "{said:?}"
        );
    }
}

#[test]
fn a_negotiation_that_does_not_converge_is_given_up() {
    let mut world = PppoeTestNetwork::new(concentrator_config(), vec![]);
    let number = run_discovery(&mut world, host_mac(1));
    let (mut since, mut asked) = (0, 0);
    for round in 0..200u16 {
        for (_, code, identifier, _) in control_packets(&world, host_mac(1), since) {
            since = world.net.sent_transmits().len();
            if code == ControlCode::CONFIGURE_REQUEST {
                // The peer requests another MRU each time, none of them acceptable.
                asked += 1;
                let [high, low] = (1000 + round % 2).to_be_bytes();
                let nak = lcp_packet(ControlCode::CONFIGURE_NAK, identifier, &[1, 4, high, low]);
                world.deliver_frame(&session_frame(host_mac(1), number, &nak));
                let request = lcp_packet(ControlCode::CONFIGURE_REQUEST, round as u8, &[1, 4, 0xff, 0xff]);
                world.deliver_frame(&session_frame(host_mac(1), number, &request));
            }
        }
        world.net.run_for(Duration::from_millis(200));
    }
    assert_eq!(world.end_reasons(), [EndReason::NotConverging]);
    assert!(asked < NegotiationConfig::default().max_requests, "{asked}");
    let sent = control_packets(&world, host_mac(1), 0);
    let of = |code| sent.iter().filter(|sent| sent.1 == code).count();
    assert_eq!(of(ControlCode::CONFIGURE_NAK), NegotiationConfig::default().max_failure as usize);
    assert!(of(ControlCode::CONFIGURE_REJECT) > 5, "after Max-Failure it is rejected");
}

#[test]
fn options_that_pppoe_forbids_are_rejected() {
    let mut world = PppoeTestNetwork::new(concentrator_config(), vec![]);
    let number = run_discovery(&mut world, host_mac(1));
    let since = world.net.sent_transmits().len();
    // ACCM, PFC, ACFC, FCS-Alternatives, a quality protocol (RFC 2516 §7), and authentication of the concentrator.
    let forbidden = [2, 6, 0, 0, 0, 0, 7, 2, 8, 2, 9, 3, 1, 4, 4, 0xc0, 0x25, 3, 4, 0xc0, 0x23];
    let all = [&[1, 4, 5, 0xd4][..], &forbidden].concat();
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &lcp_packet(ControlCode::CONFIGURE_REQUEST, 9, &all),
    ));
    let (_, code, identifier, data) = control_packets(&world, host_mac(1), since).remove(0);
    assert_eq!((code, identifier, &data[..]), (ControlCode::CONFIGURE_REJECT, 9, &forbidden[..]));
    // An MRU above Ethernet's, or an option without a length, is not accepted.
    for (wanted, suggested) in
        [(&[1, 4, 0x05, 0xdc][..], [5, 0xd4]), (&[1, 4, 0, 9], [0, 128]), (&[1, 2], [5, 0xd4])]
    {
        let since = world.net.sent_transmits().len();
        world.deliver_frame(&session_frame(
            host_mac(1),
            number,
            &lcp_packet(ControlCode::CONFIGURE_REQUEST, 9, wanted),
        ));
        let (_, code, _, data) = control_packets(&world, host_mac(1), since).remove(0);
        assert_eq!((code, &data[..]), (ControlCode::CONFIGURE_NAK, &[1, 4, suggested[0], suggested[1]][..]));
    }
}

#[test]
fn an_address_that_was_not_given_is_not_agreed_to() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    let (_, number) = world.connect_first();
    let since = world.net.sent_transmits().len();
    let ipcp = |data: &[u8]| {
        let packet = ControlPacket { code: ControlCode::CONFIGURE_REQUEST, identifier: 3, data }.to_vec();
        [&PppProtocol::IPCP.0.to_be_bytes(), &packet[..]].concat()
    };
    world.deliver_frame(&session_frame(host_mac(1), number, &ipcp(&[3, 6, 192, 0, 2, 200])));
    assert_eq!(world.installed_count(), 1, "negotiation anew takes the network down");
    let sent = control_packets(&world, host_mac(1), since);
    let answer = sent.iter().find(|sent| sent.1 == ControlCode::CONFIGURE_NAK).unwrap();
    assert_eq!(answer.3, [3, 6, 192, 0, 2, 10]);
    // An unspecified address gets a Nak. Van Jacobson compression and NetBIOS servers are rejected.
    let since = world.net.sent_transmits().len();
    world.deliver_frame(&session_frame(host_mac(1), number, &ipcp(&[])));
    assert_eq!(control_packets(&world, host_mac(1), since)[0].3, [3, 6, 192, 0, 2, 10]);
    let since = world.net.sent_transmits().len();
    let vj = [2, 6, 0, 0x2d, 15, 1, 130, 6, 0, 0, 0, 0];
    world.deliver_frame(&session_frame(
        host_mac(1),
        number,
        &ipcp(&[&vj[..], &[3, 6, 192, 0, 2, 10]].concat()),
    ));
    let sent = control_packets(&world, host_mac(1), since).remove(0);
    assert_eq!((sent.1, &sent.3[..]), (ControlCode::CONFIGURE_REJECT, &vj[..]));
}

#[test]
fn constant_renegotiation_ends_the_session() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    let (session, number) = world.connect_first();
    let Some(ipv4) = test_assignment(session).ipv4 else { panic!("an address") };
    let address = [&[3, 6][..], &ipv4.remote.octets()].concat();
    for n in 100..160 {
        let request = ControlPacket { code: ControlCode::CONFIGURE_REQUEST, identifier: n, data: &address };
        let request = [&PppProtocol::IPCP.0.to_be_bytes(), &request.to_vec()[..]].concat();
        world.deliver_frame(&session_frame(host_mac(1), number, &request));
        world.net.run_for(secs(1));
        if n == 102 {
            assert_eq!(world.end_reasons(), [], "now and then it may");
        }
    }
    assert_eq!(world.end_reasons()[0], EndReason::Renegotiating);
    assert_eq!(world.net[world.ac].counters().renegotiating, 1);
    let events = world.net.recorded_events(world.ac);
    let removed = |(_, event): &&(_, ConcentratorEvent)| matches!(event, ConcentratorEvent::Remove { .. });
    let removed = events.iter().filter(removed).count();
    assert!(removed <= 10 + 3, "{removed}");
}

/// Creates the authenticating end of a link whose peer has this MRU.
fn link_to(mru: u16, protocol: AuthenticationProtocol) -> PppLink {
    let role = PppLinkRole::Authenticator {
        name: b"ac".to_vec(),
        protocols: Arc::new([protocol]),
        duid: Vec::new(),
    };
    let rng = SecureRng::from_seed([3; 32]);
    let mut link = PppLink::new(role, LinkConfig::default(), 1492, rng, Instant::ZERO, WallTime::UNIX_EPOCH);
    let mut options = Vec::new();
    ConfigOption { kind: 1, data: &mru.to_be_bytes() }.emit(&mut options);
    let sent = sent_by(&mut link).remove(0);
    let asked = ControlPacket::parse(&sent.1).unwrap();
    for packet in [
        lcp_packet(ControlCode::CONFIGURE_ACK, asked.identifier, asked.data),
        lcp_packet(ControlCode::CONFIGURE_REQUEST, 1, &options),
    ] {
        link.receive_packet(Instant::ZERO, WallTime::UNIX_EPOCH, &packet).unwrap();
    }
    link
}

fn sent_by(link: &mut PppLink) -> Vec<(PppProtocol, Vec<u8>)> {
    let said = link.take_link_outputs().into_iter();
    said.filter_map(|said| {
        if let PppLinkOutput::Send(protocol, packet) = said { Some((protocol, packet)) } else { None }
    })
    .collect()
}

proptest! {
    /// For any input of peer and server, no packet exceeds the peer's MRU. A reply that cannot be shortened ends the
    /// link with its reason.
    #[test]
    fn nothing_is_longer_than_its_peer_takes(
        mru in 128u16..=1492,
        said in 0usize..4000,
        which in 0usize..5,
    ) {
        let (now, wall) = (Instant::ZERO, WallTime::UNIX_EPOCH);
        let takes = usize::from(mru);
        let protocol = [AuthenticationProtocol::Pap, AuthenticationProtocol::Chap, AuthenticationProtocol::MsChapV2, AuthenticationProtocol::Eap, AuthenticationProtocol::Eap][which];
        let mut link = link_to(mru, protocol);
        let first = sent_by(&mut link);
        prop_assert!(first.iter().all(|(_, packet)| packet.len() <= takes));
        let asked = first.iter().find(|(protocol, _)| *protocol == PppProtocol::EAP).map_or(0, |(_, packet)| packet[1]);
        // The longest that a frame can carry.
        let echoed = said.min(1488);
        for code in [ControlCode::ECHO_REQUEST, ControlCode(99)] {
            let data = [&[0; 4][..], &vec![7; echoed][..]].concat();
            let _ = link.receive_packet(now, wall, &lcp_packet(code, 9, &data));
        }
        let sent = sent_by(&mut link);
        prop_assert_eq!(sent.len(), 2);
        prop_assert!(sent.iter().all(|(_, packet)| packet.len() <= takes));
        prop_assert_eq!(sent[0].1.len(), (echoed + 8).min(takes));
        let verdict = match which {
            0 => {
                let request = [&[1, 1, 0, 8, 1, b'a', 1, b'b'][..]].concat();
                let packet = [&PppProtocol::PAP.0.to_be_bytes()[..], &request].concat();
                link.receive_packet(now, wall, &packet).unwrap();
                ProofVerdict::Reject(vec![b'm'; said])
            }
            3 | 4 => {
                let packet = [&PppProtocol::EAP.0.to_be_bytes()[..], &[2, asked, 0, 6, 1, b'a']].concat();
                let _ = link.receive_packet(now, wall, &packet);
                let length = said.max(6) as u16;
                let mut request = vec![1, 77, (length >> 8) as u8, length as u8, 4];
                request.resize(length.into(), 0);
                ProofVerdict::Continue(request)
            }
            _ => return Ok(()),
        };
        let taken = link.apply_verdict(now, wall, verdict, None);
        let said_then = link.take_link_outputs();
        let too_long = |said: &&PppLinkOutput| matches!(said, PppLinkOutput::Send(_, packet) if packet.len() > takes);
        prop_assert_eq!(said_then.iter().find(too_long), None);
        prop_assert!(said_then.iter().any(|said| matches!(said, PppLinkOutput::Send(..))), "taken {}", taken);
        if which > 2 && taken && said > takes {
            link.handle_timeout(now + secs(60), wall);
            let ended = |said: &PppLinkOutput| matches!(said, PppLinkOutput::Ended(EndReason::TooLong));
            prop_assert!(link.take_link_outputs().iter().any(ended));
        }
    }
}

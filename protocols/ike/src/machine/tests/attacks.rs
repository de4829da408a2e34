//! Attackers on the path, and peers that violate the protocol.

use super::*;
use crate::IkeMessage;
use crate::code::NotifyType;
use usher_core::bench::TransmitRecord;

/// An alteration of a message.
type MessageAlteration = Box<dyn FnMut(&mut IkeMessage)>;

/// Alters the unprotected messages on the path.
fn alter_init_messages(world: &mut IkeTestNetwork, mut alter: impl FnMut(&mut IkeMessage) + 'static) {
    world.net.intercept_transmits(move |_, sent: &mut TransmitRecord| {
        if let Ok(mut message) = IkeMessage::parse(&sent.bytes)
            && message.header.exchange == crate::code::ExchangeType::IKE_SA_INIT
        {
            alter(&mut message);
            sent.bytes.clear();
            message.emit(&mut sent.bytes);
        }
        vec![Duration::ZERO]
    });
}

fn two_suites(initiator: bool) -> IkeConnectionConfig {
    let words = ["aes256-sha512-x25519", "aes128-sha1-modp1024"];
    let proposals = words.map(|words| Proposal::parse_ike_proposal(words).unwrap()).into();
    IkeConnectionConfig { proposals, ..psk_connection(initiator) }
}

/// RFC 7296 §2.15: AUTH covers the first message of each side, so an attacker on the path cannot weaken their
/// algorithms.
#[test]
fn nobody_between_the_two_weakens_what_they_agree_on() {
    // Without the better proposal; then without other payloads that would change the protocol.
    let weaker = |message: &mut IkeMessage| {
        for payload in &mut message.payloads {
            if let Payload::SecurityAssociation(proposals) = payload {
                proposals.retain(|proposal| {
                    proposal.transforms_of_kind(crate::code::TransformType::KE).any(|method| method.id == 2)
                });
            }
        }
    };
    let silent = |kind: NotifyType| {
        move |message: &mut IkeMessage| {
            message
                .payloads
                .retain(|payload| !matches!(payload, Payload::Notify(notify) if notify.kind == kind));
        }
    };
    let kinds = [
        NotifyType::IKEV2_FRAGMENTATION_SUPPORTED,
        NotifyType::SIGNATURE_HASH_ALGORITHMS,
        NotifyType::NAT_DETECTION_SOURCE_IP,
    ];
    let mut alterations: Vec<MessageAlteration> = vec![Box::new(weaker)];
    for kind in kinds {
        alterations.push(Box::new(silent(kind)));
    }
    for (n, alter) in alterations.into_iter().enumerate() {
        let mut world = IkeTestNetwork::new(two_suites(true), two_suites(false));
        alter_init_messages(&mut world, alter);
        world.initiate();
        world.net.run_for(secs(400));
        for host in [world.initiator, world.responder] {
            assert_eq!(world.established_sa(host), None, "alteration {n}");
        }
        world.assert_all_removed();
    }
    let mut world = IkeTestNetwork::new(two_suites(true), two_suites(false));
    alter_init_messages(&mut world, |_| {});
    world.connect();
    world.assert_children_match(1);
}

/// RFC 7296 §2.21.1: an attacker that sees the first request can refuse it before the response. A refusal counts only
/// without contradiction.
#[test]
fn an_unauthenticated_refusal_does_not_end_an_attempt_at_once() {
    for (contradicted, kind) in [
        (true, NotifyType::NO_PROPOSAL_CHOSEN),
        (true, NotifyType::INVALID_SYNTAX),
        (false, NotifyType::NO_PROPOSAL_CHOSEN),
    ] {
        let mut world = IkeTestNetwork::with_shared_key();
        let (initiator, responder) = (world.initiator, world.responder);
        world.net.set_silent(responder, !contradicted);
        world.initiate();
        world.net.run_for(millis(1));
        let asked = IkeMessage::parse(&world.net.sent_transmits()[0].bytes).unwrap();
        let header = crate::IkeHeader { initiator: false, response: true, ..asked.header };
        let mut forged = Vec::new();
        IkeMessage { header, payloads: vec![Payload::Notify(NotifyPayload::new(kind))] }.emit(&mut forged);
        for _ in 0..3 {
            world.forge_datagram(
                initiator,
                socket_address(RESPONDER, 500),
                socket_address(INITIATOR, 500),
                &forged,
            );
        }
        world.net.run_for(millis(2900));
        assert!(world.end_reasons(initiator).is_empty(), "{contradicted} {kind}");
        assert_eq!(world.established_sa(responder).is_some(), contradicted, "{kind}");
        world.net.run_for(secs(1));
        let ended = if contradicted { vec![] } else { vec![EndReason::NoProposal] };
        assert_eq!(world.end_reasons(initiator), ended, "{kind}");
    }
}

/// RFC 7296 §2.7: a request for another method is not authenticated. It must not lead to a weaker method that both
/// sides accept.
#[test]
fn who_asks_for_a_weaker_method_unproved_does_not_get_it() {
    let words = "aes128-sha256-x25519-modp1024";
    let side = |initiator| IkeConnectionConfig {
        proposals: vec![Proposal::parse_ike_proposal(words).unwrap()],
        ..psk_connection(initiator)
    };
    let mut world = IkeTestNetwork::new(side(true), side(false));
    // The request is delayed, and a response forged.
    world.net.drop_transmits(&[0]);
    world.initiate();
    world.net.run_for(millis(1));
    let asked = IkeMessage::parse(&world.net.sent_transmits()[0].bytes).unwrap();
    let header = crate::IkeHeader { initiator: false, response: true, ..asked.header };
    let weaker =
        Payload::Notify(NotifyPayload::with_data(NotifyType::INVALID_KE_PAYLOAD, 2u16.to_be_bytes()));
    let mut forged = Vec::new();
    IkeMessage { header, payloads: vec![weaker] }.emit(&mut forged);
    let initiator = world.initiator;
    world.forge_datagram(initiator, socket_address(RESPONDER, 500), socket_address(INITIATOR, 500), &forged);
    world.net.run_for(secs(1));
    let shown: Vec<String> = world
        .net
        .sent_transmits()
        .iter()
        .filter_map(|sent| IkeMessage::parse(&sent.bytes).ok())
        .map(|message| message.to_string())
        .take(5)
        .collect();
    assert!(shown[1].contains("KE(MODP_1024)"), "{shown:?}");
    assert!(shown[2].ends_with("[ N(INVALID_KE_PAYLOAD) ]"), "{shown:?}");
    assert!(shown[3].contains("KE(CURVE25519)"), "{shown:?}");
    assert!(shown[4].contains("KE(CURVE25519)"), "{shown:?}");
    world.assert_children_match(1);
}

/// All messages of a host come back to it from the peer's address.
#[test]
fn what_comes_back_to_who_has_sent_it_changes_nothing() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, _) = world.connect();
    world
        .net
        .send_command(world.initiator, IkeCommand::RekeyChild { sa: ours, spi: initiator_child_spi(&world) })
        .unwrap();
    world.net.run_for(secs(1));
    world.net.send_command(world.initiator, IkeCommand::Probe(ours)).unwrap();
    world.net.run_for(secs(1));
    let sent: Vec<(usize, Vec<u8>)> =
        world.net.sent_transmits().iter().map(|sent| (sent.from, sent.bytes.clone())).collect();
    let (initiator, responder) = (world.initiator, world.responder);
    let number = sent[0].0;
    let before: Vec<_> = [initiator, responder].map(|host| world.events(host).len()).into();
    let count = sent.len();
    for (from, bytes) in sent {
        let (host, own, other) = if from == number {
            (initiator, INITIATOR, RESPONDER)
        } else {
            (responder, RESPONDER, INITIATOR)
        };
        world.forge_datagram(host, socket_address(other, 500), socket_address(own, 500), &bytes);
    }
    let after: Vec<_> = [initiator, responder].map(|host| world.events(host).len()).into();
    assert_eq!(before, after);
    // Only the first request looks like another host's: that of an initiator with this host's own address.
    assert!(world.net.sent_transmits().len() <= count + 1);
    world.assert_children_match(1);
    world.net.send_command(initiator, IkeCommand::Probe(ours)).unwrap();
    world.net.run_for(secs(1));
    assert_eq!(world.counters(initiator).retransmissions, 0);
}

fn initiator_child_spi(world: &IkeTestNetwork) -> u32 {
    *world.installed_children(world.initiator).keys().next().unwrap()
}

/// Each octet of the initiator's proof is altered in turn. The altered message is dropped, and the true one is
/// accepted after it.
#[test]
fn an_altered_proof_is_dropped_and_the_true_one_heard() {
    let mut world = IkeTestNetwork::with_shared_key();
    let responder = world.responder;
    // The true one is lost once.
    world.net.drop_transmits(&[2]);
    world.initiate();
    world.net.run_for(millis(30));
    let proof = world.net.sent_transmits()[2].bytes.clone();
    let before = world.net.sent_transmits().len();
    for at_octet in 0..proof.len() {
        let mut altered = proof.clone();
        altered[at_octet] ^= 1;
        world.forge_datagram(
            responder,
            socket_address(INITIATOR, 500),
            socket_address(RESPONDER, 500),
            &altered,
        );
        world.forge_datagram(
            responder,
            socket_address(INITIATOR, 500),
            socket_address(RESPONDER, 500),
            &proof[..at_octet],
        );
    }
    assert_eq!((world.net.sent_transmits().len(), world.net[responder].half_open()), (before, 1));
    assert!(world.end_reasons(responder).is_empty());
    world.net.run_for(secs(5));
    world.assert_children_match(1);
}

/// Fragments that are not authentic are dropped, whatever their number.
#[test]
fn forged_fragments_take_no_memory_and_block_no_initiator() {
    let mut world = IkeTestNetwork::with_shared_key();
    let responder = world.responder;
    // The true one is lost once.
    world.net.drop_transmits(&[2]);
    world.initiate();
    world.net.run_for(millis(30));
    let proof = world.net.sent_transmits()[2].bytes.clone();
    let before = world.counters(responder);
    for n in 0..2000u16 {
        // An Encrypted Fragment payload (RFC 7383 §2.5) with the header of the true message.
        let mut forged = proof[..28].to_vec();
        forged[16] = 53;
        let body =
            [&[35, 0, 0, 0][..], &(n % 60 + 1).to_be_bytes(), &60u16.to_be_bytes(), &[7; 500]].concat();
        forged.extend_from_slice(&body);
        let payload = u16::try_from(body.len()).unwrap();
        forged[30..32].copy_from_slice(&payload.to_be_bytes());
        let whole = u32::try_from(forged.len()).unwrap();
        forged[24..28].copy_from_slice(&whole.to_be_bytes());
        world.forge_datagram(
            responder,
            socket_address(INITIATOR, 500),
            socket_address(RESPONDER, 500),
            &forged,
        );
    }
    let after = world.counters(responder);
    assert_eq!((after.integrity - before.integrity, after.fragments - before.fragments), (2000, 0));
    world.net.run_for(secs(5));
    world.assert_children_match(1);
}

/// A peer that requests ever more CHILD_SAs reaches a limit, with unique SPIs, and gets an error.
#[test]
fn a_peer_has_so_many_children_and_no_more() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, _) = world.connect();
    for _ in 0..80 {
        world
            .net
            .send_command(world.initiator, IkeCommand::CreateChild { sa: ours, name: "net".into() })
            .unwrap();
        world.net.run_for(millis(200));
    }
    world.assert_children_match(64);
    let refused = world.events(world.initiator).into_iter().filter_map(|event| match event {
        IkeEvent::ChildRefused { why, .. } => Some(why),
        _ => None,
    });
    let refused: Vec<_> = refused.collect();
    assert_eq!(refused, vec![NotifyType::NO_ADDITIONAL_SAS; 80 - 63]);
    // The IKE_SA continues.
    world.net.send_command(world.initiator, IkeCommand::Probe(ours)).unwrap();
    world.net.run_for(secs(1));
    assert!(world.end_reasons(world.responder).is_empty());
}

/// A response arrives when another IKE_SA has taken its SPI. The CHILD_SA is not installed, and the peer gets a
/// Delete.
#[test]
fn an_spi_that_another_has_taken_meanwhile_is_not_used_twice() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, _) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.send_command(initiator, IkeCommand::CreateChild { sa: ours, name: "net".into() }).unwrap();
    world.net.run_for(millis(11));
    // The responder has installed it already.
    assert_eq!(
        (world.installed_children(initiator).len(), world.installed_children(responder).len()),
        (1, 2)
    );
    let asked = world.installed_children(responder).into_values().map(|child| child.outbound);
    let asked = asked.max_by_key(|spi| !world.installed_children(initiator).contains_key(spi)).unwrap();
    world.net[initiator].cx.inbound.insert(asked);
    world.net.run_for(secs(1));
    assert_eq!(
        (world.installed_children(initiator).len(), world.installed_children(responder).len()),
        (1, 1)
    );
    assert_eq!(world.counters(initiator).children_refused, 1);
}

/// After any number of logins and ends, all tables are empty.
#[test]
fn nothing_is_left_of_what_has_ended() {
    let mut world = IkeTestNetwork::with_shared_key();
    for n in 0..200 {
        world.initiate();
        world.net.run_for(millis(200));
        let events = world.net.take_events(world.initiator);
        let sa = events.iter().find_map(|(_, event)| match event {
            IkeEvent::Established { sa, .. } => Some(*sa),
            _ => None,
        });
        world.net.take_events(world.responder);
        match n % 4 {
            0 => world.net.send_command(world.initiator, IkeCommand::Rekey(sa.unwrap())).unwrap(),
            1 => world
                .net
                .send_command(
                    world.initiator,
                    IkeCommand::CreateChild { sa: sa.unwrap(), name: "net".into() },
                )
                .unwrap(),
            _ => {}
        }
        world.net.run_for(millis(300));
        let last = world.net.take_events(world.initiator).into_iter().find_map(|(_, event)| match event {
            IkeEvent::Rekeyed { new, .. } => Some(new),
            _ => None,
        });
        world.net.send_command(world.initiator, IkeCommand::Delete(last.or(sa).unwrap())).unwrap();
        world.net.run_for(millis(300));
    }
    world.net.run_for(secs(100));
    for host in [world.initiator, world.responder] {
        let endpoint = &world.net[host];
        let tables = [
            endpoint.sas.len(),
            endpoint.by_spi.len(),
            endpoint.by_origin.len(),
            endpoint.by_pair.len(),
            endpoint.cx.inbound.len(),
            endpoint.lingering.len(),
            endpoint.armed.len(),
            endpoint.half_open(),
            endpoint.half_open.index_sizes().0,
        ];
        assert_eq!(tables, [0; 9], "{:?}", endpoint.counters());
    }
}

/// The initiator's proof is copied and sent from another address before the true one arrives. Without a NAT, packets
/// do not follow that address, and the true proof is accepted.
#[test]
fn a_proof_that_somebody_has_copied_leads_nobody_to_him() {
    let mut world = IkeTestNetwork::with_shared_key();
    let responder = world.responder;
    world.initiate();
    world.net.run_for(millis(25));
    let proof = world.net.sent_transmits()[2].bytes.clone();
    world.forge_datagram(
        responder,
        socket_address("203.0.113.66", 500),
        socket_address(RESPONDER, 500),
        &proof,
    );
    world.forge_datagram(
        responder,
        socket_address("203.0.113.66", 4500),
        socket_address(RESPONDER, 500),
        &proof,
    );
    // It is not accepted at another address of the responder either.
    world.forge_datagram(
        responder,
        socket_address(INITIATOR, 500),
        socket_address("198.51.100.2", 500),
        &proof,
    );
    assert_eq!((world.counters(responder).elsewhere, world.net[responder].half_open()), (3, 1));
    assert_eq!(world.net.sent_transmits().len(), 3, "nobody is told anything there");
    world.net.run_for(secs(1));
    world.assert_children_match(1);
    let child = world.installed_children(responder).into_values().next().unwrap();
    assert_eq!(
        (child.path.remote, child.path.local),
        (socket_address(INITIATOR, 500), socket_address(RESPONDER, 500))
    );
    assert_eq!(world.counters(world.initiator).retransmissions, 0);
    // The proof comes again after the response: the response is sent again, without further effect.
    world.forge_datagram(
        responder,
        socket_address("203.0.113.66", 500),
        socket_address(RESPONDER, 500),
        &proof,
    );
    world.net.run_for(secs(1));
    assert_eq!(world.counters(responder).moved, 0);
}

/// A CHILD_SA for the peer's own address, whatever it is.
fn host_traffic_connection(initiator: bool) -> IkeConnectionConfig {
    let mut connection = psk_connection(initiator);
    for child in &mut connection.children {
        (child.local, child.remote) = (None, None);
    }
    connection
}

/// Behind a NAT, a proof may come from another address than the first request. The responder then checks that the
/// initiator is there. The CHILD_SA gets no traffic of that address, since it may be forged.
#[test]
fn a_nat_address_is_probed_and_gets_no_traffic_selector() {
    const OTHER_ADDRESS: &str = "10.2.0.5";
    for (mobike, there) in [(false, true), (true, true), (false, false), (true, false)] {
        let side = |initiator| IkeConnectionConfig { mobike, ..host_traffic_connection(initiator) };
        let mut world = IkeTestNetwork::new(side(true), side(false));
        let (initiator, responder) = (world.initiator, world.responder);
        // It does not know its own address, so there is a NAT.
        let connection = world.connection.clone();
        let (local, remote) = (socket_address("0.0.0.0", 500), socket_address(RESPONDER, 500));
        world
            .net
            .send_command(initiator, IkeCommand::Initiate { token: 7, connection, local, remote })
            .unwrap();
        world.net.run_for(millis(25));
        let proof = world.net.sent_transmits()[2].bytes.clone();
        world.forge_datagram(
            responder,
            socket_address(OTHER_ADDRESS, 4500),
            socket_address(RESPONDER, 4500),
            &proof,
        );
        let shown = world.events(responder).into_iter().find_map(|event| match event {
            IkeEvent::Established { path, .. } => Some(path.remote.ip()),
            _ => None,
        });
        assert_eq!(shown, Some(ip_address(INITIATOR)), "the log names where it was shown to receive");
        if there {
            for (socket, port) in [(SOCKET, 500), (NAT_SOCKET, 4500)] {
                world.net.bind_socket(initiator, socket, socket_address(OTHER_ADDRESS, port));
            }
        }
        let children = world.installed_children(responder);
        let remotes: Vec<_> = children.values().flat_map(|child| child.remote.clone()).collect();
        assert_eq!(
            remotes,
            [TrafficSelector::from_address(ip_address(INITIATOR))],
            "where it began, and not {OTHER_ADDRESS}"
        );
        world.net.run_for(secs(400));
        let expected = if there { vec![] } else { vec![EndReason::Unreachable] };
        assert_eq!(world.end_reasons(responder), expected, "mobike {mobike}");
    }
}

/// The responder of the first request has the keys but has not authenticated.
#[test]
fn an_initiator_ignores_requests_of_an_unproved_responder() {
    use crate::code::ExchangeType as E;
    for exchange in
        [E::IKE_AUTH, E::IKE_INTERMEDIATE, E::CREATE_CHILD_SA, E::INFORMATIONAL, E::IKE_FOLLOWUP_KE]
    {
        let mut world = IkeTestNetwork::with_shared_key();
        let (initiator, responder) = (world.initiator, world.responder);
        world.initiate();
        world.net.run_for(millis(15));
        let now = world.net.now();
        let token = *world.net[responder].by_spi.values().next().unwrap();
        let identity = Payload::IdentificationInitiator(Identification::from_fqdn("ini.test"));
        world.net[responder].run_sa_step_at(now, token, |sa, cx| {
            send_request(sa, cx, exchange, &[identity]);
        });
        world.net.run_for(secs(1));
        assert!(world.counters(initiator).not_expected > 0, "{exchange}");
        world.assert_children_match(1);
        assert_eq!(
            (world.end_reasons(initiator), world.end_reasons(responder)),
            (vec![], vec![]),
            "{exchange}"
        );
    }
}

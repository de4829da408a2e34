//! Session resumption (RFC 5723).

use super::*;
use crate::IkeMessage;
use crate::code::{ExchangeType, NotifyType};
use crate::keys::IkeKeys;

const HOUR: Duration = Duration::from_secs(3600);

fn resumable_config() -> IkeEndpointConfig {
    IkeEndpointConfig { tickets: Some(HOUR), export_keys: true, ..default_config() }
}

fn world_of(config: IkeEndpointConfig) -> IkeTestNetwork {
    let quick = |initiator| IkeConnectionConfig { liveness: Some(secs(20)), ..psk_connection(initiator) };
    IkeTestNetwork::with_config(
        config,
        quick(true),
        IkeConnectionConfig { liveness: None, ..quick(false) },
        TestEapMethod::MsChapV2,
    )
}

fn resumable_network() -> IkeTestNetwork {
    world_of(resumable_config())
}

/// The responder becomes unreachable for the initiator; then the path works again.
fn lose_responder(world: &mut IkeTestNetwork) {
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.set_severed(initiator, responder, true);
    world.net.run_for(secs(300));
    assert_eq!(world.end_reasons(initiator), [EndReason::Unreachable]);
    world.net.set_severed(initiator, responder, false);
    world.net.take_work();
}

fn sent_headers(world: &IkeTestNetwork, from: usize) -> Vec<String> {
    let header = |octets: &[u8]| IkeMessage::parse(octets).unwrap().header.to_string();
    world.net.sent_transmits()[from..].iter().map(|sent| header(&sent.bytes)).collect()
}

fn established_count(world: &IkeTestNetwork, host: NetworkHostHandle<IkeEndpoint>) -> usize {
    world.events(host).iter().filter(|event| matches!(event, IkeEvent::Established { .. })).count()
}

/// The newest exported keys of a host.
fn newest_keys(world: &IkeTestNetwork, host: NetworkHostHandle<IkeEndpoint>) -> IkeKeys {
    let mut told = world.events(host).into_iter().filter_map(|event| match event {
        IkeEvent::Keys { keys, .. } => Some(*keys),
        _ => None,
    });
    told.next_back().unwrap()
}

#[test]
fn a_ticket_resumes_a_lost_ike_sa_without_a_key_exchange() {
    let mut world = resumable_network();
    world.connect();
    let old = newest_keys(&world, world.initiator);
    lose_responder(&mut world);
    let from = world.net.sent_transmits().len();
    world.initiate();
    world.net.run_for(secs(1));
    assert_eq!(
        sent_headers(&world, from),
        [
            "IKE_SESSION_RESUME request 0",
            "IKE_SESSION_RESUME response 0",
            "IKE_AUTH request 1",
            "IKE_AUTH response 1"
        ]
    );
    assert_eq!(world.net.take_work().get("ike.key_exchange"), None);
    // The responder's old IKE_SA ended silently, with its CHILD_SA.
    assert_eq!(world.end_reasons(world.responder), [EndReason::Replaced]);
    assert_eq!(world.sa_counts().1, 1);
    world.assert_children_match(1);
    for host in [world.initiator, world.responder] {
        assert_eq!((established_count(&world, host), world.counters(host).resumed), (2, 1));
    }
    // Its keys, by the formulas of §5.1.
    let [asked, answered] =
        [0, 1].map(|n| IkeMessage::parse(&world.net.sent_transmits()[from + n].bytes).unwrap());
    let nonce = |message: &IkeMessage| {
        message.payloads.iter().find_map(|payload| match payload {
            Payload::Nonce(nonce) => Some(nonce.clone()),
            _ => None,
        })
    };
    let (ni, nr) = (nonce(&asked).unwrap(), nonce(&answered).unwrap());
    let prf = |key: &[u8], data: &[&[u8]]| usher_crypto::hmac::hmac_sha256(key, data).to_vec();
    let seed = prf(&old.sk_d, &[b"Resumption", &ni, &nr]);
    let (spi_i, spi_r) = (answered.header.initiator_spi.0, answered.header.responder_spi.0);
    let first = prf(&seed, &[&ni, &nr, &spi_i, &spi_r, &[1]]);
    assert_eq!(newest_keys(&world, world.initiator).sk_d[..], first[..]);
    assert_eq!(newest_keys(&world, world.responder), newest_keys(&world, world.initiator));
}

#[test]
fn a_ticket_is_used_once_and_the_resumed_one_has_another() {
    let mut world = resumable_network();
    world.connect();
    for round in 1..=3 {
        lose_connection(&mut world, round);
        world.initiate();
        world.net.run_for(secs(1));
        assert_eq!(world.counters(world.responder).resumed, round);
    }
    assert_eq!(world.counters(world.responder).tickets, 4);
    // An attacker that has seen the request can replay it, without effect.
    let asked = world.net.sent_transmits().iter().rev().find(|sent| {
        IkeMessage::parse(&sent.bytes).unwrap().header.exchange == ExchangeType::IKE_SESSION_RESUME
            && !IkeMessage::parse(&sent.bytes).unwrap().header.response
    });
    let mut message = IkeMessage::parse(&asked.unwrap().bytes).unwrap();
    message.header.initiator_spi = crate::Spi([9; 8]);
    let mut octets = Vec::new();
    message.emit(&mut octets);
    let (responder, from) = (world.responder, world.net.sent_transmits().len());
    world.forge_datagram(
        responder,
        socket_address("203.0.113.5", 500),
        socket_address(RESPONDER, 500),
        &octets,
    );
    let answer = IkeMessage::parse(&world.net.sent_transmits()[from].bytes).unwrap();
    assert!(answer.find_notify(NotifyType::TICKET_NACK).is_some(), "{answer}");
    assert_eq!(world.sa_counts().1, 1);
    world.assert_children_match(1);
}

fn lose_connection(world: &mut IkeTestNetwork, times: u64) {
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.set_severed(initiator, responder, true);
    world.net.run_for(secs(300));
    assert_eq!(world.end_reasons(initiator).len() as u64, times);
    world.net.set_severed(initiator, responder, false);
}

#[test]
fn a_ticket_that_is_refused_leads_to_all_from_the_beginning() {
    for why in ["expired", "restarted", "configured anew", "not spoken"] {
        let mut world = resumable_network();
        world.connect();
        lose_responder(&mut world);
        let responder = world.responder;
        if why == "expired" {
            // Only the responder's clock has advanced.
            world.net.set_epoch(responder, usher_core::bench::EPOCH + secs(7200));
        } else if why == "restarted" {
            world.net[responder].cx.tickets = crate::machine::tickets::TicketTable::default();
        } else if why == "configured anew" {
            let connections = world.net[responder].cx.connections.clone();
            world.net.send_command(responder, IkeCommand::Serve(connections)).unwrap();
        } else {
            world.net[responder].cx.config.tickets = None;
        }
        let from = world.net.sent_transmits().len();
        world.initiate();
        world.net.run_for(secs(1));
        let said = sent_headers(&world, from);
        assert_eq!(
            said[..4],
            [
                "IKE_SESSION_RESUME request 0",
                "IKE_SESSION_RESUME response 0",
                "IKE_SA_INIT request 0",
                "IKE_SA_INIT response 0"
            ]
        );
        assert_eq!(established_count(&world, world.initiator), 2);
        assert_eq!((world.counters(responder).tickets_refused, world.counters(responder).resumed), (1, 0));
    }
}

#[test]
fn who_does_not_answer_to_a_ticket_is_asked_as_at_first() {
    let mut world = resumable_network();
    world.connect();
    lose_responder(&mut world);
    let from = world.net.sent_transmits().len();
    let resumes = ExchangeType::IKE_SESSION_RESUME.0;
    world.net.intercept_transmits(move |n, sent| {
        if n >= from && sent.bytes.get(18) == Some(&resumes) { Vec::new() } else { vec![Duration::ZERO] }
    });
    world.initiate();
    world.net.run_for(secs(20));
    let said = sent_headers(&world, from);
    assert_eq!(said.iter().filter(|said| said.starts_with("IKE_SESSION_RESUME")).count(), 2);
    assert_eq!(established_count(&world, world.initiator), 2);
}

#[test]
fn what_was_ended_is_not_taken_up_again() {
    for by_client in [true, false] {
        let mut world = resumable_network();
        let (ours, theirs) = world.connect();
        let (host, sa) = if by_client { (world.initiator, ours) } else { (world.responder, theirs) };
        let (initiator, responder, now) = (world.initiator, world.responder, world.net.now());
        let held = world.net[initiator].cx.tickets.take_ticket("site", now).unwrap();
        world.net[initiator].cx.tickets.store_ticket("site", now, HOUR, held.clone());
        let wall = now.to_wall_time(usher_core::bench::EPOCH);
        assert!(world.net[responder].cx.tickets.open_ticket(wall, &held.octets).is_some());
        world.net.send_command(host, IkeCommand::Delete(sa)).unwrap();
        world.net.run_for(secs(1));
        assert!(world.net[initiator].cx.tickets.take_ticket("site", now).is_none(), "the client keeps none");
        // The responder rejects a ticket that was kept all the same.
        assert!(world.net[responder].cx.tickets.open_ticket(wall, &held.octets).is_none());
    }
}

#[test]
fn a_rekeyed_ike_sa_has_a_ticket_of_its_own() {
    for by_client in [true, false] {
        let mut world = resumable_network();
        let (ours, theirs) = world.connect();
        let (host, sa) = if by_client { (world.initiator, ours) } else { (world.responder, theirs) };
        world.net.send_command(host, IkeCommand::Rekey(sa)).unwrap();
        world.net.run_for(secs(2));
        assert_eq!(world.counters(world.responder).tickets, 2);
        let rekeyed = newest_keys(&world, world.initiator);
        let (initiator, responder) = (world.initiator, world.responder);
        world.net.set_severed(initiator, responder, true);
        world.net.run_for(secs(300));
        world.net.set_severed(initiator, responder, false);
        world.initiate();
        world.net.run_for(secs(1));
        assert_eq!(world.counters(world.responder).resumed, 1);
        assert_ne!(newest_keys(&world, world.initiator).sk_d, rekeyed.sk_d);
        world.assert_children_match(1);
    }
}

#[test]
fn under_pressure_a_ticket_needs_a_cookie_too() {
    let mut world = world_of(IkeEndpointConfig { cookies_from: 0, ..resumable_config() });
    world.connect();
    lose_responder(&mut world);
    let from = world.net.sent_transmits().len();
    world.initiate();
    world.net.run_for(secs(1));
    assert_eq!(sent_headers(&world, from).len(), 6);
    assert_eq!(world.counters(world.responder).resumed, 1);
    world.assert_children_match(1);
}

#[test]
fn who_has_a_ticket_and_not_its_keys_is_not_believed() {
    let mut world = resumable_network();
    world.connect();
    lose_responder(&mut world);
    let (initiator, now) = (world.initiator, world.net.now());
    let held = world.net[initiator].cx.tickets.take_ticket("site", now).unwrap();
    let (none, proof) = (SecretValue::from(&[0; 32][..]), (held.proof_until, held.certificates));
    let stolen =
        crate::machine::tickets::StoredTicket::new(held.octets, held.suite, none, held.identities, proof);
    world.net[initiator].cx.tickets.store_ticket("site", now, HOUR, stolen);
    world.initiate();
    world.net.run_for(secs(40));
    assert_eq!(established_count(&world, world.responder), 1);
    assert!(world.counters(world.responder).integrity > 0);
    // The earlier IKE_SA stays until it expires.
    assert_eq!(world.installed_children(world.responder).len(), 1);
}

#[test]
fn whom_eap_lets_in_gets_no_ticket() {
    let eap = IkeConnectionConfig {
        local_auth: peer_auth(TestEapMethod::MsChapV2, PASSWORD),
        ..psk_connection(true)
    };
    let gateway = IkeConnectionConfig {
        remote_auth: RemoteAuth::Eap { request_identity: false },
        remote: None,
        ..psk_connection(false)
    };
    let mut world = IkeTestNetwork::with_config(resumable_config(), eap, gateway, TestEapMethod::MsChapV2);
    world.connect();
    assert_eq!(world.counters(world.responder).tickets, 0);
    let now = world.net.now();
    let initiator = world.initiator;
    assert!(world.net[initiator].cx.tickets.take_ticket("site", now).is_none());
}

/// Between its first message and its proof, a ticket may become void, expire, or be used by another client.
#[test]
fn a_ticket_is_checked_again_when_its_client_proves_itself() {
    for why in ["revoked", "configured anew", "expired", "used"] {
        let mut world = resumable_network();
        world.connect();
        lose_responder(&mut world);
        let (initiator, responder) = (world.initiator, world.responder);
        world.initiate();
        world.net.run_for(millis(15));
        assert_eq!(world.net[responder].half_open(), 1, "the ticket was taken");
        let now = world.net.now();
        match why {
            "revoked" => world.net.send_command(responder, IkeCommand::VoidTickets).unwrap(),
            "configured anew" => {
                let connections = world.net[responder].cx.connections.clone();
                world.net.send_command(responder, IkeCommand::Serve(connections)).unwrap();
            }
            "expired" => world.net.set_epoch(responder, usher_core::bench::EPOCH + secs(7200)),
            _ => {
                let wall = now.to_wall_time(usher_core::bench::EPOCH);
                let endpoint = &mut world.net[responder];
                let token = *endpoint.by_origin.values().next().unwrap();
                let Some(SaPhase::Responding(state)) = endpoint.sas.get(token).map(|sa| &sa.phase) else {
                    panic!("it is half-open");
                };
                let id = state.ticket.unwrap().id;
                endpoint.cx.tickets.mark_spent(wall, &endpoint.cx.config, id);
            }
        }
        world.net.run_for(secs(1));
        assert_eq!(world.counters(responder).resumed, 0, "{why}");
        assert_eq!(world.end_reasons(initiator).last(), Some(&EndReason::Refused), "{why}");
        // Without a ticket, a full login succeeds.
        world.initiate();
        world.net.run_for(secs(1));
        assert_eq!(established_count(&world, initiator), 2, "{why}");
    }
}

/// The proof of an IKE_SA may have been revoked since. It gets no ticket until a new authentication.
#[test]
fn an_ike_sa_of_before_a_revocation_gets_no_ticket() {
    let mut world = resumable_network();
    let (ours, _) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.send_command(responder, IkeCommand::VoidTickets).unwrap();
    world.net.send_command(initiator, IkeCommand::Rekey(ours)).unwrap();
    world.net.run_for(secs(1));
    assert_eq!((world.counters(responder).tickets, world.counters(responder).tickets_refused), (1, 1));
    // An IKE_SA that began before the revocation and authenticated after it may rely on an older check.
    let mut world = self::resumable_network();
    world.initiate();
    world.net.run_for(millis(15));
    let responder = world.responder;
    world.net.send_command(responder, IkeCommand::VoidTickets).unwrap();
    world.net.run_for(secs(1));
    assert_eq!((world.counters(responder).tickets, world.counters(responder).tickets_refused), (0, 1));
    world.net.send_command(world.initiator, IkeCommand::VoidTickets).unwrap();
    let (initiator, now) = (world.initiator, world.net.now());
    assert!(world.net[initiator].cx.tickets.take_ticket("site", now).is_none(), "nor does a client keep one");
}

/// A client that keeps requesting tickets gets four at once and six a minute.
#[test]
fn tickets_are_given_at_a_rate() {
    let mut world = resumable_network();
    let (ours, _) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    let era = world.net[responder].cx.tickets.era();
    let asks = |world: &mut IkeTestNetwork, times: u32| {
        for _ in 0..times {
            let (now, token) = (world.net.now(), ours.token());
            world.net[initiator].run_sa_step_at(now, token, |sa, cx| {
                established_state(sa).plan_task(crate::machine::established::IkeSaTask::RequestTicket);
                sa.go_on(cx);
            });
            world.net.run_for(millis(50));
        }
        (world.counters(responder).tickets, world.counters(responder).tickets_refused)
    };
    assert_eq!(asks(&mut world, 20), (4, 17), "one came with the IKE_SA");
    world.net.run_for(secs(60));
    assert_eq!(asks(&mut world, 20), (8, 33));
    assert_eq!(world.net[responder].cx.tickets.era(), era, "nobody else's have become void");
}

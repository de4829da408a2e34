//! IKE_SA_INIT: proposals, cookies, another key exchange method, NAT.

use super::*;
use crate::code::*;
use crate::{IkeMessage, NON_ESP_MARKER};
use usher_core::Transmit;
use usher_core::bench::TransmitRecord;

/// Parses the message of a sent datagram, in the clear.
fn parse_sent(sent: &TransmitRecord) -> Option<IkeMessage> {
    IkeMessage::parse(sent.bytes.strip_prefix(&NON_ESP_MARKER[..]).unwrap_or(&sent.bytes)).ok()
}

fn sent_ports(sent: &TransmitRecord) -> (u16, u16) {
    match sent.transmit {
        Transmit::Datagram { path } => (path.local.port(), path.remote.port()),
        _ => (0, 0),
    }
}

/// IPv6 Ready: EN.I.1.1.1.1, EN.I.1.1.1.2, EN.R.1.1.1.1, EN.R.1.1.1.2.
#[test]
fn an_ike_sa_is_made_with_four_messages_on_port_500() {
    let mut world = IkeTestNetwork::with_shared_key();
    world.connect();
    world.assert_children_match(1);
    assert_eq!(world.net.sent_transmits().len(), 4);
    assert!(world.net.sent_transmits().iter().all(|sent| sent_ports(sent) == (500, 500)));
    let shown: Vec<_> =
        world.net.sent_transmits().iter().map(|sent| parse_sent(sent).unwrap().to_string()).collect();
    assert_eq!(
        shown,
        [
            "IKE_SA_INIT request 0 [ SA KE(CURVE25519) No N(NAT_DETECTION_SOURCE_IP) \
             N(NAT_DETECTION_DESTINATION_IP) N(IKEV2_FRAGMENTATION_SUPPORTED) N(SIGNATURE_HASH_ALGORITHMS) ]",
            "IKE_SA_INIT response 0 [ SA KE(CURVE25519) No N(NAT_DETECTION_SOURCE_IP) \
             N(NAT_DETECTION_DESTINATION_IP) N(IKEV2_FRAGMENTATION_SUPPORTED) N(SIGNATURE_HASH_ALGORITHMS) \
             N(CHILDLESS_IKEV2_SUPPORTED) ]",
            "IKE_AUTH request 1 [ SK ]",
            "IKE_AUTH response 1 [ SK ]",
        ]
    );
    let child = world.installed_children(world.initiator).into_values().next().unwrap();
    assert_eq!((child.name.as_str(), child.encapsulated, child.replaces), ("net", false, None));
    assert_eq!(
        (child.local, child.remote),
        (network_selectors("10.1.0.0", 16), network_selectors("10.2.0.0", 16))
    );
    let work = world.net.take_work();
    let units = |name| work.get(name).copied().unwrap_or(0);
    assert_eq!((units("ike.key_exchange"), units("ike.protect"), units("ike.open")), (4, 2, 2));
    assert_eq!((units("ike.message"), units("ike.derive"), units("ike.sa")), (8, 8, 2));
    assert_eq!((world.sa_counts(), world.net[world.responder].half_open()), ((1, 1), 0));
}

/// IPv6 Ready: EN.I.1.1.6.11, EN.R.1.1.6.8.
#[test]
fn a_responder_that_wants_another_method_says_which() {
    let mut responder = psk_connection(false);
    responder.proposals = vec![Proposal::parse_ike_proposal("aes128-sha256-modp1024").unwrap()];
    let mut world = IkeTestNetwork::new(psk_connection(true), responder);
    world.connect();
    world.assert_children_match(1);
    let shown: Vec<_> =
        world.net.sent_transmits().iter().filter_map(parse_sent).map(|m| m.to_string()).collect();
    assert_eq!(shown[1], "IKE_SA_INIT response 0 [ N(INVALID_KE_PAYLOAD) ]");
    assert!(shown[2].starts_with("IKE_SA_INIT request 0 [ SA KE(MODP_1024)"), "{}", shown[2]);
    assert_eq!(shown.len(), 6);
    assert_eq!(world.counters(world.responder).invalid_ke, 1);
}

#[test]
fn a_correctly_guessed_key_exchange_wins_over_a_preferred_one() {
    let mut responder = psk_connection(false);
    responder.proposals = vec![Proposal::parse_ike_proposal("aes128-sha256-modp1024-x25519").unwrap()];
    let mut world = IkeTestNetwork::new(psk_connection(true), responder);
    world.connect();
    assert_eq!(world.net.sent_transmits().len(), 4);
}

/// IPv6 Ready: EN.R.1.2.4.1.
#[test]
fn without_a_common_proposal_there_is_no_ike_sa() {
    let mut responder = psk_connection(false);
    responder.proposals = vec![Proposal::parse_ike_proposal("aes256-sha384-x25519").unwrap()];
    let mut world = IkeTestNetwork::new(psk_connection(true), responder);
    world.initiate();
    world.net.run_for(secs(4));
    assert_eq!(world.end_reasons(world.initiator), [EndReason::NoProposal]);
    // The request was sent again, since the refusal may be forged.
    assert_eq!((world.counters(world.responder).no_proposal, world.sa_counts()), (3, (0, 0)));
}

/// IPv6 Ready: EN.I.1.1.5.1.
#[test]
fn under_pressure_a_cookie_is_asked_for_and_nothing_kept_before() {
    let config = IkeEndpointConfig { cookies_from: 0, ..default_config() };
    let mut world = IkeTestNetwork::with_config(
        config,
        psk_connection(true),
        psk_connection(false),
        TestEapMethod::MsChapV2,
    );
    world.initiate();
    world.net.run_for(millis(15));
    assert_eq!((world.sa_counts(), world.net[world.responder].half_open()), ((1, 0), 0));
    world.net.run_for(secs(1));
    world.assert_children_match(1);
    let messages: Vec<_> = world.net.sent_transmits().iter().filter_map(parse_sent).collect();
    assert_eq!(messages[1].to_string(), "IKE_SA_INIT response 0 [ N(COOKIE) ]");
    assert!(messages[2].to_string().starts_with("IKE_SA_INIT request 0 [ N(COOKIE) SA"), "it stands first");
    assert_eq!(messages[2].payloads[1..], messages[0].payloads[..], "all else is as it was");
    assert_eq!((world.counters(world.responder).cookies, messages.len()), (1, 6));
}

/// IPv6 Ready: EN.I.1.1.5.2, EN.I.1.1.5.3.
#[test]
fn a_cookie_and_another_method_may_both_be_asked_for() {
    let mut responder = psk_connection(false);
    responder.proposals = vec![Proposal::parse_ike_proposal("aes128-sha256-modp1024").unwrap()];
    let config = IkeEndpointConfig { cookies_from: 0, ..default_config() };
    let mut world =
        IkeTestNetwork::with_config(config, psk_connection(true), responder, TestEapMethod::MsChapV2);
    world.connect();
    let shown: Vec<_> =
        world.net.sent_transmits().iter().filter_map(parse_sent).map(|m| m.to_string()).collect();
    assert!(shown[4].starts_with("IKE_SA_INIT request 0 [ N(COOKIE) SA KE(MODP_1024)"), "{}", shown[4]);
    assert_eq!(shown.len(), 8);
}

#[test]
fn a_responder_that_asks_for_ever_is_given_up() {
    let mut world = IkeTestNetwork::with_shared_key();
    let responder = world.responder;
    world.net.set_silent(responder, true);
    world.initiate();
    world.net.run_for(millis(1));
    let first = parse_sent(&world.net.sent_transmits()[0]).unwrap();
    let initiator = world.initiator;
    for n in 0..20u8 {
        let notify = NotifyPayload::with_data(NotifyType::COOKIE, vec![n; 8]);
        let header = crate::IkeHeader { initiator: false, response: true, ..first.header };
        let mut octets = Vec::new();
        IkeMessage { header, payloads: vec![Payload::Notify(notify)] }.emit(&mut octets);
        world.forge_datagram(
            initiator,
            socket_address(RESPONDER, 500),
            socket_address(INITIATOR, 500),
            &octets,
        );
    }
    assert_eq!(world.counters(initiator).requests, 1 + 5, "five times at most");
}

#[test]
fn behind_a_nat_all_goes_on_by_port_4500_with_the_marker() {
    let mut world = IkeTestNetwork::with_shared_key();
    let connection = world.connection.clone();
    let (local, remote) = (socket_address("0.0.0.0", 500), socket_address(RESPONDER, 500));
    let initiator = world.initiator;
    // It does not know its own address.
    world.net.send_command(initiator, IkeCommand::Initiate { token: 1, connection, local, remote }).unwrap();
    world.net.run_for(secs(1));
    world.assert_children_match(1);
    let sent = world.net.sent_transmits();
    assert_eq!(sent.iter().map(sent_ports).collect::<Vec<_>>()[..3], [(500, 500), (500, 500), (4500, 4500)]);
    assert!(sent[2..].iter().all(|sent| sent.bytes.starts_with(&NON_ESP_MARKER)));
    assert!(sent[..2].iter().all(|sent| !sent.bytes.starts_with(&NON_ESP_MARKER)));
    assert!(
        world
            .installed_children(initiator)
            .values()
            .all(|child| child.encapsulated && child.path.remote.port() == 4500)
    );
    // A NAT drops idle mappings.
    world.net.run_for(secs(41));
    assert_eq!((world.counters(initiator).keepalives, world.counters(world.responder).keepalives), (2, 0));
    assert_eq!(world.counters(world.responder).not_ike, 2);
}

/// IPv6 Ready: EN.R.1.1.2.1.
#[test]
fn a_retransmitted_first_request_makes_no_second_ike_sa() {
    let mut world = IkeTestNetwork::with_shared_key();
    // The first response is lost.
    world.net.drop_transmits(&[1]);
    world.initiate();
    world.net.run_for(secs(6));
    world.assert_children_match(1);
    assert_eq!(
        (world.counters(world.initiator).retransmissions, world.counters(world.responder).duplicates),
        (1, 1)
    );
    assert_eq!(world.counters(world.responder).begun, 1);
    let first = world.net.sent_transmits()[0].bytes.clone();
    let responder = world.responder;
    // Once the IKE_SA is established, it is no longer answered.
    world.forge_datagram(responder, socket_address(INITIATOR, 500), socket_address(RESPONDER, 500), &first);
    assert_eq!((world.counters(responder).not_expected, world.sa_counts().1), (1, 1));
}

/// RFC 7296 §2.7: the responder chooses one of the proposals, and the initiator looks whether it did.
/// IPv6 Ready: EN.I.1.1.6.9, EN.I.1.1.6.10.
#[test]
fn a_proposal_that_was_not_offered_is_not_accepted() {
    let mut world = IkeTestNetwork::with_shared_key();
    world.initiate();
    // IKE_SA_INIT is over, and IKE_AUTH is on its way. Pretends that another proposal was offered.
    world.net.run_for(millis(25));
    let mut other = psk_connection(true);
    other.children[0].proposals = vec![Proposal::parse_esp_proposal("aes128-sha256").unwrap()];
    let endpoint = &mut world.net[world.initiator];
    let token = *endpoint.by_spi.values().next().unwrap();
    endpoint.sas.get_mut(token).unwrap().base.connection = Arc::new(other);
    world.net.run_for(secs(1));
    assert_eq!(world.installed_children(world.initiator).len(), 0);
}

/// RFC 7296 §3.13: one octet counts them.
#[test]
fn as_many_traffic_selectors_are_granted_as_a_payload_counts() {
    let host =
        |n: u32| TrafficSelector::from_network((0x0a00_0000 + 2 * n).to_be_bytes().into(), 32).unwrap();
    let asked: Vec<TrafficSelector> = (0..300).map(host).collect();
    let granted = child::narrow_selectors(&network_selectors("10.0.0.0", 8), &asked.clone().into());
    assert_eq!(granted, asked[..255]);
}

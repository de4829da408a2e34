//! Requests that an MIH function answers without its user.

use super::*;
use crate::information::InformationStore;
use crate::{BinaryQuery, LinkAddr, LinkId, LinkType, NetworkInfo, RegisterCode};
use usher_core::TransportProtocol;

fn test_link() -> LinkTupleId {
    let link = LinkId { technology: LinkType::Ieee80211, address: LinkAddr::Mac([2, 0, 0, 0, 0, 1]) };
    LinkTupleId { link, poa: None }
}

fn run_request(message: MihfMessage, settings: impl Fn(&mut MihfConfig)) -> (MihfPair, MihfMessage) {
    let mut pair = MihfPair::new(TransportProtocol::Udp, true, settings);
    pair.send_message(STATION, 1, message);
    pair.run_until(at_millis(1000));
    assert_eq!(pair.sent_log(), ["0 mn request+req", "20 pos response+req+rsp", "40 mn ack"]);
    let answer = pair.events.iter().find_map(|(_, _, event)| match event {
        MihfEvent::Done { result: Ok(Some(message)), .. } => Some(message.clone()),
        _ => None,
    });
    (pair, answer.unwrap())
}

#[test]
fn capabilities_are_said() {
    let settings = |c: &mut MihfConfig| {
        c.capabilities.events = EventList::LINK_UP.with(EventList::LINK_DOWN);
        c.capabilities.commands = crate::CommandList::MN_HO;
        c.capabilities.queries = crate::QueryTypeList::BINARY;
        c.capabilities.transports = crate::TransportList::UDP;
        c.capabilities.links = vec![crate::NetTypeAddr {
            network: crate::NetworkType::for_technology(LinkType::Ieee80211),
            address: LinkAddr::Mac([1; 6]),
        }];
        c.capabilities.make_before_break = vec![crate::MbbHandover {
            from: crate::NetworkType::for_technology(LinkType::Ieee80211),
            to: crate::NetworkType::for_technology(LinkType::Ieee80216),
            supported: true,
        }];
    };
    let (_, said) = run_request(MihfMessage::new(MessageId::CAPABILITY_DISCOVER_REQUEST, []), settings);
    let mut config = MihfConfig::new(mihf_id(POS));
    settings(&mut config);
    assert_eq!(said.params[0], Tlv::Status(Status::Success));
    assert_eq!(said.params[1..], config.capabilities.to_parameters()[..]);
    assert_eq!(said.params.len(), 7);
}

#[test]
fn a_function_registers_and_ends_that() {
    let register = || {
        let params = [Tlv::LinkIdentifierList(vec![]), Tlv::RegisterCode(RegisterCode::Register)];
        MihfMessage::new(MessageId::REGISTER_REQUEST, params)
    };
    let (mut pair, said) = run_request(register(), |_| ());
    assert_eq!(said.params, [Tlv::Status(Status::Success), Tlv::ValidTimeInterval(3600)]);
    assert!(pair.events.contains(&(20, POS, MihfEvent::Registered { peer: mihf_id(STATION) })));
    pair.send_message(STATION, 2, MihfMessage::new(MessageId::DEREGISTER_REQUEST, []));
    pair.run_until(at_millis(2000));
    assert!(pair.events.contains(&(1020, POS, MihfEvent::Deregistered { peer: mihf_id(STATION) })));
}

/// The user receives an event whenever a registration ends, and only then.
#[test]
fn the_end_of_a_registration_is_told() {
    let mut pair = MihfPair::new(TransportProtocol::Udp, true, |c| c.registration = Duration::from_secs(60));
    let ended = |pair: &MihfPair| {
        let ended = |(at, side, event): &(u64, usize, MihfEvent)| match event {
            MihfEvent::Deregistered { peer } => Some((*at, *side, peer.to_string())),
            _ => None,
        };
        pair.events.iter().filter_map(ended).collect::<Vec<_>>()
    };
    pair.send_message(STATION, 1, MihfMessage::new(MessageId::DEREGISTER_REQUEST, []));
    pair.run_until(at_millis(1000));
    assert_eq!(ended(&pair), [], "it was not registered");
    let params = [Tlv::LinkIdentifierList(vec![]), Tlv::RegisterCode(RegisterCode::Register)];
    let register = MihfMessage::new(MessageId::REGISTER_REQUEST, params);
    pair.send_message(STATION, 2, register);
    pair.run_until(at_millis(90_000));
    assert_eq!(
        ended(&pair),
        [(61_020, POS, "mn@example".to_string())],
        "its time was over, and nothing came"
    );
}

/// Encodes a message from an unconfigured function.
fn encode_from_stranger(name: &str, transaction: u16, ack_req: bool, message: &MihfMessage) -> Vec<u8> {
    let bits = crate::HeaderFlags { ack_req, ..crate::HeaderFlags::default() };
    let mut octets = Vec::new();
    let (from, tid) = (MihfId::new(name).unwrap(), crate::TransactionId::new(transaction));
    message.encode(bits, tid, &from, &mihf_id(POS), &mut octets).unwrap();
    octets
}

#[test]
fn a_registered_peer_is_reached_by_the_route_it_was_heard_on() {
    let settings = |c: &mut MihfConfig| c.max_registered = 1;
    let mut pair = MihfPair::new(TransportProtocol::Udp, false, settings);
    let params = [Tlv::LinkIdentifierList(vec![]), Tlv::RegisterCode(RegisterCode::Register)];
    let register = MihfMessage::new(MessageId::REGISTER_REQUEST, params);
    let to = MihfId::new("guest").unwrap();
    let send = |token| MihfCommand::Send { token, to: to.clone(), message: test_indication() };
    pair.issue_command(POS, send(1)).unwrap();
    assert_eq!(pair.done_events(), [(0, 1, "NoRoute".into())]);
    pair.inject_datagram(POS, &encode_from_stranger("guest", 1, false, &register));
    pair.inject_datagram(POS, &encode_from_stranger("another", 1, false, &register));
    assert_eq!(pair.counters(POS).registrations_refused, 1);
    pair.run_until(at_millis(60_000));
    pair.issue_command(POS, send(2)).unwrap();
    assert_eq!(pair.done_events()[1], (60_000, 2, "done".into()));
    assert_eq!(pair.used_paths().last().unwrap().remote, SocketAddr::new(side_ip(STATION), PORT));
    pair.inject_datagram(
        POS,
        &encode_from_stranger("guest", 2, false, &MihfMessage::new(MessageId::DEREGISTER_REQUEST, [])),
    );
    pair.run_until(at_millis(120_000));
    pair.issue_command(POS, send(3)).unwrap();
    assert_eq!(pair.done_events()[2], (120_000, 3, "NoRoute".into()));
}

#[test]
fn a_registration_ends_with_its_time_and_makes_room() {
    let settings = |c: &mut MihfConfig| (c.max_registered, c.registration) = (1, Duration::from_secs(60));
    let mut pair = MihfPair::new(TransportProtocol::Udp, false, settings);
    let params = [Tlv::LinkIdentifierList(vec![]), Tlv::RegisterCode(RegisterCode::Register)];
    let register = MihfMessage::new(MessageId::REGISTER_REQUEST, params);
    let registered = |pair: &MihfPair| {
        let names = pair.events.iter().filter_map(|(ms, _, event)| match event {
            MihfEvent::Registered { peer } => Some((*ms, peer.to_string())),
            _ => None,
        });
        names.collect::<Vec<_>>()
    };
    pair.inject_datagram(POS, &encode_from_stranger("guest", 1, false, &register));
    pair.run_until(at_millis(30_000));
    pair.inject_datagram(POS, &encode_from_stranger("guest", 2, false, &register));
    pair.run_until(at_millis(89_999));
    pair.inject_datagram(POS, &encode_from_stranger("another", 1, false, &register));
    pair.run_until(at_millis(90_000));
    pair.inject_datagram(POS, &encode_from_stranger("another", 2, false, &register));
    let expected = [(0, "guest"), (30_000, "guest"), (90_000, "another")];
    assert_eq!(registered(&pair), expected.map(|(ms, name)| (ms, name.to_owned())));
    assert_eq!(pair.counters(POS).registrations_refused, 1);
    pair.issue_command(
        POS,
        MihfCommand::Send { token: 1, to: MihfId::new("guest").unwrap(), message: test_indication() },
    )
    .unwrap();
    assert_eq!(pair.done_events(), [(90_000, 1, "NoRoute".into())]);
}

#[test]
fn events_are_granted_as_far_as_there_are_any() {
    let settings = |c: &mut MihfConfig| c.capabilities.events = EventList::LINK_UP;
    let subscribe =
        |id, events| MihfMessage::new(id, [Tlv::LinkIdentifier(test_link()), Tlv::EventList(events)]);
    let both = EventList::LINK_UP.with(EventList::LINK_GOING_DOWN);
    let (mut pair, said) = run_request(subscribe(MessageId::EVENT_SUBSCRIBE_REQUEST, both), settings);
    let granted = Tlv::EventList(EventList::LINK_UP);
    assert_eq!(said.params, [Tlv::Status(Status::Success), Tlv::LinkIdentifier(test_link()), granted]);
    let (peer, events) = (mihf_id(STATION), EventList::LINK_UP);
    let told = MihfEvent::Subscribed { peer: peer.clone(), link: test_link(), events, configs: vec![] };
    assert!(pair.events.contains(&(20, POS, told)));
    pair.send_message(STATION, 2, subscribe(MessageId::EVENT_UNSUBSCRIBE_REQUEST, both));
    pair.run_until(at_millis(2000));
    let told = MihfEvent::Unsubscribed { peer, link: test_link(), events: both };
    assert!(pair.events.contains(&(1020, POS, told)));
    let (pair, said) =
        run_request(subscribe(MessageId::EVENT_SUBSCRIBE_REQUEST, EventList::LINK_GOING_DOWN), settings);
    assert_eq!(said.params, [Tlv::Status(Status::Rejected), Tlv::LinkIdentifier(test_link())]);
    assert_eq!(pair.events.len(), 1);
}

#[test]
fn information_comes_from_the_store_if_there_is_one() {
    let name = Some(b"net".to_vec());
    let networks = vec![NetworkInfo { name, ..NetworkInfo::default() }];
    let query =
        MihfMessage::new(MessageId::GET_INFORMATION_REQUEST, [Tlv::Queries(vec![BinaryQuery::default()])]);
    let stored = networks.clone();
    let (_, said) =
        run_request(query, move |c| c.information = Some(InformationStore { networks: stored.clone() }));
    assert_eq!(said.params[1], Tlv::Answers(vec![crate::NetworkList(networks)]));
}

#[test]
fn an_answer_too_long_for_its_fragments_is_a_failure() {
    let networks = (0..2000)
        .map(|n: u32| NetworkInfo { name: Some(n.to_be_bytes().repeat(10)), ..NetworkInfo::default() });
    let store = InformationStore { networks: networks.collect() };
    let query =
        MihfMessage::new(MessageId::GET_INFORMATION_REQUEST, [Tlv::Queries(vec![BinaryQuery::default()])]);
    let (_, said) = run_request(query, move |c| c.information = Some(store.clone()));
    assert_eq!(said.params, [Tlv::Status(Status::UnspecifiedFailure)]);
}

//! What an MIH function answers by itself.

use super::*;
use crate::information::Store;
use crate::{LinkAddr, LinkId, LinkType, NetworkInfo, Query, RegisterCode};
use usher_core::TransportProtocol;

fn link() -> LinkTupleId {
    let link = LinkId { technology: LinkType::Ieee80211, address: LinkAddr::Mac([2, 0, 0, 0, 0, 1]) };
    LinkTupleId { link, poa: None }
}

fn answer(message: Message, settings: impl Fn(&mut Config)) -> (Pair, Message) {
    let mut pair = Pair::new(TransportProtocol::Udp, true, settings);
    pair.send(STATION, 1, message);
    pair.run(at(1000));
    assert_eq!(pair.log(), ["0 mn request+req", "20 pos response+req+rsp", "40 mn ack"]);
    let answer = pair.events.iter().find_map(|(_, _, event)| match event {
        Event::Done { result: Ok(Some(message)), .. } => Some(message.clone()),
        _ => None,
    });
    (pair, answer.unwrap())
}

#[test]
fn capabilities_are_said() {
    let settings = |c: &mut Config| {
        c.capabilities.events = EventList::LINK_UP.with(EventList::LINK_DOWN);
        c.capabilities.commands = crate::CommandList::MN_HO;
        c.capabilities.queries = crate::QueryTypeList::BINARY;
        c.capabilities.transports = crate::TransportList::UDP;
        c.capabilities.links = vec![crate::NetTypeAddr {
            network: crate::NetworkType::of(LinkType::Ieee80211),
            address: LinkAddr::Mac([1; 6]),
        }];
        c.capabilities.make_before_break = vec![crate::MbbHandover {
            from: crate::NetworkType::of(LinkType::Ieee80211),
            to: crate::NetworkType::of(LinkType::Ieee80216),
            supported: true,
        }];
    };
    let (_, said) = answer(Message::new(MessageId::CAPABILITY_DISCOVER_REQUEST, []), settings);
    let mut config = Config::new(id(POS));
    settings(&mut config);
    assert_eq!(said.params[0], Tlv::Status(Status::Success));
    assert_eq!(said.params[1..], config.capabilities.params()[..]);
    assert_eq!(said.params.len(), 7);
}

#[test]
fn a_function_registers_and_ends_that() {
    let register = || {
        let params = [Tlv::LinkIdentifierList(vec![]), Tlv::RegisterCode(RegisterCode::Register)];
        Message::new(MessageId::REGISTER_REQUEST, params)
    };
    let (mut pair, said) = answer(register(), |_| ());
    assert_eq!(said.params, [Tlv::Status(Status::Success), Tlv::ValidTimeInterval(3600)]);
    assert!(pair.events.contains(&(20, POS, Event::Registered { peer: id(STATION) })));
    pair.send(STATION, 2, Message::new(MessageId::DEREGISTER_REQUEST, []));
    pair.run(at(2000));
    assert!(pair.events.contains(&(1020, POS, Event::Deregistered { peer: id(STATION) })));
}

/// Whoever keeps something of a registered function is told when its registration ends, however it ends, and not otherwise.
#[test]
fn the_end_of_a_registration_is_told() {
    let mut pair = Pair::new(TransportProtocol::Udp, true, |c| c.registration = Duration::from_secs(60));
    let ended = |pair: &Pair| {
        let ended = |(at, side, event): &(u64, usize, Event)| match event {
            Event::Deregistered { peer } => Some((*at, *side, peer.to_string())),
            _ => None,
        };
        pair.events.iter().filter_map(ended).collect::<Vec<_>>()
    };
    pair.send(STATION, 1, Message::new(MessageId::DEREGISTER_REQUEST, []));
    pair.run(at(1000));
    assert_eq!(ended(&pair), [], "it was not registered");
    let params = [Tlv::LinkIdentifierList(vec![]), Tlv::RegisterCode(RegisterCode::Register)];
    let register = Message::new(MessageId::REGISTER_REQUEST, params);
    pair.send(STATION, 2, register);
    pair.run(at(90_000));
    assert_eq!(
        ended(&pair),
        [(61_020, POS, "mn@example".to_string())],
        "its time was over, and nothing came"
    );
}

/// A message from a function that nobody has named.
fn stranger(name: &str, transaction: u16, ack_req: bool, message: &Message) -> Vec<u8> {
    let bits = crate::Bits { ack_req, ..crate::Bits::default() };
    let mut octets = Vec::new();
    let (from, tid) = (MihfId::new(name).unwrap(), crate::TransactionId::new(transaction));
    message.encode(bits, tid, &from, &id(POS), &mut octets).unwrap();
    octets
}

#[test]
fn who_registers_can_be_sent_to_by_the_way_by_which_he_was_heard() {
    let settings = |c: &mut Config| c.max_registered = 1;
    let mut pair = Pair::new(TransportProtocol::Udp, false, settings);
    let params = [Tlv::LinkIdentifierList(vec![]), Tlv::RegisterCode(RegisterCode::Register)];
    let register = Message::new(MessageId::REGISTER_REQUEST, params);
    let to = MihfId::new("guest").unwrap();
    let send = |token| Command::Send { token, to: to.clone(), message: indication() };
    pair.command(POS, send(1)).unwrap();
    assert_eq!(pair.done(), [(0, 1, "NoRoute".into())]);
    pair.inject(POS, &stranger("guest", 1, false, &register));
    pair.inject(POS, &stranger("another", 1, false, &register));
    assert_eq!(pair.counters(POS).registrations_refused, 1);
    pair.run(at(60_000));
    pair.command(POS, send(2)).unwrap();
    assert_eq!(pair.done()[1], (60_000, 2, "done".into()));
    assert_eq!(pair.paths().last().unwrap().remote, SocketAddr::new(ip(STATION), PORT));
    pair.inject(POS, &stranger("guest", 2, false, &Message::new(MessageId::DEREGISTER_REQUEST, [])));
    pair.run(at(120_000));
    pair.command(POS, send(3)).unwrap();
    assert_eq!(pair.done()[2], (120_000, 3, "NoRoute".into()));
}

#[test]
fn a_registration_ends_with_its_time_and_makes_room() {
    let settings = |c: &mut Config| (c.max_registered, c.registration) = (1, Duration::from_secs(60));
    let mut pair = Pair::new(TransportProtocol::Udp, false, settings);
    let params = [Tlv::LinkIdentifierList(vec![]), Tlv::RegisterCode(RegisterCode::Register)];
    let register = Message::new(MessageId::REGISTER_REQUEST, params);
    let registered = |pair: &Pair| {
        let names = pair.events.iter().filter_map(|(ms, _, event)| match event {
            Event::Registered { peer } => Some((*ms, peer.to_string())),
            _ => None,
        });
        names.collect::<Vec<_>>()
    };
    pair.inject(POS, &stranger("guest", 1, false, &register));
    pair.run(at(30_000));
    pair.inject(POS, &stranger("guest", 2, false, &register));
    pair.run(at(89_999));
    pair.inject(POS, &stranger("another", 1, false, &register));
    pair.run(at(90_000));
    pair.inject(POS, &stranger("another", 2, false, &register));
    let expected = [(0, "guest"), (30_000, "guest"), (90_000, "another")];
    assert_eq!(registered(&pair), expected.map(|(ms, name)| (ms, name.to_owned())));
    assert_eq!(pair.counters(POS).registrations_refused, 1);
    pair.command(POS, Command::Send { token: 1, to: MihfId::new("guest").unwrap(), message: indication() })
        .unwrap();
    assert_eq!(pair.done(), [(90_000, 1, "NoRoute".into())]);
}

#[test]
fn events_are_granted_as_far_as_there_are_any() {
    let settings = |c: &mut Config| c.capabilities.events = EventList::LINK_UP;
    let subscribe = |id, events| Message::new(id, [Tlv::LinkIdentifier(link()), Tlv::EventList(events)]);
    let both = EventList::LINK_UP.with(EventList::LINK_GOING_DOWN);
    let (mut pair, said) = answer(subscribe(MessageId::EVENT_SUBSCRIBE_REQUEST, both), settings);
    let granted = Tlv::EventList(EventList::LINK_UP);
    assert_eq!(said.params, [Tlv::Status(Status::Success), Tlv::LinkIdentifier(link()), granted]);
    let (peer, events) = (id(STATION), EventList::LINK_UP);
    let told = Event::Subscribed { peer: peer.clone(), link: link(), events, configs: vec![] };
    assert!(pair.events.contains(&(20, POS, told)));
    pair.send(STATION, 2, subscribe(MessageId::EVENT_UNSUBSCRIBE_REQUEST, both));
    pair.run(at(2000));
    let told = Event::Unsubscribed { peer, link: link(), events: both };
    assert!(pair.events.contains(&(1020, POS, told)));
    let (pair, said) =
        answer(subscribe(MessageId::EVENT_SUBSCRIBE_REQUEST, EventList::LINK_GOING_DOWN), settings);
    assert_eq!(said.params, [Tlv::Status(Status::Rejected), Tlv::LinkIdentifier(link())]);
    assert_eq!(pair.events.len(), 1);
}

#[test]
fn information_comes_from_the_store_if_there_is_one() {
    let name = Some(b"net".to_vec());
    let networks = vec![NetworkInfo { name, ..NetworkInfo::default() }];
    let query = Message::new(MessageId::GET_INFORMATION_REQUEST, [Tlv::Queries(vec![Query::default()])]);
    let stored = networks.clone();
    let (_, said) = answer(query, move |c| c.information = Some(Store { networks: stored.clone() }));
    assert_eq!(said.params[1], Tlv::Answers(vec![crate::Networks(networks)]));
}

#[test]
fn an_answer_too_long_for_its_fragments_is_a_failure() {
    let networks = (0..2000)
        .map(|n: u32| NetworkInfo { name: Some(n.to_be_bytes().repeat(10)), ..NetworkInfo::default() });
    let store = Store { networks: networks.collect() };
    let query = Message::new(MessageId::GET_INFORMATION_REQUEST, [Tlv::Queries(vec![Query::default()])]);
    let (_, said) = answer(query, move |c| c.information = Some(store.clone()));
    assert_eq!(said.params, [Tlv::Status(Status::UnspecifiedFailure)]);
}

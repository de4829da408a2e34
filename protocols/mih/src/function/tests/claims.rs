//! Who may speak under an identifier: a newcomer, a stranger, and one that has moved.

use super::*;
use crate::{Bits, EventList, LinkId, LinkTupleId, LinkType, RegisterCode};
use std::collections::BTreeMap;
use usher_core::SecureRng;

const NAME: &str = "mn@example";
const SERVER: [u8; 4] = [10, 0, 0, 1];

/// A function with proofs, and hosts that all call themselves [`NAME`].
struct World {
    net: Network,
    server: At<Mihf>,
    told: Vec<Event>,
}

fn socket(n: u8) -> SocketAddr {
    SocketAddr::new([10, 0, n, 9].into(), PORT)
}

impl World {
    fn new(settings: impl Fn(&mut AddressProofs)) -> Self {
        Self::with_transactions(1 << 16, settings)
    }
    fn with_transactions(most: usize, settings: impl Fn(&mut AddressProofs)) -> Self {
        let mut net = Network::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
        let mut proofs = AddressProofs { places: BTreeMap::new(), claims: 64, claims_per_network: 4 };
        settings(&mut proofs);
        let mut config = Config::new(id(POS));
        (config.proofs, config.max_transactions) = (Some(proofs), most);
        let server = net.add(Mihf::new(config, Seed::new(3).stream("mihf", 0)), &[SERVER.into()]);
        let own = SocketAddr::new(SERVER.into(), PORT);
        net.bind(server, SocketId::own(0), own);
        net.listen(server, LISTENER, own);
        Self { net, server, told: Vec::new() }
    }
    fn host(&mut self, n: u8, transport: TransportProtocol) -> At<Mihf> {
        let mut config = Config::new(MihfId::new(NAME).unwrap());
        config.timing.response = Some(Duration::from_secs(10));
        config.timing.retransmission = Duration::from_secs(3);
        let own = socket(n);
        let host = self.net.add(Mihf::new(config, Seed::new(n.into()).stream("mihf", 1)), &[own.ip()]);
        self.net.bind(host, SocketId::own(0), own);
        let route = Route { transport, local: None, remote: SocketAddr::new(SERVER.into(), PORT) };
        self.net.command(host, Command::Peer(Peer { id: id(POS), route, ack: true })).unwrap();
        host
    }
    /// What a host's request came to: the status of the answer, and after how many milliseconds.
    fn ask(&mut self, host: At<Mihf>, request: MessageId) -> (Option<Status>, u64) {
        let begun = self.net.now();
        self.net.take(host);
        let params = match request {
            MessageId::EVENT_SUBSCRIBE_REQUEST => {
                let link = LinkId::mac(LinkType::Ethernet, [2, 0, 0, 0, 0, 1]);
                vec![Tlv::LinkIdentifier(LinkTupleId { link, poa: None }), Tlv::EventList(EventList::LINK_UP)]
            }
            REGISTER => {
                vec![Tlv::LinkIdentifierList(Vec::new()), Tlv::RegisterCode(RegisterCode::Register)]
            }
            _ => Vec::new(),
        };
        let message = Message::new(request, params);
        self.net.command(host, Command::Send { token: 1, to: id(POS), message }).unwrap();
        self.net.run(Duration::from_secs(40));
        let server = self.server;
        self.told.extend(self.net.take(server).into_iter().map(|(_, event)| event));
        let said = self.net.take(host);
        let done = said.into_iter().find_map(|(at, event)| match event {
            Event::Done { result, .. } => Some((at, result)),
            _ => None,
        });
        let (at, result) = done.expect("a request ends");
        (result.ok().flatten().and_then(|answer| answer.status()), at.since(begun).as_millis())
    }
    /// Which of these hosts an indication of the server's reaches.
    fn reaches(&mut self, hosts: &[At<Mihf>]) -> Vec<usize> {
        hosts.iter().for_each(|host| drop(self.net.take(*host)));
        let link = LinkId::mac(LinkType::Ethernet, [2, 0, 0, 0, 0, 1]);
        let link = Tlv::LinkIdentifier(LinkTupleId { link, poa: None });
        let message = Message::new(MessageId::LINK_UP_INDICATION, [link]);
        let to = MihfId::new(NAME).unwrap();
        let server = self.server;
        self.net.command(server, Command::Send { token: 9, to, message }).unwrap();
        self.net.run(Duration::from_secs(20));
        let heard = |net: &Network, host: At<Mihf>| {
            net.events(host).iter().any(|(_, event)| matches!(event, Event::Indication { .. }))
        };
        (0..hosts.len()).filter(|n| heard(&self.net, hosts[*n])).collect()
    }
    fn counters(&self) -> Counters {
        *self.net[self.server].counters()
    }
}

const REGISTER: MessageId = MessageId::REGISTER_REQUEST;
const DEREGISTER: MessageId = MessageId::DEREGISTER_REQUEST;
const SUBSCRIBE: MessageId = MessageId::EVENT_SUBSCRIBE_REQUEST;

#[test]
fn an_address_proves_itself_before_it_is_registered_and_once() {
    let mut world = World::new(|_| {});
    let host = world.host(1, TransportProtocol::Udp);
    let (status, took) = world.ask(host, REGISTER);
    assert_eq!((status, took), (Some(Status::Success), 120), "two round trips, then the request's own");
    assert_eq!(world.counters().addresses_proven, 1);
    let (status, took) = world.ask(host, SUBSCRIBE);
    assert_eq!((status, took), (Some(Status::Success), 40));
    assert_eq!((world.counters().addresses_proven, world.counters().claims_refused), (1, 0));
    assert_eq!(world.reaches(&[host]), [0]);
    let tcp = world.host(2, TransportProtocol::Tcp);
    assert_eq!(world.ask(host, DEREGISTER).0, Some(Status::Success));
    world.net.run(Duration::from_secs(60));
    assert_eq!(world.ask(tcp, REGISTER).0, Some(Status::Success));
    assert_eq!(world.counters().addresses_proven, 1, "a connection is a proof");
}

#[test]
fn a_stranger_under_the_identifier_is_refused_and_told_nothing() {
    for transport in [TransportProtocol::Udp, TransportProtocol::Tcp] {
        let mut world = World::new(|_| {});
        let honest = world.host(1, TransportProtocol::Udp);
        let stranger = world.host(2, transport);
        assert_eq!(world.ask(honest, REGISTER).0, Some(Status::Success));
        for request in [REGISTER, DEREGISTER, SUBSCRIBE] {
            assert_eq!(world.ask(stranger, request).0, Some(Status::AuthorizationFailure), "{request}");
        }
        assert_eq!(world.reaches(&[honest, stranger]), [0], "{transport}");
        let name = MihfId::new(NAME).unwrap();
        assert!(world.net[world.server].is_registered(&name));
        assert!(!world.told.iter().any(|event| matches!(event, Event::Deregistered { .. })));
        let refused = |event: &&Event| matches!(event, Event::ClaimRefused { address, .. } if address.ip() == socket(2).ip());
        assert!(world.told.iter().filter(refused).count() >= 1);
        assert!(world.counters().claims_refused >= 3);
        // Discovery is for everybody, and changes nothing.
        assert_eq!(
            world.ask(stranger, MessageId::CAPABILITY_DISCOVER_REQUEST).0,
            Some(Status::Success),
            "{transport}"
        );
        assert_eq!(world.reaches(&[honest, stranger]), [0], "{transport}");
    }
}

#[test]
fn one_that_has_moved_takes_its_place_when_its_old_address_is_silent() {
    let mut world = World::new(|_| {});
    let old = world.host(1, TransportProtocol::Udp);
    assert_eq!(world.ask(old, REGISTER).0, Some(Status::Success));
    world.net.down(socket(1).ip(), true);
    let new = world.host(2, TransportProtocol::Udp);
    let (status, took) = world.ask(new, REGISTER);
    assert_eq!((status, took), (Some(Status::Success), 3120), "three seconds for the old address");
    world.net.down(socket(1).ip(), false);
    assert_eq!(world.reaches(&[old, new]), [1]);
    let name = MihfId::new(NAME).unwrap();
    let (before, address) = (socket(1).ip(), socket(2));
    let replaced = Event::AddressReplaced { peer: name.clone(), before, address };
    let said: Vec<_> = world.told.iter().filter(|event| **event != replaced).collect();
    let registered = Event::Registered { peer: name.clone() };
    assert_eq!(said, [&registered, &Event::Deregistered { peer: name }, &registered]);
    assert_eq!(world.counters().addresses_replaced, 1);
    assert_eq!(world.ask(old, DEREGISTER).0, Some(Status::AuthorizationFailure), "it came too late");
}

#[test]
fn two_that_are_not_registered_may_use_one_identifier() {
    let mut world = World::new(|_| {});
    let [one, other] = [1, 2].map(|n| world.host(n, TransportProtocol::Udp));
    for host in [one, other, one] {
        let (status, took) = world.ask(host, SUBSCRIBE);
        assert!(status == Some(Status::Success) && took <= 120, "{status:?} {took}");
    }
    let counters = world.counters();
    assert_eq!((counters.addresses_replaced, counters.claims_refused), (0, 0));
}

#[test]
fn a_closed_connection_gives_its_identifier_up_at_once() {
    let mut world = World::new(|_| {});
    let old = world.host(1, TransportProtocol::Tcp);
    assert_eq!(world.ask(old, REGISTER).0, Some(Status::Success));
    world.net.cut(old);
    let new = world.host(2, TransportProtocol::Tcp);
    let (status, took) = world.ask(new, REGISTER);
    assert!(status == Some(Status::Success) && took < 200, "{status:?} {took}");
    assert_eq!(world.reaches(&[new]), [0]);
}

#[test]
fn a_named_function_speaks_from_its_address_and_its_places_alone() {
    let name = MihfId::new(NAME).unwrap();
    let mut world = World::new(|proofs| {
        proofs.places.insert(name.clone(), vec![([10, 0, 2, 0].into(), 24)]);
    });
    let route = Route { transport: TransportProtocol::Udp, local: None, remote: socket(1) };
    let server = world.server;
    world.net.command(server, Command::Peer(Peer { id: name, route, ack: true })).unwrap();
    let [own, place, other] = [1, 2, 3].map(|n| world.host(n, TransportProtocol::Udp));
    let (status, took) = world.ask(own, REGISTER);
    assert_eq!((status, took), (Some(Status::Success), 40), "the user vouches for it");
    let (status, took) = world.ask(place, SUBSCRIBE);
    assert_eq!((status, took), (Some(Status::Success), 120), "it proves itself");
    world.net.down(socket(1).ip(), true);
    let (status, took) = world.ask(other, DEREGISTER);
    assert_eq!((status, took), (Some(Status::AuthorizationFailure), 40), "whether or not the other is there");
    world.net.down(socket(1).ip(), false);
    assert_eq!(world.reaches(&[own, place, other]), [0], "indications go by its route");
}

/// Requests with a forged source: whoever is there knows nothing of them, or guesses at what it was asked.
#[test]
fn forged_addresses_prove_nothing_and_cost_little() {
    let mut world = World::new(|proofs| (proofs.claims, proofs.claims_per_network) = (8, 3));
    let name = MihfId::new(NAME).unwrap();
    let encoded = |id: MessageId, tid: u16| {
        let mut octets = Vec::new();
        let params = if id.opcode == Opcode::Response { vec![Tlv::Status(Status::Success)] } else { vec![] };
        let bits = Bits { ack_req: true, ..Bits::default() };
        Message::new(id, params)
            .encode(bits, crate::TransactionId::new(tid), &name, &self::id(POS), &mut octets)
            .unwrap();
        octets
    };
    let give = |world: &mut World, remote: SocketAddr, octets: &[u8]| {
        let local = SocketAddr::new(SERVER.into(), PORT);
        let path = Path { socket: SocketId::own(0), local, remote };
        world.net.give(world.server, Input::Datagram { path, data: octets });
    };
    let mut rng = SecureRng::from_seed([5; 32]);
    let mut given = 0;
    for n in 0..200_u16 {
        let remote = SocketAddr::new([192, 0, 2, n as u8].into(), 1000 + n);
        give(&mut world, remote, &encoded(REGISTER, n));
        for _ in 0..20 {
            let guess = rng.next_u32() as u16;
            give(&mut world, remote, &encoded(MessageId::CAPABILITY_DISCOVER_RESPONSE, guess));
        }
        given += 21;
    }
    assert!(!world.net[world.server].is_registered(&name));
    assert_eq!(world.counters().addresses_proven, 0);
    let sent: usize = world.net.sent().iter().map(|sent| sent.bytes.len()).sum();
    assert!(sent <= given * encoded(REGISTER, 0).len(), "no more leaves than came: {sent}");
    assert!(world.net[world.server].claims.len() <= 8);
    world.net.run(Duration::from_secs(16));
    assert_eq!(world.net[world.server].claims.len(), 0, "they are forgotten");
    assert_eq!(world.net[world.server].remembered(), 0, "no transaction was begun");
    // Honest functions have room all the while.
    let honest = world.host(1, TransportProtocol::Udp);
    assert_eq!(world.ask(honest, REGISTER).0, Some(Status::Success));
}

/// Loss and copies of probes and answers delay a proof and do not undo it.
#[test]
fn a_proof_survives_loss_and_duplicates() {
    let mut world = World::new(|_| {});
    world.net.meddle(|n, _| match n % 3 {
        1 => vec![Duration::ZERO, Duration::from_millis(5)],
        2 if n == 2 => vec![],
        _ => vec![Duration::ZERO],
    });
    let host = world.host(1, TransportProtocol::Udp);
    let (status, took) = world.ask(host, REGISTER);
    assert_eq!(status, Some(Status::Success), "{took}");
    assert!(took > 3000, "the request came again: {took}");
}

/// Gives the server a message as a host at this address would, which then answers the probes that it gets.
fn give_and_prove(world: &mut World, name: &MihfId, from: SocketAddr, message: &Message, bits: Bits) {
    let mut give = |message: &Message, bits: Bits, tid: crate::TransactionId| {
        let seen = world.net.sent().len();
        let mut octets = Vec::new();
        message.encode(bits, tid, name, &id(POS), &mut octets).unwrap();
        let local = SocketAddr::new(SERVER.into(), PORT);
        let path = Path { socket: SocketId::own(0), local, remote: from };
        world.net.give(world.server, Input::Datagram { path, data: &octets });
        let probe = |sent: &Sent| match (sent.transmit, Message::decode(&sent.bytes)) {
            (Transmit::Datagram { path }, Ok(Decoded { header, .. }))
                if path.remote == from && header.id == MessageId::CAPABILITY_DISCOVER_REQUEST =>
            {
                Some(header.transaction)
            }
            _ => None,
        };
        world.net.sent()[seen..].iter().find_map(probe)
    };
    let mut probe = give(message, bits, crate::TransactionId::new(7));
    while let Some(tid) = probe {
        let answer = Message::new(MessageId::CAPABILITY_DISCOVER_RESPONSE, [Tlv::Status(Status::Success)]);
        probe = give(&answer, Bits::default(), tid);
    }
}

/// Addresses that take the place of others by a message that begins nothing: nothing is left of them.
#[test]
fn who_is_displaced_by_a_message_that_begins_nothing_is_forgotten() {
    let mut world = World::new(|proofs| (proofs.claims, proofs.claims_per_network) = (1024, 16));
    let params = vec![Tlv::LinkIdentifierList(Vec::new()), Tlv::RegisterCode(RegisterCode::Register)];
    let register = Message::new(REGISTER, params);
    // A request that acknowledges something is malformed.
    let malformed = Bits { ack_rsp: true, ..Bits::default() };
    let names: Vec<_> = (0..40).map(|n| MihfId::new(format!("name{n}")).unwrap()).collect();
    for name in &names {
        give_and_prove(&mut world, name, socket(1), &register, Bits::default());
        assert!(world.net[world.server].is_registered(name));
        world.net.run(Duration::from_secs(30));
        give_and_prove(&mut world, name, socket(2), &register, malformed);
        world.net.run(Duration::from_secs(5));
    }
    assert_eq!((world.counters().addresses_replaced, world.counters().malformed), (40, 40));
    world.net.run(Duration::from_secs(100));
    let server = &world.net[world.server];
    assert_eq!((server.remembered(), server.claims.len(), server.peers.len()), (0, 0, 0));
}

/// The same by a request for which there is no room among the transactions.
#[test]
fn who_is_displaced_while_there_is_no_room_is_forgotten() {
    let mut world = World::with_transactions(1, |_| {});
    let name = MihfId::new(NAME).unwrap();
    let old = world.host(1, TransportProtocol::Udp);
    assert_eq!(world.ask(old, REGISTER).0, Some(Status::Success));
    world.net.down(socket(1).ip(), true);
    let other = MihfId::new("other").unwrap();
    let route = Route { transport: TransportProtocol::Udp, local: None, remote: socket(7) };
    let server = world.server;
    world.net.command(server, Command::Peer(Peer { id: other.clone(), route, ack: true })).unwrap();
    let params = vec![Tlv::LinkIdentifierList(Vec::new()), Tlv::RegisterCode(RegisterCode::Register)];
    give_and_prove(&mut world, &name, socket(2), &Message::new(REGISTER, params), Bits::default());
    // The only transaction is under way when the newcomer is admitted.
    world.net.run(Duration::from_millis(2500));
    world.net.command(server, Command::Send { token: 1, to: other, message: indication() }).unwrap();
    world.net.run(Duration::from_secs(1));
    assert_eq!((world.counters().addresses_replaced, world.counters().refused), (1, 1));
    assert_eq!(world.net[server].peers.find(&name), None);
}

/// A function whose registration is of another address than its user names has none any more.
#[test]
fn who_is_named_at_another_address_is_registered_no_more() {
    let mut world = World::new(|_| {});
    let host = world.host(1, TransportProtocol::Udp);
    assert_eq!(world.ask(host, REGISTER).0, Some(Status::Success));
    let (id, server) = (MihfId::new(NAME).unwrap(), world.server);
    let route = Route { transport: TransportProtocol::Udp, local: None, remote: socket(7) };
    for ended in [1, 0] {
        world.net.command(server, Command::Peer(Peer { id: id.clone(), route, ack: true })).unwrap();
        let said = world.net.take(server);
        assert!(said.iter().all(|(_, event)| *event == Event::Deregistered { peer: id.clone() }));
        assert_eq!((said.len(), world.net[server].is_registered(&id)), (ended, false));
    }
}

/// Answers that somebody forges from a newcomer's address, and that guess at its probes, do not undo its own.
#[test]
fn a_few_forged_answers_do_not_spend_a_proof() {
    for forged in [3, 40] {
        let mut world = World::new(|_| {});
        let host = world.host(1, TransportProtocol::Udp);
        let name = MihfId::new(NAME).unwrap();
        let params = vec![Tlv::LinkIdentifierList(Vec::new()), Tlv::RegisterCode(RegisterCode::Register)];
        let message = Message::new(REGISTER, params);
        world.net.command(host, Command::Send { token: 1, to: id(POS), message }).unwrap();
        let mut guess = 0;
        let mut give = |world: &mut World, forged: u16| {
            for _ in 0..forged {
                let mut octets = Vec::new();
                guess += 1;
                let (params, tid) = ([Tlv::Status(Status::Success)], crate::TransactionId::new(guess));
                Message::new(MessageId::CAPABILITY_DISCOVER_RESPONSE, params)
                    .encode(Bits::default(), tid, &name, &id(POS), &mut octets)
                    .unwrap();
                let local = SocketAddr::new(SERVER.into(), PORT);
                let path = Path { socket: SocketId::own(0), local, remote: socket(1) };
                world.net.give(world.server, Input::Datagram { path, data: &octets });
            }
        };
        world.net.run(Duration::from_millis(30));
        give(&mut world, forged);
        world.net.run(Duration::from_millis(40));
        give(&mut world, forged);
        world.net.run(Duration::from_secs(1));
        assert_eq!(world.net[world.server].is_registered(&name), forged == 3, "{forged} at once");
    }
}

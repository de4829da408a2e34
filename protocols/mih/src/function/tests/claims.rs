//! The right to an identifier: a newcomer, a stranger, and a function that has moved.

use super::*;
use crate::{EventList, HeaderFlags, LinkId, LinkTupleId, LinkType, RegisterCode};
use std::collections::BTreeMap;
use usher_core::SecureRng;

const NAME: &str = "mn@example";
const SERVER: [u8; 4] = [10, 0, 0, 1];

/// A function with proofs, and hosts that all call themselves [`NAME`].
struct ClaimTestNetwork {
    net: MachineNetwork,
    server: NetworkHostHandle<Mihf>,
    server_events: Vec<MihfEvent>,
}

fn host_address(n: u8) -> SocketAddr {
    SocketAddr::new([10, 0, n, 9].into(), PORT)
}

impl ClaimTestNetwork {
    fn new(settings: impl Fn(&mut AddressProofConfig)) -> Self {
        Self::with_transactions(1 << 16, settings)
    }
    fn with_transactions(most: usize, settings: impl Fn(&mut AddressProofConfig)) -> Self {
        let mut net = MachineNetwork::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
        let mut proofs = AddressProofConfig {
            allowed_networks: BTreeMap::new(),
            claims: 64,
            address_proofs_per_network: 4,
        };
        settings(&mut proofs);
        let mut config = MihfConfig::new(mihf_id(POS));
        (config.proofs, config.max_transactions) = (Some(proofs), most);
        let server = net.add_host(Mihf::new(config, Seed::new(3).derive_rng("mihf", 0)), &[SERVER.into()]);
        let own = SocketAddr::new(SERVER.into(), PORT);
        net.bind_socket(server, SocketId::from_number(0), own);
        net.add_listener(server, LISTENER, own);
        Self { net, server, server_events: Vec::new() }
    }
    fn add_host(&mut self, n: u8, transport: TransportProtocol) -> NetworkHostHandle<Mihf> {
        let mut config = MihfConfig::new(MihfId::new(NAME).unwrap());
        config.timing.response = Some(Duration::from_secs(10));
        config.timing.retransmission = Duration::from_secs(3);
        let own = host_address(n);
        let host =
            self.net.add_host(Mihf::new(config, Seed::new(n.into()).derive_rng("mihf", 1)), &[own.ip()]);
        self.net.bind_socket(host, SocketId::from_number(0), own);
        let route = PeerRoute { transport, local: None, remote: SocketAddr::new(SERVER.into(), PORT) };
        self.net
            .send_command(host, MihfCommand::Peer(MihfPeer { id: mihf_id(POS), route, ack: true }))
            .unwrap();
        host
    }
    /// Returns the status of the response to a host's request, and its delay in milliseconds.
    fn run_request(&mut self, host: NetworkHostHandle<Mihf>, request: MessageId) -> (Option<Status>, u64) {
        let begun = self.net.now();
        self.net.take_events(host);
        let params = match request {
            MessageId::EVENT_SUBSCRIBE_REQUEST => {
                let link = LinkId::from_mac(LinkType::Ethernet, [2, 0, 0, 0, 0, 1]);
                vec![Tlv::LinkIdentifier(LinkTupleId { link, poa: None }), Tlv::EventList(EventList::LINK_UP)]
            }
            REGISTER => {
                vec![Tlv::LinkIdentifierList(Vec::new()), Tlv::RegisterCode(RegisterCode::Register)]
            }
            _ => Vec::new(),
        };
        let message = MihfMessage::new(request, params);
        self.net.send_command(host, MihfCommand::Send { token: 1, to: mihf_id(POS), message }).unwrap();
        self.net.run_for(Duration::from_secs(40));
        let server = self.server;
        self.server_events.extend(self.net.take_events(server).into_iter().map(|(_, event)| event));
        let said = self.net.take_events(host);
        let done = said.into_iter().find_map(|(at, event)| match event {
            MihfEvent::Done { result, .. } => Some((at, result)),
            _ => None,
        });
        let (at, result) = done.expect("a request ends");
        (result.ok().flatten().and_then(|answer| answer.status()), at.duration_since(begun).as_millis())
    }
    /// Returns the positions of the hosts that receive an indication of the server.
    fn reached_hosts(&mut self, hosts: &[NetworkHostHandle<Mihf>]) -> Vec<usize> {
        hosts.iter().for_each(|host| drop(self.net.take_events(*host)));
        let link = LinkId::from_mac(LinkType::Ethernet, [2, 0, 0, 0, 0, 1]);
        let link = Tlv::LinkIdentifier(LinkTupleId { link, poa: None });
        let message = MihfMessage::new(MessageId::LINK_UP_INDICATION, [link]);
        let to = MihfId::new(NAME).unwrap();
        let server = self.server;
        self.net.send_command(server, MihfCommand::Send { token: 9, to, message }).unwrap();
        self.net.run_for(Duration::from_secs(20));
        let heard = |net: &MachineNetwork, host: NetworkHostHandle<Mihf>| {
            net.recorded_events(host).iter().any(|(_, event)| matches!(event, MihfEvent::Indication { .. }))
        };
        (0..hosts.len()).filter(|n| heard(&self.net, hosts[*n])).collect()
    }
    fn counters(&self) -> MihfCounters {
        *self.net[self.server].counters()
    }
}

const REGISTER: MessageId = MessageId::REGISTER_REQUEST;
const DEREGISTER: MessageId = MessageId::DEREGISTER_REQUEST;
const SUBSCRIBE: MessageId = MessageId::EVENT_SUBSCRIBE_REQUEST;

#[test]
fn an_address_proves_itself_before_it_is_registered_and_once() {
    let mut world = ClaimTestNetwork::new(|_| {});
    let host = world.add_host(1, TransportProtocol::Udp);
    let (status, took) = world.run_request(host, REGISTER);
    assert_eq!((status, took), (Some(Status::Success), 120), "two round trips, then the request's own");
    assert_eq!(world.counters().addresses_proven, 1);
    let (status, took) = world.run_request(host, SUBSCRIBE);
    assert_eq!((status, took), (Some(Status::Success), 40));
    assert_eq!((world.counters().addresses_proven, world.counters().claims_refused), (1, 0));
    assert_eq!(world.reached_hosts(&[host]), [0]);
    let tcp = world.add_host(2, TransportProtocol::Tcp);
    assert_eq!(world.run_request(host, DEREGISTER).0, Some(Status::Success));
    world.net.run_for(Duration::from_secs(60));
    assert_eq!(world.run_request(tcp, REGISTER).0, Some(Status::Success));
    assert_eq!(world.counters().addresses_proven, 1, "a connection is a proof");
}

#[test]
fn a_stranger_under_the_identifier_is_refused_and_told_nothing() {
    for transport in [TransportProtocol::Udp, TransportProtocol::Tcp] {
        let mut world = ClaimTestNetwork::new(|_| {});
        let honest = world.add_host(1, TransportProtocol::Udp);
        let stranger = world.add_host(2, transport);
        assert_eq!(world.run_request(honest, REGISTER).0, Some(Status::Success));
        for request in [REGISTER, DEREGISTER, SUBSCRIBE] {
            assert_eq!(
                world.run_request(stranger, request).0,
                Some(Status::AuthorizationFailure),
                "{request}"
            );
        }
        assert_eq!(world.reached_hosts(&[honest, stranger]), [0], "{transport}");
        let name = MihfId::new(NAME).unwrap();
        assert!(world.net[world.server].is_registered(&name));
        assert!(!world.server_events.iter().any(|event| matches!(event, MihfEvent::Deregistered { .. })));
        let refused = |event: &&MihfEvent| matches!(event, MihfEvent::ClaimRefused { address, .. } if address.ip() == host_address(2).ip());
        assert!(world.server_events.iter().filter(refused).count() >= 1);
        assert!(world.counters().claims_refused >= 3);
        // Discovery is answered for any sender and stores no state.
        assert_eq!(
            world.run_request(stranger, MessageId::CAPABILITY_DISCOVER_REQUEST).0,
            Some(Status::Success),
            "{transport}"
        );
        assert_eq!(world.reached_hosts(&[honest, stranger]), [0], "{transport}");
    }
}

#[test]
fn a_moved_function_takes_over_once_its_old_address_is_silent() {
    let mut world = ClaimTestNetwork::new(|_| {});
    let old = world.add_host(1, TransportProtocol::Udp);
    assert_eq!(world.run_request(old, REGISTER).0, Some(Status::Success));
    world.net.set_address_down(host_address(1).ip(), true);
    let new = world.add_host(2, TransportProtocol::Udp);
    let (status, took) = world.run_request(new, REGISTER);
    assert_eq!((status, took), (Some(Status::Success), 3120), "three seconds for the old address");
    world.net.set_address_down(host_address(1).ip(), false);
    assert_eq!(world.reached_hosts(&[old, new]), [1]);
    let name = MihfId::new(NAME).unwrap();
    let (before, address) = (host_address(1).ip(), host_address(2));
    let replaced = MihfEvent::AddressReplaced { peer: name.clone(), before, address };
    let said: Vec<_> = world.server_events.iter().filter(|event| **event != replaced).collect();
    let registered = MihfEvent::Registered { peer: name.clone() };
    assert_eq!(said, [&registered, &MihfEvent::Deregistered { peer: name }, &registered]);
    assert_eq!(world.counters().addresses_replaced, 1);
    assert_eq!(world.run_request(old, DEREGISTER).0, Some(Status::AuthorizationFailure), "it came too late");
}

#[test]
fn two_that_are_not_registered_may_use_one_identifier() {
    let mut world = ClaimTestNetwork::new(|_| {});
    let [one, other] = [1, 2].map(|n| world.add_host(n, TransportProtocol::Udp));
    for host in [one, other, one] {
        let (status, took) = world.run_request(host, SUBSCRIBE);
        assert!(status == Some(Status::Success) && took <= 120, "{status:?} {took}");
    }
    let counters = world.counters();
    assert_eq!((counters.addresses_replaced, counters.claims_refused), (0, 0));
}

#[test]
fn a_closed_connection_gives_its_identifier_up_at_once() {
    let mut world = ClaimTestNetwork::new(|_| {});
    let old = world.add_host(1, TransportProtocol::Tcp);
    assert_eq!(world.run_request(old, REGISTER).0, Some(Status::Success));
    world.net.reset_connections(old);
    let new = world.add_host(2, TransportProtocol::Tcp);
    let (status, took) = world.run_request(new, REGISTER);
    assert!(status == Some(Status::Success) && took < 200, "{status:?} {took}");
    assert_eq!(world.reached_hosts(&[new]), [0]);
}

#[test]
fn a_named_function_speaks_only_from_its_address_and_networks() {
    let name = MihfId::new(NAME).unwrap();
    let mut world = ClaimTestNetwork::new(|proofs| {
        proofs.allowed_networks.insert(name.clone(), vec![([10, 0, 2, 0].into(), 24)]);
    });
    let route = PeerRoute { transport: TransportProtocol::Udp, local: None, remote: host_address(1) };
    let server = world.server;
    world.net.send_command(server, MihfCommand::Peer(MihfPeer { id: name, route, ack: true })).unwrap();
    let [own, place, other] = [1, 2, 3].map(|n| world.add_host(n, TransportProtocol::Udp));
    let (status, took) = world.run_request(own, REGISTER);
    assert_eq!((status, took), (Some(Status::Success), 40), "the user vouches for it");
    let (status, took) = world.run_request(place, SUBSCRIBE);
    assert_eq!((status, took), (Some(Status::Success), 120), "it proves itself");
    world.net.set_address_down(host_address(1).ip(), true);
    let (status, took) = world.run_request(other, DEREGISTER);
    assert_eq!((status, took), (Some(Status::AuthorizationFailure), 40), "whether or not the other is there");
    world.net.set_address_down(host_address(1).ip(), false);
    assert_eq!(world.reached_hosts(&[own, place, other]), [0], "indications go by its route");
}

/// Requests with a forged source: the host at that address ignores the probes, or guesses at them.
#[test]
fn forged_addresses_prove_nothing_and_cost_little() {
    let mut world =
        ClaimTestNetwork::new(|proofs| (proofs.claims, proofs.address_proofs_per_network) = (8, 3));
    let name = MihfId::new(NAME).unwrap();
    let encoded = |id: MessageId, tid: u16| {
        let mut octets = Vec::new();
        let params = if id.opcode == Opcode::Response { vec![Tlv::Status(Status::Success)] } else { vec![] };
        let bits = HeaderFlags { ack_req: true, ..HeaderFlags::default() };
        MihfMessage::new(id, params)
            .encode(bits, crate::TransactionId::new(tid), &name, &self::mihf_id(POS), &mut octets)
            .unwrap();
        octets
    };
    let give = |world: &mut ClaimTestNetwork, remote: SocketAddr, octets: &[u8]| {
        let local = SocketAddr::new(SERVER.into(), PORT);
        let path = DatagramPath { socket: SocketId::from_number(0), local, remote };
        world.net.inject_input(world.server, MachineInput::Datagram { path, data: octets });
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
    let sent: usize = world.net.sent_transmits().iter().map(|sent| sent.bytes.len()).sum();
    assert!(sent <= given * encoded(REGISTER, 0).len(), "no more leaves than came: {sent}");
    assert!(world.net[world.server].claims.len() <= 8);
    world.net.run_for(Duration::from_secs(16));
    assert_eq!(world.net[world.server].claims.len(), 0, "they are forgotten");
    assert_eq!(world.net[world.server].transaction_count(), 0, "no transaction was begun");
    // Other functions still find room for their claims.
    let honest = world.add_host(1, TransportProtocol::Udp);
    assert_eq!(world.run_request(honest, REGISTER).0, Some(Status::Success));
}

/// Loss and copies of probes and answers delay a proof and do not undo it.
#[test]
fn a_proof_survives_loss_and_duplicates() {
    let mut world = ClaimTestNetwork::new(|_| {});
    world.net.intercept_transmits(|n, _| match n % 3 {
        1 => vec![Duration::ZERO, Duration::from_millis(5)],
        2 if n == 2 => vec![],
        _ => vec![Duration::ZERO],
    });
    let host = world.add_host(1, TransportProtocol::Udp);
    let (status, took) = world.run_request(host, REGISTER);
    assert_eq!(status, Some(Status::Success), "{took}");
    assert!(took > 3000, "the request came again: {took}");
}

/// Sends the server a message as a host at this address, and then answers the probes.
fn give_and_prove(
    world: &mut ClaimTestNetwork,
    name: &MihfId,
    from: SocketAddr,
    message: &MihfMessage,
    bits: HeaderFlags,
) {
    let mut give = |message: &MihfMessage, bits: HeaderFlags, tid: crate::TransactionId| {
        let seen = world.net.sent_transmits().len();
        let mut octets = Vec::new();
        message.encode(bits, tid, name, &mihf_id(POS), &mut octets).unwrap();
        let local = SocketAddr::new(SERVER.into(), PORT);
        let path = DatagramPath { socket: SocketId::from_number(0), local, remote: from };
        world.net.inject_input(world.server, MachineInput::Datagram { path, data: &octets });
        let probe = |sent: &TransmitRecord| match (sent.transmit, MihfMessage::decode(&sent.bytes)) {
            (Transmit::Datagram { path }, Ok(DecodedMessage { header, .. }))
                if path.remote == from && header.id == MessageId::CAPABILITY_DISCOVER_REQUEST =>
            {
                Some(header.transaction)
            }
            _ => None,
        };
        world.net.sent_transmits()[seen..].iter().find_map(probe)
    };
    let mut probe = give(message, bits, crate::TransactionId::new(7));
    while let Some(tid) = probe {
        let answer =
            MihfMessage::new(MessageId::CAPABILITY_DISCOVER_RESPONSE, [Tlv::Status(Status::Success)]);
        probe = give(&answer, HeaderFlags::default(), tid);
    }
}

/// Addresses that replace others by a message without a transaction leave no state.
#[test]
fn a_function_displaced_by_a_malformed_message_is_forgotten() {
    let mut world =
        ClaimTestNetwork::new(|proofs| (proofs.claims, proofs.address_proofs_per_network) = (1024, 16));
    let params = vec![Tlv::LinkIdentifierList(Vec::new()), Tlv::RegisterCode(RegisterCode::Register)];
    let register = MihfMessage::new(REGISTER, params);
    // A request with ACK-Rsp is malformed.
    let malformed = HeaderFlags { ack_rsp: true, ..HeaderFlags::default() };
    let names: Vec<_> = (0..40).map(|n| MihfId::new(format!("name{n}")).unwrap()).collect();
    for name in &names {
        give_and_prove(&mut world, name, host_address(1), &register, HeaderFlags::default());
        assert!(world.net[world.server].is_registered(name));
        world.net.run_for(Duration::from_secs(30));
        give_and_prove(&mut world, name, host_address(2), &register, malformed);
        world.net.run_for(Duration::from_secs(5));
    }
    assert_eq!((world.counters().addresses_replaced, world.counters().malformed), (40, 40));
    world.net.run_for(Duration::from_secs(100));
    let server = &world.net[world.server];
    assert_eq!((server.transaction_count(), server.claims.len(), server.peers.len()), (0, 0, 0));
}

/// The same by a request, with a full table of transactions.
#[test]
fn who_is_displaced_while_there_is_no_room_is_forgotten() {
    let mut world = ClaimTestNetwork::with_transactions(1, |_| {});
    let name = MihfId::new(NAME).unwrap();
    let old = world.add_host(1, TransportProtocol::Udp);
    assert_eq!(world.run_request(old, REGISTER).0, Some(Status::Success));
    world.net.set_address_down(host_address(1).ip(), true);
    let other = MihfId::new("other").unwrap();
    let route = PeerRoute { transport: TransportProtocol::Udp, local: None, remote: host_address(7) };
    let server = world.server;
    world
        .net
        .send_command(server, MihfCommand::Peer(MihfPeer { id: other.clone(), route, ack: true }))
        .unwrap();
    let params = vec![Tlv::LinkIdentifierList(Vec::new()), Tlv::RegisterCode(RegisterCode::Register)];
    give_and_prove(
        &mut world,
        &name,
        host_address(2),
        &MihfMessage::new(REGISTER, params),
        HeaderFlags::default(),
    );
    // The only transaction is under way when the newcomer is admitted.
    world.net.run_for(Duration::from_millis(2500));
    world
        .net
        .send_command(server, MihfCommand::Send { token: 1, to: other, message: test_indication() })
        .unwrap();
    world.net.run_for(Duration::from_secs(1));
    assert_eq!((world.counters().addresses_replaced, world.counters().refused), (1, 1));
    assert_eq!(world.net[server].peers.find(&name), None);
}

/// Configuring a function at another address ends its registration.
#[test]
fn who_is_named_at_another_address_is_registered_no_more() {
    let mut world = ClaimTestNetwork::new(|_| {});
    let host = world.add_host(1, TransportProtocol::Udp);
    assert_eq!(world.run_request(host, REGISTER).0, Some(Status::Success));
    let (id, server) = (MihfId::new(NAME).unwrap(), world.server);
    let route = PeerRoute { transport: TransportProtocol::Udp, local: None, remote: host_address(7) };
    for ended in [1, 0] {
        world
            .net
            .send_command(server, MihfCommand::Peer(MihfPeer { id: id.clone(), route, ack: true }))
            .unwrap();
        let said = world.net.take_events(server);
        assert!(said.iter().all(|(_, event)| *event == MihfEvent::Deregistered { peer: id.clone() }));
        assert_eq!((said.len(), world.net[server].is_registered(&id)), (ended, false));
    }
}

/// Forged responses from a claimant's address, which guess at its probes, do not prevent its proof.
#[test]
fn a_few_forged_answers_do_not_spend_a_proof() {
    for forged in [3, 40] {
        let mut world = ClaimTestNetwork::new(|_| {});
        let host = world.add_host(1, TransportProtocol::Udp);
        let name = MihfId::new(NAME).unwrap();
        let params = vec![Tlv::LinkIdentifierList(Vec::new()), Tlv::RegisterCode(RegisterCode::Register)];
        let message = MihfMessage::new(REGISTER, params);
        world.net.send_command(host, MihfCommand::Send { token: 1, to: mihf_id(POS), message }).unwrap();
        let mut guess = 0;
        let mut give = |world: &mut ClaimTestNetwork, forged: u16| {
            for _ in 0..forged {
                let mut octets = Vec::new();
                guess += 1;
                let (params, tid) = ([Tlv::Status(Status::Success)], crate::TransactionId::new(guess));
                MihfMessage::new(MessageId::CAPABILITY_DISCOVER_RESPONSE, params)
                    .encode(HeaderFlags::default(), tid, &name, &mihf_id(POS), &mut octets)
                    .unwrap();
                let local = SocketAddr::new(SERVER.into(), PORT);
                let path = DatagramPath { socket: SocketId::from_number(0), local, remote: host_address(1) };
                world.net.inject_input(world.server, MachineInput::Datagram { path, data: &octets });
            }
        };
        world.net.run_for(Duration::from_millis(30));
        give(&mut world, forged);
        world.net.run_for(Duration::from_millis(40));
        give(&mut world, forged);
        world.net.run_for(Duration::from_secs(1));
        assert_eq!(world.net[world.server].is_registered(&name), forged == 3, "{forged} at once");
    }
}

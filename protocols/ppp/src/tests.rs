//! A concentrator and hosts on one Ethernet, in virtual time.

mod codec;
mod discovery;
mod foreign;
mod hostile;
mod ipv6;
mod methods;
mod session;
mod table;

use crate::auth::message::MsChapV2ResponseValue;
use crate::auth::{AuthenticationProof, AuthenticationProtocol, PppCredentials};
use crate::client::{ClientCommand, ClientConfig, ClientEvent, PppoeClient};
use crate::concentrator::{
    AuthenticationReply, ConcentratorCommand, ConcentratorConfig, ConcentratorEvent, ConcentratorPort,
    PppoeConcentrator, PppoeSessionId,
};
use crate::pppoe::{DiscoveryTags, MacAddress, PppoeCode, PppoeFrame, PppoeStage};
use crate::{
    AddressAssignment, EndReason, InterfaceIdentifier, Ipv4Assignment, Ipv6Assignment, Ipv6Prefix,
    NegotiatedAddresses,
};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use usher_core::bench::{MachineNetwork, NetworkHostHandle};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, LinkLayerPortId, MachineInput, SecureRng, WallTime};
use usher_crypto::digest::md5;
use usher_crypto::legacy::{mschap, nt_hash};
use usher_eap::method::EapMethodContext;
use usher_eap::method::md5::EapMd5Password;
use usher_eap::server::{EapServer, EapServerEvent as EapEvent};

pub(crate) const PORT: LinkLayerPortId = LinkLayerPortId(0);
pub(crate) const AC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xac]);
pub(crate) const PASSWORD: &[u8] = b"a secret";

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn host_mac(n: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 1, n])
}

pub(crate) fn test_credentials(protocols: &[AuthenticationProtocol], password: &[u8]) -> PppCredentials {
    PppCredentials {
        name: b"alice".to_vec(),
        password: password.into(),
        protocols: protocols.into(),
        eap_methods: Arc::new([Box::new(EapMd5Password::new(password))]),
    }
}

pub(crate) fn concentrator_config() -> ConcentratorConfig {
    ConcentratorConfig {
        name: "ac".into(),
        ports: vec![ConcentratorPort { port: PORT, address: AC, mtu: 1500 }],
        authentication: Arc::new(AuthenticationProtocol::ALL),
        ..ConcentratorConfig::default()
    }
}

pub(crate) fn test_assignment(session: PppoeSessionId) -> AddressAssignment {
    let remote = Ipv4Addr::new(192, 0, 2, 10 + session.0 as u8);
    let ipv4 = Ipv4Assignment { local: Ipv4Addr::new(192, 0, 2, 1), remote, dns: vec![DNS] };
    let [prefix, delegated] = test_prefixes()[..] else { panic!("two") };
    let ipv6 = Ipv6Assignment {
        local: InterfaceIdentifier(1),
        remote: Some(InterfaceIdentifier(0x77)),
        prefix: Some(prefix),
        delegated: Some(delegated),
        dns: vec![DNS6],
    };
    AddressAssignment { ipv4: Some(ipv4), ipv6: Some(ipv6) }
}

/// The link's prefix and the delegated one.
pub(crate) fn test_prefixes() -> Vec<Ipv6Prefix> {
    let prefix = |text: &str, length| Ipv6Prefix::new(text.parse().unwrap(), length).unwrap();
    vec![prefix("2001:db8:1:2::", 64), prefix("2001:db8:ff00::", 56)]
}

pub(crate) const DNS6: std::net::Ipv6Addr = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x53);
pub(crate) const DNS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 53);

/// A small AAA server that knows one password.
#[derive(Default)]
pub(crate) struct MockAaaServer {
    conversations: HashMap<PppoeSessionId, EapServer>,
    /// True to send MS-CHAPv2 an authenticator response by a wrong password (RFC 2759 §5).
    pub(crate) is_impostor: bool,
    pub(crate) silent: bool,
    pub(crate) without_ipv6: bool,
    pub(crate) without_delegation: bool,
}

impl MockAaaServer {
    fn verify_proof(&mut self, session: PppoeSessionId, proof: &AuthenticationProof) -> AuthenticationReply {
        let accept = |message: Vec<u8>| {
            let mut assignment = test_assignment(session);
            if self.without_ipv6 {
                assignment.ipv6 = None;
            }
            if let Some(ipv6) = assignment.ipv6.as_mut().filter(|_| self.without_delegation) {
                ipv6.delegated = None;
            }
            AuthenticationReply::Accept { message, assignment: assignment.into() }
        };
        let reject = AuthenticationReply::Reject { message: b"no".to_vec() };
        match proof {
            AuthenticationProof::Pap(password) if password[..] == *PASSWORD => accept(b"hello".to_vec()),
            AuthenticationProof::Chap { identifier, challenge, response }
                if md5(&[&[*identifier], PASSWORD, challenge]) == *response =>
            {
                accept(Vec::new())
            }
            AuthenticationProof::MsChapV2 { challenge, peer_challenge, response, .. } => {
                let hash = nt_hash(PASSWORD);
                if mschap::nt_response(challenge, peer_challenge, b"alice", &hash) != *response {
                    return reject;
                }
                let hash = if self.is_impostor { [0; 16] } else { hash };
                let text =
                    mschap::authenticator_response(&hash, response, peer_challenge, challenge, b"alice");
                accept(text.to_vec())
            }
            AuthenticationProof::Eap(packet) => self.answer_eap(session, packet, accept(Vec::new())),
            AuthenticationProof::Pap(_) | AuthenticationProof::Chap { .. } => reject,
        }
    }

    fn answer_eap(
        &mut self,
        session: PppoeSessionId,
        packet: &[u8],
        accept: AuthenticationReply,
    ) -> AuthenticationReply {
        let server = match packet.get(4) {
            Some(1) => {
                let mut rng = SecureRng::from_seed([7; 32]);
                let context = EapMethodContext {
                    rng: &mut rng,
                    wall: WallTime::UNIX_EPOCH,
                    mtu: None,
                    without_extended_master_secret: false,
                };
                let offer = Box::new(EapMd5Password::new(PASSWORD));
                let server = EapServer::new(vec![offer], packet[1], context);
                self.conversations.insert(session, server);
                self.conversations.get_mut(&session).unwrap()
            }
            _ => {
                let Some(server) = self.conversations.get_mut(&session) else {
                    return AuthenticationReply::Unanswered;
                };
                server.handle_packet(packet);
                server
            }
        };
        let mut packet = Vec::new();
        let _ = server.poll_transmit(&mut packet);
        match (server.poll_event(), accept) {
            (Some(EapEvent::Success { .. }), AuthenticationReply::Accept { assignment, .. }) => {
                AuthenticationReply::Accept { message: packet, assignment }
            }
            (Some(EapEvent::Failure { .. }), _) => AuthenticationReply::Reject { message: packet },
            _ => AuthenticationReply::Continue(packet),
        }
    }
}

/// A concentrator (host 0 of the network) and its clients.
pub(crate) struct PppoeTestNetwork {
    pub(crate) net: MachineNetwork,
    pub(crate) ac: NetworkHostHandle<PppoeConcentrator>,
    pub(crate) clients: Vec<NetworkHostHandle<PppoeClient>>,
    pub(crate) judge: Arc<Mutex<MockAaaServer>>,
}

impl PppoeTestNetwork {
    pub(crate) fn new(config: ConcentratorConfig, clients: Vec<ClientConfig>) -> Self {
        let channel = ChannelConfig { delay: Duration::from_millis(2), ..ChannelConfig::default() };
        let mut net = MachineNetwork::new(channel);
        let ac = PppoeConcentrator::new(config, SecureRng::from_seed([9; 32])).unwrap();
        let ac = net.add_host(ac, &[]);
        let seeds = 1u8..;
        let clients: Vec<_> = (clients.into_iter().zip(seeds))
            .map(|(config, seed)| {
                net.add_host(PppoeClient::new(config, SecureRng::from_seed([seed; 32])), &[])
            })
            .collect();
        let ports: Vec<_> = (0..=clients.len()).map(|number| (number, PORT)).collect();
        net.join_ports_in_segment(&ports);
        let judge = Arc::new(Mutex::new(MockAaaServer::default()));
        let mind = judge.clone();
        net.on_event(ac, move |event| {
            let ConcentratorEvent::Authenticate { session, user, proof, .. } = event else { return None };
            assert_eq!(user, b"alice");
            let mut judge = mind.lock().unwrap();
            if judge.silent {
                return None;
            }
            let answer = judge.verify_proof(*session, proof);
            Some((Duration::from_millis(5), ConcentratorCommand::Answer { session: *session, answer }))
        });
        Self { net, ac, clients, judge }
    }
    /// Creates a network with one host, which authenticates by this protocol.
    pub(crate) fn with_protocol(protocol: AuthenticationProtocol) -> Self {
        Self::new(concentrator_config(), vec![client_config(1, &[protocol])])
    }
    pub(crate) fn connect_client(&mut self, n: usize) {
        self.net.send_command(self.clients[n], ClientCommand::Connect).unwrap();
    }
    /// Connects the first host, which must succeed.
    pub(crate) fn connect_first(&mut self) -> (PppoeSessionId, u16) {
        self.connect_client(0);
        self.net.run_for(secs(2));
        assert_eq!(self.installed_count(), 2, "{:?}", self.net.recorded_events(self.ac));
        let began = self.net.recorded_events(self.ac).iter().find_map(|(_, event)| match event {
            ConcentratorEvent::SessionStarted { session, subscriber } => Some((*session, subscriber.number)),
            _ => None,
        });
        began.unwrap()
    }
    /// Returns the number of networks that are up by the concentrator's events.
    pub(crate) fn installed_count(&self) -> usize {
        let (mut up, mut down) = (0, 0);
        for (_, event) in self.net.recorded_events(self.ac) {
            up += usize::from(matches!(event, ConcentratorEvent::Install { .. }));
            down += usize::from(matches!(event, ConcentratorEvent::Remove { .. }));
        }
        up - down
    }
    pub(crate) fn end_reasons(&self) -> Vec<EndReason> {
        let events = self.net.recorded_events(self.ac).iter();
        events
            .filter_map(|(_, event)| match event {
                ConcentratorEvent::Ended { reason, .. } => Some(*reason),
                _ => None,
            })
            .collect()
    }
    pub(crate) fn client_end_reasons(&self, n: usize) -> Vec<EndReason> {
        let events = self.net.recorded_events(self.clients[n]).iter();
        events
            .filter_map(|(_, event)| match event {
                ClientEvent::Ended { reason, .. } => Some(*reason),
                _ => None,
            })
            .collect()
    }
    pub(crate) fn client_networks(&self, n: usize) -> Vec<NegotiatedAddresses> {
        let events = self.net.recorded_events(self.clients[n]).iter();
        events
            .filter_map(|(_, event)| match event {
                ClientEvent::Install { network, .. } => Some(network.clone()),
                _ => None,
            })
            .collect()
    }
    /// Delivers a frame of an unknown sender to the concentrator.
    pub(crate) fn deliver_frame(&mut self, frame: &[u8]) {
        self.net.inject_input(self.ac, MachineInput::Frame { port: PORT, data: frame });
    }
    /// Returns the concentrator's frames to a station since the `since`th transmission.
    pub(crate) fn sent_to(&self, to: MacAddress, since: usize) -> Vec<Vec<u8>> {
        let all = self.net.sent_transmits()[since..].iter().filter(|sent| sent.from == 0);
        let to_it =
            all.filter(|sent| PppoeFrame::parse(&sent.bytes).is_ok_and(|frame| frame.destination == to));
        to_it.map(|sent| sent.bytes.clone()).collect()
    }
}

pub(crate) fn client_config(n: u8, protocols: &[AuthenticationProtocol]) -> ClientConfig {
    ClientConfig::new(PORT, host_mac(n), test_credentials(protocols, PASSWORD))
}

/// Builds a discovery frame.
pub(crate) fn discovery_frame(
    from: MacAddress,
    to: MacAddress,
    code: PppoeCode,
    id: u16,
    tags: &DiscoveryTags<'_>,
) -> Vec<u8> {
    let (mut payload, mut out) = (Vec::new(), Vec::new());
    tags.emit(&mut payload);
    let stage = PppoeStage::Discovery;
    PppoeFrame { destination: to, source: from, stage, code, session: id, payload: &payload }.emit(&mut out);
    out
}

/// Builds a session frame of a host.
pub(crate) fn session_frame(from: MacAddress, id: u16, packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let (stage, code) = (PppoeStage::Session, PppoeCode::SESSION);
    PppoeFrame { destination: AC, source: from, stage, code, session: id, payload: packet }.emit(&mut out);
    out
}

/// Runs discovery by hand up to the PADS. Returns the SESSION_ID.
pub(crate) fn run_discovery(world: &mut PppoeTestNetwork, from: MacAddress) -> u16 {
    let since = world.net.sent_transmits().len();
    let any = DiscoveryTags { services: vec![b""], ..DiscoveryTags::default() };
    world.deliver_frame(&discovery_frame(from, MacAddress::BROADCAST, PppoeCode::PADI, 0, &any));
    let offers = world.sent_to(from, since);
    let offer = PppoeFrame::parse(&offers[0]).unwrap();
    let tags = DiscoveryTags::parse(offer.payload).unwrap();
    let request = DiscoveryTags { services: vec![b""], cookie: tags.cookie, ..DiscoveryTags::default() };
    world.deliver_frame(&discovery_frame(from, AC, PppoeCode::PADR, 0, &request));
    let sent = world.sent_to(from, since);
    let confirmed =
        sent.iter().map(|bytes| PppoeFrame::parse(bytes).unwrap()).find(|f| f.code == PppoeCode::PADS);
    confirmed.unwrap().session
}

#[test]
fn an_ms_chap_value_is_where_the_rfc_has_it() {
    // RFC 2759 §4: 16 octets of peer challenge, 8 reserved, 24 of response, flags.
    let octets: Vec<u8> = (0..49).collect();
    let value = MsChapV2ResponseValue::parse(&octets).unwrap();
    assert_eq!((&value.peer_challenge[..], &value.response[..]), (&octets[..16], &octets[24..48]));
    let written = value.to_octets();
    assert_eq!(MsChapV2ResponseValue::parse(&written), Some(value));
    assert!(written[16..24].iter().chain(&written[48..]).all(|octet| *octet == 0));
    assert!(MsChapV2ResponseValue::parse(&octets[..48]).is_none());
}

//! A RADIUS client and an AAA server without delay.

use crate::build::shared_secret;
use crate::world::{nas_address, server_address};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::{AaaServer, radius_socket};
use usher_core::bench::TestMachine;
use usher_core::{DatagramPath, Duration, Instant, Machine, MachineInput, Seed, SocketId, Transmit};
use usher_crypto::tls::fixtures;
use usher_eap::method::PeerMethodFactory;
use usher_eap::peer::{self, EapPeer};
use usher_radius::attribute::kind;
use usher_radius::client::{self, RadiusClient, RequestTarget, ServerConfig};
use usher_radius::{AttributeList, PacketCode};

pub(crate) const NEVER: Instant = Instant::ZERO;

pub(crate) struct ClientServerPair {
    pub(crate) client: TestMachine<RadiusClient>,
    pub(crate) server: TestMachine<AaaServer>,
}

impl ClientServerPair {
    pub(crate) fn new(config: usher_aaa::AaaServerConfig) -> Self {
        let seed = Seed::new(3);
        let to = ServerConfig::new(SocketAddr::new(server_address(0), 1812), shared_secret());
        Self {
            client: TestMachine::new(
                RadiusClient::new(
                    client::RadiusClientConfig::for_server(to),
                    seed.derive_secure_rng("client", 0),
                )
                .unwrap(),
            ),
            server: TestMachine::new(AaaServer::new(config, seed.derive_secure_rng("aaa", 0)).unwrap()),
        }
    }
    /// Delivers all pending messages.
    pub(crate) fn deliver_all(&mut self, now: Instant) {
        let (near, far) = (SocketAddr::new(nas_address(0), 50_000), SocketAddr::new(server_address(0), 1812));
        let mut buf = Vec::new();
        while let Some(Transmit::Datagram { .. }) = self.client.poll_transmit(&mut buf) {
            let path = DatagramPath { socket: radius_socket(0), local: far, remote: near };
            self.server.handle_input(now, MachineInput::Datagram { path, data: &buf });
        }
        while let Some(Transmit::Datagram { .. }) = self.server.poll_transmit(&mut buf) {
            let path = DatagramPath { socket: SocketId::from_number(0), local: near, remote: far };
            self.client.handle_input(now, MachineInput::Datagram { path, data: &buf });
        }
    }
    pub(crate) fn send_request(
        &mut self,
        token: u64,
        code: PacketCode,
        fill: impl FnOnce(&mut AttributeList),
    ) {
        let mut attributes = AttributeList::new();
        fill(&mut attributes);
        let request = client::RadiusClientCommand::Request {
            token,
            target: RequestTarget::Server(0),
            code,
            attributes,
        };
        self.client.handle_command(NEVER, request).unwrap();
        self.deliver_all(NEVER);
    }
    pub(crate) fn send_pap_request(&mut self, token: u64, name: &[u8], password: &[u8]) {
        self.send_request(token, PacketCode::ACCESS_REQUEST, |a| {
            a.push_bytes(kind::USER_NAME, name).unwrap().push_user_password(password).unwrap();
        });
    }
    /// Logs in as `user` by EAP with a maximum number of requests. Returns the last reply's code, unless a job of
    /// the host is pending, and the number of requests.
    pub(crate) fn log_in_eap(
        &mut self,
        user: &str,
        offer: Box<dyn PeerMethodFactory>,
        most: usize,
    ) -> (Option<PacketCode>, usize) {
        let (reply, sent) = self.eap_under(user, user.as_bytes(), offer, most);
        (reply.map(|reply| reply.code), sent)
    }
    /// Logs in with this User-Name in each request but the first. Empty: none. Returns the last reply.
    pub(crate) fn eap_under(
        &mut self,
        user: &str,
        later: &[u8],
        offer: Box<dyn PeerMethodFactory>,
        most: usize,
    ) -> (Option<client::RadiusReply>, usize) {
        let config = peer::EapPeerConfig {
            identity: user.into(),
            methods: Arc::new([offer]),
            timeout: Duration::from_secs(60),
            wall: fixtures::WALL_TIME,
        };
        let mut peer = EapPeer::new(config, Seed::new(4).derive_secure_rng("peer", 0), NEVER);
        let (mut eap, mut state) = (vec![2, 0, 0, 5 + user.len() as u8, 1], None);
        eap.extend_from_slice(user.as_bytes());
        let mut sent = 0;
        loop {
            self.send_request(1, PacketCode::ACCESS_REQUEST, |a| {
                let name = if state.is_none() { user.as_bytes() } else { later };
                if !name.is_empty() {
                    a.push_bytes(kind::USER_NAME, name).unwrap();
                }
                a.push_eap(&eap);
                state.iter().for_each(|state: &Vec<u8>| drop(a.push_bytes(kind::STATE, state)));
            });
            sent += 1;
            let Some(reply) = self.next_reply() else { return (None, sent) };
            if reply.code != PacketCode::ACCESS_CHALLENGE || sent == most {
                return (Some(reply), sent);
            }
            state = reply.attributes.get(kind::STATE).map(<[u8]>::to_vec);
            eap.clear();
            reply.attributes.read_eap_packet(&mut eap);
            peer.handle_packet(NEVER, &eap);
            assert!(peer.poll_transmit(&mut eap), "the peer answers");
        }
    }
    /// Returns the code and attributes of the next reply.
    pub(crate) fn next_reply(&mut self) -> Option<client::RadiusReply> {
        match self.client.poll_event()? {
            client::RadiusClientEvent::Response(r) => Some(r),
            other => panic!("{other:?}"),
        }
    }
    /// Returns token, code and Session-Timeout of the next reply.
    pub(crate) fn next_answer(&mut self) -> Option<(u64, PacketCode, Option<u32>)> {
        self.next_reply().map(|r| (r.token, r.code, r.attributes.get_u32(kind::SESSION_TIMEOUT)))
    }
}

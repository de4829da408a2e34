//! A bare RADIUS client and an AAA server, without time between them.

use crate::build::secret;
use crate::world::{nas_address, server_address};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::{AaaServer, radius_socket};
use usher_core::bench::Tap;
use usher_core::{Duration, Input, Instant, Machine, Path, Seed, SocketId, Transmit};
use usher_crypto::tls::fixtures;
use usher_eap::method::PeerOffer;
use usher_eap::peer::{self, Peer};
use usher_radius::attribute::kind;
use usher_radius::client::{self, Client, ServerConfig, Target};
use usher_radius::{Attributes, Code};

pub(crate) const NEVER: Instant = Instant::ZERO;

pub(crate) struct Pair {
    pub(crate) client: Tap<Client>,
    pub(crate) server: Tap<AaaServer>,
}

impl Pair {
    pub(crate) fn new(config: usher_aaa::Config) -> Self {
        let seed = Seed::new(3);
        let to = ServerConfig::new(SocketAddr::new(server_address(0), 1812), secret());
        Self {
            client: Tap::new(Client::new(client::Config::single(to), seed.secure("client", 0)).unwrap()),
            server: Tap::new(AaaServer::new(config, seed.secure("aaa", 0)).unwrap()),
        }
    }
    /// Lets everything that waits arrive.
    pub(crate) fn settle(&mut self, now: Instant) {
        let (near, far) = (SocketAddr::new(nas_address(0), 50_000), SocketAddr::new(server_address(0), 1812));
        let mut buf = Vec::new();
        while let Some(Transmit::Datagram { .. }) = self.client.poll_transmit(&mut buf) {
            let path = Path { socket: radius_socket(0), local: far, remote: near };
            self.server.handle(now, Input::Datagram { path, data: &buf });
        }
        while let Some(Transmit::Datagram { .. }) = self.server.poll_transmit(&mut buf) {
            let path = Path { socket: SocketId::own(0), local: near, remote: far };
            self.client.handle(now, Input::Datagram { path, data: &buf });
        }
    }
    pub(crate) fn ask(&mut self, token: u64, code: Code, fill: impl FnOnce(&mut Attributes)) {
        let mut attributes = Attributes::new();
        fill(&mut attributes);
        let request = client::Command::Request { token, target: Target::Server(0), code, attributes };
        self.client.command(NEVER, request).unwrap();
        self.settle(NEVER);
    }
    pub(crate) fn ask_pap(&mut self, token: u64, name: &[u8], password: &[u8]) {
        self.ask(token, Code::ACCESS_REQUEST, |a| {
            a.push_bytes(kind::USER_NAME, name).unwrap().push_user_password(password).unwrap();
        });
    }
    /// Logs in as `user` by EAP with so many requests at most: the code of the last reply, if the host is not to be asked
    /// first, and how many requests were sent.
    pub(crate) fn eap(
        &mut self,
        user: &str,
        offer: Box<dyn PeerOffer>,
        most: usize,
    ) -> (Option<Code>, usize) {
        let (reply, sent) = self.eap_under(user, user.as_bytes(), offer, most);
        (reply.map(|reply| reply.code), sent)
    }
    /// The same with this User-Name in each request but the first; empty: none. The last reply.
    pub(crate) fn eap_under(
        &mut self,
        user: &str,
        later: &[u8],
        offer: Box<dyn PeerOffer>,
        most: usize,
    ) -> (Option<client::Response>, usize) {
        let config = peer::Config {
            identity: user.into(),
            methods: Arc::new([offer]),
            timeout: Duration::from_secs(60),
            wall: fixtures::WALL_TIME,
        };
        let mut peer = Peer::new(config, Seed::new(4).secure("peer", 0), NEVER);
        let (mut eap, mut state) = (vec![2, 0, 0, 5 + user.len() as u8, 1], None);
        eap.extend_from_slice(user.as_bytes());
        let mut sent = 0;
        loop {
            self.ask(1, Code::ACCESS_REQUEST, |a| {
                let name = if state.is_none() { user.as_bytes() } else { later };
                if !name.is_empty() {
                    a.push_bytes(kind::USER_NAME, name).unwrap();
                }
                a.push_eap(&eap);
                state.iter().for_each(|state: &Vec<u8>| drop(a.push_bytes(kind::STATE, state)));
            });
            sent += 1;
            let Some(reply) = self.reply() else { return (None, sent) };
            if reply.code != Code::ACCESS_CHALLENGE || sent == most {
                return (Some(reply), sent);
            }
            state = reply.attributes.get(kind::STATE).map(<[u8]>::to_vec);
            eap.clear();
            reply.attributes.eap(&mut eap);
            peer.handle(NEVER, &eap);
            assert!(peer.poll_transmit(&mut eap), "the peer answers");
        }
    }
    /// The code and attributes of the next reply.
    pub(crate) fn reply(&mut self) -> Option<client::Response> {
        match self.client.poll_event()? {
            client::Event::Response(r) => Some(r),
            other => panic!("{other:?}"),
        }
    }
    /// Token, code and Session-Timeout of the next reply.
    pub(crate) fn answer(&mut self) -> Option<(u64, Code, Option<u32>)> {
        self.reply().map(|r| (r.token, r.code, r.attributes.get_u32(kind::SESSION_TIMEOUT)))
    }
}

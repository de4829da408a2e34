//! The two ends of an EAP method that gives a key: the peer, and an AAA server behind RADIUS. The method is
//! an experimental one (type 255): a nonce, and its code under a shared secret, from which the key follows.

use crate::responder::{AUTH, EAP, FAILED, IDENTITY, proof};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use usher_core::bench::Tap;
use usher_core::{Input, Instant, Machine, SecureRng, Seed, Transmit};
use usher_crypto::digest::HmacMd5Key;
use usher_radius::attribute::kind;
use usher_radius::server::{self, ClientConfig, Command, Event, Server};
use usher_radius::{Attributes, Code, Secret};

const EXPERIMENTAL: u8 = 255;

fn answer(password: &str, name: &[u8], nonce: &[u8]) -> [u8; 16] {
    HmacMd5Key::new(password.as_bytes()).mac(&[name, nonce])
}
fn derive(password: &str, name: &[u8], nonce: &[u8]) -> [u8; 64] {
    let key = HmacMd5Key::new(password.as_bytes());
    let mut msk = [0; 64];
    for (i, part) in msk.chunks_exact_mut(16).enumerate() {
        part.copy_from_slice(&key.mac(&[&[i as u8], name, nonce]));
    }
    msk
}

/// An initiator.
#[derive(Debug)]
pub(crate) struct Peer {
    name: String,
    password: String,
    out: VecDeque<Vec<u8>>,
    msk: Option<[u8; 64]>,
    up: bool,
}

impl Peer {
    pub(crate) fn new(name: &str, password: &str) -> Self {
        let mut first = vec![IDENTITY];
        first.extend_from_slice(name.as_bytes());
        Self { name: name.into(), password: password.into(), out: [first].into(), msk: None, up: false }
    }
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
    pub(crate) fn msk(&self) -> Option<[u8; 64]> {
        self.msk
    }
    pub(crate) fn is_up(&self) -> bool {
        self.up
    }
    pub(crate) fn poll(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }
    pub(crate) fn receive(&mut self, message: &[u8]) {
        match message {
            [EAP, 1, identifier, 0, 21, EXPERIMENTAL, nonce @ ..] => {
                let mut reply = vec![EAP, 2, *identifier, 0, 21, EXPERIMENTAL];
                reply.extend_from_slice(&answer(&self.password, self.name.as_bytes(), nonce));
                self.msk = Some(derive(&self.password, self.name.as_bytes(), nonce));
                self.out.push_back(reply);
            }
            [EAP, 3, ..] => {
                let Some(msk) = self.msk else { return };
                let mut auth = vec![AUTH];
                auth.extend_from_slice(&proof(&msk, b"initiator"));
                self.out.push_back(auth);
            }
            [AUTH, code @ ..] => self.up = self.msk.is_some_and(|msk| code == proof(&msk, b"responder")),
            [EAP, 4, ..] | [FAILED] => self.msk = None,
            other => panic!("an unexpected message: {other:?}"),
        }
    }
}

/// Knows everybody's password, which is the same one.
pub(crate) struct Aaa {
    radius: Tap<Server>,
    rng: SecureRng,
}

impl Aaa {
    pub(crate) fn new(client: IpAddr, secret: Secret) -> Self {
        let seed = Seed::new(2);
        let config = server::Config::new(vec![ClientConfig::new(client, 32, secret)]);
        let radius = Tap::new(Server::new(config, seed.secure("server", 0)).unwrap());
        Self { radius, rng: seed.secure("nonce", 0) }
    }
    pub(crate) fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.radius.handle(now, input);
        while let Some(Event::Request(request)) = self.radius.poll_event() {
            let mut attributes = Attributes::new();
            let code = self.judge(&request.attributes, &mut attributes);
            self.radius.command(now, Command::Respond { token: request.token, code, attributes }).unwrap();
        }
    }
    pub(crate) fn poll(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        let mut buf = Vec::new();
        match self.radius.poll_transmit(&mut buf)? {
            Transmit::Datagram { path } => Some((path.remote, buf)),
            other => panic!("{other:?}"),
        }
    }

    /// The nonce is the session's State: this server remembers nothing.
    fn judge(&mut self, request: &Attributes, reply: &mut Attributes) -> Code {
        let name = request.get(kind::USER_NAME).unwrap();
        let mut packet = Vec::new();
        request.eap(&mut packet);
        match (&packet[..], request.get(kind::STATE)) {
            ([2, identifier, _, _, 1, ..], None) => {
                let nonce: [u8; 16] = self.rng.array();
                let mut eap = vec![1, identifier.wrapping_add(1), 0, 21, EXPERIMENTAL];
                eap.extend_from_slice(&nonce);
                reply.push_eap(&eap).push_bytes(kind::STATE, &nonce).unwrap();
                Code::ACCESS_CHALLENGE
            }
            ([2, identifier, 0, 21, EXPERIMENTAL, code @ ..], Some(nonce))
                if code == answer("secret", name, nonce) =>
            {
                reply.push_eap(&[3, *identifier, 0, 4]).push_msk(&derive("secret", name, nonce));
                Code::ACCESS_ACCEPT
            }
            ([_, identifier, ..], _) => {
                reply.push_eap(&[4, *identifier, 0, 4]);
                Code::ACCESS_REJECT
            }
            other => panic!("{other:?}"),
        }
    }
}

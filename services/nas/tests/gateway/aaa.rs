//! The two ends of an EAP method that gives a key: the peer, and an AAA server behind RADIUS. The method is
//! an experimental one (type 255): a nonce, and its code under a shared secret, from which the key follows.

use crate::responder::{AUTH, EAP, FAILED, IDENTITY, proof};
use std::net::{IpAddr, SocketAddr};
use usher_core::bench::Network;
use usher_core::{
    CommandError, Duration, Input, Instant, Machine, NoJob, OutputOf, Outputs, Path, SecureRng, Seed,
    SocketId, Transmit,
};
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
    out: Outputs<()>,
    msk: Option<[u8; 64]>,
    up: bool,
}

impl Peer {
    pub(crate) fn new(name: &str, password: &str) -> Self {
        let (name, password) = (name.to_owned(), password.to_owned());
        let mut peer = Self { name, password, out: Outputs::default(), msk: None, up: false };
        peer.send([&[IDENTITY], peer.name.as_bytes()].concat());
        peer
    }
    fn send(&mut self, message: Vec<u8>) {
        let local = SocketAddr::new([0, 0, 0, 0].into(), 0);
        let path = Path { socket: SocketId::own(0), local, remote: crate::address(1, 500) };
        self.out.transmit(Transmit::Datagram { path }, message);
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
    fn receive(&mut self, message: &[u8]) {
        match message {
            [EAP, 1, identifier, 0, 21, EXPERIMENTAL, nonce @ ..] => {
                let mut reply = vec![EAP, 2, *identifier, 0, 21, EXPERIMENTAL];
                reply.extend_from_slice(&answer(&self.password, self.name.as_bytes(), nonce));
                self.msk = Some(derive(&self.password, self.name.as_bytes(), nonce));
                self.send(reply);
            }
            [EAP, 3, ..] => {
                let Some(msk) = self.msk else { return };
                let mut auth = vec![AUTH];
                auth.extend_from_slice(&proof(&msk, b"initiator"));
                self.send(auth);
            }
            [AUTH, code @ ..] => {
                self.up = self.msk.is_some_and(|msk| code == proof(&msk, b"responder"));
                self.out.event(());
            }
            [EAP, 4, ..] | [FAILED] => self.msk = None,
            other => panic!("an unexpected message: {other:?}"),
        }
    }
}

/// It says when it has heard the responder's proof.
impl Machine for Peer {
    type Command = ();
    type Event = ();
    type Job = NoJob;
    fn handle(&mut self, _: Instant, input: Input<'_>) {
        if let Input::Datagram { data, .. } = input {
            self.receive(data);
        }
    }
    fn command(&mut self, _: Instant, (): ()) -> Result<(), CommandError> {
        Ok(())
    }
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.out.poll(buf)
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }
}

/// A server that knows everybody's password, which is the same one.
pub(crate) fn add(net: &mut Network, address: SocketAddr, client: IpAddr, secret: Secret) {
    let seed = Seed::new(2);
    let config = server::Config::new(vec![ClientConfig::new(client, 32, secret)]);
    let server = net.add(Server::new(config, seed.secure("server", 0)).unwrap(), &[address.ip()]);
    net.bind(server, SocketId::own(0), address);
    let mut rng = seed.secure("nonce", 0);
    net.on_event(server, move |Event::Request(request)| {
        let mut attributes = Attributes::new();
        let code = judge(&mut rng, &request.attributes, &mut attributes);
        Some((Duration::ZERO, Command::Respond { token: request.token, code, attributes }))
    });
}

/// The nonce is the session's State: this server remembers nothing.
fn judge(rng: &mut SecureRng, request: &Attributes, reply: &mut Attributes) -> Code {
    let name = request.get(kind::USER_NAME).unwrap();
    let mut packet = Vec::new();
    request.eap(&mut packet);
    match (&packet[..], request.get(kind::STATE)) {
        ([2, identifier, _, _, 1, ..], None) => {
            let nonce: [u8; 16] = rng.array();
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

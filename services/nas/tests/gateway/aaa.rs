//! The two ends of an EAP method that yields a key: the peer, and an AAA server over RADIUS. The method is an
//! experimental one (type 255): a nonce, and its code under a shared secret, which yields the key.

use crate::responder::{AUTH, EAP, FAILED, IDENTITY, key_proof};
use std::net::{IpAddr, SocketAddr};
use usher_core::bench::MachineNetwork;
use usher_core::{
    CommandError, DatagramPath, Duration, Instant, Machine, MachineInput, MachineOutputOf, NoJob,
    OutputQueue, SecureRng, Seed, SocketId, Transmit,
};
use usher_crypto::digest::HmacMd5Key;
use usher_radius::attribute::kind;
use usher_radius::server::{self, ClientConfig, RadiusServer, RadiusServerCommand, RadiusServerEvent};
use usher_radius::{AttributeList, PacketCode, SharedSecret};

const EXPERIMENTAL: u8 = 255;

fn challenge_response(password: &str, name: &[u8], nonce: &[u8]) -> [u8; 16] {
    HmacMd5Key::new(password.as_bytes()).mac(&[name, nonce])
}
fn derive_msk(password: &str, name: &[u8], nonce: &[u8]) -> [u8; 64] {
    let key = HmacMd5Key::new(password.as_bytes());
    let mut msk = [0; 64];
    for (i, part) in msk.chunks_exact_mut(16).enumerate() {
        part.copy_from_slice(&key.mac(&[&[i as u8], name, nonce]));
    }
    msk
}

/// An initiator.
#[derive(Debug)]
pub(crate) struct TestInitiator {
    name: String,
    password: String,
    out: OutputQueue<()>,
    msk: Option<[u8; 64]>,
    up: bool,
}

impl TestInitiator {
    pub(crate) fn new(name: &str, password: &str) -> Self {
        let (name, password) = (name.to_owned(), password.to_owned());
        let mut peer = Self { name, password, out: OutputQueue::default(), msk: None, up: false };
        peer.send_message([&[IDENTITY], peer.name.as_bytes()].concat());
        peer
    }
    fn send_message(&mut self, message: Vec<u8>) {
        let local = SocketAddr::new([0, 0, 0, 0].into(), 0);
        let path =
            DatagramPath { socket: SocketId::from_number(0), local, remote: crate::socket_address(1, 500) };
        self.out.push_transmit(Transmit::Datagram { path }, message);
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
    fn receive_message(&mut self, message: &[u8]) {
        match message {
            [EAP, 1, identifier, 0, 21, EXPERIMENTAL, nonce @ ..] => {
                let mut reply = vec![EAP, 2, *identifier, 0, 21, EXPERIMENTAL];
                reply.extend_from_slice(&challenge_response(&self.password, self.name.as_bytes(), nonce));
                self.msk = Some(derive_msk(&self.password, self.name.as_bytes(), nonce));
                self.send_message(reply);
            }
            [EAP, 3, ..] => {
                let Some(msk) = self.msk else { return };
                let mut auth = vec![AUTH];
                auth.extend_from_slice(&key_proof(&msk, b"initiator"));
                self.send_message(auth);
            }
            [AUTH, code @ ..] => {
                self.up = self.msk.is_some_and(|msk| code == key_proof(&msk, b"responder"));
                self.out.push_event(());
            }
            [EAP, 4, ..] | [FAILED] => self.msk = None,
            other => panic!("an unexpected message: {other:?}"),
        }
    }
}

/// Reports when the responder's proof arrives.
impl Machine for TestInitiator {
    type Command = ();
    type Event = ();
    type Job = NoJob;
    fn handle_input(&mut self, _: Instant, input: MachineInput<'_>) {
        if let MachineInput::Datagram { data, .. } = input {
            self.receive_message(data);
        }
    }
    fn handle_command(&mut self, _: Instant, (): ()) -> Result<(), CommandError> {
        Ok(())
    }
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.out.poll(buf)
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }
}

/// Adds a server with the same password for all users.
pub(crate) fn add_aaa_server(
    net: &mut MachineNetwork,
    address: SocketAddr,
    client: IpAddr,
    secret: SharedSecret,
) {
    let seed = Seed::new(2);
    let config = server::RadiusServerConfig::new(vec![ClientConfig::new(client, 32, secret)]);
    let server = net
        .add_host(RadiusServer::new(config, seed.derive_secure_rng("server", 0)).unwrap(), &[address.ip()]);
    net.bind_socket(server, SocketId::from_number(0), address);
    let mut rng = seed.derive_secure_rng("nonce", 0);
    net.on_event(server, move |RadiusServerEvent::Request(request)| {
        let mut attributes = AttributeList::new();
        let code = answer_eap(&mut rng, &request.attributes, &mut attributes);
        Some((Duration::ZERO, RadiusServerCommand::Respond { token: request.token, code, attributes }))
    });
}

/// The nonce is the session's State: this server is stateless.
fn answer_eap(rng: &mut SecureRng, request: &AttributeList, reply: &mut AttributeList) -> PacketCode {
    let name = request.get(kind::USER_NAME).unwrap();
    let mut packet = Vec::new();
    request.read_eap_packet(&mut packet);
    match (&packet[..], request.get(kind::STATE)) {
        ([2, identifier, _, _, 1, ..], None) => {
            let nonce: [u8; 16] = rng.random_array();
            let mut eap = vec![1, identifier.wrapping_add(1), 0, 21, EXPERIMENTAL];
            eap.extend_from_slice(&nonce);
            reply.push_eap(&eap).push_bytes(kind::STATE, &nonce).unwrap();
            PacketCode::ACCESS_CHALLENGE
        }
        ([2, identifier, 0, 21, EXPERIMENTAL, code @ ..], Some(nonce))
            if code == challenge_response("secret", name, nonce) =>
        {
            reply.push_eap(&[3, *identifier, 0, 4]).push_msk(&derive_msk("secret", name, nonce));
            PacketCode::ACCESS_ACCEPT
        }
        ([_, identifier, ..], _) => {
            reply.push_eap(&[4, *identifier, 0, 4]);
            PacketCode::ACCESS_REJECT
        }
        other => panic!("{other:?}"),
    }
}

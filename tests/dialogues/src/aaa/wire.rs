//! The messages of access servers, and their records.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_aaa::RADSEC_LISTENER;
use usher_core::{ConnId, Instant};
use usher_crypto::digest::HmacMd5Key;
use usher_diameter::node;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::auth::accounting_request_authenticator;
use usher_radius::packet::PacketCode;
use usher_radius::{SharedSecret, radsec};

/// The number of access servers. The first two speak RADIUS over UDP.
pub(super) const ACCESS_SERVERS: usize = 4;
/// The access server that speaks RadSec.
pub(super) const RADSEC: usize = 2;
/// The access server that speaks Diameter.
pub(super) const DIAMETER: usize = 3;
/// The AAA server.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
/// Connect-Info: numbers the requests, so that a reply can be compared with its request's proof.
pub(super) const NUMBER: u8 = 77;

/// The offset of another source port of a request.
pub(super) const FURTHER: u16 = 16;

const SECRET: &[u8] = b"a secret of access servers";

pub(super) const fn access_server_address(access_server: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, access_server as u8, 1)
}

pub(super) fn radsec_connection() -> ConnId {
    ConnId::nth_accepted_at_listener(RADSEC_LISTENER, 0)
}

pub(super) fn access_server_secret(access_server: usize) -> SharedSecret {
    if access_server == RADSEC { radsec::radsec_secret() } else { SharedSecret::new(SECRET) }
}

/// A request that was sent.
#[derive(Debug)]
pub(super) struct SentRequest {
    pub(super) slot: usize,
    /// The login of that slot.
    pub(super) attempt: u64,
    pub(super) access_server: usize,
    pub(super) port: u16,
    pub(super) identifier: u8,
    pub(super) authenticator: [u8; 16],
    pub(super) octets: Vec<u8>,
    /// The Diameter message, if it goes by Diameter.
    pub(super) message: Option<node::DiameterRequest>,
    /// The dialogue of its State, or a new one.
    pub(super) dialogue: usize,
    pub(super) sent_at: Instant,
    pub(super) code: PacketCode,
    /// Its User-Name.
    pub(super) user_name: Vec<u8>,
}

impl SentRequest {
    /// Returns its source address, at its port plus `further`.
    pub(super) fn source_address(&self, further: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(access_server_address(self.access_server)), self.port + further)
    }
    /// True if a reply to this address, and for UDP to this port, may answer it.
    pub(super) fn may_be_answered(&self, at: IpAddr, port: Option<u16>, identifier: u8) -> bool {
        let further = |port: u16| port.wrapping_sub(self.port);
        IpAddr::V4(access_server_address(self.access_server)) == at
            && port.is_none_or(|port| further(port) == 0 || further(port) == FURTHER)
            && self.identifier == identifier
    }
}

/// Encodes a request and signs it for its access server. `None`: it does not fit into a packet.
pub(super) fn sign_request(
    access_server: usize,
    code: PacketCode,
    identifier: u8,
    nonce: u64,
    mut attributes: AttributeList,
) -> Option<([u8; 16], Vec<u8>)> {
    let secret = access_server_secret(access_server);
    let accounting = code == PacketCode::ACCOUNTING_REQUEST;
    let mut authenticator = [0; 16];
    if !accounting {
        authenticator[..8].copy_from_slice(&nonce.to_be_bytes());
        authenticator[8] = access_server as u8 + 1;
        attributes.push_bytes(kind::MESSAGE_AUTHENTICATOR, &[0; 16]).ok()?;
    }
    let mut octets = vec![code.0, identifier, 0, 0];
    octets.extend_from_slice(&authenticator);
    attributes.encode_into(&mut octets, secret.as_bytes(), &authenticator, 0);
    let length = u16::try_from(octets.len()).ok().filter(|n| *n <= 4096)?;
    octets[2..4].copy_from_slice(&length.to_be_bytes());
    if accounting {
        authenticator = accounting_request_authenticator(&octets, &secret);
        octets[4..20].copy_from_slice(&authenticator);
    } else {
        let code = HmacMd5Key::new(secret.as_bytes()).mac(&[&octets]);
        let at = octets.len() - 16;
        octets[at..].copy_from_slice(&code);
    }
    Some((authenticator, octets))
}

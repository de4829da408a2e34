//! The stations' side: who claims to be whom, and by which proof.

use crate::{Operation, Person, respell, tunnels};
use std::sync::Arc;
use usher_core::{Duration, Instant, Seed};
use usher_crypto::digest::md5;
use usher_crypto::tls::fixtures;
use usher_eap::method::mschapv2::Account;
use usher_eap::method::ttls::Proof as InnerProof;
use usher_eap::method::{PeerOffer, gtc, md5 as eap_md5};
use usher_eap::packet::{self, Code, Type};
use usher_eap::peer::{Config, Peer};
use usher_radius::attribute::{Attributes, kind};

/// How a station proves who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProofMethod {
    /// User-Password.
    Pap,
    /// CHAP-Password.
    Chap,
    /// The address alone.
    Address,
    /// EAP-MD5.
    Md5,
    /// EAP-MSCHAPv2.
    MsChapV2,
    /// EAP-GTC.
    Gtc,
    /// EAP-TLS; the certificate is Ann's, whoever else asks for it proves by MD5.
    Tls,
    /// PEAP with EAP-MSCHAPv2 inside.
    PeapMsChapV2,
    /// PEAP with EAP-GTC inside.
    PeapGtc,
    /// EAP-TTLS with PAP inside.
    TtlsPap,
    /// EAP-TTLS with MS-CHAPv2 inside.
    TtlsMsChapV2,
    /// EAP-TTLS with EAP-MD5 inside.
    TtlsMd5,
}

impl ProofMethod {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Pap,
        Self::Chap,
        Self::Address,
        Self::Md5,
        Self::MsChapV2,
        Self::Gtc,
        Self::Tls,
        Self::PeapMsChapV2,
        Self::PeapGtc,
        Self::TtlsPap,
        Self::TtlsMsChapV2,
        Self::TtlsMd5,
    ];

    /// Whether the name that is proved is said inside a tunnel.
    pub(super) const fn is_tunnel(self) -> bool {
        matches!(
            self,
            Self::PeapMsChapV2 | Self::PeapGtc | Self::TtlsPap | Self::TtlsMsChapV2 | Self::TtlsMd5
        )
    }
}

/// A station that wants to be let in.
#[derive(Debug)]
pub(super) struct LoginStation {
    /// Whose password or certificate it has.
    pub(super) owner: Person,
    pub(super) method: ProofMethod,
    /// The name that it says outside of any tunnel.
    pub(super) outer: String,
    /// Calling-Station-Id; empty: the access server says none.
    pub(super) address: String,
    peer: Option<Peer>,
    /// What it says next, as EAP.
    pub(super) response: Vec<u8>,
    /// What it said before that.
    pub(super) previous: Vec<u8>,
}

impl LoginStation {
    /// Of an operation's octets: `how[0]` says whose password it has (2 bits), as whom it comes (2 bits further on from that), and, with
    /// `how[1]`, by which method; the rest of `how[1]` its name outside and its address.
    pub(super) fn of(operation: Operation, number: u64, now: Instant) -> Self {
        let [who, how] = operation.how;
        let owner = Person::numbered(who);
        let claimed = Person::numbered(who.wrapping_add(who >> 2));
        let method = match ProofMethod::ALL[usize::from(who >> 4) % ProofMethod::ALL.len()] {
            ProofMethod::Tls if owner != Person::Ann => ProofMethod::Md5,
            method => method,
        };
        let name = claimed.name().to_string();
        let hides = method.is_tunnel() || method == ProofMethod::Tls;
        let outer = match (how >> 2) & 3 {
            1 if hides => "anonymous".into(),
            0 | 1 => name.clone(),
            2 => Person::numbered(owner as u8 + 1).name().into(),
            _ => respell(&name, 1),
        };
        let inner = respell(&name, how >> 6);
        let address = match (how >> 4) & 3 {
            0 => owner.station().to_string(),
            1 => claimed.station().replace('-', ":").to_lowercase(),
            2 => Person::numbered(owner as u8 + 1).station().into(),
            _ => String::new(),
        };
        let mut response = Vec::new();
        packet::emit(&mut response, Code::Response, 0, Type::IDENTITY, outer.as_bytes());
        let peer = offer(method, inner.as_bytes(), owner.password().as_bytes()).map(|offer| {
            let config = Config {
                identity: outer.clone().into_bytes(),
                methods: Arc::new([offer]),
                timeout: Duration::from_secs(600),
                wall: fixtures::WALL_TIME,
            };
            Peer::new(config, Seed::new(number).secure("station", 0), now)
        });
        Self { owner, method, outer, address, peer, response, previous: Vec::new() }
    }

    pub(super) const fn speaks_eap(&self) -> bool {
        self.peer.is_some()
    }

    /// Whether what it says next proves something, and whose: an identity is no proof.
    pub(super) fn bears(&self) -> Option<Person> {
        let identity = self.response.get(4) == Some(&Type::IDENTITY.0);
        match self.method {
            ProofMethod::Address => None,
            _ => (!self.speaks_eap() || !identity).then_some(self.owner),
        }
    }

    /// Hears an EAP packet of the server; what it answers is its next response.
    pub(super) fn hear(&mut self, now: Instant, eap: &[u8]) {
        let Some(peer) = &mut self.peer else { return };
        let mut response = Vec::new();
        peer.handle(now, eap);
        if peer.poll_transmit(&mut response) {
            self.previous = std::mem::replace(&mut self.response, response);
        }
    }

    /// Puts its proof into a request, where that is not EAP.
    pub(super) fn prove(&self, attributes: &mut Attributes) {
        let password = self.owner.password().as_bytes();
        match self.method {
            ProofMethod::Pap => drop(attributes.push_user_password(password)),
            ProofMethod::Chap => {
                let challenge = [7; 16];
                let digest = md5(&[&[1], password, &challenge]);
                let _ = attributes.push_bytes(kind::CHAP_PASSWORD, &[&[1][..], &digest].concat());
                let _ = attributes.push_bytes(kind::CHAP_CHALLENGE, &challenge);
            }
            ProofMethod::Address => {
                const CALL_CHECK: u32 = 10;
                attributes.push_u32(kind::SERVICE_TYPE, CALL_CHECK);
            }
            _ => {
                attributes.push_eap(&self.response);
            }
        }
    }
}

fn offer(method: ProofMethod, name: &[u8], password: &[u8]) -> Option<Box<dyn PeerOffer>> {
    let peap = |inner| tunnels::peap(name, inner);
    let ttls = |proof| tunnels::ttls(name, proof);
    let eap = |offer: Box<dyn PeerOffer>| InnerProof::Eap(Arc::new([offer]));
    Some(match method {
        ProofMethod::Pap | ProofMethod::Chap | ProofMethod::Address => return None,
        ProofMethod::Md5 => Box::new(eap_md5::Password::new(password)),
        ProofMethod::MsChapV2 => Box::new(Account::new(name, password)),
        ProofMethod::Gtc => Box::new(gtc::Token::new(password)),
        ProofMethod::Tls => tunnels::tls(),
        ProofMethod::PeapMsChapV2 => peap(Box::new(Account::new(name, password))),
        ProofMethod::PeapGtc => peap(Box::new(gtc::Token::new(password))),
        ProofMethod::TtlsPap => ttls(InnerProof::Pap(password.into())),
        ProofMethod::TtlsMsChapV2 => ttls(InnerProof::MsChapV2(password.into())),
        ProofMethod::TtlsMd5 => ttls(eap(Box::new(eap_md5::Password::new(password)))),
    })
}

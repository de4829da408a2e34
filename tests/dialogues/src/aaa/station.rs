//! The stations with their claimed identities and proofs.

use crate::{DialogueOperation, TestUser, respell_text, tunnels};
use std::sync::Arc;
use usher_core::{Duration, Instant, Seed};
use usher_crypto::digest::md5;
use usher_crypto::tls::fixtures;
use usher_eap::method::mschapv2::MsChapV2Account;
use usher_eap::method::ttls::TtlsInnerCredential as InnerProof;
use usher_eap::method::{PeerMethodFactory, gtc, md5 as eap_md5};
use usher_eap::packet::{self, EapCode, EapType};
use usher_eap::peer::{EapPeer, EapPeerConfig};
use usher_radius::attribute::{AttributeList, kind};

/// The authentication method of a station.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProofMethod {
    /// User-Password.
    Pap,
    /// CHAP-Password.
    Chap,
    /// Only the address.
    Address,
    /// EAP-MD5.
    Md5,
    /// EAP-MSCHAPv2.
    MsChapV2,
    /// EAP-GTC.
    Gtc,
    /// EAP-TLS. The certificate is Ann's. Other stations use EAP-MD5 instead.
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
    /// All methods.
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

    /// True if the authenticated name is sent within a tunnel.
    pub(super) const fn is_tunnel(self) -> bool {
        matches!(
            self,
            Self::PeapMsChapV2 | Self::PeapGtc | Self::TtlsPap | Self::TtlsMsChapV2 | Self::TtlsMd5
        )
    }
}

/// A station that logs in.
#[derive(Debug)]
pub(super) struct LoginStation {
    /// The user whose password or certificate it has.
    pub(super) owner: TestUser,
    pub(super) method: ProofMethod,
    /// The outer identity.
    pub(super) outer: String,
    /// Calling-Station-Id. Empty: the access server sends none.
    pub(super) address: String,
    peer: Option<EapPeer>,
    /// Its next EAP response.
    pub(super) response: Vec<u8>,
    /// Its previous EAP response.
    pub(super) previous: Vec<u8>,
}

impl LoginStation {
    /// Decodes an operation. `how[0]` has the owner of the password (2 bits), the claimed user (2 bits, relative to
    /// the owner) and, with `how[1]`, the method. The rest of `how[1]` selects the outer name and the address.
    pub(super) fn from_operation(operation: DialogueOperation, number: u64, now: Instant) -> Self {
        let [who, how] = operation.how;
        let owner = TestUser::from_number(who);
        let claimed = TestUser::from_number(who.wrapping_add(who >> 2));
        let method = match ProofMethod::ALL[usize::from(who >> 4) % ProofMethod::ALL.len()] {
            ProofMethod::Tls if owner != TestUser::Ann => ProofMethod::Md5,
            method => method,
        };
        let name = claimed.name().to_string();
        let hides = method.is_tunnel() || method == ProofMethod::Tls;
        let outer = match (how >> 2) & 3 {
            1 if hides => "anonymous".into(),
            0 | 1 => name.clone(),
            2 => TestUser::from_number(owner as u8 + 1).name().into(),
            _ => respell_text(&name, 1),
        };
        let inner = respell_text(&name, how >> 6);
        let address = match (how >> 4) & 3 {
            0 => owner.station().to_string(),
            1 => claimed.station().replace('-', ":").to_lowercase(),
            2 => TestUser::from_number(owner as u8 + 1).station().into(),
            _ => String::new(),
        };
        let mut response = Vec::new();
        packet::emit_packet(&mut response, EapCode::Response, 0, EapType::IDENTITY, outer.as_bytes());
        let peer = peer_offer(method, inner.as_bytes(), owner.password().as_bytes()).map(|offer| {
            let config = EapPeerConfig {
                identity: outer.clone().into_bytes(),
                methods: Arc::new([offer]),
                timeout: Duration::from_secs(600),
                wall: fixtures::WALL_TIME,
            };
            EapPeer::new(config, Seed::new(number).derive_secure_rng("station", 0), now)
        });
        Self { owner, method, outer, address, peer, response, previous: Vec::new() }
    }

    pub(super) const fn speaks_eap(&self) -> bool {
        self.peer.is_some()
    }

    /// Returns the user whom its next response proves, if any. An identity is no proof.
    pub(super) fn proven_user(&self) -> Option<TestUser> {
        let identity = self.response.get(4) == Some(&EapType::IDENTITY.0);
        match self.method {
            ProofMethod::Address => None,
            _ => (!self.speaks_eap() || !identity).then_some(self.owner),
        }
    }

    /// Handles an EAP packet of the server, and sets the next response.
    pub(super) fn receive_eap(&mut self, now: Instant, eap: &[u8]) {
        let Some(peer) = &mut self.peer else { return };
        let mut response = Vec::new();
        peer.handle_packet(now, eap);
        if peer.poll_transmit(&mut response) {
            self.previous = std::mem::replace(&mut self.response, response);
        }
    }

    /// Adds its proof to a request, unless it uses EAP.
    pub(super) fn add_proof(&self, attributes: &mut AttributeList) {
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

fn peer_offer(method: ProofMethod, name: &[u8], password: &[u8]) -> Option<Box<dyn PeerMethodFactory>> {
    let peap = |inner| tunnels::peap_offer(name, inner);
    let ttls = |proof| tunnels::ttls_offer(name, proof);
    let eap = |offer: Box<dyn PeerMethodFactory>| InnerProof::Eap(Arc::new([offer]));
    Some(match method {
        ProofMethod::Pap | ProofMethod::Chap | ProofMethod::Address => return None,
        ProofMethod::Md5 => Box::new(eap_md5::EapMd5Password::new(password)),
        ProofMethod::MsChapV2 => Box::new(MsChapV2Account::new(name, password)),
        ProofMethod::Gtc => Box::new(gtc::GtcToken::new(password)),
        ProofMethod::Tls => tunnels::tls_offer(),
        ProofMethod::PeapMsChapV2 => peap(Box::new(MsChapV2Account::new(name, password))),
        ProofMethod::PeapGtc => peap(Box::new(gtc::GtcToken::new(password))),
        ProofMethod::TtlsPap => ttls(InnerProof::Pap(password.into())),
        ProofMethod::TtlsMsChapV2 => ttls(InnerProof::MsChapV2(password.into())),
        ProofMethod::TtlsMd5 => ttls(eap(Box::new(eap_md5::EapMd5Password::new(password)))),
    })
}

//! The authentication protocols: PAP (RFC 1334), CHAP (RFC 1994), MS-CHAPv2 (RFC 2759) and EAP (RFC 3748).

pub(crate) mod authenticator;
pub mod message;
pub(crate) mod peer;

use crate::packet::PppProtocol;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_crypto::SecretValue;
use usher_eap::method::PeerMethodFactory;

/// MD5 as CHAP's algorithm (RFC 1994 §3).
const MD5: u8 = 5;
/// MS-CHAPv2 as CHAP's algorithm (RFC 2759 §3).
const MS_CHAP_V2: u8 = 0x81;

usher_core::named! {
    "an authentication protocol of PPP";
    /// An authentication protocol, as LCP agrees on it.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum AuthenticationProtocol {
        /// EAP: the AAA server and the peer agree on a method.
        Eap = "eap",
        /// MS-CHAPv2: both prove that they know the password.
        MsChapV2 = "mschapv2",
        /// CHAP with MD5: the server must know the password itself.
        Chap = "chap",
        /// PAP: the password in the clear on the link.
        Pap = "pap",
    }
}

impl AuthenticationProtocol {
    /// Returns the data of LCP's Authentication-Protocol option.
    #[must_use]
    pub const fn lcp_option(self) -> &'static [u8] {
        match self {
            Self::Eap => &[0xc2, 0x27],
            Self::MsChapV2 => &[0xc2, 0x23, MS_CHAP_V2],
            Self::Chap => &[0xc2, 0x23, MD5],
            Self::Pap => &[0xc0, 0x23],
        }
    }
    /// Returns the protocol of LCP's option data; `None`: unknown.
    #[must_use]
    pub fn from_lcp_option(data: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.lcp_option() == data)
    }
    /// Returns the PPP protocol of its packets.
    #[must_use]
    pub const fn ppp_protocol(self) -> PppProtocol {
        match self {
            Self::Eap => PppProtocol::EAP,
            Self::MsChapV2 | Self::Chap => PppProtocol::CHAP,
            Self::Pap => PppProtocol::PAP,
        }
    }
}

/// A peer's proof of its identity.
#[derive(Clone, PartialEq, Eq)]
pub enum AuthenticationProof {
    /// PAP: the password.
    Pap(SecretValue),
    /// CHAP with MD5.
    Chap {
        /// The identifier, part of the hash.
        identifier: u8,
        /// The challenge.
        challenge: [u8; 16],
        /// The response.
        response: [u8; 16],
    },
    /// MS-CHAPv2.
    MsChapV2 {
        /// The identifier of challenge and response.
        identifier: u8,
        /// The challenge.
        challenge: [u8; 16],
        /// The peer's challenge.
        peer_challenge: [u8; 16],
        /// The NT response.
        response: [u8; 24],
    },
    /// An EAP packet. The first of a conversation is an Identity response.
    Eap(Vec<u8>),
}

impl fmt::Debug for AuthenticationProof {
    /// Prints the protocol only, never the proof.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pap(_) => "Pap(..)",
            Self::Chap { .. } => "Chap(..)",
            Self::MsChapV2 { .. } => "MsChapV2(..)",
            Self::Eap(_) => "Eap(..)",
        })
    }
}

/// A user's credentials on a client.
#[derive(Clone)]
pub struct PppCredentials {
    /// The user's name: Peer-ID of PAP, Name of CHAP, Identity of EAP.
    pub name: Vec<u8>,
    /// The password, for all but EAP.
    pub password: SecretValue,
    /// The authentication protocols to accept, by preference.
    pub protocols: Vec<AuthenticationProtocol>,
    /// EAP's methods, by preference.
    pub eap_methods: Arc<[Box<dyn PeerMethodFactory>]>,
}

impl fmt::Debug for PppCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({}, ..)", self.name.escape_ascii())
    }
}

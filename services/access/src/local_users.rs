//! Users of an access server itself, without an AAA server.

use crate::{LoginFailureLimit, UserCredentials};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::{SecureRng, WallTime, WorkRecord};
use usher_crypto::SecretValue;
use usher_crypto::digest::{constant_time_eq, md5};
use usher_crypto::legacy::{mschap, nt_hash};
use usher_eap::method::{
    EapMethodContext, ServerMethodFactory, UserQueryAnswer, UserSecret, md5 as eap_md5, mschapv2,
};
use usher_eap::packet::EapType;
use usher_eap::server::{EapServer, EapServerEvent};

/// The longest EAP packet of a method with fragmentation, in octets. It fits an IKE message of 1280 octets on the
/// wire.
#[cfg(feature = "tls")]
const FRAGMENT: usize = 1100;

/// The users of an access server itself.
#[derive(Clone, Default)]
pub struct LocalUsers {
    /// The EAP methods to propose, the preferred first: EAP-MD5, EAP-MSCHAPv2 and EAP-TLS.
    pub methods: Vec<EapType>,
    /// Passwords by user name.
    pub passwords: Arc<BTreeMap<Vec<u8>, SecretValue>>,
    /// The failed attempts after which a user name or an origin is locked out; `None`: no lockout.
    pub failures: Option<LoginFailureLimit>,
    /// For EAP-TLS. A user is accepted with a certificate below these authorities that has the user's name.
    #[cfg(feature = "tls")]
    pub tls: Option<usher_crypto::tls::ServerConfig>,
    /// The clock for certificate validity, shared by all parts of the configuration.
    #[cfg(feature = "tls")]
    pub clock: Option<usher_crypto::tls::SharedWallClock>,
}

impl fmt::Debug for LocalUsers {
    /// Omits the passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalUsers")
            .field("methods", &self.methods)
            .field("users", &self.passwords.len())
            .finish_non_exhaustive()
    }
}

impl LocalUsers {
    #[cfg_attr(
        not(feature = "tls"),
        allow(clippy::unused_self, reason = "without TLS nothing looks at a clock")
    )]
    pub(crate) fn set_tls_clock(&self, now: WallTime) {
        #[cfg(feature = "tls")]
        if let Some(clock) = &self.clock {
            clock.set(now);
        }
        #[cfg(not(feature = "tls"))]
        let _ = now;
    }

    #[cfg_attr(
        not(feature = "tls"),
        allow(clippy::unused_self, reason = "only EAP-TLS needs more than the password")
    )]
    fn server_offer(&self, kind: EapType, secret: &SecretValue) -> Option<Box<dyn ServerMethodFactory>> {
        match kind {
            EapType::MD5 => Some(Box::new(eap_md5::EapMd5Password::new(secret))),
            EapType::MSCHAPV2 => {
                let hash = mschapv2::MsChapV2ServerFactory::new(&UserSecret::Clear(secret.clone()))?;
                Some(Box::new(hash))
            }
            #[cfg(feature = "tls")]
            EapType::TLS => {
                use usher_eap::method::tls::{EapTlsServerFactory, ServerTlsBackend};
                let tls = ServerTlsBackend::Real(self.tls.clone()?);
                Some(Box::new(EapTlsServerFactory { tls, fragment: FRAGMENT }))
            }
            _ => None,
        }
    }

    /// Verifies a proof without further rounds: PAP, CHAP and MS-CHAPv2.
    pub(crate) fn verify_proof(&self, name: &[u8], proof: &UserCredentials<'_>) -> LocalVerdict {
        let reject = || LocalVerdict::Reject(Vec::new());
        let accept = |packet| LocalVerdict::Accept { packet, msk: None };
        let Some(secret) = self.passwords.get(name) else { return reject() };
        let is_right = match proof {
            UserCredentials::Pap(password) => constant_time_eq(password, &secret[..]),
            UserCredentials::Chap(chap) => {
                constant_time_eq(&md5(&[&[chap.identifier], &secret[..], chap.challenge]), &chap.response)
            }
            UserCredentials::MsChapV2(proof) => {
                let (hash, challenge, peer) = (nt_hash(&secret[..]), &proof.challenge, &proof.peer_challenge);
                let response = mschap::nt_response(challenge, peer, name, &hash);
                if !constant_time_eq(&response, &proof.response) {
                    return reject();
                }
                let success = mschap::authenticator_response(&hash, &proof.response, peer, challenge, name);
                return accept(success.to_vec());
            }
            UserCredentials::MsChap(_) | UserCredentials::Eap(_) => false,
        };
        if is_right { accept(Vec::new()) } else { reject() }
    }

    /// Starts a conversation by the user's Identity response. An unknown user gets the same requests and is rejected
    /// at the end.
    pub(crate) fn start_conversation(
        &self,
        name: &[u8],
        packet: &[u8],
        wall: WallTime,
        rng: &mut SecureRng,
    ) -> EapConversation {
        let stand_in = || SecretValue::from(&rng.random_array::<32>()[..]);
        let secret = self.passwords.get(name).cloned().unwrap_or_else(stand_in);
        let offers = self.methods.iter().filter_map(|kind| self.server_offer(*kind, &secret)).collect();
        let identifier = packet.get(1).copied().unwrap_or(0);
        let context = EapMethodContext { rng, wall, mtu: None, without_extended_master_secret: false };
        EapConversation {
            server: EapServer::new(offers, identifier, context),
            #[cfg(feature = "tls")]
            name: name.to_vec(),
            is_costly: self.methods.contains(&EapType::TLS),
        }
    }
}

/// The verdict on a proof.
#[derive(Debug)]
pub(crate) enum LocalVerdict {
    /// An EAP request for the user.
    Continue(Vec<u8>),
    /// Accepted, with a packet or message for the user and the key of an EAP method.
    Accept { packet: Vec<u8>, msk: Option<SecretValue> },
    /// Rejected, with a packet or message for the user.
    Reject(Vec<u8>),
}

/// A step of a conversation that costs much processor time: EAP-TLS, whose public-key operations would delay other
/// users.
#[derive(Debug)]
pub struct EapStepJob<K> {
    /// The login.
    pub access: K,
    pub(crate) token: u64,
    pub(crate) conversation: EapConversation,
    packet: Vec<u8>,
}

impl<K> EapStepJob<K> {
    pub(crate) fn new(access: K, token: u64, conversation: EapConversation, packet: &[u8]) -> Self {
        Self { access, token, conversation, packet: packet.to_vec() }
    }
    /// Runs the step. It takes time, so a worker does it.
    #[must_use]
    pub fn run_eap_step(mut self: Box<Self>) -> Box<Self> {
        self.conversation.handle_packet(&self.packet);
        self
    }
}

/// An EAP conversation with a user.
#[derive(Debug)]
pub(crate) struct EapConversation {
    server: EapServer,
    #[cfg(feature = "tls")]
    name: Vec<u8>,
    /// True if EAP-TLS is among its methods.
    is_costly: bool,
}

impl EapConversation {
    pub(crate) fn handle_packet(&mut self, packet: &[u8]) {
        self.server.handle_packet(packet);
    }
    /// True if the user has already received the failure of a wrong password.
    pub(crate) fn has_refused(&self) -> bool {
        self.server.is_refusing()
    }
    /// True if a worker has to run its steps.
    pub(crate) const fn is_costly(&self) -> bool {
        self.is_costly
    }

    /// True if the user's certificate has its name (RFC 5216 §5.2).
    #[cfg(feature = "tls")]
    fn certificate_names_user(&self) -> bool {
        let leaf = self.server.peer_certificates().first();
        let name = core::str::from_utf8(&self.name);
        let (Some(leaf), Ok(name)) = (leaf, name) else { return false };
        usher_crypto::x509::CertificateInfo::of_der(leaf).is_ok_and(|said| said.is_of(name))
    }

    pub(crate) fn next_verdict(&mut self) -> LocalVerdict {
        let mut packet = Vec::new();
        let sends = self.server.poll_transmit(&mut packet);
        match self.server.poll_event() {
            #[cfg(feature = "tls")]
            Some(EapServerEvent::Success { method, .. })
                if method == EapType::TLS && !self.certificate_names_user() =>
            {
                LocalVerdict::Reject(eap_failure(&packet))
            }
            Some(EapServerEvent::Success { keys, .. }) => {
                LocalVerdict::Accept { packet, msk: keys.map(|keys| SecretValue::from(&keys.msk[..])) }
            }
            Some(EapServerEvent::Failure { .. }) => LocalVerdict::Reject(packet),
            Some(EapServerEvent::Query(_)) => {
                // The offered methods need no data about the user.
                self.server.apply_answer(UserQueryAnswer::Unavailable);
                self.next_verdict()
            }
            None if sends => LocalVerdict::Continue(packet),
            // The server discarded the response, so the last request is repeated.
            None => LocalVerdict::Continue(self.server.open_request().unwrap_or_default().to_vec()),
        }
    }

    pub(crate) fn drain_work(&mut self) -> impl Iterator<Item = WorkRecord> {
        core::iter::from_fn(|| self.server.poll_work())
    }
}

/// Returns EAP-Failure with the identifier of a Success.
#[cfg(feature = "tls")]
fn eap_failure(success: &[u8]) -> Vec<u8> {
    alloc::vec![4, success.get(1).copied().unwrap_or(0), 0, 4]
}

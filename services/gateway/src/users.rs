//! Users that a gateway knows itself, and the EAP methods by which they prove who they are.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_access::FailureLimit;
use usher_core::{SecureRng, WallTime, WorkRecord};
use usher_crypto::SecretValue;
use usher_eap::method::{MethodContext, ServerOffer, UserQuery, UserSecret, md5, mschapv2};
use usher_eap::packet::EapType;
use usher_eap::server::{EapServer, EapServerEvent};
use usher_ike::machine::SaId;

/// The longest EAP packet of a method that cuts its messages, octets: it fits an IKE message of 1280 octets on the wire.
#[cfg(feature = "tls")]
const FRAGMENT: usize = 1100;

/// Users that a gateway knows itself.
#[derive(Clone, Default)]
pub struct LocalUsers {
    /// The methods that are proposed, the preferred one first.
    pub methods: Vec<EapType>,
    /// Passwords by names.
    pub passwords: Arc<BTreeMap<Vec<u8>, SecretValue>>,
    /// How many failed logins under a name, or from a host, hold it back; `None`: nobody is.
    pub failures: Option<FailureLimit>,
    /// EAP-TLS: whose certificate, with a name that is the user's, ends below the authorities of this is let in.
    #[cfg(feature = "tls")]
    pub tls: Option<usher_crypto::tls::ServerConfig>,
    /// The clock by which certificates are looked at: of this, and of whatever else is of the same configuration.
    #[cfg(feature = "tls")]
    pub clock: Option<usher_crypto::tls::WallClock>,
}

impl fmt::Debug for LocalUsers {
    /// Without the passwords.
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
    pub(crate) fn set_clock(&self, now: WallTime) {
        #[cfg(feature = "tls")]
        if let Some(clock) = &self.clock {
            clock.set(now);
        }
        #[cfg(not(feature = "tls"))]
        let _ = now;
    }

    fn server_offer(&self, kind: EapType, secret: &SecretValue) -> Option<Box<dyn ServerOffer>> {
        match kind {
            EapType::MD5 => Some(Box::new(md5::Md5Password::new(secret))),
            EapType::MSCHAPV2 => {
                let hash = mschapv2::MsChapV2Verifier::new(&UserSecret::Clear(secret.clone()))?;
                Some(Box::new(hash))
            }
            #[cfg(feature = "tls")]
            EapType::TLS => {
                use usher_eap::method::tls::{ServerMethodTls, ServerTls};
                let tls = ServerTls::Real(self.tls.clone()?);
                Some(Box::new(ServerMethodTls { tls, fragment: FRAGMENT }))
            }
            _ => None,
        }
    }

    /// A conversation that begins with the peer's Identity response. Who is not known is asked as whoever is, and turned away.
    pub(crate) fn start_conversation(
        &self,
        name: &[u8],
        packet: &[u8],
        wall: WallTime,
        rng: &mut SecureRng,
    ) -> LocalConversation {
        let stand_in = || SecretValue::from(&rng.random_array::<32>()[..]);
        let secret = self.passwords.get(name).cloned().unwrap_or_else(stand_in);
        let offers = self.methods.iter().filter_map(|kind| self.server_offer(*kind, &secret)).collect();
        let identifier = packet.get(1).copied().unwrap_or(0);
        let context = MethodContext { rng, wall, mtu: None, without_extended_master_secret: false };
        let costly = self.methods.contains(&EapType::TLS);
        LocalConversation {
            server: EapServer::new(offers, identifier, context),
            #[cfg(feature = "tls")]
            name: name.to_vec(),
            costly,
        }
    }
}

/// What becomes of a conversation.
#[derive(Debug)]
pub(crate) enum EapVerdict {
    /// A request for the peer.
    Continue(Vec<u8>),
    /// The user is in, with EAP-Success and the key of the method.
    Accept { packet: Vec<u8>, msk: Option<SecretValue> },
    /// The user is out, with EAP-Failure.
    Reject(Vec<u8>),
}

/// A packet of a conversation that costs much to judge: of one by EAP-TLS, whose public keys would keep others waiting.
#[derive(Debug)]
pub struct EapJudgement {
    pub(crate) sa: SaId,
    pub(crate) conversation: LocalConversation,
    packet: Vec<u8>,
}

impl EapJudgement {
    pub(crate) fn new(sa: SaId, conversation: LocalConversation, packet: &[u8]) -> Self {
        Self { sa, conversation, packet: packet.to_vec() }
    }
    /// Judges it: what takes its time, and is for a helper to do.
    #[must_use]
    pub fn run_judgement(mut self: Box<Self>) -> Box<Self> {
        self.conversation.handle_packet(&self.packet);
        self
    }
}

/// A conversation with a peer.
#[derive(Debug)]
pub(crate) struct LocalConversation {
    server: EapServer,
    #[cfg(feature = "tls")]
    name: Vec<u8>,
    /// EAP-TLS is among its methods.
    costly: bool,
}

impl LocalConversation {
    pub(crate) fn handle_packet(&mut self, packet: &[u8]) {
        self.server.handle_packet(packet);
    }
    /// Whether its peer has been told that its password is wrong, whatever follows.
    pub(crate) fn has_refused(&self) -> bool {
        self.server.is_refusing()
    }
    /// Whether what it judges is for a helper.
    pub(crate) const fn is_costly(&self) -> bool {
        self.costly
    }

    /// Whether the certificate that a peer has shown is the user's that it says it is (RFC 5216 §5.2).
    #[cfg(feature = "tls")]
    fn is_the_users(&self) -> bool {
        let leaf = self.server.peer_certificates().first();
        let name = core::str::from_utf8(&self.name);
        let (Some(leaf), Ok(name)) = (leaf, name) else { return false };
        usher_crypto::x509::CertificateInfo::of_der(leaf).is_ok_and(|said| said.is_of(name))
    }

    pub(crate) fn take_verdict(&mut self) -> EapVerdict {
        let mut packet = Vec::new();
        let sends = self.server.poll_transmit(&mut packet);
        match self.server.poll_event() {
            #[cfg(feature = "tls")]
            Some(EapServerEvent::Success { method, .. })
                if method == EapType::TLS && !self.is_the_users() =>
            {
                EapVerdict::Reject(eap_failure(&packet))
            }
            Some(EapServerEvent::Success { keys, .. }) => {
                EapVerdict::Accept { packet, msk: keys.map(|keys| SecretValue::from(&keys.msk[..])) }
            }
            Some(EapServerEvent::Failure { .. }) => EapVerdict::Reject(packet),
            Some(EapServerEvent::Query(question)) => {
                // No method that is offered here asks.
                debug_assert!(matches!(question, UserQuery::Resume(_)), "{question:?}");
                self.server.apply_answer(usher_eap::method::UserAnswer::Unavailable);
                self.take_verdict()
            }
            None if sends => EapVerdict::Continue(packet),
            // What was discarded is asked again: IKE has to answer something.
            None => EapVerdict::Continue(self.server.open_request().unwrap_or_default().to_vec()),
        }
    }

    pub(crate) fn drain_work(&mut self) -> impl Iterator<Item = WorkRecord> {
        core::iter::from_fn(|| self.server.poll_work())
    }
}

/// EAP-Failure in the place of a Success with the same identifier.
#[cfg(feature = "tls")]
fn eap_failure(success: &[u8]) -> Vec<u8> {
    alloc::vec![4, success.get(1).copied().unwrap_or(0), 0, 4]
}

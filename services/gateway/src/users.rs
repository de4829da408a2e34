//! Local users of a gateway, and their EAP methods.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_access::LoginFailureLimit;
use usher_core::{SecureRng, WallTime, WorkRecord};
use usher_crypto::SecretValue;
use usher_eap::method::{EapMethodContext, ServerMethodFactory, UserQuery, UserSecret, md5, mschapv2};
use usher_eap::packet::EapType;
use usher_eap::server::{EapServer, EapServerEvent};
use usher_ike::machine::IkeSaId;

/// The longest EAP packet of a method with fragmentation, in octets. It fits an IKE message of 1280 octets on the
/// wire.
#[cfg(feature = "tls")]
const FRAGMENT: usize = 1100;

/// The local users of a gateway.
#[derive(Clone, Default)]
pub struct LocalUsers {
    /// The EAP methods, the preferred first.
    pub methods: Vec<EapType>,
    /// Passwords by user name.
    pub passwords: Arc<BTreeMap<Vec<u8>, SecretValue>>,
    /// The failed attempts after which a user name or a host is locked out; `None`: no lockout.
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

    fn server_offer(&self, kind: EapType, secret: &SecretValue) -> Option<Box<dyn ServerMethodFactory>> {
        match kind {
            EapType::MD5 => Some(Box::new(md5::EapMd5Password::new(secret))),
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

    /// Starts a conversation with the peer's Identity response. An unknown user gets the same requests and is
    /// rejected at the end.
    pub(crate) fn start_conversation(
        &self,
        name: &[u8],
        packet: &[u8],
        wall: WallTime,
        rng: &mut SecureRng,
    ) -> LocalEapConversation {
        let stand_in = || SecretValue::from(&rng.random_array::<32>()[..]);
        let secret = self.passwords.get(name).cloned().unwrap_or_else(stand_in);
        let offers = self.methods.iter().filter_map(|kind| self.server_offer(*kind, &secret)).collect();
        let identifier = packet.get(1).copied().unwrap_or(0);
        let context = EapMethodContext { rng, wall, mtu: None, without_extended_master_secret: false };
        let costly = self.methods.contains(&EapType::TLS);
        LocalEapConversation {
            server: EapServer::new(offers, identifier, context),
            #[cfg(feature = "tls")]
            name: name.to_vec(),
            costly,
        }
    }
}

/// The result of a step of a conversation.
#[derive(Debug)]
pub(crate) enum EapStepOutcome {
    /// A request for the peer.
    Continue(Vec<u8>),
    /// Accepted, with EAP-Success and the method's key.
    Accept { packet: Vec<u8>, msk: Option<SecretValue> },
    /// Rejected, with EAP-Failure.
    Reject(Vec<u8>),
}

/// A step of a conversation that costs much processor time: EAP-TLS, whose public-key operations would delay other
/// peers.
#[derive(Debug)]
pub struct EapStepJob {
    pub(crate) sa: IkeSaId,
    pub(crate) conversation: LocalEapConversation,
    packet: Vec<u8>,
}

impl EapStepJob {
    pub(crate) fn new(sa: IkeSaId, conversation: LocalEapConversation, packet: &[u8]) -> Self {
        Self { sa, conversation, packet: packet.to_vec() }
    }
    /// Runs the step. It takes time, so a worker does it.
    #[must_use]
    pub fn run_eap_step(mut self: Box<Self>) -> Box<Self> {
        self.conversation.handle_packet(&self.packet);
        self
    }
}

/// A conversation with a peer.
#[derive(Debug)]
pub(crate) struct LocalEapConversation {
    server: EapServer,
    #[cfg(feature = "tls")]
    name: Vec<u8>,
    /// True if EAP-TLS is among its methods.
    costly: bool,
}

impl LocalEapConversation {
    pub(crate) fn handle_packet(&mut self, packet: &[u8]) {
        self.server.handle_packet(packet);
    }
    /// True if the peer has already been told that its password is wrong.
    pub(crate) fn has_refused(&self) -> bool {
        self.server.is_refusing()
    }
    /// True if a worker has to run its steps.
    pub(crate) const fn is_costly(&self) -> bool {
        self.costly
    }

    /// True if the peer's certificate has the user's name (RFC 5216 §5.2).
    #[cfg(feature = "tls")]
    fn certificate_names_user(&self) -> bool {
        let leaf = self.server.peer_certificates().first();
        let name = core::str::from_utf8(&self.name);
        let (Some(leaf), Ok(name)) = (leaf, name) else { return false };
        usher_crypto::x509::CertificateInfo::of_der(leaf).is_ok_and(|said| said.is_of(name))
    }

    pub(crate) fn take_verdict(&mut self) -> EapStepOutcome {
        let mut packet = Vec::new();
        let sends = self.server.poll_transmit(&mut packet);
        match self.server.poll_event() {
            #[cfg(feature = "tls")]
            Some(EapServerEvent::Success { method, .. })
                if method == EapType::TLS && !self.certificate_names_user() =>
            {
                EapStepOutcome::Reject(eap_failure(&packet))
            }
            Some(EapServerEvent::Success { keys, .. }) => {
                EapStepOutcome::Accept { packet, msk: keys.map(|keys| SecretValue::from(&keys.msk[..])) }
            }
            Some(EapServerEvent::Failure { .. }) => EapStepOutcome::Reject(packet),
            Some(EapServerEvent::Query(question)) => {
                // The offered methods send no query other than `Resume`.
                debug_assert!(matches!(question, UserQuery::Resume(_)), "{question:?}");
                self.server.apply_answer(usher_eap::method::UserQueryAnswer::Unavailable);
                self.take_verdict()
            }
            None if sends => EapStepOutcome::Continue(packet),
            // A discarded packet gets the last request again, because IKE has to respond.
            None => EapStepOutcome::Continue(self.server.open_request().unwrap_or_default().to_vec()),
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

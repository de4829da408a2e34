//! The EAP back end's part in a login: the method that runs, and what is made of what it says.

use crate::server::config::AaaServerConfig;
use crate::server::reason::RejectCause;
use crate::server::shard::ShardKey;
use crate::server::{AaaServerEvent, AaaServerJob, trace};
use crate::users::{AuthMethod, StoredPassword, User};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::OutputQueue;
use usher_crypto::SecretValue;
use usher_crypto::fingerprint::sha256_fingerprint;
use usher_eap::method::{
    CredentialDigest, InnerMethod, MethodContext, MethodFault, ServerMethod, ServerOffer, SessionUser,
    UserQuery, UserSecret, gtc, md5, mschapv2,
};
use usher_eap::packet::{EapCode, EapPacket, EapType};
use usher_eap::server::{EapServer, EapServerEvent as EapEvent};
use usher_radius::attribute::{AttributeList, kind};

/// An EAP method under way.
#[derive(Debug)]
pub(super) struct EapConversation {
    pub(super) server: EapServer,
    /// What it waits for before it goes on: mostly what the host is asked.
    pub(super) wait: Option<MethodWait>,
    /// Of the response that came last.
    pub(super) identifier: u8,
}

/// What a method waits for.
#[derive(Debug)]
pub(super) enum MethodWait {
    /// A user.
    User(QueriedUser),
    /// Whether a password is right.
    Password,
    /// Its turn to take this packet, which costs much.
    ScheduledPacket(Vec<u8>),
}

/// Whom a method asks for.
#[derive(Clone, Debug)]
pub(super) enum QueriedUser {
    /// The user of this name, given inside a tunnel.
    Named(Vec<u8>),
    /// The user whom a TLS session has let in.
    Resumed(SessionUser),
}

impl QueriedUser {
    pub(super) fn name(&self) -> &[u8] {
        match self {
            Self::Named(name) => name,
            Self::Resumed(remembered) => &remembered.name,
        }
    }
}

impl fmt::Display for QueriedUser {
    /// As a trace tells it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = match self {
            Self::Named(_) => "within the tunnel",
            Self::Resumed(_) => "by an earlier TLS session",
        };
        write!(f, "{from}: user {}", trace::quote_name(self.name()))
    }
}

/// A digest of what proves this user, of use to nobody without the key: another password, or one kept otherwise, gives
/// another.
pub(super) fn credential_digest(key: &ShardKey, user: &User) -> CredentialDigest {
    let (kind, secret): (u8, &[u8]) = match &user.password {
        None => (0, &[]),
        Some(StoredPassword::Clear(password)) => (1, password),
        Some(StoredPassword::NtHash(hash)) => (2, &**hash),
        Some(StoredPassword::Argon2(hash)) => (3, hash.as_bytes()),
    };
    sha256_fingerprint(&[&key.derive_octets(b"credential")[..], &[kind], secret].concat())
}

/// A proof that convinced.
#[derive(Debug)]
pub(super) struct LoginApproval {
    pub(super) method: AuthMethod,
    /// The EAP-Success.
    pub(super) eap: Option<[u8; 4]>,
    pub(super) msk: Option<SecretValue<[u8; 64]>>,
    /// The identity within a tunnel.
    pub(super) inner: Option<Vec<u8>>,
    pub(super) inner_method: Option<InnerMethod>,
    pub(super) resumed: bool,
    /// What the method adds to the reply.
    pub(super) reply: AttributeList,
    /// The conversation that led to it, while the host is asked: a TLS session is kept once it has let somebody in, not
    /// before.
    pub(super) conversation: Option<Box<EapConversation>>,
}

impl LoginApproval {
    pub(super) fn new(method: AuthMethod) -> Self {
        Self {
            method,
            eap: None,
            msk: None,
            inner: None,
            inner_method: None,
            resumed: false,
            reply: AttributeList::new(),
            conversation: None,
        }
    }
}

impl EapConversation {
    /// The method that runs.
    pub(super) fn method(&self) -> Option<AuthMethod> {
        self.server.method_type().map(by_type)
    }
    pub(super) fn in_tunnel(&self) -> bool {
        self.method().is_some_and(is_tunnel)
    }

    /// What the automaton says after it was given something; its packet goes to `out`.
    pub(super) fn poll_progress(
        &mut self,
        outputs: &mut OutputQueue<AaaServerEvent, AaaServerJob>,
        out: &mut Vec<u8>,
    ) -> ConversationProgress {
        let eap = &mut self.server;
        while let Some(done) = eap.poll_work() {
            outputs.push_work(done);
        }
        let sends = eap.poll_transmit(out);
        match eap.poll_event() {
            Some(EapEvent::Success { method, keys }) => {
                let mut approval = LoginApproval::new(by_type(method));
                approval.eap = out.as_slice().try_into().ok();
                approval.msk = keys.map(|k| k.msk);
                approval.inner = eap.identity().map(<[u8]>::to_vec);
                approval.inner_method = eap.inner_method();
                approval.resumed = eap.is_resumed();
                ConversationProgress::Success(Box::new(approval))
            }
            Some(EapEvent::Failure { .. }) => ConversationProgress::Failure,
            Some(EapEvent::Query(question)) => ConversationProgress::UserQuery(question),
            None if sends => ConversationProgress::Request,
            None => ConversationProgress::Ignored,
        }
    }

    /// Why it failed, and what is known of that besides.
    pub(super) fn why_failed(
        &self,
        user: Option<&User>,
        config: &AaaServerConfig,
    ) -> (RejectCause, Option<String>) {
        let server = &self.server;
        match server.fault() {
            // The user's rows say what may be inside.
            Some(MethodFault::NoInner) if user.is_some_and(|user| user.inner_methods().is_some()) => {
                return (RejectCause::MethodForbidden, None);
            }
            Some(fault) => return (fault.into(), server.fault_detail()),
            None => {}
        }
        /// Most methods that are named.
        const SOME: usize = 8;
        let wished: Vec<EapType> =
            server.wanted_types().iter().take(SOME).map(|kind| EapType(*kind)).collect();
        let known = AuthMethod::ALL.into_iter().filter(|method| {
            config.methods.contains(method) && method.eap_type().is_some_and(|kind| wished.contains(&kind))
        });
        // What the server offers others was not offered to this user.
        let reasons = known.filter_map(|m| user.filter(|user| !user.may_use(m)).map(|user| why_not(user, m)));
        let names: Vec<String> = wished.iter().filter(|kind| kind.0 != 0).map(ToString::to_string).collect();
        let detail = match (server.wanted_types().is_empty(), names.is_empty()) {
            (true, _) => None,
            (false, true) => Some("the device takes nothing of what it is offered".into()),
            (false, false) => Some(format!("the device wants {}", names.join(", "))),
        };
        (most_specific_cause(reasons), detail)
    }
}

/// Why a user cannot log in by a method that the server offers.
pub(super) fn why_not(user: &User, method: AuthMethod) -> RejectCause {
    let listed = user.methods.is_empty() || user.methods.contains(&method);
    if !listed || method == AuthMethod::Mab {
        RejectCause::MethodForbidden
    } else if user.password.is_none() {
        RejectCause::NoPassword
    } else {
        RejectCause::PasswordForm
    }
}

/// Of the reasons why methods cannot admit a user, one that another method would not have.
pub(super) fn most_specific_cause(reasons: impl Iterator<Item = RejectCause>) -> RejectCause {
    reasons.min_by_key(|reason| *reason == RejectCause::MethodForbidden).unwrap_or(RejectCause::NoMethod)
}

/// Where a conversation stands after a packet.
#[derive(Debug)]
pub(super) enum ConversationProgress {
    /// It goes on with the request that was written.
    Request,
    /// The peer is who it says; a Success was written.
    Success(Box<LoginApproval>),
    /// It is not, or cannot show it.
    Failure,
    /// The host is asked first.
    UserQuery(UserQuery),
    /// The packet was none, or answers nothing that was asked.
    Ignored,
}

/// An offer that all sessions share.
#[derive(Debug)]
struct SharedOffer(Arc<dyn ServerOffer>);

impl ServerOffer for SharedOffer {
    fn kind(&self) -> EapType {
        self.0.kind()
    }
    fn start_server_method(&self, context: MethodContext<'_>) -> Box<dyn ServerMethod> {
        self.0.start_server_method(context)
    }
}

/// What a method may know of a user's password.
pub(super) fn user_secret(user: &User) -> Option<UserSecret> {
    Some(match user.password.as_ref()? {
        StoredPassword::Clear(password) => UserSecret::Clear(SecretValue::clone(password)),
        StoredPassword::NtHash(hash) => UserSecret::NtHash(hash.clone()),
        StoredPassword::Argon2(_) => UserSecret::Hashed,
    })
}

/// Whether another name may be given inside.
pub(super) const fn is_tunnel(method: AuthMethod) -> bool {
    matches!(method, AuthMethod::Peap | AuthMethod::Ttls)
}

/// Whether a name is the one that people give outside tunnels so as to say nothing: `anonymous` or nothing, with a realm
/// or without (RFC 7542 §2.4).
pub(super) fn is_anonymous(name: &[u8]) -> bool {
    let user = name.split(|octet| *octet == b'@').next().unwrap_or_default();
    user.is_empty() || user.eq_ignore_ascii_case(b"anonymous")
}

/// What of a server's offer may admit a user, the preferred method first, and tunnels, inside which another name may be
/// given: they come first for a name that says nothing, alone for one that is held back, last where they may not admit
/// the user.
pub(super) fn admissible_offers(
    config: &AaaServerConfig,
    user: &User,
    name: &[u8],
    held: bool,
) -> Vec<Box<dyn ServerOffer>> {
    let may = |method: &AuthMethod| is_tunnel(*method) || !held && user.may_use(*method);
    let mut offers: Vec<Box<dyn ServerOffer>> = Vec::with_capacity(config.methods.len());
    for &method in config.methods.iter().filter(|m| may(m)) {
        let shared = match method {
            AuthMethod::EapTls => &config.tls,
            AuthMethod::Peap => &config.peap,
            AuthMethod::Ttls => &config.ttls,
            AuthMethod::EapMd5 => {
                if let Some(StoredPassword::Clear(password)) = &user.password {
                    offers.push(Box::new(md5::Md5Password::from(password.clone())));
                }
                continue;
            }
            AuthMethod::EapGtc => {
                if let Some(secret) = user_secret(user) {
                    offers.push(Box::new(gtc::GtcPrompt::new(secret)));
                }
                continue;
            }
            AuthMethod::EapMsChapV2 => {
                if let Some(hash) = user_secret(user).as_ref().and_then(mschapv2::MsChapV2Verifier::new) {
                    offers.push(Box::new(hash));
                }
                continue;
            }
            AuthMethod::Pap
            | AuthMethod::Chap
            | AuthMethod::MsChap
            | AuthMethod::MsChapV2
            | AuthMethod::Mab => continue,
        };
        if let Some(shared) = shared {
            offers.push(Box::new(SharedOffer(shared.clone())));
        }
    }
    let anonymous = is_anonymous(name);
    if anonymous || !user.methods.is_empty() {
        offers.sort_by_key(|offer| match by_type(offer.kind()) {
            method if anonymous => !is_tunnel(method),
            method => !user.may_use(method),
        });
    }
    offers
}

pub(super) fn by_type(kind: EapType) -> AuthMethod {
    AuthMethod::ALL.into_iter().find(|m| m.eap_type() == Some(kind)).unwrap_or(AuthMethod::EapMd5)
}

/// The longest EAP packet that need not be cut on its way to the peer (RFC 3579 §2.4): on the media of IEEE 802 EAPOL's
/// header of four octets goes before it (RFC 3580 §3.10).
pub(super) fn eap_mtu(request: &AttributeList) -> Option<usize> {
    const ETHERNET: u32 = 15;
    const IEEE_802_11: u32 = 19;
    let mtu = request.get_u32(kind::FRAMED_MTU)?;
    let header = match request.get_u32(kind::NAS_PORT_TYPE) {
        Some(ETHERNET | IEEE_802_11) => 4,
        _ => 0,
    };
    // RFC 2865 §5.12: values range from 64 to 65535.
    Some(mtu.clamp(64, 65_535) as usize - header)
}

/// How a peer begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::server) enum EapOpening<'a> {
    /// By nothing yet (EAP-Start, RFC 3579 §2.1).
    Start,
    /// By the name that an EAP-Response/Identity of this identifier gives (RFC 3748 §5.1).
    Identity(&'a [u8], u8),
    /// By the answer, of this identifier, to something that the NAS asked.
    Response(u8),
    /// By a request of this identifier: somebody wants us to prove ourselves.
    Request(u8),
    /// By nothing that begins one; with its identifier, where it has one.
    Noise(Option<u8>),
}

pub(in crate::server) fn parse_opening(packet: &[u8]) -> EapOpening<'_> {
    match EapPacket::parse(packet) {
        _ if packet.is_empty() => EapOpening::Start,
        Ok(p) if p.code() == EapCode::Response && p.kind() == Some(EapType::IDENTITY) => {
            EapOpening::Identity(p.data(), p.identifier())
        }
        Ok(p) if p.code() == EapCode::Response => EapOpening::Response(p.identifier()),
        Ok(p) if p.code() == EapCode::Request => EapOpening::Request(p.identifier()),
        _ => EapOpening::Noise(packet.get(1).copied()),
    }
}

/// An EAP-Failure in answer to the response of this identifier.
pub(in crate::server) const fn eap_failure(identifier: u8) -> [u8; 4] {
    [4, identifier, 0, 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3579 §2.4, RFC 3580 §3.10.
    #[test]
    fn an_eap_packet_fits_the_mtu_with_the_header_before_it() {
        for (framed, port_type, fits) in [
            (None, Some(15), None),
            (Some(1400), None, Some(1400)),
            (Some(1400), Some(0), Some(1400)),
            (Some(1400), Some(15), Some(1396)),
            (Some(1400), Some(19), Some(1396)),
            (Some(1), Some(19), Some(60)),
            (Some(u32::MAX), None, Some(65_535)),
        ] {
            let mut request = AttributeList::new();
            framed.map(|mtu| request.push_u32(kind::FRAMED_MTU, mtu));
            port_type.map(|kind| request.push_u32(kind::NAS_PORT_TYPE, kind));
            assert_eq!(eap_mtu(&request), fits, "{framed:?} {port_type:?}");
        }
    }
}

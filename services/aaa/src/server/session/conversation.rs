//! EAP in a login: the running method and its output.

use crate::server::config::AaaServerConfig;
use crate::server::reason::RejectCause;
use crate::server::shard::InterShardKey;
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
    CredentialDigest, EapMethodContext, InnerMethod, ServerMethod, ServerMethodFactory, ServerMethodFailure,
    TlsSessionUser, UserQuery, UserSecret, gtc, md5, mschapv2,
};
use usher_eap::packet::{EapCode, EapPacket, EapType};
use usher_eap::server::{EapServer, EapServerEvent as EapEvent};
use usher_radius::attribute::{AttributeList, kind};

/// A running EAP method.
#[derive(Debug)]
pub(super) struct EapConversation {
    pub(super) server: EapServer,
    /// The result that the method waits for, mostly of a job.
    pub(super) wait: Option<AwaitedMethodResult>,
    /// Identifier of the last response.
    pub(super) identifier: u8,
}

/// A result that a method waits for.
#[derive(Debug)]
pub(super) enum AwaitedMethodResult {
    /// The lookup of a user.
    User(QueriedUser),
    /// The check of a password.
    Password,
    /// A queue for expensive packets, with this packet.
    ScheduledPacket(Vec<u8>),
}

/// The user that a method queries.
#[derive(Clone, Debug)]
pub(super) enum QueriedUser {
    /// The user of this inner name.
    Named(Vec<u8>),
    /// The user of a TLS session to resume.
    Resumed(TlsSessionUser),
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
    /// Formats it for a trace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = match self {
            Self::Named(_) => "inside the tunnel",
            Self::Resumed(_) => "from the resumed TLS session",
        };
        write!(f, "{from}: user {}", trace::quote_name(self.name()))
    }
}

/// Returns a keyed digest of a user's credentials. A changed password, or another form of it, changes the digest.
pub(super) fn credential_digest(key: &InterShardKey, user: &User) -> CredentialDigest {
    let (kind, secret): (u8, &[u8]) = match &user.password {
        None => (0, &[]),
        Some(StoredPassword::Clear(password)) => (1, password),
        Some(StoredPassword::NtHash(hash)) => (2, &**hash),
        Some(StoredPassword::Argon2(hash)) => (3, hash.as_bytes()),
    };
    sha256_fingerprint(&[&key.derive_octets(b"credential")[..], &[kind], secret].concat())
}

/// A proof that was right.
#[derive(Debug)]
pub(super) struct LoginApproval {
    pub(super) method: AuthMethod,
    /// The EAP-Success.
    pub(super) eap: Option<[u8; 4]>,
    pub(super) msk: Option<SecretValue<[u8; 64]>>,
    /// The inner identity.
    pub(super) inner: Option<Vec<u8>>,
    pub(super) inner_method: Option<InnerMethod>,
    pub(super) resumed: bool,
    /// Attributes that the method adds to the reply.
    pub(super) reply: AttributeList,
    /// The conversation, kept while the host does its jobs. A TLS session can be resumed only after the accept.
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
    /// Returns the running method.
    pub(super) fn method(&self) -> Option<AuthMethod> {
        self.server.method_type().map(auth_method_for_eap_type)
    }
    pub(super) fn uses_tunnel_method(&self) -> bool {
        self.method().is_some_and(is_tunnel)
    }

    /// Returns the automaton's next output. Its packet is appended to `out`.
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
                let mut approval = LoginApproval::new(auth_method_for_eap_type(method));
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

    /// Returns the cause of the failure, and further detail.
    pub(super) fn failure_cause_and_detail(
        &self,
        user: Option<&User>,
        config: &AaaServerConfig,
    ) -> (RejectCause, Option<String>) {
        let server = &self.server;
        match server.fault() {
            // The user's rows limit the inner methods, so that limit is why no inner method was left.
            Some(ServerMethodFailure::NoInner) if user.is_some_and(|user| user.inner_methods().is_some()) => {
                return (RejectCause::MethodForbidden, None);
            }
            Some(fault) => return (fault.into(), server.fault_detail()),
            None => {}
        }
        /// Maximum number of named methods.
        const SOME: usize = 8;
        let wished: Vec<EapType> =
            server.wanted_types().iter().take(SOME).map(|kind| EapType(*kind)).collect();
        let known = AuthMethod::ALL.into_iter().filter(|method| {
            config.methods.contains(method) && method.eap_type().is_some_and(|kind| wished.contains(&kind))
        });
        // The peer wants these methods, but the server did not offer them to this user.
        let reasons = known
            .filter_map(|m| user.filter(|user| !user.may_use(m)).map(|user| method_refusal_cause(user, m)));
        let names: Vec<String> = wished.iter().filter(|kind| kind.0 != 0).map(ToString::to_string).collect();
        let detail = match (server.wanted_types().is_empty(), names.is_empty()) {
            (true, _) => None,
            (false, true) => Some("the device accepts none of the offered methods".into()),
            (false, false) => Some(format!("the device wants {}", names.join(", "))),
        };
        (most_specific_cause(reasons), detail)
    }
}

/// Returns why a user cannot log in by a method of the server.
pub(super) fn method_refusal_cause(user: &User, method: AuthMethod) -> RejectCause {
    let listed = user.methods.is_empty() || user.methods.contains(&method);
    if !listed || method == AuthMethod::Mab {
        RejectCause::MethodForbidden
    } else if user.password.is_none() {
        RejectCause::NoPassword
    } else {
        RejectCause::PasswordForm
    }
}

/// Returns the most specific of several methods' causes.
pub(super) fn most_specific_cause(reasons: impl Iterator<Item = RejectCause>) -> RejectCause {
    reasons.min_by_key(|reason| *reason == RejectCause::MethodForbidden).unwrap_or(RejectCause::NoMethod)
}

/// The state of a conversation after a packet.
#[derive(Debug)]
pub(super) enum ConversationProgress {
    /// The method continues with the written request.
    Request,
    /// The peer is authenticated. A Success was written.
    Success(Box<LoginApproval>),
    /// The peer failed.
    Failure,
    /// The method queries a user.
    UserQuery(UserQuery),
    /// The packet is invalid or answers no pending request.
    Ignored,
}

/// An offer that all sessions share.
#[derive(Debug)]
struct SharedEapServerOffer(Arc<dyn ServerMethodFactory>);

impl ServerMethodFactory for SharedEapServerOffer {
    fn kind(&self) -> EapType {
        self.0.kind()
    }
    fn start_server_method(&self, context: EapMethodContext<'_>) -> Box<dyn ServerMethod> {
        self.0.start_server_method(context)
    }
}

/// Returns the form of a user's password for a method.
pub(super) fn user_secret(user: &User) -> Option<UserSecret> {
    Some(match user.password.as_ref()? {
        StoredPassword::Clear(password) => UserSecret::Clear(SecretValue::clone(password)),
        StoredPassword::NtHash(hash) => UserSecret::NtHash(hash.clone()),
        StoredPassword::Argon2(_) => UserSecret::Hashed,
    })
}

/// True if the method has an inner identity.
pub(super) const fn is_tunnel(method: AuthMethod) -> bool {
    matches!(method, AuthMethod::Peap | AuthMethod::Ttls)
}

/// True if an outer name is anonymous: `anonymous` or empty, with or without a realm (RFC 7542 §2.4).
pub(super) fn is_anonymous(name: &[u8]) -> bool {
    let user = name.split(|octet| *octet == b'@').next().unwrap_or_default();
    user.is_empty() || user.eq_ignore_ascii_case(b"anonymous")
}

/// Returns the server's methods that may accept a user, the preferred one first, and tunnels, which may carry
/// another name. Tunnels come first for an anonymous name, alone for a locked-out name, and last if the user may
/// not use them.
pub(super) fn admissible_method_offers(
    config: &AaaServerConfig,
    user: &User,
    name: &[u8],
    held: bool,
) -> Vec<Box<dyn ServerMethodFactory>> {
    let may = |method: &AuthMethod| is_tunnel(*method) || !held && user.may_use(*method);
    let mut offers: Vec<Box<dyn ServerMethodFactory>> = Vec::with_capacity(config.methods.len());
    for &method in config.methods.iter().filter(|m| may(m)) {
        let shared = match method {
            AuthMethod::EapTls => &config.tls,
            AuthMethod::Peap => &config.peap,
            AuthMethod::Ttls => &config.ttls,
            AuthMethod::EapMd5 => {
                if let Some(StoredPassword::Clear(password)) = &user.password {
                    offers.push(Box::new(md5::EapMd5Password::from(password.clone())));
                }
                continue;
            }
            AuthMethod::EapGtc => {
                if let Some(secret) = user_secret(user) {
                    offers.push(Box::new(gtc::GtcServerFactory::new(secret)));
                }
                continue;
            }
            AuthMethod::EapMsChapV2 => {
                if let Some(hash) = user_secret(user).as_ref().and_then(mschapv2::MsChapV2ServerFactory::new)
                {
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
            offers.push(Box::new(SharedEapServerOffer(shared.clone())));
        }
    }
    let anonymous = is_anonymous(name);
    if anonymous || !user.methods.is_empty() {
        offers.sort_by_key(|offer| match auth_method_for_eap_type(offer.kind()) {
            method if anonymous => !is_tunnel(method),
            method => !user.may_use(method),
        });
    }
    offers
}

pub(super) fn auth_method_for_eap_type(kind: EapType) -> AuthMethod {
    AuthMethod::ALL.into_iter().find(|m| m.eap_type() == Some(kind)).unwrap_or(AuthMethod::EapMd5)
}

/// Returns the longest EAP packet that reaches the peer unfragmented (RFC 3579 §2.4). On IEEE 802 media EAPOL adds
/// a header of four octets (RFC 3580 §3.10).
pub(super) fn eap_mtu(request: &AttributeList) -> Option<usize> {
    const ETHERNET: u32 = 15;
    const IEEE_802_11: u32 = 19;
    // RFC 3579, 2.4; RFC 4072, 2.6: no EAP packet exceeds Framed-MTU.
    let mtu = request.get_u32(kind::FRAMED_MTU)?;
    let header = match request.get_u32(kind::NAS_PORT_TYPE) {
        Some(ETHERNET | IEEE_802_11) => 4,
        _ => 0,
    };
    // RFC 2865, 5.12: values range from 64 to 65535.
    Some(mtu.clamp(64, 65_535) as usize - header)
}

/// The first packet of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::server) enum FirstEapPacket<'a> {
    /// None yet (EAP-Start, RFC 3579 §2.1).
    Start,
    /// An EAP-Response/Identity with this name and identifier (RFC 3748 §5.1).
    Identity(&'a [u8], u8),
    /// A response, with this identifier, to a request of the NAS.
    Response(u8),
    /// A request with this identifier: the peer wants to authenticate the server.
    Request(u8),
    /// Any other packet, with its identifier if it has one.
    Noise(Option<u8>),
}

pub(in crate::server) fn parse_first_eap_packet(packet: &[u8]) -> FirstEapPacket<'_> {
    match EapPacket::parse(packet) {
        _ if packet.is_empty() => FirstEapPacket::Start,
        Ok(p) if p.code() == EapCode::Response && p.kind() == Some(EapType::IDENTITY) => {
            FirstEapPacket::Identity(p.data(), p.identifier())
        }
        Ok(p) if p.code() == EapCode::Response => FirstEapPacket::Response(p.identifier()),
        Ok(p) if p.code() == EapCode::Request => FirstEapPacket::Request(p.identifier()),
        _ => FirstEapPacket::Noise(packet.get(1).copied()),
    }
}

/// Returns an EAP-Failure for the response of this identifier.
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

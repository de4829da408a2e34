//! The EAP back end's part in a login: the method that runs, and what is made of what it says.

use crate::server::config::Config;
use crate::server::reason::Reason;
use crate::server::shard::ShardKey;
use crate::server::{Event, Job, trace};
use crate::users::{Method, Password, User};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::Outputs;
use usher_crypto::Key;
use usher_crypto::fingerprint::sha256;
use usher_eap::method::{
    Context, Credential, Fault, Inner, Question, Remembered, ServerMethod, ServerOffer, UserSecret, gtc, md5,
    mschapv2,
};
use usher_eap::packet::{Code, Packet, Type};
use usher_eap::server::{Event as EapEvent, Server};
use usher_radius::attribute::{Attributes, kind};

/// An EAP method under way.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) server: Server,
    /// What it waits for before it goes on: mostly what the host is asked.
    pub(super) wait: Option<Wait>,
    /// Of the response that came last.
    pub(super) identifier: u8,
}

/// What a method waits for.
#[derive(Debug)]
pub(super) enum Wait {
    /// A user.
    User(Who),
    /// Whether a password is right.
    Password,
    /// Its turn to take this packet, which costs much.
    Turn(Vec<u8>),
}

/// Whom a method asks for.
#[derive(Clone, Debug)]
pub(super) enum Who {
    /// The user of this name, given inside a tunnel.
    Named(Vec<u8>),
    /// The user whom a TLS session has let in.
    Remembered(Remembered),
}

impl Who {
    pub(super) fn name(&self) -> &[u8] {
        match self {
            Self::Named(name) => name,
            Self::Remembered(remembered) => &remembered.name,
        }
    }
}

impl fmt::Display for Who {
    /// As a trace tells it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = match self {
            Self::Named(_) => "within the tunnel",
            Self::Remembered(_) => "by an earlier TLS session",
        };
        write!(f, "{from}: user {}", trace::name(self.name()))
    }
}

/// A digest of what proves this user, of use to nobody without the key: another password, or one kept otherwise, gives
/// another.
pub(super) fn credential(key: &ShardKey, user: &User) -> Credential {
    let (kind, secret): (u8, &[u8]) = match &user.password {
        None => (0, &[]),
        Some(Password::Clear(password)) => (1, password),
        Some(Password::NtHash(hash)) => (2, &**hash),
        Some(Password::Argon2(hash)) => (3, hash.as_bytes()),
    };
    sha256(&[&key.derive(b"credential")[..], &[kind], secret].concat())
}

/// A proof that convinced.
#[derive(Debug)]
pub(super) struct Approval {
    pub(super) method: Method,
    /// The EAP-Success.
    pub(super) eap: Option<[u8; 4]>,
    pub(super) msk: Option<Key<[u8; 64]>>,
    /// The identity within a tunnel.
    pub(super) inner: Option<Vec<u8>>,
    pub(super) inner_method: Option<Inner>,
    pub(super) resumed: bool,
    /// What the method adds to the reply.
    pub(super) reply: Attributes,
    /// The conversation that led to it, while the host is asked: a TLS session is kept once it has let somebody in, not
    /// before.
    pub(super) conversation: Option<Box<Conversation>>,
}

impl Approval {
    pub(super) fn new(method: Method) -> Self {
        Self {
            method,
            eap: None,
            msk: None,
            inner: None,
            inner_method: None,
            resumed: false,
            reply: Attributes::new(),
            conversation: None,
        }
    }
}

impl Conversation {
    /// The method that runs.
    pub(super) fn method(&self) -> Option<Method> {
        self.server.method().map(by_type)
    }
    pub(super) fn in_tunnel(&self) -> bool {
        self.method().is_some_and(is_tunnel)
    }

    /// What the automaton says after it was given something; its packet goes to `out`.
    pub(super) fn step(&mut self, outputs: &mut Outputs<Event, Job>, out: &mut Vec<u8>) -> Progress {
        let eap = &mut self.server;
        while let Some(done) = eap.poll_work() {
            outputs.work(done);
        }
        let sends = eap.poll_transmit(out);
        match eap.poll_event() {
            Some(EapEvent::Success { method, keys }) => {
                let mut approval = Approval::new(by_type(method));
                approval.eap = out.as_slice().try_into().ok();
                approval.msk = keys.map(|k| k.msk);
                approval.inner = eap.identity().map(<[u8]>::to_vec);
                approval.inner_method = eap.inner();
                approval.resumed = eap.resumed();
                Progress::Success(Box::new(approval))
            }
            Some(EapEvent::Failure { .. }) => Progress::Failure,
            Some(EapEvent::Ask(question)) => Progress::Ask(question),
            None if sends => Progress::Request,
            None => Progress::Ignored,
        }
    }

    /// Why it failed, and what is known of that besides.
    pub(super) fn why_failed(&self, user: Option<&User>, config: &Config) -> (Reason, Option<String>) {
        let server = &self.server;
        match server.fault() {
            // The user's rows say what may be inside.
            Some(Fault::NoInner) if user.is_some_and(|user| user.inside().is_some()) => {
                return (Reason::MethodForbidden, None);
            }
            Some(fault) => return (fault.into(), server.detail()),
            None => {}
        }
        /// Most methods that are named.
        const SOME: usize = 8;
        let wished: Vec<Type> = server.wishes().iter().take(SOME).map(|kind| Type(*kind)).collect();
        let known = Method::ALL.into_iter().filter(|method| {
            config.methods.contains(method) && method.eap_type().is_some_and(|kind| wished.contains(&kind))
        });
        // What the server offers others was not offered to this user.
        let reasons = known.filter_map(|m| user.filter(|user| !user.may_use(m)).map(|user| why_not(user, m)));
        let names: Vec<String> = wished.iter().filter(|kind| kind.0 != 0).map(ToString::to_string).collect();
        let detail = match (server.wishes().is_empty(), names.is_empty()) {
            (true, _) => None,
            (false, true) => Some("the device takes nothing of what it is offered".into()),
            (false, false) => Some(format!("the device wants {}", names.join(", "))),
        };
        (most_telling(reasons), detail)
    }
}

/// Why a user cannot log in by a method that the server offers.
pub(super) fn why_not(user: &User, method: Method) -> Reason {
    let listed = user.methods.is_empty() || user.methods.contains(&method);
    if !listed || method == Method::Mab {
        Reason::MethodForbidden
    } else if user.password.is_none() {
        Reason::NoPassword
    } else {
        Reason::PasswordForm
    }
}

/// Of the reasons why methods cannot admit a user, one that another method would not have.
pub(super) fn most_telling(reasons: impl Iterator<Item = Reason>) -> Reason {
    reasons.min_by_key(|reason| *reason == Reason::MethodForbidden).unwrap_or(Reason::NoMethod)
}

/// Where a conversation stands after a packet.
#[derive(Debug)]
pub(super) enum Progress {
    /// It goes on with the request that was written.
    Request,
    /// The peer is who it says; a Success was written.
    Success(Box<Approval>),
    /// It is not, or cannot show it.
    Failure,
    /// The host is asked first.
    Ask(Question),
    /// The packet was none, or answers nothing that was asked.
    Ignored,
}

/// An offer that all sessions share.
#[derive(Debug)]
struct Shared(Arc<dyn ServerOffer>);

impl ServerOffer for Shared {
    fn kind(&self) -> Type {
        self.0.kind()
    }
    fn begin(&self, context: Context<'_>) -> Box<dyn ServerMethod> {
        self.0.begin(context)
    }
}

/// What a method may know of a user's password.
pub(super) fn secret(user: &User) -> Option<UserSecret> {
    Some(match user.password.as_ref()? {
        Password::Clear(password) => UserSecret::Clear(Key::clone(password)),
        Password::NtHash(hash) => UserSecret::NtHash(hash.clone()),
        Password::Argon2(_) => UserSecret::Hashed,
    })
}

/// Whether another name may be given inside.
pub(super) const fn is_tunnel(method: Method) -> bool {
    matches!(method, Method::Peap | Method::Ttls)
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
pub(super) fn offers(config: &Config, user: &User, name: &[u8], held: bool) -> Vec<Box<dyn ServerOffer>> {
    let may = |method: &Method| is_tunnel(*method) || !held && user.may_use(*method);
    let mut offers: Vec<Box<dyn ServerOffer>> = Vec::with_capacity(config.methods.len());
    for &method in config.methods.iter().filter(|m| may(m)) {
        let shared = match method {
            Method::EapTls => &config.tls,
            Method::Peap => &config.peap,
            Method::Ttls => &config.ttls,
            Method::EapMd5 => {
                if let Some(Password::Clear(password)) = &user.password {
                    offers.push(Box::new(md5::Password::from(password.clone())));
                }
                continue;
            }
            Method::EapGtc => {
                if let Some(secret) = secret(user) {
                    offers.push(Box::new(gtc::Prompt::new(secret)));
                }
                continue;
            }
            Method::EapMsChapV2 => {
                if let Some(hash) = secret(user).as_ref().and_then(mschapv2::Hash::new) {
                    offers.push(Box::new(hash));
                }
                continue;
            }
            Method::Pap | Method::Chap | Method::MsChap | Method::MsChapV2 | Method::Mab => continue,
        };
        if let Some(shared) = shared {
            offers.push(Box::new(Shared(shared.clone())));
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

pub(super) fn by_type(kind: Type) -> Method {
    Method::ALL.into_iter().find(|m| m.eap_type() == Some(kind)).unwrap_or(Method::EapMd5)
}

/// The longest EAP packet that need not be cut on its way to the peer (RFC 3579 §2.4): on the media of IEEE 802 EAPOL's
/// header of four octets goes before it (RFC 3580 §3.10).
pub(super) fn mtu(request: &Attributes) -> Option<usize> {
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
pub(in crate::server) enum Opening<'a> {
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

pub(in crate::server) fn opening(packet: &[u8]) -> Opening<'_> {
    match Packet::parse(packet) {
        _ if packet.is_empty() => Opening::Start,
        Ok(p) if p.code() == Code::Response && p.kind() == Some(Type::IDENTITY) => {
            Opening::Identity(p.data(), p.identifier())
        }
        Ok(p) if p.code() == Code::Response => Opening::Response(p.identifier()),
        Ok(p) if p.code() == Code::Request => Opening::Request(p.identifier()),
        _ => Opening::Noise(packet.get(1).copied()),
    }
}

/// An EAP-Failure in answer to the response of this identifier.
pub(in crate::server) const fn failure(identifier: u8) -> [u8; 4] {
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
            let mut request = Attributes::new();
            framed.map(|mtu| request.push_u32(kind::FRAMED_MTU, mtu));
            port_type.map(|kind| request.push_u32(kind::NAS_PORT_TYPE, kind));
            assert_eq!(mtu(&request), fits, "{framed:?} {port_type:?}");
        }
    }
}

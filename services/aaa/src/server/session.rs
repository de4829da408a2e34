//! One unfinished session, and the EAP back end's part in it.

use super::answer::Asker;
use super::cache::Generation;
use super::config::Config;
use super::half_open::Source;
use super::proof::{Denial, Proof};
use super::reason::Reason;
use super::shard::ShardKey;
use super::trace::{self, Slots};
use crate::users::{Method, Password, User};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::{Instant, Outputs};
use usher_crypto::Key;
use usher_crypto::fingerprint::sha256;
use usher_eap::method::{
    Context, Credential, Inner, Question, Remembered, ServerMethod, ServerOffer, UserSecret, gtc, md5,
    mschapv2,
};
use usher_eap::packet::{Code, Packet, Type};
use usher_eap::server::{Event, Server};
use usher_radius::attribute::{Attributes, kind};

/// Whose session it is: nobody else may go on with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// The RADIUS client of this index.
    Radius(u32),
    /// The Diameter node of this identity, as far as that is authenticated.
    Diameter(Arc<str>),
}

impl Owner {
    /// The RADIUS client.
    pub(super) const fn client(&self) -> Option<u32> {
        match self {
            Self::Radius(client) => Some(*client),
            Self::Diameter(_) => None,
        }
    }
}

/// A request, whichever protocol carried it.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) asker: Asker,
    /// Where it came from.
    pub(super) source: Source,
    pub(super) owner: Owner,
    /// When it came.
    pub(super) arrived: Instant,
    pub(super) request: Attributes,
}

impl Ask {
    /// The user's name as the request has it.
    pub(super) fn name(&self) -> &[u8] {
        self.request.get(kind::USER_NAME).unwrap_or_default()
    }
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) asker: Asker,
    /// Where it came from.
    pub(super) source: Source,
    /// When it came.
    pub(super) arrived: Instant,
    /// What it said.
    pub(super) request: Attributes,
}

impl From<Ask> for Pending {
    fn from(ask: Ask) -> Self {
        Self { asker: ask.asker, source: ask.source, arrived: ask.arrived, request: ask.request }
    }
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The identity was asked for under this identifier.
    Identity { identifier: u8 },
    /// The user is being looked up.
    Looking(Proof),
    /// The host compares a password, in this method.
    Verifying(Method),
    /// A method is under way.
    Eap(Box<Conversation>),
    /// The proof convinces; the host is asked whether the certificate is still good.
    Certificate(Box<Approval>),
    /// The host is asked whether limits allow it.
    Admission(Box<Approval>),
}

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

#[derive(Debug)]
pub(super) struct Session {
    pub(super) owner: Owner,
    pub(super) begun: Instant,
    pub(super) pending: Option<Pending>,
    pub(super) name: Vec<u8>,
    /// The user, or who stands in for one who may not log in.
    pub(super) user: Option<Arc<User>>,
    /// Why the user may not log in, whatever is proven.
    pub(super) refusal: Option<Reason>,
    /// The row of the user's that cannot be understood or does not hold, where that is why.
    pub(super) row: Option<Box<str>>,
    /// What a reject says besides.
    pub(super) denial: Option<Denial>,
    /// Its failure was counted.
    pub(super) failed: bool,
    /// The host was told that its user is turned away; the peer is being told.
    pub(super) ended: bool,
    /// When its last look-up began.
    pub(super) asked: Generation,
    /// Calling-Station-Id, once a request that had one was answered and is gone.
    pub(super) station: Box<[u8]>,
    /// Whom its decisions are told to, line by line.
    pub(super) traced: Slots,
    /// Who looks for a user, and whose this login may turn out to be once it is known who is inside its tunnel.
    pub(super) maybe: Slots,
    pub(super) stage: Stage,
}

impl Session {
    /// The name that a proof is for: inside a tunnel the one that is given there, empty until then.
    pub(super) fn claimed(&self) -> &[u8] {
        match &self.stage {
            Stage::Eap(c) if c.in_tunnel() => c.server.identity().unwrap_or_default(),
            _ => &self.name,
        }
    }

    /// The conversation, where a method is under way.
    pub(super) fn take_conversation(&mut self) -> Option<Box<Conversation>> {
        match core::mem::replace(&mut self.stage, Stage::Identity { identifier: 0 }) {
            Stage::Eap(conversation) => Some(conversation),
            stage => {
                self.stage = stage;
                None
            }
        }
    }

    /// Why a login failed, of what its method says, and what is known of that besides.
    pub(super) fn because(&self, reason: Reason, detail: Option<String>) -> (Reason, Option<String>) {
        let why = self.why(reason);
        let detail = detail.filter(|_| why == reason);
        (why, detail.or_else(|| self.row_of(why).map(ToString::to_string)))
    }

    /// The row of the user's that is a reason, and what of it.
    pub(super) fn row_of(&self, reason: Reason) -> Option<&str> {
        self.row.as_deref().filter(|_| matches!(reason, Reason::BadRows | Reason::Checks))
    }

    /// Why a login failed, of what its method says: where the user could not log in at all, that.
    pub(super) fn why(&self, reason: Reason) -> Reason {
        // Outside a tunnel the name may be anybody's: that nobody has it is no reason.
        let outside = matches!(&self.stage, Stage::Eap(c) if c.in_tunnel() && c.server.identity().is_none());
        match self.refusal {
            Some(refusal) if reason.of_proof() && !outside => refusal,
            _ => reason,
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
}

/// What a session takes with what finds it and its request in the RADIUS server, octets, without what is its own kind's.
const SESSION: usize = 1 << 10;

impl Session {
    /// About how many octets of memory it holds.
    pub(super) fn memory(&self) -> usize {
        let request = self.pending.as_ref().map_or(0, |pending| pending.request.len());
        let stage = match &self.stage {
            Stage::Eap(conversation) => conversation.server.memory(),
            Stage::Identity { .. }
            | Stage::Looking(_)
            | Stage::Verifying(_)
            | Stage::Certificate(_)
            | Stage::Admission(_) => 0,
        };
        SESSION + self.name.capacity() + request + stage
    }
}

/// Where a conversation stands after a packet.
#[derive(Debug)]
pub(super) enum Step {
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
        Password::Clear(password) => UserSecret::Clear(password.clone()),
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
fn is_anonymous(name: &[u8]) -> bool {
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
                    offers.push(Box::new(md5::Password::new(password)));
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

/// What a server's automaton says after it was given something; its packet goes to `out`.
pub(super) fn step(
    eap: &mut Server,
    outputs: &mut Outputs<super::Event, super::Job>,
    out: &mut Vec<u8>,
) -> Step {
    while let Some(done) = eap.poll_work() {
        outputs.work(done);
    }
    let sends = eap.poll_transmit(out);
    match eap.poll_event() {
        Some(Event::Success { method, keys }) => {
            let mut approval = Approval::new(by_type(method));
            approval.eap = out.as_slice().try_into().ok();
            approval.msk = keys.map(|k| k.msk);
            approval.inner = eap.identity().map(<[u8]>::to_vec);
            approval.inner_method = eap.inner();
            approval.resumed = eap.resumed();
            Step::Success(Box::new(approval))
        }
        Some(Event::Failure { .. }) => Step::Failure,
        Some(Event::Ask(question)) => Step::Ask(question),
        None if sends => Step::Request,
        None => Step::Ignored,
    }
}

pub(super) fn by_type(kind: Type) -> Method {
    Method::ALL.into_iter().find(|m| m.eap_type() == Some(kind)).unwrap_or(Method::EapMd5)
}

/// The name that an EAP-Response/Identity gives (RFC 3748 §5.1), and its identifier.
pub(super) fn identity(packet: &[u8]) -> Option<(&[u8], u8)> {
    let p = Packet::parse(packet).ok()?;
    (p.code() == Code::Response && p.kind() == Some(Type::IDENTITY)).then(|| (p.data(), p.identifier()))
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

/// How a conversation begins that does not begin with an identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opening {
    /// By the answer, of this identifier, to something that the NAS asked.
    Response(u8),
    /// By a request of this identifier: somebody wants us to prove ourselves.
    Request(u8),
    /// By nothing that begins one; with its identifier, where it has one.
    Noise(Option<u8>),
}

pub(super) fn opening(packet: &[u8]) -> Opening {
    match Packet::parse(packet) {
        Ok(p) if p.code() == Code::Response => Opening::Response(p.identifier()),
        Ok(p) if p.code() == Code::Request => Opening::Request(p.identifier()),
        _ => Opening::Noise(packet.get(1).copied()),
    }
}

/// An EAP-Failure in answer to the response of this identifier.
pub(super) const fn failure(identifier: u8) -> [u8; 4] {
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

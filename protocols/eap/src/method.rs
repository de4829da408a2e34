//! EAP methods: what runs inside the automata of peer and server, behind two small traits.

#[cfg(feature = "tls")]
pub(crate) mod connection;
pub mod gtc;
pub mod md5;
pub mod mschapv2;
#[cfg(feature = "tls")]
pub mod peap;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(feature = "tls")]
pub mod ttls;
#[cfg(feature = "tls")]
pub(crate) mod tunnel;

use crate::EapKeys;
use crate::packet::EapType;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use usher_core::{SecureRng, WallTime, WorkRecord};
use usher_crypto::SecretValue;
use usher_crypto::digest::constant_time_eq;
use usher_crypto::fault::TlsFault;
use usher_crypto::legacy::nt_hash;

/// What a peer's method makes of a request: `methodState` and `decision` of RFC 4137 §4.2 in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerVerdict {
    /// The request is not for this state: it is discarded, as if it never came.
    Ignore,
    /// The method goes on; a Success now would be premature (CONT, FAIL).
    Continue,
    /// The method goes on, or the server refuses; a Success now would be premature (MAY_CONT, FAIL).
    MayFail,
    /// The method may end here, as the server decides (MAY_CONT, COND_SUCC).
    MayEnd,
    /// The method is done and the peer content: Success is expected (DONE, UNCOND_SUCC).
    Done,
    /// The method failed; what follows can only be Failure (DONE, FAIL).
    Failed,
}

/// One run of a method in a peer.
pub trait PeerMethod: fmt::Debug + Send {
    /// Takes the data of a request of this method's type, and appends the data of the response unless it
    /// answers [`PeerVerdict::Ignore`].
    fn handle_request(&mut self, identifier: u8, data: &[u8], out: &mut Vec<u8>) -> PeerVerdict;
    /// The keys, once there are some.
    fn keys(&self) -> Option<EapKeys> {
        None
    }
    /// Why TLS came to its end before its time, where it did, and what its engine says of that, for people.
    fn tls_fault(&self) -> Option<(TlsFault, String)> {
        None
    }
    /// The next piece of work done since the last poll.
    fn poll_work(&mut self) -> Option<WorkRecord> {
        None
    }
}

/// What a host knows of a user's password.
#[derive(Clone, PartialEq, Eq)]
pub enum UserSecret {
    /// The password itself.
    Clear(SecretValue),
    /// MD4 of the password in UTF-16, little endian (RFC 2759 §8.3): enough for MS-CHAP, and to compare a
    /// password with.
    NtHash(SecretValue<[u8; 16]>),
    /// A hash that only the host can compare a password with: a method that has the password asks
    /// [`UserQuery::Password`], any other fails.
    Hashed,
}
impl UserSecret {
    /// Whether a password that came in clear is the user's; `None` where only the host can compare.
    #[must_use]
    pub fn matches_password(&self, password: &[u8]) -> Option<bool> {
        match self {
            Self::Clear(own) => Some(constant_time_eq(own, password)),
            Self::NtHash(own) => Some(constant_time_eq(&**own, &nt_hash(password))),
            Self::Hashed => None,
        }
    }
    /// The NT hash of the password, as MS-CHAP needs it; `None` where only the host can compare.
    #[must_use]
    pub fn nt_hash(&self) -> Option<SecretValue<[u8; 16]>> {
        match self {
            Self::Clear(own) => Some(nt_hash(own).into()),
            Self::NtHash(own) => Some(own.clone()),
            Self::Hashed => None,
        }
    }
}

impl fmt::Debug for UserSecret {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clear(_) => "Clear(..)",
            Self::NtHash(_) => "NtHash(..)",
            Self::Hashed => "Hashed",
        })
    }
}

/// What a server's method has to ask its host before it can go on.
#[derive(Clone, PartialEq, Eq)]
pub enum UserQuery {
    /// Who is this? The name is the one given inside a tunnel, as it came. Answered by [`UserAnswer::User`] or
    /// [`UserAnswer::Restricted`].
    User {
        /// Octets as the peer sent them; nothing is known of them yet.
        name: Vec<u8>,
    },
    /// Is this the password of the user asked for last? Answered by [`UserAnswer::Password`].
    Password {
        /// In clear.
        password: SecretValue,
    },
    /// May a TLS session, which the peer has taken up, admit again whom it admitted before? Answered by
    /// [`UserAnswer::Resume`].
    Resume(SessionUser),
}

/// A digest of what a user proves to be the user by; the host makes it, and compares it.
pub type CredentialDigest = [u8; 32];

/// Whom a TLS session has admitted ([`ServerMethod::allow_resumption`]).
#[derive(Clone, PartialEq, Eq)]
pub struct SessionUser {
    /// As the host called the user then.
    pub name: Vec<u8>,
    /// As it was then.
    pub credential: CredentialDigest,
    /// The method inside a tunnel.
    pub inner: Option<InnerMethod>,
}
impl fmt::Debug for SessionUser {
    /// Without the digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remembered({})", self.name.escape_ascii())
    }
}

impl fmt::Debug for UserQuery {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User { name } => write!(f, "User({})", name.escape_ascii()),
            Self::Password { .. } => f.write_str("Password(..)"),
            Self::Resume(remembered) => write!(f, "Resume({})", remembered.name.escape_ascii()),
        }
    }
}

/// What the host answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UserAnswer {
    /// To [`UserQuery::User`]: the user's secret; `None` for nobody, or for one who may not log in.
    User(Option<UserSecret>),
    /// To [`UserQuery::User`]: the secret of a user whom these methods alone may admit.
    Restricted(UserSecret, Vec<InnerMethod>),
    /// To [`UserQuery::User`]: nobody, or one who may not log in. The proof is asked for and weighed as if the user had
    /// this secret, which nobody knows, and these methods alone where there are some, so that the peer cannot tell; the
    /// run fails whatever it proves. A resumed session, whose peer was let in under that name before, fails at once.
    Refused(UserSecret, Option<Vec<InnerMethod>>),
    /// To [`UserQuery::Password`]: whether it is right.
    Password(bool),
    /// To [`UserQuery::Resume`]: whether it may. If not, the session is ended; with [`Self::Unavailable`] it is not.
    Resume(bool),
    /// To any: the host cannot say now. The run fails.
    Unavailable,
}

/// The method inside a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InnerMethod {
    /// A password in clear (RFC 5281 §11.2.5).
    Pap,
    /// CHAP (RFC 5281 §11.2.2).
    Chap,
    /// MS-CHAP (RFC 5281 §11.2.3).
    MsChap,
    /// MS-CHAP-V2 (RFC 5281 §11.2.4).
    MsChapV2,
    /// An EAP method.
    Eap(EapType),
}
impl fmt::Display for InnerMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pap => f.write_str("PAP"),
            Self::Chap => f.write_str("CHAP"),
            Self::MsChap => f.write_str("MS-CHAP"),
            Self::MsChapV2 => f.write_str("MS-CHAP-V2"),
            Self::Eap(kind) => fmt::Display::fmt(kind, f),
        }
    }
}

/// Why a server's method fails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MethodFault {
    /// What the peer proves does not convince: the password is wrong.
    Proof,
    /// What the host knows of the password does not do for the peer's proof: a hash where it takes the password itself.
    Secret,
    /// No method inside the tunnel that server, user and peer have in common.
    NoInner,
    /// The peer breaks the rules of the method.
    Rules,
    /// The tunnel's ends are not bound to the same keys (PEAP's cryptobinding, MS-PEAP 3.1.5.5).
    Binding,
    /// The host does not let the user in, or cannot say.
    Host,
    /// TLS came to its end.
    Tls(TlsFault),
}

/// What a server's method makes of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerVerdict {
    /// The response is not for this state: it is discarded, as if it never came.
    Ignore,
    /// The method goes on with another request.
    Continue,
    /// The peer is who it says.
    Success,
    /// It is not.
    Failure,
    /// The host has to answer first: it takes [`ServerMethod::take_query`] and comes back with
    /// [`ServerMethod::apply_answer`].
    QueryPending,
}

/// One run of a method in a server.
pub trait ServerMethod: fmt::Debug + Send {
    /// Appends the data of the next request, which will have this identifier.
    fn build_request(&mut self, identifier: u8, out: &mut Vec<u8>);
    /// Takes the data of a response of this method's type to the last request.
    fn handle_response(&mut self, identifier: u8, data: &[u8]) -> ServerVerdict;
    /// What is asked, once for each [`ServerVerdict::QueryPending`].
    fn take_query(&mut self) -> Option<UserQuery> {
        None
    }
    /// Takes the answer to the question; the verdict is on the response that led to it, and may be to ask
    /// again.
    fn apply_answer(&mut self, _answer: UserAnswer) -> ServerVerdict {
        ServerVerdict::Failure
    }
    /// Whether the peer is being told that it did not convince, so that the run can only fail. The peer knows then, and may
    /// never come back to be turned away.
    fn is_refusing(&self) -> bool {
        false
    }
    /// Why the run fails; of use only once it has failed, or [`refuses`](Self::is_refusing).
    fn fault(&self) -> MethodFault {
        MethodFault::Proof
    }
    /// What is known of that besides, for people.
    fn fault_detail(&self) -> Option<String> {
        None
    }
    /// The keys, once there are some.
    fn keys(&self) -> Option<EapKeys> {
        None
    }
    /// Whom the peer says it is inside a tunnel, once it has said so; octets as they came.
    fn identity(&self) -> Option<&[u8]> {
        None
    }
    /// The method inside a tunnel, once it is known.
    fn inner_method(&self) -> Option<InnerMethod> {
        None
    }
    /// Whether the run took up an earlier TLS session.
    fn is_resumed(&self) -> bool {
        false
    }
    /// Has the run, which has succeeded, admit this user again without a proof, by its TLS session; the host is asked
    /// then ([`UserQuery::Resume`]). A session that nobody is remembered with is never taken up.
    fn allow_resumption(&mut self, _name: &[u8], _credential: &CredentialDigest) {}
    /// The certificates that the peer showed, in DER, the leaf first; none before the handshake is complete.
    fn peer_certificates(&self) -> &[Vec<u8>] {
        &[]
    }
    /// Whether taking this data of a response would cost public-key operations: a host with many peers may let it
    /// wait behind what costs less.
    fn is_costly(&self, _data: &[u8]) -> bool {
        false
    }
    /// About how many octets of memory the run holds now.
    fn memory_octets(&self) -> usize {
        0
    }
    /// The next piece of work done since the last poll.
    fn poll_work(&mut self) -> Option<WorkRecord> {
        None
    }
}

/// What a method may need that only its host has.
#[derive(Debug)]
pub struct MethodContext<'a> {
    /// The session's chance.
    pub rng: &'a mut SecureRng,
    /// The time of day, for certificates.
    pub wall: WallTime,
    /// The longest EAP packet that the link takes, octets, where it says so (RADIUS's Framed-MTU, RFC 3579
    /// §2.4). A method that is told to cut shorter does.
    pub mtu: Option<usize>,
    /// With TLS 1.2, whether a peer is taken that lacks the Extended Master Secret (RFC 7627).
    pub without_extended_master_secret: bool,
}

/// A method that a peer can do, and how to begin one run of it.
pub trait PeerOffer: fmt::Debug + Send + Sync {
    /// Its type.
    fn kind(&self) -> EapType;
    /// Begins a run.
    fn start_peer_method(&self, context: MethodContext<'_>) -> Box<dyn PeerMethod>;
}

/// A method that a server can do, and how to begin one run of it.
pub trait ServerOffer: fmt::Debug + Send + Sync {
    /// Its type.
    fn kind(&self) -> EapType;
    /// Begins a run.
    fn start_server_method(&self, context: MethodContext<'_>) -> Box<dyn ServerMethod>;
    /// Ends the TLS sessions by which those users, named as in [`ServerMethod::allow_resumption`], could be admitted again.
    fn end_sessions(&self, _whose: &dyn Fn(&[u8]) -> bool) {}
}

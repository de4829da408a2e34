//! EAP methods: the traits by which the automata of peer and server run them, and their implementations.

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

/// The result of a request in a peer's method: `methodState` and `decision` of RFC 4137 §4.2 in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerMethodResult {
    /// The request does not fit the state and is discarded.
    Ignore,
    /// The method continues, and a Success now would be premature (CONT, FAIL).
    Continue,
    /// The method continues or the server rejects. A Success now would be premature (MAY_CONT, FAIL).
    MayFail,
    /// The server decides whether the method ends here (MAY_CONT, COND_SUCC).
    MayEnd,
    /// The method is complete, and the peer expects Success (DONE, UNCOND_SUCC).
    Done,
    /// The method failed, and only Failure can follow (DONE, FAIL).
    Failed,
}

/// A run of a method in a peer.
pub trait PeerMethod: fmt::Debug + Send {
    /// Takes the type data of a request and appends the type data of the response. On [`PeerMethodResult::Ignore`] there is
    /// no response.
    fn handle_request(&mut self, identifier: u8, data: &[u8], out: &mut Vec<u8>) -> PeerMethodResult;
    /// The exported keys, once derived.
    fn keys(&self) -> Option<EapKeys> {
        None
    }
    /// The fault by which TLS ended early, if it did, and the TLS engine's description.
    fn tls_fault(&self) -> Option<(TlsFault, String)> {
        None
    }
    /// The next piece of work done since the last poll.
    fn poll_work(&mut self) -> Option<WorkRecord> {
        None
    }
}

/// The form in which the host has a user's password.
#[derive(Clone, PartialEq, Eq)]
pub enum UserSecret {
    /// The password itself.
    Clear(SecretValue),
    /// MD4 of the password in UTF-16, little endian (RFC 2759 §8.3). It suffices for MS-CHAP and for comparing a clear
    /// password.
    NtHash(SecretValue<[u8; 16]>),
    /// A hash against which only the host can compare a password. A method that receives the password sends
    /// [`UserQuery::Password`]. Any other method fails.
    Hashed,
}
impl UserSecret {
    /// Whether a clear password is the user's. `None` if only the host can compare.
    #[must_use]
    pub fn matches_password(&self, password: &[u8]) -> Option<bool> {
        match self {
            Self::Clear(own) => Some(constant_time_eq(own, password)),
            Self::NtHash(own) => Some(constant_time_eq(&**own, &nt_hash(password))),
            Self::Hashed => None,
        }
    }
    /// The NT hash of the password, for MS-CHAP. `None` if only the host can compare.
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
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clear(_) => "Clear(..)",
            Self::NtHash(_) => "NtHash(..)",
            Self::Hashed => "Hashed",
        })
    }
}

/// A query of a server's method to its host.
#[derive(Clone, PartialEq, Eq)]
pub enum UserQuery {
    /// Looks up the user. The name is the one inside a tunnel. The host answers with [`UserQueryAnswer::User`],
    /// [`UserQueryAnswer::Restricted`] or [`UserQueryAnswer::Refused`].
    User {
        /// The unverified octets that the peer sent.
        name: Vec<u8>,
    },
    /// Compares a password with that of the user last looked up. The host answers with [`UserQueryAnswer::Password`].
    Password {
        /// The password in clear.
        password: SecretValue,
    },
    /// Asks whether a resumed TLS session may admit its user again. The host answers with [`UserQueryAnswer::Resume`].
    Resume(TlsSessionUser),
}

/// A digest of a user's credential. The host computes and compares it.
pub type CredentialDigest = [u8; 32];

/// The user that a TLS session has admitted ([`ServerMethod::allow_resumption`]).
#[derive(Clone, PartialEq, Eq)]
pub struct TlsSessionUser {
    /// The host's name for the user at that login.
    pub name: Vec<u8>,
    /// The digest of the credential at that login.
    pub credential: CredentialDigest,
    /// The inner method, if there was a tunnel.
    pub inner: Option<InnerMethod>,
}
impl fmt::Debug for TlsSessionUser {
    /// Omits the digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remembered({})", self.name.escape_ascii())
    }
}

impl fmt::Debug for UserQuery {
    /// Omits the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User { name } => write!(f, "User({})", name.escape_ascii()),
            Self::Password { .. } => f.write_str("Password(..)"),
            Self::Resume(remembered) => write!(f, "Resume({})", remembered.name.escape_ascii()),
        }
    }
}

/// The host's answer to a [`UserQuery`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UserQueryAnswer {
    /// To [`UserQuery::User`]: the user's secret. `None` if the user is unknown or may not log in.
    User(Option<UserSecret>),
    /// To [`UserQuery::User`]: the secret, and the only methods that may admit the user.
    Restricted(UserSecret, Vec<InnerMethod>),
    /// To [`UserQuery::User`]: the user is unknown or may not log in, and the peer must not see that early. The method
    /// verifies a proof as if the user had this random secret, by these methods if given. The run then fails in any
    /// case. A resumed session under that name fails at once.
    Refused(UserSecret, Option<Vec<InnerMethod>>),
    /// To [`UserQuery::Password`]: true if the password is right.
    Password(bool),
    /// To [`UserQuery::Resume`]: true if the session may be resumed. False also ends the TLS session.
    Resume(bool),
    /// To any query: the host cannot answer now. The run fails, and a TLS session remains valid.
    Unavailable,
}

/// An authentication method inside a tunnel.
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

/// The reason for which a server's method fails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServerMethodFailure {
    /// The peer's proof is wrong, such as a wrong password.
    Proof,
    /// The stored form of the secret does not suit the peer's proof: a hash for a method that needs the clear password.
    Secret,
    /// Server, user and peer have no inner method in common.
    NoInner,
    /// The peer violates the method's protocol.
    Rules,
    /// The tunnel's ends are not bound to the same keys (PEAP's cryptobinding, MS-PEAP 3.1.5.5).
    Binding,
    /// The host rejects the user or cannot answer.
    Host,
    /// TLS failed.
    Tls(TlsFault),
}

/// The result of a response in a server's method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerMethodResult {
    /// The response does not fit the state and is discarded.
    Ignore,
    /// The method continues with another request.
    Continue,
    /// The peer is authenticated.
    Success,
    /// The authentication failed.
    Failure,
    /// The method waits for its host, which takes [`ServerMethod::take_query`] and calls
    /// [`ServerMethod::apply_answer`].
    QueryPending,
}

/// A run of a method in a server.
pub trait ServerMethod: fmt::Debug + Send {
    /// Appends the type data of the next request, which will have this identifier.
    fn build_request(&mut self, identifier: u8, out: &mut Vec<u8>);
    /// Takes the type data of a response to the last request.
    fn handle_response(&mut self, identifier: u8, data: &[u8]) -> ServerMethodResult;
    /// Returns the pending query, once for each [`ServerMethodResult::QueryPending`].
    fn take_query(&mut self) -> Option<UserQuery> {
        None
    }
    /// Takes the answer to the query. Returns the verdict on the response that caused the query, possibly another
    /// query.
    fn apply_answer(&mut self, _answer: UserQueryAnswer) -> ServerMethodResult {
        ServerMethodResult::Failure
    }
    /// True if the method is sending a reject to the peer, so that the run can only fail. The peer may not respond to
    /// it.
    fn is_refusing(&self) -> bool {
        false
    }
    /// The reason for the failure, valid once the run has failed or [`is_refusing`](Self::is_refusing) is true.
    fn fault(&self) -> ServerMethodFailure {
        ServerMethodFailure::Proof
    }
    /// A description of the failure, for logs.
    fn fault_detail(&self) -> Option<String> {
        None
    }
    /// The exported keys, once derived.
    fn keys(&self) -> Option<EapKeys> {
        None
    }
    /// The identity inside a tunnel as unverified octets, once received.
    fn identity(&self) -> Option<&[u8]> {
        None
    }
    /// The inner method of a tunnel, once known.
    fn inner_method(&self) -> Option<InnerMethod> {
        None
    }
    /// True if the run resumed an earlier TLS session.
    fn is_resumed(&self) -> bool {
        false
    }
    /// Lets the TLS session of a successful run admit this user again without a proof. At resumption the host gets
    /// [`UserQuery::Resume`]. A session without this call is never resumed.
    fn allow_resumption(&mut self, _name: &[u8], _credential: &CredentialDigest) {}
    /// The peer's certificates in DER, leaf first. Empty before the handshake is complete.
    fn peer_certificates(&self) -> &[Vec<u8>] {
        &[]
    }
    /// True if this response data would cost public-key operations. A host with many peers may queue it behind cheaper
    /// work.
    fn is_costly(&self, _data: &[u8]) -> bool {
        false
    }
    /// The approximate memory of the run, octets.
    fn memory_octets(&self) -> usize {
        0
    }
    /// The next piece of work done since the last poll.
    fn poll_work(&mut self) -> Option<WorkRecord> {
        None
    }
}

/// The resources that a method needs from its host.
#[derive(Debug)]
pub struct EapMethodContext<'a> {
    /// The session's random numbers.
    pub rng: &'a mut SecureRng,
    /// The time of day, for certificates.
    pub wall: WallTime,
    /// The longest EAP packet of the link, octets, if known (Framed-MTU, RFC 3579 §2.4). A method's own fragment limit
    /// applies if it is shorter.
    pub mtu: Option<usize>,
    /// True if TLS 1.2 accepts a peer without the Extended Master Secret (RFC 7627).
    pub without_extended_master_secret: bool,
}

/// A method that a peer supports. It starts the method's runs.
pub trait PeerMethodFactory: fmt::Debug + Send + Sync {
    /// The method's type.
    fn kind(&self) -> EapType;
    /// Starts a run.
    fn start_peer_method(&self, context: EapMethodContext<'_>) -> Box<dyn PeerMethod>;
}

/// A method that a server supports. It starts the method's runs.
pub trait ServerMethodFactory: fmt::Debug + Send + Sync {
    /// The method's type.
    fn kind(&self) -> EapType;
    /// Starts a run.
    fn start_server_method(&self, context: EapMethodContext<'_>) -> Box<dyn ServerMethod>;
    /// Ends the TLS sessions of the users for whom the predicate is true, by their names in
    /// [`ServerMethod::allow_resumption`].
    fn end_sessions(&self, _whose: &dyn Fn(&[u8]) -> bool) {}
}

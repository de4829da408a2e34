//! Proofs of users, the replies to them, and logins in progress.

use super::config::SubscriberPlace;
use super::grant::SubscriberGrant;
use crate::local_users::EapConversation;
use crate::{LoginRoundState, UserCredentials};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::{JobRequester, JobWaiter};
use usher_crypto::SecretValue;
use usher_eap::packet::{EapPacket, EapType};

/// The verifier of proofs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthenticationBackend {
    /// The AAA server ([`SubscriberConfig::aaa`](super::SubscriberConfig::aaa)).
    Aaa,
    /// The access server itself ([`SubscriberConfig::users`](super::SubscriberConfig::users)).
    Local,
}

/// A proof of a user at an access.
#[derive(Clone, Copy, Debug)]
pub struct LoginAttempt<'a, O> {
    /// The user name. For EAP it is the identity of the first packet; later rounds keep it.
    pub name: &'a [u8],
    /// True if the proof starts a login, also if the access has one in progress. Otherwise it continues that one.
    pub starts_login: bool,
    /// The proof.
    pub proof: UserCredentials<'a>,
    /// The verifier.
    pub backend: AuthenticationBackend,
    /// True if the AAA server accepts EAP-TLS only for certificates that contain the outer identity.
    pub trusts_certificate_names: bool,
    /// The place of the user.
    pub place: &'a Arc<SubscriberPlace>,
    /// The longest packet of the user's link, octets, if known.
    pub mtu: Option<u16>,
    /// The origin for lockouts: an address, or a port and station.
    pub origin: O,
    /// The host that jobs are for.
    pub requester: &'a JobRequester,
}

/// The reason why a login failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LoginFailure {
    /// The AAA server or the access server itself rejects the user.
    Rejected,
    /// The user name or the origin is locked out after failed attempts.
    LockedOut,
    /// No AAA server replies.
    Unanswered,
    /// Too many logins are in progress.
    Overload,
    /// The AAA server's reply is invalid.
    BadAnswer,
    /// No AAA server is configured.
    NoAaa,
    /// There is no user name, or one that does not fit a request.
    NoName,
    /// The user name is not UTF-8 (RFC 2865 §5.1) or has control characters, so that records of it would be ambiguous.
    BadName,
    /// No pool has a free address.
    NoAddress,
    /// Another session has the address that the AAA server assigns, or no subscriber may have it.
    AddressInUse,
    /// The user has the maximum of sessions.
    TooManySessions,
    /// The session log cannot be written.
    NotLogged,
}

impl fmt::Display for LoginFailure {
    /// Describes the reason for an operator.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rejected => "rejected",
            Self::LockedOut => "locked out after too many failed logins of this name or from this origin",
            Self::Unanswered => "no AAA server answers",
            Self::Overload => "too many logins are in progress",
            Self::BadAnswer => "the AAA server's reply is invalid",
            Self::NoAaa => "no AAA server is available",
            Self::NoName => "no user name, or one that does not fit a request to an AAA server",
            Self::BadName => "the user name is not UTF-8, or has control characters",
            Self::NoAddress => "the address pools are exhausted",
            Self::AddressInUse => "the AAA server assigned an address of another session or of this server",
            Self::TooManySessions => "the user has reached its session limit",
            Self::NotLogged => "the session log cannot be written",
        })
    }
}

/// The reply to a proof.
#[derive(Clone, PartialEq, Debug)]
pub enum LoginAnswer {
    /// A request for the user's next EAP packet.
    Continue(Vec<u8>),
    /// The user is accepted. The service opens a session, or abandons the grant
    /// ([`abandon_grant`](super::SubscriberManager::abandon_grant)).
    Accept {
        /// The authorization.
        grant: Box<SubscriberGrant>,
        /// An EAP packet or a message for the user.
        message: Vec<u8>,
        /// The key of the EAP method ([`SubscriberConfig::needs_keys`](super::SubscriberConfig::needs_keys)).
        msk: Option<SecretValue>,
    },
    /// The user is rejected.
    Reject {
        /// The claimed user name.
        user: Vec<u8>,
        /// The reason.
        why: LoginFailure,
        /// An EAP packet or a message for the user.
        message: Vec<u8>,
    },
    /// The login failed without a verdict.
    Unanswered {
        /// The claimed user name.
        user: Vec<u8>,
        /// The reason.
        why: LoginFailure,
    },
}

/// The kind of a proof. It determines the form of the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CredentialsKind {
    Password,
    MsChapV2,
    Eap,
}

impl CredentialsKind {
    pub(super) const fn of_proof(proof: &UserCredentials<'_>) -> Self {
        match proof {
            UserCredentials::Eap(_) => Self::Eap,
            UserCredentials::MsChapV2(_) => Self::MsChapV2,
            UserCredentials::Pap(_) | UserCredentials::Chap(_) | UserCredentials::MsChap(_) => Self::Password,
        }
    }
}

/// A login in progress.
#[derive(Debug)]
pub(super) struct PendingLogin {
    pub(super) name: Vec<u8>,
    pub(super) kind: CredentialsKind,
    pub(super) place: Arc<SubscriberPlace>,
    /// The secret hash of the origin.
    pub(super) origin: u64,
    pub(super) requester: JobRequester,
    /// The waiter of its jobs.
    pub(super) waiter: JobWaiter,
    /// The digest of a password, for the grace cache.
    pub(super) digest: Option<[u8; 32]>,
    pub(super) token: u64,
    /// True if a request to the AAA server is open.
    pub(super) is_request_pending: bool,
    pub(super) next: LoginRoundState,
    pub(super) conversation: Option<EapConversation>,
    /// True if the login has failed and was counted for the lockout.
    pub(super) is_failure_counted: bool,
    /// True if the EAP method hides the inner identity from the access server.
    pub(super) hides_identity: bool,
}

/// True if an EAP packet is an Identity response, which begins a conversation.
#[must_use]
pub fn is_identity_response(packet: &[u8]) -> bool {
    EapPacket::parse(packet).is_ok_and(|packet| packet.kind() == Some(EapType::IDENTITY))
}

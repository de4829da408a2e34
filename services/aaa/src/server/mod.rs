//! The AAA server: verified requests of RADIUS and Diameter in, verdicts out, one EAP back end behind
//! both (RFC 3579, RFC 4072, the "backend authenticator" of RFC 4137 §6).
//!
//! ```text
//! Input::Datagram ─▶ RADIUS server ─┐                ┌─▶ users in memory
//!                                   ├─▶ EAP session ─┤
//! Input::Stream ──▶ Diameter node ──┘                └─▶ Event::Lookup{token} ─▶ (host) ─▶ Command::Found{token}
//! Input::Message ─────────┘
//! ```

mod answer;
mod machine;
mod session;

pub use machine::AaaServer;

use crate::users::{Method, User, Users};
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{Duration, WallTime};
use usher_diameter::node::PeerId;
use usher_eap::method::ServerOffer;

/// Where users are looked up.
#[derive(Clone, Debug)]
pub enum UserSource {
    /// In memory, at once, without an event.
    Memory(Arc<Users>),
    /// Wherever the host looks: [`Event::Lookup`] asks, [`Command::Found`] answers.
    Host,
}

/// What a server is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// The RADIUS side; `None`: datagrams are dropped. Its `retain` should outlast the clients' longest
    /// wait between retransmissions: where the verdict is lost and no longer kept when the request comes
    /// again, the session that it ended is unknown, and the answer is a reject.
    pub radius: Option<usher_radius::server::Config>,
    /// The Diameter side, with EAP (RFC 4072) and NASREQ (RFC 7155) among its applications; `None`:
    /// streams and associations are dropped.
    pub diameter: Option<usher_diameter::node::Config>,
    /// Where users are looked up.
    pub users: UserSource,
    /// What is offered, the preferred method first. A peer's Nak chooses among the rest (RFC 3748 §5.3).
    pub methods: Vec<Method>,
    /// The server's side of EAP-TLS, one for all sessions; without it that method is not offered.
    pub tls: Option<Arc<dyn ServerOffer>>,
    /// How long an unfinished session may idle: its peer answers, or its user is found, within this.
    pub session_timeout: Duration,
    /// The time of day at [`usher_core::Instant::ZERO`], by which certificates are judged.
    pub epoch: WallTime,
    /// How many unfinished sessions there may be; a new one beyond it pushes the one that idled longest
    /// out.
    pub max_half_open: usize,
}

impl Config {
    /// Neither front, EAP-MD5 and PAP for these users, 30 s and 100,000 unfinished sessions, on the
    /// first of January 2026.
    #[must_use]
    pub fn new(users: UserSource) -> Self {
        Self {
            radius: None,
            diameter: None,
            users,
            methods: [Method::EapMd5, Method::Pap].into(),
            tls: None,
            session_timeout: Duration::from_secs(30),
            epoch: WallTime::from_unix_secs(1_767_225_600),
            max_half_open: 100_000,
        }
    }
}

/// A server was configured in contradiction to itself.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The RADIUS side.
    #[error("RADIUS server: {0}")]
    Radius(#[from] usher_radius::server::ConfigError),
}

/// What a server is asked.
#[derive(Clone, Debug)]
pub enum Command {
    /// The answer to [`Event::Lookup`]. [`usher_core::CommandError::UnknownToken`] says that the session
    /// ended meanwhile: nothing is left to do.
    Found {
        /// The look-up's token.
        token: u64,
        /// The user; `None`: there is none of that name.
        user: Option<Arc<User>>,
    },
    /// Something for the Diameter node, such as to disconnect a peer.
    Diameter(usher_diameter::node::Command),
}

/// Why somebody was turned away.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// Nobody of that name.
    UnknownUser,
    /// The password or the certificate does not convince.
    WrongCredentials,
    /// No method that server, user and peer have in common.
    NoMethod,
    /// The request's name is not the one that EAP gave (RFC 3579 §2.1).
    NameMismatch,
}

/// What a server has to say.
#[derive(Clone, Debug)]
pub enum Event {
    /// Find a user; answered by [`Command::Found`]. Only with [`UserSource::Host`].
    Lookup {
        /// Comes back with the answer.
        token: u64,
        /// As the peer gave it.
        name: Vec<u8>,
    },
    /// Somebody was let in.
    Accepted {
        /// As the peer gave it.
        name: Vec<u8>,
        /// How the proof was made.
        method: Method,
    },
    /// Somebody was turned away.
    Rejected {
        /// As the peer gave it.
        name: Vec<u8>,
        /// Why.
        reason: Reason,
    },
    /// A Diameter peer came or went.
    DiameterPeer {
        /// Which.
        peer: PeerId,
        /// It came.
        up: bool,
    },
}

usher_core::counters! {
    /// What a server did and what it dropped, beside the counters of its RADIUS server and Diameter node.
    pub struct Counters {
        /// Sessions begun.
        sessions,
        /// Challenges sent.
        challenges,
        /// Let in by their password itself.
        accepted_pap,
        /// Let in by EAP-MD5.
        accepted_eap_md5,
        /// Let in by EAP-TLS.
        accepted_eap_tls,
        /// Turned away: nobody of that name.
        rejected_unknown_user,
        /// Turned away: wrong password or certificate.
        rejected_credentials,
        /// Turned away: no method in common.
        rejected_no_method,
        /// Turned away: the request's name is not the one that EAP gave.
        rejected_name_mismatch,
        /// Unfinished sessions that idled too long.
        expired,
        /// Unfinished sessions pushed out by new ones.
        evicted,
        /// Dropped: a State or Session-Id that names no session, or one of another client.
        unknown_session,
        /// Dropped: a request without any proof that the server knows.
        no_proof,
        /// Dropped: not an EAP packet, or one that answers nothing that was asked.
        bad_eap,
        /// Dropped: a hidden password of an impossible length.
        bad_password,
        /// Dropped: a further request while the session's user is being looked up.
        busy,
        /// Dropped: a request of a kind that is not served.
        unsupported,
        /// Dropped: input for a front that is not configured.
        no_front,
    }
}

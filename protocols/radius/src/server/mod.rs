//! The RADIUS server: verified requests out, replies in, every duplicate handled between.
//!
//! ```text
//! datagram ─▶ Server ─▶ Event::Request{token} ─▶ (caller) ─▶ Command::Respond{token} | Discard{token}
//! ```
//! Each request event should be answered by one of the two commands.

mod cache;
mod clients;
mod machine;

pub use clients::ConfigError;
pub use machine::Server;

use crate::attribute::{Attributes, HideError, kind, reveal_password};
use crate::auth::Secret;
use crate::packet::Code;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::{Duration, Path};

/// Addresses that share a secret and a policy.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The network; bits beyond `prefix` are ignored.
    pub network: IpAddr,
    /// Leading bits that count: 0 to 32 or 0 to 128. The longest matching prefix wins.
    pub prefix: u8,
    /// The secret shared with it.
    pub secret: Secret,
    /// Whether every Access-Request must carry a Message-Authenticator (BlastRADIUS). Where this is
    /// false, those with an EAP-Message must all the same (RFC 3579 §3.2), and Status-Server too.
    pub require_message_authenticator: bool,
}

impl ClientConfig {
    /// A network with the safe policy.
    #[must_use]
    pub fn new(network: IpAddr, prefix: u8, secret: Secret) -> Self {
        Self { network, prefix, secret, require_message_authenticator: true }
    }
}

/// What a server is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whom it serves; requests from elsewhere are dropped.
    pub clients: Vec<ClientConfig>,
    /// What this port is for; requests of other codes are dropped.
    pub role: Role,
    /// How long a reply is kept to answer duplicates (RFC 5080 §2.2.2 proposes 5 s).
    pub retain: Duration,
    /// How long a request may wait for the caller's command before it is forgotten.
    pub patience: Duration,
    /// How many requests and kept replies there may be. Beyond it the oldest kept reply goes; where all
    /// are still waiting for the caller, a new request is dropped.
    pub max_entries: usize,
}

/// Which requests a server takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Access-Request; Status-Server is answered by Access-Accept.
    Authentication,
    /// Accounting-Request; Status-Server is answered by Accounting-Response.
    Accounting,
    /// Both on one port; Status-Server is answered by Access-Accept.
    Both,
}

impl Config {
    /// A server of these clients for authentication and accounting.
    #[must_use]
    pub fn new(clients: Vec<ClientConfig>) -> Self {
        Self {
            clients,
            role: Role::Both,
            retain: Duration::from_secs(5),
            patience: Duration::from_secs(30),
            max_entries: 1 << 20,
        }
    }
}

/// What a server is asked.
#[derive(Clone, Debug)]
pub enum Command {
    /// Answer a request. [`usher_core::CommandError::UnknownToken`] then says that the client gave the
    /// request up for a newer one, or that the answer took longer than [`Config::patience`]: nothing is
    /// left to do.
    ///
    /// A Message-Authenticator is put in front of every reply to an Access-Request,
    /// and of others where the request had one; the list must not hold one. Proxy-State attributes of
    /// the request are copied to the end by the server (RFC 2865 §5.33) unless the list has some.
    Respond {
        /// The request's token.
        token: u64,
        /// A code that answers the request.
        code: Code,
        /// What to say.
        attributes: Attributes,
    },
    /// Do not answer; duplicates that come while a reply would be kept are dropped too.
    Discard {
        /// The request's token.
        token: u64,
    },
}

/// A verified request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Names the request in the command that ends it.
    pub token: u64,
    /// Index of the client in [`Config::clients`].
    pub client: u32,
    /// Where it came from, and on which socket.
    pub path: Path,
    /// Access-Request, Accounting-Request, …
    pub code: Code,
    /// The packet's identifier.
    pub identifier: u8,
    /// The attributes as they came.
    pub attributes: Attributes,
    /// The packet's authenticator.
    pub request_authenticator: [u8; 16],
    /// The secret shared with the client, to reveal hidden values.
    pub secret: Secret,
}

impl Request {
    /// The User-Password in clear; `None` where there is none.
    ///
    /// # Errors
    /// Its length is not that of a hidden password.
    pub fn user_password(&self) -> Result<Option<Vec<u8>>, HideError> {
        self.attributes
            .get(kind::USER_PASSWORD)
            .map(|v| reveal_password(self.secret.as_bytes(), &self.request_authenticator, v))
            .transpose()
    }
    /// Whom it came from.
    #[must_use]
    pub const fn source(&self) -> SocketAddr {
        self.path.remote
    }
}

/// What a server has to say.
#[derive(Clone, Debug)]
pub enum Event {
    /// A client asks.
    Request(Request),
}

usher_core::counters! {
    /// What a server did and what it dropped.
    pub struct Counters {
        /// Verified requests, without duplicates and Status-Server.
        requests,
        /// Replies sent for the first time, without those to Status-Server.
        responses,
        /// Requests that the caller discarded.
        discarded,
        /// Status-Server packets answered.
        status,
        /// Duplicates answered with the same octets again.
        duplicates_answered,
        /// Dropped: duplicates of requests that are being worked on, or were discarded.
        duplicates_dropped,
        /// Requests abandoned for a new one with the same source and identifier.
        superseded,
        /// Requests forgotten because the caller took too long.
        expired,
        /// Kept replies given up early to make room.
        evicted,
        /// Dropped: no room, everything is waiting for the caller.
        overload,
        /// Dropped: not a RADIUS packet.
        malformed,
        /// Dropped: from no client of ours.
        unknown_client,
        /// Dropped: a code that this port does not serve.
        wrong_code,
        /// Dropped: the Request Authenticator is wrong.
        bad_authenticator,
        /// Dropped: the Message-Authenticator is wrong.
        bad_message_authenticator,
        /// Dropped: no Message-Authenticator where one is required.
        missing_message_authenticator,
        /// Dropped: input other than a datagram or a timeout.
        not_a_datagram,
    }
}

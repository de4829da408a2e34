//! What an access server (NAS) needs of AAA, whatever it gives access to and whichever protocol carries its questions.
//!
//! [`AccessClient`] asks whether a user is let in ([`Request`], [`Proof`]), tells of sessions ([`Record`]) and hears what
//! the AAA server wants of a session later ([`DynamicRequest`]); a [`Reply`] says all that the server said of a user.
//! [`pool`] gives out addresses; [`Failures`] counts failed logins, and [`LoginLockout`] says who is
//! held back for them.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod client;
mod dynamic;
mod failures;
mod identity;
mod lockout;
pub mod pool;
mod prefix;
mod proof;
mod record;
mod reply;
mod request;
mod tunnel;

pub use client::{
    Aaa, AaaConfig, AccessClient, Command, ConfigError, Connections, DIAMETER_LISTENER, DYNAMIC_SOCKET,
    DiameterConfig, DynamicConfig, Event, Failure, Patience, RadiusConfig,
};
pub use dynamic::{DynamicKind, DynamicRequest, ErrorCause, SessionIdentity};
pub use failures::{FailureLimit, Failures};
pub use identity::{
    NasIdentity, NasPort, PORT_TYPE_ETHERNET, PORT_TYPE_VIRTUAL, PORT_TYPE_WIRELESS_80211,
    PORT_TYPE_WIRELESS_80216,
};
pub use lockout::LoginLockout;
pub use prefix::ipv6_prefix;
pub use proof::{ChapResponse, Expected, MsChapResponse, MsChapV2Response, Proof, ProofError};
pub use record::{Record, RecordKind, TerminateCause, Traffic, session_id, start_of};
pub use reply::{FramedAddress, Reply};
pub use request::{Continuation, Request};
pub use tunnel::{is_by_certificate, is_tunnelled, within};

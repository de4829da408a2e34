//! What an access server (NAS) needs of AAA, whatever it gives access to and whichever protocol carries its questions.
//!
//! [`AccessClient`] asks whether a user is let in ([`AccessRequest`], [`LoginProof`]), tells of sessions ([`AccountingRecord`]) and hears what
//! the AAA server wants of a session later ([`DynamicRequest`]); a [`AccessReply`] says all that the server said of a user.
//! [`pool`] gives out addresses; [`FailureTable`] counts failed logins, and [`LoginLockout`] says who is
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
    AaaClientConfig, AaaConfig, AaaFailure, AccessClient, AccessClientCommand, AccessClientEvent,
    AccountingRetryConfig, ConfigError, DIAMETER_LISTENER, DYNAMIC_SOCKET, DiameterConfig,
    DiameterConnections, DynamicConfig, RadiusConfig,
};
pub use dynamic::{DynamicKind, DynamicRequest, ErrorCause, SessionIdentity};
pub use failures::{FailureLimit, FailureTable};
pub use identity::{
    NasIdentity, NasPort, PORT_TYPE_ETHERNET, PORT_TYPE_VIRTUAL, PORT_TYPE_WIRELESS_80211,
    PORT_TYPE_WIRELESS_80216,
};
pub use lockout::LoginLockout;
pub use prefix::ipv6_prefix;
pub use proof::{
    ChapResponse, ExpectedServerProof, LoginProof, MsChapResponse, MsChapV2Response, ProofError,
};
pub use record::{AccountingRecord, RecordKind, SessionTraffic, TerminateCause, session_id, start_of};
pub use reply::{AccessReply, FramedAddress};
pub use request::{AccessRequest, LoginContinuation};
pub use tunnel::{fallback_user_name, is_by_certificate, is_tunnelled};

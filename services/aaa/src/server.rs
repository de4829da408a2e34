//! The AAA server's machine: RADIUS and Diameter requests in, verdicts out, with one EAP back end for both (RFC
//! 3579, RFC 4072; the "backend authenticator" of RFC 4137 §6).
//!
//! ```text
//! datagrams ─▶ RADIUS server ─┐                ┌─▶ users in memory
//!                             ├─▶ login ───────┤
//! streams ──▶ Diameter node ──┘                └─▶ lookup job ─▶ (host) ─▶ command with its result and token
//! messages ─────────┘
//! ```
//! Slow work leaves the machine as a job of the host ([`AaaServerJob`]): lookup of a user, comparison with a
//! password hash, revocation check, check of limits, write of an accounting record. The public-key operations of a
//! TLS handshake stay in the machine and may queue ([`AaaServerConfig::max_steps_waiting`]).
//!
//! [`AaaServer`] has four kinds of methods:
//! - Getters return counters and state, such as [`AaaServer::counters`] and [`AaaServer::half_open`].
//! - Handlers of input take datagrams, stream data and connection events ([`usher_core::MachineInput`]).
//! - Commands ([`AaaServerCommand`]) bring job results and the owner's requests, such as a reload.
//! - Polls return transmissions, events ([`AaaServerEvent`]), jobs and the next timeout.

mod access_request;
mod accounting;
mod alias;
mod answer;
mod api;
mod avps;
mod cache;
mod config;
mod context;
mod counters;
mod delayed_reject;
mod dynamic;
mod fronts;
mod half_open;
mod lockout;
mod logins;
mod machine;
mod proof;
mod proxy;
mod reason;
mod session;
mod shard;
mod stand_in;
mod trace;

pub use alias::{IdentityKey, is_user_alias_class};
pub use api::{
    AaaServerCommand, AaaServerEvent, AaaServerJob, CertificateVerdict, DynamicAuthResult, FinishedLogin,
    HomeServerState, LoginOwner, LoginTraceFilter, ShardDecision, ShardRequest, TraceLine, UserLookupResult,
};
pub use cache::{CacheGeneration, UserCache};
pub use config::{AaaServerConfig, ConfigError, UserCacheConfig, UserSource};
pub use counters::AaaServerCounters;
pub use machine::{AaaServer, DIAMETER_LISTENER, RADSEC_LISTENER, radius_socket};
pub use reason::{OcspStatusFault, RejectCause};
pub use shard::{InterShardKey, ShardConfig, shard_for_datagram};
pub use trace::TRACES;

/// The owner slots of the server's parts.
const RADIUS: u16 = 0;
const DIAMETER: u16 = 1;
/// The clients of home servers. A reload alternates between the two.
const HOMES: [u16; 2] = [2, 3];
/// The client of dynamic authorization (RFC 5176).
const DYNAMIC: u16 = 4;

//! The AAA server: verified requests of RADIUS and Diameter in, verdicts out, one EAP back end behind
//! both (RFC 3579, RFC 4072, the "backend authenticator" of RFC 4137 §6).
//!
//! ```text
//! Input::Datagram ─▶ RADIUS server ─┐                ┌─▶ users in memory
//!                                   ├─▶ EAP session ─┤
//! Input::Stream ──▶ Diameter node ──┘                └─▶ Job::Lookup ─▶ (host) ─▶ Command::Found{token}
//! Input::Message ─────────┘
//! ```
//! Whatever may take its time is asked of the host in that way: a user, the comparison with a slow hash, whether a
//! certificate is revoked, whether limits let a login in, the keeping of an accounting record. What takes this server's own
//! time, the public-key operations of a TLS handshake, may wait for its turn ([`AaaServerConfig::max_steps_waiting`]).

mod accounting;
mod alias;
mod answer;
mod api;
mod ask;
mod avps;
mod cache;
mod config;
mod context;
mod counters;
mod dynamic;
mod fronts;
mod half_open;
mod held;
mod held_back;
mod logins;
mod machine;
mod proof;
mod proxy;
mod reason;
mod session;
mod shard;
mod stand_in;
mod trace;

pub use alias::{IdentityKey, is_alias};
pub use api::{
    AaaServerCommand, AaaServerEvent, AaaServerJob, CertificateVerdict, DynamicResult, FinishedLogin,
    HomeServerState, LoginOwner, LookupResult, ShardDecision, ShardRequest, TraceFilter, TraceLine,
};
pub use cache::{CacheGeneration, UserCache};
pub use config::{AaaServerConfig, CacheConfig, ConfigError, UserSource};
pub use counters::AaaServerCounters;
pub use machine::{AaaServer, DIAMETER_LISTENER, RADSEC_LISTENER, radius_socket};
pub use reason::{RejectCause, StatusFault};
pub use shard::{ShardConfig, ShardKey, shard_of};
pub use trace::TRACES;

/// The slots of what a server is made of.
const RADIUS: u16 = 0;
const DIAMETER: u16 = 1;
/// Who asks home servers; a new configuration's asks by the other.
const HOMES: [u16; 2] = [2, 3];
/// Who asks access servers (RFC 5176).
const DYNAMIC: u16 = 4;

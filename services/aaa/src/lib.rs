//! The AAA server: users, policy, an EAP back end, RADIUS and Diameter.
//!
//! - [`server`]: the machine [`AaaServer`], which decides logins.
//! - [`ledger`]: sessions, address pools and limits.
//! - [`store`]: the interface to the database.
//! - [`proxy`]: realms and home servers.
//! - [`service`]: does the machine's jobs in a single thread, for the simulator and tests.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod ledger;
mod operator;
pub mod proxy;
pub mod server;
pub mod service;
pub mod store;
mod text;
mod users;
pub mod work;

pub use ledger::{AdmissionRefusal, AdmissionVerdict, AdmitRequest, LedgerRecord};
pub use server::{
    AaaServer, AaaServerCommand, AaaServerConfig, AaaServerCounters, AaaServerEvent, AaaServerJob,
    CacheGeneration, CertificateVerdict, ConfigError, DIAMETER_LISTENER, DynamicAuthResult, FinishedLogin,
    HomeServerState, IdentityKey, InterShardKey, LoginOwner, LoginTraceFilter, OcspStatusFault,
    RADSEC_LISTENER, RejectCause, ShardConfig, ShardDecision, ShardRequest, TRACES, TraceLine, UserCache,
    UserCacheConfig, UserLookupResult, UserSource, is_user_alias_class, radius_socket, shard_for_datagram,
};
pub use users::{
    AuthMethod, ControlItemValue, FailedCheck, GroupControlValues, PasswordAttribute, PasswordSetting,
    ReplyAttribute, RequestCheck, RowError, StoredPassword, User, UserDirectory, UserGroup, canonical_name,
    is_expanded, name_spellings, parse_tunnel_tag,
};

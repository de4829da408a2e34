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
pub mod proxy;
pub mod server;
pub mod service;
pub mod store;
mod users;
pub mod work;

pub use ledger::{AdmissionRefusal, AdmissionVerdict, AdmitRequest, LedgerRecord};
pub use server::{
    AaaServer, AaaServerCommand, AaaServerConfig, AaaServerCounters, AaaServerEvent, AaaServerJob,
    CacheConfig, CacheGeneration, CertificateVerdict, ConfigError, DIAMETER_LISTENER, DynamicResult,
    FinishedLogin, HomeServerState, IdentityKey, LoginOwner, LookupResult, RADSEC_LISTENER, RejectCause,
    ShardConfig, ShardDecision, ShardKey, ShardRequest, StatusFault, TRACES, TraceFilter, TraceLine,
    UserCache, UserSource, is_alias, radius_socket, shard_of,
};
pub use users::{
    AuthMethod, ControlSetting, FailedCheck, GroupControl, PasswordAttribute, PasswordSetting,
    ReplyAttribute, RequestCheck, RowError, StoredPassword, User, UserDirectory, UserGroup, canonical_name,
    is_expanded, name_spellings, tag_number,
};

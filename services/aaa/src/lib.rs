//! The AAA server: users, policy, EAP back end, RADIUS and Diameter fronts.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod ledger;
pub mod proxy;
pub mod server;
pub mod service;
pub mod store;
mod users;
pub mod work;

pub use ledger::{Admission, AdmitRequest, Record, Refusal};
pub use server::{
    AaaServer, CacheConfig, CertificateVerdict, Command, Config, ConfigError, Counters, DIAMETER_LISTENER,
    DynamicResult, Event, Found, Generation, Handed, HandedBack, HomeServerState, IdentityKey, Job, Login,
    LoginOwner, RADSEC_LISTENER, Reason, ShardConfig, ShardKey, StatusFault, TRACES, TraceFilter, TraceLine,
    UserCache, UserSource, is_alias, radius_socket, shard_of,
};
pub use users::{
    Check, Complaint, Control, ControlSetting, Group, Method, Password, PasswordAttribute, PasswordSetting,
    Reply, Unmet, User, Users, canonical_name, is_expanded, spellings, tag_number,
};

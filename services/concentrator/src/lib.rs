//! A PPPoE access concentrator as a service (RFC 2516): logins, addresses, rates, accounting, and the log of sessions.
//!
//! ```text
//! host ─ PPPoE, LCP, PAP, CHAP, EAP ─▶ AccessConcentrator ─ proof ──▶ AAA server, or local users
//!                                                         ◀─ verdict, addresses, rates ─
//!                                      AccessConcentrator ─ Job::Log ▶ the session log, on disk
//!      ◀─ Authenticate-Ack, IPCP ────                     ◀─ Logged ─
//! AccessConcentrator ─ Event::Install, Remove ─▶ the data plane, before dependent packets are sent
//! AccessConcentrator ◀─ UsageReport ─ the data plane: octets and packets of sessions
//! client ─ IDENT query ─▶ AccessConcentrator ─ response ─▶ client   the user of a connection
//! ```
//! An [`AccessConcentrator`] is a [machine](usher_core::Machine). It contains a
//! [`PppoeConcentrator`](usher_ppp::concentrator::PppoeConcentrator), a client of [`usher_access`] and an IDENT
//! service. It has four kinds of methods:
//!
//! - Getters, such as [`session_count`](AccessConcentrator::session_count).
//! - `handle_input` takes frames of hosts, packets of AAA servers and IDENT queries.
//! - `handle_command` takes an [`AccessConcentratorCommand`].
//! - `poll_output` gives transmissions, events ([`AccessConcentratorEvent`]), work and jobs ([`ConcentratorJob`]).
//!   `poll_timeout` gives the time of the next timeout.
//!
//! With `[tracking]`, a host is accepted only after the session log has stored the session. The log then names the user of every
//! packet that passes.
//!
//! [`track`] is that log and its queries. [`config`] is the service's file, the same for a live host and a study.

extern crate alloc;

mod accounting;
mod addresses;
mod api;
pub mod config;
pub mod fuzz;
mod host;
mod identity;
mod import;
mod login;
mod service;
mod session;
mod status;
#[cfg(all(test, feature = "tls"))]
mod tests;
pub mod track;

pub use api::{
    AccessConcentratorCommand, AccessConcentratorConfig, AccessConcentratorEvent, AddressingConfig,
    ConcentratorConfigError, ConcentratorJob, NatAddressConfig, PppoeSessionSelector, SessionLimits,
};
pub use host::{SessionEntry, SessionUsage};
pub use import::{ImportedConfig, import_config};
pub use service::{
    AAA_SLOT, AccessConcentrator, AccessConcentratorCounters, DYNAMIC_SOCKET, IDENT_LISTENER, IDENT_SLOT,
    PPP_SLOT,
};
pub use status::{ConcentratorStatus, PoolStatus, SessionStatus};
pub use usher_access::LoginFailure;

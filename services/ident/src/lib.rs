//! An IDENT server that reveals a connection's owner to each asker as its configuration allows.
//!
//! ```text
//! asker ─ query ─▶ IdentService ─ lookup job ─▶ the host: its sockets, a session table, a study
//!       ◀─ reply ─              ◀─ result ──────
//! ```
//! The service does not know owners itself. Each lookup leaves it as an [`IdentServiceJob`](usher_core::JobRequest)
//! with a token, and the result returns as an [`IdentServiceCommand`]. A host searches its own sockets. A
//! concentrator searches its sessions or its address translations.
//!
//! Each network of askers has a [`DisclosureLevel`]; the longest prefix decides. An asker outside all networks is
//! refused.
//!
//! [`config`] is the configuration file, the same for a live server and for a study.

extern crate alloc;

pub mod config;
mod disclosure;
mod service;
mod token;

pub use disclosure::{DisclosureLevel, DisclosurePolicy};
pub use service::{
    ConnectionOwner, IdentService, IdentServiceCommand, IdentServiceConfig, IdentServiceCounters,
    IdentServiceEvent, IdentServiceJob, OwnerLookupResult,
};
pub use token::{TokenContent, TokenKey};

//! Who stands behind a connection: an IDENT server that discloses to each asker what its configuration says.
//!
//! ```text
//! asker ─ query ─▶ IdentService ─ Job::Owner(connection) ─▶ who knows: this host's sockets, a session table, a study
//!       ◀─ reply ─              ◀─ Command::Found ─────────
//! ```
//! The service knows no connections but those of its askers. Who owns the one that is asked for leaves it as a
//! [`IdentServiceJob`](usher_core::JobRequest) with a token and comes back as a [`IdentServiceCommand`]: a host looks at its own sockets, a concentrator at its
//! sessions or at what it translates. Of what is found, each network that may ask is told as much as is set for it
//! ([`DisclosureLevel`]): the longest prefix decides, and who is of none is not heard at all.
//!
//! [`config`] is its file, the same for a live server and for a study.

extern crate alloc;

pub mod config;
mod disclosure;
mod service;
mod token;

pub use disclosure::{DisclosureLevel, DisclosurePolicy};
pub use service::{
    ConnectionOwner, IdentService, IdentServiceCommand, IdentServiceConfig, IdentServiceCounters,
    IdentServiceEvent, IdentServiceJob, SystemUser,
};
pub use token::{TokenContent, TokenKey};

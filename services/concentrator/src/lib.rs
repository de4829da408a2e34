//! A PPPoE access concentrator as a service (RFC 2516): whom it lets in, which addresses and rates hosts get, what an AAA server
//! is told of them, and who had which address when.
//!
//! ```text
//! host ─ PPPoE, LCP, PAP, CHAP, EAP ─▶ AccessConcentrator ─ proof ──▶ AAA server (RADIUS, RadSec, Diameter), or users of its own
//!                                                         ◀─ verdict, addresses, rates ─
//!                                      AccessConcentrator ─ Job::Log ▶ the session is on disk: who has which address from now on
//!      ◀─ Authenticate-Ack, IPCP ────                     ◀─ Logged ─
//! AccessConcentrator ─ Event::Install, Remove ─▶ the data plane, before what depends on it is sent
//! AccessConcentrator ◀─ Carried ─ the data plane: what sessions have carried
//! asker ─ IDENT query ─▶ AccessConcentrator ─ reply ─▶ asker   whose a connection is, by the address or by what was translated
//! ```
//! An [`AccessConcentrator`] is a machine that contains a [`Concentrator`](usher_ppp::concentrator::PppoeConcentrator), a client of
//! [`usher_access`] and an IDENT service. A host is told that it is let in only once the log of sessions has kept the session, so
//! that no packet passes of which nobody could say later whose it was.
//!
//! [`track`] is that log and what is asked of it; [`config`] is the service's file, the same for a live host and for a study.

extern crate alloc;

mod accounting;
mod addresses;
pub mod config;
pub mod fuzz;
mod grace;
mod identity;
mod import;
mod login;
mod service;
mod session;
mod status;
#[cfg(all(test, feature = "tls"))]
mod tests;
pub mod track;
mod users;

pub use addresses::AddressingConfig;
pub use grace::WhenAway;
pub use identity::TranslationConfig;
pub use import::{ImportedConfig, import_config};
pub use service::{
    AAA_SLOT, AccessConcentrator, AccessConcentratorCommand, AccessConcentratorConfig,
    AccessConcentratorCounters, AccessConcentratorEvent, AuthenticationBackend, DYNAMIC_SOCKET,
    IDENT_LISTENER, IDENT_SLOT, LoginFailure, NewError, PPP_SLOT, ServiceJob, SessionSelector,
};
pub use session::{RateProfile, SessionEntry, SessionLimits, SessionUsage};
pub use status::{ConcentratorStatus, PoolStatus, SessionStatus};
pub use users::LocalUsers;

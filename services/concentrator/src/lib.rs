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
//! An [`AccessConcentrator`] is a machine that contains a [`Concentrator`](usher_ppp::concentrator::Concentrator), a client of
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

pub use addresses::Addressing;
pub use grace::WhenAway;
pub use identity::Translation;
pub use import::{Imported, import};
pub use service::{
    AAA_SLOT, AccessConcentrator, Command, Config, Counters, DYNAMIC_SOCKET, Event, IDENT_LISTENER,
    IDENT_SLOT, Judge, LoginFailure, NewError, PPP_SLOT, ServiceJob, Which,
};
pub use session::{Limits, RateProfile, SessionEntry, Usage};
pub use status::{ConcentratorStatus, PoolStatus, SessionStatus};
pub use users::LocalUsers;

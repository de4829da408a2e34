//! The Identification Protocol (RFC 1413): who owns a TCP connection, asked of the host at its other end.
//!
//! ```text
//! asker ── 6193, 23 ──────────────────────────▶ server: who owns (its address:6193, the asker's address:23)?
//!       ◀─ 6193, 23 : USERID : UNIX : stjohns ──
//! ```
//! A query is a [`PortPair`]; its addresses are those of the connection that it comes by (§3). A [`IdentResponse`] repeats the pair
//! and bears an [`ResponseBody`]. The [`IdentServer`] does not know who owns what: it says what is asked ([`ServerEvent::QueryReceived`]) and is
//! told the answer ([`ServerCommand::Answer`]). The [`IdentClient`] asks and says what it heard.
//!
//! What is said is worth as much as the host that says it (§6): it is for audits, not for access control.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod fuzz;
pub mod work;

mod client;
mod line;
mod message;
mod server;
#[cfg(test)]
mod tests;

pub use client::{
    ClientCommand, ClientConfig, ClientCounters, ClientEvent, IdentClient, IdentQuery, QueryFailure,
};
pub use line::{LineBuffer, LineTooLong, MAX_LINE};
pub use message::{
    ErrorType, IdentResponse, IdentToken, MAX_TOKEN, MAX_USER_ID, NotAToken, NotAUserId, PortPair,
    QueryError, ReplyError, ResponseBody, UserId,
};
pub use server::{IdentServer, QueriedConnection, ServerCommand, ServerConfig, ServerCounters, ServerEvent};

/// The port that servers listen on (§2).
pub const PORT: u16 = 113;

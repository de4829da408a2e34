//! The Identification Protocol (RFC 1413): it asks the host at the other end of a TCP connection for the connection's
//! owner.
//!
//! ```text
//! asker ── 6193, 23 ──────────────────────────▶ server: who owns (its address:6193, the asker's address:23)?
//!       ◀─ 6193, 23 : USERID : UNIX : stjohns ──
//! ```
//! A query is a [`PortPair`]. Its addresses are those of the connection that carries it (§3). An [`IdentResponse`]
//! repeats the pair and has a [`ResponseBody`]. The [`IdentServer`] passes each query to its owner
//! ([`ServerEvent::QueryReceived`]), which returns the response ([`ServerCommand::Answer`]). The [`IdentClient`]
//! sends queries and reports their responses.
//!
//! A response is only as reliable as its host (§6). It serves audits, not access control.

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

/// The port of servers (§2).
pub const PORT: u16 = 113;

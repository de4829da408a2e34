//! The Identification Protocol (RFC 1413): it asks the host at the other end of a TCP connection for the connection's
//! owner.
//!
//! ```text
//! asker ── 6193, 23 ──────────────────────────▶ server: who owns (its address:6193, the asker's address:23)?
//!       ◀─ 6193, 23 : USERID : UNIX : stjohns ──
//! ```
//! [`IdentServer`] and [`IdentClient`] are [machines](usher_core::Machine) over streams. Each has four kinds of
//! methods:
//!
//! - Getters, such as `counters`, and the numbers of connections and pending queries.
//! - `handle_input` takes the events of streams and the timeout.
//! - `handle_command` takes a [`IdentServerCommand`] or a [`ClientCommand`].
//! - `poll_output` gives operations on streams, events ([`IdentServerEvent`], [`ClientEvent`]) and work. `poll_timeout`
//!   gives the time of the next timeout.
//!
//! A query is a [`IdentPortPair`]. Its addresses are those of the connection that carries it (§3). An [`IdentResponse`]
//! repeats the pair and has a [`ResponseBody`]. The [`IdentServer`] passes each query to its owner
//! ([`IdentServerEvent::QueryReceived`]), which returns the response ([`IdentServerCommand::Answer`]). The [`IdentClient`]
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
    ErrorType, IdentPortPair, IdentResponse, IdentToken, InvalidIdentToken, InvalidUserId, MAX_TOKEN,
    MAX_USER_ID, QueryParseError, ResponseBody, ResponseParseError, UserId,
};
pub use server::{
    IdentServer, IdentServerCommand, IdentServerCounters, IdentServerEvent, QueriedConnection, ServerConfig,
};

/// The port of servers (§2).
pub const PORT: u16 = 113;

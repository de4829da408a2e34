//! The Identification Protocol (RFC 1413): who owns a TCP connection, asked of the host at its other end.
//!
//! ```text
//! asker ── 6193, 23 ──────────────────────────▶ server: who owns (its address:6193, the asker's address:23)?
//!       ◀─ 6193, 23 : USERID : UNIX : stjohns ──
//! ```
//! A query is a [`PortPair`]; its addresses are those of the connection that it comes by (§3). A [`Reply`] repeats the pair
//! and bears an [`Answer`]. The [`Server`] does not know who owns what: it says what is asked ([`ServerEvent::Asked`]) and is
//! told the answer ([`ServerCommand::Answer`]). The [`Client`] asks and says what it heard.
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

pub use client::{AskError, Client, ClientCommand, ClientConfig, ClientCounters, ClientEvent, Question};
pub use line::{LineTooLong, Lines, MAX_LINE};
pub use message::{
    Answer, ErrorType, MAX_TOKEN, MAX_USER_ID, NotAToken, NotAUserId, PortPair, QueryError, Reply,
    ReplyError, Token, UserId,
};
pub use server::{Connection, Server, ServerCommand, ServerConfig, ServerCounters, ServerEvent};

/// The port that servers listen on (§2).
pub const PORT: u16 = 113;

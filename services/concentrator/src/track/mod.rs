//! Who had which address when: the log of sessions, and what is asked of it.
//!
//! The log is lines of JSON, a [`Record`] each, appended: a session's `begin` is on the disk before its host is let in, and its
//! `end` follows. A start of the concentrator is a record, too: sessions that are open at that point had ended with the one before.
//! Where hosts share addresses by blocks of ports ([`PortBlocks`]), the block stands in the session's `begin`, and no connection
//! needs a line of its own; where they share them otherwise, [`TranslationRecord`]s are that log. [`Search`] reads the
//! lines and answers who had an address, and a port of it, at a second; [`Index`] says what an earlier concentrator has left.

mod blocks;
mod index;
mod record;
mod search;
mod translation;

pub use blocks::{BlocksError, PortBlock, PortBlocks};
pub use index::Index;
pub use record::{Begin, End, Record, Stop, parse_time};
pub use search::{Search, TransportAddress, Volume, Whose};
pub use translation::{Behind, Translated, TranslationRecord};

/// A session that the log has as open although its concentrator has started anew.
#[derive(Clone, PartialEq, Debug)]
pub struct Lost {
    /// Its begin.
    pub begin: Begin,
}

/// A session that has ended, whose Stop no AAA server has acknowledged ([`Stop`]).
#[derive(Clone, PartialEq, Debug)]
pub struct Owed {
    /// Its begin.
    pub begin: Begin,
    /// Its end.
    pub end: End,
}

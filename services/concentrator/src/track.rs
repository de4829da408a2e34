//! Who had which address when: the log of sessions, and what is asked of it.
//!
//! The log is lines of JSON, a [`SessionLogRecord`] each, appended: a session's `begin` is on the disk before its host is let in, and its
//! `end` follows. A start of the concentrator is a record, too: sessions that are open at that point had ended with the one before.
//! Where hosts share addresses by blocks of ports ([`PortBlocks`]), the block stands in the session's `begin`, and no connection
//! needs a line of its own; where they share them otherwise, [`TranslationRecord`]s are that log. [`AddressSearch`] reads the
//! lines and answers who had an address, and a port of it, at a second; [`LogIndex`] says what an earlier concentrator has left.

mod blocks;
mod index;
mod record;
mod search;
mod translation;

pub use blocks::{BlocksError, PortBlock, PortBlocks};
pub use index::LogIndex;
pub use record::{AccountingStop, SessionEnd, SessionLogRecord, SessionStart, parse_time};
pub use search::{AddressSearch, AddressUse, LogVolume, TransportAddress};
pub use translation::{TranslatedConnection, TranslationRecord, TranslationSearch};

/// A session that the log has as open although its concentrator has started anew.
#[derive(Clone, PartialEq, Debug)]
pub struct LostSession {
    /// Its begin.
    pub begin: SessionStart,
}

/// A session that has ended, whose Stop no AAA server has acknowledged ([`AccountingStop`]).
#[derive(Clone, PartialEq, Debug)]
pub struct UnacknowledgedStop {
    /// Its begin.
    pub begin: SessionStart,
    /// Its end.
    pub end: SessionEnd,
}

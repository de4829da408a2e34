//! The session log and its queries: which user had which address when.
//!
//! The log consists of JSON lines, a [`SessionLogRecord`] each, appended. A session's `begin` is on disk before its
//! host is accepted, and its `end` follows. A start of the concentrator is a record too: sessions that are open there
//! ended with the previous process.
//!
//! Hosts can share addresses in two ways. With port blocks ([`PortBlockMapping`]), the `begin` names the block, and
//! connections need no records. Otherwise each connection has a [`TranslationRecord`] in a log of its own.
//!
//! [`AddressSearch`] finds the user of an address and port at a given second. [`SessionLogIndex`] finds the sessions that an
//! earlier process left open.

mod blocks;
mod index;
mod record;
mod search;
mod translation;

pub use blocks::{PortBlock, PortBlockMapping, PortBlockMappingError};
pub use index::SessionLogIndex;
pub use record::{AccountingStop, SessionEnd, SessionLogRecord, SessionStart, parse_time};
pub use search::{AddressAndOptionalPort, AddressSearch, AddressUse, LogVolume};
pub use translation::{TranslatedConnection, TranslationRecord, TranslationSearch};

/// A session that is open in the log although its concentrator has restarted.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionLostByRestart {
    /// The begin of the session.
    pub begin: SessionStart,
}

/// An ended session whose Stop no AAA server has acknowledged ([`AccountingStop`]).
#[derive(Clone, PartialEq, Debug)]
pub struct UnacknowledgedStop {
    /// The begin of the session.
    pub begin: SessionStart,
    /// The end of the session.
    pub end: SessionEnd,
}

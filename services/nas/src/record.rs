//! Accounting records of stations.

use crate::station_id::StationId;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use usher_access::{AccountingRecordKind, SessionTraffic, TerminateCause};
use usher_core::Duration;

/// An accounting record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StationAccountingRecord {
    /// The kind of record.
    pub kind: AccountingRecordKind,
    /// The station.
    pub station: StationId,
    /// The station's identity.
    pub name: Vec<u8>,
    /// The session identifier, unique in this NAS (Acct-Session-Id). Over Diameter, the last part of the Session-Id.
    pub session: String,
    /// The record's number in the session, from zero (Accounting-Record-Number).
    pub number: u32,
    /// The duration of the session (Acct-Session-Time); a Start has none.
    pub lasted: Duration,
    /// The traffic of the session; a Start has none.
    pub traffic: Option<SessionTraffic>,
    /// Why the session ended; used in a Stop.
    pub cause: TerminateCause,
    /// Class attributes of the accept.
    pub classes: Vec<Vec<u8>>,
    /// The station's IPv4 address.
    pub framed_ip: Option<Ipv4Addr>,
}

impl StationAccountingRecord {
    /// Creates a record with these fields only.
    #[must_use]
    pub const fn new(kind: AccountingRecordKind, station: StationId, session: String, number: u32) -> Self {
        Self {
            kind,
            station,
            name: Vec::new(),
            session,
            number,
            lasted: Duration::ZERO,
            traffic: None,
            cause: TerminateCause::UserRequest,
            classes: Vec::new(),
            framed_ip: None,
        }
    }
}

//! Records of accounting of stations.

use crate::station_id::StationId;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use usher_access::{RecordKind, SessionTraffic, TerminateCause};
use usher_core::Duration;

/// A record of accounting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StationRecord {
    /// What has happened.
    pub kind: RecordKind,
    /// To whom.
    pub station: StationId,
    /// The identity that the station gave.
    pub name: Vec<u8>,
    /// The session's name, unique among all of this NAS (Acct-Session-Id); over Diameter, the last part of its Session-Id.
    pub session: String,
    /// Its number within the session, from zero (Accounting-Record-Number).
    pub number: u32,
    /// How long the session has lasted (Acct-Session-Time); a start has none.
    pub lasted: Duration,
    /// What went through it; a start has none.
    pub traffic: Option<SessionTraffic>,
    /// Why it ended; of meaning in a stop.
    pub cause: TerminateCause,
    /// Class of the reply that let the station in.
    pub classes: Vec<Vec<u8>>,
    /// The station's IPv4 address.
    pub framed_ip: Option<Ipv4Addr>,
}

impl StationRecord {
    /// A record that says no more than this.
    #[must_use]
    pub const fn new(kind: RecordKind, station: StationId, session: String, number: u32) -> Self {
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

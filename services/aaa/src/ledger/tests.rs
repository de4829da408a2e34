//! Scenarios: records in their order, out of it, twice, and with a store that fails.

mod durable;
mod limits;
mod records;
mod sessions;

use super::*;
use crate::store::{Memory, SessionRow, Store};
use alloc::string::ToString;
use usher_core::WallTime;

const NAS: &str = "192.0.2.1";
/// Wall time at [`Instant::ZERO`].
const BEGIN: u64 = 1_800_000_000;

fn at(secs: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(secs)
}
fn wall(secs: u64) -> WallTime {
    WallTime::from_unix_secs(BEGIN + secs)
}

/// A record of anna's session that happened then.
fn record(status: Status, id: &str, secs: u64) -> Record {
    let whole = matches!(status, Status::On | Status::Off);
    let session = SessionKey {
        nas: NAS.parse().unwrap(),
        id: if whole { "" } else { id }.into(),
        user: if whole { "" } else { "anna@example.org" }.into(),
    };
    let mut record = Record::new(status, session, wall(secs));
    (record.timed, record.stamped) = (true, true);
    record.calling_station_id = "02-00-00-00-00-01".into();
    record
}
fn counted(status: Status, id: &str, secs: u64, length: u64, octets: u64) -> Record {
    let mut record = record(status, id, secs);
    record.session_time = Some(length);
    record.input_octets = Some(octets);
    record.output_octets = Some(10 * octets);
    record
}

/// A ledger with its store.
struct World {
    ledger: Ledger,
    store: Memory,
}

impl World {
    fn new(config: LedgerConfig) -> Self {
        Self { ledger: Ledger::new(config), store: Memory::new() }
    }
    /// Gives a record when it happens; true: acknowledged.
    #[track_caller]
    fn tell(&mut self, record: &Record) -> bool {
        let secs = record.at.unix_secs() - BEGIN;
        self.tell_at(secs, record)
    }
    fn tell_at(&mut self, secs: u64, record: &Record) -> bool {
        let record = Record { came: wall(secs), ..record.clone() };
        self.ledger.serve(at(secs), &mut self.store, &record)
    }
    /// The host dies and comes again with nothing but its store.
    fn restart(&mut self, secs: u64) {
        self.ledger = Ledger::new(self.ledger.config.clone());
        let ledger = &mut self.ledger;
        self.store.open_sessions(&mut |row| assert!(ledger.restore(at(secs), &row))).unwrap();
    }
    fn rows(&self) -> Vec<SessionRow> {
        self.store.sessions().cloned().collect()
    }
    /// The only row.
    #[track_caller]
    fn row(&self) -> SessionRow {
        let rows = self.rows();
        assert_eq!(rows.len(), 1, "{rows:#?}");
        rows[0].clone()
    }
    /// Begin and end of all rows, in seconds, in the order of their beginning.
    fn spans(&self) -> Vec<(u64, Option<u64>)> {
        let secs = |t: WallTime| t.unix_secs() - BEGIN;
        let mut spans: Vec<_> =
            self.rows().iter().map(|r| (secs(r.acctstarttime.unwrap()), r.acctstoptime.map(secs))).collect();
        spans.sort_unstable();
        spans
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new(LedgerConfig::default())
    }
}

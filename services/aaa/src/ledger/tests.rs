//! Scenarios: records in order, out of order, repeated, and with a store that fails.

mod durable;
mod limits;
mod records;
mod sessions;

use super::*;
use crate::store::{MemoryStore, SessionRow, Store};
use alloc::string::ToString;
use usher_core::WallTime;

const NAS: &str = "192.0.2.1";
/// Wall time at [`Instant::ZERO`].
const BEGIN: u64 = 1_800_000_000;

fn instant_at(secs: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(secs)
}
fn wall_at(secs: u64) -> WallTime {
    WallTime::from_unix_secs(BEGIN + secs)
}

/// Returns a record of anna's session with this event time.
fn build_record(status: AccountingStatusType, id: &str, secs: u64) -> LedgerRecord {
    let whole = matches!(status, AccountingStatusType::On | AccountingStatusType::Off);
    let session = NasSessionKey {
        nas: NAS.parse().unwrap(),
        id: if whole { "" } else { id }.into(),
        user: if whole { "" } else { "anna@example.org" }.into(),
    };
    let mut record = LedgerRecord::new(status, session, wall_at(secs));
    (record.timed, record.stamped) = (true, true);
    record.calling_station_id = "02-00-00-00-00-01".into();
    record
}
fn counted_record(
    status: AccountingStatusType,
    id: &str,
    secs: u64,
    length: u64,
    octets: u64,
) -> LedgerRecord {
    let mut record = build_record(status, id, secs);
    record.session_time = Some(length);
    record.input_octets = Some(octets);
    record.output_octets = Some(10 * octets);
    record
}

/// A ledger with its store.
struct LedgerFixture {
    ledger: Ledger,
    store: MemoryStore,
}

impl LedgerFixture {
    fn new(config: LedgerConfig) -> Self {
        Self { ledger: Ledger::new(config), store: MemoryStore::new() }
    }
    /// Applies a record at its event time. True: acknowledged.
    #[track_caller]
    fn send_record(&mut self, record: &LedgerRecord) -> bool {
        let secs = record.occurred_at.unix_secs() - BEGIN;
        self.commit_at(secs, record)
    }
    fn commit_at(&mut self, secs: u64, record: &LedgerRecord) -> bool {
        let record = LedgerRecord { received_at: wall_at(secs), ..record.clone() };
        self.ledger.commit_record(instant_at(secs), &mut self.store, &record)
    }
    /// Restarts the host, which keeps only its store.
    fn restart_host(&mut self, secs: u64) {
        self.ledger = Ledger::new(self.ledger.config.clone());
        let ledger = &mut self.ledger;
        self.store.open_sessions(&mut |row| assert!(ledger.restore_session(instant_at(secs), &row))).unwrap();
    }
    fn rows(&self) -> Vec<SessionRow> {
        self.store.sessions().cloned().collect()
    }
    /// Returns the only row.
    #[track_caller]
    fn only_row(&self) -> SessionRow {
        let rows = self.rows();
        assert_eq!(rows.len(), 1, "{rows:#?}");
        rows[0].clone()
    }
    /// Returns start and stop of all rows in seconds, by start.
    fn session_spans(&self) -> Vec<(u64, Option<u64>)> {
        let secs = |t: WallTime| t.unix_secs() - BEGIN;
        let mut spans: Vec<_> =
            self.rows().iter().map(|r| (secs(r.acctstarttime.unwrap()), r.acctstoptime.map(secs))).collect();
        spans.sort_unstable();
        spans
    }
}

impl Default for LedgerFixture {
    fn default() -> Self {
        Self::new(LedgerConfig::default())
    }
}

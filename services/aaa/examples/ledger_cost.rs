//! Measures the cost of an open session in the ledger: octets of memory, and time per record.
//!
//! `cargo run --release -p usher-aaa --example ledger_cost [SESSIONS] [pool]`: with `pool`, sessions have leased
//! addresses.

use std::time::Instant as Monotonic;
use usher_aaa::ledger::{
    AccountingStatusType, Ledger, LedgerConfig, LedgerRecord, NasSessionKey, PoolConfig, RecordOutcome,
    SessionFilter,
};
use usher_core::{Duration, Instant, WallTime};

/// Resident octets of this process.
fn resident_octets() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0) * 4096
}

fn build_record(status: AccountingStatusType, i: u32) -> LedgerRecord {
    let key = NasSessionKey {
        nas: [10, 200, 0, (i % 64) as u8].into(),
        id: format!("{:08X}-{i:08X}", 0x5f3a_0000_u32),
        user: format!("user{i}@example.org"),
    };
    let seconds = if status == AccountingStatusType::Start { 0 } else { 300 };
    let mut record = LedgerRecord::new(status, key, WallTime::from_unix_secs(1_800_000_000 + seconds));
    record.timed = true;
    record.port = (i % 4096).to_string();
    record.port_type = Some(19);
    record.calling_station_id = format!("02-00-00-{:02X}-{:02X}-{:02X}", i >> 16, i >> 8 & 255, i & 255);
    record.called_station_id = "02-FF-00-00-00-01:example".into();
    record.framed_address = Some([10, (i >> 16) as u8, (i >> 8) as u8, i as u8].into());
    record.class = b"0123456789abcdef".to_vec();
    if status != AccountingStatusType::Start {
        record.session_time = Some(seconds);
        (record.input_octets, record.output_octets) = (Some(1 << 20), Some(1 << 24));
    }
    record
}

/// Applies a record for each session, none of which the store has. Returns nanoseconds per record. All changes
/// count as written.
fn measure_record_cost(ledger: &mut Ledger, status: AccountingStatusType, sessions: u32) -> f64 {
    let now = Instant::ZERO + Duration::from_secs(1);
    let mut nanos = 0;
    let mut changes = Vec::new();
    for i in 0..sessions {
        let record = build_record(status, i);
        let begun = Monotonic::now();
        while let RecordOutcome::LookupNeeded(unique) = ledger.apply_record(now, &record) {
            ledger.apply_stored_row(now, unique, None);
        }
        if i % 256 == 255 || i + 1 == sessions {
            while ledger.take_store_changes(&mut changes, 256).is_some() {
                ledger.finish_batch(usher_aaa::ledger::BatchWriteOutcome::Durable);
                changes.clear();
            }
        }
        nanos += begun.elapsed().as_nanos();
    }
    nanos as f64 / f64::from(sessions)
}

fn main() {
    let sessions = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let pooled = std::env::args().nth(2).is_some_and(|what| what == "pool");
    let pool = PoolConfig { name: "all".into(), ranges: vec!["10.0.0.0/8".parse().expect("a range")] };
    let pools = if pooled { vec![pool] } else { vec![] };
    let mut ledger = Ledger::new(LedgerConfig { pools, max_ended_sessions: 1000, ..LedgerConfig::default() });
    let before = resident_octets();
    let start = measure_record_cost(&mut ledger, AccountingStatusType::Start, sessions);
    let octets = resident_octets().saturating_sub(before) as f64 / f64::from(sessions);
    let interim = measure_record_cost(&mut ledger, AccountingStatusType::Interim, sessions);
    let begun = Monotonic::now();
    let found = (0..sessions)
        .filter(|i| {
            let address = [10, (i >> 16) as u8, (i >> 8) as u8, *i as u8].into();
            ledger.find_sessions(SessionFilter::Address(address)).len() == 1
        })
        .count();
    let find = begun.elapsed().as_nanos() as f64 / f64::from(sessions);
    println!(
        "{sessions} sessions: {octets:.0} octets each; start {start:.0} ns, interim {interim:.0} ns, who has an \
         address {find:.0} ns ({found} found)"
    );
    measure_record_cost(&mut ledger, AccountingStatusType::Stop, sessions);
    assert_eq!(ledger.len(), 0);
}

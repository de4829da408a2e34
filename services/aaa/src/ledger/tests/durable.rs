//! An acknowledged record is in the store, whatever fails and whenever.

use super::*;
use crate::store::{ClientRow, GroupRows, StoreChange, StoreError, UserRows};
use AccountingStatusType::{Interim, Off, On, Start, Stop};
use proptest::collection::vec;
use proptest::prelude::*;

/// The result of writing a batch in a test store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriteOutcome {
    Written,
    /// The store was unavailable.
    Away,
    /// All was written, but the connection broke before the reply.
    WrittenUnacknowledged,
}

/// A store that always refuses sessions of one id.
struct RefusingStore {
    memory: MemoryStore,
    id: &'static str,
    writes: usize,
}

impl Store for RefusingStore {
    fn write_changes(&mut self, changes: &[StoreChange]) -> Result<(), StoreError> {
        self.writes += 1;
        let bad = |c: &StoreChange| matches!(c, StoreChange::Session(row) if row.acctsessionid == self.id);
        if changes.iter().any(bad) {
            return Err(StoreError::Refused("no such column".into()));
        }
        self.memory.write_changes(changes)
    }
    fn find_session(&mut self, acctuniqueid: &str) -> Result<Option<SessionRow>, StoreError> {
        self.memory.find_session(acctuniqueid)
    }
    fn find_user(&mut self, name: &str) -> Result<Option<UserRows>, StoreError> {
        self.memory.find_user(name)
    }
    fn open_sessions(&mut self, each: &mut dyn FnMut(SessionRow)) -> Result<(), StoreError> {
        self.memory.open_sessions(each)
    }
    fn list_clients(&mut self) -> Result<Vec<ClientRow>, StoreError> {
        self.memory.list_clients()
    }
    fn user_names(
        &mut self,
        after: Option<&str>,
        most: u32,
    ) -> Result<Vec<alloc::string::String>, StoreError> {
        self.memory.user_names(after, most)
    }
    fn put_user(&mut self, name: &str, rows: &UserRows) -> Result<(), StoreError> {
        self.memory.put_user(name, rows)
    }
    fn delete_user(&mut self, name: &str) -> Result<bool, StoreError> {
        self.memory.delete_user(name)
    }
    fn put_group(&mut self, group: &GroupRows) -> Result<(), StoreError> {
        self.memory.put_group(group)
    }
    fn put_client(&mut self, client: &ClientRow) -> Result<(), StoreError> {
        self.memory.put_client(client)
    }
    fn delete_client(&mut self, nasname: &str) -> Result<bool, StoreError> {
        self.memory.delete_client(nasname)
    }
}

#[test]
fn a_record_is_written_again_until_it_is_durable() {
    let mut w = LedgerFixture::default();
    w.store.set_store_unavailable(true);
    assert!(!w.send_record(&build_record(Start, "1", 10)));
    assert!(!w.send_record(&build_record(Start, "1", 10)));
    assert_eq!(w.ledger.len(), 0, "the store was asked first, and could not say");
    w.store.set_store_unavailable(false);
    assert!(w.send_record(&build_record(Start, "1", 10)));
    w.store.set_store_unavailable(true);
    assert!(!w.send_record(&counted_record(Stop, "1", 20, 10, 1)));
    assert!(!w.send_record(&counted_record(Stop, "1", 20, 10, 1)));
    assert_eq!((w.ledger.unwritten_change_count(), w.only_row().acctstoptime), (1, None));
    w.store.set_store_unavailable(false);
    assert!(w.send_record(&counted_record(Stop, "1", 20, 10, 1)));
    assert_eq!((w.ledger.unwritten_change_count(), w.only_row().acctstoptime), (0, Some(wall_at(20))));
    assert_eq!(w.ledger.counters().stopped, 1);
}

#[test]
fn retransmissions_wait_for_the_write_that_is_under_way() {
    let mut w = LedgerFixture::default();
    let start = build_record(Start, "1", 10);
    let RecordOutcome::LookupNeeded(unique) = w.ledger.apply_record(instant_at(10), &start) else { panic!() };
    w.ledger.apply_stored_row(instant_at(10), unique, None);
    let RecordOutcome::Write(first) = w.ledger.apply_record(instant_at(10), &start) else { panic!() };
    assert_eq!(w.ledger.apply_record(instant_at(11), &start), RecordOutcome::Write(first));
    let mut batch = Vec::new();
    assert_eq!(w.ledger.take_store_changes(&mut batch, 10), Some(first));
    assert_eq!(w.ledger.apply_record(instant_at(12), &start), RecordOutcome::Write(first));
    // Further records during the first write wait for another write.
    let RecordOutcome::Write(second) =
        w.ledger.apply_record(instant_at(70), &counted_record(Interim, "1", 70, 60, 1))
    else {
        panic!()
    };
    assert!(second > first);
    assert_eq!(w.ledger.take_store_changes(&mut batch, 10), None, "one batch at a time");
    w.ledger.finish_batch(BatchWriteOutcome::Failed);
    batch.clear();
    assert_eq!(w.ledger.take_store_changes(&mut batch, 10), Some(second));
    assert_eq!(batch.len(), 2);
    w.store.write_changes(&batch).unwrap();
    w.ledger.finish_batch(BatchWriteOutcome::Durable);
    assert_eq!(w.ledger.apply_record(instant_at(80), &start), RecordOutcome::Durable);
    assert_eq!((w.ledger.unwritten_change_count(), w.only_row().interims), (0, 1));
}

#[test]
fn what_a_store_refuses_does_not_hold_up_the_rest() {
    let mut ledger = Ledger::new(LedgerConfig::default());
    let mut store = RefusingStore { memory: MemoryStore::new(), id: "2", writes: 0 };
    let mut numbers = Vec::new();
    for id in ["1", "2", "3"] {
        let start = build_record(Start, id, 10);
        ledger.apply_stored_row(instant_at(10), start.unique, None);
        let RecordOutcome::Write(n) = ledger.apply_record(instant_at(10), &start) else { panic!() };
        numbers.push(n);
    }
    let commit = ledger.commit_changes(&mut store, 10);
    let fates: Vec<_> = numbers.iter().map(|n| commit.record_durability(*n)).collect();
    assert_eq!(fates, [Some(true), Some(false), Some(true)]);
    assert_eq!((commit.written, store.writes), (2, 5));
    assert!(matches!(commit.error, Some(StoreError::Refused(_))));
    assert_eq!((ledger.unwritten_change_count(), ledger.counters().refused), (0, 1));
    assert_eq!(commit.record_durability(numbers[2] + 1), None);
    // No record of the session is ever acknowledged, neither a duplicate nor a later one.
    assert!(!ledger.commit_record(instant_at(20), &mut store, &build_record(Start, "2", 10)));
    assert!(!ledger.commit_record(instant_at(30), &mut store, &counted_record(Stop, "2", 30, 20, 1)));
    assert!(!ledger.commit_record(instant_at(40), &mut store, &counted_record(Stop, "2", 30, 20, 1)));
    assert_eq!((ledger.len(), ledger.unwritten_change_count(), store.memory.sessions().count()), (2, 0, 2));
    // Once the store accepts the session, it is written.
    store.id = "none";
    assert!(ledger.commit_record(instant_at(50), &mut store, &counted_record(Stop, "2", 30, 20, 1)));
    assert_eq!(store.memory.sessions().count(), 3);
}

#[test]
fn a_change_that_is_refused_costs_its_batch_a_few_writes() {
    let mut ledger = Ledger::new(LedgerConfig::default());
    let mut store = RefusingStore { memory: MemoryStore::new(), id: "700", writes: 0 };
    for n in 0..1000 {
        let start = build_record(Start, &n.to_string(), 10);
        ledger.apply_stored_row(instant_at(10), start.unique, None);
        assert!(matches!(ledger.apply_record(instant_at(10), &start), RecordOutcome::Write(_)));
    }
    let commit = ledger.commit_changes(&mut store, 1000);
    assert_eq!((commit.written, commit.refused.len(), ledger.unwritten_change_count()), (999, 1, 0));
    assert!(store.writes < 40, "{}", store.writes);
}

#[test]
fn a_refused_batch_is_split_and_stops_at_the_refused_record() {
    let mut ledger = Ledger::new(LedgerConfig::default());
    let mut store = RefusingStore { memory: MemoryStore::new(), id: "1", writes: 0 };
    for id in ["1", "2", "3", "4"] {
        let start = build_record(Start, id, 10);
        ledger.apply_stored_row(instant_at(10), start.unique, None);
        assert!(matches!(ledger.apply_record(instant_at(10), &start), RecordOutcome::Write(_)));
    }
    let commit = ledger.commit_changes(&mut store, 2);
    assert_eq!((commit.last_number, commit.written, ledger.unwritten_change_count()), (Some(2), 1, 2));
}

#[test]
fn an_unwritten_nas_restart_is_written_in_its_order() {
    let mut w = LedgerFixture::default();
    assert!(w.send_record(&build_record(Start, "1", 10)));
    w.store.set_store_unavailable(true);
    assert!(!w.send_record(&build_record(Off, "", 100)));
    let after = build_record(Start, "2", 110);
    w.ledger.apply_stored_row(instant_at(110), after.unique, None);
    assert!(!w.send_record(&after));
    assert!(!w.commit_at(115, &build_record(On, "", 105)));
    w.store.set_store_unavailable(false);
    assert!(w.commit_at(120, &build_record(Off, "", 100)));
    assert!(w.commit_at(120, &after));
    assert!(w.commit_at(120, &build_record(On, "", 105)));
    assert_eq!(w.session_spans(), [(10, Some(100)), (110, None)]);
    assert_eq!((w.ledger.len(), w.ledger.unwritten_change_count()), (1, 0));
}

#[test]
fn restarts_that_cannot_be_written_have_bounded_room() {
    let mut w = LedgerFixture::default();
    assert!(w.send_record(&build_record(Start, "1", 10)));
    // The store is unavailable. Each restart ends the session, and then its NAS reports it again.
    assert!(matches!(
        w.ledger.apply_record(instant_at(11), &build_record(Interim, "1", 11)),
        RecordOutcome::Write(_)
    ));
    for n in 0..70_000_u32 {
        let mut on = build_record(On, "", 20 + 2 * u64::from(n));
        on.unique =
            UniqueSessionId::from_freeradius_parts([b"", &n.to_be_bytes(), NAS.as_bytes(), b"", b"", b""]);
        let interim = build_record(Interim, "1", 21 + 2 * u64::from(n));
        let _ = (w.ledger.apply_record(instant_at(20), &on), w.ledger.apply_record(instant_at(20), &interim));
    }
    assert!(w.ledger.unwritten_change_count() < 70_000, "{}", w.ledger.unwritten_change_count());
    assert!(w.ledger.counters().busy > 0);
    assert!(w.ledger.commit_changes(&mut w.store, usize::MAX).error.is_none());
    assert_eq!((w.ledger.unwritten_change_count(), w.ledger.len(), w.only_row().acctstoptime), (0, 1, None));
    assert!(w.send_record(&build_record(On, "", 1_000_000)));
}

#[test]
fn without_room_nothing_is_acknowledged() {
    let mut w = LedgerFixture::new(LedgerConfig { max_sessions: 2, ..LedgerConfig::default() });
    assert!(w.send_record(&build_record(Start, "1", 10)));
    assert!(w.send_record(&build_record(Start, "2", 10)));
    assert!(!w.send_record(&build_record(Start, "3", 10)));
    assert!(w.send_record(&counted_record(Stop, "1", 20, 10, 1)));
    assert!(w.send_record(&build_record(Start, "3", 10)));
    assert_eq!((w.ledger.len(), w.ledger.counters().busy), (2, 1));
}

#[test]
fn one_client_leaves_room_for_the_others() {
    let mut w = LedgerFixture::new(LedgerConfig { max_sessions: 100, ..LedgerConfig::default() });
    let client = |n: u8| Some((IpAddr::from([10, n, 0, 0]), 16));
    // Returns how many sessions of a client start until the ledger is full, at its `time`th attempt.
    let begun = |w: &mut LedgerFixture, n: u8, time: u8| {
        let ids = (0..200).map(|id| format!("{n}-{time}-{id}"));
        let started =
            |id: &String| w.send_record(&LedgerRecord { client: client(n), ..build_record(Start, id, 10) });
        ids.take_while(started).count()
    };
    let tries = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)];
    assert_eq!(tries.map(|(n, time)| begun(&mut w, n, time)), [90, 0, 9, 0, 1]);
    // Ended sessions make room again.
    for id in 0..10 {
        let stop = counted_record(Stop, &format!("1-1-{id}"), 20, 10, 1);
        assert!(w.send_record(&LedgerRecord { client: client(1), ..stop }));
    }
    assert_eq!([(4, 1), (1, 3), (4, 2)].map(|(n, time)| begun(&mut w, n, time)), [9, 0, 0]);
}

/// A host that does all in turn and records its acknowledgements.
struct LedgerTestHost {
    ledger: Ledger,
    store: MemoryStore,
    flying: Option<(Vec<StoreChange>, u64)>,
    waiting: Vec<(u64, usize)>,
    acknowledged: Vec<bool>,
    records: Vec<LedgerRecord>,
}

impl LedgerTestHost {
    fn send_record(&mut self, i: usize) {
        let record = self.records[i].clone();
        loop {
            match self.ledger.apply_record(instant_at(1000), &record) {
                RecordOutcome::Durable => return self.acknowledge_record(i),
                RecordOutcome::Write(n) => return self.waiting.push((n, i)),
                RecordOutcome::Busy => return,
                RecordOutcome::LookupNeeded(unique) => {
                    let row = self.store.find_session(&unique.to_string()).unwrap();
                    self.ledger.apply_stored_row(instant_at(1000), unique, row);
                }
            }
        }
    }
    fn take_batch(&mut self, most: usize) {
        let mut batch = Vec::new();
        if let Some(through) = self.ledger.take_store_changes(&mut batch, most) {
            self.flying = Some((batch, through));
        }
    }
    fn finish_batch(&mut self, fate: WriteOutcome) {
        let Some((batch, through)) = self.flying.take() else { return };
        if fate != WriteOutcome::Away {
            self.store.write_changes(&batch).unwrap();
        }
        self.ledger.finish_batch(if fate == WriteOutcome::Written {
            BatchWriteOutcome::Durable
        } else {
            BatchWriteOutcome::Failed
        });
        for (n, i) in core::mem::take(&mut self.waiting) {
            if n > through {
                self.waiting.push((n, i));
            } else if fate == WriteOutcome::Written {
                self.acknowledge_record(i);
            }
        }
    }
    fn crash_host(&mut self) {
        self.ledger = Ledger::new(LedgerConfig::default());
        let ledger = &mut self.ledger;
        self.store.open_sessions(&mut |row| assert!(ledger.restore_session(instant_at(1000), &row))).unwrap();
        self.flying = None;
        self.waiting.clear();
    }
    /// The store must have the record by now.
    fn acknowledge_record(&mut self, i: usize) {
        self.acknowledged[i] = true;
        let record = &self.records[i];
        let row = self
            .store
            .find_session(&record.unique.to_string())
            .unwrap()
            .expect("an acknowledged session is in the store");
        assert!(row.acctsessiontime >= record.session_time.unwrap_or(0), "{row:?}");
        assert!(record.status != Stop || row.acctstoptime == Some(record.occurred_at), "{row:?}");
    }
}

#[derive(Clone, Copy, Debug)]
enum LedgerStep {
    Report(usize),
    TakeBatch(usize),
    Settle(WriteOutcome),
    Crash,
}

fn step_strategy(records: usize) -> impl Strategy<Value = LedgerStep> {
    prop_oneof![
        8 => (0..records).prop_map(LedgerStep::Report),
        3 => (1..5_usize).prop_map(LedgerStep::TakeBatch),
        2 => Just(LedgerStep::Settle(WriteOutcome::Written)),
        1 => Just(LedgerStep::Settle(WriteOutcome::Away)),
        1 => Just(LedgerStep::Settle(WriteOutcome::WrittenUnacknowledged)),
        1 => Just(LedgerStep::Crash),
    ]
}

proptest! {
    #[test]
    fn every_acknowledged_record_is_in_the_store_exactly_once(steps in vec(step_strategy(12), 0..120)) {
        let mut records = Vec::new();
        for id in ["a", "b", "c"] {
            records.push(build_record(Start, id, 10));
            records.push(counted_record(Interim, id, 70, 60, 5));
            records.push(counted_record(Interim, id, 130, 120, 9));
            records.push(counted_record(Stop, id, 190, 180, 12));
        }
        let mut host = LedgerTestHost {
            ledger: Ledger::new(LedgerConfig::default()),
            store: MemoryStore::new(),
            flying: None,
            waiting: Vec::new(),
            acknowledged: alloc::vec![false; records.len()],
            records,
        };
        for step in steps {
            match step {
                LedgerStep::Report(i) => host.send_record(i),
                LedgerStep::TakeBatch(most) => host.take_batch(most),
                LedgerStep::Settle(fate) => host.finish_batch(fate),
                LedgerStep::Crash => host.crash_host(),
            }
        }
        host.finish_batch(WriteOutcome::Written);
        // A NAS without a reply retransmits.
        for i in 0..host.records.len() {
            if !host.acknowledged[i] {
                host.send_record(i);
            }
        }
        while host.ledger.unwritten_change_count() > 0 {
            host.take_batch(2);
            host.finish_batch(WriteOutcome::Written);
        }
        prop_assert!(host.acknowledged.iter().all(|a| *a));
        prop_assert_eq!(host.store.sessions().count(), 3);
        for row in host.store.sessions() {
            prop_assert_eq!((row.acctstarttime, row.acctstoptime), (Some(wall_at(10)), Some(wall_at(190))));
            prop_assert_eq!((row.acctsessiontime, row.acctinputoctets, row.acctoutputoctets), (180, 12, 120));
            prop_assert!(row.interims <= 2);
        }
        prop_assert!(host.ledger.is_empty());
    }
}

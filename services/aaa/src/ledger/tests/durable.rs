//! What is acknowledged is in the store, whatever fails and whenever.

use super::*;
use crate::store::{Change, ClientRow, GroupRows, StoreError, UserRows};
use Status::{Interim, Off, On, Start, Stop};
use proptest::collection::vec;
use proptest::prelude::*;

/// What a store does with a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Written,
    /// It was not there.
    Away,
    /// It broke in the moment of its answer.
    WrittenUnheard,
}

/// A store that refuses sessions of one id for ever.
struct Picky {
    memory: Memory,
    id: &'static str,
    writes: usize,
}

impl Store for Picky {
    fn write(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.writes += 1;
        let bad = |c: &Change| matches!(c, Change::Session(row) if row.acctsessionid == self.id);
        if changes.iter().any(bad) {
            return Err(StoreError::Refused("no such column".into()));
        }
        self.memory.write(changes)
    }
    fn session(&mut self, acctuniqueid: &str) -> Result<Option<SessionRow>, StoreError> {
        self.memory.session(acctuniqueid)
    }
    fn user(&mut self, name: &str) -> Result<Option<UserRows>, StoreError> {
        self.memory.user(name)
    }
    fn open_sessions(&mut self, each: &mut dyn FnMut(SessionRow)) -> Result<(), StoreError> {
        self.memory.open_sessions(each)
    }
    fn clients(&mut self) -> Result<Vec<ClientRow>, StoreError> {
        self.memory.clients()
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
    let mut w = World::default();
    w.store.set_away(true);
    assert!(!w.tell(&record(Start, "1", 10)));
    assert!(!w.tell(&record(Start, "1", 10)));
    assert_eq!(w.ledger.len(), 0, "the store was asked first, and could not say");
    w.store.set_away(false);
    assert!(w.tell(&record(Start, "1", 10)));
    w.store.set_away(true);
    assert!(!w.tell(&counted(Stop, "1", 20, 10, 1)));
    assert!(!w.tell(&counted(Stop, "1", 20, 10, 1)));
    assert_eq!((w.ledger.unwritten(), w.row().acctstoptime), (1, None));
    w.store.set_away(false);
    assert!(w.tell(&counted(Stop, "1", 20, 10, 1)));
    assert_eq!((w.ledger.unwritten(), w.row().acctstoptime), (0, Some(wall(20))));
    assert_eq!(w.ledger.counters().stopped, 1);
}

#[test]
fn retransmissions_wait_for_the_write_that_is_under_way() {
    let mut w = World::default();
    let start = record(Start, "1", 10);
    let Accounting::Ask(unique) = w.ledger.account(at(10), &start) else { panic!() };
    w.ledger.answer(at(10), unique, None);
    let Accounting::Write(first) = w.ledger.account(at(10), &start) else { panic!() };
    assert_eq!(w.ledger.account(at(11), &start), Accounting::Write(first));
    let mut batch = Vec::new();
    assert_eq!(w.ledger.changes(&mut batch, 10), Some(first));
    assert_eq!(w.ledger.account(at(12), &start), Accounting::Write(first));
    // More is told while the first is being written: that waits for another.
    let Accounting::Write(second) = w.ledger.account(at(70), &counted(Interim, "1", 70, 60, 1)) else {
        panic!()
    };
    assert!(second > first);
    assert_eq!(w.ledger.changes(&mut batch, 10), None, "one batch at a time");
    w.ledger.settle(Settled::Failed);
    batch.clear();
    assert_eq!(w.ledger.changes(&mut batch, 10), Some(second));
    assert_eq!(batch.len(), 2);
    w.store.write(&batch).unwrap();
    w.ledger.settle(Settled::Durable);
    assert_eq!(w.ledger.account(at(80), &start), Accounting::Durable);
    assert_eq!((w.ledger.unwritten(), w.row().interims), (0, 1));
}

#[test]
fn what_a_store_refuses_does_not_hold_up_the_rest() {
    let mut ledger = Ledger::new(LedgerConfig::default());
    let mut store = Picky { memory: Memory::new(), id: "2", writes: 0 };
    let mut numbers = Vec::new();
    for id in ["1", "2", "3"] {
        let start = record(Start, id, 10);
        ledger.answer(at(10), start.unique, None);
        let Accounting::Write(n) = ledger.account(at(10), &start) else { panic!() };
        numbers.push(n);
    }
    let commit = ledger.commit(&mut store, 10);
    let fates: Vec<_> = numbers.iter().map(|n| commit.durable(*n)).collect();
    assert_eq!(fates, [Some(true), Some(false), Some(true)]);
    assert_eq!((commit.written, store.writes), (2, 5));
    assert!(matches!(commit.error, Some(StoreError::Refused(_))));
    assert_eq!((ledger.unwritten(), ledger.counters().refused), (0, 1));
    assert_eq!(commit.durable(numbers[2] + 1), None);
    // Nothing of it is ever acknowledged: neither the same again, nor more.
    assert!(!ledger.serve(at(20), &mut store, &record(Start, "2", 10)));
    assert!(!ledger.serve(at(30), &mut store, &counted(Stop, "2", 30, 20, 1)));
    assert!(!ledger.serve(at(40), &mut store, &counted(Stop, "2", 30, 20, 1)));
    assert_eq!((ledger.len(), ledger.unwritten(), store.memory.sessions().count()), (2, 0, 2));
    // Once its store takes it, it is there.
    store.id = "none";
    assert!(ledger.serve(at(50), &mut store, &counted(Stop, "2", 30, 20, 1)));
    assert_eq!(store.memory.sessions().count(), 3);
}

#[test]
fn a_change_that_is_refused_costs_its_batch_a_few_writes() {
    let mut ledger = Ledger::new(LedgerConfig::default());
    let mut store = Picky { memory: Memory::new(), id: "700", writes: 0 };
    for n in 0..1000 {
        let start = record(Start, &n.to_string(), 10);
        ledger.answer(at(10), start.unique, None);
        assert!(matches!(ledger.account(at(10), &start), Accounting::Write(_)));
    }
    let commit = ledger.commit(&mut store, 1000);
    assert_eq!((commit.written, commit.refused.len(), ledger.unwritten()), (999, 1, 0));
    assert!(store.writes < 40, "{}", store.writes);
}

#[test]
fn a_batch_that_is_refused_is_written_in_parts_and_nothing_behind_it() {
    let mut ledger = Ledger::new(LedgerConfig::default());
    let mut store = Picky { memory: Memory::new(), id: "1", writes: 0 };
    for id in ["1", "2", "3", "4"] {
        let start = record(Start, id, 10);
        ledger.answer(at(10), start.unique, None);
        assert!(matches!(ledger.account(at(10), &start), Accounting::Write(_)));
    }
    let commit = ledger.commit(&mut store, 2);
    assert_eq!((commit.through, commit.written, ledger.unwritten()), (Some(2), 1, 2));
}

#[test]
fn a_restart_of_a_nas_that_is_not_written_is_written_in_its_place() {
    let mut w = World::default();
    assert!(w.tell(&record(Start, "1", 10)));
    w.store.set_away(true);
    assert!(!w.tell(&record(Off, "", 100)));
    let after = record(Start, "2", 110);
    w.ledger.answer(at(110), after.unique, None);
    assert!(!w.tell(&after));
    assert!(!w.tell_at(115, &record(On, "", 105)));
    w.store.set_away(false);
    assert!(w.tell_at(120, &record(Off, "", 100)));
    assert!(w.tell_at(120, &after));
    assert!(w.tell_at(120, &record(On, "", 105)));
    assert_eq!(w.spans(), [(10, Some(100)), (110, None)]);
    assert_eq!((w.ledger.len(), w.ledger.unwritten()), (1, 0));
}

#[test]
fn restarts_that_cannot_be_written_have_bounded_room() {
    let mut w = World::default();
    assert!(w.tell(&record(Start, "1", 10)));
    // The store is away; each restart ends the session, of which its NAS then tells again.
    assert!(matches!(w.ledger.account(at(11), &record(Interim, "1", 11)), Accounting::Write(_)));
    for n in 0..70_000_u32 {
        let mut on = record(On, "", 20 + 2 * u64::from(n));
        on.unique = Unique::of([b"", &n.to_be_bytes(), NAS.as_bytes(), b"", b"", b""]);
        let interim = record(Interim, "1", 21 + 2 * u64::from(n));
        let _ = (w.ledger.account(at(20), &on), w.ledger.account(at(20), &interim));
    }
    assert!(w.ledger.unwritten() < 70_000, "{}", w.ledger.unwritten());
    assert!(w.ledger.counters().busy > 0);
    assert!(w.ledger.commit(&mut w.store, usize::MAX).error.is_none());
    assert_eq!((w.ledger.unwritten(), w.ledger.len(), w.row().acctstoptime), (0, 1, None));
    assert!(w.tell(&record(On, "", 1_000_000)));
}

#[test]
fn without_room_nothing_is_acknowledged() {
    let mut w = World::new(LedgerConfig { max_sessions: 2, ..LedgerConfig::default() });
    assert!(w.tell(&record(Start, "1", 10)));
    assert!(w.tell(&record(Start, "2", 10)));
    assert!(!w.tell(&record(Start, "3", 10)));
    assert!(w.tell(&counted(Stop, "1", 20, 10, 1)));
    assert!(w.tell(&record(Start, "3", 10)));
    assert_eq!((w.ledger.len(), w.ledger.counters().busy), (2, 1));
}

#[test]
fn one_client_leaves_room_for_the_others() {
    let mut w = World::new(LedgerConfig { max_sessions: 100, ..LedgerConfig::default() });
    let client = |n: u8| Some((IpAddr::from([10, n, 0, 0]), 16));
    // How many sessions of a client begin until there is no room, the `time`th time that it tries.
    let begun = |w: &mut World, n: u8, time: u8| {
        let ids = (0..200).map(|id| format!("{n}-{time}-{id}"));
        let started = |id: &String| w.tell(&Record { client: client(n), ..record(Start, id, 10) });
        ids.take_while(started).count()
    };
    let tries = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)];
    assert_eq!(tries.map(|(n, time)| begun(&mut w, n, time)), [90, 0, 9, 0, 1]);
    // Who ends some has room again.
    for id in 0..10 {
        let stop = counted(Stop, &format!("1-1-{id}"), 20, 10, 1);
        assert!(w.tell(&Record { client: client(1), ..stop }));
    }
    assert_eq!([(4, 1), (1, 3), (4, 2)].map(|(n, time)| begun(&mut w, n, time)), [9, 0, 0]);
}

/// A host that does all in turn and notes what it acknowledged.
struct Host {
    ledger: Ledger,
    store: Memory,
    flying: Option<(Vec<Change>, u64)>,
    waiting: Vec<(u64, usize)>,
    acknowledged: Vec<bool>,
    records: Vec<Record>,
}

impl Host {
    fn tell(&mut self, i: usize) {
        let record = self.records[i].clone();
        loop {
            match self.ledger.account(at(1000), &record) {
                Accounting::Durable => return self.acknowledge(i),
                Accounting::Write(n) => return self.waiting.push((n, i)),
                Accounting::Busy => return,
                Accounting::Ask(unique) => {
                    let row = self.store.session(&unique.to_string()).unwrap();
                    self.ledger.answer(at(1000), unique, row);
                }
            }
        }
    }
    fn take(&mut self, most: usize) {
        let mut batch = Vec::new();
        if let Some(through) = self.ledger.changes(&mut batch, most) {
            self.flying = Some((batch, through));
        }
    }
    fn settle(&mut self, fate: Fate) {
        let Some((batch, through)) = self.flying.take() else { return };
        if fate != Fate::Away {
            self.store.write(&batch).unwrap();
        }
        self.ledger.settle(if fate == Fate::Written { Settled::Durable } else { Settled::Failed });
        for (n, i) in core::mem::take(&mut self.waiting) {
            if n > through {
                self.waiting.push((n, i));
            } else if fate == Fate::Written {
                self.acknowledge(i);
            }
        }
    }
    fn crash(&mut self) {
        self.ledger = Ledger::new(LedgerConfig::default());
        let ledger = &mut self.ledger;
        self.store.open_sessions(&mut |row| assert!(ledger.restore(at(1000), &row))).unwrap();
        self.flying = None;
        self.waiting.clear();
    }
    /// The store must have it by now.
    fn acknowledge(&mut self, i: usize) {
        self.acknowledged[i] = true;
        let record = &self.records[i];
        let row = self
            .store
            .session(&record.unique.to_string())
            .unwrap()
            .expect("an acknowledged session is in the store");
        assert!(row.acctsessiontime >= record.session_time.unwrap_or(0), "{row:?}");
        assert!(record.status != Stop || row.acctstoptime == Some(record.at), "{row:?}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Tell(usize),
    Take(usize),
    Settle(Fate),
    Crash,
}

fn steps(records: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..records).prop_map(Step::Tell),
        3 => (1..5_usize).prop_map(Step::Take),
        2 => Just(Step::Settle(Fate::Written)),
        1 => Just(Step::Settle(Fate::Away)),
        1 => Just(Step::Settle(Fate::WrittenUnheard)),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    #[test]
    fn every_acknowledged_record_is_in_the_store_exactly_once(steps in vec(steps(12), 0..120)) {
        let mut records = Vec::new();
        for id in ["a", "b", "c"] {
            records.push(record(Start, id, 10));
            records.push(counted(Interim, id, 70, 60, 5));
            records.push(counted(Interim, id, 130, 120, 9));
            records.push(counted(Stop, id, 190, 180, 12));
        }
        let mut host = Host {
            ledger: Ledger::new(LedgerConfig::default()),
            store: Memory::new(),
            flying: None,
            waiting: Vec::new(),
            acknowledged: alloc::vec![false; records.len()],
            records,
        };
        for step in steps {
            match step {
                Step::Tell(i) => host.tell(i),
                Step::Take(most) => host.take(most),
                Step::Settle(fate) => host.settle(fate),
                Step::Crash => host.crash(),
            }
        }
        host.settle(Fate::Written);
        // Who got no answer tells it again.
        for i in 0..host.records.len() {
            if !host.acknowledged[i] {
                host.tell(i);
            }
        }
        while host.ledger.unwritten() > 0 {
            host.take(2);
            host.settle(Fate::Written);
        }
        prop_assert!(host.acknowledged.iter().all(|a| *a));
        prop_assert_eq!(host.store.sessions().count(), 3);
        for row in host.store.sessions() {
            prop_assert_eq!((row.acctstarttime, row.acctstoptime), (Some(wall(10)), Some(wall(190))));
            prop_assert_eq!((row.acctsessiontime, row.acctinputoctets, row.acctoutputoctets), (180, 12, 120));
            prop_assert!(row.interims <= 2);
        }
        prop_assert!(host.ledger.is_empty());
    }
}

//! What becomes of a record: something new, a duplicate, or something older than what is known.

use super::limits::{Held, leases, same_station};
use super::past::{Ended, Past};
use super::queue::{REFUSED, What};
use super::record::{Record, Status, Unique, shifted};
use super::session::{BY_DIAMETER, Ending, Key, Session, before};
use super::{Accounting, Ledger};
use crate::store::{SessionRow, Store, StoreError};
use alloc::string::ToString;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::IpAddr;
use usher_core::collections::{HashMap, HashState};
use usher_core::table::SessionTable;
use usher_core::{Duration, Instant, WallTime};

/// Times that their sender gives are in whole seconds.
const ROUNDING: Duration = Duration::from_secs(2);
/// How long a record may be on its way, and wait in queues, longer than another: that makes what is told by
/// Acct-Delay-Time seem later.
const UNDER_WAY: Duration = Duration::from_secs(10);
/// How many changes [`Ledger::serve`] writes at once.
const BATCH: usize = 1024;
/// An Acct-Session-Id that more open sessions of a NAS have does not tell them apart.
const MOST_ALIKE: usize = 16;
/// How often a record may be given again because of [`Accounting::Ask`]: an Acct-Session-Id is looked up under no more uses
/// than there can be, without a User-Name once more, and then the record is taken.
const MOST_QUESTIONS: usize = 2001;
/// Restarts that wait to be written; further ones are not taken, so that whoever tells of many while the store is away
/// does not fill the memory.
pub(super) const MOST_RESTARTS: usize = 1 << 14;

/// When a NAS last began anew, or last went down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restart {
    nas: IpAddr,
    status: Status,
    /// What names the record; its Acct-Session-Id is in it.
    key: Key,
    at: WallTime,
    pub(super) wait: u64,
}

/// Of so many NASs as are remembered.
#[derive(Debug)]
pub(super) struct Restarts {
    table: SessionTable<Restart>,
    by_nas: HashMap<(IpAddr, Status), u64>,
}

impl Restarts {
    const MOST: usize = 1 << 16;
    pub(super) fn new(hash: &HashState) -> Self {
        Self { table: SessionTable::new(), by_nas: HashMap::with_hasher(hash.clone()) }
    }
    pub(super) fn get_mut(&mut self, nas: IpAddr, status: Status) -> Option<&mut Restart> {
        self.table.get_mut(*self.by_nas.get(&(nas, status))?)
    }
    fn put(&mut self, restart: Restart) {
        if let Some(token) = self.by_nas.remove(&(restart.nas, restart.status)) {
            self.table.remove(token);
        }
        while self.table.len() >= Self::MOST {
            let Some(gone) = self.table.oldest().and_then(|(t, _)| self.table.remove(t)) else { break };
            self.by_nas.remove(&(gone.nas, gone.status));
        }
        self.by_nas.insert((restart.nas, restart.status), self.table.insert(Instant::ZERO, restart));
    }
}

impl Ledger {
    /// Takes a record; see the [module](super) for what to do then.
    pub fn account(&mut self, now: Instant, record: &Record) -> Accounting {
        if matches!(record.status, Status::On | Status::Off) {
            return self.restarted(record);
        }
        let unique = self.known_as(record);
        if unique.key() != record.unique.key() {
            self.past.put(record.unique.key(), Past::Same(unique));
        }
        if let Some(slot) = self.table.find(&unique.key()) {
            return match self.table.get(slot) {
                Some(s) if s.ending != Ending::Open => {
                    let ended = Ended::of(s);
                    self.of_ended(now, &ended, Some(slot), record)
                }
                _ => self.of_open(now, slot, record),
            };
        }
        match self.past.get(&unique.key()) {
            Some(Past::Nothing | Past::Same(_)) => self.of_nameless(now, unique, record),
            Some(Past::Ended(ended)) => {
                let ended = ended.clone();
                self.of_ended(now, &ended, None, record)
            }
            None if self.is_full(record) => self.busy(),
            None => Accounting::Ask(unique),
        }
    }
    /// The name under which the session of a record stands: its own, or that of the only open session of the same NAS and
    /// Acct-Session-Id whose records lack what this one has, or have what it lacks.
    fn known_as(&self, record: &Record) -> Unique {
        let key = record.unique.key();
        if self.table.find(&key).is_some() {
            return record.unique;
        }
        let ended = match self.past.get(&key) {
            Some(Past::Same(unique)) => return *unique,
            Some(Past::Ended(ended)) => Some(ended.stop),
            _ => None,
        };
        let identifier = self.identifier_of(record);
        // Where a session of the record's own name has ended, it is of that, unless the other began afterwards.
        let fits = |s: &Session| {
            s.may_be_of(record, identifier)
                && ended.is_none_or(|stop| s.start >= stop && record.at >= s.start && record.at > stop)
        };
        let mut only = None;
        for (n, (_, s)) in self.table.of_id(record.session.nas, &record.session.id).enumerate() {
            if n == MOST_ALIKE || (fits(s) && only.replace(s.unique).is_some()) {
                return record.unique;
            }
        }
        if let Some(only) = only {
            return only;
        }
        let nameless = record.nameless.and_then(|n| self.table.get(self.table.find(&n.key())?));
        let open = nameless.filter(|s| s.ending == Ending::Open && s.user().is_empty() && ended.is_none());
        open.map_or(record.unique, |s| s.unique)
    }
    /// A digest of a record's NAS-Identifier, by Diameter of whose it is; 0 without one.
    fn identifier_of(&self, record: &Record) -> u32 {
        self.identifier(&record.nas_identifier, &record.diameter_origin)
    }
    fn identifier(&self, nas: &str, diameter_origin: &str) -> u32 {
        match (nas.is_empty(), diameter_origin.is_empty()) {
            (true, true) => 0,
            (false, true) => (self.hash.hash_one(nas) as u32 & !BY_DIAMETER).max(1),
            (_, false) => self.hash.hash_one(diameter_origin) as u32 | BY_DIAMETER,
        }
    }
    /// The session that a row tells of, as an open one; `None` where its acctuniqueid is none.
    pub(super) fn session_of(&self, row: &SessionRow) -> Option<Session> {
        Session::of_row(row, self.identifier("", &row.diameter_origin))
    }
    /// A record of whose name nothing is known: it may end, once more, a session that began and ended without its
    /// User-Name before this ledger began.
    fn of_nameless(&mut self, now: Instant, unique: Unique, record: &Record) -> Accounting {
        let Some(nameless) = record.nameless.filter(|n| n.key() != unique.key()) else {
            return self.begin(now, unique, record);
        };
        match self.past.get(&nameless.key()) {
            Some(Past::Ended(ended)) if !ended.is_before(record, self.slack(record)) => {
                let ended = ended.clone();
                self.past.put(unique.key(), Past::Same(nameless));
                self.of_ended(now, &ended, None, record)
            }
            None if self.table.find(&nameless.key()).is_none() => Accounting::Ask(nameless),
            _ => self.begin(now, unique, record),
        }
    }
    /// What the store answered to [`Accounting::Ask`].
    pub fn answer(&mut self, now: Instant, unique: Unique, row: Option<SessionRow>) {
        if self.table.find(&unique.key()).is_some() {
            return;
        }
        let open = row.as_ref().filter(|r| r.acctstoptime.is_none()).and_then(|r| self.session_of(r));
        if !self.past.learn(unique, row)
            && let Some(mut session) = open
        {
            session.unique = unique;
            self.take_in(now, session);
        }
    }
    /// Takes a record, and has `ask` say what the store has of its session wherever that must be known
    /// ([`Store::session`]): what becomes of it, [`Accounting::Ask`] never.
    ///
    /// # Errors
    /// The store could not say; the record is not to be acknowledged.
    pub fn take(
        &mut self,
        now: Instant,
        record: &Record,
        mut ask: impl FnMut(&str) -> Result<Option<SessionRow>, StoreError>,
    ) -> Result<Accounting, StoreError> {
        for _ in 0..MOST_QUESTIONS {
            match self.account(now, record) {
                Accounting::Ask(unique) => {
                    let row = ask(&unique.to_string())?;
                    self.answer(now, unique, row);
                }
                done => return Ok(done),
            }
        }
        Ok(Accounting::Busy)
    }
    /// Takes a record and makes it durable at once, for hosts that have one store and no threads. True: acknowledge it.
    pub fn serve(&mut self, now: Instant, store: &mut dyn Store, record: &Record) -> bool {
        let number = match self.take(now, record, |unique| store.session(unique)) {
            Ok(Accounting::Write(number)) => number,
            taken => return taken == Ok(Accounting::Durable),
        };
        loop {
            let commit = self.commit(store, BATCH);
            if let Some(durable) = commit.durable(number) {
                return durable;
            }
            if commit.through.is_none() || matches!(commit.error, Some(StoreError::Unavailable(_))) {
                return false;
            }
        }
    }

    /// Whether there is no room for another session of a record's client.
    fn is_full(&self, record: &Record) -> bool {
        let (all, most) = (self.table.len(), self.config.max_sessions);
        all >= most || self.table.shares.has_its_share(record.client, all, most)
    }
    fn busy(&mut self) -> Accounting {
        self.counters.busy += 1;
        Accounting::Busy
    }
    /// How much later than it is a record may seem.
    const fn slack(&self, record: &Record) -> Duration {
        match (record.stamped, record.timed) {
            (true, _) => ROUNDING,
            (false, true) => UNDER_WAY,
            (false, false) => self.config.retransmission,
        }
    }
    /// A record that changes nothing: it is acknowledged with what it repeats.
    fn nothing_new(&mut self, slot: Option<u32>) -> Accounting {
        let Some((slot, wait)) = slot.and_then(|s| Some((s, self.table.get(s)?.wait))) else {
            return Accounting::Durable;
        };
        match wait {
            0 => Accounting::Durable,
            REFUSED => Accounting::Write(self.enqueue(slot)),
            number => Accounting::Write(number),
        }
    }
    fn duplicate(&mut self, slot: Option<u32>) -> Accounting {
        self.counters.duplicates += 1;
        self.nothing_new(slot)
    }
    fn late(&mut self, slot: Option<u32>) -> Accounting {
        self.counters.late += 1;
        self.nothing_new(slot)
    }

    /// A record of a session that goes on.
    fn of_open(&mut self, now: Instant, slot: u32, record: &Record) -> Accounting {
        self.table.touch(now, slot);
        let slack = self.slack(record);
        let Some(s) = self.table.get(slot) else { return Accounting::Busy };
        // By nothing but a Start that is no retransmission does a NAS say that the id of an open session is another's: its
        // count of seconds may lag, and its clock may step.
        if record.status == Status::Start && record.at > s.last + slack.max(self.config.retransmission) {
            return self.begin_again(now, slot, record);
        }
        if s.user().is_empty() && !record.session.user.is_empty() {
            self.name_user(slot, record);
        }
        let Some(s) = self.table.get(slot) else { return Accounting::Busy };
        let new_address = |s: &Session| {
            record.framed_address.is_some_and(|a| s.address != Some(a))
                || record.framed_prefix.is_some_and(|p| s.prefix != Some(p))
        };
        match record.status {
            Status::Start if s.started => self.duplicate(Some(slot)),
            Status::Start => {
                self.describe(slot, record);
                if let Some(s) = self.table.get_mut(slot) {
                    s.started = true;
                    s.start = s.start.min(record.at);
                }
                Accounting::Write(self.enqueue(slot))
            }
            Status::Stop => {
                self.describe(slot, record);
                self.stop(slot, record);
                Accounting::Write(self.enqueue(slot))
            }
            _ => {
                let known = s.interims > 0 && !new_address(s);
                let (input, output) =
                    (record.input_octets.unwrap_or(s.input), record.output_octets.unwrap_or(s.output));
                let same = known && (input, output) == (s.input, s.output);
                let less = input < s.input || output < s.output;
                let more = !less && (input, output) != (s.input, s.output);
                let then = u64::from(s.seconds);
                match record.session_time {
                    Some(t) if t < then => self.late(Some(slot)),
                    Some(t) if t == then && same => self.duplicate(Some(slot)),
                    Some(t) if t == then && less => self.late(Some(slot)),
                    // Where its NAS's clock was set back, what it counts says which record is the newer one.
                    None if record.at < s.last && !more => self.late(Some(slot)),
                    None if record.at == s.last && same => self.duplicate(Some(slot)),
                    _ => {
                        self.describe(slot, record);
                        if let Some(s) = self.table.get_mut(slot) {
                            s.count(record);
                            s.interims = s.interims.saturating_add(1);
                        }
                        self.counters.updated += 1;
                        Accounting::Write(self.enqueue(slot))
                    }
                }
            }
        }
    }
    /// A record of a session that ended; `slot` where that is not durable yet.
    fn of_ended(&mut self, now: Instant, ended: &Ended, slot: Option<u32>, record: &Record) -> Accounting {
        if !ended.latest && record.at > ended.stop {
            return Accounting::Ask(ended.unique.next());
        }
        let slack = self.slack(record);
        let another = match record.status {
            // What its NAS did not end itself can hardly have been begun again before that by the same Start.
            Status::Start => record.at > if ended.told { ended.stop + slack } else { ended.stop },
            _ => ended.is_before(record, slack),
        };
        if another {
            if self.is_full(record) {
                return self.busy();
            }
            if slot.is_some() {
                self.table.unkey(&ended.unique.key());
            }
            return self.begin(now, ended.unique.next(), record);
        }
        match record.status {
            Status::Start => self.duplicate(slot),
            Status::Stop if ended.told => self.duplicate(slot),
            Status::Stop => self.go_on(now, ended, slot, record),
            _ if ended.told || record.at <= ended.stop => self.late(slot),
            _ => self.go_on(now, ended, slot, record),
        }
    }
    /// A session that the ledger thought ended was not.
    fn go_on(&mut self, now: Instant, ended: &Ended, slot: Option<u32>, record: &Record) -> Accounting {
        let slot = match (slot, &ended.row) {
            (Some(slot), _) => {
                self.table.reopen(now, slot);
                // Its NAS's restart may wait to be written, and would end it.
                self.enqueue_last(slot);
                slot
            }
            (None, None) => return Accounting::Ask(ended.unique),
            (None, Some(_)) if self.is_full(record) => return self.busy(),
            (None, Some(row)) => {
                let Some(mut session) = self.session_of(row) else { return self.busy() };
                session.unique = ended.unique;
                session.client = self.table.shares.number(record.client);
                self.past.remove(&ended.unique.key());
                let slot = self.table.insert(now, session);
                self.enqueue_last(slot);
                slot
            }
        };
        self.counters.went_on += 1;
        self.claim(slot);
        self.of_open(now, slot, record)
    }
    /// The Acct-Session-Id of an open session is another session's now: the Stop was lost.
    fn begin_again(&mut self, now: Instant, slot: u32, record: &Record) -> Accounting {
        if self.is_full(record) {
            return self.busy();
        }
        let Some((unique, last)) = self.table.get(slot).map(|s| (s.unique, s.last)) else {
            return Accounting::Busy;
        };
        self.counters.stale += 1;
        self.end(slot, last, Ending::Stale, None);
        self.enqueue(slot);
        self.table.unkey(&unique.key());
        self.begin(now, unique.next(), record)
    }
    /// A session of which nothing was known.
    fn begin(&mut self, now: Instant, unique: Unique, record: &Record) -> Accounting {
        if self.is_full(record) {
            return self.busy();
        }
        let mut session = Session::new(unique, record, self.identifier_of(record));
        session.client = self.table.shares.number(record.client);
        session.started = record.status == Status::Start;
        session.interims = u32::from(record.status == Status::Interim);
        let held = self.take_admitted(record);
        session.address = record.framed_address.or(held.as_ref().and_then(|h| h.address));
        session.prefix = record.framed_prefix.or(held.as_ref().and_then(|h| h.prefix));
        self.past.remove(&unique.key());
        let slot = self.table.insert(now, session);
        self.claim(slot);
        for lease in held.iter().flat_map(Held::leases) {
            self.pools.release(lease);
        }
        self.counters.started += 1;
        if record.status == Status::Stop {
            self.stop(slot, record);
        }
        Accounting::Write(self.enqueue(slot))
    }

    /// Takes over what a record says of an open session, its address included.
    fn describe(&mut self, slot: u32, record: &Record) {
        let Some(s) = self.table.get(slot) else { return };
        let address = record.framed_address.or(s.address);
        let prefix = record.framed_prefix.or(s.prefix);
        if (address, prefix) != (s.address, s.prefix) {
            self.release(slot);
            self.table.set_address(slot, address);
            if let Some(s) = self.table.get_mut(slot) {
                s.prefix = prefix;
            }
            self.claim(slot);
        }
        let identifier = self.identifier_of(record);
        if let Some(s) = self.table.get_mut(slot) {
            s.describe(record);
            s.reported_as(record, identifier);
        }
    }
    /// The user of an open session is known now, who was not when it began.
    fn name_user(&mut self, slot: u32, record: &Record) {
        let held = self.take_admitted(record);
        self.release(slot);
        self.table.set_user(slot, &record.session.user);
        if let Some(held) = held {
            held.leases().for_each(|lease| self.pools.release(lease));
            if self.table.get(slot).is_some_and(|s| s.address.is_none()) {
                self.table.set_address(slot, held.address);
            }
            if let Some(s) = self.table.get_mut(slot) {
                s.prefix = s.prefix.or(held.prefix);
            }
        }
        self.claim(slot);
        self.enqueue(slot);
    }
    /// The session has what it has of the pools.
    pub(super) fn claim(&mut self, slot: u32) {
        let Some(s) = self.table.get(slot) else { return };
        let (address, prefix) = (s.address, s.prefix);
        let holder = self.holder(s.user(), s.calling());
        leases(address, prefix).for_each(|lease| self.pools.claim(lease, holder));
    }
    fn release(&mut self, slot: u32) {
        let Some(s) = self.table.get(slot) else { return };
        leases(s.address, s.prefix).for_each(|lease| self.pools.release(lease));
    }
    fn stop(&mut self, slot: u32, record: &Record) {
        self.counters.stopped += 1;
        let cause = record.terminate_cause.unwrap_or(super::names::UNKNOWN);
        if let Some(s) = self.table.get_mut(slot) {
            s.count(record);
            if record.at < s.start {
                // Its NAS's clock was set back: by what it shows now, it began so long ago.
                s.start = before(record.at, record.session_time.unwrap_or(0));
            }
        }
        self.end(slot, record.at, Ending::Stopped(cause), record.session_time);
    }
    /// Ends an open session; writing that is the caller's.
    pub(super) fn end(&mut self, slot: u32, at: WallTime, ending: Ending, seconds: Option<u64>) {
        self.release(slot);
        self.table.close(slot);
        if let Some(s) = self.table.get_mut(slot) {
            s.end(at.max(s.start), ending, seconds);
        }
    }

    /// Accounting-On, Accounting-Off: of this NAS, what had begun by then has ended. Of several that have one address, such as
    /// those behind a proxy, what has its NAS-Identifier, or of which none is known.
    fn restarted(&mut self, record: &Record) -> Accounting {
        let (nas, at, status) = (record.session.nas, record.at, record.status);
        let (key, slack) = (record.unique.key(), self.slack(record));
        if let Some(before) = self.restarts.get_mut(nas, status).copied()
            && (before.wait != REFUSED && before.key == key)
            && (before.at <= at + slack && at <= before.at + slack)
        {
            self.counters.duplicates += 1;
            return if before.wait == 0 { Accounting::Durable } else { Accounting::Write(before.wait) };
        }
        if self.queue.restarts() >= MOST_RESTARTS {
            return self.busy();
        }
        self.counters.restarts += 1;
        let ending = if status == Status::On { Ending::Restarted } else { Ending::WentDown };
        // Diameter has no restarts, and a NAS that speaks it may have any address, as it says.
        let identifier = self.identifier_of(record);
        let of_address = || self.table.of_nas(nas).filter(|(_, s)| !s.is_by_diameter());
        // The store has no NAS-Identifiers: where another's sessions go on, it is told of each that ended.
        let shared = of_address().any(|(_, s)| !s.may_be_at(identifier));
        let of_nas = of_address().filter(|(_, s)| s.may_be_at(identifier) && self.began_before(s, record));
        let ended: Vec<_> = of_nas.map(|(slot, s)| (slot, s.start, s.ahead)).collect();
        for (slot, start, ahead) in ended {
            self.counters.ended_by_restart += 1;
            // By its times the store would not end one that began later.
            let later = start > at;
            let end = if later { shifted(record.happened_here(), ahead) } else { at };
            self.end(slot, end, ending, None);
            if later || shared {
                self.enqueue(slot);
            }
            self.retire(slot);
        }
        let wait = self.queue.push(What::Restart { nas, at, status, shared });
        self.restarts.put(Restart { nas, status, key, at, wait });
        Accounting::Write(wait)
    }
    /// Whether a session had begun when its NAS restarted. Two times of one clock are compared as they were told; the
    /// clock may have been set in between, or one of the times be ours.
    fn began_before(&self, session: &Session, restart: &Record) -> bool {
        let stepped = session.ahead.abs_diff(restart.ahead);
        let one_clock = restart.stamped && u64::from(stepped) <= self.config.retransmission.as_secs();
        let began_here = shifted(session.start, session.ahead.saturating_neg());
        session.start <= restart.at
            || (!one_clock && began_here <= restart.happened_here())
            // What was told of has begun by now, whatever its clock says.
            || session.start > restart.came
    }

    /// Who was admitted and has come now.
    fn take_admitted(&mut self, record: &Record) -> Option<Held> {
        let (calling, port) = (&record.calling_station_id, &record.port);
        let fits = |held: &Held| {
            let station = same_station(&held.calling, calling);
            let other = !station && !held.calling.is_empty() && !calling.is_empty();
            let address = held.address.is_some() && held.address == record.framed_address;
            let score = 4 * u8::from(address) + 2 * u8::from(station) + u8::from(*held.port == **port);
            (held.nas == record.session.nas && !other).then_some(score)
        };
        let mut best: Option<(u64, u8)> = None;
        for (token, held) in self.admitted.of_user(&record.session.user) {
            if let Some(score) = fits(held)
                && best.is_none_or(|(_, b)| score > b)
            {
                best = Some((token, score));
            }
        }
        self.admitted.remove(best?.0)
    }
}

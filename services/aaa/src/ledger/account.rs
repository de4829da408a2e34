//! What becomes of a record: something new, a duplicate, or something older than what is known.

use super::limits::{PendingAdmission, pool_leases, same_station};
use super::past::{EndedSession, PastSession};
use super::queue::{QueuedChange, REFUSED};
use super::record::{LedgerRecord, RecordStatus, UniqueSessionId, shift_time};
use super::session::{BY_DIAMETER, LedgerSession, SessionDigest, SessionState, subtract_seconds};
use super::{Ledger, RecordOutcome};
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
const MAX_TRANSIT_DELAY: Duration = Duration::from_secs(10);
/// How many changes [`Ledger::commit_record`] writes at once.
const BATCH: usize = 1024;
/// An Acct-Session-Id that more open sessions of a NAS have does not tell them apart.
const MOST_ALIKE: usize = 16;
/// How often a record may be given again because of [`RecordOutcome::LookupNeeded`]: an Acct-Session-Id is looked up under no more uses
/// than there can be, without a User-Name once more, and then the record is taken.
const MOST_QUESTIONS: usize = 2001;
/// Restarts that wait to be written; further ones are not taken, so that whoever tells of many while the store is away
/// does not fill the memory.
pub(super) const MOST_RESTARTS: usize = 1 << 14;

/// When a NAS last began anew, or last went down.
#[derive(Clone, Copy, Debug)]
pub(super) struct NasRestart {
    nas: IpAddr,
    status: RecordStatus,
    /// What names the record; its Acct-Session-Id is in it.
    key: SessionDigest,
    restarted_at: WallTime,
    pub(super) wait: u64,
}

/// Of so many NASs as are remembered.
#[derive(Debug)]
pub(super) struct NasRestartTable {
    table: SessionTable<NasRestart>,
    by_nas: HashMap<(IpAddr, RecordStatus), u64>,
}

impl NasRestartTable {
    const MOST: usize = 1 << 16;
    pub(super) fn new(hash: &HashState) -> Self {
        Self { table: SessionTable::new(), by_nas: HashMap::with_hasher(hash.clone()) }
    }
    pub(super) fn get_mut(&mut self, nas: IpAddr, status: RecordStatus) -> Option<&mut NasRestart> {
        self.table.get_mut(*self.by_nas.get(&(nas, status))?)
    }
    fn insert(&mut self, restart: NasRestart) {
        if let Some(token) = self.by_nas.remove(&(restart.nas, restart.status)) {
            self.table.remove(token);
        }
        while self.table.len() >= Self::MOST {
            let Some(gone) = self.table.oldest_entry().and_then(|(t, _)| self.table.remove(t)) else { break };
            self.by_nas.remove(&(gone.nas, gone.status));
        }
        self.by_nas.insert((restart.nas, restart.status), self.table.insert(Instant::ZERO, restart));
    }
}

impl Ledger {
    /// Takes a record; see the [module](super) for what to do then.
    pub fn apply_record(&mut self, now: Instant, record: &LedgerRecord) -> RecordOutcome {
        if matches!(record.status, RecordStatus::On | RecordStatus::Off) {
            return self.apply_restart(record);
        }
        let unique = self.resolve_session_id(record);
        if unique.session_digest() != record.unique.session_digest() {
            self.past.insert(record.unique.session_digest(), PastSession::Same(unique));
        }
        if let Some(slot) = self.table.find_slot(&unique.session_digest()) {
            return match self.table.get(slot) {
                Some(s) if s.end_state != SessionState::Open => {
                    let ended = EndedSession::from_session(s);
                    self.of_ended(now, &ended, Some(slot), record)
                }
                _ => self.of_open(now, slot, record),
            };
        }
        match self.past.get(&unique.session_digest()) {
            Some(PastSession::NotFound | PastSession::Same(_)) => self.of_nameless(now, unique, record),
            Some(PastSession::Ended(ended)) => {
                let ended = ended.clone();
                self.of_ended(now, &ended, None, record)
            }
            None if self.is_full(record) => self.count_busy(),
            None => RecordOutcome::LookupNeeded(unique),
        }
    }
    /// The name under which the session of a record stands: its own, or that of the only open session of the same NAS and
    /// Acct-Session-Id whose records lack what this one has, or have what it lacks.
    fn resolve_session_id(&self, record: &LedgerRecord) -> UniqueSessionId {
        let key = record.unique.session_digest();
        if self.table.find_slot(&key).is_some() {
            return record.unique;
        }
        let ended = match self.past.get(&key) {
            Some(PastSession::Same(unique)) => return *unique,
            Some(PastSession::Ended(ended)) => Some(ended.stop),
            _ => None,
        };
        let identifier = self.identifier_of(record);
        // Where a session of the record's own name has ended, it is of that, unless the other began afterwards.
        let fits = |s: &LedgerSession| {
            s.may_be_of(record, identifier)
                && ended.is_none_or(|stop| {
                    s.start >= stop && record.occurred_at >= s.start && record.occurred_at > stop
                })
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
        let nameless =
            record.nameless.and_then(|n| self.table.get(self.table.find_slot(&n.session_digest())?));
        let open =
            nameless.filter(|s| s.end_state == SessionState::Open && s.user().is_empty() && ended.is_none());
        open.map_or(record.unique, |s| s.unique)
    }
    /// A digest of a record's NAS-Identifier, by Diameter of whose it is; 0 without one.
    fn identifier_of(&self, record: &LedgerRecord) -> u32 {
        self.identifier_digest(&record.nas_identifier, &record.diameter_origin)
    }
    fn identifier_digest(&self, nas: &str, diameter_origin: &str) -> u32 {
        match (nas.is_empty(), diameter_origin.is_empty()) {
            (true, true) => 0,
            (false, true) => (self.hash.hash_one(nas) as u32 & !BY_DIAMETER).max(1),
            (_, false) => self.hash.hash_one(diameter_origin) as u32 | BY_DIAMETER,
        }
    }
    /// The session that a row tells of, as an open one; `None` where its acctuniqueid is none.
    pub(super) fn session_of(&self, row: &SessionRow) -> Option<LedgerSession> {
        LedgerSession::of_row(row, self.identifier_digest("", &row.diameter_origin))
    }
    /// A record of whose name nothing is known: it may end, once more, a session that began and ended without its
    /// User-Name before this ledger began.
    fn of_nameless(&mut self, now: Instant, unique: UniqueSessionId, record: &LedgerRecord) -> RecordOutcome {
        let Some(nameless) = record.nameless.filter(|n| n.session_digest() != unique.session_digest()) else {
            return self.start_session(now, unique, record);
        };
        match self.past.get(&nameless.session_digest()) {
            Some(PastSession::Ended(ended)) if !ended.is_before(record, self.time_slack(record)) => {
                let ended = ended.clone();
                self.past.insert(unique.session_digest(), PastSession::Same(nameless));
                self.of_ended(now, &ended, None, record)
            }
            None if self.table.find_slot(&nameless.session_digest()).is_none() => {
                RecordOutcome::LookupNeeded(nameless)
            }
            _ => self.start_session(now, unique, record),
        }
    }
    /// What the store answered to [`RecordOutcome::LookupNeeded`].
    pub fn apply_stored_row(&mut self, now: Instant, unique: UniqueSessionId, row: Option<SessionRow>) {
        if self.table.find_slot(&unique.session_digest()).is_some() {
            return;
        }
        let open = row.as_ref().filter(|r| r.acctstoptime.is_none()).and_then(|r| self.session_of(r));
        if !self.past.insert_row(unique, row)
            && let Some(mut session) = open
        {
            session.unique = unique;
            self.take_in(now, session);
        }
    }
    /// Takes a record, and has `ask` say what the store has of its session wherever that must be known
    /// ([`Store::find_session`]): what becomes of it, [`RecordOutcome::LookupNeeded`] never.
    ///
    /// # Errors
    /// The store could not say; the record is not to be acknowledged.
    pub fn apply_record_with(
        &mut self,
        now: Instant,
        record: &LedgerRecord,
        mut ask: impl FnMut(&str) -> Result<Option<SessionRow>, StoreError>,
    ) -> Result<RecordOutcome, StoreError> {
        for _ in 0..MOST_QUESTIONS {
            match self.apply_record(now, record) {
                RecordOutcome::LookupNeeded(unique) => {
                    let row = ask(&unique.to_string())?;
                    self.apply_stored_row(now, unique, row);
                }
                done => return Ok(done),
            }
        }
        Ok(RecordOutcome::Busy)
    }
    /// Takes a record and makes it durable at once, for hosts that have one store and no threads. True: acknowledge it.
    pub fn commit_record(&mut self, now: Instant, store: &mut dyn Store, record: &LedgerRecord) -> bool {
        let number = match self.apply_record_with(now, record, |unique| store.find_session(unique)) {
            Ok(RecordOutcome::Write(number)) => number,
            taken => return taken == Ok(RecordOutcome::Durable),
        };
        loop {
            let commit = self.commit_changes(store, BATCH);
            if let Some(durable) = commit.is_durable(number) {
                return durable;
            }
            if commit.last_number.is_none() || matches!(commit.error, Some(StoreError::Unavailable(_))) {
                return false;
            }
        }
    }

    /// Whether there is no room for another session of a record's client.
    fn is_full(&self, record: &LedgerRecord) -> bool {
        let (all, most) = (self.table.len(), self.config.max_sessions);
        all >= most || self.table.shares.has_its_share(record.client, all, most)
    }
    fn count_busy(&mut self) -> RecordOutcome {
        self.counters.busy += 1;
        RecordOutcome::Busy
    }
    /// How much later than it is a record may seem.
    const fn time_slack(&self, record: &LedgerRecord) -> Duration {
        match (record.stamped, record.timed) {
            (true, _) => ROUNDING,
            (false, true) => MAX_TRANSIT_DELAY,
            (false, false) => self.config.retransmission,
        }
    }
    /// A record that changes nothing: it is acknowledged with what it repeats.
    fn nothing_new(&mut self, slot: Option<u32>) -> RecordOutcome {
        let Some((slot, wait)) = slot.and_then(|s| Some((s, self.table.get(s)?.wait))) else {
            return RecordOutcome::Durable;
        };
        match wait {
            0 => RecordOutcome::Durable,
            REFUSED => RecordOutcome::Write(self.enqueue_session(slot)),
            number => RecordOutcome::Write(number),
        }
    }
    fn count_duplicate(&mut self, slot: Option<u32>) -> RecordOutcome {
        self.counters.duplicates += 1;
        self.nothing_new(slot)
    }
    fn count_late(&mut self, slot: Option<u32>) -> RecordOutcome {
        self.counters.late += 1;
        self.nothing_new(slot)
    }

    /// A record of a session that goes on.
    fn of_open(&mut self, now: Instant, slot: u32, record: &LedgerRecord) -> RecordOutcome {
        self.table.touch(now, slot);
        let slack = self.time_slack(record);
        let Some(s) = self.table.get(slot) else { return RecordOutcome::Busy };
        // By nothing but a Start that is no retransmission does a NAS say that the id of an open session is another's: its
        // count of seconds may lag, and its clock may step.
        if record.status == RecordStatus::Start
            && record.occurred_at > s.last + slack.max(self.config.retransmission)
        {
            return self.replace_reused_session(now, slot, record);
        }
        if s.user().is_empty() && !record.session.user.is_empty() {
            self.name_user(slot, record);
        }
        let Some(s) = self.table.get(slot) else { return RecordOutcome::Busy };
        let new_address = |s: &LedgerSession| {
            record.framed_address.is_some_and(|a| s.address != Some(a))
                || record.framed_prefix.is_some_and(|p| s.prefix != Some(p))
        };
        match record.status {
            RecordStatus::Start if s.started => self.count_duplicate(Some(slot)),
            RecordStatus::Start => {
                self.update_session(slot, record);
                if let Some(s) = self.table.get_mut(slot) {
                    s.started = true;
                    s.start = s.start.min(record.occurred_at);
                }
                RecordOutcome::Write(self.enqueue_session(slot))
            }
            RecordStatus::Stop => {
                self.update_session(slot, record);
                self.stop_session(slot, record);
                RecordOutcome::Write(self.enqueue_session(slot))
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
                    Some(t) if t < then => self.count_late(Some(slot)),
                    Some(t) if t == then && same => self.count_duplicate(Some(slot)),
                    Some(t) if t == then && less => self.count_late(Some(slot)),
                    // Where its NAS's clock was set back, what it counts says which record is the newer one.
                    None if record.occurred_at < s.last && !more => self.count_late(Some(slot)),
                    None if record.occurred_at == s.last && same => self.count_duplicate(Some(slot)),
                    _ => {
                        self.update_session(slot, record);
                        if let Some(s) = self.table.get_mut(slot) {
                            s.add_counts(record);
                            s.interims = s.interims.saturating_add(1);
                        }
                        self.counters.updated += 1;
                        RecordOutcome::Write(self.enqueue_session(slot))
                    }
                }
            }
        }
    }
    /// A record of a session that ended; `slot` where that is not durable yet.
    fn of_ended(
        &mut self,
        now: Instant,
        ended: &EndedSession,
        slot: Option<u32>,
        record: &LedgerRecord,
    ) -> RecordOutcome {
        if !ended.latest && record.occurred_at > ended.stop {
            return RecordOutcome::LookupNeeded(ended.unique.next_generation());
        }
        let slack = self.time_slack(record);
        let another = match record.status {
            // What its NAS did not end itself can hardly have been begun again before that by the same Start.
            RecordStatus::Start => {
                record.occurred_at > if ended.is_nas_reported { ended.stop + slack } else { ended.stop }
            }
            _ => ended.is_before(record, slack),
        };
        if another {
            if self.is_full(record) {
                return self.count_busy();
            }
            if slot.is_some() {
                self.table.remove_key(&ended.unique.session_digest());
            }
            return self.start_session(now, ended.unique.next_generation(), record);
        }
        match record.status {
            RecordStatus::Start => self.count_duplicate(slot),
            RecordStatus::Stop if ended.is_nas_reported => self.count_duplicate(slot),
            RecordStatus::Stop => self.go_on(now, ended, slot, record),
            _ if ended.is_nas_reported || record.occurred_at <= ended.stop => self.count_late(slot),
            _ => self.go_on(now, ended, slot, record),
        }
    }
    /// A session that the ledger thought ended was not.
    fn go_on(
        &mut self,
        now: Instant,
        ended: &EndedSession,
        slot: Option<u32>,
        record: &LedgerRecord,
    ) -> RecordOutcome {
        let slot = match (slot, &ended.row) {
            (Some(slot), _) => {
                self.table.reopen_session(now, slot);
                // Its NAS's restart may wait to be written, and would end it.
                self.enqueue_last(slot);
                slot
            }
            (None, None) => return RecordOutcome::LookupNeeded(ended.unique),
            (None, Some(_)) if self.is_full(record) => return self.count_busy(),
            (None, Some(row)) => {
                let Some(mut session) = self.session_of(row) else { return self.count_busy() };
                session.unique = ended.unique;
                session.client = self.table.shares.client_number(record.client);
                self.past.remove(&ended.unique.session_digest());
                let slot = self.table.insert(now, session);
                self.enqueue_last(slot);
                slot
            }
        };
        self.counters.went_on += 1;
        self.claim_leases(slot);
        self.of_open(now, slot, record)
    }
    /// The Acct-Session-Id of an open session is another session's now: the Stop was lost.
    fn replace_reused_session(&mut self, now: Instant, slot: u32, record: &LedgerRecord) -> RecordOutcome {
        if self.is_full(record) {
            return self.count_busy();
        }
        let Some((unique, last)) = self.table.get(slot).map(|s| (s.unique, s.last)) else {
            return RecordOutcome::Busy;
        };
        self.counters.stale += 1;
        self.end_session(slot, last, SessionState::Stale, None);
        self.enqueue_session(slot);
        self.table.remove_key(&unique.session_digest());
        self.start_session(now, unique.next_generation(), record)
    }
    /// A session of which nothing was known.
    fn start_session(
        &mut self,
        now: Instant,
        unique: UniqueSessionId,
        record: &LedgerRecord,
    ) -> RecordOutcome {
        if self.is_full(record) {
            return self.count_busy();
        }
        let mut session = LedgerSession::new(unique, record, self.identifier_of(record));
        session.client = self.table.shares.client_number(record.client);
        session.started = record.status == RecordStatus::Start;
        session.interims = u32::from(record.status == RecordStatus::Interim);
        let held = self.take_admitted(record);
        session.address = record.framed_address.or(held.as_ref().and_then(|h| h.address));
        session.prefix = record.framed_prefix.or(held.as_ref().and_then(|h| h.prefix));
        self.past.remove(&unique.session_digest());
        let slot = self.table.insert(now, session);
        self.claim_leases(slot);
        for lease in held.iter().flat_map(PendingAdmission::leases) {
            self.pools.release(lease);
        }
        self.counters.started += 1;
        if record.status == RecordStatus::Stop {
            self.stop_session(slot, record);
        }
        RecordOutcome::Write(self.enqueue_session(slot))
    }

    /// Takes over what a record says of an open session, its address included.
    fn update_session(&mut self, slot: u32, record: &LedgerRecord) {
        let Some(s) = self.table.get(slot) else { return };
        let address = record.framed_address.or(s.address);
        let prefix = record.framed_prefix.or(s.prefix);
        if (address, prefix) != (s.address, s.prefix) {
            self.release_leases(slot);
            self.table.set_address(slot, address);
            if let Some(s) = self.table.get_mut(slot) {
                s.prefix = prefix;
            }
            self.claim_leases(slot);
        }
        let identifier = self.identifier_of(record);
        if let Some(s) = self.table.get_mut(slot) {
            s.update_details(record);
            s.reported_as(record, identifier);
        }
    }
    /// The user of an open session is known now, who was not when it began.
    fn name_user(&mut self, slot: u32, record: &LedgerRecord) {
        let held = self.take_admitted(record);
        self.release_leases(slot);
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
        self.claim_leases(slot);
        self.enqueue_session(slot);
    }
    /// The session has what it has of the pools.
    pub(super) fn claim_leases(&mut self, slot: u32) {
        let Some(s) = self.table.get(slot) else { return };
        let (address, prefix) = (s.address, s.prefix);
        let holder = self.lease_holder(s.user(), s.calling_station());
        pool_leases(address, prefix).for_each(|lease| self.pools.claim(lease, holder));
    }
    fn release_leases(&mut self, slot: u32) {
        let Some(s) = self.table.get(slot) else { return };
        pool_leases(s.address, s.prefix).for_each(|lease| self.pools.release(lease));
    }
    fn stop_session(&mut self, slot: u32, record: &LedgerRecord) {
        self.counters.stopped += 1;
        let cause = record.terminate_cause.unwrap_or(super::names::UNKNOWN);
        if let Some(s) = self.table.get_mut(slot) {
            s.add_counts(record);
            if record.occurred_at < s.start {
                // Its NAS's clock was set back: by what it shows now, it began so long ago.
                s.start = subtract_seconds(record.occurred_at, record.session_time.unwrap_or(0));
            }
        }
        self.end_session(slot, record.occurred_at, SessionState::Stopped(cause), record.session_time);
    }
    /// Ends an open session; writing that is the caller's.
    pub(super) fn end_session(
        &mut self,
        slot: u32,
        at: WallTime,
        ending: SessionState,
        seconds: Option<u64>,
    ) {
        self.release_leases(slot);
        self.table.close_session(slot);
        if let Some(s) = self.table.get_mut(slot) {
            s.mark_ended(at.max(s.start), ending, seconds);
        }
    }

    /// Accounting-On, Accounting-Off: of this NAS, what had begun by then has ended. Of several that have one address, such as
    /// those behind a proxy, what has its NAS-Identifier, or of which none is known.
    fn apply_restart(&mut self, record: &LedgerRecord) -> RecordOutcome {
        let (nas, at, status) = (record.session.nas, record.occurred_at, record.status);
        let (key, slack) = (record.unique.session_digest(), self.time_slack(record));
        if let Some(before) = self.restarts.get_mut(nas, status).copied()
            && (before.wait != REFUSED && before.key == key)
            && (before.restarted_at <= at + slack && at <= before.restarted_at + slack)
        {
            self.counters.duplicates += 1;
            return if before.wait == 0 { RecordOutcome::Durable } else { RecordOutcome::Write(before.wait) };
        }
        if self.queue.pending_restarts() >= MOST_RESTARTS {
            return self.count_busy();
        }
        self.counters.restarts += 1;
        let ending = if status == RecordStatus::On { SessionState::Restarted } else { SessionState::NasDown };
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
            let end = if later { shift_time(record.local_event_time(), ahead) } else { at };
            self.end_session(slot, end, ending, None);
            if later || shared {
                self.enqueue_session(slot);
            }
            self.retire_session(slot);
        }
        let wait = self.queue.push(QueuedChange::Restart { nas, restarted_at: at, status, shared });
        self.restarts.insert(NasRestart { nas, status, key, restarted_at: at, wait });
        RecordOutcome::Write(wait)
    }
    /// Whether a session had begun when its NAS restarted. Two times of one clock are compared as they were told; the
    /// clock may have been set in between, or one of the times be ours.
    fn began_before(&self, session: &LedgerSession, restart: &LedgerRecord) -> bool {
        let stepped = session.ahead.abs_diff(restart.ahead);
        let one_clock = restart.stamped && u64::from(stepped) <= self.config.retransmission.as_secs();
        let began_here = shift_time(session.start, session.ahead.saturating_neg());
        session.start <= restart.occurred_at
            || (!one_clock && began_here <= restart.local_event_time())
            // What was told of has begun by now, whatever its clock says.
            || session.start > restart.received_at
    }

    /// Who was admitted and has come now.
    fn take_admitted(&mut self, record: &LedgerRecord) -> Option<PendingAdmission> {
        let (calling, port) = (&record.calling_station_id, &record.port);
        let fits = |held: &PendingAdmission| {
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

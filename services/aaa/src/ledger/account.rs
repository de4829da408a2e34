//! Applies accounting records: new, duplicate or outdated.

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

/// Times of a sender have whole seconds.
const ROUNDING: Duration = Duration::from_secs(2);
/// Maximum difference of two records' transit and queueing times. It delays event times from Acct-Delay-Time.
const MAX_TRANSIT_DELAY: Duration = Duration::from_secs(10);
/// Maximum number of changes that [`Ledger::commit_record`] writes at once.
const BATCH: usize = 1024;
/// If more open sessions of a NAS have the same Acct-Session-Id, it does not distinguish them.
const MOST_ALIKE: usize = 16;
/// Maximum repetitions of a record by [`RecordOutcome::LookupNeeded`]: all generations of an Acct-Session-Id, with
/// and without User-Name. Then the record is applied.
const MOST_QUESTIONS: usize = 2001;
/// Maximum number of restarts that are not durable. Further ones are not accepted, to bound memory while the store
/// is unavailable.
pub(super) const MOST_RESTARTS: usize = 1 << 14;

/// The last restart or shutdown of a NAS.
#[derive(Clone, Copy, Debug)]
pub(super) struct NasRestart {
    nas: IpAddr,
    status: RecordStatus,
    /// Digest of the record, with its Acct-Session-Id.
    key: SessionDigest,
    restarted_at: WallTime,
    pub(super) wait: u64,
}

/// Restarts of a bounded number of NASs.
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
    /// Applies a record. See the [module](super) for the next step.
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
    /// Returns the session of a record: of its own digest, or the only open session of the same NAS and
    /// Acct-Session-Id that differs in missing parts alone.
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
        // If a session of the record's own digest has ended, the record belongs to it, unless the other one started
        // later.
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
    /// Returns a digest of the NAS-Identifier, or over Diameter of the origin. 0: none.
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
    /// Returns the session of a row as an open one. `None`: its acctuniqueid is invalid.
    pub(super) fn session_of(&self, row: &SessionRow) -> Option<LedgerSession> {
        LedgerSession::of_row(row, self.identifier_digest("", &row.diameter_origin))
    }
    /// Handles a record of an unknown session. It may be a repeated Stop of a session without User-Name that ended
    /// before this ledger started.
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
    /// Applies the store's result for [`RecordOutcome::LookupNeeded`].
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
    /// Applies a record, and calls `ask` to look its session up where necessary ([`Store::find_session`]). The
    /// result is never [`RecordOutcome::LookupNeeded`].
    ///
    /// # Errors
    /// The lookup failed. The record must not be acknowledged.
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
    /// Applies a record and makes it durable at once, for hosts with one store and no threads. True: acknowledge
    /// it.
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

    /// True if there is no room for another session of the record's client.
    fn is_full(&self, record: &LedgerRecord) -> bool {
        let (all, most) = (self.table.len(), self.config.max_sessions);
        all >= most || self.table.shares.has_its_share(record.client, all, most)
    }
    fn count_busy(&mut self) -> RecordOutcome {
        self.counters.busy += 1;
        RecordOutcome::Busy
    }
    /// Returns by how much an event time may be late.
    const fn time_slack(&self, record: &LedgerRecord) -> Duration {
        match (record.stamped, record.timed) {
            (true, _) => ROUNDING,
            (false, true) => MAX_TRANSIT_DELAY,
            (false, false) => self.config.retransmission,
        }
    }
    /// Handles a record without changes. It is acknowledged with the record that it repeats.
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

    /// Handles a record of an open session.
    fn of_open(&mut self, now: Instant, slot: u32, record: &LedgerRecord) -> RecordOutcome {
        self.table.touch(now, slot);
        let slack = self.time_slack(record);
        let Some(s) = self.table.get(slot) else { return RecordOutcome::Busy };
        // Only a Start that is no retransmission shows that the Acct-Session-Id was reused: the session time may
        // lag, and the clock may step.
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
                    // If the NAS's clock was set back, the counters show which record is newer.
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
    /// Handles a record of an ended session. `slot` is given while that is not durable.
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
            // If the NAS did not end the session, the same Start does not reopen it.
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
    /// Reopens a session that the ledger has ended.
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
                // A pending restart of its NAS would end it in the store.
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
    /// Ends an open session whose Acct-Session-Id was reused: its Stop was lost.
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
    /// Starts an unknown session.
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

    /// Updates an open session, with its address.
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
    /// Sets the user of an open session that started without User-Name.
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
    /// Assigns the session's leases of the pools.
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
                // Its NAS's clock was set back. Its start is recomputed by the new clock.
                s.start = subtract_seconds(record.occurred_at, record.session_time.unwrap_or(0));
            }
        }
        self.end_session(slot, record.occurred_at, SessionState::Stopped(cause), record.session_time);
    }
    /// Ends an open session. The caller queues the change.
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

    /// Applies Accounting-On or Accounting-Off: ends the sessions of this NAS that started before it. Several NASs
    /// may share an address, for example behind a proxy. Then sessions with its NAS-Identifier end, and those with
    /// an unknown one.
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
        // Diameter has no restarts, and a Diameter NAS may claim any address.
        let identifier = self.identifier_of(record);
        let of_address = || self.table.of_nas(nas).filter(|(_, s)| !s.is_by_diameter());
        // The store has no NAS-Identifiers. If sessions of another NAS continue, each ended session is written.
        let shared = of_address().any(|(_, s)| !s.may_be_at(identifier));
        let of_nas = of_address().filter(|(_, s)| s.may_be_at(identifier) && self.began_before(s, record));
        let ended: Vec<_> = of_nas.map(|(slot, s)| (slot, s.start, s.ahead)).collect();
        for (slot, start, ahead) in ended {
            self.counters.ended_by_restart += 1;
            // The store would not end a session that started later by its times.
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
    /// True if a session started before a restart of its NAS. Times of the same clock are compared as sent. The
    /// clock may have been set in between, or one of the times may be local.
    fn began_before(&self, session: &LedgerSession, restart: &LedgerRecord) -> bool {
        let stepped = session.ahead.abs_diff(restart.ahead);
        let one_clock = restart.stamped && u64::from(stepped) <= self.config.retransmission.as_secs();
        let began_here = shift_time(session.start, session.ahead.saturating_neg());
        session.start <= restart.occurred_at
            || (!one_clock && began_here <= restart.local_event_time())
            // A session known now has started, whatever its clock says.
            || session.start > restart.received_at
    }

    /// Removes and returns the admission of a session that starts.
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

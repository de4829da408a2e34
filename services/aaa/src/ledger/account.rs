//! Applies accounting records: new, duplicate or outdated.

use super::ended_sessions::{EndedSession, StoredSessionLookup};
use super::limits::{PendingAdmission, address_and_prefix_leases};
use super::queue::{QueuedLedgerChange, REFUSED};
use super::record::{AccountingStatusType, LedgerRecord, UniqueSessionId, shift_time, subtract_seconds};
use super::session::{BY_DIAMETER, LedgerSession, SessionDigest, SessionState};
use super::{Ledger, RecordOutcome};
use crate::store::{SessionRow, Store, StoreError};
use crate::users::is_same_station_id;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::IpAddr;
use usher_core::collections::{HashMap, SeededHashState};
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
    status: AccountingStatusType,
    /// Digest of the record, with its Acct-Session-Id.
    key: SessionDigest,
    restarted_at: WallTime,
    pub(super) wait: u64,
}

/// Restarts of a bounded number of NASs.
#[derive(Debug)]
pub(super) struct NasRestartTable {
    table: SessionTable<NasRestart>,
    by_nas: HashMap<(IpAddr, AccountingStatusType), u64>,
}

impl NasRestartTable {
    const MOST: usize = 1 << 16;
    pub(super) fn new(hash: &SeededHashState) -> Self {
        Self { table: SessionTable::new(), by_nas: HashMap::with_hasher(hash.clone()) }
    }
    pub(super) fn get_mut(&mut self, nas: IpAddr, status: AccountingStatusType) -> Option<&mut NasRestart> {
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
        if matches!(record.status, AccountingStatusType::On | AccountingStatusType::Off) {
            return self.apply_nas_restart(record);
        }
        let unique = self.resolve_session_id(record);
        if unique.session_digest() != record.unique.session_digest() {
            self.past.insert(record.unique.session_digest(), StoredSessionLookup::Same(unique));
        }
        if let Some(slot) = self.table.find_slot(&unique.session_digest()) {
            return match self.table.get(slot) {
                Some(s) if s.end_state != SessionState::Open => {
                    let ended = EndedSession::from_session(s);
                    self.handle_ended_session_record(now, &ended, Some(slot), record)
                }
                _ => self.handle_open_session_record(now, slot, record),
            };
        }
        match self.past.get(&unique.session_digest()) {
            Some(StoredSessionLookup::NotFound | StoredSessionLookup::Same(_)) => {
                self.handle_unknown_session_record(now, unique, record)
            }
            Some(StoredSessionLookup::Ended(ended)) => {
                let ended = ended.clone();
                self.handle_ended_session_record(now, &ended, None, record)
            }
            None if self.is_full(record) => self.count_busy_record(),
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
            Some(StoredSessionLookup::Same(unique)) => return *unique,
            Some(StoredSessionLookup::Ended(ended)) => Some(ended.stop),
            _ => None,
        };
        let identifier = self.record_origin_digest(record);
        // If the session with the record's own digest has ended, the record belongs to it. Exception: an open session
        // fits if it started after that end.
        let fits = |s: &LedgerSession| {
            s.may_match_record(record, identifier)
                && ended.is_none_or(|stop| {
                    s.start >= stop && record.occurred_at >= s.start && record.occurred_at > stop
                })
        };
        let mut only = None;
        for (n, (_, s)) in
            self.table.open_sessions_by_acct_id(record.session.nas, &record.session.id).enumerate()
        {
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
    fn record_origin_digest(&self, record: &LedgerRecord) -> u32 {
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
    fn handle_unknown_session_record(
        &mut self,
        now: Instant,
        unique: UniqueSessionId,
        record: &LedgerRecord,
    ) -> RecordOutcome {
        let Some(nameless) = record.nameless.filter(|n| n.session_digest() != unique.session_digest()) else {
            return self.start_session(now, unique, record);
        };
        match self.past.get(&nameless.session_digest()) {
            Some(StoredSessionLookup::Ended(ended))
                if !ended.ended_before_session_of(record, self.event_time_tolerance(record)) =>
            {
                let ended = ended.clone();
                self.past.insert(unique.session_digest(), StoredSessionLookup::Same(nameless));
                self.handle_ended_session_record(now, &ended, None, record)
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
        if !self.past.insert_stored_row(unique, row)
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
            if let Some(durable) = commit.record_durability(number) {
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
    fn count_busy_record(&mut self) -> RecordOutcome {
        self.counters.busy += 1;
        RecordOutcome::Busy
    }
    /// Returns by how much an event time may be late.
    const fn event_time_tolerance(&self, record: &LedgerRecord) -> Duration {
        match (record.stamped, record.timed) {
            (true, _) => ROUNDING,
            (false, true) => MAX_TRANSIT_DELAY,
            (false, false) => self.config.retransmission,
        }
    }
    /// Handles a record without changes. It is acknowledged with the record that it repeats.
    fn finish_duplicate_record(&mut self, slot: Option<u32>) -> RecordOutcome {
        let Some((slot, wait)) = slot.and_then(|s| Some((s, self.table.get(s)?.wait))) else {
            return RecordOutcome::Durable;
        };
        match wait {
            0 => RecordOutcome::Durable,
            REFUSED => RecordOutcome::Write(self.enqueue_session(slot)),
            number => RecordOutcome::Write(number),
        }
    }
    fn count_duplicate_record(&mut self, slot: Option<u32>) -> RecordOutcome {
        self.counters.duplicates += 1;
        self.finish_duplicate_record(slot)
    }
    fn count_late_record(&mut self, slot: Option<u32>) -> RecordOutcome {
        self.counters.late += 1;
        self.finish_duplicate_record(slot)
    }

    /// Handles a record of an open session.
    fn handle_open_session_record(
        &mut self,
        now: Instant,
        slot: u32,
        record: &LedgerRecord,
    ) -> RecordOutcome {
        self.table.touch(now, slot);
        let slack = self.event_time_tolerance(record);
        let Some(s) = self.table.get(slot) else { return RecordOutcome::Busy };
        // Only a Start that is not a retransmission shows that the NAS has reused the Acct-Session-Id. A session time
        // may lag, and a clock may be set.
        if record.status == AccountingStatusType::Start
            && record.occurred_at > s.last + slack.max(self.config.retransmission)
        {
            return self.replace_reused_session(now, slot, record);
        }
        if s.user().is_empty() && !record.session.user.is_empty() {
            self.set_late_user_name(slot, record);
        }
        let Some(s) = self.table.get(slot) else { return RecordOutcome::Busy };
        let new_address = |s: &LedgerSession| {
            record.framed_address.is_some_and(|a| s.address != Some(a))
                || record.framed_prefix.is_some_and(|p| s.prefix != Some(p))
        };
        match record.status {
            AccountingStatusType::Start if s.started => self.count_duplicate_record(Some(slot)),
            AccountingStatusType::Start => {
                self.update_session(slot, record);
                if let Some(s) = self.table.get_mut(slot) {
                    s.started = true;
                    s.start = s.start.min(record.occurred_at);
                }
                RecordOutcome::Write(self.enqueue_session(slot))
            }
            AccountingStatusType::Stop => {
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
                    Some(t) if t < then => self.count_late_record(Some(slot)),
                    Some(t) if t == then && same => self.count_duplicate_record(Some(slot)),
                    Some(t) if t == then && less => self.count_late_record(Some(slot)),
                    // Without a session time, the counters show which record is newer, even if the NAS's clock was set
                    // back.
                    None if record.occurred_at < s.last && !more => self.count_late_record(Some(slot)),
                    None if record.occurred_at == s.last && same => self.count_duplicate_record(Some(slot)),
                    _ => {
                        self.update_session(slot, record);
                        if let Some(s) = self.table.get_mut(slot) {
                            s.merge_record_counters(record);
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
    fn handle_ended_session_record(
        &mut self,
        now: Instant,
        ended: &EndedSession,
        slot: Option<u32>,
        record: &LedgerRecord,
    ) -> RecordOutcome {
        if !ended.latest && record.occurred_at > ended.stop {
            return RecordOutcome::LookupNeeded(ended.unique.next_generation());
        }
        let slack = self.event_time_tolerance(record);
        let another = match record.status {
            // A Start begins another session only after the end of this one. So a retransmission of its own Start does
            // not reopen a session whose end the NAS did not report.
            AccountingStatusType::Start => {
                record.occurred_at > if ended.is_nas_reported { ended.stop + slack } else { ended.stop }
            }
            _ => ended.ended_before_session_of(record, slack),
        };
        if another {
            if self.is_full(record) {
                return self.count_busy_record();
            }
            if slot.is_some() {
                self.table.remove_key(&ended.unique.session_digest());
            }
            return self.start_session(now, ended.unique.next_generation(), record);
        }
        match record.status {
            AccountingStatusType::Start => self.count_duplicate_record(slot),
            AccountingStatusType::Stop if ended.is_nas_reported => self.count_duplicate_record(slot),
            AccountingStatusType::Stop => self.go_on(now, ended, slot, record),
            _ if ended.is_nas_reported || record.occurred_at <= ended.stop => self.count_late_record(slot),
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
                // A pending restart of the session's NAS would end the reopened session in the store, so the session is
                // written after it.
                self.enqueue_session_at_end(slot);
                slot
            }
            (None, None) => return RecordOutcome::LookupNeeded(ended.unique),
            (None, Some(_)) if self.is_full(record) => return self.count_busy_record(),
            (None, Some(row)) => {
                let Some(mut session) = self.session_of(row) else { return self.count_busy_record() };
                session.unique = ended.unique;
                session.client = self.table.shares.intern_client_number(record.client);
                self.past.remove(&ended.unique.session_digest());
                let slot = self.table.insert(now, session);
                self.enqueue_session_at_end(slot);
                slot
            }
        };
        self.counters.went_on += 1;
        self.claim_leases(slot);
        self.handle_open_session_record(now, slot, record)
    }
    /// Ends an open session whose Acct-Session-Id was reused: its Stop was lost.
    fn replace_reused_session(&mut self, now: Instant, slot: u32, record: &LedgerRecord) -> RecordOutcome {
        if self.is_full(record) {
            return self.count_busy_record();
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
            return self.count_busy_record();
        }
        let mut session = LedgerSession::new(unique, record, self.record_origin_digest(record));
        session.client = self.table.shares.intern_client_number(record.client);
        session.started = record.status == AccountingStatusType::Start;
        session.interims = u32::from(record.status == AccountingStatusType::Interim);
        let held = self.take_matching_admission(record);
        session.address = record.framed_address.or(held.as_ref().and_then(|h| h.address));
        session.prefix = record.framed_prefix.or(held.as_ref().and_then(|h| h.prefix));
        self.past.remove(&unique.session_digest());
        let slot = self.table.insert(now, session);
        self.claim_leases(slot);
        for lease in held.iter().flat_map(PendingAdmission::leases) {
            self.pools.release(lease);
        }
        self.counters.started += 1;
        if record.status == AccountingStatusType::Stop {
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
        let identifier = self.record_origin_digest(record);
        if let Some(s) = self.table.get_mut(slot) {
            s.update_details(record);
            s.update_origin_digest(record, identifier);
        }
    }
    /// Sets the user of an open session that started without User-Name.
    fn set_late_user_name(&mut self, slot: u32, record: &LedgerRecord) {
        let held = self.take_matching_admission(record);
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
        address_and_prefix_leases(address, prefix).for_each(|lease| self.pools.claim(lease, holder));
    }
    fn release_leases(&mut self, slot: u32) {
        let Some(s) = self.table.get(slot) else { return };
        address_and_prefix_leases(s.address, s.prefix).for_each(|lease| self.pools.release(lease));
    }
    fn stop_session(&mut self, slot: u32, record: &LedgerRecord) {
        self.counters.stopped += 1;
        let cause = record.terminate_cause.unwrap_or(super::names::UNKNOWN);
        if let Some(s) = self.table.get_mut(slot) {
            s.merge_record_counters(record);
            if record.occurred_at < s.start {
                // The NAS's clock was set back since the start of the session, so the start is recomputed by the new
                // clock.
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
    fn apply_nas_restart(&mut self, record: &LedgerRecord) -> RecordOutcome {
        let (nas, at, status) = (record.session.nas, record.occurred_at, record.status);
        let (key, slack) = (record.unique.session_digest(), self.event_time_tolerance(record));
        if let Some(before) = self.restarts.get_mut(nas, status).copied()
            && (before.wait != REFUSED && before.key == key)
            && (before.restarted_at <= at + slack && at <= before.restarted_at + slack)
        {
            self.counters.duplicates += 1;
            return if before.wait == 0 { RecordOutcome::Durable } else { RecordOutcome::Write(before.wait) };
        }
        if self.queue.unwritten_restart_count() >= MOST_RESTARTS {
            return self.count_busy_record();
        }
        self.counters.restarts += 1;
        let ending =
            if status == AccountingStatusType::On { SessionState::Restarted } else { SessionState::NasDown };
        // Diameter has no restarts, and a Diameter NAS may claim any address, so Diameter sessions are left out.
        let identifier = self.record_origin_digest(record);
        let of_address = || self.table.of_nas(nas).filter(|(_, s)| !s.is_diameter_session());
        // The store has no NAS-Identifiers, so a restart ends every session of the address there. If sessions of
        // another NAS continue, each ended session is written instead.
        let shared = of_address().any(|(_, s)| !s.may_match_nas_identifier(identifier));
        let of_nas = of_address()
            .filter(|(_, s)| s.may_match_nas_identifier(identifier) && self.began_before(s, record));
        let ended: Vec<_> = of_nas.map(|(slot, s)| (slot, s.start, s.ahead)).collect();
        for (slot, start, ahead) in ended {
            self.counters.ended_by_restart += 1;
            // In the store, a restart does not end a session whose start, by its own times, is later. So that session
            // is written, too.
            let later = start > at;
            let end = if later { shift_time(record.local_event_time(), ahead) } else { at };
            self.end_session(slot, end, ending, None);
            if later || shared {
                self.enqueue_session(slot);
            }
            self.free_ended_slot(slot);
        }
        let wait = self.queue.push(QueuedLedgerChange::Restart { nas, restarted_at: at, status, shared });
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
            // The session is known already, so it has started, even if its clock says that it starts in the future.
            || session.start > restart.received_at
    }

    /// Removes and returns the admission of a session that starts.
    fn take_matching_admission(&mut self, record: &LedgerRecord) -> Option<PendingAdmission> {
        let (calling, port) = (&record.calling_station_id, &record.port);
        let fits = |held: &PendingAdmission| {
            let station = is_same_station_id(&held.calling, calling);
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

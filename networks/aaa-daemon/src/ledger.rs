//! The thread of the ledger: limits and accounting of all shards, durable by group commit. Each pass takes the
//! queued entries, writes them by one [`Store::write_changes`] and acknowledges them. Entries that arrive meanwhile
//! form the next group.

mod queue;

use crate::mailbox::{JobResultTarget, ShardMailboxes, ShardMessage};
use crate::outage::{StoreOutage, StoreRefusalLog};
use crate::stats::SharedHistogram;
use queue::LedgerQueue;
pub(crate) use queue::{LedgerClient, LedgerEntryOwner};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant as Monotonic};
use usher_aaa::ledger::{
    Ledger, LedgerCounters, RecordOutcome, SessionFilter, UniqueSessionId, storable_text,
};
use usher_aaa::service::lockout_commands;
use usher_aaa::store::{SessionRow, Store, StoreChange, StoreError};
use usher_aaa::{AaaServerCommand, AdmissionVerdict, AdmitRequest, LedgerRecord};
use usher_live::SystemClock;

/// Maximum number of queued entries. Beyond it the client with the most entries loses one.
const WAITING: usize = 1 << 16;
/// Maximum number of entries and changes of a group.
const GROUP: usize = 4096;
/// Maximum number of decided logins to be written. Beyond it the oldest are dropped.
const LOGINS: usize = 1 << 14;
/// Pause after the store failed.
const PAUSE: Duration = Duration::from_millis(500);

/// An entry of the ledger's queue.
pub(crate) enum LedgerEntry {
    /// Admits a user.
    Admit(JobResultTarget, AdmitRequest),
    /// Applies an accounting record.
    Account(JobResultTarget, Box<LedgerRecord>),
    /// Counts a failed attempt.
    Failed {
        /// User-Name.
        user: Vec<u8>,
        /// Calling-Station-Id.
        station: Vec<u8>,
    },
    /// Records a decided login.
    Login(StoreChange),
    /// Returns the open sessions of a user, or all.
    Sessions(Option<String>, SyncSender<Vec<SessionRow>>),
    /// Ends these sessions. Reports those that were open at once, and the end when it is durable.
    EndSessions(Vec<UniqueSessionId>, SyncSender<Vec<SessionRow>>, SyncSender<()>),
    /// Returns the counters.
    Collect(SyncSender<LedgerSnapshot>),
    /// Writes the remaining changes and ends.
    Stop,
}

/// The ledger's counters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LedgerSnapshot {
    pub(crate) counters: LedgerCounters,
    pub(crate) open: u64,
}

/// Statistics that other threads read.
#[derive(Debug, Default)]
pub(crate) struct LedgerStats {
    /// Entries refused for a full queue, of all clients or of their own.
    pub(crate) refused: AtomicU64,
    /// Changes that the store refused.
    pub(crate) lost: AtomicU64,
    /// Write times of groups.
    pub(crate) write: SharedHistogram,
    /// Cause of the store's outage, if there is one.
    pub(crate) outage: Mutex<Option<String>>,
}

/// The sender of entries.
#[derive(Clone)]
pub(crate) struct LedgerHandle {
    queue: Arc<LedgerQueue>,
    mailboxes: ShardMailboxes,
    pub(crate) stats: Arc<LedgerStats>,
}

impl LedgerHandle {
    /// Queues an entry. If the queue is full, this entry or one of the client with the most entries is answered at
    /// once, without acknowledgement.
    pub(crate) fn queue_entry(&self, whose: LedgerEntryOwner, entry: LedgerEntry) {
        let Some(refused) = self.queue.push(whose, entry) else { return };
        self.stats.refused.fetch_add(1, Ordering::Relaxed);
        match refused {
            LedgerEntry::Admit(f, _) => self.mailboxes.send_command(
                f.shard,
                AaaServerCommand::Admitted { token: f.token, admission: AdmissionVerdict::Unavailable },
            ),
            LedgerEntry::Account(f, _) => {
                self.mailboxes
                    .send_command(f.shard, AaaServerCommand::Accounted { token: f.token, durable: false });
            }
            _ => {}
        }
    }
    /// Queues a record.
    pub(crate) fn queue_accounting_record(&self, f: JobResultTarget, record: Box<LedgerRecord>) {
        self.queue_entry(
            LedgerEntryOwner::Sessions(LedgerClient::from_network(record.client)),
            LedgerEntry::Account(f, record),
        );
    }
    /// Has the thread write the remaining changes and end.
    pub(crate) fn request_stop(&self) {
        self.queue.queue_server_entry(LedgerEntry::Stop);
    }
    /// Number of queued entries.
    pub(crate) fn queued_count(&self) -> usize {
        self.queue.len()
    }
    /// Returns the open sessions of a user, or all.
    pub(crate) fn open_sessions(&self, user: Option<String>) -> Vec<SessionRow> {
        let (sender, receiver) = sync_channel(1);
        self.queue.queue_server_entry(LedgerEntry::Sessions(user, sender));
        receiver.recv_timeout(Duration::from_secs(10)).unwrap_or_default()
    }
    /// Ends sessions. Returns those that were open, and whether their end is already durable.
    pub(crate) fn close_sessions(&self, sessions: Vec<UniqueSessionId>) -> Option<(Vec<SessionRow>, bool)> {
        let ((rows, forgotten), (done, durable)) = (sync_channel(1), sync_channel(1));
        self.queue.queue_server_entry(LedgerEntry::EndSessions(sessions, rows, done));
        let rows = forgotten.recv_timeout(Duration::from_secs(10)).ok()?;
        let durable = rows.is_empty() || durable.recv_timeout(Duration::from_secs(10)).is_ok();
        Some((rows, durable))
    }
    pub(crate) fn collect_snapshot(&self) -> Option<LedgerSnapshot> {
        let (sender, receiver) = sync_channel(1);
        self.queue.queue_server_entry(LedgerEntry::Collect(sender));
        receiver.recv_timeout(Duration::from_secs(1)).ok()
    }
}

/// The ledger's thread.
struct LedgerThread {
    queue: Arc<LedgerQueue>,
    ledger: Ledger,
    store: Box<dyn Store>,
    clock: SystemClock,
    mailboxes: ShardMailboxes,
    stats: Arc<LedgerStats>,
    /// Records to be acknowledged when the change of this number is durable.
    pending: VecDeque<(u64, JobResultTarget)>,
    /// Requests that wait for sessions to be ended in the store.
    forgotten: Vec<(u64, SyncSender<()>)>,
    logins: VecDeque<StoreChange>,
    outage: StoreOutage,
    refusals: StoreRefusalLog,
    /// True while the store's open sessions are not loaded. Until then duplicates cannot be recognised.
    unread: bool,
    /// End of the pause after a failure of the store.
    rest: Option<Monotonic>,
    stopping: bool,
}

/// Starts the thread. It loads the store's open sessions first, or as soon as the store is available.
///
/// # Errors
/// The store can never return them.
pub(crate) fn start_ledger(
    ledger: Ledger,
    store: Box<dyn Store>,
    clock: SystemClock,
    mailboxes: ShardMailboxes,
) -> Result<(LedgerHandle, io::Result<JoinHandle<()>>), StoreError> {
    let queue = Arc::new(LedgerQueue::new(WAITING));
    let stats = Arc::new(LedgerStats::default());
    let handle = LedgerHandle { queue: queue.clone(), mailboxes: mailboxes.clone(), stats: stats.clone() };
    let mut keeper = LedgerThread {
        queue,
        ledger,
        store,
        clock,
        mailboxes,
        stats,
        pending: VecDeque::new(),
        forgotten: Vec::new(),
        logins: VecDeque::new(),
        outage: StoreOutage::default(),
        refusals: StoreRefusalLog::default(),
        unread: true,
        rest: None,
        stopping: false,
    };
    keeper.load_sessions()?;
    let thread = thread::Builder::new().name("usher-ledger".to_owned()).spawn(move || keeper.run());
    Ok((handle, thread))
}

impl LedgerThread {
    fn run(mut self) {
        loop {
            if let Some(entry) = self.queue.take_with_timeout(self.entry_timeout()) {
                self.handle_entry(entry);
                for _ in 1..GROUP {
                    let Some(entry) = self.queue.pop() else { break };
                    self.handle_entry(entry);
                }
            }
            let now = self.clock.now();
            if self.ledger.next_timeout().is_some_and(|t| t <= now) {
                self.ledger.expire_sessions(now);
            }
            if self.rest.is_none_or(|until| until <= Monotonic::now()) {
                self.rest = None;
                if let Err(error) = self.load_sessions() {
                    tracing::error!(%error, "cannot load the open sessions from the store: the server takes no \
                                             accounting");
                    self.rest = Some(Monotonic::now() + PAUSE);
                }
                while self.rest.is_none() && self.commit_change_group() {}
            }
            if self.stopping {
                return;
            }
        }
    }

    /// Loads the store's open sessions once.
    fn load_sessions(&mut self) -> Result<(), StoreError> {
        if !self.unread {
            return Ok(());
        }
        let (now, ledger) = (self.clock.now(), &mut self.ledger);
        // If the store fails halfway, the next attempt does not load the same sessions twice.
        let read = self.store.open_sessions(&mut |row| {
            ledger.restore_session(now, &row);
        });
        match read {
            Ok(()) => self.unread = false,
            Err(error @ (StoreError::Refused(_) | StoreError::Unstorable(_))) => return Err(error),
            Err(error @ StoreError::Unavailable(_)) => self.is_away(&error),
        }
        Ok(())
    }

    /// Handles an unavailable store: starts the pause.
    fn is_away(&mut self, error: &StoreError) {
        self.record_store_answer(Some(error));
        self.rest = Some(Monotonic::now() + PAUSE);
    }

    /// Records the result of the store's last call.
    fn record_store_answer(&mut self, error: Option<&StoreError>) {
        self.outage.record_store_result(error);
        let cause = error.map(ToString::to_string);
        *self.stats.outage.lock().unwrap_or_else(PoisonError::into_inner) = cause;
    }

    /// Returns how long to wait for an entry.
    fn entry_timeout(&self) -> Duration {
        let most = Duration::from_secs(1);
        let rest = self.rest.map(|until| until.saturating_duration_since(Monotonic::now()));
        let now = self.clock.now();
        let timer =
            self.ledger.next_timeout().map(|t| Duration::from_nanos(t.duration_since(now).as_nanos()));
        [rest, timer].into_iter().flatten().fold(most, Duration::min)
    }

    fn handle_entry(&mut self, entry: LedgerEntry) {
        let now = self.clock.now();
        let wall = self.clock.wall_time(now);
        match entry {
            LedgerEntry::Admit(f, request) => {
                let admission = match self.unread {
                    true => AdmissionVerdict::Unavailable,
                    false => self.ledger.admit_user(now, wall, &request),
                };
                self.mailboxes
                    .send_command(f.shard, AaaServerCommand::Admitted { token: f.token, admission });
            }
            LedgerEntry::Account(f, record) => self.apply_record(f, &record),
            LedgerEntry::Failed { user, station } => {
                let held = self.ledger.record_failure(now, &storable_text(&user), &storable_text(&station));
                if held.user {
                    tracing::warn!(user = %storable_text(&user), "too many failed logins under this name: locked out");
                }
                if held.station {
                    tracing::warn!(mac = %storable_text(&station),
                        "too many failed logins from this station: locked out");
                }
                // A lockout is sent to all shards, because the user may log in at any of them.
                for mailbox in self.mailboxes.as_slice() {
                    for command in lockout_commands(&user, &station, held) {
                        mailbox.send(ShardMessage::Command(command));
                    }
                }
            }
            LedgerEntry::Login(login) => {
                if self.logins.len() >= LOGINS {
                    self.logins.pop_front();
                }
                self.logins.push_back(login);
            }
            LedgerEntry::Sessions(user, sender) => {
                let rows = match user {
                    Some(user) => self.ledger.find_sessions(SessionFilter::User(&user)),
                    None => self.ledger.open_sessions().collect(),
                };
                let _ = sender.try_send(rows);
            }
            LedgerEntry::EndSessions(sessions, rows, done) => {
                let mut last = None;
                let mut ended = Vec::new();
                for unique in sessions {
                    let row = self.ledger.find_sessions(SessionFilter::Unique(unique)).pop();
                    if let Some(number) = self.ledger.close_session(unique) {
                        ended.extend(row);
                        last = last.max(Some(number));
                    }
                }
                self.forgotten.extend(last.map(|number| (number, done)));
                // A send error is ignored: the requester may have disconnected.
                let _ = rows.try_send(ended);
            }
            LedgerEntry::Collect(sender) => {
                let open = self.ledger.len() as u64;
                let _ = sender.try_send(LedgerSnapshot { counters: *self.ledger.counters(), open });
            }
            LedgerEntry::Stop => {
                self.stopping = true;
                // Entries that were queued earlier may still come behind the Stop entry, so handle the whole queue.
                for _ in 0..self.queue.len() {
                    let Some(entry) = self.queue.pop() else { break };
                    self.handle_entry(entry);
                }
            }
        }
    }

    fn apply_record(&mut self, f: JobResultTarget, record: &LedgerRecord) {
        if self.unread {
            return self.send_accounting_result(f, false);
        }
        let (now, store, rest) = (self.clock.now(), &mut self.store, self.rest.is_some());
        let mut failed = None;
        let taken = self.ledger.apply_record_with(now, record, |unique| match rest {
            false => store.find_session(unique).inspect_err(|error| failed = Some(error.clone())),
            // The store is unavailable: a query to it would delay all other entries, so fail at once.
            true => Err(StoreError::Unavailable(String::new())),
        });
        if let Some(error) = failed {
            self.is_away(&error);
        }
        match taken {
            Ok(RecordOutcome::Write(n)) => self.pending.push_back((n, f)),
            taken => self.send_accounting_result(f, taken == Ok(RecordOutcome::Durable)),
        }
    }

    fn send_accounting_result(&self, f: JobResultTarget, durable: bool) {
        self.mailboxes.send_command(f.shard, AaaServerCommand::Accounted { token: f.token, durable });
    }

    /// Writes a group. True if there may be more.
    fn commit_change_group(&mut self) -> bool {
        let begun = Monotonic::now();
        let commit = self.ledger.commit_changes(&mut *self.store, GROUP);
        if commit.last_number.is_some() || commit.error.is_some() {
            self.stats.write.add(begun.elapsed());
        }
        let refused = commit.refused.len() as u64;
        if refused > 0 {
            self.stats.lost.fetch_add(refused, Ordering::Relaxed);
            let cause = commit.error.as_ref().map(ToString::to_string).unwrap_or_default();
            if let Some(refused) = self.refusals.record_refusal(&cause, refused, Monotonic::now()) {
                tracing::error!(
                    refused,
                    error = cause,
                    "the store refused records permanently: they are not acknowledged"
                );
            }
        }
        let away = commit.error.as_ref().filter(|e| matches!(e, StoreError::Unavailable(_)));
        self.record_store_answer(away);
        let (away, failed) = (away.is_some(), commit.error.is_some());
        let mut answers = Vec::new();
        self.pending.retain(|(n, f)| {
            // A record that is not durable gets no acknowledgement, so that its NAS retransmits it.
            let durable = commit.record_durability(*n).or(failed.then_some(false));
            answers.extend(durable.map(|durable| (*f, durable)));
            durable.is_none()
        });
        for (f, durable) in answers {
            self.send_accounting_result(f, durable);
        }
        self.forgotten.retain(|(n, done)| {
            let durable = commit.record_durability(*n);
            if durable == Some(true) {
                let _ = done.try_send(());
            }
            durable.is_none()
        });
        if away {
            self.rest = Some(Monotonic::now() + PAUSE);
            return false;
        }
        self.write_queued_logins();
        commit.written >= GROUP
    }

    fn write_queued_logins(&mut self) {
        if self.logins.is_empty() {
            return;
        }
        let mut most = self.logins.len();
        while !self.logins.is_empty() {
            let part = &self.logins.make_contiguous()[..];
            let part = &part[..most.min(part.len())];
            match self.store.write_changes(part) {
                Ok(()) => {
                    let written = part.len();
                    self.logins.drain(..written);
                    most *= 2;
                }
                Err(StoreError::Refused(_) | StoreError::Unstorable(_)) if part.len() > 1 => {
                    most = part.len() / 2;
                }
                Err(error @ (StoreError::Refused(_) | StoreError::Unstorable(_))) => {
                    self.logins.pop_front();
                    self.stats.lost.fetch_add(1, Ordering::Relaxed);
                    if let Some(logins) =
                        self.refusals.record_refusal(&error.to_string(), 1, Monotonic::now())
                    {
                        tracing::error!(%error, logins, "the store refused to write logins");
                    }
                }
                Err(error @ StoreError::Unavailable(_)) => return self.is_away(&error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use usher_aaa::ledger::{AccountingStatusType, LedgerConfig, NasSessionKey};
    use usher_aaa::store::{ClientRow, GroupRows, MemoryStore, UserRows};
    use usher_core::WallTime;

    /// An unavailable store that counts its calls: open sessions, one session, writes.
    #[derive(Clone, Default)]
    struct UnavailableStore {
        query_counts: Arc<[AtomicU32; 3]>,
        /// True if it was available at the start.
        left: bool,
        /// A slow but available store.
        slow: Option<GatedStore>,
    }

    /// Writes only while the gate is open.
    #[derive(Clone)]
    struct GatedStore {
        gate: Arc<Mutex<()>>,
        written: Arc<Mutex<MemoryStore>>,
    }

    impl UnavailableStore {
        fn count_request(&self, what: usize) -> StoreError {
            self.query_counts[what].fetch_add(1, Ordering::Relaxed);
            StoreError::Unavailable("away".to_owned())
        }
        fn request_counts(&self) -> [u32; 3] {
            [0, 1, 2].map(|what: usize| self.query_counts[what].load(Ordering::Relaxed))
        }
    }

    impl Store for UnavailableStore {
        fn find_user(&mut self, _: &str) -> Result<Option<UserRows>, StoreError> {
            unreachable!("the ledger asks for no user")
        }
        fn write_changes(&mut self, changes: &[StoreChange]) -> Result<(), StoreError> {
            let Some(slow) = &self.slow else { return Err(self.count_request(2)) };
            drop(slow.gate.lock().expect("no holder failed"));
            slow.written.lock().expect("no holder failed").write_changes(changes)
        }
        fn open_sessions(&mut self, _: &mut dyn FnMut(SessionRow)) -> Result<(), StoreError> {
            if self.left { Ok(()) } else { Err(self.count_request(0)) }
        }
        fn find_session(&mut self, _: &str) -> Result<Option<SessionRow>, StoreError> {
            if self.slow.is_some() { Ok(None) } else { Err(self.count_request(1)) }
        }
        fn list_clients(&mut self) -> Result<Vec<ClientRow>, StoreError> {
            unreachable!("the ledger asks for no client")
        }
        fn user_names(&mut self, _: Option<&str>, _: u32) -> Result<Vec<String>, StoreError> {
            unreachable!("the ledger asks for no user")
        }
        fn put_user(&mut self, _: &str, _: &UserRows) -> Result<(), StoreError> {
            unreachable!("the ledger makes no user")
        }
        fn delete_user(&mut self, _: &str) -> Result<bool, StoreError> {
            unreachable!("the ledger removes no user")
        }
        fn put_group(&mut self, _: &GroupRows) -> Result<(), StoreError> {
            unreachable!("the ledger makes no group")
        }
        fn put_client(&mut self, _: &ClientRow) -> Result<(), StoreError> {
            unreachable!("the ledger makes no client")
        }
        fn delete_client(&mut self, _: &str) -> Result<bool, StoreError> {
            unreachable!("the ledger removes no client")
        }
    }

    /// Passes a thousand records to a ledger with this store, and stops it. Returns how many calls of the store are
    /// allowed with a [`PAUSE`] after each.
    fn count_allowed_store_calls(store: &UnavailableStore) -> u128 {
        let begun = Monotonic::now();
        let ledger = Ledger::new(LedgerConfig::default());
        let store = Box::new(store.clone());
        let (handle, thread) = start_ledger(ledger, store, SystemClock::start(), ShardMailboxes::default())
            .expect("it is only away");
        for n in 0..1000_u32 {
            let session = NasSessionKey { nas: [10, 0, 0, 1].into(), id: n.to_string(), user: String::new() };
            let record = LedgerRecord::new(
                AccountingStatusType::Start,
                session,
                WallTime::from_unix_secs(1_800_000_000),
            );
            handle.queue_accounting_record(JobResultTarget { shard: 0, token: 0 }, Box::new(record));
        }
        handle.request_stop();
        thread.expect("there is a thread").join().expect("it ends");
        1 + begun.elapsed().as_nanos() / PAUSE.as_nanos()
    }

    /// Returns a ledger's counters, however long its thread takes.
    fn wait_for_ledger_snapshot(handle: &LedgerHandle) -> LedgerSnapshot {
        (0..120).find_map(|_| handle.collect_snapshot()).expect("the ledger's thread answers")
    }

    #[test]
    fn a_new_record_is_accepted_however_often_its_id_was_used() {
        let record = |status, secs: u64| {
            let session =
                NasSessionKey { nas: [10, 0, 0, 1].into(), id: "1".to_owned(), user: "ann".to_owned() };
            let at = WallTime::from_unix_secs(1_800_000_000 + secs);
            LedgerRecord { timed: true, stamped: true, ..LedgerRecord::new(status, session, at) }
        };
        let (mut before, mut store) = (Ledger::new(LedgerConfig::default()), MemoryStore::new());
        let now = SystemClock::start().now();
        for n in 0..40 {
            assert!(before.commit_record(now, &mut store, &record(AccountingStatusType::Start, 1000 * n)));
            assert!(before.commit_record(
                now,
                &mut store,
                &record(AccountingStatusType::Stop, 1000 * n + 100)
            ));
        }
        let ledger = Ledger::new(LedgerConfig::default());
        let (handle, thread) =
            start_ledger(ledger, Box::new(store), SystemClock::start(), ShardMailboxes::default())
                .expect("it is there");
        handle.queue_accounting_record(
            JobResultTarget { shard: 0, token: 0 },
            Box::new(record(AccountingStatusType::Start, 100_000)),
        );
        assert_eq!(wait_for_ledger_snapshot(&handle).counters.started, 1);
        handle.request_stop();
        thread.expect("there is a thread").join().expect("it ends");
    }

    #[test]
    fn a_flood_of_one_clients_records_keeps_out_no_other_clients() {
        const FLOOD: u32 = 80_000;
        let slow = GatedStore { gate: Arc::default(), written: Arc::new(Mutex::new(MemoryStore::new())) };
        let store = UnavailableStore { left: true, slow: Some(slow.clone()), ..UnavailableStore::default() };
        let held = slow.gate.lock().expect("no holder failed");
        let (handle, thread) = start_ledger(
            Ledger::new(LedgerConfig::default()),
            Box::new(store),
            SystemClock::start(),
            ShardMailboxes::default(),
        )
        .expect("it is there");
        let tell = |client: u8, n: u32| {
            let nas = [10, 0, 0, client].into();
            let session = NasSessionKey { nas, id: n.to_string(), user: String::new() };
            let record = LedgerRecord::new(
                AccountingStatusType::Start,
                session,
                WallTime::from_unix_secs(1_800_000_000),
            );
            let record = LedgerRecord { client: Some((nas, 32)), ..record };
            handle.queue_accounting_record(JobResultTarget { shard: 0, token: 0 }, Box::new(record));
        };
        (0..FLOOD).for_each(|n| tell(1, n));
        (0..100).for_each(|n| tell(2, n));
        let refused = handle.stats.refused.load(Ordering::Relaxed);
        assert!(refused > 5_000, "all places are taken: {refused}");
        drop(held);
        handle.request_stop();
        thread.expect("there is a thread").join().expect("it ends");
        let written = slow.written.lock().expect("no holder failed");
        let of = |client: u8| {
            let nas = std::net::IpAddr::from([10, 0, 0, client]);
            written.sessions().filter(|row| row.nasipaddress == nas).count() as u64
        };
        assert_eq!((of(2), of(1)), (100, u64::from(FLOOD) - refused));
    }

    #[test]
    fn a_store_that_is_away_is_left_alone() {
        let store = UnavailableStore { left: true, ..UnavailableStore::default() };
        let most = count_allowed_store_calls(&store);
        let [_, asked, _] = store.request_counts();
        assert!((1..=most).contains(&asked.into()), "{asked} of {most}");
    }

    #[test]
    fn nothing_is_asked_before_the_open_sessions_are_known() {
        let store = UnavailableStore::default();
        let most = count_allowed_store_calls(&store);
        let [read, asked, _] = store.request_counts();
        assert!((1..=most).contains(&read.into()), "{read} of {most}");
        assert_eq!(asked, 0);
    }
}

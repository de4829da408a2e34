//! The thread of the one ledger: limits and accounting of all shards, durable by group commit. What waits is taken,
//! written by one [`Store::write`], and then acknowledged; what came meanwhile is the next group.

mod queue;

use crate::mailbox::{For, Mailboxes, Message};
use crate::outage::{Outage, RefusalLog};
use crate::stats::Latency;
use queue::Queue;
pub(crate) use queue::{Client, Whose};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant as Monotonic};
use usher_aaa::ledger::{Accounting, Counters, Find, Ledger, Unique, text};
use usher_aaa::service::hold_back;
use usher_aaa::store::{Change, SessionRow, Store, StoreError};
use usher_aaa::{Admission, AdmitRequest, Command, Record};
use usher_live::Clock;

/// Entries that may wait; beyond it those of whoever has most are refused at once.
const WAITING: usize = 1 << 16;
/// Entries and changes of one group.
const GROUP: usize = 4096;
/// Decided logins that wait to be written down; beyond it the oldest go.
const LOGINS: usize = 1 << 14;
/// How long the store is left alone after it failed.
const PAUSE: Duration = Duration::from_millis(500);

/// What the ledger is told.
pub(crate) enum Entry {
    /// May somebody come in?
    Admit(For, AdmitRequest),
    /// Keep a record.
    Account(For, Box<Record>),
    /// Somebody failed to prove who they are.
    Failed {
        /// User-Name.
        user: Vec<u8>,
        /// Calling-Station-Id.
        station: Vec<u8>,
    },
    /// A login was decided.
    Login(Change),
    /// Tell the open sessions: those of a user, or all.
    Sessions(Option<String>, SyncSender<Vec<SessionRow>>),
    /// End these sessions, and tell which were open, at once, and when all is durable.
    Forget(Vec<Unique>, SyncSender<Vec<SessionRow>>, SyncSender<()>),
    /// Tell what was counted.
    Collect(SyncSender<LedgerSnapshot>),
    /// Write what waits and end.
    Stop,
}

/// What the ledger counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LedgerSnapshot {
    pub(crate) counters: Counters,
    pub(crate) open: u64,
}

/// Numbers that others read.
#[derive(Debug, Default)]
pub(crate) struct LedgerStats {
    /// Entries that were refused because too many waited, of all or of their client.
    pub(crate) refused: AtomicU64,
    /// Changes that the store refused.
    pub(crate) lost: AtomicU64,
    /// How long groups took to write.
    pub(crate) write: Latency,
    /// Why nothing is written now, if nothing is.
    pub(crate) outage: Mutex<Option<String>>,
}

/// Where entries are put.
#[derive(Clone)]
pub(crate) struct LedgerHandle {
    queue: Arc<Queue>,
    mailboxes: Mailboxes,
    pub(crate) stats: Arc<LedgerStats>,
}

impl LedgerHandle {
    /// Puts an entry in line; where there is no room, the request that it is of, or that of who has most in line, is
    /// answered at once, without acknowledgement.
    pub(crate) fn put(&self, whose: Whose, entry: Entry) {
        let Some(refused) = self.queue.put(whose, entry) else { return };
        self.stats.refused.fetch_add(1, Ordering::Relaxed);
        match refused {
            Entry::Admit(f, _) => self
                .mailboxes
                .command(f.shard, Command::Admitted { token: f.token, admission: Admission::Unavailable }),
            Entry::Account(f, _) => {
                self.mailboxes.command(f.shard, Command::Accounted { token: f.token, durable: false });
            }
            _ => {}
        }
    }
    /// Puts a record in line.
    pub(crate) fn account(&self, f: For, record: Box<Record>) {
        self.put(Whose::Sessions(Client::of(record.client)), Entry::Account(f, record));
    }
    /// Has the thread write what waits, and end.
    pub(crate) fn stop(&self) {
        self.queue.put_own(Entry::Stop);
    }
    /// How many entries wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }
    /// The open sessions: those of a user, or all.
    pub(crate) fn sessions(&self, user: Option<String>) -> Vec<SessionRow> {
        let (sender, receiver) = sync_channel(1);
        self.queue.put_own(Entry::Sessions(user, sender));
        receiver.recv_timeout(Duration::from_secs(10)).unwrap_or_default()
    }
    /// Ends sessions: those that were open, and whether their end is durable already.
    pub(crate) fn forget(&self, sessions: Vec<Unique>) -> Option<(Vec<SessionRow>, bool)> {
        let ((rows, forgotten), (done, durable)) = (sync_channel(1), sync_channel(1));
        self.queue.put_own(Entry::Forget(sessions, rows, done));
        let rows = forgotten.recv_timeout(Duration::from_secs(10)).ok()?;
        let durable = rows.is_empty() || durable.recv_timeout(Duration::from_secs(10)).is_ok();
        Some((rows, durable))
    }
    pub(crate) fn collect(&self) -> Option<LedgerSnapshot> {
        let (sender, receiver) = sync_channel(1);
        self.queue.put_own(Entry::Collect(sender));
        receiver.recv_timeout(Duration::from_secs(1)).ok()
    }
}

/// The ledger's thread.
struct Keeper {
    queue: Arc<Queue>,
    ledger: Ledger,
    store: Box<dyn Store>,
    clock: Clock,
    mailboxes: Mailboxes,
    stats: Arc<LedgerStats>,
    /// Records that are acknowledged when what bears their number is written.
    pending: VecDeque<(u64, For)>,
    /// Who waits for sessions to be ended in the store, too.
    forgotten: Vec<(u64, SyncSender<()>)>,
    logins: VecDeque<Change>,
    outage: Outage,
    refusals: RefusalLog,
    /// The sessions that are open in the store are not known yet: until they are, no record can be told from one that
    /// came before.
    unread: bool,
    /// The store is left alone until then.
    rest: Option<Monotonic>,
    stopping: bool,
}

/// Begins the thread. Sessions that are open in the store are taken first; where it is away, as soon as it answers.
///
/// # Errors
/// The store will never give them.
pub(crate) fn begin(
    ledger: Ledger,
    store: Box<dyn Store>,
    clock: Clock,
    mailboxes: Mailboxes,
) -> Result<(LedgerHandle, Option<JoinHandle<()>>), StoreError> {
    let queue = Arc::new(Queue::new(WAITING));
    let stats = Arc::new(LedgerStats::default());
    let handle = LedgerHandle { queue: queue.clone(), mailboxes: mailboxes.clone(), stats: stats.clone() };
    let mut keeper = Keeper {
        queue,
        ledger,
        store,
        clock,
        mailboxes,
        stats,
        pending: VecDeque::new(),
        forgotten: Vec::new(),
        logins: VecDeque::new(),
        outage: Outage::default(),
        refusals: RefusalLog::default(),
        unread: true,
        rest: None,
        stopping: false,
    };
    keeper.read()?;
    let thread = thread::Builder::new().name("usher-ledger".to_owned()).spawn(move || keeper.run()).ok();
    Ok((handle, thread))
}

impl Keeper {
    fn run(mut self) {
        loop {
            if let Some(entry) = self.queue.take_within(self.patience()) {
                self.take(entry);
                for _ in 1..GROUP {
                    let Some(entry) = self.queue.take() else { break };
                    self.take(entry);
                }
            }
            let now = self.clock.now();
            if self.ledger.timeout().is_some_and(|t| t <= now) {
                self.ledger.expire(now);
            }
            if self.rest.is_none_or(|until| until <= Monotonic::now()) {
                self.rest = None;
                if let Err(error) = self.read() {
                    tracing::error!(%error, "the store refuses its open sessions; no accounting is taken");
                    self.rest = Some(Monotonic::now() + PAUSE);
                }
                while self.rest.is_none() && self.write() {}
            }
            if self.stopping {
                return;
            }
        }
    }

    /// Takes the sessions that are open in the store, where that was not done yet.
    fn read(&mut self) -> Result<(), StoreError> {
        if !self.unread {
            return Ok(());
        }
        let (now, ledger) = (self.clock.now(), &mut self.ledger);
        // What was taken before the store went away in the midst of it is not taken twice.
        let read = self.store.open_sessions(&mut |row| {
            ledger.restore(now, &row);
        });
        match read {
            Ok(()) => self.unread = false,
            Err(error @ (StoreError::Refused(_) | StoreError::Unstorable(_))) => return Err(error),
            Err(error @ StoreError::Unavailable(_)) => self.is_away(&error),
        }
        Ok(())
    }

    /// The store does not answer: it is left alone for a while.
    fn is_away(&mut self, error: &StoreError) {
        self.note(Some(error));
        self.rest = Some(Monotonic::now() + PAUSE);
    }

    /// Takes what the store's last answer was, an error or none.
    fn note(&mut self, error: Option<&StoreError>) {
        self.outage.note(error);
        let cause = error.map(ToString::to_string);
        *self.stats.outage.lock().unwrap_or_else(PoisonError::into_inner) = cause;
    }

    /// How long to wait for an entry.
    fn patience(&self) -> Duration {
        let most = Duration::from_secs(1);
        let rest = self.rest.map(|until| until.saturating_duration_since(Monotonic::now()));
        let now = self.clock.now();
        let timer = self.ledger.timeout().map(|t| Duration::from_nanos(t.since(now).as_nanos()));
        [rest, timer].into_iter().flatten().fold(most, Duration::min)
    }

    fn take(&mut self, entry: Entry) {
        let now = self.clock.now();
        let wall = self.clock.wall(now);
        match entry {
            Entry::Admit(f, request) => {
                let admission = match self.unread {
                    true => Admission::Unavailable,
                    false => self.ledger.admit(now, wall, &request),
                };
                self.mailboxes.command(f.shard, Command::Admitted { token: f.token, admission });
            }
            Entry::Account(f, record) => self.account(f, &record),
            Entry::Failed { user, station } => {
                let held = self.ledger.failed(now, &text(&user), &text(&station));
                if held.user {
                    tracing::warn!(user = %text(&user), "too many failed logins under this name: held back");
                }
                if held.station {
                    tracing::warn!(mac = %text(&station), "too many failed logins from this station: held back");
                }
                // Every shard weighs nothing more of them.
                for mailbox in self.mailboxes.all() {
                    for command in hold_back(&user, &station, held) {
                        mailbox.send(Message::Command(command));
                    }
                }
            }
            Entry::Login(login) => {
                if self.logins.len() >= LOGINS {
                    self.logins.pop_front();
                }
                self.logins.push_back(login);
            }
            Entry::Sessions(user, sender) => {
                let rows = match user {
                    Some(user) => self.ledger.find(Find::User(&user)),
                    None => self.ledger.sessions().collect(),
                };
                let _ = sender.try_send(rows);
            }
            Entry::Forget(sessions, rows, done) => {
                let mut last = None;
                let mut ended = Vec::new();
                for unique in sessions {
                    let row = self.ledger.find(Find::Unique(unique)).pop();
                    if let Some(number) = self.ledger.forget(unique) {
                        ended.extend(row);
                        last = last.max(Some(number));
                    }
                }
                self.forgotten.extend(last.map(|number| (number, done)));
                // Who went away needs no answer.
                let _ = rows.try_send(ended);
            }
            Entry::Collect(sender) => {
                let open = self.ledger.len() as u64;
                let _ = sender.try_send(LedgerSnapshot { counters: *self.ledger.counters(), open });
            }
            Entry::Stop => {
                self.stopping = true;
                // What came before it may wait behind it.
                for _ in 0..self.queue.len() {
                    let Some(entry) = self.queue.take() else { break };
                    self.take(entry);
                }
            }
        }
    }

    fn account(&mut self, f: For, record: &Record) {
        if self.unread {
            return self.answer(f, false);
        }
        let (now, store, rest) = (self.clock.now(), &mut self.store, self.rest.is_some());
        let mut failed = None;
        let taken = self.ledger.take(now, record, |unique| match rest {
            false => store.session(unique).inspect_err(|error| failed = Some(error.clone())),
            // Each question to a store that is away would keep all the others waiting.
            true => Err(StoreError::Unavailable(String::new())),
        });
        if let Some(error) = failed {
            self.is_away(&error);
        }
        match taken {
            Ok(Accounting::Write(n)) => self.pending.push_back((n, f)),
            taken => self.answer(f, taken == Ok(Accounting::Durable)),
        }
    }

    fn answer(&self, f: For, durable: bool) {
        self.mailboxes.command(f.shard, Command::Accounted { token: f.token, durable });
    }

    /// Writes one group; true where there may be more.
    fn write(&mut self) -> bool {
        let begun = Monotonic::now();
        let commit = self.ledger.commit(&mut *self.store, GROUP);
        if commit.through.is_some() || commit.error.is_some() {
            self.stats.write.add(begun.elapsed());
        }
        let refused = commit.refused.len() as u64;
        if refused > 0 {
            self.stats.lost.fetch_add(refused, Ordering::Relaxed);
            let cause = commit.error.as_ref().map(ToString::to_string).unwrap_or_default();
            if let Some(refused) = self.refusals.note(&cause, refused, Monotonic::now()) {
                tracing::error!(
                    refused,
                    error = cause,
                    "the store refuses records for good; not acknowledged"
                );
            }
        }
        let away = commit.error.as_ref().filter(|e| matches!(e, StoreError::Unavailable(_)));
        self.note(away);
        let (away, failed) = (away.is_some(), commit.error.is_some());
        let mut answers = Vec::new();
        self.pending.retain(|(n, f)| {
            // What the store did not take now comes again from its NAS.
            let durable = commit.durable(*n).or(failed.then_some(false));
            answers.extend(durable.map(|durable| (*f, durable)));
            durable.is_none()
        });
        for (f, durable) in answers {
            self.answer(f, durable);
        }
        self.forgotten.retain(|(n, done)| {
            let durable = commit.durable(*n);
            if durable == Some(true) {
                let _ = done.try_send(());
            }
            durable.is_none()
        });
        if away {
            self.rest = Some(Monotonic::now() + PAUSE);
            return false;
        }
        self.write_logins();
        commit.written >= GROUP
    }

    fn write_logins(&mut self) {
        if self.logins.is_empty() {
            return;
        }
        let mut most = self.logins.len();
        while !self.logins.is_empty() {
            let part = &self.logins.make_contiguous()[..];
            let part = &part[..most.min(part.len())];
            match self.store.write(part) {
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
                    if let Some(logins) = self.refusals.note(&error.to_string(), 1, Monotonic::now()) {
                        tracing::error!(%error, logins, "the store refuses to write logins down");
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
    use usher_aaa::ledger::{LedgerConfig, SessionKey, Status};
    use usher_aaa::store::{ClientRow, GroupRows, Memory, UserRows};
    use usher_core::WallTime;

    /// A store that is away, and counts how often it was asked: for its open sessions, for one session, to write.
    #[derive(Clone, Default)]
    struct Away {
        asked: Arc<[AtomicU32; 3]>,
        /// It was there at the start.
        left: bool,
        /// It is there, but slow.
        slow: Option<Slow>,
    }

    /// Writes while nobody holds the gate.
    #[derive(Clone)]
    struct Slow {
        gate: Arc<Mutex<()>>,
        written: Arc<Mutex<Memory>>,
    }

    impl Away {
        fn count(&self, what: usize) -> StoreError {
            self.asked[what].fetch_add(1, Ordering::Relaxed);
            StoreError::Unavailable("away".to_owned())
        }
        fn asked(&self) -> [u32; 3] {
            [0, 1, 2].map(|what: usize| self.asked[what].load(Ordering::Relaxed))
        }
    }

    impl Store for Away {
        fn user(&mut self, _: &str) -> Result<Option<UserRows>, StoreError> {
            unreachable!("the ledger asks for no user")
        }
        fn write(&mut self, changes: &[Change]) -> Result<(), StoreError> {
            let Some(slow) = &self.slow else { return Err(self.count(2)) };
            drop(slow.gate.lock().expect("no holder failed"));
            slow.written.lock().expect("no holder failed").write(changes)
        }
        fn open_sessions(&mut self, _: &mut dyn FnMut(SessionRow)) -> Result<(), StoreError> {
            if self.left { Ok(()) } else { Err(self.count(0)) }
        }
        fn session(&mut self, _: &str) -> Result<Option<SessionRow>, StoreError> {
            if self.slow.is_some() { Ok(None) } else { Err(self.count(1)) }
        }
        fn clients(&mut self) -> Result<Vec<ClientRow>, StoreError> {
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

    /// Gives a ledger a thousand records with this store, and ends it; how often it may have asked the store, which it leaves
    /// alone for [`PAUSE`] after each question.
    fn questions_allowed(store: &Away) -> u128 {
        let begun = Monotonic::now();
        let ledger = Ledger::new(LedgerConfig::default());
        let store = Box::new(store.clone());
        let (handle, thread) =
            begin(ledger, store, Clock::start(), Mailboxes::default()).expect("it is only away");
        for n in 0..1000_u32 {
            let session = SessionKey { nas: [10, 0, 0, 1].into(), id: n.to_string(), user: String::new() };
            let record = Record::new(Status::Start, session, WallTime::from_unix_secs(1_800_000_000));
            handle.account(For { shard: 0, token: 0 }, Box::new(record));
        }
        handle.stop();
        thread.expect("there is a thread").join().expect("it ends");
        1 + begun.elapsed().as_nanos() / PAUSE.as_nanos()
    }

    /// What a ledger counted, however long its thread takes to say it.
    fn collect_patiently(handle: &LedgerHandle) -> LedgerSnapshot {
        (0..120).find_map(|_| handle.collect()).expect("the ledger's thread answers")
    }

    #[test]
    fn a_record_is_taken_the_first_time_however_often_its_id_was_used() {
        let record = |status, secs: u64| {
            let session =
                SessionKey { nas: [10, 0, 0, 1].into(), id: "1".to_owned(), user: "ann".to_owned() };
            let at = WallTime::from_unix_secs(1_800_000_000 + secs);
            Record { timed: true, stamped: true, ..Record::new(status, session, at) }
        };
        let (mut before, mut store) = (Ledger::new(LedgerConfig::default()), Memory::new());
        let now = Clock::start().now();
        for n in 0..40 {
            assert!(before.serve(now, &mut store, &record(Status::Start, 1000 * n)));
            assert!(before.serve(now, &mut store, &record(Status::Stop, 1000 * n + 100)));
        }
        let ledger = Ledger::new(LedgerConfig::default());
        let (handle, thread) =
            begin(ledger, Box::new(store), Clock::start(), Mailboxes::default()).expect("it is there");
        handle.account(For { shard: 0, token: 0 }, Box::new(record(Status::Start, 100_000)));
        assert_eq!(collect_patiently(&handle).counters.started, 1);
        handle.stop();
        thread.expect("there is a thread").join().expect("it ends");
    }

    #[test]
    fn a_flood_of_one_clients_records_keeps_out_no_other_clients() {
        const FLOOD: u32 = 80_000;
        let slow = Slow { gate: Arc::default(), written: Arc::new(Mutex::new(Memory::new())) };
        let store = Away { left: true, slow: Some(slow.clone()), ..Away::default() };
        let held = slow.gate.lock().expect("no holder failed");
        let (handle, thread) = begin(
            Ledger::new(LedgerConfig::default()),
            Box::new(store),
            Clock::start(),
            Mailboxes::default(),
        )
        .expect("it is there");
        let tell = |client: u8, n: u32| {
            let nas = [10, 0, 0, client].into();
            let session = SessionKey { nas, id: n.to_string(), user: String::new() };
            let record = Record::new(Status::Start, session, WallTime::from_unix_secs(1_800_000_000));
            let record = Record { client: Some((nas, 32)), ..record };
            handle.account(For { shard: 0, token: 0 }, Box::new(record));
        };
        (0..FLOOD).for_each(|n| tell(1, n));
        (0..100).for_each(|n| tell(2, n));
        let refused = handle.stats.refused.load(Ordering::Relaxed);
        assert!(refused > 5_000, "all places are taken: {refused}");
        drop(held);
        handle.stop();
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
        let store = Away { left: true, ..Away::default() };
        let most = questions_allowed(&store);
        let [_, asked, _] = store.asked();
        assert!((1..=most).contains(&asked.into()), "{asked} of {most}");
    }

    #[test]
    fn nothing_is_asked_before_the_open_sessions_are_known() {
        let store = Away::default();
        let most = questions_allowed(&store);
        let [read, asked, _] = store.asked();
        assert!((1..=most).contains(&read.into()), "{read} of {most}");
        assert_eq!(asked, 0);
    }
}

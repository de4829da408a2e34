//! Threads for what blocks or takes long: asking the store for a user, comparing a password with its slow hash, asking an
//! issuer for a certificate's status. Each kind has threads and a queue of its own, so that none waits for another.

use crate::mailbox::{For, Mailboxes, Message};
use crate::outage::Outage;
use crate::stats::Latency;
use crate::status::CertificateStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;
use usher_aaa::service::{Inline, Reading, found};
use usher_aaa::store::{Store, StoreError, UserRows, user_of};
use usher_aaa::{CertificateVerdict, Command, Found, LoginOwner, User, UserCache, canonical_name};
use usher_aaa_config::known;
use usher_aaa_config::model::Users;
use usher_core::SecureRng;
use usher_crypto::Key;
use usher_host::jobs::{JobLoad, JobQueue, JobShare, QueueBounds};
use usher_live::Clock;

/// Kinds of jobs: what metrics call them, and how many may wait. More would wait longer than a client does.
const KINDS: [(&str, usize); 3] = [("lookup", 1 << 13), ("password", 256), ("certificate", 256)];
/// How many passwords said to be one user's may wait: a user who has several devices is none who guesses.
const OF_ONE_NAME: usize = 4;
const LOOKUP: usize = 0;
const PASSWORD: usize = 1;
const CERTIFICATE: usize = 2;
/// Threads that ask issuers, each for seconds at most.
const ASKING: usize = 4;

/// What a thread is asked.
pub(crate) enum Job {
    /// Find a user.
    Lookup(For, Vec<u8>),
    /// Compare a password with its hash.
    Verify(For, Key<String>, Key),
    /// Say whether a certificate still holds.
    Certificate(For, Vec<Vec<u8>>),
}

impl Job {
    const fn kind(&self) -> usize {
        match self {
            Self::Lookup(..) => LOOKUP,
            Self::Verify(..) => PASSWORD,
            Self::Certificate(..) => CERTIFICATE,
        }
    }
}

/// Jobs of RADIUS clients and Diameter peers, each with a share of its own.
type ClientJobs = JobQueue<LoginOwner, Job>;

/// Where jobs are put.
#[derive(Clone)]
pub(crate) struct Workers {
    queues: [Arc<ClientJobs>; KINDS.len()],
    mailboxes: Mailboxes,
    status: Arc<RwLock<CertificateStatus>>,
    left_out: Arc<AtomicU64>,
    chains: SyncSender<Vec<Vec<u8>>>,
}

/// The users that the store has told of, of all shards: who got in on one gets in on each while the store is away.
pub(crate) struct KnownUsers {
    users: Mutex<UserCache>,
    clock: Clock,
}

impl KnownUsers {
    pub(crate) fn new(users: &Users, clock: Clock, rng: &mut SecureRng) -> Self {
        Self { users: Mutex::new(UserCache::new(known(users), rng)), clock }
    }
    /// Forgets a user, or all: before the shards do, which would be told of what is still known here.
    pub(crate) fn forget(&self, name: Option<&[u8]>) {
        self.lock().forget(name);
    }
    /// Goes on with other bounds, and knows nobody.
    pub(crate) fn reconfigure(&self, users: &Users) {
        self.lock().reconfigure(known(users));
    }
    fn lock(&self) -> MutexGuard<'_, UserCache> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the threads share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) mailboxes: Mailboxes,
    /// Users of the file, which come before those of the store; replaced at a reload.
    pub(crate) inline: Arc<RwLock<Inline>>,
    pub(crate) known: Arc<KnownUsers>,
    /// How rows are read; replaced at a reload.
    pub(crate) reading: Arc<RwLock<Reading>>,
    /// Rows of replies that were left out.
    pub(crate) left_out: Arc<AtomicU64>,
    pub(crate) latency: Arc<Latency>,
    /// How certificates are checked; replaced at a reload.
    pub(crate) status: Arc<RwLock<CertificateStatus>>,
    /// Chains of users, for who looks after lists.
    pub(crate) chains: SyncSender<Vec<Vec<u8>>>,
}

impl Workers {
    /// Begins one thread for each store, as many for hashes, and those that ask issuers.
    pub(crate) fn begin(shared: Shared, stores: Vec<Box<dyn Store>>) -> (Self, Vec<JoinHandle<()>>) {
        let hashing = stores.len();
        let none = |n| (0..n).map(|_| None).collect::<Vec<_>>();
        let crews = [stores.into_iter().map(Some).collect(), none(hashing), none(ASKING)];
        let mut threads = Vec::new();
        let mut crews = crews.into_iter();
        let queues = KINDS.map(|(name, all)| {
            let jobs = Arc::new(JobQueue::new(QueueBounds { all, name: OF_ONE_NAME }));
            for (n, store) in crews.next().into_iter().flatten().enumerate() {
                let (jobs, shared) = (jobs.clone(), shared.clone());
                let body = move || work(&jobs, &shared, store);
                threads.extend(thread::Builder::new().name(format!("usher-{name}-{n}")).spawn(body).ok());
            }
            jobs
        });
        (
            Self {
                queues,
                mailboxes: shared.mailboxes,
                status: shared.status,
                left_out: shared.left_out,
                chains: shared.chains,
            },
            threads,
        )
    }

    /// Whether issuers are asked if their certificates still hold.
    pub(crate) fn asks_issuers(&self) -> bool {
        self.status.read().unwrap_or_else(PoisonError::into_inner).asks()
    }

    /// Has who looks after lists see a chain that was verified, where it may say where its issuers' lists are.
    pub(crate) fn show(&self, chain: &[Vec<u8>]) {
        if self.status.read().unwrap_or_else(PoisonError::into_inner).learns() {
            // One that finds no room is seen when it comes again.
            let _ = self.chains.try_send(chain.to_vec());
        }
    }

    /// Whether certificates that were verified a while ago are to be taken now.
    pub(crate) fn trusts(&self, chain: &[Vec<u8>]) -> CertificateVerdict {
        self.status.read().unwrap_or_else(PoisonError::into_inner).trusts(chain)
    }

    /// Puts a job in line; where there is no room, whoever one is for is told at once that nobody can say.
    pub(crate) fn put(&self, whose: JobShare<LoginOwner>, job: Job) {
        let Some(refused) = self.queues[job.kind()].put(whose, job) else { return };
        let (for_, command) = match refused {
            Job::Lookup(for_, _) | Job::Verify(for_, ..) | Job::Certificate(for_, _) => {
                (for_, Command::Unable { token: for_.token })
            }
        };
        self.mailboxes.command(for_.shard, command);
    }

    /// How many rows of replies were left out, each time that they were read.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// What waits of each kind of jobs, and what became of others.
    pub(crate) fn load(&self) -> [(&'static str, JobLoad); KINDS.len()] {
        let mut all = self.queues.iter();
        KINDS.map(|(name, _)| (name, all.next().map_or_else(JobLoad::default, |jobs| jobs.load())))
    }
}

fn work(jobs: &ClientJobs, shared: &Shared, mut store: Option<Box<dyn Store>>) {
    let mut outage = Outage::default();
    while let Some(job) = jobs.take() {
        let (for_, command) = match job {
            Job::Lookup(for_, name) => {
                let user = find(&name, shared, store.as_mut(), &mut outage);
                (for_, Command::Found { token: for_.token, user })
            }
            Job::Verify(for_, hash, password) => {
                let right = usher_crypto::password::argon2_verify(&hash, &password);
                (for_, Command::Verified { token: for_.token, right })
            }
            Job::Certificate(for_, chain) => {
                let policy = shared.status.read().unwrap_or_else(PoisonError::into_inner).clone();
                let verdict = policy.judge(&chain);
                (for_, Command::Certificate { token: for_.token, verdict })
            }
        };
        shared.mailboxes.send(for_.shard, Message::Command(command));
    }
}

fn find(name: &[u8], shared: &Shared, store: Option<&mut Box<dyn Store>>, outage: &mut Outage) -> Found {
    find_at(|| shared.known.clock.now(), name, shared, store, outage)
}

/// The same by another clock than that of the known users.
fn find_at(
    now: impl FnOnce() -> usher_core::Instant,
    name: &[u8],
    shared: &Shared,
    store: Option<&mut Box<dyn Store>>,
    outage: &mut Outage,
) -> Found {
    let inline = shared.inline.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(user) = inline.get(&*canonical_name(name)) {
        return Found::User(user.clone());
    }
    let Some(store) = store else { return Found::Nobody };
    // The tables hold text.
    let Ok(name) = std::str::from_utf8(name) else { return Found::Unstorable };
    // What is forgotten while the store answers, or before its rows are read as they are to be read now, is not kept.
    let generation = shared.known.lock().generation();
    let begun = Instant::now();
    let said = user_of(store.as_mut(), name);
    shared.latency.add(begun.elapsed());
    // What it cannot hold it has answered for.
    outage.note(said.as_ref().err().filter(|error| !matches!(error, StoreError::Unstorable(_))));
    let said = said.map(|rows| rows.map(|rows| Arc::new(read(name, &rows, shared))));
    found(&mut shared.known.lock(), now(), generation, name.as_bytes(), said)
}

/// The user that rows of the store are; the log says what of them cannot be understood.
fn read(name: &str, rows: &UserRows, shared: &Shared) -> User {
    let reading = shared.reading.read().unwrap_or_else(PoisonError::into_inner).clone();
    let user = reading.user(rows);
    if let Some(complaint) = &user.unreadable {
        tracing::error!(user = name, %complaint, "a user of the store cannot be understood and is turned away");
    }
    for complaint in &*user.left_out {
        tracing::warn!(user = name, %complaint, "a row of a reply cannot be understood and is left out");
        shared.left_out.fetch_add(1, Ordering::Relaxed);
    }
    user
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_aaa::store::{Memory, Op, Row};
    use usher_aaa_config::reading;
    use usher_core::Seed;

    /// What a store says of one name, or a store that is away.
    fn store(password: Option<Option<&str>>) -> Box<dyn Store> {
        let Some(password) = password else {
            return Box::new(usher_store::Postgres::new("host=/nowhere user=usher").unwrap());
        };
        let mut memory = Memory::new();
        if let Some(password) = password {
            let row = Row {
                attribute: "Cleartext-Password".to_owned(),
                op: Op::Replace,
                value: password.to_owned(),
            };
            memory.put_user("ann", &UserRows { check: vec![row], ..UserRows::default() }).unwrap();
        }
        Box::new(memory)
    }

    fn shared(users: &str) -> Shared {
        let text = format!("[users]\nstore = \"sqlite\"\n{users}");
        let loaded = usher_aaa_config::parse("test", &text, None, &usher_config::Alone).unwrap();
        let mut rng = Seed::new(1).secure("known", 0);
        Shared {
            mailboxes: Mailboxes::default(),
            inline: Arc::default(),
            known: Arc::new(KnownUsers::new(&loaded.file.users, Clock::start(), &mut rng)),
            reading: Arc::new(RwLock::new(reading(&loaded))),
            left_out: Arc::default(),
            latency: Arc::default(),
            status: Arc::new(RwLock::new(CertificateStatus::of(&loaded, None))),
            chains: std::sync::mpsc::sync_channel(1).0,
        }
    }

    /// What comes of asking for ann: `f`ound, `r`emembered, `n`obody, `u`navailable, or a name that is `i`mpossible.
    fn ask(shared: &Shared, store: &mut Box<dyn Store>) -> char {
        letter(&find(b"ann", shared, Some(store), &mut Outage::default()))
    }

    /// The same at so many milliseconds of virtual time.
    fn ask_at(millis: u64, shared: &Shared, store: &mut Box<dyn Store>) -> char {
        let now = usher_core::Instant::ZERO + usher_core::Duration::from_millis(millis);
        letter(&find_at(|| now, b"ann", shared, Some(store), &mut Outage::default()))
    }

    fn letter(found: &Found) -> char {
        match found {
            Found::User(_) => 'f',
            Found::Remembered(_) => 'r',
            Found::Nobody => 'n',
            Found::Unstorable => 'i',
            Found::Unavailable => 'u',
        }
    }

    #[test]
    fn who_was_found_is_so_while_the_store_is_away() {
        let (there, gone, away) = (&mut store(Some(Some("x"))), &mut store(Some(None)), &mut store(None));
        let shared = shared("cache_ttl = \"10 min\"\n");
        assert_eq!(ask(&shared, away), 'u');
        assert_eq!([ask(&shared, there), ask(&shared, away), ask(&shared, away)], ['f', 'r', 'r']);
        // Who was removed behind the server's back is so as soon as the store has said it once.
        assert_eq!([ask(&shared, gone), ask(&shared, away)], ['n', 'u']);
        assert_eq!([ask(&shared, there), ask(&shared, away)], ['f', 'r']);
        shared.known.forget(Some(b"bob"));
        assert_eq!(ask(&shared, away), 'r');
        shared.known.forget(Some(b"ann"));
        assert_eq!(ask(&shared, away), 'u');
        assert_eq!(ask(&shared, there), 'f');
        shared.known.forget(None);
        assert_eq!(ask(&shared, away), 'u');
    }

    #[test]
    fn a_name_that_no_user_can_have_is_none_and_no_outage() {
        let shared = shared("");
        let file = std::env::temp_dir().join(format!("usher-names-{}.db", std::process::id()));
        let mut sqlite: Box<dyn Store> = Box::new(usher_store::Sqlite::open(&file).unwrap());
        let mut letters =
            |name: &[u8]| letter(&find(name, &shared, Some(&mut sqlite), &mut Outage::default()));
        assert_eq!([b"\xff\xfe".as_slice(), b"ann\0", b"ann"].map(&mut letters), ['i', 'i', 'n']);
        std::fs::remove_file(&file).unwrap();
        // What is known of other names stays.
        let (there, away) = (&mut store(Some(Some("x"))), &mut store(None));
        assert_eq!([ask(&shared, there), ask(&shared, away)], ['f', 'r']);
    }

    #[test]
    fn who_was_found_is_remembered_for_the_time_that_is_set() {
        let (there, away) = (&mut store(Some(Some("x"))), &mut store(None));
        let shared = shared("cache_ttl = \"1 s\"\n");
        assert_eq!([ask_at(0, &shared, there), ask_at(999, &shared, away)], ['f', 'r']);
        assert_eq!(ask_at(1001, &shared, away), 'u');
        let shared = self::shared("cache_entries = 0\n");
        assert_eq!([ask(&shared, there), ask(&shared, away)], ['f', 'u']);
    }
}

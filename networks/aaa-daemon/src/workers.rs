//! Threads for slow jobs: user lookups in the store, comparisons with password hashes, OCSP checks. Each kind has
//! its own threads and queue, so that no kind delays another.

use crate::mailbox::{JobResultTarget, ShardMailboxes};
use crate::outage::StoreOutage;
use crate::stats::SharedHistogram;
use crate::status::CertificateCheckConfig;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;
use usher_aaa::service::{InlineUsers, UserRowReader, resolve_user_lookup};
use usher_aaa::store::{Store, StoreError, UserRows, user_of};
use usher_aaa::{
    AaaServerCommand, CertificateVerdict, LoginOwner, User, UserCache, UserLookupResult, canonical_name,
};
use usher_aaa_config::fallback_cache_config;
use usher_aaa_config::model::UserStoreConfig;
use usher_core::SecureRng;
use usher_crypto::SecretValue;
use usher_live::SystemClock;
use usher_service::jobs::{JobFairnessKey, JobQueue, JobQueueLimits, JobQueueStats};

/// Kinds of jobs: name in metrics, and maximum queue length. A longer queue would exceed a client's timeout.
const KINDS: [(&str, usize); 3] = [("lookup", 1 << 13), ("password", 256), ("certificate", 256)];
/// Maximum number of queued passwords of one user. A user with several devices is no attacker.
const MAX_PASSWORDS_PER_NAME: usize = 4;
const LOOKUP: usize = 0;
const PASSWORD: usize = 1;
const CERTIFICATE: usize = 2;
/// Threads for OCSP, each of which may wait for seconds.
const OCSP_THREADS: usize = 4;

/// A job of a thread.
pub(crate) enum WorkerJob {
    /// Looks up a user.
    Lookup(JobResultTarget, Vec<u8>),
    /// Compares a password with its hash.
    Verify(JobResultTarget, SecretValue<String>, SecretValue),
    /// Checks a certificate.
    Certificate(JobResultTarget, Vec<Vec<u8>>),
}

impl WorkerJob {
    const fn queue_index(&self) -> usize {
        match self {
            Self::Lookup(..) => LOOKUP,
            Self::Verify(..) => PASSWORD,
            Self::Certificate(..) => CERTIFICATE,
        }
    }
}

/// Jobs of RADIUS clients and Diameter peers, with fair shares.
type ClientJobs = JobQueue<LoginOwner, WorkerJob>;

/// The queues of jobs.
#[derive(Clone)]
pub(crate) struct WorkerPool {
    queues: [Arc<ClientJobs>; KINDS.len()],
    mailboxes: ShardMailboxes,
    status: Arc<RwLock<CertificateCheckConfig>>,
    left_out: Arc<AtomicU64>,
    chains: SyncSender<Vec<Vec<u8>>>,
}

/// Users that the store has returned to any shard. While the store is unavailable, every shard accepts them.
pub(crate) struct SharedUserCache {
    users: Mutex<UserCache>,
    clock: SystemClock,
}

impl SharedUserCache {
    pub(crate) fn new(users: &UserStoreConfig, clock: SystemClock, rng: &mut SecureRng) -> Self {
        Self { users: Mutex::new(UserCache::new(fallback_cache_config(users), rng)), clock }
    }
    /// Evicts a user, or all. It precedes the shards' eviction, which would otherwise refill from here.
    pub(crate) fn evict_user(&self, name: Option<&[u8]>) {
        self.lock().evict_user(name);
    }
    /// Applies new bounds and empties the cache.
    pub(crate) fn reconfigure(&self, users: &UserStoreConfig) {
        self.lock().reconfigure(fallback_cache_config(users));
    }
    fn lock(&self) -> MutexGuard<'_, UserCache> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State that the threads share.
#[derive(Clone)]
pub(crate) struct WorkerContext {
    pub(crate) mailboxes: ShardMailboxes,
    /// Users of the file, which take precedence over the store. Replaced at a reload.
    pub(crate) inline: Arc<RwLock<InlineUsers>>,
    pub(crate) user_cache: Arc<SharedUserCache>,
    /// The parser of rows. Replaced at a reload.
    pub(crate) reading: Arc<RwLock<UserRowReader>>,
    /// Number of reply rows that were left out.
    pub(crate) left_out: Arc<AtomicU64>,
    pub(crate) latency: Arc<SharedHistogram>,
    /// The configuration of certificate checks. Replaced at a reload.
    pub(crate) status: Arc<RwLock<CertificateCheckConfig>>,
    /// Verified chains of users, for the thread that watches lists.
    pub(crate) chains: SyncSender<Vec<Vec<u8>>>,
}

impl WorkerPool {
    /// Starts one thread for each store, as many for hashes, and those for OCSP.
    pub(crate) fn start_workers(
        shared: WorkerContext,
        stores: Vec<Box<dyn Store>>,
    ) -> Result<Self, usher_service::ServeError> {
        let queues = KINDS
            .map(|(_, all)| Arc::new(JobQueue::new(JobQueueLimits { all, name: MAX_PASSWORDS_PER_NAME })));
        let none = |n| (0..n).map(|_| None).collect::<Vec<_>>();
        let hashing = none(stores.len());
        let crews = [stores.into_iter().map(Some).collect(), hashing, none(OCSP_THREADS)];
        for ((jobs, (name, _)), crew) in queues.iter().zip(KINDS).zip(crews) {
            let worker = |mut store: Option<Box<dyn Store>>| {
                let (shared, mut outage) = (shared.clone(), StoreOutage::default());
                move |job| do_job(job, &shared, store.as_mut(), &mut outage)
            };
            jobs.start_workers(&format!("usher-{name}"), crew.into_iter().map(worker))?;
        }
        Ok(Self {
            queues,
            mailboxes: shared.mailboxes,
            status: shared.status,
            left_out: shared.left_out,
            chains: shared.chains,
        })
    }

    /// True if OCSP is used.
    pub(crate) fn uses_ocsp(&self) -> bool {
        self.status.read().unwrap_or_else(PoisonError::into_inner).uses_ocsp()
    }

    /// Passes a verified chain to the thread for lists, if that learns distribution points.
    pub(crate) fn report_certificate_chain(&self, chain: &[Vec<u8>]) {
        if self.status.read().unwrap_or_else(PoisonError::into_inner).learns_distribution_points() {
            // If the queue is full, the chain is dropped here and offered again at the user's next login.
            let _ = self.chains.try_send(chain.to_vec());
        }
    }

    /// Checks a chain that was verified earlier.
    pub(crate) fn recheck_chain(&self, chain: &[Vec<u8>]) -> CertificateVerdict {
        self.status.read().unwrap_or_else(PoisonError::into_inner).recheck_chain(chain)
    }

    /// Queues a job. If the queue is full, the owner of a dropped job gets an unavailable result at once.
    pub(crate) fn queue_job(&self, whose: JobFairnessKey<LoginOwner>, job: WorkerJob) {
        let Some(refused) = self.queues[job.queue_index()].enqueue_job(whose, job) else { return };
        let (for_, command) = match refused {
            WorkerJob::Lookup(for_, _) | WorkerJob::Verify(for_, ..) | WorkerJob::Certificate(for_, _) => {
                (for_, AaaServerCommand::Unable { token: for_.token })
            }
        };
        self.mailboxes.send_command(for_.shard, command);
    }

    /// Number of reply rows that were left out, at each read.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Queue lengths and counters of each kind.
    pub(crate) fn worker_job_loads(&self) -> [(&'static str, JobQueueStats); KINDS.len()] {
        let mut all = self.queues.iter();
        KINDS.map(|(name, _)| (name, all.next().map_or_else(JobQueueStats::default, |jobs| jobs.job_load())))
    }
}

fn do_job(
    job: WorkerJob,
    shared: &WorkerContext,
    store: Option<&mut Box<dyn Store>>,
    outage: &mut StoreOutage,
) {
    let (for_, command) = match job {
        WorkerJob::Lookup(for_, name) => {
            let user = find_user(&name, shared, store, outage);
            (for_, AaaServerCommand::Found { token: for_.token, user })
        }
        WorkerJob::Verify(for_, hash, password) => {
            let right = usher_crypto::password::argon2_verify(&hash, &password);
            (for_, AaaServerCommand::Verified { token: for_.token, right })
        }
        WorkerJob::Certificate(for_, chain) => {
            let policy = shared.status.read().unwrap_or_else(PoisonError::into_inner).clone();
            let verdict = policy.check_chain(&chain);
            (for_, AaaServerCommand::Certificate { token: for_.token, verdict })
        }
    };
    shared.mailboxes.send_command(for_.shard, command);
}

fn find_user(
    name: &[u8],
    shared: &WorkerContext,
    store: Option<&mut Box<dyn Store>>,
    outage: &mut StoreOutage,
) -> UserLookupResult {
    look_up_user_at(|| shared.user_cache.clock.now(), name, shared, store, outage)
}

/// Finds a user by another clock than that of the cache.
fn look_up_user_at(
    now: impl FnOnce() -> usher_core::Instant,
    name: &[u8],
    shared: &WorkerContext,
    store: Option<&mut Box<dyn Store>>,
    outage: &mut StoreOutage,
) -> UserLookupResult {
    let inline = shared.inline.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(user) = inline.get(&*canonical_name(name)) {
        return UserLookupResult::User(user.clone());
    }
    let Some(store) = store else { return UserLookupResult::NotFound };
    // The tables contain only UTF-8 text, so another name cannot be looked up.
    let Ok(name) = std::str::from_utf8(name) else { return UserLookupResult::Unstorable };
    // If a user is evicted, or the parser replaced, during the lookup, the result is not cached.
    let generation = shared.user_cache.lock().generation();
    let begun = Instant::now();
    let said = user_of(store.as_mut(), name);
    shared.latency.add(begun.elapsed());
    // The store's refusal of an unstorable name does not count as an outage.
    outage
        .record_store_result(said.as_ref().err().filter(|error| !matches!(error, StoreError::Unstorable(_))));
    let said = said.map(|rows| rows.map(|rows| Arc::new(read_user(name, &rows, shared))));
    resolve_user_lookup(&mut shared.user_cache.lock(), now(), generation, name.as_bytes(), said)
}

/// Returns the user of the store's rows, and logs rows that cannot be parsed.
fn read_user(name: &str, rows: &UserRows, shared: &WorkerContext) -> User {
    let reading = shared.reading.read().unwrap_or_else(PoisonError::into_inner).clone();
    let user = reading.read_user(rows);
    if let Some(complaint) = &user.unreadable {
        tracing::error!(user = name, %complaint, "cannot parse the rows of a user in the store: the user is rejected");
    }
    for complaint in &*user.left_out {
        tracing::warn!(user = name, %complaint, "cannot parse a reply row in the store: it is left out");
        shared.left_out.fetch_add(1, Ordering::Relaxed);
    }
    user
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_aaa::store::{AttributeRow, MemoryStore, RowOperator};
    use usher_aaa_config::row_reader;
    use usher_core::Seed;

    /// A store with one name, or an unavailable store.
    fn test_store(password: Option<Option<&str>>) -> Box<dyn Store> {
        let Some(password) = password else {
            return Box::new(usher_store::PostgresStore::new("host=/nowhere user=usher").unwrap());
        };
        let mut memory = MemoryStore::new();
        if let Some(password) = password {
            let row = AttributeRow {
                attribute: "Cleartext-Password".to_owned(),
                op: RowOperator::Replace,
                value: password.to_owned(),
            };
            memory.put_user("ann", &UserRows { check: vec![row], ..UserRows::default() }).unwrap();
        }
        Box::new(memory)
    }

    fn test_context(users: &str) -> WorkerContext {
        let text = format!("[users]\nstore = \"sqlite\"\n{users}");
        let loaded =
            usher_aaa_config::parse("test", &text, None, &usher_config::EmptyConfigEnvironment).unwrap();
        let mut rng = Seed::new(1).derive_secure_rng("known", 0);
        WorkerContext {
            mailboxes: ShardMailboxes::default(),
            inline: Arc::default(),
            user_cache: Arc::new(SharedUserCache::new(&loaded.file.users, SystemClock::start(), &mut rng)),
            reading: Arc::new(RwLock::new(row_reader(&loaded))),
            left_out: Arc::default(),
            latency: Arc::default(),
            status: Arc::new(RwLock::new(CertificateCheckConfig::from_config(&loaded, None))),
            chains: std::sync::mpsc::sync_channel(1).0,
        }
    }

    /// Looks up ann: `f`ound, `r`emembered, `n`obody, `u`navailable, or `i`mpossible name.
    fn look_up_ann(shared: &WorkerContext, store: &mut Box<dyn Store>) -> char {
        result_letter(&find_user(b"ann", shared, Some(store), &mut StoreOutage::default()))
    }

    /// Looks up ann at this virtual time in milliseconds.
    fn look_up_ann_at(millis: u64, shared: &WorkerContext, store: &mut Box<dyn Store>) -> char {
        let now = usher_core::Instant::ZERO + usher_core::Duration::from_millis(millis);
        result_letter(&look_up_user_at(|| now, b"ann", shared, Some(store), &mut StoreOutage::default()))
    }

    fn result_letter(found: &UserLookupResult) -> char {
        match found {
            UserLookupResult::User(_) => 'f',
            UserLookupResult::Cached(_) => 'r',
            UserLookupResult::NotFound => 'n',
            UserLookupResult::Unstorable => 'i',
            UserLookupResult::Unavailable => 'u',
        }
    }

    #[test]
    fn who_was_found_is_so_while_the_store_is_away() {
        let (there, gone, away) =
            (&mut test_store(Some(Some("x"))), &mut test_store(Some(None)), &mut test_store(None));
        let shared = test_context("cache_ttl = \"10 min\"\n");
        assert_eq!(look_up_ann(&shared, away), 'u');
        assert_eq!(
            [look_up_ann(&shared, there), look_up_ann(&shared, away), look_up_ann(&shared, away)],
            ['f', 'r', 'r']
        );
        // A user who was deleted by another program is evicted by the store's first reply.
        assert_eq!([look_up_ann(&shared, gone), look_up_ann(&shared, away)], ['n', 'u']);
        assert_eq!([look_up_ann(&shared, there), look_up_ann(&shared, away)], ['f', 'r']);
        shared.user_cache.evict_user(Some(b"bob"));
        assert_eq!(look_up_ann(&shared, away), 'r');
        shared.user_cache.evict_user(Some(b"ann"));
        assert_eq!(look_up_ann(&shared, away), 'u');
        assert_eq!(look_up_ann(&shared, there), 'f');
        shared.user_cache.evict_user(None);
        assert_eq!(look_up_ann(&shared, away), 'u');
    }

    #[test]
    fn a_name_that_no_user_can_have_is_none_and_no_outage() {
        let shared = test_context("");
        let file = std::env::temp_dir().join(format!("usher-names-{}.db", std::process::id()));
        let mut sqlite: Box<dyn Store> = Box::new(usher_store::SqliteStore::open(&file).unwrap());
        let mut letters = |name: &[u8]| {
            result_letter(&find_user(name, &shared, Some(&mut sqlite), &mut StoreOutage::default()))
        };
        assert_eq!([b"\xff\xfe".as_slice(), b"ann\0", b"ann"].map(&mut letters), ['i', 'i', 'n']);
        // With its last connection, the database's other files go as well.
        drop(sqlite);
        std::fs::remove_file(&file).unwrap();
        // Other cached names stay.
        let (there, away) = (&mut test_store(Some(Some("x"))), &mut test_store(None));
        assert_eq!([look_up_ann(&shared, there), look_up_ann(&shared, away)], ['f', 'r']);
    }

    #[test]
    fn who_was_found_is_remembered_for_the_time_that_is_set() {
        let (there, away) = (&mut test_store(Some(Some("x"))), &mut test_store(None));
        let shared = test_context("cache_ttl = \"1 s\"\n");
        assert_eq!([look_up_ann_at(0, &shared, there), look_up_ann_at(999, &shared, away)], ['f', 'r']);
        assert_eq!(look_up_ann_at(1001, &shared, away), 'u');
        let shared = self::test_context("cache_entries = 0\n");
        assert_eq!([look_up_ann(&shared, there), look_up_ann(&shared, away)], ['f', 'u']);
    }
}

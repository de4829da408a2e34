//! Does the jobs of an AAA server with users, a ledger and a store.
//!
//! A host with one thread, such as the simulator or a test, uses a [`JobRunner`]. A host with many threads calls
//! the same decisions apart, so that it can query its store asynchronously and write records in batches:
//! [`UserRowReader::read_user`], [`resolve_user_lookup`], [`user_of`], [`Ledger::apply_record_with`] and [`lockout_commands`].

use crate::ledger::{Ledger, LedgerConfig, NewLockouts, storable_text};
use crate::server::{
    AaaServerCommand, AaaServerEvent, AaaServerJob, CacheGeneration, CertificateVerdict, UserCache,
    UserCacheConfig, UserLookupResult,
};
use crate::store::{Store, StoreError, UserRows, user_of};
use crate::users::{User, canonical_name};
use crate::{AdmissionVerdict, work};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::{Instant, SecureRng, WallTime, WorkLabel};
use usher_radius::dictionary::RadiusDictionary;

/// Users of the configuration by canonical name ([`canonical_name`]). They take precedence over those of a store.
pub type InlineUsers = Arc<BTreeMap<Vec<u8>, Arc<User>>>;

/// Turns rows of a store into users.
#[derive(Clone, Debug)]
pub struct UserRowReader {
    /// Names and types of attributes.
    pub dictionary: Arc<RadiusDictionary>,
    /// True if a reply item that cannot be parsed is left out ([`User::left_out`]). Otherwise its user is rejected.
    pub leave_out: bool,
}

impl UserRowReader {
    /// Returns the user of these rows. A user whose rows cannot be parsed is always rejected
    /// ([`User::with_unreadable_row`]).
    #[must_use]
    pub fn read_user(&self, rows: &UserRows) -> User {
        let compiled = match self.leave_out {
            false => User::compile(rows, &self.dictionary),
            true => User::compile_skipping_bad_replies(rows, &self.dictionary),
        };
        compiled.unwrap_or_else(User::with_unreadable_row)
    }
}

/// Returns the result of a lookup from the store's reply for a name.
///
/// `known` caches earlier replies, which are used while the store is unavailable. `begun` is the cache's generation
/// when the lookup began: a user evicted since then is not cached.
pub fn resolve_user_lookup(
    known: &mut UserCache,
    now: Instant,
    begun: CacheGeneration,
    name: &[u8],
    said: Result<Option<Arc<User>>, StoreError>,
) -> UserLookupResult {
    match said {
        Ok(user) => {
            known.insert(now, begun, name, user.as_ref());
            user.map_or(UserLookupResult::NotFound, UserLookupResult::User)
        }
        Err(StoreError::Unavailable(_)) => {
            known.find(now, name).flatten().map_or(UserLookupResult::Unavailable, UserLookupResult::Cached)
        }
        Err(StoreError::Refused(_)) => UserLookupResult::Unavailable,
        Err(StoreError::Unstorable(_)) => UserLookupResult::Unstorable,
    }
}

/// Returns the commands that tell servers of new lockouts after a failed attempt with this name and station.
pub fn lockout_commands(
    name: &[u8],
    station: &[u8],
    held: NewLockouts,
) -> impl Iterator<Item = AaaServerCommand> {
    let of = |name: &[u8], station: &[u8]| AaaServerCommand::LockOut {
        name: name.to_vec(),
        station: station.to_vec(),
    };
    let user = held.user.then(|| of(name, &[]));
    user.into_iter().chain(held.station.then(|| of(&[], station)))
}

/// Decides whether a certificate is accepted ([`AaaServerJob::CheckCertificate`]).
pub trait CertificateChecker: fmt::Debug + Send + Sync {
    /// Checks a chain (DER, the peer's certificate first). With `name` the certificate must contain that name.
    /// `resumed`: the chain was verified in an earlier handshake.
    fn check_chain(&self, name: Option<&[u8]>, chain: &[Vec<u8>], resumed: bool) -> CertificateVerdict;
    /// Returns the user that the peer's certificate names, where its identity `outer` has no user part
    /// ([`AaaServerJob::NameUser`]).
    fn certificate_user(&self, outer: &[u8], chain: &[Vec<u8>]) -> Option<Vec<u8>>;
}

/// The parts of a [`JobRunner`].
pub struct JobRunnerParts<S> {
    /// Users of the configuration.
    pub inline: InlineUsers,
    /// Parser of the rows.
    pub reading: UserRowReader,
    /// Limits of the cache of users that is used while the store is unavailable.
    pub cache_config: UserCacheConfig,
    /// Pools and limits.
    pub ledger: LedgerConfig,
    /// Further users, and the durable records.
    pub store: S,
    /// Checks certificates. `None`: each certificate that the handshake verified is accepted.
    pub certificates: Option<Arc<dyn CertificateChecker>>,
    /// True if each decided login is written to the store.
    pub logins: bool,
}

impl<S> JobRunnerParts<S> {
    /// A ledger and a store. Rows are parsed with the standard dictionary. There are no other users, and only
    /// accounting is written.
    #[must_use]
    pub fn new(ledger: LedgerConfig, store: S) -> Self {
        Self {
            inline: InlineUsers::default(),
            reading: UserRowReader { dictionary: Arc::new(RadiusDictionary::builtin()), leave_out: false },
            cache_config: UserCacheConfig::default(),
            ledger,
            store,
            certificates: None,
            logins: false,
        }
    }
}

impl<S> fmt::Debug for JobRunnerParts<S> {
    /// Omits the users.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("ledger", &self.ledger)
            .field("certificates", &self.certificates)
            .finish_non_exhaustive()
    }
}

/// Does the jobs of one server, each at once. See the [module](self).
#[derive(Debug)]
pub struct JobRunner<S> {
    parts: JobRunnerParts<S>,
    user_cache: UserCache,
    ledger: Ledger,
    /// True while the store's open sessions are not loaded.
    unread: bool,
}

impl<S: Store> JobRunner<S> {
    /// Creates a runner that has only its store's state. `rng` keys a hash table of names.
    #[must_use]
    pub fn new(parts: JobRunnerParts<S>, rng: &mut SecureRng) -> Self {
        let known = UserCache::new(parts.cache_config, rng);
        Self { user_cache: known, ledger: Ledger::new(parts.ledger.clone()), unread: true, parts }
    }

    /// Restarts, as after a crash of its host: state that the store does not have is lost.
    pub fn restart(&mut self, now: Instant) {
        self.user_cache.evict_user(None);
        self.ledger = Ledger::new(self.parts.ledger.clone());
        self.unread = true;
        self.load_sessions(now);
    }

    /// The ledger.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The store.
    #[must_use]
    pub const fn store(&self) -> &S {
        &self.parts.store
    }

    /// The store, to change users or to simulate failures.
    pub const fn store_mut(&mut self) -> &mut S {
        &mut self.parts.store
    }

    /// Returns the work label of a job that costs time outside the server. `None`: the cost is negligible.
    #[must_use]
    pub fn work_label(&self, job: &AaaServerJob) -> Option<WorkLabel> {
        match job {
            AaaServerJob::Lookup { name, .. } => {
                self.find_inline_user(name).is_none().then_some(work::LOOKUP)
            }
            AaaServerJob::Verify { .. } => Some(work::ARGON2),
            AaaServerJob::Account { .. } => Some(work::WRITE),
            AaaServerJob::CheckCertificate { .. } => Some(work::CERTIFICATE),
            AaaServerJob::Admit { .. } | AaaServerJob::NameUser { .. } => None,
        }
    }

    /// Does a job and returns its result.
    pub fn run_job(
        &mut self,
        now: Instant,
        wall: WallTime,
        job: usher_core::JobRequest<AaaServerJob>,
    ) -> AaaServerCommand {
        let token = job.token;
        match job.job {
            AaaServerJob::Lookup { name, .. } => {
                AaaServerCommand::Found { token, user: self.find_user(now, &name) }
            }
            AaaServerJob::Verify { hash, password, .. } => {
                let right = usher_crypto::password::argon2_verify(&hash, &password);
                AaaServerCommand::Verified { token, right }
            }
            AaaServerJob::Admit { request, .. } => {
                let admission = match self.load_sessions(now) {
                    true => self.ledger.admit_user(now, wall, &request),
                    false => AdmissionVerdict::Unavailable,
                };
                AaaServerCommand::Admitted { token, admission }
            }
            AaaServerJob::Account { record } => {
                let durable =
                    self.load_sessions(now) && self.ledger.commit_record(now, &mut self.parts.store, &record);
                AaaServerCommand::Accounted { token, durable }
            }
            AaaServerJob::NameUser { outer, chain } => {
                let certificates = self.parts.certificates.as_ref();
                let name =
                    certificates.and_then(|certificates| certificates.certificate_user(&outer, &chain));
                AaaServerCommand::Named { token, name }
            }
            AaaServerJob::CheckCertificate { name, chain, resumed, .. } => {
                let verdict =
                    |c: &Arc<dyn CertificateChecker>| c.check_chain(name.as_deref(), &chain, resumed);
                let verdict = self.parts.certificates.as_ref().map_or(CertificateVerdict::Good, verdict);
                AaaServerCommand::Certificate { token, verdict }
            }
        }
    }

    /// Counts a failed attempt and records a login if configured. Returns the commands for the server.
    pub fn handle_event(
        &mut self,
        now: Instant,
        wall: WallTime,
        event: &AaaServerEvent,
    ) -> Vec<AaaServerCommand> {
        if let AaaServerEvent::Accepted(login) | AaaServerEvent::Rejected(login) = event
            && self.parts.logins
        {
            // The login does not wait for the store, so this record is lost if the store is unavailable.
            let _ = self.parts.store.write_changes(&[login.store_change(wall)]);
        }
        let Some((_, name, station)) = event.counted_failure_identity() else { return Vec::new() };
        let held = self.ledger.record_failure(now, &storable_text(name), &storable_text(station));
        lockout_commands(name, station, held).collect()
    }

    /// Returns the time of the next [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.ledger.next_timeout()
    }

    /// Ends sessions without accounting records for too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.ledger.expire_sessions(now);
        while self.ledger.commit_changes(&mut self.parts.store, usize::MAX).written > 0 {}
    }

    /// Loads the store's open sessions once. True if they are loaded.
    fn load_sessions(&mut self, now: Instant) -> bool {
        let ledger = &mut self.ledger;
        self.unread = self.unread
            && self
                .parts
                .store
                .open_sessions(&mut |row| {
                    ledger.restore_session(now, &row);
                })
                .is_err();
        !self.unread
    }

    fn find_inline_user(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.parts.inline.get(&*canonical_name(name))
    }

    fn find_user(&mut self, now: Instant, name: &[u8]) -> UserLookupResult {
        if let Some(user) = self.find_inline_user(name) {
            return UserLookupResult::User(user.clone());
        }
        // The store's tables hold UTF-8 text, so they cannot have any other name.
        let Ok(text) = core::str::from_utf8(name) else { return UserLookupResult::Unstorable };
        let begun = self.user_cache.generation();
        let rows = user_of(&mut self.parts.store, text);
        let said = rows.map(|rows| rows.map(|rows| Arc::new(self.parts.reading.read_user(&rows))));
        resolve_user_lookup(&mut self.user_cache, now, begun, name, said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{AccountingStatusType, LedgerRecord, LoginFailureLimit, NasSessionKey};
    use crate::store::{AttributeRow, MemoryStore, RowOperator, StoreChange};
    use crate::{AdmitRequest, FinishedLogin, LoginOwner};
    use alloc::string::String;
    use alloc::vec;
    use usher_core::{Duration, Seed};
    use usher_crypto::SecretValue;
    use usher_radius::attribute::AttributeList;

    const WALL: WallTime = WallTime::from_unix_secs(1_800_000_000);

    fn instant_at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    fn test_runner() -> JobRunner<MemoryStore> {
        let password = AttributeRow {
            attribute: "Cleartext-Password".into(),
            op: RowOperator::Replace,
            value: "x".into(),
        };
        let mut store = MemoryStore::new();
        store.put_user("bob", &UserRows { check: vec![password], ..UserRows::default() }).unwrap();
        let limit = LoginFailureLimit::new(2, Duration::from_secs(60), Duration::from_secs(60));
        let ledger = LedgerConfig { simultaneous: Some(1), failures: Some(limit), ..LedgerConfig::default() };
        let parts = JobRunnerParts {
            inline: Arc::new([(b"ann".to_vec(), Arc::new(User::with_password(b"y")))].into()),
            logins: true,
            ..JobRunnerParts::new(ledger, store)
        };
        JobRunner::new(parts, &mut Seed::new(1).derive_secure_rng("known", 0))
    }

    fn run_test_job(service: &mut JobRunner<MemoryStore>, what: AaaServerJob) -> AaaServerCommand {
        service.run_job(instant_at(1), WALL, usher_core::JobRequest::new(7, what))
    }

    #[test]
    fn users_are_of_the_file_then_of_the_store_then_of_memory() {
        let mut s = test_runner();
        let lookup = |name: &str| AaaServerJob::Lookup {
            owner: LoginOwner::Radius(0),
            name: name.as_bytes().to_vec(),
        };
        let find = |s: &mut JobRunner<MemoryStore>, name: &str| match run_test_job(s, lookup(name)) {
            AaaServerCommand::Found { token: 7, user: UserLookupResult::User(_) } => 'f',
            AaaServerCommand::Found { token: 7, user: UserLookupResult::Cached(_) } => 'r',
            AaaServerCommand::Found { token: 7, user: UserLookupResult::NotFound } => 'n',
            AaaServerCommand::Found { token: 7, user: UserLookupResult::Unavailable } => 'u',
            other => panic!("{other:?}"),
        };
        assert_eq!(["ann", "bob", "eve"].map(|name| find(&mut s, name)), ['f', 'f', 'n']);
        assert_eq!((s.work_label(&lookup("ann")), s.work_label(&lookup("bob"))), (None, Some(work::LOOKUP)));
        s.store_mut().set_store_unavailable(true);
        assert_eq!(["ann", "bob", "eve"].map(|name| find(&mut s, name)), ['f', 'r', 'u']);
        s.restart(instant_at(1));
        assert_eq!(find(&mut s, "bob"), 'u');
    }

    #[test]
    fn sessions_are_counted_durable_and_outlast_a_restart() {
        let mut s = test_runner();
        let start = |id: &str| {
            let session = NasSessionKey { nas: [10, 0, 0, 1].into(), id: id.into(), user: "bob".into() };
            AaaServerJob::Account {
                record: LedgerRecord::new(AccountingStatusType::Start, session, WALL).into(),
            }
        };
        let admit = AaaServerJob::Admit {
            client: None,
            request: AdmitRequest {
                user: "bob".into(),
                simultaneous: None,
                pool: None,
                nas: [10, 0, 0, 2].into(),
                port: String::new(),
                calling_station_id: "02-00-00-00-00-02".into(),
            },
        };
        let admitted = |command| match command {
            AaaServerCommand::Admitted { token: 7, admission } => admission,
            other => panic!("{other:?}"),
        };
        s.store_mut().set_store_unavailable(true);
        assert_eq!(admitted(run_test_job(&mut s, admit.clone())), AdmissionVerdict::Unavailable);
        assert!(matches!(
            run_test_job(&mut s, start("1")),
            AaaServerCommand::Accounted { durable: false, .. }
        ));
        s.store_mut().set_store_unavailable(false);
        assert!(matches!(
            run_test_job(&mut s, start("1")),
            AaaServerCommand::Accounted { durable: true, .. }
        ));
        for _ in 0..2 {
            assert!(matches!(admitted(run_test_job(&mut s, admit.clone())), AdmissionVerdict::No(_)));
            assert_eq!((s.ledger().len(), s.work_label(&start("1"))), (1, Some(work::WRITE)));
            s.restart(instant_at(1));
        }
    }

    #[test]
    fn passwords_are_compared_and_who_guesses_is_held_back() {
        let mut s = test_runner();
        let hash = usher_crypto::password::argon2_hash(b"right", &[1; 16]);
        let mut right = |password: &[u8]| {
            let (hash, password) = (SecretValue::new(hash.clone()), SecretValue::from(password));
            let job =
                AaaServerJob::Verify { owner: LoginOwner::Radius(0), name: b"bob".to_vec(), hash, password };
            matches!(run_test_job(&mut s, job), AaaServerCommand::Verified { token: 7, right: true })
        };
        assert!(right(b"right") && !right(b"wrong"));
        let failed = AaaServerEvent::Failed { client: None, name: b"bob".to_vec(), station: b"02".to_vec() };
        assert!(s.handle_event(instant_at(1), WALL, &failed).is_empty());
        let told = s.handle_event(instant_at(1), WALL, &failed);
        let [AaaServerCommand::LockOut { name, .. }, AaaServerCommand::LockOut { station, .. }] = &told[..]
        else {
            panic!("{told:?}");
        };
        assert_eq!((&name[..], &station[..]), (&b"bob"[..], &b"02"[..]));
        let login = FinishedLogin::without_method(b"bob".to_vec(), None, None, AttributeList::new());
        assert!(s.handle_event(instant_at(1), WALL, &AaaServerEvent::Accepted(login.into())).is_empty());
        let StoreChange::Login { username, reply, .. } = &s.store().logins()[0] else { panic!() };
        assert_eq!((username.as_str(), *reply), ("bob", "Access-Accept"));
    }
}

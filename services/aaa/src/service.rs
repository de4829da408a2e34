//! What stands behind a server: users, a ledger and a store, which answer its jobs.
//!
//! A host that does one thing after another, such as the simulator or a test, has them all in a [`Service`]. One with threads
//! has them apart, asks its store aside and writes many records at once; what decides is the same: [`Reading::user`],
//! [`found`], [`user_of`], [`Ledger::take`] and [`hold_back`].

use crate::ledger::{HeldBack, Ledger, LedgerConfig, text};
use crate::server::{CacheConfig, CertificateVerdict, Command, Event, Found, Generation, Job, UserCache};
use crate::store::{Change, Store, StoreError, UserRows, user_of};
use crate::users::{User, canonical_name};
use crate::{Admission, work};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::{Instant, SecureRng, WallTime, WorkLabel};
use usher_radius::dictionary::Dictionary;

/// Users of a configuration, which are found before those of a store, by their names as users are kept
/// ([`canonical_name`]).
pub type Inline = Arc<BTreeMap<Vec<u8>, Arc<User>>>;

/// How rows of a store are read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Names and types of attributes.
    pub dictionary: Arc<Dictionary>,
    /// Whether a row of a reply that cannot be understood is left out ([`User::left_out`]), in place of turning its user away.
    pub leave_out: bool,
}

impl Reading {
    /// The user that these rows are; one who cannot be understood is never let in ([`User::unreadable`]).
    #[must_use]
    pub fn user(&self, rows: &UserRows) -> User {
        let compiled = match self.leave_out {
            false => User::compile(rows, &self.dictionary),
            true => User::compile_leaving_out(rows, &self.dictionary),
        };
        compiled.unwrap_or_else(User::unreadable)
    }
}

/// What a look-up ended in, by what the store said of a name. `known` are the users that it told of before, who stand in
/// while it is away; `begun` is what they were when it was asked, so that who was forgotten meanwhile is not kept.
pub fn found(
    known: &mut UserCache,
    now: Instant,
    begun: Generation,
    name: &[u8],
    said: Result<Option<Arc<User>>, StoreError>,
) -> Found {
    match said {
        Ok(user) => {
            known.keep(now, begun, name, user.as_ref());
            user.map_or(Found::Nobody, Found::User)
        }
        Err(StoreError::Unavailable(_)) => {
            known.find(now, name).flatten().map_or(Found::Unavailable, Found::Remembered)
        }
        Err(StoreError::Refused(_)) => Found::Unavailable,
        Err(StoreError::Unstorable(_)) => Found::Unstorable,
    }
}

/// What servers are told of who is held back from now on, after a failure of this name and station.
pub fn hold_back(name: &[u8], station: &[u8], held: HeldBack) -> impl Iterator<Item = Command> {
    let of =
        |name: &[u8], station: &[u8]| Command::HoldBack { name: name.to_vec(), station: station.to_vec() };
    let user = held.user.then(|| of(name, &[]));
    user.into_iter().chain(held.station.then(|| of(&[], station)))
}

/// Who says whether a certificate may be taken ([`Job::CheckCertificate`]).
pub trait Certificates: fmt::Debug + Send + Sync {
    /// Whether this chain, DER, the peer's own first, may be taken; with `name` it must bear that. `resumed`: it was verified
    /// in an earlier handshake.
    fn verdict(&self, name: Option<&[u8]>, chain: &[Vec<u8>], resumed: bool) -> CertificateVerdict;
    /// The user whom the first of a chain names, where the peer has said `outer`, which is no name ([`Job::NameUser`]).
    fn user(&self, outer: &[u8], chain: &[Vec<u8>]) -> Option<Vec<u8>>;
}

/// What a [`Service`] is made of.
pub struct Parts<S> {
    /// Users of the configuration.
    pub inline: Inline,
    /// How rows of the store are read.
    pub reading: Reading,
    /// Which users of the store are remembered for when it is away.
    pub known: CacheConfig,
    /// Pools and limits.
    pub ledger: LedgerConfig,
    /// Further users, and what is durable.
    pub store: S,
    /// Who looks at certificates; without, each that was verified in its handshake is taken.
    pub certificates: Option<Arc<dyn Certificates>>,
    /// Whether each decided login is written to the store.
    pub logins: bool,
}

impl<S> Parts<S> {
    /// A ledger and a store, whose rows are read by the standard dictionary; no other users, and nothing but what accounting
    /// says is written.
    #[must_use]
    pub fn new(ledger: LedgerConfig, store: S) -> Self {
        Self {
            inline: Inline::default(),
            reading: Reading { dictionary: Arc::new(Dictionary::builtin()), leave_out: false },
            known: CacheConfig::default(),
            ledger,
            store,
            certificates: None,
            logins: false,
        }
    }
}

impl<S> fmt::Debug for Parts<S> {
    /// Without the users.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("ledger", &self.ledger)
            .field("certificates", &self.certificates)
            .finish_non_exhaustive()
    }
}

/// Answers the jobs of one server, each at once; see the [module](self).
#[derive(Debug)]
pub struct Service<S> {
    parts: Parts<S>,
    known: UserCache,
    ledger: Ledger,
    /// The sessions that are open in the store are not known yet.
    unread: bool,
}

impl<S: Store> Service<S> {
    /// One that knows no more than its store. `rng` keys a table of names.
    #[must_use]
    pub fn new(parts: Parts<S>, rng: &mut SecureRng) -> Self {
        let known = UserCache::new(parts.known, rng);
        Self { known, ledger: Ledger::new(parts.ledger.clone()), unread: true, parts }
    }

    /// Begins anew, as after a failure of its host: what the store does not have is lost.
    pub fn restart(&mut self, now: Instant) {
        self.known.forget(None);
        self.ledger = Ledger::new(self.parts.ledger.clone());
        self.unread = true;
        self.open(now);
    }

    /// Who is in, and what was counted.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The store.
    #[must_use]
    pub const fn store(&self) -> &S {
        &self.parts.store
    }

    /// The same, for those who change users or have it fail.
    pub const fn store_mut(&mut self) -> &mut S {
        &mut self.parts.store
    }

    /// What a job costs besides the server's own time; `None`: nothing that is worth counting.
    #[must_use]
    pub fn work(&self, job: &Job) -> Option<WorkLabel> {
        match job {
            Job::Lookup { name, .. } => self.inline(name).is_none().then_some(work::LOOKUP),
            Job::Verify { .. } => Some(work::ARGON2),
            Job::Account { .. } => Some(work::WRITE),
            Job::CheckCertificate { .. } => Some(work::CERTIFICATE),
            Job::Admit { .. } | Job::NameUser { .. } => None,
        }
    }

    /// The answer to a job.
    pub fn answer(&mut self, now: Instant, wall: WallTime, job: usher_core::Job<Job>) -> Command {
        let token = job.token;
        match job.what {
            Job::Lookup { name, .. } => Command::Found { token, user: self.find(now, &name) },
            Job::Verify { hash, password, .. } => {
                let right = usher_crypto::password::argon2_verify(&hash, &password);
                Command::Verified { token, right }
            }
            Job::Admit { request, .. } => {
                let admission = match self.open(now) {
                    true => self.ledger.admit(now, wall, &request),
                    false => Admission::Unavailable,
                };
                Command::Admitted { token, admission }
            }
            Job::Account { record } => {
                let durable = self.open(now) && self.ledger.serve(now, &mut self.parts.store, &record);
                Command::Accounted { token, durable }
            }
            Job::NameUser { outer, chain } => {
                let certificates = self.parts.certificates.as_ref();
                let name = certificates.and_then(|certificates| certificates.user(&outer, &chain));
                Command::Named { token, name }
            }
            Job::CheckCertificate { name, chain, resumed, .. } => {
                let verdict = |c: &Arc<dyn Certificates>| c.verdict(name.as_deref(), &chain, resumed);
                let verdict = self.parts.certificates.as_ref().map_or(CertificateVerdict::Good, verdict);
                Command::Certificate { token, verdict }
            }
        }
    }

    /// Counts what failed and writes down who came, where that is wanted; what the server is told then.
    pub fn heed(&mut self, now: Instant, wall: WallTime, event: &Event) -> Vec<Command> {
        if let Event::Accepted(login) | Event::Rejected(login) = event
            && self.parts.logins
        {
            // A store that is away does without: nobody waits for it.
            let _ = self.parts.store.write(&[Change::of_login(login, wall)]);
        }
        let Some((_, name, station)) = event.failure() else { return Vec::new() };
        let held = self.ledger.failed(now, &text(name), &text(station));
        hold_back(name, station, held).collect()
    }

    /// When [`Self::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.ledger.timeout()
    }

    /// Ends sessions of which nothing was heard for too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.ledger.expire(now);
        while self.ledger.commit(&mut self.parts.store, usize::MAX).written > 0 {}
    }

    /// Takes the sessions that are open in the store, where that was not done yet; whether they are known.
    fn open(&mut self, now: Instant) -> bool {
        let ledger = &mut self.ledger;
        self.unread = self.unread
            && self
                .parts
                .store
                .open_sessions(&mut |row| {
                    ledger.restore(now, &row);
                })
                .is_err();
        !self.unread
    }

    fn inline(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.parts.inline.get(&*canonical_name(name))
    }

    fn find(&mut self, now: Instant, name: &[u8]) -> Found {
        if let Some(user) = self.inline(name) {
            return Found::User(user.clone());
        }
        // The tables hold text.
        let Ok(text) = core::str::from_utf8(name) else { return Found::Unstorable };
        let begun = self.known.generation();
        let rows = user_of(&mut self.parts.store, text);
        let said = rows.map(|rows| rows.map(|rows| Arc::new(self.parts.reading.user(&rows))));
        found(&mut self.known, now, begun, name, said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{FailureLimit, Record, SessionKey, Status};
    use crate::store::{Memory, Op, Row};
    use crate::{AdmitRequest, Login, LoginOwner};
    use alloc::string::String;
    use alloc::vec;
    use usher_core::{Duration, Seed};
    use usher_crypto::Key;
    use usher_radius::attribute::Attributes;

    const WALL: WallTime = WallTime::from_unix_secs(1_800_000_000);

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    fn service() -> Service<Memory> {
        let password = Row { attribute: "Cleartext-Password".into(), op: Op::Replace, value: "x".into() };
        let mut store = Memory::new();
        store.put_user("bob", &UserRows { check: vec![password], ..UserRows::default() }).unwrap();
        let limit = FailureLimit::new(2, Duration::from_secs(60), Duration::from_secs(60));
        let ledger = LedgerConfig { simultaneous: Some(1), failures: Some(limit), ..LedgerConfig::default() };
        let parts = Parts {
            inline: Arc::new([(b"ann".to_vec(), Arc::new(User::with_password(b"y")))].into()),
            logins: true,
            ..Parts::new(ledger, store)
        };
        Service::new(parts, &mut Seed::new(1).secure("known", 0))
    }

    fn ask(service: &mut Service<Memory>, what: Job) -> Command {
        service.answer(at(1), WALL, usher_core::Job::new(7, what))
    }

    #[test]
    fn users_are_of_the_file_then_of_the_store_then_of_memory() {
        let mut s = service();
        let lookup =
            |name: &str| Job::Lookup { owner: LoginOwner::Radius(0), name: name.as_bytes().to_vec() };
        let find = |s: &mut Service<Memory>, name: &str| match ask(s, lookup(name)) {
            Command::Found { token: 7, user: Found::User(_) } => 'f',
            Command::Found { token: 7, user: Found::Remembered(_) } => 'r',
            Command::Found { token: 7, user: Found::Nobody } => 'n',
            Command::Found { token: 7, user: Found::Unavailable } => 'u',
            other => panic!("{other:?}"),
        };
        assert_eq!(["ann", "bob", "eve"].map(|name| find(&mut s, name)), ['f', 'f', 'n']);
        assert_eq!((s.work(&lookup("ann")), s.work(&lookup("bob"))), (None, Some(work::LOOKUP)));
        s.store_mut().set_away(true);
        assert_eq!(["ann", "bob", "eve"].map(|name| find(&mut s, name)), ['f', 'r', 'u']);
        s.restart(at(1));
        assert_eq!(find(&mut s, "bob"), 'u');
    }

    #[test]
    fn sessions_are_counted_durable_and_outlast_a_restart() {
        let mut s = service();
        let start = |id: &str| {
            let session = SessionKey { nas: [10, 0, 0, 1].into(), id: id.into(), user: "bob".into() };
            Job::Account { record: Record::new(Status::Start, session, WALL).into() }
        };
        let admit = Job::Admit {
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
            Command::Admitted { token: 7, admission } => admission,
            other => panic!("{other:?}"),
        };
        s.store_mut().set_away(true);
        assert_eq!(admitted(ask(&mut s, admit.clone())), Admission::Unavailable);
        assert!(matches!(ask(&mut s, start("1")), Command::Accounted { durable: false, .. }));
        s.store_mut().set_away(false);
        assert!(matches!(ask(&mut s, start("1")), Command::Accounted { durable: true, .. }));
        for _ in 0..2 {
            assert!(matches!(admitted(ask(&mut s, admit.clone())), Admission::No(_)));
            assert_eq!((s.ledger().len(), s.work(&start("1"))), (1, Some(work::WRITE)));
            s.restart(at(1));
        }
    }

    #[test]
    fn passwords_are_compared_and_who_guesses_is_held_back() {
        let mut s = service();
        let hash = usher_crypto::password::argon2_hash(b"right", &[1; 16]);
        let mut right = |password: &[u8]| {
            let (hash, password) = (Key::new(hash.clone()), Key::from(password));
            let job = Job::Verify { owner: LoginOwner::Radius(0), name: b"bob".to_vec(), hash, password };
            matches!(ask(&mut s, job), Command::Verified { token: 7, right: true })
        };
        assert!(right(b"right") && !right(b"wrong"));
        let failed = Event::Failed { client: None, name: b"bob".to_vec(), station: b"02".to_vec() };
        assert!(s.heed(at(1), WALL, &failed).is_empty());
        let told = s.heed(at(1), WALL, &failed);
        let [Command::HoldBack { name, .. }, Command::HoldBack { station, .. }] = &told[..] else {
            panic!("{told:?}");
        };
        assert_eq!((&name[..], &station[..]), (&b"bob"[..], &b"02"[..]));
        let login = Login::of(b"bob".to_vec(), None, None, Attributes::new());
        assert!(s.heed(at(1), WALL, &Event::Accepted(login.into())).is_empty());
        let Change::Login { username, reply, .. } = &s.store().logins()[0] else { panic!() };
        assert_eq!((username.as_str(), *reply), ("bob", "Access-Accept"));
    }
}

//! Threads for what blocks or takes long: asking the store for a user, comparing a password with its slow hash.

use crate::node::{Mailboxes, Message};
use crate::stats::Latency;
use crate::status::CertificateStatus;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;
use usher_aaa::store::{Store, StoreError};
use usher_aaa::{CertificateVerdict, Command, Found, User};
use usher_radius::dictionary::Dictionary;

/// Jobs that may wait; more are answered at once with "unavailable".
const WAITING: usize = 1 << 16;

/// Whom a job is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct For {
    /// The shard.
    pub(crate) shard: u16,
    /// The machine's token.
    pub(crate) token: u64,
}

/// What a thread is asked.
pub(crate) enum Job {
    /// Find a user.
    Lookup(For, Vec<u8>),
    /// Compare a password with its hash.
    Verify(For, String, Vec<u8>),
    /// Say whether a certificate still holds.
    Certificate(For, Vec<Vec<u8>>),
}

/// Users of the file, which come before those of the store; replaced at a reload.
pub(crate) type Inline = Arc<RwLock<Arc<BTreeMap<Vec<u8>, Arc<User>>>>>;

/// Where jobs are put.
#[derive(Clone)]
pub(crate) struct Workers {
    lookups: SyncSender<Job>,
    hashes: SyncSender<Job>,
    mailboxes: Mailboxes,
    status: Arc<RwLock<CertificateStatus>>,
}

/// What the threads share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) mailboxes: Mailboxes,
    pub(crate) inline: Inline,
    pub(crate) dictionary: Arc<Dictionary>,
    pub(crate) latency: Arc<Latency>,
    /// How certificates are checked; replaced at a reload.
    pub(crate) status: Arc<RwLock<CertificateStatus>>,
}

impl Workers {
    /// Begins one thread for each store, and as many for hashes.
    pub(crate) fn begin(shared: Shared, stores: Vec<Box<dyn Store>>) -> (Self, Vec<JoinHandle<()>>) {
        let (lookups, jobs) = sync_channel(WAITING);
        let (hashes, hash_jobs) = sync_channel(WAITING);
        let (jobs, hash_jobs) = (Arc::new(Mutex::new(jobs)), Arc::new(Mutex::new(hash_jobs)));
        let mut threads = Vec::new();
        let mut begin = |name: String, body: Box<dyn FnOnce() + Send>| {
            threads.extend(thread::Builder::new().name(name).spawn(body).ok());
        };
        for (n, store) in stores.into_iter().enumerate() {
            let (jobs, hash_jobs, s) = (jobs.clone(), hash_jobs.clone(), shared.clone());
            begin(format!("usher-store-{n}"), Box::new(move || work(&jobs, &s, Some(store))));
            let s = shared.clone();
            begin(format!("usher-hash-{n}"), Box::new(move || work(&hash_jobs, &s, None)));
        }
        (Self { lookups, hashes, mailboxes: shared.mailboxes, status: shared.status }, threads)
    }

    /// Whether issuers are asked if their certificates still hold.
    pub(crate) fn asks_issuers(&self) -> bool {
        self.status.read().unwrap_or_else(PoisonError::into_inner).asks()
    }

    /// Puts a job in line; where there is no room it is answered at once.
    pub(crate) fn put(&self, job: Job) {
        let queue = match job {
            Job::Lookup(..) => &self.lookups,
            Job::Verify(..) | Job::Certificate(..) => &self.hashes,
        };
        if let Err(error) = queue.try_send(job) {
            let (std::sync::mpsc::TrySendError::Full(job) | std::sync::mpsc::TrySendError::Disconnected(job)) =
                error;
            match job {
                Job::Lookup(for_, _) => self
                    .mailboxes
                    .command(for_.shard, Command::Found { token: for_.token, user: Found::Unavailable }),
                // Without a verdict the request is forgotten, and the client asks again.
                Job::Verify(..) | Job::Certificate(..) => {}
            }
        }
    }
}

fn work(jobs: &Mutex<Receiver<Job>>, shared: &Shared, mut store: Option<Box<dyn Store>>) {
    let mut troubled = false;
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        let (for_, command) = match job {
            Job::Lookup(for_, name) => {
                let user = find(&name, shared, store.as_mut(), &mut troubled);
                (for_, Command::Found { token: for_.token, user })
            }
            Job::Verify(for_, hash, password) => {
                let right = usher_crypto::password::argon2_verify(&hash, &password);
                (for_, Command::Verified { token: for_.token, right })
            }
            Job::Certificate(for_, chain) => {
                let policy = shared.status.read().unwrap_or_else(PoisonError::into_inner).clone();
                let verdict = match policy.good(&chain) {
                    true => CertificateVerdict::Good,
                    false => CertificateVerdict::Revoked,
                };
                (for_, Command::Certificate { token: for_.token, verdict })
            }
        };
        shared.mailboxes.send(for_.shard, Message::Command(command));
    }
}

fn find(name: &[u8], shared: &Shared, store: Option<&mut Box<dyn Store>>, troubled: &mut bool) -> Found {
    let inline = shared.inline.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(user) = inline.get(name) {
        return Found::User(user.clone());
    }
    // The tables hold text.
    let (Some(store), Ok(name)) = (store, std::str::from_utf8(name)) else { return Found::Nobody };
    let begun = Instant::now();
    let found = store.user(name);
    shared.latency.add(begun.elapsed());
    if troubled_said(troubled, found.as_ref().err()) {
        tracing::info!("the store answers again");
    }
    match found {
        Ok(None) => Found::Nobody,
        Ok(Some(rows)) => match User::compile(&rows, &shared.dictionary) {
            Ok(user) => Found::User(Arc::new(user)),
            Err(complaint) => {
                tracing::error!(user = name, %complaint, "a user of the store cannot be understood and is turned away");
                Found::Nobody
            }
        },
        Err(_) => Found::Unavailable,
    }
}

/// Says once that a store is in trouble; true when it is well again.
pub(crate) fn troubled_said(troubled: &mut bool, error: Option<&StoreError>) -> bool {
    match error {
        Some(error) => {
            if !*troubled {
                tracing::error!(%error, "the store does not answer; requests that need it get no answer until it does");
            }
            *troubled = true;
            false
        }
        None => std::mem::replace(troubled, false),
    }
}

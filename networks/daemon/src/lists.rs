//! Revocation lists over their lives: told of before they are out of date, made anew where the authority is at hand,
//! fetched where somebody publishes them. What is new is taken up while the server runs.

mod learnt;

use crate::config::model::Tls as Settings;
use crate::config::{LearntList, Loaded, TlsFiles};
use crate::daemon::Running;
use crate::installation::Installation;
pub(crate) use learnt::host_fault;
use learnt::{Learnt, Point};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError};
use std::time::Duration as Wait;
use usher_core::{Duration, WallTime};
use usher_crypto::tls::Roots;
use usher_pki::{Authority, Information, PkiError, RevocationList};
use x509_parser::pem::Pem;

const DAY: Duration = Duration::from_secs(86_400);
/// How often it is looked whether something is due.
const TICK: Wait = Wait::from_secs(1);
/// How long a list's publisher may take, and what it may send.
const PATIENCE: Wait = Wait::from_secs(10);
const LONGEST: u64 = 32 << 20;
/// What a publisher whom users' certificates name may send, and all of them together; how many are asked at one time.
const LONGEST_LEARNT: u64 = 8 << 20;
const ALL_LEARNT: usize = 64 << 20;
const LEARNT_AT_ONCE: usize = 4;
/// Chains of users that wait to be looked at; those of others are looked at when they come again.
pub(crate) const CHAINS: usize = 64;
/// How long after a first failure the next attempt is made, and after many of them; never later than otherwise.
const RETRY: Duration = Duration::from_secs(10);
const LONGEST_RETRY: Duration = Duration::from_secs(300);
/// How often the same failure is told of.
const AGAIN: Duration = Duration::from_secs(3600);

/// Seconds from one time to a later one.
fn seconds(from: WallTime, to: WallTime) -> u64 {
    to.unix_secs().saturating_sub(from.unix_secs())
}

/// A list that is in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Used {
    /// The file, or the URL that it was fetched from.
    pub(crate) from: String,
    pub(crate) issuer: String,
    pub(crate) this_update: WallTime,
    pub(crate) next_update: Option<WallTime>,
    /// cRLNumber, hexadecimal; empty where it has none.
    pub(crate) number: String,
}

impl Used {
    pub(crate) fn new(from: &str, list: &RevocationList) -> Self {
        Self {
            from: from.to_owned(),
            issuer: list.issuer.clone(),
            this_update: list.this_update,
            next_update: list.next_update,
            number: list.number(),
        }
    }
    /// How near its end is. A list that lives for a month is told of a week before; one that lives for a day when a
    /// quarter of that is left.
    pub(crate) fn stage(&self, now: WallTime) -> Stage {
        let Some(end) = self.next_update else { return Stage::Good };
        let lifetime = seconds(self.this_update, end);
        let left = |at_most: u64, part: u64| seconds(now, end) <= at_most.min(lifetime / part);
        if now >= end {
            Stage::Over
        } else if left(DAY.as_secs(), 8) {
            Stage::Urgent
        } else if left(7 * DAY.as_secs(), 4) {
            Stage::Soon
        } else {
            Stage::Good
        }
    }
    /// What an operator has to know at a stage.
    fn told(&self, now: WallTime) -> Option<String> {
        let Self { from, issuer, .. } = self;
        let end = self.next_update?;
        let hours = seconds(now, end) as f64 / 3600.0;
        match self.stage(now) {
            Stage::Good => None,
            Stage::Over => Some(format!(
                "the revocation list {from} of {issuer} is out of date: nobody with a certificate of it gets in"
            )),
            Stage::Soon | Stage::Urgent => Some(format!(
                "the revocation list {from} of {issuer} is out of date in {hours:.1} hours: nobody with a certificate of it gets in then"
            )),
        }
    }
}

/// How near the end of a list is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    Good,
    /// At most a week, and a quarter of its time.
    Soon,
    /// At most a day, and an eighth of its time.
    Urgent,
    Over,
}

/// What to do about a list that ends.
const ADVICE: &str =
    "make a new one (usher aaa cert crl), or have the server do it: crl_authority, crl_url of [tls]";

/// What is to be said of a configuration's lists before it serves: those that are, or are soon, out of date.
#[must_use]
pub fn warnings(loaded: &Loaded) -> Vec<String> {
    let (Some(tls), Some(files)) = (&loaded.file.tls, &loaded.tls) else { return Vec::new() };
    let now = crate::tls::wall();
    let used = used(tls, files).unwrap_or_default();
    used.iter().filter_map(|(used, _)| Some(format!("{}; {ADVICE}", used.told(now)?))).collect()
}

/// The lists of a configuration, each with its octets in DER: of those that are about the same certificates the latest
/// alone, whether it is of a file or was fetched, since TLS looks at the first that fits; the latest first.
///
/// # Errors
/// Which file holds none.
pub(crate) fn used(tls: &Settings, files: &TlsFiles) -> Result<Vec<(Used, Vec<u8>)>, String> {
    let named = files.crls.iter().zip(tls.crl.iter().map(|path| path.display().to_string()));
    let fetched = files.fetched.iter().map(|(url, octets)| (octets, url.clone()));
    let authorities = files.ca.as_deref().map(certificates).unwrap_or_default();
    let signed = |list: &RevocationList| list.is_signed_by(authorities.iter().map(Vec::as_slice));
    let mut latest: Vec<(String, RevocationList)> = Vec::new();
    let mut add = |octets: &[u8], from: String, better: &dyn Fn(&RevocationList, &RevocationList) -> bool| {
        for list in RevocationList::read(octets).map_err(|error| format!("{from}: {error}"))? {
            match latest.iter_mut().find(|(_, other)| other.is_about_those_of(&list)) {
                None => latest.push((from.clone(), list)),
                Some(before) if better(&list, &before.1) => *before = (from.clone(), list),
                Some(_) => {}
            }
        }
        Ok::<_, String>(())
    };
    for (octets, from) in named.chain(fetched) {
        add(octets, from, &|list, other| is_better(list, other, signed))?;
    }
    for LearntList { url, issuer, octets } in &files.learnt {
        // Below `ca` somebody may call an authority as another is called: no list of one takes the place of the other's.
        let by_issuer = |list: &RevocationList| list.is_signed_by([&issuer[..]]);
        add(octets, url.clone(), &|list, other| by_issuer(other) && is_better(list, other, by_issuer))?;
    }
    latest.sort_by_key(|(_, list)| std::cmp::Reverse(list.this_update));
    Ok(latest.into_iter().map(|(from, list)| (Used::new(&from, &list), list.der().to_vec())).collect())
}

/// Whether the lists of a configuration take back nobody but whom those of the one before did.
pub(crate) fn add_nothing(before: &Loaded, after: &Loaded) -> bool {
    let lists = |loaded: &Loaded| -> Option<Vec<RevocationList>> {
        let (Some(tls), Some(files)) = (&loaded.file.tls, &loaded.tls) else { return Some(Vec::new()) };
        let used = used(tls, files).ok()?;
        used.iter().map(|(_, der)| RevocationList::of_der(der).ok()).collect()
    };
    let (Some(before), Some(after)) = (lists(before), lists(after)) else { return false };
    after.iter().all(|list| before.iter().any(|before| list.adds_nothing_to(before)))
}

/// Whether a list is to be used in place of another about the same certificates: one that an authority has signed before
/// one that it has not, as of an earlier authority of the same name, and then the later one.
fn is_better(
    list: &RevocationList,
    other: &RevocationList,
    signed: impl Fn(&RevocationList) -> bool,
) -> bool {
    match (signed(list), signed(other)) {
        (true, false) => true,
        (false, true) => false,
        // Where date and number say different things, the date.
        _ => {
            list.is_later_than(other) || (!other.is_later_than(list) && list.this_update > other.this_update)
        }
    }
}

/// Where lists are fetched from.
fn urls(tls: &Settings, files: &TlsFiles) -> BTreeSet<String> {
    let mut urls: BTreeSet<String> = tls.crl_url.iter().cloned().collect();
    if tls.crl_distribution_points {
        for text in [Some(&files.certificate), files.ca.as_ref()].into_iter().flatten() {
            for der in certificates(text) {
                let said = Information::of_der(&der).map(|said| said.crl).unwrap_or_default();
                urls.extend(said.into_iter().filter(|url| url.starts_with("http://")));
            }
        }
    }
    urls
}

fn certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    Pem::iter_from_buffer(pem).flatten().map(|pem| pem.contents).collect()
}

/// Where the list of a URL is kept.
fn kept(state_dir: &Path, url: &str) -> PathBuf {
    let name: String =
        url.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(100).collect();
    // Names that differ in what is left out differ in this (FNV-1a).
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for octet in url.bytes() {
        hash = (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
    }
    state_dir.join("crl").join(format!("{name}-{hash:016x}.crl"))
}

/// Does something for each at once; what came of it, in their order.
fn all_at_once<T: Sync, R: Send>(
    items: &[T],
    act: impl Fn(&T) -> Result<R, String> + Sync,
) -> Vec<Result<R, String>> {
    let act = &act;
    std::thread::scope(|scope| {
        let begin = |item| {
            let builder = std::thread::Builder::new().name("usher-list".to_owned());
            builder.spawn_scoped(scope, move || act(item))
        };
        let threads: Vec<_> = items.iter().map(begin).collect();
        let done = threads.into_iter().map(|thread| match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err("the thread that was to do it failed".to_owned()),
            Err(error) => Err(format!("no thread to do it: {error}")),
        });
        done.collect()
    })
}

impl Installation {
    /// Reads the lists that were fetched before.
    pub(crate) fn read_fetched(&mut self) {
        let (Some(tls), Some(files)) = (&self.loaded.file.tls, &mut self.loaded.tls) else { return };
        let authorities = files.ca.as_deref().map(certificates).unwrap_or_default();
        let all = urls(tls, files).into_iter();
        // One that is not there, or no list any more, is fetched again; as is one of an earlier authority, with which
        // nobody of the one of now would get in.
        let read = |url: String| {
            let octets = fs::read(kept(&self.state_dir, &url)).ok()?;
            let lists = RevocationList::read(&octets).ok()?;
            let signed = lists.iter().all(|list| list.is_signed_by(authorities.iter().map(Vec::as_slice)));
            if !signed {
                tracing::warn!(
                    url,
                    "no authority of ca has signed the revocation list that is kept: not used"
                );
            }
            signed.then_some((url, octets))
        };
        files.fetched = all.filter_map(read).collect();
        let mut left = ALL_LEARNT;
        let read = |point: Point| {
            let octets = fs::read(point.kept(&self.state_dir)).ok()?;
            let lists = RevocationList::read(&octets).ok()?;
            if !lists.iter().all(|list| list.is_signed_by([&point.issuer[..]])) {
                return None;
            }
            let Some(rest) = left.checked_sub(octets.len()) else {
                tracing::error!(
                    url = point.url,
                    "the revocation lists that users' certificates name are too long together: this one is not used"
                );
                return None;
            };
            left = rest;
            Some(LearntList { url: point.url, issuer: point.issuer, octets })
        };
        let points = Learnt::read(&self.state_dir, tls, &authorities).points;
        files.learnt = points.into_iter().filter_map(read).collect();
    }

    /// Reads the files of lists again, and nothing else of the configuration.
    pub(crate) fn read_lists(&mut self) -> Result<(), String> {
        if let (Some(tls), Some(files)) = (&self.loaded.file.tls, &mut self.loaded.tls) {
            let read = |path: &PathBuf| fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
            files.crls = tls.crl.iter().map(read).collect::<Result<_, _>>()?;
        }
        self.read_fetched();
        Ok(())
    }

    /// Fetches the lists that were never fetched, all at once, before anybody is let in.
    pub(crate) fn fetch_missing(&mut self) {
        let (Some(tls), Some(files)) = (&self.loaded.file.tls, &self.loaded.tls) else { return };
        let mut missing = urls(tls, files);
        missing.retain(|url| !files.fetched.iter().any(|(kept, _)| kept == url));
        let missing: Vec<String> = missing.into_iter().collect();
        let authorities = files.ca.as_deref().map(certificates).unwrap_or_default();
        let now = crate::tls::wall();
        let done = all_at_once(&missing, |url| fetch(&self.state_dir, &authorities, url, now));
        for (url, done) in missing.iter().zip(done) {
            if let Err(error) = done {
                tracing::error!(url, error, "no revocation list yet: nobody is refused by it");
            }
        }
        self.read_fetched();
    }
}

/// Fetches a list, and keeps it where one of these authorities has signed it and it is later than the one that is kept;
/// whether it is.
fn fetch(state_dir: &Path, authorities: &[Vec<u8>], url: &str, now: WallTime) -> Result<bool, String> {
    let signed = |list: &RevocationList| list.is_signed_by(authorities.iter().map(Vec::as_slice));
    let wrong = "no authority of ca has signed";
    fetch_signed(&kept(state_dir, url), url, LONGEST, (&signed, wrong), now)
}

/// The same, of a list that users' certificates name: their issuer must have signed it.
fn fetch_learnt(state_dir: &Path, point: &Point, now: WallTime) -> Result<bool, String> {
    let signed = |list: &RevocationList| list.is_signed_by([&point.issuer[..]]);
    let wrong = "the issuer of the certificates that name it has not signed";
    fetch_signed(&point.kept(state_dir), &point.url, LONGEST_LEARNT, (&signed, wrong), now)
}

fn fetch_signed(
    path: &Path,
    url: &str,
    longest: u64,
    (signed, wrong): (&dyn Fn(&RevocationList) -> bool, &str),
    now: WallTime,
) -> Result<bool, String> {
    let list = RevocationList::fetch(url, PATIENCE, longest).map_err(|e| e.to_string())?;
    if !signed(&list) {
        return Err(format!("{wrong} this list of {}", list.issuer));
    }
    if !list.is_of_now(now) {
        return Err(format!("this list of {} is out of date already, or not of now yet", list.issuer));
    }
    // What TLS does not understand would be refused at each handshake.
    understood(&list)?;
    let before = fs::read(path).ok().and_then(|octets| RevocationList::read(&octets).ok()?.pop());
    // An authority that was made anew begins with the first number again.
    if let Some(before) = before.filter(|before| list.is_about_those_of(before) && signed(before)) {
        if before == list {
            return Ok(false);
        }
        if !list.is_later_than(&before) {
            return Err(format!(
                "this list of {} is older than the one that is kept: not taken",
                list.issuer
            ));
        }
    }
    keep(path, list.der()).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(true)
}

/// Whether TLS takes a list.
fn understood(list: &RevocationList) -> Result<(), String> {
    Roots::default().with_revocation_lists([list.der()]).map(drop).map_err(|e| e.to_string())
}

/// Why what a file holds is no list that can be used.
pub(crate) fn fault(octets: &[u8]) -> Option<String> {
    match RevocationList::read(octets) {
        Ok(lists) => lists.iter().find_map(|list| understood(list).err()),
        Err(error) => Some(error.to_string()),
    }
}

fn keep(path: &Path, octets: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    usher_pki::write_whole(path, octets, 0o600, |_| Ok(()))
}

/// Makes the list of an authority anew where a third of its time is left; whether it did.
fn renew(folder: &Path, now: WallTime) -> Result<bool, String> {
    let path = folder.join("ca.crl");
    let octets = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let list = RevocationList::read(&octets).map_err(|e| format!("{}: {e}", path.display()))?.pop();
    let due = list.is_none_or(|list| {
        list.next_update.is_some_and(|end| seconds(now, end) <= seconds(list.this_update, end) / 3)
    });
    if due {
        let published = Authority::open(folder).and_then(|mut authority| authority.publish(now));
        published.map_err(|error| match error {
            PkiError::File { .. } => {
                format!("{error}; where the authority is another user's, usher-aaa-crl.timer does this")
            }
            error => error.to_string(),
        })?;
    }
    Ok(due)
}

/// From where a list comes.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Source {
    /// The folder of an authority that is at hand.
    Authority(PathBuf),
    /// A file, and what was read of it.
    File(PathBuf, Vec<u8>),
    /// A URL, and whether a list of it is in use.
    Url(String, bool),
    /// A place that users' certificates name, and whether a list of it is in use.
    Learnt(Point, bool),
}

impl Source {
    /// What people call it.
    fn name(&self) -> String {
        match self {
            Self::Authority(path) | Self::File(path, _) => path.display().to_string(),
            Self::Url(url, _) => url.clone(),
            Self::Learnt(point, _) => point.url.clone(),
        }
    }
    /// What tells it from others.
    fn key(&self) -> (String, &[u8]) {
        match self {
            Self::Learnt(point, _) => (point.url.clone(), &point.issuer),
            other => (other.name(), &[]),
        }
    }
    /// Whether nothing of it is in use.
    fn is_without_list(&self) -> bool {
        matches!(self, Self::Url(_, false) | Self::Learnt(_, false))
    }
}

/// Where a configuration's lists come from.
struct Sources {
    /// Which configuration that is.
    generation: u64,
    all: Vec<Source>,
    interval: Duration,
    /// Whose fetched lists are believed, DER.
    authorities: Vec<Vec<u8>>,
    state_dir: PathBuf,
}

impl Sources {
    /// None where there is no TLS.
    fn of(place: &Installation, learnt: &Learnt, generation: u64) -> Self {
        let state_dir = place.state_dir.clone();
        let (Some(tls), Some(files)) = (&place.loaded.file.tls, &place.loaded.tls) else {
            return Self {
                generation,
                all: Vec::new(),
                interval: LONGEST_RETRY,
                authorities: Vec::new(),
                state_dir,
            };
        };
        let authority = tls.crl_authority.iter().cloned().map(Source::Authority);
        let read = tls.crl.iter().cloned().zip(files.crls.iter().cloned());
        let urls = urls(tls, files).into_iter().map(|url| {
            let used = files.fetched.iter().any(|(of, _)| *of == url);
            Source::Url(url, used)
        });
        let learnt = learnt.points.iter().map(|point| {
            let of = |list: &LearntList| list.url == point.url && list.issuer == point.issuer;
            Source::Learnt(point.clone(), files.learnt.iter().any(of))
        });
        let read = read.map(|(path, octets)| Source::File(path, octets));
        Self {
            generation,
            all: authority.chain(read).chain(urls).chain(learnt).collect(),
            interval: tls.crl_interval.0,
            authorities: files.ca.as_deref().map(certificates).unwrap_or_default(),
            state_dir,
        }
    }

    /// Looks whether there is a new list; whether there is.
    fn attempt(&self, source: &Source, now: WallTime) -> Result<bool, String> {
        match source {
            Source::Authority(folder) => renew(folder, now),
            Source::File(path, before) => {
                let named = |error: String| format!("{}: {error}", path.display());
                let octets = fs::read(path).map_err(|e| named(e.to_string()))?;
                if octets == *before {
                    return Ok(false);
                }
                fault(&octets).map_or(Ok(true), |error| Err(named(error)))
            }
            Source::Url(url, _) => fetch(&self.state_dir, &self.authorities, url, now),
            Source::Learnt(point, _) => fetch_learnt(&self.state_dir, point, now),
        }
    }
}

/// The attempts to get a list from somewhere.
#[derive(Default)]
struct Attempts {
    /// When the next one is due.
    due: Option<WallTime>,
    /// How many have failed since the last that did not.
    failed: u32,
    said: Complaint,
}

impl Attempts {
    fn is_due(&self, interval: Duration, now: WallTime) -> bool {
        // A clock that was set back must not keep it waiting.
        self.due.is_none_or(|due| now >= due || due > now + interval)
    }
    fn count(&mut self, done: bool, interval: Duration, now: WallTime) {
        self.failed = if done { 0 } else { self.failed.saturating_add(1) };
        let retry = Duration::from_secs(RETRY.as_secs() << self.failed.saturating_sub(1).min(8));
        self.due = Some(now + if done { interval } else { retry.min(LONGEST_RETRY).min(interval) });
    }
}

/// What was last complained of, and when.
#[derive(Default)]
struct Complaint(Option<(String, WallTime)>);

impl Complaint {
    /// Whether something is to be told: it is another than before, or that was a while ago.
    fn is_news(&mut self, error: &str, now: WallTime) -> bool {
        let news = self.0.as_ref().is_none_or(|(before, at)| before != error || now >= *at + AGAIN);
        if news {
            self.0 = Some((error.to_owned(), now));
        }
        news
    }
}

/// What is remembered between two looks.
#[derive(Default)]
struct Watch {
    sources: Option<Arc<Sources>>,
    /// By what tells the source from others.
    attempts: BTreeMap<(String, Vec<u8>), Attempts>,
    learnt: Learnt,
    /// URLs for which there was no room, and when that was last told.
    crowded: Complaint,
    /// What was told of a list, by where it is from and when it was made, and when.
    told: BTreeMap<(String, WallTime), (Stage, WallTime)>,
    /// Something is new, and when it is tried to be taken up.
    new: Option<WallTime>,
    taking: Complaint,
}

/// Begins to look after lists, for as long as the server runs. `chains` are those that users show, own certificate first, as
/// they were verified.
pub(crate) fn begin(running: &Arc<Running>, chains: Receiver<Vec<Vec<u8>>>) {
    let running = running.clone();
    let watch = move || {
        let mut watch = Watch::default();
        loop {
            watch.look(&running, crate::tls::wall());
            let chains: Vec<_> = chains.try_iter().take(CHAINS).collect();
            watch.learn(&running, &chains, crate::tls::wall());
            std::thread::sleep(TICK);
        }
    };
    // Without this thread lists are those of the last reload.
    if let Err(error) = std::thread::Builder::new().name("usher-lists".to_owned()).spawn(watch) {
        tracing::error!(%error, "revocation lists are not looked after");
    }
}

impl Watch {
    fn look(&mut self, running: &Running, now: WallTime) {
        let sources = self.follow(running);
        for (name, result) in self.attempt(&sources, now) {
            let mut counts = running.lists.lock().unwrap_or_else(PoisonError::into_inner);
            *counts.entry((name, result)).or_default() += 1;
        }
        if self.new.is_some_and(|at| at <= now) {
            match running.take_lists() {
                Ok(()) => {
                    self.new = None;
                    self.taking = Complaint::default();
                }
                Err(error) => {
                    if self.taking.is_news(&error, now) {
                        tracing::error!(error, "the new revocation lists are not taken up; tried again");
                    }
                    self.new = Some(now + RETRY);
                }
            }
        }
        self.tell(running, now);
    }

    /// Learns where the certificates of users say that lists are.
    fn learn(&mut self, running: &Running, chains: &[Vec<Vec<u8>>], now: WallTime) {
        if chains.is_empty() {
            return;
        }
        let tls = running.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(clients) = tls.as_ref().and_then(|tls| tls.clients.as_ref()) else { return };
        let place = running.read_place();
        let (Some(settings), Some(files)) = (&place.loaded.file.tls, &place.loaded.tls) else { return };
        let configured = urls(settings, files);
        let roots = files.ca.as_deref().map(certificates).unwrap_or_default();
        for chain in chains {
            // The issuers are those of the path to a root, whatever else the user has shown.
            let Ok(path) = clients.client_path(chain) else { continue };
            let known = |url: &str| configured.contains(url);
            let learning = self.learnt.learn(&path, &roots, &settings.crl_from_users, known, now);
            for point in &learning.new {
                let issuer = Information::of_der(&point.issuer).map(|said| said.subject).unwrap_or_default();
                tracing::info!(
                    url = point.url,
                    issuer,
                    "a user's certificate says where its issuer's revocation list is: fetched from now on"
                );
            }
            for url in &learning.refused {
                if self.crowded.is_news(url, now) {
                    tracing::warn!(
                        url,
                        "users' certificates of one authority name too many revocation lists: this one is not fetched"
                    );
                }
            }
            if !learning.changed {
                continue;
            }
            if let Err(error) = self.learnt.write(&place.state_dir) {
                tracing::error!(%error, folder = %place.state_dir.display(), "where users' revocation lists are cannot be kept");
            }
            let mut counts = running.lists.lock().unwrap_or_else(PoisonError::into_inner);
            for point in &learning.gone {
                // It may never have been there.
                let _ = fs::remove_file(point.kept(&place.state_dir));
                counts.retain(|(from, _), _| *from != point.url);
            }
            self.sources = None;
        }
    }

    /// Where the lists of the configuration of now come from.
    fn follow(&mut self, running: &Running) -> Arc<Sources> {
        // Read before the configuration: one that comes between the two is looked at again.
        let generation = running.generation.load(Ordering::Acquire);
        match &self.sources {
            Some(sources) if sources.generation == generation => sources.clone(),
            _ => {
                let place = running.place.read().unwrap_or_else(PoisonError::into_inner);
                self.learnt = match (&place.loaded.file.tls, &place.loaded.tls) {
                    (Some(tls), Some(files)) => {
                        let roots = files.ca.as_deref().map(certificates).unwrap_or_default();
                        Learnt::read(&place.state_dir, tls, &roots)
                    }
                    _ => Learnt::default(),
                };
                let sources = Arc::new(Sources::of(&place, &self.learnt, generation));
                // Without a list there is no time to wait.
                let waits = |(name, issuer): &(String, Vec<u8>)| {
                    let is = |source: &Source| source.key() == (name.clone(), &issuer[..]);
                    sources.all.iter().any(|source| is(source) && !source.is_without_list())
                };
                self.attempts.retain(|key, _| waits(key));
                self.sources.insert(sources).clone()
            }
        }
    }

    /// Does what is due; what came of each.
    fn attempt(&mut self, sources: &Sources, now: WallTime) -> Vec<(String, &'static str)> {
        let interval = sources.interval;
        let key = |source: &Source| {
            let (name, issuer) = source.key();
            (name, issuer.to_vec())
        };
        let due = |source: &&Source| {
            self.attempts.get(&key(source)).is_none_or(|attempts| attempts.is_due(interval, now))
        };
        let (mut due, learnt): (Vec<&Source>, Vec<&Source>) =
            sources.all.iter().filter(due).partition(|source| !matches!(source, Source::Learnt(..)));
        due.extend(learnt.into_iter().take(LEARNT_AT_ONCE));
        let done = all_at_once(&due, |source| sources.attempt(source, now));
        let mut results = Vec::new();
        for (source, done) in due.into_iter().zip(done) {
            let from = source.name();
            let attempts = self.attempts.entry(key(source)).or_default();
            attempts.count(done.is_ok(), interval, now);
            results.push((
                from.clone(),
                match &done {
                    Ok(true) => "new",
                    Ok(false) => "same",
                    Err(_) => "failed",
                },
            ));
            match done {
                Ok(new) => {
                    attempts.said = Complaint::default();
                    if new {
                        tracing::info!(from, "a new revocation list");
                        self.new = Some(now);
                    }
                }
                Err(error) if !attempts.said.is_news(&error, now) => {}
                Err(error) if source.is_without_list() => {
                    tracing::error!(from, error, "no revocation list yet: nobody is refused by it");
                }
                Err(error) => tracing::warn!(from, error, "no new revocation list; the last one is used"),
            }
        }
        results
    }

    /// Tells of lists that end: once at each stage, and once a day.
    fn tell(&mut self, running: &Running, now: WallTime) {
        let Some(tls) = running.tls.read().unwrap_or_else(PoisonError::into_inner).clone() else { return };
        let mut told = BTreeMap::new();
        for list in &tls.lists {
            let stage = list.stage(now);
            let key = (list.from.clone(), list.this_update);
            let before = self.told.get(&key).copied();
            let fresh = before.is_some_and(|(said, at)| said >= stage && now < at + DAY);
            if !fresh && let Some(text) = list.told(now) {
                if stage == Stage::Over {
                    tracing::error!(list = list.from, issuer = list.issuer, "{text}; {ADVICE}");
                } else {
                    tracing::warn!(list = list.from, issuer = list.issuer, "{text}; {ADVICE}");
                }
            }
            told.insert(key, before.filter(|_| fresh).unwrap_or((stage, now)));
        }
        self.told = told;
    }
}

#[cfg(test)]
mod tests;

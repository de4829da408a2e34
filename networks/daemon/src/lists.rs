//! Revocation lists over their lives: told of before they are out of date, made anew where the authority is at hand,
//! fetched where somebody publishes them. What is new is taken up while the server runs.

use crate::config::model::Tls as Settings;
use crate::config::{Loaded, TlsFiles};
use crate::daemon::Running;
use crate::place::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
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
/// How long after a failure the next attempt is made at the latest.
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
}

impl Used {
    pub(crate) fn new(from: &str, list: &RevocationList) -> Self {
        Self {
            from: from.to_owned(),
            issuer: list.issuer.clone(),
            this_update: list.this_update,
            next_update: list.next_update,
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
    for (octets, from) in named.chain(fetched) {
        for list in RevocationList::read(octets).map_err(|error| format!("{from}: {error}"))? {
            match latest.iter_mut().find(|(_, other)| other.is_about_those_of(&list)) {
                None => latest.push((from.clone(), list)),
                Some(before) if is_better(&list, &before.1, signed) => *before = (from.clone(), list),
                Some(_) => {}
            }
        }
    }
    latest.sort_by_key(|(_, list)| std::cmp::Reverse(list.this_update));
    Ok(latest.into_iter().map(|(from, list)| (Used::new(&from, &list), list.der().to_vec())).collect())
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

impl Place {
    /// Reads the lists that were fetched before.
    pub(crate) fn read_fetched(&mut self) {
        let (Some(tls), Some(files)) = (&self.loaded.file.tls, &mut self.loaded.tls) else { return };
        let all = urls(tls, files).into_iter();
        // One that is not there, or no list any more, is fetched again.
        let read = |url: String| {
            let octets = fs::read(kept(&self.state_dir, &url)).ok()?;
            RevocationList::read(&octets).is_ok().then_some((url, octets))
        };
        files.fetched = all.filter_map(read).collect();
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

    /// Fetches the lists that were never fetched, before anybody is let in.
    pub(crate) fn fetch_missing(&mut self) {
        let (Some(tls), Some(files)) = (&self.loaded.file.tls, &self.loaded.tls) else { return };
        let mut missing = urls(tls, files);
        missing.retain(|url| !files.fetched.iter().any(|(kept, _)| kept == url));
        for url in missing {
            if let Err(error) = fetch(&self.state_dir, files, &url, crate::tls::wall()) {
                tracing::error!(url, error, "no revocation list: it refuses nobody until it is fetched");
            }
        }
        self.read_fetched();
    }
}

/// What came of fetching a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fetched {
    /// It is kept in place of the one before.
    New,
    /// It is not later than the one that is kept.
    Same,
}

/// Fetches a list, and keeps it where it may be believed and is later than the one that is kept.
fn fetch(state_dir: &Path, files: &TlsFiles, url: &str, now: WallTime) -> Result<Fetched, String> {
    let list = RevocationList::fetch(url, PATIENCE, LONGEST).map_err(|e| e.to_string())?;
    let authorities = files.ca.as_deref().map(certificates).unwrap_or_default();
    if !list.is_signed_by(authorities.iter().map(Vec::as_slice)) {
        return Err(format!("no authority of ca has signed this list of {}", list.issuer));
    }
    if !list.is_of_now(now) {
        return Err(format!("this list of {} is out of date already, or not of now yet", list.issuer));
    }
    // What TLS does not understand would be refused at each handshake.
    Roots::default().with_revocation_lists([list.der()]).map_err(|e| e.to_string())?;
    let path = kept(state_dir, url);
    let before = fs::read(&path).ok().and_then(|octets| RevocationList::read(&octets).ok()?.pop());
    if before.is_some_and(|before| before.issuer == list.issuer && !list.is_later_than(&before)) {
        return Ok(Fetched::Same);
    }
    keep(&path, list.der()).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Fetched::New)
}

/// Writes a file whole or not at all.
fn keep(path: &Path, octets: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let beside = path.with_extension("new");
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(octets)?;
    file.sync_all()?;
    fs::rename(&beside, path)
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

/// What is remembered between two looks.
#[derive(Default)]
struct Watch {
    /// What was told of a list, by where it is from and when it was made, and when.
    told: BTreeMap<(String, WallTime), (Stage, WallTime)>,
    /// When a URL or an authority is next asked, and what failed last.
    due: BTreeMap<String, WallTime>,
    failed: BTreeMap<String, (String, WallTime)>,
    /// Something is new, and when it is tried to be taken up.
    new: Option<WallTime>,
}

/// Begins to look after lists, for as long as the server runs.
pub(crate) fn begin(running: &Arc<Running>) {
    let running = running.clone();
    let watch = move || {
        let mut watch = Watch::default();
        loop {
            watch.look(&running, crate::tls::wall());
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
        let (settings, files, state_dir) = {
            let place = running.place.read().unwrap_or_else(PoisonError::into_inner);
            let (Some(tls), Some(files)) = (&place.loaded.file.tls, &place.loaded.tls) else { return };
            let wanted =
                tls.crl_authority.is_some() || !tls.crl_url.is_empty() || tls.crl_distribution_points;
            (tls.clone(), wanted.then(|| files.clone()), place.state_dir.clone())
        };
        if let Some(files) = files {
            if let Some(folder) = &settings.crl_authority {
                let what = folder.display().to_string();
                self.attempt(running, &what, settings.crl_interval.0, now, || renew(folder, now));
            }
            for url in urls(&settings, &files) {
                let fetch = || fetch(&state_dir, &files, &url, now).map(|what| what == Fetched::New);
                self.attempt(running, &url, settings.crl_interval.0, now, fetch);
            }
        }
        if self.new.is_some_and(|at| at <= now) {
            let taken = running.take_lists();
            if let Err(error) = &taken {
                tracing::error!(error, "the new revocation lists are not taken up; tried again");
            }
            self.new = taken.is_err().then(|| now + Duration::from_secs(10));
        }
        self.tell(running, now);
    }

    /// Does what is due.
    fn attempt(
        &mut self,
        running: &Running,
        what: &str,
        interval: Duration,
        now: WallTime,
        act: impl FnOnce() -> Result<bool, String>,
    ) {
        // A clock that was set back must not keep it waiting.
        if self.due.get(what).is_some_and(|due| now < *due && *due <= now + interval) {
            return;
        }
        self.due.insert(what.to_owned(), now + interval);
        let done = act();
        let result = match &done {
            Ok(true) => "new",
            Ok(false) => "same",
            Err(_) => "failed",
        };
        *running
            .lists
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry((what.to_owned(), result))
            .or_default() += 1;
        match done {
            Ok(true) => {
                tracing::info!(from = what, "a new revocation list");
                self.new = Some(now);
                self.failed.remove(what);
            }
            Ok(false) => drop(self.failed.remove(what)),
            Err(error) => {
                let said = self.failed.get(what);
                if said.is_none_or(|(before, at)| *before != error || now >= *at + AGAIN) {
                    tracing::warn!(from = what, error, "no new revocation list; the last one is used");
                    self.failed.insert(what.to_owned(), (error, now));
                }
            }
        }
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

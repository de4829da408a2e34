//! Revocation lists: warns before they expire, reissues those of a local authority, fetches published ones, and
//! applies new lists while the server runs.

use crate::fetched::distribution_points::{DistributionPoint, LearnedDistributionPoints};
use crate::fetched::{fetch_learnt_revocation_list, fetch_list, run_in_parallel};
use crate::installation::ServerInstallation;
use crate::running::RunningServer;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError};
use std::time::Duration as Wait;
use usher_aaa_config::lists::{
    CrlExpiryStage, effective_revocation_lists, find_revocation_list_fault, list_urls, parse_certificates,
    seconds_between,
};
use usher_aaa_config::{DistributionPointCrl, LoadedAaaConfig};
use usher_core::{Duration, WallTime};
use usher_crypto::x509::{CertificateInfo, RevocationList};
use usher_pki::{CertificateAuthority, PkiError};
use usher_service::setup::wall_time;

const DAY: Duration = Duration::from_secs(86_400);
/// Interval of checks.
const TICK: Wait = Wait::from_secs(1);
/// Maximum number of parallel fetches of lists that users' certificates name.
const LEARNT_AT_ONCE: usize = 4;
/// Maximum number of queued certificate chains. Further chains are examined at the user's next login.
pub(crate) const CHAINS: usize = 64;
/// Delay after the first failure, and after many. Never longer than the regular interval.
const RETRY: Duration = Duration::from_secs(10);
const LONGEST_RETRY: Duration = Duration::from_secs(300);
/// Interval of log messages about the same failure.
const REPORT_INTERVAL: Duration = Duration::from_secs(3600);

/// Advice about a list that expires.
const ADVICE: &str =
    "issue a new one (usher aaa cert crl), or let the server do it: crl_authority or crl_url in [tls]";

/// Returns warnings about a configuration's lists that have expired or will soon.
#[must_use]
pub fn revocation_list_warnings(loaded: &LoadedAaaConfig) -> Vec<String> {
    let (Some(tls), Some(files)) = (&loaded.file.tls, &loaded.tls) else { return Vec::new() };
    let now = wall_time();
    let used = effective_revocation_lists(tls, files).unwrap_or_default();
    used.iter()
        .filter_map(|(used, _)| Some(format!("{}; {ADVICE}", used.revocation_list_expiry_warning(now)?)))
        .collect()
}

/// Reissues the list of a local authority if at most a third of its time is left. True: it was reissued.
fn renew_authority_list(folder: &Path, now: WallTime) -> Result<bool, String> {
    let path = folder.join("ca.crl");
    let octets = fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let list = RevocationList::parse_revocation_lists(&octets)
        .map_err(|e| format!("{}: {e}", path.display()))?
        .pop();
    let due = list.is_none_or(|list| {
        list.next_update
            .is_some_and(|end| seconds_between(now, end) <= seconds_between(list.this_update, end) / 3)
    });
    if due {
        let published =
            CertificateAuthority::open(folder).and_then(|mut authority| authority.publish_list(now));
        published.map_err(|error| match error {
            PkiError::File { .. } => {
                format!("{error}; if the authority belongs to another user, enable usher-aaa-crl.timer")
            }
            error => error.to_string(),
        })?;
    }
    Ok(due)
}

/// The source of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
enum RevocationListSource {
    /// Directory of a local authority.
    Authority(PathBuf),
    /// A file, and its contents.
    File(PathBuf, Vec<u8>),
    /// A URL, and whether its list is in use.
    Url(String, bool),
    /// A distribution point of users' certificates, and whether its list is in use.
    Learnt(DistributionPoint, bool),
}

impl RevocationListSource {
    /// Returns its name for people.
    fn name(&self) -> String {
        match self {
            Self::Authority(path) | Self::File(path, _) => path.display().to_string(),
            Self::Url(url, _) => url.clone(),
            Self::Learnt(point, _) => point.url.clone(),
        }
    }
    /// Returns its identification.
    fn list_source_key(&self) -> (String, &[u8]) {
        match self {
            Self::Learnt(point, _) => (point.url.clone(), &point.issuer),
            other => (other.name(), &[]),
        }
    }
    /// True if its list is not in use.
    fn is_list_unused(&self) -> bool {
        matches!(self, Self::Url(_, false) | Self::Learnt(_, false))
    }
}

/// The sources of a configuration's lists.
struct RevocationListSources {
    /// Generation of the configuration.
    generation: u64,
    all: Vec<RevocationListSource>,
    interval: Duration,
    /// Authorities whose fetched lists are accepted, in DER.
    authorities: Vec<Vec<u8>>,
    state_dir: PathBuf,
}

impl RevocationListSources {
    /// Returns the sources; none without TLS.
    fn from_installation(
        place: &ServerInstallation,
        learnt: &LearnedDistributionPoints,
        generation: u64,
    ) -> Self {
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
        let authority = tls.crl_authority.iter().cloned().map(RevocationListSource::Authority);
        let read = tls.crl.iter().cloned().zip(files.crls.iter().cloned());
        let urls = list_urls(tls, files).into_iter().map(|url| {
            let used = files.fetched.iter().any(|(of, _)| *of == url);
            RevocationListSource::Url(url, used)
        });
        let learnt = learnt.points.iter().map(|point| {
            let of = |list: &DistributionPointCrl| list.url == point.url && list.issuer == point.issuer;
            RevocationListSource::Learnt(point.clone(), files.learnt.iter().any(of))
        });
        let read = read.map(|(path, octets)| RevocationListSource::File(path, octets));
        Self {
            generation,
            all: authority.chain(read).chain(urls).chain(learnt).collect(),
            interval: tls.crl_interval.0,
            authorities: files.ca.as_deref().map(parse_certificates).unwrap_or_default(),
            state_dir,
        }
    }

    /// Checks a source. True: there is a new list.
    fn check_list_source(&self, source: &RevocationListSource, now: WallTime) -> Result<bool, String> {
        match source {
            RevocationListSource::Authority(folder) => renew_authority_list(folder, now),
            RevocationListSource::File(path, before) => {
                let named = |error: String| format!("{}: {error}", path.display());
                let octets = fs::read(path).map_err(|e| named(e.to_string()))?;
                if octets == *before {
                    return Ok(false);
                }
                find_revocation_list_fault(&octets).map_or(Ok(true), |error| Err(named(error)))
            }
            RevocationListSource::Url(url, _) => fetch_list(&self.state_dir, &self.authorities, url, now),
            RevocationListSource::Learnt(point, _) => {
                fetch_learnt_revocation_list(&self.state_dir, point, now)
            }
        }
    }
}

/// The attempts to update a source.
#[derive(Default)]
struct RevocationUpdateAttempts {
    /// Time of the next attempt.
    due: Option<WallTime>,
    /// Number of consecutive failures.
    failed: u32,
    last_error: RepeatedErrorFilter,
}

impl RevocationUpdateAttempts {
    fn is_due(&self, interval: Duration, now: WallTime) -> bool {
        // The second condition holds if the clock was set back, which must not delay the fetch.
        self.due.is_none_or(|due| now >= due || due > now + interval)
    }
    fn record_attempt(&mut self, done: bool, interval: Duration, now: WallTime) {
        self.failed = if done { 0 } else { self.failed.saturating_add(1) };
        let retry = Duration::from_secs(RETRY.as_secs() << self.failed.saturating_sub(1).min(8));
        self.due = Some(now + if done { interval } else { retry.min(LONGEST_RETRY).min(interval) });
    }
}

/// The last reported error, and its time.
#[derive(Default)]
struct RepeatedErrorFilter(Option<(String, WallTime)>);

impl RepeatedErrorFilter {
    /// True if the error must be reported: it differs from the last one, or that was a while ago.
    fn is_news(&mut self, error: &str, now: WallTime) -> bool {
        let news = self.0.as_ref().is_none_or(|(before, at)| before != error || now >= *at + REPORT_INTERVAL);
        if news {
            self.0 = Some((error.to_owned(), now));
        }
        news
    }
}

/// State of the thread that watches lists.
#[derive(Default)]
struct RevocationListWatcher {
    sources: Option<Arc<RevocationListSources>>,
    /// Attempts by source.
    attempts: BTreeMap<(String, Vec<u8>), RevocationUpdateAttempts>,
    learnt: LearnedDistributionPoints,
    /// URLs without room, and the time of their report.
    crowded: RepeatedErrorFilter,
    /// Reported stages of expiry by source and issue time, with the time of the report.
    reported_expiries: BTreeMap<(String, WallTime), (CrlExpiryStage, WallTime)>,
    /// Time to apply a new list, if there is one.
    new: Option<WallTime>,
    reload_error: RepeatedErrorFilter,
}

/// Starts the thread. It runs as long as the server. `chains` are verified chains of users, own certificate first.
pub(crate) fn start_list_watcher(running: &Arc<RunningServer>, chains: Receiver<Vec<Vec<u8>>>) {
    let running = running.clone();
    let watch = move || {
        let mut watch = RevocationListWatcher::default();
        loop {
            watch.check_revocation_lists(&running, wall_time());
            let chains: Vec<_> = chains.try_iter().take(CHAINS).collect();
            watch.learn_points_from_chains(&running, &chains, wall_time());
            std::thread::sleep(TICK);
        }
    };
    // If this thread cannot start, lists change only at a reload.
    if let Err(error) = std::thread::Builder::new().name("usher-lists".to_owned()).spawn(watch) {
        tracing::error!(%error, "cannot watch the revocation lists: they change at a reload only");
    }
}

impl RevocationListWatcher {
    fn check_revocation_lists(&mut self, running: &RunningServer, now: WallTime) {
        let sources = self.current_sources(running);
        for (name, result) in self.check_due_list_sources(&sources, now) {
            let mut counts = running.lists.lock().unwrap_or_else(PoisonError::into_inner);
            *counts.entry((name, result)).or_default() += 1;
        }
        if self.new.is_some_and(|at| at <= now) {
            match running.apply_revocation_lists() {
                Ok(()) => {
                    self.new = None;
                    self.reload_error = RepeatedErrorFilter::default();
                }
                Err(error) => {
                    if self.reload_error.is_news(&error, now) {
                        tracing::error!(
                            error,
                            "cannot apply the new revocation lists; the server tries again"
                        );
                    }
                    self.new = Some(now + RETRY);
                }
            }
        }
        self.warn_of_list_expiry(running, now);
    }

    /// Learns distribution points from users' certificates.
    fn learn_points_from_chains(&mut self, running: &RunningServer, chains: &[Vec<Vec<u8>>], now: WallTime) {
        if chains.is_empty() {
            return;
        }
        let tls = running.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(clients) = tls.as_ref().and_then(|tls| tls.clients.as_ref()) else { return };
        let place = running.current_installation();
        let (Some(settings), Some(files)) = (&place.loaded.file.tls, &place.loaded.tls) else { return };
        let configured = list_urls(settings, files);
        let roots = files.ca.as_deref().map(parse_certificates).unwrap_or_default();
        for chain in chains {
            // Issuers come from the verified path, because the user may have sent unrelated certificates too.
            let Ok(path) = clients.verified_client_path(chain) else { continue };
            let known = |url: &str| configured.contains(url);
            let learning =
                self.learnt.learn_distribution_points(&path, &roots, &settings.crl_from_users, known, now);
            for point in &learning.new {
                let issuer =
                    CertificateInfo::of_der(&point.issuer).map(|said| said.subject).unwrap_or_default();
                tracing::info!(
                    url = point.url,
                    issuer,
                    "a user's certificate names a revocation list of its issuer: the server fetches it from now on"
                );
            }
            for url in &learning.refused {
                if self.crowded.is_news(url, now) {
                    tracing::warn!(
                        url,
                        "this revocation list is not fetched: users' certificates of one authority name too many lists"
                    );
                }
            }
            if !learning.changed {
                continue;
            }
            if let Err(error) = self.learnt.save_to(&place.state_dir) {
                tracing::error!(%error, folder = %place.state_dir.display(),
                    "cannot save the URLs of revocation lists that users' certificates name");
            }
            let mut counts = running.lists.lock().unwrap_or_else(PoisonError::into_inner);
            for point in &learning.removed {
                // An error is ignored: the file may not exist.
                let _ = fs::remove_file(point.point_list_path(&place.state_dir));
                counts.retain(|(from, _), _| *from != point.url);
            }
            self.sources = None;
        }
    }

    /// Returns the sources of the current configuration.
    fn current_sources(&mut self, running: &RunningServer) -> Arc<RevocationListSources> {
        // Read the generation before the configuration, so that a reload between the two is noticed at the next check.
        let generation = running.generation.load(Ordering::Acquire);
        match &self.sources {
            Some(sources) if sources.generation == generation => sources.clone(),
            _ => {
                let place = running.installation.read().unwrap_or_else(PoisonError::into_inner);
                self.learnt = match (&place.loaded.file.tls, &place.loaded.tls) {
                    (Some(tls), Some(files)) => {
                        let roots = files.ca.as_deref().map(parse_certificates).unwrap_or_default();
                        LearnedDistributionPoints::load_from(&place.state_dir, tls, &roots)
                    }
                    _ => LearnedDistributionPoints::default(),
                };
                let sources =
                    Arc::new(RevocationListSources::from_installation(&place, &self.learnt, generation));
                // A source that has no list yet is tried at once.
                let waits = |(name, issuer): &(String, Vec<u8>)| {
                    let is = |source: &RevocationListSource| {
                        source.list_source_key() == (name.clone(), &issuer[..])
                    };
                    sources.all.iter().any(|source| is(source) && !source.is_list_unused())
                };
                self.attempts.retain(|key, _| waits(key));
                self.sources.insert(sources).clone()
            }
        }
    }

    /// Tries the sources that are due, and returns the results.
    fn check_due_list_sources(
        &mut self,
        sources: &RevocationListSources,
        now: WallTime,
    ) -> Vec<(String, &'static str)> {
        let interval = sources.interval;
        let key = |source: &RevocationListSource| {
            let (name, issuer) = source.list_source_key();
            (name, issuer.to_vec())
        };
        let due = |source: &&RevocationListSource| {
            self.attempts.get(&key(source)).is_none_or(|attempts| attempts.is_due(interval, now))
        };
        let (mut due, learnt): (Vec<&RevocationListSource>, Vec<&RevocationListSource>) = sources
            .all
            .iter()
            .filter(due)
            .partition(|source| !matches!(source, RevocationListSource::Learnt(..)));
        due.extend(learnt.into_iter().take(LEARNT_AT_ONCE));
        let done = run_in_parallel(&due, |source| sources.check_list_source(source, now));
        let mut results = Vec::new();
        for (source, done) in due.into_iter().zip(done) {
            let from = source.name();
            let attempts = self.attempts.entry(key(source)).or_default();
            attempts.record_attempt(done.is_ok(), interval, now);
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
                    attempts.last_error = RepeatedErrorFilter::default();
                    if new {
                        tracing::info!(from, "a new revocation list");
                        self.new = Some(now);
                    }
                }
                Err(error) if !attempts.last_error.is_news(&error, now) => {}
                Err(error) if source.is_list_unused() => {
                    tracing::error!(
                        from,
                        error,
                        "no revocation list yet: certificates are not checked against it"
                    );
                }
                Err(error) => {
                    tracing::warn!(from, error, "no new revocation list; the last one stays in use")
                }
            }
        }
        results
    }

    /// Logs lists that expire: once at each stage, and once a day.
    fn warn_of_list_expiry(&mut self, running: &RunningServer, now: WallTime) {
        let Some(tls) = running.tls.read().unwrap_or_else(PoisonError::into_inner).clone() else { return };
        let mut told = BTreeMap::new();
        for list in &tls.lists {
            let stage = list.revocation_list_expiry_stage(now);
            let key = (list.from.clone(), list.this_update);
            let before = self.reported_expiries.get(&key).copied();
            let fresh = before.is_some_and(|(said, at)| said >= stage && now < at + DAY);
            if !fresh && let Some(text) = list.revocation_list_expiry_warning(now) {
                if stage == CrlExpiryStage::Expired {
                    tracing::error!(list = list.from, issuer = list.issuer, "{text}; {ADVICE}");
                } else {
                    tracing::warn!(list = list.from, issuer = list.issuer, "{text}; {ADVICE}");
                }
            }
            told.insert(key, before.filter(|_| fresh).unwrap_or((stage, now)));
        }
        self.reported_expiries = told;
    }
}

#[cfg(test)]
mod tests;

//! Fetched revocation lists in the state directory.

pub(crate) mod learnt;

use learnt::{DistributionPoint, LearnedPoints};

use crate::clock::wall_time;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration as Wait;
use usher_aaa_config::lists::{list_urls, parse_certificates};
use usher_aaa_config::{LearntList, LoadedConfig};
use usher_core::WallTime;
use usher_crypto::x509::RevocationList;
pub(crate) use usher_pki::stored_list_path as kept;
use usher_pki::{ListPublisher, renew_list};

/// Timeout and size limit of a fetched list.
pub(crate) const FETCH_TIMEOUT: Wait = Wait::from_secs(10);
pub(crate) const LONGEST: u64 = 32 << 20;
/// Maximum octets of a list that users' certificates name, and of all such lists.
const LONGEST_LEARNT: u64 = 8 << 20;
const ALL_LEARNT: usize = 64 << 20;

/// Calls a function for all items in parallel, and returns the results in order.
pub(crate) fn all_at_once<T: Sync, R: Send>(
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

/// Reads the lists in the state directory.
pub(crate) fn read_fetched_lists(loaded: &mut LoadedConfig, state_dir: &Path) {
    let (Some(tls), Some(files)) = (&loaded.file.tls, &mut loaded.tls) else { return };
    let authorities = files.ca.as_deref().map(parse_certificates).unwrap_or_default();
    let all = list_urls(tls, files).into_iter();
    // A missing or invalid list is fetched again. So is a list of a former authority, which would reject every
    // certificate of the present one.
    let read = |url: String| {
        let octets = fs::read(kept(state_dir, &url)).ok()?;
        let lists = RevocationList::read_lists(&octets).ok()?;
        let signed = lists.iter().all(|list| list.is_signed_by(authorities.iter().map(Vec::as_slice)));
        if !signed {
            tracing::warn!(url, "no authority of ca has signed the revocation list that is kept: not used");
        }
        signed.then_some((url, octets))
    };
    files.fetched = all.filter_map(read).collect();
    let mut left = ALL_LEARNT;
    let read = |point: DistributionPoint| {
        let octets = fs::read(point.list_path(state_dir)).ok()?;
        let lists = RevocationList::read_lists(&octets).ok()?;
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
    let points = LearnedPoints::load_from(state_dir, tls, &authorities).points;
    files.learnt = points.into_iter().filter_map(read).collect();
}

/// Reads the files of revocation lists again, but no other part of the configuration.
pub(crate) fn reload_list_files(loaded: &mut LoadedConfig, state_dir: &Path) -> Result<(), String> {
    if let (Some(tls), Some(files)) = (&loaded.file.tls, &mut loaded.tls) {
        let octets = |path: &PathBuf| fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
        files.crls = tls.crl.iter().map(octets).collect::<Result<_, _>>()?;
    }
    read_fetched_lists(loaded, state_dir);
    Ok(())
}

/// Fetches missing lists in parallel before the first login.
pub(crate) fn fetch_missing(loaded: &mut LoadedConfig, state_dir: &Path) {
    let (Some(tls), Some(files)) = (&loaded.file.tls, &loaded.tls) else { return };
    let mut missing = list_urls(tls, files);
    missing.retain(|url| !files.fetched.iter().any(|(kept, _)| kept == url));
    let missing: Vec<String> = missing.into_iter().collect();
    let authorities = files.ca.as_deref().map(parse_certificates).unwrap_or_default();
    let now = wall_time();
    let done = all_at_once(&missing, |url| fetch_list(state_dir, &authorities, url, now));
    for (url, done) in missing.iter().zip(done) {
        if let Err(error) = done {
            tracing::error!(url, error, "no revocation list yet: nobody is refused by it");
        }
    }
    read_fetched_lists(loaded, state_dir);
}

/// Fetches a list. Keeps it if one of these authorities signed it and it is newer than the present one. True: it
/// was kept.
pub(crate) fn fetch_list(
    state_dir: &Path,
    authorities: &[Vec<u8>],
    url: &str,
    now: WallTime,
) -> Result<bool, String> {
    let signed = |list: &RevocationList| list.is_signed_by(authorities.iter().map(Vec::as_slice));
    let wrong = "no authority of ca has signed";
    let publisher = ListPublisher { url, timeout: FETCH_TIMEOUT, longest: LONGEST };
    renew_list(&kept(state_dir, url), &publisher, (&signed, wrong), now)
}

/// Fetches a list that users' certificates name, like [`fetch_list`]. Their issuer must have signed it.
pub(crate) fn fetch_learnt(
    state_dir: &Path,
    point: &DistributionPoint,
    now: WallTime,
) -> Result<bool, String> {
    let signed = |list: &RevocationList| list.is_signed_by([&point.issuer[..]]);
    let wrong = "the issuer of the certificates that name it has not signed";
    let publisher = ListPublisher { url: &point.url, timeout: FETCH_TIMEOUT, longest: LONGEST_LEARNT };
    renew_list(&point.list_path(state_dir), &publisher, (&signed, wrong), now)
}

//! Fetched revocation lists in the state directory.

pub(crate) mod distribution_points;

use distribution_points::{DistributionPoint, LearnedDistributionPoints};

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration as Wait;
use usher_aaa_config::lists::{list_urls, parse_certificates};
use usher_aaa_config::{DistributionPointCrl, LoadedAaaConfig};
use usher_core::WallTime;
use usher_crypto::x509::RevocationList;
pub(crate) use usher_pki::stored_list_path as kept;
use usher_pki::{RevocationListPublisher, renew_list};
use usher_service::setup::wall_time;

/// Timeout and size limit of a fetched list.
pub(crate) const FETCH_TIMEOUT: Wait = Wait::from_secs(10);
pub(crate) const LONGEST: u64 = 32 << 20;
/// Maximum octets of a list that users' certificates name, and of all such lists.
const LONGEST_LEARNT: u64 = 8 << 20;
const ALL_LEARNT: usize = 64 << 20;

/// Calls a function for all items in parallel, and returns the results in order.
pub(crate) fn run_in_parallel<T: Sync, R: Send>(
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
            Ok(Err(_)) => Err("the thread failed".to_owned()),
            Err(error) => Err(format!("cannot start a thread: {error}")),
        });
        done.collect()
    })
}

/// Reads the lists in the state directory.
pub(crate) fn load_fetched_revocation_lists(loaded: &mut LoadedAaaConfig, state_dir: &Path) {
    let (Some(tls), Some(files)) = (&loaded.file.tls, &mut loaded.tls) else { return };
    let authorities = files.ca.as_deref().map(parse_certificates).unwrap_or_default();
    let all = list_urls(tls, files).into_iter();
    // A missing or invalid list is fetched again. So is a list of an earlier authority, because it would reject every
    // certificate of the present one.
    let read = |url: String| {
        let octets = fs::read(kept(state_dir, &url)).ok()?;
        let lists = RevocationList::parse_revocation_lists(&octets).ok()?;
        let signed = lists.iter().all(|list| list.is_signed_by(authorities.iter().map(Vec::as_slice)));
        if !signed {
            tracing::warn!(url, "the saved revocation list is not used: no authority of ca has signed it");
        }
        signed.then_some((url, octets))
    };
    files.fetched = all.filter_map(read).collect();
    let mut left = ALL_LEARNT;
    let read = |point: DistributionPoint| {
        let octets = fs::read(point.point_list_path(state_dir)).ok()?;
        let lists = RevocationList::parse_revocation_lists(&octets).ok()?;
        if !lists.iter().all(|list| list.is_signed_by([&point.issuer[..]])) {
            return None;
        }
        let Some(rest) = left.checked_sub(octets.len()) else {
            tracing::error!(
                url = point.url,
                "this revocation list is not used: the lists that users' certificates name are too large together"
            );
            return None;
        };
        left = rest;
        Some(DistributionPointCrl { url: point.url, issuer: point.issuer, octets })
    };
    let points = LearnedDistributionPoints::load_from(state_dir, tls, &authorities).points;
    files.learnt = points.into_iter().filter_map(read).collect();
}

/// Reads the files of revocation lists again, but no other part of the configuration.
pub(crate) fn reload_revocation_list_files(
    loaded: &mut LoadedAaaConfig,
    state_dir: &Path,
) -> Result<(), String> {
    if let (Some(tls), Some(files)) = (&loaded.file.tls, &mut loaded.tls) {
        let octets =
            |path: &PathBuf| fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()));
        files.crls = tls.crl.iter().map(octets).collect::<Result<_, _>>()?;
    }
    load_fetched_revocation_lists(loaded, state_dir);
    Ok(())
}

/// Fetches missing lists in parallel before the first login.
pub(crate) fn fetch_missing_revocation_lists(loaded: &mut LoadedAaaConfig, state_dir: &Path) {
    let (Some(tls), Some(files)) = (&loaded.file.tls, &loaded.tls) else { return };
    let mut missing = list_urls(tls, files);
    missing.retain(|url| !files.fetched.iter().any(|(kept, _)| kept == url));
    let missing: Vec<String> = missing.into_iter().collect();
    let authorities = files.ca.as_deref().map(parse_certificates).unwrap_or_default();
    let now = wall_time();
    let done = run_in_parallel(&missing, |url| fetch_list(state_dir, &authorities, url, now));
    for (url, done) in missing.iter().zip(done) {
        if let Err(error) = done {
            tracing::error!(url, error, "no revocation list yet: certificates are not checked against it");
        }
    }
    load_fetched_revocation_lists(loaded, state_dir);
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
    let publisher = RevocationListPublisher { url, timeout: FETCH_TIMEOUT, longest: LONGEST };
    renew_list(&kept(state_dir, url), &publisher, (&signed, wrong), now)
}

/// Fetches a list that users' certificates name, like [`fetch_list`]. Their issuer must have signed it.
pub(crate) fn fetch_learnt_revocation_list(
    state_dir: &Path,
    point: &DistributionPoint,
    now: WallTime,
) -> Result<bool, String> {
    let signed = |list: &RevocationList| list.is_signed_by([&point.issuer[..]]);
    let wrong = "the certificates' issuer has not signed";
    let publisher =
        RevocationListPublisher { url: &point.url, timeout: FETCH_TIMEOUT, longest: LONGEST_LEARNT };
    renew_list(&point.point_list_path(state_dir), &publisher, (&signed, wrong), now)
}

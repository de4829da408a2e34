//! Revocation lists that peer certificates name. Each is fetched when a peer presents such a certificate, and stays
//! in a bounded cache in memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use usher_core::WallTime;
use usher_crypto::tls::TrustRoots;
use usher_crypto::x509::RevocationList;
use usher_pki::fetch_list;

/// The limit of cached lists. Only trusted authorities name lists, so there are few.
const MOST: usize = 16;
/// The distribution points that are tried per certificate.
const MAX_POINTS_PER_CERTIFICATE: usize = 2;
/// The delay after a failure before the next attempt.
const RETRY: Duration = Duration::from_secs(30);

/// The cache entry of a distribution point.
#[derive(Debug)]
struct DistributionPoint {
    list: Option<RevocationList>,
    /// The error of the last attempt.
    failed: Option<String>,
    retry_at: Instant,
}

/// The lists by distribution point.
#[derive(Debug, Default)]
pub(super) struct RevocationListCache(BTreeMap<String, DistributionPoint>);

impl RevocationListCache {
    /// Returns the lists that are valid at `now`.
    pub(super) fn valid_learned_lists(&self, now: WallTime) -> Vec<RevocationList> {
        let lists = self.0.values().filter_map(|looked| looked.list.as_ref());
        lists.filter(|list| list.is_list_current(now)).cloned().collect()
    }
    /// Removes expired lists. True if there were any.
    pub(super) fn has_ended(&mut self, now: WallTime) -> bool {
        let before = self.0.values().filter(|looked| looked.list.is_some()).count();
        for looked in self.0.values_mut() {
            looked.list = looked.list.take().filter(|list| list.is_list_current(now));
        }
        before > self.0.values().filter(|looked| looked.list.is_some()).count()
    }
    /// Returns the cached result of a distribution point, unless a new attempt is due.
    fn cached_list_result(&self, url: &str, now: WallTime) -> Option<Result<bool, String>> {
        let looked = self.0.get(url).filter(|looked| Instant::now() < looked.retry_at)?;
        match (&looked.list, &looked.failed) {
            (Some(list), _) if list.is_list_current(now) => Some(Ok(false)),
            (_, Some(why)) => Some(Err(why.clone())),
            _ => None,
        }
    }
    /// Stores the result for a distribution point. Returns whether the list is new, or why it cannot be used.
    fn cache_list_result(
        &mut self,
        url: &str,
        fetched: Result<RevocationList, String>,
        every: Duration,
    ) -> Result<bool, String> {
        if self.0.len() >= MOST && !self.0.contains_key(url) {
            // The table is full: evict the entry whose next attempt is due first.
            let first = self.0.iter().min_by_key(|(_, looked)| looked.retry_at).map(|(url, _)| url.clone());
            first.map(|url| self.0.remove(&url));
        }
        let before = self.0.remove(url).and_then(|looked| looked.list);
        let wait = if fetched.is_ok() { every } else { RETRY.min(every) };
        let (list, failed, said) = match fetched {
            // Ignore a list older than the stored one, because an attacker on the path may replay it.
            Ok(list) if before.as_ref().is_some_and(|before| before.supersedes_list(&list)) => {
                (before, None, Ok(false))
            }
            Ok(list) => {
                let other = before.as_ref() != Some(&list);
                (Some(list), None, Ok(other))
            }
            // The fetch failed, but the earlier list is still valid, so keep it.
            Err(why) if before.is_some() => (before, Some(why), Ok(false)),
            Err(why) => (None, Some(why.clone()), Err(why)),
        };
        self.0.insert(url.to_owned(), DistributionPoint { list, failed, retry_at: Instant::now() + wait });
        said
    }
}

/// Returns true if a list has a valid signature of its issuer.
type RevocationSignatureCheck<'a> = &'a dyn Fn(&RevocationList) -> bool;

/// Fetches a list from one of these distribution points, unless it is cached. Returns true if a list is new. Blocks
/// during the fetch.
///
/// # Errors
/// No distribution point has a list.
pub(super) fn fetch_named_revocation_list(
    learned: &Mutex<RevocationListCache>,
    (named, (patience, longest)): (&[String], (Duration, u64)),
    (signed, every): (RevocationSignatureCheck<'_>, Duration),
    now: WallTime,
) -> Result<bool, String> {
    let lock = || learned.lock().unwrap_or_else(PoisonError::into_inner);
    let mut last = Err("the certificate names no distribution point".to_owned());
    for url in named.iter().take(MAX_POINTS_PER_CERTIFICATE) {
        let known = lock().cached_list_result(url, now);
        last = match known {
            Some(known) => known,
            None => {
                let fetched = fetch_list(url, patience, longest).map_err(|error| error.to_string());
                let believed = fetched.and_then(|list| validate_list(list, signed, now));
                lock().cache_list_result(url, believed, every)
            }
        };
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Parses a list and checks that it may be used.
fn validate_list(
    list: RevocationList,
    signed: RevocationSignatureCheck<'_>,
    now: WallTime,
) -> Result<RevocationList, String> {
    if !signed(&list) {
        return Err(format!(
            "the certificate's issuer has not signed the revocation list of {}",
            list.issuer
        ));
    }
    if !list.is_list_current(now) {
        return Err(format!("the revocation list of {} has expired or is not valid yet", list.issuer));
    }
    // A list that the TLS library cannot parse would reject every certificate.
    TrustRoots::default().with_revocation_lists([list.der()]).map_err(|error| error.to_string())?;
    Ok(list)
}

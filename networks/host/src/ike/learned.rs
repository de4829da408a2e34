//! Revocation lists that the other sides' certificates name: fetched when somebody shows such a certificate, bounded, and kept in memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use usher_core::WallTime;
use usher_crypto::tls::TrustRoots;
use usher_crypto::x509::RevocationList;
use usher_pki::fetch_list;

/// Lists at a time: authorities that are trusted have named them, so that there are few.
const MOST: usize = 16;
/// Places of one certificate that are tried.
const MAX_POINTS_PER_CERTIFICATE: usize = 2;
/// After a failure the next attempt is made so much later.
const RETRY: Duration = Duration::from_secs(30);

/// A place that was looked at.
#[derive(Debug)]
struct DistributionPoint {
    list: Option<RevocationList>,
    /// Why there was none when it was looked at last.
    failed: Option<String>,
    retry_at: Instant,
}

/// What is at places that certificates name.
#[derive(Debug, Default)]
pub(super) struct LearnedListCache(BTreeMap<String, DistributionPoint>);

impl LearnedListCache {
    /// The lists that are of now.
    pub(super) fn current_lists(&self, now: WallTime) -> Vec<RevocationList> {
        let lists = self.0.values().filter_map(|looked| looked.list.as_ref());
        lists.filter(|list| list.is_of_now(now)).cloned().collect()
    }
    /// Drops lists that are of now no more; whether there were any.
    pub(super) fn has_ended(&mut self, now: WallTime) -> bool {
        let before = self.0.values().filter(|looked| looked.list.is_some()).count();
        for looked in self.0.values_mut() {
            looked.list = looked.list.take().filter(|list| list.is_of_now(now));
        }
        before > self.0.values().filter(|looked| looked.list.is_some()).count()
    }
    /// What is known of a place and need not be looked at now.
    fn cached_result(&self, url: &str, now: WallTime) -> Option<Result<bool, String>> {
        let looked = self.0.get(url).filter(|looked| Instant::now() < looked.retry_at)?;
        match (&looked.list, &looked.failed) {
            (Some(list), _) if list.is_of_now(now) => Some(Ok(false)),
            (_, Some(why)) => Some(Err(why.clone())),
            _ => None,
        }
    }
    /// Notes what is at a place; whether that is another list than before, or what keeps it from being used.
    fn store_result(
        &mut self,
        url: &str,
        fetched: Result<RevocationList, String>,
        every: Duration,
    ) -> Result<bool, String> {
        if self.0.len() >= MOST && !self.0.contains_key(url) {
            // The one that is to be looked at first goes.
            let first = self.0.iter().min_by_key(|(_, looked)| looked.retry_at).map(|(url, _)| url.clone());
            first.map(|url| self.0.remove(&url));
        }
        let before = self.0.remove(url).and_then(|looked| looked.list);
        let wait = if fetched.is_ok() { every } else { RETRY.min(every) };
        let (list, failed, said) = match fetched {
            // Somebody between may show one of before.
            Ok(list) if before.as_ref().is_some_and(|before| before.is_later_than(&list)) => {
                (before, None, Ok(false))
            }
            Ok(list) => {
                let other = before.as_ref() != Some(&list);
                (Some(list), None, Ok(other))
            }
            // The one of before still holds.
            Err(why) if before.is_some() => (before, Some(why), Ok(false)),
            Err(why) => (None, Some(why.clone()), Err(why)),
        };
        self.0.insert(url.to_owned(), DistributionPoint { list, failed, retry_at: Instant::now() + wait });
        said
    }
}

/// Whether a list is of whom it must be.
type SignatureCheck<'a> = &'a dyn Fn(&RevocationList) -> bool;

/// Has a list of one of these places, where it is not there; whether there is another than before. Blocks while it is fetched.
///
/// # Errors
/// There is none.
pub(super) fn fetch_lists(
    learned: &Mutex<LearnedListCache>,
    (named, (patience, longest)): (&[String], (Duration, u64)),
    (signed, every): (SignatureCheck<'_>, Duration),
    now: WallTime,
) -> Result<bool, String> {
    let lock = || learned.lock().unwrap_or_else(PoisonError::into_inner);
    let mut last = Err("the certificate names no place of it".to_owned());
    for url in named.iter().take(MAX_POINTS_PER_CERTIFICATE) {
        let known = lock().cached_result(url, now);
        last = match known {
            Some(known) => known,
            None => {
                let fetched = fetch_list(url, patience, longest).map_err(|error| error.to_string());
                let believed = fetched.and_then(|list| validate_list(list, signed, now));
                lock().store_result(url, believed, every)
            }
        };
        if last.is_ok() {
            break;
        }
    }
    last
}

/// A list, if it may be used.
fn validate_list(
    list: RevocationList,
    signed: SignatureCheck<'_>,
    now: WallTime,
) -> Result<RevocationList, String> {
    if !signed(&list) {
        return Err(format!("the certificate's issuer has not signed this list of {}", list.issuer));
    }
    if !list.is_of_now(now) {
        return Err(format!("this list of {} is out of date already, or not of now yet", list.issuer));
    }
    // What TLS does not understand would refuse everybody.
    TrustRoots::default().with_revocation_lists([list.der()]).map_err(|error| error.to_string())?;
    Ok(list)
}

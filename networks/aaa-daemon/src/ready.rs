//! Readiness of a server. The check queries the store: while a load balancer keeps logins away, no other query would
//! find out that the store is available again.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use usher_aaa::store::{Store, StoreError};

/// Lifetime of a result, so that frequent checks do not load the store.
const READINESS_LIFETIME: Duration = Duration::from_millis(500);

/// The last result of a store, and its time.
#[derive(Debug, Default)]
pub(crate) struct CachedStoreCheck(Mutex<Option<(Instant, Result<(), StoreError>)>>);

impl CachedStoreCheck {
    /// Checks that a store is available. One of several simultaneous checks queries the store.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) fn check_store(&self, now: Instant, store: &Mutex<Box<dyn Store>>) -> Result<(), StoreError> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, said)) = &*last
            && now.saturating_duration_since(*at) < READINESS_LIFETIME
        {
            return said.clone();
        }
        let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
        // Looking up a session that does not exist is the shortest query that tests the store.
        let said = store.find_session("").map(drop);
        *last = Some((now, said.clone()));
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_aaa::store::MemoryStore;

    #[test]
    fn a_store_is_asked_again_when_its_answer_is_old() {
        let away = usher_store::PostgresStore::new("host=/nowhere user=usher").unwrap();
        let store: Mutex<Box<dyn Store>> = Mutex::new(Box::new(away));
        let (answer, begun) = (CachedStoreCheck::default(), Instant::now());
        assert!(answer.check_store(begun, &store).is_err_and(|error| error.to_string().contains("/nowhere")));
        *store.lock().unwrap() = Box::new(MemoryStore::new());
        assert!(
            answer.check_store(begun + READINESS_LIFETIME / 2, &store).is_err(),
            "what it said stands for a while"
        );
        assert_eq!(answer.check_store(begun + READINESS_LIFETIME, &store), Ok(()));
    }
}

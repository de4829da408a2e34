//! Whether a server can do what it is asked: its store is asked, since nobody else may be asking while a load balancer keeps everybody
//! away.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use usher_aaa::store::{Store, StoreError};

/// How long an answer of the store stands, so that those who look often do not keep it busy.
const READINESS_LIFETIME: Duration = Duration::from_millis(500);

/// What a store said last, and when.
#[derive(Debug, Default)]
pub(crate) struct StoreAnswer(Mutex<Option<(Instant, Result<(), StoreError>)>>);

impl StoreAnswer {
    /// Whether a store answers at this time. Of those who ask at once one asks it.
    ///
    /// # Errors
    /// What it says instead.
    pub(crate) fn check_store(&self, now: Instant, store: &Mutex<Box<dyn Store>>) -> Result<(), StoreError> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, said)) = &*last
            && now.saturating_duration_since(*at) < READINESS_LIFETIME
        {
            return said.clone();
        }
        let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
        // A session that nobody has: the question goes to the database, and is as short as one can be.
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
        let (answer, begun) = (StoreAnswer::default(), Instant::now());
        assert!(answer.check_store(begun, &store).is_err_and(|error| error.to_string().contains("/nowhere")));
        *store.lock().unwrap() = Box::new(MemoryStore::new());
        assert!(
            answer.check_store(begun + READINESS_LIFETIME / 2, &store).is_err(),
            "what it said stands for a while"
        );
        assert_eq!(answer.check_store(begun + READINESS_LIFETIME, &store), Ok(()));
    }
}

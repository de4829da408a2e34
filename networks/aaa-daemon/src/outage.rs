//! Logs outages of a store.

use std::time::{Duration, Instant};
use usher_aaa::store::StoreError;

/// Maximum number of logged causes of an outage. A database that starts has a few; a broken one may have many.
const MOST_CAUSES: usize = 4;

/// The outage of a store, if there is one. Each cause is logged once: the first may be a broken connection, the
/// next one why it cannot be restored.
#[derive(Default)]
pub(crate) struct StoreOutage {
    causes: Vec<String>,
}

impl StoreOutage {
    /// Records the result of the store's last call. Logs a new cause, and the end of the outage.
    pub(crate) fn record_store_result(&mut self, error: Option<&StoreError>) {
        match error {
            Some(error) => {
                if let Some(cause) = self.record_new_outage_cause(error) {
                    tracing::error!(error = %cause, "the store does not answer: until it does, requests that need it \
                                                     get no reply");
                }
            }
            None if !self.causes.is_empty() => {
                self.causes.clear();
                tracing::info!("the store answers again");
            }
            None => {}
        }
    }

    fn record_new_outage_cause(&mut self, error: &StoreError) -> Option<&str> {
        let cause = error.to_string();
        if self.causes.len() >= MOST_CAUSES || self.causes.contains(&cause) {
            return None;
        }
        self.causes.push(cause);
        self.causes.last().map(String::as_str)
    }
}

/// Interval of log messages about the same cause.
const REPORT_INTERVAL: Duration = Duration::from_secs(3600);

/// Refusals of a store that is available. Clients retransmit refused data, so each cause is logged once an hour.
#[derive(Default)]
pub(crate) struct StoreRefusalLog {
    causes: Vec<(String, Instant)>,
    /// Refusals since the last message.
    silent: u64,
}

impl StoreRefusalLog {
    /// Adds refusals. Returns the number to log now, with those not yet logged.
    pub(crate) fn record_refusal(&mut self, cause: &str, refused: u64, now: Instant) -> Option<u64> {
        self.silent += refused;
        self.causes.retain(|(_, told)| now.saturating_duration_since(*told) < REPORT_INTERVAL);
        if self.causes.len() >= MOST_CAUSES || self.causes.iter().any(|(known, _)| known == cause) {
            return None;
        }
        self.causes.push((cause.to_owned(), now));
        Some(std::mem::take(&mut self.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_something_is_refused_is_told_once_an_hour_with_how_often() {
        let (mut refusals, begun) = (StoreRefusalLog::default(), Instant::now());
        let mut note =
            |cause: &str, n, seconds| refusals.record_refusal(cause, n, begun + Duration::from_secs(seconds));
        assert_eq!(
            [note("too long", 2, 0), note("too long", 3, 1), note("too long", 4, 3599)],
            [Some(2), None, None]
        );
        assert_eq!(note("too wide", 1, 3599), Some(8), "with those before");
        assert_eq!([note("too long", 1, 3600), note("too wide", 1, 3600)], [Some(1), None]);
        let more = (0..10).filter(|i| note(&i.to_string(), 1, 3601).is_some()).count();
        assert_eq!(more, MOST_CAUSES - 2, "and not more than a few");
    }

    #[test]
    fn each_cause_of_an_outage_is_told_once_and_not_more_than_a_few() {
        let away = |text: &str| StoreError::Unavailable(text.to_owned());
        let mut outage = StoreOutage::default();
        assert_eq!(outage.record_new_outage_cause(&away("ended")), Some("the store is not available: ended"));
        assert_eq!(outage.record_new_outage_cause(&away("ended")), None);
        assert_eq!(
            outage.record_new_outage_cause(&away("not permitted")),
            Some("the store is not available: not permitted")
        );
        assert_eq!(outage.record_new_outage_cause(&away("ended")), None);
        let more =
            (0..10).filter(|i| outage.record_new_outage_cause(&away(&i.to_string())).is_some()).count();
        assert_eq!(more, MOST_CAUSES - 2);
        outage.record_store_result(None);
        assert!(outage.record_new_outage_cause(&away("ended")).is_some(), "another outage");
    }
}

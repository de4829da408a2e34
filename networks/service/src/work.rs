//! The work of machines by work label.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use usher_core::WorkLabel;

/// Units of work of all shards and workers together, since the program's start.
#[derive(Clone, Debug, Default)]
pub struct WorkUnitCounters(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl WorkUnitCounters {
    /// Adds work.
    pub fn add_work(&self, work: impl IntoIterator<Item = (WorkLabel, u64)>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (label, units) in work {
            *all.entry(label.name()).or_default() += units;
        }
    }
    /// Returns all work, by the names of the labels.
    #[must_use]
    pub fn work_counts(&self) -> BTreeMap<String, u64> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(name, units)| ((*name).to_owned(), *units)).collect()
    }
}

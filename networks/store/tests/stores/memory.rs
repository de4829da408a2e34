//! Runs the suite of the databases on the store in memory.

use crate::suite;
use usher_aaa::store::MemoryStore;

#[test]
fn memory_does_what_every_store_does() {
    suite::run_scenarios(&mut || Box::new(MemoryStore::new()));
}

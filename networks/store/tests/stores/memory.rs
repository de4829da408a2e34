//! The store in memory is held to what the databases do.

use crate::suite;
use usher_aaa::store::Memory;

#[test]
fn memory_does_what_every_store_does() {
    suite::run(&mut || Box::new(Memory::new()));
}

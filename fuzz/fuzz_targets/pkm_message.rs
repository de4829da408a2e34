//! An 802.16 PKM message: read, printed, written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_pkm::fuzz::message(data), "octets in and out differ"));

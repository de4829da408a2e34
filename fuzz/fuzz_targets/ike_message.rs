//! An IKE message: read, written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_ike::fuzz::message(data), "octets in and out differ"));

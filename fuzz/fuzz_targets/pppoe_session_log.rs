//! Octets as the log of who had which address.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_concentrator::fuzz::session_log(data), "a record is another once written"));

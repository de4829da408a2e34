//! Octets as another access concentrator's configuration.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_concentrator::fuzz::foreign_file(data), "what is not taken has no line"));

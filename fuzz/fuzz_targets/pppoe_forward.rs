//! A data plane of PPPoE: whatever a host sends, nothing passes that is not its session's own.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_pppoe::fuzz::forward(data), "something passes that may not, or is not counted"));

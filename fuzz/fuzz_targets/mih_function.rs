//! An MIH function that octets command, send to, connect to and let time pass for.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_mih::fuzz::function(data), "the function has lost count"));

//! A concentrator and a client with a wire between them that the input alters.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_ppp::fuzz::session(data), "a network comes up before its host is let in, or too much is kept"));

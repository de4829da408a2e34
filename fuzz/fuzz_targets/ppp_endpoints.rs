//! A concentrator and a client that are sent octets as frames: nobody is let in unasked, and what is kept stays bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_ppp::fuzz::endpoints(data), "somebody is let in, or too much is kept"));

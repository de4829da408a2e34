//! The SA-TEK handshake and the exchange of traffic keys over a channel that loses, repeats and spoils.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_pkm::fuzz::keying(data), "no end, or keys that differ"));

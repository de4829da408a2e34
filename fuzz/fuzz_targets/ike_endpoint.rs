//! An IKE endpoint that is sent any datagrams.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_ike::fuzz::endpoint(data), "an endpoint sends what is no message, or keeps what it must not"));

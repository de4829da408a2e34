//! PPP and PPPoE: frames, tags, control packets and options, PAP and CHAP; what is one is written as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_ppp::fuzz::message(data), "a message is written otherwise than it was"));

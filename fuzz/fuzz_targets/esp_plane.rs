//! Two ends of ESP, one of which has the keys and keeps to nothing else.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_esp::fuzz::plane(data), "what came lies outside its packet, or is kept without end"));

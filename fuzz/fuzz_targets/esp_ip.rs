//! An IP packet, as far as IPsec looks into it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_esp::fuzz::ip(data), "what is said of a packet lies outside it"));

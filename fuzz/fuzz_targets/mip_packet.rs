//! A Mobile IPv6 registration packet: read, written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_mip::fuzz::packet(data), "octets in and out differ"));

//! An EAP packet: read, printed, written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_eap::fuzz::packet(data), "octets in and out differ"));

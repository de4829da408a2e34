//! An Ethernet frame with EAPOL: read, written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_eap::fuzz::eapol(data), "octets in and out differ"));

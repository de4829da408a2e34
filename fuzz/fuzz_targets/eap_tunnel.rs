//! What is said inside PEAP and EAP-TTLS, to either side.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static RECORDING: LazyLock<std::sync::Arc<usher_crypto::tls::Recording>> =
    LazyLock::new(|| usher_eap::fuzz::recording().expect("a handshake in memory"));

fuzz_target!(|data: &[u8]| assert!(usher_eap::fuzz::tunnel(&RECORDING, data), "somebody was let in"));

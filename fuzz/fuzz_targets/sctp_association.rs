//! An SCTP association and a listener, whatever comes in whatever state.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| usher_sim::sctp::disturb(data));

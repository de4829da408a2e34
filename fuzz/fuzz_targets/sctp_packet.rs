//! An SCTP packet behind the IP header: read, written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| usher_sim::sctp::round_trip(data));

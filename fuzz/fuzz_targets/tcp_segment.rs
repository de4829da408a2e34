//! A TCP segment with its IP header's addresses: read, written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| usher_sim::tcp::round_trip(data));

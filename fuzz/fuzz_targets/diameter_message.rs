//! A Diameter message: cut from a stream, read, printed, written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| usher_diameter::fuzz::message(data));

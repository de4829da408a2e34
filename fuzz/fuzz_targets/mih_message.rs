//! An 802.21 message: read, printed, written again, cut into fragments and put together.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_mih::fuzz::message(data), "octets in and out differ"));

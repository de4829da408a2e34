//! A RADIUS packet: read, printed, written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use usher_radius::dictionary::Dictionary;

static DICTIONARY: LazyLock<Dictionary> = LazyLock::new(Dictionary::builtin);

fuzz_target!(|data: &[u8]| assert!(
    usher_radius::fuzz::packet(&DICTIONARY, data),
    "octets in and out differ"
));

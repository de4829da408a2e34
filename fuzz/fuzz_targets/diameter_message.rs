//! A Diameter message: cut from a stream, read, checked, printed, written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use usher_diameter::dictionary::Dictionary;

static DICTIONARY: LazyLock<Dictionary> = LazyLock::new(Dictionary::base);

fuzz_target!(|data: &[u8]| usher_diameter::fuzz::message(&DICTIONARY, data));

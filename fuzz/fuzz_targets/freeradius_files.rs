//! A users file and a clients.conf of whoever: read to the end, each complaint at a line of the text.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    assert!(usher_store::import::fuzz(text), "a complaint names no line, or a row is not whole");
});

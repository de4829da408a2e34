//! Rows from a CSV file of whoever: read, written, read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use usher_observe::csv;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(rows) = csv::parse(text) else { return };
    // NaN is not equal to itself, so texts are compared; a fixed column's name is no axis.
    let Ok(written) = csv::text(&rows) else { return };
    let again = csv::parse(&written).expect("what was written can be read");
    assert_eq!(csv::text(&again).expect("what was read can be written"), written);
});

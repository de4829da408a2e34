//! A dictionary in FreeRADIUS's syntax: read, or refused with a line of the text.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(
    usher_radius::fuzz::dictionary(data),
    "an error names no line of the text"
));

//! A packetdrill script: read, and run where it is one.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    usher_packetdrill::parse_any(data);
    usher_packetdrill::judge(&String::from_utf8_lossy(data));
});

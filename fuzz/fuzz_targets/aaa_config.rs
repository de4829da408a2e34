//! A configuration file of whoever: read, or refused with places within the text, and no secret in what is said.
#![no_main]

use libfuzzer_sys::fuzz_target;
use usher_daemon::config;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // No other files are read.
    if ["_file", "certificate", "key", "crl", "ca"].iter().any(|word| text.contains(word)) {
        return;
    }
    if let Err(faults) = config::parse("aaa.toml", text, None) {
        let lines = text.matches('\n').count() + 1;
        assert!(!faults.faults.is_empty() && faults.faults.iter().all(|f| f.line <= lines), "{faults}");
    }
});

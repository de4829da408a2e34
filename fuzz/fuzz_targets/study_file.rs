//! A study file of whoever: read, or refused with places within the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use usher_scenario::Study;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(faults) = Study::parse("study", "study.toml", text) {
        let lines = text.matches('\n').count() + 1;
        assert!(!faults.faults.is_empty() && faults.faults.iter().all(|f| f.line <= lines), "{faults}");
    }
});

//! A configuration file of whoever: read, or refused with places within the text, and no secret in what is said.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(faults) = usher_aaa_config::parse("aaa.toml", text, None, &usher_config::Alone) {
        let lines = text.matches('\n').count() + 1;
        assert!(!faults.faults.is_empty() && faults.faults.iter().all(|f| f.line <= lines), "{faults}");
    }
});

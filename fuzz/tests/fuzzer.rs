//! libFuzzer on the target that the environment names. `./x fuzz` and `./x test fuzz` build and run it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use usher_fuzz::{FuzzTarget, find_target};

/// One program has all targets, and libFuzzer reads its command line: the name comes by another way.
const VARIABLE: &str = "USHER_FUZZ_TARGET";

static TARGET: LazyLock<FuzzTarget> = LazyLock::new(|| {
    let name = std::env::var(VARIABLE).unwrap_or_default();
    find_target(&name).unwrap_or_else(|| panic!("{VARIABLE}={name}: no target has this name"))
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));

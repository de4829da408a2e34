//! libFuzzer on the target that the environment selects. `./x fuzz` and `./x test fuzz` build and run it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use usher_fuzz::{FuzzTarget, find_target};

/// All targets are in one program, and libFuzzer parses the command line. So the environment has the name.
const VARIABLE: &str = "USHER_FUZZ_TARGET";

static TARGET: LazyLock<FuzzTarget> = LazyLock::new(|| {
    let name = std::env::var(VARIABLE).unwrap_or_default();
    find_target(&name).unwrap_or_else(|| panic!("{VARIABLE}={name}: no target has this name"))
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));

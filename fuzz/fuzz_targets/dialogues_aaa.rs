//! Logins and sessions of many at an AAA server, in any order: operations of stations, access servers, the host and time.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Err(breach) = usher_dialogues::aaa::run(data) {
        panic!("{breach}");
    }
});

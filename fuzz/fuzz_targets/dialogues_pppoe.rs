//! Logins and sessions of many hosts at a PPPoE concentrator with an AAA server, in any order: operations of either side, of the wire and of time.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Err(breach) = usher_dialogues::pppoe::run(data) {
        panic!("{breach}");
    }
});

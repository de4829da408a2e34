//! Logins and sessions of many clients at an IKEv2 gateway with an AAA server, in any order: operations of either side, of the wire and of time.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Err(breach) = usher_dialogues::ike::run(data) {
        panic!("{breach}");
    }
});

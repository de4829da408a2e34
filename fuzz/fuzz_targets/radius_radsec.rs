//! A RadSec stream, cut into packets at a framer and at a server; and a certificate's names.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(
    usher_radius::fuzz::radsec(data),
    "the pieces give other packets than the whole"
));

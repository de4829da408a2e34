//! An IDENT server that is sent octets: each reply is one, and what it keeps stays bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| assert!(usher_ident::fuzz::server(data), "a reply is none, or too much is kept"));

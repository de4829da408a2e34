//! How a report's script calls the module: requests and answers are UTF-8 in the module's memory.
//!
//! 1. `usher_request(length)` gives where `length` octets of a request are to be written.
//! 2. `usher_answer()` takes it and gives where the answer is, whose length `usher_length()` says.
#![allow(unsafe_code, reason = "functions that a module exports keep their names")]

use crate::BrowserModule;
use std::cell::RefCell;

#[derive(Default)]
struct AbiState {
    module: BrowserModule,
    request: Vec<u8>,
    answer: String,
}

thread_local! {
    static CALLED: RefCell<AbiState> = RefCell::default();
}

/// Where a request of this length is to be written.
#[unsafe(no_mangle)]
extern "C" fn usher_request(length: usize) -> *mut u8 {
    CALLED.with_borrow_mut(|called| {
        called.request = vec![0; length];
        called.request.as_mut_ptr()
    })
}

/// Answers the request that was written; the answer stays where it is until the next one.
#[unsafe(no_mangle)]
extern "C" fn usher_answer() -> *const u8 {
    CALLED.with_borrow_mut(|called| {
        let request = String::from_utf8_lossy(&called.request).into_owned();
        called.answer = called.module.answer_json(&request);
        called.answer.as_ptr()
    })
}

/// Octets of the answer.
#[unsafe(no_mangle)]
extern "C" fn usher_length() -> usize {
    CALLED.with_borrow(|called| called.answer.len())
}

//! The functions that a report's script calls. Requests and replies are UTF-8 in the module's memory.
//!
//! 1. `usher_request(length)` returns the address for a request of `length` octets.
//! 2. `usher_answer()` handles the request and returns the address of the reply; `usher_length()` returns its length.
#![allow(unsafe_code, reason = "functions that a module exports keep their names")]

use crate::BrowserModule;
use std::cell::RefCell;

#[derive(Default)]
struct WasmModuleState {
    module: BrowserModule,
    request: Vec<u8>,
    answer: String,
}

thread_local! {
    static CALLED: RefCell<WasmModuleState> = RefCell::default();
}

/// Returns the address for a request of this length.
#[unsafe(no_mangle)]
extern "C" fn usher_request(length: usize) -> *mut u8 {
    CALLED.with_borrow_mut(|called| {
        called.request = vec![0; length];
        called.request.as_mut_ptr()
    })
}

/// Handles the request. The reply stays valid until the next one.
#[unsafe(no_mangle)]
extern "C" fn usher_answer() -> *const u8 {
    CALLED.with_borrow_mut(|called| {
        let request = String::from_utf8_lossy(&called.request).into_owned();
        called.answer = called.module.answer_json(&request);
        called.answer.as_ptr()
    })
}

/// Returns the length of the reply, in octets.
#[unsafe(no_mangle)]
extern "C" fn usher_length() -> usize {
    CALLED.with_borrow(|called| called.answer.len())
}

//! Entry points for fuzzers. Each answers false where it has found a defect.

use crate::{Message, Owned};
use alloc::string::ToString;
use alloc::vec::Vec;

/// Parses octets; what is a message is printed, looked into, written again and must say the same.
pub fn message(bytes: &[u8]) -> bool {
    let Ok(view) = Message::parse(bytes) else { return true };
    let owned = Owned::from(view);
    let mut out = Vec::new();
    owned.emit(&mut out);
    let nested: usize = view.attributes().map(|a| a.nested().count()).sum();
    let same = Message::parse(&out).is_ok_and(|again| Owned::from(again) == owned);
    same && out.len() <= bytes.len() && nested <= bytes.len() && !view.to_string().is_empty()
}

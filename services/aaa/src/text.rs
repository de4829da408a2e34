//! Text for stores and logs.

use alloc::string::String;
use core::fmt::Write;

/// Converts octets to text that every store accepts. Octets that are not UTF-8, and control characters, become
/// `\xNN`.
#[must_use]
pub fn storable_text(octets: &[u8]) -> String {
    let mut out = String::with_capacity(octets.len());
    for chunk in octets.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                let mut utf8 = [0; 4];
                escape_octets(&mut out, c.encode_utf8(&mut utf8).as_bytes());
            } else {
                out.push(c);
            }
        }
        escape_octets(&mut out, chunk.invalid());
    }
    out
}

fn escape_octets(out: &mut String, octets: &[u8]) {
    for b in octets {
        // Writing to a String does not fail.
        let _ = write!(out, "\\x{b:02x}");
    }
}

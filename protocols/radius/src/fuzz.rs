//! What a fuzzer runs: octets from outside through everything that reads them.

use crate::attribute::Attributes;
use crate::dictionary::Dictionary;
use crate::packet::Packet;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Reads octets as a packet, prints it by `dictionary`, writes it again. False where octets in and out
/// differ, which must never be; octets that are no packet are true.
#[must_use]
pub fn packet(dictionary: &Dictionary, data: &[u8]) -> bool {
    let Ok(view) = Packet::parse(data) else { return true };
    let printed = view.display(dictionary).to_string();
    let mut out = Vec::new();
    let owned = view.to_owned();
    let emitted = owned.emit(&mut out).is_ok();
    // The same attributes, built value by value.
    let mut built = Attributes::new();
    let pushed = view.attributes().all(|a| built.push_bytes(a.kind, a.value).is_ok());
    !printed.is_empty() && emitted && out == view.as_bytes() && pushed && built == owned.attributes
}

/// Reads octets as a dictionary; an error must name a line of the text.
#[must_use]
pub fn dictionary(data: &[u8]) -> bool {
    let Ok(text) = core::str::from_utf8(data) else { return true };
    match Dictionary::default().load("input", text, &mut |_: &str| None) {
        Ok(()) => true,
        Err(e) => e.line <= text.lines().count() && !e.what.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_packets(body in proptest::collection::vec(
                (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..20)) {
            let mut attributes = Attributes::new();
            for (kind, value) in &body {
                attributes.push_bytes(*kind, value).unwrap();
            }
            let mut bytes = vec![1, 2, 0, 0];
            bytes.resize(20, 7);
            bytes.extend(attributes.as_bytes());
            let length = bytes.len() as u16;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            prop_assert!(Packet::parse(&bytes).is_ok());
            prop_assert!(packet(&Dictionary::builtin(), &bytes));
        }

        #[test]
        fn arbitrary_text(text in "((ATTRIBUTE|VALUE|VENDOR|BEGIN-TLV|END-TLV|BEGIN-VENDOR|\\$INCLUDE)[ a-z0-9.,=\\[\\]]{0,20}\n){0,8}") {
            prop_assert!(dictionary(text.as_bytes()));
        }
    }
}

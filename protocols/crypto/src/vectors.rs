//! Helpers for test vectors.

/// Decodes hexadecimal digits.
pub(crate) fn hex_octets(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

//! Identifiers of MIH functions and of transactions.

use crate::wire::{ValueError, WireValue, read_mih_length, write_mih_length};
use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter, TruncatedInputError};

/// Maximum octets of an MIHF identifier: the limit of a network access identifier (RFC 4282).
pub const MAX_MIHF_ID: usize = 253;

/// The identifier of an MIH function: a network access identifier of up to [`MAX_MIHF_ID`] octets. The empty
/// identifier is multicast.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MihfId(Vec<u8>);

/// The octets exceed the limit of an MIHF identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the MIHF identifier is too long: {0} octets")]
pub struct MihfIdTooLong(pub usize);

impl MihfId {
    /// Creates an identifier from octets.
    ///
    /// # Errors
    /// There are more than [`MAX_MIHF_ID`] octets.
    pub fn new(octets: impl AsRef<[u8]>) -> Result<Self, MihfIdTooLong> {
        let octets = octets.as_ref();
        if octets.len() > MAX_MIHF_ID { Err(MihfIdTooLong(octets.len())) } else { Ok(Self(octets.to_vec())) }
    }
    /// Returns the empty identifier, which addresses every function that receives the message.
    pub const fn multicast() -> Self {
        Self(Vec::new())
    }
    /// True for the empty identifier.
    pub const fn is_multicast(&self) -> bool {
        self.0.is_empty()
    }
    /// Returns the identifier's octets.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for MihfId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_multicast() { f.write_str("*") } else { write!(f, "{}", self.0.escape_ascii()) }
    }
}

impl fmt::Debug for MihfId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MihfId({self})")
    }
}

impl WireValue for MihfId {
    fn write_to(&self, w: &mut OctetWriter<'_>) {
        write_mih_length(w, self.0.len());
        w.write_bytes(&self.0);
    }
    fn read_from(r: &mut OctetReader<'_>) -> Result<Self, ValueError> {
        let n = read_mih_length(r)?;
        if n > r.remaining() {
            return Err(TruncatedInputError { needed: n, left: r.remaining() }.into());
        }
        Self::new(r.read_bytes(n)?).map_err(|e| ValueError::Form(e.0 as u64))
    }
}

/// A transaction number of 12 bits. Together with the source and destination identifiers it identifies a transaction
/// (8.4.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TransactionId(u16);

impl TransactionId {
    /// The number of transaction numbers.
    pub const COUNT: u16 = 1 << 12;

    /// Returns the transaction number of the low 12 bits.
    pub const fn new(number: u16) -> Self {
        Self(number % Self::COUNT)
    }
    /// Returns the number, 0 to 4095.
    pub const fn get(self) -> u16 {
        self.0
    }
    /// Returns the next number; 0 follows 4095.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.0 + 1)
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn an_identifier_has_at_most_253_octets() {
        assert_eq!(MihfId::new([b'a'; 254]), Err(MihfIdTooLong(254)));
        assert!(MihfId::new([b'a'; 253]).is_ok());
        assert_eq!(MihfId::new("").unwrap(), MihfId::multicast());
        assert_eq!(MihfId::new("mn@example").unwrap().to_string(), "mn@example");
        assert_eq!(MihfId::multicast().to_string(), "*");
    }

    #[test]
    fn transaction_numbers_wrap_at_12_bits() {
        assert_eq!(TransactionId::new(4095).next(), TransactionId::new(0));
        assert_eq!(TransactionId::new(4096), TransactionId::new(0));
        assert_eq!(TransactionId::new(17).next().get(), 18);
    }
}

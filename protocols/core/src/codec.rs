//! A bounded reader whose sub-readers cannot leave their parent, and a writer into a caller's buffer.
//! All integers are big-endian, as on the wire.

use alloc::vec::Vec;

/// A read ran over the end of its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("truncated: {needed} bytes needed, {left} left")]
pub struct TruncatedInputError {
    /// The number of bytes that the field needs.
    pub needed: usize,
    /// The number of bytes left.
    pub left: usize,
}

/// A reader of a byte slice from front to back, never beyond its end.
#[derive(Clone, Copy, Debug)]
pub struct OctetReader<'a> {
    rest: &'a [u8],
}

impl<'a> OctetReader<'a> {
    /// Creates a reader of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
    /// Returns the number of bytes not read yet.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }
    /// True if all bytes are read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    /// Returns the next `n` bytes.
    ///
    /// # Errors
    /// If fewer are left. It then consumes nothing.
    pub fn read_bytes(&mut self, n: usize) -> Result<&'a [u8], TruncatedInputError> {
        match self.rest.split_at_checked(n) {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(head)
            }
            None => Err(TruncatedInputError { needed: n, left: self.rest.len() }),
        }
    }
    /// Returns the next `N` bytes as an array.
    ///
    /// # Errors
    /// If fewer are left. It then consumes nothing.
    pub fn read_array<const N: usize>(&mut self) -> Result<[u8; N], TruncatedInputError> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(*head)
            }
            None => Err(TruncatedInputError { needed: N, left: self.rest.len() }),
        }
    }
    /// Returns a reader of the next `n` bytes only.
    ///
    /// # Errors
    /// If fewer are left. It then consumes nothing.
    pub fn sub_reader(&mut self, n: usize) -> Result<OctetReader<'a>, TruncatedInputError> {
        self.read_bytes(n).map(OctetReader::new)
    }
    /// Returns and consumes the remaining bytes.
    pub fn take_rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }
    /// Returns the remaining bytes without consuming them.
    pub const fn peek_rest(&self) -> &'a [u8] {
        self.rest
    }
    /// Returns the next byte.
    ///
    /// # Errors
    /// If no byte is left.
    pub fn read_u8(&mut self) -> Result<u8, TruncatedInputError> {
        self.read_array::<1>().map(|[b]| b)
    }
    /// Returns the next 16 bits.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn read_u16(&mut self) -> Result<u16, TruncatedInputError> {
        self.read_array().map(u16::from_be_bytes)
    }
    /// Returns the next 24 bits.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn read_u24(&mut self) -> Result<u32, TruncatedInputError> {
        self.read_array::<3>().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }
    /// Returns the next 32 bits.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn read_u32(&mut self) -> Result<u32, TruncatedInputError> {
        self.read_array().map(u32::from_be_bytes)
    }
    /// Returns the next 64 bits.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn read_u64(&mut self) -> Result<u64, TruncatedInputError> {
        self.read_array().map(u64::from_be_bytes)
    }
}

/// A writer that appends big-endian fields to a caller's buffer. Lengths are patched in afterwards.
#[derive(Debug)]
pub struct OctetWriter<'a> {
    buf: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> OctetWriter<'a> {
    /// Appends to `buf`. Offsets count from its current end.
    pub fn new(buf: &'a mut Vec<u8>) -> Self {
        let start = buf.len();
        Self { buf, start }
    }
    /// Returns the number of bytes written, which is the offset of the next.
    pub fn len(&self) -> usize {
        self.buf.len() - self.start
    }
    /// True if nothing is written yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the bytes written so far.
    pub fn written_bytes(&self) -> &[u8] {
        &self.buf[self.start..]
    }
    /// Appends bytes.
    pub fn write_bytes(&mut self, b: &[u8]) -> &mut Self {
        self.buf.extend_from_slice(b);
        self
    }
    /// Appends `n` zero bytes.
    pub fn write_zeros(&mut self, n: usize) -> &mut Self {
        self.buf.resize(self.buf.len() + n, 0);
        self
    }
    /// Appends a byte.
    pub fn write_u8(&mut self, v: u8) -> &mut Self {
        self.buf.push(v);
        self
    }
    /// Appends 16 bits.
    pub fn write_u16(&mut self, v: u16) -> &mut Self {
        self.write_bytes(&v.to_be_bytes())
    }
    /// Appends the low 24 bits.
    pub fn write_u24(&mut self, v: u32) -> &mut Self {
        self.write_bytes(&v.to_be_bytes()[1..])
    }
    /// Appends 32 bits.
    pub fn write_u32(&mut self, v: u32) -> &mut Self {
        self.write_bytes(&v.to_be_bytes())
    }
    /// Appends 64 bits.
    pub fn write_u64(&mut self, v: u64) -> &mut Self {
        self.write_bytes(&v.to_be_bytes())
    }
    /// Overwrites bytes already written, from `at`.
    ///
    /// # Panics
    /// If the range reaches beyond the bytes written, which is an error of the calling codec.
    pub fn overwrite_at(&mut self, at: usize, b: &[u8]) {
        let at = self.start + at;
        self.buf[at..at + b.len()].copy_from_slice(b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_failed_read_consumes_nothing() {
        let mut r = OctetReader::new(&[1, 2, 3]);
        assert_eq!(r.read_u32(), Err(TruncatedInputError { needed: 4, left: 3 }));
        assert_eq!(r.read_u24(), Ok(0x010203));
        assert!(r.is_empty());
    }

    #[test]
    fn a_sub_reader_stays_within_its_parent() {
        let mut r = OctetReader::new(&[1, 2, 3, 4]);
        let mut sub = r.sub_reader(2).unwrap();
        assert_eq!(sub.read_u16(), Ok(0x0102));
        assert!(sub.read_u8().is_err());
        assert_eq!(r.read_u16(), Ok(0x0304));
    }

    #[test]
    fn lengths_are_patched_relative_to_the_writer() {
        let mut buf = vec![9, 9];
        let mut w = OctetWriter::new(&mut buf);
        w.write_u8(1).write_u16(0).write_bytes(b"ab");
        let len = w.len() as u16;
        w.overwrite_at(1, &len.to_be_bytes());
        assert_eq!(buf, [9, 9, 1, 0, 5, b'a', b'b']);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(a: u8, b: u16, c in 0u32..1 << 24, d: u32, e: u64, f: Vec<u8>) {
            let mut buf = Vec::new();
            OctetWriter::new(&mut buf).write_u8(a).write_u16(b).write_u24(c).write_u32(d).write_u64(e).write_bytes(&f);
            let mut r = OctetReader::new(&buf);
            prop_assert_eq!((r.read_u8(), r.read_u16(), r.read_u24(), r.read_u32(), r.read_u64()), (Ok(a), Ok(b), Ok(c), Ok(d), Ok(e)));
            prop_assert_eq!(r.take_rest(), &f[..]);
        }
    }
}

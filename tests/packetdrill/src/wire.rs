//! Encodes a script's packets and decodes the host's, by this crate's own codec. The simulator's codec is under test.

pub(crate) mod sctp;
pub(crate) mod tcp;

/// Reads big-endian fields from the front.
pub(crate) struct FieldReader<'a>(pub(crate) &'a [u8]);

impl<'a> FieldReader<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }
    /// Reads a number of `n` bytes, at most eight.
    pub(crate) fn read_number(&mut self, n: usize) -> Option<u64> {
        Some(self.take(n)?.iter().fold(0, |all, b| all << 8 | u64::from(*b)))
    }
}

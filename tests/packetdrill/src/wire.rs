//! Bytes for what a script says, and what bytes say, by a codec of this crate's own: the simulator's is what
//! is tested.

pub(crate) mod sctp;
pub(crate) mod tcp;

/// Big-endian fields, read from the front.
pub(crate) struct FieldReader<'a>(pub(crate) &'a [u8]);

impl<'a> FieldReader<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }
    /// A number of `n` bytes, at most eight.
    pub(crate) fn read_number(&mut self, n: usize) -> Option<u64> {
        Some(self.take(n)?.iter().fold(0, |all, b| all << 8 | u64::from(*b)))
    }
}

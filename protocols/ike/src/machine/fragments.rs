//! Messages put together from fragments (RFC 7383 §2.6). Each fragment has been authenticated before it comes here.

use crate::code::PayloadType;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Fragments of one message: that which is expected next.
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    /// Response or request, and its message ID.
    of: (bool, u32),
    total: u16,
    octets: usize,
    first: Option<PayloadType>,
    parts: BTreeMap<u16, Vec<u8>>,
}

/// A fragment that is not kept: of another division of the message than is known, there already, or too much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NotKept;

impl Reassembly {
    /// Adds a fragment; gives the whole when it was the last that was missing.
    pub(super) fn add(
        &mut self,
        of: (bool, u32),
        (number, total): (u16, u16),
        first: PayloadType,
        part: Vec<u8>,
        most: usize,
    ) -> Result<Option<(PayloadType, Vec<u8>)>, NotKept> {
        // More fragments mean that the sender has begun anew with smaller ones; fewer are of before (§2.6.1).
        if self.of != of || total > self.total {
            *self = Self { of, total, ..Self::default() };
        }
        // What is held is counted: of a part that was padding mostly, all that it takes.
        let held = part.capacity();
        if total < self.total
            || self.parts.contains_key(&number)
            || part.is_empty()
            || self.octets + held > most
        {
            return Err(NotKept);
        }
        if number == 1 {
            self.first = Some(first);
        }
        self.octets += held;
        self.parts.insert(number, part);
        if self.parts.len() < usize::from(self.total) {
            return Ok(None);
        }
        let whole = core::mem::take(self);
        let mut content = Vec::with_capacity(whole.octets);
        whole.parts.into_values().for_each(|part| content.extend_from_slice(&part));
        Ok(Some((whole.first.unwrap_or(PayloadType::NONE), content)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: (bool, u32) = (false, 1);

    fn add(all: &mut Reassembly, of: (u16, u16), part: &[u8]) -> Result<Option<Vec<u8>>, NotKept> {
        let whole = all.add(OF, of, PayloadType(of.0 as u8), part.to_vec(), 8)?;
        Ok(whole.map(|(first, content)| {
            assert_eq!(first, PayloadType(1), "the first fragment says what comes first");
            content
        }))
    }

    #[test]
    fn fragments_may_come_in_any_order_and_again() {
        let mut all = Reassembly::default();
        assert_eq!(add(&mut all, (3, 3), b"ef"), Ok(None));
        assert_eq!(add(&mut all, (1, 3), b"ab"), Ok(None));
        assert_eq!(add(&mut all, (1, 3), b"xx"), Err(NotKept));
        assert_eq!(add(&mut all, (2, 3), b"cd"), Ok(Some(b"abcdef".to_vec())));
    }

    #[test]
    fn a_message_that_is_sent_in_more_fragments_begins_anew() {
        let mut all = Reassembly::default();
        assert_eq!(add(&mut all, (1, 2), b"abc"), Ok(None));
        assert_eq!(add(&mut all, (1, 3), b"ab"), Ok(None));
        assert_eq!(add(&mut all, (2, 2), b"def"), Err(NotKept), "of before");
        assert_eq!(add(&mut all, (2, 3), b"cd"), Ok(None));
        assert_eq!(add(&mut all, (3, 3), b"ef"), Ok(Some(b"abcdef".to_vec())));
    }

    #[test]
    fn fragments_take_bounded_memory_and_those_of_another_message_none() {
        let mut all = Reassembly::default();
        assert_eq!(add(&mut all, (1, 3), b"12345"), Ok(None));
        assert_eq!(add(&mut all, (2, 3), b"6789"), Err(NotKept));
        assert_eq!(all.add((true, 1), (2, 2), PayloadType(0), vec![1], 8), Ok(None));
        assert_eq!((all.octets, all.parts.len()), (1, 1));
    }
}

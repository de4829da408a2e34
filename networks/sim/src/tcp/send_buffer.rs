//! Written data that the peer has not acknowledged.

use super::seq;
use std::collections::VecDeque;
use std::sync::Arc;

/// Written chunks by sequence number; ranges without a chunk have no content.
#[derive(Debug, Default)]
pub(super) struct SendBuffer {
    chunks: VecDeque<(u32, Arc<[u8]>)>,
}

impl SendBuffer {
    pub(super) fn push(&mut self, start: u32, data: &[u8]) {
        self.chunks.push_back((start, Arc::from(data)));
    }
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
    /// Drops data before `una`.
    pub(super) fn release_before(&mut self, una: u32) {
        while let Some((start, data)) = self.chunks.front() {
            if seq::lt(una, start.wrapping_add(data.len() as u32)) {
                break;
            }
            self.chunks.pop_front();
        }
    }
    /// Returns the payload of a segment: the written chunk itself if it matches, else a copy, with zeros for data
    /// without content; `None` without any content.
    pub(super) fn segment_payload(&self, start: u32, len: u32) -> Option<Arc<[u8]>> {
        let end = start.wrapping_add(len);
        let first = self.chunks.partition_point(|(at, d)| seq::le(at.wrapping_add(d.len() as u32), start));
        let (at, data) = self.chunks.get(first)?;
        if *at == start && data.len() == len as usize {
            return Some(data.clone());
        }
        if seq::le(end, *at) {
            return None;
        }
        let mut out = vec![0; len as usize];
        for (at, data) in self.chunks.iter().skip(first) {
            if seq::le(end, *at) {
                break;
            }
            let skip = seq::octets_ahead(*at, start) as usize;
            let to = seq::octets_ahead(start, *at) as usize;
            let n = (data.len() - skip).min(out.len() - to);
            out[to..to + n].copy_from_slice(&data[skip..skip + n]);
        }
        Some(Arc::from(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_cut_across_writes_and_the_sequence_wrap() {
        let base = 0u32.wrapping_sub(3);
        let mut b = SendBuffer::default();
        b.push(base, b"abc");
        b.push(base.wrapping_add(3), b"defgh");
        b.push(base.wrapping_add(10), b"xy");
        assert_eq!(b.segment_payload(base, 3).as_deref(), Some(&b"abc"[..]));
        assert_eq!(b.segment_payload(base.wrapping_add(1), 4).as_deref(), Some(&b"bcde"[..]));
        assert_eq!(b.segment_payload(base.wrapping_add(6), 6).as_deref(), Some(&b"gh\0\0xy"[..]));
        assert_eq!(b.segment_payload(base.wrapping_add(8), 2), None);
        b.release_before(base.wrapping_add(8));
        assert_eq!(b.segment_payload(base.wrapping_add(9), 2).as_deref(), Some(&b"\0x"[..]));
        b.release_before(base.wrapping_add(12));
        assert!(b.is_empty());
    }
}

//! Received data: in order and unread, or beyond a gap.

use super::seq;
use std::collections::VecDeque;
use std::sync::Arc;

/// A run of received data, with its octets if it has content.
pub(super) type ReceivedDataRange = (u32, Option<Arc<[u8]>>);

/// Returns at most `len` octets of `data` from `skip` on; shared if that is all of it.
pub(super) fn cut_bytes(data: &Arc<[u8]>, skip: u32, len: u32) -> Arc<[u8]> {
    if skip == 0 && len as usize >= data.len() {
        return data.clone();
    }
    let from = (skip as usize).min(data.len());
    let to = (from + len as usize).min(data.len());
    Arc::from(&data[from..to])
}

/// In-order data with content that waits for a read.
#[derive(Debug, Default)]
pub(super) struct UnreadData {
    chunks: VecDeque<ReceivedDataRange>,
}

impl UnreadData {
    pub(super) fn push(&mut self, len: u32, data: Option<Arc<[u8]>>) {
        self.chunks.push_back((len, data));
    }
    /// Removes the next chunk, at most `limit` octets.
    pub(super) fn pop(&mut self, limit: u32) -> Option<ReceivedDataRange> {
        let (len, data) = self.chunks.front_mut()?;
        if *len <= limit {
            return self.chunks.pop_front();
        }
        let head = data.as_ref().map(|d| cut_bytes(d, 0, limit));
        *data = data.as_ref().map(|d| cut_bytes(d, limit, *len - limit));
        *len -= limit;
        Some((limit, head))
    }
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

/// Data beyond a gap (RFC 9293 §3.10.7.4, "hold segments for later processing").
#[derive(Debug, Default)]
pub(super) struct ReassemblyBuffer {
    /// Disjoint runs, the most recently extended first: the order in which SACK reports them (RFC 2018 §4).
    runs: Vec<(u32, u32)>,
    /// Their octets, by first sequence number; may overlap.
    pieces: Vec<(u32, Arc<[u8]>)>,
    /// Sequence number of a FIN beyond a gap.
    pub(super) fin: Option<u32>,
    /// A duplicate to report by the next segment (RFC 2883).
    pub(super) duplicate: Option<(u32, u32)>,
}

impl ReassemblyBuffer {
    /// True if empty.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.fin.is_none() && self.duplicate.is_none()
    }
    pub(super) fn has_data(&self) -> bool {
        !self.runs.is_empty()
    }
    /// Returns the buffered octets.
    pub(super) fn buffered_octets(&self) -> u32 {
        self.runs.iter().map(|(left, right)| right.wrapping_sub(*left)).fold(0, u32::saturating_add)
    }
    /// Inserts `[start, end)`. With `moves`, its run moves to the front; else it keeps its position (ns-2's
    /// `ReassemblyQueue`).
    pub(super) fn insert(&mut self, start: u32, end: u32, data: Option<Arc<[u8]>>, moves: bool) {
        let held = self.runs.iter().any(|&(l, r)| seq::le(l, start) && seq::le(end, r));
        if let Some(data) = data.filter(|_| !held) {
            let at = self.pieces.partition_point(|(s, _)| seq::le(*s, start));
            self.pieces.insert(at, (start, data));
        }
        let (mut left, mut right) = (start, end);
        // RFC 2018, 4: the first block has the latest segment.
        let place = if moves { 0 } else { self.run_position(start, end) };
        self.runs.retain(|&(l, r)| {
            let apart = seq::lt(right, l) || seq::lt(r, left);
            if !apart {
                (left, right) = (seq::min(left, l), seq::max(right, r));
            }
            apart
        });
        self.runs.insert(place, (left, right));
    }
    /// Returns the number of runs that stay before that of `[start, end)`: the lowest of those that it does not
    /// absorb.
    fn run_position(&self, start: u32, end: u32) -> usize {
        let apart = |&(l, r): &(u32, u32)| seq::lt(end, l) || seq::lt(r, start);
        let swallowed = |&(l, r): &(u32, u32)| seq::le(start, l) && seq::le(r, end) && (l, r) != (start, end);
        let joined = self.runs.iter().zip(0..).filter(|(run, _)| !apart(run) && !swallowed(run));
        let lowest = joined.min_by_key(|((l, _), _)| l.wrapping_sub(start) as i32);
        let Some((_, at)) = lowest else { return 0 };
        self.runs[..at].iter().filter(|run| apart(run)).count()
    }
    /// Delivers the data that follows in order from `next`, and returns its end.
    pub(super) fn advance_to(&mut self, next: u32, mut deliver: impl FnMut(u32, Option<Arc<[u8]>>)) -> u32 {
        let mut end = next;
        self.runs.retain(|&(l, r)| {
            let reached = seq::le(l, next);
            if reached {
                end = seq::max(end, r);
            }
            !reached
        });
        let mut at = next;
        let taken = self.pieces.partition_point(|(s, _)| seq::lt(*s, end));
        for (start, data) in self.pieces.drain(..taken) {
            let stop = seq::min(start.wrapping_add(data.len() as u32), end);
            if seq::le(stop, at) {
                continue;
            }
            if seq::lt(at, start) {
                deliver(start.wrapping_sub(at), None);
                at = start;
            }
            let n = stop.wrapping_sub(at);
            deliver(n, Some(cut_bytes(&data, at.wrapping_sub(start), n)));
            at = stop;
        }
        if seq::lt(at, end) {
            deliver(end.wrapping_sub(at), None);
        }
        end
    }
    /// Returns the runs, the most recently extended first.
    pub(super) fn runs(&self) -> &[(u32, u32)] {
        &self.runs
    }
    /// Returns the first part of `[start, end)` that is buffered already.
    pub(super) fn first_buffered_range(&self, start: u32, end: u32) -> Option<(u32, u32)> {
        let common = |&(l, r): &(u32, u32)| (seq::max(l, start), seq::min(r, end));
        let parts = self.runs.iter().map(common).filter(|&(l, r)| seq::lt(l, r));
        parts.min_by_key(|&(l, _)| l.wrapping_sub(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared_bytes(b: &[u8]) -> Option<Arc<[u8]>> {
        Some(Arc::from(b))
    }

    #[test]
    fn overlapping_pieces_are_delivered_once_and_in_order() {
        let mut r = ReassemblyBuffer::default();
        r.insert(5, 8, shared_bytes(b"fgh"), true);
        r.insert(2, 6, shared_bytes(b"cdef"), true);
        r.insert(10, 12, None, true);
        r.insert(20, 21, shared_bytes(b"z"), true);
        assert_eq!(r.runs(), [(20, 21), (10, 12), (2, 8)]);
        let mut got = Vec::new();
        assert_eq!(r.advance_to(3, |n, d| got.push((n, d))), 8);
        assert_eq!(got, [(3, shared_bytes(b"def")), (2, shared_bytes(b"gh"))]);
        got.clear();
        assert_eq!(r.advance_to(10, |n, d| got.push((n, d))), 12);
        assert_eq!(got, [(2, None)]);
        assert_eq!(r.runs(), [(20, 21)]);
    }

    #[test]
    fn a_run_that_joins_two_is_reported_first() {
        let mut r = ReassemblyBuffer::default();
        r.insert(30, 40, None, true);
        r.insert(10, 20, None, true);
        r.insert(50, 60, None, true);
        r.insert(20, 30, None, true);
        assert_eq!(r.runs(), [(10, 40), (50, 60)]);
    }

    #[test]
    fn reading_in_parts_cuts_a_chunk() {
        let mut u = UnreadData::default();
        u.push(3, shared_bytes(b"abc"));
        u.push(2, None);
        assert_eq!(u.pop(2), Some((2, shared_bytes(b"ab"))));
        assert_eq!(u.pop(9), Some((1, shared_bytes(b"c"))));
        assert_eq!(u.pop(1), Some((1, None)));
        assert_eq!(u.pop(1), Some((1, None)));
        assert!(u.is_empty());
    }
}

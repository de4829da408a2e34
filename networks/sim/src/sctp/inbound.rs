//! Received data: TSNs, fragments of messages, and messages that wait for their turn in a stream.

use super::chunk::{DataChunk, SackChunk};
use super::message::UserMessage;
use crate::packet::Payload;
use crate::tcp::seq;
use std::collections::{BTreeMap, VecDeque};

/// Maximum duplicate TSNs in a SACK.
const MAX_DUPLICATES: usize = 32;

/// Classification of a received TSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReceivedTsnStatus {
    New,
    Duplicate,
    /// The receive buffer is full.
    BufferFull,
    /// The receive buffer is full forever: its fragments complete no message.
    Stuck,
}

/// The receiver of an association.
#[derive(Debug)]
pub(super) struct SctpReceiver {
    /// All TSNs up to this one are received.
    pub(super) cumulative: u32,
    /// Runs received beyond it, first and last, ascending.
    runs: Vec<(u32, u32)>,
    duplicates: Vec<u32>,
    /// The next stream sequence number of each used stream.
    ssns: Vec<u16>,
    /// Whole messages that wait for an earlier one, by stream and sequence number.
    waiting: BTreeMap<(u16, u16), UserMessage>,
    /// Fragments of incomplete messages, by TSN.
    pieces: VecDeque<DataChunk>,
    /// User data buffered here or not yet read by the application.
    pub(super) buffered: u32,
    pub(super) unread: u32,
}

impl SctpReceiver {
    pub(super) fn new(peer_tsn: u32) -> Self {
        Self {
            cumulative: peer_tsn.wrapping_sub(1),
            runs: Vec::new(),
            duplicates: Vec::new(),
            ssns: Vec::new(),
            waiting: BTreeMap::new(),
            pieces: VecDeque::new(),
            buffered: 0,
            unread: 0,
        }
    }
    pub(super) fn has_gaps(&self) -> bool {
        !self.runs.is_empty()
    }
    /// Returns the free space of a receive buffer of `buffer` octets: the window to announce.
    pub(super) fn receive_window(&self, buffer: u32) -> u32 {
        buffer.saturating_sub(self.buffered).saturating_sub(self.unread)
    }
    fn has_come(&self, tsn: u32) -> bool {
        seq::le(tsn, self.cumulative)
            || self.runs.iter().any(|&(first, last)| seq::le(first, tsn) && seq::le(tsn, last))
    }

    /// Classifies a chunk with `len` octets of user data, for a buffer of `buffer` octets.
    pub(super) fn classify_tsn(&mut self, tsn: u32, len: u32, buffer: u32) -> ReceivedTsnStatus {
        if self.has_come(tsn) {
            if self.duplicates.len() < MAX_DUPLICATES {
                self.duplicates.push(tsn);
            }
            return ReceivedTsnStatus::Duplicate;
        }
        if tsn.wrapping_sub(self.cumulative) > u32::from(u16::MAX) {
            return ReceivedTsnStatus::BufferFull;
        }
        let used = self.buffered + self.unread;
        let fills = self.runs.last().is_some_and(|&(_, last)| seq::lt(tsn, last));
        // RFC 9260, 6.2: accept a chunk that fills a gap even if the window is closed. Twice the buffer suffices for a
        // sender that respects the window.
        let limit = if fills { buffer.saturating_mul(2) } else { buffer };
        if used.saturating_add(len) <= limit {
            ReceivedTsnStatus::New
        } else if self.runs.is_empty() && self.unread == 0 {
            ReceivedTsnStatus::Stuck
        } else {
            ReceivedTsnStatus::BufferFull
        }
    }
    /// Records a new TSN.
    pub(super) fn record_tsn(&mut self, tsn: u32) {
        if tsn == self.cumulative.wrapping_add(1) {
            self.cumulative = tsn;
            if let Some(&(first, last)) = self.runs.first()
                && first == tsn.wrapping_add(1)
            {
                self.cumulative = last;
                self.runs.remove(0);
            }
            return;
        }
        let at = self.runs.partition_point(|&(first, _)| seq::lt(first, tsn));
        let joins_next = self.runs.get(at).is_some_and(|&(first, _)| first == tsn.wrapping_add(1));
        let joins_last = at > 0 && self.runs[at - 1].1.wrapping_add(1) == tsn;
        match (joins_last, joins_next) {
            (true, true) => {
                self.runs[at - 1].1 = self.runs[at].1;
                self.runs.remove(at);
            }
            (true, false) => self.runs[at - 1].1 = tsn,
            (false, true) => self.runs[at].0 = tsn,
            (false, false) => self.runs.insert(at, (tsn, tsn)),
        }
    }

    /// Inserts a new chunk and delivers messages that it completes.
    ///
    /// # Errors
    /// Contradictory fragments.
    pub(super) fn insert_chunk(
        &mut self,
        data: DataChunk,
        mut deliver: impl FnMut(UserMessage),
    ) -> Result<(), &'static [u8]> {
        if data.beginning && data.ending {
            let DataChunk { stream, ssn, ppid, unordered, payload, .. } = data;
            self.hand_over(ssn, UserMessage { stream, ppid, unordered, payload }, &mut deliver);
            return Ok(());
        }
        self.buffered += data.payload.len;
        let tsn = data.tsn;
        let at = self.pieces.partition_point(|p| seq::lt(p.tsn, tsn));
        self.pieces.insert(at, data);
        let consistent = |earlier: usize| {
            let (Some(a), Some(b)) = (self.pieces.get(earlier), self.pieces.get(earlier + 1)) else {
                return true;
            };
            if b.tsn != a.tsn.wrapping_add(1) {
                return true;
            }
            // RFC 9260, 3.3.1: fragments have one stream, sequence number and U flag, and consecutive TSNs.
            let same = (a.stream, a.unordered) == (b.stream, b.unordered) && (a.unordered || a.ssn == b.ssn);
            a.ending == b.beginning && (a.ending || same)
        };
        if !consistent(at) || (at > 0 && !consistent(at - 1)) {
            return Err(b"pieces of messages contradict each other");
        }
        if let Some((first, last)) = self.complete_message_range(at) {
            let (ssn, message) = self.reassemble_message(first, last);
            self.hand_over(ssn, message, &mut deliver);
        }
        Ok(())
    }
    /// Returns the positions of the message with the fragment at `at`, if it is complete.
    fn complete_message_range(&self, at: usize) -> Option<(usize, usize)> {
        let follows = |i: usize| self.pieces[i].tsn == self.pieces[i - 1].tsn.wrapping_add(1);
        let mut first = at;
        while !self.pieces[first].beginning {
            if first == 0 || !follows(first) {
                return None;
            }
            first -= 1;
        }
        let mut last = at;
        while !self.pieces[last].ending {
            last += 1;
            if last == self.pieces.len() || !follows(last) {
                return None;
            }
        }
        Some((first, last))
    }
    fn reassemble_message(&mut self, first: usize, last: usize) -> (u16, UserMessage) {
        // RFC 9260, 6.9: reassembles the message.
        let pieces: Vec<DataChunk> = self.pieces.drain(first..=last).collect();
        let len = pieces.iter().map(|p| p.payload.len).sum();
        self.buffered -= len;
        let bytes = pieces.iter().any(|p| p.payload.bytes.is_some()).then(|| {
            let mut joined = Vec::with_capacity(len as usize);
            for piece in &pieces {
                piece.payload.write_to(&mut joined);
            }
            joined.into()
        });
        let DataChunk { stream, ssn, ppid, unordered, .. } = pieces[0];
        (ssn, UserMessage { stream, ppid, unordered, payload: Payload { len, bytes } })
    }

    /// Delivers a message and those that waited for it, or queues it until its turn.
    fn hand_over(&mut self, ssn: u16, message: UserMessage, deliver: &mut impl FnMut(UserMessage)) {
        let stream = message.stream;
        // RFC 9260, 6.6: unordered messages at once, ordered ones by stream.
        if message.unordered {
            self.unread += message.payload.len;
            deliver(message);
            return;
        }
        let at = usize::from(stream);
        if self.ssns.len() <= at {
            self.ssns.resize(at + 1, 0);
        }
        if ssn != self.ssns[at] {
            self.buffered += message.payload.len;
            if let Some(other) = self.waiting.insert((stream, ssn), message) {
                self.buffered -= other.payload.len;
            }
            return;
        }
        self.unread += message.payload.len;
        deliver(message);
        self.ssns[at] = ssn.wrapping_add(1);
        while !self.waiting.is_empty()
            && let Some(next) = self.waiting.remove(&(stream, self.ssns[at]))
        {
            self.buffered -= next.payload.len;
            self.unread += next.payload.len;
            deliver(next);
            self.ssns[at] = self.ssns[at].wrapping_add(1);
        }
    }

    /// Returns the octets of the current SACK, at most `most`.
    pub(super) fn sack_len(&self, most: u32) -> u32 {
        (16 + 4 * (self.runs.len() + self.duplicates.len()) as u32).min(most & !3)
    }
    /// Builds the current SACK of at most `most` octets. Duplicates are reported once.
    pub(super) fn build_sack(&mut self, most: u32, buffer: u32) -> SackChunk {
        let entries = (most.saturating_sub(16) / 4) as usize;
        let distance = |tsn: u32| tsn.wrapping_sub(self.cumulative) as u16;
        // RFC 9260, 6.2 and 6.7: as many gap blocks as fit, the lowest first.
        let gaps: Vec<_> =
            self.runs.iter().take(entries).map(|&(first, last)| (distance(first), distance(last))).collect();
        let mut duplicates = std::mem::take(&mut self.duplicates);
        duplicates.truncate(entries - gaps.len());
        SackChunk { cumulative: self.cumulative, window: self.receive_window(buffer), gaps, duplicates }
    }
}

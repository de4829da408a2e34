//! Outbound data: messages cut into chunks, and unacknowledged chunks.

use super::DATA_HEADER;
use super::chunk::{DataChunk, round_to_words};
use super::config::SctpConfig;
use super::message::UserMessage;
use crate::packet::Payload;
use std::collections::VecDeque;

/// The state of a sent chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SentChunkStatus {
    /// In flight.
    Flying,
    /// Lost: to be retransmitted, on the same path after fast retransmit, else on an alternate one.
    Lost { fast: bool },
    /// Received, by a gap block.
    GapAcked,
}

/// A sent chunk that is not cumulatively acknowledged.
#[derive(Debug)]
pub(super) struct SentChunk {
    pub(super) data: DataChunk,
    /// The path of its last transmission.
    pub(super) path: u8,
    pub(super) whereabouts: SentChunkStatus,
    /// Number of SACKs that report it missing.
    pub(super) missing: u8,
    /// True after its fast retransmission, which happens only once (RFC 9260 §7.2.4 rule 5).
    pub(super) fast_retransmitted: bool,
    /// True if a gap block acknowledged it and the last SACK does not.
    pub(super) is_reneged: bool,
}

impl SentChunk {
    /// Returns its octets in a packet, with header and padding.
    pub(super) fn wire_size(&self) -> u32 {
        round_to_words(DATA_HEADER + self.data.payload.len)
    }
    /// Returns its octets of the congestion window.
    pub(super) fn congestion_window_octets(&self, config: &SctpConfig) -> u32 {
        if config.headers_in_window { self.wire_size() } else { self.data.payload.len }
    }
}

/// The sender of an association.
#[derive(Debug)]
pub(super) struct SctpSender {
    /// Chunks never sent; they have no TSN yet.
    pub(super) queue: VecDeque<DataChunk>,
    /// Octets of the queued chunks on the wire, padded.
    pub(super) queued: u32,
    /// Sent chunks, consecutive from the one behind `cumulative` on.
    pub(super) sent: VecDeque<SentChunk>,
    /// Cumulative TSN Ack Point.
    pub(super) cumulative: u32,
    /// Number of lost chunks in `sent`.
    pub(super) lost: usize,
    /// Octets of the chunks in `sent` on the wire, padded.
    sent_octets: u32,
    /// User data in flight, over all paths.
    pub(super) flying: u32,
    ssns: Vec<u16>,
}

/// Maximum octets queued or unacknowledged, on the wire: far below the range of 32 bits.
const MAX_QUEUED: u64 = 1 << 30;

impl SctpSender {
    pub(super) fn new(tsn: u32) -> Self {
        Self {
            queue: VecDeque::new(),
            queued: 0,
            sent: VecDeque::new(),
            cumulative: tsn.wrapping_sub(1),
            lost: 0,
            sent_octets: 0,
            flying: 0,
            ssns: Vec::new(),
        }
    }
    /// True if all data is sent and acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.queue.is_empty()
    }
    /// Returns the octets on the wire that are queued or not cumulatively acknowledged.
    pub(super) fn wire_octets(&self) -> u32 {
        self.queued.saturating_add(self.sent_octets)
    }
    /// Returns the TSN of the last sent chunk.
    pub(super) fn last_tsn(&self) -> u32 {
        self.cumulative.wrapping_add(self.sent.len() as u32)
    }

    /// Cuts a message into chunks of at most `most` octets of user data and queues them; false if the queue is full.
    pub(super) fn push_message(&mut self, message: UserMessage, most: u32) -> bool {
        let UserMessage { stream, ppid, unordered, payload } = message;
        // RFC 9260, 6.9: no fragment exceeds the path MTU.
        let pieces = payload.len.div_ceil(most);
        let wire = u64::from(payload.len) + u64::from(pieces) * u64::from(DATA_HEADER + 3);
        if wire + u64::from(self.queued) + u64::from(self.sent_octets) > MAX_QUEUED {
            return false;
        }
        let ssn = if unordered { 0 } else { self.next_ssn(stream) };
        // RFC 9260, 6.9: all fragments have the same stream, sequence number and U flag.
        let whole = DataChunk { stream, ssn, ppid, unordered, ..DataChunk::default() };
        if pieces == 1 {
            self.push_chunk(DataChunk { beginning: true, ending: true, payload, ..whole });
            return true;
        }
        for piece in 0..pieces {
            let from = piece * most;
            let len = most.min(payload.len - from);
            self.push_chunk(DataChunk {
                beginning: piece == 0,
                ending: piece == pieces - 1,
                payload: payload_slice(&payload, from, len),
                ..whole.clone()
            });
        }
        true
    }
    fn push_chunk(&mut self, data: DataChunk) {
        self.queued += round_to_words(DATA_HEADER + data.payload.len);
        self.queue.push_back(data);
    }
    fn next_ssn(&mut self, stream: u16) -> u16 {
        let at = usize::from(stream);
        if self.ssns.len() <= at {
            // RFC 9260, 6.5: from 0, one per ordered message, wrapping.
            self.ssns.resize(at + 1, 0);
        }
        let ssn = self.ssns[at];
        self.ssns[at] = ssn.wrapping_add(1);
        ssn
    }
    /// Drops chunks queued on streams beyond `streams`; returns their number.
    pub(super) fn truncate_streams(&mut self, streams: u16) -> u64 {
        let before = self.queue.len();
        self.queue.retain(|data| data.stream < streams);
        self.queued = self.queue.iter().map(|data| round_to_words(DATA_HEADER + data.payload.len)).sum();
        (before - self.queue.len()) as u64
    }

    /// Moves the first queued chunk to the sent ones, on `path`, and returns a copy with its TSN.
    pub(super) fn send_next(&mut self, path: u8) -> Option<DataChunk> {
        let mut data = self.queue.pop_front()?;
        data.tsn = self.last_tsn().wrapping_add(1);
        self.queued -= round_to_words(DATA_HEADER + data.payload.len);
        self.flying += data.payload.len;
        self.sent_octets += round_to_words(DATA_HEADER + data.payload.len);
        self.sent.push_back(SentChunk {
            data: data.clone(),
            path,
            whereabouts: SentChunkStatus::Flying,
            missing: 0,
            fast_retransmitted: false,
            is_reneged: false,
        });
        Some(data)
    }
    /// Removes the first chunk after its cumulative acknowledgement.
    pub(super) fn pop(&mut self) -> Option<SentChunk> {
        let sent = self.sent.pop_front()?;
        self.cumulative = sent.data.tsn;
        self.sent_octets -= sent.wire_size();
        Some(sent)
    }
    /// Returns the position of the first lost chunk.
    pub(super) fn first_lost_chunk(&self) -> Option<usize> {
        if self.lost == 0 {
            return None;
        }
        self.sent.iter().position(|s| matches!(s.whereabouts, SentChunkStatus::Lost { .. }))
    }
}

/// Returns `len` octets of a payload from `from` on.
fn payload_slice(payload: &Payload, from: u32, len: u32) -> Payload {
    let bytes = payload.as_slice();
    let clip = |at: u32| (at as usize).min(bytes.len());
    let piece = &bytes[clip(from)..clip(from + len)];
    Payload { len, bytes: (!piece.is_empty()).then(|| piece.into()) }
}

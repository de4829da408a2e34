//! Fragmentation and reassembly of messages, for transports with a size limit.
//!
//! A fragment consists of a header, the source and destination identifiers, and a part of the rest of the message.
//! The header has the bits, message identifier and transaction of the message. The fragment number (FN) runs from 0
//! to [`MAX_FRAGMENT`], and the M bit is set in all fragments but the last. A cut can fall within a parameter.
//!
//! Each fragment repeats both identifiers. This is an assumption: the receiver needs them to tell transactions apart,
//! and the header has none. The dissector shows everything after a fragment's header as octets.

use crate::header::{HEADER, MAX_FRAGMENT, MihHeader};
use crate::message::{DecodeErrorKind, read_endpoint_id, split_header};
use crate::tlv::kind;
use crate::{MessageId, MihfId, TransactionId};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, OctetReader, OctetWriter, counters};

/// Why a message cannot be fragmented.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FragmentError {
    /// The octets are not a message, or are already a fragment.
    #[error(transparent)]
    NoMessage(#[from] DecodeErrorKind),
    /// Fragments of `max` octets are too short, or the message needs more than 128 of them.
    #[error("{octets} octets do not fit into fragments of {max}")]
    TooSmall {
        /// Octets of the message.
        octets: usize,
        /// Maximum octets of a fragment.
        max: usize,
    },
}

/// A message's header, its encoded identifiers, and the rest.
struct MihMessageParts<'a> {
    header: MihHeader,
    ends: &'a [u8],
    source: MihfId,
    destination: MihfId,
    rest: &'a [u8],
}

fn split_parts(octets: &[u8]) -> Result<MihMessageParts<'_>, DecodeErrorKind> {
    let (header, payload) = split_header(octets)?;
    let mut r = OctetReader::new(payload);
    let source = read_endpoint_id(&mut r, kind::SOURCE)?;
    let destination = read_endpoint_id(&mut r, kind::DESTINATION)?;
    let rest = r.take_rest();
    let ends = &payload[..payload.len() - rest.len()];
    Ok(MihMessageParts { header, ends, source, destination, rest })
}

/// Splits an encoded message into fragments of at most `max` octets, headers included. A message that is no longer
/// than `max` stays whole.
///
/// # Errors
/// The octets are not a whole message, or the message does not fit into 128 fragments of that size.
pub fn fragment_message(message: &[u8], max: usize) -> Result<Vec<Vec<u8>>, FragmentError> {
    let MihMessageParts { header, ends, rest, .. } = split_parts(message)?;
    if header.is_fragment() {
        return Err(DecodeErrorKind::Fragment.into());
    }
    if message.len() <= max {
        return Ok(alloc::vec![message.to_vec()]);
    }
    let room = max.saturating_sub(HEADER + ends.len());
    let too_small = FragmentError::TooSmall { octets: message.len(), max };
    if room == 0 || rest.len().div_ceil(room) > usize::from(MAX_FRAGMENT) + 1 {
        return Err(too_small);
    }
    let count = rest.len().div_ceil(room);
    let piece = |(number, part): (usize, &[u8])| {
        let more = number + 1 < count;
        let len = u16::try_from(ends.len() + part.len()).map_err(|_| too_small)?;
        let header = MihHeader { more, fragment: number as u8, len, ..header };
        let mut out = Vec::with_capacity(header.total_length());
        let mut w = OctetWriter::new(&mut out);
        header.emit(&mut w);
        w.write_bytes(ends).write_bytes(part);
        Ok(out)
    };
    rest.chunks(room).enumerate().map(piece).collect()
}

/// Limits of a [`FragmentReassembler`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReassemblyLimits {
    /// Octets of one message, without its header and the identifiers.
    pub octets: usize,
    /// Number of incomplete messages.
    pub messages: usize,
    /// Time from the first fragment until an incomplete message is dropped.
    pub reassembly_timeout: Duration,
}

counters! {
    /// Counters of fragments and their messages.
    pub struct ReassemblyCounters {
        /// Messages reassembled.
        completed,
        /// Fragments received again.
        duplicates,
        /// Octets that are not a fragment, or a fragment that does not match its message.
        malformed,
        /// Messages dropped: too long.
        oversize,
        /// Fragments dropped: too many messages were incomplete.
        refused,
        /// Messages dropped: the rest did not come in time.
        timeouts,
    }
}

/// Identifies the message that a fragment belongs to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct ReassemblyKey {
    source: MihfId,
    destination: MihfId,
    id: MessageId,
    transaction: TransactionId,
}

#[derive(Debug)]
struct PartialMessage {
    deadline: Instant,
    pieces: BTreeMap<u8, Vec<u8>>,
    last: Option<u8>,
    octets: usize,
    /// From fragment 0: the header and the encoded identifiers.
    first: Option<(MihHeader, Vec<u8>)>,
}

impl PartialMessage {
    fn new(deadline: Instant) -> Self {
        Self { deadline, pieces: BTreeMap::new(), last: None, octets: 0, first: None }
    }
    /// False if the fragment contradicts the fragments already received.
    fn accepts_fragment(&self, header: &MihHeader) -> bool {
        match (self.last, header.more) {
            (Some(last), true) => header.fragment < last,
            (Some(last), false) => header.fragment == last,
            (None, true) => header.fragment < MAX_FRAGMENT,
            (None, false) => {
                self.pieces.last_key_value().is_none_or(|(highest, _)| *highest < header.fragment)
            }
        }
    }
    /// Returns the message once all its fragments are there. The inner `None`: it is longer than a header can
    /// express.
    fn assemble_message(&self) -> Option<Option<Vec<u8>>> {
        let (header, ends) = self.first.as_ref()?;
        if self.pieces.len() != usize::from(self.last?) + 1 {
            return None;
        }
        let Ok(len) = u16::try_from(ends.len() + self.octets) else { return Some(None) };
        let header = MihHeader { more: false, fragment: 0, len, ..*header };
        let mut out = Vec::with_capacity(header.total_length());
        let mut w = OctetWriter::new(&mut out);
        header.emit(&mut w);
        w.write_bytes(ends);
        self.pieces.values().for_each(|piece| {
            w.write_bytes(piece);
        });
        Some(Some(out))
    }
}

/// Reassembles messages from fragments in any order, with duplicates, within limits.
#[derive(Debug)]
pub struct FragmentReassembler {
    limits: ReassemblyLimits,
    incomplete: BTreeMap<ReassemblyKey, PartialMessage>,
    counters: ReassemblyCounters,
}

impl FragmentReassembler {
    /// Returns an empty reassembly.
    pub fn new(limits: ReassemblyLimits) -> Self {
        Self { limits, incomplete: BTreeMap::new(), counters: ReassemblyCounters::default() }
    }
    /// Returns the counters of fragments.
    pub const fn counters(&self) -> &ReassemblyCounters {
        &self.counters
    }
    /// Returns the number of incomplete messages.
    pub fn incomplete_count(&self) -> usize {
        self.incomplete.len()
    }
    /// Processes a received packet. A whole packet is returned unchanged, whether it parses as a message or not. A
    /// fragment is stored, and the message that it completes is returned. That message's header has the bits of its
    /// first fragment.
    pub fn receive_packet<'a>(&mut self, now: Instant, octets: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        self.handle_timeout(now);
        if !MihHeader::parse(octets).is_ok_and(|h| h.is_fragment()) {
            return Some(Cow::Borrowed(octets));
        }
        let Ok(MihMessageParts { header, ends, source, destination, rest }) = split_parts(octets) else {
            self.counters.malformed += 1;
            return None;
        };
        let key = ReassemblyKey { source, destination, id: header.id, transaction: header.transaction };
        let full = self.incomplete.len() >= self.limits.messages;
        let message = match self.incomplete.entry(key.clone()) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(_) if full => {
                self.counters.refused += 1;
                return None;
            }
            Entry::Vacant(free) => free.insert(PartialMessage::new(now + self.limits.reassembly_timeout)),
        };
        if message.pieces.contains_key(&header.fragment) {
            self.counters.duplicates += 1;
            return None;
        }
        if !message.accepts_fragment(&header) {
            self.counters.malformed += 1;
            return None;
        }
        message.octets += rest.len();
        message.pieces.insert(header.fragment, rest.to_vec());
        if !header.more {
            message.last = Some(header.fragment);
        }
        if header.fragment == 0 {
            message.first = Some((header, ends.to_vec()));
        }
        let whole = if message.octets > self.limits.octets { Some(None) } else { message.assemble_message() };
        let whole = whole?;
        self.incomplete.remove(&key);
        match whole {
            Some(whole) => {
                self.counters.completed += 1;
                Some(Cow::Owned(whole))
            }
            None => {
                self.counters.oversize += 1;
                None
            }
        }
    }
    /// Returns when the next incomplete message expires.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.incomplete.values().map(|m| m.deadline).min()
    }
    /// Drops incomplete messages that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        let before = self.incomplete.len();
        self.incomplete.retain(|_, message| message.deadline > now);
        self.counters.timeouts += (before - self.incomplete.len()) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeaderFlags, MihfMessage};
    use proptest::prelude::*;

    const LIMITS: ReassemblyLimits =
        ReassemblyLimits { octets: 70_000, messages: 2, reassembly_timeout: Duration::from_secs(5) };

    fn encoded_message(octets: usize, transaction: u16) -> Vec<u8> {
        let source = MihfId::new("mn@example").unwrap();
        let destination = MihfId::new("pos1@example").unwrap();
        let message = MihfMessage::new(MessageId::DEREGISTER_REQUEST, []);
        let message = message.with_padding_to_length(octets, &source, &destination).unwrap();
        let mut out = Vec::new();
        let bits = HeaderFlags { ack_req: true, ..HeaderFlags::default() };
        message.encode(bits, TransactionId::new(transaction), &source, &destination, &mut out).unwrap();
        assert_eq!(out.len(), octets);
        out
    }

    fn at_seconds(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_message_that_fits_stays_whole() {
        let whole = encoded_message(300, 1);
        assert_eq!(fragment_message(&whole, 300), Ok(alloc::vec![whole.clone()]));
        let mut reassembly = FragmentReassembler::new(LIMITS);
        assert_eq!(reassembly.receive_packet(at_seconds(0), &whole).as_deref(), Some(&whole[..]));
    }

    #[test]
    fn every_fragment_has_a_header_and_both_identifiers() {
        let whole = encoded_message(1000, 1);
        let pieces = fragment_message(&whole, 300).unwrap();
        assert_eq!(pieces.len(), 4);
        for (i, piece) in pieces.iter().enumerate() {
            let MihMessageParts { header, source, destination, .. } = split_parts(piece).unwrap();
            assert!(piece.len() <= 300 && header.total_length() == piece.len());
            assert_eq!((usize::from(header.fragment), header.more, header.ack_req), (i, i < 3, true));
            assert_eq!(
                (source.as_bytes(), destination.as_bytes()),
                (&b"mn@example"[..], &b"pos1@example"[..])
            );
            assert!(matches!(
                fragment_message(piece, 100),
                Err(FragmentError::NoMessage(DecodeErrorKind::Fragment))
            ));
            assert!(matches!(MihfMessage::decode(piece), Err(e) if e.fault == DecodeErrorKind::Fragment));
        }
    }

    #[test]
    fn what_does_not_fit_into_128_fragments_is_not_cut() {
        let whole = encoded_message(10_000, 1);
        assert!(matches!(fragment_message(&whole, 40), Err(FragmentError::TooSmall { .. })));
        assert!(matches!(fragment_message(&whole, 8), Err(FragmentError::TooSmall { .. })));
        assert!(fragment_message(&whole, 8 + 28 + 78).is_ok_and(|f| f.len() == 128));
    }

    #[test]
    fn fragments_of_several_messages_are_told_apart() {
        let (one, two) = (encoded_message(700, 1), encoded_message(700, 2));
        let (a, b) = (fragment_message(&one, 400).unwrap(), fragment_message(&two, 400).unwrap());
        let mut reassembly = FragmentReassembler::new(LIMITS);
        assert_eq!(reassembly.receive_packet(at_seconds(0), &a[1]), None);
        assert_eq!(reassembly.receive_packet(at_seconds(0), &b[0]), None);
        assert_eq!(reassembly.receive_packet(at_seconds(0), &a[0]).as_deref(), Some(&one[..]));
        assert_eq!(reassembly.receive_packet(at_seconds(0), &b[1]).as_deref(), Some(&two[..]));
        assert_eq!(reassembly.counters().completed, 2);
        assert_eq!(reassembly.incomplete_count(), 0);
    }

    #[test]
    fn the_table_the_length_and_the_wait_are_bounded() {
        let pieces = |n| fragment_message(&encoded_message(900, n), 400).unwrap();
        let mut reassembly = FragmentReassembler::new(ReassemblyLimits { octets: 600, ..LIMITS });
        for n in 0..3 {
            assert_eq!(reassembly.receive_packet(at_seconds(0), &pieces(n)[1]), None);
        }
        assert_eq!((reassembly.incomplete_count(), reassembly.counters().refused), (2, 1));
        assert_eq!(reassembly.poll_timeout(), Some(at_seconds(5)));
        assert_eq!(reassembly.receive_packet(at_seconds(4), &pieces(0)[0]), None);
        assert_eq!((reassembly.incomplete_count(), reassembly.counters().oversize), (1, 1));
        reassembly.handle_timeout(at_seconds(5));
        assert_eq!((reassembly.incomplete_count(), reassembly.counters().timeouts), (0, 1));
        assert_eq!(reassembly.poll_timeout(), None);
    }

    #[test]
    fn fragments_that_contradict_each_other_are_dropped() {
        let long = fragment_message(&encoded_message(900, 1), 300).unwrap();
        let short = fragment_message(&encoded_message(500, 1), 300).unwrap();
        assert_eq!((long.len(), short.len()), (4, 2));
        let mut reassembly = FragmentReassembler::new(LIMITS);
        assert_eq!(reassembly.receive_packet(at_seconds(0), &short[1]), None);
        assert_eq!(reassembly.receive_packet(at_seconds(0), &long[2]), None, "beyond the last");
        assert_eq!(reassembly.receive_packet(at_seconds(0), &long[3]), None, "a second last");
        assert_eq!(reassembly.receive_packet(at_seconds(0), &long[3][..20]), None, "not whole");
        assert_eq!(reassembly.counters().malformed, 3);
        assert!(reassembly.receive_packet(at_seconds(0), &short[0]).is_some());
    }

    proptest! {
        #[test]
        fn fragments_in_any_order_with_duplicates_give_the_message(
            octets in 40usize..3000, max in 60usize..700, seed in proptest::collection::vec(any::<u16>(), 1..200),
        ) {
            let whole = encoded_message(octets, 9);
            let pieces = fragment_message(&whole, max).unwrap();
            prop_assert!(pieces.iter().all(|p| p.len() <= max));
            let mut order: Vec<usize> = (0..pieces.len()).collect();
            order.sort_by_key(|i| seed[i % seed.len()].wrapping_mul(*i as u16 + 1));
            let mut reassembly = FragmentReassembler::new(LIMITS);
            let mut given = Vec::new();
            let (last, others) = order.split_last().unwrap();
            for i in others.iter().chain(others).chain([last]) {
                given.extend(reassembly.receive_packet(at_seconds(0), &pieces[*i]).map(Cow::into_owned));
            }
            prop_assert_eq!(given, alloc::vec![whole]);
            prop_assert_eq!(reassembly.counters().duplicates, others.len() as u64);
            prop_assert_eq!(reassembly.incomplete_count(), 0);
        }
    }
}

//! Framing of messages in a byte stream, and the policy that maps messages to SCTP streams.

use alloc::vec::Vec;

/// A framing error. The connection must be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The next message exceeds the limit.
    #[error("a message of {0} bytes exceeds the limit")]
    TooLong(usize),
    /// The next length is shorter than a header, or not a multiple of four.
    #[error("wrong message length {0}")]
    BadLength(usize),
    /// The next message has another version, so its length is unreliable.
    #[error("unsupported version {0}, not 1")]
    Version(u8),
}

/// Frames messages of a byte stream (RFC 6733 §2.1). A message inside one piece of data is not copied.
#[derive(Clone, Debug)]
pub struct MessageFramer {
    partial: Vec<u8>,
    max: usize,
}

impl MessageFramer {
    /// Returns a framer with a maximum message length, bytes.
    pub const fn new(max: usize) -> Self {
        Self { partial: Vec::new(), max }
    }

    fn message_length(&self, head: &[u8]) -> Result<Option<usize>, FrameError> {
        let Some(&[version, a, b, c]) = head.first_chunk::<4>() else { return Ok(None) };
        if version != 1 {
            return Err(FrameError::Version(version));
        }
        let n = u32::from_be_bytes([0, a, b, c]) as usize;
        if n < 20 || !n.is_multiple_of(4) {
            return Err(FrameError::BadLength(n));
        }
        if n > self.max {
            return Err(FrameError::TooLong(n));
        }
        Ok(Some(n))
    }

    /// Returns the next whole message of the kept data and `data`, and advances `data`. The message is
    /// `FramedMessage::Borrowed` (inside `data`) or `FramedMessage::Joined`. `None` if all of `data` is consumed.
    ///
    /// # Errors
    /// The framing is lost.
    pub fn next_message<'a>(&mut self, data: &mut &'a [u8]) -> Result<Option<FramedMessage<'a>>, FrameError> {
        if self.partial.is_empty() {
            if let Some(n) = self.message_length(data)?
                && let Some((message, rest)) = data.split_at_checked(n)
            {
                *data = rest;
                return Ok(Some(FramedMessage::Borrowed(message)));
            }
            self.partial.extend_from_slice(data);
            *data = &[];
            return Ok(None);
        }
        let mut take = |partial: &mut Vec<u8>, upto: usize| {
            let n = upto.saturating_sub(partial.len()).min(data.len());
            let (head, rest) = data.split_at(n);
            partial.extend_from_slice(head);
            *data = rest;
        };
        take(&mut self.partial, 4);
        let Some(n) = self.message_length(&self.partial)? else { return Ok(None) };
        take(&mut self.partial, n);
        Ok((self.partial.len() == n).then(|| FramedMessage::Joined(core::mem::take(&mut self.partial))))
    }
}

/// A whole message from a [`MessageFramer`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FramedMessage<'a> {
    /// A message inside the given data.
    Borrowed(&'a [u8]),
    /// A message joined from several pieces.
    Joined(Vec<u8>),
}

impl FramedMessage<'_> {
    /// The message's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(b) => b,
            Self::Joined(b) => b,
        }
    }
}

/// The payload protocol identifier of Diameter in clear over SCTP (RFC 6733 §2.1.1).
pub const SCTP_PPID: u32 = 46;
/// The payload protocol of nodes before RFC 6733 (RFC 3588). Accepted, never sent.
pub const SCTP_PPID_UNSPECIFIED: u32 = 0;

/// The choice of a message's SCTP stream. RFC 6733 §2.1.1 recommends [`StreamPolicy::Unordered`]. It allows other means
/// against head-of-line blocking, and an answer on another stream than its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StreamPolicy {
    /// All messages on stream 0, in order.
    #[default]
    SingleStream,
    /// The session's number modulo the number of streams, which keeps the order within a session. The number is that at
    /// the end of the Session-Id (RFC 6733 §8.8), so that consecutive sessions have different streams. Otherwise it is
    /// a hash.
    BySession,
    /// Stream 0, unordered.
    Unordered,
}

impl StreamPolicy {
    /// Returns stream and unordered flag for a request of this Session-Id over `streams` streams. Base messages have no
    /// Session-Id and go in order on stream 0.
    pub fn request_stream(self, session: Option<&[u8]>, streams: u16) -> (u16, bool) {
        match (self, session) {
            (Self::BySession, Some(session)) => {
                ((session_number(session) % u64::from(streams.max(1))) as u16, false)
            }
            (Self::Unordered, Some(_)) => (0, true),
            _ => (0, false),
        }
    }

    /// Returns stream and unordered flag for the answer to a request on stream `came_by`. With
    /// [`StreamPolicy::BySession`] it is the same stream, so that the client's mapping holds in both directions. With
    /// fewer streams of our own it is taken modulo their number.
    pub fn answer_stream(self, came_by: u16, streams: u16) -> (u16, bool) {
        match self {
            Self::SingleStream => (0, false),
            Self::BySession => (came_by % streams.max(1), false),
            Self::Unordered => (0, true),
        }
    }
}

fn session_number(session: &[u8]) -> u64 {
    let last = session.rsplit(|&b| b == b';').next().unwrap_or_default();
    let number = core::str::from_utf8(last).ok().and_then(|n| n.parse().ok());
    // FNV-1a is stable across builds; the choice of stream is visible on the wire.
    let hash = |h: u64, &b: &u8| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
    number.unwrap_or_else(|| session.iter().fold(0xcbf2_9ce4_8422_2325, hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_message(len: usize, fill: u8) -> Vec<u8> {
        let mut m = vec![fill; len];
        m[0] = 1;
        m[1..4].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
        m
    }

    #[test]
    fn any_cut_gives_the_same_messages() {
        let all = [test_message(20, 1), test_message(44, 2), test_message(24, 3)];
        let stream: Vec<u8> = all.concat();
        for step in 1..stream.len() {
            let mut framer = MessageFramer::new(64);
            let mut got = Vec::new();
            for mut piece in stream.chunks(step) {
                while let Some(m) = framer.next_message(&mut piece).unwrap() {
                    got.push(m.as_bytes().to_vec());
                }
                assert!(piece.is_empty());
            }
            assert_eq!(got, all);
        }
    }

    #[test]
    fn lying_lengths_end_the_stream() {
        let mut f = MessageFramer::new(40);
        assert_eq!(f.next_message(&mut &test_message(44, 0)[..]), Err(FrameError::TooLong(44)));
        assert_eq!(f.next_message(&mut &[1, 0, 0, 16][..]), Err(FrameError::BadLength(16)));
        assert_eq!(f.next_message(&mut &[1, 0, 0, 22][..]), Err(FrameError::BadLength(22)));
        assert_eq!(f.next_message(&mut &[2, 0, 0, 20][..]), Err(FrameError::Version(2)));
    }

    #[test]
    fn policies() {
        assert_eq!(StreamPolicy::SingleStream.request_stream(Some(b"s"), 8), (0, false));
        assert_eq!(StreamPolicy::Unordered.request_stream(Some(b"s"), 8), (0, true));
        assert_eq!(StreamPolicy::Unordered.request_stream(None, 8), (0, false));
        let streams: Vec<u16> =
            (0..100u8).map(|i| StreamPolicy::BySession.request_stream(Some(&[i]), 4).0).collect();
        assert!((0..4).all(|s| streams.contains(&s)) && streams.iter().all(|&s| s < 4));
        assert_eq!(StreamPolicy::BySession.request_stream(Some(b"x"), 0), (0, false));
        assert_eq!(
            [7, 9, 0].map(|s| StreamPolicy::BySession.answer_stream(s, 8)),
            [(7, false), (1, false), (0, false)]
        );
        assert_eq!(StreamPolicy::BySession.answer_stream(3, 0), (0, false));
        assert_eq!(StreamPolicy::SingleStream.answer_stream(7, 8), (0, false));
        assert_eq!(StreamPolicy::Unordered.answer_stream(7, 8), (0, true));
    }
}

//! Fast Open from the client's side (RFC 7413): data on a SYN, for servers that gave a cookie before. A server that
//! accepts such data is not had: it ignores the option, and the data comes again.

use super::config::TcpConfig;
use super::connection::{TcpConnection, TcpState};
use super::seq;
use std::fmt;
use std::sync::Arc;
use usher_core::{CloseReason, Instant};

/// What a Fast Open option carries: a cookie of 4 to 16 bytes, an even number of them, or nothing, which asks for one
/// (RFC 7413 §4.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct FastOpenCookie {
    len: u8,
    bytes: [u8; 16],
}

impl FastOpenCookie {
    /// The cookie of these bytes, or the empty one; `None` for a length that no cookie has.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let good = bytes.is_empty() || (4..=16).contains(&bytes.len()) && bytes.len().is_multiple_of(2);
        if !good {
            return None;
        }
        let mut cookie = Self { len: bytes.len() as u8, bytes: [0; 16] };
        cookie.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(cookie)
    }
    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
    /// True where it asks for a cookie.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for FastOpenCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a connection that opens by Fast Open knows.
#[derive(Debug)]
pub(super) struct FastOpenState {
    /// What its SYN carries.
    pub(super) offered: FastOpenCookie,
    /// The most data that its SYN carries, in bytes, options included.
    pub(super) mss: u16,
    /// Data went with a SYN.
    pub(super) sent: bool,
    /// What the other side's SYN-ACK carried.
    pub(super) received_cookie: Option<FastOpenCookie>,
    /// The size that it announced.
    pub(super) peer_mss: u16,
    /// Data on the SYN was acknowledged.
    pub(super) is_data_acked: bool,
    /// A SYN-ACK has come.
    pub(super) answered: bool,
}

/// What a client keeps of one server (RFC 7413 §4.1.3).
///
/// A server that gave no cookie, did not answer, or did not take the data although it gave no other cookie, is asked
/// by ordinary SYNs from then on (§4.1.3.1), as long as this is kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FastOpenCache {
    cookie: FastOpenCookie,
    mss: Option<u16>,
    refused: bool,
}

impl FastOpenCache {
    /// Opens a connection as [`TcpConnection::connect`] does, by Fast Open where the server takes it. What is written
    /// before the first segment is polled goes with the SYN.
    #[must_use]
    pub fn connect(&self, config: Arc<TcpConfig>, iss: u32, now: Instant) -> TcpConnection {
        let default = config.default_peer_mss;
        let mut c = TcpConnection::connect(config, iss, now);
        if !self.refused {
            c.rare_state.get_or_insert_default().opening = Some(FastOpenState {
                offered: self.cookie,
                mss: self.mss.unwrap_or(default),
                sent: false,
                received_cookie: None,
                peer_mss: default,
                is_data_acked: false,
                answered: false,
            });
        }
        c
    }

    /// Learns from a connection of its own that is open, or has failed.
    pub fn learn_from(&mut self, c: &TcpConnection) {
        let Some(opening) = c.rare_state.as_ref().and_then(|rare| rare.opening.as_ref()) else { return };
        if let Some(cookie) = opening.received_cookie {
            self.cookie = cookie;
        }
        if opening.answered {
            self.mss = Some(opening.peer_mss);
        }
        let asked = opening.offered.is_empty();
        let answer = opening.received_cookie.is_some()
            || (opening.answered && !asked && (opening.is_data_acked || !opening.sent));
        self.refused = !answer;
    }
}

impl TcpConnection {
    /// The data that goes with a first SYN beside `options` bytes of options; `None` without Fast Open, or where the
    /// option does not fit.
    pub(super) fn data_on_syn(&mut self, options: u32) -> Option<(FastOpenCookie, u32)> {
        let waiting = seq::octets_ahead(self.iss.wrapping_add(1), self.end);
        // What is sent again goes as an ordinary SYN (§4.2.1, §4.2.2).
        let first = self.max == self.iss && self.state == TcpState::SynSent;
        let opening = self.rare_state.as_mut()?.opening.as_mut().filter(|_| first)?;
        let whole = options + super::segment::fast_open_len(opening.offered);
        if whole > super::segment::MAX_OPTIONS {
            return None;
        }
        let room = u32::from(opening.mss.min(self.config.mss)).saturating_sub(whole);
        let len = if opening.offered.is_empty() { 0 } else { waiting.min(room) };
        opening.sent = len > 0;
        Some((opening.offered, len))
    }

    /// A SYN-ACK acknowledges our SYN, and perhaps what went with it. What it does not acknowledge is as if it had not
    /// been sent.
    pub(super) fn take_syn_ack(&mut self, ack: u32, mss: Option<u16>, given: Option<FastOpenCookie>) {
        self.nxt = ack;
        self.max = ack;
        if let Some(buffer) = &mut self.send_buffer {
            buffer.release_before(ack);
        }
        let beyond_syn = ack != self.iss.wrapping_add(1);
        let default = self.config.default_peer_mss;
        if let Some(opening) = self.rare_state.as_mut().and_then(|rare| rare.opening.as_mut()) {
            opening.answered = true;
            opening.is_data_acked = beyond_syn;
            opening.received_cookie = given.filter(|cookie| !cookie.is_empty());
            opening.peer_mss = mss.unwrap_or(default);
        }
    }

    /// Hears of an ICMP error about a segment of ours that began at `seq` (RFC 9293 §3.9.2.2).
    ///
    /// A hard one about what is not acknowledged ends a connection that is not open yet. One that is open stays, as
    /// RFC 9293 notes of RFC 5927: whoever guesses a sequence number would end it. A soft one changes nothing, the
    /// SYN is sent again.
    pub fn handle_icmp_error(&mut self, seq: u32, hard: bool) {
        let opening = matches!(self.state, TcpState::SynSent | TcpState::SynReceived);
        let ours = seq::le(self.una, seq) && seq::lt(seq, self.max);
        if hard && opening && ours {
            self.fail(CloseReason::Refused);
        }
    }
}

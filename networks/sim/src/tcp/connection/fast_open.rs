//! Fast Open of a connection.

use super::{TcpConnection, TcpState};
use crate::tcp::config::TcpConfig;
use crate::tcp::fast_open::{FastOpenCache, FastOpenCookie, FastOpenState};
use crate::tcp::segment::{MAX_OPTIONS, fast_open_len};
use crate::tcp::seq;
use std::sync::Arc;
use usher_core::{CloseReason, Instant};

impl FastOpenCache {
    /// Opens a connection like [`TcpConnection::connect`], by Fast Open if the server accepts it. Data written before
    /// the first poll goes with the SYN.
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

    /// Updates the cache from a connection of its own that is open or has failed.
    pub fn update_fast_open_cache(&mut self, c: &TcpConnection) {
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
    /// Returns the data of a first SYN with `options` octets of options; `None` without Fast Open, or if the option
    /// does not fit.
    pub(in crate::tcp) fn data_on_syn(&mut self, options: u32) -> Option<(FastOpenCookie, u32)> {
        let waiting = seq::octets_ahead(self.iss.wrapping_add(1), self.end);
        // A retransmission is an ordinary SYN (§4.2.1, §4.2.2).
        let first = self.max == self.iss && self.state == TcpState::SynSent;
        let opening = self.rare_state.as_mut()?.opening.as_mut().filter(|_| first)?;
        let whole = options + fast_open_len(opening.offered);
        if whole > MAX_OPTIONS {
            return None;
        }
        let room = u32::from(opening.mss.min(self.config.mss)).saturating_sub(whole);
        let len = if opening.offered.is_empty() { 0 } else { waiting.min(room) };
        opening.sent = len > 0;
        Some((opening.offered, len))
    }

    /// Handles a SYN-ACK, which may acknowledge data on the SYN. Unacknowledged data counts as never sent.
    pub(in crate::tcp) fn apply_fast_open_syn_ack(
        &mut self,
        ack: u32,
        mss: Option<u16>,
        given: Option<FastOpenCookie>,
    ) {
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

    /// Handles an ICMP error for a segment that began at `seq` (RFC 9293 §3.9.2.2).
    ///
    /// A hard error for unacknowledged data ends a connection that is not established. An established one stays, as
    /// RFC 9293 notes of RFC 5927: an attacker that guesses a sequence number could end it. A soft error has no
    /// effect; the SYN is retransmitted.
    pub fn handle_icmp_error(&mut self, seq: u32, hard: bool) {
        let opening = matches!(self.state, TcpState::SynSent | TcpState::SynReceived);
        let ours = seq::le(self.una, seq) && seq::lt(seq, self.max);
        if hard && opening && ours {
            self.fail(CloseReason::Refused);
        }
    }
}

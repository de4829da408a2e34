//! Output (RFC 9260 §6.1, §6.10): which packets may be sent now, bundled.

use super::association::{OutgoingSctpPacket, SctpAssociation, SctpAssociationState};
use super::chunk::{Chunk, DataChunk, SctpPacket, round_to_words};
use super::config::LossRecovery;
use super::outbound::SentChunkStatus;
use super::{COMMON_HEADER, DATA_HEADER};
use crate::tcp::seq;
use usher_core::{Duration, Instant};

/// Maximum chunks sent and not acknowledged: the range of gap blocks and of stream sequence numbers (§3.3.4,
/// §6.1).
const MAX_SENT: usize = 65_535;

/// The next DATA that may be sent: its path and its first chunk's size.
#[derive(Clone, Copy)]
struct NextDataChunk {
    path: u8,
    len: u32,
}

/// A packet being filled.
struct SctpPacketBuilder {
    chunks: Vec<Chunk>,
    remaining: u32,
    path: Option<u8>,
}

impl SctpPacketBuilder {
    /// Adds a chunk if it fits, or if the packet is empty.
    fn push_chunk(&mut self, path: u8, chunk: Chunk) {
        self.remaining = self.remaining.saturating_sub(chunk.padded_len());
        self.chunks.push(chunk);
        self.path.get_or_insert(path);
    }
    fn accepts_path(&self, path: u8) -> bool {
        self.path.is_none_or(|p| p == path)
    }
}

impl SctpAssociation {
    /// Returns the next packet to send; poll until `None`.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<OutgoingSctpPacket> {
        if !self.wake {
            return None;
        }
        let transmit = self.replies.pop_front().or_else(|| self.build_packet(now));
        match &transmit {
            Some(transmit) => {
                self.stats.packets_sent += 1;
                self.stats.control_packets += u64::from(!transmit.packet.has_data());
            }
            None => self.wake = false,
        }
        transmit
    }

    fn build_packet(&mut self, now: Instant) -> Option<OutgoingSctpPacket> {
        match self.state {
            SctpAssociationState::Closed => None,
            SctpAssociationState::CookieWait => {
                if !std::mem::take(&mut self.setup_due) {
                    return None;
                }
                self.record_setup_send_time(now);
                Some(OutgoingSctpPacket { path: self.timer_path, packet: self.init_packet() })
            }
            SctpAssociationState::CookieEchoed => {
                if !std::mem::take(&mut self.setup_due) {
                    return None;
                }
                self.record_setup_send_time(now);
                let mut filling = self.start_packet();
                // RFC 9260, 5.1: COOKIE ECHO is first; no other packet leaves before COOKIE ACK.
                filling.push_chunk(self.timer_path, Chunk::CookieEcho(self.cookie.clone()));
                self.push_control(&mut filling);
                self.push_data_behind_cookie(now, &mut filling);
                self.finish_packet(filling)
            }
            _ => self.build_established_packet(now),
        }
    }

    fn record_setup_send_time(&mut self, now: Instant) {
        self.setup_sent_at = (self.retries == 0).then_some(now);
    }
    fn start_packet(&self) -> SctpPacketBuilder {
        let room = self.config.packet_size() - COMMON_HEADER;
        SctpPacketBuilder { chunks: Vec::new(), remaining: room, path: None }
    }
    fn finish_packet(&self, filling: SctpPacketBuilder) -> Option<OutgoingSctpPacket> {
        // RFC 9260, 3.1: the peer's verification tag.
        let packet = SctpPacket { vtag: self.peer_tag, chunks: filling.chunks };
        Some(OutgoingSctpPacket { path: filling.path?, packet })
    }

    fn push_control(&mut self, filling: &mut SctpPacketBuilder) {
        while let Some((path, chunk)) = self.control.front() {
            let fits = chunk.padded_len() <= filling.remaining || filling.chunks.is_empty();
            if !fits || !filling.accepts_path(*path) {
                break;
            }
            if let Some((path, chunk)) = self.control.pop_front() {
                filling.push_chunk(path, chunk);
            }
        }
    }

    fn build_established_packet(&mut self, now: Instant) -> Option<OutgoingSctpPacket> {
        let mut filling = self.start_packet();
        // RFC 9260, 6.10: control chunks stand before DATA.
        self.push_control(&mut filling);
        let next = self.next_sendable_data(now).filter(|next| filling.accepts_path(next.path));
        if self.owe_sack {
            let len = self.inb.sack_len(self.config.pmdcs());
            let rides = next.filter(|next| self.config.bundle_sacks && len + next.len <= filling.remaining);
            if rides.is_some() || (self.sack_now && len <= filling.remaining) {
                let path = rides.map_or(self.sack_path, |next| next.path);
                self.push_sack(path, &mut filling);
                if !self.config.bundle_sacks {
                    return self.finish_packet(filling);
                }
            }
        }
        if let Some(next) = next
            && filling.accepts_path(next.path)
            && next.len <= filling.remaining
        {
            if self.out.lost > 0 {
                self.push_lost_chunks(now, next.path, &mut filling);
                self.burst = self.burst.saturating_sub(u32::from(self.bound_burst));
            } else {
                self.push_new_chunks(now, next.path, &mut filling);
                self.burst = self.burst.saturating_sub(1);
            }
        }
        self.finish_packet(filling)
    }

    fn push_sack(&mut self, path: u8, filling: &mut SctpPacketBuilder) {
        let sack = self.inb.build_sack(self.config.pmdcs(), self.config.bounded_receive_buffer());
        self.announced = sack.window;
        filling.push_chunk(path, Chunk::Sack(sack));
        self.clear_sack_due();
    }
    /// Records that all received data is acknowledged.
    pub(super) fn clear_sack_due(&mut self) {
        (self.owe_sack, self.sack_now) = (false, false);
        if self.config.duplicate_resets_delay || self.config.bundle_sacks {
            (self.unsacked, self.sack_at) = (0, Instant::FAR_FUTURE);
        }
    }

    /// Returns the next DATA, if it may be sent.
    fn next_sendable_data(&mut self, now: Instant) -> Option<NextDataChunk> {
        // RFC 9260, 6: DATA leaves in these states only.
        let sends = matches!(
            self.state,
            SctpAssociationState::Established
                | SctpAssociationState::ShutdownPending
                | SctpAssociationState::ShutdownReceived
        );
        if !sends {
            return None;
        }
        if let Some(at) = self.out.first_lost_chunk() {
            // RFC 9260, 6.1 C: before new data.
            let path = self.retransmission_path(at);
            let p = &self.paths[usize::from(path)];
            let idle = self.paths.iter().all(|p| p.flight == 0);
            let allowed = self.grant || (!self.is_repair_blocked && (idle || p.is_window_open()));
            return allowed.then(|| NextDataChunk { path, len: self.out.sent[at].wire_size() });
        }
        self.grant = false;
        let first = self.out.queue.front()?;
        let (whole, len) = (first.beginning && first.ending, first.payload.len);
        let path = self.path_of_new_data();
        let quiet = self.out.sent.is_empty();
        let p = &mut self.paths[usize::from(path)];
        p.decay_idle_window(&self.config, now);
        let full = self.out.queued >= self.config.pmdcs();
        let waits =
            self.config.nagle && whole && !full && !quiet && self.state == SctpAssociationState::Established;
        let (open, rto) = (p.is_window_open(), p.rtt.rto);
        // RFC 9260, 6.1 A: beyond the peer's window, only a probe.
        let fits = len <= self.peer_window || (quiet && self.is_window_probe_permitted(now, rto));
        let room = open && fits && !waits && self.out.sent.len() < MAX_SENT;
        let allowed = room && self.burst > 0;
        // ns-2 limits the burst only until the limit has delayed a packet.
        self.bound_burst &= !room || allowed;
        allowed.then(|| NextDataChunk { path, len: round_to_words(DATA_HEADER + len) })
    }
    /// True if a closed window, without data in flight, may be probed: after one RTO (§6.1 A).
    fn is_window_probe_permitted(&mut self, now: Instant, rto: Duration) -> bool {
        if self.probe_at == Instant::FAR_FUTURE && !self.probe_due && !self.config.probe_at_once {
            self.probe_at = now + rto;
        }
        self.probe_due || self.config.probe_at_once
    }

    /// Returns the path for retransmission of a lost chunk.
    fn retransmission_path(&self, at: usize) -> u8 {
        let sent = &self.out.sent[at];
        match sent.whereabouts {
            SentChunkStatus::Lost { fast: true } => sent.path,
            _ => self.alternate_path(sent.path),
        }
    }

    fn push_lost_chunks(&mut self, now: Instant, path: u8, filling: &mut SctpPacketBuilder) {
        let Some(first) = self.out.first_lost_chunk() else { return };
        self.grant = false;
        for at in first..self.out.sent.len() {
            let SentChunkStatus::Lost { fast } = self.out.sent[at].whereabouts else { continue };
            if self.retransmission_path(at) != path {
                continue;
            }
            let size = self.out.sent[at].wire_size();
            if size > filling.remaining {
                break;
            }
            let earlier =
                |s: &super::outbound::SentChunk| s.whereabouts == SentChunkStatus::Flying && s.path == path;
            let earliest = !self.out.sent.iter().take(at).any(earlier);
            let sent = &mut self.out.sent[at];
            sent.whereabouts = SentChunkStatus::Flying;
            sent.path = path;
            let weight = sent.congestion_window_octets(&self.config);
            self.out.lost -= 1;
            self.out.flying += sent.data.payload.len;
            let data = sent.data.clone();
            let keeps = self.config.measure_behind_retransmission;
            for p in &mut self.paths {
                // RFC 9260, 6.3.1 C5: a chunk sent before and acknowledged behind this gives no measurement.
                p.timed =
                    p.timed.filter(|&(timed, _)| keeps && timed != data.tsn || seq::lt(timed, data.tsn));
            }
            let p = &mut self.paths[usize::from(path)];
            let again = match self.config.loss_recovery {
                // RFC 9260, 7.2.4 rule 4.
                LossRecovery::Rfc9260 => fast,
                // ns-2's RtxMarkedChunks() restarts the timer only if other chunks are in flight.
                LossRecovery::Ns2 => p.flight > 0,
            };
            p.record_sent(now, weight);
            // RFC 9260, 6.1: starts T3-rtx, or restarts it for the earliest chunk.
            if p.t3_at == Instant::FAR_FUTURE || (again && earliest) {
                p.arm_t3(now);
            }
            self.stats.retransmitted_chunks += 1;
            self.push_data_chunk(path, data, filling);
        }
    }

    fn push_new_chunks(&mut self, now: Instant, path: u8, filling: &mut SctpPacketBuilder) {
        while let Some(first) = self.out.queue.front() {
            let (len, wire) = (first.payload.len, round_to_words(DATA_HEADER + first.payload.len));
            let closed = len > self.peer_window && !self.out.sent.is_empty();
            if wire > filling.remaining || closed || self.out.sent.len() >= MAX_SENT {
                break;
            }
            self.probing |= len > self.peer_window;
            (self.probe_at, self.probe_due) = (Instant::FAR_FUTURE, false);
            let Some(data) = self.out.send_next(path) else { break };
            let p = &mut self.paths[usize::from(path)];
            p.record_sent(now, if self.config.headers_in_window { wire } else { len });
            if p.timed.is_none() {
                p.timed = Some((data.tsn, now));
            }
            if self.state != SctpAssociationState::CookieEchoed {
                p.arm_heartbeat(&self.config, now);
                // RFC 9260, 6.1: starts T3-rtx unless it runs.
                if p.t3_at == Instant::FAR_FUTURE {
                    p.arm_t3(now);
                }
            }
            self.push_data_chunk(path, data, filling);
        }
    }

    fn push_data_chunk(&mut self, path: u8, data: DataChunk, filling: &mut SctpPacketBuilder) {
        self.peer_window = self.peer_window.saturating_sub(data.payload.len);
        self.stats.data_chunks += 1;
        filling.push_chunk(path, Chunk::Data(data));
    }

    /// §5.1: adds data that fits behind the cookie; no other data is sent before its acknowledgement.
    fn push_data_behind_cookie(&mut self, now: Instant, filling: &mut SctpPacketBuilder) {
        let path = self.timer_path;
        for sent in &mut self.out.sent {
            sent.path = path;
        }
        if self.out.lost > 0 {
            for sent in &mut self.out.sent {
                if let SentChunkStatus::Lost { fast } = &mut sent.whereabouts {
                    *fast = true;
                }
            }
            self.push_lost_chunks(now, path, filling);
            self.paths[usize::from(path)].t3_at = Instant::FAR_FUTURE;
        } else {
            self.push_new_chunks(now, path, filling);
        }
    }
}

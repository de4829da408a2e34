//! Output (RFC 9260 §6.1, §6.10): which packets may be sent now, bundled.

use super::association::{OutgoingPacket, SctpAssociation, SctpState};
use super::chunk::{Chunk, DataChunk, SctpPacket, round_to_words};
use super::config::LossRecovery;
use super::outbound::ChunkStatus;
use super::{COMMON_HEADER, DATA_HEADER};
use crate::tcp::seq;
use usher_core::{Duration, Instant};

/// Maximum chunks sent and not acknowledged: the range of gap blocks and of stream sequence numbers (§3.3.4,
/// §6.1).
const MAX_SENT: usize = 65_535;

/// The next DATA that may be sent: its path and its first chunk's size.
#[derive(Clone, Copy)]
struct NextData {
    path: u8,
    len: u32,
}

/// A packet being filled.
struct PacketAssembly {
    chunks: Vec<Chunk>,
    remaining: u32,
    path: Option<u8>,
}

impl PacketAssembly {
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
    pub fn poll_transmit(&mut self, now: Instant) -> Option<OutgoingPacket> {
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

    fn build_packet(&mut self, now: Instant) -> Option<OutgoingPacket> {
        match self.state {
            SctpState::Closed => None,
            SctpState::CookieWait => {
                if !std::mem::take(&mut self.setup_due) {
                    return None;
                }
                self.setup_leaves(now);
                Some(OutgoingPacket { path: self.timer_path, packet: self.init_packet() })
            }
            SctpState::CookieEchoed => {
                if !std::mem::take(&mut self.setup_due) {
                    return None;
                }
                self.setup_leaves(now);
                let mut filling = self.start_packet();
                filling.push_chunk(self.timer_path, Chunk::CookieEcho(self.cookie.clone()));
                self.push_control(&mut filling);
                self.push_data_behind_cookie(now, &mut filling);
                self.finish_packet(filling)
            }
            _ => self.build_open(now),
        }
    }

    fn setup_leaves(&mut self, now: Instant) {
        self.setup_sent_at = (self.retries == 0).then_some(now);
    }
    fn start_packet(&self) -> PacketAssembly {
        let room = self.config.packet_size() - COMMON_HEADER;
        PacketAssembly { chunks: Vec::new(), remaining: room, path: None }
    }
    fn finish_packet(&self, filling: PacketAssembly) -> Option<OutgoingPacket> {
        let packet = SctpPacket { vtag: self.peer_tag, chunks: filling.chunks };
        Some(OutgoingPacket { path: filling.path?, packet })
    }

    fn push_control(&mut self, filling: &mut PacketAssembly) {
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

    fn build_open(&mut self, now: Instant) -> Option<OutgoingPacket> {
        let mut filling = self.start_packet();
        self.push_control(&mut filling);
        let next = self.next_data(now).filter(|next| filling.accepts_path(next.path));
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
                self.push_lost(now, next.path, &mut filling);
                self.burst = self.burst.saturating_sub(u32::from(self.bound_burst));
            } else {
                self.push_new(now, next.path, &mut filling);
                self.burst = self.burst.saturating_sub(1);
            }
        }
        self.finish_packet(filling)
    }

    fn push_sack(&mut self, path: u8, filling: &mut PacketAssembly) {
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
    fn next_data(&mut self, now: Instant) -> Option<NextData> {
        let sends = matches!(
            self.state,
            SctpState::Established | SctpState::ShutdownPending | SctpState::ShutdownReceived
        );
        if !sends {
            return None;
        }
        if let Some(at) = self.out.first_lost() {
            // §6.1 C: before new data.
            let path = self.retransmission_path(at);
            let p = &self.paths[usize::from(path)];
            let idle = self.paths.iter().all(|p| p.flight == 0);
            let allowed = self.grant || (!self.is_repair_blocked && (idle || p.is_window_open()));
            return allowed.then(|| NextData { path, len: self.out.sent[at].wire_size() });
        }
        self.grant = false;
        let first = self.out.queue.front()?;
        let (whole, len) = (first.beginning && first.ending, first.payload.len);
        let path = self.data_path();
        let quiet = self.out.sent.is_empty();
        let p = &mut self.paths[usize::from(path)];
        p.decay_idle_window(&self.config, now);
        let full = self.out.queued >= self.config.pmdcs();
        let waits = self.config.nagle && whole && !full && !quiet && self.state == SctpState::Established;
        let (open, rto) = (p.is_window_open(), p.rtt.rto);
        let fits = len <= self.peer_window || (quiet && self.may_probe(now, rto));
        let room = open && fits && !waits && self.out.sent.len() < MAX_SENT;
        let allowed = room && self.burst > 0;
        // Agent/SCTP's limit ends when it has delayed a packet.
        self.bound_burst &= !room || allowed;
        allowed.then(|| NextData { path, len: round_to_words(DATA_HEADER + len) })
    }
    /// True if a closed window, without data in flight, may be probed: after one RTO (§6.1 A).
    fn may_probe(&mut self, now: Instant, rto: Duration) -> bool {
        if self.probe_at == Instant::FAR_FUTURE && !self.probe_due && !self.config.probe_at_once {
            self.probe_at = now + rto;
        }
        self.probe_due || self.config.probe_at_once
    }

    /// Returns the path for retransmission of a lost chunk.
    fn retransmission_path(&self, at: usize) -> u8 {
        let sent = &self.out.sent[at];
        match sent.whereabouts {
            ChunkStatus::Lost { fast: true } => sent.path,
            _ => self.alternate_path(sent.path),
        }
    }

    fn push_lost(&mut self, now: Instant, path: u8, filling: &mut PacketAssembly) {
        let Some(first) = self.out.first_lost() else { return };
        self.grant = false;
        for at in first..self.out.sent.len() {
            let ChunkStatus::Lost { fast } = self.out.sent[at].whereabouts else { continue };
            if self.retransmission_path(at) != path {
                continue;
            }
            let size = self.out.sent[at].wire_size();
            if size > filling.remaining {
                break;
            }
            let earlier =
                |s: &super::outbound::SentChunk| s.whereabouts == ChunkStatus::Flying && s.path == path;
            let earliest = !self.out.sent.iter().take(at).any(earlier);
            let sent = &mut self.out.sent[at];
            sent.whereabouts = ChunkStatus::Flying;
            sent.path = path;
            let weight = sent.window_weight(&self.config);
            self.out.lost -= 1;
            self.out.flying += sent.data.payload.len;
            let data = sent.data.clone();
            let keeps = self.config.measure_behind_retransmission;
            for p in &mut self.paths {
                // §6.3.1 C5: a chunk sent before and acknowledged behind this gives no measurement.
                p.timed =
                    p.timed.filter(|&(timed, _)| keeps && timed != data.tsn || seq::lt(timed, data.tsn));
            }
            let p = &mut self.paths[usize::from(path)];
            let again = match self.config.loss_recovery {
                // §7.2.4 rule 4.
                LossRecovery::Rfc9260 => fast,
                // RtxMarkedChunks() asks for others in flight.
                LossRecovery::Ns2 => p.flight > 0,
            };
            p.record_sent(now, weight);
            if p.t3_at == Instant::FAR_FUTURE || (again && earliest) {
                p.arm_t3(now);
            }
            self.stats.retransmitted_chunks += 1;
            self.push_data_chunk(path, data, filling);
        }
    }

    fn push_new(&mut self, now: Instant, path: u8, filling: &mut PacketAssembly) {
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
            if self.state != SctpState::CookieEchoed {
                p.arm_heartbeat(&self.config, now);
                if p.t3_at == Instant::FAR_FUTURE {
                    p.arm_t3(now);
                }
            }
            self.push_data_chunk(path, data, filling);
        }
    }

    fn push_data_chunk(&mut self, path: u8, data: DataChunk, filling: &mut PacketAssembly) {
        self.peer_window = self.peer_window.saturating_sub(data.payload.len);
        self.stats.data_chunks += 1;
        filling.push_chunk(path, Chunk::Data(data));
    }

    /// §5.1: adds data that fits behind the cookie; no other data is sent before its acknowledgement.
    fn push_data_behind_cookie(&mut self, now: Instant, filling: &mut PacketAssembly) {
        let path = self.timer_path;
        for sent in &mut self.out.sent {
            sent.path = path;
        }
        if self.out.lost > 0 {
            for sent in &mut self.out.sent {
                if let ChunkStatus::Lost { fast } = &mut sent.whereabouts {
                    *fast = true;
                }
            }
            self.push_lost(now, path, filling);
            self.paths[usize::from(path)].t3_at = Instant::FAR_FUTURE;
        } else {
            self.push_new(now, path, filling);
        }
    }
}

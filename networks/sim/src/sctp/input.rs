//! Arriving packets (RFC 9260 §8.5 and §6.2).

use super::association::{SctpAssociation, SctpAssociationState, SctpEvent};
use super::chunk::{Chunk, DataChunk, ErrorCause, SctpPacket};
use super::inbound::ReceivedTsnStatus;
use super::listen::reply_out_of_the_blue;
use crate::tcp::seq;
use usher_core::{CloseReason, Instant};

impl SctpAssociation {
    /// Handles a packet of this association, received on `path`. Then drain [`poll_event`](Self::poll_event) and
    /// [`poll_transmit`](Self::poll_transmit), in this order.
    pub fn handle_packet(&mut self, now: Instant, path: u8, packet: SctpPacket) {
        self.stats.packets_received += 1;
        let path = path.min(self.paths.len() as u8 - 1);
        self.request_output();
        // RFC 9260, 8.5.1 E: treat SHUTDOWN ACK as out of the blue.
        let setting_up =
            matches!(self.state, SctpAssociationState::CookieWait | SctpAssociationState::CookieEchoed);
        let late = setting_up && matches!(packet.chunks.first(), Some(Chunk::ShutdownAck));
        if self.state == SctpAssociationState::Closed || late {
            if let Some(answer) = reply_out_of_the_blue(&packet) {
                self.queue_reply(path, answer);
            }
            return;
        }
        let SctpPacket { vtag, chunks } = packet;
        let alone = chunks.len() == 1;
        let mut chunks = chunks.into_iter().peekable();
        match chunks.peek() {
            Some(Chunk::Init(init)) => {
                // RFC 9260, 8.5.1 A and 12.3: INIT is alone in its packet, with tag 0.
                if vtag != 0 {
                    self.stats.bad_tag += 1;
                } else if !alone {
                    self.stats.malformed += 1;
                } else {
                    self.handle_init(now, path, init);
                }
                return;
            }
            Some(Chunk::CookieEcho(cookie)) => {
                if !self.handle_cookie_echo(now, path, vtag, cookie) {
                    return;
                }
                chunks.next();
            }
            first => {
                // RFC 9260, 8.5: drops a packet with another tag.
                if !self.is_verification_tag_valid(vtag, first) {
                    self.stats.bad_tag += 1;
                    return;
                }
            }
        }
        self.handle_chunks(now, path, alone, chunks);
    }

    /// §8.5.1.
    fn is_verification_tag_valid(&self, vtag: u32, first: Option<&Chunk>) -> bool {
        match first {
            Some(Chunk::Abort { reflected: true, .. } | Chunk::ShutdownComplete { reflected: true }) => {
                self.peer_tag != 0 && vtag == self.peer_tag
            }
            _ => vtag == self.local_tag,
        }
    }

    /// Handles the chunks of a valid packet, all or those behind a cookie.
    pub(super) fn handle_chunks(
        &mut self,
        now: Instant,
        path: u8,
        alone: bool,
        chunks: impl Iterator<Item = Chunk>,
    ) {
        let had_gaps = self.inb.has_gaps();
        let waiting = self.control.len();
        let closing = self.state == SctpAssociationState::ShutdownSent;
        let mut with_data = false;
        for chunk in chunks {
            with_data |= matches!(chunk, Chunk::Data(_)) && self.accepts_data();
            if !self.handle_sctp_chunk(now, path, alone, chunk) || self.state == SctpAssociationState::Closed
            {
                break;
            }
        }
        if self.state == SctpAssociationState::Closed {
            return;
        }
        self.limit_replies_to_one_packet(waiting);
        if closing && self.state == SctpAssociationState::ShutdownSent {
            // RFC 9260, 9.2: any packet shows that the peer is alive.
            self.retries = 0;
            self.arm_shutdown_timer(now);
        }
        // RFC 9260, 6.2: one SACK for all DATA of a packet.
        if with_data {
            self.schedule_sack(now, path, had_gaps);
        }
        self.progress_shutdown(now);
    }

    /// §12.4: limits a packet's replies, except DATA and SACK, to one packet; `before` replies were pending.
    fn limit_replies_to_one_packet(&mut self, before: usize) {
        let mut room = self.config.pmdcs();
        let mut kept = before;
        while let Some((_, chunk)) = self.control.get(kept)
            && let Some(left) = room.checked_sub(chunk.padded_len())
        {
            room = left;
            kept += 1;
        }
        // Keep at least one new chunk: a reply that alone exceeds a packet is sent in a packet of its own.
        self.control.truncate(kept.max(before + 1));
    }

    fn accepts_data(&self) -> bool {
        // RFC 9260, 6: DATA counts in these states only.
        matches!(
            self.state,
            SctpAssociationState::Established
                | SctpAssociationState::ShutdownPending
                | SctpAssociationState::ShutdownSent
        )
    }

    /// Handles a chunk. False if the rest of the packet must be ignored.
    fn handle_sctp_chunk(&mut self, now: Instant, path: u8, alone: bool, chunk: Chunk) -> bool {
        match chunk {
            Chunk::Data(data) if self.accepts_data() => self.take_data(path, data),
            Chunk::Sack(sack) => match self.state {
                SctpAssociationState::CookieEchoed
                | SctpAssociationState::Established
                | SctpAssociationState::ShutdownPending
                | SctpAssociationState::ShutdownReceived => self.handle_sack(now, &sack),
                _ => self.stats.unexpected += 1,
            },
            Chunk::InitAck(init) if alone => self.handle_init_ack(now, path, &init),
            Chunk::Init(_) | Chunk::InitAck(_) | Chunk::CookieEcho(_) => self.stats.malformed += 1,
            // RFC 9260, 6.10: the peer must not bundle it; its meaning in such a packet is undefined.
            Chunk::ShutdownComplete { .. } if !alone => self.stats.malformed += 1,
            Chunk::CookieAck => self.handle_cookie_ack(now, path),
            Chunk::Heartbeat(info) => match self.state {
                SctpAssociationState::CookieWait => self.stats.unexpected += 1,
                _ if info.len() as u32 + 8 > self.config.pmdcs() => self.stats.malformed += 1,
                // RFC 9260, 8.3: answered although no other chunk may be sent (5.1 C).
                SctpAssociationState::CookieEchoed => {
                    self.queue_reply(path, SctpPacket::with_chunk(self.peer_tag, Chunk::HeartbeatAck(info)));
                }
                // RFC 9260, 3.3.6: returns the information unchanged.
                _ => self.queue_control(path, Chunk::HeartbeatAck(info)),
            },
            Chunk::HeartbeatAck(info) => self.handle_heartbeat_ack(now, &info),
            Chunk::Abort { .. } => {
                // RFC 9260, 3.3.7 and 9.1: no answer; the application learns it.
                let refused = matches!(
                    self.state,
                    SctpAssociationState::CookieWait | SctpAssociationState::CookieEchoed
                );
                self.fail(if refused { CloseReason::Refused } else { CloseReason::Reset });
            }
            Chunk::Error(causes) => {
                let stale = causes.iter().any(|cause| matches!(cause, ErrorCause::StaleCookie(_)));
                if stale && self.state == SctpAssociationState::CookieEchoed {
                    self.restart_setup(now);
                }
            }
            Chunk::Shutdown { cumulative } => self.handle_shutdown(now, path, cumulative),
            Chunk::ShutdownAck => self.handle_shutdown_ack(path),
            Chunk::ShutdownComplete { .. } => match self.state {
                SctpAssociationState::ShutdownAckSent => self.fail(CloseReason::Closed),
                _ => self.stats.unexpected += 1,
            },
            Chunk::Data(_) => self.stats.unexpected += 1,
            Chunk::Unknown { kind, flags, value } => {
                return self.handle_unknown_chunk(path, kind, flags, &value);
            }
        }
        true
    }

    /// §3.2: the two highest bits of the type select the action.
    fn handle_unknown_chunk(&mut self, path: u8, kind: u8, flags: u8, value: &[u8]) -> bool {
        self.stats.unknown_chunks += 1;
        if kind & 0x40 != 0 && self.peer_tag != 0 && self.state != SctpAssociationState::CookieEchoed {
            let mut quoted = vec![kind, flags];
            quoted.extend_from_slice(&(4 + value.len() as u16).to_be_bytes());
            // Limit the quoted parameter to a packet. The ERROR header and the cause header take eight octets.
            let room = self.config.pmdcs() as usize - 8 - quoted.len();
            quoted.extend_from_slice(&value[..value.len().min(room)]);
            self.queue_control(path, Chunk::Error(vec![ErrorCause::UnrecognizedChunk(quoted)]));
        }
        kind & 0x80 != 0
    }

    fn take_data(&mut self, path: u8, data: DataChunk) {
        // RFC 9260, 6.2: ends an association that sends DATA without user data.
        if data.payload.len == 0 {
            self.stats.malformed += 1;
            self.abort_with_cause(ErrorCause::NoUserData(data.tsn));
            return;
        }
        self.sack_now |= data.immediate;
        match self.inb.classify_tsn(data.tsn, data.payload.len, self.config.bounded_receive_buffer()) {
            ReceivedTsnStatus::New => {}
            ReceivedTsnStatus::Duplicate => {
                self.stats.duplicates += 1;
                // RFC 9260, 6.2: acknowledges a duplicate at once.
                self.sack_now = true;
                return;
            }
            ReceivedTsnStatus::BufferFull => {
                self.stats.no_room += 1;
                // RFC 9260, 6.2: drops the chunk, and sends a SACK at once.
                self.sack_now = true;
                return;
            }
            ReceivedTsnStatus::Stuck => {
                self.stats.no_room += 1;
                self.abort_with_cause(ErrorCause::OutOfResource);
                return;
            }
        }
        self.inb.record_tsn(data.tsn);
        if data.stream >= self.inbound_streams {
            self.stats.invalid_stream += 1;
            self.queue_control(path, Chunk::Error(vec![ErrorCause::InvalidStream(data.stream)]));
            return;
        }
        let events = &mut self.events;
        if let Err(why) = self.inb.insert_chunk(data, |message| events.push_back(SctpEvent::Message(message)))
        {
            self.stats.malformed += 1;
            self.abort_with_cause(ErrorCause::ProtocolViolation(why.to_vec()));
        }
    }

    /// Schedules the acknowledgement of a packet with data (§6.2, §6.7). A chunk that fills a gap is acknowledged at
    /// once too, so that a sender in recovery need not wait.
    fn schedule_sack(&mut self, now: Instant, path: u8, had_gaps: bool) {
        self.owe_sack = true;
        self.sack_path = path;
        self.unsacked = self.unsacked.saturating_add(1);
        // RFC 9260, 5.1: acknowledges the first DATA at once.
        let first = !std::mem::replace(&mut self.sacked, true) && self.config.first_sack_at_once;
        self.sack_now |= first;
        let gaps = self.inb.has_gaps() || (had_gaps && self.config.filled_gap_at_once);
        match self.config.sack_delay {
            Some(_) if first => self.unsacked = 0,
            Some(delay) if !gaps && self.unsacked < self.config.sack_frequency => {
                self.sack_at = self.sack_at.min(now + delay);
            }
            _ => {
                self.sack_now = true;
                (self.unsacked, self.sack_at) = (0, Instant::FAR_FUTURE);
            }
        }
        if self.state == SctpAssociationState::ShutdownSent {
            // RFC 9260, 9.2: SACK and SHUTDOWN at once, and T2-shutdown restarts.
            self.sack_now = true;
            self.send_shutdown(path);
            self.retries = 0;
            self.arm_shutdown_timer(now);
        }
    }

    fn handle_heartbeat_ack(&mut self, now: Instant, info: &[u8]) {
        let known = info.split_first().and_then(|(&path, at)| {
            let at = Instant::from_nanos(u64::from_be_bytes(at.try_into().ok()?));
            let p = self.paths.get_mut(usize::from(path)).filter(|p| p.heartbeat_sent == Some(at))?;
            p.heartbeat_sent = None;
            p.heartbeat_lost_at = Instant::FAR_FUTURE;
            p.rtt.add_sample(&self.config, now - at);
            Some(path)
        });
        match known {
            Some(path) => self.record_path_working(path),
            None => self.stats.unexpected += 1,
        }
    }

    fn handle_shutdown(&mut self, now: Instant, path: u8, cumulative: u32) {
        if matches!(self.state, SctpAssociationState::CookieWait | SctpAssociationState::CookieEchoed) {
            self.stats.unexpected += 1;
            return;
        }
        if seq::lt(self.out.last_tsn(), cumulative) {
            self.stats.malformed += 1;
            return;
        }
        match self.state {
            SctpAssociationState::Established
            | SctpAssociationState::ShutdownPending
            | SctpAssociationState::ShutdownReceived => {
                self.state = SctpAssociationState::ShutdownReceived;
                self.apply_shutdown_acknowledgement(now, cumulative);
            }
            _ => {
                self.state = SctpAssociationState::ShutdownAckSent;
                self.retries = 0;
                self.send_shutdown(path);
                self.arm_shutdown_timer(now);
            }
        }
    }

    fn handle_shutdown_ack(&mut self, path: u8) {
        match self.state {
            SctpAssociationState::ShutdownSent | SctpAssociationState::ShutdownAckSent => {
                // RFC 9260, 9.2 and 6.10: SHUTDOWN COMPLETE answers in both states, alone in its packet.
                let complete = Chunk::ShutdownComplete { reflected: false };
                self.queue_reply(path, SctpPacket::with_chunk(self.peer_tag, complete));
                self.fail(CloseReason::Closed);
            }
            _ => self.stats.unexpected += 1,
        }
    }

    /// Takes the next step of the shutdown when no data is left (§9.2).
    pub(super) fn progress_shutdown(&mut self, now: Instant) {
        if !self.out.is_empty() {
            return;
        }
        match self.state {
            SctpAssociationState::ShutdownPending => {
                self.state = SctpAssociationState::ShutdownSent;
                if !self.inb.has_gaps() {
                    self.clear_sack_due();
                }
                self.guard_at = now + self.config.rto_max * 5;
            }
            SctpAssociationState::ShutdownReceived => self.state = SctpAssociationState::ShutdownAckSent,
            _ => return,
        }
        self.retries = 0;
        self.send_shutdown(self.path_of_new_data());
        self.arm_shutdown_timer(now);
    }
}

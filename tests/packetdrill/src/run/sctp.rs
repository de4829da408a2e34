//! One-to-one SCTP sockets over the simulator's associations.

use super::ScriptFailure;
use crate::script::{ScriptItem, ScriptSctpPacket, ScriptValue};
use crate::wire::sctp::{self as wire, PartKind};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use usher_core::{CloseReason, Instant};
use usher_sim::sctp::{
    self, InitialAssociationValues, SctpAssociation, SctpConfig, SctpEvent, SctpListenerAction, SctpPacket,
    UserMessage,
};

pub(super) const LOCAL_PORT: u16 = 8080;
pub(super) const REMOTE_PORT: u16 = 40_000;
/// Our first tag and TSN. They are far from zero, so that an untranslated number is noticed.
const FIRST: u32 = 0x6241_0000;

/// A socket, or an association that no application has accepted yet.
#[derive(Debug)]
pub(super) struct SctpSocket {
    pub(super) config: SctpConfig,
    pub(super) association: Option<SctpAssociation>,
    pub(super) listening: bool,
    queue: VecDeque<usize>,
    pub(super) inbox: VecDeque<UserMessage>,
    pub(super) error: Option<&'static str>,
    pub(super) connected: bool,
    pub(super) has_ended: bool,
    pub(super) shut: bool,
    pub(super) abort_on_close: bool,
}

/// The host's SCTP: its sockets, and the translation between the script's numbers and ours.
#[derive(Default, Debug)]
pub(super) struct SctpHost {
    pub(super) sockets: Vec<SctpSocket>,
    current: Option<usize>,
    opened: u32,
    /// Our TSNs minus the script's.
    offset: u32,
    /// Our tag for each tag of the script.
    tags: BTreeMap<u64, u32>,
    /// Our tag, which the peer writes, and the peer's tag.
    local_tag: u32,
    peer_tag: u32,
    /// The peer's tag before its last INIT. An association keeps it until a cookie arrives.
    former_tag: u32,
    /// The tag of the last incoming packet.
    reflected: u32,
    /// The tag and cookie of the last INIT ACK sent.
    cookie: Option<(u32, Vec<u8>)>,
    /// The payload of the last HEARTBEAT sent.
    heartbeat: Option<Vec<u8>>,
    pub(super) sent: Vec<Vec<u8>>,
}

impl SctpHost {
    pub(super) fn add_socket(&mut self, mtu: u32, ipv6: bool) -> usize {
        self.sockets.push(SctpSocket {
            config: SctpConfig {
                // A socket accepts as many streams as it requests, whatever the peer requests.
                accepted_streams: Some(SctpConfig::default().outbound_streams),
                max_packet: mtu.saturating_sub(if ipv6 { 40 } else { 20 }),
                nagle: true,
                probe_at_once: true,
                abort_unreachable: true,
                ..SctpConfig::default()
            },
            association: None,
            listening: false,
            queue: VecDeque::new(),
            inbox: VecDeque::new(),
            error: None,
            connected: false,
            has_ended: false,
            shut: false,
            abort_on_close: false,
        });
        self.sockets.len() - 1
    }

    fn next_initial_values(&mut self) -> InitialAssociationValues {
        self.opened += 1;
        let n = FIRST.wrapping_add(self.opened << 16);
        InitialAssociationValues { tag: n, tsn: n ^ 0x0f0f_0000, secret: [0x3c; 32] }
    }

    pub(super) fn connect(&mut self, now: Instant, i: usize, paths: u8) {
        let initial = self.next_initial_values();
        let config = Arc::new(self.sockets[i].config.clone());
        self.sockets[i].association = Some(SctpAssociation::connect(config, now, initial, paths));
        self.current = Some(i);
        self.drain_socket(now, i);
    }

    pub(super) fn accept(&mut self, i: usize) -> Option<usize> {
        self.sockets[i].queue.pop_front()
    }

    pub(super) fn shutdown(&mut self, now: Instant, i: usize) {
        self.sockets[i].shut = true;
        if let Some(a) = &mut self.sockets[i].association {
            a.shutdown(now);
        }
        self.drain_socket(now, i);
    }
    pub(super) fn close(&mut self, now: Instant, i: usize) {
        self.sockets[i].listening = false;
        // RFC 9260 leaves the handling of unread messages open. Kernels abort.
        if self.sockets[i].abort_on_close || !self.sockets[i].inbox.is_empty() {
            self.abort(now, i);
        }
        self.shutdown(now, i);
    }
    pub(super) fn abort(&mut self, now: Instant, i: usize) {
        if let Some(a) = &mut self.sockets[i].association {
            a.abort(now);
        }
        self.sockets[i].has_ended = true;
        self.drain_socket(now, i);
    }

    pub(super) fn send_message(&mut self, now: Instant, i: usize, message: UserMessage) -> bool {
        let Some(a) = &mut self.sockets[i].association else { return false };
        let taken = a.send_message(now, message).is_ok();
        self.drain_socket(now, i);
        taken
    }

    /// Applies settings that changed while the association is up.
    pub(super) fn reconfigure(&mut self, i: usize) {
        let config = Arc::new(self.sockets[i].config.clone());
        if let Some(a) = &mut self.sockets[i].association {
            a.reconfigure(config);
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.sockets
            .iter()
            .filter_map(|s| s.association.as_ref().and_then(SctpAssociation::poll_timeout))
            .min()
    }
    pub(super) fn fire_timers(&mut self, now: Instant) {
        for i in 0..self.sockets.len() {
            if let Some(a) = &mut self.sockets[i].association
                && a.poll_timeout().is_some_and(|at| at <= now)
            {
                a.handle_timeout(now);
            }
            self.drain_socket(now, i);
        }
    }

    /// Returns the bytes of an injected packet.
    fn packet_bytes(&mut self, packet: &ScriptSctpPacket) -> Result<Vec<u8>, ScriptFailure> {
        let mut chunks = Vec::new();
        let mut tag = self.local_tag;
        for chunk in &packet.chunks {
            let ScriptValue::Node(name, items) = &chunk.value else { continue };
            let mut items = items.clone();
            for item in &mut items {
                self.to_live(name, item);
            }
            let mut bytes =
                wire::encode_part(PartKind::Chunk, name, &items).map_err(ScriptFailure::Unsupported)?;
            let reflected = bytes[1] & 1 == 1;
            let open = |key| matches!(wire::field_value(&items, key), None | Some(ScriptValue::Any));
            match name.as_str() {
                "INIT" | "INIT_ACK" => {
                    self.former_tag = self.peer_tag;
                    self.peer_tag = wire::field_number(&items, "tag").unwrap_or(0) as u32;
                    if name == "INIT" {
                        tag = 0;
                    }
                }
                "ABORT" | "SHUTDOWN_COMPLETE" if reflected => tag = self.peer_tag,
                "COOKIE_ECHO" if open("val") && open("len") => {
                    if let Some((cookie_tag, cookie)) = &self.cookie {
                        bytes.extend(cookie);
                        (tag, self.local_tag) = (*cookie_tag, *cookie_tag);
                    }
                }
                "HEARTBEAT_ACK" if heartbeat_is_open(&items) => {
                    if let Some(info) = &self.heartbeat {
                        bytes.truncate(4);
                        bytes.extend(info);
                    }
                }
                _ => {}
            }
            if wire::field_number(&items, "len").is_none() {
                let len = (bytes.len() as u16).to_be_bytes();
                bytes[2..4].copy_from_slice(&len);
            }
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            chunks.extend(bytes);
        }
        if let Some(said) = packet.tag {
            tag = self.tags.get(&said).copied().unwrap_or(said as u32);
        }
        self.reflected = tag;
        if let Some(raw) = &packet.raw {
            chunks.clone_from(raw);
        }
        let mut out = Vec::new();
        out.extend(REMOTE_PORT.to_be_bytes());
        out.extend(LOCAL_PORT.to_be_bytes());
        out.extend(tag.to_be_bytes());
        out.extend([0; 4]);
        out.extend(chunks);
        let mut sum = wire::checksum(&out);
        if packet.bad_checksum {
            sum ^= 1;
        }
        out[8..12].copy_from_slice(&sum.to_le_bytes());
        Ok(out)
    }

    /// Translates the script's numbers for our TSNs to the real ones.
    fn to_live(&self, chunk: &str, item: &mut ScriptItem) {
        let ours = match chunk {
            "SACK" | "SHUTDOWN" => item.key == "cum_tsn",
            "ECNE" => item.key == "tsn",
            _ => false,
        };
        if let (true, ScriptValue::Int(n)) = (ours, &mut item.value) {
            *n = i64::from((*n as u32).wrapping_add(self.offset));
        }
    }

    pub(super) fn inject_packet(
        &mut self,
        now: Instant,
        script: &ScriptSctpPacket,
    ) -> Result<(), ScriptFailure> {
        let bytes = self.packet_bytes(script)?;
        let Ok((_, _, packet)) = SctpPacket::parse(&bytes) else { return Ok(()) };
        if let Some(i) = self.current
            && let Some(a) = &mut self.sockets[i].association
            && !a.is_closed()
        {
            a.handle_packet(now, 0, packet);
            self.drain_socket(now, i);
            return Ok(());
        }
        let Some(listener) = self.sockets.iter().position(|s| s.listening) else {
            self.send_reply(sctp::reply_out_of_the_blue(&packet));
            return Ok(());
        };
        let initial = self.next_initial_values();
        let config = self.sockets[listener].config.clone();
        let ports = (LOCAL_PORT, REMOTE_PORT);
        match sctp::handle_listener_packet(&Arc::new(config.clone()), now, initial, ports, 0, 1, packet) {
            SctpListenerAction::Reply(packet) => self.send_reply(Some(packet)),
            SctpListenerAction::Accept(association) => {
                let mtu = config.max_packet + 20;
                let child = self.add_socket(mtu, false);
                self.sockets[child].config = config;
                self.sockets[child].association = Some(*association);
                self.sockets[listener].queue.push_back(child);
                self.current = Some(child);
                self.drain_socket(now, child);
            }
            SctpListenerAction::Discard => {}
        }
        Ok(())
    }

    fn send_reply(&mut self, packet: Option<SctpPacket>) {
        if let Some(packet) = packet {
            self.emit_packet(&packet);
        }
    }
    fn emit_packet(&mut self, packet: &SctpPacket) {
        let mut out = Vec::new();
        packet.encode_into(LOCAL_PORT, REMOTE_PORT, &mut out);
        self.sent.push(out);
    }

    pub(super) fn drain_socket(&mut self, now: Instant, i: usize) {
        let socket = &mut self.sockets[i];
        let Some(a) = &mut socket.association else { return };
        let mut packets = Vec::new();
        while let Some(event) = a.poll_event() {
            match event {
                SctpEvent::Up { .. } => socket.connected = true,
                SctpEvent::Message(message) => socket.inbox.push_back(message),
                SctpEvent::PathDown(_) | SctpEvent::PathUp(_) => {}
                SctpEvent::Down(reason) => {
                    socket.has_ended = true;
                    socket.error = match reason {
                        CloseReason::Refused => Some("ECONNREFUSED"),
                        CloseReason::TimedOut => Some("ETIMEDOUT"),
                        CloseReason::Closed => socket.error,
                        _ => Some("ECONNRESET"),
                    };
                }
            }
        }
        while let Some(transmit) = a.poll_transmit(now) {
            packets.push(transmit.packet);
        }
        for packet in packets {
            self.emit_packet(&packet);
        }
    }

    /// Compares a sent packet with the expected one. Learns our tags and TSNs from INIT and INIT ACK.
    pub(super) fn compare_packet(
        &mut self,
        expected: &ScriptSctpPacket,
        bytes: &[u8],
    ) -> Result<(), ScriptFailure> {
        let cut = || ScriptFailure::Diverges("what is sent is no SCTP packet".to_owned());
        let (header, rest) = bytes.split_at_checked(12).ok_or_else(cut)?;
        let tag = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let chunks = wire::split_parts(rest).ok_or_else(cut)?;
        let shown: Vec<String> =
            chunks.iter().map(|c| wire::type_name(PartKind::Chunk, u16::from(c[0]))).collect();
        let shown = shown.join("; ");
        if chunks.len() != expected.chunks.len() {
            return Err(ScriptFailure::Diverges(format!("expected {}, sent {shown}", chunk_names(expected))));
        }
        for (wanted, chunk) in expected.chunks.iter().zip(&chunks) {
            let ScriptValue::Node(name, items) = &wanted.value else { continue };
            let mut items = items.clone();
            self.learn_numbers(name, &items, chunk);
            for item in &mut items {
                self.expected_live(name, item);
            }
            wire::match_part(PartKind::Chunk, name, &items, chunk).map_err(|why| {
                match why.contains('`') {
                    true => ScriptFailure::Unsupported(why),
                    false => ScriptFailure::Diverges(format!("{why} (sent {shown})")),
                }
            })?;
        }
        let first = chunks.first().copied().unwrap_or_default();
        let reflects = matches!(first, [6 | 14, flags, ..] if flags & 1 == 1);
        let wanted = match first.first() {
            Some(1) => 0,
            _ if reflects => self.reflected,
            _ => self.peer_tag,
        };
        if tag != wanted && (wanted != self.peer_tag || tag != self.former_tag || tag == 0) {
            return Err(ScriptFailure::Diverges(format!(
                "{shown} is sent with verification tag {tag}, not {wanted}"
            )));
        }
        Ok(())
    }

    fn learn_numbers(&mut self, name: &str, items: &[ScriptItem], chunk: &[u8]) {
        let at = |from: usize| {
            let bytes = chunk.get(from..from + 4).and_then(|b| b.try_into().ok());
            bytes.map_or(0, u32::from_be_bytes)
        };
        match name {
            "INIT" | "INIT_ACK" => {
                let (tag, tsn) = (at(4), at(16));
                // A retransmission, or the reply to a crossing INIT, repeats the earlier numbers.
                let known = self.tags.values().any(|live| *live == tag);
                if let Some(said) = wire::field_number(items, "tag") {
                    if !known {
                        self.tags.insert(said, tag);
                    }
                    self.local_tag = tag;
                }
                if let Some(said) = wire::field_number(items, "tsn").filter(|_| !known) {
                    self.offset = tsn.wrapping_sub(said as u32);
                }
                let parameters = chunk.get(20..).and_then(wire::split_parts).unwrap_or_default();
                let cookie = parameters.iter().find(|p| p.starts_with(&[0, 7]));
                if let Some(cookie) = cookie {
                    self.cookie = Some((tag, cookie[4..].to_vec()));
                }
            }
            "HEARTBEAT" => self.heartbeat = chunk.get(4..).map(<[u8]>::to_vec),
            _ => {}
        }
    }

    /// Translates the expected numbers of ours to the real ones.
    fn expected_live(&self, chunk: &str, item: &mut ScriptItem) {
        let ScriptValue::Int(n) = &mut item.value else { return };
        match (chunk, item.key.as_str()) {
            ("DATA" | "INIT" | "INIT_ACK", "tsn") | ("CWR", "tsn") => {
                *n = i64::from((*n as u32).wrapping_add(self.offset));
            }
            ("INIT" | "INIT_ACK", "tag") => {
                if let Some(live) = u64::try_from(*n).ok().and_then(|said| self.tags.get(&said)) {
                    *n = i64::from(*live);
                }
            }
            _ => {}
        }
    }
}

/// Leaves the contents of a HEARTBEAT ACK open, since they repeat the HEARTBEAT's.
fn heartbeat_is_open(items: &[ScriptItem]) -> bool {
    items.iter().all(|item| match &item.value {
        ScriptValue::Node(_, inner) => inner.iter().all(|i| i.value == ScriptValue::Any),
        value => *value == ScriptValue::Any || !item.key.is_empty(),
    })
}

/// Returns the names of the chunks.
pub(super) fn chunk_names(packet: &ScriptSctpPacket) -> String {
    let name = |item: &ScriptItem| match &item.value {
        ScriptValue::Node(name, _) => name.clone(),
        _ => "...".to_owned(),
    };
    packet.chunks.iter().map(name).collect::<Vec<_>>().join("; ")
}

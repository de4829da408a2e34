//! TCP sockets over the simulator's connections, as in a kernel.

use super::ScriptFailure;
use super::settings::SystemSettings;
use crate::script::{IcmpError, ScriptSegment, TcpOption, UdpPorts};
use crate::wire::tcp as wire;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use usher_core::{CloseReason, Duration, Instant};
use usher_sim::tcp::{self, FastOpenCache, SegmentFlags, TcpConnection, TcpEvent, TcpState};

pub(super) const LOCAL_PORT: u16 = 8080;
pub(super) const REMOTE_PORT: u16 = 40_000;
/// Our initial sequence number. It is far from zero, so that an untranslated number is noticed.
const FIRST_ISS: u32 = 0x7351_0000;
/// The minimum MTU of IPv6 (RFC 8200, 5).
const MIN_MTU: u32 = 1280;

/// The application's settings of the headers around segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HeaderSettings {
    /// The peer's UDP port if segments are encapsulated in UDP, otherwise 0.
    pub(super) udp: u16,
    /// Time to live, or hop limit.
    pub(super) hops: u8,
    /// Type of service, or traffic class.
    pub(super) class: u8,
}

impl Default for HeaderSettings {
    fn default() -> Self {
        Self { udp: 0, hops: 64, class: 0 }
    }
}

/// A sent segment and its headers.
#[derive(Clone, Debug)]
pub(super) struct SentSegment {
    pub(super) bytes: Vec<u8>,
    pub(super) header_settings: HeaderSettings,
}

/// A socket, or a connection that no application has accepted yet.
#[derive(Default, Debug)]
pub(super) struct TcpSocket {
    pub(super) connection: Option<TcpConnection>,
    pub(super) listening: bool,
    /// Connections that wait for `accept`.
    queue: VecDeque<usize>,
    /// Its listener, until it is accepted.
    parent: Option<usize>,
    pub(super) error: Option<&'static str>,
    pub(super) connected: bool,
    /// True if it was open or opening and has ended.
    pub(super) has_ended: bool,
    /// True if the peer sends no more.
    pub(super) end: bool,
    /// True if the application has not closed it.
    pub(super) has_application: bool,
    /// True if the application shut down its sending side.
    pub(super) shut: bool,
    /// The receive buffer that the application set.
    pub(super) receive_buffer: Option<u32>,
    pub(super) header_settings: HeaderSettings,
    /// The maximum segment size that the application set.
    pub(super) mss: Option<u16>,
    /// True if the application limits packets to the minimum MTU.
    pub(super) min_mtu: bool,
    pub(super) no_options: bool,
    pub(super) no_delay: bool,
    /// True if the application enabled Fast Open.
    pub(super) fast_open: bool,
    pub(super) abort_on_close: bool,
    /// The timeout of opening a connection in seconds.
    pub(super) keep_init: Option<u64>,
    deadline: Option<Instant>,
    /// The connection's configuration.
    config: Option<Arc<tcp::TcpConfig>>,
    /// True if the buffer was rounded to the segment size.
    fitted: bool,
    pub(super) buffer: u32,
}

/// The host's TCP: its sockets, and the translation between the script's numbers and ours.
#[derive(Default, Debug)]
pub(super) struct TcpHost {
    pub(super) sockets: Vec<TcpSocket>,
    /// The connection of packets without ports: the last one opened.
    current: Option<usize>,
    opened: u32,
    /// Our sequence numbers minus the script's, and our initial sequence number that determined it.
    offset: u32,
    learned: Option<u32>,
    /// Our timestamps minus the script's, once known, and each timestamp seen.
    stamps: Option<u32>,
    live_timestamps: BTreeMap<u32, u32>,
    /// True if the system is set to offer ECN, which the simulator does not have.
    pub(super) wants_ecn: bool,
    /// Cached Fast Open state of the peer.
    pub(super) fast_open: FastOpenCache,
    pub(super) sent: Vec<SentSegment>,
}

impl TcpHost {
    pub(super) fn add_socket(&mut self) -> usize {
        self.sockets.push(TcpSocket { has_application: true, ..TcpSocket::default() });
        self.sockets.len() - 1
    }

    fn next_iss(&mut self) -> u32 {
        self.opened += 1;
        FIRST_ISS.wrapping_add(self.opened << 20)
    }

    fn connection_config(settings: &SystemSettings, socket: &TcpSocket) -> Arc<tcp::TcpConfig> {
        let buffer = socket.receive_buffer.unwrap_or(settings.receive_space);
        let mut config = settings.tcp_config(buffer, !socket.no_options, !socket.no_delay);
        if socket.min_mtu {
            config.mss = settings.mss_of(MIN_MTU);
        }
        if socket.header_settings.udp != 0 {
            config.mss -= settings.tunneling_overhead.min(config.mss - 64);
        }
        config.mss = config.mss.min(socket.mss.unwrap_or(u16::MAX));
        Arc::new(config)
    }

    pub(super) fn connect(&mut self, now: Instant, settings: &SystemSettings, i: usize) {
        self.connect_with(now, settings, i, 0);
    }

    /// Opens a connection and writes `len` bytes at once, for Fast Open.
    pub(super) fn connect_with(&mut self, now: Instant, settings: &SystemSettings, i: usize, len: u32) {
        let iss = self.next_iss();
        let socket = &mut self.sockets[i];
        let config = Self::connection_config(settings, socket);
        socket.config = Some(config.clone());
        let fast = socket.fast_open && settings.fast_open_client;
        let mut connection = match fast {
            true => self.fast_open.connect(config, iss, now),
            false => TcpConnection::connect(config, iss, now),
        };
        connection.set_auto_read(false);
        if len > 0 {
            // A new connection has room for any data.
            let _ = connection.write(tcp::StreamData::Bytes(&vec![0x55; len as usize]));
        }
        let open_in = socket.keep_init.map_or(Duration::from_millis(settings.keep_init), Duration::from_secs);
        socket.deadline = Some(now + open_in);
        socket.buffer = socket.receive_buffer.unwrap_or(settings.receive_space);
        socket.connection = Some(connection);
        self.current = Some(i);
        self.drain_socket(now, i);
    }

    /// Returns the next open connection for `accept`.
    pub(super) fn accept(&mut self, i: usize) -> Option<usize> {
        let child = self.sockets[i].queue.pop_front()?;
        self.sockets[child].parent = None;
        self.sockets[child].has_application = true;
        Some(child)
    }

    pub(super) fn close(&mut self, now: Instant, i: usize) {
        self.sockets[i].has_application = false;
        if std::mem::take(&mut self.sockets[i].listening) {
            for child in 0..self.sockets.len() {
                if self.sockets[child].parent != Some(i) {
                    continue;
                }
                // Connections that were not accepted are reset. Those still opening are dropped.
                if self.sockets[child].connected {
                    self.abort(now, child);
                } else {
                    self.sockets[child].connection = None;
                }
            }
        }
        if self.sockets[i].abort_on_close {
            self.abort(now, i);
        }
        if let Some(c) = &mut self.sockets[i].connection {
            c.shutdown();
            c.set_auto_read(true);
        }
        self.drain_socket(now, i);
    }

    pub(super) fn shutdown(&mut self, now: Instant, i: usize) {
        self.sockets[i].shut = true;
        if let Some(c) = &mut self.sockets[i].connection {
            c.shutdown();
        }
        self.drain_socket(now, i);
    }

    pub(super) fn abort(&mut self, now: Instant, i: usize) {
        if let Some(c) = &mut self.sockets[i].connection {
            c.abort();
        }
        self.sockets[i].has_ended = true;
        self.drain_socket(now, i);
    }

    /// Reads up to `n` bytes. With `peek` they stay.
    pub(super) fn read(&mut self, now: Instant, i: usize, n: u32, peek: bool) -> u32 {
        let Some(c) = &mut self.sockets[i].connection else { return 0 };
        let n = n.min(c.bytes_unread());
        if !peek && n > 0 {
            c.grant_credit(n);
            let mut left = n;
            while left > 0 {
                match c.poll_event() {
                    Some(TcpEvent::Data { len, .. }) => left = left.saturating_sub(len),
                    Some(_) => {}
                    None => break,
                }
            }
            self.drain_socket(now, i);
        }
        n
    }

    pub(super) fn write(&mut self, now: Instant, i: usize, n: u32) -> bool {
        let Some(c) = &mut self.sockets[i].connection else { return false };
        // Real bytes instead of a count, so that they pass the codec like an application's.
        let taken = c.write(tcp::StreamData::Bytes(&vec![0x55; n as usize])).is_ok();
        self.drain_socket(now, i);
        taken
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let of = |s: &TcpSocket| {
            let timer = s.connection.as_ref().and_then(TcpConnection::poll_timeout);
            [timer, s.deadline].into_iter().flatten().min()
        };
        self.sockets.iter().filter_map(of).min()
    }

    pub(super) fn fire_timers(&mut self, now: Instant) {
        for i in 0..self.sockets.len() {
            let socket = &mut self.sockets[i];
            if socket.deadline.is_some_and(|at| at <= now) {
                socket.deadline = None;
                socket.error = Some("ETIMEDOUT");
                self.abort(now, i);
            }
            if let Some(c) = &mut self.sockets[i].connection
                && c.poll_timeout().is_some_and(|at| at <= now)
            {
                c.handle_timeout(now);
            }
            self.drain_socket(now, i);
        }
    }

    pub(super) fn inject_segment(
        &mut self,
        now: Instant,
        settings: &SystemSettings,
        script: &ScriptSegment,
        udp: Option<UdpPorts>,
    ) -> Result<(), ScriptFailure> {
        if udp.is_some_and(|udp| udp.destination != settings.tunneling_port) {
            // No socket decapsulates TCP from UDP at that port.
            return Ok(());
        }
        let mut live = script.clone();
        if live.flags & SegmentFlags::ACK.0 != 0 {
            live.ack = Some(live.ack.unwrap_or(0).wrapping_add(self.offset));
        }
        for option in live.options.iter_mut().flatten() {
            match option {
                TcpOption::Sack(blocks) => {
                    for (left, right) in blocks {
                        *left = left.wrapping_add(self.offset);
                        *right = right.wrapping_add(self.offset);
                    }
                }
                TcpOption::Timestamp(_, echo) if *echo != 0 => {
                    let offset = self.stamps.unwrap_or(0);
                    let known = self.live_timestamps.get(echo).copied();
                    *echo = known.unwrap_or_else(|| echo.wrapping_add(offset));
                }
                _ => {}
            }
        }
        let bytes =
            wire::encode_segment(&live, REMOTE_PORT, LOCAL_PORT).map_err(|why| match why.contains('`') {
                true => ScriptFailure::Unsupported(why),
                false => ScriptFailure::Suspect(why),
            })?;
        let Ok((_, _, segment)) = tcp::Segment::parse(&bytes) else { return Ok(()) };
        let around = HeaderSettings { udp: udp.map_or(0, |udp| udp.source), ..HeaderSettings::default() };
        let both = SegmentFlags::SYN | SegmentFlags::FIN;
        if settings.drop_synfin && segment.flags.contains(both) {
            return Ok(());
        }
        if let Some(i) = self.current
            && let Some(c) = &mut self.sockets[i].connection
            && !c.is_closed()
        {
            if self.sockets[i].header_settings.udp != around.udp {
                // The encapsulation differs from the connection's, so it does not belong to the connection.
                if !settings.blackhole {
                    let around = HeaderSettings { udp: around.udp, ..self.sockets[i].header_settings };
                    self.send_reply(segment.reset_reply(), around);
                }
                return Ok(());
            }
            let late =
                !self.sockets[i].has_application && self.sockets[i].parent.is_none() && segment.len > 0;
            let socket = &mut self.sockets[i];
            if let Some(c) = &mut socket.connection {
                let receiving = matches!(c.state(), TcpState::FinWait1 | TcpState::FinWait2);
                c.handle_segment(now, &segment);
                // RFC 9293 §3.6.1: data for an application that has closed is answered by a reset.
                if late && receiving && c.bytes_unread() > 0 {
                    c.abort();
                }
            }
            self.drain_socket(now, i);
            return Ok(());
        }
        match self.sockets.iter().position(|s| s.listening) {
            Some(listener) => self.handle_listener_segment(now, settings, listener, &segment, around.udp),
            None if settings.blackhole => {}
            None => {
                // With the settings of the socket that has the port.
                let own = self
                    .sockets
                    .iter()
                    .rev()
                    .find(|s| s.has_application)
                    .map(|s| s.header_settings)
                    .unwrap_or_default();
                self.send_reply(segment.reset_reply(), HeaderSettings { udp: around.udp, ..own });
            }
        }
        Ok(())
    }

    /// Handles an ICMP error. As in FreeBSD, an administratively prohibited path counts as a port without a listener.
    pub(super) fn inject_icmp(&mut self, now: Instant, settings: &SystemSettings, error: &IcmpError) {
        let Some(i) = self.current.filter(|_| settings.icmp_may_rst) else { return };
        let ours = error.udp.map_or(0, |udp| udp.destination);
        let port = error.udp.map_or(settings.tunneling_port, |udp| udp.source);
        if ours != self.sockets[i].header_settings.udp || port != settings.tunneling_port {
            return;
        }
        let hard = [
            "protocol_unreachable",
            "port_unreachable",
            "net_prohibited",
            "host_prohibited",
            "packet_filtered",
            "admin_prohibited",
            "unknown_next_header",
        ];
        let hard = hard.contains(&error.code.as_str());
        if let Some(c) = &mut self.sockets[i].connection {
            c.handle_icmp_error(error.seq.wrapping_add(self.offset), hard);
        }
        self.drain_socket(now, i);
    }

    /// RFC 9293 §3.10.7.2.
    fn handle_listener_segment(
        &mut self,
        now: Instant,
        settings: &SystemSettings,
        listener: usize,
        segment: &tcp::Segment,
        udp: u16,
    ) {
        let iss = self.next_iss();
        let parent = &mut self.sockets[listener];
        let around = HeaderSettings { udp, ..parent.header_settings };
        let own = std::mem::replace(&mut parent.header_settings, around);
        let config = Self::connection_config(settings, parent);
        parent.header_settings = own;
        let child = TcpSocket {
            parent: Some(listener),
            header_settings: around,
            mss: parent.mss,
            min_mtu: parent.min_mtu,
            receive_buffer: parent.receive_buffer,
            no_delay: parent.no_delay,
            no_options: parent.no_options,
            buffer: config.receive_buffer,
            config: Some(config.clone()),
            ..TcpSocket::default()
        };
        match TcpConnection::accept(config, iss, segment, now) {
            Some(mut connection) => {
                connection.set_auto_read(false);
                self.sockets.push(TcpSocket { connection: Some(connection), ..child });
                let i = self.sockets.len() - 1;
                self.current = Some(i);
                self.drain_socket(now, i);
            }
            None if segment.flags.contains(SegmentFlags::ACK) => {
                self.send_reply(segment.reset_reply(), around)
            }
            None => {}
        }
    }

    fn send_reply(&mut self, segment: Option<tcp::Segment>, around: HeaderSettings) {
        if let Some(segment) = segment {
            let mut bytes = Vec::new();
            segment.encode_into(LOCAL_PORT, REMOTE_PORT, &mut bytes);
            self.sent.push(SentSegment { bytes, header_settings: around });
        }
    }

    /// Handles a connection's events and collects its segments.
    pub(super) fn drain_socket(&mut self, now: Instant, i: usize) {
        let socket = &mut self.sockets[i];
        let Some(c) = &mut socket.connection else { return };
        let known = !matches!(c.state(), TcpState::SynSent | TcpState::Closed);
        if known && !socket.fitted && socket.parent.is_none() | (c.state() != TcpState::SynReceived) {
            // As in BSD, a whole number of segments.
            socket.fitted = true;
            socket.buffer = socket.buffer.next_multiple_of(c.mss().max(1));
            if let Some(config) = &socket.config {
                c.reconfigure(Arc::new(tcp::TcpConfig {
                    receive_buffer: socket.buffer,
                    ..(**config).clone()
                }));
            }
        }
        while let Some(event) = c.poll_event() {
            match event {
                TcpEvent::Connected => {
                    socket.connected = true;
                    socket.deadline = None;
                    self.fast_open.update_fast_open_cache(c);
                }
                TcpEvent::Data { .. } => {}
                TcpEvent::PeerClosed => socket.end = true,
                TcpEvent::Closed(reason) => {
                    if !socket.connected {
                        self.fast_open.update_fast_open_cache(c);
                    }
                    socket.deadline = None;
                    socket.has_ended = true;
                    socket.end = true;
                    socket.error = match reason {
                        CloseReason::Refused => Some("ECONNREFUSED"),
                        CloseReason::TimedOut => Some("ETIMEDOUT"),
                        CloseReason::Closed => socket.error,
                        _ => Some("ECONNRESET"),
                    };
                }
            }
        }
        while let Some(segment) = c.poll_transmit(now) {
            let mut bytes = Vec::new();
            segment.encode_into(LOCAL_PORT, REMOTE_PORT, &mut bytes);
            self.sent.push(SentSegment { bytes, header_settings: socket.header_settings });
        }
        let (parent, connected) = (socket.parent, socket.connected);
        if let Some(parent) = parent.filter(|_| connected)
            && !self.sockets[parent].queue.contains(&i)
        {
            self.sockets[parent].queue.push_back(i);
        }
    }

    /// Compares a sent segment with the expected one. Learns the translation of numbers from SYN and timestamps.
    pub(super) fn compare_segment(
        &mut self,
        expected: &ScriptSegment,
        bytes: &[u8],
    ) -> Result<(), ScriptFailure> {
        let Some(mut sent) = wire::decode_segment(bytes) else {
            return Err(ScriptFailure::Diverges("what is sent is no TCP segment".to_owned()));
        };
        let live_seq = sent.seq.unwrap_or(0);
        // A retransmitted SYN repeats its number.
        if sent.flags & SegmentFlags::SYN.0 != 0 && self.learned != Some(live_seq) {
            self.learned = Some(live_seq);
            self.offset = live_seq.wrapping_sub(expected.seq.unwrap_or(0));
        }
        if !expected.absolute {
            sent.seq = Some(live_seq.wrapping_sub(self.offset));
        }
        let stamp = |s: &ScriptSegment| {
            s.options.iter().flatten().find_map(|o| match o {
                TcpOption::Timestamp(val, _) => Some(*val),
                _ => None,
            })
        };
        if let (Some(script), Some(live)) = (stamp(expected), stamp(&sent)) {
            self.stamps.get_or_insert(live.wrapping_sub(script));
            self.live_timestamps.insert(script, live);
        }
        for option in sent.options.iter_mut().flatten() {
            if let TcpOption::Timestamp(val, _) = option {
                *val = stamp(expected).unwrap_or(val.wrapping_sub(self.stamps.unwrap_or(0)));
            }
        }
        let differs = |what: &str| {
            let (wanted, is) = (wire::format_segment(expected), wire::format_segment(&sent));
            ScriptFailure::Diverges(format!("{what}: expected {wanted}, sent {is}"))
        };
        if self.wants_ecn || (expected.flags & 0xc0 != 0 && sent.flags & 0xc0 == 0) {
            return Err(ScriptFailure::Unsupported("explicit congestion notification".to_owned()));
        }
        if expected.flags != sent.flags {
            return Err(differs("other flags"));
        }
        if expected.seq.is_some_and(|seq| Some(seq) != sent.seq) || expected.len != sent.len {
            return Err(differs("other sequence numbers"));
        }
        if expected.ack.is_some() && expected.flags & 16 != 0 && expected.ack != sent.ack {
            return Err(differs("another acknowledgement"));
        }
        if expected.window.is_some() && expected.window != sent.window {
            return Err(differs("another window"));
        }
        match &expected.options {
            Some(wanted)
                if option_texts(wanted) != option_texts(sent.options.as_deref().unwrap_or_default()) =>
            {
                Err(differs("other options"))
            }
            _ => Ok(()),
        }
    }
}

/// Formats the options. Their order and padding do not matter (RFC 9293 §3.1).
fn option_texts(options: &[TcpOption]) -> Vec<String> {
    let padding = |o: &&TcpOption| !matches!(o, TcpOption::Nop | TcpOption::End);
    let mut words: Vec<String> = options.iter().filter(padding).map(|o| format!("{o:?}")).collect();
    words.sort();
    words
}

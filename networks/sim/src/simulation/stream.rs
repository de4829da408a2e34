//! TCP: connections between applications, segments in and out, timers.

use super::{FourTuple, SimEvent, Simulation, SimulationScope, TcpConnectionEntry, TcpTotals};
use crate::addr::HostId;
use crate::app::{AppConnectionId, AppDelivery, Application, ReportObserver, TcpStreamEvent};
use crate::packet::{Packet, PacketBody, PacketRef, Payload};
use crate::tcp::{self, Segment, SegmentFlags, TcpConnection};
use std::num::NonZeroU32;
use usher_core::{CloseReason, Duration, Instant};

impl TcpTotals {
    /// Returns the sum of two totals.
    #[must_use]
    pub fn merged_with(self, other: Self) -> Self {
        Self {
            segments: self.segments + other.segments,
            retransmitted: self.retransmitted + other.retransmitted,
            timeouts: self.timeouts + other.timeouts,
            fast_retransmits: self.fast_retransmits + other.fast_retransmits,
            pure_acks: self.pure_acks + other.pure_acks,
            blocked: self.blocked + other.blocked,
            data_segments: self.data_segments + other.data_segments,
            data_octets: self.data_octets + other.data_octets,
            data_packet_octets: self.data_packet_octets + other.data_packet_octets,
        }
    }

    pub(super) fn add_connection(&mut self, c: &TcpConnection) {
        let s = c.stats();
        self.segments += u64::from(s.segments_sent);
        self.retransmitted += u64::from(s.retransmitted);
        self.timeouts += u64::from(s.timeouts);
        self.fast_retransmits += u64::from(s.fast_retransmits);
        self.pure_acks += u64::from(s.pure_acks_sent);
        self.blocked += u64::from(s.out_of_order);
    }
}

impl<A: Application, O: ReportObserver<A::Report>, E: SimulationScope> Simulation<A, O, E> {
    pub(super) fn tcp_connect(
        &mut self,
        app: u32,
        id: AppConnectionId,
        from: Option<HostId>,
        remote: HostId,
        remote_port: u16,
    ) {
        let Some(local) = self.local_address(app, from) else {
            let event = TcpStreamEvent::Closed(CloseReason::Refused);
            return self.deliver(app, AppDelivery::Stream { conn: id.into(), event });
        };
        let config = self.apps[app as usize].transports.tcp.clone();
        let local_port = self.ephemeral_port(local, |sim, p| {
            sim.tuples.get(&sim.conns, &FourTuple { local, remote, local_port: p, remote_port }).is_none()
        });
        let iss = self.rng.next_u64() as u32;
        let tcp = TcpConnection::connect(config, iss, self.now);
        let key = FourTuple { local, remote, local_port, remote_port };
        self.add_connection(tcp, app, id, key);
    }

    /// Adds a connection to the table and to its application, and drains it.
    fn add_connection(&mut self, tcp: TcpConnection, app: u32, id: AppConnectionId, key: FourTuple) {
        let mut conn = TcpConnectionEntry {
            tcp,
            app,
            id,
            key,
            peer: super::NONE,
            armed: Instant::FAR_FUTURE,
            attached: true,
            reading: 0,
        };
        if self.apps[app as usize].read_rate().is_some() {
            conn.tcp.set_auto_read(false);
        }
        let index = match self.free_conns.pop() {
            Some(i) => {
                self.conns[i as usize] = conn;
                i
            }
            None => {
                // Grow by a quarter, not by half: connections use most of a large run's memory.
                if self.conns.len() == self.conns.capacity() {
                    self.conns.reserve_exact(self.conns.len() / 4 + 16);
                }
                self.conns.push(conn);
                (self.conns.len() - 1) as u32
            }
        };
        self.tuples.insert(&self.conns, index);
        self.apps[app as usize].set_connection_index(id, index);
        self.drain_connection(index);
    }

    #[inline]
    pub(super) fn tcp_write(&mut self, app: u32, id: AppConnectionId, payload: Payload) {
        let Some(conn) = self.apps[app as usize].tcp_index(id) else {
            self.stats.stale_operation += 1;
            return;
        };
        let tcp = &mut self.conns[conn as usize].tcp;
        let data = match &payload.bytes {
            Some(bytes) => tcp::StreamData::Bytes(bytes),
            None => tcp::StreamData::Count(payload.len),
        };
        if tcp.write(data).is_err() {
            self.stats.stale_operation += 1;
            return;
        }
        if !tcp.defer_written_data(self.now) {
            self.flush_output(conn);
        }
        self.arm_tcp(conn);
        self.record_connection_memory(conn);
    }

    pub(super) fn grant_tcp_read_credit(&mut self, app: u32, id: AppConnectionId, bytes: u32) {
        let Some(conn) = self.apps[app as usize].tcp_index(id) else {
            self.stats.stale_operation += 1;
            return;
        };
        let tcp = &mut self.conns[conn as usize].tcp;
        tcp.set_auto_read(false);
        tcp.grant_credit(bytes);
        self.drain_connection(conn);
    }

    pub(super) fn tcp_close(&mut self, app: u32, id: AppConnectionId, abort: bool) {
        let Some(conn) = self.apps[app as usize].tcp_index(id) else {
            self.stats.stale_operation += 1;
            return;
        };
        let tcp = &mut self.conns[conn as usize].tcp;
        if abort {
            tcp.abort()
        } else {
            tcp.shutdown()
        }
        self.drain_connection(conn);
    }

    #[inline]
    pub(super) fn tcp_timer(&mut self, index: u32) {
        let conn = &mut self.conns[index as usize];
        if conn.armed != self.now {
            return;
        }
        conn.armed = Instant::FAR_FUTURE;
        if conn.tcp.poll_timeout().is_some_and(|at| at <= self.now) {
            conn.tcp.handle_timeout(self.now);
            self.drain_connection(index);
        } else {
            self.arm_tcp(index);
        }
    }

    #[inline]
    pub(super) fn receive_segment(&mut self, key: FourTuple, guess: u32, from: u32, packet: PacketRef) {
        let index = match self.conns.get(guess as usize) {
            Some(c) if c.key == key && !c.tcp.is_closed() => guess,
            _ => match self.tuples.get(&self.conns, &key) {
                Some(index) => index,
                None => return self.handle_unmatched_segment(key, packet),
            },
        };
        let conn = &mut self.conns[index as usize];
        conn.peer = from;
        if let PacketBody::Tcp { segment, .. } = &self.pool[packet].packet.body {
            conn.tcp.handle_segment(self.now, segment);
        }
        self.pool.release(packet);
        self.drain_connection(index);
    }

    /// Handles a segment without a connection. A SYN for a listener opens one. All others except a reset are answered
    /// with a reset (RFC 9293 §3.10.7.1).
    fn handle_unmatched_segment(&mut self, key: FourTuple, packet: PacketRef) {
        let PacketBody::Tcp { segment, .. } = self.pool.take(packet).body else { return };
        let listener = self.listeners.get(&(key.local, key.local_port)).copied();
        if let Some(app) = listener.filter(|_| segment.flags == SegmentFlags::SYN) {
            let config = self.apps[app as usize].transports.tcp.clone();
            let iss = self.rng.next_u64() as u32;
            let Some(tcp) = TcpConnection::accept(config, iss, &segment, self.now) else { return };
            let slot = &mut self.apps[app as usize];
            let id = slot.next_accepted_connection_id();
            self.add_connection(tcp, app, id, key);
            return;
        }
        self.stats.tcp_no_connection += 1;
        if let Some(reset) = segment.reset_reply() {
            self.send_segment(key, super::NONE, super::NONE, reset);
        }
    }

    /// Drains a connection. Acknowledgements that are due leave before the application gets the data, as from a
    /// kernel, unless the settings say otherwise. Delayed ones may ride on its reply.
    #[inline]
    fn drain_connection(&mut self, index: u32) {
        let delivers_first = self.conns[index as usize].tcp.delivers_first();
        if !delivers_first {
            self.flush_output(index);
        }
        while let Some(event) = self.conns[index as usize].tcp.poll_event() {
            let conn = &mut self.conns[index as usize];
            let (app, id, key) = (conn.app, conn.id, conn.key);
            let event = match event {
                tcp::TcpEvent::Connected => TcpStreamEvent::Connected {
                    remote: key.remote,
                    remote_port: key.remote_port,
                    local: key.local,
                    local_port: key.local_port,
                },
                tcp::TcpEvent::Data { len, payload } => {
                    if conn.attached {
                        let data = move || TcpStreamEvent::Data(Payload { len, bytes: payload });
                        self.deliver_built_in_place(app, || AppDelivery::Stream {
                            conn: id.into(),
                            event: data(),
                        });
                    }
                    continue;
                }
                // No application uses half-closed connections: the local end closes with the peer's.
                tcp::TcpEvent::PeerClosed => {
                    conn.tcp.shutdown();
                    TcpStreamEvent::Closed(CloseReason::Closed)
                }
                tcp::TcpEvent::Closed(reason) => TcpStreamEvent::Closed(reason),
            };
            if conn.attached {
                if matches!(event, TcpStreamEvent::Closed(_)) {
                    conn.attached = false;
                    self.apps[app as usize].set_connection_index(id, super::NONE);
                }
                self.deliver(app, AppDelivery::Stream { conn: id.into(), event });
            }
        }
        if delivers_first {
            self.conns[index as usize].tcp.report_all_delivered();
        }
        self.flush_output(index);
        let conn = &mut self.conns[index as usize];
        if conn.tcp.bytes_unread() > 0
            && conn.reading == 0
            && let Some(rate) = self.apps[conn.app as usize].read_rate()
        {
            let piece = self.apps[conn.app as usize].read_size().map_or(conn.tcp.mss(), NonZeroU32::get);
            conn.reading = conn.tcp.bytes_unread().min(piece);
            let time = Duration::from_nanos(u64::from(conn.reading) * 1_000_000_000 / rate);
            self.schedule_event(self.now + time, SimEvent::Read(index));
        }
        if self.conns[index as usize].tcp.is_closed() {
            self.release_connection(index);
        } else {
            self.arm_tcp(index);
            self.record_connection_memory(index);
        }
    }

    /// Delivers the owner of a connection of its host to an application.
    pub(super) fn deliver_connection_owner(
        &mut self,
        app: u32,
        token: u64,
        (local, local_port): (HostId, u16),
        (remote, remote_port): (HostId, u16),
    ) {
        let ours = self.local_address(app, Some(local));
        let key = ours.map(|local| FourTuple { local, remote, local_port, remote_port });
        let conn = key.and_then(|key| self.conns.get(self.tuples.get(&self.conns, &key)? as usize));
        let owner = conn.filter(|conn| conn.attached).map(|conn| conn.app);
        self.deliver(app, AppDelivery::Owner { token, app: owner });
    }

    /// Ends a slow application's read: the window opens again.
    pub(super) fn slow_read(&mut self, index: u32) {
        let conn = &mut self.conns[index as usize];
        let n = std::mem::take(&mut conn.reading);
        conn.tcp.grant_credit(n);
        self.drain_connection(index);
    }

    /// Releases a closed connection after its application's event.
    fn release_connection(&mut self, index: u32) {
        // In its event handlers, the application may have freed this index, and another connection may now have it.
        if !self.conns[index as usize].tcp.is_closed() || !self.tuples.remove(&self.conns, index) {
            return;
        }
        self.closed_totals.add_connection(&self.conns[index as usize].tcp);
        self.record_connection_memory(index);
        let conn = &mut self.conns[index as usize];
        conn.armed = Instant::FAR_FUTURE;
        if std::mem::take(&mut conn.attached) {
            let (app, id) = (conn.app, conn.id);
            self.apps[app as usize].set_connection_index(id, super::NONE);
        }
        self.free_conns.push(index);
    }

    /// Drops the connections of a host that fails, without any event.
    pub(super) fn fail_connections(&mut self, host: HostId) {
        for index in 0..self.conns.len() as u32 {
            let conn = &mut self.conns[index as usize];
            if conn.key.local != host || conn.tcp.is_closed() {
                continue;
            }
            conn.tcp.abort();
            while conn.tcp.poll_transmit(self.now).is_some() {}
            while conn.tcp.poll_event().is_some() {}
            self.release_connection(index);
        }
    }

    #[inline(always)]
    fn flush_output(&mut self, index: u32) {
        if self.conns[index as usize].tcp.has_output() {
            self.send_segments(index);
        }
    }

    fn send_segments(&mut self, index: u32) {
        while let Some(segment) = self.conns[index as usize].tcp.poll_transmit(self.now) {
            let TcpConnectionEntry { key, peer, .. } = self.conns[index as usize];
            self.send_segment(key, peer, index, segment);
        }
    }

    #[inline(always)]
    fn send_segment(&mut self, key: FourTuple, conn: u32, from_conn: u32, segment: Segment) {
        let len = self.version.header_len() + segment.header_len() + segment.len;
        if segment.len > 0 {
            self.data_sent.segments += 1;
            self.data_sent.octets += u64::from(segment.len);
            self.data_sent.packet_octets += u64::from(len);
        }
        let ident = self.next_ident(key.local);
        let (src_port, dst_port) = (key.local_port, key.remote_port);
        self.send_ip_packet(key.local, || {
            let body = PacketBody::Tcp { src_port, dst_port, conn, from_conn, segment };
            Packet { src: key.local, dst: key.remote, len, ident, body }
        });
    }

    #[inline]
    fn arm_tcp(&mut self, index: u32) {
        let conn = &mut self.conns[index as usize];
        if let Some(at) = conn.tcp.poll_timeout().map(|at| at.max(self.now))
            && at < conn.armed
        {
            conn.armed = at;
            self.schedule_event(at, SimEvent::Tcp(index));
        }
    }
}

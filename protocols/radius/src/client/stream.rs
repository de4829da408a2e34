//! RadSec connections to servers (RFC 6614, RFC 6613). Each is a lane of identifiers, as a source port is for UDP.

use super::connection::{ServerConnection, ServerConnectionState};
use super::identifier::AllocatedIdentifier;
use super::machine::{ClientTimer, RadiusClient};
use super::reply::{ReplyVerdict, RetransmitCause};
use crate::packet::RadiusPacket;
use crate::radsec::PacketFramer;
use alloc::vec::Vec;
use usher_core::{ConnId, Duration, Instant, StreamEvent, StreamOp};

/// The longest time between two attempts to connect.
const LONGEST: Duration = Duration::from_secs(60);

impl RadiusClient {
    /// The RadSec connections that are up or being opened, and the number of the next.
    #[must_use]
    pub fn connection_ids(&self) -> (Vec<ConnId>, u32) {
        let mut all: Vec<ConnId> = self.by_conn.keys().copied().collect();
        all.sort_unstable();
        (all, self.next_conn)
    }
    /// True if this RadSec connection is up.
    #[must_use]
    pub fn is_connected(&self, conn: ConnId) -> bool {
        let link = self.by_conn.get(&conn).map(|&(server, lane)| (usize::from(server), lane as usize));
        let link = link.and_then(|(server, lane)| self.links.get(server)?.get(lane));
        link.is_some_and(|link| link.live_connection() == Some(conn))
    }
    fn server_connection_mut(&mut self, server: u16, lane: u32) -> &mut ServerConnection {
        let links = &mut self.links[usize::from(server)];
        if links.len() <= lane as usize {
            links.resize_with(lane as usize + 1, ServerConnection::default);
        }
        &mut links[lane as usize]
    }

    /// True if the last connection to a server failed.
    pub(super) fn is_unreachable(&self, server: u16) -> bool {
        let links = &self.links[usize::from(server)];
        !links.is_empty() && links.iter().all(|l| l.failures > 0 && l.live_connection().is_none())
    }
    /// True if a server has a connection that is up.
    pub(super) fn has_connection(&self, server: u16) -> bool {
        self.links[usize::from(server)].iter().any(|l| l.live_connection().is_some())
    }

    /// True if the connection of a slot is up. Otherwise starts one.
    pub(super) fn ensure_connected(&mut self, now: Instant, slot: AllocatedIdentifier) -> bool {
        match self.server_connection_mut(slot.server, slot.socket).state {
            ServerConnectionState::Up(_) => return true,
            ServerConnectionState::Connecting(_) | ServerConnectionState::Failed(_) => {}
            ServerConnectionState::Idle => self.open_connection(now, slot.server, slot.socket),
        }
        false
    }

    fn open_connection(&mut self, now: Instant, server: u16, lane: u32) {
        let config = &self.config.servers[usize::from(server)];
        let local = Some(config.local).filter(|a| !a.is_unspecified());
        let remote = config.address;
        let conn = ConnId::nth_opened_connection(self.next_conn);
        self.next_conn = self.next_conn.wrapping_add(1);
        self.by_conn.insert(conn, (server, lane));
        self.push_operation(conn, StreamOp::Connect { local, remote });
        let link = self.server_connection_mut(server, lane);
        link.state = ServerConnectionState::Connecting(conn);
        link.framer = PacketFramer::new();
        link.proved = false;
        self.record_reply_expectation(now, server);
    }

    /// Handles the time of the next attempt.
    pub(super) fn retry_connection(&mut self, now: Instant, server: u16, lane: u32) {
        // Requests go to other servers while this one is down. So it is connected even if nothing is pending.
        if matches!(self.server_connection_mut(server, lane).state, ServerConnectionState::Failed(at) if at <= now)
        {
            self.open_connection(now, server, lane);
        }
    }

    /// Connects at once if an attempt failed and the next is scheduled.
    pub(super) fn reconnect_server(&mut self, now: Instant, server: u16) {
        for lane in 0..self.links[usize::from(server)].len() as u32 {
            if matches!(self.server_connection_mut(server, lane).state, ServerConnectionState::Failed(_)) {
                self.open_connection(now, server, lane);
            }
        }
    }

    /// Returns the indexes of the requests that wait on a connection.
    fn pending_on_connection(&self, server: u16, lane: u32) -> Vec<u32> {
        let slot = |identifier| AllocatedIdentifier { server, socket: lane, identifier };
        (0..=u8::MAX).filter_map(|identifier| self.pending_index(slot(identifier))).collect()
    }

    pub(super) fn handle_stream_event(&mut self, now: Instant, conn: ConnId, event: StreamEvent<'_>) {
        let Some(&(server, lane)) = self.by_conn.get(&conn) else {
            // A connection that this side has reset may still report its end, which is no error.
            self.counters.not_a_datagram += u64::from(!matches!(event, StreamEvent::Closed(_)));
            return;
        };
        match event {
            StreamEvent::Connected { certificate, .. } => {
                if !self.is_allowed_server_certificate(server, certificate) {
                    self.counters.connections_refused += 1;
                    self.push_operation(conn, StreamOp::Abort);
                    return self.handle_disconnect(now, conn, server, lane);
                }
                self.counters.connections += 1;
                self.server_connection_mut(server, lane).state = ServerConnectionState::Up(conn);
                self.handle_connected(now, server);
                for index in self.pending_on_connection(server, lane) {
                    self.enqueue_request(index);
                }
                self.record_reply_expectation(now, server);
            }
            StreamEvent::Data(data) => self.receive_data(now, conn, server, lane, data),
            StreamEvent::Writable | StreamEvent::Finished | StreamEvent::Accepted { .. } => {}
            StreamEvent::Closed(_) => self.handle_disconnect(now, conn, server, lane),
        }
    }

    /// True if the server may present this certificate (RFC 6614 §2.3).
    fn is_allowed_server_certificate(&self, server: u16, certificate: Option<&[u8]>) -> bool {
        let may = &self.config.servers[usize::from(server)].certificates;
        may.is_empty() || certificate.is_some_and(|shown| may.iter().any(|m| m.matches_certificate(shown)))
    }

    fn receive_data(&mut self, now: Instant, conn: ConnId, server: u16, lane: u32, mut data: &[u8]) {
        let mut framer = core::mem::take(&mut self.server_connection_mut(server, lane).framer);
        let good = loop {
            match framer.next_packet(&mut data) {
                Ok(None) => break true,
                Ok(Some(bytes)) => {
                    self.work.count_reply_work();
                    let Ok(reply) = RadiusPacket::parse(bytes) else { break false };
                    let slot = AllocatedIdentifier { server, socket: lane, identifier: reply.identifier() };
                    match self.pending_index(slot) {
                        Some(index) if self.process_reply(now, index, &reply) == ReplyVerdict::Foreign => {
                            break false;
                        }
                        Some(_) => {}
                        None => self.counters.unknown_identifier += 1,
                    }
                }
                Err(_) => break false,
            }
        };
        if good {
            self.server_connection_mut(server, lane).framer = framer;
        } else {
            // RFC 6613, 2.6.4: a wrong length, attribute or authenticator closes the connection.
            self.reset_malformed_connection(now, conn);
        }
    }

    /// Resets a RadSec connection that carried invalid data, and counts it. Does nothing if it has already ended. Its
    /// pending requests move to another server of their group or to the next connection.
    pub fn reset_malformed_connection(&mut self, now: Instant, conn: ConnId) {
        let Some(&(server, lane)) = self.by_conn.get(&conn) else { return };
        self.counters.connections_malformed += 1;
        self.server_connection_mut(server, lane).proved = false;
        self.push_operation(conn, StreamOp::Abort);
        self.handle_disconnect(now, conn, server, lane);
    }

    /// Records that a connection has carried a reply.
    pub(super) fn mark_connection_proved(&mut self, slot: AllocatedIdentifier) {
        let link = self.server_connection_mut(slot.server, slot.socket);
        (link.proved, link.failures) = (true, 0);
    }

    /// Handles the end of a connection. Its pending requests move to another server of their group or to the next
    /// connection.
    fn handle_disconnect(&mut self, now: Instant, conn: ConnId, server: u16, lane: u32) {
        self.by_conn.remove(&conn);
        let base = self.config.reconnect;
        let link = self.server_connection_mut(server, lane);
        if link.proved {
            link.state = ServerConnectionState::Idle;
        } else {
            link.failures = link.failures.saturating_add(1);
            // RFC 6614, 2.3: each attempt to reconnect waits twice as long as the last.
            let at = now + (base * (1 << link.failures.min(10).saturating_sub(1))).min(LONGEST);
            link.state = ServerConnectionState::Failed(at);
            self.timers.insert(at, ClientTimer::ServerConnection(server, lane));
            self.counters.connections_failed += 1;
            self.handle_connect_failure(now, server);
        }
        self.move_connection_requests(now, server, lane);
    }

    /// Moves the requests of a connection to other servers if possible. The rest waits for the next connection.
    fn move_connection_requests(&mut self, now: Instant, server: u16, lane: u32) {
        let mut stay = false;
        for index in self.pending_on_connection(server, lane) {
            let Some(p) = self.pending.get(index as usize).and_then(Option::as_ref) else { continue };
            if p.source.as_ref().is_some_and(|s| s.group.is_some()) {
                self.retransmit_request(now, index, RetransmitCause::Left);
            } else {
                stay = true;
            }
        }
        if stay && self.server_connection_mut(server, lane).state == ServerConnectionState::Idle {
            self.open_connection(now, server, lane);
        }
    }

    /// Resets all connections to a server and moves its requests.
    pub(super) fn abort_connections(&mut self, now: Instant, server: u16) {
        for lane in 0..self.links[usize::from(server)].len() as u32 {
            let link = self.server_connection_mut(server, lane);
            if let ServerConnectionState::Up(conn) | ServerConnectionState::Connecting(conn) = link.state {
                link.proved = false;
                self.push_operation(conn, StreamOp::Abort);
                self.handle_disconnect(now, conn, server, lane);
            }
        }
    }
}

//! TCP on kernel sockets.

use super::sockets::{StreamConnection, StreamListener};
use super::{LabHostTimer, LabHosts, SocketEventSource, settings};
use crate::error::{ErrorContext, LabError};
use rustix::event::epoll::EventFlags;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration as StdDuration;
use usher_core::{CloseReason, ConnId, Duration};
use usher_sim::{AppDelivery, Application, HostId, Payload, ReportObserver, TcpStreamEvent};

/// The listen backlog.
const BACKLOG: i32 = 1024;
/// Octets without a value.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

impl<A: Application, O: ReportObserver<A::Report>> LabHosts<A, O> {
    /// Creates a socket with the settings of an application's transport, bound in its host.
    fn tcp_socket(&self, app: u32, at: HostId, port: u16) -> Result<Socket, LabError> {
        let address = SocketAddr::new(self.addresses.address_of(at), port);
        let tcp = &self.apps[app as usize].transports.tcp;
        let made = self.run_in_namespace(at, || {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_nonblocking(true)?;
            socket.set_reuse_address(port != 0)?;
            settings::apply_to_socket(&socket, tcp)?;
            socket.bind(&address.into())?;
            Ok::<Socket, std::io::Error>(socket)
        })?;
        made.with_context(|| format!("bind TCP to {address}"))
    }

    pub(super) fn listen_tcp(&mut self, app: u32, at: HostId, port: u16) -> Result<(), LabError> {
        let socket = self.tcp_socket(app, at, port)?;
        let address = SocketAddr::new(self.addresses.address_of(at), port);
        socket.listen(BACKLOG).with_context(|| format!("listen at {address}"))?;
        self.register_socket_source(
            SocketEventSource::Listener(StreamListener { socket, app, address: at, port }),
            EventFlags::IN,
        )?;
        Ok(())
    }

    pub(super) fn accept_connections(&mut self, source: u64) {
        loop {
            let Some(SocketEventSource::Listener(listener)) = self.sources.get(&source) else { return };
            let (app, at, port) = (listener.app, listener.address, listener.port);
            let (socket, sender) = match listener.socket.accept() {
                Ok(accepted) => accepted,
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // Do not retry: the error would repeat at once, without end.
                Err(e) => {
                    let doing = format!("accept a connection at port {port}");
                    self.failed = Some(LabError::Kernel { doing, source: e });
                    return;
                }
            };
            let Some((from, from_port)) = self.host_at(&sender) else {
                self.counters.unknown_sender += 1;
                continue;
            };
            let slot = &mut self.apps[app as usize];
            let conn = ConnId::nth_accepted_connection(slot.accepted);
            slot.accepted += 1;
            // Only this must be set here: an accepted socket inherits the listener's other options.
            if socket.set_nonblocking(true).is_err() {
                self.counters.no_socket += 1;
                continue;
            }
            let Some(stream) = self.take_in(socket, app, conn, (at, port), (from, from_port), false) else {
                continue;
            };
            self.report_connected(stream);
            self.read_stream(stream);
        }
    }

    fn host_at(&self, address: &SockAddr) -> Option<(HostId, u16)> {
        let address = address.as_socket()?;
        Some((self.addresses.host_at(address.ip())?, address.port()))
    }

    fn take_in(
        &mut self,
        socket: Socket,
        app: u32,
        conn: ConnId,
        local: (HostId, u16),
        remote: (HostId, u16),
        connecting: bool,
    ) -> Option<u64> {
        self.connections = true;
        let stream = StreamConnection {
            socket,
            app,
            conn,
            local,
            remote,
            connecting,
            out: VecDeque::new(),
            written: 0,
            closes: false,
            credit: None,
            reading: 0,
        };
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        match self.register_socket_source(SocketEventSource::Stream(stream), flags) {
            Ok(source) => {
                self.apps[app as usize].conns.insert(conn, source);
                Some(source)
            }
            Err(_) => {
                self.counters.no_socket += 1;
                None
            }
        }
    }

    pub(super) fn connect_stream(
        &mut self,
        app: u32,
        conn: ConnId,
        from: Option<HostId>,
        to: HostId,
        port: u16,
    ) {
        let refused = AppDelivery::Stream { conn, event: TcpStreamEvent::Closed(CloseReason::Refused) };
        let Some(at) = self.own_address(app, from) else {
            self.counters.stale_operation += 1;
            return self.deliver_to_app(app, refused);
        };
        let address = SocketAddr::new(self.addresses.address_of(to), port);
        let Ok(socket) = self.tcp_socket(app, at, 0) else {
            self.counters.no_socket += 1;
            return self.deliver_to_app(app, refused);
        };
        let local_port = socket.local_addr().ok().and_then(|a| a.as_socket()).map_or(0, |a| a.port());
        match socket.connect(&address.into()) {
            Err(e) if e.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                self.deliver_to_app(app, refused)
            }
            _ => {
                self.take_in(socket, app, conn, (at, local_port), (to, port), true);
            }
        }
    }

    fn find_stream(&mut self, app: u32, conn: ConnId) -> Option<(u64, &mut StreamConnection)> {
        let source = self.apps[app as usize].conns.get(&conn).copied();
        let found = source.and_then(|source| match self.sources.get_mut(&source) {
            Some(SocketEventSource::Stream(stream)) => Some((source, stream)),
            _ => None,
        });
        self.counters.stale_operation += u64::from(found.is_none());
        found
    }

    pub(super) fn write_stream(&mut self, app: u32, conn: ConnId, payload: Payload) {
        let len = u64::from(payload.len);
        let Some((source, stream)) = self.find_stream(app, conn) else { return };
        if stream.closes || len == 0 {
            return;
        }
        stream.out.push_back(payload);
        let waits = stream.connecting || stream.out.len() > 1;
        self.octets_written += len;
        if !waits {
            self.flush_stream(source);
        }
    }

    /// Passes as much data to the kernel as it takes, with one call per write if possible.
    fn flush_stream(&mut self, source: u64) {
        let Some(SocketEventSource::Stream(stream)) = self.sources.get_mut(&source) else { return };
        while let Some(first) = stream.out.front() {
            let (from, len) = (stream.written, first.len as usize);
            let bytes = first.as_slice();
            let piece = match bytes.get(from..) {
                Some(rest) if !rest.is_empty() => rest,
                _ => &ZEROS[..(len - from).min(ZEROS.len())],
            };
            match (&stream.socket).write(piece) {
                Ok(n) => {
                    stream.written += n;
                    if stream.written >= len {
                        stream.out.pop_front();
                        stream.written = 0;
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // The write failed: drop the data, because the reading side reports the outcome.
                Err(_) => stream.out.clear(),
            }
        }
        if stream.closes {
            let _ = stream.socket.shutdown(Shutdown::Write);
        }
    }

    pub(super) fn stream_event(&mut self, source: u64, flags: EventFlags) {
        let Some(SocketEventSource::Stream(stream)) = self.sources.get_mut(&source) else { return };
        if stream.connecting {
            match stream.socket.take_error() {
                Ok(Some(error)) => return self.close_stream(source, close_reason(&error)),
                Err(error) => return self.close_stream(source, close_reason(&error)),
                Ok(None) if !flags.intersects(EventFlags::OUT) => return,
                Ok(None) => {}
            }
            stream.connecting = false;
            self.report_connected(source);
        }
        if flags.intersects(EventFlags::OUT) {
            self.flush_stream(source);
        }
        self.read_stream(source);
    }

    fn report_connected(&mut self, source: u64) {
        let Some(SocketEventSource::Stream(stream)) = self.sources.get(&source) else { return };
        let (app, conn) = (stream.app, stream.conn);
        let ((local, local_port), (remote, remote_port)) = (stream.local, stream.remote);
        let event = TcpStreamEvent::Connected { remote, remote_port, local, local_port };
        self.deliver_to_app(app, AppDelivery::Stream { conn, event });
    }

    /// Reads as much as the credit allows.
    fn read_stream(&mut self, source: u64) {
        loop {
            let Some(SocketEventSource::Stream(stream)) = self.sources.get_mut(&source) else { return };
            if stream.connecting || stream.reading > 0 {
                return;
            }
            let slot = &self.apps[stream.app as usize];
            if let Some(rate) = slot.read_rate {
                let piece = slot.read_size.map_or(u32::from(slot.transports.tcp.mss), |size| size.get());
                return self.begin_slow_read(source, u64::from(rate), piece);
            }
            let most = stream.credit.map_or(self.buffer.len(), |n| self.buffer.len().min(n as usize));
            if most == 0 {
                return;
            }
            if !self.read_once(source, most) {
                return;
            }
        }
    }

    /// Reads once. False if nothing more is pending.
    fn read_once(&mut self, source: u64, most: usize) -> bool {
        let Some(SocketEventSource::Stream(stream)) = self.sources.get_mut(&source) else { return false };
        match (&stream.socket).read(&mut self.buffer[..most]) {
            Ok(0) => {
                // No role uses half-closed connections: this side closes with the peer.
                self.close_stream(source, CloseReason::Closed);
                false
            }
            Ok(len) => {
                if let Some(credit) = &mut stream.credit {
                    *credit -= len as u64;
                }
                let (app, conn) = (stream.app, stream.conn);
                let event = TcpStreamEvent::Data(Payload::copy_from_slice(&self.buffer[..len]));
                self.deliver_to_app(app, AppDelivery::Stream { conn, event });
                true
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => true,
            Err(e) if e.kind() == ErrorKind::WouldBlock => false,
            Err(e) => {
                self.close_stream(source, close_reason(&e));
                false
            }
        }
    }

    /// Starts a slow application's read of at most `piece` bytes. As in the simulator, the data are delivered and
    /// their buffer space is freed when the reading time is over.
    fn begin_slow_read(&mut self, source: u64, rate: u64, piece: u32) {
        let Some(SocketEventSource::Stream(stream)) = self.sources.get_mut(&source) else { return };
        let waiting = rustix::io::ioctl_fionread(&stream.socket).unwrap_or(0);
        let reading = waiting.min(u64::from(piece)) as u32;
        if reading == 0 {
            // The stream has no data, or has ended, which this read detects.
            self.read_once(source, 1);
            return;
        }
        stream.reading = reading;
        let time = Duration::from_nanos(u64::from(reading) * 1_000_000_000 / rate);
        self.due.insert((self.now + time, LabHostTimer::Read(source)));
    }

    /// Ends a slow application's read of a piece.
    pub(super) fn slow_read(&mut self, source: u64) {
        let Some(SocketEventSource::Stream(stream)) = self.sources.get_mut(&source) else { return };
        let reading = std::mem::take(&mut stream.reading);
        if self.read_once(source, reading as usize) {
            self.read_stream(source);
        }
    }

    pub(super) fn add_stream_credit(&mut self, app: u32, conn: ConnId, bytes: u32) {
        let Some((source, stream)) = self.find_stream(app, conn) else { return };
        *stream.credit.get_or_insert(0) += u64::from(bytes);
        self.read_stream(source);
    }

    pub(super) fn shut_down_stream(&mut self, app: u32, conn: ConnId) {
        let Some((source, stream)) = self.find_stream(app, conn) else { return };
        stream.closes = true;
        if stream.out.is_empty() && !stream.connecting {
            self.flush_stream(source);
        }
    }

    /// Resets a connection without an event to its application.
    pub(super) fn abort_stream(&mut self, app: u32, conn: ConnId) {
        let Some((source, stream)) = self.find_stream(app, conn) else { return };
        let _ = stream.socket.set_linger(Some(StdDuration::ZERO));
        self.apps[app as usize].conns.remove(&conn);
        self.sources.remove(&source);
    }

    /// Returns the owner of a connection of the application's host.
    pub(super) fn connection_owner(
        &self,
        app: u32,
        local: (HostId, u16),
        remote: (HostId, u16),
    ) -> Option<u32> {
        let host = self.own_address(app, Some(local.0))?;
        self.sources.values().find_map(|source| match source {
            SocketEventSource::Stream(s) if (s.local, s.remote) == ((host, local.1), remote) => Some(s.app),
            _ => None,
        })
    }

    /// Reports the end of a connection to its application. The kernel still sends its pending data.
    fn close_stream(&mut self, source: u64, why: CloseReason) {
        let Some(SocketEventSource::Stream(stream)) = self.sources.remove(&source) else { return };
        let (app, conn) = (stream.app, stream.conn);
        drop(stream);
        self.apps[app as usize].conns.remove(&conn);
        self.deliver_to_app(app, AppDelivery::Stream { conn, event: TcpStreamEvent::Closed(why) });
    }
}

fn close_reason(error: &std::io::Error) -> CloseReason {
    match error.kind() {
        ErrorKind::ConnectionRefused => CloseReason::Refused,
        ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            CloseReason::TimedOut
        }
        _ => CloseReason::Reset,
    }
}

//! One connection: the task between a TCP socket, with or without TLS, and the driver.

use crate::counters::DriverCounters;
use crate::handshakes::HandshakeScheduler;
use crate::tls::{self, TlsConnection};
use crate::{DriverConfig, TlsClient, TlsServer};
use socket2::SockRef;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc::{Sender, UnboundedReceiver};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use usher_core::{CloseReason, ConnId};
use usher_crypto::tls::TlsError;
use usher_sctp::SendInfo;

/// Octets read by one call.
const CHUNK: usize = 16 << 10;

/// A command of the driver to a connection.
#[derive(Debug)]
pub(crate) enum ConnectionCommand {
    /// Send these octets.
    Data(Vec<u8>),
    /// Send this message by an association.
    Message(SendInfo, Vec<u8>),
    /// Read this many more octets. Before the first such command, reading is unlimited.
    Credit(u32),
    /// Close after everything is sent.
    Shutdown,
    /// Reset.
    Abort,
}

/// An event of a connection for the driver.
#[derive(Debug)]
pub(crate) enum ConnectionEvent {
    /// The connection is established.
    Connected {
        /// The peer.
        remote: SocketAddr,
        /// The local address.
        local: Option<IpAddr>,
        /// The peer's certificate.
        certificate: Option<Vec<u8>>,
    },
    /// The next octets.
    Data(Vec<u8>),
    /// An association is established.
    Up {
        /// The peer.
        remote: SocketAddr,
        /// Outbound streams.
        streams: u16,
    },
    /// A message of an association.
    Message {
        /// Its stream.
        stream: u16,
        /// Its payload protocol identifier.
        ppid: u32,
        /// The message.
        data: Vec<u8>,
    },
    /// A long queue has been sent.
    Writable,
    /// The peer sends no more data.
    Finished,
    /// The connection is closed.
    Closed(CloseReason),
}

/// A connection's end of the channel to its driver.
pub(crate) struct DriverHandle {
    pub(crate) id: ConnId,
    pub(crate) notes: Sender<(ConnId, ConnectionEvent)>,
    pub(crate) orders: UnboundedReceiver<ConnectionCommand>,
    /// Queued octets that are not sent yet.
    pub(crate) queued: Arc<AtomicUsize>,
    pub(crate) counters: Arc<DriverCounters>,
    pub(crate) settings: DriverConfig,
    /// Turns of handshakes, for an unproven peer.
    pub(crate) turns: Option<HandshakeScheduler>,
}

impl DriverHandle {
    /// Sends an event to the driver. If the driver has ended, the event is dropped.
    pub(crate) async fn send_event(&self, note: ConnectionEvent) {
        let _ = self.notes.send((self.id, note)).await;
    }
}

/// Serves an accepted connection.
pub(crate) async fn serve_accepted(
    link: DriverHandle,
    stream: TcpStream,
    remote: SocketAddr,
    tls: Option<TlsServer>,
) {
    let tls = match tls.map(|tls| TlsConnection::for_server(&tls)).transpose() {
        Ok(tls) => tls,
        Err(error) => {
            tls::count_error(&link.counters, &error);
            return link.send_event(ConnectionEvent::Closed(CloseReason::Reset)).await;
        }
    };
    StreamTask::new(link, stream, remote, tls).run_to_end().await;
}

/// Opens a connection and serves it.
pub(crate) async fn connect_and_serve(
    mut link: DriverHandle,
    local: Option<IpAddr>,
    remote: SocketAddr,
    tls: Option<TlsClient>,
) {
    let mut orders = Vec::new();
    let opening = timeout(link.settings.connect_timeout, open_stream(local, remote));
    tokio::pin!(opening);
    let opened = loop {
        tokio::select! {
            opened = &mut opening => break opened,
            order = link.orders.recv() => match order {
                Some(order @ (ConnectionCommand::Data(_) | ConnectionCommand::Message(..) | ConnectionCommand::Credit(_))) => orders.push(order),
                // Close at once: there is no connection yet that could be shut down gracefully.
                Some(ConnectionCommand::Shutdown) | None => return link.send_event(ConnectionEvent::Closed(CloseReason::Closed)).await,
                Some(ConnectionCommand::Abort) => return,
            },
        }
    };
    let failed = match opened {
        Ok(Ok(stream)) => match tls.map(|tls| TlsConnection::for_client(&tls)).transpose() {
            Ok(tls) => {
                let mut carrier = StreamTask::new(link, stream, remote, tls);
                for order in orders {
                    carrier.apply_command(Some(order));
                }
                return carrier.run_to_end().await;
            }
            Err(error) => {
                tls::count_error(&link.counters, &error);
                CloseReason::Refused
            }
        },
        Ok(Err(error)) => match error.kind() {
            io::ErrorKind::ConnectionReset => CloseReason::Reset,
            io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                CloseReason::TimedOut
            }
            _ => CloseReason::Refused,
        },
        Err(_) => CloseReason::TimedOut,
    };
    link.counters.connect_failures.increment();
    link.send_event(ConnectionEvent::Closed(failed)).await;
}

/// Waits for a new trust configuration, forever without TLS. An error means that the peer is no longer trusted.
async fn wait_for_trust_change(tls: &mut Option<TlsConnection>) -> Result<(), TlsError> {
    match tls {
        Some(tls) => tls.wait_for_config_replacement().await,
        None => std::future::pending().await,
    }
}

async fn open_stream(local: Option<IpAddr>, remote: SocketAddr) -> io::Result<TcpStream> {
    let socket = if remote.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if let Some(local) = local.filter(|local| !local.is_unspecified()) {
        socket.bind(SocketAddr::new(local, 0))?;
    }
    socket.connect(remote).await
}

/// Progress of a local close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LocalCloseState {
    /// Open.
    Open,
    /// This end closes after all data is sent.
    Requested,
    /// All data is sent, and the peer knows that this end sends no more.
    EndSent,
}

struct StreamTask {
    link: DriverHandle,
    stream: TcpStream,
    remote: SocketAddr,
    tls: Option<TlsConnection>,
    /// True if the driver knows that it is established.
    up: bool,
    /// Octets for the socket, and the number that it has taken.
    out: Vec<u8>,
    sent: usize,
    /// Octets in `out` or waiting for the handshake, and not yet subtracted from [`DriverHandle::queued`].
    waiting: usize,
    /// True if the queue is so long that the driver gets an event when it is sent.
    high: bool,
    credit: Option<u64>,
    closing_state: LocalCloseState,
    /// True if the peer has ended its data, and the driver knows it.
    finished: bool,
    /// True if the driver has dropped the connection.
    orphan: bool,
    deadline: Option<Instant>,
    buffer: Vec<u8>,
}

impl StreamTask {
    fn new(link: DriverHandle, stream: TcpStream, remote: SocketAddr, tls: Option<TlsConnection>) -> Self {
        // Without TCP_NODELAY, small messages would wait for acknowledgements of earlier ones. An error is ignored,
        // because the connection also works without the option.
        let _ = stream.set_nodelay(true);
        let deadline = tls.is_some().then(|| Instant::now() + link.settings.handshake_timeout);
        Self {
            link,
            stream,
            remote,
            tls,
            up: false,
            out: Vec::new(),
            sent: 0,
            waiting: 0,
            high: false,
            credit: None,
            closing_state: LocalCloseState::Open,
            finished: false,
            orphan: false,
            deadline,
            buffer: vec![0; CHUNK],
        }
    }

    /// Serves the connection to its end.
    async fn run_to_end(mut self) {
        match self.serve_until_closed().await {
            Ok(reason) => {
                self.link.send_event(ConnectionEvent::Closed(reason)).await;
                // Send the data that was queued before the driver received the close.
                let linger = self.link.settings.linger;
                let _ = timeout(linger, self.drain_commands()).await;
            }
            Err(reason) => {
                self.reset_on_close();
                if let Some(reason) = reason {
                    self.link.send_event(ConnectionEvent::Closed(reason)).await;
                }
            }
        }
    }

    /// Serves until one end closes (`Ok`) or the connection breaks (`Err`, with the reason for the driver).
    async fn serve_until_closed(&mut self) -> Result<CloseReason, Option<CloseReason>> {
        if let Some(tls) = &mut self.tls {
            tls.stream.start_handshake(&mut self.out);
        } else {
            self.report_connected().await;
        }
        loop {
            self.flush()?;
            if self.high && self.waiting == 0 {
                self.high = false;
                self.link.send_event(ConnectionEvent::Writable).await;
            }
            if self.closing_state == LocalCloseState::Requested
                && self.out.is_empty()
                && self.octets_awaiting_handshake() == 0
            {
                self.shut_down_sending();
                if self.finished {
                    return Ok(CloseReason::Closed);
                }
                continue;
            }
            let reading =
                !self.finished && (self.credit != Some(0) || self.closing_state != LocalCloseState::Open);
            let interest = match (reading, self.out.is_empty()) {
                (true, true) => Some(Interest::READABLE),
                (true, false) => Some(Interest::READABLE | Interest::WRITABLE),
                (false, false) => Some(Interest::WRITABLE),
                (false, true) => None,
            };
            let deadline = self.deadline;
            tokio::select! {
                order = self.link.orders.recv(), if !self.orphan => {
                    if !self.apply_command(order) {
                        return Err(None);
                    }
                    while let Ok(order) = self.link.orders.try_recv() {
                        if !self.apply_command(Some(order)) {
                            return Err(None);
                        }
                    }
                }
                ready = async { self.stream.ready(interest.unwrap_or(Interest::READABLE)).await },
                    if interest.is_some() =>
                {
                    let ready = ready.map_err(|_| Some(CloseReason::Reset))?;
                    if reading && ready.is_readable() && self.read_once().await? {
                        if !self.link.settings.half_closed || self.tls.is_some() || self.closing_state != LocalCloseState::Open {
                            return Ok(CloseReason::Closed);
                        }
                        self.finished = true;
                        self.link.send_event(ConnectionEvent::Finished).await;
                    }
                }
                trusted = wait_for_trust_change(&mut self.tls) => if let Err(error) = trusted {
                    self.link.counters.tls_distrusted.increment();
                    if let Some(tls) = &self.tls {
                        tls.report_failure(self.remote, error);
                    }
                    return Err(Some(CloseReason::Reset));
                },
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    if !self.up && self.closing_state == LocalCloseState::Open {
                        self.link.counters.tls_timeout.increment();
                    }
                    return Err(Some(CloseReason::TimedOut));
                }
            }
        }
    }

    /// Applies a command; `None` means that the driver has ended. False: reset the connection.
    fn apply_command(&mut self, order: Option<ConnectionCommand>) -> bool {
        match order {
            Some(ConnectionCommand::Data(data)) => {
                self.waiting += data.len();
                self.high |= self.waiting > self.link.settings.stream_queue / 2;
                self.queue_data(&data);
            }
            Some(ConnectionCommand::Credit(more)) => {
                self.credit = Some(self.credit.unwrap_or(0).saturating_add(u64::from(more)));
            }
            Some(ConnectionCommand::Shutdown) | None => {
                self.orphan = order.is_none();
                if self.closing_state == LocalCloseState::Open {
                    self.closing_state = LocalCloseState::Requested;
                    self.deadline = Some(Instant::now() + self.link.settings.linger);
                }
            }
            Some(ConnectionCommand::Abort) => return false,
            // This command is for associations and does not apply to byte streams.
            Some(ConnectionCommand::Message(..)) => self.link.counters.unknown_connection.increment(),
        }
        true
    }

    fn queue_data(&mut self, data: &[u8]) {
        if self.closing_state == LocalCloseState::EndSent {
            return;
        }
        self.link.counters.stream_octets_out.add(data.len() as u64);
        match &mut self.tls {
            None => self.out.extend_from_slice(data),
            Some(tls) => tls.stream.send_application(data, &mut self.out),
        }
    }

    /// Returns the octets that wait for the handshake.
    fn octets_awaiting_handshake(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.stream.pending_octets())
    }

    /// Reports the established connection to the driver.
    async fn report_connected(&mut self) {
        self.up = true;
        if self.closing_state == LocalCloseState::Open {
            self.deadline = None;
        }
        if let Some(tls) = &self.tls {
            tls.is_up(self.remote);
        }
        let certificate = self.tls.as_ref().and_then(|tls| tls.stream.peer_certificate()).map(<[u8]>::to_vec);
        // A socket without a connection has no address.
        let local = original_destination(&self.stream).map(|local| local.ip());
        self.link.send_event(ConnectionEvent::Connected { remote: self.remote, local, certificate }).await;
        if let Some(tls) = &mut self.tls {
            tls.stream.flush_pending(&mut self.out);
        }
    }

    /// Writes to the socket as much as it takes.
    fn flush(&mut self) -> Result<(), Option<CloseReason>> {
        while self.sent < self.out.len() {
            match self.stream.try_write(&self.out[self.sent..]) {
                Ok(n) => {
                    self.sent += n;
                    // Octets that TLS adds are not counted here. When all data is sent, the count is exact again.
                    self.release_queued(
                        n.min(self.waiting - self.octets_awaiting_handshake().min(self.waiting)),
                    );
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Some(CloseReason::Reset)),
            }
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
            self.release_queued(self.waiting - self.octets_awaiting_handshake().min(self.waiting));
        } else if self.sent >= CHUNK {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    fn release_queued(&mut self, octets: usize) {
        self.waiting -= octets;
        self.link.queued.fetch_sub(octets, Ordering::Relaxed);
    }

    /// Reads once; true at the end of the peer's data.
    async fn read_once(&mut self) -> Result<bool, Option<CloseReason>> {
        let most = self.credit.filter(|_| self.closing_state == LocalCloseState::Open).unwrap_or(u64::MAX);
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(CHUNK);
        let count = match self.stream.try_read(&mut self.buffer[..most]) {
            Ok(0) => {
                if !self.up {
                    self.link.counters.tls_closed.increment();
                    return Err(Some(self.tls_close_reason()));
                }
                return Ok(true);
            }
            Ok(count) => count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(false);
            }
            Err(error) => {
                if !self.up {
                    self.link.counters.tls_closed.increment();
                    return Err(Some(self.tls_close_reason()));
                }
                return Err(Some(match error.kind() {
                    io::ErrorKind::TimedOut => CloseReason::TimedOut,
                    _ => CloseReason::Reset,
                }));
            }
        };
        let mut data = Vec::new();
        let mut completed = Ok(false);
        match &mut self.tls {
            None => data.extend_from_slice(&self.buffer[..count]),
            Some(tls) => {
                let turn = match (&self.link.turns, self.deadline) {
                    (Some(turns), Some(deadline)) if !self.up => {
                        let Ok(turn) =
                            timeout_at(deadline, turns.wait_for_handshake_turn(self.remote.ip())).await
                        else {
                            self.link.counters.tls_timeout.increment();
                            return Err(Some(CloseReason::TimedOut));
                        };
                        Some(turn)
                    }
                    _ => None,
                };
                completed = tls.stream.receive_tls(&self.buffer[..count], &mut data, &mut self.out);
                drop(turn);
            }
        }
        if let Some(tls) = &self.tls
            && !self.up
            && tls.stream.is_up()
        {
            self.link.counters.tls_handshakes.increment();
            self.link.counters.tls_resumed.add(u64::from(tls.stream.is_resumed()));
            self.report_connected().await;
        }
        if !data.is_empty() {
            self.link.counters.stream_octets_in.add(data.len() as u64);
            if let Some(credit) = &mut self.credit {
                *credit = credit.saturating_sub(data.len() as u64);
            }
            self.link.send_event(ConnectionEvent::Data(data)).await;
        }
        match completed {
            Ok(_) => Ok(false),
            Err(error) => {
                tls::count_error(&self.link.counters, &error);
                if let Some(tls) = &self.tls {
                    tls.report_failure(self.remote, error);
                }
                // A write error is ignored: it does not change the reason of the close.
                let _ = self.flush();
                self.linger_after_alert().await;
                Err(Some(self.tls_close_reason()))
            }
        }
    }

    /// Gives the peer time to read the alert: an immediate reset could overtake it.
    async fn linger_after_alert(&mut self) {
        let _ = SockRef::from(&self.stream).shutdown(Shutdown::Write);
        let end = async {
            while self.stream.readable().await.is_ok() {
                match self.stream.try_read(&mut self.buffer) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => break,
                }
            }
        };
        let _ = timeout(self.link.settings.linger.min(Duration::from_millis(500)), end).await;
    }

    /// Returns the close reason of a TLS failure.
    fn tls_close_reason(&self) -> CloseReason {
        if self.up || self.link.id.is_accepted() { CloseReason::Reset } else { CloseReason::Refused }
    }

    /// Shuts down the sending direction.
    fn shut_down_sending(&mut self) {
        let _ = SockRef::from(&self.stream).shutdown(Shutdown::Write);
        self.closing_state = LocalCloseState::EndSent;
    }

    /// After the peer's end: handles the commands that the driver sent before it knew.
    async fn drain_commands(&mut self) {
        loop {
            if self.flush().is_err() {
                return;
            }
            tokio::select! {
                order = self.link.orders.recv() => match order {
                    Some(ConnectionCommand::Data(data)) => self.queue_data(&data),
                    Some(ConnectionCommand::Abort) => return self.reset_on_close(),
                    Some(_) => {}
                    None => break,
                },
                ready = self.stream.writable(), if !self.out.is_empty() => if ready.is_err() {
                    return;
                },
            }
        }
        while !self.out.is_empty() && self.stream.writable().await.is_ok() && self.flush().is_ok() {}
    }

    /// Makes the socket's close a reset, which discards queued data.
    fn reset_on_close(&self) {
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

/// Returns the original destination of the peer: netfilter may have redirected the connection.
fn original_destination(stream: &TcpStream) -> Option<SocketAddr> {
    let socket = SockRef::from(stream);
    let local = stream.local_addr().ok()?;
    let led = if local.is_ipv4() { socket.original_dst_v4() } else { socket.original_dst_v6() };
    // The kernel knows no original destination, so the connection was not redirected and the local address holds.
    Some(led.ok().and_then(|led| led.as_socket()).unwrap_or(local))
}

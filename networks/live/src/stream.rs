//! One connection: a task between a TCP socket, with TLS or without, and the driver.

use crate::counters::DriverCounters;
use crate::handshakes::HandshakeTurns;
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

/// What the driver wants of a connection.
#[derive(Debug)]
pub(crate) enum ConnectionCommand {
    /// Send these octets.
    Data(Vec<u8>),
    /// Send this message by an association.
    Message(SendInfo, Vec<u8>),
    /// Read this many more octets; until the first such order as many come as the peer sends.
    Credit(u32),
    /// Close after everything is sent.
    Shutdown,
    /// Reset.
    Abort,
}

/// What a connection tells the driver.
#[derive(Debug)]
pub(crate) enum ConnectionEvent {
    /// It is up.
    Connected {
        /// The other side.
        remote: SocketAddr,
        /// Our address.
        local: Option<IpAddr>,
        /// Its certificate.
        certificate: Option<Vec<u8>>,
    },
    /// The next octets.
    Data(Vec<u8>),
    /// An association is up.
    Up {
        /// The other side.
        remote: SocketAddr,
        /// Outbound streams.
        streams: u16,
    },
    /// A message of an association.
    Message {
        /// Its stream.
        stream: u16,
        /// Its payload protocol.
        ppid: u32,
        /// What it says.
        data: Vec<u8>,
    },
    /// Much was waiting to be sent, and all is sent.
    Writable,
    /// The other side sends no more.
    Finished,
    /// It is over.
    Closed(CloseReason),
}

/// A connection's end of what binds it to its driver.
pub(crate) struct DriverHandle {
    pub(crate) id: ConnId,
    pub(crate) notes: Sender<(ConnId, ConnectionEvent)>,
    pub(crate) orders: UnboundedReceiver<ConnectionCommand>,
    /// Octets ordered and not sent yet.
    pub(crate) queued: Arc<AtomicUsize>,
    pub(crate) counters: Arc<DriverCounters>,
    pub(crate) settings: DriverConfig,
    /// Whose handshake's turn it is, for a peer who came unasked.
    pub(crate) turns: Option<HandshakeTurns>,
}

impl DriverHandle {
    /// Tells the driver; one that has ended need not know.
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
                // Nothing is open yet that could be closed in good order.
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

/// Waits for another configuration of whom to trust, without TLS for ever; an error where the peer is not trusted any more.
async fn wait_trust_change(tls: &mut Option<TlsConnection>) -> Result<(), TlsError> {
    match tls {
        Some(tls) => tls.wait_replacement().await,
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

/// How far the ending of a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClosingState {
    /// Nobody wants it to end.
    Open,
    /// This side wants it to end when all is sent.
    Requested,
    /// All is sent, and the other side knows that no more will come.
    EndSent,
}

struct StreamTask {
    link: DriverHandle,
    stream: TcpStream,
    remote: SocketAddr,
    tls: Option<TlsConnection>,
    /// Whether the driver has been told that it is up.
    up: bool,
    /// Octets for the socket, and how many of them it has taken.
    out: Vec<u8>,
    sent: usize,
    /// Octets ordered and taken into `out` or waiting for the handshake, not yet off [`DriverHandle::queued`].
    waiting: usize,
    /// Whether so much waited that the driver is to be told when all is sent.
    high: bool,
    credit: Option<u64>,
    closing_state: ClosingState,
    /// Whether the other side sends no more, and the driver was told.
    finished: bool,
    /// Whether the driver has forgotten the connection.
    orphan: bool,
    deadline: Option<Instant>,
    buffer: Vec<u8>,
}

impl StreamTask {
    fn new(link: DriverHandle, stream: TcpStream, remote: SocketAddr, tls: Option<TlsConnection>) -> Self {
        // Without it small messages would wait for acknowledgements of earlier ones; a socket that refuses
        // serves all the same.
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
            closing_state: ClosingState::Open,
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
                // What was ordered until the driver heard of the end is sent still.
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

    /// The connection until one side closes it (`Ok`) or it breaks (`Err`, with what the driver is to hear).
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
            if self.closing_state == ClosingState::Requested
                && self.out.is_empty()
                && self.early_octets() == 0
            {
                self.send_end();
                if self.finished {
                    return Ok(CloseReason::Closed);
                }
                continue;
            }
            let reading =
                !self.finished && (self.credit != Some(0) || self.closing_state != ClosingState::Open);
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
                        if !self.link.settings.half_closed || self.tls.is_some() || self.closing_state != ClosingState::Open {
                            return Ok(CloseReason::Closed);
                        }
                        self.finished = true;
                        self.link.send_event(ConnectionEvent::Finished).await;
                    }
                }
                trusted = wait_trust_change(&mut self.tls) => if let Err(error) = trusted {
                    self.link.counters.tls_distrusted.increment();
                    if let Some(tls) = &self.tls {
                        tls.report_failure(self.remote, error);
                    }
                    return Err(Some(CloseReason::Reset));
                },
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    if !self.up && self.closing_state == ClosingState::Open {
                        self.link.counters.tls_timeout.increment();
                    }
                    return Err(Some(CloseReason::TimedOut));
                }
            }
        }
    }

    /// Takes an order; `None` is the driver's end. False: the connection is to be reset.
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
                if self.closing_state == ClosingState::Open {
                    self.closing_state = ClosingState::Requested;
                    self.deadline = Some(Instant::now() + self.link.settings.linger);
                }
            }
            Some(ConnectionCommand::Abort) => return false,
            // It is of an association.
            Some(ConnectionCommand::Message(..)) => self.link.counters.unknown_connection.increment(),
        }
        true
    }

    fn queue_data(&mut self, data: &[u8]) {
        if self.closing_state == ClosingState::EndSent {
            return;
        }
        self.link.counters.stream_octets_out.add(data.len() as u64);
        match &mut self.tls {
            None => self.out.extend_from_slice(data),
            Some(tls) => tls.stream.send_application(data, &mut self.out),
        }
    }

    /// Octets that wait for the handshake.
    fn early_octets(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.stream.pending_octets())
    }

    /// Tells the driver that the connection is up.
    async fn report_connected(&mut self) {
        self.up = true;
        if self.closing_state == ClosingState::Open {
            self.deadline = None;
        }
        if let Some(tls) = &self.tls {
            tls.is_up(self.remote);
        }
        let certificate = self.tls.as_ref().and_then(|tls| tls.stream.peer_certificate()).map(<[u8]>::to_vec);
        // A socket whose connection is gone already has none.
        let local = original_destination(&self.stream).map(|local| local.ip());
        self.link.send_event(ConnectionEvent::Connected { remote: self.remote, local, certificate }).await;
        if let Some(tls) = &mut self.tls {
            tls.stream.flush_pending(&mut self.out);
        }
    }

    /// Gives the socket what it takes.
    fn flush(&mut self) -> Result<(), Option<CloseReason>> {
        while self.sent < self.out.len() {
            match self.stream.try_write(&self.out[self.sent..]) {
                Ok(n) => {
                    self.sent += n;
                    // What TLS adds is not counted; at the end the count is right again.
                    self.release_queued(n.min(self.waiting - self.early_octets().min(self.waiting)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Some(CloseReason::Reset)),
            }
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
            self.release_queued(self.waiting - self.early_octets().min(self.waiting));
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

    /// Reads once; true at the other side's end.
    async fn read_once(&mut self) -> Result<bool, Option<CloseReason>> {
        let most = self.credit.filter(|_| self.closing_state == ClosingState::Open).unwrap_or(u64::MAX);
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
                        let Ok(turn) = timeout_at(deadline, turns.wait_turn(self.remote.ip())).await else {
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
                // What cannot be sent any more is no other end than this.
                let _ = self.flush();
                self.linger_after_alert().await;
                Err(Some(self.tls_close_reason()))
            }
        }
    }

    /// Lets the other side read the alert: a reset at once could overtake it.
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

    /// Why a connection is over whose TLS failed.
    fn tls_close_reason(&self) -> CloseReason {
        if self.up || self.link.id.is_accepted() { CloseReason::Reset } else { CloseReason::Refused }
    }

    /// Says to the other side that no more will come.
    fn send_end(&mut self) {
        let _ = SockRef::from(&self.stream).shutdown(Shutdown::Write);
        self.closing_state = ClosingState::EndSent;
    }

    /// After the other side's end: what the driver ordered before it heard of that.
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

    /// Has the socket's closing reset the connection, what is queued thrown away.
    fn reset_on_close(&self) {
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

/// Where the other side's connection was to go: netfilter may have led it here from another address.
fn original_destination(stream: &TcpStream) -> Option<SocketAddr> {
    let socket = SockRef::from(stream);
    let local = stream.local_addr().ok()?;
    let led = if local.is_ipv4() { socket.original_dst_v4() } else { socket.original_dst_v6() };
    // Where nothing is translated the system has no other address.
    Some(led.ok().and_then(|led| led.as_socket()).unwrap_or(local))
}

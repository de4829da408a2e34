//! The server, which answers the queries of each connection in order.

use crate::line::LineBuffer;
use crate::message::{ErrorType, IdentPortPair, IdentResponse, ResponseBody};
use crate::work;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::address::host_of;
use usher_core::timer::{TimerQueue, earliest_deadline};
use usher_core::{
    CommandError, ConnId, Duration, Instant, Machine, MachineInput, MachineOutputOf, NoJob, OutputQueue,
    StreamEvent, StreamOp, Transmit, WorkRecord,
};

/// A queried connection, from the view of the server's host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueriedConnection {
    /// The local end, whose owner is requested.
    pub local: SocketAddr,
    /// The asker's end.
    pub remote: SocketAddr,
}

/// The limits of an [`IdentServer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerConfig {
    /// Maximum time of a connection without a query (§2: 60 to 180 s).
    pub idle: Duration,
    /// Maximum time for an answer; then the response is UNKNOWN-ERROR.
    pub response_timeout: Duration,
    /// Maximum connections. Beyond it, the connection that is idle longest is closed. If each waits for an answer,
    /// the new one is refused.
    pub connections: usize,
    /// Maximum connections from one network: an IPv4 address, or 64 bits of an IPv6 address.
    pub connections_per_network: usize,
    /// Maximum pending queries of a connection. A connection with one more is closed after their responses.
    pub pipeline: usize,
}

impl Default for ServerConfig {
    /// 120 s, 5 s, 1024 connections, 16 of a network, 16 queries.
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(120),
            response_timeout: Duration::from_secs(5),
            connections: 1024,
            connections_per_network: 16,
            pipeline: 16,
        }
    }
}

/// A command of an [`IdentServer`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IdentServerCommand {
    /// Answers a query.
    Answer {
        /// The token of [`IdentServerEvent::QueryReceived`].
        token: u64,
        /// The content of the response.
        answer: ResponseBody,
    },
    /// Replaces the limits. Connections beyond them stay open.
    Configure(ServerConfig),
}

/// An event of an [`IdentServer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdentServerEvent {
    /// A query has arrived and needs [`IdentServerCommand::Answer`].
    QueryReceived {
        /// Identifies the query in the answer.
        token: u64,
        /// The asker's address.
        asker: SocketAddr,
        /// The queried connection.
        connection: QueriedConnection,
    },
}

usher_core::counters! {
    /// The events of an [`IdentServer`].
    pub struct IdentServerCounters {
        /// Connections accepted.
        connections,
        /// Connections refused: the limit is reached, and all others wait for answers.
        refused_full,
        /// Connections refused: the limit of their network is reached.
        refused_network,
        /// Idle connections closed to make room for new ones.
        displaced,
        /// Connections closed by the idle timeout.
        idle,
        /// Connections reset: a line was too long.
        line_too_long,
        /// Connections closed: too many pending queries.
        pipeline_full,
        /// Queries.
        queries,
        /// Queries that are not a pair of ports.
        not_a_pair,
        /// Queries with a port out of range.
        out_of_range,
        /// Queries on a connection whose local address is unknown.
        no_local_address,
        /// Queries whose owner lookup took too long.
        unanswered,
        /// Responses with a user.
        user_id,
        /// Responses with INVALID-PORT.
        invalid_port,
        /// Responses with NO-USER.
        no_user,
        /// Responses with HIDDEN-USER.
        hidden_user,
        /// Responses with UNKNOWN-ERROR or an undefined error type.
        unknown_error,
    }
}

impl IdentServerCounters {
    fn count_response(&mut self, answer: &ResponseBody) {
        *match answer {
            ResponseBody::UserId { .. } => &mut self.user_id,
            ResponseBody::Error(ErrorType::InvalidPort) => &mut self.invalid_port,
            ResponseBody::Error(ErrorType::NoUser) => &mut self.no_user,
            ResponseBody::Error(ErrorType::HiddenUser) => &mut self.hidden_user,
            ResponseBody::Error(ErrorType::UnknownError | ErrorType::Extension(_)) => &mut self.unknown_error,
        } += 1;
    }
}

/// A query that waits for its answer or for those before it.
#[derive(Debug)]
struct QueuedQuery {
    token: u64,
    ports: IdentPortPair,
    until: Instant,
    answer: Option<ResponseBody>,
}

#[derive(Debug)]
struct ClientConnection {
    remote: SocketAddr,
    local: Option<IpAddr>,
    lines: LineBuffer,
    waiting: VecDeque<QueuedQuery>,
    /// The connection's time in its queue.
    timer: Instant,
    /// True if the connection closes after its pending responses and accepts no more queries.
    closing: bool,
}

/// An IDENT server: a [`Machine`] over streams that are accepted for it.
#[derive(Debug, Default)]
pub struct IdentServer {
    config: ServerConfig,
    askers: BTreeMap<ConnId, ClientConnection>,
    networks: BTreeMap<IpAddr, usize>,
    /// The connection of each pending query. Tokens are never reused, even if the host reuses connection numbers.
    tokens: BTreeMap<u64, ConnId>,
    next: u64,
    /// Connections without a pending query, by the end of their idle time.
    idle: TimerQueue<ConnId>,
    /// Connections with pending queries, by the deadline of the first.
    response_deadlines: TimerQueue<ConnId>,
    counters: IdentServerCounters,
    outputs: OutputQueue<IdentServerEvent>,
}

/// Returns the address in IPv4 form if it is IPv4-mapped. Keeps an IPv6 scope.
fn canonical_address(address: SocketAddr, port: u16) -> SocketAddr {
    match (address, address.ip().to_canonical()) {
        (SocketAddr::V6(mut v6), IpAddr::V6(_)) => {
            v6.set_port(port);
            v6.into()
        }
        (_, ip) => SocketAddr::new(ip, port),
    }
}

impl IdentServer {
    /// Creates a server with these limits.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self { config, ..Self::default() }
    }
    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &IdentServerCounters {
        &self.counters
    }
    /// Returns the number of open connections.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.askers.len()
    }
    /// Returns the number of pending queries.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.tokens.len()
    }

    fn accept_connection(&mut self, now: Instant, conn: ConnId, remote: SocketAddr, local: Option<IpAddr>) {
        let network = host_of(remote.ip());
        let there = self.networks.get(&network).copied().unwrap_or(0);
        if there >= self.config.connections_per_network {
            self.counters.refused_network += 1;
            return self.send_stream_op(conn, StreamOp::Abort);
        }
        if self.askers.len() >= self.config.connections {
            let Some((_, longest)) = self.idle.pop_due(Instant::FAR_FUTURE) else {
                self.counters.refused_full += 1;
                return self.send_stream_op(conn, StreamOp::Abort);
            };
            self.counters.displaced += 1;
            self.close_connection(longest, StreamOp::Shutdown);
        }
        self.counters.connections += 1;
        // The connection that was just closed may have been the last one of the same network, so the entry may be gone.
        *self.networks.entry(network).or_default() += 1;
        let timer = now + self.config.idle;
        let (lines, waiting) = (LineBuffer::default(), VecDeque::new());
        let asker = ClientConnection { remote, local, lines, waiting, timer, closing: false };
        self.askers.insert(conn, asker);
        self.idle.insert(timer, conn);
    }

    fn receive_data(&mut self, now: Instant, conn: ConnId, mut data: &[u8]) {
        let mut queried = false;
        while let Some(asker) = self.askers.get_mut(&conn).filter(|asker| !asker.closing) {
            match asker.lines.next_line(&mut data) {
                Ok(Some(line)) => self.handle_query(now, conn, &line),
                Ok(None) => break,
                Err(_) => {
                    self.counters.line_too_long += 1;
                    return self.close_connection(conn, StreamOp::Abort);
                }
            }
            queried = true;
        }
        if queried {
            self.send_ready_responses(now, conn);
        }
    }

    /// Handles the asker's end of stream: the connection closes after its pending responses.
    fn handle_end_of_input(&mut self, now: Instant, conn: ConnId) {
        let Some(asker) = self.askers.get_mut(&conn) else { return };
        asker.closing = true;
        self.send_ready_responses(now, conn);
    }

    /// Handles a query: answers an invalid one at once, and reports a valid one to the owner.
    fn handle_query(&mut self, now: Instant, conn: ConnId, line: &[u8]) {
        let Some(asker) = self.askers.get_mut(&conn) else { return };
        self.counters.queries += 1;
        self.outputs.push_work(WorkRecord { label: work::MESSAGE, units: 1 });
        if asker.waiting.len() >= self.config.pipeline {
            self.counters.pipeline_full += 1;
            asker.closing = true;
            return;
        }
        let (token, until) = (self.next, now + self.config.response_timeout);
        self.next += 1;
        let pair = IdentPortPair::parse(line);
        let error = match (pair.map(IdentPortPair::valid_ports), asker.local) {
            (Err(_), _) => {
                self.counters.not_a_pair += 1;
                Some(ErrorType::InvalidPort)
            }
            (Ok(None), _) => {
                self.counters.out_of_range += 1;
                Some(ErrorType::InvalidPort)
            }
            (Ok(Some(_)), None) => {
                self.counters.no_local_address += 1;
                Some(ErrorType::UnknownError)
            }
            (Ok(Some((here, there))), Some(local)) => {
                // RFC 1413, 3: the addresses are those of the query's connection.
                let local = SocketAddr::new(local.to_canonical(), here);
                let connection = QueriedConnection { local, remote: canonical_address(asker.remote, there) };
                self.tokens.insert(token, conn);
                self.outputs.push_event(IdentServerEvent::QueryReceived {
                    token,
                    asker: asker.remote,
                    connection,
                });
                None
            }
        };
        // The ports of a malformed query cannot be repeated, so the response has zeros, which are not valid ports.
        let ports = pair.unwrap_or_default();
        asker.waiting.push_back(QueuedQuery { token, ports, until, answer: error.map(ResponseBody::Error) });
    }

    /// Sends the ready responses in the order of the queries and arms the connection's timer.
    fn send_ready_responses(&mut self, now: Instant, conn: ConnId) {
        let Some(asker) = self.askers.get_mut(&conn) else { return };
        let mut bytes = self.outputs.take_buffer();
        while let Some(QueuedQuery { ports, answer: Some(answer), .. }) =
            asker.waiting.pop_front_if(|waiting| waiting.answer.is_some())
        {
            self.counters.count_response(&answer);
            self.outputs.push_work(WorkRecord { label: work::MESSAGE, units: 1 });
            // RFC 1413, 4: the response has the ports of the query.
            IdentResponse { ports, answer }.emit(&mut bytes);
        }
        if bytes.is_empty() {
            self.outputs.recycle_buffer(bytes);
        } else {
            self.outputs.push_transmit(Transmit::Stream { conn, op: StreamOp::Data }, bytes);
        }
        if asker.closing && asker.waiting.is_empty() {
            return self.close_connection(conn, StreamOp::Shutdown);
        }
        // The connection is in one of the two queues: idle connections, or connections with a response deadline.
        let _ = self.idle.remove(asker.timer, conn) || self.response_deadlines.remove(asker.timer, conn);
        match asker.waiting.front() {
            Some(first) => {
                asker.timer = first.until;
                self.response_deadlines.insert(asker.timer, conn);
            }
            None => {
                asker.timer = now + self.config.idle;
                self.idle.insert(asker.timer, conn);
            }
        }
    }

    fn answer_query(&mut self, now: Instant, token: u64, answer: ResponseBody) -> Result<(), CommandError> {
        let conn = self.tokens.remove(&token).ok_or(CommandError::UnknownToken)?;
        let waiting = self.askers.get_mut(&conn).map(|asker| asker.waiting.iter_mut());
        if let Some(waiting) = waiting.and_then(|mut all| all.find(|waiting| waiting.token == token)) {
            waiting.answer = Some(answer);
        }
        self.send_ready_responses(now, conn);
        Ok(())
    }

    fn expire_timers(&mut self, now: Instant) {
        while let Some((_, conn)) = self.idle.pop_due(now) {
            self.counters.idle += 1;
            self.close_connection(conn, StreamOp::Shutdown);
        }
        while let Some((at, conn)) = self.response_deadlines.pop_due(now) {
            let Some(asker) = self.askers.get_mut(&conn) else { continue };
            for waiting in asker.waiting.iter_mut().filter(|waiting| waiting.until <= at) {
                if waiting.answer.is_none() {
                    self.counters.unanswered += 1;
                    self.tokens.remove(&waiting.token);
                    waiting.answer = Some(ResponseBody::Error(ErrorType::UnknownError));
                }
            }
            self.send_ready_responses(now, conn);
        }
    }

    fn close_connection(&mut self, conn: ConnId, op: StreamOp) {
        self.remove_connection(conn);
        self.send_stream_op(conn, op);
    }

    fn remove_connection(&mut self, conn: ConnId) {
        let Some(asker) = self.askers.remove(&conn) else { return };
        let _ = self.idle.remove(asker.timer, conn) || self.response_deadlines.remove(asker.timer, conn);
        for waiting in asker.waiting {
            self.tokens.remove(&waiting.token);
        }
        let network = host_of(asker.remote.ip());
        if let Some(there) = self.networks.get_mut(&network) {
            *there -= 1;
            if *there == 0 {
                self.networks.remove(&network);
            }
        }
    }

    fn send_stream_op(&mut self, conn: ConnId, op: StreamOp) {
        self.outputs.push_operation(Transmit::Stream { conn, op });
    }
}

impl Machine for IdentServer {
    type Command = IdentServerCommand;
    type Event = IdentServerEvent;
    type Job = NoJob;

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Stream { conn, event } => match event {
                StreamEvent::Accepted { remote, local, .. } => {
                    self.accept_connection(now, conn, remote, local)
                }
                StreamEvent::Data(data) => self.receive_data(now, conn, data),
                StreamEvent::Finished => self.handle_end_of_input(now, conn),
                StreamEvent::Closed(_) => self.remove_connection(conn),
                StreamEvent::Connected { .. } | StreamEvent::Writable => {}
            },
            MachineInput::Timeout => self.expire_timers(now),
            other => {
                if let Some(refusal) = other.refusal() {
                    self.outputs.push_operation(refusal);
                }
            }
        }
    }

    fn handle_command(&mut self, now: Instant, command: IdentServerCommand) -> Result<(), CommandError> {
        match command {
            IdentServerCommand::Answer { token, answer } => self.answer_query(now, token, answer),
            IdentServerCommand::Configure(config) => {
                self.config = config;
                Ok(())
            }
        }
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        earliest_deadline([self.idle.next_deadline(), self.response_deadlines.next_deadline()])
    }
}

//! The server's side: queries of many connections, each answered in its turn.

use crate::line::LineBuffer;
use crate::message::{ErrorType, IdentResponse, PortPair, ResponseBody};
use crate::work;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::address::host_of;
use usher_core::timer::{TimerQueue, earliest_deadline};
use usher_core::{
    CommandError, ConnId, Duration, Instant, Machine, MachineInput, NoJob, OutputOf, OutputQueue,
    StreamEvent, StreamOp, Transmit, WorkRecord,
};

/// A connection whose owner is asked for, as the server's host has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueriedConnection {
    /// This host's end, whose owner is wanted.
    pub local: SocketAddr,
    /// The asker's end.
    pub remote: SocketAddr,
}

/// What a [`IdentServer`] allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerConfig {
    /// How long a connection may be without a query (§2: 60 to 180 s).
    pub idle: Duration,
    /// How long an answer may take, before it is UNKNOWN-ERROR.
    pub response_timeout: Duration,
    /// Connections at a time. Beyond it the one that has been idle for longest makes room; where each waits for an answer,
    /// the new one is refused.
    pub connections: usize,
    /// Connections at a time from one network: an IPv4 address, or 64 bits of an IPv6 address.
    pub connections_per_network: usize,
    /// Queries of a connection that may wait for their answers. With one more it is closed when those are answered.
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

/// What a [`IdentServer`] is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerCommand {
    /// What to answer to a query.
    Answer {
        /// Of [`ServerEvent::QueryReceived`].
        token: u64,
        /// The answer.
        answer: ResponseBody,
    },
    /// Allow this from now on; connections that exceed it stay.
    Configure(ServerConfig),
}

/// What a [`IdentServer`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerEvent {
    /// Somebody asks who owns a connection; [`ServerCommand::Answer`] is owed.
    QueryReceived {
        /// Comes back with the answer.
        token: u64,
        /// Who asks.
        asker: SocketAddr,
        /// About what.
        connection: QueriedConnection,
    },
}

usher_core::counters! {
    /// What a [`IdentServer`] did.
    pub struct ServerCounters {
        /// Connections taken.
        connections,
        /// Connections refused: as many as may be wait for answers.
        refused_full,
        /// Connections refused: their network has as many as it may.
        refused_network,
        /// Connections closed that had been idle for longest, to make room.
        displaced,
        /// Connections closed after too long without a query.
        idle,
        /// Connections reset that sent a line without an end.
        line_too_long,
        /// Connections closed that had more queries waiting than they may.
        pipeline_full,
        /// Queries.
        queries,
        /// Of them, those that are no pair of ports.
        not_a_pair,
        /// Of them, those with a port that none can be.
        out_of_range,
        /// Of them, those by a connection whose own address the host does not tell.
        no_local_address,
        /// Of them, those to which the answer did not come in time.
        unanswered,
        /// Replies with a user.
        user_id,
        /// Replies with INVALID-PORT.
        invalid_port,
        /// Replies with NO-USER.
        no_user,
        /// Replies with HIDDEN-USER.
        hidden_user,
        /// Replies with UNKNOWN-ERROR, or an error of no standard.
        unknown_error,
    }
}

impl ServerCounters {
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

/// A query that waits for its answer, or for those before it.
#[derive(Debug)]
struct QueuedQuery {
    token: u64,
    ports: PortPair,
    until: Instant,
    answer: Option<ResponseBody>,
}

#[derive(Debug)]
struct ClientConnection {
    remote: SocketAddr,
    local: Option<IpAddr>,
    lines: LineBuffer,
    waiting: VecDeque<QueuedQuery>,
    /// Under which time it is in one of the queues.
    timer: Instant,
    /// It is closed when all is answered, and not heard any more.
    closing: bool,
}

/// An IDENT server: a [`Machine`] over streams that are accepted for it.
#[derive(Debug, Default)]
pub struct IdentServer {
    config: ServerConfig,
    askers: BTreeMap<ConnId, ClientConnection>,
    networks: BTreeMap<IpAddr, usize>,
    /// By which connections the questions came that wait for an answer. Tokens are never given twice, whatever connections the
    /// host gives the same number.
    tokens: BTreeMap<u64, ConnId>,
    next: u64,
    /// Connections that wait for no answer, and when they have been idle for too long.
    idle: TimerQueue<ConnId>,
    /// Connections that wait for an answer, and when the first of theirs is due.
    response_deadlines: TimerQueue<ConnId>,
    counters: ServerCounters,
    outputs: OutputQueue<ServerEvent>,
}

/// An address as a connection by IPv4 has it, whatever socket it came by; its scope is kept.
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
    /// A server that allows this much.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self { config, ..Self::default() }
    }
    /// What it has done.
    #[must_use]
    pub const fn counters(&self) -> &ServerCounters {
        &self.counters
    }
    /// Connections that are open.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.askers.len()
    }
    /// Questions that wait for their answers.
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
        // The one that made room may have been of the same network.
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

    /// The asker sends no more: it is closed when all is answered.
    fn finish_input(&mut self, now: Instant, conn: ConnId) {
        let Some(asker) = self.askers.get_mut(&conn) else { return };
        asker.closing = true;
        self.send_ready_responses(now, conn);
    }

    /// Takes a query: it is answered already where it is not right, and otherwise asked.
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
        let pair = PortPair::parse(line);
        let error = match (pair.map(PortPair::valid_ports), asker.local) {
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
                let local = SocketAddr::new(local.to_canonical(), here);
                let connection = QueriedConnection { local, remote: canonical_address(asker.remote, there) };
                self.tokens.insert(token, conn);
                self.outputs.push_event(ServerEvent::QueryReceived {
                    token,
                    asker: asker.remote,
                    connection,
                });
                None
            }
        };
        // What is no pair cannot be repeated; zeros are no ports of anybody.
        let ports = pair.unwrap_or_default();
        asker.waiting.push_back(QueuedQuery { token, ports, until, answer: error.map(ResponseBody::Error) });
    }

    /// Sends what is answered, in the order of the queries, and arms the connection's timer.
    fn send_ready_responses(&mut self, now: Instant, conn: ConnId) {
        let Some(asker) = self.askers.get_mut(&conn) else { return };
        let mut bytes = self.outputs.take_buffer();
        while let Some(QueuedQuery { ports, answer: Some(answer), .. }) =
            asker.waiting.pop_front_if(|waiting| waiting.answer.is_some())
        {
            self.counters.count_response(&answer);
            self.outputs.push_work(WorkRecord { label: work::MESSAGE, units: 1 });
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
        // It is in one of the two.
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
    type Command = ServerCommand;
    type Event = ServerEvent;
    type Job = NoJob;

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Stream { conn, event } => match event {
                StreamEvent::Accepted { remote, local, .. } => {
                    self.accept_connection(now, conn, remote, local)
                }
                StreamEvent::Data(data) => self.receive_data(now, conn, data),
                StreamEvent::Finished => self.finish_input(now, conn),
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

    fn handle_command(&mut self, now: Instant, command: ServerCommand) -> Result<(), CommandError> {
        match command {
            ServerCommand::Answer { token, answer } => self.answer_query(now, token, answer),
            ServerCommand::Configure(config) => {
                self.config = config;
                Ok(())
            }
        }
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        earliest_deadline([self.idle.next_deadline(), self.response_deadlines.next_deadline()])
    }
}

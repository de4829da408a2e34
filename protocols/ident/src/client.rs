//! The client, which sends each query on a connection of its own.

use crate::line::{LineBuffer, LineTooLong};
use crate::message::{IdentPortPair, IdentResponse, ResponseBody, ResponseParseError};
use crate::work;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::timer::TimerQueue;
use usher_core::{
    CloseReason, CommandError, ConnId, Duration, Instant, Machine, MachineInput, MachineOutputOf, NoJob,
    OutputQueue, StreamEvent, StreamOp, Transmit, WorkRecord,
};

/// A query and its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdentQuery {
    /// The server: the host of the connection's owner, usually at port [`PORT`](crate::PORT).
    pub server: SocketAddr,
    /// The local address of the connection in question, from which the query must come. `None` leaves the choice to
    /// the host.
    pub local: Option<IpAddr>,
    /// The connection's port on the server and the local port.
    pub ports: IdentPortPair,
}

/// The limits of an [`IdentClient`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientConfig {
    /// Maximum time until the response, connection setup included (§2: at least 30 s).
    pub response_timeout: Duration,
    /// Maximum pending queries.
    pub questions: usize,
}

impl Default for ClientConfig {
    /// 30 s, 1024 queries.
    fn default() -> Self {
        Self { response_timeout: Duration::from_secs(30), questions: 1024 }
    }
}

/// A command of an [`IdentClient`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientCommand {
    /// Sends a query. [`CommandError::Full`] if the limit of pending queries is reached.
    Query {
        /// Returned with the result.
        token: u64,
        /// The query and its server.
        question: IdentQuery,
    },
}

/// An event of an [`IdentClient`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientEvent {
    /// A query has ended.
    Answered {
        /// The token of the query.
        token: u64,
        /// The response, or why there is none.
        answer: Result<ResponseBody, QueryFailure>,
    },
}

/// Why a query has no response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueryFailure {
    /// The server refused the connection.
    #[error("the connection was refused: no IDENT server listens there")]
    Refused,
    /// No connection or no response in time.
    #[error("no reply in time")]
    Silence,
    /// The server closed the connection without a response, which means the same as UNKNOWN-ERROR (§5).
    #[error("the server closed the connection without a reply: it may refuse to answer in this way")]
    Closed,
    /// The response is malformed.
    #[error("the reply does not follow RFC 1413: {0}")]
    Reply(#[from] ResponseParseError),
    /// The response has no line end.
    #[error("the reply does not follow RFC 1413: {0}")]
    LineTooLong(#[from] LineTooLong),
    /// The response is about another connection.
    #[error("the reply is about the ports {0}, not about those of the query")]
    PortMismatch(IdentPortPair),
}

usher_core::counters! {
    /// The events of an [`IdentClient`].
    pub struct ClientCounters {
        /// Queries.
        questions,
        /// Queries with a response, USERID or ERROR.
        answered,
        /// Queries whose server refused the connection.
        refused,
        /// Queries without a response in time.
        silence,
        /// Queries whose server closed the connection without a response.
        closed,
        /// Queries with a malformed response.
        malformed,
        /// Queries with a response about other ports.
        other_ports,
    }
}

#[derive(Debug)]
struct PendingQuery {
    token: u64,
    ports: IdentPortPair,
    lines: LineBuffer,
    until: Instant,
}

/// An IDENT client: a [`Machine`] that opens a connection for each query.
#[derive(Debug, Default)]
pub struct IdentClient {
    config: ClientConfig,
    pending_queries: BTreeMap<ConnId, PendingQuery>,
    timers: TimerQueue<ConnId>,
    next: u32,
    counters: ClientCounters,
    outputs: OutputQueue<ClientEvent>,
}

impl IdentClient {
    /// Creates a client with these limits.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Self { config, ..Self::default() }
    }
    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &ClientCounters {
        &self.counters
    }
    /// Returns the number of pending queries.
    #[must_use]
    pub fn query_count(&self) -> usize {
        self.pending_queries.len()
    }

    fn send_stream_op(&mut self, conn: ConnId, op: StreamOp) {
        self.outputs.push_operation(Transmit::Stream { conn, op });
    }

    fn send_query(&mut self, conn: ConnId) {
        let Some(asking) = self.pending_queries.get(&conn) else { return };
        let mut bytes = self.outputs.take_buffer();
        asking.ports.emit(&mut bytes);
        self.outputs.push_work(WorkRecord { label: work::MESSAGE, units: 1 });
        self.outputs.push_transmit(Transmit::Stream { conn, op: StreamOp::Data }, bytes);
    }

    fn receive_data(&mut self, conn: ConnId, mut data: &[u8]) {
        let Some(asking) = self.pending_queries.get_mut(&conn) else { return };
        let answer = match asking.lines.next_line(&mut data) {
            Ok(None) => return,
            Ok(Some(line)) => match IdentResponse::parse(&line) {
                // RFC 1413, 4: the response has the ports of the query.
                Ok(reply) if reply.ports == asking.ports => Ok(reply.answer),
                Ok(reply) => Err(QueryFailure::PortMismatch(reply.ports)),
                Err(error) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        };
        self.outputs.push_work(WorkRecord { label: work::MESSAGE, units: 1 });
        self.finish_query(conn, answer);
        self.send_stream_op(conn, StreamOp::Shutdown);
    }

    /// Ends a query.
    fn finish_query(&mut self, conn: ConnId, answer: Result<ResponseBody, QueryFailure>) {
        let Some(asking) = self.pending_queries.remove(&conn) else { return };
        self.timers.remove(asking.until, conn);
        *match &answer {
            Ok(_) => &mut self.counters.answered,
            Err(QueryFailure::Refused) => &mut self.counters.refused,
            Err(QueryFailure::Silence) => &mut self.counters.silence,
            Err(QueryFailure::Closed) => &mut self.counters.closed,
            Err(QueryFailure::Reply(_) | QueryFailure::LineTooLong(_)) => &mut self.counters.malformed,
            Err(QueryFailure::PortMismatch(_)) => &mut self.counters.other_ports,
        } += 1;
        self.outputs.push_event(ClientEvent::Answered { token: asking.token, answer });
    }
}

impl Machine for IdentClient {
    type Command = ClientCommand;
    type Event = ClientEvent;
    type Job = NoJob;

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Stream { conn, event } => match event {
                StreamEvent::Connected { .. } => self.send_query(conn),
                StreamEvent::Data(data) => self.receive_data(conn, data),
                StreamEvent::Closed(CloseReason::Refused) => {
                    self.finish_query(conn, Err(QueryFailure::Refused))
                }
                StreamEvent::Closed(CloseReason::TimedOut) => {
                    self.finish_query(conn, Err(QueryFailure::Silence))
                }
                // RFC 1413, 5: an early close means UNKNOWN-ERROR.
                StreamEvent::Closed(CloseReason::Closed | CloseReason::Reset) => {
                    self.finish_query(conn, Err(QueryFailure::Closed));
                }
                StreamEvent::Writable | StreamEvent::Finished => {}
                StreamEvent::Accepted { .. } => self.send_stream_op(conn, StreamOp::Abort),
            },
            MachineInput::Timeout => {
                while let Some((_, conn)) = self.timers.pop_due(now) {
                    self.finish_query(conn, Err(QueryFailure::Silence));
                    self.send_stream_op(conn, StreamOp::Abort);
                }
            }
            other => {
                if let Some(refusal) = other.refusal() {
                    self.outputs.push_operation(refusal);
                }
            }
        }
    }

    fn handle_command(&mut self, now: Instant, command: ClientCommand) -> Result<(), CommandError> {
        let ClientCommand::Query { token, question } = command;
        if self.pending_queries.len() >= self.config.questions {
            return Err(CommandError::Full("pending queries"));
        }
        if question.ports.valid_ports().is_none() {
            return Err(CommandError::Invalid("a port is 1 to 65535"));
        }
        let conn = ConnId::nth_opened_connection(self.next);
        self.next = self.next.wrapping_add(1);
        self.counters.questions += 1;
        let until = now + self.config.response_timeout;
        self.timers.insert(until, conn);
        self.pending_queries
            .insert(conn, PendingQuery { token, ports: question.ports, lines: LineBuffer::default(), until });
        let IdentQuery { server: remote, local, .. } = question;
        self.send_stream_op(conn, StreamOp::Connect { local, remote });
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.timers.next_deadline()
    }
}

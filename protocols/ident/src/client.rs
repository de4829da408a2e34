//! The asker's side: each question by a connection of its own.

use crate::line::{LineTooLong, Lines};
use crate::message::{Answer, PortPair, Reply, ReplyError};
use crate::work;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::timer::TimerQueue;
use usher_core::{
    CloseReason, CommandError, ConnId, Duration, Input, Instant, Machine, NoJob, OutputOf, Outputs,
    StreamEvent, StreamOp, Transmit, Work,
};

/// What is asked, and whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// The server: the host whose user is wanted, mostly at port [`PORT`](crate::PORT).
    pub server: SocketAddr,
    /// The address of ours that the connection in question has; the query must come from there. `None` leaves the choice
    /// to the host.
    pub local: Option<IpAddr>,
    /// The connection's port on the server's side and on ours.
    pub ports: PortPair,
}

/// What a [`Client`] allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientConfig {
    /// How long a reply may take, the connection included (§2: at least 30 s).
    pub patience: Duration,
    /// Questions under way at a time.
    pub questions: usize,
}

impl Default for ClientConfig {
    /// 30 s, 1024 questions.
    fn default() -> Self {
        Self { patience: Duration::from_secs(30), questions: 1024 }
    }
}

/// What a [`Client`] is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientCommand {
    /// Ask. [`CommandError::Full`] where as many questions as may be are under way.
    Ask {
        /// Comes back with the answer.
        token: u64,
        /// What, and whom.
        question: Question,
    },
}

/// What a [`Client`] says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientEvent {
    /// A question is over.
    Answered {
        /// Of the question.
        token: u64,
        /// The answer, or why there is none.
        answer: Result<Answer, AskError>,
    },
}

/// Why a question has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AskError {
    /// The server's host refuses connections.
    #[error("the connection was refused: no IDENT server listens there")]
    Refused,
    /// No connection or no reply came in time.
    #[error("no reply in time")]
    Silence,
    /// The server closed the connection without a reply, which means the same as UNKNOWN-ERROR (§5).
    #[error("the server closed the connection without a reply, as it may where it does not want to answer")]
    Closed,
    /// The reply is none.
    #[error("the reply is none by RFC 1413: {0}")]
    Reply(#[from] ReplyError),
    /// The reply has no end.
    #[error("the reply is none by RFC 1413: {0}")]
    LineTooLong(#[from] LineTooLong),
    /// The reply is about another connection.
    #[error("the reply is about the ports {0}, which were not asked for")]
    OtherPorts(PortPair),
}

usher_core::counters! {
    /// What a [`Client`] did.
    pub struct ClientCounters {
        /// Questions.
        questions,
        /// Of them, those that were answered, by USERID or by ERROR.
        answered,
        /// Of them, those whose server refused the connection.
        refused,
        /// Of them, those without a reply in time.
        silence,
        /// Of them, those whose server closed the connection without a reply.
        closed,
        /// Of them, those whose reply is none.
        malformed,
        /// Of them, those whose reply was about other ports.
        other_ports,
    }
}

#[derive(Debug)]
struct Asking {
    token: u64,
    ports: PortPair,
    lines: Lines,
    until: Instant,
}

/// An IDENT client: a [`Machine`] that opens a connection for each question.
#[derive(Debug, Default)]
pub struct Client {
    config: ClientConfig,
    asking: BTreeMap<ConnId, Asking>,
    timers: TimerQueue<ConnId>,
    next: u32,
    counters: ClientCounters,
    outputs: Outputs<ClientEvent>,
}

impl Client {
    /// A client that allows this much.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Self { config, ..Self::default() }
    }
    /// What it has done.
    #[must_use]
    pub const fn counters(&self) -> &ClientCounters {
        &self.counters
    }
    /// Questions under way.
    #[must_use]
    pub fn questions(&self) -> usize {
        self.asking.len()
    }

    fn operate(&mut self, conn: ConnId, op: StreamOp) {
        self.outputs.operate(Transmit::Stream { conn, op });
    }

    fn connected(&mut self, conn: ConnId) {
        let Some(asking) = self.asking.get(&conn) else { return };
        let mut bytes = self.outputs.buffer();
        asking.ports.emit(&mut bytes);
        self.outputs.work(Work { label: work::MESSAGE, units: 1 });
        self.outputs.transmit(Transmit::Stream { conn, op: StreamOp::Data }, bytes);
    }

    fn data(&mut self, conn: ConnId, mut data: &[u8]) {
        let Some(asking) = self.asking.get_mut(&conn) else { return };
        let answer = match asking.lines.next(&mut data) {
            Ok(None) => return,
            Ok(Some(line)) => match Reply::parse(&line) {
                Ok(reply) if reply.ports == asking.ports => Ok(reply.answer),
                Ok(reply) => Err(AskError::OtherPorts(reply.ports)),
                Err(error) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        };
        self.outputs.work(Work { label: work::MESSAGE, units: 1 });
        self.end(conn, answer);
        self.operate(conn, StreamOp::Shutdown);
    }

    /// A question is over.
    fn end(&mut self, conn: ConnId, answer: Result<Answer, AskError>) {
        let Some(asking) = self.asking.remove(&conn) else { return };
        self.timers.remove(asking.until, conn);
        *match &answer {
            Ok(_) => &mut self.counters.answered,
            Err(AskError::Refused) => &mut self.counters.refused,
            Err(AskError::Silence) => &mut self.counters.silence,
            Err(AskError::Closed) => &mut self.counters.closed,
            Err(AskError::Reply(_) | AskError::LineTooLong(_)) => &mut self.counters.malformed,
            Err(AskError::OtherPorts(_)) => &mut self.counters.other_ports,
        } += 1;
        self.outputs.event(ClientEvent::Answered { token: asking.token, answer });
    }
}

impl Machine for Client {
    type Command = ClientCommand;
    type Event = ClientEvent;
    type Job = NoJob;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Stream { conn, event } => match event {
                StreamEvent::Connected { .. } => self.connected(conn),
                StreamEvent::Data(data) => self.data(conn, data),
                StreamEvent::Closed(CloseReason::Refused) => self.end(conn, Err(AskError::Refused)),
                StreamEvent::Closed(CloseReason::TimedOut) => self.end(conn, Err(AskError::Silence)),
                StreamEvent::Closed(CloseReason::Closed | CloseReason::Reset) => {
                    self.end(conn, Err(AskError::Closed));
                }
                StreamEvent::Writable | StreamEvent::Finished => {}
                StreamEvent::Accepted { .. } => self.operate(conn, StreamOp::Abort),
            },
            Input::Timeout => {
                while let Some((_, conn)) = self.timers.pop_due(now) {
                    self.end(conn, Err(AskError::Silence));
                    self.operate(conn, StreamOp::Abort);
                }
            }
            other => {
                if let Some(refusal) = other.refusal() {
                    self.outputs.operate(refusal);
                }
            }
        }
    }

    fn command(&mut self, now: Instant, command: ClientCommand) -> Result<(), CommandError> {
        let ClientCommand::Ask { token, question } = command;
        if self.asking.len() >= self.config.questions {
            return Err(CommandError::Full("questions under way"));
        }
        if question.ports.ports().is_none() {
            return Err(CommandError::Invalid("a port is 1 to 65535"));
        }
        let conn = ConnId::opened(self.next);
        self.next = self.next.wrapping_add(1);
        self.counters.questions += 1;
        let until = now + self.config.patience;
        self.timers.insert(until, conn);
        self.asking.insert(conn, Asking { token, ports: question.ports, lines: Lines::default(), until });
        let Question { server: remote, local, .. } = question;
        self.operate(conn, StreamOp::Connect { local, remote });
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.timers.next()
    }
}

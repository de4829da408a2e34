//! Two hosts for those who speak with the service: simulated hosts, and sockets of this machine. What is said is noted by
//! the machines' own mouths, so that it is the same on either, and in clear where TLS carries it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use usher_core::{
    CommandError, ConnId, Input, Instant, Job, Machine, NoJob, Output, OutputOf, StreamEvent, StreamOp,
    Transmit, WallTime,
};
use usher_live::{Clock, Driver, Mailbox, Role, Shard, Sockets, spawn};
use usher_runner::world::{Endpoint, EventOrJob, ServerRole};
use usher_sim::{Application, Context, Delivery, Observer};

/// What a message is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// RADIUS, in a datagram.
    Udp,
    /// RADIUS, inside TLS.
    Radsec,
    /// Diameter, inside TLS.
    Diameter,
}

/// A message, as one of those saw it who speak with the service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    /// Who that is.
    pub(crate) who: &'static str,
    /// Whether it was sent by that one.
    pub(crate) sent: bool,
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

/// What was said, by all, in its order: each waits for the other.
pub(crate) type Said = Arc<Mutex<Vec<Message>>>;

/// A machine whose messages are noted.
pub(crate) struct Noted<M> {
    pub(crate) machine: M,
    who: &'static str,
    /// What its streams carry.
    streams: Kind,
    /// Of each stream, each way, what has no end yet.
    begun: BTreeMap<(ConnId, bool), Vec<u8>>,
    said: Said,
}

impl<M> Noted<M> {
    pub(crate) fn new(machine: M, who: &'static str, streams: Kind, said: &Said) -> Self {
        Self { machine, who, streams, begun: BTreeMap::new(), said: said.clone() }
    }

    fn note(&self, sent: bool, kind: Kind, bytes: &[u8]) {
        let message = Message { who: self.who, sent, kind, bytes: bytes.to_vec() };
        self.said.lock().unwrap().push(message);
    }

    /// Cuts a stream into messages.
    fn stream(&mut self, conn: ConnId, sent: bool, bytes: &[u8]) {
        let mut begun = self.begun.remove(&(conn, sent)).unwrap_or_default();
        begun.extend_from_slice(bytes);
        while begun.len() >= 4 {
            let length = match self.streams {
                Kind::Diameter => u32::from_be_bytes([0, begun[1], begun[2], begun[3]]) as usize,
                _ => usize::from(u16::from_be_bytes([begun[2], begun[3]])),
            };
            if begun.len() < length {
                break;
            }
            let rest = begun.split_off(length);
            self.note(sent, self.streams, &begun);
            begun = rest;
        }
        self.begun.insert((conn, sent), begun);
    }
}

impl<M: Machine> Machine for Noted<M> {
    type Command = M::Command;
    type Event = M::Event;
    type Job = M::Job;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.machine.set_epoch(now, epoch);
    }

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Datagram { data, .. } => self.note(false, Kind::Udp, data),
            Input::Stream { conn, event: StreamEvent::Data(data) } => self.stream(conn, false, data),
            _ => {}
        }
        self.machine.handle(now, input);
    }
    fn command(&mut self, now: Instant, command: M::Command) -> Result<(), CommandError> {
        self.machine.command(now, command)
    }
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<M>> {
        let output = self.machine.poll_output(buf)?;
        match output {
            Output::Transmit(Transmit::Datagram { .. }) => self.note(true, Kind::Udp, buf),
            Output::Transmit(Transmit::Stream { conn, op: StreamOp::Data }) => self.stream(conn, true, buf),
            _ => {}
        }
        Some(output)
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        self.machine.poll_timeout()
    }
}

/// What one who speaks with the service does.
pub(crate) trait Script: Send + 'static {
    type Machine: Machine<Job = NoJob> + Send + 'static;

    /// It is its turn.
    fn begin(&mut self, now: Instant, machine: &mut Self::Machine);
    /// Its machine says something.
    fn hear(&mut self, now: Instant, machine: &mut Self::Machine, event: <Self::Machine as Machine>::Event);
    /// Whether all was done.
    fn is_done(&self) -> bool;
}

/// One who speaks with the service.
pub(crate) struct Actor<S: Script> {
    pub(crate) machine: Noted<S::Machine>,
    pub(crate) script: S,
}

/// On a simulated host.
pub(crate) struct Hosted<S: Script> {
    pub(crate) endpoint: Endpoint,
    pub(crate) actor: Actor<S>,
}

impl<S: Script> Hosted<S> {
    fn handle(&mut self, ctx: &mut Context<'_, ()>, delivery: &Delivery) {
        let Self { endpoint, actor: Actor { machine, script } } = self;
        endpoint.feed(ctx, machine, delivery);
        if matches!(delivery, Delivery::Start) {
            script.begin(ctx.now(), &mut machine.machine);
        }
        endpoint.drain(ctx, machine, |ctx, machine, word| match word {
            EventOrJob::Event(event) => script.hear(ctx.now(), &mut machine.machine, event),
            EventOrJob::Job(job) => match job.what {},
        });
    }
}

/// What runs on a simulated host.
pub(crate) enum App {
    Switch(Box<Hosted<super::Switch>>),
    Gateway(Box<Hosted<super::Gateway>>),
    Home(Box<Hosted<super::Home>>),
    Aaa(Box<ServerRole>),
}

impl Application for App {
    type Report = ();

    fn handle(&mut self, ctx: &mut Context<'_, ()>, delivery: Delivery) {
        match self {
            Self::Switch(hosted) => hosted.handle(ctx, &delivery),
            Self::Gateway(hosted) => hosted.handle(ctx, &delivery),
            Self::Home(hosted) => hosted.handle(ctx, &delivery),
            Self::Aaa(role) => role.handle(ctx, delivery),
        }
    }
}

pub(crate) struct Nobody;

impl Observer<()> for Nobody {
    fn report(&mut self, _: Instant, _: u32, (): ()) {}
}

/// On sockets of this machine.
pub(crate) struct Live<S: Script> {
    actor: Actor<S>,
    over: bool,
}

/// What one on sockets is told.
pub(crate) enum Word {
    Begin,
    End,
}

impl<S: Script> Role for Live<S> {
    type Machine = Noted<S::Machine>;
    type Message = Word;

    fn machine(&mut self) -> &mut Self::Machine {
        &mut self.actor.machine
    }
    fn event(&mut self, now: Instant, event: <S::Machine as Machine>::Event) {
        self.actor.script.hear(now, &mut self.actor.machine.machine, event);
    }
    fn job(&mut self, _: Instant, job: Job<NoJob>) {
        match job.what {}
    }
    fn message(&mut self, now: Instant, word: Word) {
        match word {
            Word::Begin => self.actor.script.begin(now, &mut self.actor.machine.machine),
            Word::End => self.over = true,
        }
    }
    fn stopped(&self) -> bool {
        self.over || self.actor.script.is_done()
    }
}

/// Begins to speak on sockets, until all is done or it is told to end.
pub(crate) fn live<S: Script>(
    name: &str,
    actor: Actor<S>,
    sockets: Sockets,
) -> (Shard<std::io::Result<Live<S>>>, Mailbox<Word>) {
    let (driver, mailbox) = Driver::new(Live { actor, over: false }, sockets, Clock::start());
    let shard = spawn(name, None, move || driver.run()).unwrap();
    assert!(mailbox.send(Word::Begin));
    (shard, mailbox)
}

/// An address of this machine, and of a simulated host. It is this process's alone, so that no other test takes its ports.
pub(crate) fn local(host: u8, port: u16) -> SocketAddr {
    let [.., middle, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 128 | (middle & 127), low, host], port))
}

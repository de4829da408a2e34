//! Two kinds of hosts for the service's peers: simulated hosts, and sockets of this machine. The peers' machines
//! record the messages, in clear, so that both records have the same form.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use usher_core::{
    CommandError, ConnId, Instant, JobRequest, Machine, MachineInput, MachineOutput, MachineOutputOf, NoJob,
    StreamEvent, StreamOp, Transmit, WallTime,
};
use usher_live::{Driver, DriverRole, DriverSockets, Mailbox, Shard, SystemClock, spawn_shard};
use usher_runner::world::{MachineEventOrJob, MachineSockets, ServerRole};
use usher_sim::{AppContext, AppDelivery, Application, ReportObserver};

/// The protocol of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MessageKind {
    /// RADIUS in a datagram.
    Udp,
    /// RADIUS within TLS.
    Radsec,
    /// Diameter within TLS.
    Diameter,
}

/// A message, as one of the service's peers saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ObservedMessage {
    /// The name of the peer.
    pub(crate) machine_name: &'static str,
    /// True if the peer sent it.
    pub(crate) sent: bool,
    pub(crate) kind: MessageKind,
    pub(crate) bytes: Vec<u8>,
}

/// All messages in order. The peers take turns.
pub(crate) type MessageLog = Arc<Mutex<Vec<ObservedMessage>>>;

/// A machine whose messages are recorded.
pub(crate) struct RecordingMachine<M> {
    pub(crate) machine: M,
    machine_name: &'static str,
    /// The protocol of its streams.
    streams: MessageKind,
    /// The incomplete message of each stream and direction.
    partial_messages: BTreeMap<(ConnId, bool), Vec<u8>>,
    message_log: MessageLog,
}

impl<M> RecordingMachine<M> {
    pub(crate) fn new(machine: M, who: &'static str, streams: MessageKind, said: &MessageLog) -> Self {
        Self {
            machine,
            machine_name: who,
            streams,
            partial_messages: BTreeMap::new(),
            message_log: said.clone(),
        }
    }

    fn record_message(&self, sent: bool, kind: MessageKind, bytes: &[u8]) {
        let message = ObservedMessage { machine_name: self.machine_name, sent, kind, bytes: bytes.to_vec() };
        self.message_log.lock().unwrap().push(message);
    }

    /// Cuts a stream into messages.
    fn record_stream(&mut self, conn: ConnId, sent: bool, bytes: &[u8]) {
        let mut begun = self.partial_messages.remove(&(conn, sent)).unwrap_or_default();
        begun.extend_from_slice(bytes);
        while begun.len() >= 4 {
            let length = match self.streams {
                MessageKind::Diameter => u32::from_be_bytes([0, begun[1], begun[2], begun[3]]) as usize,
                _ => usize::from(u16::from_be_bytes([begun[2], begun[3]])),
            };
            if begun.len() < length {
                break;
            }
            let rest = begun.split_off(length);
            self.record_message(sent, self.streams, &begun);
            begun = rest;
        }
        self.partial_messages.insert((conn, sent), begun);
    }
}

impl<M: Machine> Machine for RecordingMachine<M> {
    type Command = M::Command;
    type Event = M::Event;
    type Job = M::Job;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.machine.set_epoch(now, epoch);
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Datagram { data, .. } => self.record_message(false, MessageKind::Udp, data),
            MachineInput::Stream { conn, event: StreamEvent::Data(data) } => {
                self.record_stream(conn, false, data)
            }
            _ => {}
        }
        self.machine.handle_input(now, input);
    }
    fn handle_command(&mut self, now: Instant, command: M::Command) -> Result<(), CommandError> {
        self.machine.handle_command(now, command)
    }
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<M>> {
        let output = self.machine.poll_output(buf)?;
        match output {
            MachineOutput::Transmit(Transmit::Datagram { .. }) => {
                self.record_message(true, MessageKind::Udp, buf)
            }
            MachineOutput::Transmit(Transmit::Stream { conn, op: StreamOp::Data }) => {
                self.record_stream(conn, true, buf)
            }
            _ => {}
        }
        Some(output)
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        self.machine.poll_timeout()
    }
}

/// The behaviour of a peer of the service.
pub(crate) trait HostScript: Send + 'static {
    type Machine: Machine<Job = NoJob> + Send + 'static;

    /// Starts the peer's turn.
    fn start(&mut self, now: Instant, machine: &mut Self::Machine);
    /// Handles an event of its machine.
    fn handle_event(
        &mut self,
        now: Instant,
        machine: &mut Self::Machine,
        event: <Self::Machine as Machine>::Event,
    );
    /// True if all steps are done.
    fn is_done(&self) -> bool;
}

/// A peer of the service.
pub(crate) struct ScriptedHost<S: HostScript> {
    pub(crate) machine: RecordingMachine<S::Machine>,
    pub(crate) script: S,
}

/// A peer on a simulated host.
pub(crate) struct SimulatedHost<S: HostScript> {
    pub(crate) endpoint: MachineSockets,
    pub(crate) actor: ScriptedHost<S>,
}

impl<S: HostScript> SimulatedHost<S> {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, ()>, delivery: &AppDelivery) {
        let Self { endpoint, actor: ScriptedHost { machine, script } } = self;
        endpoint.deliver_to_machine(ctx, machine, delivery);
        if matches!(delivery, AppDelivery::Start) {
            script.start(ctx.now(), &mut machine.machine);
        }
        endpoint.drain_outputs(ctx, machine, |ctx, machine, word| match word {
            MachineEventOrJob::Event(event) => script.handle_event(ctx.now(), &mut machine.machine, event),
            MachineEventOrJob::Job(job) => match job.job {},
        });
    }
}

/// The application of a simulated host.
pub(crate) enum SimulatedApp {
    Switch(Box<SimulatedHost<super::SwitchScript>>),
    Gateway(Box<SimulatedHost<super::GatewayScript>>),
    Home(Box<SimulatedHost<super::HomeServerScript>>),
    Aaa(Box<ServerRole>),
}

impl Application for SimulatedApp {
    type Report = ();

    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, ()>, delivery: AppDelivery) {
        match self {
            Self::Switch(hosted) => hosted.handle_delivery(ctx, &delivery),
            Self::Gateway(hosted) => hosted.handle_delivery(ctx, &delivery),
            Self::Home(hosted) => hosted.handle_delivery(ctx, &delivery),
            Self::Aaa(role) => role.process_delivery(ctx, delivery),
        }
    }
}

pub(crate) struct NullObserver;

impl ReportObserver<()> for NullObserver {
    fn handle_report(&mut self, _: Instant, _: u32, (): ()) {}
}

/// A peer on this machine's sockets.
pub(crate) struct LiveHost<S: HostScript> {
    actor: ScriptedHost<S>,
    has_ended: bool,
}

/// A message to a peer on sockets.
pub(crate) enum LiveMessage {
    Start,
    End,
}

impl<S: HostScript> DriverRole for LiveHost<S> {
    type Machine = RecordingMachine<S::Machine>;
    type Message = LiveMessage;

    fn machine(&mut self) -> &mut Self::Machine {
        &mut self.actor.machine
    }
    fn on_event(&mut self, now: Instant, event: <S::Machine as Machine>::Event) {
        self.actor.script.handle_event(now, &mut self.actor.machine.machine, event);
    }
    fn on_job(&mut self, _: Instant, job: JobRequest<NoJob>) {
        match job.job {}
    }
    fn on_message(&mut self, now: Instant, word: LiveMessage) {
        match word {
            LiveMessage::Start => self.actor.script.start(now, &mut self.actor.machine.machine),
            LiveMessage::End => self.has_ended = true,
        }
    }
    fn is_stopped(&self) -> bool {
        self.has_ended || self.actor.script.is_done()
    }
}

/// Starts a peer on sockets, until its steps are done or it is stopped.
pub(crate) fn spawn_live<S: HostScript>(
    name: &str,
    actor: ScriptedHost<S>,
    sockets: DriverSockets,
) -> (Shard<std::io::Result<LiveHost<S>>>, Mailbox<LiveMessage>) {
    let (driver, mailbox) = Driver::new(LiveHost { actor, has_ended: false }, sockets, SystemClock::start());
    let shard = spawn_shard(name, None, move || driver.run()).unwrap();
    assert!(mailbox.send(LiveMessage::Start));
    (shard, mailbox)
}

/// Returns a loopback address for either kind of host. It belongs to this process, so other tests do not use its
/// ports.
pub(crate) fn loopback_address(host: u8, port: u16) -> SocketAddr {
    let [.., middle, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 128 | (middle & 127), low, host], port))
}

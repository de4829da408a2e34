//! Drivers on SCTP sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use usher_core::{
    CloseReason, CommandError, ConnId, Instant, JobRequest, ListenerId, Machine, MachineInput,
    MachineOutputOf, MessageAssociationEvent, MessageAssociationOp, NoJob, OutputQueue, Transmit,
};
use usher_live::{
    Driver, DriverConfig, DriverCounterSnapshot, DriverCounters, DriverRole, DriverSctpListener,
    DriverSockets, Mailbox, Shard, SystemClock, spawn_shard,
};
use usher_sctp::{SctpAssociation, SctpEvent, SctpListener, SocketOptions};

const OURS: ConnId = ConnId::nth_opened_connection(3);
const FIRST: ConnId = ConnId::nth_accepted_connection(0);

/// An event of an association, for the test.
#[derive(Clone, PartialEq, Eq, Debug)]
enum AssociationEvent {
    Accepted(u16),
    Up(u16),
    Data(u16, u32, Vec<u8>),
    Down(CloseReason),
}

/// A command for an association: an operation and its message. `None` ends the driver.
type DriverCommand = Option<(ConnId, MessageAssociationOp, Vec<u8>)>;

/// Echoes each message on its stream.
#[derive(Default)]
struct EchoMachine {
    outputs: OutputQueue<(ConnId, AssociationEvent)>,
}

impl Machine for EchoMachine {
    type Command = (ConnId, MessageAssociationOp, Vec<u8>);
    type Event = (ConnId, AssociationEvent);
    type Job = NoJob;

    fn handle_input(&mut self, _: Instant, input: MachineInput<'_>) {
        let MachineInput::Message { assoc, event } = input else { panic!("{input:?} is of no association") };
        let heard = match event {
            MessageAssociationEvent::Accepted { streams, .. } => AssociationEvent::Accepted(streams),
            MessageAssociationEvent::Up { streams, .. } => AssociationEvent::Up(streams),
            MessageAssociationEvent::Data { stream, ppid, data } => {
                if assoc.is_accepted() {
                    let op = MessageAssociationOp::Data { stream, ppid, unordered: false };
                    self.outputs.push_transmit(Transmit::Message { assoc, op }, data.to_vec());
                }
                AssociationEvent::Data(stream, ppid, data.to_vec())
            }
            MessageAssociationEvent::Down(reason) => AssociationEvent::Down(reason),
        };
        self.outputs.push_event((assoc, heard));
    }

    fn handle_command(&mut self, _: Instant, (assoc, op, data): Self::Command) -> Result<(), CommandError> {
        self.outputs.push_transmit(Transmit::Message { assoc, op }, data);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }
}

struct EchoRole {
    machine: EchoMachine,
    event_sender: Sender<(ConnId, AssociationEvent)>,
    stopped: bool,
}

impl DriverRole for EchoRole {
    type Machine = EchoMachine;
    type Message = DriverCommand;

    fn machine(&mut self) -> &mut EchoMachine {
        &mut self.machine
    }
    fn on_event(&mut self, _: Instant, event: (ConnId, AssociationEvent)) {
        // The test may have ended.
        let _ = self.event_sender.send(event);
    }
    fn on_job(&mut self, _: Instant, job: JobRequest<NoJob>) {
        match job.job {}
    }
    fn on_message(&mut self, now: Instant, message: DriverCommand) {
        match message {
            Some(command) => self.machine.handle_command(now, command).expect("it takes all"),
            None => self.stopped = true,
        }
    }
    fn is_stopped(&self) -> bool {
        self.stopped
    }
}

struct LiveDriver {
    mailbox: Mailbox<DriverCommand>,
    counters: Arc<DriverCounters>,
    event_receiver: Receiver<(ConnId, AssociationEvent)>,
    shard: Shard<std::io::Result<EchoRole>>,
}

impl LiveDriver {
    fn new(sockets: DriverSockets) -> Self {
        let (sender, heard) = channel();
        let node = EchoRole { machine: EchoMachine::default(), event_sender: sender, stopped: false };
        let (driver, mailbox) = Driver::new(node, sockets, SystemClock::start());
        let counters = driver.counters();
        let shard = spawn_shard("echo", None, move || driver.run()).expect("a thread can be had");
        Self { mailbox, counters, event_receiver: heard, shard }
    }

    fn with_listener(settings: DriverConfig) -> (Self, SocketAddr) {
        let at: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let socket =
            SctpListener::bind(&[at], &SocketOptions { streams_in: 8, ..SocketOptions::default() }).unwrap();
        let address = socket.local_address().unwrap();
        let associations = vec![DriverSctpListener { id: ListenerId::from_number(0), socket }];
        (Self::new(DriverSockets { associations, settings, ..DriverSockets::default() }), address)
    }

    fn send_command(&self, conn: ConnId, op: MessageAssociationOp, data: &[u8]) {
        assert!(self.mailbox.send(Some((conn, op, data.to_vec()))), "the driver has ended");
    }

    fn connect(&self, conn: ConnId, remote: SocketAddr, streams: u16) {
        self.send_command(conn, MessageAssociationOp::Connect { local: None, remote, streams }, b"");
    }

    #[track_caller]
    fn receive_event(&self, conn: ConnId) -> AssociationEvent {
        let (of, heard) =
            self.event_receiver.recv_timeout(Duration::from_secs(100)).expect("something is told");
        assert_eq!(of, conn, "{heard:?}");
        heard
    }

    /// Stops the driver and returns its counters.
    fn stop(self) -> DriverCounterSnapshot {
        assert!(self.mailbox.send(None), "the driver has ended");
        self.shard.join().expect("no panic").expect("its sockets were taken");
        self.counters.read()
    }
}

const fn data_on_stream(stream: u16) -> MessageAssociationOp {
    MessageAssociationOp::Data { stream, ppid: 46, unordered: false }
}

/// Returns the next event of a bare socket, without changes of addresses.
#[track_caller]
fn next_received(association: &mut SctpAssociation, message: &mut Vec<u8>) -> SctpEvent {
    let end = std::time::Instant::now() + Duration::from_secs(100);
    loop {
        match association.receive_event(message) {
            Ok(SctpEvent::Address { .. } | SctpEvent::Other | SctpEvent::Finished) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                assert!(std::time::Instant::now() < end, "nothing is said");
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other.unwrap(),
        }
    }
}

#[test]
fn messages_go_by_their_streams_and_come_back() {
    let (server, address) = LiveDriver::with_listener(DriverConfig::default());
    let client = LiveDriver::new(DriverSockets::default());
    client.connect(OURS, address, 20);
    assert_eq!(client.receive_event(OURS), AssociationEvent::Up(8), "as many as the server allows");
    assert_eq!(server.receive_event(FIRST), AssociationEvent::Accepted(10));
    let long = vec![7; 300_000];
    for (stream, data) in [(0, &b"one"[..]), (7, &long), (3, b"three")] {
        client.send_command(OURS, data_on_stream(stream), data);
        assert_eq!(server.receive_event(FIRST), AssociationEvent::Data(stream, 46, data.to_vec()));
        assert_eq!(client.receive_event(OURS), AssociationEvent::Data(stream, 46, data.to_vec()));
    }
    // A message on a stream that was not negotiated is dropped. The messages behind it are not.
    client.send_command(OURS, data_on_stream(8), b"nowhere");
    client.send_command(OURS, data_on_stream(1), b"after");
    assert_eq!(server.receive_event(FIRST), AssociationEvent::Data(1, 46, b"after".to_vec()));
    assert_eq!(client.receive_event(OURS), AssociationEvent::Data(1, 46, b"after".to_vec()));
    client.send_command(OURS, MessageAssociationOp::Shutdown, b"");
    assert_eq!(server.receive_event(FIRST), AssociationEvent::Down(CloseReason::Closed));
    assert_eq!(client.receive_event(OURS), AssociationEvent::Down(CloseReason::Closed));
    let (server, client) = (server.stop(), client.stop());
    assert_eq!((server.accepted, server.sctp_messages_in, server.connections_open), (1, 4, 0));
    assert_eq!((client.sctp_messages_out, client.sctp_messages_in, client.sctp_messages_refused), (4, 4, 1));
}

#[test]
fn what_was_ordered_before_the_end_is_sent() {
    let (server, address) = LiveDriver::with_listener(DriverConfig::default());
    let client = LiveDriver::new(DriverSockets::default());
    client.connect(OURS, address, 1);
    // Many messages, before the association is up.
    for n in 0..200_u8 {
        client.send_command(OURS, data_on_stream(0), &[n; 10_000]);
    }
    assert_eq!(client.receive_event(OURS), AssociationEvent::Up(1));
    client.send_command(OURS, MessageAssociationOp::Shutdown, b"");
    assert_eq!(server.receive_event(FIRST), AssociationEvent::Accepted(10));
    for n in 0..200_u8 {
        assert_eq!(server.receive_event(FIRST), AssociationEvent::Data(0, 46, vec![n; 10_000]));
    }
    assert_eq!(server.receive_event(FIRST), AssociationEvent::Down(CloseReason::Closed));
    server.stop();
    client.stop();
}

#[test]
fn an_abort_and_a_refusal_are_told() {
    let (server, address) = LiveDriver::with_listener(DriverConfig::default());
    let client = LiveDriver::new(DriverSockets::default());
    client.connect(OURS, address, 1);
    assert_eq!(
        (client.receive_event(OURS), server.receive_event(FIRST)),
        (AssociationEvent::Up(1), AssociationEvent::Accepted(10))
    );
    client.send_command(OURS, MessageAssociationOp::Abort, b"");
    assert_eq!(server.receive_event(FIRST), AssociationEvent::Down(CloseReason::Reset));
    server.stop();
    let again = ConnId::nth_opened_connection(4);
    client.connect(again, address, 1);
    assert_eq!(client.receive_event(again), AssociationEvent::Down(CloseReason::Refused));
    let counts = client.stop();
    assert_eq!((counts.connects, counts.connect_failures, counts.connections_open), (2, 1, 0));
}

#[test]
fn an_address_has_so_many_associations() {
    let (server, address) =
        LiveDriver::with_listener(DriverConfig { connections_per_address: 2, ..DriverConfig::default() });
    let mut message = Vec::new();
    let mut call = || {
        let mut association = SctpAssociation::connect(&[], &[address], &SocketOptions::default()).unwrap();
        assert!(matches!(next_received(&mut association, &mut message), SctpEvent::Up { .. }));
        association
    };
    let (_first, _second, mut third) = (call(), call(), call());
    assert_eq!(next_received(&mut third, &mut Vec::new()), SctpEvent::End(CloseReason::Reset));
    let counts = server.stop();
    assert_eq!((counts.accepted, counts.refused_address), (2, 1));
}

#[test]
fn who_does_not_read_is_given_up() {
    let (server, address) =
        LiveDriver::with_listener(DriverConfig { stream_queue: 100_000, ..DriverConfig::default() });
    let small = SocketOptions { receive_buffer: Some(20_000), ..SocketOptions::default() };
    let mut deaf = SctpAssociation::connect(&[], &[address], &small).unwrap();
    let mut message = Vec::new();
    assert!(matches!(next_received(&mut deaf, &mut message), SctpEvent::Up { .. }));
    assert_eq!(server.receive_event(FIRST), AssociationEvent::Accepted(10));
    // More data than the socket and the queue take.
    while server.counters.read().slow_peers == 0 {
        server.send_command(FIRST, data_on_stream(0), &[7; 50_000]);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(server.receive_event(FIRST), AssociationEvent::Down(CloseReason::Reset));
    loop {
        if let SctpEvent::End(reason) = next_received(&mut deaf, &mut message) {
            assert_eq!(reason, CloseReason::Reset);
            break;
        }
    }
    server.stop();
}

//! Drivers on SCTP sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use usher_core::{
    CloseReason, CommandError, ConnId, Input, Instant, Job, ListenerId, Machine, MessageEvent, MessageOp,
    NoJob, OutputOf, Outputs, Transmit,
};
use usher_live::{
    AssociationListener, Clock, Driver, DriverCounters, DriverCounts, Mailbox, Role, Settings, Shard,
    Sockets, spawn,
};
use usher_sctp::{Association, Listener, Received, SocketOptions};

const OURS: ConnId = ConnId::opened(3);
const FIRST: ConnId = ConnId::accepted(0);

/// What the test hears of an association.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Heard {
    Accepted(u16),
    Up(u16),
    Data(u16, u32, Vec<u8>),
    Down(CloseReason),
}

/// What is to be done with an association, and with which message; `None` ends the driver.
type Ask = Option<(ConnId, MessageOp, Vec<u8>)>;

/// Sends back what it is sent, by the same stream.
#[derive(Default)]
struct Echo {
    outputs: Outputs<(ConnId, Heard)>,
}

impl Machine for Echo {
    type Command = (ConnId, MessageOp, Vec<u8>);
    type Event = (ConnId, Heard);
    type Job = NoJob;

    fn handle(&mut self, _: Instant, input: Input<'_>) {
        let Input::Message { assoc, event } = input else { panic!("{input:?} is of no association") };
        let heard = match event {
            MessageEvent::Accepted { streams, .. } => Heard::Accepted(streams),
            MessageEvent::Up { streams, .. } => Heard::Up(streams),
            MessageEvent::Data { stream, ppid, data } => {
                if assoc.is_accepted() {
                    let op = MessageOp::Data { stream, ppid, unordered: false };
                    self.outputs.transmit(Transmit::Message { assoc, op }, data.to_vec());
                }
                Heard::Data(stream, ppid, data.to_vec())
            }
            MessageEvent::Down(reason) => Heard::Down(reason),
        };
        self.outputs.event((assoc, heard));
    }

    fn command(&mut self, _: Instant, (assoc, op, data): Self::Command) -> Result<(), CommandError> {
        self.outputs.transmit(Transmit::Message { assoc, op }, data);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }
}

struct Ear {
    machine: Echo,
    heard: Sender<(ConnId, Heard)>,
    stopped: bool,
}

impl Role for Ear {
    type Machine = Echo;
    type Message = Ask;

    fn machine(&mut self) -> &mut Echo {
        &mut self.machine
    }
    fn event(&mut self, _: Instant, event: (ConnId, Heard)) {
        // A test that has ended hears nothing.
        let _ = self.heard.send(event);
    }
    fn job(&mut self, _: Instant, job: Job<NoJob>) {
        match job.what {}
    }
    fn message(&mut self, now: Instant, message: Ask) {
        match message {
            Some(command) => self.machine.command(now, command).expect("it takes all"),
            None => self.stopped = true,
        }
    }
    fn stopped(&self) -> bool {
        self.stopped
    }
}

struct Live {
    mailbox: Mailbox<Ask>,
    counters: Arc<DriverCounters>,
    heard: Receiver<(ConnId, Heard)>,
    shard: Shard<std::io::Result<Ear>>,
}

impl Live {
    fn new(sockets: Sockets) -> Self {
        let (sender, heard) = channel();
        let node = Ear { machine: Echo::default(), heard: sender, stopped: false };
        let (driver, mailbox) = Driver::new(node, sockets, Clock::start());
        let counters = driver.counters();
        let shard = spawn("echo", None, move || driver.run()).expect("a thread can be had");
        Self { mailbox, counters, heard, shard }
    }

    fn serving(settings: Settings) -> (Self, SocketAddr) {
        let at: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let socket =
            Listener::bind(&[at], &SocketOptions { streams_in: 8, ..SocketOptions::default() }).unwrap();
        let address = socket.local_address().unwrap();
        let associations = vec![AssociationListener { id: ListenerId::own(0), socket }];
        (Self::new(Sockets { associations, settings, ..Sockets::default() }), address)
    }

    fn ask(&self, conn: ConnId, op: MessageOp, data: &[u8]) {
        assert!(self.mailbox.send(Some((conn, op, data.to_vec()))), "the driver has ended");
    }

    fn connect(&self, conn: ConnId, remote: SocketAddr, streams: u16) {
        self.ask(conn, MessageOp::Connect { local: None, remote, streams }, b"");
    }

    #[track_caller]
    fn hear(&self, conn: ConnId) -> Heard {
        let (of, heard) = self.heard.recv_timeout(Duration::from_secs(100)).expect("something is told");
        assert_eq!(of, conn, "{heard:?}");
        heard
    }

    /// Ends the driver and gives what it counted.
    fn stop(self) -> DriverCounts {
        assert!(self.mailbox.send(None), "the driver has ended");
        self.shard.join().expect("no panic").expect("its sockets were taken");
        self.counters.read()
    }
}

const fn by(stream: u16) -> MessageOp {
    MessageOp::Data { stream, ppid: 46, unordered: false }
}

/// The next of what a bare socket says that matters here.
#[track_caller]
fn next(association: &mut Association, message: &mut Vec<u8>) -> Received {
    let end = std::time::Instant::now() + Duration::from_secs(100);
    loop {
        match association.receive(message) {
            Ok(Received::Address { .. } | Received::Other | Received::Finished) => {}
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
    let (server, address) = Live::serving(Settings::default());
    let client = Live::new(Sockets::default());
    client.connect(OURS, address, 20);
    assert_eq!(client.hear(OURS), Heard::Up(8), "as many as the server allows");
    assert_eq!(server.hear(FIRST), Heard::Accepted(10));
    let long = vec![7; 300_000];
    for (stream, data) in [(0, &b"one"[..]), (7, &long), (3, b"three")] {
        client.ask(OURS, by(stream), data);
        assert_eq!(server.hear(FIRST), Heard::Data(stream, 46, data.to_vec()));
        assert_eq!(client.hear(OURS), Heard::Data(stream, 46, data.to_vec()));
    }
    // A stream that was not negotiated is nobody's: what goes there is dropped, what follows is not.
    client.ask(OURS, by(8), b"nowhere");
    client.ask(OURS, by(1), b"after");
    assert_eq!(server.hear(FIRST), Heard::Data(1, 46, b"after".to_vec()));
    assert_eq!(client.hear(OURS), Heard::Data(1, 46, b"after".to_vec()));
    client.ask(OURS, MessageOp::Shutdown, b"");
    assert_eq!(server.hear(FIRST), Heard::Down(CloseReason::Closed));
    assert_eq!(client.hear(OURS), Heard::Down(CloseReason::Closed));
    let (server, client) = (server.stop(), client.stop());
    assert_eq!((server.accepted, server.sctp_messages_in, server.connections_open), (1, 4, 0));
    assert_eq!((client.sctp_messages_out, client.sctp_messages_in, client.sctp_messages_refused), (4, 4, 1));
}

#[test]
fn what_was_ordered_before_the_end_is_sent() {
    let (server, address) = Live::serving(Settings::default());
    let client = Live::new(Sockets::default());
    client.connect(OURS, address, 1);
    // Before it is up, and much of it.
    for n in 0..200_u8 {
        client.ask(OURS, by(0), &[n; 10_000]);
    }
    assert_eq!(client.hear(OURS), Heard::Up(1));
    client.ask(OURS, MessageOp::Shutdown, b"");
    assert_eq!(server.hear(FIRST), Heard::Accepted(10));
    for n in 0..200_u8 {
        assert_eq!(server.hear(FIRST), Heard::Data(0, 46, vec![n; 10_000]));
    }
    assert_eq!(server.hear(FIRST), Heard::Down(CloseReason::Closed));
    server.stop();
    client.stop();
}

#[test]
fn an_abort_and_a_refusal_are_told() {
    let (server, address) = Live::serving(Settings::default());
    let client = Live::new(Sockets::default());
    client.connect(OURS, address, 1);
    assert_eq!((client.hear(OURS), server.hear(FIRST)), (Heard::Up(1), Heard::Accepted(10)));
    client.ask(OURS, MessageOp::Abort, b"");
    assert_eq!(server.hear(FIRST), Heard::Down(CloseReason::Reset));
    server.stop();
    let again = ConnId::opened(4);
    client.connect(again, address, 1);
    assert_eq!(client.hear(again), Heard::Down(CloseReason::Refused));
    let counts = client.stop();
    assert_eq!((counts.connects, counts.connect_failures, counts.connections_open), (2, 1, 0));
}

#[test]
fn an_address_has_so_many_associations() {
    let (server, address) = Live::serving(Settings { connections_per_address: 2, ..Settings::default() });
    let mut message = Vec::new();
    let mut call = || {
        let mut association = Association::connect(&[], &[address], &SocketOptions::default()).unwrap();
        assert!(matches!(next(&mut association, &mut message), Received::Up { .. }));
        association
    };
    let (_first, _second, mut third) = (call(), call(), call());
    assert_eq!(next(&mut third, &mut Vec::new()), Received::End(CloseReason::Reset));
    let counts = server.stop();
    assert_eq!((counts.accepted, counts.refused_address), (2, 1));
}

#[test]
fn who_does_not_read_is_given_up() {
    let (server, address) = Live::serving(Settings { stream_queue: 100_000, ..Settings::default() });
    let small = SocketOptions { receive_buffer: Some(20_000), ..SocketOptions::default() };
    let mut deaf = Association::connect(&[], &[address], &small).unwrap();
    let mut message = Vec::new();
    assert!(matches!(next(&mut deaf, &mut message), Received::Up { .. }));
    assert_eq!(server.hear(FIRST), Heard::Accepted(10));
    // More than the system takes for it, and than may wait beside.
    while server.counters.read().slow_peers == 0 {
        server.ask(FIRST, by(0), &[7; 50_000]);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(server.hear(FIRST), Heard::Down(CloseReason::Reset));
    loop {
        if let Received::End(reason) = next(&mut deaf, &mut message) {
            assert_eq!(reason, CloseReason::Reset);
            break;
        }
    }
    server.stop();
}

//! An echo machine, a role that reports its events to the test, and drivers on loopback.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use usher_core::{
    CloseReason, CommandError, ConnId, DatagramPath, Instant, JobRequest, ListenerId, Machine, MachineInput,
    MachineOutputOf, NoJob, OutputQueue, SocketId, StreamEvent, StreamOp, Transmit,
};
use usher_live::{
    Driver, DriverConfig, DriverCounterSnapshot, DriverCounters, DriverRole, DriverSockets, Mailbox, Shard,
    SystemClock, spawn_shard,
};

/// Longer than any step takes on a busy machine. Only a failing test waits for it.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Connections from this address are refused.
pub(crate) const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 66, 6));

/// Settings with timeouts that a busy machine does not reach.
pub(crate) fn patient_settings() -> DriverConfig {
    DriverConfig {
        connect_timeout: TEST_TIMEOUT,
        handshake_timeout: TEST_TIMEOUT,
        linger: TEST_TIMEOUT,
        ..DriverConfig::default()
    }
}

/// A loopback address of this process alone. A socket with `SO_REUSEPORT` may get the port of another test at
/// 127.0.0.1.
pub(crate) fn own_loopback() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | (high & 63), middle, low)
}

/// A command of the test to the machine or the role.
#[derive(Debug)]
pub(crate) enum TestCommand {
    Send {
        socket: u32,
        remote: SocketAddr,
        data: Vec<u8>,
    },
    Connect {
        conn: ConnId,
        local: Option<IpAddr>,
        remote: SocketAddr,
    },
    Write(ConnId, Vec<u8>),
    Credit(ConnId, u32),
    Shutdown(ConnId),
    Abort(ConnId),
    /// A timeout after this many milliseconds.
    TimeoutAfter(u64),
    /// True to echo received data.
    Echo(bool),
    Stop,
}

/// An event for the test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TestEvent {
    Datagram(DatagramPath, Vec<u8>),
    Diverted(DatagramPath, Vec<u8>),
    Accepted(ConnId, ListenerId),
    Connected(ConnId, Option<IpAddr>, SocketAddr, Option<Vec<u8>>),
    Data(ConnId, Vec<u8>),
    Writable(ConnId),
    Finished(ConnId),
    Closed(ConnId, CloseReason),
    TimedOut { is_early: bool },
}

/// Echoes received data.
pub(crate) struct TestEchoMachine {
    outputs: OutputQueue<TestEvent>,
    timeout: Option<Instant>,
    echo: bool,
}

impl Machine for TestEchoMachine {
    type Command = TestCommand;
    type Event = TestEvent;
    type Job = NoJob;

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Datagram { path, data } => {
                if self.echo {
                    self.outputs.push_transmit(Transmit::Datagram { path }, data.to_vec());
                }
                self.outputs.push_event(TestEvent::Datagram(path, data.to_vec()));
            }
            MachineInput::Stream { conn, event } => {
                let heard = match event {
                    StreamEvent::Accepted { listener, remote, local, certificate } => {
                        self.outputs.push_event(TestEvent::Accepted(conn, listener));
                        TestEvent::Connected(conn, local, remote, certificate.map(<[u8]>::to_vec))
                    }
                    StreamEvent::Connected { remote, local, certificate } => {
                        TestEvent::Connected(conn, local, remote, certificate.map(<[u8]>::to_vec))
                    }
                    StreamEvent::Data(data) => {
                        if self.echo {
                            self.outputs
                                .push_transmit(Transmit::Stream { conn, op: StreamOp::Data }, data.to_vec());
                        }
                        TestEvent::Data(conn, data.to_vec())
                    }
                    StreamEvent::Writable => TestEvent::Writable(conn),
                    StreamEvent::Finished => TestEvent::Finished(conn),
                    StreamEvent::Closed(reason) => TestEvent::Closed(conn, reason),
                };
                self.outputs.push_event(heard);
            }
            MachineInput::Timeout => {
                if let Some(at) = self.timeout.take() {
                    self.outputs.push_event(TestEvent::TimedOut { is_early: now < at });
                }
            }
            other => panic!("a driver has no {other:?}"),
        }
    }

    fn handle_command(&mut self, now: Instant, command: TestCommand) -> Result<(), CommandError> {
        let stream = |conn, op| Transmit::Stream { conn, op };
        let (transmit, data) = match command {
            TestCommand::Send { socket, remote, data } => {
                let local = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0);
                (
                    Transmit::Datagram {
                        path: DatagramPath { socket: SocketId::from_number(socket), local, remote },
                    },
                    data,
                )
            }
            TestCommand::Connect { conn, local, remote } => {
                (stream(conn, StreamOp::Connect { local, remote }), Vec::new())
            }
            TestCommand::Write(conn, data) => (stream(conn, StreamOp::Data), data),
            TestCommand::Credit(conn, more) => (stream(conn, StreamOp::Credit(more)), Vec::new()),
            TestCommand::Shutdown(conn) => (stream(conn, StreamOp::Shutdown), Vec::new()),
            TestCommand::Abort(conn) => (stream(conn, StreamOp::Abort), Vec::new()),
            TestCommand::TimeoutAfter(millis) => {
                self.timeout = Some(now + usher_core::Duration::from_millis(millis));
                return Ok(());
            }
            TestCommand::Echo(echo) => {
                self.echo = echo;
                return Ok(());
            }
            TestCommand::Stop => return Err(CommandError::Invalid("the node stops")),
        };
        self.outputs.push_transmit(transmit, data);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.timeout
    }
}

/// The machine, with a channel of events to the test.
pub(crate) struct RecordingRole {
    machine: TestEchoMachine,
    event_sender: Sender<TestEvent>,
    stopped: bool,
}

impl DriverRole for RecordingRole {
    type Machine = TestEchoMachine;
    type Message = TestCommand;

    fn machine(&mut self) -> &mut TestEchoMachine {
        &mut self.machine
    }

    fn on_event(&mut self, _: Instant, event: TestEvent) {
        let _ = self.event_sender.send(event);
    }

    fn on_job(&mut self, _: Instant, job: JobRequest<NoJob>) {
        match job.job {}
    }

    fn on_message(&mut self, now: Instant, message: TestCommand) {
        self.stopped |= self.machine.handle_command(now, message).is_err();
    }

    fn divert_datagram(&mut self, path: DatagramPath, data: &[u8]) -> bool {
        let other = data.starts_with(b"other shard");
        if other {
            let _ = self.event_sender.send(TestEvent::Diverted(path, data.to_vec()));
        }
        other
    }

    fn accepts_from(&self, _: ListenerId, from: IpAddr) -> bool {
        from != STRANGER
    }

    fn is_stopped(&self) -> bool {
        self.stopped
    }
}

/// A driver on a thread of its own.
pub(crate) struct LiveDriver {
    pub(crate) mailbox: Mailbox<TestCommand>,
    pub(crate) counters: Arc<DriverCounters>,
    event_receiver: Receiver<TestEvent>,
    shard: Option<Shard<std::io::Result<RecordingRole>>>,
}

impl LiveDriver {
    pub(crate) fn new(sockets: DriverSockets) -> Self {
        let (sender, heard) = channel();
        let machine = TestEchoMachine { outputs: OutputQueue::default(), timeout: None, echo: true };
        let node = RecordingRole { machine, event_sender: sender, stopped: false };
        let (driver, mailbox) = Driver::new(node, sockets, SystemClock::start());
        let counters = driver.counters();
        let shard = spawn_shard("echo", None, move || driver.run()).expect("a thread can be had");
        Self { mailbox, counters, event_receiver: heard, shard: Some(shard) }
    }

    pub(crate) fn send_command(&self, ask: TestCommand) {
        assert!(self.mailbox.send(ask), "the driver has ended");
    }

    pub(crate) fn next_event(&self) -> TestEvent {
        self.event_receiver.recv_timeout(TEST_TIMEOUT).expect("the driver tells something")
    }

    /// Waits until the driver's counters satisfy the test.
    #[track_caller]
    pub(crate) fn wait_for_counters(&self, wanted: impl Fn(&DriverCounterSnapshot) -> bool) {
        let end = std::time::Instant::now() + TEST_TIMEOUT;
        while !wanted(&self.counters.read()) {
            assert!(std::time::Instant::now() < end, "not counted: {:?}", self.counters.read());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the next event that `wanted` accepts; skips others.
    pub(crate) fn wait_for<T>(&self, wanted: impl Fn(&TestEvent) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(&self.next_event()) {
                return found;
            }
        }
    }

    /// Reads `count` octets of a connection.
    pub(crate) fn read_octets(&self, conn: ConnId, count: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(self.wait_for(|heard| match heard {
                TestEvent::Data(of, data) if *of == conn => Some(data.clone()),
                _ => None,
            }));
        }
        all
    }

    /// Stops the driver.
    pub(crate) fn stop(mut self) {
        self.send_command(TestCommand::Stop);
        let shard = self.shard.take().expect("it runs until now");
        let node = shard.join().expect("no panic").expect("its sockets were taken");
        assert!(node.stopped);
    }
}

//! A machine that echoes, a node around it that tells the test what it hears, and drivers on loopback.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use usher_core::{
    CloseReason, CommandError, ConnId, Input, Instant, Job, ListenerId, Machine, NoJob, OutputOf, Outputs,
    Path, SocketId, StreamEvent, StreamOp, Transmit,
};
use usher_live::{
    Clock, Driver, DriverCounters, DriverCounts, Mailbox, Role, Settings, Shard, Sockets, spawn,
};

/// Longer than anything here takes on a busy machine. Only a failing test waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Nobody is to connect from here.
pub(crate) const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 66, 6));

/// Settings whose time limits a busy machine does not reach.
pub(crate) fn patient_settings() -> Settings {
    Settings {
        connect_timeout: PATIENCE,
        handshake_timeout: PATIENCE,
        linger: PATIENCE,
        ..Settings::default()
    }
}

/// A loopback address of this process alone. Sockets with `SO_REUSEPORT` may get a port that another test has at 127.0.0.1.
pub(crate) fn own_loopback() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | (high & 63), middle, low)
}

/// What the machine is asked, and the node told.
#[derive(Debug)]
pub(crate) enum Ask {
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
    After(u64),
    /// Whether what comes is sent back.
    Echo(bool),
    Stop,
}

/// What the test hears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    Datagram(Path, Vec<u8>),
    Diverted(Path, Vec<u8>),
    Accepted(ConnId, ListenerId),
    Connected(ConnId, Option<IpAddr>, SocketAddr, Option<Vec<u8>>),
    Data(ConnId, Vec<u8>),
    Writable(ConnId),
    Finished(ConnId),
    Closed(ConnId, CloseReason),
    TimedOut { early: bool },
}

/// Sends back what it gets.
pub(crate) struct Echo {
    outputs: Outputs<Heard>,
    timeout: Option<Instant>,
    echo: bool,
}

impl Machine for Echo {
    type Command = Ask;
    type Event = Heard;
    type Job = NoJob;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Datagram { path, data } => {
                if self.echo {
                    self.outputs.transmit(Transmit::Datagram { path }, data.to_vec());
                }
                self.outputs.event(Heard::Datagram(path, data.to_vec()));
            }
            Input::Stream { conn, event } => {
                let heard = match event {
                    StreamEvent::Accepted { listener, remote, local, certificate } => {
                        self.outputs.event(Heard::Accepted(conn, listener));
                        Heard::Connected(conn, local, remote, certificate.map(<[u8]>::to_vec))
                    }
                    StreamEvent::Connected { remote, local, certificate } => {
                        Heard::Connected(conn, local, remote, certificate.map(<[u8]>::to_vec))
                    }
                    StreamEvent::Data(data) => {
                        if self.echo {
                            self.outputs
                                .transmit(Transmit::Stream { conn, op: StreamOp::Data }, data.to_vec());
                        }
                        Heard::Data(conn, data.to_vec())
                    }
                    StreamEvent::Writable => Heard::Writable(conn),
                    StreamEvent::Finished => Heard::Finished(conn),
                    StreamEvent::Closed(reason) => Heard::Closed(conn, reason),
                };
                self.outputs.event(heard);
            }
            Input::Timeout => {
                if let Some(at) = self.timeout.take() {
                    self.outputs.event(Heard::TimedOut { early: now < at });
                }
            }
            other => panic!("a driver has no {other:?}"),
        }
    }

    fn command(&mut self, now: Instant, command: Ask) -> Result<(), CommandError> {
        let stream = |conn, op| Transmit::Stream { conn, op };
        let (transmit, data) = match command {
            Ask::Send { socket, remote, data } => {
                let local = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0);
                (Transmit::Datagram { path: Path { socket: SocketId::own(socket), local, remote } }, data)
            }
            Ask::Connect { conn, local, remote } => {
                (stream(conn, StreamOp::Connect { local, remote }), Vec::new())
            }
            Ask::Write(conn, data) => (stream(conn, StreamOp::Data), data),
            Ask::Credit(conn, more) => (stream(conn, StreamOp::Credit(more)), Vec::new()),
            Ask::Shutdown(conn) => (stream(conn, StreamOp::Shutdown), Vec::new()),
            Ask::Abort(conn) => (stream(conn, StreamOp::Abort), Vec::new()),
            Ask::After(millis) => {
                self.timeout = Some(now + usher_core::Duration::from_millis(millis));
                return Ok(());
            }
            Ask::Echo(echo) => {
                self.echo = echo;
                return Ok(());
            }
            Ask::Stop => return Err(CommandError::Invalid("the node stops")),
        };
        self.outputs.transmit(transmit, data);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.timeout
    }
}

/// The machine, and the test's ear.
pub(crate) struct Ear {
    machine: Echo,
    heard: Sender<Heard>,
    stopped: bool,
}

impl Role for Ear {
    type Machine = Echo;
    type Message = Ask;

    fn machine(&mut self) -> &mut Echo {
        &mut self.machine
    }

    fn event(&mut self, _: Instant, event: Heard) {
        let _ = self.heard.send(event);
    }

    fn job(&mut self, _: Instant, job: Job<NoJob>) {
        match job.what {}
    }

    fn message(&mut self, now: Instant, message: Ask) {
        self.stopped |= self.machine.command(now, message).is_err();
    }

    fn divert(&mut self, path: Path, data: &[u8]) -> bool {
        let other = data.starts_with(b"other shard");
        if other {
            let _ = self.heard.send(Heard::Diverted(path, data.to_vec()));
        }
        other
    }

    fn admits(&self, _: ListenerId, from: IpAddr) -> bool {
        from != STRANGER
    }

    fn stopped(&self) -> bool {
        self.stopped
    }
}

/// A driver on a thread of its own.
pub(crate) struct Live {
    pub(crate) mailbox: Mailbox<Ask>,
    pub(crate) counters: Arc<DriverCounters>,
    heard: Receiver<Heard>,
    shard: Option<Shard<std::io::Result<Ear>>>,
}

impl Live {
    pub(crate) fn new(sockets: Sockets) -> Self {
        let (sender, heard) = channel();
        let machine = Echo { outputs: Outputs::default(), timeout: None, echo: true };
        let node = Ear { machine, heard: sender, stopped: false };
        let (driver, mailbox) = Driver::new(node, sockets, Clock::start());
        let counters = driver.counters();
        let shard = spawn("echo", None, move || driver.run()).expect("a thread can be had");
        Self { mailbox, counters, heard, shard: Some(shard) }
    }

    pub(crate) fn ask(&self, ask: Ask) {
        assert!(self.mailbox.send(ask), "the driver has ended");
    }

    pub(crate) fn hear(&self) -> Heard {
        self.heard.recv_timeout(PATIENCE).expect("the driver tells something")
    }

    /// Waits until the driver's counters are as the test wants them.
    #[track_caller]
    pub(crate) fn wait_for_counters(&self, wanted: impl Fn(&DriverCounts) -> bool) {
        let end = std::time::Instant::now() + PATIENCE;
        while !wanted(&self.counters.read()) {
            assert!(std::time::Instant::now() < end, "not counted: {:?}", self.counters.read());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The next of what is heard that `wanted` takes; other things are passed over.
    pub(crate) fn until<T>(&self, wanted: impl Fn(&Heard) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(&self.hear()) {
                return found;
            }
        }
    }

    /// All octets of a connection until there are `count`.
    pub(crate) fn octets(&self, conn: ConnId, count: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(self.until(|heard| match heard {
                Heard::Data(of, data) if *of == conn => Some(data.clone()),
                _ => None,
            }));
        }
        all
    }

    /// Ends the driver.
    pub(crate) fn stop(mut self) {
        self.ask(Ask::Stop);
        let shard = self.shard.take().expect("it runs until now");
        let node = shard.join().expect("no panic").expect("its sockets were taken");
        assert!(node.stopped);
    }
}

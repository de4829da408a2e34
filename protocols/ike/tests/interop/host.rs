//! A small host of an endpoint: its sockets and a clock.

use super::place::CharonNamespace;
use super::{OURS, THEIRS};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};
use usher_core::{DatagramPath, Instant, Machine, MachineInput, MachineOutput, SecureRng, Transmit};
use usher_ike::IkeEndpoint;
use usher_ike::credentials::IkeCredentials;
use usher_ike::machine::{
    ChildSa, IkeCommand, IkeConnectionConfig, IkeCounters, IkeEndpointConfig, IkeEvent, IkeSaId, NAT_SOCKET,
    SOCKET,
};

/// Longer than any test step on a busy machine. Only a failing test waits so long.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

/// The factor by which the endpoint's clock is slower than the machine's. A busy charon is late, and this avoids
/// retransmissions.
const SLOWER: u128 = 100;

pub(crate) struct InteropHost<'a> {
    namespace: &'a CharonNamespace,
    endpoint: IkeEndpoint,
    /// The sockets of port 500, of port 4500, and of port 4500 at another address.
    sockets: [UdpSocket; 3],
    started_at: Clock,
    events: Vec<IkeEvent>,
    pub(crate) credentials: IkeCredentials,
}

/// Our second address.
pub(crate) fn secondary_address() -> SocketAddr {
    SocketAddr::new("127.0.0.3".parse().expect("an address"), 14500)
}

/// Binds a socket. A program that another test starts may hold the address of a former host for a moment.
fn bind_socket(address: SocketAddr) -> UdpSocket {
    let begun = Clock::now();
    loop {
        match UdpSocket::bind(address) {
            Err(e) if e.kind() == ErrorKind::AddrInUse && begun.elapsed() < WAIT_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(5));
            }
            bound => return bound.expect("the port is free"),
        }
    }
}

impl<'a> InteropHost<'a> {
    /// Creates a host in charon's namespace. A thread enters it to create the sockets.
    pub(crate) fn new(place: &'a CharonNamespace, n: u16) -> Self {
        let namespace = std::fs::File::open(format!("/run/netns/{}", place.name())).expect("it is there");
        let bind = move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("root may go there");
            let own = |port| SocketAddr::new(OURS.parse().expect("an address"), port);
            [own(15500 + n), own(14500), secondary_address()].map(|address| {
                let socket = bind_socket(address);
                socket.set_read_timeout(Some(Duration::from_millis(2))).expect("a socket can wait");
                socket
            })
        };
        let sockets = std::thread::spawn(bind).join().expect("the sockets are bound");
        let seed = std::array::from_fn(|i| i as u8 ^ n as u8 ^ std::process::id() as u8);
        let endpoint = IkeEndpoint::new(IkeEndpointConfig::default(), SecureRng::from_seed(seed));
        Self {
            namespace: place,
            endpoint,
            sockets,
            started_at: Clock::now(),
            events: Vec::new(),
            credentials: IkeCredentials::new(),
        }
    }
    fn now(&self) -> Instant {
        Instant::from_nanos((self.started_at.elapsed().as_nanos() / SLOWER) as u64)
    }
    fn drain_outputs(&mut self) {
        let mut buf = Vec::new();
        while let Some(output) = self.endpoint.poll_output(&mut buf) {
            match output {
                MachineOutput::Transmit(Transmit::Datagram { path }) => {
                    let moved = path.local.ip() == secondary_address().ip();
                    let socket = &self.sockets[if moved { 2 } else { path.socket.n as usize }];
                    socket.send_to(&buf, path.remote).expect("loopback takes it");
                }
                MachineOutput::Event(event) => self.events.push(event),
                MachineOutput::Job(job) => {
                    let answer = self.credentials.answer_job(&job);
                    self.endpoint.handle_command(self.now(), answer).expect("a job is answered");
                }
                MachineOutput::Transmit(_) | MachineOutput::Work(_) => {}
            }
        }
    }
    fn poll_sockets(&mut self) {
        let mut buf = [0; 4096];
        for n in 0..3 {
            let Ok((length, remote)) = self.sockets[n].recv_from(&mut buf) else { continue };
            let local = self.sockets[n].local_addr().expect("it is bound");
            let path = DatagramPath { socket: [SOCKET, NAT_SOCKET, NAT_SOCKET][n], local, remote };
            self.endpoint.handle_input(self.now(), MachineInput::Datagram { path, data: &buf[..length] });
            self.drain_outputs();
        }
        if self.endpoint.poll_timeout().is_some_and(|at| at <= self.now()) {
            self.endpoint.handle_input(self.now(), MachineInput::Timeout);
            self.drain_outputs();
        }
    }
    /// Waits until the events meet a condition.
    #[track_caller]
    pub(crate) fn wait_until(&mut self, what: &str, until: impl Fn(&[IkeEvent]) -> bool) {
        let begun = Clock::now();
        while !until(&self.events) {
            let (events, log) = (&self.events, self.namespace.charon_log());
            assert!(begun.elapsed() < WAIT_TIMEOUT, "{what}: not so.\n{events:#?}\n{log}");
            self.poll_sockets();
        }
    }
    #[track_caller]
    pub(crate) fn send_command(&mut self, command: IkeCommand) {
        let done = self.endpoint.handle_command(self.now(), command);
        assert_eq!(done, Ok(()));
        self.drain_outputs();
    }
    /// Initiates an IKE_SA, and drops earlier events.
    #[track_caller]
    pub(crate) fn initiate(&mut self, connection: IkeConnectionConfig) {
        self.events.clear();
        let local = self.sockets[0].local_addr().expect("it is bound");
        let remote: SocketAddr = format!("{THEIRS}:500").parse().expect("an address");
        self.send_command(IkeCommand::Initiate { token: 1, connection: Arc::new(connection), local, remote });
    }
    /// Initiates an IKE_SA, and waits for its CHILD_SA.
    #[track_caller]
    pub(crate) fn connect(&mut self, connection: IkeConnectionConfig) -> IkeSaId {
        self.initiate(connection);
        self.wait_until("a CHILD_SA", |events| {
            events.iter().any(|event| matches!(event, IkeEvent::Install { .. }))
        });
        self.established_sa().expect("the IKE_SA is established")
    }
    pub(crate) fn established_sa(&self) -> Option<IkeSaId> {
        self.events.iter().find_map(|event| match event {
            IkeEvent::Established { sa, .. } => Some(*sa),
            _ => None,
        })
    }
    /// The newest IKE_SA that replaced another.
    pub(crate) fn rekeyed_sa(&self) -> Option<IkeSaId> {
        self.events.iter().rev().find_map(|event| match event {
            IkeEvent::Rekeyed { new, .. } => Some(*new),
            _ => None,
        })
    }
    pub(crate) fn installed_children(&self) -> Vec<ChildSa> {
        let child = |event: &IkeEvent| match event {
            IkeEvent::Install { child, .. } => Some((**child).clone()),
            _ => None,
        };
        self.events.iter().filter_map(child).collect()
    }
    pub(crate) fn counters(&self) -> IkeCounters {
        *self.endpoint.counters()
    }
}

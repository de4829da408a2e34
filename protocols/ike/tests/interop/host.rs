//! A small host of an endpoint: two sockets, the clock, nothing else.

use super::place::Place;
use super::{OURS, THEIRS};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};
use usher_core::{Input, Instant, Machine, Output, Path, SecureRng, Transmit};
use usher_ike::Endpoint;
use usher_ike::credentials::Credentials;
use usher_ike::machine::{ChildSa, Command, Config, Connection, Counters, Event, NAT_SOCKET, SOCKET, SaId};

/// Longer than anything here takes on a busy machine. Only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// How much slower the endpoint's clock goes than the machine's: a busy charon is late, and no request goes twice for that.
const SLOWER: u128 = 100;

pub(crate) struct Host<'a> {
    place: &'a Place,
    endpoint: Endpoint,
    /// Of port 500 and of port 4500, and of port 4500 at another address.
    sockets: [UdpSocket; 3],
    begun: Clock,
    events: Vec<Event>,
    pub(crate) credentials: Credentials,
}

/// Our other address.
pub(crate) fn elsewhere() -> SocketAddr {
    SocketAddr::new("127.0.0.3".parse().expect("an address"), 14500)
}

/// A socket at an address, of which a former host's may be held for a moment: by a program that another test is about to start.
fn bound(address: SocketAddr) -> UdpSocket {
    let begun = Clock::now();
    loop {
        match UdpSocket::bind(address) {
            Err(e) if e.kind() == ErrorKind::AddrInUse && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            bound => return bound.expect("the port is free"),
        }
    }
}

impl<'a> Host<'a> {
    /// One in charon's namespace. Its sockets are made by a thread that goes there.
    pub(crate) fn new(place: &'a Place, n: u16) -> Self {
        let namespace = std::fs::File::open(format!("/run/netns/{}", place.name())).expect("it is there");
        let bind = move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("root may go there");
            let own = |port| SocketAddr::new(OURS.parse().expect("an address"), port);
            [own(15500 + n), own(14500), elsewhere()].map(|address| {
                let socket = bound(address);
                socket.set_read_timeout(Some(Duration::from_millis(2))).expect("a socket can wait");
                socket
            })
        };
        let sockets = std::thread::spawn(bind).join().expect("the sockets are bound");
        let seed = std::array::from_fn(|i| i as u8 ^ n as u8 ^ std::process::id() as u8);
        let endpoint = Endpoint::new(Config::default(), SecureRng::from_seed(seed));
        Self {
            place,
            endpoint,
            sockets,
            begun: Clock::now(),
            events: Vec::new(),
            credentials: Credentials::new(),
        }
    }
    fn now(&self) -> Instant {
        Instant::from_nanos((self.begun.elapsed().as_nanos() / SLOWER) as u64)
    }
    fn drain(&mut self) {
        let mut buf = Vec::new();
        while let Some(output) = self.endpoint.poll_output(&mut buf) {
            match output {
                Output::Transmit(Transmit::Datagram { path }) => {
                    let moved = path.local.ip() == elsewhere().ip();
                    let socket = &self.sockets[if moved { 2 } else { path.socket.n as usize }];
                    socket.send_to(&buf, path.remote).expect("loopback takes it");
                }
                Output::Event(event) => self.events.push(event),
                Output::Job(job) => {
                    let answer = self.credentials.answer(&job);
                    self.endpoint.command(self.now(), answer).expect("a job is answered");
                }
                Output::Transmit(_) | Output::Work(_) => {}
            }
        }
    }
    fn turn(&mut self) {
        let mut buf = [0; 4096];
        for n in 0..3 {
            let Ok((length, remote)) = self.sockets[n].recv_from(&mut buf) else { continue };
            let local = self.sockets[n].local_addr().expect("it is bound");
            let path = Path { socket: [SOCKET, NAT_SOCKET, NAT_SOCKET][n], local, remote };
            self.endpoint.handle(self.now(), Input::Datagram { path, data: &buf[..length] });
            self.drain();
        }
        if self.endpoint.poll_timeout().is_some_and(|at| at <= self.now()) {
            self.endpoint.handle(self.now(), Input::Timeout);
            self.drain();
        }
    }
    /// Waits until the events are as wanted.
    #[track_caller]
    pub(crate) fn wait(&mut self, what: &str, until: impl Fn(&[Event]) -> bool) {
        let begun = Clock::now();
        while !until(&self.events) {
            let (events, log) = (&self.events, self.place.log());
            assert!(begun.elapsed() < PATIENCE, "{what}: not so.\n{events:#?}\n{log}");
            self.turn();
        }
    }
    #[track_caller]
    pub(crate) fn tell(&mut self, command: Command) {
        let done = self.endpoint.command(self.now(), command);
        assert_eq!(done, Ok(()));
        self.drain();
    }
    /// Begins an IKE_SA. What was said before is forgotten.
    #[track_caller]
    pub(crate) fn initiate(&mut self, connection: Connection) {
        self.events.clear();
        let local = self.sockets[0].local_addr().expect("it is bound");
        let remote: SocketAddr = format!("{THEIRS}:500").parse().expect("an address");
        self.tell(Command::Initiate { token: 1, connection: Arc::new(connection), local, remote });
    }
    /// Begins an IKE_SA, and waits for its CHILD_SA.
    #[track_caller]
    pub(crate) fn connect(&mut self, connection: Connection) -> SaId {
        self.initiate(connection);
        self.wait("a CHILD_SA", |events| events.iter().any(|event| matches!(event, Event::Install { .. })));
        self.established().expect("the IKE_SA is established")
    }
    pub(crate) fn established(&self) -> Option<SaId> {
        self.events.iter().find_map(|event| match event {
            Event::Established { sa, .. } => Some(*sa),
            _ => None,
        })
    }
    /// The newest IKE_SA that took the place of another.
    pub(crate) fn rekeyed(&self) -> Option<SaId> {
        self.events.iter().rev().find_map(|event| match event {
            Event::Rekeyed { new, .. } => Some(*new),
            _ => None,
        })
    }
    pub(crate) fn installed(&self) -> Vec<ChildSa> {
        let child = |event: &Event| match event {
            Event::Install { child, .. } => Some((**child).clone()),
            _ => None,
        };
        self.events.iter().filter_map(child).collect()
    }
    pub(crate) fn counters(&self) -> Counters {
        *self.endpoint.counters()
    }
}

//! What one authentication costs: `cargo run --release -p usher-aaa --example cost [N]`.
//!
//! Station, access server with its RADIUS client, RADIUS server and AAA server hand each other frames and
//! datagrams in memory, EAP-MD5, two exchanges over RADIUS. Prints microseconds of processor time for each authentication of
//! all five together, one after another, and with 100,000 sessions half open at once.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use usher_aaa::{AaaServer, User, UserSource, Users, radius_socket};
use usher_core::{Duration, Input, Instant, Machine, Output, Path, PortId, Seed, SocketId, Transmit};
use usher_nas::station::{self, Credentials, Station};
use usher_nas::{AaaConfig, Authenticator, MacAddress, NasIdentity, RadiusConfig, authenticator};
use usher_radius::Secret;
use usher_radius::client::{self, ServerConfig};
use usher_radius::server::{self, ClientConfig};

const USERS: usize = 1000;
const NAS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 50_000);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 1812);

/// Processor time that this program has used, in nanoseconds, where the system tells; else the time of day.
fn clock() -> f64 {
    let used = std::fs::read_to_string("/proc/self/schedstat").ok();
    let used = used.and_then(|s| s.split_whitespace().next()?.parse::<f64>().ok());
    used.unwrap_or_else(|| std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |t| t.as_secs_f64() * 1e9))
}

/// Resident memory in bytes, where the system tells.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|s| s.split_whitespace().nth(1)?.parse::<usize>().ok()).map_or(0, |n| n * 4096)
}

fn name(i: usize) -> Vec<u8> {
    format!("user{}@example.org", i % USERS).into_bytes()
}

struct Bench {
    now: Instant,
    nas: Authenticator,
    server: AaaServer,
    buf: Vec<u8>,
    accepted: usize,
}

impl Bench {
    fn new(seed: Seed) -> Self {
        let secret = Secret::new(b"sixteen octets!!");
        let mut users = Users::new(&mut seed.secure("users", 0));
        for i in 0..USERS {
            users.insert(&name(i), User::with_password(b"open sesame"));
        }
        let mut config = usher_aaa::Config::new(UserSource::Memory(Arc::new(users)));
        config.max_half_open = 200_000;
        config.radius = Some(server::Config::new(vec![ClientConfig::new(NAS.ip(), 32, secret.clone())]));
        let server = AaaServer::new(config, seed.secure("aaa", 0)).expect("a valid configuration");
        let mut client = client::Config::single(ServerConfig::new(SERVER, secret));
        client.max_sockets = 1000;
        let aaa = AaaConfig::Radius(RadiusConfig::new(client));
        let mut config = authenticator::Config::new(NasIdentity::ethernet("switch"), aaa);
        config.max_sessions = 200_000;
        config.max_remembered = 200_000;
        let nas = Authenticator::new(config, seed.secure("nas", 0)).expect("a valid configuration");
        Self { now: Instant::ZERO, nas, server, buf: Vec::new(), accepted: 0 }
    }

    /// Takes one frame from a station to the access server.
    fn hear(&mut self, station: &mut Station, port: PortId) {
        while let Some(output) = station.poll_output(&mut self.buf) {
            if let Output::Transmit(_) = output {
                self.nas.handle(self.now, Input::Frame { port, data: &self.buf });
            }
        }
    }
    /// Carries datagrams between access server and AAA server until a frame for the station comes.
    fn exchange(&mut self, station: &mut Station) {
        while let Some(output) = self.nas.poll_output(&mut self.buf) {
            match output {
                Output::Transmit(Transmit::Datagram { path }) => {
                    let source = SocketAddr::new(NAS.ip(), NAS.port() + path.socket.n as u16);
                    let path = Path { socket: radius_socket(0), local: SERVER, remote: source };
                    self.server.handle(self.now, Input::Datagram { path, data: &self.buf });
                    while let Some(output) = self.server.poll_output(&mut self.buf) {
                        let Output::Transmit(Transmit::Datagram { path }) = output else { continue };
                        let socket = SocketId::own(u32::from(path.remote.port() - NAS.port()));
                        let path = Path { socket, local: path.remote, remote: SERVER };
                        self.nas.handle(self.now, Input::Datagram { path, data: &self.buf });
                    }
                }
                Output::Transmit(_) => {
                    station.handle(self.now, Input::Frame { port: PortId(0), data: &self.buf });
                }
                Output::Event(authenticator::Event::Authenticated(_)) => self.accepted += 1,
                _ => {}
            }
        }
    }
    fn tick(&mut self) {
        self.now += Duration::from_millis(1);
        for at in [self.nas.poll_timeout(), self.server.poll_timeout()].into_iter().flatten() {
            if at <= self.now {
                self.nas.handle(self.now, Input::Timeout);
                self.server.handle(self.now, Input::Timeout);
            }
        }
    }
}

fn station(i: usize) -> Station {
    let [a, b, c, d] = (i as u32).to_be_bytes();
    let config = station::Config::new(MacAddress([2, 0, a, b, c, d]));
    Station::new(config, Seed::new(1).secure("station", i as u64))
}
fn ask_in(now: Instant, station: &mut Station, i: usize) {
    let credentials = Credentials::password(b"open sesame");
    let command = station::Command::Authenticate { identity: name(i), credentials };
    station.command(now, command).expect("a station can always ask");
}

fn main() {
    let n: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(200_000);

    let mut bench = Bench::new(Seed::new(1));
    let mut stations: Vec<_> = (0..USERS).map(station).collect();
    let start = clock();
    for i in 0..n {
        let port = PortId((i % USERS) as u32);
        let station = &mut stations[i % USERS];
        ask_in(bench.now, station, i);
        for _ in 0..3 {
            bench.hear(station, port);
            bench.exchange(station);
        }
        bench.tick();
    }
    let each = (clock() - start) / 1e3 / n as f64;
    assert_eq!(bench.accepted, n);
    println!("one after another: {each:.2} us each, {n} authentications");

    let n = 100_000;
    let mut bench = Bench::new(Seed::new(2));
    let mut stations: Vec<_> = (0..n).map(station).collect();
    let start = clock();
    for (i, station) in stations.iter_mut().enumerate() {
        ask_in(bench.now, station, i);
    }
    let (before, mut per_session) = (resident(), 0);
    for round in 0..3 {
        for (i, station) in stations.iter_mut().enumerate() {
            bench.hear(station, PortId(i as u32));
            bench.exchange(station);
        }
        if round == 1 {
            assert_eq!(bench.server.half_open(), n);
            per_session = (resident() - before) / n;
        }
        bench.tick();
    }
    let each = (clock() - start) / 1e3 / n as f64;
    assert_eq!(bench.accepted, n);
    println!(
        "{n} at once: {each:.2} us each; {per_session} bytes of NAS and server memory for each half open"
    );
}

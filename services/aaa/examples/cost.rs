//! Measures the cost of an authentication: `cargo run --release -p usher-aaa --example cost [N]`.
//!
//! Station, access server with its RADIUS client, RADIUS server and AAA server exchange frames and datagrams in
//! memory: EAP-MD5 with two exchanges over RADIUS. Prints microseconds of processor time per authentication for all
//! five together, one after another, and with 100,000 half-open sessions.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use usher_aaa::{AaaServer, User, UserDirectory, UserSource, radius_socket};
use usher_core::{
    DatagramPath, Duration, Instant, LinkLayerPortId, Machine, MachineInput, MachineOutput, Seed, SocketId,
    Transmit,
};
use usher_nas::station::{self, AccessStation, EapCredentials};
use usher_nas::{AaaConfig, MacAddress, NasAuthenticator, NasIdentity, RadiusConfig, authenticator};
use usher_radius::SharedSecret;
use usher_radius::client::{self, ServerConfig};
use usher_radius::server::{self, ClientConfig};

const USERS: usize = 1000;
const NAS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 50_000);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 1812);

/// Processor time of this process in nanoseconds if the system has it, otherwise wall time.
fn processor_time() -> f64 {
    let used = std::fs::read_to_string("/proc/self/schedstat").ok();
    let used = used.and_then(|s| s.split_whitespace().next()?.parse::<f64>().ok());
    used.unwrap_or_else(|| std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |t| t.as_secs_f64() * 1e9))
}

/// Resident memory in octets if the system has it.
fn resident_octets() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|s| s.split_whitespace().nth(1)?.parse::<usize>().ok()).map_or(0, |n| n * 4096)
}

fn user_name(i: usize) -> Vec<u8> {
    format!("user{}@example.org", i % USERS).into_bytes()
}

struct LoginBench {
    now: Instant,
    nas: NasAuthenticator,
    server: AaaServer,
    buf: Vec<u8>,
    accepted: usize,
}

impl LoginBench {
    fn new(seed: Seed) -> Self {
        let secret = SharedSecret::new(b"sixteen octets!!");
        let mut users = UserDirectory::new(&mut seed.derive_secure_rng("users", 0));
        for i in 0..USERS {
            users.insert(&user_name(i), User::with_password(b"open sesame"));
        }
        let mut config = usher_aaa::AaaServerConfig::new(UserSource::Memory(Arc::new(users)));
        config.max_half_open = 200_000;
        config.radius =
            Some(server::RadiusServerConfig::new(vec![ClientConfig::new(NAS.ip(), 32, secret.clone())]));
        let server = AaaServer::new(config, seed.derive_secure_rng("aaa", 0)).expect("a valid configuration");
        let mut client = client::RadiusClientConfig::for_server(ServerConfig::new(SERVER, secret));
        client.max_sockets = 1000;
        let aaa = AaaConfig::Radius(RadiusConfig::new(client));
        let mut config = authenticator::AuthenticatorConfig::new(NasIdentity::for_ethernet("switch"), aaa);
        config.max_sessions = 200_000;
        config.max_stations = 200_000;
        let nas =
            NasAuthenticator::new(config, seed.derive_secure_rng("nas", 0)).expect("a valid configuration");
        Self { now: Instant::ZERO, nas, server, buf: Vec::new(), accepted: 0 }
    }

    /// Passes a frame from a station to the access server.
    fn deliver_frame(&mut self, station: &mut AccessStation, port: LinkLayerPortId) {
        while let Some(output) = station.poll_output(&mut self.buf) {
            if let MachineOutput::Transmit(_) = output {
                self.nas.handle_input(self.now, MachineInput::Frame { port, data: &self.buf });
            }
        }
    }
    /// Passes datagrams between access server and AAA server until there is a frame for the station.
    fn exchange_datagrams(&mut self, station: &mut AccessStation) {
        while let Some(output) = self.nas.poll_output(&mut self.buf) {
            match output {
                MachineOutput::Transmit(Transmit::Datagram { path }) => {
                    let source = SocketAddr::new(NAS.ip(), NAS.port() + path.socket.n as u16);
                    let path = DatagramPath { socket: radius_socket(0), local: SERVER, remote: source };
                    self.server.handle_input(self.now, MachineInput::Datagram { path, data: &self.buf });
                    while let Some(output) = self.server.poll_output(&mut self.buf) {
                        let MachineOutput::Transmit(Transmit::Datagram { path }) = output else { continue };
                        let socket = SocketId::from_number(u32::from(path.remote.port() - NAS.port()));
                        let path = DatagramPath { socket, local: path.remote, remote: SERVER };
                        self.nas.handle_input(self.now, MachineInput::Datagram { path, data: &self.buf });
                    }
                }
                MachineOutput::Transmit(_) => {
                    station.handle_input(
                        self.now,
                        MachineInput::Frame { port: LinkLayerPortId(0), data: &self.buf },
                    );
                }
                MachineOutput::Event(authenticator::AuthenticatorEvent::Authenticated(_)) => {
                    self.accepted += 1
                }
                _ => {}
            }
        }
    }
    fn advance_clock(&mut self) {
        self.now += Duration::from_millis(1);
        for at in [self.nas.poll_timeout(), self.server.poll_timeout()].into_iter().flatten() {
            if at <= self.now {
                self.nas.handle_input(self.now, MachineInput::Timeout);
                self.server.handle_input(self.now, MachineInput::Timeout);
            }
        }
    }
}

fn build_station(i: usize) -> AccessStation {
    let [a, b, c, d] = (i as u32).to_be_bytes();
    let config = station::StationConfig::new(MacAddress([2, 0, a, b, c, d]));
    AccessStation::new(config, Seed::new(1).derive_secure_rng("station", i as u64))
}
fn start_login(now: Instant, station: &mut AccessStation, i: usize) {
    let credentials = EapCredentials::from_password(b"open sesame");
    let command = station::StationCommand::Authenticate { identity: user_name(i), credentials };
    station.handle_command(now, command).expect("a station can always ask");
}

fn main() {
    let n: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(200_000);

    let mut bench = LoginBench::new(Seed::new(1));
    let mut stations: Vec<_> = (0..USERS).map(build_station).collect();
    let start = processor_time();
    for i in 0..n {
        let port = LinkLayerPortId((i % USERS) as u32);
        let station = &mut stations[i % USERS];
        start_login(bench.now, station, i);
        for _ in 0..3 {
            bench.deliver_frame(station, port);
            bench.exchange_datagrams(station);
        }
        bench.advance_clock();
    }
    let each = (processor_time() - start) / 1e3 / n as f64;
    assert_eq!(bench.accepted, n);
    println!("one after another: {each:.2} us each, {n} authentications");

    let n = 100_000;
    let mut bench = LoginBench::new(Seed::new(2));
    let mut stations: Vec<_> = (0..n).map(build_station).collect();
    let start = processor_time();
    for (i, station) in stations.iter_mut().enumerate() {
        start_login(bench.now, station, i);
    }
    let (before, mut per_session) = (resident_octets(), 0);
    for round in 0..3 {
        for (i, station) in stations.iter_mut().enumerate() {
            bench.deliver_frame(station, LinkLayerPortId(i as u32));
            bench.exchange_datagrams(station);
        }
        if round == 1 {
            assert_eq!(bench.server.half_open(), n);
            per_session = (resident_octets() - before) / n;
        }
        bench.advance_clock();
    }
    let each = (processor_time() - start) / 1e3 / n as f64;
    assert_eq!(bench.accepted, n);
    println!(
        "{n} at once: {each:.2} us each; {per_session} bytes of NAS and server memory for each half open"
    );
}

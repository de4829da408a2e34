//! A whole AAA server: datagrams of several clients, true and false, as they came or signed for it, and a Diameter
//! stream, with a host that finds users, hashes passwords and keeps records.
//!
//! The input is steps of an operation, a length and so many octets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use usher_aaa::ledger::{Ledger, LedgerConfig};
use usher_aaa::store::Memory;
use usher_aaa::{
    AaaServer, CacheConfig, CertificateVerdict, Command, Config, DIAMETER_LISTENER, Found, Job, Method,
    Password, User, UserSource, radius_socket,
};
use usher_core::{ConnId, Duration, Input, Instant, Machine, Output, Path, Seed, StreamEvent, Transmit};
use usher_diameter::codes::application;
use usher_diameter::node;
use usher_diameter::peer::capabilities::Application;
use usher_radius::Secret;
use usher_radius::attribute::{Attributes, kind};
use usher_radius::packet::{Code, OwnedPacket, Packet};
use usher_radius::server::{ClientConfig, Role};

const SECRET: &[u8] = b"the secret of all";
const HALF_OPEN: usize = 20;
const USERS: usize = 8;

struct Host {
    server: AaaServer,
    ledger: Ledger,
    store: Memory,
    now: Instant,
    /// The last State that a client got.
    state: Vec<u8>,
    sent: u8,
}

fn user(name: &[u8]) -> Found {
    let mut user = User::with_password(b"right");
    match name.first() {
        Some(b'a') => {}
        Some(b'b') => user.password = Some(Password::Argon2("$argon2id$v=19$".into())),
        Some(b'c') => (user.simultaneous, user.pool) = (Some(1), Some("none".into())),
        Some(b'd') => return Found::Unavailable,
        _ => return Found::Nobody,
    }
    Found::User(Arc::new(user))
}

impl Host {
    fn new() -> Self {
        let users = CacheConfig { entries: USERS, ..CacheConfig::default() };
        let mut config = Config::new(UserSource::Host(users));
        let client = |n: u8, bits| {
            ClientConfig::new(IpAddr::V4(Ipv4Addr::new(10, 0, n, 1)), bits, Secret::new(SECRET))
        };
        let mut radius = usher_radius::server::Config::new(vec![client(0, 24), client(1, 32), client(2, 32)]);
        radius.roles = vec![Role::Authentication, Role::Accounting];
        radius.max_entries = 64;
        config.radius = Some(radius);
        let applications = [Application::auth(application::EAP), Application::auth(application::NASREQ)];
        let mut diameter = node::Config::new("aaa.example.net", "example.net", &applications);
        diameter.accept_unknown = true;
        config.diameter = Some(diameter);
        config.methods = Method::ALL.into();
        config.max_half_open = HALF_OPEN;
        (config.limits, config.mab) = (true, true);
        Self {
            server: AaaServer::new(config, Seed::new(1).secure("aaa", 0)).expect("it fits together"),
            ledger: Ledger::new(LedgerConfig { max_sessions: 50, ..LedgerConfig::default() }),
            store: Memory::new(),
            now: Instant::ZERO,
            state: Vec::new(),
            sent: 0,
        }
    }

    fn datagram(&mut self, socket: u32, from: u8, data: &[u8]) {
        let remote = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, from, 1)), 50_000);
        let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)), 1812);
        let path = Path { socket: radius_socket(socket), local, remote };
        self.server.handle(self.now, Input::Datagram { path, data });
    }

    /// A request of a true client with these attributes; with `eap`, an EAP packet, and the State that came last.
    fn signed(&mut self, code: Code, from: u8, octets: &[u8], eap: bool) {
        let mut attributes = Attributes::new();
        if eap {
            let (name, packet) = octets.split_at(octets.len().min(3));
            // At most 3 octets.
            let _ = attributes.push_bytes(kind::USER_NAME, name);
            attributes.push_eap(packet);
            if !self.state.is_empty() {
                let _ = attributes.push_bytes(kind::STATE, &self.state);
            }
        } else if let Ok(list) = Attributes::from_wire(octets) {
            attributes = list;
        }
        self.sent = self.sent.wrapping_add(1);
        let head = [code.0, self.sent];
        let accounting = code == Code::ACCOUNTING_REQUEST;
        if !accounting && attributes.push_bytes(kind::MESSAGE_AUTHENTICATOR, &[0; 16]).is_err() {
            return;
        }
        let authenticator = if accounting { [0; 16] } else { [self.sent; 16] };
        let packet = OwnedPacket { code, identifier: head[1], authenticator, attributes };
        let mut data = Vec::new();
        if packet.emit(&mut data).is_err() {
            return;
        }
        let secret = Secret::new(SECRET);
        if accounting {
            let proof = usher_radius::auth::accounting_request_authenticator(&data, &secret);
            data[4..20].copy_from_slice(&proof);
        } else {
            let proof = usher_crypto::digest::HmacMd5Key::new(SECRET).mac(&[&data]);
            let at = data.len() - 16;
            data[at..].copy_from_slice(&proof);
        }
        self.datagram(u32::from(accounting), from, &data);
    }

    /// Answers what the server asks, and takes what it says.
    fn settle(&mut self) {
        let (now, mut buf) = (self.now, Vec::new());
        while let Some(output) = self.server.poll_output(&mut buf) {
            let job = match output {
                Output::Job(job) => job,
                Output::Transmit(Transmit::Datagram { .. }) => {
                    if let Ok(packet) = Packet::parse(&buf)
                        && let Some(state) = packet.get(kind::STATE)
                    {
                        self.state = state.to_vec();
                    }
                    continue;
                }
                _ => continue,
            };
            let token = job.token;
            let command = match job.what {
                Job::Lookup { name, .. } => Command::Found { token, user: user(&name) },
                Job::Verify { password, .. } if password.is_empty() => Command::Unable { token },
                Job::Verify { password, .. } => {
                    Command::Verified { token, right: password[..] == b"right"[..] }
                }
                Job::Admit { request, .. } => {
                    let wall = usher_core::WallTime::from_unix_secs(1_800_000_000);
                    Command::Admitted { token, admission: self.ledger.admit(now, wall, &request) }
                }
                Job::Account { record } => {
                    let durable = self.ledger.serve(now, &mut self.store, &record);
                    Command::Accounted { token, durable }
                }
                Job::NameUser { outer, .. } => Command::Named { token, name: Some(outer) },
                Job::CheckCertificate { .. } => {
                    Command::Certificate { token, verdict: CertificateVerdict::Good }
                }
            };
            self.server.command(now, command).expect("it was asked");
        }
        assert!(self.server.half_open() <= HALF_OPEN, "more half-open sessions than may be");
        assert!(self.server.cached_users() <= USERS, "more users in memory than may be");
    }
}

/// Takes the steps, and looks at the bounds after each.
pub(crate) fn run(data: &[u8]) {
    let mut host = Host::new();
    let listener = DIAMETER_LISTENER;
    let conn = ConnId { owner: listener.owner, ..ConnId::accepted(0) };
    let remote = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)), 40_000);
    host.server.handle(
        host.now,
        Input::Stream {
            conn,
            event: StreamEvent::Accepted { listener, remote, local: None, certificate: None },
        },
    );
    let mut rest = data;
    while let [operation, length, tail @ ..] = rest {
        let (octets, after) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = after;
        // The fourth is no client.
        let from = operation >> 6;
        match operation & 7 {
            0 => host.datagram(0, from, octets),
            1 => host.datagram(1, from, octets),
            2 => host.signed(Code::ACCESS_REQUEST, from, octets, false),
            3 => host.signed(Code::ACCESS_REQUEST, from, octets, true),
            4 => host.signed(Code::ACCOUNTING_REQUEST, from, octets, false),
            5 => host.server.handle(host.now, Input::Stream { conn, event: StreamEvent::Data(octets) }),
            6 => {
                host.now += Duration::from_secs(u64::from(*length));
                host.server.handle(host.now, Input::Timeout);
                host.ledger.expire(host.now);
            }
            _ => {
                let forget = Command::Forget { name: octets.first().map(|_| octets.to_vec()) };
                host.server.command(host.now, forget).expect("there is nothing wrong with it");
            }
        }
        host.settle();
    }
    // What is under way ends.
    host.now += Duration::from_secs(600);
    host.server.handle(host.now, Input::Timeout);
    host.settle();
    assert_eq!(host.server.half_open(), 0, "a session that nobody goes on with is forgotten");
}

//! A whole AAA server. Its inputs are datagrams of clients and of strangers, raw or signed, and a Diameter stream.
//! Its host looks up users, hashes passwords and keeps records.
//!
//! The input is a sequence of steps: an operation, a length and that number of octets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use usher_aaa::ledger::{Ledger, LedgerConfig};
use usher_aaa::store::MemoryStore;
use usher_aaa::{
    AaaServer, AaaServerCommand, AaaServerConfig, AaaServerJob, AuthMethod, CertificateVerdict,
    DIAMETER_LISTENER, StoredPassword, User, UserCacheConfig, UserLookupResult, UserSource, radius_socket,
};
use usher_core::{
    ConnId, DatagramPath, Duration, Instant, Machine, MachineInput, MachineOutput, Seed, StreamEvent,
    Transmit,
};
use usher_diameter::codes::application;
use usher_diameter::node;
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_radius::SharedSecret;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::{OwnedPacket, PacketCode, RadiusPacket};
use usher_radius::server::{ClientConfig, PortRole};

const SECRET: &[u8] = b"the secret of all";
const HALF_OPEN: usize = 20;
const USERS: usize = 8;

struct AaaFuzzFixture {
    server: AaaServer,
    ledger: Ledger,
    store: MemoryStore,
    now: Instant,
    /// The last State that a client received.
    state: Vec<u8>,
    sent: u8,
}

fn lookup_result(name: &[u8]) -> UserLookupResult {
    let mut user = User::with_password(b"right");
    match name.first() {
        Some(b'a') => {}
        Some(b'b') => user.password = Some(StoredPassword::Argon2("$argon2id$v=19$".into())),
        Some(b'c') => (user.simultaneous, user.pool) = (Some(1), Some("none".into())),
        Some(b'd') => return UserLookupResult::Unavailable,
        _ => return UserLookupResult::NotFound,
    }
    UserLookupResult::User(Arc::new(user))
}

impl AaaFuzzFixture {
    fn new() -> Self {
        let users = UserCacheConfig { entries: USERS, ..UserCacheConfig::default() };
        let mut config = AaaServerConfig::new(UserSource::Host(users));
        let client = |n: u8, bits| {
            ClientConfig::new(IpAddr::V4(Ipv4Addr::new(10, 0, n, 1)), bits, SharedSecret::new(SECRET))
        };
        let mut radius =
            usher_radius::server::RadiusServerConfig::new(vec![client(0, 24), client(1, 32), client(2, 32)]);
        radius.roles = vec![PortRole::Authentication, PortRole::Accounting];
        radius.max_entries = 64;
        config.radius = Some(radius);
        let applications = [
            DiameterApplication::for_authentication(application::EAP),
            DiameterApplication::for_authentication(application::NASREQ),
        ];
        let mut diameter = node::DiameterNodeConfig::new("aaa.example.net", "example.net", &applications);
        diameter.accept_unknown = true;
        config.diameter = Some(diameter);
        config.methods = AuthMethod::ALL.into();
        config.max_half_open = HALF_OPEN;
        (config.limits, config.mab) = (true, true);
        Self {
            server: AaaServer::new(config, Seed::new(1).derive_secure_rng("aaa", 0))
                .expect("it fits together"),
            ledger: Ledger::new(LedgerConfig { max_sessions: 50, ..LedgerConfig::default() }),
            store: MemoryStore::new(),
            now: Instant::ZERO,
            state: Vec::new(),
            sent: 0,
        }
    }

    fn deliver_datagram(&mut self, socket: u32, from: u8, data: &[u8]) {
        let remote = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, from, 1)), 50_000);
        let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)), 1812);
        let path = DatagramPath { socket: radius_socket(socket), local, remote };
        self.server.handle_input(self.now, MachineInput::Datagram { path, data });
    }

    /// Sends a client's signed request with these attributes. With `eap`, it has an EAP packet and the last State.
    fn send_signed_request(&mut self, code: PacketCode, from: u8, octets: &[u8], eap: bool) {
        let mut attributes = AttributeList::new();
        if eap {
            let (name, packet) = octets.split_at(octets.len().min(3));
            // At most 3 octets.
            let _ = attributes.push_bytes(kind::USER_NAME, name);
            attributes.push_eap(packet);
            if !self.state.is_empty() {
                let _ = attributes.push_bytes(kind::STATE, &self.state);
            }
        } else if let Ok(list) = AttributeList::parse_attribute_list(octets) {
            attributes = list;
        }
        self.sent = self.sent.wrapping_add(1);
        let head = [code.0, self.sent];
        let accounting = code == PacketCode::ACCOUNTING_REQUEST;
        if !accounting && attributes.push_bytes(kind::MESSAGE_AUTHENTICATOR, &[0; 16]).is_err() {
            return;
        }
        let authenticator = if accounting { [0; 16] } else { [self.sent; 16] };
        let packet = OwnedPacket { code, identifier: head[1], authenticator, attributes };
        let mut data = Vec::new();
        if packet.encode_into(&mut data).is_err() {
            return;
        }
        let secret = SharedSecret::new(SECRET);
        if accounting {
            let proof = usher_radius::auth::accounting_request_authenticator(&data, &secret);
            data[4..20].copy_from_slice(&proof);
        } else {
            let proof = usher_crypto::digest::HmacMd5Key::new(SECRET).mac(&[&data]);
            let at = data.len() - 16;
            data[at..].copy_from_slice(&proof);
        }
        self.deliver_datagram(u32::from(accounting), from, &data);
    }

    /// Does the server's jobs and drains its outputs.
    fn drain_outputs(&mut self) {
        let (now, mut buf) = (self.now, Vec::new());
        while let Some(output) = self.server.poll_output(&mut buf) {
            let job = match output {
                MachineOutput::Job(job) => job,
                MachineOutput::Transmit(Transmit::Datagram { .. }) => {
                    if let Ok(packet) = RadiusPacket::parse(&buf)
                        && let Some(state) = packet.get(kind::STATE)
                    {
                        self.state = state.to_vec();
                    }
                    continue;
                }
                _ => continue,
            };
            let token = job.token;
            let command = match job.job {
                AaaServerJob::Lookup { name, .. } => {
                    AaaServerCommand::Found { token, user: lookup_result(&name) }
                }
                AaaServerJob::Verify { password, .. } if password.is_empty() => {
                    AaaServerCommand::Unable { token }
                }
                AaaServerJob::Verify { password, .. } => {
                    AaaServerCommand::Verified { token, right: password[..] == b"right"[..] }
                }
                AaaServerJob::Admit { request, .. } => {
                    let wall = usher_core::WallTime::from_unix_secs(1_800_000_000);
                    AaaServerCommand::Admitted {
                        token,
                        admission: self.ledger.admit_user(now, wall, &request),
                    }
                }
                AaaServerJob::Account { record } => {
                    let durable = self.ledger.commit_record(now, &mut self.store, &record);
                    AaaServerCommand::Accounted { token, durable }
                }
                AaaServerJob::NameUser { outer, .. } => AaaServerCommand::Named { token, name: Some(outer) },
                AaaServerJob::CheckCertificate { .. } => {
                    AaaServerCommand::Certificate { token, verdict: CertificateVerdict::Good }
                }
            };
            self.server.handle_command(now, command).expect("it was asked");
        }
        assert!(self.server.half_open() <= HALF_OPEN, "more half-open sessions than may be");
        assert!(self.server.cached_users() <= USERS, "more users in memory than may be");
    }
}

/// Runs the steps and checks the bounds after each.
pub(crate) fn fuzz_aaa_server(data: &[u8]) {
    let mut host = AaaFuzzFixture::new();
    let listener = DIAMETER_LISTENER;
    let conn = ConnId { owner: listener.owner, ..ConnId::nth_accepted_connection(0) };
    let remote = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)), 40_000);
    host.server.handle_input(
        host.now,
        MachineInput::Stream {
            conn,
            event: StreamEvent::Accepted { listener, remote, local: None, certificate: None },
        },
    );
    let mut rest = data;
    while let [operation, length, tail @ ..] = rest {
        let (octets, after) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = after;
        // The fourth address is not a client's.
        let from = operation >> 6;
        match operation & 7 {
            0 => host.deliver_datagram(0, from, octets),
            1 => host.deliver_datagram(1, from, octets),
            2 => host.send_signed_request(PacketCode::ACCESS_REQUEST, from, octets, false),
            3 => host.send_signed_request(PacketCode::ACCESS_REQUEST, from, octets, true),
            4 => host.send_signed_request(PacketCode::ACCOUNTING_REQUEST, from, octets, false),
            5 => host
                .server
                .handle_input(host.now, MachineInput::Stream { conn, event: StreamEvent::Data(octets) }),
            6 => {
                host.now += Duration::from_secs(u64::from(*length));
                host.server.handle_input(host.now, MachineInput::Timeout);
                host.ledger.expire_sessions(host.now);
            }
            _ => {
                let forget = AaaServerCommand::EvictUsers { name: octets.first().map(|_| octets.to_vec()) };
                host.server.handle_command(host.now, forget).expect("there is nothing wrong with it");
            }
        }
        host.drain_outputs();
    }
    // Pending work ends.
    host.now += Duration::from_secs(600);
    host.server.handle_input(host.now, MachineInput::Timeout);
    host.drain_outputs();
    assert_eq!(host.server.half_open(), 0, "a session that nobody goes on with is forgotten");
}

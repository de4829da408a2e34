//! Logins at a server in this process: real messages in virtual time, without sockets. One function, which is never
//! inlined, does all of the server's work. So a profiler can count it without the client.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use usher_aaa::{AaaServer, User, UserDirectory, UserSource, radius_socket};
use usher_core::{
    DatagramPath, Duration, Instant, Machine, MachineInput, MachineOutput, SecureRng, Seed, SocketId,
    Transmit, WallTime,
};
use usher_crypto::SecretValue;
use usher_eap::method::{PeerMethodFactory, md5};
use usher_eap::packet::{self, EapType};
use usher_eap::peer::{self, EapPeer};
use usher_ike::IkeEndpoint;
use usher_ike::machine::{self as ike, ChildlessPolicy, IkeConnectionConfig, SOCKET};
use usher_ike::payload::{Identification, Proposal};
use usher_radius::attribute::kind;
use usher_radius::client::{self, RadiusClient, RadiusReply, RequestTarget, ServerConfig};
use usher_radius::server::{self as radius, ClientConfig};
use usher_radius::{AttributeList, PacketCode, SharedSecret};

/// Part of the name of the function that does the server's work. No other function's name contains it.
pub const COUNTED_FUNCTION: &str = "count_server_step";

const EPOCH: WallTime = WallTime::from_unix_secs(1_767_225_600);
/// The interval of requests and of IKE_SAs. Replies are kept for five seconds: after 100 requests, each new request
/// evicts an old reply.
const INTERVAL: Duration = Duration::from_millis(50);
const USERS: u64 = 1000;
const PASSWORD: &[u8] = b"open sesame";
const NAS_PORT: u16 = 50_000;
const NAS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), NAS_PORT);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 1812);
const INITIATOR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3)), 500);
const RESPONDER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 4)), 500);

/// The method of a login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoginMethod {
    /// User-Password over RADIUS, one request.
    Pap,
    /// EAP-MD5 over RADIUS, two requests.
    EapMd5,
    /// An IKE_SA by a shared key: IKE_SA_INIT with X25519 and IKE_AUTH, without a CHILD_SA.
    IkePsk,
}

impl LoginMethod {
    /// All methods.
    pub const ALL: [Self; 3] = [Self::Pap, Self::EapMd5, Self::IkePsk];

    /// Returns its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pap => "pap",
            Self::EapMd5 => "eap-md5",
            Self::IkePsk => "ike-psk",
        }
    }

    /// Does `logins` logins, one after another.
    ///
    /// # Errors
    /// The server did not accept a login.
    pub fn run_logins(self, logins: u64) -> Result<(), String> {
        match self {
            Self::Pap => {
                let mut pair = RadiusLoginFixture::new()?;
                (0..logins).try_for_each(|n| pair.log_in_by_pap(n))
            }
            Self::EapMd5 => {
                let mut pair = RadiusLoginFixture::new()?;
                (0..logins).try_for_each(|n| pair.log_in_by_eap_md5(n))
            }
            Self::IkePsk => {
                let mut pair = IkeLoginFixture::new()?;
                (0..logins).try_for_each(|n| pair.establish_ike_sa(n))
            }
        }
    }
}

/// A server, and its host's handling of events.
trait BenchmarkServer: Machine {
    /// Handles an event.
    fn take_event(&mut self, event: Self::Event);
}

impl BenchmarkServer for AaaServer {
    /// Returns the attributes of a login for reuse, as a host that keeps none.
    fn take_event(&mut self, event: usher_aaa::AaaServerEvent) {
        if let usher_aaa::AaaServerEvent::Accepted(login) | usher_aaa::AaaServerEvent::Rejected(login) = event
        {
            self.recycle_request(login.request);
        }
    }
}

impl BenchmarkServer for IkeEndpoint {
    fn take_event(&mut self, _: ike::IkeEvent) {}
}

/// Does all of a server's work for one datagram: timers that are due, the datagram and its outputs. `reply` receives
/// the datagram that the server sends, if any.
#[inline(never)]
fn count_server_step<S: BenchmarkServer>(
    server: &mut S,
    (now, path): (Instant, DatagramPath),
    request: &[u8],
    buffer: &mut Vec<u8>,
    reply: &mut Vec<u8>,
) {
    while server.poll_timeout().is_some_and(|due| due <= now) {
        server.handle_input(now, MachineInput::Timeout);
    }
    server.handle_input(now, MachineInput::Datagram { path, data: request });
    reply.clear();
    while let Some(output) = server.poll_output(buffer) {
        match output {
            MachineOutput::Transmit(_) => reply.extend_from_slice(buffer),
            MachineOutput::Event(event) => server.take_event(event),
            MachineOutput::Work(_) | MachineOutput::Job(_) => {}
        }
    }
}

/// A RADIUS client, and an AAA server with users in memory.
struct RadiusLoginFixture {
    now: Instant,
    client: RadiusClient,
    server: AaaServer,
    seed: Seed,
    methods: Arc<[Box<dyn PeerMethodFactory>]>,
    request: Vec<u8>,
    buffer: Vec<u8>,
    reply: Vec<u8>,
}

fn user_name(number: u64) -> String {
    format!("user{:03}@example.org", number % USERS)
}

impl RadiusLoginFixture {
    fn new() -> Result<Self, String> {
        let seed = Seed::new(1);
        let secret = SharedSecret::new(b"sixteen octets!!");
        let mut users = UserDirectory::new(&mut seed.derive_secure_rng("users", 0));
        for number in 0..USERS {
            users.insert(user_name(number).as_bytes(), User::with_password(PASSWORD));
        }
        let mut config = usher_aaa::AaaServerConfig::new(UserSource::Memory(Arc::new(users)));
        config.radius =
            Some(radius::RadiusServerConfig::new(vec![ClientConfig::new(NAS.ip(), 32, secret.clone())]));
        let server =
            AaaServer::new(config, seed.derive_secure_rng("server", 0)).map_err(|e| e.to_string())?;
        let config = client::RadiusClientConfig::for_server(ServerConfig::new(SERVER, secret));
        let client =
            RadiusClient::new(config, seed.derive_secure_rng("client", 0)).map_err(|e| e.to_string())?;
        let mut pair = Self {
            now: Instant::ZERO,
            client,
            server,
            seed,
            methods: Arc::new([Box::new(md5::EapMd5Password::new(PASSWORD))]),
            request: Vec::new(),
            buffer: Vec::new(),
            reply: Vec::new(),
        };
        pair.client.set_epoch(pair.now, EPOCH);
        pair.server.set_epoch(pair.now, EPOCH);
        Ok(pair)
    }

    /// Sends an Access-Request with these attributes and returns the reply.
    fn request_access(&mut self, attributes: AttributeList) -> Result<RadiusReply, String> {
        self.now += INTERVAL;
        let target = RequestTarget::Server(0);
        let ask = client::RadiusClientCommand::Request {
            token: 0,
            target,
            code: PacketCode::ACCESS_REQUEST,
            attributes,
        };
        self.client.handle_command(self.now, ask).map_err(|e| e.to_string())?;
        while let Some(output) = self.client.poll_output(&mut self.request) {
            match output {
                MachineOutput::Transmit(Transmit::Datagram { path }) => {
                    let source = SocketAddr::new(NAS.ip(), NAS_PORT + path.socket.n as u16);
                    let at_server = DatagramPath { socket: radius_socket(0), local: SERVER, remote: source };
                    let Self { now, server, request, buffer, reply, .. } = self;
                    count_server_step(server, (*now, at_server), request, buffer, reply);
                    let path = DatagramPath {
                        socket: SocketId::from_number(path.socket.n),
                        local: source,
                        remote: SERVER,
                    };
                    self.client.handle_input(self.now, MachineInput::Datagram { path, data: &self.reply });
                }
                MachineOutput::Event(client::RadiusClientEvent::Response(response)) => return Ok(response),
                _ => {}
            }
        }
        Err("the server did not reply".into())
    }

    fn log_in_by_pap(&mut self, number: u64) -> Result<(), String> {
        let mut attributes = request_attributes(&user_name(number))?;
        attributes.push_user_password(PASSWORD).map_err(|e| e.to_string())?;
        expect_reply_code(PacketCode::ACCESS_ACCEPT, &self.request_access(attributes)?)
    }

    fn log_in_by_eap_md5(&mut self, number: u64) -> Result<(), String> {
        let name = user_name(number);
        let config = peer::EapPeerConfig {
            identity: name.clone().into_bytes(),
            methods: self.methods.clone(),
            timeout: Duration::from_secs(60),
            wall: EPOCH,
        };
        let mut peer = EapPeer::new(config, self.seed.derive_secure_rng("peer", number), self.now);
        let mut eap = Vec::new();
        packet::emit_packet(&mut eap, packet::EapCode::Response, 1, EapType::IDENTITY, name.as_bytes());
        let mut attributes = request_attributes(&name)?;
        attributes.push_eap(&eap);
        let challenge = self.request_access(attributes)?;
        expect_reply_code(PacketCode::ACCESS_CHALLENGE, &challenge)?;
        eap.clear();
        challenge.attributes.read_eap_packet(&mut eap);
        peer.handle_packet(self.now, &eap);
        if !peer.poll_transmit(&mut eap) {
            return Err("the peer does not answer the challenge".into());
        }
        let mut attributes = request_attributes(&name)?;
        attributes.push_eap(&eap);
        let state = challenge.attributes.get(kind::STATE).unwrap_or_default();
        attributes.push_bytes(kind::STATE, state).map_err(|e| e.to_string())?;
        expect_reply_code(PacketCode::ACCESS_ACCEPT, &self.request_access(attributes)?)
    }
}

/// Returns the attributes of every request.
fn request_attributes(name: &str) -> Result<AttributeList, String> {
    let mut attributes = AttributeList::new();
    let identity = [
        (kind::USER_NAME, name),
        (kind::NAS_IDENTIFIER, "nas"),
        (kind::CALLING_STATION_ID, "02-00-00-00-00-01"),
    ];
    for (kind, text) in identity {
        attributes.push_text(kind, text).map_err(|e| e.to_string())?;
    }
    Ok(attributes)
}

fn expect_reply_code(code: PacketCode, response: &RadiusReply) -> Result<(), String> {
    if response.code == code { Ok(()) } else { Err(format!("{} in place of {code}", response.code)) }
}

/// Initiators, and a responder that keeps its IKE_SAs.
struct IkeLoginFixture {
    now: Instant,
    responder: IkeEndpoint,
    gateway: Identification,
    key: SecretValue,
    proposals: Vec<Proposal>,
    seed: Seed,
    request: Vec<u8>,
    buffer: Vec<u8>,
    reply: Vec<u8>,
}

impl IkeLoginFixture {
    fn new() -> Result<Self, String> {
        let seed = Seed::new(1);
        let (gateway, key) =
            (Identification::from_fqdn("gateway.example.org"), SecretValue::from(&b"a shared secret"[..]));
        let proposals =
            vec![Proposal::parse_ike_proposal("aes128-sha256-x25519").map_err(|e| e.to_string())?];
        let mut responder = test_endpoint(seed.derive_secure_rng("responder", 0));
        let connection = IkeConnectionConfig::shared_key("site", gateway.clone(), &key, proposals.clone());
        let serve = ike::IkeCommand::Serve(vec![Arc::new(connection)]);
        responder.handle_command(Instant::ZERO, serve).map_err(|e| e.to_string())?;
        Ok(Self {
            now: Instant::ZERO,
            responder,
            gateway,
            key,
            proposals,
            seed,
            request: Vec::new(),
            buffer: Vec::new(),
            reply: Vec::new(),
        })
    }

    /// A new initiator establishes an IKE_SA.
    fn establish_ike_sa(&mut self, number: u64) -> Result<(), String> {
        self.now += INTERVAL;
        let mut initiator = test_endpoint(self.seed.derive_secure_rng("initiator", number));
        let local = Identification::from_fqdn(&format!("site{number:03}.example.org"));
        let connection = IkeConnectionConfig {
            remote: Some(self.gateway.clone()),
            childless: ChildlessPolicy::Force,
            ..IkeConnectionConfig::shared_key("gateway", local, &self.key, self.proposals.clone())
        };
        let connection = Arc::new(connection);
        let initiate =
            ike::IkeCommand::Initiate { token: 0, connection, local: INITIATOR, remote: RESPONDER };
        initiator.handle_command(self.now, initiate).map_err(|e| e.to_string())?;
        let at_responder = DatagramPath { socket: SOCKET, local: RESPONDER, remote: INITIATOR };
        let at_initiator = DatagramPath { socket: SOCKET, local: INITIATOR, remote: RESPONDER };
        while let Some(output) = initiator.poll_output(&mut self.request) {
            match output {
                MachineOutput::Transmit(_) => {
                    let Self { now, responder, request, buffer, reply, .. } = self;
                    count_server_step(responder, (*now, at_responder), request, buffer, reply);
                    initiator.handle_input(
                        self.now,
                        MachineInput::Datagram { path: at_initiator, data: &self.reply },
                    );
                }
                MachineOutput::Event(ike::IkeEvent::Established { .. }) => return Ok(()),
                _ => {}
            }
        }
        Err(format!("no IKE_SA: {:?}", self.responder.counters()))
    }
}

fn test_endpoint(rng: SecureRng) -> IkeEndpoint {
    let mut endpoint = IkeEndpoint::new(ike::IkeEndpointConfig::default(), rng);
    endpoint.set_epoch(Instant::ZERO, EPOCH);
    endpoint
}

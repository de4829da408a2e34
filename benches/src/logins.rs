//! Logins at a server in this process: real messages, virtual time, no sockets. One function does the whole of the server's
//! work, and is never inlined, so that a profiler can count it and leave the client out.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use usher_aaa::{AaaServer, User, UserSource, Users, radius_socket};
use usher_core::{
    Duration, Input, Instant, Machine, Output, Path, SecureRng, Seed, SocketId, Transmit, WallTime,
};
use usher_crypto::Key;
use usher_eap::method::{PeerOffer, md5};
use usher_eap::packet::{self, Type};
use usher_eap::peer::{self, Peer};
use usher_ike::Endpoint;
use usher_ike::machine::{self as ike, Childless, Connection, SOCKET};
use usher_ike::payload::{Identification, Proposal};
use usher_radius::attribute::kind;
use usher_radius::client::{self, Client, Response, ServerConfig, Target};
use usher_radius::server::{self as radius, ClientConfig};
use usher_radius::{Attributes, Code, Secret};

/// Part of the name of the function that does the server's work, and of no other function's.
pub const COUNTED_FUNCTION: &str = "count_server_step";

const EPOCH: WallTime = WallTime::from_unix_secs(1_767_225_600);
/// From one request to the next, and from one IKE_SA to the next. Replies are kept for five seconds: after 100 requests, each
/// new one has the server drop an old one.
const INTERVAL: Duration = Duration::from_millis(50);
const USERS: u64 = 1000;
const PASSWORD: &[u8] = b"open sesame";
const NAS_PORT: u16 = 50_000;
const NAS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), NAS_PORT);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 1812);
const INITIATOR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3)), 500);
const RESPONDER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 4)), 500);

/// How a user logs in.
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

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pap => "pap",
            Self::EapMd5 => "eap-md5",
            Self::IkePsk => "ike-psk",
        }
    }

    /// Does so many logins, one after another.
    ///
    /// # Errors
    /// A login that the server did not accept.
    pub fn run(self, logins: u64) -> Result<(), String> {
        match self {
            Self::Pap => {
                let mut pair = RadiusPair::new()?;
                (0..logins).try_for_each(|n| pair.log_in_by_pap(n))
            }
            Self::EapMd5 => {
                let mut pair = RadiusPair::new()?;
                (0..logins).try_for_each(|n| pair.log_in_by_eap_md5(n))
            }
            Self::IkePsk => {
                let mut pair = IkePair::new()?;
                (0..logins).try_for_each(|n| pair.establish(n))
            }
        }
    }
}

/// A server, and what its host does with an event.
trait CountedServer: Machine {
    /// Handles an event.
    fn take_event(&mut self, event: Self::Event);
}

impl CountedServer for AaaServer {
    /// Gives the attributes of a login back, as hosts do that keep none of them.
    fn take_event(&mut self, event: usher_aaa::Event) {
        if let usher_aaa::Event::Accepted(login) | usher_aaa::Event::Rejected(login) = event {
            self.reuse(login.request);
        }
    }
}

impl CountedServer for Endpoint {
    fn take_event(&mut self, _: ike::Event) {}
}

/// All that a server does because of one datagram: timers that are due, the datagram itself, its outputs. `reply` gets the
/// datagram that it sends, or nothing.
#[inline(never)]
fn count_server_step<S: CountedServer>(
    server: &mut S,
    (now, path): (Instant, Path),
    request: &[u8],
    buffer: &mut Vec<u8>,
    reply: &mut Vec<u8>,
) {
    while server.poll_timeout().is_some_and(|due| due <= now) {
        server.handle(now, Input::Timeout);
    }
    server.handle(now, Input::Datagram { path, data: request });
    reply.clear();
    while let Some(output) = server.poll_output(buffer) {
        match output {
            Output::Transmit(_) => reply.extend_from_slice(buffer),
            Output::Event(event) => server.take_event(event),
            Output::Work(_) | Output::Job(_) => {}
        }
    }
}

/// A RADIUS client and an AAA server that has its users in memory.
struct RadiusPair {
    now: Instant,
    client: Client,
    server: AaaServer,
    seed: Seed,
    methods: Arc<[Box<dyn PeerOffer>]>,
    request: Vec<u8>,
    buffer: Vec<u8>,
    reply: Vec<u8>,
}

fn user_name(number: u64) -> String {
    format!("user{:03}@example.org", number % USERS)
}

impl RadiusPair {
    fn new() -> Result<Self, String> {
        let seed = Seed::new(1);
        let secret = Secret::new(b"sixteen octets!!");
        let mut users = Users::new(&mut seed.secure("users", 0));
        for number in 0..USERS {
            users.insert(user_name(number).as_bytes(), User::with_password(PASSWORD));
        }
        let mut config = usher_aaa::Config::new(UserSource::Memory(Arc::new(users)));
        config.radius = Some(radius::Config::new(vec![ClientConfig::new(NAS.ip(), 32, secret.clone())]));
        let server = AaaServer::new(config, seed.secure("server", 0)).map_err(|e| e.to_string())?;
        let config = client::Config::single(ServerConfig::new(SERVER, secret));
        let client = Client::new(config, seed.secure("client", 0)).map_err(|e| e.to_string())?;
        let mut pair = Self {
            now: Instant::ZERO,
            client,
            server,
            seed,
            methods: Arc::new([Box::new(md5::Password::new(PASSWORD))]),
            request: Vec::new(),
            buffer: Vec::new(),
            reply: Vec::new(),
        };
        pair.client.set_epoch(pair.now, EPOCH);
        pair.server.set_epoch(pair.now, EPOCH);
        Ok(pair)
    }

    /// Sends an Access-Request with these attributes, and gives its reply.
    fn ask(&mut self, attributes: Attributes) -> Result<Response, String> {
        self.now += INTERVAL;
        let target = Target::Server(0);
        let ask = client::Command::Request { token: 0, target, code: Code::ACCESS_REQUEST, attributes };
        self.client.command(self.now, ask).map_err(|e| e.to_string())?;
        while let Some(output) = self.client.poll_output(&mut self.request) {
            match output {
                Output::Transmit(Transmit::Datagram { path }) => {
                    let source = SocketAddr::new(NAS.ip(), NAS_PORT + path.socket.n as u16);
                    let at_server = Path { socket: radius_socket(0), local: SERVER, remote: source };
                    let Self { now, server, request, buffer, reply, .. } = self;
                    count_server_step(server, (*now, at_server), request, buffer, reply);
                    let path = Path { socket: SocketId::own(path.socket.n), local: source, remote: SERVER };
                    self.client.handle(self.now, Input::Datagram { path, data: &self.reply });
                }
                Output::Event(client::Event::Response(response)) => return Ok(response),
                _ => {}
            }
        }
        Err("the server did not reply".into())
    }

    fn log_in_by_pap(&mut self, number: u64) -> Result<(), String> {
        let mut attributes = identify(&user_name(number))?;
        attributes.push_user_password(PASSWORD).map_err(|e| e.to_string())?;
        expect(Code::ACCESS_ACCEPT, &self.ask(attributes)?)
    }

    fn log_in_by_eap_md5(&mut self, number: u64) -> Result<(), String> {
        let name = user_name(number);
        let config = peer::Config {
            identity: name.clone().into_bytes(),
            methods: self.methods.clone(),
            timeout: Duration::from_secs(60),
            wall: EPOCH,
        };
        let mut peer = Peer::new(config, self.seed.secure("peer", number), self.now);
        let mut eap = Vec::new();
        packet::emit(&mut eap, packet::Code::Response, 1, Type::IDENTITY, name.as_bytes());
        let mut attributes = identify(&name)?;
        attributes.push_eap(&eap);
        let challenge = self.ask(attributes)?;
        expect(Code::ACCESS_CHALLENGE, &challenge)?;
        eap.clear();
        challenge.attributes.eap(&mut eap);
        peer.handle(self.now, &eap);
        if !peer.poll_transmit(&mut eap) {
            return Err("the peer does not answer the challenge".into());
        }
        let mut attributes = identify(&name)?;
        attributes.push_eap(&eap);
        let state = challenge.attributes.get(kind::STATE).unwrap_or_default();
        attributes.push_bytes(kind::STATE, state).map_err(|e| e.to_string())?;
        expect(Code::ACCESS_ACCEPT, &self.ask(attributes)?)
    }
}

/// What every request says.
fn identify(name: &str) -> Result<Attributes, String> {
    let mut attributes = Attributes::new();
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

fn expect(code: Code, response: &Response) -> Result<(), String> {
    if response.code == code { Ok(()) } else { Err(format!("{} in place of {code}", response.code)) }
}

/// Initiators, and a responder whose IKE_SAs stay.
struct IkePair {
    now: Instant,
    responder: Endpoint,
    gateway: Identification,
    key: Key,
    proposals: Vec<Proposal>,
    seed: Seed,
    request: Vec<u8>,
    buffer: Vec<u8>,
    reply: Vec<u8>,
}

impl IkePair {
    fn new() -> Result<Self, String> {
        let seed = Seed::new(1);
        let (gateway, key) =
            (Identification::fqdn("gateway.example.org"), Key::from(&b"a shared secret"[..]));
        let proposals = vec![Proposal::ike("aes128-sha256-x25519").map_err(|e| e.to_string())?];
        let mut responder = endpoint(seed.secure("responder", 0));
        let connection = Connection::shared_key("site", gateway.clone(), &key, proposals.clone());
        let serve = ike::Command::Serve(vec![Arc::new(connection)]);
        responder.command(Instant::ZERO, serve).map_err(|e| e.to_string())?;
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

    /// A new initiator makes an IKE_SA.
    fn establish(&mut self, number: u64) -> Result<(), String> {
        self.now += INTERVAL;
        let mut initiator = endpoint(self.seed.secure("initiator", number));
        let local = Identification::fqdn(&format!("site{number:03}.example.org"));
        let connection = Connection {
            remote: Some(self.gateway.clone()),
            childless: Childless::Force,
            ..Connection::shared_key("gateway", local, &self.key, self.proposals.clone())
        };
        let connection = Arc::new(connection);
        let initiate = ike::Command::Initiate { token: 0, connection, local: INITIATOR, remote: RESPONDER };
        initiator.command(self.now, initiate).map_err(|e| e.to_string())?;
        let at_responder = Path { socket: SOCKET, local: RESPONDER, remote: INITIATOR };
        let at_initiator = Path { socket: SOCKET, local: INITIATOR, remote: RESPONDER };
        while let Some(output) = initiator.poll_output(&mut self.request) {
            match output {
                Output::Transmit(_) => {
                    let Self { now, responder, request, buffer, reply, .. } = self;
                    count_server_step(responder, (*now, at_responder), request, buffer, reply);
                    initiator.handle(self.now, Input::Datagram { path: at_initiator, data: &self.reply });
                }
                Output::Event(ike::Event::Established { .. }) => return Ok(()),
                _ => {}
            }
        }
        Err(format!("no IKE_SA: {:?}", self.responder.counters()))
    }
}

fn endpoint(rng: SecureRng) -> Endpoint {
    let mut endpoint = Endpoint::new(ike::Config::default(), rng);
    endpoint.set_epoch(Instant::ZERO, EPOCH);
    endpoint
}

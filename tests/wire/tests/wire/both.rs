//! One AAA service in two hosts: the same access servers make the same logins and report the same sessions to it in the
//! simulator, as a study runs it, and on the sockets of this machine, as `usher aaa serve` runs it, both of one file; what is
//! said is the same, message by message, on the way in and on the way to home servers.

mod hosts;
mod shown;

use hosts::{Actor, App, Hosted, Kind, Message, Nobody, Noted, Said, Script, Word, live, local};
use shown::{DIFFERS, differs, parts, shown};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration as Wait;
use usher_aaa::store::{Op, Row, Store, UserRows};
use usher_access::{
    AaaConfig, AccessClient, Continuation, DiameterConfig, Event as AccessEvent, NasIdentity, Proof, Record,
    RecordKind, Reply, Request as Question,
};
use usher_core::{Duration, Instant, ListenerId, Machine, Seed, SocketId, WallTime};
use usher_crypto::certificate::CertificateMatch;
use usher_crypto::password::argon2_hash;
use usher_crypto::tls::{
    ClientConfig, ClientOptions, Credentials, KeyLog, Roots, ServerConfig, ServerOptions, VersionRange,
    WallClock,
};
use usher_daemon::config::load;
use usher_diameter::codes::application::{ACCOUNTING, EAP, NASREQ};
use usher_diameter::node;
use usher_diameter::peer::capabilities::Application;
use usher_eap::method::tls::{PeerMethodTls, PeerTls};
use usher_eap::method::{PeerOffer, md5};
use usher_eap::peer::{self, Peer};
use usher_live::{Carriage, Listener, SocketOptions, Sockets, TlsClient, TlsServer, bind_udp, listen};
use usher_pki::{Authority, InitOptions, KeyKind, Kind as Whom, Request};
use usher_radius::Secret;
use usher_radius::attribute::{Attributes, kind};
use usher_radius::client::{self, Client, Retransmission, ServerConfig as Upstream, Target};
use usher_radius::packet::Code;
use usher_radius::server::{self, Server};
use usher_runner::world::{Bound, Endpoint, HostAddress, Made};
use usher_sim::{Builder, IpVersion, LinkConfig};
use usher_wire_tests::Temporary;

const SECRET: &[u8] = b"the secret of both";
const HOME_SECRET: &[u8] = b"the secret with home servers";
/// Small enough that certificates are cut in pieces, both ways.
const FRAGMENT: usize = 512;
/// The last octets of the addresses, of the loopback network in either host.
const AAA: u8 = 1;
const SWITCH: u8 = 2;
const GATEWAY: u8 = 3;
const HOME: u8 = 7;

/// How a switch asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Udp,
    Radsec,
}

/// What the switch does, one after the other.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A login by EAP-MD5 with this password.
    Md5(By, &'static str),
    /// A login by EAP-TLS.
    Tls(By),
    /// A login by PAP with this name and password; a challenge is answered.
    Pap(By, &'static str, &'static str),
    /// A login by EAP-MD5 of somebody whom nobody knows.
    Stranger,
    /// A record of this user and Acct-Status-Type.
    Account(By, &'static str, u32),
}

const STEPS: [Step; 26] = [
    Step::Md5(By::Udp, "right"),
    Step::Account(By::Udp, "ann", 1),
    Step::Md5(By::Udp, "wrong"),
    Step::Tls(By::Udp),
    Step::Account(By::Udp, "ann", 3),
    Step::Pap(By::Udp, "ann", "right"),
    Step::Pap(By::Udp, "ann", "wrong"),
    Step::Stranger,
    Step::Account(By::Udp, "ann", 2),
    Step::Pap(By::Udp, "bob", "wrong"),
    Step::Pap(By::Udp, "bob", "left"),
    Step::Pap(By::Udp, "carl", "left"),
    // By RadSec.
    Step::Md5(By::Radsec, "right"),
    Step::Tls(By::Radsec),
    Step::Account(By::Radsec, "ann", 1),
    Step::Pap(By::Radsec, "bob", "wrong"),
    // To a home server by datagrams, where a login may take two rounds.
    Step::Pap(By::Udp, "cat@far.example", "right"),
    Step::Pap(By::Udp, "cat@far.example", "wrong"),
    Step::Pap(By::Udp, "dan@far.example", "right"),
    Step::Account(By::Udp, "cat@far.example", 1),
    // To a home server by RadSec.
    Step::Pap(By::Udp, "cat@safe.example", "right"),
    Step::Pap(By::Radsec, "cat@safe.example", "wrong"),
    Step::Pap(By::Radsec, "dan@safe.example", "right"),
    Step::Account(By::Radsec, "cat@safe.example", 2),
    // To nobody.
    Step::Pap(By::Udp, "cat@closed.example", "right"),
    Step::Pap(By::Radsec, "ann", "right"),
];

/// What the gateway does.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Md5(&'static str),
    Tls,
    Pap(&'static str, &'static str),
    Account(RecordKind),
}

const ASKS: [Ask; 8] = [
    Ask::Md5("right"),
    Ask::Account(RecordKind::Start),
    Ask::Md5("wrong"),
    Ask::Tls,
    Ask::Pap("ann", "right"),
    Ask::Pap("ann", "wrong"),
    Ask::Pap("eve", "right"),
    Ask::Account(RecordKind::Stop),
];

/// No answer is lost here, and none is waited for so long.
const NEVER_AGAIN: Retransmission = Retransmission::Fixed { interval: Duration::from_secs(100), count: 1 };

/// What stations prove themselves by.
#[derive(Clone)]
struct Station {
    tls: ClientConfig,
    wall: WallTime,
}

impl Station {
    fn offer(&self, password: Option<&str>) -> Box<dyn PeerOffer> {
        match password {
            Some(password) => Box::new(md5::Password::new(password.as_bytes())),
            None => {
                let tls = PeerTls::Real(self.tls.clone(), 0);
                Box::new(PeerMethodTls { tls, fragment: FRAGMENT })
            }
        }
    }

    /// The peer of a login, asked who it is, and its answer.
    fn peer(&self, now: Instant, name: &str, password: Option<&str>, n: u64) -> (Peer, Vec<u8>) {
        let config = peer::Config {
            identity: name.as_bytes().to_vec(),
            methods: Arc::from([self.offer(password)]),
            timeout: Duration::from_secs(60),
            wall: self.wall,
        };
        let mut peer = Peer::new(config, Seed::new(6).secure("peer", n), now);
        peer.handle(now, &[1, 1, 0, 5, 1]);
        let mut packet = Vec::new();
        assert!(peer.poll_transmit(&mut packet), "the station answers");
        (peer, packet)
    }
}

/// What an access server asks by RADIUS, with the stations behind it.
struct Switch {
    station: Station,
    next: usize,
    by: By,
    name: &'static str,
    peer: Option<Peer>,
}

impl Switch {
    fn new(ports: &Ports, station: Station, said: &Said) -> Actor<Self> {
        let udp = |port| Upstream::new(local(AAA, port), Secret::new(SECRET));
        let mut config = client::Config::single(udp(ports.auth));
        config.servers.extend([udp(ports.acct), Upstream::radsec(local(AAA, ports.radsec))]);
        config.retransmission = NEVER_AGAIN;
        let client = Client::new(config, Seed::new(5).secure("nas", 0)).unwrap();
        let script = Self { station, next: 0, by: By::Udp, name: "", peer: None };
        Actor { machine: Noted::new(client, "switch", Kind::Radsec, said), script }
    }

    /// What every request says.
    fn base(&self) -> Attributes {
        let mut a = Attributes::new();
        a.push_text(kind::USER_NAME, self.name).unwrap().push_text(kind::NAS_IDENTIFIER, "switch").unwrap();
        a.push_text(kind::CALLING_STATION_ID, "02-00-00-00-00-01").unwrap().push_u32(kind::NAS_PORT, 7);
        a
    }

    fn ask(&self, now: Instant, client: &mut Client, code: Code, attributes: Attributes) {
        let target = Target::Server(match (self.by, code) {
            (By::Radsec, _) => 2,
            (By::Udp, Code::ACCOUNTING_REQUEST) => 1,
            (By::Udp, _) => 0,
        });
        client.command(now, client::Command::Request { token: 1, target, code, attributes }).unwrap();
    }

    fn ask_eap(&self, now: Instant, client: &mut Client, packet: &[u8], state: Option<&[u8]>) {
        let mut a = self.base();
        if let Some(state) = state {
            a.push_bytes(kind::STATE, state).unwrap();
        }
        a.push_eap(packet);
        self.ask(now, client, Code::ACCESS_REQUEST, a);
    }
}

impl Script for Switch {
    type Machine = Client;

    fn begin(&mut self, now: Instant, client: &mut Client) {
        let Some(&step) = STEPS.get(self.next) else {
            self.next += 1;
            return;
        };
        self.next += 1;
        self.peer = None;
        (self.by, self.name) = match step {
            Step::Md5(by, _) | Step::Tls(by) => (by, "ann"),
            Step::Stranger => (By::Udp, "eve"),
            Step::Pap(by, name, _) | Step::Account(by, name, _) => (by, name),
        };
        let password = match step {
            Step::Md5(_, password) => Some(password),
            Step::Stranger => Some("right"),
            Step::Tls(_) => None,
            Step::Pap(_, _, password) => {
                let mut a = self.base();
                a.push_user_password(password.as_bytes()).unwrap();
                return self.ask(now, client, Code::ACCESS_REQUEST, a);
            }
            Step::Account(_, _, status) => {
                let mut a = self.base();
                a.push_u32(kind::ACCT_STATUS_TYPE, status).push_text(kind::ACCT_SESSION_ID, "5f2a").unwrap();
                a.push_u32(kind::ACCT_SESSION_TIME, 60 * (status - 1));
                return self.ask(now, client, Code::ACCOUNTING_REQUEST, a);
            }
        };
        let (peer, packet) = self.station.peer(now, self.name, password, self.next as u64);
        self.peer = Some(peer);
        self.ask_eap(now, client, &packet, None);
    }

    fn hear(&mut self, now: Instant, client: &mut Client, event: client::Event) {
        let client::Event::Response(response) = event else { panic!("{event:?}") };
        let (mut packet, state) = (Vec::new(), response.attributes.get(kind::STATE));
        if let Some(peer) = &mut self.peer
            && response.attributes.eap(&mut packet)
        {
            peer.handle(now, &packet);
        }
        match (response.code, &mut self.peer) {
            (Code::ACCESS_CHALLENGE, Some(peer)) => {
                assert!(peer.poll_transmit(&mut packet), "the station answers");
                self.ask_eap(now, client, &packet, state);
            }
            (Code::ACCESS_CHALLENGE, None) => {
                let mut a = self.base();
                a.push_user_password(b"and more").unwrap().push_bytes(kind::STATE, state.unwrap()).unwrap();
                self.ask(now, client, Code::ACCESS_REQUEST, a);
            }
            _ => self.begin(now, client),
        }
    }

    fn is_done(&self) -> bool {
        self.next > STEPS.len()
    }
}

/// What an access server asks by Diameter.
struct Gateway {
    station: Station,
    next: usize,
    peer: Option<Peer>,
}

const NAME: &str = "ann";

impl Gateway {
    fn new(ports: &Ports, station: Station, said: &Said) -> Actor<Self> {
        let applications = [Application::auth(EAP), Application::auth(NASREQ), Application::acct(ACCOUNTING)];
        let mut node = node::Config::new("gateway.example.net", "example.net", &applications)
            .connect_to("aaa.example.net", local(AAA, ports.diameter));
        node.peers[0].authentication.tls = true;
        // A busy machine may take longer for all than the watchdog waits.
        node.watchdog = None;
        node.local.addresses = vec![local(GATEWAY, 0).ip()];
        let config = AaaConfig::Diameter(Box::new(DiameterConfig::new(node, "example.net".to_owned())));
        let identity = NasIdentity::ethernet("gateway");
        let client = AccessClient::new(identity, config, Seed::new(8).secure("gateway", 0)).unwrap();
        let script = Self { station, next: 0, peer: None };
        Actor { machine: Noted::new(client, "gateway", Kind::Diameter, said), script }
    }

    fn step(&mut self, now: Instant, client: &mut AccessClient) {
        let token = self.next as u64;
        let Some(&ask) = ASKS.get(self.next) else {
            self.next += 1;
            return;
        };
        self.next += 1;
        self.peer = None;
        let password = match ask {
            Ask::Md5(password) => Some(password),
            Ask::Tls => None,
            Ask::Pap(name, password) => {
                let question = Question::new(name.as_bytes(), Proof::Pap(password.as_bytes()));
                return client.ask(now, token, &question).unwrap();
            }
            Ask::Account(kind) => {
                let number = u32::from(kind == RecordKind::Stop);
                let record = Record { name: NAME.as_bytes(), ..Record::new(kind, "5f2b", number) };
                return client.account(now, token, &record).unwrap();
            }
        };
        let (peer, packet) = self.station.peer(now, NAME, password, 100 + token);
        self.peer = Some(peer);
        client.ask(now, token, &Question::new(NAME.as_bytes(), Proof::Eap(&packet))).unwrap();
    }

    fn go_on(&mut self, now: Instant, client: &mut AccessClient, (token, reply): (u64, &Reply)) {
        let (mut packet, mut next) = (Vec::new(), Continuation::new());
        let peer = self.peer.as_mut().expect("EAP alone has rounds");
        assert!(reply.eap(&mut packet));
        peer.handle(now, &packet);
        assert!(peer.poll_transmit(&mut packet), "the station answers");
        reply.continuation(&mut next);
        let question = Question::new(NAME.as_bytes(), Proof::Eap(&packet));
        client.ask(now, token, &Question { continues: Some(&next), ..question }).unwrap();
    }
}

impl Script for Gateway {
    type Machine = AccessClient;

    fn begin(&mut self, _: Instant, _: &mut AccessClient) {}

    fn hear(&mut self, now: Instant, client: &mut AccessClient, event: AccessEvent) {
        match event {
            AccessEvent::Peer { up, .. } => {
                assert!(up, "the connection stays");
                self.step(now, client);
            }
            AccessEvent::Challenge { token, reply } => self.go_on(now, client, (token, &reply)),
            AccessEvent::Accept { .. } | AccessEvent::Reject { .. } | AccessEvent::Accounted { .. } => {
                self.step(now, client);
            }
            other => panic!("{other:?}"),
        }
    }

    fn is_done(&self) -> bool {
        self.next > ASKS.len()
    }
}

/// The home server of other realms, which knows everybody by one password.
struct Home;

impl Home {
    fn new(said: &Said) -> Actor<Self> {
        let any = local(0, 0).ip();
        let clients = [
            server::ClientConfig::new(any, 8, Secret::new(HOME_SECRET)),
            server::ClientConfig::radsec(any, 8, vec![CertificateMatch::Name("aaa.example.net".to_owned())]),
        ];
        let server =
            Server::new(server::Config::new(clients.into()), Seed::new(9).secure("home", 0)).unwrap();
        Actor { machine: Noted::new(server, "home", Kind::Radsec, said), script: Self }
    }
}

impl Script for Home {
    type Machine = Server;

    fn begin(&mut self, _: Instant, _: &mut Server) {}

    fn hear(&mut self, now: Instant, machine: &mut Server, event: server::Event) {
        let server::Event::Request(request) = event;
        let mut attributes = Attributes::new();
        let twice = request.attributes.get(kind::USER_NAME).is_some_and(|name| name.starts_with(b"dan"));
        let right = request.user_password().unwrap().is_some_and(|password| *password == *b"right");
        let again = request.attributes.get(kind::STATE);
        let code = match request.code {
            Code::ACCOUNTING_REQUEST => Code::ACCOUNTING_RESPONSE,
            _ if twice && again.is_none() => {
                attributes.push_bytes(kind::STATE, b"once").unwrap();
                attributes.push_text(kind::REPLY_MESSAGE, "And?").unwrap();
                Code::ACCESS_CHALLENGE
            }
            _ if right || again == Some(b"once") => {
                attributes.push_text(kind::REPLY_MESSAGE, "Welcome").unwrap();
                attributes.push_bytes(kind::CLASS, b"of home").unwrap();
                attributes.push_u32(kind::SESSION_TIMEOUT, 600);
                // What a home server may not say of another's network.
                attributes.push_text(kind::FILTER_ID, "all").unwrap();
                Code::ACCESS_ACCEPT
            }
            _ => Code::ACCESS_REJECT,
        };
        machine.command(now, server::Command::Respond { token: request.token, code, attributes }).unwrap();
    }

    fn is_done(&self) -> bool {
        false
    }
}

/// Certificates of an authority of the test's own. RSA signatures are all of one length.
struct Certificates {
    folder: Temporary,
    wall: WallTime,
}

impl Certificates {
    fn new() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let wall = WallTime::from_unix_secs(since.as_secs());
        let (folder, key) = (Temporary::new(), KeyKind::Rsa2048);
        let options = InitOptions { name: "Both".into(), key, days: 30, now: wall };
        let mut authority = Authority::init(&folder.path().join("pki"), &options).unwrap();
        for (name, kind, file) in [
            ("aaa.example.net", Whom::Server, "server"),
            ("home.example.net", Whom::Server, "home"),
            ("switch.example.net", Whom::Client, "switch"),
            ("gateway.example.net", Whom::Client, "gateway"),
            ("ann", Whom::Client, "ann"),
        ] {
            let request =
                Request { name: name.into(), kind, names: Vec::new(), key, days: 9, ocsp: None, crl: None };
            let issued = authority.issue(&request, wall).unwrap();
            for (from, end) in [(&issued.certificate, "pem"), (&issued.key, "key")] {
                let to = folder.path().join(format!("{file}.{end}"));
                std::fs::copy(from, &to).unwrap();
                std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600)).unwrap();
            }
        }
        std::fs::copy(folder.path().join("pki/ca.crt"), folder.path().join("ca.pem")).unwrap();
        Self { folder, wall }
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join(name)).unwrap()
    }

    fn credentials(&self, name: &str) -> Credentials {
        Credentials::from_pem(&self.read(&format!("{name}.pem")), &self.read(&format!("{name}.key"))).unwrap()
    }

    fn roots(&self) -> Roots {
        Roots::from_pem(&self.read("ca.pem")).unwrap()
    }

    fn client(&self, name: &str) -> ClientConfig {
        ClientConfig::new(ClientOptions {
            versions: VersionRange::default(),
            credentials: Some(self.credentials(name)),
            roots: self.roots(),
            server_name: None,
            resumption: None,
            clock: WallClock::at(self.wall),
            key_log: None,
        })
        .unwrap()
    }

    fn home(&self) -> ServerConfig {
        ServerConfig::new(ServerOptions {
            versions: VersionRange::default(),
            credentials: self.credentials("home"),
            client_roots: Some(self.roots()),
            resumption: None,
            clock: WallClock::at(self.wall),
            key_log: None,
        })
        .unwrap()
    }

    fn station(&self) -> Station {
        Station { tls: self.client("ann"), wall: self.wall }
    }
}

/// What is said by access servers and the home server: of RADIUS, of Diameter.
type Transcripts = [Vec<Message>; 2];

fn transcripts(said: [Said; 2]) -> Transcripts {
    said.map(|said| std::mem::take(&mut *said.lock().unwrap()))
}

fn simulated(certificates: &Certificates, ports: &Ports) -> Transcripts {
    let mut builder = Builder::<App>::new(IpVersion::V4, Seed::new(7));
    builder.epoch(certificates.wall);
    let [aaa, switch, gateway, home] = [AAA, SWITCH, GATEWAY, HOME].map(|n| {
        let host = builder.host(None).unwrap();
        builder.address(host, local(n, 0).ip()).unwrap();
        host
    });
    for other in [switch, gateway, home] {
        builder.link(aaa, other, &LinkConfig::default());
    }
    let addresses = Arc::new(builder.addresses().clone());
    let at = |host| HostAddress { host, addresses: addresses.clone() };

    // The very file that the daemon serves from.
    let loaded = load(&certificates.folder.path().join("aaa.toml")).unwrap();
    let users = [("bob".to_owned(), bob())];
    let (seed, wall, key_log) = (Seed::new(7), certificates.wall, &KeyLog::new());
    let made = Made { seed, wall, cpu: None, users: &users, key_log };
    let bound = Bound::new(&loaded, at(aaa), &made).unwrap();
    let app = builder.app(aaa, App::Aaa(Box::new(bound.role)), None);
    bound.udp.into_iter().for_each(|(port, socket)| builder.bind_udp(app, socket, port).unwrap());
    bound.tcp.into_iter().for_each(|port| builder.listen(app, port).unwrap());

    let said = [Said::default(), Said::default()];
    let mut endpoint = Endpoint::new(at(home));
    let sockets = [0, 1].map(|n| endpoint.socket(SocketId::own(n)));
    endpoint.accept_at(ports.home_tls, ListenerId::default(), Some(certificates.home()));
    let app = builder.app(home, App::Home(Box::new(Hosted { endpoint, actor: Home::new(&said[0]) })), None);
    for (socket, port) in sockets.into_iter().zip([ports.home, ports.home_acct]) {
        builder.bind_udp(app, socket, port).unwrap();
    }
    builder.listen(app, ports.home_tls).unwrap();

    let inside = |host, port, name| {
        let outgoing = BTreeMap::from([(local(AAA, port), certificates.client(name))]);
        Endpoint::new(at(host)).connecting(outgoing)
    };
    let endpoint = inside(switch, ports.radsec, "switch");
    let actor = Switch::new(ports, certificates.station(), &said[0]);
    builder.app(switch, App::Switch(Box::new(Hosted { endpoint, actor })), None);
    let endpoint = inside(gateway, ports.diameter, "gateway");
    let actor = Gateway::new(ports, certificates.station(), &said[1]);
    builder.app(gateway, App::Gateway(Box::new(Hosted { endpoint, actor })), None);
    let mut simulation = builder.build(Nobody, None);
    // Before the server's first watchdog.
    simulation.run_until(Instant::ZERO + Duration::from_secs(20));
    for app in simulation.apps() {
        match app {
            App::Switch(hosted) => {
                assert!(hosted.actor.script.is_done(), "step {}", hosted.actor.script.next)
            }
            App::Gateway(hosted) => {
                assert!(hosted.actor.script.is_done(), "step {}", hosted.actor.script.next)
            }
            App::Home(_) | App::Aaa(_) => {}
        }
    }
    transcripts(said)
}

/// Ports that nobody uses just now.
#[derive(Clone, Copy, Debug)]
struct Ports {
    auth: u16,
    acct: u16,
    radsec: u16,
    diameter: u16,
    home: u16,
    home_acct: u16,
    home_tls: u16,
}

impl Ports {
    fn free() -> Self {
        let udp = |host| UdpSocket::bind(local(host, 0)).unwrap().local_addr().unwrap().port();
        let tcp = |host| TcpListener::bind(local(host, 0)).unwrap().local_addr().unwrap().port();
        Self {
            auth: udp(AAA),
            acct: udp(AAA),
            radsec: tcp(AAA),
            diameter: tcp(AAA),
            home: udp(HOME),
            home_acct: udp(HOME),
            home_tls: tcp(HOME),
        }
    }
}

/// A user of the store, who has an argon2 hash, and an address of the pool.
fn bob() -> UserRows {
    let row =
        |attribute: &str, value: String| Row { attribute: attribute.to_owned(), op: Op::Replace, value };
    let password = row("Crypt-Password", argon2_hash(b"left", &[7; 16]));
    let check = vec![password, row("Pool-Name", "one".to_owned())];
    UserRows { check, ..UserRows::default() }
}

/// The one configuration of both, and where it listens.
fn configure(certificates: &Certificates) -> Ports {
    let folder = certificates.folder.path();
    let ports = Ports::free();
    let [secret, home_secret] = [SECRET, HOME_SECRET].map(String::from_utf8_lossy);
    let Ports { auth, acct, radsec, diameter, home, home_acct, home_tls } = ports;
    // Nobody waits for the answer to a question about its status.
    let patient = "response_window = \"600 s\"\nzombie_period = \"600 s\"\nstatus_check = false";
    let [aaa, far] = [AAA, HOME].map(|host| local(host, 0).ip());
    let config = format!(
        r#"
shards = 2
state_dir = "{state}"
reject_delay = "0 s"
[listen]
auth = ["{aaa}:{auth}"]
acct = ["{aaa}:{acct}"]
radsec = ["{aaa}:{radsec}"]
diameter_tls = ["{aaa}:{diameter}"]
[[client]]
name = "switch"
prefix = "0.0.0.0/0"
secret = "{secret}"
certificate = "switch.example.net"
[users]
store = "sqlite"
path = "users.db"
[[user]]
name = "ann"
password = "right"
[[pool]]
name = "one"
ranges = ["192.0.2.7-192.0.2.7"]
[accounting]
identity_key_file = "identity.key"
[methods]
order = ["eap-md5", "eap-tls", "pap"]
fragment_size = {FRAGMENT}
[tls]
certificate = "server.pem"
key = "server.key"
ca = "ca.pem"
[[home_server]]
name = "far"
address = "{far}:{home}"
acct_address = "{far}:{home_acct}"
secret = "{home_secret}"
{patient}
[[home_server]]
name = "safe"
address = "{far}:{home_tls}"
transport = "tls"
certificate = "home.example.net"
{patient}
[[realm]]
name = "far.example"
servers = ["far"]
[[realm]]
name = "safe.example"
servers = ["safe"]
[[realm]]
name = "closed.example"
refuse = true
[diameter]
identity = "aaa.example.net"
realm = "example.net"
watchdog = "600 s"
peer = [{{ identity = "gateway.example.net", transport = "tls" }}]
"#,
        state = folder.join("state").display()
    );
    for (name, text) in [("aaa.toml", &*config), ("identity.key", "0123456789abcdef0123456789abcdef\n")] {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    usher_store::Sqlite::open(folder.join("users.db")).unwrap().put_user("bob", &bob()).unwrap();
    ports
}

fn on_sockets(certificates: &Certificates, ports: &Ports) -> Transcripts {
    let folder = certificates.folder.path();
    let file = folder.join("aaa.toml");
    // It serves until this program ends.
    let served = std::thread::spawn(move || usher_daemon::serve(Some(&file), &mut |_| {}));
    let control = folder.join("state/control.sock");
    let begun = std::time::Instant::now();
    while std::os::unix::net::UnixStream::connect(&control).is_err() {
        assert!(!served.is_finished(), "{:?}", served.join());
        assert!(begun.elapsed() < Wait::from_secs(120), "the server does not begin");
        std::thread::sleep(Wait::from_millis(5));
    }

    let (said, options) = ([Said::default(), Said::default()], SocketOptions::default());
    let udp = |n, port| (SocketId::own(n), bind_udp(local(HOME, port), &options).unwrap());
    let listener = Listener {
        id: ListenerId::default(),
        socket: listen(local(HOME, ports.home_tls), &options).unwrap(),
        tls: Some(TlsServer::new(certificates.home())),
    };
    let sockets = Sockets {
        udp: vec![udp(0, ports.home), udp(1, ports.home_acct)],
        listeners: vec![listener],
        ..Sockets::default()
    };
    let (home, to_home) = live("home", Home::new(&said[0]), sockets);
    let inside = |name| {
        let tls = TlsClient::new(certificates.client(name));
        let outgoing = move |_: SocketAddr| Carriage::Tls(tls.clone());
        Sockets { outgoing: Some(Arc::new(outgoing)), ..Sockets::default() }
    };
    let actor = Switch::new(ports, certificates.station(), &said[0]);
    let (switch, _mailbox) = live("switch", actor, inside("switch"));
    drop(switch.join().expect("all steps are made").unwrap());
    let actor = Gateway::new(ports, certificates.station(), &said[1]);
    let (gateway, _mailbox) = live("gateway", actor, inside("gateway"));
    drop(gateway.join().expect("all is asked").unwrap());
    assert!(to_home.send(Word::End));
    drop(home.join().expect("it answers everybody").unwrap());
    transcripts(said)
}

#[test]
fn the_simulator_and_the_daemon_say_the_same() {
    let certificates = Certificates::new();
    let ports = configure(&certificates);
    let (simulated, live) = (simulated(&certificates, &ports), on_sockets(&certificates, &ports));
    let (mut seen, mut apart) = (vec![false; DIFFERS.len()], Vec::new());
    for (simulated, live) in simulated.iter().zip(&live) {
        for (n, (a, b)) in simulated.iter().zip(live).enumerate() {
            let ((one, ours), (other, theirs)) = (shown(a), shown(b));
            if one != other || ours.len() != theirs.len() {
                apart.push(format!("message {n}: simulated {one}, live {other}"));
            }
            for (ours, theirs) in ours.into_iter().zip(theirs).filter(|(ours, theirs)| ours != theirs) {
                apart.push(format!("message {n}, {one}: simulated {ours:?}, live {theirs:?}"));
            }
            let differ = parts(a).1.into_iter().zip(parts(b).1).filter(|(a, b)| a != b);
            differ.filter_map(|((number, _), _)| differs(a, number)).for_each(|n| seen[n] = true);
        }
    }
    assert!(apart.is_empty(), "{}", apart.join("\n"));
    assert_eq!(simulated.each_ref().map(Vec::len), live.each_ref().map(Vec::len));
    let [radius, diameter] = &live;
    // What was to happen did: the last word of each step.
    let heard = |said: &'static str, all: &[Message]| -> Vec<Message> {
        all.iter().filter(|m| m.who == said && !m.sent).cloned().collect()
    };
    let codes = heard("switch", radius).into_iter().map(|m| Code(m.bytes[0]));
    let last: Vec<Code> = codes.filter(|code| *code != Code::ACCESS_CHALLENGE).collect();
    use Code as C;
    let (yes, no, kept) = (C::ACCESS_ACCEPT, C::ACCESS_REJECT, C::ACCOUNTING_RESPONSE);
    assert_eq!(last[..12], [yes, kept, no, yes, kept, yes, no, no, kept, no, yes, no]);
    assert_eq!(last[12..16], [yes, yes, kept, no], "by RadSec");
    assert_eq!(last[16..20], [yes, no, yes, kept], "to a home server");
    assert_eq!(last[20..24], [yes, no, yes, kept], "to a home server by RadSec");
    assert_eq!(last[24..], [no, yes]);
    assert!(radius.iter().filter(|m| m.bytes.len() > FRAGMENT).count() > 4, "certificates went both ways");
    for (kind, requests) in [(Kind::Udp, 5), (Kind::Radsec, 5)] {
        let all = heard("home", radius).into_iter().filter(|m| m.kind == kind).count();
        assert_eq!(all, requests, "{kind:?}");
    }
    let results = heard("gateway", diameter).into_iter().filter_map(|m| {
        let (_, parts) = parts(&m);
        let (_, result) = parts.into_iter().find(|(number, _)| *number == (268, 0))?;
        Some(u32::from_be_bytes(result.try_into().unwrap()))
    });
    let results: Vec<u32> = results.filter(|result| *result != 1001).collect();
    assert_eq!(results, [2001, 2001, 2001, 4001, 2001, 2001, 4001, 4001, 2001]);
    // And what is said to differ does, or it would be compared: the same octets come from neither twice.
    let alike: Vec<_> = DIFFERS.iter().zip(seen).filter(|(_, seen)| !seen).collect();
    let alike: Vec<_> = alike.iter().map(|(d, _)| (d.who, d.number, d.why)).collect();
    assert!(alike.is_empty(), "these are the same in both: {alike:?}");
}

#[test]
fn the_comparison_sees_a_difference() {
    let packet = |name: &str| {
        let mut attributes = Attributes::new();
        attributes.push_text(kind::USER_NAME, name).unwrap().push_bytes(kind::STATE, &[7; 8]).unwrap();
        let packet = usher_radius::packet::OwnedPacket {
            code: Code::ACCESS_REQUEST,
            identifier: 1,
            authenticator: [9; 16],
            attributes,
        };
        let mut bytes = Vec::new();
        packet.emit(&mut bytes).unwrap();
        Message { who: "switch", sent: true, kind: Kind::Udp, bytes }
    };
    let mut other = packet("ann");
    (other.bytes[4], other.bytes[30]) = (0, 0);
    assert_eq!(shown(&packet("ann")), shown(&other), "authenticator and State are drawn");
    assert_ne!(shown(&packet("ann")), shown(&packet("ane")));
    assert_ne!(shown(&packet("ann")), shown(&packet("anna")));
}

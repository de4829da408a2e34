//! One AAA service in two hosts: the same access server makes the same logins and reports the same sessions to it in
//! the simulator and, as `usher aaa serve` runs it, on the sockets of this machine; what is said is the same.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration as Wait;
use usher_aaa::service::Service;
use usher_aaa::store::{Memory, Op, Row, Store, UserRows};
use usher_aaa::{AaaServer, IdentityKey};
use usher_aaa_config::{With, behind, build, tls};
use usher_core::bench::Tap;
use usher_core::{Input, Instant, Machine, Path, Seed, SocketId, Transmit, WallTime};
use usher_crypto::password::argon2_hash;
use usher_crypto::tls::{ClientConfig, ClientOptions, Credentials, Roots, VersionRange, WallClock};
use usher_daemon::config::load;
use usher_eap::method::tls::{PeerMethodTls, PeerTls};
use usher_eap::method::{PeerOffer, md5};
use usher_eap::peer::{self, Peer};
use usher_pki::{Authority, InitOptions, KeyKind, Kind, Request};
use usher_radius::Secret;
use usher_radius::attribute::{Attributes, kind};
use usher_radius::client::{self, Client, ServerConfig as Home, Target};
use usher_radius::packet::{Code, Packet};
use usher_sim::{Application, Builder, Context, Delivery, HostId, IpVersion, LinkConfig, Observer, Payload};
use usher_wire_tests::Temporary;

const SECRET: &[u8] = b"the secret of both";
/// Small enough that certificates are cut in pieces, both ways.
const FRAGMENT: usize = 512;

/// What the access server does, one after the other.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A login by EAP-MD5 with this password.
    Md5(&'static str),
    /// A login by EAP-TLS.
    Tls,
    /// A login by PAP with this name and password.
    Pap(&'static str, &'static str),
    /// A login by EAP-MD5 of somebody whom nobody knows.
    Stranger,
    /// A record of this Acct-Status-Type.
    Account(u32),
}

const STEPS: [Step; 12] = [
    Step::Md5("right"),
    Step::Account(1),
    Step::Md5("wrong"),
    Step::Tls,
    Step::Account(3),
    Step::Pap("ann", "right"),
    Step::Pap("ann", "wrong"),
    Step::Stranger,
    Step::Account(2),
    Step::Pap("bob", "wrong"),
    Step::Pap("bob", "left"),
    Step::Pap("carl", "left"),
];

/// Datagrams as the access server saw them: whether it sent them, and what they were.
type Transcript = Vec<(bool, Vec<u8>)>;

/// The access server with the stations behind it: a machine, whatever hosts it.
struct Nas {
    client: Tap<Client>,
    tls: ClientConfig,
    wall: WallTime,
    next: usize,
    name: &'static str,
    peer: Option<Peer>,
    said: Transcript,
}

impl Nas {
    fn new(server: [SocketAddr; 2], tls: ClientConfig, wall: WallTime) -> Self {
        let home = |address| Home::new(address, Secret::new(SECRET));
        let mut config = client::Config::single(home(server[0]));
        config.servers.push(home(server[1]));
        let client = Tap::new(Client::new(config, Seed::new(5).secure("nas", 0)).unwrap());
        Self { client, tls, wall, next: 0, name: "", peer: None, said: Vec::new() }
    }

    fn is_done(&self) -> bool {
        self.next > STEPS.len()
    }

    /// Begins with the next step.
    fn begin(&mut self, now: Instant) {
        let step = STEPS.get(self.next).copied();
        self.next += 1;
        self.peer = None;
        match step {
            None => {}
            Some(Step::Md5(password)) => {
                self.eap(now, "ann", Box::new(md5::Password::new(password.as_bytes())));
            }
            Some(Step::Stranger) => self.eap(now, "eve", Box::new(md5::Password::new(b"right"))),
            Some(Step::Tls) => {
                let tls = PeerTls::Real(self.tls.clone(), 0);
                self.eap(now, "ann", Box::new(PeerMethodTls { tls, fragment: FRAGMENT }));
            }
            Some(Step::Pap(name, password)) => {
                let mut a = self.base(name);
                a.push_user_password(password.as_bytes()).unwrap();
                self.ask(now, Code::ACCESS_REQUEST, a);
            }
            Some(Step::Account(status)) => {
                let mut a = self.base("ann");
                a.push_u32(kind::ACCT_STATUS_TYPE, status).push_text(kind::ACCT_SESSION_ID, "5f2a").unwrap();
                a.push_u32(kind::ACCT_SESSION_TIME, 60 * (status - 1));
                self.ask(now, Code::ACCOUNTING_REQUEST, a);
            }
        }
    }

    /// What every request says.
    fn base(&mut self, name: &'static str) -> Attributes {
        self.name = name;
        let mut a = Attributes::new();
        a.push_text(kind::USER_NAME, name).unwrap().push_text(kind::NAS_IDENTIFIER, "switch").unwrap();
        a.push_text(kind::CALLING_STATION_ID, "02-00-00-00-00-01").unwrap().push_u32(kind::NAS_PORT, 7);
        a
    }

    fn ask(&mut self, now: Instant, code: Code, attributes: Attributes) {
        let target = Target::Server(u16::from(code == Code::ACCOUNTING_REQUEST));
        let request = client::Command::Request { token: 1, target, code, attributes };
        self.client.command(now, request).unwrap();
    }

    fn eap(&mut self, now: Instant, name: &'static str, offer: Box<dyn PeerOffer>) {
        let config = peer::Config {
            identity: name.as_bytes().to_vec(),
            methods: Arc::from([offer]),
            timeout: usher_core::Duration::from_secs(60),
            wall: self.wall,
        };
        let mut peer = Peer::new(config, Seed::new(6).secure("peer", self.next as u64), now);
        peer.handle(now, &[1, 1, 0, 5, 1]);
        self.peer = Some(peer);
        self.name = name;
        self.answer(now, None);
    }

    /// Sends what the station says.
    fn answer(&mut self, now: Instant, state: Option<&[u8]>) {
        let mut a = self.base(self.name);
        let mut packet = Vec::new();
        assert!(self.peer.as_mut().unwrap().poll_transmit(&mut packet), "the station answers");
        if let Some(state) = state {
            a.push_bytes(kind::STATE, state).unwrap();
        }
        a.push_eap(&packet);
        self.ask(now, Code::ACCESS_REQUEST, a);
    }

    fn receive(&mut self, now: Instant, path: Path, data: &[u8]) {
        self.said.push((false, data.to_vec()));
        self.client.handle(now, Input::Datagram { path, data });
        while let Some(event) = self.client.poll_event() {
            let client::Event::Response(response) = event else { panic!("{event:?}") };
            let mut packet = Vec::new();
            if let Some(peer) = &mut self.peer
                && response.attributes.eap(&mut packet)
            {
                peer.handle(now, &packet);
            }
            match response.code {
                Code::ACCESS_CHALLENGE => self.answer(now, response.attributes.get(kind::STATE)),
                _ => self.begin(now),
            }
        }
    }

    fn transmit(&mut self, buf: &mut Vec<u8>) -> Option<Path> {
        match self.client.poll_transmit(buf)? {
            Transmit::Datagram { path } => {
                self.said.push((true, buf.clone()));
                Some(path)
            }
            other => panic!("{other:?}"),
        }
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
        for (name, kind, file) in [("aaa.example.net", Kind::Server, "server"), ("ann", Kind::Client, "ann")]
        {
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

    fn client(&self) -> ClientConfig {
        ClientConfig::new(ClientOptions {
            versions: VersionRange::default(),
            credentials: Some(self.credentials("ann")),
            roots: Roots::from_pem(&self.read("ca.pem")).unwrap(),
            server_name: None,
            resumption: None,
            clock: WallClock::at(self.wall),
            key_log: None,
        })
        .unwrap()
    }
}

/// What runs on the simulated hosts.
enum App {
    Nas(Box<Nas>),
    Aaa(Box<(Tap<AaaServer>, Service<Memory>, WallTime)>),
}

fn address(host: HostId, port: u16) -> SocketAddr {
    SocketAddr::new(host.ip(IpVersion::V4), port)
}

impl Application for App {
    type Report = Transcript;

    fn handle(&mut self, ctx: &mut Context<'_, Transcript>, delivery: Delivery) {
        let (now, mut buf) = (ctx.now(), Vec::new());
        let datagram = match delivery {
            Delivery::Datagram { socket, from, from_port, at, payload } => {
                let (local, remote) = (address(at, 0), address(from, from_port));
                Some((Path { socket: SocketId::own(socket), local, remote }, payload))
            }
            _ => None,
        };
        let send = |ctx: &mut Context<'_, Transcript>, path: Path, data: &[u8]| {
            let to = HostId::of_ip(path.remote.ip()).unwrap();
            ctx.send_datagram(path.socket.n, to, path.remote.port(), Payload::copied(data));
        };
        match self {
            Self::Nas(nas) => {
                match datagram {
                    Some((path, payload)) => nas.receive(now, path, payload.as_slice()),
                    None => nas.begin(now),
                }
                while let Some(path) = nas.transmit(&mut buf) {
                    send(ctx, path, &buf);
                }
                if nas.is_done() {
                    ctx.report(std::mem::take(&mut nas.said));
                }
            }
            Self::Aaa(host) => {
                let (server, service, epoch) = &mut **host;
                let wall = *epoch + now.since(Instant::ZERO);
                if let Some((path, payload)) = datagram {
                    let path = Path { socket: usher_aaa::radius_socket(path.socket.n), ..path };
                    server.handle(now, Input::Datagram { path, data: payload.as_slice() });
                }
                while let Some(job) = server.poll_job() {
                    let answer = service.answer(now, wall, job);
                    server.command(now, answer).unwrap();
                }
                while let Some(event) = server.poll_event() {
                    for command in service.heed(now, wall, &event) {
                        server.command(now, command).unwrap();
                    }
                }
                while let Some(transmit) = server.poll_transmit(&mut buf) {
                    let Transmit::Datagram { path } = transmit else { panic!("{transmit:?}") };
                    send(ctx, path, &buf);
                }
            }
        }
    }
}

#[derive(Default)]
struct Log(Option<Transcript>);

impl Observer<Transcript> for Log {
    fn report(&mut self, _: Instant, _: u32, said: Transcript) {
        self.0 = Some(said);
    }
}

fn simulated(certificates: &Certificates) -> Transcript {
    let seed = Seed::new(7);
    let mut builder = Builder::<App>::new(IpVersion::V4, seed);
    let [nas, aaa] = [(); 2].map(|()| builder.host(None).unwrap());
    builder.link(nas, aaa, &LinkConfig::default());
    // The very file that the daemon serves from.
    let loaded = load(&certificates.folder.path().join("aaa.toml")).unwrap();
    let tls = tls::make(&loaded, &WallClock::at(certificates.wall), None).unwrap().unwrap();
    let with = With {
        generated: None,
        rows: &[],
        identity_key: &IdentityKey::new(loaded.identity_key.as_ref().unwrap().0.as_bytes()),
        tls: Some(&tls),
        epoch: certificates.wall,
        shards: 1,
    };
    let mut built = build(&loaded, with, &mut seed.secure("users", 0)).unwrap();
    built.config.max_steps_waiting = 0;
    let mut store = Memory::new();
    put_users(&mut store);
    let service = Service::new(behind(&loaded, &built, store, Some(tls), 0), &mut seed.secure("known", 0));
    let server = Tap::new(AaaServer::new(built.config, seed.secure("aaa", 0)).unwrap());
    let host = (server, service, certificates.wall);
    let app = builder.app(aaa, App::Aaa(Box::new(host)), None);
    builder.bind_udp(app, 0, 1812).unwrap();
    builder.bind_udp(app, 1, 1813).unwrap();
    let servers = [address(aaa, 1812), address(aaa, 1813)];
    let client = Nas::new(servers, certificates.client(), certificates.wall);
    builder.app(nas, App::Nas(Box::new(client)), None);
    let mut simulation = builder.build(Log::default(), None);
    simulation.run_until(Instant::ZERO + usher_core::Duration::from_secs(60));
    simulation.observer().0.clone().expect("the access server has done all")
}

/// A port that nobody uses just now.
fn port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Users of the store: who has an argon2 hash, and an address of the pool.
fn put_users(store: &mut dyn Store) {
    let row =
        |attribute: &str, value: String| Row { attribute: attribute.to_owned(), op: Op::Replace, value };
    let password = row("Crypt-Password", argon2_hash(b"left", &[7; 16]));
    let check = vec![password, row("Pool-Name", "one".to_owned())];
    store.put_user("bob", &UserRows { check, ..UserRows::default() }).unwrap();
}

/// The one configuration of both, and where it listens.
fn configure(certificates: &Certificates) -> [u16; 2] {
    let folder = certificates.folder.path();
    let [auth, acct] = [port(), port()];
    let secret = String::from_utf8_lossy(SECRET);
    let config = format!(
        "shards = 2\nstate_dir = \"{state}\"\nreject_delay = \"0 s\"\n\
         [listen]\nauth = [\"127.0.0.1:{auth}\"]\nacct = [\"127.0.0.1:{acct}\"]\n\
         [[client]]\nname = \"switch\"\nprefix = \"0.0.0.0/0\"\nsecret = \"{secret}\"\n\
         [users]\nstore = \"sqlite\"\npath = \"users.db\"\n[[user]]\nname = \"ann\"\npassword = \"right\"\n\
         [[pool]]\nname = \"one\"\nranges = [\"192.0.2.7-192.0.2.7\"]\n\
         [accounting]\nidentity_key_file = \"identity.key\"\n\
         [methods]\norder = [\"eap-md5\", \"eap-tls\", \"pap\"]\nfragment_size = {FRAGMENT}\n\
         [tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nca = \"ca.pem\"\n",
        state = folder.join("state").display()
    );
    for (name, text) in [("aaa.toml", &*config), ("identity.key", "0123456789abcdef0123456789abcdef\n")] {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    put_users(&mut usher_store::Sqlite::open(folder.join("users.db")).unwrap());
    [auth, acct]
}

fn live(certificates: &Certificates, [auth, acct]: [u16; 2]) -> Transcript {
    let folder = certificates.folder.path();
    let file = folder.join("aaa.toml");
    // It serves until this program ends.
    let served = std::thread::spawn(move || usher_daemon::serve(Some(&file), &mut |_| {}));
    let control = folder.join("state/control.sock");
    while std::os::unix::net::UnixStream::connect(&control).is_err() {
        assert!(!served.is_finished(), "{:?}", served.join());
        std::thread::sleep(Wait::from_millis(5));
    }

    let ends = [auth, acct].map(|port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    let mut nas = Nas::new(ends, certificates.client(), certificates.wall);
    let mut sockets: BTreeMap<SocketId, UdpSocket> = BTreeMap::new();
    let clock = usher_live::Clock::start();
    let mut buf = Vec::new();
    nas.begin(clock.now());
    while !nas.is_done() {
        let path = nas.transmit(&mut buf).expect("there is something to be asked");
        let socket = sockets.entry(path.socket).or_insert_with(|| UdpSocket::bind("127.0.0.1:0").unwrap());
        socket.set_read_timeout(Some(Wait::from_secs(20))).unwrap();
        socket.send_to(&buf, path.remote).unwrap();
        let mut answer = [0; 4096];
        let (n, remote) = socket.recv_from(&mut answer).expect("the server answers");
        nas.receive(clock.now(), Path { remote, ..path }, &answer[..n]);
    }
    nas.said
}

/// An attribute of a message: its type, its length, and its value where that is not drawn.
type Shown = (u8, usize, Option<Vec<u8>>);

/// What is the same wherever the service runs.
fn shown(datagram: &[u8]) -> (Code, u8, usize, Vec<Shown>) {
    let packet = Packet::parse(datagram).unwrap();
    let value = |kind: u8, value: &[u8]| match kind {
        // Proofs, keys and names of a conversation; what EAP holds is looked at below.
        kind::STATE | kind::MESSAGE_AUTHENTICATOR | kind::EAP_MESSAGE | kind::VENDOR_SPECIFIC => None,
        _ => Some(value.to_vec()),
    };
    let mut attributes: Vec<Shown> =
        packet.attributes().map(|a| (a.kind, a.value.len(), value(a.kind, a.value))).collect();
    let mut eap = Vec::new();
    if Attributes::from_wire(packet.attribute_bytes()).unwrap().eap(&mut eap) {
        // Code, identifier, length and type are not drawn; with EAP-TLS neither are the flags, and an identity is told.
        let plain = match eap.get(4) {
            Some(1) => eap.len(),
            Some(4 | 13) => 6,
            _ => eap.len(),
        };
        attributes.push((0, eap.len(), Some(eap[..plain].to_vec())));
    }
    (packet.code(), packet.identifier(), datagram.len(), attributes)
}

#[test]
fn the_simulator_and_the_daemon_say_the_same() {
    let certificates = Certificates::new();
    let ports = configure(&certificates);
    let (simulated, live) = (simulated(&certificates), live(&certificates, ports));
    for (n, (a, b)) in simulated.iter().zip(&live).enumerate() {
        assert_eq!((a.0, shown(&a.1)), (b.0, shown(&b.1)), "message {n}");
    }
    assert_eq!(simulated.len(), live.len());
    // What was to happen did: the last word of each step.
    let last = |said: &Transcript| {
        let codes = said.iter().filter(|(sent, _)| !sent).map(|(_, data)| Code(data[0]));
        codes.filter(|code| *code != Code::ACCESS_CHALLENGE).collect::<Vec<_>>()
    };
    use Code as C;
    let (yes, no, kept) = (C::ACCESS_ACCEPT, C::ACCESS_REJECT, C::ACCOUNTING_RESPONSE);
    assert_eq!(last(&live), [yes, kept, no, yes, kept, yes, no, no, kept, no, yes, no]);
    assert!(live.iter().filter(|(_, data)| data.len() > FRAGMENT).count() > 2, "certificates went both ways");
    // And what is drawn is drawn anew: the same octets come from neither twice.
    let differ = simulated.iter().zip(&live).filter(|(a, b)| !a.0 && a.1 != b.1).count();
    assert!(differ >= 10, "{differ}");
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
        let mut out = Vec::new();
        packet.emit(&mut out).unwrap();
        out
    };
    let mut other = packet("ann");
    (other[4], other[30]) = (0, 0);
    assert_eq!(shown(&packet("ann")), shown(&other), "authenticator and State are drawn");
    assert_ne!(shown(&packet("ann")), shown(&packet("ane")));
    assert_ne!(shown(&packet("ann")), shown(&packet("anna")));
}

//! One AAA service in two hosts: the simulator, as in a study, and this machine's sockets, as in `usher aaa serve`.
//! Both use the same file, and the same access servers make the same logins and report the same sessions. The
//! messages to access servers and home servers must be the same in both.

mod hosts;
mod shown;

use hosts::{
    HostScript, LiveMessage, MessageKind, MessageLog, NullObserver, ObservedMessage, RecordingMachine,
    ScriptedHost, SimulatedApp, SimulatedHost, loopback_address, spawn_live,
};
use shown::{DIFFERS, comparable_parts, difference_index, message_parts};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration as Wait;
use usher_aaa::store::{AttributeRow, RowOperator, Store, UserRows};
use usher_aaa_daemon::config::load_config;
use usher_access::{
    AaaConfig, AccessClient, AccessClientEvent as AccessEvent, AccessReply, AccessRequest, AccountingRecord,
    AccountingRecordKind, DiameterConfig, LoginRoundState, NasIdentity, UserCredentials,
};
use usher_core::{Duration, Instant, ListenerId, Machine, Seed, SocketId, WallTime};
use usher_crypto::certificate::PeerCertificateCondition;
use usher_crypto::password::argon2_hash;
use usher_crypto::tls::{
    ClientConfig, KeyLog, ServerConfig, SharedWallClock, TlsClientOptions, TlsCredentials, TlsServerOptions,
    TlsVersionRange, TrustRoots,
};
use usher_diameter::codes::application::{ACCOUNTING, EAP, NASREQ};
use usher_diameter::node;
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_eap::method::tls::{EapTlsPeerFactory, PeerTlsBackend};
use usher_eap::method::{PeerMethodFactory, md5};
use usher_eap::peer::{self, EapPeer};
use usher_live::{
    DriverSockets, DriverTcpListener, OutgoingConnectionSecurity, SocketOptions, TlsClient, TlsServer,
    bind_udp, listen_tcp,
};
use usher_pki::{AuthorityInitOptions, CertificateAuthority, CertificateKind, CertificateRequest, KeyKind};
use usher_radius::SharedSecret;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::client::{
    self, RadiusClient, RequestTarget, RetransmissionPolicy, ServerConfig as RadiusServerEntry,
};
use usher_radius::packet::PacketCode;
use usher_radius::server::{self, RadiusServer};
use usher_runner::world::{AaaServiceInputs, HostAddress, MachineSockets, SimulatedAaaService};
use usher_sim::{IpVersion, LinkConfig, SimulationBuilder};
use usher_wire_tests::TempDir;

const SECRET: &[u8] = b"the secret of both";
const HOME_SECRET: &[u8] = b"the secret with home servers";
/// Small enough to fragment certificates, in both directions.
const FRAGMENT: usize = 512;
/// The last octets of the loopback addresses in either host.
const AAA: u8 = 1;
const SWITCH: u8 = 2;
const GATEWAY: u8 = 3;
const HOME: u8 = 7;

/// The transport of a switch's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RadiusTransport {
    Udp,
    Radsec,
}

/// A step of the switch.
#[derive(Clone, Copy, Debug)]
enum SwitchStep {
    /// A login by EAP-MD5 with this password.
    Md5(RadiusTransport, &'static str),
    /// A login by EAP-TLS.
    Tls(RadiusTransport),
    /// A login by PAP with this name and password; a challenge is answered.
    Pap(RadiusTransport, &'static str, &'static str),
    /// A login by EAP-MD5 of an unknown user.
    Stranger,
    /// An accounting record of this user with this Acct-Status-Type.
    Account(RadiusTransport, &'static str, u32),
}

const STEPS: [SwitchStep; 26] = [
    SwitchStep::Md5(RadiusTransport::Udp, "right"),
    SwitchStep::Account(RadiusTransport::Udp, "ann", 1),
    SwitchStep::Md5(RadiusTransport::Udp, "wrong"),
    SwitchStep::Tls(RadiusTransport::Udp),
    SwitchStep::Account(RadiusTransport::Udp, "ann", 3),
    SwitchStep::Pap(RadiusTransport::Udp, "ann", "right"),
    SwitchStep::Pap(RadiusTransport::Udp, "ann", "wrong"),
    SwitchStep::Stranger,
    SwitchStep::Account(RadiusTransport::Udp, "ann", 2),
    SwitchStep::Pap(RadiusTransport::Udp, "bob", "wrong"),
    SwitchStep::Pap(RadiusTransport::Udp, "bob", "left"),
    SwitchStep::Pap(RadiusTransport::Udp, "carl", "left"),
    // By RadSec.
    SwitchStep::Md5(RadiusTransport::Radsec, "right"),
    SwitchStep::Tls(RadiusTransport::Radsec),
    SwitchStep::Account(RadiusTransport::Radsec, "ann", 1),
    SwitchStep::Pap(RadiusTransport::Radsec, "bob", "wrong"),
    // To a home server by UDP, where a login may take two rounds.
    SwitchStep::Pap(RadiusTransport::Udp, "cat@far.example", "right"),
    SwitchStep::Pap(RadiusTransport::Udp, "cat@far.example", "wrong"),
    SwitchStep::Pap(RadiusTransport::Udp, "dan@far.example", "right"),
    SwitchStep::Account(RadiusTransport::Udp, "cat@far.example", 1),
    // To a home server by RadSec.
    SwitchStep::Pap(RadiusTransport::Udp, "cat@safe.example", "right"),
    SwitchStep::Pap(RadiusTransport::Radsec, "cat@safe.example", "wrong"),
    SwitchStep::Pap(RadiusTransport::Radsec, "dan@safe.example", "right"),
    SwitchStep::Account(RadiusTransport::Radsec, "cat@safe.example", 2),
    // To a realm without a home server.
    SwitchStep::Pap(RadiusTransport::Udp, "cat@closed.example", "right"),
    SwitchStep::Pap(RadiusTransport::Radsec, "ann", "right"),
];

/// A step of the gateway.
#[derive(Clone, Copy, Debug)]
enum GatewayStep {
    Md5(&'static str),
    Tls,
    Pap(&'static str, &'static str),
    Account(AccountingRecordKind),
}

const GATEWAY_STEPS: [GatewayStep; 8] = [
    GatewayStep::Md5("right"),
    GatewayStep::Account(AccountingRecordKind::Start),
    GatewayStep::Md5("wrong"),
    GatewayStep::Tls,
    GatewayStep::Pap("ann", "right"),
    GatewayStep::Pap("ann", "wrong"),
    GatewayStep::Pap("eve", "right"),
    GatewayStep::Account(AccountingRecordKind::Stop),
];

/// No reply is lost here, so no retransmission is due.
const NO_RETRANSMISSION: RetransmissionPolicy =
    RetransmissionPolicy::Fixed { interval: Duration::from_secs(100), count: 1 };

/// The stations' credentials.
#[derive(Clone)]
struct StationConfig {
    tls: ClientConfig,
    wall: WallTime,
}

impl StationConfig {
    fn peer_offer(&self, password: Option<&str>) -> Box<dyn PeerMethodFactory> {
        match password {
            Some(password) => Box::new(md5::EapMd5Password::new(password.as_bytes())),
            None => {
                let tls = PeerTlsBackend::Real(self.tls.clone(), 0);
                Box::new(EapTlsPeerFactory { tls, fragment: FRAGMENT })
            }
        }
    }

    /// Starts the peer of a login. Returns it with its identity response.
    fn start_peer(&self, now: Instant, name: &str, password: Option<&str>, n: u64) -> (EapPeer, Vec<u8>) {
        let config = peer::EapPeerConfig {
            identity: name.as_bytes().to_vec(),
            methods: Arc::from([self.peer_offer(password)]),
            timeout: Duration::from_secs(60),
            wall: self.wall,
        };
        let mut peer = EapPeer::new(config, Seed::new(6).derive_secure_rng("peer", n), now);
        peer.handle_packet(now, &[1, 1, 0, 5, 1]);
        let mut packet = Vec::new();
        assert!(peer.poll_transmit(&mut packet), "the station answers");
        (peer, packet)
    }
}

/// The RADIUS requests of an access server, with the stations behind it.
struct SwitchScript {
    station: StationConfig,
    next: usize,
    transport: RadiusTransport,
    name: &'static str,
    peer: Option<EapPeer>,
}

impl SwitchScript {
    fn new(ports: &FreePorts, station: StationConfig, said: &MessageLog) -> ScriptedHost<Self> {
        let udp = |port| RadiusServerEntry::new(loopback_address(AAA, port), SharedSecret::new(SECRET));
        let mut config = client::RadiusClientConfig::for_server(udp(ports.auth));
        config
            .servers
            .extend([udp(ports.acct), RadiusServerEntry::for_radsec(loopback_address(AAA, ports.radsec))]);
        config.retransmission = NO_RETRANSMISSION;
        let client = RadiusClient::new(config, Seed::new(5).derive_secure_rng("nas", 0)).unwrap();
        let script = Self { station, next: 0, transport: RadiusTransport::Udp, name: "", peer: None };
        ScriptedHost { machine: RecordingMachine::new(client, "switch", MessageKind::Radsec, said), script }
    }

    /// Returns the attributes of every request.
    fn base_attributes(&self) -> AttributeList {
        let mut a = AttributeList::new();
        a.push_text(kind::USER_NAME, self.name).unwrap().push_text(kind::NAS_IDENTIFIER, "switch").unwrap();
        a.push_text(kind::CALLING_STATION_ID, "02-00-00-00-00-01").unwrap().push_u32(kind::NAS_PORT, 7);
        a
    }

    fn send_request(
        &self,
        now: Instant,
        client: &mut RadiusClient,
        code: PacketCode,
        attributes: AttributeList,
    ) {
        let target = RequestTarget::Server(match (self.transport, code) {
            (RadiusTransport::Radsec, _) => 2,
            (RadiusTransport::Udp, PacketCode::ACCOUNTING_REQUEST) => 1,
            (RadiusTransport::Udp, _) => 0,
        });
        client
            .handle_command(now, client::RadiusClientCommand::Request { token: 1, target, code, attributes })
            .unwrap();
    }

    fn send_eap(&self, now: Instant, client: &mut RadiusClient, packet: &[u8], state: Option<&[u8]>) {
        let mut a = self.base_attributes();
        if let Some(state) = state {
            a.push_bytes(kind::STATE, state).unwrap();
        }
        a.push_eap(packet);
        self.send_request(now, client, PacketCode::ACCESS_REQUEST, a);
    }
}

impl HostScript for SwitchScript {
    type Machine = RadiusClient;

    fn start(&mut self, now: Instant, client: &mut RadiusClient) {
        let Some(&step) = STEPS.get(self.next) else {
            self.next += 1;
            return;
        };
        self.next += 1;
        self.peer = None;
        (self.transport, self.name) = match step {
            SwitchStep::Md5(by, _) | SwitchStep::Tls(by) => (by, "ann"),
            SwitchStep::Stranger => (RadiusTransport::Udp, "eve"),
            SwitchStep::Pap(by, name, _) | SwitchStep::Account(by, name, _) => (by, name),
        };
        let password = match step {
            SwitchStep::Md5(_, password) => Some(password),
            SwitchStep::Stranger => Some("right"),
            SwitchStep::Tls(_) => None,
            SwitchStep::Pap(_, _, password) => {
                let mut a = self.base_attributes();
                a.push_user_password(password.as_bytes()).unwrap();
                return self.send_request(now, client, PacketCode::ACCESS_REQUEST, a);
            }
            SwitchStep::Account(_, _, status) => {
                let mut a = self.base_attributes();
                a.push_u32(kind::ACCT_STATUS_TYPE, status).push_text(kind::ACCT_SESSION_ID, "5f2a").unwrap();
                a.push_u32(kind::ACCT_SESSION_TIME, 60 * (status - 1));
                return self.send_request(now, client, PacketCode::ACCOUNTING_REQUEST, a);
            }
        };
        let (peer, packet) = self.station.start_peer(now, self.name, password, self.next as u64);
        self.peer = Some(peer);
        self.send_eap(now, client, &packet, None);
    }

    fn handle_event(&mut self, now: Instant, client: &mut RadiusClient, event: client::RadiusClientEvent) {
        let client::RadiusClientEvent::Response(response) = event else { panic!("{event:?}") };
        let (mut packet, state) = (Vec::new(), response.attributes.get(kind::STATE));
        if let Some(peer) = &mut self.peer
            && response.attributes.read_eap_packet(&mut packet)
        {
            peer.handle_packet(now, &packet);
        }
        match (response.code, &mut self.peer) {
            (PacketCode::ACCESS_CHALLENGE, Some(peer)) => {
                assert!(peer.poll_transmit(&mut packet), "the station answers");
                self.send_eap(now, client, &packet, state);
            }
            (PacketCode::ACCESS_CHALLENGE, None) => {
                let mut a = self.base_attributes();
                a.push_user_password(b"and more").unwrap().push_bytes(kind::STATE, state.unwrap()).unwrap();
                self.send_request(now, client, PacketCode::ACCESS_REQUEST, a);
            }
            _ => self.start(now, client),
        }
    }

    fn is_done(&self) -> bool {
        self.next > STEPS.len()
    }
}

/// The Diameter requests of an access server.
struct GatewayScript {
    station: StationConfig,
    next: usize,
    peer: Option<EapPeer>,
}

const NAME: &str = "ann";

impl GatewayScript {
    fn new(ports: &FreePorts, station: StationConfig, said: &MessageLog) -> ScriptedHost<Self> {
        let applications = [
            DiameterApplication::for_authentication(EAP),
            DiameterApplication::for_authentication(NASREQ),
            DiameterApplication::for_accounting(ACCOUNTING),
        ];
        let mut node = node::DiameterNodeConfig::new("gateway.example.net", "example.net", &applications)
            .connect_to("aaa.example.net", loopback_address(AAA, ports.diameter));
        node.peers[0].authentication.tls = true;
        // A busy machine may take longer than the watchdog's interval.
        node.watchdog = None;
        node.local.addresses = vec![loopback_address(GATEWAY, 0).ip()];
        let config = AaaConfig::Diameter(Box::new(DiameterConfig::new(node, "example.net".to_owned())));
        let identity = NasIdentity::for_ethernet("gateway");
        let client =
            AccessClient::new(identity, config, Seed::new(8).derive_secure_rng("gateway", 0)).unwrap();
        let script = Self { station, next: 0, peer: None };
        ScriptedHost {
            machine: RecordingMachine::new(client, "gateway", MessageKind::Diameter, said),
            script,
        }
    }

    fn run_step(&mut self, now: Instant, client: &mut AccessClient) {
        let token = self.next as u64;
        let Some(&ask) = GATEWAY_STEPS.get(self.next) else {
            self.next += 1;
            return;
        };
        self.next += 1;
        self.peer = None;
        let password = match ask {
            GatewayStep::Md5(password) => Some(password),
            GatewayStep::Tls => None,
            GatewayStep::Pap(name, password) => {
                let question = AccessRequest::new(name.as_bytes(), UserCredentials::Pap(password.as_bytes()));
                return client.send_request(now, token, &question).unwrap();
            }
            GatewayStep::Account(kind) => {
                let number = u32::from(kind == AccountingRecordKind::Stop);
                let record =
                    AccountingRecord { name: NAME.as_bytes(), ..AccountingRecord::new(kind, "5f2b", number) };
                return client.send_record(now, token, &record).unwrap();
            }
        };
        let (peer, packet) = self.station.start_peer(now, NAME, password, 100 + token);
        self.peer = Some(peer);
        client
            .send_request(now, token, &AccessRequest::new(NAME.as_bytes(), UserCredentials::Eap(&packet)))
            .unwrap();
    }

    fn go_on(&mut self, now: Instant, client: &mut AccessClient, (token, reply): (u64, &AccessReply)) {
        let (mut packet, mut next) = (Vec::new(), LoginRoundState::new());
        let peer = self.peer.as_mut().expect("EAP alone has rounds");
        assert!(reply.read_eap(&mut packet));
        peer.handle_packet(now, &packet);
        assert!(peer.poll_transmit(&mut packet), "the station answers");
        reply.fill_continuation(&mut next);
        let question = AccessRequest::new(NAME.as_bytes(), UserCredentials::Eap(&packet));
        client.send_request(now, token, &AccessRequest { continues: Some(&next), ..question }).unwrap();
    }
}

impl HostScript for GatewayScript {
    type Machine = AccessClient;

    fn start(&mut self, _: Instant, _: &mut AccessClient) {}

    fn handle_event(&mut self, now: Instant, client: &mut AccessClient, event: AccessEvent) {
        match event {
            AccessEvent::Peer { up, .. } => {
                assert!(up, "the connection stays");
                self.run_step(now, client);
            }
            AccessEvent::Challenge { token, reply } => self.go_on(now, client, (token, &reply)),
            AccessEvent::Accept { .. } | AccessEvent::Reject { .. } | AccessEvent::Accounted { .. } => {
                self.run_step(now, client);
            }
            other => panic!("{other:?}"),
        }
    }

    fn is_done(&self) -> bool {
        self.next > GATEWAY_STEPS.len()
    }
}

/// The home server of other realms. Every user has the same password.
struct HomeServerScript;

impl HomeServerScript {
    fn new(said: &MessageLog) -> ScriptedHost<Self> {
        let any = loopback_address(0, 0).ip();
        let clients = [
            server::ClientConfig::new(any, 8, SharedSecret::new(HOME_SECRET)),
            server::ClientConfig::for_radsec(
                any,
                8,
                vec![PeerCertificateCondition::Name("aaa.example.net".to_owned())],
            ),
        ];
        let server = RadiusServer::new(
            server::RadiusServerConfig::new(clients.into()),
            Seed::new(9).derive_secure_rng("home", 0),
        )
        .unwrap();
        ScriptedHost {
            machine: RecordingMachine::new(server, "home", MessageKind::Radsec, said),
            script: Self,
        }
    }
}

impl HostScript for HomeServerScript {
    type Machine = RadiusServer;

    fn start(&mut self, _: Instant, _: &mut RadiusServer) {}

    fn handle_event(&mut self, now: Instant, machine: &mut RadiusServer, event: server::RadiusServerEvent) {
        let server::RadiusServerEvent::Request(request) = event;
        let mut attributes = AttributeList::new();
        let twice = request.attributes.get(kind::USER_NAME).is_some_and(|name| name.starts_with(b"dan"));
        let right = request.user_password().unwrap().is_some_and(|password| *password == *b"right");
        let again = request.attributes.get(kind::STATE);
        let code = match request.code {
            PacketCode::ACCOUNTING_REQUEST => PacketCode::ACCOUNTING_RESPONSE,
            _ if twice && again.is_none() => {
                attributes.push_bytes(kind::STATE, b"once").unwrap();
                attributes.push_text(kind::REPLY_MESSAGE, "And?").unwrap();
                PacketCode::ACCESS_CHALLENGE
            }
            _ if right || again == Some(b"once") => {
                attributes.push_text(kind::REPLY_MESSAGE, "Welcome").unwrap();
                attributes.push_bytes(kind::CLASS, b"of home").unwrap();
                attributes.push_u32(kind::SESSION_TIMEOUT, 600);
                // A home server must not set this attribute for another network.
                attributes.push_text(kind::FILTER_ID, "all").unwrap();
                PacketCode::ACCESS_ACCEPT
            }
            _ => PacketCode::ACCESS_REJECT,
        };
        machine
            .handle_command(
                now,
                server::RadiusServerCommand::Respond { token: request.token, code, attributes },
            )
            .unwrap();
    }

    fn is_done(&self) -> bool {
        false
    }
}

/// Certificates of the test's own authority. All its RSA signatures have one length.
struct TestCertificates {
    folder: TempDir,
    wall: WallTime,
}

impl TestCertificates {
    fn new() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let wall = WallTime::from_unix_secs(since.as_secs());
        let (folder, key) = (TempDir::new(), KeyKind::Rsa2048);
        let options = AuthorityInitOptions { name: "Both".into(), key, days: 30, now: wall };
        let mut authority = CertificateAuthority::init(&folder.path().join("pki"), &options).unwrap();
        for (name, kind, file) in [
            ("aaa.example.net", CertificateKind::Server, "server"),
            ("home.example.net", CertificateKind::Server, "home"),
            ("switch.example.net", CertificateKind::Client, "switch"),
            ("gateway.example.net", CertificateKind::Client, "gateway"),
            ("ann", CertificateKind::Client, "ann"),
        ] {
            let request = CertificateRequest {
                name: name.into(),
                kind,
                names: Vec::new(),
                key,
                days: 9,
                ocsp: None,
                crl: None,
            };
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

    fn read_file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join(name)).unwrap()
    }

    fn credentials(&self, name: &str) -> TlsCredentials {
        TlsCredentials::from_pem(
            &self.read_file(&format!("{name}.pem")),
            &self.read_file(&format!("{name}.key")),
        )
        .unwrap()
    }

    fn roots(&self) -> TrustRoots {
        TrustRoots::from_pem(&self.read_file("ca.pem")).unwrap()
    }

    fn client_config(&self, name: &str) -> ClientConfig {
        ClientConfig::new(TlsClientOptions {
            versions: TlsVersionRange::default(),
            credentials: Some(self.credentials(name)),
            roots: self.roots(),
            server_name: None,
            resumption: None,
            clock: SharedWallClock::from_time(self.wall),
            key_log: None,
        })
        .unwrap()
    }

    fn home_server_config(&self) -> ServerConfig {
        ServerConfig::new(TlsServerOptions {
            versions: TlsVersionRange::default(),
            credentials: self.credentials("home"),
            client_roots: Some(self.roots()),
            resumption: None,
            clock: SharedWallClock::from_time(self.wall),
            key_log: None,
        })
        .unwrap()
    }

    fn station_config(&self) -> StationConfig {
        StationConfig { tls: self.client_config("ann"), wall: self.wall }
    }
}

/// The messages seen by access servers and the home server: RADIUS, then Diameter.
type MessageTranscripts = [Vec<ObservedMessage>; 2];

fn take_transcripts(said: [MessageLog; 2]) -> MessageTranscripts {
    said.map(|said| std::mem::take(&mut *said.lock().unwrap()))
}

fn run_simulated(certificates: &TestCertificates, ports: &FreePorts) -> MessageTranscripts {
    let mut builder = SimulationBuilder::<SimulatedApp>::new(IpVersion::V4, Seed::new(7));
    builder.set_epoch(certificates.wall);
    let [aaa, switch, gateway, home] = [AAA, SWITCH, GATEWAY, HOME].map(|n| {
        let host = builder.add_host(None).unwrap();
        builder.set_address(host, loopback_address(n, 0).ip()).unwrap();
        host
    });
    for other in [switch, gateway, home] {
        builder.add_link(aaa, other, &LinkConfig::default());
    }
    let addresses = Arc::new(builder.addresses().clone());
    let at = |host| HostAddress { host, addresses: addresses.clone() };

    // The daemon serves from the same file.
    let loaded = load_config(&certificates.folder.path().join("aaa.toml")).unwrap();
    let users = [("bob".to_owned(), bob_rows())];
    let (seed, wall, key_log) = (Seed::new(7), certificates.wall, &KeyLog::new());
    let made = AaaServiceInputs { seed, wall, cpu: None, users: &users, key_log };
    let bound = SimulatedAaaService::new(&loaded, at(aaa), &made).unwrap();
    let app = builder.add_application(aaa, SimulatedApp::Aaa(Box::new(bound.role)), None);
    bound.udp.into_iter().for_each(|(port, socket)| builder.bind_udp(app, socket, port).unwrap());
    bound.tcp.into_iter().for_each(|port| builder.listen_tcp(app, port).unwrap());

    let said = [MessageLog::default(), MessageLog::default()];
    let mut endpoint = MachineSockets::new(at(home));
    let sockets = [0, 1].map(|n| endpoint.socket_number(SocketId::from_number(n)));
    endpoint.register_listener(
        ports.home_tls,
        ListenerId::default(),
        Some(certificates.home_server_config()),
    );
    let app = builder.add_application(
        home,
        SimulatedApp::Home(Box::new(SimulatedHost { endpoint, actor: HomeServerScript::new(&said[0]) })),
        None,
    );
    for (socket, port) in sockets.into_iter().zip([ports.home, ports.home_acct]) {
        builder.bind_udp(app, socket, port).unwrap();
    }
    builder.listen_tcp(app, ports.home_tls).unwrap();

    let inside = |host, port, name| {
        let outgoing = BTreeMap::from([(loopback_address(AAA, port), certificates.client_config(name))]);
        MachineSockets::new(at(host)).with_outgoing_tls(outgoing)
    };
    let endpoint = inside(switch, ports.radsec, "switch");
    let actor = SwitchScript::new(ports, certificates.station_config(), &said[0]);
    builder.add_application(switch, SimulatedApp::Switch(Box::new(SimulatedHost { endpoint, actor })), None);
    let endpoint = inside(gateway, ports.diameter, "gateway");
    let actor = GatewayScript::new(ports, certificates.station_config(), &said[1]);
    builder.add_application(
        gateway,
        SimulatedApp::Gateway(Box::new(SimulatedHost { endpoint, actor })),
        None,
    );
    let mut simulation = builder.build(NullObserver, None);
    // Before the server's first watchdog.
    simulation.run_until(Instant::ZERO + Duration::from_secs(20));
    for app in simulation.applications() {
        match app {
            SimulatedApp::Switch(hosted) => {
                assert!(hosted.actor.script.is_done(), "step {}", hosted.actor.script.next)
            }
            SimulatedApp::Gateway(hosted) => {
                assert!(hosted.actor.script.is_done(), "step {}", hosted.actor.script.next)
            }
            SimulatedApp::Home(_) | SimulatedApp::Aaa(_) => {}
        }
    }
    take_transcripts(said)
}

/// Ports that are currently free.
#[derive(Clone, Copy, Debug)]
struct FreePorts {
    auth: u16,
    acct: u16,
    radsec: u16,
    diameter: u16,
    home: u16,
    home_acct: u16,
    home_tls: u16,
}

impl FreePorts {
    fn allocate() -> Self {
        let udp = |host| UdpSocket::bind(loopback_address(host, 0)).unwrap().local_addr().unwrap().port();
        let tcp = |host| TcpListener::bind(loopback_address(host, 0)).unwrap().local_addr().unwrap().port();
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

/// Rows of a user with an argon2 hash and an address of the pool.
fn bob_rows() -> UserRows {
    let row = |attribute: &str, value: String| AttributeRow {
        attribute: attribute.to_owned(),
        op: RowOperator::Replace,
        value,
    };
    let password = row("Crypt-Password", argon2_hash(b"left", &[7; 16]));
    let check = vec![password, row("Pool-Name", "one".to_owned())];
    UserRows { check, ..UserRows::default() }
}

/// Writes the configuration of both hosts, and returns its ports.
fn write_configuration(certificates: &TestCertificates) -> FreePorts {
    let folder = certificates.folder.path();
    let ports = FreePorts::allocate();
    let [secret, home_secret] = [SECRET, HOME_SECRET].map(String::from_utf8_lossy);
    let FreePorts { auth, acct, radsec, diameter, home, home_acct, home_tls } = ports;
    // No Status-Server is sent.
    let patient = "response_window = \"600 s\"\nzombie_period = \"600 s\"\nstatus_check = false";
    let [aaa, far] = [AAA, HOME].map(|host| loopback_address(host, 0).ip());
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
    usher_store::SqliteStore::open(folder.join("users.db")).unwrap().put_user("bob", &bob_rows()).unwrap();
    ports
}

fn on_sockets(certificates: &TestCertificates, ports: &FreePorts) -> MessageTranscripts {
    let folder = certificates.folder.path();
    let file = folder.join("aaa.toml");
    // It serves until this process ends.
    let served = std::thread::spawn(move || usher_aaa_daemon::run_server(Some(&file), &mut |_| {}));
    let control = folder.join("state/control.sock");
    let begun = std::time::Instant::now();
    while std::os::unix::net::UnixStream::connect(&control).is_err() {
        assert!(!served.is_finished(), "{:?}", served.join());
        assert!(begun.elapsed() < Wait::from_secs(120), "the server does not begin");
        std::thread::sleep(Wait::from_millis(5));
    }

    let (said, options) = ([MessageLog::default(), MessageLog::default()], SocketOptions::default());
    let udp = |n, port| (SocketId::from_number(n), bind_udp(loopback_address(HOME, port), &options).unwrap());
    let listener = DriverTcpListener {
        id: ListenerId::default(),
        socket: listen_tcp(loopback_address(HOME, ports.home_tls), &options).unwrap(),
        tls: Some(TlsServer::new(certificates.home_server_config())),
    };
    let sockets = DriverSockets {
        udp: vec![udp(0, ports.home), udp(1, ports.home_acct)],
        listeners: vec![listener],
        ..DriverSockets::default()
    };
    let (home, to_home) = spawn_live("home", HomeServerScript::new(&said[0]), sockets);
    let inside = |name| {
        let tls = TlsClient::new(certificates.client_config(name));
        let outgoing = move |_: SocketAddr| OutgoingConnectionSecurity::Tls(tls.clone());
        DriverSockets { outgoing: Some(Arc::new(outgoing)), ..DriverSockets::default() }
    };
    let actor = SwitchScript::new(ports, certificates.station_config(), &said[0]);
    let (switch, _mailbox) = spawn_live("switch", actor, inside("switch"));
    drop(switch.join().expect("all steps are made").unwrap());
    let actor = GatewayScript::new(ports, certificates.station_config(), &said[1]);
    let (gateway, _mailbox) = spawn_live("gateway", actor, inside("gateway"));
    drop(gateway.join().expect("all is asked").unwrap());
    assert!(to_home.send(LiveMessage::End));
    drop(home.join().expect("it answers everybody").unwrap());
    take_transcripts(said)
}

#[test]
fn the_simulator_and_the_daemon_say_the_same() {
    let certificates = TestCertificates::new();
    let ports = write_configuration(&certificates);
    let (simulated, live) = (run_simulated(&certificates, &ports), on_sockets(&certificates, &ports));
    let (mut seen, mut apart) = (vec![false; DIFFERS.len()], Vec::new());
    for (simulated, live) in simulated.iter().zip(&live) {
        for (n, (a, b)) in simulated.iter().zip(live).enumerate() {
            let ((one, ours), (other, theirs)) = (comparable_parts(a), comparable_parts(b));
            if one != other || ours.len() != theirs.len() {
                apart.push(format!("message {n}: simulated {one}, live {other}"));
            }
            for (ours, theirs) in ours.into_iter().zip(theirs).filter(|(ours, theirs)| ours != theirs) {
                apart.push(format!("message {n}, {one}: simulated {ours:?}, live {theirs:?}"));
            }
            let differ = message_parts(a).1.into_iter().zip(message_parts(b).1).filter(|(a, b)| a != b);
            differ.filter_map(|((number, _), _)| difference_index(a, number)).for_each(|n| seen[n] = true);
        }
    }
    assert!(apart.is_empty(), "{}", apart.join("\n"));
    assert_eq!(simulated.each_ref().map(Vec::len), live.each_ref().map(Vec::len));
    let [radius, diameter] = &live;
    // Every step took place: checks its last message.
    let heard = |said: &'static str, all: &[ObservedMessage]| -> Vec<ObservedMessage> {
        all.iter().filter(|m| m.machine_name == said && !m.sent).cloned().collect()
    };
    let codes = heard("switch", radius).into_iter().map(|m| PacketCode(m.bytes[0]));
    let last: Vec<PacketCode> = codes.filter(|code| *code != PacketCode::ACCESS_CHALLENGE).collect();
    use PacketCode;
    let (yes, no, kept) =
        (PacketCode::ACCESS_ACCEPT, PacketCode::ACCESS_REJECT, PacketCode::ACCOUNTING_RESPONSE);
    assert_eq!(last[..12], [yes, kept, no, yes, kept, yes, no, no, kept, no, yes, no]);
    assert_eq!(last[12..16], [yes, yes, kept, no], "by RadSec");
    assert_eq!(last[16..20], [yes, no, yes, kept], "to a home server");
    assert_eq!(last[20..24], [yes, no, yes, kept], "to a home server by RadSec");
    assert_eq!(last[24..], [no, yes]);
    assert!(radius.iter().filter(|m| m.bytes.len() > FRAGMENT).count() > 4, "certificates went both ways");
    for (kind, requests) in [(MessageKind::Udp, 5), (MessageKind::Radsec, 5)] {
        let all = heard("home", radius).into_iter().filter(|m| m.kind == kind).count();
        assert_eq!(all, requests, "{kind:?}");
    }
    let results = heard("gateway", diameter).into_iter().filter_map(|m| {
        let (_, parts) = message_parts(&m);
        let (_, result) = parts.into_iter().find(|(number, _)| *number == (268, 0))?;
        Some(u32::from_be_bytes(result.try_into().unwrap()))
    });
    let results: Vec<u32> = results.filter(|result| *result != 1001).collect();
    assert_eq!(results, [2001, 2001, 2001, 4001, 2001, 2001, 4001, 4001, 2001]);
    // Each listed difference occurs. Otherwise it could be compared.
    let alike: Vec<_> = DIFFERS.iter().zip(seen).filter(|(_, seen)| !seen).collect();
    let alike: Vec<_> = alike.iter().map(|(d, _)| (d.machine_name, d.number, d.why)).collect();
    assert!(alike.is_empty(), "these are the same in both: {alike:?}");
}

#[test]
fn the_comparison_sees_a_difference() {
    let packet = |name: &str| {
        let mut attributes = AttributeList::new();
        attributes.push_text(kind::USER_NAME, name).unwrap().push_bytes(kind::STATE, &[7; 8]).unwrap();
        let packet = usher_radius::packet::OwnedPacket {
            code: PacketCode::ACCESS_REQUEST,
            identifier: 1,
            authenticator: [9; 16],
            attributes,
        };
        let mut bytes = Vec::new();
        packet.encode_into(&mut bytes).unwrap();
        ObservedMessage { machine_name: "switch", sent: true, kind: MessageKind::Udp, bytes }
    };
    let mut other = packet("ann");
    (other.bytes[4], other.bytes[30]) = (0, 0);
    assert_eq!(
        comparable_parts(&packet("ann")),
        comparable_parts(&other),
        "authenticator and State are drawn"
    );
    assert_ne!(comparable_parts(&packet("ann")), comparable_parts(&packet("ane")));
    assert_ne!(comparable_parts(&packet("ann")), comparable_parts(&packet("anna")));
}

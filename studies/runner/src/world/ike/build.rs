//! Initiators, gateways and AAA servers of a scenario.

use super::super::aaa::{self, ServerRole, helpers_of};
use super::super::arrivals::{ArrivalProcess, Pattern};
use super::super::eap;
use super::super::error::WorldError;
use super::super::handshakes;
use super::super::ike_service::{GatewayRole, HELPERS};
use super::super::machine::Endpoint;
use super::super::plan::Plan;
use super::super::topology::Topology;
use super::certificates::{Side, credentials, roots};
use super::initiator::{InitiatorRole, Task};
use super::protection::Protection;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use usher_aaa::{Method, User, UserSource, Users, radius_socket};
use usher_core::Duration;
use usher_crypto::Key;
use usher_crypto::tls::{
    ClientConfig, ClientOptions, KeyLog, ServerConfig, ServerOptions, WallClock, fixtures, record,
};
use usher_eap::method::peap::PeerMethodPeap;
use usher_eap::method::tls::{PeerMethodTls, PeerTls, ServerTls};
use usher_eap::method::ttls::{PeerMethodTtls, Proof};
use usher_eap::method::{PeerOffer, gtc, md5, mschapv2};
use usher_gateway::{Aaa, Config, Gateway, NAT_SOCKET, Patience, Peer, SOCKET};
use usher_ike::credentials::Credentials;
use usher_ike::machine::{
    self as machine, ChildConfig, Childless, Connection, LocalAuth, Mode, RemoteAuth, Retransmission,
};
use usher_ike::payload::{Identification, Proposal};
use usher_ike::work::{SIGN, VERIFY};
use usher_nas::{AaaConfig, NasIdentity, PORT_TYPE_VIRTUAL, RadiusConfig};
use usher_radius::Secret;
use usher_radius::client;
use usher_scenario::model::{Ike, IkeMethod};
use usher_scenario::ports::{IKE, IKE_NAT, RADIUS};
use usher_sim::{HostId, IpVersion};

/// What the gateway calls the connection, and each initiator its own.
const NAME: &str = "study";
/// The key that initiators and gateways have.
const KEY: &[u8] = b"a key for simulations alone";
/// The realm of the identities.
const REALM: &str = "example.org";
/// The longest EAP packet that goes through IKE without fragments, octets, as a gateway tells its AAA server.
const FRAMED_MTU: u32 = 1100;

/// Both sides' TLS of EAP methods.
struct Tls {
    peer: PeerSide,
    server: ServerTls,
    fragment: usize,
}

enum PeerSide {
    Real(ClientConfig),
    Recorded(Arc<usher_crypto::tls::Recording>),
}

impl Tls {
    fn new(ike: &Ike, key_log: &KeyLog) -> Result<Self, WorldError> {
        let own = &ike.certificates;
        let clock = || WallClock::at(fixtures::WALL_TIME);
        let mutual = ike.method == IkeMethod::EapTls;
        let client = || {
            ClientConfig::new(ClientOptions {
                versions: own.version.into(),
                credentials: mutual.then(|| credentials(own.kind, Side::Initiator, own.initiator_chain)),
                roots: roots(own.kind),
                server_name: None,
                resumption: None,
                clock: clock(),
                key_log: Some(key_log.clone()),
            })
        };
        let server = || {
            ServerConfig::new(ServerOptions {
                versions: own.version.into(),
                credentials: credentials(own.kind, Side::Server, own.server_chain),
                client_roots: mutual.then(|| roots(own.kind)),
                resumption: None,
                clock: clock(),
                key_log: Some(key_log.clone()),
            })
        };
        let fragment = own.fragment.bytes() as usize;
        if ike.replays_handshakes() {
            let (kind, version) = (own.kind, own.version);
            let chains = (own.initiator_chain.get(), own.server_chain.get());
            let name = format!("ike {version:?} {kind:?} {} {}", chains.0, chains.1);
            let recording = handshakes::recording(name, || record(&client()?, &server()?))?;
            return Ok(Self {
                peer: PeerSide::Recorded(recording.clone()),
                server: ServerTls::Recorded(recording),
                fragment,
            });
        }
        Ok(Self { peer: PeerSide::Real(client()?), server: ServerTls::Real(server()?), fragment })
    }

    fn peer(&self, initiator: u64) -> PeerTls {
        match &self.peer {
            PeerSide::Real(config) => PeerTls::Real(config.clone(), initiator),
            PeerSide::Recorded(recording) => PeerTls::Recorded(recording.clone()),
        }
    }
}

/// Puts the workload's roles on the topology's hosts.
pub(in super::super) fn build(
    plan: &mut Plan<'_>,
    topology: &Topology,
    ike: &Ike,
    key_log: &KeyLog,
) -> Result<(), WorldError> {
    let initiators = topology.group(&ike.initiators)?;
    let gateways = topology.group(&ike.gateway)?;
    let servers = topology.group(&ike.server)?;
    let tls = ike.method.has_tls().then(|| Tls::new(ike, key_log)).transpose()?;
    let names: Vec<Vec<u8>> =
        (0..initiators.len() as u64).map(|i| eap::identity(plan.name, i, REALM)).collect();
    if ike.method.is_eap() {
        for (i, &host) in (0..).zip(servers) {
            server(plan, ike, tls.as_ref(), &names, (i, host))?;
        }
    }
    for (i, &host) in gateways.iter().enumerate() {
        let protection = ike.policy.as_ref().map(|_| {
            let own = initiators.iter().skip(i).step_by(gateways.len());
            Protection::of_gateway(own.map(|host| plan.addresses.of(*host)).collect())
        });
        gateway(plan, ike, (host, servers[i % servers.len()]), protection)?;
    }
    let pattern = Pattern::new(&ike.arrivals, initiators.len() as u64, plan.end);
    for (i, &host) in initiators.iter().enumerate() {
        let index = i as u64;
        let (connection, credentials) = initiator(ike, tls.as_ref(), (index, &names[i]))?;
        let at = |host: HostId| SocketAddr::new(plan.addresses.of(host), IKE);
        let task = Task {
            endpoint: endpoint(ike),
            connection: Arc::new(connection),
            credentials: Arc::new(credentials),
            local: at(host),
            remote: at(gateways[i % gateways.len()]),
            reauthentication: ike.reauthentication,
            lifetime: ike.lifetime.get().map(|time| time.get()),
            give_up: ike.give_up.get().map(|time| time.get()),
            protection: ike.policy.as_ref().map(|policy| {
                let gateway = plan.addresses.of(gateways[i % gateways.len()]);
                Protection::of_initiator(gateway, policy.without_sa)
            }),
            resumes: ike.resumption.get().is_some(),
            on_demand: ike.policy.as_ref().is_some_and(|policy| policy.on_demand),
        };
        let rng = plan.seed.stream("arrivals", index);
        let arrivals = ArrivalProcess::new(&pattern, index, rng);
        let seed = plan.seed.derive("ike.initiator", index);
        let helpers = helpers(plan, &ike.initiators, seed);
        let mut endpoint = Endpoint::new(plan.at(host));
        let sockets = [(machine::SOCKET, IKE), (machine::NAT_SOCKET, IKE_NAT)]
            .map(|(id, port)| (endpoint.socket(id), port));
        let app = plan.role(host, InitiatorRole::new(endpoint, task, helpers, seed, arrivals));
        sockets.into_iter().try_for_each(|(socket, port)| plan.builder.bind_udp(app, socket, port))?;
    }
    Ok(())
}

fn helpers<J>(plan: &Plan<'_>, host: &str, seed: usher_core::Seed) -> super::super::helpers::Helpers<J> {
    let cpu = plan.scenario.hosts.get(host).and_then(|host| host.cpu.as_ref());
    let kinds: &[_] = if cpu.is_some_and(|cpu| cpu.aside.names().next().is_some()) {
        &[(SIGN, HELPERS, false), (VERIFY, HELPERS, false)]
    } else {
        &[]
    };
    helpers_of(cpu, seed.stream("helpers", 0), kinds)
}

fn endpoint(ike: &Ike) -> machine::Config {
    let retransmission = Retransmission {
        first: ike.retransmission.get(),
        count: ike.retransmissions.get(),
        ..Retransmission::default()
    };
    let tickets = ike.resumption.get().map(|time| time.get());
    // As the studies say it; of which network an initiator is decides nothing in them.
    let (cookies_from, cookies_from_network) = (100, usize::MAX);
    machine::Config {
        retransmission,
        tickets,
        cookies_from,
        cookies_from_network,
        ..machine::Config::default()
    }
}

/// A connection, but for how the two prove who they are.
fn connection(ike: &Ike, (local, local_auth): (Identification, LocalAuth)) -> Result<Connection, WorldError> {
    let role = |why: &dyn std::fmt::Display| WorldError::Role(why.to_string());
    let (children, childless) = if ike.is_childless() {
        (Vec::new(), Childless::Force)
    } else {
        let child = ChildConfig {
            name: NAME.to_owned(),
            proposals: vec![Proposal::esp(&ike.child).map_err(|why| role(&why))?],
            local: None,
            remote: None,
            mode: Mode::Transport,
            rekey_after: None,
        };
        (vec![child], Childless::Never)
    };
    let proposals = vec![Proposal::ike(&ike.proposal).map_err(|why| role(&why))?];
    Ok(Connection {
        local_auth,
        children,
        childless,
        fragmentation: true,
        ..Connection::shared_key(NAME, local, &Key::from(KEY), proposals)
    })
}

/// How a side proves by its certificate who it is, and how it looks at the other's.
fn certified(
    ike: &Ike,
    side: Side,
    credentials_of: &mut Credentials,
) -> Result<(LocalAuth, RemoteAuth), WorldError> {
    let own = &ike.certificates;
    let length = if side == Side::Initiator { own.initiator_chain } else { own.server_chain };
    let certificate = credentials(own.kind, side, length);
    let kind = credentials_of.add_key(NAME, certificate.signing_key()?);
    let roots = roots(own.kind);
    let authorities = roots.certificates().filter_map(usher_crypto::x509::public_key_hash).collect();
    credentials_of.trust(NAME, roots, WallClock::at(fixtures::WALL_TIME))?;
    let chain = certificate.chain().map(<[u8]>::to_vec).collect();
    Ok((LocalAuth::Certificate { chain, kind, pss: false }, RemoteAuth::Certificate { authorities }))
}

fn initiator(
    ike: &Ike,
    tls: Option<&Tls>,
    (index, name): (u64, &[u8]),
) -> Result<(Connection, Credentials), WorldError> {
    let mut credentials = Credentials::new();
    let own = Identification::mail(&String::from_utf8_lossy(name));
    let offer = |tls: &Tls| -> Box<dyn PeerOffer> {
        let (fragment, identity, engine) = (tls.fragment, name.to_vec(), tls.peer(index));
        match ike.method {
            IkeMethod::Peap => {
                let inner: Box<dyn PeerOffer> = Box::new(mschapv2::Account::new(name, eap::PASSWORD));
                Box::new(PeerMethodPeap { tls: engine, fragment, identity, inner: Arc::new([inner]) })
            }
            IkeMethod::Ttls => {
                let proof = Proof::Pap(eap::PASSWORD.into());
                Box::new(PeerMethodTtls { tls: engine, fragment, identity, proof })
            }
            _ => Box::new(PeerMethodTls { tls: engine, fragment }),
        }
    };
    let method: Box<dyn PeerOffer> = match (ike.method, tls) {
        (IkeMethod::Psk, _) => {
            return Ok((connection(ike, (own, LocalAuth::Psk(Key::from(KEY))))?, credentials));
        }
        (IkeMethod::Certificate, _) => {
            let (local, remote_auth) = certified(ike, Side::Initiator, &mut credentials)?;
            let connection = connection(ike, (Identification::mail(fixtures::CLIENT_NAME), local))?;
            let remote = Some(Identification::fqdn(fixtures::SERVER_NAME));
            return Ok((Connection { remote, remote_auth, ..connection }, credentials));
        }
        (_, Some(tls)) => offer(tls),
        (IkeMethod::EapMd5, None) => Box::new(md5::Password::new(&Key::from(eap::PASSWORD))),
        (IkeMethod::EapGtc, None) => Box::new(gtc::Token::new(eap::PASSWORD)),
        (_, None) => Box::new(mschapv2::Account::new(name, eap::PASSWORD)),
    };
    let local_auth = LocalAuth::Eap { identity: name.to_vec(), methods: Arc::new([method]) };
    Ok((connection(ike, (own, local_auth))?, credentials))
}

fn gateway(
    plan: &mut Plan<'_>,
    ike: &Ike,
    (host, server): (HostId, HostId),
    protection: Option<Protection>,
) -> Result<(), WorldError> {
    let mut credentials = Credentials::new();
    let own = Identification::fqdn(fixtures::SERVER_NAME);
    let connection = match ike.method {
        IkeMethod::Certificate => {
            let (local, remote_auth) = certified(ike, Side::Server, &mut credentials)?;
            Connection { remote_auth, ..connection(ike, (own, local))? }
        }
        IkeMethod::Psk => connection(ike, (own, LocalAuth::Psk(Key::from(KEY))))?,
        _ => {
            let remote_auth = RemoteAuth::Eap { ask_identity: false };
            Connection { remote_auth, ..connection(ike, (own, LocalAuth::Psk(Key::from(KEY))))? }
        }
    };
    let address = plan.addresses.of(host);
    let any = |ip: IpAddr| {
        if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { IpAddr::from(Ipv6Addr::UNSPECIFIED) }
    };
    let peer = Peer::waiting(connection, SocketAddr::new(any(address), IKE));
    let aaa = ike.method.is_eap().then(|| {
        let at = SocketAddr::new(plan.addresses.of(server), RADIUS);
        let mut config =
            client::Config::single(client::ServerConfig::new(at, Secret::new(eap::SECRET.as_bytes())));
        config.retransmission = eap::retransmission(&ike.radius.retransmission);
        Aaa {
            nas: NasIdentity {
                address: Some(address),
                port_type: Some(PORT_TYPE_VIRTUAL),
                framed_mtu: Some(FRAMED_MTU),
                ..NasIdentity::ethernet("gateway")
            },
            servers: AaaConfig::Radius(RadiusConfig::new(config)),
            accounting: false,
            interim: None,
            patience: Patience::default(),
        }
    });
    let config = Config { aaa, ..Config::serving(endpoint(ike), peer) };
    let seed = plan.seed.derive("ike.gateway", u64::from(host.0));
    let gateway = Gateway::new(config.clone(), seed.secure("ike.start", 0))
        .map_err(|why| WorldError::Role(why.to_string()))?;
    let mut endpoint = Endpoint::new(plan.at(host));
    let sockets = [(SOCKET, IKE), (NAT_SOCKET, IKE_NAT)].map(|(id, port)| (endpoint.socket(id), port));
    let helpers = helpers(plan, &ike.gateway, seed);
    let (credentials, seed) = (Arc::new(credentials), (seed, protection));
    let role = GatewayRole::of_workload(endpoint, (config, gateway), credentials, helpers, seed);
    let app = plan.role(host, role);
    sockets.into_iter().try_for_each(|(socket, port)| plan.builder.bind_udp(app, socket, port))?;
    Ok(())
}

fn server(
    plan: &mut Plan<'_>,
    ike: &Ike,
    tls: Option<&Tls>,
    names: &[Vec<u8>],
    (index, host): (u64, HostId),
) -> Result<(), WorldError> {
    let mut rng = plan.seed.secure("aaa.server", index);
    let mut users = Users::new(&mut rng);
    for name in names {
        users.insert(name, User::with_password(eap::PASSWORD));
    }
    let mut config = usher_aaa::Config::new(UserSource::Memory(Arc::new(users)));
    let method = match ike.method {
        IkeMethod::EapMd5 => Method::EapMd5,
        IkeMethod::EapMsChapV2 => Method::EapMsChapV2,
        IkeMethod::EapGtc => Method::EapGtc,
        IkeMethod::Peap => Method::Peap,
        IkeMethod::Ttls => Method::Ttls,
        IkeMethod::EapTls | IkeMethod::Psk | IkeMethod::Certificate => Method::EapTls,
    };
    config.methods = vec![method];
    if let Some(tls) = tls {
        eap::offer(&mut config, method, tls.server.clone(), tls.fragment);
    }
    // What a study's network makes of a login is to be seen, however long it takes and however many there are.
    config.login_timeout = Duration::MAX;
    config.max_half_open_octets = usize::MAX;
    let any: IpAddr = match plan.addresses.version() {
        IpVersion::V4 => Ipv4Addr::UNSPECIFIED.into(),
        IpVersion::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let of_gateways = usher_radius::server::ClientConfig::new(any, 0, Secret::new(eap::SECRET.as_bytes()));
    let mut radius = usher_radius::server::Config::new(vec![of_gateways]);
    radius.retain = ike.radius.duplicate_cache.get();
    config.radius = Some(radius);
    let mut endpoint = Endpoint::new(plan.at(host));
    let socket = endpoint.socket(radius_socket(0));
    let seed = plan.seed.derive("aaa.server", index);
    let role = ServerRole::new(endpoint, config, aaa::alone(seed), seed).map_err(WorldError::Role)?;
    let app = plan.role(host, role);
    plan.builder.bind_udp(app, socket, RADIUS)?;
    Ok(())
}

//! Builds initiators, gateways and AAA servers of a scenario.

use super::super::aaa::{self, ServerRole, build_worker_pool};
use super::super::arrivals::{ArrivalPattern, ArrivalProcess};
use super::super::eap;
use super::super::error::ScenarioRunError;
use super::super::handshakes;
use super::super::ike_service::{GatewayRole, HELPERS};
use super::super::machine::MachineSockets;
use super::super::plan::NetworkPlan;
use super::super::topology::NetworkTopology;
use super::certificates::{AuthenticationSide, fixture_credentials, trusted_roots};
use super::initiator::{InitiatorConfig, InitiatorRole};
use super::protection::HostSecurityPolicies;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use usher_aaa::{AuthMethod, User, UserDirectory, UserSource, radius_socket};
use usher_core::Duration;
use usher_crypto::SecretValue;
use usher_crypto::tls::{
    ClientConfig, KeyLog, ServerConfig, SharedWallClock, TlsClientOptions, TlsServerOptions, fixtures,
    record_handshake,
};
use usher_eap::method::peap::PeapPeerFactory;
use usher_eap::method::tls::{EapTlsPeerFactory, PeerTlsBackend, ServerTlsBackend};
use usher_eap::method::ttls::{TtlsInnerCredential, TtlsPeerFactory};
use usher_eap::method::{PeerMethodFactory, gtc, md5, mschapv2};
use usher_gateway::{
    AaaClientConfig, AccountingRetryConfig, GatewayConfig, GatewayConnectionConfig, IkeGateway, NAT_SOCKET,
    SOCKET,
};
use usher_ike::credentials::IkeCredentials;
use usher_ike::machine::{
    self as machine, ChildSaConfig, ChildlessPolicy, IkeConnectionConfig, IpsecMode, LocalAuth, RemoteAuth,
    RetransmissionConfig,
};
use usher_ike::payload::{Identification, Proposal};
use usher_ike::work::{SIGN, VERIFY};
use usher_nas::{AaaConfig, NasIdentity, PORT_TYPE_VIRTUAL, RadiusConfig};
use usher_radius::SharedSecret;
use usher_radius::client;
use usher_scenario::model::{IkeMethod, IkeWorkload};
use usher_scenario::ports::{IKE, IKE_NAT, RADIUS};
use usher_sim::{HostId, IpVersion};

/// The name of the connection at the gateway and at each initiator.
const NAME: &str = "study";
/// The pre-shared key of initiators and gateways.
const KEY: &[u8] = b"a key for simulations alone";
/// The realm of the identities.
const REALM: &str = "example.org";
/// The longest EAP packet through IKE without fragments, in octets, as a gateway sends it to its AAA server
/// (Framed-MTU).
const FRAMED_MTU: u32 = 1100;

/// TLS of EAP methods for both sides.
struct IkeTlsSetup {
    peer: IkeTlsHandshakeSource,
    server: ServerTlsBackend,
    fragment: usize,
}

enum IkeTlsHandshakeSource {
    Real(ClientConfig),
    Recorded(Arc<usher_crypto::tls::TlsHandshakeRecording>),
}

impl IkeTlsSetup {
    fn new(ike: &IkeWorkload, key_log: &KeyLog) -> Result<Self, ScenarioRunError> {
        let own = &ike.certificates;
        let clock = || SharedWallClock::from_time(fixtures::WALL_TIME);
        let mutual = ike.method == IkeMethod::EapTls;
        let client = || {
            ClientConfig::new(TlsClientOptions {
                versions: own.version.into(),
                credentials: mutual.then(|| {
                    fixture_credentials(own.kind, AuthenticationSide::Initiator, own.initiator_chain)
                }),
                roots: trusted_roots(own.kind),
                server_name: None,
                resumption: None,
                clock: clock(),
                key_log: Some(key_log.clone()),
            })
        };
        let server = || {
            ServerConfig::new(TlsServerOptions {
                versions: own.version.into(),
                credentials: fixture_credentials(own.kind, AuthenticationSide::Server, own.server_chain),
                client_roots: mutual.then(|| trusted_roots(own.kind)),
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
            let recording =
                handshakes::recorded_handshake(name, || record_handshake(&client()?, &server()?))?;
            return Ok(Self {
                peer: IkeTlsHandshakeSource::Recorded(recording.clone()),
                server: ServerTlsBackend::Recorded(recording),
                fragment,
            });
        }
        Ok(Self {
            peer: IkeTlsHandshakeSource::Real(client()?),
            server: ServerTlsBackend::Real(server()?),
            fragment,
        })
    }

    fn peer_tls(&self, initiator: u64) -> PeerTlsBackend {
        match &self.peer {
            IkeTlsHandshakeSource::Real(config) => PeerTlsBackend::Real(config.clone(), initiator),
            IkeTlsHandshakeSource::Recorded(recording) => PeerTlsBackend::Recorded(recording.clone()),
        }
    }
}

/// Places the workload's roles on the topology's hosts.
pub(in super::super) fn build_ike_roles(
    plan: &mut NetworkPlan<'_>,
    topology: &NetworkTopology,
    ike: &IkeWorkload,
    key_log: &KeyLog,
) -> Result<(), ScenarioRunError> {
    let initiators = topology.host_group(&ike.initiators)?;
    let gateways = topology.host_group(&ike.gateway)?;
    let servers = topology.host_group(&ike.server)?;
    let tls = ike.method.has_tls().then(|| IkeTlsSetup::new(ike, key_log)).transpose()?;
    let names: Vec<Vec<u8>> =
        (0..initiators.len() as u64).map(|i| eap::station_identity(plan.name, i, REALM)).collect();
    if ike.method.is_eap() {
        for (i, &host) in (0..).zip(servers) {
            place_aaa_server(plan, ike, tls.as_ref(), &names, (i, host))?;
        }
    }
    for (i, &host) in gateways.iter().enumerate() {
        let protection = ike.policy.as_ref().map(|_| {
            let own = initiators.iter().skip(i).step_by(gateways.len());
            HostSecurityPolicies::of_gateway(own.map(|host| plan.addresses.address_of(*host)).collect())
        });
        place_workload_gateway(plan, ike, (host, servers[i % servers.len()]), protection)?;
    }
    let pattern = ArrivalPattern::new(&ike.arrivals, initiators.len() as u64, plan.end);
    for (i, &host) in initiators.iter().enumerate() {
        let index = i as u64;
        let (connection, credentials) = build_initiator(ike, tls.as_ref(), (index, &names[i]))?;
        let at = |host: HostId| SocketAddr::new(plan.addresses.address_of(host), IKE);
        let task = InitiatorConfig {
            endpoint: endpoint_config(ike),
            connection: Arc::new(connection),
            credentials: Arc::new(credentials),
            local: at(host),
            remote: at(gateways[i % gateways.len()]),
            reauthentication: ike.reauthentication,
            lifetime: ike.lifetime.get().map(|time| time.get()),
            give_up: ike.give_up.get().map(|time| time.get()),
            protection: ike.policy.as_ref().map(|policy| {
                let gateway = plan.addresses.address_of(gateways[i % gateways.len()]);
                HostSecurityPolicies::of_initiator(gateway, policy.without_sa)
            }),
            resumes: ike.resumption.get().is_some(),
            on_demand: ike.policy.as_ref().is_some_and(|policy| policy.on_demand),
        };
        let rng = plan.seed.derive_rng("arrivals", index);
        let arrivals = ArrivalProcess::new(&pattern, index, rng);
        let seed = plan.seed.derive_seed("ike.initiator", index);
        let helpers = ike_worker_pool(plan, &ike.initiators, seed);
        let mut endpoint = MachineSockets::new(plan.host_address(host));
        let sockets = [(machine::SOCKET, IKE), (machine::NAT_SOCKET, IKE_NAT)]
            .map(|(id, port)| (endpoint.socket_number(id), port));
        let app = plan.add_role(host, InitiatorRole::new(endpoint, task, helpers, seed, arrivals));
        sockets.into_iter().try_for_each(|(socket, port)| plan.builder.bind_udp(app, socket, port))?;
    }
    Ok(())
}

fn ike_worker_pool<J>(
    plan: &NetworkPlan<'_>,
    host: &str,
    seed: usher_core::Seed,
) -> super::super::helpers::WorkerPool<J> {
    let cpu = plan.scenario.hosts.get(host).and_then(|host| host.cpu.as_ref());
    let kinds: &[_] = if cpu.is_some_and(|cpu| cpu.aside.names().next().is_some()) {
        &[(SIGN, HELPERS, false), (VERIFY, HELPERS, false)]
    } else {
        &[]
    };
    build_worker_pool(cpu, seed.derive_rng("helpers", 0), kinds)
}

fn endpoint_config(ike: &IkeWorkload) -> machine::IkeEndpointConfig {
    let retransmission = RetransmissionConfig {
        first: ike.retransmission.get(),
        count: ike.retransmissions.get(),
        ..RetransmissionConfig::default()
    };
    let tickets = ike.resumption.get().map(|time| time.get());
    // As the studies assume, require cookies from 100 half-open SAs on, without a limit for each network.
    let (cookies_from, cookies_from_network) = (100, usize::MAX);
    machine::IkeEndpointConfig {
        retransmission,
        tickets,
        cookies_from,
        cookies_from_network,
        ..machine::IkeEndpointConfig::default()
    }
}

/// Builds a connection without its authentication.
fn build_connection(
    ike: &IkeWorkload,
    (local, local_auth): (Identification, LocalAuth),
) -> Result<IkeConnectionConfig, ScenarioRunError> {
    let role = |why: &dyn std::fmt::Display| ScenarioRunError::Role(why.to_string());
    let (children, childless) = if ike.has_no_child_sa() {
        (Vec::new(), ChildlessPolicy::Force)
    } else {
        let child = ChildSaConfig {
            name: NAME.to_owned(),
            proposals: vec![Proposal::parse_esp_proposal(&ike.child).map_err(|why| role(&why))?],
            local: None,
            remote: None,
            mode: IpsecMode::Transport,
            rekey_after: None,
        };
        (vec![child], ChildlessPolicy::Never)
    };
    let proposals = vec![Proposal::parse_ike_proposal(&ike.proposal).map_err(|why| role(&why))?];
    Ok(IkeConnectionConfig {
        local_auth,
        children,
        childless,
        fragmentation: true,
        ..IkeConnectionConfig::shared_key(NAME, local, &SecretValue::from(KEY), proposals)
    })
}

/// Returns the certificate authentication of a side: its own certificate, and its check of the peer's.
fn certificate_auth(
    ike: &IkeWorkload,
    side: AuthenticationSide,
    credentials_of: &mut IkeCredentials,
) -> Result<(LocalAuth, RemoteAuth), ScenarioRunError> {
    let own = &ike.certificates;
    let length = if side == AuthenticationSide::Initiator { own.initiator_chain } else { own.server_chain };
    let certificate = fixture_credentials(own.kind, side, length);
    let kind = credentials_of.set_connection_signing_key(NAME, certificate.signing_key()?);
    let roots = trusted_roots(own.kind);
    let authorities = roots.certificates().filter_map(usher_crypto::x509::public_key_hash).collect();
    credentials_of.set_connection_trust_roots(
        NAME,
        roots,
        SharedWallClock::from_time(fixtures::WALL_TIME),
    )?;
    let chain = certificate.certificate_chain().map(<[u8]>::to_vec).collect();
    Ok((LocalAuth::Certificate { chain, kind, pss: false }, RemoteAuth::Certificate { authorities }))
}

fn build_initiator(
    ike: &IkeWorkload,
    tls: Option<&IkeTlsSetup>,
    (index, name): (u64, &[u8]),
) -> Result<(IkeConnectionConfig, IkeCredentials), ScenarioRunError> {
    let mut credentials = IkeCredentials::new();
    let own = Identification::from_mail_address(&String::from_utf8_lossy(name));
    let offer = |tls: &IkeTlsSetup| -> Box<dyn PeerMethodFactory> {
        let (fragment, identity, engine) = (tls.fragment, name.to_vec(), tls.peer_tls(index));
        match ike.method {
            IkeMethod::Peap => {
                let inner: Box<dyn PeerMethodFactory> =
                    Box::new(mschapv2::MsChapV2Account::new(name, eap::PASSWORD));
                Box::new(PeapPeerFactory { tls: engine, fragment, identity, inner: Arc::new([inner]) })
            }
            IkeMethod::Ttls => {
                let proof = TtlsInnerCredential::Pap(eap::PASSWORD.into());
                Box::new(TtlsPeerFactory { tls: engine, fragment, identity, proof })
            }
            _ => Box::new(EapTlsPeerFactory { tls: engine, fragment }),
        }
    };
    let method: Box<dyn PeerMethodFactory> = match (ike.method, tls) {
        (IkeMethod::Psk, _) => {
            return Ok((build_connection(ike, (own, LocalAuth::Psk(SecretValue::from(KEY))))?, credentials));
        }
        (IkeMethod::Certificate, _) => {
            let (local, remote_auth) =
                certificate_auth(ike, AuthenticationSide::Initiator, &mut credentials)?;
            let connection =
                build_connection(ike, (Identification::from_mail_address(fixtures::CLIENT_NAME), local))?;
            let remote = Some(Identification::from_fqdn(fixtures::SERVER_NAME));
            return Ok((IkeConnectionConfig { remote, remote_auth, ..connection }, credentials));
        }
        (_, Some(tls)) => offer(tls),
        (IkeMethod::EapMd5, None) => Box::new(md5::EapMd5Password::new(&SecretValue::from(eap::PASSWORD))),
        (IkeMethod::EapGtc, None) => Box::new(gtc::GtcToken::new(eap::PASSWORD)),
        (_, None) => Box::new(mschapv2::MsChapV2Account::new(name, eap::PASSWORD)),
    };
    let local_auth = LocalAuth::Eap { identity: name.to_vec(), methods: Arc::new([method]) };
    Ok((build_connection(ike, (own, local_auth))?, credentials))
}

fn place_workload_gateway(
    plan: &mut NetworkPlan<'_>,
    ike: &IkeWorkload,
    (host, server): (HostId, HostId),
    protection: Option<HostSecurityPolicies>,
) -> Result<(), ScenarioRunError> {
    let mut credentials = IkeCredentials::new();
    let own = Identification::from_fqdn(fixtures::SERVER_NAME);
    let connection = match ike.method {
        IkeMethod::Certificate => {
            let (local, remote_auth) = certificate_auth(ike, AuthenticationSide::Server, &mut credentials)?;
            IkeConnectionConfig { remote_auth, ..build_connection(ike, (own, local))? }
        }
        IkeMethod::Psk => build_connection(ike, (own, LocalAuth::Psk(SecretValue::from(KEY))))?,
        _ => {
            let remote_auth = RemoteAuth::Eap { request_identity: false };
            IkeConnectionConfig {
                remote_auth,
                ..build_connection(ike, (own, LocalAuth::Psk(SecretValue::from(KEY))))?
            }
        }
    };
    let address = plan.addresses.address_of(host);
    let any = |ip: IpAddr| {
        if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { IpAddr::from(Ipv6Addr::UNSPECIFIED) }
    };
    let peer = GatewayConnectionConfig::responder_only(connection, SocketAddr::new(any(address), IKE));
    let aaa = ike.method.is_eap().then(|| {
        let at = SocketAddr::new(plan.addresses.address_of(server), RADIUS);
        let mut config = client::RadiusClientConfig::for_server(client::ServerConfig::new(
            at,
            SharedSecret::new(eap::SECRET.as_bytes()),
        ));
        config.retransmission = eap::radius_retransmission(&ike.radius.retransmission);
        AaaClientConfig {
            nas: NasIdentity {
                address: Some(address),
                port_type: Some(PORT_TYPE_VIRTUAL),
                framed_mtu: Some(FRAMED_MTU),
                ..NasIdentity::for_ethernet("gateway")
            },
            servers: AaaConfig::Radius(RadiusConfig::new(config)),
            accounting: false,
            interim: None,
            record_retry: AccountingRetryConfig::default(),
        }
    });
    let mut config = GatewayConfig::for_peer(endpoint_config(ike), peer);
    config.subscribers.aaa = aaa;
    let seed = plan.seed.derive_seed("ike.gateway", u64::from(host.0));
    let gateway = IkeGateway::new(config.clone(), seed.derive_secure_rng("ike.start", 0))
        .map_err(|why| ScenarioRunError::Role(why.to_string()))?;
    let mut endpoint = MachineSockets::new(plan.host_address(host));
    let sockets = [(SOCKET, IKE), (NAT_SOCKET, IKE_NAT)].map(|(id, port)| (endpoint.socket_number(id), port));
    let helpers = ike_worker_pool(plan, &ike.gateway, seed);
    let (credentials, seed) = (Arc::new(credentials), (seed, protection));
    let role = GatewayRole::of_workload(endpoint, (config, gateway), credentials, helpers, seed);
    let app = plan.add_role(host, role);
    sockets.into_iter().try_for_each(|(socket, port)| plan.builder.bind_udp(app, socket, port))?;
    Ok(())
}

fn place_aaa_server(
    plan: &mut NetworkPlan<'_>,
    ike: &IkeWorkload,
    tls: Option<&IkeTlsSetup>,
    names: &[Vec<u8>],
    (index, host): (u64, HostId),
) -> Result<(), ScenarioRunError> {
    let mut rng = plan.seed.derive_secure_rng("aaa.server", index);
    let mut users = UserDirectory::new(&mut rng);
    for name in names {
        users.insert(name, User::with_password(eap::PASSWORD));
    }
    let mut config = usher_aaa::AaaServerConfig::new(UserSource::Memory(Arc::new(users)));
    let method = match ike.method {
        IkeMethod::EapMd5 => AuthMethod::EapMd5,
        IkeMethod::EapMsChapV2 => AuthMethod::EapMsChapV2,
        IkeMethod::EapGtc => AuthMethod::EapGtc,
        IkeMethod::Peap => AuthMethod::Peap,
        IkeMethod::Ttls => AuthMethod::Ttls,
        IkeMethod::EapTls | IkeMethod::Psk | IkeMethod::Certificate => AuthMethod::EapTls,
    };
    config.methods = vec![method];
    if let Some(tls) = tls {
        eap::offer_tls_method(&mut config, method, tls.server.clone(), tls.fragment);
    }
    // Set no limits on time and number: a study must show the network's effect on logins, however many and slow.
    config.login_timeout = Duration::MAX;
    config.max_half_open_octets = usize::MAX;
    let any: IpAddr = match plan.addresses.ip_version() {
        IpVersion::V4 => Ipv4Addr::UNSPECIFIED.into(),
        IpVersion::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let of_gateways =
        usher_radius::server::ClientConfig::new(any, 0, SharedSecret::new(eap::SECRET.as_bytes()));
    let mut radius = usher_radius::server::RadiusServerConfig::new(vec![of_gateways]);
    radius.retain = ike.radius.duplicate_cache.get();
    config.radius = Some(radius);
    let mut endpoint = MachineSockets::new(plan.host_address(host));
    let socket = endpoint.socket_number(radius_socket(0));
    let seed = plan.seed.derive_seed("aaa.server", index);
    let role = ServerRole::new(endpoint, config, aaa::build_standalone_server_parts(seed), seed)
        .map_err(ScenarioRunError::Role)?;
    let app = plan.add_role(host, role);
    plan.builder.bind_udp(app, socket, RADIUS)?;
    Ok(())
}

//! The deployment: the server with its configuration, a processor charged by a profile, and the users.

use crate::login::{GeneratorLoginMethod, LoginMethod, LoginMethodError};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use usher_aaa::store::{AttributeRow, RowOperator, UserRows};
use usher_aaa_config::{LoadedAaaConfig, model::StoreKind};
use usher_config::units::{PositiveCount, TimeSpan};
use usher_config::{ConfigEnvironment, ConfigErrors, Prefix};
use usher_core::WallTime;
use usher_crypto::tls::{
    ClientConfig, SharedWallClock, TlsClientOptions, TlsCredentials, TlsVersion, TlsVersionRange, TrustRoots,
    fixtures,
};
use usher_load::{DiameterTransport, EapTlsConfig, UserCredentialTable};
use usher_profile::{MachineSpeedFactors, ProfileMismatchError, ProfileRequirement, ServerProfile};
use usher_scenario::model::CpuSettings;

/// Default addresses of the server and of its clients (RFC 5737).
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 11));
/// Default Diameter identities.
const IDENTITIES: [&str; 2] = ["aaa.plan.example", "nas.plan.example"];
const PASSWORD: &str = "a password of a plan";
/// Maximum number of simulated users: the logins of one step need no more.
const MOST_USERS: usize = 20_000;
/// The longest EAP packet of a user's device.
const FRAGMENT: usize = 1398;

/// The rows of each user in the store, by name.
type UserStoreRows = Vec<(String, UserRows)>;

/// TLS of users: their certificate and trust.
#[derive(Clone, Debug)]
pub struct UserTlsConfig {
    /// Their certificate and key, which all devices of one user share.
    pub credentials: Option<TlsCredentials>,
    /// The authorities of the server's certificate.
    pub roots: TrustRoots,
    /// The user name in the certificate.
    pub name: Option<String>,
}

/// A deployment.
#[derive(Debug)]
pub struct ServerDeployment {
    /// The server's configuration.
    pub config: Arc<LoadedAaaConfig>,
    /// Its processor.
    pub cpu: CpuSettings,
    /// The methods.
    pub methods: Vec<LoginMethod>,
    /// The server's address.
    pub(crate) server: IpAddr,
    /// The RADIUS clients and the Diameter clients, if any.
    pub(crate) radius: Option<RadiusClientSettings>,
    pub(crate) diameter: Option<DiameterClientSettings>,
    /// True for an IKEv2 gateway.
    pub(crate) ike: bool,
    /// The methods as the generator's logins, in order.
    pub(crate) logins: Vec<GeneratorLoginMethod>,
    pub(crate) users: Arc<UserCredentialTable>,
    pub(crate) rows: UserStoreRows,
    /// The simulated time of day.
    pub(crate) epoch: WallTime,
    /// Round-trip time from the network.
    pub round_trip: TimeSpan,
    /// Share of lost packets in each direction.
    pub loss: f64,
}

/// The RADIUS side of the clients.
#[derive(Clone, Debug)]
pub(crate) struct RadiusClientSettings {
    pub(crate) from: IpAddr,
    pub(crate) secret: Vec<u8>,
    pub(crate) port: u16,
}

/// The Diameter side of the clients.
#[derive(Clone, Debug)]
pub(crate) struct DiameterClientSettings {
    pub(crate) from: IpAddr,
    pub(crate) host: String,
    pub(crate) server: String,
    pub(crate) realm: String,
    pub(crate) port: u16,
    pub(crate) transport: DiameterTransport,
}

/// The reason why a deployment cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum DeploymentError {
    /// A method is invalid.
    #[error(transparent)]
    Method(#[from] LoginMethodError),
    /// The profile does not fit.
    #[error("{0}")]
    Misfit(ProfileMismatchError),
    /// The configuration lacks something that a plan needs.
    #[error("{0}")]
    Config(String),
    /// The processor is invalid.
    #[error("{0}")]
    Cpu(String),
}

/// Returns a default configuration for methods: users in its store, one client, and the built-in test certificates.
///
/// # Errors
/// A fault of the program.
pub fn builtin_config(methods: &[LoginMethod], store: StoreKind) -> Result<LoadedAaaConfig, ConfigErrors> {
    let mut order: Vec<&str> = methods.iter().filter_map(LoginMethod::configured_method_name).collect();
    order.dedup();
    // A gateway has no login method of an AAA server, but the list must not be empty, so add one.
    if order.is_empty() {
        order.push("pap");
    }
    let order: Vec<String> = order.iter().map(|name| format!("\"{name}\"")).collect();
    let store = match store {
        StoreKind::Memory => "memory",
        StoreKind::Sqlite => "sqlite",
        StoreKind::Postgresql => "postgresql\"\nurl = \"host=localhost",
    };
    let tls = if methods.iter().any(LoginMethod::has_tls) {
        "[tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nca = \"root.pem\"\nsessions = 0\n"
    } else {
        ""
    };
    let [identity, peer] = IDENTITIES;
    let (listen, diameter) = if methods.iter().any(LoginMethod::is_diameter) {
        let realm = identity.split_once('.').map_or(identity, |(_, realm)| realm);
        (
            format!("diameter = [\"{SERVER}:3868\"]\n"),
            format!(
                "[diameter]\nidentity = \"{identity}\"\nrealm = \"{realm}\"\n[[diameter.peer]]\nidentity = \"{peer}\"\n\
                     prefix = [\"192.0.2.0/24\"]\n"
            ),
        )
    } else {
        (String::new(), String::new())
    };
    let text = format!(
        "[listen]\nauth = [\"{SERVER}:1812\"]\nacct = []\n{listen}[users]\nstore = \"{store}\"\n[methods]\norder = [{}]\n\
         [[client]]\nname = \"plan\"\nprefix = \"192.0.2.0/24\"\nsecret = \"a secret of the plan's own\"\n{tls}{diameter}",
        order.join(", ")
    );
    usher_aaa_config::parse("the plan's own configuration", &text, None, &DefaultConfigFiles)
}

/// The files of the default configuration.
struct DefaultConfigFiles;

impl ConfigEnvironment for DefaultConfigFiles {
    fn read_text(&self, path: &Path) -> Result<String, String> {
        let [chain, key, root] = fixtures::server_chain_pem_texts(2);
        match path.to_str() {
            Some("server.pem") => Ok(chain),
            Some("server.key") => Ok(key),
            Some("root.pem") => Ok(root),
            _ => Err(format!("{}: the plan has no such file", path.display())),
        }
    }
    fn read_secret(&self, path: &Path) -> Result<String, String> {
        self.read_text(path)
    }
    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

/// Returns the users' side of the built-in certificates.
fn own_tls() -> UserTlsConfig {
    let roots = TrustRoots::from_der([fixtures::root_certificate()]);
    UserTlsConfig {
        credentials: Some(fixtures::client_credentials(2)),
        roots,
        name: Some(fixtures::CLIENT_NAME.to_owned()),
    }
}

/// The parts of a deployment.
#[derive(Debug)]
pub struct DeploymentInputs<'a> {
    /// The server's configuration; `None` for the default one.
    pub config: Option<LoadedAaaConfig>,
    /// The profile.
    pub profile: &'a ServerProfile,
    /// The program's version.
    pub program: &'a str,
    /// Methods with their weights.
    pub methods: Vec<LoginMethod>,
    /// Number of users.
    pub users: usize,
    /// Cores of each server.
    pub cores: PositiveCount,
    /// The factor of work compared with the profile's machine.
    pub scale: MachineSpeedFactors,
    /// Additional round-trip time to the store, compared with the profile's.
    pub distance: TimeSpan,
    /// Round-trip time from the network.
    pub round_trip: TimeSpan,
    /// Share of lost packets in each direction.
    pub loss: f64,
    /// TLS of users; `None` for the built-in one.
    pub tls: Option<UserTlsConfig>,
    /// The time of day.
    pub now: WallTime,
}

impl ServerDeployment {
    /// Assembles the deployment.
    ///
    /// # Errors
    /// A sentence with the part that does not fit.
    pub fn new(parts: DeploymentInputs<'_>) -> Result<Self, DeploymentError> {
        let DeploymentInputs { profile, methods, .. } = parts;
        let own = parts.config.is_none();
        let ike = methods.iter().any(LoginMethod::is_ike);
        if ike && !(own && methods.iter().all(LoginMethod::is_ike)) {
            return Err(DeploymentError::Config(
                "an IKEv2 gateway is planned alone, with the plan's own configuration: leave other methods out of the \
                 mix, and leave --config out"
                    .to_owned(),
            ));
        }
        let kind = profile.configuration.store;
        let config = match parts.config {
            Some(config) => config,
            None => {
                let store = match kind {
                    usher_profile::StoreKind::Memory => StoreKind::Memory,
                    usher_profile::StoreKind::Sqlite => StoreKind::Sqlite,
                    usher_profile::StoreKind::Postgresql => StoreKind::Postgresql,
                };
                builtin_config(&methods, store).map_err(|e| DeploymentError::Config(e.to_string()))?
            }
        };
        let store = match config.file.users.store {
            StoreKind::Memory => usher_profile::StoreKind::Memory,
            StoreKind::Sqlite => usher_profile::StoreKind::Sqlite,
            StoreKind::Postgresql => usher_profile::StoreKind::Postgresql,
        };
        let names: Vec<String> = methods.iter().map(|m| m.name.clone()).collect();
        let wanted = ProfileRequirement { program: parts.program, methods: &names, store: Some(store) };
        profile.check_requirements(&wanted).map_err(DeploymentError::Misfit)?;
        if parts.distance.get() > usher_core::Duration::ZERO && profile.store.is_none() {
            return Err(DeploymentError::Config(
                "the profile has no store lookups, so their cost at a distance is unknown: measure with that store, \
                 and with more users than its cache holds or without the cache"
                    .to_owned(),
            ));
        }
        let cpu = usher_scenario::profiled_cpu(profile, parts.cores, parts.scale, parts.distance)
            .map_err(DeploymentError::Cpu)?;
        let with_diameter = methods.iter().any(LoginMethod::is_diameter);
        let with_radius = !ike && !methods.iter().all(LoginMethod::is_diameter);
        let (server, radius) = match with_radius {
            true => {
                find_radius_listener_and_client(&config).map(|(server, side)| (Some(server), Some(side)))?
            }
            false => (None, None),
        };
        let (server, diameter) = match with_diameter {
            true => {
                find_diameter_listener_and_peer(&config, server).map(|(server, side)| (server, Some(side)))?
            }
            false => (server.unwrap_or(SERVER), None),
        };
        let epoch = if own { fixtures::WALL_TIME } else { parts.now };
        let tls = parts.tls.unwrap_or_else(own_tls);
        let with_tls = || {
            let options = TlsClientOptions {
                versions: TlsVersionRange { min: TlsVersion::Tls12, max: TlsVersion::Tls13 },
                credentials: tls.credentials.clone().map(TlsCredentials::with_even_signatures),
                roots: tls.roots.clone(),
                server_name: None,
                resumption: None,
                clock: SharedWallClock::from_time(epoch),
                key_log: None,
            };
            ClientConfig::new(options).map_err(|e| DeploymentError::Config(format!("the users' TLS: {e}")))
        };
        let with_tls =
            EapTlsConfig { config: with_tls()?, each: Arc::default(), fragment: FRAGMENT, resume: false };
        let logins = methods
            .iter()
            .map(|method| method.to_generator_login(&with_tls))
            .collect::<Result<Vec<_>, _>>()?;
        let (users, rows) = make_users(&methods, &tls, parts.users)?;
        let (round_trip, loss) = (parts.round_trip, parts.loss);
        let config = Arc::new(config);
        Ok(Self {
            config,
            cpu,
            methods,
            server,
            radius,
            diameter,
            ike,
            logins,
            users,
            rows,
            epoch,
            round_trip,
            loss,
        })
    }

    /// Returns the limit of concurrent logins.
    #[must_use]
    pub fn half_open(&self) -> usize {
        match self.ike {
            true => usher_ike::machine::IkeEndpointConfig::default().half_open,
            false => self.config.file.limits.half_open,
        }
    }

    /// Returns the number of the store's threads.
    #[must_use]
    pub fn store_threads(&self) -> u16 {
        self.config.file.users.threads.max(1)
    }
}

/// Returns the address of a server that listens there.
fn server_address(listens: SocketAddr) -> Result<IpAddr, DeploymentError> {
    match listens.ip() {
        IpAddr::V4(at) if at.is_unspecified() => Ok(SERVER),
        IpAddr::V4(at) => Ok(at.into()),
        IpAddr::V6(at) => {
            Err(DeploymentError::Config(format!("plans need IPv4, and the first listener has {at}")))
        }
    }
}

/// Returns the server's Diameter listener and an address of the first peer that may connect: by TCP if it listens
/// there, or by SCTP. `server` is its address for others.
fn find_diameter_listener_and_peer(
    config: &LoadedAaaConfig,
    server: Option<IpAddr>,
) -> Result<(IpAddr, DiameterClientSettings), DeploymentError> {
    let wrong = |what: &str| DeploymentError::Config(what.to_owned());
    let listen = &config.file.listen;
    let (at, transport) = match (listen.diameter.first(), listen.diameter_sctp.first(), &config.file.diameter)
    {
        (Some(at), _, _) => (*at, DiameterTransport::Stream),
        (None, Some(at), Some(diameter)) => {
            let policy = diameter.sctp.order.into();
            (*at, DiameterTransport::Message { streams: diameter.sctp.streams, policy })
        }
        _ => {
            return Err(wrong(
                "the plan's methods need Diameter over TCP or SCTP, and the configuration has no such listener \
                 (listen.diameter, listen.diameter_sctp); plans have no Diameter over TLS",
            ));
        }
    };
    let diameter =
        config.file.diameter.as_ref().ok_or_else(|| wrong("the configuration has no [diameter]"))?;
    let here = server_address(at)?;
    let server = server.unwrap_or(here);
    if server != here {
        return Err(wrong(
            "the configuration listens for RADIUS and for Diameter at different addresses: plans need one address",
        ));
    }
    let named = diameter.peer.iter().filter(|peer| peer.connect.is_none()).find_map(|peer| {
        let from = match peer.prefix.iter().find_map(|p| free_address(p, &[server, CLIENT])) {
            Some(from) => from,
            None if peer.prefix.is_empty() => PEER,
            None => return None,
        };
        Some((peer.identity.clone(), from))
    });
    let any = || {
        let host = diameter.peers.first().cloned();
        let host = host.or_else(|| diameter.peer.is_empty().then(|| IDENTITIES[1].to_owned()))?;
        Some((host, PEER))
    };
    let (host, from) = named.or_else(any).ok_or_else(|| {
        wrong("no [[diameter.peer]] of the configuration may open a connection from an IPv4 address")
    })?;
    let (identity, realm, port) = (diameter.identity.clone(), diameter.realm.clone(), at.port());
    Ok((server, DiameterClientSettings { from, host, server: identity, realm, port, transport }))
}

/// Returns an address of a network that is not in `taken`.
fn free_address(prefix: &Prefix, taken: &[IpAddr]) -> Option<IpAddr> {
    let IpAddr::V4(network) = prefix.network else { return None };
    let candidates = (0..8).map(|n| IpAddr::V4(Ipv4Addr::from_bits(network.to_bits().wrapping_add(n))));
    let size = 32 - u32::from(prefix.bits.min(32));
    [PEER]
        .into_iter()
        .chain(candidates.skip(usize::from(size >= 2)))
        .find(|at| prefix.contains(*at) && !taken.contains(at))
}

/// Returns the server's RADIUS listener and its first client.
fn find_radius_listener_and_client(
    config: &LoadedAaaConfig,
) -> Result<(IpAddr, RadiusClientSettings), DeploymentError> {
    let Some(listens) = config.file.listen.auth.first() else {
        return Err(DeploymentError::Config(
            "the plan's methods need RADIUS over UDP, and the configuration has no such listener \
             (listen.auth)"
                .to_owned(),
        ));
    };
    let server = server_address(*listens)?;
    let of_client = config.clients.iter().filter(|client| client.secret.is_some()).find_map(|client| {
        let IpAddr::V4(network) = client.prefix.network else { return None };
        let size = 32 - u32::from(client.prefix.bits.min(32));
        let candidates = [CLIENT, IpAddr::V4(network)];
        let further = (1..4_u32)
            .filter(|n| size >= 2 && *n < 1 << size.min(31))
            .map(|n| IpAddr::V4(Ipv4Addr::from_bits(network.to_bits().wrapping_add(n))));
        candidates.into_iter().chain(further).find(|at| {
            *at != server
                && client.prefix.contains(*at)
                && config.longest_prefix_client(*at).is_some_and(|c| c.name == client.name)
        })
    });
    let client = of_client.ok_or_else(|| {
        DeploymentError::Config(
            "no [[client]] of the configuration has an IPv4 address and a secret".to_owned(),
        )
    })?;
    let secret = config.longest_prefix_client(client).and_then(|client| client.secret.as_ref());
    let secret = secret.map(|secret| secret.0.as_bytes().to_vec()).ok_or_else(|| {
        DeploymentError::Config("no client of the configuration uses RADIUS over UDP".to_owned())
    })?;
    Ok((server, RadiusClientSettings { from: client, secret, port: listens.port() }))
}

/// Makes the users with their rows in the store. With EAP-TLS all are the user of the certificate.
fn make_users(
    methods: &[LoginMethod],
    tls: &UserTlsConfig,
    count: usize,
) -> Result<(Arc<UserCredentialTable>, UserStoreRows), DeploymentError> {
    let wrong = |e: String| DeploymentError::Config(e);
    let password = || AttributeRow {
        attribute: "Cleartext-Password".to_owned(),
        op: RowOperator::Replace,
        value: PASSWORD.to_owned(),
    };
    let rows = |name: &str| (name.to_owned(), UserRows { check: vec![password()], ..UserRows::default() });
    if methods.iter().any(|method| !method.has_password()) {
        let name = tls.name.as_ref().ok_or_else(|| {
            wrong(
                "EAP-TLS needs --certificate and --key of one user of the configuration, and --ca".to_owned(),
            )
        })?;
        let users =
            UserCredentialTable::from_template(name, PASSWORD, 1).map_err(|e| wrong(e.to_string()))?;
        return Ok((Arc::new(users), vec![rows(name)]));
    }
    let count = count.clamp(1, MOST_USERS);
    let users = UserCredentialTable::from_template("user{}@plan.example", PASSWORD, count)
        .map_err(|e| wrong(e.to_string()))?;
    let rows = (0..count).map(|n| rows(&format!("user{n}@plan.example"))).collect();
    Ok((Arc::new(users), rows))
}

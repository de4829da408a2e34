//! Builds the machines' configuration from the configuration file.

use crate::LoadedAaaConfig;
use crate::check::accepted_certificate_matches;
use crate::model::{
    self, BadReplyRowPolicy, ExtendedMasterSecret, InnerIdentityDisclosure, MessageAuthenticator,
    RealmAccounting, StoreKind,
};
#[cfg(feature = "tls")]
use crate::tls::TlsConfigs;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use usher_aaa::ledger::{LedgerConfig, LoginFailureLimit};
use usher_aaa::proxy::{
    self, AllowedExtraAttributes, HomeServer, Realm, RealmFilter, RealmTable, RealmTarget,
};
use usher_aaa::service::{CertificateChecker, InlineUsers, JobRunnerParts, UserRowReader};
use usher_aaa::store::{ClientRequirement, ClientRow};
use usher_aaa::{
    AaaServerConfig, AuthMethod, IdentityKey, User, UserCacheConfig, UserDirectory, UserSource,
    canonical_name,
};
use usher_config::Prefix;
use usher_core::{Duration, SecureRng, TransportProtocol};
use usher_diameter::codes::application;
use usher_diameter::node::{self, PeerAuthentication, PeerConfig};
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_radius::SharedSecret;
use usher_radius::attribute::VendorAttributeFormat;
use usher_radius::dictionary::{AttributeOid, RadiusDictionary};
use usher_radius::server::{ClientConfig, MessageAuthenticatorPolicy, PortRole};

/// The configuration of the machines. Shards differ in their number only.
#[derive(Clone, Debug)]
pub struct BuiltConfig {
    /// Configuration of a server without its shard number ([`AaaServerConfig::shard`]).
    pub config: AaaServerConfig,
    /// RADIUS clients by their index in the configuration.
    pub clients: Arc<ClientDirectory>,
    /// Users of the file.
    pub inline: InlineUsers,
    /// Clients that are not served.
    pub passed_over: Vec<SkippedClient>,
}

/// Names and networks of the clients, in the order of the machine's configuration.
#[derive(Clone, Debug, Default)]
pub struct ClientDirectory(Vec<(String, Prefix)>);

impl ClientDirectory {
    /// Returns the name of a client by its index.
    #[must_use]
    pub fn name(&self, index: u32) -> Option<&str> {
        self.0.get(index as usize).map(|(name, _)| name.as_str())
    }
    /// Returns the network of a client by its index.
    #[must_use]
    pub fn network(&self, index: u32) -> Option<Prefix> {
        self.0.get(index as usize).map(|(_, network)| *network)
    }
    /// Number of clients.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// True if there are no clients.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Returns the client of an address: the longest matching prefix.
    #[must_use]
    pub fn find_client_index(&self, address: IpAddr) -> Option<usize> {
        let found = self.0.iter().enumerate().filter(|(_, (_, network))| network.contains(address));
        found.max_by_key(|(i, (_, network))| (network.bits, core::cmp::Reverse(*i))).map(|(i, _)| i)
    }
}

/// A client that is not served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SkippedClient {
    /// Name of the client in the file or the store.
    pub client: String,
    /// Cause.
    pub why: SkippedClientReason,
}

/// The cause why a client is not served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SkippedClientReason {
    /// Another client has its addresses.
    DuplicateAddress,
    /// The store has no secret for it.
    NoSecret,
    /// The store has no valid network for it. A sentence that says how to fix it.
    NoNetwork(String),
    /// It belongs to this virtual server of FreeRADIUS, which is not served here. A client with a wider network
    /// does not replace it.
    OtherVirtualServer(String),
}

/// Further inputs of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct AaaConfigBuildInputs<'a> {
    /// Secret of loopback clients, if nothing is configured.
    pub generated: Option<&'a str>,
    /// Clients of the store.
    pub rows: &'a [ClientRow],
    /// Key of the aliases that hide names from clients.
    pub identity_key: &'a IdentityKey,
    /// The configuration of `[tls]`, by [`crate::tls::load_tls`].
    #[cfg(feature = "tls")]
    pub tls: Option<&'a TlsConfigs>,
    /// Number of shards, which divide the common limits.
    pub shards: usize,
}

/// Maximum number of queued TLS handshake steps in each shard, a millisecond each. A longer queue would exceed a
/// client's timeout.
const STEPS_WAITING: usize = 1 << 12;

/// Builds the machines' configuration.
///
/// # Errors
/// A sentence with the error.
pub fn build_config(
    loaded: &LoadedAaaConfig,
    with: AaaConfigBuildInputs<'_>,
    rng: &mut SecureRng,
) -> Result<BuiltConfig, String> {
    let file = &loaded.file;
    let mut inline = BTreeMap::new();
    for (name, rows) in &loaded.users {
        let user = User::compile(rows, &loaded.dictionary).map_err(|c| format!("user {name}: {c}"))?;
        inline.insert(canonical_name(name.as_bytes()).into_owned(), Arc::new(user));
    }
    let source = match file.users.store {
        StoreKind::Memory => {
            let mut users = UserDirectory::new(rng);
            for (name, user) in &inline {
                users.insert(name, User::clone(user));
            }
            UserSource::Memory(Arc::new(users))
        }
        StoreKind::Sqlite | StoreKind::Postgresql => {
            let users = &file.users;
            let (ttl, unknown_ttl) = (users.cache_ttl.0, users.cache_unknown.0);
            UserSource::Host(UserCacheConfig { entries: users.cache_entries, ttl, unknown_ttl })
        }
    };
    let ServedClients { clients, configs, lenient, inner_names, passed_over } =
        collect_clients(loaded, with, rng);
    let mut radius = usher_radius::server::RadiusServerConfig::new(configs);
    let roles = file.listen.auth.iter().map(|_| PortRole::Authentication);
    radius.roles = roles.chain(file.listen.acct.iter().map(|_| PortRole::Accounting)).collect();
    radius.max_entries = file.limits.requests;
    radius.max_bytes = REPLY_CACHE_SIZE;
    let mut config = AaaServerConfig::new(source);
    config.radius = Some(radius);
    config.without_extended_master_secret = lenient;
    config.diameter =
        file.diameter.as_ref().map(|d| diameter_config(d, &file.realm, &file.listen.diameter_sctp));
    config.methods = offered_methods(&file.methods, file.tls.is_some());
    #[cfg(feature = "tls")]
    if let Some(tls) = with.tls {
        offer_tls_methods(&mut config, &file.methods, tls);
    }
    config.full_answers = true;
    config.certificate_status = true;
    config.dictionary = Some(loaded.dictionary.clone());
    config.identity_key = Some(with.identity_key.clone());
    config.inner_names = inner_names;
    config.session_timeout = file.session_timeout.0;
    config.login_timeout = file.login_timeout.0;
    config.max_half_open_octets =
        usize::try_from(file.limits.half_open_memory.bytes()).unwrap_or(usize::MAX) / with.shards.max(1);
    config.max_steps_waiting = STEPS_WAITING;
    config.max_half_open = file.limits.half_open;
    config.reject_delay = file.reject_delay.0;
    config.failures = failure_limit(&file.limits);
    config.limits = config.failures.is_some() || file.limits.simultaneous.is_some();
    config.mab = file.methods.mab;
    config.dialler = Some(DIALLER);
    config.proxy = proxy_config(loaded)?;
    Ok(BuiltConfig { config, clients: Arc::new(clients), inline: Arc::new(inline), passed_over })
}

/// Adds the offers of PEAP and EAP-TTLS, and of EAP-TLS if there are authorities.
#[cfg(feature = "tls")]
fn offer_tls_methods(config: &mut AaaServerConfig, methods: &model::MethodConfig, tls: &TlsConfigs) {
    use usher_eap::method::InnerMethod;
    use usher_eap::method::peap::{CryptobindingPolicy, PeapServerFactory};
    use usher_eap::method::tls::{EapTlsServerFactory, ServerTlsBackend};
    use usher_eap::method::ttls::TtlsServerFactory;
    use usher_eap::packet::EapType;
    let fragment = usize::from(methods.fragment_size);
    if let Some(clients) = &tls.clients {
        config.tls =
            Some(Arc::new(EapTlsServerFactory { tls: ServerTlsBackend::Real(clients.clone()), fragment }));
    }
    let tls = ServerTlsBackend::Real(tls.anonymous.clone());
    let inner: Arc<[EapType]> = Arc::new([EapType::MSCHAPV2, EapType::GTC, EapType::MD5]);
    config.peap = Some(Arc::new(PeapServerFactory {
        tls: tls.clone(),
        fragment,
        inner: inner.clone(),
        cryptobinding: match methods.peap_cryptobinding {
            model::CryptobindingMode::Off => CryptobindingPolicy::Off,
            model::CryptobindingMode::Optional => CryptobindingPolicy::Optional,
            model::CryptobindingMode::Required => CryptobindingPolicy::Required,
        },
    }));
    let plain = [InnerMethod::Pap, InnerMethod::Chap, InnerMethod::MsChap, InnerMethod::MsChapV2];
    let inner = inner.iter().map(|kind| InnerMethod::Eap(*kind)).chain(plain).collect();
    config.ttls = Some(Arc::new(TtlsServerFactory { tls, fragment, inner }));
}

/// The shard that connects to Diameter peers. A peer accepts one connection of an identity (RFC 6733 §5.6). Other
/// shards pass their requests to this shard.
pub const DIALLER: u16 = 0;

/// Makes a shard connect to no Diameter peer.
pub fn disable_outgoing_peers(config: &mut AaaServerConfig) {
    for peer in config.diameter.iter_mut().flat_map(|d| &mut d.peers) {
        peer.address = None;
    }
}

fn offered_methods(methods: &model::MethodConfig, tls: bool) -> Vec<AuthMethod> {
    let mut all = methods.order.clone().unwrap_or_else(|| {
        use AuthMethod::{Chap, EapMd5, EapMsChapV2, EapTls, MsChap, MsChapV2, Pap, Peap, Ttls};
        // With certificates, only EAP methods inside TLS are offered by default. An eavesdropper can read or guess the
        // password of the other EAP methods.
        let eap = if tls { [EapTls, Peap, Ttls].to_vec() } else { [EapMsChapV2, EapMd5].to_vec() };
        [eap, vec![Pap, Chap, MsChapV2, MsChap]].concat()
    });
    if methods.mab {
        all.push(AuthMethod::Mab);
    }
    all
}

fn message_authenticator_policy(asked: MessageAuthenticator) -> MessageAuthenticatorPolicy {
    match asked {
        MessageAuthenticator::Required => MessageAuthenticatorPolicy::Required,
        MessageAuthenticator::LimitProxyState => MessageAuthenticatorPolicy::ProxyState,
        MessageAuthenticator::Off => MessageAuthenticatorPolicy::Off,
    }
}

/// Maximum octets of the duplicate cache in each shard: about 30,000 short replies.
const REPLY_CACHE_SIZE: usize = 12 << 20;

/// The served clients, and the indices of those with special settings.
#[derive(Default)]
struct ServedClients {
    clients: ClientDirectory,
    configs: Vec<ClientConfig>,
    /// Clients whose users' devices may lack the Extended Master Secret.
    lenient: Vec<u32>,
    /// Clients that get the inner identity.
    inner_names: Vec<u32>,
    passed_over: Vec<SkippedClient>,
}

impl ServedClients {
    fn add_client(
        &mut self,
        name: &str,
        (secret, inner): (ExtendedMasterSecret, InnerIdentityDisclosure),
        config: ClientConfig,
    ) {
        let same = |c: &ClientConfig| {
            c.network == config.network && c.prefix == config.prefix && c.transport == config.transport
        };
        if self.configs.iter().any(same) {
            return self.pass_over(name, SkippedClientReason::DuplicateAddress);
        }
        let place = u32::try_from(self.configs.len());
        if secret == ExtendedMasterSecret::Optional {
            self.lenient.extend(place);
        }
        if inner == InnerIdentityDisclosure::Send {
            self.inner_names.extend(place);
        }
        self.clients.0.push((name.to_owned(), Prefix { network: config.network, bits: config.prefix }));
        self.configs.push(config);
    }
    fn pass_over(&mut self, client: &str, why: SkippedClientReason) {
        self.passed_over.push(SkippedClient { client: client.to_owned(), why });
    }
}

/// Collects clients of the file, then those of the store, then loopback if nothing is configured.
fn collect_clients(
    loaded: &LoadedAaaConfig,
    with: AaaConfigBuildInputs<'_>,
    rng: &mut SecureRng,
) -> ServedClients {
    let mut served = ServedClients::default();
    let of_most = (ExtendedMasterSecret::Required, InnerIdentityDisclosure::Hide);
    for client in &loaded.clients {
        let Prefix { network, bits } = client.prefix;
        let of_file = (client.extended_master_secret, client.inner_name);
        let speaks_for: Vec<_> = client.nas.iter().map(|nas| (nas.network, nas.bits)).collect();
        if let Some(secret) = &client.secret {
            let mut config = ClientConfig::new(network, bits, SharedSecret::new(secret.0.as_bytes()));
            config.message_authenticator = message_authenticator_policy(client.message_authenticator);
            config.speaks_for.clone_from(&speaks_for);
            served.add_client(&client.name, of_file, config);
        }
        if !client.certificates.is_empty() {
            let config = ClientConfig::for_radsec(network, bits, client.certificates.clone());
            served.add_client(&client.name, of_file, ClientConfig { speaks_for, ..config });
        }
    }
    for row in with.rows {
        match Prefix::parse(&row.nasname) {
            Ok(_) if row.secret.is_empty() => {
                served.pass_over(&row.nasname, SkippedClientReason::NoSecret);
            }
            Ok(Prefix { network, bits }) if let Some(server) = row.virtual_server() => {
                // This row is for another virtual server. A random secret makes its packets fail verification, and they
                // match no client of a wider network.
                let unknown = SharedSecret::new(&rng.random_array::<32>());
                served.add_client(&row.nasname, of_most, ClientConfig::new(network, bits, unknown));
                served.pass_over(&row.nasname, SkippedClientReason::OtherVirtualServer(server.to_owned()));
            }
            Ok(Prefix { network, bits }) => {
                let mut config = ClientConfig::new(network, bits, SharedSecret::new(row.secret.as_bytes()));
                config.message_authenticator =
                    match (row.require_message_authenticator, row.limit_proxy_state) {
                        (ClientRequirement::No, ClientRequirement::No) => MessageAuthenticatorPolicy::Off,
                        (ClientRequirement::No, _) => MessageAuthenticatorPolicy::ProxyState,
                        _ => MessageAuthenticatorPolicy::Required,
                    };
                let name = if row.shortname.is_empty() { &row.nasname } else { &row.shortname };
                served.add_client(name, of_most, config);
            }
            Err(error) => served.pass_over(&row.nasname, SkippedClientReason::NoNetwork(error)),
        }
    }
    if let Some(secret) = with.generated {
        for (network, bits) in
            [(IpAddr::from(Ipv4Addr::new(127, 0, 0, 0)), 8), (IpAddr::from(Ipv6Addr::LOCALHOST), 128)]
        {
            served.add_client(
                "loopback",
                of_most,
                ClientConfig::new(network, bits, SharedSecret::new(secret.as_bytes())),
            );
        }
    }
    served
}

fn diameter_config(
    d: &model::DiameterTable,
    realms: &[model::RealmConfig],
    sctp: &[SocketAddr],
) -> node::DiameterNodeConfig {
    // RFC 6733, 2.4, 2.8.4, 9.3; RFC 4072, 2.1; RFC 7155, 1.4: the applications that the server announces.
    let applications = [
        DiameterApplication::for_authentication(application::EAP),
        DiameterApplication::for_authentication(application::NASREQ),
        DiameterApplication::for_accounting(application::ACCOUNTING),
    ];
    let mut config = node::DiameterNodeConfig::new(&d.identity, &d.realm, &applications);
    config.watchdog = Some(d.watchdog.0);
    config.realms.clone_from(&d.realms);
    config.agents.clone_from(&d.agents);
    config.accept_unknown = d.peers.is_empty() && d.peer.is_empty();
    config.accept_policy = d.sctp.order.into();
    // RFC 6733, 5.3.1: CER and CEA list all SCTP addresses. Without any, they list the local address of the
    // connection.
    for address in sctp.iter().map(SocketAddr::ip) {
        if !config.local.addresses.contains(&address) {
            config.local.addresses.push(address);
        }
    }
    for peer in &d.peers {
        config = config.accept_from(peer);
    }
    for peer in &d.peer {
        let mut networks: Vec<_> = peer.prefix.iter().map(|p| (p.network, p.bits)).collect();
        if let Some(connect) = peer.connect.filter(|_| networks.is_empty()) {
            networks.push((connect.ip(), if connect.is_ipv4() { 32 } else { 128 }));
        }
        config.peers.push(PeerConfig {
            host: peer.identity.clone(),
            address: peer.connect,
            transport: match peer.transport {
                TransportProtocol::Sctp => node::PeerTransportConfig::Message {
                    streams: d.sctp.streams,
                    policy: d.sctp.order.into(),
                },
                _ => node::PeerTransportConfig::Stream,
            },
            authentication: PeerAuthentication {
                networks,
                certificates: accepted_certificate_matches(peer.certificate.as_ref(), peer.fingerprint),
                tls: peer.transport == TransportProtocol::Tls,
            },
            origins: peer.origins.clone(),
        });
    }
    let place = |name: &String| config.peers.iter().position(|p| p.host == *name);
    let routes = realms.iter().filter(|realm| !realm.diameter.is_empty()).map(|realm| node::RealmRoute {
        realm: realm.name.clone(),
        application: Some(application::EAP),
        peers: realm.diameter.iter().filter_map(place).collect(),
    });
    // Without any route, requests would go to every peer, even to a NAS that supports EAP.
    let nowhere = node::RealmRoute { realm: "*".to_owned(), application: None, peers: Vec::new() };
    config.routes = routes.chain([nowhere]).collect();
    config
}

/// Returns the proxy's configuration. `None`: all realms are local.
///
/// # Errors
/// A realm has an invalid name.
fn proxy_config(loaded: &LoadedAaaConfig) -> Result<Option<proxy::ProxyConfig>, String> {
    if loaded.file.realm.is_empty() {
        return Ok(None);
    }
    let servers: Vec<HomeServer> = loaded
        .homes
        .iter()
        .map(|home| {
            let s = &home.server;
            let mut server = match s.transport {
                TransportProtocol::Tls => HomeServer::radsec(&s.name, s.address),
                _ => HomeServer::new(&s.name, s.address, SharedSecret::new(home.secret.0.as_bytes())),
            };
            server.certificates = accepted_certificate_matches(s.certificate.as_ref(), s.fingerprint);
            server.require_message_authenticator = s.message_authenticator;
            server.liveness = s.liveness();
            if let Some(accounting) = s.acct_address {
                server.accounting = accounting;
            }
            server
        })
        .collect();
    let (mut realms, mut pools) = (Vec::new(), Vec::new());
    for realm in &loaded.file.realm {
        let index = |name: &String| loaded.homes.iter().position(|h| h.server.name == *name);
        let members: Vec<u16> =
            realm.servers.iter().filter_map(|name| u16::try_from(index(name)?).ok()).collect();
        let route = if realm.refuse {
            RealmTarget::Refuse
        } else if !realm.diameter.is_empty() {
            RealmTarget::Diameter { realm: realm.name.clone() }
        } else if members.is_empty() {
            RealmTarget::Local
        } else {
            let balance = match realm.balance {
                model::HomeServerBalanceMode::Failover => proxy::PoolBalance::Failover,
                model::HomeServerBalanceMode::LoadBalance => proxy::PoolBalance::Spread,
            };
            pools.push(proxy::HomeServerPool { name: realm.name.clone(), servers: members, balance });
            let pool = u16::try_from(pools.len() - 1).map_err(|_| "more than 65,536 realms".to_owned())?;
            let accounting = match realm.accounting {
                RealmAccounting::Forward => proxy::AccountingMode::Forward,
                RealmAccounting::Local => proxy::AccountingMode::Local,
                RealmAccounting::StoreAndForward => proxy::AccountingMode::StoreAndForward,
            };
            RealmTarget::Pool { pool, accounting }
        };
        let mut entry = Realm::new(&realm.name, route);
        entry.strip = realm.strip;
        entry.subrealms = realm.subrealms;
        entry.unanswered = match realm.unanswered {
            model::NoHomeServerAnswerAction::Silence => proxy::NoAnswerPolicy::Silence,
            model::NoHomeServerAnswerAction::Reject => proxy::NoAnswerPolicy::Reject,
        };
        let beside = |names: &[String]| parse_extra_attributes(names, &loaded.dictionary);
        entry.filter =
            Arc::new(RealmFilter { answers: beside(&realm.accept)?, requests: beside(&realm.send)? });
        realms.push(entry);
    }
    let realms = RealmTable::new(realms, None).map_err(|e| e.to_string())?;
    Ok(Some(proxy::ProxyConfig::new(realms, servers, pools)))
}

fn failure_limit(limits: &model::LimitConfig) -> Option<LoginFailureLimit> {
    (limits.failures > 0)
        .then(|| LoginFailureLimit::new(limits.failures, limits.failure_window.0, limits.lockout_time.0))
}

/// Returns the extra attributes of a realm's filter.
///
/// # Errors
/// A name is not in the dictionary.
pub(crate) fn parse_extra_attributes(
    names: &[String],
    dictionary: &RadiusDictionary,
) -> Result<AllowedExtraAttributes, String> {
    if names.iter().any(|name| name == "*") {
        return Ok(AllowedExtraAttributes::All);
    }
    let oid = |name: &String| {
        let numbers =
            || AttributeOid::new(&name.split('.').map(|n| n.parse().ok()).collect::<Option<Vec<u32>>>()?);
        let Some(known) = dictionary.by_name(name) else {
            let number = RadiusDictionary::parse_unknown_attribute_name(name).or_else(numbers);
            return number.ok_or_else(|| {
                format!(
                    "the dictionaries have no attribute \"{name}\"; correct the name, such as \"Filter-Id\" or \
                     \"Cisco-AVPair\", or write its number: \"26.9.1\" is type 1 of vendor 9"
                )
            });
        };
        // An attribute inside another one, or of a vendor with unusual headers, passes a filter only with its
        // container.
        let outer = match *known.oid.parts() {
            [26, vendor, _, ..] if dictionary.vendor_framing(vendor) != VendorAttributeFormat::SUGGESTED => {
                AttributeOid::new(&[26, vendor])
            }
            [26, vendor, number, ..] => AttributeOid::new(&[26, vendor, number]),
            [outer, 26, vendor, ..] => AttributeOid::new(&[outer, 26, vendor]),
            [outer @ 241..=246, number, ..] => AttributeOid::new(&[outer, number]),
            [outer, ..] => AttributeOid::new(&[outer]),
            [] => None,
        };
        Ok(outer.unwrap_or(known.oid))
    };
    names.iter().map(oid).collect::<Result<_, _>>().map(AllowedExtraAttributes::These)
}

/// Returns the ledger's configuration: pools and limits. `seed` keys its hash tables against chosen collisions.
#[must_use]
pub fn ledger_config(loaded: &LoadedAaaConfig, seed: u64) -> LedgerConfig {
    let file = &loaded.file;
    let limits = &file.limits;
    LedgerConfig {
        pools: loaded.pools.clone(),
        failures: failure_limit(limits),
        simultaneous: limits.simultaneous,
        stale_after: Some(file.accounting.stale_after.0),
        admission_timeout: file.pool.iter().map(|p| p.hold.0).max().unwrap_or(Duration::from_secs(60)),
        seed,
        ..LedgerConfig::default()
    }
}

/// Returns the parser of the store's rows.
#[must_use]
pub fn row_reader(loaded: &LoadedAaaConfig) -> UserRowReader {
    let leave_out = loaded.file.users.bad_reply == BadReplyRowPolicy::LeaveOut;
    UserRowReader { dictionary: loaded.dictionary.clone(), leave_out }
}

/// Returns the configuration of the cache that is used while the store is unavailable. It equals the server's cache
/// but has users only: an unknown name must not be rejected by an old result.
#[must_use]
pub fn fallback_cache_config(users: &model::UserStoreConfig) -> UserCacheConfig {
    UserCacheConfig { entries: users.cache_entries, ttl: users.cache_ttl.0, unknown_ttl: Duration::ZERO }
}

/// Returns the parts that do a server's jobs in one thread. `store` has further users and the sessions,
/// `certificates` is the server's TLS, `seed` as for [`ledger_config()`].
#[must_use]
pub fn job_runner_parts<S>(
    loaded: &LoadedAaaConfig,
    built: &BuiltConfig,
    store: S,
    certificates: Option<Arc<dyn CertificateChecker>>,
    seed: u64,
) -> JobRunnerParts<S> {
    JobRunnerParts {
        inline: built.inline.clone(),
        reading: row_reader(loaded),
        cache_config: fallback_cache_config(&loaded.file.users),
        ledger: ledger_config(loaded, seed),
        store,
        certificates,
        logins: loaded.file.accounting.logins,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_diameter::stream::StreamPolicy;

    #[test]
    fn with_certificates_eap_defaults_to_methods_within_tls() {
        let of_eap = |order: Option<Vec<AuthMethod>>, tls| -> Vec<AuthMethod> {
            let config = model::MethodConfig { order, ..model::MethodConfig::default() };
            offered_methods(&config, tls).into_iter().filter(|m| m.eap_type().is_some()).collect()
        };
        assert_eq!(of_eap(None, true), [AuthMethod::EapTls, AuthMethod::Peap, AuthMethod::Ttls]);
        assert_eq!(of_eap(None, false), [AuthMethod::EapMsChapV2, AuthMethod::EapMd5]);
        let asked = vec![AuthMethod::EapGtc, AuthMethod::EapMd5];
        assert_eq!(of_eap(Some(asked), true), [AuthMethod::EapGtc, AuthMethod::EapMd5]);
    }

    /// RFC 7155 §1.4, RFC 4072 §2.1, RFC 6733 §2.9.
    #[test]
    fn a_diameter_node_lists_its_applications_and_trusts_its_agents() {
        let of = |more: &str| {
            let text = format!("identity = \"a\"\nrealm = \"b\"\n{more}");
            diameter_config(&toml::from_str(&text).unwrap(), &[], &[])
        };
        let said: Vec<_> = of("").local.applications.iter().map(|a| (a.id, a.accounting)).collect();
        assert_eq!(said, [(5, false), (1, false), (3, true)]);
        assert_eq!(of("").agents, ["*"]);
        assert_eq!(of("agents = [\"*.example.net\"]\n").agents, ["*.example.net"]);
    }

    /// RFC 6733 §2.1.1, §5.3.1.
    #[test]
    fn a_diameter_node_over_sctp_has_streams_and_its_addresses() {
        let text = "identity = \"a\"\nrealm = \"b\"\n[sctp]\nstreams = 4\norder = \"unordered\"\n\
                    [[peer]]\nidentity = \"c\"\nconnect = \"192.0.2.9:3868\"\ntransport = \"sctp\"\n\
                    [[peer]]\nidentity = \"d\"\nconnect = \"192.0.2.8:3868\"\n";
        let sctp: [SocketAddr; 3] =
            ["192.0.2.1:3868", "198.51.100.1:3868", "192.0.2.1:3869"].map(|a| a.parse().unwrap());
        let config = diameter_config(&toml::from_str(text).unwrap(), &[], &sctp);
        let addresses: Vec<String> = config.local.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["192.0.2.1", "198.51.100.1"]);
        let policy = StreamPolicy::Unordered;
        assert_eq!(config.accept_policy, policy);
        assert_eq!(config.peers[0].transport, node::PeerTransportConfig::Message { streams: 4, policy });
        assert_eq!(config.peers[1].transport, node::PeerTransportConfig::Stream);
    }

    /// FreeRADIUS passes its packets to that server. A client with a wider network must not replace it.
    #[test]
    fn another_virtual_servers_client_is_refused_without_fallback() {
        let loaded = crate::parse("aaa.toml", "", None, &usher_config::EmptyConfigEnvironment).unwrap();
        let row = |nasname: &str, server: &str| ClientRow {
            nasname: nasname.to_owned(),
            secret: "weak".to_owned(),
            server: server.to_owned(),
            ..ClientRow::default()
        };
        let rows = [row("127.0.0.0/8", ""), row("127.0.0.1", "strict"), row("192.0.2.1", "default")];
        let mut rng = SecureRng::from_seed([1; 32]);
        let identity_key = IdentityKey::new(&[1; 32]);
        let with = AaaConfigBuildInputs {
            generated: None,
            rows: &rows,
            identity_key: &identity_key,
            #[cfg(feature = "tls")]
            tls: None,
            shards: 1,
        };
        let served = collect_clients(&loaded, with, &mut rng);
        let why = SkippedClientReason::OtherVirtualServer("strict".to_owned());
        assert_eq!(served.passed_over, [SkippedClient { client: "127.0.0.1".to_owned(), why }]);
        let weak: Vec<bool> = served.configs.iter().map(|c| c.secret.as_bytes() == b"weak").collect();
        assert_eq!(weak, [true, false, true]);
        assert_eq!(served.clients.find_client_index(Ipv4Addr::LOCALHOST.into()), Some(1));
        let policy = served.configs[1].message_authenticator;
        assert_eq!(policy, MessageAuthenticatorPolicy::Required);
    }

    #[test]
    fn attributes_of_a_filter_have_names_or_numbers() {
        let dictionary = RadiusDictionary::builtin();
        let read = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            parse_extra_attributes(&names, &dictionary)
        };
        let oids = |all: &[&[u32]]| {
            Ok(AllowedExtraAttributes::These(
                all.iter().map(|parts| AttributeOid::new(parts).unwrap()).collect(),
            ))
        };
        assert_eq!(read(&[]), oids(&[]));
        assert_eq!(read(&["Filter-Id", "26.9.1", "26.9"]), oids(&[&[11], &[26, 9, 1], &[26, 9]]));
        assert_eq!(read(&["Cisco-AVPair", "Attr-26.9.2"]), oids(&[&[26, 9, 1], &[26, 9, 2]]));
        // An attribute inside another, or with unusual headers, passes with its container.
        let within = ["WiMAX-Release", "USR-Last-Number-Dialed-Out", "IP-Port-Type", "IPv6-6rd-Prefix"];
        assert_eq!(read(&within), oids(&[&[26, 24_757], &[26, 429], &[241, 5], &[173]]));
        assert_eq!(read(&["Ruckus-TC-Name-Quota"]), oids(&[&[26, 25_053, 146]]));
        assert_eq!(read(&["Filter-Id", "*"]), Ok(AllowedExtraAttributes::All));
        for wrong in ["Cisco-AVPairs", "", "26.", "1.2.3.4.5.6.7.8.9.10.11"] {
            assert!(read(&[wrong]).unwrap_err().contains("26.9.1"), "{wrong}");
        }
    }

    #[test]
    fn without_a_realm_of_theirs_no_diameter_peer_is_asked() {
        use usher_core::{Instant, Machine};
        let text =
            "identity = \"a\"\nrealm = \"b\"\n[[peer]]\nidentity = \"nas\"\nprefix = [\"192.0.2.1\"]\n";
        let config = diameter_config(&toml::from_str(text).unwrap(), &[], &[]);
        let mut node = node::DiameterNode::new(config, Instant::ZERO, SecureRng::from_seed([1; 32]));
        let request = node::DiameterRequest {
            token: 1,
            application: application::EAP,
            command: 268,
            destination_realm: "elsewhere.example".into(),
            destination_host: None,
            session_id: "a;1;1".into(),
            avps: usher_diameter::avp::AvpBuf::default(),
        };
        node.handle_command(Instant::ZERO, node::DiameterNodeCommand::Request(request)).unwrap();
        let reason = node::FailReason::NoRoute;
        let failed = usher_core::MachineOutput::Event(node::DiameterNodeEvent::Failed { token: 1, reason });
        assert!(std::iter::from_fn(|| node.poll_output(&mut Vec::new())).any(|output| output == failed));
    }
}

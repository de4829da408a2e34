//! From the configuration file to the machines' configuration.

use crate::config::Loaded;
use crate::config::model::{self, MessageAuthenticator, MethodName, StoreKind};
use crate::config::units::Prefix;
use crate::node::Clients;
use crate::tls::Tls;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use usher_aaa::ledger::{FailureLimit, LedgerConfig, PoolConfig, Range};
use usher_aaa::proxy::{self, HomeServer, Realm, Realms, Route};
use usher_aaa::store::{ClientRow, Demand};
use usher_aaa::{CacheConfig, Config, Method, User, UserSource, Users};
use usher_core::{Duration, SecureRng, WallTime};
use usher_diameter::codes::application;
use usher_diameter::node;
use usher_diameter::peer::capabilities::Application;
use usher_eap::method::Inner;
use usher_eap::method::peap::ServerMethodPeap;
use usher_eap::method::tls::{ServerMethodTls, ServerTls};
use usher_eap::method::ttls::ServerMethodTtls;
use usher_eap::packet::Type;
use usher_radius::Secret;
use usher_radius::dictionary::Dictionary;
use usher_radius::radsec::CertificateMatch;
use usher_radius::server::{ClientConfig, MessageAuthenticatorPolicy, Role};

/// What the machines are made of, the same for all shards but for their number.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) config: Config,
    pub(crate) clients: Arc<Clients>,
    /// Users of the file.
    pub(crate) inline: Arc<BTreeMap<Vec<u8>, Arc<User>>>,
}

/// What a configuration is made with, beside itself.
#[derive(Clone, Copy)]
pub(crate) struct With<'a> {
    /// The secret of loopback clients where nothing is configured.
    pub(crate) generated: Option<&'a str>,
    /// Clients of the store.
    pub(crate) rows: &'a [ClientRow],
    pub(crate) dictionary: &'a Dictionary,
    pub(crate) tls: Option<&'a Tls>,
    pub(crate) epoch: WallTime,
}

/// Makes the machines' configuration.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn build(loaded: &Loaded, with: With<'_>, rng: &mut SecureRng) -> Result<Built, String> {
    let file = &loaded.file;
    let mut inline = BTreeMap::new();
    for (name, rows) in &loaded.users {
        let user = User::compile(rows, with.dictionary).map_err(|c| format!("user {name}: {c}"))?;
        inline.insert(name.clone().into_bytes(), Arc::new(user));
    }
    let source = match file.users.store {
        StoreKind::Memory => {
            let mut users = Users::new(rng);
            for (name, user) in &inline {
                users.insert(name, User::clone(user));
            }
            UserSource::Memory(Arc::new(users))
        }
        StoreKind::Sqlite | StoreKind::Postgresql => {
            let users = &file.users;
            let (ttl, unknown_ttl) = (users.cache_ttl.0, users.cache_unknown.0);
            UserSource::Host(CacheConfig { entries: users.cache_entries, ttl, unknown_ttl })
        }
    };
    let (clients, configs) = clients(loaded, with);
    let mut radius = usher_radius::server::Config::new(configs);
    let roles = file.listen.auth.iter().map(|_| Role::Authentication);
    radius.roles = roles.chain(file.listen.acct.iter().map(|_| Role::Accounting)).collect();
    radius.max_entries = file.limits.requests;
    radius.max_bytes = REPLIES_KEPT;
    let mut config = Config::new(source);
    config.radius = Some(radius);
    config.diameter = file.diameter.as_ref().map(diameter);
    config.methods = methods(&file.methods, with.tls.is_some());
    if let Some(tls) = with.tls {
        let fragment = usize::from(file.methods.fragment_size);
        if let Some(clients) = &tls.clients {
            config.tls = Some(Arc::new(ServerMethodTls { tls: ServerTls::Real(clients.clone()), fragment }));
        }
        let tls = ServerTls::Real(tls.anonymous.clone());
        let inner: Arc<[Type]> = Arc::new([Type::MSCHAPV2, Type::GTC, Type::MD5]);
        config.peap = Some(Arc::new(ServerMethodPeap { tls: tls.clone(), fragment, inner: inner.clone() }));
        let plain = [Inner::Pap, Inner::Chap, Inner::MsChap, Inner::MsChapV2];
        let inner = inner.iter().map(|kind| Inner::Eap(*kind)).chain(plain).collect();
        config.ttls = Some(Arc::new(ServerMethodTtls { tls, fragment, inner }));
    }
    config.certificate_status = true;
    config.session_timeout = file.session_timeout.0;
    config.epoch = with.epoch;
    config.max_half_open = file.limits.half_open;
    config.reject_delay = file.reject_delay.0;
    config.limits = file.limits.failures > 0 || file.limits.simultaneous.is_some();
    config.mab = file.methods.mab;
    config.proxy = proxying(loaded)?;
    Ok(Built { config, clients: Arc::new(clients), inline: Arc::new(inline) })
}

fn methods(methods: &model::Methods, tls: bool) -> Vec<Method> {
    let order = methods.order.clone().unwrap_or_else(|| {
        use MethodName::{Chap, EapGtc, EapMd5, EapMsChapV2, EapTls, MsChap, MsChapV2, Pap, Peap, Ttls};
        let tunnels = if tls { vec![EapTls, Peap, Ttls] } else { Vec::new() };
        [tunnels, vec![EapMsChapV2, EapMd5, EapGtc, Pap, Chap, MsChapV2, MsChap]].concat()
    });
    let mut all: Vec<Method> = order
        .iter()
        .map(|name| match name {
            MethodName::Pap => Method::Pap,
            MethodName::Chap => Method::Chap,
            MethodName::MsChap => Method::MsChap,
            MethodName::MsChapV2 => Method::MsChapV2,
            MethodName::EapMd5 => Method::EapMd5,
            MethodName::EapGtc => Method::EapGtc,
            MethodName::EapMsChapV2 => Method::EapMsChapV2,
            MethodName::EapTls => Method::EapTls,
            MethodName::Peap => Method::Peap,
            MethodName::Ttls => Method::Ttls,
        })
        .collect();
    if methods.mab {
        all.push(Method::Mab);
    }
    all
}

fn policy(asked: MessageAuthenticator) -> MessageAuthenticatorPolicy {
    match asked {
        MessageAuthenticator::Required => MessageAuthenticatorPolicy::Required,
        MessageAuthenticator::LimitProxyState => MessageAuthenticatorPolicy::ProxyState,
        MessageAuthenticator::Off => MessageAuthenticatorPolicy::Off,
    }
}

/// What replies kept for retransmissions may take in each shard, octets: about 30,000 short ones.
const REPLIES_KEPT: usize = 12 << 20;

/// Clients of the file, then those of the store, then loopback where nothing is configured.
fn clients(loaded: &Loaded, with: With<'_>) -> (Clients, Vec<ClientConfig>) {
    let (mut names, mut configs) = (Vec::new(), Vec::<ClientConfig>::new());
    let mut add = |name: &str, config: ClientConfig| {
        let same = |c: &ClientConfig| {
            c.network == config.network && c.prefix == config.prefix && c.transport == config.transport
        };
        if configs.iter().any(same) {
            tracing::warn!(client = name, "its addresses are another client's already; passed over");
            return;
        }
        names.push((name.to_owned(), config.network, config.prefix));
        configs.push(config);
    };
    for client in &loaded.clients {
        let Prefix { network, bits } = client.prefix;
        let speaks_for: Vec<_> = client.nas.iter().map(|nas| (nas.network, nas.bits)).collect();
        if let Some(secret) = &client.secret {
            let mut config = ClientConfig::new(network, bits, Secret::new(secret.0.as_bytes()));
            config.message_authenticator = policy(client.message_authenticator);
            config.speaks_for.clone_from(&speaks_for);
            add(&client.name, config);
        }
        if let Some(name) = &client.certificate {
            let certificates = vec![CertificateMatch::Name(name.clone())];
            let config = ClientConfig::radsec(network, bits, certificates);
            add(&client.name, ClientConfig { speaks_for, ..config });
        }
    }
    for row in with.rows {
        match Prefix::parse(&row.nasname) {
            Ok(Prefix { network, bits }) => {
                let mut config = ClientConfig::new(network, bits, Secret::new(row.secret.as_bytes()));
                config.message_authenticator =
                    match (row.require_message_authenticator, row.limit_proxy_state) {
                        (Demand::No, Demand::No) => MessageAuthenticatorPolicy::Off,
                        (Demand::No, _) => MessageAuthenticatorPolicy::ProxyState,
                        _ => MessageAuthenticatorPolicy::Required,
                    };
                add(if row.shortname.is_empty() { &row.nasname } else { &row.shortname }, config);
            }
            Err(error) => {
                tracing::error!(client = row.nasname, error, "a client of the store is passed over")
            }
        }
    }
    if let Some(secret) = with.generated {
        for (network, bits) in
            [(IpAddr::from(Ipv4Addr::new(127, 0, 0, 0)), 8), (IpAddr::from(Ipv6Addr::LOCALHOST), 128)]
        {
            add("loopback", ClientConfig::new(network, bits, Secret::new(secret.as_bytes())));
        }
    }
    (Clients(names), configs)
}

fn diameter(d: &model::Diameter) -> node::Config {
    let applications = [
        Application::auth(application::EAP),
        Application::auth(application::NASREQ),
        Application::acct(application::ACCOUNTING),
    ];
    let mut config = node::Config::new(&d.identity, &d.realm, &applications);
    config.watchdog = Some(d.watchdog.0);
    config.accept_unknown = d.peers.is_empty();
    for peer in &d.peers {
        config = config.accept(peer);
    }
    config
}

/// Proxying; `None` where no realm leads elsewhere.
///
/// # Errors
/// A realm has an impossible name.
pub(crate) fn proxying(loaded: &Loaded) -> Result<Option<proxy::Config>, String> {
    if loaded.file.realm.is_empty() {
        return Ok(None);
    }
    let servers: Vec<HomeServer> = loaded
        .homes
        .iter()
        .map(|home| {
            let s = &home.server;
            let mut server = match s.transport {
                model::Transport::Udp => {
                    HomeServer::new(&s.name, s.address, Secret::new(home.secret.0.as_bytes()))
                }
                model::Transport::Tls => HomeServer::radsec(&s.name, s.address),
            };
            server.require_message_authenticator = s.message_authenticator;
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
        let route = if members.is_empty() {
            Route::Local
        } else {
            let balance = match realm.balance {
                model::Balance::Failover => proxy::Balance::Failover,
                model::Balance::LoadBalance => proxy::Balance::Spread,
            };
            pools.push(proxy::Pool { name: realm.name.clone(), servers: members, balance });
            let pool = u16::try_from(pools.len() - 1).map_err(|_| "more than 65,536 realms".to_owned())?;
            Route::Pool { pool, accounting: proxy::Accounting::default() }
        };
        let mut entry = Realm::new(&realm.name, route);
        entry.strip = realm.strip;
        realms.push(entry);
    }
    let realms = Realms::new(realms, None).map_err(|e| e.to_string())?;
    Ok(Some(proxy::Config::new(realms, servers, pools)))
}

/// The ledger's configuration.
pub(crate) fn ledger(loaded: &Loaded, seed: u64) -> LedgerConfig {
    let file = &loaded.file;
    let limits = &file.limits;
    let pools = file.pool.iter().map(|pool| PoolConfig {
        name: pool.name.clone(),
        ranges: vec![Range::Addresses { first: pool.first, last: pool.last }],
    });
    LedgerConfig {
        pools: pools.collect(),
        failures: (limits.failures > 0)
            .then(|| FailureLimit::new(limits.failures, limits.failures_within.0, limits.failures_hold.0)),
        stale_after: Some(file.accounting.stale_after.0),
        hold: file.pool.iter().map(|p| p.hold.0).max().unwrap_or(Duration::from_secs(60)),
        seed,
        ..LedgerConfig::default()
    }
}

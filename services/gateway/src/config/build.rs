//! Builds a configuration from a file: reads keys and certificates, and checks what the types cannot express.

use super::data::{DataPlaneKind, DataTable, PolicyActionName};
use super::model::{
    AuthMethod, ChildSaTable, ChildlessSaPolicy, ConnectionTable, ExtendedMasterSecret, GatewayConfigFile,
    GatewayEapTable, ListenTable, LocalAuth as LocalAuthWord, ModeWord, Reauthentication,
    RemoteAuth as RemoteAuthWord,
};
use crate::api::{GatewayConfig, GatewayConnectionConfig};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use usher_access::pool::{PoolConfig, PoolRange};
use usher_access::{
    AuthenticationBackend, LocalUsers, LoginFailureLimit, PORT_TYPE_VIRTUAL, ServerRecords, SubscriberConfig,
};
use usher_access_config::{AccessConfigBuilder, NasKind, SecretSources};
use usher_config::units::TimeSpan;
use usher_config::{ConfigEnvironment, KeyPathError, Prefix, name_hint};
use usher_core::Duration;
use usher_crypto::SecretValue;
use usher_crypto::tls::{
    ClientConfig, ServerConfig, SharedWallClock, TlsCredentials, TlsServerOptions, TlsVersionRange,
};
use usher_eap::method::tls::{EapTlsPeerFactory, PeerTlsBackend};
use usher_eap::method::{PeerMethodFactory, md5, mschapv2};
use usher_eap::packet::EapType;
use usher_ike::code::IdType;
use usher_ike::credentials::IkeCredentials;
use usher_ike::machine::{
    ChildSaConfig, ChildlessPolicy, IkeConnectionConfig, IkeEndpointConfig, IpsecMode, LocalAuth, RemoteAuth,
    RetransmissionConfig,
};
use usher_ike::payload::{Identification, Proposal, TrafficSelector};

/// Framed-MTU of AAA requests: the EAP packets of the AAA server must fit IKE messages without fragments.
const NAS: NasKind = NasKind { called: "gateway", port_type: PORT_TYPE_VIRTUAL, framed_mtu: 1100 };
/// The shortest pre-shared key, in octets.
const SHORTEST: usize = 6;
/// The longest EAP packet of this side in octets.
const FRAGMENT: usize = 1100;

/// The result of a file.
pub(super) struct BuiltGatewayConfig {
    pub(super) config: GatewayConfig,
    pub(super) credentials: IkeCredentials,
    /// The TLS configuration of connections that it opens to AAA servers, by address.
    pub(super) outgoing: BTreeMap<SocketAddr, ClientConfig>,
}

/// Builds the configuration and reports faults. Makes the paths of revocation lists absolute.
pub(super) fn build_config(
    file: &mut GatewayConfigFile,
    base: &Path,
    outside: &dyn ConfigEnvironment,
    clock: &SharedWallClock,
) -> (Option<BuiltGatewayConfig>, Vec<KeyPathError>) {
    for path in &mut file.revocation.crl {
        *path = base.join(&*path);
    }
    let common = AccessConfigBuilder::new(base, outside, clock);
    let mut builder = GatewayConfigBuilder { common, credentials: IkeCredentials::new() };
    let config = builder.build_gateway(file);
    let credentials = builder.credentials;
    let (found, outgoing) = builder.common.finish();
    (config.map(|config| BuiltGatewayConfig { config, credentials, outgoing }), found)
}

pub(super) struct GatewayConfigBuilder<'a> {
    pub(super) common: AccessConfigBuilder<'a>,
    credentials: IkeCredentials,
}

impl<'a> GatewayConfigBuilder<'a> {
    pub(super) fn report_error(&mut self, at: &[&str], message: impl Into<String>) {
        self.common.report_fault(at, message);
    }

    /// Builds the configuration of the machine.
    fn build_gateway(&mut self, file: &GatewayConfigFile) -> Option<GatewayConfig> {
        let limits = &file.limits;
        let count = |n: usher_config::units::PositiveCount| usize::try_from(n.get()).unwrap_or(usize::MAX);
        let endpoint = IkeEndpointConfig {
            retransmission: RetransmissionConfig {
                first: limits.retransmission.get(),
                count: limits.retransmissions.get(),
                ..RetransmissionConfig::default()
            },
            half_open: count(limits.half_open),
            cookies_from: usize::try_from(limits.cookies_from).unwrap_or(usize::MAX),
            cookies_from_network: usize::try_from(limits.cookies_from_network).unwrap_or(usize::MAX),
            half_open_per_host: count(limits.half_open_per_host),
            failed_proofs_per_minute: limits.failed_proofs_per_minute,
            requests_per_minute: limits.requests_per_minute,
            creates_per_minute: limits.creates_per_minute,
            proof_timeout: limits.login.get(),
            sas: count(limits.sas),
            packet: count(limits.packet),
            message: count(limits.message),
            fragments: count(limits.fragments),
            keepalive: limits.keepalive.get(),
            encapsulate: file.data.udp_encapsulation,
            tickets: Some(limits.tickets.get()).filter(|lifetime| !lifetime.is_zero()),
            export_keys: file.key_log.is_some(),
            request_ocsp: file.revocation.ocsp != super::revocation::OcspPolicy::Off,
            ..IkeEndpointConfig::default()
        };
        if limits.packet.get() < 576 {
            self.report_error(&["limits", "packet"], "a packet needs at least 576 octets to carry a message");
        }
        if limits.fragments.get() / 16 < limits.message.get() {
            self.report_error(
                &["limits", "fragments"],
                format!(
                    "fragments is too small for messages of {} octets; write at least {}, sixteen times `message`",
                    limits.message.get(),
                    u64::from(limits.message.get()) * 16
                ),
            );
        }
        if (1..60).contains(&limits.requests_per_minute) {
            self.report_error(
                &["limits", "requests_per_minute"],
                "fewer than 60 requests per minute delay a peer's normal exchanges; write 60 or more, or 0 for no \
                 limit",
            );
        }
        if limits.retransmission.get().is_zero() {
            self.report_error(
                &["limits", "retransmission"],
                "the wait before a retransmission must be above zero",
            );
        }
        let listen = &file.listen.addresses;
        for (i, address) in listen.iter().enumerate() {
            if listen.iter().take(i).any(|other| other.is_ipv4() == address.is_ipv4()) {
                let i = i.to_string();
                self.report_error(
                    &["listen", "addresses", &i],
                    "only one address per family is allowed; \"0.0.0.0\" and \"::\" mean all addresses of the host",
                );
            }
        }
        self.check_shards(file);
        let pools = self.build_pools(file);
        let aaa = file.aaa.as_ref().map(|table| self.common.build_aaa(table, &NAS, limits.login.get()));
        let users = self.build_users(file);
        let mut peers = Vec::new();
        for (i, table) in file.connection.iter().enumerate() {
            let number = i.to_string();
            let at = ["connection", &number];
            if file.connection.iter().take(i).any(|other| other.name == table.name) {
                self.report_error(
                    &[&at[..], &["name"]].concat(),
                    format!("there are two connections \"{}\"", table.name),
                );
            }
            for (n, pool) in table.pools.iter().enumerate() {
                if !file.pool.iter().any(|known| known.name == *pool) {
                    let near = name_hint(pool, file.pool.iter().map(|known| known.name.as_str()));
                    let n = n.to_string();
                    self.report_error(
                        &[&at[..], &["pools", &n]].concat(),
                        format!("there is no [[pool]] \"{pool}\"{near}"),
                    );
                }
            }
            if table.remote_auth == RemoteAuthWord::Eap && file.aaa.is_none() {
                self.report_error(
                    &[&at[..], &["remote_auth"]].concat(),
                    "\"eap\" needs AAA servers, but there is no [aaa]; for the gateway's own users, write \
                     \"eap-local\"",
                );
            }
            if table.remote_auth == RemoteAuthWord::EapLocal && file.eap.is_none() {
                self.report_error(
                    &[&at[..], &["remote_auth"]].concat(),
                    "there is no [eap]; add it, with the EAP methods of the gateway's own users",
                );
            }
            let listens =
                |address: &IpAddr| file.listen.addresses.iter().any(|own| own.is_ipv4() == address.is_ipv4());
            if let Some(remote) = table.remote_address.filter(|address| !listens(address)) {
                self.report_error(
                    &[&at[..], &["remote_address"]].concat(),
                    format!("[listen] addresses has none of the family of {remote}; add one"),
                );
            }
            peers.extend(self.build_peer(&at, table, &file.listen).map(Arc::new));
        }
        self.check_data_plane(&file.data);
        self.reject_kernel_transport_mode(file);
        let certified = file.connection.iter().any(|table| table.remote_auth == RemoteAuthWord::Certificate);
        let certifies = file.connection.iter().any(|table| table.local_auth == LocalAuthWord::Certificate);
        let report = &mut |at: &[&str], message: String| self.report_error(at, message);
        super::revocation::check_revocation(report, &file.revocation, certified, certifies);
        // The host sets `metered`: it knows whether it carries the packets.
        let aaa = aaa.flatten();
        let subscribers = SubscriberConfig {
            aaa,
            users,
            pools,
            server_records: ServerRecords::OnAndOff,
            ..SubscriberConfig::default()
        };
        Some(GatewayConfig { endpoint, peers, subscribers })
    }

    fn check_shards(&mut self, file: &GatewayConfigFile) {
        let shards = file.listen.shards;
        if !(1..=64).contains(&shards) {
            self.report_error(&["listen", "shards"], "the number of threads must be from 1 to 64");
        }
        if shards <= 1 {
            return;
        }
        let alone = "is known to one thread only, and a request may reach another; remove this setting, or write \
                     shards = 1";
        if !file.limits.tickets.get().is_zero() {
            self.report_error(&["limits", "tickets"], format!("the key of a ticket {alone}"));
        }
        for (key, is, what) in [
            ("dynamic", file.aaa.as_ref().is_some_and(|aaa| aaa.dynamic.is_some()), "a session"),
            ("diameter", file.aaa.as_ref().is_some_and(|aaa| aaa.diameter.is_some()), "a peer connection"),
        ] {
            if is {
                self.report_error(&["aaa", key], format!("{what} {alone}"));
            }
        }
    }

    /// Rejects transport mode with the kernel's interface. Its packets would stay on the route to that interface and
    /// loop forever.
    fn reject_kernel_transport_mode(&mut self, file: &GatewayConfigFile) {
        for (i, connection) in file.connection.iter().enumerate() {
            for (j, child) in connection.child.iter().enumerate() {
                if file.data.mode == DataPlaneKind::Kernel && child.mode == ModeWord::Transport {
                    self.report_error(
                        &["connection", &i.to_string(), "child", &j.to_string(), "mode"],
                        "the kernel's interface supports only tunnel mode; remove mode, or write mode = \"tun\" in \
                         [data]",
                    );
                }
            }
        }
    }

    fn check_data_plane(&mut self, data: &DataTable) {
        let least = if data.mode == DataPlaneKind::None { 0 } else { 576 };
        if !(least..=65_000).contains(&data.mtu) {
            self.report_error(
                &["data", "mtu"],
                "mtu must be from 576 to 65000 octets; 1400 fits links with an MTU of 1500",
            );
        }
        // The kernel's limit of an interface name (IFNAMSIZ).
        let name = data.interface.replace("%d", "0");
        if name.is_empty() || name.len() > 15 || name.contains(['/', '%', ' ', ':']) {
            self.report_error(
                &["data", "interface"],
                "a device name has 1 to 15 characters, without slash, colon or space; a number replaces %d, as in \
                 \"esp%d\"",
            );
        }
        if (253..=255).contains(&data.table.get()) || data.table.get() > 32_000 {
            self.report_error(
                &["data", "table"],
                "the program needs a routing table of its own: 1 to 32000, except the system's 253 to 255",
            );
        }
        for (i, policy) in data.policy.iter().enumerate() {
            let i = i.to_string();
            if data.mode == DataPlaneKind::Kernel && policy.action == PolicyActionName::Forward {
                self.report_error(
                    &["data", "policy", &i, "action"],
                    "the kernel's interface cannot send traffic in the clear; remove these networks from CHILD_SAs, \
                     or write mode = \"tun\"",
                );
            }
            let ported = [1, 6, 17, 33, 58, 132, 136];
            if policy.port.is_some() && !policy.protocol.is_some_and(|protocol| ported.contains(&protocol)) {
                self.report_error(
                    &["data", "policy", &i, "port"],
                    "a port needs a protocol with ports; write protocol = 6 for TCP, 17 for UDP, 1 or 58 for ICMP",
                );
            }
        }
    }

    fn build_pools(&mut self, file: &GatewayConfigFile) -> Vec<PoolConfig> {
        for (i, table) in file.pool.iter().enumerate() {
            let number = i.to_string();
            let v6 = table.ranges.iter().filter(|range| range.contains(':')).count();
            if v6 > 0 && v6 < table.ranges.len() {
                let why = "a pool has addresses of one family; write two pools, and name both in the connection's \
                           pools";
                self.report_error(&["pool", &number, "ranges"], why);
            }
        }
        self.common.build_pools(&file.pool, |range| match range {
            PoolRange::Prefixes { .. } => Err(format!(
                "{range} assigns prefixes, but an initiator gets an address; write a range such as \
                 2001:db8:9::/112"
            )),
            PoolRange::Addresses { .. } => Ok(()),
        })
    }

    fn build_users(&mut self, file: &GatewayConfigFile) -> LocalUsers {
        let passwords = self.common.read_passwords(&file.user);
        let mut identities: BTreeMap<Identification, &str> = BTreeMap::new();
        for (i, user) in file.user.iter().enumerate() {
            let other = identities.insert(Identification::of_text(&user.name), &user.name);
            if let Some(other) = other.filter(|other| *other != user.name) {
                let message =
                    format!("\"{other}\" is the same identity: domains compare without regard to case");
                self.report_error(&["user", &i.to_string(), "name"], message);
            }
        }
        let methods =
            file.eap.as_ref().map(|eap| eap.methods.iter().map(|method| eap_type(*method)).collect());
        let tls = file.eap.as_ref().and_then(|eap| self.eap_tls(eap));
        LocalUsers {
            methods: methods.unwrap_or_default(),
            passwords: Arc::new(passwords),
            failures: file.eap.as_ref().filter(|eap| eap.failures > 0).map(|eap| {
                LoginFailureLimit::new(eap.failures, eap.failure_window.get(), eap.lockout_time.get())
            }),
            tls,
            clock: Some(self.common.clock.clone()),
        }
    }

    fn eap_tls(&mut self, eap: &GatewayEapTable) -> Option<ServerConfig> {
        let at = ["eap", "tls"];
        match &eap.tls {
            None if eap.methods.contains(&AuthMethod::Tls) => {
                self.report_error(
                    &["eap"],
                    "\"tls\" is missing: EAP-TLS needs certificate, key and ca in [eap.tls]",
                );
                None
            }
            None => None,
            Some(table) => {
                let credentials =
                    self.common.read_credentials(&at, Some(&table.certificate), Some(&table.key))?;
                let roots = self.common.read_roots(&at, Some(&table.ca))?;
                let options = TlsServerOptions {
                    versions: TlsVersionRange::default(),
                    credentials,
                    client_roots: Some(roots),
                    resumption: None,
                    clock: self.common.clock.clone(),
                    key_log: None,
                };
                let made = ServerConfig::new(options).map_err(|e| e.to_string());
                let made = self.common.ok_or_report(&at, made)?;
                Some(match eap.extended_master_secret {
                    ExtendedMasterSecret::Required => made,
                    ExtendedMasterSecret::Optional => made.without_extended_master_secret(),
                })
            }
        }
    }

    fn build_peer(
        &mut self,
        at: &[&str],
        table: &ConnectionTable,
        listen: &ListenTable,
    ) -> Option<GatewayConnectionConfig> {
        let below = |key: &'static str| [at, &[key]].concat();
        let own_certificate = table.local_auth == LocalAuthWord::Certificate;
        let certified = own_certificate
            .then(|| self.common.read_credentials(at, table.certificate.as_ref(), table.key.as_ref()))
            .flatten();
        let local_auth = self.local_auth(at, table, certified.as_ref());
        let remote_auth = self.remote_auth(at, table);
        let begins = table.remote_address.is_some();
        let waits_alone = matches!(table.remote_auth, RemoteAuthWord::Eap | RemoteAuthWord::EapLocal)
            || table.local_auth == LocalAuthWord::EapOnly;
        let begins_alone =
            table.local_auth == LocalAuthWord::Eap || table.remote_auth == RemoteAuthWord::EapOnly;
        if waits_alone && begins {
            self.report_error(
                &below("remote_address"),
                "with these authentication methods only the peer can initiate; remove remote_address",
            );
        }
        if begins_alone && !begins {
            self.report_error(
                at,
                "\"remote_address\" is missing: with these authentication methods this side initiates",
            );
        }
        if begins_alone && table.from.is_some() {
            self.report_error(
                &below("from"),
                "with these authentication methods only this side can initiate; remove from",
            );
        }
        if table.from.as_ref().is_some_and(Vec::is_empty) {
            self.report_error(&below("from"), "the list is empty; remove it to allow all networks");
        }
        if table.eap_server_name.is_some() && !table.eap_methods.contains(&AuthMethod::Tls) {
            self.report_error(
                &below("eap_server_name"),
                "no method of eap_methods uses a certificate; add \"tls\"",
            );
        }
        if table.on_demand && table.without_child_sa == PolicyActionName::Forward {
            self.report_error(
                &below("without_child_sa"),
                "with on_demand = true packets wait for a CHILD_SA, and none leaves in the clear",
            );
        }
        if table.start && !begins {
            self.report_error(&below("start"), "this side can initiate only with remote_address");
        }
        if table.on_demand && !begins {
            self.report_error(&below("on_demand"), "this side can initiate only with remote_address");
        }
        if table.on_demand && table.child.is_empty() {
            self.report_error(
                &below("on_demand"),
                "without a [[connection.child]] no packet can initiate it",
            );
        }
        if table.on_demand && table.address == Some(true) {
            self.report_error(
                &below("on_demand"),
                "with address = true this side gets its virtual address from the connection, so no packet can come \
                 before it; write start = true",
            );
        }
        if begins && table.remote_auth == RemoteAuthWord::Certificate && table.remote_id.is_none() {
            self.report_error(
                at,
                "\"remote_id\" is missing: any certificate of that authority would be accepted",
            );
        }
        let id = |text: &Option<String>| text.as_deref().map(parse_identity).transpose();
        let local = id(&table.local_id);
        let local = self.common.ok_or_report(&below("local_id"), local)?;
        let remote = id(&table.remote_id);
        let remote = self.common.ok_or_report(&below("remote_id"), remote)?;
        let local = local.or_else(|| {
            let subject = usher_crypto::x509::subject_der(certified.as_ref()?.leaf_certificate())?;
            Some(Identification { kind: IdType::ID_DER_ASN1_DN, data: subject })
        });
        if local.is_none() && !own_certificate {
            self.report_error(
                at,
                "\"local_id\" is missing: write this side's identity, such as \"gw.example.org\"",
            );
        }
        let proposals =
            self.parse_proposals(&below("proposals"), &table.proposals, Proposal::parse_ike_proposal);
        // Each DNS server may have an IPv6 address, of 20 octets with the attribute's type and length. The client's own
        // address needs room too.
        let told = table.dns.len() * 20 + table.domains.iter().map(|name| name.len() + 4).sum::<usize>();
        if told > LONGEST {
            let key = if table.domains.is_empty() { "dns" } else { "domains" };
            self.report_error(
                &below(key),
                format!(
                    "dns and domains need {told} octets, but an IKE message has room for at most {LONGEST}"
                ),
            );
        }
        if table.child.is_empty() && table.childless == ChildlessSaPolicy::Never {
            self.report_error(
                &below("childless"),
                "\"never\" needs a [[connection.child]], since each IKE_SA starts with a CHILD_SA",
            );
        }
        let (mut children, mut child_lifetimes): (Vec<ChildSaConfig>, Vec<_>) = Default::default();
        for (i, child) in table.child.iter().enumerate() {
            let number = i.to_string();
            let at = [at, &["child", &number]].concat();
            if children.iter().any(|other| other.name == child.name) {
                self.report_error(
                    &[&at[..], &["name"]].concat(),
                    format!("there are two CHILD_SAs \"{}\"", child.name),
                );
            }
            children.push(self.build_child(&at, child));
            child_lifetimes.push(self.sa_lifetime(
                &[&at[..], &["lifetime"]].concat(),
                child.lifetime,
                child.rekeyed_after(),
            ));
        }
        let remote_address = table.remote_address;
        let v4 = remote_address.is_none_or(|address| address.is_ipv4());
        let any = if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let listens = listen.addresses.iter().copied().find(|own| own.is_ipv4() == v4).unwrap_or(any);
        // Only messages to port 500 leave by the IKE socket. Messages to any other port leave by the socket of ESP in
        // UDP.
        let own_port = if table.remote_port == 500 { listen.port } else { listen.nat_port };
        let time = |time: usher_config::units::TimeSpan| Some(time.get()).filter(|time| !time.is_zero());
        let connection = IkeConnectionConfig {
            name: table.name.clone(),
            local: local?,
            remote,
            from: network_selectors(table.from.as_ref()),
            local_auth: local_auth?,
            remote_auth: remote_auth?,
            proposals,
            children,
            childless: match table.childless {
                ChildlessSaPolicy::Never => ChildlessPolicy::Never,
                ChildlessSaPolicy::Allow => ChildlessPolicy::Allow,
                ChildlessSaPolicy::Force => ChildlessPolicy::Force,
            },
            mobike: table.mobike,
            fragmentation: table.fragmentation,
            address: table.address.unwrap_or(!table.pools.is_empty()),
            rekey_after: table.rekeyed_after(),
            liveness: time(table.liveness),
            unique: table.unique,
        };
        Some(GatewayConnectionConfig {
            connection: Arc::new(connection),
            judge: if table.remote_auth == RemoteAuthWord::EapLocal {
                AuthenticationBackend::Local
            } else {
                AuthenticationBackend::Aaa
            },
            trusts_certificate_names: table.trust_certificate_names,
            pools: table.pools.clone(),
            dns: table.dns.clone(),
            domains: table.domains.clone(),
            local: SocketAddr::new(table.local_address.unwrap_or(listens), own_port),
            remote: remote_address.map(|address| SocketAddr::new(address, table.remote_port)),
            start: table.start,
            retry: table.retry.get(),
            on_demand: table.on_demand,
            reauth_after: time(table.reauth_after),
            break_before_make: table.reauthentication == Reauthentication::BreakBeforeMake,
            lifetime: self.sa_lifetime(&below("lifetime"), table.lifetime, table.rekeyed_after()),
            child_lifetimes,
        })
    }

    /// The longest life of an SA; `None` for no limit.
    fn sa_lifetime(
        &mut self,
        at: &[&str],
        said: Option<TimeSpan>,
        rekey: Option<Duration>,
    ) -> Option<Duration> {
        let said = match said {
            None => return rekey.map(|rekey| rekey * 11 / 10),
            Some(said) => said.get(),
        };
        if !said.is_zero() && rekey.is_some_and(|rekey| said <= rekey) {
            self.report_error(
                at,
                "an SA must be replaced before it ends; write a lifetime longer than rekey_after",
            );
        }
        Some(said).filter(|said| !said.is_zero())
    }

    fn read_psk(&mut self, at: &[&str], table: &ConnectionTable) -> Option<SecretValue> {
        let places = SecretSources {
            key: "secret",
            inline: table.secret.as_ref(),
            file: table.secret_file.as_deref(),
            env: table.secret_env.as_deref(),
        };
        let key = self.common.read_secret(at, &places)?;
        if key.len() < SHORTEST {
            self.report_error(
                at,
                format!(
                    "a key of fewer than {SHORTEST} characters is easy to guess; generate one: \
                     head -c 32 /dev/urandom | base64"
                ),
            );
        }
        Some(key)
    }

    fn local_auth(
        &mut self,
        at: &[&str],
        table: &ConnectionTable,
        certified: Option<&TlsCredentials>,
    ) -> Option<LocalAuth> {
        match table.local_auth {
            LocalAuthWord::Psk => self.read_psk(at, table).map(LocalAuth::Psk),
            LocalAuthWord::Certificate => {
                let certified = certified?;
                let key = certified.signing_key().map_err(|e| e.to_string());
                let key = self.common.ok_or_report(&[at, &["key"]].concat(), key)?;
                let kind = self.credentials.set_connection_signing_key(&table.name, key);
                let chain: Vec<_> = certified.certificate_chain().map(<[u8]>::to_vec).collect();
                let octets = chain.iter().map(Vec::len).sum::<usize>();
                if octets > LONGEST {
                    let message = format!(
                        "the chain has {octets} octets, but an IKE message has room for at most {LONGEST}"
                    );
                    self.report_error(&[at, &["certificate"]].concat(), message);
                }
                Some(LocalAuth::Certificate { chain, kind, pss: table.rsa_pss })
            }
            LocalAuthWord::EapOnly => Some(LocalAuth::EapOnly),
            LocalAuthWord::Eap => {
                let identity = table.eap_identity.clone().or_else(|| {
                    self.report_error(
                        at,
                        "\"eap_identity\" is missing: write the identity that this side claims",
                    );
                    None
                });
                if table.eap_methods.is_empty() {
                    self.report_error(
                        at,
                        "\"eap_methods\" is missing: write the methods that this side accepts, such as [\"mschapv2\"]",
                    );
                }
                let mut methods: Vec<Box<dyn PeerMethodFactory>> = Vec::new();
                for method in &table.eap_methods {
                    methods.extend(self.peer_offer(at, table, *method));
                }
                Some(LocalAuth::Eap { identity: identity?.into_bytes(), methods: methods.into() })
            }
        }
    }

    fn peer_offer(
        &mut self,
        at: &[&str],
        table: &ConnectionTable,
        method: AuthMethod,
    ) -> Option<Box<dyn PeerMethodFactory>> {
        if method == AuthMethod::Tls {
            let credentials =
                self.common.read_credentials(at, table.certificate.as_ref(), table.key.as_ref())?;
            let roots = self.common.read_roots(at, table.ca.as_ref())?;
            let name = self.eap_server_name(at, table);
            let tls = self.common.tls_client(credentials, roots, name);
            let tls = self.common.ok_or_report(at, tls)?;
            let tls = match table.extended_master_secret {
                ExtendedMasterSecret::Required => tls,
                ExtendedMasterSecret::Optional => tls.without_extended_master_secret(),
            };
            return Some(Box::new(EapTlsPeerFactory {
                tls: PeerTlsBackend::Real(tls, 0),
                fragment: FRAGMENT,
            }));
        }
        let places = SecretSources {
            key: "password",
            inline: table.password.as_ref(),
            file: table.password_file.as_deref(),
            env: table.password_env.as_deref(),
        };
        let password = self.common.read_secret(at, &places)?;
        let name = table.eap_identity.as_deref().unwrap_or_default().as_bytes();
        Some(match method {
            AuthMethod::Md5 => Box::new(md5::EapMd5Password::new(&password)),
            _ => Box::new(mschapv2::MsChapV2Account::new(name, &password)),
        })
    }

    /// The name of the EAP server. With EAP-only authentication it is the only proof of the responder (RFC 5998 §6).
    /// Without a name, any certificate of the authority would do.
    fn eap_server_name(&mut self, at: &[&str], table: &ConnectionTable) -> Option<String> {
        let alone = table.remote_auth == RemoteAuthWord::EapOnly;
        let named = table.remote_id.as_ref().filter(|id| Identification::of_text(id).kind == IdType::ID_FQDN);
        let name = table.eap_server_name.as_ref().or(named.filter(|_| alone));
        if name.is_none() && alone {
            self.report_error(
                at,
                "\"eap_server_name\" is missing: with EAP alone any certificate of that authority would be accepted; \
                 write the domain name in the EAP server's certificate, or a domain name as remote_id",
            );
        }
        name.cloned()
    }

    fn remote_auth(&mut self, at: &[&str], table: &ConnectionTable) -> Option<RemoteAuth> {
        match table.remote_auth {
            RemoteAuthWord::Psk => self.read_psk(at, table).map(RemoteAuth::Psk),
            RemoteAuthWord::Certificate => {
                let roots = self.common.read_roots(at, table.ca.as_ref())?;
                let hash = |authority: &[u8]| usher_crypto::x509::public_key_hash(authority);
                let authorities = roots.certificates().filter_map(hash).collect();
                let trusted = self.credentials.set_connection_trust_roots(
                    &table.name,
                    roots,
                    self.common.clock.clone(),
                );
                self.common.ok_or_report(&[at, &["ca"]].concat(), trusted.map_err(|e| e.to_string()))?;
                Some(RemoteAuth::Certificate { authorities })
            }
            RemoteAuthWord::Eap | RemoteAuthWord::EapLocal => {
                Some(RemoteAuth::Eap { request_identity: false })
            }
            RemoteAuthWord::EapOnly => Some(RemoteAuth::EapOnly),
        }
    }

    fn parse_proposals<E: ToString>(
        &mut self,
        at: &[&str],
        words: &[String],
        read: fn(&str) -> Result<Proposal, E>,
    ) -> Vec<Proposal> {
        if words.is_empty() {
            self.report_error(at, "at least one proposal is needed");
        }
        if words.len() > MOST {
            self.report_error(at, format!("at most {MOST} proposals are allowed"));
        }
        let mut proposals = Vec::new();
        for (n, words) in words.iter().enumerate() {
            let n = n.to_string();
            let read = read(words).map_err(|e| format!("\"{words}\": {}", e.to_string()));
            proposals.extend(self.common.ok_or_report(&[at, &[&n]].concat(), read));
        }
        proposals
    }

    fn build_child(&mut self, at: &[&str], table: &ChildSaTable) -> ChildSaConfig {
        let (local, remote) =
            (network_selectors(table.local.as_ref()), network_selectors(table.remote.as_ref()));
        for (key, networks) in [("local", &local), ("remote", &remote)] {
            if networks.as_ref().is_some_and(Vec::is_empty) {
                self.report_error(
                    &[at, &[key]].concat(),
                    "the list is empty; remove it for the side's own address",
                );
            }
            if networks.as_ref().is_some_and(|networks| networks.len() > MOST) {
                self.report_error(
                    &[at, &[key]].concat(),
                    format!("a CHILD_SA has at most {MOST} networks on each side; merge some, or move some to another \
                             CHILD_SA"),
                );
            }
        }
        ChildSaConfig {
            name: table.name.clone(),
            proposals: self.parse_proposals(
                &[at, &["proposals"]].concat(),
                &table.proposals,
                Proposal::parse_esp_proposal,
            ),
            local,
            remote,
            mode: match table.mode {
                ModeWord::Tunnel => IpsecMode::Tunnel,
                ModeWord::Transport => IpsecMode::Transport,
            },
            rekey_after: table.rekeyed_after(),
        }
    }
}

/// Traffic selectors and proposals are counted in one octet (RFC 7296 §3.3.1, §3.13).
const MOST: usize = 255;
/// Most octets of certificates, or of a client's attributes, in a message. A payload's length has 16 bits (RFC 7296
/// §3.2), as a datagram's.
const LONGEST: usize = 60_000;

/// Returns networks as selectors of any traffic.
fn network_selectors(networks: Option<&Vec<Prefix>>) -> Option<Vec<TrafficSelector>> {
    let one = |prefix: &Prefix| TrafficSelector::from_network(prefix.network, prefix.bits);
    networks.map(|networks| networks.iter().filter_map(one).collect())
}

/// Parses an identity.
fn parse_identity(text: &str) -> Result<Identification, String> {
    match text {
        "" => Err("an identity must not be empty".to_owned()),
        text if text.contains('=') => Err(format!(
            "\"{text}\" looks like a distinguished name, which is not supported; write a domain name, mail address or \
             IP address from the alternative names of the certificate"
        )),
        text => Ok(Identification::of_text(text)),
    }
}

const fn eap_type(method: AuthMethod) -> EapType {
    match method {
        AuthMethod::Md5 => EapType::MD5,
        AuthMethod::MsChapV2 => EapType::MSCHAPV2,
        AuthMethod::Tls => EapType::TLS,
    }
}

//! The tables as types. The published schema uses the documentation of these items.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use usher_access_config::{AaaTable, PoolTable, UserTable};
use usher_config::log::LogConfig;
use usher_config::named;
use usher_config::units::{BitRate, ByteSize, PositiveCount, TimeSpan};
use usher_ident_service::DisclosureLevel;
use usher_ident_service::config::{AskerTable, IdentTokenKeyTable};
use usher_ppp::auth::AuthenticationProtocol;
use usher_ppp::concentrator::ExcessSessionPolicy;

/// The configuration of `usher pppoe serve`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Usher's PPPoE access concentrator")]
pub struct ConcentratorConfigFile {
    /// The access interfaces, and the sockets for control and metrics.
    pub listen: ListenTable,
    /// The service that hosts find, and their addresses.
    pub service: PppoeServiceTable,
    /// The authentication of hosts.
    pub authentication: AuthenticationTable,
    /// Local users, for a concentrator without `[aaa]`.
    pub user: Vec<UserTable>,
    /// AAA servers: they decide logins and keep accounting.
    pub aaa: Option<AaaTable>,
    /// Address pools. Hosts get leases of addresses; their links and the networks behind them get prefixes.
    pub pool: Vec<PoolTable>,
    /// Rate limits by name. An AAA server selects one by Filter-Id; `default` applies to all others.
    pub rate: Vec<RateLimitTable>,
    /// Limits.
    pub limits: LimitsTable,
    /// The session log: which subscriber had which address, and when. Without it, later lookups are impossible.
    pub tracking: Option<SessionLogTable>,
    /// The IDENT server, which reveals the owners of connections.
    pub ident: Option<IdentTable>,
    /// The data plane.
    pub data: DataTable,
    /// The concentrator's own log.
    pub log: LogConfig,
}

/// The access interfaces, and the sockets for control and metrics.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenTable {
    /// The network interfaces with hosts behind them, such as `["eth1"]`. They need no address.
    pub interfaces: Vec<String>,
    /// The control socket for `usher pppoe sessions`, `usher pppoe disconnect` and `usher who`.
    pub control: PathBuf,
    /// The address and port of metrics: HTTP, in the Prometheus text format, at `/metrics`. Without it there are none.
    pub metrics: Option<SocketAddr>,
}

impl Default for ListenTable {
    fn default() -> Self {
        Self { interfaces: Vec::new(), control: super::DEFAULT_CONTROL.into(), metrics: None }
    }
}

/// The service that hosts find, and their addresses.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PppoeServiceTable {
    /// The concentrator's name (AC-Name).
    pub name: String,
    /// Service names. Without any, the concentrator accepts every name that a host requests.
    pub services: Vec<String>,
    /// The concentrator's IPv4 address on every link, such as `"10.0.0.1"`. Without it hosts get no IPv4.
    pub address: Option<Ipv4Addr>,
    /// Pools of IPv4 addresses. The first pool with a free address counts. A pool or address from the AAA server takes
    /// precedence.
    pub pools: Vec<String>,
    /// Whether hosts get IPv6 [default: true if `prefix_pool` or `delegated_pool` is set].
    pub ipv6: Option<bool>,
    /// The pool of IPv6 prefixes for links, with ranges such as `"2001:db8:1::/48/64"`.
    pub prefix_pool: Option<String>,
    /// The pool of IPv6 prefixes that hosts request by DHCPv6 for the networks behind them, with ranges such as
    /// `"2001:db8:ff00::/40/56"`.
    pub delegated_pool: Option<String>,
    /// Name servers for hosts.
    pub dns: Vec<IpAddr>,
    /// Whether to trust the circuit ids that a switch adds to discovery packets (RFC 4679). Safe only if the switch
    /// removes those that hosts send.
    pub trust_circuit_id: bool,
}

impl Default for PppoeServiceTable {
    fn default() -> Self {
        Self {
            name: "usher".to_owned(),
            services: Vec::new(),
            address: None,
            pools: Vec::new(),
            ipv6: None,
            prefix_pool: None,
            delegated_pool: None,
            dns: Vec::new(),
            trust_circuit_id: false,
        }
    }
}

usher_core::named! {
    "an EAP method";
    /// An EAP method.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum EapMethod {
        /// EAP-MD5.
        Md5 = "md5",
        /// EAP-MSCHAPv2.
        MsChapV2 = "mschapv2",
    }
}

usher_core::named! {
    "a policy for the time while no AAA server answers";
    /// The policy while no AAA server answers.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum AaaOutagePolicyName {
        /// Logins are rejected. Existing sessions continue until their session timeout.
        Refuse = "refuse",
        /// For `grace_time`, users who have logged in by PAP can log in again with the same password, and sessions
        /// continue beyond their session timeout. CHAP, MS-CHAPv2 and EAP logins are rejected, because only the server
        /// can verify them.
        Grace = "grace",
    }
}

/// The authentication of hosts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthenticationTable {
    /// The protocols that hosts may use, the preferred first. PAP sends the password in the clear over the Ethernet.
    #[serde(deserialize_with = "named::read_list")]
    #[schemars(schema_with = "named::list_schema::<AuthenticationProtocol>")]
    pub protocols: Vec<AuthenticationProtocol>,
    /// For local users: the EAP methods to propose, the preferred first.
    #[serde(deserialize_with = "named::read_list")]
    #[schemars(schema_with = "named::list_schema::<EapMethod>")]
    pub eap_methods: Vec<EapMethod>,
    /// For local users: the number of failed logins that causes a lockout of a user name or a station (with
    /// `trust_circuit_id`, of a circuit). A user with a successful login from a station within a week is locked out
    /// there only by its own failures. `0`: no lockout.
    pub failures: u32,
    /// The time within which failed logins are counted.
    pub failure_window: TimeSpan,
    /// The duration of a lockout.
    pub lockout_time: TimeSpan,
    /// Set it only if the AAA server rejects EAP-TLS logins whose certificate lacks the user's name. `usher aaa` does
    /// so; FreeRADIUS and others need `check_cert_cn` or a similar setting. Otherwise such users get their names only
    /// from the server's replies.
    pub trust_certificate_names: bool,
    /// The policy while no AAA server answers.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<AaaOutagePolicyName>")]
    pub without_aaa: AaaOutagePolicyName,
    /// The duration of `grace`.
    pub grace_time: TimeSpan,
}

impl Default for AuthenticationTable {
    fn default() -> Self {
        use AuthenticationProtocol::{Chap, Eap, MsChapV2};
        Self {
            protocols: [Eap, MsChapV2, Chap].into(),
            eap_methods: [EapMethod::MsChapV2, EapMethod::Md5].into(),
            failures: 10,
            failure_window: TimeSpan::from_secs(60),
            lockout_time: TimeSpan::from_secs(60),
            trust_certificate_names: false,
            without_aaa: AaaOutagePolicyName::Refuse,
            grace_time: TimeSpan::from_secs(3600),
        }
    }
}

/// A rate limit.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimitTable {
    /// Its name.
    pub name: String,
    /// The rate from a host, such as `"100 Mb/s"`. Without it the rate is unlimited.
    pub up: Option<BitRate>,
    /// The rate to a host.
    pub down: Option<BitRate>,
}

/// Limits.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsTable {
    /// Concurrent sessions, at most 65534.
    pub sessions: PositiveCount,
    /// Concurrent sessions before the end of authentication. Beyond the limit, a new one evicts the oldest of the
    /// interface (with `trust_circuit_id`, of the circuit) that has the most.
    pub half_open: PositiveCount,
    /// Concurrent sessions of a station.
    pub sessions_per_station: PositiveCount,
    /// Concurrent sessions of a user. `0`: unlimited.
    pub sessions_per_user: u32,
    /// The policy for a session beyond the limit of its station or user.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<ExcessSessionPolicy>")]
    pub excess: ExcessSessionPolicy,
    /// The session timeout if the AAA server sets none. `"0 s"`: unlimited.
    pub session_timeout: TimeSpan,
    /// The idle timeout if the AAA server sets none. `"0 s"`: unlimited.
    pub idle_timeout: TimeSpan,
    /// The time limit of a login, from the first packet to the address.
    pub login: TimeSpan,
    /// The interval of LCP Echo-Requests, which detect dead hosts. `"0 s"`: none.
    pub keepalive: TimeSpan,
    /// The number of consecutive unanswered Echo-Requests that ends a session.
    pub keepalive_failures: PositiveCount,
    /// Discovery packets of a station per second. A circuit may send ten times as many, with `trust_circuit_id`.
    pub discovery_per_station: PositiveCount,
    /// Discovery packets of all stations of an interface per second.
    pub discovery: PositiveCount,
    /// Concurrent connections that a host has begun, per IPv4 address and per IPv6 prefix. Closed TCP connections do
    /// not count. `0`: unlimited. nftables drops further connections [default: 4096 if `nat`, `[ident]` or
    /// `translations` needs nftables; otherwise unlimited, so that the kernel need not track connections].
    pub connections: Option<u32>,
    /// Connections that a host may begin per second, with a burst of ten times as many. `0`: unlimited [default: 100 if
    /// `nat`, `[ident]` or `translations` needs nftables; otherwise unlimited].
    pub connections_per_second: Option<u32>,
}

impl LimitsTable {
    /// The defaults: concurrent connections of a host, and connections per second.
    pub const CONNECTIONS: (u32, u32) = (4096, 100);
}

impl Default for LimitsTable {
    fn default() -> Self {
        let ppp = usher_ppp::concentrator::ConcentratorConfig::default();
        let count = |n: usize| PositiveCount::from_u32(u32::try_from(n).unwrap_or(u32::MAX));
        Self {
            sessions: count(ppp.sessions),
            half_open: count(ppp.outside),
            sessions_per_station: count(ppp.sessions_per_station),
            sessions_per_user: 0,
            excess: ppp.excess,
            session_timeout: TimeSpan::from_secs(0),
            idle_timeout: TimeSpan::from_secs(0),
            login: TimeSpan(ppp.link.setup),
            keepalive: TimeSpan(ppp.link.echo_interval),
            keepalive_failures: PositiveCount::from_u32(ppp.link.echo_failures),
            discovery_per_station: PositiveCount::from_u32(ppp.initiations_per_station.per_second),
            discovery: PositiveCount::from_u32(ppp.initiations.per_second),
            connections: None,
            connections_per_second: None,
        }
    }
}

/// The session log: which subscriber had which address, and when.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionLogTable {
    /// The folder of the log, with one file of JSON lines per day (UTC). The log has each session before its login is
    /// accepted.
    pub folder: PathBuf,
    /// The days after which a day's file is deleted. `0`: never. The law can require a minimum and a maximum.
    pub keep_days: u32,
    /// The audit of lookups by `usher who` and IDENT. Each day has a file with the day in its name
    /// (`audit-2026-11-26.jsonl`); they are kept as long as the log. `""`: no audit.
    pub audit: PathBuf,
    /// Port blocks: hosts share public addresses, and each has a block of ports of its own.
    pub ports: Option<PortBlocksTable>,
    /// Whether the log has each connection that the kernel translates: its inside and outside address and port, but not
    /// its destination (RFC 6888, REQ-12). Lookups of a past port need it if hosts share an address without port
    /// blocks.
    pub translations: bool,
    /// With `translations`: the space to keep free on the disk of the log. With less, or if the log cannot be written,
    /// new IPv4 connections of hosts are dropped. Existing connections continue, and the session log can use the rest.
    /// Below twice this space the log has a warning.
    pub keep_free: ByteSize,
    /// IPFIX collectors that receive the translations, too (RFC 8158).
    pub ipfix: Option<IpfixTable>,
}

/// IPFIX collectors (RFC 7011), over UDP. Lost messages are not sent again.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IpfixTable {
    /// Their addresses: `"192.0.2.9:4739"`.
    pub collectors: Vec<SocketAddr>,
    /// The observation domain: it distinguishes exporters with the same address.
    #[serde(default)]
    pub domain: u32,
    /// The octets of the longest message: 512 to 65535. Use 512 if the path MTU is unknown.
    #[serde(default = "IpfixTable::message")]
    pub message: u16,
    /// The interval at which templates are sent again.
    #[serde(default = "IpfixTable::refresh")]
    pub refresh: TimeSpan,
}

impl IpfixTable {
    const fn message() -> u16 {
        512
    }
    const fn refresh() -> TimeSpan {
        TimeSpan::from_secs(600)
    }
}

impl Default for SessionLogTable {
    fn default() -> Self {
        Self {
            folder: super::DEFAULT_FOLDER.into(),
            keep_days: 90,
            audit: "audit.jsonl".into(),
            ports: None,
            translations: false,
            keep_free: ByteSize::from_mib(256),
            ipfix: None,
        }
    }
}

/// The port blocks of hosts (RFC 7422). The public address and ports of a host are computed, so no connection is
/// logged. With `nat = "blocks"` in `[data]` the kernel uses them.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortBlocksTable {
    /// The addresses of hosts: `"100.64.0.0/20"`, `"10.0.0.10-10.0.0.99"`.
    pub inside: String,
    /// The public addresses, in the order of assignment.
    pub outside: Vec<Ipv4Addr>,
    /// The first port to assign. Lower ports are reserved.
    #[serde(default = "PortBlocksTable::first")]
    pub first: u16,
}

impl PortBlocksTable {
    const fn first() -> u16 {
        1024
    }
}

/// The IDENT server (RFC 1413), which reveals the owners of connections.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IdentTable {
    /// The addresses and ports to listen on. nftables redirects queries to hosts' addresses to the port of the first
    /// one.
    pub listen: Vec<SocketAddr>,
    /// The permitted askers and their disclosure levels. The longest matching prefix counts. Others get no answer.
    pub asker: Vec<AskerTable>,
    /// The disclosure level of all other askers. Without it they get no answer.
    #[serde(deserialize_with = "optional")]
    #[schemars(schema_with = "named::schema::<DisclosureLevel>")]
    pub others: Option<DisclosureLevel>,
    /// Users who are never named: the answer is HIDDEN-USER.
    pub hide: Vec<String>,
    /// The key of tokens, for askers with `disclose = "token"`.
    pub token: Option<IdentTokenKeyTable>,
    /// This concentrator's addresses that several hosts share (masquerading). For their connections, the kernel's
    /// connection tracking finds the host.
    pub masquerade: Vec<IpAddr>,
}

impl Default for IdentTable {
    fn default() -> Self {
        let any = [IpAddr::from([0_u8; 4]), IpAddr::from([0_u8; 16])];
        Self {
            listen: any.map(|address| SocketAddr::new(address, usher_ident::PORT)).to_vec(),
            asker: Vec::new(),
            others: None,
            hide: Vec::new(),
            token: None,
            masquerade: Vec::new(),
        }
    }
}

fn optional<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<DisclosureLevel>, D::Error> {
    named::read(from).map(Some)
}

usher_core::named! {
    "a data plane";
    /// The kind of data plane.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ModeWord {
        /// In this program, by packet sockets and a TUN device.
        User = "user",
        /// In the kernel, by eBPF programs.
        Ebpf = "ebpf",
        /// In the kernel, by its own PPPoE.
        Kernel = "kernel",
    }
}

usher_core::named! {
    "a hook of eBPF mode";
    /// The hook at which eBPF mode decapsulates PPPoE.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum EbpfHookName {
        /// The faster one of each interface: XDP if its driver has it; tc otherwise, and for veth.
        Auto = "auto",
        /// XDP: native if the driver has it, otherwise the slower generic XDP.
        Xdp = "xdp",
        /// tc's ingress.
        Tc = "tc",
    }
}

usher_core::named! {
    "a translation of addresses";
    /// The translation of hosts' IPv4 addresses.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum NatModeName {
        /// No translation by this host.
        None = "none",
        /// To an address of the outgoing interface.
        Masquerade = "masquerade",
        /// To the host's public address and port block of `[tracking.ports]`.
        Blocks = "blocks",
    }
}

/// The data plane.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DataTable {
    /// The kind of data plane.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<ModeWord>")]
    pub mode: ModeWord,
    /// With `mode = "ebpf"`: the hook at which PPPoE is decapsulated.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<EbpfHookName>")]
    pub hook: EbpfHookName,
    /// The name of the network device toward the sessions.
    pub device: String,
    /// Whether to clamp the TCP MSS to the MTU of sessions. It helps where path MTU discovery fails.
    pub clamp_mss: bool,
    /// The translation of hosts' IPv4 addresses, by nftables.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<NatModeName>")]
    pub nat: NatModeName,
    /// The interval at which the traffic of sessions is counted.
    pub report: TimeSpan,
}

impl Default for DataTable {
    fn default() -> Self {
        Self {
            mode: ModeWord::User,
            hook: EbpfHookName::Auto,
            device: "pppoe0".to_owned(),
            clamp_mss: true,
            nat: NatModeName::None,
            report: TimeSpan::from_secs(10),
        }
    }
}

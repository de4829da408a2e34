//! The file as types. The documentation of these items is the published schema's.

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
use usher_ident_service::config::{AskerTable, TokenTable};
use usher_ppp::auth::AuthenticationProtocol;
use usher_ppp::concentrator::ExcessSessionPolicy;

/// The configuration of `usher pppoe serve`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Usher's PPPoE access concentrator")]
pub struct ConcentratorFile {
    /// Where hosts are served, and where the concentrator itself is asked.
    pub listen: ListenTable,
    /// What hosts find, and which addresses they get.
    pub service: ServiceTable,
    /// How hosts show who they are.
    pub authentication: AuthenticationTable,
    /// Users that the concentrator knows itself, where there is no `[aaa]`.
    pub user: Vec<UserTable>,
    /// AAA servers, which judge who is let in and are told of sessions.
    pub aaa: Option<AaaTable>,
    /// Address pools. Those of addresses are for hosts, those of prefixes for their links and the networks behind them.
    pub pool: Vec<PoolTable>,
    /// Rates by name: an AAA server names one by Filter-Id, and that of the name `default` is for everybody else.
    pub rate: Vec<RateTable>,
    /// What nobody may exceed.
    pub limits: LimitsTable,
    /// The log of who had which address when. Without it nothing is kept, and nothing can be answered later.
    pub tracking: Option<TrackingTable>,
    /// Who is told by IDENT whose a connection is.
    pub ident: Option<IdentTable>,
    /// What carries packets.
    pub data: DataTable,
    /// The concentrator's own log.
    pub log: LogConfig,
}

/// Where hosts are served, and where the concentrator itself is asked.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenTable {
    /// Network interfaces with hosts behind them: `["eth1"]`. They need no address.
    pub interfaces: Vec<String>,
    /// The control socket, by which `usher pppoe sessions`, `usher pppoe disconnect` and `usher who` ask.
    pub control: PathBuf,
    /// Where metrics are had over HTTP, in Prometheus's form, at `/metrics`; without it nowhere.
    pub metrics: Option<SocketAddr>,
}

impl Default for ListenTable {
    fn default() -> Self {
        Self { interfaces: Vec::new(), control: super::DEFAULT_CONTROL.into(), metrics: None }
    }
}

/// What hosts find, and which addresses they get.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceTable {
    /// The concentrator's name, which hosts are told (AC-Name).
    pub name: String,
    /// Names of services. Without any every name that a host asks for is taken.
    pub services: Vec<String>,
    /// The concentrator's IPv4 address of every link, such as `"10.0.0.1"`; without it hosts get no IPv4.
    pub address: Option<Ipv4Addr>,
    /// Pools of IPv4 addresses, the first with a free one. The AAA server's word goes first.
    pub pools: Vec<String>,
    /// Whether hosts get IPv6 [default: where one of the two pools below is named].
    pub ipv6: Option<bool>,
    /// The pool of the IPv6 prefixes of links, as of `"2001:db8:1::/48/64"`.
    pub prefix_pool: Option<String>,
    /// The pool of IPv6 prefixes for networks behind hosts, which they ask for by DHCPv6, as of `"2001:db8:ff00::/40/56"`.
    pub delegated_pool: Option<String>,
    /// Name servers that hosts are told.
    pub dns: Vec<IpAddr>,
    /// Whether line numbers that a switch adds to discovery packets (RFC 4679) are believed: only where it takes away those that
    /// hosts send.
    pub trust_circuit_id: bool,
}

impl Default for ServiceTable {
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
    "what is done while no AAA server answers";
    /// What becomes of hosts while no AAA server answers.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum WhenAwayWord {
        /// Nobody is let in; sessions that are there stay until their time is over.
        Refuse = "refuse",
        /// Who was let in lately by a password (PAP) is let in again by the same one, and sessions go on beyond their time, for
        /// `grace_time`. What a challenge asks for (CHAP, MS-CHAPv2, EAP) the server alone can judge.
        Grace = "grace",
    }
}

/// How hosts show who they are.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthenticationTable {
    /// The protocols that hosts may use, the preferred first. PAP shows the password to whoever listens on the Ethernet.
    #[serde(deserialize_with = "named::read_list")]
    #[schemars(schema_with = "named::list_schema::<AuthenticationProtocol>")]
    pub protocols: Vec<AuthenticationProtocol>,
    /// For users that the concentrator knows itself: the EAP methods that are proposed, the preferred first.
    #[serde(deserialize_with = "named::read_list")]
    #[schemars(schema_with = "named::list_schema::<EapMethod>")]
    pub eap_methods: Vec<EapMethod>,
    /// For users that the concentrator knows itself: failed logins under one name, or from one station (or circuit, with
    /// `trust_circuit_id`), after which nothing more of it is weighed, but for a user at a station where its last login was right, within a
    /// week; 0: no limit.
    pub failures: u32,
    /// Within this time.
    pub failures_within: TimeSpan,
    /// For this long.
    pub failures_hold: TimeSpan,
    /// Whether the AAA server lets nobody in by EAP-TLS whose certificate does not bear the user's name. Ours does so; FreeRADIUS and others
    /// want `check_cert_cn` or the like for it. Without it such a user has a name only where the server says one.
    pub trust_certificate_names: bool,
    /// What becomes of hosts while no AAA server answers.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<WhenAwayWord>")]
    pub when_away: WhenAwayWord,
    /// For so long, with `grace`.
    pub grace_time: TimeSpan,
}

impl Default for AuthenticationTable {
    fn default() -> Self {
        use AuthenticationProtocol::{Chap, Eap, MsChapV2};
        Self {
            protocols: [Eap, MsChapV2, Chap].into(),
            eap_methods: [EapMethod::MsChapV2, EapMethod::Md5].into(),
            failures: 10,
            failures_within: TimeSpan::from_secs(60),
            failures_hold: TimeSpan::from_secs(60),
            trust_certificate_names: false,
            when_away: WhenAwayWord::Refuse,
            grace_time: TimeSpan::from_secs(3600),
        }
    }
}

/// Rates.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateTable {
    /// Their name.
    pub name: String,
    /// From a host: `"100 Mb/s"`; without it as fast as it goes.
    pub up: Option<BitRate>,
    /// To a host.
    pub down: Option<BitRate>,
}

/// What nobody may exceed.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsTable {
    /// Sessions at a time, at most 65534.
    pub sessions: PositiveCount,
    /// Sessions at a time whose hosts are not let in yet. Where there are so many, a new one takes the place of the oldest of the interface
    /// (and circuit, with `trust_circuit_id`) that has the most.
    pub half_open: PositiveCount,
    /// Sessions at a time of one station.
    pub sessions_per_station: PositiveCount,
    /// Sessions at a time of one user; `0`: as many as it likes.
    pub sessions_per_user: u32,
    /// What becomes of one session more of a station or user.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<ExcessSessionPolicy>")]
    pub excess: ExcessSessionPolicy,
    /// How long a session may last where the AAA server does not say. `"0 s"`: without end.
    pub session_timeout: TimeSpan,
    /// How long a session may carry nothing where the AAA server does not say. `"0 s"`: without end.
    pub idle_timeout: TimeSpan,
    /// How long a host may take from its first packet until it is let in and has an address.
    pub login: TimeSpan,
    /// How often a host is asked whether it lives. `"0 s"`: never.
    pub keepalive: TimeSpan,
    /// How many answers to that may be missing.
    pub keepalive_failures: PositiveCount,
    /// Discovery packets of one station a second; ten times as many of a circuit, with `trust_circuit_id`.
    pub discovery_per_station: PositiveCount,
    /// Discovery packets of all stations of an interface a second.
    pub discovery: PositiveCount,
    /// Connections that a host may have begun at a time, by each of its IPv4 address and its prefixes, of TCP without those that are closed;
    /// `0`: as many as it likes. What is beyond is dropped, by nftables [default: 4096 where nftables has rules for hosts, as `nat`, `[ident]`
    /// and `translations` ask for; otherwise none, so that the system need not track connections].
    pub connections: Option<u32>,
    /// Connections that a host may begin a second, likewise, ten times as many at once after ten seconds without any; `0`: as many as it
    /// likes [default: 100 where `connections` has one].
    pub connections_per_second: Option<u32>,
}

impl LimitsTable {
    /// Connections of a host at a time, and a second, where the file does not say.
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

/// The log of who had which address when.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrackingTable {
    /// Its folder: a file of lines of JSON for each day, in UTC. A session is there before its host is let in.
    pub folder: PathBuf,
    /// After how many days a day's file is deleted; `0`: never. What must be kept, and what may not be kept longer, is the law's.
    pub keep_days: u32,
    /// Files to which is written who asked for whom, by `usher who` and by IDENT, each called so with its day (`audit-2026-11-26.jsonl`), and
    /// kept as long as the log. `""`: none.
    pub audit: PathBuf,
    /// Hosts share addresses outside, each by a block of ports of its own.
    pub ports: Option<PortsTable>,
    /// Whether each connection that the kernel translates is logged, with its end inside and what stands for it outside, but not where
    /// it goes (RFC 6888, REQ-12). Needed to answer for a past port of an address that hosts share without blocks of ports.
    pub translations: bool,
    /// With `translations`, how much is to be free on the disk that has the log. Where less is, and where the log cannot be written,
    /// connections that hosts begin from IPv4 addresses are dropped until that is over; those that are there go on, and what is free
    /// is for the log of sessions. At twice as much there is a warning.
    pub keep_free: ByteSize,
    /// Collectors of IPFIX that are told, too, which addresses and ports stand for whom (RFC 8158).
    pub ipfix: Option<IpfixTable>,
}

/// Collectors of IPFIX (RFC 7011), which are told over UDP. What is lost on the way they miss.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IpfixTable {
    /// Their addresses: `"192.0.2.9:4739"`.
    pub collectors: Vec<SocketAddr>,
    /// The observation domain, by which a collector tells exporters of an address apart.
    #[serde(default)]
    pub domain: u32,
    /// Octets of the longest message: 512 to 65535. 512 are right where the path's MTU is not known.
    #[serde(default = "IpfixTable::message")]
    pub message: u16,
    /// How often templates are repeated.
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

impl Default for TrackingTable {
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

/// Which ports of which address outside stand for a host (RFC 7422): computed, so that no connection is logged. With
/// `nat = "blocks"` below `[data]` the kernel translates so.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortsTable {
    /// The hosts' addresses: `"100.64.0.0/20"`, `"10.0.0.10-10.0.0.99"`.
    pub inside: String,
    /// The addresses outside, in the order in which they are shared out.
    pub outside: Vec<Ipv4Addr>,
    /// The first port that is shared out: those before it are reserved.
    #[serde(default = "PortsTable::first")]
    pub first: u16,
}

impl PortsTable {
    const fn first() -> u16 {
        1024
    }
}

/// Who is told by IDENT (RFC 1413) whose a connection is.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IdentTable {
    /// Addresses with ports to listen on. Queries for hosts' own addresses are led to the first one's port, by nftables.
    pub listen: Vec<SocketAddr>,
    /// Who may ask, and what each is told; the longest prefix that fits wins. Who is in none is not answered at all.
    pub asker: Vec<AskerTable>,
    /// What is told to whom no `asker` names. Without it they are not answered.
    #[serde(deserialize_with = "optional")]
    #[schemars(schema_with = "named::schema::<DisclosureLevel>")]
    pub others: Option<DisclosureLevel>,
    /// Users who do not want to be named: whoever asks for them hears HIDDEN-USER.
    pub hide: Vec<String>,
    /// The key of tokens, for askers with `disclose = "token"`.
    pub token: Option<TokenTable>,
    /// Addresses of this host's that several hosts share (masquerading): of a connection of theirs the system is asked which host
    /// it is.
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
    /// What carries packets of sessions.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ModeWord {
        /// This program: a packet socket and a TUN device.
        User = "user",
        /// The kernel, by programs of eBPF that this program loads.
        Ebpf = "ebpf",
        /// The kernel's own PPPoE.
        Kernel = "kernel",
    }
}

usher_core::named! {
    "a hook of eBPF mode";
    /// Where in the kernel eBPF mode takes PPPoE off.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum HookWord {
        /// At each interface where it is quicker: XDP where its driver has that, tc elsewhere and at an end of a veth pair.
        Auto = "auto",
        /// XDP, in the driver or, more slowly, behind it.
        Xdp = "xdp",
        /// tc's ingress.
        Tc = "tc",
    }
}

usher_core::named! {
    "a translation of addresses";
    /// What hosts' IPv4 addresses become outside.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum NatWord {
        /// They stay as they are, or others translate them.
        None = "none",
        /// An address of the interface by which packets leave.
        Masquerade = "masquerade",
        /// The address and the block of ports that `[tracking.ports]` has for each.
        Blocks = "blocks",
    }
}

/// What carries packets.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DataTable {
    /// Who does.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<ModeWord>")]
    pub mode: ModeWord,
    /// In mode ebpf, where PPPoE is taken off.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<HookWord>")]
    pub hook: HookWord,
    /// The name of the device by which packets of hosts come out and go in.
    pub device: String,
    /// Whether the largest segment of TCP that hosts ask for is made to fit their sessions, for those who do not hear of packets
    /// that are too long.
    pub clamp_mss: bool,
    /// Whether hosts' IPv4 addresses are translated, by nftables.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<NatWord>")]
    pub nat: NatWord,
    /// How often it is counted what sessions have carried.
    pub report: TimeSpan,
}

impl Default for DataTable {
    fn default() -> Self {
        Self {
            mode: ModeWord::User,
            hook: HookWord::Auto,
            device: "pppoe0".to_owned(),
            clamp_mss: true,
            nat: NatWord::None,
            report: TimeSpan::from_secs(10),
        }
    }
}

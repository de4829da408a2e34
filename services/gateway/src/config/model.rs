//! The file as types. The published schema contains the documentation of these items.

use super::data::{DataTable, PolicyActionName};
use super::revocation::RevocationTable;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use usher_access_config::{AaaTable, PoolTable, TlsTable, UserTable};
use usher_config::log::LogConfig;
use usher_config::secret::SecretText;
use usher_config::units::{ByteSize, PositiveCount, TimeSpan};
use usher_config::{Prefix, named};
use usher_core::Duration;
use usher_esp::SaLifetime;

/// The configuration of `usher ike serve` and `usher ike connect`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Usher's IKEv2 gateway")]
pub struct GatewayConfigFile {
    /// Where IKE listens.
    pub listen: ListenTable,
    /// The peers with which IKE_SAs are allowed. The first connection that matches a peer applies.
    pub connection: Vec<ConnectionTable>,
    /// Address pools.
    pub pool: Vec<PoolTable>,
    /// AAA servers, which authenticate users by EAP and keep accounting.
    pub aaa: Option<AaaTable>,
    /// How the gateway authenticates its own users by EAP.
    pub eap: Option<GatewayEapTable>,
    /// The gateway's own users.
    pub user: Vec<UserTable>,
    /// Limits.
    pub limits: LimitsTable,
    /// The data plane, which carries packets of CHILD_SAs. A study has none.
    pub data: DataTable,
    /// Revocation checks of the peers' certificates.
    pub revocation: RevocationTable,
    /// A file to which the program appends the keys of CHILD_SAs, in the format of Wireshark's table esp_sa. Like
    /// `key_log`, for debugging only.
    pub esp_key_log: Option<PathBuf>,
    /// A file to which the program appends the keys of IKE_SAs, in the format of Wireshark's ikev2_decryption_table.
    /// Its readers can decrypt all traffic: for debugging only.
    pub key_log: Option<PathBuf>,
    /// The log.
    pub log: LogConfig,
}

/// Where IKE listens.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenTable {
    /// One IPv4 address, one IPv6 address, or both. `"0.0.0.0"` and `"::"` mean all addresses of the host.
    pub addresses: Vec<IpAddr>,
    /// The port of IKE.
    pub port: u16,
    /// The port of IKE and ESP behind a NAT, and with MOBIKE.
    pub nat_port: u16,
    /// Number of threads that serve IKE, from 1 to 64. Each has its own sockets and IKE_SAs. Tickets, `[aaa.dynamic]`
    /// and `[aaa.diameter]` need 1.
    pub shards: u8,
    /// The control socket, which `usher ike status`, `rekey` and `down` use.
    pub control: PathBuf,
    /// The address and port at which an HTTP server exports metrics to Prometheus, at `/metrics`. Without it, there are
    /// no metrics.
    pub metrics: Option<SocketAddr>,
}

impl Default for ListenTable {
    fn default() -> Self {
        Self {
            addresses: [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()].to_vec(),
            port: 500,
            nat_port: 4500,
            shards: 1,
            control: super::DEFAULT_CONTROL.into(),
            metrics: None,
        }
    }
}

usher_core::named! {
    "an authentication method";
    /// How this side authenticates.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum LocalAuth {
        /// By a shared key.
        Psk = "psk",
        /// By a certificate.
        Certificate = "certificate",
        /// By EAP. This side initiates.
        Eap = "eap",
        /// By the EAP method alone (RFC 5998). The peer initiates.
        EapOnly = "eap-only",
    }
}

usher_core::named! {
    "an authentication method";
    /// How the peer authenticates.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum RemoteAuth {
        /// By a shared key.
        Psk = "psk",
        /// By a certificate.
        Certificate = "certificate",
        /// By EAP, to the AAA servers. The peer initiates.
        Eap = "eap",
        /// By EAP, to the gateway, for its own users. The peer initiates.
        EapLocal = "eap-local",
        /// By the EAP method alone (RFC 5998). This side initiates.
        EapOnly = "eap-only",
    }
}

usher_core::named! {
    "an EAP method";
    /// An EAP method.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum AuthMethod {
        /// EAP-MD5, which derives no key.
        Md5 = "md5",
        /// EAP-MSCHAPv2.
        MsChapV2 = "mschapv2",
        /// EAP-TLS.
        Tls = "tls",
    }
}

usher_core::named! {
    "a policy for the Extended Master Secret";
    /// Whether TLS 1.2 within EAP needs the Extended Master Secret (RFC 7627).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ExtendedMasterSecret {
        /// Handshakes without it are refused: an attacker in the path could give two handshakes the same keys.
        Required = "required",
        /// Handshakes without it are accepted, for old peers such as strongSwan 5.9.
        Optional = "optional",
    }
}

usher_core::named! {
    "a policy for IKE_SAs without a CHILD_SA";
    /// Whether IKE_SAs without a CHILD_SA are allowed (RFC 6023).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ChildlessSaPolicy {
        /// Each IKE_SA starts with a CHILD_SA.
        Never = "never",
        /// The initiator decides.
        Allow = "allow",
        /// IKE_SAs start without a CHILD_SA; CHILD_SAs follow.
        Force = "force",
    }
}

usher_core::named! {
    "an order of reauthentication";
    /// How this side reauthenticates (RFC 7296 §2.8.3).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Reauthentication {
        /// The new IKE_SA is established before the old one ends, so traffic is not interrupted. For a moment, the peer
        /// must accept two IKE_SAs of the same identities.
        MakeBeforeBreak = "make-before-break",
        /// The old IKE_SA ends before this side initiates the new one.
        BreakBeforeMake = "break-before-make",
    }
}

usher_core::named! {
    "a mode of CHILD_SAs";
    /// The mode of a CHILD_SA.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ModeWord {
        /// ESP carries whole IP packets.
        Tunnel = "tunnel",
        /// ESP carries the payloads of IP packets between the two hosts.
        Transport = "transport",
    }
}

/// A peer, or a group of peers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionTable {
    /// Its name.
    pub name: String,
    /// This side's identity: a domain name, a mail address or an IP address [default: the subject of this side's
    /// certificate].
    pub local_id: Option<String>,
    /// The identity that the peer must have [default: any that it proves].
    pub remote_id: Option<String>,
    /// How this side authenticates.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<LocalAuth>")]
    pub local_auth: LocalAuth,
    /// How the peer authenticates.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<RemoteAuth>")]
    pub remote_auth: RemoteAuth,
    /// The shared key, for `psk`.
    pub secret: Option<SecretText>,
    /// A file that contains the shared key. Other users must not be able to read it.
    pub secret_file: Option<PathBuf>,
    /// An environment variable that contains the shared key.
    pub secret_env: Option<String>,
    /// A PEM file with this side's certificate, followed by the certificates of its issuers. For `certificate`, and for
    /// EAP-TLS.
    pub certificate: Option<PathBuf>,
    /// A PEM file with the certificate's private key. Other users must not be able to read it.
    pub key: Option<PathBuf>,
    /// Whether an RSA key signs by RSASSA-PSS (RFC 8247) instead of RSASSA-PKCS1-v1_5, the only scheme of older peers.
    /// This side accepts both from the peer.
    #[serde(default)]
    pub rsa_pss: bool,
    /// A PEM file with the certificates of the authorities from which the peer's certificate must come.
    pub ca: Option<PathBuf>,
    /// For `eap`: the identity that this side claims.
    pub eap_identity: Option<String>,
    /// For `eap`: the methods that this side accepts, the preferred first.
    #[serde(default, deserialize_with = "named::read_list")]
    #[schemars(schema_with = "named::list_schema::<AuthMethod>")]
    pub eap_methods: Vec<AuthMethod>,
    /// For EAP-TLS: the domain name that the certificate of the EAP server, such as the AAA server, must contain.
    /// Default with `remote_auth = "eap-only"`: the domain name in `remote_id`, since only that certificate identifies
    /// the peer. Default otherwise: any name below `ca`, since the peer has authenticated by then.
    pub eap_server_name: Option<String>,
    /// For `eap` with `tls`: whether TLS 1.2 needs the Extended Master Secret (RFC 7627).
    #[serde(default = "required", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<ExtendedMasterSecret>")]
    pub extended_master_secret: ExtendedMasterSecret,
    /// For `eap`: the password.
    pub password: Option<SecretText>,
    /// A file that contains the password. Other users must not be able to read it.
    pub password_file: Option<PathBuf>,
    /// An environment variable that contains the password.
    pub password_env: Option<String>,
    /// The algorithms of IKE, the preferred proposal first: `"aes256gcm16-prfsha384-ecp384"`,
    /// `"aes128-sha256-x25519-modp2048"`.
    #[serde(default = "ConnectionTable::proposals")]
    pub proposals: Vec<String>,
    /// Whether IKE_SAs without a CHILD_SA are allowed (RFC 6023).
    #[serde(default = "ConnectionTable::childless", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<ChildlessSaPolicy>")]
    pub childless: ChildlessSaPolicy,
    /// Whether the initiator may move to another address (MOBIKE, RFC 4555).
    #[serde(default = "yes")]
    pub mobike: bool,
    /// Whether long messages are sent in fragments (RFC 7383).
    #[serde(default = "yes")]
    pub fragmentation: bool,
    /// The time after which this side rekeys the IKE_SA, up to a tenth sooner [default: `"4 h"`, or nine tenths of
    /// `lifetime` if that is sooner]. `"0 s"`: this side never rekeys it.
    pub rekey_after: Option<TimeSpan>,
    /// The time after which an IKE_SA ends if neither side has replaced it [default: a tenth more than `rekey_after`,
    /// or no limit]. `"0 s"`: no limit.
    pub lifetime: Option<TimeSpan>,
    /// The time after which this side reauthenticates an IKE_SA that it initiated, up to a tenth sooner. `"0 s"`:
    /// never.
    #[serde(default = "ConnectionTable::reauth_after")]
    pub reauth_after: TimeSpan,
    /// How this side reauthenticates.
    #[serde(default = "ConnectionTable::reauthentication", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<Reauthentication>")]
    pub reauthentication: Reauthentication,
    /// The silence after which this side probes the peer (dead peer detection). `"0 s"`: never.
    #[serde(default = "ConnectionTable::liveness")]
    pub liveness: TimeSpan,
    /// Whether a new IKE_SA ends older ones of the same two identities. Otherwise a user may have several at a time,
    /// each with its own address.
    #[serde(default = "yes")]
    pub unique: bool,
    /// With `remote_auth = "eap"`: whether the AAA server rejects EAP-TLS logins whose certificate lacks the user's name.
    /// `usher aaa` does so; FreeRADIUS and others need `check_cert_cn` or a similar setting. With `false`, such users get
    /// their names only from the server's replies.
    #[serde(default = "yes")]
    pub trust_certificate_names: bool,
    /// Names of the pools from which the peer gets an address. An address or pool from the AAA server takes precedence.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Whether the initiator gets a virtual address. If this side initiates, it requests one [default: true if there
    /// are `pools`].
    pub address: Option<bool>,
    /// The name servers that this side assigns to the peer.
    #[serde(default)]
    pub dns: Vec<IpAddr>,
    /// The domains that these name servers resolve (RFC 8598) [default: all].
    #[serde(default)]
    pub domains: Vec<String>,
    /// This side's address [default: the host chooses it].
    pub local_address: Option<IpAddr>,
    /// The peer's address, if this side may initiate.
    pub remote_address: Option<IpAddr>,
    /// The networks from which the peer may initiate [default: all]. An initiator from elsewhere needs another
    /// connection.
    pub from: Option<Vec<Prefix>>,
    /// The peer's port. At any port other than 500, messages have the format of port 4500, which carries ESP too.
    #[serde(default = "ConnectionTable::remote_port")]
    pub remote_port: u16,
    /// Whether this side initiates the connection at the start, and again after its end.
    #[serde(default)]
    pub start: bool,
    /// The wait before this side initiates the connection again. For as long after a failure, packets do not initiate
    /// it.
    #[serde(default = "ConnectionTable::retry")]
    pub retry: TimeSpan,
    /// The action on traffic for the networks of its CHILD_SAs while no CHILD_SA protects it: it is dropped, or sent in
    /// the clear.
    #[serde(default = "ConnectionTable::unprotected", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<PolicyActionName>")]
    pub without_child_sa: PolicyActionName,
    /// Whether the first packet that needs one of its CHILD_SAs initiates the connection. The packet waits for the
    /// CHILD_SA.
    #[serde(default)]
    pub on_demand: bool,
    /// The CHILD_SAs of the connection. The initiator creates the first one with the IKE_SA, and the others after it.
    /// With `on_demand`, it creates the others when a packet needs them.
    #[serde(default)]
    pub child: Vec<ChildSaTable>,
}

const fn yes() -> bool {
    true
}

/// When an SA is replaced: as is said, or else by default, but before it ends.
fn rekeyed_after(said: Option<TimeSpan>, lifetime: Option<TimeSpan>, default: Duration) -> Option<Duration> {
    let ends = lifetime.map(TimeSpan::get).filter(|time| !time.is_zero());
    let unsaid = || ends.map_or(default, |ends| default.min(ends * 9 / 10));
    Some(said.map_or_else(unsaid, TimeSpan::get)).filter(|time| !time.is_zero())
}

const fn required() -> ExtendedMasterSecret {
    ExtendedMasterSecret::Required
}

impl ConnectionTable {
    fn proposals() -> Vec<String> {
        [
            "aes256gcm16-aes128gcm16-prfsha384-prfsha256-x25519-ecp384-ecp256-modp3072-modp2048",
            "aes256-aes128-sha384-sha256-x25519-ecp384-ecp256-modp3072-modp2048",
        ]
        .map(ToOwned::to_owned)
        .into()
    }
    const fn childless() -> ChildlessSaPolicy {
        ChildlessSaPolicy::Allow
    }
    const fn unprotected() -> PolicyActionName {
        PolicyActionName::Discard
    }
    /// When the IKE_SA is replaced; `None`: never by this side.
    pub(super) fn rekeyed_after(&self) -> Option<Duration> {
        rekeyed_after(self.rekey_after, self.lifetime, Duration::from_secs(4 * 3600))
    }
    const fn reauth_after() -> TimeSpan {
        TimeSpan::from_secs(0)
    }
    const fn reauthentication() -> Reauthentication {
        Reauthentication::MakeBeforeBreak
    }
    const fn liveness() -> TimeSpan {
        TimeSpan::from_secs(30)
    }
    const fn remote_port() -> u16 {
        500
    }
    const fn retry() -> TimeSpan {
        TimeSpan::from_secs(10)
    }
}

/// The configuration of a CHILD_SA.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChildSaTable {
    /// Its name.
    pub name: String,
    /// The networks of this side [default: this side's address, or its virtual address if it has one].
    pub local: Option<Vec<Prefix>>,
    /// The networks of the peer [default: the peer's address, or its virtual address if it has one].
    pub remote: Option<Vec<Prefix>>,
    /// The algorithms of ESP, the preferred proposal first: `"aes128gcm16-x25519"`. With a key exchange, CHILD_SAs that
    /// are created later have independent keys.
    #[serde(default = "ChildSaTable::proposals")]
    pub proposals: Vec<String>,
    /// Tunnel mode or transport mode.
    #[serde(default = "ChildSaTable::mode", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<ModeWord>")]
    pub mode: ModeWord,
    /// The time after which this side rekeys the CHILD_SA, up to a tenth sooner [default: `"1 h"`, or nine tenths of
    /// `lifetime` if that is sooner]. `"0 s"`: this side never rekeys it.
    pub rekey_after: Option<TimeSpan>,
    /// The time after which a CHILD_SA ends if neither side has replaced it [default: a tenth more than `rekey_after`,
    /// or no limit]. `"0 s"`: no limit.
    pub lifetime: Option<TimeSpan>,
    /// The octets in one direction after which this side rekeys the CHILD_SA [default: no limit]. If neither side has
    /// replaced it after a tenth more, it ends. Without effect in a study.
    pub rekey_bytes: Option<ByteSize>,
    /// The same for packets.
    pub rekey_packets: Option<PositiveCount>,
}

impl ChildSaTable {
    fn proposals() -> Vec<String> {
        ["aes128gcm16-aes256gcm16-chacha20poly1305", "aes128-aes256-sha256-sha384"]
            .map(ToOwned::to_owned)
            .into()
    }
    const fn mode() -> ModeWord {
        ModeWord::Tunnel
    }
    /// When it is replaced; `None`: never by this side.
    pub(super) fn rekeyed_after(&self) -> Option<Duration> {
        rekeyed_after(self.rekey_after, self.lifetime, Duration::from_secs(3600))
    }
    /// The traffic limits of each of its SAs (RFC 4301 §4.4.2.1).
    #[must_use]
    pub fn volume_lifetime(&self) -> SaLifetime {
        let last = |limit: u64| limit.saturating_add((limit / 10).max(1));
        let octets = self.rekey_bytes.map(ByteSize::bytes);
        let packets = self.rekey_packets.map(|count| u64::from(count.get()));
        SaLifetime {
            soft_octets: octets,
            hard_octets: octets.map(last),
            soft_packets: packets,
            hard_packets: packets.map(last),
        }
    }
}

/// How the gateway authenticates its own users by EAP.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayEapTable {
    /// The methods that the gateway proposes, the preferred first.
    #[serde(deserialize_with = "named::read_list")]
    #[schemars(schema_with = "named::list_schema::<AuthMethod>")]
    pub methods: Vec<AuthMethod>,
    /// For EAP-TLS: the gateway's certificate, and the authorities of user certificates. The gateway admits a user with
    /// such a certificate for the claimed name.
    pub tls: Option<TlsTable>,
    /// Whether TLS 1.2 needs the Extended Master Secret (RFC 7627).
    #[serde(default = "required", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<ExtendedMasterSecret>")]
    pub extended_master_secret: ExtendedMasterSecret,
    /// Failed logins of one name, or from one host, that cause a lockout. A host is an IPv4 address or 64 bits of an
    /// IPv6 address. A user that logged in from a host within a week has its own count there. 0: no limit.
    #[serde(default = "GatewayEapTable::failures")]
    pub failures: u32,
    /// The time within which they fail.
    #[serde(default = "GatewayEapTable::minute")]
    pub failure_window: TimeSpan,
    /// The duration of a lockout.
    #[serde(default = "GatewayEapTable::minute")]
    pub lockout_time: TimeSpan,
}

impl GatewayEapTable {
    const fn failures() -> u32 {
        10
    }
    const fn minute() -> TimeSpan {
        TimeSpan::from_secs(60)
    }
}

/// Limits.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsTable {
    /// The number of IKE_SAs.
    pub sas: PositiveCount,
    /// The number of half-open IKE_SAs, whose initiators have not authenticated. At the limit, an initiator with a
    /// cookie evicts one of the network with the most. Its own network must have none, or at least two fewer. The
    /// evicted one is the oldest: silent for two seconds since its first request, or else ten seconds old and not
    /// waiting for this side. If no such IKE_SA exists, the request is dropped.
    pub half_open: PositiveCount,
    /// The number of half-open IKE_SAs at which every initiator must return a cookie first.
    pub cookies_from: u32,
    /// The number of half-open IKE_SAs of one network at which its initiators must return a cookie first. A network is
    /// 24 bits of an IPv4 address or 48 of an IPv6 address.
    pub cookies_from_network: u32,
    /// The number of half-open IKE_SAs of one host, above `cookies_from`. A host is an IPv4 address or 64 bits of an
    /// IPv6 address. A site, 56 bits of an IPv6 address, may have eight times as many, and a network an eighth of
    /// `half_open`.
    pub half_open_per_host: PositiveCount,
    /// Failed proofs by the shared key of a connection per minute. Beyond, proofs from networks with a failure within
    /// ten minutes are rejected unchecked. An identity is exempt at a host where its last proof was right, within a
    /// week. 0: no limit.
    pub failed_proofs_per_minute: u32,
    /// Requests that the peer of an established IKE_SA may send per minute, or at once. Further ones are dropped; their
    /// retransmissions may be accepted later. At least 60; 0: no limit.
    pub requests_per_minute: u32,
    /// Requests per minute that create or rekey SAs, each of which may cost a key exchange. Further ones are answered
    /// with TEMPORARY_FAILURE. 0: no limit.
    pub creates_per_minute: u32,
    /// The time that an initiator has to authenticate.
    pub login: TimeSpan,
    /// The wait before the first retransmission of a request; each further wait is 1.8 times as long.
    pub retransmission: TimeSpan,
    /// Retransmissions of a request before its IKE_SA is given up.
    pub retransmissions: PositiveCount,
    /// The octets of an IP packet above which a message is sent in fragments.
    pub packet: PositiveCount,
    /// The octets of the longest message that is reassembled from fragments.
    pub message: PositiveCount,
    /// Octets of incomplete messages in all half-open IKE_SAs together, an eighth of it in those of one network. The
    /// other IKE_SAs together may hold as much. Beyond, the oldest are dropped.
    pub fragments: PositiveCount,
    /// The time for which a NAT keeps the mapping of a silent connection.
    pub keepalive: TimeSpan,
    /// The lifetime of tickets by which clients resume a lost IKE_SA (RFC 5723), at most that of the certificates
    /// behind them. `"0 s"`: this side neither issues nor requests tickets. Users who log in by EAP get none.
    pub tickets: TimeSpan,
}

impl Default for LimitsTable {
    fn default() -> Self {
        let ike = usher_ike::machine::IkeEndpointConfig::default();
        let count = |n: usize| PositiveCount::from_u32(u32::try_from(n).unwrap_or(u32::MAX));
        Self {
            sas: count(ike.sas),
            half_open: count(ike.half_open),
            cookies_from: u32::try_from(ike.cookies_from).unwrap_or(u32::MAX),
            cookies_from_network: u32::try_from(ike.cookies_from_network).unwrap_or(u32::MAX),
            half_open_per_host: count(ike.half_open_per_host),
            failed_proofs_per_minute: ike.failed_proofs_per_minute,
            requests_per_minute: ike.requests_per_minute,
            creates_per_minute: ike.creates_per_minute,
            login: TimeSpan(ike.proof_timeout),
            retransmission: TimeSpan(ike.retransmission.first),
            retransmissions: PositiveCount::from_u32(ike.retransmission.count),
            packet: count(ike.packet),
            message: count(ike.message),
            fragments: count(ike.fragments),
            keepalive: TimeSpan(ike.keepalive),
            tickets: TimeSpan(ike.tickets.unwrap_or(Duration::ZERO)),
        }
    }
}

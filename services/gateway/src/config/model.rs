//! The file as types. The published schema contains the documentation of these items.

use super::data::{DataTable, PolicyWord};
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
pub struct GatewayFile {
    /// Where IKE listens.
    pub listen: ListenTable,
    /// With whom there may be IKE_SAs, the preferred first: the first that fits is taken.
    pub connection: Vec<ConnectionTable>,
    /// Address pools.
    pub pool: Vec<PoolTable>,
    /// AAA servers, which judge EAP and are told of sessions.
    pub aaa: Option<AaaTable>,
    /// How users prove by EAP who they are whom the gateway knows itself.
    pub eap: Option<EapTable>,
    /// Users that the gateway knows itself.
    pub user: Vec<UserTable>,
    /// What nobody may exceed.
    pub limits: LimitsTable,
    /// What carries packets of CHILD_SAs. In a study nothing does.
    pub data: DataTable,
    /// Whether certificates of the other sides still hold.
    pub revocation: RevocationTable,
    /// A file to which the keys of CHILD_SAs are appended, as Wireshark's table esp_sa has them. As with `key_log`, for finding
    /// faults alone.
    pub esp_key_log: Option<PathBuf>,
    /// A file to which the keys of IKE_SAs are appended, as Wireshark's ikev2_decryption_table has them. Who has it can read
    /// everything: for finding faults alone.
    pub key_log: Option<PathBuf>,
    /// Logs.
    pub log: LogConfig,
}

/// Where IKE listens.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenTable {
    /// One IPv4 address, one IPv6 address, or both; `"0.0.0.0"` and `"::"` are all of the host.
    pub addresses: Vec<IpAddr>,
    /// The port of IKE.
    pub port: u16,
    /// The port of IKE and ESP behind a NAT, and with MOBIKE.
    pub nat_port: u16,
    /// How many threads serve IKE, each with sockets and IKE_SAs of its own: 1 to 64. With more than one there are no tickets,
    /// no `[aaa.dynamic]` and no `[aaa.diameter]`.
    pub shards: u8,
    /// The control socket, by which `usher ike status`, `rekey` and `down` ask.
    pub control: PathBuf,
    /// Where metrics are had over HTTP, in Prometheus's form, at `/metrics`; without it nowhere.
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
    "a way of authenticating";
    /// How a side proves who it is.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum LocalAuth {
        /// By a key that both sides have.
        Psk = "psk",
        /// By a certificate.
        Certificate = "certificate",
        /// By EAP: this side begins.
        Eap = "eap",
        /// By the EAP method alone (RFC 5998): the other side begins.
        EapOnly = "eap-only",
    }
}

usher_core::named! {
    "a way of authenticating";
    /// How the other side has to prove who it is.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum RemoteAuth {
        /// By a key that both sides have.
        Psk = "psk",
        /// By a certificate.
        Certificate = "certificate",
        /// By EAP, which the AAA servers judge: the other side begins.
        Eap = "eap",
        /// By EAP, which the gateway judges itself by its own users: the other side begins.
        EapLocal = "eap-local",
        /// By the EAP method alone (RFC 5998): this side begins.
        EapOnly = "eap-only",
    }
}

usher_core::named! {
    "an EAP method";
    /// An EAP method.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum AuthMethod {
        /// EAP-MD5, which gives no key.
        Md5 = "md5",
        /// EAP-MSCHAPv2.
        MsChapV2 = "mschapv2",
        /// EAP-TLS.
        Tls = "tls",
    }
}

usher_core::named! {
    "whether the Extended Master Secret is asked for";
    /// Whether TLS 1.2 within EAP needs the Extended Master Secret (RFC 7627).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ExtendedMasterSecret {
        /// A handshake without it is refused: whoever stands between could have it made of the same keys as another.
        Required = "required",
        /// For old peers, strongSwan 5.9 among them: a handshake without it is taken.
        Optional = "optional",
    }
}

usher_core::named! {
    "an answer to whether there may be an IKE_SA without a CHILD_SA";
    /// Whether there may be an IKE_SA without a CHILD_SA (RFC 6023).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ChildlessWord {
        /// None may.
        Never = "never",
        /// Whoever begins decides.
        Allow = "allow",
        /// It is made without, and CHILD_SAs follow.
        Force = "force",
    }
}

usher_core::named! {
    "an order of ending and beginning";
    /// How this side proves anew who it is (RFC 7296 §2.8.3).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Reauthentication {
        /// A new IKE_SA is made before the old one ends: traffic is not interrupted. The other side has to bear two of the same
        /// two at a time, for a moment.
        MakeBeforeBreak = "make-before-break",
        /// The old one ends before a new one is begun.
        BreakBeforeMake = "break-before-make",
    }
}

usher_core::named! {
    "a mode of CHILD_SAs";
    /// The mode of a CHILD_SA.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ModeWord {
        /// Whole packets.
        Tunnel = "tunnel",
        /// What packets hold, between the two hosts.
        Transport = "transport",
    }
}

/// A peer, or a kind of peers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionTable {
    /// Its name.
    pub name: String,
    /// Who this side is: a domain name, a mail address or an IP address. Without it, with a certificate, that one's subject.
    pub local_id: Option<String>,
    /// Who the other side must be; without it anybody who proves who it is.
    pub remote_id: Option<String>,
    /// How this side proves who it is.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<LocalAuth>")]
    pub local_auth: LocalAuth,
    /// How the other side has to.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<RemoteAuth>")]
    pub remote_auth: RemoteAuth,
    /// The key that both sides have, for `psk`.
    pub secret: Option<SecretText>,
    /// A file that holds the key, readable by nobody else.
    pub secret_file: Option<PathBuf>,
    /// An environment variable that holds the key.
    pub secret_env: Option<String>,
    /// A file with this side's certificate and those up to its authority, PEM, its own first; for `certificate`, and for EAP-TLS.
    pub certificate: Option<PathBuf>,
    /// A file with the certificate's private key, PEM, readable by nobody else.
    pub key: Option<PathBuf>,
    /// Whether a key of RSA signs by RSASSA-PSS (RFC 8247) in place of RSASSA-PKCS1-v1_5, which older peers know alone. Of the other
    /// side both are taken.
    #[serde(default)]
    pub rsa_pss: bool,
    /// A file with the certificates of authorities that the other side's must be below, PEM.
    pub ca: Option<PathBuf>,
    /// For `eap`: who this side says it is.
    pub eap_identity: Option<String>,
    /// For `eap`: the methods that this side can do, the preferred one first.
    #[serde(default, deserialize_with = "named::read_list")]
    #[schemars(schema_with = "named::list_schema::<AuthMethod>")]
    pub eap_methods: Vec<AuthMethod>,
    /// For EAP-TLS: the domain name that the certificate of whoever judges EAP bears, such as the AAA server's [default: with `remote_auth =
    /// "eap-only"` the domain name in `remote_id`, as nothing else says who the other side is; otherwise any below `ca`, since the other
    /// side has proved itself by then].
    pub eap_server_name: Option<String>,
    /// For `eap` with `tls`: whether TLS 1.2 needs the Extended Master Secret (RFC 7627).
    #[serde(default = "required", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<ExtendedMasterSecret>")]
    pub extended_master_secret: ExtendedMasterSecret,
    /// For `eap`: the password.
    pub password: Option<SecretText>,
    /// A file that holds the password, readable by nobody else.
    pub password_file: Option<PathBuf>,
    /// An environment variable that holds the password.
    pub password_env: Option<String>,
    /// How messages of IKE are protected, the preferred way first: `"aes256gcm16-prfsha384-ecp384"`,
    /// `"aes128-sha256-x25519-modp2048"`.
    #[serde(default = "ConnectionTable::proposals")]
    pub proposals: Vec<String>,
    /// Whether there may be an IKE_SA without a CHILD_SA (RFC 6023).
    #[serde(default = "ConnectionTable::childless", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<ChildlessWord>")]
    pub childless: ChildlessWord,
    /// Whether the side that begins may move to another address (RFC 4555).
    #[serde(default = "yes")]
    pub mobike: bool,
    /// Whether long messages are sent in fragments (RFC 7383).
    #[serde(default = "yes")]
    pub fragmentation: bool,
    /// When the IKE_SA is replaced by a new one; up to a tenth sooner [default: `"4 h"`, or nine tenths of a `lifetime` that ends it
    /// sooner]. `"0 s"`: never by this side.
    pub rekey_after: Option<TimeSpan>,
    /// When an IKE_SA ends that nobody has replaced [default: a tenth later than `rekey_after`, or never]. `"0 s"`: never.
    pub lifetime: Option<TimeSpan>,
    /// When this side, where it has begun, makes a new IKE_SA by which both prove anew who they are; up to a tenth sooner.
    /// `"0 s"`: never.
    #[serde(default = "ConnectionTable::reauth_after")]
    pub reauth_after: TimeSpan,
    /// How it does that.
    #[serde(default = "ConnectionTable::reauthentication", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<Reauthentication>")]
    pub reauthentication: Reauthentication,
    /// Without a word for so long the other side is asked whether it lives. `"0 s"`: never.
    #[serde(default = "ConnectionTable::liveness")]
    pub liveness: TimeSpan,
    /// Whether a new IKE_SA ends others of the same two. Otherwise a user may have several at a time, each with an address of its own.
    #[serde(default = "yes")]
    pub unique: bool,
    /// Names of the pools that the other side gets an address of. The AAA server's word goes first.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Whether the other side gets an inner address, or, where this side begins, this side asks for one [default: where there
    /// are pools].
    pub address: Option<bool>,
    /// Name servers that the other side is told of.
    #[serde(default)]
    pub dns: Vec<IpAddr>,
    /// Domains that these name servers are for (RFC 8598) [default: all].
    #[serde(default)]
    pub domains: Vec<String>,
    /// Of which address this side is [default: whatever the host chooses].
    pub local_address: Option<IpAddr>,
    /// Where the other side is, where this side may begin.
    pub remote_address: Option<IpAddr>,
    /// Networks that the other side has to be in when it begins [default: all]. Whoever comes from elsewhere is for another connection.
    pub from: Option<Vec<Prefix>>,
    /// Its port. At any other than 500 messages are as at port 4500, where ESP comes too.
    #[serde(default = "ConnectionTable::remote_port")]
    pub remote_port: u16,
    /// Whether it is begun at the start, and again when it has ended.
    #[serde(default)]
    pub start: bool,
    /// How long after an end it is begun again; and how long after it has come to nothing packets do not begin it again.
    #[serde(default = "ConnectionTable::retry")]
    pub retry: TimeSpan,
    /// What becomes of traffic to the networks of its CHILD_SAs while there is none for it: dropped, or sent on as it is for everybody to
    /// read.
    #[serde(default = "ConnectionTable::unprotected", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<PolicyWord>")]
    pub unprotected: PolicyWord,
    /// Whether the first packet begins it that needs one of its CHILD_SAs, and waits for that.
    #[serde(default)]
    pub on_demand: bool,
    /// Which CHILD_SAs there may be. Whoever begins begins with the first; the others follow, or with `on_demand` when a packet needs
    /// them.
    #[serde(default)]
    pub child: Vec<ChildTable>,
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
    const fn childless() -> ChildlessWord {
        ChildlessWord::Allow
    }
    const fn unprotected() -> PolicyWord {
        PolicyWord::Discard
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

/// A kind of CHILD_SA.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChildTable {
    /// Its name.
    pub name: String,
    /// Traffic of this side: networks [default: this side's address, its inner one where it was given one].
    pub local: Option<Vec<Prefix>>,
    /// Traffic of the other side: networks [default: the other side's address, its inner one where it was given one].
    pub remote: Option<Vec<Prefix>>,
    /// How packets are protected, the preferred way first: `"aes128gcm16-x25519"`. With a key exchange, CHILD_SAs that are made
    /// later have keys of their own.
    #[serde(default = "ChildTable::proposals")]
    pub proposals: Vec<String>,
    /// Whether whole packets are carried.
    #[serde(default = "ChildTable::mode", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<ModeWord>")]
    pub mode: ModeWord,
    /// When it is replaced by a new one; up to a tenth sooner [default: `"1 h"`, or nine tenths of a `lifetime` that ends it sooner].
    /// `"0 s"`: never by this side.
    pub rekey_after: Option<TimeSpan>,
    /// When it ends where nobody has replaced it [default: a tenth later than `rekey_after`, or never]. `"0 s"`: never.
    pub lifetime: Option<TimeSpan>,
    /// After so many octets in one direction it is replaced by a new one; it ends after a tenth more where nobody has done so
    /// [default: none are too many]. In a study no CHILD_SA carries so much.
    pub rekey_bytes: Option<ByteSize>,
    /// The same of packets.
    pub rekey_packets: Option<PositiveCount>,
}

impl ChildTable {
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
    /// What each of its SAs may carry (RFC 4301 §4.4.2.1).
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

/// How users prove by EAP who they are whom the gateway knows itself.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EapTable {
    /// The methods that are proposed, the preferred one first.
    #[serde(deserialize_with = "named::read_list")]
    #[schemars(schema_with = "named::list_schema::<AuthMethod>")]
    pub methods: Vec<AuthMethod>,
    /// For EAP-TLS: the gateway's certificate, and the authorities that users' are below. Whoever has such a certificate with
    /// the name that it says it has is let in.
    pub tls: Option<TlsTable>,
    /// Whether TLS 1.2 needs the Extended Master Secret (RFC 7627).
    #[serde(default = "required", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<ExtendedMasterSecret>")]
    pub extended_master_secret: ExtendedMasterSecret,
    /// Failed logins under one name or from one host (an IPv4 address, 64 bits of an IPv6 address), after which nothing more of it is
    /// weighed, but for a user at a host where its last login was right, within a week; 0: no limit.
    #[serde(default = "EapTable::failures")]
    pub failures: u32,
    /// Within this time.
    #[serde(default = "EapTable::minute")]
    pub failures_within: TimeSpan,
    /// For this long.
    #[serde(default = "EapTable::minute")]
    pub failures_hold: TimeSpan,
}

impl EapTable {
    const fn failures() -> u32 {
        10
    }
    const fn minute() -> TimeSpan {
        TimeSpan::from_secs(60)
    }
}

/// What nobody may exceed.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsTable {
    /// IKE_SAs in all.
    pub sas: PositiveCount,
    /// IKE_SAs at a time whose initiator has not proved who it is. One more is begun in the place of the oldest of the network that
    /// has most of them, where its own network has fewer: of one whose initiator has not gone on for two seconds, or else of one that
    /// is ten seconds old and does not wait for this side; otherwise it is not begun.
    pub half_open: PositiveCount,
    /// From so many of them on every initiator has to send back a cookie first.
    pub cookies_from: u32,
    /// From so many of them of one network on, 24 bits of an IPv4 address or 48 of an IPv6 address, initiators there have to.
    pub cookies_from_network: u32,
    /// From `cookies_from` on, so many of them from one host: an IPv4 address, or 64 bits of an IPv6 address. Of one site, 56 bits
    /// of an IPv6 address, eight times as many; of one network an eighth of `half_open`.
    pub half_open_per_network: PositiveCount,
    /// Proofs by the shared key of a connection that may fail a minute. Of more, none is looked at that comes from a network from which
    /// one has failed within ten minutes, unless the last one of that identity from that very host was right. 0: any number.
    pub failed_proofs_per_minute: u32,
    /// Requests of the other side of an IKE_SA that is established a minute, or at once. Those beyond are taken when they come again
    /// later. At least 60; 0: any number.
    pub requests_per_minute: u32,
    /// Those of them that make or replace SAs, each of which may cost a key exchange: those beyond are answered with TEMPORARY_FAILURE.
    /// 0: any number.
    pub creates_per_minute: u32,
    /// How long an initiator may take to prove who it is.
    pub login: TimeSpan,
    /// The first wait before a request is sent again; each further one is 1.8 times as long.
    pub retransmission: TimeSpan,
    /// How often a request is sent again before its IKE_SA is given up.
    pub retransmissions: PositiveCount,
    /// Octets of an IP packet, above which a message is sent in fragments.
    pub packet: PositiveCount,
    /// Octets of a message that is put together from fragments, at most.
    pub message: PositiveCount,
    /// Octets that fragments of messages that are not whole take in all half-open IKE_SAs together, an eighth of that in those of one
    /// network; and as many in all others together. Of more, the oldest are dropped.
    pub fragments: PositiveCount,
    /// How long without a word a NAT keeps its mapping.
    pub keepalive: TimeSpan,
    /// IKE_SAs that were lost are taken up again by tickets (RFC 5723), which hold for so long. `"0 s"`: none are given and none
    /// asked for. None holds for longer than the certificates that it stands for. Whom EAP lets in gets none.
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
            half_open_per_network: count(ike.half_open_per_network),
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

//! Workloads: `[workload]`.

use super::aaa_client::{RadiusRetransmission, RadiusSettings, TlsHandshakeMode, irt, mrc, mrd, mrt, rand};
use super::arrivals::{ArrivalSettings, TimeDistribution, give_up};
use super::{HandoverWorkload, IkeWorkload, MihWorkload, PppoeWorkload};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use usher_aaa::AuthMethod;
use usher_config::named;
use usher_config::units::{BitRate, Bound, ByteSize, Percentage, PositiveCount, Switch, TimeSpan};
use usher_core::TransportProtocol;
use usher_crypto::TlsVersion;

/// The workload: the dialogues of the clients, and how often they begin.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(tag = "kind")]
pub enum Workload {
    /// Stations authenticate by EAP at a NAS, which asks an AAA server.
    Eap(Box<EapWorkload>),
    /// Clients and a server exchange requests and answers of given sizes.
    Dialogue(Box<DialogueWorkload>),
    /// Users connect to a server, which queries their hosts for the user names (IDENT).
    Ident(IdentWorkload),
    /// Initiators authenticate to an IKEv2 gateway, which asks an AAA server.
    Ike(Box<IkeWorkload>),
    /// Mobile nodes and points of service exchange IEEE 802.21 messages.
    Mih(Box<MihWorkload>),
    /// Mobile nodes hand over from 802.11 to 802.16.
    Handover(Box<HandoverWorkload>),
    /// Hosts have PPPoE sessions at an access concentrator.
    Pppoe(PppoeWorkload),
}

impl Workload {
    /// The beginnings of its dialogues; `None` for handovers, which begin by movement.
    pub fn arrivals(&self) -> Option<&ArrivalSettings> {
        match self {
            Self::Eap(eap) => Some(&eap.arrivals),
            Self::Dialogue(dialogue) => Some(&dialogue.arrivals),
            Self::Ident(ident) => Some(&ident.arrivals),
            Self::Ike(ike) => Some(&ike.arrivals),
            Self::Mih(mih) => Some(&mih.arrivals),
            Self::Pppoe(pppoe) => Some(&pppoe.arrivals),
            Self::Handover(_) => None,
        }
    }
}

/// Stations authenticate by EAP (RFC 3748) at a NAS, which asks an AAA server by RADIUS or Diameter. A
/// dialogue is one authentication, from the peer's first message to its Success.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EapWorkload {
    /// The hosts of the EAP peers. With the same name as `nas`, each peer is in its NAS's host, without an access link.
    pub stations: String,
    /// The authenticators. Station i uses NAS i modulo their number.
    pub nas: String,
    /// The AAA server. NAS i uses server i modulo their number. A host that runs "aaa" follows its configuration. Any
    /// other host gets a server of the workload's own, which knows the stations and offers the method.
    pub server: String,
    /// The EAP method. PEAP has EAP-MSCHAPv2 inside, EAP-TTLS has PAP inside.
    #[serde(deserialize_with = "method::read")]
    #[schemars(schema_with = "method::schema")]
    pub method: AuthMethod,
    /// Settings of EAP-TLS, and of the TLS of PEAP and EAP-TTLS.
    #[serde(default)]
    pub eap_tls: EapTls,
    /// The protocol between NAS and server.
    pub aaa: NasAaaProtocol,
    /// Settings of RADIUS.
    #[serde(default)]
    pub radius: RadiusSettings,
    /// Settings of Diameter.
    #[serde(default)]
    pub diameter: DiameterSettings,
    /// The TLS of RadSec, and of Diameter over TLS.
    #[serde(default)]
    pub tls: NasTlsSettings,
    /// Rows of the stations' users in the store of a server that is a service of its host.
    #[serde(default)]
    pub user: StationUserRows,
    /// Accounting beside the authentications.
    #[serde(default)]
    pub accounting: AccountingSettings,
    /// When authentications begin. A busy station delays its next one.
    pub arrivals: ArrivalSettings,
    /// The realm of the identities: `station-00042@REALM`, with a number of five digits.
    #[serde(default = "realm")]
    pub realm: String,
    /// Share of authentications with a wrong password, or by EAP-TLS with a certificate of another authority instead of
    /// `eap_tls.certificate`.
    #[serde(default)]
    pub wrong_credentials: Percentage,
    /// How long the authenticator waits for the peer's response before it retransmits its request on the access link
    /// (RFC 3748, 4.3); `"off"`: it does not retransmit.
    #[serde(default = "eap_retransmission")]
    pub eap_retransmission: Switch<TimeSpan>,
    /// How often the authenticator retransmits one request.
    #[serde(default = "eap_retransmissions")]
    pub eap_retransmissions: u32,
    /// The time after which a station gives up an unfinished authentication, which then counts as failed.
    #[serde(default = "give_up")]
    pub give_up: Bound<TimeSpan>,
    /// The wait after a failure before a station tries again, until it is accepted or rejected. The delay counts from
    /// the first try. `"off"`: no further try.
    #[serde(default = "off")]
    pub retry: Switch<TimeSpan>,
}

impl EapWorkload {
    /// Whether NAS and server talk inside TLS: by RadSec, or by Diameter over TLS.
    pub fn uses_tls_transport(&self) -> bool {
        match self.aaa {
            NasAaaProtocol::Radius => false,
            NasAaaProtocol::Radsec => true,
            NasAaaProtocol::Diameter => self.diameter.transport == TransportProtocol::Tls,
        }
    }

    /// Whether one recorded handshake stands for all of a server of the workload's own: only where all are alike. Each is computed
    /// where credentials may be wrong or sessions resumed, and where a password goes through the tunnel, which is not recorded.
    pub fn replays_handshakes(&self) -> bool {
        let tls = &self.eap_tls;
        let alike =
            self.method == AuthMethod::EapTls && self.wrong_credentials.get() == 0.0 && !tls.resumption;
        alike && tls.handshake == TlsHandshakeMode::Recorded
    }

    /// Whether stations speak TLS.
    pub fn has_tls(&self) -> bool {
        !matches!(self.method, AuthMethod::EapMd5 | AuthMethod::EapMsChapV2)
    }
}

const fn off() -> Switch<TimeSpan> {
    Switch::Off
}
fn realm() -> String {
    "example.org".to_owned()
}
const fn eap_retransmission() -> Switch<TimeSpan> {
    Switch::On(TimeSpan::from_secs(3))
}
const fn eap_retransmissions() -> u32 {
    4
}

/// Accounting beside the authentications (RFC 2866, or RFC 6733, 9). Each successful authentication opens a session.
/// Its NAS sends the server Start at once, Interim at intervals and Stop at the end. Retransmission and patience are
/// those of the authentications. RADIUS records go to port 1813, Diameter records over the same connections.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccountingSettings {
    /// Whether NASes send accounting records.
    pub used: bool,
    /// How long a session lasts.
    pub session: TimeDistribution,
    /// The time from a session's beginning, and from each record, to the next Interim; `"off"`: no Interims.
    pub interim: Switch<TimeSpan>,
    /// A record with a later acknowledgement than this counts as late.
    pub late: TimeSpan,
}

impl Default for AccountingSettings {
    fn default() -> Self {
        Self {
            used: false,
            session: TimeDistribution::Constant(TimeSpan::from_secs(60)),
            interim: Switch::Off,
            late: TimeSpan::from_secs(5),
        }
    }
}

/// The EAP methods that are simulated.
fn is_simulated(method: AuthMethod) -> bool {
    matches!(
        method,
        AuthMethod::EapMd5
            | AuthMethod::EapMsChapV2
            | AuthMethod::EapTls
            | AuthMethod::Peap
            | AuthMethod::Ttls
    )
}

usher_config::some_of!(method: AuthMethod, is_simulated);

/// Settings of EAP-TLS, and of the TLS of PEAP and EAP-TTLS. If the server is a service of its host, all stations are
/// devices of one user of that server. They present that user's certificate, with the name in it as their identity.
/// Each handshake is computed, and the server's chain is its own.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EapTls {
    /// The version of TLS. With 1.2, stations accept only servers with RSA keys.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<TlsVersion>")]
    pub version: TlsVersion,
    /// PEM: the certificate of the stations' user, then its chain. The identity is its first name with an `@`, or else
    /// its first name.
    pub certificate: Option<PathBuf>,
    /// PEM: its key, in a file that only its owner can read.
    pub key: Option<PathBuf>,
    /// PEM: the authorities of the server's certificate.
    pub ca: Option<PathBuf>,
    /// Number of certificates that the EAP-TLS client sends: its own and its chain without the root.
    pub client_chain: PositiveCount,
    /// Number of certificates that the server sends: its own and its chain without the root.
    pub server_chain: PositiveCount,
    /// The largest EAP packet of a fragmented TLS flight.
    pub fragment: ByteSize,
    /// The source of the TLS messages.
    pub handshake: TlsHandshakeMode,
    /// Stations resume their TLS sessions.
    pub resumption: bool,
}

impl Default for EapTls {
    fn default() -> Self {
        Self {
            version: TlsVersion::Tls12,
            certificate: None,
            key: None,
            ca: None,
            client_chain: PositiveCount::from_u32(2),
            server_chain: PositiveCount::from_u32(2),
            fragment: ByteSize::from_bytes(1024),
            handshake: TlsHandshakeMode::Recorded,
            resumption: false,
        }
    }
}

/// The protocol between NAS and server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NasAaaProtocol {
    /// RADIUS over UDP (RFC 2865, 3579).
    Radius,
    /// RADIUS inside TLS over TCP (RFC 6614).
    Radsec,
    /// Diameter (RFC 6733, 4072).
    Diameter,
}

usher_config::some_of!(of_diameter: TransportProtocol, |t| t != TransportProtocol::Udp);
usher_config::some_of!(of_dialogue: TransportProtocol, |t| t != TransportProtocol::Tls);

/// Settings of Diameter.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiameterSettings {
    /// The transport (RFC 6733, 2.1 and 2.2).
    #[serde(deserialize_with = "of_diameter::read")]
    #[schemars(schema_with = "of_diameter::schema")]
    pub transport: TransportProtocol,
    /// Over SCTP, the number of streams to request.
    pub streams: PositiveCount,
    /// Over SCTP, the stream of a message.
    pub stream_policy: StreamPolicy,
    /// The connections or associations of a NAS with its server.
    pub connections: NasConnections,
    /// The watchdog's interval Tw, varied by two seconds either way (RFC 3539).
    pub watchdog: TimeSpan,
    /// How long a request may go unanswered before it counts as failed.
    pub timeout: TimeSpan,
}

impl Default for DiameterSettings {
    fn default() -> Self {
        Self {
            transport: TransportProtocol::Tcp,
            streams: PositiveCount::from_u32(100),
            stream_policy: StreamPolicy::Session,
            connections: NasConnections::Shared(PositiveCount::ONE),
            watchdog: TimeSpan::from_secs(30),
            timeout: TimeSpan::from_secs(30),
        }
    }
}

/// The TLS between NAS and server. Without files, it uses built-in RSA-2048 certificates, which only a server of the
/// workload's own accepts. Paths are relative to the folder of the file that names them.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NasTlsSettings {
    /// The version that the NAS offers.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<TlsVersion>")]
    pub version: TlsVersion,
    /// PEM: the NAS's certificate, then its chain.
    pub certificate: Option<PathBuf>,
    /// PEM: its key, in a file that only its owner can read.
    pub key: Option<PathBuf>,
    /// PEM: the authorities of the server's certificate.
    pub ca: Option<PathBuf>,
}

impl Default for NasTlsSettings {
    fn default() -> Self {
        Self { version: TlsVersion::Tls13, certificate: None, key: None, ca: None }
    }
}

/// Rows of each station's user, beside a password, in the store of a server that is a service of its host. Groups are
/// those of the server's configuration.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StationUserRows {
    /// Check items, each `ATTRIBUTE OPERATOR VALUE`: `"NAS-Port-Type == Ethernet"`.
    pub check: Vec<String>,
    /// Reply items of the accept: `"Session-Timeout = 3600"`.
    pub reply: Vec<String>,
    /// Names of groups, in their order.
    pub groups: Vec<String>,
}

/// The SCTP stream of a Diameter message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StreamPolicy {
    /// One stream for all: a loss delays everything behind it, as over TCP.
    One,
    /// One stream for each session, modulo their number: a loss delays the sessions of one stream.
    Session,
    /// No order between messages (RFC 6733, 2.1.1): a loss delays no other message.
    Unordered,
}

/// The connections of a NAS with its Diameter server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(tag = "kind", transform = usher_config::with_names, transform = usher_config::add_literal_alternative::<PositiveCount>)]
pub enum NasConnections {
    /// This number of persistent connections, opened before the first request, written as a plain number. Sessions are
    /// spread over them.
    #[serde(rename = "literal")]
    #[schemars(skip)]
    Shared(PositiveCount),
    /// One connection for each authentication, opened before its first request and closed after its last answer.
    PerSession,
}

/// Clients and a server exchange requests and answers of given sizes. A dialogue is all its rounds, from the
/// first request to the last answer.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DialogueWorkload {
    /// The hosts that send requests. Client i uses server i modulo their number.
    pub clients: String,
    /// Clients on each of these hosts, as behind a NAS. They share the host's persistent connection, association or
    /// port. Each has its own arrivals, also in a closed loop.
    #[serde(default = "once")]
    pub per_host: PositiveCount,
    /// The host that sends answers.
    pub server: String,
    /// The transport of requests and answers. Over UDP and SCTP each is one datagram or message. SCTP uses one
    /// association, opened before the first dialogue.
    #[serde(deserialize_with = "of_dialogue::read")]
    #[schemars(schema_with = "of_dialogue::schema")]
    pub transport: TransportProtocol,
    /// The rounds of one dialogue, one after another.
    pub rounds: Vec<DialogueRound>,
    /// How many times a dialogue goes through its rounds.
    #[serde(default = "once")]
    pub repeat: PositiveCount,
    /// How long the server takes to answer.
    #[serde(default)]
    pub turnaround: TimeDistribution,
    /// How long the client waits between an answer and the next round.
    #[serde(default)]
    pub think: TimeDistribution,
    /// When dialogues begin. They do not wait for earlier ones of the same client, except with `closed`.
    pub arrivals: ArrivalSettings,
    /// With TCP, the connection of a dialogue.
    #[serde(default)]
    pub connection: DialogueConnection,
    /// With TCP, the rate at which the client's application writes its requests, one after another; `"unlimited"`: each
    /// at once.
    #[serde(default = "unlimited")]
    pub write_rate: Bound<BitRate>,
    /// The size of one such write.
    #[serde(default = "octet")]
    pub write_size: ByteSize,
    /// With SCTP, the number of streams. Dialogue n uses stream n modulo their number.
    #[serde(default = "once")]
    pub streams: PositiveCount,
    /// With UDP, the client's retransmission of unanswered requests.
    #[serde(default)]
    pub retransmission: DialogueRetransmission,
    /// The time after which a client gives up an unfinished dialogue, which then counts as failed.
    #[serde(default = "give_up")]
    pub give_up: Bound<TimeSpan>,
}

const fn once() -> PositiveCount {
    PositiveCount::ONE
}
const fn unlimited() -> Bound<BitRate> {
    Bound::Unlimited
}
const fn octet() -> ByteSize {
    ByteSize::from_bytes(1)
}

/// A request and its answer.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DialogueRound {
    /// Size of the request, without the headers of transport and network.
    pub request: SizeDistribution,
    /// Size of the answer, without the headers of transport and network.
    pub answer: SizeDistribution,
}

/// A size, constant or drawn for each message. A retransmission has the size of the original.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(tag = "kind", transform = usher_config::add_literal_alternative::<ByteSize>)]
pub enum SizeDistribution {
    /// Constant, written as a plain size.
    #[serde(rename = "literal")]
    #[schemars(skip)]
    Constant(ByteSize),
    /// Uniformly distributed between two sizes, both included.
    Uniform {
        /// The smallest.
        low: ByteSize,
        /// The largest.
        high: ByteSize,
    },
    /// Exponentially distributed, rounded up to whole bytes, at most `max`.
    Exponential {
        /// The mean before the cut at `max`.
        mean: ByteSize,
        /// The largest.
        max: ByteSize,
    },
    /// One of these sizes, all equally likely. A size listed twice is twice as likely.
    OneOf {
        /// The sizes.
        sizes: Vec<ByteSize>,
    },
}

impl SizeDistribution {
    /// The size, where it is the same always.
    pub const fn constant_size(&self) -> Option<ByteSize> {
        match self {
            Self::Constant(size) => Some(*size),
            _ => None,
        }
    }
    /// The smallest and the largest size, in bytes; zero if there is none.
    pub fn size_bounds(&self) -> (u64, u64) {
        match self {
            Self::Constant(size) => (size.bytes(), size.bytes()),
            Self::Uniform { low, high } => (low.bytes(), high.bytes()),
            Self::Exponential { max, .. } => (max.bytes().min(1), max.bytes()),
            Self::OneOf { sizes } => {
                let all = || sizes.iter().map(|size| size.bytes());
                (all().min().unwrap_or(0), all().max().unwrap_or(0))
            }
        }
    }
    /// One draw, in bytes.
    pub fn draw_size(&self, rng: &mut usher_core::SimulationRng) -> u64 {
        match self {
            Self::Constant(size) => size.bytes(),
            Self::Uniform { low, high } => {
                low.bytes() + rng.sample_below(high.bytes().saturating_sub(low.bytes()).saturating_add(1))
            }
            Self::Exponential { mean, max } => {
                // Draw bytes as nanoseconds, because both are whole numbers and the generator draws durations.
                let drawn = rng.sample_exponential(usher_core::Duration::from_nanos(mean.bytes())).as_nanos();
                drawn.saturating_add(1).min(max.bytes())
            }
            Self::OneOf { sizes } => {
                let i = rng.sample_below(sizes.len().max(1) as u64) as usize;
                sizes.get(i).map_or(0, |size| size.bytes())
            }
        }
    }
}

/// The connection of a dialogue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DialogueConnection {
    /// The one connection of its client, opened at the start of the run, before the first dialogue.
    #[default]
    Persistent,
    /// Its own connection: opened first, which counts into the delay, and closed at the end.
    PerDialogue,
}

/// The retransmission of unanswered requests.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(tag = "kind", transform = usher_config::with_names)]
pub enum DialogueRetransmission {
    /// No retransmission.
    #[default]
    None,
    /// At doubling, jittered intervals, like a RADIUS client (RFC 5080, 2.2.1).
    Rfc5080 {
        /// IRT, the first interval.
        #[serde(default = "irt")]
        initial: TimeSpan,
        /// MRT, the largest interval; zero: no limit.
        #[serde(default = "mrt")]
        max: TimeSpan,
        /// MRC, the largest number of transmissions; zero: no limit.
        #[serde(default = "mrc")]
        count: u32,
        /// MRD, the largest total duration; zero: no limit.
        #[serde(default = "mrd")]
        duration: TimeSpan,
        /// RAND, the share by which each interval varies in either direction.
        #[serde(default = "rand")]
        jitter: Percentage,
    },
    /// At fixed intervals.
    Fixed {
        /// The interval.
        interval: TimeSpan,
        /// The largest number of transmissions, the first included.
        count: PositiveCount,
    },
}

impl DialogueRetransmission {
    /// The equivalent policy of a RADIUS client; `None` if requests are sent once.
    pub fn radius_policy(&self) -> Option<RadiusRetransmission> {
        match self.clone() {
            Self::None => None,
            Self::Fixed { interval, count } => Some(RadiusRetransmission::Fixed { interval, count }),
            Self::Rfc5080 { initial, max, count, duration, jitter } => {
                Some(RadiusRetransmission::Rfc5080 { initial, max, count, duration, jitter })
            }
        }
    }
}

/// Users of hosts connect to a server by TCP, as to a mail or chat server. The server queries each user's host for the
/// owner of that connection (RFC 1413), at port 113. A dialogue is one query: from the server's accept of the
/// connection until it has the response, or knows that there is none. Then it closes both connections. A connection
/// that the server never accepts counts as failed. A user waits for the end of a connection until 5 s after the
/// server's patience.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentWorkload {
    /// The hosts of the users. A host that runs "ident" answers by its configuration, any other refuses. Host i uses
    /// server i modulo their number.
    pub clients: String,
    /// The host to which users connect, at port 6667, and that sends queries.
    pub server: String,
    /// The users of each host. All other connections belong to the user `usher`.
    #[serde(default = "users")]
    pub users: Vec<String>,
    /// How long the server waits for a response, connection setup included; RFC 1413 asks for at least 30 s.
    #[serde(default = "patience")]
    pub patience: TimeSpan,
    /// When users connect. Each user of each host is a client of its own.
    pub arrivals: ArrivalSettings,
}

fn users() -> Vec<String> {
    vec!["user".to_owned()]
}
const fn patience() -> TimeSpan {
    TimeSpan::from_secs(30)
}

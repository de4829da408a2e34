//! Workloads: `[workload]`.

use super::{HandoverWorkload, IkeWorkload, MihWorkload, PppoeWorkload};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use usher_aaa::AuthMethod;
use usher_config::named;
use usher_config::units::{BitRate, Bound, ByteSize, EventRate, Percentage, PositiveCount, Switch, TimeSpan};
use usher_core::TransportProtocol;
use usher_crypto::TlsVersion;

/// Who says what to whom, and how often.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(tag = "kind")]
pub enum Workload {
    /// Stations authenticate by EAP at a NAS, which asks an AAA server.
    Eap(Box<EapWorkload>),
    /// Clients and a server exchange requests and answers of given sizes.
    Dialogue(Box<DialogueWorkload>),
    /// Users connect to a server, which asks their hosts who they are.
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
    /// When its dialogues begin; of handovers the movement says so.
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
    /// The hosts of the EAP peers. The same as `nas` puts each peer into its NAS's host, with no access link.
    pub stations: String,
    /// The authenticators. Station i uses NAS i modulo their number.
    pub nas: String,
    /// The AAA server. NAS i uses server i modulo their number. A host that runs "aaa" serves as its configuration says; on
    /// another there is a server of this workload's own, which knows the stations and offers the method.
    pub server: String,
    /// The EAP method. PEAP has EAP-MSCHAPv2 inside, EAP-TTLS has PAP inside.
    #[serde(deserialize_with = "method::read")]
    #[schemars(schema_with = "method::schema")]
    pub method: AuthMethod,
    /// Settings of EAP-TLS, and of the TLS of PEAP and EAP-TTLS.
    #[serde(default)]
    pub eap_tls: EapTls,
    /// How the NAS and the server talk.
    pub aaa: NasAaaProtocol,
    /// Settings of RADIUS.
    #[serde(default)]
    pub radius: RadiusSettings,
    /// Settings of Diameter.
    #[serde(default)]
    pub diameter: DiameterSettings,
    /// The TLS of RadSec, and of Diameter over TLS.
    #[serde(default)]
    pub tls: NasTls,
    /// What the stations' users have in the store of a server that is a service of its host.
    #[serde(default)]
    pub user: StationUser,
    /// Accounting beside the authentications.
    #[serde(default)]
    pub accounting: AccountingSettings,
    /// When authentications begin. One that falls due while its station is still busy waits for that station.
    pub arrivals: ArrivalSettings,
    /// The realm of the identities, which are `station-00042@` and it (the number has five digits).
    #[serde(default = "realm")]
    pub realm: String,
    /// Share of authentications tried with a wrong password, or by EAP-TLS with a certificate of another
    /// authority, whatever `eap_tls.certificate` says.
    #[serde(default)]
    pub wrong_credentials: Percentage,
    /// How long the authenticator waits for the peer's answer before it repeats its request on the access
    /// link (RFC 3748, 4.3); `"off"` leaves it to the station.
    #[serde(default = "eap_retransmission")]
    pub eap_retransmission: Switch<TimeSpan>,
    /// How often the authenticator repeats one request.
    #[serde(default = "eap_retransmissions")]
    pub eap_retransmissions: u32,
    /// When a station gives an unfinished authentication up, which then counts as failed.
    #[serde(default = "give_up")]
    pub give_up: Bound<TimeSpan>,
    /// How long after a failure a station tries again, until it is let in or rejected; the delay counts from the
    /// first try. `"off"` leaves a failure at that.
    #[serde(default = "off")]
    pub retry: Switch<TimeSpan>,
}

impl EapWorkload {
    /// Whether NAS and server talk inside TLS: by RadSec, or by Diameter over TLS.
    pub fn inside_tls(&self) -> bool {
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
        alike && tls.handshake == HandshakeMode::Recorded
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
pub(super) const fn give_up() -> Bound<TimeSpan> {
    Bound::Limited(TimeSpan::from_secs(60))
}

/// Accounting beside the authentications (RFC 2866, or RFC 6733, 9): each that ends well opens a session of its own, of
/// which its NAS sends the server Start at once, Interim at intervals and Stop at its end, with the same retransmission and
/// the same patience as the authentications', over RADIUS to port 1813, over Diameter by the same connections.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccountingSettings {
    /// Whether there is any.
    pub used: bool,
    /// How long a session lasts.
    pub session: TimeLaw,
    /// How long after a session's beginning, and after each record, it is told of again; `"off"`: only when it ends.
    pub interim: Switch<TimeSpan>,
    /// A record that takes longer than this to be acknowledged is late.
    pub late: TimeSpan,
}

impl Default for AccountingSettings {
    fn default() -> Self {
        Self {
            used: false,
            session: TimeLaw::Constant(TimeSpan::from_secs(60)),
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

/// Settings of EAP-TLS, and of the TLS of PEAP and EAP-TTLS. With a server that its host runs, the stations are devices of one
/// user whom that server knows: they show that user's certificate under the name that it bears, each handshake is computed, and
/// the server's chain is its own.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EapTls {
    /// The version of TLS. By 1.2 stations take servers with RSA keys alone.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<TlsVersion>")]
    pub version: TlsVersion,
    /// PEM: the certificate of the stations' user, followed by those above it; its name is the first with an `@`, or else the
    /// first.
    pub certificate: Option<PathBuf>,
    /// PEM: its key, readable by nobody else.
    pub key: Option<PathBuf>,
    /// PEM: the authorities of the server's certificate.
    pub ca: Option<PathBuf>,
    /// Certificates that the client of EAP-TLS sends, its own and those above it except the root.
    pub client_chain: PositiveCount,
    /// Certificates that the server sends, its own and those above it except the root.
    pub server_chain: PositiveCount,
    /// The largest EAP packet that a TLS flight is cut into.
    pub fragment: ByteSize,
    /// Where the TLS messages come from.
    pub handshake: HandshakeMode,
    /// Sessions are resumed when a station comes again.
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
            handshake: HandshakeMode::Recorded,
            resumption: false,
        }
    }
}

/// Where the TLS messages come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HandshakeMode {
    /// Each handshake is computed.
    Real,
    /// One handshake is computed, its messages stand for all: the same sizes, charged CPU time. Where
    /// credentials may be wrong or sessions are resumed, handshakes differ and each is computed all the same; so is each of
    /// PEAP and EAP-TTLS, whose tunnels are not recorded.
    Recorded,
}

/// How the NAS and the server talk.
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

/// Settings of RADIUS.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RadiusSettings {
    /// When an unanswered request is sent again.
    pub retransmission: RadiusRetransmission,
    /// How long the server keeps a reply for the request to come again (RFC 5080, 2.2.2). A request that
    /// comes later is taken for a new one.
    pub duplicate_cache: TimeSpan,
}

impl Default for RadiusSettings {
    fn default() -> Self {
        Self { retransmission: RadiusRetransmission::default(), duplicate_cache: TimeSpan::from_secs(30) }
    }
}

/// When an unanswered request is sent again.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(tag = "kind", transform = usher_config::with_names)]
pub enum RadiusRetransmission {
    /// After doubling, jittered times (RFC 5080, 2.2.1).
    Rfc5080 {
        /// IRT, the first time.
        #[serde(default = "irt")]
        initial: TimeSpan,
        /// MRT, the largest time; zero for none.
        #[serde(default = "mrt")]
        max: TimeSpan,
        /// MRC, how many transmissions at most; zero for no limit.
        #[serde(default = "mrc")]
        count: u32,
        /// MRD, how long altogether; zero for no limit.
        #[serde(default = "mrd")]
        duration: TimeSpan,
        /// RAND, the share by which each time is varied either way.
        #[serde(default = "rand")]
        jitter: Percentage,
    },
    /// At fixed intervals, as older NASes do.
    Fixed {
        /// The interval.
        interval: TimeSpan,
        /// How many transmissions at most, the first included.
        count: PositiveCount,
    },
}

const fn irt() -> TimeSpan {
    TimeSpan::from_secs(2)
}
const fn mrt() -> TimeSpan {
    TimeSpan::from_secs(16)
}
const fn mrc() -> u32 {
    5
}
const fn mrd() -> TimeSpan {
    TimeSpan::from_secs(30)
}
const fn rand() -> Percentage {
    Percentage::from_percent(10)
}

impl Default for RadiusRetransmission {
    fn default() -> Self {
        Self::Rfc5080 { initial: irt(), max: mrt(), count: mrc(), duration: mrd(), jitter: rand() }
    }
}

usher_config::some_of!(of_diameter: TransportProtocol, |t| t != TransportProtocol::Udp);
usher_config::some_of!(of_dialogue: TransportProtocol, |t| t != TransportProtocol::Tls);

/// Settings of Diameter.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiameterSettings {
    /// What carries it (RFC 6733, 2.1 and 2.2).
    #[serde(deserialize_with = "of_diameter::read")]
    #[schemars(schema_with = "of_diameter::schema")]
    pub transport: TransportProtocol,
    /// Over SCTP, how many streams are asked for.
    pub streams: PositiveCount,
    /// Over SCTP, which stream a message takes.
    pub stream_policy: StreamPolicy,
    /// Which connections, or associations, a NAS has with its server.
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

/// The TLS between NAS and server. Without files it is made with certificates that come with the program, of RSA-2048, and
/// the server takes those only where it is the workload's own. Files are sought from the folder of the file that names them.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NasTls {
    /// The version that the NAS offers.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<TlsVersion>")]
    pub version: TlsVersion,
    /// PEM: the NAS's certificate, followed by those above it.
    pub certificate: Option<PathBuf>,
    /// PEM: its key, readable by nobody else.
    pub key: Option<PathBuf>,
    /// PEM: the authorities of the server's certificate.
    pub ca: Option<PathBuf>,
}

impl Default for NasTls {
    fn default() -> Self {
        Self { version: TlsVersion::Tls13, certificate: None, key: None, ca: None }
    }
}

/// What the user of each station has in the stores of servers that hosts run as services, beside a password. Groups are those
/// of the server's configuration.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StationUser {
    /// What must hold, one `ATTRIBUTE OPERATOR VALUE` each: `"NAS-Port-Type == Ethernet"`.
    pub check: Vec<String>,
    /// What an accept says besides: `"Session-Timeout = 3600"`.
    pub reply: Vec<String>,
    /// Names of groups, in their order.
    pub groups: Vec<String>,
}

/// Which stream of an SCTP association a Diameter message takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StreamPolicy {
    /// All the same: what is lost holds everything behind it up, as over TCP.
    One,
    /// Each session its own, modulo their number: what is lost holds up the sessions of one stream.
    Session,
    /// No order between messages (RFC 6733, 2.1.1): what is lost holds nothing else up.
    Unordered,
}

/// Which connections a NAS has with its Diameter server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(tag = "kind", transform = usher_config::with_names, transform = usher_config::with_literal::<PositiveCount>)]
pub enum NasConnections {
    /// So many persistent ones, opened before the first request, written as a plain number; sessions are spread
    /// over them.
    #[serde(rename = "literal")]
    #[schemars(skip)]
    Shared(PositiveCount),
    /// One of its own for each authentication, opened before its first request and closed after its last answer.
    PerSession,
}

/// Clients and a server exchange requests and answers of given sizes. A dialogue is all its rounds, from the
/// first request to the last answer.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DialogueWorkload {
    /// The hosts that ask. Client i asks server i modulo the servers' number.
    pub clients: String,
    /// So many clients on each of these hosts, as behind a NAS: they share its persistent connection, its association or its
    /// port, and each has arrivals of its own, a closed loop of its own among them.
    #[serde(default = "once")]
    pub per_host: PositiveCount,
    /// The host that answers.
    pub server: String,
    /// What carries requests and answers: over UDP and SCTP one datagram or message each, over SCTP by one association opened
    /// before the first dialogue.
    #[serde(deserialize_with = "of_dialogue::read")]
    #[schemars(schema_with = "of_dialogue::schema")]
    pub transport: TransportProtocol,
    /// The rounds of one dialogue, one after another.
    pub rounds: Vec<DialogueRound>,
    /// The rounds are gone through so many times in one dialogue.
    #[serde(default = "once")]
    pub repeat: PositiveCount,
    /// How long the server takes to answer.
    #[serde(default)]
    pub turnaround: TimeLaw,
    /// How long the client waits between an answer and the next round.
    #[serde(default)]
    pub think: TimeLaw,
    /// When dialogues begin. They do not wait for earlier ones of the same client, except with `closed`.
    pub arrivals: ArrivalSettings,
    /// With TCP, which connection a dialogue uses.
    #[serde(default)]
    pub connection: DialogueConnection,
    /// With TCP, how fast the client's application writes its requests, one after the other; `"unlimited"` writes each at
    /// once.
    #[serde(default = "unlimited")]
    pub write_rate: Bound<BitRate>,
    /// How much of them it then writes at a time.
    #[serde(default = "octet")]
    pub write_size: ByteSize,
    /// With SCTP, how many streams there are; dialogue n takes stream n modulo their number.
    #[serde(default = "once")]
    pub streams: PositiveCount,
    /// With UDP, when a client sends an unanswered request again.
    #[serde(default)]
    pub retransmission: DialogueRetransmission,
    /// When a client gives an unfinished dialogue up, which then counts as failed.
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
    pub request: SizeLaw,
    /// Size of the answer, without the headers of transport and network.
    pub answer: SizeLaw,
}

/// A size, the same always or drawn anew for each message; one that is sent again has the size that it had.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(tag = "kind", transform = usher_config::with_literal::<ByteSize>)]
pub enum SizeLaw {
    /// The same always, written as a plain size.
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
    /// Exponentially distributed, rounded up to whole bytes; what would be larger than `max` is `max`.
    Exponential {
        /// The mean, before what is above `max` is cut.
        mean: ByteSize,
        /// The largest.
        max: ByteSize,
    },
    /// One of these, each as likely as any other: one that stands there twice is twice as likely.
    OneOf {
        /// The sizes.
        sizes: Vec<ByteSize>,
    },
}

impl SizeLaw {
    /// The size, where it is the same always.
    pub const fn constant_size(&self) -> Option<ByteSize> {
        match self {
            Self::Constant(size) => Some(*size),
            _ => None,
        }
    }
    /// The smallest and the largest that it gives, in bytes; of no sizes at all zero.
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
    pub fn draw_size(&self, rng: &mut usher_core::ModelRng) -> u64 {
        match self {
            Self::Constant(size) => size.bytes(),
            Self::Uniform { low, high } => {
                low.bytes() + rng.sample_below(high.bytes().saturating_sub(low.bytes()).saturating_add(1))
            }
            Self::Exponential { mean, max } => {
                // Nanoseconds stand for bytes; both are whole numbers.
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

/// Which connection a dialogue uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DialogueConnection {
    /// Its client's one connection, opened at the start of the run, before the first dialogue.
    #[default]
    Persistent,
    /// One of its own: opened first, which counts into the delay, and closed after.
    PerDialogue,
}

/// When an unanswered request is sent again.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(tag = "kind", transform = usher_config::with_names)]
pub enum DialogueRetransmission {
    /// Never.
    #[default]
    None,
    /// After doubling, jittered times, as a RADIUS client does (RFC 5080, 2.2.1).
    Rfc5080 {
        /// IRT, the first time.
        #[serde(default = "irt")]
        initial: TimeSpan,
        /// MRT, the largest time; zero for none.
        #[serde(default = "mrt")]
        max: TimeSpan,
        /// MRC, how many transmissions at most; zero for no limit.
        #[serde(default = "mrc")]
        count: u32,
        /// MRD, how long altogether; zero for no limit.
        #[serde(default = "mrd")]
        duration: TimeSpan,
        /// RAND, the share by which each time is varied either way.
        #[serde(default = "rand")]
        jitter: Percentage,
    },
    /// At fixed intervals.
    Fixed {
        /// The interval.
        interval: TimeSpan,
        /// How many transmissions at most, the first included.
        count: PositiveCount,
    },
}

impl DialogueRetransmission {
    /// The same as a RADIUS client has it; nothing where a request is sent once.
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

/// Users of hosts connect to a server by TCP, as to one for mail or chat, and the server asks each one's host who has that
/// connection (RFC 1413), at port 113. A dialogue is one such question, from the server's accepting the connection until it has
/// the answer, or knows that there is none; then it closes both connections. A connection that the server never accepts is one
/// that failed. A user who has not heard of a connection's end 5 s after the server's patience is over goes on without.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentWorkload {
    /// The hosts whose users connect. One that runs "ident" answers as its configuration says; another refuses. Host i uses
    /// server i modulo the servers' number.
    pub clients: String,
    /// The host that they connect to, at port 6667, and that asks.
    pub server: String,
    /// The users of each of the hosts. All other connections are those of the user `usher`.
    #[serde(default = "users")]
    pub users: Vec<String>,
    /// How long the server waits for an answer, the connection included; RFC 1413 asks for 30 s at least.
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

/// A time, the same always or drawn anew each time.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(tag = "kind", transform = usher_config::with_literal::<TimeSpan>)]
pub enum TimeLaw {
    /// The same always, written as a plain time.
    #[serde(rename = "literal")]
    #[schemars(skip)]
    Constant(TimeSpan),
    /// Exponentially distributed.
    Exponential {
        /// The mean.
        mean: TimeSpan,
    },
    /// Uniformly distributed between two times.
    Uniform {
        /// The smallest.
        low: TimeSpan,
        /// The largest.
        high: TimeSpan,
    },
}

impl Default for TimeLaw {
    fn default() -> Self {
        Self::Constant(TimeSpan::default())
    }
}

impl TimeLaw {
    /// Its mean.
    pub fn mean(&self) -> usher_core::Duration {
        match self {
            Self::Constant(time) | Self::Exponential { mean: time } => time.get(),
            Self::Uniform { low, high } => low.get() + high.get().saturating_sub(low.get()) / 2,
        }
    }
    /// One draw.
    pub fn draw_time(&self, rng: &mut usher_core::ModelRng) -> usher_core::Duration {
        match self {
            Self::Constant(time) => time.get(),
            Self::Exponential { mean } => rng.sample_exponential(mean.get()),
            Self::Uniform { low, high } => rng.sample_duration(low.get(), high.get()),
        }
    }
}

/// When dialogues begin.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(tag = "kind")]
pub enum ArrivalSettings {
    /// After exponentially distributed gaps.
    Poisson {
        /// How often, on average.
        rate: EventRate,
        /// Whether that is the rate of all clients together or of each.
        #[serde(default)]
        per: RateScope,
        /// Simulated time from which they begin.
        #[serde(default)]
        start: TimeSpan,
        /// At most so many in a run, counted over all clients.
        limit: Option<u64>,
    },
    /// At a constant interval: client i has its turn at `start` + i × `stagger`, then every `interval`.
    Constant {
        /// The time between two of one client.
        interval: TimeSpan,
        /// Simulated time of the first client's first.
        #[serde(default)]
        start: TimeSpan,
        /// How much later each client starts than the one before it.
        #[serde(default)]
        stagger: TimeSpan,
        /// Each begins up to this share of the interval after its turn, drawn uniformly; the turns stay where they are.
        #[serde(default)]
        jitter: Percentage,
        /// So many per client; without it, until the run's duration ends.
        count: Option<u64>,
    },
    /// Each client pauses, does one to its end, and pauses again.
    Closed {
        /// The pause, such as `{ kind = "exponential", mean = "1 s" }`. The first comes before the first dialogue.
        pause: TimeLaw,
        /// Simulated time of the first pause.
        #[serde(default)]
        start: TimeSpan,
        /// At most so many in a run, counted over all clients.
        limit: Option<u64>,
    },
}

/// Whose rate a rate is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RateScope {
    /// That of all clients together; each arrival is at a client drawn uniformly.
    #[default]
    All,
    /// That of each client.
    Client,
}

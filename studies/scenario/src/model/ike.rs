//! Initiators and their IKEv2 gateway: the workload `ike`.

use super::{ArrivalSettings, HandshakeMode, RadiusSettings};
use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::named;
use usher_config::units::{Bound, ByteSize, PositiveCount, Switch, TimeSpan};
use usher_crypto::TlsVersion;

usher_core::named! {
    "a way of authenticating";
    /// How an initiator proves to its gateway who it is.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum IkeMethod {
        /// By a key that both have, as the gateway does.
        Psk = "psk",
        /// By a certificate, as the gateway does.
        Certificate = "certificate",
        /// By EAP-MD5; the gateway by a key that both have.
        EapMd5 = "eap-md5",
        /// By EAP-MSCHAPv2; the gateway by a key that both have.
        EapMsChapV2 = "eap-mschapv2",
        /// By EAP-GTC; the gateway by a key that both have.
        EapGtc = "eap-gtc",
        /// By EAP-TLS; the gateway by a key that both have.
        EapTls = "eap-tls",
        /// By PEAP with EAP-MSCHAPv2 inside; the gateway by a key that both have.
        Peap = "peap",
        /// By EAP-TTLS with PAP inside; the gateway by a key that both have.
        Ttls = "ttls",
    }
}

impl IkeMethod {
    /// Whether the AAA server judges it.
    #[must_use]
    pub const fn is_eap(self) -> bool {
        !matches!(self, Self::Psk | Self::Certificate)
    }
    /// Whether it has a TLS handshake.
    #[must_use]
    pub const fn has_tls(self) -> bool {
        matches!(self, Self::EapTls | Self::Peap | Self::Ttls)
    }
}

usher_core::named! {
    "a kind of certificates";
    /// Of which kind certificates are.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum CertificateKind {
        /// RSA-2048, of the size that comes of it: 880 to 930 octets.
        Natural = "rsa",
        /// RSA-2048, filled up by a comment to 1500 octets.
        Long = "rsa-1500",
        /// ECDSA with P-256.
        Ecdsa = "ecdsa",
    }
}

usher_core::named! {
    "an order of a new IKE_SA and the end of the old one";
    /// When the old IKE_SA of an initiator that authenticates again ends.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum ReauthenticationOrder {
        /// It is deleted first, and the new one begun when the gateway has answered that.
        BreakBeforeMake = "break-before-make",
        /// It is deleted when the new one is there.
        MakeBeforeBreak = "make-before-break",
    }
}

/// Initiators authenticate by IKEv2 (RFC 7296) to a gateway, which asks an AAA server by RADIUS where the method is of EAP. A
/// dialogue is one authentication: from the first message, which of an initiator that has an IKE_SA may be its deletion, until
/// the initiator has its IKE_SA, with a CHILD_SA unless `child` says otherwise. Gateway and AAA server are the workload's own.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IkeWorkload {
    /// The hosts that begin. Initiator i uses gateway i modulo their number.
    pub initiators: String,
    /// The responders. Gateway i uses server i modulo their number.
    pub gateway: String,
    /// The AAA servers, which methods of EAP need.
    pub server: String,
    /// How initiators prove who they are.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<IkeMethod>")]
    pub method: IkeMethod,
    /// Certificates, and TLS.
    #[serde(default)]
    pub certificates: IkeCertificates,
    /// How messages of IKE are protected: `"aes128-sha256-modp2048"`, `"aes256gcm16-prfsha384-x25519-ke1_mlkem768"`.
    #[serde(default = "proposal")]
    pub proposal: String,
    /// How packets of the CHILD_SA are: `"aes128-sha256"`. It is of transport mode, between the two hosts. `"off"`: IKE_SAs are made
    /// without one (RFC 6023).
    #[serde(default = "child")]
    pub child: String,
    /// When authentications begin. One that falls due while its initiator is still busy waits for that.
    pub arrivals: ArrivalSettings,
    /// How long after it was made an initiator deletes its IKE_SA by itself; `"off"` leaves it until it authenticates again.
    #[serde(default = "off")]
    pub lifetime: Switch<TimeSpan>,
    /// In which order an initiator that has an IKE_SA authenticates again.
    #[serde(default = "reauthentication", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<ReauthenticationOrder>")]
    pub reauthentication: ReauthenticationOrder,
    /// The first wait of an initiator before it sends a request again; each further one is 1.8 times as long.
    #[serde(default = "retransmission")]
    pub retransmission: TimeSpan,
    /// How often it is sent again.
    #[serde(default = "retransmissions")]
    pub retransmissions: PositiveCount,
    /// How the gateway asks the AAA server.
    #[serde(default)]
    pub radius: RadiusSettings,
    /// How long the tickets hold by which an initiator that begins anew takes its IKE_SA up again (RFC 5723), without a key
    /// exchange; `"off"`: there are none. An IKE_SA that is deleted takes its ticket along.
    #[serde(default = "off")]
    pub resumption: Switch<TimeSpan>,
    /// What becomes of other packets between initiators and gateways; without it they go as they are. In the simulator alone.
    pub policy: Option<IkePolicy>,
    /// When an initiator gives an unfinished authentication up, which then counts as failed.
    #[serde(default = "give_up")]
    pub give_up: Bound<TimeSpan>,
}

fn proposal() -> String {
    "aes128-sha256-modp2048".to_owned()
}
fn child() -> String {
    "aes128-sha256".to_owned()
}
const fn off() -> Switch<TimeSpan> {
    Switch::Off
}
const fn reauthentication() -> ReauthenticationOrder {
    ReauthenticationOrder::BreakBeforeMake
}
const fn retransmission() -> TimeSpan {
    TimeSpan::from_secs(4)
}
const fn retransmissions() -> PositiveCount {
    PositiveCount::from_u32(5)
}
const fn give_up() -> Bound<TimeSpan> {
    Bound::Limited(TimeSpan::from_secs(60))
}

usher_core::named! {
    "what becomes of packets without an SA";
    /// What becomes of an initiator's packets that need a CHILD_SA which is not there.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum UnprotectedAction {
        /// They wait for it: 256 packets and 256 KiB at most, for 30 s, of which the oldest are dropped.
        Hold = "hold",
        /// They are dropped.
        Discard = "discard",
    }
}

/// Security policies (RFC 4301): packets between an initiator and its gateway go by a CHILD_SA, as ESP has them, but for IKE's own. A
/// gateway drops what it has for an initiator without one.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IkePolicy {
    /// What becomes of an initiator's packets while there is no CHILD_SA.
    #[serde(default = "hold", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<UnprotectedAction>")]
    pub without_sa: UnprotectedAction,
    /// Such a packet makes its initiator authenticate.
    #[serde(default)]
    pub on_demand: bool,
}

impl IkeWorkload {
    /// Whether one recorded handshake stands for all: what goes through the tunnels of methods other than EAP-TLS is not recorded.
    #[must_use]
    pub fn replays_handshakes(&self) -> bool {
        self.method == IkeMethod::EapTls && self.certificates.handshake == HandshakeMode::Recorded
    }
    /// Whether IKE_SAs have no CHILD_SA.
    #[must_use]
    pub fn is_childless(&self) -> bool {
        self.child == "off"
    }
}

const fn hold() -> UnprotectedAction {
    UnprotectedAction::Hold
}

/// Certificates, of EAP-TLS and of IKE itself, and the TLS of EAP methods.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IkeCertificates {
    /// Of which kind they are.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<CertificateKind>")]
    pub kind: CertificateKind,
    /// Certificates that an initiator sends, its own and those above it except the root.
    pub initiator_chain: PositiveCount,
    /// Certificates that the other side sends: the AAA server by TLS, or the gateway by IKE.
    pub server_chain: PositiveCount,
    /// The version of TLS.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<TlsVersion>")]
    pub version: TlsVersion,
    /// The largest EAP packet that a TLS flight is cut into.
    pub fragment: ByteSize,
    /// Where the TLS messages of EAP-TLS come from; those of PEAP and EAP-TTLS are computed.
    pub handshake: HandshakeMode,
}

impl Default for IkeCertificates {
    fn default() -> Self {
        Self {
            kind: CertificateKind::Natural,
            initiator_chain: PositiveCount::from_u32(2),
            server_chain: PositiveCount::from_u32(2),
            version: TlsVersion::Tls12,
            fragment: ByteSize::from_bytes(1024),
            handshake: HandshakeMode::Recorded,
        }
    }
}

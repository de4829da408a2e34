//! Initiators and their IKEv2 gateway: the workload `ike`.

use super::{ArrivalSettings, RadiusSettings, TlsHandshakeMode};
use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::named;
use usher_config::units::{Bound, ByteSize, PositiveCount, Switch, TimeSpan};
use usher_crypto::TlsVersion;

usher_core::named! {
    "an authentication method";
    /// The authentication of initiator and gateway.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum IkeMethod {
        /// A pre-shared key on both sides.
        Psk = "psk",
        /// Certificates on both sides.
        Certificate = "certificate",
        /// EAP-MD5; the gateway uses a pre-shared key.
        EapMd5 = "eap-md5",
        /// EAP-MSCHAPv2; the gateway uses a pre-shared key.
        EapMsChapV2 = "eap-mschapv2",
        /// EAP-GTC; the gateway uses a pre-shared key.
        EapGtc = "eap-gtc",
        /// EAP-TLS; the gateway uses a pre-shared key.
        EapTls = "eap-tls",
        /// PEAP with EAP-MSCHAPv2 inside; the gateway uses a pre-shared key.
        Peap = "peap",
        /// EAP-TTLS with PAP inside; the gateway uses a pre-shared key.
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
    "a kind of certificate";
    /// The kind of certificates.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum CertificateKind {
        /// RSA-2048 in the natural size: 880 to 930 octets.
        Natural = "rsa",
        /// RSA-2048, padded by a comment to 1500 octets.
        Long = "rsa-1500",
        /// ECDSA with P-256.
        Ecdsa = "ecdsa",
    }
}

usher_core::named! {
    "an order of reauthentication";
    /// The end of the old IKE_SA in a reauthentication.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum ReauthenticationOrder {
        /// Its deletion comes first. The new IKE_SA begins with the gateway's response to it.
        BreakBeforeMake = "break-before-make",
        /// Its deletion comes when the new IKE_SA exists.
        MakeBeforeBreak = "make-before-break",
    }
}

/// Initiators authenticate by IKEv2 (RFC 7296) to a gateway, which asks an AAA server by RADIUS for EAP methods. A
/// dialogue is one authentication: from the first message until the initiator has its IKE_SA, with a CHILD_SA unless
/// `child` is `"off"`. The first message may be the deletion of an earlier IKE_SA. Gateway and AAA server are the
/// workload's own.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IkeWorkload {
    /// The initiators. Initiator i uses gateway i modulo their number.
    pub initiators: String,
    /// The responders. Gateway i uses server i modulo their number.
    pub gateway: String,
    /// The AAA servers, for EAP methods.
    pub server: String,
    /// The authentication method.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<IkeMethod>")]
    pub method: IkeMethod,
    /// Certificates and TLS.
    #[serde(default)]
    pub certificates: IkeCertificates,
    /// The proposal for IKE messages: `"aes128-sha256-modp2048"`, `"aes256gcm16-prfsha384-x25519-ke1_mlkem768"`.
    #[serde(default = "proposal")]
    pub proposal: String,
    /// The proposal for the CHILD_SA, in transport mode between the two hosts: `"aes128-sha256"`. `"off"`: childless
    /// IKE_SAs (RFC 6023).
    #[serde(default = "child")]
    pub child: String,
    /// When authentications begin. A busy initiator delays its next one.
    pub arrivals: ArrivalSettings,
    /// The age at which an initiator deletes its IKE_SA; `"off"`: it keeps it until it authenticates again.
    #[serde(default = "off")]
    pub lifetime: Switch<TimeSpan>,
    /// The order of a reauthentication.
    #[serde(default = "reauthentication", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<ReauthenticationOrder>")]
    pub reauthentication: ReauthenticationOrder,
    /// The first wait of an initiator before it retransmits a request; each further one is 1.8 times as long.
    #[serde(default = "retransmission")]
    pub retransmission: TimeSpan,
    /// The largest number of retransmissions of a request.
    #[serde(default = "retransmissions")]
    pub retransmissions: PositiveCount,
    /// The RADIUS settings of the gateway.
    #[serde(default)]
    pub radius: RadiusSettings,
    /// The lifetime of tickets with which an initiator resumes its IKE_SA (RFC 5723), without a key exchange; `"off"`:
    /// no tickets. The deletion of an IKE_SA invalidates its ticket.
    #[serde(default = "off")]
    pub resumption: Switch<TimeSpan>,
    /// The protection of other packets between initiators and gateways; without it they pass unprotected. Simulator
    /// only.
    pub policy: Option<IkePolicy>,
    /// The time after which an initiator gives up an unfinished authentication, which then counts as failed.
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
    "an action for packets without an SA";
    /// The action for an initiator's packets that need a missing CHILD_SA.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum MissingChildSaAction {
        /// They wait for it: at most 256 packets, 256 KiB and 30 s. The oldest are dropped first.
        Hold = "hold",
        /// They are dropped.
        Discard = "discard",
    }
}

/// Security policies (RFC 4301): packets between an initiator and its gateway need a CHILD_SA and travel as ESP, except
/// IKE itself. A gateway drops packets for an initiator without one.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IkePolicy {
    /// The action for an initiator's packets while it has no CHILD_SA.
    #[serde(default = "hold", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<MissingChildSaAction>")]
    pub without_sa: MissingChildSaAction,
    /// Such a packet triggers its initiator's authentication.
    #[serde(default)]
    pub on_demand: bool,
}

impl IkeWorkload {
    /// Whether one recorded handshake stands for all: what goes through the tunnels of methods other than EAP-TLS is not recorded.
    #[must_use]
    pub fn replays_handshakes(&self) -> bool {
        self.method == IkeMethod::EapTls && self.certificates.handshake == TlsHandshakeMode::Recorded
    }
    /// Whether IKE_SAs have no CHILD_SA.
    #[must_use]
    pub fn has_no_child_sa(&self) -> bool {
        self.child == "off"
    }
}

const fn hold() -> MissingChildSaAction {
    MissingChildSaAction::Hold
}

/// Certificates of EAP-TLS and of IKE itself, and the TLS of EAP methods.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IkeCertificates {
    /// The kind of certificates.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<CertificateKind>")]
    pub kind: CertificateKind,
    /// Number of certificates that an initiator sends: its own and its chain without the root.
    pub initiator_chain: PositiveCount,
    /// Number of certificates that the other side sends: the AAA server in TLS, or the gateway in IKE.
    pub server_chain: PositiveCount,
    /// The version of TLS.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<TlsVersion>")]
    pub version: TlsVersion,
    /// The largest EAP packet of a fragmented TLS flight.
    pub fragment: ByteSize,
    /// The source of the TLS messages of EAP-TLS; those of PEAP and EAP-TTLS are computed.
    pub handshake: TlsHandshakeMode,
}

impl Default for IkeCertificates {
    fn default() -> Self {
        Self {
            kind: CertificateKind::Natural,
            initiator_chain: PositiveCount::from_u32(2),
            server_chain: PositiveCount::from_u32(2),
            version: TlsVersion::Tls12,
            fragment: ByteSize::from_bytes(1024),
            handshake: TlsHandshakeMode::Recorded,
        }
    }
}

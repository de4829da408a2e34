//! Hosts with PPPoE sessions: the workload `pppoe`.

use super::ArrivalSettings;
use super::arrivals::give_up;
use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::named;
use usher_config::units::{Bound, Percentage, PositiveCount, Switch, TimeSpan};

usher_core::named! {
    "a PPP authentication method";
    /// The authentication of a host.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum PppoeMethod {
        /// PAP.
        Pap = "pap",
        /// CHAP with MD5.
        Chap = "chap",
        /// MS-CHAPv2.
        MsChapV2 = "mschapv2",
        /// EAP-MD5.
        EapMd5 = "eap-md5",
        /// EAP-MSCHAPv2.
        EapMsChapV2 = "eap-mschapv2",
    }
}

/// Hosts have PPPoE sessions (RFC 2516) at an access concentrator, whose host runs "concentrator". A dialogue is the
/// setup of one session: from the first PADI until IPv4 packets may pass. Other traffic of these hosts goes through
/// their sessions. Without a session, the concentrator drops it in both directions. Packets have the addresses that the
/// study gives the hosts.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PppoeWorkload {
    /// The hosts with sessions. Their first link or cell leads to the concentrator. All are behind its first interface,
    /// as behind a switch.
    pub stations: String,
    /// The concentrator. Station i is behind concentrator i modulo their number, like its link.
    pub concentrator: String,
    /// Whether there are sessions. Without them, the concentrator's host forwards the stations' packets like a router.
    #[serde(default = "super::yes")]
    pub used: bool,
    /// The authentication of the stations.
    #[serde(default = "method", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<PppoeMethod>")]
    pub method: PppoeMethod,
    /// The user of the stations; `{}` stands for the station's number, from 0.
    #[serde(default = "user")]
    pub user: String,
    /// The user's password.
    #[serde(default = "password")]
    pub password: String,
    /// When sessions begin. A station with a session delays the next one until that session ends.
    pub arrivals: ArrivalSettings,
    /// How long a session lasts; `"off"`: to the end of the run.
    #[serde(default = "off")]
    pub hold: Switch<TimeSpan>,
    /// A station whose session ends against its will begins another: a new dialogue, counted from that end.
    #[serde(default = "super::yes")]
    pub persist: bool,
    /// The first wait for a discovery reply; each further wait is twice as long, up to half a minute.
    #[serde(default = "discovery")]
    pub discovery: TimeSpan,
    /// The largest number of PADIs for a session.
    #[serde(default = "attempts")]
    pub attempts: PositiveCount,
    /// The interval of a station's liveness checks of the concentrator; `"off"`: none.
    #[serde(default = "keepalive")]
    pub keepalive: Switch<TimeSpan>,
    /// Share of sessions tried with a wrong password.
    #[serde(default)]
    pub wrong_credentials: Percentage,
    /// The time after which a station gives up an unfinished session, which then counts as failed.
    #[serde(default = "give_up")]
    pub give_up: Bound<TimeSpan>,
}

const fn method() -> PppoeMethod {
    PppoeMethod::Chap
}
fn user() -> String {
    "user{}@example.org".to_owned()
}
fn password() -> String {
    "a password for simulations alone".to_owned()
}
const fn off() -> Switch<TimeSpan> {
    Switch::Off
}
const fn discovery() -> TimeSpan {
    TimeSpan::from_secs(1)
}
const fn attempts() -> PositiveCount {
    PositiveCount::from_u32(5)
}
const fn keepalive() -> Switch<TimeSpan> {
    Switch::On(TimeSpan::from_secs(20))
}

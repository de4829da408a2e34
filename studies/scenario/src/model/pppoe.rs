//! Hosts with PPPoE sessions: the workload `pppoe`.

use super::ArrivalSettings;
use super::workload::give_up;
use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::named;
use usher_config::units::{Bound, Percentage, PositiveCount, Switch, TimeSpan};

usher_core::named! {
    "a way of showing who one is by PPP";
    /// How a host shows who it is.
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

/// Hosts have PPPoE sessions (RFC 2516) at an access concentrator, whose host runs "concentrator". A dialogue is one session set up:
/// from the first PADI until packets of IPv4 may pass. What other workloads have these hosts say goes by their sessions: without one it
/// is dropped at the concentrator, to them as well as from them. Packets bear the addresses that the study gives the hosts.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PppoeWorkload {
    /// The hosts with sessions. Their first link, or cell, is the one to the concentrator; all are behind its first interface, as
    /// by a switch.
    pub stations: String,
    /// The concentrator. Station i is behind concentrator i modulo their number, as its link has it.
    pub concentrator: String,
    /// Whether there are sessions. Without them the concentrator's host forwards as a router, and the stations' packets go as they are.
    #[serde(default = "super::yes")]
    pub used: bool,
    /// How stations show who they are.
    #[serde(default = "method", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<PppoeMethod>")]
    pub method: PppoeMethod,
    /// The user of the stations; `{}` stands for the station's number, from 0.
    #[serde(default = "user")]
    pub user: String,
    /// The user's password.
    #[serde(default = "password")]
    pub password: String,
    /// When sessions begin. One that falls due while its station still has a session waits for that one's end.
    pub arrivals: ArrivalSettings,
    /// How long a session lasts; `"off"`: to the end of the run.
    #[serde(default = "off")]
    pub hold: Switch<TimeSpan>,
    /// A station whose session has ended, other than by its own will, begins another: a dialogue of its own, from that end on.
    #[serde(default = "super::yes")]
    pub persist: bool,
    /// How long an answer of discovery is waited for at first; each further wait is twice as long, up to half a minute.
    #[serde(default = "discovery")]
    pub discovery: TimeSpan,
    /// How often PADI is sent for a session.
    #[serde(default = "attempts")]
    pub attempts: PositiveCount,
    /// How often a station asks whether the concentrator lives; `"off"`: never.
    #[serde(default = "keepalive")]
    pub keepalive: Switch<TimeSpan>,
    /// Share of sessions tried with a wrong password.
    #[serde(default)]
    pub wrong_credentials: Percentage,
    /// When a station gives an unfinished session up, which then counts as failed.
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

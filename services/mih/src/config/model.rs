//! The keys of the file.

use super::handover::{HandoverTable, PointTable};
use crate::access::{AccessRight, AccessRights};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::log::LogConfig;
use usher_config::units::{ByteSize, PositiveCount, Switch, TimeSpan};
use usher_config::{Prefix, named};
use usher_core::TransportProtocol;
use usher_mih::{EventList, PORT};

/// The configuration of `usher mih serve`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Usher's MIH function")]
pub struct MihConfigFile {
    /// What this function calls itself: a host's name, or a network access identifier, as `"mn1@example.org"` (RFC 5677,
    /// 4.2); without it the name of the host.
    pub id: Option<String>,
    /// Where it is reached.
    pub listen: ListenTable,
    /// Who is heard, and what each may; the longest prefix that fits wins. Who is in none is not heard at all, but for the
    /// functions below `[[peer]]`.
    pub allow: Vec<AllowTable>,
    /// The interfaces whose links it tells of; without any, all that the kernel shows with a MAC address.
    pub interface: Vec<InterfaceTable>,
    /// The events that it tells to those who subscribe.
    #[serde(deserialize_with = "named::read_list")]
    #[schemars(schema_with = "named::list_schema::<EventName>")]
    pub events: Vec<EventName>,
    /// Other functions: those that it registers with or subscribes to.
    pub peer: Vec<PeerTable>,
    /// A mobile node, which hands over between two interfaces.
    pub handover: Option<HandoverTable>,
    /// A network's point of service.
    pub point_of_service: Option<PointTable>,
    /// When messages are sent again, and what is renewed when.
    pub timers: TimersTable,
    /// What nobody may exceed.
    pub limits: LimitsTable,
    /// Logs.
    pub log: LogConfig,
}

impl Default for MihConfigFile {
    /// Loopback alone, where and who; all interfaces, and all events that a kernel tells of.
    fn default() -> Self {
        let loopback = |(network, bits): (IpAddr, u8)| AllowTable {
            prefix: Prefix { network, bits },
            may: [AccessRight::Events, AccessRight::Parameters, AccessRight::Handover].into(),
        };
        Self {
            id: None,
            listen: ListenTable::default(),
            allow: [(Ipv4Addr::new(127, 0, 0, 0).into(), 8), (Ipv6Addr::LOCALHOST.into(), 128)]
                .map(loopback)
                .into(),
            interface: Vec::new(),
            events: EventName::ALL.into(),
            peer: Vec::new(),
            handover: None,
            point_of_service: None,
            timers: TimersTable::default(),
            limits: LimitsTable::default(),
            log: LogConfig::default(),
        }
    }
}

/// Where a function is reached. A server has both transports (RFC 5677, 6.5).
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenTable {
    /// Addresses with ports for UDP: `"0.0.0.0:4551"`, `"[::]:4551"`.
    pub udp: Vec<SocketAddr>,
    /// Addresses with ports for TCP.
    pub tcp: Vec<SocketAddr>,
}

impl Default for ListenTable {
    fn default() -> Self {
        let both: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let all: Vec<SocketAddr> = both.map(|address| SocketAddr::new(address, PORT)).into();
        Self { udp: all.clone(), tcp: all }
    }
}

/// Who is heard, and what each may. Identifiers of MIH functions prove nothing: rights are of addresses.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AllowTable {
    /// Their addresses.
    pub prefix: Prefix,
    /// What they may, beside discovery and registration.
    #[serde(default, deserialize_with = "named::read_list")]
    #[schemars(schema_with = "named::list_schema::<AccessRight>")]
    pub may: Vec<AccessRight>,
}

impl AllowTable {
    /// As a set.
    #[must_use]
    pub fn to_rights(&self) -> AccessRights {
        self.may.iter().copied().collect()
    }
}

/// An interface.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterfaceTable {
    /// What the kernel calls it: `"eth0"`.
    pub name: String,
    /// Its technology; without it Ethernet, or 802.11 where the kernel shows a wireless one.
    #[serde(default, deserialize_with = "read_link_type")]
    #[schemars(schema_with = "link_type_schema")]
    pub link_type: Option<LinkTypeName>,
    /// Its MAC address, where the kernel is not to say: `"02:00:00:00:00:01"`.
    pub address: Option<String>,
    /// The MAC address of the point of attachment at its other end.
    pub poa: Option<String>,
    /// Others who may act on links may switch it off and on.
    #[serde(default)]
    pub may_act: bool,
    /// When its loss is foreseen (Link_Going_Down), beside a commanded one.
    pub watch: Option<WatchTable>,
}

fn read_link_type<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<LinkTypeName>, D::Error> {
    named::read(from).map(Some)
}

fn link_type_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    named::schema_of::<LinkTypeName>(|_| true)
}

usher_core::named! {
    "a link type";
    /// A link's technology.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum LinkTypeName {
        /// IEEE 802.3.
        Ethernet = "ethernet",
        /// IEEE 802.11.
        Ieee80211 = "802.11",
        /// IEEE 802.16.
        Ieee80216 = "802.16",
        /// UMTS.
        Umts = "umts",
        /// GPRS.
        Gprs = "gprs",
        /// Another wireless one.
        Wireless = "wireless",
    }
}

impl LinkTypeName {
    /// As MIH messages have it.
    #[must_use]
    pub const fn link_type(self) -> usher_mih::LinkType {
        match self {
            Self::Ethernet => usher_mih::LinkType::Ethernet,
            Self::Ieee80211 => usher_mih::LinkType::Ieee80211,
            Self::Ieee80216 => usher_mih::LinkType::Ieee80216,
            Self::Umts => usher_mih::LinkType::Umts,
            Self::Gprs => usher_mih::LinkType::Gprs,
            Self::Wireless => usher_mih::LinkType::WirelessOther,
        }
    }
}

/// A value below which a link's loss is foreseen.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchTable {
    /// A file that holds the value, a number, written by whatever measures it; without it the signal level in dBm that the
    /// kernel has of a wireless interface.
    pub file: Option<String>,
    /// The loss is foreseen when the value is below this.
    pub below: f64,
    /// And foreseen again once the value was higher by this.
    #[serde(default = "default_hysteresis")]
    pub hysteresis: f64,
    /// How often the value is read.
    #[serde(default = "default_interval")]
    pub interval: TimeSpan,
    /// The forecast: how long until the link is lost.
    #[serde(default = "default_within")]
    pub within: TimeSpan,
}

const fn default_hysteresis() -> f64 {
    3.0
}
const fn default_interval() -> TimeSpan {
    TimeSpan::from_millis(200)
}
const fn default_within() -> TimeSpan {
    TimeSpan::from_secs(1)
}

usher_core::named! {
    "an event";
    /// An event of a link, as the standard names it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum EventName {
        /// The link carries packets.
        LinkUp = "link-up",
        /// It does not any more.
        LinkDown = "link-down",
        /// It will be lost.
        LinkGoingDown = "link-going-down",
        /// Its data rate has changed.
        LinkParametersReport = "link-parameters-report",
    }
}

impl EventName {
    /// As MIH messages have it.
    #[must_use]
    pub const fn to_event_list(self) -> EventList {
        match self {
            Self::LinkUp => EventList::LINK_UP,
            Self::LinkDown => EventList::LINK_DOWN,
            Self::LinkGoingDown => EventList::LINK_GOING_DOWN,
            Self::LinkParametersReport => EventList::LINK_PARAMETERS_REPORT,
        }
    }
}

/// Another function.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerTable {
    /// What it calls itself.
    pub id: String,
    /// Where it is.
    pub address: IpAddr,
    /// Its port.
    #[serde(default = "default_port")]
    pub port: u16,
    /// Networks from which it comes as well: those of a mobile node's other links. Other functions cannot speak under its
    /// identifier from there unless they receive there, and from elsewhere not at all.
    #[serde(default)]
    pub networks: Vec<Prefix>,
    /// What carries messages to it: short ones that must not wait go best by UDP (RFC 5677, 6.5).
    #[serde(default = "default_transport", deserialize_with = "by_ip::read")]
    #[schemars(schema_with = "by_ip::schema")]
    pub transport: TransportProtocol,
    /// Register with it, and renew that in time.
    #[serde(default)]
    pub register: bool,
    /// Subscribe to these events of its links.
    #[serde(default, deserialize_with = "named::read_list")]
    #[schemars(schema_with = "named::list_schema::<EventName>")]
    pub subscribe: Vec<EventName>,
}

const fn default_port() -> u16 {
    PORT
}
const fn default_transport() -> TransportProtocol {
    TransportProtocol::Udp
}

usher_config::some_of!(by_ip: TransportProtocol, |t| matches!(t, TransportProtocol::Udp | TransportProtocol::Tcp));

usher_core::named! {
    "what is done for want of a response";
    /// What is done when a request was acknowledged and its response does not come in time.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum UnansweredName {
        /// Wait on, until the transaction's time is over.
        Wait = "wait",
        /// Send the request again.
        Retransmit = "retransmit",
        /// Give it up.
        Abort = "abort",
    }
}

/// When messages are sent again, and what is renewed when.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimersTable {
    /// How long an acknowledgement is waited for, over UDP; 3 s at first by RFC 5677, 6.3. It is not fitted to the round
    /// trip: set it to a little more than that where it is known.
    pub retransmission: TimeSpan,
    /// How often a message is sent again for want of an acknowledgement.
    pub retransmissions: u32,
    /// How long a response is waited for after the acknowledgement; `"off"` waits until the transaction's time is over.
    pub response: Switch<TimeSpan>,
    /// What is done then.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<UnansweredName>")]
    pub unanswered: UnansweredName,
    /// How long a transaction may be under way.
    pub transaction: TimeSpan,
    /// How long one that has ended is remembered, so that duplicates of its messages are known.
    pub remembered: TimeSpan,
    /// For how long others are registered here.
    pub registration: TimeSpan,
    /// How often registrations and subscriptions with peers are renewed, at least; every two minutes keeps the ways through
    /// address translators open (RFC 5677, 6.4).
    pub refresh: TimeSpan,
    /// How soon a peer that did not answer is asked again.
    pub retry: TimeSpan,
}

impl Default for TimersTable {
    fn default() -> Self {
        Self {
            retransmission: TimeSpan::from_secs(3),
            retransmissions: 2,
            response: Switch::Off,
            unanswered: UnansweredName::Wait,
            transaction: TimeSpan::from_secs(15),
            remembered: TimeSpan::from_secs(15),
            registration: TimeSpan::from_secs(3600),
            refresh: TimeSpan::from_secs(120),
            retry: TimeSpan::from_secs(10),
        }
    }
}

/// What nobody may exceed.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsTable {
    /// Connections that others opened, at a time.
    pub connections: PositiveCount,
    /// Of them those from one network: an IPv4 address, or 64 bits of an IPv6 address.
    pub connections_per_network: PositiveCount,
    /// Addresses that are to prove that they receive what is sent to them, at a time.
    pub claims: PositiveCount,
    /// Of them those from one network.
    pub claims_per_network: PositiveCount,
    /// Transactions in memory, under way and remembered.
    pub transactions: PositiveCount,
    /// Functions that are registered here and not below `[[peer]]`.
    pub registered: PositiveCount,
    /// Interfaces that are subscribed to, counted for each subscriber.
    pub subscriptions: PositiveCount,
    /// Of one subscriber.
    pub subscriptions_per_peer: PositiveCount,
    /// Requests that wait for the kernel, and link actions that wait for their time.
    pub requests: PositiveCount,
    /// Of one function.
    pub requests_per_peer: PositiveCount,
    /// Indications to one subscriber that it has not acknowledged; further ones are dropped.
    pub indications_per_peer: PositiveCount,
    /// Octets of a datagram; longer messages go in several. Over TCP none is cut.
    pub message: ByteSize,
}

impl Default for LimitsTable {
    fn default() -> Self {
        Self {
            connections: PositiveCount::from_u32(1024),
            connections_per_network: PositiveCount::from_u32(32),
            claims: PositiveCount::from_u32(1024),
            claims_per_network: PositiveCount::from_u32(16),
            transactions: PositiveCount::from_u32(65_536),
            registered: PositiveCount::from_u32(4096),
            subscriptions: PositiveCount::from_u32(4096),
            subscriptions_per_peer: PositiveCount::from_u32(64),
            requests: PositiveCount::from_u32(1024),
            requests_per_peer: PositiveCount::from_u32(16),
            indications_per_peer: PositiveCount::from_u32(64),
            message: ByteSize::from_bytes(1280 - 40 - 8),
        }
    }
}

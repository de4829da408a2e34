//! The keys of the file.

use super::handover::{HandoverTable, PosConfigTable};
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
    /// The identifier of this function: a host name, or a network access identifier such as `"mn1@example.org"` (RFC
    /// 5677, 4.2). Without it, the name of the host.
    pub id: Option<String>,
    /// The addresses at which this function receives messages.
    pub listen: ListenTable,
    /// Networks whose messages are accepted, and their rights. The longest matching prefix decides. Messages from other
    /// addresses are dropped, except from the functions in `[[peer]]`.
    pub allow: Vec<AllowedNetworkTable>,
    /// The interfaces to report on. Without any, all interfaces with a MAC address.
    pub interface: Vec<InterfaceTable>,
    /// The events that other functions may subscribe to.
    #[serde(deserialize_with = "named::read_list")]
    #[schemars(schema_with = "named::list_schema::<LinkEventName>")]
    pub events: Vec<LinkEventName>,
    /// Other functions, to register with or to subscribe to.
    pub peer: Vec<PeerTable>,
    /// A mobile node that hands over between two interfaces.
    pub handover: Option<HandoverTable>,
    /// A network's point of service.
    pub point_of_service: Option<PosConfigTable>,
    /// Times of retransmissions and renewals.
    pub timers: TimersTable,
    /// Limits.
    pub limits: LimitsTable,
    /// The log.
    pub log: LogConfig,
}

impl Default for MihConfigFile {
    /// Listens on loopback and allows loopback only. Reports on all interfaces and all events of the kernel.
    fn default() -> Self {
        let loopback = |(network, bits): (IpAddr, u8)| AllowedNetworkTable {
            prefix: Prefix { network, bits },
            rights: [AccessRight::Events, AccessRight::Parameters, AccessRight::Handover].into(),
        };
        Self {
            id: None,
            listen: ListenTable::default(),
            allow: [(Ipv4Addr::new(127, 0, 0, 0).into(), 8), (Ipv6Addr::LOCALHOST.into(), 128)]
                .map(loopback)
                .into(),
            interface: Vec::new(),
            events: LinkEventName::ALL.into(),
            peer: Vec::new(),
            handover: None,
            point_of_service: None,
            timers: TimersTable::default(),
            limits: LimitsTable::default(),
            log: LogConfig::default(),
        }
    }
}

/// The addresses at which a function receives messages. A server has both transports (RFC 5677, 6.5).
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenTable {
    /// UDP addresses and ports: `"0.0.0.0:4551"`, `"[::]:4551"`.
    pub udp: Vec<SocketAddr>,
    /// TCP addresses and ports.
    pub tcp: Vec<SocketAddr>,
}

impl Default for ListenTable {
    fn default() -> Self {
        let both: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let all: Vec<SocketAddr> = both.map(|address| SocketAddr::new(address, PORT)).into();
        Self { udp: all.clone(), tcp: all }
    }
}

/// A network whose messages are accepted, and its rights. Rights depend on the address, because the identifier of an
/// MIH function proves nothing.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AllowedNetworkTable {
    /// The network.
    pub prefix: Prefix,
    /// Its rights, beside discovery and registration.
    #[serde(default, deserialize_with = "named::read_list")]
    #[schemars(schema_with = "named::list_schema::<AccessRight>")]
    pub rights: Vec<AccessRight>,
}

impl AllowedNetworkTable {
    /// Returns the rights as a set.
    #[must_use]
    pub fn to_rights(&self) -> AccessRights {
        self.rights.iter().copied().collect()
    }
}

/// An interface.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterfaceTable {
    /// The kernel's name of the interface: `"eth0"`.
    pub name: String,
    /// Its technology. Without it, 802.11 for a wireless interface of the kernel, and Ethernet for others.
    #[serde(default, deserialize_with = "read_link_type")]
    #[schemars(schema_with = "link_type_schema")]
    pub link_type: Option<LinkTypeName>,
    /// Its MAC address, in place of the kernel's: `"02:00:00:00:00:01"`.
    pub address: Option<String>,
    /// The MAC address of the point of attachment at its other end.
    pub poa: Option<String>,
    /// Functions with the right `actions` may switch it off and on.
    #[serde(default)]
    pub allow_actions: bool,
    /// The prediction of its loss (Link_Going_Down). A commanded loss is announced without it.
    pub watch: Option<LinkWatchTable>,
}

fn read_link_type<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<LinkTypeName>, D::Error> {
    named::read(from).map(Some)
}

fn link_type_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    named::named_value_schema::<LinkTypeName>(|_| true)
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
        /// Another wireless technology.
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

/// The value that predicts the loss of a link.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkWatchTable {
    /// A file with the value, a number that another program writes. Without it, the kernel's signal level of the
    /// wireless interface in dBm.
    pub file: Option<String>,
    /// A value below this predicts the loss.
    pub below: f64,
    /// The value must rise above `below` by this before a further prediction.
    #[serde(default = "default_hysteresis")]
    pub hysteresis: f64,
    /// The time between two readings of the value.
    #[serde(default = "default_interval")]
    pub interval: TimeSpan,
    /// The predicted time until the loss.
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
    /// An event of a link, by the standard's name.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum LinkEventName {
        /// The link carries packets.
        LinkUp = "link-up",
        /// The link no longer carries packets.
        LinkDown = "link-down",
        /// The link will be lost soon.
        LinkGoingDown = "link-going-down",
        /// The link's data rate has changed.
        LinkParametersReport = "link-parameters-report",
    }
}

impl LinkEventName {
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
    /// The identifier of the function.
    pub id: String,
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    #[serde(default = "default_port")]
    pub port: u16,
    /// Further networks of the function, such as those of a mobile node's other links. Another function can use its
    /// identifier only from these networks, and only if it receives there.
    #[serde(default)]
    pub networks: Vec<Prefix>,
    /// The transport to it. UDP is best for short, urgent messages (RFC 5677, 6.5).
    #[serde(default = "default_transport", deserialize_with = "by_ip::read")]
    #[schemars(schema_with = "by_ip::schema")]
    pub transport: TransportProtocol,
    /// Register with it, and renew the registration in time.
    #[serde(default)]
    pub register: bool,
    /// Subscribe to these events of its links.
    #[serde(default, deserialize_with = "named::read_list")]
    #[schemars(schema_with = "named::list_schema::<LinkEventName>")]
    pub subscribe: Vec<LinkEventName>,
}

const fn default_port() -> u16 {
    // RFC 5677, 6.5: port 4551 unless assigned.
    PORT
}
const fn default_transport() -> TransportProtocol {
    TransportProtocol::Udp
}

usher_config::some_of!(by_ip: TransportProtocol, |t| matches!(t, TransportProtocol::Udp | TransportProtocol::Tcp));

usher_core::named! {
    "the action without a response";
    /// The action when a request is acknowledged and its response does not come in time.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum UnansweredRequestAction {
        /// Wait until the end of the transaction's time.
        Wait = "wait",
        /// Send the request again.
        Retransmit = "retransmit",
        /// Fail the transaction.
        Abort = "abort",
    }
}

/// Times of retransmissions and renewals.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimersTable {
    /// The time to wait for an acknowledgement over UDP; 3 s initially by RFC 5677, 6.3. It does not adapt to the
    /// round-trip time: if that is known, set it to a little more.
    pub retransmission: TimeSpan,
    /// The number of retransmissions of a message without an acknowledgement.
    pub retransmissions: u32,
    /// The time to wait for a response after the acknowledgement. `"off"` waits until the end of the transaction's
    /// time.
    pub response: Switch<TimeSpan>,
    /// The action when this time has passed.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<UnansweredRequestAction>")]
    pub unanswered: UnansweredRequestAction,
    /// The maximum duration of a transaction.
    pub transaction: TimeSpan,
    /// The time for which an ended transaction is remembered, to detect duplicates of its messages.
    pub duplicate_memory: TimeSpan,
    /// The duration of registrations with this function.
    pub registration: TimeSpan,
    /// The maximum time between renewals of registrations and subscriptions with peers. Two minutes keep the bindings
    /// of address translators open (RFC 5677, 6.4).
    pub refresh: TimeSpan,
    /// The time before the next request to a peer that did not answer.
    pub retry: TimeSpan,
}

impl Default for TimersTable {
    fn default() -> Self {
        Self {
            retransmission: TimeSpan::from_secs(3),
            retransmissions: 2,
            response: Switch::Off,
            unanswered: UnansweredRequestAction::Wait,
            transaction: TimeSpan::from_secs(15),
            duplicate_memory: TimeSpan::from_secs(15),
            registration: TimeSpan::from_secs(3600),
            refresh: TimeSpan::from_secs(120),
            retry: TimeSpan::from_secs(10),
        }
    }
}

/// Limits.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsTable {
    /// Simultaneous connections that peers opened.
    pub connections: PositiveCount,
    /// Simultaneous connections from one network: an IPv4 address, or 64 bits of an IPv6 address.
    pub connections_per_network: PositiveCount,
    /// Addresses that must prove reachability, at a time.
    pub address_proofs: PositiveCount,
    /// Addresses of one network that must prove reachability, at a time.
    pub address_proofs_per_network: PositiveCount,
    /// Transactions in memory, in progress and remembered.
    pub transactions: PositiveCount,
    /// Functions registered here that are not in `[[peer]]`.
    pub registered: PositiveCount,
    /// Subscribed interfaces, counted for each subscriber.
    pub subscriptions: PositiveCount,
    /// Subscribed interfaces of one subscriber.
    pub subscriptions_per_peer: PositiveCount,
    /// Requests that wait for the kernel, and link actions that wait for their time.
    pub requests: PositiveCount,
    /// Such requests and link actions of one function.
    pub requests_per_peer: PositiveCount,
    /// Unacknowledged indications to one subscriber. Further ones are dropped.
    pub indications_per_peer: PositiveCount,
    /// The maximum size of a datagram. Longer messages are fragmented, but not over TCP.
    pub message: ByteSize,
}

impl Default for LimitsTable {
    fn default() -> Self {
        Self {
            connections: PositiveCount::from_u32(1024),
            connections_per_network: PositiveCount::from_u32(32),
            address_proofs: PositiveCount::from_u32(1024),
            address_proofs_per_network: PositiveCount::from_u32(16),
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

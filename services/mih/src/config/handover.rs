//! The tables `[handover]` and `[point_of_service]`: a mobile node with two interfaces, and the point of service of a network.

use super::check::parse_mac;
use super::model::{LinkTypeName, MihConfigFile, PeerTable};
use super::{LoadedMihConfig, local_address};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::units::{PositiveCount, TimeSpan};
use usher_config::{KeyPathError, named};
use usher_mih::{LinkAddr, LinkId, LinkTupleId, LinkType, MihfId, MihfPeer, PeerRoute};
use usher_mobility::pos::{HandoverTrigger, NeighbourPos, ServedStation};
use usher_mobility::station::{CommitAnswer, OnFailure};
use usher_mobility::{HandoverInitiatingSide, pos, station};

/// Requests that a node or a point of service processes at a time; further ones are refused.
const MAX_REQUESTS: usize = 256;
/// How long after its last message a point of service forgets a handover that does not end.
const HANDOVER_EXPIRY: usher_core::Duration = usher_core::Duration::from_secs(60);

usher_core::named! {
    "the leader of a handover";
    /// The leader of a handover.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum HandoverInitiatorName {
        /// The mobile node: it asks its point of service.
        Station = "station",
        /// The network: the node reports to its point of service, which then asks the node.
        Network = "network",
    }
}

usher_core::named! {
    "the action after a failed exchange";
    /// The node's action after a failed exchange with its point of service.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum HandoverFailureAction {
        /// Stay until the old link is lost.
        LinkDown = "link-down",
        /// Go to the other interface at once.
        OtherInterface = "other-interface",
        /// Go to the other interface if no answer came, and stay after a refusal.
        OtherInterfaceIfUnanswered = "other-interface-if-unanswered",
    }
}

/// A mobile node (`usher mih node`). When the serving link is lost or will be lost soon, the node moves its traffic to
/// the target link.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HandoverTable {
    /// The node's first interface: the name of an `[[interface]]` with a `poa`. Its `watch` predicts the loss of its
    /// link.
    pub serving: String,
    /// The interface to hand over to: the name of another `[[interface]]` with a `poa`.
    pub target: String,
    /// The node's address on the serving interface. It is also its home address.
    pub serving_address: IpAddr,
    /// The node's address on the target interface: the care-of address.
    pub target_address: IpAddr,
    /// The router on the target link. The handover changes the default route to it.
    pub gateway: IpAddr,
    /// The serving network's point of service: the `id` of a `[[peer]]`.
    pub serving_pos: String,
    /// The target network's point of service. It receives the completion of the handover; without it, the serving one
    /// does.
    pub target_pos: Option<String>,
    /// The receiver of the Mobile IPv6 Binding Update with the care-of address: the correspondent or a home agent, at
    /// UDP port 4191.
    pub correspondent: IpAddr,
    /// The UDP port of the correspondent's flow.
    #[serde(default = "flow_port")]
    pub flow_port: u16,
    /// The leader of the handover.
    #[serde(default = "default_initiator", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<HandoverInitiatorName>")]
    pub initiated_by: HandoverInitiatorName,
    /// The action after a failed exchange.
    #[serde(default = "on_failure", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<HandoverFailureAction>")]
    pub on_failure: HandoverFailureAction,
    /// The time before the next try of a failed scan, entry or registration.
    #[serde(default = "default_retry")]
    pub retry: TimeSpan,
}

const fn flow_port() -> u16 {
    5000
}
const fn default_initiator() -> HandoverInitiatorName {
    HandoverInitiatorName::Station
}
const fn on_failure() -> HandoverFailureAction {
    HandoverFailureAction::LinkDown
}
const fn default_retry() -> TimeSpan {
    TimeSpan::from_millis(500)
}

/// A network's point of service (`usher mih serve`). It answers the handovers of its stations and of arriving stations.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PosConfigTable {
    /// The MAC address of its network's point of attachment.
    pub poa: String,
    /// The stations that this point of service serves.
    #[serde(default)]
    pub station: Vec<StationTable>,
    /// The network that the stations can move to.
    pub neighbour: Option<NeighbourTable>,
    /// The point of service begins a handover when a station reports that its link is going down. If false, stations
    /// begin it.
    #[serde(default)]
    pub initiates_handover: bool,
    /// The capacity of the network in stations, reservations included.
    #[serde(default = "default_capacity")]
    pub capacity: PositiveCount,
    /// The lifetime of a reservation.
    #[serde(default = "default_reserve")]
    pub reserve: TimeSpan,
}

const fn default_capacity() -> PositiveCount {
    PositiveCount::from_u32(1000)
}
const fn default_reserve() -> TimeSpan {
    TimeSpan::from_secs(30)
}

/// A station of a point of service.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StationTable {
    /// The station's function: the `id` of a `[[peer]]`.
    pub id: String,
    /// The MAC address of its interface in this network.
    pub address: String,
    /// The technology of its link in this network.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<LinkTypeName>")]
    pub link_type: LinkTypeName,
}

/// Another network.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NeighbourTable {
    /// Its point of service: the `id` of a `[[peer]]`.
    pub id: String,
    /// The MAC address of its point of attachment.
    pub poa: String,
    /// Its technology.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<LinkTypeName>")]
    pub link_type: LinkTypeName,
}

/// Returns the faults of these tables, with their keys.
pub(super) fn check_handover(file: &MihConfigFile) -> Vec<KeyPathError> {
    let mut found = Vec::new();
    let mut wrong = |keys: &[&str], message: String| {
        found.push((keys.iter().map(|key| (*key).to_owned()).collect(), message));
    };
    let is_peer = |id: &String| file.peer.iter().any(|peer| peer.id == *id);
    let no_peer = |id: &str| format!("there is no [[peer]] with id = \"{id}\"");
    let is_mac = |text: &String| parse_mac(text).is_some();
    let no_mac = |text: &str| format!("\"{text}\" is not a MAC address such as \"02:00:00:00:00:01\"");
    if let Some(table) = &file.handover {
        let at = |key| ["handover", key];
        for (key, name) in [("serving", &table.serving), ("target", &table.target)] {
            let poa = file.interface.iter().find(|i| i.name == *name).map(|i| i.poa.is_some());
            match poa {
                None => wrong(&at(key), format!("there is no [[interface]] with name = \"{name}\"")),
                Some(false) => {
                    wrong(&at(key), format!("the [[interface]] {name} needs a poa"));
                }
                Some(true) => {}
            }
        }
        if table.serving == table.target {
            wrong(&at("target"), "target must be another interface than serving".to_owned());
        }
        for (key, id) in
            [("serving_pos", Some(&table.serving_pos)), ("target_pos", table.target_pos.as_ref())]
        {
            if let Some(id) = id.filter(|id| !is_peer(id)) {
                wrong(&at(key), no_peer(id));
            }
        }
        for (key, address) in [
            ("target_address", table.target_address),
            ("gateway", table.gateway),
            ("correspondent", table.correspondent),
        ] {
            if address.is_ipv4() != table.serving_address.is_ipv4() {
                wrong(&at(key), format!("{address} has another address family than serving_address"));
            }
        }
    }
    if let Some(table) = &file.point_of_service {
        if !is_mac(&table.poa) {
            wrong(&["point_of_service", "poa"], no_mac(&table.poa));
        }
        for (i, station) in table.station.iter().enumerate() {
            let number = i.to_string();
            let at = |key| ["point_of_service", "station", number.as_str(), key];
            if !is_peer(&station.id) {
                wrong(&at("id"), no_peer(&station.id));
            }
            if !is_mac(&station.address) {
                wrong(&at("address"), no_mac(&station.address));
            }
        }
        if let Some(neighbour) = &table.neighbour {
            let at = |key| ["point_of_service", "neighbour", key];
            if !is_peer(&neighbour.id) {
                wrong(&at("id"), no_peer(&neighbour.id));
            }
            if !is_mac(&neighbour.poa) {
                wrong(&at("poa"), no_mac(&neighbour.poa));
            }
        }
        if file.handover.is_some() {
            wrong(
                &["point_of_service"],
                "a function is either a mobile node or a point of service; remove one of the two tables"
                    .to_owned(),
            );
        }
    }
    found
}

/// A peer of the file, reached from this address.
fn find_peer(file: &MihConfigFile, id: &str, local: Option<IpAddr>) -> Option<MihfPeer> {
    let table = file.peer.iter().find(|peer| peer.id == id)?;
    Some(MihfPeer { id: MihfId::new(id).ok()?, route: peer_route(table, local), ack: true })
}

fn peer_route(table: &PeerTable, local: Option<IpAddr>) -> PeerRoute {
    PeerRoute { transport: table.transport, local, remote: SocketAddr::new(table.address, table.port) }
}

fn parse_poa(text: &str) -> Option<LinkAddr> {
    parse_mac(text).map(LinkAddr::Mac)
}

impl LoadedMihConfig {
    /// Returns a mobile node's configuration, with the kernel's MAC addresses. `None`: there is no `[handover]`, or an
    /// interface has no MAC address.
    #[must_use]
    pub fn station_config(
        &self,
        id: MihfId,
        address: &dyn Fn(&str) -> Option<[u8; 6]>,
    ) -> Option<station::StationConfig> {
        let table = self.file.handover.as_ref()?;
        let link = |name: &str| {
            let interface = self.interfaces.iter().find(|interface| interface.name == name)?;
            let mac = interface.address.or_else(|| address(name))?;
            let technology = interface.technology.unwrap_or(LinkType::Ethernet);
            Some(LinkTupleId {
                link: LinkId::from_mac(technology, mac),
                poa: interface.poa.map(LinkAddr::Mac),
            })
        };
        let serving = find_peer(&self.file, &table.serving_pos, Some(table.serving_address))?;
        let mut mih = self.service_config(id).mih;
        mih.locals = [table.serving_address, table.target_address].into();
        mih.user_answers_subscriptions = false;
        Some(station::StationConfig {
            mih,
            serving_after: PeerRoute { local: Some(table.target_address), ..serving.route },
            serving,
            target: table
                .target_pos
                .as_ref()
                .and_then(|id| find_peer(&self.file, id, Some(table.target_address))),
            serving_address: table.serving_address,
            target_address: table.target_address,
            serving_link: link(&table.serving)?,
            target_link: link(&table.target)?,
            correspondent: SocketAddr::new(table.correspondent, usher_mip::PORT),
            initiation: match table.initiated_by {
                HandoverInitiatorName::Station => HandoverInitiatingSide::Station,
                HandoverInitiatorName::Network => HandoverInitiatingSide::Network,
            },
            on_failure: match table.on_failure {
                HandoverFailureAction::LinkDown => OnFailure::WaitForLinkDown,
                HandoverFailureAction::OtherInterface => OnFailure::OtherInterface,
                HandoverFailureAction::OtherInterfaceIfUnanswered => OnFailure::OtherInterfaceIfUnanswered,
            },
            commit_answer: CommitAnswer::AfterProcessing,
            processing: usher_core::Duration::ZERO,
            retry: table.retry.get(),
            binding: usher_mip::RegistrationTimerConfig::default(),
            max_requests: MAX_REQUESTS,
        })
    }

    /// Returns a point of service's configuration. `None`: there is no `[point_of_service]`.
    #[must_use]
    pub fn pos_config(&self, id: MihfId) -> Option<pos::PosConfig> {
        let (file, table) = (&self.file, self.file.point_of_service.as_ref()?);
        let peer = |id: &str| {
            let table = file.peer.iter().find(|peer| peer.id == id)?;
            find_peer(file, id, local_address(&file.listen.udp, table))
        };
        let client = |of: &StationTable| {
            let link = LinkId::from_mac(of.link_type.link_type(), parse_mac(&of.address)?);
            Some(ServedStation {
                peer: peer(&of.id)?,
                link: LinkTupleId { link, poa: parse_poa(&table.poa) },
            })
        };
        let mut mih = self.service_config(id).mih;
        mih.user_answers_subscriptions = false;
        Some(pos::PosConfig {
            mih,
            poa: parse_poa(&table.poa)?,
            clients: table.station.iter().filter_map(client).collect(),
            neighbour: table.neighbour.as_ref().and_then(|of| {
                let technology = of.link_type.link_type();
                Some(NeighbourPos { peer: peer(&of.id)?, technology, poa: parse_poa(&of.poa)? })
            }),
            trigger: if table.initiates_handover { HandoverTrigger::Remote } else { HandoverTrigger::Never },
            processing: usher_core::Duration::ZERO,
            capacity: table.capacity.get(),
            reserve: table.reserve.get(),
            handover_expiry: HANDOVER_EXPIRY,
            max_requests: MAX_REQUESTS,
        })
    }
}

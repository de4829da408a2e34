//! The configuration file of an MIH function.

mod check;
mod handover;
mod model;

pub use model::{
    AllowedNetworkTable, InterfaceTable, LimitsTable, LinkEventName, LinkWatchTable, ListenTable,
    MihConfigFile, PeerTable, TimersTable, UnansweredRequestAction,
};

pub use check::{parse_identifier, parse_mac};
pub use handover::{
    HandoverFailureAction, HandoverInitiatorName, HandoverTable, NeighbourTable, PosConfigTable, StationTable,
};

use crate::link::InterfaceConfig;
use crate::neighbour::NeighbourPeerConfig;
use crate::service;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use std::path::Path;
use usher_config::tree::TreeNode;
use usher_config::{
    CheckedConfig, ConfigDiagnostic, ConfigEnvironment, ConfigErrors, ConfigFormat, DiagnosticCollector,
    RetiredKey,
};
use usher_core::TransportProtocol;
use usher_mih::{EventList, MihfId, MihfPeer, PeerRoute};

/// The default path of the configuration.
pub const DEFAULT_PATH: &str = "/etc/usher/mih.toml";

/// The format of configuration files.
pub const FORMAT: ConfigFormat = ConfigFormat {
    description: "an MIH function's configuration",
    version: 1,
    retired: &[
        RetiredKey::renamed(&["allow"], "may", "rights"),
        RetiredKey::renamed(&["interface"], "may_act", "allow_actions"),
        RetiredKey::renamed(&["point_of_service"], "leads", "initiates_handover"),
        RetiredKey::renamed(&["timers"], "remembered", "duplicate_memory"),
        RetiredKey::renamed(&["limits"], "claims", "address_proofs"),
        RetiredKey::renamed(&["limits"], "claims_per_network", "address_proofs_per_network"),
    ],
};

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct LoadedMihConfig {
    /// The configuration as written.
    pub file: MihConfigFile,
    /// Its identifier, if configured.
    pub id: Option<MihfId>,
    /// The interfaces.
    pub interfaces: Vec<InterfaceConfig>,
    /// Warnings.
    pub warnings: Vec<ConfigDiagnostic>,
}

/// Parses and checks a text. `origin` names its source in messages, such as the file's path.
///
/// # Errors
/// All faults of the text.
pub fn parse(
    origin: &str,
    text: &str,
    outside: &dyn ConfigEnvironment,
) -> Result<LoadedMihConfig, ConfigErrors> {
    let check = |file: &mut MihConfigFile, _: &Path| check::check_file(file);
    usher_config::parse(&FORMAT, origin, text, outside, check).map(LoadedMihConfig::from)
}

/// Reads and checks a table of another file that holds the keys of a configuration, such as a study's host. Faults
/// and warnings refer to that file's lines. `None`: the table has faults, which are in `faults`.
pub fn read_tree(tree: TreeNode, faults: &mut DiagnosticCollector) -> Option<LoadedMihConfig> {
    let check = |file: &mut MihConfigFile, _: &Path| check::check_file(file);
    usher_config::read_tree(&FORMAT, tree, Path::new(""), check, faults).map(LoadedMihConfig::from)
}

impl From<CheckedConfig<MihConfigFile, check::CheckedFunctionConfig>> for LoadedMihConfig {
    fn from(
        CheckedConfig { file, built_config: (id, interfaces), warnings }: CheckedConfig<
            MihConfigFile,
            check::CheckedFunctionConfig,
        >,
    ) -> Self {
        Self { file, id, interfaces, warnings }
    }
}

/// Returns the local address for messages to a peer. UDP uses the first socket of the peer's address family. TCP does
/// the same if that socket has a specific address.
fn local_address(udp: &[SocketAddr], table: &PeerTable) -> Option<IpAddr> {
    let own = udp.iter().map(SocketAddr::ip).find(|ip| ip.is_ipv4() == table.address.is_ipv4());
    own.filter(|ip| table.transport == TransportProtocol::Udp || !ip.is_unspecified())
}

impl LoadedMihConfig {
    /// Returns the service's configuration for the function with this identifier.
    #[must_use]
    pub fn service_config(&self, id: MihfId) -> service::MihServiceConfig {
        let file = &self.file;
        let count = |n: usher_config::units::PositiveCount| usize::try_from(n.get()).unwrap_or(usize::MAX);
        let timers = &file.timers;
        let timing = usher_mih::TransactionTimerConfig {
            retransmission: timers.retransmission.get(),
            retransmissions: u8::try_from(timers.retransmissions).unwrap_or(u8::MAX),
            response: timers.response.get().map(|time| time.get()),
            unanswered: match timers.unanswered {
                UnansweredRequestAction::Wait => usher_mih::ResponseTimeoutPolicy::Wait,
                UnansweredRequestAction::Retransmit => usher_mih::ResponseTimeoutPolicy::Retransmit,
                UnansweredRequestAction::Abort => usher_mih::ResponseTimeoutPolicy::Abort,
            },
        };
        let limits = &file.limits;
        let mih = usher_mih::MihfConfig {
            timing,
            by_message: BTreeMap::new(),
            transaction: Some(timers.transaction.get()),
            lifetime: timers.duplicate_memory.get(),
            registration: timers.registration.get(),
            max_transactions: count(limits.transactions),
            max_registered: count(limits.registered),
            // RFC 5677, 6.1: messages over UDP are bounded.
            max_message: usize::try_from(limits.message.bytes()).unwrap_or(usize::MAX),
            locals: file.listen.udp.iter().map(SocketAddr::ip).collect(),
            user_answers_subscriptions: true,
            by_transport: true,
            proofs: Some(usher_mih::AddressProofConfig {
                allowed_networks: file.peer.iter().filter_map(peer_networks).collect(),
                claims: count(limits.address_proofs),
                address_proofs_per_network: count(limits.address_proofs_per_network),
            }),
            ..usher_mih::MihfConfig::new(id)
        };
        let access = file.allow.iter().map(|allow| (allow.prefix, allow.to_rights())).collect();
        let peers = file.peer.iter().filter_map(|table| {
            let id = MihfId::new(&table.id).ok()?;
            let local = local_address(&file.listen.udp, table);
            let remote = SocketAddr::new(table.address, table.port);
            let route = PeerRoute { transport: table.transport, local, remote };
            let subscribe = event_list(&table.subscribe);
            Some(NeighbourPeerConfig {
                peer: MihfPeer { id, route, ack: true },
                register: table.register,
                subscribe,
            })
        });
        service::MihServiceConfig {
            mih,
            access: crate::AccessList(access),
            interfaces: self.interfaces.clone(),
            events: event_list(&file.events),
            peers: peers.collect(),
            refresh: timers.refresh.get(),
            retry: timers.retry.get(),
            limits: service::MihServiceLimits {
                connections: count(limits.connections),
                connections_per_network: count(limits.connections_per_network),
                subscriptions: count(limits.subscriptions),
                subscriptions_per_peer: count(limits.subscriptions_per_peer),
                requests: count(limits.requests),
                requests_per_peer: count(limits.requests_per_peer),
                indications_per_peer: count(limits.indications_per_peer),
            },
        }
    }
}

/// Returns the networks that a peer may use besides its address.
fn peer_networks(table: &PeerTable) -> Option<(MihfId, Vec<(IpAddr, u8)>)> {
    let networks = table.networks.iter().map(|prefix| (prefix.network, prefix.bits));
    Some((MihfId::new(&table.id).ok()?, networks.collect()))
}

fn event_list(names: &[LinkEventName]) -> EventList {
    names.iter().fold(EventList::NONE, |all, name| all.with(name.to_event_list()))
}

/// Returns the JSON Schema of the file, as in `docs/mih.schema.json`: indented, with a final newline.
#[must_use]
pub fn json_schema() -> String {
    usher_config::json_schema::<MihConfigFile>(&FORMAT)
}

#[cfg(test)]
mod tests;

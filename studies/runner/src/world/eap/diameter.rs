//! Diameter settings that a NAS and its server share, and their identities.

use super::users::name_in_workload;
use std::num::NonZeroU16;
use usher_core::Duration;
use usher_diameter::codes::application::{ACCOUNTING, EAP};
use usher_diameter::node;
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_diameter::stream::StreamPolicy;
use usher_nas::{DiameterConfig, DiameterConnections};
use usher_scenario::model::{self, EapWorkload, NasAaaProtocol, Scenario, TransportProtocol};

/// Returns the Diameter identity of a NAS.
pub(super) fn nas_name(workload: &str, eap: &EapWorkload, index: u64) -> String {
    name_in_workload(workload, &format!("nas-{index}.{}", eap.realm))
}

/// Returns the Diameter identities of a NAS's shared connections.
pub(super) fn connection_identities(workload: &str, eap: &EapWorkload, index: u64) -> Vec<String> {
    let node = node::DiameterNodeConfig::new(&nas_name(workload, eap, index), &eap.realm, &[]);
    DiameterConfig::new(node, eap.realm.clone())
        .with_connections(convert_connections(eap.diameter.connections))
        .connection_identities()
}

/// Returns the Diameter applications of both sides.
pub(super) fn diameter_applications(eap: &EapWorkload) -> &'static [DiameterApplication] {
    const APPLICATIONS: [DiameterApplication; 2] =
        [DiameterApplication::for_authentication(EAP), DiameterApplication::for_accounting(ACCOUNTING)];
    if eap.accounting.used { &APPLICATIONS } else { &APPLICATIONS[..1] }
}

pub(super) fn convert_stream_policy(policy: model::StreamPolicy) -> StreamPolicy {
    match policy {
        model::StreamPolicy::One => StreamPolicy::SingleStream,
        model::StreamPolicy::Session => StreamPolicy::BySession,
        model::StreamPolicy::Unordered => StreamPolicy::Unordered,
    }
}

pub(super) fn node_transport(diameter: &model::DiameterSettings) -> node::PeerTransportConfig {
    match diameter.transport {
        TransportProtocol::Sctp => node::PeerTransportConfig::Message {
            streams: diameter.streams.get().min(u32::from(u16::MAX)) as u16,
            policy: convert_stream_policy(diameter.stream_policy),
        },
        _ => node::PeerTransportConfig::Stream,
    }
}

pub(super) fn convert_connections(connections: model::NasConnections) -> DiameterConnections {
    match connections {
        model::NasConnections::PerSession => DiameterConnections::PerSession,
        model::NasConnections::Shared(n) => {
            let n = n.get().min(u32::from(u16::MAX)) as u16;
            DiameterConnections::Shared(NonZeroU16::new(n).unwrap_or(NonZeroU16::MIN))
        }
    }
}

pub(super) fn reconnect_delay(scenario: &Scenario, eap: &EapWorkload) -> Duration {
    match eap.diameter.transport {
        TransportProtocol::Sctp if eap.aaa == NasAaaProtocol::Diameter => {
            scenario.transport.sctp.reconnect.get()
        }
        _ => scenario.transport.tcp.reconnect.get(),
    }
}

pub(super) fn apply_timing(node: &mut node::DiameterNodeConfig, eap: &EapWorkload, reconnect: Duration) {
    node.watchdog = Some(eap.diameter.watchdog.get());
    node.request_timeout = Some(eap.diameter.timeout.get());
    node.reconnect = reconnect;
}

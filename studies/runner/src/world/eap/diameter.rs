//! Diameter's settings that a NAS and its server have in common, and what they call themselves.

use super::users::named;
use std::num::NonZeroU16;
use usher_core::Duration;
use usher_diameter::codes::application::{ACCOUNTING, EAP};
use usher_diameter::node;
use usher_diameter::peer::capabilities::Application;
use usher_diameter::stream::StreamPolicy;
use usher_nas::{Connections, DiameterConfig};
use usher_scenario::model::{self, Aaa, Eap, Scenario, TransportProtocol};

/// What a NAS calls itself in Diameter.
pub(super) fn nas_name(workload: &str, eap: &Eap, index: u64) -> String {
    named(workload, &format!("nas-{index}.{}", eap.realm))
}

/// What the shared connections of a NAS call themselves in Diameter.
pub(super) fn identities(workload: &str, eap: &Eap, index: u64) -> Vec<String> {
    let node = node::Config::new(&nas_name(workload, eap, index), &eap.realm, &[]);
    DiameterConfig::new(node, eap.realm.clone()).by(connections(eap.diameter.connections)).identities()
}

/// What both sides speak of.
pub(super) fn applications(eap: &Eap) -> &'static [Application] {
    const BOTH: [Application; 2] = [Application::auth(EAP), Application::acct(ACCOUNTING)];
    if eap.accounting.used { &BOTH } else { &BOTH[..1] }
}

pub(super) fn policy(policy: model::StreamPolicy) -> StreamPolicy {
    match policy {
        model::StreamPolicy::One => StreamPolicy::One,
        model::StreamPolicy::Session => StreamPolicy::BySession,
        model::StreamPolicy::Unordered => StreamPolicy::Unordered,
    }
}

pub(super) fn transport(diameter: &model::Diameter) -> node::Transport {
    match diameter.transport {
        TransportProtocol::Sctp => node::Transport::Message {
            streams: diameter.streams.get().min(u32::from(u16::MAX)) as u16,
            policy: policy(diameter.stream_policy),
        },
        _ => node::Transport::Stream,
    }
}

pub(super) fn connections(connections: model::Connections) -> Connections {
    match connections {
        model::Connections::PerSession => Connections::PerSession,
        model::Connections::Shared(n) => {
            let n = n.get().min(u32::from(u16::MAX)) as u16;
            Connections::Shared(NonZeroU16::new(n).unwrap_or(NonZeroU16::MIN))
        }
    }
}

pub(super) fn reconnect(scenario: &Scenario, eap: &Eap) -> Duration {
    match eap.diameter.transport {
        TransportProtocol::Sctp if eap.aaa == Aaa::Diameter => scenario.transport.sctp.reconnect.get(),
        _ => scenario.transport.tcp.reconnect.get(),
    }
}

pub(super) fn timing(node: &mut node::Config, eap: &Eap, reconnect: Duration) {
    node.watchdog = Some(eap.diameter.watchdog.get());
    node.request_timeout = Some(eap.diameter.timeout.get());
    node.reconnect = reconnect;
}

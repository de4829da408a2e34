//! MIH functions by the settings of a study.

use super::super::error::ScenarioRunError;
use super::super::machine::HostAddress;
use std::collections::BTreeMap;
use usher_core::Duration;
use usher_mih::{
    MessageId, MihfConfig, MihfId, MihfPeer, PORT, PeerRoute, ResponseTimeoutPolicy, TransactionTimerConfig,
};
use usher_scenario::model::{self, MihFunction, message_name};
use usher_sim::HostId;

/// Returns the identifier of member `index` of a kind of host.
pub(in super::super) fn member_identifier(kind: &str, index: usize) -> Result<MihfId, ScenarioRunError> {
    MihfId::new(format!("{kind}-{index}")).map_err(|e| ScenarioRunError::Role(e.to_string()))
}

/// Returns the configuration of a function.
pub(in super::super) fn function_config(id: MihfId, function: MihFunction<'_>) -> MihfConfig {
    let common = function.timing.base_message_timing();
    let mut config = MihfConfig::new(id);
    config.timing = convert_timing(common);
    let mut services = [common; 4];
    for (i, (_, change)) in function.timing.by_service.iter().enumerate() {
        if let Some(change) = change {
            services[i] = common.with_timing_change(change);
            config.by_service[i] = Some(convert_timing(services[i]));
        }
    }
    let mut by_message = BTreeMap::new();
    for (name, change) in function.timing.by_message.iter() {
        for id in MessageId::ALL.iter().filter(|id| message_name(**id) == name) {
            let changed = services[id.service.index()].with_timing_change(change);
            by_message.insert((id.service, id.action), convert_timing(changed));
        }
    }
    config.by_message = by_message;
    config.transaction = function.transaction.get().map(|t| t.get());
    config.accepts_late_responses = function.late_responses;
    config.ordered = function.ordered;
    config.lifetime = function.lifetime.get().map_or(Duration::ZERO, |t| t.get());
    config.ack_delay = function.ack_delay.get();
    config.max_transactions = function.max_transactions.get() as usize;
    config.max_message = function.max_message.bytes() as usize;
    config
}

fn convert_timing(timing: model::MihMessageTiming) -> TransactionTimerConfig {
    TransactionTimerConfig {
        retransmission: timing.retransmission.get(),
        retransmissions: timing.retransmissions.min(u32::from(u8::MAX)) as u8,
        response: timing.response.get().map(|t| t.get()),
        unanswered: match timing.unanswered {
            model::UnansweredAction::Wait => ResponseTimeoutPolicy::Wait,
            model::UnansweredAction::Retransmit => ResponseTimeoutPolicy::Retransmit,
            model::UnansweredAction::Abort => ResponseTimeoutPolicy::Abort,
        },
    }
}

/// Returns a peer function at its host's own address or at an interface's.
pub(in super::super) fn function_peer(
    id: MihfId,
    place: &HostAddress,
    at: HostId,
    function: MihFunction<'_>,
) -> MihfPeer {
    let route =
        PeerRoute { transport: function.transport, local: None, remote: place.socket_address(at, PORT) };
    MihfPeer { id, route, ack: function.ack }
}

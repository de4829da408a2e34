//! MIH functions as a study sets them.

use super::super::error::WorldError;
use super::super::machine::HostAddress;
use std::collections::BTreeMap;
use usher_core::Duration;
use usher_mih::{Config, MessageId, MihfId, PORT, Peer, Route, Timing, Unanswered};
use usher_scenario::model::{self, MihFunction, message_name};
use usher_sim::HostId;

/// The identifier of member `index` of a kind of hosts.
pub(in super::super) fn identifier(kind: &str, index: usize) -> Result<MihfId, WorldError> {
    MihfId::new(format!("{kind}-{index}")).map_err(|e| WorldError::Role(e.to_string()))
}

/// The settings of a function.
pub(in super::super) fn config(id: MihfId, function: MihFunction<'_>) -> Config {
    let common = function.timing.common();
    let mut config = Config::new(id);
    config.timing = timing(common);
    let mut services = [common; 4];
    for (i, (_, change)) in function.timing.by_service.iter().enumerate() {
        if let Some(change) = change {
            services[i] = common.with(change);
            config.by_service[i] = Some(timing(services[i]));
        }
    }
    let mut by_message = BTreeMap::new();
    for (name, change) in function.timing.by_message.iter() {
        for id in MessageId::ALL.iter().filter(|id| message_name(**id) == name) {
            let changed = services[id.service.index()].with(change);
            by_message.insert((id.service, id.action), timing(changed));
        }
    }
    config.by_message = by_message;
    config.transaction = function.transaction.get().map(|t| t.get());
    config.late_responses = function.late_responses;
    config.ordered = function.ordered;
    config.lifetime = function.lifetime.get().map_or(Duration::ZERO, |t| t.get());
    config.ack_delay = function.ack_delay.get();
    config.max_transactions = function.max_transactions.get() as usize;
    config.max_message = function.max_message.bytes() as usize;
    config
}

fn timing(timing: model::Timing) -> Timing {
    Timing {
        retransmission: timing.retransmission.get(),
        retransmissions: timing.retransmissions.min(u32::from(u8::MAX)) as u8,
        response: timing.response.get().map(|t| t.get()),
        unanswered: match timing.unanswered {
            model::Unanswered::Wait => Unanswered::Wait,
            model::Unanswered::Retransmit => Unanswered::Retransmit,
            model::Unanswered::Abort => Unanswered::Abort,
        },
    }
}

/// Another function, at its host's own address or that of an interface of it.
pub(in super::super) fn peer(id: MihfId, place: &HostAddress, at: HostId, function: MihFunction<'_>) -> Peer {
    let route = Route { transport: function.transport, local: None, remote: place.address(at, PORT) };
    Peer { id, route, ack: function.ack }
}

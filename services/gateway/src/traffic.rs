//! The data plane's reports of CHILD_SAs: their traffic, and their limits.

use crate::ike_session::IkeSession;
use crate::service::IkeGateway;
use core::net::SocketAddr;
use usher_access::SessionTraffic;
use usher_core::Instant;
use usher_esp::plane::SaUsage;
use usher_esp::sa::TrafficVolume;
use usher_ike::machine::{self as ike, IkeSaId};

/// The traffic since an earlier report.
const fn volume_since(before: TrafficVolume, now: TrafficVolume) -> TrafficVolume {
    TrafficVolume {
        packets: now.packets.saturating_sub(before.packets),
        octets: now.octets.saturating_sub(before.octets),
    }
}

impl IkeSession {
    /// The traffic of one of its CHILD_SAs.
    fn child_usage(&mut self, inbound: u32) -> Option<&mut SaUsage> {
        match self.children.get_mut(&inbound) {
            Some(child) => Some(&mut child.usage),
            None => self.leaving.get_mut(&inbound),
        }
    }
}

impl IkeGateway {
    fn find_session(&mut self, sa: IkeSaId) -> Option<&mut IkeSession> {
        match self.sessions.get_mut(&sa) {
            Some(session) => Some(session),
            None => self.closing.get_mut(&sa),
        }
    }

    /// Records the total traffic of a CHILD_SA.
    pub(crate) fn record_usage(&mut self, now: Instant, inbound: u32, usage: &SaUsage) {
        let Some(sa) = self.owners.get(&inbound).copied() else { return };
        let Some(session) = self.find_session(sa) else { return };
        let id = session.subscriber;
        let Some(known) = session.child_usage(inbound) else { return };
        let (received, sent) =
            (volume_since(known.received, usage.received), volume_since(known.sent, usage.sent));
        (known.received, known.sent) = (usage.received, usage.sent);
        self.counters.received_octets += received.octets;
        self.counters.received_packets += received.packets;
        self.counters.sent_octets += sent.octets;
        self.counters.sent_packets += sent.packets;
        let new = SessionTraffic {
            input_octets: received.octets,
            output_octets: sent.octets,
            input_packets: received.packets,
            output_packets: sent.packets,
        };
        self.subscribers.add_traffic(now, id, new);
        let (received, sent) = (received.packets > 0, sent.packets > 0);
        if received || sent {
            self.send_ike_command(now, ike::IkeCommand::Traffic { sa, received, sent });
        }
    }

    /// Records the last traffic of a removed CHILD_SA.
    pub(crate) fn record_final_child_usage(&mut self, now: Instant, inbound: u32, usage: Option<&SaUsage>) {
        if let Some(usage) = usage {
            self.record_usage(now, inbound, usage);
        }
        let Some(sa) = self.owners.get(&inbound).copied() else { return };
        let Some(session) = self.find_session(sa) else { return };
        // A CHILD_SA that is not leaving is still installed and will report its traffic again.
        if session.leaving.remove(&inbound).is_none() {
            return;
        }
        let (id, has_all_traffic) = (session.subscriber, session.leaving.is_empty());
        self.owners.remove(&inbound);
        if has_all_traffic && let Some(subscriber) = self.subscribers.any_session_mut(id) {
            subscriber.awaits_traffic = false;
            self.close_session(now, id);
        }
    }

    /// Rekeys a CHILD_SA near its traffic limit, or deletes it at the limit.
    pub(crate) fn handle_child_traffic_limit(&mut self, now: Instant, inbound: u32, hard: bool) {
        let Some(sa) = self.owners.get(&inbound).copied() else { return };
        let command = match hard {
            true => ike::IkeCommand::DeleteChild { sa, spi: inbound },
            false => ike::IkeCommand::RekeyChild { sa, spi: inbound },
        };
        self.send_ike_command(now, command);
    }

    /// Applies new local addresses: to connections, and to IKE_SAs of this side with MOBIKE.
    pub(crate) fn apply_local_address_changes(
        &mut self,
        now: Instant,
        own: &[(alloc::string::String, SocketAddr)],
    ) {
        for (name, local) in own {
            for peer in self.config.peers.iter_mut().filter(|peer| peer.connection.name == *name) {
                alloc::sync::Arc::make_mut(peer).local.set_ip(local.ip());
            }
            let moves = self.sessions.iter().filter_map(|(sa, session)| {
                let path = session.path;
                let moves = session.initiator && session.connection == *name && path.local.ip() != local.ip();
                let here = SocketAddr::new(local.ip(), path.local.port());
                moves.then_some(ike::IkeCommand::Move { sa: *sa, local: here, remote: path.remote })
            });
            let moves: alloc::vec::Vec<_> = moves.collect();
            for command in moves {
                self.send_ike_command(now, command);
            }
        }
    }
}

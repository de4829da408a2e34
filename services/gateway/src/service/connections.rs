//! The connections that the gateway initiates, and commands to selected IKE_SAs.

use super::{GatewayTimer, IkeGateway};
use crate::api::{GatewayEvent, IkeSaSelector};
use crate::ike_session::IkeSession;
use alloc::vec::Vec;
use usher_access::TerminateCause;
use usher_core::{Duration, Instant};
use usher_ike::machine::{self as ike, EndReason, IkeSaId};

impl IkeGateway {
    /// Initiates a connection again whose IKE_SA has ended, unless a command ended it.
    pub(super) fn restart_connection(&mut self, now: Instant, sa: IkeSaId, reason: EndReason) {
        let Some(name) = self.initiated_connections.remove(&sa) else { return };
        let renews = self.renewing.remove(&sa);
        // Another IKE_SA of this connection has replaced the ended one, so none is initiated.
        if self.initiated_connections.values().any(|other| *other == name) {
            return;
        }
        let begins = !self.leaving && !self.stopped.contains(&name);
        let n = self.config.peers.iter().position(|peer| peer.connection.name == name);
        let n = n.filter(|_| begins);
        if let Some(n) = n.filter(|_| renews) {
            self.timers.insert(now, GatewayTimer::Renew(n));
            return;
        }
        self.outputs.push_event(GatewayEvent::ConnectionEnded { connection: name });
        let starts = |n: &usize| self.config.peers.get(*n).is_some_and(|peer| peer.start);
        let Some(n) = n.filter(starts).filter(|_| reason != EndReason::Deleted) else { return };
        let retry = self.config.peers.get(n).map_or(Duration::ZERO, |peer| peer.retry);
        self.timers.insert(now + retry, GatewayTimer::Reconnect(n));
    }

    /// Sends a command to the selected IKE_SAs. Returns the number of affected SAs.
    pub(super) fn command_selected_sas(
        &mut self,
        now: Instant,
        which: &IkeSaSelector,
        children: bool,
        end: bool,
    ) -> usize {
        let meant = |(sa, session): (&IkeSaId, &IkeSession)| match which {
            IkeSaSelector::All => Some(*sa),
            IkeSaSelector::Sa(n) => (sa.0 == *n).then_some(*sa),
            IkeSaSelector::Named(name) => self.is_called(session, name).then_some(*sa),
        };
        let meant: Vec<IkeSaId> = self.sessions.iter().filter_map(meant).collect();
        let mut told = 0;
        for sa in meant {
            let spis: Vec<u32> = match self.sessions.get_mut(&sa) {
                Some(session) if end => {
                    (session.cause, session.is_ended_by_command) = (TerminateCause::AdminReset, true);
                    self.subscribers.mark_ending(session.subscriber);
                    self.renewing.remove(&sa);
                    Vec::new()
                }
                Some(session) if children => session.children.keys().copied().collect(),
                _ => Vec::new(),
            };
            let commands: Vec<_> = match (end, children) {
                (true, _) => alloc::vec![ike::IkeCommand::Delete(sa)],
                (false, true) => {
                    spis.into_iter().map(|spi| ike::IkeCommand::RekeyChild { sa, spi }).collect()
                }
                (false, false) => alloc::vec![ike::IkeCommand::Rekey(sa)],
            };
            told +=
                commands.into_iter().filter(|command| self.send_ike_command(now, command.clone())).count();
        }
        told
    }

    /// Stops the selected connections of this side and ends those that are being initiated. Returns the number of the
    /// latter.
    pub(super) fn stop_connections(&mut self, now: Instant, which: &IkeSaSelector) -> usize {
        let meant = |name: &str| {
            matches!(which, IkeSaSelector::All) || matches!(which, IkeSaSelector::Named(n) if n == name)
        };
        let names = self.config.peers.iter().filter(|peer| peer.start).map(|peer| &peer.connection.name);
        self.stopped.extend(names.filter(|name| meant(name)).cloned());
        let under_way = self.initiated_connections.iter().filter(|(sa, name)| {
            let meant = meant(name) || matches!(which, IkeSaSelector::Sa(n) if sa.0 == *n);
            meant && !self.sessions.contains_key(sa)
        });
        let under_way: Vec<IkeSaId> = under_way.map(|(sa, _)| *sa).collect();
        under_way.into_iter().filter(|sa| self.send_ike_command(now, ike::IkeCommand::Delete(*sa))).count()
    }
}

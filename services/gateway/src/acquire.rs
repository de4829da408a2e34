//! On-demand connections: the first packet that needs one of their CHILD_SAs initiates them (RFC 4301 §5.1, step 3b).

use crate::api::GatewayEvent;
use crate::service::IkeGateway;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::Instant;
use usher_ike::machine::{self as ike, IkeSaId};

impl IkeGateway {
    /// Creates the CHILD_SA that a packet needs.
    pub(crate) fn acquire_child(&mut self, now: Instant, connection: &str, child: String) {
        self.counters.acquired += 1;
        let Some(peer) = self.find_peer(connection).filter(|peer| peer.on_demand) else {
            return self.report_missing_child(connection, Some(child));
        };
        let established = self.sessions.iter().find(|(_, session)| session.connection == connection);
        if let Some((sa, session)) = established {
            // The CHILD_SA may have been created while the packet waited.
            if session.children.values().any(|there| there.name == child) {
                return;
            }
            let sa = *sa;
            if !self.send_ike_command(now, ike::IkeCommand::CreateChild { sa, name: child.clone() }) {
                self.report_missing_child(connection, Some(child));
            }
            return;
        }
        let begun = self.initiated_connections.values().any(|name| name == connection);
        // After a failed attempt, packets do not initiate the connection again until the time `retry` has passed.
        let rests = self.failed.get(connection).is_some_and(|at| now < *at + peer.retry);
        if !begun && (rests || self.initiate_connection(now, &peer).is_err()) {
            return self.report_missing_child(connection, Some(child));
        }
        self.on_demand_children.entry(connection.to_owned()).or_default().insert(child);
    }

    /// Creates the wanted CHILD_SAs of an established IKE_SA, apart from the first, which comes with it. All are
    /// wanted unless packets request them.
    pub(crate) fn create_wanted_children(&mut self, now: Instant, sa: IkeSaId) {
        self.finish_childless_reauthentication(now, sa);
        let Some(session) = self.sessions.get(&sa) else { return };
        let initiator = session.initiator;
        let Some(peer) = self.find_peer(&session.connection) else { return };
        let mut wanted = self.on_demand_children.remove(&peer.connection.name).unwrap_or_default();
        if initiator && !peer.on_demand {
            wanted.extend(peer.connection.children.iter().map(|child| child.name.clone()));
        }
        let first = peer.connection.children.first().map(|child| &child.name);
        let further: Vec<String> = wanted.into_iter().filter(|name| Some(name) != first).collect();
        for name in further {
            if !self.send_ike_command(now, ike::IkeCommand::CreateChild { sa, name: name.clone() }) {
                self.report_missing_child(&peer.connection.name, Some(name));
            }
        }
    }

    /// Reports that the packets of an on-demand connection stay unprotected, if its IKE_SA was never established.
    pub(crate) fn report_unprotected_connection(&mut self, now: Instant, sa: IkeSaId) {
        let Some(name) = self.initiated_connections.get(&sa).cloned() else { return };
        if !self.sessions.contains_key(&sa) && self.on_demand_children.remove(&name).is_some() {
            self.failed.insert(name.clone(), now);
            self.report_missing_child(&name, None);
        }
    }

    /// Handles the peer's refusal of a CHILD_SA.
    pub(crate) fn handle_child_refused(&mut self, now: Instant, sa: IkeSaId, child: &str) {
        self.mark_replacement_child_done(now, sa, child);
        let Some(session) = self.sessions.get(&sa) else { return };
        let connection = session.connection.clone();
        if self.find_peer(&connection).is_some_and(|peer| peer.on_demand) {
            self.report_missing_child(&connection, Some(child.to_owned()));
        }
    }

    fn report_missing_child(&mut self, connection: &str, child: Option<String>) {
        self.outputs.push_event(GatewayEvent::Unprotected { connection: connection.to_owned(), child });
    }
}

//! Lifetimes of SAs: reauthentication by this side (RFC 7296 §2.8.3), and the end of SAs that were not replaced.

use crate::ike_session::IkeSession;
use crate::service::{GatewayTimer, IkeGateway};
use alloc::collections::BTreeSet;
use alloc::string::String;
use usher_core::{Duration, Instant};
use usher_ike::machine::{self as ike, ChildSa, IkeSaId};

impl IkeGateway {
    /// Shortens a time by up to a tenth, so that SAs of the same begin do not expire together.
    fn with_jitter(&mut self, time: Duration) -> Duration {
        let less = (time.as_nanos() / 10)
            .saturating_mul(u64::from(self.subscribers.rng_mut().next_u32() >> 16))
            >> 16;
        time - Duration::from_nanos(less)
    }

    /// Schedules the reauthentication and the expiry of a new or rekeyed IKE_SA.
    pub(crate) fn schedule_renewal(&mut self, now: Instant, sa: IkeSaId) {
        let Some((name, initiator, before)) =
            self.sessions.get(&sa).map(|s| (s.connection.clone(), s.initiator, s.reauth))
        else {
            return;
        };
        let Some(peer) = self.find_peer(&name) else { return };
        // A rekeying does not authenticate the peer, so it does not delay the reauthentication.
        let reauth = match (before, peer.reauth_after.filter(|_| initiator)) {
            (Some(at), _) => Some(at),
            (None, Some(after)) => Some(now + self.with_jitter(after)),
            (None, None) => None,
        };
        let expires = peer.lifetime.map(|lifetime| now + lifetime);
        if let Some(at) = reauth {
            self.timers.insert(at, GatewayTimer::Reauthenticate(sa));
        }
        if let Some(at) = expires {
            self.timers.insert(at, GatewayTimer::Expire(sa));
        }
        if let Some(session) = self.sessions.get_mut(&sa) {
            (session.reauth, session.expires) = (reauth, expires);
        }
    }
    /// Removes the timers of an IKE_SA that has ended or has a new id.
    pub(crate) fn remove_lifetime_timers(&mut self, sa: IkeSaId, session: &IkeSession) {
        if let Some(at) = session.reauth {
            self.timers.remove(at, GatewayTimer::Reauthenticate(sa));
        }
        if let Some(at) = session.expires {
            self.timers.remove(at, GatewayTimer::Expire(sa));
        }
    }
    /// Returns the time when a CHILD_SA expires unless it is replaced.
    pub(crate) fn child_expiry_time(&self, now: Instant, child: &ChildSa) -> Option<Instant> {
        let peer = self.config.peers.iter().find(|peer| peer.connection.name == child.connection)?;
        let n = peer.connection.children.iter().position(|config| config.name == child.name)?;
        peer.child_lifetimes.get(n).copied().flatten().map(|lifetime| now + lifetime)
    }

    pub(crate) fn expire_sa(&mut self, now: Instant, sa: IkeSaId) {
        let Some(session) = self.sessions.get_mut(&sa) else { return };
        session.expires = None;
        self.counters.expired += 1;
        if session.initiator && !session.is_ended_by_command {
            self.renewing.insert(sa);
        }
        self.send_ike_command(now, ike::IkeCommand::Delete(sa));
    }
    pub(crate) fn expire_child(&mut self, now: Instant, inbound: u32) {
        let Some(sa) = self.owners.get(&inbound).copied() else { return };
        let child = self.sessions.get_mut(&sa).and_then(|session| session.children.get_mut(&inbound));
        let Some(child) = child else { return };
        child.expires = None;
        self.counters.children_expired += 1;
        self.send_ike_command(now, ike::IkeCommand::DeleteChild { sa, spi: inbound });
    }

    /// Reauthenticates by a new IKE_SA.
    pub(crate) fn reauthenticate_sa(&mut self, now: Instant, sa: IkeSaId) {
        let Some(session) = self.sessions.get_mut(&sa) else { return };
        session.reauth = None;
        if session.is_ended_by_command {
            return;
        }
        let children: BTreeSet<String> = session.children.values().map(|child| child.name.clone()).collect();
        let Some(peer) =
            self.config.peers.iter().find(|peer| peer.connection.name == session.connection).cloned()
        else {
            return;
        };
        self.counters.reauthentications += 1;
        if peer.break_before_make {
            self.renewing.insert(sa);
            self.send_ike_command(now, ike::IkeCommand::Delete(sa));
            return;
        }
        match self.initiate_connection(now, &peer) {
            Ok(new) => {
                // The first CHILD_SA is created with the IKE_SA. The others are requested afterwards.
                let name = peer.connection.name.clone();
                self.on_demand_children.entry(name).or_default().extend(children.iter().cloned());
                self.replacing.insert(new, (sa, children));
            }
            Err(_) => self.postpone_reauthentication(now, sa, peer.retry),
        }
    }
    fn postpone_reauthentication(&mut self, now: Instant, sa: IkeSaId, after: Duration) {
        if let Some(session) = self.sessions.get_mut(&sa).filter(|session| !session.is_ended_by_command) {
            session.reauth = Some(now + after);
            self.timers.insert(now + after, GatewayTimer::Reauthenticate(sa));
        }
    }

    /// Notes that a CHILD_SA was created or refused. After the last one, ends the old IKE_SA.
    pub(crate) fn mark_replacement_child_done(&mut self, now: Instant, sa: IkeSaId, child: &str) {
        let Some((old, missing)) = self.replacing.get_mut(&sa) else { return };
        missing.remove(child);
        if missing.is_empty() {
            let old = *old;
            self.replacing.remove(&sa);
            // If the peer allows only one IKE_SA per pair of identities, it may have ended the old one already.
            self.send_ike_command(now, ike::IkeCommand::Delete(old));
        }
    }
    /// Finishes the reauthentication of an IKE_SA without pending CHILD_SAs.
    pub(crate) fn finish_childless_reauthentication(&mut self, now: Instant, sa: IkeSaId) {
        if self.replacing.get(&sa).is_some_and(|(_, missing)| missing.is_empty()) {
            self.mark_replacement_child_done(now, sa, "");
        }
    }
    /// Handles the end of an IKE_SA that was to replace another.
    pub(crate) fn retry_failed_reauthentication(&mut self, now: Instant, sa: IkeSaId) {
        let Some((old, _)) = self.replacing.remove(&sa) else { return };
        let retry = self.sessions.get(&old).and_then(|session| self.find_peer(&session.connection));
        if let Some(peer) = retry {
            self.postpone_reauthentication(now, old, peer.retry);
        }
    }
    /// Changes the id of an IKE_SA.
    pub(crate) fn rename_sa(&mut self, old: IkeSaId, new: IkeSaId) {
        if self.renewing.remove(&old) {
            self.renewing.insert(new);
        }
        if let Some(replacing) = self.replacing.remove(&old) {
            self.replacing.insert(new, replacing);
        }
        for (replaced, _) in self.replacing.values_mut().filter(|(replaced, _)| *replaced == old) {
            *replaced = new;
        }
    }

    /// Initiates a connection again after this side has ended its IKE_SA for that purpose.
    pub(crate) fn reinitiate_connection(&mut self, now: Instant, n: usize) {
        let Some(peer) = self.config.peers.get(n).cloned() else { return };
        if self.initiate_connection(now, &peer).is_err() {
            self.timers.insert(now + peer.retry, GatewayTimer::Renew(n));
        }
    }
}

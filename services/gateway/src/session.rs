//! Sessions: the established IKE_SAs of a gateway.

use crate::ike_session::{ChildSaRecord, IkeSession};
use crate::initiator::place_of_initiator;
use crate::service::{GatewayTimer, IkeGateway};
use crate::status::{ChildSaStatus, IkeSaStatus};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_access::{NewSubscriberSession, SubscriberAddresses, TerminateCause};
use usher_core::{DatagramPath, Instant};
use usher_esp::plane::SaUsage;
use usher_esp::sa::TrafficVolume;
use usher_ike::Spi;
use usher_ike::code::ConfigurationType;
use usher_ike::machine::{self as ike, ChildSa, EndReason, IkeEvent, IkeSaId, IpsecMode};
use usher_ike::payload::{ConfigurationAttribute, Identification};

/// Returns the Acct-Terminate-Cause of an end (RFC 2866 §5.10).
const fn terminate_cause(reason: EndReason) -> Option<TerminateCause> {
    match reason {
        EndReason::DeletedByPeer | EndReason::Replaced => Some(TerminateCause::UserRequest),
        EndReason::Unreachable | EndReason::HalfOpen => Some(TerminateCause::LostCarrier),
        EndReason::Protocol => Some(TerminateCause::UserError),
        EndReason::Revoked => Some(TerminateCause::AdminReset),
        EndReason::Deleted
        | EndReason::Rekeyed
        | EndReason::NoProposal
        | EndReason::AuthenticationFailed
        | EndReason::Refused
        | EndReason::Helper
        | EndReason::Unsupported => None,
    }
}

impl IkeGateway {
    /// True if a name is the session's connection, its peer's identity, its user, its Acct-Session-Id or its virtual
    /// address.
    pub(crate) fn is_called(&self, session: &IkeSession, name: &str) -> bool {
        session.connection == name
            || session.identity.to_string() == name
            || self.subscribers.session(session.subscriber).is_some_and(|subscriber| {
                subscriber.grant.user == name.as_bytes() || subscriber.acct_session_id() == name
            })
            || name.parse().is_ok_and(|address| session.addresses.contains(&address))
    }
    /// Returns the IKE_SA of a subscriber's session.
    pub(crate) fn sa_of_session(&self, id: u64) -> Option<IkeSaId> {
        self.subscribers.session(id).map(|session| session.access)
    }

    /// Updates the sessions by an event of the endpoint.
    pub(crate) fn track_ike_event(&mut self, now: Instant, event: &IkeEvent) {
        match event {
            IkeEvent::Established { sa, connection, remote, spis, path } => {
                self.open_session(now, *sa, (connection, remote), *spis, *path);
            }
            IkeEvent::Install { sa, child } => {
                let expires = self.child_expiry_time(now, child);
                if let Some(session) = self.sessions.get_mut(sa) {
                    session
                        .children
                        .insert(child.inbound, ChildSaRecord { expires, ..child_record(child, now) });
                    if let Some(at) = expires {
                        self.timers.insert(at, GatewayTimer::ExpireChild(child.inbound));
                    }
                    self.owners.insert(child.inbound, *sa);
                    if let Some(wanted) = self.on_demand_children.get_mut(&child.connection) {
                        wanted.remove(&child.name);
                    }
                    self.failed.remove(&child.connection);
                }
                self.mark_replacement_child_done(now, *sa, &child.name);
            }
            IkeEvent::Remove { sa, inbound, .. } => {
                let gone = self.sessions.get_mut(sa).and_then(|session| {
                    let child = session.children.remove(inbound)?;
                    if self.subscribers.config().is_metered {
                        session.leaving.insert(*inbound, child.usage);
                    }
                    Some(child)
                });
                if let Some(at) = gone.as_ref().and_then(|child| child.expires) {
                    self.timers.remove(at, GatewayTimer::ExpireChild(*inbound));
                }
                if gone.is_some() && !self.subscribers.config().is_metered {
                    self.owners.remove(inbound);
                }
            }
            IkeEvent::Configured { sa, attributes } => {
                let addresses = attributes.iter().filter_map(ConfigurationAttribute::internal_address);
                if let Some(session) = self.sessions.get_mut(sa) {
                    session.addresses = addresses.collect();
                    session.dns = attributes.iter().filter_map(ConfigurationAttribute::name_server).collect();
                    let domains =
                        attributes.iter().filter(|one| one.kind == ConfigurationType::INTERNAL_DNS_DOMAIN);
                    session.domains = domains.map(|one| printable_domain(&one.value)).collect();
                }
            }
            IkeEvent::Moved { sa, path, encapsulated } => {
                if let Some(session) = self.sessions.get_mut(sa) {
                    session.path = *path;
                    session.children.values_mut().for_each(|child| child.encapsulated = *encapsulated);
                }
            }
            _ => {}
        }
    }

    fn open_session(
        &mut self,
        now: Instant,
        sa: IkeSaId,
        (connection, remote): (&str, &Identification),
        spis: (Spi, Spi),
        path: DatagramPath,
    ) {
        let initiator = self.is_locally_initiated(sa);
        let (mut grant, place, leases, addresses) = match self.logins.remove(&sa) {
            // The session has the same peer address as its AAA request.
            Some(login) => (login.grant, login.place, login.leases, login.addresses),
            None => {
                let place = Arc::new(place_of_initiator(connection, path.remote));
                (Default::default(), place, Vec::new(), Vec::new())
            }
        };
        if grant.user.is_empty() {
            grant.user = remote.to_canonical().to_string().into_bytes();
        }
        let (id, _) = self.subscribers.allocate_session();
        let new = NewSubscriberSession {
            grant,
            place,
            addresses: subscriber_addresses(&addresses),
            leases,
            is_accounted: !initiator,
            access: sa,
        };
        self.subscribers.open_session(now, id, new);
        let session = IkeSession {
            connection: connection.into(),
            identity: remote.clone(),
            initiator,
            spis,
            path,
            subscriber: id,
            addresses,
            dns: Vec::new(),
            domains: Vec::new(),
            children: BTreeMap::new(),
            leaving: BTreeMap::new(),
            cause: TerminateCause::UserRequest,
            reauth: None,
            expires: None,
            is_ended_by_command: false,
        };
        self.sessions.insert(sa, session);
        self.schedule_renewal(now, sa);
        if !initiator {
            self.counters.sessions += 1;
        }
        self.subscribers.start_accounting(now, id);
    }

    /// Continues a session under the id of a rekeyed IKE_SA.
    pub(crate) fn renumber_session(&mut self, now: Instant, old: IkeSaId, new: IkeSaId, spis: (Spi, Spi)) {
        let Some(mut session) = self.sessions.remove(&old) else { return };
        session.spis = spis;
        for inbound in session.children.keys().chain(session.leaving.keys()) {
            self.owners.insert(*inbound, new);
        }
        if let Some(subscriber) = self.subscribers.session_mut(session.subscriber) {
            subscriber.access = new;
        }
        self.remove_lifetime_timers(old, &session);
        self.sessions.insert(new, session);
        self.schedule_renewal(now, new);
    }

    /// Deletes the IKE_SA of a subscriber's session for this cause.
    pub(crate) fn delete_session(&mut self, now: Instant, id: u64, cause: TerminateCause) {
        let Some(sa) = self.sa_of_session(id) else { return };
        if let Some(session) = self.sessions.get_mut(&sa)
            && session.cause == TerminateCause::UserRequest
        {
            session.cause = cause;
        }
        self.send_ike_command(now, ike::IkeCommand::Delete(sa));
    }

    /// Ends a session.
    pub(crate) fn end_session(&mut self, now: Instant, sa: IkeSaId, reason: EndReason) {
        self.drop_login(now, sa);
        let Some(session) = self.sessions.remove(&sa) else { return };
        let id = session.subscriber;
        let cause = terminate_cause(reason).filter(|_| session.cause == TerminateCause::UserRequest);
        let cause = cause.unwrap_or(session.cause);
        self.remove_lifetime_timers(sa, &session);
        if let Some(subscriber) = self.subscribers.session_mut(id) {
            subscriber.awaits_traffic = !session.leaving.is_empty();
        }
        self.closing.insert(sa, session);
        self.subscribers.end_session(now, id, cause);
        self.close_session(now, id);
    }

    /// Closes an ended session if its traffic is known or the wait for it is over.
    pub(crate) fn close_session(&mut self, now: Instant, id: u64) {
        let Some(mut subscriber) = self.subscribers.take_closed_session(id) else { return };
        let closed = self.closing.remove(&subscriber.access);
        for inbound in closed.iter().flat_map(|session| session.leaving.keys()) {
            self.owners.remove(inbound);
        }
        self.subscribers.stop_accounting(now, &mut subscriber);
    }

    pub(crate) fn sa_status(&self, now: Instant, sa: IkeSaId, session: &IkeSession) -> Option<IkeSaStatus> {
        let subscriber = self.subscribers.session(session.subscriber)?;
        let child = |(inbound, child): (&u32, &ChildSaRecord)| ChildSaStatus {
            name: child.name.clone(),
            inbound: *inbound,
            outbound: child.outbound,
            local: child.local.clone(),
            remote: child.remote.clone(),
            encapsulated: child.encapsulated,
            transport: child.transport,
            lasted: now.duration_since(child.since),
            usage: child.usage,
        };
        let traffic = subscriber.traffic();
        Some(IkeSaStatus {
            id: sa.0,
            connection: session.connection.clone(),
            identity: session.identity.to_string(),
            user: String::from_utf8_lossy(&subscriber.grant.user).into_owned(),
            session: subscriber.acct_session_id().into(),
            initiator: session.initiator,
            spis: session.spis,
            local: session.path.local,
            remote: session.path.remote,
            lasted: subscriber.duration(now),
            addresses: session.addresses.clone(),
            dns: session.dns.clone(),
            domains: session.domains.clone(),
            usage: SaUsage {
                received: TrafficVolume { packets: traffic.input_packets, octets: traffic.input_octets },
                sent: TrafficVolume { packets: traffic.output_packets, octets: traffic.output_octets },
                ..SaUsage::default()
            },
            children: session.children.iter().map(child).collect(),
        })
    }
}

/// Returns the first address of each family.
fn subscriber_addresses(all: &[IpAddr]) -> SubscriberAddresses {
    let mut addresses = SubscriberAddresses::default();
    for address in all.iter().rev() {
        match address {
            IpAddr::V4(v4) => addresses.ipv4 = Some(*v4),
            IpAddr::V6(v6) => addresses.ipv6 = Some((*v6, 128)),
        }
    }
    addresses
}

/// Returns a domain of the peer in printable form: other characters, such as line ends, become question marks.
fn printable_domain(octets: &[u8]) -> String {
    octets.iter().map(|octet| if octet.is_ascii_graphic() { char::from(*octet) } else { '?' }).collect()
}

fn child_record(child: &ChildSa, now: Instant) -> ChildSaRecord {
    let all = |of: &[usher_ike::payload::TrafficSelector]| of.iter().map(ToString::to_string).collect();
    ChildSaRecord {
        name: child.name.clone(),
        outbound: child.outbound,
        local: all(&child.local),
        remote: all(&child.remote),
        encapsulated: child.encapsulated,
        transport: child.mode == IpsecMode::Transport,
        since: now,
        usage: SaUsage::default(),
        expires: None,
    }
}

//! Sessions: the established IKE_SAs of a gateway.

use crate::login::{LoginGrant, calling_station_id};
use crate::service::{GatewayTimer, IkeGateway};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_access::pool::Lease;
use usher_access::{AccountingRecordKind, TerminateCause};
use usher_core::{DatagramPath, Duration, Instant, Machine};
use usher_esp::plane::SaUsage;
use usher_ike::Spi;
use usher_ike::code::ConfigurationType;
use usher_ike::machine::{ChildSa, EndReason, IkeEvent, IkeSaId, IpsecMode};
use usher_ike::payload::{ConfigurationAttribute, Identification};

/// The longest wait for the last traffic reports of removed CHILD_SAs.
const LAST_WORD: Duration = Duration::from_secs(5);

/// A CHILD_SA.
#[derive(Debug)]
pub(crate) struct ChildSaRecord {
    pub(crate) name: String,
    pub(crate) outbound: u32,
    pub(crate) local: Vec<String>,
    pub(crate) remote: Vec<String>,
    pub(crate) encapsulated: bool,
    pub(crate) transport: bool,
    pub(crate) since: Instant,
    /// Its traffic, by the last report.
    pub(crate) usage: SaUsage,
    /// The time when it expires unless it is replaced.
    pub(crate) expires: Option<Instant>,
}

/// An established IKE_SA.
#[derive(Debug)]
pub(crate) struct IkeSession {
    pub(crate) connection: String,
    pub(crate) identity: Identification,
    /// True if this side initiated it.
    pub(crate) initiator: bool,
    pub(crate) spis: (Spi, Spi),
    pub(crate) path: DatagramPath,
    pub(crate) since: Instant,
    pub(crate) addresses: Vec<IpAddr>,
    leases: Vec<Lease>,
    /// The name servers assigned to this side, and their domains.
    pub(crate) dns: Vec<IpAddr>,
    pub(crate) domains: Vec<String>,
    pub(crate) children: BTreeMap<u32, ChildSaRecord>,
    /// Removed CHILD_SAs that await their last traffic report.
    pub(crate) leaving: BTreeMap<u32, SaUsage>,
    /// The traffic of CHILD_SAs with a last report.
    pub(crate) usage: SaUsage,
    /// Acct-Session-Id.
    pub(crate) id: String,
    /// Number of accounting records so far.
    pub(crate) records: u32,
    /// The AAA server's authorization of the user.
    pub(crate) granted: LoginGrant,
    pub(crate) station: String,
    pub(crate) ends: Option<Instant>,
    pub(crate) interim: Option<(Duration, Instant)>,
    pub(crate) cause: TerminateCause,
    /// Its duration, once it has ended.
    pub(crate) lasted: Option<Duration>,
    /// The time of its reauthentication.
    pub(crate) reauth: Option<Instant>,
    /// The time when it expires unless it is replaced.
    pub(crate) expires: Option<Instant>,
    /// True if a command has ended it; it is then not renewed.
    pub(crate) is_ended_by_command: bool,
}

impl IkeSession {
    /// True if a name is its connection, its peer's identity, its user or its virtual address.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.connection == name
            || self.identity.to_string() == name
            || self.granted.user == name.as_bytes()
            || self.id == name
            || name.parse().is_ok_and(|address| self.addresses.contains(&address))
    }
}

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
                    if self.config.metered {
                        session.leaving.insert(*inbound, child.usage);
                    }
                    Some(child)
                });
                if let Some(at) = gone.as_ref().and_then(|child| child.expires) {
                    self.timers.remove(at, GatewayTimer::ExpireChild(*inbound));
                }
                if gone.is_some() && !self.config.metered {
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
        let login = self.logins.remove(&sa);
        // The session has the same peer address as its AAA request.
        let from = login.as_ref().map_or(path.remote, |login| login.remote);
        let (mut granted, leases, addresses) = match login {
            Some(login) => (login.granted, login.leases, login.addresses),
            None => Default::default(),
        };
        if granted.user.is_empty() {
            granted.user = remote.to_canonical().to_string().into_bytes();
        }
        self.next_session = self.next_session.wrapping_add(1);
        let id = usher_access::session_id(self.start, self.next_session);
        // RFC 2865, 5.27: the session ends at Session-Timeout.
        let ends = granted.lasts.map(|lasts| now + lasts);
        let accounting = self.config.aaa.as_ref().filter(|aaa| aaa.accounting && !initiator);
        let interim = accounting.and_then(|aaa| granted.interim.or(aaa.interim));
        let interim = interim.filter(|every| !every.is_zero()).map(|every| (every, now + every));
        let session = IkeSession {
            connection: connection.into(),
            identity: remote.clone(),
            initiator,
            spis,
            path,
            since: now,
            addresses,
            leases,
            dns: Vec::new(),
            domains: Vec::new(),
            children: BTreeMap::new(),
            leaving: BTreeMap::new(),
            usage: SaUsage::default(),
            id,
            records: 0,
            granted,
            station: calling_station_id(from),
            ends,
            interim,
            cause: TerminateCause::UserRequest,
            lasted: None,
            reauth: None,
            expires: None,
            is_ended_by_command: false,
        };
        if let Some(at) = session.ends {
            self.timers.insert(at, GatewayTimer::SessionEnd(sa));
        }
        if let Some((_, at)) = session.interim {
            self.timers.insert(at, GatewayTimer::Interim(sa));
        }
        self.sessions.insert(sa, session);
        self.schedule_renewal(now, sa);
        if !initiator {
            self.counters.sessions += 1;
        }
        self.account_session(now, sa, AccountingRecordKind::Start);
    }

    /// Continues a session under the id of a rekeyed IKE_SA.
    pub(crate) fn renumber_session(&mut self, now: Instant, old: IkeSaId, new: IkeSaId, spis: (Spi, Spi)) {
        let Some(mut session) = self.sessions.remove(&old) else { return };
        session.spis = spis;
        for inbound in session.children.keys().chain(session.leaving.keys()) {
            self.owners.insert(*inbound, new);
        }
        if let Some(at) = session.ends {
            self.timers.remove(at, GatewayTimer::SessionEnd(old));
            self.timers.insert(at, GatewayTimer::SessionEnd(new));
        }
        if let Some((_, at)) = session.interim {
            self.timers.remove(at, GatewayTimer::Interim(old));
            self.timers.insert(at, GatewayTimer::Interim(new));
        }
        self.remove_lifetime_timers(old, &session);
        self.sessions.insert(new, session);
        self.schedule_renewal(now, new);
    }

    /// Ends a session.
    pub(crate) fn end_session(&mut self, now: Instant, sa: IkeSaId, reason: EndReason) {
        self.drop_login(now, sa);
        let Some(session) = self.sessions.get_mut(&sa) else { return };
        if let Some(cause) = terminate_cause(reason).filter(|_| session.cause == TerminateCause::UserRequest)
        {
            session.cause = cause;
        }
        let Some(mut session) = self.sessions.remove(&sa) else { return };
        if let Some(at) = session.ends {
            self.timers.remove(at, GatewayTimer::SessionEnd(sa));
        }
        if let Some((_, at)) = session.interim {
            self.timers.remove(at, GatewayTimer::Interim(sa));
        }
        self.remove_lifetime_timers(sa, &session);
        for lease in core::mem::take(&mut session.leases) {
            self.release_lease(lease);
        }
        session.lasted = Some(now.duration_since(session.since));
        let waits = !session.leaving.is_empty();
        self.closing.insert(sa, session);
        if waits {
            self.timers.insert(now + LAST_WORD, GatewayTimer::Close(sa));
        } else {
            self.close_session(now, sa);
        }
    }

    /// Closes an ended session: its traffic is known, or the wait for it is over.
    pub(crate) fn close_session(&mut self, now: Instant, sa: IkeSaId) {
        let Some(session) = self.closing.remove(&sa) else { return };
        for inbound in session.leaving.keys() {
            self.owners.remove(inbound);
        }
        let token = session.granted.token;
        let cause = session.cause;
        self.send_record(now, session, AccountingRecordKind::Stop);
        if let (Some(token), Some(aaa)) = (token, &mut self.aaa) {
            // The session ends here whatever the server replies.
            let _ = aaa.handle_command(now, usher_access::AccessClientCommand::Terminate { token, cause });
        }
    }
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

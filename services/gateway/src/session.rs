//! IKE_SAs that are established, as a gateway knows them.

use crate::login::{LoginGrant, calling_station_id};
use crate::service::{GatewayTimer, IkeGateway};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_access::pool::Lease;
use usher_access::{RecordKind, TerminateCause};
use usher_core::{DatagramPath, Duration, Instant, Machine};
use usher_esp::plane::SaUsage;
use usher_ike::Spi;
use usher_ike::code::ConfigurationType;
use usher_ike::machine::{ChildSa, EndReason, IkeEvent, IpsecMode, SaId};
use usher_ike::payload::{ConfigurationAttribute, Identification};

/// How long the host may take to say what CHILD_SAs that are no more have carried.
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
    /// What it has carried, as far as the host has told.
    pub(crate) usage: SaUsage,
    /// When it ends, unless it is replaced before.
    pub(crate) expires: Option<Instant>,
}

/// An IKE_SA that is established.
#[derive(Debug)]
pub(crate) struct IkeSession {
    pub(crate) connection: String,
    pub(crate) identity: Identification,
    /// This side began it.
    pub(crate) initiator: bool,
    pub(crate) spis: (Spi, Spi),
    pub(crate) path: DatagramPath,
    pub(crate) since: Instant,
    pub(crate) addresses: Vec<IpAddr>,
    leases: Vec<Lease>,
    /// Name servers that this side was told of, and the domains that they are for.
    pub(crate) dns: Vec<IpAddr>,
    pub(crate) domains: Vec<String>,
    pub(crate) children: BTreeMap<u32, ChildSaRecord>,
    /// CHILD_SAs that are no more, of which the host has still to say what they have carried.
    pub(crate) leaving: BTreeMap<u32, SaUsage>,
    /// What those have carried of which it has said it.
    pub(crate) usage: SaUsage,
    /// Acct-Session-Id.
    pub(crate) id: String,
    /// Records of accounting so far.
    pub(crate) records: u32,
    /// What the AAA server has said of the user.
    pub(crate) granted: LoginGrant,
    pub(crate) station: String,
    pub(crate) ends: Option<Instant>,
    pub(crate) interim: Option<(Duration, Instant)>,
    pub(crate) cause: TerminateCause,
    /// How long it has lasted, once it has ended.
    pub(crate) lasted: Option<Duration>,
    /// When this side proves anew who it is.
    pub(crate) reauth: Option<Instant>,
    /// When it ends, unless it is replaced before.
    pub(crate) expires: Option<Instant>,
    /// A command has ended it: no time of its own begins it anew.
    pub(crate) is_ended_by_command: bool,
}

impl IkeSession {
    /// Whether a name is its connection's, its other side's, its user's, or an address that it was given.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.connection == name
            || self.identity.to_string() == name
            || self.granted.user == name.as_bytes()
            || self.id == name
            || name.parse().is_ok_and(|address| self.addresses.contains(&address))
    }
}

/// Why a session ended, as accounting says it (RFC 2866 §5.10).
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
    /// What the endpoint says of an IKE_SA that is established, or is from now on.
    pub(crate) fn track_ike_event(&mut self, now: Instant, event: &IkeEvent) {
        match event {
            IkeEvent::Established { sa, connection, remote, spis, path } => {
                self.open_session(now, *sa, (connection, remote), *spis, *path);
            }
            IkeEvent::Install { sa, child } => {
                let expires = self.child_expires(now, child);
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
                self.mark_child_done(now, *sa, &child.name);
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
        sa: SaId,
        (connection, remote): (&str, &Identification),
        spis: (Spi, Spi),
        path: DatagramPath,
    ) {
        let initiator = self.is_begun(sa);
        let login = self.logins.remove(&sa);
        // As the AAA server was asked.
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
        self.account_session(now, sa, RecordKind::Start);
    }

    /// An IKE_SA has taken the place of another: the session is the same.
    pub(crate) fn renumber_session(&mut self, now: Instant, old: SaId, new: SaId, spis: (Spi, Spi)) {
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

    /// An IKE_SA has ended.
    pub(crate) fn end_session(&mut self, now: Instant, sa: SaId, reason: EndReason) {
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

    /// What a session that has ended has carried is known, or will not be.
    pub(crate) fn close_session(&mut self, now: Instant, sa: SaId) {
        let Some(session) = self.closing.remove(&sa) else { return };
        for inbound in session.leaving.keys() {
            self.owners.remove(inbound);
        }
        let token = session.granted.token;
        let cause = session.cause;
        self.send_record(now, session, RecordKind::Stop);
        if let (Some(token), Some(aaa)) = (token, &mut self.aaa) {
            // It ends whatever the server says to that.
            let _ = aaa.handle_command(now, usher_access::AccessClientCommand::Terminate { token, cause });
        }
    }
}

/// A domain as the other side has written it: what no domain name has, such as a line's end, is shown as a question mark.
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

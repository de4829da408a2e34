//! IKE_SAs that are established, as a gateway knows them.

use crate::login::{Granted, station};
use crate::service::{Gateway, Timer};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_access::pool::Lease;
use usher_access::{RecordKind, TerminateCause};
use usher_core::{Duration, Instant, Machine, Path};
use usher_ike::Spi;
use usher_ike::machine::{ChildSa, EndReason, Event, SaId};
use usher_ike::payload::{ConfigurationAttribute, Identification};

/// A CHILD_SA.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) name: String,
    pub(crate) outbound: u32,
    pub(crate) local: Vec<String>,
    pub(crate) remote: Vec<String>,
    pub(crate) encapsulated: bool,
    pub(crate) since: Instant,
}

/// An IKE_SA that is established.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: String,
    pub(crate) identity: Identification,
    /// This side began it.
    pub(crate) initiator: bool,
    pub(crate) spis: (Spi, Spi),
    pub(crate) path: Path,
    pub(crate) since: Instant,
    pub(crate) addresses: Vec<IpAddr>,
    leases: Vec<Lease>,
    pub(crate) children: BTreeMap<u32, Child>,
    /// Acct-Session-Id.
    pub(crate) id: String,
    /// Records of accounting so far.
    pub(crate) records: u32,
    /// What the AAA server has said of the user.
    pub(crate) granted: Granted,
    pub(crate) station: String,
    pub(crate) ends: Option<Instant>,
    pub(crate) interim: Option<(Duration, Instant)>,
    pub(crate) cause: TerminateCause,
}

impl Session {
    /// Whether a name is its connection's, its other side's, its user's, or an address that it was given.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.connection == name
            || self.identity.to_string() == name
            || self.granted.user == name.as_bytes()
            || name.parse().is_ok_and(|address| self.addresses.contains(&address))
    }
}

/// Why a session ended, as accounting says it (RFC 2866 §5.10).
const fn cause(reason: EndReason) -> Option<TerminateCause> {
    match reason {
        EndReason::DeletedByPeer | EndReason::Replaced => Some(TerminateCause::UserRequest),
        EndReason::Unreachable | EndReason::HalfOpen => Some(TerminateCause::LostCarrier),
        EndReason::Protocol => Some(TerminateCause::UserError),
        EndReason::Deleted
        | EndReason::Rekeyed
        | EndReason::NoProposal
        | EndReason::AuthenticationFailed
        | EndReason::Refused
        | EndReason::Helper
        | EndReason::Unsupported => None,
    }
}

impl Gateway {
    /// What the endpoint says of an IKE_SA that is established, or is from now on.
    pub(crate) fn follow(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Established { sa, connection, remote, spis, path } => {
                self.established(now, *sa, (connection, remote), *spis, *path);
            }
            Event::Install { sa, child } => {
                if let Some(session) = self.sessions.get_mut(sa) {
                    session.children.insert(child.inbound, shown(child, now));
                }
            }
            Event::Remove { sa, inbound, .. } => {
                if let Some(session) = self.sessions.get_mut(sa) {
                    session.children.remove(inbound);
                }
            }
            Event::Configured { sa, attributes } => {
                let addresses = attributes.iter().filter_map(ConfigurationAttribute::internal_address);
                if let Some(session) = self.sessions.get_mut(sa) {
                    session.addresses = addresses.collect();
                }
            }
            Event::Moved { sa, path, encapsulated } => {
                if let Some(session) = self.sessions.get_mut(sa) {
                    session.path = *path;
                    session.children.values_mut().for_each(|child| child.encapsulated = *encapsulated);
                }
            }
            _ => {}
        }
    }

    fn established(
        &mut self,
        now: Instant,
        sa: SaId,
        (connection, remote): (&str, &Identification),
        spis: (Spi, Spi),
        path: Path,
    ) {
        let initiator = self.is_begun(sa);
        let login = self.logins.remove(&sa);
        let (mut granted, leases, addresses) = match login {
            Some(login) => (login.granted, login.leases, login.addresses),
            None => Default::default(),
        };
        if granted.user.is_empty() {
            granted.user = remote.to_string().into_bytes();
        }
        self.next_session = self.next_session.wrapping_add(1);
        let id = alloc::format!("{:08x}{:08x}", self.start, self.next_session);
        let ends = granted.lasts.map(|lasts| now + lasts);
        let accounting = self.config.aaa.as_ref().filter(|aaa| aaa.accounting && !initiator);
        let interim = accounting.and_then(|aaa| granted.interim.or(aaa.interim));
        let interim = interim.filter(|every| !every.is_zero()).map(|every| (every, now + every));
        let session = Session {
            connection: connection.into(),
            identity: remote.clone(),
            initiator,
            spis,
            path,
            since: now,
            addresses,
            leases,
            children: BTreeMap::new(),
            id,
            records: 0,
            granted,
            station: station(path.remote),
            ends,
            interim,
            cause: TerminateCause::UserRequest,
        };
        if let Some(at) = session.ends {
            self.timers.insert(at, Timer::SessionEnd(sa));
        }
        if let Some((_, at)) = session.interim {
            self.timers.insert(at, Timer::Interim(sa));
        }
        self.sessions.insert(sa, session);
        if !initiator {
            self.counters.sessions += 1;
        }
        self.account(now, sa, RecordKind::Start);
    }

    /// An IKE_SA has taken the place of another: the session is the same.
    pub(crate) fn renumber(&mut self, old: SaId, new: SaId, spis: (Spi, Spi)) {
        let Some(mut session) = self.sessions.remove(&old) else { return };
        session.spis = spis;
        if let Some(at) = session.ends {
            self.timers.remove(at, Timer::SessionEnd(old));
            self.timers.insert(at, Timer::SessionEnd(new));
        }
        if let Some((_, at)) = session.interim {
            self.timers.remove(at, Timer::Interim(old));
            self.timers.insert(at, Timer::Interim(new));
        }
        self.sessions.insert(new, session);
    }

    /// An IKE_SA has ended.
    pub(crate) fn over(&mut self, now: Instant, sa: SaId, reason: EndReason) {
        self.drop_login(now, sa);
        let Some(session) = self.sessions.get_mut(&sa) else { return };
        if let Some(cause) = cause(reason).filter(|_| session.cause == TerminateCause::UserRequest) {
            session.cause = cause;
        }
        self.account(now, sa, RecordKind::Stop);
        let Some(session) = self.sessions.remove(&sa) else { return };
        if let Some(at) = session.ends {
            self.timers.remove(at, Timer::SessionEnd(sa));
        }
        if let Some((_, at)) = session.interim {
            self.timers.remove(at, Timer::Interim(sa));
        }
        for lease in session.leases {
            self.pools.release(lease);
        }
        if let (Some(token), Some(aaa)) = (session.granted.token, &mut self.aaa) {
            let command = usher_access::Command::Terminate { token, cause: session.cause };
            // It ends whatever the server says to that.
            let _ = aaa.command(now, command);
        }
    }
}

fn shown(child: &ChildSa, now: Instant) -> Child {
    let all = |of: &[usher_ike::payload::TrafficSelector]| of.iter().map(ToString::to_string).collect();
    Child {
        name: child.name.clone(),
        outbound: child.outbound,
        local: all(&child.local),
        remote: all(&child.remote),
        encapsulated: child.encapsulated,
        since: now,
    }
}

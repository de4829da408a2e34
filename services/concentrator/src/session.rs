//! Sessions of users: what they may do, what they have carried, and their end.

use crate::addresses::assigned_prefixes;
use crate::grace::WhenAway;
use crate::login::{UserAuthorization, accept_reply};
use crate::service::{
    AccessConcentrator, AccessConcentratorEvent, ConcentratorTimer, LoginFailure, ServiceJob, SessionSelector,
};
use crate::track::{AccountingStop, SessionEnd, SessionLogRecord, SessionStart};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_access::pool::Lease;
use usher_access::{RecordKind, TerminateCause};
use usher_core::{Duration, Instant, JobRequest, Machine, PortId};
use usher_ppp::concentrator::{
    AuthenticationReply, ConcentratorCommand, ExcessSessionPolicy, SessionId, SubscriberInfo,
};
use usher_ppp::pppoe::MacAddress;
use usher_ppp::{AddressAssignment, AddressFamily, EndReason, LinkNetwork};

/// How long the host may take to say what a session that is no more has carried.
const LAST_WORD: Duration = Duration::from_secs(5);
/// The name of the rates of those for whom no others are named.
const DEFAULT_RATE: &str = "default";

/// What nobody may exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// Sessions at a time of one user; zero: as many as it likes.
    pub sessions_per_user: usize,
    /// What becomes of one more.
    pub excess: ExcessSessionPolicy,
    /// How long a session may last where the AAA server does not say; `None`: without end.
    pub session_timeout: Option<Duration>,
    /// How long it may carry nothing where the AAA server does not say; `None`: without end.
    pub idle_timeout: Option<Duration>,
    /// Whether the largest segment of TCP that hosts ask for is made to fit their sessions.
    pub clamp_mss: bool,
}

/// Rates by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateProfile {
    /// What AAA servers call it by Filter-Id.
    pub name: String,
    /// From hosts, bit/s; `None`: as fast as it goes.
    pub up: Option<u64>,
    /// To hosts, bit/s.
    pub down: Option<u64>,
}

/// What a session has carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionUsage {
    /// Octets of packets from the host.
    pub octets_in: u64,
    /// Octets of packets to the host.
    pub octets_out: u64,
    /// Packets from the host.
    pub packets_in: u64,
    /// Packets to the host.
    pub packets_out: u64,
    /// Packets of the host from addresses that are not its own: dropped.
    pub spoofed: u64,
    /// Packets beyond its rate: dropped.
    pub limited: u64,
}

impl SessionUsage {
    fn zip_with(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            octets_in: with(self.octets_in, other.octets_in),
            octets_out: with(self.octets_out, other.octets_out),
            packets_in: with(self.packets_in, other.packets_in),
            packets_out: with(self.packets_out, other.packets_out),
            spoofed: with(self.spoofed, other.spoofed),
            limited: with(self.limited, other.limited),
        }
    }
}

/// What a data plane has to know of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionEntry {
    /// The session's number at this concentrator, which is never given again.
    pub id: u64,
    /// SESSION_ID.
    pub number: u16,
    /// At which port.
    pub port: PortId,
    /// The host's address there.
    pub peer: MacAddress,
    /// Octets of the longest packet.
    pub mtu: u16,
    /// The host's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// This side's.
    pub gateway: Option<Ipv4Addr>,
    /// Prefixes of which packets are the host's.
    pub ipv6: Vec<(Ipv6Addr, u8)>,
    /// The host's interface identifier: its link-local address.
    pub link_local: Option<[u8; 8]>,
    /// From the host, bit/s.
    pub rate_up: Option<u64>,
    /// To the host, bit/s.
    pub rate_down: Option<u64>,
    /// The largest segment of TCP is made to fit.
    pub clamp_mss: bool,
}

/// How far the log is with a session.
#[derive(Clone, PartialEq, Debug)]
enum LogState {
    /// It is being told; then the host is let in with this.
    Writing(Option<AuthenticationReply>),
    /// It has been told, and may have failed, or there is no log.
    Done,
}

/// A session of a user.
#[derive(Debug)]
pub(crate) struct UserSession {
    pub(crate) wire: SessionId,
    pub(crate) subscriber: SubscriberInfo,
    pub(crate) granted: UserAuthorization,
    pub(crate) assignment: AddressAssignment,
    pub(crate) leases: Vec<Lease>,
    logged: LogState,
    networks: BTreeMap<AddressFamily, LinkNetwork>,
    pub(crate) mtu: u16,
    installed: bool,
    /// The AAA server has been told of its begin.
    pub(crate) has_sent_start: bool,
    /// Acct-Session-Id.
    pub(crate) acct: String,
    pub(crate) since: Instant,
    pub(crate) usage: SessionUsage,
    /// Of it, what it had carried when it was installed last: a data plane counts from there.
    before: SessionUsage,
    /// Records of accounting so far.
    pub(crate) records: u32,
    pub(crate) ends: Option<Instant>,
    pub(crate) interim: Option<(Duration, Instant)>,
    pub(crate) idle: Option<Duration>,
    /// When it last carried something.
    pub(crate) busy: Instant,
    pub(crate) rates: (Option<u64>, Option<u64>),
    pub(crate) cause: Option<TerminateCause>,
    /// When it ended, and why.
    ending: Option<(Instant, String)>,
    /// What it has carried is known, or not waited for.
    pub(crate) silent: bool,
}

impl UserSession {
    pub(crate) fn duration(&self, now: Instant) -> Duration {
        self.ending.as_ref().map_or(now, |(at, _)| *at).duration_since(self.since)
    }
    pub(crate) fn ipv4_address(&self) -> Option<Ipv4Addr> {
        self.assignment.ipv4.as_ref().map(|ipv4| ipv4.remote)
    }
    pub(crate) fn ipv6_prefixes(&self) -> Vec<(Ipv6Addr, u8)> {
        assigned_prefixes(&self.assignment).map(|prefix| (prefix.address(), prefix.prefix_length())).collect()
    }
    fn to_entry(&self, id: u64, clamp_mss: bool) -> SessionEntry {
        let (mut ipv4, mut gateway, mut ipv6, mut link_local) = (None, None, Vec::new(), None);
        for network in self.networks.values() {
            match network {
                LinkNetwork::Ipv4 { local, remote, .. } => (ipv4, gateway) = (Some(*remote), Some(*local)),
                LinkNetwork::Ipv6 { remote, prefixes, .. } => {
                    ipv6 = prefixes.iter().map(|prefix| (prefix.address(), prefix.prefix_length())).collect();
                    link_local = remote.octets().last_chunk::<8>().copied();
                }
            }
        }
        SessionEntry {
            id,
            number: self.subscriber.number,
            port: self.subscriber.port,
            peer: self.subscriber.address,
            mtu: self.mtu,
            ipv4,
            gateway,
            ipv6,
            link_local,
            rate_up: self.rates.0,
            rate_down: self.rates.1,
            clamp_mss,
        }
    }
    /// Whether a name is its user's, its station's, its Acct-Session-Id, or an address that it has.
    fn is_called(&self, name: &str) -> bool {
        let has = |address: IpAddr| match address {
            IpAddr::V4(v4) => self.ipv4_address() == Some(v4),
            IpAddr::V6(v6) => self.ipv6_prefixes().iter().any(|(prefix, bits)| {
                let shift = 128 - u32::from(*bits);
                (prefix.to_bits() ^ v6.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }),
        };
        self.granted.user == name.as_bytes()
            || self.acct == name
            || self.subscriber.address.to_string().eq_ignore_ascii_case(name)
            || name.parse().is_ok_and(has)
    }
}

/// Octets as text; what is no UTF-8 as `\xNN`, so that two that differ are never shown alike.
pub(crate) fn display_octets(octets: &[u8]) -> String {
    core::str::from_utf8(octets).map_or_else(|_| octets.escape_ascii().to_string(), ToString::to_string)
}

/// Where a host is.
const fn station_key(of: &SubscriberInfo) -> (PortId, MacAddress) {
    (of.port, of.address)
}

/// What is a session's alone, behind the name of one whose user nobody has named.
pub(crate) fn session_name(acct: &str) -> String {
    alloc::format!("session {acct}")
}

/// Why a session ended, as accounting says it (RFC 2866 §5.10).
pub(crate) const fn terminate_cause(reason: EndReason) -> TerminateCause {
    match reason {
        EndReason::Closed => TerminateCause::NasRequest,
        EndReason::PeerClosed | EndReason::Padt | EndReason::Replaced => TerminateCause::UserRequest,
        EndReason::Unreachable | EndReason::Looped => TerminateCause::LostCarrier,
        EndReason::NotConverging
        | EndReason::SetupTimeout
        | EndReason::NoAuthentication
        | EndReason::AuthenticationNotRequested
        | EndReason::AuthenticationFailed
        | EndReason::Refused
        | EndReason::TooLong
        | EndReason::Impostor
        | EndReason::NoNetwork
        | EndReason::Protocol
        | EndReason::Renegotiating
        | EndReason::NoConcentrator => TerminateCause::UserError,
        EndReason::CrowdedOut | EndReason::Unjudged => TerminateCause::NasError,
    }
}

impl AccessConcentrator {
    /// The rates of a user: those that the AAA server says, those that it names, or everybody's.
    pub(crate) fn select_rates(
        &self,
        filters: &[String],
        said: (Option<u64>, Option<u64>),
    ) -> (Option<u64>, Option<u64>) {
        let named = |name: &str| self.config.rates.iter().find(|rate| rate.name == name);
        let profile = filters.iter().find_map(|filter| named(filter)).or_else(|| named(DEFAULT_RATE));
        let (up, down) = profile.map_or((None, None), |rate| (rate.up, rate.down));
        (said.0.or(up), said.1.or(down))
    }

    /// Begins a session of a user: takes its addresses, and has it logged.
    pub(crate) fn open_session(
        &mut self,
        now: Instant,
        wire: SessionId,
        mut granted: UserAuthorization,
        message: Vec<u8>,
    ) -> Result<(), LoginFailure> {
        let Some(subscriber) = self.attached.get(&wire).cloned() else { return Ok(()) };
        self.next_session += 1;
        let id = self.next_session;
        let acct = usher_access::session_id(self.start, id as u32);
        if granted.nameless {
            granted.user = usher_access::fallback_user_name(&granted.login, &session_name(&acct));
        }
        self.enforce_session_limit(now, &subscriber, &granted.user)?;
        self.take_back(now, &subscriber, &granted);
        let (assignment, leases) = self.assign_addresses(&granted)?;
        self.hold_addresses(id, &assignment);
        let limits = self.config.limits;
        let accounting = self.config.aaa.as_ref().filter(|aaa| aaa.accounting);
        let interim = accounting.and_then(|aaa| granted.interim.or(aaa.interim));
        let interim = interim.filter(|every| !every.is_zero()).map(|every| (every, now + every));
        let session = UserSession {
            wire,
            rates: self.select_rates(&granted.filters, granted.bandwidth),
            ends: granted.lasts.or(limits.session_timeout).map(|lasts| now + lasts),
            idle: granted.idle.or(limits.idle_timeout).filter(|_| self.config.metered),
            interim,
            subscriber: subscriber.clone(),
            leases,
            logged: LogState::Done,
            networks: BTreeMap::new(),
            mtu: 0,
            installed: false,
            has_sent_start: false,
            acct,
            since: now,
            usage: SessionUsage::default(),
            before: SessionUsage::default(),
            records: 0,
            busy: now,
            cause: None,
            ending: None,
            silent: true,
            assignment: assignment.clone(),
            granted,
        };
        if let Some(at) = session.ends {
            self.timers.insert(at, ConcentratorTimer::SessionEnd(id));
        }
        if let Some((_, at)) = session.interim {
            self.timers.insert(at, ConcentratorTimer::Interim(id));
        }
        if let Some(idle) = session.idle {
            self.timers.insert(now + idle, ConcentratorTimer::Idle(id));
        }
        self.current.insert(wire, id);
        self.numbers.insert(subscriber.number, id);
        self.users.entry(session.granted.user.clone()).or_default().insert(id);
        let answer = accept_reply(message, assignment);
        let begin = self.config.logged.then(|| self.begin_record(now, &session));
        self.sessions.insert(id, session);
        match begin {
            Some(begin) => {
                let token = self.allocate_token();
                self.writing.insert(token, id);
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.logged = LogState::Writing(Some(answer));
                }
                let what = ServiceJob::Log(Box::new(SessionLogRecord::session_started(begin)));
                self.outputs.push_job(JobRequest::new(token, what));
            }
            None => self.let_in(now, id, answer),
        }
        Ok(())
    }

    /// Whether a user may have one session more; its oldest may have to end for that.
    fn enforce_session_limit(
        &mut self,
        now: Instant,
        subscriber: &SubscriberInfo,
        user: &[u8],
    ) -> Result<(), LoginFailure> {
        let limits = self.config.limits;
        while let Some(ids) = self.users.get(user)
            && limits.sessions_per_user > 0
            && ids.len() >= limits.sessions_per_user
        {
            let own = |id: &&u64| {
                self.sessions
                    .get(*id)
                    .is_some_and(|old| station_key(&old.subscriber) == station_key(subscriber))
            };
            // A host that has lost its power comes back before its session is missed.
            match (limits.excess, ids.first().copied(), ids.iter().find(own).copied()) {
                (ExcessSessionPolicy::Replace, Some(oldest), _) => {
                    self.counters.users_replaced += 1;
                    self.terminate_session(now, oldest, TerminateCause::UserRequest, "replaced");
                }
                (ExcessSessionPolicy::Refuse, _, Some(own)) => {
                    self.counters.hosts_replaced += 1;
                    self.terminate_session(now, own, TerminateCause::LostCarrier, "replaced");
                }
                _ => return Err(LoginFailure::TooManySessions),
            }
        }
        Ok(())
    }

    /// A host that has lost its power comes back before its session is missed: what the AAA server gives it is its own already.
    fn take_back(&mut self, now: Instant, subscriber: &SubscriberInfo, granted: &UserAuthorization) {
        for id in self.conflicting_sessions(granted) {
            if self
                .sessions
                .get(&id)
                .is_some_and(|old| station_key(&old.subscriber) == station_key(subscriber))
            {
                self.counters.hosts_replaced += 1;
                self.terminate_session(now, id, TerminateCause::LostCarrier, "replaced");
            }
        }
    }

    fn begin_record(&self, now: Instant, session: &UserSession) -> SessionStart {
        let place = self.nas_port_info(&session.subscriber);
        SessionStart {
            started_at: now.to_wall_time(self.epoch),
            session: session.acct.clone(),
            user: display_octets(&session.granted.user),
            station: session.subscriber.address.to_string(),
            port: place.port_name().to_string(),
            number: session.subscriber.number,
            circuit: session.subscriber.circuit_id.as_deref().map(display_octets),
            ipv4: session.ipv4_address(),
            block: session.ipv4_address().and_then(|inner| self.config.blocks.as_ref()?.block_of_host(inner)),
            ipv6: session.ipv6_prefixes(),
            classes: session.granted.classes.clone(),
        }
    }

    /// The log has kept a session, or not.
    pub(crate) fn handle_log_result(&mut self, now: Instant, token: u64, kept: bool) {
        let Some(id) = self.writing.remove(&token) else { return };
        if let Some(session) = self.closing.get_mut(&id) {
            session.logged = LogState::Done;
            return self.close_session(now, id);
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let LogState::Writing(answer) = core::mem::replace(&mut session.logged, LogState::Done) else {
            return;
        };
        match answer.filter(|_| kept) {
            Some(answer) => self.let_in(now, id, answer),
            None => {
                let (wire, subscriber) = (session.wire, session.subscriber.clone());
                let user = session.granted.user.clone();
                self.counters.not_logged += 1;
                self.finish_session(now, id, TerminateCause::NasError, "not-logged");
                let why = LoginFailure::NotLogged;
                self.outputs.push_event(AccessConcentratorEvent::LoginFailed { subscriber, user, why });
                self.send_ppp_command(
                    now,
                    ConcentratorCommand::Answer { session: wire, answer: AuthenticationReply::Unanswered },
                );
            }
        }
    }

    fn let_in(&mut self, now: Instant, id: u64, answer: AuthenticationReply) {
        let Some(session) = self.sessions.get(&id) else { return };
        let wire = session.wire;
        self.counters.logins_accepted += 1;
        let status = Box::new(self.session_status(now, id, session));
        self.outputs.push_event(AccessConcentratorEvent::LoginAccepted(status));
        self.send_ppp_command(now, ConcentratorCommand::Answer { session: wire, answer });
    }

    /// A network of a session is open.
    pub(crate) fn install_network(&mut self, now: Instant, wire: SessionId, mtu: u16, network: LinkNetwork) {
        let Some(id) = self.current.get(&wire).copied() else { return };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.networks.insert(network.family(), network);
        session.mtu = mtu;
        self.update_data_plane(id);
        let begins = self
            .sessions
            .get_mut(&id)
            .is_some_and(|session| !core::mem::replace(&mut session.has_sent_start, true));
        if begins {
            self.account_session(now, id, RecordKind::Start);
        }
    }

    /// Has the data plane told what it has to know of a session.
    pub(crate) fn update_data_plane(&mut self, id: u64) {
        let clamp = self.config.limits.clamp_mss;
        let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.networks.is_empty()) else {
            return;
        };
        session.installed = true;
        let entry = Box::new(session.to_entry(id, clamp));
        self.outputs.push_event(AccessConcentratorEvent::Install(entry));
    }

    /// A network of a session is closed.
    pub(crate) fn remove_network(&mut self, wire: SessionId, family: AddressFamily) {
        let Some(id) = self.current.get(&wire).copied() else { return };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.networks.remove(&family);
        if session.networks.is_empty() {
            self.take_away(id);
        } else {
            self.update_data_plane(id);
        }
    }

    fn take_away(&mut self, id: u64) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.installed) else { return };
        session.installed = false;
        session.networks.clear();
        session.silent = !self.config.metered;
        let number = session.subscriber.number;
        self.outputs.push_event(AccessConcentratorEvent::Remove { id, number });
    }

    /// Longer packets than ordinary ones have passed.
    pub(crate) fn raise_mtu(&mut self, wire: SessionId, mtu: u16) {
        let Some(id) = self.current.get(&wire).copied() else { return };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.mtu = mtu;
        }
        self.update_data_plane(id);
    }

    fn session_mut(&mut self, id: u64) -> Option<&mut UserSession> {
        match self.sessions.get_mut(&id) {
            Some(session) => Some(session),
            None => self.closing.get_mut(&id),
        }
    }

    /// What a session has carried in all since it was installed.
    pub(crate) fn record_usage(&mut self, now: Instant, id: u64, usage: &SessionUsage) {
        let Some(session) = self.session_mut(id) else { return };
        let usage = session.before.zip_with(*usage, u64::saturating_add);
        let new = usage.zip_with(core::mem::replace(&mut session.usage, usage), u64::saturating_sub);
        if new.packets_in > 0 || new.packets_out > 0 {
            session.busy = now;
        }
        let counters = &mut self.counters;
        counters.octets_in += new.octets_in;
        counters.octets_out += new.octets_out;
        counters.packets_in += new.packets_in;
        counters.packets_out += new.packets_out;
        counters.spoofed += new.spoofed;
        counters.limited += new.limited;
    }

    /// A session is no more in the data plane, and has carried so much.
    pub(crate) fn handle_removed(&mut self, now: Instant, id: u64, usage: Option<&SessionUsage>) {
        if let Some(usage) = usage {
            self.record_usage(now, id, usage);
        }
        let Some(session) = self.session_mut(id) else { return };
        session.before = session.usage;
        session.silent = true;
        self.close_session(now, id);
    }

    /// Packets of a session cannot be let through.
    pub(crate) fn not_installed(&mut self, now: Instant, id: u64) {
        if self.sessions.contains_key(&id) {
            self.counters.not_installed += 1;
            self.terminate_session(now, id, TerminateCause::NasError, "not-installed");
        }
    }

    pub(crate) fn session_end(&mut self, now: Instant, id: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.ends = None;
        if let (WhenAway::Grace(lasts), Some(since)) = (self.config.when_away, self.grace.unavailable_since())
            && since + lasts > now
        {
            // Looked at again when a server answers, and at the end of the grace.
            session.ends = Some(since + lasts);
            self.timers.insert(since + lasts, ConcentratorTimer::SessionEnd(id));
            self.counters.sessions_in_grace += 1;
            session.cause = Some(TerminateCause::SessionTimeout);
            return;
        }
        self.counters.sessions_timed_out += 1;
        self.terminate_session(now, id, TerminateCause::SessionTimeout, "session-timeout");
    }

    /// A server answers again: sessions whose time was over end.
    pub(crate) fn end_overdue_sessions(&mut self, now: Instant) {
        if !matches!(self.config.when_away, WhenAway::Grace(_)) {
            return;
        }
        let over = |(id, session): (&u64, &UserSession)| {
            (session.cause == Some(TerminateCause::SessionTimeout)).then_some((*id, session.ends))
        };
        for (id, ends) in self.sessions.iter().filter_map(over).collect::<Vec<_>>() {
            if let Some(at) = ends {
                self.timers.remove(at, ConcentratorTimer::SessionEnd(id));
            }
            self.timers.insert(now, ConcentratorTimer::SessionEnd(id));
        }
    }

    pub(crate) fn check_idle(&mut self, now: Instant, id: u64) {
        let Some(session) = self.sessions.get(&id) else { return };
        let Some(idle) = session.idle else { return };
        let due = session.busy + idle;
        if due > now {
            self.timers.insert(due, ConcentratorTimer::Idle(id));
            return;
        }
        self.counters.sessions_idle += 1;
        self.terminate_session(now, id, TerminateCause::IdleTimeout, "idle-timeout");
    }

    /// This side ends a session.
    pub(crate) fn terminate_session(&mut self, now: Instant, id: u64, cause: TerminateCause, reason: &str) {
        let Some(session) = self.sessions.get(&id) else { return };
        let wire = session.wire;
        self.finish_session(now, id, cause, reason);
        self.send_ppp_command(now, ConcentratorCommand::Close(wire));
    }

    /// Ends the sessions that are meant; gives how many.
    pub(crate) fn close_all(&mut self, now: Instant, which: &SessionSelector) -> usize {
        let meant = |(id, session): (&u64, &UserSession)| match which {
            SessionSelector::All => Some(*id),
            SessionSelector::Session(n) => (id == n).then_some(*id),
            SessionSelector::Named(name) => session.is_called(name).then_some(*id),
        };
        let meant: Vec<u64> = self.sessions.iter().filter_map(meant).collect();
        for id in &meant {
            self.terminate_session(now, *id, TerminateCause::AdminReset, "disconnected");
        }
        meant.len()
    }

    /// A session has ended: nothing passes, and its addresses are free.
    pub(crate) fn finish_session(&mut self, now: Instant, id: u64, cause: TerminateCause, reason: &str) {
        self.take_away(id);
        let Some(mut session) = self.sessions.remove(&id) else { return };
        if let Some(at) = session.ends {
            self.timers.remove(at, ConcentratorTimer::SessionEnd(id));
        }
        if let Some((_, at)) = session.interim {
            self.timers.remove(at, ConcentratorTimer::Interim(id));
        }
        if let Some(idle) = session.idle {
            self.timers.remove(session.busy + idle, ConcentratorTimer::Idle(id));
        }
        self.current.remove(&session.wire);
        if self.numbers.get(&session.subscriber.number) == Some(&id) {
            self.numbers.remove(&session.subscriber.number);
        }
        if let Some(ids) = self.users.get_mut(&session.granted.user) {
            ids.remove(&id);
            if ids.is_empty() {
                self.users.remove(&session.granted.user);
            }
        }
        self.assigned_addresses.release(id, &session.assignment);
        for lease in core::mem::take(&mut session.leases) {
            self.pools.release(lease);
        }
        session.cause = Some(cause);
        session.ending = Some((now, reason.to_string()));
        if !session.silent {
            self.timers.insert(now + LAST_WORD, ConcentratorTimer::Close(id));
        }
        self.closing.insert(id, session);
        self.close_session(now, id);
    }

    /// A session that has ended is told of, once it is known what it has carried and its begin is in the log.
    pub(crate) fn close_session(&mut self, now: Instant, id: u64) {
        let ready = |session: &UserSession| session.silent && !matches!(session.logged, LogState::Writing(_));
        if !self.closing.get(&id).is_some_and(ready) {
            return;
        }
        let Some(mut session) = self.closing.remove(&id) else { return };
        let (at, reason) = session.ending.clone().unwrap_or((now, String::new()));
        let cause = session.cause.unwrap_or_default();
        // The log says that a Stop is owed before it is sent. One whose begin was not kept may be in it all the same: the disk did not say.
        if self.config.logged {
            let SessionUsage { octets_in, octets_out, packets_in, packets_out, .. } = session.usage;
            let packets = self.config.metered.then_some((packets_in, packets_out));
            let stop = AccountingStop { cause: cause.radius_code(), record: session.records, packets };
            let stop = (session.has_sent_start && self.is_accounting_enabled()).then_some(stop);
            let (at, session, reason) = (at.to_wall_time(self.epoch), session.acct.clone(), reason.clone());
            let end = SessionLogRecord::session_ended(SessionEnd {
                ended_at: at,
                session,
                reason,
                octets_in,
                octets_out,
                stop,
            });
            self.outputs.push_event(AccessConcentratorEvent::Log(Box::new(end)));
        }
        if session.has_sent_start {
            session = self.account_detached_session(now, session, RecordKind::Stop);
        }
        if let (Some(token), Some(aaa)) = (session.granted.token, &mut self.aaa) {
            // It ends whatever the server says to that.
            let _ = aaa.handle_command(now, usher_access::AccessClientCommand::Terminate { token, cause });
        }
        let status = Box::new(self.session_status(now, id, &session));
        self.outputs.push_event(AccessConcentratorEvent::Ended { status, reason });
    }
}

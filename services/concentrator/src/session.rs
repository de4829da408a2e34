//! Sessions of users: their limits, their usage, and their end.

use crate::addresses::assigned_prefixes;
use crate::grace::AaaOutagePolicy;
use crate::login::{UserAuthorization, accept_reply};
use crate::service::{
    AccessConcentrator, AccessConcentratorEvent, ConcentratorJob, ConcentratorTimer, LoginFailure,
    PppoeSessionSelector,
};
use crate::track::{AccountingStop, SessionEnd, SessionLogRecord, SessionStart};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_access::pool::Lease;
use usher_access::{AccountingRecordKind, TerminateCause};
use usher_core::{Duration, Instant, JobRequest, LinkLayerPortId, Machine};
use usher_ppp::concentrator::{
    AuthenticationReply, ConcentratorCommand, ExcessSessionPolicy, PppoeSessionId, SubscriberInfo,
};
use usher_ppp::pppoe::MacAddress;
use usher_ppp::{AddressAssignment, AddressFamily, EndReason, NegotiatedAddresses};

/// Maximum wait for the usage of a removed session.
const LAST_WORD: Duration = Duration::from_secs(5);
/// The name of the rates of sessions without a named rate.
const DEFAULT_RATE: &str = "default";

/// The limits of sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// Maximum sessions of a user; zero: unlimited.
    pub sessions_per_user: usize,
    /// Policy for a session beyond the maximum.
    pub excess: ExcessSessionPolicy,
    /// Default of Session-Timeout; `None`: unlimited.
    pub session_timeout: Option<Duration>,
    /// Default of Idle-Timeout; `None`: unlimited.
    pub idle_timeout: Option<Duration>,
    /// True to clamp the TCP MSS of hosts to the session's MTU.
    pub clamp_mss: bool,
}

/// A named pair of rates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateProfile {
    /// The name that AAA servers send as Filter-Id.
    pub name: String,
    /// From hosts, bit/s; `None`: unlimited.
    pub up: Option<u64>,
    /// To hosts, bit/s; `None`: unlimited.
    pub down: Option<u64>,
}

/// The usage of a session.
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
    /// Packets of the host with a foreign source address, dropped.
    pub spoofed: u64,
    /// Packets beyond the session's rate, dropped.
    pub limited: u64,
}

impl SessionUsage {
    fn combine_counters(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
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

/// A session's entry in the data plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionEntry {
    /// The session's number at this concentrator, never reused.
    pub id: u64,
    /// SESSION_ID.
    pub number: u16,
    /// The port.
    pub port: LinkLayerPortId,
    /// The host's address at the port.
    pub peer: MacAddress,
    /// Octets of the longest packet.
    pub mtu: u16,
    /// The host's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The IPv4 address of this side.
    pub gateway: Option<Ipv4Addr>,
    /// The host's prefixes: valid sources of its packets.
    pub ipv6: Vec<(Ipv6Addr, u8)>,
    /// The host's interface identifier, for its link-local address.
    pub link_local: Option<[u8; 8]>,
    /// Rate from the host, bit/s; `None`: unlimited.
    pub rate_up: Option<u64>,
    /// Rate to the host, bit/s; `None`: unlimited.
    pub rate_down: Option<u64>,
    /// True to clamp the TCP MSS.
    pub clamp_mss: bool,
}

/// The state of a session's log record.
#[derive(Clone, PartialEq, Debug)]
enum SessionLogState {
    /// The record is being written. Then the host gets this reply.
    Writing(Option<AuthenticationReply>),
    /// The record was written, failed, or is not needed.
    Done,
}

/// A session of a user.
#[derive(Debug)]
pub(crate) struct UserSession {
    pub(crate) wire: PppoeSessionId,
    pub(crate) subscriber: SubscriberInfo,
    pub(crate) granted: UserAuthorization,
    pub(crate) assignment: AddressAssignment,
    pub(crate) leases: Vec<Lease>,
    logged: SessionLogState,
    networks: BTreeMap<AddressFamily, NegotiatedAddresses>,
    pub(crate) mtu: u16,
    installed: bool,
    /// True once an accounting Start was sent.
    pub(crate) has_sent_start: bool,
    /// Acct-Session-Id.
    pub(crate) acct: String,
    pub(crate) since: Instant,
    pub(crate) usage: SessionUsage,
    /// The usage at the last installation. A data plane counts from zero.
    before: SessionUsage,
    /// The number of accounting records so far.
    pub(crate) records: u32,
    pub(crate) ends: Option<Instant>,
    pub(crate) interim: Option<(Duration, Instant)>,
    pub(crate) idle: Option<Duration>,
    /// The time of the last traffic.
    pub(crate) busy: Instant,
    pub(crate) rates: (Option<u64>, Option<u64>),
    pub(crate) cause: Option<TerminateCause>,
    /// The time and reason of the end.
    ending: Option<(Instant, String)>,
    /// True if the final usage is known or no longer awaited.
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
    fn to_data_plane_entry(&self, id: u64, clamp_mss: bool) -> SessionEntry {
        let (mut ipv4, mut gateway, mut ipv6, mut link_local) = (None, None, Vec::new(), None);
        for network in self.networks.values() {
            match network {
                NegotiatedAddresses::Ipv4 { local, remote, .. } => {
                    (ipv4, gateway) = (Some(*remote), Some(*local))
                }
                NegotiatedAddresses::Ipv6 { remote, prefixes, .. } => {
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
    /// True if `name` is the session's user, station, Acct-Session-Id or address.
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

/// Shows octets as text, with `\xNN` for invalid UTF-8, so that different octets never look the same.
pub(crate) fn display_octets(octets: &[u8]) -> String {
    core::str::from_utf8(octets).map_or_else(|_| octets.escape_ascii().to_string(), ToString::to_string)
}

/// Returns the port and address of a host.
const fn subscriber_station_key(of: &SubscriberInfo) -> (LinkLayerPortId, MacAddress) {
    (of.port, of.address)
}

/// Returns the fallback user name of a session whose AAA server names no user. It is unique to the session.
pub(crate) fn fallback_session_user_name(acct: &str) -> String {
    alloc::format!("session {acct}")
}

/// Returns the Acct-Terminate-Cause of an end (RFC 2866 §5.10).
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
    /// Returns the rates of a user: those that the AAA server sends, those that it names, or the default.
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

    /// Opens a session of a user: assigns its addresses and logs it.
    pub(crate) fn open_session(
        &mut self,
        now: Instant,
        wire: PppoeSessionId,
        mut granted: UserAuthorization,
        message: Vec<u8>,
    ) -> Result<(), LoginFailure> {
        let Some(subscriber) = self.attached.get(&wire).cloned() else { return Ok(()) };
        self.next_session += 1;
        let id = self.next_session;
        let acct = usher_access::session_id(self.start, id as u32);
        if granted.nameless {
            granted.user =
                usher_access::fallback_user_name(&granted.login, &fallback_session_user_name(&acct));
        }
        self.enforce_session_limit(now, &subscriber, &granted.user)?;
        self.take_back(now, &subscriber, &granted);
        let (assignment, leases) = self.assign_addresses(&granted)?;
        self.record_assigned_addresses(id, &assignment);
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
            logged: SessionLogState::Done,
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
                    session.logged = SessionLogState::Writing(Some(answer));
                }
                let what = ConcentratorJob::Log(Box::new(SessionLogRecord::session_started(begin)));
                self.outputs.push_job(JobRequest::new(token, what));
            }
            None => self.let_in(now, id, answer),
        }
        Ok(())
    }

    /// True if the user may open another session. Ends the oldest if the policy says so.
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
                self.sessions.get(*id).is_some_and(|old| {
                    subscriber_station_key(&old.subscriber) == subscriber_station_key(subscriber)
                })
            };
            // After a power loss, a host returns before its dead session is detected. So its own session is replaced,
            // even if the policy is to refuse.
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

    /// Ends the host's own old session if it has the addresses that the AAA server assigns. After a power loss a host
    /// returns before its dead session is detected.
    fn take_back(&mut self, now: Instant, subscriber: &SubscriberInfo, granted: &UserAuthorization) {
        for id in self.conflicting_sessions(granted) {
            if self.sessions.get(&id).is_some_and(|old| {
                subscriber_station_key(&old.subscriber) == subscriber_station_key(subscriber)
            }) {
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
            block: session
                .ipv4_address()
                .and_then(|inner| self.config.blocks.as_ref()?.port_block_of_host(inner)),
            ipv6: session.ipv6_prefixes(),
            classes: session.granted.classes.clone(),
        }
    }

    /// Handles the result of a session's log record.
    pub(crate) fn handle_session_log_result(&mut self, now: Instant, token: u64, kept: bool) {
        let Some(id) = self.writing.remove(&token) else { return };
        if let Some(session) = self.closing.get_mut(&id) {
            session.logged = SessionLogState::Done;
            return self.close_session(now, id);
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let SessionLogState::Writing(answer) = core::mem::replace(&mut session.logged, SessionLogState::Done)
        else {
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

    /// Handles a network of a session that has come up.
    pub(crate) fn handle_network_up(
        &mut self,
        now: Instant,
        wire: PppoeSessionId,
        mtu: u16,
        network: NegotiatedAddresses,
    ) {
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
            self.account_session(now, id, AccountingRecordKind::Start);
        }
    }

    /// Sends the session's entry to the data plane.
    pub(crate) fn update_data_plane(&mut self, id: u64) {
        let clamp = self.config.limits.clamp_mss;
        let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.networks.is_empty()) else {
            return;
        };
        session.installed = true;
        let entry = Box::new(session.to_data_plane_entry(id, clamp));
        self.outputs.push_event(AccessConcentratorEvent::Install(entry));
    }

    /// Handles a network of a session that has gone down.
    pub(crate) fn remove_network(&mut self, wire: PppoeSessionId, family: AddressFamily) {
        let Some(id) = self.current.get(&wire).copied() else { return };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.networks.remove(&family);
        if session.networks.is_empty() {
            self.remove_from_data_plane(id);
        } else {
            self.update_data_plane(id);
        }
    }

    fn remove_from_data_plane(&mut self, id: u64) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.installed) else { return };
        session.installed = false;
        session.networks.clear();
        session.silent = !self.config.metered;
        let number = session.subscriber.number;
        self.outputs.push_event(AccessConcentratorEvent::Remove { id, number });
    }

    /// Raises the MTU after a long test packet has passed.
    pub(crate) fn raise_mtu(&mut self, wire: PppoeSessionId, mtu: u16) {
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

    /// Records the usage of a session since its installation.
    pub(crate) fn record_usage(&mut self, now: Instant, id: u64, usage: &SessionUsage) {
        let Some(session) = self.session_mut(id) else { return };
        let usage = session.before.combine_counters(*usage, u64::saturating_add);
        let new = usage.combine_counters(core::mem::replace(&mut session.usage, usage), u64::saturating_sub);
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

    /// Handles the removal of a session from the data plane, with its final usage.
    pub(crate) fn handle_data_plane_removal(&mut self, now: Instant, id: u64, usage: Option<&SessionUsage>) {
        if let Some(usage) = usage {
            self.record_usage(now, id, usage);
        }
        let Some(session) = self.session_mut(id) else { return };
        session.before = session.usage;
        session.silent = true;
        self.close_session(now, id);
    }

    /// Handles a session that the data plane could not install.
    pub(crate) fn not_installed(&mut self, now: Instant, id: u64) {
        if self.sessions.contains_key(&id) {
            self.counters.not_installed += 1;
            self.terminate_session(now, id, TerminateCause::NasError, "not-installed");
        }
    }

    pub(crate) fn session_end(&mut self, now: Instant, id: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.ends = None;
        if let (AaaOutagePolicy::Grace(lasts), Some(since)) =
            (self.config.without_aaa, self.grace.aaa_unavailable_since())
            && since + lasts > now
        {
            // The session end is checked again when a server answers, and at the end of the grace time.
            session.ends = Some(since + lasts);
            self.timers.insert(since + lasts, ConcentratorTimer::SessionEnd(id));
            self.counters.sessions_in_grace += 1;
            session.cause = Some(TerminateCause::SessionTimeout);
            return;
        }
        self.counters.sessions_timed_out += 1;
        self.terminate_session(now, id, TerminateCause::SessionTimeout, "session-timeout");
    }

    /// Ends overdue sessions once a server answers again.
    pub(crate) fn end_overdue_sessions(&mut self, now: Instant) {
        if !matches!(self.config.without_aaa, AaaOutagePolicy::Grace(_)) {
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

    /// Ends a session from this side.
    pub(crate) fn terminate_session(&mut self, now: Instant, id: u64, cause: TerminateCause, reason: &str) {
        let Some(session) = self.sessions.get(&id) else { return };
        let wire = session.wire;
        self.finish_session(now, id, cause, reason);
        self.send_ppp_command(now, ConcentratorCommand::Close(wire));
    }

    /// Ends the selected sessions. Returns their number.
    pub(crate) fn close_all(&mut self, now: Instant, which: &PppoeSessionSelector) -> usize {
        let meant = |(id, session): (&u64, &UserSession)| match which {
            PppoeSessionSelector::All => Some(*id),
            PppoeSessionSelector::Session(n) => (id == n).then_some(*id),
            PppoeSessionSelector::Named(name) => session.is_called(name).then_some(*id),
        };
        let meant: Vec<u64> = self.sessions.iter().filter_map(meant).collect();
        for id in &meant {
            self.terminate_session(now, *id, TerminateCause::AdminReset, "disconnected");
        }
        meant.len()
    }

    /// Finishes a session: removes it from the data plane and frees its addresses.
    pub(crate) fn finish_session(&mut self, now: Instant, id: u64, cause: TerminateCause, reason: &str) {
        self.remove_from_data_plane(id);
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

    /// Reports the end of a session, once its usage is known and its begin is logged.
    pub(crate) fn close_session(&mut self, now: Instant, id: u64) {
        let ready =
            |session: &UserSession| session.silent && !matches!(session.logged, SessionLogState::Writing(_));
        if !self.closing.get(&id).is_some_and(ready) {
            return;
        }
        let Some(mut session) = self.closing.remove(&id) else { return };
        let (at, reason) = session.ending.clone().unwrap_or((now, String::new()));
        let cause = session.cause.unwrap_or_default();
        // The log marks the Stop as unacknowledged before it is sent. This is done even if the write of the begin
        // failed, since the begin may be on disk.
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
            session = self.account_detached_session(now, session, AccountingRecordKind::Stop);
        }
        if let (Some(token), Some(aaa)) = (session.granted.token, &mut self.aaa) {
            // The session ends here whatever the server replies.
            let _ = aaa.handle_command(now, usher_access::AccessClientCommand::Terminate { token, cause });
        }
        let status = Box::new(self.session_status(now, id, &session));
        self.outputs.push_event(AccessConcentratorEvent::Ended { status, reason });
    }
}

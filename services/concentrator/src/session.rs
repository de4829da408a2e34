//! Sessions of users: what they may do, what they have carried, and their end.

use crate::addresses::prefixes;
use crate::grace::WhenAway;
use crate::login::{Granted, accept};
use crate::service::{AccessConcentrator, Event, LoginFailure, ServiceJob, Timer, Which};
use crate::track::{Begin, End, Record, Stop};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_access::pool::Lease;
use usher_access::{RecordKind, TerminateCause};
use usher_core::{Duration, Instant, Job, Machine, PortId};
use usher_ppp::concentrator::{Answer, ConcentratorCommand, Excess, SessionId, Subscriber};
use usher_ppp::pppoe::MacAddress;
use usher_ppp::{Assignment, EndReason, Family, Network};

/// How long the host may take to say what a session that is no more has carried.
const LAST_WORD: Duration = Duration::from_secs(5);
/// The name of the rates of those for whom no others are named.
const DEFAULT_RATE: &str = "default";

/// What nobody may exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Sessions at a time of one user; zero: as many as it likes.
    pub sessions_per_user: usize,
    /// What becomes of one more.
    pub excess: Excess,
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
pub struct Usage {
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

impl Usage {
    fn each(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
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
enum Logged {
    /// It is being told; then the host is let in with this.
    Writing(Option<Answer>),
    /// It has been told, and may have failed, or there is no log.
    Done,
}

/// A session of a user.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) wire: SessionId,
    pub(crate) subscriber: Subscriber,
    pub(crate) granted: Granted,
    pub(crate) assignment: Assignment,
    pub(crate) leases: Vec<Lease>,
    logged: Logged,
    networks: BTreeMap<Family, Network>,
    pub(crate) mtu: u16,
    installed: bool,
    /// The AAA server has been told of its begin.
    pub(crate) told: bool,
    /// Acct-Session-Id.
    pub(crate) acct: String,
    pub(crate) since: Instant,
    pub(crate) usage: Usage,
    /// Of it, what it had carried when it was installed last: a data plane counts from there.
    before: Usage,
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
    over: Option<(Instant, String)>,
    /// What it has carried is known, or not waited for.
    pub(crate) silent: bool,
}

impl Session {
    pub(crate) fn lasted(&self, now: Instant) -> Duration {
        self.over.as_ref().map_or(now, |(at, _)| *at).since(self.since)
    }
    pub(crate) fn ipv4(&self) -> Option<Ipv4Addr> {
        self.assignment.ipv4.as_ref().map(|ipv4| ipv4.remote)
    }
    pub(crate) fn prefixes(&self) -> Vec<(Ipv6Addr, u8)> {
        prefixes(&self.assignment).map(|prefix| (prefix.address(), prefix.bits())).collect()
    }
    fn entry(&self, id: u64, clamp_mss: bool) -> SessionEntry {
        let (mut ipv4, mut gateway, mut ipv6, mut link_local) = (None, None, Vec::new(), None);
        for network in self.networks.values() {
            match network {
                Network::Ipv4 { local, remote, .. } => (ipv4, gateway) = (Some(*remote), Some(*local)),
                Network::Ipv6 { remote, prefixes, .. } => {
                    ipv6 = prefixes.iter().map(|prefix| (prefix.address(), prefix.bits())).collect();
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
            IpAddr::V4(v4) => self.ipv4() == Some(v4),
            IpAddr::V6(v6) => self.prefixes().iter().any(|(prefix, bits)| {
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
pub(crate) fn shown(octets: &[u8]) -> String {
    core::str::from_utf8(octets).map_or_else(|_| octets.escape_ascii().to_string(), ToString::to_string)
}

/// Where a host is.
const fn place(of: &Subscriber) -> (PortId, MacAddress) {
    (of.port, of.address)
}

/// What is a session's alone, behind the name of one whose user nobody has named.
pub(crate) fn session_called(acct: &str) -> String {
    alloc::format!("session {acct}")
}

/// Why a session ended, as accounting says it (RFC 2866 §5.10).
pub(crate) const fn cause(reason: EndReason) -> TerminateCause {
    match reason {
        EndReason::Closed => TerminateCause::NasRequest,
        EndReason::PeerClosed | EndReason::Padt | EndReason::Replaced => TerminateCause::UserRequest,
        EndReason::Unreachable | EndReason::Looped => TerminateCause::LostCarrier,
        EndReason::NotConverging
        | EndReason::SetupTimeout
        | EndReason::NoAuthentication
        | EndReason::Unasked
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
    pub(crate) fn rates(
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
    pub(crate) fn open(
        &mut self,
        now: Instant,
        wire: SessionId,
        mut granted: Granted,
        message: Vec<u8>,
    ) -> Result<(), LoginFailure> {
        let Some(subscriber) = self.attached.get(&wire).cloned() else { return Ok(()) };
        self.next_session += 1;
        let id = self.next_session;
        let acct = usher_access::session_id(self.start, id as u32);
        if granted.nameless {
            granted.user = usher_access::within(&granted.login, &session_called(&acct));
        }
        self.make_room(now, &subscriber, &granted.user)?;
        self.take_back(now, &subscriber, &granted);
        let (assignment, leases) = self.assign(&granted)?;
        self.hold(id, &assignment);
        let limits = self.config.limits;
        let accounting = self.config.aaa.as_ref().filter(|aaa| aaa.accounting);
        let interim = accounting.and_then(|aaa| granted.interim.or(aaa.interim));
        let interim = interim.filter(|every| !every.is_zero()).map(|every| (every, now + every));
        let session = Session {
            wire,
            rates: self.rates(&granted.filters, granted.bandwidth),
            ends: granted.lasts.or(limits.session_timeout).map(|lasts| now + lasts),
            idle: granted.idle.or(limits.idle_timeout).filter(|_| self.config.metered),
            interim,
            subscriber: subscriber.clone(),
            leases,
            logged: Logged::Done,
            networks: BTreeMap::new(),
            mtu: 0,
            installed: false,
            told: false,
            acct,
            since: now,
            usage: Usage::default(),
            before: Usage::default(),
            records: 0,
            busy: now,
            cause: None,
            over: None,
            silent: true,
            assignment: assignment.clone(),
            granted,
        };
        if let Some(at) = session.ends {
            self.timers.insert(at, Timer::SessionEnd(id));
        }
        if let Some((_, at)) = session.interim {
            self.timers.insert(at, Timer::Interim(id));
        }
        if let Some(idle) = session.idle {
            self.timers.insert(now + idle, Timer::Idle(id));
        }
        self.current.insert(wire, id);
        self.numbers.insert(subscriber.number, id);
        self.users.entry(session.granted.user.clone()).or_default().insert(id);
        let answer = accept(message, assignment);
        let begin = self.config.logged.then(|| self.begin_record(now, &session));
        self.sessions.insert(id, session);
        match begin {
            Some(begin) => {
                let token = self.token();
                self.writing.insert(token, id);
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.logged = Logged::Writing(Some(answer));
                }
                let what = ServiceJob::Log(Box::new(Record::begin(begin)));
                self.outputs.job(Job::new(token, what));
            }
            None => self.let_in(now, id, answer),
        }
        Ok(())
    }

    /// Whether a user may have one session more; its oldest may have to end for that.
    fn make_room(&mut self, now: Instant, subscriber: &Subscriber, user: &[u8]) -> Result<(), LoginFailure> {
        let limits = self.config.limits;
        while let Some(ids) = self.users.get(user)
            && limits.sessions_per_user > 0
            && ids.len() >= limits.sessions_per_user
        {
            let own = |id: &&u64| {
                self.sessions.get(*id).is_some_and(|old| place(&old.subscriber) == place(subscriber))
            };
            // A host that has lost its power comes back before its session is missed.
            match (limits.excess, ids.first().copied(), ids.iter().find(own).copied()) {
                (Excess::Replace, Some(oldest), _) => {
                    self.counters.users_replaced += 1;
                    self.end(now, oldest, TerminateCause::UserRequest, "replaced");
                }
                (Excess::Refuse, _, Some(own)) => {
                    self.counters.hosts_replaced += 1;
                    self.end(now, own, TerminateCause::LostCarrier, "replaced");
                }
                _ => return Err(LoginFailure::TooManySessions),
            }
        }
        Ok(())
    }

    /// A host that has lost its power comes back before its session is missed: what the AAA server gives it is its own already.
    fn take_back(&mut self, now: Instant, subscriber: &Subscriber, granted: &Granted) {
        for id in self.holders(granted) {
            if self.sessions.get(&id).is_some_and(|old| place(&old.subscriber) == place(subscriber)) {
                self.counters.hosts_replaced += 1;
                self.end(now, id, TerminateCause::LostCarrier, "replaced");
            }
        }
    }

    fn begin_record(&self, now: Instant, session: &Session) -> Begin {
        let place = self.place(&session.subscriber);
        Begin {
            at: now.wall(self.epoch),
            session: session.acct.clone(),
            user: shown(&session.granted.user),
            station: session.subscriber.address.to_string(),
            port: place.name().to_string(),
            number: session.subscriber.number,
            circuit: session.subscriber.circuit_id.as_deref().map(shown),
            ipv4: session.ipv4(),
            block: session.ipv4().and_then(|inner| self.config.blocks.as_ref()?.outer(inner)),
            ipv6: session.prefixes(),
            classes: session.granted.classes.clone(),
        }
    }

    /// The log has kept a session, or not.
    pub(crate) fn logged(&mut self, now: Instant, token: u64, kept: bool) {
        let Some(id) = self.writing.remove(&token) else { return };
        if let Some(session) = self.closing.get_mut(&id) {
            session.logged = Logged::Done;
            return self.close(now, id);
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Logged::Writing(answer) = core::mem::replace(&mut session.logged, Logged::Done) else { return };
        match answer.filter(|_| kept) {
            Some(answer) => self.let_in(now, id, answer),
            None => {
                let (wire, subscriber) = (session.wire, session.subscriber.clone());
                let user = session.granted.user.clone();
                self.counters.not_logged += 1;
                self.over(now, id, TerminateCause::NasError, "not-logged");
                let why = LoginFailure::NotLogged;
                self.outputs.event(Event::LoginFailed { subscriber, user, why });
                self.tell(now, ConcentratorCommand::Answer { session: wire, answer: Answer::Unanswered });
            }
        }
    }

    fn let_in(&mut self, now: Instant, id: u64, answer: Answer) {
        let Some(session) = self.sessions.get(&id) else { return };
        let wire = session.wire;
        self.counters.logins_accepted += 1;
        let status = Box::new(self.shown(now, id, session));
        self.outputs.event(Event::LetIn(status));
        self.tell(now, ConcentratorCommand::Answer { session: wire, answer });
    }

    /// A network of a session is open.
    pub(crate) fn install(&mut self, now: Instant, wire: SessionId, mtu: u16, network: Network) {
        let Some(id) = self.current.get(&wire).copied() else { return };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.networks.insert(network.family(), network);
        session.mtu = mtu;
        self.update(id);
        let begins =
            self.sessions.get_mut(&id).is_some_and(|session| !core::mem::replace(&mut session.told, true));
        if begins {
            self.account(now, id, RecordKind::Start);
        }
    }

    /// Has the data plane told what it has to know of a session.
    pub(crate) fn update(&mut self, id: u64) {
        let clamp = self.config.limits.clamp_mss;
        let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.networks.is_empty()) else {
            return;
        };
        session.installed = true;
        let entry = Box::new(session.entry(id, clamp));
        self.outputs.event(Event::Install(entry));
    }

    /// A network of a session is closed.
    pub(crate) fn remove(&mut self, wire: SessionId, family: Family) {
        let Some(id) = self.current.get(&wire).copied() else { return };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.networks.remove(&family);
        if session.networks.is_empty() {
            self.take_away(id);
        } else {
            self.update(id);
        }
    }

    fn take_away(&mut self, id: u64) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.installed) else { return };
        session.installed = false;
        session.networks.clear();
        session.silent = !self.config.metered;
        let number = session.subscriber.number;
        self.outputs.event(Event::Remove { id, number });
    }

    /// Longer packets than ordinary ones have passed.
    pub(crate) fn longer(&mut self, wire: SessionId, mtu: u16) {
        let Some(id) = self.current.get(&wire).copied() else { return };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.mtu = mtu;
        }
        self.update(id);
    }

    fn session_mut(&mut self, id: u64) -> Option<&mut Session> {
        match self.sessions.get_mut(&id) {
            Some(session) => Some(session),
            None => self.closing.get_mut(&id),
        }
    }

    /// What a session has carried in all since it was installed.
    pub(crate) fn carried(&mut self, now: Instant, id: u64, usage: &Usage) {
        let Some(session) = self.session_mut(id) else { return };
        let usage = session.before.each(*usage, u64::saturating_add);
        let new = usage.each(core::mem::replace(&mut session.usage, usage), u64::saturating_sub);
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
    pub(crate) fn removed(&mut self, now: Instant, id: u64, usage: Option<&Usage>) {
        if let Some(usage) = usage {
            self.carried(now, id, usage);
        }
        let Some(session) = self.session_mut(id) else { return };
        session.before = session.usage;
        session.silent = true;
        self.close(now, id);
    }

    /// Packets of a session cannot be let through.
    pub(crate) fn not_installed(&mut self, now: Instant, id: u64) {
        if self.sessions.contains_key(&id) {
            self.counters.not_installed += 1;
            self.end(now, id, TerminateCause::NasError, "not-installed");
        }
    }

    pub(crate) fn session_end(&mut self, now: Instant, id: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.ends = None;
        if let (WhenAway::Grace(lasts), Some(since)) = (self.config.when_away, self.grace.since())
            && since + lasts > now
        {
            // Looked at again when a server answers, and at the end of the grace.
            session.ends = Some(since + lasts);
            self.timers.insert(since + lasts, Timer::SessionEnd(id));
            self.counters.sessions_in_grace += 1;
            session.cause = Some(TerminateCause::SessionTimeout);
            return;
        }
        self.counters.sessions_timed_out += 1;
        self.end(now, id, TerminateCause::SessionTimeout, "session-timeout");
    }

    /// A server answers again: sessions whose time was over end.
    pub(crate) fn overdue(&mut self, now: Instant) {
        if !matches!(self.config.when_away, WhenAway::Grace(_)) {
            return;
        }
        let over = |(id, session): (&u64, &Session)| {
            (session.cause == Some(TerminateCause::SessionTimeout)).then_some((*id, session.ends))
        };
        for (id, ends) in self.sessions.iter().filter_map(over).collect::<Vec<_>>() {
            if let Some(at) = ends {
                self.timers.remove(at, Timer::SessionEnd(id));
            }
            self.timers.insert(now, Timer::SessionEnd(id));
        }
    }

    pub(crate) fn idle(&mut self, now: Instant, id: u64) {
        let Some(session) = self.sessions.get(&id) else { return };
        let Some(idle) = session.idle else { return };
        let due = session.busy + idle;
        if due > now {
            self.timers.insert(due, Timer::Idle(id));
            return;
        }
        self.counters.sessions_idle += 1;
        self.end(now, id, TerminateCause::IdleTimeout, "idle-timeout");
    }

    /// This side ends a session.
    pub(crate) fn end(&mut self, now: Instant, id: u64, cause: TerminateCause, reason: &str) {
        let Some(session) = self.sessions.get(&id) else { return };
        let wire = session.wire;
        self.over(now, id, cause, reason);
        self.tell(now, ConcentratorCommand::Close(wire));
    }

    /// Ends the sessions that are meant; gives how many.
    pub(crate) fn close_all(&mut self, now: Instant, which: &Which) -> usize {
        let meant = |(id, session): (&u64, &Session)| match which {
            Which::All => Some(*id),
            Which::Session(n) => (id == n).then_some(*id),
            Which::Named(name) => session.is_called(name).then_some(*id),
        };
        let meant: Vec<u64> = self.sessions.iter().filter_map(meant).collect();
        for id in &meant {
            self.end(now, *id, TerminateCause::AdminReset, "disconnected");
        }
        meant.len()
    }

    /// A session has ended: nothing passes, and its addresses are free.
    pub(crate) fn over(&mut self, now: Instant, id: u64, cause: TerminateCause, reason: &str) {
        self.take_away(id);
        let Some(mut session) = self.sessions.remove(&id) else { return };
        if let Some(at) = session.ends {
            self.timers.remove(at, Timer::SessionEnd(id));
        }
        if let Some((_, at)) = session.interim {
            self.timers.remove(at, Timer::Interim(id));
        }
        if let Some(idle) = session.idle {
            self.timers.remove(session.busy + idle, Timer::Idle(id));
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
        self.held.release(id, &session.assignment);
        for lease in core::mem::take(&mut session.leases) {
            self.pools.release(lease);
        }
        session.cause = Some(cause);
        session.over = Some((now, reason.to_string()));
        if !session.silent {
            self.timers.insert(now + LAST_WORD, Timer::Close(id));
        }
        self.closing.insert(id, session);
        self.close(now, id);
    }

    /// A session that has ended is told of, once it is known what it has carried and its begin is in the log.
    pub(crate) fn close(&mut self, now: Instant, id: u64) {
        let ready = |session: &Session| session.silent && !matches!(session.logged, Logged::Writing(_));
        if !self.closing.get(&id).is_some_and(ready) {
            return;
        }
        let Some(mut session) = self.closing.remove(&id) else { return };
        let (at, reason) = session.over.clone().unwrap_or((now, String::new()));
        let cause = session.cause.unwrap_or_default();
        // The log says that a Stop is owed before it is sent. One whose begin was not kept may be in it all the same: the disk did not say.
        if self.config.logged {
            let Usage { octets_in, octets_out, packets_in, packets_out, .. } = session.usage;
            let packets = self.config.metered.then_some((packets_in, packets_out));
            let stop = Stop { cause: cause.number(), record: session.records, packets };
            let stop = (session.told && self.accounts()).then_some(stop);
            let (at, session, reason) = (at.wall(self.epoch), session.acct.clone(), reason.clone());
            let end = Record::end(End { at, session, reason, octets_in, octets_out, stop });
            self.outputs.event(Event::Log(Box::new(end)));
        }
        if session.told {
            session = self.record(now, session, RecordKind::Stop);
        }
        if let (Some(token), Some(aaa)) = (session.granted.token, &mut self.aaa) {
            // It ends whatever the server says to that.
            let _ = aaa.command(now, usher_access::Command::Terminate { token, cause });
        }
        let status = Box::new(self.shown(now, id, &session));
        self.outputs.event(Event::Ended { status, reason });
    }
}

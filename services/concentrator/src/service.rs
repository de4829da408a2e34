//! The service's machine.

use crate::addresses::{Addressing, Held};
use crate::grace::{Grace, WhenAway};
use crate::identity::{Translation, Wanted};
use crate::login::Login;
use crate::session::{Limits, RateProfile, Session, SessionEntry, Usage};
use crate::status::ConcentratorStatus;
use crate::track::{Lost, Owed, PortBlocks, Record};
use crate::users::LocalUsers;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_access::pool::{PoolConfig, Pools};
use usher_access::{Aaa, AccessClient, LoginLockout, RecordKind, TerminateCause};
use usher_core::collections::{HashState, hash_state};
use usher_core::timer::{TimerQueue, earliest};
use usher_core::{
    Child, CommandError, Duration, Input, Instant, Job, ListenerId, Machine, Output, OutputOf, Outputs,
    Owner, SecureRng, SocketId, WallTime,
};
use usher_ident::Connection;
use usher_ident_service::{self as ident, IdentService};
use usher_ppp::EndReason;
use usher_ppp::concentrator::{
    Concentrator, ConcentratorCommand, ConcentratorConfig, ConcentratorCounters, ConcentratorEvent,
    ConfigError, SessionId, Subscriber,
};

/// The slot of PPPoE within the service.
pub const PPP_SLOT: u16 = 0;
/// The slot of the client of AAA servers.
pub const AAA_SLOT: u16 = 1;
/// The slot of the IDENT service.
pub const IDENT_SLOT: u16 = 2;
/// The socket at which AAA servers ask something of sessions, by RADIUS (RFC 5176).
pub const DYNAMIC_SOCKET: SocketId = usher_access::DYNAMIC_SOCKET.within(AAA_SLOT);
/// Where queries of IDENT are accepted.
pub const IDENT_LISTENER: ListenerId = ListenerId { owner: Owner::slot(IDENT_SLOT), n: 0 };

/// Who judges what hosts show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judge {
    /// The AAA server ([`Config::aaa`]).
    Aaa,
    /// The concentrator itself ([`Config::users`]).
    Local,
}

/// How a concentrator is.
#[derive(Clone, Debug)]
pub struct Config {
    /// What PPPoE allows, and where.
    pub ppp: ConcentratorConfig,
    /// The names of its ports, in their order: what NAS-Port-Id and the log call them.
    pub ports: Vec<String>,
    /// Who judges what hosts show.
    pub judge: Judge,
    /// AAA servers, where there are some.
    pub aaa: Option<Aaa>,
    /// Users that the concentrator knows itself.
    pub users: LocalUsers,
    /// The AAA server lets nobody in by EAP-TLS whose certificate does not bear the name that the host gave.
    pub trust_certificate_names: bool,
    /// What becomes of hosts while no AAA server answers.
    pub when_away: WhenAway,
    /// What hosts get.
    pub addressing: Addressing,
    /// Address pools. They hold together ([`usher_access::pool::check_pools`]).
    pub pools: Vec<PoolConfig>,
    /// Rates that an AAA server names by Filter-Id; that of the name `default` is everybody's without one.
    pub rates: Vec<RateProfile>,
    /// What nobody may exceed.
    pub limits: Limits,
    /// Sessions are logged, and a host is let in when that has been done; otherwise [`ServiceJob::Log`] is not asked.
    pub logged: bool,
    /// Which ports of which address outside stand for a host inside (RFC 7422).
    pub blocks: Option<PortBlocks>,
    /// Who is told whose a connection is.
    pub ident: Option<ident::Config>,
    /// What stands for hosts outside: addresses that many of them share.
    pub translation: Translation,
    /// The host carries packets, and tells what sessions have carried: [`Command::Carried`] now and then, and
    /// [`Command::Removed`] for each that it was told to remove, for which the last record of accounting waits.
    pub metered: bool,
    /// Sessions that the log has as open although this is a start: their concentrator was killed.
    pub lost: Vec<Lost>,
    /// Sessions of earlier starts that have ended, and whose Stop no AAA server has acknowledged.
    pub owed: Vec<Owed>,
}

/// What a concentrator asks of slow helpers.
#[derive(Clone, PartialEq, Debug)]
pub enum ServiceJob {
    /// Write this into the log of sessions, so that it is there after a loss of power; [`Command::Logged`] is owed.
    Log(Box<Record>),
    /// Which address and port inside does the system translate this connection's local end from? [`Command::Translated`] is
    /// owed.
    Translation(Connection),
}

/// Which sessions are meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Which {
    /// All.
    All,
    /// That of this number ([`SessionStatus::id`](crate::SessionStatus::id)).
    Session(u64),
    /// Those of the user, the address, the station or the Acct-Session-Id of this name.
    Named(String),
}

/// What a concentrator is told.
#[derive(Clone, Debug)]
pub enum Command {
    /// The answer to [`ServiceJob::Log`].
    Logged {
        /// Of the job.
        token: u64,
        /// It is there.
        kept: bool,
    },
    /// The answer to [`ServiceJob::Translation`].
    Translated {
        /// Of the job.
        token: u64,
        /// The end inside; `Ok(None)`: there is no such connection; `Err`: it cannot be found out.
        inner: Result<Option<SocketAddr>, ()>,
    },
    /// Sessions have carried so much in all, by their numbers on the wire. What a session had carried before it was removed is told before
    /// [`Removed`](Self::Removed) is.
    Carried(Vec<(u16, Usage)>),
    /// A session that was to be removed is no more.
    Removed {
        /// Of the event.
        id: u64,
        /// What it has carried in all; `None`: nobody knows.
        usage: Option<Usage>,
    },
    /// A session could not be installed: it ends.
    NotInstalled {
        /// Of the event.
        id: u64,
    },
    /// Say how it is; [`Event::Status`] is owed.
    Status {
        /// Comes back.
        token: u64,
    },
    /// End sessions; [`Event::Told`] is owed.
    Close {
        /// Comes back.
        token: u64,
        /// Which.
        which: Which,
    },
    /// Be so from now on. Sessions that there are stay as they are; AAA servers, pools and the log are those of the start.
    Configure(Box<Config>),
    /// The host ends: all sessions end, and nobody is let in any more.
    Leave,
}

/// Why a host was not let in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LoginFailure {
    /// The AAA server, or the concentrator itself, does not let the user in.
    Rejected,
    /// Too many logins of this name, or from this station, have failed lately.
    HeldBack,
    /// No AAA server answers.
    Unanswered,
    /// What the AAA server says makes no sense.
    BadAnswer,
    /// There is nobody who judges.
    NoAaa,
    /// The host names no user, or none that fits a request to an AAA server.
    NoName,
    /// The user's name is no UTF-8 (RFC 2865 §5.1), or has control characters: nobody could say later who it was.
    BadName,
    /// No pool has an address left.
    NoAddress,
    /// Somebody else has the address that the AAA server gives.
    AddressInUse,
    /// The user has as many sessions as it may.
    TooManySessions,
    /// The log of sessions cannot be written.
    NotLogged,
}

/// What a concentrator says.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// Packets of this session are to be let through, or others than until now, before what is sent after this.
    Install(Box<SessionEntry>),
    /// Packets of this session are not to be let through any more. [`Command::Removed`] is owed where sessions are metered.
    Remove {
        /// [`SessionEntry::id`].
        id: u64,
        /// [`SessionEntry::number`].
        number: u16,
    },
    /// A user was let in.
    LetIn(Box<crate::SessionStatus>),
    /// A host was not.
    LoginFailed {
        /// Where it is.
        subscriber: Subscriber,
        /// Who it says it is.
        user: Vec<u8>,
        /// Why.
        why: LoginFailure,
    },
    /// A session of a user has ended.
    Ended {
        /// The session, as it was.
        status: Box<crate::SessionStatus>,
        /// Why.
        reason: String,
    },
    /// A session that nobody was let in by has ended.
    GaveUp {
        /// Where its host is.
        subscriber: Subscriber,
        /// Why.
        reason: EndReason,
    },
    /// For the log of sessions, behind what is there; it need not be on the disk at once.
    Log(Box<Record>),
    /// Answers [`Command::Status`].
    Status {
        /// Of the command.
        token: u64,
        /// How it is.
        status: Box<ConcentratorStatus>,
    },
    /// So many sessions were told; answers [`Command::Close`].
    Told {
        /// Of the command.
        token: u64,
        /// How many.
        sessions: usize,
    },
    /// An AAA server ended or changed a session.
    Dynamic {
        /// The session.
        id: u64,
        /// It is to end; otherwise what it may do has changed.
        end: bool,
    },
    /// A record of accounting that no AAA server kept.
    Unaccounted {
        /// Acct-Session-Id.
        session: String,
        /// The log has what it says: the next start sends it.
        logged: bool,
    },
    /// An AAA server answers, or no longer.
    Server {
        /// Its number among the configured ones.
        server: usize,
        /// It answers.
        up: bool,
    },
    /// Somebody asked whose a connection is.
    Ident(ident::Event),
    /// All has ended that was to end, and AAA servers have heard of it, or do not answer; answers [`Command::Leave`].
    Left,
}

usher_core::counters! {
    /// What an [`AccessConcentrator`] did, beside what its parts count.
    pub struct Counters {
        /// Hosts let in.
        logins_accepted,
        /// Hosts turned away.
        logins_rejected,
        /// Those of them that were not weighed, since too many of the name or of the station had failed.
        logins_held_back,
        /// Logins that nobody decided.
        logins_unanswered,
        /// Hosts let in while no AAA server answered, as it had let them in before.
        logins_in_grace,
        /// Sessions that went on beyond their time, since no AAA server answered.
        sessions_in_grace,
        /// Hosts that got no address, since no pool has one left.
        addresses_exhausted,
        /// Hosts that got no address, since somebody else has the one that an AAA server gave.
        addresses_in_use,
        /// Hosts turned away since their user has as many sessions as it may.
        users_full,
        /// Sessions ended since their user began another and may not have both.
        users_replaced,
        /// Sessions ended since the same station has logged in anew, for an address that the AAA server gives it.
        hosts_replaced,
        /// Hosts turned away since the log of sessions could not be written.
        not_logged,
        /// Sessions whose packets could not be let through.
        not_installed,
        /// Records of accounting sent.
        records,
        /// Records of accounting that no server kept for as long as they were sent.
        records_lost,
        /// Stops that no server had acknowledged when this one ended; the log has them for the next start.
        stops_left,
        /// Stops of sessions of earlier starts that were sent again.
        stops_owed,
        /// Sessions of an earlier start that were ended in accounting.
        sessions_lost,
        /// Sessions ended, since their time was over.
        sessions_timed_out,
        /// Sessions ended, since they carried nothing.
        sessions_idle,
        /// Sessions ended by an AAA server.
        sessions_disconnected,
        /// Sessions changed by an AAA server.
        sessions_changed,
        /// Requests of AAA servers that were refused.
        dynamic_refused,
        /// Octets of packets that have come from hosts.
        octets_in,
        /// Octets of packets that have gone to hosts.
        octets_out,
        /// Packets that have come from hosts.
        packets_in,
        /// Packets that have gone to hosts.
        packets_out,
        /// Packets of hosts from addresses that are not theirs.
        spoofed,
        /// Packets beyond a host's rate.
        limited,
        /// Connections whose user was found by the address.
        ident_by_address,
        /// Connections whose user was found by what was translated.
        ident_by_translation,
        /// Connections whose user was found by a block of ports.
        ident_by_block,
        /// Connections of nobody's who is here.
        ident_nobody,
    }
}

/// What is due at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// A session ends.
    SessionEnd(u64),
    /// The AAA server is told how a session is.
    Interim(u64),
    /// A session may have carried nothing for long.
    Idle(u64),
    /// What a session has carried is not waited for any more.
    Close(u64),
    /// Whoever leaves does not wait for AAA servers any more.
    Farewell,
}

/// How long a concentrator that leaves waits for AAA servers to acknowledge its last records, of sessions and of its own end each.
const FAREWELL: Duration = Duration::from_secs(5);

/// A record of accounting without an answer.
#[derive(Debug)]
pub(crate) struct Unanswered {
    /// Acct-Session-Id.
    pub(crate) session: String,
    /// It is a Stop of which the log says that it is owed.
    pub(crate) logged: bool,
}

/// How far a concentrator is that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Farewell {
    /// Records of sessions are acknowledged.
    Sessions,
    /// The AAA server is told of the end.
    Off,
    /// All is said.
    Over,
}

/// A PPPoE access concentrator; see the [crate](crate).
#[derive(Debug)]
pub struct AccessConcentrator {
    pub(crate) config: Config,
    pub(crate) ppp: Child<Concentrator>,
    pub(crate) aaa: Option<Child<AccessClient>>,
    pub(crate) ident: Option<Child<IdentService>>,
    pub(crate) epoch: WallTime,
    pub(crate) rng: SecureRng,
    /// Sessions on the wire.
    pub(crate) attached: BTreeMap<SessionId, Subscriber>,
    /// Hosts that show who they are.
    pub(crate) logins: BTreeMap<SessionId, Login>,
    /// Questions to AAA servers, by their tokens.
    pub(crate) asked: BTreeMap<u64, SessionId>,
    /// Sessions of users, by their numbers.
    pub(crate) sessions: BTreeMap<u64, Session>,
    /// Those of them that are on the wire.
    pub(crate) current: BTreeMap<SessionId, u64>,
    /// The same by SESSION_IDs.
    pub(crate) numbers: BTreeMap<u16, u64>,
    /// Sessions that have ended, and wait to be told what they have carried, or to be logged.
    pub(crate) closing: BTreeMap<u64, Session>,
    /// Sessions by users.
    pub(crate) users: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// Who has which address.
    pub(crate) held: Held,
    pub(crate) pools: Pools,
    pub(crate) hash: HashState,
    pub(crate) grace: Grace,
    pub(crate) lockout: LoginLockout,
    /// Sessions that the log is being told of.
    pub(crate) writing: BTreeMap<u64, u64>,
    /// What IDENT waits for, by the tokens of jobs.
    pub(crate) wanted: BTreeMap<u64, Wanted>,
    pub(crate) timers: TimerQueue<Timer>,
    /// Records without an answer.
    pub(crate) records: BTreeMap<u64, Unanswered>,
    pub(crate) next_token: u64,
    /// What tells the sessions of this start from those of others.
    pub(crate) start: u32,
    pub(crate) next_session: u64,
    started: bool,
    pub(crate) leaving: bool,
    farewell: Option<Farewell>,
    pub(crate) counters: Counters,
    pub(crate) outputs: Outputs<Event, ServiceJob>,
}

/// A concentrator was configured in contradiction to itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NewError {
    /// PPPoE's part.
    Ppp(ConfigError),
    /// The client of AAA servers.
    Aaa(usher_access::ConfigError),
}

impl core::fmt::Display for NewError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Ppp(error) => write!(f, "{error}"),
            Self::Aaa(error) => write!(f, "[aaa]: {error}"),
        }
    }
}

impl core::error::Error for NewError {}

impl AccessConcentrator {
    /// A concentrator that is so. Cookies, challenges and the names of sessions come of `rng`.
    ///
    /// # Errors
    /// It is configured in contradiction to itself.
    pub fn new(config: Config, mut rng: SecureRng) -> Result<Self, NewError> {
        let aaa = config.aaa.as_ref().map(|aaa| aaa.client(SecureRng::from_seed(rng.array())));
        let aaa = aaa.transpose().map_err(NewError::Aaa)?.map(|aaa| Child::new(AAA_SLOT, aaa));
        let ident = config.ident.clone().map(|ident| Child::new(IDENT_SLOT, IdentService::new(ident)));
        let ppp = Concentrator::new(config.ppp.clone(), SecureRng::from_seed(rng.array()));
        let ppp = Child::new(PPP_SLOT, ppp.map_err(NewError::Ppp)?);
        let hash = hash_state(&mut rng);
        let (start, secret) = (rng.next_u32(), rng.array());
        let mut this = Self {
            ppp,
            aaa,
            ident,
            epoch: WallTime::UNIX_EPOCH,
            attached: BTreeMap::new(),
            logins: BTreeMap::new(),
            asked: BTreeMap::new(),
            sessions: BTreeMap::new(),
            current: BTreeMap::new(),
            numbers: BTreeMap::new(),
            closing: BTreeMap::new(),
            users: BTreeMap::new(),
            held: Held::default(),
            pools: Pools::new(&config.pools, &hash),
            grace: Grace::new(secret),
            lockout: LoginLockout::new(config.users.failures, &hash),
            hash,
            writing: BTreeMap::new(),
            wanted: BTreeMap::new(),
            timers: TimerQueue::new(),
            records: BTreeMap::new(),
            next_token: 0,
            start,
            next_session: 0,
            started: false,
            leaving: false,
            farewell: None,
            counters: Counters::default(),
            outputs: Outputs::default(),
            rng,
            config,
        };
        this.claim_local();
        Ok(this)
    }
    /// What it has done, and what its PPPoE has.
    #[must_use]
    pub fn counters(&self) -> (&Counters, &ConcentratorCounters) {
        (&self.counters, self.ppp.counters())
    }
    /// What its client of AAA servers has done, where it asks by RADIUS.
    #[must_use]
    pub fn radius_counters(&self) -> Option<&usher_radius::client::Counters> {
        self.aaa.as_ref().and_then(|aaa| aaa.radius_counters())
    }
    /// Sessions of users that were let in.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }
    /// Tells PPPoE something. The session that is meant may be over.
    pub(crate) fn tell(&mut self, now: Instant, command: ConcentratorCommand) {
        // Whoever was asked for may have gone meanwhile.
        let _ = self.ppp.command(now, command);
    }

    /// What an earlier start has left is ended before anything else is told. The ends are in the log before the start is: if this one is
    /// killed meanwhile the next finds either the session open or its Stop owed.
    fn begin(&mut self, now: Instant) {
        if core::mem::replace(&mut self.started, true) {
            return;
        }
        let owed = core::mem::take(&mut self.config.owed);
        let lost: Vec<_> =
            core::mem::take(&mut self.config.lost).into_iter().map(|one| self.lost(now, one)).collect();
        if self.config.logged {
            let at = now.wall(self.epoch);
            self.outputs.event(Event::Log(Box::new(Record::started(at))));
        }
        self.account_server(now, RecordKind::On);
        for one in owed {
            self.counters.stops_owed += 1;
            self.account_owed(now, &one);
        }
        for one in lost {
            self.account_owed(now, &one);
        }
        self.drain(now);
    }

    fn timeout(&mut self, now: Instant) {
        self.begin(now);
        while let Some((_, timer)) = self.timers.pop_due(now) {
            match timer {
                Timer::SessionEnd(id) => self.session_end(now, id),
                Timer::Interim(id) => self.interim(now, id),
                Timer::Idle(id) => self.idle(now, id),
                Timer::Close(id) => {
                    if let Some(session) = self.closing.get_mut(&id) {
                        session.silent = true;
                    }
                    self.close(now, id);
                }
                Timer::Farewell => self.say_farewell(now, true),
            }
        }
    }

    /// Takes up what its parts say, until all are silent.
    pub(crate) fn drain(&mut self, now: Instant) {
        loop {
            if let Some(event) = self.outputs.next_event(&mut self.ppp) {
                self.take_up(now, event);
                continue;
            }
            let said = match &mut self.aaa {
                Some(aaa) => self.outputs.next_event(aaa),
                None => None,
            };
            if let Some(event) = said {
                self.answered(now, event);
                continue;
            }
            if !self.ident_said(now) {
                return;
            }
        }
    }

    /// Takes up what the IDENT service says and asks next; false: it is silent.
    fn ident_said(&mut self, now: Instant) -> bool {
        let Some(ident) = &mut self.ident else { return false };
        let mut buf = self.outputs.buffer();
        let said = loop {
            match ident.poll_output(&mut buf) {
                Some(Output::Transmit(transmit)) => {
                    let next = self.outputs.buffer();
                    let bytes = core::mem::replace(&mut buf, next);
                    self.outputs.transmit(transmit.within(IDENT_SLOT), bytes);
                }
                Some(Output::Work(work)) => self.outputs.work(work),
                other => break other,
            }
        };
        self.outputs.recycle(buf);
        match said {
            Some(Output::Job(Job { token, what: ident::Job::Owner(connection), .. })) => {
                self.owner_wanted(now, token, connection);
            }
            Some(Output::Event(event)) => self.outputs.event(Event::Ident(event)),
            _ => return false,
        }
        true
    }

    fn take_up(&mut self, now: Instant, event: ConcentratorEvent) {
        use ConcentratorEvent as E;
        match event {
            E::Began { session, subscriber } => drop(self.attached.insert(session, subscriber)),
            E::Authenticate { session, user, proof, mtu } => {
                self.authenticate(now, (session, mtu), user, &proof);
            }
            E::Install { session, mtu, network, .. } => self.install(now, session, mtu, network),
            E::Remove { session, family } => self.remove(session, family),
            E::Mtu { session, mtu } => self.longer(session, mtu),
            E::Ended { session, reason } => self.off_the_wire(now, session, reason),
        }
    }

    /// A session is not on the wire any more.
    fn off_the_wire(&mut self, now: Instant, session: SessionId, reason: EndReason) {
        self.drop_login(now, session);
        let subscriber = self.attached.remove(&session);
        match (self.current.get(&session).copied(), subscriber) {
            (Some(id), _) => self.over(now, id, crate::session::cause(reason), reason.name()),
            // What this side has ended has been told of already.
            (None, Some(subscriber)) if reason != EndReason::Closed => {
                self.outputs.event(Event::GaveUp { subscriber, reason });
            }
            (None, _) => {}
        }
    }

    fn leave(&mut self, now: Instant) {
        self.leaving = true;
        self.tell(now, ConcentratorCommand::CloseAll);
        self.drain(now);
        // The hosts' answers are not waited for, and the AAA server hears of the end now.
        for id in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.over(now, id, TerminateCause::AdminReboot, "leaving");
        }
        for (id, session) in &mut self.closing {
            session.silent = true;
            self.timers.insert(now, Timer::Close(*id));
        }
        self.timeout(now);
        if self.config.logged {
            let at = now.wall(self.epoch);
            self.outputs.event(Event::Log(Box::new(Record::stopped(at))));
        }
        if self.farewell.is_none() {
            self.farewell = Some(Farewell::Sessions);
            self.timers.insert(now + FAREWELL, Timer::Farewell);
        }
        self.drain(now);
        self.say_farewell(now, false);
    }

    /// Goes on with leaving where nothing is waited for any more, or the time for that is `over`: behind the records of sessions the
    /// AAA server is told of the end, with which it takes all that it knows for ended (RFC 2866 §5.1).
    pub(crate) fn say_farewell(&mut self, now: Instant, over: bool) {
        let Some(farewell) = self.farewell.filter(|_| over || self.records.is_empty()) else { return };
        if farewell == Farewell::Sessions {
            self.farewell = Some(Farewell::Off);
            self.give_up();
            self.account_server(now, RecordKind::Off);
            if !self.records.is_empty() {
                self.timers.insert(now + FAREWELL, Timer::Farewell);
                return;
            }
        }
        if farewell != Farewell::Over {
            self.farewell = Some(Farewell::Over);
            self.give_up();
            self.outputs.event(Event::Left);
        }
    }
    /// Records that no server has kept when this side leaves.
    fn give_up(&mut self) {
        for Unanswered { session, logged } in core::mem::take(&mut self.records).into_values() {
            *(if logged { &mut self.counters.stops_left } else { &mut self.counters.records_lost }) += 1;
            self.outputs.event(Event::Unaccounted { session, logged });
        }
    }

    /// Ends a connection that was accepted for nobody.
    fn refuse(&mut self, input: &Input<'_>) {
        if let Some(refusal) = input.refusal() {
            self.outputs.operate(refusal);
        }
    }
}

impl Machine for AccessConcentrator {
    type Command = Command;
    type Event = Event;
    type Job = ServiceJob;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.epoch = epoch;
        self.ppp.set_epoch(now, epoch);
        if let Some(aaa) = &mut self.aaa {
            aaa.set_epoch(now, epoch);
        }
        if let Some(ident) = &mut self.ident {
            ident.set_epoch(now, epoch);
        }
        self.drain(now);
    }

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.begin(now);
        match (input.enter(), &input) {
            (None, Input::Frame { .. }) => self.ppp.handle(now, input),
            (None, Input::Timeout) => {
                self.ppp.handle(now, Input::Timeout);
                if let Some(aaa) = &mut self.aaa {
                    aaa.handle(now, Input::Timeout);
                }
                if let Some(ident) = &mut self.ident {
                    ident.handle(now, Input::Timeout);
                }
                self.timeout(now);
            }
            (Some((AAA_SLOT, inner)), _) => match &mut self.aaa {
                Some(aaa) => aaa.handle(now, inner),
                None => self.refuse(&input),
            },
            (Some((IDENT_SLOT, inner)), _) => match &mut self.ident {
                Some(ident) => ident.handle(now, inner),
                None => self.refuse(&input),
            },
            _ => self.refuse(&input),
        }
        self.drain(now);
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Logged { token, kept } => self.logged(now, token, kept),
            Command::Translated { token, inner } => self.translated(now, token, inner),
            Command::Carried(all) => {
                // Until a session is removed what comes of its number is its own, though another has the number by now.
                let ending = self.closing.iter().rev().filter(|(_, session)| !session.silent);
                let ending: BTreeMap<u16, u64> =
                    ending.map(|(id, session)| (session.subscriber.number, *id)).collect();
                for (number, usage) in all {
                    if let Some(id) = ending.get(&number).or_else(|| self.numbers.get(&number)).copied() {
                        self.carried(now, id, &usage);
                    }
                }
            }
            Command::Removed { id, usage } => self.removed(now, id, usage.as_ref()),
            Command::NotInstalled { id } => self.not_installed(now, id),
            Command::Status { token } => {
                let status = Box::new(self.status(now));
                self.outputs.event(Event::Status { token, status });
            }
            Command::Close { token, which } => {
                let sessions = self.close_all(now, &which);
                self.outputs.event(Event::Told { token, sessions });
            }
            Command::Configure(config) => self.configure(now, *config)?,
            Command::Leave => self.leave(now),
        }
        self.drain(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let begin = (!self.started).then_some(Instant::ZERO);
        let aaa = self.aaa.as_mut().and_then(|aaa| aaa.poll_timeout());
        let ident = self.ident.as_mut().and_then(|ident| ident.poll_timeout());
        earliest([begin, self.ppp.poll_timeout(), aaa, ident, self.timers.next()])
    }
}

impl AccessConcentrator {
    fn configure(&mut self, now: Instant, config: Config) -> Result<(), CommandError> {
        self.ppp.command(now, ConcentratorCommand::Configure(Box::new(config.ppp.clone())))?;
        if let (Some(ident), Some(config)) = (&mut self.ident, config.ident.clone()) {
            ident.command(now, ident::Command::Configure(config))?;
        }
        self.release_local();
        // Who judges is of the start. Where the file has others judge from now on it names no users that this one could let in.
        let users = if config.judge == self.config.judge {
            config.users
        } else {
            core::mem::take(&mut self.config.users)
        };
        self.lockout.set_limit(users.failures);
        let Config { ppp, ports, trust_certificate_names, when_away, addressing, .. } = config;
        let Config { rates, limits, translation, .. } = config;
        self.config = Config {
            ppp,
            ports,
            users,
            trust_certificate_names,
            when_away,
            addressing,
            rates,
            limits,
            translation,
            aaa: self.config.aaa.take(),
            pools: core::mem::take(&mut self.config.pools),
            blocks: self.config.blocks.take(),
            ident: self.config.ident.take(),
            lost: Vec::new(),
            owed: Vec::new(),
            ..self.config
        };
        self.claim_local();
        Ok(())
    }
}

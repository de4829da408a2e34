//! The service's machine.

use crate::addresses::{AddressingConfig, AssignedAddresses};
use crate::grace::{GraceCache, WhenAway};
use crate::identity::{PendingTranslation, TranslationConfig};
use crate::login::PendingLogin;
use crate::session::{RateProfile, SessionEntry, SessionLimits, SessionUsage, UserSession};
use crate::status::ConcentratorStatus;
use crate::track::{LostSession, PortBlocks, SessionLogRecord, UnacknowledgedStop};
use crate::users::LocalUsers;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_access::pool::{AddressPools, PoolConfig};
use usher_access::{AaaClientConfig, AccessClient, LoginLockout, RecordKind, TerminateCause};
use usher_core::collections::{HashState, hash_state};
use usher_core::timer::{TimerQueue, earliest_deadline};
use usher_core::{
    ChildMachine, CommandError, Duration, Instant, JobRequest, ListenerId, Machine, MachineInput,
    MachineOutput, OutputOf, OutputQueue, OwnerPath, SecureRng, SocketId, WallTime,
};
use usher_ident::QueriedConnection;
use usher_ident_service::{self as ident, IdentService};
use usher_ppp::EndReason;
use usher_ppp::concentrator::{
    ConcentratorCommand, ConcentratorConfig, ConcentratorCounters, ConcentratorEvent, ConfigError,
    PppoeConcentrator, SessionId, SubscriberInfo,
};

/// The slot of PPPoE within the service.
pub const PPP_SLOT: u16 = 0;
/// The slot of the client of AAA servers.
pub const AAA_SLOT: u16 = 1;
/// The slot of the IDENT service.
pub const IDENT_SLOT: u16 = 2;
/// The socket at which AAA servers ask something of sessions, by RADIUS (RFC 5176).
pub const DYNAMIC_SOCKET: SocketId = usher_access::DYNAMIC_SOCKET.with_outer_slot(AAA_SLOT);
/// Where queries of IDENT are accepted.
pub const IDENT_LISTENER: ListenerId = ListenerId { owner: OwnerPath::from_slot(IDENT_SLOT), n: 0 };

/// Who judges what hosts show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthenticationBackend {
    /// The AAA server ([`AccessConcentratorConfig::aaa`]).
    Aaa,
    /// The concentrator itself ([`AccessConcentratorConfig::users`]).
    Local,
}

/// How a concentrator is.
#[derive(Clone, Debug)]
pub struct AccessConcentratorConfig {
    /// What PPPoE allows, and where.
    pub ppp: ConcentratorConfig,
    /// The names of its ports, in their order: what NAS-Port-Id and the log call them.
    pub ports: Vec<String>,
    /// Who judges what hosts show.
    pub judge: AuthenticationBackend,
    /// AAA servers, where there are some.
    pub aaa: Option<AaaClientConfig>,
    /// Users that the concentrator knows itself.
    pub users: LocalUsers,
    /// The AAA server lets nobody in by EAP-TLS whose certificate does not bear the name that the host gave.
    pub trust_certificate_names: bool,
    /// What becomes of hosts while no AAA server answers.
    pub when_away: WhenAway,
    /// What hosts get.
    pub addressing: AddressingConfig,
    /// Address pools. They hold together ([`usher_access::pool::check_pools`]).
    pub pools: Vec<PoolConfig>,
    /// Rates that an AAA server names by Filter-Id; that of the name `default` is everybody's without one.
    pub rates: Vec<RateProfile>,
    /// What nobody may exceed.
    pub limits: SessionLimits,
    /// Sessions are logged, and a host is let in when that has been done; otherwise [`ServiceJob::Log`] is not asked.
    pub logged: bool,
    /// Which ports of which address outside stand for a host inside (RFC 7422).
    pub blocks: Option<PortBlocks>,
    /// Who is told whose a connection is.
    pub ident: Option<ident::IdentServiceConfig>,
    /// What stands for hosts outside: addresses that many of them share.
    pub translation: TranslationConfig,
    /// The host carries packets, and tells what sessions have carried: [`AccessConcentratorCommand::UsageReport`] now and then, and
    /// [`AccessConcentratorCommand::Removed`] for each that it was told to remove, for which the last record of accounting waits.
    pub metered: bool,
    /// Sessions that the log has as open although this is a start: their concentrator was killed.
    pub lost: Vec<LostSession>,
    /// Sessions of earlier starts that have ended, and whose Stop no AAA server has acknowledged.
    pub unacknowledged_stops: Vec<UnacknowledgedStop>,
}

/// What a concentrator asks of slow helpers.
#[derive(Clone, PartialEq, Debug)]
pub enum ServiceJob {
    /// Write this into the log of sessions, so that it is there after a loss of power; [`AccessConcentratorCommand::Logged`] is owed.
    Log(Box<SessionLogRecord>),
    /// Which address and port inside does the system translate this connection's local end from? [`AccessConcentratorCommand::Translated`] is
    /// owed.
    Translation(QueriedConnection),
}

/// Which sessions are meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionSelector {
    /// All.
    All,
    /// That of this number ([`SessionStatus::id`](crate::SessionStatus::id)).
    Session(u64),
    /// Those of the user, the address, the station or the Acct-Session-Id of this name.
    Named(String),
}

/// What a concentrator is told.
#[derive(Clone, Debug)]
pub enum AccessConcentratorCommand {
    /// The answer to [`ServiceJob::Log`].
    Logged {
        /// Of the job.
        token: u64,
        /// It is there.
        is_stored: bool,
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
    UsageReport(Vec<(u16, SessionUsage)>),
    /// A session that was to be removed is no more.
    Removed {
        /// Of the event.
        id: u64,
        /// What it has carried in all; `None`: nobody knows.
        usage: Option<SessionUsage>,
    },
    /// A session could not be installed: it ends.
    NotInstalled {
        /// Of the event.
        id: u64,
    },
    /// Say how it is; [`AccessConcentratorEvent::Status`] is owed.
    Status {
        /// Comes back.
        token: u64,
    },
    /// End sessions; [`AccessConcentratorEvent::SessionsNotified`] is owed.
    Close {
        /// Comes back.
        token: u64,
        /// Which.
        selection: SessionSelector,
    },
    /// Be so from now on. Sessions that there are stay as they are; AAA servers, pools and the log are those of the start.
    Configure(Box<AccessConcentratorConfig>),
    /// The host ends: all sessions end, and nobody is let in any more.
    Leave,
}

/// Why a host was not let in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LoginFailure {
    /// The AAA server, or the concentrator itself, does not let the user in.
    Rejected,
    /// Too many logins of this name, or from this station, have failed lately.
    LockedOut,
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
pub enum AccessConcentratorEvent {
    /// Packets of this session are to be let through, or others than until now, before what is sent after this.
    Install(Box<SessionEntry>),
    /// Packets of this session are not to be let through any more. [`AccessConcentratorCommand::Removed`] is owed where sessions are metered.
    Remove {
        /// [`SessionEntry::id`].
        id: u64,
        /// [`SessionEntry::number`].
        number: u16,
    },
    /// A user was let in.
    LoginAccepted(Box<crate::SessionStatus>),
    /// A host was not.
    LoginFailed {
        /// Where it is.
        subscriber: SubscriberInfo,
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
    LoginAborted {
        /// Where its host is.
        subscriber: SubscriberInfo,
        /// Why.
        reason: EndReason,
    },
    /// For the log of sessions, behind what is there; it need not be on the disk at once.
    Log(Box<SessionLogRecord>),
    /// Answers [`AccessConcentratorCommand::Status`].
    Status {
        /// Of the command.
        token: u64,
        /// How it is.
        status: Box<ConcentratorStatus>,
    },
    /// So many sessions were told; answers [`AccessConcentratorCommand::Close`].
    SessionsNotified {
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
    Ident(ident::IdentServiceEvent),
    /// All has ended that was to end, and AAA servers have heard of it, or do not answer; answers [`AccessConcentratorCommand::Leave`].
    Left,
}

usher_core::counters! {
    /// What an [`AccessConcentrator`] did, beside what its parts count.
    pub struct AccessConcentratorCounters {
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
pub(crate) enum ConcentratorTimer {
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
pub(crate) struct UnacknowledgedRecord {
    /// Acct-Session-Id.
    pub(crate) session: String,
    /// It is a Stop of which the log says that it is owed.
    pub(crate) logged: bool,
}

/// How far a concentrator is that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShutdownPhase {
    /// Records of sessions are acknowledged.
    Sessions,
    /// The AAA server is told of the end.
    Off,
    /// All is said.
    Finished,
}

/// A PPPoE access concentrator; see the [crate](crate).
#[derive(Debug)]
pub struct AccessConcentrator {
    pub(crate) config: AccessConcentratorConfig,
    pub(crate) ppp: ChildMachine<PppoeConcentrator>,
    pub(crate) aaa: Option<ChildMachine<AccessClient>>,
    pub(crate) ident: Option<ChildMachine<IdentService>>,
    pub(crate) epoch: WallTime,
    pub(crate) rng: SecureRng,
    /// Sessions on the wire.
    pub(crate) attached: BTreeMap<SessionId, SubscriberInfo>,
    /// Hosts that show who they are.
    pub(crate) logins: BTreeMap<SessionId, PendingLogin>,
    /// Questions to AAA servers, by their tokens.
    pub(crate) aaa_requests: BTreeMap<u64, SessionId>,
    /// Sessions of users, by their numbers.
    pub(crate) sessions: BTreeMap<u64, UserSession>,
    /// Those of them that are on the wire.
    pub(crate) current: BTreeMap<SessionId, u64>,
    /// The same by SESSION_IDs.
    pub(crate) numbers: BTreeMap<u16, u64>,
    /// Sessions that have ended, and wait to be told what they have carried, or to be logged.
    pub(crate) closing: BTreeMap<u64, UserSession>,
    /// Sessions by users.
    pub(crate) users: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// Who has which address.
    pub(crate) assigned_addresses: AssignedAddresses,
    pub(crate) pools: AddressPools,
    pub(crate) hash: HashState,
    pub(crate) grace: GraceCache,
    pub(crate) lockout: LoginLockout,
    /// Sessions that the log is being told of.
    pub(crate) writing: BTreeMap<u64, u64>,
    /// What IDENT waits for, by the tokens of jobs.
    pub(crate) pending_translations: BTreeMap<u64, PendingTranslation>,
    pub(crate) timers: TimerQueue<ConcentratorTimer>,
    /// Records without an answer.
    pub(crate) records: BTreeMap<u64, UnacknowledgedRecord>,
    pub(crate) next_token: u64,
    /// What tells the sessions of this start from those of others.
    pub(crate) start: u32,
    pub(crate) next_session: u64,
    started: bool,
    pub(crate) leaving: bool,
    farewell: Option<ShutdownPhase>,
    pub(crate) counters: AccessConcentratorCounters,
    pub(crate) outputs: OutputQueue<AccessConcentratorEvent, ServiceJob>,
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
    pub fn new(config: AccessConcentratorConfig, mut rng: SecureRng) -> Result<Self, NewError> {
        let aaa = config.aaa.as_ref().map(|aaa| aaa.build_client(SecureRng::from_seed(rng.random_array())));
        let aaa = aaa.transpose().map_err(NewError::Aaa)?.map(|aaa| ChildMachine::new(AAA_SLOT, aaa));
        let ident = config.ident.clone().map(|ident| ChildMachine::new(IDENT_SLOT, IdentService::new(ident)));
        let ppp = PppoeConcentrator::new(config.ppp.clone(), SecureRng::from_seed(rng.random_array()));
        let ppp = ChildMachine::new(PPP_SLOT, ppp.map_err(NewError::Ppp)?);
        let hash = hash_state(&mut rng);
        let (start, secret) = (rng.next_u32(), rng.random_array());
        let mut this = Self {
            ppp,
            aaa,
            ident,
            epoch: WallTime::UNIX_EPOCH,
            attached: BTreeMap::new(),
            logins: BTreeMap::new(),
            aaa_requests: BTreeMap::new(),
            sessions: BTreeMap::new(),
            current: BTreeMap::new(),
            numbers: BTreeMap::new(),
            closing: BTreeMap::new(),
            users: BTreeMap::new(),
            assigned_addresses: AssignedAddresses::default(),
            pools: AddressPools::new(&config.pools, &hash),
            grace: GraceCache::new(secret),
            lockout: LoginLockout::new(config.users.failures, &hash),
            hash,
            writing: BTreeMap::new(),
            pending_translations: BTreeMap::new(),
            timers: TimerQueue::new(),
            records: BTreeMap::new(),
            next_token: 0,
            start,
            next_session: 0,
            started: false,
            leaving: false,
            farewell: None,
            counters: AccessConcentratorCounters::default(),
            outputs: OutputQueue::default(),
            rng,
            config,
        };
        this.claim_local();
        Ok(this)
    }
    /// What it has done, and what its PPPoE has.
    #[must_use]
    pub fn counters(&self) -> (&AccessConcentratorCounters, &ConcentratorCounters) {
        (&self.counters, self.ppp.counters())
    }
    /// What its client of AAA servers has done, where it asks by RADIUS.
    #[must_use]
    pub fn radius_counters(&self) -> Option<&usher_radius::client::RadiusClientCounters> {
        self.aaa.as_ref().and_then(|aaa| aaa.radius_counters())
    }
    /// Sessions of users that were let in.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn allocate_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }
    /// Tells PPPoE something. The session that is meant may be over.
    pub(crate) fn send_ppp_command(&mut self, now: Instant, command: ConcentratorCommand) {
        // Whoever was asked for may have gone meanwhile.
        let _ = self.ppp.handle_command(now, command);
    }

    /// What an earlier start has left is ended before anything else is told. The ends are in the log before the start is: if this one is
    /// killed meanwhile the next finds either the session open or its Stop owed.
    fn start_service(&mut self, now: Instant) {
        if core::mem::replace(&mut self.started, true) {
            return;
        }
        let owed = core::mem::take(&mut self.config.unacknowledged_stops);
        let lost: Vec<_> = core::mem::take(&mut self.config.lost)
            .into_iter()
            .map(|one| self.end_lost_session(now, one))
            .collect();
        if self.config.logged {
            let at = now.to_wall_time(self.epoch);
            self.outputs
                .push_event(AccessConcentratorEvent::Log(Box::new(SessionLogRecord::service_started(at))));
        }
        self.account_server(now, RecordKind::On);
        for one in owed {
            self.counters.stops_owed += 1;
            self.account_unacknowledged_stop(now, &one);
        }
        for one in lost {
            self.account_unacknowledged_stop(now, &one);
        }
        self.drain_children(now);
    }

    fn expire_timers(&mut self, now: Instant) {
        self.start_service(now);
        while let Some((_, timer)) = self.timers.pop_due(now) {
            match timer {
                ConcentratorTimer::SessionEnd(id) => self.session_end(now, id),
                ConcentratorTimer::Interim(id) => self.send_interim(now, id),
                ConcentratorTimer::Idle(id) => self.check_idle(now, id),
                ConcentratorTimer::Close(id) => {
                    if let Some(session) = self.closing.get_mut(&id) {
                        session.silent = true;
                    }
                    self.close_session(now, id);
                }
                ConcentratorTimer::Farewell => self.finish_shutdown(now, true),
            }
        }
    }

    /// Takes up what its parts say, until all are silent.
    pub(crate) fn drain_children(&mut self, now: Instant) {
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
                self.handle_aaa_event(now, event);
                continue;
            }
            if !self.drain_ident(now) {
                return;
            }
        }
    }

    /// Takes up what the IDENT service says and asks next; false: it is silent.
    fn drain_ident(&mut self, now: Instant) -> bool {
        let Some(ident) = &mut self.ident else { return false };
        let mut buf = self.outputs.take_buffer();
        let said = loop {
            match ident.poll_output(&mut buf) {
                Some(MachineOutput::Transmit(transmit)) => {
                    let next = self.outputs.take_buffer();
                    let bytes = core::mem::replace(&mut buf, next);
                    self.outputs.push_transmit(transmit.with_outer_slot(IDENT_SLOT), bytes);
                }
                Some(MachineOutput::Work(work)) => self.outputs.push_work(work),
                other => break other,
            }
        };
        self.outputs.recycle_buffer(buf);
        match said {
            Some(MachineOutput::Job(JobRequest {
                token,
                job: ident::IdentServiceJob::Owner(connection),
                ..
            })) => {
                self.owner_wanted(now, token, connection);
            }
            Some(MachineOutput::Event(event)) => {
                self.outputs.push_event(AccessConcentratorEvent::Ident(event))
            }
            _ => return false,
        }
        true
    }

    fn take_up(&mut self, now: Instant, event: ConcentratorEvent) {
        use ConcentratorEvent;
        match event {
            ConcentratorEvent::SessionStarted { session, subscriber } => {
                drop(self.attached.insert(session, subscriber))
            }
            ConcentratorEvent::Authenticate { session, user, proof, mtu } => {
                self.authenticate_host(now, (session, mtu), user, &proof);
            }
            ConcentratorEvent::Install { session, mtu, network, .. } => {
                self.install_network(now, session, mtu, network)
            }
            ConcentratorEvent::Remove { session, family } => self.remove_network(session, family),
            ConcentratorEvent::Mtu { session, mtu } => self.raise_mtu(session, mtu),
            ConcentratorEvent::Ended { session, reason } => self.off_the_wire(now, session, reason),
        }
    }

    /// A session is not on the wire any more.
    fn off_the_wire(&mut self, now: Instant, session: SessionId, reason: EndReason) {
        self.drop_login(now, session);
        let subscriber = self.attached.remove(&session);
        match (self.current.get(&session).copied(), subscriber) {
            (Some(id), _) => {
                self.finish_session(now, id, crate::session::terminate_cause(reason), reason.name())
            }
            // What this side has ended has been told of already.
            (None, Some(subscriber)) if reason != EndReason::Closed => {
                self.outputs.push_event(AccessConcentratorEvent::LoginAborted { subscriber, reason });
            }
            (None, _) => {}
        }
    }

    fn shut_down(&mut self, now: Instant) {
        self.leaving = true;
        self.send_ppp_command(now, ConcentratorCommand::CloseAll);
        self.drain_children(now);
        // The hosts' answers are not waited for, and the AAA server hears of the end now.
        for id in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.finish_session(now, id, TerminateCause::AdminReboot, "leaving");
        }
        for (id, session) in &mut self.closing {
            session.silent = true;
            self.timers.insert(now, ConcentratorTimer::Close(*id));
        }
        self.expire_timers(now);
        if self.config.logged {
            let at = now.to_wall_time(self.epoch);
            self.outputs
                .push_event(AccessConcentratorEvent::Log(Box::new(SessionLogRecord::service_stopped(at))));
        }
        if self.farewell.is_none() {
            self.farewell = Some(ShutdownPhase::Sessions);
            self.timers.insert(now + FAREWELL, ConcentratorTimer::Farewell);
        }
        self.drain_children(now);
        self.finish_shutdown(now, false);
    }

    /// Goes on with leaving where nothing is waited for any more, or the time for that is `over`: behind the records of sessions the
    /// AAA server is told of the end, with which it takes all that it knows for ended (RFC 2866 §5.1).
    pub(crate) fn finish_shutdown(&mut self, now: Instant, over: bool) {
        let Some(farewell) = self.farewell.filter(|_| over || self.records.is_empty()) else { return };
        if farewell == ShutdownPhase::Sessions {
            self.farewell = Some(ShutdownPhase::Off);
            self.give_up();
            self.account_server(now, RecordKind::Off);
            if !self.records.is_empty() {
                self.timers.insert(now + FAREWELL, ConcentratorTimer::Farewell);
                return;
            }
        }
        if farewell != ShutdownPhase::Finished {
            self.farewell = Some(ShutdownPhase::Finished);
            self.give_up();
            self.outputs.push_event(AccessConcentratorEvent::Left);
        }
    }
    /// Records that no server has kept when this side leaves.
    fn give_up(&mut self) {
        for UnacknowledgedRecord { session, logged } in core::mem::take(&mut self.records).into_values() {
            *(if logged { &mut self.counters.stops_left } else { &mut self.counters.records_lost }) += 1;
            self.outputs.push_event(AccessConcentratorEvent::Unaccounted { session, logged });
        }
    }

    /// Ends a connection that was accepted for nobody.
    fn refuse_input(&mut self, input: &MachineInput<'_>) {
        if let Some(refusal) = input.refusal() {
            self.outputs.push_operation(refusal);
        }
    }
}

impl Machine for AccessConcentrator {
    type Command = AccessConcentratorCommand;
    type Event = AccessConcentratorEvent;
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
        self.drain_children(now);
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        self.start_service(now);
        match (input.split_outer_slot(), &input) {
            (None, MachineInput::Frame { .. }) => self.ppp.handle_input(now, input),
            (None, MachineInput::Timeout) => {
                self.ppp.handle_input(now, MachineInput::Timeout);
                if let Some(aaa) = &mut self.aaa {
                    aaa.handle_input(now, MachineInput::Timeout);
                }
                if let Some(ident) = &mut self.ident {
                    ident.handle_input(now, MachineInput::Timeout);
                }
                self.expire_timers(now);
            }
            (Some((AAA_SLOT, inner)), _) => match &mut self.aaa {
                Some(aaa) => aaa.handle_input(now, inner),
                None => self.refuse_input(&input),
            },
            (Some((IDENT_SLOT, inner)), _) => match &mut self.ident {
                Some(ident) => ident.handle_input(now, inner),
                None => self.refuse_input(&input),
            },
            _ => self.refuse_input(&input),
        }
        self.drain_children(now);
    }

    fn handle_command(
        &mut self,
        now: Instant,
        command: AccessConcentratorCommand,
    ) -> Result<(), CommandError> {
        match command {
            AccessConcentratorCommand::Logged { token, is_stored: kept } => {
                self.handle_log_result(now, token, kept)
            }
            AccessConcentratorCommand::Translated { token, inner } => {
                self.handle_translation(now, token, inner)
            }
            AccessConcentratorCommand::UsageReport(all) => {
                // Until a session is removed what comes of its number is its own, though another has the number by now.
                let ending = self.closing.iter().rev().filter(|(_, session)| !session.silent);
                let ending: BTreeMap<u16, u64> =
                    ending.map(|(id, session)| (session.subscriber.number, *id)).collect();
                for (number, usage) in all {
                    if let Some(id) = ending.get(&number).or_else(|| self.numbers.get(&number)).copied() {
                        self.record_usage(now, id, &usage);
                    }
                }
            }
            AccessConcentratorCommand::Removed { id, usage } => self.handle_removed(now, id, usage.as_ref()),
            AccessConcentratorCommand::NotInstalled { id } => self.not_installed(now, id),
            AccessConcentratorCommand::Status { token } => {
                let status = Box::new(self.status(now));
                self.outputs.push_event(AccessConcentratorEvent::Status { token, status });
            }
            AccessConcentratorCommand::Close { token, selection: which } => {
                let sessions = self.close_all(now, &which);
                self.outputs.push_event(AccessConcentratorEvent::SessionsNotified { token, sessions });
            }
            AccessConcentratorCommand::Configure(config) => self.apply_config(now, *config)?,
            AccessConcentratorCommand::Leave => self.shut_down(now),
        }
        self.drain_children(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let begin = (!self.started).then_some(Instant::ZERO);
        let aaa = self.aaa.as_mut().and_then(|aaa| aaa.poll_timeout());
        let ident = self.ident.as_mut().and_then(|ident| ident.poll_timeout());
        earliest_deadline([begin, self.ppp.poll_timeout(), aaa, ident, self.timers.next_deadline()])
    }
}

impl AccessConcentrator {
    fn apply_config(&mut self, now: Instant, config: AccessConcentratorConfig) -> Result<(), CommandError> {
        self.ppp.handle_command(now, ConcentratorCommand::Configure(Box::new(config.ppp.clone())))?;
        if let (Some(ident), Some(config)) = (&mut self.ident, config.ident.clone()) {
            ident.handle_command(now, ident::IdentServiceCommand::Configure(config))?;
        }
        self.release_local();
        // Who judges is of the start. Where the file has others judge from now on it names no users that this one could let in.
        let users = if config.judge == self.config.judge {
            config.users
        } else {
            core::mem::take(&mut self.config.users)
        };
        self.lockout.set_limit(users.failures);
        let AccessConcentratorConfig { ppp, ports, trust_certificate_names, when_away, addressing, .. } =
            config;
        let AccessConcentratorConfig { rates, limits, translation, .. } = config;
        self.config = AccessConcentratorConfig {
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
            unacknowledged_stops: Vec::new(),
            ..self.config
        };
        self.claim_local();
        Ok(())
    }
}

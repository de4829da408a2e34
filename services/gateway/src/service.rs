//! The gateway's machine.

mod timer;

pub(crate) use timer::GatewayTimer;

use crate::addresses::{AddressLeases, LeaseWish};
use crate::login::EapLogin;
use crate::session::IkeSession;
use crate::status::GatewayStatus;
use crate::users::{EapJudgement, LocalUsers};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_access::pool::{Lease, PoolConfig};
use usher_access::{AaaClientConfig, AccessClient, ConfigError, LoginLockout, TerminateCause};
use usher_core::collections::hash_state;
use usher_core::timer::{TimerQueue, earliest_deadline};
use usher_core::{
    ChildMachine, CommandError, Duration, Instant, Machine, MachineInput, MachineOutput, OutputOf,
    OutputQueue, SecureRng, SocketId, WallTime,
};
use usher_esp::plane::SaUsage;
use usher_ike::IkeEndpoint;
use usher_ike::machine::{self as ike, EndReason, IkeConnection, IkeJob, SaId};
use usher_ike::payload::Identification;

/// The slot of the IKEv2 endpoint within the gateway.
pub const IKE_SLOT: u16 = 0;
/// The slot of the client of AAA servers.
pub const AAA_SLOT: u16 = 1;
/// The socket of UDP port 500, of IPv4.
pub const SOCKET: SocketId = ike::SOCKET.with_outer_slot(IKE_SLOT);
/// The socket of UDP port 4500, of IPv4, on which ESP comes too.
pub const NAT_SOCKET: SocketId = ike::NAT_SOCKET.with_outer_slot(IKE_SLOT);
/// The socket of UDP port 500, of IPv6.
pub const SOCKET_V6: SocketId = ike::SOCKET_V6.with_outer_slot(IKE_SLOT);
/// The socket of UDP port 4500, of IPv6.
pub const NAT_SOCKET_V6: SocketId = ike::NAT_SOCKET_V6.with_outer_slot(IKE_SLOT);
/// The socket at which AAA servers ask something of sessions, by RADIUS (RFC 5176).
pub const DYNAMIC_SOCKET: SocketId = usher_access::DYNAMIC_SOCKET.with_outer_slot(AAA_SLOT);

/// Who judges the EAP of initiators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EapJudge {
    /// The AAA server ([`GatewayConfig::aaa`]).
    Aaa,
    /// The gateway itself ([`GatewayConfig::users`]).
    Local,
}

/// A connection with what a gateway knows of it beside IKE.
#[derive(Clone, Debug)]
pub struct GatewayPeer {
    /// As the endpoint takes it.
    pub connection: Arc<IkeConnection>,
    /// Who judges EAP, where initiators prove themselves by that.
    pub judge: EapJudge,
    /// Names of the pools of which initiators get addresses; the first with a free one of the family that is asked for.
    pub pools: Vec<String>,
    /// Name servers that initiators are told of.
    pub dns: Vec<IpAddr>,
    /// Domains that these name servers are for (RFC 8598); none: for all.
    pub domains: Vec<String>,
    /// Of which address and port this side is; unspecified: whatever the host chooses.
    pub local: SocketAddr,
    /// Where the other side is, where this side may begin.
    pub remote: Option<SocketAddr>,
    /// Begun at the start, and again when it has ended without being told to.
    pub start: bool,
    /// How long after an end it is begun again.
    pub retry: Duration,
    /// A packet of the traffic of one of its CHILD_SAs begins it ([`GatewayCommand::Acquire`]).
    pub on_demand: bool,
    /// After how long this side, where it has begun, proves anew who it is (RFC 7296 §2.8.3); `None`: never.
    pub reauth_after: Option<Duration>,
    /// The old IKE_SA ends before a new one is begun; otherwise it ends when the new one is there.
    pub break_before_make: bool,
    /// An IKE_SA that has not been replaced ends after so long; `None`: never.
    pub lifetime: Option<Duration>,
    /// The same of its CHILD_SAs, in the order of the connection's.
    pub child_lifetimes: Vec<Option<Duration>>,
}

impl GatewayPeer {
    /// One that begins to this side, which is at this address and port: it is given nothing, and no time ends what it has.
    #[must_use]
    pub fn as_responder(connection: IkeConnection, local: SocketAddr) -> Self {
        Self {
            connection: Arc::new(connection),
            judge: EapJudge::Aaa,
            pools: Vec::new(),
            dns: Vec::new(),
            domains: Vec::new(),
            local,
            remote: None,
            start: false,
            retry: Duration::ZERO,
            on_demand: false,
            reauth_after: None,
            break_before_make: false,
            lifetime: None,
            child_lifetimes: Vec::new(),
        }
    }
}

/// How a gateway is.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// What the IKEv2 endpoint allows.
    pub endpoint: ike::IkeEndpointConfig,
    /// With whom there may be IKE_SAs, the preferred first.
    pub peers: Vec<Arc<GatewayPeer>>,
    /// Address pools. They hold together ([`usher_access::pool::check_pools`]).
    pub pools: Vec<PoolConfig>,
    /// The pools are those of other shards, too: addresses are asked for by [`GatewayJob::Lease`], and given back by
    /// [`GatewayEvent::Released`].
    pub pools_shared: bool,
    /// AAA servers, where there are some.
    pub aaa: Option<AaaClientConfig>,
    /// Users that the gateway knows itself.
    pub users: LocalUsers,
    /// The host carries packets of CHILD_SAs, and tells what they have carried: [`GatewayCommand::UsageReport`] now and then, and
    /// [`GatewayCommand::Removed`] for each that it was told to remove, for which the last record of accounting waits.
    pub metered: bool,
}

impl GatewayConfig {
    /// One that serves this peer alone, without pools, AAA servers and users of its own.
    #[must_use]
    pub fn for_peer(endpoint: ike::IkeEndpointConfig, peer: GatewayPeer) -> Self {
        Self {
            endpoint,
            peers: alloc::vec![Arc::new(peer)],
            pools: Vec::new(),
            pools_shared: false,
            aaa: None,
            users: LocalUsers::default(),
            metered: false,
        }
    }
}

/// What a gateway asks of slow helpers.
#[derive(Debug)]
pub enum GatewayJob {
    /// A signature, or a chain of certificates; [`GatewayCommand::Done`] is owed.
    Ike(IkeJob),
    /// A handshake of EAP-TLS with a user of the gateway's own; [`GatewayCommand::Judged`] is owed.
    Judge(Box<EapJudgement>),
    /// Addresses of pools that all shards share; [`GatewayCommand::Leased`] is owed.
    Lease(LeaseWish),
}

impl GatewayJob {
    /// What is owed for it where too many others wait.
    #[must_use]
    pub fn refusal_command(self, token: u64) -> GatewayCommand {
        match self {
            Self::Ike(_) => GatewayCommand::Done(ike::IkeCommand::Unable { token }),
            Self::Judge(judgement) => GatewayCommand::Unjudged(judgement.sa),
            Self::Lease(wish) => GatewayCommand::Leased { sa: wish.sa, leases: Vec::new() },
        }
    }
}

/// Which IKE_SAs are meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SaSelection {
    /// All.
    All,
    /// That of this number ([`SaStatus::id`](crate::SaStatus::id)).
    Sa(u64),
    /// Those of the connection, the identity, the user or the inner address of this name.
    Named(String),
}

/// What a gateway is told.
#[derive(Debug)]
pub enum GatewayCommand {
    /// The answer to [`GatewayJob::Ike`].
    Done(ike::IkeCommand),
    /// The answer to [`GatewayJob::Judge`]: the same, when it is [done](EapJudgement::run_judgement).
    Judged(Box<EapJudgement>),
    /// The answer to [`GatewayJob::Judge`] of this IKE_SA where too many others wait.
    Unjudged(SaId),
    /// The answer to [`GatewayJob::Lease`].
    Leased {
        /// Of which IKE_SA.
        sa: SaId,
        /// What there is.
        leases: Vec<Lease>,
    },
    /// Whoever was let in might not be any more, as when an authority has revoked certificates: tickets hold no more
    /// ([`ike::IkeCommand::VoidTickets`]).
    VoidTickets,
    /// These certificates are revoked: sessions end whose other side has proved who it is by one of them
    /// ([`ike::IkeCommand::Revoked`]).
    Revoked(Arc<BTreeSet<ike::CertificateName>>),
    /// Another shard has a new IKE_SA of these two, as it says by [`ike::IkeEvent::Replaces`].
    Replaced {
        /// That one.
        sa: SaId,
        /// By which connection it was let in.
        connection: String,
        /// Who this side is.
        local: Identification,
        /// Who the other side is.
        remote: Identification,
        /// The other side knows nothing of others any more.
        forgotten: bool,
    },
    /// Begin a connection; [`GatewayEvent::ConnectResult`] is owed.
    Connect {
        /// Comes back.
        token: u64,
        /// Its name.
        connection: String,
    },
    /// Say how it is; [`GatewayEvent::Status`] is owed.
    Status {
        /// Comes back.
        token: u64,
    },
    /// Replace IKE_SAs, or their CHILD_SAs, by new ones; [`GatewayEvent::SasNotified`] is owed.
    Rekey {
        /// Comes back.
        token: u64,
        /// Which.
        selection: SaSelection,
        /// Their CHILD_SAs instead of themselves.
        children: bool,
    },
    /// End IKE_SAs; [`GatewayEvent::SasNotified`] is owed. What the configuration begins at the start is not begun again.
    Down {
        /// Comes back.
        token: u64,
        /// Which.
        selection: SaSelection,
    },
    /// A packet needs a CHILD_SA: its connection is begun, where it is not there. [`GatewayEvent::Unprotected`] follows where there
    /// will be none.
    Acquire {
        /// The name of the connection.
        connection: String,
        /// The name of the CHILD_SA's configuration.
        child: String,
    },
    /// CHILD_SAs have carried so much in all, by the SPIs at which they receive.
    UsageReport(Vec<(u32, SaUsage)>),
    /// A CHILD_SA that was to be removed is no more.
    Removed {
        /// The SPI at which it received.
        inbound: u32,
        /// What it has carried in all; `None`: nobody knows.
        usage: Option<SaUsage>,
    },
    /// A CHILD_SA nears the end of what it may carry, or is at it, or was not installed.
    Expired {
        /// The SPI at which it receives.
        inbound: u32,
        /// It carries nothing any more.
        hard: bool,
    },
    /// This host's addresses have changed: from these a connection is to be had now. IKE_SAs that can move do (RFC 4555).
    Addresses(Vec<(String, SocketAddr)>),
    /// Be so from now on. IKE_SAs that there are stay as they are; AAA servers, pools and what the endpoint allows are those
    /// of the start.
    Configure(Box<GatewayConfig>),
    /// The host ends: all IKE_SAs end, and nothing is begun any more.
    Leave,
}

/// Why an initiator's login came to nothing, as far as the gateway knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LoginFailure {
    /// The AAA server, or the gateway itself, does not let the user in.
    Rejected,
    /// Too many logins of this name, or from there, have failed of late.
    LockedOut,
    /// No AAA server answers.
    Unanswered,
    /// Too many others are judged at this moment.
    Overload,
    /// What the AAA server says makes no sense.
    BadAnswer,
    /// The connection wants an AAA server, and there is none.
    NoAaa,
    /// The initiator names no user, or none that fits a request to an AAA server.
    NoName,
    /// No pool has an address left.
    NoAddress,
    /// The AAA server gives it the address that another user has, or another IKE_SA where each is to have its own (`unique = false`).
    AddressInUse,
}

/// What a gateway says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GatewayEvent {
    /// What its endpoint says: IKE_SAs come and go, and CHILD_SAs are to be installed, moved and removed. EAP packets and wishes
    /// for addresses, which the gateway answers itself, are not among it.
    Ike(ike::IkeEvent),
    /// A connection was begun, or why not; answers [`GatewayCommand::Connect`].
    ConnectResult {
        /// Of the command.
        token: u64,
        /// The IKE_SA's number.
        result: Result<u64, String>,
    },
    /// Answers [`GatewayCommand::Status`].
    Status {
        /// Of the command.
        token: u64,
        /// How it is.
        status: Box<GatewayStatus>,
    },
    /// So many SAs were told; answers [`GatewayCommand::Rekey`] and [`GatewayCommand::Down`].
    SasNotified {
        /// Of the command.
        token: u64,
        /// How many.
        sas: usize,
    },
    /// A login came to nothing.
    LoginFailed {
        /// From where.
        remote: SocketAddr,
        /// Which connection.
        connection: String,
        /// Who the initiator says it is.
        identity: Identification,
        /// Why.
        why: LoginFailure,
    },
    /// An AAA server ended or changed a session.
    Dynamic {
        /// The IKE_SA.
        sa: SaId,
        /// It is to end; otherwise its times have changed.
        end: bool,
    },
    /// A CHILD_SA that [`GatewayCommand::Acquire`] has asked for will not be.
    Unprotected {
        /// The name of the connection.
        connection: String,
        /// The name of the CHILD_SA's configuration; `None`: none of its CHILD_SAs.
        child: Option<String>,
    },
    /// A connection of this side has ended, and none has taken its place.
    ConnectionEnded {
        /// Its name.
        connection: String,
    },
    /// All has ended that was to end; answers [`GatewayCommand::Leave`].
    Left,
    /// A record of accounting that no AAA server kept.
    Unaccounted {
        /// Acct-Session-Id.
        session: String,
    },
    /// An address of pools that all shards share is free again.
    Released(Lease),
    /// An AAA server answers, or no longer.
    Server {
        /// Its number among the configured ones.
        server: usize,
        /// It answers.
        up: bool,
    },
}

usher_core::counters! {
    /// What a [`IkeGateway`] did, beside what its endpoint and its client of AAA servers count.
    pub struct GatewayCounters {
        /// Users let in by EAP.
        logins_accepted,
        /// Users turned away by EAP.
        logins_rejected,
        /// Logins of the gateway's own users that were not weighed, since too many of their name or host have failed.
        logins_held_back,
        /// Logins that no AAA server decided.
        logins_unanswered,
        /// Addresses given to initiators.
        addresses_given,
        /// Initiators who got no address, since no pool has one left.
        addresses_exhausted,
        /// Sessions begun: IKE_SAs that others began and that were established.
        sessions,
        /// Records of accounting sent.
        records,
        /// Records of accounting that no server kept.
        records_lost,
        /// Sessions ended, since their time was over.
        sessions_timed_out,
        /// Sessions ended by an AAA server.
        sessions_disconnected,
        /// Sessions changed by an AAA server.
        sessions_changed,
        /// Requests of AAA servers that were refused.
        dynamic_refused,
        /// Connections begun by this side.
        initiated,
        /// IKE_SAs of this side that were begun anew, so that both prove again who they are.
        reauthentications,
        /// IKE_SAs that ended since nobody had replaced them in their time.
        expired,
        /// CHILD_SAs that ended since nobody had replaced them in their time.
        children_expired,
        /// Packets that needed a CHILD_SA, as far as the host has told.
        acquired,
        /// Octets of packets that have come by CHILD_SAs.
        received_octets,
        /// Packets that have come by CHILD_SAs.
        received_packets,
        /// Octets of packets that have gone by CHILD_SAs.
        sent_octets,
        /// Packets that have gone by CHILD_SAs.
        sent_packets,
    }
}

/// An IKEv2 gateway; see the [crate](crate).
#[derive(Debug)]
pub struct IkeGateway {
    pub(crate) config: GatewayConfig,
    pub(crate) ike: ChildMachine<IkeEndpoint>,
    pub(crate) aaa: Option<ChildMachine<AccessClient>>,
    pub(crate) epoch: WallTime,
    pub(crate) rng: SecureRng,
    /// Initiators who prove who they are, or wait for an address.
    pub(crate) logins: BTreeMap<SaId, EapLogin>,
    /// Questions to AAA servers, by their tokens.
    pub(crate) aaa_requests: BTreeMap<u64, SaId>,
    /// Failed logins of its own users.
    pub(crate) lockout: LoginLockout,
    /// IKE_SAs that are established.
    pub(crate) sessions: BTreeMap<SaId, IkeSession>,
    /// Its own pools, where it does not share them.
    pub(crate) leases: Option<AddressLeases>,
    pub(crate) timers: TimerQueue<GatewayTimer>,
    /// Records without an answer: of which session.
    pub(crate) records: BTreeMap<u64, String>,
    pub(crate) next_token: u64,
    /// What tells the sessions of this start from those of others.
    pub(crate) start: u32,
    pub(crate) next_session: u32,
    /// IKE_SAs that this side began: by which connection of the configuration.
    pub(crate) initiated_connections: BTreeMap<SaId, String>,
    /// Connections that are not begun again, since they were told to end.
    stopped: BTreeSet<String>,
    /// Sessions that have ended, and wait to be told what their CHILD_SAs have carried.
    pub(crate) closing: BTreeMap<SaId, IkeSession>,
    /// Of which IKE_SA CHILD_SAs are, or were, by the SPIs at which they receive.
    pub(crate) owners: BTreeMap<u32, SaId>,
    /// IKE_SAs that this side ends, so as to begin them anew.
    pub(crate) renewing: BTreeSet<SaId>,
    /// IKE_SAs that are to take the place of others: of which, and which CHILD_SAs are still to come.
    pub(crate) replacing: BTreeMap<SaId, (SaId, BTreeSet<String>)>,
    /// Packets wait for CHILD_SAs of these connections, which are being begun.
    pub(crate) on_demand_children: BTreeMap<String, BTreeSet<String>>,
    /// When connections that packets had begun came to nothing.
    pub(crate) failed: BTreeMap<String, Instant>,
    /// What [`ike::IkeEvent::Initiated`] is awaited for.
    initiating: Option<SaId>,
    started: bool,
    pub(crate) leaving: bool,
    /// All has ended, which is not said yet.
    pub(crate) parting: bool,
    pub(crate) counters: GatewayCounters,
    pub(crate) outputs: OutputQueue<GatewayEvent, GatewayJob>,
}

impl IkeGateway {
    /// A gateway that is so. Keys, addresses and the names of sessions come of `rng`.
    ///
    /// # Errors
    /// The client of AAA servers is configured in contradiction to itself.
    pub fn new(config: GatewayConfig, mut rng: SecureRng) -> Result<Self, ConfigError> {
        let aaa = config.aaa.as_ref().map(|aaa| aaa.build_client(SecureRng::from_seed(rng.random_array())));
        let aaa = aaa.transpose()?.map(|aaa| ChildMachine::new(AAA_SLOT, aaa));
        let hash = hash_state(&mut rng);
        let mut endpoint = IkeEndpoint::new(config.endpoint, SecureRng::from_seed(rng.random_array()));
        let served = served_connections(&config);
        // It takes them whatever they are.
        let _ = endpoint.handle_command(Instant::ZERO, ike::IkeCommand::Serve(served));
        let start = rng.next_u32();
        Ok(Self {
            ike: ChildMachine::new(IKE_SLOT, endpoint),
            aaa,
            epoch: WallTime::UNIX_EPOCH,
            logins: BTreeMap::new(),
            aaa_requests: BTreeMap::new(),
            lockout: LoginLockout::new(config.users.failures, &hash),
            leases: (!config.pools_shared).then(|| AddressLeases::with_hash(&config.pools, hash, start)),
            sessions: BTreeMap::new(),
            timers: TimerQueue::new(),
            records: BTreeMap::new(),
            next_token: 0,
            start,
            next_session: 0,
            initiated_connections: BTreeMap::new(),
            stopped: BTreeSet::new(),
            closing: BTreeMap::new(),
            owners: BTreeMap::new(),
            renewing: BTreeSet::new(),
            replacing: BTreeMap::new(),
            on_demand_children: BTreeMap::new(),
            failed: BTreeMap::new(),
            initiating: None,
            started: false,
            leaving: false,
            parting: false,
            counters: GatewayCounters::default(),
            outputs: OutputQueue::default(),
            rng,
            config,
        })
    }
    /// What it has done, and what its endpoint has.
    #[must_use]
    pub fn counters(&self) -> (&GatewayCounters, &ike::IkeCounters) {
        (&self.counters, self.ike.counters())
    }
    /// What its client of AAA servers has done, where it asks by RADIUS.
    #[must_use]
    pub fn radius_counters(&self) -> Option<&usher_radius::client::RadiusClientCounters> {
        self.aaa.as_ref().and_then(|aaa| aaa.radius_counters())
    }
    /// IKE_SAs that are established.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }
    /// IKE_SAs whose initiator has not proved who it is.
    #[must_use]
    pub fn half_open(&self) -> usize {
        self.ike.half_open()
    }
    /// How much of each address pool of its own is in use: its name, addresses in use, addresses in all.
    pub fn pool_usage(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.leases.iter().flat_map(AddressLeases::pool_usage)
    }

    pub(crate) fn next_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }
    pub(crate) fn find_peer(&self, connection: &str) -> Option<Arc<GatewayPeer>> {
        self.config.peers.iter().find(|peer| peer.connection.name == connection).cloned()
    }
    /// Tells the endpoint something. What was asked may have been given up meanwhile.
    pub(crate) fn send_ike_command(&mut self, now: Instant, command: ike::IkeCommand) -> bool {
        self.ike.handle_command(now, command).is_ok()
    }

    /// Begins a connection; gives the IKE_SA.
    pub(crate) fn initiate_connection(&mut self, now: Instant, peer: &GatewayPeer) -> Result<SaId, String> {
        let Some(remote) = peer.remote else {
            return Err("its other side is to begin: the configuration has no remote_address for it".into());
        };
        let (connection, local) = (peer.connection.clone(), peer.local);
        let command = ike::IkeCommand::Initiate { token: 0, connection, local, remote };
        self.ike.handle_command(now, command).map_err(|error| alloc::format!("{error}"))?;
        self.counters.initiated += 1;
        self.drain_outputs(now);
        let sa = self.initiating.take().ok_or("it has ended at once")?;
        self.initiated_connections.insert(sa, peer.connection.name.clone());
        Ok(sa)
    }
    /// Whether this side began an IKE_SA.
    pub(crate) fn is_begun(&self, sa: SaId) -> bool {
        self.initiated_connections.contains_key(&sa)
    }

    /// Begins what is to be begun, and notes when it is to be tried again.
    fn start_connection(&mut self, now: Instant, n: usize) {
        let begins = |peer: &&Arc<GatewayPeer>| peer.start && !self.stopped.contains(&peer.connection.name);
        let Some(peer) = self.config.peers.get(n).filter(begins).cloned() else { return };
        if self.initiate_connection(now, &peer).is_err() {
            self.timers.insert(now + peer.retry, GatewayTimer::Reconnect(n));
        }
    }

    fn start_connections(&mut self, now: Instant) {
        if !core::mem::replace(&mut self.started, true) {
            self.account_begin(now);
            (0..self.config.peers.len()).for_each(|n| self.start_connection(now, n));
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.start_connections(now);
        while let Some((_, timer)) = self.timers.pop_due(now) {
            match timer {
                GatewayTimer::SessionEnd(sa) => {
                    if let Some(session) = self.sessions.get_mut(&sa) {
                        session.cause = TerminateCause::SessionTimeout;
                        session.ends = None;
                        self.counters.sessions_timed_out += 1;
                        self.send_ike_command(now, ike::IkeCommand::Delete(sa));
                    }
                }
                GatewayTimer::Interim(sa) => self.send_interim(now, sa),
                GatewayTimer::Reconnect(n) => self.start_connection(now, n),
                GatewayTimer::Close(sa) => self.close_session(now, sa),
                GatewayTimer::Renew(n) => self.renew_connection(now, n),
                GatewayTimer::Reauthenticate(sa) => self.reauthenticate_sa(now, sa),
                GatewayTimer::Expire(sa) => self.expire_sa(now, sa),
                GatewayTimer::ExpireChild(inbound) => self.expire_child(now, inbound),
                GatewayTimer::Farewell => self.finish_shutdown(true),
            }
        }
    }

    /// The next thing that the endpoint says; what it sends before that is sent.
    fn next_ike_event(&mut self) -> Option<ike::IkeEvent> {
        let mut buf = self.outputs.take_buffer();
        let event = loop {
            match self.ike.poll_output(&mut buf) {
                Some(MachineOutput::Transmit(transmit)) => {
                    let next = self.outputs.take_buffer();
                    let bytes = core::mem::replace(&mut buf, next);
                    self.outputs.push_transmit(transmit.with_outer_slot(IKE_SLOT), bytes);
                }
                Some(MachineOutput::Work(work)) => self.outputs.push_work(work),
                Some(MachineOutput::Job(job)) => self.outputs.push_job(job.map(GatewayJob::Ike)),
                Some(MachineOutput::Event(event)) => break Some(event),
                None => break None,
            }
        };
        self.outputs.recycle_buffer(buf);
        event
    }

    /// Takes up what its parts say, until both are silent.
    pub(crate) fn drain_outputs(&mut self, now: Instant) {
        loop {
            if let Some(event) = self.next_ike_event() {
                self.take_up(now, event);
                continue;
            }
            let said = match &mut self.aaa {
                Some(aaa) => self.outputs.next_event(aaa),
                None => None,
            };
            match said {
                Some(event) => self.handle_aaa_event(now, event),
                None => return,
            }
        }
    }

    fn take_up(&mut self, now: Instant, event: ike::IkeEvent) {
        match event {
            ike::IkeEvent::Eap { sa, identity, connection, remote, packet } => {
                return self.handle_eap(now, (sa, identity, connection, remote), &packet);
            }
            ike::IkeEvent::AddressRequested { sa, identity, connection, remote, attributes } => {
                return self.address_wanted(now, (sa, identity, connection, remote), attributes);
            }
            ike::IkeEvent::Initiated { sa, .. } => self.initiating = Some(sa),
            ike::IkeEvent::Established { sa, .. } => {
                self.track_ike_event(now, &event);
                self.wanted_children(now, sa);
            }
            ike::IkeEvent::Install { .. }
            | ike::IkeEvent::Remove { .. }
            | ike::IkeEvent::Configured { .. }
            | ike::IkeEvent::Moved { .. } => self.track_ike_event(now, &event),
            ike::IkeEvent::Rekeyed { old, new, spis } => {
                self.renumber_session(now, old, new, spis);
                self.rename_sa(old, new);
                if let Some(name) = self.initiated_connections.remove(&old) {
                    self.initiated_connections.insert(new, name);
                }
            }
            ike::IkeEvent::Ended { sa, reason } => {
                self.initiating = self.initiating.filter(|begun| *begun != sa);
                self.report_unprotected(now, sa);
                self.end_session(now, sa, reason);
                self.outputs.push_event(GatewayEvent::Ike(event));
                self.not_renewed(now, sa);
                return self.restart_connection(now, sa, reason);
            }
            ike::IkeEvent::ChildRefused { sa, ref name, .. } => self.handle_child_refused(now, sa, name),
            ike::IkeEvent::Keys { .. }
            | ike::IkeEvent::Alive { .. }
            | ike::IkeEvent::MoveRefused { .. }
            | ike::IkeEvent::Unproved { .. }
            | ike::IkeEvent::TooManyFailedProofs { .. }
            | ike::IkeEvent::Replaces { .. } => {}
        }
        self.outputs.push_event(GatewayEvent::Ike(event));
    }

    /// An IKE_SA that this side began has ended: it is begun again, unless it was told to end.
    fn restart_connection(&mut self, now: Instant, sa: SaId, reason: EndReason) {
        let Some(name) = self.initiated_connections.remove(&sa) else { return };
        let renews = self.renewing.remove(&sa);
        // Another has taken its place.
        if self.initiated_connections.values().any(|other| *other == name) {
            return;
        }
        let begins = !self.leaving && !self.stopped.contains(&name);
        let n = self.config.peers.iter().position(|peer| peer.connection.name == name);
        let n = n.filter(|_| begins);
        if let Some(n) = n.filter(|_| renews) {
            self.timers.insert(now, GatewayTimer::Renew(n));
            return;
        }
        self.outputs.push_event(GatewayEvent::ConnectionEnded { connection: name });
        let starts = |n: &usize| self.config.peers.get(*n).is_some_and(|peer| peer.start);
        let Some(n) = n.filter(starts).filter(|_| reason != EndReason::Deleted) else { return };
        let retry = self.config.peers.get(n).map_or(Duration::ZERO, |peer| peer.retry);
        self.timers.insert(now + retry, GatewayTimer::Reconnect(n));
    }

    /// Tells something to the IKE_SAs that are meant; gives how many SAs were told.
    fn apply_to_selection(&mut self, now: Instant, which: &SaSelection, children: bool, end: bool) -> usize {
        let meant = |(sa, session): (&SaId, &IkeSession)| match which {
            SaSelection::All => Some(*sa),
            SaSelection::Sa(n) => (sa.0 == *n).then_some(*sa),
            SaSelection::Named(name) => session.is_called(name).then_some(*sa),
        };
        let meant: Vec<SaId> = self.sessions.iter().filter_map(meant).collect();
        let mut told = 0;
        for sa in meant {
            let spis: Vec<u32> = match self.sessions.get_mut(&sa) {
                Some(session) if end => {
                    (session.cause, session.is_ended_by_command) = (TerminateCause::AdminReset, true);
                    self.renewing.remove(&sa);
                    Vec::new()
                }
                Some(session) if children => session.children.keys().copied().collect(),
                _ => Vec::new(),
            };
            let commands: Vec<_> = match (end, children) {
                (true, _) => alloc::vec![ike::IkeCommand::Delete(sa)],
                (false, true) => {
                    spis.into_iter().map(|spi| ike::IkeCommand::RekeyChild { sa, spi }).collect()
                }
                (false, false) => alloc::vec![ike::IkeCommand::Rekey(sa)],
            };
            told +=
                commands.into_iter().filter(|command| self.send_ike_command(now, command.clone())).count();
        }
        told
    }

    /// Connections of this side that are meant are not begun again; those that are being begun end. Gives how many of these.
    fn stop_connections(&mut self, now: Instant, which: &SaSelection) -> usize {
        let meant = |name: &str| {
            matches!(which, SaSelection::All) || matches!(which, SaSelection::Named(n) if n == name)
        };
        let names = self.config.peers.iter().filter(|peer| peer.start).map(|peer| &peer.connection.name);
        self.stopped.extend(names.filter(|name| meant(name)).cloned());
        let under_way = self.initiated_connections.iter().filter(|(sa, name)| {
            let meant = meant(name) || matches!(which, SaSelection::Sa(n) if sa.0 == *n);
            meant && !self.sessions.contains_key(sa)
        });
        let under_way: Vec<SaId> = under_way.map(|(sa, _)| *sa).collect();
        under_way.into_iter().filter(|sa| self.send_ike_command(now, ike::IkeCommand::Delete(*sa))).count()
    }
}

fn served_connections(config: &GatewayConfig) -> Vec<Arc<IkeConnection>> {
    config.peers.iter().map(|peer| peer.connection.clone()).collect()
}

impl Machine for IkeGateway {
    type Command = GatewayCommand;
    type Event = GatewayEvent;
    type Job = GatewayJob;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.epoch = epoch;
        self.config.users.set_clock(now.to_wall_time(epoch));
        self.ike.set_epoch(now, epoch);
        if let Some(aaa) = &mut self.aaa {
            aaa.set_epoch(now, epoch);
        }
        self.drain_outputs(now);
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        self.config.users.set_clock(now.to_wall_time(self.epoch));
        match input.split_outer_slot() {
            Some((IKE_SLOT, input)) => self.ike.handle_input(now, input),
            Some((AAA_SLOT, inner)) => match &mut self.aaa {
                Some(aaa) => aaa.handle_input(now, inner),
                None => self.refuse_input(&input),
            },
            Some(_) => self.refuse_input(&input),
            None if matches!(input, MachineInput::Timeout) => {
                self.ike.handle_input(now, MachineInput::Timeout);
                if let Some(aaa) = &mut self.aaa {
                    aaa.handle_input(now, MachineInput::Timeout);
                }
                self.handle_timeout(now);
            }
            None => self.refuse_input(&input),
        }
        self.drain_outputs(now);
    }

    fn handle_command(&mut self, now: Instant, command: GatewayCommand) -> Result<(), CommandError> {
        match command {
            GatewayCommand::Done(command) => self.ike.handle_command(now, command)?,
            GatewayCommand::Judged(judgement) => self.apply_judgement(now, *judgement),
            GatewayCommand::Unjudged(sa) => self.fail_unanswered(now, sa, LoginFailure::Overload),
            GatewayCommand::VoidTickets => self.ike.handle_command(now, ike::IkeCommand::VoidTickets)?,
            GatewayCommand::Revoked(names) => {
                self.ike.handle_command(now, ike::IkeCommand::Revoked(names))?
            }
            GatewayCommand::Leased { sa, leases } => self.apply_leases(now, sa, leases),
            GatewayCommand::Replaced { sa, connection, local, remote, forgotten } => {
                self.ike.handle_command(
                    now,
                    ike::IkeCommand::Replaced { sa, connection, local, remote, forgotten },
                )?;
            }
            GatewayCommand::Connect { token, connection } => {
                self.stopped.remove(&connection);
                let peer = self.find_peer(&connection).ok_or_else(|| {
                    alloc::format!("there is no connection \"{connection}\" in the configuration")
                });
                let result = peer.and_then(|peer| self.initiate_connection(now, &peer)).map(|sa| sa.0);
                self.outputs.push_event(GatewayEvent::ConnectResult { token, result });
            }
            GatewayCommand::Status { token } => {
                let status = Box::new(self.gateway_status(now));
                self.outputs.push_event(GatewayEvent::Status { token, status });
            }
            GatewayCommand::Rekey { token, selection: which, children } => {
                let sas = self.apply_to_selection(now, &which, children, false);
                self.outputs.push_event(GatewayEvent::SasNotified { token, sas });
            }
            GatewayCommand::Down { token, selection: which } => {
                let sas =
                    self.apply_to_selection(now, &which, false, true) + self.stop_connections(now, &which);
                self.outputs.push_event(GatewayEvent::SasNotified { token, sas });
            }
            GatewayCommand::Configure(config) => {
                self.config.peers = config.peers;
                self.lockout.set_limit(config.users.failures);
                self.config.users = config.users;
                self.config.users.set_clock(now.to_wall_time(self.epoch));
                let served = served_connections(&self.config);
                self.ike.handle_command(now, ike::IkeCommand::Serve(served))?;
            }
            GatewayCommand::Acquire { connection, child } => self.acquire_child(now, &connection, child),
            GatewayCommand::UsageReport(pairs) => {
                pairs.into_iter().for_each(|(inbound, usage)| self.record_usage(now, inbound, &usage));
            }
            GatewayCommand::Removed { inbound, usage } => self.finish_removal(now, inbound, usage.as_ref()),
            GatewayCommand::Expired { inbound, hard } => self.handle_expiry(now, inbound, hard),
            GatewayCommand::Addresses(own) => self.addresses_changed(now, &own),
            GatewayCommand::Leave => self.start_shutdown(now),
        }
        self.drain_outputs(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        // An AAA server hears that this one begins before anybody comes: later it would end the sessions that have begun meanwhile.
        let begins = || self.aaa.is_some() || self.config.peers.iter().any(|peer| peer.start);
        let start = (!self.started && begins()).then_some(Instant::ZERO);
        let aaa = self.aaa.as_mut().and_then(|aaa| aaa.poll_timeout());
        earliest_deadline([start, self.ike.poll_timeout(), aaa, self.timers.next_deadline()])
    }
}

impl IkeGateway {
    /// Ends a connection that was accepted for nobody.
    fn refuse_input(&mut self, input: &MachineInput<'_>) {
        if let Some(refusal) = input.refusal() {
            self.outputs.push_operation(refusal);
        }
    }
}

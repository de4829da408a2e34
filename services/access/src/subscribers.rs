//! The subscribers of an access server: their logins, authorizations, addresses and accounting.
//!
//! ```text
//! service ─ authenticate(access, LoginAttempt) ─▶ SubscriberManager ─▶ AAA server, or local users
//!         ◀─ SubscriberEvent::Login: continue, accept with a SubscriberGrant, reject ─
//! service ─ open_session, start_accounting, add_traffic ──────▶ SubscriberManager ─ records ─▶ AAA server
//!         ◀─ SubscriberEvent::{End, Disconnect, Change}: a timeout, or an AAA server's request ─
//! service ─ end_session, take_closed_session, stop_accounting ─▶ SubscriberManager ─ Stop ─▶ AAA server
//! service ─ shut_down ─▶ SubscriberManager ─ SubscriberEvent::Left, after all records ─▶ service
//! ```
//! A service names an access by a key of its own: a PPPoE session, an IKE_SA. A session has a number that never changes.
//! The service keeps its own state of a session in it ([`SubscriberSession::access`]).

mod accounting;
mod attempt;
mod config;
mod dynamic;
mod grant;
mod login;
mod session;
mod session_times;
mod shutdown;

pub use attempt::{AuthenticationBackend, LoginAnswer, LoginAttempt, LoginFailure, is_identity_response};
pub use config::{RateProfile, ServerRecords, SubscriberConfig, SubscriberPlace};
pub use grant::SubscriberGrant;
pub use session::{NewSubscriberSession, SubscriberAddresses, SubscriberSession};

use crate::TerminateCause;
use crate::addresses::AddressLeases;
use crate::client::AccessClient;
use crate::grace::AuthorizationCache;
use crate::local_users::EapStepJob;
use crate::lockout::LoginLockout;
use crate::pool::Lease;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use attempt::PendingLogin;
use core::fmt;
use core::net::IpAddr;
use usher_core::collections::SeededHashState;
use usher_core::timer::{TimerQueue, earliest_deadline};
use usher_core::{
    ChildMachine, CommandError, Instant, Machine, MachineInput, MachineOutputOf, OutputQueue, SecureRng,
    WallTime,
};

/// A service's key of an access: a PPPoE session, an IKE_SA.
pub trait SubscriberKey: Copy + Ord + fmt::Debug {}

impl<K: Copy + Ord + fmt::Debug> SubscriberKey for K {}

/// A command to a [`SubscriberManager`]: the result of its job.
#[derive(Debug)]
pub enum SubscriberCommand<K> {
    /// The job, [done](EapStepJob::run_eap_step).
    StepDone(Box<EapStepJob<K>>),
    /// The job was dropped under load.
    StepDropped {
        /// The access.
        access: K,
        /// The token of the job.
        token: u64,
    },
}

/// An event of a [`SubscriberManager`].
#[derive(Clone, PartialEq, Debug)]
pub enum SubscriberEvent<K> {
    /// The reply to [`SubscriberManager::authenticate`].
    Login {
        /// The access.
        access: K,
        /// The reply.
        answer: LoginAnswer,
    },
    /// A session's time is over. The service ends it.
    End {
        /// Its number.
        id: u64,
        /// The cause: Session-Timeout or Idle-Timeout.
        cause: TerminateCause,
    },
    /// An AAA server disconnects a session. The service ends it.
    Disconnect {
        /// Its number.
        id: u64,
    },
    /// An AAA server has changed the authorization of a session.
    Change {
        /// Its number.
        id: u64,
        /// True if its rates may have changed.
        changes_rates: bool,
    },
    /// An ended session no longer waits for its last traffic. The service closes it.
    CloseDue {
        /// Its number.
        id: u64,
    },
    /// An accounting record was lost: no AAA server acknowledged it.
    Unaccounted {
        /// Acct-Session-Id.
        session: String,
        /// True if the service has logged the record. The next start sends it again.
        is_logged: bool,
    },
    /// An AAA server has acknowledged a logged Stop.
    StopAcknowledged {
        /// Acct-Session-Id.
        session: String,
    },
    /// An address of the shared pools is free again.
    Released(Lease),
    /// An AAA server has become available or unavailable.
    Server {
        /// Its index among the configured servers.
        server: usize,
        /// True if it is available.
        up: bool,
    },
    /// The shutdown is complete.
    Left,
}

usher_core::counters! {
    /// Counters of subscribers, of all kinds of access servers.
    pub struct SubscriberCounters {
        /// Logins rejected.
        logins_rejected,
        /// Logins rejected without a check because of a lockout of the user name or of the origin.
        logins_locked_out,
        /// Logins that no AAA server decided.
        logins_unanswered,
        /// Logins accepted by the grace policy while no AAA server answered.
        logins_in_grace,
        /// Sessions continued beyond their session timeout because no AAA server answered.
        sessions_in_grace,
        /// Accounting records sent.
        records,
        /// Accounting records lost: no server acknowledged them in time.
        records_lost,
        /// Accounting Stops without an acknowledgment at the end of this program. The session log keeps them for the
        /// next start.
        stops_left,
        /// Sessions ended by their session timeout.
        sessions_timed_out,
        /// Sessions ended by their idle timeout.
        sessions_idle,
        /// Sessions ended by an AAA server.
        sessions_disconnected,
        /// Sessions changed by an AAA server.
        sessions_changed,
        /// Requests of AAA servers refused.
        dynamic_refused,
    }
}

/// A timer of a session, by its number, or of the shutdown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum SubscriberTimer {
    /// A session's maximum time is over.
    SessionEnd(u64),
    /// An Interim-Update is due.
    Interim(u64),
    /// A session may have been idle too long.
    Idle(u64),
    /// An ended session no longer waits for its last traffic.
    Close(u64),
    /// The shutdown no longer waits for AAA servers.
    Farewell,
}

/// An accounting record without an acknowledgement.
#[derive(Debug)]
struct UnacknowledgedRecord {
    /// Acct-Session-Id.
    session: String,
    /// True if the service has logged it.
    is_logged: bool,
}

/// The phase of a shutdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ShutdownPhase {
    /// Waits for acknowledgements of the sessions' records.
    Sessions,
    /// Waits for the acknowledgement of Accounting-Off.
    Off,
    /// Finished.
    Finished,
}

/// The subscribers of an access server. `K` is the key of an access, `A` the service's own state of a session.
#[derive(Debug)]
pub struct SubscriberManager<K, A> {
    config: SubscriberConfig,
    client: Option<ChildMachine<AccessClient>>,
    epoch: WallTime,
    rng: SecureRng,
    hash: SeededHashState,
    logins: BTreeMap<K, PendingLogin>,
    /// Logins by the tokens of their requests to AAA servers.
    requests: BTreeMap<u64, K>,
    lockout: LoginLockout,
    grace: AuthorizationCache,
    sessions: BTreeMap<u64, SubscriberSession<A>>,
    /// Ended sessions that wait for their last traffic or for the log.
    closing: BTreeMap<u64, SubscriberSession<A>>,
    /// Sessions by user.
    users: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// The pools and leases, unless shards share them.
    leases: Option<AddressLeases>,
    timers: TimerQueue<SubscriberTimer>,
    /// Records without an acknowledgement.
    records: BTreeMap<u64, UnacknowledgedRecord>,
    next_token: u64,
    /// Distinguishes the Acct-Session-Ids of this start from those of others.
    start: u32,
    last_session: u64,
    is_leaving: bool,
    /// The phase of the shutdown, and the end of its wait.
    shutdown: Option<(ShutdownPhase, Instant)>,
    counters: SubscriberCounters,
    outputs: OutputQueue<SubscriberEvent<K>, EapStepJob<K>>,
}

impl<K: SubscriberKey, A: fmt::Debug> SubscriberManager<K, A> {
    /// Creates a manager without subscribers. The client is one of [`SubscriberConfig::aaa`]
    /// ([`build_client`](crate::AaaClientConfig::build_client)). `hash` is secret, `rng` makes challenges and Acct-Session-Ids.
    #[must_use]
    pub fn new(
        config: SubscriberConfig,
        client: Option<AccessClient>,
        hash: SeededHashState,
        mut rng: SecureRng,
    ) -> Self {
        let start = rng.next_u32();
        let mut leases =
            (!config.shares_pools).then(|| AddressLeases::with_hash(&config.pools, hash.clone(), start));
        if let Some(leases) = &mut leases {
            leases.set_reserved(&config.reserved_addresses);
        }
        Self {
            client: client.map(ChildMachine::without_slot),
            epoch: WallTime::UNIX_EPOCH,
            rng,
            logins: BTreeMap::new(),
            requests: BTreeMap::new(),
            lockout: LoginLockout::new(config.users.failures, &hash),
            grace: AuthorizationCache::default(),
            sessions: BTreeMap::new(),
            closing: BTreeMap::new(),
            users: BTreeMap::new(),
            leases,
            timers: TimerQueue::new(),
            records: BTreeMap::new(),
            next_token: 0,
            start,
            last_session: 0,
            is_leaving: false,
            shutdown: None,
            counters: SubscriberCounters::default(),
            outputs: OutputQueue::default(),
            hash,
            config,
        }
    }
    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &SubscriberConfig {
        &self.config
    }
    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &SubscriberCounters {
        &self.counters
    }
    /// Returns the counters of the RADIUS client, if the AAA servers use RADIUS.
    #[must_use]
    pub fn radius_counters(&self) -> Option<&usher_radius::client::RadiusClientCounters> {
        self.client.as_ref().and_then(|client| client.radius_counters())
    }
    /// True if there is an AAA client.
    #[must_use]
    pub const fn has_aaa_client(&self) -> bool {
        self.client.is_some()
    }
    /// Returns the random numbers of the service.
    pub const fn rng_mut(&mut self) -> &mut SecureRng {
        &mut self.rng
    }
    /// Returns the leases of addresses; `None` if shards share them.
    #[must_use]
    pub const fn leases(&self) -> Option<&AddressLeases> {
        self.leases.as_ref()
    }
    /// Returns the leases of addresses, to add some; `None` if shards share them.
    pub const fn leases_mut(&mut self) -> Option<&mut AddressLeases> {
        self.leases.as_mut()
    }
    /// Releases a lease of a session or login.
    pub fn release_lease(&mut self, lease: Lease) {
        match &mut self.leases {
            Some(leases) => leases.release_lease(lease),
            None => self.outputs.push_event(SubscriberEvent::Released(lease)),
        }
    }

    /// Replaces users, policies, rates, timeouts and reserved addresses. Existing sessions keep theirs. AAA servers and
    /// pools stay those of the start.
    pub fn apply_config(&mut self, now: Instant, config: SubscriberConfig) {
        self.lockout.set_limit(config.users.failures);
        self.set_reserved_addresses(config.reserved_addresses.clone());
        let started = core::mem::replace(&mut self.config, config);
        self.config.aaa = started.aaa;
        self.config.pools = started.pools;
        self.config.shares_pools = started.shares_pools;
        self.config.is_metered = started.is_metered;
        self.config.traffic_interval = started.traffic_interval;
        self.config.logs_stops = started.logs_stops;
        self.config.server_records = started.server_records;
        self.set_certificate_clock(now);
    }

    /// Replaces the addresses that no subscriber may have.
    pub fn set_reserved_addresses(&mut self, addresses: Vec<IpAddr>) {
        if let Some(leases) = &mut self.leases {
            leases.set_reserved(&addresses);
        }
        self.config.reserved_addresses = addresses;
    }

    fn allocate_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }
    /// Sets the clock for the validity of certificates.
    pub fn set_certificate_clock(&self, now: Instant) {
        self.config.users.set_tls_clock(now.to_wall_time(self.epoch));
    }

    /// Handles the events of the AAA client until it has none.
    fn drain_client(&mut self, now: Instant) {
        while let Some(client) = &mut self.client
            && let Some(event) = self.outputs.next_event(client)
        {
            self.handle_client_event(now, event);
        }
    }

    fn expire_timers(&mut self, now: Instant) {
        while let Some((_, timer)) = self.timers.pop_due(now) {
            match timer {
                SubscriberTimer::SessionEnd(id) => self.handle_session_end(now, id),
                SubscriberTimer::Interim(id) => self.send_interim(now, id),
                SubscriberTimer::Idle(id) => self.check_idle(now, id),
                SubscriberTimer::Close(id) => self.stop_waiting_for_traffic(id),
                SubscriberTimer::Farewell => self.continue_shutdown(now, true),
            }
        }
    }
}

impl<K: SubscriberKey, A: fmt::Debug> Machine for SubscriberManager<K, A> {
    type Command = SubscriberCommand<K>;
    type Event = SubscriberEvent<K>;
    type Job = EapStepJob<K>;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.epoch = epoch;
        self.set_certificate_clock(now);
        if let Some(client) = &mut self.client {
            client.set_epoch(now, epoch);
        }
        self.drain_client(now);
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        self.set_certificate_clock(now);
        match &mut self.client {
            Some(client) => client.handle_input(now, input),
            None => {
                if let Some(refusal) = input.refusal() {
                    self.outputs.push_operation(refusal);
                }
            }
        }
        if matches!(input, MachineInput::Timeout) {
            self.expire_timers(now);
        }
        self.drain_client(now);
    }

    fn handle_command(&mut self, now: Instant, command: SubscriberCommand<K>) -> Result<(), CommandError> {
        match command {
            SubscriberCommand::StepDone(step) => self.apply_eap_step(now, *step),
            SubscriberCommand::StepDropped { access, token } => {
                if self.is_current_login(access, token) {
                    self.fail_login(access, LoginFailure::Overload);
                }
            }
        }
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let client = self.client.as_mut().and_then(|client| client.poll_timeout());
        earliest_deadline([client, self.timers.next_deadline()])
    }
}

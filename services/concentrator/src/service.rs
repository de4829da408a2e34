//! The machine of the service.

use crate::api::{
    AccessConcentratorCommand, AccessConcentratorConfig, AccessConcentratorEvent, ConcentratorConfigError,
    ConcentratorJob,
};
use crate::host::{AttachedHost, HostSession, terminate_cause};
use crate::status::{ConcentratorStatus, PoolStatus};
use crate::track::SessionLogRecord;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use usher_access::{
    AddressLeases, SubscriberCommand, SubscriberCounters, SubscriberEvent, SubscriberManager, TerminateCause,
};
use usher_core::collections::hash_state;
use usher_core::timer::earliest_deadline;
use usher_core::{
    ChildMachine, ChildOutput, CommandError, Instant, JobRequest, ListenerId, Machine, MachineInput,
    MachineOutputOf, MachineOwnerPath, OutputQueue, SecureRng, SocketId, WallTime,
};
use usher_ident_service::{self as ident, IdentService};
use usher_ppp::EndReason;
use usher_ppp::concentrator::{
    ConcentratorCommand, ConcentratorCounters, ConcentratorEvent, PppoeConcentrator, PppoeSessionId,
};

/// The slot of PPPoE within the service.
pub const PPP_SLOT: u16 = 0;
/// The slot of the AAA client within the service.
pub const AAA_SLOT: u16 = 1;
/// The slot of the IDENT service within the service.
pub const IDENT_SLOT: u16 = 2;
/// The socket for dynamic authorization requests of RADIUS servers (RFC 5176).
pub const DYNAMIC_SOCKET: SocketId = usher_access::DYNAMIC_SOCKET.with_outer_slot(AAA_SLOT);
/// The listener for IDENT queries.
pub const IDENT_LISTENER: ListenerId = ListenerId { owner: MachineOwnerPath::from_slot(IDENT_SLOT), n: 0 };

usher_core::counters! {
    /// The events of an [`AccessConcentrator`] beside those of its parts.
    pub struct AccessConcentratorCounters {
        /// Logins accepted.
        logins_accepted,
        /// Logins rejected: the address pools are exhausted.
        addresses_exhausted,
        /// Logins rejected: the address from the AAA server is in use.
        addresses_in_use,
        /// Logins rejected: the user has reached its session limit.
        users_full,
        /// Sessions replaced by a newer one of the same user, at its session limit.
        users_replaced,
        /// Sessions replaced by a new login of the same station.
        hosts_replaced,
        /// Logins rejected: the session log cannot be written.
        not_logged,
        /// Sessions ended: the data plane could not install them.
        not_installed,
        /// Accounting Stops of earlier starts sent again.
        stops_resent,
        /// Sessions of an earlier start that accounting now ends.
        sessions_lost,
        /// Octets of packets from hosts.
        octets_in,
        /// Octets of packets to hosts.
        octets_out,
        /// Packets from hosts.
        packets_in,
        /// Packets to hosts.
        packets_out,
        /// Packets from hosts with a foreign source address, dropped.
        spoofed,
        /// Packets beyond a host's rate limit, dropped.
        limited,
        /// IDENT queries whose user was found by the address.
        ident_by_address,
        /// IDENT queries whose user was found by the translation.
        ident_by_translation,
        /// IDENT queries whose user was found by the port block.
        ident_by_block,
        /// IDENT queries without a user.
        ident_no_user,
    }
}

/// An IDENT query that waits for a translation lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PendingTranslation {
    /// The token of the IDENT service's lookup.
    pub(crate) token: u64,
}

/// A PPPoE access concentrator: a [`Machine`]. See the [crate](crate).
#[derive(Debug)]
pub struct AccessConcentrator {
    pub(crate) config: AccessConcentratorConfig,
    pub(crate) ppp: ChildMachine<PppoeConcentrator>,
    /// The users, by PPPoE session.
    pub(crate) subscribers: ChildMachine<SubscriberManager<PppoeSessionId, HostSession>>,
    pub(crate) ident: Option<ChildMachine<IdentService>>,
    pub(crate) epoch: WallTime,
    /// Hosts of PPPoE sessions.
    pub(crate) attached: BTreeMap<PppoeSessionId, AttachedHost>,
    /// The numbers of users' sessions, by PPPoE session.
    pub(crate) current: BTreeMap<PppoeSessionId, u64>,
    /// The numbers of users' sessions, by SESSION_ID.
    pub(crate) numbers: BTreeMap<u16, u64>,
    /// Sessions that wait for the log, by the job's token.
    pub(crate) writing: BTreeMap<u64, u64>,
    /// IDENT queries that wait for a translation, by the job's token.
    pub(crate) pending_translations: BTreeMap<u64, PendingTranslation>,
    last_token: u64,
    started: bool,
    pub(crate) counters: AccessConcentratorCounters,
    pub(crate) outputs: OutputQueue<AccessConcentratorEvent, ConcentratorJob>,
}

impl AccessConcentrator {
    /// Creates a concentrator. `rng` makes cookies, challenges and Acct-Session-Ids.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn new(
        config: AccessConcentratorConfig,
        mut rng: SecureRng,
    ) -> Result<Self, ConcentratorConfigError> {
        let client = config.subscribers.aaa.as_ref();
        let client = client.map(|aaa| aaa.build_client(SecureRng::from_seed(rng.random_array())));
        let client = client.transpose().map_err(ConcentratorConfigError::Aaa)?;
        let ident = config.ident.clone().map(|ident| ChildMachine::new(IDENT_SLOT, IdentService::new(ident)));
        let ppp = PppoeConcentrator::new(config.ppp.clone(), SecureRng::from_seed(rng.random_array()));
        let ppp = ChildMachine::new(PPP_SLOT, ppp.map_err(ConcentratorConfigError::Ppp)?);
        let hash = hash_state(&mut rng);
        let subscribers = SubscriberManager::new(config.subscriber_config(), client, hash, rng);
        Ok(Self {
            ppp,
            subscribers: ChildMachine::new(AAA_SLOT, subscribers),
            ident,
            epoch: WallTime::UNIX_EPOCH,
            attached: BTreeMap::new(),
            current: BTreeMap::new(),
            numbers: BTreeMap::new(),
            writing: BTreeMap::new(),
            pending_translations: BTreeMap::new(),
            last_token: 0,
            started: false,
            counters: AccessConcentratorCounters::default(),
            outputs: OutputQueue::default(),
            config,
        })
    }
    /// Returns the counters of the service, of its subscribers and of PPPoE.
    #[must_use]
    pub fn counters(&self) -> (&AccessConcentratorCounters, &SubscriberCounters, &ConcentratorCounters) {
        (&self.counters, self.subscribers.counters(), self.ppp.counters())
    }
    /// Returns the counters of the RADIUS client, if the AAA servers use RADIUS.
    #[must_use]
    pub fn radius_counters(&self) -> Option<&usher_radius::client::RadiusClientCounters> {
        self.subscribers.radius_counters()
    }
    /// Returns the number of users' sessions.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.subscribers.sessions().len()
    }

    pub(crate) fn allocate_token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }
    /// Gives PPPoE a command. Ignores a session that has ended.
    pub(crate) fn send_ppp_command(&mut self, now: Instant, command: ConcentratorCommand) {
        // The command fails if the session has ended meanwhile. Then it is not needed.
        let _ = self.ppp.handle_command(now, command);
    }

    /// Ends the sessions that an earlier start left. Their ends are logged before this start: if this process is killed
    /// meanwhile, the next start finds the session open or its Stop unacknowledged.
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
            self.log(SessionLogRecord::service_started(at));
        }
        self.subscribers.account_server_start(now);
        for one in owed {
            self.counters.stops_resent += 1;
            self.account_unacknowledged_stop(now, &one);
        }
        for one in lost {
            self.account_unacknowledged_stop(now, &one);
        }
        self.drain_children(now);
    }

    /// Applies the outputs of the contained machines until none has any.
    pub(crate) fn drain_children(&mut self, now: Instant) {
        loop {
            if let Some(event) = self.outputs.next_event(&mut self.ppp) {
                self.handle_ppp_event(now, event);
                continue;
            }
            match self.outputs.next_event_or_job(&mut self.subscribers) {
                Some(ChildOutput::Event(event)) => {
                    self.handle_subscriber_event(now, event);
                    continue;
                }
                // The configuration offers no EAP method whose steps need a worker.
                Some(ChildOutput::Job(JobRequest { job, .. })) => {
                    let step = SubscriberCommand::StepDone(Box::new(job).run_eap_step());
                    // The result is always accepted.
                    let _ = self.subscribers.handle_command(now, step);
                    continue;
                }
                None => {}
            }
            if !self.apply_next_ident_output(now) {
                return;
            }
        }
    }

    fn handle_subscriber_event(&mut self, now: Instant, event: SubscriberEvent<PppoeSessionId>) {
        match event {
            SubscriberEvent::Login { access, answer } => self.answer_login(now, access, answer),
            SubscriberEvent::End { id, cause } => {
                let reason =
                    if cause == TerminateCause::IdleTimeout { "idle-timeout" } else { "session-timeout" };
                self.terminate_session(now, id, cause, reason);
            }
            SubscriberEvent::Disconnect { id } => {
                self.outputs.push_event(AccessConcentratorEvent::Dynamic { id, end: true });
                self.terminate_session(now, id, TerminateCause::AdminReset, "disconnected-by-aaa");
            }
            SubscriberEvent::Change { id, changes_rates } => {
                if changes_rates {
                    self.update_data_plane(id);
                }
                self.outputs.push_event(AccessConcentratorEvent::Dynamic { id, end: false });
            }
            SubscriberEvent::CloseDue { id } => self.close_session(now, id),
            SubscriberEvent::Unaccounted { session, is_logged: logged } => {
                self.outputs.push_event(AccessConcentratorEvent::Unaccounted { session, logged });
            }
            SubscriberEvent::StopAcknowledged { session } => {
                let acknowledged_at = now.to_wall_time(self.epoch);
                self.log(SessionLogRecord::StopAcknowledged { acknowledged_at, session });
            }
            // No other shard shares the pools.
            SubscriberEvent::Released(_) => {}
            SubscriberEvent::Server { server, up } => {
                self.outputs.push_event(AccessConcentratorEvent::Server { server, up });
            }
            SubscriberEvent::Left => self.outputs.push_event(AccessConcentratorEvent::Left),
        }
    }
    /// Appends a record to the session log, without an immediate sync.
    pub(crate) fn log(&mut self, record: SessionLogRecord) {
        self.outputs.push_event(AccessConcentratorEvent::Log(Box::new(record)));
    }

    /// Applies the next output of the IDENT service; false if it has none.
    fn apply_next_ident_output(&mut self, now: Instant) -> bool {
        let Some(ident) = &mut self.ident else { return false };
        match self.outputs.next_event_or_job(ident) {
            Some(ChildOutput::Job(JobRequest { token, job, .. })) => {
                let ident::IdentServiceJob::Owner(connection) = job;
                self.look_up_connection_owner(now, token, connection);
            }
            Some(ChildOutput::Event(event)) => self.outputs.push_event(AccessConcentratorEvent::Ident(event)),
            None => return false,
        }
        true
    }

    fn handle_ppp_event(&mut self, now: Instant, event: ConcentratorEvent) {
        use ConcentratorEvent;
        match event {
            ConcentratorEvent::SessionStarted { session, subscriber } => {
                let host = AttachedHost { subscriber, place: None };
                drop(self.attached.insert(session, host))
            }
            ConcentratorEvent::Authenticate { session, user, proof, mtu } => {
                self.authenticate_host(now, (session, mtu), &user, &proof);
            }
            ConcentratorEvent::Install { session, mtu, network, .. } => {
                self.handle_network_up(now, session, mtu, network)
            }
            ConcentratorEvent::Remove { session, family } => self.remove_network(session, family),
            ConcentratorEvent::Mtu { session, mtu } => self.raise_mtu(session, mtu),
            ConcentratorEvent::Ended { session, reason } => self.handle_ppp_session_end(now, session, reason),
        }
    }

    /// Handles the end of a PPPoE session.
    fn handle_ppp_session_end(&mut self, now: Instant, session: PppoeSessionId, reason: EndReason) {
        self.subscribers.abort_login(now, session);
        let subscriber = self.attached.remove(&session).map(|host| host.subscriber);
        match (self.current.get(&session).copied(), subscriber) {
            (Some(id), _) => self.finish_session(now, id, terminate_cause(reason), reason.name()),
            // If this side has closed the session, it has reported the end already.
            (None, Some(subscriber)) if reason != EndReason::Closed => {
                self.outputs.push_event(AccessConcentratorEvent::LoginAborted { subscriber, reason });
            }
            (None, _) => {}
        }
    }

    fn shut_down(&mut self, now: Instant) {
        self.subscribers.refuse_logins();
        self.send_ppp_command(now, ConcentratorCommand::CloseAll);
        self.drain_children(now);
        // Do not wait for the hosts' Terminate-Acks: send the Stop records now.
        for id in self.subscribers.sessions().keys().copied().collect::<Vec<_>>() {
            self.finish_session(now, id, TerminateCause::AdminReboot, "leaving");
        }
        for id in self.subscribers.stop_waiting_for_all_traffic() {
            self.close_session(now, id);
        }
        self.drain_children(now);
        if self.config.logged {
            let at = now.to_wall_time(self.epoch);
            self.log(SessionLogRecord::service_stopped(at));
        }
        self.subscribers.shut_down(now);
        self.drain_children(now);
    }

    /// Closes an accepted connection that has no owner.
    fn refuse_input(&mut self, input: &MachineInput<'_>) {
        if let Some(refusal) = input.refusal() {
            self.outputs.push_operation(refusal);
        }
    }
}

impl Machine for AccessConcentrator {
    type Command = AccessConcentratorCommand;
    type Event = AccessConcentratorEvent;
    type Job = ConcentratorJob;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.epoch = epoch;
        self.ppp.set_epoch(now, epoch);
        self.subscribers.set_epoch(now, epoch);
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
                self.subscribers.handle_input(now, MachineInput::Timeout);
                if let Some(ident) = &mut self.ident {
                    ident.handle_input(now, MachineInput::Timeout);
                }
            }
            (Some((AAA_SLOT, inner)), _) => self.subscribers.handle_input(now, inner),
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
                self.handle_session_log_result(now, token, kept)
            }
            AccessConcentratorCommand::Translated { token, inner } => {
                self.handle_translation(now, token, inner)
            }
            AccessConcentratorCommand::UsageReport(all) => {
                // Usage of a SESSION_ID belongs to the session that is being removed, even if a new session already has
                // the same ID.
                let ending = self.subscribers.closing_sessions().iter().rev();
                let ending = ending.filter(|(_, session)| session.awaits_traffic);
                let ending: BTreeMap<u16, u64> =
                    ending.map(|(id, session)| (session.access.subscriber.number, *id)).collect();
                for (number, usage) in all {
                    if let Some(id) = ending.get(&number).or_else(|| self.numbers.get(&number)).copied() {
                        self.record_usage(now, id, &usage);
                    }
                }
            }
            AccessConcentratorCommand::Removed { id, usage } => {
                self.handle_data_plane_removal(now, id, usage.as_ref())
            }
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

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let begin = (!self.started).then_some(Instant::ZERO);
        let ident = self.ident.as_mut().and_then(|ident| ident.poll_timeout());
        earliest_deadline([begin, self.ppp.poll_timeout(), self.subscribers.poll_timeout(), ident])
    }
}

impl AccessConcentrator {
    fn apply_config(&mut self, now: Instant, config: AccessConcentratorConfig) -> Result<(), CommandError> {
        self.ppp.handle_command(now, ConcentratorCommand::Configure(Box::new(config.ppp.clone())))?;
        if let (Some(ident), Some(config)) = (&mut self.ident, config.ident.clone()) {
            ident.handle_command(now, ident::IdentServiceCommand::Configure(config))?;
        }
        let mut subscribers = config.subscriber_config();
        // A running concentrator keeps the verifier with which it started. A file that selects another has no local
        // users, so the earlier ones stay.
        if config.judge != self.config.judge {
            subscribers.users = self.subscribers.config().users.clone();
        }
        self.subscribers.apply_config(now, subscribers);
        self.config = AccessConcentratorConfig {
            judge: self.config.judge,
            logged: self.config.logged,
            blocks: self.config.blocks.take(),
            ident: self.config.ident.take(),
            lost: Vec::new(),
            unacknowledged_stops: Vec::new(),
            ..config
        };
        Ok(())
    }

    /// Returns the number of PPPoE sessions whose hosts are not authenticated yet.
    #[must_use]
    pub fn unauthenticated_count(&self) -> usize {
        self.ppp.unauthenticated_count()
    }
    /// Returns the number of logins in progress.
    #[must_use]
    pub fn login_count(&self) -> usize {
        self.subscribers.login_count()
    }
    /// Returns the status.
    pub(crate) fn status(&self, now: Instant) -> ConcentratorStatus {
        let counted = |prefix: &str, all: Vec<(&'static str, u64)>| {
            all.into_iter().map(|(name, n)| (alloc::format!("{prefix}{name}"), n)).collect::<Vec<_>>()
        };
        let (own, subscribers, ppp) = self.counters();
        let mut counters = counted("", own.iter().chain(subscribers.iter()).collect());
        counters.extend(counted("ppp_", ppp.iter().collect()));
        counters.extend(
            self.radius_counters().into_iter().flat_map(|radius| counted("radius_", radius.iter().collect())),
        );
        if let Some(ident) = &self.ident {
            let (own, server) = ident.counters();
            counters.extend(counted("ident_", own.iter().chain(server.iter()).collect()));
        }
        ConcentratorStatus {
            sessions: self
                .subscribers
                .sessions()
                .iter()
                .map(|(id, session)| self.session_status(now, *id, session))
                .collect(),
            outside: self.unauthenticated_count(),
            pools: self
                .subscribers
                .leases()
                .into_iter()
                .flat_map(AddressLeases::pool_usage)
                .map(|pool| PoolStatus {
                    name: pool.name.into(),
                    used: pool.addresses.0 + pool.prefixes.0,
                    all: pool.addresses.1 + pool.prefixes.1,
                })
                .collect(),
            counters,
        }
    }
}

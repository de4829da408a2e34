//! The gateway: a machine that contains an IKEv2 endpoint and an AAA client.

mod connections;
mod timer;

pub(crate) use timer::GatewayTimer;

use crate::api::{GatewayCommand, GatewayConfig, GatewayConnectionConfig, GatewayEvent, GatewayJob};
use crate::ike_session::IkeSession;
use crate::initiator::InitiatorLogin;
use crate::status::GatewayStatus;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_access::pool::PoolUse;
use usher_access::{
    AddressLeases, ConfigError, SubscriberCommand, SubscriberCounters, SubscriberEvent, SubscriberManager,
    TerminateCause,
};
use usher_core::collections::hash_state;
use usher_core::timer::{TimerQueue, earliest_deadline};
use usher_core::{
    ChildMachine, ChildOutput, CommandError, Instant, Machine, MachineInput, MachineOutputOf, OutputQueue,
    SecureRng, SocketId, WallTime,
};
use usher_ike::IkeEndpoint;
use usher_ike::machine::{self as ike, IkeConnectionConfig, IkeSaId};

/// The slot of the IKEv2 endpoint within the gateway.
pub const IKE_SLOT: u16 = 0;
/// The slot of the AAA client.
pub const AAA_SLOT: u16 = 1;
/// The IPv4 socket of UDP port 500.
pub const SOCKET: SocketId = ike::SOCKET.with_outer_slot(IKE_SLOT);
/// The IPv4 socket of UDP port 4500, where ESP arrives too.
pub const NAT_SOCKET: SocketId = ike::NAT_SOCKET.with_outer_slot(IKE_SLOT);
/// The IPv6 socket of UDP port 500.
pub const SOCKET_V6: SocketId = ike::SOCKET_V6.with_outer_slot(IKE_SLOT);
/// The IPv6 socket of UDP port 4500.
pub const NAT_SOCKET_V6: SocketId = ike::NAT_SOCKET_V6.with_outer_slot(IKE_SLOT);
/// The socket for RADIUS dynamic authorization (RFC 5176).
pub const DYNAMIC_SOCKET: SocketId = usher_access::DYNAMIC_SOCKET.with_outer_slot(AAA_SLOT);

usher_core::counters! {
    /// Counters of an [`IkeGateway`], beside those of its endpoint and its AAA client.
    pub struct GatewayCounters {
        /// Logins accepted by EAP.
        logins_accepted,
        /// Addresses assigned to initiators.
        addresses_given,
        /// Initiators without an address: no pool had a free one.
        addresses_exhausted,
        /// Sessions begun: established IKE_SAs that peers initiated.
        sessions,
        /// Connections that this side initiated.
        initiated,
        /// IKE_SAs that this side reauthenticated.
        reauthentications,
        /// IKE_SAs expired: neither side had replaced them.
        expired,
        /// CHILD_SAs expired: neither side had replaced them.
        children_expired,
        /// Packets that needed a CHILD_SA, as the host reported them.
        acquired,
        /// Octets received through CHILD_SAs.
        received_octets,
        /// Packets received through CHILD_SAs.
        received_packets,
        /// Octets sent through CHILD_SAs.
        sent_octets,
        /// Packets sent through CHILD_SAs.
        sent_packets,
    }
}

/// An IKEv2 gateway: a [`Machine`]. See the [crate](crate).
#[derive(Debug)]
pub struct IkeGateway {
    pub(crate) config: GatewayConfig,
    pub(crate) ike: ChildMachine<IkeEndpoint>,
    /// The initiators' users, by IKE_SA. A session has the id of its current IKE_SA.
    pub(crate) subscribers: ChildMachine<SubscriberManager<IkeSaId, IkeSaId>>,
    /// Initiators that authenticate by EAP or wait for an address.
    pub(crate) logins: BTreeMap<IkeSaId, InitiatorLogin>,
    /// Established IKE_SAs.
    pub(crate) sessions: BTreeMap<IkeSaId, IkeSession>,
    pub(crate) timers: TimerQueue<GatewayTimer>,
    /// IKE_SAs that this side initiated, with the names of their connections.
    pub(crate) initiated_connections: BTreeMap<IkeSaId, String>,
    /// Connections that are not initiated again, because a command ended them.
    stopped: BTreeSet<String>,
    /// Ended sessions that wait for the last traffic reports of their CHILD_SAs.
    pub(crate) closing: BTreeMap<IkeSaId, IkeSession>,
    /// The IKE_SAs of current and former CHILD_SAs, by inbound SPI.
    pub(crate) owners: BTreeMap<u32, IkeSaId>,
    /// IKE_SAs that this side ends in order to initiate them again.
    pub(crate) renewing: BTreeSet<IkeSaId>,
    /// New IKE_SAs of a reauthentication: the old IKE_SA, and the CHILD_SAs still to be created.
    pub(crate) replacing: BTreeMap<IkeSaId, (IkeSaId, BTreeSet<String>)>,
    /// CHILD_SAs for which packets wait, by connections that are being initiated.
    pub(crate) on_demand_children: BTreeMap<String, BTreeSet<String>>,
    /// The time of the last failure of on-demand connections.
    pub(crate) failed: BTreeMap<String, Instant>,
    /// The result of a pending [`ike::IkeEvent::Initiated`].
    initiating: Option<IkeSaId>,
    started: bool,
    pub(crate) leaving: bool,
    pub(crate) counters: GatewayCounters,
    pub(crate) outputs: OutputQueue<GatewayEvent, GatewayJob>,
}

impl IkeGateway {
    /// Creates a gateway. Keys, addresses and session ids come from `rng`.
    ///
    /// # Errors
    /// The configuration of the AAA client is contradictory.
    pub fn new(config: GatewayConfig, mut rng: SecureRng) -> Result<Self, ConfigError> {
        let client = config.subscribers.aaa.as_ref();
        let client =
            client.map(|aaa| aaa.build_client(SecureRng::from_seed(rng.random_array()))).transpose()?;
        let hash = hash_state(&mut rng);
        let mut endpoint = IkeEndpoint::new(config.endpoint, SecureRng::from_seed(rng.random_array()));
        let served = served_connections(&config);
        // The endpoint always accepts this command, so the result does not matter.
        let _ = endpoint.handle_command(Instant::ZERO, ike::IkeCommand::Serve(served));
        let subscribers = SubscriberManager::new(config.subscriber_config(), client, hash, rng);
        Ok(Self {
            ike: ChildMachine::new(IKE_SLOT, endpoint),
            subscribers: ChildMachine::new(AAA_SLOT, subscribers),
            logins: BTreeMap::new(),
            sessions: BTreeMap::new(),
            timers: TimerQueue::new(),
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
            counters: GatewayCounters::default(),
            outputs: OutputQueue::default(),
            config,
        })
    }
    /// The counters of the gateway, of its subscribers and of its endpoint.
    #[must_use]
    pub fn counters(&self) -> (&GatewayCounters, &SubscriberCounters, &ike::IkeCounters) {
        (&self.counters, self.subscribers.counters(), self.ike.counters())
    }
    /// The counters of its RADIUS client, if it has one.
    #[must_use]
    pub fn radius_counters(&self) -> Option<&usher_radius::client::RadiusClientCounters> {
        self.subscribers.radius_counters()
    }
    /// Number of established IKE_SAs.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }
    /// Number of half-open IKE_SAs.
    #[must_use]
    pub fn half_open(&self) -> usize {
        self.ike.half_open()
    }
    /// The usage of each of its own pools.
    pub fn pool_usage(&self) -> impl Iterator<Item = PoolUse<'_>> {
        self.subscribers.leases().into_iter().flat_map(AddressLeases::pool_usage)
    }

    pub(crate) fn find_peer(&self, connection: &str) -> Option<Arc<GatewayConnectionConfig>> {
        self.config.peers.iter().find(|peer| peer.connection.name == connection).cloned()
    }
    /// Sends a command to the endpoint. It fails if its target is gone meanwhile.
    pub(crate) fn send_ike_command(&mut self, now: Instant, command: ike::IkeCommand) -> bool {
        self.ike.handle_command(now, command).is_ok()
    }

    /// Initiates a connection and returns the IKE_SA.
    pub(crate) fn initiate_connection(
        &mut self,
        now: Instant,
        peer: &GatewayConnectionConfig,
    ) -> Result<IkeSaId, String> {
        let Some(remote) = peer.remote else {
            return Err(
                "only its peer can initiate it: the configuration has no remote_address for it".into()
            );
        };
        let (connection, local) = (peer.connection.clone(), peer.local);
        let command = ike::IkeCommand::Initiate { token: 0, connection, local, remote };
        self.ike.handle_command(now, command).map_err(|error| alloc::format!("{error}"))?;
        self.counters.initiated += 1;
        self.drain_children(now);
        let sa = self.initiating.take().ok_or("its IKE_SA ended at once")?;
        self.initiated_connections.insert(sa, peer.connection.name.clone());
        Ok(sa)
    }
    /// True if this side initiated the IKE_SA.
    pub(crate) fn is_locally_initiated(&self, sa: IkeSaId) -> bool {
        self.initiated_connections.contains_key(&sa)
    }

    /// Initiates a connection, and schedules a retry if that fails.
    fn start_connection(&mut self, now: Instant, n: usize) {
        let begins = |peer: &&Arc<GatewayConnectionConfig>| {
            peer.start && !self.stopped.contains(&peer.connection.name)
        };
        let Some(peer) = self.config.peers.get(n).filter(begins).cloned() else { return };
        if self.initiate_connection(now, &peer).is_err() {
            self.timers.insert(now + peer.retry, GatewayTimer::Reconnect(n));
        }
    }

    fn start_connections(&mut self, now: Instant) {
        if !core::mem::replace(&mut self.started, true) {
            self.subscribers.account_server_start(now);
            (0..self.config.peers.len()).for_each(|n| self.start_connection(now, n));
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.start_connections(now);
        while let Some((_, timer)) = self.timers.pop_due(now) {
            match timer {
                GatewayTimer::Reconnect(n) => self.start_connection(now, n),
                GatewayTimer::Renew(n) => self.reinitiate_connection(now, n),
                GatewayTimer::Reauthenticate(sa) => self.reauthenticate_sa(now, sa),
                GatewayTimer::Expire(sa) => self.expire_sa(now, sa),
                GatewayTimer::ExpireChild(inbound) => self.expire_child(now, inbound),
            }
        }
    }

    /// Drains the outputs of the endpoint and of the subscribers.
    pub(crate) fn drain_children(&mut self, now: Instant) {
        loop {
            match self.outputs.next_event_or_job(&mut self.ike) {
                Some(ChildOutput::Event(event)) => {
                    self.handle_ike_event(now, event);
                    continue;
                }
                Some(ChildOutput::Job(job)) => {
                    self.outputs.push_job(job.map(GatewayJob::Ike));
                    continue;
                }
                None => {}
            }
            match self.outputs.next_event_or_job(&mut self.subscribers) {
                Some(ChildOutput::Event(event)) => self.handle_subscriber_event(now, event),
                Some(ChildOutput::Job(job)) => {
                    self.outputs.push_job(job.map(|step| GatewayJob::EapStep(Box::new(step))));
                }
                None => return,
            }
        }
    }

    fn handle_subscriber_event(&mut self, now: Instant, event: SubscriberEvent<IkeSaId>) {
        match event {
            SubscriberEvent::Login { access, answer } => self.answer_login(now, access, answer),
            SubscriberEvent::End { id, cause } => self.delete_session(now, id, cause),
            SubscriberEvent::Disconnect { id } => {
                if let Some(sa) = self.sa_of_session(id) {
                    self.outputs.push_event(GatewayEvent::Dynamic { sa, end: true });
                }
                self.delete_session(now, id, TerminateCause::AdminReset);
            }
            SubscriberEvent::Change { id, .. } => {
                if let Some(sa) = self.sa_of_session(id) {
                    self.outputs.push_event(GatewayEvent::Dynamic { sa, end: false });
                }
            }
            SubscriberEvent::CloseDue { id } => self.close_session(now, id),
            SubscriberEvent::Unaccounted { session, .. } => {
                self.outputs.push_event(GatewayEvent::Unaccounted { session });
            }
            // The gateway keeps no log of sessions.
            SubscriberEvent::StopAcknowledged { .. } => {}
            SubscriberEvent::Released(lease) => self.outputs.push_event(GatewayEvent::Released(lease)),
            SubscriberEvent::Server { server, up } => {
                self.outputs.push_event(GatewayEvent::Server { server, up });
            }
            SubscriberEvent::Left => self.outputs.push_event(GatewayEvent::Left),
        }
    }

    fn handle_ike_event(&mut self, now: Instant, event: ike::IkeEvent) {
        match event {
            ike::IkeEvent::Eap { sa, identity, connection, remote, packet } => {
                return self.handle_eap(now, (sa, identity, connection, remote), &packet);
            }
            ike::IkeEvent::AddressRequested { sa, identity, connection, remote, attributes } => {
                return self.handle_address_request(now, (sa, identity, connection, remote), attributes);
            }
            ike::IkeEvent::Initiated { sa, .. } => self.initiating = Some(sa),
            // It began before the shutdown, whose accounting is over.
            ike::IkeEvent::Established { sa, .. } if self.leaving => {
                self.send_ike_command(now, ike::IkeCommand::Delete(sa));
            }
            ike::IkeEvent::Established { sa, .. } => {
                self.track_ike_event(now, &event);
                self.create_wanted_children(now, sa);
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
                self.report_unprotected_connection(now, sa);
                self.end_session(now, sa, reason);
                self.outputs.push_event(GatewayEvent::Ike(event));
                self.retry_failed_reauthentication(now, sa);
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
}

fn served_connections(config: &GatewayConfig) -> Vec<Arc<IkeConnectionConfig>> {
    config.peers.iter().map(|peer| peer.connection.clone()).collect()
}

impl Machine for IkeGateway {
    type Command = GatewayCommand;
    type Event = GatewayEvent;
    type Job = GatewayJob;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.ike.set_epoch(now, epoch);
        self.subscribers.set_epoch(now, epoch);
        self.drain_children(now);
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        // Certificates of IKE and of EAP share a clock.
        self.subscribers.set_certificate_clock(now);
        match input.split_outer_slot() {
            Some((IKE_SLOT, input)) => self.ike.handle_input(now, input),
            Some((AAA_SLOT, input)) => self.subscribers.handle_input(now, input),
            Some(_) => self.refuse_input(&input),
            None if matches!(input, MachineInput::Timeout) => {
                self.ike.handle_input(now, MachineInput::Timeout);
                self.subscribers.handle_input(now, MachineInput::Timeout);
                self.handle_timeout(now);
            }
            None => self.refuse_input(&input),
        }
        self.drain_children(now);
    }

    fn handle_command(&mut self, now: Instant, command: GatewayCommand) -> Result<(), CommandError> {
        match command {
            GatewayCommand::Done(command) => self.ike.handle_command(now, command)?,
            GatewayCommand::EapStepDone(step) => {
                self.subscribers.handle_command(now, SubscriberCommand::StepDone(step))?;
            }
            GatewayCommand::EapStepDropped { sa: access, token } => {
                self.subscribers.handle_command(now, SubscriberCommand::StepDropped { access, token })?;
            }
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
                let sas = self.command_selected_sas(now, &which, children, false);
                self.outputs.push_event(GatewayEvent::SasNotified { token, sas });
            }
            GatewayCommand::Down { token, selection: which } => {
                let sas =
                    self.command_selected_sas(now, &which, false, true) + self.stop_connections(now, &which);
                self.outputs.push_event(GatewayEvent::SasNotified { token, sas });
            }
            GatewayCommand::Configure(config) => {
                self.subscribers.apply_config(now, config.subscriber_config());
                self.config.peers = config.peers;
                let served = served_connections(&self.config);
                self.ike.handle_command(now, ike::IkeCommand::Serve(served))?;
            }
            GatewayCommand::Acquire { connection, child } => self.acquire_child(now, &connection, child),
            GatewayCommand::UsageReport(pairs) => {
                pairs.into_iter().for_each(|(inbound, usage)| self.record_usage(now, inbound, &usage));
            }
            GatewayCommand::Removed { inbound, usage } => {
                self.record_final_child_usage(now, inbound, usage.as_ref())
            }
            GatewayCommand::Expired { inbound, hard } => self.handle_child_traffic_limit(now, inbound, hard),
            GatewayCommand::Addresses(own) => {
                self.apply_local_address_changes(now, &own);
                self.subscribers.set_reserved_addresses(self.config.local_addresses());
            }
            GatewayCommand::Leave => self.start_shutdown(now),
        }
        self.drain_children(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        // The AAA server must learn of the start before the first login. A later record would end the sessions that
        // have begun meanwhile.
        let begins = || self.subscribers.has_aaa_client() || self.config.peers.iter().any(|peer| peer.start);
        let start = (!self.started && begins()).then_some(Instant::ZERO);
        let deadlines = [self.ike.poll_timeout(), self.subscribers.poll_timeout()];
        earliest_deadline([start, deadlines[0], deadlines[1], self.timers.next_deadline()])
    }
}

impl IkeGateway {
    /// Closes a connection that belongs to no part of the gateway.
    fn refuse_input(&mut self, input: &MachineInput<'_>) {
        if let Some(refusal) = input.refusal() {
            self.outputs.push_operation(refusal);
        }
    }

    /// Number of initiators that authenticate by EAP or wait for an address.
    #[must_use]
    pub fn login_count(&self) -> usize {
        self.logins.len()
    }
    /// Returns the status.
    pub(crate) fn gateway_status(&self, now: Instant) -> GatewayStatus {
        let counted = |prefix: &str, all: Vec<(&'static str, u64)>| {
            all.into_iter().map(|(name, n)| (alloc::format!("{prefix}{name}"), n)).collect::<Vec<_>>()
        };
        let (own, subscribers, ike) = self.counters();
        let mut counters = counted("", own.iter().chain(subscribers.iter()).collect());
        counters.extend(counted("ike_", ike.iter().collect()));
        counters.extend(
            self.radius_counters().into_iter().flat_map(|radius| counted("radius_", radius.iter().collect())),
        );
        GatewayStatus {
            sas: self.sessions.iter().filter_map(|(sa, session)| self.sa_status(now, *sa, session)).collect(),
            half_open: self.half_open(),
            pools: self
                .pool_usage()
                .map(|pool| (pool.name.into(), pool.addresses.0, pool.addresses.1))
                .collect(),
            counters,
        }
    }
}

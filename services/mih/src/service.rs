//! The MIH function of a host, with its user.

mod links;
mod requests;

use crate::access::{AccessList, AccessRight, AccessRights};
use crate::link::{InterfaceConfig, InterfaceState, KernelLinkReport};
use crate::neighbour::{NeighbourPeer, NeighbourPeerConfig, PeerNotice};
use crate::subscriptions::SubscriptionTable;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::{
    ChildMachine, CommandError, ConnId, Duration, Instant, Machine, MachineInput, MachineOutputOf,
    OutputQueue, SimulationRng, StreamEvent,
};
use usher_mih::{
    self as mih, CommandList, EventList, IncomingRequestId, LinkActionResult, LinkDownReason,
    LinkGoingDownReason, LinkId, LinkStatusRequest, LinkTupleId, MessageId, Mihf, MihfCapabilities, MihfId,
    MihfMessage, NetTypeAddr, NetworkType, Status, Tlv, TransportList,
};

/// The limits of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MihServiceLimits {
    /// Maximum accepted connections.
    pub connections: usize,
    /// Maximum accepted connections from one network: an IPv4 address, or 64 bits of an IPv6 address.
    pub connections_per_network: usize,
    /// Maximum subscribed interfaces, over all subscribers.
    pub subscriptions: usize,
    /// Maximum subscribed interfaces of one subscriber.
    pub subscriptions_per_peer: usize,
    /// Maximum requests that wait for the kernel plus delayed link actions, over all peers.
    pub requests: usize,
    /// The same, for one peer.
    pub requests_per_peer: usize,
    /// Maximum unacknowledged indications to one subscriber; further ones are dropped.
    pub indications_per_peer: usize,
}

/// The configuration of a service.
#[derive(Clone, Debug)]
pub struct MihServiceConfig {
    /// Its MIH function. The service fills in the capabilities from the links.
    pub mih: mih::MihfConfig,
    /// Access rights.
    pub access: AccessList,
    /// The reported interfaces; empty: all of the kernel's.
    pub interfaces: Vec<InterfaceConfig>,
    /// The reported events.
    pub events: EventList,
    /// Configured peers.
    pub peers: Vec<NeighbourPeerConfig>,
    /// Maximum interval between renewals of registrations and subscriptions at peers.
    pub refresh: Duration,
    /// Interval of retries to a peer that does not answer.
    pub retry: Duration,
    /// Limits.
    pub limits: MihServiceLimits,
}

/// A job for the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MihServiceJob {
    /// Reads the state of interfaces from the kernel. The result is [`MihServiceCommand::Measured`].
    Measure {
        /// Their names.
        interfaces: Vec<String>,
    },
    /// Switches an interface on or off. The result is [`MihServiceCommand::Acted`].
    Switch {
        /// Its name.
        interface: String,
        /// True to switch on.
        on: bool,
    },
}

/// A command of the service's owner.
#[derive(Clone, Debug)]
pub enum MihServiceCommand {
    /// An interface is new or has changed.
    Link(KernelLinkReport),
    /// The watched value of an interface.
    Watched {
        /// Its name.
        interface: String,
        /// The value.
        value: f64,
    },
    /// The link layer itself predicts the loss of a link.
    GoingDown {
        /// Its name.
        interface: String,
        /// The predicted time until the loss.
        time_to_loss: Duration,
    },
    /// The host's addresses have changed. The service informs the peers that it is registered with.
    Moved,
    /// The result of [`MihServiceJob::Measure`].
    Measured {
        /// The job's token.
        token: u64,
        /// The kernel's reports of the interfaces that exist.
        reports: Vec<KernelLinkReport>,
    },
    /// The result of [`MihServiceJob::Switch`].
    Acted {
        /// The job's token.
        token: u64,
        /// True if the action succeeded.
        done: bool,
    },
    /// Replaces the configuration, except for the identifier and the memory limits of the MIH function.
    Configure(Box<MihServiceConfig>),
    /// Deregisters from peers without waiting for their responses, because this function stops.
    Leave,
}

/// A change of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkChange {
    /// The link carries packets.
    Up,
    /// The link carries no packets.
    Down(LinkDownReason),
    /// The link is going down.
    GoingDown(LinkGoingDownReason, Duration),
}

/// A change of a configured peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MihPeerChange {
    /// The peer has registered this function, for this many seconds.
    Registered(u32),
    /// The peer has granted these events of a link.
    Subscribed(LinkTupleId, EventList),
    /// The peer has rejected a request.
    Refused(MessageId, Option<Status>),
    /// The peer has not answered.
    Lost(mih::TransactionError),
}

/// A peer that sent a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestingPeer {
    /// The identifier in its messages.
    pub peer: MihfId,
    /// Its source address.
    pub address: Option<SocketAddr>,
    /// True for a configured peer. The number of others is unlimited, so their events must not fill a log.
    pub is_configured: bool,
}

/// An event of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MihServiceEvent {
    /// A peer has registered.
    Registered(RequestingPeer),
    /// A peer's registration has ended, by request or by expiry.
    Deregistered(RequestingPeer),
    /// The service has answered a request.
    Answered {
        /// The requesting peer.
        peer: RequestingPeer,
        /// The request.
        request: MessageId,
        /// The status of the response.
        status: Status,
    },
    /// A link of this host has changed.
    Link {
        /// The interface.
        interface: String,
        /// The change.
        change: LinkChange,
        /// Number of subscribers that receive an indication.
        notified_subscribers: usize,
    },
    /// A peer's indication has arrived. The service does nothing with it, so it needs no right.
    Indication {
        /// The sender.
        from: RequestingPeer,
        /// The indication.
        message: MihfMessage,
    },
    /// A configured peer has changed.
    Peer {
        /// The peer.
        peer: MihfId,
        /// The change.
        change: MihPeerChange,
    },
    /// A message from an address outside all allowed networks was dropped.
    Refused(SocketAddr),
    /// A message was refused because its identifier belongs to another address.
    ClaimRefused(RequestingPeer),
    /// A function that is not configured has a new address, because the old one does not answer.
    AddressReplaced {
        /// The peer with its new address.
        peer: RequestingPeer,
        /// The old address.
        before: IpAddr,
    },
}

usher_core::counters! {
    /// Counters of a service, beside those of its protocol.
    pub struct MihServiceCounters {
        /// Dropped: datagrams and connections of addresses that are not allowed.
        not_allowed,
        /// Connections refused: too many, in all or from one network.
        connections_full,
        /// Requests answered with AuthorizationFailure.
        not_authorized,
        /// Requests answered with success.
        answered,
        /// Requests answered with another status.
        refused,
        /// Subscriptions refused: too many.
        subscriptions_full,
        /// Requests refused: too many wait for the kernel, or too many link actions wait for their time.
        requests_full,
        /// Answers of the kernel to requests that have ended.
        late,
        /// Links that came up.
        link_up,
        /// Links that were lost.
        link_down,
        /// Links with a predicted loss.
        link_going_down,
        /// Indications sent to subscribers.
        indications,
        /// Indications dropped: the subscriber does not acknowledge earlier ones.
        indications_dropped,
        /// Indications that a subscriber did not acknowledge.
        indications_lost,
        /// Subscribers removed: there is no longer a route to them.
        subscribers_lost,
        /// Indications received from other functions.
        heard,
    }
}

/// A request that waits for the kernel.
#[derive(Debug)]
struct PendingRequest {
    peer: RequestingPeer,
    transaction: IncomingRequestId,
    request: MessageId,
    since: Instant,
    work: PendingLinkWork,
}

/// A delayed switch of an interface.
#[derive(Debug)]
struct DelayedInterfaceSwitch {
    /// The requesting peer.
    peer: MihfId,
    interface: String,
    on: bool,
}

#[derive(Debug)]
enum PendingLinkWork {
    /// Measurements of these links.
    Measure(Vec<(LinkId, String)>, LinkStatusRequest),
    /// Link actions, with the results known so far.
    Act(Vec<(LinkId, Option<LinkActionResult>)>),
}

/// The purpose of an own transaction.
#[derive(Debug)]
enum TransactionPurpose {
    Neighbour(MihfId),
    Indication(MihfId),
    Farewell,
}

/// An MIH function with its user; see the [crate](crate).
#[derive(Debug)]
pub struct MihService {
    mihf: ChildMachine<Mihf>,
    config: MihServiceConfig,
    links: BTreeMap<String, InterfaceState>,
    subscriptions: SubscriptionTable,
    neighbours: BTreeMap<MihfId, NeighbourPeer>,
    token: u64,
    open: BTreeMap<u64, TransactionPurpose>,
    /// Unacknowledged indications, by subscriber.
    unacknowledged: BTreeMap<MihfId, usize>,
    pending: BTreeMap<u64, PendingRequest>,
    /// Pending jobs: their request and its parts.
    jobs: BTreeMap<u64, (u64, Vec<usize>)>,
    /// Delayed actions by due time and job token.
    delayed: BTreeMap<(Instant, u64), DelayedInterfaceSwitch>,
    connections: BTreeMap<ConnId, IpAddr>,
    by_network: BTreeMap<IpAddr, usize>,
    counters: MihServiceCounters,
    outputs: OutputQueue<MihServiceEvent, MihServiceJob>,
}

impl MihService {
    /// Creates a service. It sends requests to its peers when its timer first runs.
    #[must_use]
    pub fn new(config: MihServiceConfig, rng: SimulationRng) -> Self {
        let mut service = Self {
            mihf: ChildMachine::without_slot(Mihf::new(config.mih.clone(), rng)),
            links: BTreeMap::new(),
            subscriptions: SubscriptionTable::default(),
            neighbours: BTreeMap::new(),
            token: 0,
            open: BTreeMap::new(),
            unacknowledged: BTreeMap::new(),
            pending: BTreeMap::new(),
            jobs: BTreeMap::new(),
            delayed: BTreeMap::new(),
            connections: BTreeMap::new(),
            by_network: BTreeMap::new(),
            counters: MihServiceCounters::default(),
            outputs: OutputQueue::default(),
            config,
        };
        for interface in service.config.interfaces.clone() {
            service.links.insert(interface.name.clone(), InterfaceState::new(interface));
        }
        for peer in service.config.peers.clone() {
            service.add_neighbour(Instant::ZERO, peer);
        }
        service.update_capabilities(Instant::ZERO);
        service
    }
    /// Returns the counters of the service and of its protocol.
    #[must_use]
    pub fn counters(&self) -> (&MihServiceCounters, &mih::MihfCounters) {
        (&self.counters, self.mihf.counters())
    }
    /// Returns the number of subscribed interfaces, over all subscribers.
    #[must_use]
    pub const fn subscription_count(&self) -> usize {
        self.subscriptions.len()
    }
    /// Returns the identifier of an interface; `None` while its address is unknown.
    #[must_use]
    pub fn link_id(&self, interface: &str) -> Option<LinkId> {
        self.links.get(interface)?.link_id()
    }

    fn command_mihf(&mut self, now: Instant, command: mih::MihfCommand) {
        // A transaction that is no longer remembered cannot be answered.
        let _ = self.mihf.handle_command(now, command);
    }

    /// Adds a configured peer.
    fn add_neighbour(&mut self, now: Instant, peer: NeighbourPeerConfig) {
        self.command_mihf(now, mih::MihfCommand::Peer(peer.peer.clone()));
        self.neighbours.insert(peer.peer.id.clone(), NeighbourPeer::new(peer, now));
    }

    /// Updates the MIH function's capabilities, which answer Capability_Discover.
    fn update_capabilities(&mut self, now: Instant) {
        let links =
            self.links.values().filter(|known| known.report.present || known.settings.address.is_some());
        let links = links.filter_map(InterfaceState::link_id).map(|id| NetTypeAddr {
            network: NetworkType::for_technology(id.technology),
            address: id.address,
        });
        let mut commands = CommandList::LINK_GET_PARAMETERS.with(CommandList::NET_HO);
        if self.config.interfaces.iter().any(|interface| interface.allow_actions) {
            commands = commands.with(CommandList::LINK_ACTIONS);
        }
        let capabilities = MihfCapabilities {
            links: links.collect(),
            events: self.config.events,
            commands,
            // RFC 5677, 6.5: a server has UDP and TCP.
            transports: TransportList::UDP.with(TransportList::TCP),
            ..MihfCapabilities::default()
        };
        if capabilities != self.config.mih.capabilities {
            self.config.mih.capabilities = capabilities;
            self.command_mihf(now, mih::MihfCommand::Configure(Box::new(self.config.mih.clone())));
        }
    }

    fn is_permitted_sender(&self, address: IpAddr) -> bool {
        self.config.access.rights_of(address).is_some()
            || self.config.peers.iter().any(|peer| peer.peer.route.remote.ip() == address)
            || self.config.mih.proofs.as_ref().is_some_and(|proofs| proofs.is_allowed_address(address))
    }

    fn requesting_peer(&self, peer: MihfId, address: Option<SocketAddr>) -> RequestingPeer {
        let is_configured = self.neighbours.contains_key(&peer);
        RequestingPeer { peer, address, is_configured }
    }

    fn rights_of(&self, asked: &RequestingPeer) -> AccessRights {
        let address = asked.address.map(|address| address.ip());
        address.and_then(|address| self.config.access.rights_of(address)).unwrap_or_default()
    }

    /// True if an accepted connection may stay.
    fn admit_connection(&mut self, conn: ConnId, remote: SocketAddr) -> bool {
        if !self.is_permitted_sender(remote.ip()) {
            self.counters.not_allowed += 1;
            self.outputs.push_event(MihServiceEvent::Refused(remote));
            return false;
        }
        let of = usher_core::address::host_of(remote.ip());
        let MihServiceLimits { connections, connections_per_network, .. } = self.config.limits;
        let used = self.by_network.get(&of).copied().unwrap_or(0);
        if self.connections.len() >= connections || used >= connections_per_network {
            self.counters.connections_full += 1;
            return false;
        }
        self.connections.insert(conn, of);
        self.by_network.insert(of, used + 1);
        true
    }

    fn remove_connection(&mut self, conn: ConnId) {
        let Some(of) = self.connections.remove(&conn) else { return };
        if let Some(used) = self.by_network.get_mut(&of) {
            *used -= 1;
            if *used == 0 {
                self.by_network.remove(&of);
            }
        }
    }

    /// Returns the interface of a link.
    fn find_interface(&self, link: &LinkId) -> Option<(&String, &InterfaceState)> {
        self.links.iter().find(|(_, known)| known.link_id().as_ref() == Some(link))
    }

    fn interface_of_tuple(&self, link: &LinkTupleId) -> Option<&String> {
        let (name, known) = self.find_interface(&link.link)?;
        let poa = known.link_tuple_id()?.poa;
        (link.poa.is_none() || poa.is_none() || link.poa == poa).then_some(name)
    }

    /// Handles events of the MIH function and due requests until there are no more.
    fn drain_mihf_events(&mut self, now: Instant) {
        loop {
            while let Some(event) = self.outputs.next_event(&mut self.mihf) {
                self.handle_mihf_event(now, event);
            }
            let due = |n: &NeighbourPeer| n.due.is_some_and(|at| at <= now);
            let Some(id) = self.neighbours.iter().find(|(_, n)| due(n)).map(|(id, _)| id.clone()) else {
                return;
            };
            self.send_next_request(now, &id);
        }
    }

    /// Sends the next request to a peer.
    fn send_next_request(&mut self, now: Instant, id: &MihfId) {
        let links: Vec<LinkId> = self.links.values().filter_map(InterfaceState::link_id).collect();
        let Some(neighbour) = self.neighbours.get_mut(id) else { return };
        let Some(message) = neighbour.next_request(|| links) else { return };
        self.token += 1;
        let token = self.token;
        neighbour.out = Some(token);
        self.open.insert(token, TransactionPurpose::Neighbour(id.clone()));
        let sent = self.mihf.handle_command(now, mih::MihfCommand::Send { token, to: id.clone(), message });
        if sent.is_err() {
            self.handle_transaction_result(now, token, Err(mih::TransactionError::Transport));
        }
    }

    fn handle_mihf_event(&mut self, now: Instant, event: mih::MihfEvent) {
        match event {
            mih::MihfEvent::Done { token, result } => self.handle_transaction_result(now, token, result),
            mih::MihfEvent::Indication { from, message } => {
                self.counters.heard += 1;
                let address = self.mihf.last_source_address(&from);
                let from = self.requesting_peer(from, address);
                self.outputs.push_event(MihServiceEvent::Indication { from, message });
            }
            mih::MihfEvent::Request { from, transaction, message } => {
                let address = self.mihf.last_source_address(&from);
                let asked = self.requesting_peer(from, address);
                self.handle_request(now, asked, transaction, &message);
            }
            mih::MihfEvent::Registered { peer } => {
                let address = self.mihf.last_source_address(&peer);
                let asked = self.requesting_peer(peer, address);
                self.outputs.push_event(MihServiceEvent::Registered(asked));
            }
            mih::MihfEvent::Deregistered { peer } => {
                self.subscriptions.remove_peer(&peer);
                let address = self.mihf.last_source_address(&peer);
                let asked = self.requesting_peer(peer, address);
                self.outputs.push_event(MihServiceEvent::Deregistered(asked));
            }
            mih::MihfEvent::ClaimRefused { peer, address } => {
                let asked = self.requesting_peer(peer, Some(address));
                self.outputs.push_event(MihServiceEvent::ClaimRefused(asked));
            }
            mih::MihfEvent::AddressReplaced { peer, before, address } => {
                let asked = self.requesting_peer(peer, Some(address));
                self.outputs.push_event(MihServiceEvent::AddressReplaced { peer: asked, before });
            }
            // This MIH user answers subscription requests itself, so the MIH function reports none.
            mih::MihfEvent::Subscribed { .. } | mih::MihfEvent::Unsubscribed { .. } => {}
            // The service discovers only configured peers.
            mih::MihfEvent::Discovered { .. } => {}
        }
    }

    fn handle_transaction_result(
        &mut self,
        now: Instant,
        token: u64,
        result: Result<Option<MihfMessage>, mih::TransactionError>,
    ) {
        match self.open.remove(&token) {
            Some(TransactionPurpose::Neighbour(id)) => {
                let times = (self.config.refresh, self.config.retry);
                let Some(neighbour) = self.neighbours.get_mut(&id).filter(|n| n.out == Some(token)) else {
                    return;
                };
                neighbour.out = None;
                let was = neighbour.is_registered();
                let change = match result {
                    Ok(Some(answer)) => match neighbour.handle_response(now, &answer, times) {
                        PeerNotice::Registered(seconds) if !was => MihPeerChange::Registered(seconds),
                        PeerNotice::Subscribed(link, events) => MihPeerChange::Subscribed(link, events),
                        PeerNotice::Refused(request, status) => MihPeerChange::Refused(request, status),
                        PeerNotice::Registered(_) | PeerNotice::Discovered => return,
                    },
                    Ok(None) => return,
                    Err(failure) => {
                        neighbour.handle_failure(now, times.1);
                        MihPeerChange::Lost(failure)
                    }
                };
                self.outputs.push_event(MihServiceEvent::Peer { peer: id, change });
            }
            Some(TransactionPurpose::Indication(id)) => {
                if let Some(n) = self.unacknowledged.get_mut(&id) {
                    *n -= 1;
                    if *n == 0 {
                        self.unacknowledged.remove(&id);
                    }
                }
                match result {
                    Ok(_) => {}
                    Err(mih::TransactionError::NoRoute) => {
                        self.counters.subscribers_lost += 1;
                        self.subscriptions.remove_peer(&id);
                    }
                    Err(_) => self.counters.indications_lost += 1,
                }
            }
            Some(TransactionPurpose::Farewell) | None => {}
        }
    }

    /// Sends the response to a request.
    fn send_response(
        &mut self,
        now: Instant,
        asked: RequestingPeer,
        transaction: IncomingRequestId,
        request: MessageId,
        params: Vec<Tlv>,
    ) {
        let message = MihfMessage::new(request.to_response(), params);
        let status = message.status().unwrap_or(Status::UnspecifiedFailure);
        if self.mihf.handle_command(now, mih::MihfCommand::Respond { transaction, message }).is_err() {
            self.counters.late += 1;
            return;
        }
        *if status == Status::Success { &mut self.counters.answered } else { &mut self.counters.refused } +=
            1;
        self.outputs.push_event(MihServiceEvent::Answered { peer: asked, request, status });
    }

    fn refuse_request(
        &mut self,
        now: Instant,
        asked: RequestingPeer,
        transaction: IncomingRequestId,
        request: MessageId,
        status: Status,
    ) {
        self.send_response(now, asked, transaction, request, [Tlv::Status(status)].into());
    }

    /// Handles a request that the MIH function passes to its user.
    fn handle_request(
        &mut self,
        now: Instant,
        asked: RequestingPeer,
        transaction: IncomingRequestId,
        message: &MihfMessage,
    ) {
        let id = message.id;
        let right = match id {
            MessageId::EVENT_SUBSCRIBE_REQUEST | MessageId::EVENT_UNSUBSCRIBE_REQUEST => AccessRight::Events,
            MessageId::LINK_GET_PARAMETERS_REQUEST => AccessRight::Parameters,
            MessageId::LINK_ACTIONS_REQUEST => AccessRight::Actions,
            MessageId::NET_HO_CANDIDATE_QUERY_REQUEST => AccessRight::Handover,
            _ => return self.refuse_request(now, asked, transaction, id, Status::Rejected),
        };
        if !self.rights_of(&asked).contains(right) {
            self.counters.not_authorized += 1;
            return self.refuse_request(now, asked, transaction, id, Status::AuthorizationFailure);
        }
        match right {
            AccessRight::Events => {
                let params = self.update_subscription(&asked.peer, message);
                self.send_response(now, asked, transaction, id, params);
            }
            AccessRight::Parameters => self.handle_get_parameters(now, asked, transaction, message),
            AccessRight::Actions => self.handle_link_actions(now, asked, transaction, message),
            AccessRight::Handover => {
                let params = self.candidate_query_params(message);
                self.send_response(now, asked, transaction, id, params);
            }
        }
    }

    fn apply_config(&mut self, now: Instant, config: MihServiceConfig) {
        let before = core::mem::replace(&mut self.config, config);
        self.config.mih.capabilities = before.mih.capabilities;
        let settings = |name: &String| self.config.interfaces.iter().find(|i| i.name == *name);
        let all = self.config.interfaces.is_empty();
        self.links.retain(|name, known| match settings(name) {
            Some(interface) => {
                known.settings = interface.clone();
                true
            }
            None => {
                known.settings = InterfaceConfig::with_name(name);
                all
            }
        });
        for interface in &self.config.interfaces {
            let new = || InterfaceState::new(interface.clone());
            self.links.entry(interface.name.clone()).or_insert_with(new);
        }
        let gone: Vec<MihfId> = self
            .neighbours
            .keys()
            .filter(|id| !self.config.peers.iter().any(|peer| peer.peer.id == **id))
            .cloned()
            .collect();
        for id in gone {
            self.neighbours.remove(&id);
            self.command_mihf(now, mih::MihfCommand::Unname(id.clone()));
            if !self.mihf.is_registered(&id) {
                self.subscriptions.remove_peer(&id);
            }
        }
        for peer in self.config.peers.clone() {
            if self.neighbours.get(&peer.peer.id).is_none_or(|known| known.settings != peer) {
                self.add_neighbour(now, peer);
            }
        }
        let function = Box::new(self.config.mih.clone());
        self.command_mihf(now, mih::MihfCommand::Configure(function));
        self.update_capabilities(now);
        for peer in self.subscriptions.peers() {
            let address = self.mihf.last_source_address(&peer);
            if address.is_some()
                && !self.rights_of(&self.requesting_peer(peer.clone(), address)).contains(AccessRight::Events)
            {
                self.subscriptions.remove_peer(&peer);
            }
        }
    }

    fn deregister_everywhere(&mut self, now: Instant) {
        let registered = self.neighbours.iter().filter(|(_, n)| n.is_registered()).map(|(id, _)| id.clone());
        for to in registered.collect::<Vec<_>>() {
            self.token += 1;
            self.open.insert(self.token, TransactionPurpose::Farewell);
            let message = MihfMessage::new(MessageId::DEREGISTER_REQUEST, []);
            self.command_mihf(now, mih::MihfCommand::Send { token: self.token, to, message });
        }
    }

    fn expire_timers(&mut self, now: Instant) {
        self.mihf.handle_input(now, MachineInput::Timeout);
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= now
        {
            let ((_, token), DelayedInterfaceSwitch { interface, on, .. }) = first.remove_entry();
            // The configuration may have changed since the request.
            if self.links.get(&interface).is_some_and(|known| known.settings.allow_actions) {
                self.outputs
                    .push_job(usher_core::JobRequest::new(token, MihServiceJob::Switch { interface, on }));
            }
        }
    }
}

impl Machine for MihService {
    type Command = MihServiceCommand;
    type Event = MihServiceEvent;
    type Job = MihServiceJob;

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Datagram { path, .. } if !self.is_permitted_sender(path.remote.ip()) => {
                self.counters.not_allowed += 1;
                self.outputs.push_event(MihServiceEvent::Refused(path.remote));
                return;
            }
            MachineInput::Stream { conn, event: StreamEvent::Accepted { remote, .. } } => {
                if !self.admit_connection(conn, remote)
                    && let Some(refusal) = input.refusal()
                {
                    return self.outputs.push_operation(refusal);
                }
            }
            MachineInput::Stream { conn, event: StreamEvent::Closed(_) } => self.remove_connection(conn),
            _ => {}
        }
        match input {
            MachineInput::Timeout => self.expire_timers(now),
            other => self.mihf.handle_input(now, other),
        }
        self.drain_mihf_events(now);
    }

    fn handle_command(&mut self, now: Instant, command: MihServiceCommand) -> Result<(), CommandError> {
        match command {
            MihServiceCommand::Link(report) => self.link_report(now, report),
            MihServiceCommand::Watched { interface, value } => {
                self.check_watched_value(now, &interface, value)
            }
            MihServiceCommand::GoingDown { interface, time_to_loss: within } => {
                self.report_link_going_down(now, &interface, LinkGoingDownReason::ParameterDegrading, within);
            }
            // RFC 5677, 4: after an address change, registrations are renewed.
            MihServiceCommand::Moved => {
                self.neighbours.values_mut().for_each(|neighbour| neighbour.schedule_exchange_restart(now))
            }
            MihServiceCommand::Measured { token, reports } => self.finish_measurement(now, token, reports),
            MihServiceCommand::Acted { token, done } => self.finish_link_action(now, token, done),
            MihServiceCommand::Configure(config) => self.apply_config(now, *config),
            MihServiceCommand::Leave => self.deregister_everywhere(now),
        }
        self.drain_mihf_events(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let neighbours = self.neighbours.values().filter_map(|neighbour| neighbour.due).min();
        let delayed = self.delayed.first_key_value().map(|((at, _), _)| *at);
        [self.mihf.poll_timeout(), neighbours, delayed].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;

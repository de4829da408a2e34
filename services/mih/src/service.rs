//! The MIH function of a host and its user.

mod links;
mod requests;

use crate::access::{Access, Right, Rights};
use crate::link::{Interface, Known, LinkReport};
use crate::neighbour::{Neighbour, PeerSettings, Told};
use crate::subscriptions::Subscriptions;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::{
    Child, CommandError, ConnId, Duration, Input, Instant, Machine, OutputOf, Outputs, Rng, StreamEvent,
};
use usher_mih::{
    self as mih, Capabilities, CommandList, EventList, Incoming, LinkActionResult, LinkDownReason,
    LinkGoingDownReason, LinkId, LinkStatusRequest, LinkTupleId, Message, MessageId, Mihf, MihfId,
    NetTypeAddr, NetworkType, Status, Tlv, TransportList,
};

/// What nobody may exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Accepted connections at a time.
    pub connections: usize,
    /// Of them, those from one network: an IPv4 address, or 64 bits of an IPv6 address.
    pub connections_per_network: usize,
    /// Interfaces that are subscribed to, of all subscribers together.
    pub subscriptions: usize,
    /// Of one subscriber.
    pub subscriptions_per_peer: usize,
    /// Requests that wait for the kernel, and link actions that wait for their time, of all together.
    pub requests: usize,
    /// Of one function.
    pub requests_per_peer: usize,
    /// Indications to one subscriber that are not acknowledged; further ones are dropped.
    pub indications_per_peer: usize,
}

/// What a service is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its MIH function; the capabilities are filled in from the links.
    pub mih: mih::Config,
    /// Who may do what.
    pub access: Access,
    /// The interfaces that it tells of; none: all that the kernel has.
    pub interfaces: Vec<Interface>,
    /// The events that it tells.
    pub events: EventList,
    /// Other functions.
    pub peers: Vec<PeerSettings>,
    /// How often registrations and subscriptions at peers are renewed, at least.
    pub refresh: Duration,
    /// How soon a peer that did not answer is asked again.
    pub retry: Duration,
    /// What nobody may exceed.
    pub limits: Limits,
}

/// What is asked of the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Job {
    /// What the kernel says of these interfaces now; the answer is [`Command::Measured`].
    Measure {
        /// Their names.
        interfaces: Vec<String>,
    },
    /// An interface is to be switched on or off; the answer is [`Command::Acted`].
    Switch {
        /// Its name.
        interface: String,
        /// On.
        on: bool,
    },
}

/// What a service is told.
#[derive(Clone, Debug)]
pub enum Command {
    /// An interface has changed, or is seen for the first time.
    Link(LinkReport),
    /// The watched value of an interface was read.
    Watched {
        /// Its name.
        interface: String,
        /// The value.
        value: f64,
    },
    /// The link layer itself foresees the loss of an interface's link.
    GoingDown {
        /// Its name.
        interface: String,
        /// In which time.
        within: Duration,
    },
    /// This host's addresses have changed: peers that are registered with hear of it.
    Moved,
    /// The answer to [`Job::Measure`].
    Measured {
        /// The job's token.
        token: u64,
        /// What the kernel says, of those that are there.
        reports: Vec<LinkReport>,
    },
    /// The answer to [`Job::Switch`].
    Acted {
        /// The job's token.
        token: u64,
        /// It was done.
        done: bool,
    },
    /// Other settings; the identifier and what bounds the MIH function's memory stay.
    Configure(Box<Config>),
    /// This function goes away: peers with which it is registered are told, without waiting for their answer.
    Leave,
}

/// What became of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkChange {
    /// It carries packets.
    Up,
    /// It does not any more.
    Down(LinkDownReason),
    /// It will be lost.
    GoingDown(LinkGoingDownReason, Duration),
}

/// What became of a peer of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerChange {
    /// It has registered this function, for so many seconds.
    Registered(u32),
    /// It will tell these events of a link.
    Subscribed(LinkTupleId, EventList),
    /// It refused what was asked.
    Refused(MessageId, Option<Status>),
    /// It did not answer.
    Lost(mih::Failure),
}

/// Who asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// As it calls itself.
    pub peer: MihfId,
    /// From where.
    pub address: Option<SocketAddr>,
    /// It is a peer of the configuration. Of others there may be any number, who are not to fill a log.
    pub is_configured: bool,
}

/// What a service says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Another function registered.
    Registered(Asked),
    /// It is registered no more: it ended that, or its time is over.
    Deregistered(Asked),
    /// A request was answered.
    Answered {
        /// Whose.
        asked: Asked,
        /// Which.
        request: MessageId,
        /// How.
        status: Status,
    },
    /// A link of this host has changed.
    Link {
        /// The interface.
        interface: String,
        /// How.
        change: LinkChange,
        /// How many subscribers are told.
        told: usize,
    },
    /// Another function told something. Nothing comes of it here: it takes no right, and is for whoever reads.
    Indication {
        /// Which.
        from: Asked,
        /// What.
        message: Message,
    },
    /// A peer of the configuration has changed.
    Peer {
        /// Which.
        peer: MihfId,
        /// How.
        change: PeerChange,
    },
    /// Somebody was not heard: an address of no network that is allowed.
    Refused(SocketAddr),
    /// Somebody spoke under an identifier that is another address's, and was refused.
    ClaimRefused(Asked),
    /// A function that is not configured has another address: at the one before nobody answers.
    AddressReplaced {
        /// Who, and where it is now.
        asked: Asked,
        /// Where it was.
        before: IpAddr,
    },
}

usher_core::counters! {
    /// What a service did beside its protocol.
    pub struct Counters {
        /// Datagrams and connections of addresses that are not allowed: dropped.
        not_allowed,
        /// Connections refused because there are too many, or too many from one network.
        connections_full,
        /// Requests answered with AuthorizationFailure.
        not_authorized,
        /// Requests answered with success.
        answered,
        /// Requests answered otherwise.
        refused,
        /// Subscriptions refused because there are too many.
        subscriptions_full,
        /// Requests refused because too many wait for the kernel, or too many link actions for their time.
        requests_full,
        /// Answers of the kernel for requests that are over.
        late,
        /// Links that came up.
        link_up,
        /// Links that were lost.
        link_down,
        /// Links of which the loss was foreseen.
        link_going_down,
        /// Indications sent to subscribers.
        indications,
        /// Indications dropped because a subscriber does not acknowledge the earlier ones.
        indications_dropped,
        /// Indications that a subscriber did not acknowledge.
        indications_lost,
        /// Subscribers forgotten because there is no way to them any more.
        subscribers_lost,
        /// Indications that came from other functions.
        heard,
    }
}

/// A request that waits for the kernel.
#[derive(Debug)]
struct Pending {
    asked: Asked,
    transaction: Incoming,
    request: MessageId,
    since: Instant,
    what: Waits,
}

/// An interface that is to be switched on or off later.
#[derive(Debug)]
struct DelayedAction {
    /// Who asked for it.
    peer: MihfId,
    interface: String,
    on: bool,
}

#[derive(Debug)]
enum Waits {
    /// For measurements of these links.
    Measure(Vec<(LinkId, String)>, LinkStatusRequest),
    /// For actions: what came of each, as far as it is known.
    Act(Vec<(LinkId, Option<LinkActionResult>)>),
}

/// What a transaction of ours is for.
#[derive(Debug)]
enum Purpose {
    Neighbour(MihfId),
    Indication(MihfId),
    Farewell,
}

/// An MIH function with its user; see the [crate](crate).
#[derive(Debug)]
pub struct MihService {
    mihf: Child<Mihf>,
    config: Config,
    links: BTreeMap<String, Known>,
    subscriptions: Subscriptions,
    neighbours: BTreeMap<MihfId, Neighbour>,
    token: u64,
    open: BTreeMap<u64, Purpose>,
    /// Indications that are not acknowledged, by subscriber.
    unacknowledged: BTreeMap<MihfId, usize>,
    pending: BTreeMap<u64, Pending>,
    /// Jobs under way: of which request, and which of its parts.
    jobs: BTreeMap<u64, (u64, Vec<usize>)>,
    /// By when they are due, and the tokens of their jobs.
    delayed: BTreeMap<(Instant, u64), DelayedAction>,
    connections: BTreeMap<ConnId, IpAddr>,
    by_network: BTreeMap<IpAddr, usize>,
    counters: Counters,
    outputs: Outputs<Event, Job>,
}

impl MihService {
    /// A service that has done nothing yet. It asks its peers as soon as its timer is looked at.
    #[must_use]
    pub fn new(config: Config, rng: Rng) -> Self {
        let mut service = Self {
            mihf: Child::only(Mihf::new(config.mih.clone(), rng)),
            links: BTreeMap::new(),
            subscriptions: Subscriptions::default(),
            neighbours: BTreeMap::new(),
            token: 0,
            open: BTreeMap::new(),
            unacknowledged: BTreeMap::new(),
            pending: BTreeMap::new(),
            jobs: BTreeMap::new(),
            delayed: BTreeMap::new(),
            connections: BTreeMap::new(),
            by_network: BTreeMap::new(),
            counters: Counters::default(),
            outputs: Outputs::default(),
            config,
        };
        for interface in service.config.interfaces.clone() {
            service.links.insert(interface.name.clone(), Known::new(interface));
        }
        for peer in service.config.peers.clone() {
            service.meet(Instant::ZERO, peer);
        }
        service.tell_capabilities(Instant::ZERO);
        service
    }
    /// What it has done, beside its protocol and in it.
    #[must_use]
    pub fn counters(&self) -> (&Counters, &mih::Counters) {
        (&self.counters, self.mihf.counters())
    }
    /// Interfaces that are subscribed to, of all subscribers together.
    #[must_use]
    pub const fn subscriptions(&self) -> usize {
        self.subscriptions.len()
    }
    /// The identifier of an interface; `None` while its address is not known.
    #[must_use]
    pub fn link(&self, interface: &str) -> Option<LinkId> {
        self.links.get(interface)?.id()
    }

    fn order(&mut self, now: Instant, command: mih::Command) {
        // A transaction that the function has forgotten has no answer.
        let _ = self.mihf.command(now, command);
    }

    /// Takes up a peer of the configuration.
    fn meet(&mut self, now: Instant, peer: PeerSettings) {
        self.order(now, mih::Command::Peer(peer.peer.clone()));
        self.neighbours.insert(peer.peer.id.clone(), Neighbour::new(peer, now));
    }

    /// The MIH function answers Capability_Discover with what there is now.
    fn tell_capabilities(&mut self, now: Instant) {
        let links =
            self.links.values().filter(|known| known.report.present || known.settings.address.is_some());
        let links = links
            .filter_map(Known::id)
            .map(|id| NetTypeAddr { network: NetworkType::of(id.technology), address: id.address });
        let mut commands = CommandList::LINK_GET_PARAMETERS.with(CommandList::NET_HO);
        if self.config.interfaces.iter().any(|interface| interface.may_act) {
            commands = commands.with(CommandList::LINK_ACTIONS);
        }
        let capabilities = Capabilities {
            links: links.collect(),
            events: self.config.events,
            commands,
            transports: TransportList::UDP.with(TransportList::TCP),
            ..Capabilities::default()
        };
        if capabilities != self.config.mih.capabilities {
            self.config.mih.capabilities = capabilities;
            self.order(now, mih::Command::Configure(Box::new(self.config.mih.clone())));
        }
    }

    fn is_heard(&self, address: IpAddr) -> bool {
        self.config.access.of(address).is_some()
            || self.config.peers.iter().any(|peer| peer.peer.route.remote.ip() == address)
            || self.config.mih.proofs.as_ref().is_some_and(|proofs| proofs.is_place(address))
    }

    fn asked(&self, peer: MihfId, address: Option<SocketAddr>) -> Asked {
        let is_configured = self.neighbours.contains_key(&peer);
        Asked { peer, address, is_configured }
    }

    fn rights(&self, asked: &Asked) -> Rights {
        let address = asked.address.map(|address| address.ip());
        address.and_then(|address| self.config.access.of(address)).unwrap_or_default()
    }

    /// Whether a connection that was accepted may stay.
    fn admit(&mut self, conn: ConnId, remote: SocketAddr) -> bool {
        if !self.is_heard(remote.ip()) {
            self.counters.not_allowed += 1;
            self.outputs.event(Event::Refused(remote));
            return false;
        }
        let of = usher_core::address::host_of(remote.ip());
        let Limits { connections, connections_per_network, .. } = self.config.limits;
        let used = self.by_network.get(&of).copied().unwrap_or(0);
        if self.connections.len() >= connections || used >= connections_per_network {
            self.counters.connections_full += 1;
            return false;
        }
        self.connections.insert(conn, of);
        self.by_network.insert(of, used + 1);
        true
    }

    fn closed(&mut self, conn: ConnId) {
        let Some(of) = self.connections.remove(&conn) else { return };
        if let Some(used) = self.by_network.get_mut(&of) {
            *used -= 1;
            if *used == 0 {
                self.by_network.remove(&of);
            }
        }
    }

    /// The interface that is meant by a link.
    fn interface(&self, link: &LinkId) -> Option<(&String, &Known)> {
        self.links.iter().find(|(_, known)| known.id().as_ref() == Some(link))
    }

    fn of_tuple(&self, link: &LinkTupleId) -> Option<&String> {
        let (name, known) = self.interface(&link.link)?;
        let poa = known.tuple()?.poa;
        (link.poa.is_none() || poa.is_none() || link.poa == poa).then_some(name)
    }

    /// What the MIH function says, and what is due, until there is no more.
    fn settle(&mut self, now: Instant) {
        loop {
            while let Some(event) = self.outputs.next_event(&mut self.mihf) {
                self.hear(now, event);
            }
            let due = |n: &Neighbour| n.due.is_some_and(|at| at <= now);
            let Some(id) = self.neighbours.iter().find(|(_, n)| due(n)).map(|(id, _)| id.clone()) else {
                return;
            };
            self.ask(now, &id);
        }
    }

    /// Asks a peer the next question.
    fn ask(&mut self, now: Instant, id: &MihfId) {
        let links: Vec<LinkId> = self.links.values().filter_map(Known::id).collect();
        let Some(neighbour) = self.neighbours.get_mut(id) else { return };
        let Some(message) = neighbour.question(|| links) else { return };
        self.token += 1;
        let token = self.token;
        neighbour.out = Some(token);
        self.open.insert(token, Purpose::Neighbour(id.clone()));
        let sent = self.mihf.command(now, mih::Command::Send { token, to: id.clone(), message });
        if sent.is_err() {
            self.done(now, token, Err(mih::Failure::Transport));
        }
    }

    fn hear(&mut self, now: Instant, event: mih::Event) {
        match event {
            mih::Event::Done { token, result } => self.done(now, token, result),
            mih::Event::Indication { from, message } => {
                self.counters.heard += 1;
                let address = self.mihf.heard_from(&from);
                let from = self.asked(from, address);
                self.outputs.event(Event::Indication { from, message });
            }
            mih::Event::Request { from, transaction, message } => {
                let address = self.mihf.heard_from(&from);
                let asked = self.asked(from, address);
                self.request(now, asked, transaction, &message);
            }
            mih::Event::Registered { peer } => {
                let address = self.mihf.heard_from(&peer);
                let asked = self.asked(peer, address);
                self.outputs.event(Event::Registered(asked));
            }
            mih::Event::Deregistered { peer } => {
                self.subscriptions.forget(&peer);
                let address = self.mihf.heard_from(&peer);
                let asked = self.asked(peer, address);
                self.outputs.event(Event::Deregistered(asked));
            }
            mih::Event::ClaimRefused { peer, address } => {
                let asked = self.asked(peer, Some(address));
                self.outputs.event(Event::ClaimRefused(asked));
            }
            mih::Event::AddressReplaced { peer, before, address } => {
                let asked = self.asked(peer, Some(address));
                self.outputs.event(Event::AddressReplaced { asked, before });
            }
            // Those are asked of this user and not answered by the function.
            mih::Event::Subscribed { .. } | mih::Event::Unsubscribed { .. } => {}
            // It asks for capabilities of those alone that it knows.
            mih::Event::Discovered { .. } => {}
        }
    }

    fn done(&mut self, now: Instant, token: u64, result: Result<Option<Message>, mih::Failure>) {
        match self.open.remove(&token) {
            Some(Purpose::Neighbour(id)) => {
                let times = (self.config.refresh, self.config.retry);
                let Some(neighbour) = self.neighbours.get_mut(&id).filter(|n| n.out == Some(token)) else {
                    return;
                };
                neighbour.out = None;
                let was = neighbour.is_registered();
                let change = match result {
                    Ok(Some(answer)) => match neighbour.answered(now, &answer, times) {
                        Told::Registered(seconds) if !was => PeerChange::Registered(seconds),
                        Told::Subscribed(link, events) => PeerChange::Subscribed(link, events),
                        Told::Refused(request, status) => PeerChange::Refused(request, status),
                        Told::Registered(_) | Told::Discovered => return,
                    },
                    Ok(None) => return,
                    Err(failure) => {
                        neighbour.failed(now, times.1);
                        PeerChange::Lost(failure)
                    }
                };
                self.outputs.event(Event::Peer { peer: id, change });
            }
            Some(Purpose::Indication(id)) => {
                if let Some(n) = self.unacknowledged.get_mut(&id) {
                    *n -= 1;
                    if *n == 0 {
                        self.unacknowledged.remove(&id);
                    }
                }
                match result {
                    Ok(_) => {}
                    Err(mih::Failure::NoRoute) => {
                        self.counters.subscribers_lost += 1;
                        self.subscriptions.forget(&id);
                    }
                    Err(_) => self.counters.indications_lost += 1,
                }
            }
            Some(Purpose::Farewell) | None => {}
        }
    }

    /// Answers a request.
    fn respond(
        &mut self,
        now: Instant,
        asked: Asked,
        transaction: Incoming,
        request: MessageId,
        params: Vec<Tlv>,
    ) {
        let message = Message::new(request.response(), params);
        let status = message.status().unwrap_or(Status::UnspecifiedFailure);
        if self.mihf.command(now, mih::Command::Respond { transaction, message }).is_err() {
            self.counters.late += 1;
            return;
        }
        *if status == Status::Success { &mut self.counters.answered } else { &mut self.counters.refused } +=
            1;
        self.outputs.event(Event::Answered { asked, request, status });
    }

    fn refuse(
        &mut self,
        now: Instant,
        asked: Asked,
        transaction: Incoming,
        request: MessageId,
        status: Status,
    ) {
        self.respond(now, asked, transaction, request, [Tlv::Status(status)].into());
    }

    /// A request came that the MIH function does not answer by itself.
    fn request(&mut self, now: Instant, asked: Asked, transaction: Incoming, message: &Message) {
        let id = message.id;
        let right = match id {
            MessageId::EVENT_SUBSCRIBE_REQUEST | MessageId::EVENT_UNSUBSCRIBE_REQUEST => Right::Events,
            MessageId::LINK_GET_PARAMETERS_REQUEST => Right::Parameters,
            MessageId::LINK_ACTIONS_REQUEST => Right::Actions,
            MessageId::NET_HO_CANDIDATE_QUERY_REQUEST => Right::Handover,
            _ => return self.refuse(now, asked, transaction, id, Status::Rejected),
        };
        if !self.rights(&asked).has(right) {
            self.counters.not_authorized += 1;
            return self.refuse(now, asked, transaction, id, Status::AuthorizationFailure);
        }
        match right {
            Right::Events => {
                let params = self.subscribe(&asked.peer, message);
                self.respond(now, asked, transaction, id, params);
            }
            Right::Parameters => self.parameters(now, asked, transaction, message),
            Right::Actions => self.actions(now, asked, transaction, message),
            Right::Handover => {
                let params = self.candidates(message);
                self.respond(now, asked, transaction, id, params);
            }
        }
    }

    fn configure(&mut self, now: Instant, config: Config) {
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
                known.settings = Interface::named(name);
                all
            }
        });
        for interface in &self.config.interfaces {
            let new = || Known::new(interface.clone());
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
            self.order(now, mih::Command::Unname(id.clone()));
            if !self.mihf.is_registered(&id) {
                self.subscriptions.forget(&id);
            }
        }
        for peer in self.config.peers.clone() {
            if self.neighbours.get(&peer.peer.id).is_none_or(|known| known.settings != peer) {
                self.meet(now, peer);
            }
        }
        let function = Box::new(self.config.mih.clone());
        self.order(now, mih::Command::Configure(function));
        self.tell_capabilities(now);
        for peer in self.subscriptions.peers() {
            let address = self.mihf.heard_from(&peer);
            if address.is_some() && !self.rights(&self.asked(peer.clone(), address)).has(Right::Events) {
                self.subscriptions.forget(&peer);
            }
        }
    }

    fn leave(&mut self, now: Instant) {
        let registered = self.neighbours.iter().filter(|(_, n)| n.is_registered()).map(|(id, _)| id.clone());
        for to in registered.collect::<Vec<_>>() {
            self.token += 1;
            self.open.insert(self.token, Purpose::Farewell);
            let message = Message::new(MessageId::DEREGISTER_REQUEST, []);
            self.order(now, mih::Command::Send { token: self.token, to, message });
        }
    }

    fn timeout(&mut self, now: Instant) {
        self.mihf.handle(now, Input::Timeout);
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= now
        {
            let ((_, token), DelayedAction { interface, on, .. }) = first.remove_entry();
            // Since it was asked for, the configuration may have changed.
            if self.links.get(&interface).is_some_and(|known| known.settings.may_act) {
                self.outputs.job(usher_core::Job::new(token, Job::Switch { interface, on }));
            }
        }
    }
}

impl Machine for MihService {
    type Command = Command;
    type Event = Event;
    type Job = Job;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Datagram { path, .. } if !self.is_heard(path.remote.ip()) => {
                self.counters.not_allowed += 1;
                self.outputs.event(Event::Refused(path.remote));
                return;
            }
            Input::Stream { conn, event: StreamEvent::Accepted { remote, .. } } => {
                if !self.admit(conn, remote)
                    && let Some(refusal) = input.refusal()
                {
                    return self.outputs.operate(refusal);
                }
            }
            Input::Stream { conn, event: StreamEvent::Closed(_) } => self.closed(conn),
            _ => {}
        }
        match input {
            Input::Timeout => self.timeout(now),
            other => self.mihf.handle(now, other),
        }
        self.settle(now);
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Link(report) => self.link_report(now, report),
            Command::Watched { interface, value } => self.watched(now, &interface, value),
            Command::GoingDown { interface, within } => {
                self.foresee(now, &interface, LinkGoingDownReason::ParameterDegrading, within);
            }
            Command::Moved => self.neighbours.values_mut().for_each(|neighbour| neighbour.restart(now)),
            Command::Measured { token, reports } => self.measured(now, token, reports),
            Command::Acted { token, done } => self.acted(now, token, done),
            Command::Configure(config) => self.configure(now, *config),
            Command::Leave => self.leave(now),
        }
        self.settle(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
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

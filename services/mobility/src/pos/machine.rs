//! The point of service's machine.

use super::table::{Action, On, PointOfServiceTable, State};
use super::{Admission, Command, Config, Counters, Event, Trigger};
use crate::link::LinkEvent;
use crate::messages;
use crate::requests::{Request, Requests};
use crate::work;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use usher_core::timer::earliest;
use usher_core::{Child, CommandError, Input, Instant, Machine, NoJob, OutputOf, Outputs, Rng, Work};
use usher_mih::{self as mih, Incoming, LinkTupleId, Message, MessageId, Mihf, MihfId, Status, Tlv};

/// What is known of a station.
#[derive(Debug)]
struct Client {
    link: LinkTupleId,
    state: State,
    /// When the last step was over.
    mark: Instant,
    /// The message whose result is waited for.
    out: Option<u64>,
    /// The station's request that waits for the target.
    asked: Option<(Incoming, MessageId)>,
    /// When the handover is forgotten.
    forget_at: Option<Instant>,
}

/// Whose result a token's is.
#[derive(Debug)]
enum Purpose {
    /// The controller's of this station.
    Handover(MihfId),
    /// MIH_N2N_HO_Complete for this MIH_MN_HO_Complete.
    Completion(Incoming),
    /// MIH_Event_Subscribe.
    Subscription,
}

/// A point of service; see the [module](super).
#[derive(Debug)]
pub struct PointOfService {
    config: Config,
    mihf: Child<Mihf>,
    started: bool,
    clients: BTreeMap<MihfId, Client>,
    admission: Admission,
    requests: Requests,
    token: u64,
    open: BTreeMap<u64, Purpose>,
    /// Messages that the MIH function would not take: as good as lost.
    unsent: VecDeque<u64>,
    outputs: Outputs<Event>,
    counters: Counters,
}

impl PointOfService {
    /// A point of service that has done nothing yet.
    #[must_use]
    pub fn new(config: Config, rng: Rng) -> Self {
        let client = |c: &super::Client| {
            let client = Client {
                link: c.link.clone(),
                state: State::Idle,
                mark: Instant::ZERO,
                out: None,
                asked: None,
                forget_at: None,
            };
            (c.peer.id.clone(), client)
        };
        Self {
            mihf: Child::only(Mihf::new(config.mih.clone(), rng)),
            started: false,
            clients: config.clients.iter().map(client).collect(),
            admission: Admission::new(config.capacity, config.reserve),
            requests: Requests::new(config.max_requests),
            token: 0,
            open: BTreeMap::new(),
            unsent: VecDeque::new(),
            outputs: Outputs::default(),
            counters: Counters::default(),
            config,
        }
    }
    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// Its MIH function.
    #[must_use]
    pub fn mihf(&self) -> &Mihf {
        &self.mihf
    }
    /// Its network's resources.
    #[must_use]
    pub const fn admission(&self) -> &Admission {
        &self.admission
    }
    /// Where the handover of a station stands; `None`: it is not known.
    #[must_use]
    pub fn state(&self, station: &MihfId) -> Option<State> {
        self.clients.get(station).map(|client| client.state)
    }

    /// An event of a station's controller; false if it means nothing in its state.
    fn happen(&mut self, now: Instant, station: &MihfId, on: On) -> bool {
        let Some(client) = self.clients.get_mut(station) else { return false };
        let Some(row) = PointOfServiceTable::step(client.state, on) else { return false };
        client.state = row.to;
        let forgets = PointOfServiceTable::find(row.to, On::Forgotten, |_| true).is_some();
        client.forget_at = forgets.then(|| now + self.config.forget);
        for action in row.actions {
            self.act(now, station, *action);
        }
        true
    }

    fn act(&mut self, now: Instant, station: &MihfId, action: Action) {
        let Some(client) = self.clients.get_mut(station) else { return };
        let neighbour = self.config.neighbour.as_ref();
        let target = neighbour.map(|n| messages::target_link(&client.link, n.technology, &n.poa));
        match action {
            Action::Over(step) => {
                let took = now.since(client.mark);
                client.mark = now;
                self.outputs.event(Event::Step { station: station.clone(), step, took });
            }
            Action::Begin => {
                client.mark = now;
                self.counters.began += 1;
                self.outputs.event(Event::HandoverBegan { station: station.clone() });
            }
            Action::Inquire => {
                let message = target.map(|target| messages::query_resources(station, &target));
                self.send(now, station, neighbour.map(|n| n.peer.id.clone()), message);
            }
            Action::Book => {
                let message = target.map(|target| messages::n2n_commit(station, &target));
                self.send(now, station, neighbour.map(|n| n.peer.id.clone()), message);
            }
            Action::Ask => {
                let message = target.map(|target| messages::net_candidate_query(&target));
                self.send(now, station, Some(station.clone()), message);
            }
            Action::Tell => {
                let message = target.map(|target| messages::net_commit(&target));
                self.send(now, station, Some(station.clone()), message);
            }
            Action::Offer => {
                let link = client.link.clone();
                let message = target.map(|target| messages::mn_candidates(&link, &target));
                self.answer(now, station, message);
            }
            Action::Grant => self.answer(now, station, target.map(|target| messages::mn_committed(&target))),
            Action::Deny => self.deny(now, station, Status::Rejected),
            Action::Regret => self.deny(now, station, Status::NetworkError),
            Action::BreakOff => {
                self.counters.broken_off += 1;
                self.outputs.event(Event::BrokenOff { station: station.clone() });
            }
            Action::Abandon => {
                if let Some(token) = client.out.take() {
                    self.open.remove(&token);
                    self.order(now, mih::Command::Abandon { token });
                }
            }
            Action::Forget => self.counters.forgotten += 1,
        }
    }

    /// Sends a request of a station's controller; without anybody to send it to it is as good as lost.
    fn send(&mut self, now: Instant, station: &MihfId, to: Option<MihfId>, message: Option<Message>) {
        let token = self.token(Purpose::Handover(station.clone()));
        if let Some(client) = self.clients.get_mut(station) {
            client.out = Some(token);
        }
        match (to, message) {
            (Some(to), Some(message)) => self.submit(now, token, to, message),
            _ => self.unsent.push_back(token),
        }
    }

    fn token(&mut self, purpose: Purpose) -> u64 {
        self.token += 1;
        self.open.insert(self.token, purpose);
        self.token
    }

    fn submit(&mut self, now: Instant, token: u64, to: MihfId, message: Message) {
        if self.mihf.command(now, mih::Command::Send { token, to, message }).is_err() {
            self.unsent.push_back(token);
        }
    }

    fn order(&mut self, now: Instant, command: mih::Command) {
        // A transaction that the MIH function has forgotten by now has no answer.
        let _ = self.mihf.command(now, command);
    }

    fn answer(&mut self, now: Instant, station: &MihfId, message: Option<Message>) {
        let asked = self.clients.get_mut(station).and_then(|client| client.asked.take());
        if let (Some((transaction, _)), Some(message)) = (asked, message) {
            self.respond(now, transaction, message);
        }
    }

    fn deny(&mut self, now: Instant, station: &MihfId, status: Status) {
        let asked = self.clients.get_mut(station).and_then(|client| client.asked.take());
        if let Some((transaction, id)) = asked {
            self.refuse(now, transaction, id, status);
        }
    }

    fn refuse(&mut self, now: Instant, transaction: Incoming, id: MessageId, status: Status) {
        self.respond(now, transaction, messages::response(id, status));
    }

    fn respond(&mut self, now: Instant, transaction: Incoming, message: Message) {
        let success = message.status() == Some(Status::Success);
        *if success { &mut self.counters.answered } else { &mut self.counters.refused } += 1;
        self.order(now, mih::Command::Respond { transaction, message });
    }

    /// What the MIH function says, until it has no more to say.
    fn settle(&mut self, now: Instant) {
        loop {
            if let Some(token) = self.unsent.pop_front() {
                self.result(now, token, On::Failed);
            } else if let Some(event) = self.outputs.next_event(&mut self.mihf) {
                self.mih(now, event);
            } else {
                return;
            }
        }
    }

    fn mih(&mut self, now: Instant, event: mih::Event) {
        match event {
            mih::Event::Done { token, result } => {
                let on = match result {
                    Ok(Some(response)) if !messages::is_granted(&response) => On::Refused,
                    Ok(_) => On::Granted,
                    Err(_) => On::Failed,
                };
                self.result(now, token, on);
            }
            mih::Event::Request { from, transaction, message } => {
                let request = Request { from, transaction, message };
                if let Err(request) = self.requests.push(now + self.config.processing, request) {
                    self.counters.overloaded += 1;
                    self.refuse(now, request.transaction, request.message.id, Status::UnspecifiedFailure);
                }
            }
            mih::Event::Indication { from, message } => {
                let meant = message.id == MessageId::LINK_GOING_DOWN_INDICATION
                    && self.config.trigger == Trigger::Remote
                    && self.happen(now, &from, On::Trigger);
                if !meant {
                    self.counters.ignored_indications += 1;
                }
            }
            mih::Event::Registered { peer } => self.registered(now, peer),
            mih::Event::ClaimRefused { peer, address } => {
                self.outputs.event(Event::ClaimRefused { peer, address });
            }
            _ => {}
        }
    }

    fn registered(&mut self, now: Instant, station: MihfId) {
        let Some(client) = self.clients.get(&station) else {
            self.counters.unknown_stations += 1;
            return;
        };
        let message = messages::subscribe(&client.link);
        self.admission.attach(&station);
        self.outputs.event(Event::Registered { station: station.clone() });
        if self.config.trigger == Trigger::Remote {
            let token = self.token(Purpose::Subscription);
            self.submit(now, token, station, message);
        }
    }

    fn result(&mut self, now: Instant, token: u64, on: On) {
        match self.open.remove(&token) {
            Some(Purpose::Handover(station)) => {
                let waits = self.clients.get_mut(&station).filter(|client| client.out == Some(token));
                if let Some(client) = waits {
                    client.out = None;
                    self.happen(now, &station, on);
                } else {
                    self.counters.late_results += 1;
                }
            }
            Some(Purpose::Completion(transaction)) => {
                let status = if on == On::Granted { Status::Success } else { Status::NetworkError };
                let message = messages::response(MessageId::MN_HO_COMPLETE_REQUEST, status);
                self.respond(now, transaction, message);
            }
            Some(Purpose::Subscription) => {
                if on != On::Granted {
                    self.counters.subscriptions_failed += 1;
                }
            }
            None => self.counters.late_results += 1,
        }
    }

    /// A request has been processed.
    fn act_upon(&mut self, now: Instant, request: Request) {
        self.outputs.work(Work { label: work::REQUEST, units: 1 });
        let Request { from, transaction, message } = request;
        let between_networks = matches!(
            message.id,
            MessageId::N2N_HO_QUERY_RESOURCES_REQUEST
                | MessageId::N2N_HO_COMMIT_REQUEST
                | MessageId::N2N_HO_COMPLETE_REQUEST
        );
        if between_networks && self.config.neighbour.as_ref().is_some_and(|n| n.peer.id != from) {
            self.counters.unknown_networks += 1;
            return self.refuse(now, transaction, message.id, Status::AuthorizationFailure);
        }
        match message.id {
            MessageId::MN_HO_CANDIDATE_QUERY_REQUEST => {
                self.asked(now, &from, transaction, message.id, On::Query);
            }
            MessageId::MN_HO_COMMIT_REQUEST => self.asked(now, &from, transaction, message.id, On::Commit),
            MessageId::MN_HO_COMPLETE_REQUEST => self.completed(now, from, transaction, &message),
            MessageId::N2N_HO_QUERY_RESOURCES_REQUEST => {
                self.expire(now);
                let room = messages::station(&message).is_none_or(|id| self.admission.has_room(id));
                self.counters.no_resources += u64::from(!room);
                self.respond(now, transaction, messages::resources(room));
            }
            MessageId::N2N_HO_COMMIT_REQUEST => {
                self.expire(now);
                let room = messages::station(&message).is_some_and(|id| self.admission.reserve(now, id));
                *if room { &mut self.counters.reserved } else { &mut self.counters.no_resources } += 1;
                let status = if room { Status::Success } else { Status::Rejected };
                self.respond(now, transaction, messages::response(message.id, status));
            }
            MessageId::N2N_HO_COMPLETE_REQUEST => {
                if let Some(station) = messages::station(&message).cloned() {
                    self.moved(now, &station, &message);
                }
                let answer = messages::response(message.id, Status::Success);
                self.respond(now, transaction, answer);
            }
            id => {
                self.counters.unknown_requests += 1;
                self.refuse(now, transaction, id, Status::Rejected);
            }
        }
    }

    /// A station's own request, which its controller answers when the target has.
    fn asked(&mut self, now: Instant, from: &MihfId, transaction: Incoming, id: MessageId, on: On) {
        let Some(client) = self.clients.get_mut(from) else {
            self.counters.unknown_stations += 1;
            self.refuse(now, transaction, id, Status::AuthorizationFailure);
            return;
        };
        let before = client.asked.replace((transaction, id));
        if !self.happen(now, from, on) {
            let refused = self.clients.get_mut(from).and_then(|c| core::mem::replace(&mut c.asked, before));
            if let Some((transaction, id)) = refused {
                self.refuse(now, transaction, id, Status::Rejected);
            }
        }
    }

    /// MIH_MN_HO_Complete: the other network hears of it before the station has its answer.
    fn completed(&mut self, now: Instant, station: MihfId, transaction: Incoming, message: &Message) {
        self.moved(now, &station, message);
        match self.config.neighbour.as_ref().map(|n| n.peer.id.clone()) {
            Some(to) => {
                let token = self.token(Purpose::Completion(transaction));
                self.submit(now, token, to, messages::n2n_complete(&station, message));
            }
            None => {
                let answer = messages::response(message.id, Status::Success);
                self.respond(now, transaction, answer);
            }
        }
    }

    /// A station has gone from one network to the other; which of them is this one says the new link.
    fn moved(&mut self, now: Instant, station: &MihfId, message: &Message) {
        if !self.clients.contains_key(station) && !self.admission.is_reserved(station) {
            self.counters.unknown_stations += 1;
            return;
        }
        let here = message.params.iter().any(|param| {
            matches!(param, Tlv::NewLinkIdentifier(link) if link.poa.as_ref() == Some(&self.config.poa))
        });
        if here {
            self.admission.attach(station);
            self.counters.arrived += 1;
            self.outputs.event(Event::Arrived { station: station.clone() });
        } else {
            self.admission.leave(station);
            self.counters.gone += 1;
            self.outputs.event(Event::Gone { station: station.clone() });
            self.happen(now, station, On::Completed);
        }
    }

    fn expire(&mut self, now: Instant) {
        self.counters.expired += self.admission.expire(now);
    }

    fn timeout(&mut self, now: Instant) {
        self.mihf.handle(now, Input::Timeout);
        self.settle(now);
        self.expire(now);
        while let Some(request) = self.requests.pop_due(now) {
            self.act_upon(now, request);
        }
        let due = |(_, client): &(&MihfId, &Client)| client.forget_at.is_some_and(|at| at <= now);
        let due: Vec<MihfId> = self.clients.iter().filter(due).map(|(id, _)| id.clone()).collect();
        for station in due {
            self.happen(now, &station, On::Forgotten);
        }
    }
}

impl Machine for PointOfService {
    type Command = Command;
    type Event = Event;
    type Job = NoJob;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Timeout => self.timeout(now),
            other => self.mihf.handle(now, other),
        }
        self.settle(now);
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Start if self.started => return Err(CommandError::WrongState("it has been started")),
            Command::Start => {
                self.started = true;
                let clients = self.config.clients.iter().map(|client| &client.peer);
                let neighbour = self.config.neighbour.as_ref().map(|neighbour| &neighbour.peer);
                let peers: Vec<_> = clients.chain(neighbour).cloned().collect();
                for peer in peers {
                    self.order(now, mih::Command::Peer(peer));
                }
            }
            Command::Link { station, event } => {
                self.outputs.work(Work { label: work::LINK, units: 1 });
                let meant = matches!(event, LinkEvent::GoingDown { .. })
                    && self.config.trigger == Trigger::Local
                    && self.happen(now, &station, On::Trigger);
                if !meant {
                    self.counters.ignored_link_events += 1;
                }
            }
            Command::Leave { station } => self.admission.leave(&station),
        }
        self.settle(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let forget = self.clients.values().filter_map(|client| client.forget_at).min();
        earliest([self.requests.next(), self.admission.next(), forget, self.mihf.poll_timeout()])
    }
}

#[cfg(test)]
mod tests;

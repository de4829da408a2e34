//! The station's machine.

use super::table::{Action, On, State, StationTable};
use super::{
    BINDING_SOCKET, Command, CommitAnswer, Config, Counters, Event, FLOW_SERVING, FLOW_TARGET, Failure,
    Initiation, MIHF, OnFailure,
};
use crate::flow;
use crate::link::{Interface, LinkCommand, LinkEvent};
use crate::messages;
use crate::requests::{Request, Requests};
use crate::work;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::timer::earliest;
use usher_core::{
    Child, CommandError, Duration, Input, Instant, Machine, NoJob, OutputOf, Outputs, Path, Rng, Transmit,
    Work,
};
use usher_mih::{self as mih, EventList, Incoming, Message, MessageId, Mihf, MihfId, Peer, Status};
use usher_mip::{BindingUpdate, Heard, Packet, Registration};

/// Token of MIH_Register; those of handovers count up from the next.
const REGISTER: u64 = 0;

/// A handover under way.
#[derive(Clone, Copy, Debug)]
struct Handover {
    began: Instant,
    /// When its last step was over.
    mark: Instant,
    failure: Option<Failure>,
    /// When the old link was lost.
    left: Option<Instant>,
}

/// A station; see the [module](super).
#[derive(Debug)]
pub struct Station {
    config: Config,
    mihf: Child<Mihf>,
    started: bool,
    state: State,
    handover: Option<Handover>,
    /// The old link is down.
    detached: bool,
    /// A scan has found the new network.
    found: bool,
    /// How long the old link was forecast to live on.
    forecast: Duration,
    /// The serving point of service wants to hear of Link_Going_Down.
    subscribed: bool,
    token: u64,
    /// The message whose result is waited for.
    out: Option<u64>,
    /// A message that the MIH function would not take: as good as lost.
    unsent: Option<u64>,
    requests: Requests,
    /// MIH_Net_HO_Candidate_Query that is to be answered after the scan.
    asked: Option<(Incoming, MessageId)>,
    /// MIH_Net_HO_Commit that is to be answered after the redirection.
    told: Option<Incoming>,
    registration: Registration,
    /// When MIH_Register goes out again.
    register_at: Option<Instant>,
    /// When the event [`On::Retry`] happens.
    retry_at: Option<Instant>,
    outputs: Outputs<Event>,
    counters: Counters,
}

impl Station {
    /// A station that has done nothing yet.
    #[must_use]
    pub fn new(config: Config, mut rng: Rng) -> Self {
        let sequence = rng.next_u64() as u16;
        let requests = Requests::new(config.max_requests);
        let registration = Registration::new(config.binding, sequence);
        Self {
            mihf: Child::new(MIHF, Mihf::new(config.mih.clone(), rng)),
            config,
            started: false,
            state: State::Resting,
            handover: None,
            detached: false,
            found: false,
            forecast: Duration::ZERO,
            subscribed: false,
            token: REGISTER,
            out: None,
            unsent: None,
            requests,
            asked: None,
            told: None,
            registration,
            register_at: None,
            retry_at: None,
            outputs: Outputs::default(),
            counters: Counters::default(),
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
    /// Where its controller stands.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// An event of the controller; false if it means nothing in this state.
    fn happen(&mut self, now: Instant, on: On) -> bool {
        let Some(row) = StationTable::step(self.state, on) else { return false };
        self.state = row.to;
        if row.to != row.from {
            // Whether the completion is over is nothing to a refreshment that is to be tried again.
            if row.from != State::Completing {
                self.retry_at = None;
            }
            self.counters.incomplete += u64::from(row.to == State::Moved && on != On::Granted);
        }
        for action in row.actions {
            self.act(now, on, *action);
        }
        if row.to != State::Surveying {
            // The query that has led to the scan will not be answered by it any more.
            if let Some((transaction, id)) = self.asked.take() {
                self.refuse(now, transaction, id, Status::UnspecifiedFailure);
            }
        }
        let leave = match self.config.on_failure {
            OnFailure::WaitForLinkDown => false,
            OnFailure::OtherInterface => true,
            OnFailure::OtherInterfaceIfUnanswered => on == On::Unanswered,
        };
        if leave && row.to == State::Waiting && row.from != State::Waiting {
            self.lose(now);
        }
        true
    }

    /// The old link is lost, or given up.
    fn lose(&mut self, now: Instant) -> bool {
        self.happen(now, if self.found { On::LostKnown } else { On::Lost })
    }

    fn begin(&mut self, now: Instant) {
        self.handover = Some(Handover { began: now, mark: now, failure: None, left: None });
        self.counters.began += 1;
        self.outputs.event(Event::HandoverBegan);
    }

    fn act(&mut self, now: Instant, on: On, action: Action) {
        let Config { serving_link, target_link, .. } = &self.config;
        match action {
            Action::Over(step) => {
                if self.handover.is_none() {
                    self.begin(now);
                }
                if let Some(handover) = &mut self.handover {
                    let took = now.since(handover.mark);
                    handover.mark = now;
                    self.outputs.event(Event::Step { step, took });
                }
            }
            Action::Begin if self.handover.is_none() => self.begin(now),
            Action::Begin => {}
            Action::Scan => self.tell(Interface::Target, LinkCommand::Scan),
            Action::Enter => self.tell(Interface::Target, LinkCommand::Connect),
            Action::Release if self.detached => {}
            Action::Release => self.tell(Interface::Serving, LinkCommand::Disconnect),
            Action::Report => self.report(now),
            Action::Query => {
                let query = messages::mn_candidate_query(serving_link, target_link);
                self.send(now, self.config.serving.id.clone(), query);
            }
            Action::Commit => {
                let commit = messages::mn_commit(target_link);
                self.send(now, self.config.serving.id.clone(), commit);
            }
            Action::Complete => {
                let complete = messages::mn_complete(serving_link, target_link);
                let to = self.config.target.as_ref().unwrap_or(&self.config.serving).id.clone();
                self.send(now, to, complete);
            }
            Action::Answer => {
                let answer = messages::net_candidates(serving_link, Some(target_link));
                self.answer_query(now, answer);
            }
            Action::AnswerNone => {
                let answer = messages::net_candidates(serving_link, None);
                self.answer_query(now, answer);
            }
            Action::Redirect => {
                let update = self.registration.begin(now);
                self.bind(update);
            }
            Action::Withdraw => self.registration.stop(),
            Action::Finish => self.finish(now),
            Action::Abandon => {
                if let Some(token) = self.out.take() {
                    self.order(now, mih::Command::Abandon { token });
                }
            }
            Action::BreakOff => self.break_off(on),
            Action::Resume => {
                if let Some(handover) = &mut self.handover {
                    handover.failure = None;
                }
            }
            Action::Cancel => {
                self.handover = None;
                self.counters.cancelled += 1;
                self.outputs.event(Event::HandoverCancelled);
            }
            Action::Later => self.retry_at = Some(now + self.config.retry),
        }
    }

    fn tell(&mut self, interface: Interface, command: LinkCommand) {
        if command == LinkCommand::Scan {
            self.found = false;
        }
        self.outputs.event(Event::LinkCommand { interface, command });
    }

    fn break_off(&mut self, on: On) {
        self.counters.broken_off += 1;
        let failure = match on {
            On::Refused => Failure::Refused,
            On::NotFound => Failure::NoNetwork,
            On::Lost | On::LostKnown => Failure::LinkDown,
            _ => Failure::MessageLost,
        };
        if let Some(handover) = &mut self.handover {
            handover.failure.get_or_insert(failure);
        }
    }

    fn report(&mut self, now: Instant) {
        if self.subscribed {
            let message = messages::going_down(&self.config.serving_link, self.forecast);
            self.send(now, self.config.serving.id.clone(), message);
        } else {
            self.counters.unsubscribed += 1;
        }
    }

    /// Sends a request or an indication; its result is the one that is waited for.
    fn send(&mut self, now: Instant, to: MihfId, message: Message) {
        self.token += 1;
        self.out = Some(self.token);
        let command = mih::Command::Send { token: self.token, to, message };
        if self.mihf.command(now, command).is_err() {
            self.unsent = Some(self.token);
        }
    }

    fn answer_query(&mut self, now: Instant, message: Message) {
        if let Some((transaction, _)) = self.asked.take() {
            self.counters.answered += 1;
            self.order(now, mih::Command::Respond { transaction, message });
        }
    }

    fn refuse(&mut self, now: Instant, transaction: Incoming, id: MessageId, status: Status) {
        self.counters.refused += 1;
        let message = messages::response(id, status);
        self.order(now, mih::Command::Respond { transaction, message });
    }
    fn order(&mut self, now: Instant, command: mih::Command) {
        // A transaction that the MIH function has forgotten by now has no answer.
        let _ = self.mihf.command(now, command);
    }

    fn bind(&mut self, update: BindingUpdate) {
        let packet = Packet {
            source: usher_mip::inner(self.config.serving_address),
            destination: usher_mip::inner(self.config.correspondent.ip()),
            message: usher_mip::Message::Update(update),
        };
        let mut octets = Vec::new();
        packet.emit(&mut octets);
        let local = SocketAddr::new(self.config.target_address, usher_mip::PORT);
        let path = Path { socket: BINDING_SOCKET, local, remote: self.config.correspondent };
        self.counters.binding_updates += 1;
        self.outputs.work(Work { label: work::BINDING, units: 1 });
        self.outputs.transmit(Transmit::Datagram { path }, octets);
    }

    /// The flow is redirected: messages follow it.
    fn finish(&mut self, now: Instant) {
        let serving = Peer { route: self.config.serving_after, ..self.config.serving.clone() };
        self.order(now, mih::Command::Peer(serving));
        if let Some(target) = self.config.target.clone() {
            self.order(now, mih::Command::Peer(target));
        }
        if let Some(transaction) = self.told.take() {
            self.commit(now, transaction);
        }
        let Some(Handover { began, failure, left, .. }) = self.handover else { return };
        let success = failure.is_none();
        *if success { &mut self.counters.succeeded } else { &mut self.counters.failed } += 1;
        self.outputs.event(Event::HandoverDone { success, failure, began, left, ended: now });
    }

    fn commit(&mut self, now: Instant, transaction: Incoming) {
        self.counters.answered += 1;
        let message = messages::net_committed(&self.config.target_link);
        self.order(now, mih::Command::Respond { transaction, message });
    }

    /// What the MIH function says, until it has no more to say.
    fn settle(&mut self, now: Instant) {
        loop {
            if let Some(token) = self.unsent.take() {
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
                    Err(mih::Failure::NoResponse) => On::Unanswered,
                    Err(_) => On::Failed,
                };
                self.result(now, token, on);
            }
            mih::Event::Request { from, transaction, message } => {
                self.request(now, Request { from, transaction, message });
            }
            mih::Event::Subscribed { peer, events, .. } if peer == self.config.serving.id => {
                self.subscribed |= events.has(EventList::LINK_GOING_DOWN);
            }
            mih::Event::Unsubscribed { peer, events, .. } if peer == self.config.serving.id => {
                self.subscribed &= !events.has(EventList::LINK_GOING_DOWN);
            }
            mih::Event::Indication { .. } => self.counters.indications += 1,
            mih::Event::ClaimRefused { peer, address } => {
                self.outputs.event(Event::ClaimRefused { peer, address });
            }
            _ => {}
        }
    }

    fn result(&mut self, now: Instant, token: u64, on: On) {
        if token == REGISTER {
            if on == On::Granted {
                self.outputs.event(Event::Registered);
            } else {
                self.counters.registrations_repeated += 1;
                self.register_at = Some(now + self.config.retry);
            }
        } else if self.out == Some(token) {
            self.out = None;
            if !self.happen(now, on) {
                self.counters.late_results += 1;
            }
        } else {
            self.counters.late_results += 1;
        }
    }

    fn request(&mut self, now: Instant, request: Request) {
        let id = request.message.id;
        match id {
            MessageId::NET_HO_CANDIDATE_QUERY_REQUEST => {
                if let Err(request) = self.requests.push(now + self.config.processing, request) {
                    self.counters.overloaded += 1;
                    self.refuse(now, request.transaction, id, Status::UnspecifiedFailure);
                }
            }
            MessageId::NET_HO_COMMIT_REQUEST => {
                self.outputs.work(Work { label: work::REQUEST, units: 1 });
                if !self.happen(now, On::Told) {
                    self.refuse(now, request.transaction, id, Status::Rejected);
                } else if self.config.commit_answer == CommitAnswer::AfterRedirection {
                    self.told = Some(request.transaction);
                } else if let Err(request) = self.requests.push(now + self.config.processing, request) {
                    self.counters.overloaded += 1;
                    self.commit(now, request.transaction);
                }
            }
            _ => {
                self.counters.unknown_requests += 1;
                self.refuse(now, request.transaction, id, Status::Rejected);
            }
        }
    }

    /// A request has been processed.
    fn act_upon(&mut self, now: Instant, request: Request) {
        let Request { transaction, message, .. } = request;
        if message.id == MessageId::NET_HO_COMMIT_REQUEST {
            self.commit(now, transaction);
            return;
        }
        self.outputs.work(Work { label: work::REQUEST, units: 1 });
        let before = self.asked.replace((transaction, message.id));
        if !self.happen(now, On::Asked) {
            let refused = core::mem::replace(&mut self.asked, before);
            if let Some((transaction, id)) = refused {
                self.refuse(now, transaction, id, Status::Rejected);
            }
        }
    }

    fn register(&mut self, now: Instant) {
        self.register_at = None;
        let message = messages::register([&self.config.serving_link, &self.config.target_link]);
        let to = self.config.serving.id.clone();
        if self.mihf.command(now, mih::Command::Send { token: REGISTER, to, message }).is_err() {
            self.unsent = Some(REGISTER);
        }
    }

    fn link(&mut self, now: Instant, interface: Interface, event: LinkEvent) {
        self.outputs.work(Work { label: work::LINK, units: 1 });
        if !self.started {
            self.counters.ignored_link_events += 1;
            return;
        }
        let meant = match (interface, event) {
            (Interface::Serving, LinkEvent::GoingDown { within }) => {
                self.forecast = within;
                let on = match self.config.initiation {
                    Initiation::Station => On::LeavingStation,
                    Initiation::Network => On::LeavingNetwork,
                };
                self.happen(now, on)
            }
            (Interface::Serving, LinkEvent::Down) => {
                self.detached = true;
                let meant = self.lose(now);
                if let Some(handover) = &mut self.handover {
                    handover.left.get_or_insert(now);
                }
                meant
            }
            (Interface::Serving, LinkEvent::Up) => {
                self.detached = false;
                self.happen(now, On::Back)
            }
            (Interface::Target, LinkEvent::Scanned { found }) => {
                self.found = found;
                self.happen(now, if found { On::Found } else { On::NotFound })
            }
            (Interface::Target, LinkEvent::Up) => self.happen(now, On::Up),
            (Interface::Target, LinkEvent::Down) => self.happen(now, On::Down),
            (Interface::Serving, LinkEvent::Detected | LinkEvent::Scanned { .. })
            | (Interface::Target, LinkEvent::Detected | LinkEvent::GoingDown { .. }) => false,
        };
        if !meant {
            self.counters.ignored_link_events += 1;
        }
    }

    fn data(&mut self, interface: Interface, packet: &[u8]) {
        let Some(sequence) = flow::sequence(packet) else {
            self.counters.malformed_data += 1;
            return;
        };
        self.counters.received += 1;
        self.outputs.work(Work { label: work::DATA, units: 1 });
        self.outputs.event(Event::Received { sequence, interface });
    }

    fn binding(&mut self, now: Instant, from: IpAddr, data: &[u8]) {
        let Ok(packet) = Packet::parse(data) else {
            self.counters.malformed_bindings += 1;
            return;
        };
        let theirs = from.to_canonical() == self.config.correspondent.ip().to_canonical()
            && packet.source == usher_mip::inner(self.config.correspondent.ip())
            && packet.destination == usher_mip::inner(self.config.serving_address);
        let heard = match &packet.message {
            usher_mip::Message::Acknowledgement(ack) if theirs => self.registration.acknowledged(now, ack),
            _ => Heard::Stale,
        };
        self.outputs.work(Work { label: work::BINDING, units: 1 });
        match heard {
            // A refreshment changes nothing.
            Heard::Bound(_) => drop(self.happen(now, On::Bound)),
            Heard::Refused(_) => {
                self.counters.bindings_refused += 1;
                self.happen(now, On::Unbound);
            }
            Heard::Raised => self.registration_due(now),
            Heard::Stale => self.counters.stale_bindings += 1,
        }
    }

    fn registration_due(&mut self, now: Instant) {
        if let Some(update) = self.registration.handle_timeout(now) {
            self.bind(update);
        }
    }

    fn timeout(&mut self, now: Instant) {
        self.mihf.handle(now, Input::Timeout);
        self.settle(now);
        while let Some(request) = self.requests.pop_due(now) {
            self.act_upon(now, request);
        }
        self.registration_due(now);
        if self.register_at.is_some_and(|at| at <= now) {
            self.register(now);
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.happen(now, On::Retry);
        }
    }
}

impl Machine for Station {
    type Command = Command;
    type Event = Event;
    type Job = NoJob;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if let Some((MIHF, input)) = input.enter() {
            self.mihf.handle(now, input);
            return self.settle(now);
        }
        match input {
            Input::Datagram { path, data } if path.socket == FLOW_SERVING => {
                self.data(Interface::Serving, data);
            }
            Input::Datagram { path, data } if path.socket == FLOW_TARGET => {
                self.data(Interface::Target, data);
            }
            Input::Datagram { path, data } if path.socket == BINDING_SOCKET => {
                self.binding(now, path.remote.ip(), data)
            }
            Input::Timeout => self.timeout(now),
            _ => self.counters.unexpected += 1,
        }
        self.settle(now);
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Start if self.started => return Err(CommandError::WrongState("it has been started")),
            Command::Start => {
                self.started = true;
                self.order(now, mih::Command::Peer(self.config.serving.clone()));
                self.register(now);
            }
            Command::Link { interface, event } => self.link(now, interface, event),
        }
        self.settle(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        earliest([
            self.requests.next(),
            self.registration.poll_timeout(),
            self.register_at,
            self.retry_at,
            self.mihf.poll_timeout(),
        ])
    }
}

#[cfg(test)]
mod tests;

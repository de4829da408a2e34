//! Asks one other MIH function, and hears its indications.
//!
//! What is asked may need what the other one is called and which links it has; so discovery goes first, to whoever hears it
//! where its identifier is not known.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::{Child, CommandError, Duration, Input, Instant, Machine, NoJob, OutputOf, Outputs, Rng};
use usher_mih::{
    self as mih, EventList, LinkAction, LinkActionAttributes, LinkActionType, LinkAddr, LinkDescriptors,
    LinkId, LinkParamType, LinkPoaList, LinkStates, LinkStatusRequest, LinkTupleId, Message, MessageId, Mihf,
    MihfId, NetTypeAddr, Peer, RegisterCode, Route, Status, Tlv, kind,
};

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// What it can do, and nothing else.
    Capabilities,
    /// To be registered there.
    Register,
    /// To be registered no more.
    Deregister,
    /// To hear of events of its links.
    Subscribe(EventList),
    /// To hear no more of them.
    Unsubscribe(EventList),
    /// How its links are.
    Parameters,
    /// That its links do something, in so many milliseconds.
    Act(LinkActionType, u16),
    /// To which of its links it could go.
    Candidates,
}

/// What a client is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its MIH function.
    pub mih: mih::Config,
    /// How the other one is reached.
    pub route: Route,
    /// What the other one is called; `None`: whoever answers there.
    pub to: Option<MihfId>,
    /// What is asked.
    pub question: Question,
    /// The addresses of those of its links that are meant; none: all.
    pub links: Vec<LinkAddr>,
    /// Indications are heard until [`Command::Leave`]; a client that subscribes registers first, so that it can be told.
    pub follow: bool,
}

/// What a client is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Begin.
    Start,
    /// End: what was subscribed to and registered for is given up first.
    Leave,
}

/// What a client says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The other one answered discovery.
    Discovered {
        /// What it is called.
        peer: MihfId,
        /// What it said.
        answer: Message,
    },
    /// It answered what was asked.
    Answered {
        /// What it said.
        answer: Message,
    },
    /// It did not.
    Failed {
        /// What was asked.
        request: MessageId,
        /// Why.
        failure: mih::Failure,
    },
    /// What was asked for is not there: it has none of the links, or none at all.
    NoLinks,
    /// It told something.
    Indication {
        /// Who.
        peer: MihfId,
        /// What.
        message: Message,
    },
    /// All is over.
    Finished,
}

/// The token of what is under way; there is one at a time.
const ASKED: u64 = 0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle,
    Discovering,
    Asking(MessageId),
    Following,
    Leaving,
    Finished,
}

/// A client; see the [module](self).
#[derive(Debug)]
pub struct Client {
    mihf: Child<Mihf>,
    config: Config,
    phase: Phase,
    peer: MihfId,
    queue: VecDeque<Message>,
    registered: bool,
    /// The links that were subscribed to.
    subscribed: Vec<(LinkTupleId, EventList)>,
    renew_at: Option<Instant>,
    outputs: Outputs<Event>,
}

impl Client {
    /// A client that has asked nothing yet.
    #[must_use]
    pub fn new(config: Config, rng: Rng) -> Self {
        Self {
            mihf: Child::only(Mihf::new(config.mih.clone(), rng)),
            phase: Phase::Idle,
            peer: config.to.clone().unwrap_or_else(MihfId::multicast),
            queue: VecDeque::new(),
            registered: false,
            subscribed: Vec::new(),
            renew_at: None,
            outputs: Outputs::default(),
            config,
        }
    }
    /// What its MIH function counted.
    #[must_use]
    pub fn counters(&self) -> &mih::Counters {
        self.mihf.counters()
    }

    fn name(&mut self, now: Instant) {
        let peer = Peer { id: self.peer.clone(), route: self.config.route, ack: true };
        // Naming a peer is never refused.
        let _ = self.mihf.command(now, mih::Command::Peer(peer));
    }

    fn send(&mut self, now: Instant, message: Message) {
        let request = message.id;
        let command = mih::Command::Send { token: ASKED, to: self.peer.clone(), message };
        if self.mihf.command(now, command).is_err() {
            self.outputs.event(Event::Failed { request, failure: mih::Failure::Transport });
            self.finish();
        }
    }

    fn finish(&mut self) {
        self.phase = Phase::Finished;
        self.outputs.event(Event::Finished);
    }

    fn register(&self) -> Message {
        let code = if self.registered { RegisterCode::Reregister } else { RegisterCode::Register };
        Message::new(
            MessageId::REGISTER_REQUEST,
            [Tlv::LinkIdentifierList(Vec::new()), Tlv::RegisterCode(code)],
        )
    }

    /// What is to be asked, once the links are known; `None`: none of them is there.
    fn plan(&self, links: Vec<LinkId>) -> Option<VecDeque<Message>> {
        let tuple = |link: &LinkId| LinkTupleId { link: link.clone(), poa: None };
        let each = |id: MessageId, events: EventList| {
            let message = move |link: &LinkId| {
                Message::new(id, [Tlv::LinkIdentifier(tuple(link)), Tlv::EventList(events)])
            };
            links.iter().map(message).collect::<VecDeque<_>>()
        };
        let messages: VecDeque<Message> = match &self.config.question {
            Question::Capabilities => return Some(VecDeque::new()),
            Question::Register => [self.register()].into(),
            Question::Deregister => [Message::new(MessageId::DEREGISTER_REQUEST, [])].into(),
            Question::Subscribe(events) => {
                let mut all = each(MessageId::EVENT_SUBSCRIBE_REQUEST, *events);
                if !all.is_empty() {
                    all.push_front(self.register());
                }
                all
            }
            Question::Unsubscribe(events) => each(MessageId::EVENT_UNSUBSCRIBE_REQUEST, *events),
            _ if links.is_empty() => VecDeque::new(),
            Question::Parameters => {
                let wanted = LinkStatusRequest {
                    states: LinkStates::OPERATION_MODE,
                    params: [LinkParamType::DATA_RATE, LinkParamType::SIGNAL_STRENGTH].into(),
                    descriptors: LinkDescriptors::NONE,
                };
                let params = [Tlv::LinkIdentifierList(links.clone()), Tlv::StatusRequest(wanted)];
                [Message::new(MessageId::LINK_GET_PARAMETERS_REQUEST, params)].into()
            }
            Question::Act(action, delay) => {
                let action = |link: &LinkId| LinkAction {
                    link: link.clone(),
                    poa: None,
                    action: *action,
                    attributes: LinkActionAttributes::NONE,
                    delay: *delay,
                };
                let params = [Tlv::LinkActions(links.iter().map(action).collect())];
                [Message::new(MessageId::LINK_ACTIONS_REQUEST, params)].into()
            }
            Question::Candidates => {
                let lists = links.iter().map(|link| LinkPoaList { link: link.clone(), poas: Vec::new() });
                let params = [Tlv::LinkPoaLists(lists.collect()), Tlv::QueryResourceReport(false)];
                [Message::new(MessageId::NET_HO_CANDIDATE_QUERY_REQUEST, params)].into()
            }
        };
        (!messages.is_empty()).then_some(messages)
    }

    fn next(&mut self, now: Instant) {
        if let Some(message) = self.queue.pop_front() {
            if self.phase != Phase::Leaving {
                self.phase = Phase::Asking(message.id);
            }
            return self.send(now, message);
        }
        if self.config.follow && self.phase != Phase::Leaving {
            self.phase = Phase::Following;
        } else {
            self.finish();
        }
    }

    fn discovered(&mut self, now: Instant, answer: Message) {
        let of = |of: &NetTypeAddr| {
            Some(LinkId { technology: of.network.technology?, address: of.address.clone() })
        };
        let mut links: Vec<LinkId> = match answer.get(kind::LINK_ADDRESS_LIST) {
            Some(Tlv::LinkAddressList(all)) => all.iter().filter_map(of).collect(),
            _ => Vec::new(),
        };
        let meant = &self.config.links;
        links.retain(|link| meant.is_empty() || meant.contains(&link.address));
        let success = answer.status() == Some(Status::Success);
        self.outputs.event(Event::Discovered { peer: self.peer.clone(), answer });
        match self.plan(links).filter(|_| success) {
            Some(queue) => {
                self.queue = queue;
                self.next(now);
            }
            None => {
                self.outputs.event(Event::NoLinks);
                self.finish();
            }
        }
    }

    fn answered(&mut self, now: Instant, answer: Message) {
        let success = answer.status() == Some(Status::Success);
        match answer.id {
            MessageId::REGISTER_RESPONSE if success => self.renewed(now, &answer),
            MessageId::EVENT_SUBSCRIBE_RESPONSE if success => {
                if let (Some(Tlv::LinkIdentifier(link)), Some(Tlv::EventList(events))) =
                    (answer.get(kind::LINK_IDENTIFIER), answer.get(kind::EVENT_LIST))
                {
                    self.subscribed.push((link.clone(), *events));
                }
            }
            _ => {}
        }
        self.outputs.event(Event::Answered { answer });
        if !success {
            self.queue.clear();
            return self.finish();
        }
        self.next(now);
    }

    fn hear(&mut self, now: Instant, event: mih::Event) {
        match event {
            mih::Event::Discovered { peer, .. } => {
                self.peer = peer;
                self.name(now);
            }
            mih::Event::Done { result: Ok(Some(answer)), .. } => match self.phase {
                Phase::Discovering => self.discovered(now, answer),
                Phase::Asking(_) => self.answered(now, answer),
                Phase::Leaving => self.next(now),
                Phase::Following if answer.status() == Some(Status::Success) => self.renewed(now, &answer),
                Phase::Following => {
                    self.outputs.event(Event::Answered { answer });
                    self.finish();
                }
                Phase::Idle | Phase::Finished => {}
            },
            mih::Event::Done { result: Ok(None), .. } => {}
            mih::Event::Done { result: Err(failure), .. } => {
                let request = match self.phase {
                    Phase::Asking(id) => id,
                    Phase::Following => MessageId::REGISTER_REQUEST,
                    Phase::Leaving | Phase::Finished | Phase::Idle => return self.finish(),
                    Phase::Discovering => MessageId::CAPABILITY_DISCOVER_REQUEST,
                };
                self.outputs.event(Event::Failed { request, failure });
                self.finish();
            }
            mih::Event::Indication { from, message } => {
                self.outputs.event(Event::Indication { peer: from, message });
            }
            mih::Event::Request { transaction, message, .. } => {
                let rejected = Message::new(message.id.response(), [Tlv::Status(Status::Rejected)]);
                let answer = mih::Command::Respond { transaction, message: rejected };
                // One that is forgotten by now has no answer.
                let _ = self.mihf.command(now, answer);
            }
            mih::Event::Registered { .. }
            | mih::Event::Deregistered { .. }
            | mih::Event::AddressReplaced { .. }
            | mih::Event::ClaimRefused { .. }
            | mih::Event::Subscribed { .. }
            | mih::Event::Unsubscribed { .. } => {}
        }
    }

    /// This client is registered, for a while.
    fn renewed(&mut self, now: Instant, answer: &Message) {
        self.registered = true;
        if let Some(Tlv::ValidTimeInterval(seconds @ 1..)) = answer.get(kind::VALID_TIME_INTERVAL) {
            // Every two minutes at least, for address translators (RFC 5677 §6.4).
            let half = Duration::from_millis(u64::from(*seconds) * 500);
            self.renew_at = Some(now + half.min(Duration::from_secs(120)));
        }
    }

    fn settle(&mut self, now: Instant) {
        while let Some(event) = self.outputs.next_event(&mut self.mihf) {
            self.hear(now, event);
        }
    }
}

impl Machine for Client {
    type Command = Command;
    type Event = Event;
    type Job = NoJob;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.mihf.handle(now, input);
        self.settle(now);
        if self.phase == Phase::Following && self.renew_at.is_some_and(|at| at <= now) {
            self.renew_at = None;
            let message = self.register();
            self.send(now, message);
            self.settle(now);
        }
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match (command, self.phase) {
            (Command::Start, Phase::Idle) => {
                self.name(now);
                self.phase = Phase::Discovering;
                self.send(now, Message::new(MessageId::CAPABILITY_DISCOVER_REQUEST, []));
            }
            (Command::Start, _) => return Err(CommandError::WrongState("it has begun")),
            (Command::Leave, Phase::Finished | Phase::Leaving) => {}
            (Command::Leave, Phase::Following) => {
                // What is under way is a renewal, which nobody wants any more; there may be none.
                let _ = self.mihf.command(now, mih::Command::Abandon { token: ASKED });
                let unsubscribe = |(link, events): (LinkTupleId, EventList)| {
                    let params = [Tlv::LinkIdentifier(link), Tlv::EventList(events)];
                    Message::new(MessageId::EVENT_UNSUBSCRIBE_REQUEST, params)
                };
                self.queue = core::mem::take(&mut self.subscribed).into_iter().map(unsubscribe).collect();
                if self.registered {
                    self.queue.push_back(Message::new(MessageId::DEREGISTER_REQUEST, []));
                }
                self.phase = Phase::Leaving;
                self.next(now);
            }
            (Command::Leave, _) => self.finish(),
        }
        self.settle(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let renew = self.renew_at.filter(|_| self.phase == Phase::Following);
        [self.mihf.poll_timeout(), renew].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;

//! A client that sends requests to one peer MIH function and receives its indications.
//!
//! A request can need the peer's identifier and its links. So discovery goes first, as multicast if the identifier is
//! unknown.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::{
    ChildMachine, CommandError, Duration, Instant, Machine, MachineInput, MachineOutputOf, NoJob,
    OutputQueue, SimulationRng,
};
use usher_mih::{
    self as mih, EventList, LinkAction, LinkActionAttributes, LinkActionType, LinkAddr, LinkDescriptors,
    LinkId, LinkParamType, LinkPoaList, LinkStatusRequest, LinkTupleId, MessageId, Mihf, MihfId, MihfMessage,
    MihfPeer, NetTypeAddr, PeerRoute, RegisterCode, ReportedLinkStates, Status, Tlv, kind,
};

/// The request of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MihClientRequest {
    /// Its capabilities, by discovery only.
    Capabilities,
    /// Register with the peer.
    Register,
    /// End the registration.
    Deregister,
    /// Subscribe to events of its links.
    Subscribe(EventList),
    /// End the subscription to these events.
    Unsubscribe(EventList),
    /// The status of its links.
    Parameters,
    /// An action of its links, after this many milliseconds.
    Act(LinkActionType, u16),
    /// The candidate links of a handover.
    Candidates,
}

/// The configuration of a client.
#[derive(Clone, Debug)]
pub struct MihClientConfig {
    /// Its MIH function.
    pub mih: mih::MihfConfig,
    /// The route to the peer.
    pub route: PeerRoute,
    /// The peer's identifier; `None`: the function that answers discovery.
    pub to: Option<MihfId>,
    /// The request.
    pub question: MihClientRequest,
    /// The addresses of the peer's links to address; empty: all.
    pub links: Vec<LinkAddr>,
    /// True if the client receives indications until [`MihClientCommand::Leave`]. A subscribing client registers
    /// first, so that the peer can send to it.
    pub follow: bool,
}

/// A command of the client's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MihClientCommand {
    /// Start.
    Start,
    /// End subscriptions and registration, then stop.
    Leave,
}

/// An event of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MihClientEvent {
    /// The peer has answered discovery.
    Discovered {
        /// The peer's identifier.
        peer: MihfId,
        /// Its response.
        answer: MihfMessage,
    },
    /// The peer has answered the request.
    Answered {
        /// Its response.
        answer: MihfMessage,
    },
    /// A request has failed.
    Failed {
        /// The request.
        request: MessageId,
        /// The reason.
        failure: mih::TransactionError,
    },
    /// The peer lacks the requested links, or has none.
    NoLinks,
    /// An indication has arrived.
    Indication {
        /// The sender.
        peer: MihfId,
        /// The indication.
        message: MihfMessage,
    },
    /// The client has finished.
    Finished,
}

/// The token of the pending request; there is at most one.
const REQUEST_TOKEN: u64 = 0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MihClientPhase {
    Idle,
    Discovering,
    Requesting(MessageId),
    Following,
    Leaving,
    Finished,
}

/// A client; see the [module](self).
#[derive(Debug)]
pub struct MihClient {
    mihf: ChildMachine<Mihf>,
    config: MihClientConfig,
    phase: MihClientPhase,
    peer: MihfId,
    queue: VecDeque<MihfMessage>,
    registered: bool,
    /// The subscriptions, by link.
    subscribed: Vec<(LinkTupleId, EventList)>,
    renew_at: Option<Instant>,
    outputs: OutputQueue<MihClientEvent>,
}

impl MihClient {
    /// Creates a client.
    #[must_use]
    pub fn new(config: MihClientConfig, rng: SimulationRng) -> Self {
        Self {
            mihf: ChildMachine::without_slot(Mihf::new(config.mih.clone(), rng)),
            phase: MihClientPhase::Idle,
            peer: config.to.clone().unwrap_or_else(MihfId::multicast),
            queue: VecDeque::new(),
            registered: false,
            subscribed: Vec::new(),
            renew_at: None,
            outputs: OutputQueue::default(),
            config,
        }
    }
    /// Returns the counters of its MIH function.
    #[must_use]
    pub fn counters(&self) -> &mih::MihfCounters {
        self.mihf.counters()
    }

    fn configure_peer(&mut self, now: Instant) {
        let peer = MihfPeer { id: self.peer.clone(), route: self.config.route, ack: true };
        // The MIH function never refuses this command.
        let _ = self.mihf.handle_command(now, mih::MihfCommand::Peer(peer));
    }

    fn send_request(&mut self, now: Instant, message: MihfMessage) {
        let request = message.id;
        let command = mih::MihfCommand::Send { token: REQUEST_TOKEN, to: self.peer.clone(), message };
        if self.mihf.handle_command(now, command).is_err() {
            self.outputs
                .push_event(MihClientEvent::Failed { request, failure: mih::TransactionError::Transport });
            self.finish();
        }
    }

    fn finish(&mut self) {
        self.phase = MihClientPhase::Finished;
        self.outputs.push_event(MihClientEvent::Finished);
    }

    fn register_request(&self) -> MihfMessage {
        let code = if self.registered { RegisterCode::Reregister } else { RegisterCode::Register };
        MihfMessage::new(
            MessageId::REGISTER_REQUEST,
            [Tlv::LinkIdentifierList(Vec::new()), Tlv::RegisterCode(code)],
        )
    }

    /// Returns the requests to send once the links are known; `None`: the peer has none of them.
    fn plan_requests(&self, links: Vec<LinkId>) -> Option<VecDeque<MihfMessage>> {
        let tuple = |link: &LinkId| LinkTupleId { link: link.clone(), poa: None };
        let each = |id: MessageId, events: EventList| {
            let message = move |link: &LinkId| {
                MihfMessage::new(id, [Tlv::LinkIdentifier(tuple(link)), Tlv::EventList(events)])
            };
            links.iter().map(message).collect::<VecDeque<_>>()
        };
        let messages: VecDeque<MihfMessage> = match &self.config.question {
            MihClientRequest::Capabilities => return Some(VecDeque::new()),
            MihClientRequest::Register => [self.register_request()].into(),
            MihClientRequest::Deregister => [MihfMessage::new(MessageId::DEREGISTER_REQUEST, [])].into(),
            MihClientRequest::Subscribe(events) => {
                let mut all = each(MessageId::EVENT_SUBSCRIBE_REQUEST, *events);
                if !all.is_empty() {
                    all.push_front(self.register_request());
                }
                all
            }
            MihClientRequest::Unsubscribe(events) => each(MessageId::EVENT_UNSUBSCRIBE_REQUEST, *events),
            _ if links.is_empty() => VecDeque::new(),
            MihClientRequest::Parameters => {
                let wanted = LinkStatusRequest {
                    states: ReportedLinkStates::OPERATION_MODE,
                    params: [LinkParamType::DATA_RATE, LinkParamType::SIGNAL_STRENGTH].into(),
                    descriptors: LinkDescriptors::NONE,
                };
                let params = [Tlv::LinkIdentifierList(links.clone()), Tlv::StatusRequest(wanted)];
                [MihfMessage::new(MessageId::LINK_GET_PARAMETERS_REQUEST, params)].into()
            }
            MihClientRequest::Act(action, delay) => {
                let action = |link: &LinkId| LinkAction {
                    link: link.clone(),
                    poa: None,
                    action: *action,
                    attributes: LinkActionAttributes::NONE,
                    delay: *delay,
                };
                let params = [Tlv::LinkActions(links.iter().map(action).collect())];
                [MihfMessage::new(MessageId::LINK_ACTIONS_REQUEST, params)].into()
            }
            MihClientRequest::Candidates => {
                let lists = links.iter().map(|link| LinkPoaList { link: link.clone(), poas: Vec::new() });
                let params = [Tlv::LinkPoaLists(lists.collect()), Tlv::QueryResourceReport(false)];
                [MihfMessage::new(MessageId::NET_HO_CANDIDATE_QUERY_REQUEST, params)].into()
            }
        };
        (!messages.is_empty()).then_some(messages)
    }

    fn send_next(&mut self, now: Instant) {
        if let Some(message) = self.queue.pop_front() {
            if self.phase != MihClientPhase::Leaving {
                self.phase = MihClientPhase::Requesting(message.id);
            }
            return self.send_request(now, message);
        }
        if self.config.follow && self.phase != MihClientPhase::Leaving {
            self.phase = MihClientPhase::Following;
        } else {
            self.finish();
        }
    }

    fn handle_discovery(&mut self, now: Instant, answer: MihfMessage) {
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
        self.outputs.push_event(MihClientEvent::Discovered { peer: self.peer.clone(), answer });
        match self.plan_requests(links).filter(|_| success) {
            Some(queue) => {
                self.queue = queue;
                self.send_next(now);
            }
            None => {
                self.outputs.push_event(MihClientEvent::NoLinks);
                self.finish();
            }
        }
    }

    fn handle_response(&mut self, now: Instant, answer: MihfMessage) {
        let success = answer.status() == Some(Status::Success);
        match answer.id {
            MessageId::REGISTER_RESPONSE if success => self.handle_registration(now, &answer),
            MessageId::EVENT_SUBSCRIBE_RESPONSE if success => {
                if let (Some(Tlv::LinkIdentifier(link)), Some(Tlv::EventList(events))) =
                    (answer.get(kind::LINK_IDENTIFIER), answer.get(kind::EVENT_LIST))
                {
                    self.subscribed.push((link.clone(), *events));
                }
            }
            _ => {}
        }
        self.outputs.push_event(MihClientEvent::Answered { answer });
        if !success {
            self.queue.clear();
            return self.finish();
        }
        self.send_next(now);
    }

    fn handle_mihf_event(&mut self, now: Instant, event: mih::MihfEvent) {
        match event {
            mih::MihfEvent::Discovered { peer, .. } => {
                self.peer = peer;
                self.configure_peer(now);
            }
            mih::MihfEvent::Done { result: Ok(Some(answer)), .. } => match self.phase {
                MihClientPhase::Discovering => self.handle_discovery(now, answer),
                MihClientPhase::Requesting(_) => self.handle_response(now, answer),
                MihClientPhase::Leaving => self.send_next(now),
                MihClientPhase::Following if answer.status() == Some(Status::Success) => {
                    self.handle_registration(now, &answer)
                }
                MihClientPhase::Following => {
                    self.outputs.push_event(MihClientEvent::Answered { answer });
                    self.finish();
                }
                MihClientPhase::Idle | MihClientPhase::Finished => {}
            },
            mih::MihfEvent::Done { result: Ok(None), .. } => {}
            mih::MihfEvent::Done { result: Err(failure), .. } => {
                let request = match self.phase {
                    MihClientPhase::Requesting(id) => id,
                    MihClientPhase::Following => MessageId::REGISTER_REQUEST,
                    MihClientPhase::Leaving | MihClientPhase::Finished | MihClientPhase::Idle => {
                        return self.finish();
                    }
                    MihClientPhase::Discovering => MessageId::CAPABILITY_DISCOVER_REQUEST,
                };
                self.outputs.push_event(MihClientEvent::Failed { request, failure });
                self.finish();
            }
            mih::MihfEvent::Indication { from, message } => {
                self.outputs.push_event(MihClientEvent::Indication { peer: from, message });
            }
            mih::MihfEvent::Request { transaction, message, .. } => {
                let rejected = MihfMessage::new(message.id.to_response(), [Tlv::Status(Status::Rejected)]);
                let answer = mih::MihfCommand::Respond { transaction, message: rejected };
                // A request that is no longer remembered cannot be answered.
                let _ = self.mihf.handle_command(now, answer);
            }
            mih::MihfEvent::Registered { .. }
            | mih::MihfEvent::Deregistered { .. }
            | mih::MihfEvent::AddressReplaced { .. }
            | mih::MihfEvent::ClaimRefused { .. }
            | mih::MihfEvent::Subscribed { .. }
            | mih::MihfEvent::Unsubscribed { .. } => {}
        }
    }

    /// Handles the response to a registration, which expires.
    fn handle_registration(&mut self, now: Instant, answer: &MihfMessage) {
        self.registered = true;
        if let Some(Tlv::ValidTimeInterval(seconds @ 1..)) = answer.get(kind::VALID_TIME_INTERVAL) {
            // RFC 5677, 6.4: renew at least every two minutes, for address translators.
            let half = Duration::from_millis(u64::from(*seconds) * 500);
            self.renew_at = Some(now + half.min(Duration::from_secs(120)));
        }
    }

    fn drain_mihf_events(&mut self, now: Instant) {
        while let Some(event) = self.outputs.next_event(&mut self.mihf) {
            self.handle_mihf_event(now, event);
        }
    }
}

impl Machine for MihClient {
    type Command = MihClientCommand;
    type Event = MihClientEvent;
    type Job = NoJob;

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        self.mihf.handle_input(now, input);
        self.drain_mihf_events(now);
        if self.phase == MihClientPhase::Following && self.renew_at.is_some_and(|at| at <= now) {
            self.renew_at = None;
            let message = self.register_request();
            self.send_request(now, message);
            self.drain_mihf_events(now);
        }
    }

    fn handle_command(&mut self, now: Instant, command: MihClientCommand) -> Result<(), CommandError> {
        match (command, self.phase) {
            (MihClientCommand::Start, MihClientPhase::Idle) => {
                self.configure_peer(now);
                self.phase = MihClientPhase::Discovering;
                self.send_request(now, MihfMessage::new(MessageId::CAPABILITY_DISCOVER_REQUEST, []));
            }
            (MihClientCommand::Start, _) => {
                return Err(CommandError::WrongState("the client has already started"));
            }
            (MihClientCommand::Leave, MihClientPhase::Finished | MihClientPhase::Leaving) => {}
            (MihClientCommand::Leave, MihClientPhase::Following) => {
                // A pending renewal is no longer needed. If there is none, the command fails.
                let _ = self.mihf.handle_command(now, mih::MihfCommand::Abandon { token: REQUEST_TOKEN });
                let unsubscribe = |(link, events): (LinkTupleId, EventList)| {
                    let params = [Tlv::LinkIdentifier(link), Tlv::EventList(events)];
                    MihfMessage::new(MessageId::EVENT_UNSUBSCRIBE_REQUEST, params)
                };
                self.queue = core::mem::take(&mut self.subscribed).into_iter().map(unsubscribe).collect();
                if self.registered {
                    self.queue.push_back(MihfMessage::new(MessageId::DEREGISTER_REQUEST, []));
                }
                self.phase = MihClientPhase::Leaving;
                self.send_next(now);
            }
            (MihClientCommand::Leave, _) => self.finish(),
        }
        self.drain_mihf_events(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let renew = self.renew_at.filter(|_| self.phase == MihClientPhase::Following);
        [self.mihf.poll_timeout(), renew].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;

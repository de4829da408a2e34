//! The station's machine.

use super::table::{Action, On, State, StationTable};
use super::{
    BINDING_SOCKET, CommitAnswer, FLOW_SERVING, FLOW_TARGET, HandoverFailure, HandoverInitiatingSide, MIHF,
    OnFailure, StationCommand, StationConfig, StationCounters, StationEvent,
};
use crate::flow;
use crate::link::{LinkCommand, LinkEvent, StationInterface};
use crate::messages;
use crate::requests::{PendingRequest, RequestQueue};
use crate::work;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::timer::earliest_deadline;
use usher_core::{
    ChildMachine, CommandError, DatagramPath, Duration, Instant, Machine, MachineInput, MachineOutputOf,
    NoJob, OutputQueue, SimulationRng, Transmit, WorkRecord,
};
use usher_mih::{
    self as mih, EventList, IncomingRequestId, MessageId, Mihf, MihfId, MihfMessage, MihfPeer, Status,
};
use usher_mip::{BindingAckOutcome, BindingRegistration, BindingUpdate, MobilityPacket};

/// The token of MIH_Register; those of handovers count up from the next number.
const REGISTER: u64 = 0;

/// The handover in progress.
#[derive(Clone, Copy, Debug)]
struct OngoingHandover {
    started_at: Instant,
    /// When its latest step ended.
    mark: Instant,
    failure: Option<HandoverFailure>,
    /// When the old link was lost.
    left: Option<Instant>,
}

/// A station; see the [module](super).
#[derive(Debug)]
pub struct MobileStation {
    config: StationConfig,
    mihf: ChildMachine<Mihf>,
    started: bool,
    state: State,
    handover: Option<OngoingHandover>,
    /// True while the old link is down.
    detached: bool,
    /// True if a scan has found the new network.
    found: bool,
    /// The predicted time until the loss of the old link.
    forecast: Duration,
    /// True if the serving point of service has subscribed to Link_Going_Down.
    subscribed: bool,
    token: u64,
    /// The token of the pending message.
    out: Option<u64>,
    /// The token of a message that the MIH function refused; it counts as lost.
    unsent: Option<u64>,
    requests: RequestQueue,
    /// MIH_Net_HO_Candidate_Query to answer after the scan.
    pending_candidate_query: Option<(IncomingRequestId, MessageId)>,
    /// MIH_Net_HO_Commit to answer after the redirection.
    pending_commit: Option<IncomingRequestId>,
    registration: BindingRegistration,
    /// When MIH_Register is sent again.
    register_at: Option<Instant>,
    /// When the event [`On::Retry`] is due.
    retry_at: Option<Instant>,
    outputs: OutputQueue<StationEvent>,
    counters: StationCounters,
}

impl MobileStation {
    /// Creates a station.
    #[must_use]
    pub fn new(config: StationConfig, mut rng: SimulationRng) -> Self {
        let sequence = rng.next_u64() as u16;
        let requests = RequestQueue::new(config.max_requests);
        let registration = BindingRegistration::new(config.binding, sequence);
        Self {
            mihf: ChildMachine::new(MIHF, Mihf::new(config.mih.clone(), rng)),
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
            pending_candidate_query: None,
            pending_commit: None,
            registration,
            register_at: None,
            retry_at: None,
            outputs: OutputQueue::default(),
            counters: StationCounters::default(),
        }
    }
    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &StationCounters {
        &self.counters
    }
    /// Returns its MIH function.
    #[must_use]
    pub fn mihf(&self) -> &Mihf {
        &self.mihf
    }
    /// Returns the state of its controller.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Applies an event to the controller. False if the state ignores it.
    fn apply_event(&mut self, now: Instant, on: On) -> bool {
        let Some(row) = StationTable::step(self.state, on) else { return false };
        self.state = row.to;
        if row.to != row.from {
            // The end of the state Completing does not affect a pending retry of a binding refresh.
            if row.from != State::Completing {
                self.retry_at = None;
            }
            self.counters.incomplete += u64::from(row.to == State::Moved && on != On::Granted);
        }
        for action in row.actions {
            self.perform_action(now, on, *action);
        }
        if row.to != State::Surveying {
            // The state Surveying has ended, so no scan answers the candidate query that caused it.
            if let Some((transaction, id)) = self.pending_candidate_query.take() {
                self.refuse_request(now, transaction, id, Status::UnspecifiedFailure);
            }
        }
        let leave = match self.config.on_failure {
            OnFailure::WaitForLinkDown => false,
            OnFailure::OtherInterface => true,
            OnFailure::OtherInterfaceIfUnanswered => on == On::Unanswered,
        };
        if leave && row.to == State::Waiting && row.from != State::Waiting {
            self.handle_link_loss(now);
        }
        true
    }

    /// Handles the loss of the old link, or the decision to leave it.
    fn handle_link_loss(&mut self, now: Instant) -> bool {
        self.apply_event(now, if self.found { On::LostKnown } else { On::Lost })
    }

    fn start_handover(&mut self, now: Instant) {
        self.handover = Some(OngoingHandover { started_at: now, mark: now, failure: None, left: None });
        self.counters.began += 1;
        self.outputs.push_event(StationEvent::HandoverStarted);
    }

    fn perform_action(&mut self, now: Instant, on: On, action: Action) {
        let StationConfig { serving_link, target_link, .. } = &self.config;
        match action {
            Action::Over(step) => {
                if self.handover.is_none() {
                    self.start_handover(now);
                }
                if let Some(handover) = &mut self.handover {
                    let took = now.duration_since(handover.mark);
                    handover.mark = now;
                    self.outputs.push_event(StationEvent::Step { step, duration: took });
                }
            }
            Action::Begin if self.handover.is_none() => self.start_handover(now),
            Action::Begin => {}
            Action::Scan => self.send_link_command(StationInterface::Target, LinkCommand::Scan),
            Action::Enter => self.send_link_command(StationInterface::Target, LinkCommand::Connect),
            Action::Release if self.detached => {}
            Action::Release => self.send_link_command(StationInterface::Serving, LinkCommand::Disconnect),
            Action::Report => self.report_going_down(now),
            Action::Query => {
                let query = messages::mn_candidate_query_request(serving_link, target_link);
                self.send_message(now, self.config.serving.id.clone(), query);
            }
            Action::Commit => {
                let commit = messages::mn_commit_request(target_link);
                self.send_message(now, self.config.serving.id.clone(), commit);
            }
            Action::Complete => {
                let complete = messages::mn_complete_request(serving_link, target_link);
                let to = self.config.target.as_ref().unwrap_or(&self.config.serving).id.clone();
                self.send_message(now, to, complete);
            }
            Action::Answer => {
                let answer = messages::net_candidate_query_response(serving_link, Some(target_link));
                self.answer_query(now, answer);
            }
            Action::AnswerNone => {
                let answer = messages::net_candidate_query_response(serving_link, None);
                self.answer_query(now, answer);
            }
            Action::Redirect => {
                let update = self.registration.start_registration(now);
                self.send_binding_update(update);
            }
            Action::Withdraw => self.registration.stop(),
            Action::Finish => self.finish_redirection(now),
            Action::Abandon => {
                if let Some(token) = self.out.take() {
                    self.command_mihf(now, mih::MihfCommand::Abandon { token });
                }
            }
            Action::BreakOff => self.record_handover_failure(on),
            Action::Resume => {
                if let Some(handover) = &mut self.handover {
                    handover.failure = None;
                }
            }
            Action::Cancel => {
                self.handover = None;
                self.counters.cancelled += 1;
                self.outputs.push_event(StationEvent::HandoverCancelled);
            }
            Action::Later => self.retry_at = Some(now + self.config.retry),
        }
    }

    fn send_link_command(&mut self, interface: StationInterface, command: LinkCommand) {
        if command == LinkCommand::Scan {
            self.found = false;
        }
        self.outputs.push_event(StationEvent::LinkCommand { interface, command });
    }

    fn record_handover_failure(&mut self, on: On) {
        self.counters.broken_off += 1;
        let failure = match on {
            On::Refused => HandoverFailure::Refused,
            On::NotFound => HandoverFailure::NoNetwork,
            On::Lost | On::LostKnown => HandoverFailure::LinkDown,
            _ => HandoverFailure::MessageLost,
        };
        if let Some(handover) = &mut self.handover {
            handover.failure.get_or_insert(failure);
        }
    }

    fn report_going_down(&mut self, now: Instant) {
        if self.subscribed {
            let message = messages::going_down(&self.config.serving_link, self.forecast);
            self.send_message(now, self.config.serving.id.clone(), message);
        } else {
            self.counters.unsubscribed += 1;
        }
    }

    /// Sends a request or an indication. The controller waits for its result.
    fn send_message(&mut self, now: Instant, to: MihfId, message: MihfMessage) {
        self.token += 1;
        self.out = Some(self.token);
        let command = mih::MihfCommand::Send { token: self.token, to, message };
        if self.mihf.handle_command(now, command).is_err() {
            self.unsent = Some(self.token);
        }
    }

    fn answer_query(&mut self, now: Instant, message: MihfMessage) {
        if let Some((transaction, _)) = self.pending_candidate_query.take() {
            self.counters.answered += 1;
            self.command_mihf(now, mih::MihfCommand::Respond { transaction, message });
        }
    }

    fn refuse_request(
        &mut self,
        now: Instant,
        transaction: IncomingRequestId,
        id: MessageId,
        status: Status,
    ) {
        self.counters.refused += 1;
        let message = messages::status_response(id, status);
        self.command_mihf(now, mih::MihfCommand::Respond { transaction, message });
    }
    fn command_mihf(&mut self, now: Instant, command: mih::MihfCommand) {
        // A transaction that the MIH function no longer remembers cannot be answered.
        let _ = self.mihf.handle_command(now, command);
    }

    fn send_binding_update(&mut self, update: BindingUpdate) {
        let packet = MobilityPacket {
            source: usher_mip::to_inner_address(self.config.serving_address),
            destination: usher_mip::to_inner_address(self.config.correspondent.ip()),
            message: usher_mip::MobilityMessage::Update(update),
        };
        let mut octets = Vec::new();
        packet.emit(&mut octets);
        let local = SocketAddr::new(self.config.target_address, usher_mip::PORT);
        let path = DatagramPath { socket: BINDING_SOCKET, local, remote: self.config.correspondent };
        self.counters.binding_updates += 1;
        self.outputs.push_work(WorkRecord { label: work::BINDING, units: 1 });
        self.outputs.push_transmit(Transmit::Datagram { path }, octets);
    }

    /// Completes the redirection; later messages use the new link.
    fn finish_redirection(&mut self, now: Instant) {
        let serving = MihfPeer { route: self.config.serving_after, ..self.config.serving.clone() };
        self.command_mihf(now, mih::MihfCommand::Peer(serving));
        if let Some(target) = self.config.target.clone() {
            self.command_mihf(now, mih::MihfCommand::Peer(target));
        }
        if let Some(transaction) = self.pending_commit.take() {
            self.answer_commit(now, transaction);
        }
        let Some(OngoingHandover { started_at: began, failure, left, .. }) = self.handover else { return };
        let success = failure.is_none();
        *if success { &mut self.counters.succeeded } else { &mut self.counters.failed } += 1;
        self.outputs.push_event(StationEvent::HandoverDone {
            success,
            failure,
            started_at: began,
            left,
            completed_at: now,
        });
    }

    fn answer_commit(&mut self, now: Instant, transaction: IncomingRequestId) {
        self.counters.answered += 1;
        let message = messages::net_commit_response(&self.config.target_link);
        self.command_mihf(now, mih::MihfCommand::Respond { transaction, message });
    }

    /// Handles events of the MIH function until there are no more.
    fn drain_mihf_events(&mut self, now: Instant) {
        loop {
            if let Some(token) = self.unsent.take() {
                self.handle_result(now, token, On::Failed);
            } else if let Some(event) = self.outputs.next_event(&mut self.mihf) {
                self.handle_mihf_event(now, event);
            } else {
                return;
            }
        }
    }

    fn handle_mihf_event(&mut self, now: Instant, event: mih::MihfEvent) {
        match event {
            mih::MihfEvent::Done { token, result } => {
                let on = match result {
                    Ok(Some(response)) if !messages::is_handover_granted(&response) => On::Refused,
                    Ok(_) => On::Granted,
                    Err(mih::TransactionError::NoResponse) => On::Unanswered,
                    Err(_) => On::Failed,
                };
                self.handle_result(now, token, on);
            }
            mih::MihfEvent::Request { from, transaction, message } => {
                self.handle_request(now, PendingRequest { from, transaction, message });
            }
            mih::MihfEvent::Subscribed { peer, events, .. } if peer == self.config.serving.id => {
                self.subscribed |= events.has(EventList::LINK_GOING_DOWN);
            }
            mih::MihfEvent::Unsubscribed { peer, events, .. } if peer == self.config.serving.id => {
                self.subscribed &= !events.has(EventList::LINK_GOING_DOWN);
            }
            mih::MihfEvent::Indication { .. } => self.counters.indications += 1,
            mih::MihfEvent::ClaimRefused { peer, address } => {
                self.outputs.push_event(StationEvent::ClaimRefused { peer, address });
            }
            _ => {}
        }
    }

    fn handle_result(&mut self, now: Instant, token: u64, on: On) {
        if token == REGISTER {
            if on == On::Granted {
                self.outputs.push_event(StationEvent::Registered);
            } else {
                self.counters.registrations_repeated += 1;
                self.register_at = Some(now + self.config.retry);
            }
        } else if self.out == Some(token) {
            self.out = None;
            if !self.apply_event(now, on) {
                self.counters.late_results += 1;
            }
        } else {
            self.counters.late_results += 1;
        }
    }

    fn handle_request(&mut self, now: Instant, request: PendingRequest) {
        let id = request.message.id;
        match id {
            MessageId::NET_HO_CANDIDATE_QUERY_REQUEST => {
                if let Err(request) = self.requests.push(now + self.config.processing, request) {
                    self.counters.overloaded += 1;
                    self.refuse_request(now, request.transaction, id, Status::UnspecifiedFailure);
                }
            }
            MessageId::NET_HO_COMMIT_REQUEST => {
                self.outputs.push_work(WorkRecord { label: work::REQUEST, units: 1 });
                if !self.apply_event(now, On::Told) {
                    self.refuse_request(now, request.transaction, id, Status::Rejected);
                } else if self.config.commit_answer == CommitAnswer::AfterRedirection {
                    self.pending_commit = Some(request.transaction);
                } else if let Err(request) = self.requests.push(now + self.config.processing, request) {
                    self.counters.overloaded += 1;
                    self.answer_commit(now, request.transaction);
                }
            }
            _ => {
                self.counters.unknown_requests += 1;
                self.refuse_request(now, request.transaction, id, Status::Rejected);
            }
        }
    }

    /// Acts on a request after its processing time.
    fn act_upon(&mut self, now: Instant, request: PendingRequest) {
        let PendingRequest { transaction, message, .. } = request;
        if message.id == MessageId::NET_HO_COMMIT_REQUEST {
            self.answer_commit(now, transaction);
            return;
        }
        self.outputs.push_work(WorkRecord { label: work::REQUEST, units: 1 });
        let before = self.pending_candidate_query.replace((transaction, message.id));
        if !self.apply_event(now, On::Asked) {
            let refused = core::mem::replace(&mut self.pending_candidate_query, before);
            if let Some((transaction, id)) = refused {
                self.refuse_request(now, transaction, id, Status::Rejected);
            }
        }
    }

    fn send_registration(&mut self, now: Instant) {
        self.register_at = None;
        let message = messages::register_request([&self.config.serving_link, &self.config.target_link]);
        let to = self.config.serving.id.clone();
        if self.mihf.handle_command(now, mih::MihfCommand::Send { token: REGISTER, to, message }).is_err() {
            self.unsent = Some(REGISTER);
        }
    }

    fn handle_link_event(&mut self, now: Instant, interface: StationInterface, event: LinkEvent) {
        self.outputs.push_work(WorkRecord { label: work::LINK, units: 1 });
        if !self.started {
            self.counters.ignored_link_events += 1;
            return;
        }
        let meant = match (interface, event) {
            (StationInterface::Serving, LinkEvent::GoingDown { time_to_loss: within }) => {
                self.forecast = within;
                let on = match self.config.initiation {
                    HandoverInitiatingSide::Station => On::LeavingStation,
                    HandoverInitiatingSide::Network => On::LeavingNetwork,
                };
                self.apply_event(now, on)
            }
            (StationInterface::Serving, LinkEvent::Down) => {
                self.detached = true;
                let meant = self.handle_link_loss(now);
                if let Some(handover) = &mut self.handover {
                    handover.left.get_or_insert(now);
                }
                meant
            }
            (StationInterface::Serving, LinkEvent::Up) => {
                self.detached = false;
                self.apply_event(now, On::Back)
            }
            (StationInterface::Target, LinkEvent::Scanned { found }) => {
                self.found = found;
                self.apply_event(now, if found { On::Found } else { On::NotFound })
            }
            (StationInterface::Target, LinkEvent::Up) => self.apply_event(now, On::Up),
            (StationInterface::Target, LinkEvent::Down) => self.apply_event(now, On::Down),
            (StationInterface::Serving, LinkEvent::Detected | LinkEvent::Scanned { .. })
            | (StationInterface::Target, LinkEvent::Detected | LinkEvent::GoingDown { .. }) => false,
        };
        if !meant {
            self.counters.ignored_link_events += 1;
        }
    }

    fn receive_data(&mut self, interface: StationInterface, packet: &[u8]) {
        let Some(sequence) = flow::sequence_number(packet) else {
            self.counters.malformed_data += 1;
            return;
        };
        self.counters.received += 1;
        self.outputs.push_work(WorkRecord { label: work::DATA, units: 1 });
        self.outputs.push_event(StationEvent::Received { sequence, interface });
    }

    fn handle_binding_packet(&mut self, now: Instant, from: IpAddr, data: &[u8]) {
        let Ok(packet) = MobilityPacket::parse(data) else {
            self.counters.malformed_bindings += 1;
            return;
        };
        let theirs = from.to_canonical() == self.config.correspondent.ip().to_canonical()
            && packet.source == usher_mip::to_inner_address(self.config.correspondent.ip())
            && packet.destination == usher_mip::to_inner_address(self.config.serving_address);
        let heard = match &packet.message {
            usher_mip::MobilityMessage::Acknowledgement(ack) if theirs => {
                self.registration.handle_acknowledgement(now, ack)
            }
            _ => BindingAckOutcome::Stale,
        };
        self.outputs.push_work(WorkRecord { label: work::BINDING, units: 1 });
        match heard {
            // The acknowledgement may be for a refresh, which changes no state.
            BindingAckOutcome::Bound(_) => drop(self.apply_event(now, On::Bound)),
            BindingAckOutcome::Refused(_) => {
                self.counters.bindings_refused += 1;
                self.apply_event(now, On::Unbound);
            }
            BindingAckOutcome::Raised => self.handle_registration_timeout(now),
            BindingAckOutcome::Stale => self.counters.stale_bindings += 1,
        }
    }

    fn handle_registration_timeout(&mut self, now: Instant) {
        if let Some(update) = self.registration.handle_timeout(now) {
            self.send_binding_update(update);
        }
    }

    fn expire_timers(&mut self, now: Instant) {
        self.mihf.handle_input(now, MachineInput::Timeout);
        self.drain_mihf_events(now);
        while let Some(request) = self.requests.pop_due(now) {
            self.act_upon(now, request);
        }
        self.handle_registration_timeout(now);
        if self.register_at.is_some_and(|at| at <= now) {
            self.send_registration(now);
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.apply_event(now, On::Retry);
        }
    }
}

impl Machine for MobileStation {
    type Command = StationCommand;
    type Event = StationEvent;
    type Job = NoJob;

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        if let Some((MIHF, input)) = input.split_outer_slot() {
            self.mihf.handle_input(now, input);
            return self.drain_mihf_events(now);
        }
        match input {
            MachineInput::Datagram { path, data } if path.socket == FLOW_SERVING => {
                self.receive_data(StationInterface::Serving, data);
            }
            MachineInput::Datagram { path, data } if path.socket == FLOW_TARGET => {
                self.receive_data(StationInterface::Target, data);
            }
            MachineInput::Datagram { path, data } if path.socket == BINDING_SOCKET => {
                self.handle_binding_packet(now, path.remote.ip(), data)
            }
            MachineInput::Timeout => self.expire_timers(now),
            _ => self.counters.unexpected += 1,
        }
        self.drain_mihf_events(now);
    }

    fn handle_command(&mut self, now: Instant, command: StationCommand) -> Result<(), CommandError> {
        match command {
            StationCommand::Start if self.started => {
                return Err(CommandError::WrongState("the station has already started"));
            }
            StationCommand::Start => {
                self.started = true;
                self.command_mihf(now, mih::MihfCommand::Peer(self.config.serving.clone()));
                self.send_registration(now);
            }
            StationCommand::Link { interface, event } => self.handle_link_event(now, interface, event),
        }
        self.drain_mihf_events(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        earliest_deadline([
            self.requests.next_due(),
            self.registration.poll_timeout(),
            self.register_at,
            self.retry_at,
            self.mihf.poll_timeout(),
        ])
    }
}

#[cfg(test)]
mod tests;

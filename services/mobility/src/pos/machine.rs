//! The point of service's machine.

use super::table::{Action, On, PointOfServiceTable, State};
use super::{HandoverTrigger, PosCommand, PosConfig, PosCounters, PosEvent, StationAdmissionTable};
use crate::link::LinkEvent;
use crate::messages;
use crate::requests::{PendingRequest, RequestQueue};
use crate::work;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use usher_core::timer::earliest_deadline;
use usher_core::{
    ChildMachine, CommandError, Instant, Machine, MachineInput, MachineOutputOf, NoJob, OutputQueue,
    SimulationRng, WorkRecord,
};
use usher_mih::{
    self as mih, IncomingRequestId, LinkTupleId, MessageId, Mihf, MihfId, MihfMessage, Status, Tlv,
};

/// The state of a station.
#[derive(Debug)]
struct StationEntry {
    link: LinkTupleId,
    state: State,
    /// When the latest step ended.
    mark: Instant,
    /// The token of the pending message.
    out: Option<u64>,
    /// The station's request that waits for the target.
    pending_request: Option<(IncomingRequestId, MessageId)>,
    /// When the handover is dropped.
    expires_at: Option<Instant>,
}

/// The purpose of a token.
#[derive(Debug)]
enum TransactionPurpose {
    /// A request of this station's controller.
    Handover(MihfId),
    /// MIH_N2N_HO_Complete for this MIH_MN_HO_Complete.
    Completion(IncomingRequestId),
    /// MIH_Event_Subscribe.
    Subscription,
}

/// A point of service; see the [module](super).
#[derive(Debug)]
pub struct PointOfService {
    config: PosConfig,
    mihf: ChildMachine<Mihf>,
    started: bool,
    clients: BTreeMap<MihfId, StationEntry>,
    admission: StationAdmissionTable,
    requests: RequestQueue,
    token: u64,
    open: BTreeMap<u64, TransactionPurpose>,
    /// Tokens of messages that the MIH function refused; they count as lost.
    unsent: VecDeque<u64>,
    outputs: OutputQueue<PosEvent>,
    counters: PosCounters,
}

impl PointOfService {
    /// Creates a point of service.
    #[must_use]
    pub fn new(config: PosConfig, rng: SimulationRng) -> Self {
        let client = |c: &super::ServedStation| {
            let client = StationEntry {
                link: c.link.clone(),
                state: State::Idle,
                mark: Instant::ZERO,
                out: None,
                pending_request: None,
                expires_at: None,
            };
            (c.peer.id.clone(), client)
        };
        Self {
            mihf: ChildMachine::without_slot(Mihf::new(config.mih.clone(), rng)),
            started: false,
            clients: config.clients.iter().map(client).collect(),
            admission: StationAdmissionTable::new(config.capacity, config.reserve),
            requests: RequestQueue::new(config.max_requests),
            token: 0,
            open: BTreeMap::new(),
            unsent: VecDeque::new(),
            outputs: OutputQueue::default(),
            counters: PosCounters::default(),
            config,
        }
    }
    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &PosCounters {
        &self.counters
    }
    /// Returns its MIH function.
    #[must_use]
    pub fn mihf(&self) -> &Mihf {
        &self.mihf
    }
    /// Returns the resources of its network.
    #[must_use]
    pub const fn admission(&self) -> &StationAdmissionTable {
        &self.admission
    }
    /// Returns the state of a station's handover; `None`: the station is unknown.
    #[must_use]
    pub fn handover_state(&self, station: &MihfId) -> Option<State> {
        self.clients.get(station).map(|client| client.state)
    }

    /// Applies an event to a station's controller. False if the state ignores it.
    fn apply_station_event(&mut self, now: Instant, station: &MihfId, on: On) -> bool {
        let Some(client) = self.clients.get_mut(station) else { return false };
        let Some(row) = PointOfServiceTable::step(client.state, on) else { return false };
        client.state = row.to;
        let forgets = PointOfServiceTable::find(row.to, On::Forgotten, |_| true).is_some();
        client.expires_at = forgets.then(|| now + self.config.handover_expiry);
        for action in row.actions {
            self.perform_action(now, station, *action);
        }
        true
    }

    fn perform_action(&mut self, now: Instant, station: &MihfId, action: Action) {
        let Some(client) = self.clients.get_mut(station) else { return };
        let neighbour = self.config.neighbour.as_ref();
        let target = neighbour.map(|n| messages::target_link(&client.link, n.technology, &n.poa));
        match action {
            Action::Over(step) => {
                let took = now.duration_since(client.mark);
                client.mark = now;
                self.outputs.push_event(PosEvent::Step { station: station.clone(), step, duration: took });
            }
            Action::Begin => {
                client.mark = now;
                self.counters.began += 1;
                self.outputs.push_event(PosEvent::HandoverStarted { station: station.clone() });
            }
            Action::Inquire => {
                let message = target.map(|target| messages::query_resources_request(station, &target));
                self.send_handover_request(now, station, neighbour.map(|n| n.peer.id.clone()), message);
            }
            Action::Book => {
                let message = target.map(|target| messages::n2n_commit_request(station, &target));
                self.send_handover_request(now, station, neighbour.map(|n| n.peer.id.clone()), message);
            }
            Action::Ask => {
                let message = target.map(|target| messages::net_candidate_query_request(&target));
                self.send_handover_request(now, station, Some(station.clone()), message);
            }
            Action::Tell => {
                let message = target.map(|target| messages::net_commit_request(&target));
                self.send_handover_request(now, station, Some(station.clone()), message);
            }
            Action::Offer => {
                let link = client.link.clone();
                let message = target.map(|target| messages::mn_candidate_query_response(&link, &target));
                self.answer_station(now, station, message);
            }
            Action::Grant => {
                self.answer_station(now, station, target.map(|target| messages::mn_commit_response(&target)))
            }
            Action::Deny => self.refuse_station_request(now, station, Status::Rejected),
            Action::Regret => self.refuse_station_request(now, station, Status::NetworkError),
            Action::BreakOff => {
                self.counters.broken_off += 1;
                self.outputs.push_event(PosEvent::BrokenOff { station: station.clone() });
            }
            Action::Abandon => {
                if let Some(token) = client.out.take() {
                    self.open.remove(&token);
                    self.command_mihf(now, mih::MihfCommand::Abandon { token });
                }
            }
            Action::Forget => self.counters.forgotten += 1,
        }
    }

    /// Sends a request of a station's controller. Without a destination it counts as lost.
    fn send_handover_request(
        &mut self,
        now: Instant,
        station: &MihfId,
        to: Option<MihfId>,
        message: Option<MihfMessage>,
    ) {
        let token = self.allocate_token(TransactionPurpose::Handover(station.clone()));
        if let Some(client) = self.clients.get_mut(station) {
            client.out = Some(token);
        }
        match (to, message) {
            (Some(to), Some(message)) => self.submit_message(now, token, to, message),
            _ => self.unsent.push_back(token),
        }
    }

    fn allocate_token(&mut self, purpose: TransactionPurpose) -> u64 {
        self.token += 1;
        self.open.insert(self.token, purpose);
        self.token
    }

    fn submit_message(&mut self, now: Instant, token: u64, to: MihfId, message: MihfMessage) {
        if self.mihf.handle_command(now, mih::MihfCommand::Send { token, to, message }).is_err() {
            self.unsent.push_back(token);
        }
    }

    fn command_mihf(&mut self, now: Instant, command: mih::MihfCommand) {
        // A transaction that the MIH function no longer remembers cannot be answered.
        let _ = self.mihf.handle_command(now, command);
    }

    fn answer_station(&mut self, now: Instant, station: &MihfId, message: Option<MihfMessage>) {
        let asked = self.clients.get_mut(station).and_then(|client| client.pending_request.take());
        if let (Some((transaction, _)), Some(message)) = (asked, message) {
            self.send_response(now, transaction, message);
        }
    }

    fn refuse_station_request(&mut self, now: Instant, station: &MihfId, status: Status) {
        let asked = self.clients.get_mut(station).and_then(|client| client.pending_request.take());
        if let Some((transaction, id)) = asked {
            self.refuse_request(now, transaction, id, status);
        }
    }

    fn refuse_request(
        &mut self,
        now: Instant,
        transaction: IncomingRequestId,
        id: MessageId,
        status: Status,
    ) {
        self.send_response(now, transaction, messages::status_response(id, status));
    }

    fn send_response(&mut self, now: Instant, transaction: IncomingRequestId, message: MihfMessage) {
        let success = message.status() == Some(Status::Success);
        *if success { &mut self.counters.answered } else { &mut self.counters.refused } += 1;
        self.command_mihf(now, mih::MihfCommand::Respond { transaction, message });
    }

    /// Handles events of the MIH function until there are no more.
    fn drain_mihf_events(&mut self, now: Instant) {
        loop {
            if let Some(token) = self.unsent.pop_front() {
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
                    Err(_) => On::Failed,
                };
                self.handle_result(now, token, on);
            }
            mih::MihfEvent::Request { from, transaction, message } => {
                let request = PendingRequest { from, transaction, message };
                if let Err(request) = self.requests.push(now + self.config.processing, request) {
                    self.counters.overloaded += 1;
                    self.refuse_request(
                        now,
                        request.transaction,
                        request.message.id,
                        Status::UnspecifiedFailure,
                    );
                }
            }
            mih::MihfEvent::Indication { from, message } => {
                let meant = message.id == MessageId::LINK_GOING_DOWN_INDICATION
                    && self.config.trigger == HandoverTrigger::Remote
                    && self.apply_station_event(now, &from, On::Trigger);
                if !meant {
                    self.counters.ignored_indications += 1;
                }
            }
            mih::MihfEvent::Registered { peer } => self.handle_registration(now, peer),
            mih::MihfEvent::ClaimRefused { peer, address } => {
                self.outputs.push_event(PosEvent::ClaimRefused { peer, address });
            }
            _ => {}
        }
    }

    fn handle_registration(&mut self, now: Instant, station: MihfId) {
        let Some(client) = self.clients.get(&station) else {
            self.counters.unknown_stations += 1;
            return;
        };
        let message = messages::subscribe_request(&client.link);
        self.admission.attach_station(&station);
        self.outputs.push_event(PosEvent::Registered { station: station.clone() });
        if self.config.trigger == HandoverTrigger::Remote {
            let token = self.allocate_token(TransactionPurpose::Subscription);
            self.submit_message(now, token, station, message);
        }
    }

    fn handle_result(&mut self, now: Instant, token: u64, on: On) {
        match self.open.remove(&token) {
            Some(TransactionPurpose::Handover(station)) => {
                let waits = self.clients.get_mut(&station).filter(|client| client.out == Some(token));
                if let Some(client) = waits {
                    client.out = None;
                    self.apply_station_event(now, &station, on);
                } else {
                    self.counters.late_results += 1;
                }
            }
            Some(TransactionPurpose::Completion(transaction)) => {
                let status = if on == On::Granted { Status::Success } else { Status::NetworkError };
                let message = messages::status_response(MessageId::MN_HO_COMPLETE_REQUEST, status);
                self.send_response(now, transaction, message);
            }
            Some(TransactionPurpose::Subscription) => {
                if on != On::Granted {
                    self.counters.subscriptions_failed += 1;
                }
            }
            None => self.counters.late_results += 1,
        }
    }

    /// Acts on a request after its processing time.
    fn act_upon(&mut self, now: Instant, request: PendingRequest) {
        self.outputs.push_work(WorkRecord { label: work::REQUEST, units: 1 });
        let PendingRequest { from, transaction, message } = request;
        let between_networks = matches!(
            message.id,
            MessageId::N2N_HO_QUERY_RESOURCES_REQUEST
                | MessageId::N2N_HO_COMMIT_REQUEST
                | MessageId::N2N_HO_COMPLETE_REQUEST
        );
        if between_networks && self.config.neighbour.as_ref().is_some_and(|n| n.peer.id != from) {
            self.counters.unknown_networks += 1;
            return self.refuse_request(now, transaction, message.id, Status::AuthorizationFailure);
        }
        match message.id {
            MessageId::MN_HO_CANDIDATE_QUERY_REQUEST => {
                self.handle_station_request(now, &from, transaction, message.id, On::Query);
            }
            MessageId::MN_HO_COMMIT_REQUEST => {
                self.handle_station_request(now, &from, transaction, message.id, On::Commit)
            }
            MessageId::MN_HO_COMPLETE_REQUEST => self.handle_completion(now, from, transaction, &message),
            MessageId::N2N_HO_QUERY_RESOURCES_REQUEST => {
                self.expire_reservations(now);
                let room = messages::station_id(&message).is_none_or(|id| self.admission.has_room(id));
                self.counters.no_resources += u64::from(!room);
                self.send_response(now, transaction, messages::query_resources_response(room));
            }
            MessageId::N2N_HO_COMMIT_REQUEST => {
                self.expire_reservations(now);
                let room = messages::station_id(&message)
                    .is_some_and(|id| self.admission.reserve_for_station(now, id));
                *if room { &mut self.counters.reserved } else { &mut self.counters.no_resources } += 1;
                let status = if room { Status::Success } else { Status::Rejected };
                self.send_response(now, transaction, messages::status_response(message.id, status));
            }
            MessageId::N2N_HO_COMPLETE_REQUEST => {
                if let Some(station) = messages::station_id(&message).cloned() {
                    self.record_move(now, &station, &message);
                }
                let answer = messages::status_response(message.id, Status::Success);
                self.send_response(now, transaction, answer);
            }
            id => {
                self.counters.unknown_requests += 1;
                self.refuse_request(now, transaction, id, Status::Rejected);
            }
        }
    }

    /// Handles a station's request, which its controller answers after the target's response.
    fn handle_station_request(
        &mut self,
        now: Instant,
        from: &MihfId,
        transaction: IncomingRequestId,
        id: MessageId,
        on: On,
    ) {
        let Some(client) = self.clients.get_mut(from) else {
            self.counters.unknown_stations += 1;
            self.refuse_request(now, transaction, id, Status::AuthorizationFailure);
            return;
        };
        let before = client.pending_request.replace((transaction, id));
        if !self.apply_station_event(now, from, on) {
            let refused =
                self.clients.get_mut(from).and_then(|c| core::mem::replace(&mut c.pending_request, before));
            if let Some((transaction, id)) = refused {
                self.refuse_request(now, transaction, id, Status::Rejected);
            }
        }
    }

    /// MIH_MN_HO_Complete: informs the other network before it answers the station.
    fn handle_completion(
        &mut self,
        now: Instant,
        station: MihfId,
        transaction: IncomingRequestId,
        message: &MihfMessage,
    ) {
        self.record_move(now, &station, message);
        match self.config.neighbour.as_ref().map(|n| n.peer.id.clone()) {
            Some(to) => {
                let token = self.allocate_token(TransactionPurpose::Completion(transaction));
                self.submit_message(now, token, to, messages::n2n_complete_request(&station, message));
            }
            None => {
                let answer = messages::status_response(message.id, Status::Success);
                self.send_response(now, transaction, answer);
            }
        }
    }

    /// Records a station's move between networks. The new link tells whether this is the old or the new network.
    fn record_move(&mut self, now: Instant, station: &MihfId, message: &MihfMessage) {
        if !self.clients.contains_key(station) && !self.admission.is_reserved(station) {
            self.counters.unknown_stations += 1;
            return;
        }
        let here = message.params.iter().any(|param| {
            matches!(param, Tlv::NewLinkIdentifier(link) if link.poa.as_ref() == Some(&self.config.poa))
        });
        if here {
            self.admission.attach_station(station);
            self.counters.arrived += 1;
            self.outputs.push_event(PosEvent::Arrived { station: station.clone() });
        } else {
            self.admission.remove_station(station);
            self.counters.gone += 1;
            self.outputs.push_event(PosEvent::Departed { station: station.clone() });
            self.apply_station_event(now, station, On::Completed);
        }
    }

    fn expire_reservations(&mut self, now: Instant) {
        self.counters.expired += self.admission.expire_reservations(now);
    }

    fn expire_timers(&mut self, now: Instant) {
        self.mihf.handle_input(now, MachineInput::Timeout);
        self.drain_mihf_events(now);
        self.expire_reservations(now);
        while let Some(request) = self.requests.pop_due(now) {
            self.act_upon(now, request);
        }
        let due = |(_, client): &(&MihfId, &StationEntry)| client.expires_at.is_some_and(|at| at <= now);
        let due: Vec<MihfId> = self.clients.iter().filter(due).map(|(id, _)| id.clone()).collect();
        for station in due {
            self.apply_station_event(now, &station, On::Forgotten);
        }
    }
}

impl Machine for PointOfService {
    type Command = PosCommand;
    type Event = PosEvent;
    type Job = NoJob;

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Timeout => self.expire_timers(now),
            other => self.mihf.handle_input(now, other),
        }
        self.drain_mihf_events(now);
    }

    fn handle_command(&mut self, now: Instant, command: PosCommand) -> Result<(), CommandError> {
        match command {
            PosCommand::Start if self.started => {
                return Err(CommandError::WrongState("the point of service has already started"));
            }
            PosCommand::Start => {
                self.started = true;
                let clients = self.config.clients.iter().map(|client| &client.peer);
                let neighbour = self.config.neighbour.as_ref().map(|neighbour| &neighbour.peer);
                let peers: Vec<_> = clients.chain(neighbour).cloned().collect();
                for peer in peers {
                    self.command_mihf(now, mih::MihfCommand::Peer(peer));
                }
            }
            PosCommand::Link { station, event } => {
                self.outputs.push_work(WorkRecord { label: work::LINK, units: 1 });
                let meant = matches!(event, LinkEvent::GoingDown { .. })
                    && self.config.trigger == HandoverTrigger::Local
                    && self.apply_station_event(now, &station, On::Trigger);
                if !meant {
                    self.counters.ignored_link_events += 1;
                }
            }
            PosCommand::Leave { station } => self.admission.remove_station(&station),
        }
        self.drain_mihf_events(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let forget = self.clients.values().filter_map(|client| client.expires_at).min();
        earliest_deadline([
            self.requests.next_due(),
            self.admission.next_expiry(),
            forget,
            self.mihf.poll_timeout(),
        ])
    }
}

#[cfg(test)]
mod tests;

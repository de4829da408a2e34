//! A mobile node or a point of service: an MIH function and its user on a host.

use super::super::arrivals::ArrivalProcess;
use super::super::machine::{MachineEventOrJob, MachineSockets};
use super::super::report::{DialogueEnd, RoleReport};
use super::super::role::{HostRole, MihTotals};
use super::payload::{ReceivedTransactionNumbers, TransactionPayload};
use std::collections::{BTreeMap, VecDeque};
use usher_core::timer::earliest_deadline;
use usher_core::{Duration, Instant, Machine};
use usher_mih::{
    IncomingRequestId, Mihf, MihfCommand, MihfEvent, MihfId, MihfMessage, MihfPeer, Opcode, ServiceId, Status,
};
use usher_sim::radio::{LinkCommand, LinkEvent};
use usher_sim::{AppContext, AppDelivery};

/// The token of messages outside the workload's transactions.
const UNCOUNTED_TOKEN: u64 = u64::MAX;

/// A destination of messages.
#[derive(Debug)]
pub(super) struct MessageTarget {
    pub(super) id: MihfId,
    /// The request or indication, already padded to its size.
    pub(super) message: MihfMessage,
    /// The times of sending.
    pub(super) arrivals: ArrivalProcess,
}

/// An MIH function and its user.
#[derive(Debug)]
pub(in super::super) struct MihFunctionRole {
    endpoint: MachineSockets,
    mihf: Mihf,
    user: MihUser,
}

/// The MIH user of a function.
#[derive(Debug, Default)]
struct MihUser {
    /// The functions known from the start.
    peers: Vec<MihfPeer>,
    /// The message sent once at the start, with its destination.
    hello: Option<(MihfId, MihfMessage)>,
    /// The destinations of its messages.
    targets: Vec<MessageTarget>,
    /// The number of the next message to each destination.
    next: Vec<u64>,
    /// Requests without a response, by token.
    open: BTreeMap<u64, TransactionPayload>,
    tokens: u64,
    /// Responses to requests, by sender.
    responses: BTreeMap<MihfId, MihfMessage>,
    processing: Duration,
    /// Requests being processed.
    answers: VecDeque<(Instant, IncomingRequestId, MihfMessage)>,
    /// Received message numbers, by sender.
    received_numbers: BTreeMap<MihfId, ReceivedTransactionNumbers>,
    duplicates: u64,
    delivered: u64,
    delivery_ns: u128,
}

impl MihFunctionRole {
    /// Creates a function whose user takes `processing` for a response. It has neither peers nor targets yet.
    pub(super) fn new(endpoint: MachineSockets, mihf: Mihf, processing: Duration) -> Self {
        Self { endpoint, mihf, user: MihUser { processing, ..MihUser::default() } }
    }
    /// Adds a peer, and a message to it at the start.
    pub(super) fn add_peer(&mut self, peer: MihfPeer, hello: Option<MihfMessage>) {
        if let Some(hello) = hello {
            self.user.hello = Some((peer.id.clone(), hello));
        }
        self.user.peers.push(peer);
    }
    /// Adds a destination of messages.
    pub(super) fn add_message_target(&mut self, target: MessageTarget) {
        self.user.targets.push(target);
        self.user.next.push(0);
    }
    /// Adds the response to the requests of a function.
    pub(super) fn add_prepared_response(&mut self, from: MihfId, response: MihfMessage) {
        self.user.responses.insert(from, response);
    }
}

impl HostRole for MihFunctionRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        let now = ctx.now();
        if matches!(delivery, AppDelivery::Start) {
            // The result is ignored: the settings were checked, so the machine accepts the peers.
            for peer in std::mem::take(&mut self.user.peers) {
                let _ = self.mihf.handle_command(now, MihfCommand::Peer(peer));
            }
            if let Some((to, message)) = self.user.hello.take() {
                let _ =
                    self.mihf.handle_command(now, MihfCommand::Send { token: UNCOUNTED_TOKEN, to, message });
            }
        }
        // A station that lost its association reconnects as soon as it detects the network.
        if let AppDelivery::Link { host: at, event: LinkEvent::Detected, .. } = delivery {
            ctx.link_command(at, LinkCommand::Connect);
        }
        let Self { endpoint, mihf, user } = self;
        endpoint.deliver_to_machine(ctx, mihf, &delivery);
        user.send_due(ctx, mihf);
        let next = endpoint.drain_outputs(ctx, mihf, |ctx, mihf, word| match word {
            MachineEventOrJob::Event(event) => user.handle_event(ctx, mihf, event),
            MachineEventOrJob::Job(job) => match job.job {},
        });
        let answer = user.answers.front().map(|(at, ..)| *at);
        let send = user.targets.iter().filter_map(|t| t.arrivals.next_arrival()).min();
        ctx.set_timer(earliest_deadline([next, answer, send]));
    }

    fn mih_totals(&self) -> Option<MihTotals> {
        let MihUser { duplicates, delivered, delivery_ns, .. } = self.user;
        Some(MihTotals { duplicates, delivered, delivery_ns, ..MihTotals::from(&self.mihf) })
    }
}

impl MihUser {
    /// Records a message of a function; true if it is new.
    fn record_message_receipt(&mut self, now: Instant, from: MihfId, payload: TransactionPayload) -> bool {
        let first = self.received_numbers.entry(from).or_default().insert(payload.number);
        if first {
            self.delivered += 1;
            self.delivery_ns += u128::from(now.duration_since(payload.started_at).as_nanos());
        } else {
            self.duplicates += 1;
        }
        first
    }

    /// Sends the responses and new messages that are due.
    fn send_due(&mut self, ctx: &mut AppContext<'_, RoleReport>, mihf: &mut Mihf) {
        let now = ctx.now();
        while let Some((at, ..)) = self.answers.front()
            && *at <= now
        {
            let Some((_, transaction, message)) = self.answers.pop_front() else { return };
            // An error is ignored: the function may have ended the transaction meanwhile.
            let _ = mihf.handle_command(now, MihfCommand::Respond { transaction, message });
        }
        for i in 0..self.targets.len() {
            while self.targets[i].arrivals.take_due_arrival(now) {
                self.send_message(ctx, mihf, i);
            }
        }
    }

    fn send_message(&mut self, ctx: &mut AppContext<'_, RoleReport>, mihf: &mut Mihf, target: usize) {
        let now = ctx.now();
        let number = self.next[target];
        self.next[target] += 1;
        let MessageTarget { id, message, .. } = &self.targets[target];
        let payload = TransactionPayload { started_at: now, number };
        let message = payload.fill_payload_placeholder(message);
        let request = message.id.opcode == Opcode::Request;
        let token = self.tokens;
        self.tokens += 1;
        ctx.report(RoleReport::Started);
        let accepted = mihf.handle_command(now, MihfCommand::Send { token, to: id.clone(), message });
        match (accepted, request) {
            (Ok(()), true) => {
                self.open.insert(token, payload);
            }
            (Ok(()), false) => {}
            (Err(_), _) => ctx.report(RoleReport::Ended { started_at: now, end: DialogueEnd::Failed }),
        }
    }

    fn handle_event(&mut self, ctx: &mut AppContext<'_, RoleReport>, mihf: &mut Mihf, event: MihfEvent) {
        let now = ctx.now();
        match event {
            MihfEvent::Indication { from, message } => {
                let Some(payload) = TransactionPayload::from_message(&message) else { return };
                if self.record_message_receipt(now, from, payload) {
                    ctx.report(RoleReport::Ended {
                        started_at: payload.started_at,
                        end: DialogueEnd::Completed,
                    });
                }
            }
            MihfEvent::Request { from, transaction, message } => {
                let Some(response) = self.responses.get(&from) else { return };
                let Some(payload) = TransactionPayload::from_message(&message) else { return };
                let response = payload.fill_payload_placeholder(response);
                self.record_message_receipt(now, from, payload);
                self.answers.push_back((now + self.processing, transaction, response));
                if self.processing.is_zero() {
                    self.send_due(ctx, mihf);
                }
            }
            MihfEvent::Done { token, result } => {
                let Some(request) = self.open.remove(&token) else { return };
                // Compare the contents too: transaction identifiers wrap around, so a response from a long queue may
                // belong to an earlier request. The function's own responses have no payload.
                let answers = |m: &MihfMessage| match m.id.service {
                    ServiceId::Management => true,
                    _ => TransactionPayload::from_message(m).is_some_and(|p| p.number == request.number),
                };
                let good = |m: &MihfMessage| m.status() == Some(Status::Success) && answers(m);
                let end = if matches!(&result, Ok(Some(m)) if good(m)) {
                    DialogueEnd::Completed
                } else {
                    DialogueEnd::Failed
                };
                ctx.report(RoleReport::Ended { started_at: request.started_at, end });
            }
            // The function itself answers registrations and subscriptions, so these events need no action.
            MihfEvent::Registered { .. }
            | MihfEvent::Deregistered { .. }
            | MihfEvent::AddressReplaced { .. }
            | MihfEvent::ClaimRefused { .. }
            | MihfEvent::Subscribed { .. }
            | MihfEvent::Unsubscribed { .. }
            | MihfEvent::Discovered { .. } => {}
        }
    }
}

//! A mobile node or a point of service: an MIH function, its user, and where they live.

use super::super::arrivals::ArrivalProcess;
use super::super::machine::{EventOrJob, MachineEndpoint};
use super::super::report::{DialogueEnd, RoleReport};
use super::super::role::{HostRole, MihTotals};
use super::payload::{ReceivedNumbers, TransactionPayload};
use std::collections::{BTreeMap, VecDeque};
use usher_core::timer::earliest_deadline;
use usher_core::{Duration, Instant, Machine};
use usher_mih::{
    IncomingRequestId, Mihf, MihfCommand, MihfEvent, MihfId, MihfMessage, MihfPeer, Opcode, ServiceId, Status,
};
use usher_sim::radio::{LinkCommand, LinkEvent};
use usher_sim::{AppContext, AppDelivery};

/// The token of what is no transaction of the workload.
const UNCOUNTED_TOKEN: u64 = u64::MAX;

/// Somebody to whom messages go.
#[derive(Debug)]
pub(super) struct MessageTarget {
    /// Who.
    pub(super) id: MihfId,
    /// What is sent: a request or an indication, of its size already.
    pub(super) message: MihfMessage,
    /// When.
    pub(super) arrivals: ArrivalProcess,
}

/// An MIH function and its user.
#[derive(Debug)]
pub(in super::super) struct NodeRole {
    endpoint: MachineEndpoint,
    mihf: Mihf,
    user: MihUser,
}

/// The MIH user of a function.
#[derive(Debug, Default)]
struct MihUser {
    /// The functions that it knows from the start.
    peers: Vec<MihfPeer>,
    /// What it sends once at the start, to whom.
    hello: Option<(MihfId, MihfMessage)>,
    /// To whom it sends.
    targets: Vec<MessageTarget>,
    /// The number of the next message to each of them.
    next: Vec<u64>,
    /// Its requests without a response, by their tokens.
    open: BTreeMap<u64, TransactionPayload>,
    tokens: u64,
    /// How it answers requests, by who asks.
    responses: BTreeMap<MihfId, MihfMessage>,
    processing: Duration,
    /// Requests being processed.
    answers: VecDeque<(Instant, IncomingRequestId, MihfMessage)>,
    /// What has come, by who sent it.
    received_numbers: BTreeMap<MihfId, ReceivedNumbers>,
    duplicates: u64,
    delivered: u64,
    delivery_ns: u128,
}

impl NodeRole {
    /// A function at a place, whose user takes so long for an answer. It neither knows nor sends anything yet.
    pub(super) fn new(endpoint: MachineEndpoint, mihf: Mihf, processing: Duration) -> Self {
        Self { endpoint, mihf, user: MihUser { processing, ..MihUser::default() } }
    }
    /// Lets it know another function, and say something to it at the start.
    pub(super) fn add_peer(&mut self, peer: MihfPeer, hello: Option<MihfMessage>) {
        if let Some(hello) = hello {
            self.user.hello = Some((peer.id.clone(), hello));
        }
        self.user.peers.push(peer);
    }
    /// Lets it send messages.
    pub(super) fn add_target(&mut self, target: MessageTarget) {
        self.user.targets.push(target);
        self.user.next.push(0);
    }
    /// Lets it answer the requests of a function.
    pub(super) fn add_response(&mut self, from: MihfId, response: MihfMessage) {
        self.user.responses.insert(from, response);
    }
}

impl HostRole for NodeRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        let now = ctx.now();
        if matches!(delivery, AppDelivery::Start) {
            // A refusal would be a fault of the settings, which the checks let through only if they fit.
            for peer in std::mem::take(&mut self.user.peers) {
                let _ = self.mihf.handle_command(now, MihfCommand::Peer(peer));
            }
            if let Some((to, message)) = self.user.hello.take() {
                let _ =
                    self.mihf.handle_command(now, MihfCommand::Send { token: UNCOUNTED_TOKEN, to, message });
            }
        }
        // Whose association was lost comes back as soon as it hears the network again.
        if let AppDelivery::Link { host: at, event: LinkEvent::Detected, .. } = delivery {
            ctx.link_command(at, LinkCommand::Connect);
        }
        let Self { endpoint, mihf, user } = self;
        endpoint.feed_delivery(ctx, mihf, &delivery);
        user.send_due(ctx, mihf);
        let next = endpoint.drain_outputs(ctx, mihf, |ctx, mihf, word| match word {
            EventOrJob::Event(event) => user.handle_event(ctx, mihf, event),
            EventOrJob::Job(job) => match job.job {},
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
    /// Notes what has come from a function; true where it is for the first time.
    fn record_receipt(&mut self, now: Instant, from: MihfId, payload: TransactionPayload) -> bool {
        let first = self.received_numbers.entry(from).or_default().insert(payload.number);
        if first {
            self.delivered += 1;
            self.delivery_ns += u128::from(now.duration_since(payload.started_at).as_nanos());
        } else {
            self.duplicates += 1;
        }
        first
    }

    /// Sends what is due: answers, and what begins.
    fn send_due(&mut self, ctx: &mut AppContext<'_, RoleReport>, mihf: &mut Mihf) {
        let now = ctx.now();
        while let Some((at, ..)) = self.answers.front()
            && *at <= now
        {
            let Some((_, transaction, message)) = self.answers.pop_front() else { return };
            // The function may have given the transaction up meanwhile.
            let _ = mihf.handle_command(now, MihfCommand::Respond { transaction, message });
        }
        for i in 0..self.targets.len() {
            while self.targets[i].arrivals.take_arrival(now) {
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
        let message = payload.write_into(message);
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
                if self.record_receipt(now, from, payload) {
                    ctx.report(RoleReport::Ended {
                        started_at: payload.started_at,
                        end: DialogueEnd::Completed,
                    });
                }
            }
            MihfEvent::Request { from, transaction, message } => {
                let Some(response) = self.responses.get(&from) else { return };
                let Some(payload) = TransactionPayload::from_message(&message) else { return };
                let response = payload.write_into(response);
                self.record_receipt(now, from, payload);
                self.answers.push_back((now + self.processing, transaction, response));
                if self.processing.is_zero() {
                    self.send_due(ctx, mihf);
                }
            }
            MihfEvent::Done { token, result } => {
                let Some(request) = self.open.remove(&token) else { return };
                // Identifiers come round: what has waited in a queue for that long may answer an earlier request.
                // What the function answers by itself has no payload.
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
            // The function itself answers what is said to it about registration and subscription.
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

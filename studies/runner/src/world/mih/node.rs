//! A mobile node or a point of service: an MIH function, its user, and where they live.

use super::super::arrivals::ArrivalProcess;
use super::super::machine::{Endpoint, EventOrJob};
use super::super::report::{End, Report};
use super::super::role::{MihTotals, Role};
use super::payload::{Payload, Seen};
use std::collections::{BTreeMap, VecDeque};
use usher_core::timer::earliest;
use usher_core::{Duration, Instant, Machine};
use usher_mih::{Command, Event, Incoming, Message, Mihf, MihfId, Opcode, Peer, Service, Status};
use usher_sim::radio::{LinkCommand, LinkEvent};
use usher_sim::{Context, Delivery};

/// The token of what is no transaction of the workload.
const ASIDE: u64 = u64::MAX;

/// Somebody to whom messages go.
#[derive(Debug)]
pub(super) struct Target {
    /// Who.
    pub(super) id: MihfId,
    /// What is sent: a request or an indication, of its size already.
    pub(super) message: Message,
    /// When.
    pub(super) arrivals: ArrivalProcess,
}

/// An MIH function and its user.
#[derive(Debug)]
pub(in super::super) struct NodeRole {
    endpoint: Endpoint,
    mihf: Mihf,
    user: MihUser,
}

/// The MIH user of a function.
#[derive(Debug, Default)]
struct MihUser {
    /// The functions that it knows from the start.
    peers: Vec<Peer>,
    /// What it sends once at the start, to whom.
    hello: Option<(MihfId, Message)>,
    /// To whom it sends.
    targets: Vec<Target>,
    /// The number of the next message to each of them.
    next: Vec<u64>,
    /// Its requests without a response, by their tokens.
    open: BTreeMap<u64, Payload>,
    tokens: u64,
    /// How it answers requests, by who asks.
    responses: BTreeMap<MihfId, Message>,
    processing: Duration,
    /// Requests being processed.
    answers: VecDeque<(Instant, Incoming, Message)>,
    /// What has come, by who sent it.
    seen: BTreeMap<MihfId, Seen>,
    duplicates: u64,
    delivered: u64,
    delivery_ns: u128,
}

impl NodeRole {
    /// A function at a place, whose user takes so long for an answer. It neither knows nor sends anything yet.
    pub(super) fn new(endpoint: Endpoint, mihf: Mihf, processing: Duration) -> Self {
        Self { endpoint, mihf, user: MihUser { processing, ..MihUser::default() } }
    }
    /// Lets it know another function, and say something to it at the start.
    pub(super) fn knows(&mut self, peer: Peer, hello: Option<Message>) {
        if let Some(hello) = hello {
            self.user.hello = Some((peer.id.clone(), hello));
        }
        self.user.peers.push(peer);
    }
    /// Lets it send messages.
    pub(super) fn sends(&mut self, target: Target) {
        self.user.targets.push(target);
        self.user.next.push(0);
    }
    /// Lets it answer the requests of a function.
    pub(super) fn answers(&mut self, from: MihfId, response: Message) {
        self.user.responses.insert(from, response);
    }
}

impl Role for NodeRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        let now = ctx.now();
        if matches!(delivery, Delivery::Start) {
            // A refusal would be a fault of the settings, which the checks let through only if they fit.
            for peer in std::mem::take(&mut self.user.peers) {
                let _ = self.mihf.command(now, Command::Peer(peer));
            }
            if let Some((to, message)) = self.user.hello.take() {
                let _ = self.mihf.command(now, Command::Send { token: ASIDE, to, message });
            }
        }
        // Whose association was lost comes back as soon as it hears the network again.
        if let Delivery::Link { at, event: LinkEvent::Detected, .. } = delivery {
            ctx.link_command(at, LinkCommand::Connect);
        }
        let Self { endpoint, mihf, user } = self;
        endpoint.feed(ctx, mihf, &delivery);
        user.due(ctx, mihf);
        let next = endpoint.drain(ctx, mihf, |ctx, mihf, word| match word {
            EventOrJob::Event(event) => user.event(ctx, mihf, event),
            EventOrJob::Job(job) => match job.what {},
        });
        let answer = user.answers.front().map(|(at, ..)| *at);
        let send = user.targets.iter().filter_map(|t| t.arrivals.next()).min();
        ctx.set_timer(earliest([next, answer, send]));
    }

    fn mih_totals(&self) -> Option<MihTotals> {
        let MihUser { duplicates, delivered, delivery_ns, .. } = self.user;
        Some(MihTotals { duplicates, delivered, delivery_ns, ..MihTotals::from(&self.mihf) })
    }
}

impl MihUser {
    /// Notes what has come from a function; true where it is for the first time.
    fn comes(&mut self, now: Instant, from: MihfId, payload: Payload) -> bool {
        let first = self.seen.entry(from).or_default().first(payload.number);
        if first {
            self.delivered += 1;
            self.delivery_ns += u128::from(now.since(payload.began).as_nanos());
        } else {
            self.duplicates += 1;
        }
        first
    }

    /// Sends what is due: answers, and what begins.
    fn due(&mut self, ctx: &mut Context<'_, Report>, mihf: &mut Mihf) {
        let now = ctx.now();
        while let Some((at, ..)) = self.answers.front()
            && *at <= now
        {
            let Some((_, transaction, message)) = self.answers.pop_front() else { return };
            // The function may have given the transaction up meanwhile.
            let _ = mihf.command(now, Command::Respond { transaction, message });
        }
        for i in 0..self.targets.len() {
            while self.targets[i].arrivals.take(now) {
                self.send(ctx, mihf, i);
            }
        }
    }

    fn send(&mut self, ctx: &mut Context<'_, Report>, mihf: &mut Mihf, target: usize) {
        let now = ctx.now();
        let number = self.next[target];
        self.next[target] += 1;
        let Target { id, message, .. } = &self.targets[target];
        let payload = Payload { began: now, number };
        let message = payload.written(message);
        let request = message.id.opcode == Opcode::Request;
        let token = self.tokens;
        self.tokens += 1;
        ctx.report(Report::Begun);
        let accepted = mihf.command(now, Command::Send { token, to: id.clone(), message });
        match (accepted, request) {
            (Ok(()), true) => {
                self.open.insert(token, payload);
            }
            (Ok(()), false) => {}
            (Err(_), _) => ctx.report(Report::Ended { began: now, end: End::Failed }),
        }
    }

    fn event(&mut self, ctx: &mut Context<'_, Report>, mihf: &mut Mihf, event: Event) {
        let now = ctx.now();
        match event {
            Event::Indication { from, message } => {
                let Some(payload) = Payload::of(&message) else { return };
                if self.comes(now, from, payload) {
                    ctx.report(Report::Ended { began: payload.began, end: End::Completed });
                }
            }
            Event::Request { from, transaction, message } => {
                let Some(response) = self.responses.get(&from) else { return };
                let Some(payload) = Payload::of(&message) else { return };
                let response = payload.written(response);
                self.comes(now, from, payload);
                self.answers.push_back((now + self.processing, transaction, response));
                if self.processing.is_zero() {
                    self.due(ctx, mihf);
                }
            }
            Event::Done { token, result } => {
                let Some(request) = self.open.remove(&token) else { return };
                // Identifiers come round: what has waited in a queue for that long may answer an earlier request.
                // What the function answers by itself has no payload.
                let answers = |m: &Message| match m.id.service {
                    Service::Management => true,
                    _ => Payload::of(m).is_some_and(|p| p.number == request.number),
                };
                let good = |m: &Message| m.status() == Some(Status::Success) && answers(m);
                let end =
                    if matches!(&result, Ok(Some(m)) if good(m)) { End::Completed } else { End::Failed };
                ctx.report(Report::Ended { began: request.began, end });
            }
            // The function itself answers what is said to it about registration and subscription.
            Event::Registered { .. }
            | Event::Deregistered { .. }
            | Event::AddressReplaced { .. }
            | Event::ClaimRefused { .. }
            | Event::Subscribed { .. }
            | Event::Unsubscribed { .. }
            | Event::Discovered { .. } => {}
        }
    }
}

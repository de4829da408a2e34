//! The protocols by which is asked for admission, and how each answers.

use super::answer::{self, Asker, Verdict};
use super::api::{Event, HandedBack};
use super::ask::Pending;
use super::context::Context;
use super::session::failure;
use super::{DIAMETER, RADIUS};
use alloc::collections::BTreeMap;
use core::net::IpAddr;
use usher_core::timer::earliest;
use usher_core::{Child, Input, Instant, Machine};
use usher_diameter::avp::{AvpBuf, Avps};
use usher_diameter::dictionary::Dictionary;
use usher_diameter::node::{self, Node};
use usher_diameter::{Fault, Message, ResultCode};
use usher_radius::attribute::Attributes;
use usher_radius::packet::Code;
use usher_radius::server as radius;

/// A server's RADIUS side and its Diameter side, whose requests are decided here that came to another server, and what all
/// parts work with.
#[derive(Debug)]
pub(super) struct Fronts {
    pub(super) radius: Option<Child<radius::Server>>,
    pub(super) diameter: Option<Child<Node>>,
    /// What Diameter requests are held against.
    dictionary: Option<Dictionary>,
    pub(super) foreign: Foreign,
    pub(super) ctx: Context,
}

impl Fronts {
    pub(super) fn new(radius: Option<radius::Server>, diameter: Option<Node>, ctx: Context) -> Self {
        Self {
            radius: radius.map(|server| Child::new(RADIUS, server)),
            dictionary: diameter.is_some().then(Dictionary::base),
            diameter: diameter.map(|node| Child::new(DIAMETER, node)),
            foreign: Foreign::default(),
            ctx,
        }
    }

    /// What the RADIUS side says next.
    pub(super) fn radius_event(&mut self) -> Option<radius::Event> {
        self.ctx.outputs.next_event(self.radius.as_mut()?)
    }
    /// What the Diameter side says next.
    pub(super) fn diameter_event(&mut self) -> Option<node::Event> {
        self.ctx.outputs.next_event(self.diameter.as_mut()?)
    }
    /// Gives the side in a slot its input; false where there is none.
    pub(super) fn handle(&mut self, now: Instant, slot: u16, input: Input<'_>) -> bool {
        match (slot, &mut self.radius, &mut self.diameter) {
            (RADIUS, Some(server), _) => server.handle(now, input),
            (DIAMETER, _, Some(node)) => node.handle(now, input),
            _ => return false,
        }
        true
    }
    pub(super) fn timeout(&mut self, now: Instant) {
        self.handle(now, RADIUS, Input::Timeout);
        self.handle(now, DIAMETER, Input::Timeout);
    }
    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        let radius = self.radius.as_mut().and_then(|server| server.poll_timeout());
        let diameter = self.diameter.as_mut().and_then(|node| node.poll_timeout());
        earliest([radius, diameter])
    }

    /// Whether a Diameter request says what it must and nothing that it must not.
    pub(super) fn check(&self, message: &Message) -> Result<(), Fault> {
        let check = |d: &Dictionary| d.check_request(message.header, message.avps.view());
        self.dictionary.as_ref().map_or(Ok(()), check)
    }
    /// Whether a RADIUS client may name an access server by this address; Diameter peers may.
    pub(super) fn speaks_for(&self, client: Option<u32>, source: IpAddr, named: IpAddr) -> bool {
        let Some(client) = client else { return true };
        self.radius.as_ref().is_some_and(|server| server.speaks_for(client, source, named))
    }

    /// An empty list, reused where there is one.
    pub(super) fn attributes(&mut self) -> Attributes {
        self.radius.as_mut().map(|server| server.attributes()).unwrap_or_default()
    }
    pub(super) fn recycle(&mut self, list: Attributes) {
        if let Some(server) = &mut self.radius {
            server.recycle(list);
        }
    }
    /// What a request says in AVPs that are RADIUS attributes (RFC 6733 §4.1), without what proves something.
    pub(super) fn as_attributes(&mut self, avps: Avps<'_>) -> Attributes {
        const PROOFS: [u32; 2] = [2, 3];
        let mut attributes = self.attributes();
        for avp in avps.filter(|a| a.vendor == 0 && !PROOFS.contains(&a.code)) {
            if let Ok(kind @ 1..) = u8::try_from(avp.code) {
                // What is too long for an attribute is none that a check or a log could name.
                let _ = attributes.push_bytes(kind, avp.data);
            }
        }
        attributes
    }

    /// Says a verdict.
    pub(super) fn answer(&mut self, asker: Asker, verdict: Verdict<'_>) {
        match asker {
            Asker::Radius(token) => {
                let (code, attributes) = answer::radius(verdict, || self.attributes());
                self.respond(token, code, attributes);
            }
            Asker::Diameter(token, request_type) => {
                let config = &self.ctx.config;
                let round = config.full_answers.then_some(config.session_timeout);
                let (result, avps) =
                    answer::diameter(&verdict, request_type, round, config.dictionary.as_deref());
                self.answer_peer(token, result, avps);
            }
        }
    }
    /// Rejects, with an EAP-Failure where EAP was spoken: in answer to the response of this identifier.
    pub(super) fn turn_away(&mut self, asker: Asker, eap: Option<u8>, reply: Attributes) {
        let failure = eap.map(failure);
        self.answer(asker, Verdict::Reject { eap: failure.as_ref().map(|f| &f[..]), reply });
    }
    /// Leaves a request without a verdict.
    pub(super) fn discard(&mut self, asker: Asker) {
        match asker {
            Asker::Radius(token) => self.stay_silent(token),
            // Diameter has no silence: a request that gets no verdict is told so.
            Asker::Diameter(token, _) => {
                self.refuse(token, Fault::new(ResultCode::UNABLE_TO_COMPLY, "no answer can be given"));
            }
        }
    }
    /// The same to a request that waits, and is not told of.
    pub(super) fn drop_request(&mut self, pending: Pending) {
        self.discard(pending.asker);
        self.recycle(pending.request);
    }
    /// Leaves a request without a verdict because the store cannot be asked.
    pub(super) fn unavailable(&mut self, asker: Asker) {
        match asker {
            Asker::Radius(_) => self.discard(asker),
            Asker::Diameter(token, _) => {
                self.refuse(token, Fault::new(ResultCode::TOO_BUSY, "the store is not available"));
            }
        }
    }

    /// Answers a RADIUS request.
    pub(super) fn respond(&mut self, token: u64, code: Code, attributes: Attributes) {
        if let Some((shard, token)) = self.foreign.decided(token) {
            let back = HandedBack::Response { token, code, attributes };
            self.ctx.outputs.event(Event::HandBack { shard, back });
        } else if let Some(server) = &mut self.radius {
            // The client may have given this request up for a newer one: then nobody waits.
            let _ = server.command(self.ctx.now, radius::Command::Respond { token, code, attributes });
        }
    }
    /// Leaves a RADIUS request without an answer.
    pub(super) fn stay_silent(&mut self, token: u64) {
        if let Some((shard, token)) = self.foreign.decided(token) {
            self.ctx.outputs.event(Event::HandBack { shard, back: HandedBack::Silence { token } });
        } else if let Some(server) = &mut self.radius {
            // A request that is gone needs no end.
            let _ = server.command(self.ctx.now, radius::Command::Discard { token });
        }
    }
    /// Answers a Diameter request.
    pub(super) fn answer_peer(&mut self, token: u64, result: ResultCode, avps: AvpBuf) {
        if let Some((shard, token)) = self.foreign.decided(token) {
            let back = HandedBack::Answer { token, result, avps };
            self.ctx.outputs.event(Event::HandBack { shard, back });
        } else if let Some(node) = &mut self.diameter {
            // The connection that it came by may be gone: then nobody waits for the answer.
            let _ = node.command(self.ctx.now, node::Command::Answer { token, result, avps });
        }
    }
    /// Answers a Diameter request with a fault.
    pub(super) fn refuse(&mut self, token: u64, fault: Fault) {
        if let Some((shard, token)) = self.foreign.decided(token) {
            self.ctx.outputs.event(Event::HandBack { shard, back: HandedBack::Refusal { token, fault } });
        } else if let Some(node) = &mut self.diameter {
            // As above.
            let _ = node.command(self.ctx.now, node::Command::Reject { token, fault });
        }
    }
    /// Another server has decided a request.
    pub(super) fn handed_back(&mut self, back: HandedBack) {
        match back {
            HandedBack::Response { token, code, attributes } => self.respond(token, code, attributes),
            HandedBack::Silence { token } => self.stay_silent(token),
            HandedBack::Answer { token, result, avps } => self.answer_peer(token, result, avps),
            HandedBack::Refusal { token, fault } => self.refuse(token, fault),
        }
    }
}

/// What tells tokens of handed requests from those of the fronts.
const FOREIGN: u64 = 1 << 63;

/// Requests that another server of the same key has this one decide, because the login that they go on with is here: a
/// client or a peer whose connection broke comes back by another one, which another server may have accepted. The answer
/// leaves by the connection that the request came by. By the token that they have here: whose, and their token there.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    waiting: BTreeMap<u64, (u16, u64)>,
    next: u64,
}

impl Foreign {
    /// A request of another server gets a token.
    pub(super) fn admit(&mut self, from: u16, token: u64) -> u64 {
        self.next = self.next.wrapping_add(1) | FOREIGN;
        self.waiting.insert(self.next, (from, token));
        self.next
    }
    /// A request is decided: whose it is, and its token there, where it is another server's.
    pub(super) fn decided(&mut self, token: u64) -> Option<(u16, u64)> {
        self.waiting.remove(&token)
    }
}

//! Requests that another server of the same key decides, because the login that they go on with is there: a client or a
//! peer whose connection broke comes back by another one, which another server may have accepted. The answer leaves by the
//! connection that the request came by.

use super::AaaServer;
use crate::server::api::{Event, Handed, HandedBack};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use usher_core::{Instant, Machine};
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes::{self, application, command};
use usher_diameter::node::PeerId;
use usher_diameter::{Fault, Message, ResultCode, node};
use usher_radius::attribute::{Attributes, kind};
use usher_radius::packet::Code;
use usher_radius::server::{self as radius, Request};

/// What tells tokens of handed requests from those of the fronts.
const FOREIGN: u64 = 1 << 63;

/// Requests of other servers that wait here, by the token that they have here: whose, and their token there.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    waiting: BTreeMap<u64, (u16, u64)>,
    next: u64,
}

impl Foreign {
    fn admit(&mut self, from: u16, token: u64) -> u64 {
        self.next = self.next.wrapping_add(1) | FOREIGN;
        self.waiting.insert(self.next, (from, token));
        self.next
    }
}

impl AaaServer {
    /// The other server whose login a State names.
    pub(super) fn elsewhere(&self, state: Option<&[u8]>) -> Option<u16> {
        self.shard.number_of(state?).filter(|number| *number != self.shard.number)
    }

    pub(super) fn hand_over(&mut self, shard: u16, handed: Handed) {
        self.counters.handed_over += 1;
        self.outputs.event(Event::HandOver { shard, handed });
    }

    /// Hands a RADIUS request over whose login is elsewhere; gives it back where it is not.
    pub(super) fn keep_or_hand_over(&mut self, request: Request) -> Option<Request> {
        let state = request.attributes.get(kind::STATE);
        // A datagram was looked at before it came here.
        let elsewhere = if request.conn.is_some() { self.elsewhere(state) } else { None };
        match elsewhere {
            Some(shard) if request.code == Code::ACCESS_REQUEST => {
                self.hand_over(shard, Handed::Radius(Box::new(request)));
                None
            }
            _ => Some(request),
        }
    }

    /// A request came to the Diameter node.
    pub(super) fn diameter_asked(
        &mut self,
        now: Instant,
        token: u64,
        peer: PeerId,
        origin: Arc<str>,
        message: Message,
    ) {
        let of_eap = (message.header.application, message.header.command);
        if of_eap == (application::EAP, command::DIAMETER_EAP)
            && let Some(shard) = self.elsewhere(message.avps.view().get(codes::STATE).map(|a| a.data))
        {
            return self
                .hand_over(shard, Handed::Diameter { token, peer, origin, message: Box::new(message) });
        }
        self.diameter_decide(now, token, peer, origin, &message);
    }

    fn diameter_decide(
        &mut self,
        now: Instant,
        token: u64,
        peer: PeerId,
        origin: Arc<str>,
        message: &Message,
    ) {
        if let Err(fault) = self.diameter_request(now, token, peer, origin, message) {
            self.counters.unsupported += 1;
            self.refuse(now, token, fault);
        }
    }

    /// Another server hands a request over.
    pub(super) fn handed(&mut self, now: Instant, from: u16, handed: Handed) {
        match handed {
            Handed::Radius(mut request) => {
                request.token = self.foreign.admit(from, request.token);
                self.radius_decide(now, *request);
            }
            Handed::Diameter { token, peer, origin, message } => {
                let token = self.foreign.admit(from, token);
                self.diameter_decide(now, token, peer, origin, &message);
            }
        }
    }

    /// A request that was handed over is decided.
    pub(super) fn handed_back(&mut self, now: Instant, back: HandedBack) {
        match back {
            HandedBack::Response { token, code, attributes } => self.respond(now, token, code, attributes),
            HandedBack::Silence { token } => self.stay_silent(now, token),
            HandedBack::Answer { token, result, avps } => self.answer_peer(now, token, result, avps),
            HandedBack::Refusal { token, fault } => self.refuse(now, token, fault),
        }
    }

    /// Sends a decision back to the server whose request it is on.
    fn hand_back(&mut self, (shard, token): (u16, u64), back: impl FnOnce(u64) -> HandedBack) {
        self.outputs.event(Event::HandBack { shard, back: back(token) });
    }

    /// Answers a RADIUS request.
    pub(super) fn respond(&mut self, now: Instant, token: u64, code: Code, attributes: Attributes) {
        if let Some(whose) = self.foreign.waiting.remove(&token) {
            self.hand_back(whose, |token| HandedBack::Response { token, code, attributes });
        } else if let Some(server) = &mut self.radius {
            // The client may have given this request up for a newer one: then nobody waits.
            let _ = server.command(now, radius::Command::Respond { token, code, attributes });
        }
    }

    /// Leaves a RADIUS request without an answer.
    pub(super) fn stay_silent(&mut self, now: Instant, token: u64) {
        if let Some(whose) = self.foreign.waiting.remove(&token) {
            self.hand_back(whose, |token| HandedBack::Silence { token });
        } else if let Some(server) = &mut self.radius {
            // A request that is gone needs no end.
            let _ = server.command(now, radius::Command::Discard { token });
        }
    }

    /// Answers a Diameter request.
    pub(super) fn answer_peer(&mut self, now: Instant, token: u64, result: ResultCode, avps: AvpBuf) {
        if let Some(whose) = self.foreign.waiting.remove(&token) {
            self.hand_back(whose, |token| HandedBack::Answer { token, result, avps });
        } else if let Some(node) = &mut self.diameter {
            // The connection that it came by may be gone: then nobody waits for the answer.
            let _ = node.command(now, node::Command::Answer { token, result, avps });
        }
    }

    /// Answers a Diameter request with a fault.
    pub(super) fn refuse(&mut self, now: Instant, token: u64, fault: Fault) {
        if let Some(whose) = self.foreign.waiting.remove(&token) {
            self.hand_back(whose, |token| HandedBack::Refusal { token, fault });
        } else if let Some(node) = &mut self.diameter {
            // As above.
            let _ = node.command(now, node::Command::Reject { token, fault });
        }
    }
}

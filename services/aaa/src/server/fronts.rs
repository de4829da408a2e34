//! The protocols by which is asked for admission, and how each answers.

use super::answer::{self, LoginVerdict, RequestToken};
use super::api::{AaaServerEvent, ShardDecision};
use super::ask::PendingRequest;
use super::context::ServerContext;
use super::session::eap_failure;
use super::{DIAMETER, RADIUS};
use alloc::collections::BTreeMap;
use core::net::IpAddr;
use usher_core::timer::earliest_deadline;
use usher_core::{ChildMachine, Instant, Machine, MachineInput};
use usher_diameter::avp::{AvpBuf, AvpSequence};
use usher_diameter::dictionary::DiameterDictionary;
use usher_diameter::node::{self, DiameterNode};
use usher_diameter::{DiameterError, DiameterMessage, ResultCode};
use usher_radius::attribute::AttributeList;
use usher_radius::packet::PacketCode;
use usher_radius::server as radius;

/// A server's RADIUS side and its Diameter side, whose requests are decided here that came to another server, and what all
/// parts work with.
#[derive(Debug)]
pub(super) struct ProtocolFronts {
    pub(super) radius: Option<ChildMachine<radius::RadiusServer>>,
    pub(super) diameter: Option<ChildMachine<DiameterNode>>,
    /// What Diameter requests are held against.
    dictionary: Option<DiameterDictionary>,
    pub(super) foreign: ForeignRequests,
    pub(super) ctx: ServerContext,
}

impl ProtocolFronts {
    pub(super) fn new(
        radius: Option<radius::RadiusServer>,
        diameter: Option<DiameterNode>,
        ctx: ServerContext,
    ) -> Self {
        Self {
            radius: radius.map(|server| ChildMachine::new(RADIUS, server)),
            dictionary: diameter.is_some().then(DiameterDictionary::builtin),
            diameter: diameter.map(|node| ChildMachine::new(DIAMETER, node)),
            foreign: ForeignRequests::default(),
            ctx,
        }
    }

    /// What the RADIUS side says next.
    pub(super) fn radius_event(&mut self) -> Option<radius::RadiusServerEvent> {
        self.ctx.outputs.next_event(self.radius.as_mut()?)
    }
    /// What the Diameter side says next.
    pub(super) fn diameter_event(&mut self) -> Option<node::DiameterNodeEvent> {
        self.ctx.outputs.next_event(self.diameter.as_mut()?)
    }
    /// Gives the side in a slot its input; false where there is none.
    pub(super) fn handle(&mut self, now: Instant, slot: u16, input: MachineInput<'_>) -> bool {
        match (slot, &mut self.radius, &mut self.diameter) {
            (RADIUS, Some(server), _) => server.handle_input(now, input),
            (DIAMETER, _, Some(node)) => node.handle_input(now, input),
            _ => return false,
        }
        true
    }
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.handle(now, RADIUS, MachineInput::Timeout);
        self.handle(now, DIAMETER, MachineInput::Timeout);
    }
    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        let radius = self.radius.as_mut().and_then(|server| server.poll_timeout());
        let diameter = self.diameter.as_mut().and_then(|node| node.poll_timeout());
        earliest_deadline([radius, diameter])
    }

    /// Whether a Diameter request says what it must and nothing that it must not.
    pub(super) fn check_request(&self, message: &DiameterMessage) -> Result<(), DiameterError> {
        let check = |d: &DiameterDictionary| d.check_request(message.header, message.avps.as_sequence());
        self.dictionary.as_ref().map_or(Ok(()), check)
    }
    /// Whether a RADIUS client may name an access server by this address; Diameter peers may.
    pub(super) fn speaks_for(&self, client: Option<u32>, source: IpAddr, named: IpAddr) -> bool {
        let Some(client) = client else { return true };
        self.radius.as_ref().is_some_and(|server| server.speaks_for(client, source, named))
    }

    /// An empty list, reused where there is one.
    pub(super) fn take_attributes(&mut self) -> AttributeList {
        self.radius.as_mut().map(|server| server.take_attributes()).unwrap_or_default()
    }
    pub(super) fn recycle_attributes(&mut self, list: AttributeList) {
        if let Some(server) = &mut self.radius {
            server.recycle_attributes(list);
        }
    }
    /// What a request says in AVPs that are RADIUS attributes (RFC 6733 §4.1), without what proves something.
    pub(super) fn as_attributes(&mut self, avps: AvpSequence<'_>) -> AttributeList {
        const PROOFS: [u32; 2] = [2, 3];
        let mut attributes = self.take_attributes();
        for avp in avps.filter(|a| a.vendor == 0 && !PROOFS.contains(&a.code)) {
            if let Ok(kind @ 1..) = u8::try_from(avp.code) {
                // What is too long for an attribute is none that a check or a log could name.
                let _ = attributes.push_bytes(kind, avp.data);
            }
        }
        attributes
    }

    /// Says a verdict.
    pub(super) fn answer_request(&mut self, asker: RequestToken, verdict: LoginVerdict<'_>) {
        match asker {
            RequestToken::Radius(token) => {
                let (code, attributes) = answer::radius_answer(verdict, || self.take_attributes());
                self.answer_radius(token, code, attributes);
            }
            RequestToken::Diameter(token, request_type) => {
                let config = &self.ctx.config;
                let round = config.full_answers.then_some(config.session_timeout);
                let (result, avps) =
                    answer::diameter_answer(&verdict, request_type, round, config.dictionary.as_deref());
                self.answer_peer(token, result, avps);
            }
        }
    }
    /// Rejects, with an EAP-Failure where EAP was spoken: in answer to the response of this identifier.
    pub(super) fn turn_away(&mut self, asker: RequestToken, eap: Option<u8>, reply: AttributeList) {
        let failure = eap.map(eap_failure);
        self.answer_request(asker, LoginVerdict::Reject { eap: failure.as_ref().map(|f| &f[..]), reply });
    }
    /// Leaves a request without a verdict.
    pub(super) fn discard_request(&mut self, asker: RequestToken) {
        match asker {
            RequestToken::Radius(token) => self.stay_silent(token),
            // Diameter has no silence: a request that gets no verdict is told so.
            RequestToken::Diameter(token, _) => {
                self.refuse_diameter(
                    token,
                    DiameterError::new(ResultCode::UNABLE_TO_COMPLY, "no answer can be given"),
                );
            }
        }
    }
    /// The same to a request that waits, and is not told of.
    pub(super) fn drop_request(&mut self, pending: PendingRequest) {
        self.discard_request(pending.asker);
        self.recycle_attributes(pending.request);
    }
    /// Leaves a request without a verdict because the store cannot be asked.
    pub(super) fn answer_unavailable(&mut self, asker: RequestToken) {
        match asker {
            RequestToken::Radius(_) => self.discard_request(asker),
            RequestToken::Diameter(token, _) => {
                self.refuse_diameter(
                    token,
                    DiameterError::new(ResultCode::TOO_BUSY, "the store is not available"),
                );
            }
        }
    }

    /// Answers a RADIUS request.
    pub(super) fn answer_radius(&mut self, token: u64, code: PacketCode, attributes: AttributeList) {
        if let Some((shard, token)) = self.foreign.take_origin(token) {
            let back = ShardDecision::Response { token, code, attributes };
            self.ctx.outputs.push_event(AaaServerEvent::ShardDecision { shard, back });
        } else if let Some(server) = &mut self.radius {
            // The client may have given this request up for a newer one: then nobody waits.
            let _ = server.handle_command(
                self.ctx.now,
                radius::RadiusServerCommand::Respond { token, code, attributes },
            );
        }
    }
    /// Leaves a RADIUS request without an answer.
    pub(super) fn stay_silent(&mut self, token: u64) {
        if let Some((shard, token)) = self.foreign.take_origin(token) {
            self.ctx
                .outputs
                .push_event(AaaServerEvent::ShardDecision { shard, back: ShardDecision::Silence { token } });
        } else if let Some(server) = &mut self.radius {
            // A request that is gone needs no end.
            let _ = server.handle_command(self.ctx.now, radius::RadiusServerCommand::Discard { token });
        }
    }
    /// Answers a Diameter request.
    pub(super) fn answer_peer(&mut self, token: u64, result: ResultCode, avps: AvpBuf) {
        if let Some((shard, token)) = self.foreign.take_origin(token) {
            let back = ShardDecision::Answer { token, result, avps };
            self.ctx.outputs.push_event(AaaServerEvent::ShardDecision { shard, back });
        } else if let Some(node) = &mut self.diameter {
            // The connection that it came by may be gone: then nobody waits for the answer.
            let _ =
                node.handle_command(self.ctx.now, node::DiameterNodeCommand::Answer { token, result, avps });
        }
    }
    /// Answers a Diameter request with a fault.
    pub(super) fn refuse_diameter(&mut self, token: u64, fault: DiameterError) {
        if let Some((shard, token)) = self.foreign.take_origin(token) {
            self.ctx.outputs.push_event(AaaServerEvent::ShardDecision {
                shard,
                back: ShardDecision::Refusal { token, fault },
            });
        } else if let Some(node) = &mut self.diameter {
            // As above.
            let _ = node.handle_command(self.ctx.now, node::DiameterNodeCommand::Reject { token, fault });
        }
    }
    /// Another server has decided a request.
    pub(super) fn handle_shard_decision(&mut self, back: ShardDecision) {
        match back {
            ShardDecision::Response { token, code, attributes } => {
                self.answer_radius(token, code, attributes)
            }
            ShardDecision::Silence { token } => self.stay_silent(token),
            ShardDecision::Answer { token, result, avps } => self.answer_peer(token, result, avps),
            ShardDecision::Refusal { token, fault } => self.refuse_diameter(token, fault),
        }
    }
}

/// What tells tokens of handed requests from those of the fronts.
const FOREIGN: u64 = 1 << 63;

/// Requests that another server of the same key has this one decide, because the login that they go on with is here: a
/// client or a peer whose connection broke comes back by another one, which another server may have accepted. The answer
/// leaves by the connection that the request came by. By the token that they have here: whose, and their token there.
#[derive(Debug, Default)]
pub(super) struct ForeignRequests {
    waiting: BTreeMap<u64, (u16, u64)>,
    next: u64,
}

impl ForeignRequests {
    /// A request of another server gets a token.
    pub(super) fn assign_token(&mut self, from: u16, token: u64) -> u64 {
        self.next = self.next.wrapping_add(1) | FOREIGN;
        self.waiting.insert(self.next, (from, token));
        self.next
    }
    /// A request is decided: whose it is, and its token there, where it is another server's.
    pub(super) fn take_origin(&mut self, token: u64) -> Option<(u16, u64)> {
        self.waiting.remove(&token)
    }
}

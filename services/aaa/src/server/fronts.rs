//! The RADIUS and Diameter sides, and how each answers.

use super::access_request::PendingRequest;
use super::answer::{self, LoginVerdict, RequestToken};
use super::api::{AaaServerEvent, ShardDecision};
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

/// A server's RADIUS and Diameter sides, the requests from other shards, and the common context.
#[derive(Debug)]
pub(super) struct ProtocolFrontends {
    pub(super) radius: Option<ChildMachine<radius::RadiusServer>>,
    pub(super) diameter: Option<ChildMachine<DiameterNode>>,
    /// Checks Diameter requests.
    dictionary: Option<DiameterDictionary>,
    pub(super) foreign: CrossShardRequests,
    pub(super) ctx: ServerContext,
}

impl ProtocolFrontends {
    pub(super) fn new(
        radius: Option<radius::RadiusServer>,
        diameter: Option<DiameterNode>,
        ctx: ServerContext,
    ) -> Self {
        Self {
            radius: radius.map(|server| ChildMachine::new(RADIUS, server)),
            dictionary: diameter.is_some().then(DiameterDictionary::builtin),
            diameter: diameter.map(|node| ChildMachine::new(DIAMETER, node)),
            foreign: CrossShardRequests::default(),
            ctx,
        }
    }

    /// Returns the next event of the RADIUS side.
    pub(super) fn next_radius_event(&mut self) -> Option<radius::RadiusServerEvent> {
        self.ctx.outputs.next_event(self.radius.as_mut()?)
    }
    /// Returns the next event of the Diameter side.
    pub(super) fn diameter_event(&mut self) -> Option<node::DiameterNodeEvent> {
        self.ctx.outputs.next_event(self.diameter.as_mut()?)
    }
    /// Passes an input to the side in a slot. False: there is none.
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

    /// Checks that a Diameter request has its required AVPs and no forbidden ones.
    pub(super) fn check_request(&self, message: &DiameterMessage) -> Result<(), DiameterError> {
        // RFC 6733, 3.2, 4.1, 10; RFC 4072, 3.1, 5; RFC 7155, 5: occurrences by the command's format.
        let check = |d: &DiameterDictionary| d.check_request(message.header, message.avps.as_sequence());
        self.dictionary.as_ref().map_or(Ok(()), check)
    }
    /// True if a RADIUS client may name an access server by this address. Diameter peers may name any.
    pub(super) fn speaks_for(&self, client: Option<u32>, source: IpAddr, named: IpAddr) -> bool {
        let Some(client) = client else { return true };
        self.radius.as_ref().is_some_and(|server| server.speaks_for(client, source, named))
    }

    /// Returns an empty list, reused if possible.
    pub(super) fn take_attributes(&mut self) -> AttributeList {
        self.radius.as_mut().map(|server| server.take_attributes()).unwrap_or_default()
    }
    pub(super) fn recycle_attributes(&mut self, list: AttributeList) {
        if let Some(server) = &mut self.radius {
            server.recycle_attributes(list);
        }
    }
    /// Converts the AVPs of a request to RADIUS attributes (RFC 6733 §4.1), without proofs.
    pub(super) fn request_avps_as_attributes(&mut self, avps: AvpSequence<'_>) -> AttributeList {
        const PROOFS: [u32; 2] = [2, 3];
        let mut attributes = self.take_attributes();
        for avp in avps.filter(|a| a.vendor == 0 && !PROOFS.contains(&a.code)) {
            if let Ok(kind @ 1..) = u8::try_from(avp.code) {
                // A value too long for one attribute is left out: no check and no log could name it.
                let _ = attributes.push_bytes(kind, avp.data);
            }
        }
        attributes
    }

    /// Sends a verdict.
    pub(super) fn answer_request(&mut self, asker: RequestToken, verdict: LoginVerdict<'_>) {
        match asker {
            RequestToken::Radius(token) => {
                let (code, attributes) = answer::build_radius_reply(verdict, || self.take_attributes());
                self.answer_radius(token, code, attributes);
            }
            RequestToken::Diameter(token, request_type) => {
                let config = &self.ctx.config;
                let round = config.full_answers.then_some(config.session_timeout);
                let (result, avps) =
                    answer::diameter_answer(&verdict, request_type, round, config.dictionary.as_deref());
                self.answer_diameter_request(token, result, avps);
            }
        }
    }
    /// Sends a reject. With EAP it has an EAP-Failure for the response of this identifier.
    pub(super) fn turn_away(&mut self, asker: RequestToken, eap: Option<u8>, reply: AttributeList) {
        let failure = eap.map(eap_failure);
        self.answer_request(asker, LoginVerdict::Reject { eap: failure.as_ref().map(|f| &f[..]), reply });
    }
    /// Ends a request without a verdict.
    pub(super) fn end_request_without_verdict(&mut self, asker: RequestToken) {
        match asker {
            RequestToken::Radius(token) => self.discard_radius_request(token),
            // Diameter requires an answer to every request, even without a verdict.
            RequestToken::Diameter(token, _) => {
                self.refuse_diameter(
                    token,
                    DiameterError::new(ResultCode::UNABLE_TO_COMPLY, "the server cannot answer this request"),
                );
            }
        }
    }
    /// Drops a pending request without an event.
    pub(super) fn discard_pending_request(&mut self, pending: PendingRequest) {
        self.end_request_without_verdict(pending.asker);
        self.recycle_attributes(pending.request);
    }
    /// Ends a request without a verdict because the store is unavailable.
    pub(super) fn answer_unavailable(&mut self, asker: RequestToken) {
        match asker {
            RequestToken::Radius(_) => self.end_request_without_verdict(asker),
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
        if let Some((shard, token)) = self.foreign.take_cross_shard_origin(token) {
            let back = ShardDecision::Response { token, code, attributes };
            self.ctx.outputs.push_event(AaaServerEvent::ShardDecision { shard, back });
        } else if let Some(server) = &mut self.radius {
            // The command fails if the client has replaced this request by a newer one. Then no reply is needed.
            let _ = server.handle_command(
                self.ctx.now,
                radius::RadiusServerCommand::Respond { token, code, attributes },
            );
        }
    }
    /// Drops a RADIUS request without a reply.
    pub(super) fn discard_radius_request(&mut self, token: u64) {
        if let Some((shard, token)) = self.foreign.take_cross_shard_origin(token) {
            self.ctx
                .outputs
                .push_event(AaaServerEvent::ShardDecision { shard, back: ShardDecision::Silence { token } });
        } else if let Some(server) = &mut self.radius {
            // The command fails if the request has already ended. Then there is nothing to discard.
            let _ = server.handle_command(self.ctx.now, radius::RadiusServerCommand::Discard { token });
        }
    }
    /// Answers a Diameter request.
    pub(super) fn answer_diameter_request(&mut self, token: u64, result: ResultCode, avps: AvpBuf) {
        if let Some((shard, token)) = self.foreign.take_cross_shard_origin(token) {
            let back = ShardDecision::Answer { token, result, avps };
            self.ctx.outputs.push_event(AaaServerEvent::ShardDecision { shard, back });
        } else if let Some(node) = &mut self.diameter {
            // The command fails if the connection has closed. Then no answer is needed.
            let _ =
                node.handle_command(self.ctx.now, node::DiameterNodeCommand::Answer { token, result, avps });
        }
    }
    /// Answers a Diameter request with an error.
    pub(super) fn refuse_diameter(&mut self, token: u64, fault: DiameterError) {
        if let Some((shard, token)) = self.foreign.take_cross_shard_origin(token) {
            self.ctx.outputs.push_event(AaaServerEvent::ShardDecision {
                shard,
                back: ShardDecision::Refusal { token, fault },
            });
        } else if let Some(node) = &mut self.diameter {
            // The command fails if the connection has closed. Then no answer is needed.
            let _ = node.handle_command(self.ctx.now, node::DiameterNodeCommand::Reject { token, fault });
        }
    }
    /// Sends the decision of another shard.
    pub(super) fn handle_shard_decision(&mut self, back: ShardDecision) {
        match back {
            ShardDecision::Response { token, code, attributes } => {
                self.answer_radius(token, code, attributes)
            }
            ShardDecision::Silence { token } => self.discard_radius_request(token),
            ShardDecision::Answer { token, result, avps } => {
                self.answer_diameter_request(token, result, avps)
            }
            ShardDecision::Refusal { token, fault } => self.refuse_diameter(token, fault),
        }
    }
}

/// Distinguishes tokens of other shards' requests from local ones.
const FOREIGN: u64 = 1 << 63;

/// Requests that another shard passed to this one, because their login is here. A client or peer may reconnect
/// after a broken connection and reach another shard. The answer leaves by the connection of the request. The local
/// token maps to the shard and its token.
#[derive(Debug, Default)]
pub(super) struct CrossShardRequests {
    waiting: BTreeMap<u64, (u16, u64)>,
    next: u64,
}

impl CrossShardRequests {
    /// Assigns a local token to a request of another shard.
    pub(super) fn assign_cross_shard_token(&mut self, from: u16, token: u64) -> u64 {
        self.next = self.next.wrapping_add(1) | FOREIGN;
        self.waiting.insert(self.next, (from, token));
        self.next
    }
    /// Removes a decided request. Returns its shard and token if it is another shard's.
    pub(super) fn take_cross_shard_origin(&mut self, token: u64) -> Option<(u16, u64)> {
        self.waiting.remove(&token)
    }
}

//! A proxied request and its end.

use crate::proxy::{NoAnswerPolicy, RealmForwardingPolicy};
use crate::server::access_request::{LoginOutcome, LoginWithoutLocalSession};
use crate::server::answer::RequestToken;
use crate::server::context::ServerContext;
use crate::server::fronts::ProtocolFrontends;
use crate::server::reason::RejectCause;
use alloc::format;
use alloc::string::String;
use usher_core::Instant;
use usher_diameter::{DiameterError, ResultCode};
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::PacketCode;
use usher_radius::server::RadiusRequest;

/// A proxied request.
#[derive(Debug)]
pub(super) struct ForwardedRequest {
    /// The pending request. `None`: it was acknowledged when its record was stored.
    pub(super) asker: Option<RequestToken>,
    pub(super) code: PacketCode,
    /// Index of the client, or [`ForwardedRequest::DIAMETER`].
    pub(super) owner: u32,
    /// Identifier of its EAP response.
    pub(super) eap: Option<u8>,
    pub(super) started_at: Instant,
    /// Its attributes.
    pub(super) request: AttributeList,
    /// Settings of its user's realm.
    pub(super) terms: RealmForwardingPolicy,
    /// Its conversation with a Diameter server.
    pub(super) dialog: Option<u64>,
}

impl ForwardedRequest {
    /// Owner of Diameter requests. No client has this index.
    pub(super) const DIAMETER: u32 = u32::MAX;

    /// Creates it from a RADIUS request. `answered`: the client waits for the reply.
    pub(super) fn new(
        now: Instant,
        request: RadiusRequest,
        terms: RealmForwardingPolicy,
        answered: bool,
    ) -> Self {
        Self {
            asker: answered.then_some(RequestToken::Radius(request.token)),
            code: request.code,
            owner: request.client,
            eap: eap_identifier(&request.attributes),
            started_at: now,
            request: request.attributes,
            terms,
            dialog: None,
        }
    }

    fn sessionless_login(&self) -> LoginWithoutLocalSession {
        let client = Some(self.owner).filter(|owner| *owner != Self::DIAMETER);
        LoginWithoutLocalSession { started_at: self.started_at, asker: self.asker, client }
    }

    /// Filters an answer for the client.
    pub(super) fn filter_answer(
        &self,
        ctx: &mut ServerContext,
        code: PacketCode,
        given: &AttributeList,
    ) -> AttributeList {
        let name = self.request.get(kind::USER_NAME).unwrap_or_default();
        let realms = ctx.config.proxy.as_ref().map(|p| &p.realms);
        let same = |other: &[u8]| realms.is_some_and(|r| r.have_same_realm(name, other));
        let sifted = self.terms.filter.filter_answer(code, given, same);
        ctx.counters.filtered_answers += sifted.left_out.iter().count() as u64;
        ctx.trace_request_without_session(self.asker, &self.request, |tracer| {
            let mut lines = alloc::vec![format!("{code} from a home server")];
            lines.extend(tracer.describe_attributes(&sifted.passed));
            lines.extend(left_out("its answer", &tracer.describe_attributes(&sifted.left_out)));
            lines
        });
        sifted.passed
    }

    /// Finishes an answered request. A verdict ends the login.
    pub(super) fn finish_answered(self, fronts: &mut ProtocolFrontends, code: PacketCode) {
        let begun = self.sessionless_login();
        match code {
            PacketCode::ACCESS_ACCEPT => {
                fronts.ctx.finish_login_without_session(begun, LoginOutcome::Accepted, self.request)
            }
            PacketCode::ACCESS_REJECT => {
                fronts.ctx.finish_login_without_session(
                    begun,
                    LoginOutcome::Rejected(RejectCause::HomeServer),
                    self.request,
                );
            }
            _ => fronts.recycle_attributes(self.request),
        }
    }

    /// Finishes a request that no home server answered.
    pub(super) fn finish_unanswered(self, fronts: &mut ProtocolFrontends) {
        fronts.ctx.counters.proxy_unanswered += 1;
        match self.asker {
            None => {}
            Some(RequestToken::Diameter(token, _)) => {
                let fault = DiameterError::new(ResultCode::UNABLE_TO_DELIVER, "no home server answered");
                fronts.refuse_diameter(token, fault);
            }
            Some(asker)
                if self.terms.unanswered == NoAnswerPolicy::Reject
                    && self.code == PacketCode::ACCESS_REQUEST =>
            {
                fronts.turn_away(asker, self.eap, AttributeList::new());
                let ending = LoginOutcome::Rejected(RejectCause::HomeSilent);
                return fronts.ctx.finish_login_without_session(
                    self.sessionless_login(),
                    ending,
                    self.request,
                );
            }
            Some(asker) => fronts.end_request_without_verdict(asker),
        }
        self.finish_without_verdict(fronts, RejectCause::HomeSilent);
    }

    /// Finishes a request that cannot be forwarded.
    pub(super) fn cut_short(self, fronts: &mut ProtocolFrontends, reason: RejectCause) {
        if let Some(asker) = self.asker {
            fronts.end_request_without_verdict(asker);
        }
        self.finish_without_verdict(fronts, reason);
    }

    fn finish_without_verdict(self, fronts: &mut ProtocolFrontends, reason: RejectCause) {
        if self.code == PacketCode::ACCESS_REQUEST && self.asker.is_some() {
            fronts.ctx.finish_login_without_session(
                self.sessionless_login(),
                LoginOutcome::Undecided(reason),
                self.request,
            );
        } else {
            fronts.recycle_attributes(self.request);
        }
    }
}

/// Counts and traces the attributes that a home server does not get.
pub(super) fn trace_withheld_attributes(
    ctx: &mut ServerContext,
    asker: Option<RequestToken>,
    request: &AttributeList,
    withheld: &AttributeList,
) {
    ctx.counters.filtered_requests += withheld.iter().count() as u64;
    ctx.trace_request_without_session(asker, request, |tracer| {
        let mut lines = alloc::vec!["forwarded to a home server".into()];
        lines.extend(left_out("the request", &tracer.describe_attributes(withheld)));
        lines
    });
}

/// Formats the attributes that a filter left out.
fn left_out<'a>(of: &'a str, lines: &'a [String]) -> impl Iterator<Item = String> {
    lines.iter().map(move |line| format!("  left out of {of} by the realm's filter: {}", line.trim_start()))
}

/// Returns the identifier of a request's EAP packet, 0 if it is too short.
pub(super) fn eap_identifier(attributes: &AttributeList) -> Option<u8> {
    attributes.get(kind::EAP_MESSAGE).map(|m| m.get(1).copied().unwrap_or_default())
}

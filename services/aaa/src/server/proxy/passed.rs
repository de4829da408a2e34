//! One request that was passed on, and how it ends.

use super::eap_identifier;
use crate::proxy::{ForwardingTerms, NoAnswerPolicy};
use crate::server::answer::RequestToken;
use crate::server::ask::{LoginOutcome, SessionlessLogin};
use crate::server::context::ServerContext;
use crate::server::fronts::ProtocolFronts;
use crate::server::reason::RejectCause;
use alloc::format;
use alloc::string::String;
use usher_core::Instant;
use usher_diameter::{DiameterError, ResultCode};
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::PacketCode;
use usher_radius::server::RadiusRequest;

/// A request that was passed on.
#[derive(Debug)]
pub(super) struct ForwardedRequest {
    /// Who waits for the answer; `None`: nobody, it was acknowledged when it was kept.
    pub(super) asker: Option<RequestToken>,
    pub(super) code: PacketCode,
    /// The client, or [`ForwardedRequest::DIAMETER`].
    pub(super) owner: u32,
    /// Identifier of the EAP response that it carried.
    pub(super) eap: Option<u8>,
    pub(super) started_at: Instant,
    /// What it said.
    pub(super) request: AttributeList,
    /// What holds of it by its user's realm.
    pub(super) terms: ForwardingTerms,
    /// Its conversation with a Diameter server.
    pub(super) dialog: Option<u64>,
}

impl ForwardedRequest {
    /// The owner of what came over Diameter: no client has this index.
    pub(super) const DIAMETER: u32 = u32::MAX;

    /// What a RADIUS client asked; `answered`: it waits for the answer.
    pub(super) fn new(now: Instant, request: RadiusRequest, terms: ForwardingTerms, answered: bool) -> Self {
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

    fn sessionless_login(&self) -> SessionlessLogin {
        let client = Some(self.owner).filter(|owner| *owner != Self::DIAMETER);
        SessionlessLogin { started_at: self.started_at, asker: self.asker, client }
    }

    /// What of an answer from elsewhere reaches whoever asked.
    pub(super) fn filter_answer(
        &self,
        ctx: &mut ServerContext,
        code: PacketCode,
        given: &AttributeList,
    ) -> AttributeList {
        let name = self.request.get(kind::USER_NAME).unwrap_or_default();
        let realms = ctx.config.proxy.as_ref().map(|p| &p.realms);
        let same = |other: &[u8]| realms.is_some_and(|r| r.same_realm(name, other));
        let sifted = self.terms.filter.filter_answer(code, given, same);
        ctx.counters.filtered_answers += sifted.left_out.iter().count() as u64;
        ctx.trace_sessionless(self.asker, &self.request, |tracer| {
            let mut lines = alloc::vec![format!("{code} of a home server")];
            lines.extend(tracer.describe_attributes(&sifted.passed));
            lines.extend(left_out("its answer", &tracer.describe_attributes(&sifted.left_out)));
            lines
        });
        sifted.passed
    }

    /// An answer has reached whoever asked: where that was a verdict, the login is over.
    pub(super) fn finish_answered(self, fronts: &mut ProtocolFronts, code: PacketCode) {
        let begun = self.sessionless_login();
        match code {
            PacketCode::ACCESS_ACCEPT => {
                fronts.ctx.finish_sessionless_login(begun, LoginOutcome::Accepted, self.request)
            }
            PacketCode::ACCESS_REJECT => {
                fronts.ctx.finish_sessionless_login(
                    begun,
                    LoginOutcome::Rejected(RejectCause::HomeServer),
                    self.request,
                );
            }
            _ => fronts.recycle_attributes(self.request),
        }
    }

    /// No home server answers.
    pub(super) fn finish_unanswered(self, fronts: &mut ProtocolFronts) {
        fronts.ctx.counters.proxy_unanswered += 1;
        match self.asker {
            None => {}
            Some(RequestToken::Diameter(token, _)) => {
                let fault = DiameterError::new(ResultCode::UNABLE_TO_DELIVER, "no home server answers");
                fronts.refuse_diameter(token, fault);
            }
            Some(asker)
                if self.terms.unanswered == NoAnswerPolicy::Reject
                    && self.code == PacketCode::ACCESS_REQUEST =>
            {
                fronts.turn_away(asker, self.eap, AttributeList::new());
                let ending = LoginOutcome::Rejected(RejectCause::HomeSilent);
                return fronts.ctx.finish_sessionless_login(self.sessionless_login(), ending, self.request);
            }
            Some(asker) => fronts.discard_request(asker),
        }
        self.finish_undecided(fronts, RejectCause::HomeSilent);
    }

    /// It cannot be passed on.
    pub(super) fn cut_short(self, fronts: &mut ProtocolFronts, reason: RejectCause) {
        if let Some(asker) = self.asker {
            fronts.discard_request(asker);
        }
        self.finish_undecided(fronts, reason);
    }

    fn finish_undecided(self, fronts: &mut ProtocolFronts, reason: RejectCause) {
        if self.code == PacketCode::ACCESS_REQUEST && self.asker.is_some() {
            fronts.ctx.finish_sessionless_login(
                self.sessionless_login(),
                LoginOutcome::Undecided(reason),
                self.request,
            );
        } else {
            fronts.recycle_attributes(self.request);
        }
    }
}

/// Counts and traces what a home server is not told of a request.
pub(super) fn trace_withheld(
    ctx: &mut ServerContext,
    asker: Option<RequestToken>,
    request: &AttributeList,
    withheld: &AttributeList,
) {
    ctx.counters.filtered_requests += withheld.iter().count() as u64;
    ctx.trace_sessionless(asker, request, |tracer| {
        let mut lines = alloc::vec!["passed on to a home server".into()];
        lines.extend(left_out("the request", &tracer.describe_attributes(withheld)));
        lines
    });
}

/// Lines of what a filter left out of something.
fn left_out<'a>(of: &'a str, lines: &'a [String]) -> impl Iterator<Item = String> {
    lines.iter().map(move |line| format!("  left out of {of} by the realm's filter: {}", line.trim_start()))
}

//! One request that was passed on, and how it ends.

use super::eap_identifier;
use crate::proxy::{Terms, Unanswered};
use crate::server::answer::Asker;
use crate::server::ask::{Begun, Ending};
use crate::server::context::Context;
use crate::server::fronts::Fronts;
use crate::server::reason::Reason;
use alloc::format;
use alloc::string::String;
use usher_core::Instant;
use usher_diameter::{Fault, ResultCode};
use usher_radius::attribute::{Attributes, kind};
use usher_radius::packet::Code;
use usher_radius::server::Request;

/// A request that was passed on.
#[derive(Debug)]
pub(super) struct Passed {
    /// Who waits for the answer; `None`: nobody, it was acknowledged when it was kept.
    pub(super) asker: Option<Asker>,
    pub(super) code: Code,
    /// The client, or [`Passed::DIAMETER`].
    pub(super) owner: u32,
    /// Identifier of the EAP response that it carried.
    pub(super) eap: Option<u8>,
    pub(super) begun: Instant,
    /// What it said.
    pub(super) request: Attributes,
    /// What holds of it by its user's realm.
    pub(super) terms: Terms,
    /// Its conversation with a Diameter server.
    pub(super) dialog: Option<u64>,
}

impl Passed {
    /// The owner of what came over Diameter: no client has this index.
    pub(super) const DIAMETER: u32 = u32::MAX;

    /// What a RADIUS client asked; `answered`: it waits for the answer.
    pub(super) fn new(now: Instant, request: Request, terms: Terms, answered: bool) -> Self {
        Self {
            asker: answered.then_some(Asker::Radius(request.token)),
            code: request.code,
            owner: request.client,
            eap: eap_identifier(&request.attributes),
            begun: now,
            request: request.attributes,
            terms,
            dialog: None,
        }
    }

    fn begun(&self) -> Begun {
        let client = Some(self.owner).filter(|owner| *owner != Self::DIAMETER);
        Begun { at: self.begun, asker: self.asker, client }
    }

    /// What of an answer from elsewhere reaches whoever asked.
    pub(super) fn sift(&self, ctx: &mut Context, code: Code, given: &Attributes) -> Attributes {
        let name = self.request.get(kind::USER_NAME).unwrap_or_default();
        let realms = ctx.config.proxy.as_ref().map(|p| &p.realms);
        let same = |other: &[u8]| realms.is_some_and(|r| r.same_realm(name, other));
        let sifted = self.terms.filter.answer(code, given, same);
        ctx.counters.filtered_answers += sifted.left_out.iter().count() as u64;
        ctx.trace_elsewhere(self.asker, &self.request, |tracer| {
            let mut lines = alloc::vec![format!("{code} of a home server")];
            lines.extend(tracer.attributes(&sifted.passed));
            lines.extend(left_out("its answer", &tracer.attributes(&sifted.left_out)));
            lines
        });
        sifted.passed
    }

    /// An answer has reached whoever asked: where that was a verdict, the login is over.
    pub(super) fn answered(self, fronts: &mut Fronts, code: Code) {
        let begun = self.begun();
        match code {
            Code::ACCESS_ACCEPT => fronts.ctx.ended_elsewhere(begun, Ending::Accepted, self.request),
            Code::ACCESS_REJECT => {
                fronts.ctx.ended_elsewhere(begun, Ending::Rejected(Reason::HomeServer), self.request);
            }
            _ => fronts.recycle(self.request),
        }
    }

    /// No home server answers.
    pub(super) fn unanswered(self, fronts: &mut Fronts) {
        fronts.ctx.counters.proxy_unanswered += 1;
        match self.asker {
            None => {}
            Some(Asker::Diameter(token, _)) => {
                let fault = Fault::new(ResultCode::UNABLE_TO_DELIVER, "no home server answers");
                fronts.refuse(token, fault);
            }
            Some(asker)
                if self.terms.unanswered == Unanswered::Reject && self.code == Code::ACCESS_REQUEST =>
            {
                fronts.turn_away(asker, self.eap, Attributes::new());
                let ending = Ending::Rejected(Reason::HomeSilent);
                return fronts.ctx.ended_elsewhere(self.begun(), ending, self.request);
            }
            Some(asker) => fronts.discard(asker),
        }
        self.undecided(fronts, Reason::HomeSilent);
    }

    /// It cannot be passed on.
    pub(super) fn cut_short(self, fronts: &mut Fronts, reason: Reason) {
        if let Some(asker) = self.asker {
            fronts.discard(asker);
        }
        self.undecided(fronts, reason);
    }

    fn undecided(self, fronts: &mut Fronts, reason: Reason) {
        if self.code == Code::ACCESS_REQUEST && self.asker.is_some() {
            fronts.ctx.ended_elsewhere(self.begun(), Ending::Undecided(reason), self.request);
        } else {
            fronts.recycle(self.request);
        }
    }
}

/// Counts and traces what a home server is not told of a request.
pub(super) fn withheld(ctx: &mut Context, asker: Option<Asker>, request: &Attributes, withheld: &Attributes) {
    ctx.counters.filtered_requests += withheld.iter().count() as u64;
    ctx.trace_elsewhere(asker, request, |tracer| {
        let mut lines = alloc::vec!["passed on to a home server".into()];
        lines.extend(left_out("the request", &tracer.attributes(withheld)));
        lines
    });
}

/// Lines of what a filter left out of something.
fn left_out<'a>(of: &'a str, lines: &'a [String]) -> impl Iterator<Item = String> {
    lines.iter().map(move |line| format!("  left out of {of} by the realm's filter: {}", line.trim_start()))
}

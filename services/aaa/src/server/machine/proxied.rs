//! Requests of users who are known elsewhere.

use super::AaaServer;
use super::outward::Passed;
use crate::proxy::{Accounting, Conversation, ForwardOutcome, Route, Terms, Unanswered, relay};
use crate::server::answer::{Asker, Verdict};
use crate::server::api::{Event, Handed, Login};
use crate::server::reason::Reason;
use crate::server::session::failure;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use usher_core::Instant;
use usher_diameter::{Fault, ResultCode};
use usher_radius::attribute::{Attributes, kind};
use usher_radius::client::Response;
use usher_radius::packet::Code;
use usher_radius::server::Request;

/// A login that was to be passed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) at: Instant,
    /// Who waits; `None`: nobody.
    pub(super) asker: Option<Asker>,
    /// The RADIUS client.
    pub(super) client: Option<u32>,
}

/// How a login ended that has no session here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// A home server let it in.
    Accepted,
    Rejected(Reason),
    /// It got no verdict.
    Undecided(Reason),
}

impl AaaServer {
    /// Passes a request on where its user's realm is elsewhere; gives it back where it is ours to answer.
    pub(super) fn route(&mut self, now: Instant, mut request: Request) -> Option<Request> {
        let Some(proxy) = &self.config.proxy else { return Some(request) };
        let access = request.code == Code::ACCESS_REQUEST;
        if !access && request.code != Code::ACCOUNTING_REQUEST {
            return Some(request);
        }
        let given = request.attributes.get(kind::USER_NAME).unwrap_or_default();
        let eap = request.attributes.get(kind::EAP_MESSAGE).is_some();
        let found = proxy.realms.find(given);
        let name = if eap { given } else { found.name };
        match found.route {
            Route::Local => {
                if name != given {
                    let name = name.to_vec();
                    rename(&mut request.attributes, &name);
                }
                Some(request)
            }
            Route::Refuse if access => {
                let asker = Asker::Radius(request.token);
                self.turn_away(now, asker, eap_identifier(&request.attributes));
                let begun = Begun { at: now, asker: Some(asker), client: Some(request.client) };
                self.ended_elsewhere(now, begun, Some(Ending::Rejected(Reason::NoRealm)), request.attributes);
                None
            }
            Route::Diameter { realm } if access => {
                let (realm, terms) = (realm.clone(), found.terms());
                if let Some(shard) = self.config.dialler.filter(|shard| *shard != self.shard.number) {
                    self.hand_over(shard, Handed::Radius(Box::new(request)));
                    return None;
                }
                self.ask_diameter(now, request, realm, terms);
                None
            }
            Route::Refuse | Route::Diameter { .. } => Some(request),
            &Route::Pool { pool, accounting } => {
                if !access && accounting == Accounting::Local {
                    return Some(request);
                }
                let keep = !access && accounting == Accounting::StoreAndForward;
                let (name, terms) = (name.to_vec(), found.terms());
                let kept = keep.then(|| request.clone());
                self.pass(now, request, pool, &name, terms, !keep);
                kept
            }
        }
    }

    /// Whether a request may be passed on at all, or why not.
    pub(super) fn may_pass(&mut self, attributes: &Attributes) -> Result<(), Reason> {
        let Some(proxy) = &self.config.proxy else { return Err(Reason::NoRealm) };
        if attributes.get_all(kind::PROXY_STATE).nth(proxy.max_hops).is_some() {
            self.counters.proxy_loops += 1;
            return Err(Reason::ProxyLoop);
        }
        if self.outward.passed.len() + self.outward.translated.len() >= proxy.max_pending {
            self.counters.proxy_overload += 1;
            return Err(Reason::Busy);
        }
        Ok(())
    }

    /// Passes a request on to a pool; `answered`: the client waits for the answer.
    fn pass(&mut self, now: Instant, request: Request, pool: u16, name: &[u8], terms: Terms, answered: bool) {
        let asker = Asker::Radius(request.token);
        let asker = answered.then_some(asker);
        if let Err(reason) = self.may_pass(&request.attributes) {
            if let Some(asker) = asker {
                self.discard(now, asker);
            }
            let login = request.code == Code::ACCESS_REQUEST;
            let begun = Begun { at: now, asker, client: Some(request.client) };
            let ending = login.then_some(Ending::Undecided(reason));
            return self.ended_elsewhere(now, begun, ending, request.attributes);
        }
        let mut out = self.attributes();
        let mark = self.rng.next_u64().to_be_bytes();
        let told = terms.filter.request(&request.attributes);
        let relayed = relay::request(&request, &told.passed, name, &mark, &mut out);
        let passed = Passed {
            asker,
            code: request.code,
            owner: request.client,
            eap: eap_identifier(&request.attributes),
            begun: now,
            request: request.attributes,
            terms,
            dialog: None,
        };
        if relayed.is_err() {
            self.counters.proxy_unreadable += 1;
            self.recycle(out);
            return self.cut_short(now, passed, Reason::BadProof);
        }
        self.told(now, passed.asker, &passed.request, &told.left_out);
        self.send_home(now, pool, out, passed);
    }

    /// Asks a pool, on behalf of whoever `passed` names.
    pub(super) fn send_home(&mut self, now: Instant, pool: u16, out: Attributes, passed: Passed) {
        let (code, owner) = (passed.code, passed.owner);
        let token = self.outward.passed.insert(now, passed);
        let (Some(homes), Some(passed)) = (&mut self.outward.homes, self.outward.passed.get(token)) else {
            return;
        };
        let a = &passed.request;
        let conversation = Conversation {
            owner,
            name: a.get(kind::USER_NAME).unwrap_or_default(),
            station: a.get(kind::CALLING_STATION_ID).unwrap_or_default(),
            state: a.get(kind::STATE),
        };
        match homes.ask(now, token, pool, code, out, conversation) {
            ForwardOutcome::UnderWay => self.counters.proxied += 1,
            ForwardOutcome::NobodyAlive => {
                if let Some(passed) = self.outward.passed.remove(token) {
                    self.home_silent(now, passed);
                }
            }
            ForwardOutcome::Impossible => {
                self.counters.proxy_overload += 1;
                if let Some(passed) = self.outward.passed.remove(token) {
                    self.cut_short(now, passed, Reason::Busy);
                }
            }
        }
    }

    /// Ends a request without a verdict that cannot be passed on.
    fn cut_short(&mut self, now: Instant, passed: Passed, reason: Reason) {
        if let Some(asker) = passed.asker {
            self.discard(now, asker);
        }
        let login = passed.code == Code::ACCESS_REQUEST && passed.asker.is_some();
        let ending = login.then_some(Ending::Undecided(reason));
        self.ended_elsewhere(now, passed.whence(), ending, passed.request);
    }

    /// A home server answered; `current`: one of those of now, which may be asked again.
    pub(super) fn home_answered(&mut self, now: Instant, mut response: Response, current: bool) {
        let Some(passed) = self.outward.passed.remove(response.token) else { return };
        self.counters.proxy_answered += 1;
        response.attributes = self.heard(now, &passed, response.code, &response.attributes);
        if current
            && response.code == Code::ACCESS_CHALLENGE
            && let Some(state) = response.attributes.get(kind::STATE)
            && let Some(homes) = &mut self.outward.homes
        {
            homes.remember(passed.owner, state, response.server);
        }
        // A home server that keeps no accounting says so by what looks like an acknowledgement (RFC 6614 §2.5).
        let unwanted = response.code == Code::ACCOUNTING_RESPONSE
            && response.attributes.get(kind::ERROR_CAUSE).is_some();
        self.counters.proxy_unwanted += u64::from(unwanted);
        match passed.asker {
            None => {}
            Some(asker) if unwanted => self.discard(now, asker),
            Some(asker @ Asker::Radius(token)) => {
                let mut attributes = self.attributes();
                if relay::response(&response, &mut attributes).is_err()
                    || response.code == Code::PROTOCOL_ERROR
                {
                    self.counters.proxy_unreadable += 1;
                    self.recycle(attributes);
                    self.discard(now, asker);
                } else {
                    self.respond(now, token, response.code, attributes);
                }
            }
            Some(Asker::Diameter(token, request_type)) => {
                self.answer_diameter(now, token, request_type, &response);
            }
        }
        match response.code {
            Code::ACCESS_ACCEPT => {
                self.ended_elsewhere(now, passed.whence(), Some(Ending::Accepted), passed.request);
            }
            Code::ACCESS_REJECT => {
                let ending = Some(Ending::Rejected(Reason::HomeServer));
                self.ended_elsewhere(now, passed.whence(), ending, passed.request);
            }
            _ => self.recycle(passed.request),
        }
    }

    /// What of an answer from elsewhere reaches whoever asked.
    pub(super) fn heard(
        &mut self,
        now: Instant,
        passed: &Passed,
        code: Code,
        given: &Attributes,
    ) -> Attributes {
        let name = passed.request.get(kind::USER_NAME).unwrap_or_default();
        let realms = self.config.proxy.as_ref().map(|p| &p.realms);
        let sifted = passed
            .terms
            .filter
            .answer(code, given, |other| realms.is_some_and(|r| r.same_realm(name, other)));
        self.counters.filtered_answers += sifted.left_out.iter().count() as u64;
        self.trace_elsewhere(now, passed.asker, &passed.request, |tracer| {
            let mut lines = alloc::vec![format!("{code} of a home server")];
            lines.extend(tracer.attributes(&sifted.passed));
            lines.extend(left_out("its answer", &tracer.attributes(&sifted.left_out)));
            lines
        });
        sifted.passed
    }

    /// Counts and traces what a home server is not told of a request.
    pub(super) fn told(
        &mut self,
        now: Instant,
        asker: Option<Asker>,
        request: &Attributes,
        withheld: &Attributes,
    ) {
        self.counters.filtered_requests += withheld.iter().count() as u64;
        self.trace_elsewhere(now, asker, request, |tracer| {
            let mut lines = alloc::vec!["passed on to a home server".into()];
            lines.extend(left_out("the request", &tracer.attributes(withheld)));
            lines
        });
    }

    /// Counts, traces and tells the host how a login ended that has no session here; `None`: the request was no login's. The
    /// answer to whoever waits is the caller's.
    pub(super) fn ended_elsewhere(
        &mut self,
        now: Instant,
        begun: Begun,
        ending: Option<Ending>,
        request: Attributes,
    ) {
        let Begun { at, asker, client } = begun;
        let (reason, verdict) = match ending {
            None => return self.recycle(request),
            Some(Ending::Accepted) => (None, "accepted"),
            Some(Ending::Rejected(reason)) => (Some(reason), "rejected"),
            Some(Ending::Undecided(reason)) => (Some(reason), "no verdict"),
        };
        if let Some(reason) = reason {
            self.trace_refusal(now, asker, &request, client, reason, verdict);
        }
        let name = request.get(kind::USER_NAME).unwrap_or_default().to_vec();
        let login = Box::new(Login { begun: at, ..Login::of(name, client, reason, request) });
        self.outputs.event(match ending {
            Some(Ending::Rejected(reason)) => {
                self.counters.rejected(reason);
                Event::Rejected(login)
            }
            Some(Ending::Undecided(_)) => Event::Undecided(login),
            _ => {
                self.counters.accepted_elsewhere += 1;
                Event::Accepted(login)
            }
        });
    }

    /// No home server answers a request that was passed on.
    pub(super) fn home_silent(&mut self, now: Instant, passed: Passed) {
        self.counters.proxy_unanswered += 1;
        match passed.asker {
            None => {}
            Some(Asker::Diameter(token, _)) => {
                self.refuse(now, token, Fault::new(ResultCode::UNABLE_TO_DELIVER, "no home server answers"));
            }
            Some(asker)
                if passed.terms.unanswered == Unanswered::Reject && passed.code == Code::ACCESS_REQUEST =>
            {
                self.turn_away(now, asker, passed.eap);
                let ending = Some(Ending::Rejected(Reason::HomeSilent));
                return self.ended_elsewhere(now, passed.whence(), ending, passed.request);
            }
            Some(asker) => self.discard(now, asker),
        }
        let login = passed.code == Code::ACCESS_REQUEST && passed.asker.is_some();
        let ending = login.then_some(Ending::Undecided(Reason::HomeSilent));
        self.ended_elsewhere(now, passed.whence(), ending, passed.request);
    }

    /// Rejects, with an EAP-Failure where EAP was spoken.
    pub(super) fn turn_away(&mut self, now: Instant, asker: Asker, eap: Option<u8>) {
        let eap = eap.map(failure);
        self.answer(
            now,
            asker,
            Verdict::Reject { eap: eap.as_ref().map(|f| &f[..]), reply: Attributes::new() },
        );
    }
}

/// The identifier of a request's EAP packet; 0 where it is too short to have one.
pub(super) fn eap_identifier(attributes: &Attributes) -> Option<u8> {
    attributes.get(kind::EAP_MESSAGE).map(|m| m.get(1).copied().unwrap_or_default())
}

/// Lines of what a filter left out of something.
fn left_out<'a>(of: &'a str, lines: &'a [String]) -> impl Iterator<Item = String> {
    lines.iter().map(move |line| format!("  left out of {of} by the realm's filter: {}", line.trim_start()))
}

/// Puts another User-Name in.
fn rename(attributes: &mut Attributes, name: &[u8]) {
    attributes.remove(kind::USER_NAME);
    let fits = attributes.push_bytes(kind::USER_NAME, name);
    debug_assert!(fits.is_ok(), "it is a part of what was there");
}

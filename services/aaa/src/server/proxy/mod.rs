//! Requests of users who are known elsewhere.

mod homes;
mod passed;
mod translation;

use super::answer::Asker;
use super::api::Handed;
use super::ask::{Ask, Begun, Ending, Pending};
use super::avps::NOT_TRANSLATED;
use super::config::Config;
use super::context::Context;
use super::fronts::Fronts;
use super::reason::Reason;
use crate::proxy::{Accounting, ProxyError, Route, Terms, relay};
use alloc::boxed::Box;
use alloc::string::String;
use homes::Homes;
use passed::{Passed, withheld};
use translation::Translation;
use usher_core::SecureRng;
use usher_diameter::eap::Der;
use usher_diameter::{Fault, ResultCode};
use usher_radius::attribute::{Attributes, RawAttribute, kind};
use usher_radius::packet::Code;
use usher_radius::server::Request;

/// A pool of home servers, and what holds of what they are asked.
type Elsewhere = (u16, Terms);

/// Whose users are known elsewhere, and what was passed on for them.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) homes: Homes,
    pub(super) translation: Translation,
}

impl Proxy {
    /// Draws from `rng` only where there are home servers.
    pub(super) fn new(config: &Config, rng: &mut SecureRng) -> Result<Self, ProxyError> {
        Ok(Self { homes: Homes::new(config, rng)?, translation: Translation::default() })
    }
    /// Requests that wait for an answer.
    pub(super) fn waiting(&self) -> usize {
        self.homes.waiting() + self.translation.waiting()
    }

    /// Passes a request on where its user's realm is elsewhere; gives it back where it is ours to answer.
    #[inline]
    pub(super) fn route(&mut self, fronts: &mut Fronts, request: Request) -> Option<Request> {
        match fronts.ctx.config.proxy {
            // A request is large, and most servers know all users themselves.
            None => Some(request),
            Some(_) => self.route_by_realm(fronts, request),
        }
    }

    fn route_by_realm(&mut self, fronts: &mut Fronts, mut request: Request) -> Option<Request> {
        let Some(proxy) = &fronts.ctx.config.proxy else { return Some(request) };
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
                refuse_radius(fronts, request, Reason::NoRealm);
                None
            }
            Route::Diameter { realm } if access => {
                let (realm, terms) = (realm.clone(), found.terms());
                match fronts.ctx.config.dialler.filter(|shard| *shard != fronts.ctx.shard.number) {
                    Some(shard) => fronts.ctx.hand_over(shard, Handed::Radius(Box::new(request))),
                    None => self.ask_diameter(fronts, request, realm, terms),
                }
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
                self.pass(fronts, request, &name, (pool, terms), !keep);
                kept
            }
        }
    }

    /// Whether a request may be passed on at all, or why not.
    fn may_pass(&self, ctx: &mut Context, attributes: &Attributes) -> Result<(), Reason> {
        let Some(proxy) = &ctx.config.proxy else { return Err(Reason::NoRealm) };
        if attributes.get_all(kind::PROXY_STATE).nth(proxy.max_hops).is_some() {
            ctx.counters.proxy_loops += 1;
            return Err(Reason::ProxyLoop);
        }
        if self.waiting() >= proxy.max_pending {
            ctx.counters.proxy_overload += 1;
            return Err(Reason::Busy);
        }
        Ok(())
    }

    /// Passes a request on to a pool; `answered`: the client waits for the answer.
    fn pass(
        &mut self,
        fronts: &mut Fronts,
        request: Request,
        name: &[u8],
        (pool, terms): Elsewhere,
        answered: bool,
    ) {
        if let Err(reason) = self.may_pass(&mut fronts.ctx, &request.attributes) {
            return Passed::new(fronts.ctx.now, request, terms, answered).cut_short(fronts, reason);
        }
        let mut out = fronts.attributes();
        let mark = fronts.ctx.rng.next_u64().to_be_bytes();
        let told = terms.filter.request(&request.attributes);
        let relayed = relay::request(&request, &told.passed, name, &mark, &mut out);
        let passed = Passed::new(fronts.ctx.now, request, terms, answered);
        if relayed.is_err() {
            fronts.ctx.counters.proxy_unreadable += 1;
            fronts.recycle(out);
            return passed.cut_short(fronts, Reason::BadProof);
        }
        withheld(&mut fronts.ctx, passed.asker, &passed.request, &told.left_out);
        self.homes.ask(fronts, pool, out, passed);
    }

    /// Asks a Diameter server what a RADIUS client asked.
    fn ask_diameter(&mut self, fronts: &mut Fronts, request: Request, realm: String, terms: Terms) {
        match self.may_pass(&mut fronts.ctx, &request.attributes) {
            Ok(()) => self.translation.ask(fronts, request, realm, terms),
            Err(reason) => Passed::new(fronts.ctx.now, request, terms, true).cut_short(fronts, reason),
        }
    }

    /// An AA-Request goes nowhere else: gives it back where its user is ours to answer for.
    pub(super) fn route_aar(&self, fronts: &mut Fronts, ask: Ask) -> Option<Ask> {
        match route_ask(fronts, ask, None)? {
            (ask, None) => Some(ask),
            (ask, Some(_)) => {
                undeliverable(fronts, ask);
                None
            }
        }
    }

    /// Passes a Diameter-EAP-Request on to RADIUS home servers where its user's realm is there; gives it back where it
    /// is ours to answer.
    pub(super) fn route_der(&mut self, fronts: &mut Fronts, ask: Ask, der: &Der<'_>) -> Option<Ask> {
        let identifier = der.eap.get(1).copied();
        let (ask, elsewhere) = route_ask(fronts, ask, Some(identifier.unwrap_or_default()))?;
        let Some((pool, terms)) = elsewhere else { return Some(ask) };
        let Pending { asker, request, arrived, .. } = ask.pending;
        let passed = Passed {
            asker: Some(asker),
            code: Code::ACCESS_REQUEST,
            owner: Passed::DIAMETER,
            eap: identifier,
            begun: arrived,
            request,
            terms,
            dialog: None,
        };
        if let Err(reason) = self.may_pass(&mut fronts.ctx, &passed.request) {
            passed.cut_short(fronts, reason);
            return None;
        }
        let told = passed.terms.filter.request(&passed.request);
        withheld(&mut fronts.ctx, passed.asker, &passed.request, &told.left_out);
        let mut out = fronts.attributes();
        // A client does not name a key: what it says there is passed over (RFC 4072 §4.1.4).
        let names_key = |a: &RawAttribute<'_>| a.kind == kind::EAP_KEY_NAME && !a.value.is_empty();
        for a in told.passed.iter().filter(|a| !NOT_TRANSLATED.contains(&a.kind) && !names_key(a)) {
            // It came out of a list of attributes: it fits one.
            let _ = out.push_bytes(a.kind, a.value);
        }
        if let Some(state) = der.state {
            // A State that fits no attribute is none of a RADIUS server.
            let _ = out.push_bytes(kind::STATE, state);
        }
        out.push_eap(der.eap);
        let mark = fronts.ctx.rng.next_u64().to_be_bytes();
        let fits = out.push_bytes(kind::PROXY_STATE, &mark);
        debug_assert!(fits.is_ok(), "8 octets fit every attribute");
        self.homes.ask(fronts, pool, out, passed);
        None
    }
}

/// Holds a Diameter request against the realms: turns it away where its user's is refused, or is known to servers
/// that Diameter requests are not passed on to; otherwise gives it back, with the pool where the user is known and
/// what passes to and from there. `eap` is the identifier of its EAP packet.
fn route_ask(fronts: &mut Fronts, ask: Ask, eap: Option<u8>) -> Option<(Ask, Option<Elsewhere>)> {
    let Some(proxy) = &fronts.ctx.config.proxy else { return Some((ask, None)) };
    let found = proxy.realms.find(ask.name());
    match found.route {
        Route::Local => return Some((ask, None)),
        &Route::Pool { pool, .. } => {
            let terms = found.terms();
            return Some((ask, Some((pool, terms))));
        }
        Route::Refuse => refuse(fronts, ask.begun(), eap, Reason::NoRealm, ask.pending.request),
        Route::Diameter { .. } => undeliverable(fronts, ask),
    }
    None
}

/// Says of a Diameter request that its user's realm cannot be asked from here (RFC 6733 §7.1.3).
fn undeliverable(fronts: &mut Fronts, ask: Ask) {
    fronts.ctx.counters.rejected(Reason::Undeliverable);
    if let Asker::Diameter(token, _) = ask.pending.asker {
        let fault = Fault::new(ResultCode::UNABLE_TO_DELIVER, "this realm's servers are not asked for it");
        fronts.refuse(token, fault);
    }
    let begun = ask.begun();
    fronts.ctx.ended_elsewhere(begun, Ending::Undecided(Reason::Undeliverable), ask.pending.request);
}

/// Turns a request away that is passed on to nobody, with an EAP-Failure where EAP was spoken.
fn refuse(fronts: &mut Fronts, begun: Begun, eap: Option<u8>, reason: Reason, request: Attributes) {
    if let Some(asker) = begun.asker {
        fronts.turn_away(asker, eap, Attributes::new());
    }
    fronts.ctx.ended_elsewhere(begun, Ending::Rejected(reason), request);
}

/// The same by RADIUS.
fn refuse_radius(fronts: &mut Fronts, request: Request, reason: Reason) {
    let asker = Some(Asker::Radius(request.token));
    let begun = Begun { at: fronts.ctx.now, asker, client: Some(request.client) };
    refuse(fronts, begun, eap_identifier(&request.attributes), reason, request.attributes);
}

/// The identifier of a request's EAP packet; 0 where it is too short to have one.
fn eap_identifier(attributes: &Attributes) -> Option<u8> {
    attributes.get(kind::EAP_MESSAGE).map(|m| m.get(1).copied().unwrap_or_default())
}

/// Puts another User-Name in.
fn rename(attributes: &mut Attributes, name: &[u8]) {
    attributes.remove(kind::USER_NAME);
    let fits = attributes.push_bytes(kind::USER_NAME, name);
    debug_assert!(fits.is_ok(), "it is a part of what was there");
}

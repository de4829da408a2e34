//! Proxying of requests by realm.

mod homes;
mod proxied_request;
mod translation;

use super::access_request::{LoginOutcome, LoginRequest, LoginWithoutLocalSession, PendingRequest};
use super::answer::RequestToken;
use super::api::ShardRequest;
use super::avps::NOT_TRANSLATED;
use super::config::AaaServerConfig;
use super::context::ServerContext;
use super::fronts::ProtocolFrontends;
use super::reason::RejectCause;
use crate::proxy::{AccountingMode, ProxyError, RealmForwardingPolicy, RealmTarget, relay};
use alloc::boxed::Box;
use alloc::string::String;
use homes::HomeServerSet;
use proxied_request::{ForwardedRequest, eap_identifier, trace_withheld_attributes};
use translation::DiameterTranslation;
use usher_core::SecureRng;
use usher_diameter::eap::DiameterEapRequest;
use usher_diameter::{DiameterError, ResultCode};
use usher_radius::attribute::{AttributeList, RawAttribute, kind};
use usher_radius::packet::PacketCode;
use usher_radius::server::RadiusRequest;

/// A pool of home servers, and the realm's settings.
type PoolForwardingPolicy = (u16, RealmForwardingPolicy);

/// The realms, and the requests at home servers.
#[derive(Debug)]
pub(super) struct RealmProxy {
    pub(super) homes: HomeServerSet,
    pub(super) translation: DiameterTranslation,
}

impl RealmProxy {
    /// Uses `rng` only if there are home servers.
    pub(super) fn new(config: &AaaServerConfig, rng: &mut SecureRng) -> Result<Self, ProxyError> {
        Ok(Self { homes: HomeServerSet::new(config, rng)?, translation: DiameterTranslation::default() })
    }
    /// Number of pending requests.
    pub(super) fn pending_count(&self) -> usize {
        self.homes.pending_count() + self.translation.pending_count()
    }

    /// Forwards a request if its realm is not local. Otherwise returns it.
    #[inline]
    pub(super) fn route_request(
        &mut self,
        fronts: &mut ProtocolFrontends,
        request: RadiusRequest,
    ) -> Option<RadiusRequest> {
        match fronts.ctx.config.proxy {
            // Most servers have only local users. For them, this check avoids moving the large request through another
            // call.
            None => Some(request),
            Some(_) => self.route_by_realm(fronts, request),
        }
    }

    fn route_by_realm(
        &mut self,
        fronts: &mut ProtocolFrontends,
        mut request: RadiusRequest,
    ) -> Option<RadiusRequest> {
        let Some(proxy) = &fronts.ctx.config.proxy else { return Some(request) };
        let access = request.code == PacketCode::ACCESS_REQUEST;
        if !access && request.code != PacketCode::ACCOUNTING_REQUEST {
            return Some(request);
        }
        let given = request.attributes.get(kind::USER_NAME).unwrap_or_default();
        let eap = request.attributes.get(kind::EAP_MESSAGE).is_some();
        let found = proxy.realms.find_route(given);
        let name = if eap { given } else { found.name };
        match found.route {
            RealmTarget::Local => {
                if name != given {
                    let name = name.to_vec();
                    replace_user_name(&mut request.attributes, &name);
                }
                Some(request)
            }
            RealmTarget::Refuse if access => {
                refuse_radius(fronts, request, RejectCause::NoRealm);
                None
            }
            RealmTarget::Diameter { realm } if access => {
                let (realm, terms) = (realm.clone(), found.realm_forwarding_policy());
                match fronts.ctx.config.dialler.filter(|shard| *shard != fronts.ctx.shard.number) {
                    Some(shard) => fronts.ctx.hand_over(shard, ShardRequest::Radius(Box::new(request))),
                    None => self.send_diameter_request(fronts, request, realm, terms),
                }
                None
            }
            RealmTarget::Refuse | RealmTarget::Diameter { .. } => Some(request),
            &RealmTarget::Pool { pool, accounting } => {
                if !access && accounting == AccountingMode::Local {
                    return Some(request);
                }
                let keep = !access && accounting == AccountingMode::StoreAndForward;
                let (name, terms) = (name.to_vec(), found.realm_forwarding_policy());
                let kept = keep.then(|| request.clone());
                self.forward_to_pool(fronts, request, &name, (pool, terms), !keep);
                kept
            }
        }
    }

    /// Checks that a request may be forwarded.
    fn check_forwarding_allowed(
        &self,
        ctx: &mut ServerContext,
        attributes: &AttributeList,
    ) -> Result<(), RejectCause> {
        let Some(proxy) = &ctx.config.proxy else { return Err(RejectCause::NoRealm) };
        // RFC 2865, 2.3: a request with more Proxy-States than hops is in a loop.
        if attributes.get_all(kind::PROXY_STATE).nth(proxy.max_hops).is_some() {
            ctx.counters.proxy_loops += 1;
            return Err(RejectCause::ProxyLoop);
        }
        if self.pending_count() >= proxy.max_pending {
            ctx.counters.proxy_overload += 1;
            return Err(RejectCause::Busy);
        }
        Ok(())
    }

    /// Forwards a request to a pool. `answered`: the client waits for the reply.
    fn forward_to_pool(
        &mut self,
        fronts: &mut ProtocolFrontends,
        request: RadiusRequest,
        name: &[u8],
        (pool, terms): PoolForwardingPolicy,
        answered: bool,
    ) {
        if let Err(reason) = self.check_forwarding_allowed(&mut fronts.ctx, &request.attributes) {
            return ForwardedRequest::new(fronts.ctx.now, request, terms, answered).cut_short(fronts, reason);
        }
        let mut out = fronts.take_attributes();
        let mark = fronts.ctx.rng.next_u64().to_be_bytes();
        let told = terms.filter.filter_request(&request.attributes);
        let relayed = relay::relay_request(&request, &told.passed, name, &mark, &mut out);
        let passed = ForwardedRequest::new(fronts.ctx.now, request, terms, answered);
        if relayed.is_err() {
            fronts.ctx.counters.proxy_unreadable += 1;
            fronts.recycle_attributes(out);
            return passed.cut_short(fronts, RejectCause::BadProof);
        }
        trace_withheld_attributes(&mut fronts.ctx, passed.asker, &passed.request, &told.left_out);
        self.homes.forward_request(fronts, pool, out, passed);
    }

    /// Sends a RADIUS client's request to a Diameter server.
    fn send_diameter_request(
        &mut self,
        fronts: &mut ProtocolFrontends,
        request: RadiusRequest,
        realm: String,
        terms: RealmForwardingPolicy,
    ) {
        match self.check_forwarding_allowed(&mut fronts.ctx, &request.attributes) {
            Ok(()) => self.translation.send_request(fronts, request, realm, terms),
            Err(reason) => {
                ForwardedRequest::new(fronts.ctx.now, request, terms, true).cut_short(fronts, reason)
            }
        }
    }

    /// Returns an AA-Request of a local user. Others cannot be forwarded and get an error.
    pub(super) fn route_aar(
        &self,
        fronts: &mut ProtocolFrontends,
        ask: LoginRequest,
    ) -> Option<LoginRequest> {
        match route_diameter_login(fronts, ask, None)? {
            (ask, None) => Some(ask),
            (ask, Some(_)) => {
                answer_undeliverable(fronts, ask);
                None
            }
        }
    }

    /// Forwards a Diameter-EAP-Request to RADIUS home servers if its realm is there. Returns it if the user is
    /// local.
    pub(super) fn route_der(
        &mut self,
        fronts: &mut ProtocolFrontends,
        ask: LoginRequest,
        der: &DiameterEapRequest<'_>,
    ) -> Option<LoginRequest> {
        let identifier = der.eap.get(1).copied();
        let (ask, elsewhere) = route_diameter_login(fronts, ask, Some(identifier.unwrap_or_default()))?;
        let Some((pool, terms)) = elsewhere else { return Some(ask) };
        let PendingRequest { asker, request, arrived, .. } = ask.pending;
        let passed = ForwardedRequest {
            asker: Some(asker),
            code: PacketCode::ACCESS_REQUEST,
            owner: ForwardedRequest::DIAMETER,
            eap: identifier,
            started_at: arrived,
            request,
            terms,
            dialog: None,
        };
        if let Err(reason) = self.check_forwarding_allowed(&mut fronts.ctx, &passed.request) {
            passed.cut_short(fronts, reason);
            return None;
        }
        let told = passed.terms.filter.filter_request(&passed.request);
        trace_withheld_attributes(&mut fronts.ctx, passed.asker, &passed.request, &told.left_out);
        let mut out = fronts.take_attributes();
        // RFC 4072, 4.1.4: a client's EAP-Key-Name is empty. Any value is ignored.
        let names_key = |a: &RawAttribute<'_>| a.kind == kind::EAP_KEY_NAME && !a.value.is_empty();
        for a in told.passed.iter().filter(|a| !NOT_TRANSLATED.contains(&a.kind) && !names_key(a)) {
            // The value was in an attribute before, so it fits one.
            let _ = out.push_bytes(a.kind, a.value);
        }
        if let Some(state) = der.state {
            // A State too long for one attribute cannot have come from a RADIUS server, so it may be dropped.
            let _ = out.push_bytes(kind::STATE, state);
        }
        out.push_eap(der.eap);
        let mark = fronts.ctx.rng.next_u64().to_be_bytes();
        let fits = out.push_bytes(kind::PROXY_STATE, &mark);
        debug_assert!(fits.is_ok(), "8 octets fit every attribute");
        self.homes.forward_request(fronts, pool, out, passed);
        None
    }
}

/// Routes a Diameter request by realm. If the realm is rejected, or at servers that Diameter requests cannot reach,
/// it gets an error. Otherwise returns it with its pool and the realm's settings. `eap` is the identifier of its
/// EAP packet.
fn route_diameter_login(
    fronts: &mut ProtocolFrontends,
    ask: LoginRequest,
    eap: Option<u8>,
) -> Option<(LoginRequest, Option<PoolForwardingPolicy>)> {
    let Some(proxy) = &fronts.ctx.config.proxy else { return Some((ask, None)) };
    let found = proxy.realms.find_route(ask.name());
    match found.route {
        RealmTarget::Local => return Some((ask, None)),
        &RealmTarget::Pool { pool, .. } => {
            let terms = found.realm_forwarding_policy();
            return Some((ask, Some((pool, terms))));
        }
        RealmTarget::Refuse => {
            refuse_request(fronts, ask.sessionless_login(), eap, RejectCause::NoRealm, ask.pending.request)
        }
        RealmTarget::Diameter { .. } => answer_undeliverable(fronts, ask),
    }
    None
}

/// Answers a Diameter request whose realm cannot be reached (RFC 6733 §7.1.3).
fn answer_undeliverable(fronts: &mut ProtocolFrontends, ask: LoginRequest) {
    fronts.ctx.counters.count_rejected(RejectCause::Undeliverable);
    if let RequestToken::Diameter(token, _) = ask.pending.asker {
        let fault =
            DiameterError::new(ResultCode::UNABLE_TO_DELIVER, "this realm's servers do not take the request");
        fronts.refuse_diameter(token, fault);
    }
    let begun = ask.sessionless_login();
    fronts.ctx.finish_login_without_session(
        begun,
        LoginOutcome::Undecided(RejectCause::Undeliverable),
        ask.pending.request,
    );
}

/// Rejects a request that is not forwarded, with an EAP-Failure if it has EAP.
fn refuse_request(
    fronts: &mut ProtocolFrontends,
    begun: LoginWithoutLocalSession,
    eap: Option<u8>,
    reason: RejectCause,
    request: AttributeList,
) {
    if let Some(asker) = begun.asker {
        fronts.turn_away(asker, eap, AttributeList::new());
    }
    fronts.ctx.finish_login_without_session(begun, LoginOutcome::Rejected(reason), request);
}

/// Rejects a RADIUS request that is not forwarded.
fn refuse_radius(fronts: &mut ProtocolFrontends, request: RadiusRequest, reason: RejectCause) {
    let asker = Some(RequestToken::Radius(request.token));
    let begun = LoginWithoutLocalSession { started_at: fronts.ctx.now, asker, client: Some(request.client) };
    refuse_request(fronts, begun, eap_identifier(&request.attributes), reason, request.attributes);
}

/// Replaces User-Name.
fn replace_user_name(attributes: &mut AttributeList, name: &[u8]) {
    attributes.remove(kind::USER_NAME);
    let fits = attributes.push_bytes(kind::USER_NAME, name);
    debug_assert!(fits.is_ok(), "it is a part of what was there");
}

//! Between RADIUS and Diameter: EAP that comes by one and is answered by the other (RFC 4072 §6, RFC 7155 §4).

use super::AaaServer;
use super::outward::{Dialog, Passed};
use super::proxied::{Begun, Ending, eap_identifier};
use crate::proxy::{Route, Terms};
use crate::server::answer::{Asker, INVALID_EAP_PACKET_IGNORED, NO_STATE_MAINTAINED};
use crate::server::avps::{NOT_TRANSLATED, attributes_as_avps, avps_as_attributes, untranslatable};
use crate::server::reason::Reason;
use crate::server::session::{Ask, failure};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::{Instant, Machine};
use usher_diameter::avp::AvpBuf;
use usher_diameter::eap::{Dea, Der};
use usher_diameter::nasreq::{AuthRequestType, NasInfo};
use usher_diameter::node;
use usher_diameter::session::SessionIds;
use usher_diameter::{Fault, ResultCode, codes};
use usher_radius::attribute::{Attributes, RawAttribute, kind};
use usher_radius::client::Response;
use usher_radius::packet::Code;
use usher_radius::server::Request;

/// The code of an EAP-Failure.
const FAILURE: u8 = 4;
/// Termination-Action RADIUS-Request (RFC 2865 §5.29).
const RADIUS_REQUEST: u32 = 1;

/// A pool of home servers, and what holds of what they are asked.
type Elsewhere = (u16, Terms);

impl AaaServer {
    /// Asks a Diameter server what a RADIUS client asked.
    pub(super) fn ask_diameter(&mut self, now: Instant, request: Request, realm: String, terms: Terms) {
        let asker = Asker::Radius(request.token);
        let begun = Begun { at: now, asker: Some(asker), client: Some(request.client) };
        if let Err(reason) = self.may_pass(&request.attributes) {
            self.discard(now, asker);
            let ending = Some(Ending::Undecided(reason));
            return self.ended_elsewhere(now, begun, ending, request.attributes);
        }
        let a = &request.attributes;
        let mut eap = Vec::new();
        let name = a.get(kind::USER_NAME).and_then(|n| core::str::from_utf8(n).ok());
        let (true, Some(name)) = (a.eap(&mut eap), name) else {
            self.turn_away(now, asker, eap_identifier(a));
            let ending = Some(Ending::Rejected(Reason::NoProof));
            return self.ended_elsewhere(now, begun, ending, request.attributes);
        };
        let Some(dialog) = self.dialog(now, request.client, a.get(kind::STATE)) else {
            self.turn_away(now, asker, eap_identifier(a));
            let ending = Some(Ending::Rejected(Reason::UnknownSession));
            return self.ended_elsewhere(now, begun, ending, request.attributes);
        };
        let passed = Passed {
            asker: Some(asker),
            code: request.code,
            owner: request.client,
            eap: eap_identifier(a),
            begun: now,
            request: Attributes::new(),
            terms,
            dialog: Some(dialog),
        };
        let token = self.outward.translated.insert(now, passed);
        let sent = match (self.outward.dialogs.get(dialog), &mut self.diameter) {
            (Some(d), Some(node)) => {
                let der = Der {
                    request_type: AuthRequestType::AuthorizeAuthenticate,
                    eap: &eap,
                    user_name: Some(name),
                    state: d.state.as_deref(),
                    nas: nas_info(a),
                };
                let mut der = der.request(token, d.session_id.clone(), realm, d.host.clone());
                der.avps.push_u32(codes::AUTH_SESSION_STATE, NO_STATE_MAINTAINED);
                node.command(now, node::Command::Request(der)).is_ok()
            }
            _ => false,
        };
        if let Some(passed) = self.outward.translated.get_mut(token) {
            passed.request = request.attributes;
        }
        if sent {
            self.counters.proxied += 1;
        } else if let Some(passed) = self.outward.translated.remove(token) {
            self.home_silent(now, passed);
        }
    }

    /// The conversation that a State names, or a new one.
    fn dialog(&mut self, now: Instant, owner: u32, state: Option<&[u8]>) -> Option<u64> {
        if let Some(state) = state {
            let token = self.shard.token(state)?;
            self.outward.dialogs.get(token).filter(|d| d.owner == owner)?;
            self.outward.dialogs.touch(now, token);
            return Some(token);
        }
        let most = self.config.proxy.as_ref().map_or(1, |p| p.max_conversations.max(1));
        let timeout = self.config.session_timeout;
        let outward = &mut self.outward;
        while let Some((oldest, since)) = outward.dialogs.oldest()
            && (outward.dialogs.len() >= most || since + timeout < now)
        {
            outward.dialogs.remove(oldest);
        }
        let identity = self.diameter.as_ref().map(|node| node.identity()).unwrap_or_default();
        let rng = &mut self.rng;
        let ids = outward.sessions.get_or_insert_with(|| SessionIds::random(identity, rng));
        let dialog = Dialog { owner, session_id: ids.next(""), host: None, state: None };
        Some(outward.dialogs.insert(now, dialog))
    }

    /// A Diameter server answered what was passed on to it.
    pub(super) fn diameter_answered(&mut self, now: Instant, token: u64, result: ResultCode, avps: &AvpBuf) {
        let Some(passed) = self.outward.translated.remove(token) else { return };
        let good = result.is_success() || result.is_informational();
        let dea = match Dea::parse(avps.view()) {
            Ok(dea) if !result.is_protocol_error() => Some(dea),
            // A refusal is one whatever else it says.
            Err(_) if !good && !result.is_protocol_error() => None,
            _ => return self.home_silent(now, passed),
        };
        self.counters.proxy_answered += 1;
        let (Some(Asker::Radius(asker)), Some(dialog)) = (passed.asker, passed.dialog) else { return };
        let mut attributes = self.attributes();
        let eap = dea.as_ref().and_then(|d| d.eap.or(d.reissued));
        let mut end = failure(passed.eap.unwrap_or_default());
        let code = match (&dea, result.is_success()) {
            // An AVP that must be obeyed and cannot be translated makes the answer a refusal (RFC 6733 §4.1).
            (Some(_), true) if untranslatable(avps.view()).is_none() => Code::ACCESS_ACCEPT,
            (Some(_), false) if result.is_informational() => Code::ACCESS_CHALLENGE,
            _ => Code::ACCESS_REJECT,
        };
        match (code, &dea) {
            (Code::ACCESS_CHALLENGE, Some(dea)) => {
                if let Some(d) = self.outward.dialogs.get_mut(dialog) {
                    d.host = dea.origin_host.map(ToString::to_string);
                    d.state = dea.state.map(<[u8]>::to_vec);
                }
                let state = self.shard.state(dialog);
                let fits = attributes.push_bytes(kind::STATE, &state);
                debug_assert!(fits.is_ok(), "16 octets fit every attribute");
                if let Some(seconds) = dea.multi_round_timeout {
                    attributes.push_u32(kind::SESSION_TIMEOUT, seconds);
                }
                if dea.eap.is_none() && dea.reissued.is_some() {
                    attributes.push_u32(kind::ERROR_CAUSE, INVALID_EAP_PACKET_IGNORED);
                }
                attributes.push_eap(eap.unwrap_or_default());
            }
            (Code::ACCESS_ACCEPT, Some(dea)) => {
                self.outward.dialogs.remove(dialog);
                let mut said = Attributes::new();
                avps_as_attributes(avps.view(), &mut said);
                limit_lifetime(avps, &mut said);
                end[0] = 3;
                said.push_eap(eap.unwrap_or(&end));
                attributes.extend(&self.heard(now, &passed, code, &said));
                if let Some(msk) = dea.msk.and_then(<[u8]>::first_chunk::<64>) {
                    attributes.push_msk(msk);
                }
            }
            _ => {
                self.outward.dialogs.remove(dialog);
                // A Success does not go with a refusal, whoever decided that (RFC 3579 §2.6.3).
                attributes.push_eap(eap.filter(|eap| eap.first() == Some(&FAILURE)).unwrap_or(&end));
            }
        }
        self.respond(now, asker, code, attributes);
        match code {
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

    /// Holds a Diameter request against the realms: turns it away where its user's is refused, or is known to servers
    /// that Diameter requests are not passed on to; otherwise gives it back, with the pool where the user is known and
    /// what passes to and from there. `eap` is the identifier of its EAP packet.
    fn route_ask(&mut self, now: Instant, ask: Ask, eap: Option<u8>) -> Option<(Ask, Option<Elsewhere>)> {
        let Some(proxy) = &self.config.proxy else { return Some((ask, None)) };
        let found = proxy.realms.find(ask.name());
        match found.route {
            Route::Local => return Some((ask, None)),
            &Route::Pool { pool, .. } => {
                let terms = found.terms();
                return Some((ask, Some((pool, terms))));
            }
            Route::Refuse => {
                self.turn_away(now, ask.asker, eap);
                let begun = Begun { at: now, asker: Some(ask.asker), client: ask.owner.client() };
                self.ended_elsewhere(now, begun, Some(Ending::Rejected(Reason::NoRealm)), ask.request);
                return None;
            }
            Route::Diameter { .. } => self.undeliverable(now, ask),
        }
        None
    }

    /// An AA-Request goes nowhere else: gives it back where its user is ours to answer for.
    pub(super) fn route_aar(&mut self, now: Instant, ask: Ask) -> Option<Ask> {
        match self.route_ask(now, ask, None)? {
            (ask, None) => Some(ask),
            (ask, Some(_)) => {
                self.undeliverable(now, ask);
                None
            }
        }
    }

    /// Says of a Diameter request that its user's realm cannot be asked from here (RFC 6733 §7.1.3).
    fn undeliverable(&mut self, now: Instant, ask: Ask) {
        self.counters.rejected(Reason::Undeliverable);
        if let Asker::Diameter(token, _) = ask.asker {
            let fault =
                Fault::new(ResultCode::UNABLE_TO_DELIVER, "this realm's servers are not asked for it");
            self.refuse(now, token, fault);
        }
        let begun = Begun { at: now, asker: Some(ask.asker), client: ask.owner.client() };
        self.ended_elsewhere(now, begun, Some(Ending::Undecided(Reason::Undeliverable)), ask.request);
    }

    /// Passes a Diameter-EAP-Request on to RADIUS home servers where its user's realm is there; gives it back where it
    /// is ours to answer.
    pub(super) fn route_der(&mut self, now: Instant, ask: Ask, der: &Der<'_>) -> Option<Ask> {
        let eap = Some(der.eap.get(1).copied().unwrap_or_default());
        let (ask, pool, terms) = match self.route_ask(now, ask, eap)? {
            (ask, Some((pool, terms))) => (ask, pool, terms),
            (ask, None) => return Some(ask),
        };
        if let Err(reason) = self.may_pass(&ask.request) {
            self.discard(now, ask.asker);
            let begun = Begun { at: now, asker: Some(ask.asker), client: ask.owner.client() };
            self.ended_elsewhere(now, begun, Some(Ending::Undecided(reason)), ask.request);
            return None;
        }
        let told = terms.filter.request(&ask.request);
        self.told(now, Some(ask.asker), &ask.request, &told.left_out);
        let mut out = self.attributes();
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
        let mark = self.rng.next_u64().to_be_bytes();
        let fits = out.push_bytes(kind::PROXY_STATE, &mark);
        debug_assert!(fits.is_ok(), "8 octets fit every attribute");
        let passed = Passed {
            asker: Some(ask.asker),
            code: Code::ACCESS_REQUEST,
            owner: Passed::DIAMETER,
            eap: der.eap.get(1).copied(),
            begun: now,
            request: ask.request,
            terms,
            dialog: None,
        };
        self.send_home(now, pool, out, passed);
        None
    }

    /// Answers a Diameter request with what a RADIUS home server said.
    pub(super) fn answer_diameter(
        &mut self,
        now: Instant,
        token: u64,
        request_type: AuthRequestType,
        response: &Response,
    ) {
        let a = &response.attributes;
        let mut eap = Vec::new();
        let eap = a.eap(&mut eap).then_some(&eap[..]);
        let ignored = a.get_u32(kind::ERROR_CAUSE) == Some(INVALID_EAP_PACKET_IGNORED);
        let (eap, reissued) = if ignored { (None, eap) } else { (eap, None) };
        let mut dea = Dea { eap, reissued, ..Dea::new(request_type, &[]) };
        let Ok(keys) = response.mppe_keys() else {
            self.counters.proxy_unreadable += 1;
            let fault = Fault::new(ResultCode::UNABLE_TO_COMPLY, "a key that cannot be read");
            return self.refuse(now, token, fault);
        };
        let msk = keys.and_then(|k| k.msk());
        let result = match response.code {
            Code::ACCESS_CHALLENGE => {
                dea.state = a.get(kind::STATE);
                dea.multi_round_timeout = a.get_u32(kind::SESSION_TIMEOUT);
                ResultCode::MULTI_ROUND_AUTH
            }
            Code::ACCESS_ACCEPT => {
                dea.msk = msk.as_ref().map(|m| &m[..]);
                ResultCode::SUCCESS
            }
            Code::ACCESS_REJECT => ResultCode::AUTHENTICATION_REJECTED,
            _ => {
                let fault = Fault::new(ResultCode::UNABLE_TO_DELIVER, "no home server answers");
                return self.refuse(now, token, fault);
            }
        };
        let mut avps = dea.avps();
        avps.push_u32(codes::AUTH_SESSION_STATE, NO_STATE_MAINTAINED);
        if result.is_success() {
            let mut reply = self.attributes();
            for a in a.iter().filter(|a| !NOT_TRANSLATED.contains(&a.kind)) {
                // It came out of a list of attributes: it fits one.
                let _ = reply.push_bytes(a.kind, a.value);
            }
            attributes_as_avps(&reply, eap.is_some(), self.config.dictionary.as_deref(), &mut avps);
            self.recycle(reply);
        }
        self.answer_peer(now, token, result, avps);
    }
}

/// What a RADIUS request says of its access server.
fn nas_info(a: &Attributes) -> NasInfo<'_> {
    let v6 = a.get(kind::NAS_IPV6_ADDRESS).and_then(|v| <[u8; 16]>::try_from(v).ok()).map(IpAddr::from);
    NasInfo {
        identifier: a.get_text(kind::NAS_IDENTIFIER),
        address: a.get_ipv4(kind::NAS_IP_ADDRESS).map(IpAddr::V4).or(v6),
        port: a.get_u32(kind::NAS_PORT),
        port_id: a.get_text(kind::NAS_PORT_ID),
        port_type: a.get_u32(kind::NAS_PORT_TYPE),
        called_station: a.get_text(kind::CALLED_STATION_ID),
        calling_station: a.get_text(kind::CALLING_STATION_ID),
        framed_mtu: a.get_u32(kind::FRAMED_MTU),
        service_type: a.get_u32(kind::SERVICE_TYPE),
    }
}

/// Says in RADIUS's way that the user has to be authorised anew: the session ends by then, and the access server asks
/// (Authorization-Lifetime, RFC 6733 §8.9; Termination-Action, RFC 2865 §5.29).
fn limit_lifetime(avps: &AvpBuf, attributes: &mut Attributes) {
    const FOR_EVER: u32 = u32::MAX;
    let lifetime = avps.view().get(codes::AUTHORIZATION_LIFETIME).and_then(|a| a.u32().ok());
    let Some(seconds) = lifetime.filter(|s| *s != FOR_EVER) else { return };
    if attributes.get_u32(kind::SESSION_TIMEOUT).is_none_or(|timeout| seconds < timeout) {
        attributes.remove(kind::SESSION_TIMEOUT);
        attributes.remove(kind::TERMINATION_ACTION);
        attributes.push_u32(kind::SESSION_TIMEOUT, seconds.max(1));
        attributes.push_u32(kind::TERMINATION_ACTION, RADIUS_REQUEST);
    }
}

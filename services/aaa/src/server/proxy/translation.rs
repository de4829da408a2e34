//! Translation of EAP logins between RADIUS and Diameter (RFC 4072 §6, RFC 7155 §4).

use super::proxied_request::ForwardedRequest;
use super::refuse_radius;
use crate::proxy::RealmForwardingPolicy;
use crate::server::answer::{INVALID_EAP_PACKET_IGNORED, NO_STATE_MAINTAINED, RequestToken};
use crate::server::avps::{NOT_TRANSLATED, attributes_as_avps, avps_as_attributes, find_untranslatable_avp};
use crate::server::fronts::ProtocolFrontends;
use crate::server::reason::RejectCause;
use crate::server::session::eap_failure;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::Machine;
use usher_core::table::SessionTable;
use usher_diameter::avp::AvpBuf;
use usher_diameter::eap::{DiameterEapAnswer, DiameterEapRequest};
use usher_diameter::nasreq::{AuthRequestType, NasInfo};
use usher_diameter::node;
use usher_diameter::session::SessionIdGenerator;
use usher_diameter::{DiameterError, ResultCode, codes};
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::client::RadiusReply;
use usher_radius::packet::PacketCode;
use usher_radius::server::RadiusRequest;

/// The code of an EAP-Failure.
const FAILURE: u8 = 4;
/// Termination-Action RADIUS-Request (RFC 2865 §5.29).
const RADIUS_REQUEST: u32 = 1;

/// A conversation with a Diameter server.
#[derive(Debug)]
struct DiameterConversation {
    owner: u32,
    session_id: String,
    /// The server that answered the first request.
    host: Option<String>,
    /// Its State.
    state: Option<Vec<u8>>,
}

/// RADIUS requests at Diameter servers.
#[derive(Debug, Default)]
pub(in crate::server) struct DiameterTranslation {
    waiting: SessionTable<ForwardedRequest>,
    dialogs: SessionTable<DiameterConversation>,
    ids: Option<SessionIdGenerator>,
}

impl DiameterTranslation {
    /// Number of pending requests.
    pub(super) fn pending_count(&self) -> usize {
        self.waiting.len()
    }

    /// Sends a RADIUS client's request to a Diameter server of a realm.
    pub(super) fn send_request(
        &mut self,
        fronts: &mut ProtocolFrontends,
        request: RadiusRequest,
        realm: String,
        terms: RealmForwardingPolicy,
    ) {
        let mut eap = Vec::new();
        if !request.attributes.read_eap_packet(&mut eap) || user_name(&request.attributes).is_none() {
            return refuse_radius(fronts, request, RejectCause::NoProof);
        }
        let state = request.attributes.get(kind::STATE);
        let Some(dialog) = self.conversation_for_state(fronts, request.client, state) else {
            return refuse_radius(fronts, request, RejectCause::UnknownSession);
        };
        let passed = ForwardedRequest {
            dialog: Some(dialog),
            ..ForwardedRequest::new(fronts.ctx.now, request, terms, true)
        };
        // RFC 6733, 2.8.4: a translation agent keeps the state of its transactions.
        let token = self.waiting.insert(fronts.ctx.now, passed);
        let sent = match (self.waiting.get(token), self.dialogs.get(dialog), &mut fronts.diameter) {
            (Some(ForwardedRequest { request, .. }), Some(d), Some(node)) => {
                let der = DiameterEapRequest {
                    request_type: AuthRequestType::AuthorizeAuthenticate,
                    eap: &eap,
                    user_name: user_name(request),
                    state: d.state.as_deref(),
                    nas: nas_info(request),
                };
                let mut der = der.to_request(token, d.session_id.clone(), realm, d.host.clone());
                der.avps.push_u32(codes::AUTH_SESSION_STATE, NO_STATE_MAINTAINED);
                node.handle_command(fronts.ctx.now, node::DiameterNodeCommand::Request(der)).is_ok()
            }
            _ => false,
        };
        if sent {
            fronts.ctx.counters.proxied += 1;
        } else {
            self.handle_silence(fronts, token);
        }
    }

    /// Returns the conversation of a State, or a new one.
    fn conversation_for_state(
        &mut self,
        fronts: &mut ProtocolFrontends,
        owner: u32,
        state: Option<&[u8]>,
    ) -> Option<u64> {
        if let Some(state) = state {
            let token = fronts.ctx.shard.token_from_state(state)?;
            self.dialogs.get(token).filter(|d| d.owner == owner)?;
            self.dialogs.touch(fronts.ctx.now, token);
            return Some(token);
        }
        let most = fronts.ctx.config.proxy.as_ref().map_or(1, |p| p.max_conversations.max(1));
        while let Some((oldest, since)) = self.dialogs.oldest_entry()
            && (self.dialogs.len() >= most || since + fronts.ctx.config.session_timeout < fronts.ctx.now)
        {
            self.dialogs.remove(oldest);
        }
        let identity = fronts.diameter.as_ref().map(|node| node.identity()).unwrap_or_default();
        let ids = self
            .ids
            .get_or_insert_with(|| SessionIdGenerator::with_random_start(identity, &mut fronts.ctx.rng));
        let dialog =
            DiameterConversation { owner, session_id: ids.next_session_id(""), host: None, state: None };
        Some(self.dialogs.insert(fronts.ctx.now, dialog))
    }

    /// Handles a request that no Diameter server answered.
    pub(in crate::server) fn handle_silence(&mut self, fronts: &mut ProtocolFrontends, token: u64) {
        if let Some(passed) = self.waiting.remove(token) {
            passed.finish_unanswered(fronts);
        }
    }

    /// Handles a Diameter server's answer.
    pub(in crate::server) fn handle_answer(
        &mut self,
        fronts: &mut ProtocolFrontends,
        token: u64,
        result: ResultCode,
        avps: &AvpBuf,
    ) {
        let Some(passed) = self.waiting.remove(token) else { return };
        let good = result.is_success() || result.is_informational();
        let dea = match DiameterEapAnswer::parse(avps.as_sequence()) {
            Ok(dea) if !result.is_protocol_error() => Some(dea),
            // A result that rejects the user counts, even if the other AVPs are invalid.
            Err(_) if !good && !result.is_protocol_error() => None,
            _ => return passed.finish_unanswered(fronts),
        };
        fronts.ctx.counters.proxy_answered += 1;
        let (Some(RequestToken::Radius(asker)), Some(dialog)) = (passed.asker, passed.dialog) else { return };
        let mut attributes = fronts.take_attributes();
        let eap = dea.as_ref().and_then(|d| d.eap.or(d.reissued));
        let mut end = eap_failure(passed.eap.unwrap_or_default());
        // RFC 4072, 2.2; RFC 6733, 7.1: the result code decides, not the EAP packet; an unknown class is a failure.
        let code = match (&dea, result.is_success()) {
            // RFC 6733, 4.1: a mandatory AVP without translation makes the answer a reject.
            (Some(_), true) if find_untranslatable_avp(avps.as_sequence()).is_none() => {
                PacketCode::ACCESS_ACCEPT
            }
            (Some(_), false) if result.is_informational() => PacketCode::ACCESS_CHALLENGE,
            _ => PacketCode::ACCESS_REJECT,
        };
        match (code, &dea) {
            (PacketCode::ACCESS_CHALLENGE, Some(dea)) => {
                if let Some(d) = self.dialogs.get_mut(dialog) {
                    d.host = dea.origin_host.map(ToString::to_string);
                    d.state = dea.state.map(<[u8]>::to_vec);
                }
                let state = fronts.ctx.shard.state_for_token(dialog);
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
            (PacketCode::ACCESS_ACCEPT, Some(dea)) => {
                self.dialogs.remove(dialog);
                let mut said = AttributeList::new();
                avps_as_attributes(avps.as_sequence(), &mut said);
                limit_lifetime(avps, &mut said);
                end[0] = 3;
                said.push_eap(eap.unwrap_or(&end));
                attributes.extend(&passed.filter_answer(&mut fronts.ctx, code, &said));
                if let Some(msk) = dea.msk.and_then(<[u8]>::first_chunk::<64>) {
                    attributes.push_msk(msk);
                }
            }
            _ => {
                self.dialogs.remove(dialog);
                // RFC 3579, 2.6.3: a reject must not have an EAP-Success.
                attributes.push_eap(eap.filter(|eap| eap.first() == Some(&FAILURE)).unwrap_or(&end));
            }
        }
        fronts.answer_radius(asker, code, attributes);
        passed.finish_answered(fronts, code);
    }
}

/// Answers a Diameter request with a RADIUS home server's reply.
pub(super) fn answer_diameter(
    fronts: &mut ProtocolFrontends,
    token: u64,
    request_type: AuthRequestType,
    response: &RadiusReply,
) {
    let a = &response.attributes;
    let mut eap = Vec::new();
    let eap = a.read_eap_packet(&mut eap).then_some(&eap[..]);
    let ignored = a.get_u32(kind::ERROR_CAUSE) == Some(INVALID_EAP_PACKET_IGNORED);
    let (eap, reissued) = if ignored { (None, eap) } else { (eap, None) };
    let mut dea = DiameterEapAnswer { eap, reissued, ..DiameterEapAnswer::new(request_type, &[]) };
    let Ok(keys) = response.mppe_keys() else {
        fronts.ctx.counters.proxy_unreadable += 1;
        let fault = DiameterError::new(
            ResultCode::UNABLE_TO_COMPLY,
            "the keys of the home server's reply cannot be read",
        );
        return fronts.refuse_diameter(token, fault);
    };
    let msk = keys.and_then(|k| k.msk());
    let result = match response.code {
        PacketCode::ACCESS_CHALLENGE => {
            dea.state = a.get(kind::STATE);
            dea.multi_round_timeout = a.get_u32(kind::SESSION_TIMEOUT);
            ResultCode::MULTI_ROUND_AUTH
        }
        PacketCode::ACCESS_ACCEPT => {
            dea.msk = msk.as_ref().map(|m| &m[..]);
            ResultCode::SUCCESS
        }
        PacketCode::ACCESS_REJECT => ResultCode::AUTHENTICATION_REJECTED,
        _ => {
            let fault = DiameterError::new(ResultCode::UNABLE_TO_DELIVER, "no home server answered");
            return fronts.refuse_diameter(token, fault);
        }
    };
    let mut avps = dea.to_avps();
    avps.push_u32(codes::AUTH_SESSION_STATE, NO_STATE_MAINTAINED);
    if result.is_success() {
        let mut reply = fronts.take_attributes();
        for a in a.iter().filter(|a| !NOT_TRANSLATED.contains(&a.kind)) {
            // The value was in an attribute before, so it fits one.
            let _ = reply.push_bytes(a.kind, a.value);
        }
        attributes_as_avps(&reply, eap.is_some(), fronts.ctx.config.dictionary.as_deref(), &mut avps);
        fronts.recycle_attributes(reply);
    }
    fronts.answer_diameter_request(token, result, avps);
}

/// Returns User-Name, if it is UTF-8 as Diameter requires.
fn user_name(attributes: &AttributeList) -> Option<&str> {
    attributes.get(kind::USER_NAME).and_then(|name| core::str::from_utf8(name).ok())
}

/// Returns a RADIUS request's data about its access server.
fn nas_info(a: &AttributeList) -> NasInfo<'_> {
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

/// Translates Authorization-Lifetime (RFC 6733 §8.9) to Session-Timeout with Termination-Action (RFC 2865 §5.29):
/// the access server reauthorises the user by then.
fn limit_lifetime(avps: &AvpBuf, attributes: &mut AttributeList) {
    const FOR_EVER: u32 = u32::MAX;
    let lifetime = avps.as_sequence().get(codes::AUTHORIZATION_LIFETIME).and_then(|a| a.as_u32().ok());
    let Some(seconds) = lifetime.filter(|s| *s != FOR_EVER) else { return };
    if attributes.get_u32(kind::SESSION_TIMEOUT).is_none_or(|timeout| seconds < timeout) {
        attributes.remove(kind::SESSION_TIMEOUT);
        attributes.remove(kind::TERMINATION_ACTION);
        attributes.push_u32(kind::SESSION_TIMEOUT, seconds.max(1));
        attributes.push_u32(kind::TERMINATION_ACTION, RADIUS_REQUEST);
    }
}

//! IKE_AUTH at an initiator.

use super::super::child;
use super::super::config::{ChildlessPolicy, IpsecMode, LocalAuth, RemoteAuth};
use super::super::create::KeyExchangeSecrets;
use super::super::event::{EndReason, IkeEvent};
use super::super::sa::{IkeEndpointContext, IkeSa, PendingExchange};
use super::{
    EapConversation, PendingAuthJob, authentication_state, certificate_payloads, certificate_requests,
    create_own_proof, eap_auth_payload, find_auth_payload, find_configuration, find_eap_packet,
    find_error_notify, find_payload, has_notify, is_eap_proof_valid, is_resumed, is_safe_for_eap_only,
    verify_peer_proof,
};
use crate::code::{CfgType, ConfigurationType, ExchangeType, NotifyType};
use crate::payload::{ConfigurationAttribute, ConfigurationPayload, NotifyPayload, Payload};
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::address::is_host_address;
use usher_core::{Duration, SecureRng};
use usher_crypto::SecretValue;
use usher_eap::peer::{self, EapPeer};

/// The longest silence of an EAP server between two requests. Retransmission ends sooner.
const EAP_TIMEOUT: Duration = Duration::from_secs(600);

/// Begins authentication: the IKE_SA has keys.
pub(in super::super) fn start_authentication(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) {
    if !create_own_proof(sa, cx) {
        return sa.end_sa(cx, EndReason::Unsupported);
    }
    if authentication_state(sa).is_some_and(|state| state.waits == PendingAuthJob::Idle) {
        send_auth_request(sa, cx);
    }
}

/// Sends the first IKE_AUTH request, with the proof, or without one for EAP.
pub(super) fn send_auth_request(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) {
    let connection = sa.connection.clone();
    let Some(state) = authentication_state(sa) else { return };
    let without_child = match (connection.childless, state.childless) {
        (ChildlessPolicy::Force, false) => return sa.end_sa(cx, EndReason::Unsupported),
        (ChildlessPolicy::Force, true) => true,
        _ => connection.children.is_empty(),
    };
    // RFC 6023, 3: a childless IKE_SA only if the responder supports it.
    if without_child && !state.childless {
        return sa.end_sa(cx, EndReason::Unsupported);
    }
    let proof = state.proof.take();
    state.proved = proof.is_some();
    let resumed = state.resumed.is_some();
    let contact = sa.initial_contact;
    let mut payloads = alloc::vec![sa.own_identification()];
    // A ticket replaces the certificates (RFC 5723 §4.3.3).
    payloads.extend(certificate_payloads(sa).into_iter().filter(|_| !resumed));
    if contact {
        payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::INITIAL_CONTACT)));
    }
    if matches!(connection.remote_auth, RemoteAuth::Certificate { .. }) && !resumed {
        payloads.extend(certificate_requests(cx.config, &connection));
    }
    payloads.extend(connection.remote.clone().map(Payload::IdentificationResponder));
    payloads.extend(proof);
    if matches!(connection.remote_auth, RemoteAuth::EapOnly) && !resumed {
        payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::EAP_ONLY_AUTHENTICATION)));
    }
    if connection.address {
        let wishes = [
            ConfigurationType::INTERNAL_IP4_ADDRESS,
            ConfigurationType::INTERNAL_IP6_ADDRESS,
            ConfigurationType::INTERNAL_IP4_DNS,
            ConfigurationType::INTERNAL_IP6_DNS,
            ConfigurationType::INTERNAL_DNS_DOMAIN,
        ];
        let before = sa.requested_addresses.iter().map(|address| {
            ConfigurationAttribute::from_address(*address, if address.is_ipv4() { 32 } else { 128 })
        });
        let before: Vec<_> = before.collect();
        let wish = |kind| {
            let same = before.iter().find(|one| one.kind == kind);
            same.cloned().unwrap_or(ConfigurationAttribute::requested_attribute(kind))
        };
        let attributes = wishes.map(wish).into();
        payloads
            .push(Payload::Configuration(ConfigurationPayload { kind: CfgType::CFG_REQUEST, attributes }));
    }
    if connection.mobike {
        payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::MOBIKE_SUPPORTED)));
    }
    if cx.config.tickets.is_some() {
        payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::TICKET_REQUEST)));
    }
    if let (false, Some(first)) = (without_child, connection.children.first()) {
        let spi = child::new_spi(sa, cx);
        if first.mode == IpsecMode::Transport {
            payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::USE_TRANSPORT_MODE)));
        }
        let proposals: Vec<_> =
            first.proposals.iter().map(crate::payload::Proposal::without_key_exchange).collect();
        payloads.extend(child::build_child_offer(sa, first, &proposals, spi));
        if let Some(state) = super::authentication_state(sa) {
            state.child_spi = spi;
        }
    }
    sa.request_protected(cx, ExchangeType::IKE_AUTH, &payloads, PendingExchange::Auth);
}

/// Ends the IKE_SA because the responder failed to authenticate, and reports it once (RFC 7296 §2.21.2).
fn fail_authentication(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, reason: EndReason) {
    cx.counters.authentication_failed += 1;
    let notify = [Payload::Notify(NotifyPayload::new(NotifyType::AUTHENTICATION_FAILED))];
    sa.request_protected(cx, ExchangeType::INFORMATIONAL, &notify, PendingExchange::Delete(reason));
    sa.end_sa(cx, reason);
}

pub(in super::super) fn handle_auth_response(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    payloads: Vec<Payload>,
) {
    let refused = find_error_notify(&payloads).filter(|_| find_auth_payload(&payloads).is_none());
    if let Some(notify) = refused {
        let reason = match notify.kind {
            NotifyType::NO_PROPOSAL_CHOSEN => EndReason::NoProposal,
            _ => EndReason::Refused,
        };
        return sa.end_sa(cx, reason);
    }
    let Some(state) = authentication_state(sa) else { return };
    match &state.eap {
        EapConversation::None => handle_first_response(sa, cx, payloads),
        EapConversation::Peer(_) => match find_eap_packet(&payloads) {
            Some(packet) => continue_eap(sa, cx, packet),
            None => fail_authentication(sa, cx, EndReason::Protocol),
        },
        EapConversation::Done(_) => match find_auth_payload(&payloads) {
            Some(proof) if is_eap_proof_valid(sa, proof) => establish_as_initiator(sa, cx, &payloads),
            _ => fail_authentication(sa, cx, EndReason::AuthenticationFailed),
        },
        EapConversation::Authenticator(_) => {}
    }
}

fn handle_first_response(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, payloads: Vec<Payload>) {
    let id = find_payload(&payloads, |payload| match payload {
        Payload::IdentificationResponder(id) => Some(id.clone()),
        _ => None,
    });
    let Some(id) = id else { return fail_authentication(sa, cx, EndReason::Protocol) };
    let before = authentication_state(sa).and_then(|state| Some(state.resumed.as_ref()?.1 != id));
    if before == Some(true) {
        return fail_authentication(sa, cx, EndReason::AuthenticationFailed);
    }
    if sa.connection.remote.as_ref().is_some_and(|wanted| *wanted != id) {
        return fail_authentication(sa, cx, EndReason::AuthenticationFailed);
    }
    sa.remote = Some(id);
    let Some(proof) = find_auth_payload(&payloads).cloned() else {
        if !sa.is_eap_peer() || !matches!(sa.connection.remote_auth, RemoteAuth::EapOnly) {
            return fail_authentication(sa, cx, EndReason::AuthenticationFailed);
        }
        if let Some(state) = authentication_state(sa) {
            state.eap_only = true;
        }
        return go_on(sa, cx, payloads);
    };
    match verify_peer_proof(sa, cx, &payloads, &proof) {
        Some(true) => go_on(sa, cx, payloads),
        Some(false) => fail_authentication(sa, cx, EndReason::AuthenticationFailed),
        None => {
            if let Some(state) = authentication_state(sa) {
                state.response = payloads;
            }
        }
    }
}

/// Continues after the verification of the responder's proof.
pub(super) fn continue_after_verification(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, holds: bool) {
    if !holds {
        return fail_authentication(sa, cx, EndReason::AuthenticationFailed);
    }
    let Some(state) = authentication_state(sa) else { return };
    let payloads = core::mem::take(&mut state.response);
    go_on(sa, cx, payloads);
}

fn go_on(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, payloads: Vec<Payload>) {
    let connection = sa.connection.clone();
    let LocalAuth::Eap { identity, methods } = &connection.local_auth else {
        return establish_as_initiator(sa, cx, &payloads);
    };
    if is_resumed(sa) {
        return establish_as_initiator(sa, cx, &payloads);
    }
    let Some(packet) = find_eap_packet(&payloads) else {
        return fail_authentication(sa, cx, EndReason::Protocol);
    };
    let config = peer::EapPeerConfig {
        identity: identity.clone(),
        methods: methods.clone(),
        timeout: EAP_TIMEOUT,
        wall: cx.now.to_wall_time(cx.epoch),
    };
    let rng = SecureRng::from_seed(cx.random_octets());
    if let Some(state) = authentication_state(sa) {
        state.eap = EapConversation::Peer(Box::new(EapPeer::new(config, rng, cx.now)));
    }
    continue_eap(sa, cx, packet);
}

fn continue_eap(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, packet: &[u8]) {
    let Some(state) = authentication_state(sa) else { return };
    if state.eap_only && !is_safe_for_eap_only(packet) {
        // The responder has not authenticated yet. With this method, a man in the middle would learn data for a
        // dictionary attack (RFC 5998 §3).
        return fail_authentication(sa, cx, EndReason::AuthenticationFailed);
    }
    let EapConversation::Peer(peer) = &mut state.eap else { return };
    peer.handle_packet(cx.now, packet);
    while let Some(done) = peer.poll_work() {
        cx.outputs.push_work(done);
    }
    let mut out = Vec::new();
    if peer.poll_transmit(&mut out) {
        return sa.request_protected(cx, ExchangeType::IKE_AUTH, &[Payload::Eap(out)], PendingExchange::Auth);
    }
    match peer.poll_event() {
        Some(peer::EapPeerEvent::Success { keys }) => {
            if keys.is_none() && state.eap_only {
                // Without a key from EAP, nothing authenticates the responder (RFC 5998 §3).
                return fail_authentication(sa, cx, EndReason::AuthenticationFailed);
            }
            state.eap = EapConversation::Done(keys.map(|keys| SecretValue::from(&keys.msk[..])));
            let Some(proof) = eap_auth_payload(sa) else { return };
            sa.request_protected(cx, ExchangeType::IKE_AUTH, &[proof], PendingExchange::Auth);
        }
        Some(_) => sa.end_sa(cx, EndReason::Refused),
        // This side's EAP has discarded the packet and has no response, so the conversation cannot continue.
        None => fail_authentication(sa, cx, EndReason::Protocol),
    }
}

/// Ends the IKE_SA because the EAP server is silent for too long.
pub(in super::super) fn end_after_eap_timeout(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) {
    sa.end_sa(cx, EndReason::Unreachable);
}

/// Establishes the IKE_SA: both sides have authenticated.
fn establish_as_initiator(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, payloads: &[Payload]) {
    let Some(state) = authentication_state(sa) else { return };
    let spi = state.child_spi;
    let nonces = (state.nonces().0.to_vec(), state.nonces().1.to_vec());
    let resumed = state.resumed.is_some();
    sa.mark_established(cx);
    cx.counters.resumed += u64::from(resumed);
    super::super::resumption::store_ticket(sa, cx, payloads);
    sa.announce = true;
    sa.mobike = sa.connection.mobike && has_notify(payloads, NotifyType::MOBIKE_SUPPORTED);
    let remote = sa.remote.clone().unwrap_or_else(|| sa.connection.local.clone());
    cx.outputs.push_event(IkeEvent::Established {
        sa: sa.id,
        connection: sa.connection.name.clone(),
        remote,
        spis: sa.spis,
        path: sa.path,
    });
    let given = find_configuration(payloads).filter(|c| c.kind == CfgType::CFG_REPLY);
    if let Some(given) = given {
        let attributes = given.attributes.iter().filter(|given| is_of_a_host(given)).cloned().collect();
        cx.outputs.push_event(IkeEvent::Configured { sa: sa.id, attributes });
    }
    if spi != 0 {
        let secrets = &KeyExchangeSecrets::default();
        let made =
            child::RequestedChildSa { config: 0, spi, secrets, nonces: &nonces, replaces: None, first: true };
        child::install_child_from_response(sa, cx, &made, payloads);
        // From now on, this side's traffic selectors use its assigned address.
        let attributes = given.iter().flat_map(|given| &given.attributes).filter(|given| is_of_a_host(given));
        sa.assigned_addresses = attributes.filter_map(ConfigurationAttribute::internal_address).collect();
    } else {
        // If the connection forces IKE_AUTH without a CHILD_SA, the first one is requested now. The others follow once
        // the IKE_SA is established.
        let all = if sa.connection.childless == ChildlessPolicy::Force {
            sa.connection.children.len().min(1)
        } else {
            0
        };
        (0..all).for_each(|number| sa.plan_task(super::super::sa::IkeSaTask::CreateChild(number)));
    }
    sa.go_on(cx);
}

/// True unless the responder assigns an address that no host can have. Such an address is ignored.
fn is_of_a_host(given: &ConfigurationAttribute) -> bool {
    given.internal_address().is_none_or(is_host_address)
}

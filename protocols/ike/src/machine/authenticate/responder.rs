//! IKE_AUTH at a responder.

use super::super::child;
use super::super::config::{ChildlessPolicy, IkeConnectionConfig, LocalAuth, RemoteAuth};
use super::super::create::KeyExchangeSecrets;
use super::super::event::{EapAnswer, EndReason, IkeEvent};
use super::super::guesses::IdentityClaim;
use super::super::resumption;
use super::super::sa::{IkeEndpointContext, IkeSa, IkeSaTask};
use super::{
    EapConversation, InitialChildRequest, MAX_RETAINED_OCTETS, PendingAuthJob, UNPROVED,
    authentication_state, certificate_payloads, create_own_proof, eap_auth_payload, find_auth_payload,
    find_configuration, find_eap_packet as eap_of, find_payload, has_notify, is_eap_proof_valid, is_resumed,
    is_safe_for_eap_only, requests_ocsp, verify_peer_proof,
};
use crate::code::{AuthMethod, CfgType, ExchangeType, IdType, NotifyType};
use crate::payload::{
    ConfigurationAttribute, ConfigurationPayload, Identification, NotifyPayload, Payload, TrafficSelectors,
};
use crate::suite::choose_proposal;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{CommandError, DatagramPath, Duration};
use usher_eap::authenticator::{AaaReply, EapAuthenticator, EapConversationOutcome};

const IKE_AUTH: ExchangeType = ExchangeType::IKE_AUTH;

/// Rejects the authentication and ends the IKE_SA: the initiator failed, or this side cannot authenticate.
pub(super) fn reject_authentication(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, reason: EndReason) {
    cx.counters.authentication_failed += 1;
    if reason != EndReason::Helper {
        report_failed_authentication(sa, cx);
    }
    let kind = match reason {
        EndReason::Helper => NotifyType::TEMPORARY_FAILURE,
        _ => NotifyType::AUTHENTICATION_FAILED,
    };
    sa.respond_notify(cx, IKE_AUTH, NotifyPayload::new(kind));
    sa.end_keeping_last_response(cx, reason);
}

/// Reports that the initiator failed to authenticate.
fn report_failed_authentication(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) {
    sa.unproved = true;
    let path = DatagramPath { remote: sa.proven_peer_address(), ..sa.path };
    cx.outputs.push_event(IkeEvent::Unproved { sa: sa.id, path, identity: sa.remote.clone() });
}

fn reject_invalid_syntax(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) {
    sa.reject_request(cx, IKE_AUTH, NotifyPayload::new(NotifyType::INVALID_SYNTAX));
}

/// Handles an IKE_AUTH request.
pub(in super::super) fn handle_auth_request(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    payloads: Vec<Payload>,
) {
    let first = sa.remote.is_none();
    let Some(state) = authentication_state(sa) else { return };
    if !state.additional.is_empty() {
        // RFC 9370, 2.2.2: agreed key exchanges may not be left out.
        return reject_invalid_syntax(sa, cx);
    }
    match &mut state.eap {
        EapConversation::None if first => handle_first_request(sa, cx, &payloads),
        EapConversation::Authenticator(authenticator) => {
            let packet = eap_of(&payloads).filter(|packet| packet.len() <= UNPROVED);
            let Some(packet) = packet else { return reject_invalid_syntax(sa, cx) };
            if !authenticator.handle_packet(cx.now, packet) {
                // EAP discards an invalid packet silently, but IKE has to respond to every request.
                return reject_invalid_syntax(sa, cx);
            }
            go_on(sa, cx);
        }
        EapConversation::Done(_) => {
            let Some(proof) = find_auth_payload(&payloads) else { return reject_invalid_syntax(sa, cx) };
            if !is_eap_proof_valid(sa, proof) {
                return reject_authentication(sa, cx, EndReason::AuthenticationFailed);
            }
            let own = eap_auth_payload(sa);
            let Some(state) = super::authentication_state(sa) else { return };
            (state.verified, state.proof, state.proved) = (true, own, false);
            go_on(sa, cx);
        }
        EapConversation::None | EapConversation::Peer(_) => reject_invalid_syntax(sa, cx),
    }
}

fn handle_first_request(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, payloads: &[Payload]) {
    let id = find_payload(payloads, |payload| match payload {
        Payload::IdentificationInitiator(id) => Some(id.clone()),
        _ => None,
    });
    let wanted = find_payload(payloads, |payload| match payload {
        Payload::IdentificationResponder(id) => Some(id.clone()),
        _ => None,
    });
    let Some(id) = id else { return reject_invalid_syntax(sa, cx) };
    if is_too_much(payloads) {
        return reject_invalid_syntax(sa, cx);
    }
    let child = parse_child_request(payloads);
    let proof = find_auth_payload(payloads).cloned();
    let eap_only = has_notify(payloads, NotifyType::EAP_ONLY_AUTHENTICATION);
    let configuration = find_configuration(payloads).filter(|c| c.kind == CfgType::CFG_REQUEST).cloned();
    let contact = has_notify(payloads, NotifyType::INITIAL_CONTACT);
    let mobike = has_notify(payloads, NotifyType::MOBIKE_SUPPORTED);
    let wants_ticket = has_notify(payloads, NotifyType::TICKET_REQUEST);
    sa.remote = Some(id.clone());
    let resumed = super::authentication_state(sa).and_then(|state| state.resumed.clone());
    let connection = match resumed {
        // The peer's identities must be those of the ticket (RFC 5723 §4.3.3).
        Some(both) => {
            let same = both.0 == id && wanted.is_none_or(|wanted| wanted == both.1) && proof.is_some();
            (same && sa.connection.is_for(sa.proven_peer_address().ip())).then(|| sa.connection.clone())
        }
        None => find_matching_connection(sa, cx, &id, wanted.as_ref(), proof.as_ref(), eap_only),
    };
    let Some(connection) = connection else {
        return reject_authentication(sa, cx, EndReason::AuthenticationFailed);
    };
    sa.connection = connection.clone();
    let Some(state) = authentication_state(sa) else { return };
    match child {
        Ok(child) => state.child = child,
        Err(()) => return reject_invalid_syntax(sa, cx),
    }
    // RFC 6023, 3: a childless IKE_SA only if the responder supports it.
    if state.child.is_none() && connection.childless == ChildlessPolicy::Never {
        return reject_invalid_syntax(sa, cx);
    }
    state.ocsp_wanted = requests_ocsp(payloads);
    state.configuration = configuration;
    state.initial_contact = contact;
    state.mobike = mobike;
    state.wants_ticket = wants_ticket;
    let Some(proof) = proof else {
        state.eap_only = matches!(connection.local_auth, LocalAuth::EapOnly);
        let patience = Duration::from_secs(3600);
        // As its IKE identity, Windows sends an address or a subject name, which an AAA server cannot use. So EAP asks
        // for the identity.
        let ask = id.as_text().is_none() && id.kind != IdType::ID_KEY_ID
            || matches!(connection.remote_auth, RemoteAuth::Eap { request_identity: true });
        // IKE retransmits these messages, so EAP does not.
        let authenticator = if ask {
            EapAuthenticator::new(1, None, patience, cx.now)
        } else {
            EapAuthenticator::with_identity(&id.data, 1, None, patience, cx.now)
        };
        state.eap = EapConversation::Authenticator(Box::new(authenticator));
        return go_on(sa, cx);
    };
    // A shared key can be guessed, so failures count toward a lockout.
    let guess = matches!(connection.remote_auth, RemoteAuth::Psk(_)) && !is_resumed(sa);
    // The source of this request is not used: an attacker may claim a NAT and forge another host's address.
    let claim = IdentityClaim { connection: &connection.name, identity: &id, from: sa.proved };
    if guess && !cx.proof_lockouts.allows_proof_check(cx.now, cx.config, claim) {
        cx.counters.proofs_locked_out += 1;
        return reject_authentication(sa, cx, EndReason::AuthenticationFailed);
    }
    let verified = verify_peer_proof(sa, cx, payloads, &proof);
    match verified.filter(|_| guess) {
        Some(true) => cx.proof_lockouts.record_success(cx.now, claim),
        Some(false) if cx.proof_lockouts.record_failure(cx.now, cx.config, claim) => {
            cx.outputs.push_event(IkeEvent::TooManyFailedProofs { connection: connection.name.clone() });
        }
        _ => {}
    }
    match verified {
        Some(true) => {
            if is_resumed(sa) && !resumption::redeem_ticket(sa, cx) {
                return reject_authentication(sa, cx, EndReason::AuthenticationFailed);
            }
            if let Some(state) = super::authentication_state(sa) {
                state.verified = true;
            }
            go_on(sa, cx);
        }
        Some(false) => reject_authentication(sa, cx, EndReason::AuthenticationFailed),
        None => sa.postpone_response(),
    }
}

/// True if an initiator's request needs more memory than an unauthenticated peer may use. Certificates do not count:
/// they are not retained.
fn is_too_much(payloads: &[Payload]) -> bool {
    let is_kept = |payload: &&Payload| {
        matches!(
            payload,
            Payload::IdentificationInitiator(_)
                | Payload::SecurityAssociation(_)
                | Payload::TrafficSelectorsInitiator(_)
                | Payload::TrafficSelectorsResponder(_)
                | Payload::Configuration(_)
        )
    };
    payloads.iter().filter(is_kept).map(Payload::memory_octets).sum::<usize>() > MAX_RETAINED_OCTETS
}

/// Parses the requested CHILD_SA. An error means that a payload of it is missing.
pub(in super::super) fn parse_child_request(payloads: &[Payload]) -> Result<Option<InitialChildRequest>, ()> {
    let proposals = find_payload(payloads, |payload| match payload {
        Payload::SecurityAssociation(proposals) => Some(proposals.clone()),
        _ => None,
    });
    let selectors = |initiator| -> Option<TrafficSelectors> {
        find_payload(payloads, |payload| match payload {
            Payload::TrafficSelectorsInitiator(ts) if initiator => Some(ts.clone()),
            Payload::TrafficSelectorsResponder(ts) if !initiator => Some(ts.clone()),
            _ => None,
        })
    };
    match (proposals, selectors(true), selectors(false)) {
        (None, None, None) => Ok(None),
        (Some(proposals), Some(initiator), Some(responder)) => {
            let transport = has_notify(payloads, NotifyType::USE_TRANSPORT_MODE);
            Ok(Some(InitialChildRequest { proposals, initiator, responder, transport }))
        }
        _ => Err(()),
    }
}

/// Returns the first connection that matches the initiator's identity, address, requested responder, authentication
/// method and chosen proposal.
fn find_matching_connection(
    sa: &mut IkeSa,
    cx: &IkeEndpointContext<'_>,
    id: &Identification,
    wanted: Option<&Identification>,
    proof: Option<&Payload>,
    eap_only: bool,
) -> Option<Arc<IkeConnectionConfig>> {
    let chosen = authentication_state(sa)?.chosen.clone()?;
    let place = sa.proven_peer_address().ip();
    let shared = matches!(
        proof,
        Some(Payload::Authentication { method: AuthMethod::SHARED_KEY_MESSAGE_INTEGRITY_CODE, .. })
    );
    let fits = |connection: &&Arc<IkeConnectionConfig>| {
        let how = match (&connection.remote_auth, proof.is_some()) {
            (RemoteAuth::Psk(_), true) => shared,
            (RemoteAuth::Certificate { .. }, true) => !shared,
            (RemoteAuth::Eap { .. }, false) => {
                eap_only || !matches!(connection.local_auth, LocalAuth::EapOnly)
            }
            _ => false,
        };
        how && connection.remote.as_ref().is_none_or(|remote| remote == id)
            && connection.is_for(place)
            && wanted.is_none_or(|wanted| *wanted == connection.local)
            && choose_proposal(&connection.proposals, core::slice::from_ref(&chosen)).is_some()
    };
    cx.connections.iter().find(fits).cloned()
}

/// Does the next step: this side's proof, the AAA server's reply, an address, the response.
pub(super) fn go_on(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) {
    let gives = sa.connection.address;
    let Some(state) = authentication_state(sa) else { return };
    if state.waits != PendingAuthJob::Idle {
        return;
    }
    let needs_proof = state.proof.is_none() && !state.proved && !state.eap_only;
    if needs_proof && !matches!(state.eap, EapConversation::Done(_)) {
        if !create_own_proof(sa, cx) {
            return reject_authentication(sa, cx, EndReason::Unsupported);
        }
        if super::authentication_state(sa).is_some_and(|state| state.waits != PendingAuthJob::Idle) {
            return sa.postpone_response();
        }
    }
    let Some(state) = super::authentication_state(sa) else { return };
    if let EapConversation::Authenticator(authenticator) = &mut state.eap {
        if let Some(packet) = authenticator.poll_aaa() {
            let packet = packet.to_vec();
            state.waits = PendingAuthJob::Eap;
            let identity = sa.remote.clone().unwrap_or_else(|| sa.connection.local.clone());
            let (connection, remote) = (sa.connection.name.clone(), sa.proven_peer_address());
            cx.outputs.push_event(IkeEvent::Eap { sa: sa.id, identity, connection, remote, packet });
            return sa.postpone_response();
        }
        return send_eap_packet(sa, cx);
    }
    if !state.verified {
        return;
    }
    if let (true, Some(asked), None) = (gives, &state.configuration, &state.assigned_attributes) {
        let attributes = asked.attributes.clone();
        state.waits = PendingAuthJob::Address;
        let identity = sa.peer_identity();
        let (connection, remote) = (sa.connection.name.clone(), sa.proven_peer_address());
        cx.outputs.push_event(IkeEvent::AddressRequested {
            sa: sa.id,
            identity,
            connection,
            remote,
            attributes,
        });
        return sa.postpone_response();
    }
    establish_as_responder(sa, cx);
}

/// Sends an EAP packet, the first with this side's proof.
fn send_eap_packet(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) {
    let connection = sa.connection.clone();
    let identification = sa.own_identification();
    let Some(state) = authentication_state(sa) else { return };
    let EapConversation::Authenticator(authenticator) = &mut state.eap else { return };
    let packet = authenticator.poll_transmit().map(<[u8]>::to_vec);
    let end = authenticator.poll_end();
    let mut payloads = Vec::new();
    if !core::mem::replace(&mut state.proved, true) {
        payloads.push(identification);
        if let Some(proof) = state.proof.take() {
            payloads.extend(certificate_payloads(sa));
            payloads.push(proof);
        }
    }
    let Some(state) = super::authentication_state(sa) else { return };
    match (packet, end) {
        (Some(packet), None) if state.eap_only && !is_safe_for_eap_only(&packet) => {
            return reject_authentication(sa, cx, EndReason::AuthenticationFailed);
        }
        (Some(packet), None) => payloads.push(Payload::Eap(packet)),
        (Some(packet), Some(EapConversationOutcome::Success)) => {
            payloads.push(Payload::Eap(packet));
            let (key, identity) = (state.key.take(), state.identity.take());
            // RFC 5998, 3: EAP alone only by a method that yields a key.
            if key.is_none() && state.eap_only {
                return reject_authentication(sa, cx, EndReason::AuthenticationFailed);
            }
            state.eap = EapConversation::Done(key);
            // From now on, the EAP identity counts, not the claimed one (RFC 7296 §2.16). The connection has to match
            // it.
            if connection.remote.is_some() && connection.remote != identity {
                return reject_authentication(sa, cx, EndReason::AuthenticationFailed);
            }
            sa.authenticated = identity;
        }
        (packet, Some(EapConversationOutcome::Failure)) => {
            // RFC 7296, 2.16: EAP-Failure is sent before the IKE_SA ends.
            payloads.extend(packet.map(Payload::Eap));
            cx.counters.authentication_failed += 1;
            sa.respond_protected(cx, IKE_AUTH, &payloads);
            report_failed_authentication(sa, cx);
            return sa.end_keeping_last_response(cx, EndReason::AuthenticationFailed);
        }
        _ => return reject_authentication(sa, cx, EndReason::Helper),
    }
    sa.respond_protected(cx, IKE_AUTH, &payloads);
}

/// Applies the reply to [`IkeEvent::Eap`].
pub(in super::super) fn apply_eap_answer(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    answer: EapAnswer,
) -> Result<(), CommandError> {
    let waiting = authentication_state(sa).filter(|state| state.waits == PendingAuthJob::Eap);
    let state = waiting.ok_or(CommandError::WrongState("no EAP packet is pending"))?;
    state.waits = PendingAuthJob::Idle;
    let EapConversation::Authenticator(authenticator) = &mut state.eap else { return Ok(()) };
    let answer = match &answer {
        EapAnswer::Continue(packet) => AaaReply::Request(packet),
        EapAnswer::Accept { packet, msk, identity } => {
            state.key.clone_from(msk);
            state.identity = Some(identity.clone());
            AaaReply::Success(packet)
        }
        EapAnswer::Reject { packet } => AaaReply::Failure(packet),
        EapAnswer::Unanswered => AaaReply::Timeout,
    };
    authenticator.handle_aaa_reply(cx.now, answer);
    send_eap_packet(sa, cx);
    Ok(())
}

/// Applies the reply to [`IkeEvent::AddressRequested`].
pub(in super::super) fn apply_address(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    attributes: Vec<ConfigurationAttribute>,
) -> Result<(), CommandError> {
    let waiting = authentication_state(sa).filter(|state| state.waits == PendingAuthJob::Address);
    let state = waiting.ok_or(CommandError::WrongState("no address request is pending"))?;
    state.waits = PendingAuthJob::Idle;
    state.assigned_attributes = Some(attributes);
    go_on(sa, cx);
    Ok(())
}

/// Establishes the IKE_SA: installs its CHILD_SA, then sends the last response.
fn establish_as_responder(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) {
    let (identification, connection) = (sa.own_identification(), sa.connection.clone());
    let Some(state) = authentication_state(sa) else { return };
    let mut payloads = Vec::new();
    let (resumed, wants_ticket) = (state.resumed.is_some(), state.wants_ticket);
    if matches!(state.eap, EapConversation::None) {
        payloads.push(identification);
        payloads.extend(certificate_payloads(sa).into_iter().filter(|_| !resumed));
    }
    let Some(state) = super::authentication_state(sa) else { return };
    payloads.extend(state.proof.take());
    let nonces = (state.nonces().0.to_vec(), state.nonces().1.to_vec());
    let (child, given, contact) =
        (state.child.take(), state.assigned_attributes.take(), state.initial_contact);
    let mobike = state.mobike && connection.mobike;
    sa.mark_established(cx);
    sa.announce = true;
    sa.initial_contact = contact;
    sa.mobike = mobike;
    if sa.path.remote.ip() != sa.proved {
        // A NAT has changed the initiator's address since the IKE_SA began. The check ends the IKE_SA if the initiator
        // does not answer at the new address.
        sa.plan_task(if mobike { IkeSaTask::Check } else { IkeSaTask::Probe });
    }
    let remote = sa.peer_identity();
    let (name, spis, path) =
        (connection.name.clone(), sa.spis, DatagramPath { remote: sa.proven_peer_address(), ..sa.path });
    cx.outputs.push_event(IkeEvent::Established { sa: sa.id, connection: name, remote, spis, path });
    sa.assigned_addresses =
        given.iter().flatten().filter_map(ConfigurationAttribute::internal_address).collect();
    match given {
        // RFC 7296, 2.19, 3.15.4: without an assigned address, the requested CHILD_SA is useless.
        Some(given) if given.iter().all(|one| one.internal_address().is_none()) => {
            payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::INTERNAL_ADDRESS_FAILURE)));
        }
        given => {
            if let Some(attributes) = given {
                // RFC 7296, 2.19: the assigned addresses come before the SA payload.
                payloads.push(Payload::Configuration(ConfigurationPayload {
                    kind: CfgType::CFG_REPLY,
                    attributes,
                }));
            }
            if let Some(child) = child {
                let proposals: Vec<_> =
                    child.proposals.iter().map(crate::payload::Proposal::without_key_exchange).collect();
                let asked = InitialChildRequest { proposals, ..child };
                let selected = child::select_child(sa, cx, &asked, true);
                let granted = selected.and_then(|selected| {
                    child::grant_child(
                        sa,
                        cx,
                        selected,
                        asked.transport,
                        &KeyExchangeSecrets::default(),
                        &nonces,
                        None,
                    )
                });
                match granted {
                    Ok(granted) => payloads.extend(granted),
                    // RFC 7296, 2.21.2: a failed CHILD_SA leaves the IKE_SA.
                    Err(kind) => payloads.push(Payload::Notify(NotifyPayload::new(kind))),
                }
            }
        }
    }
    if mobike {
        payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::MOBIKE_SUPPORTED)));
    }
    if wants_ticket {
        // RFC 5723, 4.1: the last response has the ticket or TICKET_NACK.
        payloads.extend(resumption::answer_ticket_request(sa, cx));
    }
    sa.respond_protected(cx, IKE_AUTH, &payloads);
}

//! IKE_AUTH of a responder.

use super::super::child;
use super::super::config::{Childless, Connection, LocalAuth, RemoteAuth};
use super::super::create::Secrets;
use super::super::event::{EapAnswer, EndReason, Event};
use super::super::guesses::Claim;
use super::super::resumption;
use super::super::sa::{Context, IkeSa, Task};
use super::{
    ChildAsked, Eap, KEPT, UNPROVED, Waits, asks_ocsp, authentication, configuration, eap as eap_of,
    eap_holds, eap_proof, find, has, is_resumed, is_safe_alone, prove, shown, state, verify,
};
use crate::code::{AuthMethod, CfgType, ExchangeType, IdType, NotifyType};
use crate::payload::{
    Configuration, ConfigurationAttribute, Identification, Notify, Payload, TrafficSelectors,
};
use crate::suite::choose;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{CommandError, Duration, Path};
use usher_eap::authenticator::{Answer, Authenticator, End};

const IKE_AUTH: ExchangeType = ExchangeType::IKE_AUTH;

/// Answers that the initiator has not proved who it is, or that this side cannot, and ends the IKE_SA.
pub(super) fn fail(sa: &mut IkeSa, cx: &mut Context<'_>, reason: EndReason) {
    cx.counters.authentication_failed += 1;
    if reason != EndReason::Helper {
        unproved(sa, cx);
    }
    let kind = match reason {
        EndReason::Helper => NotifyType::TEMPORARY_FAILURE,
        _ => NotifyType::AUTHENTICATION_FAILED,
    };
    sa.respond_notify(cx, IKE_AUTH, Notify::new(kind));
    sa.end_lingering(cx, reason);
}

/// Its initiator has not proved who it is.
fn unproved(sa: &mut IkeSa, cx: &mut Context<'_>) {
    sa.unproved = true;
    let path = Path { remote: sa.origin(), ..sa.path };
    cx.outputs.event(Event::Unproved { sa: sa.id, path, identity: sa.remote.clone() });
}

fn syntax(sa: &mut IkeSa, cx: &mut Context<'_>) {
    sa.refuse(cx, IKE_AUTH, Notify::new(NotifyType::INVALID_SYNTAX));
}

/// A request of IKE_AUTH.
pub(in super::super) fn request(sa: &mut IkeSa, cx: &mut Context<'_>, payloads: Vec<Payload>) {
    let first = sa.remote.is_none();
    let Some(state) = state(sa) else { return };
    if !state.additional.is_empty() {
        // What was agreed on is not left out (RFC 9370 §2.2.2).
        return syntax(sa, cx);
    }
    match &mut state.eap {
        Eap::None if first => begin(sa, cx, &payloads),
        Eap::Authenticator(authenticator) => {
            let packet = eap_of(&payloads).filter(|packet| packet.len() <= UNPROVED);
            let Some(packet) = packet else { return syntax(sa, cx) };
            if !authenticator.handle(cx.now, packet) {
                // EAP discards it, and IKE has to answer something.
                return syntax(sa, cx);
            }
            go_on(sa, cx);
        }
        Eap::Done(_) => {
            let Some(proof) = authentication(&payloads) else { return syntax(sa, cx) };
            if !eap_holds(sa, proof) {
                return fail(sa, cx, EndReason::AuthenticationFailed);
            }
            let own = eap_proof(sa);
            let Some(state) = super::state(sa) else { return };
            (state.verified, state.proof, state.proved) = (true, own, false);
            go_on(sa, cx);
        }
        Eap::None | Eap::Peer(_) => syntax(sa, cx),
    }
}

fn begin(sa: &mut IkeSa, cx: &mut Context<'_>, payloads: &[Payload]) {
    let id = find(payloads, |payload| match payload {
        Payload::IdentificationInitiator(id) => Some(id.clone()),
        _ => None,
    });
    let wanted = find(payloads, |payload| match payload {
        Payload::IdentificationResponder(id) => Some(id.clone()),
        _ => None,
    });
    let Some(id) = id else { return syntax(sa, cx) };
    if is_too_much(payloads) {
        return syntax(sa, cx);
    }
    let child = asked(payloads);
    let proof = authentication(payloads).cloned();
    let eap_only = has(payloads, NotifyType::EAP_ONLY_AUTHENTICATION);
    let configuration = configuration(payloads).filter(|c| c.kind == CfgType::CFG_REQUEST).cloned();
    let contact = has(payloads, NotifyType::INITIAL_CONTACT);
    let mobike = has(payloads, NotifyType::MOBIKE_SUPPORTED);
    let wants_ticket = has(payloads, NotifyType::TICKET_REQUEST);
    sa.remote = Some(id.clone());
    let resumed = super::state(sa).and_then(|state| state.resumed.clone());
    let connection = match resumed {
        // Both are who they were (RFC 5723 §4.3.3).
        Some(both) => {
            let same = both.0 == id && wanted.is_none_or(|wanted| wanted == both.1) && proof.is_some();
            (same && sa.connection.is_for(sa.origin().ip())).then(|| sa.connection.clone())
        }
        None => connection_for(sa, cx, &id, wanted.as_ref(), proof.as_ref(), eap_only),
    };
    let Some(connection) = connection else {
        return fail(sa, cx, EndReason::AuthenticationFailed);
    };
    sa.connection = connection.clone();
    let Some(state) = state(sa) else { return };
    match child {
        Ok(child) => state.child = child,
        Err(()) => return syntax(sa, cx),
    }
    if state.child.is_none() && connection.childless == Childless::Never {
        return syntax(sa, cx);
    }
    state.ocsp_wanted = asks_ocsp(payloads);
    state.configuration = configuration;
    state.initial_contact = contact;
    state.mobike = mobike;
    state.wants_ticket = wants_ticket;
    let Some(proof) = proof else {
        state.eap_only = matches!(connection.local_auth, LocalAuth::EapOnly);
        let patience = Duration::from_secs(3600);
        // An address or a subject, as Windows says, is no name that an AAA server knows.
        let ask = id.as_text().is_none() && id.kind != IdType::ID_KEY_ID
            || matches!(connection.remote_auth, RemoteAuth::Eap { ask_identity: true });
        // IKE sends again what is lost, so that EAP does not.
        let authenticator = if ask {
            Authenticator::new(1, None, patience, cx.now)
        } else {
            Authenticator::with_identity(&id.data, 1, None, patience, cx.now)
        };
        state.eap = Eap::Authenticator(Box::new(authenticator));
        return go_on(sa, cx);
    };
    // A key that others have, too, is one that can be guessed at.
    let guess = matches!(connection.remote_auth, RemoteAuth::Psk(_)) && !is_resumed(sa);
    // Not where this request says it comes from: behind a NAT, which anybody may pretend, that may be somebody else's address.
    let claim = Claim { connection: &connection.name, identity: &id, from: sa.proved };
    if guess && !cx.guesses.weighs(cx.now, cx.config, claim) {
        cx.counters.guesses_held_back += 1;
        return fail(sa, cx, EndReason::AuthenticationFailed);
    }
    let verified = verify(sa, cx, payloads, &proof);
    match verified.filter(|_| guess) {
        Some(true) => cx.guesses.proved(cx.now, claim),
        Some(false) if cx.guesses.failed(cx.now, cx.config, claim) => {
            cx.outputs.event(Event::Guessed { connection: connection.name.clone() });
        }
        _ => {}
    }
    match verified {
        Some(true) => {
            if is_resumed(sa) && !resumption::redeem(sa, cx) {
                return fail(sa, cx, EndReason::AuthenticationFailed);
            }
            if let Some(state) = super::state(sa) {
                state.verified = true;
            }
            go_on(sa, cx);
        }
        Some(false) => fail(sa, cx, EndReason::AuthenticationFailed),
        None => sa.pend(),
    }
}

/// Whether an initiator says and asks for more than is kept of somebody who has proved nothing. Its certificates are not kept.
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
    payloads.iter().filter(is_kept).map(Payload::takes).sum::<usize>() > KEPT
}

/// What CHILD_SA is asked for; an error: half of one.
pub(in super::super) fn asked(payloads: &[Payload]) -> Result<Option<ChildAsked>, ()> {
    let proposals = find(payloads, |payload| match payload {
        Payload::SecurityAssociation(proposals) => Some(proposals.clone()),
        _ => None,
    });
    let selectors = |initiator| -> Option<TrafficSelectors> {
        find(payloads, |payload| match payload {
            Payload::TrafficSelectorsInitiator(ts) if initiator => Some(ts.clone()),
            Payload::TrafficSelectorsResponder(ts) if !initiator => Some(ts.clone()),
            _ => None,
        })
    };
    match (proposals, selectors(true), selectors(false)) {
        (None, None, None) => Ok(None),
        (Some(proposals), Some(initiator), Some(responder)) => {
            let transport = has(payloads, NotifyType::USE_TRANSPORT_MODE);
            Ok(Some(ChildAsked { proposals, initiator, responder, transport }))
        }
        _ => Err(()),
    }
}

/// The first connection that fits who the initiator says it is, where it is, whom it wants, how it proves it, and what was chosen.
fn connection_for(
    sa: &mut IkeSa,
    cx: &Context<'_>,
    id: &Identification,
    wanted: Option<&Identification>,
    proof: Option<&Payload>,
    eap_only: bool,
) -> Option<Arc<Connection>> {
    let chosen = state(sa)?.chosen.clone()?;
    let place = sa.origin().ip();
    let shared = matches!(
        proof,
        Some(Payload::Authentication { method: AuthMethod::SHARED_KEY_MESSAGE_INTEGRITY_CODE, .. })
    );
    let fits = |connection: &&Arc<Connection>| {
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
            && choose(&connection.proposals, core::slice::from_ref(&chosen)).is_some()
    };
    cx.connections.iter().find(fits).cloned()
}

/// Does what is next: this side's proof, the AAA server's judgement, an address, the response.
pub(super) fn go_on(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let gives = sa.connection.address;
    let Some(state) = state(sa) else { return };
    if state.waits != Waits::Nobody {
        return;
    }
    let needs_proof = state.proof.is_none() && !state.proved && !state.eap_only;
    if needs_proof && !matches!(state.eap, Eap::Done(_)) {
        if !prove(sa, cx) {
            return fail(sa, cx, EndReason::Unsupported);
        }
        if super::state(sa).is_some_and(|state| state.waits != Waits::Nobody) {
            return sa.pend();
        }
    }
    let Some(state) = super::state(sa) else { return };
    if let Eap::Authenticator(authenticator) = &mut state.eap {
        if let Some(packet) = authenticator.poll_aaa() {
            let packet = packet.to_vec();
            state.waits = Waits::Eap;
            let identity = sa.remote.clone().unwrap_or_else(|| sa.connection.local.clone());
            let (connection, remote) = (sa.connection.name.clone(), sa.origin());
            cx.outputs.event(Event::Eap { sa: sa.id, identity, connection, remote, packet });
            return sa.pend();
        }
        return converse(sa, cx);
    }
    if !state.verified {
        return;
    }
    if let (true, Some(asked), None) = (gives, &state.configuration, &state.given) {
        let attributes = asked.attributes.clone();
        state.waits = Waits::Address;
        let identity = sa.peer();
        let (connection, remote) = (sa.connection.name.clone(), sa.origin());
        cx.outputs.event(Event::AddressWanted { sa: sa.id, identity, connection, remote, attributes });
        return sa.pend();
    }
    finish(sa, cx);
}

/// Sends EAP's packet: with the first of them, this side's proof.
fn converse(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let connection = sa.connection.clone();
    let identification = sa.own_identification();
    let Some(state) = state(sa) else { return };
    let Eap::Authenticator(authenticator) = &mut state.eap else { return };
    let packet = authenticator.poll_transmit().map(<[u8]>::to_vec);
    let end = authenticator.poll_end();
    let mut payloads = Vec::new();
    if !core::mem::replace(&mut state.proved, true) {
        payloads.push(identification);
        if let Some(proof) = state.proof.take() {
            payloads.extend(shown(sa));
            payloads.push(proof);
        }
    }
    let Some(state) = super::state(sa) else { return };
    match (packet, end) {
        (Some(packet), None) if state.eap_only && !is_safe_alone(&packet) => {
            return fail(sa, cx, EndReason::AuthenticationFailed);
        }
        (Some(packet), None) => payloads.push(Payload::Eap(packet)),
        (Some(packet), Some(End::Success)) => {
            payloads.push(Payload::Eap(packet));
            let (key, identity) = (state.key.take(), state.identity.take());
            if key.is_none() && state.eap_only {
                return fail(sa, cx, EndReason::AuthenticationFailed);
            }
            state.eap = Eap::Done(key);
            // From now on it is whom EAP has authenticated, not whom it said it is (RFC 7296 §2.16), so that the connection has to be
            // for that one.
            if connection.remote.is_some() && connection.remote != identity {
                return fail(sa, cx, EndReason::AuthenticationFailed);
            }
            sa.authenticated = identity;
        }
        (packet, Some(End::Failure)) => {
            payloads.extend(packet.map(Payload::Eap));
            cx.counters.authentication_failed += 1;
            sa.respond(cx, IKE_AUTH, &payloads);
            unproved(sa, cx);
            return sa.end_lingering(cx, EndReason::AuthenticationFailed);
        }
        _ => return fail(sa, cx, EndReason::Helper),
    }
    sa.respond(cx, IKE_AUTH, &payloads);
}

/// What was asked by [`Event::Eap`] is answered.
pub(in super::super) fn eap(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    answer: EapAnswer,
) -> Result<(), CommandError> {
    let waiting = state(sa).filter(|state| state.waits == Waits::Eap);
    let state = waiting.ok_or(CommandError::WrongState("no EAP packet of it is judged"))?;
    state.waits = Waits::Nobody;
    let Eap::Authenticator(authenticator) = &mut state.eap else { return Ok(()) };
    let answer = match &answer {
        EapAnswer::Continue(packet) => Answer::Request(packet),
        EapAnswer::Accept { packet, msk, identity } => {
            state.key.clone_from(msk);
            state.identity = Some(identity.clone());
            Answer::Success(packet)
        }
        EapAnswer::Reject { packet } => Answer::Failure(packet),
        EapAnswer::Unanswered => Answer::Timeout,
    };
    authenticator.answer(cx.now, answer);
    converse(sa, cx);
    Ok(())
}

/// What was asked by [`Event::AddressWanted`] is answered.
pub(in super::super) fn address(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    attributes: Vec<ConfigurationAttribute>,
) -> Result<(), CommandError> {
    let waiting = state(sa).filter(|state| state.waits == Waits::Address);
    let state = waiting.ok_or(CommandError::WrongState("it waits for no address"))?;
    state.waits = Waits::Nobody;
    state.given = Some(attributes);
    go_on(sa, cx);
    Ok(())
}

/// Both have proved who they are: the last response, and before it what is installed for it.
fn finish(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let (identification, connection) = (sa.own_identification(), sa.connection.clone());
    let Some(state) = state(sa) else { return };
    let mut payloads = Vec::new();
    let (resumed, wants_ticket) = (state.resumed.is_some(), state.wants_ticket);
    if matches!(state.eap, Eap::None) {
        payloads.push(identification);
        payloads.extend(shown(sa).into_iter().filter(|_| !resumed));
    }
    let Some(state) = super::state(sa) else { return };
    payloads.extend(state.proof.take());
    let nonces = (state.nonces().0.to_vec(), state.nonces().1.to_vec());
    let (child, given, contact) = (state.child.take(), state.given.take(), state.initial_contact);
    let mobike = state.mobike && connection.mobike;
    sa.establish(cx);
    sa.announce = true;
    sa.initial_contact = contact;
    sa.mobike = mobike;
    if sa.path.remote.ip() != sa.proved {
        // A NAT has given it another address than it began from: whether it is there is asked, and who is not there ends.
        sa.plan(if mobike { Task::Check } else { Task::Probe });
    }
    let remote = sa.peer();
    let (name, spis, path) = (connection.name.clone(), sa.spis, Path { remote: sa.origin(), ..sa.path });
    cx.outputs.event(Event::Established { sa: sa.id, connection: name, remote, spis, path });
    sa.given = given.iter().flatten().filter_map(ConfigurationAttribute::internal_address).collect();
    match given {
        // Without an address the CHILD_SA that was asked for makes no sense (§3.15.4).
        Some(given) if given.iter().all(|one| one.internal_address().is_none()) => {
            payloads.push(Payload::Notify(Notify::new(NotifyType::INTERNAL_ADDRESS_FAILURE)));
        }
        given => {
            if let Some(attributes) = given {
                payloads.push(Payload::Configuration(Configuration { kind: CfgType::CFG_REPLY, attributes }));
            }
            if let Some(child) = child {
                let proposals: Vec<_> =
                    child.proposals.iter().map(crate::payload::Proposal::without_key_exchange).collect();
                let asked = ChildAsked { proposals, ..child };
                let selected = child::select(sa, cx, &asked, true);
                let granted = selected.and_then(|selected| {
                    child::grant(sa, cx, selected, asked.transport, &Secrets::default(), &nonces, None)
                });
                match granted {
                    Ok(granted) => payloads.extend(granted),
                    Err(kind) => payloads.push(Payload::Notify(Notify::new(kind))),
                }
            }
        }
    }
    if mobike {
        payloads.push(Payload::Notify(Notify::new(NotifyType::MOBIKE_SUPPORTED)));
    }
    if wants_ticket {
        payloads.extend(resumption::give(sa, cx));
    }
    sa.respond(cx, IKE_AUTH, &payloads);
}

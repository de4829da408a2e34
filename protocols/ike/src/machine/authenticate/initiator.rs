//! IKE_AUTH of an initiator.

use super::super::child;
use super::super::config::{Childless, LocalAuth, Mode, RemoteAuth};
use super::super::create::Secrets;
use super::super::event::{EndReason, Event};
use super::super::sa::{Context, Exchange, IkeSa};
use super::{
    Eap, Waits, authentication, certificate_requests, configuration, eap, eap_holds, eap_proof, error, find,
    has, is_resumed, is_safe_alone, prove, shown, state, verify,
};
use crate::code::{CfgType, ConfigurationType, ExchangeType, NotifyType};
use crate::payload::{Configuration, ConfigurationAttribute, Notify, Payload};
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::address::is_host_address;
use usher_core::{Duration, SecureRng};
use usher_crypto::Key;
use usher_eap::peer::{self, Peer};

/// How long an EAP server may be silent between two requests: the IKE_SA's own retransmissions end sooner.
const EAP_PATIENCE: Duration = Duration::from_secs(600);

/// The IKE_SA has keys: this side proves who it is.
pub(in super::super) fn begin(sa: &mut IkeSa, cx: &mut Context<'_>) {
    if !prove(sa, cx) {
        return sa.end(cx, EndReason::Unsupported);
    }
    if state(sa).is_some_and(|state| state.waits == Waits::Nobody) {
        proved(sa, cx);
    }
}

/// Sends the first request; the proof is made, or there will be EAP.
pub(super) fn proved(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let connection = sa.connection.clone();
    let Some(state) = state(sa) else { return };
    let without_child = match (connection.childless, state.childless) {
        (Childless::Force, false) => return sa.end(cx, EndReason::Unsupported),
        (Childless::Force, true) => true,
        _ => connection.children.is_empty(),
    };
    if without_child && !state.childless {
        return sa.end(cx, EndReason::Unsupported);
    }
    let proof = state.proof.take();
    state.proved = proof.is_some();
    let resumed = state.resumed.is_some();
    let contact = sa.initial_contact;
    let mut payloads = alloc::vec![sa.own_identification()];
    // No certificate comes with a ticket (RFC 5723 §4.3.3).
    payloads.extend(shown(sa).into_iter().filter(|_| !resumed));
    if contact {
        payloads.push(Payload::Notify(Notify::new(NotifyType::INITIAL_CONTACT)));
    }
    if matches!(connection.remote_auth, RemoteAuth::Certificate { .. }) && !resumed {
        payloads.extend(certificate_requests(cx.config, &connection));
    }
    payloads.extend(connection.remote.clone().map(Payload::IdentificationResponder));
    payloads.extend(proof);
    if matches!(connection.remote_auth, RemoteAuth::EapOnly) && !resumed {
        payloads.push(Payload::Notify(Notify::new(NotifyType::EAP_ONLY_AUTHENTICATION)));
    }
    if connection.address {
        let wishes = [
            ConfigurationType::INTERNAL_IP4_ADDRESS,
            ConfigurationType::INTERNAL_IP6_ADDRESS,
            ConfigurationType::INTERNAL_IP4_DNS,
            ConfigurationType::INTERNAL_IP6_DNS,
            ConfigurationType::INTERNAL_DNS_DOMAIN,
        ];
        let before = sa.wished.iter().map(|address| {
            ConfigurationAttribute::address(*address, if address.is_ipv4() { 32 } else { 128 })
        });
        let before: Vec<_> = before.collect();
        let wish = |kind| {
            let same = before.iter().find(|one| one.kind == kind);
            same.cloned().unwrap_or(ConfigurationAttribute::wish(kind))
        };
        let attributes = wishes.map(wish).into();
        payloads.push(Payload::Configuration(Configuration { kind: CfgType::CFG_REQUEST, attributes }));
    }
    if connection.mobike {
        payloads.push(Payload::Notify(Notify::new(NotifyType::MOBIKE_SUPPORTED)));
    }
    if cx.config.tickets.is_some() {
        payloads.push(Payload::Notify(Notify::new(NotifyType::TICKET_REQUEST)));
    }
    if let (false, Some(first)) = (without_child, connection.children.first()) {
        let spi = child::new_spi(sa, cx);
        if first.mode == Mode::Transport {
            payloads.push(Payload::Notify(Notify::new(NotifyType::USE_TRANSPORT_MODE)));
        }
        let proposals: Vec<_> =
            first.proposals.iter().map(crate::payload::Proposal::without_key_exchange).collect();
        payloads.extend(child::offer(sa, first, &proposals, spi));
        if let Some(state) = super::state(sa) {
            state.child_spi = spi;
        }
    }
    sa.request(cx, ExchangeType::IKE_AUTH, &payloads, Exchange::Auth);
}

/// Ends the IKE_SA since the responder did not prove who it is, and says so once (RFC 7296 §2.21.2).
fn fail(sa: &mut IkeSa, cx: &mut Context<'_>, reason: EndReason) {
    cx.counters.authentication_failed += 1;
    let notify = [Payload::Notify(Notify::new(NotifyType::AUTHENTICATION_FAILED))];
    sa.request(cx, ExchangeType::INFORMATIONAL, &notify, Exchange::Delete(reason));
    sa.end(cx, reason);
}

pub(in super::super) fn response(sa: &mut IkeSa, cx: &mut Context<'_>, payloads: Vec<Payload>) {
    let refused = error(&payloads).filter(|_| authentication(&payloads).is_none());
    if let Some(notify) = refused {
        let reason = match notify.kind {
            NotifyType::NO_PROPOSAL_CHOSEN => EndReason::NoProposal,
            _ => EndReason::Refused,
        };
        return sa.end(cx, reason);
    }
    let Some(state) = state(sa) else { return };
    match &state.eap {
        Eap::None => first(sa, cx, payloads),
        Eap::Peer(_) => match eap(&payloads) {
            Some(packet) => converse(sa, cx, packet),
            None => fail(sa, cx, EndReason::Protocol),
        },
        Eap::Done(_) => match authentication(&payloads) {
            Some(proof) if eap_holds(sa, proof) => finish(sa, cx, &payloads),
            _ => fail(sa, cx, EndReason::AuthenticationFailed),
        },
        Eap::Authenticator(_) => {}
    }
}

fn first(sa: &mut IkeSa, cx: &mut Context<'_>, payloads: Vec<Payload>) {
    let id = find(&payloads, |payload| match payload {
        Payload::IdentificationResponder(id) => Some(id.clone()),
        _ => None,
    });
    let Some(id) = id else { return fail(sa, cx, EndReason::Protocol) };
    let before = state(sa).and_then(|state| Some(state.resumed.as_ref()?.1 != id));
    if before == Some(true) {
        return fail(sa, cx, EndReason::AuthenticationFailed);
    }
    if sa.connection.remote.as_ref().is_some_and(|wanted| *wanted != id) {
        return fail(sa, cx, EndReason::AuthenticationFailed);
    }
    sa.remote = Some(id);
    let Some(proof) = authentication(&payloads).cloned() else {
        if !sa.is_eap_peer() || !matches!(sa.connection.remote_auth, RemoteAuth::EapOnly) {
            return fail(sa, cx, EndReason::AuthenticationFailed);
        }
        if let Some(state) = state(sa) {
            state.eap_only = true;
        }
        return go_on(sa, cx, payloads);
    };
    match verify(sa, cx, &payloads, &proof) {
        Some(true) => go_on(sa, cx, payloads),
        Some(false) => fail(sa, cx, EndReason::AuthenticationFailed),
        None => {
            if let Some(state) = state(sa) {
                state.response = payloads;
            }
        }
    }
}

/// A helper has verified the responder's proof.
pub(super) fn verified(sa: &mut IkeSa, cx: &mut Context<'_>, holds: bool) {
    if !holds {
        return fail(sa, cx, EndReason::AuthenticationFailed);
    }
    let Some(state) = state(sa) else { return };
    let payloads = core::mem::take(&mut state.response);
    go_on(sa, cx, payloads);
}

fn go_on(sa: &mut IkeSa, cx: &mut Context<'_>, payloads: Vec<Payload>) {
    let connection = sa.connection.clone();
    let LocalAuth::Eap { identity, methods } = &connection.local_auth else {
        return finish(sa, cx, &payloads);
    };
    if is_resumed(sa) {
        return finish(sa, cx, &payloads);
    }
    let Some(packet) = eap(&payloads) else { return fail(sa, cx, EndReason::Protocol) };
    let config = peer::Config {
        identity: identity.clone(),
        methods: methods.clone(),
        timeout: EAP_PATIENCE,
        wall: cx.now.wall(cx.epoch),
    };
    let rng = SecureRng::from_seed(cx.random());
    if let Some(state) = state(sa) {
        state.eap = Eap::Peer(Box::new(Peer::new(config, rng, cx.now)));
    }
    converse(sa, cx, packet);
}

fn converse(sa: &mut IkeSa, cx: &mut Context<'_>, packet: &[u8]) {
    let Some(state) = state(sa) else { return };
    if state.eap_only && !is_safe_alone(packet) {
        // Whoever is in between would learn what it can guess a password by (RFC 5998 §3).
        return fail(sa, cx, EndReason::AuthenticationFailed);
    }
    let Eap::Peer(peer) = &mut state.eap else { return };
    peer.handle(cx.now, packet);
    while let Some(done) = peer.poll_work() {
        cx.outputs.work(done);
    }
    let mut out = Vec::new();
    if peer.poll_transmit(&mut out) {
        return sa.request(cx, ExchangeType::IKE_AUTH, &[Payload::Eap(out)], Exchange::Auth);
    }
    match peer.poll_event() {
        Some(peer::Event::Success { keys }) => {
            if keys.is_none() && state.eap_only {
                // Nothing would prove who the responder is (RFC 5998 §3).
                return fail(sa, cx, EndReason::AuthenticationFailed);
            }
            state.eap = Eap::Done(keys.map(|keys| Key::from(&keys.msk[..])));
            let Some(proof) = eap_proof(sa) else { return };
            sa.request(cx, ExchangeType::IKE_AUTH, &[proof], Exchange::Auth);
        }
        Some(_) => sa.end(cx, EndReason::Refused),
        // A packet that was discarded has no answer, and none will come after it.
        None => fail(sa, cx, EndReason::Protocol),
    }
}

/// The EAP server has been silent for too long.
pub(in super::super) fn eap_timed_out(sa: &mut IkeSa, cx: &mut Context<'_>) {
    sa.end(cx, EndReason::Unreachable);
}

/// Both have proved who they are.
fn finish(sa: &mut IkeSa, cx: &mut Context<'_>, payloads: &[Payload]) {
    let Some(state) = state(sa) else { return };
    let spi = state.child_spi;
    let nonces = (state.nonces().0.to_vec(), state.nonces().1.to_vec());
    let resumed = state.resumed.is_some();
    sa.establish(cx);
    cx.counters.resumed += u64::from(resumed);
    super::super::resumption::keep(sa, cx, payloads);
    sa.announce = true;
    sa.mobike = sa.connection.mobike && has(payloads, NotifyType::MOBIKE_SUPPORTED);
    let remote = sa.remote.clone().unwrap_or_else(|| sa.connection.local.clone());
    cx.outputs.event(Event::Established {
        sa: sa.id,
        connection: sa.connection.name.clone(),
        remote,
        spis: sa.spis,
        path: sa.path,
    });
    let given = configuration(payloads).filter(|c| c.kind == CfgType::CFG_REPLY);
    if let Some(given) = given {
        let attributes = given.attributes.iter().filter(|given| is_of_a_host(given)).cloned().collect();
        cx.outputs.event(Event::Configured { sa: sa.id, attributes });
    }
    if spi != 0 {
        let secrets = &Secrets::default();
        let made = child::Made { config: 0, spi, secrets, nonces: &nonces, replaces: None, first: true };
        child::accept(sa, cx, &made, payloads);
        // From now on this side's traffic is of the address that it was given.
        let attributes = given.iter().flat_map(|given| &given.attributes).filter(|given| is_of_a_host(given));
        sa.given = attributes.filter_map(ConfigurationAttribute::internal_address).collect();
    } else {
        // The CHILD_SAs that it was to begin with follow, now that there is an IKE_SA.
        let all =
            if sa.connection.childless == Childless::Force { sa.connection.children.len().min(1) } else { 0 };
        (0..all).for_each(|number| sa.plan(super::super::sa::Task::CreateChild(number)));
    }
    sa.go_on(cx);
}

/// Whether what a responder gives is not an address that no host can have, which this side does not take.
fn is_of_a_host(given: &ConfigurationAttribute) -> bool {
    given.internal_address().is_none_or(is_host_address)
}

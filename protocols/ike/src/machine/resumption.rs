//! IKE_SESSION_RESUME (RFC 5723): an IKE_SA that was lost is taken up again by a ticket, without key exchange and without asking
//! anew who the sides are.

use super::authenticate::{self, Authenticating};
use super::config::{Connection, RemoteAuth};
use super::event::EndReason;
use super::initial::{
    ATTEMPTS, Begins, NONCE, features, heed, move_to_nat_port, nat_detection, nat_found, path, restart,
};
use super::sa::{Context, IkeSa, Phase, Session, Task};
use super::tickets::{Held, State, owner};
use crate::code::{ExchangeType, NotifyType};
use crate::header::Spi;
use crate::keys::{IkeKeys, Seeds};
use crate::message::{Message, notifies};
use crate::payload::{Notify, Payload};
use crate::suite::{IkeAlgorithms, choose};
use crate::work;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_core::{Duration, Path};
use usher_crypto::Key;

/// What a ticket costs that an IKE_SA's client asks for, and the debt from which on it gets none: six a minute, and four at once.
const TICKET: Duration = Duration::from_secs(10);
const MOST_TICKETS: Duration = Duration::from_secs(30);

const IKE_SESSION_RESUME: ExchangeType = ExchangeType::IKE_SESSION_RESUME;

/// An initiator that waits for the answer to its ticket.
#[derive(Debug)]
pub(super) struct Resuming {
    held: Held,
    nonce: [u8; NONCE],
    cookie: Option<Vec<u8>>,
    attempts: u32,
    octets: Vec<u8>,
}

/// Takes up an IKE_SA by a ticket.
pub(super) fn begin(
    cx: &mut Context<'_>,
    connection: Arc<Connection>,
    (local, remote): (SocketAddr, SocketAddr),
    held: Held,
) -> Box<IkeSa> {
    let mut sa = Box::new(IkeSa::new(connection, true, path(local, remote), cx.now));
    sa.spis.0 = cx.spi();
    sa.proof_until = held.proof_until;
    sa.certificates.clone_from(&held.certificates);
    let nonce = cx.random();
    let mut resuming = Box::new(Resuming { held, nonce, cookie: None, attempts: 0, octets: Vec::new() });
    send(&mut sa, cx, &mut resuming);
    sa.phase = Phase::Resuming(resuming);
    sa
}

fn send(sa: &mut IkeSa, cx: &mut Context<'_>, resuming: &mut Resuming) {
    let mut payloads = Vec::new();
    if let Some(cookie) = &resuming.cookie {
        payloads.push(Payload::Notify(Notify::with(NotifyType::COOKIE, cookie.clone())));
    }
    payloads.push(Payload::Nonce(resuming.nonce.to_vec()));
    payloads.push(Payload::Notify(Notify::with(NotifyType::TICKET_OPAQUE, resuming.held.octets.clone())));
    payloads.extend(nat_detection(cx, sa.spis, sa.path));
    payloads.extend(features(&sa.connection, false, false));
    resuming.octets = sa.request_plain(cx, IKE_SESSION_RESUME, payloads);
}

/// The nonce of a first message.
pub(super) fn nonce(message: &Message) -> Option<&[u8]> {
    message.payloads.iter().find_map(|payload| match payload {
        Payload::Nonce(nonce) => Some(&nonce[..]),
        _ => None,
    })
}

/// Takes the response to a ticket. What it says is not authenticated yet.
pub(super) fn response(sa: &mut IkeSa, cx: &mut Context<'_>, message: &Message, octets: &[u8]) {
    let Phase::Resuming(resuming) = &mut sa.phase else {
        cx.counters.not_expected += 1;
        return;
    };
    if message.unsupported_critical().is_some() {
        cx.counters.critical += 1;
        return;
    }
    if let Some(cookie) = message.notify(NotifyType::COOKIE).map(|notify| &notify.data) {
        resuming.attempts += 1;
        if resuming.attempts > ATTEMPTS || !(1..=64).contains(&cookie.len()) {
            cx.counters.not_expected += 1;
            return;
        }
        resuming.cookie = Some(cookie.clone());
        sa.outstanding = None;
        let Phase::Resuming(mut resuming) = core::mem::replace(&mut sa.phase, Phase::Established) else {
            return;
        };
        send(sa, cx, &mut resuming);
        sa.phase = Phase::Resuming(resuming);
        return;
    }
    // The ticket is refused, or whoever is there does not know what it is: all is done anew (§4.3.2).
    if message.notifies().any(|notify| notify.kind == NotifyType::TICKET_NACK || notify.kind.is_error()) {
        return fall_back(sa, cx);
    }
    let theirs = nonce(message).filter(|_| !message.header.responder_spi.is_zero());
    let Some(theirs) = theirs else {
        cx.counters.syntax += 1;
        return;
    };
    let Phase::Resuming(resuming) = core::mem::replace(&mut sa.phase, Phase::Established) else { return };
    let Resuming { held, nonce, octets: first, .. } = *resuming;
    sa.outstanding = None;
    sa.spis.1 = message.header.responder_spi;
    let mut authenticating = Authenticating::new(first, octets.to_vec(), nonce.to_vec(), theirs.to_vec());
    heed(sa, &mut authenticating, message);
    sa.nat = nat_found(cx, &message.payloads, sa.spis, sa.path);
    let traverses = sa.connection.mobike && message.notify(NotifyType::NAT_DETECTION_SOURCE_IP).is_some();
    if sa.nat.0 || sa.nat.1 || traverses {
        move_to_nat_port(sa);
    }
    sa.suite = Some(Box::new(held.suite));
    if !derive(sa, cx, &held.sk_d, &authenticating) {
        return sa.end(cx, EndReason::Protocol);
    }
    authenticating.resumed = Some(Box::new(held.identities));
    sa.phase = Phase::Authenticating(Box::new(authenticating));
    authenticate::initiator::begin(sa, cx);
}

/// The ticket is of no use: an IKE_SA is made from the beginning.
pub(super) fn fall_back(sa: &mut IkeSa, cx: &mut Context<'_>) {
    cx.counters.tickets_refused += 1;
    sa.outstanding = None;
    (sa.proof_until, sa.certificates) = (None, Arc::new([]));
    if !restart(sa, cx) {
        sa.end(cx, EndReason::Unsupported);
    }
}

/// The keys of an IKE_SA that is taken up (§5.1).
fn derive(sa: &mut IkeSa, cx: &mut Context<'_>, sk_d: &Key, authenticating: &Authenticating) -> bool {
    let Some(algorithms) = sa.suite.as_deref().and_then(IkeAlgorithms::of) else { return false };
    let (initiator_nonce, responder_nonce) = authenticating.nonces();
    let seeds =
        Seeds { initiator_nonce, responder_nonce, initiator_spi: sa.spis.0, responder_spi: sa.spis.1 };
    cx.work(work::DERIVE);
    let keys = IkeKeys::resumed(&algorithms, sk_d, &seeds);
    sa.session = Session::new(algorithms, keys, sa.initiator);
    sa.tell_keys(cx);
    sa.session.is_some()
}

/// Takes a first request with a ticket.
pub(super) fn request(cx: &mut Context<'_>, path: Path, message: &Message, octets: &[u8]) -> Begins {
    if let Some(kind) = message.unsupported_critical() {
        cx.counters.critical += 1;
        return Begins::Refused(Notify::with(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, [kind.0]));
    }
    let (Some(theirs), Some(ticket)) = (nonce(message), message.notify(NotifyType::TICKET_OPAQUE)) else {
        cx.counters.syntax += 1;
        return Begins::Refused(Notify::new(NotifyType::INVALID_SYNTAX));
    };
    let wall = cx.now.wall(cx.epoch);
    let opened = cx.config.tickets.and_then(|_| cx.tickets.open(wall, &ticket.data));
    // What this side is configured for may have changed since.
    let found = opened.and_then(|(state, expires)| {
        let fits = |connection: &&Arc<Connection>| {
            connection.name == state.connection
                && connection.is_for(path.remote.ip())
                && connection.local == state.identities.1
                && connection.remote.as_ref().is_none_or(|remote| *remote == state.identities.0)
                && choose(&connection.proposals, core::slice::from_ref(&state.suite)).is_some()
        };
        Some((cx.connections.iter().find(fits)?.clone(), state, expires))
    });
    let refuse = |cx: &mut Context<'_>| {
        cx.counters.tickets_refused += 1;
        Begins::Refused(Notify::new(NotifyType::TICKET_NACK))
    };
    let Some((connection, state, expires)) = found else { return refuse(cx) };
    let State { id, suite, sk_d, identities, spi, proof_until, certificates, .. } = state;
    let mut sa = Box::new(IkeSa::new(connection, false, path, cx.now));
    sa.spis = (message.header.initiator_spi, cx.spi());
    sa.patience = Some(cx.now + cx.config.patience);
    (sa.suite, sa.ticket, sa.resumes) = (Some(Box::new(suite)), Some(id), Some(spi));
    (sa.ticket_expires, sa.proof_until, sa.certificates) = (expires, proof_until, certificates);
    let nonce: [u8; NONCE] = cx.random();
    let mut payloads = Vec::from([Payload::Nonce(nonce.to_vec())]);
    payloads.extend(nat_detection(cx, sa.spis, path));
    payloads.extend(features(&sa.connection, true, false));
    sa.nat = nat_found(cx, &message.payloads, (sa.spis.0, Spi::ZERO), path);
    let mut authenticating =
        Authenticating::new(octets.to_vec(), Vec::new(), theirs.to_vec(), nonce.to_vec());
    heed(&mut sa, &mut authenticating, message);
    authenticating.resumed = Some(Box::new(identities));
    if !derive(&mut sa, cx, &sk_d, &authenticating) {
        return refuse(cx);
    }
    authenticating.first.1 = sa.respond_plain(cx, IKE_SESSION_RESUME, payloads);
    sa.phase = Phase::Authenticating(Box::new(authenticating));
    Begins::Begun(sa)
}

/// The answer to who asks for a ticket; `None`: this side does not know tickets.
///
/// Whom an AAA server lets in by EAP it lets in each time anew: it could not refuse who comes by a ticket.
pub(super) fn give(sa: &mut IkeSa, cx: &mut Context<'_>) -> Option<Payload> {
    let lifetime = cx.config.tickets?;
    let given = ticket(sa, cx, lifetime);
    cx.counters.tickets_refused += u64::from(given.is_none());
    Some(Payload::Notify(given.unwrap_or(Notify::new(NotifyType::TICKET_NACK))))
}

fn ticket(sa: &mut IkeSa, cx: &mut Context<'_>, lifetime: Duration) -> Option<Notify> {
    if sa.client || matches!(sa.connection.remote_auth, RemoteAuth::Eap { .. }) {
        return None;
    }
    // What it was proved by may not be so any more: it is to be proved anew.
    if sa.era != cx.tickets.era() || sa.ticket_debt.is(cx.now) >= MOST_TICKETS {
        return None;
    }
    sa.ticket_debt.add(cx.now, TICKET);
    let identity = sa.remote.clone()?;
    // Who has but a key that is for anybody may call himself what he likes.
    let alone = matches!(sa.connection.remote_auth, RemoteAuth::Psk(_)) && sa.connection.remote.is_none();
    let state = State {
        id: cx.tickets.name(owner(&sa.connection.name, Some(&identity).filter(|_| !alone))),
        connection: sa.connection.name.clone(),
        suite: sa.suite.as_deref()?.clone(),
        sk_d: sa.session.as_ref()?.keys.sk_d.clone(),
        identities: (identity, sa.connection.local.clone()),
        spi: sa.own_spi(),
        proof_until: sa.proof_until,
        certificates: sa.certificates.clone(),
    };
    let times = (cx.now, cx.now.wall(cx.epoch));
    let (sealed, seconds) = cx.tickets.seal(times, lifetime, cx.rng, &state)?;
    cx.counters.tickets += 1;
    if let Some(before) = sa.ticket.replace(state.id) {
        cx.tickets.spend(times.1, cx.config, before);
    }
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    Some(Notify::with(NotifyType::TICKET_LT_OPAQUE, [&seconds.to_be_bytes()[..], &sealed].concat()))
}

/// An IKE_SA is taken up by its ticket, which is used now (§4.3.1). False: since its first message the ticket has expired, was used
/// by another, or what it stands for has changed.
pub(super) fn redeem(sa: &mut IkeSa, cx: &mut Context<'_>) -> bool {
    let Some(id) = sa.ticket.take() else { return false };
    let wall = cx.now.wall(cx.epoch);
    let redeemed = cx.tickets.redeem(wall, cx.config, (sa.era, id, sa.ticket_expires));
    cx.counters.tickets_refused += u64::from(!redeemed);
    redeemed
}

/// The ticket of an IKE_SA goes with it (§6.2).
fn spend(sa: &mut IkeSa, cx: &mut Context<'_>) {
    if let Some(id) = sa.ticket.take() {
        cx.tickets.spend(cx.now.wall(cx.epoch), cx.config, id);
    }
}

/// Keeps a ticket that the responder gave.
pub(super) fn keep(sa: &IkeSa, cx: &mut Context<'_>, payloads: &[Payload]) {
    let given = notifies(payloads).find(|notify| notify.kind == NotifyType::TICKET_LT_OPAQUE);
    let (Some(given), Some(_)) = (given, cx.config.tickets) else { return };
    let (Some((seconds, ticket)), Some(session)) = (given.data.split_first_chunk::<4>(), &sa.session) else {
        return;
    };
    let (Some(suite), Some(remote)) = (sa.suite.as_deref(), &sa.remote) else { return };
    if ticket.is_empty() || sa.era != cx.tickets.era() {
        return;
    }
    let identities = (sa.connection.local.clone(), remote.clone());
    let proof = (sa.proof_until, sa.certificates.clone());
    let held = Held::new(ticket.to_vec(), suite.clone(), session.keys.sk_d.clone(), identities, proof);
    let lifetime = Duration::from_secs(u32::from_be_bytes(*seconds).into());
    // Nor is the responder believed for longer than its own certificate holds.
    let now = cx.now.wall(cx.epoch).unix_secs();
    let proved = sa.proof_until.map(|until| Duration::from_secs(until.unix_secs().saturating_sub(now)));
    let lifetime = proved.map_or(lifetime, |proved| proved.min(lifetime));
    cx.tickets.keep(&sa.connection.name, cx.now, lifetime, held);
}

/// An IKE_SA has ended: unless the other side is merely out of reach, nobody takes it up again (§6.2).
pub(super) fn ended(sa: &mut IkeSa, cx: &mut Context<'_>, reason: EndReason) {
    if matches!(reason, EndReason::Unreachable | EndReason::HalfOpen) || sa.is_half_open() {
        return;
    }
    if sa.client && sa.suite.is_some() && reason != EndReason::Rekeyed {
        cx.tickets.forget(&sa.connection.name);
    }
    spend(sa, cx);
}

/// An IKE_SA has taken the place of another: its client asks for a ticket of it (§6.2).
pub(super) fn renew(sa: &mut IkeSa, cx: &Context<'_>) {
    if sa.client && cx.config.tickets.is_some() {
        sa.plan(Task::AskTicket);
    }
}

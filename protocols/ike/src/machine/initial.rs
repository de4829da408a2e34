//! IKE_SA_INIT (RFC 7296 §1.2, §2.6, §2.7, §2.23).

use super::authenticate::{self, AuthenticationState};
use super::config::{ChildlessPolicy, IkeConnectionConfig};
use super::event::EndReason;
use super::intermediate;
use super::sa::{IkeEndpointContext, IkeSa, IkeSaKeyState, SaPhase};
use super::{NAT_SOCKET, NAT_SOCKET_V6, SOCKET, SOCKET_V6};
use crate::code::{ExchangeType, HashAlgorithm, KeyExchangeMethod, NotifyType};
use crate::header::Spi;
use crate::keys::{IkeKeys, KeyDerivationInputs};
use crate::message::{IkeMessage, notify_payloads};
use crate::payload::{NotifyPayload, Payload, Proposal};
use crate::suite::{IkeAlgorithms, choose_proposal, exchange_algorithm, is_offered, number_proposals};
use crate::work;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::{DatagramPath, Duration};
use usher_crypto::digest::{constant_time_eq, sha1};
use usher_crypto::exchange::KeyExchange;

/// Octets of this side's nonces: at least half the key of the strongest function (§2.10).
pub(super) const NONCE: usize = 32;
/// Most changes of a first request at the responder's demand: for a cookie or another key exchange method.
pub(super) const ATTEMPTS: u32 = 5;

/// The port of IKE, and the port of IKE and ESP behind a NAT.
pub(super) const PORT: u16 = 500;
pub(super) const NAT_PORT: u16 = 4500;

/// The accepted hash algorithms of digital signatures (RFC 7427 §4).
pub(super) const HASHES: [HashAlgorithm; 3] =
    [HashAlgorithm::SHA2_256, HashAlgorithm::SHA2_384, HashAlgorithm::SHA2_512];

/// An initiator that awaits the IKE_SA_INIT response.
#[derive(Debug)]
pub(super) struct PendingSaInit {
    exchange: Box<dyn KeyExchange>,
    method: KeyExchangeMethod,
    nonce: [u8; NONCE],
    cookie: Option<Vec<u8>>,
    attempts: u32,
    octets: Vec<u8>,
    refusal: Option<UnauthenticatedRefusal>,
}

/// An error response to the first request. It may be forged, so the true response may still arrive (§2.21.1).
#[derive(Clone, Copy, Debug)]
struct UnauthenticatedRefusal {
    reason: EndReason,
    /// Number of retransmissions since.
    repeats: u32,
}

/// Retransmissions of a first request before a refusal counts, and their interval.
const REPEATS: (u32, Duration) = (2, Duration::from_secs(1));

impl SaPhase {
    /// Handles the timeout of a refused first request. Returns the next wait, or the reason to give up; `None` if it
    /// was not refused.
    pub(super) fn record_refused_repeat(&mut self) -> Option<Result<Duration, EndReason>> {
        let Self::InitSent(begun) = self else { return None };
        let refusal = begun.refusal.as_mut()?;
        refusal.repeats += 1;
        Some(if refusal.repeats > REPEATS.0 { Err(refusal.reason) } else { Ok(REPEATS.1) })
    }
}

/// Returns the NAT detection hash of an address, as its host knows it (§2.23).
fn nat_detection_hash(spis: (Spi, Spi), address: SocketAddr) -> [u8; 20] {
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(v4) => sha1(&[&spis.0.0, &spis.1.0, &v4.octets(), &port]),
        IpAddr::V6(v6) => sha1(&[&spis.0.0, &spis.1.0, &v6.octets(), &port]),
    }
}

/// True if this side claims to be behind a NAT: it wants ESP in UDP, or does not know its own address.
fn claims_to_be_behind_nat(cx: &IkeEndpointContext<'_>, path: DatagramPath) -> bool {
    cx.config.encapsulate || path.local.ip().is_unspecified()
}

pub(super) fn nat_detection(
    cx: &mut IkeEndpointContext<'_>,
    spis: (Spi, Spi),
    path: DatagramPath,
) -> [Payload; 2] {
    let source = if claims_to_be_behind_nat(cx, path) {
        cx.random_octets()
    } else {
        nat_detection_hash(spis, path.local)
    };
    [
        Payload::Notify(NotifyPayload::with_data(NotifyType::NAT_DETECTION_SOURCE_IP, source)),
        Payload::Notify(NotifyPayload::with_data(
            NotifyType::NAT_DETECTION_DESTINATION_IP,
            nat_detection_hash(spis, path.remote),
        )),
    ]
}

/// Detects a NAT in front of this side, and in front of the peer, from the peer's notifications.
pub(super) fn detect_nat_sides(
    cx: &IkeEndpointContext<'_>,
    payloads: &[Payload],
    spis: (Spi, Spi),
    path: DatagramPath,
) -> (bool, bool) {
    let differs = |kind, address| {
        let mut hashes = notify_payloads(payloads).filter(|notify| notify.kind == kind).peekable();
        let hash = nat_detection_hash(spis, address);
        hashes.peek().is_some() && !hashes.any(|notify| constant_time_eq(&notify.data, &hash))
    };
    let local = if claims_to_be_behind_nat(cx, path) {
        // This side sent a random hash instead of its address. So if the peer supports NAT traversal at all, there is a
        // NAT.
        notify_payloads(payloads).any(|notify| notify.kind == NotifyType::NAT_DETECTION_DESTINATION_IP)
    } else {
        differs(NotifyType::NAT_DETECTION_DESTINATION_IP, path.local)
    };
    (local, differs(NotifyType::NAT_DETECTION_SOURCE_IP, path.remote))
}

/// Returns the notifications of supported features. A responder names IKE_INTERMEDIATE only if its initiator did.
pub(super) fn feature_payloads(
    connection: &IkeConnectionConfig,
    responder: bool,
    intermediate: bool,
) -> Vec<Payload> {
    let mut all = Vec::new();
    if connection.fragmentation {
        all.push(Payload::Notify(NotifyPayload::new(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED)));
    }
    let hashes: Vec<u8> = HASHES.iter().flat_map(|hash| hash.0.to_be_bytes()).collect();
    all.push(Payload::Notify(NotifyPayload::with_data(NotifyType::SIGNATURE_HASH_ALGORITHMS, hashes)));
    if intermediate
        && connection.proposals.iter().any(|proposal| proposal.additional_exchanges().next().is_some())
    {
        all.push(Payload::Notify(NotifyPayload::new(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED)));
    }
    if responder && connection.childless != ChildlessPolicy::Never {
        all.push(Payload::Notify(NotifyPayload::new(NotifyType::CHILDLESS_IKEV2_SUPPORTED)));
    }
    all
}

/// Stores the features that the peer's first message names.
pub(super) fn apply_peer_features(
    sa: &mut IkeSa,
    authenticating: &mut AuthenticationState,
    message: &IkeMessage,
) {
    let has = |kind| message.find_notify(kind).is_some();
    sa.fragmentation = sa.connection.fragmentation && has(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED);
    authenticating.childless = has(NotifyType::CHILDLESS_IKEV2_SUPPORTED);
    if let Some(hashes) = message.find_notify(NotifyType::SIGNATURE_HASH_ALGORITHMS) {
        let numbers = hashes.data.as_chunks::<2>().0.iter();
        let known = numbers.map(|octets| HashAlgorithm(u16::from_be_bytes(*octets)));
        // RFC 7427, 4: only hashes that the peer names.
        authenticating.hashes = known.filter(|hash| HASHES.contains(hash)).collect();
    }
}

/// Begins an IKE_SA. `None` if none of its key exchange methods is built in.
pub(super) fn start_ike_sa(
    cx: &mut IkeEndpointContext<'_>,
    connection: Arc<IkeConnectionConfig>,
    local: SocketAddr,
    remote: SocketAddr,
) -> Option<Box<IkeSa>> {
    let mut sa = Box::new(IkeSa::new(connection, true, path_between(local, remote), cx.now));
    sa.spis.0 = cx.new_ike_spi();
    start_init_exchange(&mut sa, cx).then_some(sa)
}

/// Returns the path between a local address and a peer's address.
pub(super) fn path_between(local: SocketAddr, remote: SocketAddr) -> DatagramPath {
    // Only messages to port 500 have no marker, so any other port uses the NAT socket.
    let socket = match (remote.port() == PORT, remote.is_ipv4()) {
        (true, true) => SOCKET,
        (false, true) => NAT_SOCKET,
        (true, false) => SOCKET_V6,
        (false, false) => NAT_SOCKET_V6,
    };
    DatagramPath { socket, local, remote }
}

/// Sends the first request. False if none of its key exchange methods is built in.
pub(super) fn start_init_exchange(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) -> bool {
    let mut known = sa.connection.proposals.iter().filter_map(Proposal::key_exchange);
    let method = known.find(|method| exchange_algorithm(*method).is_some());
    let Some(mut begun) = method.and_then(|method| start_key_exchange(cx, method)) else { return false };
    send_init_request(sa, cx, &mut begun);
    sa.phase = SaPhase::InitSent(begun);
    true
}

fn start_key_exchange(
    cx: &mut IkeEndpointContext<'_>,
    method: KeyExchangeMethod,
) -> Option<Box<PendingSaInit>> {
    cx.count_work(work::KEY_EXCHANGE);
    let exchange = exchange_algorithm(method)?.start_exchange(cx.rng).ok()?;
    let nonce = cx.random_octets();
    let octets = Vec::new();
    Some(Box::new(PendingSaInit {
        exchange,
        method,
        nonce,
        cookie: None,
        attempts: 0,
        octets,
        refusal: None,
    }))
}

fn send_init_request(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, begun: &mut PendingSaInit) {
    let mut payloads = Vec::new();
    if let Some(cookie) = &begun.cookie {
        // RFC 7296, 2.6: the cookie comes first, and the rest stays unchanged.
        payloads.push(Payload::Notify(NotifyPayload::with_data(NotifyType::COOKIE, cookie.clone())));
    }
    payloads
        .push(Payload::SecurityAssociation(number_proposals(sa.connection.proposals.iter().cloned(), &[])));
    payloads
        .push(Payload::KeyExchange { method: begun.method, data: begun.exchange.public_value().to_vec() });
    payloads.push(Payload::Nonce(begun.nonce.to_vec()));
    payloads.extend(nat_detection(cx, sa.spis, sa.path));
    payloads.extend(feature_payloads(&sa.connection, false, true));
    begun.octets = sa.request_plain(cx, ExchangeType::IKE_SA_INIT, payloads);
}

/// Handles the response to the first request. It is not authenticated yet.
pub(super) fn handle_init_response(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    message: &IkeMessage,
    octets: &[u8],
) {
    let SaPhase::InitSent(begun) = &mut sa.phase else {
        cx.counters.not_expected += 1;
        return;
    };
    if message.unsupported_critical().is_some() {
        cx.counters.critical += 1;
        return;
    }
    let wanted = message
        .find_notify(NotifyType::INVALID_KE_PAYLOAD)
        .and_then(NotifyPayload::notification_number)
        .map(KeyExchangeMethod);
    let cookie = message.find_notify(NotifyType::COOKIE).map(|notify| &notify.data);
    if wanted.is_some() || cookie.is_some() {
        begun.attempts += 1;
        // RFC 7296, 2.6, 2.6.1: 1 to 64 octets; a cookie and another method may be requested in turn.
        if begun.attempts > ATTEMPTS || cookie.is_some_and(|cookie| !(1..=64).contains(&cookie.len())) {
            cx.counters.not_expected += 1;
            return;
        }
        // The responder continues the exchange, so an error that arrived before was forged.
        begun.refusal = None;
        if let Some(cookie) = cookie {
            begun.cookie = Some(cookie.clone());
        }
        let (attempts, cookie, nonce) = (begun.attempts, begun.cookie.clone(), begun.nonce);
        if let Some(method) = wanted {
            // RFC 7296, 2.7: the method must be among the offered ones and differ from the last.
            let offered = sa.connection.proposals.iter().any(|p| {
                p.transforms_of_kind(crate::code::TransformType::KE).any(|transform| transform.id == method.0)
            });
            if !offered || method == begun.method {
                cx.counters.not_expected += 1;
                return;
            }
            let Some(other) = start_key_exchange(cx, method) else { return };
            **begun = PendingSaInit { attempts, cookie, nonce, ..*other };
        }
        sa.outstanding = None;
        let SaPhase::InitSent(mut begun) = core::mem::replace(&mut sa.phase, SaPhase::Established) else {
            return;
        };
        send_init_request(sa, cx, &mut begun);
        sa.phase = SaPhase::InitSent(begun);
        return;
    }
    if let Some(error) = message.notifications().find(|notify| notify.kind.is_error()) {
        let reason = match error.kind {
            NotifyType::NO_PROPOSAL_CHOSEN => EndReason::NoProposal,
            _ => EndReason::Refused,
        };
        if begun.refusal.is_none() {
            begun.refusal = Some(UnauthenticatedRefusal { reason, repeats: 0 });
            let soon = cx.now + REPEATS.1;
            if let Some(outstanding) = &mut sa.outstanding {
                outstanding.due = outstanding.due.min(soon);
            }
        }
        return;
    }
    let answer = SaInitPayloads::from_message(message).filter(|_| !message.header.responder_spi.is_zero());
    let Some(answer) = answer else {
        cx.counters.syntax += 1;
        return;
    };
    let chosen = match answer.proposals {
        // RFC 7296, 2.7, 3.3.6: the choice must have been offered.
        [chosen] if is_offered(&number_proposals(sa.connection.proposals.iter().cloned(), &[]), chosen) => {
            chosen
        }
        _ => return sa.end_sa(cx, EndReason::NoProposal),
    };
    let algorithms =
        IkeAlgorithms::from_proposal(chosen).filter(|_| chosen.key_exchange() == Some(answer.method));
    let (Some(algorithms), true) = (algorithms, answer.method == begun.method) else {
        return sa.end_sa(cx, EndReason::NoProposal);
    };
    let additional: VecDeque<_> = chosen.additional_exchanges().collect();
    let suite = cx.config.tickets.map(|_| Box::new(chosen.clone()));
    // RFC 9242, 3.1: IKE_INTERMEDIATE only if both sides support it.
    if !additional.is_empty() && message.find_notify(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED).is_none() {
        return sa.end_sa(cx, EndReason::NoProposal);
    }
    let SaPhase::InitSent(begun) = core::mem::replace(&mut sa.phase, SaPhase::Established) else { return };
    sa.outstanding = None;
    sa.suite = suite;
    sa.spis.1 = message.header.responder_spi;
    cx.count_work(work::KEY_EXCHANGE);
    let Ok(secret) = begun.exchange.derive_secret(answer.public) else {
        return sa.end_sa(cx, EndReason::Protocol);
    };
    let mut authenticating =
        AuthenticationState::new(begun.octets, octets.to_vec(), begun.nonce.to_vec(), answer.nonce.to_vec());
    apply_peer_features(sa, &mut authenticating, message);
    authenticating.ocsp_wanted = authenticate::requests_ocsp(&message.payloads);
    sa.nat = detect_nat_sides(cx, &message.payloads, sa.spis, sa.path);
    // With MOBIKE, the IKE_SA may later move to a path with a NAT (RFC 4555 §3.3).
    let traverses =
        sa.connection.mobike && message.find_notify(NotifyType::NAT_DETECTION_SOURCE_IP).is_some();
    if sa.nat.0 || sa.nat.1 || traverses {
        move_to_nat_port(sa);
    }
    if !derive_keys(sa, cx, algorithms, &secret, &authenticating) {
        return sa.end_sa(cx, EndReason::Protocol);
    }
    authenticating.additional = additional;
    sa.phase = SaPhase::Authenticating(Box::new(authenticating));
    intermediate::start_intermediate(sa, cx);
}

/// Changes to port 4500 behind a NAT, from the message after IKE_SA_INIT on (§2.23).
pub(super) fn move_to_nat_port(sa: &mut IkeSa) {
    if sa.path.remote.port() == PORT {
        sa.path.remote.set_port(NAT_PORT);
        if sa.path.local.port() == PORT {
            sa.path.local.set_port(NAT_PORT);
        }
        sa.path.socket = if sa.path.remote.is_ipv4() { NAT_SOCKET } else { NAT_SOCKET_V6 };
    }
}

fn derive_keys(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    algorithms: IkeAlgorithms,
    secret: &[u8],
    authenticating: &AuthenticationState,
) -> bool {
    let (initiator_nonce, responder_nonce) = authenticating.nonces();
    let seeds = KeyDerivationInputs {
        initiator_nonce,
        responder_nonce,
        initiator_spi: sa.spis.0,
        responder_spi: sa.spis.1,
    };
    cx.count_work(work::DERIVE);
    let keys = IkeKeys::from_key_exchange(&algorithms, secret, &seeds);
    sa.session = IkeSaKeyState::new(algorithms, keys, sa.initiator);
    sa.report_keys(cx);
    sa.session.is_some()
}

/// The required payloads of both first messages.
struct SaInitPayloads<'a> {
    proposals: &'a [Proposal],
    method: KeyExchangeMethod,
    public: &'a [u8],
    nonce: &'a [u8],
}

impl<'a> SaInitPayloads<'a> {
    fn from_message(message: &'a IkeMessage) -> Option<Self> {
        let (mut proposals, mut exchange, mut nonce) = (None, None, None);
        for payload in &message.payloads {
            let again = match payload {
                Payload::SecurityAssociation(all) => proposals.replace(&all[..]).is_some(),
                Payload::KeyExchange { method, data } => exchange.replace((*method, &data[..])).is_some(),
                Payload::Nonce(octets) => nonce.replace(&octets[..]).is_some(),
                _ => false,
            };
            if again {
                return None;
            }
        }
        let (method, public) = exchange?;
        Some(Self { proposals: proposals?, method, public, nonce: nonce? })
    }
}

/// The outcome of a first request.
pub(super) enum FirstRequestOutcome {
    /// It is refused, and no state is kept.
    Refused(NotifyPayload),
    /// An IKE_SA begins. Its response has been sent.
    Accepted(Box<IkeSa>),
}

/// Returns the nonce of a first request, if any: an input of the cookie.
pub(super) fn find_init_nonce(message: &IkeMessage) -> Option<&[u8]> {
    SaInitPayloads::from_message(message).map(|answer| answer.nonce)
}

/// Handles a first request.
pub(super) fn handle_init_request(
    cx: &mut IkeEndpointContext<'_>,
    path: DatagramPath,
    message: &IkeMessage,
    octets: &[u8],
) -> FirstRequestOutcome {
    if let Some(kind) = message.unsupported_critical() {
        cx.counters.critical += 1;
        return FirstRequestOutcome::Refused(NotifyPayload::with_data(
            NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD,
            [kind.0],
        ));
    }
    let Some(asked) = SaInitPayloads::from_message(message) else {
        cx.counters.syntax += 1;
        return FirstRequestOutcome::Refused(NotifyPayload::new(NotifyType::INVALID_SYNTAX));
    };
    let intermediate = message.find_notify(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED).is_some();
    let chosen = cx.connections.iter().find_map(|connection| {
        let proposal = choose_proposal(&connection.proposals, asked.proposals)?;
        // RFC 9242, 3.1: IKE_INTERMEDIATE only if both sides support it.
        if !intermediate && proposal.additional_exchanges().next().is_some() {
            return None;
        }
        let algorithms = IkeAlgorithms::from_proposal(&proposal)?;
        Some((connection.clone(), proposal, algorithms))
    });
    let Some((connection, mut proposal, mut algorithms)) = chosen else {
        cx.counters.no_proposal += 1;
        return FirstRequestOutcome::Refused(NotifyPayload::new(NotifyType::NO_PROPOSAL_CHOSEN));
    };
    if proposal.key_exchange() != Some(asked.method) {
        // The method that the initiator guessed may save a round trip. It must be the first acceptable method of the
        // initiator's own order. An attacker may have forced a later one by a forged INVALID_KE_PAYLOAD.
        let guessed = single_method_proposal(asked.method, &proposal);
        let narrowed: Vec<_> = asked.proposals.iter().map(|p| with_key_exchanges_of(p, &guessed)).collect();
        let first =
            first_acceptable_key_exchange(&connection, asked.proposals, &proposal) == Some(asked.method);
        let better = choose_proposal(&connection.proposals, &narrowed).filter(|_| first);
        match better.and_then(|proposal| Some((IkeAlgorithms::from_proposal(&proposal)?, proposal))) {
            Some((found, same)) => (algorithms, proposal) = (found, same),
            None => {
                // RFC 7296, 3.4: another method than the chosen one is answered with INVALID_KE_PAYLOAD.
                cx.counters.invalid_ke += 1;
                let method = proposal.key_exchange().map_or(0, |method| method.0);
                return FirstRequestOutcome::Refused(NotifyPayload::with_data(
                    NotifyType::INVALID_KE_PAYLOAD,
                    method.to_be_bytes(),
                ));
            }
        }
    }
    cx.count_answered_exchange(algorithms.exchange);
    let Ok((public, secret)) = algorithms.exchange.answer_exchange(cx.rng, asked.public) else {
        cx.counters.syntax += 1;
        return FirstRequestOutcome::Refused(NotifyPayload::new(NotifyType::INVALID_SYNTAX));
    };
    let mut sa = Box::new(IkeSa::new(connection, false, path, cx.now));
    sa.spis = (message.header.initiator_spi, cx.new_ike_spi());
    sa.expiry_deadline = Some(cx.now + cx.config.proof_timeout);
    let nonce: [u8; NONCE] = cx.random_octets();
    let method = asked.method;
    let mut payloads = alloc::vec![
        Payload::SecurityAssociation([proposal.clone()].into()),
        Payload::KeyExchange { method, data: public },
        Payload::Nonce(nonce.to_vec()),
    ];
    payloads.extend(nat_detection(cx, sa.spis, path));
    if matches!(sa.connection.remote_auth, super::config::RemoteAuth::Certificate { .. }) {
        payloads.extend(authenticate::certificate_requests(cx.config, &sa.connection));
    }
    payloads.extend(feature_payloads(&sa.connection, true, intermediate));
    // The initiator computed its hashes before it knew the responder's SPI: they are of its own SPI and zero (§2.23).
    sa.nat = detect_nat_sides(cx, &message.payloads, (sa.spis.0, Spi::ZERO), path);
    let mut authenticating =
        AuthenticationState::new(octets.to_vec(), Vec::new(), asked.nonce.to_vec(), nonce.to_vec());
    authenticating.additional = proposal.additional_exchanges().collect();
    sa.suite = cx.config.tickets.map(|_| Box::new(proposal.clone()));
    authenticating.chosen = Some(proposal);
    apply_peer_features(&mut sa, &mut authenticating, message);
    if !derive_keys(&mut sa, cx, algorithms, &secret, &authenticating) {
        return FirstRequestOutcome::Refused(NotifyPayload::new(NotifyType::NO_PROPOSAL_CHOSEN));
    }
    authenticating.first.1 = sa.respond_plain(cx, ExchangeType::IKE_SA_INIT, payloads);
    sa.phase = SaPhase::Authenticating(Box::new(authenticating));
    FirstRequestOutcome::Accepted(sa)
}

/// Returns a proposal with this key exchange method alone.
fn single_method_proposal(method: KeyExchangeMethod, like: &Proposal) -> Proposal {
    let transform = crate::payload::Transform::new(crate::code::TransformType::KE, method.0);
    Proposal { transforms: [transform].into(), ..like.clone() }
}

/// Returns the first key exchange method, in the initiator's order, that a connection accepts.
fn first_acceptable_key_exchange(
    connection: &IkeConnectionConfig,
    asked: &[Proposal],
    like: &Proposal,
) -> Option<KeyExchangeMethod> {
    let kind = crate::code::TransformType::KE;
    let all = asked.iter().flat_map(|proposal| {
        proposal.transforms_of_kind(kind).map(move |transform| (proposal, transform.id))
    });
    let mut methods = all.map(|(proposal, id)| (proposal, KeyExchangeMethod(id)));
    let takes = |(proposal, method): &(&Proposal, KeyExchangeMethod)| {
        let narrowed = with_key_exchanges_of(proposal, &single_method_proposal(*method, like));
        choose_proposal(&connection.proposals, core::slice::from_ref(&narrowed)).is_some()
    };
    methods.find(takes).map(|(_, method)| method)
}

/// Returns a proposal with only the key exchange methods of another.
fn with_key_exchanges_of(proposal: &Proposal, other: &Proposal) -> Proposal {
    let kind = crate::code::TransformType::KE;
    let mut proposal = proposal.clone();
    proposal.transforms.retain(|t| t.kind != kind || other.transforms_of_kind(kind).any(|o| o.id == t.id));
    proposal
}

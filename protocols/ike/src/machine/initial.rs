//! IKE_SA_INIT (RFC 7296 §1.2, §2.6, §2.7, §2.23).

use super::authentication::{
    AuthenticationState, InitiatorAuthentication, InitiatorWishes, ResponderAuthentication,
    certificate_requests, requests_ocsp,
};
use super::base::{IkeSaBase, NONCE};
use super::config::{ChildlessPolicy, IkeConnectionConfig, RemoteAuth};
use super::context::IkeEndpointContext;
use super::event::EndReason;
use super::nat::{detect_nat_sides, nat_detection};
use super::phase::{PendingSaInit, SaPhase, UnauthenticatedRefusal};
use super::sockets::move_to_nat_port;
use crate::code::{ExchangeType, HashAlgorithm, KeyExchangeMethod, NotifyType, TransformType};
use crate::header::Spi;
use crate::keys::IkeKeys;
use crate::message::IkeMessage;
use crate::payload::{NotifyPayload, Payload, Proposal};
use crate::suite::{IkeAlgorithms, choose_proposal, exchange_algorithm, is_offered, number_proposals};
use crate::work;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::{DatagramPath, Duration};
use usher_crypto::exchange::KeyExchange;

/// Most changes of a first request at the responder's demand: for a cookie or another key exchange method.
pub(super) const ATTEMPTS: u32 = 5;

/// The accepted hash algorithms of digital signatures (RFC 7427 §4).
pub(super) const HASHES: [HashAlgorithm; 3] =
    [HashAlgorithm::SHA2_256, HashAlgorithm::SHA2_384, HashAlgorithm::SHA2_512];

/// Retransmissions of a first request before a refusal counts, and their interval.
const REPEATS: (u32, Duration) = (2, Duration::from_secs(1));

impl PendingSaInit {
    /// Handles the timeout of a refused first request. Returns the next wait; `None` if it was not refused.
    ///
    /// # Errors
    /// The reason to give up.
    pub(super) fn record_refused_repeat(&mut self) -> Result<Option<Duration>, EndReason> {
        let Some(refusal) = &mut self.refusal else { return Ok(None) };
        refusal.repeats += 1;
        if refusal.repeats > REPEATS.0 { Err(refusal.reason) } else { Ok(Some(REPEATS.1)) }
    }
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
    sa: &mut IkeSaBase,
    authenticating: &mut AuthenticationState,
    message: &IkeMessage,
) {
    let has = |kind| message.find_notify(kind).is_some();
    sa.fragmentation = sa.connection.fragmentation && has(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED);
    if let Some(hashes) = message.find_notify(NotifyType::SIGNATURE_HASH_ALGORITHMS) {
        let numbers = hashes.data.as_chunks::<2>().0.iter();
        let known = numbers.map(|octets| HashAlgorithm(u16::from_be_bytes(*octets)));
        // RFC 7427, 4: only hashes that the peer names.
        authenticating.hashes = known.filter(|hash| HASHES.contains(hash)).collect();
    }
}

/// Sends the first request. `None` if none of the connection's key exchange methods is built in.
pub(super) fn start_init_exchange(
    sa: &mut IkeSaBase,
    cx: &mut IkeEndpointContext,
    wishes: InitiatorWishes,
) -> Option<Box<PendingSaInit>> {
    let mut known = sa.connection.proposals.iter().filter_map(Proposal::key_exchange);
    let method = known.find(|method| exchange_algorithm(*method).is_some())?;
    let exchange = start_key_exchange(cx, method)?;
    let (nonce, cookie, octets) = (cx.random_octets(), None, Vec::new());
    let mut begun = Box::new(PendingSaInit {
        exchange,
        method,
        nonce,
        cookie,
        attempts: 0,
        octets,
        refusal: None,
        wishes,
    });
    send_init_request(sa, cx, &mut begun);
    Some(begun)
}

fn start_key_exchange(
    cx: &mut IkeEndpointContext,
    method: KeyExchangeMethod,
) -> Option<Box<dyn KeyExchange>> {
    cx.count_work(work::KEY_EXCHANGE);
    exchange_algorithm(method)?.start_exchange(&mut cx.rng).ok()
}

fn send_init_request(sa: &mut IkeSaBase, cx: &mut IkeEndpointContext, begun: &mut PendingSaInit) {
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
///
/// # Errors
/// The reason why the IKE_SA ends.
pub(super) fn handle_init_response(
    sa: &mut IkeSaBase,
    cx: &mut IkeEndpointContext,
    mut begun: Box<PendingSaInit>,
    message: &IkeMessage,
    octets: &[u8],
) -> Result<SaPhase, EndReason> {
    if message.unsupported_critical().is_some() {
        cx.counters.critical += 1;
        return Ok(SaPhase::InitSent(begun));
    }
    let wanted = message
        .find_notify(NotifyType::INVALID_KE_PAYLOAD)
        .and_then(NotifyPayload::notification_number)
        .map(KeyExchangeMethod);
    let cookie = message.find_notify(NotifyType::COOKIE).map(|notify| &notify.data);
    if wanted.is_some() || cookie.is_some() {
        retry_init_request(sa, cx, &mut begun, wanted, cookie);
        return Ok(SaPhase::InitSent(begun));
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
        return Ok(SaPhase::InitSent(begun));
    }
    let answer = SaInitPayloads::from_message(message).filter(|_| !message.header.responder_spi.is_zero());
    let Some(answer) = answer else {
        cx.counters.syntax += 1;
        return Ok(SaPhase::InitSent(begun));
    };
    let offered = number_proposals(sa.connection.proposals.iter().cloned(), &[]);
    let chosen = match answer.proposals {
        // RFC 7296, 2.7, 3.3.6: the choice must have been offered.
        [chosen] if is_offered(&offered, chosen) => chosen,
        _ => return Err(EndReason::NoProposal),
    };
    let algorithms =
        IkeAlgorithms::from_proposal(chosen).filter(|_| chosen.key_exchange() == Some(answer.method));
    let (Some(algorithms), true) = (algorithms, answer.method == begun.method) else {
        return Err(EndReason::NoProposal);
    };
    let additional: VecDeque<_> = chosen.additional_exchanges().collect();
    // RFC 9242, 3.1: IKE_INTERMEDIATE only if both sides support it.
    if !additional.is_empty() && message.find_notify(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED).is_none() {
        return Err(EndReason::NoProposal);
    }
    let PendingSaInit { exchange, nonce, octets: first, wishes, .. } = *begun;
    sa.outstanding = None;
    sa.suite = cx.config.tickets.map(|_| Box::new(chosen.clone()));
    sa.spis.1 = message.header.responder_spi;
    cx.count_work(work::KEY_EXCHANGE);
    let secret = exchange.derive_secret(answer.public).map_err(|_| EndReason::Protocol)?;
    let nonces = (nonce.to_vec(), answer.nonce.to_vec());
    let mut common = AuthenticationState::new(first, octets.to_vec(), nonces);
    let childless = apply_response(sa, cx, &mut common, message);
    common.ocsp_wanted = requests_ocsp(&message.payloads);
    common.additional = additional;
    if !derive_keys(sa, cx, algorithms, &secret, &common) {
        return Err(EndReason::Protocol);
    }
    let state = InitiatorAuthentication { childless, ..InitiatorAuthentication::new(common, wishes) };
    Ok(SaPhase::Initiating(Box::new(state)))
}

/// Sends the first request again, with what the responder demands: a cookie, or another key exchange method.
fn retry_init_request(
    sa: &mut IkeSaBase,
    cx: &mut IkeEndpointContext,
    begun: &mut PendingSaInit,
    wanted: Option<KeyExchangeMethod>,
    cookie: Option<&Vec<u8>>,
) {
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
    if let Some(method) = wanted {
        // RFC 7296, 2.7: the method must be among the offered ones and differ from the last.
        let offered = sa
            .connection
            .proposals
            .iter()
            .any(|p| p.transforms_of_kind(TransformType::KE).any(|transform| transform.id == method.0));
        if !offered || method == begun.method {
            cx.counters.not_expected += 1;
            return;
        }
        let Some(exchange) = start_key_exchange(cx, method) else { return };
        (begun.exchange, begun.method) = (exchange, method);
    }
    sa.outstanding = None;
    send_init_request(sa, cx, begun);
}

/// Stores the features and the NATs that the responder's first message shows, and changes to port 4500 if need be. True
/// if the responder supports an IKE_SA without a CHILD_SA.
pub(super) fn apply_response(
    sa: &mut IkeSaBase,
    cx: &IkeEndpointContext,
    authenticating: &mut AuthenticationState,
    message: &IkeMessage,
) -> bool {
    apply_peer_features(sa, authenticating, message);
    sa.nat = detect_nat_sides(cx, &message.payloads, sa.spis, sa.path);
    // With MOBIKE, the IKE_SA may later move to a path with a NAT (RFC 4555 §3.3).
    let traverses =
        sa.connection.mobike && message.find_notify(NotifyType::NAT_DETECTION_SOURCE_IP).is_some();
    if sa.nat.0 || sa.nat.1 || traverses {
        move_to_nat_port(&mut sa.path);
    }
    message.find_notify(NotifyType::CHILDLESS_IKEV2_SUPPORTED).is_some()
}

fn derive_keys(
    sa: &mut IkeSaBase,
    cx: &mut IkeEndpointContext,
    algorithms: IkeAlgorithms,
    secret: &[u8],
    authenticating: &AuthenticationState,
) -> bool {
    cx.count_work(work::DERIVE);
    let seeds = sa.key_derivation_inputs(&authenticating.nonces);
    let keys = IkeKeys::from_key_exchange(&algorithms, secret, &seeds);
    sa.set_keys(cx, algorithms, keys)
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
    Accepted(Box<IkeSaBase>, Box<ResponderAuthentication>),
}

/// Returns the nonce of a first request, if any: an input of the cookie.
pub(super) fn find_init_nonce(message: &IkeMessage) -> Option<&[u8]> {
    SaInitPayloads::from_message(message).map(|answer| answer.nonce)
}

/// Handles a first request.
pub(super) fn handle_init_request(
    cx: &mut IkeEndpointContext,
    path: DatagramPath,
    message: &IkeMessage,
    octets: &[u8],
) -> FirstRequestOutcome {
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
    let Ok((public, secret)) = algorithms.exchange.answer_exchange(&mut cx.rng, asked.public) else {
        cx.counters.syntax += 1;
        return FirstRequestOutcome::Refused(NotifyPayload::new(NotifyType::INVALID_SYNTAX));
    };
    let mut sa = Box::new(IkeSaBase::new(connection, false, path, cx.now));
    sa.spis = (message.header.initiator_spi, cx.new_ike_spi());
    let nonce: [u8; NONCE] = cx.random_octets();
    let method = asked.method;
    let mut payloads = alloc::vec![
        Payload::SecurityAssociation([proposal.clone()].into()),
        Payload::KeyExchange { method, data: public },
        Payload::Nonce(nonce.to_vec()),
    ];
    payloads.extend(nat_detection(cx, sa.spis, path));
    if matches!(sa.connection.remote_auth, RemoteAuth::Certificate { .. }) {
        payloads.extend(certificate_requests(&cx.config, &sa.connection));
    }
    payloads.extend(feature_payloads(&sa.connection, true, intermediate));
    // The initiator computed its hashes before it knew the responder's SPI: they are of its own SPI and zero (§2.23).
    sa.nat = detect_nat_sides(cx, &message.payloads, (sa.spis.0, Spi::ZERO), path);
    let nonces = (asked.nonce.to_vec(), nonce.to_vec());
    let mut common = AuthenticationState::new(octets.to_vec(), Vec::new(), nonces);
    common.additional = proposal.additional_exchanges().collect();
    sa.suite = cx.config.tickets.map(|_| Box::new(proposal.clone()));
    apply_peer_features(&mut sa, &mut common, message);
    if !derive_keys(&mut sa, cx, algorithms, &secret, &common) {
        return FirstRequestOutcome::Refused(NotifyPayload::new(NotifyType::NO_PROPOSAL_CHOSEN));
    }
    common.first.1 = sa.respond_plain(cx, ExchangeType::IKE_SA_INIT, payloads);
    let state = Box::new(ResponderAuthentication::new(common, cx, Some(proposal), None));
    FirstRequestOutcome::Accepted(sa, state)
}

/// Returns a proposal with this key exchange method alone.
fn single_method_proposal(method: KeyExchangeMethod, like: &Proposal) -> Proposal {
    let transform = crate::payload::Transform::new(TransformType::KE, method.0);
    Proposal { transforms: [transform].into(), ..like.clone() }
}

/// Returns the first key exchange method, in the initiator's order, that a connection accepts.
fn first_acceptable_key_exchange(
    connection: &IkeConnectionConfig,
    asked: &[Proposal],
    like: &Proposal,
) -> Option<KeyExchangeMethod> {
    let kind = TransformType::KE;
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
    let kind = TransformType::KE;
    let mut proposal = proposal.clone();
    proposal.transforms.retain(|t| t.kind != kind || other.transforms_of_kind(kind).any(|o| o.id == t.id));
    proposal
}

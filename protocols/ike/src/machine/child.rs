//! CHILD_SAs: their traffic selectors (RFC 7296 §2.9), keys (§2.17), creation and removal.

use super::base::{IkeSaBase, NoncePair};
use super::collision::ChildState;
use super::config::{ChildSaConfig, IpsecMode, ShardIndex};
use super::context::IkeEndpointContext;
use super::established::{
    ChildSaEntry, EstablishedSa, ExpectedFollowup, GrantedChildSa, IkeSaTask, KeyExchangeSecrets,
    PendingFollowupSa,
};
use super::event::{ChildSa, IkeEvent};
use crate::code::{NotifyType, ProtocolId, TransformType};
use crate::message::{find_payload, has_notify, notify_payloads};
use crate::payload::{NotifyPayload, Payload, Proposal, TrafficSelector, TrafficSelectors};
use crate::suite::{PacketAlgorithms, choose_proposal, is_offered, number_proposals};
use crate::work;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::SecureRng;
use usher_core::address::is_host_address;

/// Most CHILD_SAs of an IKE_SA, with those that are being rekeyed.
pub(super) const MOST: usize = 64;
/// Lower SPIs are reserved (RFC 4303 §2.1).
const FIRST_SPI: u32 = 256;

/// The CHILD_SA that a request asks for, or that a response grants.
#[derive(Debug)]
pub(super) struct ChildSaRequest {
    pub(super) proposals: Vec<Proposal>,
    pub(super) initiator: TrafficSelectors,
    pub(super) responder: TrafficSelectors,
    pub(super) transport: bool,
}

/// A payload of the CHILD_SA is missing in a message that has others of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct IncompleteChildSa;

impl ChildSaRequest {
    /// Parses the CHILD_SA that a message requests or grants; `None` without one.
    pub(super) fn from_payloads(payloads: &[Payload]) -> Result<Option<Self>, IncompleteChildSa> {
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
                Ok(Some(Self { proposals, initiator, responder, transport }))
            }
            _ => Err(IncompleteChildSa),
        }
    }
}

/// Returns an inbound SPI that no CHILD_SA of any IKE_SA uses, nor the one that `expected` has granted.
pub(super) fn new_spi(cx: &mut IkeEndpointContext, expected: Option<&ExpectedFollowup>) -> u32 {
    let granted = expected.and_then(|expected| match &expected.makes {
        PendingFollowupSa::Child { granted, .. } => Some(granted.inbound),
        PendingFollowupSa::Ike { .. } => None,
    });
    let inbound = &cx.inbound;
    generate_unused_spi(&mut cx.rng, cx.config.shard, |spi| inbound.contains(&spi) || granted == Some(spi))
}

/// Returns a free SPI of this shard.
fn generate_unused_spi(rng: &mut SecureRng, shard: ShardIndex, is_taken: impl Fn(u32) -> bool) -> u32 {
    loop {
        let [first, rest @ ..] = rng.next_u32().to_be_bytes();
        let [a, b, c] = rest;
        let spi = u32::from_be_bytes([shard.first_spi_octet(first), a, b, c]);
        if spi >= FIRST_SPI && !is_taken(spi) {
            return spi;
        }
    }
}

/// Returns the intersection of both lists, without selectors that another one covers.
pub(super) fn narrow_selectors(ours: &[TrafficSelector], theirs: &TrafficSelectors) -> Vec<TrafficSelector> {
    let both =
        ours.iter().flat_map(|our| theirs.selectors.iter().filter_map(|their| our.intersection(their)));
    let mut all: Vec<TrafficSelector> = Vec::new();
    for selector in both {
        if all.len() < usize::from(u8::MAX) && !all.iter().any(|other| other.contains(&selector)) {
            all.retain(|other| !selector.contains(other));
            all.push(selector);
        }
    }
    all
}

/// Returns the traffic selectors of this side and of the peer, if the initiator has these assigned addresses.
fn local_and_remote_selectors(
    sa: &IkeSaBase,
    assigned: &[IpAddr],
    config: &ChildSaConfig,
) -> (Vec<TrafficSelector>, Vec<TrafficSelector>) {
    let hosts = |addresses: &[IpAddr]| -> Vec<TrafficSelector> {
        addresses.iter().copied().map(TrafficSelector::from_address).collect()
    };
    let everything = || {
        let v4 = TrafficSelector::from_network(core::net::Ipv4Addr::UNSPECIFIED.into(), 0);
        v4.into_iter()
            .chain(TrafficSelector::from_network(core::net::Ipv6Addr::UNSPECIFIED.into(), 0))
            .collect()
    };
    let dynamic = |of: &Option<Vec<TrafficSelector>>, given: bool, address: IpAddr| match of {
        Some(selectors) => selectors.clone(),
        // Until the peer assigns an address, the initiator offers everything and the peer narrows it. A responder that
        // has assigned no address has no traffic here.
        None if given && assigned.is_empty() && sa.initiator => everything(),
        None if given => hosts(assigned),
        // A host that does not know its own address offers everything, and the peer, which knows it, narrows it.
        None if address.is_unspecified() => everything(),
        None => hosts(&[address]),
    };
    let address = sa.connection.address;
    (
        dynamic(&config.local, address && sa.initiator, sa.path.local.ip()),
        // The source of the peer's last request is not used: a NAT may have changed it, or an attacker may have forged
        // it.
        dynamic(&config.remote, address && !sa.initiator, sa.proved_address),
    )
}

/// Returns the payloads that request a CHILD_SA with this inbound SPI.
pub(super) fn build_child_offer(
    sa: &IkeSaBase,
    assigned: &[IpAddr],
    config: &ChildSaConfig,
    proposals: &[Proposal],
    spi: u32,
) -> [Payload; 3] {
    let (local, remote) = local_and_remote_selectors(sa, assigned, config);
    [
        Payload::SecurityAssociation(number_proposals(proposals.iter().cloned(), &spi.to_be_bytes())),
        Payload::TrafficSelectorsInitiator(local.into()),
        Payload::TrafficSelectorsResponder(remote.into()),
    ]
}

fn proposal_esp_spi(proposal: &Proposal) -> Option<u32> {
    let spi = u32::from_be_bytes(proposal.spi[..].try_into().ok()?);
    (proposal.protocol == ProtocolId::ESP && spi >= FIRST_SPI).then_some(spi)
}

/// The inputs of a CHILD_SA's installation.
struct ChildSaInputs<'a> {
    config: usize,
    proposal: &'a Proposal,
    /// The inbound and the outbound SPI.
    spis: (u32, u32),
    local: Vec<TrafficSelector>,
    remote: Vec<TrafficSelector>,
    secrets: &'a KeyExchangeSecrets,
    nonces: &'a NoncePair,
    replaces: Option<u32>,
    mode: IpsecMode,
    /// True if this side is the initiator of the exchange.
    initiator: bool,
}

/// Installs a CHILD_SA. False if its SPI is taken by another IKE_SA meanwhile, or if an algorithm is unknown, which a
/// chosen proposal rules out.
fn install_child(sa: &mut EstablishedSa<'_>, cx: &mut IkeEndpointContext, parts: ChildSaInputs<'_>) -> bool {
    let (Some(algorithms), Some(session)) =
        (PacketAlgorithms::from_proposal(parts.proposal), &sa.base.session)
    else {
        return false;
    };
    if !cx.inbound.insert(parts.spis.0) {
        return false;
    }
    cx.count_work(work::DERIVE);
    let nonces = (&parts.nonces.0[..], &parts.nonces.1[..]);
    let keys = session.keys.derive_child_keys(
        session.algorithms.prf,
        &algorithms,
        parts.secrets.key_derivation_secrets(),
        nonces,
    );
    let (outbound_keys, inbound_keys) =
        if parts.initiator { (keys.initiator, keys.responder) } else { (keys.responder, keys.initiator) };
    let config = &sa.base.connection.children[parts.config];
    let child = ChildSa {
        connection: sa.base.connection.name.clone(),
        name: config.name.clone(),
        inbound: parts.spis.0,
        outbound: parts.spis.1,
        algorithms,
        extended_sequence_numbers: parts
            .proposal
            .transforms_of_kind(TransformType::ESN)
            .any(|esn| esn.id == 1),
        inbound_keys,
        outbound_keys,
        local: parts.local,
        remote: parts.remote,
        mode: parts.mode,
        path: sa.base.path,
        encapsulated: sa.base.nat.0 || sa.base.nat.1,
        replaces: parts.replaces,
        initiator: parts.initiator,
        follow: sa.follows_peer_address(),
    };
    let rekey_after = config.rekey_after;
    let rekey_at = rekey_after.map(|after| cx.now + cx.with_jitter(after));
    cx.counters.children += 1;
    cx.outputs.push_event(IkeEvent::Install { sa: sa.base.id, child: Box::new(child.clone()) });
    let (config, state) = (parts.config, ChildState::Installed);
    sa.state.children.push(ChildSaEntry { sa: child, config, state, rekey_at, rival: None });
    true
}

/// A configured CHILD_SA that matches the peer's request.
pub(super) struct SelectedChildSa {
    config: usize,
    pub(super) proposal: Proposal,
    local: Vec<TrafficSelector>,
    remote: Vec<TrafficSelector>,
}

/// Selects a configured CHILD_SA by traffic selectors and proposals together. The first CHILD_SA (`first`) has no key
/// exchange of its own. A later one has one if this side's proposals require it.
///
/// # Errors
/// The error notification for the peer.
pub(super) fn select_child(
    sa: &EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    asked: &ChildSaRequest,
    first: bool,
) -> Result<SelectedChildSa, NotifyType> {
    if sa.state.children.len() >= MOST {
        return Err(NotifyType::NO_ADDITIONAL_SAS);
    }
    let connection = sa.base.connection.clone();
    let mut why = NotifyType::TS_UNACCEPTABLE;
    for (number, config) in connection.children.iter().enumerate() {
        let (ours, theirs) = local_and_remote_selectors(sa.base, &sa.state.assigned_addresses, config);
        // RFC 7296, 2.9: the responder narrows the selectors; without common ones, TS_UNACCEPTABLE.
        let local = narrow_selectors(&ours, &asked.responder);
        let remote = narrow_selectors(&theirs, &asked.initiator);
        if local.is_empty() || remote.is_empty() {
            continue;
        }
        match choose_proposal(&child_proposals(config, first), &asked.proposals) {
            Some(proposal) => return Ok(SelectedChildSa { config: number, proposal, local, remote }),
            None => why = NotifyType::NO_PROPOSAL_CHOSEN,
        }
    }
    cx.counters.children_refused += 1;
    Err(why)
}

fn child_proposals(config: &ChildSaConfig, first: bool) -> Vec<Proposal> {
    match first {
        true => config.proposals.iter().map(Proposal::without_key_exchange).collect(),
        false => config.proposals.clone(),
    }
}

/// Installs a granted CHILD_SA. False if an algorithm is unknown, which a chosen proposal rules out.
pub(super) fn install_granted_child(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    granted: GrantedChildSa,
    secrets: &KeyExchangeSecrets,
    nonces: &NoncePair,
) -> bool {
    let GrantedChildSa { config, proposal, inbound, outbound, local, remote, mode, replaces } = granted;
    let spis = (inbound, outbound);
    let proposal = &proposal;
    let parts = ChildSaInputs {
        config,
        proposal,
        spis,
        local,
        remote,
        secrets,
        nonces,
        replaces,
        mode,
        initiator: false,
    };
    install_child(sa, cx, parts)
}

/// Grants and installs the selected CHILD_SA. Returns the payloads of the response.
///
/// # Errors
/// The error notification for the peer.
pub(super) fn grant_child(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    selected: SelectedChildSa,
    transport: bool,
    secrets: &KeyExchangeSecrets,
    nonces: &NoncePair,
    replaces: Option<u32>,
) -> Result<Vec<Payload>, NotifyType> {
    let (granted, payloads) = prepare_child_grant(sa, cx, selected, transport, replaces)?;
    match install_granted_child(sa, cx, granted, secrets, nonces) {
        true => Ok(payloads),
        false => Err(NotifyType::NO_PROPOSAL_CHOSEN),
    }
}

/// Grants the selected CHILD_SA without installing it. Returns it with the payloads of the response.
///
/// # Errors
/// The error notification for the peer.
pub(super) fn prepare_child_grant(
    sa: &EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    selected: SelectedChildSa,
    transport: bool,
    replaces: Option<u32>,
) -> Result<(GrantedChildSa, Vec<Payload>), NotifyType> {
    let SelectedChildSa { config, mut proposal, local, remote } = selected;
    let Some(outbound) = proposal_esp_spi(&proposal) else { return Err(NotifyType::INVALID_SYNTAX) };
    let inbound = new_spi(cx, sa.state.expected_keys.as_deref());
    // RFC 7296, 1.3.1: transport mode needs both sides; either side may insist on tunnel mode.
    let transport = transport && sa.base.connection.children[config].mode == IpsecMode::Transport;
    let mode = if transport { IpsecMode::Transport } else { IpsecMode::Tunnel };
    let (initiator, responder) = (remote.clone().into(), local.clone().into());
    proposal.spi = inbound.to_be_bytes().to_vec();
    let chosen = proposal.clone();
    let granted = GrantedChildSa { config, proposal, inbound, outbound, local, remote, mode, replaces };
    let mut payloads = Vec::new();
    if transport {
        payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::USE_TRANSPORT_MODE)));
    }
    payloads.push(Payload::SecurityAssociation([chosen].into()));
    payloads.push(Payload::TrafficSelectorsInitiator(initiator));
    payloads.push(Payload::TrafficSelectorsResponder(responder));
    Ok((granted, payloads))
}

/// This side's request for a CHILD_SA.
pub(super) struct RequestedChildSa<'a> {
    pub(super) config: usize,
    pub(super) spi: u32,
    pub(super) secrets: &'a KeyExchangeSecrets,
    pub(super) nonces: &'a NoncePair,
    pub(super) replaces: Option<u32>,
    /// True for the CHILD_SA of IKE_AUTH.
    pub(super) first: bool,
}

/// Installs the CHILD_SA of the peer's response. False if the peer refused it, or if the response is invalid; an
/// event reports it.
pub(super) fn install_child_from_response(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    made: &RequestedChildSa<'_>,
    payloads: &[Payload],
) -> bool {
    let why = match try_install_child_from_response(sa, cx, made, payloads) {
        Ok(()) => return true,
        Err(why) => why,
    };
    cx.counters.children_refused += 1;
    let name = sa.base.connection.children[made.config].name.clone();
    cx.outputs.push_event(IkeEvent::ChildRefused { sa: sa.base.id, name, why });
    if payloads.iter().any(|payload| matches!(payload, Payload::SecurityAssociation(_))) {
        // The peer has installed the CHILD_SA already and would send on it, so this side deletes it.
        sa.state.plan_task(IkeSaTask::Disown(made.spi));
    }
    false
}

fn try_install_child_from_response(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    made: &RequestedChildSa<'_>,
    payloads: &[Payload],
) -> Result<(), NotifyType> {
    let Ok(Some(granted)) = ChildSaRequest::from_payloads(payloads) else {
        let error = notify_payloads(payloads).find(|notify| notify.kind.is_error());
        return Err(error.map_or(NotifyType::INVALID_SYNTAX, |notify| notify.kind));
    };
    let connection = sa.base.connection.clone();
    let config = &connection.children[made.config];
    let offered = number_proposals(child_proposals(config, made.first), &[]);
    let [chosen] = &granted.proposals[..] else { return Err(NotifyType::NO_PROPOSAL_CHOSEN) };
    let fits = is_offered(&offered, chosen) && PacketAlgorithms::from_proposal(chosen).is_some();
    let (true, Some(outbound)) = (fits, proposal_esp_spi(chosen)) else {
        return Err(NotifyType::NO_PROPOSAL_CHOSEN);
    };
    let (local, remote) = local_and_remote_selectors(sa.base, &sa.state.assigned_addresses, config);
    let within = |granted: &TrafficSelectors, asked: &[TrafficSelector]| {
        let all = granted.selectors.iter().all(|one| asked.iter().any(|whole| whole.contains(one)));
        all && !granted.selectors.is_empty() && granted.unknown_selectors.is_empty()
    };
    // RFC 7296, 2.9: a responder may only narrow the selectors.
    if !within(&granted.initiator, &local) || !within(&granted.responder, &remote) {
        return Err(NotifyType::TS_UNACCEPTABLE);
    }
    // The peer has assigned this address, so it is checked: it must be the address of a host.
    let is_of_a_host = |one: &TrafficSelector| one.start != one.end || is_host_address(one.start);
    if connection.address && !granted.initiator.selectors.iter().all(is_of_a_host) {
        return Err(NotifyType::TS_UNACCEPTABLE);
    }
    let transport = granted.transport && config.mode == IpsecMode::Transport;
    let parts = ChildSaInputs {
        config: made.config,
        proposal: chosen,
        spis: (made.spi, outbound),
        local: granted.initiator.selectors,
        remote: granted.responder.selectors,
        secrets: made.secrets,
        nonces: made.nonces,
        replaces: made.replaces,
        mode: if transport { IpsecMode::Transport } else { IpsecMode::Tunnel },
        initiator: true,
    };
    if install_child(sa, cx, parts) { Ok(()) } else { Err(NotifyType::NO_PROPOSAL_CHOSEN) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeded_rng() -> SecureRng {
        SecureRng::from_seed([5; 32])
    }

    #[test]
    fn an_spi_that_is_taken_is_not_given_again() {
        let first = generate_unused_spi(&mut seeded_rng(), ShardIndex::default(), |_| false);
        let second = generate_unused_spi(&mut seeded_rng(), ShardIndex::default(), |spi| spi == first);
        assert_ne!(first, second);
        assert_eq!(first, seeded_rng().next_u32(), "where there is one shard it is as chance has it");
    }

    #[test]
    fn an_spi_tells_its_shard_and_is_none_that_is_reserved() {
        let mut rng = seeded_rng();
        for (number, of) in [(0, 1), (0, 3), (1, 3), (2, 3), (254, 255)] {
            let shard = ShardIndex { number, shard_count: of };
            let mut firsts = alloc::collections::BTreeSet::new();
            for _ in 0..200 {
                let spi = generate_unused_spi(&mut rng, shard, |_| false);
                assert!(spi >= FIRST_SPI);
                let first = spi.to_be_bytes()[0];
                assert!(shard.owns_spi_octet(first), "{spi:08x} of {shard:?}");
                firsts.insert(first);
            }
            assert_eq!(firsts.len() > 1, of < 255, "{shard:?}");
        }
    }
}

//! Address proofs: which address may use an identifier.
//!
//! An identifier in a message proves nothing. With [`MihfConfig::proofs`](super::MihfConfig::proofs), a function is
//! known by its identifier and its address. A request or an indication is accepted in these cases:
//!
//! - The function is configured, and the message comes from the address of its route.
//! - The function is configured, and the message comes from one of its [networks](AddressProofConfig::allowed_networks) and
//!   an address that has proved itself.
//! - The function is not configured and not registered at another address, and this address has proved itself.
//!
//! A connection proves its address. The address of a datagram proves itself by answering two Capability_Discover
//! requests in turn. Their transaction identifiers are random, 24 bits in all. A probe leaves only in reply to a
//! message, one for each, so a forged source address does not multiply packets.
//!
//! If the identifier is registered at another address, that holder is probed first. If the holder answers, the claim
//! is refused. If it does not answer, or its connection is closed, the claimant replaces it and the old registration
//! ends.
//!
//! Capability_Discover is answered for any sender and stores no state, so two such functions can prove themselves to
//! each other.

use super::config::AddressProofConfig;
use super::receive::ReceivedMessage;
use super::{Mihf, MihfEvent};
use crate::net::{MessageTarget, ReplyPath, TransportRequest};
use crate::{HeaderFlags, MessageId, MihfId, MihfMessage, Opcode, Status, Tlv, TransactionId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_core::address::{host_of, is_within};
use usher_core::{Duration, Instant, SecureRng};

/// Number of probes that an address answers in turn.
const ROUNDS: u8 = 2;
/// Wrong answers that a claim may have, over all rounds. A forger guesses both identifiers in one of 2^24 / 28
/// claims.
const MISSES: u8 = 8;
/// Lifetime of a claim: how long a claimant can prove itself, and how long a refused one is ignored.
const CLAIM: Duration = Duration::from_secs(15);
/// How long a proof also counts for other identifiers of the address.
const PROVEN: Duration = Duration::from_secs(60);
/// Maximum messages of one claim that wait for its result.
const MAX_QUEUED_MESSAGES: usize = 4;
/// How long the holder has for its answer, and the interval of its probes.
const HOLDER_WAIT: Duration = Duration::from_secs(1);
const HOLDER_TRIES: u8 = 3;
/// How long the holder's answer counts. It limits the probes that claimants can cause.
const CONFIRMED: Duration = Duration::from_secs(10);
/// Minimum interval between reports of refused claims, because anybody can cause them.
const QUIET: Duration = Duration::from_secs(10);

/// An identifier and the address that claims it.
type AddressClaimant = (MihfId, SocketAddr);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AddressClaimStage {
    /// The claimant must answer this probe. It has answered `answered` in turn, the last one `before`.
    Reach { probe: TransactionId, before: Option<TransactionId>, answered: u8, misses: u8 },
    /// The current holder of the identifier must answer this probe, sent `sent` times.
    Holder { probe: TransactionId, sent: u8 },
    /// Refused.
    Refused,
}

#[derive(Debug)]
struct AddressClaim {
    reply_path: ReplyPath,
    stage: AddressClaimStage,
    queued_messages: Vec<ReceivedMessage>,
    since: Instant,
    due: Instant,
}

/// Pending claims and proved addresses.
#[derive(Debug, Default)]
pub(super) struct AddressClaimTable {
    open: BTreeMap<AddressClaimant, AddressClaim>,
    due: BTreeSet<(Instant, AddressClaimant)>,
    proven: BTreeMap<SocketAddr, Instant>,
    /// Proved addresses in the order of their proofs.
    order: BTreeSet<(Instant, SocketAddr)>,
    rng: Option<SecureRng>,
    /// When a refused claim was last reported.
    last_reported_at: Option<Instant>,
}

impl AddressClaimTable {
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }
    /// Returns the number of claims, pending and recently refused.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
    fn is_address_proven(&self, now: Instant, address: SocketAddr) -> bool {
        self.proven.get(&address).is_some_and(|until| *until > now)
    }
    fn mark_address_proven(&mut self, now: Instant, address: SocketAddr, most: usize) {
        let until = now + PROVEN;
        if let Some(before) = self.proven.insert(address, until) {
            self.order.remove(&(before, address));
        }
        self.order.insert((until, address));
        while let Some(&(until, address)) = self.order.first()
            && (until <= now || self.order.len() > most)
        {
            self.order.pop_first();
            self.proven.remove(&address);
        }
    }
    fn remove(&mut self, who: &AddressClaimant) -> Option<AddressClaim> {
        let gone = self.open.remove(who)?;
        self.due.remove(&(gone.due, who.clone()));
        Some(gone)
    }
    fn schedule_claim(&mut self, who: &AddressClaimant, at: Instant) {
        if let Some(claim) = self.open.get_mut(who) {
            self.due.remove(&(core::mem::replace(&mut claim.due, at), who.clone()));
            self.due.insert((at, who.clone()));
        }
    }
    /// Adds a claim. If there are too many, it evicts the oldest, of its own network if that has too many.
    fn insert_claim(
        &mut self,
        now: Instant,
        who: &AddressClaimant,
        way: ReplyPath,
        stage: AddressClaimStage,
        proofs: &AddressProofConfig,
    ) {
        let of = host_of(who.1.ip());
        let own = self.open.keys().filter(|(_, address)| host_of(address.ip()) == of).count();
        let crowded = own >= proofs.address_proofs_per_network.max(1);
        if crowded || self.open.len() >= proofs.claims.max(1) {
            let meant = |(_, address): &AddressClaimant| !crowded || host_of(address.ip()) == of;
            let all = self.open.iter().filter(|(who, _)| meant(who));
            if let Some(oldest) = all.min_by_key(|(_, claim)| claim.since).map(|(who, _)| who.clone()) {
                self.remove(&oldest);
            }
        }
        let due = now + CLAIM;
        self.open.insert(
            who.clone(),
            AddressClaim { reply_path: way, stage, queued_messages: Vec::new(), since: now, due },
        );
        self.due.insert((due, who.clone()));
    }
}

impl Mihf {
    fn draw_probe_transaction_id(&mut self) -> TransactionId {
        let rng = &mut self.rng;
        let secure = self.claims.rng.get_or_insert_with(|| {
            let mut seed = [0; 32];
            seed.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&rng.next_u64().to_le_bytes()));
            SecureRng::from_seed(seed)
        });
        TransactionId::new(secure.next_u32() as u16)
    }

    /// Returns the message if its sender may use its identifier. Otherwise the message waits for the proof.
    pub(super) fn admit_or_hold_message(
        &mut self,
        now: Instant,
        arrival: ReceivedMessage,
    ) -> Option<ReceivedMessage> {
        if self.config.proofs.is_none() {
            return Some(arrival);
        }
        let remote = self.net.remote_address(arrival.reply_path)?;
        let id = arrival.header.id;
        if id == MessageId::CAPABILITY_DISCOVER_RESPONSE
            && self.claims.next_deadline().is_some()
            && self.handle_probe_response(now, remote, &arrival)
        {
            return None;
        }
        let proofs = self.config.proofs.as_ref()?;
        let ReceivedMessage { header, source, message, .. } = &arrival;
        let entry = self.peers.find(source).and_then(|peer| self.peers.get(peer));
        let (known, named) = entry.map_or((None, false), |entry| (entry.address, entry.configured.is_some()));
        if known == Some(remote.ip().to_canonical()) {
            return Some(arrival);
        }
        let places = proofs.allowed_networks.get(source).filter(|_| named);
        let place = places.is_some_and(|places| places.iter().any(|place| is_within(remote.ip(), *place)));
        let reachable = matches!(arrival.reply_path, ReplyPath::Connection(_))
            || self.claims.is_address_proven(now, remote);
        if reachable && (known.is_none() || place) {
            return Some(arrival);
        }
        let acknowledges = header.ack_rsp && message.params.is_empty();
        if id.opcode == Opcode::Response || acknowledges {
            if known.is_none() {
                return Some(arrival);
            }
            self.counters.claims_refused += 1;
        } else if id == MessageId::CAPABILITY_DISCOVER_REQUEST {
            let mut params = alloc::vec![Tlv::Status(Status::Success)];
            params.extend(self.config.capabilities.to_parameters());
            self.respond_without_transaction(&arrival, params);
        } else {
            self.handle_claim(now, remote, arrival, named && !place, reachable);
        }
        None
    }

    /// Handles a request or an indication whose address has not yet proved its identifier.
    fn handle_claim(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        arrival: ReceivedMessage,
        barred: bool,
        reachable: bool,
    ) {
        let who = (arrival.source.clone(), remote);
        if !self.claims.open.contains_key(&who) {
            let probe = self.draw_probe_transaction_id();
            let Some(proofs) = &self.config.proofs else { return };
            let stage = AddressClaimStage::Reach { probe, before: None, answered: 0, misses: 0 };
            self.claims.insert_claim(now, &who, arrival.reply_path, stage, proofs);
            self.queue_until_proven(&who, arrival);
            return match (barred, reachable) {
                (true, _) => self.refuse_claim(now, &who),
                (false, true) => self.probe_identifier_holder(now, &who),
                (false, false) => self.send_probe(&who),
            };
        }
        match self.claims.open.get(&who).map(|claim| claim.stage) {
            Some(AddressClaimStage::Refused) => {
                self.counters.claims_refused += 1;
                self.respond_without_transaction(
                    &arrival,
                    alloc::vec![Tlv::Status(Status::AuthorizationFailure)],
                );
            }
            Some(AddressClaimStage::Reach { .. }) => {
                self.queue_until_proven(&who, arrival);
                self.send_probe(&who);
            }
            _ => self.queue_until_proven(&who, arrival),
        }
    }

    fn queue_until_proven(&mut self, who: &AddressClaimant, arrival: ReceivedMessage) {
        let Some(claim) = self.claims.open.get_mut(who) else { return };
        let same = |held: &ReceivedMessage| {
            (held.header.id, held.header.transaction) == (arrival.header.id, arrival.header.transaction)
        };
        if claim.queued_messages.len() < MAX_QUEUED_MESSAGES && !claim.queued_messages.iter().any(same) {
            claim.queued_messages.push(arrival);
        }
    }

    /// Sends a probe to a claimant.
    fn send_probe(&mut self, who: &AddressClaimant) {
        let Some(claim) = self.claims.open.get(who) else { return };
        if let AddressClaimStage::Reach { probe, .. } = claim.stage {
            self.send_discover_request(claim.reply_path, &who.0, probe);
        }
    }

    fn send_discover_request(&mut self, way: ReplyPath, to: &MihfId, probe: TransactionId) {
        let message = MihfMessage::new(MessageId::CAPABILITY_DISCOVER_REQUEST, []);
        self.send_without_transaction(way, &message, HeaderFlags::default(), probe, to);
    }

    /// Answers a message without a transaction. Indications have no answer.
    fn respond_without_transaction(&mut self, to: &ReceivedMessage, params: Vec<Tlv>) {
        let (header, way, source) = (to.header, to.reply_path, to.source.clone());
        if header.id.opcode == Opcode::Request {
            let message = MihfMessage::new(header.id.to_response(), params);
            let bits = HeaderFlags { ack_rsp: header.ack_req, ..HeaderFlags::default() };
            self.send_without_transaction(way, &message, bits, header.transaction, &source);
        }
    }

    /// Sends a message without storing a transaction.
    fn send_without_transaction(
        &mut self,
        way: ReplyPath,
        message: &MihfMessage,
        bits: HeaderFlags,
        tid: TransactionId,
        to: &MihfId,
    ) {
        let streamed = matches!(way, ReplyPath::Connection(_));
        let Some(pdu) = self.encode_message(message, bits, tid, to, streamed) else { return };
        // This token belongs to no transaction, so the loss of the connection is not reported to any.
        let (to, service, transaction) = (MessageTarget::Path(way), message.id.service, u64::MAX);
        let request =
            TransportRequest { to, reliable: false, watched: false, service, pdu: &pdu, transaction };
        self.net.send_request(request, &mut self.counters);
    }

    /// Handles a response to Capability_Discover. True if it answers a probe.
    fn handle_probe_response(&mut self, now: Instant, remote: SocketAddr, arrival: &ReceivedMessage) -> bool {
        let tid = arrival.header.transaction;
        let who = (arrival.source.clone(), remote);
        let fresh = self.draw_probe_transaction_id();
        if let Some(claim) = self.claims.open.get_mut(&who)
            && let AddressClaimStage::Reach { probe, before, answered, misses } = claim.stage
        {
            if before == Some(tid) {
                self.acknowledge_without_transaction(arrival);
                return true;
            }
            if probe != tid {
                // A forger has to guess the identifier. A wrong guess does not end the probe: otherwise a single one
                // could cancel it.
                let misses = misses + 1;
                claim.stage = AddressClaimStage::Reach { probe, before, answered, misses };
                if misses >= MISSES {
                    self.refuse_claim(now, &who);
                }
                return true;
            }
            let (before, answered) = (Some(probe), answered + 1);
            claim.stage = AddressClaimStage::Reach { probe: fresh, before, answered, misses };
            self.acknowledge_without_transaction(arrival);
            if answered >= ROUNDS {
                self.handle_address_proven(now, &who);
            } else {
                self.send_probe(&who);
            }
            return true;
        }
        let peer = self.peers.find(&arrival.source);
        let known = peer.and_then(|peer| self.peers.get(peer)).and_then(|entry| entry.address);
        if known != Some(remote.ip().to_canonical()) {
            return false;
        }
        let asked = |(who, claim): (&AddressClaimant, &AddressClaim)| {
            let probed = matches!(claim.stage, AddressClaimStage::Holder { probe, .. } if probe == tid);
            (who.0 == arrival.source && probed).then(|| who.clone())
        };
        let Some(newcomer) = self.claims.open.iter().find_map(asked) else { return false };
        self.acknowledge_without_transaction(arrival);
        if let Some(entry) = peer.and_then(|peer| self.peers.get_mut(peer)) {
            entry.confirmed = Some(now);
        }
        self.refuse_claim(now, &newcomer);
        true
    }

    fn acknowledge_without_transaction(&mut self, arrival: &ReceivedMessage) {
        if arrival.header.ack_req {
            let (header, source) = (arrival.header, arrival.source.clone());
            let bits = HeaderFlags { ack_rsp: true, ..HeaderFlags::default() };
            let message = MihfMessage::acknowledgement(header.id);
            self.send_without_transaction(arrival.reply_path, &message, bits, header.transaction, &source);
        }
    }

    /// Handles the proof of a claimant's address.
    fn handle_address_proven(&mut self, now: Instant, who: &AddressClaimant) {
        self.counters.addresses_proven += 1;
        let most = self.config.proofs.as_ref().map_or(0, |proofs| proofs.claims);
        self.claims.mark_address_proven(now, who.1, most);
        let entry = self.peers.find(&who.0).and_then(|peer| self.peers.get(peer));
        match entry.map(|entry| (entry.address, entry.configured.is_some())) {
            Some((Some(address), false)) if address != who.1.ip().to_canonical() => {
                self.probe_identifier_holder(now, who)
            }
            _ => self.admit_claimant(now, who),
        }
    }

    /// Probes the current holder of an identifier.
    fn probe_identifier_holder(&mut self, now: Instant, who: &AddressClaimant) {
        let entry = self.peers.find(&who.0).and_then(|peer| self.peers.get(peer));
        if entry.and_then(|entry| entry.confirmed).is_some_and(|at| now.duration_since(at) < CONFIRMED) {
            return self.refuse_claim(now, who);
        }
        let registered = entry.filter(|entry| entry.is_registered());
        let Some(way) =
            registered.and_then(|entry| entry.last_reply_path).filter(|way| self.net.is_open(*way))
        else {
            return self.admit_claimant(now, who);
        };
        let fresh = self.draw_probe_transaction_id();
        let Some(claim) = self.claims.open.get_mut(who) else { return };
        let (probe, sent) = match claim.stage {
            AddressClaimStage::Holder { sent, .. } if sent >= HOLDER_TRIES => {
                return self.admit_claimant(now, who);
            }
            AddressClaimStage::Holder { probe, sent } => (probe, sent + 1),
            _ => (fresh, 1),
        };
        claim.stage = AddressClaimStage::Holder { probe, sent };
        self.claims.schedule_claim(who, now + HOLDER_WAIT);
        self.send_discover_request(way, &who.0, probe);
    }

    fn refuse_claim(&mut self, now: Instant, who: &AddressClaimant) {
        let Some(claim) = self.claims.open.get_mut(who) else { return };
        claim.stage = AddressClaimStage::Refused;
        let held = core::mem::take(&mut claim.queued_messages);
        self.claims.schedule_claim(who, now + CLAIM);
        for arrival in held {
            self.counters.claims_refused += 1;
            self.respond_without_transaction(
                &arrival,
                alloc::vec![Tlv::Status(Status::AuthorizationFailure)],
            );
        }
        if self.claims.last_reported_at.is_none_or(|at| now.duration_since(at) >= QUIET) {
            self.claims.last_reported_at = Some(now);
            self.net.outputs.push_event(MihfEvent::ClaimRefused { peer: who.0.clone(), address: who.1 });
        }
    }

    /// Gives the identifier to the claimant and drops the state of the old address.
    fn admit_claimant(&mut self, now: Instant, who: &AddressClaimant) {
        let Some(claim) = self.claims.remove(who) else { return };
        if let Some(peer) = self.peers.find(&who.0)
            && let Some(entry) = self.peers.get(peer)
            && entry.configured.is_none()
            && let Some(before) = entry.address.filter(|before| *before != who.1.ip().to_canonical())
            && self.peers.clear_peer_address(peer)
        {
            self.counters.addresses_replaced += 1;
            let (peer, address) = (who.0.clone(), who.1);
            self.net.outputs.push_event(MihfEvent::Deregistered { peer: peer.clone() });
            self.net.outputs.push_event(MihfEvent::AddressReplaced { peer, before, address });
        }
        for arrival in claim.queued_messages {
            self.take_up(now, arrival);
        }
        // The entry of a replaced function is needed only for transactions that its queued messages began. A malformed
        // message begins none.
        if let Some(peer) = self.peers.find(&who.0) {
            self.peers.remove_if_unused(peer);
        }
    }

    /// Handles the claims that are due.
    pub(super) fn expire_claims(&mut self, now: Instant) {
        while let Some((at, who)) = self.claims.due.first().cloned()
            && at <= now
        {
            match self.claims.open.get(&who).map(|claim| claim.stage) {
                Some(AddressClaimStage::Holder { .. }) => self.probe_identifier_holder(now, &who),
                Some(AddressClaimStage::Reach { .. }) => {
                    self.counters.addresses_unproven += 1;
                    self.claims.remove(&who);
                }
                _ => {
                    self.claims.remove(&who);
                }
            }
        }
    }
}

//! The endpoint: a machine that has IKE_SAs of both roles with any number of peers.

mod authentication;
mod base;
mod child;
mod collision;
mod config;
mod context;
mod cookie;
mod counters;
mod create;
mod established;
mod event;
mod followup;
mod fragments;
mod guesses;
mod half_open;
mod informational;
mod initial;
mod intermediate;
mod nat;
mod phase;
mod pressure;
mod resumption;
mod sa;
mod signature;
mod sockets;
mod spent_tickets;
#[cfg(test)]
mod tests;
mod ticket_requests;
mod tickets;

pub use config::{
    ChildSaConfig, ChildlessPolicy, IkeConnectionConfig, IkeEndpointConfig, IpsecMode, LocalAuth, RemoteAuth,
    RetransmissionConfig, ShardIndex,
};
pub use counters::IkeCounters;
pub use event::{CertificateName, ChildSa, EapAnswer, EndReason, IkeCommand, IkeEvent, IkeJob, IkeSaId};
pub use sockets::{NAT_SOCKET, NAT_SOCKET_V6, SOCKET, SOCKET_V6};

use crate::ParseError;
use crate::code::{ExchangeType, NotifyType, PayloadType};
use crate::header::{IkeHeader, Spi};
use crate::message::{IkeMessage, NON_ESP_MARKER, find_nonce};
use crate::payload::{Identification, NotifyPayload, Payload};
use crate::protect::SealedMessage;
use crate::work;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use authentication::InitiatorWishes;
use context::IkeEndpointContext;
use cookie::CookieSecrets;
use core::net::SocketAddr;
use established::{IkeSaTask, SaEffect, SuccessorSa};
use fragments::FragmentMemoryTable;
use guesses::IkeLockoutTable;
use half_open::{HalfOpen, HalfOpenLimits};
use initial::FirstRequestOutcome;
use phase::SaPhase;
use pressure::FirstRequestLoad;
use sa::IkeSa;
use sockets::is_nat_traversal_socket;
use tickets::TicketTable;
use usher_core::automaton::AutomatonDiagram;
use usher_core::collections::{HashMap, HashSet, hash_state};
use usher_core::table::SessionTable;
use usher_core::timer::TimerQueue;
use usher_core::{
    CommandError, DatagramPath, Instant, Machine, MachineInput, MachineOutputOf, OctetReader, OutputQueue,
    SecureRng, Transmit, WallTime, WorkRecord,
};

/// State diagrams of CHILD_SAs and IKE_SAs that are replaced and deleted, as the code runs them.
pub const AUTOMATA: [AutomatonDiagram; 2] =
    [collision::ChildRekeying::DIAGRAM, collision::SaRekeying::DIAGRAM];

/// Most octets of a first request. Its sender is not authenticated, and the endpoint stores it.
const FIRST_MESSAGE: usize = 1 << 13;

/// The connection, the local identity and the peer's identity: the key to find older IKE_SAs of the same pair. The
/// connection is part of it because connections differ in strength. An IKE_SA of a widely known shared key must not
/// end one of a certificate.
type IdentityPairKey = (String, Identification, Identification);

fn identity_pair_key(sa: &IkeSa) -> IdentityPairKey {
    let connection = &sa.base.connection;
    (connection.name.clone(), connection.local.clone(), sa.base.peer_identity())
}

/// An IKEv2 endpoint: a [`Machine`] over the datagrams of [`SOCKET`], [`NAT_SOCKET`], [`SOCKET_V6`] and
/// [`NAT_SOCKET_V6`].
#[derive(Debug)]
pub struct IkeEndpoint {
    cx: IkeEndpointContext,
    sas: SessionTable<Box<IkeSa>>,
    /// IKE_SAs by this side's SPI.
    by_spi: HashMap<Spi, u64>,
    /// IKE_SAs of peers by source address and initiator SPI, to recognize a retransmitted first request.
    by_origin: HashMap<(SocketAddr, Spi), u64>,
    /// Established IKE_SAs by connection and identities.
    by_pair: HashMap<IdentityPairKey, Vec<u64>>,
    half_open: HalfOpen,
    /// The load of first requests.
    pressure: FirstRequestLoad,
    /// Octets of stored fragments: in half-open IKE_SAs, and in all others.
    fragments: [FragmentMemoryTable; 2],
    cookies: CookieSecrets,
    /// The revoked certificates, by the last command.
    revoked: Arc<BTreeSet<CertificateName>>,
    /// Ended IKE_SAs that still answer a retransmission of their last request, in the order of their end.
    lingering: BTreeMap<u64, u64>,
    /// Number of IKE_SAs that have ended this way.
    lingering_total: u64,
    timers: TimerQueue<u64>,
    armed: HashMap<u64, Instant>,
}

impl IkeEndpoint {
    /// Creates an endpoint with these limits. It draws all keys from `rng`.
    #[must_use]
    pub fn new(config: IkeEndpointConfig, mut rng: SecureRng) -> Self {
        let hasher = hash_state(&mut rng);
        // The share of a network must hold at least one whole message. Otherwise no message of that size could be
        // reassembled.
        let share = (config.fragments / 8).max(2 * config.message);
        let all = config.fragments.max(2 * share);
        let fragments = [share, usize::MAX].map(|share| FragmentMemoryTable::new(all, share, &hasher));
        let cx = IkeEndpointContext {
            now: Instant::ZERO,
            epoch: WallTime::UNIX_EPOCH,
            config,
            connections: Vec::new(),
            rng,
            tickets: TicketTable::default(),
            proof_lockouts: IkeLockoutTable::new(&hasher),
            inbound: HashSet::with_hasher(hasher.clone()),
            counters: IkeCounters::default(),
            outputs: OutputQueue::default(),
        };
        Self {
            cx,
            sas: SessionTable::new(),
            by_spi: HashMap::with_hasher(hasher.clone()),
            by_origin: HashMap::with_hasher(hasher.clone()),
            by_pair: HashMap::with_hasher(hasher.clone()),
            half_open: HalfOpen::new(&hasher),
            pressure: FirstRequestLoad::new(&hasher),
            fragments,
            cookies: CookieSecrets::default(),
            revoked: Arc::default(),
            lingering: BTreeMap::new(),
            lingering_total: 0,
            timers: TimerQueue::new(),
            armed: HashMap::with_hasher(hasher.clone()),
        }
    }
    /// Returns the public id of an IKE_SA, which is unique across shards.
    fn sa_id(&self, token: u64) -> IkeSaId {
        IkeSaId::from_token(token, self.cx.config.shard.number)
    }
    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &IkeCounters {
        &self.cx.counters
    }
    /// Number of IKE_SAs, with half-open ones and those that have just ended.
    #[must_use]
    pub fn sa_count(&self) -> usize {
        self.sas.len()
    }
    /// Number of IKE_SAs that have not ended.
    fn active_sa_count(&self) -> usize {
        self.sas.len() - self.lingering.len()
    }
    /// Number of IKE_SAs whose initiator has not yet authenticated.
    #[must_use]
    pub fn half_open(&self) -> usize {
        self.half_open.entry_count()
    }

    /// Runs one step of an IKE_SA and applies its effects to the endpoint.
    fn run_sa_step<T>(
        &mut self,
        token: u64,
        what: impl FnOnce(&mut IkeSa, &mut IkeEndpointContext) -> T,
    ) -> Option<T> {
        let sa = self.sas.get_mut(token)?;
        let result = what(sa, &mut self.cx);
        for effect in sa.take_effects() {
            self.apply_sa_effect(token, effect);
        }
        self.update_timer(token);
        Some(result)
    }

    fn apply_sa_effect(&mut self, token: u64, effect: SaEffect) {
        let origin = self.sas.get(token).and_then(|sa| sa.base.origin);
        match effect {
            SaEffect::HalfOpen { number, stage } => {
                if let Some(origin) = origin {
                    self.half_open.is_at(origin.ip(), number, stage);
                }
            }
            SaEffect::NotHalfOpen { number, unproved } => {
                let Some(origin) = origin else { return };
                self.half_open.remove_half_open(origin.ip(), number);
                // An initiator that fails to authenticate has to return a cookie at its next attempt. If it continues
                // to fail, its requests are dropped.
                if unproved {
                    self.pressure.record_refusal(self.cx.now, origin.ip());
                }
            }
            SaEffect::Established { initial_contact, resumes } => {
                if let Some(pair) = self.find_pair(token) {
                    self.handle_established_ike_sa(token, pair, initial_contact, resumes);
                }
            }
            SaEffect::FragmentMemory => self.count_fragments(token),
            SaEffect::Successor(successor) => self.insert_successor(*successor),
        }
    }

    /// Counts the octets of an IKE_SA's fragments. Drops the oldest fragments if the total is over the limit.
    fn count_fragments(&mut self, token: u64) {
        let Some(sa) = self.sas.get(token) else { return };
        let takes = sa.base.reassembly.memory_octets();
        let (network, half_open) = (pressure::network_prefix(sa.base.proved_address), sa.is_half_open());
        let [unproved, others] = &mut self.fragments;
        let (is, is_not) = if half_open { (unproved, others) } else { (others, unproved) };
        is_not.remove_usage(token);
        // One large message may take the room of several small ones, so fragments of the oldest IKE_SAs are dropped
        // until it fits.
        while let Some(oldest) = is.record_usage(token, network, takes) {
            is.remove_usage(oldest);
            if let Some(sa) = self.sas.get_mut(oldest) {
                self.cx.counters.fragments_dropped += sa.base.reassembly.fragment_count();
                sa.base.reassembly = fragments::FragmentReassembly::default();
            }
            if oldest == token {
                return;
            }
        }
    }

    /// Returns the pair of identities of an IKE_SA whose peer has claimed one.
    fn find_pair(&self, token: u64) -> Option<IdentityPairKey> {
        self.sas.get(token).filter(|sa| sa.base.remote.is_some()).map(|sa| identity_pair_key(sa))
    }

    /// Handles a newly established IKE_SA. Ends others of the same pair after INITIAL_CONTACT, or if they must be
    /// unique.
    fn handle_established_ike_sa(
        &mut self,
        token: u64,
        pair: IdentityPairKey,
        forgotten: bool,
        resumes: Option<Spi>,
    ) {
        self.cx.counters.established += 1;
        let unique = self.sas.get(token).is_some_and(|sa| sa.base.connection.unique);
        if let Some(old) = resumes {
            self.cx.counters.resumed += 1;
            // The old IKE_SA and its CHILD_SAs end without a Delete (RFC 5723 §4.3.4).
            if let Some(old) = self.by_spi.get(&old).copied().filter(|old| *old != token) {
                self.run_sa_step(old, |sa, cx| sa.end_sa(cx, EndReason::Replaced));
            }
        }
        if forgotten || unique {
            self.end_replaced_ike_sas(&pair, forgotten);
            if self.cx.config.shard.shard_count > 1 {
                let (connection, local, remote) = pair.clone();
                let sa = self.sa_id(token);
                self.cx.outputs.push_event(IkeEvent::Replaces { sa, connection, local, remote, forgotten });
            }
        }
        self.by_pair.entry(pair).or_default().push(token);
    }

    /// Ends the IKE_SAs of this pair: a new one replaces them.
    fn end_replaced_ike_sas(&mut self, pair: &IdentityPairKey, forgotten: bool) {
        for other in self.by_pair.remove(pair).unwrap_or_default() {
            self.run_sa_step(other, |sa, cx| {
                if forgotten {
                    // The peer has lost its state of the old IKE_SA, so no Delete is sent (RFC 7296 §2.4).
                    sa.end_sa(cx, EndReason::Replaced);
                } else if let Some(established) = sa.as_established() {
                    established.state.put_out(cx.now, EndReason::Replaced);
                    sa.go_on(cx);
                }
            });
        }
    }

    /// Ends IKE_SAs whose peer authenticated by one of these revoked certificates.
    fn revoke_certificates(&mut self, names: Arc<BTreeSet<CertificateName>>) {
        self.revoked = names;
        let is_out = |sa: &IkeSa| sa.base.certificates.iter().any(|name| self.revoked.contains(name));
        let tokens = self.by_spi.values().copied();
        let mut out: Vec<u64> =
            tokens.filter(|token| self.sas.get(*token).is_some_and(|sa| is_out(sa))).collect();
        // Hash map order must not affect the order of events.
        out.sort_unstable();
        for token in out {
            let put_out = self.run_sa_step(token, |sa, cx| match &mut sa.phase {
                SaPhase::Established(state) if state.is_active_ike_sa() => {
                    // If an earlier Delete for a revocation still waits for another exchange, this revocation is not
                    // new.
                    let is_new = !state.tasks.contains(&IkeSaTask::Delete(EndReason::Revoked));
                    state.put_out(cx.now, EndReason::Revoked);
                    sa.go_on(cx);
                    is_new
                }
                SaPhase::Initiating(_) | SaPhase::Responding(_) | SaPhase::Resuming(_) => {
                    sa.end_sa(cx, EndReason::Revoked);
                    true
                }
                SaPhase::Established(_) | SaPhase::InitSent(_) | SaPhase::Ended(_) => false,
            });
            self.cx.counters.revoked += u64::from(put_out == Some(true));
        }
    }

    /// Inserts an IKE_SA that a rekeying created.
    fn insert_successor(&mut self, successor: SuccessorSa) {
        let (old, silent) = (successor.replaces, successor.state.silent);
        let sa = IkeSa::from_rekeying(successor);
        let (spis, pair) = (sa.base.spis, identity_pair_key(&sa));
        let token = self.insert_sa(sa);
        if let Some(old) = old {
            self.cx.outputs.push_event(IkeEvent::Rekeyed { old, new: self.sa_id(token), spis });
        }
        if !silent {
            self.by_pair.entry(pair).or_default().push(token);
        }
        self.run_sa_step(token, IkeSa::go_on);
    }

    fn insert_sa(&mut self, sa: IkeSa) -> u64 {
        let own = sa.base.own_spi();
        let token = self.sas.insert(self.cx.now, Box::new(sa));
        let id = self.sa_id(token);
        if let Some(sa) = self.sas.get_mut(token) {
            sa.base.id = id;
        }
        self.by_spi.insert(own, token);
        token
    }

    /// Updates the timer of an IKE_SA, or removes the IKE_SA if it has ended.
    fn update_timer(&mut self, token: u64) {
        let Some(sa) = self.sas.get(token) else { return };
        if let SaPhase::Ended(ended) = sa.phase {
            if ended.lingers_until.is_none() {
                return self.remove_sa(token);
            }
            self.keep_ended_ike_sa(token);
        }
        let Some(sa) = self.sas.get(token) else { return };
        let due = sa.next_timeout(&self.cx.config);
        let before = match due {
            Some(due) => self.armed.insert(token, due),
            None => self.armed.remove(&token),
        };
        if before == due {
            return;
        }
        if let Some(before) = before {
            self.timers.remove(before, token);
        }
        if let Some(due) = due {
            self.timers.insert(due, token);
        }
    }

    /// Keeps an ended IKE_SA, so that it can send its last response again. The number of kept IKE_SAs is bounded.
    fn keep_ended_ike_sa(&mut self, token: u64) {
        let Some(sa) = self.sas.get_mut(token) else { return };
        let SaPhase::Ended(ended) = &mut sa.phase else { return };
        if ended.linger_number.is_some() {
            return;
        }
        ended.linger_number = Some(self.lingering_total);
        self.lingering.insert(self.lingering_total, token);
        self.lingering_total += 1;
        if self.lingering.len() > self.cx.config.lingering
            && let Some((_, &oldest)) = self.lingering.first_key_value()
        {
            self.remove_sa(oldest);
        }
    }

    fn remove_sa(&mut self, token: u64) {
        let pair = self.find_pair(token);
        let Some(sa) = self.sas.remove(token) else { return };
        if let SaPhase::Ended(ended) = sa.phase
            && let Some(number) = ended.linger_number
        {
            self.lingering.remove(&number);
        }
        self.fragments.iter_mut().for_each(|holders| holders.remove_usage(token));
        self.by_spi.remove(&sa.base.own_spi());
        if let Some(origin) = sa.base.origin {
            self.by_origin.remove(&(origin, sa.base.spis.0));
        }
        if let Some(before) = self.armed.remove(&token) {
            self.timers.remove(before, token);
        }
        if let Some(pair) = pair
            && let Some(all) = self.by_pair.get_mut(&pair)
        {
            all.retain(|other| *other != token);
            if all.is_empty() {
                self.by_pair.remove(&pair);
            }
        }
    }

    fn handle_datagram(&mut self, path: DatagramPath, data: &[u8]) {
        let marker = is_nat_traversal_socket(path.socket);
        let octets = if marker { data.strip_prefix(&NON_ESP_MARKER[..]) } else { Some(data) };
        let Some(octets) = octets else {
            // Without the marker the datagram is ESP or a keepalive (RFC 3948 §2.3).
            self.cx.counters.not_ike += 1;
            return;
        };
        self.cx.outputs.push_work(WorkRecord { label: work::MESSAGE, units: 1 });
        let header = match IkeHeader::parse(&mut OctetReader::new(octets)) {
            Ok((header, ..)) => header,
            Err(ParseError::MajorVersion(_)) => return self.answer_newer_version(path, marker, octets),
            Err(_) => {
                self.cx.counters.malformed += 1;
                return;
            }
        };
        match (header.exchange, header.response) {
            (ExchangeType::IKE_SA_INIT | ExchangeType::IKE_SESSION_RESUME, false) => {
                self.first_request(path, marker, octets);
            }
            (ExchangeType::IKE_SA_INIT | ExchangeType::IKE_SESSION_RESUME, true) => {
                self.handle_initial_response(&header, octets);
            }
            _ => self.handle_protected(path, &header, octets),
        }
    }

    /// Answers a request of a newer major version (RFC 7296 §2.5) with the supported version.
    fn answer_newer_version(&mut self, path: DatagramPath, marker: bool, octets: &[u8]) {
        self.cx.counters.version += 1;
        let mut altered = octets.to_vec();
        altered[17] = 0x20;
        let Ok((header, ..)) = IkeHeader::parse(&mut OctetReader::new(&altered)) else { return };
        if octets[17] > 0x2f && !header.response && header.initiator {
            self.respond_without_sa(
                path,
                marker,
                &header,
                NotifyPayload::new(NotifyType::INVALID_MAJOR_VERSION),
            );
        }
    }

    /// Sends a response that belongs to no IKE_SA.
    fn respond_without_sa(
        &mut self,
        path: DatagramPath,
        marker: bool,
        to: &IkeHeader,
        notify: NotifyPayload,
    ) {
        let header = IkeHeader { initiator: false, response: true, higher_version: false, ..*to };
        let mut bytes = self.cx.outputs.take_buffer();
        if marker {
            bytes.extend_from_slice(&NON_ESP_MARKER);
        }
        IkeMessage { header, payloads: [Payload::Notify(notify)].into() }.emit(&mut bytes);
        self.cx.counters.responses += 1;
        self.cx.outputs.push_transmit(Transmit::Datagram { path }, bytes);
    }

    fn first_request(&mut self, path: DatagramPath, marker: bool, octets: &[u8]) {
        let now = self.cx.now;
        if octets.len() > FIRST_MESSAGE {
            self.cx.counters.malformed += 1;
            return;
        }
        // The caller has parsed the header already.
        let Ok((header, first, _)) = IkeHeader::parse(&mut OctetReader::new(octets)) else { return };
        if !header.initiator
            || header.message_id != 0
            || !header.responder_spi.is_zero()
            || header.initiator_spi.is_zero()
        {
            self.cx.counters.not_expected += 1;
            return;
        }
        if let Some(token) = self.by_origin.get(&(path.remote, header.initiator_spi)).copied() {
            // RFC 7296, 2.1: a retransmission, or another request with an SPI in use, creates nothing.
            self.run_sa_step(token, |sa, cx| sa.handle_repeated_init(cx, path, octets));
            return;
        }
        let from = path.remote.ip();
        let full =
            self.half_open() >= self.cx.config.half_open || self.active_sa_count() >= self.cx.config.sas;
        let gives_way = if full { self.half_open.select_eviction(now, from) } else { None };
        if full && gives_way.is_none() {
            self.cx.counters.full += 1;
            return;
        }
        // A full table makes cookies necessary, so that only a sender with a proven address displaces another half-open
        // IKE_SA.
        let all_pressed = full || self.half_open() >= self.cx.config.cookies_from;
        let pressed = all_pressed
            || self.half_open.of_network(from) >= self.cx.config.cookies_from_network
            || self.pressure.network_requires_cookies(now, from);
        // In a flood, requests without a cookie are dropped here, before they cost more.
        let shows = first == PayloadType::N;
        if pressed && !shows && !self.pressure.allows_cookie_request(now, from) {
            self.cx.counters.flood_dropped += 1;
            return;
        }
        let Ok(message) = IkeMessage::parse(octets) else {
            self.cx.counters.malformed += 1;
            return;
        };
        let resumes = header.exchange == ExchangeType::IKE_SESSION_RESUME;
        let nonce = if resumes { find_nonce(&message.payloads) } else { initial::find_init_nonce(&message) };
        if pressed && nonce.is_none() {
            self.cx.counters.syntax += 1;
            return;
        }
        if let Some(nonce) = nonce.filter(|_| pressed) {
            let of = (from, header.initiator_spi, nonce);
            let shown = message.payloads.first().and_then(|payload| match payload {
                Payload::Notify(notify) if notify.kind == NotifyType::COOKIE => Some(&notify.data[..]),
                _ => None,
            });
            // RFC 7296, 2.6: a wrong cookie counts as none.
            let holds = shown.is_some_and(|cookie| {
                self.cookies.verify_cookie(now, &self.cx.config, &mut self.cx.rng, of, cookie)
            });
            if !holds {
                self.cx.counters.cookies_wrong += u64::from(shown.is_some());
                if shows && !self.pressure.allows_cookie_request(now, from) {
                    self.cx.counters.flood_dropped += 1;
                    return;
                }
                self.cx.counters.cookies += 1;
                let cookie = self.cookies.make_cookie(now, &self.cx.config, &mut self.cx.rng, of);
                return self.respond_without_sa(
                    path,
                    marker,
                    &header,
                    NotifyPayload::with_data(NotifyType::COOKIE, cookie),
                );
            }
        }
        if pressed && self.pressure.is_network_blocked(now, from) {
            self.cx.counters.flood_dropped += 1;
            return;
        }
        let shares =
            HalfOpenLimits { all: self.cx.config.half_open, host: self.cx.config.half_open_per_host };
        if all_pressed && self.half_open.has_its_share(from, shares) {
            self.cx.counters.full_network += 1;
            return;
        }
        if let Some(PayloadType(kind)) = message.unsupported_critical() {
            self.cx.counters.critical += 1;
            self.pressure.record_refusal(now, from);
            let notify = NotifyPayload::with_data(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, [kind]);
            return self.respond_without_sa(path, marker, &header, notify);
        }
        let begins = match resumes {
            true => resumption::handle_resume_request(&mut self.cx, path, &message, octets),
            false => initial::handle_init_request(&mut self.cx, path, &message, octets),
        };
        match begins {
            FirstRequestOutcome::Refused(notify) => {
                self.pressure.record_refusal(now, from);
                self.respond_without_sa(path, marker, &header, notify);
            }
            FirstRequestOutcome::Accepted(mut base, state) => {
                (base.origin, base.era) = (Some(path.remote), self.cx.tickets.era());
                self.cx.counters.begun += 1;
                self.cx.count_work(work::SA);
                if let Some(other) = gives_way {
                    self.cx.counters.half_open_evicted += 1;
                    // The displaced peer may be honest, so its network is not charged with a failure.
                    self.run_sa_step(other, |sa, cx| sa.end_sa(cx, EndReason::HalfOpen));
                }
                let token = self.insert_sa(IkeSa::from_first_request(*base, state));
                self.by_origin.insert((path.remote, header.initiator_spi), token);
                let number = self.half_open.add_half_open(now, from, token);
                if let Some(SaPhase::Responding(state)) = self.sas.get_mut(token).map(|sa| &mut sa.phase) {
                    state.half_open = number;
                }
                self.update_timer(token);
            }
        }
    }

    fn handle_initial_response(&mut self, header: &IkeHeader, octets: &[u8]) {
        let token = self.by_spi.get(&header.initiator_spi).copied();
        let (Some(token), false, 0) = (token, header.initiator, header.message_id) else {
            self.cx.counters.unknown_spi += 1;
            return;
        };
        let Ok(message) = IkeMessage::parse(octets) else {
            self.cx.counters.malformed += 1;
            return;
        };
        self.run_sa_step(token, |sa, cx| sa.handle_initial_response(cx, &message, octets));
    }

    fn handle_protected(&mut self, path: DatagramPath, header: &IkeHeader, octets: &[u8]) {
        let own = if header.initiator { header.responder_spi } else { header.initiator_spi };
        let Some(token) = self.by_spi.get(&own).copied() else {
            // RFC 7296, 1.5, 2.21.4: a message of no IKE_SA gets no answer.
            self.cx.counters.unknown_spi += 1;
            return;
        };
        let fits = |sa: &IkeSa| sa.base.spis == (header.initiator_spi, header.responder_spi);
        if !self.sas.get(token).is_some_and(|sa| fits(sa)) {
            self.cx.counters.unknown_spi += 1;
            return;
        }
        match SealedMessage::from_octets(octets) {
            Ok(Some(sealed)) => {
                self.run_sa_step(token, |sa, cx| sa.handle_message(cx, path, &sealed));
            }
            // RFC 7296, 2.21.4: a message in the clear changes nothing.
            Ok(None) => self.cx.counters.not_expected += 1,
            Err(_) => self.cx.counters.malformed += 1,
        }
    }

    fn initiate_sa(
        &mut self,
        of: u64,
        connection: Arc<IkeConnectionConfig>,
        addresses: (SocketAddr, SocketAddr),
    ) -> Result<(), CommandError> {
        if self.active_sa_count() >= self.cx.config.sas {
            return Err(CommandError::Full("IKE_SAs"));
        }
        if connection.remote.is_none() && matches!(connection.remote_auth, RemoteAuth::Certificate { .. }) {
            return Err(CommandError::Invalid(
                "any certificate of that authority would be accepted; set the peer's identity",
            ));
        }
        if matches!(connection.local_auth, LocalAuth::EapOnly)
            || matches!(connection.remote_auth, RemoteAuth::Eap { .. })
        {
            return Err(CommandError::Invalid("its authentication methods are for a responder"));
        }
        let wishes = self.initiator_wishes(&connection);
        let held = self.cx.config.tickets.and_then(|_| {
            let now = self.cx.now;
            self.cx.tickets.take_ticket(&connection.name, now)
        });
        let held = held.filter(|held| connection.remote.as_ref().is_none_or(|id| *id == held.identities.1));
        let Some(sa) = IkeSa::initiate(&mut self.cx, connection, addresses, held, wishes) else {
            return Err(CommandError::Invalid("this build has no key exchange method"));
        };
        self.cx.count_work(work::SA);
        let token = self.insert_sa(sa);
        self.cx.outputs.push_event(IkeEvent::Initiated { token: of, sa: self.sa_id(token) });
        self.update_timer(token);
        Ok(())
    }

    /// Returns what a new IKE_SA of a connection requests, given those that there are.
    fn initiator_wishes(&self, connection: &IkeConnectionConfig) -> InitiatorWishes {
        // The peer may serve several of our connections by one of its own. INITIAL_CONTACT would end all their IKE_SAs.
        // So it is sent only if no connection has an IKE_SA of these two identities.
        let known = |remote| self.by_pair.keys().any(|(_, l, r)| (l, r) == (&connection.local, remote));
        let initial_contact =
            connection.unique && connection.remote.as_ref().is_some_and(|remote| !known(remote));
        // A client that reauthenticates keeps its addresses (RFC 7296 §3.15.1).
        let before = self.by_pair.iter().filter(|((name, ..), _)| *name == connection.name);
        let before = before.flat_map(|(_, tokens)| tokens).max().and_then(|token| self.sas.get(*token));
        let before = before.filter(|sa| sa.base.client).and_then(|sa| sa.established());
        let addresses = before.map(|state| state.assigned_addresses.clone()).unwrap_or_default();
        InitiatorWishes { initial_contact, addresses }
    }

    fn handle_timeout(&mut self) {
        while let Some((_, token)) = self.timers.pop_due(self.cx.now) {
            self.armed.remove(&token);
            self.run_sa_step(token, IkeSa::handle_timeout);
        }
    }
}

impl Machine for IkeEndpoint {
    type Command = IkeCommand;
    type Event = IkeEvent;
    type Job = IkeJob;

    fn set_epoch(&mut self, _: Instant, epoch: WallTime) {
        self.cx.epoch = epoch;
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        self.cx.now = now;
        match input {
            MachineInput::Datagram { path, data } => self.handle_datagram(path, data),
            MachineInput::Timeout => self.handle_timeout(),
            other => {
                if let Some(refusal) = other.refusal() {
                    self.cx.outputs.push_operation(refusal);
                }
            }
        }
    }

    fn handle_command(&mut self, now: Instant, command: IkeCommand) -> Result<(), CommandError> {
        self.cx.now = now;
        let token = match &command {
            IkeCommand::Serve(_)
            | IkeCommand::Initiate { .. }
            | IkeCommand::Replaced { .. }
            | IkeCommand::Revoked(_)
            | IkeCommand::VoidTickets => 0,
            IkeCommand::Signed { token, .. }
            | IkeCommand::Verified { token, .. }
            | IkeCommand::Unable { token } => *token,
            IkeCommand::Eap { sa, .. }
            | IkeCommand::Address { sa, .. }
            | IkeCommand::CreateChild { sa, .. }
            | IkeCommand::RekeyChild { sa, .. }
            | IkeCommand::DeleteChild { sa, .. }
            | IkeCommand::Move { sa, .. }
            | IkeCommand::Traffic { sa, .. }
            | IkeCommand::Rekey(sa)
            | IkeCommand::Delete(sa)
            | IkeCommand::Probe(sa) => sa.0,
        };
        let token = IkeSaId(token).token();
        match command {
            IkeCommand::Replaced { sa, connection, local, remote, forgotten } => {
                if sa.shard_number() != self.cx.config.shard.number {
                    self.end_replaced_ike_sas(&(connection, local, remote), forgotten);
                }
                Ok(())
            }
            IkeCommand::Serve(connections) => {
                self.cx.connections = connections;
                self.cx.proof_lockouts.retain_connections(&self.cx.connections);
                // A key, an authority or a method may have changed since a ticket was issued, so all tickets become
                // void.
                self.cx.tickets.void_all_tickets();
                Ok(())
            }
            IkeCommand::VoidTickets => {
                self.cx.tickets.void_all_tickets();
                Ok(())
            }
            IkeCommand::Revoked(names) => {
                self.revoke_certificates(names);
                Ok(())
            }
            // The worker may not have known of the revocation when it verified.
            IkeCommand::Verified { token: of, ref certificates, .. }
                if certificates.iter().any(|name| self.revoked.contains(name)) =>
            {
                let refused = IkeCommand::Verified { token: of, until: None, certificates: Vec::new() };
                let done = self.run_sa_step(token, |sa, cx| sa.apply_command(cx, refused));
                done.unwrap_or(Err(CommandError::UnknownToken))
            }
            IkeCommand::Initiate { token, connection, local, remote } => {
                self.initiate_sa(token, connection, (local, remote))
            }
            command => {
                let done = self.run_sa_step(token, |sa, cx| sa.apply_command(cx, command));
                done.unwrap_or(Err(CommandError::UnknownToken))
            }
        }
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.cx.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.timers.next_deadline()
    }
}

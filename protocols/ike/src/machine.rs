//! The endpoint: a machine that has IKE_SAs of both roles with any number of peers.

mod authenticate;
mod child;
mod collision;
mod config;
mod context;
mod cookie;
mod create;
mod event;
mod followup;
mod fragments;
mod guesses;
mod half_open;
mod informational;
mod initial;
mod intermediate;
mod pressure;
mod resumption;
mod sa;
mod spent_tickets;
#[cfg(test)]
mod tests;
mod tickets;
mod timers;

pub use config::{
    ChildSaConfig, ChildlessPolicy, IkeConnectionConfig, IkeEndpointConfig, IpsecMode, LocalAuth, RemoteAuth,
    RetransmissionConfig, ShardIndex,
};
pub use event::{CertificateName, ChildSa, EapAnswer, EndReason, IkeCommand, IkeEvent, IkeJob, IkeSaId};

use crate::ParseError;
use crate::code::{ExchangeType, NotifyType, PayloadType};
use crate::header::{IkeHeader, Spi};
use crate::message::{IkeMessage, NON_ESP_MARKER};
use crate::payload::{Identification, NotifyPayload, Payload};
use crate::protect::SealedMessage;
use crate::work;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cookie::CookieSecrets;
use core::net::SocketAddr;
use fragments::FragmentMemoryTable;
use guesses::IkeLockoutTable;
use half_open::{HalfOpen, HalfOpenLimits};
use initial::FirstRequestOutcome;
use pressure::FirstRequestLoad;
use sa::{IkeEndpointContext, IkeSa, SaPhase};
use tickets::TicketTable;
use usher_core::automaton::AutomatonDiagram;
use usher_core::collections::{HashMap, HashSet, hash_state};
use usher_core::table::SessionTable;
use usher_core::timer::TimerQueue;
use usher_core::{
    CommandError, DatagramPath, Instant, Machine, MachineInput, MachineOutputOf, OctetReader, OutputQueue,
    SecureRng, SocketId, Transmit, WallTime, WorkRecord,
};

/// State diagrams of CHILD_SAs and IKE_SAs that are replaced and deleted, as the code runs them.
pub const AUTOMATA: [AutomatonDiagram; 2] =
    [collision::ChildRekeying::DIAGRAM, collision::SaRekeying::DIAGRAM];

/// The IPv4 socket of UDP port 500.
pub const SOCKET: SocketId = SocketId::from_number(0);
/// The IPv4 socket of UDP port 4500. ESP arrives there too; a datagram that begins with four zero octets is IKE.
pub const NAT_SOCKET: SocketId = SocketId::from_number(1);
/// The IPv6 socket of UDP port 500.
pub const SOCKET_V6: SocketId = SocketId::from_number(2);
/// The IPv6 socket of UDP port 4500.
pub const NAT_SOCKET_V6: SocketId = SocketId::from_number(3);

/// True for a socket of UDP port 4500.
fn is_nat_traversal_socket(socket: SocketId) -> bool {
    socket == NAT_SOCKET || socket == NAT_SOCKET_V6
}

usher_core::counters! {
    /// Counters of an [`IkeEndpoint`].
    pub struct IkeCounters {
        /// Requests sent, without retransmissions.
        requests,
        /// Responses sent, without retransmissions.
        responses,
        /// Requests retransmitted.
        retransmissions,
        /// Responses sent again for retransmitted requests.
        duplicates,
        /// Retransmitted requests that came too soon for another response.
        duplicates_ignored,
        /// Retransmitted requests while a job was pending.
        duplicate_pending,
        /// IKE_SAs given up: a request got no response.
        given_up,
        /// Half-open IKE_SAs expired: the initiator did not continue.
        half_open_expired,
        /// Keepalives sent to a NAT.
        keepalives,
        /// Datagrams that are not IKE.
        not_ike,
        /// Datagrams that are not a valid message.
        malformed,
        /// Messages of another major version.
        version,
        /// Messages with an unknown SPI.
        unknown_spi,
        /// Unexpected messages: a message ID outside the window, an exchange that is not in progress, or the wrong
        /// direction.
        not_expected,
        /// Messages that failed the integrity check.
        integrity,
        /// Authentication requests from another address than the first request, without a NAT.
        elsewhere,
        /// Fragments refused.
        fragments,
        /// Fragments of incomplete messages dropped: all together exceeded the limit.
        fragments_dropped,
        /// Messages with invalid payloads.
        syntax,
        /// Messages with an unknown critical payload.
        critical,
        /// First requests without an acceptable proposal.
        no_proposal,
        /// Requests that needed another key exchange method (INVALID_KE_PAYLOAD).
        invalid_ke,
        /// First requests answered with a cookie.
        cookies,
        /// First requests with an invalid cookie.
        cookies_wrong,
        /// First requests dropped: too many IKE_SAs, and none to evict.
        full,
        /// Half-open IKE_SAs evicted for the first request of a network with fewer.
        half_open_evicted,
        /// First requests dropped under load: their host, site or network has too many half-open IKE_SAs.
        full_network,
        /// First requests dropped unread: their network floods.
        flood_dropped,
        /// IKE_SAs that peers initiated.
        begun,
        /// IKE_SAs with a failed authentication.
        authentication_failed,
        /// Proofs by a shared key rejected unchecked: too many had failed.
        proofs_locked_out,
        /// IKE_SAs established, without those that replaced another.
        established,
        /// IKE_SAs established by a ticket (resumption).
        resumed,
        /// Tickets issued.
        tickets,
        /// Tickets refused, by either side.
        tickets_refused,
        /// IKE_SAs that replaced another.
        rekeyed,
        /// CHILD_SAs installed.
        children,
        /// CHILD_SAs refused, by either side.
        children_refused,
        /// Requests answered with TEMPORARY_FAILURE.
        temporary_failures,
        /// Requests answered with TEMPORARY_FAILURE because their IKE_SA had requested too many SAs.
        creates_rate_limited,
        /// Requests of established IKE_SAs dropped: there were too many.
        requests_rate_limited,
        /// SAs that both sides rekeyed at the same time.
        collisions,
        /// IKE_SAs that moved to other addresses.
        moved,
        /// IKE_SAs ended: a certificate of the peer was revoked.
        revoked,
    }
}

/// Most octets of a first request. Its sender is not authenticated, and the endpoint stores it.
const FIRST_MESSAGE: usize = 1 << 13;

/// The connection, the local identity and the peer's identity: the key to find older IKE_SAs of the same pair. The
/// connection is part of it because connections differ in strength. An IKE_SA of a widely known shared key must not
/// end one of a certificate.
type IdentityPairKey = (String, Identification, Identification);

fn identity_pair_key(sa: &IkeSa) -> IdentityPairKey {
    (sa.connection.name.clone(), sa.connection.local.clone(), sa.peer_identity())
}

/// Builds the [`IkeEndpointContext`] of a step from the endpoint's fields, apart from its IKE_SAs.
macro_rules! context {
    ($endpoint:expr, $now:expr) => {
        IkeEndpointContext {
            now: $now,
            epoch: $endpoint.epoch,
            config: &$endpoint.config,
            connections: &$endpoint.connections,
            rng: &mut $endpoint.rng,
            tickets: &mut $endpoint.tickets,
            proof_lockouts: &mut $endpoint.proof_lockouts,
            outputs: &mut $endpoint.outputs,
            counters: &mut $endpoint.counters,
            inbound: &mut $endpoint.inbound,
            created_sas: Vec::new(),
        }
    };
}

/// An IKEv2 endpoint: a [`Machine`] over the datagrams of [`SOCKET`], [`NAT_SOCKET`], [`SOCKET_V6`] and
/// [`NAT_SOCKET_V6`].
#[derive(Debug)]
pub struct IkeEndpoint {
    config: IkeEndpointConfig,
    epoch: WallTime,
    connections: Vec<Arc<IkeConnectionConfig>>,
    rng: SecureRng,
    sas: SessionTable<Box<IkeSa>>,
    /// IKE_SAs by this side's SPI.
    by_spi: HashMap<Spi, u64>,
    /// IKE_SAs of peers by source address and initiator SPI, to recognize a retransmitted first request.
    by_origin: HashMap<(SocketAddr, Spi), u64>,
    /// The inbound SPIs of all CHILD_SAs.
    inbound: HashSet<u32>,
    /// Established IKE_SAs by connection and identities.
    by_pair: HashMap<IdentityPairKey, Vec<u64>>,
    half_open: HalfOpen,
    /// The load of first requests.
    pressure: FirstRequestLoad,
    /// Lockouts for failed proofs by shared keys.
    proof_lockouts: IkeLockoutTable,
    /// Octets of stored fragments: in half-open IKE_SAs, and in all others.
    fragments: [FragmentMemoryTable; 2],
    cookies: CookieSecrets,
    tickets: TicketTable,
    /// The revoked certificates, by the last command.
    revoked: Arc<BTreeSet<CertificateName>>,
    /// Ended IKE_SAs that still answer a retransmission of their last request, in the order of their end.
    lingering: BTreeMap<u64, u64>,
    /// Number of IKE_SAs that have ended this way.
    lingering_total: u64,
    timers: TimerQueue<u64>,
    armed: HashMap<u64, Instant>,
    counters: IkeCounters,
    outputs: OutputQueue<IkeEvent, IkeJob>,
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
        Self {
            config,
            epoch: WallTime::UNIX_EPOCH,
            connections: Vec::new(),
            rng,
            sas: SessionTable::new(),
            by_spi: HashMap::with_hasher(hasher.clone()),
            by_origin: HashMap::with_hasher(hasher.clone()),
            by_pair: HashMap::with_hasher(hasher.clone()),
            inbound: HashSet::with_hasher(hasher.clone()),
            half_open: HalfOpen::new(&hasher),
            pressure: FirstRequestLoad::new(&hasher),
            proof_lockouts: IkeLockoutTable::new(&hasher),
            fragments,
            cookies: CookieSecrets::default(),
            tickets: TicketTable::default(),
            revoked: Arc::default(),
            lingering: BTreeMap::new(),
            lingering_total: 0,
            timers: TimerQueue::new(),
            armed: HashMap::with_hasher(hasher.clone()),
            counters: IkeCounters::default(),
            outputs: OutputQueue::default(),
        }
    }
    /// Returns the public id of an IKE_SA, which is unique across shards.
    fn sa_id(&self, token: u64) -> IkeSaId {
        IkeSaId::from_token(token, self.config.shard.number)
    }
    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &IkeCounters {
        &self.counters
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
        now: Instant,
        token: u64,
        what: impl FnOnce(&mut IkeSa, &mut IkeEndpointContext<'_>) -> T,
    ) -> Option<T> {
        let sa = self.sas.get_mut(token)?;
        let (before, origin, number) = (sa.half_open_stage(), sa.origin, sa.half_open);
        let mut cx = context!(self, now);
        let result = what(sa, &mut cx);
        let born = cx.created_sas;
        let announce = core::mem::take(&mut sa.announce).then(|| self.find_pair(token)).flatten();
        let after = self.sas.get(token).and_then(|sa| sa.half_open_stage());
        if let (Some(_), Some(origin), true) = (before, origin, before != after) {
            match after {
                Some(stage) => self.half_open.is_at(origin.ip(), number, stage),
                None => {
                    self.half_open.remove_half_open(origin.ip(), number);
                    // An initiator that fails to authenticate has to return a cookie at its next attempt. If it
                    // continues to fail, its requests are dropped.
                    if self.sas.get(token).is_some_and(|sa| sa.unproved) {
                        self.pressure.record_refusal(now, origin.ip());
                    }
                }
            }
        }
        for sa in born {
            self.insert_rekeyed_sa(now, sa);
        }
        if let Some(pair) = announce {
            self.handle_established_ike_sa(now, token, pair);
        }
        self.count_fragments(token);
        self.update_timer(token);
        Some(result)
    }

    /// Counts the octets of an IKE_SA's fragments. Drops the oldest fragments if the total is over the limit.
    fn count_fragments(&mut self, token: u64) {
        let Some(sa) = self.sas.get_mut(token) else { return };
        let takes = sa.reassembly.memory_octets();
        if core::mem::replace(&mut sa.counted, takes) == takes {
            return;
        }
        let (network, half_open) = (pressure::network_prefix(sa.proved), sa.is_half_open());
        let [unproved, others] = &mut self.fragments;
        let (is, is_not) = if half_open { (unproved, others) } else { (others, unproved) };
        is_not.remove_usage(token);
        // One large message may take the room of several small ones, so fragments of the oldest IKE_SAs are dropped
        // until it fits.
        while let Some(oldest) = is.record_usage(token, network, takes) {
            is.remove_usage(oldest);
            if let Some(sa) = self.sas.get_mut(oldest) {
                self.counters.fragments_dropped += sa.reassembly.fragment_count();
                (sa.reassembly, sa.counted) = (fragments::FragmentReassembly::default(), 0);
            }
            if oldest == token {
                return;
            }
        }
    }

    fn find_pair(&self, token: u64) -> Option<IdentityPairKey> {
        let sa = self.sas.get(token)?;
        sa.remote.as_ref()?;
        Some(identity_pair_key(sa))
    }

    /// Handles a newly established IKE_SA. Ends others of the same pair after INITIAL_CONTACT, or if they must be
    /// unique.
    fn handle_established_ike_sa(&mut self, now: Instant, token: u64, pair: IdentityPairKey) {
        self.counters.established += 1;
        let Some(sa) = self.sas.get_mut(token) else { return };
        let (forgotten, unique) = (sa.initial_contact, sa.connection.unique);
        if let Some(old) = sa.resumes.take() {
            self.counters.resumed += 1;
            // The old IKE_SA and its CHILD_SAs end without a Delete (RFC 5723 §4.3.4).
            if let Some(old) = self.by_spi.get(&old).copied().filter(|old| *old != token) {
                self.run_sa_step(now, old, |sa, cx| sa.end_sa(cx, EndReason::Replaced));
            }
        }
        if forgotten || unique {
            self.end_replaced_ike_sas(now, &pair, forgotten);
            if self.config.shard.shard_count > 1 {
                let (connection, local, remote) = pair.clone();
                let sa = self.sa_id(token);
                self.outputs.push_event(IkeEvent::Replaces { sa, connection, local, remote, forgotten });
            }
        }
        self.by_pair.entry(pair).or_default().push(token);
    }

    /// Ends the IKE_SAs of this pair: a new one replaces them.
    fn end_replaced_ike_sas(&mut self, now: Instant, pair: &IdentityPairKey, forgotten: bool) {
        for other in self.by_pair.remove(pair).unwrap_or_default() {
            self.run_sa_step(now, other, |sa, cx| {
                if forgotten {
                    // The peer has lost its state of the old IKE_SA, so no Delete is sent (RFC 7296 §2.4).
                    sa.end_sa(cx, EndReason::Replaced);
                } else if sa.is_established() {
                    sa.put_out(cx, EndReason::Replaced);
                    sa.go_on(cx);
                }
            });
        }
    }

    /// Ends IKE_SAs whose peer authenticated by one of these revoked certificates.
    fn revoke_certificates(&mut self, now: Instant, names: Arc<BTreeSet<CertificateName>>) {
        self.revoked = names;
        let is_out = |sa: &IkeSa| sa.certificates.iter().any(|name| self.revoked.contains(name));
        let tokens = self.by_spi.values().copied();
        let mut out: Vec<u64> =
            tokens.filter(|token| self.sas.get(*token).is_some_and(|sa| is_out(sa))).collect();
        // Hash map order must not affect the order of events.
        out.sort_unstable();
        for token in out {
            let put_out = self.run_sa_step(now, token, |sa, cx| {
                if sa.is_established() && sa.is_active_ike_sa() {
                    // If an earlier Delete for a revocation still waits for another exchange, this revocation is not
                    // new.
                    let is_new = !sa.tasks.contains(&sa::IkeSaTask::Delete(EndReason::Revoked));
                    sa.put_out(cx, EndReason::Revoked);
                    sa.go_on(cx);
                    return is_new;
                }
                let begins = matches!(sa.phase, SaPhase::Authenticating(_) | SaPhase::Resuming(_));
                if begins {
                    sa.end_sa(cx, EndReason::Revoked);
                }
                begins
            });
            self.counters.revoked += u64::from(put_out == Some(true));
        }
    }

    /// Inserts an IKE_SA that a rekeying created.
    fn insert_rekeyed_sa(&mut self, now: Instant, mut sa: IkeSa) {
        let (old, spis, own, silent) = (sa.replaced_sa.take(), sa.spis, sa.own_spi(), sa.silent);
        let pair = Some(identity_pair_key(&sa));
        let token = self.insert_sa(now, own, Box::new(sa));
        if let Some(old) = old {
            self.outputs.push_event(IkeEvent::Rekeyed { old, new: self.sa_id(token), spis });
        }
        if let Some(pair) = pair.filter(|_| !silent) {
            self.by_pair.entry(pair).or_default().push(token);
        }
        self.run_sa_step(now, token, |sa, cx| sa.go_on(cx));
    }

    fn insert_sa(&mut self, now: Instant, own: Spi, sa: Box<IkeSa>) -> u64 {
        let token = self.sas.insert(now, sa);
        let id = self.sa_id(token);
        if let Some(sa) = self.sas.get_mut(token) {
            sa.id = id;
        }
        self.by_spi.insert(own, token);
        token
    }

    /// Updates the timer of an IKE_SA, or removes the IKE_SA if it has ended.
    fn update_timer(&mut self, token: u64) {
        let Some(sa) = self.sas.get(token) else { return };
        if matches!(sa.phase, SaPhase::Ended) {
            if sa.lingers_until.is_none() {
                return self.remove_sa(token);
            }
            self.keep_ended_ike_sa(token);
        }
        let Some(sa) = self.sas.get(token) else { return };
        let due = sa.next_timeout(&self.config);
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
        let Some(sa) = self.sas.get_mut(token).filter(|sa| sa.linger_number.is_none()) else { return };
        sa.linger_number = Some(self.lingering_total);
        self.lingering.insert(self.lingering_total, token);
        self.lingering_total += 1;
        if self.lingering.len() > self.config.lingering
            && let Some((_, &oldest)) = self.lingering.first_key_value()
        {
            self.remove_sa(oldest);
        }
    }

    fn remove_sa(&mut self, token: u64) {
        let pair = self.find_pair(token);
        let Some(sa) = self.sas.remove(token) else { return };
        if let Some(ended) = sa.linger_number {
            self.lingering.remove(&ended);
        }
        if sa.counted > 0 {
            self.fragments.iter_mut().for_each(|holders| holders.remove_usage(token));
        }
        self.by_spi.remove(&sa.own_spi());
        if let Some(origin) = sa.origin {
            self.by_origin.remove(&(origin, sa.spis.0));
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

    fn handle_datagram(&mut self, now: Instant, path: DatagramPath, data: &[u8]) {
        let marker = is_nat_traversal_socket(path.socket);
        let octets = if marker { data.strip_prefix(&NON_ESP_MARKER[..]) } else { Some(data) };
        let Some(octets) = octets else {
            // Without the marker the datagram is ESP or a keepalive (RFC 3948 §2.3).
            self.counters.not_ike += 1;
            return;
        };
        self.outputs.push_work(WorkRecord { label: work::MESSAGE, units: 1 });
        let header = match IkeHeader::parse(&mut OctetReader::new(octets)) {
            Ok((header, ..)) => header,
            Err(ParseError::MajorVersion(_)) => return self.answer_newer_version(path, marker, octets),
            Err(_) => {
                self.counters.malformed += 1;
                return;
            }
        };
        match (header.exchange, header.response) {
            (ExchangeType::IKE_SA_INIT | ExchangeType::IKE_SESSION_RESUME, false) => {
                self.first_request(now, path, marker, octets);
            }
            (ExchangeType::IKE_SA_INIT | ExchangeType::IKE_SESSION_RESUME, true) => {
                self.handle_initial_response(now, &header, octets);
            }
            _ => self.handle_protected(now, path, &header, octets),
        }
    }

    /// Answers a request of a newer major version (RFC 7296 §2.5) with the supported version.
    fn answer_newer_version(&mut self, path: DatagramPath, marker: bool, octets: &[u8]) {
        self.counters.version += 1;
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
        let mut bytes = self.outputs.take_buffer();
        if marker {
            bytes.extend_from_slice(&NON_ESP_MARKER);
        }
        IkeMessage { header, payloads: [Payload::Notify(notify)].into() }.emit(&mut bytes);
        self.counters.responses += 1;
        self.outputs.push_transmit(Transmit::Datagram { path }, bytes);
    }

    fn first_request(&mut self, now: Instant, path: DatagramPath, marker: bool, octets: &[u8]) {
        if octets.len() > FIRST_MESSAGE {
            self.counters.malformed += 1;
            return;
        }
        // The caller has parsed the header already.
        let Ok((header, first, _)) = IkeHeader::parse(&mut OctetReader::new(octets)) else { return };
        if !header.initiator
            || header.message_id != 0
            || !header.responder_spi.is_zero()
            || header.initiator_spi.is_zero()
        {
            self.counters.not_expected += 1;
            return;
        }
        if let Some(token) = self.by_origin.get(&(path.remote, header.initiator_spi)).copied() {
            // RFC 7296, 2.1: a retransmission, or another request with an SPI in use, creates nothing.
            self.run_sa_step(now, token, |sa, cx| sa.handle_repeated_init(cx, path, octets));
            return;
        }
        let from = path.remote.ip();
        let full = self.half_open() >= self.config.half_open || self.active_sa_count() >= self.config.sas;
        let gives_way = if full { self.half_open.select_eviction(now, from) } else { None };
        if full && gives_way.is_none() {
            self.counters.full += 1;
            return;
        }
        // A full table makes cookies necessary, so that only a sender with a proven address displaces another half-open
        // IKE_SA.
        let all_pressed = full || self.half_open() >= self.config.cookies_from;
        let pressed = all_pressed
            || self.half_open.of_network(from) >= self.config.cookies_from_network
            || self.pressure.network_requires_cookies(now, from);
        // In a flood, requests without a cookie are dropped here, before they cost more.
        let shows = first == PayloadType::N;
        if pressed && !shows && !self.pressure.allows_cookie_request(now, from) {
            self.counters.flood_dropped += 1;
            return;
        }
        let Ok(message) = IkeMessage::parse(octets) else {
            self.counters.malformed += 1;
            return;
        };
        let resumes = header.exchange == ExchangeType::IKE_SESSION_RESUME;
        let nonce = if resumes {
            resumption::find_resume_nonce(&message)
        } else {
            initial::find_init_nonce(&message)
        };
        if pressed && nonce.is_none() {
            self.counters.syntax += 1;
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
                self.cookies.verify_cookie(now, &self.config, &mut self.rng, of, cookie)
            });
            if !holds {
                self.counters.cookies_wrong += u64::from(shown.is_some());
                if shows && !self.pressure.allows_cookie_request(now, from) {
                    self.counters.flood_dropped += 1;
                    return;
                }
                self.counters.cookies += 1;
                let cookie = self.cookies.make_cookie(now, &self.config, &mut self.rng, of);
                return self.respond_without_sa(
                    path,
                    marker,
                    &header,
                    NotifyPayload::with_data(NotifyType::COOKIE, cookie),
                );
            }
        }
        if pressed && self.pressure.is_network_blocked(now, from) {
            self.counters.flood_dropped += 1;
            return;
        }
        let shares = HalfOpenLimits { all: self.config.half_open, host: self.config.half_open_per_host };
        if all_pressed && self.half_open.has_its_share(from, shares) {
            self.counters.full_network += 1;
            return;
        }
        let mut cx = context!(self, now);
        let begins = match resumes {
            true => resumption::handle_resume_request(&mut cx, path, &message, octets),
            false => initial::handle_init_request(&mut cx, path, &message, octets),
        };
        match begins {
            FirstRequestOutcome::Refused(notify) => {
                self.pressure.record_refusal(now, from);
                self.respond_without_sa(path, marker, &header, notify);
            }
            FirstRequestOutcome::Accepted(mut sa) => {
                (sa.origin, sa.era) = (Some(path.remote), self.tickets.era());
                self.counters.begun += 1;
                self.outputs.push_work(WorkRecord { label: work::SA, units: 1 });
                if let Some(other) = gives_way {
                    self.counters.half_open_evicted += 1;
                    // The displaced peer may be honest, so its network is not charged with a failure.
                    self.run_sa_step(now, other, |sa, cx| sa.end_sa(cx, EndReason::HalfOpen));
                }
                let (own, key) = (sa.own_spi(), (path.remote, sa.spis.0));
                let token = self.insert_sa(now, own, sa);
                self.by_origin.insert(key, token);
                let number = self.half_open.add_half_open(now, from, token);
                if let Some(sa) = self.sas.get_mut(token) {
                    sa.half_open = number;
                }
                self.update_timer(token);
            }
        }
    }

    fn handle_initial_response(&mut self, now: Instant, header: &IkeHeader, octets: &[u8]) {
        let token = self.by_spi.get(&header.initiator_spi).copied();
        let (Some(token), false, 0) = (token, header.initiator, header.message_id) else {
            self.counters.unknown_spi += 1;
            return;
        };
        let Ok(message) = IkeMessage::parse(octets) else {
            self.counters.malformed += 1;
            return;
        };
        self.run_sa_step(now, token, |sa, cx| match header.exchange {
            ExchangeType::IKE_SESSION_RESUME => resumption::handle_resume_response(sa, cx, &message, octets),
            _ => initial::handle_init_response(sa, cx, &message, octets),
        });
    }

    fn handle_protected(&mut self, now: Instant, path: DatagramPath, header: &IkeHeader, octets: &[u8]) {
        let own = if header.initiator { header.responder_spi } else { header.initiator_spi };
        let Some(token) = self.by_spi.get(&own).copied() else {
            // RFC 7296, 1.5, 2.21.4: a message of no IKE_SA gets no answer.
            self.counters.unknown_spi += 1;
            return;
        };
        let fits = |sa: &IkeSa| sa.spis == (header.initiator_spi, header.responder_spi);
        if !self.sas.get(token).is_some_and(|sa| fits(sa)) {
            self.counters.unknown_spi += 1;
            return;
        }
        match SealedMessage::from_octets(octets) {
            Ok(Some(sealed)) => {
                self.run_sa_step(now, token, |sa, cx| sa.handle_message(cx, path, &sealed));
            }
            // RFC 7296, 2.21.4: a message in the clear changes nothing.
            Ok(None) => self.counters.not_expected += 1,
            Err(_) => self.counters.malformed += 1,
        }
    }

    fn initiate_sa(
        &mut self,
        now: Instant,
        of: u64,
        connection: Arc<IkeConnectionConfig>,
        (local, remote): (SocketAddr, SocketAddr),
    ) -> Result<(), CommandError> {
        if self.active_sa_count() >= self.config.sas {
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
        // The peer may serve several of our connections by one of its own. INITIAL_CONTACT would end all their IKE_SAs.
        // So it is sent only if no connection has an IKE_SA of these two identities.
        let known = |remote| self.by_pair.keys().any(|(_, l, r)| (l, r) == (&connection.local, remote));
        // A client that reauthenticates keeps its addresses (RFC 7296 §3.15.1).
        let before = self.by_pair.iter().filter(|((name, ..), _)| *name == connection.name);
        let before = before.flat_map(|(_, tokens)| tokens).max().and_then(|token| self.sas.get(*token));
        let wished =
            before.filter(|sa| sa.client).map(|sa| sa.assigned_addresses.clone()).unwrap_or_default();
        let contact = connection.unique && connection.remote.as_ref().is_some_and(|remote| !known(remote));
        let mut cx = context!(self, now);
        let held = cx.config.tickets.and_then(|_| cx.tickets.take_ticket(&connection.name, now));
        let held = held.filter(|held| connection.remote.as_ref().is_none_or(|id| *id == held.identities.1));
        let begun = match held {
            Some(held) => Some(resumption::start_resumption(&mut cx, connection, (local, remote), held)),
            None => initial::start_ike_sa(&mut cx, connection, local, remote),
        };
        let Some(mut sa) = begun else {
            return Err(CommandError::Invalid("this build has no key exchange method"));
        };
        (sa.initial_contact, sa.client, sa.era) = (contact, true, self.tickets.era());
        sa.requested_addresses = wished;
        self.outputs.push_work(WorkRecord { label: work::SA, units: 1 });
        let own = sa.own_spi();
        let token = self.insert_sa(now, own, sa);
        self.outputs.push_event(IkeEvent::Initiated { token: of, sa: self.sa_id(token) });
        self.update_timer(token);
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, token)) = self.timers.pop_due(now) {
            self.armed.remove(&token);
            self.run_sa_step(now, token, |sa, cx| sa.handle_timeout(cx));
        }
    }
}

impl Machine for IkeEndpoint {
    type Command = IkeCommand;
    type Event = IkeEvent;
    type Job = IkeJob;

    fn set_epoch(&mut self, _: Instant, epoch: WallTime) {
        self.epoch = epoch;
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Datagram { path, data } => self.handle_datagram(now, path, data),
            MachineInput::Timeout => self.handle_timeout(now),
            other => {
                if let Some(refusal) = other.refusal() {
                    self.outputs.push_operation(refusal);
                }
            }
        }
    }

    fn handle_command(&mut self, now: Instant, command: IkeCommand) -> Result<(), CommandError> {
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
                if sa.shard_number() != self.config.shard.number {
                    self.end_replaced_ike_sas(now, &(connection, local, remote), forgotten);
                }
                Ok(())
            }
            IkeCommand::Serve(connections) => {
                self.connections = connections;
                self.proof_lockouts.retain_connections(&self.connections);
                // A key, an authority or a method may have changed since a ticket was issued, so all tickets become
                // void.
                self.tickets.void_all_tickets();
                Ok(())
            }
            IkeCommand::VoidTickets => {
                self.tickets.void_all_tickets();
                Ok(())
            }
            IkeCommand::Revoked(names) => {
                self.revoke_certificates(now, names);
                Ok(())
            }
            // The worker may not have known of the revocation when it verified.
            IkeCommand::Verified { token: of, ref certificates, .. }
                if certificates.iter().any(|name| self.revoked.contains(name)) =>
            {
                let refused = IkeCommand::Verified { token: of, until: None, certificates: Vec::new() };
                let done = self.run_sa_step(now, token, |sa, cx| sa.apply_command(cx, refused));
                done.unwrap_or(Err(CommandError::UnknownToken))
            }
            IkeCommand::Initiate { token, connection, local, remote } => {
                self.initiate_sa(now, token, connection, (local, remote))
            }
            command => {
                let done = self.run_sa_step(now, token, |sa, cx| sa.apply_command(cx, command));
                done.unwrap_or(Err(CommandError::UnknownToken))
            }
        }
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.timers.next_deadline()
    }
}

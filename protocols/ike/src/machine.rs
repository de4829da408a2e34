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
mod spent;
#[cfg(test)]
mod tests;
mod tickets;
mod timers;

pub use config::{
    ChildConfig, ChildlessPolicy, IkeConnection, IkeEndpointConfig, IpsecMode, LocalAuth, RemoteAuth,
    RetransmissionConfig, ShardIndex,
};
pub use event::{CertificateName, ChildSa, EapAnswer, EndReason, IkeCommand, IkeEvent, IkeJob, SaId};

use crate::code::{ExchangeType, NotifyType, PayloadType};
use crate::header::{IkeHeader, Spi};
use crate::message::{IkeMessage, NON_ESP_MARKER, ParseError};
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
use fragments::FragmentUsageTable;
use guesses::ProofLockoutTable;
use half_open::{HalfOpen, HalfOpenLimits};
use initial::FirstRequestOutcome;
use pressure::RequestPressure;
use sa::{IkeSa, SaPhase, StepContext};
use tickets::TicketTable;
use usher_core::automaton::AutomatonDiagram;
use usher_core::collections::{HashMap, HashSet, hash_state};
use usher_core::table::SessionTable;
use usher_core::timer::TimerQueue;
use usher_core::{
    CommandError, DatagramPath, Instant, Machine, MachineInput, OctetReader, OutputOf, OutputQueue,
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
fn is_nat(socket: SocketId) -> bool {
    socket == NAT_SOCKET || socket == NAT_SOCKET_V6
}

usher_core::counters! {
    /// What an [`IkeEndpoint`] did.
    pub struct IkeCounters {
        /// Requests sent, without repetitions.
        requests,
        /// Responses sent, without repetitions.
        responses,
        /// Requests sent again.
        retransmissions,
        /// Responses sent again, since their requests came again.
        duplicates,
        /// Requests that came again so soon that their responses did not.
        duplicates_passed,
        /// Requests that came again while a helper was asked.
        duplicate_pending,
        /// IKE_SAs given up since a request was not answered.
        given_up,
        /// IKE_SAs given up whose initiator did not go on.
        half_open_expired,
        /// Keepalives sent to a NAT.
        keepalives,
        /// Datagrams that are not of IKE.
        not_ike,
        /// Datagrams that are no message.
        malformed,
        /// Messages of another major version.
        version,
        /// Messages of no IKE_SA that is known.
        unknown_spi,
        /// Messages that cannot be now: of a message ID outside the window, of an exchange that is not under way, of the wrong
        /// direction.
        not_expected,
        /// Messages that are not under the keys of their IKE_SA.
        integrity,
        /// Requests of initiators that prove who they are, from another address than their first, where no NAT is before them.
        elsewhere,
        /// Fragments that are not kept.
        fragments,
        /// Fragments dropped before their message was whole, since those of all take more than they may.
        fragments_dropped,
        /// Messages whose payloads are not as they must be.
        syntax,
        /// Messages with a payload that must be understood and is not.
        critical,
        /// First requests without an acceptable proposal.
        no_proposal,
        /// Requests that were asked for another key exchange method.
        invalid_ke,
        /// First requests that were asked for a cookie.
        cookies,
        /// First requests with a cookie that does not hold.
        cookies_wrong,
        /// First requests dropped, since there are as many IKE_SAs as may be, and none gave way.
        full,
        /// Half-open IKE_SAs that ended before their time, since there was no room for the first request of another network, which had
        /// fewer; none whose initiator waited for this side.
        gave_way,
        /// First requests dropped under pressure, since their host, site or network has as many half-open IKE_SAs as it may.
        full_network,
        /// First requests dropped unread: their network floods.
        passed_over,
        /// IKE_SAs begun by others.
        begun,
        /// IKE_SAs whose sides did not prove who they are.
        authentication_failed,
        /// Proofs by a shared key that were not looked at, since too many by it have failed.
        guesses_held_back,
        /// IKE_SAs established, without those that took the place of another.
        established,
        /// IKE_SAs of these that were taken up again by a ticket.
        resumed,
        /// Tickets given.
        tickets,
        /// Tickets refused, by either side.
        tickets_refused,
        /// IKE_SAs that took the place of another.
        rekeyed,
        /// CHILD_SAs installed.
        children,
        /// CHILD_SAs refused, by either side.
        children_refused,
        /// Requests answered with TEMPORARY_FAILURE.
        temporary_failures,
        /// Those of them that were answered so since their IKE_SA had asked for too many SAs.
        creates_held_back,
        /// Requests of established IKE_SAs that were not taken yet, since there had been too many.
        requests_held_back,
        /// SAs replaced by both sides at the same time.
        collisions,
        /// IKE_SAs that moved to other addresses.
        moved,
        /// IKE_SAs put out since a certificate by which the other side had proved who it is was revoked.
        revoked,
    }
}

/// Most octets of a first request. Its sender is not authenticated, and the endpoint stores it.
const FIRST_MESSAGE: usize = 1 << 13;

/// The connection, the local identity and the peer's identity: the key to find older IKE_SAs of the same pair. The
/// connection is part of it because connections differ in strength. An IKE_SA of a widely known shared key must not
/// end one of a certificate.
type IdentityPair = (String, Identification, Identification);

fn identity_pair(sa: &IkeSa) -> IdentityPair {
    (sa.connection.name.clone(), sa.connection.local.clone(), sa.peer_identity())
}

/// Builds the [`StepContext`] of a step from the endpoint's fields, apart from its IKE_SAs.
macro_rules! context {
    ($endpoint:expr, $now:expr) => {
        StepContext {
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
    connections: Vec<Arc<IkeConnection>>,
    rng: SecureRng,
    sas: SessionTable<Box<IkeSa>>,
    /// IKE_SAs by this side's SPI.
    by_spi: HashMap<Spi, u64>,
    /// IKE_SAs of peers by source address and initiator SPI, to recognize a retransmitted first request.
    by_origin: HashMap<(SocketAddr, Spi), u64>,
    /// The inbound SPIs of all CHILD_SAs.
    inbound: HashSet<u32>,
    /// Established IKE_SAs by connection and identities.
    by_pair: HashMap<IdentityPair, Vec<u64>>,
    half_open: HalfOpen,
    /// The load of first requests.
    pressure: RequestPressure,
    /// Lockouts for failed proofs by shared keys.
    proof_lockouts: ProofLockoutTable,
    /// Octets of stored fragments: in half-open IKE_SAs, and in all others.
    fragments: [FragmentUsageTable; 2],
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
        // A network has room for at least one whole message; otherwise none could be reassembled.
        let share = (config.fragments / 8).max(2 * config.message);
        let all = config.fragments.max(2 * share);
        let fragments = [share, usize::MAX].map(|share| FragmentUsageTable::new(all, share, &hasher));
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
            pressure: RequestPressure::new(&hasher),
            proof_lockouts: ProofLockoutTable::new(&hasher),
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
    fn sa_id(&self, token: u64) -> SaId {
        SaId::from_token(token, self.config.shard.number)
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
    fn step_sa<T>(
        &mut self,
        now: Instant,
        token: u64,
        what: impl FnOnce(&mut IkeSa, &mut StepContext<'_>) -> T,
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
                    // An initiator that fails to authenticate has to return cookies next time, and is dropped if it
                    // continues.
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
            self.announce_established(now, token, pair);
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
        // One large message may displace several small ones.
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

    fn find_pair(&self, token: u64) -> Option<IdentityPair> {
        let sa = self.sas.get(token)?;
        sa.remote.as_ref()?;
        Some(identity_pair(sa))
    }

    /// Handles a newly established IKE_SA. Ends others of the same pair after INITIAL_CONTACT, or if they must be
    /// unique.
    fn announce_established(&mut self, now: Instant, token: u64, pair: IdentityPair) {
        self.counters.established += 1;
        let Some(sa) = self.sas.get_mut(token) else { return };
        let (forgotten, unique) = (sa.initial_contact, sa.connection.unique);
        if let Some(old) = sa.resumes.take() {
            self.counters.resumed += 1;
            // Silently, with its CHILD_SAs (RFC 5723 §4.3.4).
            if let Some(old) = self.by_spi.get(&old).copied().filter(|old| *old != token) {
                self.step_sa(now, old, |sa, cx| sa.end_sa(cx, EndReason::Replaced));
            }
        }
        if forgotten || unique {
            self.end_replaced(now, &pair, forgotten);
            if self.config.shard.shard_count > 1 {
                let (connection, local, remote) = pair.clone();
                let sa = self.sa_id(token);
                self.outputs.push_event(IkeEvent::Replaces { sa, connection, local, remote, forgotten });
            }
        }
        self.by_pair.entry(pair).or_default().push(token);
    }

    /// Ends the IKE_SAs of this pair: a new one replaces them.
    fn end_replaced(&mut self, now: Instant, pair: &IdentityPair, forgotten: bool) {
        for other in self.by_pair.remove(pair).unwrap_or_default() {
            self.step_sa(now, other, |sa, cx| {
                if forgotten {
                    // The peer has lost its state of it (RFC 7296 §2.4).
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
            let put_out = self.step_sa(now, token, |sa, cx| {
                if sa.is_established() && sa.is_its_own() {
                    // Its Delete may still wait for another exchange.
                    let is_new = !sa.tasks.contains(&sa::SaTask::Delete(EndReason::Revoked));
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
        let pair = Some(identity_pair(&sa));
        let token = self.insert_sa(now, own, Box::new(sa));
        if let Some(old) = old {
            self.outputs.push_event(IkeEvent::Rekeyed { old, new: self.sa_id(token), spis });
        }
        if let Some(pair) = pair.filter(|_| !silent) {
            self.by_pair.entry(pair).or_default().push(token);
        }
        self.step_sa(now, token, |sa, cx| sa.go_on(cx));
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
            self.add_lingering(token);
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
    fn add_lingering(&mut self, token: u64) {
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
        let marker = is_nat(path.socket);
        let octets = if marker { data.strip_prefix(&NON_ESP_MARKER[..]) } else { Some(data) };
        let Some(octets) = octets else {
            // ESP, or a keepalive (RFC 3948 §2.3).
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
                self.first_response(now, &header, octets);
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
            // A retransmission, or another request with an SPI in use.
            self.step_sa(now, token, |sa, cx| sa.handle_repeated_init(cx, path, octets));
            return;
        }
        let from = path.remote.ip();
        let full = self.half_open() >= self.config.half_open || self.active_sa_count() >= self.config.sas;
        let gives_way = if full { self.half_open.select_eviction(now, from) } else { None };
        if full && gives_way.is_none() {
            self.counters.full += 1;
            return;
        }
        // A sender that has not proved its address displaces no other half-open IKE_SA.
        let all_pressed = full || self.half_open() >= self.config.cookies_from;
        let pressed = all_pressed
            || self.half_open.of_network(from) >= self.config.cookies_from_network
            || self.pressure.is_pressed(now, from);
        // Under a flood, requests without a cookie are dropped before they cost more.
        let shows = first == PayloadType::N;
        if pressed && !shows && !self.pressure.allows_cookie_request(now, from) {
            self.counters.passed_over += 1;
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
            let holds = shown.is_some_and(|cookie| {
                self.cookies.verify_cookie(now, &self.config, &mut self.rng, of, cookie)
            });
            if !holds {
                self.counters.cookies_wrong += u64::from(shown.is_some());
                if shows && !self.pressure.allows_cookie_request(now, from) {
                    self.counters.passed_over += 1;
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
        if pressed && self.pressure.is_shunned(now, from) {
            self.counters.passed_over += 1;
            return;
        }
        let shares = HalfOpenLimits { all: self.config.half_open, host: self.config.half_open_per_network };
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
                    self.counters.gave_way += 1;
                    // The displaced peer may be honest: its network is not charged.
                    self.step_sa(now, other, |sa, cx| sa.end_sa(cx, EndReason::HalfOpen));
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

    fn first_response(&mut self, now: Instant, header: &IkeHeader, octets: &[u8]) {
        let token = self.by_spi.get(&header.initiator_spi).copied();
        let (Some(token), false, 0) = (token, header.initiator, header.message_id) else {
            self.counters.unknown_spi += 1;
            return;
        };
        let Ok(message) = IkeMessage::parse(octets) else {
            self.counters.malformed += 1;
            return;
        };
        self.step_sa(now, token, |sa, cx| match header.exchange {
            ExchangeType::IKE_SESSION_RESUME => resumption::handle_resume_response(sa, cx, &message, octets),
            _ => initial::handle_init_response(sa, cx, &message, octets),
        });
    }

    fn handle_protected(&mut self, now: Instant, path: DatagramPath, header: &IkeHeader, octets: &[u8]) {
        let own = if header.initiator { header.responder_spi } else { header.initiator_spi };
        let Some(token) = self.by_spi.get(&own).copied() else {
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
                self.step_sa(now, token, |sa, cx| sa.handle_message(cx, path, &sealed));
            }
            // A message in the clear is not trusted.
            Ok(None) => self.counters.not_expected += 1,
            Err(_) => self.counters.malformed += 1,
        }
    }

    fn initiate_sa(
        &mut self,
        now: Instant,
        of: u64,
        connection: Arc<IkeConnection>,
        (local, remote): (SocketAddr, SocketAddr),
    ) -> Result<(), CommandError> {
        if self.active_sa_count() >= self.config.sas {
            return Err(CommandError::Full("IKE_SAs"));
        }
        if connection.remote.is_none() && matches!(connection.remote_auth, RemoteAuth::Certificate { .. }) {
            return Err(CommandError::Invalid(
                "anybody with a certificate of that authority would do: say who it is",
            ));
        }
        if matches!(connection.local_auth, LocalAuth::EapOnly)
            || matches!(connection.remote_auth, RemoteAuth::Eap { .. })
        {
            return Err(CommandError::Invalid("its proofs are those of a responder"));
        }
        // The peer may serve several of our connections by one of its own. INITIAL_CONTACT would end their IKE_SAs, so it
        // is sent only if no connection has an IKE_SA of these two identities.
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
            return Err(CommandError::Invalid("no key exchange method is built in"));
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
            self.step_sa(now, token, |sa, cx| sa.handle_timeout(cx));
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
        let token = SaId(token).token();
        match command {
            IkeCommand::Replaced { sa, connection, local, remote, forgotten } => {
                if sa.shard_number() != self.config.shard.number {
                    self.end_replaced(now, &(connection, local, remote), forgotten);
                }
                Ok(())
            }
            IkeCommand::Serve(connections) => {
                self.connections = connections;
                self.proof_lockouts.retain_connections(&self.connections);
                // A key, an authority or a method may have changed since a ticket was issued.
                self.tickets.void_all();
                Ok(())
            }
            IkeCommand::VoidTickets => {
                self.tickets.void_all();
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
                let done = self.step_sa(now, token, |sa, cx| sa.apply_command(cx, refused));
                done.unwrap_or(Err(CommandError::UnknownToken))
            }
            IkeCommand::Initiate { token, connection, local, remote } => {
                self.initiate_sa(now, token, connection, (local, remote))
            }
            command => {
                let done = self.step_sa(now, token, |sa, cx| sa.apply_command(cx, command));
                done.unwrap_or(Err(CommandError::UnknownToken))
            }
        }
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.timers.next_deadline()
    }
}

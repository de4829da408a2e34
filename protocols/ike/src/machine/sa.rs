//! One IKE_SA: its keys, its window of one message in each direction, and its pending tasks.

mod transmission;

pub(super) use super::context::IkeEndpointContext;

use super::child::ChildSaEntry;
use super::collision::{SaEvent, SaState};
use super::config::{IkeConnectionConfig, LocalAuth};
use super::event::{CertificateName, EndReason, IkeCommand, IkeEvent, IkeSaId};
use super::fragments::FragmentReassembly;
use super::half_open::HalfOpenStage;
use super::pressure::LeakyBucket;
use super::spent_tickets::TicketId;
use super::{authenticate, create, followup, informational, initial, intermediate, resumption};
use crate::code::{ExchangeType, NotifyType, PayloadType};
use crate::header::Spi;
use crate::keys::IkeKeys;
use crate::message::{notify_payloads, unsupported_critical};
use crate::payload::{NotifyPayload, Payload, parse_chain};
use crate::protect::{MessageProtection, SealedMessage, unencrypted_message_octets};
use crate::suite::IkeAlgorithms;
use crate::work;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::{CommandError, DatagramPath, Duration, Instant, WallTime};

/// Retransmissions of a ticket request before the IKE_SA begins anew. A responder without support for tickets does
/// not respond.
const RESUMES: u32 = 1;
/// The longest time that a deleted IKE_SA waits for the peer's response. It also limits how long a revoked user
/// stays.
const LEAVE: Duration = Duration::from_secs(30);

/// The keys of an IKE_SA, ready for use.
#[derive(Debug)]
pub(super) struct IkeSaKeyState {
    pub(super) algorithms: IkeAlgorithms,
    pub(super) keys: IkeKeys,
    pub(super) outbound: MessageProtection,
    inbound: MessageProtection,
    /// The keys before the last additional key exchange: its request may be retransmitted under them (RFC 9242
    /// §3.3.1).
    previous: Option<MessageProtection>,
}

impl IkeSaKeyState {
    /// Prepares the keys. `None` if a key does not fit its algorithm, which a chosen proposal rules out.
    pub(super) fn new(algorithms: IkeAlgorithms, keys: IkeKeys, initiator: bool) -> Option<Self> {
        let of = |cipher, mac| MessageProtection::new(&algorithms.packets, cipher, mac);
        let (ours, theirs) = (of(&keys.sk_ei, &keys.sk_ai)?, of(&keys.sk_er, &keys.sk_ar)?);
        let (outbound, inbound) = if initiator { (ours, theirs) } else { (theirs, ours) };
        Some(Self { algorithms, keys, outbound, inbound, previous: None })
    }
    /// Returns the keys after an additional key exchange.
    pub(super) fn with_updated_keys(self, keys: IkeKeys, initiator: bool) -> Option<Self> {
        Some(Self { previous: Some(self.inbound), ..Self::new(self.algorithms, keys, initiator)? })
    }
}

/// The phase of an IKE_SA.
#[derive(Debug)]
pub(super) enum SaPhase {
    /// The IKE_SA_INIT request awaits its response.
    InitSent(Box<initial::PendingSaInit>),
    /// The IKE_SESSION_RESUME request awaits its response.
    Resuming(Box<resumption::PendingResumption>),
    /// The sides authenticate.
    Authenticating(Box<authenticate::AuthenticationState>),
    /// Both sides have authenticated.
    Established,
    /// It has ended. It is removed after this step, or after it has lingered.
    Ended,
}

/// A pending task of an IKE_SA. Each takes one exchange.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum IkeSaTask {
    /// Create the CHILD_SA with this index in its connection.
    CreateChild(usize),
    /// Rekey the CHILD_SA with this inbound SPI.
    RekeyChild(u32),
    /// Delete the CHILD_SA with this inbound SPI.
    DeleteChild(u32),
    /// Delete a CHILD_SA that the peer created and this side rejects, by its intended inbound SPI.
    Disown(u32),
    Rekey,
    Delete(EndReason),
    Probe,
    /// Request a ticket.
    RequestTicket,
    /// Report this side's new addresses to the responder (UPDATE_SA_ADDRESSES).
    Update,
    /// Do a return routability check of the initiator's new address.
    Check,
}

/// A request that awaits its response.
#[derive(Debug)]
pub(super) struct OutstandingRequest {
    id: u32,
    datagrams: Vec<Vec<u8>>,
    retransmissions: u32,
    pub(super) due: Instant,
    pub(super) exchange: PendingExchange,
}

/// The exchange of an outstanding request.
#[derive(Debug)]
pub(super) enum PendingExchange {
    Init,
    Intermediate,
    Auth,
    Create(Box<create::CreateChildRequest>),
    FollowUp(Box<followup::FollowupRequest>),
    DeleteChild(u32),
    Delete(EndReason),
    Probe,
    Ticket,
    Update(informational::MobikePathProbe),
    Check(informational::MobikePathProbe),
}

/// The state of the peer's last request.
#[derive(Debug)]
pub(super) enum LastResponseState {
    /// The response as it was sent; empty before the first request.
    Response(Vec<Vec<u8>>),
    /// A job has to finish before the response.
    Pending,
}

/// An IKE_SA.
#[derive(Debug)]
pub(super) struct IkeSa {
    pub(super) id: IkeSaId,
    pub(super) connection: Arc<IkeConnectionConfig>,
    /// True if this side is the original initiator.
    pub(super) initiator: bool,
    pub(super) spis: (Spi, Spi),
    pub(super) path: DatagramPath,
    /// Number of address changes. A check that was sent before a change proves nothing about the new path.
    pub(super) moves: u64,
    /// The path of the peer's last request, on which its response goes.
    pub(super) reply: DatagramPath,
    /// The peer's proven address. The source of a request may be forged.
    pub(super) proved: IpAddr,
    /// The plaintext of the last IKE_INTERMEDIATE message.
    pub(super) received: Vec<u8>,
    /// Both sides support MOBIKE (RFC 4555).
    pub(super) mobike: bool,
    /// A NAT is in front of this side; in front of the peer.
    pub(super) nat: (bool, bool),
    pub(super) fragmentation: bool,
    pub(super) session: Option<IkeSaKeyState>,
    pub(super) phase: SaPhase,
    pub(super) remote: Option<crate::payload::Identification>,
    pub(super) children: Vec<ChildSaEntry>,
    pub(super) state: SaState,
    pub(super) tasks: VecDeque<IkeSaTask>,
    pub(super) outstanding: Option<OutstandingRequest>,
    pub(super) next_request: u32,
    pub(super) expected: u32,
    pub(super) answered: LastResponseState,
    pub(super) reassembly: FragmentReassembly,
    /// Octets of its fragments, as last counted by the endpoint.
    pub(super) counted: usize,
    /// The IKE_SA of the peer's rekeying while ours is outstanding, and the lowest nonce of that exchange.
    pub(super) peer_rekeyed_sa: Option<(Box<IkeSa>, Vec<u8>)>,
    /// The additional key exchanges that the peer has to begin.
    pub(super) expected_keys: Option<Box<followup::ExpectedFollowup>>,
    /// The time of its rekeying.
    pub(super) rekey_at: Option<Instant>,
    /// Its number among the half-open IKE_SAs.
    pub(super) half_open: u64,
    /// The initiator failed to authenticate, through no fault of this side. The failure counts as a refused first
    /// request.
    pub(super) unproved: bool,
    /// The deadline of the initiator's authentication. For an IKE_SA that this side deletes, the time at which it
    /// ends without a response.
    pub(super) expiry_deadline: Option<Instant>,
    pub(super) last_received: Instant,
    pub(super) sent: Instant,
    /// No new exchange begins before this time, because the peer sent TEMPORARY_FAILURE.
    pub(super) rest_until: Option<Instant>,
    /// It has just been established by authentication.
    pub(super) announce: bool,
    /// The initiator sent INITIAL_CONTACT: it has no other IKE_SA of this pair.
    pub(super) initial_contact: bool,
    /// It lost a rekeying collision, and its end is not reported.
    pub(super) silent: bool,
    /// The IKE_SA that it replaces, until that is reported.
    pub(super) replaced_sa: Option<IkeSaId>,
    /// It has ended, and answers retransmissions of its last request until this time.
    pub(super) lingers_until: Option<Instant>,
    /// Its number among the lingering IKE_SAs.
    pub(super) linger_number: Option<u64>,
    /// The source of its first request, if the peer began it.
    pub(super) origin: Option<core::net::SocketAddr>,
    /// The identity that EAP has authenticated.
    pub(super) authenticated: Option<crate::payload::Identification>,
    /// Time of the last retransmission of the response.
    repeated_at: Option<Instant>,
    /// Times of the peer's recent rekeyings of this IKE_SA and its predecessors.
    pub(super) replaced_at: Vec<Instant>,
    /// The addresses assigned to the initiator.
    pub(super) assigned_addresses: Vec<IpAddr>,
    /// The addresses that this side requests, because it has them by another IKE_SA.
    pub(super) requested_addresses: Vec<IpAddr>,
    /// This side initiated the first IKE_SA of this line, and may have tickets.
    pub(super) client: bool,
    /// The chosen proposal, if there may be tickets.
    pub(super) suite: Option<Box<crate::payload::Proposal>>,
    /// The last ticket that this side issued for it, or the ticket that it resumes from.
    pub(super) ticket: Option<TicketId>,
    /// Expiry of the ticket that it resumes from, in seconds since 1970.
    pub(super) ticket_expires: u64,
    /// Rate limit of the peer's ticket requests.
    pub(super) ticket_debt: LeakyBucket,
    /// Rate limits of the peer's requests: of all, and of those that create or rekey SAs.
    pub(super) request_debt: LeakyBucket,
    pub(super) create_debt: LeakyBucket,
    /// The ticket era in which authentication began, and the end of validity of the proofs.
    pub(super) era: u64,
    pub(super) proof_until: Option<WallTime>,
    /// The certificates by which the peer authenticated, in this IKE_SA or a predecessor.
    pub(super) certificates: Arc<[CertificateName]>,
    /// This side's SPI of the IKE_SA that it resumes.
    pub(super) resumes: Option<Spi>,
    /// The waiter of its jobs; `None` once it has ended.
    pub(super) waiter: Option<usher_core::JobWaiter>,
}

impl IkeSa {
    pub(super) fn new(
        connection: Arc<IkeConnectionConfig>,
        initiator: bool,
        path: DatagramPath,
        now: Instant,
    ) -> Self {
        Self {
            id: IkeSaId(0),
            connection,
            initiator,
            spis: (Spi::ZERO, Spi::ZERO),
            path,
            moves: 0,
            reply: path,
            proved: path.remote.ip(),
            received: Vec::new(),
            mobike: false,
            nat: (false, false),
            fragmentation: false,
            session: None,
            phase: SaPhase::Established,
            remote: None,
            children: Vec::new(),
            state: SaState::Established,
            tasks: VecDeque::new(),
            outstanding: None,
            next_request: 0,
            expected: 0,
            answered: LastResponseState::Response(Vec::new()),
            reassembly: FragmentReassembly::default(),
            counted: 0,
            half_open: 0,
            unproved: false,
            peer_rekeyed_sa: None,
            expected_keys: None,
            rekey_at: None,
            expiry_deadline: None,
            last_received: now,
            sent: now,
            rest_until: None,
            announce: false,
            initial_contact: false,
            silent: false,
            replaced_sa: None,
            lingers_until: None,
            linger_number: None,
            origin: None,
            authenticated: None,
            repeated_at: None,
            replaced_at: Vec::new(),
            assigned_addresses: Vec::new(),
            requested_addresses: Vec::new(),
            client: false,
            suite: None,
            ticket: None,
            ticket_expires: 0,
            ticket_debt: LeakyBucket::default(),
            request_debt: LeakyBucket::default(),
            create_debt: LeakyBucket::default(),
            era: 0,
            proof_until: None,
            certificates: Arc::new([]),
            resumes: None,
            waiter: None,
        }
    }
    /// Returns the peer's authenticated identity.
    pub(super) fn peer_identity(&self) -> crate::payload::Identification {
        let known = self.authenticated.as_ref().or(self.remote.as_ref());
        known.unwrap_or(&self.connection.local).clone()
    }
    /// Returns this side's SPI.
    pub(super) fn own_spi(&self) -> Spi {
        if self.initiator { self.spis.0 } else { self.spis.1 }
    }
    /// True if the peer began it and has not yet authenticated.
    pub(super) fn is_half_open(&self) -> bool {
        !self.initiator && matches!(self.phase, SaPhase::Authenticating(_))
    }
    /// Returns the stage of a half-open IKE_SA.
    pub(super) fn half_open_stage(&self) -> Option<HalfOpenStage> {
        let stage = match (&self.answered, self.expected) {
            (LastResponseState::Pending, _) => HalfOpenStage::AwaitingResponder,
            (LastResponseState::Response(_), ..=1) => HalfOpenStage::Initial,
            (LastResponseState::Response(_), _) => HalfOpenStage::Continued,
        };
        self.is_half_open().then_some(stage)
    }
    /// Returns the peer's proven address, with the port of its newest request if that came from the same address.
    pub(super) fn proven_peer_address(&self) -> core::net::SocketAddr {
        let remote = self.path.remote;
        if remote.ip() == self.proved { remote } else { self.origin.unwrap_or(remote) }
    }
    pub(super) fn is_established(&self) -> bool {
        matches!(self.phase, SaPhase::Established)
    }
    /// True if it is neither replaced nor being deleted.
    pub(super) const fn is_active_ike_sa(&self) -> bool {
        matches!(self.state, SaState::Established | SaState::Rekeying | SaState::Collided)
    }

    /// Reports its keys if the configuration exports them.
    pub(super) fn report_keys(&self, cx: &mut IkeEndpointContext<'_>) {
        if let Some(session) = self.session.as_ref().filter(|_| cx.config.export_keys) {
            let (algorithms, keys) = (session.algorithms.packets, Box::new(session.keys.clone()));
            cx.outputs.push_event(IkeEvent::Keys { spis: self.spis, algorithms, keys });
        }
    }

    /// Ends it without a message.
    pub(super) fn end_sa(&mut self, cx: &mut IkeEndpointContext<'_>, reason: EndReason) {
        if matches!(self.phase, SaPhase::Ended) {
            return;
        }
        resumption::discard_tickets(self, cx, reason);
        self.phase = SaPhase::Ended;
        self.waiter = None;
        for child in core::mem::take(&mut self.children) {
            child.remove(cx, self.id);
        }
        self.outstanding = None;
        self.peer_rekeyed_sa = None;
        self.expected_keys = None;
        if !self.silent {
            cx.outputs.push_event(IkeEvent::Ended { sa: self.id, reason });
        }
    }
    /// Ends it with its last response, which a retransmitted request gets again.
    pub(super) fn end_keeping_last_response(&mut self, cx: &mut IkeEndpointContext<'_>, reason: EndReason) {
        self.end_sa(cx, reason);
        self.lingers_until = Some(cx.now + cx.config.proof_timeout);
        // A lingering IKE_SA only repeats its last response, so it needs none of this state.
        (self.tasks, self.assigned_addresses, self.suite) = (VecDeque::new(), Vec::new(), None);
        self.received = Vec::new();
    }

    /// Handles a retransmitted first request, or another with the same SPI.
    pub(super) fn handle_repeated_init(
        &mut self,
        cx: &mut IkeEndpointContext<'_>,
        path: DatagramPath,
        octets: &[u8],
    ) {
        match &self.phase {
            SaPhase::Authenticating(state) if self.expected == 1 && state.is_first(octets) => {
                self.resend_last_response(cx, path);
            }
            _ => cx.counters.not_expected += 1,
        }
    }

    /// Handles a message under the IKE_SA's keys.
    pub(super) fn handle_message(
        &mut self,
        cx: &mut IkeEndpointContext<'_>,
        path: DatagramPath,
        sealed: &SealedMessage<'_>,
    ) {
        let header = &sealed.header;
        if header.initiator == self.initiator {
            cx.counters.not_expected += 1;
            return;
        }
        let (response, id) = (header.response, header.message_id);
        // RFC 7296, 2.1: only the newest response is kept, and no older one rebuilt.
        let repeated = !response && id == self.expected.wrapping_sub(1) && id < self.expected;
        let awaited = if response {
            self.outstanding
                .as_ref()
                .is_some_and(|o| o.id == id && !matches!(o.exchange, PendingExchange::Init))
        } else {
            // The window holds one request, so none is accepted while a job works on the last. A responder may send
            // none before it has authenticated. A request that overtakes its proof will be retransmitted.
            let open =
                !matches!(self.phase, SaPhase::Ended) && !matches!(self.answered, LastResponseState::Pending);
            id == self.expected && open && (!self.initiator || self.is_established())
        };
        if !repeated && !awaited {
            cx.counters.not_expected += 1;
            return;
        }
        if self.is_half_open() && self.is_from_other_address(path) {
            cx.counters.elsewhere += 1;
            return;
        }
        // A dropped request is retransmitted, and handled when the rate allows it (RFC 8019 §5).
        let asks = awaited && !response && self.is_established();
        let most = cx.config.requests_per_minute;
        if asks && self.request_debt.is_minute_limit_reached(cx.now, most) {
            cx.counters.requests_rate_limited += 1;
            return;
        }
        let Some(session) = &self.session else {
            cx.counters.not_expected += 1;
            return;
        };
        if repeated && sealed.fragment.is_some_and(|(number, _)| number != 1) {
            // Only the first fragment triggers a retransmission of the response (RFC 7383 §2.6.1).
            cx.counters.duplicates += 1;
            return;
        }
        cx.count_work(work::OPEN);
        let earlier = session.previous.as_ref().filter(|_| repeated);
        let opened = session.inbound.open(sealed).or_else(|| earlier.and_then(|keys| keys.open(sealed)));
        // RFC 7296, 2.4, 2.21.4, 3.14: a message without a valid checksum changes nothing.
        let Some(content) = opened else {
            cx.counters.integrity += 1;
            return;
        };
        if repeated {
            // RFC 7296, 2.1: a repeated request gets the same response and is not processed again. It may be a replay,
            // so it does not prove that the peer is alive.
            return self.resend_last_response(cx, path);
        }
        self.last_received = cx.now;
        if asks {
            self.request_debt.charge_minute_share(cx.now, most);
        }
        let (first, content) = match sealed.fragment {
            None => (sealed.first, content),
            // RFC 7383, 2.3: fragments only if both sides support them.
            Some(_) if !self.fragmentation => {
                cx.counters.fragments += 1;
                return;
            }
            Some(of) => {
                match self.reassembly.add_fragment(
                    (response, id),
                    of,
                    sealed.first,
                    content,
                    cx.config.message,
                ) {
                    Ok(Some(whole)) => whole,
                    Ok(None) => return,
                    Err(_) => {
                        cx.counters.fragments += 1;
                        return;
                    }
                }
            }
        };
        self.reassembly = FragmentReassembly::default();
        if header.exchange == ExchangeType::IKE_INTERMEDIATE {
            self.received = unencrypted_message_octets(header, first, &content);
        }
        let payloads = parse_chain(first, &content);
        if response {
            self.handle_response(cx, header.exchange, payloads.ok());
        } else {
            // The IKE_SA must close before its message IDs run out (RFC 7296 §2.2).
            let Some(next) = self.expected.checked_add(1) else {
                return self.end_sa(cx, EndReason::Protocol);
            };
            self.expected = next;
            self.update_path_from_request(cx, path);
            self.handle_request(cx, header.exchange, payloads.ok());
        }
        self.received = Vec::new();
        self.go_on(cx);
    }

    /// True if a request of an initiator that still authenticates comes from a wrong address. The port may change,
    /// since the initiator may move to port 4500 (RFC 7296 §2.23). The address may change only behind a NAT.
    /// Otherwise a replayed request with a forged source would redirect packets.
    fn is_from_other_address(&self, path: DatagramPath) -> bool {
        let other = path.remote.ip() != self.proved && !self.nat.1;
        other || path.local.ip() != self.path.local.ip()
    }

    /// Follows the source address of the peer's newest request (RFC 7296 §2.23). Before authentication the peer may
    /// move to port 4500. Later, its address changes only behind a NAT.
    fn update_path_from_request(&mut self, cx: &mut IkeEndpointContext<'_>, path: DatagramPath) {
        self.reply = path;
        if self.is_half_open() {
            self.set_path(path);
            return;
        }
        if self.is_established() && self.follows_peer_address() && path.remote != self.path.remote {
            self.set_path(path);
            self.report_path_change(cx);
        }
    }

    /// True if the source of authentic packets becomes the peer's address. With MOBIKE, only the initiator reports
    /// moves (RFC 4555 §3.8).
    pub(super) const fn follows_peer_address(&self) -> bool {
        self.nat.1 && !self.nat.0 && !self.mobike
    }

    /// Reports that packets take the IKE_SA's path from now on.
    pub(super) fn report_path_change(&mut self, cx: &mut IkeEndpointContext<'_>) {
        cx.counters.moved += 1;
        let (path, encapsulated) = (self.path, self.nat.0 || self.nat.1);
        for child in &mut self.children {
            (child.sa.path, child.sa.encapsulated) = (path, encapsulated);
        }
        cx.outputs.push_event(IkeEvent::Moved { sa: self.id, path, encapsulated });
    }

    fn handle_request(
        &mut self,
        cx: &mut IkeEndpointContext<'_>,
        exchange: ExchangeType,
        payloads: Option<Vec<Payload>>,
    ) {
        let Some(payloads) = payloads else {
            // RFC 7296, 2.21.3: INVALID_SYNTAX ends the IKE_SA.
            return self.reject_request(cx, exchange, NotifyPayload::new(NotifyType::INVALID_SYNTAX));
        };
        if let Some(PayloadType(kind)) = unsupported_critical(&payloads) {
            // RFC 7296, 2.5: the notification names the payload's type.
            let notify = NotifyPayload::with_data(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, [kind]);
            cx.counters.critical += 1;
            return self.respond_notify(cx, exchange, notify);
        }
        match exchange {
            ExchangeType::IKE_AUTH if self.is_half_open() => {
                authenticate::responder::handle_auth_request(self, cx, payloads);
            }
            ExchangeType::IKE_INTERMEDIATE if self.is_half_open() => {
                intermediate::handle_intermediate_request(self, cx, &payloads);
            }
            ExchangeType::CREATE_CHILD_SA if self.is_established() => {
                create::handle_create_request(self, cx, &payloads)
            }
            ExchangeType::IKE_FOLLOWUP_KE if self.is_established() => {
                followup::handle_followup_request(self, cx, &payloads)
            }
            ExchangeType::INFORMATIONAL if self.is_established() => {
                informational::handle_informational_request(self, cx, &payloads)
            }
            // An initiator that rejects this side's proof reports it (RFC 7296 §2.21.2).
            ExchangeType::INFORMATIONAL
                if self.is_half_open() && notify_payloads(&payloads).any(|notify| notify.kind.is_error()) =>
            {
                cx.counters.authentication_failed += 1;
                self.unproved = true;
                self.respond_protected(cx, exchange, &[]);
                self.end_keeping_last_response(cx, EndReason::Refused);
            }
            // The peer has the keys, but its message has no place in this phase.
            _ => self.reject_request(cx, exchange, NotifyPayload::new(NotifyType::INVALID_SYNTAX)),
        }
    }

    /// Rejects a request that violates the protocol, and ends the IKE_SA (RFC 7296 §2.21).
    pub(super) fn reject_request(
        &mut self,
        cx: &mut IkeEndpointContext<'_>,
        exchange: ExchangeType,
        notify: NotifyPayload,
    ) {
        cx.counters.syntax += 1;
        self.unproved |= self.is_half_open();
        self.respond_notify(cx, exchange, notify);
        self.end_keeping_last_response(cx, EndReason::Protocol);
    }

    fn handle_response(
        &mut self,
        cx: &mut IkeEndpointContext<'_>,
        exchange: ExchangeType,
        payloads: Option<Vec<Payload>>,
    ) {
        let Some(outstanding) = self.outstanding.take() else { return };
        let Some(payloads) = payloads.filter(|payloads| unsupported_critical(payloads).is_none()) else {
            // A response cannot be rejected, so the IKE_SA ends (RFC 7296 §2.21.3).
            cx.counters.syntax += 1;
            return self.end_sa(cx, EndReason::Protocol);
        };
        let fits = match outstanding.exchange {
            PendingExchange::Init | PendingExchange::Auth => ExchangeType::IKE_AUTH,
            PendingExchange::Intermediate => ExchangeType::IKE_INTERMEDIATE,
            PendingExchange::Create(_) => ExchangeType::CREATE_CHILD_SA,
            PendingExchange::FollowUp(_) => ExchangeType::IKE_FOLLOWUP_KE,
            PendingExchange::DeleteChild(_)
            | PendingExchange::Delete(_)
            | PendingExchange::Probe
            | PendingExchange::Ticket
            | PendingExchange::Update(_)
            | PendingExchange::Check(_) => ExchangeType::INFORMATIONAL,
        };
        if exchange != fits {
            cx.counters.syntax += 1;
            return self.end_sa(cx, EndReason::Protocol);
        }
        match outstanding.exchange {
            PendingExchange::Init | PendingExchange::Auth => {
                authenticate::initiator::handle_auth_response(self, cx, payloads)
            }
            PendingExchange::Intermediate => intermediate::handle_intermediate_response(self, cx, &payloads),
            PendingExchange::Create(request) => create::handle_create_response(self, cx, *request, payloads),
            PendingExchange::FollowUp(request) => {
                followup::handle_followup_response(self, cx, *request, &payloads)
            }
            PendingExchange::DeleteChild(spi) => informational::handle_child_delete_response(self, cx, spi),
            PendingExchange::Delete(reason) => {
                create::apply_sa_rekey_event(self, cx, SaEvent::DeleteAnswered, None);
                self.end_sa(cx, reason);
            }
            PendingExchange::Probe => cx.outputs.push_event(IkeEvent::Alive { sa: self.id }),
            PendingExchange::Ticket => resumption::store_ticket(self, cx, &payloads),
            PendingExchange::Update(moving) => {
                informational::handle_update_response(self, cx, &moving, &payloads)
            }
            PendingExchange::Check(moving) => {
                informational::handle_check_response(self, cx, &moving, &payloads)
            }
        }
    }

    /// Begins the next exchange if none is outstanding.
    pub(super) fn go_on(&mut self, cx: &mut IkeEndpointContext<'_>) {
        // RFC 7296, 2.3: one request at a time, within the peer's window.
        while self.is_established() && self.outstanding.is_none() {
            // A task that creates or rekeys an SA waits if the peer has deferred it, or if it would collide with the
            // peer's exchange. All others go on.
            let rests = self.rest_until.is_some_and(|until| until > cx.now) || self.expected_keys.is_some();
            let waits = |task: &IkeSaTask| {
                rests
                    && matches!(task, IkeSaTask::CreateChild(_) | IkeSaTask::RekeyChild(_) | IkeSaTask::Rekey)
            };
            let Some(at) = self.tasks.iter().position(|task| !waits(task)) else { return };
            let Some(task) = self.tasks.remove(at) else { return };
            if !rests {
                self.rest_until = None;
            }
            match task {
                IkeSaTask::CreateChild(_) | IkeSaTask::RekeyChild(_) | IkeSaTask::Rekey => {
                    create::start_create_exchange(self, cx, task)
                }
                IkeSaTask::DeleteChild(_)
                | IkeSaTask::Disown(_)
                | IkeSaTask::Delete(_)
                | IkeSaTask::Probe
                | IkeSaTask::RequestTicket
                | IkeSaTask::Update
                | IkeSaTask::Check => informational::start_informational(self, cx, &task),
            }
        }
    }

    /// Adds a task unless it is already pending.
    pub(super) fn plan_task(&mut self, task: IkeSaTask) {
        if !self.tasks.contains(&task) {
            match task {
                IkeSaTask::Delete(_) => self.tasks.push_front(task),
                // Address updates and checks come before all other tasks except deletions.
                IkeSaTask::Update | IkeSaTask::Check => {
                    let deletes =
                        self.tasks.iter().take_while(|task| matches!(task, IkeSaTask::Delete(_))).count();
                    self.tasks.insert(deletes, task);
                }
                task => self.tasks.push_back(task),
            }
        }
    }

    pub(super) fn apply_command(
        &mut self,
        cx: &mut IkeEndpointContext<'_>,
        command: IkeCommand,
    ) -> Result<(), CommandError> {
        let child = |sa: &Self, spi| sa.children.iter().any(|child| child.sa.inbound == spi);
        match command {
            IkeCommand::Eap { answer, .. } => authenticate::responder::apply_eap_answer(self, cx, answer)?,
            IkeCommand::Address { attributes, .. } => {
                authenticate::responder::apply_address(self, cx, attributes)?
            }
            IkeCommand::Signed { signature, ocsp, .. } => {
                authenticate::apply_signature_result(self, cx, signature, ocsp)?
            }
            IkeCommand::Unable { .. } => authenticate::fail_pending_job(self, cx)?,
            IkeCommand::Verified { until, certificates, .. } => {
                authenticate::apply_verification_result(self, cx, until, certificates)?;
            }
            IkeCommand::Delete(_) if !self.is_established() => self.end_sa(cx, EndReason::Deleted),
            _ if !self.is_established() => {
                return Err(CommandError::WrongState("the IKE_SA is not established"));
            }
            IkeCommand::Traffic { received, sent, .. } => {
                if received {
                    self.last_received = cx.now;
                }
                if sent {
                    self.sent = cx.now;
                }
            }
            _ if !self.is_active_ike_sa() => {
                return Err(CommandError::WrongState("the IKE_SA has been replaced, or is being deleted"));
            }
            IkeCommand::CreateChild { name, .. } => {
                let mut names = self.connection.children.iter();
                let number = names.position(|child| child.name == name);
                let number =
                    number.ok_or(CommandError::Invalid("the connection has no CHILD_SA of this name"))?;
                self.plan_task(IkeSaTask::CreateChild(number));
            }
            IkeCommand::RekeyChild { spi, .. } if child(self, spi) => {
                self.plan_task(IkeSaTask::RekeyChild(spi))
            }
            IkeCommand::DeleteChild { spi, .. } if child(self, spi) => {
                self.plan_task(IkeSaTask::DeleteChild(spi))
            }
            IkeCommand::RekeyChild { .. } | IkeCommand::DeleteChild { .. } => {
                return Err(CommandError::Invalid("the IKE_SA has no CHILD_SA with this inbound SPI"));
            }
            IkeCommand::Rekey(_) => self.plan_task(IkeSaTask::Rekey),
            IkeCommand::Delete(_) => self.put_out(cx, EndReason::Deleted),
            IkeCommand::Probe(_) => self.plan_task(IkeSaTask::Probe),
            IkeCommand::Move { local, remote, .. } => {
                if !self.mobike || !self.initiator {
                    return Err(CommandError::WrongState(
                        "only the initiator can move, and only with MOBIKE",
                    ));
                }
                self.set_path(DatagramPath { local, remote, ..self.path });
                self.plan_task(IkeSaTask::Update);
            }
            IkeCommand::Serve(_)
            | IkeCommand::Initiate { .. }
            | IkeCommand::Replaced { .. }
            | IkeCommand::Revoked(_)
            | IkeCommand::VoidTickets => {}
        }
        self.go_on(cx);
        Ok(())
    }

    /// Deletes it, and ends it even if the peer does not respond.
    pub(super) fn put_out(&mut self, cx: &mut IkeEndpointContext<'_>, reason: EndReason) {
        self.expiry_deadline.get_or_insert(cx.now + LEAVE);
        self.plan_task(IkeSaTask::Delete(reason));
    }
    /// Returns the reason of its deletion.
    pub(super) fn deletion_reason(&self) -> EndReason {
        let under_way = match self.outstanding.as_ref().map(|outstanding| &outstanding.exchange) {
            Some(PendingExchange::Delete(reason)) => Some(*reason),
            _ => None,
        };
        let planned = self.tasks.iter().find_map(|task| match task {
            IkeSaTask::Delete(reason) => Some(*reason),
            _ => None,
        });
        under_way.or(planned).unwrap_or(EndReason::Deleted)
    }

    /// Retransmits the outstanding request. False if the retransmissions are used up; the IKE_SA then ends.
    pub(super) fn retransmit_request(&mut self, cx: &mut IkeEndpointContext<'_>) -> bool {
        let Some(mut outstanding) = self.outstanding.take() else { return true };
        if matches!(self.phase, SaPhase::Resuming(_)) && outstanding.retransmissions >= RESUMES {
            resumption::fall_back_to_full_init(self, cx);
            return true;
        }
        let hurried = match self.phase.record_refused_repeat() {
            Some(Err(reason)) => {
                self.end_sa(cx, reason);
                return false;
            }
            wait => wait.and_then(Result::ok),
        };
        // RFC 7296, 2.4: the peer counts as dead only after all retransmissions, with backoff.
        if outstanding.retransmissions >= cx.config.retransmission.count {
            cx.counters.given_up += 1;
            self.end_sa(cx, EndReason::Unreachable);
            return false;
        }
        outstanding.retransmissions += 1;
        let wait = cx.config.retransmission.retransmission_timeout_after(outstanding.retransmissions);
        outstanding.due = cx.now + hurried.unwrap_or(wait);
        cx.counters.retransmissions += 1;
        // RFC 7296, 2.1, 2.2: a retransmission has the same octets, message ID included.
        self.transmit_datagrams(cx, &outstanding.datagrams, self.path);
        self.outstanding = Some(outstanding);
        true
    }

    /// Enters the established phase and starts its timers.
    pub(super) fn mark_established(&mut self, cx: &mut IkeEndpointContext<'_>) {
        self.phase = SaPhase::Established;
        self.expiry_deadline = None;
        self.last_received = cx.now;
        // RFC 7296, 2.8: rekeying in time, with a tenth of jitter so that two sides rarely rekey at the same time.
        self.rekey_at = self.connection.rekey_after.map(|after| cx.now + with_jitter(cx, after));
    }

    /// Returns this side's identification payload, IDi or IDr.
    pub(super) fn own_identification(&self) -> Payload {
        let id = self.connection.local.clone();
        if self.initiator {
            Payload::IdentificationInitiator(id)
        } else {
            Payload::IdentificationResponder(id)
        }
    }
    /// True if this side authenticates by EAP.
    pub(super) fn is_eap_peer(&self) -> bool {
        matches!(self.connection.local_auth, LocalAuth::Eap { .. })
    }
}

/// Shortens a time by up to a tenth.
pub(super) fn with_jitter(cx: &mut IkeEndpointContext<'_>, time: Duration) -> Duration {
    let less = (time.as_nanos() / 10).saturating_mul(u64::from(cx.rng.next_u32() >> 16)) >> 16;
    time - Duration::from_nanos(less)
}

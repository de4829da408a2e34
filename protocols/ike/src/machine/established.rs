//! An established IKE_SA: its CHILD_SAs, its tasks, and the exchange that it has begun.

use super::base::{IkeSaBase, NoncePair};
use super::collision::{ChildState, SaState};
use super::config::IpsecMode;
use super::context::IkeEndpointContext;
use super::event::{ChildSa, EndReason, IkeEvent, IkeSaId};
use super::half_open::HalfOpenStage;
use super::pressure::LeakyBucket;
use super::spent_tickets::TicketId;
use crate::code::{ExchangeType, KeyExchangeMethod};
use crate::header::Spi;
use crate::payload::{NotifyPayload, Payload, Proposal, TrafficSelector};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::net::IpAddr;
use usher_core::{Duration, Instant};
use usher_crypto::SecretValue;

/// The longest time that a deleted IKE_SA waits for the peer's response. It also limits how long a revoked user
/// stays.
const LEAVE: Duration = Duration::from_secs(30);

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

/// An exchange that this side has begun. Its request is out.
pub(super) trait SaExchange: Debug + Send {
    /// Handles the response, which has no unknown critical payload. Returns the exchange that follows at once.
    ///
    /// # Errors
    /// The reason why the IKE_SA ends.
    fn handle_response(
        self: Box<Self>,
        sa: &mut EstablishedSa<'_>,
        cx: &mut IkeEndpointContext,
        payloads: Vec<Payload>,
    ) -> Result<Option<StartedExchange>, EndReason>;
    /// True if the peer has to wait until it is done before it rekeys the IKE_SA (RFC 7296 §2.25.2).
    fn defers_peer_rekeying(&self) -> bool {
        false
    }
    /// True if its response proves an address of the peer.
    fn proves_address(&self) -> bool {
        false
    }
    /// Returns the reason if it deletes the IKE_SA.
    fn deletion_reason(&self) -> Option<EndReason> {
        None
    }
}

/// An exchange to begin, with the payloads of its request.
#[derive(Debug)]
pub(super) struct StartedExchange {
    pub(super) kind: ExchangeType,
    pub(super) payloads: Vec<Payload>,
    pub(super) exchange: Box<dyn SaExchange>,
}

impl StartedExchange {
    /// Returns an INFORMATIONAL exchange.
    pub(super) fn informational(payloads: Vec<Payload>, exchange: impl SaExchange + 'static) -> Self {
        Self { kind: ExchangeType::INFORMATIONAL, payloads, exchange: Box::new(exchange) }
    }
}

/// The answer to a request of the peer.
#[derive(Debug)]
pub(super) enum PeerRequestAnswer {
    /// The payloads of the response.
    Response(Vec<Payload>),
    /// The payloads of the last response: the IKE_SA ends for this reason.
    LastResponse(Vec<Payload>, EndReason),
    /// The request violates the protocol. INVALID_SYNTAX ends the IKE_SA (RFC 7296 §2.21.3).
    InvalidSyntax,
}

impl From<NotifyPayload> for PeerRequestAnswer {
    fn from(notify: NotifyPayload) -> Self {
        Self::Response(Vec::from([Payload::Notify(notify)]))
    }
}

/// A CHILD_SA of an IKE_SA.
#[derive(Debug)]
pub(super) struct ChildSaEntry {
    pub(super) sa: ChildSa,
    /// Its index in the connection's CHILD_SAs.
    pub(super) config: usize,
    pub(super) state: ChildState,
    /// The time at which this side rekeys it.
    pub(super) rekey_at: Option<Instant>,
    /// The result of the peer's rekeying while ours is outstanding: the inbound SPI of the new CHILD_SA, and the
    /// lowest nonce of that exchange.
    pub(super) rival: Option<(u32, Vec<u8>)>,
}

impl ChildSaEntry {
    pub(super) fn remove(self, cx: &mut IkeEndpointContext, sa: IkeSaId) {
        if !matches!(self.state, ChildState::Gone | ChildState::Bereft) {
            cx.remove_child_sa(sa, self.sa.inbound, self.sa.outbound);
        }
    }
}

/// The shared secrets of an exchange: of its own key exchange, if any, and of the additional ones.
#[derive(Debug)]
pub(super) struct KeyExchangeSecrets {
    pub(super) first: Option<SecretValue>,
    /// The secrets of the additional key exchanges, concatenated.
    further: SecretValue,
}

impl Default for KeyExchangeSecrets {
    fn default() -> Self {
        Self { first: None, further: SecretValue::new(Vec::new()) }
    }
}

impl KeyExchangeSecrets {
    pub(super) fn with_initial_shared_secret(first: Option<SecretValue>) -> Self {
        Self { first, ..Self::default() }
    }
    pub(super) fn append_further_secret(&mut self, further: &SecretValue) {
        // A buffer that grew in place could leave a copy of the secret behind. A buffer that is replaced is zeroed.
        self.further = SecretValue::new([&self.further[..], further].concat());
    }
    /// Returns the secrets as the key derivation takes them.
    pub(super) fn key_derivation_secrets(&self) -> (Option<&[u8]>, &[u8]) {
        (self.first.as_deref().map(Vec::as_slice), &self.further)
    }
}

/// A CHILD_SA that a responder has granted, not yet installed.
#[derive(Debug)]
pub(super) struct GrantedChildSa {
    pub(super) config: usize,
    pub(super) proposal: Proposal,
    pub(super) inbound: u32,
    pub(super) outbound: u32,
    pub(super) local: Vec<TrafficSelector>,
    pub(super) remote: Vec<TrafficSelector>,
    pub(super) mode: IpsecMode,
    pub(super) replaces: Option<u32>,
}

/// The SA that a responder creates after the last key exchange.
#[derive(Debug)]
pub(super) enum PendingFollowupSa {
    /// A CHILD_SA, which replaces the one with this inbound SPI.
    Child { granted: Box<GrantedChildSa>, replaces: Option<u32> },
    /// The IKE_SA that replaces this one.
    Ike { spis: (Spi, Spi), chosen: Proposal },
}

/// The additional key exchanges that a responder expects.
#[derive(Debug)]
pub(super) struct ExpectedFollowup {
    /// The link that the next request has to return.
    pub(super) link: [u8; 16],
    pub(super) methods: VecDeque<KeyExchangeMethod>,
    pub(super) secrets: KeyExchangeSecrets,
    pub(super) nonces: NoncePair,
    pub(super) makes: PendingFollowupSa,
    /// The time at which it is dropped.
    pub(super) until: Instant,
}

/// An IKE_SA that a rekeying has created.
#[derive(Debug)]
pub(super) struct SuccessorSa {
    pub(super) base: IkeSaBase,
    pub(super) state: EstablishedState,
    /// The IKE_SA that it replaces, if that is to be reported.
    pub(super) replaces: Option<IkeSaId>,
}

/// An effect of a step of an IKE_SA on its endpoint.
#[derive(Debug)]
pub(super) enum SaEffect {
    /// A half-open IKE_SA has reached a stage.
    HalfOpen {
        /// Its number among the half-open IKE_SAs.
        number: u64,
        stage: HalfOpenStage,
    },
    /// It is no longer half-open.
    NotHalfOpen {
        number: u64,
        /// Its initiator failed to authenticate, through no fault of this side. It counts as a refused first request.
        unproved: bool,
    },
    /// It has been established by authentication.
    Established {
        /// The initiator says that it has no other IKE_SA of this pair.
        initial_contact: bool,
        /// This side's SPI of the IKE_SA that the initiator resumes.
        resumes: Option<Spi>,
    },
    /// The memory of its fragments may have changed.
    FragmentMemory,
    /// A rekeying has created another.
    Successor(Box<SuccessorSa>),
}

/// The state of an established IKE_SA.
#[derive(Debug)]
pub(super) struct EstablishedState {
    pub(super) rekeying: SaState,
    pub(super) children: Vec<ChildSaEntry>,
    pub(super) tasks: VecDeque<IkeSaTask>,
    /// The exchange of the outstanding request.
    pub(super) exchange: Option<Box<dyn SaExchange>>,
    /// Both sides support MOBIKE (RFC 4555).
    pub(super) mobike: bool,
    /// The addresses assigned to the initiator.
    pub(super) assigned_addresses: Vec<IpAddr>,
    /// The time of its rekeying.
    pub(super) rekey_at: Option<Instant>,
    /// No new exchange begins before this time, because the peer sent TEMPORARY_FAILURE.
    pub(super) rest_until: Option<Instant>,
    /// The time at which it ends without a response to this side's Delete.
    pub(super) leaves_at: Option<Instant>,
    /// The IKE_SA of the peer's rekeying while ours is outstanding, and the lowest nonce of that exchange.
    pub(super) peer_rekeyed_sa: Option<(Box<SuccessorSa>, Vec<u8>)>,
    /// The additional key exchanges that the peer has to begin.
    pub(super) expected_keys: Option<Box<ExpectedFollowup>>,
    /// Times of the peer's recent rekeyings of this IKE_SA and its predecessors.
    pub(super) replaced_at: Vec<Instant>,
    /// It lost a rekeying collision, and its end is not reported.
    pub(super) silent: bool,
    /// The last ticket that this side issued for it.
    pub(super) ticket: Option<TicketId>,
    /// Rate limit of the peer's ticket requests.
    pub(super) ticket_debt: LeakyBucket,
    /// Rate limits of the peer's requests: of all, and of those that create or rekey SAs.
    pub(super) request_debt: LeakyBucket,
    pub(super) create_debt: LeakyBucket,
}

impl EstablishedState {
    /// Returns the state of an IKE_SA that is established now, and starts its timers.
    pub(super) fn new(base: &mut IkeSaBase, cx: &mut IkeEndpointContext) -> Self {
        base.last_received = cx.now;
        // RFC 7296, 2.8: rekeying in time, with a tenth of jitter so that two sides rarely rekey at the same time.
        let rekey_at = base.connection.rekey_after.map(|after| cx.now + cx.with_jitter(after));
        Self {
            rekeying: SaState::Established,
            children: Vec::new(),
            tasks: VecDeque::new(),
            exchange: None,
            mobike: false,
            assigned_addresses: Vec::new(),
            rekey_at,
            rest_until: None,
            leaves_at: None,
            peer_rekeyed_sa: None,
            expected_keys: None,
            replaced_at: Vec::new(),
            silent: false,
            ticket: None,
            ticket_debt: LeakyBucket::default(),
            request_debt: LeakyBucket::default(),
            create_debt: LeakyBucket::default(),
        }
    }
    /// True if it is neither replaced nor being deleted.
    pub(super) const fn is_active_ike_sa(&self) -> bool {
        matches!(self.rekeying, SaState::Established | SaState::Rekeying | SaState::Collided)
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
    /// Takes the next task that may begin now.
    pub(super) fn take_task(&mut self, now: Instant) -> Option<IkeSaTask> {
        // A task that creates or rekeys an SA waits if the peer has deferred it, or if it would collide with the peer's
        // exchange. All others go on.
        let rests = self.rest_until.is_some_and(|until| until > now) || self.expected_keys.is_some();
        let waits = |task: &IkeSaTask| {
            rests && matches!(task, IkeSaTask::CreateChild(_) | IkeSaTask::RekeyChild(_) | IkeSaTask::Rekey)
        };
        let at = self.tasks.iter().position(|task| !waits(task))?;
        if !rests {
            self.rest_until = None;
        }
        self.tasks.remove(at)
    }
    /// Plans its deletion. It ends even if the peer does not respond.
    pub(super) fn put_out(&mut self, now: Instant, reason: EndReason) {
        self.leaves_at.get_or_insert(now + LEAVE);
        self.plan_task(IkeSaTask::Delete(reason));
    }
    /// Returns the reason of its deletion.
    pub(super) fn deletion_reason(&self) -> EndReason {
        let under_way = self.exchange.as_ref().and_then(|exchange| exchange.deletion_reason());
        let planned = self.tasks.iter().find_map(|task| match task {
            IkeSaTask::Delete(reason) => Some(*reason),
            _ => None,
        });
        under_way.or(planned).unwrap_or(EndReason::Deleted)
    }
    /// True while the peer has not proved its address. No SAs are created for it meanwhile (RFC 4555 §3.5, §3.7).
    pub(super) fn is_peer_address_unproved(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.proves_address())
            || self.tasks.iter().any(|task| matches!(task, IkeSaTask::Update | IkeSaTask::Check))
    }
    /// Returns the index of the CHILD_SA with this inbound SPI.
    pub(super) fn find_child(&self, inbound: u32) -> Option<usize> {
        self.children.iter().position(|child| child.sa.inbound == inbound)
    }
}

/// An IKE_SA that is known to be established.
#[derive(Debug)]
pub(super) struct EstablishedSa<'a> {
    pub(super) base: &'a mut IkeSaBase,
    pub(super) state: &'a mut EstablishedState,
    /// The effects of the current step.
    pub(super) effects: &'a mut Vec<SaEffect>,
}

impl EstablishedSa<'_> {
    /// True if the source of authentic packets becomes the peer's address. With MOBIKE, only the initiator reports
    /// moves (RFC 4555 §3.8).
    pub(super) const fn follows_peer_address(&self) -> bool {
        self.base.nat.1 && !self.base.nat.0 && !self.state.mobike
    }
    /// Reports that packets take the IKE_SA's path from now on.
    pub(super) fn report_path_change(&mut self, cx: &mut IkeEndpointContext) {
        cx.counters.moved += 1;
        let (path, encapsulated) = (self.base.path, self.base.nat.0 || self.base.nat.1);
        for child in &mut self.state.children {
            (child.sa.path, child.sa.encapsulated) = (path, encapsulated);
        }
        cx.outputs.push_event(IkeEvent::Moved { sa: self.base.id, path, encapsulated });
    }
}

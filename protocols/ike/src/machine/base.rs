//! The part of an IKE_SA that it has in every phase: its names and addresses, its keys, and its window of one message in
//! each direction.

mod transmission;

use super::config::IkeConnectionConfig;
use super::context::IkeEndpointContext;
use super::event::{CertificateName, IkeEvent, IkeJob, IkeSaId};
use super::fragments::FragmentReassembly;
use crate::code::ExchangeType;
use crate::header::Spi;
use crate::keys::{IkeKeys, KeyDerivationInputs};
use crate::payload::{Identification, Payload, Proposal};
use crate::protect::MessageProtection;
use crate::suite::IkeAlgorithms;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::{DatagramPath, Instant, JobRequest, JobRequester, JobWaiter, WallTime};

/// Octets of this side's nonces: at least half the key of the strongest function (RFC 7296 §2.10).
pub(super) const NONCE: usize = 32;

/// The nonces of the initiator and of the responder of an exchange.
pub(super) type NoncePair = (Vec<u8>, Vec<u8>);

/// The keys of an IKE_SA, ready for use.
#[derive(Debug)]
pub(super) struct IkeSaKeyState {
    pub(super) algorithms: IkeAlgorithms,
    pub(super) keys: IkeKeys,
    pub(super) outbound: MessageProtection,
    pub(super) inbound: MessageProtection,
    /// The keys before the last additional key exchange: its request may be retransmitted under them (RFC 9242
    /// §3.3.1).
    pub(super) previous: Option<MessageProtection>,
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

/// A request that awaits its response.
#[derive(Debug)]
pub(super) struct OutstandingRequest {
    pub(super) id: u32,
    /// The exchange of which the response has to be, too.
    pub(super) exchange: ExchangeType,
    pub(super) datagrams: Vec<Vec<u8>>,
    pub(super) retransmissions: u32,
    pub(super) due: Instant,
}

/// The state of the peer's last request.
#[derive(Debug)]
pub(super) enum LastResponseState {
    /// The response as it was sent; empty before the first request.
    Response(Vec<Vec<u8>>),
    /// A job has to finish before the response.
    Pending,
}

/// The part of an IKE_SA that it has in every phase.
#[derive(Debug)]
pub(super) struct IkeSaBase {
    pub(super) id: IkeSaId,
    pub(super) connection: Arc<IkeConnectionConfig>,
    /// True if this side is the original initiator.
    pub(super) initiator: bool,
    pub(super) spis: (Spi, Spi),
    /// The source of its first request, if the peer began it.
    pub(super) origin: Option<SocketAddr>,
    pub(super) path: DatagramPath,
    /// Number of address changes. A check that was sent before a change proves nothing about the new path.
    pub(super) moves: u64,
    /// The path of the peer's last request, on which its response goes.
    pub(super) reply: DatagramPath,
    /// The peer's proven address. The source of a request may be forged.
    pub(super) proved_address: IpAddr,
    /// A NAT is in front of this side; in front of the peer.
    pub(super) nat: (bool, bool),
    /// Both sides support fragments.
    pub(super) fragmentation: bool,
    pub(super) session: Option<IkeSaKeyState>,
    /// The chosen proposal, if there may be tickets.
    pub(super) suite: Option<Box<Proposal>>,
    /// The identity that the peer claims. Without EAP at a responder, it is proved once the IKE_SA is established.
    pub(super) remote: Option<Identification>,
    /// The identity that EAP has authenticated.
    pub(super) authenticated: Option<Identification>,
    /// The certificates by which the peer authenticated, in this IKE_SA or a predecessor, and the end of their
    /// validity.
    pub(super) certificates: Arc<[CertificateName]>,
    pub(super) proof_until: Option<WallTime>,
    /// The ticket era in which authentication began.
    pub(super) era: u64,
    /// This side initiated the first IKE_SA of this line, and may have tickets.
    pub(super) client: bool,
    pub(super) outstanding: Option<OutstandingRequest>,
    pub(super) next_request: u32,
    /// The message ID of the peer's next request.
    pub(super) expected: u32,
    pub(super) answered: LastResponseState,
    /// Time of the last retransmission of the response.
    repeated_at: Option<Instant>,
    pub(super) reassembly: FragmentReassembly,
    pub(super) last_received: Instant,
    pub(super) sent: Instant,
}

impl IkeSaBase {
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
            origin: None,
            path,
            moves: 0,
            reply: path,
            proved_address: path.remote.ip(),
            nat: (false, false),
            fragmentation: false,
            session: None,
            suite: None,
            remote: None,
            authenticated: None,
            certificates: Arc::new([]),
            proof_until: None,
            era: 0,
            client: false,
            outstanding: None,
            next_request: 0,
            expected: 0,
            answered: LastResponseState::Response(Vec::new()),
            repeated_at: None,
            reassembly: FragmentReassembly::default(),
            last_received: now,
            sent: now,
        }
    }
    /// Returns the peer's authenticated identity.
    pub(super) fn peer_identity(&self) -> Identification {
        let known = self.authenticated.as_ref().or(self.remote.as_ref());
        known.unwrap_or(&self.connection.local).clone()
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
    /// Returns this side's SPI.
    pub(super) fn own_spi(&self) -> Spi {
        if self.initiator { self.spis.0 } else { self.spis.1 }
    }
    /// Returns the peer's proven address, with the port of its newest request if that came from the same address.
    pub(super) fn proven_peer_address(&self) -> SocketAddr {
        let remote = self.path.remote;
        if remote.ip() == self.proved_address { remote } else { self.origin.unwrap_or(remote) }
    }
    /// Sets the path of further messages.
    pub(super) fn set_path(&mut self, path: DatagramPath) {
        if path != self.path {
            self.moves += 1;
            self.path = path;
        }
    }
    /// Returns the inputs of a key derivation from nonces of this IKE_SA.
    pub(super) fn key_derivation_inputs<'a>(&self, nonces: &'a NoncePair) -> KeyDerivationInputs<'a> {
        KeyDerivationInputs {
            initiator_nonce: &nonces.0,
            responder_nonce: &nonces.1,
            initiator_spi: self.spis.0,
            responder_spi: self.spis.1,
        }
    }
    /// Sets the keys and reports them if the configuration exports them. False if one does not fit its algorithm.
    pub(super) fn set_keys(
        &mut self,
        cx: &mut IkeEndpointContext,
        algorithms: IkeAlgorithms,
        keys: IkeKeys,
    ) -> bool {
        self.session = IkeSaKeyState::new(algorithms, keys, self.initiator);
        self.report_keys(cx);
        self.session.is_some()
    }
    /// Reports its keys if the configuration exports them.
    pub(super) fn report_keys(&self, cx: &mut IkeEndpointContext) {
        if let Some(session) = self.session.as_ref().filter(|_| cx.config.export_keys) {
            let (algorithms, keys) = (session.algorithms.packets, Box::new(session.keys.clone()));
            cx.outputs.push_event(IkeEvent::Keys { spis: self.spis, algorithms, keys });
        }
    }
    /// Queues a job that lives as long as its waiter.
    pub(super) fn queue_job(&self, cx: &mut IkeEndpointContext, waiter: &JobWaiter, what: IkeJob) {
        let origin = JobRequester::from_address(self.proved_address).with_waiter(waiter);
        cx.outputs.push_job(JobRequest::new(self.id.0, what).with_origin(origin));
    }
}

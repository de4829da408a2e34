//! The phases of an IKE_SA, each with its state.

use super::authentication::{InitiatorAuthentication, InitiatorWishes, ResponderAuthentication};
use super::base::NONCE;
use super::established::EstablishedState;
use super::event::EndReason;
use super::tickets::StoredTicket;
use crate::code::KeyExchangeMethod;
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::Instant;
use usher_crypto::exchange::KeyExchange;

/// The phase of an IKE_SA, with the state that it has in this phase alone.
#[derive(Debug)]
pub(super) enum SaPhase {
    /// The IKE_SA_INIT request awaits its response.
    InitSent(Box<PendingSaInit>),
    /// The IKE_SESSION_RESUME request awaits its response.
    Resuming(Box<PendingResumption>),
    /// This side has begun it, and the sides authenticate.
    Initiating(Box<InitiatorAuthentication>),
    /// The peer has begun it, and the sides authenticate: it is half-open.
    Responding(Box<ResponderAuthentication>),
    /// Both sides have authenticated.
    Established(Box<EstablishedState>),
    /// It has ended.
    Ended(EndedState),
}

/// An IKE_SA that has ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EndedState {
    /// It answers retransmissions of its last request until this time. `None` if it is removed after this step.
    pub(super) lingers_until: Option<Instant>,
    /// Its number among the lingering IKE_SAs.
    pub(super) linger_number: Option<u64>,
}

/// An initiator that awaits the IKE_SA_INIT response.
#[derive(Debug)]
pub(super) struct PendingSaInit {
    pub(super) exchange: Box<dyn KeyExchange>,
    pub(super) method: KeyExchangeMethod,
    pub(super) nonce: [u8; NONCE],
    pub(super) cookie: Option<Vec<u8>>,
    pub(super) attempts: u32,
    pub(super) octets: Vec<u8>,
    pub(super) refusal: Option<UnauthenticatedRefusal>,
    pub(super) wishes: InitiatorWishes,
}

/// An error response to the first request. It may be forged, so the true response may still arrive (§2.21.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct UnauthenticatedRefusal {
    pub(super) reason: EndReason,
    /// Number of retransmissions since.
    pub(super) repeats: u32,
}

/// An initiator that awaits the response to its ticket.
#[derive(Debug)]
pub(super) struct PendingResumption {
    pub(super) ticket: StoredTicket,
    pub(super) nonce: [u8; NONCE],
    pub(super) cookie: Option<Vec<u8>>,
    pub(super) attempts: u32,
    pub(super) octets: Vec<u8>,
    pub(super) wishes: InitiatorWishes,
}

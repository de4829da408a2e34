//! The peer's automaton (RFC 4137 §4, figure 3).

use crate::EapKeys;
use crate::method::{EapMethodContext, PeerMethod, PeerMethodFactory, PeerMethodResult};
use crate::packet::{self, EapCode, EapPacket, EapType};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, SecureRng, WallTime, WorkRecord, automaton, names};
use usher_crypto::fault::TlsFault;

/// The identity and methods of a peer.
#[derive(Clone, Debug)]
pub struct EapPeerConfig {
    /// The answer to an Identity request.
    pub identity: Vec<u8>,
    /// The supported methods, preferred first. A Nak lists them in this order.
    pub methods: Arc<[Box<dyn PeerMethodFactory>]>,
    /// ClientTimeout: the wait for the next request.
    pub timeout: Duration,
    /// The time of day at the start of the conversation, for certificates.
    pub wall: WallTime,
}

/// An event of a peer, once per conversation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EapPeerEvent {
    /// The authentication succeeded.
    Success {
        /// The method's keys, if it derives some.
        keys: Option<EapKeys>,
    },
    /// The server rejected the peer, or the peer's method failed.
    Failure,
    /// No request came for ClientTimeout.
    Timeout,
}

names! {
    /// The boxes of the diagram.
    pub(crate) State {
        Idle = "IDLE",
        Received = "RECEIVED",
        Method = "METHOD",
        GetMethod = "GET_METHOD",
        Identity = "IDENTITY",
        Notification = "NOTIFICATION",
        Retransmit = "RETRANSMIT",
        Discard = "DISCARD",
        SendResponse = "SEND_RESPONSE",
        Success = "SUCCESS",
        Failure = "FAILURE",
    }
}

names! {
    /// The conditions of its arrows.
    pub(crate) Condition {
        Request = "eapReq",
        IdleAndSure = "idleWhile == 0 && decision == UNCOND_SUCC",
        IdleAndUnsure = "idleWhile == 0 && decision != UNCOND_SUCC",
        SelectedMethod = "rxReq && reqId != lastId && reqMethod == selectedMethod && methodState != DONE",
        NewMethod = "rxReq && reqId != lastId && selectedMethod == NONE && reqMethod != IDENTITY && reqMethod != NOTIFICATION",
        AsksIdentity = "rxReq && reqId != lastId && selectedMethod == NONE && reqMethod == IDENTITY",
        Notifies = "rxReq && reqId != lastId && reqMethod == NOTIFICATION && allowNotifications",
        Repeated = "rxReq && reqId == lastId",
        Succeeds = "rxSuccess && reqId == lastId && decision != FAIL",
        Fails = "methodState != CONT && (rxFailure && decision != UNCOND_SUCC || rxSuccess && decision == FAIL) && reqId == lastId",
        Ignored = "ignore",
        MethodFailed = "methodState == DONE && decision == FAIL",
        Acceptable = "selectedMethod == reqMethod",
    }
}

automaton! {
    /// Figure 3, with [`EapPeer::new`] as INITIALIZE. Differences:
    ///
    /// - DISABLED and eapRestart are left to the owner, which drops the conversation and starts another.
    /// - altAccept and altReject are absent: every lower layer here ends a conversation by EAP.
    /// - allowNotifications is `methodState != DONE`: no method here forbids Notification (§4.2, last paragraph).
    /// - An identifier after lastId ends nothing: RFC 4137 §8.3 does not recommend that workaround.
    pub(crate) PeerAutomaton("eap-peer", "RFC 4137, figure 3"): State from Idle, when Condition;
    Idle {
        Request => Received;
        IdleAndSure => Success;
        IdleAndUnsure => Failure;
        ! waits: "for a packet";
    }
    Received {
        SelectedMethod => Method;
        NewMethod => GetMethod;
        AsksIdentity => Identity;
        Notifies => Notification;
        Repeated => Retransmit;
        Succeeds => Success;
        Fails => Failure;
        _ => Discard;
    }
    Method {
        Ignored => Discard;
        MethodFailed => Failure;
        _ => SendResponse;
    }
    GetMethod {
        Acceptable => Method;
        _ => SendResponse;
    }
    Identity { _ => SendResponse; }
    Notification { _ => SendResponse; }
    Retransmit { _ => SendResponse; }
    Discard { _ => Idle; }
    SendResponse { _ => Idle; }
    Success { ! ends: "accepted"; }
    Failure { ! ends: "rejected, or given up"; }
}

/// methodState and decision of RFC 4137 §4.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PeerDecision {
    Fail,
    Conditional,
    Unconditional,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PeerMethodState {
    None,
    Continue,
    MayContinue,
    Done,
}

/// A packet in the terms of `parseEapReq`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ReceivedPacket {
    code: EapCode,
    identifier: u8,
    kind: Option<EapType>,
}

/// A conversation of a peer.
#[derive(Debug)]
pub struct EapPeer {
    config: EapPeerConfig,
    rng: SecureRng,
    state: State,
    /// eapReq: the received packet. The data of a request is apart.
    incoming: Option<ReceivedPacket>,
    data: Vec<u8>,
    last_id: Option<u8>,
    last_response: Vec<u8>,
    respond: bool,
    selected: Option<(EapType, Box<dyn PeerMethod>)>,
    progress: PeerMethodState,
    decision: PeerDecision,
    ignored: bool,
    idle_at: Instant,
    now: Instant,
    discarded: bool,
    is_end_reported: bool,
}

impl EapPeer {
    /// Follows arrows until none applies.
    fn run_automaton(&mut self) {
        while let Some(arrow) =
            PeerAutomaton::step(self.state, |condition| self.evaluate_condition(condition))
        {
            self.enter_state(arrow.to);
        }
    }

    #[inline]
    fn evaluate_condition(&self, condition: Condition) -> bool {
        let idle = self.now >= self.idle_at;
        match condition {
            Condition::Request => return self.incoming.is_some(),
            Condition::IdleAndSure => return idle && self.decision == PeerDecision::Unconditional,
            Condition::IdleAndUnsure => return idle && self.decision != PeerDecision::Unconditional,
            Condition::Ignored => return self.ignored,
            Condition::MethodFailed => {
                return self.progress == PeerMethodState::Done && self.decision == PeerDecision::Fail;
            }
            _ => {}
        }
        let Some(ReceivedPacket { code, identifier, kind }) = self.incoming else { return false };
        let request = code == EapCode::Request;
        let selected = self.selected.as_ref().map(|(kind, _)| *kind);
        let last = self.last_id == Some(identifier);
        let new = request && !last;
        match condition {
            Condition::SelectedMethod => {
                new && selected.is_some() && kind == selected && self.progress != PeerMethodState::Done
            }
            Condition::NewMethod => {
                new && selected.is_none() && !matches!(kind, Some(EapType::IDENTITY | EapType::NOTIFICATION))
            }
            Condition::AsksIdentity => new && selected.is_none() && kind == Some(EapType::IDENTITY),
            Condition::Notifies => {
                new && kind == Some(EapType::NOTIFICATION) && self.progress != PeerMethodState::Done
            }
            Condition::Repeated => request && last,
            Condition::Succeeds => code == EapCode::Success && last && self.decision != PeerDecision::Fail,
            Condition::Fails => {
                last && self.progress != PeerMethodState::Continue
                    && (code == EapCode::Failure && self.decision != PeerDecision::Unconditional
                        || code == EapCode::Success && self.decision == PeerDecision::Fail)
            }
            Condition::Acceptable => selected.is_some() && kind == selected,
            _ => false,
        }
    }

    fn enter_state(&mut self, state: State) {
        self.state = state;
        let (id, kind) = match self.incoming {
            Some(i) => (i.identifier, i.kind.unwrap_or(EapType(0))),
            None => (0, EapType(0)),
        };
        match state {
            State::Method => self.run_method(id),
            State::GetMethod => self.select_method(id, kind),
            State::Identity => {
                self.last_response.clear();
                packet::emit_packet(
                    &mut self.last_response,
                    EapCode::Response,
                    id,
                    EapType::IDENTITY,
                    &self.config.identity,
                );
            }
            State::Notification => {
                self.last_response.clear();
                packet::emit_packet(
                    &mut self.last_response,
                    EapCode::Response,
                    id,
                    EapType::NOTIFICATION,
                    &[],
                );
            }
            State::SendResponse => {
                self.last_id = Some(id);
                self.incoming = None;
                self.respond = true;
                self.idle_at = self.now + self.config.timeout;
            }
            State::Discard => {
                self.incoming = None;
                self.discarded = true;
            }
            State::Idle | State::Received | State::Retransmit | State::Success | State::Failure => {}
        }
    }

    /// Returns a peer that waits for its first request.
    #[must_use]
    pub fn new(config: EapPeerConfig, rng: SecureRng, now: Instant) -> Self {
        let idle_at = now + config.timeout;
        Self {
            config,
            rng,
            state: State::Idle,
            incoming: None,
            data: Vec::new(),
            last_id: None,
            last_response: Vec::new(),
            respond: false,
            selected: None,
            progress: PeerMethodState::None,
            decision: PeerDecision::Fail,
            ignored: false,
            idle_at,
            now,
            discarded: false,
            is_end_reported: false,
        }
    }

    /// Takes a packet from the authenticator. Returns false if it is discarded.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8]) -> bool {
        self.now = now;
        let Ok(p) = EapPacket::parse(packet) else { return false };
        if p.code() == EapCode::Response || matches!(self.state, State::Success | State::Failure) {
            return false;
        }
        self.incoming = Some(ReceivedPacket { code: p.code(), identifier: p.identifier(), kind: p.kind() });
        self.data.clear();
        self.data.extend_from_slice(p.data());
        self.discarded = false;
        self.run_automaton();
        !self.discarded
    }

    /// Advances the time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.run_automaton();
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        (self.state == State::Idle).then_some(self.idle_at)
    }

    /// Clears `out` and puts the pending response into it. Returns false if there is none.
    #[must_use]
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        out.clear();
        if !core::mem::take(&mut self.respond) {
            return false;
        }
        out.extend_from_slice(&self.last_response);
        true
    }

    /// True if the peer would accept a Success now.
    #[cfg(feature = "tls")]
    pub(crate) fn would_accept_success(&self) -> bool {
        self.decision != PeerDecision::Fail
    }

    /// The keys of the current method, once derived.
    #[cfg(feature = "tls")]
    pub(crate) fn method_keys(&self) -> Option<EapKeys> {
        self.selected.as_ref().and_then(|(_, method)| method.keys())
    }

    /// The fault by which TLS of the current method ended early, if it did, and the TLS engine's description.
    #[must_use]
    pub fn tls_fault(&self) -> Option<(TlsFault, String)> {
        self.selected.as_ref()?.1.tls_fault()
    }

    /// Returns the end of the conversation, once.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<EapPeerEvent> {
        if self.is_end_reported || !matches!(self.state, State::Success | State::Failure) {
            return None;
        }
        self.is_end_reported = true;
        Some(match self.state {
            State::Success => {
                EapPeerEvent::Success { keys: self.selected.as_ref().and_then(|(_, method)| method.keys()) }
            }
            _ if self.incoming.is_none() => EapPeerEvent::Timeout,
            _ => EapPeerEvent::Failure,
        })
    }

    /// The next piece of work done since the last poll.
    #[must_use]
    pub fn poll_work(&mut self) -> Option<WorkRecord> {
        self.selected.as_mut()?.1.poll_work()
    }

    fn run_method(&mut self, identifier: u8) {
        let Some((kind, method)) = &mut self.selected else {
            self.ignored = true;
            return;
        };
        let mut data = Vec::new();
        let verdict = method.handle_request(identifier, &self.data, &mut data);
        self.ignored = verdict == PeerMethodResult::Ignore;
        (self.progress, self.decision) = match verdict {
            PeerMethodResult::Ignore => return,
            PeerMethodResult::Continue => (PeerMethodState::Continue, PeerDecision::Fail),
            PeerMethodResult::MayFail => (PeerMethodState::MayContinue, PeerDecision::Fail),
            PeerMethodResult::MayEnd => (PeerMethodState::MayContinue, PeerDecision::Conditional),
            PeerMethodResult::Done => (PeerMethodState::Done, PeerDecision::Unconditional),
            // The method has failed but may still send a last response, such as a TLS alert, before the server sends
            // Failure.
            PeerMethodResult::Failed if !data.is_empty() => {
                (PeerMethodState::MayContinue, PeerDecision::Fail)
            }
            PeerMethodResult::Failed => (PeerMethodState::Done, PeerDecision::Fail),
        };
        self.last_response.clear();
        packet::emit_packet(&mut self.last_response, EapCode::Response, identifier, *kind, &data);
    }

    /// GET_METHOD: starts the requested method, or sends a Nak with the supported types (RFC 3748 §5.3.1). A request of
    /// an expanded type gets the legacy Nak too, which §5.3.2 allows to peers without expanded methods.
    fn select_method(&mut self, identifier: u8, wanted: EapType) {
        if let Some(offer) = self.config.methods.iter().find(|m| m.kind() == wanted) {
            let context = EapMethodContext {
                rng: &mut self.rng,
                wall: self.config.wall,
                mtu: None,
                without_extended_master_secret: false,
            };
            self.selected = Some((wanted, offer.start_peer_method(context)));
            return;
        }
        let mut list: Vec<u8> = self.config.methods.iter().map(|m| m.kind().0).collect();
        if list.is_empty() {
            list.push(0);
        }
        self.last_response.clear();
        packet::emit_packet(&mut self.last_response, EapCode::Response, identifier, EapType::NAK, &list);
    }
}

#[cfg(test)]
mod tests;

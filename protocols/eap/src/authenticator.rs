//! The pass-through authenticator (RFC 4137 §7, figures 6 and 7). It requests the peer's identity, then forwards EAP
//! packets between the peer and an AAA server without reading the method.

use crate::packet::{self, EapCode, EapPacket, EapType};
use alloc::vec::Vec;
use usher_core::{Duration, Instant, automaton, names};

/// The retransmission of requests to the peer (RFC 3748 §4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EapRetransmissionConfig {
    /// The first timeout. Each further timeout is twice as long.
    pub initial: Duration,
    /// The longest timeout.
    pub max: Duration,
    /// The maximum number of retransmissions of a request (MaxRetrans). RFC 3748 §4.3 suggests 3 to 5.
    pub count: u32,
}

impl Default for EapRetransmissionConfig {
    /// Timeouts of 3 s, 6 s, 12 s, … up to 20 s; four retransmissions.
    fn default() -> Self {
        Self { initial: Duration::from_secs(3), max: Duration::from_secs(20), count: 4 }
    }
}

/// The AAA server's reply in a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AaaReply<'a> {
    /// aaaEapReq: a request for the peer.
    Request(&'a [u8]),
    /// aaaEapNoReq: the server discarded the peer's packet and waits for another.
    NoRequest,
    /// aaaSuccess, with the server's EAP-Success. If it is empty, the authenticator makes one. If it is another packet,
    /// the peer gets none: the server contradicts itself (RFC 3579 §2.6.3, RFC 4072 §2.8.2).
    Success(&'a [u8]),
    /// aaaFail, with the server's EAP-Failure. Empty and contradicting packets are treated as for success.
    Failure(&'a [u8]),
    /// aaaTimeout: the server did not answer. The peer gets no packet (RFC 3579 §2.1).
    Timeout,
}

/// The outcome of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EapConversationOutcome {
    /// The AAA server accepted. [`EapAuthenticator::poll_transmit`] returns EAP-Success, unless the server contradicted
    /// itself.
    Success,
    /// The AAA server rejected. EAP-Failure is returned likewise.
    Failure,
    /// The peer did not respond (TIMEOUT_FAILURE, TIMEOUT_FAILURE2).
    PeerTimeout,
    /// The AAA server did not respond.
    AaaTimeout,
}

names! {
    /// The boxes of the diagram.
    pub(crate) State {
        Initialize = "INITIALIZE",
        Identity = "IDENTITY",
        SendRequest2 = "SEND_REQUEST2",
        Idle2 = "IDLE2",
        Retransmit2 = "RETRANSMIT2",
        Received2 = "RECEIVED2",
        Discard2 = "DISCARD2",
        AaaRequest = "AAA_REQUEST",
        AaaIdle = "AAA_IDLE",
        AaaResponse = "AAA_RESPONSE",
        Success2 = "SUCCESS2",
        Failure2 = "FAILURE2",
        TimeoutFailure2 = "TIMEOUT_FAILURE2",
    }
}

names! {
    /// The conditions of its arrows.
    pub(crate) Condition {
        KnowsPeer = "currentId != NONE",
        Response = "eapResp",
        RetransmitDue = "retransWhile == 0",
        TooManyRetransmissions = "retransCount > MaxRetrans",
        Answers = "rxResp && respId == currentId",
        AaaAsks = "aaaEapReq",
        AaaAsksNothing = "aaaEapNoReq",
        AaaSuccess = "aaaSuccess",
        AaaFail = "aaaFail",
        AaaTimeout = "aaaTimeout",
    }
}

automaton! {
    /// Figure 7 and the part of figure 6 before it. INITIALIZE stands for INITIALIZE, SELECT_ACTION and
    /// INITIALIZE_PASSTHROUGH. IDENTITY stands for the Identity request's method states, PROPOSE_METHOD to
    /// METHOD_RESPONSE. Figure 7's states send, retransmit and receive the Identity request, as figure 6's do.
    /// Differences:
    ///
    /// - No arrow leads from INITIALIZE to AAA_IDLE (`currentId == NONE`). The AAA server gets no request before the
    ///   peer's identity is known.
    /// - IDLE2 tests eapResp first. The figure gives no order if both conditions hold (§3.1).
    /// - IDLE2 has no methodTimeout: Session-Timeout in a challenge (RFC 3579 §2.3) is ignored.
    /// - DISCARD2 does not restart retransWhile after a discarded packet. Otherwise an attacker's unfitting packets
    ///   would prevent retransmission.
    /// - SUCCESS2 and FAILURE2 make a packet if the AAA server sent none, since the peer waits for one.
    ///   A packet that contradicts the server's reply is neither sent nor corrected (RFC 3579 §2.6.3).
    /// - DISABLED and eapRestart are left to the owner, which drops the conversation and starts another.
    pub(crate) PassThrough("eap-pass-through", "RFC 4137, figures 6 and 7"): State from Initialize, when Condition;
    Initialize {
        KnowsPeer => AaaRequest;
        _ => Identity;
    }
    Identity { _ => SendRequest2; }
    Idle2 {
        Response => Received2;
        RetransmitDue => Retransmit2;
        ! waits: "for the peer";
    }
    Retransmit2 {
        TooManyRetransmissions => TimeoutFailure2;
        _ => Idle2;
    }
    Received2 {
        Answers => AaaRequest;
        _ => Discard2;
    }
    AaaRequest { _ => AaaIdle; }
    AaaIdle {
        AaaAsksNothing => Discard2;
        AaaAsks => AaaResponse;
        AaaTimeout => TimeoutFailure2;
        AaaFail => Failure2;
        AaaSuccess => Success2;
        ! waits: "for the AAA server";
    }
    AaaResponse { _ => SendRequest2; }
    Discard2 { _ => Idle2; }
    SendRequest2 { _ => Idle2; }
    TimeoutFailure2 { ! ends: "no reply came"; }
    Failure2 { ! ends: "the peer is rejected"; }
    Success2 { ! ends: "the peer is accepted"; }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AaaReplyState {
    Waiting,
    Request,
    NoRequest,
    Success,
    Failure,
    Timeout,
}

/// A conversation of a pass-through authenticator.
#[derive(Clone, Debug)]
pub struct EapAuthenticator {
    state: State,
    now: Instant,
    policy: Option<EapRetransmissionConfig>,
    /// The peer's response timeout without retransmission.
    idle_timeout: Duration,
    current_id: u8,
    /// The peer's last response, for the AAA server.
    response: Vec<u8>,
    received: bool,
    is_peer_identified: bool,
    /// The request to the peer, or the packet that ends the conversation.
    request: Vec<u8>,
    aaa: AaaReplyState,
    retransmissions: u32,
    due: Instant,
    send: bool,
    is_response_pending: bool,
    discarded: bool,
    is_end_reported: bool,
}

impl EapAuthenticator {
    /// Follows arrows until none applies.
    fn run_automaton(&mut self) {
        while let Some(arrow) = PassThrough::step(self.state, |condition| self.evaluate_condition(condition))
        {
            self.enter_state(arrow.to);
        }
    }

    #[inline]
    fn evaluate_condition(&self, condition: Condition) -> bool {
        match condition {
            Condition::KnowsPeer => self.is_peer_identified,
            Condition::Response => self.received,
            Condition::RetransmitDue => self.now >= self.due,
            Condition::TooManyRetransmissions => {
                self.retransmissions > self.policy.map_or(0, |policy| policy.count)
            }
            Condition::Answers => EapPacket::parse(&self.response).is_ok_and(|p| {
                p.code() == EapCode::Response
                    && p.identifier() == self.current_id
                    && (self.is_peer_identified || p.kind() == Some(EapType::IDENTITY))
            }),
            Condition::AaaAsks => self.aaa == AaaReplyState::Request,
            Condition::AaaAsksNothing => self.aaa == AaaReplyState::NoRequest,
            Condition::AaaSuccess => self.aaa == AaaReplyState::Success,
            Condition::AaaFail => self.aaa == AaaReplyState::Failure,
            Condition::AaaTimeout => self.aaa == AaaReplyState::Timeout,
        }
    }

    fn enter_state(&mut self, state: State) {
        self.state = state;
        match state {
            State::Identity => {
                self.request.clear();
                packet::emit_packet(
                    &mut self.request,
                    EapCode::Request,
                    self.current_id,
                    EapType::IDENTITY,
                    &[],
                );
            }
            State::SendRequest2 => {
                self.retransmissions = 0;
                self.send = true;
            }
            State::Idle2 => {
                let wait = self.policy.map_or(self.idle_timeout, |policy| {
                    (policy.initial * (1 << self.retransmissions.min(16))).min(policy.max)
                });
                self.due = self.now + wait;
            }
            // RFC 3748, 3.1, 4.1: the authenticator sends the same request again, whatever its method.
            State::Retransmit2 => {
                self.retransmissions += 1;
                self.send = !self.evaluate_condition(Condition::TooManyRetransmissions);
            }
            State::Received2 => self.received = false,
            State::Discard2 => self.discarded = true,
            State::AaaRequest => {
                self.is_peer_identified = true;
                self.is_response_pending = true;
            }
            State::AaaIdle => self.aaa = AaaReplyState::Waiting,
            State::AaaResponse => {
                self.current_id = EapPacket::parse(&self.request).map_or(self.current_id, |p| p.identifier());
            }
            State::Success2 | State::Failure2 => self.send = !self.request.is_empty(),
            State::Initialize | State::TimeoutFailure2 => {}
        }
    }

    /// Starts a conversation with an Identity request of this identifier. Without a policy there is no retransmission,
    /// as on lossless links. The peer then times out after `patience` without a response.
    #[must_use]
    pub fn new(
        identifier: u8,
        policy: Option<EapRetransmissionConfig>,
        patience: Duration,
        now: Instant,
    ) -> Self {
        let mut a = Self::new_idle(identifier, policy, patience, now);
        a.run_automaton();
        a
    }

    /// Starts a conversation with an identity from another protocol (RFC 7296 §3.16). The AAA server gets the first
    /// request.
    #[must_use]
    pub fn with_identity(
        identity: &[u8],
        identifier: u8,
        policy: Option<EapRetransmissionConfig>,
        patience: Duration,
        now: Instant,
    ) -> Self {
        let mut a = Self::new_idle(identifier, policy, patience, now);
        packet::emit_packet(&mut a.response, EapCode::Response, identifier, EapType::IDENTITY, identity);
        a.is_peer_identified = true;
        a.run_automaton();
        a
    }

    fn new_idle(
        identifier: u8,
        policy: Option<EapRetransmissionConfig>,
        patience: Duration,
        now: Instant,
    ) -> Self {
        Self {
            state: State::Initialize,
            now,
            policy,
            idle_timeout: patience,
            current_id: identifier,
            response: Vec::new(),
            received: false,
            is_peer_identified: false,
            request: Vec::new(),
            aaa: AaaReplyState::Waiting,
            retransmissions: 0,
            due: Instant::FAR_FUTURE,
            send: false,
            is_response_pending: false,
            discarded: false,
            is_end_reported: false,
        }
    }

    /// Takes a packet from the peer. Returns false if it is discarded: it is malformed, not a response, not to the open
    /// request, or the AAA server's reply is pending.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8]) -> bool {
        self.now = now;
        if self.state != State::Idle2 {
            return false;
        }
        let keep = core::mem::replace(&mut self.response, packet.to_vec());
        self.received = true;
        self.discarded = false;
        // The timer is restored if the packet is discarded, so that invalid packets do not postpone the retransmission.
        let due = self.due;
        self.run_automaton();
        if self.discarded {
            self.due = due;
            self.response = keep;
        }
        !self.discarded
    }

    /// Takes the AAA server's reply to [`poll_aaa`](Self::poll_aaa). Returns false if no reply is pending. Also returns
    /// false if the reply's packet is not a request, and treats it as [`AaaReply::NoRequest`].
    pub fn handle_aaa_reply(&mut self, now: Instant, answer: AaaReply<'_>) -> bool {
        self.now = now;
        if self.state != State::AaaIdle {
            return false;
        }
        let mut sound = true;
        self.aaa = match answer {
            AaaReply::Request(packet) if packet_has_code(packet, EapCode::Request) => {
                self.request.clear();
                self.request.extend_from_slice(packet);
                AaaReplyState::Request
            }
            AaaReply::Request(_) => {
                sound = false;
                AaaReplyState::NoRequest
            }
            AaaReply::NoRequest => AaaReplyState::NoRequest,
            AaaReply::Success(packet) => {
                self.set_final_packet(packet, true);
                AaaReplyState::Success
            }
            AaaReply::Failure(packet) => {
                self.set_final_packet(packet, false);
                AaaReplyState::Failure
            }
            AaaReply::Timeout => AaaReplyState::Timeout,
        };
        self.run_automaton();
        sound
    }

    /// Sets the packet that ends the conversation: the server's, or a new one if the server sent none. Sets none if the
    /// server's packet contradicts its reply.
    fn set_final_packet(&mut self, packet: &[u8], success: bool) {
        self.request.clear();
        if packet.is_empty() {
            packet::emit_success_or_failure(&mut self.request, success, self.current_id);
        } else if packet_has_code(packet, if success { EapCode::Success } else { EapCode::Failure }) {
            self.request.extend_from_slice(packet);
        }
    }

    /// Advances the time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.run_automaton();
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        (self.state == State::Idle2 && self.due != Instant::FAR_FUTURE).then_some(self.due)
    }

    /// Returns the packet to send to the peer, once.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<&[u8]> {
        core::mem::take(&mut self.send).then_some(&self.request[..])
    }

    /// Returns the peer's packet to forward to the AAA server, once.
    #[must_use]
    pub fn poll_aaa(&mut self) -> Option<&[u8]> {
        core::mem::take(&mut self.is_response_pending).then_some(&self.response[..])
    }

    /// The number of retransmissions of the open request.
    #[must_use]
    pub const fn retransmission_count(&self) -> u32 {
        self.retransmissions
    }

    /// Returns the outcome of the conversation, once.
    #[must_use]
    pub fn poll_end(&mut self) -> Option<EapConversationOutcome> {
        let end = match self.state {
            State::Success2 => EapConversationOutcome::Success,
            State::Failure2 => EapConversationOutcome::Failure,
            State::TimeoutFailure2 if self.aaa == AaaReplyState::Timeout => {
                EapConversationOutcome::AaaTimeout
            }
            State::TimeoutFailure2 => EapConversationOutcome::PeerTimeout,
            _ => return None,
        };
        (!core::mem::replace(&mut self.is_end_reported, true)).then_some(end)
    }
}

fn packet_has_code(packet: &[u8], code: EapCode) -> bool {
    EapPacket::parse(packet).is_ok_and(|p| p.code() == code)
}

#[cfg(test)]
mod tests;

//! One IKE_SA: its phase, the messages and commands that it takes, and the effects of a step on its endpoint.

mod timers;

use super::authentication::initiator::{InitiatorFailure, InitiatorResult, InitiatorStep};
use super::authentication::responder::{ResponderFailure, ResponderResult, ResponderStep};
use super::authentication::{InitiatorWishes, ResponderAuthentication};
use super::base::{IkeSaBase, LastResponseState};
use super::config::IkeConnectionConfig;
use super::context::IkeEndpointContext;
use super::established::{
    EstablishedSa, EstablishedState, IkeSaTask, PeerRequestAnswer, SaEffect, StartedExchange, SuccessorSa,
};
use super::event::{EndReason, IkeCommand, IkeEvent};
use super::fragments::FragmentReassembly;
use super::half_open::HalfOpenStage;
use super::initial::{handle_init_response, start_init_exchange};
use super::phase::{EndedState, SaPhase};
use super::resumption::{handle_resume_response, start_resume_exchange};
use super::sockets::path_between;
use super::tickets::StoredTicket;
use super::{create, followup, informational, intermediate, ticket_requests};
use crate::code::{ExchangeType, NotifyType, PayloadType};
use crate::message::{IkeMessage, find_error_notify, unsupported_critical};
use crate::payload::{NotifyPayload, Payload, parse_chain};
use crate::protect::{SealedMessage, unencrypted_message_octets};
use crate::work;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_core::{CommandError, DatagramPath};

/// The end of an IKE_SA.
#[derive(Clone, Copy, Debug)]
struct IkeSaEnd {
    reason: EndReason,
    /// It keeps its last response, which a retransmitted request gets again.
    lingers: bool,
    /// Its initiator failed to authenticate, through no fault of this side.
    unproved: bool,
}

/// An IKE_SA.
#[derive(Debug)]
pub(super) struct IkeSa {
    pub(super) base: IkeSaBase,
    pub(super) phase: SaPhase,
    /// The effects of the current step.
    pub(super) effects: Vec<SaEffect>,
}

impl IkeSa {
    fn new(base: IkeSaBase, phase: SaPhase) -> Self {
        Self { base, phase, effects: Vec::new() }
    }
    /// Returns an IKE_SA that a peer has begun.
    pub(super) fn from_first_request(base: IkeSaBase, state: Box<ResponderAuthentication>) -> Self {
        Self::new(base, SaPhase::Responding(state))
    }
    /// Returns an IKE_SA that a rekeying has created.
    pub(super) fn from_rekeying(SuccessorSa { base, state, .. }: SuccessorSa) -> Self {
        Self::new(base, SaPhase::Established(Box::new(state)))
    }
    /// Begins an IKE_SA, by a ticket if there is one. `None` if none of its key exchange methods is built in.
    pub(super) fn initiate(
        cx: &mut IkeEndpointContext,
        connection: Arc<IkeConnectionConfig>,
        (local, remote): (SocketAddr, SocketAddr),
        ticket: Option<StoredTicket>,
        wishes: InitiatorWishes,
    ) -> Option<Self> {
        let mut base = IkeSaBase::new(connection, true, path_between(local, remote), cx.now);
        base.spis.0 = cx.new_ike_spi();
        (base.client, base.era) = (true, cx.tickets.era());
        let phase = match ticket {
            Some(ticket) => SaPhase::Resuming(start_resume_exchange(&mut base, cx, ticket, wishes)),
            None => SaPhase::InitSent(start_init_exchange(&mut base, cx, wishes)?),
        };
        Some(Self::new(base, phase))
    }

    /// True if the peer began it and has not yet authenticated.
    pub(super) const fn is_half_open(&self) -> bool {
        matches!(self.phase, SaPhase::Responding(_))
    }
    pub(super) const fn is_ended(&self) -> bool {
        matches!(self.phase, SaPhase::Ended(_))
    }
    /// Returns it as an established IKE_SA.
    pub(super) fn as_established(&mut self) -> Option<EstablishedSa<'_>> {
        match &mut self.phase {
            SaPhase::Established(state) => {
                Some(EstablishedSa { base: &mut self.base, state, effects: &mut self.effects })
            }
            _ => None,
        }
    }
    /// Returns the state of an established IKE_SA.
    pub(super) fn established(&self) -> Option<&EstablishedState> {
        match &self.phase {
            SaPhase::Established(state) => Some(state),
            _ => None,
        }
    }

    /// Ends it without a message.
    pub(super) fn end_sa(&mut self, cx: &mut IkeEndpointContext, reason: EndReason) {
        self.end(cx, IkeSaEnd { reason, lingers: false, unproved: false });
    }
    fn end(&mut self, cx: &mut IkeEndpointContext, IkeSaEnd { reason, lingers, unproved }: IkeSaEnd) {
        if self.is_ended() {
            return;
        }
        let lingers_until = lingers.then(|| cx.now + cx.config.proof_timeout);
        let ended = SaPhase::Ended(EndedState { lingers_until, linger_number: None });
        match core::mem::replace(&mut self.phase, ended) {
            SaPhase::Responding(state) => {
                self.effects.push(SaEffect::NotHalfOpen { number: state.half_open, unproved });
                self.report_end(cx, reason);
            }
            SaPhase::Established(state) => {
                ticket_requests::discard_tickets(&self.base, cx, state.ticket, reason);
                state.children.into_iter().for_each(|child| child.remove(cx, self.base.id));
                if !state.silent {
                    self.report_end(cx, reason);
                }
            }
            _ => self.report_end_of_initiation(cx, reason),
        }
        self.base.outstanding = None;
        // It only repeats its last response, so it needs no memory for more.
        self.base.suite = None;
    }
    /// Reports the end of an IKE_SA of this side that is not yet established.
    fn report_end_of_initiation(&mut self, cx: &mut IkeEndpointContext, reason: EndReason) {
        self.base.outstanding = None;
        ticket_requests::discard_tickets(&self.base, cx, None, reason);
        self.report_end(cx, reason);
    }
    fn report_end(&self, cx: &mut IkeEndpointContext, reason: EndReason) {
        cx.outputs.push_event(IkeEvent::Ended { sa: self.base.id, reason });
    }
    /// Returns the effects of the step.
    pub(super) fn take_effects(&mut self) -> Vec<SaEffect> {
        core::mem::take(&mut self.effects)
    }
    /// Reports the stage of a half-open IKE_SA.
    fn report_stage(&mut self, stage: HalfOpenStage) {
        if let SaPhase::Responding(state) = &self.phase {
            self.effects.push(SaEffect::HalfOpen { number: state.half_open, stage });
        }
    }

    /// Handles a retransmitted first request, or another with the same SPI.
    pub(super) fn handle_repeated_init(
        &mut self,
        cx: &mut IkeEndpointContext,
        path: DatagramPath,
        octets: &[u8],
    ) {
        match &self.phase {
            SaPhase::Responding(state) if self.base.expected == 1 && state.common.first.0 == octets => {
                self.base.resend_last_response(cx, path);
            }
            _ => cx.counters.not_expected += 1,
        }
    }

    /// Handles the response to a first request.
    pub(super) fn handle_initial_response(
        &mut self,
        cx: &mut IkeEndpointContext,
        message: &IkeMessage,
        octets: &[u8],
    ) {
        let resumes = message.header.exchange == ExchangeType::IKE_SESSION_RESUME;
        let Some(phase) = self.take_initial_phase(resumes) else {
            cx.counters.not_expected += 1;
            return;
        };
        let base = &mut self.base;
        let next = match phase {
            SaPhase::InitSent(begun) => handle_init_response(base, cx, begun, message, octets),
            SaPhase::Resuming(resuming) => handle_resume_response(base, cx, resuming, message, octets),
            other => Ok(other),
        };
        self.enter_initial_phase(cx, next);
    }
    /// Takes the phase if it awaits the response to a first request, of this kind. The caller enters another.
    fn take_initial_phase(&mut self, resumes: bool) -> Option<SaPhase> {
        match (&self.phase, resumes) {
            (SaPhase::InitSent(_), false) | (SaPhase::Resuming(_), true) => {
                Some(core::mem::replace(&mut self.phase, SaPhase::Ended(EndedState::default())))
            }
            _ => None,
        }
    }
    /// Enters the phase that follows the response to a first request, or ends.
    fn enter_initial_phase(&mut self, cx: &mut IkeEndpointContext, next: Result<SaPhase, EndReason>) {
        match next {
            Ok(SaPhase::Initiating(mut state)) => {
                let result = intermediate::continue_as_initiator(&self.base, &mut state, cx);
                self.phase = SaPhase::Initiating(state);
                self.apply_initiator_result(cx, result);
            }
            Ok(phase) => self.phase = phase,
            Err(reason) => self.report_end_of_initiation(cx, reason),
        }
    }

    /// Handles a message under the IKE_SA's keys.
    pub(super) fn handle_message(
        &mut self,
        cx: &mut IkeEndpointContext,
        path: DatagramPath,
        sealed: &SealedMessage<'_>,
    ) {
        let Some((first, content)) = self.open_message(cx, path, sealed) else { return };
        let header = &sealed.header;
        let payloads = parse_chain(first, &content).ok();
        // RFC 9242, 3.3.2: AUTH covers the messages of IKE_INTERMEDIATE.
        let octets = match header.exchange {
            ExchangeType::IKE_INTERMEDIATE => unencrypted_message_octets(header, first, &content),
            _ => Vec::new(),
        };
        if header.response {
            self.handle_response(cx, header.exchange, payloads, &octets);
        } else {
            // The IKE_SA must close before its message IDs run out (RFC 7296 §2.2).
            let Some(next) = self.base.expected.checked_add(1) else {
                return self.end_sa(cx, EndReason::Protocol);
            };
            self.base.expected = next;
            self.update_path_from_request(cx, path);
            self.handle_request(cx, header.exchange, payloads, &octets);
        }
        self.go_on(cx);
    }

    /// Opens a message that the window accepts. Returns its content, once all its fragments have arrived. A
    /// retransmitted request gets its response again.
    fn open_message(
        &mut self,
        cx: &mut IkeEndpointContext,
        path: DatagramPath,
        sealed: &SealedMessage<'_>,
    ) -> Option<(PayloadType, Vec<u8>)> {
        let (header, base) = (&sealed.header, &mut self.base);
        let (response, id) = (header.response, header.message_id);
        // RFC 7296, 2.1: only the newest response is kept, and no older one rebuilt.
        let repeated = !response && id == base.expected.wrapping_sub(1) && id < base.expected;
        let awaited = if response {
            base.outstanding.as_ref().is_some_and(|outstanding| outstanding.id == id)
        } else {
            // The window holds one request, so none is accepted while a job works on the last. A responder may send
            // none before it has authenticated. A request that overtakes its proof will be retransmitted.
            id == base.expected
                && !matches!(base.answered, LastResponseState::Pending)
                && matches!(self.phase, SaPhase::Responding(_) | SaPhase::Established(_))
        };
        if header.initiator == base.initiator || !repeated && !awaited {
            cx.counters.not_expected += 1;
            return None;
        }
        if matches!(self.phase, SaPhase::Responding(_)) && is_from_other_address(base, path) {
            cx.counters.elsewhere += 1;
            return None;
        }
        // A dropped request is retransmitted, and handled when the rate allows it (RFC 8019 §5).
        let mut charged = match &mut self.phase {
            SaPhase::Established(state) if awaited && !response => Some(&mut state.request_debt),
            _ => None,
        };
        let most = cx.config.requests_per_minute;
        if charged.as_ref().is_some_and(|debt| debt.is_minute_limit_reached(cx.now, most)) {
            cx.counters.requests_rate_limited += 1;
            return None;
        }
        let Some(session) = &base.session else {
            cx.counters.not_expected += 1;
            return None;
        };
        if repeated && sealed.fragment.is_some_and(|(number, _)| number != 1) {
            // Only the first fragment triggers a retransmission of the response (RFC 7383 §2.6.1).
            cx.counters.duplicates += 1;
            return None;
        }
        cx.count_work(work::OPEN);
        let earlier = session.previous.as_ref().filter(|_| repeated);
        let opened = session.inbound.open(sealed).or_else(|| earlier.and_then(|keys| keys.open(sealed)));
        // RFC 7296, 2.4, 2.21.4, 3.14: a message without a valid checksum changes nothing.
        let Some(content) = opened else {
            cx.counters.integrity += 1;
            return None;
        };
        if repeated {
            // RFC 7296, 2.1: a repeated request gets the same response and is not processed again. It may be a replay,
            // so it does not prove that the peer is alive.
            base.resend_last_response(cx, path);
            return None;
        }
        base.last_received = cx.now;
        if let Some(debt) = &mut charged {
            debt.charge_minute_share(cx.now, most);
        }
        let whole = match sealed.fragment {
            None => (sealed.first, content),
            // RFC 7383, 2.3: fragments only if both sides support them.
            Some(_) if !base.fragmentation => {
                cx.counters.fragments += 1;
                return None;
            }
            Some(of) => {
                let most = cx.config.message;
                let added = base.reassembly.add_fragment((response, id), of, sealed.first, content, most);
                self.effects.push(SaEffect::FragmentMemory);
                match added {
                    Ok(whole) => whole?,
                    Err(_) => {
                        cx.counters.fragments += 1;
                        return None;
                    }
                }
            }
        };
        if base.reassembly.memory_octets() > 0 {
            base.reassembly = FragmentReassembly::default();
            self.effects.push(SaEffect::FragmentMemory);
        }
        Some(whole)
    }

    /// Follows the source address of the peer's newest request (RFC 7296 §2.23). Before authentication the peer may
    /// move to port 4500. Later, its address changes only behind a NAT.
    fn update_path_from_request(&mut self, cx: &mut IkeEndpointContext, path: DatagramPath) {
        self.base.reply = path;
        if self.is_half_open() {
            return self.base.set_path(path);
        }
        if let Some(mut sa) = self.as_established()
            && sa.follows_peer_address()
            && path.remote != sa.base.path.remote
        {
            sa.base.set_path(path);
            sa.report_path_change(cx);
        }
    }

    /// Handles a request of the peer. `octets` are those of an IKE_INTERMEDIATE message in the clear.
    fn handle_request(
        &mut self,
        cx: &mut IkeEndpointContext,
        exchange: ExchangeType,
        payloads: Option<Vec<Payload>>,
        octets: &[u8],
    ) {
        // RFC 7296, 2.21.3: INVALID_SYNTAX ends the IKE_SA.
        let Some(payloads) = payloads else { return self.reject_request(cx, exchange) };
        if let Some(PayloadType(kind)) = unsupported_critical(&payloads) {
            // RFC 7296, 2.5: the notification names the payload's type.
            let notify = NotifyPayload::with_data(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, [kind]);
            cx.counters.critical += 1;
            self.base.respond_notify(cx, exchange, notify);
            return self.report_stage(HalfOpenStage::Continued);
        }
        let base = &mut self.base;
        match (&mut self.phase, exchange) {
            (SaPhase::Responding(state), ExchangeType::IKE_AUTH) => {
                let result = state.handle_auth_request(base, cx, &payloads);
                self.apply_responder_result(cx, result);
            }
            (SaPhase::Responding(state), ExchangeType::IKE_INTERMEDIATE) => {
                if intermediate::handle_intermediate_request(base, state, cx, &payloads, octets) {
                    self.report_stage(HalfOpenStage::Continued);
                } else {
                    self.reject_request(cx, exchange);
                }
            }
            // An initiator that rejects this side's proof reports it (RFC 7296 §2.21.2).
            (SaPhase::Responding(_), ExchangeType::INFORMATIONAL)
                if find_error_notify(&payloads).is_some() =>
            {
                cx.counters.authentication_failed += 1;
                base.respond_protected(cx, exchange, &[]);
                self.end(cx, IkeSaEnd { reason: EndReason::Refused, lingers: true, unproved: true });
            }
            (SaPhase::Established(state), _) => {
                let sa = &mut EstablishedSa { base, state, effects: &mut self.effects };
                let answer = match exchange {
                    ExchangeType::CREATE_CHILD_SA => create::answer_create_request(sa, cx, &payloads),
                    ExchangeType::IKE_FOLLOWUP_KE => followup::answer_followup_request(sa, cx, &payloads),
                    ExchangeType::INFORMATIONAL => {
                        informational::answer_informational_request(sa, cx, &payloads)
                    }
                    _ => PeerRequestAnswer::InvalidSyntax,
                };
                self.apply_answer(cx, exchange, answer);
            }
            // The peer has the keys, but its message has no place in this phase.
            _ => self.reject_request(cx, exchange),
        }
    }

    fn apply_answer(
        &mut self,
        cx: &mut IkeEndpointContext,
        exchange: ExchangeType,
        answer: PeerRequestAnswer,
    ) {
        match answer {
            PeerRequestAnswer::Response(payloads) => self.base.respond_protected(cx, exchange, &payloads),
            PeerRequestAnswer::LastResponse(payloads, reason) => {
                self.base.respond_protected(cx, exchange, &payloads);
                self.end(cx, IkeSaEnd { reason, lingers: true, unproved: false });
            }
            PeerRequestAnswer::InvalidSyntax => self.reject_request(cx, exchange),
        }
    }

    /// Rejects a request that violates the protocol, and ends the IKE_SA (RFC 7296 §2.21).
    fn reject_request(&mut self, cx: &mut IkeEndpointContext, exchange: ExchangeType) {
        cx.counters.syntax += 1;
        self.base.respond_notify(cx, exchange, NotifyPayload::new(NotifyType::INVALID_SYNTAX));
        let unproved = self.is_half_open();
        self.end(cx, IkeSaEnd { reason: EndReason::Protocol, lingers: true, unproved });
    }

    fn apply_responder_result(&mut self, cx: &mut IkeEndpointContext, result: ResponderResult) {
        const IKE_AUTH: ExchangeType = ExchangeType::IKE_AUTH;
        match result {
            Ok(ResponderStep::Respond(payloads)) => {
                self.base.respond_protected(cx, IKE_AUTH, &payloads);
                self.report_stage(HalfOpenStage::Continued);
            }
            Ok(ResponderStep::Wait) => {
                self.base.postpone_response();
                self.report_stage(HalfOpenStage::AwaitingResponder);
            }
            Ok(ResponderStep::Establish) => self.establish_as_responder(cx),
            Err(ResponderFailure::InvalidSyntax) => self.reject_request(cx, IKE_AUTH),
            Err(ResponderFailure::Rejected(reason)) => {
                cx.counters.authentication_failed += 1;
                // If a job or the AAA server of this side has failed, the initiator may try again.
                let unproved = reason != EndReason::Helper;
                let kind = if unproved {
                    self.report_failed_authentication(cx);
                    NotifyType::AUTHENTICATION_FAILED
                } else {
                    NotifyType::TEMPORARY_FAILURE
                };
                self.base.respond_notify(cx, IKE_AUTH, NotifyPayload::new(kind));
                self.end(cx, IkeSaEnd { reason, lingers: true, unproved });
            }
            Err(ResponderFailure::EapRejected(payloads)) => {
                cx.counters.authentication_failed += 1;
                self.base.respond_protected(cx, IKE_AUTH, &payloads);
                self.report_failed_authentication(cx);
                let reason = EndReason::AuthenticationFailed;
                self.end(cx, IkeSaEnd { reason, lingers: true, unproved: true });
            }
        }
    }
    /// Reports that the initiator failed to authenticate.
    fn report_failed_authentication(&self, cx: &mut IkeEndpointContext) {
        let path = DatagramPath { remote: self.base.proven_peer_address(), ..self.base.path };
        let identity = self.base.remote.clone();
        cx.outputs.push_event(IkeEvent::Unproved { sa: self.base.id, path, identity });
    }
    fn establish_as_responder(&mut self, cx: &mut IkeEndpointContext) {
        match core::mem::replace(&mut self.phase, SaPhase::Ended(EndedState::default())) {
            SaPhase::Responding(state) => {
                let (established, payloads) = state.establish(&mut self.base, cx, &mut self.effects);
                self.phase = SaPhase::Established(Box::new(established));
                self.base.respond_protected(cx, ExchangeType::IKE_AUTH, &payloads);
            }
            other => self.phase = other,
        }
    }
    fn establish_as_initiator(&mut self, cx: &mut IkeEndpointContext, payloads: &[Payload]) {
        match core::mem::replace(&mut self.phase, SaPhase::Ended(EndedState::default())) {
            SaPhase::Initiating(state) => {
                let established = state.establish(&mut self.base, cx, &mut self.effects, payloads);
                self.phase = SaPhase::Established(Box::new(established));
            }
            other => self.phase = other,
        }
    }

    pub(super) fn apply_initiator_result(&mut self, cx: &mut IkeEndpointContext, result: InitiatorResult) {
        match result {
            Ok(InitiatorStep::Request(exchange, payloads)) => {
                self.base.request_protected(cx, exchange, &payloads);
            }
            Ok(InitiatorStep::Wait) => {}
            Ok(InitiatorStep::Establish(payloads)) => self.establish_as_initiator(cx, &payloads),
            Err(InitiatorFailure::End(reason)) => self.end_sa(cx, reason),
            Err(InitiatorFailure::Responder(reason)) => {
                cx.counters.authentication_failed += 1;
                let notify = [Payload::Notify(NotifyPayload::new(NotifyType::AUTHENTICATION_FAILED))];
                self.base.request_protected(cx, ExchangeType::INFORMATIONAL, &notify);
                self.end_sa(cx, reason);
            }
        }
    }

    /// Handles the response to the outstanding request. `octets` are those of an IKE_INTERMEDIATE message in the clear.
    fn handle_response(
        &mut self,
        cx: &mut IkeEndpointContext,
        exchange: ExchangeType,
        payloads: Option<Vec<Payload>>,
        octets: &[u8],
    ) {
        let Some(outstanding) = self.base.outstanding.take() else { return };
        let is_valid = |payloads: &Vec<Payload>| {
            unsupported_critical(payloads).is_none() && exchange == outstanding.exchange
        };
        let Some(payloads) = payloads.filter(is_valid) else {
            // A response cannot be rejected, so the IKE_SA ends (RFC 7296 §2.21.3).
            cx.counters.syntax += 1;
            return self.end_sa(cx, EndReason::Protocol);
        };
        let base = &mut self.base;
        match &mut self.phase {
            SaPhase::Initiating(state) => {
                let result = match exchange {
                    ExchangeType::IKE_INTERMEDIATE => {
                        intermediate::handle_intermediate_response(base, state, cx, &payloads, octets)
                    }
                    _ => state.handle_auth_response(base, cx, payloads),
                };
                self.apply_initiator_result(cx, result);
            }
            SaPhase::Established(state) => {
                let Some(exchange) = state.exchange.take() else { return };
                let mut sa = EstablishedSa { base, state, effects: &mut self.effects };
                match exchange.handle_response(&mut sa, cx, payloads) {
                    Ok(next) => {
                        if let (Some(next), Some(sa)) = (next, self.as_established()) {
                            begin_exchange(sa, cx, next);
                        }
                    }
                    Err(reason) => self.end_sa(cx, reason),
                }
            }
            _ => {}
        }
    }

    /// Begins the next exchange if none is outstanding.
    pub(super) fn go_on(&mut self, cx: &mut IkeEndpointContext) {
        // RFC 7296, 2.3: one request at a time, within the peer's window.
        while let Some(mut sa) = self.as_established().filter(|sa| sa.base.outstanding.is_none()) {
            let Some(task) = sa.state.take_task(cx.now) else { return };
            if let Some(started) = start_task(&mut sa, cx, task) {
                begin_exchange(sa, cx, started);
            }
        }
    }

    pub(super) fn apply_command(
        &mut self,
        cx: &mut IkeEndpointContext,
        command: IkeCommand,
    ) -> Result<(), CommandError> {
        let base = &mut self.base;
        match (command, &mut self.phase) {
            (IkeCommand::Eap { answer, .. }, SaPhase::Responding(state)) => {
                let result = state.apply_eap_answer(base, cx, answer)?;
                self.apply_responder_result(cx, result);
            }
            (IkeCommand::Eap { .. }, _) => {
                return Err(CommandError::WrongState("no EAP packet is pending"));
            }
            (IkeCommand::Address { attributes, .. }, SaPhase::Responding(state)) => {
                let result = state.apply_address(base, cx, attributes)?;
                self.apply_responder_result(cx, result);
            }
            (IkeCommand::Address { .. }, _) => {
                return Err(CommandError::WrongState("no address request is pending"));
            }
            (IkeCommand::Signed { signature, ocsp, .. }, SaPhase::Initiating(state)) => {
                let result = state.apply_signature(base, cx, signature, ocsp)?;
                self.apply_initiator_result(cx, result);
            }
            (IkeCommand::Signed { signature, ocsp, .. }, SaPhase::Responding(state)) => {
                let result = state.apply_signature(base, cx, signature, ocsp)?;
                self.apply_responder_result(cx, result);
            }
            (IkeCommand::Signed { .. }, _) => {
                return Err(CommandError::WrongState("no signature is pending"));
            }
            (IkeCommand::Verified { until, certificates, .. }, SaPhase::Initiating(state)) => {
                let result = state.apply_verification(base, cx, until, certificates)?;
                self.apply_initiator_result(cx, result);
            }
            (IkeCommand::Verified { until, certificates, .. }, SaPhase::Responding(state)) => {
                let result = state.apply_verification(base, cx, until, certificates)?;
                self.apply_responder_result(cx, result);
            }
            (IkeCommand::Verified { .. }, _) => {
                return Err(CommandError::WrongState("no verification is pending"));
            }
            (IkeCommand::Unable { .. }, SaPhase::Initiating(state)) => {
                state.common.take_failed_job()?;
                self.end_sa(cx, EndReason::Helper);
            }
            (IkeCommand::Unable { .. }, SaPhase::Responding(state)) => {
                state.common.take_failed_job()?;
                self.apply_responder_result(cx, Err(ResponderFailure::Rejected(EndReason::Helper)));
            }
            (IkeCommand::Unable { .. }, _) => return Err(CommandError::WrongState("no job is pending")),
            (command, SaPhase::Established(state)) => {
                apply_established_command(base, state, cx, command)?;
            }
            (IkeCommand::Delete(_), _) => self.end_sa(cx, EndReason::Deleted),
            _ => return Err(CommandError::WrongState("the IKE_SA is not established")),
        }
        self.go_on(cx);
        Ok(())
    }
}

/// True if a request of an initiator that still authenticates comes from a wrong address. The port may change, since the
/// initiator may move to port 4500 (RFC 7296 §2.23). The address may change only behind a NAT. Otherwise a replayed
/// request with a forged source would redirect packets.
fn is_from_other_address(sa: &IkeSaBase, path: DatagramPath) -> bool {
    let other = path.remote.ip() != sa.proved_address && !sa.nat.1;
    other || path.local.ip() != sa.path.local.ip()
}

/// Sends the request of an exchange. No other may be outstanding.
pub(super) fn begin_exchange(sa: EstablishedSa<'_>, cx: &mut IkeEndpointContext, started: StartedExchange) {
    let StartedExchange { kind, payloads, exchange } = started;
    sa.base.request_protected(cx, kind, &payloads);
    sa.state.exchange = Some(exchange);
}

/// Starts the exchange of a task. `None` if it has become needless.
fn start_task(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    task: IkeSaTask,
) -> Option<StartedExchange> {
    match task {
        IkeSaTask::CreateChild(_) | IkeSaTask::RekeyChild(_) | IkeSaTask::Rekey => {
            create::start_create_exchange(sa, cx, task)
        }
        IkeSaTask::DeleteChild(spi) => informational::start_child_deletion(sa, spi),
        IkeSaTask::Disown(spi) => Some(informational::start_disowning(spi)),
        IkeSaTask::Delete(reason) => informational::start_ike_sa_deletion(sa, reason),
        IkeSaTask::Probe => Some(informational::start_liveness_check()),
        IkeSaTask::RequestTicket => Some(ticket_requests::start_ticket_request()),
        IkeSaTask::Update | IkeSaTask::Check => Some(informational::start_address_probe(sa, cx, task)),
    }
}

/// Applies a command to an established IKE_SA.
fn apply_established_command(
    base: &mut IkeSaBase,
    state: &mut EstablishedState,
    cx: &IkeEndpointContext,
    command: IkeCommand,
) -> Result<(), CommandError> {
    match command {
        IkeCommand::Traffic { received, sent, .. } => {
            if received {
                base.last_received = cx.now;
            }
            if sent {
                base.sent = cx.now;
            }
        }
        _ if !state.is_active_ike_sa() => {
            return Err(CommandError::WrongState("the IKE_SA has been replaced, or is being deleted"));
        }
        IkeCommand::CreateChild { name, .. } => {
            let number = base.connection.children.iter().position(|child| child.name == name);
            let number =
                number.ok_or(CommandError::Invalid("the connection has no CHILD_SA of this name"))?;
            state.plan_task(IkeSaTask::CreateChild(number));
        }
        IkeCommand::RekeyChild { spi, .. } if state.find_child(spi).is_some() => {
            state.plan_task(IkeSaTask::RekeyChild(spi));
        }
        IkeCommand::DeleteChild { spi, .. } if state.find_child(spi).is_some() => {
            state.plan_task(IkeSaTask::DeleteChild(spi));
        }
        IkeCommand::RekeyChild { .. } | IkeCommand::DeleteChild { .. } => {
            return Err(CommandError::Invalid("the IKE_SA has no CHILD_SA with this inbound SPI"));
        }
        IkeCommand::Rekey(_) => state.plan_task(IkeSaTask::Rekey),
        IkeCommand::Delete(_) => state.put_out(cx.now, EndReason::Deleted),
        IkeCommand::Probe(_) => state.plan_task(IkeSaTask::Probe),
        IkeCommand::Move { local, remote, .. } => {
            if !state.mobike || !base.initiator {
                return Err(CommandError::WrongState("only the initiator can move, and only with MOBIKE"));
            }
            base.set_path(DatagramPath { local, remote, ..base.path });
            state.plan_task(IkeSaTask::Update);
        }
        // These are for the endpoint, or for an IKE_SA that authenticates.
        _ => {}
    }
    Ok(())
}

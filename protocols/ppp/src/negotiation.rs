//! A control protocol that runs RFC 1661's automaton: the common part of LCP, IPCP and IPv6CP.

use crate::automaton::{Action, Event, OptionNegotiation, State};
use crate::packet::{ConfigOption, ControlCode, ControlPacket, HEADER, PppProtocol};
use alloc::vec::Vec;
use usher_core::{Duration, Instant, SecureRng};

/// Timer and limits of a negotiation (RFC 1661 §4.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NegotiationConfig {
    /// The Restart timer.
    pub timer: Duration,
    /// Maximum Configure-Requests without a reply (Max-Configure).
    pub max_configure: u32,
    /// Maximum Terminate-Requests without a reply (Max-Terminate).
    pub max_terminate: u32,
    /// Maximum Configure-Naks without an Ack (Max-Failure). After them, Configure-Rejects are sent.
    pub max_failure: u32,
    /// Maximum Configure-Requests before both sides agree. Without it, a peer that answers each with a new Nak would
    /// keep the negotiation going for ever (RFC 1661 §4.5).
    pub max_requests: u32,
}

impl Default for NegotiationConfig {
    /// RFC 1661's 3 s, 10, 2 and 5; 30 requests in all.
    fn default() -> Self {
        Self {
            timer: Duration::from_secs(3),
            max_configure: 10,
            max_terminate: 2,
            max_failure: 5,
            max_requests: 30,
        }
    }
}

/// The reply to a peer's Configure-Request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ConfigureReply {
    /// Acknowledge all options.
    Ack,
    /// Suggest these values.
    Nak(Vec<u8>),
    /// Reject these options.
    Reject(Vec<u8>),
}

impl ConfigureReply {
    /// Chooses the reply: rejected options come before suggested values (RFC 1661 §5.4).
    pub(crate) fn from_options(rejected: Vec<u8>, suggested: Vec<u8>) -> Self {
        match (rejected.is_empty(), suggested.is_empty()) {
            (false, _) => Self::Reject(rejected),
            (true, false) => Self::Nak(suggested),
            (true, true) => Self::Ack,
        }
    }
}

/// The options of a control protocol: this side's requests, and its replies to the peer's.
pub(crate) trait ControlProtocolOptions {
    /// The protocol.
    const PROTOCOL: PppProtocol;
    /// Restores this side's initial options for a new negotiation.
    fn reset_options(&mut self, rng: &mut SecureRng);
    /// Appends this side's options.
    fn write_request(&self, out: &mut Vec<u8>);
    /// Returns the reply to the peer's options. `may_nak` is false after Max-Failure: options are then rejected.
    fn evaluate_request(
        &mut self,
        options: &[ConfigOption<'_>],
        may_nak: bool,
        rng: &mut SecureRng,
    ) -> ConfigureReply;
    /// Adopts the peer's options after they were acknowledged.
    fn accept_request(&mut self, options: &[ConfigOption<'_>]);
    /// Applies the values that the peer suggests.
    fn apply_nak(&mut self, options: &[ConfigOption<'_>], rng: &mut SecureRng);
    /// Drops the options that the peer rejects.
    fn apply_reject(&mut self, options: &[ConfigOption<'_>]);
}

/// An output of a control protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NegotiationOutput {
    /// Send this control packet.
    Send(Vec<u8>),
    /// Both sides have agreed.
    Up,
    /// The agreement has ended.
    Down,
    /// The lower layer is no longer needed.
    Finished,
    /// Reply to an Echo-Request of this identifier and data (LCP only).
    EchoReply(u8, Vec<u8>),
}

/// The inputs of a step of a control protocol.
pub(crate) struct NegotiationContext<'a> {
    pub(crate) now: Instant,
    pub(crate) restart: &'a NegotiationConfig,
    pub(crate) rng: &'a mut SecureRng,
    /// Maximum octets of a packet on this link.
    pub(crate) mtu: usize,
    pub(crate) outputs: &'a mut Vec<NegotiationOutput>,
}

/// The reason why a packet was discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DiscardReason {
    /// Not a control packet, or an option has a wrong length.
    Malformed,
    /// A reply to no open request.
    Unsolicited,
    /// The lower layer is down.
    NoLayer,
    /// The automaton takes no action in its state.
    Ignored,
}

/// A control protocol: its automaton's state, counters and timer.
#[derive(Debug)]
pub(crate) struct ControlProtocol<O> {
    pub(crate) options: O,
    state: State,
    /// The Restart counter.
    count: u32,
    timer: Option<Instant>,
    /// The identifier of the last request or reject.
    identifier: u8,
    /// The identifier and options of the last Configure-Request, and whether the peer has replied.
    sent: (u8, Vec<u8>),
    answered: bool,
    /// The last acknowledged request, and the time until which the same request counts as its copy.
    acknowledged: Option<(u8, Vec<u8>, Instant)>,
    /// Configure-Naks sent without an Ack.
    failures: u32,
    /// Configure-Requests sent since negotiation began.
    requests: u32,
}

impl<O: ControlProtocolOptions> ControlProtocol<O> {
    pub(crate) fn new(options: O) -> Self {
        Self {
            options,
            state: State::Initial,
            count: 0,
            timer: None,
            identifier: 0,
            sent: (0, Vec::new()),
            answered: true,
            acknowledged: None,
            failures: 0,
            requests: 0,
        }
    }
    pub(crate) const fn state(&self) -> State {
        self.state
    }
    pub(crate) fn is_opened(&self) -> bool {
        self.state == State::Opened
    }
    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }
    /// True if the negotiation failed for lack of agreement, not for lack of replies.
    pub(crate) const fn has_exhausted_requests(&self, restart: &NegotiationConfig) -> bool {
        self.requests >= restart.max_requests
    }
    /// Returns a new identifier for a packet of this side.
    pub(crate) fn next_identifier(&mut self) -> u8 {
        self.identifier = self.identifier.wrapping_add(1);
        self.identifier
    }

    /// Applies an event without a packet.
    pub(crate) fn apply_event(&mut self, cx: &mut NegotiationContext<'_>, event: Event) {
        // The result says whether a packet was discarded, and this event has no packet.
        let _ = self.step_automaton(
            cx,
            event,
            ControlPacket { code: ControlCode(0), identifier: 0, data: &[] },
            None,
        );
    }
    /// Handles the timeout that [`poll_timeout`](Self::poll_timeout) returned.
    pub(crate) fn handle_timeout(&mut self, cx: &mut NegotiationContext<'_>) {
        if self.timer.take_if(|at| *at <= cx.now).is_some() {
            let event = if self.count > 0 { Event::TimeoutAgain } else { Event::TimeoutLast };
            self.apply_event(cx, event);
        }
    }
    /// Handles a Protocol-Reject of this protocol (RFC 1661 §5.7).
    pub(crate) fn handle_protocol_reject(&mut self, cx: &mut NegotiationContext<'_>) {
        if self.state.is_lower_layer_up() {
            self.apply_event(cx, Event::RejectCatastrophic);
        }
    }

    /// Handles a control packet of this protocol.
    pub(crate) fn receive_packet(
        &mut self,
        cx: &mut NegotiationContext<'_>,
        octets: &[u8],
    ) -> Result<(), DiscardReason> {
        let packet = ControlPacket::parse(octets).map_err(|_| DiscardReason::Malformed)?;
        if !self.state.is_lower_layer_up() {
            return Err(DiscardReason::NoLayer);
        }
        let options = |data| ConfigOption::parse_all_options(data).map_err(|_| DiscardReason::Malformed);
        let event = match packet.code {
            ControlCode::CONFIGURE_REQUEST => {
                return self.handle_configure_request(cx, packet, &options(packet.data)?);
            }
            ControlCode::CONFIGURE_ACK => {
                // RFC 1661, 5.2: an Ack has the options of the request.
                if packet.data != self.options_of_matching_request(packet)? {
                    return Err(DiscardReason::Unsolicited);
                }
                self.answered = true;
                Event::Ack
            }
            ControlCode::CONFIGURE_NAK => {
                self.options_of_matching_request(packet)?;
                let all = options(packet.data)?;
                self.answered = true;
                self.options.apply_nak(&all, cx.rng);
                Event::NakOrReject
            }
            ControlCode::CONFIGURE_REJECT => {
                let sent = ConfigOption::parse_all_options(self.options_of_matching_request(packet)?)
                    .unwrap_or_default();
                let all = options(packet.data)?;
                // RFC 1661, 5.4: rejected options are a subset of the sent ones, in the same order.
                let mut rest = sent.iter();
                if all.is_empty() || !all.iter().all(|option| rest.any(|one| one == option)) {
                    return Err(DiscardReason::Unsolicited);
                }
                self.answered = true;
                self.options.apply_reject(&all);
                Event::NakOrReject
            }
            ControlCode::TERMINATE_REQUEST => Event::TerminateRequest,
            ControlCode::TERMINATE_ACK => Event::TerminateAck,
            ControlCode::CODE_REJECT => match packet.data.first() {
                // RFC 1661, 5.6: a Code-Reject of a basic code is catastrophic.
                Some(1..=7) => Event::RejectCatastrophic,
                Some(_) => Event::RejectPermitted,
                None => return Err(DiscardReason::Malformed),
            },
            ControlCode::ECHO_REQUEST | ControlCode::ECHO_REPLY | ControlCode::DISCARD_REQUEST
                if O::PROTOCOL == PppProtocol::LCP =>
            {
                Event::Echo
            }
            _ => Event::UnknownCode,
        };
        self.step_automaton(cx, event, packet, None)
    }

    /// Returns the options of the open request if the packet replies to it.
    fn options_of_matching_request(&self, packet: ControlPacket<'_>) -> Result<&[u8], DiscardReason> {
        let (identifier, options) = &self.sent;
        // RFC 1661, 5.2, 5.3, 5.4: a reply has the identifier of the last request.
        let asked = !self.answered && packet.identifier == *identifier;
        asked.then_some(&options[..]).ok_or(DiscardReason::Unsolicited)
    }

    fn handle_configure_request(
        &mut self,
        cx: &mut NegotiationContext<'_>,
        packet: ControlPacket<'_>,
        options: &[ConfigOption<'_>],
    ) -> Result<(), DiscardReason> {
        if self.is_opened()
            && let Some((identifier, options, until)) = &self.acknowledged
            && (*identifier, &options[..]) == (packet.identifier, packet.data)
            && cx.now < *until
        {
            // A duplicate, or the Ack was lost: acknowledge again and keep the link up.
            let ack = ControlPacket { code: ControlCode::CONFIGURE_ACK, ..packet };
            cx.outputs.push(NegotiationOutput::Send(ack.to_vec()));
            return Ok(());
        }
        let may_nak = self.failures < cx.restart.max_failure;
        let judgement = self.options.evaluate_request(options, may_nak, cx.rng);
        let event = if judgement == ConfigureReply::Ack { Event::RequestGood } else { Event::RequestBad };
        self.step_automaton(cx, event, packet, Some((options, judgement)))
    }

    fn step_automaton(
        &mut self,
        cx: &mut NegotiationContext<'_>,
        event: Event,
        packet: ControlPacket<'_>,
        request: Option<(&[ConfigOption<'_>], ConfigureReply)>,
    ) -> Result<(), DiscardReason> {
        let row = OptionNegotiation::step(self.state, event).ok_or(DiscardReason::Ignored)?;
        if row.actions.is_empty() && row.to == row.from {
            return Err(DiscardReason::Ignored);
        }
        let requests = row.actions.contains(&Action::SendRequest);
        if requests && matches!(row.from, State::Starting | State::Closed | State::Stopped | State::Opened) {
            (self.failures, self.requests) = (0, 0);
            self.options.reset_options(cx.rng);
            if row.from == State::Opened {
                // In this transition the RFC's table does not initialize the restart counter (irc). With a counter of
                // zero, the first lost packet would end the link.
                self.count = cx.restart.max_configure;
            }
        }
        self.state = row.to;
        for action in row.actions {
            match action {
                Action::LayerUp => {
                    (self.failures, self.requests) = (0, 0);
                    cx.outputs.push(NegotiationOutput::Up);
                }
                Action::LayerDown => cx.outputs.push(NegotiationOutput::Down),
                Action::LayerStarted => {}
                Action::LayerFinished => cx.outputs.push(NegotiationOutput::Finished),
                Action::InitializeCount => {
                    let terminates = matches!(row.to, State::Closing | State::Stopping);
                    let NegotiationConfig { max_configure, max_terminate, .. } = *cx.restart;
                    self.count = if terminates { max_terminate } else { max_configure };
                }
                Action::ZeroCount => {
                    self.count = 0;
                    self.timer = Some(cx.now + cx.restart.timer);
                }
                Action::SendRequest => self.send_request(cx),
                Action::SendAck => {
                    if let Some((options, _)) = &request {
                        self.failures = 0;
                        self.options.accept_request(options);
                        let until = cx.now + cx.restart.timer;
                        self.acknowledged = Some((packet.identifier, packet.data.to_vec(), until));
                    }
                    let code = ControlCode::CONFIGURE_ACK;
                    cx.outputs.push(NegotiationOutput::Send(ControlPacket { code, ..packet }.to_vec()));
                }
                Action::SendNak => {
                    let (code, data) = match &request {
                        Some((_, ConfigureReply::Nak(options))) => {
                            self.failures += 1;
                            (ControlCode::CONFIGURE_NAK, &options[..])
                        }
                        Some((_, ConfigureReply::Reject(options))) => {
                            (ControlCode::CONFIGURE_REJECT, &options[..])
                        }
                        _ => continue,
                    };
                    cx.outputs.push(NegotiationOutput::Send(ControlPacket { code, data, ..packet }.to_vec()));
                }
                Action::SendTerminateRequest => {
                    self.count = self.count.saturating_sub(1);
                    self.timer = Some(cx.now + cx.restart.timer);
                    let identifier = self.next_identifier();
                    let packet =
                        ControlPacket { code: ControlCode::TERMINATE_REQUEST, identifier, data: &[] };
                    cx.outputs.push(NegotiationOutput::Send(packet.to_vec()));
                }
                Action::SendTerminateAck => {
                    let data = if event == Event::TerminateRequest { packet.data } else { &[] };
                    let data = &data[..data.len().min(cx.mtu.saturating_sub(HEADER))];
                    // RFC 1661, 5.5: a Terminate-Request is acknowledged with its identifier.
                    let packet = ControlPacket { code: ControlCode::TERMINATE_ACK, data, ..packet };
                    cx.outputs.push(NegotiationOutput::Send(packet.to_vec()));
                }
                Action::SendCodeReject => {
                    let mut data = packet.to_vec();
                    // RFC 1661, 5.6: an unknown code is rejected, cut to the peer's MRU.
                    data.truncate(cx.mtu.saturating_sub(HEADER));
                    let (code, identifier) = (ControlCode::CODE_REJECT, self.next_identifier());
                    cx.outputs.push(NegotiationOutput::Send(
                        ControlPacket { code, identifier, data: &data }.to_vec(),
                    ));
                }
                Action::SendEchoReply => {
                    if packet.code == ControlCode::ECHO_REQUEST {
                        cx.outputs
                            .push(NegotiationOutput::EchoReply(packet.identifier, packet.data.to_vec()));
                    }
                }
            }
        }
        if !self.state.may_run_restart_timer() {
            self.timer = None;
        }
        Ok(())
    }

    /// Sends a Configure-Request: a new one, or the unanswered last one again.
    fn send_request(&mut self, cx: &mut NegotiationContext<'_>) {
        self.requests += 1;
        if self.has_exhausted_requests(cx.restart) {
            // The negotiation does not converge, so no further request is sent and the counter runs out. Further
            // replies do not extend the timer.
            self.count = 0;
            self.timer.get_or_insert(cx.now + cx.restart.timer);
            return;
        }
        self.count = self.count.saturating_sub(1);
        let mut options = Vec::new();
        self.options.write_request(&mut options);
        if self.answered || options != self.sent.1 {
            self.sent = (self.next_identifier(), options);
            self.answered = false;
        }
        let (identifier, options) = (self.sent.0, &self.sent.1[..]);
        let packet = ControlPacket { code: ControlCode::CONFIGURE_REQUEST, identifier, data: options };
        cx.outputs.push(NegotiationOutput::Send(packet.to_vec()));
        self.timer = Some(cx.now + cx.restart.timer);
    }
}

//! A control protocol that runs RFC 1661's automaton: what LCP, IPCP and IPv6CP have in common.

use crate::automaton::{Action, Event, OptionNegotiation, State};
use crate::packet::{ConfigOption, ControlCode, ControlPacket, HEADER, PppProtocol};
use alloc::vec::Vec;
use usher_core::{Duration, Instant, SecureRng};

/// How packets are sent again, and when negotiating is given up (RFC 1661 §4.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestartConfig {
    /// The Restart timer.
    pub timer: Duration,
    /// Configure-Requests that are sent without an answer (Max-Configure).
    pub max_configure: u32,
    /// Terminate-Requests that are sent without an answer (Max-Terminate).
    pub max_terminate: u32,
    /// Configure-Naks that are sent without an Ack; from then on they are Configure-Rejects (Max-Failure).
    pub max_failure: u32,
    /// Configure-Requests that are sent in all before both agree. The automaton alone would go on for ever with a peer that
    /// answers each of them with another wish (§4.5).
    pub max_requests: u32,
}

impl Default for RestartConfig {
    /// 3 s, 10, 2, 5 as the RFC has them; 30.
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

/// What becomes of a peer's Configure-Request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ConfigureReply {
    /// All of it is agreed to.
    Ack,
    /// These options should have these values.
    Nak(Vec<u8>),
    /// These options are not to be had.
    Reject(Vec<u8>),
}

impl ConfigureReply {
    /// Of the options to be rejected and those to be had otherwise, what is said first (RFC 1661 §5.4).
    pub(crate) fn from_options(rejected: Vec<u8>, suggested: Vec<u8>) -> Self {
        match (rejected.is_empty(), suggested.is_empty()) {
            (false, _) => Self::Reject(rejected),
            (true, false) => Self::Nak(suggested),
            (true, true) => Self::Ack,
        }
    }
}

/// The options of one control protocol: what this side wants, and what it thinks of what the peer wants.
pub(crate) trait ProtocolOptions {
    /// The protocol.
    const PROTOCOL: PppProtocol;
    /// Negotiation begins anew: this side wants again what it wanted at first.
    fn reset_options(&mut self, rng: &mut SecureRng);
    /// Appends what this side wants.
    fn write_request(&self, out: &mut Vec<u8>);
    /// What is answered to what the peer wants. `may_nak` is false after Max-Failure: what can be refused is then refused.
    fn evaluate_request(
        &mut self,
        options: &[ConfigOption<'_>],
        may_nak: bool,
        rng: &mut SecureRng,
    ) -> ConfigureReply;
    /// What the peer wants is agreed to.
    fn accept_request(&mut self, options: &[ConfigOption<'_>]);
    /// The peer would have other values.
    fn apply_nak(&mut self, options: &[ConfigOption<'_>], rng: &mut SecureRng);
    /// The peer will not have these options.
    fn apply_reject(&mut self, options: &[ConfigOption<'_>]);
}

/// What is to be done for a control protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NegotiationOutput {
    /// Send this control packet.
    Send(Vec<u8>),
    /// Both have agreed.
    Up,
    /// They do not any more.
    Down,
    /// The lower layer is not needed any more.
    Finished,
    /// An Echo-Request of this identifier and data wants its reply (LCP alone).
    EchoReply(u8, Vec<u8>),
}

/// What a step of a control protocol is given.
pub(crate) struct NegotiationContext<'a> {
    pub(crate) now: Instant,
    pub(crate) restart: &'a RestartConfig,
    pub(crate) rng: &'a mut SecureRng,
    /// Octets that a packet may have on this link.
    pub(crate) mtu: usize,
    pub(crate) outputs: &'a mut Vec<NegotiationOutput>,
}

/// Why a packet changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DiscardReason {
    /// It is no control packet, or its options have a wrong length.
    Malformed,
    /// It answers no request that is open.
    Unsolicited,
    /// The lower layer is down.
    NoLayer,
    /// In its state the automaton does nothing about it.
    Ignored,
}

/// A control protocol, its automaton's state, its counters and its timer.
#[derive(Debug)]
pub(crate) struct ControlProtocol<O> {
    pub(crate) options: O,
    state: State,
    /// The Restart counter.
    count: u32,
    timer: Option<Instant>,
    /// Of the last request or reject.
    identifier: u8,
    /// The identifier and options of the last Configure-Request, and whether the peer has answered it.
    sent: (u8, Vec<u8>),
    answered: bool,
    /// The peer's request that was acknowledged last, and until when the same again is a copy of it.
    acknowledged: Option<(u8, Vec<u8>, Instant)>,
    /// Configure-Naks sent without an Ack.
    failures: u32,
    /// Configure-Requests sent since negotiation began.
    requests: u32,
}

impl<O: ProtocolOptions> ControlProtocol<O> {
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
    /// Whether it was given up because the peer answered for ever, rather than not at all.
    pub(crate) const fn is_diverging(&self, restart: &RestartConfig) -> bool {
        self.requests >= restart.max_requests
    }
    /// The identifier of a further packet of this side's.
    pub(crate) fn next_identifier(&mut self) -> u8 {
        self.identifier = self.identifier.wrapping_add(1);
        self.identifier
    }

    /// Gives an event that comes with no packet.
    pub(crate) fn apply_event(&mut self, cx: &mut NegotiationContext<'_>, event: Event) {
        // What the automaton ignores was no packet.
        let _ = self.step_automaton(
            cx,
            event,
            ControlPacket { code: ControlCode(0), identifier: 0, data: &[] },
            None,
        );
    }
    /// The time has come that [`poll_timeout`](Self::poll_timeout) named.
    pub(crate) fn handle_timeout(&mut self, cx: &mut NegotiationContext<'_>) {
        if self.timer.take_if(|at| *at <= cx.now).is_some() {
            let event = if self.count > 0 { Event::TimeoutAgain } else { Event::TimeoutLast };
            self.apply_event(cx, event);
        }
    }
    /// The peer does not know this protocol (RFC 1661 §5.7).
    pub(crate) fn handle_protocol_reject(&mut self, cx: &mut NegotiationContext<'_>) {
        if self.state.has_lower() {
            self.apply_event(cx, Event::RejectCatastrophic);
        }
    }

    /// Takes a control packet of this protocol.
    pub(crate) fn receive_packet(
        &mut self,
        cx: &mut NegotiationContext<'_>,
        octets: &[u8],
    ) -> Result<(), DiscardReason> {
        let packet = ControlPacket::parse(octets).map_err(|_| DiscardReason::Malformed)?;
        if !self.state.has_lower() {
            return Err(DiscardReason::NoLayer);
        }
        let options = |data| ConfigOption::parse_all(data).map_err(|_| DiscardReason::Malformed);
        let event = match packet.code {
            ControlCode::CONFIGURE_REQUEST => {
                return self.handle_configure_request(cx, packet, &options(packet.data)?);
            }
            ControlCode::CONFIGURE_ACK => {
                if packet.data != self.match_reply(packet)? {
                    return Err(DiscardReason::Unsolicited);
                }
                self.answered = true;
                Event::Ack
            }
            ControlCode::CONFIGURE_NAK => {
                self.match_reply(packet)?;
                let all = options(packet.data)?;
                self.answered = true;
                self.options.apply_nak(&all, cx.rng);
                Event::NakOrReject
            }
            ControlCode::CONFIGURE_REJECT => {
                let sent = ConfigOption::parse_all(self.match_reply(packet)?).unwrap_or_default();
                let all = options(packet.data)?;
                // They are some of those that were sent, in their order (§5.4).
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
                // Those without which nothing goes (§5.6).
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

    /// The options that an answer is to, if it is to the open request.
    fn match_reply(&self, packet: ControlPacket<'_>) -> Result<&[u8], DiscardReason> {
        let (identifier, options) = &self.sent;
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
            // A copy of the request, or the Ack was lost: it is answered, and no reason to take the link down.
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
                // The table has no irc here; without a count the first loss would end the link.
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
                    let RestartConfig { max_configure, max_terminate, .. } = *cx.restart;
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
                    let packet = ControlPacket { code: ControlCode::TERMINATE_ACK, data, ..packet };
                    cx.outputs.push(NegotiationOutput::Send(packet.to_vec()));
                }
                Action::SendCodeReject => {
                    let mut data = packet.to_vec();
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
        if !self.state.is_timed() {
            self.timer = None;
        }
        Ok(())
    }

    /// Configure-Request: a new one, or the last one again where nobody has answered it.
    fn send_request(&mut self, cx: &mut NegotiationContext<'_>) {
        self.requests += 1;
        if self.is_diverging(cx.restart) {
            // The counter runs out, and the timer is not put off by further answers.
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

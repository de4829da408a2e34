//! The backend authenticator (RFC 4137 §6, figure 5), one per conversation of an AAA server. It has no timer: the AAA
//! client retransmits.

use crate::EapKeys;
use crate::method::{
    CredentialDigest, EapMethodContext, InnerMethod, ServerMethod, ServerMethodFactory, ServerMethodFailure,
    ServerMethodResult, UserQuery, UserQueryAnswer,
};
use crate::packet::{self, EapCode, EapPacket, EapType};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::{SecureRng, WallTime, WorkRecord, automaton, names};

/// A query of a conversation to its host, or the conversation's end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EapServerEvent {
    /// A query to the host. The conversation waits for [`EapServer::apply_answer`].
    Query(UserQuery),
    /// The peer is authenticated. The packet to send is a Success.
    Success {
        /// The method that authenticated the peer.
        method: EapType,
        /// The method's keys, if it derives some.
        keys: Option<EapKeys>,
    },
    /// The authentication failed, or no method is left. The packet to send is a Failure.
    Failure {
        /// The failed method. `None` if peer and server have none in common.
        method: Option<EapType>,
    },
}

names! {
    /// The boxes of the diagram.
    pub(crate) State {
        Idle = "IDLE",
        Received = "RECEIVED",
        IntegrityCheck = "INTEGRITY_CHECK",
        Asked = "ASKED",
        MethodResponse = "METHOD_RESPONSE",
        Nak = "NAK",
        Discard = "DISCARD",
        SelectAction = "SELECT_ACTION",
        ProposeMethod = "PROPOSE_METHOD",
        MethodRequest = "METHOD_REQUEST",
        SendRequest = "SEND_REQUEST",
        Success = "SUCCESS",
        Failure = "FAILURE",
    }
}

names! {
    /// The conditions of its arrows.
    pub(crate) Condition {
        Response = "aaaEapResp",
        Naks = "rxResp && respId == currentId && respMethod == NAK && methodState == PROPOSED",
        Answers = "rxResp && respId == currentId && respMethod == currentMethod",
        Ignored = "ignore",
        Asks = "a method request is unanswered",
        Answered = "it is answered",
        Ended = "methodState == END",
        DecidesFailure = "decision == FAILURE",
        DecidesSuccess = "decision == SUCCESS",
    }
}

automaton! {
    /// Figure 5. Differences:
    ///
    /// - [`EapServer::new`] stands for INITIALIZE and PICK_UP_METHOD. It picks up the peer's Identity, which the caller
    ///   has read, and no other method. DISABLED is left to the owner, which drops the conversation.
    /// - RECEIVED has no EXPANDED_NAK, which answers only a request of type 254. The server proposes none (RFC 3748
    ///   §5.3.2, which takes precedence over RFC 4137, §3.3).
    /// - INTEGRITY_CHECK calls the method once for both `m.check` and `m.process`.
    /// - ASKED is an addition: METHOD_RESPONSE's `m.process` waits there for the host's answer. §8.1 foresees that it
    ///   may block.
    pub(crate) Backend("eap-backend", "RFC 4137, figure 5"): State from SelectAction, when Condition;
    Idle {
        Response => Received;
        ! waits: "for the peer's response";
    }
    Received {
        Naks => Nak;
        Answers => IntegrityCheck;
        _ => Discard;
    }
    Nak { _ => SelectAction; }
    SelectAction {
        DecidesFailure => Failure;
        DecidesSuccess => Success;
        _ => ProposeMethod;
    }
    IntegrityCheck {
        Ignored => Discard;
        Asks => Asked;
        _ => MethodResponse;
    }
    Asked {
        Answered => MethodResponse;
        ! waits: "for the host's answer";
    }
    MethodResponse {
        Ended => SelectAction;
        _ => MethodRequest;
    }
    ProposeMethod { _ => MethodRequest; }
    MethodRequest { _ => SendRequest; }
    Discard { _ => Idle; }
    SendRequest { _ => Idle; }
    Failure { ! ends: "the peer is rejected"; }
    Success { ! ends: "the peer is accepted"; }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ServerMethodState {
    Proposed,
    Continue,
    End(bool),
}

/// A conversation of a server.
#[derive(Debug)]
pub struct EapServer {
    state: State,
    /// Methods still to propose, the next one last.
    offers: Vec<Box<dyn ServerMethodFactory>>,
    current: Option<(EapType, Box<dyn ServerMethod>)>,
    progress: ServerMethodState,
    current_id: u8,
    /// The received response: identifier and type. Its type data is in `data`.
    incoming: Option<(u8, EapType)>,
    data: Vec<u8>,
    out: Vec<u8>,
    send: bool,
    verdict: ServerMethodResult,
    discarded: bool,
    is_end_reported: bool,
    /// The pending query to the host.
    question: Option<UserQuery>,
    /// The types in the peer's last Nak.
    desired_types: Vec<u8>,
    /// Seeds the random numbers of methods that are proposed later.
    seed: [u8; 32],
    wall: WallTime,
    mtu: Option<usize>,
    without_extended_master_secret: bool,
}

impl EapServer {
    /// Follows arrows until none applies.
    fn run_automaton(&mut self) {
        while let Some(arrow) = Backend::step(self.state, |condition| self.evaluate_condition(condition)) {
            self.enter_state(arrow.to);
        }
    }

    #[inline]
    fn evaluate_condition(&self, condition: Condition) -> bool {
        let response = self.incoming.filter(|(id, _)| *id == self.current_id);
        match condition {
            Condition::Response => self.incoming.is_some(),
            // RFC 3748, 2.1: after an answer to the method no other one follows.
            Condition::Naks => {
                self.progress == ServerMethodState::Proposed
                    && response.is_some_and(|(_, kind)| kind == EapType::NAK)
            }
            Condition::Answers => {
                // RFC 3748, 4.1: a response has the identifier and the type of the open request.
                response.is_some_and(|(_, kind)| self.current.as_ref().is_some_and(|(c, _)| *c == kind))
            }
            Condition::Ignored => self.verdict == ServerMethodResult::Ignore,
            Condition::Asks => self.verdict == ServerMethodResult::QueryPending,
            Condition::Answered => self.verdict != ServerMethodResult::QueryPending,
            Condition::Ended => matches!(self.progress, ServerMethodState::End(_)),
            Condition::DecidesFailure => match self.progress {
                ServerMethodState::End(success) => !success,
                ServerMethodState::Proposed | ServerMethodState::Continue => self.offers.is_empty(),
            },
            Condition::DecidesSuccess => self.progress == ServerMethodState::End(true),
        }
    }

    fn enter_state(&mut self, state: State) {
        self.state = state;
        match state {
            State::IntegrityCheck => {
                self.verdict = match &mut self.current {
                    Some((_, method)) => method.handle_response(self.current_id, &self.data),
                    None => ServerMethodResult::Ignore,
                };
            }
            State::Asked => self.take_method_query(),
            State::MethodResponse => {
                self.progress = match self.verdict {
                    ServerMethodResult::Success => ServerMethodState::End(true),
                    ServerMethodResult::Failure => ServerMethodState::End(false),
                    ServerMethodResult::Continue
                    | ServerMethodResult::Ignore
                    | ServerMethodResult::QueryPending => ServerMethodState::Continue,
                };
            }
            State::Nak => {
                // RFC 3748, 5.3: the peer's order of preference applies among the remaining methods.
                let wishes = core::mem::take(&mut self.data);
                self.offers.retain(|o| wishes.contains(&o.kind().0));
                let place = |o: &dyn ServerMethodFactory| wishes.iter().position(|w| *w == o.kind().0);
                self.offers.sort_by_key(|o| core::cmp::Reverse(place(&**o)));
                self.desired_types = wishes;
                self.current = None;
            }
            // RFC 3748, 4.1: the packet is discarded silently, without an effect on the method.
            State::Discard => {
                self.incoming = None;
                self.discarded = true;
            }
            State::ProposeMethod => {
                self.propose_method(&mut SecureRng::from_seed(self.seed));
            }
            State::MethodRequest => {
                // RFC 3748, 4.1; RFC 5216, 3.1; RFC 5281, 9.1: a new request has a new identifier.
                self.current_id = self.current_id.wrapping_add(1);
                if let Some((kind, method)) = &mut self.current {
                    let mut data = core::mem::take(&mut self.data);
                    data.clear();
                    method.build_request(self.current_id, &mut data);
                    self.out.clear();
                    packet::emit_packet(&mut self.out, EapCode::Request, self.current_id, *kind, &data);
                    self.data = data;
                }
            }
            State::SendRequest => {
                self.incoming = None;
                self.send = true;
            }
            State::Success | State::Failure => {
                self.out.clear();
                // RFC 3748, 2, 4.2: the end is a Success for proof, else a Failure, with the response's identifier.
                packet::emit_success_or_failure(&mut self.out, state == State::Success, self.current_id);
                self.incoming = None;
                self.send = true;
            }
            State::Idle | State::Received | State::SelectAction => {}
        }
    }

    /// Starts a conversation after the peer's response to an Identity request of this identifier. Proposes the first of
    /// `offers` at once, for [`poll_transmit`](Self::poll_transmit). The context applies to every proposed method.
    #[must_use]
    pub fn new(
        mut offers: Vec<Box<dyn ServerMethodFactory>>,
        identifier: u8,
        context: EapMethodContext<'_>,
    ) -> Self {
        let EapMethodContext { rng, wall, mtu, without_extended_master_secret } = context;
        offers.reverse();
        let mut server = Self {
            state: State::SelectAction,
            offers,
            current: None,
            progress: ServerMethodState::Continue,
            current_id: identifier,
            incoming: None,
            data: Vec::new(),
            out: Vec::new(),
            send: false,
            verdict: ServerMethodResult::Ignore,
            discarded: false,
            is_end_reported: false,
            question: None,
            desired_types: Vec::new(),
            seed: [0; 32],
            wall,
            mtu,
            without_extended_master_secret,
        };
        if server.offers.len() > 1 {
            server.seed = rng.random_array();
        }
        if server.offers.is_empty() {
            server.run_automaton();
        } else {
            // The first transition is taken here, because `run_automaton` has no access to the caller's random numbers.
            server.state = State::ProposeMethod;
            server.propose_method(rng);
            server.run_automaton();
        }
        server
    }

    /// Starts the next method.
    fn propose_method(&mut self, rng: &mut SecureRng) {
        if let Some(offer) = self.offers.pop() {
            let context = EapMethodContext {
                rng,
                wall: self.wall,
                mtu: self.mtu,
                without_extended_master_secret: self.without_extended_master_secret,
            };
            self.current = Some((offer.kind(), offer.start_server_method(context)));
            self.progress = ServerMethodState::Proposed;
        }
    }

    /// Changes the identifier of the open request to that of the packet that carries it. PEAP's inner packets have no
    /// header.
    #[cfg(feature = "tls")]
    pub(crate) fn set_request_identifier(&mut self, identifier: u8) {
        self.current_id = identifier;
    }

    /// The type of the current method.
    #[must_use]
    pub fn method_type(&self) -> Option<EapType> {
        self.current.as_ref().map(|(kind, _)| *kind)
    }

    /// Takes the method's query. Without one, the method fails.
    fn take_method_query(&mut self) {
        self.question = self.current.as_mut().and_then(|(_, method)| method.take_query());
        if self.question.is_none() {
            self.verdict = ServerMethodResult::Failure;
        }
    }

    /// Answers the open query. Returns false if there is none.
    pub fn apply_answer(&mut self, answer: UserQueryAnswer) -> bool {
        let (State::Asked, Some((_, method))) = (self.state, &mut self.current) else { return false };
        self.verdict = method.apply_answer(answer);
        if self.verdict == ServerMethodResult::QueryPending {
            self.take_method_query();
        }
        self.run_automaton();
        true
    }

    /// The identity inside a tunnel as unverified octets, once received.
    #[must_use]
    pub fn identity(&self) -> Option<&[u8]> {
        self.current.as_ref()?.1.identity()
    }

    /// The inner method of a tunnel, once known.
    #[must_use]
    pub fn inner_method(&self) -> Option<InnerMethod> {
        self.current.as_ref()?.1.inner_method()
    }

    /// The reason for the failure, once failed. `None` if no method was left to propose.
    #[must_use]
    pub fn fault(&self) -> Option<ServerMethodFailure> {
        self.current.as_ref().map(|(_, method)| method.fault())
    }

    /// A description of the failure, for logs.
    #[must_use]
    pub fn fault_detail(&self) -> Option<String> {
        self.current.as_ref()?.1.fault_detail()
    }

    /// The types in the peer's last Nak (RFC 3748 §5.3.1), unchecked. Empty without a Nak.
    #[must_use]
    pub fn wanted_types(&self) -> &[u8] {
        &self.desired_types
    }

    /// True if the current method is sending a reject to the peer ([`ServerMethod::is_refusing`]).
    #[must_use]
    pub fn is_refusing(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, method)| method.is_refusing())
    }

    /// True if the current method resumed an earlier TLS session.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, method)| method.is_resumed())
    }

    /// Lets the TLS session of the successful method, if any, admit this user again
    /// ([`ServerMethod::allow_resumption`]).
    pub fn allow_resumption(&mut self, name: &[u8], credential: &CredentialDigest) {
        if let Some((_, method)) = &mut self.current {
            method.allow_resumption(name, credential);
        }
    }

    /// The peer's certificates in DER, leaf first.
    #[must_use]
    pub fn peer_certificates(&self) -> &[Vec<u8>] {
        self.current.as_ref().map_or(&[], |(_, method)| method.peer_certificates())
    }

    /// True if this packet would cost public-key operations ([`ServerMethod::is_costly`]).
    #[must_use]
    pub fn is_costly(&self, packet: &[u8]) -> bool {
        let Ok(p) = EapPacket::parse(packet) else { return false };
        let (EapCode::Response, State::Idle, Some((kind, method))) = (p.code(), self.state, &self.current)
        else {
            return false;
        };
        p.identifier() == self.current_id && p.kind() == Some(*kind) && method.is_costly(p.data())
    }

    /// The approximate memory of the conversation, octets.
    #[must_use]
    pub fn memory_octets(&self) -> usize {
        let method = self.current.as_ref().map_or(0, |(_, method)| method.memory_octets());
        size_of::<Self>()
            + self.data.capacity()
            + self.out.capacity()
            + self.desired_types.capacity()
            + method
    }

    /// Takes a packet from the peer. Returns false if it is discarded. All packets are discarded while a query is open;
    /// the peer retransmits.
    pub fn handle_packet(&mut self, packet: &[u8]) -> bool {
        let Ok(p) = EapPacket::parse(packet) else { return false };
        let (EapCode::Response, Some(kind), State::Idle) = (p.code(), p.kind(), self.state) else {
            return false;
        };
        self.incoming = Some((p.identifier(), kind));
        self.data.clear();
        self.data.extend_from_slice(p.data());
        self.discarded = false;
        self.run_automaton();
        !self.discarded
    }

    /// The peer's open request. After a discarded packet, some authenticators need it again (RFC 4072 §2.4, RFC 3579
    /// §2.2).
    #[must_use]
    pub fn open_request(&self) -> Option<&[u8]> {
        matches!(self.state, State::Idle | State::Asked).then_some(&self.out[..])
    }

    /// Clears `out` and puts the pending packet into it. Returns false if there is none.
    #[must_use]
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        out.clear();
        if !core::mem::take(&mut self.send) {
            return false;
        }
        out.extend_from_slice(&self.out);
        true
    }

    /// Returns each query to the host once, and the conversation's end once.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<EapServerEvent> {
        if let Some(question) = self.question.take() {
            return Some(EapServerEvent::Query(question));
        }
        if core::mem::replace(
            &mut self.is_end_reported,
            matches!(self.state, State::Success | State::Failure),
        ) {
            return None;
        }
        let method = self.current.as_ref().map(|(kind, _)| *kind);
        match (self.state, &self.current) {
            (State::Success, Some((kind, method))) => {
                Some(EapServerEvent::Success { method: *kind, keys: method.keys() })
            }
            (State::Failure, _) => Some(EapServerEvent::Failure { method }),
            _ => None,
        }
    }

    /// The next piece of work done since the last poll.
    #[must_use]
    pub fn poll_work(&mut self) -> Option<WorkRecord> {
        self.current.as_mut()?.1.poll_work()
    }
}

#[cfg(test)]
mod tests;

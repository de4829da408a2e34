//! The backend authenticator (RFC 4137 §6, figure 5): the automaton that an AAA server runs for each
//! conversation. It has no timer: its AAA client repeats what is lost.

use crate::EapKeys;
use crate::method::{
    CredentialDigest, InnerMethod, MethodContext, MethodFault, ServerMethod, ServerOffer, ServerVerdict,
    UserAnswer, UserQuery,
};
use crate::packet::{self, EapCode, EapPacket, EapType};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::{SecureRng, WallTime, WorkRecord, automaton, names};

/// What a conversation has to say: what it has to know, and how it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EapServerEvent {
    /// The method asks its host: nothing goes on until [`EapServer::apply_answer`].
    Query(UserQuery),
    /// The peer is who it says; the packet to send is a Success.
    Success {
        /// How it proved that.
        method: EapType,
        /// The method's keys.
        keys: Option<EapKeys>,
    },
    /// It is not, or no method is left; the packet to send is a Failure.
    Failure {
        /// The method that it failed by; `None` where there was none in common.
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
        Asks = "a question of the method is open",
        Answered = "it is answered",
        Ended = "methodState == END",
        DecidesFailure = "decision == FAILURE",
        DecidesSuccess = "decision == SUCCESS",
    }
}

automaton! {
    /// Figure 5. What differs:
    ///
    /// - INITIALIZE and PICK_UP_METHOD are [`EapServer::new`]: the peer's Identity, which the caller has read, is picked
    ///   up and done with, and no other method is. DISABLED is their owner's, who drops a conversation.
    /// - RECEIVED knows no EXPANDED_NAK: it answers a request of type 254 only (RFC 3748 §5.3.2, which goes before
    ///   RFC 4137, §3.3), and none is proposed here.
    /// - INTEGRITY_CHECK asks the method for `m.check` and `m.process` at once.
    /// - ASKED is ours: METHOD_RESPONSE's `m.process` waits there for what the host knows (§8.1 foresees that it may
    ///   block).
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
    Failure { ! ends: "the peer is turned away"; }
    Success { ! ends: "the peer is let in"; }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ServerMethodState {
    Proposed,
    Continue,
    End(bool),
}

/// One conversation of a server.
#[derive(Debug)]
pub struct EapServer {
    state: State,
    /// Methods that are still to be proposed, the next one last.
    offers: Vec<Box<dyn ServerOffer>>,
    current: Option<(EapType, Box<dyn ServerMethod>)>,
    progress: ServerMethodState,
    current_id: u8,
    /// What came: identifier, type and data of a response.
    incoming: Option<(u8, EapType)>,
    data: Vec<u8>,
    out: Vec<u8>,
    send: bool,
    verdict: ServerVerdict,
    discarded: bool,
    is_end_reported: bool,
    /// What the host has still to be asked.
    question: Option<UserQuery>,
    /// The types that the peer wished for when it turned down what was proposed.
    desired_types: Vec<u8>,
    /// Of the chance of methods that are proposed later.
    seed: [u8; 32],
    wall: WallTime,
    mtu: Option<usize>,
    without_extended_master_secret: bool,
}

impl EapServer {
    /// Takes arrows until none fits.
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
            Condition::Naks => {
                self.progress == ServerMethodState::Proposed
                    && response.is_some_and(|(_, kind)| kind == EapType::NAK)
            }
            Condition::Answers => {
                response.is_some_and(|(_, kind)| self.current.as_ref().is_some_and(|(c, _)| *c == kind))
            }
            Condition::Ignored => self.verdict == ServerVerdict::Ignore,
            Condition::Asks => self.verdict == ServerVerdict::QueryPending,
            Condition::Answered => self.verdict != ServerVerdict::QueryPending,
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
                    None => ServerVerdict::Ignore,
                };
            }
            State::Asked => self.take_method_query(),
            State::MethodResponse => {
                self.progress = match self.verdict {
                    ServerVerdict::Success => ServerMethodState::End(true),
                    ServerVerdict::Failure => ServerMethodState::End(false),
                    ServerVerdict::Continue | ServerVerdict::Ignore | ServerVerdict::QueryPending => {
                        ServerMethodState::Continue
                    }
                };
            }
            State::Nak => {
                // The peer's wishes, in its order, decide among what is left.
                let wishes = core::mem::take(&mut self.data);
                self.offers.retain(|o| wishes.contains(&o.kind().0));
                let place = |o: &dyn ServerOffer| wishes.iter().position(|w| *w == o.kind().0);
                self.offers.sort_by_key(|o| core::cmp::Reverse(place(&**o)));
                self.desired_types = wishes;
                self.current = None;
            }
            State::Discard => {
                self.incoming = None;
                self.discarded = true;
            }
            State::ProposeMethod => {
                self.propose_method(&mut SecureRng::from_seed(self.seed));
            }
            State::MethodRequest => {
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
                packet::emit_end(&mut self.out, state == State::Success, self.current_id);
                self.incoming = None;
                self.send = true;
            }
            State::Idle | State::Received | State::SelectAction => {}
        }
    }

    /// A conversation that begins with the peer's response to an Identity request of this identifier, which
    /// the caller has read. The first of `offers` is proposed at once: poll for it. The context is that of
    /// every method proposed.
    #[must_use]
    pub fn new(mut offers: Vec<Box<dyn ServerOffer>>, identifier: u8, context: MethodContext<'_>) -> Self {
        let MethodContext { rng, wall, mtu, without_extended_master_secret } = context;
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
            verdict: ServerVerdict::Ignore,
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
            // The first arrow, taken here, where the caller's stream is at hand.
            server.state = State::ProposeMethod;
            server.propose_method(rng);
            server.run_automaton();
        }
        server
    }

    /// Begins the next method.
    fn propose_method(&mut self, rng: &mut SecureRng) {
        if let Some(offer) = self.offers.pop() {
            let context = MethodContext {
                rng,
                wall: self.wall,
                mtu: self.mtu,
                without_extended_master_secret: self.without_extended_master_secret,
            };
            self.current = Some((offer.kind(), offer.start_server_method(context)));
            self.progress = ServerMethodState::Proposed;
        }
    }

    /// Gives the request that is out another identifier: that of the packet which carries it, where it travels
    /// without a header of its own (PEAP).
    #[cfg(feature = "tls")]
    pub(crate) fn set_request_identifier(&mut self, identifier: u8) {
        self.current_id = identifier;
    }

    /// The type of the method that runs.
    #[must_use]
    pub fn method_type(&self) -> Option<EapType> {
        self.current.as_ref().map(|(kind, _)| *kind)
    }

    /// Takes what the method has to ask; one without a question has failed.
    fn take_method_query(&mut self) {
        self.question = self.current.as_mut().and_then(|(_, method)| method.take_query());
        if self.question.is_none() {
            self.verdict = ServerVerdict::Failure;
        }
    }

    /// Takes the answer to the question that is open; false where none is.
    pub fn apply_answer(&mut self, answer: UserAnswer) -> bool {
        let (State::Asked, Some((_, method))) = (self.state, &mut self.current) else { return false };
        self.verdict = method.apply_answer(answer);
        if self.verdict == ServerVerdict::QueryPending {
            self.take_method_query();
        }
        self.run_automaton();
        true
    }

    /// Whom the peer says it is inside a tunnel, once it has said so; octets as they came.
    #[must_use]
    pub fn identity(&self) -> Option<&[u8]> {
        self.current.as_ref()?.1.identity()
    }

    /// The method inside a tunnel, once it is known.
    #[must_use]
    pub fn inner_method(&self) -> Option<InnerMethod> {
        self.current.as_ref()?.1.inner_method()
    }

    /// Why the conversation failed, once it has: of its method; `None` where none was left to propose.
    #[must_use]
    pub fn fault(&self) -> Option<MethodFault> {
        self.current.as_ref().map(|(_, method)| method.fault())
    }

    /// What is known of that besides, for people.
    #[must_use]
    pub fn fault_detail(&self) -> Option<String> {
        self.current.as_ref()?.1.fault_detail()
    }

    /// The types that the peer wished for when it last turned down what was proposed (RFC 3748 §5.3.1), as they came;
    /// empty where it never did.
    #[must_use]
    pub fn wanted_types(&self) -> &[u8] {
        &self.desired_types
    }

    /// Whether the method that runs is telling the peer that it did not convince ([`ServerMethod::is_refusing`]).
    #[must_use]
    pub fn is_refusing(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, method)| method.is_refusing())
    }

    /// Whether the method that runs took up an earlier TLS session.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, method)| method.is_resumed())
    }

    /// Has the method, which has succeeded, admit this user again by its TLS session, where it has one
    /// ([`ServerMethod::allow_resumption`]).
    pub fn allow_resumption(&mut self, name: &[u8], credential: &CredentialDigest) {
        if let Some((_, method)) = &mut self.current {
            method.allow_resumption(name, credential);
        }
    }

    /// The certificates that the peer showed, in DER, the leaf first.
    #[must_use]
    pub fn peer_certificates(&self) -> &[Vec<u8>] {
        self.current.as_ref().map_or(&[], |(_, method)| method.peer_certificates())
    }

    /// Whether taking this packet would cost public-key operations ([`ServerMethod::is_costly`]).
    #[must_use]
    pub fn is_costly(&self, packet: &[u8]) -> bool {
        let Ok(p) = EapPacket::parse(packet) else { return false };
        let (EapCode::Response, State::Idle, Some((kind, method))) = (p.code(), self.state, &self.current)
        else {
            return false;
        };
        p.identifier() == self.current_id && p.kind() == Some(*kind) && method.is_costly(p.data())
    }

    /// About how many octets of memory the conversation holds now.
    #[must_use]
    pub fn memory_octets(&self) -> usize {
        let method = self.current.as_ref().map_or(0, |(_, method)| method.memory_octets());
        size_of::<Self>()
            + self.data.capacity()
            + self.out.capacity()
            + self.desired_types.capacity()
            + method
    }

    /// Takes a packet from the peer; false where it was discarded. While a question is open every packet is:
    /// the peer repeats it.
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

    /// The request that the peer has still to answer: to be sent again where what the peer sent was passed over, and its
    /// authenticator wants to be told so (RFC 4072 §2.4, RFC 3579 §2.2).
    #[must_use]
    pub fn open_request(&self) -> Option<&[u8]> {
        matches!(self.state, State::Idle | State::Asked).then_some(&self.out[..])
    }

    /// Puts the packet that is to be sent into `out`, which is cleared; false when there is none.
    #[must_use]
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        out.clear();
        if !core::mem::take(&mut self.send) {
            return false;
        }
        out.extend_from_slice(&self.out);
        true
    }

    /// What the host is asked, once for each question; how the conversation ended, once it has.
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

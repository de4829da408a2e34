//! The backend authenticator (RFC 4137 §6, figure 5): the automaton that an AAA server runs for each
//! conversation. It has no timer: its AAA client repeats what is lost.

use crate::Keys;
use crate::method::{
    Answer, Context, Credential, Fault, Inner, Question, ServerMethod, ServerOffer, ServerVerdict,
};
use crate::packet::{self, Code, Packet, Type};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::{SecureRng, WallTime, Work, automaton, names};

/// What a conversation has to say: what it has to know, and how it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The method asks its host: nothing goes on until [`Server::answer`].
    Ask(Question),
    /// The peer is who it says; the packet to send is a Success.
    Success {
        /// How it proved that.
        method: Type,
        /// The method's keys.
        keys: Option<Keys>,
    },
    /// It is not, or no method is left; the packet to send is a Failure.
    Failure {
        /// The method that it failed by; `None` where there was none in common.
        method: Option<Type>,
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
    /// - INITIALIZE and PICK_UP_METHOD are [`Server::new`]: the peer's Identity, which the caller has read, is picked
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
enum Progress {
    Proposed,
    Continue,
    End(bool),
}

/// One conversation of a server.
#[derive(Debug)]
pub struct Server {
    state: State,
    /// Methods that are still to be proposed, the next one last.
    offers: Vec<Box<dyn ServerOffer>>,
    current: Option<(Type, Box<dyn ServerMethod>)>,
    progress: Progress,
    current_id: u8,
    /// What came: identifier, type and data of a response.
    incoming: Option<(u8, Type)>,
    data: Vec<u8>,
    out: Vec<u8>,
    send: bool,
    verdict: ServerVerdict,
    discarded: bool,
    told: bool,
    /// What the host has still to be asked.
    question: Option<Question>,
    /// The types that the peer wished for when it turned down what was proposed.
    wishes: Vec<u8>,
    /// Of the chance of methods that are proposed later.
    seed: [u8; 32],
    wall: WallTime,
    mtu: Option<usize>,
    without_extended_master_secret: bool,
}

impl Server {
    /// Takes arrows until none fits.
    fn run(&mut self) {
        while let Some(arrow) = Backend::step(self.state, |condition| self.holds(condition)) {
            self.enter(arrow.to);
        }
    }

    #[inline]
    fn holds(&self, condition: Condition) -> bool {
        let response = self.incoming.filter(|(id, _)| *id == self.current_id);
        match condition {
            Condition::Response => self.incoming.is_some(),
            Condition::Naks => {
                self.progress == Progress::Proposed && response.is_some_and(|(_, kind)| kind == Type::NAK)
            }
            Condition::Answers => {
                response.is_some_and(|(_, kind)| self.current.as_ref().is_some_and(|(c, _)| *c == kind))
            }
            Condition::Ignored => self.verdict == ServerVerdict::Ignore,
            Condition::Asks => self.verdict == ServerVerdict::Ask,
            Condition::Answered => self.verdict != ServerVerdict::Ask,
            Condition::Ended => matches!(self.progress, Progress::End(_)),
            Condition::DecidesFailure => match self.progress {
                Progress::End(success) => !success,
                Progress::Proposed | Progress::Continue => self.offers.is_empty(),
            },
            Condition::DecidesSuccess => self.progress == Progress::End(true),
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        match state {
            State::IntegrityCheck => {
                self.verdict = match &mut self.current {
                    Some((_, method)) => method.response(self.current_id, &self.data),
                    None => ServerVerdict::Ignore,
                };
            }
            State::Asked => self.ask(),
            State::MethodResponse => {
                self.progress = match self.verdict {
                    ServerVerdict::Success => Progress::End(true),
                    ServerVerdict::Failure => Progress::End(false),
                    ServerVerdict::Continue | ServerVerdict::Ignore | ServerVerdict::Ask => {
                        Progress::Continue
                    }
                };
            }
            State::Nak => {
                // The peer's wishes, in its order, decide among what is left.
                let wishes = core::mem::take(&mut self.data);
                self.offers.retain(|o| wishes.contains(&o.kind().0));
                let place = |o: &dyn ServerOffer| wishes.iter().position(|w| *w == o.kind().0);
                self.offers.sort_by_key(|o| core::cmp::Reverse(place(&**o)));
                self.wishes = wishes;
                self.current = None;
            }
            State::Discard => {
                self.incoming = None;
                self.discarded = true;
            }
            State::ProposeMethod => {
                self.propose(&mut SecureRng::from_seed(self.seed));
            }
            State::MethodRequest => {
                self.current_id = self.current_id.wrapping_add(1);
                if let Some((kind, method)) = &mut self.current {
                    let mut data = core::mem::take(&mut self.data);
                    data.clear();
                    method.build(self.current_id, &mut data);
                    self.out.clear();
                    packet::emit(&mut self.out, Code::Request, self.current_id, *kind, &data);
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
    pub fn new(mut offers: Vec<Box<dyn ServerOffer>>, identifier: u8, context: Context<'_>) -> Self {
        let Context { rng, wall, mtu, without_extended_master_secret } = context;
        offers.reverse();
        let mut server = Self {
            state: State::SelectAction,
            offers,
            current: None,
            progress: Progress::Continue,
            current_id: identifier,
            incoming: None,
            data: Vec::new(),
            out: Vec::new(),
            send: false,
            verdict: ServerVerdict::Ignore,
            discarded: false,
            told: false,
            question: None,
            wishes: Vec::new(),
            seed: [0; 32],
            wall,
            mtu,
            without_extended_master_secret,
        };
        if server.offers.len() > 1 {
            server.seed = rng.array();
        }
        if server.offers.is_empty() {
            server.run();
        } else {
            // The first arrow, taken here, where the caller's stream is at hand.
            server.state = State::ProposeMethod;
            server.propose(rng);
            server.run();
        }
        server
    }

    /// Begins the next method.
    fn propose(&mut self, rng: &mut SecureRng) {
        if let Some(offer) = self.offers.pop() {
            let context = Context {
                rng,
                wall: self.wall,
                mtu: self.mtu,
                without_extended_master_secret: self.without_extended_master_secret,
            };
            self.current = Some((offer.kind(), offer.begin(context)));
            self.progress = Progress::Proposed;
        }
    }

    /// Gives the request that is out another identifier: that of the packet which carries it, where it travels
    /// without a header of its own (PEAP).
    #[cfg(feature = "tls")]
    pub(crate) fn renumber(&mut self, identifier: u8) {
        self.current_id = identifier;
    }

    /// The type of the method that runs.
    #[must_use]
    pub fn method(&self) -> Option<Type> {
        self.current.as_ref().map(|(kind, _)| *kind)
    }

    /// Takes what the method has to ask; one without a question has failed.
    fn ask(&mut self) {
        self.question = self.current.as_mut().and_then(|(_, method)| method.question());
        if self.question.is_none() {
            self.verdict = ServerVerdict::Failure;
        }
    }

    /// Takes the answer to the question that is open; false where none is.
    pub fn answer(&mut self, answer: Answer) -> bool {
        let (State::Asked, Some((_, method))) = (self.state, &mut self.current) else { return false };
        self.verdict = method.answer(answer);
        if self.verdict == ServerVerdict::Ask {
            self.ask();
        }
        self.run();
        true
    }

    /// Whom the peer says it is inside a tunnel, once it has said so; octets as they came.
    #[must_use]
    pub fn identity(&self) -> Option<&[u8]> {
        self.current.as_ref()?.1.identity()
    }

    /// The method inside a tunnel, once it is known.
    #[must_use]
    pub fn inner(&self) -> Option<Inner> {
        self.current.as_ref()?.1.inner()
    }

    /// Why the conversation failed, once it has: of its method; `None` where none was left to propose.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        self.current.as_ref().map(|(_, method)| method.fault())
    }

    /// What is known of that besides, for people.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        self.current.as_ref()?.1.detail()
    }

    /// The types that the peer wished for when it last turned down what was proposed (RFC 3748 §5.3.1), as they came;
    /// empty where it never did.
    #[must_use]
    pub fn wishes(&self) -> &[u8] {
        &self.wishes
    }

    /// Whether the method that runs is telling the peer that it did not convince ([`ServerMethod::refuses`]).
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, method)| method.refuses())
    }

    /// Whether the method that runs took up an earlier TLS session.
    #[must_use]
    pub fn resumed(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, method)| method.resumed())
    }

    /// Has the method, which has succeeded, admit this user again by its TLS session, where it has one
    /// ([`ServerMethod::remember`]).
    pub fn remember(&mut self, name: &[u8], credential: &Credential) {
        if let Some((_, method)) = &mut self.current {
            method.remember(name, credential);
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
        let Ok(p) = Packet::parse(packet) else { return false };
        let (Code::Response, State::Idle, Some((kind, method))) = (p.code(), self.state, &self.current)
        else {
            return false;
        };
        p.identifier() == self.current_id && p.kind() == Some(*kind) && method.is_costly(p.data())
    }

    /// About how many octets of memory the conversation holds now.
    #[must_use]
    pub fn memory(&self) -> usize {
        let method = self.current.as_ref().map_or(0, |(_, method)| method.memory());
        size_of::<Self>() + self.data.capacity() + self.out.capacity() + self.wishes.capacity() + method
    }

    /// Takes a packet from the peer; false where it was discarded. While a question is open every packet is:
    /// the peer repeats it.
    pub fn handle(&mut self, packet: &[u8]) -> bool {
        let Ok(p) = Packet::parse(packet) else { return false };
        let (Code::Response, Some(kind), State::Idle) = (p.code(), p.kind(), self.state) else {
            return false;
        };
        self.incoming = Some((p.identifier(), kind));
        self.data.clear();
        self.data.extend_from_slice(p.data());
        self.discarded = false;
        self.run();
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
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(question) = self.question.take() {
            return Some(Event::Ask(question));
        }
        if core::mem::replace(&mut self.told, matches!(self.state, State::Success | State::Failure)) {
            return None;
        }
        let method = self.current.as_ref().map(|(kind, _)| *kind);
        match (self.state, &self.current) {
            (State::Success, Some((kind, method))) => {
                Some(Event::Success { method: *kind, keys: method.keys() })
            }
            (State::Failure, _) => Some(Event::Failure { method }),
            _ => None,
        }
    }

    /// The next piece of work done since the last poll.
    #[must_use]
    pub fn poll_work(&mut self) -> Option<Work> {
        self.current.as_mut()?.1.poll_work()
    }
}

#[cfg(test)]
mod tests;

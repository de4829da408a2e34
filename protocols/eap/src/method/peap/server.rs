//! Phase 2 of PEAP's server: the identity, a method, the result.

use super::super::tunnel::{MAX_NAME, ServerPhase, Step, Tunnel, offers};
use super::super::{Answer, Inner, Question, Remembered};
use super::tlv::{self, Tlvs};
use crate::packet::{self, Code, HEADER, Packet, Type};
use crate::server::{Event, Server};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::Work;

#[derive(Debug)]
enum State {
    /// Nothing was asked yet.
    Start,
    /// The identity was asked for.
    Identity,
    /// The host is asked who that is.
    User,
    /// The host is asked whether a session may be resumed.
    Resume,
    /// A method runs.
    Method(Box<Server>),
    /// The result was told.
    Result(bool),
}

/// Phase 2 of one run.
#[derive(Debug)]
pub(crate) struct Phase {
    kinds: Arc<[Type]>,
    state: State,
    name: Option<Vec<u8>>,
    inner: Option<Inner>,
    question: Option<Question>,
    /// Whatever the peer proves, it is not let in.
    refused: bool,
}

impl Phase {
    pub(crate) fn new(kinds: Arc<[Type]>) -> Self {
        Self { kinds, state: State::Start, name: None, inner: None, question: None, refused: false }
    }

    fn ask_identity(&mut self, out: &mut Vec<u8>) -> Step {
        self.state = State::Identity;
        out.push(Type::IDENTITY.0);
        Step::Say
    }

    fn ask_user(&mut self, name: &[u8]) -> Step {
        self.name = Some(name.to_vec());
        self.question = Some(Question::User { name: name.to_vec() });
        self.state = State::User;
        Step::Ask
    }

    fn result(&mut self, success: bool, identifier: u8, out: &mut Vec<u8>) -> Step {
        self.state = State::Result(success);
        tlv::emit_result(out, Code::Request, identifier.wrapping_add(1), success);
        Step::Say
    }

    /// Takes what the method inside has to say.
    fn drain(&mut self, tunnel: &Tunnel<'_>, out: &mut Vec<u8>) -> Step {
        let State::Method(server) = &mut self.state else { return Step::Failure };
        self.inner = server.method().map(Inner::Eap);
        match server.poll_event() {
            Some(Event::Ask(question)) => {
                self.question = Some(question);
                Step::Ask
            }
            Some(Event::Success { .. }) => self.result(!self.refused, tunnel.identifier, out),
            Some(Event::Failure { .. }) => self.result(false, tunnel.identifier, out),
            None => {
                let mut request = Vec::new();
                if !server.poll_transmit(&mut request) {
                    return Step::Ignore;
                }
                out.extend_from_slice(request.get(HEADER..).unwrap_or_default());
                Step::Say
            }
        }
    }
}

impl ServerPhase for Phase {
    fn established(&mut self, resumed: Option<Remembered>, tunnel: Tunnel<'_>, out: &mut Vec<u8>) -> Step {
        match resumed {
            Some(remembered) => {
                self.inner = remembered.inner;
                self.name = Some(remembered.name.clone());
                self.question = Some(Question::Resume(remembered));
                self.state = State::Resume;
                Step::Ask
            }
            None if tunnel.link.sending() => Step::Wait,
            None => self.ask_identity(out),
        }
    }

    fn nothing(&mut self, _: Tunnel<'_>, out: &mut Vec<u8>) -> Step {
        match self.state {
            State::Start => self.ask_identity(out),
            _ => Step::Ignore,
        }
    }

    fn data(&mut self, data: &[u8], tunnel: Tunnel<'_>, out: &mut Vec<u8>) -> Step {
        match &mut self.state {
            State::Identity => match identity(data) {
                Some(name) if name.len() <= MAX_NAME => {
                    let name = name.to_vec();
                    self.ask_user(&name)
                }
                _ => self.result(false, tunnel.identifier, out),
            },
            State::Method(server) => {
                let Some((kind, data)) = data.split_first() else { return Step::Ignore };
                let mut response = Vec::new();
                packet::emit(&mut response, Code::Response, tunnel.asked, Type(*kind), data);
                server.renumber(tunnel.asked);
                if !server.handle(&response) {
                    return Step::Ignore;
                }
                self.drain(&tunnel, out)
            }
            State::Result(success) => {
                let answer = tlv::packet(data, Code::Response).and_then(|p| tlv::read(p.data()));
                if *success && answer == Some(Tlvs::Result(true)) { Step::Success } else { Step::Failure }
            }
            State::Start | State::User | State::Resume => Step::Failure,
        }
    }

    fn answer(&mut self, answer: Answer, mut tunnel: Tunnel<'_>, out: &mut Vec<u8>) -> Step {
        self.refused = matches!(answer, Answer::Refused(..)) || self.refused;
        let answer = match answer {
            Answer::Refused(secret, Some(only)) => Answer::Restricted(secret, only),
            Answer::Refused(secret, None) => Answer::User(Some(secret)),
            answer => answer,
        };
        let answer = match answer {
            Answer::Restricted(secret, only) => {
                self.kinds = self.kinds.iter().copied().filter(|k| only.contains(&Inner::Eap(*k))).collect();
                Answer::User(Some(secret))
            }
            answer => answer,
        };
        match (&mut self.state, answer) {
            (State::Resume, Answer::Resume(true)) => self.result(true, tunnel.identifier, out),
            (State::User, Answer::User(Some(secret))) => {
                let offers = offers(&self.kinds, &secret);
                let identifier = tunnel.identifier;
                self.state = State::Method(Box::new(Server::new(offers, identifier, tunnel.context())));
                self.drain(&tunnel, out)
            }
            (State::Method(server), answer) => {
                server.answer(answer);
                self.drain(&tunnel, out)
            }
            _ => self.result(false, tunnel.identifier, out),
        }
    }

    fn question(&mut self) -> Option<Question> {
        self.question.take()
    }

    fn identity(&self) -> Option<&[u8]> {
        self.name.as_deref()
    }

    fn inner(&self) -> Option<Inner> {
        self.inner
    }

    fn poll_work(&mut self) -> Option<Work> {
        match &mut self.state {
            State::Method(server) => server.poll_work(),
            _ => None,
        }
    }
}

/// The name in a response to the Identity request, with a header or without.
fn identity(data: &[u8]) -> Option<&[u8]> {
    if let [first, name @ ..] = data
        && Type(*first) == Type::IDENTITY
    {
        return Some(name);
    }
    let p = Packet::parse(data).ok()?;
    (p.code() == Code::Response && p.kind() == Some(Type::IDENTITY)).then(|| p.data())
}

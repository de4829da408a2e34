//! Phase 2 of PEAP's server: the identity, a method, the result.

use super::super::tunnel::{MAX_NAME, ServerPhase, Step, Tunnel, inner_fault, offers};
use super::super::{Answer, Fault, Inner, Question, Remembered};
use super::binding::{Compound, Cryptobinding, Subtype};
use super::tlv::{self, Tlvs};
use crate::Keys;
use crate::packet::{self, Code, HEADER, Packet, Type};
use crate::server::{Event, Server};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::Work;
use usher_crypto::fault::TlsFault;

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
    /// The result was told, where it is good with what the tunnel is bound to.
    Result(Result<Option<Compound>, Refused>),
}

/// The result is not good.
#[derive(Clone, Copy, Debug)]
struct Refused;

/// Phase 2 of one run.
#[derive(Debug)]
pub(crate) struct Phase {
    kinds: Arc<[Type]>,
    cryptobinding: Cryptobinding,
    /// What the keys are made of, once both ends have shown that they know it.
    bound: Option<Compound>,
    state: State,
    name: Option<Vec<u8>>,
    inner: Option<Inner>,
    question: Option<Question>,
    /// Whatever the peer proves, it is not let in.
    refused: bool,
    /// Why it is not let in, as soon as that is so.
    fault: Fault,
}

impl Phase {
    pub(crate) fn new(kinds: Arc<[Type]>, cryptobinding: Cryptobinding) -> Self {
        Self {
            kinds,
            cryptobinding,
            bound: None,
            state: State::Start,
            name: None,
            inner: None,
            question: None,
            refused: false,
            fault: Fault::Rules,
        }
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

    fn refuse(&mut self, fault: Fault, tunnel: &Tunnel<'_>, out: &mut Vec<u8>) -> Step {
        self.fault = fault;
        self.state = State::Result(Err(Refused));
        tlv::emit_result(out, Code::Request, tunnel.identifier.wrapping_add(1), false, None);
        Step::Say
    }

    /// Tells that the method inside, whose keys these are, has succeeded, or that a session is resumed.
    fn succeed(
        &mut self,
        tunnel: &mut Tunnel<'_>,
        compound: impl FnOnce(&Keys) -> Compound,
        out: &mut Vec<u8>,
    ) -> Step {
        let compound = match (self.cryptobinding, tunnel.conn.keys(Type::PEAP)) {
            (Cryptobinding::Off, _) => None,
            (_, Some(keys)) => Some(compound(&keys)),
            (_, None) => return self.refuse(Fault::Tls(TlsFault::Internal), tunnel, out),
        };
        let value = compound.as_ref().map(|c| c.value(Subtype::Request, &tunnel.rng.array()));
        let identifier = tunnel.identifier.wrapping_add(1);
        tlv::emit_result(out, Code::Request, identifier, true, value.as_ref());
        self.state = State::Result(Ok(compound));
        Step::Say
    }

    /// What the peer says to the result.
    fn told(&mut self, data: &[u8]) -> Step {
        let State::Result(Ok(compound)) = &mut self.state else { return Step::Failure };
        let answer = tlv::packet(data, Code::Response).and_then(|p| tlv::read(p.data()));
        let Some(Tlvs::Known { result: Some(true), binding }) = answer else { return Step::Failure };
        match (compound.take(), binding) {
            (Some(compound), Some(value)) => match compound.verify(Subtype::Response, &value) {
                Some(_) => self.bound = Some(compound),
                None => {
                    self.fault = Fault::Binding;
                    return Step::Failure;
                }
            },
            (Some(_), None) if self.cryptobinding == Cryptobinding::Required => {
                self.fault = Fault::Binding;
                return Step::Failure;
            }
            // A peer need not bind, and one that binds what was not offered binds nothing.
            (_, _) => {}
        }
        Step::Success
    }

    /// Takes what the method inside has to say.
    fn drain(&mut self, tunnel: &mut Tunnel<'_>, out: &mut Vec<u8>) -> Step {
        let State::Method(server) = &mut self.state else { return Step::Failure };
        self.inner = server.method().map(Inner::Eap);
        match server.poll_event() {
            Some(Event::Ask(question)) => {
                self.question = Some(question);
                Step::Ask
            }
            Some(Event::Success { .. }) if self.refused => self.refuse(Fault::Host, tunnel, out),
            Some(Event::Success { keys, .. }) => {
                self.succeed(tunnel, |outer| Compound::new(outer, keys.as_ref()), out)
            }
            Some(Event::Failure { .. }) => {
                let fault = inner_fault(server, &self.kinds);
                self.refuse(fault, tunnel, out)
            }
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
            None if tunnel.conn.sending() => Step::Wait,
            None => self.ask_identity(out),
        }
    }

    fn nothing(&mut self, _: Tunnel<'_>, out: &mut Vec<u8>) -> Step {
        match self.state {
            State::Start => self.ask_identity(out),
            _ => Step::Ignore,
        }
    }

    fn data(&mut self, data: &[u8], mut tunnel: Tunnel<'_>, out: &mut Vec<u8>) -> Step {
        match &mut self.state {
            State::Identity => match identity(data) {
                Some(name) if name.len() <= MAX_NAME => {
                    let name = name.to_vec();
                    self.ask_user(&name)
                }
                _ => self.refuse(Fault::Rules, &tunnel, out),
            },
            State::Method(server) => {
                let Some((kind, data)) = data.split_first() else { return Step::Ignore };
                let mut response = Vec::new();
                packet::emit(&mut response, Code::Response, tunnel.asked, Type(*kind), data);
                server.renumber(tunnel.asked);
                if !server.handle(&response) {
                    return Step::Ignore;
                }
                self.drain(&mut tunnel, out)
            }
            State::Result(_) => self.told(data),
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
            (State::Resume, Answer::Resume(true)) => self.succeed(&mut tunnel, Compound::resumed, out),
            (State::User, Answer::User(Some(secret))) => {
                let offers = offers(&self.kinds, &secret);
                let identifier = tunnel.identifier;
                self.state = State::Method(Box::new(Server::new(offers, identifier, tunnel.context())));
                self.drain(&mut tunnel, out)
            }
            (State::Method(server), answer) => {
                server.answer(answer);
                self.drain(&mut tunnel, out)
            }
            _ => self.refuse(Fault::Host, &tunnel, out),
        }
    }

    fn fault(&self) -> Fault {
        match &self.state {
            State::Method(server) if server.refuses() => inner_fault(server, &self.kinds),
            _ => self.fault,
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

    fn refuses(&self) -> bool {
        match &self.state {
            State::Result(result) => result.is_err(),
            State::Method(server) => server.refuses(),
            State::Start | State::Identity | State::User | State::Resume => false,
        }
    }

    fn keys(&self, tunnel: Keys) -> Keys {
        match &self.bound {
            Some(compound) => compound.keys(tunnel),
            None => tunnel,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_with_the_header_of_eap_or_without() {
        let packet = |code, kind| {
            let mut out = Vec::new();
            packet::emit(&mut out, code, 7, kind, b"anna");
            out
        };
        assert_eq!(identity(b"\x01anna"), Some(&b"anna"[..]));
        assert_eq!(identity(&packet(Code::Response, Type::IDENTITY)), Some(&b"anna"[..]));
        assert_eq!(identity(&packet(Code::Response, Type::NAK)), None);
        // A request begins as the answer without a header does: what follows is a name.
        assert_eq!(identity(b"\x04anna"), None);
        assert_eq!(identity(b""), None);
    }
}

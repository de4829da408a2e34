//! Phase 2 of EAP-TTLS's server.

use super::super::tunnel::{MAX_NAME, ServerPhase, Step, Tunnel, inner_fault, offers};
use super::super::{Answer, Fault, Inner, Question, Remembered, UserSecret};
use super::avp::{self, Avp, Code};
use super::{CHALLENGE, SHORT_CHALLENGE, challenge};
use crate::packet::{self, Packet, Type};
use crate::server::{Event, Server};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::Work;
use usher_crypto::Key;
use usher_crypto::digest::{equal, md5};
use usher_crypto::legacy::mschap;

/// What the peer brings to prove who it is.
enum Proof {
    Pap(Key),
    Chap {
        identifier: u8,
        challenge: [u8; CHALLENGE],
        response: [u8; 16],
    },
    MsChap {
        challenge: [u8; SHORT_CHALLENGE],
        response: [u8; 24],
    },
    MsChapV2 {
        identifier: u8,
        challenge: [u8; CHALLENGE],
        peer: [u8; CHALLENGE],
        response: [u8; 24],
    },
    /// An identity of EAP, in a response of this identifier.
    Eap(u8),
}

impl Proof {
    const fn is(&self, inner: Inner) -> bool {
        matches!(
            (self, inner),
            (Self::Pap(_), Inner::Pap)
                | (Self::Chap { .. }, Inner::Chap)
                | (Self::MsChap { .. }, Inner::MsChap)
                | (Self::MsChapV2 { .. }, Inner::MsChapV2)
                | (Self::Eap(_), Inner::Eap(_))
        )
    }
}

impl fmt::Debug for Proof {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof(..)")
    }
}

#[derive(Debug)]
enum State {
    /// The peer's AVPs are awaited; once, a packet without data is answered by one.
    Start { nudged: bool },
    /// The host is asked who that is.
    User(Proof),
    /// The host is asked to compare a password.
    Password,
    /// EAP runs.
    Eap(Box<Server>),
    /// MS-CHAP-V2's success or error was told, or the octet that ends a resumed session.
    Told(bool),
    /// The host is asked whether a session may be resumed.
    Resume,
}

/// Phase 2 of one run.
#[derive(Debug)]
pub(crate) struct Phase {
    accepted: Arc<[Inner]>,
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
    pub(crate) fn new(accepted: Arc<[Inner]>) -> Self {
        let state = State::Start { nudged: false };
        Self { accepted, state, name: None, inner: None, question: None, refused: false, fault: Fault::Rules }
    }

    fn ask_user(&mut self, name: &[u8]) -> Step {
        self.name = Some(name.to_vec());
        self.question = Some(Question::User { name: name.to_vec() });
        Step::Ask
    }

    fn fail(&mut self, fault: Fault) -> Step {
        self.fault = fault;
        Step::Failure
    }

    /// The peer's first AVPs.
    fn first(&mut self, avps: &[Avp<'_>], tunnel: &Tunnel<'_>) -> Step {
        let Some((name, proof)) = proof(avps, tunnel) else { return Step::Failure };
        let Some(inner) = self.accepted.iter().find(|i| proof.is(**i)) else {
            return self.fail(Fault::NoInner);
        };
        if name.len() > MAX_NAME {
            return Step::Failure;
        }
        self.inner = Some(*inner).filter(|i| !matches!(i, Inner::Eap(_)));
        self.state = State::User(proof);
        self.ask_user(&name)
    }

    /// Holds the proof against what is known of the user.
    fn judge(&mut self, secret: &UserSecret, mut tunnel: Tunnel<'_>, out: &mut Vec<u8>) -> Step {
        let State::User(proof) = core::mem::replace(&mut self.state, State::Told(false)) else {
            return Step::Failure;
        };
        let name = self.name.as_deref().unwrap_or_default();
        let right = match (proof, secret, secret.nt_hash()) {
            (Proof::Pap(password), ..) => match secret.proves(&password) {
                Some(right) => right,
                None => {
                    self.state = State::Password;
                    self.question = Some(Question::Password { password });
                    return Step::Ask;
                }
            },
            (Proof::Chap { identifier, challenge, response }, UserSecret::Clear(known), _) => {
                equal(&response, &md5(&[&[identifier], known, &challenge]))
            }
            (Proof::MsChap { challenge, response }, _, Some(hash)) => {
                equal(&response, &mschap::v1_response(&challenge, &hash))
            }
            (Proof::MsChapV2 { identifier, challenge, peer, response }, _, Some(hash)) => {
                let right = equal(&response, &mschap::nt_response(&challenge, &peer, name, &hash));
                self.fault = if right { Fault::Host } else { Fault::Proof };
                let right = right && !self.refused;
                self.state = State::Told(right);
                if right {
                    let text = mschap::authenticator_response(&hash, &response, &peer, &challenge, name);
                    avp::emit(out, Code::MS_CHAP2_SUCCESS, &[&[identifier][..], &text].concat());
                } else {
                    // RFC 2548 §2.1.5: the identifier, then RFC 2759 §6's text; another try is not allowed.
                    avp::emit(out, Code::MS_CHAP_ERROR, &[&[identifier][..], b"E=691 R=0 V=3"].concat());
                }
                return Step::Say;
            }
            (Proof::Eap(identifier), ..) => {
                let kinds = kinds(&self.accepted);
                let offers = offers(&kinds, secret);
                self.state = State::Eap(Box::new(Server::new(offers, identifier, tunnel.context())));
                return self.drain(out);
            }
            // The secret known does not do for this proof.
            (Proof::Chap { .. } | Proof::MsChap { .. } | Proof::MsChapV2 { .. }, ..) => {
                return self.fail(Fault::Secret);
            }
        };
        match right {
            true if self.refused => self.fail(Fault::Host),
            true => Step::Success,
            false => self.fail(Fault::Proof),
        }
    }

    /// Takes what EAP has to say.
    fn drain(&mut self, out: &mut Vec<u8>) -> Step {
        let State::Eap(server) = &mut self.state else { return Step::Failure };
        self.inner = server.method().map(Inner::Eap);
        match server.poll_event() {
            Some(Event::Ask(question)) => {
                self.question = Some(question);
                Step::Ask
            }
            // How it ended is told outside (RFC 5281 §11.2.1).
            Some(Event::Success { .. }) if !self.refused => Step::Success,
            Some(Event::Success { .. }) => self.fail(Fault::Host),
            Some(Event::Failure { .. }) => {
                let kinds = kinds(&self.accepted);
                self.fault = inner_fault(server, &kinds);
                Step::Failure
            }
            None => {
                let mut request = Vec::new();
                if !server.poll_transmit(&mut request) {
                    return Step::Ignore;
                }
                avp::emit(out, Code::EAP_MESSAGE, &request);
                Step::Say
            }
        }
    }
}

impl ServerPhase for Phase {
    fn established(&mut self, resumed: Option<Remembered>, tunnel: Tunnel<'_>, _: &mut Vec<u8>) -> Step {
        let Some(remembered) = resumed else {
            // A peer that has nothing to say now takes a forgotten session for a known one.
            self.state = State::Start { nudged: tunnel.conn.engine.resumed() };
            return Step::Wait;
        };
        self.inner = remembered.inner;
        self.name = Some(remembered.name.clone());
        self.question = Some(Question::Resume(remembered));
        self.state = State::Resume;
        Step::Ask
    }

    fn nothing(&mut self, _: Tunnel<'_>, _: &mut Vec<u8>) -> Step {
        match &mut self.state {
            State::Start { nudged: nudged @ false } => {
                *nudged = true;
                Step::Wait
            }
            State::Told(true) => Step::Success,
            State::Start { .. } | State::Told(false) => Step::Failure,
            State::User(_) | State::Password | State::Eap(_) | State::Resume => Step::Ignore,
        }
    }

    fn data(&mut self, data: &[u8], tunnel: Tunnel<'_>, out: &mut Vec<u8>) -> Step {
        let Some(avps) = avp::read(data).filter(|a| a.iter().all(known)) else { return Step::Failure };
        match &mut self.state {
            State::Start { .. } => self.first(&avps, &tunnel),
            State::Eap(server) => match avp::eap(&avps) {
                Some(packet) if server.handle(&packet) => self.drain(out),
                // What would be discarded outside is an error within a tunnel, where nobody puts in or takes out
                // (RFC 5281 §11.2.1).
                _ => Step::Failure,
            },
            State::User(_) | State::Password | State::Told(_) | State::Resume => Step::Failure,
        }
    }

    fn answer(&mut self, answer: Answer, tunnel: Tunnel<'_>, out: &mut Vec<u8>) -> Step {
        self.refused = matches!(answer, Answer::Refused(..)) || self.refused;
        let answer = match answer {
            Answer::Refused(secret, Some(only)) => Answer::Restricted(secret, only),
            Answer::Refused(secret, None) => Answer::User(Some(secret)),
            answer => answer,
        };
        let answer = match answer {
            Answer::Restricted(secret, only) => {
                self.accepted = self.accepted.iter().copied().filter(|i| only.contains(i)).collect();
                let may =
                    matches!(&self.state, State::User(proof) if self.accepted.iter().any(|i| proof.is(*i)));
                if !may {
                    return self.fail(Fault::NoInner);
                }
                Answer::User(Some(secret))
            }
            answer => answer,
        };
        match (&mut self.state, answer) {
            (State::User(_), Answer::User(Some(secret))) => self.judge(&secret, tunnel, out),
            (State::Password, Answer::Password(true)) if !self.refused => Step::Success,
            (State::Password, Answer::Password(false)) => self.fail(Fault::Proof),
            (State::Eap(server), answer) => {
                server.answer(answer);
                self.drain(out)
            }
            (State::Resume, Answer::Resume(true)) if tunnel.conn.is_13() => {
                self.state = State::Told(true);
                out.push(0);
                Step::Say
            }
            (State::Resume, Answer::Resume(true)) => Step::Success,
            _ => self.fail(Fault::Host),
        }
    }

    fn fault(&self) -> Fault {
        match &self.state {
            State::Eap(server) if server.refuses() => inner_fault(server, &kinds(&self.accepted)),
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
            State::Told(right) => !right,
            State::Eap(server) => server.refuses(),
            State::Start { .. } | State::User(_) | State::Password | State::Resume => false,
        }
    }

    fn poll_work(&mut self) -> Option<Work> {
        match &mut self.state {
            State::Eap(server) => server.poll_work(),
            _ => None,
        }
    }
}

/// The EAP methods among these.
fn kinds(accepted: &[Inner]) -> Vec<Type> {
    let eap = |inner: &Inner| if let Inner::Eap(kind) = inner { Some(*kind) } else { None };
    accepted.iter().filter_map(eap).collect()
}

/// An AVP that is known here, or that does not have to be (RFC 5281 §10.1).
fn known(avp: &Avp<'_>) -> bool {
    const KNOWN: [Code; 8] = [
        Code::USER_NAME,
        Code::USER_PASSWORD,
        Code::CHAP_PASSWORD,
        Code::CHAP_CHALLENGE,
        Code::EAP_MESSAGE,
        Code::MS_CHAP_RESPONSE,
        Code::MS_CHAP_CHALLENGE,
        Code::MS_CHAP2_RESPONSE,
    ];
    !avp.mandatory || KNOWN.contains(&avp.code)
}

/// Whom the AVPs name, and the proof they bring; `None` where something is missing, too short or too long, or where a
/// challenge is not this tunnel's.
fn proof(avps: &[Avp<'_>], tunnel: &Tunnel<'_>) -> Option<(Vec<u8>, Proof)> {
    let name = || avp::find(avps, Code::USER_NAME).map(<[u8]>::to_vec);
    if let Some(packet) = avp::eap(avps) {
        let p = Packet::parse(&packet).ok()?;
        let identity = p.code() == packet::Code::Response && p.kind() == Some(Type::IDENTITY);
        return identity.then(|| (p.data().to_vec(), Proof::Eap(p.identifier())));
    }
    let proof = if let Some(password) = avp::find(avps, Code::USER_PASSWORD) {
        // Padded with zeros, to hide how long it is (RFC 5281 §11.2.5).
        let end = password.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
        Proof::Pap(password[..end].into())
    } else if let Some(value) = avp::find(avps, Code::CHAP_PASSWORD) {
        let (ours, identifier) = challenge::<CHALLENGE>(tunnel.conn)?;
        let (first, response) = value.split_first()?;
        check(avps, Code::CHAP_CHALLENGE, &ours, *first == identifier)?;
        Proof::Chap { identifier, challenge: ours, response: response.try_into().ok()? }
    } else if let Some(value) = avp::find(avps, Code::MS_CHAP_RESPONSE) {
        // Ident, flags, the LAN Manager response, the NT response (RFC 2548 §2.1.3); only the last is looked at.
        let (ours, identifier) = challenge::<SHORT_CHALLENGE>(tunnel.conn)?;
        let [first, 1, rest @ ..] = value else { return None };
        check(avps, Code::MS_CHAP_CHALLENGE, &ours, *first == identifier)?;
        let (_, response) = rest.split_first_chunk::<24>()?;
        Proof::MsChap { challenge: ours, response: response.try_into().ok()? }
    } else {
        // Ident, flags, the peer's challenge, eight octets of zero, the response (RFC 2548 §2.3.2).
        let value = avp::find(avps, Code::MS_CHAP2_RESPONSE)?;
        let (ours, identifier) = challenge::<CHALLENGE>(tunnel.conn)?;
        let [first, _, rest @ ..] = value else { return None };
        check(avps, Code::MS_CHAP_CHALLENGE, &ours, *first == identifier)?;
        let (peer, rest) = rest.split_first_chunk::<CHALLENGE>()?;
        let (_, response) = rest.split_first_chunk::<8>()?;
        Proof::MsChapV2 { identifier, challenge: ours, peer: *peer, response: response.try_into().ok()? }
    };
    Some((name()?, proof))
}

/// RFC 5281 §11.2.2 to 11.2.4: challenge and identifier must be those that the tunnel gives.
fn check(avps: &[Avp<'_>], code: Code, ours: &[u8], identified: bool) -> Option<()> {
    let same = avp::find(avps, code).is_some_and(|theirs| equal(theirs, ours));
    (same && identified).then_some(())
}

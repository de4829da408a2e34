//! The side that shows who it is.

use super::message::{ChapValue, MsChapV2Value, PapRequest, chap, ms_chap_v2_error, pap, pap_message};
use super::{AuthenticationProtocol, Credentials};
use crate::packet::Packet;
use crate::work;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, SecureRng, WallTime, WorkLabel};
use usher_crypto::digest::{equal, md5};
use usher_crypto::legacy::mschap::{self, AUTHENTICATOR_RESPONSE_LEN};
use usher_crypto::legacy::nt_hash;
use usher_eap::peer::{Config, Event, Peer};

/// Codes of EAP packets (RFC 3748 §4).
const REQUEST: u8 = 1;
const SUCCESS: u8 = 3;
const FAILURE: u8 = 4;

/// What the peer has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Send this.
    Send(Vec<u8>),
    /// It is let in.
    Accepted,
    /// It is turned away, with what the other side says of it.
    Rejected(Vec<u8>),
    /// The other side does not prove that it knows the password (RFC 2759 §5).
    Impostor,
    /// The other side does not answer.
    Silent,
    /// The name or the password is longer than the protocol can say.
    TooLong,
}

#[derive(Debug)]
enum Kind {
    Pap {
        identifier: u8,
    },
    Chap {
        ms: bool,
        answer: Option<Answer>,
        done: bool,
    },
    Eap {
        peer: Box<Peer>,
        /// The identifier of the last Request.
        last: Option<u8>,
    },
}

/// A response to a challenge, and what the other side has to say to prove itself.
#[derive(Debug)]
struct Answer {
    /// The data of the challenge.
    challenge: Vec<u8>,
    packet: Vec<u8>,
    identifier: u8,
    proof: Option<[u8; AUTHENTICATOR_RESPONSE_LEN]>,
}

/// One authentication of this side.
#[derive(Debug)]
pub(crate) struct Prover {
    kind: Kind,
    timer: Duration,
    /// How often a packet may be sent again.
    left: u32,
    due: Option<Instant>,
    pub(crate) worked: Vec<WorkLabel>,
}

impl Prover {
    pub(crate) fn new(
        protocol: AuthenticationProtocol,
        credentials: &Credentials,
        (timer, count): (Duration, u32),
        (now, wall): (Instant, WallTime),
        rng: &mut SecureRng,
    ) -> (Self, Vec<Outcome>) {
        let kind = match protocol {
            AuthenticationProtocol::Pap => Kind::Pap { identifier: rng.array::<1>()[0] },
            AuthenticationProtocol::Chap => Kind::Chap { ms: false, answer: None, done: false },
            AuthenticationProtocol::MsChapV2 => Kind::Chap { ms: true, answer: None, done: false },
            AuthenticationProtocol::Eap => {
                let config = Config {
                    identity: credentials.name.clone(),
                    methods: credentials.eap_methods.clone(),
                    timeout: timer * u64::from(count),
                    wall,
                };
                let peer = Box::new(Peer::new(config, SecureRng::from_seed(rng.array()), now));
                Kind::Eap { peer, last: None }
            }
        };
        let due = Some(now + timer * u64::from(count));
        let mut this = Self { kind, timer, left: count, due, worked: Vec::new() };
        let mut out = Vec::new();
        if let Kind::Pap { .. } = this.kind {
            this.ask(now, credentials, &mut out);
        }
        (this, out)
    }

    /// PAP's request; each has an identifier of its own (RFC 1334 §2.2.1).
    fn ask(&mut self, now: Instant, credentials: &Credentials, out: &mut Vec<Outcome>) {
        let Kind::Pap { identifier } = &mut self.kind else { return };
        if self.left == 0 {
            self.due = None;
            return out.push(Outcome::Silent);
        }
        let request = PapRequest { name: &credentials.name, password: &credentials.password };
        if !request.fits() {
            self.due = None;
            return out.push(Outcome::TooLong);
        }
        self.left -= 1;
        *identifier = identifier.wrapping_add(1);
        let mut data = Vec::new();
        request.emit(&mut data);
        out.push(Outcome::Send(Packet { code: pap::REQUEST, identifier: *identifier, data: &data }.to_vec()));
        self.due = Some(now + self.timer);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match &self.kind {
            Kind::Eap { peer, .. } => self.due.and(peer.poll_timeout()),
            _ => self.due,
        }
    }

    pub(crate) fn timeout(&mut self, now: Instant, credentials: &Credentials, out: &mut Vec<Outcome>) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        match &mut self.kind {
            Kind::Pap { .. } => self.ask(now, credentials, out),
            // The Success may have been lost: the response brings it again (RFC 1994 §4.1).
            Kind::Chap { answer: Some(answer), .. } if self.left > 0 => {
                self.left -= 1;
                self.due = Some(now + self.timer);
                out.push(Outcome::Send(answer.packet.clone()));
            }
            Kind::Chap { .. } => {
                self.due = None;
                out.push(Outcome::Silent);
            }
            Kind::Eap { peer, .. } => {
                peer.handle_timeout(now);
                self.drain(out);
            }
        }
    }

    /// Takes the other side's packet; false: it is dropped.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        octets: &[u8],
        credentials: &Credentials,
        rng: &mut SecureRng,
        out: &mut Vec<Outcome>,
    ) -> bool {
        if let Kind::Eap { peer, last } = &mut self.kind {
            let taken = peer.handle(now, &as_asked(octets, last));
            self.drain(out);
            return taken;
        }
        let Ok(packet) = Packet::parse(octets) else { return false };
        match &mut self.kind {
            Kind::Pap { identifier } => {
                let open = self.due.is_some() && packet.identifier == *identifier;
                match packet.code {
                    pap::ACK if open => out.push(Outcome::Accepted),
                    pap::NAK if open => out.push(Outcome::Rejected(pap_message(packet.data).into())),
                    _ => return false,
                }
                self.due = None;
                true
            }
            Kind::Chap { ms, answer, done } => match packet.code {
                // A challenge may come at any time (RFC 1994 §4.1).
                chap::CHALLENGE => {
                    let again = |sent: &&Answer| {
                        sent.identifier == packet.identifier && sent.challenge == packet.data
                    };
                    if let Some(sent) = answer.as_ref().filter(again) {
                        // A copy has the same response: the other side judges the first that it hears.
                        out.push(Outcome::Send(sent.packet.clone()));
                        return true;
                    }
                    let Some(fresh) = respond(*ms, packet, credentials, rng) else { return false };
                    self.worked.push(work::DIGEST);
                    out.push(Outcome::Send(fresh.packet.clone()));
                    *answer = Some(fresh);
                    if !*done {
                        self.due = Some(now + self.timer);
                    }
                    true
                }
                chap::SUCCESS | chap::FAILURE => {
                    let Some(sent) = answer.as_ref().filter(|sent| sent.identifier == packet.identifier)
                    else {
                        return false;
                    };
                    let proved = sent.proof.is_none_or(|proof| {
                        let given = packet.data.get(..AUTHENTICATOR_RESPONSE_LEN);
                        given.is_some_and(|given| equal(&given.to_ascii_uppercase(), &proof))
                    });
                    self.due = None;
                    out.push(match (packet.code, proved) {
                        (chap::SUCCESS, true) => {
                            // One that comes again says nothing new.
                            if core::mem::replace(done, true) {
                                return true;
                            }
                            Outcome::Accepted
                        }
                        (chap::SUCCESS, false) => Outcome::Impostor,
                        _ => Outcome::Rejected(packet.data.into()),
                    });
                    true
                }
                _ => false,
            },
            Kind::Eap { .. } => false,
        }
    }

    fn drain(&mut self, out: &mut Vec<Outcome>) {
        let Kind::Eap { peer, .. } = &mut self.kind else { return };
        while let Some(done) = peer.poll_work() {
            self.worked.push(done.label);
        }
        let mut packet = Vec::new();
        if peer.poll_transmit(&mut packet) {
            out.push(Outcome::Send(packet));
        }
        let Some(event) = peer.poll_event() else { return };
        self.due = None;
        out.push(match event {
            Event::Success { .. } => Outcome::Accepted,
            Event::Failure => Outcome::Rejected(Vec::new()),
            Event::Timeout => Outcome::Silent,
        });
    }
}

/// What the other side said when it turned this side away, for people.
pub(crate) fn refusal(message: &[u8]) -> Vec<u8> {
    match ms_chap_v2_error(message) {
        // What follows `M=` is for people (RFC 2759 §6).
        Some(_) => {
            let text = message.windows(2).position(|two| two == b"M=").map(|at| &message[at + 2..]);
            text.unwrap_or(message).into()
        }
        None => message.into(),
    }
}

fn respond(
    ms: bool,
    challenge: Packet<'_>,
    credentials: &Credentials,
    rng: &mut SecureRng,
) -> Option<Answer> {
    let ChapValue { value, .. } =
        ChapValue::parse(challenge.data).ok().filter(|one| !one.value.is_empty())?;
    let (identifier, name) = (challenge.identifier, &credentials.name[..]);
    let (response, proof) = if ms {
        let challenge: [u8; 16] = value.try_into().ok()?;
        let (peer_challenge, hash) = (rng.array(), nt_hash(&credentials.password));
        let response = mschap::nt_response(&challenge, &peer_challenge, name, &hash);
        let proof = mschap::authenticator_response(&hash, &response, &peer_challenge, &challenge, name);
        (MsChapV2Value { peer_challenge, response }.to_octets().to_vec(), Some(proof))
    } else {
        (md5(&[&[identifier], &credentials.password, value]).to_vec(), None)
    };
    let mut data = Vec::new();
    ChapValue { value: &response, name }.emit(&mut data);
    let packet = Packet { code: chap::RESPONSE, identifier, data: &data }.to_vec();
    Some(Answer { challenge: challenge.data.into(), packet, identifier, proof })
}

/// An EAP packet as RFC 3748 §4.2 wants it: Success and Failure have the identifier of the Request that was answered. pppd as the
/// server gives them the next one.
fn as_asked<'a>(octets: &'a [u8], last: &mut Option<u8>) -> Cow<'a, [u8]> {
    match (octets, *last) {
        ([REQUEST, identifier, ..], _) => *last = Some(*identifier),
        ([SUCCESS | FAILURE, identifier, ..], Some(asked)) if *identifier == asked.wrapping_add(1) => {
            let mut octets = octets.to_vec();
            octets[1] = asked;
            return Cow::Owned(octets);
        }
        _ => {}
    }
    Cow::Borrowed(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_with_the_next_identifier_is_the_last_requests() {
        let mut last = None;
        assert_eq!(*as_asked(&[SUCCESS, 8, 0, 4], &mut last), [SUCCESS, 8, 0, 4], "nothing was asked");
        let request = [REQUEST, 255, 0, 5, 1];
        assert_eq!((*as_asked(&request, &mut last)).to_vec(), request);
        assert_eq!(*as_asked(&[SUCCESS, 0, 0, 4], &mut last), [SUCCESS, 255, 0, 4]);
        assert_eq!(*as_asked(&[FAILURE, 255, 0, 4], &mut last), [FAILURE, 255, 0, 4]);
        assert_eq!(*as_asked(&[SUCCESS, 1, 0, 4], &mut last), [SUCCESS, 1, 0, 4], "of no request");
        assert!(as_asked(&[], &mut last).is_empty());
    }
}

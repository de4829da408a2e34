//! The side that asks the peer who it is. Whether the proof holds, somebody else says.

use super::message::{ChapValue, MsChapV2Value, PapRequest, chap, pap};
use super::{AuthenticationProtocol, Proof};
use crate::link::Dropped;
use crate::packet::{Code, HEADER, Packet};
use crate::work;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, SecureRng, WorkLabel};
use usher_eap::authenticator::{Answer as EapAnswer, Authenticator as PassThrough, End, Retransmission};
use usher_eap::packet::{Packet as EapPacket, Type};

/// ERROR_AUTHENTICATION_FAILURE, and no retry (RFC 2759 §6); `C` follows, which must be there.
const MS_CHAP_V2_REFUSAL: &[u8] = b"E=691 R=0 C=00000000000000000000000000000000 V=3 M=Authentication failed";
/// Octets of a PAP message: its length is one octet.
const PAP_MESSAGE: usize = 255;

/// What is answered to a proof.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// A further EAP request.
    Continue(Vec<u8>),
    /// It holds; with what the peer is told: EAP-Success, or a message. MS-CHAPv2's begins with the authenticator response.
    Accept(Vec<u8>),
    /// It does not; likewise.
    Reject(Vec<u8>),
    /// Nobody answers.
    Unanswered,
}

/// What the authenticator has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Send this.
    Send(Vec<u8>),
    /// Somebody is to judge this.
    Ask { name: Vec<u8>, proof: Proof },
    /// The peer is let in.
    Accepted,
    /// The peer is turned away.
    Rejected,
    /// The peer, or whoever judges, fell silent.
    Silent { peer: bool },
}

/// How a conversation has ended, for the peer who asks again (RFC 1334 §2.2.1, RFC 1994 §4.1).
#[derive(Debug)]
struct Ended {
    accepted: bool,
    message: Vec<u8>,
}

#[derive(Debug)]
enum Kind {
    Pap,
    Chap { ms: bool, identifier: u8, challenge: [u8; 16], left: u32 },
    Eap { automaton: PassThrough, name: Vec<u8> },
}

/// One authentication of a peer.
#[derive(Debug)]
pub(crate) struct Authenticator {
    kind: Kind,
    name: Vec<u8>,
    timer: Duration,
    /// Octets of the longest packet that the peer takes.
    longest: usize,
    due: Option<Instant>,
    /// The identifier of a request of PAP or response of CHAP that is being judged.
    asked: Option<u8>,
    ended: Option<Ended>,
    /// Digests that were computed and challenges made.
    pub(crate) worked: Vec<WorkLabel>,
}

impl Authenticator {
    /// Begins one: `name` is what this side calls itself, each packet is sent `count` times at most, and none should
    /// be longer than `longest`.
    pub(crate) fn new(
        protocol: AuthenticationProtocol,
        name: &[u8],
        (timer, count): (Duration, u32),
        longest: u16,
        now: Instant,
        rng: &mut SecureRng,
    ) -> (Self, Vec<Outcome>) {
        let [identifier] = rng.array();
        let patience = timer * u64::from(count);
        let chap = |ms| Kind::Chap { ms, identifier, challenge: [0; 16], left: count };
        let kind = match protocol {
            AuthenticationProtocol::Pap => Kind::Pap,
            AuthenticationProtocol::Chap => chap(false),
            AuthenticationProtocol::MsChapV2 => chap(true),
            AuthenticationProtocol::Eap => {
                let policy =
                    Retransmission { initial: timer, max: timer * 4, count: count.saturating_sub(1) };
                let automaton = PassThrough::new(identifier, Some(policy), patience, now);
                Kind::Eap { automaton, name: Vec::new() }
            }
        };
        let due = Some(now + patience);
        let worked = Vec::new();
        let (name, asked, ended) = (name.into(), None, None);
        let mut this = Self { kind, name, timer, longest: longest.into(), due, asked, ended, worked };
        let mut out = Vec::new();
        match this.kind {
            Kind::Pap => {}
            Kind::Chap { .. } => this.challenge(now, rng, &mut out),
            Kind::Eap { .. } => this.drain(&mut out),
        }
        (this, out)
    }

    /// The next challenge; each has an identifier and a value of its own (RFC 1994 §4.1).
    fn challenge(&mut self, now: Instant, rng: &mut SecureRng, out: &mut Vec<Outcome>) {
        let Kind::Chap { identifier, challenge, left, .. } = &mut self.kind else { return };
        if *left == 0 {
            self.due = None;
            return out.push(Outcome::Silent { peer: true });
        }
        *left -= 1;
        *identifier = identifier.wrapping_add(1);
        *challenge = rng.array();
        let mut data = Vec::new();
        ChapValue { value: &challenge[..], name: &self.name }.emit(&mut data);
        out.push(Outcome::Send(
            Packet { code: chap::CHALLENGE, identifier: *identifier, data: &data }.to_vec(),
        ));
        self.worked.push(work::DIGEST);
        self.due = Some(now + self.timer);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match &self.kind {
            Kind::Eap { automaton, .. } => automaton.poll_timeout(),
            _ => self.due,
        }
    }

    pub(crate) fn timeout(&mut self, now: Instant, rng: &mut SecureRng, out: &mut Vec<Outcome>) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        match &mut self.kind {
            Kind::Pap => {
                self.due = None;
                out.push(Outcome::Silent { peer: true });
            }
            Kind::Chap { .. } => self.challenge(now, rng, out),
            Kind::Eap { automaton, .. } => {
                automaton.handle_timeout(now);
                self.drain(out);
            }
        }
    }

    /// Takes the peer's packet, or says why it is dropped.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        octets: &[u8],
        out: &mut Vec<Outcome>,
    ) -> Result<(), Dropped> {
        match &self.kind {
            Kind::Pap => self.receive_pap(octets, out),
            Kind::Chap { .. } => self.receive_chap(octets, out),
            Kind::Eap { .. } => self.receive_eap(now, octets, out),
        }
    }

    fn receive_pap(&mut self, octets: &[u8], out: &mut Vec<Outcome>) -> Result<(), Dropped> {
        let Ok(packet) = Packet::parse(octets) else { return Err(Dropped::NotAsked) };
        if packet.code != pap::REQUEST {
            return Err(Dropped::NotAsked);
        }
        let Ok(PapRequest { name, password }) = PapRequest::parse(packet.data) else {
            return Err(Dropped::NotAsked);
        };
        if let Some(ended) = &self.ended {
            out.push(Outcome::Send(pap_reply(
                packet.identifier,
                ended.accepted,
                &ended.message,
                self.longest,
            )));
            return Ok(());
        }
        // Sent again while somebody judges the first: the answer is to the last.
        if self.asked.replace(packet.identifier).is_some() {
            return Err(Dropped::Pending);
        }
        self.due = None;
        out.push(Outcome::Ask { name: name.into(), proof: Proof::Pap(password.into()) });
        Ok(())
    }

    fn receive_chap(&mut self, octets: &[u8], out: &mut Vec<Outcome>) -> Result<(), Dropped> {
        let Kind::Chap { ms, identifier, challenge, .. } = self.kind else { return Err(Dropped::NotAsked) };
        let Ok(packet) = Packet::parse(octets) else { return Err(Dropped::NotAsked) };
        if packet.code != chap::RESPONSE || packet.identifier != identifier {
            return Err(Dropped::NotAsked);
        }
        let Ok(ChapValue { value, name }) = ChapValue::parse(packet.data) else {
            return Err(Dropped::NotAsked);
        };
        if let Some(ended) = &self.ended {
            out.push(Outcome::Send(chap_reply(identifier, ended.accepted, &ended.message, self.longest)));
            return Ok(());
        }
        let proof = if ms {
            let Some(MsChapV2Value { peer_challenge, response }) = MsChapV2Value::parse(value) else {
                return Err(Dropped::NotAsked);
            };
            Proof::MsChapV2 { identifier, challenge, peer_challenge, response }
        } else {
            let Ok(response) = value.try_into() else { return Err(Dropped::NotAsked) };
            Proof::Chap { identifier, challenge, response }
        };
        if self.asked.replace(identifier).is_some() {
            return Err(Dropped::Pending);
        }
        self.due = None;
        out.push(Outcome::Ask { name: name.into(), proof });
        Ok(())
    }

    fn receive_eap(&mut self, now: Instant, octets: &[u8], out: &mut Vec<Outcome>) -> Result<(), Dropped> {
        let Kind::Eap { automaton, name } = &mut self.kind else { return Err(Dropped::NotAsked) };
        let taken = automaton.handle(now, octets);
        if taken
            && let Ok(packet) = EapPacket::parse(octets)
            && packet.kind() == Some(Type::IDENTITY)
        {
            *name = packet.data().into();
        }
        self.drain(out);
        taken.then_some(()).ok_or(Dropped::NotAsked)
    }

    /// Takes what somebody says to the proof; false: nobody was asked.
    pub(crate) fn answer(&mut self, now: Instant, verdict: Verdict, out: &mut Vec<Outcome>) -> bool {
        if let Kind::Eap { automaton, .. } = &mut self.kind {
            let taken = automaton.answer(
                now,
                match &verdict {
                    Verdict::Continue(packet) => EapAnswer::Request(packet),
                    Verdict::Accept(packet) => EapAnswer::Success(packet),
                    Verdict::Reject(packet) => EapAnswer::Failure(packet),
                    Verdict::Unanswered => EapAnswer::Timeout,
                },
            );
            self.drain(out);
            return taken;
        }
        let Some(identifier) = self.asked else { return false };
        let (accepted, mut message) = match verdict {
            Verdict::Accept(message) => (true, message),
            Verdict::Reject(message) => (false, message),
            Verdict::Unanswered => {
                out.push(Outcome::Silent { peer: false });
                return true;
            }
            // A round more is EAP's alone.
            Verdict::Continue(_) => return false,
        };
        self.asked = None;
        let reply = match self.kind {
            Kind::Chap { ms, .. } => {
                if ms && !accepted && !message.starts_with(b"E=") {
                    message = MS_CHAP_V2_REFUSAL.into();
                }
                chap_reply(identifier, accepted, &message, self.longest)
            }
            _ => pap_reply(identifier, accepted, &message, self.longest),
        };
        out.push(Outcome::Send(reply));
        out.push(if accepted { Outcome::Accepted } else { Outcome::Rejected });
        self.ended = Some(Ended { accepted, message });
        true
    }

    /// What EAP's automaton has decided.
    fn drain(&mut self, out: &mut Vec<Outcome>) {
        let Kind::Eap { automaton, name } = &mut self.kind else { return };
        if let Some(packet) = automaton.poll_transmit() {
            out.push(Outcome::Send(packet.into()));
        }
        if let Some(packet) = automaton.poll_aaa() {
            out.push(Outcome::Ask { name: name.clone(), proof: Proof::Eap(packet.into()) });
        }
        match automaton.poll_end() {
            None => {}
            Some(End::Success) => out.push(Outcome::Accepted),
            Some(End::Failure) => out.push(Outcome::Rejected),
            Some(End::PeerTimeout) => out.push(Outcome::Silent { peer: true }),
            Some(End::AaaTimeout) => out.push(Outcome::Silent { peer: false }),
        }
    }
}

fn pap_reply(identifier: u8, accepted: bool, message: &[u8], longest: usize) -> Vec<u8> {
    let message = &message[..message.len().min(PAP_MESSAGE).min(longest - HEADER - 1)];
    let data = [&[message.len() as u8], message].concat();
    Packet { code: if accepted { pap::ACK } else { pap::NAK }, identifier, data: &data }.to_vec()
}

fn chap_reply(identifier: u8, accepted: bool, message: &[u8], longest: usize) -> Vec<u8> {
    let code: Code = if accepted { chap::SUCCESS } else { chap::FAILURE };
    let data = &message[..message.len().min(MESSAGE).min(longest - HEADER)];
    Packet { code, identifier, data }.to_vec()
}

/// Octets of a CHAP message: more fits no packet that each link takes.
const MESSAGE: usize = 512 - HEADER;

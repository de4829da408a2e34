//! A responder in the manner of IKEv2 with EAP (RFC 7296 §2.16), reduced to what composition needs.
//!
//! Messages are datagrams: a kind octet, then a body. The peer's address names its security association.

use std::collections::HashMap;
use std::net::SocketAddr;
use usher_core::{CommandError, Input, Instant, Machine, NoJob, OutputOf, Outputs, Path, SocketId, Transmit};
use usher_crypto::digest::HmacMd5Key;

/// The initiator's identity.
pub(crate) const IDENTITY: u8 = 1;
/// An EAP packet.
pub(crate) const EAP: u8 = 2;
/// Proof of the key.
pub(crate) const AUTH: u8 = 3;
/// It is over.
pub(crate) const FAILED: u8 = 4;

/// What each side sends to prove that it has the key.
pub(crate) fn proof(msk: &[u8; 64], side: &[u8]) -> [u8; 16] {
    HmacMd5Key::new(msk).mac(&[side])
}

/// How a round of EAP went.
#[derive(Debug)]
pub(crate) enum Outcome {
    Continue { packet: Vec<u8> },
    Accept { packet: Vec<u8>, msk: [u8; 64] },
    Reject { packet: Vec<u8> },
    Unanswered,
}

#[derive(Debug)]
pub(crate) enum Command {
    /// The answer to [`Event::Eap`].
    EapResult { sa: u64, outcome: Outcome },
}

#[derive(Debug)]
pub(crate) enum Event {
    /// Somebody who knows shall look at this EAP packet.
    Eap {
        sa: u64,
        identity: Vec<u8>,
        packet: Vec<u8>,
    },
    Established {
        sa: u64,
        msk: [u8; 64],
    },
    Failed {
        sa: u64,
    },
}

#[derive(Debug, PartialEq)]
enum Phase {
    /// The initiator shall answer.
    Initiator,
    /// The EAP packet is with whoever knows.
    Elsewhere,
    /// The initiator shall prove the key.
    Proof([u8; 64]),
    Done,
}

#[derive(Debug)]
struct Sa {
    peer: SocketAddr,
    identity: Vec<u8>,
    phase: Phase,
}

#[derive(Debug, Default)]
pub(crate) struct Responder {
    sas: Vec<Sa>,
    by_peer: HashMap<SocketAddr, u64>,
    outputs: Outputs<Event>,
}

impl Responder {
    pub(crate) fn identity(&self, sa: u64) -> &[u8] {
        &self.sas[sa as usize].identity
    }
    fn send(&mut self, sa: u64, kind: u8, body: &[u8]) {
        let mut message = vec![kind];
        message.extend_from_slice(body);
        let local = SocketAddr::new([0, 0, 0, 0].into(), 500);
        let path = Path { socket: SocketId::own(0), local, remote: self.sas[sa as usize].peer };
        self.outputs.transmit(Transmit::Datagram { path }, message);
    }
    fn fail(&mut self, sa: u64) {
        self.sas[sa as usize].phase = Phase::Done;
        self.send(sa, FAILED, &[]);
        self.outputs.event(Event::Failed { sa });
    }

    fn begin(&mut self, peer: SocketAddr, identity: &[u8]) {
        let sa = self.sas.len() as u64;
        self.by_peer.insert(peer, sa);
        self.sas.push(Sa { peer, identity: identity.to_vec(), phase: Phase::Elsewhere });
        // The identity came in the peer's own message: EAP need not ask for it again (RFC 7296 §3.16).
        let mut packet = vec![2, 0, 0, identity.len() as u8 + 5, 1];
        packet.extend_from_slice(identity);
        self.outputs.event(Event::Eap { sa, identity: identity.to_vec(), packet });
    }
}

impl Machine for Responder {
    type Command = Command;
    type Event = Event;
    type Job = NoJob;

    fn handle(&mut self, _now: Instant, input: Input<'_>) {
        let Input::Datagram { path: Path { remote, .. }, data: [kind, body @ ..] } = input else { return };
        let known = self.by_peer.get(&remote).copied();
        match (*kind, known) {
            (IDENTITY, None) => self.begin(remote, body),
            (EAP, Some(sa)) if self.sas[sa as usize].phase == Phase::Initiator => {
                let state = &mut self.sas[sa as usize];
                state.phase = Phase::Elsewhere;
                let (identity, packet) = (state.identity.clone(), body.to_vec());
                self.outputs.event(Event::Eap { sa, identity, packet });
            }
            (AUTH, Some(sa)) => {
                let Phase::Proof(msk) = self.sas[sa as usize].phase else { return };
                if body == proof(&msk, b"initiator") {
                    self.sas[sa as usize].phase = Phase::Done;
                    self.send(sa, AUTH, &proof(&msk, b"responder"));
                    self.outputs.event(Event::Established { sa, msk });
                } else {
                    self.fail(sa);
                }
            }
            _ => {}
        }
    }

    fn command(&mut self, _now: Instant, command: Command) -> Result<(), CommandError> {
        let Command::EapResult { sa, outcome } = command;
        let state = self.sas.get_mut(sa as usize).ok_or(CommandError::UnknownToken)?;
        if state.phase != Phase::Elsewhere {
            return Err(CommandError::WrongState("no EAP packet of this SA is elsewhere"));
        }
        match outcome {
            Outcome::Continue { packet } => {
                state.phase = Phase::Initiator;
                self.send(sa, EAP, &packet);
            }
            Outcome::Accept { packet, msk } => {
                state.phase = Phase::Proof(msk);
                self.send(sa, EAP, &packet);
            }
            Outcome::Reject { packet } => {
                self.send(sa, EAP, &packet);
                self.fail(sa);
            }
            Outcome::Unanswered => self.fail(sa),
        }
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }
}

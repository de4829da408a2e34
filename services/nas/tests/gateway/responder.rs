//! A responder modelled on IKEv2 with EAP (RFC 7296 §2.16), reduced to the needs of composition.
//!
//! Messages are datagrams: a kind octet, then a body. The peer's address names its security association.

use std::collections::HashMap;
use std::net::SocketAddr;
use usher_core::{
    CommandError, DatagramPath, Instant, Machine, MachineInput, MachineOutputOf, NoJob, OutputQueue,
    SocketId, Transmit,
};
use usher_crypto::digest::HmacMd5Key;

/// The initiator's identity.
pub(crate) const IDENTITY: u8 = 1;
/// An EAP packet.
pub(crate) const EAP: u8 = 2;
/// Proof of the key.
pub(crate) const AUTH: u8 = 3;
/// The attempt has failed.
pub(crate) const FAILED: u8 = 4;

/// Returns the proof of the key that each side sends.
pub(crate) fn key_proof(msk: &[u8; 64], side: &[u8]) -> [u8; 16] {
    HmacMd5Key::new(msk).mac(&[side])
}

/// The result of an EAP round.
#[derive(Debug)]
pub(crate) enum EapRoundResult {
    Continue { packet: Vec<u8> },
    Accept { packet: Vec<u8>, msk: [u8; 64] },
    Reject { packet: Vec<u8> },
    Unanswered,
}

#[derive(Debug)]
pub(crate) enum ResponderCommand {
    /// The answer to [`ResponderEvent::Eap`].
    EapResult { sa: u64, outcome: EapRoundResult },
}

#[derive(Debug)]
pub(crate) enum ResponderEvent {
    /// The AAA server must process this EAP packet.
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
enum SaPhase {
    /// Waits for the initiator.
    Initiator,
    /// Waits for the AAA server.
    AaaPending,
    /// Waits for the proof of the key.
    Proof([u8; 64]),
    Done,
}

#[derive(Debug)]
struct TestSa {
    peer: SocketAddr,
    identity: Vec<u8>,
    phase: SaPhase,
}

#[derive(Debug, Default)]
pub(crate) struct TestResponder {
    sas: Vec<TestSa>,
    by_peer: HashMap<SocketAddr, u64>,
    outputs: OutputQueue<ResponderEvent>,
}

impl TestResponder {
    pub(crate) fn identity(&self, sa: u64) -> &[u8] {
        &self.sas[sa as usize].identity
    }
    fn send_message(&mut self, sa: u64, kind: u8, body: &[u8]) {
        let mut message = vec![kind];
        message.extend_from_slice(body);
        let local = SocketAddr::new([0, 0, 0, 0].into(), 500);
        let path =
            DatagramPath { socket: SocketId::from_number(0), local, remote: self.sas[sa as usize].peer };
        self.outputs.push_transmit(Transmit::Datagram { path }, message);
    }
    fn fail_sa(&mut self, sa: u64) {
        self.sas[sa as usize].phase = SaPhase::Done;
        self.send_message(sa, FAILED, &[]);
        self.outputs.push_event(ResponderEvent::Failed { sa });
    }

    fn start_sa(&mut self, peer: SocketAddr, identity: &[u8]) {
        let sa = self.sas.len() as u64;
        self.by_peer.insert(peer, sa);
        self.sas.push(TestSa { peer, identity: identity.to_vec(), phase: SaPhase::AaaPending });
        // The peer's message has its identity, so EAP does not request it again (RFC 7296 §3.16).
        let mut packet = vec![2, 0, 0, identity.len() as u8 + 5, 1];
        packet.extend_from_slice(identity);
        self.outputs.push_event(ResponderEvent::Eap { sa, identity: identity.to_vec(), packet });
    }
}

impl Machine for TestResponder {
    type Command = ResponderCommand;
    type Event = ResponderEvent;
    type Job = NoJob;

    fn handle_input(&mut self, _now: Instant, input: MachineInput<'_>) {
        let MachineInput::Datagram { path: DatagramPath { remote, .. }, data: [kind, body @ ..] } = input
        else {
            return;
        };
        let known = self.by_peer.get(&remote).copied();
        match (*kind, known) {
            (IDENTITY, None) => self.start_sa(remote, body),
            (EAP, Some(sa)) if self.sas[sa as usize].phase == SaPhase::Initiator => {
                let state = &mut self.sas[sa as usize];
                state.phase = SaPhase::AaaPending;
                let (identity, packet) = (state.identity.clone(), body.to_vec());
                self.outputs.push_event(ResponderEvent::Eap { sa, identity, packet });
            }
            (AUTH, Some(sa)) => {
                let SaPhase::Proof(msk) = self.sas[sa as usize].phase else { return };
                if body == key_proof(&msk, b"initiator") {
                    self.sas[sa as usize].phase = SaPhase::Done;
                    self.send_message(sa, AUTH, &key_proof(&msk, b"responder"));
                    self.outputs.push_event(ResponderEvent::Established { sa, msk });
                } else {
                    self.fail_sa(sa);
                }
            }
            _ => {}
        }
    }

    fn handle_command(&mut self, _now: Instant, command: ResponderCommand) -> Result<(), CommandError> {
        let ResponderCommand::EapResult { sa, outcome } = command;
        let state = self.sas.get_mut(sa as usize).ok_or(CommandError::UnknownToken)?;
        if state.phase != SaPhase::AaaPending {
            return Err(CommandError::WrongState("no EAP packet of this SA is elsewhere"));
        }
        match outcome {
            EapRoundResult::Continue { packet } => {
                state.phase = SaPhase::Initiator;
                self.send_message(sa, EAP, &packet);
            }
            EapRoundResult::Accept { packet, msk } => {
                state.phase = SaPhase::Proof(msk);
                self.send_message(sa, EAP, &packet);
            }
            EapRoundResult::Reject { packet } => {
                self.send_message(sa, EAP, &packet);
                self.fail_sa(sa);
            }
            EapRoundResult::Unanswered => self.fail_sa(sa),
        }
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }
}

//! The side that authenticates the peer. The owner of the machine verifies the proof.

use super::message::{ChapPacketData, MsChapV2ResponseValue, PapRequest, chap, pap};
use super::{AuthenticationProof, AuthenticationProtocol};
use crate::link::DropReason;
use crate::packet::{ControlCode, ControlPacket, HEADER};
use crate::work;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, SecureRng, WorkLabel};
use usher_eap::authenticator::{
    AaaReply as EapAnswer, EapAuthenticator as PassThrough, EapConversationOutcome, EapRetransmissionConfig,
};
use usher_eap::packet::{EapPacket, EapType};

/// ERROR_AUTHENTICATION_FAILURE, and no retry (RFC 2759 §6); `C` follows, which must be there.
const MS_CHAP_V2_REFUSAL: &[u8] = b"E=691 R=0 C=00000000000000000000000000000000 V=3 M=Authentication failed";
/// Maximum octets of a PAP message: its length field has one octet.
const PAP_MESSAGE: usize = 255;

/// The verdict on a proof.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ProofVerdict {
    /// A further EAP request.
    Continue(Vec<u8>),
    /// The proof is valid. The data is EAP-Success or a message. MS-CHAPv2's message begins with the authenticator
    /// response.
    Accept(Vec<u8>),
    /// The proof is invalid. The data is EAP-Failure or a message.
    Reject(Vec<u8>),
    /// No reply came.
    Unanswered,
}

/// An output of the authenticator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AuthenticatorOutput {
    /// Send this packet.
    Send(Vec<u8>),
    /// Verify this proof.
    VerifyProof { name: Vec<u8>, proof: AuthenticationProof },
    /// The peer is authenticated.
    Accepted,
    /// The peer is rejected.
    Rejected,
    /// The peer does not answer (`peer`), or no verdict came.
    Silent { peer: bool },
}

/// The final reply, repeated for retransmissions of the peer (RFC 1334 §2.2.1, RFC 1994 §4.1).
#[derive(Debug)]
struct FinalAuthenticationReply {
    accepted: bool,
    message: Vec<u8>,
}

#[derive(Debug)]
enum AuthenticatorState {
    Pap,
    Chap { ms: bool, identifier: u8, challenge: [u8; 16], left: u32 },
    Eap { automaton: PassThrough, name: Vec<u8> },
}

/// The authentication of a peer.
#[derive(Debug)]
pub(crate) struct PppAuthenticator {
    kind: AuthenticatorState,
    name: Vec<u8>,
    timer: Duration,
    /// Octets of the longest packet that the peer takes.
    longest: usize,
    due: Option<Instant>,
    /// The identifier of the PAP request or CHAP response whose verdict is pending.
    pending_identifier: Option<u8>,
    final_reply: Option<FinalAuthenticationReply>,
    /// Work records of digests and challenges.
    pub(crate) worked: Vec<WorkLabel>,
}

impl PppAuthenticator {
    /// Starts an authentication. `name` is this side's name, `count` the maximum transmissions of a packet, `longest`
    /// the octets of the longest packet.
    pub(crate) fn new(
        protocol: AuthenticationProtocol,
        name: &[u8],
        (timer, count): (Duration, u32),
        longest: u16,
        now: Instant,
        rng: &mut SecureRng,
    ) -> (Self, Vec<AuthenticatorOutput>) {
        let [identifier] = rng.random_array();
        let patience = timer * u64::from(count);
        let chap = |ms| AuthenticatorState::Chap { ms, identifier, challenge: [0; 16], left: count };
        let kind = match protocol {
            AuthenticationProtocol::Pap => AuthenticatorState::Pap,
            AuthenticationProtocol::Chap => chap(false),
            AuthenticationProtocol::MsChapV2 => chap(true),
            AuthenticationProtocol::Eap => {
                let policy = EapRetransmissionConfig {
                    initial: timer,
                    max: timer * 4,
                    count: count.saturating_sub(1),
                };
                let automaton = PassThrough::new(identifier, Some(policy), patience, now);
                AuthenticatorState::Eap { automaton, name: Vec::new() }
            }
        };
        let due = Some(now + patience);
        let worked = Vec::new();
        let (name, asked, ended) = (name.into(), None, None);
        let mut this = Self {
            kind,
            name,
            timer,
            longest: longest.into(),
            due,
            pending_identifier: asked,
            final_reply: ended,
            worked,
        };
        let mut out = Vec::new();
        match this.kind {
            AuthenticatorState::Pap => {}
            AuthenticatorState::Chap { .. } => this.send_challenge(now, rng, &mut out),
            AuthenticatorState::Eap { .. } => this.drain_eap(&mut out),
        }
        (this, out)
    }

    /// Sends a challenge with a new identifier and a new value (RFC 1994 §4.1).
    fn send_challenge(&mut self, now: Instant, rng: &mut SecureRng, out: &mut Vec<AuthenticatorOutput>) {
        let AuthenticatorState::Chap { identifier, challenge, left, .. } = &mut self.kind else { return };
        if *left == 0 {
            self.due = None;
            return out.push(AuthenticatorOutput::Silent { peer: true });
        }
        *left -= 1;
        *identifier = identifier.wrapping_add(1);
        *challenge = rng.random_array();
        let mut data = Vec::new();
        ChapPacketData { value: &challenge[..], name: &self.name }.emit(&mut data);
        out.push(AuthenticatorOutput::Send(
            ControlPacket { code: chap::CHALLENGE, identifier: *identifier, data: &data }.to_vec(),
        ));
        self.worked.push(work::DIGEST);
        self.due = Some(now + self.timer);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match &self.kind {
            AuthenticatorState::Eap { automaton, .. } => automaton.poll_timeout(),
            _ => self.due,
        }
    }

    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        rng: &mut SecureRng,
        out: &mut Vec<AuthenticatorOutput>,
    ) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        match &mut self.kind {
            AuthenticatorState::Pap => {
                self.due = None;
                out.push(AuthenticatorOutput::Silent { peer: true });
            }
            AuthenticatorState::Chap { .. } => self.send_challenge(now, rng, out),
            AuthenticatorState::Eap { automaton, .. } => {
                automaton.handle_timeout(now);
                self.drain_eap(out);
            }
        }
    }

    /// Handles a packet of the peer, or returns the reason why it is dropped.
    pub(crate) fn receive_packet(
        &mut self,
        now: Instant,
        octets: &[u8],
        out: &mut Vec<AuthenticatorOutput>,
    ) -> Result<(), DropReason> {
        match &self.kind {
            AuthenticatorState::Pap => self.receive_pap(octets, out),
            AuthenticatorState::Chap { .. } => self.receive_chap(octets, out),
            AuthenticatorState::Eap { .. } => self.receive_eap(now, octets, out),
        }
    }

    fn receive_pap(&mut self, octets: &[u8], out: &mut Vec<AuthenticatorOutput>) -> Result<(), DropReason> {
        let Ok(packet) = ControlPacket::parse(octets) else { return Err(DropReason::Unsolicited) };
        if packet.code != pap::REQUEST {
            return Err(DropReason::Unsolicited);
        }
        let Ok(PapRequest { name, password }) = PapRequest::parse(packet.data) else {
            return Err(DropReason::Unsolicited);
        };
        if let Some(ended) = &self.final_reply {
            out.push(AuthenticatorOutput::Send(pap_reply(
                packet.identifier,
                ended.accepted,
                &ended.message,
                self.longest,
            )));
            return Ok(());
        }
        // The peer retransmits its request while the verdict is pending. The reply will carry the latest identifier.
        if self.pending_identifier.replace(packet.identifier).is_some() {
            return Err(DropReason::Pending);
        }
        self.due = None;
        out.push(AuthenticatorOutput::VerifyProof {
            name: name.into(),
            proof: AuthenticationProof::Pap(password.into()),
        });
        Ok(())
    }

    fn receive_chap(&mut self, octets: &[u8], out: &mut Vec<AuthenticatorOutput>) -> Result<(), DropReason> {
        let AuthenticatorState::Chap { ms, identifier, challenge, .. } = self.kind else {
            return Err(DropReason::Unsolicited);
        };
        let Ok(packet) = ControlPacket::parse(octets) else { return Err(DropReason::Unsolicited) };
        if packet.code != chap::RESPONSE || packet.identifier != identifier {
            return Err(DropReason::Unsolicited);
        }
        let Ok(ChapPacketData { value, name }) = ChapPacketData::parse(packet.data) else {
            return Err(DropReason::Unsolicited);
        };
        if let Some(ended) = &self.final_reply {
            out.push(AuthenticatorOutput::Send(chap_reply(
                identifier,
                ended.accepted,
                &ended.message,
                self.longest,
            )));
            return Ok(());
        }
        let proof = if ms {
            let Some(MsChapV2ResponseValue { peer_challenge, response }) =
                MsChapV2ResponseValue::parse(value)
            else {
                return Err(DropReason::Unsolicited);
            };
            AuthenticationProof::MsChapV2 { identifier, challenge, peer_challenge, response }
        } else {
            let Ok(response) = value.try_into() else { return Err(DropReason::Unsolicited) };
            AuthenticationProof::Chap { identifier, challenge, response }
        };
        if self.pending_identifier.replace(identifier).is_some() {
            return Err(DropReason::Pending);
        }
        self.due = None;
        out.push(AuthenticatorOutput::VerifyProof { name: name.into(), proof });
        Ok(())
    }

    fn receive_eap(
        &mut self,
        now: Instant,
        octets: &[u8],
        out: &mut Vec<AuthenticatorOutput>,
    ) -> Result<(), DropReason> {
        let AuthenticatorState::Eap { automaton, name } = &mut self.kind else {
            return Err(DropReason::Unsolicited);
        };
        // RFC 3748, 4: the authenticator relays packets of any method.
        let taken = automaton.handle_packet(now, octets);
        if taken
            && let Ok(packet) = EapPacket::parse(octets)
            && packet.kind() == Some(EapType::IDENTITY)
        {
            *name = packet.data().into();
        }
        self.drain_eap(out);
        taken.then_some(()).ok_or(DropReason::Unsolicited)
    }

    /// Applies the verdict on the proof; false if none is pending.
    pub(crate) fn apply_verdict(
        &mut self,
        now: Instant,
        verdict: ProofVerdict,
        out: &mut Vec<AuthenticatorOutput>,
    ) -> bool {
        if let AuthenticatorState::Eap { automaton, .. } = &mut self.kind {
            let taken = automaton.handle_aaa_reply(
                now,
                match &verdict {
                    ProofVerdict::Continue(packet) => EapAnswer::Request(packet),
                    ProofVerdict::Accept(packet) => EapAnswer::Success(packet),
                    ProofVerdict::Reject(packet) => EapAnswer::Failure(packet),
                    ProofVerdict::Unanswered => EapAnswer::Timeout,
                },
            );
            self.drain_eap(out);
            return taken;
        }
        let Some(identifier) = self.pending_identifier else { return false };
        let (accepted, mut message) = match verdict {
            ProofVerdict::Accept(message) => (true, message),
            ProofVerdict::Reject(message) => (false, message),
            ProofVerdict::Unanswered => {
                out.push(AuthenticatorOutput::Silent { peer: false });
                return true;
            }
            // Only EAP has further rounds, so PAP and CHAP ignore this verdict.
            ProofVerdict::Continue(_) => return false,
        };
        self.pending_identifier = None;
        let reply = match self.kind {
            AuthenticatorState::Chap { ms, .. } => {
                if ms && !accepted && !message.starts_with(b"E=") {
                    message = MS_CHAP_V2_REFUSAL.into();
                }
                chap_reply(identifier, accepted, &message, self.longest)
            }
            _ => pap_reply(identifier, accepted, &message, self.longest),
        };
        out.push(AuthenticatorOutput::Send(reply));
        out.push(if accepted { AuthenticatorOutput::Accepted } else { AuthenticatorOutput::Rejected });
        self.final_reply = Some(FinalAuthenticationReply { accepted, message });
        true
    }

    /// Applies the outputs of EAP's automaton.
    fn drain_eap(&mut self, out: &mut Vec<AuthenticatorOutput>) {
        let AuthenticatorState::Eap { automaton, name } = &mut self.kind else { return };
        if let Some(packet) = automaton.poll_transmit() {
            out.push(AuthenticatorOutput::Send(packet.into()));
        }
        if let Some(packet) = automaton.poll_aaa() {
            out.push(AuthenticatorOutput::VerifyProof {
                name: name.clone(),
                proof: AuthenticationProof::Eap(packet.into()),
            });
        }
        match automaton.poll_end() {
            None => {}
            Some(EapConversationOutcome::Success) => out.push(AuthenticatorOutput::Accepted),
            Some(EapConversationOutcome::Failure) => out.push(AuthenticatorOutput::Rejected),
            Some(EapConversationOutcome::PeerTimeout) => out.push(AuthenticatorOutput::Silent { peer: true }),
            Some(EapConversationOutcome::AaaTimeout) => out.push(AuthenticatorOutput::Silent { peer: false }),
        }
    }
}

fn pap_reply(identifier: u8, accepted: bool, message: &[u8], longest: usize) -> Vec<u8> {
    let message = &message[..message.len().min(PAP_MESSAGE).min(longest - HEADER - 1)];
    let data = [&[message.len() as u8], message].concat();
    ControlPacket { code: if accepted { pap::ACK } else { pap::NAK }, identifier, data: &data }.to_vec()
}

fn chap_reply(identifier: u8, accepted: bool, message: &[u8], longest: usize) -> Vec<u8> {
    let code: ControlCode = if accepted { chap::SUCCESS } else { chap::FAILURE };
    let data = &message[..message.len().min(MESSAGE).min(longest - HEADER)];
    ControlPacket { code, identifier, data }.to_vec()
}

/// Maximum octets of a CHAP message, so that the packet fits every link.
const MESSAGE: usize = 512 - HEADER;

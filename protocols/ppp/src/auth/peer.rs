//! The side that authenticates itself.

use super::message::{
    ChapPacketData, MsChapV2ResponseValue, PapRequest, chap, ms_chap_v2_error, pap, pap_message,
};
use super::{AuthenticationProtocol, PppCredentials};
use crate::packet::ControlPacket;
use crate::work;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, SecureRng, WallTime, WorkLabel};
use usher_crypto::digest::{constant_time_eq, md5};
use usher_crypto::legacy::mschap::{self, AUTHENTICATOR_RESPONSE_LEN};
use usher_crypto::legacy::nt_hash;
use usher_eap::peer::{EapPeer, EapPeerConfig, EapPeerEvent};

/// Codes of EAP packets (RFC 3748 §4).
const REQUEST: u8 = 1;
const SUCCESS: u8 = 3;
const FAILURE: u8 = 4;

/// An output of the authentication peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AuthenticationPeerOutput {
    /// Send this packet.
    Send(Vec<u8>),
    /// This side is authenticated.
    Accepted,
    /// This side is rejected, with the other side's message.
    Rejected(Vec<u8>),
    /// The other side does not prove that it knows the password (RFC 2759 §5).
    Impostor,
    /// The other side does not answer.
    Silent,
    /// The name or the password exceeds the protocol's length field.
    TooLong,
}

#[derive(Debug)]
enum AuthenticationPeerState {
    Pap {
        identifier: u8,
    },
    Chap {
        ms: bool,
        answer: Option<SentChapResponse>,
        done: bool,
    },
    Eap {
        peer: Box<EapPeer>,
        /// The identifier of the last EAP Request.
        last: Option<u8>,
    },
}

/// A response to a challenge, and the authenticator response expected for it.
#[derive(Debug)]
struct SentChapResponse {
    /// The data of the challenge.
    challenge: Vec<u8>,
    packet: Vec<u8>,
    identifier: u8,
    proof: Option<[u8; AUTHENTICATOR_RESPONSE_LEN]>,
}

/// The authentication of this side.
#[derive(Debug)]
pub(crate) struct AuthenticationPeer {
    kind: AuthenticationPeerState,
    timer: Duration,
    /// Retransmissions left.
    left: u32,
    due: Option<Instant>,
    pub(crate) worked: Vec<WorkLabel>,
}

impl AuthenticationPeer {
    pub(crate) fn new(
        protocol: AuthenticationProtocol,
        credentials: &PppCredentials,
        (timer, count): (Duration, u32),
        (now, wall): (Instant, WallTime),
        rng: &mut SecureRng,
    ) -> (Self, Vec<AuthenticationPeerOutput>) {
        let kind = match protocol {
            AuthenticationProtocol::Pap => {
                AuthenticationPeerState::Pap { identifier: rng.random_array::<1>()[0] }
            }
            AuthenticationProtocol::Chap => {
                AuthenticationPeerState::Chap { ms: false, answer: None, done: false }
            }
            AuthenticationProtocol::MsChapV2 => {
                AuthenticationPeerState::Chap { ms: true, answer: None, done: false }
            }
            AuthenticationProtocol::Eap => {
                let config = EapPeerConfig {
                    identity: credentials.name.clone(),
                    methods: credentials.eap_methods.clone(),
                    timeout: timer * u64::from(count),
                    wall,
                };
                let peer = Box::new(EapPeer::new(config, SecureRng::from_seed(rng.random_array()), now));
                AuthenticationPeerState::Eap { peer, last: None }
            }
        };
        let due = Some(now + timer * u64::from(count));
        let mut this = Self { kind, timer, left: count, due, worked: Vec::new() };
        let mut out = Vec::new();
        if let AuthenticationPeerState::Pap { .. } = this.kind {
            this.send_pap_request(now, credentials, &mut out);
        }
        (this, out)
    }

    /// Sends PAP's request with a new identifier (RFC 1334 §2.2.1).
    fn send_pap_request(
        &mut self,
        now: Instant,
        credentials: &PppCredentials,
        out: &mut Vec<AuthenticationPeerOutput>,
    ) {
        let AuthenticationPeerState::Pap { identifier } = &mut self.kind else { return };
        if self.left == 0 {
            self.due = None;
            return out.push(AuthenticationPeerOutput::Silent);
        }
        let request = PapRequest { name: &credentials.name, password: &credentials.password };
        if !request.fits_length_fields() {
            self.due = None;
            return out.push(AuthenticationPeerOutput::TooLong);
        }
        self.left -= 1;
        *identifier = identifier.wrapping_add(1);
        let mut data = Vec::new();
        request.emit(&mut data);
        out.push(AuthenticationPeerOutput::Send(
            ControlPacket { code: pap::REQUEST, identifier: *identifier, data: &data }.to_vec(),
        ));
        self.due = Some(now + self.timer);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match &self.kind {
            AuthenticationPeerState::Eap { peer, .. } => self.due.and(peer.poll_timeout()),
            _ => self.due,
        }
    }

    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        credentials: &PppCredentials,
        out: &mut Vec<AuthenticationPeerOutput>,
    ) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        match &mut self.kind {
            AuthenticationPeerState::Pap { .. } => self.send_pap_request(now, credentials, out),
            // RFC 1994, 4.1: the Success may be lost. A repeated response makes the authenticator repeat it.
            AuthenticationPeerState::Chap { answer: Some(answer), .. } if self.left > 0 => {
                self.left -= 1;
                self.due = Some(now + self.timer);
                out.push(AuthenticationPeerOutput::Send(answer.packet.clone()));
            }
            AuthenticationPeerState::Chap { .. } => {
                self.due = None;
                out.push(AuthenticationPeerOutput::Silent);
            }
            AuthenticationPeerState::Eap { peer, .. } => {
                peer.handle_timeout(now);
                self.drain_eap(out);
            }
        }
    }

    /// Handles a packet of the other side; false if it is dropped.
    pub(crate) fn receive_packet(
        &mut self,
        now: Instant,
        octets: &[u8],
        credentials: &PppCredentials,
        rng: &mut SecureRng,
        out: &mut Vec<AuthenticationPeerOutput>,
    ) -> bool {
        if let AuthenticationPeerState::Eap { peer, last } = &mut self.kind {
            let taken = peer.handle_packet(now, &with_request_identifier(octets, last));
            self.drain_eap(out);
            return taken;
        }
        let Ok(packet) = ControlPacket::parse(octets) else { return false };
        match &mut self.kind {
            AuthenticationPeerState::Pap { identifier } => {
                let open = self.due.is_some() && packet.identifier == *identifier;
                match packet.code {
                    pap::ACK if open => out.push(AuthenticationPeerOutput::Accepted),
                    pap::NAK if open => {
                        out.push(AuthenticationPeerOutput::Rejected(pap_message(packet.data).into()))
                    }
                    _ => return false,
                }
                self.due = None;
                true
            }
            AuthenticationPeerState::Chap { ms, answer, done } => match packet.code {
                // RFC 1994, 4.1: a challenge can come at any time.
                chap::CHALLENGE => {
                    let again = |sent: &&SentChapResponse| {
                        sent.identifier == packet.identifier && sent.challenge == packet.data
                    };
                    if let Some(sent) = answer.as_ref().filter(again) {
                        // A retransmitted challenge gets the same response, since the authenticator verifies the first
                        // that arrives.
                        out.push(AuthenticationPeerOutput::Send(sent.packet.clone()));
                        return true;
                    }
                    let Some(fresh) = respond_to_challenge(*ms, packet, credentials, rng) else {
                        return false;
                    };
                    self.worked.push(work::DIGEST);
                    out.push(AuthenticationPeerOutput::Send(fresh.packet.clone()));
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
                        given.is_some_and(|given| constant_time_eq(&given.to_ascii_uppercase(), &proof))
                    });
                    self.due = None;
                    out.push(match (packet.code, proved) {
                        (chap::SUCCESS, true) => {
                            // A repeated Success or Failure changes nothing.
                            if core::mem::replace(done, true) {
                                return true;
                            }
                            AuthenticationPeerOutput::Accepted
                        }
                        // RFC 2759, 5: a wrong authenticator response ends the session.
                        (chap::SUCCESS, false) => AuthenticationPeerOutput::Impostor,
                        _ => AuthenticationPeerOutput::Rejected(packet.data.into()),
                    });
                    true
                }
                _ => false,
            },
            AuthenticationPeerState::Eap { .. } => false,
        }
    }

    fn drain_eap(&mut self, out: &mut Vec<AuthenticationPeerOutput>) {
        let AuthenticationPeerState::Eap { peer, .. } = &mut self.kind else { return };
        while let Some(done) = peer.poll_work() {
            self.worked.push(done.label);
        }
        let mut packet = Vec::new();
        if peer.poll_transmit(&mut packet) {
            out.push(AuthenticationPeerOutput::Send(packet));
        }
        let Some(event) = peer.poll_event() else { return };
        self.due = None;
        out.push(match event {
            EapPeerEvent::Success { .. } => AuthenticationPeerOutput::Accepted,
            EapPeerEvent::Failure => AuthenticationPeerOutput::Rejected(Vec::new()),
            EapPeerEvent::Timeout => AuthenticationPeerOutput::Silent,
        });
    }
}

/// Returns the readable text of the other side's reject message.
pub(crate) fn refusal_text(message: &[u8]) -> Vec<u8> {
    match ms_chap_v2_error(message) {
        // RFC 2759, 6: the text after `M=` is for display.
        Some(_) => {
            let text = message.windows(2).position(|two| two == b"M=").map(|at| &message[at + 2..]);
            text.unwrap_or(message).into()
        }
        None => message.into(),
    }
}

fn respond_to_challenge(
    ms: bool,
    challenge: ControlPacket<'_>,
    credentials: &PppCredentials,
    rng: &mut SecureRng,
) -> Option<SentChapResponse> {
    let ChapPacketData { value, .. } =
        ChapPacketData::parse(challenge.data).ok().filter(|one| !one.value.is_empty())?;
    let (identifier, name) = (challenge.identifier, &credentials.name[..]);
    let (response, proof) = if ms {
        let challenge: [u8; 16] = value.try_into().ok()?;
        let (peer_challenge, hash) = (rng.random_array(), nt_hash(&credentials.password));
        let response = mschap::nt_response(&challenge, &peer_challenge, name, &hash);
        let proof = mschap::authenticator_response(&hash, &response, &peer_challenge, &challenge, name);
        (MsChapV2ResponseValue { peer_challenge, response }.to_octets().to_vec(), Some(proof))
    } else {
        (md5(&[&[identifier], &credentials.password, value]).to_vec(), None)
    };
    let mut data = Vec::new();
    ChapPacketData { value: &response, name }.emit(&mut data);
    let packet = ControlPacket { code: chap::RESPONSE, identifier, data: &data }.to_vec();
    Some(SentChapResponse { challenge: challenge.data.into(), packet, identifier, proof })
}

/// Corrects the identifier of an EAP packet. RFC 3748 §4.2: Success and Failure repeat the identifier of the answered
/// Request. pppd as a server sends the next identifier instead.
fn with_request_identifier<'a>(octets: &'a [u8], last: &mut Option<u8>) -> Cow<'a, [u8]> {
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
        assert_eq!(
            *with_request_identifier(&[SUCCESS, 8, 0, 4], &mut last),
            [SUCCESS, 8, 0, 4],
            "nothing was asked"
        );
        let request = [REQUEST, 255, 0, 5, 1];
        assert_eq!((*with_request_identifier(&request, &mut last)).to_vec(), request);
        assert_eq!(*with_request_identifier(&[SUCCESS, 0, 0, 4], &mut last), [SUCCESS, 255, 0, 4]);
        assert_eq!(*with_request_identifier(&[FAILURE, 255, 0, 4], &mut last), [FAILURE, 255, 0, 4]);
        assert_eq!(
            *with_request_identifier(&[SUCCESS, 1, 0, 4], &mut last),
            [SUCCESS, 1, 0, 4],
            "of no request"
        );
        assert!(with_request_identifier(&[], &mut last).is_empty());
    }
}

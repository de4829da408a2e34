//! Phase 2 of EAP-TTLS's peer.

use super::super::PeerMethodResult;
use super::super::connection::TlsConnection;
use super::super::tunnel::TunnelPeerPhase;
use super::avp::{self, TtlsAvpCode};
use super::{CHALLENGE, SHORT_CHALLENGE, TtlsInnerCredential, tunnel_challenge};
use crate::packet::{self, EapType};
use crate::peer::{EapPeer, EapPeerConfig};
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, SecureRng, WallTime, WorkRecord};
use usher_crypto::SecretValue;
use usher_crypto::digest::{constant_time_eq, md5};
use usher_crypto::legacy::{mschap, nt_hash};

/// The inner exchange of a run.
#[derive(Debug)]
enum TtlsInnerExchange {
    /// One message with the password or a proof of it.
    Once(TtlsInnerCredential),
    /// EAP. The outer conversation has the timer.
    Eap(Box<EapPeer>),
}

#[derive(Debug)]
enum TtlsPeerState {
    /// No AVP has been sent.
    Start,
    /// The proof has been sent. With MS-CHAP-V2, `expected` is the server's proof.
    ProofSent { expected: Option<Vec<u8>> },
    /// The exchange is complete.
    Done,
}

/// Phase 2 of a run.
#[derive(Debug)]
pub(crate) struct TtlsPeerPhase {
    identity: Vec<u8>,
    inner_exchange: TtlsInnerExchange,
    state: TtlsPeerState,
    rng: SecureRng,
}

impl TtlsPeerPhase {
    pub(crate) fn new(
        identity: Vec<u8>,
        proof: &TtlsInnerCredential,
        mut rng: SecureRng,
        wall: WallTime,
    ) -> Self {
        let way = match proof {
            TtlsInnerCredential::Eap(methods) => {
                let timeout = Duration::from_secs(1);
                let config =
                    EapPeerConfig { identity: identity.clone(), methods: methods.clone(), timeout, wall };
                let rng = SecureRng::from_seed(rng.random_array());
                TtlsInnerExchange::Eap(Box::new(EapPeer::new(config, rng, Instant::ZERO)))
            }
            once => TtlsInnerExchange::Once(once.clone()),
        };
        Self { identity, inner_exchange: way, state: TtlsPeerState::Start, rng }
    }

    /// Sends the identity and the proof.
    fn start_authentication(&mut self, conn: &TlsConnection, out: &mut Vec<u8>) -> PeerMethodResult {
        match &self.inner_exchange {
            // RFC 5281, 11.2.1: the peer starts as if the server had sent an Identity request.
            TtlsInnerExchange::Eap(_) => {
                self.state = TtlsPeerState::ProofSent { expected: None };
                let mut request = Vec::new();
                packet::emit_packet(&mut request, packet::EapCode::Request, 0, EapType::IDENTITY, &[]);
                self.answer_eap(&request, out)
            }
            TtlsInnerExchange::Once(proof) => {
                avp::emit_avp(out, TtlsAvpCode::USER_NAME, &self.identity);
                let Some(expected) = append_ttls_proof(proof, &self.identity, conn, &mut self.rng, out)
                else {
                    return PeerMethodResult::Failed;
                };
                let verdict =
                    if expected.is_some() { PeerMethodResult::Continue } else { PeerMethodResult::MayEnd };
                self.state = TtlsPeerState::ProofSent { expected };
                verdict
            }
        }
    }

    /// Answers an EAP request.
    fn answer_eap(&mut self, request: &[u8], out: &mut Vec<u8>) -> PeerMethodResult {
        let TtlsInnerExchange::Eap(peer) = &mut self.inner_exchange else { return PeerMethodResult::Failed };
        let mut response = Vec::new();
        if !peer.handle_packet(Instant::ZERO, request) {
            return PeerMethodResult::Ignore;
        }
        if !peer.poll_transmit(&mut response) {
            return PeerMethodResult::Failed;
        }
        avp::emit_avp(out, TtlsAvpCode::EAP_MESSAGE, &response);
        if peer.would_accept_success() { PeerMethodResult::MayEnd } else { PeerMethodResult::Continue }
    }
}

impl TunnelPeerPhase for TtlsPeerPhase {
    fn handle_empty(&mut self, conn: &TlsConnection, out: &mut Vec<u8>) -> PeerMethodResult {
        match self.state {
            TtlsPeerState::Start => self.start_authentication(conn, out),
            TtlsPeerState::ProofSent { .. } | TtlsPeerState::Done => PeerMethodResult::Ignore,
        }
    }

    fn handle_data(
        &mut self,
        _: u8,
        data: &[u8],
        conn: &TlsConnection,
        out: &mut Vec<u8>,
    ) -> PeerMethodResult {
        // RFC 9427, 3.3: the end of a resumed session, which has no phase 2.
        if data == [0] && conn.is_tls13() {
            let resumed = matches!(self.state, TtlsPeerState::Start) && conn.engine.is_resumed();
            self.state = TtlsPeerState::Done;
            return if resumed { PeerMethodResult::Done } else { PeerMethodResult::Failed };
        }
        let known = [
            TtlsAvpCode::EAP_MESSAGE,
            TtlsAvpCode::REPLY_MESSAGE,
            TtlsAvpCode::MS_CHAP2_SUCCESS,
            TtlsAvpCode::MS_CHAP_ERROR,
        ];
        let Some(avps) = avp::parse_avps(data) else { return PeerMethodResult::Failed };
        if avps.iter().any(|a| a.mandatory && !known.contains(&a.code)) {
            return PeerMethodResult::Failed;
        }
        match (&self.state, avp::join_eap_message(&avps)) {
            // In the state Start, the server begins EAP itself, with an Identity request of its own.
            (TtlsPeerState::Start | TtlsPeerState::ProofSent { expected: None }, Some(request))
                if matches!(self.inner_exchange, TtlsInnerExchange::Eap(_)) =>
            {
                self.state = TtlsPeerState::ProofSent { expected: None };
                self.answer_eap(&request, out)
            }
            (TtlsPeerState::ProofSent { expected: Some(expected) }, None) => {
                let right = avp::find_avp(&avps, TtlsAvpCode::MS_CHAP2_SUCCESS)
                    .is_some_and(|told| constant_time_eq(told, expected));
                self.state = TtlsPeerState::Done;
                if right { PeerMethodResult::Done } else { PeerMethodResult::Failed }
            }
            _ => PeerMethodResult::Failed,
        }
    }

    fn handshake_verdict(&self, conn: &TlsConnection) -> PeerMethodResult {
        // With TLS 1.2 a resumed session may end here, without phase 2. With TLS 1.3 the server sends the zero octet
        // first.
        if conn.engine.is_resumed() && !conn.is_tls13() {
            PeerMethodResult::MayEnd
        } else {
            PeerMethodResult::Continue
        }
    }

    fn poll_work(&mut self) -> Option<WorkRecord> {
        match &mut self.inner_exchange {
            TtlsInnerExchange::Eap(peer) => peer.poll_work(),
            TtlsInnerExchange::Once(_) => None,
        }
    }
}

/// Appends the proof. With MS-CHAP-V2 returns the expected value of MS-CHAP2-Success. `None` if the tunnel provides no
/// challenge.
fn append_ttls_proof(
    proof: &TtlsInnerCredential,
    identity: &[u8],
    conn: &TlsConnection,
    rng: &mut SecureRng,
    out: &mut Vec<u8>,
) -> Option<Option<Vec<u8>>> {
    /// User-Password is padded to a multiple of this length, octets (RFC 5281 §11.2.5).
    const BLOCK: usize = 16;
    match proof {
        TtlsInnerCredential::Pap(password) => {
            let mut padded = SecretValue::new(Vec::with_capacity(password.len() + BLOCK));
            padded.extend_from_slice(password);
            padded.resize(password.len().max(1).next_multiple_of(BLOCK), 0);
            avp::emit_avp(out, TtlsAvpCode::USER_PASSWORD, &padded);
        }
        TtlsInnerCredential::Chap(password) => {
            let (challenge, identifier) = tunnel_challenge::<CHALLENGE>(conn)?;
            avp::emit_avp(out, TtlsAvpCode::CHAP_CHALLENGE, &challenge);
            let response = md5(&[&[identifier], password, &challenge]);
            avp::emit_avp(out, TtlsAvpCode::CHAP_PASSWORD, &[&[identifier][..], &response].concat());
        }
        TtlsInnerCredential::MsChap(password) => {
            let (challenge, identifier) = tunnel_challenge::<SHORT_CHALLENGE>(conn)?;
            avp::emit_avp(out, TtlsAvpCode::MS_CHAP_CHALLENGE, &challenge);
            // The flag 1 selects the NT response. The LAN Manager response is left out: its octets are zero.
            let response = mschap::mschap_v1_response(&challenge, &nt_hash(password));
            avp::emit_avp(
                out,
                TtlsAvpCode::MS_CHAP_RESPONSE,
                &[&[identifier, 1][..], &[0; 24], &response].concat(),
            );
        }
        TtlsInnerCredential::MsChapV2(password) => {
            let (challenge, identifier) = tunnel_challenge::<CHALLENGE>(conn)?;
            avp::emit_avp(out, TtlsAvpCode::MS_CHAP_CHALLENGE, &challenge);
            let peer: [u8; CHALLENGE] = rng.random_array();
            let hash = nt_hash(password);
            let response = mschap::nt_response(&challenge, &peer, identity, &hash);
            let value = [&[identifier, 0][..], &peer, &[0; 8], &response].concat();
            avp::emit_avp(out, TtlsAvpCode::MS_CHAP2_RESPONSE, &value);
            let text = mschap::authenticator_response(&hash, &response, &peer, &challenge, identity);
            return Some(Some([&[identifier][..], &text].concat()));
        }
        TtlsInnerCredential::Eap(_) => return None,
    }
    Some(None)
}

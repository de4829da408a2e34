//! Phase 2 of EAP-TTLS's peer.

use super::super::PeerVerdict;
use super::super::connection::TlsConnection;
use super::super::tunnel::PeerPhase;
use super::avp::{self, Code};
use super::{CHALLENGE, Proof, SHORT_CHALLENGE, challenge};
use crate::packet::{self, Type};
use crate::peer::{Config, Peer};
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, SecureRng, WallTime, Work};
use usher_crypto::Key;
use usher_crypto::digest::{equal, md5};
use usher_crypto::legacy::{mschap, nt_hash};

/// What is said inside.
#[derive(Debug)]
enum Way {
    /// One message that shows the password, or that it is known.
    Once(Proof),
    /// EAP, which has no clock of its own.
    Eap(Box<Peer>),
}

#[derive(Debug)]
enum State {
    /// Nothing was said yet.
    Start,
    /// The proof was given; with MS-CHAP-V2 this is what the server has to say to it.
    Said { expected: Option<Vec<u8>> },
    /// All is said.
    Done,
}

/// Phase 2 of one run.
#[derive(Debug)]
pub(crate) struct Phase {
    identity: Vec<u8>,
    way: Way,
    state: State,
    rng: SecureRng,
}

impl Phase {
    pub(crate) fn new(identity: Vec<u8>, proof: &Proof, mut rng: SecureRng, wall: WallTime) -> Self {
        let way = match proof {
            Proof::Eap(methods) => {
                let timeout = Duration::from_secs(1);
                let config = Config { identity: identity.clone(), methods: methods.clone(), timeout, wall };
                let rng = SecureRng::from_seed(rng.array());
                Way::Eap(Box::new(Peer::new(config, rng, Instant::ZERO)))
            }
            once => Way::Once(once.clone()),
        };
        Self { identity, way, state: State::Start, rng }
    }

    /// Says who we are and how we can show it.
    fn start(&mut self, conn: &TlsConnection, out: &mut Vec<u8>) -> PeerVerdict {
        match &self.way {
            // The server's Identity request is taken as sent (RFC 5281 §11.2.1).
            Way::Eap(_) => {
                self.state = State::Said { expected: None };
                let mut request = Vec::new();
                packet::emit(&mut request, packet::Code::Request, 0, Type::IDENTITY, &[]);
                self.eap(&request, out)
            }
            Way::Once(proof) => {
                avp::emit(out, Code::USER_NAME, &self.identity);
                let Some(expected) = prove(proof, &self.identity, conn, &mut self.rng, out) else {
                    return PeerVerdict::Failed;
                };
                let verdict = if expected.is_some() { PeerVerdict::Continue } else { PeerVerdict::MayEnd };
                self.state = State::Said { expected };
                verdict
            }
        }
    }

    /// Has EAP answer a request.
    fn eap(&mut self, request: &[u8], out: &mut Vec<u8>) -> PeerVerdict {
        let Way::Eap(peer) = &mut self.way else { return PeerVerdict::Failed };
        let mut response = Vec::new();
        if !peer.handle(Instant::ZERO, request) {
            return PeerVerdict::Ignore;
        }
        if !peer.poll_transmit(&mut response) {
            return PeerVerdict::Failed;
        }
        avp::emit(out, Code::EAP_MESSAGE, &response);
        if peer.content() { PeerVerdict::MayEnd } else { PeerVerdict::Continue }
    }
}

impl PeerPhase for Phase {
    fn nothing(&mut self, conn: &TlsConnection, out: &mut Vec<u8>) -> PeerVerdict {
        match self.state {
            State::Start => self.start(conn, out),
            State::Said { .. } | State::Done => PeerVerdict::Ignore,
        }
    }

    fn data(&mut self, _: u8, data: &[u8], conn: &TlsConnection, out: &mut Vec<u8>) -> PeerVerdict {
        // The end of a resumed session, whose phase 2 is left out (RFC 9427 §3.3).
        if data == [0] && conn.is_13() {
            let resumed = matches!(self.state, State::Start) && conn.engine.resumed();
            self.state = State::Done;
            return if resumed { PeerVerdict::Done } else { PeerVerdict::Failed };
        }
        let known = [Code::EAP_MESSAGE, Code::REPLY_MESSAGE, Code::MS_CHAP2_SUCCESS, Code::MS_CHAP_ERROR];
        let Some(avps) = avp::read(data) else { return PeerVerdict::Failed };
        if avps.iter().any(|a| a.mandatory && !known.contains(&a.code)) {
            return PeerVerdict::Failed;
        }
        match (&self.state, avp::eap(&avps)) {
            // A server may begin by itself, with an Identity request.
            (State::Start | State::Said { expected: None }, Some(request))
                if matches!(self.way, Way::Eap(_)) =>
            {
                self.state = State::Said { expected: None };
                self.eap(&request, out)
            }
            (State::Said { expected: Some(expected) }, None) => {
                let right =
                    avp::find(&avps, Code::MS_CHAP2_SUCCESS).is_some_and(|told| equal(told, expected));
                self.state = State::Done;
                if right { PeerVerdict::Done } else { PeerVerdict::Failed }
            }
            _ => PeerVerdict::Failed,
        }
    }

    fn established(&self, conn: &TlsConnection) -> PeerVerdict {
        // With TLS 1.2 a resumed session may end here; TLS 1.3 says so.
        if conn.engine.resumed() && !conn.is_13() { PeerVerdict::MayEnd } else { PeerVerdict::Continue }
    }

    fn poll_work(&mut self) -> Option<Work> {
        match &mut self.way {
            Way::Eap(peer) => peer.poll_work(),
            Way::Once(_) => None,
        }
    }
}

/// Appends the proof; with MS-CHAP-V2 tells what the server's MS-CHAP2-Success has to say. `None` where the tunnel gives
/// no challenge.
fn prove(
    proof: &Proof,
    identity: &[u8],
    conn: &TlsConnection,
    rng: &mut SecureRng,
    out: &mut Vec<u8>,
) -> Option<Option<Vec<u8>>> {
    /// User-Password is padded to a multiple of this (RFC 5281 §11.2.5).
    const BLOCK: usize = 16;
    match proof {
        Proof::Pap(password) => {
            let mut padded = Key::new(Vec::with_capacity(password.len() + BLOCK));
            padded.extend_from_slice(password);
            padded.resize(password.len().max(1).next_multiple_of(BLOCK), 0);
            avp::emit(out, Code::USER_PASSWORD, &padded);
        }
        Proof::Chap(password) => {
            let (challenge, identifier) = challenge::<CHALLENGE>(conn)?;
            avp::emit(out, Code::CHAP_CHALLENGE, &challenge);
            let response = md5(&[&[identifier], password, &challenge]);
            avp::emit(out, Code::CHAP_PASSWORD, &[&[identifier][..], &response].concat());
        }
        Proof::MsChap(password) => {
            let (challenge, identifier) = challenge::<SHORT_CHALLENGE>(conn)?;
            avp::emit(out, Code::MS_CHAP_CHALLENGE, &challenge);
            // The flag says that the NT response is to be used; the LAN Manager response is left out.
            let response = mschap::v1_response(&challenge, &nt_hash(password));
            avp::emit(out, Code::MS_CHAP_RESPONSE, &[&[identifier, 1][..], &[0; 24], &response].concat());
        }
        Proof::MsChapV2(password) => {
            let (challenge, identifier) = challenge::<CHALLENGE>(conn)?;
            avp::emit(out, Code::MS_CHAP_CHALLENGE, &challenge);
            let peer: [u8; CHALLENGE] = rng.array();
            let hash = nt_hash(password);
            let response = mschap::nt_response(&challenge, &peer, identity, &hash);
            let value = [&[identifier, 0][..], &peer, &[0; 8], &response].concat();
            avp::emit(out, Code::MS_CHAP2_RESPONSE, &value);
            let text = mschap::authenticator_response(&hash, &response, &peer, &challenge, identity);
            return Some(Some([&[identifier][..], &text].concat()));
        }
        Proof::Eap(_) => return None,
    }
    Some(None)
}

//! EAP-MSCHAPv2 (draft-kamath-pppext-eap-mschapv2-02): MS-CHAPv2 (RFC 2759) in EAP. Both sides prove that they know the
//! password. Its keys (RFC 3079) are as weak as the handshake, so it belongs inside a TLS tunnel.
//!
//! Type data: OpCode, MS-CHAPv2-ID, MS-Length (of all type data), value. Values:
//!
//! - Challenge: its size, 16 octets and the server's name.
//! - Response: its size, peer challenge, eight zeros, NT response, flags and the user's name.
//! - Success and Failure requests: a text. Their responses are the OpCode alone.

use super::{
    EapMethodContext, PeerMethod, PeerMethodFactory, PeerMethodResult, ServerMethod, ServerMethodFactory,
    ServerMethodFailure, ServerMethodResult, UserSecret,
};
use crate::EapKeys;
use crate::packet::EapType;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, WorkRecord};
use usher_crypto::SecretValue;
use usher_crypto::digest::constant_time_eq;
use usher_crypto::legacy::mschap::{self, AUTHENTICATOR_RESPONSE_LEN, MppeKeys, RESPONSE_LEN};
use usher_crypto::legacy::{NT_HASH_LEN, nt_hash};

const CHALLENGE: u8 = 1;
const RESPONSE: u8 = 2;
const SUCCESS: u8 = 3;
const FAILURE: u8 = 4;

/// Octets before the value.
const HEADER: usize = 4;
/// Octets of a challenge.
const CHALLENGE_LEN: usize = 16;
/// Octets of a response's value: peer challenge, zeros, NT response, flags.
const VALUE_LEN: usize = CHALLENGE_LEN + 8 + RESPONSE_LEN + 1;
/// The server's name in a Challenge.
const SERVER_NAME: &[u8] = b"usher";
/// ERROR_AUTHENTICATION_FAILURE without a retry (RFC 2759 §6).
const REFUSAL: &[u8] = b"E=691 R=0 V=3 M=Authentication failed";
/// The work of one side of a handshake.
const WORK: WorkRecord = WorkRecord { label: crate::work::MSCHAPV2, units: 1 };

/// The session key of EAP-MSCHAPv2: the server's receive key, its send key and zeros.
fn eap_keys_from_mppe(of: &MppeKeys) -> EapKeys {
    let mut keys = EapKeys { msk: [0; 64].into(), emsk: [0; 64].into(), session_id: None };
    keys.msk[..16].copy_from_slice(&*of.recv);
    keys.msk[16..32].copy_from_slice(&*of.send);
    keys
}

/// Appends the type data with this value.
fn emit_message(out: &mut Vec<u8>, op: u8, id: u8, value: &[&[u8]]) {
    let length = HEADER + value.iter().map(|part| part.len()).sum::<usize>();
    out.extend_from_slice(&[op, id, (length >> 8) as u8, length as u8]);
    for part in value {
        out.extend_from_slice(part);
    }
}

/// Parses OpCode, MS-CHAPv2-ID and value. `None` if a length is wrong.
fn parse_message(data: &[u8]) -> Option<(u8, u8, &[u8])> {
    let mut r = OctetReader::new(data);
    let (op, id, length) = (r.read_u8().ok()?, r.read_u8().ok()?, usize::from(r.read_u16().ok()?));
    (length == data.len()).then(|| (op, id, r.take_rest()))
}

/// A peer's user name and NT hash.
#[derive(Clone)]
pub struct MsChapV2Account {
    name: Arc<[u8]>,
    hash: SecretValue<[u8; NT_HASH_LEN]>,
}

impl MsChapV2Account {
    /// Takes the user name as it enters the response, without the domain, and the password.
    #[must_use]
    pub fn new(name: &[u8], password: &[u8]) -> Self {
        Self { name: name.into(), hash: nt_hash(password).into() }
    }
}

impl fmt::Debug for MsChapV2Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Account(..)")
    }
}

impl PeerMethodFactory for MsChapV2Account {
    fn kind(&self) -> EapType {
        EapType::MSCHAPV2
    }
    fn start_peer_method(&self, context: EapMethodContext<'_>) -> Box<dyn PeerMethod> {
        Box::new(MsChapV2Peer {
            account: self.clone(),
            challenge: context.rng.random_array(),
            sent: None,
            done: false,
            worked: 0,
        })
    }
}

#[derive(Debug)]
struct MsChapV2Peer {
    account: MsChapV2Account,
    /// The peer's challenge.
    challenge: [u8; CHALLENGE_LEN],
    /// The server's challenge and our response to it.
    sent: Option<([u8; CHALLENGE_LEN], [u8; RESPONSE_LEN])>,
    /// True if the server has proven itself.
    done: bool,
    worked: u32,
}

impl MsChapV2Peer {
    fn answer_challenge(&mut self, id: u8, value: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let mut r = OctetReader::new(value);
        (r.read_u8().ok()? == CHALLENGE_LEN as u8).then_some(())?;
        let theirs: [u8; CHALLENGE_LEN] = r.read_bytes(CHALLENGE_LEN).ok()?.try_into().ok()?;
        let MsChapV2Account { name, hash } = &self.account;
        let response = mschap::nt_response(&theirs, &self.challenge, name, hash);
        self.sent = Some((theirs, response));
        self.worked += 1;
        let parts: [&[u8]; 6] = [&[VALUE_LEN as u8], &self.challenge, &[0; 8], &response, &[0], name];
        emit_message(out, RESPONSE, id, &parts);
        Some(())
    }

    /// True if the text of a Success request begins with the proof that the server knows the password.
    fn is_proof_valid(&self, text: &[u8]) -> bool {
        let Some((theirs, response)) = &self.sent else { return false };
        let MsChapV2Account { name, hash } = &self.account;
        let want = mschap::authenticator_response(hash, response, &self.challenge, theirs, name);
        text.get(..AUTHENTICATOR_RESPONSE_LEN)
            .is_some_and(|given| constant_time_eq(&given.to_ascii_uppercase(), &want))
    }
}

impl PeerMethod for MsChapV2Peer {
    fn handle_request(&mut self, _: u8, data: &[u8], out: &mut Vec<u8>) -> PeerMethodResult {
        let Some((op, id, value)) = parse_message(data) else { return PeerMethodResult::Ignore };
        match op {
            CHALLENGE if !self.done => match self.answer_challenge(id, value, out) {
                Some(()) => PeerMethodResult::Continue,
                None => PeerMethodResult::Ignore,
            },
            SUCCESS if self.sent.is_some() => {
                if !self.is_proof_valid(value) {
                    return PeerMethodResult::Failed;
                }
                self.done = true;
                out.push(SUCCESS);
                PeerMethodResult::Done
            }
            FAILURE if self.sent.is_some() && !self.done => {
                out.push(FAILURE);
                PeerMethodResult::Failed
            }
            _ => PeerMethodResult::Ignore,
        }
    }
    fn keys(&self) -> Option<EapKeys> {
        let (_, response) = self.sent.as_ref().filter(|_| self.done)?;
        Some(eap_keys_from_mppe(&mschap::mppe_keys(&self.account.hash, response)))
    }
    fn poll_work(&mut self) -> Option<WorkRecord> {
        self.worked = self.worked.checked_sub(1)?;
        Some(WORK)
    }
}

/// The server's side for one user. It computes a missing NT hash only when the method starts, since a peer may refuse
/// the method.
#[derive(Clone)]
pub struct MsChapV2ServerFactory(NtHashSource);

#[derive(Clone)]
enum NtHashSource {
    Hash(SecretValue<[u8; NT_HASH_LEN]>),
    Password(SecretValue),
}

impl MsChapV2ServerFactory {
    /// Returns the method for a user with this secret. `None` if only the host can compare, since the handshake needs
    /// the hash.
    #[must_use]
    pub fn new(secret: &UserSecret) -> Option<Self> {
        Some(Self(match secret {
            UserSecret::Clear(password) => NtHashSource::Password(password.clone()),
            UserSecret::NtHash(hash) => NtHashSource::Hash(hash.clone()),
            UserSecret::Hashed => return None,
        }))
    }
}

impl fmt::Debug for MsChapV2ServerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash(..)")
    }
}

impl ServerMethodFactory for MsChapV2ServerFactory {
    fn kind(&self) -> EapType {
        EapType::MSCHAPV2
    }
    fn start_server_method(&self, context: EapMethodContext<'_>) -> Box<dyn ServerMethod> {
        let stage = MsChapV2Stage::Challenge;
        let hash = match &self.0 {
            NtHashSource::Hash(hash) => hash.clone(),
            NtHashSource::Password(password) => nt_hash(password).into(),
        };
        Box::new(MsChapV2Server { hash, challenge: context.rng.random_array(), id: 0, stage, worked: 0 })
    }
}

/// The server's next message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MsChapV2Stage {
    Challenge,
    /// The peer's response is right, and the server proves that it knows the password.
    Success([u8; AUTHENTICATOR_RESPONSE_LEN], [u8; RESPONSE_LEN]),
    Failure,
}

struct MsChapV2Server {
    hash: SecretValue<[u8; NT_HASH_LEN]>,
    challenge: [u8; CHALLENGE_LEN],
    /// MS-CHAPv2-ID of the challenge.
    id: u8,
    stage: MsChapV2Stage,
    worked: u32,
}

impl fmt::Debug for MsChapV2Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MsChapV2Server(..)")
    }
}

impl MsChapV2Server {
    fn check_response(&mut self, value: &[u8]) -> Option<MsChapV2Stage> {
        let mut r = OctetReader::new(value);
        (r.read_u8().ok()? == VALUE_LEN as u8).then_some(())?;
        let peer: [u8; CHALLENGE_LEN] = r.read_bytes(CHALLENGE_LEN).ok()?.try_into().ok()?;
        r.read_bytes(8).ok()?;
        let given: [u8; RESPONSE_LEN] = r.read_bytes(RESPONSE_LEN).ok()?.try_into().ok()?;
        r.read_u8().ok()?;
        let name = r.take_rest();
        self.worked += 1;
        let right = mschap::nt_response(&self.challenge, &peer, name, &self.hash);
        if !constant_time_eq(&right, &given) {
            return Some(MsChapV2Stage::Failure);
        }
        let proof = mschap::authenticator_response(&self.hash, &given, &peer, &self.challenge, name);
        Some(MsChapV2Stage::Success(proof, given))
    }
}

impl ServerMethod for MsChapV2Server {
    fn build_request(&mut self, identifier: u8, out: &mut Vec<u8>) {
        match &self.stage {
            MsChapV2Stage::Challenge => {
                self.id = identifier;
                let parts: [&[u8]; 3] = [&[CHALLENGE_LEN as u8], &self.challenge, SERVER_NAME];
                emit_message(out, CHALLENGE, self.id, &parts);
            }
            MsChapV2Stage::Success(proof, _) => emit_message(out, SUCCESS, self.id, &[&proof[..], b" M=OK"]),
            MsChapV2Stage::Failure => emit_message(out, FAILURE, self.id, &[REFUSAL]),
        }
    }
    fn handle_response(&mut self, _: u8, data: &[u8]) -> ServerMethodResult {
        match (self.stage, data.first()) {
            (MsChapV2Stage::Challenge, Some(&RESPONSE)) => {
                let value =
                    parse_message(data).filter(|(_, id, _)| *id == self.id).map(|(_, _, value)| value);
                let Some(stage) = value.and_then(|v| self.check_response(v)) else {
                    return ServerMethodResult::Ignore;
                };
                self.stage = stage;
                ServerMethodResult::Continue
            }
            (MsChapV2Stage::Success(..), Some(&SUCCESS)) => ServerMethodResult::Success,
            // After a Failure request the run fails, whatever the peer responds. It also fails if the peer rejects the
            // server's proof.
            (MsChapV2Stage::Failure, _) | (MsChapV2Stage::Success(..), Some(&FAILURE)) => {
                ServerMethodResult::Failure
            }
            _ => ServerMethodResult::Ignore,
        }
    }
    fn is_refusing(&self) -> bool {
        self.stage == MsChapV2Stage::Failure
    }
    fn fault(&self) -> ServerMethodFailure {
        // In the stage Success the peer's proof was right, but the peer did not agree. So the password is not the
        // fault.
        if matches!(self.stage, MsChapV2Stage::Success(..)) {
            ServerMethodFailure::Rules
        } else {
            ServerMethodFailure::Proof
        }
    }
    fn keys(&self) -> Option<EapKeys> {
        match &self.stage {
            MsChapV2Stage::Success(_, response) => {
                Some(eap_keys_from_mppe(&mschap::mppe_keys(&self.hash, response)))
            }
            MsChapV2Stage::Challenge | MsChapV2Stage::Failure => None,
        }
    }
    fn poll_work(&mut self) -> Option<WorkRecord> {
        self.worked = self.worked.checked_sub(1)?;
        Some(WORK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use usher_core::{SecureRng, Seed, WallTime};

    fn test_context(rng: &mut SecureRng) -> EapMethodContext<'_> {
        EapMethodContext {
            rng,
            wall: WallTime::from_unix_secs(0),
            mtu: None,
            without_extended_master_secret: false,
        }
    }

    fn start_mschapv2_pair(
        user: &str,
        right: &[u8],
        given: &[u8],
    ) -> (Box<dyn PeerMethod>, Box<dyn ServerMethod>) {
        let mut rng = Seed::new(1).derive_secure_rng("mschapv2", 0);
        let peer = PeerMethodFactory::start_peer_method(
            &MsChapV2Account::new(user.as_bytes(), given),
            test_context(&mut rng),
        );
        let hash = MsChapV2ServerFactory::new(&UserSecret::Clear(right[..].into())).unwrap();
        (peer, ServerMethodFactory::start_server_method(&hash, test_context(&mut rng)))
    }

    /// Runs one request and its response.
    fn run_mschapv2_round(
        id: u8,
        peer: &mut dyn PeerMethod,
        server: &mut dyn ServerMethod,
    ) -> (PeerMethodResult, ServerMethodResult) {
        let (mut request, mut response) = (Vec::new(), Vec::new());
        server.build_request(id, &mut request);
        let verdict = peer.handle_request(id, &request, &mut response);
        (verdict, server.handle_response(id, &response))
    }

    #[test]
    fn both_sides_prove_the_password_and_share_a_key() {
        let (mut peer, mut server) = start_mschapv2_pair("DOMAIN\\User", b"clientPass", b"clientPass");
        assert!(peer.keys().is_none() && server.keys().is_none());
        assert_eq!(
            run_mschapv2_round(5, &mut *peer, &mut *server),
            (PeerMethodResult::Continue, ServerMethodResult::Continue)
        );
        assert_eq!(
            run_mschapv2_round(6, &mut *peer, &mut *server),
            (PeerMethodResult::Done, ServerMethodResult::Success)
        );
        let key = server.keys().unwrap();
        assert_eq!(peer.keys().as_ref(), Some(&key));
        assert!(key.msk[..32] != [0; 32] && key.msk[32..] == [0; 32]);
        assert_eq!((peer.poll_work(), peer.poll_work()), (Some(WORK), None));
        assert_eq!((server.poll_work(), server.poll_work()), (Some(WORK), None));
    }

    #[test]
    fn a_wrong_password_is_refused_and_gives_no_key() {
        let (mut peer, mut server) = start_mschapv2_pair("User", b"right", b"wrong");
        assert_eq!(
            run_mschapv2_round(5, &mut *peer, &mut *server),
            (PeerMethodResult::Continue, ServerMethodResult::Continue)
        );
        assert_eq!(
            run_mschapv2_round(6, &mut *peer, &mut *server),
            (PeerMethodResult::Failed, ServerMethodResult::Failure)
        );
        assert!(peer.keys().is_none() && server.keys().is_none());
    }

    #[test]
    fn a_server_without_the_password_does_not_convince() {
        let (mut peer, mut server) = start_mschapv2_pair("User", b"right", b"right");
        run_mschapv2_round(5, &mut *peer, &mut *server);
        let mut request = Vec::new();
        server.build_request(6, &mut request);
        request[10] ^= 1;
        assert_eq!(peer.handle_request(6, &request, &mut Vec::new()), PeerMethodResult::Failed);
        assert!(peer.keys().is_none());
    }

    #[test]
    fn a_success_without_a_challenge_is_ignored() {
        let (mut peer, _) = start_mschapv2_pair("User", b"right", b"right");
        let mut request = Vec::new();
        emit_message(&mut request, SUCCESS, 1, &[b"S=0000000000000000000000000000000000000000"]);
        assert_eq!(peer.handle_request(1, &request, &mut Vec::new()), PeerMethodResult::Ignore);
    }

    #[test]
    fn a_hash_that_only_the_host_knows_cannot_be_offered() {
        assert!(MsChapV2ServerFactory::new(&UserSecret::Hashed).is_none());
        assert!(MsChapV2ServerFactory::new(&UserSecret::NtHash([1; 16].into())).is_some());
    }

    proptest! {
        #[test]
        fn nothing_from_outside_upsets_either_side(data in vec(any::<u8>(), 0..120), op in 0_u8..8, rounds in 0_u8..2) {
            let (mut peer, mut server) = start_mschapv2_pair("User", b"right", b"right");
            for id in 0..rounds {
                run_mschapv2_round(id, &mut *peer, &mut *server);
            }
            let mut framed = Vec::new();
            emit_message(&mut framed, op, rounds, &[&data]);
            for bytes in [&data, &framed] {
                let _ = peer.handle_request(9, bytes, &mut Vec::new());
                prop_assert!(server.handle_response(9, bytes) != ServerMethodResult::Success || bytes.first() == Some(&SUCCESS) && rounds == 1);
            }
        }
    }
}

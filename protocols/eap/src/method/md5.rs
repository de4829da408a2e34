//! EAP-MD5-Challenge (RFC 3748 §5.4): proves knowledge of a password and derives no keys.
//!
//! Type data: Value-Size, Value, Name. The response's value is MD5(identifier, password, challenge), as in
//! CHAP (RFC 1994 §4.1).

use super::{
    EapMethodContext, PeerMethod, PeerMethodFactory, PeerMethodResult, ServerMethod, ServerMethodFactory,
    ServerMethodResult,
};
use crate::packet::EapType;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, WorkRecord};
use usher_crypto::SecretValue;
use usher_crypto::digest::{constant_time_eq, md5};

/// Octets of our challenge and of every response.
const VALUE: usize = 16;
/// The work of one digest.
const WORK: WorkRecord = WorkRecord { label: crate::work::MD5, units: 1 };

/// Reads Value-Size and Value, and ignores the Name after them.
fn read_value(data: &[u8]) -> Option<&[u8]> {
    let mut r = OctetReader::new(data);
    let size = r.read_u8().ok().filter(|n| *n > 0)?;
    r.read_bytes(usize::from(size)).ok()
}

/// A password for a peer, or for the server of one user. Clones share the memory, and the last one to drop overwrites
/// it.
#[derive(Clone)]
pub struct EapMd5Password(Arc<SecretValue>);

impl EapMd5Password {
    /// Takes the clear password, as CHAP needs it.
    #[must_use]
    pub fn new(password: &[u8]) -> Self {
        Self(Arc::new(password.into()))
    }
}
impl From<Arc<SecretValue>> for EapMd5Password {
    fn from(password: Arc<SecretValue>) -> Self {
        Self(password)
    }
}
impl EapMd5Password {
    /// Returns a peer's method that sends this name in its responses, as CHAP does. Servers such as pppd look the
    /// password up by that name and reject a response without it. Other servers use EAP's identity.
    #[must_use]
    pub fn with_name(self, name: &[u8]) -> EapMd5Account {
        EapMd5Account { name: name.into(), password: self }
    }
}
/// A password with the user's name; see [`EapMd5Password::with_name`].
#[derive(Clone, Debug)]
pub struct EapMd5Account {
    name: Arc<[u8]>,
    password: EapMd5Password,
}
impl fmt::Debug for EapMd5Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

impl PeerMethodFactory for EapMd5Password {
    fn kind(&self) -> EapType {
        EapType::MD5
    }
    fn start_peer_method(&self, _: EapMethodContext<'_>) -> Box<dyn PeerMethod> {
        Box::new(Md5Peer { password: self.clone(), name: Arc::default(), worked: 0 })
    }
}

impl PeerMethodFactory for EapMd5Account {
    fn kind(&self) -> EapType {
        EapType::MD5
    }
    fn start_peer_method(&self, _: EapMethodContext<'_>) -> Box<dyn PeerMethod> {
        Box::new(Md5Peer { password: self.password.clone(), name: self.name.clone(), worked: 0 })
    }
}

impl ServerMethodFactory for EapMd5Password {
    fn kind(&self) -> EapType {
        EapType::MD5
    }
    fn start_server_method(&self, context: EapMethodContext<'_>) -> Box<dyn ServerMethod> {
        Box::new(Md5Server { password: self.clone(), challenge: context.rng.random_array(), worked: 0 })
    }
}

#[derive(Debug)]
struct Md5Peer {
    password: EapMd5Password,
    name: Arc<[u8]>,
    worked: u32,
}

impl PeerMethod for Md5Peer {
    fn handle_request(&mut self, identifier: u8, data: &[u8], out: &mut Vec<u8>) -> PeerMethodResult {
        let Some(challenge) = read_value(data) else { return PeerMethodResult::Ignore };
        out.reserve(1 + VALUE + self.name.len());
        out.push(VALUE as u8);
        out.extend_from_slice(&md5(&[&[identifier], &self.password.0, challenge]));
        out.extend_from_slice(&self.name);
        self.worked += 1;
        // The server decides; another challenge may follow (RFC 4137 §4.2, MAY_CONT).
        PeerMethodResult::MayEnd
    }
    fn poll_work(&mut self) -> Option<WorkRecord> {
        self.worked = self.worked.checked_sub(1)?;
        Some(WORK)
    }
}

#[derive(Debug)]
struct Md5Server {
    password: EapMd5Password,
    challenge: [u8; VALUE],
    worked: u32,
}

impl ServerMethod for Md5Server {
    fn build_request(&mut self, _: u8, out: &mut Vec<u8>) {
        out.reserve(1 + VALUE);
        out.push(VALUE as u8);
        out.extend_from_slice(&self.challenge);
    }
    fn handle_response(&mut self, identifier: u8, data: &[u8]) -> ServerMethodResult {
        let Some(answer) = read_value(data) else { return ServerMethodResult::Ignore };
        self.worked += 1;
        let expected = md5(&[&[identifier], &self.password.0, &self.challenge]);
        if constant_time_eq(answer, &expected) {
            ServerMethodResult::Success
        } else {
            ServerMethodResult::Failure
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
    use usher_core::{Seed, WallTime};

    /// Computed by hand: `printf '\x07pencilABCDEFGHIJKLMNOP' | md5sum`.
    const RESPONSE: [u8; 16] =
        [0xb3, 0xd4, 0x78, 0x76, 0xa8, 0x17, 0x06, 0x14, 0x49, 0xeb, 0x82, 0xd5, 0x7b, 0x7e, 0xa9, 0xd8];

    #[test]
    fn the_response_digests_identifier_password_and_challenge() {
        let mut rng = Seed::new(1).derive_secure_rng("md5", 0);
        let context = EapMethodContext {
            rng: &mut rng,
            wall: WallTime::from_unix_secs(0),
            mtu: None,
            without_extended_master_secret: false,
        };
        let mut peer = PeerMethodFactory::start_peer_method(&EapMd5Password::new(b"pencil"), context);
        let mut out = Vec::new();
        let request = [&[16][..], b"ABCDEFGHIJKLMNOPname"].concat();
        assert_eq!(peer.handle_request(7, &request, &mut out), PeerMethodResult::MayEnd);
        assert_eq!(out, [&[16][..], &RESPONSE].concat());
        assert_eq!((peer.poll_work(), peer.poll_work()), (Some(WORK), None));
        let context = EapMethodContext {
            rng: &mut rng,
            wall: WallTime::from_unix_secs(0),
            mtu: None,
            without_extended_master_secret: false,
        };
        let mut named =
            PeerMethodFactory::start_peer_method(&EapMd5Password::new(b"pencil").with_name(b"ann"), context);
        let mut out = Vec::new();
        named.handle_request(7, &request, &mut out);
        assert_eq!(out, [&[16][..], &RESPONSE, b"ann"].concat());
    }

    #[test]
    fn the_server_knows_right_from_wrong_and_from_nonsense() {
        let mut rng = Seed::new(1).derive_secure_rng("md5", 0);
        let password = EapMd5Password::new(b"pencil");
        let context = EapMethodContext {
            rng: &mut rng,
            wall: WallTime::from_unix_secs(0),
            mtu: None,
            without_extended_master_secret: false,
        };
        let mut server = ServerMethodFactory::start_server_method(&password, context);
        let mut challenge = Vec::new();
        server.build_request(9, &mut challenge);
        let digest = md5(&[&[9], b"pencil", &challenge[1..]]);
        for nonsense in [&[][..], &[0], &[16, 1, 2]] {
            assert_eq!(server.handle_response(9, nonsense), ServerMethodResult::Ignore);
        }
        assert_eq!(server.handle_response(8, &[&[16][..], &digest].concat()), ServerMethodResult::Failure);
        assert_eq!(server.handle_response(9, &[&[16][..], &digest].concat()), ServerMethodResult::Success);
    }
}

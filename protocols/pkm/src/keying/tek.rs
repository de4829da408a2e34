//! Traffic keys and their encoding.

use super::encode_compound;
use crate::attribute::{AttributeType, PkmAttribute};
use crate::keys::AuthorizationKey;
use alloc::vec::Vec;
use usher_core::{Duration, SecureRng};
use usher_crypto::{SecretValue, aes};

/// A traffic encryption key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tek {
    /// The key.
    pub key: SecretValue<[u8; aes::LEN]>,
    /// Its lifetime from its transmission, in whole seconds.
    pub lifetime: Duration,
    /// Its number, of two bits.
    pub sequence: u8,
}

impl Tek {
    pub(super) fn generate_key(rng: &mut SecureRng, lifetime: Duration, sequence: u8) -> Self {
        let mut key = SecretValue::new([0; aes::LEN]);
        rng.fill_bytes(&mut *key);
        Self { key, lifetime, sequence }
    }
    /// Returns the value of TEK-Parameters.
    pub(super) fn encode_tek_parameters(&self, under: &AuthorizationKey) -> Vec<u8> {
        let seconds = u32::try_from(self.lifetime.as_secs()).unwrap_or(u32::MAX);
        encode_compound(&[
            (AttributeType::TEK, &aes::wrap_key(under.kek(), &self.key)),
            (AttributeType::KEY_LIFETIME, &seconds.to_be_bytes()),
            (AttributeType::KEY_SEQUENCE_NUMBER, &[self.sequence]),
        ])
    }
    /// Returns the key in TEK-Parameters; `None` if something is missing or the key does not unwrap.
    pub(super) fn decode_tek_parameters(
        parameters: PkmAttribute<'_>,
        under: &AuthorizationKey,
    ) -> Option<Self> {
        let get = |kind| parameters.nested_attributes().find(|a| a.kind == kind).map(|a| a.value);
        let wrapped = get(AttributeType::TEK)?.try_into().ok()?;
        let seconds = get(AttributeType::KEY_LIFETIME)?.try_into().map(u32::from_be_bytes).ok()?;
        let &[sequence @ 0..=3] = get(AttributeType::KEY_SEQUENCE_NUMBER)? else { return None };
        let key = aes::unwrap_key(under.kek(), wrapped)?;
        Some(Self { key, lifetime: Duration::from_secs(u64::from(seconds)), sequence })
    }
}

//! Authenticated ciphers of AWS-LC, which uses recent processor instructions such as vector AES.

use super::{CipherAlgorithm, CipherError, KeyedCipher, SALT};
use crate::SecretValue;
use alloc::boxed::Box;
use aws_lc_rs::aead::{
    AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};

struct AwsAead {
    key: LessSafeKey,
    salt: SecretValue<[u8; SALT]>,
}

/// Returns the cipher under this key with the salt at its end; `None` if it has no authentication or no such key
/// length.
pub(super) fn with_key(algorithm: CipherAlgorithm, key: &[u8]) -> Option<Box<dyn KeyedCipher>> {
    let (key, salt) = key.split_last_chunk::<SALT>()?;
    let algorithm = match (algorithm, key.len()) {
        (CipherAlgorithm::AesGcm, 16) => &AES_128_GCM,
        (CipherAlgorithm::AesGcm, 24) => &AES_192_GCM,
        (CipherAlgorithm::AesGcm, 32) => &AES_256_GCM,
        (CipherAlgorithm::ChaCha20Poly1305, 32) => &CHACHA20_POLY1305,
        _ => return None,
    };
    let key = LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?);
    Some(Box::new(AwsAead { key, salt: (*salt).into() }))
}

impl AwsAead {
    fn build_nonce(&self, iv: &[u8]) -> Result<Nonce, CipherError> {
        let mut nonce = [0; NONCE_LEN];
        let (salt, rest) = nonce.split_at_mut(SALT);
        if iv.len() != rest.len() {
            return Err(CipherError::Length);
        }
        salt.copy_from_slice(&*self.salt);
        rest.copy_from_slice(iv);
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

impl KeyedCipher for AwsAead {
    fn seal(&self, iv: &[u8], associated: &[u8], data: &mut [u8], tag: &mut [u8]) -> Result<(), CipherError> {
        if tag.len() != super::TAG {
            return Err(CipherError::Length);
        }
        let made = self.key.seal_in_place_separate_tag(self.build_nonce(iv)?, Aad::from(associated), data);
        tag.copy_from_slice(made.map_err(|_| CipherError::Length)?.as_ref());
        Ok(())
    }
    fn open(&self, iv: &[u8], associated: &[u8], data: &mut [u8], tag: &[u8]) -> Result<(), CipherError> {
        if tag.len() != super::TAG {
            return Err(CipherError::Length);
        }
        let opened =
            self.key.open_in_place_separate_tag(self.build_nonce(iv)?, Aad::from(associated), tag, data);
        opened.map(|_| ()).map_err(|_| CipherError::Tag)
    }
}

//! Packet ciphers by name: CBC (RFC 2451, RFC 3602), AES-GCM (RFC 4106, RFC 5282) and ChaCha20-Poly1305 (RFC 7634).
//! Key, salt and initialization vector are those of ESP and IKEv2.

#[cfg(all(feature = "tls", not(target_arch = "wasm32")))]
mod aws;

use crate::SecretValue;
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::{AeadInOut, KeyInit, Nonce, Tag};
use aes_gcm::{AesGcm, aes::cipher};
use alloc::boxed::Box;
use cipher::{BlockModeDecrypt, BlockModeEncrypt, InnerIvInit};
use des::TdesEde3;

usher_core::named! {
    "a cipher";
    /// Which cipher.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum CipherAlgorithm {
        /// 3DES in CBC mode.
        TripleDesCbc = "3des-cbc",
        /// AES in CBC mode, with a key of 128, 192 or 256 bits.
        AesCbc = "aes-cbc",
        /// AES in Galois counter mode with a tag of 16 octets, with a key of 128, 192 or 256 bits and a salt.
        AesGcm = "aes-gcm-16",
        /// ChaCha20 and Poly1305, with a key of 256 bits and a salt.
        ChaCha20Poly1305 = "chacha20-poly1305",
    }
}

/// The length in octets of the salt at the end of an authenticated cipher's key. Salt and initialization vector form
/// the nonce (RFC 4106 §4, RFC 7634 §2).
pub(crate) const SALT: usize = 4;
/// The length in octets of an authenticated cipher's tag.
pub(crate) const TAG: usize = 16;

/// An error of a cipher.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CipherError {
    /// The initialization vector, the data or the tag has a wrong length.
    #[error("the cipher does not accept the length of the initialization vector, the data or the tag")]
    Length,
    /// The tag does not match: the data or the tag was altered, or the key differs.
    #[error("the data was altered, or encrypted with another key")]
    Tag,
}

/// A cipher under one key.
pub trait KeyedCipher: Send + Sync {
    /// Encrypts data in place and writes the tag, of [`CipherAlgorithm::tag_len`] octets, to `tag`. An authenticated
    /// cipher also covers the associated data.
    ///
    /// Do not repeat an initialization vector of an authenticated cipher under one key. Vectors of CBC must be
    /// unpredictable.
    ///
    /// # Errors
    /// [`CipherError::Length`].
    fn seal(&self, iv: &[u8], associated: &[u8], data: &mut [u8], tag: &mut [u8]) -> Result<(), CipherError>;
    /// Decrypts data in place.
    ///
    /// # Errors
    /// [`CipherError::Length`], or [`CipherError::Tag`], after which the data is undefined.
    fn open(&self, iv: &[u8], associated: &[u8], data: &mut [u8], tag: &[u8]) -> Result<(), CipherError>;
}

impl core::fmt::Debug for dyn KeyedCipher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Cipher(..)")
    }
}

impl CipherAlgorithm {
    /// Returns the octets of key material, with the salt, for a key of `bits`; 0 selects a cipher's only length.
    /// `None`: the cipher has no such key.
    #[must_use]
    pub const fn key_len(self, bits: u16) -> Option<usize> {
        match (self, bits) {
            (Self::TripleDesCbc, 0 | 192) => Some(24),
            (Self::AesCbc, 128 | 192 | 256) => Some(bits as usize / 8),
            (Self::AesGcm, 128 | 192 | 256) => Some(bits as usize / 8 + SALT),
            (Self::ChaCha20Poly1305, 0 | 256) => Some(32 + SALT),
            _ => None,
        }
    }
    /// Returns the octets of an initialization vector.
    #[must_use]
    pub const fn iv_len(self) -> usize {
        match self {
            Self::AesCbc => 16,
            Self::TripleDesCbc | Self::AesGcm | Self::ChaCha20Poly1305 => 8,
        }
    }
    /// Returns the block length: data must be a multiple of it.
    #[must_use]
    pub const fn block_len(self) -> usize {
        match self {
            Self::TripleDesCbc => 8,
            Self::AesCbc => 16,
            Self::AesGcm | Self::ChaCha20Poly1305 => 1,
        }
    }
    /// Returns the octets of the tag; 0 without authentication.
    #[must_use]
    pub const fn tag_len(self) -> usize {
        match self {
            Self::TripleDesCbc | Self::AesCbc => 0,
            Self::AesGcm | Self::ChaCha20Poly1305 => TAG,
        }
    }
    /// Returns the cipher under this key, with its salt; `None` for a wrong key length. With the feature `tls`, except
    /// on wasm32, authenticated ciphers are AWS-LC's, which are several times faster.
    #[must_use]
    pub fn with_key(self, key: &[u8]) -> Option<Box<dyn KeyedCipher>> {
        #[cfg(all(feature = "tls", not(target_arch = "wasm32")))]
        if let Some(cipher) = aws::with_key(self, key) {
            return Some(cipher);
        }
        self.portable_cipher(key)
    }
    pub(crate) fn portable_cipher(self, key: &[u8]) -> Option<Box<dyn KeyedCipher>> {
        fn cbc_cipher<C>(key: &[u8]) -> Option<Box<dyn KeyedCipher>>
        where
            C: cipher::KeyInit
                + cipher::BlockCipherEncrypt
                + cipher::BlockCipherDecrypt
                + Send
                + Sync
                + 'static,
        {
            Some(Box::new(CbcCipher(C::new_from_slice(key).ok()?)))
        }
        fn aead_cipher<A: AeadInOut + KeyInit + Send + Sync + 'static>(
            key: &[u8],
        ) -> Option<Box<dyn KeyedCipher>> {
            let (key, salt) = key.split_last_chunk::<SALT>()?;
            Some(Box::new(PortableAead { cipher: A::new_from_slice(key).ok()?, salt: (*salt).into() }))
        }
        match (self, key.len()) {
            (Self::TripleDesCbc, _) => cbc_cipher::<TdesEde3>(key),
            (Self::AesCbc, 16) => cbc_cipher::<Aes128>(key),
            (Self::AesCbc, 24) => cbc_cipher::<Aes192>(key),
            (Self::AesCbc, _) => cbc_cipher::<Aes256>(key),
            (Self::AesGcm, 20) => aead_cipher::<AesGcm<Aes128, cipher::consts::U12>>(key),
            (Self::AesGcm, 28) => aead_cipher::<AesGcm<Aes192, cipher::consts::U12>>(key),
            (Self::AesGcm, _) => aead_cipher::<AesGcm<Aes256, cipher::consts::U12>>(key),
            (Self::ChaCha20Poly1305, _) => aead_cipher::<chacha20poly1305::ChaCha20Poly1305>(key),
        }
    }
}

struct CbcCipher<C>(C);

impl<C> KeyedCipher for CbcCipher<C>
where
    C: cipher::BlockCipherEncrypt + cipher::BlockCipherDecrypt + Send + Sync,
{
    fn seal(&self, iv: &[u8], _: &[u8], data: &mut [u8], _: &mut [u8]) -> Result<(), CipherError> {
        let iv = iv.try_into().map_err(|_| CipherError::Length)?;
        let (blocks, []) = cipher::Array::slice_as_chunks_mut(data) else { return Err(CipherError::Length) };
        cbc::Encryptor::inner_iv_init(&self.0, iv).encrypt_blocks(blocks);
        Ok(())
    }
    fn open(&self, iv: &[u8], _: &[u8], data: &mut [u8], _: &[u8]) -> Result<(), CipherError> {
        let iv = iv.try_into().map_err(|_| CipherError::Length)?;
        let (blocks, []) = cipher::Array::slice_as_chunks_mut(data) else { return Err(CipherError::Length) };
        cbc::Decryptor::inner_iv_init(&self.0, iv).decrypt_blocks(blocks);
        Ok(())
    }
}

struct PortableAead<A> {
    cipher: A,
    salt: SecretValue<[u8; SALT]>,
}

impl<A: AeadInOut> PortableAead<A> {
    fn build_nonce(&self, iv: &[u8]) -> Result<Nonce<A>, CipherError> {
        let iv: [u8; 8] = iv.try_into().map_err(|_| CipherError::Length)?;
        let mut nonce = Nonce::<A>::default();
        nonce[..SALT].copy_from_slice(&*self.salt);
        nonce[SALT..].copy_from_slice(&iv);
        Ok(nonce)
    }
}

impl<A: AeadInOut + Send + Sync> KeyedCipher for PortableAead<A> {
    fn seal(&self, iv: &[u8], associated: &[u8], data: &mut [u8], tag: &mut [u8]) -> Result<(), CipherError> {
        let made = self.cipher.encrypt_inout_detached(&self.build_nonce(iv)?, associated, data.into());
        let made = made.map_err(|_| CipherError::Length)?;
        if tag.len() != made.len() {
            return Err(CipherError::Length);
        }
        tag.copy_from_slice(&made);
        Ok(())
    }
    fn open(&self, iv: &[u8], associated: &[u8], data: &mut [u8], tag: &[u8]) -> Result<(), CipherError> {
        let tag: &Tag<A> = tag.try_into().map_err(|_| CipherError::Length)?;
        let opened = self.cipher.decrypt_inout_detached(&self.build_nonce(iv)?, associated, data.into(), tag);
        opened.map_err(|_| CipherError::Tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::hex_octets;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn triple_des_of_sp_800_20_in_cbc_mode() {
        // Three equal keys make it DES: the variable plaintext test of NIST SP 800-20, table A.1, first row.
        let cipher = CipherAlgorithm::TripleDesCbc.with_key(&[1; 24]).unwrap();
        let mut data = hex_octets("80000000000000000000000000000000");
        cipher.seal(&[0; 8], &[], &mut data, &mut []).unwrap();
        assert_eq!(data[..8], hex_octets("95f8a5e5dd31d900"));
        let mut second = data[..8].to_vec();
        cipher.seal(&[0; 8], &[], &mut second, &mut []).unwrap();
        assert_eq!(data[8..], second, "each block is mixed with the one before");
        cipher.open(&[0; 8], &[], &mut data, &[]).unwrap();
        assert_eq!(data, hex_octets("80000000000000000000000000000000"));
    }

    fn all_cipher_key_lengths() -> Vec<(CipherAlgorithm, usize)> {
        let bits = [0, 128, 192, 256].into_iter();
        let all = bits.flat_map(|bits| CipherAlgorithm::ALL.map(|a| Some((a, a.key_len(bits)?))));
        all.flatten().collect()
    }

    #[test]
    fn a_key_of_another_length_makes_no_cipher() {
        assert_eq!(all_cipher_key_lengths().len(), 10);
        for length in 0..64 {
            for algorithm in CipherAlgorithm::ALL {
                let fits = all_cipher_key_lengths().contains(&(algorithm, length));
                assert_eq!(algorithm.with_key(&vec![7; length]).is_some(), fits, "{algorithm}, {length}");
            }
        }
        assert_eq!(format!("{:?}", CipherAlgorithm::AesCbc.with_key(&[7; 16])), "Some(Cipher(..))");
    }

    proptest! {
        #[test]
        fn what_is_sealed_is_opened_unless_it_was_altered(
            which in 0usize..10, key: [u8; 36], iv: [u8; 16], associated: Vec<u8>, blocks in 1usize..5, fill: u8,
            at: prop::sample::Index, flip in 1u8..,
        ) {
            let (algorithm, length) = all_cipher_key_lengths()[which];
            let cipher = algorithm.with_key(&key[..length]).unwrap();
            let iv = &iv[..algorithm.iv_len()];
            // Blocks of 16 octets even for shorter block lengths: a single octet may be its own ciphertext.
            let plain = vec![fill; blocks * 16];
            let (mut data, mut tag) = (plain.clone(), vec![0; algorithm.tag_len()]);
            cipher.seal(iv, &associated, &mut data, &mut tag).unwrap();
            prop_assert_ne!(&data, &plain);
            let mut altered = data.clone();
            altered[at.index(data.len())] ^= flip;
            let opened = cipher.open(iv, &associated, &mut altered, &tag);
            prop_assert_eq!(opened, if tag.is_empty() { Ok(()) } else { Err(CipherError::Tag) });
            // Data without a valid tag is undefined; it may be zeros.
            prop_assert!(altered != plain || opened.is_err());
            prop_assert_eq!(cipher.open(iv, &associated, &mut data, &tag), Ok(()));
            prop_assert_eq!(&data, &plain);
            prop_assert_eq!(cipher.seal(&iv[1..], &associated, &mut data, &mut tag), Err(CipherError::Length));
            if tag.is_empty() {
                prop_assert_eq!(cipher.open(iv, &[], &mut data[1..], &tag), Err(CipherError::Length));
            } else {
                prop_assert_eq!(cipher.open(iv, &[], &mut data, &tag[1..]), Err(CipherError::Length));
            }
        }
    }
}

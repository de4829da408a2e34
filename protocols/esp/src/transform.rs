//! The transform of an SA (RFC 8221): its algorithms, and their use with keys.

use crate::packet::{HEADER_LEN, TRAILER_LEN};
use alloc::boxed::Box;
use usher_crypto::SecretValue;
use usher_crypto::cipher::{CipherAlgorithm, KeyedCipher};
use usher_crypto::digest::constant_time_eq;
use usher_crypto::mac::{KeyedMac, MacAlgorithm};

/// An integrity algorithm with a truncated ICV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IntegrityAlgorithm {
    /// The MAC. Its key is as long as its output.
    pub mac: MacAlgorithm,
    /// Octets of the ICV.
    pub len: usize,
}

/// The algorithms that protect packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EspTransform {
    /// The cipher; `None`: packets are not encrypted (RFC 2410).
    pub cipher: Option<CipherAlgorithm>,
    /// The integrity algorithm; `None` if the cipher authenticates.
    pub integrity: Option<IntegrityAlgorithm>,
    /// True if sequence numbers have 64 bits.
    pub extended_sequence_numbers: bool,
}

/// The keys of packets in one direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EspKeys {
    /// The key of the cipher, with its salt.
    pub cipher: SecretValue,
    /// The key of the integrity algorithm. Empty if the cipher authenticates.
    pub integrity: SecretValue,
}

/// An invalid transform or key: the caller's mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EspTransformError {
    /// Packets must be authenticated exactly once: by the cipher or by an integrity algorithm.
    #[error("packets must be authenticated exactly once: by the cipher or by an integrity algorithm")]
    Authentication,
    /// The cipher has no keys of this length.
    #[error("the cipher {0} does not accept a key of {1} octets")]
    CipherKey(CipherAlgorithm, usize),
    /// The integrity algorithm has no keys of this length, or its output is shorter than the ICV.
    #[error("the integrity algorithm {0} needs a key as long as its output, and an ICV of 12 octets or more")]
    IntegrityKey(MacAlgorithm),
}

/// The longest ICV: half of HMAC-SHA512's output.
const LONGEST_ICV: usize = 32;

impl EspTransform {
    /// Octets of the initialization vector.
    #[must_use]
    pub fn iv_len(&self) -> usize {
        self.cipher.map_or(0, CipherAlgorithm::iv_len)
    }
    /// The size whose multiple the plaintext is.
    #[must_use]
    pub fn block_len(&self) -> usize {
        // RFC 4303, 2.4: pad length and next header end at a multiple of four octets.
        self.cipher.map_or(1, CipherAlgorithm::block_len).max(4)
    }
    /// Octets of the ICV.
    #[must_use]
    pub fn icv_len(&self) -> usize {
        self.integrity.map_or(16, |integrity| integrity.len)
    }
    /// Octets in front of the payload.
    #[must_use]
    pub fn headroom(&self) -> usize {
        HEADER_LEN + self.iv_len()
    }
    /// Octets of a packet with this payload length.
    #[must_use]
    pub fn packet_len(&self, payload: usize) -> usize {
        self.headroom() + (payload + TRAILER_LEN).next_multiple_of(self.block_len()) + self.icv_len()
    }
    /// The longest payload of a packet of this length; `None` if the packet is too short for any.
    #[must_use]
    pub fn payload_len(&self, packet: usize) -> Option<usize> {
        let body = packet.checked_sub(self.headroom() + self.icv_len())?;
        (body / self.block_len() * self.block_len()).checked_sub(TRAILER_LEN)
    }

    /// Prepares the transform with keys.
    pub(crate) fn with_keys(&self, keys: &EspKeys) -> Result<KeyedEspTransform, EspTransformError> {
        let authenticates = self.cipher.is_some_and(|cipher| cipher.tag_len() > 0);
        // RFC 8221, 4: no encryption without authentication.
        if authenticates == self.integrity.is_some() {
            return Err(EspTransformError::Authentication);
        }
        let cipher = match self.cipher {
            Some(cipher) => {
                let wrong = EspTransformError::CipherKey(cipher, keys.cipher.len());
                Some(cipher.with_key(&keys.cipher).ok_or(wrong)?)
            }
            None => None,
        };
        let mac = match self.integrity {
            Some(IntegrityAlgorithm { mac, len }) => {
                // RFC 4868, 2.1.1: the key is as long as the output.
                let fits = keys.integrity.len() == mac.output_len()
                    && (12..=mac.output_len().min(LONGEST_ICV)).contains(&len);
                Some(
                    fits.then(|| mac.with_key(&keys.integrity))
                        .ok_or(EspTransformError::IntegrityKey(mac))?,
                )
            }
            None => None,
        };
        Ok(KeyedEspTransform { cipher, mac })
    }
}

/// A transform with its keys.
#[derive(Debug)]
pub(crate) struct KeyedEspTransform {
    cipher: Option<Box<dyn KeyedCipher>>,
    mac: Option<Box<dyn KeyedMac>>,
}

/// The parts of a packet.
pub(crate) struct EspPacketParts<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) iv: &'a [u8],
    pub(crate) body: &'a mut [u8],
    pub(crate) icv: &'a mut [u8],
}

impl<'a> EspPacketParts<'a> {
    /// Splits a packet; `None` if it is too short.
    pub(crate) fn from_packet(packet: &'a mut [u8], transform: &EspTransform) -> Option<Self> {
        let (head, rest) = packet.split_at_mut_checked(HEADER_LEN)?;
        let (iv, rest) = rest.split_at_mut_checked(transform.iv_len())?;
        let (body, icv) = rest.split_at_mut_checked(rest.len().checked_sub(transform.icv_len())?)?;
        Some(Self { head, iv, body, icv })
    }
}

/// Returns the AAD of an AEAD cipher: SPI and whole sequence number (RFC 4106 §5, RFC 7634 §2.1).
fn associated_data(head: &[u8], high: Option<u32>) -> ([u8; 12], usize) {
    let mut all = [0; 12];
    let (spi, low) = head.split_at(4);
    all[..4].copy_from_slice(spi);
    match high {
        Some(high) => {
            all[4..8].copy_from_slice(&high.to_be_bytes());
            all[8..].copy_from_slice(low);
            (all, 12)
        }
        None => {
            all[4..8].copy_from_slice(low);
            (all, 8)
        }
    }
}

impl KeyedEspTransform {
    /// Encrypts the body and writes the ICV. `high` is the upper half of an extended sequence number. False if the
    /// parts do not fit, which never happens with [`EspTransform::packet_len`].
    pub(crate) fn seal(&self, parts: &mut EspPacketParts<'_>, high: Option<u32>) -> bool {
        let (associated, length) = associated_data(parts.head, high);
        match (&self.cipher, &self.mac) {
            (Some(cipher), None) => {
                cipher.seal(parts.iv, &associated[..length], parts.body, parts.icv).is_ok()
            }
            (cipher, Some(mac)) => {
                let enciphered = cipher
                    .as_ref()
                    .is_none_or(|cipher| cipher.seal(parts.iv, &[], parts.body, &mut []).is_ok());
                Self::compute_icv(&**mac, parts, high, |parts, code| parts.icv.copy_from_slice(code));
                enciphered
            }
            (None, None) => false,
        }
    }
    /// Checks the ICV and decrypts the body. False if the ICV does not match.
    pub(crate) fn open(&self, parts: &mut EspPacketParts<'_>, high: Option<u32>) -> bool {
        let (associated, length) = associated_data(parts.head, high);
        match (&self.cipher, &self.mac) {
            (Some(cipher), None) => {
                cipher.open(parts.iv, &associated[..length], parts.body, parts.icv).is_ok()
            }
            (cipher, Some(mac)) => {
                Self::compute_icv(&**mac, parts, high, |parts, code| constant_time_eq(parts.icv, code))
                    && cipher
                        .as_ref()
                        .is_none_or(|cipher| cipher.open(parts.iv, &[], parts.body, &[]).is_ok())
            }
            (None, None) => false,
        }
    }
    fn compute_icv<'a, T>(
        mac: &dyn KeyedMac,
        parts: &mut EspPacketParts<'a>,
        high: Option<u32>,
        then: impl FnOnce(&mut EspPacketParts<'a>, &[u8]) -> T,
    ) -> T {
        // RFC 4303, 2.2.1: the high half follows the body, as if it were sent.
        let high = high.map(u32::to_be_bytes);
        let high = high.as_ref().map_or(&[][..], |high| &high[..]);
        let mut code = [0; LONGEST_ICV];
        let length = parts.icv.len().min(LONGEST_ICV);
        mac.write_truncated(&[parts.head, parts.iv, parts.body, high], &mut code[..length]);
        then(parts, &code[..length])
    }
}

//! Encrypted payloads (RFC 7296 §3.14, RFC 5282, RFC 7383): messages under the keys of an IKE_SA.

use crate::ParseError;
use crate::code::PayloadType;
use crate::header::{HEADER_LEN, IkeHeader};
use crate::payload::{PAYLOAD_HEADER_LEN, Payload, emit_chain, first_payload_type};
use crate::suite::PacketAlgorithms;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use usher_core::{OctetReader, OctetWriter, SecureRng};
use usher_crypto::cipher::{CipherAlgorithm, KeyedCipher};
use usher_crypto::digest::constant_time_eq;
use usher_crypto::mac::KeyedMac;

/// Octets of the fragment number and the total.
const FRAGMENT_HEADER: usize = 4;

/// A received message whose payloads are encrypted.
#[derive(Clone, Copy, Debug)]
pub struct SealedMessage<'a> {
    /// Its header, which the ICV covers.
    pub header: IkeHeader,
    /// The fragment's number, from 1, and the total.
    pub fragment: Option<(u16, u16)>,
    /// The type of the first inner payload.
    pub first: PayloadType,
    octets: &'a [u8],
    /// The offset of the initialization vector.
    body: usize,
}

impl<'a> SealedMessage<'a> {
    /// Finds the Encrypted payload of a message; `None` without one. It must be the only payload: no RFC defines
    /// others before it.
    ///
    /// # Errors
    /// The message is invalid.
    pub fn from_octets(octets: &'a [u8]) -> Result<Option<Self>, ParseError> {
        let mut reader = OctetReader::new(octets);
        let (header, kind, length) = IkeHeader::parse(&mut reader)?;
        if length != octets.len() {
            return Err(ParseError::MessageLength { announced: length, is: octets.len() });
        }
        if kind != PayloadType::SK && kind != PayloadType::SKF {
            return Ok(None);
        }
        let (first, _, length) =
            (PayloadType(reader.read_u8()?), reader.read_u8()?, usize::from(reader.read_u16()?));
        if length != PAYLOAD_HEADER_LEN + reader.remaining() {
            return Err(ParseError::Length);
        }
        let mut fragment = None;
        if kind == PayloadType::SKF {
            let (number, total) = (reader.read_u16()?, reader.read_u16()?);
            if number == 0 || number > total {
                return Err(ParseError::Fragment { number, total });
            }
            fragment = Some((number, total));
        }
        let body = octets.len() - reader.remaining();
        Ok(Some(Self { header, fragment, first, octets, body }))
    }
}

/// Returns a whole message before encryption, without what encryption adds. AUTH covers it later (RFC 9242 §3.3.2).
#[must_use]
pub fn unencrypted_message_octets(header: &IkeHeader, first: PayloadType, content: &[u8]) -> Vec<u8> {
    let mut octets = Vec::with_capacity(HEADER_LEN + PAYLOAD_HEADER_LEN + content.len());
    let mut writer = OctetWriter::new(&mut octets);
    header.emit(&mut writer, PayloadType::SK);
    writer
        .write_u8(first.0)
        .write_u8(0)
        .write_u16((PAYLOAD_HEADER_LEN + content.len()) as u16)
        .write_bytes(content);
    let length = writer.len();
    IkeHeader::patch_length(&mut writer, length);
    octets
}

/// Protects the messages of one direction of an IKE_SA.
#[derive(Debug)]
pub struct MessageProtection {
    algorithm: CipherAlgorithm,
    cipher: Box<dyn KeyedCipher>,
    mac: Option<(Box<dyn KeyedMac>, usize)>,
    /// The next initialization vector of a cipher that must not repeat one.
    counter: u64,
}

impl MessageProtection {
    /// Creates it; `None` if a key has the wrong length for its algorithm.
    #[must_use]
    pub fn new(algorithms: &PacketAlgorithms, cipher_key: &[u8], integrity_key: &[u8]) -> Option<Self> {
        let algorithm = algorithms.cipher?;
        let mac =
            algorithms.integrity.map(|integrity| (integrity.mac.with_key(integrity_key), integrity.len));
        Some(Self { algorithm, cipher: algorithm.with_key(cipher_key)?, mac, counter: 0 })
    }

    fn checksum_len(&self) -> usize {
        self.mac.as_ref().map_or(self.algorithm.tag_len(), |(_, len)| *len)
    }

    /// Octets of payloads that fit into a fragment of this size, with its header.
    fn fragment_capacity(&self, limit: usize) -> usize {
        let around =
            HEADER_LEN + PAYLOAD_HEADER_LEN + FRAGMENT_HEADER + self.algorithm.iv_len() + self.checksum_len();
        let room = limit.saturating_sub(around) / self.algorithm.block_len() * self.algorithm.block_len();
        room.saturating_sub(1)
    }

    /// Octets of a sealed message with this many octets of payloads.
    fn sealed_len(&self, content: usize) -> usize {
        let block = self.algorithm.block_len();
        let padded = (content + 1).div_ceil(block) * block;
        HEADER_LEN + PAYLOAD_HEADER_LEN + self.algorithm.iv_len() + padded + self.checksum_len()
    }

    /// Seals a message with these payloads. If it is longer than `limit`, it becomes fragments of at most that size
    /// (RFC 7383 §2.5). A fragment holds at least 64 octets of payloads.
    #[must_use]
    pub fn seal(
        &mut self,
        header: &IkeHeader,
        payloads: &[Payload],
        limit: Option<usize>,
        rng: &mut SecureRng,
    ) -> Vec<Vec<u8>> {
        let mut content = Vec::new();
        emit_chain(payloads, &mut OctetWriter::new(&mut content));
        let first = first_payload_type(payloads);
        let Some(limit) = limit.filter(|limit| self.sealed_len(content.len()) > *limit) else {
            return vec![self.seal_packet(header, first, None, &content, rng)];
        };
        let chunks: Vec<&[u8]> = content.chunks(self.fragment_capacity(limit).max(64)).collect();
        let total = chunks.len() as u16;
        let numbered = (1..).zip(chunks);
        // RFC 7383, 2.5: only the first fragment names the type of the first payload.
        let kind = |number| if number == 1 { first } else { PayloadType::NONE };
        numbered.map(|(n, chunk)| self.seal_packet(header, kind(n), Some((n, total)), chunk, rng)).collect()
    }

    fn seal_packet(
        &mut self,
        header: &IkeHeader,
        first: PayloadType,
        fragment: Option<(u16, u16)>,
        content: &[u8],
        rng: &mut SecureRng,
    ) -> Vec<u8> {
        let mut octets = Vec::with_capacity(self.sealed_len(content.len()) + FRAGMENT_HEADER);
        let mut writer = OctetWriter::new(&mut octets);
        header.emit(&mut writer, if fragment.is_some() { PayloadType::SKF } else { PayloadType::SK });
        writer.write_u8(first.0).write_u8(0).write_u16(0);
        if let Some((number, total)) = fragment {
            writer.write_u16(number).write_u16(total);
        }
        let associated = writer.len();
        let iv = self.next_iv(rng);
        writer.write_bytes(&iv).write_bytes(content);
        let padding = self.algorithm.block_len() - 1 - content.len() % self.algorithm.block_len();
        writer.write_zeros(padding).write_u8(padding as u8).write_zeros(self.checksum_len());
        let length = writer.len();
        writer.overwrite_at(HEADER_LEN + 2, &((length - HEADER_LEN) as u16).to_be_bytes());
        IkeHeader::patch_length(&mut writer, length);
        let (before, body) = octets.split_at_mut(associated);
        let (_, rest) = body.split_at_mut(iv.len());
        let (data, checksum) = rest.split_at_mut(rest.len() - self.checksum_len());
        let tag = if self.mac.is_some() { &mut [][..] } else { &mut *checksum };
        // Vector, data and tag have the lengths of the cipher, so this cannot fail.
        let sealed = self.cipher.seal(&iv, before, data, tag);
        debug_assert_eq!(sealed, Ok(()));
        if let Some((mac, len)) = &self.mac {
            let end = octets.len() - len;
            let mut code = Vec::new();
            mac.append_code(&[&octets[..end]], &mut code);
            octets[end..].copy_from_slice(&code[..*len]);
        }
        octets
    }

    fn next_iv(&mut self, rng: &mut SecureRng) -> Vec<u8> {
        if self.algorithm.tag_len() > 0 {
            // RFC 7296, 3.14: no initialization vector comes twice.
            self.counter += 1;
            return self.counter.to_be_bytes().to_vec();
        }
        let mut iv = vec![0; self.algorithm.iv_len()];
        rng.fill_bytes(&mut iv);
        iv
    }

    /// Returns the octets of the inner payloads. `None` if the message was altered, belongs to another IKE_SA, or is
    /// no ciphertext.
    #[must_use]
    pub fn open(&self, sealed: &SealedMessage<'_>) -> Option<Vec<u8>> {
        let (before, body) = sealed.octets.split_at_checked(sealed.body)?;
        let (iv, rest) = body.split_at_checked(self.algorithm.iv_len())?;
        let (data, checksum) = rest.split_at_checked(rest.len().checked_sub(self.checksum_len())?)?;
        let mut tag = checksum;
        if let Some((mac, len)) = &self.mac {
            let mut code = Vec::new();
            // RFC 7296, 3.14: the checksum is verified before any decryption.
            mac.append_code(&[&sealed.octets[..sealed.octets.len() - len]], &mut code);
            if !constant_time_eq(&code[..*len], checksum) {
                return None;
            }
            tag = &[];
        }
        let mut data = data.to_vec();
        self.cipher.open(iv, before, &mut data, tag).ok()?;
        let padding = usize::from(data.pop()?);
        data.truncate(data.len().checked_sub(padding)?);
        Some(data)
    }
}

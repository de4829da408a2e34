//! The CMAC-Digest of messages: computed and verified, with replay protection by packet number.
//!
//! The digest is `CMAC(CMAC_KEY_U or CMAC_KEY_D, AKID | CMAC_PN | CID | 16 zero bits | message)`. Its most
//! significant 64 bits follow the packet number. It covers the message from its management message type up to the
//! attribute itself, which is the last.
//!
//! Drafts of 802.16e have another key number in place of the AKID. With it the header would not fill an AES block, as
//! the draft says it does. The published text does not confirm the AKID, nor which half of the CMAC is kept. The
//! connection identifier is zero here, because a host's frame does not contain it.

use crate::attribute::AttributeType;
use crate::code::Direction;
use crate::keys::AuthorizationKey;
use crate::message::{MessageError, OwnedPkmMessage, PkmMessage};
use alloc::vec::Vec;
use usher_crypto::{aes, digest};

/// Octets of the attribute: type, length, packet number and half a CMAC.
const ATTRIBUTE: usize = 2 + 4 + 8;

/// Why a message fails verification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CmacVerificationError {
    /// The octets are not a message.
    #[error(transparent)]
    Malformed(#[from] MessageError),
    /// The last attribute is not a CMAC-Digest.
    #[error("the message does not end with a CMAC-Digest")]
    Unsigned,
    /// The digest does not match the key and the message.
    #[error("wrong CMAC-Digest")]
    WrongDigest,
}

fn message_digest(key: &AuthorizationKey, direction: Direction, number: [u8; 4], message: &[u8]) -> [u8; 8] {
    let parts: [&[u8]; 4] = [&key.id(), &number, &[0; 4], message];
    let code = aes::cmac(key.digest_key(direction), &parts);
    let [a, b, c, d, e, f, g, h, ..] = code;
    [a, b, c, d, e, f, g, h]
}

/// Appends a message with its digest under this packet number.
pub fn seal_message(message: &OwnedPkmMessage, key: &AuthorizationKey, number: u32, out: &mut Vec<u8>) {
    let from = out.len();
    message.emit(out);
    let number = number.to_be_bytes();
    let code = message_digest(key, message.direction, number, &out[from..]);
    out.extend_from_slice(&[AttributeType::CMAC_DIGEST.0, (number.len() + code.len()) as u8]);
    out.extend_from_slice(&number);
    out.extend_from_slice(&code);
}

/// Verifies a message and returns it with its packet number.
///
/// # Errors
/// The message fails verification.
pub fn open_message<'a>(
    bytes: &'a [u8],
    key: &AuthorizationKey,
) -> Result<(PkmMessage<'a>, u32), CmacVerificationError> {
    let message = PkmMessage::parse(bytes)?;
    let Some((covered, &[kind, 12, a, b, c, d, ref code @ ..])) = bytes.split_last_chunk::<ATTRIBUTE>()
    else {
        return Err(CmacVerificationError::Unsigned);
    };
    // The last octets may look like this attribute but be the end of another one's value, so the parsed attributes
    // decide.
    let last = message.attributes().last().is_some_and(|a| a.kind == AttributeType::CMAC_DIGEST);
    if !last || AttributeType(kind) != AttributeType::CMAC_DIGEST {
        return Err(CmacVerificationError::Unsigned);
    }
    let number = [a, b, c, d];
    if !digest::constant_time_eq(code, &message_digest(key, message.direction(), number, covered)) {
        return Err(CmacVerificationError::WrongDigest);
    }
    Ok((message, u32::from_be_bytes(number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;
    use proptest::prelude::*;

    fn test_key(msk: u8) -> AuthorizationKey {
        AuthorizationKey::new(&[msk; 64], [1; 6], [2; 6], 0)
    }
    fn key_request() -> OwnedPkmMessage {
        OwnedPkmMessage::new(Direction::Request, Code::Pkm2KeyRequest, 7)
            .with_attribute(AttributeType::KEY_SEQUENCE_NUMBER, &[0])
            .with_attribute(AttributeType::SAID, &[0, 1])
            .with_attribute(AttributeType::NONCE, &[9; 8])
    }
    fn sealed_request(number: u32) -> Vec<u8> {
        let mut out = Vec::new();
        seal_message(&key_request(), &test_key(3), number, &mut out);
        out
    }

    #[test]
    fn the_digest_covers_what_the_standard_lists() {
        let out = sealed_request(5);
        let (covered, end) = out.split_at(out.len() - ATTRIBUTE);
        let whole = [&test_key(3).id()[..], &[0, 0, 0, 5, 0, 0, 0, 0], covered].concat();
        assert_eq!(end[..6], [40, 12, 0, 0, 0, 5]);
        assert_eq!(end[6..], aes::cmac(test_key(3).digest_key(Direction::Request), &[&whole])[..8]);
        let (message, number) = open_message(&out, &test_key(3)).unwrap();
        assert_eq!((message.code(), number), (Code::Pkm2KeyRequest, 5));
    }

    #[test]
    fn what_is_not_believed_says_why() {
        let mut out = Vec::new();
        key_request().emit(&mut out);
        assert_eq!(open_message(&out, &test_key(3)), Err(CmacVerificationError::Unsigned));
        // The attribute's octets at the end of another value are not a digest.
        let within = &sealed_request(1)[sealed_request(1).len() - ATTRIBUTE..];
        out.clear();
        key_request().with_attribute(AttributeType::DISPLAY_STRING, within).emit(&mut out);
        assert_eq!(open_message(&out, &test_key(3)), Err(CmacVerificationError::Unsigned));
        assert_eq!(open_message(&sealed_request(1), &test_key(4)), Err(CmacVerificationError::WrongDigest));
        assert!(matches!(
            open_message(&sealed_request(1)[1..], &test_key(3)),
            Err(CmacVerificationError::Malformed(_))
        ));
        // The same octets in the other direction use another key.
        let mut turned = sealed_request(1);
        (turned[0], turned[1]) = (10, 24);
        assert!(open_message(&turned, &test_key(3)).is_err());
    }

    proptest! {
        #[test]
        fn no_octet_can_be_changed(number: u32, at: prop::sample::Index, flip in 1u8..) {
            let mut out = sealed_request(number);
            prop_assert_eq!(open_message(&out, &test_key(3)).map(|(_, n)| n), Ok(number));
            let at = at.index(out.len());
            out[at] ^= flip;
            prop_assert!(open_message(&out, &test_key(3)).is_err());
        }
        #[test]
        fn arbitrary_octets_never_panic(bytes: Vec<u8>) {
            prop_assert!(open_message(&bytes, &test_key(3)).is_err());
        }
    }
}

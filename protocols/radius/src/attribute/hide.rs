//! Hiding with MD5 and the shared secret: User-Password (RFC 2865 §5.2), the salted form of Tunnel-Password (RFC 2868
//! §3.5) and of the MS-MPPE keys (RFC 2548 §2.4.2), and Ascend's variant.

use alloc::vec::Vec;
use usher_crypto::digest::md5;

/// Octets of the salt.
pub const SALT_LEN: usize = 2;

/// The reason why a hidden value cannot be revealed. A wrong secret yields [`HiddenValueError::InnerLength`] or garbage: the
/// scheme has no check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HiddenValueError {
    /// The hidden octets are not whole blocks of 16 (at most 128 octets for User-Password).
    #[error("{0} hidden octets are not whole blocks of 16")]
    Blocks(usize),
    /// The inner length exceeds the hidden octets, most likely because of a wrong secret.
    #[error("the inner length is {length}, but there are only {available} octets; check the shared secret")]
    InnerLength {
        /// The value of the first octet.
        length: u8,
        /// The number of hidden octets.
        available: usize,
    },
}

/// XORs each block with the digest of the secret and the ciphertext block before it.
fn xor_with_digest_chain(secret: &[u8], first: &[&[u8]], data: &mut [u8], encrypt: bool) {
    let mut parts: [&[u8]; 3] = [secret, &[], &[]];
    parts[1..=first.len()].copy_from_slice(first);
    let mut pad = md5(&parts);
    let mut blocks = data.chunks_mut(16).peekable();
    while let Some(block) = blocks.next() {
        let mut cipher = [0; 16];
        cipher[..block.len()].copy_from_slice(block);
        block.iter_mut().zip(pad).for_each(|(b, p)| *b ^= p);
        if blocks.peek().is_none() {
            return;
        }
        if encrypt {
            cipher[..block.len()].copy_from_slice(block);
        }
        pad = md5(&[secret, &cipher]);
    }
}

/// Hides a User-Password in place. `data` is the password padded with zeros to a multiple of 16.
pub fn hide_password(secret: &[u8], request_authenticator: &[u8; 16], data: &mut [u8]) {
    xor_with_digest_chain(secret, &[request_authenticator], data, true);
}

/// Hides a salted value in place. `data` is a length octet, the value, and zeros to a multiple of 16.
pub fn hide_salted(secret: &[u8], request_authenticator: &[u8; 16], salt: [u8; SALT_LEN], data: &mut [u8]) {
    xor_with_digest_chain(secret, &[request_authenticator, &salt], data, true);
}

/// Hides or reveals a one-block value in place, in Ascend's variant: the digest covers authenticator and secret, in
/// that order. `data` is the value padded with zeros to 16 octets.
pub fn hide_ascend(secret: &[u8], request_authenticator: &[u8; 16], data: &mut [u8]) {
    let pad = md5(&[request_authenticator, secret]);
    data.iter_mut().zip(pad).for_each(|(b, p)| *b ^= p);
}

/// Returns the password in a User-Password value, without padding.
///
/// # Errors
/// If the value is not 1 to 8 blocks of 16 octets.
pub fn reveal_password(
    secret: &[u8],
    request_authenticator: &[u8; 16],
    value: &[u8],
) -> Result<Vec<u8>, HiddenValueError> {
    if value.is_empty() || value.len() > 128 || !value.len().is_multiple_of(16) {
        return Err(HiddenValueError::Blocks(value.len()));
    }
    let mut out = value.to_vec();
    xor_with_digest_chain(secret, &[request_authenticator], &mut out, false);
    out.truncate(out.iter().rposition(|&b| b != 0).map_or(0, |i| i + 1));
    Ok(out)
}

/// Returns the content of a salted value. `value` starts with the salt.
///
/// # Errors
/// If the hidden part is not whole blocks, or the inner length does not fit it.
pub fn reveal_salted(
    secret: &[u8],
    request_authenticator: &[u8; 16],
    value: &[u8],
) -> Result<Vec<u8>, HiddenValueError> {
    let Some((salt, hidden)) = value.split_first_chunk::<SALT_LEN>() else {
        return Err(HiddenValueError::Blocks(0));
    };
    if hidden.is_empty() || !hidden.len().is_multiple_of(16) {
        return Err(HiddenValueError::Blocks(hidden.len()));
    }
    let mut out = hidden.to_vec();
    xor_with_digest_chain(secret, &[request_authenticator, salt], &mut out, false);
    let (length, room) = (out.remove(0), hidden.len() - 1);
    if usize::from(length) > room {
        return Err(HiddenValueError::InnerLength { length, available: room });
    }
    out.truncate(usize::from(length));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_are_refused() {
        assert_eq!(reveal_password(b"s", &[0; 16], &[]), Err(HiddenValueError::Blocks(0)));
        assert_eq!(reveal_password(b"s", &[0; 16], &[0; 17]), Err(HiddenValueError::Blocks(17)));
        assert_eq!(reveal_password(b"s", &[0; 16], &[0; 144]), Err(HiddenValueError::Blocks(144)));
        assert_eq!(reveal_salted(b"s", &[0; 16], &[1]), Err(HiddenValueError::Blocks(0)));
        assert_eq!(reveal_salted(b"s", &[0; 16], &[1; 20]), Err(HiddenValueError::Blocks(18)));
        let mut data = [200; 16];
        hide_salted(b"s", &[0; 16], [0x80, 1], &mut data);
        let value = [&[0x80, 1][..], &data].concat();
        assert_eq!(
            reveal_salted(b"s", &[0; 16], &value),
            Err(HiddenValueError::InnerLength { length: 200, available: 15 })
        );
    }

    proptest! {
        #[test]
        fn what_is_hidden_is_revealed(secret: Vec<u8>, auth: [u8; 16], salt: [u8; 2],
                plain in proptest::collection::vec(1u8.., 1..120)) {
            let mut padded = plain.clone();
            padded.resize(plain.len().next_multiple_of(16), 0);
            hide_password(&secret, &auth, &mut padded);
            prop_assert_eq!(reveal_password(&secret, &auth, &padded).unwrap(), plain.clone());

            let mut value = vec![plain.len() as u8];
            value.extend(&plain);
            value.resize(value.len().next_multiple_of(16), 0);
            hide_salted(&secret, &auth, salt, &mut value);
            value.splice(0..0, salt);
            prop_assert_eq!(reveal_salted(&secret, &auth, &value).unwrap(), plain);
        }

        #[test]
        fn arbitrary_bytes_never_panic(secret: Vec<u8>, auth: [u8; 16], value: Vec<u8>) {
            let _ = reveal_password(&secret, &auth, &value);
            let _ = reveal_salted(&secret, &auth, &value);
        }
    }
}

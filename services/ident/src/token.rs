//! Tokens: the owner, the connection and the time of a query, encrypted for the holder of the key.
//!
//! RFC 1413, 5 and 6, describes such an audit token. The host reveals no user to the asker. From a token in the
//! asker's log it can later identify the user, to a party of its choice. The content is that of the tokens of pidentd
//! and of OpenBSD's identd: time, user and connection.
//!
//! ```text
//! | time, s: 8 | number: 4 | its end's address: 16 | the asker's: 16 | ports: 2 + 2 | length of the name: 1, the name, zeros |
//! ```
//! Addresses are IPv6; IPv4 addresses are mapped (RFC 4291, 2.5.5.2). A user without a number has all ones. Zeros pad
//! to a multiple of 32 octets, so that the length hides the length of the name. AES-SIV (RFC 5297) seals the whole,
//! and base64url (RFC 4648, 5) without padding encodes it.
//!
//! AES-SIV needs no nonce, so the server keeps none over restarts and repeats none by mistake. Time and ports are
//! sealed too, so the tokens of one user differ.

use crate::service::ConnectionOwner;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use usher_core::{OctetReader, OctetWriter, TruncatedInputError, WallTime};
use usher_crypto::siv::{self, SivKey};
use usher_crypto::{SecretValue, hmac};
use usher_ident::QueriedConnection;

/// The sealed text is a multiple of this many octets.
const BLOCK: usize = 32;
/// The purpose of the key, as associated data.
const PURPOSE: &[u8] = b"usher ident token 1";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// A number that denotes a user without one.
const NO_UID: u32 = u32::MAX;

/// The content of a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenContent {
    /// When the owner was looked up, to the second.
    pub looked_up_at: WallTime,
    /// The connection.
    pub connection: QueriedConnection,
    /// Its owner; the name is truncated to 255 octets.
    pub user: ConnectionOwner,
}

/// The key of tokens; never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenKey(SivKey);

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(..)")
    }
}

fn mapped_octets(address: SocketAddr) -> [u8; 16] {
    match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl TokenKey {
    /// Creates a key from at least 16 unpredictable octets. A text of at least as many random digits also serves.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self(SecretValue::new(hmac::hmac_sha256(secret, &[PURPOSE])))
    }

    /// Creates a token.
    #[must_use]
    pub fn encrypt_ident_token(&self, sealed: &TokenContent) -> String {
        let TokenContent { looked_up_at: at, connection: QueriedConnection { local, remote }, user } = sealed;
        let name = user.name.as_deref().unwrap_or_default();
        let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
        let mut text = Vec::new();
        let mut w = OctetWriter::new(&mut text);
        w.write_u64(at.unix_secs())
            .write_u32(user.uid.unwrap_or(NO_UID))
            .write_bytes(&mapped_octets(*local))
            .write_bytes(&mapped_octets(*remote));
        w.write_u16(local.port())
            .write_u16(remote.port())
            .write_u8(length)
            .write_bytes(name.get(..length.into()).unwrap_or_default());
        w.write_zeros(w.len().next_multiple_of(BLOCK) - w.len());
        encode_base64url(&siv::seal(&self.0, &[PURPOSE], &text))
    }

    /// Decrypts a token; `None`: the text is not a token of this key.
    #[must_use]
    pub fn decrypt_ident_token(&self, token: &str) -> Option<TokenContent> {
        let text = siv::open(&self.0, &[PURPOSE], &decode_base64url(token)?)?;
        read_token_content(&text).ok()
    }
}

fn read_token_content(text: &[u8]) -> Result<TokenContent, TruncatedInputError> {
    let mut r = OctetReader::new(text);
    let (at, uid) = (WallTime::from_unix_secs(r.read_u64()?), r.read_u32()?);
    let addresses = [r.read_array::<16>()?, r.read_array::<16>()?];
    let [local, remote] = addresses.map(|octets| IpAddr::from(Ipv6Addr::from(octets)).to_canonical());
    let (here, there, length) = (r.read_u16()?, r.read_u16()?, r.read_u8()?);
    let name = r.read_bytes(length.into())?;
    let user = ConnectionOwner {
        name: (!name.is_empty()).then(|| name.to_vec()),
        uid: (uid != NO_UID).then_some(uid),
    };
    let connection =
        QueriedConnection { local: SocketAddr::new(local, here), remote: SocketAddr::new(remote, there) };
    Ok(TokenContent { looked_up_at: at, connection, user })
}

/// Encodes base64url without padding.
fn encode_base64url(octets: &[u8]) -> String {
    let mut text = String::with_capacity(octets.len().div_ceil(3) * 4);
    for chunk in octets.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, octet| bits << 8 | u32::from(*octet)) << (8 * (3 - chunk.len()));
        let letter = |i: usize| char::from(ALPHABET[(bits >> (18 - 6 * i)) as usize & 63]);
        text.extend((0..=chunk.len()).map(letter));
    }
    text
}

/// Decodes base64url without padding, and ignores surrounding blanks.
fn decode_base64url(text: &str) -> Option<Vec<u8>> {
    let mut octets = Vec::with_capacity(text.len());
    for chunk in text.trim().as_bytes().chunks(4) {
        let value = |letter: &u8| ALPHABET.iter().position(|l| l == letter);
        let bits = chunk.iter().try_fold(0_usize, |bits, letter| Some(bits << 6 | value(letter)?))?;
        let whole = (bits << (6 * (4 - chunk.len()))).to_be_bytes();
        let more = whole.get(whole.len() - 3..)?.get(..chunk.len() - 1)?;
        // A single letter cannot encode an octet.
        octets.extend_from_slice(Some(more).filter(|more| !more.is_empty())?);
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use usher_ident::MAX_USER_ID;

    fn test_content(name: &[u8], local: IpAddr) -> TokenContent {
        let user = ConnectionOwner { name: (!name.is_empty()).then(|| name.to_vec()), uid: Some(1000) };
        let remote = SocketAddr::new("2001:db8::7".parse().unwrap(), 23);
        let connection = QueriedConnection { local: SocketAddr::new(local, 6193), remote };
        TokenContent { looked_up_at: WallTime::from_unix_secs(1_700_000_000), connection, user }
    }

    proptest! {
        #[test]
        fn a_token_says_what_was_sealed(
            secret: [u8; 16], name in proptest::collection::vec(any::<u8>(), 0..=255), local: IpAddr, uid in any::<Option<u32>>(),
            at in 0_u64..1 << 33,
        ) {
            let key = TokenKey::new(&secret);
            let mut sealed = test_content(&name, local.to_canonical());
            sealed.user.uid = uid.filter(|uid| *uid != NO_UID);
            sealed.looked_up_at = WallTime::from_unix_secs(at);
            let token = key.encrypt_ident_token(&sealed);
            prop_assert!(token.len() <= MAX_USER_ID && token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)));
            prop_assert_eq!(key.decrypt_ident_token(&token), Some(sealed.clone()));
            prop_assert_eq!(key.decrypt_ident_token(&[" ", &token, "\n"].concat()), Some(sealed));
            prop_assert_eq!(TokenKey::new(b"another").decrypt_ident_token(&token), None);
        }

        #[test]
        fn what_is_no_token_says_nothing(text in "\\PC{0,200}", octets in proptest::collection::vec(any::<u8>(), 0..100)) {
            let key = TokenKey::new(b"0123456789abcdef");
            prop_assert_eq!(key.decrypt_ident_token(&text), None);
            prop_assert_eq!(decode_base64url(&encode_base64url(&octets)), Some(octets.clone()));
            prop_assert_eq!(key.decrypt_ident_token(&encode_base64url(&octets)), None);
            let _ = read_token_content(&octets);
        }
    }

    /// RFC 4648, 10, without padding.
    #[test]
    fn base64url_is_that_of_the_rfc() {
        for (octets, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(
                (encode_base64url(octets.as_bytes()).as_str(), decode_base64url(text).as_deref()),
                (text, Some(octets.as_bytes()))
            );
        }
        assert_eq!(encode_base64url(&[0xfb, 0xff]), "-_8");
        assert_eq!(
            (decode_base64url("Z"), decode_base64url("Zg=="), decode_base64url("Z g")),
            (None, None, None)
        );
    }

    #[test]
    fn tokens_of_one_user_differ_and_hide_the_length_of_its_name() {
        let (key, local) = (TokenKey::new(b"0123456789abcdef"), "192.0.2.1".parse().unwrap());
        let token = |name: &[u8]| key.encrypt_ident_token(&test_content(name, local));
        assert_eq!(token(b"a").len(), token(b"fifteen octets.").len());
        assert_eq!(token(b"ann"), token(b"ann"));
        let mut later = test_content(b"ann", local);
        later.connection.local.set_port(6194);
        let later = key.encrypt_ident_token(&later);
        let same = later.bytes().zip(token(b"ann").bytes()).filter(|(a, b)| a == b).count();
        assert!(same < 20, "{same} letters are the same");
        assert!(token(&[b'a'; 300]).len() <= MAX_USER_ID);
        assert_eq!(format!("{key:?}"), "TokenKey(..)");
    }
}

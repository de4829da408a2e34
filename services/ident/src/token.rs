//! Tokens: who owned which connection when, readable with a key alone.
//!
//! RFC 1413, 5 and 6, know the encrypted audit token: a host tells nobody who its users are, and can all the same say who it
//! was, to whom it chooses, from what a log elsewhere has. As those of pidentd and of OpenBSD's identd had the time, the user
//! and the connection, so have these:
//!
//! ```text
//! | time, s: 8 | number: 4 | its end's address: 16 | the asker's: 16 | ports: 2 + 2 | length of the name: 1, the name, zeros |
//! ```
//! Addresses are IPv6's, those of IPv4 mapped (RFC 4291, 2.5.5.2); the number of a user who has none is all ones. Zeros fill
//! up to a multiple of 32 octets, so that names of different lengths look alike. The whole is sealed by AES-SIV (RFC 5297) and
//! written in base64url (RFC 4648, 5) without padding. Of the authenticated ciphers it is the one that needs no nonce: a
//! server has none to keep over its restarts and none to repeat by mistake, and as the time and the ports are sealed, too,
//! tokens of one user are not alike.

use crate::service::User;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use usher_core::{Reader, Truncated, WallTime, Writer};
use usher_crypto::siv::{self, SivKey};
use usher_crypto::{Key, hmac};
use usher_ident::Connection;

/// What is sealed has a multiple of so many octets.
const BLOCK: usize = 32;
/// Says what the key seals.
const PURPOSE: &[u8] = b"usher ident token 1";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// A number that no user has.
const NO_UID: u32 = u32::MAX;

/// What a token says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// When the owner was looked up, in whole seconds.
    pub at: WallTime,
    /// The connection.
    pub connection: Connection,
    /// Its owner; of a name longer than 255 octets the first 255.
    pub user: User,
}

/// The key of tokens; never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenKey(SivKey);

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(..)")
    }
}

fn mapped(address: SocketAddr) -> [u8; 16] {
    match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl TokenKey {
    /// From octets that nobody can guess, 16 of them at least; those of a text of as many random digits do.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self(Key::new(hmac::sha256(secret, &[PURPOSE])))
    }

    /// A token.
    #[must_use]
    pub fn seal(&self, sealed: &Sealed) -> String {
        let Sealed { at, connection: Connection { local, remote }, user } = sealed;
        let name = user.name.as_deref().unwrap_or_default();
        let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
        let mut text = Vec::new();
        let mut w = Writer::new(&mut text);
        w.u64(at.unix_secs()).u32(user.uid.unwrap_or(NO_UID)).bytes(&mapped(*local)).bytes(&mapped(*remote));
        w.u16(local.port())
            .u16(remote.port())
            .u8(length)
            .bytes(name.get(..length.into()).unwrap_or_default());
        w.zeros(w.len().next_multiple_of(BLOCK) - w.len());
        encode(&siv::seal(&self.0, &[PURPOSE], &text))
    }

    /// What a token of this key says; `None`: it is none.
    #[must_use]
    pub fn open(&self, token: &str) -> Option<Sealed> {
        let text = siv::open(&self.0, &[PURPOSE], &decode(token)?)?;
        read(&text).ok()
    }
}

fn read(text: &[u8]) -> Result<Sealed, Truncated> {
    let mut r = Reader::new(text);
    let (at, uid) = (WallTime::from_unix_secs(r.u64()?), r.u32()?);
    let addresses = [r.array::<16>()?, r.array::<16>()?];
    let [local, remote] = addresses.map(|octets| IpAddr::from(Ipv6Addr::from(octets)).to_canonical());
    let (here, there, length) = (r.u16()?, r.u16()?, r.u8()?);
    let name = r.bytes(length.into())?;
    let user = User { name: (!name.is_empty()).then(|| name.to_vec()), uid: (uid != NO_UID).then_some(uid) };
    let connection =
        Connection { local: SocketAddr::new(local, here), remote: SocketAddr::new(remote, there) };
    Ok(Sealed { at, connection, user })
}

/// Base64url without padding.
fn encode(octets: &[u8]) -> String {
    let mut text = String::with_capacity(octets.len().div_ceil(3) * 4);
    for chunk in octets.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, octet| bits << 8 | u32::from(*octet)) << (8 * (3 - chunk.len()));
        let letter = |i: usize| char::from(ALPHABET[(bits >> (18 - 6 * i)) as usize & 63]);
        text.extend((0..=chunk.len()).map(letter));
    }
    text
}

/// The octets of what [`encode`] wrote, blanks around it left out.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut octets = Vec::with_capacity(text.len());
    for chunk in text.trim().as_bytes().chunks(4) {
        let value = |letter: &u8| ALPHABET.iter().position(|l| l == letter);
        let bits = chunk.iter().try_fold(0_usize, |bits, letter| Some(bits << 6 | value(letter)?))?;
        let whole = (bits << (6 * (4 - chunk.len()))).to_be_bytes();
        let more = whole.get(whole.len() - 3..)?.get(..chunk.len() - 1)?;
        // One letter alone is no octet.
        octets.extend_from_slice(Some(more).filter(|more| !more.is_empty())?);
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use usher_ident::MAX_USER_ID;

    fn sealed(name: &[u8], local: IpAddr) -> Sealed {
        let user = User { name: (!name.is_empty()).then(|| name.to_vec()), uid: Some(1000) };
        let remote = SocketAddr::new("2001:db8::7".parse().unwrap(), 23);
        let connection = Connection { local: SocketAddr::new(local, 6193), remote };
        Sealed { at: WallTime::from_unix_secs(1_700_000_000), connection, user }
    }

    proptest! {
        #[test]
        fn a_token_says_what_was_sealed(
            secret: [u8; 16], name in proptest::collection::vec(any::<u8>(), 0..=255), local: IpAddr, uid in any::<Option<u32>>(),
            at in 0_u64..1 << 33,
        ) {
            let key = TokenKey::new(&secret);
            let mut sealed = sealed(&name, local.to_canonical());
            sealed.user.uid = uid.filter(|uid| *uid != NO_UID);
            sealed.at = WallTime::from_unix_secs(at);
            let token = key.seal(&sealed);
            prop_assert!(token.len() <= MAX_USER_ID && token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)));
            prop_assert_eq!(key.open(&token), Some(sealed.clone()));
            prop_assert_eq!(key.open(&[" ", &token, "\n"].concat()), Some(sealed));
            prop_assert_eq!(TokenKey::new(b"another").open(&token), None);
        }

        #[test]
        fn what_is_no_token_says_nothing(text in "\\PC{0,200}", octets in proptest::collection::vec(any::<u8>(), 0..100)) {
            let key = TokenKey::new(b"0123456789abcdef");
            prop_assert_eq!(key.open(&text), None);
            prop_assert_eq!(decode(&encode(&octets)), Some(octets.clone()));
            prop_assert_eq!(key.open(&encode(&octets)), None);
            let _ = read(&octets);
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
                (encode(octets.as_bytes()).as_str(), decode(text).as_deref()),
                (text, Some(octets.as_bytes()))
            );
        }
        assert_eq!(encode(&[0xfb, 0xff]), "-_8");
        assert_eq!((decode("Z"), decode("Zg=="), decode("Z g")), (None, None, None));
    }

    #[test]
    fn tokens_of_one_user_are_not_alike_and_do_not_tell_how_long_a_name_is() {
        let (key, local) = (TokenKey::new(b"0123456789abcdef"), "192.0.2.1".parse().unwrap());
        let token = |name: &[u8]| key.seal(&sealed(name, local));
        assert_eq!(token(b"a").len(), token(b"fifteen octets.").len());
        assert_eq!(token(b"ann"), token(b"ann"));
        let mut later = sealed(b"ann", local);
        later.connection.local.set_port(6194);
        let later = key.seal(&later);
        let same = later.bytes().zip(token(b"ann").bytes()).filter(|(a, b)| a == b).count();
        assert!(same < 20, "{same} letters are the same");
        assert!(token(&[b'a'; 300]).len() <= MAX_USER_ID);
        assert_eq!(format!("{key:?}"), "TokenKey(..)");
    }
}

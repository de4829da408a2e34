//! Certificates and keys for tests and simulations only: the private keys are public.
//!
//! All are RSA-2048, valid from 2026-01-01 for twenty years, and created by `vectors/certs/make.sh`. All chains end
//! below one [`root_certificate`]. A chain of `n` has the leaf and `n - 1` intermediates, of 880 to 930 octets each.

use super::TlsCredentials;
#[cfg(test)]
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use usher_core::WallTime;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/certs/", $name)) as &[u8]
    };
}

/// A time at which all of them are valid: 2026-07-01T00:00:00Z.
pub const WALL_TIME: WallTime = WallTime::from_unix_secs(1_782_864_000);

/// The host name in the servers' certificates.
pub const SERVER_NAME: &str = "aaa.usher.test";

/// The e-mail address in the clients' certificates.
pub const CLIENT_NAME: &str = "station@usher.test";

/// The length of the longest chain.
pub const LONGEST_CHAIN: u8 = 4;

const AUTHORITIES: [&[u8]; 3] = [fixture!("ca1.der"), fixture!("ca2.der"), fixture!("ca3.der")];

const SERVERS: [(&[u8], &[u8]); 4] = [
    (fixture!("server1.der"), fixture!("server1.key.der")),
    (fixture!("server2.der"), fixture!("server2.key.der")),
    (fixture!("server3.der"), fixture!("server3.key.der")),
    (fixture!("server4.der"), fixture!("server4.key.der")),
];

const CLIENTS: [(&[u8], &[u8]); 4] = [
    (fixture!("client1.der"), fixture!("client1.key.der")),
    (fixture!("client2.der"), fixture!("client2.key.der")),
    (fixture!("client3.der"), fixture!("client3.key.der")),
    (fixture!("client4.der"), fixture!("client4.key.der")),
];

fn chain_credentials(leaves: &[(&[u8], &[u8]); 4], length: u8) -> TlsCredentials {
    let above = usize::from(length.clamp(1, LONGEST_CHAIN)) - 1;
    let (leaf, key) = leaves[above];
    let authorities = AUTHORITIES[..above].iter().rev().copied();
    TlsCredentials::from_der(core::iter::once(leaf).chain(authorities), key)
}

/// Returns a server's credentials with this number of certificates, clamped to 1..=[`LONGEST_CHAIN`].
#[must_use]
pub fn server_credentials(length: u8) -> TlsCredentials {
    chain_credentials(&SERVERS, length)
}

/// Returns a client's credentials with this number of certificates, clamped to 1..=[`LONGEST_CHAIN`].
#[must_use]
pub fn client_credentials(length: u8) -> TlsCredentials {
    chain_credentials(&CLIENTS, length)
}

/// Returns a client's credentials from an authority outside [`root_certificate`], for logins that must fail.
#[must_use]
pub fn untrusted_client_credentials() -> TlsCredentials {
    TlsCredentials::from_der([fixture!("foreign-client.der")], fixture!("foreign-client.key.der"))
}

/// The root authority's certificate, in DER.
#[must_use]
pub fn root_certificate() -> &'static [u8] {
    fixture!("root.der")
}

/// Returns a server's chain, its key, and the root's certificate, as PEM texts.
#[must_use]
pub fn server_chain_pem_texts(length: u8) -> [String; 3] {
    credential_pem_texts(&SERVERS, length)
}

/// Returns the same for a client.
#[must_use]
pub fn client_chain_pem_texts(length: u8) -> [String; 3] {
    credential_pem_texts(&CLIENTS, length)
}

fn credential_pem_texts(leaves: &[(&[u8], &[u8]); 4], length: u8) -> [String; 3] {
    let above = usize::from(length.clamp(1, LONGEST_CHAIN)) - 1;
    let (leaf, key) = leaves[above];
    let chain = core::iter::once(leaf).chain(AUTHORITIES[..above].iter().rev().copied());
    [
        chain.map(|der| to_pem("CERTIFICATE", der)).collect(),
        to_pem("PRIVATE KEY", key),
        to_pem("CERTIFICATE", root_certificate()),
    ]
}

/// Encodes PEM (RFC 7468): base64 in lines of 64 characters between two marker lines.
fn to_pem(what: &str, der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("-----BEGIN {what}-----\n");
    // Three octets give four digits: 48 octets a line.
    for line in der.chunks(48) {
        for three in line.chunks(3) {
            let octet = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
            let bits = octet(0) << 16 | octet(1) << 8 | octet(2);
            for i in 0..4 {
                let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
                text.push(if i <= three.len() { char::from(digit) } else { '=' });
            }
        }
        text.push('\n');
    }
    text.push_str(&format!("-----END {what}-----\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_as_pem_is_read_as_the_same() {
        let [chain, key, root_pem] = server_chain_pem_texts(3);
        let read = TlsCredentials::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(
            (read.leaf_certificate(), read.chain_len()),
            (server_credentials(3).leaf_certificate(), 3)
        );
        assert!(read.is_rsa());
        assert!(chain.lines().all(|line| line.len() <= 64) && root_pem.contains("-----END CERTIFICATE-----"));
        // RFC 4648, 10: one, two and three octets.
        let body = |octets: &[u8]| to_pem("X", octets).lines().nth(1).unwrap_or_default().to_owned();
        assert_eq!(
            [body(b"f"), body(b"fo"), body(b"foo"), body(b"foob")],
            ["Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
    }
}

//! Certificates and keys for tests and simulations only: the private keys are public.
//!
//! All are RSA-2048, valid from 2026-01-01 for twenty years, and made by `vectors/certs/make.sh`. Chains end
//! below one [`root`]; a chain of `n` is sent as the leaf and `n - 1` intermediates, 880 to 930 octets each.

use super::Credentials;
use usher_core::WallTime;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/certs/", $name)) as &[u8]
    };
}

/// A moment at which all of them are valid: 2026-07-01T00:00:00Z.
pub const WALL_TIME: WallTime = WallTime::from_unix_secs(1_782_864_000);

/// The host name in the servers' certificates.
pub const SERVER_NAME: &str = "aaa.usher.test";

/// The e-mail address in the clients' certificates.
pub const CLIENT_NAME: &str = "station@usher.test";

/// The longest chain that there is.
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

fn chain(leaves: &[(&[u8], &[u8]); 4], length: u8) -> Credentials {
    let above = usize::from(length.clamp(1, LONGEST_CHAIN)) - 1;
    let (leaf, key) = leaves[above];
    let authorities = AUTHORITIES[..above].iter().rev().copied();
    Credentials::from_der(core::iter::once(leaf).chain(authorities), key)
}

/// A server's credentials with this many certificates sent, 1 to [`LONGEST_CHAIN`] (others are brought to
/// the nearer end).
#[must_use]
pub fn server(length: u8) -> Credentials {
    chain(&SERVERS, length)
}

/// A client's credentials with this many certificates sent, 1 to [`LONGEST_CHAIN`] (others are brought to
/// the nearer end).
#[must_use]
pub fn client(length: u8) -> Credentials {
    chain(&CLIENTS, length)
}

/// A client's credentials from an authority that is not below [`root`], for logins to be refused.
#[must_use]
pub fn foreign_client() -> Credentials {
    Credentials::from_der([fixture!("foreign-client.der")], fixture!("foreign-client.key.der"))
}

/// The root authority's certificate, in DER.
#[must_use]
pub fn root() -> &'static [u8] {
    fixture!("root.der")
}

//! Cryptography for all protocols: digests, ciphers, key exchange, signatures, X.509 and TLS.
//!
//! The features choose the library behind this interface. AWS-LC comes with the feature `tls`, except on wasm32.

#![cfg_attr(not(any(test, feature = "tls")), no_std)]

extern crate alloc;

pub mod aes;
pub mod certificate;
pub mod cipher;
pub mod digest;
pub mod exchange;
pub mod fault;
pub mod fingerprint;
pub mod hmac;
pub mod key;
pub mod legacy;
pub mod mac;
pub mod password;
pub mod signature;
pub mod siv;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(test)]
mod vectors;
mod version;
pub mod work;
#[cfg(feature = "wycheproof")]
pub mod wycheproof;
#[cfg(feature = "tls")]
pub mod x509;

pub use key::SecretValue;
pub use version::TlsVersion;

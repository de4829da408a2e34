//! Digests, ciphers, key exchange, signatures and the TLS engine behind one seam.

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

//! Digests, key derivation and the TLS engine behind one seam.

#![cfg_attr(not(any(test, feature = "tls")), no_std)]

extern crate alloc;

pub mod aes;
pub mod certificate;
pub mod digest;
pub mod fault;
pub mod fingerprint;
pub mod hmac;
pub mod key;
pub mod legacy;
pub mod password;
pub mod siv;
#[cfg(feature = "tls")]
pub mod tls;
mod version;
pub mod work;
#[cfg(feature = "tls")]
pub mod x509;

pub use key::Key;
pub use version::Version;

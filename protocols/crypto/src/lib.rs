//! Digests, key derivation and the TLS engine behind one seam.

pub mod digest;

//! SHA-256 fingerprints of certificates, for pinning.

use sha2::{Digest, Sha256};

/// Returns the SHA-256 fingerprint of a DER certificate.
#[must_use]
pub fn sha256_fingerprint(der: &[u8]) -> [u8; 32] {
    Sha256::digest(der).into()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_vector_of_fips_180() {
        let digest = super::sha256_fingerprint(b"abc");
        assert_eq!(digest[..4], [0xba, 0x78, 0x16, 0xbf]);
        assert_eq!(digest[28..], [0xf2, 0x00, 0x15, 0xad]);
    }
}

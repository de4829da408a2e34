//! The keys of IKE_SAs as Wireshark takes them: lines of its table ikev2_decryption_table.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use usher_crypto::cipher::CipherAlgorithm;
use usher_crypto::mac::MacAlgorithm;
use usher_ike::Spi;
use usher_ike::keys::IkeKeys;
use usher_ike::suite::PacketAlgorithms;

/// A file to which keys are appended.
#[derive(Debug)]
pub(super) struct KeyLog(File);

impl KeyLog {
    /// Opens a file that nobody else can read.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(named)?;
        Ok(Self(file))
    }

    /// Notes the keys of an IKE_SA. What Wireshark cannot decipher is left out.
    pub(super) fn note(
        &mut self,
        spis: (Spi, Spi),
        algorithms: &PacketAlgorithms,
        keys: &IkeKeys,
    ) -> io::Result<()> {
        match line(spis, algorithms, keys) {
            Some(line) => self.0.write_all(line.as_bytes()),
            None => Ok(()),
        }
    }
}

fn line(spis: (Spi, Spi), algorithms: &PacketAlgorithms, keys: &IkeKeys) -> Option<String> {
    let cipher = match (algorithms.cipher?, algorithms.cipher_key) {
        (CipherAlgorithm::TripleDesCbc, _) => "3DES [RFC2451]",
        (CipherAlgorithm::AesCbc, 16) => "AES-CBC-128 [RFC3602]",
        (CipherAlgorithm::AesCbc, 24) => "AES-CBC-192 [RFC3602]",
        (CipherAlgorithm::AesCbc, 32) => "AES-CBC-256 [RFC3602]",
        // Their keys have four octets of salt behind them.
        (CipherAlgorithm::AesGcm, 20) => "AES-GCM-128 with 16 octet ICV [RFC5282]",
        (CipherAlgorithm::AesGcm, 28) => "AES-GCM-192 with 16 octet ICV [RFC5282]",
        (CipherAlgorithm::AesGcm, 36) => "AES-GCM-256 with 16 octet ICV [RFC5282]",
        _ => return None,
    };
    let integrity = match algorithms.integrity.map(|integrity| integrity.mac) {
        None => "NONE [RFC4306]",
        Some(MacAlgorithm::HmacSha1) => "HMAC_SHA1_96 [RFC2404]",
        Some(MacAlgorithm::HmacSha256) => "HMAC_SHA2_256_128 [RFC4868]",
        Some(MacAlgorithm::HmacSha384) => "HMAC_SHA2_384_192 [RFC4868]",
        Some(MacAlgorithm::HmacSha512) => "HMAC_SHA2_512_256 [RFC4868]",
        Some(_) => return None,
    };
    let hex = |octets: &[u8]| octets.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
    Some(format!(
        "{},{},{},{},\"{cipher}\",{},{},\"{integrity}\"\n",
        hex(&spis.0.0),
        hex(&spis.1.0),
        hex(&keys.sk_ei),
        hex(&keys.sk_er),
        hex(&keys.sk_ai),
        hex(&keys.sk_ar),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_crypto::Key;
    use usher_ike::payload::Proposal;

    #[test]
    fn lines_are_as_wireshark_has_them() {
        let key = |octet: u8, n: usize| Key::from(&vec![octet; n][..]);
        let keys = |cipher, mac| IkeKeys {
            sk_d: key(0, 32),
            sk_ai: key(1, mac),
            sk_ar: key(2, mac),
            sk_ei: key(3, cipher),
            sk_er: key(4, cipher),
            sk_pi: key(0, 32),
            sk_pr: key(0, 32),
        };
        let spis = (Spi([0xa; 8]), Spi([0xb; 8]));
        let of = |words: &str| PacketAlgorithms::of(&Proposal::ike(words).unwrap()).unwrap();
        let cbc = line(spis, &of("aes128-sha256-x25519"), &keys(16, 32)).unwrap();
        let expected = format!(
            "{},{},{},{},\"AES-CBC-128 [RFC3602]\",{},{},\"HMAC_SHA2_256_128 [RFC4868]\"\n",
            "0a".repeat(8),
            "0b".repeat(8),
            "03".repeat(16),
            "04".repeat(16),
            "01".repeat(32),
            "02".repeat(32)
        );
        assert_eq!(cbc, expected);
        let gcm = line(spis, &of("aes256gcm16-prfsha384-x25519"), &keys(36, 0)).unwrap();
        assert!(
            gcm.contains(&"03".repeat(36)) && gcm.ends_with("ICV [RFC5282]\",,,\"NONE [RFC4306]\"\n"),
            "{gcm}"
        );
        assert_eq!(line(spis, &of("chacha20poly1305-prfsha256-x25519"), &keys(36, 0)), None);
    }
}

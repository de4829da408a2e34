//! Writes the keys of IKE_SAs and CHILD_SAs for Wireshark: lines of its tables ikev2_decryption_table and esp_sa.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use usher_crypto::cipher::CipherAlgorithm;
use usher_crypto::mac::MacAlgorithm;
use usher_gateway::config::GatewayConfigFile as ConfigFile;
use usher_ike::Spi;
use usher_ike::keys::{IkeKeys, PacketKeys};
use usher_ike::machine::ChildSa;
use usher_ike::suite::PacketAlgorithms;

/// The key log files, which grow by appending.
#[derive(Debug)]
pub(super) struct KeyLogs {
    ike: Option<File>,
    esp: Option<File>,
}

impl KeyLogs {
    /// Opens the configured files, readable only by their owner.
    pub(super) fn open(file: &ConfigFile) -> io::Result<Self> {
        let (ike, esp) = (
            file.key_log.as_deref().map(open_private_log),
            file.esp_key_log.as_deref().map(open_private_log),
        );
        let logs = Self { ike: ike.transpose()?, esp: esp.transpose()? };
        if logs.ike.is_some() || logs.esp.is_some() {
            tracing::warn!("a key log is on: a reader of its file can decrypt all traffic");
        }
        Ok(logs)
    }

    /// Logs the keys of an IKE_SA. Skips algorithms that Wireshark cannot decrypt.
    pub(super) fn log_ike_keys(&mut self, spis: (Spi, Spi), algorithms: &PacketAlgorithms, keys: &IkeKeys) {
        if self.ike.is_some() {
            append_key_log_lines(&mut self.ike, ike_key_log_line(spis, algorithms, keys));
        }
    }

    /// Logs the keys of a CHILD_SA: one line per direction.
    pub(super) fn log_esp_keys(&mut self, child: &ChildSa) {
        if self.esp.is_some() {
            append_key_log_lines(&mut self.esp, esp_key_log_lines(child));
        }
    }
}

fn path_error(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn open_private_log(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(path_error(path))?;
    // Set the mode explicitly, because an existing file may be readable by others.
    file.set_permissions(Permissions::from_mode(0o600)).map_err(path_error(path))?;
    Ok(file)
}

/// Checks that the configured files can be opened. Creates and changes none.
pub(super) fn check_key_log_files(file: &ConfigFile) -> io::Result<()> {
    for path in file.key_log.iter().chain(&file.esp_key_log) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if path.exists() || folder.is_some_and(|folder| !folder.is_dir()) {
            OpenOptions::new().append(true).open(path).map_err(path_error(path))?;
        }
    }
    Ok(())
}

fn append_key_log_lines(log: &mut Option<File>, lines: Option<String>) {
    if let (Some(file), Some(lines)) = (&mut *log, lines)
        && let Err(error) = file.write_all(lines.as_bytes())
    {
        tracing::error!(%error, "cannot write to a key log; it is closed");
        *log = None;
    }
}

fn to_hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// One line per direction.
fn esp_key_log_lines(child: &ChildSa) -> Option<String> {
    let integrity = child.algorithms.integrity.map(|integrity| integrity.mac);
    let cipher = child.algorithms.cipher?;
    let version = if child.path.remote.is_ipv4() { "IPv4" } else { "IPv6" };
    let line = |spi, keys| esp_key_log_line(version, spi, cipher, integrity, keys);
    Some(line(child.inbound, &child.inbound_keys)? + &line(child.outbound, &child.outbound_keys)?)
}

/// Addresses are wildcards, because MOBIKE changes them.
fn esp_key_log_line(
    version: &str,
    spi: u32,
    cipher: CipherAlgorithm,
    integrity: Option<MacAlgorithm>,
    keys: &PacketKeys,
) -> Option<String> {
    let cipher = match cipher {
        CipherAlgorithm::TripleDesCbc => "TripleDES-CBC [RFC2451]",
        CipherAlgorithm::AesCbc => "AES-CBC [RFC3602]",
        CipherAlgorithm::AesGcm => "AES-GCM with 16 octet ICV [RFC4106]",
        _ => return None,
    };
    let code = match integrity {
        None => "NULL",
        Some(MacAlgorithm::HmacSha1) => "HMAC-SHA-1-96 [RFC2404]",
        Some(MacAlgorithm::HmacSha256) => "HMAC-SHA-256-128 [RFC4868]",
        Some(MacAlgorithm::HmacSha384) => "HMAC-SHA-384-192 [RFC4868]",
        Some(MacAlgorithm::HmacSha512) => "HMAC-SHA-512-256 [RFC4868]",
        Some(_) => return None,
    };
    let code_key = match &keys.integrity[..] {
        [] => String::new(),
        key => format!("0x{}", to_hex(key)),
    };
    let cipher_key = to_hex(&keys.cipher);
    Some(format!(
        "\"{version}\",\"*\",\"*\",\"0x{spi:08x}\",\"{cipher}\",\"0x{cipher_key}\",\"{code}\",\"{code_key}\"\n"
    ))
}

fn ike_key_log_line(spis: (Spi, Spi), algorithms: &PacketAlgorithms, keys: &IkeKeys) -> Option<String> {
    let cipher = match (algorithms.cipher?, algorithms.cipher_key) {
        (CipherAlgorithm::TripleDesCbc, _) => "3DES [RFC2451]",
        (CipherAlgorithm::AesCbc, 16) => "AES-CBC-128 [RFC3602]",
        (CipherAlgorithm::AesCbc, 24) => "AES-CBC-192 [RFC3602]",
        (CipherAlgorithm::AesCbc, 32) => "AES-CBC-256 [RFC3602]",
        // The length includes the four octets of salt at the end of an AES-GCM key.
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
    Some(format!(
        "{},{},{},{},\"{cipher}\",{},{},\"{integrity}\"\n",
        to_hex(&spis.0.0),
        to_hex(&spis.1.0),
        to_hex(&keys.sk_ei),
        to_hex(&keys.sk_er),
        to_hex(&keys.sk_ai),
        to_hex(&keys.sk_ar),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_crypto::SecretValue;
    use usher_ike::payload::Proposal;

    #[test]
    fn nobody_else_can_read_a_key_log_even_one_that_others_could() {
        let folder = std::env::temp_dir().join(format!("usher-key-log-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (fresh, readable) = (folder.join("fresh"), folder.join("readable"));
        std::fs::write(&readable, "a line of before\n").unwrap();
        std::fs::set_permissions(&readable, Permissions::from_mode(0o644)).unwrap();
        for path in [&fresh, &readable] {
            open_private_log(path).unwrap().write_all(b"keys\n").unwrap();
            assert_eq!(mode(path), 0o600, "{}", path.display());
        }
        assert_eq!(std::fs::read_to_string(&readable).unwrap(), "a line of before\nkeys\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn lines_are_as_wireshark_has_them() {
        let key = |octet: u8, n: usize| SecretValue::from(&vec![octet; n][..]);
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
        let of = |words: &str| {
            PacketAlgorithms::from_proposal(&Proposal::parse_ike_proposal(words).unwrap()).unwrap()
        };
        let cbc = ike_key_log_line(spis, &of("aes128-sha256-x25519"), &keys(16, 32)).unwrap();
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
        let gcm = ike_key_log_line(spis, &of("aes256gcm16-prfsha384-x25519"), &keys(36, 0)).unwrap();
        assert!(
            gcm.contains(&"03".repeat(36)) && gcm.ends_with("ICV [RFC5282]\",,,\"NONE [RFC4306]\"\n"),
            "{gcm}"
        );
        assert_eq!(ike_key_log_line(spis, &of("chacha20poly1305-prfsha256-x25519"), &keys(36, 0)), None);
    }

    #[test]
    fn lines_of_child_sas_are_as_wireshark_has_them() {
        let keys =
            |cipher, code| PacketKeys { cipher: vec![0xc; cipher].into(), integrity: vec![0xd; code].into() };
        let gcm = esp_key_log_line("IPv4", 0x1234, CipherAlgorithm::AesGcm, None, &keys(20, 0)).unwrap();
        let key = "0c".repeat(20);
        assert_eq!(
            gcm,
            format!(
                "\"IPv4\",\"*\",\"*\",\"0x00001234\",\"AES-GCM with 16 octet ICV [RFC4106]\",\"0x{key}\",\"NULL\",\"\"\n"
            )
        );
        let sha256 = Some(MacAlgorithm::HmacSha256);
        let cbc = esp_key_log_line("IPv6", 1, CipherAlgorithm::AesCbc, sha256, &keys(16, 32)).unwrap();
        assert!(
            cbc.ends_with(&format!("\"HMAC-SHA-256-128 [RFC4868]\",\"0x{}\"\n", "0d".repeat(32))),
            "{cbc}"
        );
        assert_eq!(esp_key_log_line("IPv4", 1, CipherAlgorithm::ChaCha20Poly1305, None, &keys(36, 0)), None);
    }
}

//! Revocation lists that authorities publish.

use crate::{PkiError, http, write_whole};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use usher_core::WallTime;
use usher_crypto::tls::TrustRoots;
use usher_crypto::x509::{CertificateInfo, RevocationList, X509Error};

/// Fetches the list at an `http://` URL, without redirects. Blocks for at most `timeout`, and reads at most `longest`
/// octets. The list's signature is not verified yet.
///
/// # Errors
/// No response in time, or it is not a single list.
pub fn fetch_list(url: &str, timeout: Duration, longest: u64) -> Result<RevocationList, PkiError> {
    let wrong = |cause| X509Error { parsed_item: "cannot fetch the revocation list", cause };
    let octets = http::body_octets(http::http_agent(timeout).get(url).call(), longest).map_err(wrong)?;
    let mut lists = RevocationList::parse_revocation_lists(&octets)?;
    match (lists.pop(), lists.len()) {
        (Some(list), 0) => Ok(list),
        (_, others) => Err(wrong(format!("{} lists where one is expected", others + 1)).into()),
    }
}

/// True if an issuer has a root's name but another key, both DER. TLS would apply its list to the root's
/// certificates, and then reject them all.
#[must_use]
pub fn shares_name_with_root(issuer: &[u8], roots: &[Vec<u8>]) -> bool {
    let subject = |der: &[u8]| CertificateInfo::of_der(der).map(|said| said.subject).ok();
    let is = |root: &Vec<u8>| subject(root).is_some_and(|name| Some(name) == subject(issuer));
    !roots.iter().any(|root| root == issuer) && roots.iter().any(is)
}

/// Returns the path in a folder for the list of a URL.
#[must_use]
pub fn stored_list_path(state_dir: &Path, url: &str) -> PathBuf {
    let name: String =
        url.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(100).collect();
    // The name omits some characters of the URL. A hash (FNV-1a) distinguishes URLs that differ only in these.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for octet in url.bytes() {
        hash = (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
    }
    state_dir.join("crl").join(format!("{name}-{hash:016x}.crl"))
}

/// The publisher of a list.
#[derive(Clone, Copy, Debug)]
pub struct RevocationListPublisher<'a> {
    /// An `http://` URL.
    pub url: &'a str,
    /// The timeout.
    pub timeout: Duration,
    /// The size limit in octets.
    pub longest: u64,
}

/// Fetches a list, and stores it in a file if its signature is valid, it is current, and it is newer than the stored
/// one. Returns whether it was stored. `signed` verifies the signature, with a message for its failure.
///
/// # Errors
/// Why there is no list, or why it was not stored.
pub fn renew_list(
    path: &Path,
    publisher: &RevocationListPublisher<'_>,
    (signed, wrong): (&dyn Fn(&RevocationList) -> bool, &str),
    now: WallTime,
) -> Result<bool, String> {
    let RevocationListPublisher { url, timeout: patience, longest } = *publisher;
    let list = fetch_list(url, patience, longest).map_err(|e| e.to_string())?;
    if !signed(&list) {
        return Err(format!("{wrong} this list of {}", list.issuer));
    }
    if !list.is_list_current(now) {
        return Err(format!("this list of {} has expired or is not valid yet", list.issuer));
    }
    // Check that TLS can parse the list: otherwise it would reject every handshake.
    TrustRoots::default().with_revocation_lists([list.der()]).map_err(|e| e.to_string())?;
    let before =
        fs::read(path).ok().and_then(|octets| RevocationList::parse_revocation_lists(&octets).ok()?.pop());
    // Compare numbers only with a list that the same key signed: a re-created authority starts again at the first
    // number.
    if let Some(before) = before.filter(|before| list.has_same_issuer_and_scope(before) && signed(before)) {
        if before == list {
            return Ok(false);
        }
        if !list.supersedes_list(&before) {
            return Err(format!("this list of {} is older than the saved one", list.issuer));
        }
    }
    write_private_file(path, list.der()).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    Ok(true)
}

/// Writes a file atomically, and creates its folder if missing. Only the owner can access both.
///
/// # Errors
/// An error of the system.
pub fn write_private_file(path: &Path, octets: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    write_whole(path, octets, 0o600, |_| Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AuthorityInitOptions, CertificateAuthority, KeyKind};
    use usher_core::Duration;
    use x509_parser::pem::Pem;

    fn test_now() -> WallTime {
        WallTime::from_unix_secs(1_800_000_000)
    }
    fn test_authority(name: &str) -> (CertificateAuthority, PathBuf) {
        let folder = std::env::temp_dir().join(format!("usher-list-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let options =
            AuthorityInitOptions { name: name.into(), key: KeyKind::EcdsaP256, days: 9, now: test_now() };
        (CertificateAuthority::init(&folder, &options).unwrap(), folder)
    }
    fn load_list(folder: &std::path::Path) -> RevocationList {
        RevocationList::parse_revocation_lists(&std::fs::read(folder.join("ca.crl")).unwrap())
            .unwrap()
            .remove(0)
    }
    fn certificate_der(folder: &std::path::Path) -> Vec<u8> {
        let text = std::fs::read(folder.join("ca.crt")).unwrap();
        let pem = Pem::iter_from_buffer(&text).next().unwrap().unwrap();
        pem.contents
    }

    #[test]
    fn only_its_issuer_signs_a_list_and_a_later_list_replaces_it() {
        let (mut ours, folder) = test_authority("Ours");
        let (_, other) = test_authority("Other");
        // The same name with another key.
        let (_, same) = {
            std::fs::rename(&folder, folder.with_extension("kept")).unwrap();
            let made = test_authority("Ours");
            std::fs::rename(&folder, folder.with_extension("same")).unwrap();
            std::fs::rename(folder.with_extension("kept"), &folder).unwrap();
            (made.0, folder.with_extension("same"))
        };
        let first = load_list(&folder);
        assert_eq!((first.issuer.as_str(), first.revoked), ("CN=Ours", 0));
        assert_eq!(first.next_update, Some(test_now() + Duration::from_secs(30 * 86_400)));
        let [ours_der, other_der, same_der] = [&folder, &other, &same].map(|f| certificate_der(f));
        assert!(first.is_signed_by([&other_der[..], &ours_der[..]]));
        assert!(!first.is_signed_by([&other_der[..], &same_der[..]]));
        ours.publish_list_with_lifetime(test_now() + Duration::from_secs(60), Duration::from_secs(600))
            .unwrap();
        let second = load_list(&folder);
        assert!(
            second.supersedes_list(&first)
                && !first.supersedes_list(&second)
                && !second.supersedes_list(&second)
        );
        assert!(!load_list(&other).supersedes_list(&first) && !load_list(&same).supersedes_list(&second));
        assert!(
            second.is_list_current(test_now() + Duration::from_secs(659))
                && !second.is_list_current(test_now() + Duration::from_secs(660))
        );
        assert_eq!(
            RevocationList::parse_revocation_lists(second.der()).unwrap().pop().as_ref(),
            Some(&second)
        );
        // One bit is changed.
        let mut forged = second.der().to_vec();
        let at = forged.len() / 2;
        forged[at] ^= 1;
        assert!(!RevocationList::of_der(&forged).is_ok_and(|l| l.is_signed_by([&ours_der[..]])));
        for wrong in [&b""[..], b"no list", &second.der()[..40], &[second.der(), b"x"].concat()] {
            assert!(RevocationList::parse_revocation_lists(wrong).is_err());
        }
        for folder in [folder, other, same] {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}

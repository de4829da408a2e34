//! Revocation lists where authorities publish them.

use crate::{PkiError, http};
use usher_crypto::x509::{RevocationList, X509Error};

/// Fetches the one list that is published at an `http://` URL, without redirects. Blocks for at most `timeout`, and
/// reads at most `longest` octets. Nothing says yet that it may be believed.
///
/// # Errors
/// Nothing came in time, or something else than one list.
pub fn fetch_list(url: &str, timeout: std::time::Duration, longest: u64) -> Result<RevocationList, PkiError> {
    let wrong = |cause| X509Error { what: "revocation list", cause };
    let octets = http::octets(http::agent(timeout).get(url).call(), longest).map_err(wrong)?;
    let mut lists = RevocationList::read(&octets)?;
    match (lists.pop(), lists.len()) {
        (Some(list), 0) => Ok(list),
        (_, others) => Err(wrong(format!("{} where one is expected", others + 1)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Authority, InitOptions, KeyKind};
    use std::path::PathBuf;
    use usher_core::{Duration, WallTime};
    use x509_parser::pem::Pem;

    fn now() -> WallTime {
        WallTime::from_unix_secs(1_800_000_000)
    }
    fn authority(name: &str) -> (Authority, PathBuf) {
        let folder = std::env::temp_dir().join(format!("usher-list-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let options = InitOptions { name: name.into(), key: KeyKind::EcdsaP256, days: 9, now: now() };
        (Authority::init(&folder, &options).unwrap(), folder)
    }
    fn list(folder: &std::path::Path) -> RevocationList {
        RevocationList::read(&std::fs::read(folder.join("ca.crl")).unwrap()).unwrap().remove(0)
    }
    fn certificate(folder: &std::path::Path) -> Vec<u8> {
        let text = std::fs::read(folder.join("ca.crt")).unwrap();
        let pem = Pem::iter_from_buffer(&text).next().unwrap().unwrap();
        pem.contents
    }

    #[test]
    fn a_list_is_believed_of_its_issuer_alone_and_replaced_by_a_later_one() {
        let (mut ours, folder) = authority("Ours");
        let (_, other) = authority("Other");
        // Of the same name, another key.
        let (_, same) = {
            std::fs::rename(&folder, folder.with_extension("kept")).unwrap();
            let made = authority("Ours");
            std::fs::rename(&folder, folder.with_extension("same")).unwrap();
            std::fs::rename(folder.with_extension("kept"), &folder).unwrap();
            (made.0, folder.with_extension("same"))
        };
        let first = list(&folder);
        assert_eq!((first.issuer.as_str(), first.revoked), ("CN=Ours", 0));
        assert_eq!(first.next_update, Some(now() + Duration::from_secs(30 * 86_400)));
        let [ours_der, other_der, same_der] = [&folder, &other, &same].map(|f| certificate(f));
        assert!(first.is_signed_by([&other_der[..], &ours_der[..]]));
        assert!(!first.is_signed_by([&other_der[..], &same_der[..]]));
        ours.publish_for(now() + Duration::from_secs(60), Duration::from_secs(600)).unwrap();
        let second = list(&folder);
        assert!(
            second.is_later_than(&first) && !first.is_later_than(&second) && !second.is_later_than(&second)
        );
        assert!(!list(&other).is_later_than(&first) && !list(&same).is_later_than(&second));
        assert!(
            second.is_of_now(now() + Duration::from_secs(659))
                && !second.is_of_now(now() + Duration::from_secs(660))
        );
        assert_eq!(RevocationList::read(second.der()).unwrap().pop().as_ref(), Some(&second));
        // A bit of it changed.
        let mut forged = second.der().to_vec();
        let at = forged.len() / 2;
        forged[at] ^= 1;
        assert!(!RevocationList::of_der(&forged).is_ok_and(|l| l.is_signed_by([&ours_der[..]])));
        for wrong in [&b""[..], b"no list", &second.der()[..40], &[second.der(), b"x"].concat()] {
            assert!(RevocationList::read(wrong).is_err());
        }
        for folder in [folder, other, same] {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}

//! An operator's work on the store: users by name, password rows, secrets.

use crate::installation;
use usher_aaa::User;
use usher_aaa::store::{AttributeRow, RowOperator, UserRows};
use usher_crypto::legacy::nt_hash;
use usher_crypto::password::argon2_hash;
use usher_radius::dictionary::{AttributeEncryption, RadiusDictionary};

/// The form of a stored password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PasswordForm {
    /// Clear text. All methods support it.
    Clear,
    /// NT hash. PAP, MS-CHAP and MSCHAPv2 support it.
    Nt,
    /// Argon2 hash. PAP and GTC support it, in tunnels too.
    Argon2,
}

/// Returns the radcheck row of a password.
///
/// # Errors
/// The system has no random numbers.
pub fn password_row(password: &str, kept: PasswordForm) -> std::io::Result<AttributeRow> {
    let (attribute, value) = match kept {
        PasswordForm::Clear => ("Cleartext-Password", password.to_owned()),
        PasswordForm::Nt => {
            ("NT-Password", nt_hash(password.as_bytes()).iter().map(|b| format!("{b:02x}")).collect())
        }
        PasswordForm::Argon2 => {
            ("Crypt-Password", argon2_hash(password.as_bytes(), &installation::random_octets()?))
        }
    };
    Ok(AttributeRow { attribute: attribute.to_owned(), op: RowOperator::Replace, value })
}

/// Checks that the server can parse a user's rows.
///
/// # Errors
/// The first error, and how to fix it.
pub fn check_rows(rows: &UserRows, dictionary: &RadiusDictionary) -> Result<(), String> {
    User::compile(rows, dictionary).map(drop).map_err(|complaint| complaint.to_string())
}

/// True if an attribute's value must not be shown: a password, or an attribute that RADIUS encrypts.
#[must_use]
pub fn is_secret(attribute: &str, dictionary: &RadiusDictionary) -> bool {
    let bare = attribute.split(':').next().unwrap_or(attribute);
    let hidden = dictionary.by_name(bare).is_some_and(|d| d.encryption != AttributeEncryption::None);
    let name = bare.to_ascii_lowercase();
    hidden || name.ends_with("-password") || name == "password-with-header"
}

/// Returns a random secret of 32 hexadecimal digits.
///
/// # Errors
/// The system has no random numbers.
pub fn generate_hex_secret() -> std::io::Result<String> {
    Ok(installation::random_octets::<16>()?.iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_aaa::store::{Store, user_of};

    #[test]
    fn a_device_is_found_under_another_spelling_of_its_address() {
        let path = std::env::temp_dir().join(format!("usher-daemon-spellings-{}.db", std::process::id()));
        let remove = || {
            for more in ["", "-wal", "-shm"] {
                // SQLite may have removed the file.
                let _ = std::fs::remove_file(format!("{}{more}", path.display()));
            }
        };
        remove();
        let mut store = usher_store::SqliteStore::open(&path).unwrap();
        for name in ["00-11-22-AA-BB-CC", "0011.22aa.bbcd", "ann"] {
            let check = vec![AttributeRow {
                attribute: "Expiration".to_owned(),
                op: RowOperator::Replace,
                value: "x".to_owned(),
            }];
            store.put_user(name, &UserRows { check, ..UserRows::default() }).unwrap();
        }
        let mut known = |name: &str| user_of(&mut store, name).unwrap().is_some();
        assert!(known("001122aabbcc") && known("00:11:22:aa:bb:cc") && known("001122AABBCD") && known("ann"));
        assert!(!known("001122aabbce") && !known("Ann"));
        drop(store);
        remove();
    }
}

//! What an operator does with the store: users by name, passwords as rows, secrets.

use crate::installation;
use usher_aaa::User;
use usher_aaa::store::{AttributeRow, RowOperator, UserRows};
use usher_crypto::legacy::nt_hash;
use usher_crypto::password::argon2_hash;
use usher_radius::dictionary::{AttributeEncryption, RadiusDictionary};

/// How a password is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PasswordForm {
    /// In clear: every method can use it.
    Clear,
    /// As its NT hash: PAP, MS-CHAP and MSCHAPv2 can.
    Nt,
    /// As its argon2 hash: PAP and GTC can, in tunnels too.
    Argon2,
}

/// The row of radcheck that keeps a password.
///
/// # Errors
/// The system gave no random numbers.
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

/// Whether the server will understand a user's rows.
///
/// # Errors
/// What is wrong with them, and what to do.
pub fn check_rows(rows: &UserRows, dictionary: &RadiusDictionary) -> Result<(), String> {
    User::compile(rows, dictionary).map(drop).map_err(|complaint| complaint.to_string())
}

/// Whether an attribute's value is a secret, not to be shown: a password, or what goes hidden over the wire.
#[must_use]
pub fn is_secret(attribute: &str, dictionary: &RadiusDictionary) -> bool {
    let bare = attribute.split(':').next().unwrap_or(attribute);
    let hidden = dictionary.by_name(bare).is_some_and(|d| d.encryption != AttributeEncryption::None);
    let name = bare.to_ascii_lowercase();
    hidden || name.ends_with("-password") || name == "password-with-header"
}

/// A secret that nobody can guess: 32 hexadecimal digits.
///
/// # Errors
/// The system gave no random numbers.
pub fn new_secret() -> std::io::Result<String> {
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
                // What SQLite has taken away itself is gone.
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

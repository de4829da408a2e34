//! What an operator does with the store: passwords as rows, secrets.

use crate::place;
use usher_aaa::User;
use usher_aaa::store::{Op, Row, UserRows};
use usher_crypto::legacy::nt_hash;
use usher_crypto::password::argon2_hash;
use usher_radius::dictionary::Dictionary;

/// How a password is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
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
pub fn password_row(password: &str, kept: Kept) -> std::io::Result<Row> {
    let (attribute, value) = match kept {
        Kept::Clear => ("Cleartext-Password", password.to_owned()),
        Kept::Nt => {
            ("NT-Password", nt_hash(password.as_bytes()).iter().map(|b| format!("{b:02x}")).collect())
        }
        Kept::Argon2 => ("Crypt-Password", argon2_hash(password.as_bytes(), &place::random()?)),
    };
    Ok(Row { attribute: attribute.to_owned(), op: Op::Replace, value })
}

/// Whether the server will understand a user's rows.
///
/// # Errors
/// What is wrong with them, and what to do.
pub fn understood(rows: &UserRows) -> Result<(), String> {
    User::compile(rows, &Dictionary::builtin()).map(drop).map_err(|complaint| complaint.to_string())
}

/// Whether an attribute's value is a secret, not to be shown.
#[must_use]
pub fn is_secret(attribute: &str) -> bool {
    attribute.ends_with("-Password") || attribute == "Password-With-Header"
}

/// A secret that nobody can guess: 32 hexadecimal digits.
///
/// # Errors
/// The system gave no random numbers.
pub fn new_secret() -> std::io::Result<String> {
    Ok(place::random::<16>()?.iter().map(|b| format!("{b:02x}")).collect())
}

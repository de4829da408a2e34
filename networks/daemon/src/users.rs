//! Users from the rows of a store or of the configuration file: their passwords.

use usher_aaa::store::UserRows;
use usher_aaa::{Password, User};
use usher_radius::dictionary::Dictionary;

/// The user of these rows.
///
/// # Errors
/// A row that cannot be understood.
pub(crate) fn compile(rows: &UserRows, _: &Dictionary) -> Result<User, String> {
    let mut user = User::default();
    for row in &rows.check {
        if row.attribute == "Cleartext-Password" {
            user.password = Some(Password::Clear(row.value.clone().into_bytes()));
        }
    }
    Ok(user)
}

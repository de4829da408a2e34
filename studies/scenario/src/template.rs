//! The file that a new study starts from.

/// A commented study file that is valid as it stands.
pub fn template() -> &'static str {
    include_str!("../template.toml")
}

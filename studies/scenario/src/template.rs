//! The files that a new study starts from.

/// A commented study file that is valid as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Template {
    /// The kind of its workload.
    pub kind: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// Declares the templates by their files' names.
macro_rules! templates {
    ($($kind:literal),+ $(,)?) => {
        &[$(Template { kind: $kind, text: include_str!(concat!("../templates/", $kind, ".toml")) }),+]
    };
}

/// All of them.
pub const TEMPLATES: &[Template] = templates!["dialogue", "eap", "mih", "handover"];

/// That of the plain dialogue.
pub fn template() -> &'static str {
    TEMPLATES[0].text
}

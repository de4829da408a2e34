//! The files that a new study starts from.

/// A commented study file that is valid as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StudyTemplate {
    /// The kind of its workload.
    pub kind: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// Declares the templates by the names of their files.
macro_rules! templates {
    ($($kind:literal),+ $(,)?) => {
        &[$(StudyTemplate { kind: $kind, text: include_str!(concat!("../templates/", $kind, ".toml")) }),+]
    };
}

/// All templates.
pub const TEMPLATES: &[StudyTemplate] = templates!["dialogue", "eap", "mih", "handover"];

/// Returns the template of the plain dialogue.
pub fn default_template() -> &'static str {
    TEMPLATES[0].text
}

//! Secrets from the file itself, a separate file or the environment.

use crate::document::ConfigEnvironment;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::path::Path;
use usher_crypto::SecretValue;

/// A secret text. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SecretText(
    #[serde(deserialize_with = "read_key")]
    #[schemars(with = "String")]
    pub SecretValue<String>,
);

fn read_key<'de, D: Deserializer<'de>>(text: D) -> Result<SecretValue<String>, D::Error> {
    String::deserialize(text).map(SecretValue::new)
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Returns the secret in a file of its own, without the line end.
///
/// # Errors
/// A sentence that says what to do.
pub fn from_file(path: &Path, outside: &dyn ConfigEnvironment) -> Result<SecretText, String> {
    let text = SecretValue::new(outside.read_secret(path)?);
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() {
        return Err(format!("{} is empty; write the secret into it", path.display()));
    }
    Ok(SecretText(line.into()))
}

/// The one of three places that says the secret of a key: itself, the file of `KEY_file`, the variable of `KEY_env`. `None`
/// where none does.
///
/// # Errors
/// The place's key, and a sentence that says what to do.
pub fn resolve_secret(
    key: &str,
    inline: Option<&SecretText>,
    file: Option<&Path>,
    env: Option<&str>,
    outside: &dyn ConfigEnvironment,
) -> Result<Option<SecretText>, (String, String)> {
    match (inline, file, env) {
        (None, None, None) => Ok(None),
        (Some(text), None, None) if text.0.is_empty() => {
            Err((key.to_owned(), format!("\"{key}\" is empty; set it, or remove it")))
        }
        (Some(text), None, None) => Ok(Some(text.clone())),
        (None, Some(file), None) => {
            from_file(file, outside).map(Some).map_err(|e| (format!("{key}_file"), e))
        }
        (None, None, Some(name)) => match outside.variable(name) {
            Some(text) if !text.is_empty() => Ok(Some(SecretText(text.into()))),
            _ => {
                let message = format!("the environment variable {name} is not set; set it to the secret");
                Err((format!("{key}_env"), message))
            }
        },
        _ => {
            let message =
                format!("\"{key}\", \"{key}_file\" and \"{key}_env\" exclude each other; keep one of them");
            Err((String::new(), message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct MockEnvironment;

    impl ConfigEnvironment for MockEnvironment {
        fn read_text(&self, _: &Path) -> Result<String, String> {
            Err("no file is included".to_owned())
        }
        fn read_secret(&self, path: &Path) -> Result<String, String> {
            match path.to_str() {
                Some("s") => Ok("of the file \r\n".to_owned()),
                Some("empty") => Ok("\n".to_owned()),
                _ => Err("others can read it".to_owned()),
            }
        }
        fn variable(&self, name: &str) -> Option<String> {
            match name {
                "SET" => Some("of the variable".to_owned()),
                "EMPTY" => Some(String::new()),
                _ => None,
            }
        }
    }

    #[test]
    fn a_secret_is_said_in_one_of_three_places() {
        let inline = SecretText("inline".to_owned().into());
        let found = |inline, file: Option<&str>, env| {
            resolve_secret("secret", inline, file.map(Path::new), env, &MockEnvironment)
                .map(|s| s.map(|s| (*s.0).clone()))
                .map_err(|(key, message)| format!("{key}: {message}"))
        };
        let is = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(found(None, None, None), Ok(None));
        assert_eq!(found(Some(&inline), None, None), is("inline"));
        assert_eq!(found(None, Some("s"), None), is("of the file "));
        assert_eq!(found(None, None, Some("SET")), is("of the variable"));
        let wrong = |found: Result<_, String>| found.unwrap_err();
        assert_eq!(wrong(found(None, Some("open"), None)), "secret_file: others can read it");
        assert_eq!(
            wrong(found(None, Some("empty"), None)),
            "secret_file: empty is empty; write the secret into it"
        );
        for name in ["UNSET", "EMPTY"] {
            let said = format!("secret_env: the environment variable {name} is not set");
            assert!(wrong(found(None, None, Some(name))).starts_with(&said));
        }
        assert!(wrong(found(Some(&inline), Some("s"), None)).contains("keep one of them"));
        let empty = SecretText(String::new().into());
        assert!(wrong(found(Some(&empty), None, None)).starts_with("secret: \"secret\" is empty"));
        assert_eq!(format!("{inline:?}"), "(hidden)");
    }
}

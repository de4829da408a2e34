//! Secrets: from the file itself, from a file of their own, from the environment.

use super::model::Hidden;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Bits of a file's mode that let others read or change it.
const OTHERS: u32 = 0o007;

/// Refuses a file that others than its owner and group can read or change.
///
/// # Errors
/// A sentence that says what to do.
pub fn private(path: &Path) -> Result<(), String> {
    let mode = fs::metadata(path).map_err(|e| format!("{}: {e}", path.display()))?.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(());
    }
    let shown = path.display();
    Err(format!(
        "{shown} holds a secret and has mode {:04o}, so that others can read or change it; give it to the group that the \
         server runs with and say: chmod 0640 {shown}, or to its user and: chmod 0600 {shown}",
        mode & 0o7777
    ))
}

/// What a file of its own holds, without the line end.
///
/// # Errors
/// A sentence that says what to do.
pub fn from_file(path: &Path) -> Result<Hidden, String> {
    private(path)?;
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(format!("{} is empty; write the secret into it", path.display()));
    }
    Ok(Hidden(text.into()))
}

/// What an environment variable holds.
///
/// # Errors
/// A sentence that says what to do.
pub fn from_env(name: &str) -> Result<Hidden, String> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => Ok(Hidden(text.into())),
        _ => Err(format!("the environment variable {name} is not set; set it to the secret")),
    }
}

/// The one of three places that says it; `None` where none does.
///
/// # Errors
/// The place's key, and a sentence that says what to do.
pub(super) fn one(
    inline: Option<&Hidden>,
    file: Option<&Path>,
    env: Option<&str>,
    key: &'static str,
) -> Result<Option<Hidden>, (String, String)> {
    let given = usize::from(inline.is_some()) + usize::from(file.is_some()) + usize::from(env.is_some());
    if given > 1 {
        let message = format!("\"{key}\", \"{key}_file\" and \"{key}_env\" say the same; keep one of them");
        return Err((String::new(), message));
    }
    match (inline, file, env) {
        (Some(text), _, _) if text.0.is_empty() => {
            Err((key.to_owned(), format!("\"{key}\" is empty; write it, or take it away")))
        }
        (Some(text), _, _) => Ok(Some(text.clone())),
        (_, Some(file), _) => from_file(file).map(Some).map_err(|e| (format!("{key}_file"), e)),
        (_, _, Some(name)) => from_env(name).map(Some).map_err(|e| (format!("{key}_env"), e)),
        _ => Ok(None),
    }
}

/// The shared secret of clients and home servers: shorter ones can be guessed from one packet.
pub(super) fn long_enough(secret: &Hidden) -> Result<(), String> {
    match secret.0.len() {
        0..=5 => Err("a secret of fewer than 6 octets is guessed at once; take 16 or more (head -c 16 /dev/urandom | base64)".to_owned()),
        _ => Ok(()),
    }
}

//! Secrets: from the file itself, from a file of their own, from the environment.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use usher_config::Outside;
use usher_config::secret::Hidden;

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

/// Files and variables of this machine.
pub(crate) struct Disk;

impl Outside for Disk {
    fn file(&self, path: &Path) -> Result<String, String> {
        fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
    }
    fn secret(&self, path: &Path) -> Result<String, String> {
        private(path)?;
        self.file(path)
    }
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

/// What a file of its own holds, without the line end.
///
/// # Errors
/// A sentence that says what to do.
pub fn from_file(path: &Path) -> Result<Hidden, String> {
    usher_config::secret::from_file(path, &Disk)
}

/// The shared secret of clients and home servers: shorter ones can be guessed from one packet.
pub(super) fn long_enough(secret: &Hidden) -> Result<(), String> {
    match secret.0.len() {
        0..=5 => Err("a secret of fewer than 6 octets is guessed at once; take 16 or more (head -c 16 /dev/urandom | base64)".to_owned()),
        _ => Ok(()),
    }
}

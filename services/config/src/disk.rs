//! A [`ConfigEnvironment`] that reads the files and environment variables of this machine.

use crate::document::ConfigEnvironment;
use crate::fault::ConfigErrors;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// An error that prevents loading a configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file has faults.
    #[error(transparent)]
    Faults(#[from] ConfigErrors),
}

/// Reads a text file.
///
/// # Errors
/// The file cannot be read.
pub fn read_file_text(path: &Path) -> Result<String, LoadError> {
    fs::read_to_string(path).map_err(|source| LoadError::Unreadable { path: path.to_owned(), source })
}

/// A file's mode.
#[cfg(unix)]
fn mode(path: &Path) -> io::Result<u32> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::metadata(path)?.permissions().mode())
}
/// This platform has no files.
#[cfg(not(unix))]
fn mode(_: &Path) -> io::Result<u32> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Mode bits that let users other than owner and group read or change a file.
const OTHERS_MODE_BITS: u32 = 0o007;

/// Checks that only its owner and group can read or change a file.
///
/// # Errors
/// A message with the remedy.
pub fn check_private(path: &Path) -> Result<(), String> {
    let mode = mode(path).map_err(|e| format!("{}: {e}", path.display()))?;
    if mode & OTHERS_MODE_BITS == 0 {
        return Ok(());
    }
    let shown = path.display();
    Err(format!(
        "{shown} holds a secret, but its mode {:04o} lets other users read or change it; give the file to the server's \
         group and run: chmod 0640 {shown}, or to the server's user and run: chmod 0600 {shown}",
        mode & 0o7777
    ))
}

/// The files and environment variables of this machine.
#[derive(Clone, Copy, Debug)]
pub struct DiskEnvironment;

impl ConfigEnvironment for DiskEnvironment {
    fn read_text(&self, path: &Path) -> Result<String, String> {
        fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
    }
    fn read_secret(&self, path: &Path) -> Result<String, String> {
        check_private(path)?;
        self.read_text(path)
    }
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
    fn read_octets(&self, path: &Path, most: u64) -> Result<Vec<u8>, String> {
        let mut octets = Vec::new();
        let read = fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut octets));
        read.map(|_| octets).map_err(|e| format!("{}: {e}", path.display()))
    }
    fn canonical_name(&self, path: &Path) -> Result<PathBuf, String> {
        path.canonicalize().map_err(|e| format!("{}: {e}", path.display()))
    }
}

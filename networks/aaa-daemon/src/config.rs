//! The configuration file on this machine, with the secrets, keys and lists that it names.

use std::path::{Path, PathBuf};
use usher_aaa_config::{LoadedAaaConfig, model, parse, parse_without_checks as outline_of};
use usher_config::ConfigEnvironment;
use usher_config::disk::{DiskEnvironment, LoadError, read_file_text};
use usher_config::secret::SecretText;

/// Path of the configuration without `--config`.
pub const DEFAULT_PATH: &str = "/etc/usher/aaa.toml";

/// Reads and checks a file, with the secrets and keys that it names.
///
/// # Errors
/// The file cannot be read, or all errors in it.
pub fn load_config(path: &Path) -> Result<LoadedAaaConfig, LoadError> {
    Ok(parse(&path.display().to_string(), &read_file_text(path)?, Some(path), &ServerConfigEnvironment)?)
}

/// Reads a file and its includes without checks, secrets and other files. Paths of revocation lists are made
/// absolute.
///
/// # Errors
/// The file cannot be read or parsed.
pub(crate) fn load_unchecked_config(path: &Path) -> Result<model::ConfigFile, LoadError> {
    Ok(outline_of(&read_file_text(path)?, path, &ServerConfigEnvironment)?)
}

/// Reads a secret from a file of its own, without the line end.
///
/// # Errors
/// A sentence that says how to fix it.
pub fn from_file(path: &Path) -> Result<SecretText, String> {
    usher_config::secret::from_file(path, &DiskEnvironment)
}

/// Files and environment variables of this machine, and the server's databases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerConfigEnvironment;

impl ConfigEnvironment for ServerConfigEnvironment {
    fn read_text(&self, path: &Path) -> Result<String, String> {
        DiskEnvironment.read_text(path)
    }
    fn read_secret(&self, path: &Path) -> Result<String, String> {
        DiskEnvironment.read_secret(path)
    }
    fn variable(&self, name: &str) -> Option<String> {
        DiskEnvironment.variable(name)
    }
    fn read_octets(&self, path: &Path, most: u64) -> Result<Vec<u8>, String> {
        DiskEnvironment.read_octets(path, most)
    }
    fn canonical_name(&self, path: &Path) -> Result<PathBuf, String> {
        DiskEnvironment.canonical_name(path)
    }
    fn check_database(&self, url: &str) -> Result<(), String> {
        usher_store::PostgresStore::new(url).map(drop).map_err(|refused| refused.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secrets_that_others_can_read_are_refused() {
        let folder = std::env::temp_dir().join(format!("usher-daemon-secrets-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("aaa.toml");
        let secret = folder.join("s");
        std::fs::write(&secret, "0123456789abcdef\n").unwrap();
        std::fs::write(&path, "[[client]]\nname = \"a\"\nprefix = \"::1\"\nsecret_file = \"s\"\n").unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
        };
        mode(&path, 0o644);
        mode(&secret, 0o644);
        let said = load_config(&path).unwrap_err().to_string();
        assert!(said.contains("aaa.toml:4:15: ") && said.contains("chmod 0600"), "{said}");
        mode(&secret, 0o600);
        let loaded = load_config(&path).unwrap();
        assert_eq!(loaded.clients[0].secret.as_ref().unwrap().0.as_str(), "0123456789abcdef");
        assert!(!format!("{loaded:?}").contains("0123456789abcdef"));
        std::fs::write(&path, "[[client]]\nname = \"a\"\nprefix = \"::1\"\nsecret = \"0123456789abcdef\"\n")
            .unwrap();
        let said = load_config(&path).unwrap_err().to_string();
        assert!(said.contains("aaa.toml:4:10: ") && said.contains("its mode 0644"), "{said}");
        mode(&path, 0o640);
        assert!(load_config(&path).is_ok());
        // An included file likewise.
        let included = folder.join("clients.toml");
        std::fs::copy(&path, &included).unwrap();
        std::fs::write(&path, "include = [\"clients.toml\"]\n").unwrap();
        mode(&path, 0o644);
        mode(&included, 0o644);
        let said = load_config(&path).unwrap_err().to_string();
        assert!(said.contains("clients.toml:4:10: ") && said.contains("chmod 0640"), "{said}");
        mode(&included, 0o640);
        let loaded = load_config(&path).unwrap();
        assert_eq!((loaded.clients.len(), loaded.included), (1, vec![included]));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

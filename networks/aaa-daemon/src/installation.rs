//! The server's state directory, and the defaults without a configuration.

use crate::config::{self, DEFAULT_PATH};
use crate::fetched;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fmt, fs};
use usher_aaa::IdentityKey;
use usher_aaa::store::{Store, StoreError};
use usher_aaa_config::model::StoreKind;
use usher_aaa_config::{LoadedAaaConfig, parse};
use usher_config::disk::LoadError;
use usher_config::{EmptyConfigEnvironment, Prefix};
use usher_service::folder;

/// A configuration, and the state directory.
#[derive(Clone, Debug)]
pub struct ServerInstallation {
    /// The configuration.
    pub loaded: LoadedAaaConfig,
    /// The state directory.
    pub state_dir: PathBuf,
    /// True if there is no file and defaults are used.
    pub first: bool,
}

/// The state of a store, examined without changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreInspectionReport {
    /// Kind and location.
    pub location: String,
    /// Its tables. `None`: the file does not exist yet; a server creates it.
    pub schema: Option<usher_store::SchemaReport>,
}

impl StoreInspectionReport {
    /// Missing parts that a server needs, a sentence each.
    #[must_use]
    pub fn missing_schema_parts(&self) -> &[String] {
        self.schema.as_ref().map_or(&[], |schema| &schema.missing)
    }
}

impl fmt::Display for StoreInspectionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = usher_store::SCHEMA_VERSION;
        match self.schema.as_ref().map(|schema| schema.version) {
            None => write!(f, "{}: does not exist yet; usher aaa serve creates it", self.location),
            Some(0) => {
                write!(f, "{}: has no tables of Usher yet; usher aaa serve creates them", self.location)
            }
            Some(version) if version < known => {
                write!(
                    f,
                    "{}: tables of version {version}; usher aaa serve upgrades them to {known}",
                    self.location
                )
            }
            Some(version) => write!(f, "{}: tables of version {version}", self.location),
        }
    }
}

/// Secrets that a server generates at its first start.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedServerSecrets {
    /// Secret of loopback clients, if nothing is configured.
    pub(crate) generated: Option<String>,
    /// Key of the aliases that hide names from clients.
    pub(crate) identity_key: IdentityKey,
}

/// An error of a configuration or state directory.
#[derive(Debug, thiserror::Error)]
pub enum InstallationError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] LoadError),
    /// A file or directory.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The control socket of a configuration's server, and the lists of its file. The configuration's secrets, which
/// only the server may read, are not needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerControlPaths {
    /// The control socket.
    pub control_socket: PathBuf,
    /// Files of revocation lists.
    pub crl: Vec<PathBuf>,
}

impl ServerControlPaths {
    /// Reads a configuration: the given file, the default file, or defaults if that does not exist.
    ///
    /// # Errors
    /// A given file does not exist or cannot be parsed.
    pub fn from_config(config: Option<&Path>) -> Result<Self, InstallationError> {
        let there = || Some(Path::new(DEFAULT_PATH)).filter(|path| path.exists());
        let file = config.or_else(there).map(config::load_unchecked_config).transpose()?;
        let said = file.as_ref();
        let state_dir = said.and_then(|f| f.state_dir.clone()).unwrap_or_else(default_state_dir);
        let socket = said.and_then(|f| f.control.socket.clone());
        Ok(Self {
            control_socket: socket.unwrap_or_else(|| state_dir.join("control.sock")),
            crl: file.and_then(|f| f.tls).map(|tls| tls.crl).unwrap_or_default(),
        })
    }
}

/// Returns random octets of the system.
///
/// # Errors
/// The system has none.
pub fn random_octets<const N: usize>() -> io::Result<[u8; N]> {
    let mut octets = [0; N];
    fs::File::open("/dev/urandom")?.read_exact(&mut octets)?;
    Ok(octets)
}

impl ServerInstallation {
    /// Reads and checks the configuration: the given file, the default file, or defaults if that does not exist.
    ///
    /// # Errors
    /// A given file does not exist, or has errors.
    pub fn from_config(config: Option<&Path>) -> Result<Self, InstallationError> {
        let (loaded, first) = match config {
            Some(path) => (config::load_config(path)?, false),
            None if Path::new(DEFAULT_PATH).exists() => {
                (config::load_config(Path::new(DEFAULT_PATH))?, false)
            }
            None => (
                parse("no configuration", "", None, &EmptyConfigEnvironment).map_err(LoadError::Faults)?,
                true,
            ),
        };
        let state_dir = loaded.file.state_dir.clone().unwrap_or_else(default_state_dir);
        let mut place = Self { loaded, state_dir, first };
        fetched::load_fetched_revocation_lists(&mut place.loaded, &place.state_dir);
        Ok(place)
    }

    /// Creates the state directory, accessible to its owner only, if it does not exist.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create_state_dir(&self) -> Result<(), InstallationError> {
        self.map_state_dir_error(folder::create_private(&self.state_dir))
    }

    /// Checks that the state directory exists or can be created.
    ///
    /// # Errors
    /// The error of [`ServerInstallation::create_state_dir`].
    pub(crate) fn check_state_dir(&self) -> Result<(), InstallationError> {
        self.map_state_dir_error(folder::check_private(&self.state_dir))
    }

    fn map_state_dir_error(&self, done: io::Result<()>) -> Result<(), InstallationError> {
        done.map_err(|error| InstallationError::File { path: self.state_dir.clone(), error })
    }

    /// Returns the server's own secrets. With `keep`, missing ones are generated and saved. Otherwise placeholders
    /// are used.
    ///
    /// # Errors
    /// A secret cannot be created or read.
    pub(crate) fn own_secrets(&self, keep: bool) -> Result<GeneratedServerSecrets, InstallationError> {
        let generated = self
            .first
            .then(|| self.load_or_generate::<16>(self.generated_secret_path(), keep))
            .transpose()?;
        Ok(GeneratedServerSecrets { generated, identity_key: self.identity_key(keep)? })
    }

    /// Returns the secret of loopback clients without a configuration. It is generated at the first start, readable
    /// by its owner only.
    ///
    /// # Errors
    /// It cannot be created or read.
    pub fn generated_secret(&self) -> Result<String, InstallationError> {
        self.load_or_generate::<16>(self.generated_secret_path(), true)
    }

    /// Returns the key of aliases: the configured one, or the one generated at the first start.
    ///
    /// # Errors
    /// It cannot be created or read.
    fn identity_key(&self, keep: bool) -> Result<IdentityKey, InstallationError> {
        let text = match &self.loaded.identity_key {
            Some(key) => key.0.clone(),
            None => self.load_or_generate::<32>(self.state_dir.join("identity.key"), keep)?.into(),
        };
        Ok(IdentityKey::new(text.as_bytes()))
    }

    /// Reads random octets in hexadecimal from a file. If it does not exist, generates them, and saves them with
    /// `keep`.
    fn load_or_generate<const N: usize>(
        &self,
        path: PathBuf,
        keep: bool,
    ) -> Result<String, InstallationError> {
        let file = |error| InstallationError::File { path: path.clone(), error };
        match fs::read_to_string(&path) {
            Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(file(error)),
            _ => {}
        }
        let secret: String = random_octets::<N>().map_err(file)?.iter().map(|b| format!("{b:02x}")).collect();
        if keep {
            self.write_secret(&path, &secret).map_err(file)?;
        }
        Ok(secret)
    }

    /// Writes a secret, readable by the owner of the state directory only.
    fn write_secret(&self, path: &Path, secret: &str) -> io::Result<()> {
        let give = |file: &fs::File| usher_store::set_file_owner_from_folder(&self.state_dir, file);
        usher_pki::write_whole(path, format!("{secret}\n").as_bytes(), 0o600, give)
    }

    /// Returns the secret of a loopback client: from the file, the store, or the generated one. `None`: the address
    /// is no client.
    ///
    /// # Errors
    /// The store or the generated secret cannot be read.
    pub fn loopback_secret(&self, address: IpAddr) -> Result<Option<String>, InstallationError> {
        let mut all: Vec<(Prefix, Option<String>)> = Vec::new();
        for client in &self.loaded.clients {
            all.extend(client.secret.as_ref().map(|s| (client.prefix, Some((*s.0).clone()))));
        }
        for row in self.open_store()?.list_clients()? {
            let secret = row.virtual_server().is_none().then(|| row.secret.clone());
            all.extend(Prefix::parse(&row.nasname).ok().map(|prefix| (prefix, secret)));
        }
        let fits = all.into_iter().filter(|(prefix, _)| prefix.contains(address));
        match fits.max_by_key(|(prefix, _)| prefix.bits) {
            Some((_, secret)) => Ok(secret),
            None if self.first => self.generated_secret().map(Some),
            None => Ok(None),
        }
    }

    /// Path of the generated secret.
    #[must_use]
    pub fn generated_secret_path(&self) -> PathBuf {
        self.state_dir.join("secret")
    }

    /// Path of the SQLite database.
    #[must_use]
    pub fn database_path(&self) -> PathBuf {
        self.loaded.file.users.path.clone().unwrap_or_else(|| self.state_dir.join("usher.db"))
    }

    /// Path of the control socket.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.loaded.file.control.socket.clone().unwrap_or_else(|| self.state_dir.join("control.sock"))
    }

    /// Connects a server to its store. A connection to PostgreSQL is made at first use, so that a server starts
    /// while its database is away. `proven`: the database has already accepted a connection of this server.
    ///
    /// # Errors
    /// The store cannot be opened, also not later.
    pub(crate) fn connect_server_store(&self, proven: bool) -> Result<Box<dyn Store>, StoreError> {
        match self.loaded.file.users.store {
            StoreKind::Postgresql => {
                let store = usher_store::PostgresStore::new(self.database_url())?;
                Ok(Box::new(if proven { store.with_proven_server() } else { store }))
            }
            _ => self.open_store(),
        }
    }

    fn database_url(&self) -> &str {
        self.loaded.url.as_ref().map_or("", |url| url.0.as_str())
    }

    /// True if users and sessions are in a database.
    #[must_use]
    pub fn has_database(&self) -> bool {
        self.loaded.file.users.store != StoreKind::Memory
    }

    /// True if the store outlasts the server. Opening an SQLite store creates it.
    #[must_use]
    pub fn has_store(&self) -> bool {
        match self.loaded.file.users.store {
            StoreKind::Memory => false,
            StoreKind::Sqlite => self.database_path().exists(),
            StoreKind::Postgresql => true,
        }
    }

    /// Examines the store without changes. `Ok(None)`: it is in this process's memory.
    ///
    /// # Errors
    /// The store is unreachable, or a server would refuse it.
    pub fn examine_store(&self) -> Result<Option<StoreInspectionReport>, StoreError> {
        let (place, schema) = match self.loaded.file.users.store {
            StoreKind::Memory => return Ok(None),
            StoreKind::Sqlite => {
                let database = self.database_path();
                (
                    format!("SQLite in {}", database.display()),
                    usher_store::SqliteStore::examine_schema(database)?,
                )
            }
            StoreKind::Postgresql => (
                "PostgreSQL".to_owned(),
                Some(usher_store::PostgresStore::examine_schema(self.database_url())?),
            ),
        };
        Ok(Some(StoreInspectionReport { location: place, schema }))
    }

    /// Connects to the store.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open_store(&self) -> Result<Box<dyn Store>, StoreError> {
        Ok(match self.loaded.file.users.store {
            StoreKind::Memory => Box::new(crate::memory::NullStore),
            StoreKind::Sqlite => Box::new(usher_store::SqliteStore::open(self.database_path())?),
            StoreKind::Postgresql => Box::new(usher_store::PostgresStore::connect(self.database_url())?),
        })
    }
}

/// Returns systemd's state directory, or a system directory for root, or the user's own.
fn default_state_dir() -> PathBuf {
    if let Some(made) = std::env::var_os("STATE_DIRECTORY").filter(|d| !d.is_empty()) {
        return PathBuf::from(made);
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let own = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let root = home.as_deref().is_none_or(|h| h == Path::new("/root") || h == Path::new("/"));
    match own.or_else(|| home.map(|h| h.join(".local/state"))) {
        Some(state) if !root || std::env::var_os("XDG_STATE_HOME").is_some() => state.join("usher"),
        _ => PathBuf::from("/var/lib/usher"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_without_the_secrets_of_its_configuration() {
        let folder = std::env::temp_dir().join(format!("usher-daemon-found-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("aaa.toml");
        let text = "state_dir = \"/s\"\n[[client]]\nname = \"a\"\nprefix = \"192.0.2.0/24\"\n\
                    secret_env = \"USHER_NOT_SET_HERE\"\n\
                    [tls]\ncertificate = \"none\"\nkey = \"none\"\ncrl = [\"a.crl\"]\ncrl_authority = \"pki\"\n";
        fs::write(&path, text).unwrap();
        assert!(
            ServerInstallation::from_config(Some(&path)).is_err(),
            "the server has them in its environment"
        );
        let found = ServerControlPaths::from_config(Some(&path)).unwrap();
        assert_eq!(found.control_socket, Path::new("/s/control.sock"));
        assert_eq!(found.crl, [folder.join("a.crl"), folder.join("pki/ca.crl")]);
        assert!(ServerControlPaths::from_config(Some(&folder.join("other"))).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_secret_is_written_beside_what_a_link_leads_to() {
        let state_dir = std::env::temp_dir().join(format!("usher-daemon-place-{}", std::process::id()));
        let _ = fs::remove_dir_all(&state_dir);
        fs::create_dir_all(&state_dir).unwrap();
        let loaded = parse("none", "", None, &EmptyConfigEnvironment).unwrap();
        let place = ServerInstallation { loaded, state_dir: state_dir.clone(), first: true };
        let other = state_dir.join("other");
        fs::write(&other, "").unwrap();
        for link in ["secret", "secret.new", "identity.new"] {
            std::os::unix::fs::symlink(&other, state_dir.join(link)).unwrap();
        }
        let secret = place.generated_secret().unwrap();
        assert_eq!(place.generated_secret().unwrap(), secret, "it is kept");
        assert!(!state_dir.join("identity.key").exists());
        assert_ne!(place.identity_key(false).unwrap(), place.identity_key(false).unwrap(), "none is kept");
        assert!(!state_dir.join("identity.key").exists());
        assert_eq!(
            place.identity_key(true).unwrap(),
            place.identity_key(false).unwrap(),
            "and so is the key"
        );
        assert_ne!(fs::read_to_string(state_dir.join("identity.key")).unwrap().trim(), secret);
        assert_eq!(fs::read_to_string(&other).unwrap(), "");
        assert!(fs::symlink_metadata(place.generated_secret_path()).unwrap().is_file());
        fs::remove_dir_all(&state_dir).unwrap();
    }
}

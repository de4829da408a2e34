//! Where the server keeps what it makes itself, and what it begins with where nothing is configured.

use crate::config::{self, DEFAULT_PATH};
use crate::fetched;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fmt, fs};
use usher_aaa::IdentityKey;
use usher_aaa::store::{Store, StoreError};
use usher_aaa_config::model::StoreKind;
use usher_aaa_config::{LoadedConfig, parse};
use usher_config::disk::LoadError;
use usher_config::{NoEnvironment, Prefix};
use usher_host::folder;

/// A configuration, and the folder of what the server makes itself.
#[derive(Clone, Debug)]
pub struct ServerInstallation {
    /// What is configured.
    pub loaded: LoadedConfig,
    /// The state directory.
    pub state_dir: PathBuf,
    /// True: there is no file, and defaults stand in.
    pub first: bool,
}

/// What somebody who changes nothing finds in a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreReport {
    /// What kind it is, and where.
    pub location: String,
    /// Its tables; `None`: there is no file yet, which a server makes.
    pub schema: Option<usher_store::SchemaReport>,
}

impl StoreReport {
    /// What a server would miss, a sentence each.
    #[must_use]
    pub fn missing_parts(&self) -> &[String] {
        self.schema.as_ref().map_or(&[], |schema| &schema.missing)
    }
}

impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = usher_store::SCHEMA_VERSION;
        match self.schema.as_ref().map(|schema| schema.version) {
            None => write!(f, "{}: not there yet; usher aaa serve makes it", self.location),
            Some(0) => write!(f, "{}: no tables of Usher's yet; usher aaa serve makes them", self.location),
            Some(version) if version < known => {
                write!(
                    f,
                    "{}: tables of version {version}; usher aaa serve brings them to {known}",
                    self.location
                )
            }
            Some(version) => write!(f, "{}: tables of version {version}", self.location),
        }
    }
}

/// What a server makes for itself at its first start.
#[derive(Clone, Debug)]
pub(crate) struct OwnSecrets {
    /// The secret of loopback clients, where nothing is configured.
    pub(crate) generated: Option<String>,
    /// By what names are kept from clients.
    pub(crate) identity_key: IdentityKey,
}

/// Why a place cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InstallationError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] LoadError),
    /// A file or folder.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Where the running server of a configuration is asked, and which lists its file names: what can be known without the
/// configuration's secrets, some of which may be there for the server alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerLocation {
    /// The control socket.
    pub control_socket: PathBuf,
    /// Files of revocation lists.
    pub crl: Vec<PathBuf>,
}

impl ServerLocation {
    /// Reads a configuration: the file named, or the default one, or, where that is not there, defaults.
    ///
    /// # Errors
    /// A file that was named is not there, or is no configuration.
    pub fn from_config(config: Option<&Path>) -> Result<Self, InstallationError> {
        let there = || Some(Path::new(DEFAULT_PATH)).filter(|path| path.exists());
        let file = config.or_else(there).map(config::load_outline).transpose()?;
        let said = file.as_ref();
        let state_dir = said.and_then(|f| f.state_dir.clone()).unwrap_or_else(default_state_dir);
        let socket = said.and_then(|f| f.control.socket.clone());
        Ok(Self {
            control_socket: socket.unwrap_or_else(|| state_dir.join("control.sock")),
            crl: file.and_then(|f| f.tls).map(|tls| tls.crl).unwrap_or_default(),
        })
    }
}

/// Octets that nobody can guess, from the system.
///
/// # Errors
/// The system has none.
pub fn random_octets<const N: usize>() -> io::Result<[u8; N]> {
    let mut octets = [0; N];
    fs::File::open("/dev/urandom")?.read_exact(&mut octets)?;
    Ok(octets)
}

impl ServerInstallation {
    /// Reads the configuration: the file named, or the default one, or, where that is not there, defaults.
    ///
    /// # Errors
    /// A file that was named is not there, or something in it is wrong.
    pub fn from_config(config: Option<&Path>) -> Result<Self, InstallationError> {
        let (loaded, first) = match config {
            Some(path) => (config::load_config(path)?, false),
            None if Path::new(DEFAULT_PATH).exists() => {
                (config::load_config(Path::new(DEFAULT_PATH))?, false)
            }
            None => (parse("no configuration", "", None, &NoEnvironment).map_err(LoadError::Faults)?, true),
        };
        let state_dir = loaded.file.state_dir.clone().unwrap_or_else(default_state_dir);
        let mut place = Self { loaded, state_dir, first };
        fetched::read_fetched_lists(&mut place.loaded, &place.state_dir);
        Ok(place)
    }

    /// Makes the state directory, for its owner only, where there is none.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create_state_dir(&self) -> Result<(), InstallationError> {
        self.of_state_dir(folder::create_private(&self.state_dir))
    }

    /// Whether there is a state directory, or could be one.
    ///
    /// # Errors
    /// What [`ServerInstallation::create_state_dir`] would end with.
    pub(crate) fn check_state_dir(&self) -> Result<(), InstallationError> {
        self.of_state_dir(folder::check_private(&self.state_dir))
    }

    fn of_state_dir(&self, done: io::Result<()>) -> Result<(), InstallationError> {
        done.map_err(|error| InstallationError::File { path: self.state_dir.clone(), error })
    }

    /// What the server makes for itself. `keep`: what is not there yet is made and kept; otherwise something stands in for it.
    ///
    /// # Errors
    /// It cannot be made or read.
    pub(crate) fn own_secrets(&self, keep: bool) -> Result<OwnSecrets, InstallationError> {
        let generated =
            self.first.then(|| self.load_or_generate::<16>(self.secret_path(), keep)).transpose()?;
        Ok(OwnSecrets { generated, identity_key: self.identity_key(keep)? })
    }

    /// The secret of loopback clients where nothing is configured: made at the first start, for its owner only.
    ///
    /// # Errors
    /// It cannot be made or read.
    pub fn generated_secret(&self) -> Result<String, InstallationError> {
        self.load_or_generate::<16>(self.secret_path(), true)
    }

    /// By what names are kept from clients: what is configured, or what was made at the first start.
    ///
    /// # Errors
    /// It cannot be made or read.
    fn identity_key(&self, keep: bool) -> Result<IdentityKey, InstallationError> {
        let text = match &self.loaded.identity_key {
            Some(key) => key.0.clone(),
            None => self.load_or_generate::<32>(self.state_dir.join("identity.key"), keep)?.into(),
        };
        Ok(IdentityKey::new(text.as_bytes()))
    }

    /// So many random octets in hexadecimal, made where they are not there yet, and kept where that is asked.
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

    /// Writes a secret, for the owner of the state directory only.
    fn write_secret(&self, path: &Path, secret: &str) -> io::Result<()> {
        let give = |file: &fs::File| usher_store::give_to_owner_of(&self.state_dir, file);
        usher_pki::write_whole(path, format!("{secret}\n").as_bytes(), 0o600, give)
    }

    /// The secret of the client that a loopback address is, by file or store or generated; `None`: it is none.
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

    /// Where the generated secret is.
    #[must_use]
    pub fn secret_path(&self) -> PathBuf {
        self.state_dir.join("secret")
    }

    /// Where the SQLite database is.
    #[must_use]
    pub fn database_path(&self) -> PathBuf {
        self.loaded.file.users.path.clone().unwrap_or_else(|| self.state_dir.join("usher.db"))
    }

    /// The control socket.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.loaded.file.control.socket.clone().unwrap_or_else(|| self.state_dir.join("control.sock"))
    }

    /// A connection to the store for a server: one to PostgreSQL is made when it is first needed, so that a server
    /// begins also while its database is away. `proven`: the database has taken a connection of this server.
    ///
    /// # Errors
    /// It can never be opened.
    pub(crate) fn lasting_store(&self, proven: bool) -> Result<Box<dyn Store>, StoreError> {
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

    /// Whether users and sessions are kept in a database.
    #[must_use]
    pub fn has_database(&self) -> bool {
        self.loaded.file.users.store != StoreKind::Memory
    }

    /// Whether there is a store that outlasts the server; opening one that SQLite keeps makes it where there is none.
    #[must_use]
    pub fn has_store(&self) -> bool {
        match self.loaded.file.users.store {
            StoreKind::Memory => false,
            StoreKind::Sqlite => self.database_path().exists(),
            StoreKind::Postgresql => true,
        }
    }

    /// Looks at the store without changing it, and says what there is; `Ok(None)`: it is this process's memory.
    ///
    /// # Errors
    /// It cannot be reached, or a server would refuse it.
    pub fn examine_store(&self) -> Result<Option<StoreReport>, StoreError> {
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
        Ok(Some(StoreReport { location: place, schema }))
    }

    /// A connection to the store.
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

/// What systemd made, or a system folder for root, or the user's own.
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
        let found = ServerLocation::from_config(Some(&path)).unwrap();
        assert_eq!(found.control_socket, Path::new("/s/control.sock"));
        assert_eq!(found.crl, [folder.join("a.crl"), folder.join("pki/ca.crl")]);
        assert!(ServerLocation::from_config(Some(&folder.join("other"))).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_secret_is_written_beside_what_a_link_leads_to() {
        let state_dir = std::env::temp_dir().join(format!("usher-daemon-place-{}", std::process::id()));
        let _ = fs::remove_dir_all(&state_dir);
        fs::create_dir_all(&state_dir).unwrap();
        let loaded = parse("none", "", None, &NoEnvironment).unwrap();
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
        assert!(fs::symlink_metadata(place.secret_path()).unwrap().is_file());
        fs::remove_dir_all(&state_dir).unwrap();
    }
}

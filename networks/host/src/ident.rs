//! The IDENT service on this host's own connections, and a question to another host's.

use crate::setup::texts;
use crate::{HelperPool, Hosted, ServeError, keep_memory_private, listen, log, once, owner, serve as host};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use usher_config::disk::{Disk, LoadError, text};
use usher_core::{Instant, Job, ListenerId, Machine};
use usher_ident::{Answer, AskError, Client, ClientCommand, ClientConfig, ClientEvent, Connection, Question};
use usher_ident_service::config::{self, DEFAULT_PATH, File, Loaded};
use usher_ident_service::{Command, Event, IdentService, Job as Asked, Owner, User};
use usher_live::{Clock, Settings, Sockets};

/// Names may come from a directory on the network: so many are asked for at a time.
const HELPERS: usize = 4;

/// Why the service does not serve.
#[derive(Debug, thiserror::Error)]
pub enum IdentError {
    /// Its configuration.
    #[error(transparent)]
    Config(#[from] LoadError),
    /// It listens nowhere.
    #[error("there is no address to listen on; name one in listen, or by --listen")]
    Nowhere,
    /// The system.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Reads and checks a file, with the key that it names; without one, the file at [`DEFAULT_PATH`] where there is one.
///
/// # Errors
/// It cannot be read, or everything that is wrong with it.
pub fn load(path: Option<&Path>) -> Result<Loaded, LoadError> {
    load_or(path, Path::new(DEFAULT_PATH))
}

fn load_or(path: Option<&Path>, default: &Path) -> Result<Loaded, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: default.to_owned(), source };
    let (path, text) = match path {
        Some(path) => (path, text(path)?),
        None if default.try_exists().map_err(unreadable)? => (default, text(default)?),
        None => (default, String::new()),
    };
    Ok(config::parse(&path.display().to_string(), &text, &Disk)?)
}

/// What to tell of a configuration that was read again: its warnings, and what takes effect only at the next start; this
/// start's was `first`.
fn notices(first: &File, again: &Loaded) -> Vec<String> {
    let more = again.file.limits.connections.get() > first.limits.connections.get();
    let later = [("listen", again.file.listen != first.listen), ("limits.connections", more)];
    crate::setup::notices(&again.warnings, "server", &later)
}

/// Everything that serving needs before sockets: the configuration, and where to listen.
fn prepare(path: Option<&Path>, listen_on: &[SocketAddr]) -> Result<(Loaded, Vec<SocketAddr>), IdentError> {
    let loaded = load(path)?;
    let addresses = if listen_on.is_empty() { loaded.file.listen.clone() } else { listen_on.to_vec() };
    if addresses.is_empty() { Err(IdentError::Nowhere) } else { Ok((loaded, addresses)) }
}

/// Loads what [`serve`] loads; its warnings.
///
/// # Errors
/// Why it would not serve.
pub fn check(path: &Path) -> Result<Vec<String>, IdentError> {
    prepare(Some(path), &[]).map(|(loaded, _)| texts(&loaded.warnings))
}

/// Serves until it is told to end. `listen_on`, where it names addresses, stands against the configuration's.
///
/// # Errors
/// It could not begin.
pub fn serve(path: Option<PathBuf>, listen_on: &[SocketAddr]) -> Result<(), IdentError> {
    let system = |what| move |error| ServeError::System { what, error };
    keep_memory_private().map_err(system("switching core dumps off"))?;
    let (loaded, addresses) = prepare(path.as_deref(), listen_on)?;
    let _log = log::begin(loaded.file.log);
    loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let listeners = (0..).zip(&addresses).map(|(n, address)| listen("IDENT", *address, ListenerId::own(n)));
    let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
    for address in &addresses {
        tracing::info!(%address, "listening");
    }
    // The machine's own limits decide, which know who waits for an answer.
    let connections = loaded.config.server.connections.saturating_mul(2);
    let settings = Settings {
        connections,
        connections_per_address: connections,
        half_closed: true,
        ..Settings::default()
    };
    let clock = Clock::start();
    let found = |Job { token, what: Asked::Owner(connection), .. }| Command::Found {
        token,
        owner: find(&connection),
    };
    let first = loaded.file;
    Ok(host(Hosted {
        name: "usher-ident",
        machine: IdentService::new(loaded.config),
        sockets: Sockets { listeners, settings, ..Sockets::default() },
        frames: None,
        clock,
        helpers: HelperPool::new(HELPERS, found),
        said: Box::new(say),
        over: Box::new(|_| false),
        counted: |service| {
            let (own, server) = service.counters();
            server.iter().chain(own.iter()).collect()
        },
        work: None,
        reload: Box::new(move || match load(path.as_deref()) {
            Ok(loaded) => {
                log::change(loaded.file.log);
                notices(&first, &loaded).iter().for_each(|notice| tracing::warn!("{notice}"));
                tracing::info!("the configuration was read again");
                Some(Command::Configure(loaded.config))
            }
            Err(error) => {
                tracing::error!("the configuration is not taken up: {error}");
                None
            }
        }),
        sources: Vec::new(),
        farewell: Box::new(|| None),
        lingers: false,
    })?)
}

/// The owner of a connection of this host.
fn find(connection: &Connection) -> Owner {
    let Connection { local, remote } = *connection;
    let uid = match owner::uid(local, remote) {
        Ok(Some(uid)) => uid,
        Ok(None) => return Owner::Nobody,
        Err(error) => {
            tracing::error!(%error, "the kernel does not say whose a connection is");
            return Owner::Unknown;
        }
    };
    named(uid, owner::name(uid))
}

/// The user with this number. Without knowing the name nobody can say whether the user wants to be hidden.
fn named(uid: u32, name: io::Result<Option<String>>) -> Owner {
    match name {
        Ok(name) => Owner::User(User { name: name.map(String::into_bytes), uid: Some(uid) }),
        Err(error) => {
            tracing::error!(%error, uid, "the system does not say a user's name");
            Owner::Unknown
        }
    }
}

/// The log of who asked.
fn say(event: Event) {
    match event {
        Event::Answered { asker, connection: Connection { local, remote }, answer } => {
            tracing::info!(%asker, %local, %remote, %answer, "asked");
        }
        // Anybody can cause these without end; how many there were is told each minute.
        Event::Refused { asker } => tracing::debug!(%asker, "refused: of no network that may ask"),
    }
}

/// Asks a host's IDENT server.
///
/// # Errors
/// Sockets cannot be had; the inner error says why there is no answer.
pub fn ask(question: Question, config: ClientConfig) -> io::Result<Result<Answer, AskError>> {
    let mut client = Client::new(config);
    let asked = client.command(Instant::ZERO, ClientCommand::Ask { token: 0, question });
    asked.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    let settings = Settings { connect_timeout: patience(config), ..Settings::default() };
    let sockets = Sockets { settings, ..Sockets::default() };
    let said = |ClientEvent::Answered { answer, .. }| Some(answer);
    let answer = once(client, sockets, Clock::start(), said)?;
    // A driver ends when its role has stopped, and that is when there is an answer.
    Ok(answer.unwrap_or(Err(AskError::Closed)))
}

fn patience(config: ClientConfig) -> std::time::Duration {
    std::time::Duration::from_nanos(config.patience.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_config::{Alone, Fault};

    #[test]
    fn who_may_be_hidden_by_name_is_unknown_while_names_are() {
        assert_eq!(named(1000, Err(io::ErrorKind::TimedOut.into())), Owner::Unknown);
        let user = |name: Option<&str>| Owner::User(User { name: name.map(Into::into), uid: Some(1000) });
        assert_eq!(named(1000, Ok(Some("ann".to_owned()))), user(Some("ann")));
        assert_eq!(named(1000, Ok(None)), user(None));
    }

    #[test]
    fn a_default_that_cannot_be_looked_for_is_not_taken_for_none() {
        let folder = std::env::current_exe().unwrap();
        assert!(load_or(None, &folder.with_file_name("no.toml")).is_ok());
        let error = load_or(None, &folder.join("ident.toml")).unwrap_err();
        assert!(matches!(error, LoadError::Unreadable { .. }), "{error}");
    }

    #[test]
    fn a_reload_tells_warnings_and_what_waits_for_a_start() {
        let read = |text| config::parse("ident.toml", text, &Alone).unwrap();
        let first = read("[limits]\nconnections = 10\n").file;
        assert!(notices(&first, &read("[limits]\nconnections = 9\n")).is_empty());
        let mut again = read("listen = []\n[limits]\nconnections = 11\n");
        let message = "written otherwise".to_owned();
        again.warnings.push(Fault { file: String::new(), line: 0, column: 0, message });
        let told = notices(&first, &again);
        assert!(told[0] == "written otherwise" && told[1].starts_with("listen has changed"));
        assert!(told[2].starts_with("limits.connections has changed") && told.len() == 3);
    }
}

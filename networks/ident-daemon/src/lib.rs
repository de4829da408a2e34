//! The IDENT service for this host's own connections, and a client that queries another host.

mod owner;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use usher_config::disk::{DiskEnvironment, LoadError, read_file_text};
use usher_core::{Instant, JobRequest, ListenerId, Machine};
use usher_ident::{
    ClientCommand, ClientConfig, ClientEvent, IdentClient, IdentQuery, QueriedConnection, QueryFailure,
    ResponseBody,
};
use usher_ident_service::config::{self, DEFAULT_PATH, IdentConfigFile, LoadedIdentConfig};
use usher_ident_service::{
    ConnectionOwner, IdentService, IdentServiceCommand, IdentServiceEvent, IdentServiceJob, OwnerLookupResult,
};
use usher_live::{DriverConfig, DriverSockets, SystemClock};
use usher_service::setup::fault_texts;
use usher_service::{
    HostedMachine, MachineWorkerPool, ServeError, bind_listener, log, protect_memory, run_until_event,
    serve_machine, system_error,
};

/// The number of concurrent name lookups. A lookup can go to a directory on the network.
const HELPERS: usize = 4;

/// Why the service does not start.
#[derive(Debug, thiserror::Error)]
pub enum IdentError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] LoadError),
    /// There is no address to listen on.
    #[error("no address to listen on; set \"listen\" or use --listen")]
    Nowhere,
    /// An error of the system.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Reads and checks a configuration file and its key. Without a path, reads the file at [`DEFAULT_PATH`] if it
/// exists.
///
/// # Errors
/// The file cannot be read, or all errors in it.
pub fn load_config(path: Option<&Path>) -> Result<LoadedIdentConfig, LoadError> {
    load_config_or_default(path, Path::new(DEFAULT_PATH))
}

fn load_config_or_default(path: Option<&Path>, default: &Path) -> Result<LoadedIdentConfig, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: default.to_owned(), source };
    let (path, text) = match path {
        Some(path) => (path, read_file_text(path)?),
        None if default.try_exists().map_err(unreadable)? => (default, read_file_text(default)?),
        None => (default, String::new()),
    };
    Ok(config::parse(&path.display().to_string(), &text, &DiskEnvironment)?)
}

/// The notices after a reload: warnings, and changes against the `first` configuration that need a restart.
fn reload_notices(first: &IdentConfigFile, again: &LoadedIdentConfig) -> Vec<String> {
    let more = again.file.limits.connections.get() > first.limits.connections.get();
    let later = [("listen", again.file.listen != first.listen), ("limits.connections", more)];
    usher_service::setup::config_notices(&again.warnings, "server", &later)
}

/// Prepares a server before it opens sockets: loads the configuration and the addresses to listen on.
fn prepare_server(
    path: Option<&Path>,
    listen_on: &[SocketAddr],
) -> Result<(LoadedIdentConfig, Vec<SocketAddr>), IdentError> {
    let loaded = load_config(path)?;
    let addresses = if listen_on.is_empty() { loaded.file.listen.clone() } else { listen_on.to_vec() };
    if addresses.is_empty() { Err(IdentError::Nowhere) } else { Ok((loaded, addresses)) }
}

/// Loads the same files as [`serve_ident`] and returns the warnings.
///
/// # Errors
/// Why the service would not start.
pub fn check_config(path: &Path) -> Result<Vec<String>, IdentError> {
    prepare_server(Some(path), &[]).map(|(loaded, _)| fault_texts(&loaded.warnings))
}

/// Serves until a signal ends it. `listen_on`, unless empty, overrides the addresses of the configuration.
///
/// # Errors
/// The service could not start.
pub fn serve_ident(path: Option<PathBuf>, listen_on: &[SocketAddr]) -> Result<(), IdentError> {
    protect_memory().map_err(system_error("cannot disable core dumps"))?;
    let (loaded, addresses) = prepare_server(path.as_deref(), listen_on)?;
    let _log = log::start_logging(loaded.file.log);
    loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let listeners = (0..)
        .zip(&addresses)
        .map(|(n, address)| bind_listener("IDENT", *address, ListenerId::from_number(n)));
    let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
    for address in &addresses {
        tracing::info!(%address, "listening");
    }
    // The driver's limit is twice the configured one. The machine applies the exact limit, because it knows which
    // connections wait for a response.
    let connections = loaded.config.server.connections.saturating_mul(2);
    let settings = DriverConfig {
        connections,
        connections_per_address: connections,
        half_closed: true,
        ..DriverConfig::default()
    };
    let clock = SystemClock::start();
    let found = |JobRequest { token, job: IdentServiceJob::Owner(connection), .. }| {
        IdentServiceCommand::Found { token, owner: find_owner(&connection) }
    };
    let first = loaded.file;
    Ok(serve_machine(HostedMachine {
        name: "usher-ident",
        machine: IdentService::new(loaded.config),
        sockets: DriverSockets { listeners, settings, ..DriverSockets::default() },
        frames: None,
        clock,
        helpers: MachineWorkerPool::new(HELPERS, found),
        event_handler: Box::new(log_event),
        stop_condition: Box::new(|_| false),
        counted: |service| {
            let (own, server) = service.counters();
            server.iter().chain(own.iter()).collect()
        },
        work: None,
        reload: Box::new(move || match load_config(path.as_deref()) {
            Ok(loaded) => {
                log::change_logging(loaded.file.log);
                reload_notices(&first, &loaded).iter().for_each(|notice| tracing::warn!("{notice}"));
                tracing::info!("the configuration was read again");
                Some(IdentServiceCommand::Configure(loaded.config))
            }
            Err(error) => {
                tracing::error!("reload failed; the old configuration stays: {error}");
                None
            }
        }),
        sources: Vec::new(),
        farewell: Box::new(|| None),
        waits_for_stop: false,
    })?)
}

/// Finds the owner of a connection of this host.
fn find_owner(connection: &QueriedConnection) -> OwnerLookupResult {
    let QueriedConnection { local, remote } = *connection;
    let uid = match owner::connection_owner(local, remote) {
        Ok(Some(uid)) => uid,
        Ok(None) => return OwnerLookupResult::NoOwner,
        Err(error) => {
            tracing::error!(%error, "cannot look up the owner of a connection");
            return OwnerLookupResult::Unknown;
        }
    };
    connection_owner_named(uid, owner::user_name(uid))
}

/// Returns the user with this uid. If the name lookup fails, the owner is unknown: the configuration may hide this
/// user by name.
fn connection_owner_named(uid: u32, name: io::Result<Option<String>>) -> OwnerLookupResult {
    match name {
        Ok(name) => {
            OwnerLookupResult::User(ConnectionOwner { name: name.map(String::into_bytes), uid: Some(uid) })
        }
        Err(error) => {
            tracing::error!(%error, uid, "cannot look up the name of a user");
            OwnerLookupResult::Unknown
        }
    }
}

/// Writes an event to the log.
fn log_event(event: IdentServiceEvent) {
    match event {
        IdentServiceEvent::Answered { asker, connection: QueriedConnection { local, remote }, answer } => {
            tracing::info!(%asker, %local, %remote, %answer, "query answered");
        }
        // Anyone can cause these events without limit, so they are logged at debug level. A log line each minute counts
        // them.
        IdentServiceEvent::Refused { asker } => {
            tracing::debug!(%asker, "connection refused: not from a permitted network")
        }
    }
}

/// Queries the IDENT server of a host.
///
/// # Errors
/// The outer error: sockets are unavailable. The inner error: why there is no response.
pub fn query_ident(
    question: IdentQuery,
    config: ClientConfig,
) -> io::Result<Result<ResponseBody, QueryFailure>> {
    let mut client = IdentClient::new(config);
    let asked = client.handle_command(Instant::ZERO, ClientCommand::Query { token: 0, question });
    asked.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    let settings = DriverConfig { connect_timeout: query_timeout(config), ..DriverConfig::default() };
    let sockets = DriverSockets { settings, ..DriverSockets::default() };
    let said = |ClientEvent::Answered { answer, .. }| Some(answer);
    let answer = run_until_event(client, sockets, SystemClock::start(), said)?;
    // The driver ends when its role stops, which the role does when the response is known.
    Ok(answer.unwrap_or(Err(QueryFailure::Closed)))
}

fn query_timeout(config: ClientConfig) -> std::time::Duration {
    std::time::Duration::from_nanos(config.response_timeout.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_config::{ConfigDiagnostic, EmptyConfigEnvironment};

    #[test]
    fn who_may_be_hidden_by_name_is_unknown_while_names_are() {
        assert_eq!(
            connection_owner_named(1000, Err(io::ErrorKind::TimedOut.into())),
            OwnerLookupResult::Unknown
        );
        let user = |name: Option<&str>| {
            OwnerLookupResult::User(ConnectionOwner { name: name.map(Into::into), uid: Some(1000) })
        };
        assert_eq!(connection_owner_named(1000, Ok(Some("ann".to_owned()))), user(Some("ann")));
        assert_eq!(connection_owner_named(1000, Ok(None)), user(None));
    }

    #[test]
    fn a_default_that_cannot_be_looked_for_is_not_taken_for_none() {
        let folder = std::env::current_exe().unwrap();
        assert!(load_config_or_default(None, &folder.with_file_name("no.toml")).is_ok());
        let error = load_config_or_default(None, &folder.join("ident.toml")).unwrap_err();
        assert!(matches!(error, LoadError::Unreadable { .. }), "{error}");
    }

    #[test]
    fn a_reload_tells_warnings_and_what_waits_for_a_start() {
        let read = |text| config::parse("ident.toml", text, &EmptyConfigEnvironment).unwrap();
        let first = read("[limits]\nconnections = 10\n").file;
        assert!(reload_notices(&first, &read("[limits]\nconnections = 9\n")).is_empty());
        let mut again = read("listen = []\n[limits]\nconnections = 11\n");
        let message = "written otherwise".to_owned();
        again.warnings.push(ConfigDiagnostic { file: String::new(), line: 0, column: 0, message });
        let told = reload_notices(&first, &again);
        assert!(told[0] == "written otherwise" && told[1].starts_with("listen has changed"));
        assert!(told[2].starts_with("limits.connections has changed") && told.len() == 3);
    }
}

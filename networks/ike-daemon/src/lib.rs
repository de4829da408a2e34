//! The IKEv2 gateway and the client on this host's sockets.

mod control;
mod event_handler;
mod key_log;
mod local_address;
mod peer_lists;
mod plane;
mod revocation;
mod routing;
mod steer;

pub use control::{
    ChildSa, IkeControlReply, IkeControlRequest, IkePoolStatus, IkeSa, IkeStatus, control_path,
    request_gateway,
};
pub use event_handler::end_reason_text;
pub use plane::DataPlaneStartError;

use event_handler::{IkeConnectionOutcome, IkeEventSink};
use plane::IkeDataPlane;
use revocation::RevocationChecker;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use usher_access_host::{AaaConfigChecker, AaaServerStarter, RunningAaaServer, select_outgoing_tls};
use usher_config::disk::{DiskEnvironment, LoadError, read_file_text};
use usher_config::name_hint;
use usher_core::{JobRequest, SecureRng, SocketId, WallTime};
use usher_crypto::tls::SharedWallClock;
use usher_gateway::config::{self, DEFAULT_PATH, DataPlaneKind, GatewayConfigFile, LoadedGatewayConfig};
use usher_gateway::{
    DYNAMIC_SOCKET, GatewayCommand, GatewayEvent, GatewayJob, IkeGateway, NAT_SOCKET, NAT_SOCKET_V6, SOCKET,
    SOCKET_V6,
};
use usher_ike::machine::ShardIndex;
use usher_live::{
    ConnectionSecuritySelector, DriverConfig, DriverSockets, SocketOptions, SystemClock, bind_udp,
};
use usher_service::jobs::{JobQueue, JobQueueLimits};
use usher_service::setup::{self, secure_rng};
use usher_service::{
    CommandSender, HostedMachine, MachineWorkerPool, ServeError, WorkUnitCounters, log, protect_memory,
    serve_sharded_machines as host, system_error,
};

/// Signatures, certificate checks and EAP-TLS steps at a time.
const HELPERS: usize = 4;
/// The limit of pending jobs. A job takes about a millisecond, and an initiator retransmits after a second or more.
const WAITING: usize = 4096;

/// Why the gateway does not start or has ended.
#[derive(Debug, thiserror::Error)]
pub enum IkeError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] LoadError),
    /// There is no address to listen on.
    #[error("no address to listen on; set \"addresses\" in [listen]")]
    Nowhere,
    /// The configuration has no such connection.
    #[error("the configuration has no [[connection]] \"{name}\" with a remote_address{near}")]
    NoConnection {
        /// The requested name.
        name: String,
        /// A suggestion of a similar name.
        near: String,
    },
    /// The configuration contradicts itself.
    #[error("[aaa]: {0}")]
    Aaa(#[from] usher_access::ConfigError),
    /// The data plane cannot start.
    #[error(transparent)]
    Plane(#[from] DataPlaneStartError),
    /// The data plane has failed.
    #[error("the data plane has failed; the log says why")]
    PlaneFailed,
    /// A revocation list cannot be used.
    #[error("[revocation]: {0}")]
    Revocation(String),
    /// The embedded AAA server cannot start.
    #[error("[aaa] server: {0}")]
    EmbeddedServer(String),
    /// The embedded AAA server has failed.
    #[error("the embedded AAA server has failed; the log says why")]
    EmbeddedServerFailed,
    /// The connection failed.
    #[error("{0}")]
    NotConnected(String),
    /// An error of the system.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Reads and checks a configuration file, its keys and its certificates. Without a path, reads the file at
/// [`DEFAULT_PATH`] if it exists.
///
/// # Errors
/// The file cannot be read, or all errors in it.
pub fn load_config(path: Option<&Path>) -> Result<LoadedGatewayConfig, LoadError> {
    load_by(path, &SharedWallClock::from_time(WallTime::UNIX_EPOCH))
}

fn load_by(path: Option<&Path>, clock: &SharedWallClock) -> Result<LoadedGatewayConfig, LoadError> {
    let default = Path::new(DEFAULT_PATH);
    let unreadable = |source| LoadError::Unreadable { path: default.to_owned(), source };
    let (path, text) = match path {
        Some(path) => (path, read_file_text(path)?),
        None if default.try_exists().map_err(unreadable)? => (default, read_file_text(default)?),
        None => (default, String::new()),
    };
    Ok(config::parse(&path.display().to_string(), &text, &DiskEnvironment, clock)?)
}

/// Prepares a gateway before it opens sockets: loads the configuration and its files, and checks that a machine
/// accepts them.
fn load_checked_gateway_config(
    path: Option<&Path>,
    clock: &SharedWallClock,
) -> Result<LoadedGatewayConfig, IkeError> {
    let loaded = load_by(path, clock)?;
    if loaded.file.listen.addresses.is_empty() {
        return Err(IkeError::Nowhere);
    }
    let mut config = loaded.config.clone();
    usher_access_host::stand_in(loaded.file.aaa.as_ref(), config.subscribers.aaa.as_mut());
    IkeGateway::new(config, secure_rng()?)?;
    RevocationChecker::new(&loaded, &CommandSender::default()).map_err(IkeError::Revocation)?;
    key_log::check_key_log_files(&loaded.file).map_err(system_error("cannot open the key log"))?;
    Ok(loaded)
}

/// The base folder of relative paths in a file.
fn base_folder(path: Option<&Path>) -> &Path {
    path.unwrap_or(Path::new(DEFAULT_PATH)).parent().unwrap_or(Path::new(""))
}

/// Loads the files of a gateway and of its embedded AAA server, and returns their warnings.
///
/// # Errors
/// Why the gateway would not start.
pub fn check_config(path: &Path, check_aaa: AaaConfigChecker) -> Result<Vec<String>, IkeError> {
    let loaded = load_checked_gateway_config(Some(path), &SharedWallClock::from_time(setup::wall_time()))?;
    let within =
        usher_access_host::check_embedded(loaded.file.aaa.as_ref(), base_folder(Some(path)), check_aaa);
    Ok([setup::fault_texts(&loaded.warnings), within.map_err(IkeError::EmbeddedServer)?].concat())
}

/// The mode of [`run_ike`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IkeRunMode {
    /// Serve until a signal, and initiate the configured connections.
    Serve,
    /// Initiate one connection, and end with it.
    Connect {
        /// The name of the connection.
        connection: String,
        /// Initiate it again whenever it ends, until a signal.
        reconnects: bool,
    },
}

/// Runs until a signal, or until the one connection of [`IkeRunMode::Connect`] has ended. `start` starts the embedded
/// AAA server, if the file has one.
///
/// # Errors
/// The gateway could not start, or the connection failed.
pub fn run_ike(path: Option<PathBuf>, mode: &IkeRunMode, start: AaaServerStarter) -> Result<(), IkeError> {
    protect_memory().map_err(system_error("cannot disable core dumps"))?;
    let clock = setup::wall_clock()?;
    let mut loaded = load_checked_gateway_config(path.as_deref(), &clock)?;
    let _log = log::start_logging(loaded.file.log);
    loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let serves = *mode == IkeRunMode::Serve;
    if let IkeRunMode::Connect { connection, .. } = mode {
        select_ike_connection(&mut loaded, connection)?;
        // A client is no access server.
        loaded.config.subscribers.aaa = None;
    }
    if serves {
        // Check this first: a second instance would share the ports and remove the first one's kernel state.
        usher_service::control::ensure_control_socket_unused(&loaded.file.listen.control)
            .map_err(system_error("control socket"))?;
    }
    let carries = loaded.file.data.mode != DataPlaneKind::None;
    let mark = carries.then(|| loaded.file.data.mark.get());
    local_address::set_local_addresses(&mut loaded, mark);
    // A client has a single IKE_SA.
    let shards = if serves { loaded.file.listen.shards } else { 1 };
    let servers = select_outgoing_tls(&loaded.outgoing, loaded.file.aaa.as_ref());
    let all = (0..shards).map(|number| bind_sockets(&loaded, &servers, mark, (number, shards)));
    let mut all = all.collect::<Result<Vec<_>, _>>()?;
    let command_sender = CommandSender::default();
    let base = base_folder(path.as_deref());
    let (table, aaa, gone) =
        (loaded.file.aaa.as_ref(), loaded.config.subscribers.aaa.as_mut(), command_sender.clone());
    let within = RunningAaaServer::start(table.filter(|_| serves), aaa, base, start, move || {
        gone.send_command(GatewayCommand::Leave);
    });
    let within = within.map_err(IkeError::EmbeddedServer)?;
    let mut rng = secure_rng()?;
    let plane = IkeDataPlane::start(&loaded, SecureRng::from_seed(rng.random_array()), &command_sender)?;
    let _ending = DataPlaneGuard(plane.clone());
    loaded.config.subscribers.is_metered = plane.is_active();
    loaded.config.subscribers.traffic_interval = usher_core::Duration::from_secs(plane::REPORT.as_secs());
    if shards > 1 {
        steer_datagrams_to_shards(&all[0], shards, plane.is_active())?;
    }
    let leases = (shards > 1).then(|| {
        let rng = SecureRng::from_seed(rng.random_array());
        Arc::new(Mutex::new(loaded.config.create_leases(rng)))
    });
    let mut gateways = Vec::new();
    for (number, sockets) in (0..).zip(all.drain(..)) {
        let config = loaded.config.config_for_shard(ShardIndex { number, shard_count: shards });
        gateways.push((IkeGateway::new(config, SecureRng::from_seed(rng.random_array()))?, sockets));
    }
    let (gateway, sockets) = gateways.remove(0);
    let revocation = RevocationChecker::new(&loaded, &command_sender).map_err(IkeError::Revocation)?;
    revocation
        .start_list_refresh_thread()
        .map_err(system_error("cannot start the refresh of revocation lists"))?;
    // Start the threads for OCSP even if it is off: a reload can turn it on, but the worker pool does not grow.
    let threads = HELPERS + revocation::MAX_CONCURRENT_QUERIES;
    let jobs = Arc::new(JobQueue::new(JobQueueLimits { all: WAITING, ..JobQueueLimits::default() }));
    let work = WorkUnitCounters::default();
    let asked = control::GatewayControlRequests::new(
        &command_sender,
        &plane,
        (shards, leases.clone()),
        (work.clone(), jobs.clone()),
    );
    if serves {
        control::start_control(&loaded.file.listen.control, &asked)
            .map_err(system_error("control socket"))?;
        tracing::info!(path = %loaded.file.listen.control.display(), "control socket");
        if let Some(address) = loaded.file.listen.metrics {
            usher_service::metrics::start_metrics(address, Arc::new(asked.clone()))
                .map_err(|error| ServeError::Listen { address, what: "metrics", error })?;
            tracing::info!(%address, "metrics");
        }
    }
    local_address::watch_local_addresses(&loaded, mark, &command_sender)
        .map_err(system_error("cannot watch this host's addresses"))?;
    let keys = key_log::KeyLogs::open(&loaded.file).map_err(system_error("cannot open the key log"))?;
    let outcome = Arc::new(Mutex::new(None));
    let mut teller = IkeEventSink {
        control: asked,
        keys,
        plane: plane.clone(),
        command_sender: command_sender.clone(),
        leases: leases.clone(),
        outcome: outcome.clone(),
    };
    let keeps = !matches!(mode, IkeRunMode::Connect { reconnects: false, .. });
    let first = loaded.file.clone();
    let (reloaded, leaving) = (plane.clone(), plane.clone());
    let reload_within = within.as_ref().map(RunningAaaServer::reloader);
    let reloaded_leases = leases.clone();
    let hosted = HostedMachine {
        name: "usher-ike",
        machine: gateway,
        sockets,
        frames: None,
        clock: SystemClock::start(),
        helpers: MachineWorkerPool::new(threads, create_worker(revocation.clone(), leases, work.clone()))
            .with_bounded_job_queue(jobs, |job: JobRequest<GatewayJob>| {
                Some(job.job.dropped_job_command(job.token))
            }),
        event_handler: Box::new(move |event| teller.handle_event(event)),
        stop_condition: Box::new(move |event| match event {
            GatewayEvent::Left => true,
            GatewayEvent::ConnectionEnded { .. } => !keeps,
            _ => false,
        }),
        counted: |gateway| {
            let (own, subscribers, ike) = gateway.counters();
            ike.iter().chain(own.iter()).chain(subscribers.iter()).collect()
        },
        work: Some(work),
        reload: Box::new(move || match load_by(path.as_deref(), &clock) {
            Ok(mut loaded) if serves => {
                log::change_logging(loaded.file.log);
                reload_notices(&first, &loaded).iter().for_each(|notice| tracing::warn!("{notice}"));
                local_address::set_local_addresses(&mut loaded, mark);
                reloaded.apply_config(&loaded);
                revocation.apply_config(&loaded);
                if let Some(leases) = &reloaded_leases {
                    let mut leases = leases.lock().unwrap_or_else(PoisonError::into_inner);
                    leases.set_reserved(&loaded.config.local_addresses());
                }
                if let Some(reload_within) = &reload_within {
                    reload_within();
                }
                tracing::info!("the configuration was read again");
                Some(GatewayCommand::Configure(Box::new(loaded.config)))
            }
            Ok(_) => None,
            Err(error) => {
                tracing::error!("reload failed; the old configuration stays: {error}");
                None
            }
        }),
        sources: vec![command_sender.command_source()],
        farewell: Box::new(move || {
            leaving.report_usage();
            Some(GatewayCommand::Leave)
        }),
        // At the stop, wait for the responses to the last accounting records.
        waits_for_stop: true,
    };
    let share = move |command: GatewayCommand| {
        let told = command.split_for_shards(shards).into_iter();
        told.map(|(number, command)| (usize::from(number), command)).collect()
    };
    host(hosted, gateways, Arc::new(share))?;
    if plane.has_failed() {
        return Err(IkeError::PlaneFailed);
    }
    if within.is_some_and(|within| within.has_failed()) {
        return Err(IkeError::EmbeddedServerFailed);
    }
    let outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
    match outcome {
        Some(IkeConnectionOutcome { established: false, reason: Some(reason) }) if !serves => {
            Err(IkeError::NotConnected(format!("no connection: {}", end_reason_text(reason))))
        }
        _ => Ok(()),
    }
}

/// Removes the data plane's state, however the program ends.
struct DataPlaneGuard(IkeDataPlane);

impl Drop for DataPlaneGuard {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}

/// Keeps one connection to initiate and turns off the others.
fn select_ike_connection(loaded: &mut LoadedGatewayConfig, name: &str) -> Result<(), IkeError> {
    let names: Vec<String> = loaded.config.peers.iter().map(|peer| peer.connection.name.clone()).collect();
    loaded.config.peers.retain(|peer| peer.connection.name == name && peer.remote.is_some());
    let Some(peer) = loaded.config.peers.first_mut() else {
        let near = name_hint(name, names.iter().map(String::as_str));
        return Err(IkeError::NoConnection { name: name.to_owned(), near });
    };
    Arc::make_mut(peer).start = true;
    Ok(())
}

/// Binds the sockets of `[listen]` and those toward the AAA servers, for one shard. With a mark, IKE shares port 4500
/// with ESP.
fn bind_sockets(
    loaded: &LoadedGatewayConfig,
    servers: &ConnectionSecuritySelector,
    mark: Option<u32>,
    (number, shards): (u8, u8),
) -> Result<DriverSockets, IkeError> {
    let file = &loaded.file;
    let alone = SocketOptions { shared: false, ..SocketOptions::default() };
    let bind =
        |id: SocketId, address: SocketAddr, what: &'static str| {
            let shared = shards > 1 || mark.is_some() && (id == NAT_SOCKET || id == NAT_SOCKET_V6);
            let options = if id == DYNAMIC_SOCKET { alone } else { SocketOptions { shared, mark, ..alone } };
            // SO_REUSEPORT lets another program of the same user share the port, so first check without it that the
            // port is free.
            let free = if shared && number == 0 { bind_udp(address, &alone).map(drop) } else { Ok(()) };
            let socket = free
                .and_then(|()| bind_udp(address, &options))
                .map_err(|error| ServeError::Listen { address, what, error })?;
            if number == 0 {
                tracing::info!(%address, what, shards, "listening");
            }
            Ok::<_, ServeError>((id, socket))
        };
    let udp = config::listen_sockets(file).into_iter().map(|(id, address)| {
        let what = if id == DYNAMIC_SOCKET { "dynamic authorization" } else { "IKE" };
        bind(id, address, what)
    });
    let udp = udp.collect::<Result<Vec<_>, _>>()?;
    Ok(DriverSockets {
        udp,
        outgoing: Some(servers.clone()),
        settings: DriverConfig::default(),
        ..DriverSockets::default()
    })
}

/// Has the kernel steer datagrams to shards.
fn steer_datagrams_to_shards(first: &DriverSockets, shards: u8, esp: bool) -> Result<(), IkeError> {
    for (id, socket) in &first.udp {
        let port = match *id {
            SOCKET | SOCKET_V6 => steer::IkePortKind::Ike,
            NAT_SOCKET | NAT_SOCKET_V6 => steer::IkePortKind::Nat { esp },
            _ => continue,
        };
        steer::attach_steering_program(socket, port, shards)
            .map_err(system_error("cannot steer datagrams to the shards of [listen]"))?;
    }
    Ok(())
}

/// Makes the function that does jobs with the current keys.
fn create_worker(
    revocation: RevocationChecker,
    leases: Option<event_handler::SharedLeases>,
    work: WorkUnitCounters,
) -> impl Fn(JobRequest<GatewayJob>) -> GatewayCommand + Send + Sync {
    move |JobRequest { token, job: what, .. }| match what {
        GatewayJob::Ike(what) => {
            work.add_work([(what.work_label(), 1)]);
            GatewayCommand::Done(revocation.run_job(&JobRequest::new(token, what)))
        }
        GatewayJob::EapStep(step) => GatewayCommand::EapStepDone(step.run_eap_step()),
        GatewayJob::Lease(wish) => match &leases {
            Some(leases) => wish.answer_from(&mut leases.lock().unwrap_or_else(PoisonError::into_inner)),
            None => GatewayCommand::Leased { sa: wish.sa, leases: Vec::new() },
        },
    }
}

/// The notices after a reload: warnings, and changes against the `first` configuration that need a restart.
fn reload_notices(first: &GatewayConfigFile, again: &LoadedGatewayConfig) -> Vec<String> {
    let (a, b) = (first, &again.file);
    let text = |value: &dyn std::fmt::Debug| format!("{value:?}");
    let later = [
        ("listen", text(&a.listen) != text(&b.listen)),
        ("pool", text(&a.pool) != text(&b.pool)),
        ("aaa", text(&a.aaa) != text(&b.aaa)),
        ("limits", text(&a.limits) != text(&b.limits)),
        ("data", text(&a.data) != text(&b.data)),
        ("key_log", a.key_log != b.key_log),
        ("esp_key_log", a.esp_key_log != b.esp_key_log),
    ];
    setup::config_notices(&again.warnings, "gateway", &later)
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_config::EmptyConfigEnvironment;

    fn parse_config(text: &str) -> LoadedGatewayConfig {
        config::parse(
            "ike.toml",
            text,
            &EmptyConfigEnvironment,
            &SharedWallClock::from_time(WallTime::UNIX_EPOCH),
        )
        .unwrap()
    }

    const HOME: &str = "[[connection]]\nname = \"home\"\nlocal_id = \"a.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\n\
                        secret = \"sixteen octets!!\"\n";

    #[test]
    fn a_reload_tells_what_waits_for_a_start() {
        let first = parse_config(HOME).file;
        assert!(reload_notices(&first, &parse_config(&format!("{HOME}mobike = false\n"))).is_empty());
        let told = reload_notices(
            &first,
            &parse_config(&format!("[listen]\nport = 501\n[limits]\nsas = 5\n{HOME}")),
        );
        let keys: Vec<_> = told.iter().map(|notice| notice.split(' ').next().unwrap()).collect();
        assert_eq!(keys, ["listen", "limits"]);
    }

    #[test]
    fn one_connection_is_left_to_be_begun() {
        let mut loaded =
            parse_config(&format!("{HOME}remote_address = \"127.0.0.1\"\n{}", HOME.replace("home", "other")));
        let error = select_ike_connection(&mut loaded.clone(), "hom").unwrap_err().to_string();
        assert!(error.contains("did you mean \"home\"?"), "{error}");
        assert!(
            matches!(select_ike_connection(&mut loaded.clone(), "other"), Err(IkeError::NoConnection { .. })),
            "nobody to begin with"
        );
        select_ike_connection(&mut loaded, "home").unwrap();
        assert_eq!((loaded.config.peers.len(), loaded.config.peers[0].start), (1, true));
        local_address::set_local_addresses(&mut loaded, None);
        assert_eq!(loaded.config.peers[0].local, "127.0.0.1:500".parse().unwrap());
    }
}

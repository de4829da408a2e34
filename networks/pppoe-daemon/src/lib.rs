//! The PPPoE access concentrator on this host's interfaces, and a client.

mod audit;
mod connect;
mod control;
mod daily;
mod event_handler;
mod gate;
mod installed_sessions;
mod ipfix;
mod nat;
mod offers;
mod track;
mod translations;

pub use connect::{PppoeConnectConfig, PppoeConnectError, parse_network, run_client};
pub use control::{
    PppoeControlReply, PppoeControlRequest, PppoePoolStatus, PppoeSessionStatus, PppoeStatus, SessionTraffic,
    control_path, request_concentrator,
};
pub use event_handler::end_reason_text;
pub use offers::EapCertificateFiles;
pub use track::{
    AddressHolder, AddressQuery, AddressQueryError, AddressQueryReply, SessionLogSettings, query_log_files,
};

use audit::AddressQueryAuditLog;
use event_handler::PppoeEventSink;
use gate::{NewConnectionGate, TranslationCounters};
use installed_sessions::InstalledSessionMap;
use ipfix::IpfixSender;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use track::SharedSessionLog;
use usher_access_host::{AaaConfigChecker, AaaServerStarter, RunningAaaServer, select_outgoing_tls};
use usher_concentrator::config::{
    self, ConcentratorConfigFile, DEFAULT_PATH, EbpfHookName, LoadedConcentratorConfig, ModeWord,
};
use usher_concentrator::{
    AccessConcentrator, AccessConcentratorCommand, AccessConcentratorEvent, ConcentratorJob, DYNAMIC_SOCKET,
    IDENT_LISTENER, SessionUsage,
};
use usher_config::disk::{DiskEnvironment, LoadError, read_file_text};
use usher_config::{ConfigDiagnostic, ConfigErrors};
use usher_core::{JobRequest, LinkLayerPortId, ListenerId, WallTime};
use usher_crypto::tls::SharedWallClock;
use usher_live::{DriverConfig, DriverSockets, SocketOptions, SystemClock, bind_udp};
use usher_ppp::pppoe::MacAddress;
use usher_pppoe::netfilter::{NetfilterTable, NewConnectionDropCounts};
use usher_pppoe::{AccessPortConfig, DataPlaneMode, EbpfHook, PppoeDataPlane};
use usher_service::setup::{fault_texts, secure_rng, wall_clock, wall_time};
use usher_service::{
    CommandSender, EthernetPorts, FrameInput, FrameKind, HostedMachine, MachineWorkerPool, ServeError,
    bind_listener, log, protect_memory, serve_machine, system_error,
};

/// The limit of concurrent log writes and translation lookups. After a power loss all hosts log in at once.
const HELPERS: usize = 32;

/// Why the concentrator does not start or has ended.
#[derive(Debug, thiserror::Error)]
pub enum PppoeError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] LoadError),
    /// The configuration contradicts itself.
    #[error("{0}")]
    New(String),
    /// The data plane cannot start.
    #[error("[data]: {0}")]
    Plane(#[from] usher_pppoe::StartError),
    /// Netfilter cannot redirect IDENT queries or translate addresses.
    #[error("netfilter: {0}")]
    Netfilter(#[from] usher_pppoe::netfilter::NetfilterError),
    /// The data plane has failed.
    #[error("the data plane has failed: {0}")]
    PlaneFailed(String),
    /// The embedded AAA server cannot start.
    #[error("[aaa] server: {0}")]
    EmbeddedServer(String),
    /// The embedded AAA server has failed.
    #[error("the embedded AAA server has failed; the log says why")]
    EmbeddedServerFailed,
    /// The session log cannot be used.
    #[error("[tracking]: {0}")]
    Track(String),
    /// An error of the system.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Prepares a concentrator before it touches the system: loads the configuration, and checks that a machine accepts
/// it.
fn load_checked_concentrator_config(
    path: Option<&Path>,
    clock: &SharedWallClock,
) -> Result<LoadedConcentratorConfig, PppoeError> {
    let loaded = load_by(path, clock)?;
    let mut config = loaded.config.clone();
    usher_access_host::stand_in(loaded.file.aaa.as_ref(), config.subscribers.aaa.as_mut());
    AccessConcentrator::new(config, secure_rng()?).map_err(|error| PppoeError::New(error.to_string()))?;
    Ok(loaded)
}

/// The base folder of relative paths in a file.
fn base_folder(path: Option<&Path>) -> PathBuf {
    path.unwrap_or(Path::new(DEFAULT_PATH)).parent().unwrap_or(Path::new("")).to_owned()
}

/// Returns the time from which a session's end can lack an acknowledged accounting record.
fn unacknowledged_record_start(loaded: &LoadedConcentratorConfig) -> Option<WallTime> {
    let aaa = loaded.config.subscribers.aaa.as_ref().filter(|aaa| aaa.accounting);
    aaa.map(|aaa| wall_time_before_now(aaa.record_retry.lasts))
}

/// Loads the files of a concentrator and of its embedded AAA server, and returns their warnings.
///
/// # Errors
/// Why the concentrator would not start.
pub fn check_config(path: &Path, check_aaa: AaaConfigChecker) -> Result<Vec<String>, PppoeError> {
    let loaded = load_checked_concentrator_config(Some(path), &SharedWallClock::from_time(wall_time()))?;
    let base = base_folder(Some(path));
    if let Some(table) = &loaded.file.tracking {
        SharedSessionLog::check_session_log(&base, table, unacknowledged_record_start(&loaded))
            .map_err(PppoeError::Track)?;
    }
    let within = usher_access_host::check_embedded(loaded.file.aaa.as_ref(), &base, check_aaa);
    Ok([fault_texts(&loaded.warnings), within.map_err(PppoeError::EmbeddedServer)?].concat())
}

/// Reads and checks a configuration file. Without a path, reads the file at [`DEFAULT_PATH`].
///
/// # Errors
/// The file cannot be read, or all errors in it.
pub fn load_config(path: Option<&Path>) -> Result<LoadedConcentratorConfig, LoadError> {
    load_by(path, &SharedWallClock::from_time(WallTime::UNIX_EPOCH))
}

fn load_by(path: Option<&Path>, clock: &SharedWallClock) -> Result<LoadedConcentratorConfig, LoadError> {
    let path = path.unwrap_or(Path::new(DEFAULT_PATH));
    let loaded = config::parse(&path.display().to_string(), &read_file_text(path)?, &DiskEnvironment, clock)?;
    check_mode_support(path, loaded.file.data.mode, usher_pppoe::HAS_EBPF_MODE)?;
    Ok(loaded)
}

/// Rejects a mode that this build lacks.
fn check_mode_support(path: &Path, mode: ModeWord, has_ebpf: bool) -> Result<(), ConfigErrors> {
    if has_ebpf || mode != ModeWord::Ebpf {
        return Ok(());
    }
    let message = "[data] mode = \"ebpf\": this program was built without eBPF mode; install clang and build it again, \
                   or set mode = \"user\"";
    let file = path.display().to_string();
    let fault = ConfigDiagnostic { file: file.clone(), line: 0, column: 0, message: message.to_owned() };
    Err(ConfigErrors { file, faults: vec![fault] })
}

const fn data_plane_mode_from_words(word: ModeWord, hook: EbpfHookName) -> DataPlaneMode {
    let hook = match hook {
        EbpfHookName::Auto => EbpfHook::Auto,
        EbpfHookName::Xdp => EbpfHook::Xdp,
        EbpfHookName::Tc => EbpfHook::Tc,
    };
    match word {
        ModeWord::User => DataPlaneMode::User,
        ModeWord::Ebpf => DataPlaneMode::Ebpf(hook),
        ModeWord::Kernel => DataPlaneMode::Kernel,
    }
}

const fn convert_usage(of: usher_pppoe::DataPlaneUsage) -> SessionUsage {
    SessionUsage {
        octets_in: of.octets_in,
        octets_out: of.octets_out,
        packets_in: of.packets_in,
        packets_out: of.packets_out,
        spoofed: of.spoofed,
        limited: of.limited,
    }
}

/// Serves until a signal ends it. `start` starts the embedded AAA server, if the file has one.
///
/// # Errors
/// The concentrator could not start, or the data plane failed.
pub fn serve_pppoe(path: Option<PathBuf>, start: AaaServerStarter) -> Result<(), PppoeError> {
    protect_memory().map_err(system_error("cannot disable core dumps"))?;
    let clock = wall_clock()?;
    let mut loaded = load_checked_concentrator_config(path.as_deref(), &clock)?;
    let _log = log::start_logging(loaded.file.log);
    loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    // Check this first: a second instance would disturb the first one's log, exports and kernel state.
    usher_service::control::ensure_control_socket_unused(&loaded.file.listen.control)
        .map_err(system_error("control socket"))?;
    let base = base_folder(path.as_deref());
    let ipfix = IpfixSender::start(&loaded.file).map_err(system_error("cannot start the IPFIX export"))?;
    let track = match &loaded.file.tracking {
        Some(table) => {
            let (track, left) = SharedSessionLog::open(&base, table, unacknowledged_record_start(&loaded))
                .map_err(PppoeError::Track)?;
            if let Some(ipfix) = &ipfix {
                track.set_exporter(ipfix.clone(), &left.lost);
            }
            (loaded.config.lost, loaded.config.unacknowledged_stops) = (left.lost, left.unacknowledged_stops);
            Some(track)
        }
        None => None,
    };
    let audit = loaded.file.tracking.as_ref().map_or_else(AddressQueryAuditLog::default, |table| {
        AddressQueryAuditLog::from_tracking(&base, table)
    });
    let (command_sender, frames, failed) =
        (CommandSender::default(), FrameInput::default(), Arc::new(OnceLock::new()));
    let gone = command_sender.clone();
    let (table, aaa) = (loaded.file.aaa.as_ref(), loaded.config.subscribers.aaa.as_mut());
    let within = RunningAaaServer::start(table, aaa, &base, start, move || {
        gone.send_command(AccessConcentratorCommand::Leave);
    });
    let within = within.map_err(PppoeError::EmbeddedServer)?;
    let known = InstalledSessionMap::default();
    let plane = Arc::new(start_plane(&loaded.file, &command_sender, (&frames, &known), &failed)?);
    let blocks = loaded.config.blocks.clone();
    let (pools, lost) = (&loaded.config.subscribers.pools, &loaded.config.lost);
    let nat = nat::NatRules::start(&loaded.file, pools, blocks, &plane, lost)?;
    let logs = loaded.file.tracking.as_ref().is_some_and(|table| table.translations);
    let translations = match track.as_ref().filter(|_| logs) {
        Some(track) => {
            let table = nat.as_ref().map(nat::NatRules::netfilter_table).unwrap_or_default();
            let least = loaded.file.tracking.as_ref().map_or(0, |table| table.keep_free.bytes());
            let gate = NewConnectionGate { table, folder: track.folder(), least };
            let followed = translations::start_translation_log(
                track,
                gate,
                &loaded.config.subscribers.pools,
                ipfix.clone(),
            );
            Some(
                followed
                    .map_err(|error| PppoeError::Track(format!("cannot follow translations: {error}")))?,
            )
        }
        None => None,
    };
    loaded.config.subscribers.is_metered = true;
    update_ppp_ports(&mut loaded, &plane);
    let sockets = bind_sockets(&loaded)?;
    let machine = AccessConcentrator::new(loaded.config, secure_rng()?);
    let machine = machine.map_err(|error| PppoeError::New(error.to_string()))?;
    let tracked = loaded.file.tracking.clone().map(|table| (base.clone(), table));
    let held = translations.as_ref().map(TranslationCounters::hold_flag).unwrap_or_default();
    let table = nat.as_ref().map(nat::NatRules::netfilter_table).unwrap_or_default();
    let dropped = frames.clone();
    let beside = move || {
        let told = ipfix.as_ref().map(IpfixSender::counters).unwrap_or_default();
        let told = told.into_iter().chain(translations.iter().flat_map(TranslationCounters::counter_values));
        told.chain(lost_frame_counts(&dropped)).chain(connections_dropped(&table)).collect()
    };
    let asked = control::ConcentratorControlRequests::new(
        &command_sender,
        tracked,
        audit.clone(),
        (Arc::new(beside), held),
    );
    let socket = &loaded.file.listen.control;
    control::start_control(socket, &asked).map_err(system_error("control socket"))?;
    tracing::info!(path = %socket.display(), "control socket");
    if let Some(address) = loaded.file.listen.metrics {
        let bound = usher_service::metrics::start_metrics(address, Arc::new(asked.clone()));
        bound.map_err(|error| ServeError::Listen { address, what: "metrics", error })?;
        tracing::info!(%address, "metrics");
    }
    let mut teller = PppoeEventSink {
        plane: plane.clone(),
        carried_sessions: known,
        nat,
        track: track.clone(),
        audit,
        control: asked,
        command_sender: command_sender.clone(),
    };
    let leaving = plane.clone();
    let (sends, first) = (plane.clone(), loaded.file.clone());
    let reload_within = within.as_ref().map(RunningAaaServer::reloader);
    // A reload that is under way at the end keeps the data plane no longer than the end does.
    let reloaded_plane = Arc::downgrade(&plane);
    drop(plane);
    serve_machine(HostedMachine {
        name: "usher-pppoe",
        machine,
        sockets,
        frames: Some(EthernetPorts {
            send: Box::new(move |port: LinkLayerPortId, frame| sends.send_frame(port.0 as usize, frame)),
            input: frames,
        }),
        clock: SystemClock::start(),
        helpers: MachineWorkerPool::new(HELPERS, move |job: JobRequest<ConcentratorJob>| {
            run_job(track.as_ref(), &job)
        }),
        event_handler: Box::new(move |event| teller.handle_event(event)),
        stop_condition: Box::new(|event| matches!(event, AccessConcentratorEvent::Left)),
        counted: |concentrator| {
            let (own, subscribers, ppp) = concentrator.counters();
            ppp.iter().chain(own.iter()).chain(subscribers.iter()).collect()
        },
        work: None,
        reload: Box::new(move || match load_by(path.as_deref(), &clock) {
            Ok(mut loaded) => {
                log::change_logging(loaded.file.log);
                reload_notices(&first, &loaded).iter().for_each(|notice| tracing::warn!("{notice}"));
                loaded.config.ports = first.listen.interfaces.clone();
                update_ppp_ports(&mut loaded, &*reloaded_plane.upgrade()?);
                tracing::info!("the configuration was read again");
                if let Some(reload_within) = &reload_within {
                    reload_within();
                }
                Some(AccessConcentratorCommand::Configure(Box::new(loaded.config)))
            }
            Err(error) => {
                tracing::error!("reload failed; the old configuration stays: {error}");
                None
            }
        }),
        sources: vec![command_sender.command_source()],
        farewell: Box::new(move || {
            leaving.report_usage();
            Some(AccessConcentratorCommand::Leave)
        }),
        // At the stop, wait for the responses to the last accounting records.
        waits_for_stop: true,
    })?;
    match failed.get() {
        Some(why) => Err(PppoeError::PlaneFailed(String::clone(why))),
        None if within.is_some_and(|within| within.has_failed()) => Err(PppoeError::EmbeddedServerFailed),
        None => Ok(()),
    }
}

/// Returns the counts of frames that were lost because the machine's queue was full.
fn lost_frame_counts(frames: &FrameInput) -> [(String, u64); 2] {
    [(FrameKind::Session, "frames_of_sessions_lost"), (FrameKind::Other, "frames_lost")]
        .map(|(kind, name)| (name.to_owned(), frames.lost_frames(kind)))
}

/// Returns the count of packets that netfilter dropped because they would have begun connections.
fn connections_dropped(table: &Weak<NetfilterTable>) -> Vec<(String, u64)> {
    let Some(table) = table.upgrade() else { return Vec::new() };
    match table.drop_counts() {
        Ok(NewConnectionDropCounts { limited, held, unnamed }) => {
            let counted = [
                ("connections_limited", limited),
                ("connections_dropped", held),
                ("translations_unnamed", unnamed),
            ];
            counted.map(|(name, n)| (name.to_owned(), n)).to_vec()
        }
        Err(error) => {
            tracing::error!("{error}");
            Vec::new()
        }
    }
}

/// Returns the time that lies this far in the past.
fn wall_time_before_now(by: usher_core::Duration) -> WallTime {
    WallTime::from_unix_secs(wall_time().unix_secs().saturating_sub(by.as_secs()))
}

fn start_plane(
    file: &ConcentratorConfigFile,
    command_sender: &CommandSender<AccessConcentratorCommand>,
    (frames, known): (&FrameInput, &InstalledSessionMap),
    failed: &Arc<OnceLock<String>>,
) -> Result<PppoeDataPlane, usher_pppoe::StartError> {
    let interface = |name: &String| AccessPortConfig { interface: name.clone() };
    let config = usher_pppoe::DataPlaneConfig {
        ports: file.listen.interfaces.iter().map(interface).collect(),
        mode: data_plane_mode_from_words(file.data.mode, file.data.hook),
        device: file.data.device.clone(),
        report: Some(Duration::from_nanos(file.data.report.get().as_nanos())),
        closed: true,
    };
    let (command_sender, failed) = (command_sender.clone(), failed.clone());
    let (frames, known) = (frames.clone(), known.clone());
    let hears = move |event| match event {
        usher_pppoe::DataPlaneEvent::Frame { port, data } => {
            let port = LinkLayerPortId(u32::try_from(port).unwrap_or(u32::MAX));
            frames.push_frame(port, known.frame_quota_kind(port, &data, Instant::now()), data);
        }
        usher_pppoe::DataPlaneEvent::UsageReport(all) => {
            let all = all.into_iter().map(|(number, of)| (number, convert_usage(of))).collect();
            command_sender.send_command(AccessConcentratorCommand::UsageReport(all));
        }
        usher_pppoe::DataPlaneEvent::Failed(why) => {
            tracing::error!("the data plane has failed: {why}");
            let _ = failed.set(why);
            command_sender.send_command(AccessConcentratorCommand::Leave);
        }
    };
    let plane = PppoeDataPlane::start(&config, Box::new(hears))?;
    tracing::info!(device = plane.device_name(), mode = %config.mode, "data plane");
    plane.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    for port in plane.ports() {
        if let Some(hook) = port.hook {
            tracing::info!(interface = port.interface, hook = %hook, "PPPoE hook");
        }
    }
    Ok(plane)
}

/// Updates the ports with the state of their interfaces.
fn update_ppp_ports(loaded: &mut LoadedConcentratorConfig, plane: &PppoeDataPlane) {
    let template = loaded.config.ppp.ports.first().copied();
    let ports = plane.ports().iter().zip(0_u32..).filter_map(|(state, n)| {
        let mut port = template?;
        (port.port, port.address, port.mtu) = (LinkLayerPortId(n), MacAddress(state.mac), state.mtu);
        Some(port)
    });
    loaded.config.ppp.ports = ports.collect();
}

fn bind_sockets(loaded: &LoadedConcentratorConfig) -> Result<DriverSockets, PppoeError> {
    let file = &loaded.file;
    let alone = SocketOptions { shared: false, ..SocketOptions::default() };
    let dynamic = file.aaa.as_ref().and_then(|aaa| aaa.dynamic.as_ref());
    let udp = dynamic.map(|dynamic| {
        let address = dynamic.listen;
        let socket = bind_udp(address, &alone);
        let what = "dynamic authorization";
        let socket = socket.map_err(|error| ServeError::Listen { address, what, error })?;
        tracing::info!(%address, what, "listening");
        Ok::<_, ServeError>((DYNAMIC_SOCKET, socket))
    });
    let asked = file.ident.iter().flat_map(|ident| &ident.listen);
    let listeners = (0..).zip(asked).map(|(n, address)| {
        let id = ListenerId { n, ..IDENT_LISTENER };
        let listener = bind_listener("IDENT", *address, id)?;
        tracing::info!(%address, what = "IDENT", "listening");
        Ok::<_, ServeError>(listener)
    });
    Ok(DriverSockets {
        udp: udp.transpose()?.into_iter().collect(),
        listeners: listeners.collect::<Result<_, _>>()?,
        outgoing: Some(select_outgoing_tls(&loaded.outgoing, file.aaa.as_ref())),
        settings: DriverConfig::default(),
        ..DriverSockets::default()
    })
}

/// Does a job.
fn run_job(track: Option<&SharedSessionLog>, job: &JobRequest<ConcentratorJob>) -> AccessConcentratorCommand {
    match (&job.job, track) {
        (ConcentratorJob::Log(record), Some(track)) => {
            let written = track.write_durably(record);
            if let Err(error) = &written {
                tracing::error!(%error, "cannot write the session log: logins fail until it is writable");
            }
            AccessConcentratorCommand::Logged { token: job.token, is_stored: written.is_ok() }
        }
        (ConcentratorJob::Translation(connection), _) => AccessConcentratorCommand::Translated {
            token: job.token,
            inner: nat::inside_endpoint(connection),
        },
        (ConcentratorJob::Log(_), None) => {
            AccessConcentratorCommand::Logged { token: job.token, is_stored: false }
        }
    }
}

/// The notices after a reload: warnings, and changes against the `first` configuration that need a restart.
fn reload_notices(first: &ConcentratorConfigFile, again: &LoadedConcentratorConfig) -> Vec<String> {
    let (a, b) = (first, &again.file);
    let text = |value: &dyn fmt::Debug| format!("{value:?}");
    let later = [
        ("listen", a.listen != b.listen),
        ("pool", text(&a.pool) != text(&b.pool)),
        // A reload cannot switch the authentication of users between local and AAA.
        ("user", a.aaa.is_some() != b.aaa.is_some()),
        ("aaa", text(&a.aaa) != text(&b.aaa)),
        ("tracking", a.tracking != b.tracking),
        ("ident.listen", a.ident.as_ref().map(|one| &one.listen) != b.ident.as_ref().map(|one| &one.listen)),
        ("limits.connections", a.limits.connections != b.limits.connections),
        ("limits.connections_per_second", a.limits.connections_per_second != b.limits.connections_per_second),
        ("data", a.data != b.data),
    ];
    usher_service::setup::config_notices(&again.warnings, "concentrator", &later)
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_config::EmptyConfigEnvironment;

    const SITE: &str = "[listen]\ninterfaces = [\"eth1\"]\n[service]\naddress = \"10.0.0.1\"\npools = [\"p\"]\n[[pool]]\nname = \"p\"\n\
                        ranges = [\"10.0.0.0/24\"]\n";

    #[test]
    fn a_mode_that_this_build_lacks_is_a_fault() {
        let check = |mode, has_ebpf| check_mode_support(Path::new("pppoe.toml"), mode, has_ebpf);
        assert_eq!(check(ModeWord::Ebpf, true), Ok(()));
        assert_eq!(check(ModeWord::User, false), Ok(()));
        let faults = check(ModeWord::Ebpf, false).unwrap_err();
        assert!(faults.to_string().contains("built without eBPF mode"), "{faults}");
    }

    #[test]
    fn a_reload_tells_what_waits_for_a_start() {
        let read = |text: &str| {
            config::parse(
                "pppoe.toml",
                text,
                &EmptyConfigEnvironment,
                &SharedWallClock::from_time(WallTime::UNIX_EPOCH),
            )
            .unwrap()
        };
        let first = read(SITE).file;
        assert!(
            reload_notices(&first, &read(&format!("{SITE}[limits]\nsessions_per_user = 1\n"))).is_empty()
        );
        let told = reload_notices(&first, &read(&format!("{}[tracking]\n", SITE.replace("eth1", "eth2"))));
        let keys: Vec<_> = told.iter().map(|notice| notice.split(' ').next().unwrap()).collect();
        assert_eq!(keys, ["listen", "tracking"]);
        // The choice between local users and AAA servers is fixed at the start.
        let aaa = "[aaa]\nnas_identifier = \"a\"\n[[aaa.radius]]\naddress = \"192.0.2.9:1812\"\nsecret = \"sixteen octets!!\"\n";
        let told = reload_notices(&first, &read(&format!("{SITE}{aaa}")));
        let keys: Vec<_> = told.iter().map(|notice| notice.split(' ').next().unwrap()).collect();
        assert_eq!(keys, ["user", "aaa"]);
    }
}

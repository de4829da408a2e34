//! The MIH function for this host's links, and a client of another host's.

mod links;
pub mod node;

use crate::links::NetlinkChange;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration as StdDuration, Instant as StdInstant};
use usher_config::disk::{DiskEnvironment, LoadError, read_file_text};
use usher_core::{Instant, JobRequest, ListenerId, Machine, NoJob, Seed, SimulationRng, TransportProtocol};
use usher_live::{
    Driver, DriverConfig, DriverRole, DriverSockets, Mailbox, SocketOptions, SystemClock, bind_udp,
    number_sockets,
};
use usher_mih::{MihfId, MihfMessage};
use usher_mih_service::client::{self, MihClient};
use usher_mih_service::config::{self, DEFAULT_PATH, LoadedMihConfig, MihConfigFile};
use usher_mih_service::{
    InterfaceConfig, KernelLinkReport, LinkChange, MihPeerChange, MihService, MihServiceCommand,
    MihServiceEvent, MihServiceJob, RequestingPeer,
};
use usher_service::line_budget::LogRateLimiter;
use usher_service::setup::fault_texts;
use usher_service::{
    CommandSource, HostedMachine, MachineWorkerPool, SendCommand, ServeError, SignalEvent, SignalListener,
    bind_listener, log, serve_machine,
};

/// The kernel answers at once: few workers are enough.
const HELPERS: usize = 2;
/// The shortest interval at which watched values are checked.
const TICK: StdDuration = StdDuration::from_millis(10);
/// The delay before the links are followed again after an error of the kernel.
const RETRY_INTERVAL: StdDuration = StdDuration::from_secs(1);

/// Why the function does not start.
#[derive(Debug, thiserror::Error)]
pub enum MihError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] LoadError),
    /// There is no address to listen on.
    #[error("no address to listen on; set one in [listen] or use --listen")]
    Nowhere,
    /// The function has no identifier.
    #[error(
        "the host name {0:?} is not an MIHF identifier; set one in the configuration: id = \"pos1.example.org\""
    )]
    Nameless(String),
    /// The configuration of a mobile node lacks its section.
    #[error("the configuration has no [handover], which a mobile node needs")]
    NoHandover,
    /// An interface of a mobile node is absent.
    #[error("interface {0} does not exist or has no MAC address; `ip link` lists the interfaces")]
    NoInterface(String),
    /// An error of the system.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Reads and checks a configuration file. Without a path, reads the file at [`DEFAULT_PATH`] if it exists.
///
/// # Errors
/// The file cannot be read, or all errors in it.
pub fn load_config(path: Option<&Path>) -> Result<LoadedMihConfig, LoadError> {
    let default = Path::new(DEFAULT_PATH);
    let unreadable = |source| LoadError::Unreadable { path: default.to_owned(), source };
    let (path, text) = match path {
        Some(path) => (path, read_file_text(path)?),
        None if default.try_exists().map_err(unreadable)? => (default, read_file_text(default)?),
        None => (default, String::new()),
    };
    Ok(config::parse(&path.display().to_string(), &text, &DiskEnvironment)?)
}

/// This host's name.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn own_identifier(loaded: &LoadedMihConfig) -> Result<MihfId, MihError> {
    let name = host_name();
    let own = || config::parse_identifier(&name).map_err(|_| MihError::Nameless(name.clone()));
    loaded.id.clone().map_or_else(own, Ok)
}

/// The notices after a reload: warnings, and changes against the `first` configuration that need a restart.
fn reload_notices(first: &MihConfigFile, again: &LoadedMihConfig) -> Vec<String> {
    let (a, b) = (first, &again.file);
    let later = [
        ("id", a.id != b.id),
        ("listen", a.listen != b.listen),
        ("limits.transactions", a.limits.transactions != b.limits.transactions),
        ("limits.connections", a.limits.connections.get() < b.limits.connections.get()),
    ];
    usher_service::setup::config_notices(&again.warnings, "function", &later)
}

/// The watched values of the current configuration.
type WatchedInterfaces = Arc<Mutex<Vec<InterfaceConfig>>>;

/// Prepares the function before it opens sockets: loads the configuration and the identifier.
fn load_mih_function_config(
    path: Option<&Path>,
    listen_on: &[SocketAddr],
) -> Result<(LoadedMihConfig, MihfId), MihError> {
    let mut loaded = load_config(path)?;
    if !listen_on.is_empty() {
        loaded.file.listen.udp = listen_on.to_vec();
        loaded.file.listen.tcp = listen_on.to_vec();
    }
    let id = own_identifier(&loaded)?;
    if loaded.file.listen.udp.is_empty() && loaded.file.listen.tcp.is_empty() {
        return Err(MihError::Nowhere);
    }
    Ok((loaded, id))
}

/// Loads the same files as [`serve_mih`], or as [`node::run_mobile_node`] for a mobile node's file. Returns the
/// warnings.
///
/// # Errors
/// Why the function would not start.
pub fn check_config(path: &Path) -> Result<Vec<String>, MihError> {
    let loaded = match load_mih_function_config(Some(path), &[]) {
        // For a mobile node this is no error, because it listens on its own addresses.
        Err(MihError::Nowhere) => load_config(Some(path)).map_err(MihError::from).and_then(|loaded| {
            if loaded.file.handover.is_some() { Ok(loaded) } else { Err(MihError::Nowhere) }
        })?,
        prepared => prepared?.0,
    };
    Ok(fault_texts(&loaded.warnings))
}

/// Serves until a signal ends it. `listen_on`, unless empty, overrides the addresses of the configuration for UDP and
/// TCP.
///
/// # Errors
/// The function could not start.
pub fn serve_mih(path: Option<PathBuf>, listen_on: &[SocketAddr]) -> Result<(), MihError> {
    let (loaded, id) = load_mih_function_config(path.as_deref(), listen_on)?;
    let _log = log::start_logging(loaded.file.log);
    loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    if loaded.file.point_of_service.is_some() {
        return node::run_point_of_service(&loaded, id);
    }
    let sockets = bind_sockets(&loaded.file, ListenerId::from_number)?;
    tracing::info!(%id, "MIH function");
    let config = loaded.service_config(id.clone());
    let watches: WatchedInterfaces = Arc::new(Mutex::new(config.interfaces.clone()));
    let (first, listen, watched) = (loaded.file.clone(), loaded.file.listen.clone(), watches.clone());
    Ok(serve_machine(HostedMachine {
        name: "usher-mih",
        machine: MihService::new(config, system_rng()),
        sockets,
        frames: None,
        clock: SystemClock::start(),
        helpers: MachineWorkerPool::new(HELPERS, run_kernel_job),
        event_handler: {
            let mut log = EventLog::default();
            Box::new(move |event| log.write_event(StdInstant::now(), event))
        },
        stop_condition: Box::new(|_| false),
        counted: |service| {
            let (own, function) = service.counters();
            function.iter().chain(own.iter()).collect()
        },
        work: None,
        reload: Box::new(move || match load_config(path.as_deref()) {
            Ok(mut loaded) => {
                log::change_logging(loaded.file.log);
                reload_notices(&first, &loaded).iter().for_each(|notice| tracing::warn!("{notice}"));
                loaded.file.listen = listen.clone();
                let config = loaded.service_config(id.clone());
                *watched.lock().unwrap_or_else(PoisonError::into_inner) = config.interfaces.clone();
                tracing::info!("the configuration was read again");
                Some(MihServiceCommand::Configure(Box::new(config)))
            }
            Err(error) => {
                tracing::error!("reload failed; the old configuration stays: {error}");
                None
            }
        }),
        sources: link_sources(&watches),
        farewell: Box::new(|| Some(MihServiceCommand::Leave)),
        waits_for_stop: false,
    })?)
}

/// Returns random numbers seeded by the system.
pub(crate) fn system_rng() -> SimulationRng {
    let mut octets = [0; 8];
    // The kernel never returns fewer octets for so short a request. If it fails, identifiers start at a fixed value,
    // which does no harm.
    let _ = rustix::rand::getrandom(&mut octets, rustix::rand::GetRandomFlags::empty());
    Seed::new(u64::from_ne_bytes(octets)).derive_rng("mih", 0)
}

/// Binds the sockets of `[listen]`.
fn bind_sockets(file: &MihConfigFile, listener: fn(u32) -> ListenerId) -> Result<DriverSockets, MihError> {
    let listens = &file.listen;
    let what = "MIH";
    let options = SocketOptions { shared: false, ..SocketOptions::default() };
    let udp = |address: &SocketAddr| {
        let address = *address;
        bind_udp(address, &options).map_err(|error| ServeError::Listen { address, what, error })
    };
    let udp = listens.udp.iter().map(udp).collect::<Result<Vec<_>, _>>()?;
    let tcp = (0..).zip(&listens.tcp).map(|(n, address)| bind_listener(what, *address, listener(n)));
    let listeners = tcp.collect::<Result<Vec<_>, _>>()?;
    for (transport, address) in
        listens.udp.iter().map(|a| ("udp", a)).chain(listens.tcp.iter().map(|a| ("tcp", a)))
    {
        tracing::info!(transport, %address, "listening");
    }
    // The driver's limit is above the configured one. The machine applies the exact limit, because it knows its peers.
    let connections = usize::try_from(file.limits.connections.get()).unwrap_or(usize::MAX).saturating_mul(2);
    let settings =
        DriverConfig { connections, connections_per_address: connections, ..DriverConfig::default() };
    Ok(DriverSockets { udp: number_sockets(udp), listeners, settings, ..DriverSockets::default() })
}

/// The sources of link reports: the kernel, and the files of the watched values.
fn link_sources(watches: &WatchedInterfaces) -> Vec<CommandSource<MihServiceCommand>> {
    let watches = watches.clone();
    let kernel = |tell: SendCommand<MihServiceCommand>| {
        let mut open = true;
        while open {
            let followed = links::watch_netlink_changes(|change| {
                open = tell(match change {
                    NetlinkChange::Link(report) => MihServiceCommand::Link(report),
                    NetlinkChange::Address => MihServiceCommand::Moved,
                });
                open
            });
            if let Err(error) = followed {
                tracing::error!(%error, "cannot watch this host's links");
                std::thread::sleep(RETRY_INTERVAL);
            }
        }
    };
    let values = move |tell: SendCommand<MihServiceCommand>| {
        poll_watched_values(&watches, |interface, value| {
            tell(MihServiceCommand::Watched { interface, value })
        });
    };
    vec![Box::new(kernel), Box::new(values)]
}

/// Reads each watched value at its interval, until `said` returns false.
pub(crate) fn poll_watched_values(
    watches: &Mutex<Vec<InterfaceConfig>>,
    mut said: impl FnMut(String, f64) -> bool,
) {
    let mut read: Vec<(String, StdInstant)> = Vec::new();
    loop {
        let interfaces = watches.lock().unwrap_or_else(PoisonError::into_inner).clone();
        read.retain(|(name, _)| interfaces.iter().any(|interface| interface.name == *name));
        let now = StdInstant::now();
        let mut next = StdDuration::from_secs(1);
        for interface in interfaces {
            let Some(watch) = interface.watch else { continue };
            let interval = StdDuration::from_nanos(watch.interval.as_nanos());
            let last = read.iter().position(|(name, _)| *name == interface.name);
            let passed = last.map(|at| now.saturating_duration_since(read[at].1));
            if let Some(left) =
                passed.and_then(|passed| interval.checked_sub(passed)).filter(|l| !l.is_zero())
            {
                next = next.min(left);
                continue;
            }
            match last {
                Some(at) => read[at].1 = now,
                None => read.push((interface.name.clone(), now)),
            }
            next = next.min(interval);
            let value = match &watch.file {
                Some(file) => std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()),
                None => links::signal_level(&interface.name).map(f64::from),
            };
            if let Some(value) = value
                && !said(interface.name, value)
            {
                return;
            }
        }
        std::thread::sleep(next.max(TICK));
    }
}

/// Does a job of the function: a request to the kernel.
fn run_kernel_job(JobRequest { token, job: what, .. }: JobRequest<MihServiceJob>) -> MihServiceCommand {
    match what {
        MihServiceJob::Measure { interfaces } => {
            let all = links::list_links().unwrap_or_else(|error| {
                tracing::error!(%error, "cannot read the state of this host's links");
                Vec::new()
            });
            let meant = |link: &KernelLinkReport| interfaces.contains(&link.name);
            let reports = all.into_iter().map(|(_, link)| link).filter(meant).collect();
            MihServiceCommand::Measured { token, reports }
        }
        MihServiceJob::Switch { interface, on } => {
            let done = links::set_link_enabled(&interface, on);
            if let Err(error) = &done {
                tracing::error!(%error, interface, on, "cannot switch an interface; this needs CAP_NET_ADMIN");
            } else {
                tracing::info!(interface, on, "interface switched on request");
            }
            MihServiceCommand::Acted { token, done: done.is_ok() }
        }
    }
}

fn address_text(asked: &RequestingPeer) -> String {
    asked.address.map_or_else(String::new, |address| address.to_string())
}

/// The longest text of a message in the log, in octets.
const MAX_LOGGED_MESSAGE: usize = 500;

/// Formats a message for the log. A message can have 64 KiB.
fn message_text(message: &MihfMessage) -> String {
    let mut text = message.to_string();
    if text.len() > MAX_LOGGED_MESSAGE {
        text.truncate(text.floor_char_boundary(MAX_LOGGED_MESSAGE));
        text.push_str("...");
    }
    text
}

/// Writes events to the log. Others can cause lines without end, so there are two rate limits. One is for configured
/// functions, whose addresses can be forged. The other is for all others.
#[derive(Default)]
struct EventLog {
    peers: LogRateLimiter,
    strangers: LogRateLimiter,
}

impl EventLog {
    fn allows_line(&mut self, now: StdInstant, asked: &RequestingPeer) -> bool {
        match asked.is_configured {
            true => self.peers.allows_line(now, "functions in [[peer]]"),
            false => self.strangers.allows_line(now, "functions not in [[peer]]"),
        }
    }

    fn write_event(&mut self, now: StdInstant, event: MihServiceEvent) {
        let about = match &event {
            MihServiceEvent::Registered(asked) | MihServiceEvent::Deregistered(asked) => Some(asked),
            MihServiceEvent::Answered { peer: asked, .. }
            | MihServiceEvent::AddressReplaced { peer: asked, .. } => Some(asked),
            MihServiceEvent::Indication { from, .. } => Some(from).filter(|from| from.is_configured),
            _ => None,
        };
        if about.is_some_and(|asked| !self.allows_line(now, asked)) {
            return;
        }
        match event {
            MihServiceEvent::Registered(asked) => {
                tracing::info!(peer = %asked.peer, from = address_text(&asked), "registered");
            }
            MihServiceEvent::Deregistered(asked) => tracing::info!(peer = %asked.peer, "deregistered"),
            MihServiceEvent::Answered { peer: asked, request, status } => {
                tracing::info!(peer = %asked.peer, from = address_text(&asked), %request, %status, "request answered");
            }
            MihServiceEvent::Link { interface, change, notified_subscribers: told } => match change {
                LinkChange::Up => tracing::info!(interface, told, "link up"),
                LinkChange::Down(reason) => tracing::info!(interface, told, %reason, "link down"),
                LinkChange::GoingDown(reason, within) => {
                    tracing::info!(interface, told, %reason, within_ms = within.as_millis(), "link going down");
                }
            },
            MihServiceEvent::Indication { from, message } if from.is_configured => {
                tracing::info!(peer = %from.peer, message = message_text(&message), "indication received");
            }
            // Anyone can send unsolicited messages, so they are logged at debug level. A log line each minute counts
            // them.
            MihServiceEvent::Indication { from: asked, message } => {
                tracing::debug!(peer = %asked.peer, from = address_text(&asked), message = message_text(&message),
                    "indication received");
            }
            MihServiceEvent::Peer { peer, change } => match change {
                MihPeerChange::Registered(seconds) => {
                    tracing::info!(%peer, seconds, "registered with this peer");
                }
                MihPeerChange::Subscribed(link, events) => {
                    tracing::debug!(%peer, %link, events = events.0, "subscribed");
                }
                MihPeerChange::Refused(request, status) => {
                    let status = status.map_or_else(String::new, |status| status.to_string());
                    tracing::warn!(%peer, %request, status, "refused");
                }
                MihPeerChange::Lost(why) => tracing::warn!(%peer, %why, "the peer does not answer"),
            },
            MihServiceEvent::ClaimRefused(asked) => {
                tracing::warn!(peer = %asked.peer, from = address_text(&asked),
                    "message refused: its identifier belongs to another address");
            }
            MihServiceEvent::AddressReplaced { peer: asked, before } => {
                tracing::info!(peer = %asked.peer, from = address_text(&asked), %before, "the peer has a new address");
            }
            // Anyone can cause these events without limit, so they are logged at debug level. A log line each minute
            // counts them.
            MihServiceEvent::Refused(from) => {
                tracing::debug!(%from, "message dropped: not from an allowed network")
            }
        }
    }
}

/// A client on a driver.
struct MihClientRole<F> {
    client: MihClient,
    event_handler: F,
    finished: bool,
}

impl<F: FnMut(client::MihClientEvent)> DriverRole for MihClientRole<F> {
    type Machine = MihClient;
    type Message = client::MihClientCommand;

    fn machine(&mut self) -> &mut MihClient {
        &mut self.client
    }
    fn on_event(&mut self, _: Instant, event: client::MihClientEvent) {
        self.finished |= event == client::MihClientEvent::Finished;
        (self.event_handler)(event);
    }
    fn on_job(&mut self, _: Instant, job: JobRequest<NoJob>) {
        match job.job {}
    }
    fn on_message(&mut self, now: Instant, command: client::MihClientCommand) {
        // The result is ignored: a client accepts the command to end in any state.
        let _ = self.client.handle_command(now, command);
    }
    fn is_stopped(&self) -> bool {
        self.finished
    }
}

/// Runs a client of another function, from this address or one that the system chooses. `said` receives the events. A
/// signal ends a client that follows events.
///
/// # Errors
/// Sockets are unavailable.
pub fn run_client(
    mut config: client::MihClientConfig,
    local: Option<IpAddr>,
    said: impl FnMut(client::MihClientEvent),
) -> io::Result<()> {
    let any: IpAddr = match config.route.remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut sockets = DriverSockets::default();
    if config.route.transport == TransportProtocol::Udp {
        let own = local.unwrap_or(any);
        let socket =
            bind_udp(SocketAddr::new(own, 0), &SocketOptions { shared: false, ..SocketOptions::default() })?;
        sockets.udp = number_sockets([socket]);
        config.mih.locals = vec![own];
        config.route.local = Some(own);
    } else {
        config.route.local = local;
    }
    let timing = config.mih.timing;
    let patience = timing.response.unwrap_or(timing.retransmission);
    sockets.settings.connect_timeout = StdDuration::from_nanos(patience.as_nanos());
    let clock = SystemClock::start();
    let mut client = MihClient::new(config, system_rng());
    let begun = client.handle_command(clock.now(), client::MihClientCommand::Start);
    begun.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = SignalListener::start_listening()?;
        let (driver, mailbox) =
            Driver::new(MihClientRole { client, event_handler: said, finished: false }, sockets, clock);
        let mut run = std::pin::pin!(driver.run());
        loop {
            tokio::select! {
                ended = &mut run => return ended.map(drop),
                told = signals.next() => leave_on_end_signal(told, &mailbox),
            }
        }
    })
}

fn leave_on_end_signal(told: SignalEvent, mailbox: &Mailbox<client::MihClientCommand>) {
    if told == SignalEvent::End {
        mailbox.send(client::MihClientCommand::Leave);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_config::EmptyConfigEnvironment;

    #[test]
    fn a_reload_tells_what_waits_for_a_start() {
        let read = |text| config::parse("mih.toml", text, &EmptyConfigEnvironment).unwrap();
        let first = read("id = \"a.example\"\n").file;
        assert!(reload_notices(&first, &read("id = \"a.example\"\n[timers]\nretry = \"1 s\"\n")).is_empty());
        let told = reload_notices(&first, &read("[listen]\nudp = []\n[limits]\ntransactions = 9\n"));
        let keys: Vec<_> = told.iter().map(|notice| notice.split(' ').next().unwrap()).collect();
        assert_eq!(keys, ["id", "listen", "limits.transactions"]);
    }

    /// Returns the log of these events, which all arrive at once.
    fn logged_text(log: &mut EventLog, events: impl IntoIterator<Item = MihServiceEvent>) -> String {
        #[derive(Clone, Default)]
        struct CapturedLines(Arc<Mutex<Vec<u8>>>);
        impl io::Write for CapturedLines {
            fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(octets);
                Ok(octets.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let lines = CapturedLines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let now = StdInstant::now();
        tracing::subscriber::with_default(subscriber, || {
            events.into_iter().for_each(|event| log.write_event(now, event));
        });
        let octets = lines.0.lock().unwrap();
        String::from_utf8(octets.clone()).unwrap()
    }

    /// A rate limit covers all messages of others, whatever their claimed identifier. A peer's lines remain visible
    /// among those of strangers.
    #[test]
    fn others_do_not_fill_the_log() {
        let asked = |name: &str, is_configured| {
            let address = Some("192.0.2.66:4551".parse().unwrap());
            RequestingPeer { peer: MihfId::new(name).unwrap(), address, is_configured }
        };
        let link = usher_mih::LinkId::from_mac(usher_mih::LinkType::Ethernet, [2, 0, 0, 0, 0, 1]);
        let long = usher_mih::Tlv::LinkIdentifierList(vec![link; 3000]);
        let message = MihfMessage::new(usher_mih::MessageId::LINK_UP_INDICATION, [long]);
        let told = |from: RequestingPeer| MihServiceEvent::Indication { from, message: message.clone() };
        let mut log = EventLog::default();
        let strangers = (0..20_000).map(|n| told(asked(&format!("x{n}"), false)));
        assert_eq!(logged_text(&mut log, strangers), "", "nobody asked them");
        let (request, status) =
            (usher_mih::MessageId::LINK_ACTIONS_REQUEST, usher_mih::Status::AuthorizationFailure);
        let strangers = (0..20_000).flat_map(|n| {
            let asked = asked(&format!("x{n}"), false);
            let answered = MihServiceEvent::Answered { peer: asked.clone(), request, status };
            [MihServiceEvent::Registered(asked.clone()), answered, MihServiceEvent::Deregistered(asked)]
        });
        assert_eq!(logged_text(&mut log, strangers).lines().count(), 60);
        let peer = logged_text(&mut log, (0..1000).map(|_| told(asked("mn", true))));
        assert_eq!(peer.lines().count(), 60);
        assert!(
            peer.contains("indication received peer=mn") && peer.lines().all(|line| line.len() < 700),
            "{peer}"
        );
    }

    #[test]
    fn watched_values_are_read_periodically_until_the_listener_ends() {
        let file = std::env::temp_dir().join(format!("usher-watch-{}", std::process::id()));
        std::fs::write(&file, "-71.5\n").unwrap();
        let text = format!(
            "[[interface]]\nname = \"w0\"\nwatch = {{ file = {:?}, below = -75, interval = \"10 ms\" }}\n\
             [[interface]]\nname = \"w1\"\nwatch = {{ file = \"/nowhere\", below = 0 }}\n",
            file.display().to_string()
        );
        let interfaces = config::parse("mih.toml", &text, &EmptyConfigEnvironment).unwrap().interfaces;
        let mut heard = Vec::new();
        poll_watched_values(&Mutex::new(interfaces), |name, value| {
            heard.push((name, value));
            heard.len() < 3
        });
        std::fs::remove_file(&file).unwrap();
        assert_eq!(heard, vec![("w0".to_owned(), -71.5); 3]);
    }
}

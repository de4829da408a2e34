//! Starts and stops the threads of a server.

use crate::assembly::AssembledServerParts;
use crate::clock::wall_time;
use crate::drops::PacketDropMonitor;
use crate::embedded::EmbeddedServerClient;
use crate::error::ServeError;
use crate::homes::HomeServerHealth;
use crate::installation::{self, InstallationError, ServerInstallation};
use crate::mailbox::{ShardMailboxes, ShardMessage};
use crate::ready::CachedStoreCheck;
use crate::role::AaaRole;
use crate::running::RunningServer;
use crate::shards::{self, BoundSockets, UpstreamServers};
use crate::stats::SharedHistogram;
use crate::status::CertificateCheckConfig;
use crate::workers::{SharedUserCache, WorkerContext, WorkerPool};
use crate::{config, control, fetched, ledger, lists, metrics};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Monotonic};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;
use usher_aaa::InterShardKey;
use usher_aaa::ledger::Ledger;
use usher_aaa::store::StoreError;
use usher_aaa_config::row_reader;
use usher_core::SecureRng;
use usher_crypto::tls::SharedWallClock;
use usher_host::{SignalEvent, SignalListener, log, notify, protect_memory};
use usher_live::{Driver, DriverCounters, Shard, SystemClock};

/// Maximum time for logins under way to finish at a shutdown.
const DRAIN: Duration = Duration::from_secs(3);

/// Runs a server until SIGTERM or SIGINT. `say` gets messages for people at the start.
///
/// # Errors
/// The server could not start.
pub fn run_server(config: Option<&Path>, say: &mut dyn FnMut(&str)) -> Result<(), ServeError> {
    protect_memory().map_err(|error| ServeError::System { what: "cannot switch core dumps off", error })?;
    let place = ServerInstallation::from_config(config)?;
    place.create_state_dir()?;
    let log = log::start_logging(place.loaded.file.log);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ServeError::System { what: "cannot start the asynchronous runtime", error })?;
    let begun = StartedServer::start_threads(place, config, None)?;
    if begun.running.current_installation().first {
        say(&first_start_instructions(&begun.running.current_installation()));
    }
    let ended = begun.run_until_stopped(runtime, ServerSignals::listen_for_process_signals);
    drop(log);
    ended
}

/// Returns the instructions for a first start without a configuration.
fn first_start_instructions(place: &ServerInstallation) -> String {
    let secret = place.generated_secret_path().display().to_string();
    format!(
        "There is no configuration ({}): serving 127.0.0.1 and ::1, ports 1812 and 1813.\n\
         The shared secret is in {secret}; users are in {}.\n\
         Next:\n\
         \x20 usher aaa user add ann                     add a user (asks for the password)\n\
         \x20 usher aaa test ann                         log in, step by step\n\
         \x20 radtest ann PASSWORD 127.0.0.1 0 \"$(cat {secret})\"\n\
         \x20 usher aaa client add 192.0.2.0/24          add a client, then its addresses to [listen] in {}\n\
         \x20 usher aaa cert init                        make certificates for EAP-TLS, PEAP and TTLS\n",
        config::DEFAULT_PATH,
        place.database_path().display(),
        config::DEFAULT_PATH,
    )
}

/// A shard's thread.
type ShardThread = Shard<std::io::Result<()>>;

/// The source of reload and stop signals.
pub(crate) enum ServerSignals {
    /// Signals of this process.
    Signals(SignalListener),
    /// The program that embeds this server.
    Embedded(UnboundedReceiver<SignalEvent>),
}

impl ServerSignals {
    /// Listens to the signals of the process.
    fn listen_for_process_signals() -> Result<Self, ServeError> {
        let signals = SignalListener::start_listening();
        signals
            .map(Self::Signals)
            .map_err(|error| ServeError::System { what: "cannot listen for signals", error })
    }
    async fn next(&mut self) -> SignalEvent {
        match self {
            Self::Signals(signals) => signals.next().await,
            // If the channel is closed, the embedding program has ended, and so does the server.
            Self::Embedded(told) => told.recv().await.unwrap_or(SignalEvent::End),
        }
    }
    /// Notifies systemd, if this process is the service.
    fn notify_systemd(&self, tell: fn()) {
        if matches!(self, Self::Signals(_)) {
            tell();
        }
    }
}

/// A server whose threads run.
pub(crate) struct StartedServer {
    running: Arc<RunningServer>,
    shards: Vec<ShardThread>,
    ledger: Option<JoinHandle<()>>,
}

impl StartedServer {
    /// Starts the threads of a server. `within` is the client of an embedded server.
    pub(crate) fn start_threads(
        mut place: ServerInstallation,
        config: Option<&Path>,
        within: Option<EmbeddedServerClient>,
    ) -> Result<Self, ServeError> {
        if let Some(within) = &within {
            within.add_embedded_client(&mut place.loaded);
        }
        let system = |what| move |error| ServeError::System { what, error };
        let file = &place.loaded.file.clone();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let count = file.shards.map_or(cores, usize::from).clamp(1, 256);
        let clock = SystemClock::start();
        let wall_clock = SharedWallClock::from_time(wall_time());
        let mut rng =
            SecureRng::from_seed(installation::random_octets().map_err(system("cannot get random numbers"))?);
        let key = InterShardKey::new(&rng.random_array());
        let control = place.control_socket();
        usher_host::control::ensure_control_socket_unused(&control)
            .map_err(system("cannot open the control socket"))?;
        // The shards share their addresses. Another server could share them too and take half of the requests, so
        // the addresses must be free now.
        drop(shards::bind_sockets(file, false)?);
        let bound: Vec<BoundSockets> =
            (0..count).map(|_| shards::bind_sockets(file, true)).collect::<Result<_, _>>()?;
        let mut admin = place.connect_server_store(false).map_err(InstallationError::from)?;
        let (rows, owed) = match admin.list_clients() {
            Ok(rows) => (rows, false),
            Err(error @ (StoreError::Refused(_) | StoreError::Unstorable(_))) => {
                return Err(InstallationError::from(error).into());
            }
            Err(error @ StoreError::Unavailable(_)) => {
                tracing::error!(%error, "the store does not answer: the server starts without its clients, users and \
                                         sessions");
                (Vec::new(), true)
            }
        };
        fetched::fetch_missing_revocation_lists(&mut place.loaded, &place.state_dir);
        let own = place.own_secrets(true)?;
        let assembly =
            AssembledServerParts::from_installation(&place, (&rows, &own), count, &wall_clock, &mut rng)
                .map_err(ServeError::Config)?;

        let mailboxes = ShardMailboxes::default();
        let ledger = Ledger::new(usher_aaa_config::ledger_config(&place.loaded, rng.next_u64()));
        let store = place.connect_server_store(!owed).map_err(InstallationError::from)?;
        let (ledger, ledger_thread) =
            ledger::start_ledger(ledger, store, clock, mailboxes.clone()).map_err(InstallationError::from)?;
        // Lookups of users reconnect without end: the cache serves known users while the database refuses connections.
        let stores =
            (0..file.users.threads).map(|_| place.connect_server_store(true)).collect::<Result<Vec<_>, _>>();
        let inline = Arc::new(RwLock::new(assembly.built.inline.clone()));
        let lookups = Arc::new(SharedHistogram::default());
        let status =
            Arc::new(RwLock::new(CertificateCheckConfig::from_config(&place.loaded, assembly.tls.as_ref())));
        let rows_read = Arc::new(RwLock::new(row_reader(&place.loaded)));
        let (chains, shown) = std::sync::mpsc::sync_channel(lists::CHAINS);
        let known = Arc::new(SharedUserCache::new(&file.users, clock, &mut rng));
        let shared = WorkerContext {
            mailboxes: mailboxes.clone(),
            inline: inline.clone(),
            user_cache: known.clone(),
            reading: rows_read.clone(),
            left_out: Arc::default(),
            latency: lookups.clone(),
            status: status.clone(),
            chains,
        };
        let (workers, _) = WorkerPool::start_workers(shared, stores.map_err(InstallationError::from)?);

        let counters = Arc::new(RwLock::new(Vec::new()));
        let listeners = shards::tls_servers(assembly.tls.as_deref());
        let upstreams = UpstreamServers::from_file(file, assembly.tls.as_deref());
        let known_homes = HomeServerHealth::new(upstreams.peers().clone());
        let outgoing = Arc::new(RwLock::new(upstreams));
        let mut threads = Vec::new();
        let mut boxes = Vec::new();
        for (number, bound) in bound.into_iter().enumerate() {
            let number = u16::try_from(number).unwrap_or(u16::MAX);
            let server = assembly.build_server(number, &key, &mut rng)?;
            let sockets = bound.into_sockets(&outgoing, listeners.first());
            let mut node = AaaRole {
                server,
                number,
                key: key.clone(),
                clock,
                mailboxes: mailboxes.clone(),
                workers: workers.clone(),
                ledger: ledger.clone(),
                clients: Arc::default(),
                driver: counters.clone(),
                homes: known_homes.clone(),
                failures: file.limits.failures > 0,
                logins: file.accounting.logins,
                state: crate::role::ShardState::default(),
            };
            node.replace_client_directory(assembly.built.clients.clone());
            let (driver, mailbox) = Driver::new(node, sockets, clock);
            boxes.push(mailbox);
            add_counters(&counters, driver.counters());
            threads.push((number, driver));
        }
        mailboxes.set_shard_mailboxes(boxes);
        let mut shards = Vec::new();
        for (number, driver) in threads {
            let run = async move || driver.run().await.map(drop);
            let shard = usher_live::spawn_shard(&format!("usher-{number}"), None, run)
                .map_err(|e| ServeError::Config(e.to_string()))?;
            shards.push(shard);
        }
        let AssembledServerParts { tls, built } = assembly;
        let running = RunningServer {
            mailboxes,
            ledger,
            workers,
            tls: RwLock::new(tls),
            lookups,
            started_at: Monotonic::now(),
            reloads: Mutex::new((0, 0)),
            lists: Mutex::default(),
            shards: count,
            clock,
            start: place.clone(),
            installation: RwLock::new(place),
            admin: Mutex::new(admin),
            store_answer: CachedStoreCheck::default(),
            inline,
            user_cache: known,
            status,
            reading: rows_read,
            listeners,
            outgoing,
            wall: wall_clock,
            config_path: config.map(Path::to_owned),
            embedding_client: within,
            control,
            key,
            reloading: Mutex::new(()),
            built: Mutex::new(built),
            rows: Mutex::new(rows),
            generation: AtomicU64::new(0),
        };
        let running = Arc::new(running);
        lists::start_list_watcher(&running, shown);
        if owed {
            let running = running.clone();
            // If this thread cannot start, the missing clients are read at the next reload.
            drop(
                std::thread::Builder::new()
                    .name("usher-clients".to_owned())
                    .spawn(move || running.wait_for_store_clients()),
            );
        }
        Ok(Self { running, shards, ledger: ledger_thread })
    }

    /// Runs on this thread until a stop signal.
    pub(crate) fn run_until_stopped(
        self,
        runtime: Runtime,
        listens: impl FnOnce() -> Result<ServerSignals, ServeError>,
    ) -> Result<(), ServeError> {
        let ended = runtime.block_on(serve_until_signal(&self.running, &self.shards, listens));
        // A reload that waits must not delay the shutdown.
        runtime.shutdown_background();
        self.shut_down(ended)
    }

    /// Shuts down: answers pending requests, disconnects Diameter peers, and writes the ledger's changes.
    fn shut_down(self, ended: Result<(), ServeError>) -> Result<(), ServeError> {
        if self.running.embedding_client.is_none() {
            notify::notify_stopping();
        }
        tracing::info!("stopping: the server takes no new logins");
        let until = Monotonic::now() + DRAIN;
        while self.shards.iter().any(|s| !s.is_finished()) {
            let over = Monotonic::now() >= until;
            for mailbox in self.running.mailboxes.as_slice() {
                mailbox.send(if over { ShardMessage::Stop } else { ShardMessage::Drain });
            }
            std::thread::sleep(Duration::from_millis(20));
            if Monotonic::now() >= until + DRAIN {
                tracing::error!("a shard does not stop: the server stops without it");
                break;
            }
        }
        self.running.ledger.request_stop();
        if let Some(ledger) = self.ledger
            && ledger.join().is_err()
        {
            tracing::error!("the ledger's thread failed");
        }
        if ended.is_ok() {
            // An error is ignored: the file may have been removed already.
            let _ = std::fs::remove_file(&self.running.control);
        }
        tracing::info!("stopped");
        ended
    }
}

fn add_counters(all: &RwLock<Vec<Arc<DriverCounters>>>, one: Arc<DriverCounters>) {
    all.write().unwrap_or_else(PoisonError::into_inner).push(one);
}

/// Serves control socket and metrics until a stop signal.
async fn serve_until_signal(
    running: &Arc<RunningServer>,
    shards: &[ShardThread],
    listens: impl FnOnce() -> Result<ServerSignals, ServeError>,
) -> Result<(), ServeError> {
    let system = |what| move |error| ServeError::System { what, error };
    let mut listens = listens()?;
    let place = running.current_installation();
    control::start_control(running, &running.control).map_err(system("cannot open the control socket"))?;
    if let Some(address) = place.loaded.file.metrics.listen {
        let bound = usher_host::metrics::start_metrics(
            address,
            Arc::new(metrics::RunningServerProbe(Arc::downgrade(running))),
        );
        bound.map_err(|error| ServeError::Listen { address, what: "metrics", error })?;
    }
    // Signals, the control socket and metrics work from here on, before the server reports readiness.
    match listens {
        ServerSignals::Signals(_) => {
            tracing::info!(shards = shards.len(), version = env!("CARGO_PKG_VERSION"), "started");
        }
        ServerSignals::Embedded(_) => {
            tracing::info!(shards = shards.len(), "the embedded AAA server has started")
        }
    }
    listens.notify_systemd(notify::notify_ready);
    let mut drops = PacketDropMonitor::default();
    let mut epoch = running.clock.wall_epoch();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut reload: Option<tokio::task::JoinHandle<()>> = None;
    let mut again = false;
    loop {
        // The result of the reload is ignored here, because the reload itself logs it.
        let reload_now = |listens: &ServerSignals| {
            listens.notify_systemd(notify::notify_reloading);
            let running = running.clone();
            Some(tokio::task::spawn_blocking(move || drop(running.reload_config())))
        };
        tokio::select! {
            _ = tick.tick() => {
                running.update_certificate_clock(&mut epoch);
                if shards.iter().any(Shard::is_finished) {
                    // The service manager restarts the server.
                    return Err(ServeError::Config("a shard's thread has failed: the server stops".to_owned()));
                }
                if drops.is_due() {
                    let asked = running.clone();
                    // Collecting a snapshot blocks until the shards reply, so it must not run on the thread that
                    // handles signals.
                    if let Ok(all) = tokio::task::spawn_blocking(move || asked.mailboxes.collect_snapshot()).await {
                        drops.log_new_drops(&all);
                    }
                }
            }
            told = listens.next() => match told {
                SignalEvent::End => break,
                SignalEvent::Reload if reload.is_some() => again = true,
                SignalEvent::Reload => reload = reload_now(&listens),
            },
            // A reload that panics has ended too.
            _ = async { reload.as_mut()?.await.ok() }, if reload.is_some() => {
                listens.notify_systemd(notify::notify_ready);
                // A signal during a reload starts another one, because it may concern a file that was already read.
                reload = if std::mem::take(&mut again) { reload_now(&listens) } else { None };
            }
        }
    }
    if let ServerSignals::Signals(signals) = listens {
        signals.exit_on_next_signal();
    }
    Ok(())
}

//! Starts and stops the threads of a server.

use crate::assembly::AssembledServerParts;
use crate::drops::PacketDropMonitor;
use crate::embedded::EmbeddedServerClient;
use crate::error::{ServeError, system_error};
use crate::homes::HomeServerHealth;
use crate::installation::{InstallationError, ServerInstallation};
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
use usher_aaa::InterShardKey;
use usher_aaa::ledger::Ledger;
use usher_aaa::store::StoreError;
use usher_aaa_config::row_reader;
use usher_crypto::tls::SharedWallClock;
use usher_live::{Driver, DriverCounters, Shard, SystemClock};
use usher_service::setup::{secure_rng, wall_time};
use usher_service::{
    ServiceSignals, ServiceTasks, StopReason, log, protect_memory, run_until_stopped, start_runtime,
};

/// Maximum time for logins under way to finish at a shutdown.
const DRAIN: Duration = Duration::from_secs(3);

/// Runs a server until SIGTERM or SIGINT. `say` gets messages for people at the start.
///
/// # Errors
/// The server could not start.
pub fn run_server(config: Option<&Path>, say: &mut dyn FnMut(&str)) -> Result<(), ServeError> {
    protect_memory().map_err(system_error("cannot switch core dumps off"))?;
    let place = ServerInstallation::from_config(config)?;
    place.create_state_dir()?;
    let log = log::start_logging(place.loaded.file.log);
    let runtime = start_runtime()?;
    let begun = StartedServer::start_threads(place, config, None)?;
    if begun.running.current_installation().first {
        say(&first_start_instructions(&begun.running.current_installation()));
    }
    let ended = begun.run_until_stopped(runtime, ServiceSignals::listen_for_process_signals);
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

/// A server whose threads run.
pub(crate) struct StartedServer {
    running: Arc<RunningServer>,
    shards: Vec<ShardThread>,
    ledger: JoinHandle<()>,
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
        let file = &place.loaded.file.clone();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let count = file.shards.map_or(cores, usize::from).clamp(1, 256);
        let clock = SystemClock::start();
        let wall_clock = SharedWallClock::from_time(wall_time());
        let mut rng = secure_rng()?;
        let key = InterShardKey::new(&rng.random_array());
        let control = place.control_socket();
        usher_service::control::ensure_control_socket_unused(&control)
            .map_err(system_error("cannot open the control socket"))?;
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
        let ledger_thread = ledger_thread.map_err(system_error("cannot start the ledger's thread"))?;
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
        let workers = WorkerPool::start_workers(shared, stores.map_err(InstallationError::from)?)?;

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
        mailboxes.set_mailboxes(boxes);
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
        signals: impl FnOnce() -> Result<ServiceSignals, usher_service::ServeError>,
    ) -> Result<(), ServeError> {
        let running = self.running.clone();
        let mut epoch = running.clock.wall_epoch();
        let drops = Arc::new(Mutex::new(PacketDropMonitor::default()));
        let tick = move || {
            running.update_certificate_clock(&mut epoch);
            // A check that still waits for a shard holds the lock: the next one waits for its turn.
            if drops.try_lock().is_ok_and(|mut drops| drops.is_due()) {
                let (running, drops) = (running.clone(), drops.clone());
                // Collecting a snapshot blocks until the shards reply, so it must not run on the thread that handles
                // signals.
                drop(tokio::task::spawn_blocking(move || {
                    let mut drops = drops.lock().unwrap_or_else(PoisonError::into_inner);
                    drops.log_new_drops(&running.mailboxes.collect_snapshot());
                }));
            }
        };
        let reloaded = self.running.clone();
        let tasks = ServiceTasks {
            // The result is ignored here, because the reload itself logs it.
            reload: Box::new(move || drop(reloaded.reload_config())),
            tick: Box::new(tick),
        };
        let started = || self.start_serving_requests();
        let ended = match run_until_stopped(runtime, signals, &self.shards, started, tasks) {
            Ok(StopReason::Signal) => Ok(()),
            // The service manager restarts the server.
            Ok(StopReason::ShardEnded) => {
                Err(ServeError::Config("a shard's thread has failed: the server stops".to_owned()))
            }
            Err(error) => Err(error),
        };
        self.shut_down(ended)
    }

    /// Starts control socket and metrics.
    fn start_serving_requests(&self) -> Result<(), ServeError> {
        let running = &self.running;
        control::start_control(running, &running.control)
            .map_err(system_error("cannot open the control socket"))?;
        if let Some(address) = running.current_installation().loaded.file.metrics.listen {
            let probe = Arc::new(metrics::RunningServerProbe(Arc::downgrade(running)));
            usher_service::metrics::start_metrics(address, probe)
                .map_err(|error| usher_service::ServeError::Listen { address, what: "metrics", error })?;
        }
        let shards = self.shards.len();
        if running.embedding_client.is_none() {
            tracing::info!(shards, version = env!("CARGO_PKG_VERSION"), "started");
        } else {
            tracing::info!(shards, "the embedded AAA server has started");
        }
        Ok(())
    }

    /// Shuts down: answers pending requests, disconnects Diameter peers, and writes the ledger's changes.
    fn shut_down(self, ended: Result<(), ServeError>) -> Result<(), ServeError> {
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
        if self.ledger.join().is_err() {
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

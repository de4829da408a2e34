//! The AAA server on a simulated host, with its store and workers: the service of `usher aaa serve` by its
//! configuration, or a workload's own server.

use super::error::ScenarioRunError;
use super::helpers::WorkerPool;
use super::machine::{HostAddress, MachineEventOrJob, MachineSockets};
use super::plan::NetworkPlan;
use super::report::RoleReport;
use super::role::HostRole;
use super::topology::NetworkTopology;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use usher_aaa::service::{self, CertificateChecker, JobRunnerParts, UserRowReader};
use usher_aaa::store::{MemoryStore, Store, UserRows};
use usher_aaa::{
    AaaServer, AaaServerConfig, AaaServerEvent, AaaServerJob, IdentityKey, User, UserCacheConfig,
    UserDirectory, UserSource, work,
};
use usher_aaa_config::{AaaConfigBuildInputs, ListenTransport, LoadedAaaConfig};
use usher_core::timer::earliest_deadline;
use usher_core::{Instant, Machine, Seed, SimulationRng, WallTime, WorkLabel, WorkRecord};
use usher_crypto::tls::{KeyLog, SharedWallClock};
use usher_radius::dictionary::RadiusDictionary;
use usher_scenario::model::CpuSettings;
use usher_scenario::services::HostService;
use usher_sim::{AppContext, AppDelivery, HostId};

/// An AAA server on its host.
#[derive(Debug)]
pub struct ServerRole {
    endpoint: MachineSockets,
    config: AaaServerConfig,
    seed: Seed,
    /// Number of starts of its host.
    boots: u64,
    server: AaaServer,
    /// Runs the server's jobs; restarts with the host.
    service: Box<service::JobRunner<MemoryStore>>,
    /// The workers that finish jobs after a delay.
    helpers: WorkerPool<usher_core::JobRequest<AaaServerJob>>,
    /// Kinds of worker jobs that also load this host's processor.
    processor_labels: Vec<WorkLabel>,
}

impl ServerRole {
    /// Creates a server that starts with empty state whenever its host starts.
    pub(super) fn new(
        endpoint: MachineSockets,
        config: AaaServerConfig,
        (parts, helpers): (JobRunnerParts<MemoryStore>, WorkerPool<usher_core::JobRequest<AaaServerJob>>),
        seed: Seed,
    ) -> Result<Self, String> {
        let server = boot_server(&config, seed, 0)?;
        let service = Box::new(service::JobRunner::new(parts, &mut seed.derive_secure_rng("aaa.service", 0)));
        Ok(Self { endpoint, config, seed, boots: 0, server, service, helpers, processor_labels: Vec::new() })
    }

    /// Processes a delivery of the simulator.
    pub fn process_delivery<R>(&mut self, ctx: &mut AppContext<'_, R>, delivery: AppDelivery) {
        let now = ctx.now();
        match delivery {
            AppDelivery::Start => {
                self.boots += 1;
                // This configuration is valid, because the first start accepted it.
                if self.boots > 1
                    && let Ok(server) = boot_server(&self.config, self.seed, self.boots)
                {
                    self.server = server;
                    self.service.restart(now);
                    self.helpers.discard_worker_jobs();
                }
            }
            AppDelivery::Timer => self.finish_due_jobs(now, ctx.wall_time()),
            _ => {}
        }
        self.endpoint.deliver_to_machine(ctx, &mut self.server, &delivery);
        let (service, helpers, aside) = (&mut self.service, &mut self.helpers, &self.processor_labels);
        let next = self.endpoint.drain_outputs(ctx, &mut self.server, |ctx, server, word| {
            let (now, wall) = (ctx.now(), ctx.wall_time());
            match word {
                MachineEventOrJob::Event(event) => {
                    for command in service.handle_event(now, wall, &event) {
                        let _ = server.handle_command(now, command);
                    }
                    if let AaaServerEvent::Accepted(login)
                    | AaaServerEvent::Rejected(login)
                    | AaaServerEvent::Undecided(login) = event
                    {
                        server.recycle_request(login.request);
                    }
                }
                MachineEventOrJob::Job(job) => {
                    let label = service.work_label(&job.job);
                    if let Some(label) = label.filter(|label| aside.contains(label)) {
                        ctx.charge_work(WorkRecord { label, units: 1 });
                    }
                    if let Some(job) = helpers.submit_worker_job(now, label, job) {
                        // Work that no worker does loads this host's processor.
                        label.into_iter().for_each(|label| ctx.charge_work(WorkRecord { label, units: 1 }));
                        // An error is ignored: the request may be gone with its connection.
                        let _ = server.handle_command(now, service.run_job(now, wall, job));
                    }
                }
            }
        });
        ctx.set_timer(earliest_deadline([
            next,
            self.helpers.next_job_completion(),
            self.service.poll_timeout(),
        ]));
    }

    /// Passes the results of finished jobs to the server.
    fn finish_due_jobs(&mut self, now: Instant, wall: WallTime) {
        while let Some(jobs) = self.helpers.pop_due(now) {
            for job in jobs {
                let answer = self.service.run_job(now, wall, job);
                let _ = self.server.handle_command(now, answer);
            }
        }
        if self.service.poll_timeout().is_some_and(|at| at <= now) {
            self.service.handle_timeout(now);
        }
    }
}

fn boot_server(config: &AaaServerConfig, seed: Seed, boots: u64) -> Result<AaaServer, String> {
    AaaServer::new(config.clone(), seed.derive_secure_rng("aaa.server.boot", boots))
        .map_err(|e| e.to_string())
}

/// All runs share it: parsing takes longer than setting up a run.
static DICTIONARY: LazyLock<Arc<RadiusDictionary>> = LazyLock::new(|| Arc::new(RadiusDictionary::builtin()));

/// Returns the job runner and workers of a server that knows its users itself.
pub(super) fn build_standalone_server_parts(
    seed: Seed,
) -> (JobRunnerParts<MemoryStore>, WorkerPool<usher_core::JobRequest<AaaServerJob>>) {
    let parts = JobRunnerParts {
        inline: Arc::default(),
        reading: UserRowReader { dictionary: DICTIONARY.clone(), leave_out: false },
        cache_config: UserCacheConfig::default(),
        ledger: usher_aaa::ledger::LedgerConfig::default(),
        store: MemoryStore::new(),
        certificates: None,
        logins: false,
    };
    (parts, WorkerPool::new(seed.derive_rng("helpers", 0)))
}

impl HostRole for ServerRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        Self::process_delivery(self, ctx, delivery);
    }
}

/// Places the AAA services of a scenario on their hosts. Each server's store has `users`.
pub(super) fn place_aaa_services(
    plan: &mut NetworkPlan<'_>,
    topology: &NetworkTopology,
    key_log: &KeyLog,
    users: impl Fn(&LoadedAaaConfig) -> Vec<(String, UserRows)>,
) -> Result<(), ScenarioRunError> {
    for (name, services) in plan.scenario.services.iter() {
        for service in services {
            let HostService::Aaa(loaded) = service else { continue };
            let users = users(loaded);
            for &host in topology.host_group(name)? {
                place_aaa_service(plan, (name, host), loaded, key_log, &users)?;
            }
        }
    }
    Ok(())
}

fn place_aaa_service(
    plan: &mut NetworkPlan<'_>,
    (name, host): (&str, HostId),
    loaded: &LoadedAaaConfig,
    key_log: &KeyLog,
    users: &[(String, UserRows)],
) -> Result<(), ScenarioRunError> {
    let made = AaaServiceInputs {
        seed: plan.seed.derive_seed("aaa.service", u64::from(host.0)),
        wall: plan.scenario.run.date.wall_time(),
        cpu: plan.scenario.hosts.get(name).and_then(|host| host.cpu.as_ref()),
        users,
        key_log,
    };
    let bound = SimulatedAaaService::new(loaded, plan.host_address(host), &made)
        .map_err(|why| ScenarioRunError::Role(format!("the service of host \"{name}\": {why}")))?;
    let app = plan.add_role(host, bound.role);
    for (port, socket) in bound.udp {
        plan.builder.bind_udp(app, socket, port)?;
    }
    for port in bound.tcp {
        plan.builder.listen_tcp(app, port)?;
    }
    for port in bound.sctp {
        plan.builder.listen_sctp(app, port)?;
    }
    Ok(())
}

/// The surroundings of an AAA service on a simulated host, beside its configuration.
#[derive(Clone, Copy, Debug)]
pub struct AaaServiceInputs<'a> {
    /// The seed of all its random numbers.
    pub seed: Seed,
    /// The wall time for checking certificates.
    pub wall: WallTime,
    /// The durations of worker jobs.
    pub cpu: Option<&'a CpuSettings>,
    /// The users of its store, by name.
    pub users: &'a [(String, UserRows)],
    /// Receives the TLS secrets.
    pub key_log: &'a KeyLog,
}

/// An AAA service as the daemon runs it, on a simulated host, with its ports.
#[derive(Debug)]
pub struct SimulatedAaaService {
    /// The service.
    pub role: ServerRole,
    /// UDP ports, each with the service's number of its socket.
    pub udp: BTreeMap<u16, u32>,
    /// TCP ports.
    pub tcp: BTreeSet<u16>,
    /// SCTP ports.
    pub sctp: BTreeSet<u16>,
}

impl SimulatedAaaService {
    /// Creates the service of a configuration at the reachable addresses of `[listen]`.
    ///
    /// # Errors
    /// A sentence with the reason why it cannot serve.
    pub fn new(
        loaded: &LoadedAaaConfig,
        at: HostAddress,
        made: &AaaServiceInputs<'_>,
    ) -> Result<Self, String> {
        let (file, seed) = (&loaded.file, made.seed);
        let clock = SharedWallClock::from_time(made.wall);
        let tls = usher_aaa_config::tls::load_tls(loaded, &clock, Some(made.key_log))?;
        let mut rng = seed.derive_secure_rng("aaa.config", 0);
        let key = match &loaded.identity_key {
            Some(key) => IdentityKey::new(key.0.as_bytes()),
            None => IdentityKey::new(&rng.random_array::<32>()),
        };
        let with = AaaConfigBuildInputs {
            generated: None,
            rows: &[],
            identity_key: &key,
            tls: tls.as_deref(),
            shards: 1,
        };
        let mut built = usher_aaa_config::build_config(loaded, with, &mut rng)?;
        // Let no costly step wait in the server, because in a study it waits for the simulated processor.
        built.config.max_steps_waiting = 0;
        let mut store = MemoryStore::new();
        if let UserSource::Memory(_) = &built.config.users {
            let mut known = UserDirectory::new(&mut rng);
            for (name, rows) in made.users {
                let user = User::compile(rows, &loaded.dictionary).map_err(|e| e.to_string())?;
                known.insert(name.as_bytes(), user);
            }
            for (name, user) in built.inline.iter() {
                known.insert(name, User::clone(user));
            }
            built.config.users = UserSource::Memory(Arc::new(known));
        } else {
            for (name, rows) in made.users {
                store.put_user(name, rows).map_err(|e| e.to_string())?;
                rows.groups.iter().try_for_each(|g| store.put_group(g)).map_err(|e| e.to_string())?;
            }
        }
        let inside = tls.as_ref().and_then(|tls| tls.outgoing.clone()).map_or_else(BTreeMap::new, |config| {
            let all =
                usher_aaa_config::outgoing_addresses_and_tls(file).into_iter().filter(|(_, inside)| *inside);
            all.map(|(address, _)| (address, config.clone())).collect()
        });
        let (host, addresses) = (at.host, at.addresses.clone());
        let mut endpoint = MachineSockets::new(at).with_outgoing_tls(inside);
        let clients = tls.as_ref().and_then(|tls| tls.clients.clone());
        let (mut udp, mut tcp, mut sctp) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        for binding in usher_aaa_config::listen_bindings(&file.listen) {
            let port = binding.address.port();
            if !addresses.is_reachable_at(host, binding.address.ip()) {
                continue;
            }
            match binding.carrier {
                ListenTransport::Udp(socket) => {
                    udp.entry(port).or_insert_with(|| endpoint.socket_number(socket));
                }
                ListenTransport::Tcp(listener) if tcp.insert(port) => {
                    endpoint.register_listener(port, listener, None)
                }
                // A TLS listener accepts no connections without TLS.
                ListenTransport::Tls(listener) if clients.is_some() && tcp.insert(port) => {
                    endpoint.register_listener(port, listener, clients.clone());
                }
                ListenTransport::Sctp(listener) if sctp.insert(port) => {
                    // A port belongs to one listener, with TLS if its connections use TLS.
                    if !tcp.contains(&port) {
                        endpoint.register_listener(port, listener, None);
                    }
                }
                ListenTransport::Tcp(_) | ListenTransport::Tls(_) | ListenTransport::Sctp(_) => {}
            }
        }
        let certificates = tls.map(|tls| -> Arc<dyn CertificateChecker> { tls });
        let random = seed.derive_rng("ledger", 0).next_u64();
        let parts = usher_aaa_config::job_runner_parts(loaded, &built, store, certificates, random);
        let helpers = aaa_worker_pool(made, usize::from(file.users.threads));
        let mut role = ServerRole::new(endpoint, built.config, (parts, helpers), seed)?;
        let aside = made.cpu.iter().flat_map(|cpu| cpu.aside.names());
        role.processor_labels = aside.filter_map(usher_scenario::work::find_work_label).collect();
        Ok(Self { role, udp, tcp, sctp })
    }
}

/// Returns the workers for slow jobs: the configured number of store readers, one store writer, and four that query
/// certificate issuers.
fn aaa_worker_pool(
    made: &AaaServiceInputs<'_>,
    threads: usize,
) -> WorkerPool<usher_core::JobRequest<AaaServerJob>> {
    let kinds = [(work::LOOKUP, threads, false), (work::WRITE, 1, true), (work::CERTIFICATE, 4, false)];
    build_worker_pool(made.cpu, made.seed.derive_rng("helpers", 0), &kinds)
}

/// Returns workers of these kinds, each with its number of threads and whether it finishes all waiting jobs together.
/// Kinds without a time in the study have no workers.
pub(super) fn build_worker_pool<J>(
    cpu: Option<&CpuSettings>,
    rng: SimulationRng,
    kinds: &[(WorkLabel, usize, bool)],
) -> WorkerPool<J> {
    let mut helpers = WorkerPool::new(rng);
    for &(label, threads, together) in kinds {
        if let Some(time) = cpu.and_then(|cpu| cpu.service.get(label.name())) {
            helpers.add_worker_kind(label, time.clone(), threads, together);
        }
    }
    helpers
}

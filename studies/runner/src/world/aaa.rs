//! The AAA server on a simulated host, with what stands behind it: the service that `usher aaa serve` runs, of the same
//! configuration, or a server of the workload's own.

use super::error::WorldError;
use super::helpers::Helpers;
use super::machine::{Endpoint, EventOrJob, HostAddress};
use super::plan::Plan;
use super::report::Report;
use super::role::Role;
use super::topology::Topology;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use usher_aaa::service::{self, Certificates, Parts, Reading};
use usher_aaa::store::{Memory, Store, UserRows};
use usher_aaa::{AaaServer, CacheConfig, Config, Event, IdentityKey, Job, User, UserSource, Users, work};
use usher_aaa_config::{Carrier, Loaded, With};
use usher_core::timer::earliest;
use usher_core::{Instant, Machine, Rng, Seed, WallTime, Work, WorkLabel};
use usher_crypto::tls::{KeyLog, WallClock};
use usher_radius::dictionary::Dictionary;
use usher_scenario::model::Cpu;
use usher_scenario::services::Service;
use usher_sim::{Context, Delivery, HostId};

/// The server and where it lives.
#[derive(Debug)]
pub struct ServerRole {
    endpoint: Endpoint,
    config: Config,
    seed: Seed,
    /// How often its host has been switched on.
    boots: u64,
    server: AaaServer,
    /// What it asks, and what is left of that when its host is off.
    service: Box<service::Service<Memory>>,
    /// Who answers that after a while.
    helpers: Helpers<usher_core::Job<Job>>,
    /// Kinds of work that helpers do and that keep this host's processor, too.
    aside: Vec<WorkLabel>,
}

impl ServerRole {
    /// A server that begins anew, with nothing remembered, whenever its host does.
    pub(super) fn new(
        endpoint: Endpoint,
        config: Config,
        (parts, helpers): (Parts<Memory>, Helpers<usher_core::Job<Job>>),
        seed: Seed,
    ) -> Result<Self, String> {
        let server = boot(&config, seed, 0)?;
        let service = Box::new(service::Service::new(parts, &mut seed.secure("aaa.service", 0)));
        Ok(Self { endpoint, config, seed, boots: 0, server, service, helpers, aside: Vec::new() })
    }

    /// Feeds it what the simulator delivers.
    pub fn handle<R>(&mut self, ctx: &mut Context<'_, R>, delivery: Delivery) {
        let now = ctx.now();
        match delivery {
            Delivery::Start => {
                self.boots += 1;
                // What was accepted at first is accepted again.
                if self.boots > 1
                    && let Ok(server) = boot(&self.config, self.seed, self.boots)
                {
                    self.server = server;
                    self.service.restart(now);
                    self.helpers.restart();
                }
            }
            Delivery::Timer => self.expire(now, ctx.wall()),
            _ => {}
        }
        self.endpoint.feed(ctx, &mut self.server, &delivery);
        let (service, helpers, aside) = (&mut self.service, &mut self.helpers, &self.aside);
        let next = self.endpoint.drain(ctx, &mut self.server, |ctx, server, word| {
            let (now, wall) = (ctx.now(), ctx.wall());
            match word {
                EventOrJob::Event(event) => {
                    for command in service.heed(now, wall, &event) {
                        let _ = server.command(now, command);
                    }
                    if let Event::Accepted(login) | Event::Rejected(login) | Event::Undecided(login) = event {
                        server.reuse(login.request);
                    }
                }
                EventOrJob::Job(job) => {
                    let label = service.work(&job.what);
                    if let Some(label) = label.filter(|label| aside.contains(label)) {
                        ctx.work(Work { label, units: 1 });
                    }
                    if let Some(job) = helpers.put(now, label, job) {
                        // What no helper does keeps this host's processor.
                        label.into_iter().for_each(|label| ctx.work(Work { label, units: 1 }));
                        // The request may be gone with its connection: then nobody waits.
                        let _ = server.command(now, service.answer(now, wall, job));
                    }
                }
            }
        });
        ctx.set_timer(earliest([next, self.helpers.next(), self.service.poll_timeout()]));
    }

    /// Has the server hear of what helpers have done by now.
    fn expire(&mut self, now: Instant, wall: WallTime) {
        while let Some(jobs) = self.helpers.pop_due(now) {
            for job in jobs {
                let answer = self.service.answer(now, wall, job);
                let _ = self.server.command(now, answer);
            }
        }
        if self.service.poll_timeout().is_some_and(|at| at <= now) {
            self.service.handle_timeout(now);
        }
    }
}

fn boot(config: &Config, seed: Seed, boots: u64) -> Result<AaaServer, String> {
    AaaServer::new(config.clone(), seed.secure("aaa.server.boot", boots)).map_err(|e| e.to_string())
}

/// It is the same in all runs, and reading it takes longer than setting one up.
static DICTIONARY: LazyLock<Arc<Dictionary>> = LazyLock::new(|| Arc::new(Dictionary::builtin()));

/// What stands behind a server that knows its users itself.
pub(super) fn alone(seed: Seed) -> (Parts<Memory>, Helpers<usher_core::Job<Job>>) {
    let parts = Parts {
        inline: Arc::default(),
        reading: Reading { dictionary: DICTIONARY.clone(), leave_out: false },
        known: CacheConfig::default(),
        ledger: usher_aaa::ledger::LedgerConfig::default(),
        store: Memory::new(),
        certificates: None,
        logins: false,
    };
    (parts, Helpers::new(seed.stream("helpers", 0)))
}

impl Role for ServerRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        Self::handle(self, ctx, delivery);
    }
}

/// Puts the services of a scenario on their hosts. The store of each server has `users`.
pub(super) fn build(
    plan: &mut Plan<'_>,
    topology: &Topology,
    key_log: &KeyLog,
    users: impl Fn(&Loaded) -> Vec<(String, UserRows)>,
) -> Result<(), WorldError> {
    for (name, services) in plan.scenario.services.iter() {
        for service in services {
            let Service::Aaa(loaded) = service else { continue };
            let users = users(loaded);
            for &host in topology.group(name)? {
                serve(plan, (name, host), loaded, key_log, &users)?;
            }
        }
    }
    Ok(())
}

fn serve(
    plan: &mut Plan<'_>,
    (name, host): (&str, HostId),
    loaded: &Loaded,
    key_log: &KeyLog,
    users: &[(String, UserRows)],
) -> Result<(), WorldError> {
    let made = Made {
        seed: plan.seed.derive("aaa.service", u64::from(host.0)),
        wall: plan.scenario.run.date.wall_time(),
        cpu: plan.scenario.hosts.get(name).and_then(|host| host.cpu.as_ref()),
        users,
        key_log,
    };
    let bound = Bound::new(loaded, plan.at(host), &made)
        .map_err(|why| WorldError::Role(format!("the service of host \"{name}\": {why}")))?;
    let app = plan.role(host, bound.role);
    for (port, socket) in bound.udp {
        plan.builder.bind_udp(app, socket, port)?;
    }
    for port in bound.tcp {
        plan.builder.listen(app, port)?;
    }
    for port in bound.sctp {
        plan.builder.listen_sctp(app, port)?;
    }
    Ok(())
}

/// What an AAA service is made with on a simulated host, beside its configuration.
#[derive(Clone, Copy, Debug)]
pub struct Made<'a> {
    /// From which all its chance derives.
    pub seed: Seed,
    /// The wall time by which its certificates are judged.
    pub wall: WallTime,
    /// What its helpers' work takes.
    pub cpu: Option<&'a Cpu>,
    /// Users of its store, by name.
    pub users: &'a [(String, UserRows)],
    /// Where TLS's secrets go.
    pub key_log: &'a KeyLog,
}

/// An AAA service as the daemon runs it, on a simulated host, and the ports that are its own.
#[derive(Debug)]
pub struct Bound {
    /// The service.
    pub role: ServerRole,
    /// Ports of UDP, with its numbers of their sockets.
    pub udp: BTreeMap<u16, u32>,
    /// Ports of TCP.
    pub tcp: BTreeSet<u16>,
    /// Ports of SCTP.
    pub sctp: BTreeSet<u16>,
}

impl Bound {
    /// The service of a configuration, at the addresses of `[listen]` that others reach.
    ///
    /// # Errors
    /// A sentence that says why it cannot serve.
    pub fn new(loaded: &Loaded, at: HostAddress, made: &Made<'_>) -> Result<Self, String> {
        let (file, seed) = (&loaded.file, made.seed);
        let clock = WallClock::at(made.wall);
        let tls = usher_aaa_config::tls::make(loaded, &clock, Some(made.key_log))?;
        let mut rng = seed.secure("aaa.config", 0);
        let key = match &loaded.identity_key {
            Some(key) => IdentityKey::new(key.0.as_bytes()),
            None => IdentityKey::new(&rng.array::<32>()),
        };
        let with = With { generated: None, rows: &[], identity_key: &key, tls: tls.as_deref(), shards: 1 };
        let mut built = usher_aaa_config::build(loaded, with, &mut rng)?;
        // Steps that cost much wait for the processor that the study gives.
        built.config.max_steps_waiting = 0;
        let mut store = Memory::new();
        if let UserSource::Memory(_) = &built.config.users {
            let mut known = Users::new(&mut rng);
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
            let all = usher_aaa_config::connecting(file).into_iter().filter(|(_, inside)| *inside);
            all.map(|(address, _)| (address, config.clone())).collect()
        });
        let (host, addresses) = (at.host, at.addresses.clone());
        let mut endpoint = Endpoint::new(at).connecting(inside);
        let clients = tls.as_ref().and_then(|tls| tls.clients.clone());
        let (mut udp, mut tcp, mut sctp) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        for binding in usher_aaa_config::listening(&file.listen) {
            let port = binding.address.port();
            if !addresses.serves(host, binding.address.ip()) {
                continue;
            }
            match binding.carrier {
                Carrier::Udp(socket) => drop(udp.entry(port).or_insert_with(|| endpoint.socket(socket))),
                Carrier::Tcp(listener) if tcp.insert(port) => endpoint.accept_at(port, listener, None),
                // What is to be inside TLS is not listened on without.
                Carrier::Tls(listener) if clients.is_some() && tcp.insert(port) => {
                    endpoint.accept_at(port, listener, clients.clone());
                }
                Carrier::Sctp(listener) if sctp.insert(port) => {
                    // What is accepted at a port is of one listener, and inside TLS where its connections are.
                    if !tcp.contains(&port) {
                        endpoint.accept_at(port, listener, None);
                    }
                }
                Carrier::Tcp(_) | Carrier::Tls(_) | Carrier::Sctp(_) => {}
            }
        }
        let certificates = tls.map(|tls| -> Arc<dyn Certificates> { tls });
        let random = seed.stream("ledger", 0).next_u64();
        let parts = usher_aaa_config::behind(loaded, &built, store, certificates, random);
        let helpers = helpers(made, usize::from(file.users.threads));
        let mut role = ServerRole::new(endpoint, built.config, (parts, helpers), seed)?;
        let aside = made.cpu.iter().flat_map(|cpu| cpu.aside.names());
        role.aside = aside.filter_map(usher_scenario::work::find).collect();
        Ok(Self { role, udp, tcp, sctp })
    }
}

/// Those who do what takes its time aside: as many as the configuration has threads that ask the store, one that writes to it,
/// and four that ask issuers of certificates.
fn helpers(made: &Made<'_>, threads: usize) -> Helpers<usher_core::Job<Job>> {
    let kinds = [(work::LOOKUP, threads, false), (work::WRITE, 1, true), (work::CERTIFICATE, 4, false)];
    helpers_of(made.cpu, made.seed.stream("helpers", 0), &kinds)
}

/// Helpers of these kinds, each with how many there are and whether all that waits is done at once; those whose time the study does
/// not give are none.
pub(super) fn helpers_of<J>(cpu: Option<&Cpu>, rng: Rng, kinds: &[(WorkLabel, usize, bool)]) -> Helpers<J> {
    let mut helpers = Helpers::new(rng);
    for &(label, threads, together) in kinds {
        if let Some(time) = cpu.and_then(|cpu| cpu.service.get(label.name())) {
            helpers.takes(label, time.clone(), threads, together);
        }
    }
    helpers
}

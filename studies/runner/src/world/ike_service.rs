//! The IKEv2 gateway of `usher ike serve`, and its clients, on simulated hosts, by their configuration files.

use super::aaa::build_worker_pool;
use super::error::ScenarioRunError;
use super::helpers::WorkerPool;
use super::ike::{DatagramCountingMachine, HostSecurityPolicies};
use super::machine::{MachineEventOrJob, MachineSockets};
use super::plan::NetworkPlan;
use super::report::RoleReport;
use super::role::{HostRole, IkeTotals};
use super::topology::NetworkTopology;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use usher_core::timer::earliest_deadline;
use usher_core::{JobRequest, Machine, Seed, WorkRecord};
use usher_crypto::signature::SignatureScheme;
use usher_gateway::config::LoadedGatewayConfig;
use usher_gateway::{GatewayCommand, GatewayConfig, GatewayEvent, GatewayJob, IkeGateway};
use usher_ike::credentials::IkeCredentials;
use usher_ike::machine::{self as ike, IkeJob};
use usher_ike::work::{SIGN, VERIFY};
use usher_scenario::services::HostService;
use usher_sim::{AppContext, AppDelivery, HostId};

/// Concurrent signatures and certificate checks, as in a live gateway.
pub(super) const HELPERS: usize = 4;

/// The gateway or the client of a host. Only workloads carry packets of CHILD_SAs in the simulator.
#[derive(Debug)]
pub(super) struct GatewayRole {
    endpoint: MachineSockets,
    config: GatewayConfig,
    gateway: DatagramCountingMachine<IkeGateway>,
    credentials: Arc<IkeCredentials>,
    helpers: WorkerPool<JobRequest<IkeJob>>,
    seed: Seed,
    starts: u64,
    /// True for a workload's role.
    counted: bool,
    /// The security policies of its host, if it carries packets.
    protection: Option<HostSecurityPolicies>,
}

/// The most frequent length of a DER signature by ECDSA with P-256.
const USUAL_ECDSA: usize = 71;

/// Returns the result of a job. ECDSA signatures vary by an octet or two. It signs again until one has the usual
/// length, so that rows do not depend on random numbers.
pub(super) fn answer_job(credentials: &IkeCredentials, job: &JobRequest<IkeJob>) -> ike::IkeCommand {
    let varies = matches!(job.job, IkeJob::Sign { scheme: SignatureScheme::EcdsaP256Sha256, .. });
    let usual = |command: &ike::IkeCommand| match command {
        ike::IkeCommand::Signed { signature: Some(signature), .. } => signature.len() == USUAL_ECDSA,
        _ => true,
    };
    let mut signed = credentials.answer_job(job);
    // The length of an ECDSA signature varies. About half have the usual length, so 64 attempts suffice to get one.
    for _ in 0..if varies { 64 } else { 0 } {
        if usual(&signed) {
            break;
        }
        signed = credentials.answer_job(job);
    }
    signed
}

impl GatewayRole {
    /// Creates the gateway of a workload, whose RADIUS messages count.
    pub(super) fn of_workload(
        endpoint: MachineSockets,
        (config, gateway): (GatewayConfig, IkeGateway),
        credentials: Arc<IkeCredentials>,
        helpers: WorkerPool<JobRequest<IkeJob>>,
        (seed, protection): (Seed, Option<HostSecurityPolicies>),
    ) -> Self {
        let gateway = DatagramCountingMachine::new(gateway, true);
        Self { endpoint, config, gateway, credentials, helpers, seed, starts: 0, counted: true, protection }
    }
}

impl HostRole for GatewayRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        let now = ctx.now();
        match &delivery {
            AppDelivery::Start => {
                self.starts += 1;
                if let Some(protection) = &self.protection {
                    protection.install_ipsec_policies(ctx);
                }
                // This configuration is valid, because the first start used it too.
                if self.starts > 1
                    && let Ok(gateway) = IkeGateway::new(
                        self.config.clone(),
                        self.seed.derive_secure_rng("ike.start", self.starts),
                    )
                {
                    self.gateway.replace_counted_machine(gateway);
                    self.helpers.discard_worker_jobs();
                }
            }
            AppDelivery::Timer => {
                while let Some(jobs) = self.helpers.pop_due(now) {
                    for job in jobs {
                        // An error is ignored: the login may have ended meanwhile.
                        let _ = self
                            .gateway
                            .handle_command(now, GatewayCommand::Done(answer_job(&self.credentials, &job)));
                    }
                }
            }
            _ => {}
        }
        let Self { endpoint, gateway, credentials, helpers, protection, .. } = self;
        endpoint.deliver_to_machine(ctx, gateway, &delivery);
        let next = endpoint.drain_outputs(ctx, gateway, |ctx, gateway, word| {
            let JobRequest { token, job: what, origin } = match word {
                MachineEventOrJob::Job(job) => job,
                MachineEventOrJob::Event(event) => {
                    if let (Some(protection), GatewayEvent::Ike(event)) = (&*protection, &event) {
                        protection.apply_event(ctx, event);
                    }
                    return;
                }
            };
            let now = ctx.now();
            let what = match what {
                GatewayJob::Ike(what) => what,
                // In a study, gateways share no address pools, so no lease is requested.
                GatewayJob::Lease(wish) => {
                    let _ = gateway
                        .handle_command(now, GatewayCommand::Leased { sa: wish.sa, leases: Vec::new() });
                    return;
                }
                GatewayJob::EapStep(step) => {
                    // The gateway itself reports this work, which then loads this host's processor.
                    let _ = gateway.handle_command(now, GatewayCommand::EapStepDone(step.run_eap_step()));
                    return;
                }
            };
            let label = what.work_label();
            let job = JobRequest::new(token, what).with_origin(origin);
            if let Some(job) = helpers.submit_worker_job(now, Some(label), job) {
                // Work that no worker does loads this host's processor.
                ctx.charge_work(WorkRecord { label, units: 1 });
                let _ = gateway.handle_command(now, GatewayCommand::Done(answer_job(credentials, &job)));
            }
        });
        ctx.set_timer(earliest_deadline([next, self.helpers.next_job_completion()]));
    }

    fn ike_totals(&self) -> Option<IkeTotals> {
        // The initiators count IKE messages, because they know which belong to an authentication, so the gateway
        // reports none.
        self.counted.then_some(IkeTotals { ike: Default::default(), ..self.gateway.totals })
    }
}

/// Places the gateways and clients of a scenario on their hosts.
pub(super) fn place_gateways(
    plan: &mut NetworkPlan<'_>,
    topology: &NetworkTopology,
) -> Result<(), ScenarioRunError> {
    for (name, services) in plan.scenario.services.iter() {
        let loaded = services.iter().find_map(|service| match service {
            HostService::Ike(loaded) => Some(loaded),
            _ => None,
        });
        let Some(loaded) = loaded else { continue };
        for &host in topology.host_group(name)? {
            place_gateway_service(plan, (name, host), loaded)?;
        }
    }
    Ok(())
}

fn place_gateway_service(
    plan: &mut NetworkPlan<'_>,
    (name, host): (&str, HostId),
    loaded: &LoadedGatewayConfig,
) -> Result<(), ScenarioRunError> {
    let mut endpoint =
        MachineSockets::new(plan.host_address(host)).with_outgoing_tls(loaded.outgoing.clone());
    let mut bound = BTreeMap::new();
    for (id, address) in usher_gateway::config::listen_sockets(&loaded.file) {
        if plan.addresses.is_reachable_at(host, address.ip()) {
            bound.entry(address.port()).or_insert(endpoint.socket_number(id));
        }
    }
    let mut config = loaded.config.clone();
    let own = plan.addresses.address_of(host);
    for peer in &mut config.peers {
        if peer.local.ip().is_unspecified() {
            let local = SocketAddr::new(own, peer.local.port());
            Arc::make_mut(peer).local = local;
        }
    }
    let seed = plan.seed.derive_seed("ike", u64::from(host.0));
    let gateway = IkeGateway::new(config.clone(), seed.derive_secure_rng("ike.start", 0))
        .map_err(|why| ScenarioRunError::Role(format!("the service of host \"{name}\": {why}")))?;
    let cpu = plan.scenario.hosts.get(name).and_then(|host| host.cpu.as_ref());
    let kinds = [(SIGN, HELPERS, false), (VERIFY, HELPERS, false)];
    let helpers = build_worker_pool(cpu, seed.derive_rng("helpers", 0), &kinds);
    let credentials = loaded.credentials.clone();
    let gateway = DatagramCountingMachine::new(gateway, false);
    let (counted, protection) = (false, None);
    let role =
        GatewayRole { endpoint, config, gateway, credentials, helpers, seed, starts: 0, counted, protection };
    let app = plan.add_role(host, role);
    for (port, socket) in bound {
        plan.builder.bind_udp(app, socket, port)?;
    }
    Ok(())
}

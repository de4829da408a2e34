//! The IKEv2 gateway that `usher ike serve` runs, and its clients, on simulated hosts, each by its very file.

use super::aaa::helpers_of;
use super::error::WorldError;
use super::helpers::Helpers;
use super::ike::{Counted, Protection};
use super::machine::{Endpoint, EventOrJob};
use super::plan::Plan;
use super::report::Report;
use super::role::{IkeTotals, Role};
use super::topology::Topology;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use usher_core::timer::earliest;
use usher_core::{Job, Machine, Seed, Work};
use usher_crypto::signature::SignatureScheme;
use usher_gateway::config::Loaded;
use usher_gateway::{Command, Config, Event, Gateway, GatewayJob};
use usher_ike::credentials::Credentials;
use usher_ike::machine::{self as ike, IkeJob};
use usher_ike::work::{SIGN, VERIFY};
use usher_scenario::services::Service;
use usher_sim::{Context, Delivery, HostId};

/// Signatures and chains of certificates at a time, as a live gateway has it.
pub(super) const HELPERS: usize = 4;

/// The gateway, or the client, of a host. Packets of CHILD_SAs are carried in the simulator for workloads alone.
#[derive(Debug)]
pub(super) struct GatewayRole {
    endpoint: Endpoint,
    config: Config,
    gateway: Counted<Gateway>,
    credentials: Arc<Credentials>,
    helpers: Helpers<Job<IkeJob>>,
    seed: Seed,
    starts: u64,
    /// It is a workload's.
    counted: bool,
    /// The security policies of its host, where packets are carried.
    protection: Option<Protection>,
}

/// The length of most signatures of ECDSA with P-256, DER.
const USUAL_ECDSA: usize = 71;

/// The answer to a job. Signatures of ECDSA differ by an octet or two: it signs anew until one has the usual length, so that rows
/// are the same whatever it draws.
pub(super) fn answer(credentials: &Credentials, job: &Job<IkeJob>) -> ike::Command {
    let varies = matches!(job.what, IkeJob::Sign { scheme: SignatureScheme::EcdsaP256Sha256, .. });
    let usual = |command: &ike::Command| match command {
        ike::Command::Signed { signature: Some(signature), .. } => signature.len() == USUAL_ECDSA,
        _ => true,
    };
    let mut signed = credentials.answer(job);
    // Half of them have it: of 64 in a row one has.
    for _ in 0..if varies { 64 } else { 0 } {
        if usual(&signed) {
            break;
        }
        signed = credentials.answer(job);
    }
    signed
}

impl GatewayRole {
    /// The gateway of a workload, whose messages of RADIUS are counted.
    pub(super) fn of_workload(
        endpoint: Endpoint,
        (config, gateway): (Config, Gateway),
        credentials: Arc<Credentials>,
        helpers: Helpers<Job<IkeJob>>,
        (seed, protection): (Seed, Option<Protection>),
    ) -> Self {
        let gateway = Counted::new(gateway, true);
        Self { endpoint, config, gateway, credentials, helpers, seed, starts: 0, counted: true, protection }
    }
}

impl Role for GatewayRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        let now = ctx.now();
        match &delivery {
            Delivery::Start => {
                self.starts += 1;
                if let Some(protection) = &self.protection {
                    protection.begin(ctx);
                }
                // What was made of this configuration at first is made of it again.
                if self.starts > 1
                    && let Ok(gateway) =
                        Gateway::new(self.config.clone(), self.seed.secure("ike.start", self.starts))
                {
                    self.gateway.replace(gateway);
                    self.helpers.restart();
                }
            }
            Delivery::Timer => {
                while let Some(jobs) = self.helpers.pop_due(now) {
                    for job in jobs {
                        // The login may have been given up.
                        let _ = self.gateway.command(now, Command::Done(answer(&self.credentials, &job)));
                    }
                }
            }
            _ => {}
        }
        let Self { endpoint, gateway, credentials, helpers, protection, .. } = self;
        endpoint.feed(ctx, gateway, &delivery);
        let next = endpoint.drain(ctx, gateway, |ctx, gateway, word| {
            let Job { token, what, origin } = match word {
                EventOrJob::Job(job) => job,
                EventOrJob::Event(event) => {
                    if let (Some(protection), Event::Ike(event)) = (&*protection, &event) {
                        protection.follow(ctx, event);
                    }
                    return;
                }
            };
            let now = ctx.now();
            let what = match what {
                GatewayJob::Ike(what) => what,
                // A gateway of a study has its pools to itself.
                GatewayJob::Lease(wish) => {
                    let _ = gateway.command(now, Command::Leased { sa: wish.sa, leases: Vec::new() });
                    return;
                }
                GatewayJob::Judge(judgement) => {
                    // Its work is told by the gateway, and keeps this host's processor.
                    let _ = gateway.command(now, Command::Judged(judgement.done()));
                    return;
                }
            };
            let label = what.work();
            let job = Job::new(token, what).of(origin);
            if let Some(job) = helpers.put(now, Some(label), job) {
                // What no helper does keeps this host's processor.
                ctx.work(Work { label, units: 1 });
                let _ = gateway.command(now, Command::Done(answer(credentials, &job)));
            }
        });
        ctx.set_timer(earliest([next, self.helpers.next()]));
    }

    fn ike_totals(&self) -> Option<IkeTotals> {
        // IKE is counted by initiators, who know which of it belongs to an authentication.
        self.counted.then_some(IkeTotals { ike: Default::default(), ..self.gateway.totals })
    }
}

/// Puts the gateways and clients of a scenario on their hosts.
pub(super) fn serve(plan: &mut Plan<'_>, topology: &Topology) -> Result<(), WorldError> {
    for (name, services) in plan.scenario.services.iter() {
        let loaded = services.iter().find_map(|service| match service {
            Service::Ike(loaded) => Some(loaded),
            _ => None,
        });
        let Some(loaded) = loaded else { continue };
        for &host in topology.group(name)? {
            put(plan, (name, host), loaded)?;
        }
    }
    Ok(())
}

fn put(plan: &mut Plan<'_>, (name, host): (&str, HostId), loaded: &Loaded) -> Result<(), WorldError> {
    let mut endpoint = Endpoint::new(plan.at(host)).connecting(loaded.outgoing.clone());
    let mut bound = BTreeMap::new();
    for (id, address) in usher_gateway::config::listening(&loaded.file) {
        if plan.addresses.serves(host, address.ip()) {
            bound.entry(address.port()).or_insert(endpoint.socket(id));
        }
    }
    let mut config = loaded.config.clone();
    let own = plan.addresses.of(host);
    for peer in &mut config.peers {
        if peer.local.ip().is_unspecified() {
            let local = SocketAddr::new(own, peer.local.port());
            Arc::make_mut(peer).local = local;
        }
    }
    let seed = plan.seed.derive("ike", u64::from(host.0));
    let gateway = Gateway::new(config.clone(), seed.secure("ike.start", 0))
        .map_err(|why| WorldError::Role(format!("the service of host \"{name}\": {why}")))?;
    let cpu = plan.scenario.hosts.get(name).and_then(|host| host.cpu.as_ref());
    let kinds = [(SIGN, HELPERS, false), (VERIFY, HELPERS, false)];
    let helpers = helpers_of(cpu, seed.stream("helpers", 0), &kinds);
    let credentials = loaded.credentials.clone();
    let gateway = Counted::new(gateway, false);
    let (counted, protection) = (false, None);
    let role =
        GatewayRole { endpoint, config, gateway, credentials, helpers, seed, starts: 0, counted, protection };
    let app = plan.role(host, role);
    for (port, socket) in bound {
        plan.builder.bind_udp(app, socket, port)?;
    }
    Ok(())
}

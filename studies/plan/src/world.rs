//! One step of a load on the simulated server: logins at a rate, and what came of them.

use crate::deployment::Deployment;
use std::net::SocketAddr;
use std::sync::Arc;
use usher_core::impair::{ChannelConfig, Loss};
use usher_core::{Duration, Instant, Seed};
use usher_crypto::tls::KeyLog;
use usher_load::{Arrivals, Config, Event, FrontConfig, Generator, Pace, RadiusConfig, Share, Tally};
use usher_radius::Secret;
use usher_radius::attribute::{Attributes, kind};
use usher_radius::client::{self, ServerConfig};
use usher_runner::world::{
    Bound, Endpoint, EventOrJob, HostAddress, Made, ServerRole, cpu_config, tcp_config,
};
use usher_sim::{
    Application, Builder, Context, Delivery, HostId, IpVersion, LinkConfig, Observer, Simulation, Transports,
};

/// How long logins are waited for at the end: longer than any retransmission (RFC 5080, 2.2.1: MRD 30 s).
const PATIENCE: Duration = Duration::from_secs(35);
/// What a NAS tells of its link (RFC 2865, 5.12, 5.6 and 5.41), as `usher load eap` does.
const FRAMED_MTU: u32 = 1_400;
const SERVICE_FRAMED: u32 = 2;
const PORT_WIRELESS: u32 = 19;
/// Most logins under way at once.
const OUTSTANDING: usize = 16_384;

/// What one step showed.
#[derive(Clone, Debug)]
pub struct Step {
    /// Logins a second that were offered.
    pub rate: f64,
    /// What came of them.
    pub tally: Tally,
    /// How long was measured, seconds of virtual time.
    pub measured_s: f64,
    /// Share of the time that the server's cores were busy, over warm-up, window and what was waited for.
    pub busy: f64,
}

enum App {
    Server(Box<ServerRole>),
    Load(Box<Load>),
}

/// The generator on its host.
struct Load {
    generator: Generator,
    endpoint: Endpoint,
}

/// What the generator says at its end.
enum Report {
    /// The window is over: what is still under way is waited for.
    Finished(Box<Tally>, Duration),
}

impl Application for App {
    type Report = Report;

    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        match self {
            Self::Server(server) => server.handle(ctx, delivery),
            Self::Load(load) => load.handle(ctx, &delivery),
        }
    }
}

impl Load {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: &Delivery) {
        self.endpoint.feed(ctx, &mut self.generator, delivery);
        self.endpoint.drain(ctx, &mut self.generator, |ctx, generator, word| match word {
            EventOrJob::Event(Event::Finished) => {
                let measured = generator.measured(ctx.now());
                ctx.report(Report::Finished(Box::new(generator.take_tally()), measured));
            }
            EventOrJob::Job(job) => match job.what {},
        });
    }
}

/// Waits for the generator.
#[derive(Default)]
struct Observed(Option<(Tally, Duration)>);

impl Observer<Report> for Observed {
    fn report(&mut self, _: Instant, _: u32, report: Report) {
        let Report::Finished(tally, measured) = report;
        self.0 = Some((*tally, measured));
    }
    fn is_done(&self) -> bool {
        self.0.is_some()
    }
}

/// How long a step is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Length {
    /// Before the window.
    pub warmup: Duration,
    /// The window.
    pub hold: Duration,
}

/// Logs users in on the deployment's server at a rate, in virtual time.
///
/// # Errors
/// A sentence that says why the server cannot serve; what comes of the logins is in the step.
pub fn step(deployment: &Deployment, rate: f64, length: Length, seed: Seed) -> Result<Step, String> {
    let (mut builder, [server, load]) = hosts(deployment, seed)?;
    let addresses = Arc::new(builder.addresses().clone());
    let transports = Arc::new(Transports {
        tcp: Arc::new(tcp_config(&usher_scenario::model::Tcp::default(), IpVersion::V4, 1500)),
        ..Transports::default()
    });
    let at = |host: HostId| HostAddress { host, addresses: addresses.clone() };
    let made = Made {
        seed: seed.derive("plan.server", 0),
        wall: deployment.epoch,
        cpu: Some(&deployment.cpu),
        users: &deployment.rows,
        key_log: &KeyLog::new(),
    };
    let bound = Bound::new(&deployment.config, at(server), &made)?;
    let app = builder.app(server, App::Server(Box::new(bound.role)), Some(transports.clone()));
    for (port, socket) in bound.udp {
        builder.bind_udp(app, socket, port).map_err(|e| e.to_string())?;
    }
    for port in bound.tcp {
        builder.listen(app, port).map_err(|e| e.to_string())?;
    }
    let config = generator(deployment, rate, length)?;
    let generator =
        Generator::new(config, Instant::ZERO, seed.secure("plan.load", 0)).map_err(|e| e.to_string())?;
    let role = Load { generator, endpoint: Endpoint::new(at(load)) };
    builder.app(load, App::Load(Box::new(role)), Some(transports));
    let mut sim: Simulation<App, Observed> = builder.build(Observed::default(), None);
    // The generator's patience ends before.
    sim.run_until(Instant::ZERO + length.warmup + length.hold + PATIENCE + Duration::from_secs(1));
    let busy_ns = sim.cpu_stats(server).map_or(0, |stats| stats.busy_ns);
    let time = sim.now().as_secs_f64() * f64::from(deployment.cpu.cores.get());
    let busy = busy_ns as f64 / 1e9 / time.max(1e-9);
    let (tally, measured) = sim.observer_mut().0.take().ok_or("the generator did not come to its end")?;
    Ok(Step { rate, tally, measured_s: measured.as_secs_f64(), busy })
}

/// The server and who loads it, with the network between them.
fn hosts(deployment: &Deployment, seed: Seed) -> Result<(Builder<App>, [HostId; 2]), String> {
    let mut builder = Builder::new(IpVersion::V4, seed);
    let wrong = |e: usher_sim::SimError| e.to_string();
    let server = builder.host(Some(cpu_config(&deployment.cpu))).map_err(wrong)?;
    let load = builder.host(None).map_err(wrong)?;
    builder.address(server, deployment.addresses.0).map_err(wrong)?;
    builder.address(load, deployment.addresses.1).map_err(wrong)?;
    builder.epoch(deployment.epoch);
    let one_way = Duration::from_nanos(deployment.round_trip.get().as_nanos() / 2);
    let loss = if deployment.loss > 0.0 { Loss::Bernoulli(deployment.loss) } else { Loss::None };
    let channel = ChannelConfig { delay: one_way, loss, ..ChannelConfig::default() };
    let link = LinkConfig { up: channel.clone(), down: channel, ..LinkConfig::default() };
    builder.link(load, server, &link);
    Ok((builder, [server, load]))
}

fn generator(deployment: &Deployment, rate: f64, length: Length) -> Result<Config, String> {
    let at = SocketAddr::new(deployment.addresses.0, deployment.port);
    let mut client = client::Config::single(ServerConfig::new(at, Secret::new(&deployment.secret)));
    client.max_sockets = 1024;
    let mut common = Attributes::new();
    common.push_u32(kind::SERVICE_TYPE, SERVICE_FRAMED);
    common.push_u32(kind::NAS_PORT_TYPE, PORT_WIRELESS);
    common.push_u32(kind::FRAMED_MTU, FRAMED_MTU);
    common.push_text(kind::NAS_IDENTIFIER, "plan").map_err(|e| e.to_string())?;
    let mix = deployment.methods.iter().map(|method| Share {
        name: method.name.clone(),
        weight: method.weight,
        deniable: false,
    });
    Ok(Config {
        pace: Pace::Open { rate, arrivals: Arrivals::Exponential },
        warmup: length.warmup,
        duration: Some(length.hold),
        count: None,
        outstanding: OUTSTANDING,
        patience: PATIENCE,
        spin: Duration::ZERO,
        wrong_share: 0.0,
        users: deployment.users.clone(),
        first: 0,
        step: 1,
        // One method has no parts to tell apart.
        mix: if deployment.methods.len() > 1 { mix.collect() } else { Vec::new() },
        front: FrontConfig::Radius(RadiusConfig {
            client,
            fleet: None,
            logins: deployment.logins.clone(),
            accounting: None,
            anonymous: None,
            common,
        }),
    })
}

//! One step of a load on the simulated server: logins at a rate, and what came of them.

use crate::deployment::{Deployment, DiameterSide, RadiusSide};
use crate::gateway;
use crate::login::Login;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use usher_core::impair::{ChannelConfig, Loss};
use usher_core::{Duration, Instant, Seed};
use usher_crypto::tls::KeyLog;
use usher_load::{
    Arrivals, Config, DiameterConfig, Event, FrontConfig, Generator, Pace, RadiusConfig, Share, Tally,
};
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
    Gateway(Box<gateway::Gateway>),
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
            Self::Gateway(gateway) => gateway.handle(ctx, &delivery),
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

/// Waits for the generators.
struct Observed {
    /// How many have not finished.
    awaited: usize,
    tally: Tally,
    measured: Duration,
}

impl Observer<Report> for Observed {
    fn report(&mut self, _: Instant, _: u32, report: Report) {
        let Report::Finished(tally, measured) = report;
        self.awaited = self.awaited.saturating_sub(1);
        self.tally.add(&tally);
        self.measured = self.measured.max(measured);
    }
    fn is_done(&self) -> bool {
        self.awaited == 0
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
    let (mut builder, server) = server(deployment, seed)?;
    let configs = generators(deployment, rate, length)?;
    let mut loads = Vec::new();
    for (from, config) in configs {
        loads.push((asker(&mut builder, deployment, server, from)?, config));
    }
    let addresses = Arc::new(builder.addresses().clone());
    let transports = Arc::new(Transports {
        // RFC 3539, 3.2: Diameter does without Nagle's algorithm.
        tcp: Arc::new(tcp_config(
            &usher_scenario::model::Tcp { nagle: false, ..Default::default() },
            IpVersion::V4,
            1500,
        )),
        ..Transports::default()
    });
    let at = |host: HostId| HostAddress { host, addresses: addresses.clone() };
    let own = seed.derive("plan.server", 0);
    if deployment.ike {
        let (gateway, sockets) = gateway::Gateway::new(at(server), deployment.server, own)?;
        let app = builder.app(server, App::Gateway(Box::new(gateway)), Some(transports.clone()));
        for (socket, port) in sockets {
            builder.bind_udp(app, socket, port).map_err(|e| e.to_string())?;
        }
    } else {
        serve(&mut builder, deployment, (server, at(server)), own, &transports)?;
    }
    let awaited = loads.len();
    for (i, (load, config)) in loads.into_iter().enumerate() {
        let chance = seed.secure("plan.load", i as u64);
        let generator = Generator::new(config, Instant::ZERO, chance).map_err(|e| e.to_string())?;
        let role = Load { generator, endpoint: Endpoint::new(at(load)) };
        builder.app(load, App::Load(Box::new(role)), Some(transports.clone()));
    }
    let observed = Observed { awaited, tally: Tally::default(), measured: Duration::ZERO };
    let mut sim: Simulation<App, Observed> = builder.build(observed, None);
    // The generator's patience ends before.
    sim.run_until(Instant::ZERO + length.warmup + length.hold + PATIENCE + Duration::from_secs(1));
    let busy_ns = sim.cpu_stats(server).map_or(0, |stats| stats.busy_ns);
    let time = sim.now().as_secs_f64() * f64::from(deployment.cpu.cores.get());
    let busy = busy_ns as f64 / 1e9 / time.max(1e-9);
    let observed = sim.observer_mut();
    if observed.awaited > 0 {
        return Err("the generator did not come to its end".to_owned());
    }
    let tally = std::mem::take(&mut observed.tally);
    Ok(Step { rate, tally, measured_s: observed.measured.as_secs_f64(), busy })
}

/// Puts the AAA server on its host.
fn serve(
    builder: &mut Builder<App>,
    deployment: &Deployment,
    (server, at): (HostId, HostAddress),
    seed: Seed,
    transports: &Arc<Transports>,
) -> Result<(), String> {
    let made = Made {
        seed,
        wall: deployment.epoch,
        cpu: Some(&deployment.cpu),
        users: &deployment.rows,
        key_log: &KeyLog::new(),
    };
    let bound = Bound::new(&deployment.config, at, &made)?;
    let app = builder.app(server, App::Server(Box::new(bound.role)), Some(transports.clone()));
    for (port, socket) in bound.udp {
        builder.bind_udp(app, socket, port).map_err(|e| e.to_string())?;
    }
    for port in bound.tcp {
        builder.listen(app, port).map_err(|e| e.to_string())?;
    }
    for port in bound.sctp {
        builder.listen_sctp(app, port).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// The server's host.
fn server(deployment: &Deployment, seed: Seed) -> Result<(Builder<App>, HostId), String> {
    let mut builder = Builder::new(IpVersion::V4, seed);
    let wrong = |e: usher_sim::SimError| e.to_string();
    let server = builder.host(Some(cpu_config(&deployment.cpu))).map_err(wrong)?;
    builder.address(server, deployment.server).map_err(wrong)?;
    builder.epoch(deployment.epoch);
    Ok((builder, server))
}

/// A host that asks, with the network between it and the server.
fn asker(
    builder: &mut Builder<App>,
    deployment: &Deployment,
    server: HostId,
    from: IpAddr,
) -> Result<HostId, String> {
    let wrong = |e: usher_sim::SimError| e.to_string();
    let load = builder.host(None).map_err(wrong)?;
    builder.address(load, from).map_err(wrong)?;
    let one_way = Duration::from_nanos(deployment.round_trip.get().as_nanos() / 2);
    let loss = if deployment.loss > 0.0 { Loss::Bernoulli(deployment.loss) } else { Loss::None };
    let channel = ChannelConfig { delay: one_way, loss, ..ChannelConfig::default() };
    let link = LinkConfig { up: channel.clone(), down: channel, ..LinkConfig::default() };
    builder.link(load, server, &link);
    Ok(load)
}

/// Who asks, by what, and how: a generator for each of RADIUS and Diameter that has a method in the mix, with its share of the rate.
fn generators(deployment: &Deployment, rate: f64, length: Length) -> Result<Vec<(IpAddr, Config)>, String> {
    let mut all = Vec::new();
    let weights: f64 = deployment.methods.iter().map(|m| m.weight).sum();
    let mut add = |from: IpAddr, diameter: bool, front: FrontConfig| {
        let methods = deployment.methods.iter().filter(|m| m.is_diameter() == diameter);
        let mix: Vec<Share> =
            methods.map(|m| Share { name: m.name.clone(), weight: m.weight, deniable: false }).collect();
        let share: f64 = mix.iter().map(|m| m.weight).sum::<f64>() / weights;
        all.push((from, generator(deployment, rate * share, length, mix, front)));
    };
    if let Some(side) = &deployment.radius {
        add(side.from, false, FrontConfig::Radius(radius(deployment, side)?));
    }
    if let Some(side) = &deployment.diameter {
        add(side.from, true, FrontConfig::Diameter(diameter(deployment, side)));
    }
    if deployment.ike {
        add(gateway::CLIENT, false, FrontConfig::Ike(gateway::initiators(deployment.server)?));
    }
    Ok(all)
}

fn diameter(deployment: &Deployment, side: &DiameterSide) -> DiameterConfig {
    let logins = deployment.logins.iter().filter_map(|login| match login {
        Login::Diameter(login) => Some(login.clone()),
        Login::Radius(_) | Login::Ike => None,
    });
    let realm = side.host.split_once('.').map_or(side.host.as_str(), |(_, realm)| realm);
    DiameterConfig {
        address: SocketAddr::new(deployment.server, side.port),
        transport: side.transport,
        local: side.from,
        server: side.server.clone(),
        host: side.host.clone(),
        realm: realm.to_owned(),
        destination: side.realm.clone(),
        connections: 1,
        first: 0,
        logins: logins.collect(),
        accounting: None,
        anonymous: None,
        timeout: PATIENCE,
    }
}

fn radius(deployment: &Deployment, side: &RadiusSide) -> Result<RadiusConfig, String> {
    let at = SocketAddr::new(deployment.server, side.port);
    let mut client = client::Config::single(ServerConfig::new(at, Secret::new(&side.secret)));
    client.max_sockets = 1024;
    let mut common = Attributes::new();
    common.push_u32(kind::SERVICE_TYPE, SERVICE_FRAMED);
    common.push_u32(kind::NAS_PORT_TYPE, PORT_WIRELESS);
    common.push_u32(kind::FRAMED_MTU, FRAMED_MTU);
    common.push_text(kind::NAS_IDENTIFIER, "plan").map_err(|e| e.to_string())?;
    let logins = deployment.logins.iter().filter_map(|login| match login {
        Login::Radius(login) => Some(login.clone()),
        Login::Diameter(_) | Login::Ike => None,
    });
    Ok(RadiusConfig {
        client,
        fleet: None,
        logins: logins.collect(),
        accounting: None,
        anonymous: None,
        common,
    })
}

fn generator(
    deployment: &Deployment,
    rate: f64,
    length: Length,
    mix: Vec<Share>,
    front: FrontConfig,
) -> Config {
    Config {
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
        mix: if mix.len() > 1 { mix } else { Vec::new() },
        front,
    }
}

//! Hosts with sessions: the workload `pppoe`.

use super::super::arrivals::{ArrivalProcess, Pattern};
use super::super::error::WorldError;
use super::super::machine::{Endpoint, EventOrJob};
use super::super::plan::Plan;
use super::super::report::{End, Report};
use super::super::role::Role;
use super::super::topology::Topology;
use std::collections::BTreeMap;
use std::sync::Arc;
use usher_aaa::store::{Op, Row, UserRows};
use usher_core::timer::earliest;
use usher_core::{Duration, Instant, Machine, PortId, Rng, Seed};
use usher_crypto::Key;
use usher_eap::method::{PeerOffer, md5, mschapv2};
use usher_ppp::auth::{AuthenticationProtocol, Credentials};
use usher_ppp::client::{Client, ClientCommand, ClientConfig, ClientEvent};
use usher_ppp::pppoe::MacAddress;
use usher_ppp::{EndReason, Family, LinkConfig, Network};
use usher_scenario::model::{Pppoe, PppoeMethod, Scenario};
use usher_sim::{Context, Delivery, HostId};

/// The port of a station: its first.
const PORT: PortId = PortId(0);

fn credentials(method: PppoeMethod, name: &[u8], password: &[u8]) -> Credentials {
    let (protocol, offer): (_, Option<Box<dyn PeerOffer>>) = match method {
        PppoeMethod::Pap => (AuthenticationProtocol::Pap, None),
        PppoeMethod::Chap => (AuthenticationProtocol::Chap, None),
        PppoeMethod::MsChapV2 => (AuthenticationProtocol::MsChapV2, None),
        PppoeMethod::EapMd5 => {
            (AuthenticationProtocol::Eap, Some(Box::new(md5::Password::new(password).named(name))))
        }
        PppoeMethod::EapMsChapV2 => {
            (AuthenticationProtocol::Eap, Some(Box::new(mschapv2::Account::new(name, password))))
        }
    };
    Credentials {
        name: name.to_vec(),
        password: Key::from(password),
        protocols: vec![protocol],
        eap_methods: offer.into_iter().collect(),
    }
}

/// What becomes of a station's session.
#[derive(Debug)]
enum State {
    /// It has none, and tries for none.
    Idle,
    /// It is set up, from then on.
    Begun(Instant),
    /// It is there, until then.
    Up(Option<Instant>),
    /// It is being ended.
    Ending,
}

/// A host with sessions, one after the other.
#[derive(Debug)]
struct StationRole {
    endpoint: Endpoint,
    /// With the right password, and with a wrong one.
    configs: [Arc<ClientConfig>; 2],
    client: Client,
    state: State,
    arrivals: ArrivalProcess,
    /// Sessions that are due and wait.
    waiting: u64,
    hold: Option<Duration>,
    give_up: Option<Duration>,
    wrong: f64,
    chance: Rng,
    seed: Seed,
    sessions: u64,
}

impl StationRole {
    fn gives_up(&self) -> Option<Instant> {
        match self.state {
            State::Begun(began) => Some(began + self.give_up?),
            _ => None,
        }
    }

    fn ends(&self) -> Option<Instant> {
        match self.state {
            State::Up(until) => until,
            _ => None,
        }
    }

    /// A host like new, as far as its sessions go.
    fn renew(&mut self, ctx: &Context<'_, Report>, wrong: bool) {
        self.sessions += 1;
        let config = (*self.configs[usize::from(wrong)]).clone();
        self.client = Client::new(config, self.seed.secure("pppoe.session", self.sessions));
        self.client.set_epoch(Instant::ZERO, ctx.epoch());
    }

    /// Begins what is due and can.
    fn begin(&mut self, ctx: &mut Context<'_, Report>) {
        let now = ctx.now();
        while self.arrivals.take(now) {
            self.waiting += 1;
        }
        if self.waiting > 0 && matches!(self.state, State::Idle) {
            self.waiting -= 1;
            let wrong = self.wrong > 0.0 && self.chance.chance(self.wrong);
            self.renew(ctx, wrong);
            ctx.report(Report::Begun);
            self.state = State::Begun(now);
            // It has none yet.
            let _ = self.client.command(now, ClientCommand::Connect);
        }
    }

    fn expire(&mut self, now: Instant) -> Option<Report> {
        if self.ends().is_some_and(|at| at <= now) {
            self.state = State::Ending;
            let _ = self.client.command(now, ClientCommand::Disconnect);
        }
        let State::Begun(began) = self.state else { return None };
        let over = self.gives_up().is_some_and(|at| at <= now);
        over.then(|| {
            self.state = State::Ending;
            let _ = self.client.command(now, ClientCommand::Disconnect);
            Report::Ended { began, end: End::Failed }
        })
    }

    fn hear(&mut self, ctx: &mut Context<'_, Report>, event: ClientEvent) {
        let now = ctx.now();
        match (event, &self.state) {
            (ClientEvent::Install { network: Network::Ipv4 { .. }, .. }, &State::Begun(began)) => {
                ctx.report(Report::Ended { began, end: End::Completed });
                self.state = State::Up(self.hold.map(|time| now + time));
            }
            // Its link is negotiated anew.
            (ClientEvent::Remove { family: Family::Ipv4 }, _) => {}
            (ClientEvent::Ended { reason, again }, state) => {
                if let &State::Begun(began) = state {
                    let end = if reason == EndReason::Refused { End::Rejected } else { End::Failed };
                    ctx.report(Report::Ended { began, end });
                }
                let lost = matches!(state, State::Up(_));
                self.state = match again {
                    Some(_) if lost => {
                        ctx.report(Report::Begun);
                        State::Begun(now)
                    }
                    Some(_) => {
                        // It is tried again when the next session is due, and not by itself.
                        let _ = self.client.command(now, ClientCommand::Disconnect);
                        State::Idle
                    }
                    None => State::Idle,
                };
            }
            _ => {}
        }
    }

    fn settle(&mut self, ctx: &mut Context<'_, Report>) {
        loop {
            let mut heard = Vec::new();
            let Self { endpoint, client, .. } = self;
            endpoint.drain(ctx, client, |_, _, word| match word {
                EventOrJob::Event(event) => heard.push(event),
                EventOrJob::Job(job) => match job.what {},
            });
            if heard.is_empty() {
                return;
            }
            heard.into_iter().for_each(|event| self.hear(ctx, event));
            self.begin(ctx);
        }
    }
}

impl Role for StationRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        let now = ctx.now();
        match &delivery {
            Delivery::Start => {
                if let State::Begun(began) = self.state {
                    ctx.report(Report::Ended { began, end: End::Failed });
                }
                let had = !matches!(self.state, State::Idle);
                self.renew(ctx, false);
                self.state = State::Idle;
                if had {
                    // Its power is back: it wants its session again.
                    self.waiting += 1;
                    self.arrivals.skip(now);
                }
            }
            Delivery::Timer => {
                if let Some(report) = self.expire(now) {
                    ctx.report(report);
                }
            }
            _ => {}
        }
        self.endpoint.feed(ctx, &mut self.client, &delivery);
        self.settle(ctx);
        self.begin(ctx);
        self.settle(ctx);
        ctx.set_timer(earliest([
            self.client.poll_timeout(),
            self.arrivals.next(),
            self.gives_up(),
            self.ends(),
        ]));
    }
}

/// Puts the stations on their hosts.
pub(in super::super) fn build(
    plan: &mut Plan<'_>,
    topology: &Topology,
    pppoe: &Pppoe,
) -> Result<(), WorldError> {
    if !pppoe.used {
        return Ok(());
    }
    let stations = topology.group(&pppoe.stations)?;
    let pattern = Pattern::new(&pppoe.arrivals, stations.len() as u64, plan.end);
    for (index, &host) in (0_u64..).zip(stations) {
        let rng = plan.seed.stream("arrivals", index);
        let arrivals = ArrivalProcess::new(&pattern, index, rng);
        let user = name(pppoe, index);
        let config = |password: &str| Arc::new(config(pppoe, host, user.as_bytes(), password.as_bytes()));
        let configs = [config(&pppoe.password), config(&format!("not {}", pppoe.password))];
        let seed = plan.seed.derive("pppoe.station", index);
        let role = StationRole {
            endpoint: Endpoint::new(plan.at(host)),
            client: Client::new((*configs[0]).clone(), seed.secure("pppoe.session", 0)),
            configs,
            state: State::Idle,
            arrivals,
            waiting: 0,
            hold: pppoe.hold.get().map(|time| time.get()),
            give_up: pppoe.give_up.get().map(|time| time.get()),
            wrong: pppoe.wrong_credentials.get(),
            chance: seed.stream("wrong", 0),
            seed,
            sessions: 0,
        };
        let app = plan.role(host, role);
        plan.builder.take_frames(app);
    }
    Ok(())
}

/// The name of a station's user.
fn name(pppoe: &Pppoe, station: u64) -> String {
    pppoe.user.replace("{}", &station.to_string())
}

/// The users of all stations, as the stores of the scenario's AAA servers have them.
pub(in super::super) fn users(
    scenario: &Scenario,
    topology: &Topology,
) -> Result<Vec<(String, UserRows)>, WorldError> {
    let mut all = BTreeMap::new();
    for (_, pppoe) in scenario.pppoe_workloads() {
        let value = pppoe.password.clone();
        let password = Row { attribute: "Cleartext-Password".to_owned(), op: Op::Replace, value };
        let user = UserRows { check: vec![password], reply: Vec::new(), groups: Vec::new() };
        let stations = topology.group(&pppoe.stations)?.len() as u64;
        all.extend((0..stations).map(|station| (name(pppoe, station), user.clone())));
    }
    Ok(all.into_iter().collect())
}

fn config(pppoe: &Pppoe, host: HostId, name: &[u8], password: &[u8]) -> ClientConfig {
    let keepalive = pppoe.keepalive.get().map_or(Duration::ZERO, |time| time.get());
    ClientConfig {
        ipv6: None,
        patience: pppoe.discovery.get(),
        attempts: pppoe.attempts.get(),
        persist: pppoe.persist,
        link: LinkConfig { echo_interval: keepalive, ..LinkConfig::default() },
        ..ClientConfig::new(PORT, MacAddress(host.mac(0)), credentials(pppoe.method, name, password))
    }
}

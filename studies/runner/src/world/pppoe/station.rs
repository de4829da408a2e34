//! Hosts with sessions: the workload `pppoe`.

use super::super::arrivals::{ArrivalPattern, ArrivalProcess};
use super::super::error::ScenarioRunError;
use super::super::machine::{MachineEventOrJob, MachineSockets};
use super::super::plan::NetworkPlan;
use super::super::report::{DialogueEnd, RoleReport};
use super::super::role::HostRole;
use super::super::topology::NetworkTopology;
use std::collections::BTreeMap;
use std::sync::Arc;
use usher_aaa::store::{AttributeRow, RowOperator, UserRows};
use usher_core::timer::earliest_deadline;
use usher_core::{Duration, Instant, LinkLayerPortId, Machine, Seed, SimulationRng};
use usher_crypto::SecretValue;
use usher_eap::method::{PeerMethodFactory, md5, mschapv2};
use usher_ppp::auth::{AuthenticationProtocol, PppCredentials};
use usher_ppp::client::{ClientCommand, ClientConfig, ClientEvent, PppoeClient};
use usher_ppp::pppoe::MacAddress;
use usher_ppp::{AddressFamily, EndReason, LinkConfig, NegotiatedAddresses};
use usher_scenario::model::{PppoeMethod, PppoeWorkload, Scenario};
use usher_sim::{AppContext, AppDelivery, HostId};

/// A station's first port.
const PORT: LinkLayerPortId = LinkLayerPortId(0);

fn session_credentials(method: PppoeMethod, name: &[u8], password: &[u8]) -> PppCredentials {
    let (protocol, offer): (_, Option<Box<dyn PeerMethodFactory>>) = match method {
        PppoeMethod::Pap => (AuthenticationProtocol::Pap, None),
        PppoeMethod::Chap => (AuthenticationProtocol::Chap, None),
        PppoeMethod::MsChapV2 => (AuthenticationProtocol::MsChapV2, None),
        PppoeMethod::EapMd5 => {
            (AuthenticationProtocol::Eap, Some(Box::new(md5::EapMd5Password::new(password).with_name(name))))
        }
        PppoeMethod::EapMsChapV2 => {
            (AuthenticationProtocol::Eap, Some(Box::new(mschapv2::MsChapV2Account::new(name, password))))
        }
    };
    PppCredentials {
        name: name.to_vec(),
        password: SecretValue::from(password),
        protocols: vec![protocol],
        eap_methods: offer.into_iter().collect(),
    }
}

/// The state of a station's session.
#[derive(Debug)]
enum SessionState {
    /// Without a session or an attempt.
    Idle,
    /// Being set up since this time.
    Connecting(Instant),
    /// Established until this time.
    Up(Option<Instant>),
    /// Being closed.
    Closing,
}

/// A host with one session after another.
#[derive(Debug)]
struct StationRole {
    endpoint: MachineSockets,
    /// With the right and with a wrong password.
    configs: [Arc<ClientConfig>; 2],
    client: PppoeClient,
    state: SessionState,
    arrivals: ArrivalProcess,
    /// Number of sessions due and waiting.
    waiting: u64,
    hold_time: Option<Duration>,
    give_up: Option<Duration>,
    wrong: f64,
    chance: SimulationRng,
    seed: Seed,
    sessions: u64,
}

impl StationRole {
    fn give_up_time(&self) -> Option<Instant> {
        match self.state {
            SessionState::Connecting(began) => Some(began + self.give_up?),
            _ => None,
        }
    }

    fn session_end(&self) -> Option<Instant> {
        match self.state {
            SessionState::Up(until) => until,
            _ => None,
        }
    }

    /// Resets the host's client.
    fn replace_pppoe_client(&mut self, ctx: &AppContext<'_, RoleReport>, wrong: bool) {
        self.sessions += 1;
        let config = (*self.configs[usize::from(wrong)]).clone();
        self.client = PppoeClient::new(config, self.seed.derive_secure_rng("pppoe.session", self.sessions));
        self.client.set_epoch(Instant::ZERO, ctx.epoch());
    }

    /// Begins a due session if possible.
    fn start_due(&mut self, ctx: &mut AppContext<'_, RoleReport>) {
        let now = ctx.now();
        while self.arrivals.take_due_arrival(now) {
            self.waiting += 1;
        }
        if self.waiting > 0 && matches!(self.state, SessionState::Idle) {
            self.waiting -= 1;
            let wrong = self.wrong > 0.0 && self.chance.sample_bool(self.wrong);
            self.replace_pppoe_client(ctx, wrong);
            ctx.report(RoleReport::Started);
            self.state = SessionState::Connecting(now);
            // The result is ignored: there is no session yet, so the client accepts the command.
            let _ = self.client.handle_command(now, ClientCommand::Connect);
        }
    }

    fn handle_timeouts(&mut self, now: Instant) -> Option<RoleReport> {
        if self.session_end().is_some_and(|at| at <= now) {
            self.state = SessionState::Closing;
            let _ = self.client.handle_command(now, ClientCommand::Disconnect);
        }
        let SessionState::Connecting(began) = self.state else { return None };
        let over = self.give_up_time().is_some_and(|at| at <= now);
        over.then(|| {
            self.state = SessionState::Closing;
            let _ = self.client.handle_command(now, ClientCommand::Disconnect);
            RoleReport::Ended { started_at: began, end: DialogueEnd::Failed }
        })
    }

    fn handle_event(&mut self, ctx: &mut AppContext<'_, RoleReport>, event: ClientEvent) {
        let now = ctx.now();
        match (event, &self.state) {
            (
                ClientEvent::Install { network: NegotiatedAddresses::Ipv4 { .. }, .. },
                &SessionState::Connecting(began),
            ) => {
                ctx.report(RoleReport::Ended { started_at: began, end: DialogueEnd::Completed });
                self.state = SessionState::Up(self.hold_time.map(|time| now + time));
            }
            // The client only renegotiates its link here, so the session has not ended.
            (ClientEvent::Remove { family: AddressFamily::Ipv4 }, _) => {}
            (ClientEvent::Ended { reason, retry_at: again }, state) => {
                if let &SessionState::Connecting(began) = state {
                    let end = if reason == EndReason::Refused {
                        DialogueEnd::Rejected
                    } else {
                        DialogueEnd::Failed
                    };
                    ctx.report(RoleReport::Ended { started_at: began, end });
                }
                let lost = matches!(state, SessionState::Up(_));
                self.state = match again {
                    Some(_) if lost => {
                        ctx.report(RoleReport::Started);
                        SessionState::Connecting(now)
                    }
                    Some(_) => {
                        // Stop the client from retrying by itself, because the next due session tries again.
                        let _ = self.client.handle_command(now, ClientCommand::Disconnect);
                        SessionState::Idle
                    }
                    None => SessionState::Idle,
                };
            }
            _ => {}
        }
    }

    fn drain_outputs(&mut self, ctx: &mut AppContext<'_, RoleReport>) {
        loop {
            let mut heard = Vec::new();
            let Self { endpoint, client, .. } = self;
            endpoint.drain_outputs(ctx, client, |_, _, word| match word {
                MachineEventOrJob::Event(event) => heard.push(event),
                MachineEventOrJob::Job(job) => match job.job {},
            });
            if heard.is_empty() {
                return;
            }
            heard.into_iter().for_each(|event| self.handle_event(ctx, event));
            self.start_due(ctx);
        }
    }
}

impl HostRole for StationRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        let now = ctx.now();
        match &delivery {
            AppDelivery::Start => {
                if let SessionState::Connecting(began) = self.state {
                    ctx.report(RoleReport::Ended { started_at: began, end: DialogueEnd::Failed });
                }
                let had = !matches!(self.state, SessionState::Idle);
                self.replace_pppoe_client(ctx, false);
                self.state = SessionState::Idle;
                if had {
                    // After a power failure, the host wants its session back, so count it as waiting.
                    self.waiting += 1;
                    self.arrivals.skip_missed_arrivals(now);
                }
            }
            AppDelivery::Timer => {
                if let Some(report) = self.handle_timeouts(now) {
                    ctx.report(report);
                }
            }
            _ => {}
        }
        self.endpoint.deliver_to_machine(ctx, &mut self.client, &delivery);
        self.drain_outputs(ctx);
        self.start_due(ctx);
        self.drain_outputs(ctx);
        ctx.set_timer(earliest_deadline([
            self.client.poll_timeout(),
            self.arrivals.next_arrival(),
            self.give_up_time(),
            self.session_end(),
        ]));
    }
}

/// Places the stations on their hosts.
pub(in super::super) fn build_pppoe_roles(
    plan: &mut NetworkPlan<'_>,
    topology: &NetworkTopology,
    pppoe: &PppoeWorkload,
) -> Result<(), ScenarioRunError> {
    if !pppoe.used {
        return Ok(());
    }
    let stations = topology.host_group(&pppoe.stations)?;
    let pattern = ArrivalPattern::new(&pppoe.arrivals, stations.len() as u64, plan.end);
    for (index, &host) in (0_u64..).zip(stations) {
        let rng = plan.seed.derive_rng("arrivals", index);
        let arrivals = ArrivalProcess::new(&pattern, index, rng);
        let user = user_name(pppoe, index);
        let config =
            |password: &str| Arc::new(client_config(pppoe, host, user.as_bytes(), password.as_bytes()));
        let configs = [config(&pppoe.password), config(&format!("not {}", pppoe.password))];
        let seed = plan.seed.derive_seed("pppoe.station", index);
        let role = StationRole {
            endpoint: MachineSockets::new(plan.host_address(host)),
            client: PppoeClient::new((*configs[0]).clone(), seed.derive_secure_rng("pppoe.session", 0)),
            configs,
            state: SessionState::Idle,
            arrivals,
            waiting: 0,
            hold_time: pppoe.hold.get().map(|time| time.get()),
            give_up: pppoe.give_up.get().map(|time| time.get()),
            wrong: pppoe.wrong_credentials.get(),
            chance: seed.derive_rng("wrong", 0),
            seed,
            sessions: 0,
        };
        let app = plan.add_role(host, role);
        plan.builder.take_frames(app);
    }
    Ok(())
}

/// Returns the name of a station's user.
fn user_name(pppoe: &PppoeWorkload, station: u64) -> String {
    pppoe.user.replace("{}", &station.to_string())
}

/// Returns the users of all stations for the stores of the scenario's AAA servers.
pub(in super::super) fn station_users(
    scenario: &Scenario,
    topology: &NetworkTopology,
) -> Result<Vec<(String, UserRows)>, ScenarioRunError> {
    let mut all = BTreeMap::new();
    for (_, pppoe) in scenario.pppoe_workloads() {
        let value = pppoe.password.clone();
        let password =
            AttributeRow { attribute: "Cleartext-Password".to_owned(), op: RowOperator::Replace, value };
        let user = UserRows { check: vec![password], reply: Vec::new(), groups: Vec::new() };
        let stations = topology.host_group(&pppoe.stations)?.len() as u64;
        all.extend((0..stations).map(|station| (user_name(pppoe, station), user.clone())));
    }
    Ok(all.into_iter().collect())
}

fn client_config(pppoe: &PppoeWorkload, host: HostId, name: &[u8], password: &[u8]) -> ClientConfig {
    let keepalive = pppoe.keepalive.get().map_or(Duration::ZERO, |time| time.get());
    ClientConfig {
        ipv6: None,
        initial_timeout: pppoe.discovery.get(),
        attempts: pppoe.attempts.get(),
        persist: pppoe.persist,
        link: LinkConfig { echo_interval: keepalive, ..LinkConfig::default() },
        ..ClientConfig::new(
            PORT,
            MacAddress(host.mac_address(0)),
            session_credentials(pppoe.method, name, password),
        )
    }
}

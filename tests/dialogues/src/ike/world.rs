//! A run of the gateway, its clients and its AAA server.

use super::RunOutcome;
use super::host::{self, ClientPlan, ClientProof, GATEWAY, user_identified, user_named};
use crate::site::{self, AaaSite};
use crate::witness::ObservedMachine;
use crate::{InvariantBreach, OracleBelief, TestUser, ensure};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use usher_core::bench::{MachineNetwork, NetworkHostHandle, TransmitRecord};
use usher_core::impair::ChannelConfig;
use usher_core::{DatagramPath, Duration, Instant, JobRequest, Machine, MachineInput, Transmit};
use usher_gateway::{
    DYNAMIC_SOCKET, GatewayCommand, GatewayEvent, GatewayJob, IkeGateway, IkeSaSelector, IkeSaStatus,
    NAT_SOCKET, SOCKET,
};
use usher_ike::credentials::IkeCredentials;

/// The token of [`GatewayCommand::Status`].
const STATUS: u64 = 99;
/// The number of clients.
pub(super) const SLOTS: usize = 4;
pub(super) const MOST_SAS: usize = 8;
pub(super) const MOST_HALF_OPEN: usize = 4;
pub(super) const COOKIES_FROM: usize = 2;
/// The time for which two IKE_SAs of a user may share an address. The older one ends when its client answers or times
/// out.
const HANDOVER: Duration = Duration::from_secs(40);
/// The number of recorded datagrams, for replays.
const REPLAY_CAPACITY: usize = 512;
/// The delay of a datagram.
const DELAY: Duration = Duration::from_millis(5);
/// Octets of an SPI.
const SPI: usize = 8;

type InitiatorSpi = [u8; SPI];

/// The impairment of a client's next datagram.
#[derive(Clone, Copy, Debug)]
enum DatagramFate {
    Lost,
    Twice,
    Delayed(Duration),
    /// It comes from the address of this slot.
    From(usize),
}

/// A client's datagram.
#[derive(Clone, Debug)]
struct SentDatagram {
    path: DatagramPath,
    octets: Vec<u8>,
    /// Its arrival time. `None`: it is lost or late.
    arrives: Option<Instant>,
}

/// Datagrams in flight, and the users of their SPIs.
#[derive(Debug, Default)]
struct DatagramWire {
    belief: OracleBelief,
    /// The user whose password or certificate each host has, by host number.
    owners: BTreeMap<usize, TestUser>,
    fates: BTreeMap<usize, DatagramFate>,
    /// The user whose dialogue used an initiator's SPI first.
    spis: BTreeMap<InitiatorSpi, TestUser>,
    recorded_datagrams: Vec<SentDatagram>,
    /// Datagrams that arrive from another address.
    rerouted_datagrams: Vec<(DatagramPath, Vec<u8>)>,
}

/// Returns a datagram's path as the gateway sees it.
fn arrival_path(path: &DatagramPath, from: SocketAddr) -> DatagramPath {
    let socket = if path.remote.port() == 4500 { NAT_SOCKET } else { SOCKET };
    DatagramPath { socket, local: path.remote, remote: from }
}

/// Returns the initiator's SPI of an IKE datagram, with or without the non-ESP marker.
fn initiator_spi(path: &DatagramPath, octets: &[u8]) -> Option<InitiatorSpi> {
    let message = if path.remote.port() == 4500 { octets.strip_prefix(&[0; 4])? } else { octets };
    message.first_chunk().copied()
}

impl DatagramWire {
    /// Sends a datagram. Returns the delays of its copies.
    fn carry_datagram(&mut self, sent: &mut TransmitRecord) -> Vec<Duration> {
        let at_once = vec![Duration::ZERO];
        let (Transmit::Datagram { path }, Some(owner)) = (sent.transmit, self.owners.get(&sent.from)) else {
            return at_once;
        };
        if let Some(spi) = initiator_spi(&path, &sent.bytes) {
            self.spis.entry(spi).or_insert(self.belief.believed_owner(*owner));
        }
        let copies = match self.fates.remove(&sent.from) {
            None => at_once,
            Some(DatagramFate::Lost) => Vec::new(),
            Some(DatagramFate::Twice) => vec![Duration::ZERO, Duration::from_millis(3)],
            Some(DatagramFate::Delayed(late)) => vec![late],
            Some(DatagramFate::From(slot)) => {
                let from = SocketAddr::new(client_address(slot, false), path.local.port());
                self.rerouted_datagrams.push((arrival_path(&path, from), sent.bytes.clone()));
                Vec::new()
            }
        };
        if self.recorded_datagrams.len() < REPLAY_CAPACITY {
            let in_time = copies.first().is_some_and(|late| late.is_zero());
            let arrives = in_time.then(|| sent.sent_at + DELAY);
            self.recorded_datagrams.push(SentDatagram { path, octets: sent.bytes.clone(), arrives });
        }
        copies
    }
}

/// Does a host's jobs. The gateway's jobs may wait for an operation.
struct JobWorker {
    credentials: Arc<IkeCredentials>,
    is_paused: bool,
    queued_jobs: VecDeque<JobRequest<GatewayJob>>,
}

impl JobWorker {
    fn run_job(&self, job: JobRequest<GatewayJob>) -> Option<GatewayCommand> {
        match job.job {
            GatewayJob::Ike(what) => {
                Some(GatewayCommand::Done(self.credentials.answer_job(&JobRequest::new(job.token, what))))
            }
            GatewayJob::EapStep(step) => Some(GatewayCommand::EapStepDone(step.run_eap_step())),
            GatewayJob::Lease(_) => None,
        }
    }
}

/// A client in a slot.
struct ClientHost {
    handle: NetworkHostHandle<IkeGateway>,
    plan: ClientPlan,
    helpers: Rc<RefCell<JobWorker>>,
}

/// A gateway, its clients and its AAA server.
pub(super) struct IkeTestNetwork {
    net: MachineNetwork,
    gateway: NetworkHostHandle<ObservedMachine<IkeGateway>>,
    helpers: Rc<RefCell<JobWorker>>,
    aaa: AaaSite,
    hosts: Vec<ClientHost>,
    internet: Rc<RefCell<DatagramWire>>,
    start_count: u64,
    /// The number of sessions reported to earlier AAA servers.
    reported_sessions: usize,
    /// All Acct-Session-Ids of the gateway.
    sessions: BTreeSet<String>,
    /// The time since which two sessions of a user share an address.
    shared: BTreeMap<(IpAddr, String, String), Instant>,
    outcome: RunOutcome,
}

fn gateway_address() -> IpAddr {
    GATEWAY.parse().expect("an address")
}

/// Returns one of two addresses of a client.
const fn client_address(slot: usize, second: bool) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 10 + slot as u8 + 10 * second as u8))
}

/// Adds a host with sockets at each of its addresses. Its jobs are done.
fn add_host<M>(
    net: &mut MachineNetwork,
    machine: M,
    credentials: Arc<IkeCredentials>,
    addresses: &[IpAddr],
) -> (NetworkHostHandle<M>, Rc<RefCell<JobWorker>>)
where
    M: Machine<Command = GatewayCommand, Event = GatewayEvent, Job = GatewayJob> + 'static,
{
    let host = net.add_host(machine, addresses);
    for address in addresses {
        net.bind_socket(host, SOCKET, SocketAddr::new(*address, 500));
        net.bind_socket(host, NAT_SOCKET, SocketAddr::new(*address, 4500));
    }
    let helpers =
        Rc::new(RefCell::new(JobWorker { credentials, is_paused: false, queued_jobs: VecDeque::new() }));
    let does = helpers.clone();
    net.on_job(host, move |job| {
        let mut helpers = does.borrow_mut();
        if helpers.is_paused {
            helpers.queued_jobs.push_back(job);
            return None;
        }
        Some((Duration::from_millis(2), helpers.run_job(job)?))
    });
    (host, helpers)
}

impl IkeTestNetwork {
    pub(super) fn new(belief: OracleBelief) -> Self {
        let channel = ChannelConfig { delay: DELAY, ..ChannelConfig::default() };
        let mut net = MachineNetwork::new(channel);
        let (gateway, credentials) = host::build_gateway(1);
        let (gateway, helpers) =
            add_host(&mut net, ObservedMachine::new(gateway), credentials, &[gateway_address()]);
        net.bind_socket(gateway, DYNAMIC_SOCKET, SocketAddr::new(gateway_address(), site::DYNAMIC_PORT));
        let aaa = AaaSite::new(&mut net, gateway_address());
        let internet = Rc::new(RefCell::new(DatagramWire { belief, ..DatagramWire::default() }));
        let mut hosts = Vec::new();
        for slot in 0..SLOTS {
            let plan = ClientPlan::honest_plan(TestUser::Eve, ClientProof::Md5);
            let addresses = [client_address(slot, false), client_address(slot, true)];
            let (client, credentials) = host::build_client(&plan, 100 + slot as u64, addresses[0]);
            let (at, helpers) = add_host(&mut net, client, credentials, &addresses);
            internet.borrow_mut().owners.insert(at.number, TestUser::Eve);
            hosts.push(ClientHost { handle: at, plan, helpers });
        }
        let carries = internet.clone();
        net.intercept_transmits(move |_, sent| carries.borrow_mut().carry_datagram(sent));
        Self {
            net,
            gateway,
            helpers,
            aaa,
            hosts,
            internet,
            start_count: 0,
            reported_sessions: 0,
            sessions: BTreeSet::new(),
            shared: BTreeMap::new(),
            outcome: RunOutcome::default(),
        }
    }

    fn run_for(&mut self, span: Duration) {
        let Self { net, aaa, gateway, reported_sessions: told, internet, .. } = self;
        site::run_network(net, span, |net| {
            let elsewhere = std::mem::take(&mut internet.borrow_mut().rerouted_datagrams);
            for (path, data) in elsewhere {
                net.inject_input(*gateway, MachineInput::Datagram { path, data: &data });
            }
            aaa.answer_jobs(net);
            // The gateway names a session's user only while the session exists.
            let (sessions, _) = aaa.session_counts();
            if std::mem::replace(told, sessions) != sessions {
                let _ = net.send_command(*gateway, GatewayCommand::Status { token: STATUS });
            }
        });
    }

    pub(super) fn start_client(&mut self, slot: usize, [who, how]: [u8; 2]) {
        let method = ClientProof::ALL[usize::from(how & 7) % ClientProof::ALL.len()];
        let (owner, claimed) = match (method, TestUser::from_number(who)) {
            (ClientProof::Certificate, _) => (TestUser::Printer, TestUser::Printer),
            // A user with an address only has no password.
            (_, TestUser::Printer) => (TestUser::Eve, TestUser::from_number(who >> 2)),
            (_, owner) => (owner, TestUser::from_number(who.wrapping_add(who >> 2))),
        };
        self.internet.borrow_mut().owners.insert(self.hosts[slot].handle.number, owner);
        self.hosts[slot].plan = ClientPlan {
            owner,
            claimed,
            method,
            spelling: who >> 4,
            is_anonymous: how & 8 != 0,
            reauthentication: how >> 4 & 3,
            omits_initial_contact: how & 64 != 0,
        };
        self.switch_off(slot);
        self.connect_client(slot);
    }
    pub(super) fn pass_time(&mut self, [how, _]: [u8; 2]) {
        const SPANS: [u64; 8] = [1, 2, 5, 20, 100, 1_000, 15_000, 61_000];
        self.run_for(Duration::from_millis(SPANS[usize::from(how) % SPANS.len()]));
    }
    pub(super) fn play_dialogue(&mut self) {
        self.run_for(Duration::from_secs(2));
    }
    pub(super) fn set_fate(&mut self, slot: usize, [how, what]: [u8; 2]) {
        let fate = match how % 4 {
            0 => DatagramFate::Lost,
            1 => DatagramFate::Twice,
            2 => DatagramFate::Delayed(Duration::from_millis(u64::from(what) * 10)),
            _ => DatagramFate::From(usize::from(what) % SLOTS),
        };
        self.internet.borrow_mut().fates.insert(self.hosts[slot].handle.number, fate);
    }

    /// Replays an earlier datagram to the gateway. It is answered or counted. From another address it costs no key
    /// exchange while cookies are required (RFC 7296 §2.6).
    pub(super) fn replay_datagram(&mut self, [which, how]: [u8; 2]) -> Result<(), InvariantBreach> {
        let Some(datagram) = ({
            let internet = self.internet.borrow();
            let last = internet.recorded_datagrams.len().checked_sub(1);
            last.map(|last| internet.recorded_datagrams[last.saturating_sub(usize::from(which))].clone())
        }) else {
            return Ok(());
        };
        let SentDatagram { path, octets, arrives } = datagram;
        let arrived = arrives.is_some_and(|at| at < self.net.now());
        let elsewhere = how & 1 != 0;
        let from = match (elsewhere, path.local.ip().is_unspecified()) {
            (true, _) | (_, true) => {
                SocketAddr::new(client_address(usize::from(how >> 1) % SLOTS, false), path.local.port())
            }
            _ => path.local,
        };
        let cookies = self.net[self.gateway].half_open() >= COOKIES_FROM;
        self.net.drain_hosts();
        let key_exchanges = |net: &MachineNetwork| net[self.gateway].work.get("ike.key_exchange").copied();
        let before = (self.counter_sum(), self.net.sent_transmits().len(), key_exchanges(&self.net));
        self.net.inject_input(
            self.gateway,
            MachineInput::Datagram { path: arrival_path(&path, from), data: &octets },
        );
        let after = (self.counter_sum(), self.net.sent_transmits().len(), key_exchanges(&self.net));
        ensure(!(arrived && elsewhere && cookies) || before.2 == after.2, || {
            "a datagram from elsewhere costs key exchanges before its sender is known".into()
        })?;
        ensure(!arrived || before != after, || format!("a datagram is lost without a counter: {octets:02x?}"))
    }
    /// Returns the sum of the gateway's counters.
    fn counter_sum(&self) -> u64 {
        use crate::witness::BudgetedMachine;
        IkeGateway::counter_sum(&self.net[self.gateway])
    }
    /// Delays the gateway's jobs, does one, refuses one, or does all.
    pub(super) fn control_jobs(&mut self, [how, which]: [u8; 2]) {
        let answer = {
            let mut helpers = self.helpers.borrow_mut();
            helpers.is_paused = how & 3 == 0 || helpers.is_paused && how & 3 != 3;
            let waiting = helpers.queued_jobs.len().max(1);
            let count = if how & 3 == 3 { helpers.queued_jobs.len() } else { usize::from(how & 3 != 0) };
            let jobs: Vec<_> = (0..count)
                .filter_map(|_| {
                    let at = if count == 1 { usize::from(which) % waiting } else { 0 };
                    helpers.queued_jobs.remove(at)
                })
                .collect();
            let refuses = how & 3 == 2;
            let answers = jobs.into_iter().filter_map(|job| match refuses {
                true => Some(job.job.dropped_job_command(job.token)),
                false => helpers.run_job(job),
            });
            answers.collect::<Vec<_>>()
        };
        for command in answer {
            // The login may have ended meanwhile.
            let _ = self.net.send_command(self.gateway, command);
        }
    }

    pub(super) fn rekey_sas(&mut self, slot: usize, [how, _]: [u8; 2]) {
        let rekey = GatewayCommand::Rekey { token: 1, selection: IkeSaSelector::All, children: how & 1 != 0 };
        let done = match how & 2 {
            0 => self.net.send_command(self.hosts[slot].handle, rekey),
            _ => self.net.send_command(self.gateway, rekey),
        };
        debug_assert!(done.is_ok(), "a command that is always taken");
    }
    pub(super) fn move_client(&mut self, slot: usize, [how, _]: [u8; 2]) {
        let there = SocketAddr::new(client_address(slot, how & 1 != 0), 0);
        // Without an IKE_SA, the command has no effect.
        let _ = self
            .net
            .send_command(self.hosts[slot].handle, GatewayCommand::Addresses(vec![("home".into(), there)]));
    }
    pub(super) fn disconnect_client(&mut self, slot: usize) {
        let _ = self.net.send_command(
            self.hosts[slot].handle,
            GatewayCommand::Down { token: 2, selection: IkeSaSelector::All },
        );
    }
    pub(super) fn connect_client(&mut self, slot: usize) {
        let _ = self.net.send_command(
            self.hosts[slot].handle,
            GatewayCommand::Connect { token: 1, connection: "home".into() },
        );
    }
    pub(super) fn switch_off(&mut self, slot: usize) {
        self.start_count += 1;
        let host = &self.hosts[slot];
        let (client, credentials) =
            host::build_client(&host.plan, 1000 + self.start_count, client_address(slot, false));
        self.net[host.handle] = client;
        host.helpers.borrow_mut().credentials = credentials;
        self.net.set_epoch(host.handle, usher_core::bench::EPOCH);
    }
    pub(super) fn close_sessions(&mut self, [who, how]: [u8; 2]) {
        let which = match how & 3 {
            0 => IkeSaSelector::All,
            _ => IkeSaSelector::Named(TestUser::from_number(who).name().into()),
        };
        let _ = self.net.send_command(self.gateway, GatewayCommand::Down { token: 3, selection: which });
    }
    pub(super) fn disconnect_user(&mut self, [who, _]: [u8; 2]) {
        self.aaa.disconnect_user(&mut self.net, TestUser::from_number(who));
    }
    /// Kills the gateway and restarts it.
    pub(super) fn restart_gateway(&mut self) {
        self.net.set_silent(self.gateway, true);
        self.run_for(Duration::from_secs(2));
        self.net.set_silent(self.gateway, false);
        self.start_count += 1;
        let (gateway, credentials) = host::build_gateway(5000 + self.start_count);
        self.net[self.gateway] = ObservedMachine::new(gateway);
        *self.helpers.borrow_mut() =
            JobWorker { credentials, is_paused: false, queued_jobs: VecDeque::new() };
        self.shared.clear();
        self.net.set_epoch(self.gateway, usher_core::bench::EPOCH);
        self.run_for(Duration::ZERO);
    }

    /// Returns the gateway's IKE_SAs, by its own status.
    fn gateway_sas(&mut self) -> Vec<IkeSaStatus> {
        self.run_for(Duration::ZERO);
        let _ = self.net.send_command(self.gateway, GatewayCommand::Status { token: STATUS });
        let mut sas = Vec::new();
        for (_, event) in self.net.take_events(self.gateway) {
            match event {
                GatewayEvent::Status { token: STATUS, status } => {
                    sas = status.sas;
                    let whose = |sa: &IkeSaStatus| Some((sa.session.clone(), user_named(&sa.user)?));
                    self.aaa.accounts.extend(sas.iter().filter_map(whose));
                }
                GatewayEvent::LoginFailed { .. } => self.outcome.refused += 1,
                _ => {}
            }
        }
        sas
    }

    /// Checks the invariants after an operation.
    pub(super) fn check_invariants(&mut self) -> Result<(), InvariantBreach> {
        let sas = self.gateway_sas();
        self.net[self.gateway].take_breach()?;
        let mut holders: BTreeMap<IpAddr, &IkeSaStatus> = BTreeMap::new();
        let mut shared = BTreeSet::new();
        for sa in &sas {
            let who = user_named(&sa.user);
            let spi = sa.spis.0.0;
            let internet = self.internet.borrow();
            let proved = internet.spis.get(&spi).copied();
            ensure(who.is_some() && (proved.is_none() || proved == who), || {
                format!("{} has the IKE_SA {spi:02x?}, which {proved:?} has proved", sa.user)
            })?;
            ensure(user_identified(&sa.identity) == who, || {
                format!("{} has an IKE_SA of {}", sa.user, sa.identity)
            })?;
            self.sessions.insert(sa.session.clone());
            for address in &sa.addresses {
                let Some(before) = holders.insert(*address, sa).filter(|before| before.session != sa.session)
                else {
                    continue;
                };
                // A user who reauthenticates has the address in both IKE_SAs until the older one ends.
                let same = (&before.connection, user_named(&before.user)) == (&sa.connection, who);
                ensure(same, || format!("{address} is of {} and of {}", before.user, sa.user))?;
                shared.insert((*address, before.session.clone(), sa.session.clone()));
            }
        }
        let now = self.net.now();
        self.shared.retain(|pair, _| shared.contains(pair));
        for pair in shared {
            let since = *self.shared.entry(pair.clone()).or_insert(now);
            ensure(now <= since + HANDOVER, || format!("{} is of two sessions since {since:?}", pair.0))?;
        }
        self.check_work()?;
        self.aaa.check_sessions(user_named)
    }

    /// Checks the cost of unauthenticated clients: one signature and chain for each IKE_SA that was begun, and at
    /// most one pending job for each half-open IKE_SA.
    fn check_work(&self) -> Result<(), InvariantBreach> {
        let gateway = &self.net[self.gateway];
        let (_, _, ike) = gateway.counters();
        for (label, most) in [("ike.sa", ike.begun), ("ike.sign", ike.begun), ("ike.verify", ike.begun)] {
            let done = gateway.work.get(label).copied().unwrap_or_default();
            ensure(done <= most, || format!("{done} units of {label}, and {most} may be"))?;
        }
        let awaited =
            self.helpers.borrow().queued_jobs.iter().filter(|job| job.origin.is_result_needed()).count();
        let half_open = gateway.half_open();
        ensure(awaited <= half_open, || format!("{awaited} jobs wait, of {half_open} half-open IKE_SAs"))
    }

    /// Ends all clients and checks that no SA remains.
    pub(super) fn finish_run(mut self) -> Result<RunOutcome, InvariantBreach> {
        self.control_jobs([3, 0]);
        for slot in 0..SLOTS {
            self.disconnect_client(slot);
        }
        self.run_for(Duration::from_secs(5));
        self.close_sessions([0, 0]);
        self.run_for(Duration::from_secs(600));
        self.check_invariants()?;
        let left = (self.gateway_sas().len(), self.net[self.gateway].half_open());
        ensure(left == (0, 0), || format!("{left:?} IKE_SAs are left"))?;
        let used: u64 = self.net[self.gateway].pool_usage().map(|pool| pool.addresses.0).sum();
        ensure(used == 0, || format!("{used} addresses are held, and nobody is there"))?;
        let (accounted, open) = self.aaa.session_counts();
        ensure(open == 0, || {
            format!("clients have gone, and sessions are open in the ledger: {}", self.aaa.describe_open())
        })?;
        (self.outcome.accounted, self.outcome.sessions) = (accounted, self.sessions.len());
        Ok(self.outcome)
    }
}

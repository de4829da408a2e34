//! A run of the concentrator, its hosts and its AAA server.

use super::RunOutcome;
use super::ethernet::{EthernetWire, FrameFate, rewrite_frame};
use crate::site::{self, AaaSite};
use crate::witness::{BudgetedMachine, ObservedMachine};
use crate::{
    DialogueOperation, InvariantBreach, OracleBelief, TestUser, ensure, respell_text, tunnels, user_from_name,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use usher_concentrator::config::parse;
use usher_concentrator::track::SessionLogIndex;
use usher_concentrator::{
    AccessConcentrator, AccessConcentratorCommand, AccessConcentratorConfig, AccessConcentratorEvent,
    ConcentratorJob, DYNAMIC_SOCKET, PppoeSessionSelector, SessionEntry, SessionStatus,
};
use usher_config::EmptyConfigEnvironment;
use usher_core::bench::{EPOCH, MachineNetwork, NetworkHostHandle};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, JobRequest, LinkLayerPortId, MachineInput, SecureRng, Seed, WallTime};
use usher_crypto::tls::SharedWallClock;
use usher_eap::method::md5::EapMd5Password;
use usher_eap::method::mschapv2::MsChapV2Account;
use usher_eap::method::ttls::TtlsInnerCredential;
use usher_ppp::auth::{AuthenticationProtocol, PppCredentials};
use usher_ppp::client::{ClientCommand, ClientConfig, ClientEvent, PppoeClient};
use usher_ppp::pppoe::{MacAddress, PppoeFrame, PppoeStage};
use usher_ppp::{AddressFamily, NegotiatedAddresses};

/// The number of hosts.
pub(super) const SLOTS: usize = 4;
pub(super) const MOST_SESSIONS: usize = 4;
pub(super) const MOST_OUTSIDE: usize = 3;
const PORT: LinkLayerPortId = LinkLayerPortId(0);
const AC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xac]);
const CONCENTRATOR: &str = "192.0.2.1";

const FILE: &str = r#"
[listen]
interfaces = ["eth1"]
[service]
address = "10.0.0.1"
pools = ["guests"]
prefix_pool = "links"
[authentication]
protocols = ["mschapv2", "eap", "chap", "pap"]
[limits]
sessions = 4
half_open = 3
sessions_per_station = 2
[[pool]]
name = "guests"
ranges = ["10.1.0.0/29"]
[[pool]]
name = "links"
ranges = ["2001:db8:1::/60/64"]
[aaa]
nas_identifier = "campus.usher.test"
accounting = true
[[aaa.radius]]
address = "203.0.113.1:1812"
secret = "the secret of RADIUS"
[aaa.dynamic]
[tracking]
"#;

thread_local! {
    /// The parsed configuration. Parsing it again would cost more than a login.
    static CONFIG: AccessConcentratorConfig = {
        let clock = SharedWallClock::from_time(WallTime::UNIX_EPOCH);
        let mut config = parse("pppoe.toml", FILE, &EmptyConfigEnvironment, &clock).expect("the file is right").config;
        config.ppp.ports[0].address = AC;
        config
    };
}

fn socket_address(text: &str, port: u16) -> SocketAddr {
    SocketAddr::new(text.parse().expect("an address"), port)
}

/// Returns the Ethernet address of host `n`.
const fn station_address(n: u8) -> MacAddress {
    MacAddress([2, 0, 0, 1, 0, n & 3])
}

fn seeded_rng(n: u64) -> SecureRng {
    Seed::new(n).derive_secure_rng("dialogues", 0)
}

/// A host in a slot.
struct EthernetHost {
    handle: NetworkHostHandle<PppoeClient>,
    config: ClientConfig,
    /// The session in which IPCP assigned an address, and the address.
    configured: Option<(u16, Ipv4Addr)>,
}

/// A concentrator, its hosts and its AAA server.
pub(super) struct PppoeTestNetwork {
    net: MachineNetwork,
    concentrator: NetworkHostHandle<ObservedMachine<AccessConcentrator>>,
    config: AccessConcentratorConfig,
    aaa: AaaSite,
    hosts: Vec<EthernetHost>,
    ethernet: Rc<RefCell<EthernetWire>>,
    log: Rc<RefCell<Vec<String>>>,
    start_count: u64,
    /// The users, by the concentrator's session number.
    sessions: BTreeMap<u64, TestUser>,
    /// The data plane's entries, by the same number.
    installed: BTreeMap<u64, SessionEntry>,
    breach: Option<InvariantBreach>,
    work: BTreeMap<&'static str, u64>,
    outcome: RunOutcome,
}

fn host_config(operation: DialogueOperation) -> (TestUser, ClientConfig) {
    let [who, how] = operation.how;
    let owner = match TestUser::from_number(who) {
        TestUser::Printer => TestUser::Eve,
        person => person,
    };
    let claimed = TestUser::from_number(who.wrapping_add(who >> 2));
    let name = respell_text(claimed.name(), how & 1);
    let protocol = AuthenticationProtocol::ALL[usize::from(who >> 4) % AuthenticationProtocol::ALL.len()];
    let password = owner.password().as_bytes();
    // A tunnel may hide the identity.
    let is_tunnel = protocol == AuthenticationProtocol::Eap && who >> 7 != 0;
    let name = if is_tunnel && how & 16 != 0 { "anonymous".into() } else { name };
    let inner = claimed.name().as_bytes();
    let credentials = PppCredentials {
        name: name.into_bytes(),
        password: password.into(),
        protocols: vec![protocol],
        eap_methods: Arc::new([match operation.how[0] >> 6 {
            0 => Box::new(EapMd5Password::new(password)),
            1 => Box::new(MsChapV2Account::new(claimed.name().as_bytes(), password)),
            2 => tunnels::peap_offer(inner, Box::new(MsChapV2Account::new(inner, password))),
            _ => tunnels::ttls_offer(inner, TtlsInnerCredential::MsChapV2(password.into())),
        }]),
    };
    // The host's own address, or a forged one.
    let address = station_address(operation.slot.wrapping_add((how >> 1) & 3));
    (owner, ClientConfig { persist: how & 8 != 0, ..ClientConfig::new(PORT, address, credentials) })
}

impl PppoeTestNetwork {
    pub(super) fn new(belief: OracleBelief) -> Self {
        let config = CONFIG.with(AccessConcentratorConfig::clone);
        let channel = ChannelConfig { delay: Duration::from_millis(2), ..ChannelConfig::default() };
        let mut net = MachineNetwork::new(channel);
        let concentrator = AccessConcentrator::new(config.clone(), seeded_rng(0)).expect("it holds together");
        let concentrator =
            net.add_host(ObservedMachine::new(concentrator), &[socket_address(CONCENTRATOR, 0).ip()]);
        net.bind_socket(concentrator, DYNAMIC_SOCKET, socket_address(CONCENTRATOR, site::DYNAMIC_PORT));
        let log = Rc::new(RefCell::new(Vec::new()));
        let keeps = log.clone();
        net.on_job(concentrator, move |JobRequest { token, job: what, .. }| match what {
            ConcentratorJob::Log(record) => {
                keeps.borrow_mut().push(record.to_line());
                Some((Duration::from_millis(4), AccessConcentratorCommand::Logged { token, is_stored: true }))
            }
            ConcentratorJob::Translation(_) => None,
        });
        let keeps = log.clone();
        net.on_event(concentrator, move |event| {
            if let AccessConcentratorEvent::Log(record) = event {
                keeps.borrow_mut().push(record.to_line());
            }
            None
        });
        let aaa = AaaSite::new(&mut net, socket_address(CONCENTRATOR, 0).ip());
        let ethernet = EthernetWire { belief, concentrator: concentrator.number, ..EthernetWire::default() };
        let ethernet = Rc::new(RefCell::new(ethernet));
        let carries = ethernet.clone();
        net.intercept_transmits(move |_, sent| carries.borrow_mut().carry_frame(sent));
        let mut hosts = Vec::new();
        for n in 0..SLOTS as u8 {
            let operation = DialogueOperation { code: 0, slot: n, how: [0, 0] };
            let (owner, config) = host_config(operation);
            let at = net.add_host(PppoeClient::new(config.clone(), seeded_rng(100 + u64::from(n))), &[]);
            ethernet.borrow_mut().owners.insert(at.number, owner);
            hosts.push(EthernetHost { handle: at, config, configured: None });
        }
        let ends = hosts.iter().map(|host| host.handle.number).chain([concentrator.number]);
        net.join_ports_in_segment(&ends.map(|number| (number, PORT)).collect::<Vec<_>>());
        Self {
            net,
            concentrator,
            config,
            aaa,
            hosts,
            ethernet,
            log,
            start_count: 0,
            sessions: BTreeMap::new(),
            installed: BTreeMap::new(),
            breach: None,
            work: BTreeMap::new(),
            outcome: RunOutcome::default(),
        }
    }

    /// Lets time pass. The server's jobs are done at once.
    fn run_for(&mut self, span: Duration) {
        let Self { net, aaa, concentrator, .. } = self;
        let mut heard = Vec::new();
        site::run_network(net, span, |net| {
            aaa.answer_jobs(net);
            heard.extend(net.take_events(*concentrator));
        });
        self.apply_events(heard);
    }
    fn answer_jobs(&mut self) {
        self.run_for(Duration::ZERO);
    }
    fn apply_events(&mut self, events: Vec<(usher_core::Instant, AccessConcentratorEvent)>) {
        for (_, event) in events {
            if let Err(breach) = self.handle_event(event) {
                self.breach.get_or_insert(breach);
            }
        }
    }

    /// Handles an event of the concentrator.
    fn handle_event(&mut self, event: AccessConcentratorEvent) -> Result<(), InvariantBreach> {
        match event {
            AccessConcentratorEvent::LoginAccepted(status) => self.let_in(&status)?,
            AccessConcentratorEvent::Install(entry) => drop(self.installed.insert(entry.id, *entry)),
            AccessConcentratorEvent::Remove { id, .. } => drop(self.installed.remove(&id)),
            AccessConcentratorEvent::LoginFailed { .. } => self.outcome.refused += 1,
            _ => {}
        }
        Ok(())
    }
    fn let_in(&mut self, status: &SessionStatus) -> Result<(), InvariantBreach> {
        let SessionStatus { id, user, session, station, number, .. } = status;
        let person =
            user_from_name(user).ok_or_else(|| InvariantBreach(format!("{user} is nobody, and let in")))?;
        let ethernet = self.ethernet.borrow();
        let here = |named: &(MacAddress, u16)| named.1 == *number && named.0.to_string() == *station;
        let shown = ethernet.proofs.iter().find(|(named, _)| here(named)).map(|(_, proofs)| proofs);
        ensure(shown.is_some_and(|shown| shown.contains(&person)), || {
            format!("{user} is let in at {station} in session {number}, where {shown:?} proved something")
        })?;
        self.sessions.insert(*id, person);
        self.aaa.accounts.insert(session.clone(), person);
        self.outcome.let_in += 1;
        Ok(())
    }

    pub(super) fn start_host(&mut self, slot: usize, operation: DialogueOperation) {
        let (owner, config) = host_config(operation);
        self.ethernet.borrow_mut().owners.insert(self.hosts[slot].handle.number, owner);
        self.hosts[slot].config = config;
        self.switch_off(slot);
        self.connect_host(slot);
    }
    pub(super) fn pass_time(&mut self, [how, _]: [u8; 2]) {
        const SPANS: [u64; 8] = [1, 2, 5, 20, 100, 1_000, 15_000, 61_000];
        self.run_for(Duration::from_millis(SPANS[usize::from(how) % SPANS.len()]));
    }
    pub(super) fn play_dialogue(&mut self) {
        self.run_for(Duration::from_secs(2));
    }
    pub(super) fn set_fate(&mut self, slot: usize, [how, what]: [u8; 2]) {
        let mut ethernet = self.ethernet.borrow_mut();
        let other = station_address(what);
        let fate = match how % 5 {
            0 => FrameFate::Lost,
            1 => FrameFate::Twice,
            2 => FrameFate::Delayed(Duration::from_millis(u64::from(what) * 10)),
            3 => FrameFate::From(other),
            _ => FrameFate::OtherSession(ethernet.last.get(&other).copied().unwrap_or(u16::from(what))),
        };
        ethernet.fates.insert(self.hosts[slot].handle.number, fate);
    }
    /// Replays an earlier frame to the concentrator. Discovery is answered or counted (RFC 2516 §5).
    pub(super) fn replay_frame(&mut self, [which, how]: [u8; 2]) -> Result<(), InvariantBreach> {
        let (frame, discovery) = {
            let mut ethernet = self.ethernet.borrow_mut();
            let Some(last) = ethernet.recorded_frames.len().checked_sub(1) else { return Ok(()) };
            // Small numbers select the newest frames.
            let (owner, mut frame) =
                ethernet.recorded_frames[last.saturating_sub(usize::from(which))].clone();
            let other = station_address(how >> 2);
            let number = ethernet.last.get(&other).copied();
            rewrite_frame(&mut frame, (how & 1 != 0).then_some(other), number.filter(|_| how & 2 != 0));
            ethernet.record_proof(owner, &frame);
            let discovery = PppoeFrame::parse(&frame).is_ok_and(|frame| frame.stage == PppoeStage::Discovery);
            (frame, discovery)
        };
        let before = (self.counter_sum(), self.net.sent_transmits().len());
        self.net.inject_input(self.concentrator, MachineInput::Frame { port: PORT, data: &frame });
        let after = (self.counter_sum(), self.net.sent_transmits().len());
        self.answer_jobs();
        ensure(!discovery || before != after, || {
            format!("a frame of discovery is lost without a counter: {frame:02x?}")
        })
    }
    /// Returns the sum of the concentrator's counters.
    fn counter_sum(&self) -> u64 {
        BudgetedMachine::counter_sum(&*self.net[self.concentrator])
    }
    pub(super) fn disconnect_host(&mut self, slot: usize) {
        // Without a session, the command has no effect.
        let _ = self.net.send_command(self.hosts[slot].handle, ClientCommand::Disconnect);
    }
    pub(super) fn connect_host(&mut self, slot: usize) {
        // A host that is already connected continues.
        let _ = self.net.send_command(self.hosts[slot].handle, ClientCommand::Connect);
    }
    pub(super) fn switch_off(&mut self, slot: usize) {
        self.start_count += 1;
        let host = &mut self.hosts[slot];
        self.net[host.handle] = PppoeClient::new(host.config.clone(), seeded_rng(1000 + self.start_count));
        self.net.take_events(host.handle);
        host.configured = None;
    }
    pub(super) fn close_sessions(&mut self, [who, how]: [u8; 2]) {
        let which = match how & 3 {
            0 => PppoeSessionSelector::All,
            _ => PppoeSessionSelector::Named(TestUser::from_number(who).name().into()),
        };
        let done = self
            .net
            .send_command(self.concentrator, AccessConcentratorCommand::Close { token: 1, selection: which });
        debug_assert!(done.is_ok(), "a command that is always taken");
    }
    pub(super) fn disconnect_user(&mut self, [who, _]: [u8; 2]) {
        self.aaa.disconnect_user(&mut self.net, TestUser::from_number(who));
    }
    /// Kills the concentrator and restarts it from its log.
    pub(super) fn restart_concentrator(&mut self) {
        self.net.set_silent(self.concentrator, true);
        self.run_for(Duration::from_secs(2));
        self.net.set_silent(self.concentrator, false);
        let mut index = SessionLogIndex::default();
        self.log.borrow().iter().for_each(|line| index.read_lines(line));
        let mut config = self.config.clone();
        (config.lost, config.unacknowledged_stops) =
            (index.open_sessions().collect(), index.unacknowledged_stops().collect());
        self.start_count += 1;
        let fresh = AccessConcentrator::new(config, seeded_rng(self.start_count)).expect("it holds together");
        self.net[self.concentrator] = ObservedMachine::new(fresh);
        self.net.set_epoch(self.concentrator, EPOCH);
        self.sessions.clear();
        self.installed.clear();
        let mut ethernet = self.ethernet.borrow_mut();
        ethernet.proofs.clear();
        ethernet.last.clear();
        drop(ethernet);
        self.answer_jobs();
    }

    /// Checks the invariants after an operation.
    pub(super) fn check_invariants(&mut self) -> Result<(), InvariantBreach> {
        self.net.drain_hosts();
        self.answer_jobs();
        if let Some(breach) = self.breach.take() {
            return Err(breach);
        }
        self.net[self.concentrator].take_breach()?;
        let (mut addresses, mut prefixes) = (BTreeMap::new(), BTreeMap::new());
        for (id, entry) in &self.installed {
            ensure(self.sessions.contains_key(id), || {
                format!("{entry:?} is let through, and nobody was let in")
            })?;
            let held = entry.ipv4.and_then(|address| addresses.insert(address, id));
            ensure(held.is_none(), || format!("{:?} is of two sessions", entry.ipv4))?;
            for (prefix, bits) in &entry.ipv6 {
                let held = prefixes.insert((*prefix, *bits), id);
                ensure(held.is_none(), || format!("{prefix} is of two sessions"))?;
            }
        }
        self.check_hosts()?;
        self.aaa.check_sessions(|name| TestUser::from_name(name.as_bytes()))?;
        let given = self.ethernet.borrow().delivered_frames;
        for (label, units) in self.net.take_work() {
            *self.work.entry(label).or_default() += u64::from(units);
        }
        for label in ["aaa.verdict", "eap.mschapv2"] {
            let done = self.work.get(label).copied().unwrap_or_default();
            ensure(done <= given, || format!("{done} units of {label} for {given} frames"))?;
        }
        Ok(())
    }

    /// Checks that the data plane accepts only the address that IPCP assigned (RFC 1332 §3.3).
    fn check_hosts(&mut self) -> Result<(), InvariantBreach> {
        for host in &mut self.hosts {
            for (_, event) in self.net.take_events(host.handle) {
                match event {
                    ClientEvent::Install {
                        number, network: NegotiatedAddresses::Ipv4 { local, .. }, ..
                    } => {
                        host.configured = Some((number, local));
                    }
                    ClientEvent::Remove { family: AddressFamily::Ipv4 } | ClientEvent::Ended { .. } => {
                        host.configured = None;
                    }
                    _ => {}
                }
            }
            let Some((number, address)) = host.configured else { continue };
            let here = |entry: &&SessionEntry| (entry.peer, entry.number) == (host.config.address, number);
            let given = self.installed.values().find(here).and_then(|entry| entry.ipv4);
            ensure(given.is_none_or(|given| given == address), || {
                format!("a host has {address} by IPCP, and packets of {given:?} are let through")
            })?;
        }
        Ok(())
    }

    /// Ends all hosts and checks that no session remains.
    pub(super) fn finish_run(mut self) -> Result<RunOutcome, InvariantBreach> {
        for slot in 0..SLOTS {
            self.disconnect_host(slot);
        }
        self.run_for(Duration::from_secs(300));
        self.close_sessions([0, 0]);
        self.run_for(Duration::from_secs(60));
        self.check_invariants()?;
        let left = (self.net[self.concentrator].session_count(), self.installed.len());
        ensure(left == (0, 0), || format!("{left:?} sessions are left"))?;
        let (accounted, open) = self.aaa.session_counts();
        ensure(open == 0, || {
            format!("hosts have gone, and sessions are open in the ledger: {}", self.aaa.describe_open())
        })?;
        self.outcome.accounted = accounted;
        Ok(self.outcome)
    }
}

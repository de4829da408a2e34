//! A run: the gateway, its clients, its AAA server, and time.

use super::RunOutcome;
use super::host::{self, ClientPlan, ClientProof, GATEWAY, identified, person};
use crate::site::{self, AaaSite};
use crate::witness::Witness;
use crate::{InvariantBreach, OracleBelief, Person, ensure};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use usher_core::bench::{At, Network, Sent};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Input, Instant, Job, Machine, Path, Transmit};
use usher_gateway::{
    Command, DYNAMIC_SOCKET, Event, Gateway, GatewayJob, NAT_SOCKET, SOCKET, SaStatus, Which,
};
use usher_ike::credentials::Credentials;

/// The token of [`Command::Status`].
const STATUS: u64 = 99;
/// How many clients there are.
pub(super) const SLOTS: usize = 4;
pub(super) const MOST_SAS: usize = 8;
pub(super) const MOST_HALF_OPEN: usize = 4;
pub(super) const COOKIES_FROM: usize = 2;
/// For how long two IKE_SAs of one user may have the same address: the older ends as soon as its client has answered, or does not.
const HANDOVER: Duration = Duration::from_secs(40);
/// Datagrams that are remembered, to come again.
const MOST_REMEMBERED: usize = 512;
/// How long a datagram is on its way.
const DELAY: Duration = Duration::from_millis(5);
/// Octets of an SPI.
const SPI: usize = 8;

type InitiatorSpi = [u8; SPI];

/// What becomes of a client's next datagram.
#[derive(Clone, Copy, Debug)]
enum DatagramFate {
    Lost,
    Twice,
    Late(Duration),
    /// It comes from the address of this place.
    From(usize),
}

/// A datagram of a client's.
#[derive(Clone, Debug)]
struct SentDatagram {
    path: Path,
    octets: Vec<u8>,
    /// When it arrived; `None`: it is lost or late.
    arrives: Option<Instant>,
}

/// Datagrams under way, and whose SPIs they name.
#[derive(Debug, Default)]
struct DatagramWire {
    belief: OracleBelief,
    /// By the number of the host: whose password or certificate it has.
    owners: BTreeMap<usize, Person>,
    fates: BTreeMap<usize, DatagramFate>,
    /// By the SPIs of initiators: in whose dialogue with the gateway they were seen first.
    spis: BTreeMap<InitiatorSpi, Person>,
    seen: Vec<SentDatagram>,
    /// Datagrams that arrive from elsewhere.
    elsewhere: Vec<(Path, Vec<u8>)>,
}

/// A datagram as the gateway receives it.
fn arrival(path: &Path, from: SocketAddr) -> Path {
    let socket = if path.remote.port() == 4500 { NAT_SOCKET } else { SOCKET };
    Path { socket, local: path.remote, remote: from }
}

/// The SPI of the initiator that a datagram of IKE names, with the marker of UDP encapsulation or without.
fn initiator(path: &Path, octets: &[u8]) -> Option<InitiatorSpi> {
    let message = if path.remote.port() == 4500 { octets.strip_prefix(&[0; 4])? } else { octets };
    message.first_chunk().copied()
}

impl DatagramWire {
    /// A datagram is sent; when its copies arrive.
    fn carry(&mut self, sent: &mut Sent) -> Vec<Duration> {
        let at_once = vec![Duration::ZERO];
        let (Transmit::Datagram { path }, Some(owner)) = (sent.transmit, self.owners.get(&sent.from)) else {
            return at_once;
        };
        if let Some(spi) = initiator(&path, &sent.bytes) {
            self.spis.entry(spi).or_insert(self.belief.about(*owner));
        }
        let copies = match self.fates.remove(&sent.from) {
            None => at_once,
            Some(DatagramFate::Lost) => Vec::new(),
            Some(DatagramFate::Twice) => vec![Duration::ZERO, Duration::from_millis(3)],
            Some(DatagramFate::Late(late)) => vec![late],
            Some(DatagramFate::From(slot)) => {
                let from = SocketAddr::new(address(slot, false), path.local.port());
                self.elsewhere.push((arrival(&path, from), sent.bytes.clone()));
                Vec::new()
            }
        };
        if self.seen.len() < MOST_REMEMBERED {
            let in_time = copies.first().is_some_and(|late| late.is_zero());
            let arrives = in_time.then(|| sent.at + DELAY);
            self.seen.push(SentDatagram { path, octets: sent.bytes.clone(), arrives });
        }
        copies
    }
}

/// What a host's helpers work by: jobs of the gateway may wait for an operation.
struct Helpers {
    credentials: Arc<Credentials>,
    holds: bool,
    held: VecDeque<Job<GatewayJob>>,
}

impl Helpers {
    fn answer(&self, job: Job<GatewayJob>) -> Option<Command> {
        match job.what {
            GatewayJob::Ike(what) => Some(Command::Done(self.credentials.answer(&Job::new(job.token, what)))),
            GatewayJob::Judge(judgement) => Some(Command::Judged(judgement.done())),
            GatewayJob::Lease(_) => None,
        }
    }
}

/// A client at a place.
struct ClientHost {
    at: At<Gateway>,
    plan: ClientPlan,
    helpers: Rc<RefCell<Helpers>>,
}

/// A gateway, its clients and its AAA server.
pub(super) struct World {
    net: Network,
    gateway: At<Witness<Gateway>>,
    helpers: Rc<RefCell<Helpers>>,
    aaa: AaaSite,
    hosts: Vec<ClientHost>,
    internet: Rc<RefCell<DatagramWire>>,
    begun: u64,
    /// How many sessions the AAA server had been told of.
    told: usize,
    /// Acct-Session-Ids that the gateway had.
    sessions: BTreeSet<String>,
    /// Since when two sessions of one user have an address.
    shared: BTreeMap<(IpAddr, String, String), Instant>,
    outcome: RunOutcome,
}

fn gateway_address() -> IpAddr {
    GATEWAY.parse().expect("an address")
}

/// One of two addresses of a client.
const fn address(slot: usize, second: bool) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 10 + slot as u8 + 10 * second as u8))
}

/// A host on the network, with its sockets at each of its addresses, whose jobs are done.
fn add<M>(
    net: &mut Network,
    machine: M,
    credentials: Arc<Credentials>,
    addresses: &[IpAddr],
) -> (At<M>, Rc<RefCell<Helpers>>)
where
    M: Machine<Command = Command, Event = Event, Job = GatewayJob> + 'static,
{
    let host = net.add(machine, addresses);
    for address in addresses {
        net.bind(host, SOCKET, SocketAddr::new(*address, 500));
        net.bind(host, NAT_SOCKET, SocketAddr::new(*address, 4500));
    }
    let helpers = Rc::new(RefCell::new(Helpers { credentials, holds: false, held: VecDeque::new() }));
    let does = helpers.clone();
    net.on_job(host, move |job| {
        let mut helpers = does.borrow_mut();
        if helpers.holds {
            helpers.held.push_back(job);
            return None;
        }
        Some((Duration::from_millis(2), helpers.answer(job)?))
    });
    (host, helpers)
}

impl World {
    pub(super) fn new(belief: OracleBelief) -> Self {
        let channel = ChannelConfig { delay: DELAY, ..ChannelConfig::default() };
        let mut net = Network::new(channel);
        let (gateway, credentials) = host::gateway(1);
        let (gateway, helpers) = add(&mut net, Witness::new(gateway), credentials, &[gateway_address()]);
        net.bind(gateway, DYNAMIC_SOCKET, SocketAddr::new(gateway_address(), site::DYNAMIC_PORT));
        let aaa = AaaSite::new(&mut net, gateway_address());
        let internet = Rc::new(RefCell::new(DatagramWire { belief, ..DatagramWire::default() }));
        let mut hosts = Vec::new();
        for slot in 0..SLOTS {
            let plan = ClientPlan::honest(Person::Eve, ClientProof::Md5);
            let addresses = [address(slot, false), address(slot, true)];
            let (client, credentials) = host::client(&plan, 100 + slot as u64, addresses[0]);
            let (at, helpers) = add(&mut net, client, credentials, &addresses);
            internet.borrow_mut().owners.insert(at.number, Person::Eve);
            hosts.push(ClientHost { at, plan, helpers });
        }
        let carries = internet.clone();
        net.meddle(move |_, sent| carries.borrow_mut().carry(sent));
        Self {
            net,
            gateway,
            helpers,
            aaa,
            hosts,
            internet,
            begun: 0,
            told: 0,
            sessions: BTreeSet::new(),
            shared: BTreeMap::new(),
            outcome: RunOutcome::default(),
        }
    }

    fn run(&mut self, span: Duration) {
        let Self { net, aaa, gateway, told, internet, .. } = self;
        site::run(net, span, |net| {
            let elsewhere = std::mem::take(&mut internet.borrow_mut().elsewhere);
            for (path, data) in elsewhere {
                net.give(*gateway, Input::Datagram { path, data: &data });
            }
            aaa.serve(net);
            // Whose a session is the gateway says while it is there.
            let (sessions, _) = aaa.sessions();
            if std::mem::replace(told, sessions) != sessions {
                let _ = net.command(*gateway, Command::Status { token: STATUS });
            }
        });
    }

    pub(super) fn begin(&mut self, slot: usize, [who, how]: [u8; 2]) {
        let method = ClientProof::ALL[usize::from(how & 7) % ClientProof::ALL.len()];
        let (owner, claimed) = match (method, Person::numbered(who)) {
            (ClientProof::Certificate, _) => (Person::Printer, Person::Printer),
            // Who has nothing but an address has no password.
            (_, Person::Printer) => (Person::Eve, Person::numbered(who >> 2)),
            (_, owner) => (owner, Person::numbered(who.wrapping_add(who >> 2))),
        };
        self.internet.borrow_mut().owners.insert(self.hosts[slot].at.number, owner);
        self.hosts[slot].plan = ClientPlan {
            owner,
            claimed,
            method,
            spelling: who >> 4,
            is_anonymous: how & 8 != 0,
            reauthentication: how >> 4 & 3,
            is_silent_about_others: how & 64 != 0,
        };
        self.switch_off(slot);
        self.connect(slot);
    }
    pub(super) fn pass(&mut self, [how, _]: [u8; 2]) {
        const SPANS: [u64; 8] = [1, 2, 5, 20, 100, 1_000, 15_000, 61_000];
        self.run(Duration::from_millis(SPANS[usize::from(how) % SPANS.len()]));
    }
    pub(super) fn play(&mut self) {
        self.run(Duration::from_secs(2));
    }
    pub(super) fn fate(&mut self, slot: usize, [how, what]: [u8; 2]) {
        let fate = match how % 4 {
            0 => DatagramFate::Lost,
            1 => DatagramFate::Twice,
            2 => DatagramFate::Late(Duration::from_millis(u64::from(what) * 10)),
            _ => DatagramFate::From(usize::from(what) % SLOTS),
        };
        self.internet.borrow_mut().fates.insert(self.hosts[slot].at.number, fate);
    }

    /// An earlier datagram reaches the gateway again. It is answered, or moves a counter: what it says twice it has heard. From elsewhere
    /// it costs no key exchange where cookies are asked for (RFC 7296 §2.6).
    pub(super) fn replay(&mut self, [which, how]: [u8; 2]) -> Result<(), InvariantBreach> {
        let Some(datagram) = ({
            let internet = self.internet.borrow();
            let last = internet.seen.len().checked_sub(1);
            last.map(|last| internet.seen[last.saturating_sub(usize::from(which))].clone())
        }) else {
            return Ok(());
        };
        let SentDatagram { path, octets, arrives } = datagram;
        let arrived = arrives.is_some_and(|at| at < self.net.now());
        let elsewhere = how & 1 != 0;
        let from = match (elsewhere, path.local.ip().is_unspecified()) {
            (true, _) | (_, true) => {
                SocketAddr::new(address(usize::from(how >> 1) % SLOTS, false), path.local.port())
            }
            _ => path.local,
        };
        let cookies = self.net[self.gateway].half_open() >= COOKIES_FROM;
        self.net.settle();
        let key_exchanges = |net: &Network| net[self.gateway].work.get("ike.key_exchange").copied();
        let before = (self.counted(), self.net.sent().len(), key_exchanges(&self.net));
        self.net.give(self.gateway, Input::Datagram { path: arrival(&path, from), data: &octets });
        let after = (self.counted(), self.net.sent().len(), key_exchanges(&self.net));
        ensure(!(arrived && elsewhere && cookies) || before.2 == after.2, || {
            "a datagram from elsewhere costs key exchanges before its sender is known".into()
        })?;
        ensure(!arrived || before != after, || format!("a datagram is lost without a counter: {octets:02x?}"))
    }
    /// All that the gateway has counted.
    fn counted(&self) -> u64 {
        use crate::witness::Budgeted;
        Gateway::counted(&self.net[self.gateway])
    }
    /// What the gateway asks of its helpers waits, is done one by one or not at all, or all of it.
    pub(super) fn jobs(&mut self, [how, which]: [u8; 2]) {
        let answer = {
            let mut helpers = self.helpers.borrow_mut();
            helpers.holds = how & 3 == 0 || helpers.holds && how & 3 != 3;
            let waiting = helpers.held.len().max(1);
            let count = if how & 3 == 3 { helpers.held.len() } else { usize::from(how & 3 != 0) };
            let jobs: Vec<_> = (0..count)
                .filter_map(|_| {
                    let at = if count == 1 { usize::from(which) % waiting } else { 0 };
                    helpers.held.remove(at)
                })
                .collect();
            let refuses = how & 3 == 2;
            let answers = jobs.into_iter().filter_map(|job| match refuses {
                true => Some(job.what.refused(job.token)),
                false => helpers.answer(job),
            });
            answers.collect::<Vec<_>>()
        };
        for command in answer {
            // The login may be over meanwhile.
            let _ = self.net.command(self.gateway, command);
        }
    }

    pub(super) fn rekey(&mut self, slot: usize, [how, _]: [u8; 2]) {
        let rekey = Command::Rekey { token: 1, which: Which::All, children: how & 1 != 0 };
        let done = match how & 2 {
            0 => self.net.command(self.hosts[slot].at, rekey),
            _ => self.net.command(self.gateway, rekey),
        };
        debug_assert!(done.is_ok(), "a command that is always taken");
    }
    pub(super) fn relocate(&mut self, slot: usize, [how, _]: [u8; 2]) {
        let there = SocketAddr::new(address(slot, how & 1 != 0), 0);
        // One without an IKE_SA goes nowhere.
        let _ = self.net.command(self.hosts[slot].at, Command::Addresses(vec![("home".into(), there)]));
    }
    pub(super) fn down(&mut self, slot: usize) {
        let _ = self.net.command(self.hosts[slot].at, Command::Down { token: 2, which: Which::All });
    }
    pub(super) fn connect(&mut self, slot: usize) {
        let _ =
            self.net.command(self.hosts[slot].at, Command::Connect { token: 1, connection: "home".into() });
    }
    pub(super) fn switch_off(&mut self, slot: usize) {
        self.begun += 1;
        let host = &self.hosts[slot];
        let (client, credentials) = host::client(&host.plan, 1000 + self.begun, address(slot, false));
        self.net[host.at] = client;
        host.helpers.borrow_mut().credentials = credentials;
        self.net.set_epoch(host.at, usher_core::bench::EPOCH);
    }
    pub(super) fn close(&mut self, [who, how]: [u8; 2]) {
        let which = match how & 3 {
            0 => Which::All,
            _ => Which::Named(Person::numbered(who).name().into()),
        };
        let _ = self.net.command(self.gateway, Command::Down { token: 3, which });
    }
    pub(super) fn dynamic(&mut self, [who, _]: [u8; 2]) {
        self.aaa.disconnect(&mut self.net, Person::numbered(who));
    }
    /// The gateway is killed, and begins anew.
    pub(super) fn restart(&mut self) {
        self.net.silence(self.gateway, true);
        self.run(Duration::from_secs(2));
        self.net.silence(self.gateway, false);
        self.begun += 1;
        let (gateway, credentials) = host::gateway(5000 + self.begun);
        self.net[self.gateway] = Witness::new(gateway);
        *self.helpers.borrow_mut() = Helpers { credentials, holds: false, held: VecDeque::new() };
        self.shared.clear();
        self.net.set_epoch(self.gateway, usher_core::bench::EPOCH);
        self.run(Duration::ZERO);
    }

    /// The IKE_SAs of the gateway, as it says itself.
    fn status(&mut self) -> Vec<SaStatus> {
        self.run(Duration::ZERO);
        let _ = self.net.command(self.gateway, Command::Status { token: STATUS });
        let mut sas = Vec::new();
        for (_, event) in self.net.take(self.gateway) {
            match event {
                Event::Status { token: STATUS, status } => {
                    sas = status.sas;
                    let whose = |sa: &SaStatus| Some((sa.session.clone(), person(&sa.user)?));
                    self.aaa.accounts.extend(sas.iter().filter_map(whose));
                }
                Event::LoginFailed { .. } => self.outcome.refused += 1,
                _ => {}
            }
        }
        sas
    }

    /// What must hold after each operation.
    pub(super) fn check(&mut self) -> Result<(), InvariantBreach> {
        let sas = self.status();
        self.net[self.gateway].verdict()?;
        let mut holders: BTreeMap<IpAddr, &SaStatus> = BTreeMap::new();
        let mut shared = BTreeSet::new();
        for sa in &sas {
            let who = person(&sa.user);
            let spi = sa.spis.0.0;
            let internet = self.internet.borrow();
            let proved = internet.spis.get(&spi).copied();
            ensure(who.is_some() && (proved.is_none() || proved == who), || {
                format!("{} has the IKE_SA {spi:02x?}, which {proved:?} has proved", sa.user)
            })?;
            ensure(identified(&sa.identity) == who, || {
                format!("{} has an IKE_SA of {}", sa.user, sa.identity)
            })?;
            self.sessions.insert(sa.session.clone());
            for address in &sa.addresses {
                let Some(before) = holders.insert(*address, sa).filter(|before| before.session != sa.session)
                else {
                    continue;
                };
                // Who authenticates again has its address by both until the older has ended.
                let same = (&before.connection, person(&before.user)) == (&sa.connection, who);
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
        self.aaa.check(person)
    }

    /// What somebody may cost who has proved nothing: a signature and a chain for each IKE_SA that was begun, and as many jobs that are
    /// still awaited as there are half-open IKE_SAs.
    fn check_work(&self) -> Result<(), InvariantBreach> {
        let gateway = &self.net[self.gateway];
        let (_, ike) = gateway.counters();
        for (label, most) in [("ike.sa", ike.begun), ("ike.sign", ike.begun), ("ike.verify", ike.begun)] {
            let done = gateway.work.get(label).copied().unwrap_or_default();
            ensure(done <= most, || format!("{done} units of {label}, and {most} may be"))?;
        }
        let awaited = self.helpers.borrow().held.iter().filter(|job| job.origin.is_awaited()).count();
        let half_open = gateway.half_open();
        ensure(awaited <= half_open, || format!("{awaited} jobs wait, of {half_open} half-open IKE_SAs"))
    }

    /// All clients leave: nothing is left of them.
    pub(super) fn finish(mut self) -> Result<RunOutcome, InvariantBreach> {
        self.jobs([3, 0]);
        for slot in 0..SLOTS {
            self.down(slot);
        }
        self.run(Duration::from_secs(5));
        self.close([0, 0]);
        self.run(Duration::from_secs(600));
        self.check()?;
        let left = (self.status().len(), self.net[self.gateway].half_open());
        ensure(left == (0, 0), || format!("{left:?} IKE_SAs are left"))?;
        let used: u64 = self.net[self.gateway].pools().map(|(_, used, _)| used).sum();
        ensure(used == 0, || format!("{used} addresses are held, and nobody is there"))?;
        let (accounted, open) = self.aaa.sessions();
        ensure(open == 0, || {
            format!("clients have gone, and sessions are open in the ledger: {}", self.aaa.open())
        })?;
        (self.outcome.accounted, self.outcome.sessions) = (accounted, self.sessions.len());
        Ok(self.outcome)
    }
}

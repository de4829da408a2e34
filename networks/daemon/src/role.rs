//! One shard: the AAA machine with what it hands to other threads.

use crate::homes::{self, Known};
use crate::ledger::{self, Entry, LedgerHandle};
use crate::log_lines::{log_login, log_record};
use crate::mailbox::{For, Mailboxes, Message, Traced};
use crate::stats::{Histogram, Outcome, Snapshot};
use crate::workers::{Job, Workers};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError, RwLock};
use usher_aaa::store::Change;
use usher_aaa::{
    AaaServer, CertificateVerdict, Command, DynamicResult, Event, Handed, HandedBack, Job as ServerJob,
    Login, Method, Reason, ShardKey, TRACES, TraceLine, radius_socket, shard_of,
};
use usher_aaa_config::tls::{bears, user_of};
use usher_aaa_config::{Clients, DIALLER};
use usher_core::{Input, Instant, ListenerId, Machine, Path, Work, WorkLabel};
use usher_diameter::node::{self, PeerId};
use usher_diameter::peer::automaton;
use usher_diameter::{Fault, ResultCode};
use usher_host::jobs::JobShare;
use usher_live::{Clock, DriverCounters, Role};

/// Who reads a trace, and how many lines that reader missed.
struct Reader {
    lines: SyncSender<Traced>,
    missed: u64,
}

impl Reader {
    /// A reader that is too slow misses lines rather than delaying logins, and is told so.
    fn tell(&mut self, line: Traced) {
        if self.missed > 0 {
            let text =
                format!("({} lines before are missing: they came faster than they were read)", self.missed);
            let missing = Traced { text, cause: None, ..line };
            if self.lines.try_send(missing).is_err() {
                self.missed += 1;
                return;
            }
            self.missed = 0;
        }
        self.missed += u64::from(self.lines.try_send(line).is_err());
    }
}

/// What becomes of a request for which the shard that has its login has no room: the client comes again, or asks another
/// server.
fn no_room(handed: &Handed) -> HandedBack {
    match handed {
        Handed::Radius(request) => HandedBack::Silence { token: request.token },
        Handed::Diameter { token, .. } => {
            let fault = Fault::new(ResultCode::TOO_BUSY, "too many requests wait");
            HandedBack::Refusal { token: *token, fault }
        }
    }
}

/// Whose turn a client's entries wait for, by its place in the list; `None`: Diameter peers'.
fn turn(clients: &Clients, index: Option<u32>) -> ledger::Client {
    let network = index.and_then(|index| clients.network(index));
    ledger::Client::of(network.map(|network| (network.network, network.bits)))
}

/// Addresses whose client is remembered; beyond it they are looked up anew.
const KNOWN: usize = 1 << 14;

/// A machine on a shard.
pub(crate) struct AaaRole {
    pub(crate) server: AaaServer,
    pub(crate) number: u16,
    pub(crate) key: ShardKey,
    pub(crate) clock: Clock,
    pub(crate) mailboxes: Mailboxes,
    pub(crate) workers: Workers,
    pub(crate) ledger: LedgerHandle,
    pub(crate) clients: Arc<Clients>,
    pub(crate) driver: Arc<RwLock<Vec<Arc<DriverCounters>>>>,
    /// How home servers are, as all shards know.
    pub(crate) homes: Known,
    /// Whether the ledger counts failed logins.
    pub(crate) failures: bool,
    /// Whether each login is written down by the ledger (table radpostauth).
    pub(crate) logins: bool,
    pub(crate) state: State,
}

/// What a shard keeps beside its machine.
#[derive(Default)]
pub(crate) struct State {
    /// Requests by client (its place in the list; behind the last one, those of nobody) and code.
    requests: Vec<[u64; 256]>,
    known: BTreeMap<IpAddr, usize>,
    /// The last address and its client: mostly the next one's too.
    last: Option<(IpAddr, usize)>,
    /// Logins that ended: by method, inner method, result and reason.
    ended: BTreeMap<(Option<Method>, String, Outcome, &'static str), u64>,
    latency: Histogram,
    /// Unfinished logins that were pushed out, by client's name.
    evicted: BTreeMap<String, u64>,
    /// Diameter peers that are connected.
    peers: BTreeMap<PeerId, String>,
    diverted: u64,
    /// Requests for another shard that found its mailbox full.
    not_diverted: u64,
    /// Units of work by its kind, in the order in which kinds came: there are few, and mostly the first is meant.
    work: Vec<(WorkLabel, u64)>,
    traces: [Option<Reader>; TRACES],
    dynamic: BTreeMap<u64, SyncSender<DynamicResult>>,
    draining: bool,
    /// Diameter peers that were told of the end and may not have answered yet.
    told_of_end: Vec<PeerId>,
    stopped: bool,
    /// Requests before the last reload, whose clients may have had other places.
    before: BTreeMap<(String, u8), u64>,
}

impl AaaRole {
    fn command(&mut self, now: Instant, command: Command) {
        // What the answer was for may have ended meanwhile: nothing is left to do.
        let _ = self.server.command(now, command);
    }

    fn decided(&mut self, now: Instant, login: &Login) {
        let waited = now.since(login.begun);
        self.state.latency.add(waited.as_secs_f64());
        let outcome = if login.reason.is_none() { Outcome::Accept } else { Outcome::Reject };
        self.ended(login, outcome);
        log_login(login, true, waited.as_micros(), &self.clients);
        if self.logins {
            let entry = Entry::Login(Change::of_login(login, self.clock.wall(now)));
            self.ledger.put(ledger::Whose::Logins(turn(&self.clients, login.client)), entry);
        }
    }

    fn ended(&mut self, login: &Login, outcome: Outcome) {
        let reason = login.reason.map_or("", Reason::name);
        let inner = login.inner_method.map(|inner| inner.to_string()).unwrap_or_default();
        *self.state.ended.entry((login.method, inner, outcome, reason)).or_default() += 1;
    }

    /// Counts for these clients from now on.
    pub(crate) fn take_clients(&mut self, clients: Arc<Clients>) {
        self.state.requests = vec![[0; 256]; clients.len() + 1];
        self.state.known.clear();
        self.state.last = None;
        self.clients = clients;
    }

    /// The client of an address; behind the last one for nobody.
    fn client(&mut self, address: IpAddr) -> usize {
        if let Some((last, client)) = self.state.last
            && last == address
        {
            return client;
        }
        if self.state.known.len() >= KNOWN {
            self.state.known.clear();
        }
        let clients = &self.clients;
        let find = || clients.of(address).unwrap_or(clients.len());
        let client = *self.state.known.entry(address).or_insert_with(find);
        self.state.last = Some((address, client));
        client
    }

    /// By client's name and code; those of nobody have no name.
    fn requests(&self) -> BTreeMap<(String, u8), u64> {
        let mut all = self.state.before.clone();
        for (client, codes) in self.state.requests.iter().enumerate() {
            let name = u32::try_from(client).ok().and_then(|c| self.clients.name(c)).unwrap_or("");
            for (code, n) in (0..=u8::MAX).zip(codes).filter(|(_, n)| **n > 0) {
                *all.entry((name.to_owned(), code)).or_default() += n;
            }
        }
        all
    }

    fn snapshot(&self) -> Snapshot {
        let mut all = Snapshot { requests: self.requests(), ..Snapshot::default() };
        for ((method, inner, outcome, reason), n) in &self.state.ended {
            let method = method.map_or("none", Method::name);
            *all.logins.entry((method, inner.clone(), *outcome, *reason)).or_default() += n;
        }
        all.latency = self.state.latency;
        all.evicted.clone_from(&self.state.evicted);
        all.aaa = *self.server.counters();
        all.radius = self.server.radius_counters().copied();
        all.drop_sources = self.server.radius_drop_sources().copied().unwrap_or_default();
        all.diameter = self.server.diameter_counters().copied();
        let drivers = self.driver.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = drivers.get(usize::from(self.number)) {
            all.driver = driver.read();
        }
        all.homes = homes::homes(&self.server);
        if self.number == DIALLER {
            let servers = self.server.diameter_servers();
            all.diameter_servers = servers.map(|(name, okay)| (name.to_owned(), okay)).collect();
        }
        all.half_open = self.server.half_open() as u64;
        all.diameter_peers = self.state.peers.len() as u64;
        all.half_open_octets = self.server.half_open_octets() as u64;
        all.diverted = self.state.diverted;
        all.not_diverted = self.state.not_diverted;
        all.work = self.state.work.iter().map(|(label, units)| (label.name(), *units)).collect();
        all
    }
}

impl Role for AaaRole {
    type Machine = AaaServer;
    type Message = Message;

    fn machine(&mut self) -> &mut AaaServer {
        &mut self.server
    }

    fn job(&mut self, now: Instant, job: usher_core::Job<ServerJob>) {
        let (shard, token, origin) = (self.number, job.token, job.origin);
        let whose = |owner, name| JobShare { share: owner, name, origin };
        match job.what {
            ServerJob::Lookup { owner, name } => {
                self.workers.put(whose(owner, Vec::new()), Job::Lookup(For { shard, token }, name));
            }
            ServerJob::Verify { owner, name, hash, password } => {
                let job = Job::Verify(For { shard, token }, hash, password);
                self.workers.put(whose(owner, name), job);
            }
            ServerJob::Admit { client, request } => {
                let whose = ledger::Whose::Sessions(turn(&self.clients, client));
                self.ledger.put(whose, Entry::Admit(For { shard, token }, request));
            }
            ServerJob::Account { record } => {
                log_record(&record);
                self.ledger.account(For { shard, token }, record);
            }
            ServerJob::NameUser { outer, chain } => {
                self.command(now, Command::Named { token, name: user_of(&chain, &outer) });
            }
            ServerJob::CheckCertificate { owner, name, chain, resumed } => {
                if !resumed {
                    self.workers.show(&chain);
                }
                if !name.is_none_or(|name| bears(&chain, &name)) {
                    let verdict = CertificateVerdict::OtherName;
                    self.command(now, Command::Certificate { token, verdict });
                } else if self.workers.asks_issuers() {
                    let job = Job::Certificate(For { shard, token }, chain);
                    self.workers.put(whose(owner, Vec::new()), job);
                } else {
                    let verdict = match resumed {
                        true => self.workers.trusts(&chain),
                        false => CertificateVerdict::Good,
                    };
                    self.command(now, Command::Certificate { token, verdict });
                }
            }
        }
    }

    fn work(&mut self, work: Work) {
        match self.state.work.iter_mut().find(|(label, _)| *label == work.label) {
            Some((_, units)) => *units += u64::from(work.units),
            None => self.state.work.push((work.label, work.units.into())),
        }
    }

    fn event(&mut self, now: Instant, event: Event) {
        let shard = self.number;
        if self.failures
            && let Some((client, user, station)) = event.failure()
        {
            let entry = Entry::Failed { user: user.to_vec(), station: station.to_vec() };
            self.ledger.put(ledger::Whose::Failures(turn(&self.clients, client)), entry);
        }
        match event {
            Event::Accepted(login) | Event::Rejected(login) => {
                self.decided(now, &login);
                self.server.reuse(login.request);
            }
            Event::Undecided(login) => {
                let waited = now.since(login.begun);
                self.ended(&login, Outcome::None);
                log_login(&login, false, waited.as_micros(), &self.clients);
                self.server.reuse(login.request);
            }
            Event::Failed { .. } => {}
            Event::Evicted { client } => {
                let name = client.map_or("diameter", |client| self.clients.name(client).unwrap_or(""));
                match self.state.evicted.get_mut(name) {
                    Some(n) => *n += 1,
                    None => drop(self.state.evicted.insert(name.to_owned(), 1)),
                }
            }
            Event::Trace(line) => {
                let TraceLine { at, session, mut text, client, reason, to } = line;
                if let Some(client) = client.and_then(|client| self.clients.name(client)) {
                    text.push_str(&format!(", client {client}"));
                }
                let cause = reason.map(Reason::name);
                for (slot, reader) in self.state.traces.iter_mut().enumerate() {
                    if let Some(reader) = reader.as_mut().filter(|_| to & (1 << slot) != 0) {
                        reader.tell(Traced { at, session, text: text.clone(), cause });
                    }
                }
            }
            Event::DiameterPeer { peer, up } => {
                let known = self.server.diameter_peer(peer).map(ToOwned::to_owned);
                if up {
                    let name = known.unwrap_or_default();
                    tracing::info!(peer = name, shard, "a Diameter peer is connected");
                    self.state.peers.insert(peer, name);
                } else {
                    let name = self.state.peers.remove(&peer).or(known).unwrap_or_default();
                    if self.server.diameter_servers().any(|(server, _)| server == name) {
                        tracing::warn!(
                            peer = name,
                            shard,
                            "a Diameter peer is not connected any more: nothing is sent to it until it is back"
                        );
                    } else {
                        tracing::info!(peer = name, shard, "a Diameter peer is not connected any more");
                    }
                }
            }
            Event::HandOver { shard: to, handed } => {
                let back = no_room(&handed);
                if !self.mailboxes.request(to, Message::Handed(shard, handed)) {
                    self.state.not_diverted += 1;
                    self.command(now, Command::HandedBack(back));
                }
            }
            Event::HandBack { shard: to, back } => self.mailboxes.command(to, Command::HandedBack(back)),
            Event::HomeServer(state) => {
                self.homes.tell(&self.server, &state);
                for (number, mailbox) in (0..).zip(self.mailboxes.all()) {
                    if number != shard {
                        mailbox.send(Message::Command(Command::HomeServer(state.clone())));
                    }
                }
            }
            Event::Dynamic { token, result } => {
                if let Some(waiting) = self.state.dynamic.remove(&token) {
                    let _ = waiting.try_send(result);
                }
            }
        }
    }

    fn message(&mut self, now: Instant, message: Message) {
        match message {
            Message::Command(command) => self.command(now, command),
            Message::Datagram(path, data) => {
                self.mailboxes.taken(self.number);
                self.server.handle(now, Input::Datagram { path, data: &data });
            }
            Message::Handed(from, handed) => {
                self.mailboxes.taken(self.number);
                self.command(now, Command::Handed { from, handed });
            }
            Message::Collect(sender) => {
                let _ = sender.try_send(self.snapshot());
            }
            Message::Forget(name, done) => {
                self.command(now, Command::Forget { name });
                let _ = done.try_send(());
            }
            Message::Reload(config, clients, done) => {
                let taken = self.server.command(now, Command::Reload(config));
                if taken.is_ok() {
                    self.state.before = self.requests();
                    self.take_clients(clients);
                    if self.number == 0 {
                        self.homes.begin_anew(&self.server);
                    }
                }
                // Who waited for too long has gone.
                let _ = done.try_send(taken.map_err(|error| error.to_string()));
            }
            Message::Trace(slot, to) => {
                let (filter, sender) = to.unzip();
                if let Some(place) = self.state.traces.get_mut(usize::from(slot)) {
                    *place = sender.map(|lines| Reader { lines, missed: 0 });
                    self.command(now, Command::Trace { slot, filter });
                }
            }
            Message::Dynamic(command, sender) => {
                if let Command::Dynamic { token, .. } = &command {
                    let token = *token;
                    match self.server.command(now, command) {
                        Ok(()) => drop(self.state.dynamic.insert(token, sender)),
                        Err(error) => tracing::warn!(%error, "a request to a NAS cannot be sent"),
                    }
                }
            }
            Message::Drain => {
                if !std::mem::replace(&mut self.state.draining, true) {
                    self.state.told_of_end = self.state.peers.keys().copied().collect();
                    for peer in self.state.told_of_end.clone() {
                        let cause = node::DisconnectCause::Rebooting;
                        self.command(now, Command::Diameter(node::Command::Disconnect { peer, cause }));
                    }
                }
            }
            Message::Stop => self.state.stopped = true,
        }
    }

    fn admits(&self, listener: ListenerId, from: IpAddr) -> bool {
        self.server.may_connect(listener, from)
    }

    fn divert(&mut self, path: Path, data: &[u8]) -> bool {
        if path.socket.owner != radius_socket(0).owner {
            // An answer to this server.
            return false;
        }
        let client = self.client(path.remote.ip());
        if let Some(codes) = self.state.requests.get_mut(client) {
            codes[usize::from(data.first().copied().unwrap_or(0))] += 1;
        }
        if self.mailboxes.all().len() < 2 && !self.state.draining {
            return false;
        }
        match shard_of(&self.key, data) {
            // What does not prove to be a client's is no other shard's work: it is dropped and counted here.
            Some(shard) if shard != self.number && self.server.is_signed(path.remote.ip(), data) => {
                match self.mailboxes.request(shard, Message::Datagram(path, data.to_vec())) {
                    true => self.state.diverted += 1,
                    false => self.state.not_diverted += 1,
                }
                true
            }
            // A new login goes to another server while this one ends.
            None => self.state.draining && data.first() == Some(&1),
            Some(_) => false,
        }
    }

    fn stopped(&self) -> bool {
        let answers = |peer: &PeerId| self.server.diameter_state(*peer) != Some(automaton::State::Closing);
        let state = &self.state;
        let idle = state.draining && self.server.owed() == 0 && state.peers.is_empty();
        state.stopped || (idle && state.told_of_end.iter().all(answers))
    }
}

//! A shard: the AAA machine, and its connections to other threads.

use crate::homes::{self, HomeServerHealth};
use crate::ledger::{self, LedgerEntry, LedgerHandle};
use crate::log_lines::{log_login, log_record};
use crate::mailbox::{JobResultTarget, LoginTraceLine, ShardMailboxes, ShardMessage};
use crate::stats::{LatencyHistogram, LoginResult, ShardSnapshot};
use crate::workers::{WorkerJob, WorkerPool};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError, RwLock};
use usher_aaa::{
    AaaServer, AaaServerCommand, AaaServerEvent, AaaServerJob as ServerJob, AuthMethod, CertificateVerdict,
    DynamicAuthResult, FinishedLogin, InterShardKey, RejectCause, ShardDecision, ShardRequest, TRACES,
    TraceLine, radius_socket, shard_for_datagram,
};
use usher_aaa_config::tls::{leaf_certificate_has_name, user_of};
use usher_aaa_config::{ClientDirectory, DIALLER};
use usher_core::{DatagramPath, Instant, ListenerId, Machine, MachineInput, WorkLabel, WorkRecord};
use usher_diameter::node::{self, PeerId};
use usher_diameter::peer::automaton;
use usher_diameter::{DiameterError, ResultCode};
use usher_live::{DriverCounters, DriverRole, SystemClock};
use usher_service::jobs::JobFairnessKey;

/// The reader of a trace, and the number of lines that it missed.
struct TraceLineSender {
    lines: SyncSender<LoginTraceLine>,
    missed: u64,
}

impl TraceLineSender {
    /// Sends a line. A slow reader misses lines, so that logins are not delayed, and gets their number.
    fn send_trace_line(&mut self, line: LoginTraceLine) {
        if self.missed > 0 {
            let text = format!("({} lines before this were dropped: the reader was too slow)", self.missed);
            let missing = LoginTraceLine { text, cause: None, ..line };
            if self.lines.try_send(missing).is_err() {
                self.missed += 1;
                return;
            }
            self.missed = 0;
        }
        self.missed += u64::from(self.lines.try_send(line).is_err());
    }
}

/// Returns the decision on a request if the mailbox of its shard is full: the client retransmits or fails over.
fn decision_for_full_mailbox(handed: &ShardRequest) -> ShardDecision {
    match handed {
        ShardRequest::Radius(request) => ShardDecision::Silence { token: request.token },
        ShardRequest::Diameter { token, .. } => {
            let fault = DiameterError::new(ResultCode::TOO_BUSY, "too many requests are queued");
            ShardDecision::Refusal { token: *token, fault }
        }
    }
}

/// Returns the ledger's client for the index of a RADIUS client. `None`: Diameter.
fn ledger_client(clients: &ClientDirectory, index: Option<u32>) -> ledger::LedgerClient {
    let network = index.and_then(|index| clients.network(index));
    ledger::LedgerClient::from_network(network.map(|network| (network.network, network.bits)))
}

/// Maximum number of addresses whose client is cached.
const MAX_CACHED_CLIENTS: usize = 1 << 14;

/// A machine on a shard.
pub(crate) struct AaaRole {
    pub(crate) server: AaaServer,
    pub(crate) number: u16,
    pub(crate) key: InterShardKey,
    pub(crate) clock: SystemClock,
    pub(crate) mailboxes: ShardMailboxes,
    pub(crate) workers: WorkerPool,
    pub(crate) ledger: LedgerHandle,
    pub(crate) clients: Arc<ClientDirectory>,
    pub(crate) driver: Arc<RwLock<Vec<Arc<DriverCounters>>>>,
    /// Health of home servers, common to all shards.
    pub(crate) homes: HomeServerHealth,
    /// True if the ledger counts failed attempts.
    pub(crate) failures: bool,
    /// True if the ledger writes each login to table radpostauth.
    pub(crate) logins: bool,
    pub(crate) state: ShardState,
}

/// State of a shard besides its machine.
#[derive(Default)]
pub(crate) struct ShardState {
    /// Requests by index of the client and by code. The index after the last client counts unknown clients.
    requests: Vec<[u64; 256]>,
    client_cache: BTreeMap<IpAddr, usize>,
    /// The last address and its client: the next request often has the same.
    last: Option<(IpAddr, usize)>,
    /// Ended logins by method, inner method, result and cause.
    ended_logins: BTreeMap<(Option<AuthMethod>, String, LoginResult, &'static str), u64>,
    latency: LatencyHistogram,
    /// Evicted half-open logins by client's name.
    evicted: BTreeMap<String, u64>,
    /// Connected Diameter peers.
    peers: BTreeMap<PeerId, String>,
    diverted: u64,
    /// Requests for another shard whose mailbox was full.
    not_diverted: u64,
    /// Units of work by label, in the order of first use: there are few, and mostly the first is used.
    work: Vec<(WorkLabel, u64)>,
    traces: [Option<TraceLineSender>; TRACES],
    dynamic: BTreeMap<u64, SyncSender<DynamicAuthResult>>,
    draining: bool,
    /// Diameter peers that may not have answered the disconnect request.
    disconnecting_peers: Vec<PeerId>,
    stopped: bool,
    /// Requests before the last reload, when clients may have had other indices.
    before: BTreeMap<(String, u8), u64>,
}

impl AaaRole {
    fn apply_command(&mut self, now: Instant, command: AaaServerCommand) {
        // An error is ignored: the session that waited for this result may have ended.
        let _ = self.server.handle_command(now, command);
    }

    fn handle_login_decision(&mut self, now: Instant, login: &FinishedLogin) {
        let waited = now.duration_since(login.started_at);
        self.state.latency.add(waited.as_secs_f64());
        let outcome = if login.reason.is_none() { LoginResult::Accept } else { LoginResult::Reject };
        self.count_login(login, outcome);
        log_login(login, true, waited.as_micros(), &self.clients);
        if self.logins {
            let entry = LedgerEntry::Login(login.store_change(self.clock.wall_time(now)));
            self.ledger.queue_entry(
                ledger::LedgerEntryOwner::Logins(ledger_client(&self.clients, login.client)),
                entry,
            );
        }
    }

    fn count_login(&mut self, login: &FinishedLogin, outcome: LoginResult) {
        let reason = login.reason.map_or("", RejectCause::name);
        let inner = login.inner_method.map(|inner| inner.to_string()).unwrap_or_default();
        *self.state.ended_logins.entry((login.method, inner, outcome, reason)).or_default() += 1;
    }

    /// Counts for these clients from now on.
    pub(crate) fn replace_client_directory(&mut self, clients: Arc<ClientDirectory>) {
        self.state.requests = vec![[0; 256]; clients.len() + 1];
        self.state.client_cache.clear();
        self.state.last = None;
        self.clients = clients;
    }

    /// Returns the index of an address's client. The index after the last one stands for unknown clients.
    fn client_index(&mut self, address: IpAddr) -> usize {
        if let Some((last, client)) = self.state.last
            && last == address
        {
            return client;
        }
        if self.state.client_cache.len() >= MAX_CACHED_CLIENTS {
            self.state.client_cache.clear();
        }
        let clients = &self.clients;
        let find = || clients.find_client_index(address).unwrap_or(clients.len());
        let client = *self.state.client_cache.entry(address).or_insert_with(find);
        self.state.last = Some((address, client));
        client
    }

    /// Returns requests by client's name and code. Unknown clients have an empty name.
    fn request_counts(&self) -> BTreeMap<(String, u8), u64> {
        let mut all = self.state.before.clone();
        for (client, codes) in self.state.requests.iter().enumerate() {
            let name = u32::try_from(client).ok().and_then(|c| self.clients.name(c)).unwrap_or("");
            for (code, n) in (0..=u8::MAX).zip(codes).filter(|(_, n)| **n > 0) {
                *all.entry((name.to_owned(), code)).or_default() += n;
            }
        }
        all
    }

    fn snapshot(&self) -> ShardSnapshot {
        let mut all = ShardSnapshot { requests: self.request_counts(), ..ShardSnapshot::default() };
        for ((method, inner, outcome, reason), n) in &self.state.ended_logins {
            let method = method.map_or("none", AuthMethod::name);
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
        all.homes = homes::view_home_servers(&self.server);
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

impl DriverRole for AaaRole {
    type Machine = AaaServer;
    type Message = ShardMessage;

    fn machine(&mut self) -> &mut AaaServer {
        &mut self.server
    }

    fn on_job(&mut self, now: Instant, job: usher_core::JobRequest<ServerJob>) {
        let (shard, token, origin) = (self.number, job.token, job.origin);
        let whose = |owner, name| JobFairnessKey { share: owner, name, origin };
        match job.job {
            ServerJob::Lookup { owner, name } => {
                self.workers.queue_job(
                    whose(owner, Vec::new()),
                    WorkerJob::Lookup(JobResultTarget { shard, token }, name),
                );
            }
            ServerJob::Verify { owner, name, hash, password } => {
                let job = WorkerJob::Verify(JobResultTarget { shard, token }, hash, password);
                self.workers.queue_job(whose(owner, name), job);
            }
            ServerJob::Admit { client, request } => {
                let whose = ledger::LedgerEntryOwner::Sessions(ledger_client(&self.clients, client));
                self.ledger.queue_entry(whose, LedgerEntry::Admit(JobResultTarget { shard, token }, request));
            }
            ServerJob::Account { record } => {
                log_record(&record);
                self.ledger.queue_accounting_record(JobResultTarget { shard, token }, record);
            }
            ServerJob::NameUser { outer, chain } => {
                self.apply_command(now, AaaServerCommand::Named { token, name: user_of(&chain, &outer) });
            }
            ServerJob::CheckCertificate { owner, name, chain, resumed } => {
                if !resumed {
                    self.workers.report_certificate_chain(&chain);
                }
                if !name.is_none_or(|name| leaf_certificate_has_name(&chain, &name)) {
                    let verdict = CertificateVerdict::NameMismatch;
                    self.apply_command(now, AaaServerCommand::Certificate { token, verdict });
                } else if self.workers.uses_ocsp() {
                    let job = WorkerJob::Certificate(JobResultTarget { shard, token }, chain);
                    self.workers.queue_job(whose(owner, Vec::new()), job);
                } else {
                    let verdict = match resumed {
                        true => self.workers.recheck_chain(&chain),
                        false => CertificateVerdict::Good,
                    };
                    self.apply_command(now, AaaServerCommand::Certificate { token, verdict });
                }
            }
        }
    }

    fn on_work(&mut self, work: WorkRecord) {
        match self.state.work.iter_mut().find(|(label, _)| *label == work.label) {
            Some((_, units)) => *units += u64::from(work.units),
            None => self.state.work.push((work.label, work.units.into())),
        }
    }

    fn on_event(&mut self, now: Instant, event: AaaServerEvent) {
        let shard = self.number;
        if self.failures
            && let Some((client, user, station)) = event.counted_failure_identity()
        {
            let entry = LedgerEntry::Failed { user: user.to_vec(), station: station.to_vec() };
            self.ledger
                .queue_entry(ledger::LedgerEntryOwner::Failures(ledger_client(&self.clients, client)), entry);
        }
        match event {
            AaaServerEvent::Accepted(login) | AaaServerEvent::Rejected(login) => {
                self.handle_login_decision(now, &login);
                self.server.recycle_request(login.request);
            }
            AaaServerEvent::Undecided(login) => {
                let waited = now.duration_since(login.started_at);
                self.count_login(&login, LoginResult::None);
                log_login(&login, false, waited.as_micros(), &self.clients);
                self.server.recycle_request(login.request);
            }
            AaaServerEvent::Failed { .. } => {}
            AaaServerEvent::Evicted { client } => {
                let name = client.map_or("diameter", |client| self.clients.name(client).unwrap_or(""));
                match self.state.evicted.get_mut(name) {
                    Some(n) => *n += 1,
                    None => drop(self.state.evicted.insert(name.to_owned(), 1)),
                }
            }
            AaaServerEvent::Trace(line) => {
                let TraceLine { occurred_at: at, session, mut text, client, reason, to } = line;
                if let Some(client) = client.and_then(|client| self.clients.name(client)) {
                    text.push_str(&format!(", client {client}"));
                }
                let cause = reason.map(RejectCause::name);
                for (slot, reader) in self.state.traces.iter_mut().enumerate() {
                    if let Some(reader) = reader.as_mut().filter(|_| to & (1 << slot) != 0) {
                        reader.send_trace_line(LoginTraceLine {
                            traced_at: at,
                            session,
                            text: text.clone(),
                            cause,
                        });
                    }
                }
            }
            AaaServerEvent::DiameterPeer { peer, up } => {
                let known = self.server.diameter_peer_name(peer).map(ToOwned::to_owned);
                if up {
                    let name = known.unwrap_or_default();
                    tracing::info!(peer = name, shard, "a Diameter peer has connected");
                    self.state.peers.insert(peer, name);
                } else {
                    let name = self.state.peers.remove(&peer).or(known).unwrap_or_default();
                    if self.server.diameter_servers().any(|(server, _)| server == name) {
                        tracing::warn!(
                            peer = name,
                            shard,
                            "a Diameter peer has disconnected: it gets no requests until it is back"
                        );
                    } else {
                        tracing::info!(peer = name, shard, "a Diameter peer has disconnected");
                    }
                }
            }
            AaaServerEvent::ShardRequest { shard: to, request: handed } => {
                let back = decision_for_full_mailbox(&handed);
                if !self.mailboxes.send_request(to, ShardMessage::ConnectionRequest(shard, handed)) {
                    self.state.not_diverted += 1;
                    self.apply_command(now, AaaServerCommand::ShardDecision(back));
                }
            }
            AaaServerEvent::ShardDecision { shard: to, back } => {
                self.mailboxes.send_command(to, AaaServerCommand::ShardDecision(back))
            }
            AaaServerEvent::HomeServer(state) => {
                self.homes.log_health_change(&self.server, &state);
                for (number, mailbox) in (0..).zip(self.mailboxes.as_slice()) {
                    if number != shard {
                        mailbox.send(ShardMessage::Command(AaaServerCommand::HomeServer(state.clone())));
                    }
                }
            }
            AaaServerEvent::Dynamic { token, result } => {
                if let Some(waiting) = self.state.dynamic.remove(&token) {
                    let _ = waiting.try_send(result);
                }
            }
        }
    }

    fn on_message(&mut self, now: Instant, message: ShardMessage) {
        match message {
            ShardMessage::Command(command) => self.apply_command(now, command),
            ShardMessage::Datagram(path, data) => {
                self.mailboxes.release_request(self.number);
                self.server.handle_input(now, MachineInput::Datagram { path, data: &data });
            }
            ShardMessage::ConnectionRequest(from, handed) => {
                self.mailboxes.release_request(self.number);
                self.apply_command(now, AaaServerCommand::ShardRequest { from, request: handed });
            }
            ShardMessage::Collect(sender) => {
                let _ = sender.try_send(self.snapshot());
            }
            ShardMessage::ForgetUsers(name, done) => {
                self.apply_command(now, AaaServerCommand::EvictUsers { name });
                let _ = done.try_send(());
            }
            ShardMessage::Reload(config, clients, done) => {
                let taken = self.server.handle_command(now, AaaServerCommand::Reload(config));
                if taken.is_ok() {
                    self.state.before = self.request_counts();
                    self.replace_client_directory(clients);
                    if self.number == 0 {
                        self.homes.reset_logged_health(&self.server);
                    }
                }
                // A send error is ignored: the requester may have timed out.
                let _ = done.try_send(taken.map_err(|error| error.to_string()));
            }
            ShardMessage::Trace(slot, to) => {
                let (filter, sender) = to.unzip();
                if let Some(place) = self.state.traces.get_mut(usize::from(slot)) {
                    *place = sender.map(|lines| TraceLineSender { lines, missed: 0 });
                    self.apply_command(now, AaaServerCommand::Trace { slot, filter });
                }
            }
            ShardMessage::Dynamic(command, sender) => {
                if let AaaServerCommand::Dynamic { token, .. } = &command {
                    let token = *token;
                    match self.server.handle_command(now, command) {
                        Ok(()) => drop(self.state.dynamic.insert(token, sender)),
                        Err(error) => tracing::warn!(%error, "cannot send a request to a NAS"),
                    }
                }
            }
            ShardMessage::Drain => {
                if !std::mem::replace(&mut self.state.draining, true) {
                    self.state.disconnecting_peers = self.state.peers.keys().copied().collect();
                    for peer in self.state.disconnecting_peers.clone() {
                        let cause = node::DisconnectCause::Rebooting;
                        self.apply_command(
                            now,
                            AaaServerCommand::Diameter(node::DiameterNodeCommand::Disconnect { peer, cause }),
                        );
                    }
                }
            }
            ShardMessage::Stop => self.state.stopped = true,
        }
    }

    fn accepts_from(&self, listener: ListenerId, from: IpAddr) -> bool {
        self.server.may_connect(listener, from)
    }

    fn divert_datagram(&mut self, path: DatagramPath, data: &[u8]) -> bool {
        if path.socket.owner != radius_socket(0).owner {
            // The socket is not one of the RADIUS server's, so the datagram is a response to this server's own request.
            return false;
        }
        let client = self.client_index(path.remote.ip());
        if let Some(codes) = self.state.requests.get_mut(client) {
            codes[usize::from(data.first().copied().unwrap_or(0))] += 1;
        }
        if self.mailboxes.as_slice().len() < 2 && !self.state.draining {
            return false;
        }
        match shard_for_datagram(&self.key, data) {
            // A datagram that is not signed never goes to another shard. It is dropped and counted here.
            Some(shard) if shard != self.number && self.server.is_signed(path.remote.ip(), data) => {
                match self.mailboxes.send_request(shard, ShardMessage::Datagram(path, data.to_vec())) {
                    true => self.state.diverted += 1,
                    false => self.state.not_diverted += 1,
                }
                true
            }
            // During the shutdown, drop Access-Requests (code 1), so that new logins go to another server.
            None => self.state.draining && data.first() == Some(&1),
            Some(_) => false,
        }
    }

    fn is_stopped(&self) -> bool {
        let answers =
            |peer: &PeerId| self.server.diameter_peer_state(*peer) != Some(automaton::State::Closing);
        let state = &self.state;
        let idle = state.draining && self.server.pending_request_count() == 0 && state.peers.is_empty();
        state.stopped || (idle && state.disconnecting_peers.iter().all(answers))
    }
}

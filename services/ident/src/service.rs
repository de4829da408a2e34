//! The service's machine.

use crate::disclosure::{DisclosureLevel, DisclosurePolicy};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use usher_core::{
    ChildMachine, CommandError, Duration, Instant, Machine, MachineInput, MachineOutputOf, OutputQueue,
    StreamEvent, WallTime,
};
use usher_ident::{
    ErrorType, IdentServer, IdentServerCommand, IdentServerCounters, IdentServerEvent, QueriedConnection,
    ResponseBody, ServerConfig,
};

/// The configuration of a service.
#[derive(Clone, Debug)]
pub struct IdentServiceConfig {
    /// The limits of the protocol's server.
    pub server: ServerConfig,
    /// The disclosure policy.
    pub policy: DisclosurePolicy,
    /// Maximum pending lookups. A query beyond it gets UNKNOWN-ERROR.
    pub lookups: usize,
    /// Maximum queries of one network in a second ([`usher_core::address::host_of`]). A query beyond it gets
    /// UNKNOWN-ERROR, without an event.
    pub queries: u32,
}

/// Maximum networks whose queries are counted in a second.
const NETWORKS: usize = 16_384;

/// Number of queries of each network in the current second.
#[derive(Debug, Default)]
struct NetworkQueryCounts {
    since: Instant,
    by_network: BTreeMap<IpAddr, u32>,
}

impl NetworkQueryCounts {
    /// Counts a query of a network. False if it exceeds the limit.
    fn count_query_within_limit(&mut self, now: Instant, network: IpAddr, most: u32) -> bool {
        if now.duration_since(self.since) >= SECOND {
            (self.since, self.by_network) = (now, BTreeMap::new());
        }
        if self.by_network.len() >= NETWORKS && !self.by_network.contains_key(&network) {
            return false;
        }
        let sent = self.by_network.entry(network).or_default();
        *sent = sent.saturating_add(1);
        *sent <= most
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// A job of the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdentServiceJob {
    /// Look up the owner of the connection's local end. The result is [`IdentServiceCommand::Found`].
    Owner(QueriedConnection),
}

/// A user.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ConnectionOwner {
    /// The name.
    pub name: Option<Vec<u8>>,
    /// The number, if the system has one.
    pub uid: Option<u32>,
}

impl fmt::Debug for ConnectionOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map(|name| name.escape_ascii());
        match (name, self.uid) {
            (Some(name), Some(uid)) => write!(f, "{name} ({uid})"),
            (Some(name), None) => write!(f, "{name}"),
            (None, Some(uid)) => write!(f, "({uid})"),
            (None, None) => f.write_str("(nobody)"),
        }
    }
}

/// The result of an owner lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnerLookupResult {
    /// The owner.
    User(ConnectionOwner),
    /// The connection does not exist or has no owner.
    NoOwner,
    /// The lookup failed.
    Unknown,
}

/// A command of the service's owner.
#[derive(Clone, Debug)]
pub enum IdentServiceCommand {
    /// The result of a lookup.
    Found {
        /// The token of the job.
        token: u64,
        /// The owner.
        owner: OwnerLookupResult,
    },
    /// Replaces the configuration. Open connections stay and follow the new rules.
    Configure(IdentServiceConfig),
}

/// An event of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IdentServiceEvent {
    /// A query was answered: the content of an audit log. Malformed queries cause no event.
    Answered {
        /// The asker's address.
        asker: SocketAddr,
        /// The queried connection.
        connection: QueriedConnection,
        /// The response.
        answer: ResponseBody,
    },
    /// A connection from an asker who is not permitted was refused.
    Refused {
        /// The asker's address.
        asker: SocketAddr,
    },
}

usher_core::counters! {
    /// The events of a service beside those of its protocol.
    pub struct IdentServiceCounters {
        /// Connections refused: the asker is not permitted.
        not_an_asker,
        /// Owners looked up.
        lookups,
        /// Queries answered UNKNOWN-ERROR: the limit of lookups was reached.
        lookups_full,
        /// Queries answered UNKNOWN-ERROR: the query rate limit of their network was reached.
        limited,
        /// Lookup results too late: the query had expired or its connection was closed.
        late,
    }
}

#[derive(Debug)]
struct PendingOwnerLookup {
    asker: SocketAddr,
    connection: QueriedConnection,
}

/// An IDENT service; see the [crate](crate).
#[derive(Debug)]
pub struct IdentService {
    server: ChildMachine<IdentServer>,
    policy: DisclosurePolicy,
    most: usize,
    queries: u32,
    rates: NetworkQueryCounts,
    /// The wall time at [`Instant::ZERO`].
    epoch: WallTime,
    /// Pending lookups, by the tokens of the server's queries.
    pending_lookups: BTreeMap<u64, PendingOwnerLookup>,
    counters: IdentServiceCounters,
    outputs: OutputQueue<IdentServiceEvent, IdentServiceJob>,
}

impl IdentService {
    /// Creates a service.
    #[must_use]
    pub fn new(config: IdentServiceConfig) -> Self {
        Self {
            server: ChildMachine::without_slot(IdentServer::new(config.server)),
            policy: config.policy,
            most: config.lookups,
            queries: config.queries,
            rates: NetworkQueryCounts::default(),
            epoch: WallTime::UNIX_EPOCH,
            pending_lookups: BTreeMap::new(),
            counters: IdentServiceCounters::default(),
            outputs: OutputQueue::default(),
        }
    }
    /// Returns the counters of the service and of its protocol.
    #[must_use]
    pub fn counters(&self) -> (&IdentServiceCounters, &IdentServerCounters) {
        (&self.counters, self.server.counters())
    }
    /// Returns the number of pending lookups.
    #[must_use]
    pub fn lookup_count(&self) -> usize {
        self.pending_lookups.len()
    }

    /// Handles the queries of the protocol's server.
    fn take_up(&mut self, now: Instant) {
        while let Some(IdentServerEvent::QueryReceived { token, asker, connection }) =
            self.outputs.next_event(&mut self.server)
        {
            if !self.rates.count_query_within_limit(
                now,
                usher_core::address::host_of(asker.ip()),
                self.queries,
            ) {
                self.counters.limited += 1;
                let answer = ResponseBody::Error(ErrorType::UnknownError);
                // The command fails if the query is gone. There is no event, so that a flood does not fill a log.
                let _ = self.server.handle_command(now, IdentServerCommand::Answer { token, answer });
                continue;
            }
            // A lookup is unnecessary for an asker who is no longer permitted or learns nothing.
            let told = self.policy.disclosure_for(asker.ip()).unwrap_or(DisclosureLevel::Nothing);
            let full = self.pending_lookups.len() >= self.most;
            if told == DisclosureLevel::Nothing || full {
                self.counters.lookups_full += u64::from(told != DisclosureLevel::Nothing);
                let answer = ResponseBody::Error(ErrorType::UnknownError);
                self.answer_query(now, token, PendingOwnerLookup { asker, connection }, answer);
            } else {
                self.counters.lookups += 1;
                self.pending_lookups.insert(token, PendingOwnerLookup { asker, connection });
                self.outputs.push_job(usher_core::JobRequest::new(token, IdentServiceJob::Owner(connection)));
            }
        }
    }

    fn answer_query(&mut self, now: Instant, token: u64, asked: PendingOwnerLookup, answer: ResponseBody) {
        let PendingOwnerLookup { asker, connection } = asked;
        let command = IdentServerCommand::Answer { token, answer: answer.clone() };
        match self.server.handle_command(now, command) {
            Ok(()) => self.outputs.push_event(IdentServiceEvent::Answered { asker, connection, answer }),
            Err(_) => self.counters.late += 1,
        }
    }
}

impl Machine for IdentService {
    type Command = IdentServiceCommand;
    type Event = IdentServiceEvent;
    type Job = IdentServiceJob;

    fn set_epoch(&mut self, _: Instant, epoch: WallTime) {
        self.epoch = epoch;
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        if let MachineInput::Stream { event: StreamEvent::Accepted { remote, .. }, .. } = input
            && self.policy.disclosure_for(remote.ip()).is_none()
            && let Some(refusal) = input.refusal()
        {
            self.counters.not_an_asker += 1;
            self.outputs.push_event(IdentServiceEvent::Refused { asker: remote });
            return self.outputs.push_operation(refusal);
        }
        self.server.handle_input(now, input);
        self.take_up(now);
    }

    fn handle_command(&mut self, now: Instant, command: IdentServiceCommand) -> Result<(), CommandError> {
        match command {
            IdentServiceCommand::Found { token, owner } => {
                let asked = self.pending_lookups.remove(&token).ok_or(CommandError::UnknownToken)?;
                let told = self.policy.disclosure_for(asked.asker.ip()).unwrap_or(DisclosureLevel::Nothing);
                let at = now.to_wall_time(self.epoch);
                let answer = self.policy.response_for(told, at, &asked.connection, &owner);
                self.answer_query(now, token, asked, answer);
            }
            IdentServiceCommand::Configure(config) => {
                (self.policy, self.most, self.queries) = (config.policy, config.lookups, config.queries);
                self.server.handle_command(now, IdentServerCommand::Configure(config.server))?;
            }
        }
        self.take_up(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.server.poll_timeout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_config::Prefix;
    use usher_core::ListenerId;
    use usher_core::bench::{MachineNetwork, NetworkHostHandle};
    use usher_core::impair::ChannelConfig;
    use usher_ident::{
        ClientCommand, ClientConfig, ClientEvent, IdentClient, IdentPortPair, IdentQuery, IdentToken, PORT,
        QueryFailure,
    };

    const SERVER: &str = "192.0.2.1";

    fn parse_ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn test_config(askers: &[(&str, DisclosureLevel)]) -> IdentServiceConfig {
        let askers = askers.iter().map(|(prefix, what)| (Prefix::parse(prefix).unwrap(), *what)).collect();
        let opsys = IdentToken::new("UNIX").unwrap();
        let policy = DisclosurePolicy { askers, hide: Vec::new(), opsys, charset: None, key: None };
        IdentServiceConfig { server: ServerConfig::default(), policy, lookups: 2, queries: 50 }
    }

    /// A service and an asker at each of these addresses. After 3 ms its lookup finds user 1000, `ann`, for port
    /// 6193, no owner for port 6195, and fails for all others.
    fn test_network<const N: usize>(
        config: IdentServiceConfig,
        askers: [&str; N],
    ) -> (MachineNetwork, NetworkHostHandle<IdentService>, [NetworkHostHandle<IdentClient>; N]) {
        let mut net = MachineNetwork::new(ChannelConfig::default());
        let service = net.add_host(IdentService::new(config), &[parse_ip(SERVER)]);
        net.add_listener(service, ListenerId::from_number(0), SocketAddr::new(parse_ip(SERVER), PORT));
        net.on_job(
            service,
            |usher_core::JobRequest { token, job: IdentServiceJob::Owner(connection), .. }| {
                let owner = match connection.local.port() {
                    6193 => OwnerLookupResult::User(ConnectionOwner {
                        name: Some(b"ann".to_vec()),
                        uid: Some(1000),
                    }),
                    6195 => OwnerLookupResult::NoOwner,
                    6197 => OwnerLookupResult::Unknown,
                    _ => return None,
                };
                Some((Duration::from_millis(3), IdentServiceCommand::Found { token, owner }))
            },
        );
        let clients = askers
            .map(|address| net.add_host(IdentClient::new(ClientConfig::default()), &[parse_ip(address)]));
        (net, service, clients)
    }

    fn query_port(
        net: &mut MachineNetwork,
        client: NetworkHostHandle<IdentClient>,
        port: u16,
    ) -> Result<String, QueryFailure> {
        let ports = IdentPortPair::new(port, 23);
        let question = IdentQuery { server: SocketAddr::new(parse_ip(SERVER), PORT), local: None, ports };
        net.send_command(client, ClientCommand::Query { token: 0, question }).unwrap();
        net.run_for(Duration::from_secs(10));
        let mut said = net.take_events(client);
        assert_eq!(said.len(), 1);
        let (_, ClientEvent::Answered { answer, .. }) = said.remove(0);
        answer.map(|answer| answer.to_string())
    }

    #[test]
    fn each_asker_is_told_what_is_set_for_its_network() {
        let askers =
            [("192.0.2.0/24", DisclosureLevel::UserName), ("198.51.100.0/24", DisclosureLevel::Nothing)];
        let (mut net, service, [near, far, nobody]) =
            test_network(test_config(&askers), ["192.0.2.7", "198.51.100.7", "203.0.113.7"]);
        let is = |text: &str| Ok(text.to_owned());
        assert_eq!(query_port(&mut net, near, 6193), is("ann (UNIX)"));
        assert_eq!(query_port(&mut net, near, 6195), is("NO-USER"));
        assert_eq!(query_port(&mut net, near, 6197), is("UNKNOWN-ERROR"));
        assert_eq!(query_port(&mut net, far, 6193), is("UNKNOWN-ERROR"));
        assert_eq!(query_port(&mut net, nobody, 6193), Err(QueryFailure::Closed));
        let (own, server) = net[service].counters();
        assert_eq!((own.lookups, own.not_an_asker, server.connections), (3, 1, 4));
        let said = net.take_events(service);
        let asker = |n: usize| match &said[n].1 {
            IdentServiceEvent::Answered { asker, answer, .. } => (asker.ip(), answer.to_string()),
            IdentServiceEvent::Refused { asker } => (asker.ip(), "refused".to_owned()),
        };
        assert_eq!(said.len(), 5);
        assert_eq!(asker(0), (parse_ip("192.0.2.7"), "ann (UNIX)".to_owned()));
        assert_eq!(asker(4), (parse_ip("203.0.113.7"), "refused".to_owned()));
    }

    #[test]
    fn look_ups_are_bounded_and_those_that_come_late_are_nothing() {
        let askers =
            [("0.0.0.0/0", DisclosureLevel::UserName), ("198.51.100.0/24", DisclosureLevel::Nothing)];
        let (mut net, service, [a, b, told_nothing]) =
            test_network(test_config(&askers), ["192.0.2.7", "192.0.2.8", "198.51.100.7"]);
        assert_eq!(query_port(&mut net, a, 1), Ok("UNKNOWN-ERROR".to_owned()), "nobody answers the look-up");
        assert_eq!(query_port(&mut net, b, 1), Ok("UNKNOWN-ERROR".to_owned()));
        assert_eq!(net[service].lookup_count(), 2);
        assert_eq!(query_port(&mut net, b, 6193), Ok("UNKNOWN-ERROR".to_owned()));
        assert_eq!(query_port(&mut net, told_nothing, 6193), Ok("UNKNOWN-ERROR".to_owned()));
        assert_eq!(net[service].counters().0.lookups_full, 1, "who is told nothing needs no look-up");
        let found = |token| IdentServiceCommand::Found { token, owner: OwnerLookupResult::NoOwner };
        net.send_command(service, found(0)).unwrap();
        assert_eq!(net[service].counters().0.late, 1);
        assert_eq!(net.send_command(service, found(0)), Err(CommandError::UnknownToken));
        assert_eq!(query_port(&mut net, b, 6193), Ok("ann (UNIX)".to_owned()), "there is room again");
    }

    #[test]
    fn each_network_has_its_own_query_rate_limit() {
        let of = IdentServiceConfig {
            queries: 3,
            lookups: 9,
            ..test_config(&[("0.0.0.0/0", DisclosureLevel::UserName)])
        };
        let (mut net, service, clients) = test_network(of, ["192.0.2.7", "192.0.2.8"]);
        let begin = |net: &mut MachineNetwork, client, token| {
            let ports = IdentPortPair::new(6193, 23);
            let question = IdentQuery { server: SocketAddr::new(parse_ip(SERVER), PORT), local: None, ports };
            net.send_command(client, ClientCommand::Query { token, question }).unwrap();
        };
        let heard = |net: &mut MachineNetwork, client| {
            let all = net.take_events(client).into_iter();
            let all = all.map(|(_, ClientEvent::Answered { answer, .. })| answer.unwrap().to_string());
            let mut all: Vec<_> = all.collect();
            all.sort();
            all
        };
        (0..5).for_each(|token| begin(&mut net, clients[0], token));
        begin(&mut net, clients[1], 9);
        net.run_for(Duration::from_millis(900));
        let unknown = "UNKNOWN-ERROR";
        assert_eq!(heard(&mut net, clients[0]), [unknown, unknown, "ann (UNIX)", "ann (UNIX)", "ann (UNIX)"]);
        assert_eq!(heard(&mut net, clients[1]), ["ann (UNIX)"]);
        let counters = *net[service].counters().0;
        assert_eq!((counters.limited, counters.lookups), (2, 4));
        assert_eq!(net.take_events(service).len(), 4, "of what was too much nothing is said");
        net.run_for(Duration::from_millis(200));
        begin(&mut net, clients[0], 10);
        net.run_for(Duration::from_millis(100));
        assert_eq!(heard(&mut net, clients[0]), ["ann (UNIX)"]);
        // The number of counted networks is bounded. A further network waits for the next second.
        let (mut rates, now) = (NetworkQueryCounts::default(), Instant::ZERO + SECOND);
        let network = |n: u32| IpAddr::from(core::net::Ipv4Addr::from_bits(n));
        assert!((0..NETWORKS as u32).all(|n| rates.count_query_within_limit(now, network(n), 1)));
        assert!(
            !rates.count_query_within_limit(now, network(u32::MAX), 1) && rates.by_network.len() == NETWORKS
        );
        assert!(rates.count_query_within_limit(now + SECOND, network(u32::MAX), 1));
    }

    #[test]
    fn new_rules_hold_for_connections_that_are_open() {
        let (mut net, service, [client]) =
            test_network(test_config(&[("0.0.0.0/0", DisclosureLevel::UserName)]), ["192.0.2.7"]);
        let ports = IdentPortPair::new(6193, 23);
        let question = IdentQuery { server: SocketAddr::new(parse_ip(SERVER), PORT), local: None, ports };
        net.send_command(client, ClientCommand::Query { token: 0, question }).unwrap();
        net.run_for(Duration::from_millis(1));
        assert_eq!(net[service].lookup_count(), 1);
        net.send_command(
            service,
            IdentServiceCommand::Configure(test_config(&[("0.0.0.0/0", DisclosureLevel::Hidden)])),
        )
        .unwrap();
        net.run_for(Duration::from_secs(1));
        let (_, ClientEvent::Answered { answer, .. }) = net.take_events(client).remove(0);
        assert_eq!(answer, Ok(ResponseBody::Error(ErrorType::HiddenUser)));
    }
}

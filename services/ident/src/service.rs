//! The service's machine.

use crate::disclosure::{Disclosure, Policy};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use usher_core::{
    Child, CommandError, Duration, Input, Instant, Machine, OutputOf, Outputs, StreamEvent, WallTime,
};
use usher_ident::{
    Answer, Connection, ErrorType, Server, ServerCommand, ServerConfig, ServerCounters, ServerEvent,
};

/// How a service is.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the protocol's server allows.
    pub server: ServerConfig,
    /// What is disclosed, and to whom.
    pub policy: Policy,
    /// Owners that may be looked up at a time; beyond it a query is UNKNOWN-ERROR.
    pub lookups: usize,
    /// Queries of one network in a second ([`usher_core::address::host_of`]); beyond it a query is UNKNOWN-ERROR, and nothing is said of it.
    pub queries: u32,
}

/// Networks whose queries are counted in a second, at most.
const NETWORKS: usize = 16_384;

/// How many queries networks have sent in the second that it is.
#[derive(Debug, Default)]
struct Rates {
    since: Instant,
    of: BTreeMap<IpAddr, u32>,
}

impl Rates {
    /// One more of a network; false: it is one too many.
    fn take(&mut self, now: Instant, network: IpAddr, most: u32) -> bool {
        if now.since(self.since) >= SECOND {
            (self.since, self.of) = (now, BTreeMap::new());
        }
        if self.of.len() >= NETWORKS && !self.of.contains_key(&network) {
            return false;
        }
        let sent = self.of.entry(network).or_default();
        *sent = sent.saturating_add(1);
        *sent <= most
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// What a service asks of somebody who knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Job {
    /// Who owns this connection's local end? [`Command::Found`] is owed.
    Owner(Connection),
}

/// A user.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct User {
    /// The name.
    pub name: Option<Vec<u8>>,
    /// The number, where the system has one.
    pub uid: Option<u32>,
}

impl fmt::Debug for User {
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

/// What is known of who owns a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Owner {
    /// This user.
    User(User),
    /// There is no such connection, or nobody owns it.
    Nobody,
    /// It cannot be found out.
    Unknown,
}

/// What a service is told.
#[derive(Clone, Debug)]
pub enum Command {
    /// Who owns a connection.
    Found {
        /// Of the job.
        token: u64,
        /// The owner.
        owner: Owner,
    },
    /// Be so from now on; connections that are open stay, and are told by the new rules.
    Configure(Config),
}

/// What a service says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Somebody asked and was answered: what a log of who asked holds. What is no query is not among it.
    Answered {
        /// Who asked.
        asker: SocketAddr,
        /// About what.
        connection: Connection,
        /// What was said.
        answer: Answer,
    },
    /// Somebody connected who may not ask.
    Refused {
        /// Who.
        asker: SocketAddr,
    },
}

usher_core::counters! {
    /// What a service did beside its protocol.
    pub struct Counters {
        /// Connections refused of who may not ask.
        not_an_asker,
        /// Owners looked up.
        lookups,
        /// Queries answered UNKNOWN-ERROR: as many look-ups as may be were under way.
        lookups_full,
        /// Queries answered UNKNOWN-ERROR: their network had sent as many in that second as it may.
        limited,
        /// Answers that came too late, for a query that was given up or whose connection has gone.
        late,
    }
}

#[derive(Debug)]
struct Asked {
    asker: SocketAddr,
    connection: Connection,
}

/// An IDENT service; see the [crate](crate).
#[derive(Debug)]
pub struct IdentService {
    server: Child<Server>,
    policy: Policy,
    most: usize,
    queries: u32,
    rates: Rates,
    /// The wall time at [`Instant::ZERO`].
    epoch: WallTime,
    /// Look-ups under way, under the tokens of the server's questions.
    asked: BTreeMap<u64, Asked>,
    counters: Counters,
    outputs: Outputs<Event, Job>,
}

impl IdentService {
    /// A service that is so.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            server: Child::only(Server::new(config.server)),
            policy: config.policy,
            most: config.lookups,
            queries: config.queries,
            rates: Rates::default(),
            epoch: WallTime::UNIX_EPOCH,
            asked: BTreeMap::new(),
            counters: Counters::default(),
            outputs: Outputs::default(),
        }
    }
    /// What it has done, beside its protocol and in it.
    #[must_use]
    pub fn counters(&self) -> (&Counters, &ServerCounters) {
        (&self.counters, self.server.counters())
    }
    /// Look-ups under way.
    #[must_use]
    pub fn lookups(&self) -> usize {
        self.asked.len()
    }

    /// Takes up what the protocol's server asks.
    fn take_up(&mut self, now: Instant) {
        while let Some(ServerEvent::Asked { token, asker, connection }) =
            self.outputs.next_event(&mut self.server)
        {
            if !self.rates.take(now, usher_core::address::host_of(asker.ip()), self.queries) {
                self.counters.limited += 1;
                let answer = Answer::Error(ErrorType::UnknownError);
                // It may have gone; and a flood is not to fill whoever's log.
                let _ = self.server.command(now, ServerCommand::Answer { token, answer });
                continue;
            }
            // Who may not ask any more, and who is told nothing, needs no look-up.
            let told = self.policy.of(asker.ip()).unwrap_or(Disclosure::Nothing);
            let full = self.asked.len() >= self.most;
            if told == Disclosure::Nothing || full {
                self.counters.lookups_full += u64::from(told != Disclosure::Nothing);
                let answer = Answer::Error(ErrorType::UnknownError);
                self.answer(now, token, Asked { asker, connection }, answer);
            } else {
                self.counters.lookups += 1;
                self.asked.insert(token, Asked { asker, connection });
                self.outputs.job(usher_core::Job::new(token, Job::Owner(connection)));
            }
        }
    }

    fn answer(&mut self, now: Instant, token: u64, asked: Asked, answer: Answer) {
        let Asked { asker, connection } = asked;
        let command = ServerCommand::Answer { token, answer: answer.clone() };
        match self.server.command(now, command) {
            Ok(()) => self.outputs.event(Event::Answered { asker, connection, answer }),
            Err(_) => self.counters.late += 1,
        }
    }
}

impl Machine for IdentService {
    type Command = Command;
    type Event = Event;
    type Job = Job;

    fn set_epoch(&mut self, _: Instant, epoch: WallTime) {
        self.epoch = epoch;
    }

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if let Input::Stream { event: StreamEvent::Accepted { remote, .. }, .. } = input
            && self.policy.of(remote.ip()).is_none()
            && let Some(refusal) = input.refusal()
        {
            self.counters.not_an_asker += 1;
            self.outputs.event(Event::Refused { asker: remote });
            return self.outputs.operate(refusal);
        }
        self.server.handle(now, input);
        self.take_up(now);
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Found { token, owner } => {
                let asked = self.asked.remove(&token).ok_or(CommandError::UnknownToken)?;
                let told = self.policy.of(asked.asker.ip()).unwrap_or(Disclosure::Nothing);
                let at = now.wall(self.epoch);
                let answer = self.policy.answer(told, at, &asked.connection, &owner);
                self.answer(now, token, asked, answer);
            }
            Command::Configure(config) => {
                (self.policy, self.most, self.queries) = (config.policy, config.lookups, config.queries);
                self.server.command(now, ServerCommand::Configure(config.server))?;
            }
        }
        self.take_up(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
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
    use usher_core::bench::{At, Network};
    use usher_core::impair::ChannelConfig;
    use usher_ident::{
        AskError, Client, ClientCommand, ClientConfig, ClientEvent, PORT, PortPair, Question, Token,
    };

    const SERVER: &str = "192.0.2.1";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn config(askers: &[(&str, Disclosure)]) -> Config {
        let askers = askers.iter().map(|(prefix, what)| (Prefix::parse(prefix).unwrap(), *what)).collect();
        let opsys = Token::new("UNIX").unwrap();
        let policy = Policy { askers, hide: Vec::new(), opsys, charset: None, key: None };
        Config { server: ServerConfig::default(), policy, lookups: 2, queries: 50 }
    }

    /// A service that is told after 3 ms that user 1000, `ann`, owns port 6193, nobody port 6195, and nothing of any other;
    /// and somebody at each of these addresses.
    fn world<const N: usize>(
        config: Config,
        askers: [&str; N],
    ) -> (Network, At<IdentService>, [At<Client>; N]) {
        let mut net = Network::new(ChannelConfig::default());
        let service = net.add(IdentService::new(config), &[ip(SERVER)]);
        net.listen(service, ListenerId::own(0), SocketAddr::new(ip(SERVER), PORT));
        net.on_job(service, |usher_core::Job { token, what: Job::Owner(connection), .. }| {
            let owner = match connection.local.port() {
                6193 => Owner::User(User { name: Some(b"ann".to_vec()), uid: Some(1000) }),
                6195 => Owner::Nobody,
                6197 => Owner::Unknown,
                _ => return None,
            };
            Some((Duration::from_millis(3), Command::Found { token, owner }))
        });
        let clients = askers.map(|address| net.add(Client::new(ClientConfig::default()), &[ip(address)]));
        (net, service, clients)
    }

    fn ask(net: &mut Network, client: At<Client>, port: u16) -> Result<String, AskError> {
        let ports = PortPair::new(port, 23);
        let question = Question { server: SocketAddr::new(ip(SERVER), PORT), local: None, ports };
        net.command(client, ClientCommand::Ask { token: 0, question }).unwrap();
        net.run(Duration::from_secs(10));
        let mut said = net.take(client);
        assert_eq!(said.len(), 1);
        let (_, ClientEvent::Answered { answer, .. }) = said.remove(0);
        answer.map(|answer| answer.to_string())
    }

    #[test]
    fn each_asker_is_told_what_is_set_for_its_network() {
        let askers = [("192.0.2.0/24", Disclosure::UserName), ("198.51.100.0/24", Disclosure::Nothing)];
        let (mut net, service, [near, far, nobody]) =
            world(config(&askers), ["192.0.2.7", "198.51.100.7", "203.0.113.7"]);
        let is = |text: &str| Ok(text.to_owned());
        assert_eq!(ask(&mut net, near, 6193), is("ann (UNIX)"));
        assert_eq!(ask(&mut net, near, 6195), is("NO-USER"));
        assert_eq!(ask(&mut net, near, 6197), is("UNKNOWN-ERROR"));
        assert_eq!(ask(&mut net, far, 6193), is("UNKNOWN-ERROR"));
        assert_eq!(ask(&mut net, nobody, 6193), Err(AskError::Closed));
        let (own, server) = net[service].counters();
        assert_eq!((own.lookups, own.not_an_asker, server.connections), (3, 1, 4));
        let said = net.take(service);
        let asker = |n: usize| match &said[n].1 {
            Event::Answered { asker, answer, .. } => (asker.ip(), answer.to_string()),
            Event::Refused { asker } => (asker.ip(), "refused".to_owned()),
        };
        assert_eq!(said.len(), 5);
        assert_eq!(asker(0), (ip("192.0.2.7"), "ann (UNIX)".to_owned()));
        assert_eq!(asker(4), (ip("203.0.113.7"), "refused".to_owned()));
    }

    #[test]
    fn look_ups_are_bounded_and_those_that_come_late_are_nothing() {
        let askers = [("0.0.0.0/0", Disclosure::UserName), ("198.51.100.0/24", Disclosure::Nothing)];
        let (mut net, service, [a, b, told_nothing]) =
            world(config(&askers), ["192.0.2.7", "192.0.2.8", "198.51.100.7"]);
        assert_eq!(ask(&mut net, a, 1), Ok("UNKNOWN-ERROR".to_owned()), "nobody answers the look-up");
        assert_eq!(ask(&mut net, b, 1), Ok("UNKNOWN-ERROR".to_owned()));
        assert_eq!(net[service].lookups(), 2);
        assert_eq!(ask(&mut net, b, 6193), Ok("UNKNOWN-ERROR".to_owned()));
        assert_eq!(ask(&mut net, told_nothing, 6193), Ok("UNKNOWN-ERROR".to_owned()));
        assert_eq!(net[service].counters().0.lookups_full, 1, "who is told nothing needs no look-up");
        let found = |token| Command::Found { token, owner: Owner::Nobody };
        net.command(service, found(0)).unwrap();
        assert_eq!(net[service].counters().0.late, 1);
        assert_eq!(net.command(service, found(0)), Err(CommandError::UnknownToken));
        assert_eq!(ask(&mut net, b, 6193), Ok("ann (UNIX)".to_owned()), "there is room again");
    }

    #[test]
    fn a_network_asks_so_often_in_a_second_and_others_have_their_own() {
        let of = Config { queries: 3, lookups: 9, ..config(&[("0.0.0.0/0", Disclosure::UserName)]) };
        let (mut net, service, clients) = world(of, ["192.0.2.7", "192.0.2.8"]);
        let begin = |net: &mut Network, client, token| {
            let ports = PortPair::new(6193, 23);
            let question = Question { server: SocketAddr::new(ip(SERVER), PORT), local: None, ports };
            net.command(client, ClientCommand::Ask { token, question }).unwrap();
        };
        let heard = |net: &mut Network, client| {
            let all = net.take(client).into_iter();
            let all = all.map(|(_, ClientEvent::Answered { answer, .. })| answer.unwrap().to_string());
            let mut all: Vec<_> = all.collect();
            all.sort();
            all
        };
        (0..5).for_each(|token| begin(&mut net, clients[0], token));
        begin(&mut net, clients[1], 9);
        net.run(Duration::from_millis(900));
        let unknown = "UNKNOWN-ERROR";
        assert_eq!(heard(&mut net, clients[0]), [unknown, unknown, "ann (UNIX)", "ann (UNIX)", "ann (UNIX)"]);
        assert_eq!(heard(&mut net, clients[1]), ["ann (UNIX)"]);
        let counters = *net[service].counters().0;
        assert_eq!((counters.limited, counters.lookups), (2, 4));
        assert_eq!(net.take(service).len(), 4, "of what was too much nothing is said");
        net.run(Duration::from_millis(200));
        begin(&mut net, clients[0], 10);
        net.run(Duration::from_millis(100));
        assert_eq!(heard(&mut net, clients[0]), ["ann (UNIX)"]);
        // However many ask, what is remembered is bounded; who is not known then waits for the next second.
        let (mut rates, now) = (Rates::default(), Instant::ZERO + SECOND);
        let network = |n: u32| IpAddr::from(core::net::Ipv4Addr::from_bits(n));
        assert!((0..NETWORKS as u32).all(|n| rates.take(now, network(n), 1)));
        assert!(!rates.take(now, network(u32::MAX), 1) && rates.of.len() == NETWORKS);
        assert!(rates.take(now + SECOND, network(u32::MAX), 1));
    }

    #[test]
    fn new_rules_hold_for_connections_that_are_open() {
        let (mut net, service, [client]) =
            world(config(&[("0.0.0.0/0", Disclosure::UserName)]), ["192.0.2.7"]);
        let ports = PortPair::new(6193, 23);
        let question = Question { server: SocketAddr::new(ip(SERVER), PORT), local: None, ports };
        net.command(client, ClientCommand::Ask { token: 0, question }).unwrap();
        net.run(Duration::from_millis(1));
        assert_eq!(net[service].lookups(), 1);
        net.command(service, Command::Configure(config(&[("0.0.0.0/0", Disclosure::Hidden)]))).unwrap();
        net.run(Duration::from_secs(1));
        let (_, ClientEvent::Answered { answer, .. }) = net.take(client).remove(0);
        assert_eq!(answer, Ok(Answer::Error(ErrorType::HiddenUser)));
    }
}

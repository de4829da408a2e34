//! Logins and accounting sessions over Diameter, on one or several connections.
//!
//! RFC 6733 §2.1 allows one connection between two DiameterIdentities: each connection is a node with an
//! identity of its own.

use super::login::{Login, Logins, Sink, Start, Success};
use super::{Accounting, ConfigError, Front, NotNow};
use crate::eap::{self, Conversation, EapMethod, Turn, Who};
use crate::tally::Failure;
use crate::users::Users;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use usher_core::timer::TimerQueue;
use usher_core::{Child, Duration, Input, Instant, Machine, Outputs, SecureRng, WallTime};
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes::{self, application, command};
use usher_diameter::eap::{Dea, Der};
use usher_diameter::nasreq::{Aar, AuthRequestType, NasInfo};
use usher_diameter::node::{self, Command, Event, FailReason, Node, Request};
use usher_diameter::peer::capabilities::Application;
use usher_diameter::{Fault, ResultCode};
use usher_eap::peer;

/// Auth-Session-State NO_STATE_MAINTAINED (RFC 6733 §8.11).
const NO_STATE_MAINTAINED: u32 = 1;
/// Service-Type Framed (RFC 2865 §5.6).
const FRAMED: u32 = 2;
/// How soon a lost connection is opened again.
const RECONNECT: Duration = Duration::from_secs(2);

/// How a user logs in over Diameter.
#[derive(Clone, Debug)]
pub enum DiameterLogin {
    /// AA-Request with a password (RFC 7155).
    Pap,
    /// Diameter-EAP-Request (RFC 4072).
    Eap(EapMethod),
}

/// What a Diameter generator is made of.
#[derive(Clone, Debug)]
pub struct DiameterConfig {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Our address, for Host-IP-Address.
    pub local: IpAddr,
    /// What the server calls itself.
    pub server: String,
    /// What the first connection calls itself; the `n`-th has its number behind the first label.
    pub host: String,
    /// Our realm.
    pub realm: String,
    /// Destination-Realm of every request.
    pub destination: String,
    /// How many connections, at least one.
    pub connections: usize,
    /// The number of the first, where other generators have connections too.
    pub first: usize,
    /// How users log in; empty: they do not, there is accounting only.
    pub logins: Vec<DiameterLogin>,
    /// Accounting after each login that was let in.
    pub accounting: Option<Accounting>,
    /// The identity outside an EAP tunnel; `None`: the user's name.
    pub anonymous: Option<Arc<[u8]>>,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// The time of day at [`Instant::ZERO`], for certificates.
    pub epoch: WallTime,
}

#[derive(Debug)]
enum State {
    Pap,
    /// EAP, with the server that answered last and its State.
    Eap {
        conversation: Box<Conversation>,
        host: Option<String>,
        state: Vec<u8>,
    },
    Accounting {
        record: u32,
        began: Instant,
    },
}

/// Several Diameter nodes and the users behind them.
#[derive(Debug)]
pub(super) struct Diameter {
    config: DiameterConfig,
    users: Arc<Users>,
    nodes: Vec<Child<Node>>,
    up: Vec<bool>,
    /// Nodes that may have something to send, each once.
    busy: Vec<usize>,
    rng: SecureRng,
    logins: Logins<(usize, State)>,
    timers: TimerQueue<u64>,
    next: usize,
    boot: u32,
    eap: Vec<u8>,
}

/// The identity of the `n`-th connection, from 0.
fn numbered(host: &str, n: usize) -> String {
    match (n, host.split_once('.')) {
        (0, _) => host.to_owned(),
        (n, Some((label, rest))) => format!("{label}-{}.{rest}", n + 1),
        (n, None) => format!("{host}-{}", n + 1),
    }
}

impl Diameter {
    pub(super) fn new(
        config: DiameterConfig,
        users: Arc<Users>,
        start: Instant,
        mut rng: SecureRng,
    ) -> Result<Self, ConfigError> {
        if config.connections == 0 {
            return Err(ConfigError::Invalid("there is no Diameter connection; at least one"));
        }
        if config.connections > usize::from(u16::MAX) {
            return Err(ConfigError::Invalid(
                "more Diameter connections than one generator has; at most 65535",
            ));
        }
        let mut applications = Vec::new();
        if config.logins.is_empty() && config.accounting.is_none() {
            return Err(ConfigError::Invalid("neither a login nor accounting is asked for"));
        }
        let eap = |l: &DiameterLogin| matches!(l, DiameterLogin::Eap(_));
        if config.logins.iter().any(|l| !eap(l)) {
            applications.push(Application::auth(application::NASREQ));
        }
        if config.logins.iter().any(eap) {
            applications.push(Application::auth(application::EAP));
        }
        if config.accounting.is_some() {
            applications.push(Application::acct(application::ACCOUNTING));
        }
        let nodes = (0..config.connections).map(|n| {
            let host = numbered(&config.host, config.first + n);
            let mut c = node::Config::new(&host, &config.realm, &applications);
            c = c.connect_to(&config.server, config.address);
            c.local.addresses.push(config.local);
            c.reconnect = RECONNECT;
            c.request_timeout = Some(config.timeout);
            Node::new(c, start, SecureRng::from_seed(rng.array()))
        });
        // Their number was checked: each has a slot.
        let nodes: Vec<_> = (0..u16::MAX).zip(nodes).map(|(slot, node)| Child::new(slot, node)).collect();
        Ok(Self {
            up: vec![false; nodes.len()],
            busy: (0..nodes.len()).collect(),
            nodes,
            users,
            logins: Logins::default(),
            timers: TimerQueue::new(),
            next: 0,
            boot: rng.next_u32(),
            eap: Vec::new(),
            rng,
            config,
        })
    }

    fn wake(&mut self, node: usize) {
        if !self.busy.contains(&node) {
            self.busy.push(node);
        }
    }

    fn wall(&self, now: Instant) -> WallTime {
        WallTime::from_unix_secs(self.config.epoch.unix_secs() + now.as_nanos() / 1_000_000_000)
    }

    /// Sends what a login's state asks for; its EAP packet is in the buffer.
    fn ask(&mut self, now: Instant, token: u64) -> Result<(), Failure> {
        let users = self.users.clone();
        let Some(login) = self.logins.get_mut(token) else { return Ok(()) };
        login.asked = now;
        let start = login.start;
        let anonymous = match self.config.logins.get(usize::from(start.method)) {
            Some(DiameterLogin::Eap(method)) if method.has_tunnel() => self.config.anonymous.clone(),
            _ => None,
        };
        let (right_name, right) = users.get(start.user);
        let (node, state) = &login.state;
        let node = *node;
        let identity = self.nodes[node].identity();
        let session = format!("{identity};{};{};{}", self.boot, token >> 32, token as u32);
        let outer = match (state, &anonymous) {
            (State::Eap { .. }, Some(anonymous)) => anonymous,
            _ => right_name,
        };
        let name = core::str::from_utf8(outer).map_err(|_| Failure::BadAnswer)?;
        let nas = NasInfo {
            identifier: Some(identity),
            port: Some(token as u32),
            service_type: Some(FRAMED),
            framed_mtu: Some(1400),
            ..NasInfo::default()
        };
        let realm = self.config.destination.clone();
        let both = AuthRequestType::AuthorizeAuthenticate;
        let request = match state {
            State::Pap => {
                let mut altered = [0; 128];
                let password = if start.wrong { super::alter(right, &mut altered) } else { right };
                let aar = Aar {
                    chap: None,
                    request_type: both,
                    user_name: Some(name),
                    password: Some(password),
                    state: None,
                    nas,
                };
                let mut request = aar.request(token, session, realm, None);
                request.avps.push_u32(codes::AUTH_SESSION_STATE, NO_STATE_MAINTAINED);
                request
            }
            State::Eap { host, state, .. } => {
                let state = (!state.is_empty()).then_some(&state[..]);
                let der = Der { request_type: both, eap: &self.eap, user_name: Some(name), state, nas };
                let mut request = der.request(token, session, realm, host.clone());
                request.avps.push_u32(codes::AUTH_SESSION_STATE, NO_STATE_MAINTAINED);
                request
            }
            State::Accounting { record, .. } => {
                let interims = self.config.accounting.map_or(0, |a| a.interims);
                let mut avps = AvpBuf::with_capacity(128);
                let kind = match *record {
                    0 => 2,
                    n if n <= interims => 3,
                    _ => 4,
                };
                avps.push_u32(codes::ACCOUNTING_RECORD_TYPE, kind);
                avps.push_u32(codes::ACCOUNTING_RECORD_NUMBER, *record);
                avps.push_str(codes::USER_NAME, name);
                nas.emit(&mut avps);
                Request {
                    token,
                    application: application::ACCOUNTING,
                    command: command::ACCOUNTING,
                    destination_realm: realm,
                    destination_host: None,
                    session_id: session,
                    avps,
                }
            }
        };
        let sent = self.nodes[node].command(now, Command::Request(request));
        self.wake(node);
        sent.map_err(|_| Failure::Unreachable)
    }

    fn end(&mut self, now: Instant, token: u64, result: Result<Success, Failure>, sink: &mut Sink) {
        if let Some(login) = self.logins.remove(token) {
            sink.end(now, &login.start, result);
        }
    }

    fn answered(&mut self, now: Instant, token: u64, result: ResultCode, avps: &AvpBuf, sink: &mut Sink) {
        let Some(login) = self.logins.get_mut(token) else { return };
        sink.exchange(now, login.asked);
        login.rounds += 1;
        let (rounds, wrong) = (login.rounds, login.start.wrong);
        let method = usize::from(login.start.method);
        let rejected =
            matches!(result, ResultCode::AUTHENTICATION_REJECTED | ResultCode::AUTHORIZATION_REJECTED);
        if !rejected && !result.is_success() && !result.is_informational() {
            sink.fault(now, result.0);
            return self.end(now, token, Err(Failure::ServerFault), sink);
        }
        let verdict = match &mut login.state.1 {
            State::Accounting { record, began } => {
                if !result.is_success() {
                    return self.end(now, token, Err(Failure::BadAnswer), sink);
                }
                sink.recorded(now);
                let (next, began) = (*record + 1, *began);
                return self.acknowledged(now, token, next, began, sink);
            }
            _ if rejected => Ok(Success::TurnedAway),
            State::Pap if result.is_success() => Ok(Success::LetIn),
            State::Pap => Err(Failure::UnexpectedChallenge),
            State::Eap { conversation, host, state } => {
                let Some(DiameterLogin::Eap(method)) = self.config.logins.get(method) else { return };
                match Dea::parse(avps.view()) {
                    Err(_) => Err(Failure::BadAnswer),
                    Ok(Dea { eap: None, .. }) => Err(Failure::NoEap),
                    Ok(dea) => {
                        let turn = conversation.turn(now, dea.eap.unwrap_or_default(), &mut self.eap);
                        match (result.is_success(), turn) {
                            (true, Ok(Turn::Over(peer::Event::Success { keys }))) => {
                                let sent = dea.msk.map(|k| k.split_at(k.len() / 2));
                                eap::check_keys(method, keys.as_ref(), sent).map(|()| Success::LetIn)
                            }
                            // The method was not done, whatever the packet says.
                            (true, _) => Err(Failure::EarlySuccess),
                            (false, Ok(Turn::Over(_))) => Err(Failure::EapFailed),
                            (false, Err(failure)) => Err(failure),
                            (false, Ok(Turn::Respond)) if !eap::may_go_on(rounds) => {
                                Err(Failure::TooManyRounds)
                            }
                            (false, Ok(Turn::Respond)) => {
                                *host = dea.origin_host.map(str::to_owned);
                                state.clear();
                                state.extend_from_slice(dea.state.unwrap_or_default());
                                match self.ask(now, token) {
                                    Ok(()) => return,
                                    Err(failure) => Err(failure),
                                }
                            }
                        }
                    }
                }
            }
        };
        let verdict = match verdict {
            Ok(Success::LetIn) if wrong => Err(Failure::WronglyAccepted),
            Ok(Success::TurnedAway) if !wrong => Err(Failure::Rejected),
            other => other,
        };
        if verdict == Ok(Success::LetIn) && self.config.accounting.is_some() {
            return self.acknowledged(now, token, 0, now, sink);
        }
        self.end(now, token, verdict, sink);
    }

    /// A session's record `next` is due, at once or later; behind the last there is none.
    fn acknowledged(&mut self, now: Instant, token: u64, next: u32, began: Instant, sink: &mut Sink) {
        let Some(accounting) = self.config.accounting else { return };
        if next > accounting.interims + 1 {
            return self.end(now, token, Ok(Success::LetIn), sink);
        }
        let Some(login) = self.logins.get_mut(token) else { return };
        login.state.1 = State::Accounting { record: next, began };
        if next != 0 && !accounting.every.is_zero() {
            self.timers.insert(now + accounting.every, token);
        } else if let Err(failure) = self.ask(now, token) {
            self.end(now, token, Err(failure), sink);
        }
    }
}

impl Front for Diameter {
    fn ready(&self) -> bool {
        self.up.iter().all(|up| *up)
    }

    fn begin(&mut self, now: Instant, start: Start, sink: &mut Sink) -> Result<(), NotNow> {
        let users = self.users.clone();
        let (name, right) = users.get(start.user);
        let mut altered = [0; 128];
        let password = if start.wrong { super::alter(right, &mut altered) } else { right };
        let state = match self.config.logins.get(usize::from(start.method)) {
            None => State::Accounting { record: 0, began: now },
            Some(DiameterLogin::Pap) => State::Pap,
            Some(DiameterLogin::Eap(method)) => {
                let rng = SecureRng::from_seed(self.rng.array());
                let anonymous = self.config.anonymous.as_deref().filter(|_| method.has_tunnel());
                let outer = anonymous.unwrap_or(name);
                let who = Who { number: start.user, outer, name, password, wrong: start.wrong };
                let conversation = Conversation::begin(method, who, self.wall(now), now, rng, &mut self.eap);
                State::Eap { conversation: Box::new(conversation), host: None, state: Vec::new() }
            }
        };
        let node = self.next;
        self.next = (self.next + 1) % self.nodes.len();
        let login = Login { start, asked: now, rounds: 0, state: (node, state) };
        let token = self.logins.insert(login);
        if let Err(failure) = self.ask(now, token) {
            self.end(now, token, Err(failure), sink);
        }
        Ok(())
    }

    fn outstanding(&self) -> usize {
        self.logins.len()
    }

    fn each(&self, see: &mut dyn FnMut(&Start)) {
        self.logins.iter().for_each(|(_, login)| see(&login.start));
    }

    fn abandon(&mut self, now: Instant) {
        let open: Vec<(u64, usize)> = self.logins.iter().map(|(token, l)| (token, l.state.0)).collect();
        for (token, node) in open {
            self.logins.remove(token);
            // A session between two records has no request to forget.
            let _ = self.nodes[node].command(now, Command::Forget { token });
        }
        self.timers = TimerQueue::new();
    }

    fn leave(&mut self, now: Instant) {
        for node in 0..self.nodes.len() {
            let (peer, cause) = (node::PeerId(0), node::DisconnectCause::DoNotWantToTalkToYou);
            // Each node has this one peer.
            let _ = self.nodes[node].command(now, Command::Disconnect { peer, cause });
            self.wake(node);
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut sum = node::Counters::default();
        self.nodes.iter().for_each(|n| sum.add(n.counters()));
        sum.iter().collect()
    }

    fn handle(&mut self, now: Instant, input: Input<'_>, sink: &mut Sink) {
        match input {
            Input::Timeout => {
                for node in 0..self.nodes.len() {
                    if self.nodes[node].poll_timeout().is_some_and(|at| at <= now) {
                        self.nodes[node].handle(now, Input::Timeout);
                        self.wake(node);
                    }
                }
            }
            _ => {
                let Some((slot, input)) = input.enter() else { return };
                let node = usize::from(slot);
                if let Some(one) = self.nodes.get_mut(node) {
                    one.handle(now, input);
                    self.wake(node);
                }
            }
        }
        while let Some((_, token)) = self.timers.pop_due(now) {
            if let Err(failure) = self.ask(now, token) {
                self.end(now, token, Err(failure), sink);
            }
        }
    }

    fn settle(&mut self, now: Instant, outputs: &mut Outputs<super::Event>, sink: &mut Sink) {
        while let Some(node) = self.busy.pop() {
            while let Some(event) = outputs.next_event(&mut self.nodes[node]) {
                match event {
                    Event::Answer { token, result, avps } => self.answered(now, token, result, &avps, sink),
                    Event::Failed { token, reason } => {
                        let failure = match reason {
                            FailReason::TimedOut => Failure::Timeout,
                            FailReason::NoRoute => Failure::Unreachable,
                            FailReason::ConnectionLost => Failure::ConnectionLost,
                            FailReason::BadAnswer => Failure::BadAnswer,
                        };
                        self.end(now, token, Err(failure), sink);
                    }
                    Event::PeerUp { .. } => self.up[node] = true,
                    Event::PeerDown { .. } => self.up[node] = false,
                    Event::Request { token, .. } => {
                        let fault = Fault::new(
                            ResultCode::COMMAND_UNSUPPORTED,
                            "nothing is asked of a load generator",
                        );
                        // The connection it came by may be gone: then nobody waits for the answer.
                        let _ = self.nodes[node].command(now, Command::Reject { token, fault });
                    }
                }
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let nodes = self.nodes.iter_mut().filter_map(|node| node.poll_timeout()).min();
        [nodes, self.timers.next()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_has_an_identity() {
        let names: Vec<_> = (0..3).map(|n| numbered("load.example.org", n)).collect();
        assert_eq!(names, ["load.example.org", "load-2.example.org", "load-3.example.org"]);
        assert_eq!(numbered("load", 1), "load-2");
    }
}

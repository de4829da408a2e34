//! MIH functions that ask another one, each with an identifier, a socket or connection of its own.

use super::NotNow;
use super::login::{Login, Logins, Sink, Start, Success};
use crate::tally::Failure;
use std::net::SocketAddr;
use usher_core::{Child, Duration, Input, Instant, Machine, Outputs, Rng, TransportProtocol};
use usher_mih::{
    self as mih, Command, Event, LinkDescriptors, LinkId, LinkParamType, LinkStates, LinkStatusRequest,
    LinkTupleId, LinkType, Message, MessageId, Mihf, MihfId, NetTypeAddr, Opcode, Peer, RegisterCode, Route,
    Service, Status, Timing, Tlv, Unanswered, kind,
};

/// Transactions that a function has under way: identifiers are of 12 bits, and ended ones are remembered.
const ROOM: usize = 1024;
/// The token of what is no transaction of the load.
const ASIDE: u64 = u64::MAX;
/// How soon discovery that was not answered begins again.
const AGAIN: Duration = Duration::from_secs(1);

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MihRequest {
    /// MIH_Capability_Discover.
    Discover,
    /// MIH_Register.
    Register,
    /// MIH_Link_Get_Parameters of all links of the other function.
    Parameters,
    /// MIH_Link_Up indications; each ends with its acknowledgement, or as soon as it is sent where none is asked for.
    Indication,
}

/// What an MIH generator is made of.
#[derive(Clone, Debug)]
pub struct MihConfig {
    /// Where the other function is.
    pub address: SocketAddr,
    /// UDP or TCP.
    pub transport: TransportProtocol,
    /// Whether MIH acknowledgements are asked for.
    pub ack: bool,
    /// What is asked.
    pub request: MihRequest,
    /// What the first function calls itself; the `n`-th has its number behind the first label.
    pub identity: String,
    /// How many functions ask, at least one.
    pub functions: usize,
    /// The number of the first, where other generators have functions too.
    pub first: usize,
    /// How long an acknowledgement is waited for before a message is sent again.
    pub retransmission: Duration,
    /// How often it is.
    pub retransmissions: u8,
    /// How long a response is waited for.
    pub timeout: Duration,
}

/// One of the asking functions.
#[derive(Debug)]
struct Function {
    mihf: Child<Mihf>,
    open: usize,
    /// It is on the list of those that may have something to say.
    listed: bool,
    due: Instant,
}

/// The functions that ask.
#[derive(Debug)]
pub(super) struct MihFront {
    config: MihConfig,
    functions: Vec<Function>,
    busy: Vec<usize>,
    next: usize,
    /// With the number of its function.
    logins: Logins<usize>,
    /// What the other one is called, and what it is asked, once that is known.
    found: Option<(MihfId, Message)>,
    /// When discovery begins, again where it was not answered.
    discover_at: Option<Instant>,
}

/// What the `n`-th function is called, from 0.
fn numbered(identity: &str, n: usize) -> String {
    match (n, identity.find(['.', '@'])) {
        (0, _) => identity.to_owned(),
        (n, Some(end)) => format!("{}-{}{}", &identity[..end], n + 1, &identity[end..]),
        (n, None) => format!("{identity}-{}", n + 1),
    }
}

impl MihFront {
    pub(super) fn new(config: MihConfig, start: Instant, mut rng: Rng) -> Result<Self, super::ConfigError> {
        if config.functions == 0 || config.functions >= usize::from(u16::MAX) {
            return Err(super::ConfigError::Invalid("1 to 65534 MIH functions can ask"));
        }
        let timing = Timing {
            retransmission: config.retransmission,
            retransmissions: config.retransmissions,
            response: Some(config.timeout),
            unanswered: Unanswered::Abort,
        };
        let mut functions = Vec::new();
        for n in 0..config.functions {
            let id = MihfId::new(numbered(&config.identity, config.first + n))
                .map_err(|_| super::ConfigError::Invalid("the MIHF identifier is too long"))?;
            let mut settings = mih::Config::new(id);
            settings.timing = timing;
            // Whoever discovers asks again: what goes to all is not acknowledged.
            let discovery = Timing {
                response: Some(config.retransmission),
                unanswered: Unanswered::Retransmit,
                ..timing
            };
            let request = MessageId::CAPABILITY_DISCOVER_REQUEST;
            if config.request != MihRequest::Discover {
                settings.by_message.insert((Service::Management, request.action), discovery);
            }
            // Identifiers come round within seconds: what has ended is not to hide what is new.
            settings.lifetime = Duration::ZERO;
            settings.transaction = Some(config.timeout + config.timeout);
            settings.port = 0;
            let chance = usher_core::Seed::new(rng.next_u64()).stream("mih", 0);
            let mihf = Child::new(n as u16, Mihf::new(settings, chance));
            functions.push(Function { mihf, open: 0, listed: false, due: Instant::FAR_FUTURE });
        }
        Ok(Self {
            functions,
            busy: Vec::new(),
            next: 0,
            logins: Logins::default(),
            found: None,
            discover_at: Some(start),
            config,
        })
    }

    fn touched(&mut self, n: usize) {
        if !core::mem::replace(&mut self.functions[n].listed, true) {
            self.busy.push(n);
        }
    }

    fn peer(&self, id: MihfId) -> Peer {
        let Self { config, .. } = self;
        let route = Route { transport: config.transport, local: None, remote: config.address };
        Peer { id, route, ack: config.ack }
    }

    /// Asks who is there.
    fn discover(&mut self, now: Instant) {
        self.discover_at = None;
        let all = self.peer(MihfId::multicast());
        let function = &mut self.functions[0].mihf;
        let message = Message::new(MessageId::CAPABILITY_DISCOVER_REQUEST, []);
        let send = Command::Send { token: ASIDE, to: MihfId::multicast(), message };
        let sent = function.command(now, Command::Peer(all)).and_then(|()| function.command(now, send));
        if sent.is_err() {
            self.discover_at = Some(now + AGAIN);
        }
        self.touched(0);
    }

    /// Who was found, and what is asked of it.
    fn discovered(&mut self, now: Instant, peer: &MihfId, answer: &Message) {
        let of = |of: &NetTypeAddr| {
            Some(LinkId { technology: of.network.technology?, address: of.address.clone() })
        };
        let links: Vec<LinkId> = match answer.get(kind::LINK_ADDRESS_LIST) {
            Some(Tlv::LinkAddressList(all)) => all.iter().filter_map(of).collect(),
            _ => Vec::new(),
        };
        let own = LinkId::mac(LinkType::Ethernet, [2, 0, 0, 0, 0, 1]);
        let message = match self.config.request {
            MihRequest::Discover => Message::new(MessageId::CAPABILITY_DISCOVER_REQUEST, []),
            MihRequest::Register => {
                let params =
                    [Tlv::LinkIdentifierList([own].into()), Tlv::RegisterCode(RegisterCode::Register)];
                Message::new(MessageId::REGISTER_REQUEST, params)
            }
            MihRequest::Parameters => {
                let wanted = LinkStatusRequest {
                    states: LinkStates::OPERATION_MODE,
                    params: [LinkParamType::DATA_RATE].into(),
                    descriptors: LinkDescriptors::NONE,
                };
                let params = [Tlv::LinkIdentifierList(links), Tlv::StatusRequest(wanted)];
                Message::new(MessageId::LINK_GET_PARAMETERS_REQUEST, params)
            }
            MihRequest::Indication => {
                let link = LinkTupleId { link: own, poa: None };
                Message::new(MessageId::LINK_UP_INDICATION, [Tlv::LinkIdentifier(link)])
            }
        };
        let named = self.peer(peer.clone());
        for n in 0..self.functions.len() {
            // Naming a peer is never refused.
            let _ = self.functions[n].mihf.command(now, Command::Peer(named.clone()));
            self.touched(n);
        }
        self.found = Some((peer.clone(), message));
    }

    pub(super) const fn ready(&self) -> bool {
        self.found.is_some()
    }

    /// Begins a transaction.
    pub(super) fn begin(&mut self, now: Instant, start: Start) -> Result<(), NotNow> {
        let Some((to, message)) = self.found.clone() else { return Err(NotNow::Full) };
        let count = self.functions.len();
        let mut turns = (0..count).map(|i| (self.next + i) % count);
        let n = turns.find(|&n| self.functions[n].open < ROOM).ok_or(NotNow::Full)?;
        self.next = (n + 1) % count;
        let token = self.logins.next_token();
        let sent = self.functions[n].mihf.command(now, Command::Send { token, to, message });
        self.touched(n);
        sent.map_err(|_| NotNow::Full)?;
        self.functions[n].open += 1;
        self.logins.insert(Login { start, asked: now, rounds: 0, state: n });
        Ok(())
    }

    pub(super) fn outstanding(&self) -> usize {
        self.logins.len()
    }

    pub(super) fn each(&self, see: &mut dyn FnMut(&Start)) {
        self.logins.iter().for_each(|(_, login)| see(&login.start));
    }

    pub(super) fn abandon(&mut self, now: Instant) {
        let open: Vec<(u64, usize)> = self.logins.iter().map(|(token, login)| (token, login.state)).collect();
        for (token, n) in open {
            self.logins.remove(token);
            self.functions[n].open -= 1;
            // A function knows what it asks.
            let _ = self.functions[n].mihf.command(now, Command::Abandon { token });
            self.touched(n);
        }
    }

    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut sum = mih::Counters::default();
        self.functions.iter().for_each(|function| sum.add(function.mihf.counters()));
        sum.iter().collect()
    }

    pub(super) fn handle(&mut self, now: Instant, input: Input<'_>) {
        if self.discover_at.is_some_and(|at| at <= now) {
            self.discover(now);
        }
        match input {
            Input::Timeout => {
                for n in 0..self.functions.len() {
                    if self.functions[n].due <= now {
                        self.functions[n].mihf.handle(now, Input::Timeout);
                        self.touched(n);
                    }
                }
            }
            _ => {
                let Some((slot, input)) = input.enter() else { return };
                let n = usize::from(slot);
                if let Some(function) = self.functions.get_mut(n) {
                    function.mihf.handle(now, input);
                    self.touched(n);
                }
            }
        }
    }

    pub(super) fn settle(&mut self, now: Instant, outputs: &mut Outputs<super::Event>, sink: &mut Sink) {
        let mut who = None;
        while let Some(n) = self.busy.pop() {
            self.functions[n].listed = false;
            while let Some(event) = outputs.next_event(&mut self.functions[n].mihf) {
                match event {
                    Event::Discovered { peer, .. } => who = Some(peer),
                    Event::Done { token: ASIDE, result } => match (result, who.take()) {
                        (Ok(Some(answer)), Some(peer)) => self.discovered(now, &peer, &answer),
                        _ => self.discover_at = Some(now + AGAIN),
                    },
                    Event::Done { token, result } => self.done(now, token, result, sink),
                    // Nobody is answered, told or registered here.
                    _ => {}
                }
            }
            self.functions[n].due = self.functions[n].mihf.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        }
    }

    fn done(
        &mut self,
        now: Instant,
        token: u64,
        result: Result<Option<Message>, mih::Failure>,
        sink: &mut Sink,
    ) {
        let Some(login) = self.logins.remove(token) else { return };
        self.functions[login.state].open -= 1;
        let end = match result {
            Ok(answer) => {
                sink.exchange(now, login.asked);
                match answer.as_ref().map(|answer| (answer.id.opcode, answer.status())) {
                    None | Some((Opcode::Response, Some(Status::Success))) => Ok(Success::LetIn),
                    Some((_, Some(Status::Rejected | Status::AuthorizationFailure))) => {
                        Err(Failure::Rejected)
                    }
                    Some((_, Some(_))) => Err(Failure::ServerFault),
                    Some((_, None)) => Err(Failure::BadAnswer),
                }
            }
            Err(mih::Failure::NoAcknowledgement | mih::Failure::NoResponse) => Err(Failure::Timeout),
            Err(mih::Failure::NoRoute) => Err(Failure::Unreachable),
            Err(mih::Failure::Transport) => Err(Failure::ConnectionLost),
        };
        sink.end(now, &login.start, end);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.functions.iter().map(|function| function.due).min();
        [due.filter(|at| *at < Instant::FAR_FUTURE), self.discover_at].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_has_an_identity() {
        let names: Vec<_> = [0, 1].map(|n| numbered("load@example.org", n)).into();
        assert_eq!(names, ["load@example.org", "load-2@example.org"]);
        assert_eq!(numbered("load", 2), "load-3");
    }
}

//! MIH functions that send requests to another function, each with its own identifier and its own socket or connection.

use super::login::{LoginDeferral, LoginResultRecorder, LoginStart, LoginSuccess, LoginTable, PendingLogin};
use crate::tally::LoginFailure;
use std::net::SocketAddr;
use usher_core::{
    ChildMachine, Duration, Instant, Machine, MachineInput, OutputQueue, SimulationRng, TransportProtocol,
};
use usher_mih::{
    self as mih, LinkDescriptors, LinkId, LinkParamType, LinkStatusRequest, LinkTupleId, LinkType, MessageId,
    Mihf, MihfCommand, MihfEvent, MihfId, MihfMessage, MihfPeer, NetTypeAddr, Opcode, PeerRoute,
    RegisterCode, ReportedLinkStates, ResponseTimeoutPolicy, ServiceId, Status, Tlv, TransactionTimerConfig,
    kind,
};

/// Maximum number of outstanding transactions of a function. Identifiers have 12 bits, and functions remember ended
/// ones.
const MAX_TRANSACTIONS: usize = 1024;
/// The token of messages outside the load's transactions.
const UNCOUNTED_TOKEN: u64 = u64::MAX;
/// Delay until discovery without a response starts again.
const DISCOVERY_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The message of the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MihRequest {
    /// MIH_Capability_Discover.
    Discover,
    /// MIH_Register.
    Register,
    /// MIH_Link_Get_Parameters for all links of the other function.
    Parameters,
    /// MIH_Link_Up indications. Each ends with its acknowledgement, or with its sending if none is requested.
    Indication,
}

/// The configuration of an MIH generator.
#[derive(Clone, Debug)]
pub struct MihConfig {
    /// The other function's address.
    pub address: SocketAddr,
    /// UDP or TCP.
    pub transport: TransportProtocol,
    /// True to request MIH acknowledgements.
    pub ack: bool,
    /// The message to send.
    pub request: MihRequest,
    /// The identifier of the first function; the `n`-th has its number after the first label.
    pub identity: String,
    /// Number of sending functions, at least one.
    pub functions: usize,
    /// The number of the first function, if other generators have functions too.
    pub first: usize,
    /// Timeout of an acknowledgement before a retransmission.
    pub retransmission: Duration,
    /// Number of retransmissions.
    pub retransmissions: u8,
    /// Timeout of a response.
    pub timeout: Duration,
}

/// A sending function.
#[derive(Debug)]
struct MihRequester {
    mihf: ChildMachine<Mihf>,
    open: usize,
    /// True if it is in the list of functions with possible outputs.
    listed: bool,
    due: Instant,
}

/// The sending functions.
#[derive(Debug)]
pub(super) struct MihLoadClient {
    config: MihConfig,
    functions: Vec<MihRequester>,
    busy: Vec<usize>,
    next: usize,
    /// Transactions with the index of their function.
    logins: LoginTable<usize>,
    /// The other function's identifier, and the message to it, once discovered.
    found: Option<(MihfId, MihfMessage)>,
    /// Time of the next discovery, until a response comes.
    discover_at: Option<Instant>,
}

/// Returns the identifier of the `n`-th function, from 0.
fn numbered_identity(identity: &str, n: usize) -> String {
    match (n, identity.find(['.', '@'])) {
        (0, _) => identity.to_owned(),
        (n, Some(end)) => format!("{}-{}{}", &identity[..end], n + 1, &identity[end..]),
        (n, None) => format!("{identity}-{}", n + 1),
    }
}

impl MihLoadClient {
    pub(super) fn new(
        config: MihConfig,
        start: Instant,
        mut rng: SimulationRng,
    ) -> Result<Self, super::api::ConfigError> {
        if config.functions == 0 || config.functions >= usize::from(u16::MAX) {
            return Err(super::api::ConfigError::Invalid("the number of MIH functions must be 1 to 65534"));
        }
        let timing = TransactionTimerConfig {
            retransmission: config.retransmission,
            retransmissions: config.retransmissions,
            response: Some(config.timeout),
            unanswered: ResponseTimeoutPolicy::Abort,
        };
        let mut functions = Vec::new();
        for n in 0..config.functions {
            let id = MihfId::new(numbered_identity(&config.identity, config.first + n))
                .map_err(|_| super::api::ConfigError::Invalid("the MIHF identifier is too long"))?;
            let mut settings = mih::MihfConfig::new(id);
            settings.timing = timing;
            // The MIH function does not repeat multicast discovery, which has no acknowledgement, so the generator
            // repeats it.
            let discovery = TransactionTimerConfig {
                response: Some(config.retransmission),
                unanswered: ResponseTimeoutPolicy::Retransmit,
                ..timing
            };
            let request = MessageId::CAPABILITY_DISCOVER_REQUEST;
            if config.request != MihRequest::Discover {
                settings.by_message.insert((ServiceId::Management, request.action), discovery);
            }
            // Transaction identifiers wrap around within seconds, so an ended transaction must not hide a new one.
            settings.lifetime = Duration::ZERO;
            settings.transaction = Some(config.timeout + config.timeout);
            settings.port = 0;
            let chance = usher_core::Seed::new(rng.next_u64()).derive_rng("mih", 0);
            let mihf = ChildMachine::new(n as u16, Mihf::new(settings, chance));
            functions.push(MihRequester { mihf, open: 0, listed: false, due: Instant::FAR_FUTURE });
        }
        Ok(Self {
            functions,
            busy: Vec::new(),
            next: 0,
            logins: LoginTable::default(),
            found: None,
            discover_at: Some(start),
            config,
        })
    }

    fn mark_busy(&mut self, n: usize) {
        if !core::mem::replace(&mut self.functions[n].listed, true) {
            self.busy.push(n);
        }
    }

    fn make_peer(&self, id: MihfId) -> MihfPeer {
        let Self { config, .. } = self;
        let route = PeerRoute { transport: config.transport, local: None, remote: config.address };
        MihfPeer { id, route, ack: config.ack }
    }

    /// Sends a discovery request.
    fn send_discovery(&mut self, now: Instant) {
        self.discover_at = None;
        let all = self.make_peer(MihfId::multicast());
        let function = &mut self.functions[0].mihf;
        let message = MihfMessage::new(MessageId::CAPABILITY_DISCOVER_REQUEST, []);
        let send = MihfCommand::Send { token: UNCOUNTED_TOKEN, to: MihfId::multicast(), message };
        let sent = function
            .handle_command(now, MihfCommand::Peer(all))
            .and_then(|()| function.handle_command(now, send));
        if sent.is_err() {
            self.discover_at = Some(now + DISCOVERY_RETRY_INTERVAL);
        }
        self.mark_busy(0);
    }

    /// Handles the response to discovery, and prepares the message to that function.
    fn handle_discovery(&mut self, now: Instant, peer: &MihfId, answer: &MihfMessage) {
        let of = |of: &NetTypeAddr| {
            Some(LinkId { technology: of.network.technology?, address: of.address.clone() })
        };
        let links: Vec<LinkId> = match answer.get(kind::LINK_ADDRESS_LIST) {
            Some(Tlv::LinkAddressList(all)) => all.iter().filter_map(of).collect(),
            _ => Vec::new(),
        };
        let own = LinkId::from_mac(LinkType::Ethernet, [2, 0, 0, 0, 0, 1]);
        let message = match self.config.request {
            MihRequest::Discover => MihfMessage::new(MessageId::CAPABILITY_DISCOVER_REQUEST, []),
            MihRequest::Register => {
                let params =
                    [Tlv::LinkIdentifierList([own].into()), Tlv::RegisterCode(RegisterCode::Register)];
                MihfMessage::new(MessageId::REGISTER_REQUEST, params)
            }
            MihRequest::Parameters => {
                let wanted = LinkStatusRequest {
                    states: ReportedLinkStates::OPERATION_MODE,
                    params: [LinkParamType::DATA_RATE].into(),
                    descriptors: LinkDescriptors::NONE,
                };
                let params = [Tlv::LinkIdentifierList(links), Tlv::StatusRequest(wanted)];
                MihfMessage::new(MessageId::LINK_GET_PARAMETERS_REQUEST, params)
            }
            MihRequest::Indication => {
                let link = LinkTupleId { link: own, poa: None };
                MihfMessage::new(MessageId::LINK_UP_INDICATION, [Tlv::LinkIdentifier(link)])
            }
        };
        let named = self.make_peer(peer.clone());
        for n in 0..self.functions.len() {
            // The result is ignored: the function accepts any peer.
            let _ = self.functions[n].mihf.handle_command(now, MihfCommand::Peer(named.clone()));
            self.mark_busy(n);
        }
        self.found = Some((peer.clone(), message));
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.found.is_some()
    }

    /// Begins a transaction.
    pub(super) fn begin_transaction(&mut self, now: Instant, start: LoginStart) -> Result<(), LoginDeferral> {
        let Some((to, message)) = self.found.clone() else { return Err(LoginDeferral::Full) };
        let count = self.functions.len();
        let mut turns = (0..count).map(|i| (self.next + i) % count);
        let n = turns.find(|&n| self.functions[n].open < MAX_TRANSACTIONS).ok_or(LoginDeferral::Full)?;
        self.next = (n + 1) % count;
        let token = self.logins.next_token();
        let sent = self.functions[n].mihf.handle_command(now, MihfCommand::Send { token, to, message });
        self.mark_busy(n);
        sent.map_err(|_| LoginDeferral::Full)?;
        self.functions[n].open += 1;
        self.logins.insert(PendingLogin { start, requested_at: now, rounds: 0, state: n });
        Ok(())
    }

    pub(super) fn outstanding_transactions(&self) -> usize {
        self.logins.len()
    }

    pub(super) fn for_each_transaction(&self, see: &mut dyn FnMut(&LoginStart)) {
        self.logins.iter().for_each(|(_, login)| see(&login.start));
    }

    pub(super) fn abandon_transactions(&mut self, now: Instant) {
        let open: Vec<(u64, usize)> = self.logins.iter().map(|(token, login)| (token, login.state)).collect();
        for (token, n) in open {
            self.logins.remove(token);
            self.functions[n].open -= 1;
            // The result is ignored: the function knows its own transactions.
            let _ = self.functions[n].mihf.handle_command(now, MihfCommand::Abandon { token });
            self.mark_busy(n);
        }
    }

    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut sum = mih::MihfCounters::default();
        self.functions.iter().for_each(|function| sum.add(function.mihf.counters()));
        sum.iter().collect()
    }

    pub(super) fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        if self.discover_at.is_some_and(|at| at <= now) {
            self.send_discovery(now);
        }
        match input {
            MachineInput::Timeout => {
                for n in 0..self.functions.len() {
                    if self.functions[n].due <= now {
                        self.functions[n].mihf.handle_input(now, MachineInput::Timeout);
                        self.mark_busy(n);
                    }
                }
            }
            _ => {
                let Some((slot, input)) = input.split_outer_slot() else { return };
                let n = usize::from(slot);
                if let Some(function) = self.functions.get_mut(n) {
                    function.mihf.handle_input(now, input);
                    self.mark_busy(n);
                }
            }
        }
    }

    pub(super) fn drain_outputs(
        &mut self,
        now: Instant,
        outputs: &mut OutputQueue<super::api::GeneratorEvent>,
        sink: &mut LoginResultRecorder,
    ) {
        let mut who = None;
        while let Some(n) = self.busy.pop() {
            self.functions[n].listed = false;
            while let Some(event) = outputs.next_event(&mut self.functions[n].mihf) {
                match event {
                    MihfEvent::Discovered { peer, .. } => who = Some(peer),
                    MihfEvent::Done { token: UNCOUNTED_TOKEN, result } => match (result, who.take()) {
                        (Ok(Some(answer)), Some(peer)) => self.handle_discovery(now, &peer, &answer),
                        _ => self.discover_at = Some(now + DISCOVERY_RETRY_INTERVAL),
                    },
                    MihfEvent::Done { token, result } => self.finish_transaction(now, token, result, sink),
                    // The generator expects no other events.
                    _ => {}
                }
            }
            self.functions[n].due = self.functions[n].mihf.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        }
    }

    fn finish_transaction(
        &mut self,
        now: Instant,
        token: u64,
        result: Result<Option<MihfMessage>, mih::TransactionError>,
        sink: &mut LoginResultRecorder,
    ) {
        let Some(login) = self.logins.remove(token) else { return };
        self.functions[login.state].open -= 1;
        let end = match result {
            Ok(answer) => {
                sink.record_answered_request(now, login.requested_at);
                match answer.as_ref().map(|answer| (answer.id.opcode, answer.status())) {
                    None | Some((Opcode::Response, Some(Status::Success))) => Ok(LoginSuccess::Accepted),
                    Some((_, Some(Status::Rejected | Status::AuthorizationFailure))) => {
                        Err(LoginFailure::Rejected)
                    }
                    Some((_, Some(_))) => Err(LoginFailure::ServerFault),
                    Some((_, None)) => Err(LoginFailure::BadAnswer),
                }
            }
            Err(mih::TransactionError::NoAcknowledgement | mih::TransactionError::NoResponse) => {
                Err(LoginFailure::Timeout)
            }
            Err(mih::TransactionError::NoRoute) => Err(LoginFailure::Unreachable),
            Err(mih::TransactionError::Transport) => Err(LoginFailure::ConnectionLost),
        };
        sink.record_login_end(now, &login.start, end);
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
        let names: Vec<_> = [0, 1].map(|n| numbered_identity("load@example.org", n)).into();
        assert_eq!(names, ["load@example.org", "load-2@example.org"]);
        assert_eq!(numbered_identity("load", 2), "load-3");
    }
}

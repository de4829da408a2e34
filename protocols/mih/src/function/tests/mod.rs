//! Two MIH functions joined by a network in virtual time.

mod claims;
mod datagrams;
mod faults;
mod management;
mod properties;
mod streams;

use super::*;
use crate::{Decoded, Header, MessageId, Opcode, Status, Tlv};
use std::net::{IpAddr, SocketAddr};
use usher_core::bench::{At, Network, Sent};
use usher_core::impair::ChannelConfig;
use usher_core::{
    CloseReason, ConnId, Duration, ListenerId, MessageOp, Path, Seed, SocketId, StreamOp, Transmit,
    TransportProtocol,
};

pub(super) const STATION: usize = 0;
pub(super) const POS: usize = 1;
/// One way.
pub(super) const DELAY: Duration = Duration::from_millis(20);

pub(super) fn id(side: usize) -> MihfId {
    MihfId::new(["mn@example", "pos@example"][side]).unwrap()
}

pub(super) fn ip(side: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, side as u8 + 1])
}

pub(super) fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

pub(super) fn route(transport: TransportProtocol, to: usize) -> Route {
    Route { transport, local: None, remote: SocketAddr::new(ip(to), PORT) }
}

const LISTENER: ListenerId = ListenerId::own(0);

/// Somebody begins a connection.
pub(super) fn accepted(remote: SocketAddr) -> StreamEvent<'static> {
    StreamEvent::Accepted { listener: LISTENER, remote, local: None, certificate: None }
}

/// The two of them, the network between them, and what they said.
pub(super) struct Pair {
    pub(super) net: Network,
    pub(super) sides: [At<Mihf>; 2],
    pub(super) events: Vec<(u64, usize, Event)>,
    /// How many of these the point of service has seen.
    served: usize,
}

impl Pair {
    pub(super) fn new(transport: TransportProtocol, ack: bool, settings: impl Fn(&mut Config)) -> Self {
        let mut net = Network::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
        net.grant(4);
        let sides = [STATION, POS].map(|side| {
            let mut config = Config::new(id(side));
            config.timing.retransmission = Duration::from_millis(100);
            settings(&mut config);
            let host = net.add(Mihf::new(config, Seed::new(7).stream("mihf", side as u64)), &[ip(side)]);
            net.bind(host, SocketId::own(0), SocketAddr::new(ip(side), PORT));
            net.listen(host, LISTENER, SocketAddr::new(ip(side), PORT));
            host
        });
        let mut pair = Self { net, sides, events: Vec::new(), served: 0 };
        for side in [STATION, POS] {
            let route = route(transport, 1 - side);
            pair.command(side, Command::Peer(Peer { id: id(1 - side), route, ack })).unwrap();
        }
        pair
    }
    /// Packets by their number in the order in which they are sent, from 0: these are lost.
    pub(super) fn lose(mut self, lost: &'static [usize]) -> Self {
        self.net.lose(lost);
        self
    }
    /// What becomes of each datagram that is a message: how much later than after [`DELAY`] its copies arrive.
    pub(super) fn fate(&mut self, mut fate: impl FnMut(usize, &Decoded) -> Vec<Duration> + 'static) {
        self.net.meddle(move |_, sent| match (sent.transmit, Message::decode(&sent.bytes)) {
            (Transmit::Datagram { .. }, Ok(decoded)) => fate(sent.from, &decoded),
            _ => vec![Duration::ZERO],
        });
    }
    pub(super) fn side(&mut self, side: usize) -> &mut Mihf {
        &mut self.net[self.sides[side]]
    }
    pub(super) fn counters(&self, side: usize) -> Counters {
        *self.net[self.sides[side]].counters()
    }
    pub(super) fn command(&mut self, side: usize, command: Command) -> Result<(), CommandError> {
        let done = self.net.command(self.sides[side], command);
        self.listen();
        done
    }
    pub(super) fn send(&mut self, side: usize, token: u64, message: Message) {
        self.command(side, Command::Send { token, to: id(1 - side), message }).unwrap();
    }
    /// Gives a datagram to a side as if it had come from the other.
    pub(super) fn inject(&mut self, side: usize, octets: &[u8]) {
        let path = Path {
            socket: SocketId::own(0),
            local: SocketAddr::new(ip(side), PORT),
            remote: SocketAddr::new(ip(1 - side), PORT),
        };
        self.give(side, Input::Datagram { path, data: octets });
    }
    /// Gives octets of a connection to a side that somebody else has opened.
    pub(super) fn stream(&mut self, side: usize, n: u32, event: StreamEvent<'_>) {
        self.give(side, Input::Stream { conn: ConnId::accepted(n), event });
    }
    pub(super) fn give(&mut self, side: usize, input: Input<'_>) {
        self.net.give(self.sides[side], input);
        self.listen();
    }
    fn listen(&mut self) {
        for side in [STATION, POS] {
            let said = self.net.take(self.sides[side]);
            self.events.extend(said.into_iter().map(|(at, event)| (ms(at), side, event)));
        }
    }
    /// Resets all connections, as seen by both sides.
    pub(super) fn cut(&mut self) {
        self.net.cut(self.sides[STATION]);
    }
    /// Who sent what when, in short.
    pub(super) fn log(&self) -> Vec<String> {
        let short = |sent: &Sent| {
            let what = match sent.transmit {
                Transmit::Stream { op: StreamOp::Connect { .. }, .. } => "connect".into(),
                Transmit::Message { op: MessageOp::Connect { streams, .. }, .. } => {
                    assert_eq!(streams, 4);
                    "connect".into()
                }
                Transmit::Stream { op: StreamOp::Abort, .. } => "abort".into(),
                Transmit::Message { op: MessageOp::Abort, .. } => "abort".into(),
                _ => describe(&sent.bytes),
            };
            format!("{} {} {what}", ms(sent.at), ["mn", "pos"][sent.from])
        };
        self.net.sent().iter().map(short).collect()
    }
    /// The streams of associations on which something was sent.
    pub(super) fn streams(&self) -> Vec<u16> {
        let stream = |sent: &Sent| match sent.transmit {
            Transmit::Message { op: MessageOp::Data { stream, unordered, .. }, .. } => {
                assert!(!unordered);
                Some(stream)
            }
            _ => None,
        };
        self.net.sent().iter().filter_map(stream).collect()
    }
    /// By which sockets, from and to which addresses datagrams were sent.
    pub(super) fn paths(&self) -> Vec<Path> {
        let path = |sent: &Sent| match sent.transmit {
            Transmit::Datagram { path } => Some(path),
            _ => None,
        };
        self.net.sent().iter().filter_map(path).collect()
    }
    /// Lets time pass until this moment, and all that happens by then.
    pub(super) fn run(&mut self, until: Instant) {
        self.net.run_until(until);
        self.listen();
    }
    /// Lets time pass; the point of service answers what it is asked after this time.
    pub(super) fn serve(&mut self, processing: Duration, until: Instant) {
        loop {
            while let Some((ms, side, event)) = self.events.get(self.served) {
                if let Event::Request { transaction, message, .. } = event {
                    let message = Message::new(message.id.response(), answer_to(message.id));
                    let answer = Command::Respond { transaction: *transaction, message };
                    self.net.later(self.sides[*side], at(*ms) + processing, answer);
                }
                self.served += 1;
            }
            if self.net.due().is_none_or(|due| due > until) {
                break;
            }
            self.net.step();
            self.listen();
        }
        self.run(until);
    }
    pub(super) fn done(&self) -> Vec<(u64, u64, String)> {
        let results = self.events.iter().filter_map(|(ms, _, event)| match event {
            Event::Done { token, result: Ok(message) } => {
                let what = message.as_ref().map_or("done".to_owned(), |m| format!("{}", m.id.opcode));
                Some((*ms, *token, what))
            }
            Event::Done { token, result: Err(failure) } => Some((*ms, *token, format!("{failure:?}"))),
            _ => None,
        });
        results.collect()
    }
    /// How often a side was given an indication or a request.
    pub(super) fn delivered(&self, side: usize) -> usize {
        let given = |event: &Event| matches!(event, Event::Indication { .. } | Event::Request { .. });
        self.events.iter().filter(|(_, s, event)| *s == side && given(event)).count()
    }
}

/// The time in milliseconds.
fn ms(at: Instant) -> u64 {
    at.as_nanos() / 1_000_000
}

fn describe(octets: &[u8]) -> String {
    let Ok(decoded) = Message::decode(octets) else {
        let header = Header::parse(octets).unwrap();
        return match header.is_fragment() {
            true => format!("fragment {}", header.fragment),
            false => format!("unknown {}", header.id.opcode),
        };
    };
    let Header { id, ack_req, ack_rsp, .. } = decoded.header;
    if decoded.is_acknowledgement() {
        return "ack".into();
    }
    let flags = [(ack_req, "+req"), (ack_rsp, "+rsp")];
    let flags: String = flags.into_iter().filter(|(on, _)| *on).map(|(_, flag)| flag).collect();
    format!("{}{flags}", id.opcode)
}

fn answer_to(id: MessageId) -> Vec<Tlv> {
    assert_eq!(id.opcode, Opcode::Request);
    vec![Tlv::Status(Status::Success)]
}

pub(super) fn indication() -> Message {
    Message::new(MessageId::PUSH_INFORMATION_INDICATION, [])
}

/// A request that a function without a store gives to its user.
pub(super) fn request() -> Message {
    Message::new(MessageId::GET_INFORMATION_REQUEST, [])
}

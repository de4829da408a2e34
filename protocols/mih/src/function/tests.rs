//! Two MIH functions joined by a network in virtual time.

mod claims;
mod datagrams;
mod faults;
mod management;
mod properties;
mod streams;

use super::*;
use crate::{DecodedMessage, EventList, LinkTupleId, MessageId, MihHeader, Opcode, Status, Tlv};
use std::net::{IpAddr, SocketAddr};
use usher_core::bench::{MachineNetwork, NetworkHostHandle, TransmitRecord};
use usher_core::impair::ChannelConfig;
use usher_core::{
    CloseReason, ConnId, DatagramPath, Duration, ListenerId, MessageAssociationOp, Seed, SocketId, StreamOp,
    Transmit, TransportProtocol,
};

pub(super) const STATION: usize = 0;
pub(super) const POS: usize = 1;
/// One-way delay.
pub(super) const DELAY: Duration = Duration::from_millis(20);

pub(super) fn mihf_id(side: usize) -> MihfId {
    MihfId::new(["mn@example", "pos@example"][side]).unwrap()
}

pub(super) fn side_ip(side: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, side as u8 + 1])
}

pub(super) fn at_millis(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

pub(super) fn route_to(transport: TransportProtocol, to: usize) -> PeerRoute {
    PeerRoute { transport, local: None, remote: SocketAddr::new(side_ip(to), PORT) }
}

const LISTENER: ListenerId = ListenerId::from_number(0);

/// Returns the event of a connection that a peer opens.
pub(super) fn accepted_event(remote: SocketAddr) -> StreamEvent<'static> {
    StreamEvent::Accepted { listener: LISTENER, remote, local: None, certificate: None }
}

/// Two functions, their network, and a log of their messages.
pub(super) struct MihfPair {
    pub(super) net: MachineNetwork,
    pub(super) sides: [NetworkHostHandle<Mihf>; 2],
    pub(super) events: Vec<(u64, usize, MihfEvent)>,
    /// Number of events that the point of service has handled.
    served: usize,
}

impl MihfPair {
    pub(super) fn new(transport: TransportProtocol, ack: bool, settings: impl Fn(&mut MihfConfig)) -> Self {
        let mut net = MachineNetwork::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
        net.limit_streams(4);
        let sides = [STATION, POS].map(|side| {
            let mut config = MihfConfig::new(mihf_id(side));
            config.timing.retransmission = Duration::from_millis(100);
            settings(&mut config);
            let host = net
                .add_host(Mihf::new(config, Seed::new(7).derive_rng("mihf", side as u64)), &[side_ip(side)]);
            net.bind_socket(host, SocketId::from_number(0), SocketAddr::new(side_ip(side), PORT));
            net.add_listener(host, LISTENER, SocketAddr::new(side_ip(side), PORT));
            host
        });
        let mut pair = Self { net, sides, events: Vec::new(), served: 0 };
        for side in [STATION, POS] {
            let route = route_to(transport, 1 - side);
            pair.issue_command(side, MihfCommand::Peer(MihfPeer { id: mihf_id(1 - side), route, ack }))
                .unwrap();
        }
        pair
    }
    /// Drops these packets, numbered from 0 in the order of sending.
    pub(super) fn lose_packets(mut self, lost: &'static [usize]) -> Self {
        self.net.drop_transmits(lost);
        self
    }
    /// Sets the fate of each datagram with a message: the extra delay of its copies beyond [`DELAY`].
    pub(super) fn set_datagram_fate(
        &mut self,
        mut fate: impl FnMut(usize, &DecodedMessage) -> Vec<Duration> + 'static,
    ) {
        self.net.intercept_transmits(move |_, sent| {
            match (sent.transmit, MihfMessage::decode(&sent.bytes)) {
                (Transmit::Datagram { .. }, Ok(decoded)) => fate(sent.from, &decoded),
                _ => vec![Duration::ZERO],
            }
        });
    }
    pub(super) fn mihf_mut(&mut self, side: usize) -> &mut Mihf {
        &mut self.net[self.sides[side]]
    }
    pub(super) fn counters(&self, side: usize) -> MihfCounters {
        *self.net[self.sides[side]].counters()
    }
    pub(super) fn issue_command(&mut self, side: usize, command: MihfCommand) -> Result<(), CommandError> {
        let done = self.net.send_command(self.sides[side], command);
        self.collect_events();
        done
    }
    pub(super) fn send_message(&mut self, side: usize, token: u64, message: MihfMessage) {
        self.issue_command(side, MihfCommand::Send { token, to: mihf_id(1 - side), message }).unwrap();
    }
    /// Delivers a datagram to a side as if the other had sent it.
    pub(super) fn inject_datagram(&mut self, side: usize, octets: &[u8]) {
        let path = DatagramPath {
            socket: SocketId::from_number(0),
            local: SocketAddr::new(side_ip(side), PORT),
            remote: SocketAddr::new(side_ip(1 - side), PORT),
        };
        self.feed_input(side, MachineInput::Datagram { path, data: octets });
    }
    /// Delivers octets of an accepted connection to a side.
    pub(super) fn inject_stream_event(&mut self, side: usize, n: u32, event: StreamEvent<'_>) {
        self.feed_input(side, MachineInput::Stream { conn: ConnId::nth_accepted_connection(n), event });
    }
    pub(super) fn feed_input(&mut self, side: usize, input: MachineInput<'_>) {
        self.net.inject_input(self.sides[side], input);
        self.collect_events();
    }
    fn collect_events(&mut self) {
        for side in [STATION, POS] {
            let said = self.net.take_events(self.sides[side]);
            self.events.extend(said.into_iter().map(|(at, event)| (to_millis(at), side, event)));
        }
    }
    /// Resets all connections, as seen by both sides.
    pub(super) fn reset_connections(&mut self) {
        self.net.reset_connections(self.sides[STATION]);
    }
    /// Returns a short log of sent messages.
    pub(super) fn sent_log(&self) -> Vec<String> {
        let short = |sent: &TransmitRecord| {
            let what = match sent.transmit {
                Transmit::Stream { op: StreamOp::Connect { .. }, .. } => "connect".into(),
                Transmit::Message { op: MessageAssociationOp::Connect { streams, .. }, .. } => {
                    assert_eq!(streams, 4);
                    "connect".into()
                }
                Transmit::Stream { op: StreamOp::Abort, .. } => "abort".into(),
                Transmit::Message { op: MessageAssociationOp::Abort, .. } => "abort".into(),
                _ => describe_packet(&sent.bytes),
            };
            format!("{} {} {what}", to_millis(sent.sent_at), ["mn", "pos"][sent.from])
        };
        self.net.sent_transmits().iter().map(short).collect()
    }
    /// Returns the association streams that carried messages.
    pub(super) fn used_streams(&self) -> Vec<u16> {
        let stream = |sent: &TransmitRecord| match sent.transmit {
            Transmit::Message { op: MessageAssociationOp::Data { stream, unordered, .. }, .. } => {
                assert!(!unordered);
                Some(stream)
            }
            _ => None,
        };
        self.net.sent_transmits().iter().filter_map(stream).collect()
    }
    /// Returns the sockets and addresses of the sent datagrams.
    pub(super) fn used_paths(&self) -> Vec<DatagramPath> {
        let path = |sent: &TransmitRecord| match sent.transmit {
            Transmit::Datagram { path } => Some(path),
            _ => None,
        };
        self.net.sent_transmits().iter().filter_map(path).collect()
    }
    /// Runs the network until this time.
    pub(super) fn run_until(&mut self, until: Instant) {
        self.net.run_until(until);
        self.collect_events();
    }
    /// Runs the network; the point of service answers requests after this time.
    pub(super) fn serve_until(&mut self, processing: Duration, until: Instant) {
        loop {
            while let Some((ms, side, event)) = self.events.get(self.served) {
                if let MihfEvent::Request { transaction, message, .. } = event {
                    let message = MihfMessage::new(message.id.to_response(), answer_to(message.id));
                    let answer = MihfCommand::Respond { transaction: *transaction, message };
                    self.net.schedule_command(self.sides[*side], at_millis(*ms) + processing, answer);
                }
                self.served += 1;
            }
            if self.net.next_due_time().is_none_or(|due| due > until) {
                break;
            }
            self.net.run_next_arrival_or_timer();
            self.collect_events();
        }
        self.run_until(until);
    }
    pub(super) fn done_events(&self) -> Vec<(u64, u64, String)> {
        let results = self.events.iter().filter_map(|(ms, _, event)| match event {
            MihfEvent::Done { token, result: Ok(message) } => {
                let what = message.as_ref().map_or("done".to_owned(), |m| format!("{}", m.id.opcode));
                Some((*ms, *token, what))
            }
            MihfEvent::Done { token, result: Err(failure) } => Some((*ms, *token, format!("{failure:?}"))),
            _ => None,
        });
        results.collect()
    }
    /// Returns the number of indications and requests delivered to a side.
    pub(super) fn delivered_count(&self, side: usize) -> usize {
        let given =
            |event: &MihfEvent| matches!(event, MihfEvent::Indication { .. } | MihfEvent::Request { .. });
        self.events.iter().filter(|(_, s, event)| *s == side && given(event)).count()
    }
}

/// Returns the time in milliseconds.
fn to_millis(at: Instant) -> u64 {
    at.as_nanos() / 1_000_000
}

fn describe_packet(octets: &[u8]) -> String {
    let Ok(decoded) = MihfMessage::decode(octets) else {
        let header = MihHeader::parse(octets).unwrap();
        return match header.is_fragment() {
            true => format!("fragment {}", header.fragment),
            false => format!("unknown {}", header.id.opcode),
        };
    };
    let MihHeader { id, ack_req, ack_rsp, .. } = decoded.header;
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

pub(super) fn test_indication() -> MihfMessage {
    MihfMessage::new(MessageId::PUSH_INFORMATION_INDICATION, [])
}

/// Returns a request that a function without a store passes to its user.
pub(super) fn test_request() -> MihfMessage {
    MihfMessage::new(MessageId::GET_INFORMATION_REQUEST, [])
}

//! Two hosts with a link, and messages from one to the other over TCP connections or SCTP streams.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use usher_core::impair::{ChannelConfig, LossModel};
use usher_core::{ConnId, Duration, Instant, Seed};
use usher_sim::{
    AppContext, AppDelivery, Application, HostId, IpVersion, LinkConfig, PacketTap, Payload, ReportObserver,
    SctpAssociationEvent, SimError, SimulationBuilder, TcpStreamEvent, TransportConfig, sctp, tcp,
};

/// The transport of the messages.
#[derive(Clone, Debug)]
pub(crate) enum MessageTransport {
    /// TCP, with this number of connections.
    Tcp(u32, tcp::TcpConfig),
    /// One SCTP association, with this number of streams.
    Sctp(u16, sctp::SctpConfig),
}

/// A message: its time, its connection or stream, and its size in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScheduledWireMessage {
    pub(crate) send_at: Instant,
    pub(crate) lane: u32,
    pub(crate) bytes: u32,
}

/// A sent packet: its time, and the packet from its IPv4 header on.
pub(crate) type TimedPacket = (Instant, Vec<u8>);

/// The result of a run.
#[derive(Debug)]
pub(crate) struct WireRunResult {
    /// Packets of the sending host, before loss; empty unless requested.
    pub(crate) sent: Vec<TimedPacket>,
    /// Packets received by the sending host, with their times; empty unless requested.
    pub(crate) received: Vec<TimedPacket>,
    /// Time of delivery of each message, in the order of the plan; `None` if it was not delivered.
    pub(crate) delivered: Vec<Option<Instant>>,
}

/// The link of the messages.
#[derive(Clone, Debug)]
pub(crate) struct MessageLinkConfig {
    pub(crate) rate: Option<u64>,
    pub(crate) delay: Duration,
    pub(crate) loss: LossModel,
    /// Time at which loss begins.
    pub(crate) lossy_from: Instant,
    /// True if packets are kept.
    pub(crate) captures_packets: bool,
}

#[derive(Debug)]
enum MessageTestApp {
    Sender { to: HostId, carrier: Box<MessageTransport>, plan: VecDeque<ScheduledWireMessage> },
    Receiver,
}

/// Bytes, or a whole message, received on a connection or stream.
#[derive(Debug)]
struct StreamDataArrival {
    lane: u32,
    bytes: u32,
}

const PORT: u16 = 3868;

impl MessageTestApp {
    /// Sends the messages that are due.
    fn send_due(
        plan: &mut VecDeque<ScheduledWireMessage>,
        carrier: &MessageTransport,
        ctx: &mut AppContext<'_, StreamDataArrival>,
    ) {
        while let Some(next) = plan.pop_front_if(|next| next.send_at <= ctx.now()) {
            let payload = Payload::with_length(next.bytes);
            match carrier {
                MessageTransport::Tcp(..) => ctx.write(ConnId::nth_opened_connection(next.lane), payload),
                MessageTransport::Sctp(..) => {
                    let stream = next.lane as u16;
                    let message = sctp::UserMessage { stream, ppid: 0, unordered: false, payload };
                    ctx.send_message(ConnId::nth_opened_connection(0), message);
                }
            }
        }
        ctx.set_timer(plan.front().map(|next| next.send_at));
    }
}

impl Application for MessageTestApp {
    type Report = StreamDataArrival;
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, StreamDataArrival>, delivery: AppDelivery) {
        match (self, delivery) {
            (Self::Sender { to, carrier, plan }, AppDelivery::Start) => {
                match &**carrier {
                    MessageTransport::Tcp(count, _) => {
                        (0..*count).for_each(|i| ctx.connect(ConnId::nth_opened_connection(i), *to, PORT));
                    }
                    MessageTransport::Sctp(streams, _) => {
                        ctx.associate(ConnId::nth_opened_connection(0), *to, PORT, *streams)
                    }
                }
                Self::send_due(plan, carrier, ctx);
            }
            (Self::Sender { carrier, plan, .. }, AppDelivery::Timer) => Self::send_due(plan, carrier, ctx),
            (Self::Receiver, AppDelivery::Stream { conn, event: TcpStreamEvent::Data(payload) }) => {
                ctx.report(StreamDataArrival { lane: conn.n, bytes: payload.len });
            }
            (
                Self::Receiver,
                AppDelivery::Message { event: SctpAssociationEvent::Data { stream, payload, .. }, .. },
            ) => {
                ctx.report(StreamDataArrival { lane: u32::from(stream), bytes: payload.len });
            }
            _ => {}
        }
    }
}

/// Determines the delivery of messages; each connection or stream keeps its order.
#[derive(Debug)]
struct MessageDeliveryObserver {
    /// Messages in flight on each connection or stream: index in the plan, and bytes to come.
    in_flight: Vec<VecDeque<(usize, u32)>>,
    delivered: Vec<Option<Instant>>,
    missing: usize,
}

impl ReportObserver<StreamDataArrival> for MessageDeliveryObserver {
    fn handle_report(&mut self, now: Instant, _: u32, mut came: StreamDataArrival) {
        let Some(lane) = self.in_flight.get_mut(came.lane as usize) else { return };
        while came.bytes > 0
            && let Some((message, left)) = lane.front_mut()
        {
            let taken = came.bytes.min(*left);
            *left -= taken;
            came.bytes -= taken;
            if *left == 0 {
                self.delivered[*message] = Some(now);
                self.missing -= 1;
                lane.pop_front();
            }
        }
    }
    fn is_done(&self) -> bool {
        self.missing == 0
    }
}

#[derive(Debug, Default)]
struct SenderPacketTap {
    sent: Vec<TimedPacket>,
    received: Vec<TimedPacket>,
}

impl PacketTap for SenderPacketTap {
    fn capture_packet(&mut self, now: Instant, _: u16, outward: bool, bytes: &[u8]) {
        let way = if outward { &mut self.sent } else { &mut self.received };
        way.push((now, bytes.to_vec()));
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Sends the messages of the plan, in order of time, over a link without loss on the way back. Ends when all are
/// delivered, or at `until`.
pub(crate) fn simulate_planned_messages(
    seed: Seed,
    carrier: MessageTransport,
    way: &MessageLinkConfig,
    plan: &[ScheduledWireMessage],
    until: Instant,
) -> Result<WireRunResult, SimError> {
    let mut builder = SimulationBuilder::new(IpVersion::V4, seed);
    let (a, b) = (builder.add_host(None)?, builder.add_host(None)?);
    let back = ChannelConfig { rate: way.rate, delay: way.delay, ..Default::default() };
    let there = ChannelConfig { loss: way.loss.clone(), impaired_from: way.lossy_from, ..back.clone() };
    let link = builder.add_link(a, b, &LinkConfig { up: there, down: back, ..Default::default() });
    if way.captures_packets {
        builder.capture_link(link, true, 0);
    }
    let (lanes, transports) = match &carrier {
        MessageTransport::Tcp(count, config) => {
            (*count, TransportConfig { tcp: Arc::new(config.clone()), ..Default::default() })
        }
        MessageTransport::Sctp(streams, config) => {
            (u32::from(*streams), TransportConfig { sctp: Arc::new(config.clone()), ..Default::default() })
        }
    };
    let transports = Some(Arc::new(transports));
    let mut under_way = vec![VecDeque::new(); lanes as usize];
    for (i, planned) in plan.iter().enumerate() {
        under_way[planned.lane as usize].push_back((i, planned.bytes));
    }
    let sender = MessageTestApp::Sender { to: b, carrier: Box::new(carrier), plan: plan.to_vec().into() };
    builder.add_application(a, sender, transports.clone());
    let receiver = builder.add_application(b, MessageTestApp::Receiver, transports);
    builder.listen_tcp(receiver, PORT)?;
    builder.listen_sctp(receiver, PORT)?;
    let observer = MessageDeliveryObserver {
        in_flight: under_way,
        delivered: vec![None; plan.len()],
        missing: plan.len(),
    };
    let mut sim = builder.build(
        observer,
        way.captures_packets.then(|| Box::<SenderPacketTap>::default() as Box<dyn PacketTap>),
    );
    sim.run_until(until);
    let packets = sim.take_tap().and_then(|tap| tap.into_any().downcast::<SenderPacketTap>().ok());
    let SenderPacketTap { sent, received: came } = packets.map(|p| *p).unwrap_or_default();
    Ok(WireRunResult { sent, received: came, delivered: std::mem::take(&mut sim.observer_mut().delivered) })
}

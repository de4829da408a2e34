//! Two hosts, a link between them, and messages from one to the other over TCP connections or SCTP streams.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use usher_core::impair::{ChannelConfig, Loss};
use usher_core::{ConnId, Duration, Instant, Seed};
use usher_sim::{
    Application, Builder, Context, Delivery, HostId, IpVersion, LinkConfig, MessageDelivery, Observer,
    Payload, SimError, StreamDelivery, Tap, Transports, sctp, tcp,
};

/// What carries the messages.
#[derive(Clone, Debug)]
pub(crate) enum Carrier {
    /// So many connections.
    Tcp(u32, tcp::Config),
    /// One association with so many streams.
    Sctp(u16, sctp::Config),
}

/// When a message is sent, on which connection or stream, and its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) at: Instant,
    pub(crate) lane: u32,
    pub(crate) bytes: u32,
}

/// A packet that was sent: when, and the packet from its IPv4 header on.
pub(crate) type Sent = (Instant, Vec<u8>);

/// What a run gave.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Packets of the sending host, before any loss; kept only if asked for.
    pub(crate) sent: Vec<Sent>,
    /// Packets that came to the sending host, and when; kept only if asked for.
    pub(crate) came: Vec<Sent>,
    /// When each message was delivered, in the order of the plan; `None` if it was not.
    pub(crate) delivered: Vec<Option<Instant>>,
}

/// The messages' way.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) rate: Option<u64>,
    pub(crate) delay: Duration,
    pub(crate) loss: Loss,
    /// Loss begins at this time.
    pub(crate) lossy_from: Instant,
    /// Whether packets are kept.
    pub(crate) keep: bool,
}

#[derive(Debug)]
enum App {
    Sender { to: HostId, carrier: Box<Carrier>, plan: VecDeque<Planned> },
    Receiver,
}

/// So many bytes, or a whole message, came on this lane.
#[derive(Debug)]
struct Came {
    lane: u32,
    bytes: u32,
}

const PORT: u16 = 3868;

impl App {
    /// Sends what is due.
    fn send(plan: &mut VecDeque<Planned>, carrier: &Carrier, ctx: &mut Context<'_, Came>) {
        while let Some(next) = plan.pop_front_if(|next| next.at <= ctx.now()) {
            let payload = Payload::counted(next.bytes);
            match carrier {
                Carrier::Tcp(..) => ctx.write(ConnId::opened(next.lane), payload),
                Carrier::Sctp(..) => {
                    let stream = next.lane as u16;
                    let message = sctp::Message { stream, ppid: 0, unordered: false, payload };
                    ctx.send_message(ConnId::opened(0), message);
                }
            }
        }
        ctx.set_timer(plan.front().map(|next| next.at));
    }
}

impl Application for App {
    type Report = Came;
    fn handle(&mut self, ctx: &mut Context<'_, Came>, delivery: Delivery) {
        match (self, delivery) {
            (Self::Sender { to, carrier, plan }, Delivery::Start) => {
                match &**carrier {
                    Carrier::Tcp(count, _) => {
                        (0..*count).for_each(|i| ctx.connect(ConnId::opened(i), *to, PORT));
                    }
                    Carrier::Sctp(streams, _) => ctx.associate(ConnId::opened(0), *to, PORT, *streams),
                }
                Self::send(plan, carrier, ctx);
            }
            (Self::Sender { carrier, plan, .. }, Delivery::Timer) => Self::send(plan, carrier, ctx),
            (Self::Receiver, Delivery::Stream { conn, event: StreamDelivery::Data(payload) }) => {
                ctx.report(Came { lane: conn.n, bytes: payload.len });
            }
            (
                Self::Receiver,
                Delivery::Message { event: MessageDelivery::Data { stream, payload, .. }, .. },
            ) => {
                ctx.report(Came { lane: u32::from(stream), bytes: payload.len });
            }
            _ => {}
        }
    }
}

/// Tells which message is whole: each lane keeps its order.
#[derive(Debug)]
struct Lanes {
    /// Messages under way on each lane: place in the plan, and bytes that are to come yet.
    under_way: Vec<VecDeque<(usize, u32)>>,
    delivered: Vec<Option<Instant>>,
    missing: usize,
}

impl Observer<Came> for Lanes {
    fn report(&mut self, now: Instant, _: u32, mut came: Came) {
        let Some(lane) = self.under_way.get_mut(came.lane as usize) else { return };
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
struct Packets {
    sent: Vec<Sent>,
    came: Vec<Sent>,
}

impl Tap for Packets {
    fn packet(&mut self, now: Instant, _: u16, outward: bool, bytes: &[u8]) {
        let way = if outward { &mut self.sent } else { &mut self.came };
        way.push((now, bytes.to_vec()));
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Sends the plan's messages, which are in order of time, over one link whose way back is sound, until all are
/// delivered or `until` has come.
pub(crate) fn run(
    seed: Seed,
    carrier: Carrier,
    way: &Way,
    plan: &[Planned],
    until: Instant,
) -> Result<Outcome, SimError> {
    let mut builder = Builder::new(IpVersion::V4, seed);
    let (a, b) = (builder.host(None)?, builder.host(None)?);
    let back = ChannelConfig { rate: way.rate, delay: way.delay, ..Default::default() };
    let there = ChannelConfig { loss: way.loss.clone(), impaired_from: way.lossy_from, ..back.clone() };
    let link = builder.link(a, b, &LinkConfig { up: there, down: back, ..Default::default() });
    if way.keep {
        builder.capture(link, true, 0);
    }
    let (lanes, transports) = match &carrier {
        Carrier::Tcp(count, config) => {
            (*count, Transports { tcp: Arc::new(config.clone()), ..Default::default() })
        }
        Carrier::Sctp(streams, config) => {
            (u32::from(*streams), Transports { sctp: Arc::new(config.clone()), ..Default::default() })
        }
    };
    let transports = Some(Arc::new(transports));
    let mut under_way = vec![VecDeque::new(); lanes as usize];
    for (i, planned) in plan.iter().enumerate() {
        under_way[planned.lane as usize].push_back((i, planned.bytes));
    }
    let sender = App::Sender { to: b, carrier: Box::new(carrier), plan: plan.to_vec().into() };
    builder.app(a, sender, transports.clone());
    let receiver = builder.app(b, App::Receiver, transports);
    builder.listen(receiver, PORT)?;
    builder.listen_sctp(receiver, PORT)?;
    let observer = Lanes { under_way, delivered: vec![None; plan.len()], missing: plan.len() };
    let mut sim = builder.build(observer, way.keep.then(|| Box::<Packets>::default() as Box<dyn Tap>));
    sim.run_until(until);
    let packets = sim.take_tap().and_then(|tap| tap.into_any().downcast::<Packets>().ok());
    let Packets { sent, came } = packets.map(|p| *p).unwrap_or_default();
    Ok(Outcome { sent, came, delivered: std::mem::take(&mut sim.observer_mut().delivered) })
}

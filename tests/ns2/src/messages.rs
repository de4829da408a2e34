//! Messages over one TCP connection at fixed times. Both simulators lose the same packets, so that a run has no
//! randomness.

use crate::transfer::{LostPackets, shift_ordinals};
use crate::{run_ns2, scenario_directory};
use std::sync::Arc;
use usher_core::impair::{ChannelConfig, LossModel, QueueLimit};
use usher_core::{ConnId, Duration, Instant, Seed};
use usher_runner::world::tcp_config;
use usher_scenario::{PlanOverrides, Study, StudyMode};
use usher_sim::{
    AppContext, AppDelivery, Application, HostId, IpVersion, LinkConfig, Payload, ReportObserver,
    SimulationBuilder, TcpStreamEvent, TransportConfig,
};

/// FullTcp's settings for each value of a study's `congestion`.
pub const AGENTS: [(&str, &str); 3] = [
    ("reno", "Agent/TCP/FullTcp"),
    ("newreno", "Agent/TCP/FullTcp/Newreno"),
    ("sack", "Agent/TCP/FullTcp/Sack"),
];

/// The client's packets before the messages: the SYN, in ns-2 an acknowledgement, and the message that opens the
/// connection. If that is answered, also the acknowledgement of the answer.
const CLIENT_BEFORE: u64 = 2;
const CLIENT_BEFORE_IN_NS2: u64 = 3;
/// The server's packets before the messages: the SYN-ACK, and the answer to the message that opens the connection.
const SERVER_BEFORE: u64 = 2;
const PORT: u16 = 3868;
/// The times of the connection's opening and of the first message. No message coincides with a delayed
/// acknowledgement.
const OPEN: Instant = Instant::from_nanos(10_000_000);
pub(crate) const BEGIN: Instant = Instant::from_nanos(1_013_707_000);
/// The time between the last message and the end.
pub(crate) const DRAIN: Duration = Duration::from_secs(40_000);

/// The messages and the settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct MessagePlan {
    /// A study's `congestion`: `reno`, `newreno` or `sack`.
    pub congestion: &'static str,
    /// The minimum retransmission timeout in milliseconds.
    pub rto_min: u64,
    /// The longest delay of an acknowledgement in milliseconds.
    pub delayed_ack: u64,
    /// The clock's tick in microseconds. Each simulator draws the phase of its ticks.
    pub tick: u64,
    /// The number of messages.
    pub messages: u32,
    /// The interval between messages in microseconds.
    pub gap: u64,
    /// The size of a message in bytes.
    pub bytes: u32,
    /// The size of an answer in bytes. 0: messages are not answered.
    pub answer: u32,
}

impl MessagePlan {
    /// A one-way transfer of 400 full segments, all written at the beginning.
    pub fn bulk_transfer(congestion: &'static str, rto_min: u64) -> Self {
        Self {
            congestion,
            rto_min,
            delayed_ack: 100,
            tick: 10_000,
            messages: 400,
            gap: 0,
            bytes: 536,
            answer: 0,
        }
    }
    /// A small message every 37.1 ms, each answered.
    pub fn small_dialogues(congestion: &'static str, rto_min: u64) -> Self {
        Self {
            congestion,
            rto_min,
            delayed_ack: 100,
            tick: 10_000,
            messages: 400,
            gap: 37_100,
            bytes: 200,
            answer: 200,
        }
    }
    fn departure_time(&self, message: u32) -> Instant {
        BEGIN + Duration::from_micros(self.gap) * u64::from(message)
    }
}

/// Returns the mean delay of the messages in ns-2, in seconds.
///
/// # Errors
/// As [`run_ns2`], or messages did not end.
pub fn ns2_mean(plan: &MessagePlan, lost: &LostPackets) -> Result<f64, String> {
    let list =
        |list, before| shift_ordinals(list, before).iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    let before = CLIENT_BEFORE_IN_NS2 + u64::from(plan.answer > 0);
    let agent = AGENTS.iter().find(|(congestion, _)| *congestion == plan.congestion);
    let pairs = [
        ("agent", agent.ok_or("ns-2 has no such agent")?.1.to_owned()),
        ("minrto", (plan.rto_min as f64 / 1e3).to_string()),
        ("tick", (plan.tick as f64 / 1e6).to_string()),
        ("interval", (plan.delayed_ack as f64 / 1e3).to_string()),
        ("messages", plan.messages.to_string()),
        ("gap", (plan.gap as f64 / 1e6).to_string()),
        ("bytes", plan.bytes.to_string()),
        ("answer", plan.answer.to_string()),
        ("drain", DRAIN.as_secs_f64().to_string()),
        ("up", list(&lost.up, before)),
        ("down", list(&lost.down, SERVER_BEFORE)),
    ];
    let arguments: Vec<String> =
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
    let line = run_ns2("tcp-lost", &arguments)?;
    if line.get("failed").is_none_or(|failed| failed != "0") {
        return Err(format!("messages did not end: {line:?}"));
    }
    line.get("mean").and_then(|v| v.parse().ok()).ok_or_else(|| format!("no mean in {line:?}"))
}

/// The same in our simulator. `settings` override those of `tcp-reno.toml`.
///
/// # Errors
/// The study is faulty, or messages did not end.
pub fn simulated_mean(plan: &MessagePlan, lost: &LostPackets, settings: &str) -> Result<f64, String> {
    let own = format!(
        "{settings}\ncongestion = \"{}\"\nrto_min = \"{} ms\"\ndelayed_ack = \"{} ms\"\nrtt_tick = \"{} us\"\nnagle = false",
        plan.congestion, plan.rto_min, plan.delayed_ack, plan.tick
    );
    let before = [CLIENT_BEFORE + u64::from(plan.answer > 0), SERVER_BEFORE];
    mean_delay(&simulated_delays(plan, lost, &own, before)?)
}

pub(crate) fn mean_delay(delays: &[Duration]) -> Result<f64, String> {
    let sum = delays.iter().fold(Duration::ZERO, |sum, delay| sum + *delay);
    let number = if delays.is_empty() { Err("no message ended") } else { Ok(delays.len() as f64) };
    Ok(sum.as_secs_f64() / number?)
}

/// Returns the delay of each message in our simulator. The settings override those of `tcp-reno.toml`. The two counts
/// are packets of the client and the server that leave before the first packet of a loss list.
pub(crate) fn simulated_delays(
    plan: &MessagePlan,
    lost: &LostPackets,
    settings: &str,
    before: [u64; 2],
) -> Result<Vec<Duration>, String> {
    let text =
        std::fs::read_to_string(scenario_directory().join("tcp-reno.toml")).map_err(|e| e.to_string())?;
    let text = text.replace("preset = \"ns-2\"\nnagle = false", settings);
    let study = Study::parse("messages", "tcp-reno.toml", &text).map_err(|e| e.to_string())?;
    let point = study.build_plan(StudyMode::Default, &PlanOverrides::default()).map_err(|e| e.to_string())?;
    let point = point.points.first().ok_or("the study has no point")?;
    let config = tcp_config(&point.scenario.transport.tcp, IpVersion::V4, 1500);
    let transports = Some(Arc::new(TransportConfig { tcp: Arc::new(config), ..Default::default() }));
    let fault = |e: &dyn std::fmt::Display| e.to_string();
    let mut builder = SimulationBuilder::new(IpVersion::V4, Seed::new(1));
    let mut host = || builder.add_host(None).map_err(|e| fault(&e));
    let (client, router, server) = (host()?, host()?, host()?);
    let direction = |lost: &[u64], before| ChannelConfig {
        rate: Some(1_500_000),
        delay: Duration::from_millis(10),
        queue: QueueLimit::Packets(49),
        loss: LossModel::Script(shift_ordinals(lost, before)),
        ..Default::default()
    };
    let [up, down] = [direction(&lost.up, before[0]), direction(&lost.down, before[1])];
    let core = LinkConfig { up, down, ..Default::default() };
    builder.add_link(client, router, &core);
    let fast = ChannelConfig { rate: Some(100_000_000), ..Default::default() };
    builder.add_link(router, server, &LinkConfig { up: fast.clone(), down: fast, ..Default::default() });
    builder.add_application(
        client,
        MessageApp::Requester { server, plan: *plan, sent_messages: 0, received_octets: 0 },
        transports.clone(),
    );
    let answering = builder.add_application(
        server,
        MessageApp::Answering { plan: *plan, received_octets: 0 },
        transports,
    );
    builder.listen_tcp(answering, PORT).map_err(|e| fault(&e))?;
    let mut sim = builder.build(DeliveryTimes::for_plan(plan), None);
    sim.run_until(BEGIN + DRAIN);
    let ends = sim.observer_mut();
    if ends.arrival_times.len() <= plan.messages as usize {
        return Err(format!("{} messages ended", ends.arrival_times.len()));
    }
    Ok(ends.arrival_times.iter().skip(1).zip(0..).map(|(at, i)| *at - plan.departure_time(i)).collect())
}

#[derive(Debug)]
enum MessageApp {
    /// Sends messages and counts the octets of answers.
    Requester { server: HostId, plan: MessagePlan, sent_messages: u32, received_octets: u32 },
    /// Answers messages, if the plan has answers.
    Answering { plan: MessagePlan, received_octets: u32 },
}

/// The end of a message.
#[derive(Debug)]
struct MessageDelivered;

impl MessageApp {
    fn send_message(ctx: &mut AppContext<'_, MessageDelivered>, plan: &MessagePlan) {
        ctx.write(ConnId::nth_opened_connection(0), Payload::with_length(plan.bytes));
    }
}

impl Application for MessageApp {
    type Report = MessageDelivered;
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, MessageDelivered>, delivery: AppDelivery) {
        match (self, delivery) {
            (Self::Requester { .. }, AppDelivery::Start) => ctx.set_timer(Some(OPEN)),
            (Self::Requester { server, plan, sent_messages: asked, .. }, AppDelivery::Timer) => {
                if ctx.now() == OPEN {
                    ctx.connect(ConnId::nth_opened_connection(0), *server, PORT);
                    ctx.set_timer(Some(BEGIN));
                    return;
                }
                while *asked < plan.messages && plan.departure_time(*asked) <= ctx.now() {
                    Self::send_message(ctx, plan);
                    *asked += 1;
                }
                ctx.set_timer((*asked < plan.messages).then(|| plan.departure_time(*asked)));
            }
            (
                Self::Requester { plan, .. },
                AppDelivery::Stream { event: TcpStreamEvent::Connected { .. }, .. },
            ) => {
                Self::send_message(ctx, plan);
            }
            (
                Self::Requester { plan, received_octets: came, .. },
                AppDelivery::Stream { event: TcpStreamEvent::Data(data), .. },
            ) => {
                *came += data.len;
                while plan.answer > 0 && *came >= plan.answer {
                    *came -= plan.answer;
                    ctx.report(MessageDelivered);
                }
            }
            (
                Self::Answering { plan, received_octets: came },
                AppDelivery::Stream { conn, event: TcpStreamEvent::Data(data) },
            ) => {
                *came += data.len;
                while *came >= plan.bytes {
                    *came -= plan.bytes;
                    if plan.answer > 0 {
                        ctx.write(conn, Payload::with_length(plan.answer));
                    } else {
                        ctx.report(MessageDelivered);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The delivery time of each message. The first opened the connection.
#[derive(Debug)]
struct DeliveryTimes {
    arrival_times: Vec<Instant>,
    all: usize,
}

impl DeliveryTimes {
    fn for_plan(plan: &MessagePlan) -> Self {
        Self { arrival_times: Vec::new(), all: plan.messages as usize + 1 }
    }
}

impl ReportObserver<MessageDelivered> for DeliveryTimes {
    fn handle_report(&mut self, now: Instant, _: u32, _: MessageDelivered) {
        self.arrival_times.push(now);
    }
    fn is_done(&self) -> bool {
        self.arrival_times.len() >= self.all
    }
}

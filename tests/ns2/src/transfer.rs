//! A transfer over SCTP. Both simulators lose the same packets, so that their differences are not random.

use crate::{run_ns2, scenario_directory};
use std::sync::Arc;
use usher_core::impair::{ChannelConfig, LossModel, QueueLimit};
use usher_core::{ConnId, Duration, Instant, Seed};
use usher_runner::world::sctp_config;
use usher_scenario::{PlanOverrides, Study, StudyMode};
use usher_sim::{
    AppContext, AppDelivery, Application, HostId, IpVersion, LinkConfig, Payload, ReportObserver,
    SctpAssociationEvent, SimulationBuilder, TransportConfig, sctp,
};

/// The number of measured chunks. As in ns-2, the sender always has more to send.
const CHUNKS: usize = 1500;
const SENT: usize = 1600;
/// Bytes of user data in a chunk.
const SIZE: u32 = 1000;
/// The number of packets in each direction that a loss list covers.
const LISTED: u64 = 8000;
/// Packets in each direction before the first data or the first SACK: INIT and COOKIE ECHO or their replies. In ns-2,
/// also a HEARTBEAT or its reply.
const BEFORE: u64 = 2;
const BEFORE_IN_NS2: u64 = 3;
const PORT: u16 = 3868;

/// The lost packets, as ordinals from the first packet with data and from the first SACK.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostPackets {
    /// Lost packets of the sender.
    pub up: Vec<u64>,
    /// Lost packets of the receiver.
    pub down: Vec<u64>,
}

impl LostPackets {
    /// Loses each packet with this probability, drawn with `seed`.
    pub fn draw_with_seed(loss: f64, seed: u64) -> Self {
        let of = |direction| {
            let mut rng = Seed::new(seed).derive_rng("lost", direction);
            (0..LISTED).filter(|_| rng.sample_bool(loss)).collect()
        };
        Self { up: of(0), down: of(1) }
    }
}

pub(crate) fn shift_ordinals(list: &[u64], by: u64) -> Vec<u64> {
    list.iter().map(|n| n + by).collect()
}

/// Returns ns-2's mean delivery time of the first 1500 chunks in seconds, since the first was sent.
///
/// # Errors
/// As [`run_ns2`].
pub fn ns2_mean(lost: &LostPackets) -> Result<f64, String> {
    let list =
        |list| shift_ordinals(list, BEFORE_IN_NS2).iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    let pairs = [
        ("chunks", CHUNKS.to_string()),
        ("size", SIZE.to_string()),
        ("drain", "1000".to_owned()),
        ("heartbeat", "0".to_owned()),
        ("up", list(&lost.up)),
        ("down", list(&lost.down)),
    ];
    let arguments: Vec<String> =
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
    let line = run_ns2("sctp-ftp", &arguments)?;
    if line.get("failed").is_none_or(|failed| failed != "0") {
        return Err(format!("chunks did not come: {line:?}"));
    }
    line.get("mean").and_then(|v| v.parse().ok()).ok_or_else(|| format!("no mean in {line:?}"))
}

/// The same in our simulator. `settings` replace the `preset` of `sctp-ftp.toml`.
///
/// # Errors
/// The study is faulty, or chunks are missing.
pub fn simulated_mean(lost: &LostPackets, settings: &str) -> Result<f64, String> {
    let text =
        std::fs::read_to_string(scenario_directory().join("sctp-ftp.toml")).map_err(|e| e.to_string())?;
    let text = text.replace("preset = \"ns-2\"", &format!("heartbeat = \"off\"\n{settings}"));
    let study = Study::parse("transfer", "sctp-ftp.toml", &text).map_err(|e| e.to_string())?;
    let plan = study.build_plan(StudyMode::Default, &PlanOverrides::default()).map_err(|e| e.to_string())?;
    let point = plan.points.first().ok_or("the study has no point")?;
    let config = sctp_config(&point.scenario.transport.sctp, IpVersion::V4, 1500);
    let transports = Some(Arc::new(TransportConfig { sctp: Arc::new(config), ..Default::default() }));
    let fault = |e: &dyn std::fmt::Display| e.to_string();
    let mut builder = SimulationBuilder::new(IpVersion::V4, Seed::new(1));
    let mut host = || builder.add_host(None).map_err(|e| fault(&e));
    let (client, router, server) = (host()?, host()?, host()?);
    let way = |lost: &[u64]| ChannelConfig {
        rate: Some(1_500_000),
        delay: Duration::from_millis(10),
        queue: QueueLimit::Packets(49),
        loss: LossModel::Script(shift_ordinals(lost, BEFORE)),
        ..Default::default()
    };
    let core = LinkConfig { up: way(&lost.up), down: way(&lost.down), ..Default::default() };
    builder.add_link(client, router, &core);
    let fast = ChannelConfig { rate: Some(100_000_000), ..Default::default() };
    builder.add_link(router, server, &LinkConfig { up: fast.clone(), down: fast, ..Default::default() });
    builder.add_application(client, TransferApp::Sender(server), transports.clone());
    let receiver = builder.add_application(server, TransferApp::Receiver, transports);
    builder.listen_sctp(receiver, PORT).map_err(|e| fault(&e))?;
    let mut sim = builder.build(ChunkTimes::default(), None);
    sim.run_until(Instant::ZERO + Duration::from_secs(1000));
    let ChunkTimes { started_at: began, arrival_times: came } = sim.observer_mut();
    let (Some(began), Some(came)) = (*began, came.get(..CHUNKS)) else {
        return Err(format!("{} chunks came", came.len()));
    };
    let sum: Duration = came.iter().fold(Duration::ZERO, |sum, at| sum + (*at - began));
    Ok(sum.as_secs_f64() / CHUNKS as f64)
}

#[derive(Debug)]
enum TransferApp {
    Sender(HostId),
    Receiver,
}

#[derive(Debug)]
enum TransferMilestone {
    Started,
    ChunkReceived,
}

impl Application for TransferApp {
    type Report = TransferMilestone;
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, TransferMilestone>, delivery: AppDelivery) {
        match (self, delivery) {
            (Self::Sender(to), AppDelivery::Start) => {
                ctx.associate(ConnId::nth_opened_connection(0), *to, PORT, 1)
            }
            // Not earlier: in ns-2, COOKIE ECHO carries no data.
            (Self::Sender(_), AppDelivery::Message { event: SctpAssociationEvent::Up { .. }, .. }) => {
                ctx.report(TransferMilestone::Started);
                for _ in 0..SENT {
                    let payload = Payload::with_length(SIZE);
                    let message = sctp::UserMessage { stream: 0, ppid: 0, unordered: false, payload };
                    ctx.send_message(ConnId::nth_opened_connection(0), message);
                }
            }
            (Self::Receiver, AppDelivery::Message { event: SctpAssociationEvent::Data { .. }, .. }) => {
                ctx.report(TransferMilestone::ChunkReceived);
            }
            _ => {}
        }
    }
}

/// The time of the first transmission, and of each delivery.
#[derive(Debug, Default)]
struct ChunkTimes {
    started_at: Option<Instant>,
    arrival_times: Vec<Instant>,
}

impl ReportObserver<TransferMilestone> for ChunkTimes {
    fn handle_report(&mut self, now: Instant, _: u32, said: TransferMilestone) {
        match said {
            TransferMilestone::Started => self.started_at = Some(now),
            TransferMilestone::ChunkReceived => self.arrival_times.push(now),
        }
    }
    fn is_done(&self) -> bool {
        self.arrival_times.len() >= CHUNKS
    }
}

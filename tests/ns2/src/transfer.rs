//! A transfer over SCTP in which both simulators lose the same packets, so that chance is no difference between them.

use crate::{folder, ns};
use std::sync::Arc;
use usher_core::impair::{ChannelConfig, Loss, QueueLimit};
use usher_core::{ConnId, Duration, Instant, Seed};
use usher_runner::world::sctp_config;
use usher_scenario::{Mode, Overrides, Study};
use usher_sim::{
    Application, Builder, Context, Delivery, HostId, IpVersion, LinkConfig, MessageDelivery, Observer,
    Payload, Transports, sctp,
};

/// Chunks that count, of those that are sent: as in ns-2, there is always more to send.
const CHUNKS: usize = 1500;
const SENT: usize = 1600;
/// Bytes of user data in a chunk.
const SIZE: u32 = 1000;
/// Packets of each direction of which a list says whether they are lost.
const LISTED: u64 = 8000;
/// Packets that go either way before the first with data or the first SACK: INIT and COOKIE ECHO or what answers them; in
/// ns-2 a HEARTBEAT or its answer, too.
const BEFORE: u64 = 2;
const BEFORE_IN_NS2: u64 = 3;
const PORT: u16 = 3868;

/// The packets that are lost: ordinals from the first packet with data on, and from the first SACK on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The sender's.
    pub up: Vec<u64>,
    /// The receiver's.
    pub down: Vec<u64>,
}

impl Lost {
    /// Each with this probability, drawn by `seed`.
    pub fn draw(loss: f64, seed: u64) -> Self {
        let of = |direction| {
            let mut rng = Seed::new(seed).stream("lost", direction);
            (0..LISTED).filter(|_| rng.chance(loss)).collect()
        };
        Self { up: of(0), down: of(1) }
    }
}

pub(crate) fn moved(list: &[u64], by: u64) -> Vec<u64> {
    list.iter().map(|n| n + by).collect()
}

/// The mean over the first 1500 chunks of how long after the first left each was delivered, in seconds, in ns-2.
///
/// # Errors
/// As [`ns`].
pub fn theirs(lost: &Lost) -> Result<f64, String> {
    let list = |list| moved(list, BEFORE_IN_NS2).iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
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
    let line = ns("sctp-ftp", &arguments)?;
    if line.get("failed").is_none_or(|failed| failed != "0") {
        return Err(format!("chunks did not come: {line:?}"));
    }
    line.get("mean").and_then(|v| v.parse().ok()).ok_or_else(|| format!("no mean in {line:?}"))
}

/// The same of the simulator, with the settings of `sctp-ftp.toml` and `settings` in place of its own `preset`.
///
/// # Errors
/// Where the study is at fault, or not all chunks come.
pub fn ours(lost: &Lost, settings: &str) -> Result<f64, String> {
    let text = std::fs::read_to_string(folder().join("sctp-ftp.toml")).map_err(|e| e.to_string())?;
    let text = text.replace("preset = \"ns-2\"", &format!("heartbeat = \"off\"\n{settings}"));
    let study = Study::parse("transfer", "sctp-ftp.toml", &text).map_err(|e| e.to_string())?;
    let plan = study.plan(Mode::Default, &Overrides::default()).map_err(|e| e.to_string())?;
    let point = plan.points.first().ok_or("the study has no point")?;
    let config = sctp_config(&point.scenario.transport.sctp, IpVersion::V4, 1500);
    let transports = Some(Arc::new(Transports { sctp: Arc::new(config), ..Default::default() }));
    let fault = |e: &dyn std::fmt::Display| e.to_string();
    let mut builder = Builder::new(IpVersion::V4, Seed::new(1));
    let mut host = || builder.host(None).map_err(|e| fault(&e));
    let (client, router, server) = (host()?, host()?, host()?);
    let way = |lost: &[u64]| ChannelConfig {
        rate: Some(1_500_000),
        delay: Duration::from_millis(10),
        queue: QueueLimit::Packets(49),
        loss: Loss::Script(moved(lost, BEFORE)),
        ..Default::default()
    };
    let core = LinkConfig { up: way(&lost.up), down: way(&lost.down), ..Default::default() };
    builder.link(client, router, &core);
    let fast = ChannelConfig { rate: Some(100_000_000), ..Default::default() };
    builder.link(router, server, &LinkConfig { up: fast.clone(), down: fast, ..Default::default() });
    builder.app(client, App::Sender(server), transports.clone());
    let receiver = builder.app(server, App::Receiver, transports);
    builder.listen_sctp(receiver, PORT).map_err(|e| fault(&e))?;
    let mut sim = builder.build(Times::default(), None);
    sim.run_until(Instant::ZERO + Duration::from_secs(1000));
    let Times { began, came } = sim.observer_mut();
    let (Some(began), Some(came)) = (*began, came.get(..CHUNKS)) else {
        return Err(format!("{} chunks came", came.len()));
    };
    let sum: Duration = came.iter().fold(Duration::ZERO, |sum, at| sum + (*at - began));
    Ok(sum.as_secs_f64() / CHUNKS as f64)
}

#[derive(Debug)]
enum App {
    Sender(HostId),
    Receiver,
}

#[derive(Debug)]
enum Milestone {
    Began,
    Came,
}

impl Application for App {
    type Report = Milestone;
    fn handle(&mut self, ctx: &mut Context<'_, Milestone>, delivery: Delivery) {
        match (self, delivery) {
            (Self::Sender(to), Delivery::Start) => ctx.associate(ConnId::opened(0), *to, PORT, 1),
            // Not before: in ns-2 nothing rides on COOKIE ECHO.
            (Self::Sender(_), Delivery::Message { event: MessageDelivery::Up { .. }, .. }) => {
                ctx.report(Milestone::Began);
                for _ in 0..SENT {
                    let payload = Payload::counted(SIZE);
                    let message = sctp::Message { stream: 0, ppid: 0, unordered: false, payload };
                    ctx.send_message(ConnId::opened(0), message);
                }
            }
            (Self::Receiver, Delivery::Message { event: MessageDelivery::Data { .. }, .. }) => {
                ctx.report(Milestone::Came);
            }
            _ => {}
        }
    }
}

/// When the first chunk left, and when each was delivered.
#[derive(Debug, Default)]
struct Times {
    began: Option<Instant>,
    came: Vec<Instant>,
}

impl Observer<Milestone> for Times {
    fn report(&mut self, now: Instant, _: u32, said: Milestone) {
        match said {
            Milestone::Began => self.began = Some(now),
            Milestone::Came => self.came.push(now),
        }
    }
    fn is_done(&self) -> bool {
        self.came.len() >= CHUNKS
    }
}

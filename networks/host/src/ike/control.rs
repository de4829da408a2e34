//! How a running gateway is asked: by its control socket, and by Prometheus.

use super::plane::IkeDataPlane;
use super::say::SharedLeases;
use crate::metrics::{MetricsExposition, ServiceProbe};
use crate::telling::parse_selection;
use crate::{CommandSender, MachineJobs, PendingRequests, WorkDone, control};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use usher_gateway::{GatewayCommand, GatewayStatus, IkeGateway, SaSelection};

/// What a gateway is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum IkeControlRequest {
    /// How are things?
    Status,
    /// Begin a connection.
    Connect {
        /// Its name.
        connection: String,
    },
    /// Replace IKE_SAs, or their CHILD_SAs, by new ones.
    Rekey {
        /// `#` and a number of [`IkeStatus`], or a connection, an identity, a user, an inner address; `None`: all.
        which: Option<String>,
        /// Their CHILD_SAs.
        children: bool,
    },
    /// End IKE_SAs.
    Down {
        /// As with [`Self::Rekey`].
        which: Option<String>,
    },
}

/// What a gateway says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum IkeControlReply {
    /// How things are.
    Status(IkeStatus),
    /// A connection was begun.
    Begun {
        /// The number of its IKE_SA.
        sa: u64,
    },
    /// So many SAs were told.
    Told {
        /// How many.
        sas: usize,
    },
    /// Not done.
    Failed {
        /// Why, and what to do.
        message: String,
    },
}

/// How things are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IkeStatus {
    /// The program's version.
    pub version: String,
    /// IKE_SAs that are established.
    pub sas: Vec<IkeSa>,
    /// IKE_SAs whose initiator has not proved who it is.
    pub half_open: usize,
    /// Address pools.
    pub pools: Vec<IkePoolStatus>,
    /// What was counted.
    pub counters: BTreeMap<String, u64>,
    /// Units of work by its kinds, as studies charge them.
    pub work: BTreeMap<String, u64>,
}

/// An IKE_SA that is established.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IkeSa {
    /// Its number.
    pub id: u64,
    /// The name of its connection.
    pub connection: String,
    /// Who the other side is.
    pub identity: String,
    /// Its user's name in accounting.
    pub user: String,
    /// Acct-Session-Id.
    pub session: String,
    /// `initiator` or `responder`: what this side is.
    pub role: String,
    /// SPIs of initiator and responder, in hexadecimal.
    pub spis: (String, String),
    /// From where its messages go.
    pub local: SocketAddr,
    /// Where to.
    pub remote: SocketAddr,
    /// Seconds that it has been there.
    pub lasted: u64,
    /// Inner addresses of the initiator.
    pub addresses: Vec<IpAddr>,
    /// Name servers that this side was told of. This program does not have the host ask them.
    pub dns: Vec<IpAddr>,
    /// The domains that these are for; none: for all.
    pub domains: Vec<String>,
    /// What its CHILD_SAs have carried, those that are no more among them.
    pub carried: SaTraffic,
    /// Its CHILD_SAs.
    pub children: Vec<ChildSa>,
}

/// A CHILD_SA.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChildSa {
    /// The name of its configuration.
    pub name: String,
    /// The SPI of packets that come, in hexadecimal.
    pub inbound: String,
    /// The SPI of packets that go.
    pub outbound: String,
    /// Traffic of this side.
    pub local: Vec<String>,
    /// Traffic of the other side.
    pub remote: Vec<String>,
    /// Packets are within UDP.
    pub encapsulated: bool,
    /// `tunnel`, or `transport`.
    pub mode: String,
    /// Seconds that it has been there.
    pub lasted: u64,
    /// What it has carried.
    pub carried: SaTraffic,
}

/// What CHILD_SAs have carried: packets, and octets of those packets without what protects them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SaTraffic {
    /// Octets from the other side.
    pub received_octets: u64,
    /// Packets from the other side.
    pub received_packets: u64,
    /// Octets to the other side.
    pub sent_octets: u64,
    /// Packets to the other side.
    pub sent_packets: u64,
}

impl From<usher_esp::plane::SaUsage> for SaTraffic {
    fn from(usage: usher_esp::plane::SaUsage) -> Self {
        Self {
            received_octets: usage.received.octets,
            received_packets: usage.received.packets,
            sent_octets: usage.sent.octets,
            sent_packets: usage.sent.packets,
        }
    }
}

/// An address pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IkePoolStatus {
    /// Its name.
    pub name: String,
    /// Addresses in use.
    pub used: u64,
    /// Addresses in all.
    pub addresses: u64,
}

/// Where a running gateway is asked: as a configuration says, or where it is usual.
#[must_use]
pub fn control_path(path: Option<&Path>) -> PathBuf {
    let loaded = super::load_config(path).ok();
    loaded.map_or_else(|| usher_gateway::config::DEFAULT_CONTROL.into(), |loaded| loaded.file.listen.control)
}

/// Asks a running gateway.
///
/// # Errors
/// A sentence that says why there is no answer.
pub fn request_gateway(path: &Path, request: &IkeControlRequest) -> Result<IkeControlReply, String> {
    control::request_service(path, request, "gateway", "usher ike serve")
}

pub(super) fn convert_status(status: &GatewayStatus) -> IkeStatus {
    let hex = |spi: u32| format!("{spi:08x}");
    let child = |child: &usher_gateway::ChildStatus| ChildSa {
        name: child.name.clone(),
        inbound: hex(child.inbound),
        outbound: hex(child.outbound),
        local: child.local.clone(),
        remote: child.remote.clone(),
        encapsulated: child.encapsulated,
        mode: if child.transport { "transport" } else { "tunnel" }.to_owned(),
        lasted: child.lasted.as_secs(),
        carried: child.usage.into(),
    };
    let sa = |sa: &usher_gateway::SaStatus| IkeSa {
        id: sa.id,
        connection: sa.connection.clone(),
        identity: sa.identity.clone(),
        user: sa.user.clone(),
        session: sa.session.clone(),
        role: if sa.initiator { "initiator" } else { "responder" }.to_owned(),
        spis: (sa.spis.0.to_string(), sa.spis.1.to_string()),
        local: sa.local,
        remote: sa.remote,
        lasted: sa.lasted.as_secs(),
        addresses: sa.addresses.clone(),
        dns: sa.dns.clone(),
        domains: sa.domains.clone(),
        carried: sa.usage.into(),
        children: sa.children.iter().map(child).collect(),
    };
    let pool = |(name, used, addresses): &(String, u64, u64)| IkePoolStatus {
        name: name.clone(),
        used: *used,
        addresses: *addresses,
    };
    IkeStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sas: status.sas.iter().map(sa).collect(),
        half_open: status.half_open,
        pools: status.pools.iter().map(pool).collect(),
        counters: status.counters.iter().cloned().collect(),
        work: BTreeMap::new(),
    }
}

pub(super) fn start_reply(result: Result<u64, String>) -> IkeControlReply {
    match result {
        Ok(sa) => IkeControlReply::Begun { sa },
        Err(message) => IkeControlReply::Failed { message },
    }
}

/// What several shards have answered, as one answer.
fn merge_replies(all: IkeControlReply, one: IkeControlReply) -> IkeControlReply {
    match (all, one) {
        (IkeControlReply::Told { sas }, IkeControlReply::Told { sas: more }) => {
            IkeControlReply::Told { sas: sas + more }
        }
        (IkeControlReply::Status(mut all), IkeControlReply::Status(one)) => {
            all.sas.extend(one.sas);
            all.half_open += one.half_open;
            all.pools.extend(one.pools);
            for (name, n) in one.counters {
                *all.counters.entry(name).or_default() += n;
            }
            IkeControlReply::Status(all)
        }
        (all, _) => all,
    }
}

/// Questions that the gateway has still to answer.
#[derive(Clone)]
pub(super) struct GatewayControl {
    questions: PendingRequests<GatewayCommand, IkeControlReply>,
    plane: IkeDataPlane,
    /// How many shards there are.
    shards: u8,
    leases: Option<SharedLeases>,
    work: WorkDone,
    jobs: Arc<MachineJobs<IkeGateway>>,
}

impl GatewayControl {
    /// They go to the gateway that is told so, whose packets and work these are.
    pub(super) fn new(
        telling: &CommandSender<GatewayCommand>,
        plane: &IkeDataPlane,
        (shards, leases): (u8, Option<SharedLeases>),
        (work, jobs): (WorkDone, Arc<MachineJobs<IkeGateway>>),
    ) -> Self {
        Self { questions: PendingRequests::new(telling), plane: plane.clone(), shards, leases, work, jobs }
    }
    /// The gateway has answered.
    pub(super) fn complete_request(&self, token: u64, answer: IkeControlReply) {
        self.questions.deliver_answer(token, answer);
    }

    fn query_shards(&self, shards: u8, command: impl FnOnce(u64) -> GatewayCommand) -> IkeControlReply {
        let answers = self.questions.send_request(shards, command);
        answers.and_then(|answers| answers.into_iter().reduce(merge_replies)).unwrap_or_else(|| {
            IkeControlReply::Failed { message: "the gateway does not answer; it may be ending".to_owned() }
        })
    }

    /// With what is not of one shard alone.
    fn complete_status(&self, mut status: IkeStatus) -> IkeStatus {
        status.counters.extend(self.plane.counters());
        status.work = self.work.work_counts();
        let load = self.jobs.job_load();
        let jobs = [("jobs_refused", load.refused), ("jobs_given_up", load.abandoned)];
        status.counters.extend(jobs.map(|(name, n)| (name.to_owned(), n)));
        if let Some(leases) = &self.leases {
            let leases = leases.lock().unwrap_or_else(PoisonError::into_inner);
            let pool = |(name, used, addresses): (&str, u64, u64)| IkePoolStatus {
                name: name.to_owned(),
                used,
                addresses,
            };
            status.pools = leases.pool_usage().map(pool).collect();
        }
        status
    }

    fn handle_request(&self, request: IkeControlRequest) -> IkeControlReply {
        let told =
            |which, command: &dyn Fn(u64, SaSelection) -> GatewayCommand| match parse_sa_selection(which) {
                Ok(which) => self.query_shards(self.shards, |token| command(token, which)),
                Err(message) => IkeControlReply::Failed { message },
            };
        match request {
            IkeControlRequest::Status => {
                self.plane.report_usage();
                match self.query_shards(self.shards, |token| GatewayCommand::Status { token }) {
                    IkeControlReply::Status(status) => IkeControlReply::Status(self.complete_status(status)),
                    other => other,
                }
            }
            // One shard begins it.
            IkeControlRequest::Connect { connection } => {
                self.query_shards(1, |token| GatewayCommand::Connect { token, connection })
            }
            IkeControlRequest::Rekey { which, children } => {
                told(which, &|token, which| GatewayCommand::Rekey { token, selection: which, children })
            }
            IkeControlRequest::Down { which } => {
                told(which, &|token, which| GatewayCommand::Down { token, selection: which })
            }
        }
    }
}

fn parse_sa_selection(text: Option<String>) -> Result<SaSelection, String> {
    Ok(parse_selection(text, "an IKE_SA", SaSelection::Sa, SaSelection::Named)?.unwrap_or(SaSelection::All))
}

/// Begins to answer at a path.
pub(super) fn start_control(path: &Path, asked: &GatewayControl) -> io::Result<()> {
    let answers = asked.clone();
    control::serve_requests(
        path,
        |message| IkeControlReply::Failed { message },
        move |request, _| answers.handle_request(request),
    )
}

impl GatewayControl {
    fn request_status(&self) -> Option<IkeStatus> {
        match self.handle_request(IkeControlRequest::Status) {
            IkeControlReply::Status(status) => Some(status),
            _ => None,
        }
    }
}

impl ServiceProbe for GatewayControl {
    fn expose_metrics(&self) -> Option<String> {
        Some(metrics_text(&self.request_status()?))
    }
    fn is_serving(&self) -> bool {
        self.request_status().is_some()
    }
    fn check_readiness(&self) -> Result<(), String> {
        self.request_status().map(|_| ()).ok_or_else(|| "the service does not answer".to_owned())
    }
}

fn metrics_text(status: &IkeStatus) -> String {
    let mut metrics = MetricsExposition::new("usher_ike");
    metrics.add_gauge("sas", "IKE_SAs that are established", status.sas.len() as u64);
    metrics.add_gauge(
        "half_open",
        "IKE_SAs whose initiator has not proved who it is",
        status.half_open as u64,
    );
    let children: usize = status.sas.iter().map(|sa| sa.children.len()).sum();
    metrics.add_gauge("children", "CHILD_SAs", children as u64);
    metrics.add_version(&status.version);
    metrics.add_counters(&status.counters, "As usher ike status --json has it");
    metrics.add_work(&status.work);
    let used = status.pools.iter().map(|pool| (&*pool.name, pool.used));
    metrics.add_pools("pool_used", "Addresses of a pool that are in use", used);
    let all = status.pools.iter().map(|pool| (&*pool.name, pool.addresses));
    metrics.add_pools("pool_addresses", "Addresses of a pool", all);
    metrics.to_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shards_answer_is_one_answer() {
        let told = |sas| IkeControlReply::Told { sas };
        assert_eq!(merge_replies(told(2), told(3)), told(5));
        let status = |half_open, counted: &[(&str, u64)]| {
            let counters = counted.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
            let (sas, pools) = (Vec::new(), Vec::new());
            let work = BTreeMap::new();
            IkeControlReply::Status(IkeStatus {
                version: String::new(),
                sas,
                half_open,
                pools,
                counters,
                work,
            })
        };
        let whole = merge_replies(status(1, &[("a", 1), ("b", 2)]), status(4, &[("b", 3), ("c", 4)]));
        assert_eq!(whole, status(5, &[("a", 1), ("b", 5), ("c", 4)]));
    }

    #[test]
    fn metrics_have_what_was_counted() {
        let pool = IkePoolStatus { name: "p".to_owned(), used: 2, addresses: 254 };
        let counters = BTreeMap::from([("sessions".to_owned(), 9)]);
        let status = IkeStatus {
            version: "1.2.3".to_owned(),
            sas: Vec::new(),
            half_open: 3,
            pools: vec![pool],
            counters,
            work: BTreeMap::from([("ike.message".to_owned(), 40)]),
        };
        let text = metrics_text(&status);
        for line in [
            "usher_ike_half_open 3",
            "usher_ike_sessions_total 9",
            "usher_ike_work_total{kind=\"ike.message\"} 40",
            "usher_ike_build_info{version=\"1.2.3\"} 1",
            "usher_ike_pool_used{pool=\"p\"} 2",
            "# EOF",
        ] {
            assert!(text.lines().any(|said| said == line), "{line} is not in:\n{text}");
        }
    }
}

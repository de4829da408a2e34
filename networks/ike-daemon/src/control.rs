//! The control socket and the metrics of a running gateway.

use super::event_handler::SharedLeases;
use super::plane::IkeDataPlane;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use usher_access::pool::PoolUse;
use usher_gateway::{GatewayCommand, GatewayStatus, IkeGateway, IkeSaSelector};
use usher_service::command_sender::parse_number_or_name;
use usher_service::control::ControlService;
use usher_service::metrics::{MetricsExposition, ServiceProbe};
use usher_service::{CommandSender, MachineJobQueue, PendingControlRequests, WorkUnitCounters, control};

/// The gateway's words in messages.
const SERVICE: ControlService = ControlService { name: "gateway", command: "usher ike serve" };

/// A request to a running gateway.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum IkeControlRequest {
    /// Report the status.
    Status,
    /// Initiate a connection.
    Connect {
        /// The name of the connection.
        connection: String,
    },
    /// Rekey IKE_SAs or their CHILD_SAs.
    Rekey {
        /// A selection: `#` and an id of [`IkeStatus`], a connection, an identity, a user or a virtual address.
        /// `None`: all.
        which: Option<String>,
        /// True: rekey their CHILD_SAs instead.
        children: bool,
    },
    /// Delete IKE_SAs.
    Down {
        /// A selection as in [`Self::Rekey`].
        which: Option<String>,
    },
}

/// A reply of a running gateway.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum IkeControlReply {
    /// The status.
    Status(IkeStatus),
    /// A connection was initiated.
    Begun {
        /// The id of its IKE_SA.
        sa: u64,
    },
    /// The command reached these SAs.
    Told {
        /// The number of SAs.
        sas: usize,
    },
    /// The request failed.
    Failed {
        /// The cause and the remedy.
        message: String,
    },
}

/// The status of a gateway.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IkeStatus {
    /// The program's version.
    pub version: String,
    /// The established IKE_SAs.
    pub sas: Vec<IkeSa>,
    /// The number of half-open IKE_SAs.
    pub half_open: usize,
    /// The address pools.
    pub pools: Vec<IkePoolStatus>,
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
    /// Units of work by work label, as studies charge them.
    pub work: BTreeMap<String, u64>,
}

/// An established IKE_SA.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IkeSa {
    /// Its id.
    pub id: u64,
    /// The name of its connection.
    pub connection: String,
    /// The identity of the peer.
    pub identity: String,
    /// The user name in accounting.
    pub user: String,
    /// Acct-Session-Id.
    pub session: String,
    /// This side's role: `initiator` or `responder`.
    pub role: String,
    /// SPIs of initiator and responder, in hexadecimal.
    pub spis: (String, String),
    /// The local address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Its age in seconds.
    pub lasted: u64,
    /// The initiator's virtual addresses.
    pub addresses: Vec<IpAddr>,
    /// Name servers that the peer assigned. This program does not configure the host's resolver.
    pub dns: Vec<IpAddr>,
    /// The domains for these name servers. Empty: all domains.
    pub domains: Vec<String>,
    /// The traffic of its CHILD_SAs, deleted ones included.
    pub carried: ChildSaTraffic,
    /// Its CHILD_SAs.
    pub children: Vec<ChildSa>,
}

/// A CHILD_SA.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChildSa {
    /// The name of its configuration.
    pub name: String,
    /// The SPI of inbound packets, in hexadecimal.
    pub inbound: String,
    /// The SPI of outbound packets, in hexadecimal.
    pub outbound: String,
    /// The local traffic selectors.
    pub local: Vec<String>,
    /// The remote traffic selectors.
    pub remote: Vec<String>,
    /// True if packets are encapsulated in UDP.
    pub encapsulated: bool,
    /// `tunnel` or `transport`.
    pub mode: String,
    /// Its age in seconds.
    pub lasted: u64,
    /// Its traffic.
    pub carried: ChildSaTraffic,
}

/// The traffic of CHILD_SAs: packets, and their octets without ESP's overhead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ChildSaTraffic {
    /// Octets from the peer.
    pub received_octets: u64,
    /// Packets from the peer.
    pub received_packets: u64,
    /// Octets to the peer.
    pub sent_octets: u64,
    /// Packets to the peer.
    pub sent_packets: u64,
}

impl From<usher_esp::plane::SaUsage> for ChildSaTraffic {
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
    /// All addresses.
    pub addresses: u64,
}

/// The path of a gateway's control socket: the configured one, or the default.
#[must_use]
pub fn control_path(path: Option<&Path>) -> PathBuf {
    let loaded = super::load_config(path).ok();
    loaded.map_or_else(|| usher_gateway::config::DEFAULT_CONTROL.into(), |loaded| loaded.file.listen.control)
}

/// Sends a request to a running gateway.
///
/// # Errors
/// A sentence that says why there is no reply.
pub fn request_gateway(path: &Path, request: &IkeControlRequest) -> Result<IkeControlReply, String> {
    SERVICE.request_reply(path, request).map_err(|error| error.to_string())
}

pub(super) fn convert_status(status: &GatewayStatus) -> IkeStatus {
    let hex = |spi: u32| format!("{spi:08x}");
    let child = |child: &usher_gateway::ChildSaStatus| ChildSa {
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
    let sa = |sa: &usher_gateway::IkeSaStatus| IkeSa {
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

pub(super) fn sa_start_reply(result: Result<u64, String>) -> IkeControlReply {
    match result {
        Ok(sa) => IkeControlReply::Begun { sa },
        Err(message) => IkeControlReply::Failed { message },
    }
}

/// Merges the replies of several shards.
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

/// The pending requests to a gateway.
#[derive(Clone)]
pub(super) struct GatewayControlRequests {
    questions: PendingControlRequests<GatewayCommand, IkeControlReply>,
    plane: IkeDataPlane,
    /// The number of shards.
    shards: u8,
    leases: Option<SharedLeases>,
    work: WorkUnitCounters,
    jobs: Arc<MachineJobQueue<IkeGateway>>,
}

impl GatewayControlRequests {
    /// Sends requests by `CommandSender`. The data plane and the work counters complete a status.
    pub(super) fn new(
        command_sender: &CommandSender<GatewayCommand>,
        plane: &IkeDataPlane,
        (shards, leases): (u8, Option<SharedLeases>),
        (work, jobs): (WorkUnitCounters, Arc<MachineJobQueue<IkeGateway>>),
    ) -> Self {
        Self {
            questions: PendingControlRequests::new(command_sender),
            plane: plane.clone(),
            shards,
            leases,
            work,
            jobs,
        }
    }
    /// Delivers the gateway's reply to a pending request.
    pub(super) fn complete_request(&self, token: u64, answer: IkeControlReply) {
        self.questions.deliver_answer(token, answer);
    }

    fn query_gateway_shards(
        &self,
        shards: u8,
        command: impl FnOnce(u64) -> GatewayCommand,
    ) -> IkeControlReply {
        let answers = self.questions.send_request(shards, command);
        answers.and_then(|answers| answers.into_iter().reduce(merge_replies)).unwrap_or_else(|| {
            IkeControlReply::Failed {
                message: "the gateway does not answer; it may be shutting down".to_owned(),
            }
        })
    }

    /// Adds the parts of a status that belong to no single shard.
    fn add_shared_status(&self, mut status: IkeStatus) -> IkeStatus {
        status.counters.extend(self.plane.counters());
        status.work = self.work.work_counts();
        let load = self.jobs.job_load();
        let jobs = [("jobs_refused", load.refused), ("jobs_given_up", load.abandoned)];
        status.counters.extend(jobs.map(|(name, n)| (name.to_owned(), n)));
        if let Some(leases) = &self.leases {
            let leases = leases.lock().unwrap_or_else(PoisonError::into_inner);
            let pool = |pool: PoolUse<'_>| IkePoolStatus {
                name: pool.name.to_owned(),
                used: pool.addresses.0,
                addresses: pool.addresses.1,
            };
            status.pools = leases.pool_usage().map(pool).collect();
        }
        status
    }

    fn handle_request(&self, request: IkeControlRequest) -> IkeControlReply {
        let told =
            |which, command: &dyn Fn(u64, IkeSaSelector) -> GatewayCommand| match parse_sa_selection(which) {
                Ok(which) => self.query_gateway_shards(self.shards, |token| command(token, which)),
                Err(message) => IkeControlReply::Failed { message },
            };
        match request {
            IkeControlRequest::Status => {
                self.plane.report_usage();
                match self.query_gateway_shards(self.shards, |token| GatewayCommand::Status { token }) {
                    IkeControlReply::Status(status) => {
                        IkeControlReply::Status(self.add_shared_status(status))
                    }
                    other => other,
                }
            }
            // Ask one shard only, because the connection must be initiated once.
            IkeControlRequest::Connect { connection } => {
                self.query_gateway_shards(1, |token| GatewayCommand::Connect { token, connection })
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

fn parse_sa_selection(text: Option<String>) -> Result<IkeSaSelector, String> {
    Ok(parse_number_or_name(text, "an IKE_SA", IkeSaSelector::Sa, IkeSaSelector::Named)?
        .unwrap_or(IkeSaSelector::All))
}

/// Starts to answer requests at a path.
pub(super) fn start_control(path: &Path, asked: &GatewayControlRequests) -> io::Result<()> {
    let answers = asked.clone();
    control::serve_requests(
        path,
        |message| IkeControlReply::Failed { message },
        move |request, _| answers.handle_request(request),
    )
}

impl GatewayControlRequests {
    fn request_status(&self) -> Option<IkeStatus> {
        match self.handle_request(IkeControlRequest::Status) {
            IkeControlReply::Status(status) => Some(status),
            _ => None,
        }
    }
}

impl ServiceProbe for GatewayControlRequests {
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
    metrics.add_gauge("sas", "Established IKE_SAs", status.sas.len() as u64);
    metrics.add_gauge("half_open", "Half-open IKE_SAs", status.half_open as u64);
    let children: usize = status.sas.iter().map(|sa| sa.children.len()).sum();
    metrics.add_gauge("children", "CHILD_SAs", children as u64);
    metrics.add_version(&status.version);
    metrics.add_counters(&status.counters, "A counter of usher ike status --json");
    metrics.add_work(&status.work);
    let used = status.pools.iter().map(|pool| (&*pool.name, pool.used));
    metrics.add_pool_gauges("pool_used", "Addresses of a pool in use", used);
    let all = status.pools.iter().map(|pool| (&*pool.name, pool.addresses));
    metrics.add_pool_gauges("pool_addresses", "Addresses of a pool", all);
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

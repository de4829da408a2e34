//! The control socket and the metrics of a running concentrator.

use super::audit::AddressQueryAuditLog;
use super::track::{AddressQuery, AddressQueryReply, SessionLogSettings, look_up_holders};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use usher_concentrator::{AccessConcentratorCommand, ConcentratorStatus, PoolStatus, PppoeSessionSelector};
use usher_service::command_sender::parse_number_or_name;
use usher_service::control::ControlService;
use usher_service::metrics::{MetricsExposition, ServiceProbe};
use usher_service::{CommandSender, PendingControlRequests, control};

/// The concentrator's words in messages.
const SERVICE: ControlService = ControlService { name: "concentrator", command: "usher pppoe serve" };

/// A request to a running concentrator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum PppoeControlRequest {
    /// Report the status.
    Status,
    /// End sessions.
    Disconnect {
        /// A selection: `#` and an id of [`PppoeStatus`], a user, an address, a station or an Acct-Session-Id.
        /// `None`: all.
        which: Option<String>,
    },
    /// Report the holders of an address.
    Who(AddressQuery),
}

/// A reply of a running concentrator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum PppoeControlReply {
    /// The status.
    Status(PppoeStatus),
    /// The command reached these sessions.
    Told {
        /// The number of sessions.
        sessions: usize,
    },
    /// The holders of the address.
    Who(AddressQueryReply),
    /// The request failed.
    Failed {
        /// The cause and the remedy.
        message: String,
    },
}

/// The status of a concentrator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PppoeStatus {
    /// The program's version.
    pub version: String,
    /// The sessions of users.
    pub sessions: Vec<PppoeSessionStatus>,
    /// The number of sessions before authentication has ended.
    pub half_open: usize,
    /// The address pools.
    pub pools: Vec<PppoePoolStatus>,
    /// True while new connections are dropped because the translation log cannot record them.
    #[serde(default)]
    pub connections_held: bool,
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
}

/// A session of a user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PppoeSessionStatus {
    /// Its id.
    pub id: u64,
    /// The user.
    pub user: String,
    /// Acct-Session-Id.
    pub session: String,
    /// The interface.
    pub port: String,
    /// The host's Ethernet address.
    pub station: String,
    /// The SESSION_ID.
    pub number: u16,
    /// Its age in seconds.
    pub lasted: u64,
    /// The largest packet in octets. 0: no address is negotiated yet.
    pub mtu: u16,
    /// The host's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 prefixes.
    pub ipv6: Vec<String>,
    /// The rate limit from the host, bit/s.
    pub rate_up: Option<u64>,
    /// The rate limit to the host, bit/s.
    pub rate_down: Option<u64>,
    /// Its traffic.
    pub carried: SessionTraffic,
}

/// The traffic of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SessionTraffic {
    /// Octets of packets from the host.
    pub octets_in: u64,
    /// Octets of packets to the host.
    pub octets_out: u64,
    /// Packets from the host.
    pub packets_in: u64,
    /// Packets to the host.
    pub packets_out: u64,
    /// Packets of the host with a foreign source address, which were dropped.
    pub spoofed: u64,
    /// Packets beyond the rate limit, which were dropped.
    pub limited: u64,
}

/// An address pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PppoePoolStatus {
    /// Its name.
    pub name: String,
    /// Addresses or prefixes in use.
    pub used: u64,
    /// All addresses or prefixes.
    pub all: u64,
}

/// The path of a concentrator's control socket: the configured one, or the default.
#[must_use]
pub fn control_path(path: Option<&Path>) -> PathBuf {
    let loaded = super::load_config(path).ok();
    let usual = || usher_concentrator::config::DEFAULT_CONTROL.into();
    loaded.map_or_else(usual, |loaded| loaded.file.listen.control)
}

/// Sends a request to a running concentrator.
///
/// # Errors
/// A sentence that says why there is no reply.
pub fn request_concentrator(path: &Path, request: &PppoeControlRequest) -> Result<PppoeControlReply, String> {
    SERVICE.request_reply(path, request).map_err(|error| error.to_string())
}

pub(super) fn convert_status(status: &ConcentratorStatus) -> PppoeStatus {
    let session = |one: &usher_concentrator::SessionStatus| PppoeSessionStatus {
        id: one.id,
        user: one.user.clone(),
        session: one.session.clone(),
        port: one.port.clone(),
        station: one.station.clone(),
        number: one.number,
        lasted: one.lasted.as_secs(),
        mtu: one.mtu,
        ipv4: one.ipv4,
        ipv6: one.ipv6.iter().map(|(prefix, bits)| format!("{prefix}/{bits}")).collect(),
        rate_up: one.rate_up,
        rate_down: one.rate_down,
        carried: SessionTraffic {
            octets_in: one.usage.octets_in,
            octets_out: one.usage.octets_out,
            packets_in: one.usage.packets_in,
            packets_out: one.usage.packets_out,
            spoofed: one.usage.spoofed,
            limited: one.usage.limited,
        },
    };
    let pool =
        |pool: &PoolStatus| PppoePoolStatus { name: pool.name.clone(), used: pool.used, all: pool.all };
    PppoeStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sessions: status.sessions.iter().map(session).collect(),
        half_open: status.outside,
        pools: status.pools.iter().map(pool).collect(),
        connections_held: false,
        counters: status.counters.iter().cloned().collect(),
    }
}

/// The pending requests to a concentrator.
#[derive(Clone)]
pub(super) struct ConcentratorControlRequests {
    questions: PendingControlRequests<AccessConcentratorCommand, PppoeControlReply>,
    tracked: Option<SessionLogSettings>,
    audit: AddressQueryAuditLog,
    extra_counters: NonMachineCounters,
}

/// Counters outside the machine, and the flag that new connections are dropped.
pub(super) type NonMachineCounters = (Arc<dyn Fn() -> Vec<(String, u64)> + Send + Sync>, Arc<AtomicBool>);

impl ConcentratorControlRequests {
    pub(super) fn new(
        command_sender: &CommandSender<AccessConcentratorCommand>,
        tracked: Option<SessionLogSettings>,
        audit: AddressQueryAuditLog,
        beside: NonMachineCounters,
    ) -> Self {
        Self {
            questions: PendingControlRequests::new(command_sender),
            tracked,
            audit,
            extra_counters: beside,
        }
    }
    /// Delivers the concentrator's reply to a pending request.
    pub(super) fn complete_request(&self, token: u64, answer: PppoeControlReply) {
        self.questions.deliver_answer(token, answer);
    }
    fn query_running_concentrator(
        &self,
        command: impl FnOnce(u64) -> AccessConcentratorCommand,
    ) -> PppoeControlReply {
        self.questions.send_request(1, command).and_then(|mut answers| answers.pop()).unwrap_or_else(|| {
            PppoeControlReply::Failed {
                message: "the concentrator does not answer; it may be shutting down".to_owned(),
            }
        })
    }
    fn handle_request(&self, request: PppoeControlRequest, user: Option<u32>) -> PppoeControlReply {
        match request {
            PppoeControlRequest::Status => {
                match self.query_running_concentrator(|token| AccessConcentratorCommand::Status { token }) {
                    PppoeControlReply::Status(mut status) => {
                        status.counters.extend((self.extra_counters.0)());
                        status.connections_held = self.extra_counters.1.load(Ordering::Relaxed);
                        PppoeControlReply::Status(status)
                    }
                    other => other,
                }
            }
            PppoeControlRequest::Disconnect { which } => match parse_session_selector(which) {
                Ok(which) => self.query_running_concentrator(|token| AccessConcentratorCommand::Close {
                    token,
                    selection: which,
                }),
                Err(message) => PppoeControlReply::Failed { message },
            },
            PppoeControlRequest::Who(asking) => match &self.tracked {
                Some(tracked) => match look_up_holders(tracked, &self.audit, &asking, user) {
                    Ok(who) => PppoeControlReply::Who(who),
                    Err(error) => PppoeControlReply::Failed { message: error.to_string() },
                },
                None => PppoeControlReply::Failed {
                    message: "the concentrator has no session log: its configuration has no [tracking]"
                        .to_owned(),
                },
            },
        }
    }
}

fn parse_session_selector(text: Option<String>) -> Result<PppoeSessionSelector, String> {
    Ok(parse_number_or_name(text, "a session", PppoeSessionSelector::Session, PppoeSessionSelector::Named)?
        .unwrap_or(PppoeSessionSelector::All))
}

/// Starts to answer requests at a path.
pub(super) fn start_control(path: &Path, asked: &ConcentratorControlRequests) -> io::Result<()> {
    let answers = asked.clone();
    control::serve_requests(
        path,
        |message| PppoeControlReply::Failed { message },
        move |request, user| answers.handle_request(request, user),
    )
}

impl ConcentratorControlRequests {
    fn request_status(&self) -> Option<PppoeStatus> {
        match self.handle_request(PppoeControlRequest::Status, None) {
            PppoeControlReply::Status(status) => Some(status),
            _ => None,
        }
    }
}

impl ServiceProbe for ConcentratorControlRequests {
    fn expose_metrics(&self) -> Option<String> {
        Some(metrics_text(&self.request_status()?))
    }
    fn is_serving(&self) -> bool {
        self.request_status().is_some()
    }
    fn check_readiness(&self) -> Result<(), String> {
        let status = self.request_status().ok_or("the service does not answer")?;
        match status.connections_held {
            true => {
                Err("new connections of hosts are dropped: the translation log cannot record them".into())
            }
            false => Ok(()),
        }
    }
}

fn metrics_text(status: &PppoeStatus) -> String {
    let mut metrics = MetricsExposition::new("usher_pppoe");
    metrics.add_gauge("open_sessions", "Sessions of authenticated users", status.sessions.len() as u64);
    metrics.add_gauge("half_open", "Sessions before the end of authentication", status.half_open as u64);
    let held = "1 while new connections of hosts are dropped because the translation log cannot record them";
    metrics.add_gauge("connections_held", held, status.connections_held.into());
    metrics.add_counters(&status.counters, "A counter of usher pppoe sessions --json");
    let used = status.pools.iter().map(|pool| (&*pool.name, pool.used));
    metrics.add_pool_gauges("pool_used", "Addresses or prefixes of a pool in use", used);
    let all = status.pools.iter().map(|pool| (&*pool.name, pool.all));
    metrics.add_pool_gauges("pool_size", "Addresses or prefixes of a pool", all);
    metrics.to_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_what_was_counted() {
        let pools = vec![PppoePoolStatus { name: "p".to_owned(), used: 2, all: 254 }];
        let counters = BTreeMap::from([("logins_accepted".to_owned(), 9)]);
        let status = PppoeStatus {
            version: String::new(),
            sessions: Vec::new(),
            half_open: 3,
            pools,
            connections_held: true,
            counters,
        };
        let text = metrics_text(&status);
        for line in [
            "usher_pppoe_half_open 3",
            "usher_pppoe_connections_held 1",
            "usher_pppoe_logins_accepted_total 9",
            "usher_pppoe_pool_used{pool=\"p\"} 2",
            "# EOF",
        ] {
            assert!(text.lines().any(|said| said == line), "{line} is not in:\n{text}");
        }
    }
}

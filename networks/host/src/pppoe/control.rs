//! How a running concentrator is asked: by its control socket, and by Prometheus.

use super::audit::Audit;
use super::track::{Asking, Tracked, Who, lookup};
use crate::metrics::{Exposition, ServiceProbe};
use crate::telling::named;
use crate::{Questions, Telling, control};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use usher_concentrator::{Command, ConcentratorStatus, PoolStatus, Which};

/// What a concentrator is asked.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Request {
    /// How are things?
    Status,
    /// End sessions.
    Disconnect {
        /// `#` and a number of [`Status`], or a user, an address, a station, an Acct-Session-Id; `None`: all.
        which: Option<String>,
    },
    /// Who had an address?
    Who(Asking),
}

/// What a concentrator says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// How things are.
    Status(Status),
    /// So many sessions were told to end.
    Told {
        /// How many.
        sessions: usize,
    },
    /// Who had it.
    Who(Who),
    /// Not done.
    Failed {
        /// Why, and what to do.
        message: String,
    },
}

/// How things are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// Sessions of users.
    pub sessions: Vec<Session>,
    /// Sessions whose hosts are not let in yet.
    pub half_open: usize,
    /// Address pools.
    pub pools: Vec<Pool>,
    /// Connections that hosts begin are dropped, since the log of translations cannot take them.
    #[serde(default)]
    pub connections_held: bool,
    /// What was counted.
    pub counters: BTreeMap<String, u64>,
}

/// A session of a user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Session {
    /// Its number.
    pub id: u64,
    /// Whose it is.
    pub user: String,
    /// Acct-Session-Id.
    pub session: String,
    /// The interface.
    pub port: String,
    /// The host's address there.
    pub station: String,
    /// SESSION_ID.
    pub number: u16,
    /// Seconds that it has been there.
    pub lasted: u64,
    /// Octets of the longest packet; 0: no address is agreed to yet.
    pub mtu: u16,
    /// The host's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 prefixes.
    pub ipv6: Vec<String>,
    /// From the host, bit/s.
    pub rate_up: Option<u64>,
    /// To the host, bit/s.
    pub rate_down: Option<u64>,
    /// What it has carried.
    pub carried: Carried,
}

/// What a session has carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Carried {
    /// Octets of packets from the host.
    pub octets_in: u64,
    /// Octets of packets to the host.
    pub octets_out: u64,
    /// Packets from the host.
    pub packets_in: u64,
    /// Packets to the host.
    pub packets_out: u64,
    /// Packets of the host from addresses that are not its own, which were dropped.
    pub spoofed: u64,
    /// Packets beyond its rate, which were dropped.
    pub limited: u64,
}

/// An address pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Addresses, or prefixes, in use.
    pub used: u64,
    /// In all.
    pub all: u64,
}

/// Where a running concentrator is asked: as a configuration says, or where it is usual.
#[must_use]
pub fn control_path(path: Option<&Path>) -> PathBuf {
    let loaded = super::load(path).ok();
    let usual = || usher_concentrator::config::DEFAULT_CONTROL.into();
    loaded.map_or_else(usual, |loaded| loaded.file.listen.control)
}

/// Asks a running concentrator.
///
/// # Errors
/// A sentence that says why there is no answer.
pub fn request(path: &Path, request: &Request) -> Result<Answer, String> {
    control::asked(path, request, "concentrator", "usher pppoe serve")
}

pub(super) fn status(status: &ConcentratorStatus) -> Status {
    let session = |one: &usher_concentrator::SessionStatus| Session {
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
        carried: Carried {
            octets_in: one.usage.octets_in,
            octets_out: one.usage.octets_out,
            packets_in: one.usage.packets_in,
            packets_out: one.usage.packets_out,
            spoofed: one.usage.spoofed,
            limited: one.usage.limited,
        },
    };
    let pool = |pool: &PoolStatus| Pool { name: pool.name.clone(), used: pool.used, all: pool.all };
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sessions: status.sessions.iter().map(session).collect(),
        half_open: status.outside,
        pools: status.pools.iter().map(pool).collect(),
        connections_held: false,
        counters: status.counters.iter().cloned().collect(),
    }
}

/// Questions that the concentrator has still to answer.
#[derive(Clone)]
pub(super) struct Asked {
    questions: Questions<Command, Answer>,
    tracked: Option<Tracked>,
    audit: Audit,
    beside: Beside,
}

/// What was counted beside the machine, and whether connections are held back.
pub(super) type Beside = (Arc<dyn Fn() -> Vec<(String, u64)> + Send + Sync>, Arc<AtomicBool>);

impl Asked {
    pub(super) fn new(
        telling: &Telling<Command>,
        tracked: Option<Tracked>,
        audit: Audit,
        beside: Beside,
    ) -> Self {
        Self { questions: Questions::new(telling), tracked, audit, beside }
    }
    /// The concentrator has answered.
    pub(super) fn answer(&self, token: u64, answer: Answer) {
        self.questions.answer(token, answer);
    }
    fn ask(&self, command: impl FnOnce(u64) -> Command) -> Answer {
        self.questions.ask(1, command).and_then(|mut answers| answers.pop()).unwrap_or_else(|| {
            Answer::Failed { message: "the concentrator does not answer; it may be ending".to_owned() }
        })
    }
    fn take(&self, request: Request, user: Option<u32>) -> Answer {
        match request {
            Request::Status => match self.ask(|token| Command::Status { token }) {
                Answer::Status(mut status) => {
                    status.counters.extend((self.beside.0)());
                    status.connections_held = self.beside.1.load(Ordering::Relaxed);
                    Answer::Status(status)
                }
                other => other,
            },
            Request::Disconnect { which } => match which_of(which) {
                Ok(which) => self.ask(|token| Command::Close { token, which }),
                Err(message) => Answer::Failed { message },
            },
            Request::Who(asking) => match &self.tracked {
                Some(tracked) => match lookup(tracked, &self.audit, &asking, user) {
                    Ok(who) => Answer::Who(who),
                    Err(error) => Answer::Failed { message: error.to_string() },
                },
                None => Answer::Failed {
                    message: "the concentrator keeps no log of sessions: its configuration has no [tracking]"
                        .to_owned(),
                },
            },
        }
    }
}

fn which_of(text: Option<String>) -> Result<Which, String> {
    Ok(named(text, "a session", Which::Session, Which::Named)?.unwrap_or(Which::All))
}

/// Begins to answer at a path.
pub(super) fn begin(path: &Path, asked: &Asked) -> io::Result<()> {
    let answers = asked.clone();
    control::begin(
        path,
        |message| Answer::Failed { message },
        move |request, user| answers.take(request, user),
    )
}

impl Asked {
    fn ask_status(&self) -> Option<Status> {
        match self.take(Request::Status, None) {
            Answer::Status(status) => Some(status),
            _ => None,
        }
    }
}

impl ServiceProbe for Asked {
    fn expose_metrics(&self) -> Option<String> {
        Some(exposition(&self.ask_status()?))
    }
    fn is_serving(&self) -> bool {
        self.ask_status().is_some()
    }
    fn check_readiness(&self) -> Result<(), String> {
        let status = self.ask_status().ok_or("the service does not answer")?;
        match status.connections_held {
            true => {
                Err("connections that hosts begin are dropped: the log of translations cannot take them"
                    .into())
            }
            false => Ok(()),
        }
    }
}

fn exposition(status: &Status) -> String {
    let mut metrics = Exposition::new("usher_pppoe");
    metrics.gauge("open_sessions", "Sessions of users", status.sessions.len() as u64);
    metrics.gauge("half_open", "Sessions whose hosts are not let in yet", status.half_open as u64);
    let held =
        "1 while connections that hosts begin are dropped, since the log of translations cannot take them";
    metrics.gauge("connections_held", held, status.connections_held.into());
    metrics.counters(&status.counters, "As usher pppoe sessions --json has it");
    let used = status.pools.iter().map(|pool| (&*pool.name, pool.used));
    metrics.pools("pool_used", "Addresses or prefixes of a pool that are in use", used);
    let all = status.pools.iter().map(|pool| (&*pool.name, pool.all));
    metrics.pools("pool_size", "Addresses or prefixes of a pool", all);
    metrics.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_what_was_counted() {
        let pools = vec![Pool { name: "p".to_owned(), used: 2, all: 254 }];
        let counters = BTreeMap::from([("logins_accepted".to_owned(), 9)]);
        let status = Status {
            version: String::new(),
            sessions: Vec::new(),
            half_open: 3,
            pools,
            connections_held: true,
            counters,
        };
        let text = exposition(&status);
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

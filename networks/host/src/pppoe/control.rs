//! How a running concentrator is asked: by its control socket, and by Prometheus.

use super::Telling;
use super::track::{Asking, Audit, Tracked, Who, lookup};
use crate::control;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use usher_concentrator::{Command, ConcentratorStatus, PoolStatus, Which};

/// How long the concentrator may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

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
    control::ask(path, request).map_err(|error| {
        format!(
            "no concentrator is running (nobody answers at {}: {error}); start it with: usher pppoe serve",
            path.display()
        )
    })
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
        counters: status.counters.iter().cloned().collect(),
    }
}

/// Questions that the concentrator has still to answer.
#[derive(Clone)]
pub(super) struct Asked {
    waiting: Arc<Mutex<BTreeMap<u64, Sender<Answer>>>>,
    next: Arc<AtomicU64>,
    telling: Telling,
    tracked: Option<Tracked>,
    audit: Audit,
}

impl Asked {
    pub(super) fn new(telling: &Telling, tracked: Option<Tracked>, audit: Audit) -> Self {
        Self { waiting: Arc::default(), next: Arc::default(), telling: telling.clone(), tracked, audit }
    }
    /// The concentrator has answered.
    pub(super) fn answer(&self, token: u64, answer: Answer) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
        if let Some(waiting) = waiting {
            // It may have given up.
            let _ = waiting.send(answer);
        }
    }
    fn ask(&self, command: impl FnOnce(u64) -> Command) -> Answer {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver): (_, Receiver<Answer>) = channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(token, sender);
        let told = self.telling.tell(command(token));
        let answer = told.then(|| receiver.recv_timeout(PATIENCE).ok()).flatten();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
        answer.unwrap_or_else(|| Answer::Failed {
            message: "the concentrator does not answer; it may be ending".to_owned(),
        })
    }
    fn take(&self, request: Request) -> Answer {
        match request {
            Request::Status => self.ask(|token| Command::Status { token }),
            Request::Disconnect { which } => match which_of(which) {
                Ok(which) => self.ask(|token| Command::Close { token, which }),
                Err(message) => Answer::Failed { message },
            },
            Request::Who(asking) => match &self.tracked {
                Some(tracked) => match lookup(tracked, &self.audit, &asking) {
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
    let Some(text) = text else { return Ok(Which::All) };
    match text.strip_prefix('#') {
        Some(number) => {
            let number =
                number.parse().map_err(|_| format!("\"{text}\" is no number of a session, such as #3"))?;
            Ok(Which::Session(number))
        }
        None => Ok(Which::Named(text)),
    }
}

/// Begins to answer at a path.
pub(super) fn begin(path: &Path, asked: &Asked) -> io::Result<()> {
    let answers = asked.clone();
    control::begin(path, |message| Answer::Failed { message }, move |request| answers.take(request))
}

/// Begins to expose metrics.
pub(super) fn metrics(address: SocketAddr, asked: &Asked) -> io::Result<()> {
    let asked = asked.clone();
    crate::metrics::begin(address, move || match asked.take(Request::Status) {
        Answer::Status(status) => Some(exposition(&status)),
        _ => None,
    })
}

fn exposition(status: &Status) -> String {
    let mut registry = Registry::with_prefix("usher_pppoe");
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let mut gauge = |name: &str, help: &str, value: u64| {
        let gauge: Gauge = Gauge::default();
        gauge.set(number(value));
        registry.register(name, help, gauge);
    };
    gauge("open_sessions", "Sessions of users", status.sessions.len() as u64);
    gauge("half_open", "Sessions whose hosts are not let in yet", status.half_open as u64);
    for (name, value) in &status.counters {
        let counter: Counter = Counter::default();
        counter.inc_by(*value);
        registry.register(name, "As usher pppoe sessions --json has it", counter);
    }
    let (used, all) = (
        Family::<Vec<(String, String)>, Gauge>::default(),
        Family::<Vec<(String, String)>, Gauge>::default(),
    );
    for pool in &status.pools {
        let labels = vec![("pool".to_owned(), pool.name.clone())];
        used.get_or_create(&labels).set(number(pool.used));
        all.get_or_create(&labels).set(number(pool.all));
    }
    registry.register("pool_used", "Addresses or prefixes of a pool that are in use", used);
    registry.register("pool_size", "Addresses or prefixes of a pool", all);
    let mut text = String::new();
    // Writing to a text does not fail.
    let _ = encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_named_by_numbers_and_words() {
        assert_eq!(which_of(None), Ok(Which::All));
        assert_eq!(which_of(Some("#7".to_owned())), Ok(Which::Session(7)));
        assert_eq!(which_of(Some("ann".to_owned())), Ok(Which::Named("ann".to_owned())));
        assert!(which_of(Some("#x".to_owned())).unwrap_err().contains("such as #3"));
    }

    #[test]
    fn metrics_have_what_was_counted() {
        let pools = vec![Pool { name: "p".to_owned(), used: 2, all: 254 }];
        let counters = BTreeMap::from([("logins_accepted".to_owned(), 9)]);
        let status = Status { version: String::new(), sessions: Vec::new(), half_open: 3, pools, counters };
        let text = exposition(&status);
        for line in [
            "usher_pppoe_half_open 3",
            "usher_pppoe_logins_accepted_total 9",
            "usher_pppoe_pool_used{pool=\"p\"} 2",
            "# EOF",
        ] {
            assert!(text.lines().any(|said| said == line), "{line} is not in:\n{text}");
        }
    }
}

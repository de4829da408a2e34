//! How a running gateway is asked: by its control socket, and by Prometheus.

use super::plane::Plane;
use super::say::Shared;
use super::telling::Telling;
use crate::control;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use usher_gateway::{Command, GatewayStatus, Which};

/// How long the gateway may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a gateway is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Request {
    /// How are things?
    Status,
    /// Begin a connection.
    Connect {
        /// Its name.
        connection: String,
    },
    /// Replace IKE_SAs, or their CHILD_SAs, by new ones.
    Rekey {
        /// `#` and a number of [`Status`], or a connection, an identity, a user, an inner address; `None`: all.
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
pub enum Answer {
    /// How things are.
    Status(Status),
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
pub struct Status {
    /// The program's version.
    pub version: String,
    /// IKE_SAs that are established.
    pub sas: Vec<IkeSa>,
    /// IKE_SAs whose initiator has not proved who it is.
    pub half_open: usize,
    /// Address pools.
    pub pools: Vec<Pool>,
    /// What was counted.
    pub counters: BTreeMap<String, u64>,
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
    pub carried: Carried,
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
    /// Seconds that it has been there.
    pub lasted: u64,
    /// What it has carried.
    pub carried: Carried,
}

/// What CHILD_SAs have carried: packets, and octets of those packets without what protects them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Carried {
    /// Octets from the other side.
    pub received_octets: u64,
    /// Packets from the other side.
    pub received_packets: u64,
    /// Octets to the other side.
    pub sent_octets: u64,
    /// Packets to the other side.
    pub sent_packets: u64,
}

impl From<usher_esp::plane::Usage> for Carried {
    fn from(usage: usher_esp::plane::Usage) -> Self {
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
pub struct Pool {
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
    let loaded = super::load(path).ok();
    loaded.map_or_else(|| usher_gateway::config::DEFAULT_CONTROL.into(), |loaded| loaded.file.listen.control)
}

/// Asks a running gateway.
///
/// # Errors
/// A sentence that says why there is no answer.
pub fn request(path: &Path, request: &Request) -> Result<Answer, String> {
    control::ask(path, request).map_err(|error| {
        format!(
            "no gateway is running (nobody answers at {}: {error}); start it with: usher ike serve",
            path.display()
        )
    })
}

pub(super) fn status(status: &GatewayStatus) -> Status {
    let hex = |spi: u32| format!("{spi:08x}");
    let child = |child: &usher_gateway::ChildStatus| ChildSa {
        name: child.name.clone(),
        inbound: hex(child.inbound),
        outbound: hex(child.outbound),
        local: child.local.clone(),
        remote: child.remote.clone(),
        encapsulated: child.encapsulated,
        lasted: child.lasted.as_secs(),
        carried: child.carried.into(),
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
        carried: sa.carried.into(),
        children: sa.children.iter().map(child).collect(),
    };
    let pool = |(name, used, addresses): &(String, u64, u64)| Pool {
        name: name.clone(),
        used: *used,
        addresses: *addresses,
    };
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sas: status.sas.iter().map(sa).collect(),
        half_open: status.half_open,
        pools: status.pools.iter().map(pool).collect(),
        counters: status.counters.iter().cloned().collect(),
    }
}

pub(super) fn begun(result: Result<u64, String>) -> Answer {
    match result {
        Ok(sa) => Answer::Begun { sa },
        Err(message) => Answer::Failed { message },
    }
}

type Waiting = BTreeMap<u64, Sender<Answer>>;

/// What several shards have answered, as one answer.
fn together(all: Answer, one: Answer) -> Answer {
    match (all, one) {
        (Answer::Told { sas }, Answer::Told { sas: more }) => Answer::Told { sas: sas + more },
        (Answer::Status(mut all), Answer::Status(one)) => {
            all.sas.extend(one.sas);
            all.half_open += one.half_open;
            all.pools.extend(one.pools);
            for (name, n) in one.counters {
                *all.counters.entry(name).or_default() += n;
            }
            Answer::Status(all)
        }
        (all, _) => all,
    }
}

/// Questions that the gateway has still to answer.
#[derive(Clone)]
pub(super) struct Asked {
    waiting: Arc<Mutex<Waiting>>,
    next: Arc<AtomicU64>,
    telling: Telling,
    plane: Plane,
    /// How many shards there are.
    shards: u8,
    leases: Option<Shared>,
}

impl Asked {
    /// They go to the gateway that is told so, whose packets these are.
    pub(super) fn new(telling: &Telling, plane: &Plane, shards: u8, leases: Option<Shared>) -> Self {
        let (waiting, next) = (Arc::default(), Arc::default());
        Self { waiting, next, telling: telling.clone(), plane: plane.clone(), shards, leases }
    }
    /// The gateway has answered.
    pub(super) fn answer(&self, token: u64, answer: Answer) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).get(&token).cloned();
        if let Some(waiting) = waiting {
            // It may have given up.
            let _ = waiting.send(answer);
        }
    }

    fn ask(&self, command: impl FnOnce(u64) -> Command) -> Answer {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver): (_, Receiver<Answer>) = channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(token, sender);
        let command = command(token);
        let answers = if matches!(command, Command::Connect { .. }) { 1 } else { self.shards.max(1) };
        let told = self.telling.tell(command);
        let answers: Option<Vec<Answer>> =
            told.then(|| (0..answers).map(|_| receiver.recv_timeout(PATIENCE).ok()).collect()).flatten();
        let answer = answers.and_then(|answers| answers.into_iter().reduce(together));
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
        answer.unwrap_or_else(|| Answer::Failed {
            message: "the gateway does not answer; it may be ending".to_owned(),
        })
    }

    /// With what is not of one shard alone.
    fn whole(&self, mut status: Status) -> Status {
        status.counters.extend(self.plane.counters());
        if let Some(leases) = &self.leases {
            let leases = leases.lock().unwrap_or_else(PoisonError::into_inner);
            let pool =
                |(name, used, addresses): (&str, u64, u64)| Pool { name: name.to_owned(), used, addresses };
            status.pools = leases.used().map(pool).collect();
        }
        status
    }

    fn take(&self, request: Request) -> Answer {
        match request {
            Request::Status => {
                self.plane.report();
                match self.ask(|token| Command::Status { token }) {
                    Answer::Status(status) => Answer::Status(self.whole(status)),
                    other => other,
                }
            }
            Request::Connect { connection } => self.ask(|token| Command::Connect { token, connection }),
            Request::Rekey { which, children } => match which_of(which) {
                Ok(which) => self.ask(|token| Command::Rekey { token, which, children }),
                Err(message) => Answer::Failed { message },
            },
            Request::Down { which } => match which_of(which) {
                Ok(which) => self.ask(|token| Command::Down { token, which }),
                Err(message) => Answer::Failed { message },
            },
        }
    }
}

fn which_of(text: Option<String>) -> Result<Which, String> {
    let Some(text) = text else { return Ok(Which::All) };
    match text.strip_prefix('#') {
        Some(number) => {
            let number =
                number.parse().map_err(|_| format!("\"{text}\" is no number of an IKE_SA, such as #3"))?;
            Ok(Which::Sa(number))
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
    let mut registry = Registry::with_prefix("usher_ike");
    let mut gauge = |name: &str, help: &str, value: u64| {
        let gauge: Gauge = Gauge::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        registry.register(name, help, gauge);
    };
    gauge("sas", "IKE_SAs that are established", status.sas.len() as u64);
    gauge("half_open", "IKE_SAs whose initiator has not proved who it is", status.half_open as u64);
    let children: usize = status.sas.iter().map(|sa| sa.children.len()).sum();
    gauge("children", "CHILD_SAs", children as u64);
    for (name, value) in &status.counters {
        let counter: prometheus_client::metrics::counter::Counter =
            prometheus_client::metrics::counter::Counter::default();
        counter.inc_by(*value);
        registry.register(name, "As usher ike status --json has it", counter);
    }
    let family = prometheus_client::metrics::family::Family::<Vec<(String, String)>, Gauge>::default();
    let of = prometheus_client::metrics::family::Family::<Vec<(String, String)>, Gauge>::default();
    for pool in &status.pools {
        let labels = vec![("pool".to_owned(), pool.name.clone())];
        family.get_or_create(&labels).set(i64::try_from(pool.used).unwrap_or(i64::MAX));
        of.get_or_create(&labels).set(i64::try_from(pool.addresses).unwrap_or(i64::MAX));
    }
    registry.register("pool_used", "Addresses of a pool that are in use", family);
    registry.register("pool_addresses", "Addresses of a pool", of);
    let mut text = String::new();
    // Writing to a text does not fail.
    let _ = encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sas_are_named_by_numbers_and_words() {
        assert_eq!(which_of(None), Ok(Which::All));
        assert_eq!(which_of(Some("#7".to_owned())), Ok(Which::Sa(7)));
        assert_eq!(which_of(Some("home".to_owned())), Ok(Which::Named("home".to_owned())));
        assert!(which_of(Some("#x".to_owned())).unwrap_err().contains("such as #3"));
    }

    #[test]
    fn what_shards_answer_is_one_answer() {
        let told = |sas| Answer::Told { sas };
        assert_eq!(together(told(2), told(3)), told(5));
        let status = |half_open, counted: &[(&str, u64)]| {
            let counters = counted.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
            let (sas, pools) = (Vec::new(), Vec::new());
            Answer::Status(Status { version: String::new(), sas, half_open, pools, counters })
        };
        let whole = together(status(1, &[("a", 1), ("b", 2)]), status(4, &[("b", 3), ("c", 4)]));
        assert_eq!(whole, status(5, &[("a", 1), ("b", 5), ("c", 4)]));
    }

    #[test]
    fn metrics_have_what_was_counted() {
        let pool = Pool { name: "p".to_owned(), used: 2, addresses: 254 };
        let counters = BTreeMap::from([("sessions".to_owned(), 9)]);
        let status =
            Status { version: String::new(), sas: Vec::new(), half_open: 3, pools: vec![pool], counters };
        let text = exposition(&status);
        for line in [
            "usher_ike_half_open 3",
            "usher_ike_sessions_total 9",
            "usher_ike_pool_used{pool=\"p\"} 2",
            "# EOF",
        ] {
            assert!(text.lines().any(|said| said == line), "{line} is not in:\n{text}");
        }
    }
}

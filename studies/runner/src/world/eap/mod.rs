//! The EAP workload: stations that authenticate at NASes, which ask AAA servers.

mod accounts;
mod build;
mod nas;
mod server;
mod station;
mod tls;

pub(super) use build::build;
pub(super) use nas::NasRole;
pub(super) use station::StationRole;

use std::collections::BTreeSet;
use usher_aaa::Method;
use usher_aaa::store::{GroupRows, Op, Row, UserRows};
use usher_aaa_config::Loaded;
use usher_core::{Instant, Rng};
use usher_scenario::model::{Eap, Scenario};

/// The secret that every NAS shares with every RADIUS server in a simulation; captures name it.
pub(super) const SECRET: &str = "usher-simulation";
/// The password of every station.
const PASSWORD: &[u8] = b"correct horse battery staple";
const WRONG_PASSWORD: &[u8] = b"tr0ub4dor&3";

/// The identity of a station of a workload, in whose names it is where there are several.
fn identity(workload: &str, station: u64, realm: &str) -> Vec<u8> {
    named(workload, &format!("station-{station:05}@{realm}")).into_bytes()
}

/// What something of a workload is called.
fn named(workload: &str, name: &str) -> String {
    if workload.is_empty() { name.to_owned() } else { format!("{workload}-{name}") }
}

/// What each station calls itself: by its number, or all by the certificate of their user.
pub(super) fn names(scenario: &Scenario, workload: &str, eap: &Eap, stations: usize) -> Vec<Vec<u8>> {
    let certificates = scenario.certificates.get(workload).filter(|_| eap.method == Method::EapTls);
    let party = certificates.and_then(|of| of.stations.as_ref());
    let of_user = party.and_then(|party| party.name.as_ref());
    let name =
        |i| of_user.map_or_else(|| identity(workload, i, &eap.realm), |name| name.clone().into_bytes());
    (0..stations as u64).map(name).collect()
}

/// The users of the stations as the store of a service has them.
pub(super) fn users(eap: &Eap, names: &[Vec<u8>], loaded: &Loaded) -> Vec<(String, UserRows)> {
    // A checked study has no other lines.
    let rows = |lines: &[String]| -> Vec<Row> {
        lines.iter().filter_map(|line| usher_aaa_config::row(line)).collect()
    };
    let groups = &loaded.file.group;
    let of_group = eap.user.groups.iter().filter_map(|name| {
        let group = groups.iter().find(|group| group.name == *name)?;
        Some(GroupRows { name: name.clone(), check: rows(&group.check), reply: rows(&group.reply) })
    });
    let password = String::from_utf8_lossy(PASSWORD).into_owned();
    let password = Row { attribute: "Cleartext-Password".to_owned(), op: Op::Replace, value: password };
    let user = UserRows {
        check: std::iter::once(password).chain(rows(&eap.user.check)).collect(),
        reply: rows(&eap.user.reply),
        groups: of_group.collect(),
    };
    // Stations may be of one user.
    let names: BTreeSet<&Vec<u8>> = names.iter().collect();
    names.into_iter().map(|name| (String::from_utf8_lossy(name).into_owned(), user.clone())).collect()
}

/// What one station has to do: authentications that fell due, one of them under way.
#[derive(Debug)]
struct Agenda {
    arrivals: super::arrivals::ArrivalProcess,
    rng: Rng,
    /// Share of authentications that use wrong credentials.
    wrong: f64,
    /// How many fell due while the station was busy.
    waiting: u64,
    /// When the one that is under way began.
    busy: Option<Instant>,
}

impl Agenda {
    fn new(arrivals: super::arrivals::ArrivalProcess, rng: Rng, wrong: f64) -> Self {
        Self { arrivals, rng, wrong, waiting: 0, busy: None }
    }

    /// Takes what is due at `now`; answers whether an authentication begins, and with which credentials
    /// (true: the right ones).
    fn begin(&mut self, now: Instant) -> Option<bool> {
        while self.arrivals.take(now) {
            self.waiting += 1;
        }
        if self.busy.is_some() {
            return None;
        }
        self.waiting = self.waiting.checked_sub(1)?;
        self.busy = Some(now);
        Some(self.again())
    }

    /// Whether a try uses the right credentials.
    fn again(&mut self) -> bool {
        !(self.wrong > 0.0 && self.rng.chance(self.wrong))
    }

    /// The authentication under way has ended; answers when it had begun.
    fn end(&mut self, now: Instant) -> Option<Instant> {
        let began = self.busy.take()?;
        self.arrivals.ended(now);
        Some(began)
    }

    /// When something falls due next.
    fn next(&self) -> Option<Instant> {
        self.arrivals.next()
    }
}

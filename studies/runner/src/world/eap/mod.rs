//! The EAP workload: stations that authenticate at NASes, which ask AAA servers.

mod accounts;
mod build;
mod nas;
mod server;
mod station;
mod tls;

pub(super) use build::build;
pub(super) use nas::NasRole;
pub(super) use server::ServerRole;
pub(super) use station::StationRole;

use usher_core::{Instant, Rng};

/// The secret that every NAS shares with every RADIUS server in a simulation; captures name it.
pub(super) const SECRET: &str = "usher-simulation";
/// The password of every station.
const PASSWORD: &[u8] = b"correct horse battery staple";
const WRONG_PASSWORD: &[u8] = b"tr0ub4dor&3";

/// The identity of a station.
fn identity(station: u64, realm: &str) -> Vec<u8> {
    format!("station-{station:05}@{realm}").into_bytes()
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

//! Health of home servers for logs, metrics and status.

use crate::control::HomeServerStatus;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use usher_aaa::proxy::{HomeServerReport, HomeServerType};
use usher_aaa::{AaaServer, HomeServerState};
use usher_radius::client::{ServerCounts, ServerHealth, ServerHealthCause};
use usher_service::TlsServersByAddress;

/// Returns the service of a home server for labels and logs.
pub(crate) const fn home_server_type_label(service: HomeServerType) -> &'static str {
    match service {
        HomeServerType::Authentication => "authentication",
        HomeServerType::Accounting => "accounting",
        HomeServerType::Both => "radsec",
    }
}

/// Returns FreeRADIUS's name of a health.
pub(crate) const fn freeradius_health_name(health: ServerHealth) -> &'static str {
    match health {
        ServerHealth::Alive => "alive",
        ServerHealth::Suspect => "zombie",
        ServerHealth::Dead => "dead",
    }
}

/// Health of the home servers as all shards know it, so that a change is logged once.
#[derive(Clone, Debug, Default)]
pub(crate) struct HomeServerHealth {
    health: Arc<Mutex<BTreeMap<(String, HomeServerType), ServerHealth>>>,
    /// TLS peers, and why one is unreachable.
    peers: TlsServersByAddress,
}

impl HomeServerHealth {
    /// Creates it with the state of the TLS peers.
    pub(crate) fn new(peers: TlsServersByAddress) -> Self {
        Self { health: Arc::default(), peers }
    }
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, HomeServerType), ServerHealth>> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// True if the health has changed.
    fn is_news(&self, state: &HomeServerState) -> bool {
        let before = self.lock().insert((state.name.clone(), state.service), state.health);
        before.unwrap_or_default() != state.health
    }
    /// Starts again after a reload.
    pub(crate) fn reset_logged_health(&self, server: &AaaServer) {
        let reports = server.home_servers().into_iter().flat_map(|homes| homes.reports());
        *self.lock() = reports.map(|r| ((r.name, r.service), r.health)).collect();
    }
    /// Logs a change of a home server's health.
    pub(crate) fn log_health_change(&self, server: &AaaServer, state: &HomeServerState) {
        if !self.is_news(state) {
            return;
        }
        let realms: Vec<&str> = server.realms_of(&state.name).collect();
        let realms = realms.join(", ");
        let mut reports = server.home_servers().into_iter().flat_map(|homes| homes.reports());
        let report = reports.find(|report| report.name == state.name && report.service == state.service);
        let fault = report.and_then(|report| self.peers.tls_peer_fault(report.address));
        let (home_server, service, why) = (
            &state.name,
            home_server_type_label(state.service),
            explain_health(state.cause, fault.as_deref()),
        );
        match state.health {
            ServerHealth::Suspect => tracing::warn!(
                home_server,
                service,
                realms,
                why,
                "a home server does not answer: other servers of its realms come first"
            ),
            ServerHealth::Dead => tracing::warn!(
                home_server,
                service,
                realms,
                why,
                "a home server is dead: it gets no requests until it is back"
            ),
            ServerHealth::Alive if matches!(state.cause, ServerHealthCause::Revived(_)) => tracing::info!(
                home_server,
                service,
                realms,
                why,
                "a dead home server gets requests again: its state is unknown"
            ),
            ServerHealth::Alive => {
                tracing::info!(home_server, service, realms, why, "a home server is back");
            }
        }
    }
}

/// Explains a home server's health. `fault` is the TLS error.
fn explain_health(cause: ServerHealthCause, fault: Option<&str>) -> String {
    let seconds = |d: usher_core::Duration| format!("{:.1} s", d.as_secs_f64());
    match cause {
        ServerHealthCause::Silent(time) => format!("it has not answered for {}", seconds(time)),
        ServerHealthCause::NoConnection => match fault {
            Some(fault) => format!("cannot connect to it: {fault}"),
            None => "cannot connect to it".to_owned(),
        },
        ServerHealthCause::Answered => "it answers".to_owned(),
        ServerHealthCause::Connected => "it is connected".to_owned(),
        ServerHealthCause::Revived(time) => {
            format!("it is tried again after {}: a status check is not possible", seconds(time))
        }
    }
}

/// A home server as the shards see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HomeServerSnapshot {
    pub(crate) address: std::net::SocketAddr,
    /// The worst health of any shard.
    pub(crate) health: ServerHealth,
    pub(crate) request_counts: ServerCounts,
}

/// Home servers by name and service.
pub(crate) type HomeServers = BTreeMap<(String, HomeServerType), HomeServerSnapshot>;

/// Returns the home servers as one shard sees them.
pub(crate) fn view_home_servers(server: &AaaServer) -> HomeServers {
    let reports = server.home_servers().into_iter().flat_map(|homes| homes.reports());
    let of = |r: HomeServerReport| {
        (
            (r.name, r.service),
            HomeServerSnapshot { address: r.address, health: r.health, request_counts: r.counts },
        )
    };
    reports.map(of).collect()
}

/// Merges the view of another shard.
pub(crate) fn merge_home_server_views(all: &mut HomeServers, others: HomeServers) {
    for (key, other) in others {
        match all.get_mut(&key) {
            None => drop(all.insert(key, other)),
            Some(home) => {
                home.health = home.health.max(other.health);
                let (mine, theirs) = (&mut home.request_counts, other.request_counts);
                mine.requests += theirs.requests;
                mine.answers += theirs.answers;
                mine.timeouts += theirs.timeouts;
                mine.timed += theirs.timed;
                mine.round_trips += theirs.round_trips;
            }
        }
    }
}

/// Returns the status of the home servers.
pub(crate) fn home_server_statuses(homes: &HomeServers) -> Vec<HomeServerStatus> {
    let of = |((name, service), home): (&(String, HomeServerType), &HomeServerSnapshot)| HomeServerStatus {
        name: name.clone(),
        service: home_server_type_label(*service).to_owned(),
        address: home.address.to_string(),
        state: freeradius_health_name(home.health).to_owned(),
        requests: home.request_counts.requests,
        timeouts: home.request_counts.timeouts,
        round_trip: (home.request_counts.timed > 0).then(|| {
            home.request_counts.round_trips.as_secs_f64() * 1000.0 / home.request_counts.timed as f64
        }),
    };
    homes.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_state(health: ServerHealth) -> HomeServerState {
        let cause = ServerHealthCause::Answered;
        HomeServerState { name: "h".to_owned(), service: HomeServerType::Authentication, health, cause }
    }

    #[test]
    fn what_several_shards_find_out_is_news_once() {
        let known = HomeServerHealth::default();
        let news = |health| known.is_news(&test_state(health));
        assert!(!news(ServerHealth::Alive), "it was");
        assert!(news(ServerHealth::Suspect) && !news(ServerHealth::Suspect));
        assert!(news(ServerHealth::Dead) && !news(ServerHealth::Dead) && news(ServerHealth::Alive));
    }

    #[test]
    fn what_shards_saw_is_one_sum_and_the_worst_of_states() {
        let home = |health, answers| {
            let round_trips = usher_core::Duration::from_millis(10 * answers);
            let asked =
                ServerCounts { requests: answers + 1, answers, timeouts: 1, timed: answers, round_trips };
            HomeServers::from([(
                ("h".to_owned(), HomeServerType::Both),
                HomeServerSnapshot {
                    address: "192.0.2.1:2083".parse().unwrap(),
                    health,
                    request_counts: asked,
                },
            )])
        };
        let mut all = home(ServerHealth::Alive, 2);
        merge_home_server_views(&mut all, home(ServerHealth::Dead, 3));
        let said = home_server_statuses(&all).remove(0);
        assert_eq!((said.state.as_str(), said.service.as_str()), ("dead", "radsec"));
        assert_eq!((said.requests, said.timeouts, said.round_trip), (7, 2, Some(10.0)));
    }
}

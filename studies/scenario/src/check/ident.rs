//! Checks of the workload `ident` between settings.

use super::{ScenarioCheck, find_repeated, keys};
use crate::model::IdentWorkload;
use usher_ident::{PORT, UserId};
use usher_sim::HostId;

impl ScenarioCheck<'_> {
    pub(super) fn check_ident(&mut self, ident: &IdentWorkload) {
        let at = |key: &str| keys!["workload", key];
        let (clients, server) = (&ident.clients, &ident.server);
        if self.require_endpoint(clients, at("clients")) & self.require_endpoint(server, at("server")) {
            if clients == server {
                self.add_fault(
                    at("server"),
                    format!("\"{server}\" has another role in this workload already"),
                );
            } else {
                self.check_reachability(clients, server, at("server"));
                self.check_ident_service(ident);
            }
        }
        self.require(!ident.users.is_empty(), at("users"), "the workload needs at least one user");
        for (i, user) in ident.users.iter().enumerate() {
            let message =
                format!("\"{}\" is not a user name that an IDENT response can hold", user.escape_debug());
            self.require(UserId::new(user.as_bytes()).is_ok(), keys!["workload", "users", i], message);
        }
        for (i, user) in find_repeated(ident.users.iter().map(String::as_str)) {
            self.add_fault(keys!["workload", "users", i], format!("\"{user}\" is listed twice"));
        }
        self.require_positive(ident.patience, at("patience"));
    }

    /// Checks that the service on the clients' hosts, if any, accepts the server's queries.
    fn check_ident_service(&mut self, ident: &IdentWorkload) {
        let scenario = self.scenario;
        let IdentWorkload { clients, server, .. } = ident;
        let Some(loaded) = scenario.ident_service(clients).filter(|_| !self.members.is_empty()) else {
            return;
        };
        let addresses = scenario.host_addresses();
        let first = |name: &str| scenario.numbered_groups().find(|(n, _)| *n == name).map(|(_, first)| first);
        let (Some(of_clients), Some(of_server)) = (first(clients), first(server)) else { return };
        let reached = |member| {
            let host = HostId(of_clients.0 + member);
            loaded.file.listen.iter().any(|at| at.port() == PORT && addresses.is_reachable_at(host, at.ip()))
        };
        if !(0..scenario.member_count(clients).unwrap_or(0)).all(reached) {
            let message = format!(
                "other hosts cannot reach \"{clients}\" at port {PORT}, which the workload needs: in its \
                 configuration, add an address to listen, such as listen = [\"{}\"]",
                self.wildcard_address(PORT)
            );
            self.add_fault(keys!["hosts", clients, "config"], message);
        }
        let askers = (0..scenario.member_count(server).unwrap_or(0))
            .map(|n| addresses.address_of(HostId(of_server.0 + n)));
        if let Some(asker) =
            askers.into_iter().find(|asker| loaded.config.policy.disclosure_for(*asker).is_none())
        {
            let message = format!(
                "no [[asker]] in the configuration of \"{clients}\" covers {asker}, an address of \"{server}\": add one"
            );
            self.add_fault(keys!["hosts", clients, "config"], message);
        }
    }
}

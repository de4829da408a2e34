//! What is built before a run: hosts with their addresses, and the roles on them.

use super::machine::HostAddress;
use super::role::HostRole;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use usher_core::{Instant, Seed};
use usher_ident_service::SystemUser;
use usher_scenario::model::Scenario;
use usher_sim::{HostAddresses, HostId, SimulationBuilder, TransportConfig};

/// Users by the number of their application.
pub(super) type ApplicationUsers = Rc<RefCell<BTreeMap<u32, SystemUser>>>;

/// What is built before the simulation itself.
pub(super) struct NetworkPlan<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) addresses: Arc<HostAddresses>,
    pub(super) seed: Seed,
    pub(super) builder: SimulationBuilder<Box<dyn HostRole>>,
    pub(super) transports: Arc<TransportConfig>,
    /// Who runs which application, where it is not Usher's own user.
    pub(super) users: ApplicationUsers,
    /// The workload that is being built; one that stands alone is called nothing.
    pub(super) name: &'a str,
    /// How many applications with transports there are.
    pub(super) apps: u32,
    /// Nothing begins from here on.
    pub(super) end: Instant,
}

impl NetworkPlan<'_> {
    /// Where a host is.
    pub(super) fn host_address(&self, host: HostId) -> HostAddress {
        HostAddress { host, addresses: self.addresses.clone() }
    }

    /// Puts a role on a host, with the study's transport settings.
    pub(super) fn add_role(&mut self, host: HostId, role: impl HostRole + 'static) -> u32 {
        let app = self.builder.add_application(
            host,
            Box::new(role) as Box<dyn HostRole>,
            Some(self.transports.clone()),
        );
        self.apps = app + 1;
        if let Some(rate) = self.scenario.transport.tcp.read_rate.get() {
            let piece = self.scenario.transport.tcp.read_size.map(|size| size.bytes() as u32);
            self.builder.read_slowly(app, rate.bits_per_second() / 8, piece);
        }
        app
    }
}

//! The parts of a run before its start: hosts with addresses, and the roles on them.

use super::machine::HostAddress;
use super::role::HostRole;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use usher_core::{Instant, Seed};
use usher_ident_service::ConnectionOwner;
use usher_scenario::model::Scenario;
use usher_sim::{HostAddresses, HostId, SimulationBuilder, TransportConfig};

/// Users by the number of their application.
pub(super) type UserByApplication = Rc<RefCell<BTreeMap<u32, ConnectionOwner>>>;

/// The parts of a run before the simulation itself.
pub(super) struct NetworkPlan<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) addresses: Arc<HostAddresses>,
    pub(super) seed: Seed,
    pub(super) builder: SimulationBuilder<Box<dyn HostRole>>,
    pub(super) transports: Arc<TransportConfig>,
    /// The user of each application that does not run as Usher's own user.
    pub(super) users: UserByApplication,
    /// The name of the workload under construction; empty for a sole workload.
    pub(super) name: &'a str,
    /// Number of applications with transports.
    pub(super) apps: u32,
    /// No dialogue begins from this time on.
    pub(super) end: Instant,
}

impl NetworkPlan<'_> {
    /// Returns the address of a host.
    pub(super) fn host_address(&self, host: HostId) -> HostAddress {
        HostAddress { host, addresses: self.addresses.clone() }
    }

    /// Places a role on a host, with the study's transport settings.
    pub(super) fn add_role(&mut self, host: HostId, role: impl HostRole + 'static) -> u32 {
        let app = self.builder.add_application(
            host,
            Box::new(role) as Box<dyn HostRole>,
            Some(self.transports.clone()),
        );
        self.apps = app + 1;
        if let Some(rate) = self.scenario.transport.tcp.read_rate.get() {
            let piece = self.scenario.transport.tcp.read_size.map(|size| size.bytes() as u32);
            self.builder.limit_read_rate(app, rate.bits_per_second() / 8, piece);
        }
        app
    }
}

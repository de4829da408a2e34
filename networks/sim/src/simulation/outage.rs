//! Hosts that fail and recover.

use super::{SimEvent, Simulation, SimulationScope};
use crate::addr::HostId;
use crate::app::{AppDelivery, Application, ReportObserver};
use usher_core::Instant;

/// A time in which a host is out of order.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostOutage {
    pub(super) host: HostId,
    pub(super) from: Instant,
    pub(super) until: Instant,
}

impl<A: Application, O: ReportObserver<A::Report>, E: SimulationScope> Simulation<A, O, E> {
    pub(super) fn plan_outages(&mut self) {
        for i in 0..self.outages.len() {
            self.schedule_event(self.outages[i].from, SimEvent::Outage(i as u32));
        }
    }

    /// Begins or ends an outage.
    pub(super) fn toggle_outage(&mut self, index: u32) {
        let HostOutage { host, until, .. } = self.outages[index as usize];
        if self.now < until {
            for address in self.host_addresses(host) {
                self.fail_host(address);
            }
            self.schedule_event(until, SimEvent::Outage(index));
        } else if self.hosts[host.0 as usize].down {
            for address in self.host_addresses(host) {
                self.down -= u32::from(std::mem::take(&mut self.hosts[address.0 as usize].down));
            }
            for app in 0..self.apps.len() as u32 {
                if self.apps[app as usize].host == host {
                    self.deliver(app, AppDelivery::Start);
                }
            }
        }
    }

    /// Returns a host and its interfaces.
    fn host_addresses(&self, host: HostId) -> Vec<HostId> {
        let interfaces = self.interfaces.iter().filter(|(_, owner)| **owner == host);
        std::iter::once(host).chain(interfaces.map(|(interface, _)| *interface)).collect()
    }

    fn fail_host(&mut self, host: HostId) {
        let h = &mut self.hosts[host.0 as usize];
        if std::mem::replace(&mut h.down, true) {
            return;
        }
        self.down += 1;
        if let Some(cpu) = h.cpu_mut() {
            cpu.discard_cpu_work();
        }
        self.fail_connections(host);
        self.fail_associations(host);
        for slot in self.apps.iter_mut().filter(|s| s.host == host) {
            slot.deadline = Instant::FAR_FUTURE;
        }
    }
}

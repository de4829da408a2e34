//! Hosts that fail and come back.

use super::{Event, Extent, Simulation};
use crate::addr::HostId;
use crate::app::{Application, Delivery, Observer};
use usher_core::Instant;

/// A time in which a host is out of order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    pub(super) host: HostId,
    pub(super) from: Instant,
    pub(super) until: Instant,
}

impl<A: Application, O: Observer<A::Report>, E: Extent> Simulation<A, O, E> {
    pub(super) fn plan_outages(&mut self) {
        for i in 0..self.outages.len() {
            self.plan(self.outages[i].from, Event::Outage(i as u32));
        }
    }

    /// The beginning of an outage, or its end.
    pub(super) fn outage(&mut self, index: u32) {
        let Outage { host, until, .. } = self.outages[index as usize];
        if self.now < until {
            for address in self.addresses(host) {
                self.fail(address);
            }
            self.plan(until, Event::Outage(index));
        } else if self.hosts[host.0 as usize].down {
            for address in self.addresses(host) {
                self.down -= u32::from(std::mem::take(&mut self.hosts[address.0 as usize].down));
            }
            for app in 0..self.apps.len() as u32 {
                if self.apps[app as usize].host == host {
                    self.deliver(app, Delivery::Start);
                }
            }
        }
    }

    /// A host and its interfaces.
    fn addresses(&self, host: HostId) -> Vec<HostId> {
        let interfaces = self.interfaces.iter().filter(|(_, owner)| **owner == host);
        std::iter::once(host).chain(interfaces.map(|(interface, _)| *interface)).collect()
    }

    fn fail(&mut self, host: HostId) {
        let h = &mut self.hosts[host.0 as usize];
        if std::mem::replace(&mut h.down, true) {
            return;
        }
        self.down += 1;
        if let Some(cpu) = h.cpu_mut() {
            cpu.fail();
        }
        self.fail_connections(host);
        self.fail_associations(host);
        for slot in self.apps.iter_mut().filter(|s| s.host == host) {
            slot.deadline = Instant::FAR_FUTURE;
        }
    }
}

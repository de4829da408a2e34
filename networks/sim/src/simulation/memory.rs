//! Tracks the memory of hosts' connections and associations during a run.

use super::{Simulation, SimulationScope};
use crate::addr::HostId;
use std::collections::BTreeMap;

/// Peak memory of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// TCP connections and SCTP associations, including those in TIME-WAIT.
    pub connections: u32,
    /// Octets of their state and buffers, by
    /// [`TcpConnection::memory_octets`](crate::tcp::TcpConnection::memory_octets) and
    /// [`SctpAssociation::memory_octets`](crate::sctp::SctpAssociation::memory_octets).
    pub octets: u64,
}

/// Whether a number names a connection or an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TransportKind {
    Tcp,
    Sctp,
}

#[derive(Debug, Default)]
struct HostMemoryUse {
    now: MemoryUse,
    most: MemoryUse,
}

/// The current and the peak memory of all hosts with connections.
#[derive(Debug, Default)]
pub(super) struct MemoryTracker {
    hosts: BTreeMap<HostId, HostMemoryUse>,
    /// Octets by the number of the connection; 0 for none. Associations likewise.
    tcp: Vec<u32>,
    sctp: Vec<u32>,
}

impl MemoryTracker {
    /// Records the memory of a connection or association of this host.
    pub(super) fn record_transport_memory(
        &mut self,
        kind: TransportKind,
        index: u32,
        host: HostId,
        octets: u32,
    ) {
        let all = match kind {
            TransportKind::Tcp => &mut self.tcp,
            TransportKind::Sctp => &mut self.sctp,
        };
        let at = index as usize;
        if all.len() <= at {
            all.resize(at + 1, 0);
        }
        let before = std::mem::replace(&mut all[at], octets);
        if before == octets {
            return;
        }
        let of = self.hosts.entry(host).or_default();
        of.now.octets = of.now.octets + u64::from(octets) - u64::from(before);
        of.now.connections = of.now.connections + u32::from(octets > 0) - u32::from(before > 0);
        of.most.octets = of.most.octets.max(of.now.octets);
        of.most.connections = of.most.connections.max(of.now.connections);
    }
}

impl<A: crate::app::Application, O, E: SimulationScope> Simulation<A, O, E> {
    /// Resets the peaks.
    pub fn reset_peaks(&mut self) {
        for of in self.memory.iter_mut().flat_map(|m| m.hosts.values_mut()) {
            of.most = of.now;
        }
    }

    /// Returns a host's peak memory for connections and associations; `None` without
    /// [`SimulationBuilder::follow_memory`](super::SimulationBuilder::follow_memory).
    pub fn peak_memory(&self, host: HostId) -> Option<MemoryUse> {
        self.memory.as_ref().map(|m| m.hosts.get(&host).map_or(MemoryUse::default(), |of| of.most))
    }

    #[inline]
    pub(super) fn record_connection_memory(&mut self, index: u32) {
        if let Some(memory) = &mut self.memory {
            let conn = &self.conns[index as usize];
            let octets = if conn.tcp.is_closed() { 0 } else { conn.tcp.memory_octets() };
            memory.record_transport_memory(TransportKind::Tcp, index, conn.key.local, octets);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_of_all_that_a_host_holds_at_once() {
        let mut memory = MemoryTracker::default();
        let (a, b) = (HostId(0), HostId(1));
        memory.record_transport_memory(TransportKind::Tcp, 0, a, 300);
        memory.record_transport_memory(TransportKind::Sctp, 0, a, 1000);
        memory.record_transport_memory(TransportKind::Tcp, 1, b, 400);
        memory.record_transport_memory(TransportKind::Tcp, 0, a, 500);
        memory.record_transport_memory(TransportKind::Sctp, 0, a, 0);
        memory.record_transport_memory(TransportKind::Tcp, 2, a, 300);
        let of = &memory.hosts[&a];
        assert_eq!(of.most, MemoryUse { connections: 2, octets: 1500 });
        assert_eq!(of.now, MemoryUse { connections: 2, octets: 800 });
        assert_eq!(memory.hosts[&b].most, MemoryUse { connections: 1, octets: 400 });
    }
}

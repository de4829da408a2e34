//! A lab: a topology in namespaces, with its relay.

use crate::error::{ErrorContext, LabError};
use crate::link::{LinkTable, host_mac, relay_interface_index};
use crate::namespace::{self, NetworkNamespace};
use crate::netlink::{LOOPBACK, MAIN, Netlink, VethEnd};
use crate::permission::{NamespacePrivilege, acquire_rights};
use crate::registry::{LabRegistry, LabRegistryEntry, RemovedStaleLabs};
use crate::relay::{RelayHandle, RelayReport};
use crate::sys;
use crate::topology::{LabTopology, LinkEnd};
use netlink_packet_route::route::RouteMetric;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use usher_live::SystemClock;
use usher_sim::{LinkStats, PacketTap};

/// The routing table of a host's first interface. The system's tables are above 252, and 0 is invalid.
const FIRST_TABLE: u8 = 100;

/// A built network. It ends when this is dropped and the threads in its namespaces have ended.
#[derive(Debug)]
pub struct Lab {
    topology: LabTopology,
    rights: NamespacePrivilege,
    hosts: Vec<NetworkNamespace>,
    middle: NetworkNamespace,
    netlink: Mutex<Netlink>,
    record: LabRegistryEntry,
    left: RemovedStaleLabs,
    relay: Option<RelayHandle>,
}

/// The outcome of a run of the relay.
#[derive(Debug)]
pub struct RelayOutcome {
    /// The statistics of each link: from its first end, and from its second.
    pub links: Vec<[LinkStats; 2]>,
    /// The relay's report.
    pub relay: RelayReport,
    /// The tap that received the captured packets.
    pub tap: Option<Box<dyn PacketTap>>,
}

impl Lab {
    /// Builds a network: namespaces, interfaces, addresses and routes. Cleans up after earlier labs first. Packets
    /// are lost until [`start_relay`](Self::start_relay).
    ///
    /// # Errors
    /// [`LabError::Permission`] without the rights of [`acquire_rights`], [`LabError::Topology`] for an impossible
    /// network, [`LabError::Kernel`] for a step that the kernel rejects.
    pub fn build(topology: LabTopology, registry: &LabRegistry) -> Result<Self, LabError> {
        let rights = acquire_rights()?;
        topology.check_buildable()?;
        let left = registry.remove_remains()?;
        // A separate thread enters all the namespaces, so that the caller's thread stays in its own.
        let built = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("lab-setup".to_owned())
                .spawn_scoped(scope, || build_network(&topology))
                .with_context(|| "start a thread".to_owned())?;
            thread.join().map_err(|_| LabError::Ended("setup"))?
        });
        let (hosts, middle, netlink) = built?;
        let record = registry.record_lab(&topology, &hosts)?;
        let netlink = Mutex::new(netlink);
        Ok(Self { topology, rights, hosts, middle, netlink, record, left, relay: None })
    }

    /// Returns the topology.
    #[must_use]
    pub fn topology(&self) -> &LabTopology {
        &self.topology
    }

    /// Returns the kind of rights with which it was built.
    #[must_use]
    pub const fn rights(&self) -> NamespacePrivilege {
        self.rights
    }

    /// Returns the remains of earlier labs that were cleaned up.
    #[must_use]
    pub const fn earlier_remains(&self) -> &RemovedStaleLabs {
        &self.left
    }

    /// Returns a host's namespace.
    ///
    /// # Panics
    /// The host does not exist.
    #[must_use]
    pub fn namespace(&self, host: usize) -> &NetworkNamespace {
        &self.hosts[host]
    }

    /// Returns the name, within its host, of the interface at a link's end. `None`: the link does not exist.
    #[must_use]
    pub fn interface_name(&self, link: usize, end: usize) -> Option<String> {
        let host = self.topology.links.get(link)?.ends.get(end)?.host;
        Some(device_name(self.topology.port_index(host, link)?))
    }

    /// Starts the relay. Time zero of the links is the clock's, and [`ChannelConfig::impaired_from`] counts from it.
    /// Captured packets go to the tap at the topology's capture points, outbound ones as they leave and inbound ones
    /// as they arrive.
    ///
    /// # Errors
    /// [`LabError::Kernel`].
    ///
    /// [`ChannelConfig::impaired_from`]: usher_core::impair::ChannelConfig::impaired_from
    pub fn start_relay(
        &mut self,
        clock: SystemClock,
        tap: Option<Box<dyn PacketTap>>,
    ) -> Result<(), LabError> {
        // A second start is a new run, so the relay with its links is built anew.
        self.relay = None;
        let longest = self.topology.links.iter().map(|l| l.config.mtu as usize).max().unwrap_or(0);
        let links = LinkTable::new(&self.topology);
        self.relay = Some(RelayHandle::start(&self.middle, links, longest + sys::ETHERNET, clock, tap)?);
        Ok(())
    }

    /// Returns the statistics of each link since the start: from its first end, and from its second. All zero without
    /// a relay.
    #[must_use]
    pub fn link_stats(&self) -> Vec<[LinkStats; 2]> {
        let idle = || vec![Default::default(); self.topology.links.len()];
        self.relay.as_ref().map_or_else(idle, RelayHandle::stats)
    }

    /// Returns the relay's report since the start.
    #[must_use]
    pub fn relay_report(&self) -> RelayReport {
        self.relay.as_ref().map(RelayHandle::report).unwrap_or_default()
    }

    /// Plugs the cable at a link's end in or out. The host's interface gains or loses its carrier, with netlink
    /// notifications as for a real one. Addresses and routes stay. Packets that arrive meanwhile are lost and counted
    /// as refused.
    ///
    /// # Errors
    /// [`LabError::Topology`] for a missing link, [`LabError::Kernel`].
    pub fn set_carrier(&self, link: usize, end: usize, in_: bool) -> Result<(), LabError> {
        if link >= self.topology.links.len() || end > 1 {
            return Err(LabError::Topology(format!("link {link} does not exist or has no end {end}")));
        }
        let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
        netlink.set_up(relay_interface_index(link, end), in_)
    }

    /// Starts a program on a host. A variable in its environment marks it. If this process is killed, the next lab or
    /// `usher lab clean` finds and ends the program.
    ///
    /// # Errors
    /// [`LabError::Kernel`].
    ///
    /// # Panics
    /// The host does not exist.
    pub fn spawn_program(&self, host: usize, command: &mut Command) -> Result<Child, LabError> {
        self.record.mark_lab_command(command);
        let program = Path::new(command.get_program()).display().to_string();
        let started = self.hosts[host].run_inside(|| command.spawn())?;
        started.with_context(|| format!("start {program} on {}", self.topology.hosts[host].name))
    }

    /// Stops the relay. Packets in flight are lost. `None`: no relay was running.
    ///
    /// # Errors
    /// [`LabError::Kernel`], [`LabError::Ended`].
    pub fn stop_relay(&mut self) -> Result<Option<RelayOutcome>, LabError> {
        let Some(relay) = self.relay.take() else { return Ok(None) };
        let (links, relay, tap) = relay.stop()?;
        Ok(Some(RelayOutcome { links, relay, tap }))
    }
}

/// Returns the name of a host's interface.
fn device_name(place: usize) -> String {
    format!("eth{place}")
}

/// Returns the index of a host's interface. 1 is the loopback interface.
pub(crate) fn interface_index(place: usize) -> u32 {
    place as u32 + LOOPBACK + 1
}

/// Builds the network in the calling thread, which ends in one of its namespaces.
fn build_network(
    topology: &LabTopology,
) -> Result<(Vec<NetworkNamespace>, NetworkNamespace, Netlink), LabError> {
    let mut hosts = Vec::with_capacity(topology.hosts.len());
    for host in &topology.hosts {
        let namespace = NetworkNamespace::unshare()
            .with_context(|| format!("make a network namespace for {}", host.name))?;
        disable_namespace_autoconfiguration()?;
        hosts.push(namespace);
    }
    let middle =
        NetworkNamespace::unshare().with_context(|| "make a network namespace for the relay".to_owned())?;
    if has_ipv6() {
        namespace::write_sysctl("ipv6/conf/default/disable_ipv6", "1")?;
    }
    let mut netlink = Netlink::open("the relay's namespace")?;
    for (n, link) in topology.links.iter().enumerate() {
        for (end, at) in link.ends.iter().enumerate() {
            let place = topology.port_index(at.host, n).unwrap_or(0);
            let (inner, outer) = (format!("l{n}e{end}"), device_name(place));
            let here = VethEnd {
                name: &inner,
                index: relay_interface_index(n, end),
                mac: [0x02, 1, end as u8, 0, (n >> 8) as u8, n as u8],
            };
            let there =
                VethEnd { name: &outer, index: interface_index(place), mac: host_mac(topology, n, end) };
            netlink.create_veth(&here, &there, &hosts[at.host].descriptor(), link.config.mtu)?;
            netlink.set_up(here.index, true)?;
        }
    }
    let mut furnished = Vec::with_capacity(hosts.len());
    for (host, namespace) in hosts.iter().enumerate() {
        namespace.enter().with_context(|| format!("enter the namespace of {}", topology.hosts[host].name))?;
        furnished.push(configure_host(topology, host)?);
    }
    for (host, netlink) in topology.hosts.iter().zip(&mut furnished) {
        host.addresses.iter().try_for_each(|address| netlink.until_in_use(*address))?;
    }
    Ok((hosts, middle, netlink))
}

fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

/// Silences the calling thread's namespace: no router solicitations, no autoconfigured addresses, no redirects.
/// Accepts packets by another interface than replies use.
fn disable_namespace_autoconfiguration() -> Result<(), LabError> {
    for which in ["all", "default"] {
        for (setting, value) in [("rp_filter", "0"), ("send_redirects", "0"), ("accept_redirects", "0")] {
            namespace::write_sysctl(&format!("ipv4/conf/{which}/{setting}"), value)?;
        }
    }
    if has_ipv6() {
        let none = [
            ("accept_ra", "0"),
            ("router_solicitations", "0"),
            ("dad_transmits", "0"),
            ("addr_gen_mode", "1"),
        ];
        for (setting, value) in none {
            namespace::write_sysctl(&format!("ipv6/conf/default/{setting}"), value)?;
        }
    }
    Ok(())
}

/// Configures a host in the calling thread's namespace: addresses, routes, settings, and interfaces up. Returns its
/// rtnetlink socket.
fn configure_host(topology: &LabTopology, host: usize) -> Result<Netlink, LabError> {
    let spec = &topology.hosts[host];
    let mut netlink = Netlink::open(&format!("the namespace of {}", spec.name))?;
    netlink.set_up(LOOPBACK, true)?;
    for (place, (_, _)) in topology.ports(host).enumerate() {
        let name = device_name(place);
        sys::disable_offloads(&name)
            .with_context(|| format!("switch off the offloads of {name} of {}", spec.name))?;
        netlink.set_up(interface_index(place), true)?;
    }
    for (n, address) in spec.addresses.iter().enumerate() {
        let node = LinkEnd { host, address: n };
        let own = |(link, end): &(usize, usize)| topology.links[*link].ends[*end] == node;
        let ports: Vec<usize> =
            topology.ports(host).enumerate().filter(|(_, port)| own(port)).map(|(place, _)| place).collect();
        netlink.add_address(ports.first().map_or(LOOPBACK, |place| interface_index(*place)), *address)?;
        if topology.forwards_packets(node) {
            enable_forwarding(*address, &ports)?;
        }
        let table = if n == 0 { MAIN } else { FIRST_TABLE + n as u8 };
        for way in topology.egress_routes(node) {
            let out = topology.port_index(host, way.link).unwrap_or(0);
            let metrics = spec.initial_window.map(RouteMetric::InitCwnd);
            let metrics = metrics.into_iter().chain(spec.quick_ack.then_some(RouteMetric::QuickAck(1)));
            netlink.add_route(table, way.to, interface_index(out), *address, metrics.collect())?;
        }
        if n > 0 {
            netlink.add_source_routing_rule(*address, table)?;
        }
    }
    spec.settings.iter().try_for_each(|(path, value)| namespace::write_sysctl(path, value))?;
    Ok(netlink)
}

/// Enables forwarding of packets from these interfaces.
fn enable_forwarding(address: IpAddr, ports: &[usize]) -> Result<(), LabError> {
    if address.is_ipv6() {
        return namespace::write_sysctl("ipv6/conf/all/forwarding", "1");
    }
    ports.iter().try_for_each(|place| {
        namespace::write_sysctl(&format!("ipv4/conf/{}/forwarding", device_name(*place)), "1")
    })
}

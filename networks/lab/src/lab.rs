//! A lab: a topology in namespaces, with its relay.

use crate::error::{Doing, LabError};
use crate::link::{Links, interface, mac};
use crate::namespace::{self, Namespace};
use crate::netlink::{LOOPBACK, MAIN, Netlink, VethEnd};
use crate::permission::{Rights, acquire};
use crate::registry::{Left, Record, Registry};
use crate::relay::{Relay, RelayReport};
use crate::sys;
use crate::topology::{End, Topology};
use netlink_packet_route::route::RouteMetric;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use usher_live::Clock;
use usher_sim::{LinkStats, Tap};

/// The first routing table of an interface: those of the system are above 252, and 0 is none.
const FIRST_TABLE: u8 = 100;

/// A network that was built. It is gone when this is dropped and the threads have ended that entered its namespaces.
#[derive(Debug)]
pub struct Lab {
    topology: Topology,
    rights: Rights,
    hosts: Vec<Namespace>,
    middle: Namespace,
    netlink: Mutex<Netlink>,
    record: Record,
    left: Left,
    relay: Option<Relay>,
}

/// What a run of the relay came to.
#[derive(Debug)]
pub struct Outcome {
    /// What each link did: from its first end, and from its second.
    pub links: Vec<[LinkStats; 2]>,
    /// What the relay did.
    pub relay: RelayReport,
    /// Where captured packets went.
    pub tap: Option<Box<dyn Tap>>,
}

impl Lab {
    /// Builds a network: namespaces, interfaces, addresses and routes. Nothing is relayed yet: packets that are sent before
    /// [`start`](Self::start) are lost. What earlier labs left behind is cleaned up first.
    ///
    /// # Errors
    /// [`LabError::Permission`] without the rights of [`acquire`], [`LabError::Topology`] for a network that cannot be,
    /// [`LabError::Kernel`] for a step that the kernel refuses.
    pub fn build(topology: Topology, registry: &Registry) -> Result<Self, LabError> {
        let rights = acquire()?;
        topology.check()?;
        let left = registry.clean()?;
        // In a thread of its own, which goes through all the namespaces: the caller's stays where it is.
        let built = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("lab-setup".to_owned())
                .spawn_scoped(scope, || build(&topology))
                .doing(|| "start a thread".to_owned())?;
            thread.join().map_err(|_| LabError::Ended("setup"))?
        });
        let (hosts, middle, netlink) = built?;
        let record = registry.record(&topology, &hosts)?;
        let netlink = Mutex::new(netlink);
        Ok(Self { topology, rights, hosts, middle, netlink, record, left, relay: None })
    }

    /// The network that it is.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// By what right it was built.
    #[must_use]
    pub const fn rights(&self) -> Rights {
        self.rights
    }

    /// What earlier labs had left behind.
    #[must_use]
    pub const fn left(&self) -> &Left {
        &self.left
    }

    /// A host's namespace.
    ///
    /// # Panics
    /// Without such a host.
    #[must_use]
    pub fn namespace(&self, host: usize) -> &Namespace {
        &self.hosts[host]
    }

    /// The name, within its host, of the interface at a link's end; `None` for a link that is not there.
    #[must_use]
    pub fn interface(&self, link: usize, end: usize) -> Option<String> {
        let host = self.topology.links.get(link)?.ends.get(end)?.host;
        Some(device(self.topology.place(host, link)?))
    }

    /// Begins to relay. Time zero of the links, from which [`ChannelConfig::impaired_from`] counts, is that of the clock;
    /// captured packets go to the tap, outward as they leave and inward as they arrive, at the capture points of the
    /// topology.
    ///
    /// # Errors
    /// [`LabError::Kernel`].
    ///
    /// [`ChannelConfig::impaired_from`]: usher_core::impair::ChannelConfig::impaired_from
    pub fn start(&mut self, clock: Clock, tap: Option<Box<dyn Tap>>) -> Result<(), LabError> {
        // A second start is a new run: the links begin anew.
        self.relay = None;
        let longest = self.topology.links.iter().map(|l| l.config.mtu as usize).max().unwrap_or(0);
        let links = Links::new(&self.topology);
        self.relay = Some(Relay::start(&self.middle, links, longest + sys::ETHERNET, clock, tap)?);
        Ok(())
    }

    /// What each link did since the start: from its first end, and from its second. All zero where nothing is relayed.
    #[must_use]
    pub fn link_stats(&self) -> Vec<[LinkStats; 2]> {
        let idle = || vec![Default::default(); self.topology.links.len()];
        self.relay.as_ref().map_or_else(idle, Relay::stats)
    }

    /// What the relay did since the start.
    #[must_use]
    pub fn report(&self) -> RelayReport {
        self.relay.as_ref().map(Relay::report).unwrap_or_default()
    }

    /// Plugs the cable at a link's end in or out: its interface has a carrier or none, which its host hears of as of a
    /// real one, by netlink. Addresses and routes stay; what arrives meanwhile is lost and counted as refused.
    ///
    /// # Errors
    /// [`LabError::Topology`] for a link that is not there, [`LabError::Kernel`].
    pub fn plug(&self, link: usize, end: usize, in_: bool) -> Result<(), LabError> {
        if link >= self.topology.links.len() || end > 1 {
            return Err(LabError::Topology(format!("there is no end {end} of a link {link}")));
        }
        let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
        netlink.set_up(interface(link, end), in_)
    }

    /// Starts a program on a host. Should this process be killed, the program is found by what it has in its environment,
    /// and ended by the next lab or `usher lab clean`.
    ///
    /// # Errors
    /// [`LabError::Kernel`].
    ///
    /// # Panics
    /// Without such a host.
    pub fn spawn(&self, host: usize, command: &mut Command) -> Result<Child, LabError> {
        self.record.mark(command);
        let program = Path::new(command.get_program()).display().to_string();
        let started = self.hosts[host].run(|| command.spawn())?;
        started.doing(|| format!("start {program} on {}", self.topology.hosts[host].name))
    }

    /// Ends relaying; what is under way is lost. `None` where nothing was relayed.
    ///
    /// # Errors
    /// [`LabError::Kernel`], [`LabError::Ended`].
    pub fn stop(&mut self) -> Result<Option<Outcome>, LabError> {
        let Some(relay) = self.relay.take() else { return Ok(None) };
        let (links, relay, tap) = relay.stop()?;
        Ok(Some(Outcome { links, relay, tap }))
    }
}

/// The name of a host's interface.
fn device(place: usize) -> String {
    format!("eth{place}")
}

/// The index of a host's interface: 1 is the loopback's.
pub(crate) fn index(place: usize) -> u32 {
    place as u32 + LOOPBACK + 1
}

/// Builds all in the calling thread, which is in some namespace of these afterwards.
fn build(topology: &Topology) -> Result<(Vec<Namespace>, Namespace, Netlink), LabError> {
    let mut hosts = Vec::with_capacity(topology.hosts.len());
    for host in &topology.hosts {
        let namespace =
            Namespace::unshare().doing(|| format!("make a network namespace for {}", host.name))?;
        quiet()?;
        hosts.push(namespace);
    }
    let middle = Namespace::unshare().doing(|| "make a network namespace for the relay".to_owned())?;
    if has_ipv6() {
        namespace::set("ipv6/conf/default/disable_ipv6", "1")?;
    }
    let mut netlink = Netlink::open("the relay's namespace")?;
    for (n, link) in topology.links.iter().enumerate() {
        for (end, at) in link.ends.iter().enumerate() {
            let place = topology.place(at.host, n).unwrap_or(0);
            let (inner, outer) = (format!("l{n}e{end}"), device(place));
            let here = VethEnd {
                name: &inner,
                index: interface(n, end),
                mac: [0x02, 1, end as u8, 0, (n >> 8) as u8, n as u8],
            };
            let there = VethEnd { name: &outer, index: index(place), mac: mac(topology, n, end) };
            netlink.veth(&here, &there, &hosts[at.host].descriptor(), link.config.mtu)?;
            netlink.set_up(here.index, true)?;
        }
    }
    let mut furnished = Vec::with_capacity(hosts.len());
    for (host, namespace) in hosts.iter().enumerate() {
        namespace.enter().doing(|| format!("enter the namespace of {}", topology.hosts[host].name))?;
        furnished.push(furnish(topology, host)?);
    }
    for (host, netlink) in topology.hosts.iter().zip(&mut furnished) {
        host.addresses.iter().try_for_each(|address| netlink.until_in_use(*address))?;
    }
    Ok((hosts, middle, netlink))
}

fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

/// Lets the calling thread's namespace say nothing on its own: no router solicitations, no addresses of the kernel's making,
/// no redirects. Packets may come by another interface than answers go by.
fn quiet() -> Result<(), LabError> {
    for which in ["all", "default"] {
        for (setting, value) in [("rp_filter", "0"), ("send_redirects", "0"), ("accept_redirects", "0")] {
            namespace::set(&format!("ipv4/conf/{which}/{setting}"), value)?;
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
            namespace::set(&format!("ipv6/conf/default/{setting}"), value)?;
        }
    }
    Ok(())
}

/// Gives a host, whose namespace the calling thread is in, its addresses, routes and settings, and switches its interfaces on;
/// the rtnetlink that it was done by.
fn furnish(topology: &Topology, host: usize) -> Result<Netlink, LabError> {
    let spec = &topology.hosts[host];
    let mut netlink = Netlink::open(&format!("the namespace of {}", spec.name))?;
    netlink.set_up(LOOPBACK, true)?;
    for (place, (_, _)) in topology.ports(host).enumerate() {
        let name = device(place);
        sys::offloads_off(&name)
            .doing(|| format!("switch off what {name} of {} leaves to hardware", spec.name))?;
        netlink.set_up(index(place), true)?;
    }
    for (n, address) in spec.addresses.iter().enumerate() {
        let node = End { host, address: n };
        let own = |(link, end): &(usize, usize)| topology.links[*link].ends[*end] == node;
        let ports: Vec<usize> =
            topology.ports(host).enumerate().filter(|(_, port)| own(port)).map(|(place, _)| place).collect();
        netlink.address(ports.first().map_or(LOOPBACK, |place| index(*place)), *address)?;
        if topology.forwards(node) {
            forward(*address, &ports)?;
        }
        let table = if n == 0 { MAIN } else { FIRST_TABLE + n as u8 };
        for way in topology.ways(node) {
            let out = topology.place(host, way.link).unwrap_or(0);
            let metrics = spec.initial_window.map(RouteMetric::InitCwnd);
            let metrics = metrics.into_iter().chain(spec.quick_ack.then_some(RouteMetric::QuickAck(1)));
            netlink.route(table, way.to, index(out), *address, metrics.collect())?;
        }
        if n > 0 {
            netlink.rule(*address, table)?;
        }
    }
    spec.settings.iter().try_for_each(|(path, value)| namespace::set(path, value))?;
    Ok(netlink)
}

/// Lets what comes by these interfaces go on.
fn forward(address: IpAddr, ports: &[usize]) -> Result<(), LabError> {
    if address.is_ipv6() {
        return namespace::set("ipv6/conf/all/forwarding", "1");
    }
    ports
        .iter()
        .try_for_each(|place| namespace::set(&format!("ipv4/conf/{}/forwarding", device(*place)), "1"))
}

//! What carries packets of CHILD_SAs: ESP on a TUN device, or the kernel's ([`usher_ipsec`]), told of each CHILD_SA before whatever
//! depends on it is sent.
//!
//! Port 4500 has two sockets: IKE's, which is bound first, and that of ESP. The kernel looks at the first four octets of each
//! datagram and gives it to the one or the other ([`Config::beside_ike`](usher_ipsec::Config::beside_ike)), so that neither
//! passes through the other's thread.

use super::routing::{Network, Routing, covers, networks, networks_of, own_address, width};
use crate::Telling;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use usher_access::pool::Range;
use usher_config::Prefix;
use usher_core::SecureRng;
use usher_esp::plane::{self, Outer};
use usher_esp::sa::Expiry;
use usher_esp::{Lifetime, Operation, Policy, PolicyId, TrafficSelector};
use usher_gateway::config::{Carry, ConnectionTable, Loaded, PolicyWord, policies};
use usher_gateway::{Command, Event};
use usher_ike::machine::{ChildSa, Event as Ike, SaId};
use usher_ike::payload::ConfigurationAttribute;
use usher_ipsec::{Kernel, KernelConfig, KernelError, Said, StartError, Tunnel};

/// How often the gateway hears what CHILD_SAs have carried: so late a dead other side is noticed at most.
const REPORT: Duration = Duration::from_secs(1);

/// Why nothing carries packets.
#[derive(Debug, thiserror::Error)]
pub enum PlaneError {
    /// There is no device, or no socket.
    #[error(
        "{0}; with carry = \"none\" in [data] CHILD_SAs are negotiated and nothing carries their packets{1}"
    )]
    Tunnel(StartError, &'static str),
    /// The kernel does not do it.
    #[error("{0}; carry = \"tun\" in [data] needs no ESP of the kernel")]
    Kernel(KernelError),
    /// Nothing leads to the device.
    #[error(
        "no routes to {device} can be made: {error}; with routes = false in [data] you make them yourself"
    )]
    Routing {
        /// The device.
        device: String,
        /// Why.
        error: io::Error,
    },
}

/// Which policy is of which connection's which CHILD_SA.
type Names = BTreeMap<PolicyId, (String, String)>;

/// Who does ESP.
#[derive(Debug)]
enum DataPath {
    Tunnel(Tunnel),
    Kernel(Kernel),
}

/// Why it has not done something.
#[derive(Debug, thiserror::Error)]
enum DataPathError {
    #[error(transparent)]
    Tunnel(#[from] plane::OperationError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl DataPath {
    fn device(&self) -> &str {
        match self {
            Self::Tunnel(tunnel) => tunnel.device(),
            Self::Kernel(kernel) => kernel.device(),
        }
    }
    fn apply(&self, operation: Operation) -> Result<(), DataPathError> {
        match self {
            Self::Tunnel(tunnel) => Ok(tunnel.apply(operation)?),
            Self::Kernel(kernel) => Ok(kernel.apply(operation)?),
        }
    }
    /// All policies, in their order, with the addresses between which CHILD_SAs are that they ask for.
    fn policies(
        &self,
        policies: Vec<Policy>,
        ends: &dyn Fn(PolicyId) -> Option<(IpAddr, IpAddr)>,
    ) -> Result<(), DataPathError> {
        match self {
            Self::Tunnel(tunnel) => Ok(tunnel.apply(Operation::Policies(policies))?),
            Self::Kernel(kernel) => Ok(kernel.policies(policies, ends)?),
        }
    }
    fn usages(&self) -> Vec<(u32, plane::Usage)> {
        match self {
            Self::Tunnel(tunnel) => tunnel.usages(),
            Self::Kernel(kernel) => kernel.usages(),
        }
    }
    fn counters(&self) -> Vec<(String, u64)> {
        let named = |prefix: &str, name: &str, n: u64| (format!("{prefix}{name}"), n);
        match self {
            Self::Tunnel(tunnel) => {
                let (esp, tun) = tunnel.counters();
                let esp = esp.iter().map(|(name, n)| named("esp_", name, n));
                esp.chain(tun.iter().map(|(name, n)| named("tun_", name, n))).collect()
            }
            Self::Kernel(kernel) => {
                kernel.counters().into_iter().map(|(name, n)| named("", &name, n)).collect()
            }
        }
    }
}

/// A CHILD_SA that is carried.
#[derive(Debug)]
struct Child {
    sa: SaId,
    /// Networks to which the device is the way on account of it.
    routes: Vec<Way>,
    /// Networks of the other side.
    networks: Vec<Network>,
    /// Where the other side is, where that lies beside the device on account of it.
    past: Option<IpAddr>,
}

/// The longest prefix of networks that an address is of.
fn longest(networks: impl IntoIterator<Item = Network>, address: IpAddr) -> Option<u8> {
    let own = (address, width(address));
    networks.into_iter().filter(|network| covers(*network, own)).map(|network| network.1).max()
}

/// Whether another side's address may lie beside the device: it is no user's, and no network of others has it by as narrow a prefix as
/// this one's own.
fn lies_beside(
    peer: IpAddr,
    pools: &[Network],
    others: impl Iterator<Item = Network>,
    own: &[Network],
) -> bool {
    let of = |networks: &[Network]| longest(networks.iter().copied(), peer);
    of(pools).is_none() && longest(others, peer) <= of(own)
}

/// A network to which the device is the way, and the source of packets that have none.
type Way = (Network, Option<IpAddr>);

/// Everything that is there for packets; gone with it.
#[derive(Debug)]
struct Carrier {
    // It goes before the device by which its routes are.
    routing: Option<Routing>,
    path: DataPath,
    /// Networks to which the device is the way whatever CHILD_SAs there are.
    fixed: Vec<Way>,
    /// Of them, those of pools: nobody's outer address.
    pools: Vec<Network>,
    /// Other sides with whom this one begins, which lie beside the device before there is a CHILD_SA.
    past: Vec<IpAddr>,
    children: BTreeMap<u32, Child>,
    /// What CHILD_SAs of a connection and a name may carry.
    volumes: BTreeMap<(String, String), Lifetime>,
    /// Inner addresses of this side.
    given: BTreeMap<SaId, Vec<IpAddr>>,
}

/// What carries packets, for all who have to do with it.
#[derive(Clone, Debug)]
pub(super) struct Plane {
    carrier: Arc<Mutex<Option<Carrier>>>,
    /// What the tunnel's thread needs: never held while the tunnel is waited for.
    names: Arc<Mutex<Names>>,
    telling: Telling<Command>,
    failed: Arc<AtomicBool>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Plane {
    /// Makes what a configuration says: IKE's own sockets have been bound.
    pub(super) fn start(
        loaded: &Loaded,
        rng: SecureRng,
        telling: &Telling<Command>,
    ) -> Result<Self, PlaneError> {
        let plane = Self {
            carrier: Arc::default(),
            names: Arc::default(),
            telling: telling.clone(),
            failed: Arc::default(),
        };
        let data = &loaded.file.data;
        if data.carry == Carry::None {
            tracing::info!("nothing carries packets of CHILD_SAs: [data] carry is \"none\"");
            return Ok(plane);
        }
        let path = match data.carry {
            Carry::Kernel => plane.kernel(loaded)?,
            _ => plane.tunnel(loaded, rng)?,
        };
        let device = path.device().to_owned();
        let routing = data.routes.then(|| Routing::new(&device, data.table.get(), data.mark.get()));
        let routing =
            routing.transpose().map_err(|error| PlaneError::Routing { device: device.clone(), error })?;
        let (tcp, udp) = match &path {
            DataPath::Tunnel(tunnel) => tunnel.offload(),
            DataPath::Kernel(_) => (true, true),
        };
        let carry = usher_core::Named::name(data.carry);
        tracing::info!(
            interface = device,
            mtu = data.mtu,
            carry,
            tcp,
            udp,
            "packets of CHILD_SAs go by this device"
        );
        *locked(&plane.carrier) = Some(Carrier {
            routing,
            path,
            fixed: Vec::new(),
            pools: Vec::new(),
            past: Vec::new(),
            children: BTreeMap::new(),
            volumes: BTreeMap::new(),
            given: BTreeMap::new(),
        });
        plane.configure(loaded);
        for v6 in [false, true] {
            let pools = &loaded.file.pool;
            if pools.iter().flat_map(|pool| &pool.ranges).any(|range| range.contains(':') == v6) {
                hint_at_forwarding(v6);
            }
        }
        Ok(plane)
    }

    /// ESP of this program.
    fn tunnel(&self, loaded: &Loaded, rng: SecureRng) -> Result<DataPath, PlaneError> {
        let data = &loaded.file.data;
        let listen = &loaded.file.listen;
        let udp = listen.addresses.iter().map(|address| SocketAddr::new(*address, listen.nat_port)).collect();
        let raw = if data.udp_encapsulation { Vec::new() } else { listen.addresses.clone() };
        let config = usher_ipsec::Config {
            device: data.interface.clone(),
            mtu: data.mtu,
            udp,
            raw,
            beside_ike: true,
            mark: Some(data.mark.get()),
            offload: true,
            report: Some(REPORT),
            plane: plane::Config {
                held_packets: usize::try_from(data.held_packets.get()).unwrap_or(usize::MAX),
                patience: data.held_for.get(),
                ..plane::Config::default()
            },
        };
        let tunnel = Tunnel::start(&config, rng, self.hears()).map_err(|error| {
            let raw = matches!(&error, StartError::Bind { what: "ESP", .. });
            let hint = if raw { ", with udp_encapsulation = true no raw socket is needed" } else { "" };
            PlaneError::Tunnel(error, hint)
        });
        Ok(DataPath::Tunnel(tunnel?))
    }

    /// ESP of the kernel.
    fn kernel(&self, loaded: &Loaded) -> Result<DataPath, PlaneError> {
        let (data, listen) = (&loaded.file.data, &loaded.file.listen);
        let config = KernelConfig {
            device: data.interface.clone(),
            mtu: data.mtu,
            udp: listen.addresses.iter().map(|address| SocketAddr::new(*address, listen.nat_port)).collect(),
            mark: data.mark.get(),
            number: data.table.get(),
            networks: |selector| networks(selector.start, selector.end),
        };
        Kernel::start(config, self.hears()).map(DataPath::Kernel).map_err(PlaneError::Kernel)
    }

    /// What the tunnel says, on its thread.
    fn hears(&self) -> Box<dyn FnMut(Said) + Send> {
        let (names, telling, failed) = (self.names.clone(), self.telling.clone(), self.failed.clone());
        Box::new(move |said| {
            let command = match said {
                Said::Plane(plane::Event::Acquire { policy, flow }) => {
                    let Some((connection, child)) = locked(&names).get(&policy).cloned() else { return };
                    tracing::debug!(connection, child, from = %flow.source, to = %flow.destination, protocol = flow.protocol,
                        "a packet needs a CHILD_SA");
                    Command::Acquire { connection, child }
                }
                Said::Plane(plane::Event::Expire { inbound, expiry }) => {
                    let hard = expiry == Expiry::Hard;
                    tracing::info!(
                        inbound = format!("{inbound:08x}"),
                        hard,
                        "a CHILD_SA has carried what it may"
                    );
                    Command::Expired { inbound, hard }
                }
                Said::Plane(plane::Event::Removed { inbound, usage }) => {
                    Command::Removed { inbound, usage: Some(usage) }
                }
                Said::Plane(plane::Event::Roamed { inbound, remote }) => {
                    tracing::info!(inbound = format!("{inbound:08x}"), %remote, "packets come from another address");
                    return;
                }
                Said::Carried(pairs) => Command::Carried(pairs),
                // The kernel gives these to IKE's own socket.
                Said::Ike { .. } => return,
                Said::Failed(why) => {
                    tracing::error!(why, "nothing carries packets any more; this program ends");
                    failed.store(true, Ordering::Relaxed);
                    Command::Leave
                }
            };
            telling.tell(command);
        })
    }

    /// Takes up policies, and what the device is always the way to.
    pub(super) fn configure(&self, loaded: &Loaded) {
        let mut carrier = locked(&self.carrier);
        let Some(carrier) = carrier.as_mut() else { return };
        let peers = &loaded.config.peers;
        let own = |name: &str| {
            let peer = peers.iter().find(|peer| peer.connection.name == name)?;
            Some(peer.local.ip()).filter(|own| !own.is_unspecified())
        };
        let file = &loaded.file;
        let begun: Vec<_> = file
            .connection
            .iter()
            .filter(|table| peers.iter().any(|peer| peer.connection.name == table.name))
            .cloned()
            .collect();
        let all = policies(&file.data, &begun, &own);
        *locked(&self.names) =
            all.iter().filter_map(|(policy, name)| Some((policy.id, name.clone()?))).collect();
        let mut ways: Vec<(Network, Vec<TrafficSelector>)> = Vec::new();
        for (policy, _) in &all {
            let everything = policy
                .remote
                .iter()
                .any(|selector| networks(selector.start, selector.end).iter().any(|n| n.1 == 0));
            // What is to be discarded or forwarded wherever it goes is not led here on that account.
            if everything && policy.action != usher_esp::Action::Protect {
                continue;
            }
            ways.extend(
                networks_of(&policy.remote).into_iter().map(|network| (network, policy.local.clone())),
            );
        }
        // What a connection protects comes to the device while there is no CHILD_SA for it, too, and is dropped there.
        for table in begun.iter().filter(|table| table.unprotected == PolicyWord::Discard) {
            ways.extend(protected(table));
        }
        carrier.pools.clear();
        for pool in &file.pool {
            let users = peers.iter().filter(|peer| peer.pools.contains(&pool.name));
            let local: Vec<TrafficSelector> = users
                .flat_map(|peer| &peer.connection.children)
                .filter_map(|child| child.local.clone())
                .flatten()
                .collect();
            for range in pool.ranges.iter().filter_map(|text| text.parse::<Range>().ok()) {
                let Range::Addresses { first, last } = range else { continue };
                let inner = networks(first, last);
                carrier.pools.extend(&inner);
                ways.extend(inner.into_iter().map(|network| (network, local.clone())));
            }
        }
        carrier.lead(ways);
        carrier.pass(begun.iter().filter_map(|table| table.remote_address).collect());
        let volumes = file.connection.iter().flat_map(|table| {
            table.child.iter().map(|child| ((table.name.clone(), child.name.clone()), child.volume()))
        });
        carrier.volumes = volumes.collect();
        let names = locked(&self.names).clone();
        let ends = |policy| {
            let (name, _) = names.get(&policy)?;
            let peer = peers.iter().find(|peer| peer.connection.name == *name)?;
            Some((peer.local.ip(), peer.remote?.ip()))
        };
        let policies: Vec<Policy> = all.into_iter().map(|(policy, _)| policy).collect();
        if let Err(error) = carrier.path.policies(policies, &ends) {
            tracing::error!(%error, "policies are not as the configuration has them");
        }
    }

    /// Carries out what one event says, before whatever depends on it is sent.
    pub(super) fn carry_out(&self, event: &Event) {
        match event {
            Event::Ike(Ike::Install { sa, child }) => self.install(*sa, child),
            Event::Ike(Ike::Remove { inbound, .. }) => self.remove(*inbound),
            Event::Ike(event) => {
                if let Some(carrier) = locked(&self.carrier).as_mut() {
                    carrier.follow(event);
                }
            }
            Event::Unprotected { connection, child } => {
                let names = locked(&self.names).clone();
                let carrier = locked(&self.carrier);
                let Some(carrier) = carrier.as_ref() else { return };
                let meant = |(of, name): &(String, String)| {
                    of == connection && child.as_ref().is_none_or(|child| child == name)
                };
                for (policy, _) in names.iter().filter(|(_, name)| meant(name)) {
                    let _ = carrier.path.apply(Operation::Abandon(*policy));
                }
            }
            _ => {}
        }
    }

    fn install(&self, sa: SaId, child: &ChildSa) {
        let list = |of: &[TrafficSelector]| of.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let (inbound, outbound) = (format!("{:08x}", child.inbound), format!("{:08x}", child.outbound));
        let (local, remote) = (list(&child.local), list(&child.remote));
        tracing::info!(sa = sa.0, name = child.name, inbound, outbound, local, remote, "CHILD_SA");
        let policy = {
            let name = (&child.connection, &child.name);
            let names = locked(&self.names);
            names.iter().find(|(_, (connection, of))| (connection, of) == name).map(|(policy, _)| *policy)
        };
        let mut carrier = locked(&self.carrier);
        let Some(carrier) = carrier.as_mut() else { return };
        if let Err(error) = carrier.install(sa, child, policy) {
            tracing::error!(%error, "a CHILD_SA cannot be installed, and is ended");
            self.telling.tell(Command::Expired { inbound: child.inbound, hard: true });
        }
    }

    fn remove(&self, inbound: u32) {
        tracing::info!(inbound = format!("{inbound:08x}"), "CHILD_SA removed");
        let mut carrier = locked(&self.carrier);
        let known = carrier.as_mut().is_some_and(|carrier| carrier.remove(inbound));
        // Otherwise the tunnel has told it.
        if !known || self.failed.load(Ordering::Relaxed) {
            self.telling.tell(Command::Removed { inbound, usage: None });
        }
    }

    /// Whether packets are carried.
    pub(super) fn carries(&self) -> bool {
        locked(&self.carrier).is_some()
    }
    /// Whether they were, and are no more.
    pub(super) fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
    /// Has the gateway know what CHILD_SAs have carried by now.
    pub(super) fn report(&self) {
        let usages = locked(&self.carrier).as_ref().map(|carrier| carrier.path.usages());
        if let Some(usages) = usages.filter(|usages| !usages.is_empty()) {
            self.telling.tell(Command::Carried(usages));
        }
    }
    /// What was counted of packets: by the databases (`esp_`), and by the device and its sockets (`tun_`); or by
    /// the kernel (`xfrm`).
    pub(super) fn counters(&self) -> Vec<(String, u64)> {
        locked(&self.carrier).as_ref().map(|carrier| carrier.path.counters()).unwrap_or_default()
    }
    /// The device goes, with whatever was changed of the system's routing.
    pub(super) fn end(&self) {
        let Some(Carrier { routing, path, .. }) = locked(&self.carrier).take() else { return };
        drop(routing);
        if let DataPath::Kernel(kernel) = path
            && let Err(error) = kernel.end()
        {
            tracing::error!(%error, "something of the kernel's ESP is left");
        }
    }
}

/// Tells where the system does not forward what users send to others.
fn hint_at_forwarding(v6: bool) {
    let name = if v6 { "net/ipv6/conf/all/forwarding" } else { "net/ipv4/ip_forward" };
    if std::fs::read_to_string(format!("/proc/sys/{name}")).is_ok_and(|value| value.trim() == "0") {
        tracing::warn!("this system forwards nothing for users: sysctl -w {}=1", name.replace('/', "."));
    }
}

/// Networks to which a connection's traffic is to be protected, with the traffic of this side. Whoever waits for others and lets them have
/// any traffic protects none in particular.
fn protected(table: &ConnectionTable) -> Vec<(Network, Vec<TrafficSelector>)> {
    let selectors = |networks: &[Prefix]| -> Vec<TrafficSelector> {
        networks.iter().filter_map(|one| TrafficSelector::network(one.network, one.bits)).collect()
    };
    let mut ways = Vec::new();
    for child in &table.child {
        let local = child.local.as_deref().map(selectors).unwrap_or_default();
        let remote = match (&child.remote, table.remote_address) {
            (Some(networks), _) => selectors(networks),
            (None, Some(address)) => vec![TrafficSelector::address(address)],
            (None, None) => continue,
        };
        let fits = |network: &Network| network.1 > 0 || table.remote_address.is_some();
        ways.extend(networks_of(&remote).into_iter().filter(fits).map(|network| (network, local.clone())));
    }
    ways
}

/// Tells of what the system refuses; packets may find no way, and everything else goes on.
fn noted(what: &'static str, of: impl std::fmt::Display, done: io::Result<()>) {
    if let Err(error) = done {
        tracing::error!(%of, %error, "{what} cannot be changed");
    }
}

impl Carrier {
    /// Leads the ways that there always are.
    fn lead(&mut self, ways: Vec<(Network, Vec<TrafficSelector>)>) {
        let Some(routing) = &mut self.routing else { return };
        let before = std::mem::take(&mut self.fixed);
        for (network, local) in ways {
            if self.fixed.iter().any(|(fixed, _)| *fixed == network) {
                continue;
            }
            let source = own_address(&local, network.0.is_ipv4()).unwrap_or_default();
            noted("a route", network.0, routing.add_route(network, source));
            self.fixed.push((network, source));
        }
        for (network, source) in before {
            noted("a route", network.0, routing.remove_route(network, source));
        }
    }

    /// Has other sides lie beside the device from now on, whatever is led there: or IKE itself would not get through.
    fn pass(&mut self, past: Vec<IpAddr>) {
        let Some(routing) = &mut self.routing else { return };
        for address in &past {
            noted("a route", address, routing.add_past(*address));
        }
        for address in std::mem::replace(&mut self.past, past) {
            noted("a route", address, routing.remove_past(address));
        }
    }

    fn install(&mut self, sa: SaId, child: &ChildSa, policy: Option<PolicyId>) -> Result<(), DataPathError> {
        let mut pair = child.pair();
        pair.policy = policy;
        let name = (child.connection.clone(), child.name.clone());
        pair.lifetime = self.volumes.get(&name).copied().unwrap_or_default();
        let peer = pair.outer.remote.ip();
        self.path.apply(Operation::Install(pair.into()))?;
        let mut routes = Vec::new();
        let networks = networks_of(&child.remote);
        let past = self.pass_one(sa, peer, &networks);
        if let Some(routing) = &mut self.routing {
            let given = self.given.get(&sa);
            for network in networks.iter().copied() {
                let v4 = network.0.is_ipv4();
                let inner = given.into_iter().flatten().copied().find(|inner| {
                    inner.is_ipv4() == v4 && child.local.iter().any(|of| (of.start..=of.end).contains(inner))
                });
                // A gateway's pool is led as a whole, and so is what packets begin connections for.
                if inner.is_none() && self.fixed.iter().any(|(fixed, _)| covers(*fixed, network)) {
                    continue;
                }
                let source = inner.or_else(|| own_address(&child.local, v4).unwrap_or_default());
                noted("a route", network.0, routing.add_route(network, source));
                routes.push((network, source));
            }
        }
        self.children.insert(child.inbound, Child { sa, routes, networks, past });
        Ok(())
    }

    /// Has another side lie beside the device, unless its address is of somebody else's network: that one's packets would go out in the
    /// clear, whoever says to be there. Gives the address, if it lies there now.
    fn pass_one(&mut self, sa: SaId, peer: IpAddr, own: &[Network]) -> Option<IpAddr> {
        let routing = self.routing.as_mut()?;
        let fixed = self.fixed.iter().map(|(network, _)| *network);
        let others = self.children.values().filter(|child| child.sa != sa);
        let others = others.flat_map(|child| child.routes.iter().map(|(network, _)| *network));
        if !lies_beside(peer, &self.pools, fixed.chain(others), own) {
            return None;
        }
        noted("a route", peer, routing.add_past(peer));
        Some(peer)
    }

    /// True: the tunnel had it, and has told what it has carried.
    fn remove(&mut self, inbound: u32) -> bool {
        let Some(child) = self.children.remove(&inbound) else { return false };
        let removed = self.path.apply(Operation::Remove { inbound }).is_ok();
        if let Some(routing) = &mut self.routing {
            for (network, source) in child.routes {
                noted("a route", network.0, routing.remove_route(network, source));
            }
            if let Some(peer) = child.past {
                noted("a route", peer, routing.remove_past(peer));
            }
        }
        removed
    }

    fn follow(&mut self, event: &Ike) {
        match event {
            Ike::Configured { sa, attributes } => {
                let addresses: Vec<IpAddr> =
                    attributes.iter().filter_map(ConfigurationAttribute::internal_address).collect();
                if let Some(routing) = &mut self.routing {
                    for address in &addresses {
                        noted("an inner address", address, routing.add_address(*address));
                    }
                }
                self.given.insert(*sa, addresses);
            }
            Ike::Moved { sa, path, encapsulated } => {
                let outer = Outer { local: path.local, remote: path.remote, encapsulated: *encapsulated };
                let of_it = |(inbound, child): (&u32, &Child)| (child.sa == *sa).then_some(*inbound);
                for inbound in self.children.iter().filter_map(of_it).collect::<Vec<_>>() {
                    let Some(mut child) = self.children.remove(&inbound) else { continue };
                    let before = child.past.take();
                    child.past = self.pass_one(*sa, path.remote.ip(), &child.networks);
                    self.children.insert(inbound, child);
                    if let (Some(routing), Some(before)) = (&mut self.routing, before) {
                        noted("a route", before, routing.remove_past(before));
                    }
                    if let Err(error) = self.path.apply(Operation::Move { inbound, outer }) {
                        tracing::error!(%error, "a CHILD_SA cannot be moved");
                    }
                }
            }
            Ike::Rekeyed { old, new, .. } => {
                self.children.values_mut().filter(|child| child.sa == *old).for_each(|child| child.sa = *new);
                if let Some(given) = self.given.remove(old) {
                    self.given.insert(*new, given);
                }
            }
            Ike::Ended { sa, .. } => {
                for address in self.given.remove(sa).unwrap_or_default() {
                    if let Some(routing) = &mut self.routing {
                        noted("an inner address", address, routing.remove_address(address));
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_config::Alone;
    use usher_core::WallTime;
    use usher_crypto::tls::WallClock;
    use usher_gateway::config::parse;

    #[test]
    fn what_is_to_be_protected_comes_to_the_device() {
        let ways = |more: &str, child: &str| {
            let text = format!(
                "[[connection]]\nname = \"a\"\nlocal_id = \"a.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\n\
                 secret = \"sixteen octets!!\"\n{more}[[connection.child]]\nname = \"net\"\n{child}"
            );
            let file = parse("ike.toml", &text, &Alone, &WallClock::at(WallTime::UNIX_EPOCH)).unwrap().file;
            let shown = |(network, local): &(Network, Vec<TrafficSelector>)| {
                format!("{}/{} from {}", network.0, network.1, local.len())
            };
            protected(&file.connection[0]).iter().map(shown).collect::<Vec<_>>()
        };
        let begins = "remote_address = \"192.0.2.9\"\n";
        let nets = "local = [\"10.1.0.0/16\"]\nremote = [\"10.2.0.0/16\", \"2001:db8:2::/48\"]\n";
        assert_eq!(ways(begins, nets), ["10.2.0.0/16 from 1", "2001:db8:2::/48 from 1"]);
        assert_eq!(ways("", nets), ways(begins, nets), "who waits for the other side protects as much");
        assert_eq!(ways(begins, ""), ["192.0.2.9/32 from 0"]);
        assert_eq!(ways("", "").len(), 0, "the other side's address is not known");
        let all = "remote = [\"0.0.0.0/0\"]\n";
        assert_eq!(
            (ways(begins, all).len(), ways("", all).len()),
            (1, 0),
            "what others may have is theirs to say"
        );
    }

    #[test]
    fn nobody_takes_others_packets_past_the_device() {
        let net = |text: &str| {
            let (address, bits) = text.split_once('/').unwrap();
            (address.parse().unwrap(), bits.parse().unwrap())
        };
        let pools = [net("10.9.0.0/24")];
        let site = net("10.2.0.0/16");
        let beside =
            |peer: &str, own: &[Network]| lies_beside(peer.parse().unwrap(), &pools, [site].into_iter(), own);
        assert!(beside("192.0.2.7", &[net("10.9.0.7/32")]));
        assert!(!beside("10.9.0.8", &[net("10.9.0.7/32")]), "another user's");
        assert!(!beside("10.9.0.7", &[net("10.9.0.7/32")]), "its own inner one");
        assert!(!beside("10.2.0.5", &[net("10.9.0.7/32")]), "of a network that is protected");
        assert!(!beside("10.2.0.5", &[net("0.0.0.0/0")]), "by whatever it may send besides");
        assert!(beside("10.2.0.5", &[site]), "the gateway of that network itself");
    }
}

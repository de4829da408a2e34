//! The data plane of CHILD_SAs: ESP on a TUN device, or the kernel's ESP ([`usher_ipsec`]). It installs each CHILD_SA
//! before any message that depends on it leaves.
//!
//! Port 4500 has two sockets: IKE's, which is bound first, and ESP's. The kernel inspects the first four octets of a
//! datagram and delivers it to one of them
//! ([`TunnelConfig::shares_ike_port`](usher_ipsec::TunnelConfig::shares_ike_port)). Neither protocol's datagrams pass
//! through the other's thread.

use super::routing::{
    RoutePrefix, RoutingChanges, address_width, covers_network, networks_of, own_address, range_networks,
};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use usher_access::pool::PoolRange;
use usher_config::Prefix;
use usher_core::SecureRng;
use usher_esp::plane::{self, OuterAddresses};
use usher_esp::sa::SaExpiry;
use usher_esp::{IpsecOperation, SaLifetime, SecurityPolicy, SecurityPolicyId, TrafficSelector};
use usher_gateway::config::{
    ConnectionTable, DataPlaneKind, LoadedGatewayConfig, PolicyActionName, build_policies,
};
use usher_gateway::{GatewayCommand, GatewayEvent};
use usher_ike::machine::{ChildSa, IkeEvent, IkeSaId};
use usher_ike::payload::ConfigurationAttribute;
use usher_ipsec::{EspTunnel, KernelEsp, KernelEspConfig, KernelEspError, StartError, TunnelEvent};
use usher_service::CommandSender;

/// The interval of traffic reports to the gateway. It is also the added delay of dead peer detection.
pub(super) const REPORT: Duration = Duration::from_secs(1);

/// Why the data plane cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DataPlaneStartError {
    /// The device or the socket cannot be created.
    #[error("{0}; with mode = \"none\" in [data] the gateway negotiates CHILD_SAs and carries no packets{1}")]
    Tunnel(StartError, &'static str),
    /// The kernel's ESP is unavailable.
    #[error("{0}; mode = \"tun\" in [data] works without the kernel's ESP")]
    Kernel(KernelEspError),
    /// Routes to the device cannot be set.
    #[error("cannot add routes to {device}: {error}; with routes = false in [data] you add them yourself")]
    Routing {
        /// The name of the device.
        device: String,
        /// The cause.
        error: io::Error,
    },
}

/// The connection and CHILD_SA of each policy.
type PolicyOwnerNames = BTreeMap<SecurityPolicyId, (String, String)>;

/// The ESP implementation in use.
#[derive(Debug)]
enum EspBackend {
    Tunnel(EspTunnel),
    Kernel(KernelEsp),
}

/// Why an ESP operation failed.
#[derive(Debug, thiserror::Error)]
enum EspBackendError {
    #[error(transparent)]
    Tunnel(#[from] plane::IpsecOperationError),
    #[error(transparent)]
    Kernel(#[from] KernelEspError),
}

impl EspBackend {
    fn device(&self) -> &str {
        match self {
            Self::Tunnel(tunnel) => tunnel.device_name(),
            Self::Kernel(kernel) => kernel.device_name(),
        }
    }
    fn apply_operation(&self, operation: IpsecOperation) -> Result<(), EspBackendError> {
        match self {
            Self::Tunnel(tunnel) => Ok(tunnel.apply_operation(operation)?),
            Self::Kernel(kernel) => Ok(kernel.apply_operation(operation)?),
        }
    }
    /// Sets all policies in order, with the endpoints of the CHILD_SAs that they request.
    fn set_policies(
        &self,
        policies: Vec<SecurityPolicy>,
        ends: &dyn Fn(SecurityPolicyId) -> Option<(IpAddr, IpAddr)>,
    ) -> Result<(), EspBackendError> {
        match self {
            Self::Tunnel(tunnel) => Ok(tunnel.apply_operation(IpsecOperation::Policies(policies))?),
            Self::Kernel(kernel) => Ok(kernel.set_policies(policies, ends)?),
        }
    }
    fn usages(&self) -> Vec<(u32, plane::SaUsage)> {
        match self {
            Self::Tunnel(tunnel) => tunnel.all_usages(),
            Self::Kernel(kernel) => kernel.all_usages(),
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
                kernel.xfrm_counters().into_iter().map(|(name, n)| named("", &name, n)).collect()
            }
        }
    }
}

/// A CHILD_SA in the data plane.
#[derive(Debug)]
struct InstalledChildSa {
    sa: IkeSaId,
    /// The routes to the device for this CHILD_SA.
    routes: Vec<TunnelDeviceRoute>,
    /// The remote networks.
    networks: Vec<RoutePrefix>,
    /// The peer's address, if this CHILD_SA has it bypass the device.
    past: Option<IpAddr>,
}

/// Returns the longest prefix of the networks that contain an address.
fn longest_prefix(networks: impl IntoIterator<Item = RoutePrefix>, address: IpAddr) -> Option<u8> {
    let own = (address, address_width(address));
    networks.into_iter().filter(|network| covers_network(*network, own)).map(|network| network.1).max()
}

/// True if a peer's address may bypass the device. It must not be in a pool, nor in another peer's network with a
/// prefix as long as this peer's own.
fn may_bypass_device(
    peer: IpAddr,
    pools: &[RoutePrefix],
    others: impl Iterator<Item = RoutePrefix>,
    own: &[RoutePrefix],
) -> bool {
    let of = |networks: &[RoutePrefix]| longest_prefix(networks.iter().copied(), peer);
    of(pools).is_none() && longest_prefix(others, peer) <= of(own)
}

/// A network that is routed to the device, and the source address of packets without one.
type TunnelDeviceRoute = (RoutePrefix, Option<IpAddr>);

/// All state of the data plane. Dropping it removes everything.
#[derive(Debug)]
struct DataPlaneState {
    // This field is declared before the device, so that its routes are removed before the device that they use.
    routing: Option<RoutingChanges>,
    path: EspBackend,
    /// Networks that are always routed to the device.
    fixed: Vec<TunnelDeviceRoute>,
    /// The networks of address pools, which are never a peer's outer address.
    pools: Vec<RoutePrefix>,
    /// Configured peers, which bypass the device even without a CHILD_SA.
    past: Vec<IpAddr>,
    children: BTreeMap<u32, InstalledChildSa>,
    /// The traffic limits of CHILD_SAs, by connection and name.
    volumes: BTreeMap<(String, String), SaLifetime>,
    /// This side's virtual addresses.
    virtual_addresses: BTreeMap<IkeSaId, Vec<IpAddr>>,
}

/// A shared handle of the data plane.
#[derive(Clone, Debug)]
pub(super) struct IkeDataPlane {
    carrier: Arc<Mutex<Option<DataPlaneState>>>,
    /// Shared with the tunnel's thread. No caller holds this lock while it waits for the tunnel.
    names: Arc<Mutex<PolicyOwnerNames>>,
    command_sender: CommandSender<GatewayCommand>,
    failed: Arc<AtomicBool>,
}

fn lock_mutex<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl IkeDataPlane {
    /// Starts the configured data plane. IKE's own sockets are already bound.
    pub(super) fn start(
        loaded: &LoadedGatewayConfig,
        rng: SecureRng,
        command_sender: &CommandSender<GatewayCommand>,
    ) -> Result<Self, DataPlaneStartError> {
        let plane = Self {
            carrier: Arc::default(),
            names: Arc::default(),
            command_sender: command_sender.clone(),
            failed: Arc::default(),
        };
        let data = &loaded.file.data;
        if data.mode == DataPlaneKind::None {
            tracing::info!("no data plane: mode = \"none\" in [data]");
            return Ok(plane);
        }
        let path = match data.mode {
            DataPlaneKind::Kernel => plane.start_kernel_esp(loaded)?,
            _ => plane.start_tunnel(loaded, rng)?,
        };
        let device = path.device().to_owned();
        let routing = data.routes.then(|| RoutingChanges::new(&device, data.table.get(), data.mark.get()));
        let routing = routing
            .transpose()
            .map_err(|error| DataPlaneStartError::Routing { device: device.clone(), error })?;
        let (tcp, udp) = match &path {
            EspBackend::Tunnel(tunnel) => tunnel.offloaded_protocols(),
            EspBackend::Kernel(_) => (true, true),
        };
        let mode = usher_core::NamedValue::name(data.mode);
        tracing::info!(interface = device, mtu = data.mtu, mode, tcp, udp, "data plane of CHILD_SAs");
        *lock_mutex(&plane.carrier) = Some(DataPlaneState {
            routing,
            path,
            fixed: Vec::new(),
            pools: Vec::new(),
            past: Vec::new(),
            children: BTreeMap::new(),
            volumes: BTreeMap::new(),
            virtual_addresses: BTreeMap::new(),
        });
        plane.apply_config(loaded);
        for v6 in [false, true] {
            let pools = &loaded.file.pool;
            if pools.iter().flat_map(|pool| &pool.ranges).any(|range| range.contains(':') == v6) {
                warn_if_not_forwarding(v6);
            }
        }
        Ok(plane)
    }

    /// Starts ESP on a TUN device.
    fn start_tunnel(
        &self,
        loaded: &LoadedGatewayConfig,
        rng: SecureRng,
    ) -> Result<EspBackend, DataPlaneStartError> {
        let data = &loaded.file.data;
        let listen = &loaded.file.listen;
        let udp = listen.addresses.iter().map(|address| SocketAddr::new(*address, listen.nat_port)).collect();
        let raw = if data.udp_encapsulation { Vec::new() } else { listen.addresses.clone() };
        let config = usher_ipsec::TunnelConfig {
            device: data.interface.clone(),
            mtu: data.mtu,
            udp,
            raw,
            shares_ike_port: true,
            mark: Some(data.mark.get()),
            offload: true,
            report: Some(REPORT),
            plane: plane::EspDataPlaneConfig {
                max_queued_packets: usize::try_from(data.queued_packets.get()).unwrap_or(usize::MAX),
                queue_timeout: data.queue_time.get(),
                ..plane::EspDataPlaneConfig::default()
            },
        };
        let tunnel = EspTunnel::start(&config, rng, self.event_handler()).map_err(|error| {
            let raw = matches!(&error, StartError::Bind { what: "ESP", .. });
            let hint = if raw { "; with udp_encapsulation = true it needs no raw socket" } else { "" };
            DataPlaneStartError::Tunnel(error, hint)
        });
        Ok(EspBackend::Tunnel(tunnel?))
    }

    /// Starts the kernel's ESP.
    fn start_kernel_esp(&self, loaded: &LoadedGatewayConfig) -> Result<EspBackend, DataPlaneStartError> {
        let (data, listen) = (&loaded.file.data, &loaded.file.listen);
        let config = KernelEspConfig {
            device: data.interface.clone(),
            mtu: data.mtu,
            udp: listen.addresses.iter().map(|address| SocketAddr::new(*address, listen.nat_port)).collect(),
            mark: data.mark.get(),
            number: data.table.get(),
            networks: |selector| range_networks(selector.start, selector.end),
        };
        KernelEsp::start(config, self.event_handler())
            .map(EspBackend::Kernel)
            .map_err(DataPlaneStartError::Kernel)
    }

    /// Returns the handler of tunnel events, which runs on the tunnel's thread.
    fn event_handler(&self) -> Box<dyn FnMut(TunnelEvent) + Send> {
        let (names, command_sender, failed) =
            (self.names.clone(), self.command_sender.clone(), self.failed.clone());
        Box::new(move |said| {
            let command = match said {
                TunnelEvent::Plane(plane::EspEvent::Acquire { policy, flow }) => {
                    let Some((connection, child)) = lock_mutex(&names).get(&policy).cloned() else { return };
                    tracing::debug!(connection, child, from = %flow.source, to = %flow.destination,
                        protocol = flow.protocol, "a packet needs a CHILD_SA");
                    GatewayCommand::Acquire { connection, child }
                }
                TunnelEvent::Plane(plane::EspEvent::Expire { inbound, expiry }) => {
                    let hard = expiry == SaExpiry::Hard;
                    tracing::info!(
                        inbound = format!("{inbound:08x}"),
                        hard,
                        "a CHILD_SA has reached its volume limit"
                    );
                    GatewayCommand::Expired { inbound, hard }
                }
                TunnelEvent::Plane(plane::EspEvent::Removed { inbound, usage }) => {
                    GatewayCommand::Removed { inbound, usage: Some(usage) }
                }
                TunnelEvent::Plane(plane::EspEvent::Roamed { inbound, remote }) => {
                    tracing::info!(inbound = format!("{inbound:08x}"), %remote,
                        "packets of the peer arrive from a new address");
                    return;
                }
                TunnelEvent::UsageReport(pairs) => GatewayCommand::UsageReport(pairs),
                // The kernel delivers IKE packets to IKE's own socket, so the tunnel's copy is ignored.
                TunnelEvent::Ike { .. } => return,
                TunnelEvent::Failed(why) => {
                    tracing::error!(why, "the data plane has failed; shutting down");
                    failed.store(true, Ordering::Relaxed);
                    GatewayCommand::Leave
                }
            };
            command_sender.send_command(command);
        })
    }

    /// Applies the policies and the fixed routes of a configuration.
    pub(super) fn apply_config(&self, loaded: &LoadedGatewayConfig) {
        let mut carrier = lock_mutex(&self.carrier);
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
        let all = build_policies(&file.data, &begun, &own);
        *lock_mutex(&self.names) =
            all.iter().filter_map(|(policy, name)| Some((policy.id, name.clone()?))).collect();
        let mut ways: Vec<(RoutePrefix, Vec<TrafficSelector>)> = Vec::new();
        for (policy, _) in &all {
            let everything = policy
                .remote
                .iter()
                .any(|selector| range_networks(selector.start, selector.end).iter().any(|n| n.1 == 0));
            // A policy of discard or bypass for any destination needs no route to the device.
            if everything && policy.action != usher_esp::PolicyAction::Protect {
                continue;
            }
            ways.extend(
                networks_of(&policy.remote).into_iter().map(|network| (network, policy.local.clone())),
            );
        }
        // Without a CHILD_SA, protected traffic must also reach the device, which drops it.
        for table in begun.iter().filter(|table| table.without_child_sa == PolicyActionName::Discard) {
            ways.extend(protected_networks(table));
        }
        carrier.pools.clear();
        for pool in &file.pool {
            let users = peers.iter().filter(|peer| peer.pools.contains(&pool.name));
            let local: Vec<TrafficSelector> = users
                .flat_map(|peer| &peer.connection.children)
                .filter_map(|child| child.local.clone())
                .flatten()
                .collect();
            for range in pool.ranges.iter().filter_map(|text| text.parse::<PoolRange>().ok()) {
                let PoolRange::Addresses { first, last } = range else { continue };
                let inner = range_networks(first, last);
                carrier.pools.extend(&inner);
                ways.extend(inner.into_iter().map(|network| (network, local.clone())));
            }
        }
        carrier.set_fixed_routes(ways);
        carrier.replace_peer_bypasses(begun.iter().filter_map(|table| table.remote_address).collect());
        let volumes = file.connection.iter().flat_map(|table| {
            table
                .child
                .iter()
                .map(|child| ((table.name.clone(), child.name.clone()), child.volume_lifetime()))
        });
        carrier.volumes = volumes.collect();
        let names = lock_mutex(&self.names).clone();
        let ends = |policy| {
            let (name, _) = names.get(&policy)?;
            let peer = peers.iter().find(|peer| peer.connection.name == *name)?;
            Some((peer.local.ip(), peer.remote?.ip()))
        };
        let policies: Vec<SecurityPolicy> = all.into_iter().map(|(policy, _)| policy).collect();
        if let Err(error) = carrier.path.set_policies(policies, &ends) {
            tracing::error!(%error, "cannot apply the security policies");
        }
    }

    /// Carries out an event of the gateway before any message that depends on it leaves.
    pub(super) fn carry_out(&self, event: &GatewayEvent) {
        match event {
            GatewayEvent::Ike(IkeEvent::Install { sa, child }) => self.install_child(*sa, child),
            GatewayEvent::Ike(IkeEvent::Remove { inbound, .. }) => self.remove_child(*inbound),
            GatewayEvent::Ike(event) => {
                if let Some(carrier) = lock_mutex(&self.carrier).as_mut() {
                    carrier.apply_event_to_routes(event);
                }
            }
            GatewayEvent::Unprotected { connection, child } => {
                let names = lock_mutex(&self.names).clone();
                let carrier = lock_mutex(&self.carrier);
                let Some(carrier) = carrier.as_ref() else { return };
                let meant = |(of, name): &(String, String)| {
                    of == connection && child.as_ref().is_none_or(|child| child == name)
                };
                for (policy, _) in names.iter().filter(|(_, name)| meant(name)) {
                    let _ = carrier.path.apply_operation(IpsecOperation::Abandon(*policy));
                }
            }
            _ => {}
        }
    }

    fn install_child(&self, sa: IkeSaId, child: &ChildSa) {
        let list = |of: &[TrafficSelector]| of.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let (inbound, outbound) = (format!("{:08x}", child.inbound), format!("{:08x}", child.outbound));
        let (local, remote) = (list(&child.local), list(&child.remote));
        tracing::info!(sa = sa.0, name = child.name, inbound, outbound, local, remote, "CHILD_SA");
        let policy = {
            let name = (&child.connection, &child.name);
            let names = lock_mutex(&self.names);
            names.iter().find(|(_, (connection, of))| (connection, of) == name).map(|(policy, _)| *policy)
        };
        let mut carrier = lock_mutex(&self.carrier);
        let Some(carrier) = carrier.as_mut() else { return };
        if let Err(error) = carrier.install_child(sa, child, policy) {
            tracing::error!(%error, "cannot install a CHILD_SA; deleting it");
            self.command_sender.send_command(GatewayCommand::Expired { inbound: child.inbound, hard: true });
        }
    }

    fn remove_child(&self, inbound: u32) {
        tracing::info!(inbound = format!("{inbound:08x}"), "CHILD_SA removed");
        let mut carrier = lock_mutex(&self.carrier);
        let known = carrier.as_mut().is_some_and(|carrier| carrier.remove_child(inbound));
        // If the tunnel knew the pair and works, it has already reported the usage.
        if !known || self.failed.load(Ordering::Relaxed) {
            self.command_sender.send_command(GatewayCommand::Removed { inbound, usage: None });
        }
    }

    /// True if the data plane carries packets.
    pub(super) fn is_active(&self) -> bool {
        lock_mutex(&self.carrier).is_some()
    }
    /// True if the data plane has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
    /// Reports the current traffic of the CHILD_SAs to the gateway.
    pub(super) fn report_usage(&self) {
        let usages = lock_mutex(&self.carrier).as_ref().map(|carrier| carrier.path.usages());
        if let Some(usages) = usages.filter(|usages| !usages.is_empty()) {
            self.command_sender.send_command(GatewayCommand::UsageReport(usages));
        }
    }
    /// The packet counters: of the databases (`esp_`), and of the device and its sockets (`tun_`). With kernel ESP,
    /// the kernel's (`xfrm`).
    pub(super) fn counters(&self) -> Vec<(String, u64)> {
        lock_mutex(&self.carrier).as_ref().map(|carrier| carrier.path.counters()).unwrap_or_default()
    }
    /// Removes the device and all routing changes.
    pub(super) fn shut_down(&self) {
        let Some(DataPlaneState { routing, path, .. }) = lock_mutex(&self.carrier).take() else { return };
        drop(routing);
        if let EspBackend::Kernel(kernel) = path
            && let Err(error) = kernel.stop()
        {
            tracing::error!(%error, "cannot remove all state of the kernel's ESP");
        }
    }
}

/// Warns if the system does not forward packets of users to other hosts.
fn warn_if_not_forwarding(v6: bool) {
    let name = if v6 { "net/ipv6/conf/all/forwarding" } else { "net/ipv4/ip_forward" };
    if std::fs::read_to_string(format!("/proc/sys/{name}")).is_ok_and(|value| value.trim() == "0") {
        tracing::warn!(
            "this system does not forward packets for users; to enable forwarding: sysctl -w {}=1",
            name.replace('/', ".")
        );
    }
}

/// Returns the remote networks that a connection protects, each with the local traffic selectors. A responder that
/// accepts any traffic protects no network in particular.
fn protected_networks(table: &ConnectionTable) -> Vec<(RoutePrefix, Vec<TrafficSelector>)> {
    let selectors = |networks: &[Prefix]| -> Vec<TrafficSelector> {
        networks.iter().filter_map(|one| TrafficSelector::from_network(one.network, one.bits)).collect()
    };
    let mut ways = Vec::new();
    for child in &table.child {
        let local = child.local.as_deref().map(selectors).unwrap_or_default();
        let remote = match (&child.remote, table.remote_address) {
            (Some(networks), _) => selectors(networks),
            (None, Some(address)) => vec![TrafficSelector::from_address(address)],
            (None, None) => continue,
        };
        let fits = |network: &RoutePrefix| network.1 > 0 || table.remote_address.is_some();
        ways.extend(networks_of(&remote).into_iter().filter(fits).map(|network| (network, local.clone())));
    }
    ways
}

/// Logs a failure of the system. Packets may lack a route, but the service continues.
fn log_system_change_failure(what: &'static str, of: impl std::fmt::Display, done: io::Result<()>) {
    if let Err(error) = done {
        tracing::error!(%of, %error, "cannot change {what}");
    }
}

impl DataPlaneState {
    /// Sets the fixed routes.
    fn set_fixed_routes(&mut self, ways: Vec<(RoutePrefix, Vec<TrafficSelector>)>) {
        let Some(routing) = &mut self.routing else { return };
        let before = std::mem::take(&mut self.fixed);
        for (network, local) in ways {
            if self.fixed.iter().any(|(fixed, _)| *fixed == network) {
                continue;
            }
            let source = own_address(&local, network.0.is_ipv4()).unwrap_or_default();
            log_system_change_failure("a route", network.0, routing.add_route(network, source));
            self.fixed.push((network, source));
        }
        for (network, source) in before {
            log_system_change_failure("a route", network.0, routing.remove_route(network, source));
        }
    }

    /// Routes these peers past the device from now on, or the device would capture IKE itself.
    fn replace_peer_bypasses(&mut self, past: Vec<IpAddr>) {
        let Some(routing) = &mut self.routing else { return };
        for address in &past {
            log_system_change_failure("a route", address, routing.add_bypass_route(*address));
        }
        for address in std::mem::replace(&mut self.past, past) {
            log_system_change_failure("a route", address, routing.remove_bypass_route(address));
        }
    }

    fn install_child(
        &mut self,
        sa: IkeSaId,
        child: &ChildSa,
        policy: Option<SecurityPolicyId>,
    ) -> Result<(), EspBackendError> {
        let mut pair = child.sa_pair();
        pair.policy = policy;
        let name = (child.connection.clone(), child.name.clone());
        pair.lifetime = self.volumes.get(&name).copied().unwrap_or_default();
        let peer = pair.outer.remote.ip();
        self.path.apply_operation(IpsecOperation::Install(pair.into()))?;
        let mut routes = Vec::new();
        let networks = networks_of(&child.remote);
        let past = self.bypass_peer(sa, peer, &networks);
        if let Some(routing) = &mut self.routing {
            let given = self.virtual_addresses.get(&sa);
            for network in networks.iter().copied() {
                let v4 = network.0.is_ipv4();
                let inner = given.into_iter().flatten().copied().find(|inner| {
                    inner.is_ipv4() == v4 && child.local.iter().any(|of| (of.start..=of.end).contains(inner))
                });
                // The networks of a gateway's pool, and of traffic that triggers connections, already have fixed
                // routes.
                if inner.is_none() && self.fixed.iter().any(|(fixed, _)| covers_network(*fixed, network)) {
                    continue;
                }
                let source = inner.or_else(|| own_address(&child.local, v4).unwrap_or_default());
                log_system_change_failure("a route", network.0, routing.add_route(network, source));
                routes.push((network, source));
            }
        }
        self.children.insert(child.inbound, InstalledChildSa { sa, routes, networks, past });
        Ok(())
    }

    /// Routes a peer past the device, unless its address belongs to another peer's network. Otherwise that peer's
    /// packets would leave in the clear. Returns the address if it bypasses the device now.
    fn bypass_peer(&mut self, sa: IkeSaId, peer: IpAddr, own: &[RoutePrefix]) -> Option<IpAddr> {
        let routing = self.routing.as_mut()?;
        let fixed = self.fixed.iter().map(|(network, _)| *network);
        let others = self.children.values().filter(|child| child.sa != sa);
        let others = others.flat_map(|child| child.routes.iter().map(|(network, _)| *network));
        if !may_bypass_device(peer, &self.pools, fixed.chain(others), own) {
            return None;
        }
        log_system_change_failure("a route", peer, routing.add_bypass_route(peer));
        Some(peer)
    }

    /// Removes a CHILD_SA. True if the tunnel had it and has reported its usage.
    fn remove_child(&mut self, inbound: u32) -> bool {
        let Some(child) = self.children.remove(&inbound) else { return false };
        let removed = self.path.apply_operation(IpsecOperation::Remove { inbound }).is_ok();
        if let Some(routing) = &mut self.routing {
            for (network, source) in child.routes {
                log_system_change_failure("a route", network.0, routing.remove_route(network, source));
            }
            if let Some(peer) = child.past {
                log_system_change_failure("a route", peer, routing.remove_bypass_route(peer));
            }
        }
        removed
    }

    fn apply_event_to_routes(&mut self, event: &IkeEvent) {
        match event {
            IkeEvent::Configured { sa, attributes } => {
                let addresses: Vec<IpAddr> =
                    attributes.iter().filter_map(ConfigurationAttribute::internal_address).collect();
                if let Some(routing) = &mut self.routing {
                    for address in &addresses {
                        log_system_change_failure(
                            "a virtual address",
                            address,
                            routing.add_address(*address),
                        );
                    }
                }
                self.virtual_addresses.insert(*sa, addresses);
            }
            IkeEvent::Moved { sa, path, encapsulated } => {
                let outer =
                    OuterAddresses { local: path.local, remote: path.remote, encapsulated: *encapsulated };
                let of_it =
                    |(inbound, child): (&u32, &InstalledChildSa)| (child.sa == *sa).then_some(*inbound);
                for inbound in self.children.iter().filter_map(of_it).collect::<Vec<_>>() {
                    let Some(mut child) = self.children.remove(&inbound) else { continue };
                    let before = child.past.take();
                    child.past = self.bypass_peer(*sa, path.remote.ip(), &child.networks);
                    self.children.insert(inbound, child);
                    if let (Some(routing), Some(before)) = (&mut self.routing, before) {
                        log_system_change_failure("a route", before, routing.remove_bypass_route(before));
                    }
                    if let Err(error) = self.path.apply_operation(IpsecOperation::Move { inbound, outer }) {
                        tracing::error!(%error, "cannot move a CHILD_SA to a new address");
                    }
                }
            }
            IkeEvent::Rekeyed { old, new, .. } => {
                self.children.values_mut().filter(|child| child.sa == *old).for_each(|child| child.sa = *new);
                if let Some(given) = self.virtual_addresses.remove(old) {
                    self.virtual_addresses.insert(*new, given);
                }
            }
            IkeEvent::Ended { sa, .. } => {
                for address in self.virtual_addresses.remove(sa).unwrap_or_default() {
                    if let Some(routing) = &mut self.routing {
                        log_system_change_failure(
                            "a virtual address",
                            address,
                            routing.remove_address(address),
                        );
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
    use usher_config::EmptyConfigEnvironment;
    use usher_core::WallTime;
    use usher_crypto::tls::SharedWallClock;
    use usher_gateway::config::parse;

    #[test]
    fn what_is_to_be_protected_comes_to_the_device() {
        let ways = |more: &str, child: &str| {
            let text = format!(
                "[[connection]]\nname = \"a\"\nlocal_id = \"a.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\n\
                 secret = \"sixteen octets!!\"\n{more}[[connection.child]]\nname = \"net\"\n{child}"
            );
            let file = parse(
                "ike.toml",
                &text,
                &EmptyConfigEnvironment,
                &SharedWallClock::from_time(WallTime::UNIX_EPOCH),
            )
            .unwrap()
            .file;
            let shown = |(network, local): &(RoutePrefix, Vec<TrafficSelector>)| {
                format!("{}/{} from {}", network.0, network.1, local.len())
            };
            protected_networks(&file.connection[0]).iter().map(shown).collect::<Vec<_>>()
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
        let beside = |peer: &str, own: &[RoutePrefix]| {
            may_bypass_device(peer.parse().unwrap(), &pools, [site].into_iter(), own)
        };
        assert!(beside("192.0.2.7", &[net("10.9.0.7/32")]));
        assert!(!beside("10.9.0.8", &[net("10.9.0.7/32")]), "another user's");
        assert!(!beside("10.9.0.7", &[net("10.9.0.7/32")]), "its own inner one");
        assert!(!beside("10.2.0.5", &[net("10.9.0.7/32")]), "of a network that is protected");
        assert!(!beside("10.2.0.5", &[net("0.0.0.0/0")]), "by whatever it may send besides");
        assert!(beside("10.2.0.5", &[site]), "the gateway of that network itself");
    }
}

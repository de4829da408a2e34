//! The local address of each connection, and its changes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use usher_device::netlink;
use usher_gateway::GatewayCommand;
use usher_gateway::config::LoadedGatewayConfig;
use usher_live::{SocketOptions, bind_udp};
use usher_service::CommandSender;

/// The quiet time before addresses are read: an address, its route and a default route appear one after another.
const SETTLED: Duration = Duration::from_millis(200);

/// Returns the local address for a remote host, ignoring routes to the device of CHILD_SAs.
fn source_address_of_route(remote: SocketAddr, mark: Option<u32>) -> io::Result<IpAddr> {
    let any: IpAddr =
        if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let options = SocketOptions { shared: false, mark, ..SocketOptions::default() };
    let socket = bind_udp(SocketAddr::new(any, 0), &options)?;
    socket.connect(remote)?;
    Ok(socket.local_addr()?.ip())
}

/// Sets the local address of each connection. NAT detection depends on it.
pub(super) fn set_local_addresses(loaded: &mut LoadedGatewayConfig, mark: Option<u32>) {
    for peer in &mut loaded.config.peers {
        let Some(remote) = peer.remote.filter(|_| peer.local.ip().is_unspecified()) else { continue };
        match source_address_of_route(remote, mark) {
            Ok(local) => Arc::make_mut(peer).local.set_ip(local),
            Err(error) => tracing::warn!(%error, %remote, "no route to this address now"),
        }
    }
}

/// Tells the gateway when local addresses change, so that connections move (RFC 4555). Connections with a configured
/// address stay.
pub(super) fn watch_local_addresses(
    loaded: &LoadedGatewayConfig,
    mark: Option<u32>,
    command_sender: &CommandSender<GatewayCommand>,
) -> io::Result<()> {
    let free = |name: &str| {
        let table = loaded.file.connection.iter().find(|table| table.name == name);
        let listen = &loaded.file.listen.addresses;
        table.is_some_and(|table| table.local_address.is_none()) && listen.iter().any(IpAddr::is_unspecified)
    };
    let mut known: Vec<(String, SocketAddr, SocketAddr)> = loaded
        .config
        .peers
        .iter()
        .filter(|peer| free(&peer.connection.name))
        .filter_map(|peer| Some((peer.connection.name.clone(), peer.remote?, peer.local)))
        .collect();
    if known.is_empty() {
        return Ok(());
    }
    let command_sender = command_sender.clone();
    let body = move || {
        let look = || {
            let mut changed = Vec::new();
            for (name, remote, local) in &mut known {
                // If there is no route now, keep the connection, because a route may return.
                let Ok(own) = source_address_of_route(*remote, mark) else { continue };
                if own != local.ip() {
                    local.set_ip(own);
                    changed.push((name.clone(), *local));
                }
            }
            if !changed.is_empty() {
                command_sender.send_command(GatewayCommand::Addresses(changed));
            }
        };
        if let Err(error) = netlink::watch_settled_addresses(SETTLED, look) {
            tracing::error!(%error, "cannot watch this host's addresses: connections do not follow their changes");
        }
    };
    std::thread::Builder::new().name("usher-ike-way".to_owned()).spawn(body).map(drop)
}

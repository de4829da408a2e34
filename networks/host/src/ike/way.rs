//! The local address of each connection, and its changes.

use crate::CommandSender;
use crate::netlink;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use usher_gateway::GatewayCommand;
use usher_gateway::config::LoadedGatewayConfig;
use usher_live::{SocketOptions, bind_udp};

/// The quiet time before addresses are read: an address, its route and a default route appear one after another.
const SETTLED: Duration = Duration::from_millis(200);

/// Returns the local address for a remote host, ignoring routes to the device of CHILD_SAs.
fn route_source(remote: SocketAddr, mark: Option<u32>) -> io::Result<IpAddr> {
    let any: IpAddr =
        if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let options = SocketOptions { shared: false, mark, ..SocketOptions::default() };
    let socket = bind_udp(SocketAddr::new(any, 0), &options)?;
    socket.connect(remote)?;
    Ok(socket.local_addr()?.ip())
}

/// Sets the local address of each connection. NAT detection depends on it.
pub(super) fn own_addresses(loaded: &mut LoadedGatewayConfig, mark: Option<u32>) {
    for peer in &mut loaded.config.peers {
        let Some(remote) = peer.remote.filter(|_| peer.local.ip().is_unspecified()) else { continue };
        match route_source(remote, mark) {
            Ok(local) => Arc::make_mut(peer).local.set_ip(local),
            Err(error) => tracing::warn!(%error, %remote, "there is no way to this address now"),
        }
    }
}

/// Tells the gateway when local addresses change, so that connections move (RFC 4555). Connections with a configured
/// address stay.
pub(super) fn follow_addresses(
    loaded: &LoadedGatewayConfig,
    mark: Option<u32>,
    telling: &CommandSender<GatewayCommand>,
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
    let telling = telling.clone();
    let body = move || {
        let look = || {
            let mut changed = Vec::new();
            for (name, remote, local) in &mut known {
                // Without a route the connection stays: a route may return.
                let Ok(own) = route_source(*remote, mark) else { continue };
                if own != local.ip() {
                    local.set_ip(own);
                    changed.push((name.clone(), *local));
                }
            }
            if !changed.is_empty() {
                telling.send_command(GatewayCommand::Addresses(changed));
            }
        };
        if let Err(error) = netlink::watch_settled_addresses(SETTLED, look) {
            tracing::error!(%error, "the kernel does not tell of its addresses: connections do not follow them");
        }
    };
    std::thread::Builder::new().name("usher-ike-way".to_owned()).spawn(body).map(drop)
}

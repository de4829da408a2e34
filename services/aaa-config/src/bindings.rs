//! The addresses that a host binds and connects to, with the server's ids.

use crate::model::{ConfigFile, ListenConfig};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_aaa::{DIAMETER_LISTENER, RADSEC_LISTENER, radius_socket};
use usher_core::{ListenerId, SocketId, TransportProtocol};

/// An address of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenBinding {
    /// Purpose for people.
    pub purpose: &'static str,
    /// The address.
    pub address: SocketAddr,
    /// Transport, with the server's id.
    pub carrier: ListenTransport,
}

/// The transport of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListenTransport {
    /// UDP.
    Udp(SocketId),
    /// TCP.
    Tcp(ListenerId),
    /// TLS with client certificates.
    Tls(ListenerId),
    /// SCTP. Addresses with the same port form one endpoint.
    Sctp(ListenerId),
}

/// Returns the listeners: UDP for authentication first, then for accounting, in the order of roles in
/// [`build()`](crate::build_config()).
#[must_use]
pub fn listen_bindings(listen: &ListenConfig) -> Vec<ListenBinding> {
    let datagrams = [("authentication", &listen.auth), ("accounting", &listen.acct)];
    let datagrams = datagrams.into_iter().flat_map(|(what, all)| all.iter().map(move |a| (what, *a)));
    let datagrams = (0..).zip(datagrams).map(|(n, (what, address))| ListenBinding {
        purpose: what,
        address,
        carrier: ListenTransport::Udp(radius_socket(n)),
    });
    let streams = [
        ("RadSec", &listen.radsec, ListenTransport::Tls(RADSEC_LISTENER)),
        ("Diameter", &listen.diameter, ListenTransport::Tcp(DIAMETER_LISTENER)),
        ("Diameter over TLS", &listen.diameter_tls, ListenTransport::Tls(DIAMETER_LISTENER)),
        ("Diameter over SCTP", &listen.diameter_sctp, ListenTransport::Sctp(DIAMETER_LISTENER)),
    ];
    let streams = streams.into_iter().flat_map(|(what, all, carrier)| {
        all.iter().map(move |address| ListenBinding { purpose: what, address: *address, carrier })
    });
    datagrams.chain(streams).collect()
}

/// Returns the addresses of home servers and Diameter peers to connect to. True: TLS.
#[must_use]
pub fn outgoing_addresses_and_tls(file: &ConfigFile) -> BTreeMap<SocketAddr, bool> {
    let homes = file.home_server.iter().filter(|h| h.transport == TransportProtocol::Tls);
    let peers = file.diameter.iter().flat_map(|d| &d.peer);
    let peers = peers.filter_map(|p| Some((p.connect?, p.transport == TransportProtocol::Tls)));
    peers.chain(homes.map(|h| (h.address, true))).collect()
}

//! The sockets and the UDP ports of an endpoint.

use core::net::SocketAddr;
use usher_core::{DatagramPath, SocketId};

/// The IPv4 socket of UDP port 500.
pub const SOCKET: SocketId = SocketId::from_number(0);
/// The IPv4 socket of UDP port 4500. ESP arrives there too; a datagram that begins with four zero octets is IKE.
pub const NAT_SOCKET: SocketId = SocketId::from_number(1);
/// The IPv6 socket of UDP port 500.
pub const SOCKET_V6: SocketId = SocketId::from_number(2);
/// The IPv6 socket of UDP port 4500.
pub const NAT_SOCKET_V6: SocketId = SocketId::from_number(3);

/// True for a socket of UDP port 4500.
pub(super) fn is_nat_traversal_socket(socket: SocketId) -> bool {
    socket == NAT_SOCKET || socket == NAT_SOCKET_V6
}

/// The port of IKE, and the port of IKE and ESP behind a NAT.
const PORT: u16 = 500;
const NAT_PORT: u16 = 4500;

/// Returns the path between a local address and a peer's address.
pub(super) fn path_between(local: SocketAddr, remote: SocketAddr) -> DatagramPath {
    // Only messages to port 500 have no marker, so any other port uses the NAT socket.
    let socket = match (remote.port() == PORT, remote.is_ipv4()) {
        (true, true) => SOCKET,
        (false, true) => NAT_SOCKET,
        (true, false) => SOCKET_V6,
        (false, false) => NAT_SOCKET_V6,
    };
    DatagramPath { socket, local, remote }
}

/// Changes a path to port 4500 behind a NAT (RFC 7296 §2.23).
pub(super) fn move_to_nat_port(path: &mut DatagramPath) {
    if path.remote.port() == PORT {
        path.remote.set_port(NAT_PORT);
        if path.local.port() == PORT {
            path.local.set_port(NAT_PORT);
        }
        path.socket = if path.remote.is_ipv4() { NAT_SOCKET } else { NAT_SOCKET_V6 };
    }
}

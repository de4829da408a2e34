//! Finds the owner of a TCP connection of this host.
//!
//! It queries the kernel for one connection by addresses and ports (sock_diag(7)). A lookup costs the same for any
//! number of connections; `/proc/net/tcp` would be read from end to end.

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use nix::errno::Errno;
use nix::unistd::{Uid, User};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Any socket with these addresses matches (`INET_DIAG_NOCOOKIE`).
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// Returns the uid of the local end's owner.
///
/// `None`: the connection does not exist, or belongs to no process. The latter holds before it is accepted and after
/// its process has closed it; the kernel reports such sockets as root's.
///
/// # Errors
/// An error of the kernel.
pub(crate) fn connection_owner(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    let socket_id = SocketId {
        source_port: local.port(),
        destination_port: remote.port(),
        source_address: local.ip(),
        destination_address: remote.ip(),
        interface_id: address_scope(remote),
        cookie: NO_COOKIE,
    };
    let request = InetRequest {
        family: if local.is_ipv4() { AF_INET } else { AF_INET6 },
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id,
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut octets = vec![0; message.buffer_len()];
    message.serialize(&mut octets);
    let socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
    socket.send(&octets, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let answer = NetlinkMessage::<SockDiagMessage>::deserialize(&answer).map_err(io::Error::other)?;
    match answer.payload {
        NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(found)) => {
            Ok(matching_owner(&found.header, local, remote))
        }
        NetlinkPayload::Error(error) => match error.to_io() {
            error if error.kind() == io::ErrorKind::NotFound => Ok(None),
            error => Err(error),
        },
        _ => Err(io::Error::other("unexpected reply of the kernel")),
    }
}

/// The scope id of an address that needs one.
fn address_scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

/// Returns the owner of the socket that the kernel found, if it is this connection. Without such a connection the
/// kernel returns the listening socket of the port.
fn matching_owner(found: &InetResponseHeader, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let id = &found.socket_id;
    let end = |address: IpAddr, port| (address.to_canonical(), port);
    let same = |address: IpAddr, port, of: SocketAddr| end(address, port) == end(of.ip(), of.port());
    let this = same(id.source_address, id.source_port, local)
        && same(id.destination_address, id.destination_port, remote);
    // A socket that no process holds has inode 0, and its user id is meaningless.
    (this && found.inode != 0).then_some(found.uid)
}

/// Returns the name of a user from the system's sources (nsswitch.conf(5)). `None`: the uid has no name.
///
/// # Errors
/// An error of the system.
pub(crate) fn user_name(uid: u32) -> io::Result<Option<String>> {
    name_of(User::from_uid(Uid::from_raw(uid)))
}

/// getpwuid_r(3) lists four errors with which systems report an unknown user.
fn name_of(found: nix::Result<Option<User>>) -> io::Result<Option<String>> {
    match found {
        Ok(user) => Ok(user.map(|user| user.name)),
        Err(Errno::ENOENT | Errno::ESRCH | Errno::EBADF | Errno::EPERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    fn own_uid() -> Option<u32> {
        Some(nix::unistd::getuid().as_raw())
    }

    /// Returns both ends of a connection to this address: the client's, then the server's.
    fn connected_pair(listener: &TcpListener, to: IpAddr) -> (TcpStream, TcpStream) {
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((to, port)).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn stream_ends(stream: &TcpStream) -> (SocketAddr, SocketAddr) {
        (stream.local_addr().unwrap(), stream.peer_addr().unwrap())
    }

    #[test]
    fn both_ends_have_an_owner_over_ipv4_ipv6_and_mapped_addresses() {
        for (listens, to) in [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")] {
            let listener = TcpListener::bind((listens.parse::<IpAddr>().unwrap(), 0)).unwrap();
            let (client, server) = connected_pair(&listener, to.parse().unwrap());
            for stream in [&client, &server] {
                let (local, remote) = stream_ends(stream);
                assert_eq!(connection_owner(local, remote).unwrap(), own_uid(), "{local} {remote}");
                // Canonical addresses, as a machine sees them, whatever the socket's family.
                let plain = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
                assert_eq!(
                    connection_owner(plain(local), plain(remote)).unwrap(),
                    own_uid(),
                    "{local} {remote}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_connection_is_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (client, server) = connected_pair(&listener, "127.0.0.1".parse().unwrap());
        let (local, remote) = stream_ends(&server);
        let mut other = remote;
        other.set_ip("127.0.0.2".parse().unwrap());
        assert_eq!(connection_owner(local, other).unwrap(), None, "the port is listened on, by somebody");
        drop(listener);
        assert_eq!(connection_owner(local, other).unwrap(), None);
        // The side that closes first is in TIME-WAIT and belongs to no process.
        drop(server);
        let mut end = Vec::new();
        (&client).read_to_end(&mut end).unwrap();
        assert_eq!(connection_owner(local, remote).unwrap(), None);
        drop(client);
        assert_eq!(connection_owner(local, remote).unwrap(), None);
    }

    #[test]
    fn a_connection_that_nobody_has_accepted_is_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (local, remote) = stream_ends(&client);
        assert_eq!(connection_owner(local, remote).unwrap(), own_uid());
        assert_eq!(connection_owner(remote, local).unwrap(), None);
        let (server, _) = listener.accept().unwrap();
        assert_eq!(connection_owner(remote, local).unwrap(), own_uid());
        drop(server);
    }

    #[test]
    fn users_have_names_as_the_system_says() {
        assert_eq!(user_name(0).unwrap().as_deref(), Some("root"));
        assert_eq!(user_name(4_000_000_001).unwrap(), None);
        for none in [Errno::ENOENT, Errno::ESRCH, Errno::EBADF, Errno::EPERM] {
            assert_eq!(name_of(Err(none)).unwrap(), None, "{none}");
        }
        assert!(name_of(Err(Errno::EIO)).is_err());
    }
}

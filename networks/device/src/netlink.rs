//! Sequential requests to rtnetlink(7).

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io;

/// Opens an rtnetlink socket in the calling thread's network namespace.
///
/// # Errors
/// An error of the kernel.
pub fn open_route_socket() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

fn send_request(socket: &Socket, flags: u16, message: RouteNetlinkMessage) -> io::Result<()> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    let mut message = NetlinkMessage::new(header, message.into());
    message.finalize();
    let mut octets = vec![0; message.buffer_len()];
    message.serialize(&mut octets);
    socket.send(&octets, 0).map(drop)
}

/// Parses the messages of one datagram. Messages that cannot be parsed are left out.
#[must_use]
pub fn parse_messages(mut octets: &[u8]) -> Vec<NetlinkPayload<RouteNetlinkMessage>> {
    let mut all = Vec::new();
    // A message begins with its length. The next begins at a multiple of four (netlink(7), NLMSG_ALIGN).
    while let Some(Ok(length)) = octets.first_chunk().map(|four| u32::from_ne_bytes(*four).try_into()) {
        let length: usize = length;
        let Some(one) = octets.get(..length).filter(|_| length >= 16) else { break };
        all.extend(NetlinkMessage::deserialize(one).ok().map(|message| message.payload));
        octets = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

/// Reads the replies to a request, until the kernel marks the end.
fn read_replies(socket: &Socket) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut all = Vec::new();
    loop {
        for payload in parse_messages(&socket.recv_from_full()?.0) {
            match payload {
                NetlinkPayload::Done(_) => return Ok(all),
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok(all),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(message) => all.push(message),
                _ => {}
            }
        }
    }
}

/// Sends a request in the calling thread's network namespace and reads the replies. `flags` contain `NLM_F_ACK` or
/// `NLM_F_DUMP`.
///
/// # Errors
/// An error of the kernel.
pub fn run_request(flags: u16, message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    let socket = open_route_socket()?;
    run_request_on(&socket, flags, message)
}

/// As [`run_request`], on an open socket and in its namespace. One request at a time.
///
/// # Errors
/// An error of the kernel.
pub fn run_request_on(
    socket: &Socket,
    flags: u16,
    message: RouteNetlinkMessage,
) -> io::Result<Vec<RouteNetlinkMessage>> {
    send_request(socket, flags, message)?;
    read_replies(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_is_left_out() {
        for octets in [&[][..], &[1], &[4, 0, 0, 0], &[0xff; 64], &[16, 0, 0, 0, 2, 0, 0, 0]] {
            assert!(parse_messages(octets).is_empty(), "{octets:?}");
        }
    }
}

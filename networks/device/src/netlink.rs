//! Sequential requests to rtnetlink(7), and its notifications.

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::time::Duration;

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

/// Returns the index of an interface.
///
/// # Errors
/// The interface is absent, or another error of the kernel.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let is_named = |message: &&RouteNetlinkMessage| match message {
        RouteNetlinkMessage::NewLink(link) => {
            link.attributes.contains(&LinkAttribute::IfName(name.to_owned()))
        }
        _ => false,
    };
    let all = run_request(NLM_F_DUMP, RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    match all.iter().find(is_named) {
        Some(RouteNetlinkMessage::NewLink(link)) => Ok(link.header.index),
        _ => Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no interface {name}"))),
    }
}

/// The multicast groups for addresses and routes of both families (RTNLGRP).
const ROUTE_GROUPS: [u32; 4] = [5, 7, 9, 11];

/// Calls `look` after each change of addresses or routes, once `after` has passed without another. Runs without end.
///
/// # Errors
/// An error of the kernel.
pub fn watch_settled_addresses(after: Duration, mut look: impl FnMut()) -> io::Result<()> {
    let socket = open_route_socket()?;
    for group in ROUTE_GROUPS {
        socket.add_membership(group)?;
    }
    // Start as if something had changed, because changes before the subscription caused no notification.
    let mut changed = true;
    loop {
        let mut ready = [PollFd::new(&socket, PollFlags::IN)];
        let patience = changed.then(|| Timespec::try_from(after).ok()).flatten();
        match poll(&mut ready, patience.as_ref()) {
            Ok(0) if std::mem::take(&mut changed) => look(),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => match socket.recv_from_full() {
                Ok(_) => changed = true,
                // ENOBUFS: the socket buffer overflowed and notifications were lost, so assume a change.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                    changed = true
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error.into()),
        }
    }
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

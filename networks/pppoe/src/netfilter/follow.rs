//! The events of the kernel's connection table.

use super::conntrack::{
    CTNETLINK_DELETE, CTNETLINK_GET, ConntrackEntry, GENERAL, ICMP, NLM_F_DUMP, NLMSG_ERROR, TCP, UDP,
    ctnetlink_message, netlink_error, next_message, parse_entry,
};
use crate::sys;
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr as Netlink};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::time::Duration;

/// Multicast groups of events (linux/netfilter/nfnetlink_compat.h).
const NEW_CONNECTIONS: u32 = 1;
const DESTROYED_CONNECTIONS: u32 = 3;
/// Message types of events.
const CTNETLINK_NEW: u16 = 1 << 8;
/// Receive buffer in octets. The kernel doubles it. On Linux 6.18 it takes the events of 13,103 IPv4 connections in a
/// burst.
const WAITING: libc::c_int = 8 << 20;

/// An event of the connection table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConntrackEvent {
    /// A connection exists.
    Started(ConntrackEntry, u8),
    /// A connection has ended.
    Ended(ConntrackEntry, u8),
    /// The buffer overflowed and events are lost.
    Missed,
}

/// Follows connections of TCP, UDP and ICMP queries. Each event has the protocol's number.
pub struct ConntrackMonitor {
    socket: Socket,
    ready: std::collections::VecDeque<ConntrackEvent>,
}

impl std::fmt::Debug for ConntrackMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("ready", &self.ready.len()).finish_non_exhaustive()
    }
}

impl ConntrackMonitor {
    /// Starts to follow the table. The existing connections come first.
    ///
    /// # Errors
    /// The kernel's error. It needs CAP_NET_ADMIN, and nf_conntrack_netlink.
    pub fn new() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        // Without CAP_NET_ADMIN in this network namespace, net.core.rmem_max limits the buffer.
        if sys::force_receive_buffer(&socket, WAITING).is_err() {
            socket.set_rx_buf_sz(WAITING)?;
        }
        socket.add_membership(NEW_CONNECTIONS)?;
        socket.add_membership(DESTROYED_CONNECTIONS)?;
        let dump = ctnetlink_message(CTNETLINK_GET, NLM_F_DUMP, libc::AF_UNSPEC as u8, &[]);
        socket.send_to(&dump, &Netlink::new(0, 0), 0)?;
        Ok(Self { socket, ready: std::collections::VecDeque::new() })
    }

    /// Waits up to `patience` for the next event; `None`: there was none.
    ///
    /// # Errors
    /// The kernel's error. Events may be lost from then on: create a new monitor.
    pub fn next_event(&mut self, patience: Duration) -> io::Result<Option<ConntrackEvent>> {
        let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Ok(Some(change));
            }
            let mut one = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut one, Some(&patience)) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            match self.socket.recv_from_full() {
                Ok((octets, _)) => parse_events(&octets, &mut self.ready)?,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    return Ok(Some(ConntrackEvent::Missed));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Parses consecutive messages up to the first malformed one.
fn parse_events(mut octets: &[u8], out: &mut impl Extend<ConntrackEvent>) -> io::Result<()> {
    while let Some((kind, body)) = next_message(&mut octets) {
        let change =
            match kind {
                NLMSG_ERROR => match netlink_error(body) {
                    None => None,
                    Some(error) => return Err(error),
                },
                CTNETLINK_NEW => event_entry(body)
                    .map(|(connection, protocol)| ConntrackEvent::Started(connection, protocol)),
                CTNETLINK_DELETE => event_entry(body)
                    .map(|(connection, protocol)| ConntrackEvent::Ended(connection, protocol)),
                _ => None,
            };
        out.extend(change);
    }
    Ok(())
}

fn event_entry(body: &[u8]) -> Option<(ConntrackEntry, u8)> {
    let (connection, protocol) = parse_entry(body.get(GENERAL..)?)?;
    [TCP, UDP, ICMP].contains(&protocol).then_some((connection, protocol))
}

#[cfg(test)]
mod tests {
    use super::super::conntrack::{HEADER, NLMSG_DONE, TUPLE_ORIG, TUPLE_REPLY, lookup_request};
    use super::*;
    use crate::netfilter::conntrack::ConntrackTuple;
    use proptest::prelude::*;

    fn test_tuple(source: &str, destination: &str) -> ConntrackTuple {
        ConntrackTuple { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
    }

    fn event_message(kind: u16, protocol: u8) -> Vec<u8> {
        let one =
            lookup_request(TUPLE_ORIG, test_tuple("10.0.0.7:40000", "203.0.113.2:80"), protocol).unwrap();
        let other =
            lookup_request(TUPLE_REPLY, test_tuple("203.0.113.2:80", "192.0.2.1:1025"), protocol).unwrap();
        let mut octets = [&one[..], &other[HEADER + GENERAL..]].concat();
        let length = (octets.len() as u32).to_ne_bytes();
        octets[..4].copy_from_slice(&length);
        octets[4..6].copy_from_slice(&kind.to_ne_bytes());
        octets
    }

    #[test]
    fn changes_are_read_one_behind_another() {
        let connection = ConntrackEntry {
            original: test_tuple("10.0.0.7:40000", "203.0.113.2:80"),
            reply: test_tuple("203.0.113.2:80", "192.0.2.1:1025"),
        };
        let octets = [
            event_message(CTNETLINK_NEW, TCP),
            event_message(CTNETLINK_NEW, 132),
            event_message(NLMSG_DONE, TCP),
            event_message(CTNETLINK_DELETE, UDP),
        ];
        let mut all = Vec::new();
        parse_events(&octets.concat(), &mut all).unwrap();
        assert_eq!(all, [ConntrackEvent::Started(connection, TCP), ConntrackEvent::Ended(connection, UDP)]);
        let mut refused = event_message(NLMSG_ERROR, TCP);
        refused[HEADER..HEADER + 4].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        let error = parse_events(&refused, &mut all).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    proptest! {
        #[test]
        fn no_message_panics_or_lasts_forever(octets in prop::collection::vec(any::<u8>(), 0..400), at in 0_usize..100) {
            let _ = parse_events(&octets, &mut Vec::new());
            let mut broken = event_message(CTNETLINK_NEW, TCP);
            for (place, octet) in octets.iter().enumerate().take(8) {
                let place = (at + place * 7) % broken.len();
                broken[place] = *octet;
            }
            let _ = parse_events(&broken, &mut Vec::new());
        }
    }
}

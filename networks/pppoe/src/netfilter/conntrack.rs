//! The kernel's connection table (nf_conntrack), by netlink (linux/netfilter/nfnetlink_conntrack.h): looks up
//! translated connections in both directions, and deletes connections of removed hosts.

use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr as Netlink};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The subsystem and its message types (linux/netfilter/nfnetlink.h).
pub(super) const CTNETLINK_GET: u16 = 1 << 8 | 1;
pub(super) const CTNETLINK_DELETE: u16 = 1 << 8 | 2;
const CTNETLINK_NEW: u16 = 1 << 8;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
pub(super) const NLM_F_DUMP: u16 = 0x300;
pub(super) const NLMSG_ERROR: u16 = 2;
pub(super) const NLMSG_DONE: u16 = 3;
/// Attributes, by their container.
pub(super) const TUPLE_ORIG: u16 = 1;
pub(super) const TUPLE_REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const IP_V4_SRC: u16 = 1;
const IP_V4_DST: u16 = 2;
const IP_V6_SRC: u16 = 3;
const IP_V6_DST: u16 = 4;
const PROTO_NUM: u16 = 1;
const PROTO_SRC_PORT: u16 = 2;
const PROTO_DST_PORT: u16 = 3;
const PROTO_ICMP_ID: u16 = 4;
const NESTED: u16 = 0x8000;
const KIND: u16 = 0x3fff;
/// Octets of a message's header, and of netfilter's header after it.
pub(super) const HEADER: usize = 16;
pub(super) const GENERAL: usize = 4;

/// The protocol number of ICMP. The identifier of its queries takes the place of ports.
pub const ICMP: u8 = 1;
/// The protocol number of TCP.
pub const TCP: u8 = 6;
/// The protocol number of UDP.
pub const UDP: u8 = 17;

/// Source and destination of packets of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConntrackTuple {
    /// The source.
    pub source: SocketAddr,
    /// The destination.
    pub destination: SocketAddr,
}

/// An entry of the connection table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConntrackEntry {
    /// The packets of the initiator, before translation.
    pub original: ConntrackTuple,
    /// The packets of the responder. They show the translation of the initiator's.
    pub reply: ConntrackTuple,
}

/// Looks up a connection by the addresses that the remote end sees, as an IDENT query names them. The local one may be
/// translated. `None`: there is none.
///
/// # Errors
/// The kernel's error. It needs CAP_NET_ADMIN.
pub fn find_connection_by_reply(
    ours: SocketAddr,
    theirs: SocketAddr,
    protocol: u8,
) -> io::Result<Option<ConntrackEntry>> {
    look_up(TUPLE_REPLY, ConntrackTuple { source: theirs, destination: ours }, protocol)
}

/// Looks up a connection by the initiator's addresses before translation. `None`: there is none.
///
/// # Errors
/// The kernel's error. It needs CAP_NET_ADMIN.
pub fn find_connection_by_original(
    original: ConntrackTuple,
    protocol: u8,
) -> io::Result<Option<ConntrackEntry>> {
    look_up(TUPLE_ORIG, original, protocol)
}

fn push_attribute(kind: u16, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

pub(super) fn lookup_request(tuple: u16, direction: ConntrackTuple, protocol: u8) -> Option<Vec<u8>> {
    let (mut ip, mut proto, mut all) = (Vec::new(), Vec::new(), Vec::new());
    let family = match (direction.source.ip(), direction.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            push_attribute(IP_V4_SRC, &source.octets(), &mut ip);
            push_attribute(IP_V4_DST, &destination.octets(), &mut ip);
            libc::AF_INET
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            push_attribute(IP_V6_SRC, &source.octets(), &mut ip);
            push_attribute(IP_V6_DST, &destination.octets(), &mut ip);
            libc::AF_INET6
        }
        _ => return None,
    };
    push_attribute(PROTO_NUM, &[protocol], &mut proto);
    push_attribute(PROTO_SRC_PORT, &direction.source.port().to_be_bytes(), &mut proto);
    push_attribute(PROTO_DST_PORT, &direction.destination.port().to_be_bytes(), &mut proto);
    let mut within = Vec::new();
    push_attribute(TUPLE_IP | NESTED, &ip, &mut within);
    push_attribute(TUPLE_PROTO | NESTED, &proto, &mut within);
    push_attribute(tuple | NESTED, &within, &mut all);
    Some(ctnetlink_message(CTNETLINK_GET, 0, family as u8, &all))
}

/// Encodes a request of this type, with further flags.
pub(super) fn ctnetlink_message(kind: u16, flags: u16, family: u8, attributes: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(HEADER + GENERAL + attributes.len());
    all.extend_from_slice(&((HEADER + GENERAL + attributes.len()) as u32).to_ne_bytes());
    all.extend_from_slice(&kind.to_ne_bytes());
    all.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    all.extend_from_slice(&[0; 8]);
    all.extend_from_slice(&[family, 0, 0, 0]);
    all.extend_from_slice(attributes);
    all
}

fn open_socket() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&Netlink::new(0, 0))?;
    Ok(socket)
}

/// Deletes connections of any protocol whose initiator is `gone`. Returns their number. It reads the table once,
/// whatever the number of hosts.
///
/// # Errors
/// The kernel's error. It needs CAP_NET_ADMIN, and nf_conntrack_netlink.
pub fn delete_connections_by_source(gone: impl Fn(IpAddr) -> bool) -> io::Result<u64> {
    let socket = open_socket()?;
    socket.send(&ctnetlink_message(CTNETLINK_GET, NLM_F_DUMP, libc::AF_UNSPEC as u8, &[]), 0)?;
    let mut doomed = Vec::new();
    while !collect_connections_by_source(&socket.recv_from_full()?.0, &gone, &mut doomed)? {}
    let mut forgotten = 0;
    for (family, one) in doomed {
        socket.send(&ctnetlink_message(CTNETLINK_DELETE, NLM_F_ACK, family, &one), 0)?;
        match parse_reply(&socket.recv_from_full()?.0)? {
            ConntrackReply::Done => forgotten += 1,
            // The connection has ended in the meantime, so there is nothing to do.
            ConntrackReply::Unknown | ConntrackReply::Connection(_) => {}
        }
    }
    Ok(forgotten)
}

/// Parses a part of the table. Collects family and key of each connection with a `gone` source. True if it was the last
/// part.
fn collect_connections_by_source(
    mut octets: &[u8],
    gone: &impl Fn(IpAddr) -> bool,
    out: &mut Vec<(u8, Vec<u8>)>,
) -> io::Result<bool> {
    while let Some((kind, body)) = next_message(&mut octets) {
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                return Err(
                    netlink_error(body).unwrap_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
                );
            }
            CTNETLINK_NEW => {
                let all = body.get(GENERAL..).unwrap_or_default();
                let source = parse_entry(all).map(|(connection, _)| connection.original.source.ip());
                if let Some(source) = source.filter(|source| gone(*source)) {
                    let mut named = Vec::new();
                    for (kind, value) in parse_attributes(all) {
                        match kind {
                            TUPLE_ORIG => push_attribute(TUPLE_ORIG | NESTED, value, &mut named),
                            ID | ZONE => push_attribute(kind, value, &mut named),
                            _ => {}
                        }
                    }
                    let family = if source.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
                    out.push((family as u8, named));
                }
            }
            _ => {}
        }
    }
    Ok(false)
}

/// Returns the next message's type and body. Stops at the first malformed one.
pub(super) fn next_message<'a>(octets: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let head = octets.first_chunk::<HEADER>()?;
    let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let kind = u16::from_ne_bytes([head[4], head[5]]);
    let body = octets.get(HEADER..length)?;
    *octets = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body))
}

/// Returns the kernel's error of an error message; `None`: success.
pub(super) fn netlink_error(body: &[u8]) -> Option<io::Error> {
    let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
    (code != 0).then(|| io::Error::from_raw_os_error(-code))
}

fn look_up(tuple: u16, direction: ConntrackTuple, protocol: u8) -> io::Result<Option<ConntrackEntry>> {
    // There is no connection between addresses of different families.
    let Some(request) = lookup_request(tuple, direction, protocol) else { return Ok(None) };
    let socket = open_socket()?;
    socket.send(&request, 0)?;
    match parse_reply(&socket.recv_from_full()?.0)? {
        ConntrackReply::Connection(connection) => Ok(Some(connection)),
        ConntrackReply::Done | ConntrackReply::Unknown => Ok(None),
    }
}

/// The kernel's reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ConntrackReply {
    /// The connection.
    Connection(ConntrackEntry),
    /// Success.
    Done,
    /// There is no such connection.
    Unknown,
}

fn parse_reply(mut octets: &[u8]) -> io::Result<ConntrackReply> {
    let unreadable = || io::Error::other("cannot parse the kernel's reply about a connection");
    let (kind, body) = next_message(&mut octets).ok_or_else(unreadable)?;
    if kind == NLMSG_ERROR {
        return match netlink_error(body) {
            None => Ok(ConntrackReply::Done),
            Some(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(ConntrackReply::Unknown),
            Some(error) => Err(error),
        };
    }
    let found = body.get(GENERAL..).and_then(parse_entry).ok_or_else(unreadable)?;
    Ok(ConntrackReply::Connection(found.0))
}

/// Parses the attributes of a connection. Returns it with its protocol.
pub(super) fn parse_entry(octets: &[u8]) -> Option<(ConntrackEntry, u8)> {
    let (mut original, mut reply) = (None, None);
    for (kind, value) in parse_attributes(octets) {
        match kind {
            TUPLE_ORIG => original = parse_tuple_direction(value),
            TUPLE_REPLY => reply = parse_tuple_direction(value),
            _ => {}
        }
    }
    let ((original, protocol), (reply, _)) = original.zip(reply)?;
    Some((ConntrackEntry { original, reply }, protocol))
}

/// Iterates over attributes up to the first malformed one.
fn parse_attributes(mut octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = octets.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & KIND;
        let value = octets.get(4..length)?;
        octets = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn parse_tuple_direction(octets: &[u8]) -> Option<(ConntrackTuple, u8)> {
    let (mut source, mut destination, mut ports, mut protocol) = (None, None, (0, 0), 0);
    let v4 = |value: &[u8]| value.first_chunk::<4>().map(|octets| IpAddr::from(*octets));
    let v6 = |value: &[u8]| value.first_chunk::<16>().map(|octets| IpAddr::from(*octets));
    let port = |value: &[u8]| value.first_chunk::<2>().map_or(0, |octets| u16::from_be_bytes(*octets));
    for (kind, within) in parse_attributes(octets) {
        for (one, value) in parse_attributes(within) {
            match (kind, one) {
                (TUPLE_IP, IP_V4_SRC) => source = v4(value),
                (TUPLE_IP, IP_V4_DST) => destination = v4(value),
                (TUPLE_IP, IP_V6_SRC) => source = v6(value),
                (TUPLE_IP, IP_V6_DST) => destination = v6(value),
                (TUPLE_PROTO, PROTO_NUM) => protocol = value.first().copied().unwrap_or(0),
                (TUPLE_PROTO, PROTO_SRC_PORT) => ports.0 = port(value),
                (TUPLE_PROTO, PROTO_DST_PORT) => ports.1 = port(value),
                (TUPLE_PROTO, PROTO_ICMP_ID) => ports = (port(value), port(value)),
                _ => {}
            }
        }
    }
    let at = |ip: Option<IpAddr>, port| ip.map(|ip| SocketAddr::new(ip, port));
    let direction = ConntrackTuple { source: at(source, ports.0)?, destination: at(destination, ports.1)? };
    Some((direction, protocol))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn test_tuple(source: &str, destination: &str) -> ConntrackTuple {
        ConntrackTuple { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
    }

    #[test]
    fn an_answer_has_both_directions() {
        for (a, b) in [("10.0.0.1:40000", "203.0.113.2:80"), ("[2001:db8::1]:40000", "[2001:db8:1::2]:80")] {
            // A request encodes a direction like a reply.
            let one = lookup_request(TUPLE_ORIG, test_tuple(a, b), TCP).unwrap();
            let other = lookup_request(TUPLE_REPLY, test_tuple(b, a), TCP).unwrap();
            let mut octets = [&one[..], &other[HEADER + GENERAL..]].concat();
            let length = (octets.len() as u32).to_ne_bytes();
            octets[..4].copy_from_slice(&length);
            let connection = ConntrackEntry { original: test_tuple(a, b), reply: test_tuple(b, a) };
            assert_eq!(parse_reply(&octets).unwrap(), ConntrackReply::Connection(connection));
        }
        assert_eq!(lookup_request(TUPLE_ORIG, test_tuple("10.0.0.1:1", "[::1]:2"), TCP), None);
    }

    #[test]
    fn an_absent_entry_is_unknown_and_a_kernel_refusal_is_an_error() {
        let error = |code: i32| {
            let mut octets = [0; HEADER + 4];
            octets[0] = octets.len() as u8;
            octets[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
            octets[HEADER..].copy_from_slice(&(-code).to_ne_bytes());
            parse_reply(&octets)
        };
        assert_eq!(error(libc::ENOENT).unwrap(), ConntrackReply::Unknown);
        assert_eq!(error(0).unwrap(), ConntrackReply::Done);
        assert_eq!(error(libc::EPERM).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn entries_of_departed_hosts_are_named_as_the_kernel_names_them() {
        let one = |source: &str, id: u32| {
            let there = test_tuple(source, "203.0.113.2:80");
            let back = test_tuple("203.0.113.2:80", "192.0.2.1:1025");
            let (there, back) = (
                lookup_request(TUPLE_ORIG, there, TCP).unwrap(),
                lookup_request(TUPLE_REPLY, back, TCP).unwrap(),
            );
            let mut all = [&there[HEADER + GENERAL..], &back[HEADER + GENERAL..]].concat();
            push_attribute(ID, &id.to_be_bytes(), &mut all);
            (
                ctnetlink_message(CTNETLINK_NEW, 0, libc::AF_INET as u8, &all),
                there[HEADER + GENERAL..].to_vec(),
            )
        };
        let ((a, named), (b, _)) = (one("10.0.0.7:40000", 1), one("10.0.0.8:40000", 2));
        let gone = |address: IpAddr| address == IpAddr::from([10, 0, 0, 7]);
        let mut out = Vec::new();
        assert!(!collect_connections_by_source(&[b, a].concat(), &gone, &mut out).unwrap(), "more follows");
        let mut expected = named;
        push_attribute(ID, &1_u32.to_be_bytes(), &mut expected);
        assert_eq!(out, [(libc::AF_INET as u8, expected)]);
        assert!(
            collect_connections_by_source(&ctnetlink_message(NLMSG_DONE, 0, 0, &[]), &gone, &mut out)
                .unwrap()
        );
        let mut refused = ctnetlink_message(NLMSG_ERROR, 0, 0, &[]);
        refused[HEADER..].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert_eq!(
            collect_connections_by_source(&refused, &gone, &mut out).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
    }

    proptest! {
        #[test]
        fn no_answer_panics(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_reply(&octets);
            let _ = collect_connections_by_source(&octets, &|_| true, &mut Vec::new());
        }
    }
}

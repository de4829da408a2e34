//! Encodes and decodes options, control messages and notifications of the kernel's SCTP sockets (RFC 6458, with the
//! layouts and numbers of Linux's `linux/sctp.h`). Decoding never panics: truncated octets give `None`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Socket options, by their numbers.
pub(crate) mod option {
    pub(crate) const RTOINFO: i32 = 0;
    pub(crate) const ASSOCINFO: i32 = 1;
    pub(crate) const INITMSG: i32 = 2;
    pub(crate) const NODELAY: i32 = 3;
    pub(crate) const EVENTS: i32 = 11;
    pub(crate) const STATUS: i32 = 14;
    pub(crate) const DELAYED_SACK: i32 = 16;
    pub(crate) const RECVRCVINFO: i32 = 32;
    pub(crate) const BINDX_ADD: i32 = 100;
    pub(crate) const GET_PEER_ADDRS: i32 = 108;
    pub(crate) const GET_LOCAL_ADDRS: i32 = 109;
    pub(crate) const CONNECTX: i32 = 110;
}

/// Control messages, by their types.
const CMSG_SNDINFO: i32 = 2;
const CMSG_RCVINFO: i32 = 3;

/// The flag of a notification.
pub(crate) const MSG_NOTIFICATION: i32 = 0x8000;

/// Sent or received out of order (`SCTP_UNORDERED`).
const UNORDERED: u16 = 1;

/// Notifications, by their types.
const ASSOC_CHANGE: u16 = 0x8001;
const PEER_ADDR_CHANGE: u16 = 0x8002;
const SHUTDOWN_EVENT: u16 = 0x8005;
const PARTIAL_DELIVERY_EVENT: u16 = 0x8006;

/// The value of `SCTP_EVENTS`: an octet for each kind of notification. Enabled: the association, its addresses, the
/// peer's SHUTDOWN and partial delivery. The kinds behind the end are disabled.
pub(crate) const EVENTS: [u8; 7] = [0, 1, 1, 0, 0, 1, 1];

/// Octets of `sockaddr_storage`.
const STORAGE: usize = 128;

/// Octets of a control message's header: its length, level and type.
const HEAD: usize = size_of::<usize>() + 8;

/// Octets of the result of `SCTP_STATUS`.
pub(crate) const STATUS: usize = 176;

/// Octets before the addresses in the results of `SCTP_GET_PEER_ADDRS` and `SCTP_GET_LOCAL_ADDRS`.
pub(crate) const ADDRESSES: usize = 8;

/// Octets that hold one control message of either kind.
pub(crate) const CONTROL: usize = 64;

/// Parameters of a message to send (RFC 6458 §5.3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendInfo {
    /// The stream.
    pub stream: u16,
    /// The payload protocol identifier.
    pub ppid: u32,
    /// True if the message may be delivered out of order.
    pub unordered: bool,
}

/// Parameters of a received message (RFC 6458 §5.3.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceiveInfo {
    /// The stream.
    pub stream: u16,
    /// The payload protocol identifier. 0 is unspecified.
    pub ppid: u32,
    /// True if the message may have been delivered out of order.
    pub unordered: bool,
}

/// The new state of one of the peer's addresses (RFC 6458 §6.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerAddressState {
    /// The address answers again.
    Available,
    /// The address does not answer.
    Unreachable,
    /// The address was removed from the association.
    Removed,
    /// The address was added to the association.
    Added,
    /// The address is now the primary one.
    Primary,
    /// The address answered for the first time.
    Confirmed,
    /// The address misses its first answers.
    PotentiallyFailed,
}

/// The new state of the association (RFC 6458 §6.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AssociationStateChange {
    /// It is up.
    Up,
    /// It failed, or the peer aborted it.
    Lost,
    /// The peer restarted it.
    Restarted,
    /// It was shut down in order.
    ShutDown,
    /// It could not be set up.
    CannotStart,
}

/// A notification of the kernel about an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SctpNotification {
    Association {
        state: AssociationStateChange,
        error: u16,
        outbound: u16,
        inbound: u16,
    },
    Address {
        address: SocketAddr,
        state: PeerAddressState,
    },
    /// The peer sends no more data.
    Shutdown,
    /// A partially delivered message will not be completed.
    DeliveryAborted,
    /// Another kind, or one that cannot be parsed.
    Other,
}

/// Reads numbers in host byte order.
struct FieldReader<'a>(&'a [u8]);

impl FieldReader<'_> {
    fn read_array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }
    fn read_u16(&self, at: usize) -> Option<u16> {
        self.read_array(at).map(u16::from_ne_bytes)
    }
    fn read_u32(&self, at: usize) -> Option<u32> {
        self.read_array(at).map(u32::from_ne_bytes)
    }
}

/// Appends an address in the system's form (`sockaddr_in`, `sockaddr_in6`).
pub(crate) fn write_address(address: SocketAddr, out: &mut Vec<u8>) {
    match address {
        SocketAddr::V4(v4) => {
            out.extend((libc::AF_INET as u16).to_ne_bytes());
            out.extend(v4.port().to_be_bytes());
            out.extend(v4.ip().octets());
            out.extend([0; 8]);
        }
        SocketAddr::V6(v6) => {
            out.extend((libc::AF_INET6 as u16).to_ne_bytes());
            out.extend(v6.port().to_be_bytes());
            out.extend(v6.flowinfo().to_be_bytes());
            out.extend(v6.ip().octets());
            out.extend(v6.scope_id().to_ne_bytes());
        }
    }
}

/// Reads an IPv4 or IPv6 address from the beginning of `octets`. Returns it with its length in octets. An IPv4-mapped
/// IPv6 address becomes an IPv4 address.
pub(crate) fn read_address(octets: &[u8]) -> Option<(SocketAddr, usize)> {
    let fields = FieldReader(octets);
    let port = u16::from_be_bytes(fields.read_array(2)?);
    match i32::from(fields.read_u16(0)?) {
        libc::AF_INET => {
            let ip = Ipv4Addr::from(fields.read_array::<4>(4)?);
            octets.get(..16).map(|_| (SocketAddr::from((ip, port)), 16))
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(fields.read_array::<16>(8)?);
            let scope = fields.read_u32(24)?;
            let address = match ip.to_canonical() {
                IpAddr::V4(v4) => SocketAddr::from((v4, port)),
                IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope).into(),
            };
            Some((address, 28))
        }
        _ => None,
    }
}

/// Decodes the addresses in the result of `SCTP_GET_PEER_ADDRS` or `SCTP_GET_LOCAL_ADDRS`.
pub(crate) fn read_addresses(octets: &[u8]) -> Vec<SocketAddr> {
    let count = FieldReader(octets).read_u32(4).unwrap_or(0);
    let mut rest = octets.get(ADDRESSES..).unwrap_or(&[]);
    let mut addresses = Vec::new();
    for _ in 0..count {
        let Some((address, length)) = read_address(rest) else { break };
        addresses.push(address);
        rest = rest.get(length..).unwrap_or(&[]);
    }
    addresses
}

/// `SCTP_INITMSG`: outbound and inbound streams, attempts and their longest timeout in milliseconds. 0 keeps the
/// system's value.
pub(crate) fn encode_initmsg(out: u16, inbound: u16, attempts: u16, timeout: u16) -> [u8; 8] {
    let mut value = [0; 8];
    for (place, field) in value.chunks_exact_mut(2).zip([out, inbound, attempts, timeout]) {
        place.copy_from_slice(&field.to_ne_bytes());
    }
    value
}

/// Encodes the words of an option. The first is the association id 0: the socket's current or future association.
fn encode_words<const N: usize>(values: [u32; N]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// `SCTP_RTOINFO`: milliseconds. 0 keeps the current value.
pub(crate) fn encode_rtoinfo(initial: u32, max: u32, min: u32) -> Vec<u8> {
    encode_words([0, initial, max, min])
}

/// `SCTP_DELAYED_SACK`: milliseconds and packets. A delay of 0 keeps the current value. One packet means no delay.
pub(crate) fn encode_delayed_sack(delay: u32, packets: u32) -> Vec<u8> {
    encode_words([0, delay, packets])
}

/// `SCTP_ASSOCINFO`: consecutive retransmissions after which an association fails. Other fields keep their values.
pub(crate) fn encode_assocparams(max_retransmissions: u16) -> Vec<u8> {
    let mut value = encode_words([0; 5]);
    value[4..6].copy_from_slice(&max_retransmissions.to_ne_bytes());
    value
}

/// Encodes the control message of a message to send (`SCTP_SNDINFO`).
pub(crate) fn write_sndinfo(outgoing: SendInfo) -> Vec<u8> {
    let mut control = Vec::with_capacity(CONTROL);
    control.extend((HEAD + 16).to_ne_bytes());
    control.extend(libc::IPPROTO_SCTP.to_ne_bytes());
    control.extend(CMSG_SNDINFO.to_ne_bytes());
    control.extend(outgoing.stream.to_ne_bytes());
    control.extend(if outgoing.unordered { UNORDERED } else { 0 }.to_ne_bytes());
    // The kernel passes the identifier on unchanged, so it must be in network byte order here.
    control.extend(outgoing.ppid.to_be_bytes());
    control.extend([0; 8]);
    control
}

/// Decodes the parameters of a received message from its control messages (`SCTP_RCVINFO`). `None` if they are
/// absent.
pub(crate) fn read_rcvinfo(mut control: &[u8]) -> Option<ReceiveInfo> {
    loop {
        let length = usize::from_ne_bytes(FieldReader(control).read_array(0)?);
        let fields = FieldReader(control);
        let (level, kind) = (fields.read_u32(HEAD - 8)?, fields.read_u32(HEAD - 4)?);
        let body = FieldReader(control.get(HEAD..length)?);
        if level == libc::IPPROTO_SCTP as u32 && kind == CMSG_RCVINFO as u32 {
            return Some(ReceiveInfo {
                stream: body.read_u16(0)?,
                unordered: body.read_u16(4)? & UNORDERED != 0,
                ppid: u32::from_be_bytes(body.read_array(8)?),
            });
        }
        control = control.get(length.next_multiple_of(size_of::<usize>())..)?;
    }
}

/// Decodes a notification.
pub(crate) fn read_notification(octets: &[u8]) -> SctpNotification {
    let fields = FieldReader(octets);
    let read = match fields.read_u16(0) {
        Some(ASSOC_CHANGE) => parse_association_change(&fields),
        Some(PEER_ADDR_CHANGE) => parse_address_change(octets),
        Some(SHUTDOWN_EVENT) => Some(SctpNotification::Shutdown),
        // Linux has one indication for this event: delivery was aborted.
        Some(PARTIAL_DELIVERY_EVENT) => {
            (fields.read_u32(8) == Some(0)).then_some(SctpNotification::DeliveryAborted)
        }
        _ => None,
    };
    read.unwrap_or(SctpNotification::Other)
}

fn parse_association_change(fields: &FieldReader<'_>) -> Option<SctpNotification> {
    let state = match fields.read_u16(8)? {
        0 => AssociationStateChange::Up,
        1 => AssociationStateChange::Lost,
        2 => AssociationStateChange::Restarted,
        3 => AssociationStateChange::ShutDown,
        4 => AssociationStateChange::CannotStart,
        _ => return None,
    };
    let (error, outbound, inbound) = (fields.read_u16(10)?, fields.read_u16(12)?, fields.read_u16(14)?);
    Some(SctpNotification::Association { state, error, outbound, inbound })
}

fn parse_address_change(octets: &[u8]) -> Option<SctpNotification> {
    let state = match FieldReader(octets).read_u32(8 + STORAGE)? {
        0 => PeerAddressState::Available,
        1 => PeerAddressState::Unreachable,
        2 => PeerAddressState::Removed,
        3 => PeerAddressState::Added,
        4 => PeerAddressState::Primary,
        5 => PeerAddressState::Confirmed,
        6 => PeerAddressState::PotentiallyFailed,
        _ => return None,
    };
    let (address, _) = read_address(octets.get(8..8 + STORAGE)?)?;
    Some(SctpNotification::Address { address, state })
}

/// The result of `SCTP_STATUS`: outbound and inbound streams, and the primary path's address, congestion window,
/// round-trip time, timeout and MTU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RawStatus {
    pub(crate) outbound: u16,
    pub(crate) inbound: u16,
    pub(crate) primary: SocketAddr,
    pub(crate) cwnd: u32,
    pub(crate) srtt: u32,
    pub(crate) rto: u32,
    pub(crate) mtu: u32,
}

pub(crate) fn parse_association_status(octets: &[u8]) -> Option<RawStatus> {
    const PRIMARY: usize = 24;
    const PATH: usize = PRIMARY + 4 + STORAGE;
    let fields = FieldReader(octets);
    Some(RawStatus {
        inbound: fields.read_u16(16)?,
        outbound: fields.read_u16(18)?,
        primary: read_address(octets.get(PRIMARY + 4..PATH)?)?.0,
        cwnd: fields.read_u32(PATH + 4)?,
        srtt: fields.read_u32(PATH + 8)?,
        rto: fields.read_u32(PATH + 12)?,
        mtu: fields.read_u32(PATH + 16)?,
    })
}

#[cfg(test)]
mod tests;

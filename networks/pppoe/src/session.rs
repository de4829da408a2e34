//! What a data plane is told of a session, and what it tells of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A session whose packets are to be carried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataPlaneSession {
    /// SESSION_ID (RFC 2516 §4), which no other session of the plane has.
    pub number: u16,
    /// At which port its host is, counted as in [`DataPlaneConfig::ports`](crate::DataPlaneConfig::ports).
    pub port: usize,
    /// The host's address of Ethernet.
    pub peer: [u8; 6],
    /// Octets of the longest IP packet, either way.
    pub mtu: u16,
    /// The host's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Our IPv4 address as the host knows it; it becomes one of the device's.
    pub gateway: Option<Ipv4Addr>,
    /// Further IPv4 networks behind the host (Framed-Route, RFC 2865 §5.22), with their lengths.
    pub networks: Vec<(Ipv4Addr, u8)>,
    /// Prefixes whose IPv6 packets are the host's (Framed-IPv6-Prefix, Delegated-IPv6-Prefix), with their lengths.
    pub ipv6: Vec<(Ipv6Addr, u8)>,
    /// The interface identifier that IPv6CP gave the host (RFC 5072 §4.1).
    pub link_local: Option<[u8; 8]>,
    /// Bits a second from the host; `None`: no limit.
    pub rate_up: Option<u64>,
    /// Bits a second to the host; `None`: no limit.
    pub rate_down: Option<u64>,
    /// Whether the maximum segment size that TCP announces is lowered to what the MTU leaves, both ways.
    pub clamp_mss: bool,
}

impl DataPlaneSession {
    /// The networks whose packets are the host's, each as its first address and how many leading bits count.
    pub fn all_networks(&self) -> impl Iterator<Item = (IpAddr, u8)> + '_ {
        let own = self.ipv4.iter().map(|ip| (IpAddr::V4(*ip), 32));
        let further = self.networks.iter().map(|(ip, bits)| (IpAddr::V4(*ip), *bits));
        let ipv6 = self.ipv6.iter().map(|(ip, bits)| (IpAddr::V6(*ip), *bits));
        own.chain(further).chain(ipv6)
    }

    /// Checks what holds whatever else is installed.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn validate(&self, ports: usize) -> Result<(), SessionError> {
        if matches!(self.number, 0 | 0xffff) {
            return Err(SessionError::Number(self.number));
        }
        if self.port >= ports {
            return Err(SessionError::Port { port: self.port, ports });
        }
        let least = if self.ipv6.is_empty() { LEAST_MTU } else { LEAST_MTU_IPV6 };
        if self.mtu < least {
            return Err(SessionError::Mtu { mtu: self.mtu, least });
        }
        for (network, bits) in self.all_networks() {
            if bits > if network.is_ipv4() { 32 } else { 128 } {
                return Err(SessionError::Length { network, bits });
            }
        }
        Ok(())
    }
}

/// Octets that every link with IPv4 carries (RFC 791 §3.2).
const LEAST_MTU: u16 = 68;
/// Octets that every link with IPv6 carries (RFC 8200 §5).
const LEAST_MTU_IPV6: u16 = 1280;

/// Why a session cannot be installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionError {
    /// RFC 2516 §4 keeps it for discovery, or for later.
    #[error("session number {0:#06x} is no session's: take one from 0x0001 to 0xfffe")]
    Number(u16),
    /// No such port.
    #[error("there is no port {port}: the plane has {ports}, counted from 0")]
    Port {
        /// The port.
        port: usize,
        /// How many there are.
        ports: usize,
    },
    /// IP cannot work over so little.
    #[error("an MTU of {mtu} octets is less than IP's least, {least}")]
    Mtu {
        /// The MTU.
        mtu: u16,
        /// What it has to be.
        least: u16,
    },
    /// More bits than an address has.
    #[error("network {network}/{bits}: an address has not so many bits")]
    Length {
        /// The network.
        network: IpAddr,
        /// Its length.
        bits: u8,
    },
    /// Packets to it could go either way.
    #[error("network {network}/{bits} is session {other}'s: remove that one first")]
    NetworkTaken {
        /// The network.
        network: IpAddr,
        /// Its length.
        bits: u8,
        /// Whose it is.
        other: u16,
    },
    /// More networks than a session of this plane has room for.
    #[error("{count} networks of IPv{version}: a session in eBPF has room for {most}")]
    TooMany {
        /// How many there are.
        count: usize,
        /// Of which version of IP.
        version: u8,
        /// How many there may be.
        most: usize,
    },
}

/// What a session has carried and lost since it was installed. Octets are those of IP packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DataPlaneUsage {
    /// Octets from the host (Acct-Input-Octets).
    pub octets_in: u64,
    /// Octets to the host (Acct-Output-Octets).
    pub octets_out: u64,
    /// Packets from the host.
    pub packets_in: u64,
    /// Packets to the host.
    pub packets_out: u64,
    /// Packets from the host whose source is not the host's, and which were dropped.
    pub spoofed: u64,
    /// Packets beyond a rate limit, either way, which were dropped.
    pub limited: u64,
}

impl DataPlaneUsage {
    /// The sum of what two parts of a plane have counted.
    #[must_use]
    pub const fn sum_with(self, other: Self) -> Self {
        Self {
            octets_in: self.octets_in + other.octets_in,
            octets_out: self.octets_out + other.octets_out,
            packets_in: self.packets_in + other.packets_in,
            packets_out: self.packets_out + other.packets_out,
            spoofed: self.spoofed + other.spoofed,
            limited: self.limited + other.limited,
        }
    }
}

usher_core::counters! {
    /// What became of frames and packets that no session's [`DataPlaneUsage`] has, or that say something of the plane as a whole.
    pub struct DataPlaneCounters {
        /// Frames that came: of discovery, and of sessions.
        frames_in,
        /// Frames with packets that were sent to hosts.
        frames_out,
        /// Frames that were handed up: discovery and PPP's control protocols.
        control,
        /// Frames and packets whose lengths or headers cannot be.
        malformed,
        /// Packets of a session that is not installed.
        no_session,
        /// Packets of a session from another station, to another station or at another port than its own.
        wrong_station,
        /// Packets whose source address is not their session's.
        spoofed,
        /// Packets beyond a session's rate limit.
        limited,
        /// Packets to addresses that are no session's.
        no_host,
        /// Packets to hosts that are longer than their session's MTU.
        too_long,
        /// Frames that the kernel did not send: mostly the interface's queue was full.
        not_sent,
        /// Packets from hosts that the kernel did not take.
        not_delivered,
        /// Frames of other protocols than PPPoE at the access interface, in eBPF mode alone; in user mode the kernel counts them.
        other_protocol,
    }
}

//! The sessions of a data plane, and their usage.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A session to install.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataPlaneSession {
    /// SESSION_ID (RFC 2516 §4), unique in the plane.
    pub number: u16,
    /// The index of the host's port in [`DataPlaneConfig::ports`](crate::DataPlaneConfig::ports).
    pub port: usize,
    /// The host's Ethernet address.
    pub peer: [u8; 6],
    /// Octets of the longest IP packet, in both directions.
    pub mtu: u16,
    /// The host's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The concentrator's IPv4 address on the link. The device gets it.
    pub gateway: Option<Ipv4Addr>,
    /// Further IPv4 networks behind the host, with their lengths (Framed-Route, RFC 2865 §5.22).
    pub networks: Vec<(Ipv4Addr, u8)>,
    /// The host's IPv6 prefixes, with their lengths (Framed-IPv6-Prefix, Delegated-IPv6-Prefix).
    pub ipv6: Vec<(Ipv6Addr, u8)>,
    /// The host's interface identifier, from IPv6CP (RFC 5072 §4.1).
    pub link_local: Option<[u8; 8]>,
    /// Rate from the host, bit/s; `None`: unlimited.
    pub rate_up: Option<u64>,
    /// Rate to the host, bit/s; `None`: unlimited.
    pub rate_down: Option<u64>,
    /// True to clamp the MSS of TCP to the MTU, in both directions.
    pub clamp_mss: bool,
}

impl DataPlaneSession {
    /// Returns the host's networks, each as first address and prefix length.
    pub fn all_networks(&self) -> impl Iterator<Item = (IpAddr, u8)> + '_ {
        let own = self.ipv4.iter().map(|ip| (IpAddr::V4(*ip), 32));
        let further = self.networks.iter().map(|(ip, bits)| (IpAddr::V4(*ip), *bits));
        let ipv6 = self.ipv6.iter().map(|(ip, bits)| (IpAddr::V6(*ip), *bits));
        own.chain(further).chain(ipv6)
    }

    /// Checks the session by itself, without regard to other sessions.
    ///
    /// # Errors
    /// [`SessionInstallError`].
    pub fn validate(&self, ports: usize) -> Result<(), SessionInstallError> {
        if matches!(self.number, 0 | 0xffff) {
            return Err(SessionInstallError::Number(self.number));
        }
        if self.port >= ports {
            return Err(SessionInstallError::Port { port: self.port, ports });
        }
        let least = if self.ipv6.is_empty() { LEAST_MTU } else { LEAST_MTU_IPV6 };
        if self.mtu < least {
            return Err(SessionInstallError::Mtu { mtu: self.mtu, least });
        }
        for (network, bits) in self.all_networks() {
            if bits > if network.is_ipv4() { 32 } else { 128 } {
                return Err(SessionInstallError::Length { network, bits });
            }
        }
        Ok(())
    }
}

/// The minimum MTU of IPv4 (RFC 791 §3.2).
const LEAST_MTU: u16 = 68;
/// The minimum MTU of IPv6 (RFC 8200 §5).
const LEAST_MTU_IPV6: u16 = 1280;

/// The reason why a session cannot be installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionInstallError {
    /// The SESSION_ID is reserved (RFC 2516 §4).
    #[error("session number {0:#06x} is reserved: use 0x0001 to 0xfffe")]
    Number(u16),
    /// There is no such port.
    #[error("no port {port}: the data plane has {ports}, numbered from 0")]
    Port {
        /// The port.
        port: usize,
        /// The number of ports.
        ports: usize,
    },
    /// The MTU is below IP's minimum.
    #[error("an MTU of {mtu} octets is less than IP's minimum of {least}")]
    Mtu {
        /// The MTU.
        mtu: u16,
        /// The minimum.
        least: u16,
    },
    /// A prefix is longer than an address.
    #[error("network {network}/{bits}: the prefix is longer than an address")]
    Length {
        /// The network.
        network: IpAddr,
        /// Its length.
        bits: u8,
    },
    /// Another session has the network.
    #[error("network {network}/{bits} belongs to session {other}: remove that session first")]
    NetworkTaken {
        /// The network.
        network: IpAddr,
        /// Its length.
        bits: u8,
        /// The other session.
        other: u16,
    },
    /// Too many networks for a session of this mode.
    #[error("{count} IPv{version} networks: a session in eBPF mode has at most {most}")]
    TooMany {
        /// The number of networks.
        count: usize,
        /// The IP version.
        version: u8,
        /// The maximum.
        most: usize,
    },
}

/// The traffic and drops of a session since its installation. Octets are those of IP packets.
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
    /// Packets from the host with a foreign source, dropped.
    pub spoofed: u64,
    /// Packets beyond a rate limit in either direction, dropped.
    pub limited: u64,
}

impl DataPlaneUsage {
    /// Returns the sum of two usages.
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
    /// Counts frames and packets of the data plane as a whole, beside the [`DataPlaneUsage`] of sessions.
    pub struct DataPlaneCounters {
        /// Frames received: of discovery and of sessions.
        frames_in,
        /// Frames with packets sent to hosts.
        frames_out,
        /// Frames passed to the control plane: discovery and PPP's control protocols.
        control,
        /// Frames and packets with invalid lengths or headers, dropped.
        malformed,
        /// Packets of sessions that are not installed, dropped.
        no_session,
        /// Packets of a session with the wrong source station, destination station or port, dropped.
        wrong_station,
        /// Packets with a source address that is not their session's, dropped.
        spoofed,
        /// Packets beyond a session's rate limit, dropped.
        limited,
        /// Packets to addresses without a session, dropped.
        no_host,
        /// Packets to hosts that exceed the MTU of their session, dropped.
        too_long,
        /// Frames that the kernel did not send, mostly because the interface's queue was full.
        not_sent,
        /// Packets from hosts that the kernel did not accept.
        not_delivered,
        /// Frames of protocols other than PPPoE at the access interfaces. Only eBPF mode counts them; in user mode the
        /// kernel does.
        other_protocol,
    }
}

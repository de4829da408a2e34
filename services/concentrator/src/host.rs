//! Hosts: their PPPoE sessions, the sessions of their users, and their entries in the data plane.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use usher_access::{SubscriberAddresses, SubscriberPlace, TerminateCause};
use usher_core::LinkLayerPortId;
use usher_ppp::concentrator::{AuthenticationReply, PppoeSessionId, SubscriberInfo};
use usher_ppp::pppoe::MacAddress;
use usher_ppp::{AddressAssignment, AddressFamily, EndReason, Ipv6Prefix, NegotiatedAddresses};

/// The host of a PPPoE session.
#[derive(Debug)]
pub(crate) struct AttachedHost {
    pub(crate) subscriber: SubscriberInfo,
    /// Its place in requests and records, from its first proof on.
    pub(crate) place: Option<Arc<SubscriberPlace>>,
}

/// The usage of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionUsage {
    /// Octets of packets from the host.
    pub octets_in: u64,
    /// Octets of packets to the host.
    pub octets_out: u64,
    /// Packets from the host.
    pub packets_in: u64,
    /// Packets to the host.
    pub packets_out: u64,
    /// Packets of the host with a foreign source address, dropped.
    pub spoofed: u64,
    /// Packets beyond the session's rate, dropped.
    pub limited: u64,
}

impl SessionUsage {
    pub(crate) fn combine_counters(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            octets_in: with(self.octets_in, other.octets_in),
            octets_out: with(self.octets_out, other.octets_out),
            packets_in: with(self.packets_in, other.packets_in),
            packets_out: with(self.packets_out, other.packets_out),
            spoofed: with(self.spoofed, other.spoofed),
            limited: with(self.limited, other.limited),
        }
    }
}

/// A session's entry in the data plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionEntry {
    /// The session's number at this concentrator, never reused.
    pub id: u64,
    /// SESSION_ID.
    pub number: u16,
    /// The port.
    pub port: LinkLayerPortId,
    /// The host's address at the port.
    pub peer: MacAddress,
    /// Octets of the longest packet.
    pub mtu: u16,
    /// The host's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The IPv4 address of this side.
    pub gateway: Option<Ipv4Addr>,
    /// The host's prefixes: valid sources of its packets.
    pub ipv6: Vec<(Ipv6Addr, u8)>,
    /// The host's interface identifier, for its link-local address.
    pub link_local: Option<[u8; 8]>,
    /// Rate from the host, bit/s; `None`: unlimited.
    pub rate_up: Option<u64>,
    /// Rate to the host, bit/s; `None`: unlimited.
    pub rate_down: Option<u64>,
    /// True to clamp the TCP MSS.
    pub clamp_mss: bool,
}

/// The host of a user's session.
#[derive(Debug)]
pub(crate) struct HostSession {
    pub(crate) wire: PppoeSessionId,
    pub(crate) subscriber: SubscriberInfo,
    pub(crate) assignment: AddressAssignment,
    /// The reply that the host gets once the log has stored the session.
    pub(crate) reply: Option<AuthenticationReply>,
    pub(crate) networks: BTreeMap<AddressFamily, NegotiatedAddresses>,
    pub(crate) mtu: u16,
    pub(crate) is_installed: bool,
    pub(crate) usage: SessionUsage,
    /// The usage at the last installation. A data plane counts from zero.
    pub(crate) usage_before: SessionUsage,
    /// The reason of the end.
    pub(crate) end_reason: String,
}

impl HostSession {
    pub(crate) fn ipv4_address(&self) -> Option<Ipv4Addr> {
        self.assignment.ipv4.as_ref().map(|ipv4| ipv4.remote)
    }
    pub(crate) fn ipv6_prefixes(&self) -> Vec<(Ipv6Addr, u8)> {
        assigned_prefixes(&self.assignment).map(|prefix| (prefix.address(), prefix.prefix_length())).collect()
    }
    /// Returns the addresses in records.
    pub(crate) fn subscriber_addresses(assignment: &AddressAssignment) -> SubscriberAddresses {
        let ipv6 = assignment.ipv6.as_ref();
        let pair = |prefix: Ipv6Prefix| (prefix.address(), prefix.prefix_length());
        SubscriberAddresses {
            ipv4: assignment.ipv4.as_ref().map(|ipv4| ipv4.remote),
            ipv6: ipv6.and_then(|ipv6| ipv6.prefix).map(pair),
            delegated: ipv6.and_then(|ipv6| ipv6.delegated).map(pair),
        }
    }
    pub(crate) fn to_data_plane_entry(
        &self,
        id: u64,
        (rate_up, rate_down): (Option<u64>, Option<u64>),
        clamp_mss: bool,
    ) -> SessionEntry {
        let (mut ipv4, mut gateway, mut ipv6, mut link_local) = (None, None, Vec::new(), None);
        for network in self.networks.values() {
            match network {
                NegotiatedAddresses::Ipv4 { local, remote, .. } => {
                    (ipv4, gateway) = (Some(*remote), Some(*local))
                }
                NegotiatedAddresses::Ipv6 { remote, prefixes, .. } => {
                    ipv6 = prefixes.iter().map(|prefix| (prefix.address(), prefix.prefix_length())).collect();
                    link_local = remote.octets().last_chunk::<8>().copied();
                }
            }
        }
        SessionEntry {
            id,
            number: self.subscriber.number,
            port: self.subscriber.port,
            peer: self.subscriber.address,
            mtu: self.mtu,
            ipv4,
            gateway,
            ipv6,
            link_local,
            rate_up,
            rate_down,
            clamp_mss,
        }
    }
}

/// Returns the prefixes of an assignment.
pub(crate) fn assigned_prefixes(assignment: &AddressAssignment) -> impl Iterator<Item = Ipv6Prefix> {
    let ipv6 = assignment.ipv6.as_ref();
    ipv6.into_iter().flat_map(|ipv6| ipv6.prefix.into_iter().chain(ipv6.delegated))
}

/// Shows octets as text, with `\xNN` for invalid UTF-8, so that different octets never look the same.
pub(crate) fn display_octets(octets: &[u8]) -> String {
    core::str::from_utf8(octets).map_or_else(|_| octets.escape_ascii().to_string(), ToString::to_string)
}

/// Returns the port and address of a host.
pub(crate) const fn subscriber_station_key(of: &SubscriberInfo) -> (LinkLayerPortId, MacAddress) {
    (of.port, of.address)
}

/// Returns the fallback user name of a session whose AAA server names no user. It is unique to the session.
pub(crate) fn fallback_session_user_name(acct: &str) -> String {
    alloc::format!("session {acct}")
}

/// Returns the Acct-Terminate-Cause of an end (RFC 2866 §5.10).
pub(crate) const fn terminate_cause(reason: EndReason) -> TerminateCause {
    match reason {
        EndReason::Closed => TerminateCause::NasRequest,
        EndReason::PeerClosed | EndReason::Padt | EndReason::Replaced => TerminateCause::UserRequest,
        EndReason::Unreachable | EndReason::Looped => TerminateCause::LostCarrier,
        EndReason::NotConverging
        | EndReason::SetupTimeout
        | EndReason::NoAuthentication
        | EndReason::AuthenticationNotRequested
        | EndReason::AuthenticationFailed
        | EndReason::Refused
        | EndReason::TooLong
        | EndReason::Impostor
        | EndReason::NoNetwork
        | EndReason::Protocol
        | EndReason::Renegotiating
        | EndReason::NoConcentrator => TerminateCause::UserError,
        EndReason::CrowdedOut | EndReason::Unjudged => TerminateCause::NasError,
    }
}

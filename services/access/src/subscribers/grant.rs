//! The authorization of a subscriber.

use super::config::SubscriberConfig;
use crate::{AccessReply, FramedAddress};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_core::Duration;
use usher_core::address::is_host_address;

/// Bits of the shortest prefix that an AAA server may assign: the usual size of a registry's allocation (RFC 7020). A
/// shorter prefix is a mistake and would route others' packets to a host.
const SHORTEST_PREFIX: u8 = 32;

/// The authorization of a subscriber by an AAA server, or by the access server itself.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SubscriberGrant {
    /// The user name for logs, IDENT and limits.
    pub user: Vec<u8>,
    /// The user name of the login. For EAP it is the outer identity.
    pub login: Vec<u8>,
    /// True if only the AAA server knows the inner identity (tunnel, certificate). Then [`user`](Self::user) is not a
    /// user name.
    pub is_nameless: bool,
    /// Class, which records return unchanged (RFC 2865 §5.25).
    pub classes: Vec<Vec<u8>>,
    /// Framed-IP-Address.
    pub ipv4: Option<Ipv4Addr>,
    /// Framed-IPv6-Address (RFC 6911).
    pub ipv6: Vec<Ipv6Addr>,
    /// Framed-Pool.
    pub pool: Option<String>,
    /// Framed-Interface-Id.
    pub interface_id: Option<[u8; 8]>,
    /// Framed-IPv6-Prefix.
    pub prefix: Option<(Ipv6Addr, u8)>,
    /// Framed-IPv6-Pool.
    pub prefix_pool: Option<String>,
    /// Delegated-IPv6-Prefix.
    pub delegated: Option<(Ipv6Addr, u8)>,
    /// Delegated-IPv6-Prefix-Pool.
    pub delegated_pool: Option<String>,
    /// Name servers.
    pub dns: Vec<IpAddr>,
    /// Session-Timeout; `None`: the default.
    pub session_timeout: Option<Duration>,
    /// Idle-Timeout; `None`: the default.
    pub idle_timeout: Option<Duration>,
    /// Acct-Interim-Interval.
    pub interim: Option<Duration>,
    /// Filter-Id: names of rates.
    pub filters: Vec<String>,
    /// Rates up and down, bit/s.
    pub bandwidth: (Option<u64>, Option<u64>),
    /// The token of the accepted request.
    pub token: Option<u64>,
}

impl SubscriberGrant {
    /// Returns the grant of a user of the access server itself.
    #[must_use]
    pub fn for_local_user(name: &[u8]) -> Self {
        Self { user: name.to_vec(), login: name.to_vec(), ..Self::default() }
    }

    /// Reads the grant of an accepting reply, without addresses that the service does not assign. `hides_identity` is
    /// true if the reply alone can name the user. `None` if the reply names a user that logs cannot show, or assigns an
    /// address that no host may have.
    pub(super) fn from_reply(
        reply: &AccessReply,
        login: &[u8],
        hides_identity: bool,
        token: u64,
        config: &SubscriberConfig,
    ) -> Option<Self> {
        let user = reply.user_name().filter(|name| !name.is_empty()).unwrap_or(login);
        let (up, down) = reply.bandwidth();
        let grant = Self {
            user: user.to_vec(),
            login: login.to_vec(),
            is_nameless: hides_identity && user == login,
            classes: reply.classes().map(<[u8]>::to_vec).collect(),
            ipv4: match reply.framed_ip_address() {
                Some(FramedAddress::Address(address)) => Some(address),
                Some(FramedAddress::NasChooses | FramedAddress::UserChooses) | None => None,
            },
            ipv6: reply.framed_ipv6_addresses().filter(|_| config.assigns_ipv6_addresses).collect(),
            pool: reply.framed_pool().map(Into::into),
            interface_id: reply.framed_interface_id(),
            prefix: reply.framed_ipv6_prefixes().next().filter(|_| config.assigns_prefixes),
            prefix_pool: reply.framed_ipv6_pool().map(Into::into),
            delegated: reply.delegated_ipv6_prefixes().next().filter(|_| config.assigns_prefixes),
            delegated_pool: reply.delegated_ipv6_prefix_pool().map(Into::into),
            dns: reply.dns_servers().collect(),
            session_timeout: nonzero_limit(reply.session_timeout()),
            idle_timeout: nonzero_limit(reply.idle_timeout()),
            interim: reply.interim_interval(),
            filters: reply.filter_ids().map(Into::into).collect(),
            bandwidth: (up.map(u64::from), down.map(u64::from)),
            token: Some(token),
        };
        (is_printable_name(&grant.user) && grant.has_valid_addresses()).then_some(grant)
    }

    /// The assigned addresses of hosts: IPv4, then IPv6.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.ipv4.map(IpAddr::V4).into_iter().chain(self.ipv6.iter().copied().map(IpAddr::V6))
    }
    /// True if hosts may have the assigned addresses, and the two prefixes do not overlap.
    fn has_valid_addresses(&self) -> bool {
        let valid = |(prefix, bits): (Ipv6Addr, u8)| {
            (SHORTEST_PREFIX..=128).contains(&bits) && is_host_address(prefix.into())
        };
        let do_overlap = |(a, a_bits): (Ipv6Addr, u8), (b, b_bits): (Ipv6Addr, u8)| {
            usher_core::address::is_within(a.into(), (b.into(), a_bits.min(b_bits)))
        };
        self.addresses().all(is_host_address)
            && [self.prefix, self.delegated].into_iter().flatten().all(valid)
            && !self.prefix.zip(self.delegated).is_some_and(|(a, b)| do_overlap(a, b))
    }

    /// Returns User-Name of records (RFC 2865 §5.1).
    pub(super) fn accounting_name(&self) -> &[u8] {
        if self.is_nameless { &self.login } else { &self.user }
    }
}

/// Returns a limit of a server. Zero means unlimited, as in Diameter (RFC 6733 §8.13).
pub(super) fn nonzero_limit(limit: Option<Duration>) -> Option<Duration> {
    limit.filter(|limit| !limit.is_zero())
}

/// True if a name is UTF-8 (RFC 2865 §5.1) without control characters, which would falsify its display.
pub(super) fn is_printable_name(name: &[u8]) -> bool {
    core::str::from_utf8(name).is_ok_and(|name| !name.contains(char::is_control))
}

//! The addresses and prefixes of hosts, from the AAA server or from pools, and the table of their sessions.

use crate::login::UserAuthorization;
use crate::service::{AccessConcentrator, LoginFailure};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_access::pool::Lease;
use usher_core::address::is_host_address;
use usher_ppp::{AddressAssignment, InterfaceIdentifier, Ipv4Assignment, Ipv6Assignment, Ipv6Prefix};

/// The default addresses for hosts, which an AAA server can override.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddressingConfig {
    /// This side's IPv4 address on every link; `None`: no IPv4.
    pub local: Option<Ipv4Addr>,
    /// Names of the IPv4 pools, by preference.
    pub pools: Vec<String>,
    /// True if hosts may have IPv6.
    pub ipv6: bool,
    /// The pool of link prefixes, from which hosts form addresses.
    pub prefix_pool: Option<String>,
    /// The pool of prefixes to delegate to networks behind hosts.
    pub delegated_pool: Option<String>,
    /// Name servers.
    pub dns: Vec<IpAddr>,
}

/// The sessions of assigned addresses and prefixes. Prefixes never overlap.
#[derive(Debug, Default)]
pub(crate) struct AssignedAddresses {
    ipv4: BTreeMap<Ipv4Addr, u64>,
    /// The last address and the session, by the first address.
    ipv6: BTreeMap<u128, (u128, u64)>,
}

/// Returns the first and the last address of a prefix.
fn prefix_bounds(prefix: Ipv6Prefix) -> (u128, u128) {
    let first = prefix.address().to_bits();
    (first, first | u128::MAX.checked_shr(prefix.prefix_length().into()).unwrap_or(0))
}

impl AssignedAddresses {
    /// Returns the session of an address.
    pub(crate) fn holder_of_address(&self, address: IpAddr) -> Option<u64> {
        match address.to_canonical() {
            IpAddr::V4(v4) => self.ipv4.get(&v4).copied(),
            IpAddr::V6(v6) => {
                let (_, (last, id)) = self.ipv6.range(..=v6.to_bits()).next_back()?;
                (v6.to_bits() <= *last).then_some(*id)
            }
        }
    }
    /// Returns a session that has a part of a prefix.
    fn holder_of_prefix(&self, prefix: Ipv6Prefix) -> Option<u64> {
        let (first, last) = prefix_bounds(prefix);
        let (_, (end, id)) = self.ipv6.range(..=last).next_back()?;
        (*end >= first).then_some(*id)
    }
    fn insert(&mut self, id: u64, assignment: &AddressAssignment) {
        if let Some(ipv4) = &assignment.ipv4 {
            self.ipv4.insert(ipv4.remote, id);
        }
        for prefix in assigned_prefixes(assignment) {
            let (first, last) = prefix_bounds(prefix);
            self.ipv6.insert(first, (last, id));
        }
    }
    pub(crate) fn release(&mut self, id: u64, assignment: &AddressAssignment) {
        if let Some(ipv4) = &assignment.ipv4
            && self.ipv4.get(&ipv4.remote) == Some(&id)
        {
            self.ipv4.remove(&ipv4.remote);
        }
        for prefix in assigned_prefixes(assignment) {
            let (first, _) = prefix_bounds(prefix);
            if self.ipv6.get(&first).is_some_and(|(_, holder)| *holder == id) {
                self.ipv6.remove(&first);
            }
        }
    }
}

/// Returns the prefixes of an assignment.
pub(crate) fn assigned_prefixes(assignment: &AddressAssignment) -> impl Iterator<Item = Ipv6Prefix> {
    let ipv6 = assignment.ipv6.as_ref();
    ipv6.into_iter().flat_map(|ipv6| ipv6.prefix.into_iter().chain(ipv6.delegated))
}

/// Bits of the shortest prefix that an AAA server may assign: the usual size of a registry's allocation (RFC 7020). A
/// shorter prefix is a mistake and would route others' packets to a host.
const SHORTEST: u8 = 32;
/// Maximum leases per login that are tried because they overlap with assigned ones.
const TRIES: usize = 256;

impl AccessConcentrator {
    /// Reserves this side's address, even if it is in a pool.
    pub(crate) fn claim_local_address(&mut self) {
        if let Some(local) = self.config.addressing.local {
            self.pools.claim(Lease::Address(local.into()), self.hash.hash_one(local));
        }
    }
    pub(crate) fn release_local_address(&mut self) {
        if let Some(local) = self.config.addressing.local {
            self.pools.release(Lease::Address(local.into()));
        }
    }

    /// Returns the sessions that have a part of the addresses that an AAA server assigns to a user.
    pub(crate) fn conflicting_sessions(&self, granted: &UserAuthorization) -> Vec<u64> {
        let address =
            granted.address.and_then(|address| self.assigned_addresses.holder_of_address(address.into()));
        let prefixes = [granted.prefix, granted.delegated].into_iter().flatten();
        let prefixes = prefixes.filter_map(|(address, bits)| {
            self.assigned_addresses.holder_of_prefix(Ipv6Prefix::new(address, bits)?)
        });
        address.into_iter().chain(prefixes).collect()
    }

    /// Leases from the first of these pools with a lease that overlaps no assigned one. Overlaps arise if an AAA server
    /// assigns a prefix of another length than the pool's. An overlapping lease stays reserved as long as the assigned
    /// one.
    fn lease_without_overlap(&mut self, names: &[&str], prefix: bool, user: &[u8]) -> Option<Lease> {
        for _ in 0..TRIES {
            let lease = self.lease_from_pools(names, prefix, user)?;
            let other = match lease {
                Lease::Address(address) => self.assigned_addresses.holder_of_address(address),
                Lease::Prefix(address, bits) => {
                    Ipv6Prefix::new(address, bits).and_then(|it| self.assigned_addresses.holder_of_prefix(it))
                }
            };
            match other.and_then(|id| self.sessions.get_mut(&id)) {
                Some(other) => other.leases.push(lease),
                None => return Some(lease),
            }
        }
        None
    }

    /// Leases from the first of these pools that is not exhausted.
    fn lease_from_pools(&mut self, names: &[&str], prefix: bool, user: &[u8]) -> Option<Lease> {
        let holder = self.hash.hash_one(user);
        names.iter().find_map(|name| {
            let pool = self.pools.find_pool(name)?;
            self.pools.take_lease(pool, prefix, holder, false, self.start.into())
        })
    }

    /// Returns a user's addresses, and the leases taken from pools.
    pub(crate) fn assign_addresses(
        &mut self,
        granted: &UserAuthorization,
    ) -> Result<(AddressAssignment, Vec<Lease>), LoginFailure> {
        let mut leases = Vec::new();
        let made = self.build_assignment(granted, &mut leases);
        if made.is_err() {
            leases.iter().for_each(|lease| self.pools.release(*lease));
        }
        made.map(|assignment| (assignment, leases))
    }

    fn build_assignment(
        &mut self,
        granted: &UserAuthorization,
        leases: &mut Vec<Lease>,
    ) -> Result<AddressAssignment, LoginFailure> {
        let addressing = self.config.addressing.clone();
        let mut dns = granted.dns.clone();
        if dns.is_empty() {
            dns.clone_from(&addressing.dns);
        }
        let holder = self.hash.hash_one(&granted.user);
        let mut taken = |this: &mut Self, lease: Lease, of_pool: bool| {
            // An address from the AAA server is reserved in the pool that contains it, if there is one.
            if !of_pool {
                this.pools.claim(lease, holder);
            }
            leases.push(lease);
        };
        if granted.address.is_some_and(|address| !is_host_address(address.into())) {
            return Err(LoginFailure::BadAnswer);
        }
        let mut ipv4 = None;
        if let Some(local) = addressing.local {
            let named = granted.pool.as_deref();
            let names: Vec<&str> = match named {
                Some(named) => alloc::vec![named],
                None => addressing.pools.iter().map(String::as_str).collect(),
            };
            let given = granted.address.map(IpAddr::V4).map(Lease::Address);
            let lease = given.or_else(|| self.lease_without_overlap(&names, false, &granted.user));
            let remote = match lease {
                Some(Lease::Address(IpAddr::V4(remote))) => Some(remote),
                Some(other) => {
                    self.pools.release(other);
                    None
                }
                None => None,
            };
            if remote.is_none() && (!names.is_empty() || granted.address.is_some()) {
                return Err(LoginFailure::NoAddress);
            }
            if let Some(remote) = remote {
                taken(self, Lease::Address(remote.into()), given.is_none());
                if remote == local || self.assigned_addresses.holder_of_address(remote.into()).is_some() {
                    return Err(LoginFailure::AddressInUse);
                }
                let dns = dns.iter().filter_map(|dns| match dns {
                    IpAddr::V4(v4) => Some(*v4),
                    IpAddr::V6(_) => None,
                });
                ipv4 = Some(Ipv4Assignment { local, remote, dns: dns.collect() });
            }
        }
        let mut ipv6 = None;
        if addressing.ipv6 {
            let mut both = [None, None];
            let wants = [
                (granted.prefix, granted.prefix_pool.as_ref().or(addressing.prefix_pool.as_ref())),
                (granted.delegated, granted.delegated_pool.as_ref().or(addressing.delegated_pool.as_ref())),
            ];
            for ((given, pool), place) in wants.into_iter().zip(&mut both) {
                if given.is_some_and(|(prefix, bits)| bits < SHORTEST || !is_host_address(prefix.into())) {
                    return Err(LoginFailure::BadAnswer);
                }
                let given = given.map(|(prefix, bits): (Ipv6Addr, u8)| Lease::Prefix(prefix, bits));
                let lease = match (given, pool) {
                    (Some(given), _) => given,
                    (None, Some(pool)) => {
                        let lease = self.lease_without_overlap(&[pool], true, &granted.user);
                        lease.ok_or(LoginFailure::NoAddress)?
                    }
                    (None, None) => continue,
                };
                taken(self, lease, given.is_none());
                let Lease::Prefix(prefix, bits) = lease else { return Err(LoginFailure::NoAddress) };
                let prefix = Ipv6Prefix::new(prefix, bits).ok_or(LoginFailure::BadAnswer)?;
                if self.assigned_addresses.holder_of_prefix(prefix).is_some() {
                    return Err(LoginFailure::AddressInUse);
                }
                *place = Some(prefix);
            }
            let [prefix, delegated] = both;
            if let (Some(prefix), Some(delegated)) = (prefix, delegated) {
                let ((a, b), (c, d)) = (prefix_bounds(prefix), prefix_bounds(delegated));
                if a <= d && c <= b {
                    return Err(LoginFailure::BadAnswer);
                }
            }
            let dns = dns.iter().filter_map(|dns| match dns {
                IpAddr::V6(v6) => Some(*v6),
                IpAddr::V4(_) => None,
            });
            let remote = granted.interface_id.map(|id| InterfaceIdentifier(u64::from_be_bytes(id)));
            let local = InterfaceIdentifier::default();
            ipv6 = Some(Ipv6Assignment { local, remote, prefix, delegated, dns: dns.collect() });
        }
        if ipv4.is_none() && ipv6.is_none() {
            return Err(LoginFailure::NoAddress);
        }
        Ok(AddressAssignment { ipv4, ipv6 })
    }

    /// Records that a session has these addresses.
    pub(crate) fn record_assigned_addresses(&mut self, id: u64, assignment: &AddressAssignment) {
        self.assigned_addresses.insert(id, assignment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_prefix(text: &str, bits: u8) -> Ipv6Prefix {
        Ipv6Prefix::new(text.parse().unwrap(), bits).unwrap()
    }
    fn test_assignment(address: &str, link: Ipv6Prefix) -> AddressAssignment {
        let ipv4 = Ipv4Assignment {
            local: Ipv4Addr::new(10, 0, 0, 1),
            remote: address.parse().unwrap(),
            dns: Vec::new(),
        };
        let ipv6 = Ipv6Assignment { prefix: Some(link), ..Ipv6Assignment::default() };
        AddressAssignment { ipv4: Some(ipv4), ipv6: Some(ipv6) }
    }

    #[test]
    fn an_address_is_of_whoever_has_it_or_its_prefix() {
        let mut held = AssignedAddresses::default();
        let (a, b) = (
            test_assignment("10.0.0.2", parse_prefix("2001:db8:0:1::", 64)),
            test_assignment("10.0.0.3", parse_prefix("2001:db8:0:2::", 64)),
        );
        held.insert(1, &a);
        held.insert(2, &b);
        let at = |held: &AssignedAddresses, text: &str| held.holder_of_address(text.parse().unwrap());
        assert_eq!((at(&held, "10.0.0.2"), at(&held, "::ffff:10.0.0.3")), (Some(1), Some(2)));
        assert_eq!((at(&held, "2001:db8:0:1:ffff::1"), at(&held, "2001:db8:0:2::")), (Some(1), Some(2)));
        assert_eq!(
            (at(&held, "2001:db8:0:3::"), at(&held, "2001:db8::"), at(&held, "10.0.0.4")),
            (None, None, None)
        );
        assert_eq!(
            held.holder_of_prefix(parse_prefix("2001:db8::", 48)),
            Some(2),
            "a prefix around others is not free"
        );
        assert_eq!(
            held.holder_of_prefix(parse_prefix("2001:db8:0:1:8000::", 65)),
            Some(1),
            "nor one within another"
        );
        assert_eq!(held.holder_of_prefix(parse_prefix("2001:db8:1::", 48)), None);
        held.release(9, &a);
        assert_eq!(at(&held, "10.0.0.2"), Some(1), "who does not have it does not give it back");
        held.release(1, &a);
        assert_eq!((at(&held, "10.0.0.2"), at(&held, "2001:db8:0:1::1")), (None, None));
    }
}

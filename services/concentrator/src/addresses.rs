//! The addresses and prefixes of hosts, from the AAA server or from pools.

use crate::service::AccessConcentrator;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use usher_access::pool::Lease;
use usher_access::{LeaseHolder, LeaseKind, LoginFailure, SubscriberGrant};
use usher_ppp::{AddressAssignment, InterfaceIdentifier, Ipv4Assignment, Ipv6Assignment, Ipv6Prefix};

impl AccessConcentrator {
    /// Returns the sessions that have a part of the addresses that an AAA server assigns to a user.
    pub(crate) fn conflicting_sessions(&self, grant: &SubscriberGrant) -> Vec<u64> {
        let prefixes = [grant.prefix, grant.delegated].into_iter().flatten();
        let prefixes = prefixes.map(|(address, bits)| Lease::Prefix(address, bits));
        let address = grant.ipv4.map(|address| Lease::Address(address.into()));
        let owner = |lease| self.subscribers.leases()?.owner_of_lease(lease);
        address.into_iter().chain(prefixes).filter_map(owner).collect()
    }

    /// Returns the addresses of a user's session, and their leases.
    pub(crate) fn assign_addresses(
        &mut self,
        id: u64,
        grant: &SubscriberGrant,
    ) -> Result<(AddressAssignment, Vec<Lease>), LoginFailure> {
        let mut leases = Vec::new();
        let made = self.build_assignment(id, grant, &mut leases);
        if made.is_err() {
            leases.iter().for_each(|lease| self.subscribers.release_lease(*lease));
        }
        made.map(|assignment| (assignment, leases))
    }

    fn build_assignment(
        &mut self,
        id: u64,
        grant: &SubscriberGrant,
        leases: &mut Vec<Lease>,
    ) -> Result<AddressAssignment, LoginFailure> {
        let addressing = &self.config.addressing;
        let table = self.subscribers.leases_mut().ok_or(LoginFailure::NoAddress)?;
        let identity = table.hash_holder(&grant.user);
        let holder = LeaseHolder { identity, owner: id, is_exclusive: true };
        let mut lease = |given: Option<Lease>, pools: &[&str], kind| {
            let lease = match given {
                Some(given) if !table.claim_lease(given, &holder) => return Err(LoginFailure::AddressInUse),
                Some(given) => Some(given),
                None => table.take_lease(pools, kind, &holder),
            };
            leases.extend(lease);
            if lease.is_none() && !pools.is_empty() { Err(LoginFailure::NoAddress) } else { Ok(lease) }
        };
        let dns = if grant.dns.is_empty() { &addressing.dns } else { &grant.dns };
        let mut ipv4 = None;
        if let Some(local) = addressing.local {
            let pools = grant.pool.as_ref().map_or(&addressing.pools[..], core::slice::from_ref);
            let pools: Vec<&str> = pools.iter().map(String::as_str).collect();
            let given = grant.ipv4.map(IpAddr::V4).map(Lease::Address);
            if let Some(Lease::Address(IpAddr::V4(remote))) = lease(given, &pools, LeaseKind::Ipv4)? {
                let dns = dns.iter().filter_map(|dns| match dns {
                    IpAddr::V4(v4) => Some(*v4),
                    IpAddr::V6(_) => None,
                });
                ipv4 = Some(Ipv4Assignment { local, remote, dns: dns.collect() });
            }
        }
        let mut ipv6 = None;
        if addressing.ipv6 {
            let mut prefix = |given: Option<(Ipv6Addr, u8)>, pool: Option<&String>| {
                let given = given.map(|(prefix, bits)| Lease::Prefix(prefix, bits));
                let pools: Vec<&str> = pool.map(String::as_str).into_iter().collect();
                match lease(given, &pools, LeaseKind::Prefix)? {
                    Some(Lease::Prefix(prefix, bits)) => {
                        Ipv6Prefix::new(prefix, bits).map(Some).ok_or(LoginFailure::BadAnswer)
                    }
                    _ => Ok(None),
                }
            };
            let link_pool = grant.prefix_pool.as_ref().or(addressing.prefix_pool.as_ref());
            let delegated_pool = grant.delegated_pool.as_ref().or(addressing.delegated_pool.as_ref());
            let link = prefix(grant.prefix, link_pool)?;
            let delegated = prefix(grant.delegated, delegated_pool)?;
            let dns = dns.iter().filter_map(|dns| match dns {
                IpAddr::V6(v6) => Some(*v6),
                IpAddr::V4(_) => None,
            });
            let remote = grant.interface_id.map(|id| InterfaceIdentifier(u64::from_be_bytes(id)));
            let local = InterfaceIdentifier::default();
            ipv6 = Some(Ipv6Assignment { local, remote, prefix: link, delegated, dns: dns.collect() });
        }
        if ipv4.is_none() && ipv6.is_none() {
            return Err(LoginFailure::NoAddress);
        }
        Ok(AddressAssignment { ipv4, ipv6 })
    }
}

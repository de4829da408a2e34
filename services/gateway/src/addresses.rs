//! What initiators get: addresses of the AAA server or of pools, name servers, domains (RFC 7296 §2.19, RFC 8598).

use crate::login::Login;
use crate::service::{Gateway, LoginFailure, Peer};
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::{IpAddr, SocketAddr};
use usher_access::pool::Lease;
use usher_core::Instant;
use usher_ike::code::ConfigurationType;
use usher_ike::machine::{self as ike, SaId};
use usher_ike::payload::{ConfigurationAttribute, Identification};

impl Gateway {
    /// An initiator who has proved who it is wants addresses.
    pub(crate) fn address_wanted(
        &mut self,
        now: Instant,
        (sa, identity, connection, remote): (SaId, Identification, String, SocketAddr),
        wishes: &[ConfigurationAttribute],
    ) {
        let holder = self.hash.hash_one(&identity);
        let login = self.logins.remove(&sa);
        let mut login = login.unwrap_or_else(|| Login::new(identity, connection, remote));
        let peer = self.peer(&login.connection);
        let wants = |kind| wishes.iter().any(|wish| wish.kind == kind);
        let mut attributes = Vec::new();
        for (kind, is_v4) in [
            (ConfigurationType::INTERNAL_IP4_ADDRESS, true),
            (ConfigurationType::INTERNAL_IP6_ADDRESS, false),
        ] {
            if !wants(kind) {
                continue;
            }
            let given = login.granted.addresses.iter().copied().find(|address| address.is_ipv4() == is_v4);
            let given = given.or_else(|| {
                let lease = self.lease(peer.as_deref(), &login, holder, is_v4)?;
                login.leases.push(lease);
                match lease {
                    Lease::Address(address) => Some(address),
                    Lease::Prefix(..) => None,
                }
            });
            let Some(address) = given else { continue };
            login.addresses.push(address);
            let prefix = if is_v4 { 32 } else { 128 };
            attributes.push(ConfigurationAttribute::address(address, prefix));
        }
        if attributes.is_empty() {
            self.counters.addresses_exhausted += 1;
        } else {
            self.counters.addresses_given += attributes.len() as u64;
            let configured = peer.iter().flat_map(|peer| peer.dns.iter().copied());
            let all: Vec<IpAddr> = login.granted.dns.iter().copied().chain(configured).collect();
            let dns = all.into_iter().filter(|dns| {
                wants(if dns.is_ipv4() {
                    ConfigurationType::INTERNAL_IP4_DNS
                } else {
                    ConfigurationType::INTERNAL_IP6_DNS
                })
            });
            attributes.extend(dns.map(ConfigurationAttribute::dns));
            if wants(ConfigurationType::INTERNAL_DNS_DOMAIN) {
                let domains = peer.iter().flat_map(|peer| &peer.domains);
                attributes.extend(domains.map(|domain| ConfigurationAttribute {
                    kind: ConfigurationType::INTERNAL_DNS_DOMAIN,
                    value: domain.as_bytes().to_vec(),
                }));
            }
        }
        let exhausted = attributes.is_empty();
        self.logins.insert(sa, login);
        if exhausted {
            self.failed(sa, LoginFailure::NoAddress);
        }
        self.tell(now, ike::Command::Address { sa, attributes });
    }

    /// An address of a family: of the pool that the AAA server names, or of the connection's.
    fn lease(&mut self, peer: Option<&Peer>, login: &Login, holder: u64, is_v4: bool) -> Option<Lease> {
        let named = login.granted.pool.as_ref().into_iter();
        let names = named
            .chain(peer.into_iter().flat_map(|peer| &peer.pools).filter(|_| login.granted.pool.is_none()));
        for name in names {
            let Some(pool) = self.pools.find(name) else { continue };
            // One who comes again before the old IKE_SA has ended keeps its address.
            let begin = u64::from(self.start);
            let Some(lease) = self.pools.take(pool, false, holder, true, begin) else { continue };
            match lease {
                Lease::Address(address) if address.is_ipv4() == is_v4 => return Some(lease),
                other => self.pools.release(other),
            }
        }
        None
    }
}

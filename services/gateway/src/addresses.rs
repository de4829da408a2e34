//! Assignment of virtual addresses, name servers and domains to initiators (RFC 7296 §2.19, RFC 8598). Addresses come
//! from the AAA server or from pools.

use crate::login::EapLogin;
use crate::service::{GatewayCommand, GatewayEvent, GatewayJob, IkeGateway, LoginFailure};
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use usher_access::pool::{AddressPools, Lease, PoolConfig};
use usher_core::collections::{HashMap, SeededHashState, hash_state};
use usher_core::{Instant, JobRequest, SecureRng};
use usher_ike::code::ConfigurationType;
use usher_ike::machine::{self as ike, IkeSaId};
use usher_ike::payload::{ConfigurationAttribute, Identification};

/// The address pools and their leases, of one gateway or of all its shards. It also tracks addresses that an AAA
/// server assigns outside of the pools.
#[derive(Debug)]
pub struct AddressLeases {
    pools: AddressPools,
    /// Addresses outside of the pools: the holder, and the number of its IKE_SAs that have it.
    unpooled_leases: HashMap<IpAddr, (u64, u32)>,
    hash: SeededHashState,
    begin: u64,
}

/// A request for addresses of the pools.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddressLeaseRequest {
    /// Its IKE_SA.
    pub sa: IkeSaId,
    /// The holder: connection and identity. A returning holder gets the same address while it is free.
    pub holder: (String, Identification),
    /// Addresses from the AAA server, in a pool or not. They are leased unless another holder has them.
    pub granted: Vec<IpAddr>,
    /// The pools to choose from, the preferred first.
    pub pools: Vec<String>,
    /// True if another IKE_SA of the same holder must not share an address.
    pub is_exclusive: bool,
    /// The requested addresses. 0.0.0.0 or :: means any of the family. A specific address that is not free is
    /// replaced by any of its family.
    pub addresses: Vec<IpAddr>,
}

impl AddressLeaseRequest {
    /// Leases addresses of the shared pools. The result of [`GatewayJob::Lease`].
    #[must_use]
    pub fn answer_from(self, by: &mut AddressLeases) -> GatewayCommand {
        let leases = by.allocate_requested_leases(&self);
        GatewayCommand::Leased { sa: self.sa, leases }
    }
}

impl AddressLeases {
    /// Creates pools without leases.
    #[must_use]
    pub fn new(pools: &[PoolConfig], mut rng: SecureRng) -> Self {
        let hash = hash_state(&mut rng);
        Self::with_hash(pools, hash, rng.next_u32())
    }
    /// Creates pools without leases, with a given hash and start.
    pub(crate) fn with_hash(pools: &[PoolConfig], hash: SeededHashState, begin: u32) -> Self {
        let others = HashMap::with_hasher(hash.clone());
        Self { pools: AddressPools::new(pools, &hash), unpooled_leases: others, hash, begin: begin.into() }
    }
    fn lease_holder(&self, address: IpAddr) -> Option<u64> {
        self.pools.holder(Lease::Address(address)).or_else(|| Some(self.unpooled_leases.get(&address)?.0))
    }
    fn claim_address(&mut self, address: IpAddr, holder: u64) {
        let lease = Lease::Address(address);
        if self.pools.contains(lease) {
            self.pools.claim(lease, holder);
        } else {
            self.unpooled_leases.entry(address).or_insert((holder, 0)).1 += 1;
        }
    }
    fn allocate_requested_leases(&mut self, wish: &AddressLeaseRequest) -> Vec<Lease> {
        let holder = self.hash.hash_one(&wish.holder);
        let mut granted = Vec::new();
        for address in &wish.granted {
            // An address of another holder is never leased, even from the AAA server: packets would reach the wrong
            // user.
            if self.lease_holder(*address).is_none_or(|other| other == holder && !wish.is_exclusive) {
                self.claim_address(*address, holder);
                granted.push(Lease::Address(*address));
            }
        }
        let taken = wish.addresses.iter().filter_map(|wanted| self.take_lease(wish, holder, *wanted));
        granted.into_iter().chain(taken).collect()
    }
    fn take_lease(&mut self, wish: &AddressLeaseRequest, holder: u64, wanted: IpAddr) -> Option<Lease> {
        if !wanted.is_unspecified() {
            let this = Lease::Address(wanted);
            let pools = wish.pools.iter().filter_map(|name| self.pools.find_pool(name));
            let pools: Vec<usize> = pools.collect();
            let another = wish.is_exclusive && self.lease_holder(wanted).is_some();
            if !another && pools.into_iter().any(|pool| self.pools.claim_specific_lease(pool, this, holder)) {
                return Some(this);
            }
        }
        for name in &wish.pools {
            let Some(pool) = self.pools.find_pool(name) else { continue };
            // A holder may return before its old IKE_SA has ended. If only one IKE_SA is allowed, it keeps its address.
            let Some(lease) = self.pools.take_lease(pool, false, holder, !wish.is_exclusive, self.begin)
            else {
                continue;
            };
            match lease {
                Lease::Address(address) if address.is_ipv4() == wanted.is_ipv4() => return Some(lease),
                other => self.pools.release(other),
            }
        }
        None
    }
    /// Releases a lease.
    pub fn release_lease(&mut self, lease: Lease) {
        match lease {
            Lease::Address(address) if !self.pools.contains(lease) => {
                if let Some((_, times)) = self.unpooled_leases.get_mut(&address) {
                    *times -= 1;
                    if *times == 0 {
                        self.unpooled_leases.remove(&address);
                    }
                }
            }
            lease => self.pools.release(lease),
        }
    }
    /// The usage of each pool: name, addresses in use, addresses in all.
    pub fn pool_usage(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.pools.pool_usage().map(|pool| (pool.name, pool.addresses.0, pool.addresses.1))
    }
}

/// The families of a request, in the order of the reply; true for IPv4.
const FAMILIES: [(ConfigurationType, bool); 2] =
    [(ConfigurationType::INTERNAL_IP4_ADDRESS, true), (ConfigurationType::INTERNAL_IP6_ADDRESS, false)];

fn requests_attribute(wishes: &[ConfigurationAttribute], kind: ConfigurationType) -> bool {
    wishes.iter().any(|wish| wish.kind == kind)
}

impl IkeGateway {
    /// Handles the address request of an authenticated initiator.
    pub(crate) fn handle_address_request(
        &mut self,
        now: Instant,
        (sa, identity, connection, remote): (IkeSaId, Identification, String, SocketAddr),
        wishes: Vec<ConfigurationAttribute>,
    ) {
        let holder = (connection.clone(), identity.clone());
        // A client that reauthenticates already has this address and requests it from the same outer address. Another
        // device does not.
        let renews = |address: &IpAddr| {
            self.sessions.values().any(|session| {
                (&session.connection, &session.identity) == (&holder.0, &holder.1)
                    && session.path.remote.ip() == remote.ip()
                    && session.addresses.contains(address)
            })
        };
        let renewing = wishes.iter().filter_map(ConfigurationAttribute::internal_address).any(|a| renews(&a));
        let several = self.find_peer(&connection).is_some_and(|peer| !peer.connection.unique);
        let alone = several && !renewing;
        let login = self.logins.entry(sa).or_insert_with(|| EapLogin::new(identity, connection, remote));
        let granted = |is_v4| login.granted.addresses.iter().any(|address| address.is_ipv4() == is_v4);
        let open = FAMILIES.iter().filter(|(_, is_v4)| !granted(*is_v4));
        let addresses: Vec<IpAddr> = open
            .filter_map(|(kind, is_v4)| {
                let wish = wishes.iter().find(|wish| wish.kind == *kind)?;
                // The initiator may request a specific address (RFC 7296 §3.15.1).
                let any = if *is_v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
                Some(wish.internal_address().unwrap_or(any))
            })
            .collect();
        let peer = self.config.peers.iter().find(|peer| peer.connection.name == login.connection);
        let pools = match &login.granted.pool {
            Some(named) => alloc::vec![named.clone()],
            None => peer.map(|peer| peer.pools.clone()).unwrap_or_default(),
        };
        login.requested_attributes = wishes;
        let granted = login.granted.addresses.clone();
        let wish = AddressLeaseRequest { sa, holder, granted, pools, is_exclusive: alone, addresses };
        match &mut self.leases {
            Some(own) => {
                let leases = own.allocate_requested_leases(&wish);
                self.apply_leases(now, sa, leases);
            }
            None => {
                let job =
                    JobRequest::new(sa.0, GatewayJob::Lease(wish)).with_origin(login.login_job_origin());
                self.outputs.push_job(job);
            }
        }
    }

    /// Applies the leases of a request, as far as pools had free addresses.
    pub(crate) fn apply_leases(&mut self, now: Instant, sa: IkeSaId, leases: Vec<Lease>) {
        let Some(login) = self.logins.get_mut(&sa) else {
            // The initiator has gone while its leases were requested, so they are released.
            return leases.into_iter().for_each(|lease| self.release_lease(lease));
        };
        login.leases.extend(leases);
        let wishes = core::mem::take(&mut login.requested_attributes);
        let leased = login.leases.iter().filter_map(|lease| match lease {
            Lease::Address(address) => Some(*address),
            Lease::Prefix(..) => None,
        });
        // Addresses from the AAA server come first, unless another holder has them.
        let known: Vec<IpAddr> = leased.collect();
        let mut attributes = Vec::new();
        for (_, is_v4) in FAMILIES.into_iter().filter(|(kind, _)| requests_attribute(&wishes, *kind)) {
            let Some(address) = known.iter().copied().find(|address| address.is_ipv4() == is_v4) else {
                continue;
            };
            login.addresses.push(address);
            let prefix = if is_v4 { 32 } else { 128 };
            attributes.push(ConfigurationAttribute::from_address(address, prefix));
        }
        if attributes.is_empty() {
            self.counters.addresses_exhausted += 1;
            let why = match login.granted.addresses.is_empty() {
                true => LoginFailure::NoAddress,
                false => LoginFailure::AddressInUse,
            };
            self.report_failure(sa, why);
        } else {
            self.counters.addresses_given += attributes.len() as u64;
            let peer = self.config.peers.iter().find(|peer| peer.connection.name == login.connection);
            let configured = peer.iter().flat_map(|peer| peer.dns.iter().copied());
            let all = login.granted.dns.iter().copied().chain(configured);
            let dns = all.filter(|dns| {
                let kind = if dns.is_ipv4() {
                    ConfigurationType::INTERNAL_IP4_DNS
                } else {
                    ConfigurationType::INTERNAL_IP6_DNS
                };
                requests_attribute(&wishes, kind)
            });
            attributes.extend(dns.map(ConfigurationAttribute::from_name_server));
            if requests_attribute(&wishes, ConfigurationType::INTERNAL_DNS_DOMAIN) {
                let domains = peer.iter().flat_map(|peer| &peer.domains);
                attributes.extend(domains.map(|domain| ConfigurationAttribute {
                    kind: ConfigurationType::INTERNAL_DNS_DOMAIN,
                    value: domain.as_bytes().to_vec(),
                }));
            }
        }
        self.send_ike_command(now, ike::IkeCommand::Address { sa, attributes });
    }

    /// Releases an address of a pool.
    pub(crate) fn release_lease(&mut self, lease: Lease) {
        match &mut self.leases {
            Some(own) => own.release_lease(lease),
            None => self.outputs.push_event(GatewayEvent::Released(lease)),
        }
    }
}

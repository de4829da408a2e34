//! What initiators get: addresses of the AAA server or of pools, name servers, domains (RFC 7296 §2.19, RFC 8598).

use crate::login::EapLogin;
use crate::service::{GatewayCommand, GatewayEvent, GatewayJob, IkeGateway, LoginFailure};
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use usher_access::pool::{AddressPools, Lease, PoolConfig};
use usher_core::collections::{HashMap, HashState, hash_state};
use usher_core::{Instant, JobRequest, SecureRng};
use usher_ike::code::ConfigurationType;
use usher_ike::machine::{self as ike, SaId};
use usher_ike::payload::{ConfigurationAttribute, Identification};

/// Address pools, and who has what of them: a gateway's own, or those of all its shards. And who has which address of no pool, since
/// an AAA server gives it.
#[derive(Debug)]
pub struct AddressLeases {
    pools: AddressPools,
    /// By address: its holder, and how many IKE_SAs of that holder have it.
    unpooled_leases: HashMap<IpAddr, (u64, u32)>,
    hash: HashState,
    begin: u64,
}

/// Addresses that an initiator wants of pools.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseWish {
    /// Its IKE_SA.
    pub sa: SaId,
    /// Who it is by which connection: who comes again gets the same address while it is free.
    pub holder: (String, Identification),
    /// Addresses that an AAA server gives it, of pools or not: it gets those that no other holder has, and nobody else gets them.
    pub granted: Vec<IpAddr>,
    /// The pools that it may be given one of, the preferred first.
    pub pools: Vec<String>,
    /// Nobody else has them, not even another IKE_SA of the same holder.
    pub is_exclusive: bool,
    /// One each: any of a family where it is 0.0.0.0 or ::, otherwise this very one while it is free, or else any of its family.
    pub addresses: Vec<IpAddr>,
}

impl LeaseWish {
    /// Asks of all shards' pools; answers [`GatewayJob::Lease`].
    #[must_use]
    pub fn answer_from(self, by: &mut AddressLeases) -> GatewayCommand {
        let leases = by.take_leases(&self);
        GatewayCommand::Leased { sa: self.sa, leases }
    }
}

impl AddressLeases {
    /// Pools of which nothing is in use.
    #[must_use]
    pub fn new(pools: &[PoolConfig], mut rng: SecureRng) -> Self {
        let hash = hash_state(&mut rng);
        Self::with_hash(pools, hash, rng.next_u32())
    }
    /// The same, of what was chance before.
    pub(crate) fn with_hash(pools: &[PoolConfig], hash: HashState, begin: u32) -> Self {
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
    fn take_leases(&mut self, wish: &LeaseWish) -> Vec<Lease> {
        let holder = self.hash.hash_one(&wish.holder);
        let mut granted = Vec::new();
        for address in &wish.granted {
            // Nobody gets what another holder has, whoever gives it: that one's packets would be whose the address is then.
            if self.lease_holder(*address).is_none_or(|other| other == holder && !wish.is_exclusive) {
                self.claim_address(*address, holder);
                granted.push(Lease::Address(*address));
            }
        }
        let taken = wish.addresses.iter().filter_map(|wanted| self.take_lease(wish, holder, *wanted));
        granted.into_iter().chain(taken).collect()
    }
    fn take_lease(&mut self, wish: &LeaseWish, holder: u64, wanted: IpAddr) -> Option<Lease> {
        if !wanted.is_unspecified() {
            let this = Lease::Address(wanted);
            let pools = wish.pools.iter().filter_map(|name| self.pools.find_pool(name));
            let pools: Vec<usize> = pools.collect();
            let another = wish.is_exclusive && self.lease_holder(wanted).is_some();
            if !another && pools.into_iter().any(|pool| self.pools.take_this(pool, this, holder)) {
                return Some(this);
            }
        }
        for name in &wish.pools {
            let Some(pool) = self.pools.find_pool(name) else { continue };
            // One who comes again before the old IKE_SA has ended keeps its address, where there is to be but one.
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
    /// One who had this has it no more.
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
    /// How much of each is in use: its name, addresses in use, addresses in all.
    pub fn pool_usage(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.pools.pool_usage().map(|pool| (pool.name, pool.addresses.0, pool.addresses.1))
    }
}

/// The families that may be wished for, in the order in which they are answered; true for IPv4.
const FAMILIES: [(ConfigurationType, bool); 2] =
    [(ConfigurationType::INTERNAL_IP4_ADDRESS, true), (ConfigurationType::INTERNAL_IP6_ADDRESS, false)];

fn has_wish(wishes: &[ConfigurationAttribute], kind: ConfigurationType) -> bool {
    wishes.iter().any(|wish| wish.kind == kind)
}

impl IkeGateway {
    /// An initiator who has proved who it is wants addresses.
    pub(crate) fn address_wanted(
        &mut self,
        now: Instant,
        (sa, identity, connection, remote): (SaId, Identification, String, SocketAddr),
        wishes: Vec<ConfigurationAttribute>,
    ) {
        let holder = (connection.clone(), identity.clone());
        // Who proves anew who it is has the address still, and asks for it from where it was; another device does not.
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
                // It may say which (RFC 7296 §3.15.1).
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
        let wish = LeaseWish { sa, holder, granted, pools, is_exclusive: alone, addresses };
        match &mut self.leases {
            Some(own) => {
                let leases = own.take_leases(&wish);
                self.apply_leases(now, sa, leases);
            }
            None => {
                let job = JobRequest::new(sa.0, GatewayJob::Lease(wish)).with_origin(login.job_origin());
                self.outputs.push_job(job);
            }
        }
    }

    /// The addresses of pools are there that it has wished for, as far as there are any left.
    pub(crate) fn apply_leases(&mut self, now: Instant, sa: SaId, leases: Vec<Lease>) {
        let Some(login) = self.logins.get_mut(&sa) else {
            // It has gone meanwhile.
            return leases.into_iter().for_each(|lease| self.release_lease(lease));
        };
        login.leases.extend(leases);
        let wishes = core::mem::take(&mut login.requested_attributes);
        let leased = login.leases.iter().filter_map(|lease| match lease {
            Lease::Address(address) => Some(*address),
            Lease::Prefix(..) => None,
        });
        // Those that the AAA server gives come first, unless they are another's.
        let known: Vec<IpAddr> = leased.collect();
        let mut attributes = Vec::new();
        for (_, is_v4) in FAMILIES.into_iter().filter(|(kind, _)| has_wish(&wishes, *kind)) {
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
                has_wish(&wishes, kind)
            });
            attributes.extend(dns.map(ConfigurationAttribute::from_name_server));
            if has_wish(&wishes, ConfigurationType::INTERNAL_DNS_DOMAIN) {
                let domains = peer.iter().flat_map(|peer| &peer.domains);
                attributes.extend(domains.map(|domain| ConfigurationAttribute {
                    kind: ConfigurationType::INTERNAL_DNS_DOMAIN,
                    value: domain.as_bytes().to_vec(),
                }));
            }
        }
        self.send_ike_command(now, ike::IkeCommand::Address { sa, attributes });
    }

    /// An address of a pool is free again.
    pub(crate) fn release_lease(&mut self, lease: Lease) {
        match &mut self.leases {
            Some(own) => own.release_lease(lease),
            None => self.outputs.push_event(GatewayEvent::Released(lease)),
        }
    }
}

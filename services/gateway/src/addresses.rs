//! Assignment of virtual addresses, name servers and domains to initiators (RFC 7296 §2.19, RFC 8598). Addresses come
//! from the AAA server or from pools.

use crate::api::{AddressLeaseRequest, GatewayJob};
use crate::initiator::InitiatorLogin;
use crate::service::IkeGateway;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use usher_access::LoginFailure;
use usher_access::pool::Lease;
use usher_core::{Instant, JobRequest};
use usher_ike::code::ConfigurationType;
use usher_ike::machine::{self as ike, IkeSaId};
use usher_ike::payload::{ConfigurationAttribute, Identification};

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
        let login =
            self.logins.entry(sa).or_insert_with(|| InitiatorLogin::new(identity, connection, remote));
        let granted = |is_v4| login.grant.addresses().any(|address| address.is_ipv4() == is_v4);
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
        let pools = match &login.grant.pool {
            Some(named) => alloc::vec![named.clone()],
            None => peer.map(|peer| peer.pools.clone()).unwrap_or_default(),
        };
        login.requested_attributes = wishes;
        let granted = login.grant.addresses().collect();
        let wish = AddressLeaseRequest { sa, holder, granted, pools, is_exclusive: alone, addresses };
        match self.subscribers.leases_mut() {
            Some(own) => {
                let leases = wish.allocate(own);
                self.apply_leases(now, sa, leases);
            }
            None => {
                let job = JobRequest::new(sa.0, GatewayJob::Lease(wish));
                self.outputs.push_job(job.with_origin(login.job_requester()));
            }
        }
    }

    /// Applies the leases of a request, as far as pools had free addresses.
    pub(crate) fn apply_leases(&mut self, now: Instant, sa: IkeSaId, leases: Vec<Lease>) {
        let Some(login) = self.logins.get_mut(&sa) else {
            // The initiator has gone while its leases were requested, so they are released.
            return leases.into_iter().for_each(|lease| self.subscribers.release_lease(lease));
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
            let why = match login.grant.addresses().next().is_none() {
                true => LoginFailure::NoAddress,
                false => LoginFailure::AddressInUse,
            };
            self.report_failure(sa, why);
        } else {
            self.counters.addresses_given += attributes.len() as u64;
            let peer = self.config.peers.iter().find(|peer| peer.connection.name == login.connection);
            let configured = peer.iter().flat_map(|peer| peer.dns.iter().copied());
            let all = login.grant.dns.iter().copied().chain(configured);
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
}

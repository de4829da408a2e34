//! Lookup of the client of an address, by longest prefix.

use super::{ClientConfig, ClientTransport};
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::collections::{HashMap, SeededHashState};

/// A table of networks by prefix length. A lookup takes one probe per length in use.
#[derive(Debug)]
pub(crate) struct ClientNetworkTable {
    configs: Vec<ClientConfig>,
    v4: PrefixTable,
    v6: PrefixTable,
}

#[derive(Debug)]
struct PrefixTable {
    width: u8,
    /// Prefix lengths in use, longest first.
    lengths: Vec<u8>,
    networks: HashMap<(u8, u128), u32>,
}

impl PrefixTable {
    fn new(width: u8, state: SeededHashState) -> Self {
        Self { width, lengths: Vec::new(), networks: HashMap::with_hasher(state) }
    }
    fn prefix_bits(&self, bits: u128, length: u8) -> u128 {
        bits.checked_shr(u32::from(self.width - length)).unwrap_or(0)
    }
    fn insert(&mut self, bits: u128, length: u8, index: u32) -> bool {
        if let Err(at) = self.lengths.binary_search_by(|l| length.cmp(l)) {
            self.lengths.insert(at, length);
        }
        self.networks.insert((length, self.prefix_bits(bits, length)), index).is_none()
    }
    fn find_longest(&self, bits: u128) -> Option<u32> {
        self.lengths.iter().find_map(|&l| self.networks.get(&(l, self.prefix_bits(bits, l))).copied())
    }
}

/// An error in a [`super::RadiusServerConfig`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The prefix is longer than the address.
    #[error("client {index}: a prefix of {prefix} bits is longer than the address")]
    Prefix {
        /// Index of the client.
        index: usize,
        /// Its prefix.
        prefix: u8,
    },
    /// The secret is empty (RFC 2865 §3).
    #[error("client {0} has an empty secret")]
    Secret(usize),
    /// Two clients have the same network.
    #[error("client {0} has the same network as an earlier one")]
    Duplicate(usize),
}

impl ClientNetworkTable {
    pub(crate) fn new(configs: Vec<ClientConfig>, state: SeededHashState) -> Result<Self, ConfigError> {
        let (mut v4, mut v6) = (PrefixTable::new(32, state.clone()), PrefixTable::new(128, state));
        for (index, c) in configs.iter().enumerate() {
            let (family, bits) = match c.network {
                IpAddr::V4(a) => (&mut v4, u128::from(a.to_bits())),
                IpAddr::V6(a) => (&mut v6, a.to_bits()),
            };
            if c.prefix > family.width {
                return Err(ConfigError::Prefix { index, prefix: c.prefix });
            }
            if c.secret.as_bytes().is_empty() {
                return Err(ConfigError::Secret(index));
            }
            if c.transport == ClientTransport::Udp && !family.insert(bits, c.prefix, index as u32) {
                return Err(ConfigError::Duplicate(index));
            }
        }
        Ok(Self { configs, v4, v6 })
    }
    /// Returns the client that sends datagrams from an address. An IPv4-mapped address counts as IPv4.
    pub(crate) fn find_by_address(&self, address: IpAddr) -> Option<(u32, &ClientConfig)> {
        let index = match address.to_canonical() {
            IpAddr::V4(a) => self.v4.find_longest(u128::from(a.to_bits())),
            IpAddr::V6(a) => self.v6.find_longest(a.to_bits()),
        }?;
        Some((index, self.configs.get(index as usize)?))
    }
    /// True if a RadSec client with a longer prefix than this holds the address.
    pub(crate) fn has_narrower_radsec_client(&self, address: IpAddr, prefix: u8) -> bool {
        self.configs.iter().any(|c| {
            c.transport != ClientTransport::Udp
                && c.prefix > prefix
                && is_within(c.network, c.prefix, address.to_canonical())
        })
    }
    /// Returns the client of a connection, by its certificate (RFC 6614 §2.4).
    pub(crate) fn identify_connection(&self, address: IpAddr, certificate: Option<&[u8]>) -> Option<u32> {
        let fits = |c: &&ClientConfig| match &c.transport {
            // RFC 6614, 4; RFC 6613, 2.6: UDP and TLS of one address are two clients, each with its own secret.
            ClientTransport::Udp => false,
            ClientTransport::Tls(any) if any.is_empty() => true,
            ClientTransport::Tls(these) => {
                certificate.is_some_and(|der| these.iter().any(|m| m.matches_certificate(der)))
            }
        };
        let near = |c: &&ClientConfig| is_within(c.network, c.prefix, address.to_canonical());
        let all = self.configs.iter().enumerate();
        let (index, _) = all.rev().filter(|(_, c)| near(c) && fits(c)).max_by_key(|(_, c)| c.prefix)?;
        Some(index as u32)
    }
    /// True if some client may connect from this address, with any certificate.
    pub(crate) fn may_connect(&self, address: IpAddr) -> bool {
        let near = |c: &ClientConfig| is_within(c.network, c.prefix, address.to_canonical());
        self.configs.iter().any(|c| matches!(c.transport, ClientTransport::Tls(_)) && near(c))
    }
    /// True if the address belongs to this client only, or to an access server that it may name.
    pub(crate) fn speaks_for(&self, client: u32, address: IpAddr) -> bool {
        let said = |c: &ClientConfig| c.speaks_for.iter().any(|&(network, n)| is_within(network, n, address));
        self.find_by_address(address).is_some_and(|(index, _)| index == client)
            || self.configs.get(client as usize).is_some_and(said)
    }
    pub(crate) fn len(&self) -> usize {
        self.configs.len()
    }
    pub(crate) fn get(&self, index: u32) -> &ClientConfig {
        &self.configs[index as usize]
    }
}

/// True if the address is in the network.
fn is_within(network: IpAddr, prefix: u8, address: IpAddr) -> bool {
    let same = |a: u128, b: u128, width: u32| {
        (a ^ b).checked_shr(width.saturating_sub(prefix.into())).unwrap_or(0) == 0
    };
    match (network, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SharedSecret;
    use crate::radsec::PeerCertificateCondition;
    use usher_core::Seed;

    fn client_table(networks: &[(&str, u8)]) -> Result<ClientNetworkTable, ConfigError> {
        let configs = networks
            .iter()
            .map(|&(n, p)| ClientConfig::new(n.parse().unwrap(), p, SharedSecret::new(b"s")))
            .collect();
        let mut rng = Seed::new(1).derive_secure_rng("test", 0);
        ClientNetworkTable::new(configs, usher_core::collections::hash_state(&mut rng))
    }

    #[test]
    fn the_longest_prefix_wins() {
        let c = client_table(&[
            ("10.0.0.0", 8),
            ("10.1.2.3", 32),
            ("10.1.9.9", 16),
            ("::", 0),
            ("2001:db8::", 32),
        ])
        .unwrap();
        for (address, want) in [
            ("10.9.9.9", Some(0)),
            ("10.1.2.3", Some(1)),
            ("10.1.2.4", Some(2)),
            ("::ffff:10.1.2.3", Some(1)),
            ("2001:db8::7", Some(4)),
            ("fe80::1", Some(3)),
            ("11.0.0.1", None),
        ] {
            assert_eq!(c.find_by_address(address.parse().unwrap()).map(|f| f.0), want, "{address}");
        }
    }

    #[test]
    fn certificate_and_network_identify_the_client_of_a_connection() {
        let named = |n: &str| vec![PeerCertificateCondition::Name(n.into())];
        let any = "0.0.0.0".parse().unwrap();
        let configs = vec![
            ClientConfig::new(any, 0, SharedSecret::new(b"s")),
            ClientConfig::for_radsec(any, 0, named("aaa.usher.test")),
            ClientConfig::for_radsec(any, 0, named("station@usher.test")),
            ClientConfig::for_radsec("10.0.0.0".parse().unwrap(), 8, Vec::new()),
        ];
        let mut rng = Seed::new(1).derive_secure_rng("test", 0);
        let c = ClientNetworkTable::new(configs, usher_core::collections::hash_state(&mut rng)).unwrap();
        let server = include_bytes!("../../../../vectors/certs/server1.der");
        let client = include_bytes!("../../../../vectors/certs/client1.der");
        let of = |address: &str, certificate| c.identify_connection(address.parse().unwrap(), certificate);
        assert_eq!(of("192.0.2.1", Some(&server[..])), Some(1));
        assert_eq!(of("192.0.2.1", Some(&client[..])), Some(2));
        assert_eq!(of("::ffff:10.0.0.1", Some(&client[..])), Some(3), "the longer prefix");
        assert_eq!((of("192.0.2.1", None), of("2001:db8::1", Some(&client[..]))), (None, None));
        assert_eq!(
            c.find_by_address("10.0.0.1".parse().unwrap()).map(|f| f.0),
            Some(0),
            "no datagrams over TLS"
        );
        for (address, prefix, narrower) in [
            ("10.0.0.1", 7, true),
            ("::ffff:10.0.0.1", 7, true),
            ("10.0.0.1", 8, false),
            ("11.0.0.1", 7, false),
        ] {
            assert_eq!(
                c.has_narrower_radsec_client(address.parse().unwrap(), prefix),
                narrower,
                "{address}/{prefix}"
            );
        }
    }

    #[test]
    fn a_client_speaks_for_its_own_network_and_what_it_is_said_to() {
        let address = |a: &str| -> IpAddr { a.parse().unwrap() };
        let mut proxy = ClientConfig::new(address("192.0.2.9"), 32, SharedSecret::new(b"s"));
        proxy.speaks_for = vec![(address("10.7.0.0"), 16), (address("2001:db8::"), 32)];
        let configs = vec![
            ClientConfig::new(address("10.0.0.0"), 8, SharedSecret::new(b"s")),
            ClientConfig::new(address("10.1.2.3"), 32, SharedSecret::new(b"t")),
            proxy,
            ClientConfig::for_radsec(address("0.0.0.0"), 0, Vec::new()),
        ];
        let mut rng = Seed::new(1).derive_secure_rng("test", 0);
        let c = ClientNetworkTable::new(configs, usher_core::collections::hash_state(&mut rng)).unwrap();
        for (client, named, may) in [
            (0, "10.9.9.9", true),
            (0, "10.1.2.3", false),
            (1, "10.1.2.3", true),
            (1, "10.9.9.9", false),
            (2, "10.7.1.1", true),
            (2, "2001:db8::1", true),
            (2, "10.8.1.1", false),
            (3, "198.51.100.1", false),
        ] {
            assert_eq!(c.speaks_for(client, address(named)), may, "{client} {named}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        assert_eq!(
            client_table(&[("10.0.0.0", 33)]).unwrap_err(),
            ConfigError::Prefix { index: 0, prefix: 33 }
        );
        let empty = vec![ClientConfig::new("10.0.0.0".parse().unwrap(), 8, SharedSecret::new(b""))];
        let state = usher_core::collections::hash_state(&mut Seed::new(1).derive_secure_rng("test", 0));
        assert_eq!(ClientNetworkTable::new(empty, state).unwrap_err(), ConfigError::Secret(0));
        assert_eq!(client_table(&[("10.0.0.0", 8), ("10.1.1.1", 8)]).unwrap_err(), ConfigError::Duplicate(1));
    }
}

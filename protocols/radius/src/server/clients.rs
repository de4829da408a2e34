//! Which client an address is: the longest prefix that holds it.

use super::ClientConfig;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::collections::{HashMap, HashState};

/// Networks by prefix length: a look-up costs one probe for each length that is in use.
#[derive(Debug)]
pub(crate) struct Clients {
    configs: Vec<ClientConfig>,
    v4: Family,
    v6: Family,
}

#[derive(Debug)]
struct Family {
    width: u8,
    /// Prefix lengths in use, longest first.
    lengths: Vec<u8>,
    networks: HashMap<(u8, u128), u32>,
}

impl Family {
    fn new(width: u8, state: HashState) -> Self {
        Self { width, lengths: Vec::new(), networks: HashMap::with_hasher(state) }
    }
    fn mask(&self, bits: u128, length: u8) -> u128 {
        bits.checked_shr(u32::from(self.width - length)).unwrap_or(0)
    }
    fn insert(&mut self, bits: u128, length: u8, index: u32) -> bool {
        if let Err(at) = self.lengths.binary_search_by(|l| length.cmp(l)) {
            self.lengths.insert(at, length);
        }
        self.networks.insert((length, self.mask(bits, length)), index).is_none()
    }
    fn find(&self, bits: u128) -> Option<u32> {
        self.lengths.iter().find_map(|&l| self.networks.get(&(l, self.mask(bits, l))).copied())
    }
}

/// Why a server cannot be made of a [`super::Config`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A prefix longer than the address.
    #[error("client {index}: a prefix of {prefix} bits is longer than the address")]
    Prefix {
        /// Index of the client.
        index: usize,
        /// Its prefix.
        prefix: u8,
    },
    /// Two clients have the same network.
    #[error("client {0} has the same network as an earlier one")]
    Duplicate(usize),
}

impl Clients {
    pub(crate) fn new(configs: Vec<ClientConfig>, state: HashState) -> Result<Self, ConfigError> {
        let (mut v4, mut v6) = (Family::new(32, state.clone()), Family::new(128, state));
        for (index, c) in configs.iter().enumerate() {
            let (family, bits) = match c.network {
                IpAddr::V4(a) => (&mut v4, u128::from(a.to_bits())),
                IpAddr::V6(a) => (&mut v6, a.to_bits()),
            };
            if c.prefix > family.width {
                return Err(ConfigError::Prefix { index, prefix: c.prefix });
            }
            if !family.insert(bits, c.prefix, index as u32) {
                return Err(ConfigError::Duplicate(index));
            }
        }
        Ok(Self { configs, v4, v6 })
    }
    /// The client that an address belongs to; an IPv4-mapped address is its IPv4 address.
    pub(crate) fn find(&self, address: IpAddr) -> Option<(u32, &ClientConfig)> {
        let index = match address.to_canonical() {
            IpAddr::V4(a) => self.v4.find(u128::from(a.to_bits())),
            IpAddr::V6(a) => self.v6.find(a.to_bits()),
        }?;
        Some((index, self.configs.get(index as usize)?))
    }
    pub(crate) fn get(&self, index: u32) -> &ClientConfig {
        &self.configs[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;
    use usher_core::Seed;

    fn clients(networks: &[(&str, u8)]) -> Result<Clients, ConfigError> {
        let configs = networks
            .iter()
            .map(|&(n, p)| ClientConfig::new(n.parse().unwrap(), p, Secret::new(b"s")))
            .collect();
        let mut rng = Seed::new(1).secure("test", 0);
        Clients::new(configs, usher_core::collections::hash_state(&mut rng))
    }

    #[test]
    fn the_longest_prefix_wins() {
        let c =
            clients(&[("10.0.0.0", 8), ("10.1.2.3", 32), ("10.1.9.9", 16), ("::", 0), ("2001:db8::", 32)])
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
            assert_eq!(c.find(address.parse().unwrap()).map(|f| f.0), want, "{address}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        assert_eq!(clients(&[("10.0.0.0", 33)]).unwrap_err(), ConfigError::Prefix { index: 0, prefix: 33 });
        assert_eq!(clients(&[("10.0.0.0", 8), ("10.1.1.1", 8)]).unwrap_err(), ConfigError::Duplicate(1));
    }
}

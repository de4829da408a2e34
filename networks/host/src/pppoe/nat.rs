//! What netfilter does for hosts: their port 113 is led to our IDENT server, and their addresses are translated.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_access::pool::{PoolConfig, Range};
use usher_concentrator::SessionEntry;
use usher_concentrator::config::{File, NatWord};
use usher_concentrator::track::PortBlocks;
use usher_ident::Connection;
use usher_pppoe::netfilter::{Config, Netfilter, NetfilterError, Rules, Translation, conntrack};

/// Our table. One concentrator of a host has netfilter work for it.
const TABLE: &str = "usher_pppoe";
/// Addresses that rules are made for at the start, at most; the others get theirs with their sessions.
const MOST: u64 = 65_536;

/// The rules of hosts.
#[derive(Debug)]
pub(super) struct Nat {
    table: Netfilter,
    ident: bool,
    nat: NatWord,
    blocks: Option<PortBlocks>,
    /// Pools whose addresses have rules since the start.
    pools: Vec<Range>,
    /// Networks of sessions that are of no such pool.
    sessions: BTreeMap<u64, Vec<(IpAddr, u8)>>,
}

impl Nat {
    /// Rules for all that pools give; `None`: the file wants nothing of netfilter.
    pub(super) fn start(
        file: &File,
        pools: &[PoolConfig],
        blocks: Option<PortBlocks>,
        device: &str,
    ) -> Result<Option<Self>, NetfilterError> {
        let port = file.ident.as_ref().and_then(|ident| ident.listen.first()).map(SocketAddr::port);
        let nat = file.data.nat;
        if port.is_none() && nat == NatWord::None {
            return Ok(None);
        }
        let ident_port = port.unwrap_or(usher_ident::PORT);
        let table =
            Netfilter::start(&Config { table: TABLE.to_owned(), device: device.to_owned(), ident_port })?;
        let (ident, sessions) = (port.is_some(), BTreeMap::new());
        let mut all = Self { table, ident, nat, blocks, pools: Vec::new(), sessions };
        let (mut changes, mut left) = (Vec::new(), MOST);
        for range in pools.iter().flat_map(|pool| &pool.ranges) {
            match *range {
                Range::Prefixes { network, length, .. } => {
                    changes.extend(all.change(network.into(), length));
                }
                Range::Addresses { first: IpAddr::V4(first), last: IpAddr::V4(last) }
                    if range.size() <= left =>
                {
                    left -= range.size();
                    let addresses = (first.to_bits()..=last.to_bits()).map(Ipv4Addr::from_bits);
                    changes.extend(addresses.filter_map(|address| all.change(address.into(), 32)));
                }
                Range::Addresses { .. } => continue,
            }
            all.pools.push(*range);
        }
        all.table.apply(&changes)?;
        Ok(Some(all))
    }

    /// What is done for an address or prefix, where something is.
    fn change(&self, address: IpAddr, bits: u8) -> Option<(IpAddr, u8, Option<Rules>)> {
        let translation = match (self.nat, address) {
            (NatWord::Masquerade, IpAddr::V4(_)) => Some(Translation::Masquerade),
            (NatWord::Blocks, IpAddr::V4(inner)) => {
                let block = self.blocks.as_ref().and_then(|blocks| blocks.outer(inner));
                block.map(|block| Translation::Block {
                    external: block.address,
                    ports: block.first..=block.last,
                })
            }
            _ => None,
        };
        let rules = Rules { ident: self.ident, translation };
        (rules != Rules::default()).then_some((address, bits, Some(rules)))
    }

    fn covered(&self, address: IpAddr) -> bool {
        self.pools.iter().any(|range| match (*range, address) {
            (Range::Addresses { first, last }, IpAddr::V4(_)) => (first..=last).contains(&address),
            (Range::Prefixes { network, length, .. }, IpAddr::V6(address)) => {
                let shift = 128 - u32::from(length);
                (network.to_bits() ^ address.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        })
    }

    /// A session's addresses are to have their rules, before its packets pass.
    pub(super) fn install(&mut self, entry: &SessionEntry) -> Result<(), NetfilterError> {
        let ipv4 = entry.ipv4.map(|address| (IpAddr::V4(address), 32));
        let ipv6 = entry.ipv6.iter().map(|(prefix, bits)| (IpAddr::V6(*prefix), *bits));
        let all = ipv4.into_iter().chain(ipv6).filter(|(one, _)| !self.covered(*one));
        let wanted: Vec<_> = all.filter_map(|(address, bits)| self.change(address, bits)).collect();
        let before = self.sessions.get(&entry.id).cloned().unwrap_or_default();
        let kept = |one: &(IpAddr, u8)| wanted.iter().any(|(address, bits, _)| (*address, *bits) == *one);
        let gone = before.iter().filter(|one| !kept(one)).map(|(address, bits)| (*address, *bits, None));
        let changes: Vec<_> = gone.chain(wanted.iter().cloned()).collect();
        if changes.is_empty() {
            return Ok(());
        }
        self.table.apply(&changes)?;
        if !wanted.is_empty() {
            let networks = wanted.into_iter().map(|(address, bits, _)| (address, bits)).collect();
            self.sessions.insert(entry.id, networks);
        }
        Ok(())
    }

    /// A session has no addresses any more.
    pub(super) fn remove(&mut self, id: u64) -> Result<(), NetfilterError> {
        let Some(gone) = self.sessions.remove(&id) else { return Ok(()) };
        let changes: Vec<_> = gone.into_iter().map(|(address, bits)| (address, bits, None)).collect();
        self.table.apply(&changes)
    }
}

/// The end inside of a connection whose end here is translated, as the kernel has it; `Err`: it does not say.
pub(super) fn inner(Connection { local, remote }: &Connection) -> Result<Option<SocketAddr>, ()> {
    match conntrack::seen_from(*local, *remote, conntrack::TCP) {
        Ok(found) => Ok(found.map(|connection| connection.original.source)),
        Err(error) => {
            tracing::error!(%error, "the kernel does not say what it translates");
            Err(())
        }
    }
}

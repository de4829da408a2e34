//! What netfilter does for hosts: their port 113 is led to our IDENT server, and their addresses are translated.

use super::translations::of_pools;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use usher_access::pool::{PoolConfig, Range};
use usher_concentrator::SessionEntry;
use usher_concentrator::config::{File, NatWord};
use usher_concentrator::track::{Lost, PortBlocks};
use usher_ident::Connection;
use usher_pppoe::netfilter::{Config, Netfilter, NetfilterError, Rules, Translation, conntrack};

/// Our table. One concentrator of a host has netfilter work for it.
const TABLE: &str = "usher_pppoe";
/// Addresses with a rule each that are made at the start, at most; the others get theirs with their sessions.
const MOST: u64 = 65_536;
/// So long after a host has gone the kernel forgets its connections, with those of all who went meanwhile.
const TOGETHER: Duration = Duration::from_millis(100);

/// Hosts that have gone, whose connections the kernel has not forgotten yet. Whoever has such an address next would otherwise get packets
/// of them, and be named for them.
#[derive(Clone, Debug, Default)]
struct Gone(Arc<Mutex<BTreeSet<Ipv4Addr>>>);

impl Gone {
    fn add(&self, address: Ipv4Addr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(address);
    }
    /// Has all of them forgotten if there is `one` of them, or any.
    fn forget(&self, one: Option<Ipv4Addr>) -> Result<(), NetfilterError> {
        // Held meanwhile: nobody gets such an address before this is done.
        let mut gone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gone.is_empty() || one.is_some_and(|one| !gone.contains(&one)) {
            return Ok(());
        }
        conntrack::forget(|address| gone.contains(&address)).map_err(NetfilterError::Forget)?;
        gone.clear();
        Ok(())
    }
    fn run(&self, wake: &Receiver<()>) {
        while wake.recv().is_ok() {
            std::thread::sleep(TOGETHER);
            while wake.try_recv().is_ok() {}
            if let Err(error) = self.forget(None) {
                tracing::error!("{error}");
            }
        }
    }
}

/// Why a session's addresses get no rules.
#[derive(Debug, thiserror::Error)]
pub(super) enum NatError {
    /// It would go out untranslated.
    #[error("{0} is not within \"inside\" of [tracking.ports], and has no block of ports")]
    NoBlock(Ipv4Addr),
    /// The system.
    #[error(transparent)]
    Netfilter(#[from] NetfilterError),
}

/// The address of a session that ought to have a block of ports and has none: an AAA server may give any.
fn without_block(nat: NatWord, blocks: Option<&PortBlocks>, address: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
    let has = |address: &Ipv4Addr| blocks.is_some_and(|blocks| blocks.outer(*address).is_some());
    address.filter(|address| nat == NatWord::Blocks && !has(address))
}

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
    /// Translated addresses of sessions.
    translated: BTreeMap<u64, Ipv4Addr>,
    gone: Gone,
    /// Wakes the thread that has the kernel forget.
    wake: Sender<()>,
}

impl Nat {
    /// Rules for all that pools give; `None`: the file wants nothing of netfilter. Where addresses are translated, the kernel forgets
    /// what hosts of pools and of these sessions of an earlier concentrator have begun.
    pub(super) fn start(
        file: &File,
        pools: &[PoolConfig],
        blocks: Option<PortBlocks>,
        device: &str,
        lost: &[Lost],
    ) -> Result<Option<Self>, NetfilterError> {
        let port = file.ident.as_ref().and_then(|ident| ident.listen.first()).map(SocketAddr::port);
        let nat = file.data.nat;
        if port.is_none() && nat == NatWord::None {
            return Ok(None);
        }
        let ident_port = port.unwrap_or(usher_ident::PORT);
        let table =
            Netfilter::start(&Config { table: TABLE.to_owned(), device: device.to_owned(), ident_port })?;
        let (wake, woken) = channel();
        let mut all = Self {
            table,
            ident: port.is_some(),
            nat,
            blocks,
            pools: Vec::new(),
            sessions: BTreeMap::new(),
            translated: BTreeMap::new(),
            gone: Gone::default(),
            wake,
        };
        let (mut changes, mut left) = (Vec::new(), MOST);
        for range in pools.iter().flat_map(|pool| &pool.ranges) {
            match *range {
                Range::Prefixes { network, length, .. } => {
                    changes.extend(all.change(network.into(), length));
                }
                Range::Addresses { first: IpAddr::V4(first), last: IpAddr::V4(last) }
                    if nat != NatWord::Blocks =>
                {
                    let networks = networks(first, last);
                    changes.extend(networks.filter_map(|(network, bits)| all.change(network.into(), bits)));
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
        if nat != NatWord::None {
            let lost: BTreeSet<Ipv4Addr> = lost.iter().filter_map(|lost| lost.begin.ipv4).collect();
            let ranges: Vec<Range> = pools.iter().flat_map(|pool| pool.ranges.clone()).collect();
            conntrack::forget(|address| of_pools(&ranges, address) || lost.contains(&address))
                .map_err(NetfilterError::Forget)?;
            let gone = all.gone.clone();
            let thread = std::thread::Builder::new().name("usher-forget".to_owned());
            thread.spawn(move || gone.run(&woken)).map_err(NetfilterError::Forget)?;
        }
        Ok(Some(all))
    }

    /// A session has this translated address from now on, or none.
    fn translated(&mut self, id: u64, address: Option<Ipv4Addr>) -> Result<(), NetfilterError> {
        let address = address.filter(|_| self.nat != NatWord::None);
        let before = match address {
            Some(address) => self.translated.insert(id, address),
            None => self.translated.remove(&id),
        };
        if let Some(before) = before.filter(|before| Some(*before) != address) {
            self.gone.add(before);
            // Its end is that of this program.
            let _ = self.wake.send(());
        }
        address.map_or(Ok(()), |address| self.gone.forget(Some(address)))
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
    pub(super) fn install(&mut self, entry: &SessionEntry) -> Result<(), NatError> {
        if let Some(address) = without_block(self.nat, self.blocks.as_ref(), entry.ipv4) {
            return Err(NatError::NoBlock(address));
        }
        self.translated(entry.id, entry.ipv4)?;
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
        self.translated(id, None)?;
        let Some(gone) = self.sessions.remove(&id) else { return Ok(()) };
        let changes: Vec<_> = gone.into_iter().map(|(address, bits)| (address, bits, None)).collect();
        self.table.apply(&changes)
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        // Of those that are left the next concentrator has the kernel forget what it knows.
        let _ = self.gone.forget(None);
    }
}

/// The fewest networks that have all addresses from the first to the last and no other, each with its length.
fn networks(first: Ipv4Addr, last: Ipv4Addr) -> impl Iterator<Item = (Ipv4Addr, u8)> {
    let (mut next, last) = (u64::from(first.to_bits()), u64::from(last.to_bits()));
    std::iter::from_fn(move || {
        let left = (last + 1).checked_sub(next).filter(|left| *left > 0)?;
        // The largest that begins here and does not end beyond the last.
        let bits = left.ilog2().min(next.trailing_zeros()).min(32);
        let network = Ipv4Addr::from_bits(next as u32);
        next += 1 << bits;
        Some((network, 32 - bits as u8))
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(first: &str, last: &str) -> Vec<String> {
        let all = networks(first.parse().unwrap(), last.parse().unwrap());
        all.map(|(network, bits)| format!("{network}/{bits}")).collect()
    }

    #[test]
    fn with_blocks_nobody_goes_out_untranslated() {
        let address = |last: u8| Ipv4Addr::new(10, 0, 0, last);
        let blocks = PortBlocks::new((address(0), address(7)), &[Ipv4Addr::new(192, 0, 2, 1)], 1024).unwrap();
        let refused = |nat, last| without_block(nat, Some(&blocks), Some(address(last)));
        assert_eq!((refused(NatWord::Blocks, 7), refused(NatWord::Blocks, 8)), (None, Some(address(8))));
        assert_eq!((refused(NatWord::Masquerade, 8), refused(NatWord::None, 8)), (None, None));
        assert_eq!(without_block(NatWord::Blocks, Some(&blocks), None), None, "one of IPv6 alone");
        assert_eq!(without_block(NatWord::Blocks, None, Some(address(1))), Some(address(1)));
    }

    #[test]
    fn a_range_is_the_fewest_networks_that_have_all_of_it() {
        assert_eq!(of("10.0.0.0", "10.0.127.255"), ["10.0.0.0/17"]);
        assert_eq!(of("10.0.0.7", "10.0.0.7"), ["10.0.0.7/32"]);
        assert_eq!(of("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(of("255.255.255.254", "255.255.255.255"), ["255.255.255.254/31"]);
        assert_eq!(of("10.0.0.2", "10.0.0.1"), [""; 0]);
        for (first, last) in [(1, 1000), (5, 77), (0x0a00_00ff, 0x0a00_0101), (2, 9)] {
            let all = networks(Ipv4Addr::from_bits(first), Ipv4Addr::from_bits(last));
            let each = all.flat_map(|(network, bits)| {
                assert_eq!(network.to_bits().checked_shl(bits.into()).unwrap_or(0), 0, "{network}/{bits}");
                network.to_bits()..network.to_bits() + (1 << (32 - bits))
            });
            assert!(each.eq(first..=last));
        }
    }
}

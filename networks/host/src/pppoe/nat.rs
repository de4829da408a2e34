//! What netfilter does for hosts: their port 113 is led to our IDENT server, and their addresses are translated.

use super::translations::of_pools;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use usher_access::pool::{PoolConfig, PoolRange};
use usher_concentrator::SessionEntry;
use usher_concentrator::config::{ConcentratorFile, LimitsTable, NatWord};
use usher_concentrator::track::{LostSession, PortBlocks};
use usher_ident::QueriedConnection;
use usher_pppoe::PppoeDataPlane;
use usher_pppoe::netfilter::{
    ConnectionLimits, HostRules, NetfilterConfig, NetfilterError, NetfilterTable, SourceNat, conntrack,
};

/// Our table. One concentrator of a host has netfilter work for it.
const TABLE: &str = "usher_pppoe";
/// Addresses with a rule each that are made at the start, at most; the others get theirs with their sessions.
const MOST: u64 = 65_536;
/// So long after a host has gone the kernel forgets its connections, with those of all who went meanwhile.
const TOGETHER: Duration = Duration::from_millis(100);

/// Hosts that have gone, whose connections the kernel has not forgotten yet. Whoever has such an address next would otherwise get packets
/// of them, and be named for them.
#[derive(Clone, Debug, Default)]
struct DepartedHosts(Arc<Mutex<BTreeSet<HostNetwork>>>);

/// An address with 32 bits, or a prefix of IPv6 with its own.
type HostNetwork = (IpAddr, u8);

impl DepartedHosts {
    fn add_network(&self, network: HostNetwork) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(network);
    }
    /// Has all of them forgotten if there is one of `some` of them, or any.
    fn flush_connections(&self, some: Option<&[HostNetwork]>) -> Result<(), NetfilterError> {
        // Held meanwhile: nobody gets such an address before this is done.
        let mut gone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gone.is_empty() || some.is_some_and(|some| some.iter().all(|one| !gone.contains(one))) {
            return Ok(());
        }
        let is_gone = of_networks(&gone);
        conntrack::delete_by_source(is_gone).map_err(NetfilterError::FlushConnections)?;
        gone.clear();
        Ok(())
    }
    fn run_flusher(&self, wake: &Receiver<()>) {
        while wake.recv().is_ok() {
            std::thread::sleep(TOGETHER);
            while wake.try_recv().is_ok() {}
            if let Err(error) = self.flush_connections(None) {
                tracing::error!("{error}");
            }
        }
    }
}

/// Whether an address is of one of these.
fn of_networks(all: &BTreeSet<HostNetwork>) -> impl Fn(IpAddr) -> bool {
    let lengths: BTreeSet<u8> = all.iter().filter(|(one, _)| one.is_ipv6()).map(|(_, bits)| *bits).collect();
    move |address| match address {
        IpAddr::V4(_) => all.contains(&(address, 32)),
        IpAddr::V6(_) => lengths.iter().any(|bits| all.contains(&network_start((address, *bits)))),
    }
}

/// A prefix of IPv6 by its first address.
fn network_start((address, bits): HostNetwork) -> HostNetwork {
    let IpAddr::V6(v6) = address else { return (address, bits) };
    let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits.into())).unwrap_or(0);
    (Ipv6Addr::from_bits(v6.to_bits() & mask).into(), bits)
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
    let has = |address: &Ipv4Addr| blocks.is_some_and(|blocks| blocks.block_of_host(*address).is_some());
    address.filter(|address| nat == NatWord::Blocks && !has(address))
}

/// What bounds the connections of a host, where there are rules for hosts anyhow or not.
fn connection_bounds(limits: &LimitsTable, rules: bool) -> ConnectionLimits {
    let usual = |n: u32| if rules { n } else { 0 };
    let (at_once, per_second) = LimitsTable::CONNECTIONS;
    ConnectionLimits {
        at_once: limits.connections.unwrap_or_else(|| usual(at_once)),
        per_second: limits.connections_per_second.unwrap_or_else(|| usual(per_second)),
    }
}

/// The rules of hosts.
#[derive(Debug)]
pub(super) struct NatRules {
    /// Gone with this.
    table: Arc<NetfilterTable>,
    ident: bool,
    /// Connections of hosts are bounded, or may be held back.
    hosts: bool,
    nat: NatWord,
    blocks: Option<PortBlocks>,
    /// Pools whose addresses have rules since the start.
    pools: Vec<PoolRange>,
    /// Networks of sessions that are of no such pool.
    sessions: BTreeMap<u64, Vec<(IpAddr, u8)>>,
    /// What sessions have of which the kernel is to forget connections when they have it no more: addresses that are translated, and all
    /// where connections are bounded, since the next who has them would be held to those of before.
    tracked_networks: BTreeMap<u64, Vec<HostNetwork>>,
    departed_hosts: DepartedHosts,
    /// Wakes the thread that has the kernel forget.
    wake: Sender<()>,
}

impl NatRules {
    /// Rules for all that pools give; `None`: the file wants nothing of netfilter. Where addresses are translated, the kernel forgets
    /// what hosts of pools and of these sessions of an earlier concentrator have begun.
    pub(super) fn start(
        file: &ConcentratorFile,
        pools: &[PoolConfig],
        blocks: Option<PortBlocks>,
        plane: &PppoeDataPlane,
        lost: &[LostSession],
    ) -> Result<Option<Self>, NetfilterError> {
        let port = file.ident.as_ref().and_then(|ident| ident.listen.first()).map(SocketAddr::port);
        let nat = file.data.nat;
        let translations = file.tracking.as_ref().is_some_and(|table| table.translations);
        let rules = port.is_some() || nat != NatWord::None || translations;
        let bounds = connection_bounds(&file.limits, rules);
        let bounded = bounds != ConnectionLimits::default();
        if !rules && !bounded {
            return Ok(None);
        }
        let ident_port = port.unwrap_or(usher_ident::PORT);
        let (device, incoming) = (plane.device_name().to_owned(), plane.incoming_interfaces().to_vec());
        let table = TABLE.to_owned();
        let config = NetfilterConfig { table, device, incoming, ident_port, bounds, logged: translations };
        let table = Arc::new(NetfilterTable::start(&config)?);
        let (wake, woken) = channel();
        let mut all = Self {
            table,
            ident: port.is_some(),
            hosts: bounded || translations,
            nat,
            blocks,
            pools: Vec::new(),
            sessions: BTreeMap::new(),
            tracked_networks: BTreeMap::new(),
            departed_hosts: DepartedHosts::default(),
            wake,
        };
        let (mut changes, mut left) = (Vec::new(), MOST);
        for range in pools.iter().flat_map(|pool| &pool.ranges) {
            match *range {
                PoolRange::Prefixes { network, length, each } => {
                    changes.extend(all.rule_change(network.into(), length, each));
                }
                PoolRange::Addresses { first: IpAddr::V4(first), last: IpAddr::V4(last) }
                    if nat != NatWord::Blocks =>
                {
                    let networks = range_networks(first, last);
                    changes.extend(
                        networks.filter_map(|(network, bits)| all.rule_change(network.into(), bits, 32)),
                    );
                }
                PoolRange::Addresses { first: IpAddr::V4(first), last: IpAddr::V4(last) }
                    if range.size() <= left =>
                {
                    left -= range.size();
                    let addresses = (first.to_bits()..=last.to_bits()).map(Ipv4Addr::from_bits);
                    changes.extend(addresses.filter_map(|address| all.rule_change(address.into(), 32, 32)));
                }
                PoolRange::Addresses { .. } => continue,
            }
            all.pools.push(*range);
        }
        all.table.apply_changes(&changes)?;
        if nat != NatWord::None {
            let lost: BTreeSet<Ipv4Addr> = lost.iter().filter_map(|lost| lost.begin.ipv4).collect();
            let ranges: Vec<PoolRange> = pools.iter().flat_map(|pool| pool.ranges.clone()).collect();
            conntrack::delete_by_source(|address| match address {
                IpAddr::V4(v4) => of_pools(&ranges, v4) || lost.contains(&v4),
                IpAddr::V6(_) => false,
            })
            .map_err(NetfilterError::FlushConnections)?;
        }
        if nat != NatWord::None || all.hosts {
            let gone = all.departed_hosts.clone();
            let thread = std::thread::Builder::new().name("usher-forget".to_owned());
            thread.spawn(move || gone.run_flusher(&woken)).map_err(NetfilterError::FlushConnections)?;
        }
        Ok(Some(all))
    }

    /// A session has these from now on.
    fn set_networks(&mut self, id: u64, networks: Vec<HostNetwork>) -> Result<(), NetfilterError> {
        let translated = |one: &HostNetwork| one.0.is_ipv4() && self.nat != NatWord::None;
        let networks = networks.into_iter().filter(|one| self.hosts || translated(one));
        let networks: Vec<HostNetwork> = networks.map(network_start).collect();
        let before = match networks.is_empty() {
            true => self.tracked_networks.remove(&id),
            false => self.tracked_networks.insert(id, networks.clone()),
        };
        for before in before.into_iter().flatten().filter(|before| !networks.contains(before)) {
            self.departed_hosts.add_network(before);
            // Its end is that of this program.
            let _ = self.wake.send(());
        }
        match self.departed_hosts.flush_connections(Some(&networks)) {
            // Nobody gets packets of another's connection, or is named for it.
            Err(error) if self.nat == NatWord::None => tracing::warn!(id, "{error}"),
            done => done?,
        }
        Ok(())
    }

    /// The table, as long as this is there.
    pub(super) fn netfilter_table(&self) -> Weak<NetfilterTable> {
        Arc::downgrade(&self.table)
    }

    /// What is done for an address or prefix, where something is; each host has `each` bits of it.
    fn rule_change(&self, address: IpAddr, bits: u8, each: u8) -> Option<(IpAddr, u8, Option<HostRules>)> {
        let translation = match (self.nat, address) {
            (NatWord::Masquerade, IpAddr::V4(_)) => Some(SourceNat::Masquerade),
            (NatWord::Blocks, IpAddr::V4(inner)) => {
                let block = self.blocks.as_ref().and_then(|blocks| blocks.block_of_host(inner));
                block.map(|block| SourceNat::Block {
                    external: block.address,
                    ports: block.first..=block.last,
                })
            }
            _ => None,
        };
        let rules = HostRules { ident: self.ident, translation, hosts: self.hosts.then_some(each) };
        (rules != HostRules::default()).then_some((address, bits, Some(rules)))
    }

    fn is_covered(&self, address: IpAddr) -> bool {
        self.pools.iter().any(|range| match (*range, address) {
            (PoolRange::Addresses { first, last }, IpAddr::V4(_)) => (first..=last).contains(&address),
            (PoolRange::Prefixes { network, length, .. }, IpAddr::V6(address)) => {
                let shift = 128 - u32::from(length);
                (network.to_bits() ^ address.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        })
    }

    /// A session's addresses are to have their rules, before its packets pass.
    pub(super) fn install_rules(&mut self, entry: &SessionEntry) -> Result<(), NatError> {
        if let Some(address) = without_block(self.nat, self.blocks.as_ref(), entry.ipv4) {
            return Err(NatError::NoBlock(address));
        }
        let ipv4 = entry.ipv4.map(|address| (IpAddr::V4(address), 32));
        let ipv6 = entry.ipv6.iter().map(|(prefix, bits)| (IpAddr::V6(*prefix), *bits));
        let all: Vec<HostNetwork> = ipv4.into_iter().chain(ipv6).collect();
        self.set_networks(entry.id, all.clone())?;
        let all = all.into_iter().filter(|(one, _)| !self.is_covered(*one));
        let wanted: Vec<_> =
            all.filter_map(|(address, bits)| self.rule_change(address, bits, bits)).collect();
        let before = self.sessions.get(&entry.id).cloned().unwrap_or_default();
        let kept = |one: &(IpAddr, u8)| wanted.iter().any(|(address, bits, _)| (*address, *bits) == *one);
        let gone = before.iter().filter(|one| !kept(one)).map(|(address, bits)| (*address, *bits, None));
        let changes: Vec<_> = gone.chain(wanted.iter().cloned()).collect();
        if changes.is_empty() {
            return Ok(());
        }
        self.table.apply_changes(&changes)?;
        if !wanted.is_empty() {
            let networks = wanted.into_iter().map(|(address, bits, _)| (address, bits)).collect();
            self.sessions.insert(entry.id, networks);
        }
        Ok(())
    }

    /// A session has no addresses any more.
    pub(super) fn remove_rules(&mut self, id: u64) -> Result<(), NetfilterError> {
        self.set_networks(id, Vec::new())?;
        let Some(gone) = self.sessions.remove(&id) else { return Ok(()) };
        let changes: Vec<_> = gone.into_iter().map(|(address, bits)| (address, bits, None)).collect();
        self.table.apply_changes(&changes)
    }
}

impl Drop for NatRules {
    fn drop(&mut self) {
        // Of those that are left the next concentrator has the kernel forget what it knows.
        let _ = self.departed_hosts.flush_connections(None);
    }
}

/// The fewest networks that have all addresses from the first to the last and no other, each with its length.
fn range_networks(first: Ipv4Addr, last: Ipv4Addr) -> impl Iterator<Item = (Ipv4Addr, u8)> {
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
pub(super) fn inner_end(
    QueriedConnection { local, remote }: &QueriedConnection,
) -> Result<Option<SocketAddr>, ()> {
    match conntrack::look_up_by_reply(*local, *remote, conntrack::TCP) {
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

    fn network_texts(first: &str, last: &str) -> Vec<String> {
        let all = range_networks(first.parse().unwrap(), last.parse().unwrap());
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
    fn an_address_is_of_the_networks_that_have_it() {
        let of = |text: &str| text.parse::<IpAddr>().unwrap();
        let all = [(of("10.0.0.7"), 32), (of("2001:db8:1::"), 64), (of("2001:db8:ff00::"), 56)].into();
        let has = of_networks(&all);
        for address in ["10.0.0.7", "2001:db8:1::9", "2001:db8:ff00:ff::"] {
            assert!(has(of(address)), "{address}");
        }
        for address in ["10.0.0.8", "2001:db8:1:1::", "2001:db8:ff00:100::", "::10.0.0.7"] {
            assert!(!has(of(address)), "{address}");
        }
    }

    #[test]
    fn connection_limits_have_defaults_only_where_rules_exist() {
        let bounds = |connections, connections_per_second, rules| {
            let limits = LimitsTable { connections, connections_per_second, ..LimitsTable::default() };
            let ConnectionLimits { at_once, per_second } = super::connection_bounds(&limits, rules);
            (at_once, per_second)
        };
        assert_eq!((bounds(None, None, false), bounds(None, None, true)), ((0, 0), (4096, 100)));
        assert_eq!((bounds(Some(7), None, false), bounds(Some(0), Some(9), true)), ((7, 0), (0, 9)));
    }

    #[test]
    fn a_range_is_the_fewest_networks_that_have_all_of_it() {
        assert_eq!(network_texts("10.0.0.0", "10.0.127.255"), ["10.0.0.0/17"]);
        assert_eq!(network_texts("10.0.0.7", "10.0.0.7"), ["10.0.0.7/32"]);
        assert_eq!(network_texts("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(network_texts("255.255.255.254", "255.255.255.255"), ["255.255.255.254/31"]);
        assert_eq!(network_texts("10.0.0.2", "10.0.0.1"), [""; 0]);
        for (first, last) in [(1, 1000), (5, 77), (0x0a00_00ff, 0x0a00_0101), (2, 9)] {
            let all = range_networks(Ipv4Addr::from_bits(first), Ipv4Addr::from_bits(last));
            let each = all.flat_map(|(network, bits)| {
                assert_eq!(network.to_bits().checked_shl(bits.into()).unwrap_or(0), 0, "{network}/{bits}");
                network.to_bits()..network.to_bits() + (1 << (32 - bits))
            });
            assert!(each.eq(first..=last));
        }
    }
}

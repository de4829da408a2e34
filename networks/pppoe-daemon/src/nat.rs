//! The netfilter rules for hosts: they redirect port 113 to our IDENT server and translate addresses.

use super::translations::is_in_pool_ranges;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use usher_access::pool::{PoolConfig, PoolRange};
use usher_concentrator::SessionEntry;
use usher_concentrator::config::{ConcentratorConfigFile, LimitsTable, NatModeName};
use usher_concentrator::track::{PortBlockMapping, SessionLostByRestart};
use usher_ident::QueriedConnection;
use usher_pppoe::PppoeDataPlane;
use usher_pppoe::netfilter::{
    ConntrackLimits, HostNetfilterRules, NetfilterConfig, NetfilterError, NetfilterTable, SourceNatMode,
    conntrack,
};

/// The name of our table. Only one concentrator of a host can use netfilter.
const TABLE: &str = "usher_pppoe";
/// The most pool addresses that get a rule at the start. Others get theirs with their sessions.
const MOST: u64 = 65_536;
/// The delay after a host's departure before its connections are flushed, together with those of other departed
/// hosts.
const TOGETHER: Duration = Duration::from_millis(100);

/// Departed hosts whose connections are not flushed yet. Otherwise the next holder of the address would receive their
/// packets, and be named for them.
#[derive(Clone, Debug, Default)]
struct PendingConntrackFlushes(Arc<Mutex<BTreeSet<HostNetwork>>>);

/// An address with 32 bits, or an IPv6 prefix with its length.
type HostNetwork = (IpAddr, u8);

impl PendingConntrackFlushes {
    fn add_network(&self, network: HostNetwork) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(network);
    }
    /// Flushes the connections of all departed hosts, if one of them is in `some`. `None`: if there are any.
    fn flush_connections(&self, some: Option<&[HostNetwork]>) -> Result<(), NetfilterError> {
        // Hold the lock during the flush, so that no session gets one of these addresses before the flush is done.
        let mut gone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gone.is_empty() || some.is_some_and(|some| some.iter().all(|one| !gone.contains(one))) {
            return Ok(());
        }
        let is_gone = network_membership_test(&gone);
        conntrack::delete_connections_by_source(is_gone).map_err(NetfilterError::FlushConnections)?;
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

/// Returns a test whether one of the networks contains an address.
fn network_membership_test(all: &BTreeSet<HostNetwork>) -> impl Fn(IpAddr) -> bool {
    let lengths: BTreeSet<u8> = all.iter().filter(|(one, _)| one.is_ipv6()).map(|(_, bits)| *bits).collect();
    move |address| match address {
        IpAddr::V4(_) => all.contains(&(address, 32)),
        IpAddr::V6(_) => lengths.iter().any(|bits| all.contains(&first_network_address((address, *bits)))),
    }
}

/// Normalizes an IPv6 prefix to its first address.
fn first_network_address((address, bits): HostNetwork) -> HostNetwork {
    let IpAddr::V6(v6) = address else { return (address, bits) };
    let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits.into())).unwrap_or(0);
    (Ipv6Addr::from_bits(v6.to_bits() & mask).into(), bits)
}

/// Why a session's addresses get no rules.
#[derive(Debug, thiserror::Error)]
pub(super) enum NatError {
    /// The address would leave untranslated.
    #[error("{0} has no port block: it is not within \"inside\" of [tracking.ports]")]
    NoBlock(Ipv4Addr),
    /// An error of the system.
    #[error(transparent)]
    Netfilter(#[from] NetfilterError),
}

/// Returns the address of a session that needs a port block and has none. An AAA server can assign any address.
fn address_without_port_block(
    nat: NatModeName,
    blocks: Option<&PortBlockMapping>,
    address: Option<Ipv4Addr>,
) -> Option<Ipv4Addr> {
    let has = |address: &Ipv4Addr| blocks.is_some_and(|blocks| blocks.port_block_of_host(*address).is_some());
    address.filter(|address| nat == NatModeName::Blocks && !has(address))
}

/// Returns the connection limits of a host. `rules`: there are rules for hosts in any case, so the defaults apply.
fn host_connection_limits(limits: &LimitsTable, rules: bool) -> ConntrackLimits {
    let usual = |n: u32| if rules { n } else { 0 };
    let (at_once, per_second) = LimitsTable::CONNECTIONS;
    ConntrackLimits {
        at_once: limits.connections.unwrap_or_else(|| usual(at_once)),
        per_second: limits.connections_per_second.unwrap_or_else(|| usual(per_second)),
    }
}

/// The rules of hosts.
#[derive(Debug)]
pub(super) struct NatRules {
    /// Removed when this is dropped.
    table: Arc<NetfilterTable>,
    ident: bool,
    /// True if connections of hosts are limited, or the gate may drop them.
    hosts: bool,
    nat: NatModeName,
    blocks: Option<PortBlockMapping>,
    /// Pools whose addresses have had rules since the start.
    pools: Vec<PoolRange>,
    /// Networks of sessions outside these pools.
    sessions: BTreeMap<u64, Vec<(IpAddr, u8)>>,
    /// The networks of sessions whose connections must be flushed at their end: translated ones, and all if
    /// connections are limited. Otherwise old connections would count against the next holder.
    tracked_networks: BTreeMap<u64, Vec<HostNetwork>>,
    departed_hosts: PendingConntrackFlushes,
    /// Wakes the thread that flushes.
    wake: Sender<()>,
}

impl NatRules {
    /// Creates the rules for all addresses of the pools. `None`: the file needs no rules. With translation, flushes
    /// the connections of the pools and of an earlier concentrator's `lost` sessions.
    pub(super) fn start(
        file: &ConcentratorConfigFile,
        pools: &[PoolConfig],
        blocks: Option<PortBlockMapping>,
        plane: &PppoeDataPlane,
        lost: &[SessionLostByRestart],
    ) -> Result<Option<Self>, NetfilterError> {
        let port = file.ident.as_ref().and_then(|ident| ident.listen.first()).map(SocketAddr::port);
        let nat = file.data.nat;
        let translations = file.tracking.as_ref().is_some_and(|table| table.translations);
        let rules = port.is_some() || nat != NatModeName::None || translations;
        let bounds = host_connection_limits(&file.limits, rules);
        let bounded = bounds != ConntrackLimits::default();
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
            departed_hosts: PendingConntrackFlushes::default(),
            wake,
        };
        let (mut changes, mut left) = (Vec::new(), MOST);
        for range in pools.iter().flat_map(|pool| &pool.ranges) {
            match *range {
                PoolRange::Prefixes { network, length, each } => {
                    changes.extend(all.host_rule_change(network.into(), length, each));
                }
                PoolRange::Addresses { first: IpAddr::V4(first), last: IpAddr::V4(last) }
                    if nat != NatModeName::Blocks =>
                {
                    let networks = range_networks(first, last);
                    changes.extend(
                        networks.filter_map(|(network, bits)| all.host_rule_change(network.into(), bits, 32)),
                    );
                }
                PoolRange::Addresses { first: IpAddr::V4(first), last: IpAddr::V4(last) }
                    if range.size() <= left =>
                {
                    left -= range.size();
                    let addresses = (first.to_bits()..=last.to_bits()).map(Ipv4Addr::from_bits);
                    changes
                        .extend(addresses.filter_map(|address| all.host_rule_change(address.into(), 32, 32)));
                }
                PoolRange::Addresses { .. } => continue,
            }
            all.pools.push(*range);
        }
        all.table.apply_changes(&changes)?;
        if nat != NatModeName::None {
            let lost: BTreeSet<Ipv4Addr> = lost.iter().filter_map(|lost| lost.begin.ipv4).collect();
            let ranges: Vec<PoolRange> = pools.iter().flat_map(|pool| pool.ranges.clone()).collect();
            conntrack::delete_connections_by_source(|address| match address {
                IpAddr::V4(v4) => is_in_pool_ranges(&ranges, v4) || lost.contains(&v4),
                IpAddr::V6(_) => false,
            })
            .map_err(NetfilterError::FlushConnections)?;
        }
        if nat != NatModeName::None || all.hosts {
            let gone = all.departed_hosts.clone();
            let thread = std::thread::Builder::new().name("usher-forget".to_owned());
            thread.spawn(move || gone.run_flusher(&woken)).map_err(NetfilterError::FlushConnections)?;
        }
        Ok(Some(all))
    }

    /// Sets the networks of a session.
    fn set_session_networks(&mut self, id: u64, networks: Vec<HostNetwork>) -> Result<(), NetfilterError> {
        let translated = |one: &HostNetwork| one.0.is_ipv4() && self.nat != NatModeName::None;
        let networks = networks.into_iter().filter(|one| self.hosts || translated(one));
        let networks: Vec<HostNetwork> = networks.map(first_network_address).collect();
        let before = match networks.is_empty() {
            true => self.tracked_networks.remove(&id),
            false => self.tracked_networks.insert(id, networks.clone()),
        };
        for before in before.into_iter().flatten().filter(|before| !networks.contains(before)) {
            self.departed_hosts.add_network(before);
            // A send error is ignored: the thread that receives this ends only with the program.
            let _ = self.wake.send(());
        }
        match self.departed_hosts.flush_connections(Some(&networks)) {
            // Without NAT, remaining connections neither misdirect packets nor name the wrong session, so a failed
            // flush is only logged.
            Err(error) if self.nat == NatModeName::None => tracing::warn!(id, "{error}"),
            done => done?,
        }
        Ok(())
    }

    /// Returns a weak reference to the table.
    pub(super) fn netfilter_table(&self) -> Weak<NetfilterTable> {
        Arc::downgrade(&self.table)
    }

    /// Returns the rule for an address or prefix, if it needs one. Each host has `each` bits of it.
    fn host_rule_change(
        &self,
        address: IpAddr,
        bits: u8,
        each: u8,
    ) -> Option<(IpAddr, u8, Option<HostNetfilterRules>)> {
        let translation = match (self.nat, address) {
            (NatModeName::Masquerade, IpAddr::V4(_)) => Some(SourceNatMode::Masquerade),
            (NatModeName::Blocks, IpAddr::V4(inner)) => {
                let block = self.blocks.as_ref().and_then(|blocks| blocks.port_block_of_host(inner));
                block.map(|block| SourceNatMode::Block {
                    external: block.address,
                    ports: block.first..=block.last,
                })
            }
            _ => None,
        };
        let rules = HostNetfilterRules { ident: self.ident, translation, hosts: self.hosts.then_some(each) };
        (rules != HostNetfilterRules::default()).then_some((address, bits, Some(rules)))
    }

    fn is_in_address_pools(&self, address: IpAddr) -> bool {
        self.pools.iter().any(|range| match (*range, address) {
            (PoolRange::Addresses { first, last }, IpAddr::V4(_)) => (first..=last).contains(&address),
            (PoolRange::Prefixes { network, length, .. }, IpAddr::V6(address)) => {
                let shift = 128 - u32::from(length);
                (network.to_bits() ^ address.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        })
    }

    /// Installs the rules of a session before its packets pass.
    pub(super) fn install_rules(&mut self, entry: &SessionEntry) -> Result<(), NatError> {
        if let Some(address) = address_without_port_block(self.nat, self.blocks.as_ref(), entry.ipv4) {
            return Err(NatError::NoBlock(address));
        }
        let ipv4 = entry.ipv4.map(|address| (IpAddr::V4(address), 32));
        let ipv6 = entry.ipv6.iter().map(|(prefix, bits)| (IpAddr::V6(*prefix), *bits));
        let all: Vec<HostNetwork> = ipv4.into_iter().chain(ipv6).collect();
        self.set_session_networks(entry.id, all.clone())?;
        let all = all.into_iter().filter(|(one, _)| !self.is_in_address_pools(*one));
        let wanted: Vec<_> =
            all.filter_map(|(address, bits)| self.host_rule_change(address, bits, bits)).collect();
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

    /// Removes the rules of a session.
    pub(super) fn remove_rules(&mut self, id: u64) -> Result<(), NetfilterError> {
        self.set_session_networks(id, Vec::new())?;
        let Some(gone) = self.sessions.remove(&id) else { return Ok(()) };
        let changes: Vec<_> = gone.into_iter().map(|(address, bits)| (address, bits, None)).collect();
        self.table.apply_changes(&changes)
    }
}

impl Drop for NatRules {
    fn drop(&mut self) {
        // An error is ignored: the next start flushes any remaining connections.
        let _ = self.departed_hosts.flush_connections(None);
    }
}

/// Returns the fewest networks that cover exactly the range from the first to the last address.
fn range_networks(first: Ipv4Addr, last: Ipv4Addr) -> impl Iterator<Item = (Ipv4Addr, u8)> {
    let (mut next, last) = (u64::from(first.to_bits()), u64::from(last.to_bits()));
    std::iter::from_fn(move || {
        let left = (last + 1).checked_sub(next).filter(|left| *left > 0)?;
        // The largest block that starts here and does not pass the last address.
        let bits = left.ilog2().min(next.trailing_zeros()).min(32);
        let network = Ipv4Addr::from_bits(next as u32);
        next += 1 << bits;
        Some((network, 32 - bits as u8))
    })
}

/// Returns the inside end of a translated connection by its outside end. `Err`: the kernel does not tell it.
pub(super) fn inside_endpoint(
    QueriedConnection { local, remote }: &QueriedConnection,
) -> Result<Option<SocketAddr>, ()> {
    match conntrack::find_connection_by_reply(*local, *remote, conntrack::TCP) {
        Ok(found) => Ok(found.map(|connection| connection.original.source)),
        Err(error) => {
            tracing::error!(%error, "cannot look up a translation in the kernel");
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
        let blocks =
            PortBlockMapping::new((address(0), address(7)), &[Ipv4Addr::new(192, 0, 2, 1)], 1024).unwrap();
        let refused = |nat, last| address_without_port_block(nat, Some(&blocks), Some(address(last)));
        assert_eq!(
            (refused(NatModeName::Blocks, 7), refused(NatModeName::Blocks, 8)),
            (None, Some(address(8)))
        );
        assert_eq!((refused(NatModeName::Masquerade, 8), refused(NatModeName::None, 8)), (None, None));
        assert_eq!(
            address_without_port_block(NatModeName::Blocks, Some(&blocks), None),
            None,
            "one of IPv6 alone"
        );
        assert_eq!(address_without_port_block(NatModeName::Blocks, None, Some(address(1))), Some(address(1)));
    }

    #[test]
    fn an_address_is_of_the_networks_that_have_it() {
        let of = |text: &str| text.parse::<IpAddr>().unwrap();
        let all = [(of("10.0.0.7"), 32), (of("2001:db8:1::"), 64), (of("2001:db8:ff00::"), 56)].into();
        let has = network_membership_test(&all);
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
            let ConntrackLimits { at_once, per_second } = super::host_connection_limits(&limits, rules);
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

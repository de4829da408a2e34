//! Routes packets of the system to the device of CHILD_SAs: its addresses, a routing table, and a rule that leads
//! there all packets without the mark of IKE and ESP (rtnetlink(7)).
//!
//! ```text
//! rule 4500: not mark 4500 ──▶ table 4500 ─ 10.0.0.0/8 ──▶ device, from the inner address
//!                                          ├ throw 192.0.2.1 (the other side, whom a wider route might hide)
//! rule 32766: main  ◀── whatever is not there
//! ```
//! Routes by the device disappear with it, even if this program is killed. [`Drop`], or the next start, removes the
//! rest.

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_device::netlink::{interface_index, run_request};
use usher_esp::TrafficSelector;

/// A network: its first address and its prefix length.
pub(super) type RoutePrefix = (IpAddr, u8);

const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];

const fn address_family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

pub(super) const fn address_width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

/// Returns the networks that cover exactly this range.
pub(super) fn range_networks(first: IpAddr, last: IpAddr) -> Vec<RoutePrefix> {
    let (width, mut at, end) = (address_width(first), address_bits(first), address_bits(last));
    let address = |bits: u128| match first {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::from(bits as u32)),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::from(bits)),
    };
    let mut all = Vec::new();
    while at <= end {
        // The largest aligned block that starts here and does not pass the end.
        let aligned = at.trailing_zeros().min(width.into());
        let fits = (0..=aligned).rev().find(|host| {
            let more = u128::MAX.checked_shr(128 - host).unwrap_or(0);
            at.checked_add(more).is_some_and(|last| last <= end)
        });
        let host = fits.unwrap_or(0);
        all.push((address(at), width - host as u8));
        let more = u128::MAX.checked_shr(128 - host).unwrap_or(0);
        match at.checked_add(more).and_then(|last| last.checked_add(1)) {
            Some(next) => at = next,
            None => break,
        }
    }
    all
}

/// The networks of traffic selectors, regardless of protocols and ports.
pub(super) fn networks_of(selectors: &[TrafficSelector]) -> Vec<RoutePrefix> {
    let mut all: Vec<_> =
        selectors.iter().flat_map(|selector| range_networks(selector.start, selector.end)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn contains_address((network, prefix): RoutePrefix, address: IpAddr) -> bool {
    let host = u32::from(address_width(network) - prefix);
    network.is_ipv4() == address.is_ipv4()
        && address_bits(network).checked_shr(host).unwrap_or(0)
            == address_bits(address).checked_shr(host).unwrap_or(0)
}

/// True if `whole` contains all of `part`.
pub(super) fn covers_network(whole: RoutePrefix, part: RoutePrefix) -> bool {
    whole.1 <= part.1 && contains_address(whole, part.0)
}

/// A route by the device, with the preferred source of each of its users.
#[derive(Debug, Default)]
struct RoutePreferredSources(Vec<Option<IpAddr>>);

impl RoutePreferredSources {
    /// The preferred source of the newest user that has one.
    fn preferred_source(&self) -> Option<IpAddr> {
        self.0.iter().rev().find_map(|source| *source)
    }
}

/// The changes to the system's routing. Dropping them undoes them.
#[derive(Debug)]
pub(super) struct RoutingChanges {
    device: u32,
    table: u32,
    mark: u32,
    families: Vec<AddressFamily>,
    addresses: BTreeMap<IpAddr, usize>,
    routes: BTreeMap<RoutePrefix, RoutePreferredSources>,
    /// Peer addresses that bypass the device, with the number of their users.
    past: BTreeMap<IpAddr, usize>,
}

impl RoutingChanges {
    /// Adds the rules that lead unmarked packets to the table. Removes the leftovers of a killed program.
    pub(super) fn new(device: &str, table: u32, mark: u32) -> io::Result<Self> {
        let mut routing = Self {
            device: interface_index(device)?,
            table,
            mark,
            families: Vec::new(),
            addresses: BTreeMap::new(),
            routes: BTreeMap::new(),
            past: BTreeMap::new(),
        };
        for family in FAMILIES {
            match routing.set_up_family_routing(family) {
                Ok(()) => routing.families.push(family),
                // This system has no IPv6, so there is nothing to set up.
                Err(error) if family == AddressFamily::Inet6 => {
                    tracing::debug!(%error, "no IPv6 routes on this system");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(routing)
    }

    fn set_up_family_routing(&self, family: AddressFamily) -> io::Result<()> {
        let left = self.table_routes(family)?;
        // If unicast routes are in the table, another running program owns them, so delete nothing.
        if !left.iter().any(|route| route.header.kind == RouteType::Unicast) {
            for route in left {
                run_request(NLM_F_ACK, RouteNetlinkMessage::DelRoute(route))?;
            }
            while run_request(NLM_F_ACK, RouteNetlinkMessage::DelRule(self.rule_message(family))).is_ok() {}
        }
        run_request(NLM_F_ACK | NLM_F_CREATE, RouteNetlinkMessage::NewRule(self.rule_message(family)))
            .map(drop)
    }

    /// Lists the routes of the table.
    fn table_routes(&self, family: AddressFamily) -> io::Result<Vec<RouteMessage>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        let all = run_request(NLM_F_DUMP, RouteNetlinkMessage::GetRoute(message))?.into_iter();
        let ours = |route: &RouteMessage| {
            route
                .attributes
                .iter()
                .any(|one| matches!(one, RouteAttribute::Table(table) if *table == self.table))
        };
        Ok(all
            .filter_map(|message| match message {
                RouteNetlinkMessage::NewRoute(route) if ours(&route) => Some(route),
                _ => None,
            })
            .collect())
    }

    fn rule_message(&self, family: AddressFamily) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = family;
        message.header.action = RuleAction::ToTable;
        message.header.flags = RuleFlags::Invert;
        message.attributes = vec![
            RuleAttribute::Priority(self.table),
            RuleAttribute::FwMark(self.mark),
            RuleAttribute::FwMask(u32::MAX),
            RuleAttribute::Table(self.table),
        ];
        message
    }

    fn route_message(&self, (network, prefix): RoutePrefix, kind: RouteType) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = address_family(network);
        message.header.table = RouteHeader::RT_TABLE_UNSPEC;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope =
            if kind == RouteType::Unicast { RouteScope::Link } else { RouteScope::Universe };
        message.header.kind = kind;
        message.header.destination_prefix_length = prefix;
        message.attributes = vec![RouteAttribute::Table(self.table)];
        if prefix > 0 {
            message.attributes.push(RouteAttribute::Destination(route_address(network)));
        }
        message
    }

    fn supports_family(&self, address: IpAddr) -> bool {
        self.families.contains(&address_family(address))
    }

    /// Adds a virtual address to the device.
    pub(super) fn add_address(&mut self, address: IpAddr) -> io::Result<()> {
        let uses = self.addresses.entry(address).or_default();
        *uses += 1;
        if *uses > 1 || !self.supports_family(address) {
            return Ok(());
        }
        match run_request(
            NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
            RouteNetlinkMessage::NewAddress(self.address_message(address)),
        ) {
            Err(error) if error.raw_os_error() == Some(Errno::EEXIST as i32) => Ok(()),
            done => done.map(drop),
        }
    }
    /// Removes a virtual address, unless another SA uses it.
    pub(super) fn remove_address(&mut self, address: IpAddr) -> io::Result<()> {
        let Some(uses) = self.addresses.get_mut(&address) else { return Ok(()) };
        *uses -= 1;
        if *uses > 0 {
            return Ok(());
        }
        self.addresses.remove(&address);
        if !self.supports_family(address) {
            return Ok(());
        }
        // With the last IPv4 address the kernel removes all routes by the device. Until they are back, a blackhole
        // keeps packets from other routes.
        let held = if address.is_ipv4() && !self.addresses.keys().any(IpAddr::is_ipv4) {
            self.routes.keys().copied().filter(|(network, _)| network.is_ipv4()).collect()
        } else {
            Vec::new()
        };
        for network in &held {
            self.set_blackhole(*network, true)?;
        }
        let done =
            run_request(NLM_F_ACK, RouteNetlinkMessage::DelAddress(self.address_message(address))).map(drop);
        for network in &held {
            self.install_route(*network)?;
            self.set_blackhole(*network, false)?;
        }
        done
    }
    /// Sets or removes a blackhole route for packets that no route leads to the device.
    fn set_blackhole(&self, network: RoutePrefix, on: bool) -> io::Result<()> {
        let mut message = self.route_message(network, RouteType::BlackHole);
        message.attributes.push(RouteAttribute::Priority(u32::MAX));
        match on {
            true => run_request(NLM_F_ACK | NLM_F_CREATE, RouteNetlinkMessage::NewRoute(message)).map(drop),
            false => run_request(NLM_F_ACK, RouteNetlinkMessage::DelRoute(message)).map(drop),
        }
    }
    fn address_message(&self, address: IpAddr) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.family = address_family(address);
        message.header.prefix_len = address_width(address);
        message.header.index = self.device;
        message.header.scope = AddressScope::Universe;
        // Skip duplicate address detection: no neighbor on a point-to-point device can have the same address.
        message.header.flags = AddressHeaderFlags::Nodad;
        message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        message
    }

    /// Routes a network to the device. Packets of this host without a source use this one.
    pub(super) fn add_route(&mut self, network: RoutePrefix, source: Option<IpAddr>) -> io::Result<()> {
        let route = self.routes.entry(network).or_default();
        let before = route.preferred_source();
        route.0.push(source);
        let known = route.0.len() > 1 && route.preferred_source() == before;
        if known || !self.supports_family(network.0) {
            return Ok(());
        }
        if network.1 == address_width(network.0) && self.past.contains_key(&network.0) {
            self.set_throw_route(network.0, false)?;
        }
        self.install_route(network)
    }
    fn install_route(&self, network: RoutePrefix) -> io::Result<()> {
        let mut message = self.route_message(network, RouteType::Unicast);
        message.attributes.push(RouteAttribute::Oif(self.device));
        let source = self.routes.get(&network).and_then(RoutePreferredSources::preferred_source);
        message.attributes.extend(source.map(|source| RouteAttribute::PrefSource(route_address(source))));
        run_request(NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, RouteNetlinkMessage::NewRoute(message))
            .map(drop)
    }
    /// Removes one user of a route, with this source. The route stays while others use it.
    pub(super) fn remove_route(&mut self, network: RoutePrefix, source: Option<IpAddr>) -> io::Result<()> {
        let Some(route) = self.routes.get_mut(&network) else { return Ok(()) };
        let before = route.preferred_source();
        if let Some(at) = route.0.iter().rposition(|other| *other == source) {
            route.0.remove(at);
        }
        if !route.0.is_empty() {
            // When an address is removed, the kernel also removes the routes that have it as preferred source.
            let stays = route.preferred_source() == before || !self.supports_family(network.0);
            return if stays { Ok(()) } else { self.install_route(network) };
        }
        self.routes.remove(&network);
        if !self.supports_family(network.0) {
            return Ok(());
        }
        let mut message = self.route_message(network, RouteType::Unicast);
        message.attributes.push(RouteAttribute::Oif(self.device));
        match run_request(NLM_F_ACK, RouteNetlinkMessage::DelRoute(message)) {
            // ESRCH: the kernel already removed the route together with its source address.
            Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => {}
            done => drop(done?),
        }
        if network.1 == address_width(network.0) && self.past.contains_key(&network.0) {
            self.set_throw_route(network.0, true)?;
        }
        Ok(())
    }

    /// Routes a peer's address past the device, even if a wider route leads there. Otherwise `rp_filter` drops the
    /// peer's packets as spoofed. A route to exactly this address takes precedence.
    pub(super) fn add_bypass_route(&mut self, address: IpAddr) -> io::Result<()> {
        let uses = self.past.entry(address).or_default();
        *uses += 1;
        let led = self.routes.contains_key(&(address, address_width(address)));
        if *uses > 1 || led || !self.supports_family(address) {
            Ok(())
        } else {
            self.set_throw_route(address, true)
        }
    }
    /// Removes one user of a bypass.
    pub(super) fn remove_bypass_route(&mut self, address: IpAddr) -> io::Result<()> {
        let Some(uses) = self.past.get_mut(&address) else { return Ok(()) };
        *uses -= 1;
        if *uses > 0 {
            return Ok(());
        }
        self.past.remove(&address);
        let led = self.routes.contains_key(&(address, address_width(address)));
        if led || !self.supports_family(address) { Ok(()) } else { self.set_throw_route(address, false) }
    }
    fn set_throw_route(&self, address: IpAddr, on: bool) -> io::Result<()> {
        let message = self.route_message((address, address_width(address)), RouteType::Throw);
        match on {
            true => run_request(NLM_F_ACK | NLM_F_CREATE, RouteNetlinkMessage::NewRoute(message)).map(drop),
            false => run_request(NLM_F_ACK, RouteNetlinkMessage::DelRoute(message)).map(drop),
        }
    }
}

impl Drop for RoutingChanges {
    fn drop(&mut self) {
        let past: Vec<IpAddr> = self.past.keys().copied().collect();
        for address in past {
            // An error is ignored: a throw route that remains does no harm, and the next start removes it.
            if !self.routes.contains_key(&(address, address_width(address))) {
                let _ = self.set_throw_route(address, false);
            }
        }
        for family in &self.families {
            let _ = run_request(NLM_F_ACK, RouteNetlinkMessage::DelRule(self.rule_message(*family)));
        }
    }
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(v4) => RouteAddress::Inet(v4),
        IpAddr::V6(v6) => RouteAddress::Inet6(v6),
    }
}

/// Returns an address of this host that the traffic selectors contain.
pub(super) fn own_address(of: &[TrafficSelector], v4: bool) -> io::Result<Option<IpAddr>> {
    let all = run_request(NLM_F_DUMP, RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    let addresses = all.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewAddress(address) => address.attributes.iter().find_map(|one| match one {
            AddressAttribute::Local(local) => Some(*local),
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        }),
        _ => None,
    });
    let fits = |address: &IpAddr| {
        address.is_ipv4() == v4
            && !address.is_loopback()
            && of.iter().any(|selector| (selector.start..=selector.end).contains(address))
    };
    Ok(addresses.into_iter().find(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network_texts(first: &str, last: &str) -> Vec<String> {
        let of = |text: &str| text.parse().unwrap();
        range_networks(of(first), of(last))
            .into_iter()
            .map(|(network, bits)| format!("{network}/{bits}"))
            .collect()
    }

    #[test]
    fn a_range_is_as_few_networks_as_can_be() {
        assert_eq!(network_texts("10.9.0.0", "10.9.255.255"), ["10.9.0.0/16"]);
        assert_eq!(network_texts("10.9.0.10", "10.9.0.11"), ["10.9.0.10/31"]);
        assert_eq!(
            network_texts("10.0.0.1", "10.0.0.6"),
            ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"]
        );
        assert_eq!(network_texts("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(network_texts("255.255.255.254", "255.255.255.255"), ["255.255.255.254/31"]);
        assert_eq!(network_texts("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ["::/0"]);
        assert_eq!(network_texts("2001:db8::1", "2001:db8::1"), ["2001:db8::1/128"]);
        assert_eq!(network_texts("0.0.0.1", "255.255.255.255").len(), 32);
    }

    #[test]
    fn a_network_holds_its_own_addresses() {
        let net = |text: &str, bits| (text.parse().unwrap(), bits);
        assert!(contains_address(net("10.9.0.0", 16), "10.9.3.4".parse().unwrap()));
        assert!(!contains_address(net("10.9.0.0", 16), "10.8.3.4".parse().unwrap()));
        assert!(contains_address(net("0.0.0.0", 0), "10.8.3.4".parse().unwrap()));
        assert!(!contains_address(net("0.0.0.0", 0), "::".parse().unwrap()));
        assert!(contains_address(net("::", 0), "2001:db8::1".parse().unwrap()));
    }
}

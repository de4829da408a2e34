//! The kernel's links: their state and its changes, switching, and the default route (rtnetlink(7)).
//!
//! Data rates and signal levels are read from the kernel's files, since netlink lacks them. Files of another network
//! namespace are ignored.

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NetlinkPayload};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use usher_device::netlink::{interface_index, open_route_socket, parse_messages, run_request};
use usher_mih_service::KernelLinkReport;

/// The multicast groups for links, IPv4 addresses and IPv6 addresses (rtnetlink(7), RTNLGRP).
const GROUPS: [u32; 3] = [1, 5, 9];

/// A notification of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NetlinkChange {
    /// An interface is present or has changed.
    Link(KernelLinkReport),
    /// An interface gained or lost an address.
    Address,
}

/// Lists all interfaces with their indexes.
///
/// # Errors
/// An error of the kernel.
pub(crate) fn list_links() -> io::Result<Vec<(u32, KernelLinkReport)>> {
    let all = run_request(NLM_F_DUMP, RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    Ok(all
        .into_iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some((link.header.index, link_report(&link, true)?)),
            _ => None,
        })
        .collect())
}

/// Switches an interface on or off.
///
/// # Errors
/// The interface is absent, permission is missing, or another error of the kernel.
pub(crate) fn set_link_enabled(name: &str, on: bool) -> io::Result<()> {
    let index = interface_index(name)?;
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.flags = if on { LinkFlags::Up } else { LinkFlags::empty() };
    message.header.change_mask = LinkFlags::Up;
    run_request(NLM_F_ACK, RouteNetlinkMessage::SetLink(message)).map(drop)
}

/// Replaces the default route of the gateway's address family by one via this interface and gateway.
///
/// # Errors
/// The interface is absent, permission is missing, or another error of the kernel.
pub(crate) fn replace_default_route(interface: &str, gateway: IpAddr) -> io::Result<()> {
    let mut message = RouteMessage::default();
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    let gateway = match gateway {
        IpAddr::V4(address) => {
            message.header.address_family = AddressFamily::Inet;
            RouteAddress::Inet(address)
        }
        IpAddr::V6(address) => {
            message.header.address_family = AddressFamily::Inet6;
            RouteAddress::Inet6(address)
        }
    };
    message.attributes =
        vec![RouteAttribute::Gateway(gateway), RouteAttribute::Oif(interface_index(interface)?)];
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
    run_request(flags, RouteNetlinkMessage::NewRoute(message)).map(drop)
}

/// Reports all interfaces, then their changes, until `said` returns false.
///
/// # Errors
/// An error of the kernel.
pub(crate) fn watch_netlink_changes(mut said: impl FnMut(NetlinkChange) -> bool) -> io::Result<()> {
    let socket = open_route_socket()?;
    for group in GROUPS {
        socket.add_membership(group)?;
    }
    let mut known = Vec::new();
    let mut whole = false;
    loop {
        if !std::mem::replace(&mut whole, true) {
            let now: Vec<KernelLinkReport> = list_links()?.into_iter().map(|(_, link)| link).collect();
            let gone = |link: &&KernelLinkReport| !now.iter().any(|other| other.name == link.name);
            let ended: Vec<KernelLinkReport> = known.iter().filter(gone).map(absent_link_report).collect();
            for link in ended.into_iter().chain(now.iter().cloned()) {
                if !said(NetlinkChange::Link(link)) {
                    return Ok(());
                }
            }
            known = now;
        }
        let octets = match socket.recv_from_full() {
            Ok((octets, _)) => octets,
            // ENOBUFS: the socket buffer overflowed and notifications were lost, so list everything again.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                whole = false;
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        for payload in parse_messages(&octets) {
            let NetlinkPayload::InnerMessage(message) = payload else { continue };
            let change = match &message {
                RouteNetlinkMessage::NewLink(link) => link_report(link, true).map(NetlinkChange::Link),
                RouteNetlinkMessage::DelLink(link) => link_report(link, false).map(NetlinkChange::Link),
                RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_) => {
                    Some(NetlinkChange::Address)
                }
                _ => None,
            };
            if let Some(NetlinkChange::Link(link)) = &change {
                known.retain(|other: &KernelLinkReport| other.name != link.name);
                if link.present {
                    known.push(link.clone());
                }
            }
            if change.is_some_and(|change| !said(change)) {
                return Ok(());
            }
        }
    }
}

/// Returns the report of an interface that has gone.
fn absent_link_report(link: &KernelLinkReport) -> KernelLinkReport {
    KernelLinkReport { present: false, enabled: false, up: false, rate: None, signal: None, ..link.clone() }
}

/// Parses an interface. `None`: the message has no name. A loopback interface has no MAC address.
fn link_report(link: &LinkMessage, present: bool) -> Option<KernelLinkReport> {
    let mut name = None;
    let mut address = None;
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Address(octets) => address = <[u8; 6]>::try_from(&octets[..]).ok(),
            _ => {}
        }
    }
    let (name, flags) = (name?, link.header.flags);
    let loopback = flags.contains(LinkFlags::Loopback);
    let enabled = present && flags.contains(LinkFlags::Up);
    let shown = Path::new("/sys/class/net").join(&name);
    let ours = read_number(&shown.join("ifindex")) == Some(i64::from(link.header.index));
    let rate = read_number(&shown.join("speed")).filter(|_| ours && enabled);
    let wireless = ours && (shown.join("wireless").exists() || shown.join("phy80211").exists());
    Some(KernelLinkReport {
        present,
        enabled,
        // IFF_RUNNING is RFC 2863's operational state "up".
        up: enabled && flags.contains(LinkFlags::Running),
        wireless,
        address: address.filter(|_| !loopback),
        // The kernel reports the rate in Mb/s, or -1 if it is unknown.
        rate: rate.and_then(|rate| u64::try_from(rate).ok()).map(|rate| rate.saturating_mul(1000)),
        signal: if wireless { signal_level(&name) } else { None },
        name,
    })
}

fn read_number(path: &Path) -> Option<i64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Reads the signal level of a wireless interface, in dBm.
#[must_use]
pub(crate) fn signal_level(name: &str) -> Option<i16> {
    parse_signal_level(&std::fs::read_to_string("/proc/net/wireless").ok()?, name)
}

/// Parses a text in the format of `/proc/net/wireless`: the third number after the interface's name.
fn parse_signal_level(text: &str, name: &str) -> Option<i16> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().nth(2)?.trim_end_matches('.').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_and_has_no_link_of_its_own() {
        let (index, lo) = list_links().unwrap().into_iter().find(|(_, link)| link.name == "lo").unwrap();
        assert_eq!((index, lo.present, lo.address), (1, true, None));
        assert_eq!(interface_index("lo").unwrap(), 1);
        assert_eq!(interface_index("none0").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(set_link_enabled("none0", true).is_err());
        let mut heard = Vec::new();
        watch_netlink_changes(|change| {
            heard.push(change);
            false
        })
        .unwrap();
        assert!(matches!(&heard[0], NetlinkChange::Link(link) if link.present));
    }

    #[test]
    fn a_signal_level_is_the_third_number_of_its_line() {
        let text = "Inter-| sta-|   Quality        |   Discarded packets\n face | tus | link level noise | nwid\n\
                    wlan0: 0000   54.  -56.  -256        0\n  wlan1: 0000   10   -80   -256   0\n";
        assert_eq!(
            (
                parse_signal_level(text, "wlan0"),
                parse_signal_level(text, "wlan1"),
                parse_signal_level(text, "wlan")
            ),
            (Some(-56), Some(-80), None)
        );
    }
}

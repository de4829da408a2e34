//! The order of connections. charon takes the one that fits best (`get_ike_match` of its `ike_cfg.c`, `insert_sorted` of its
//! `backend_manager.c`), and ours takes the first one that fits.

use super::settings::SettingsSection;
use super::words::{any, is_any_identity, side_of, words};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_config::Prefix;

/// A place of a connection's other side, and how well an address there fits.
struct RemotePlace {
    prefix: Prefix,
    quality: u32,
}

/// What decides where a connection stands.
struct OrderEntry {
    /// `None`: anybody's.
    identity: Option<String>,
    places: Vec<RemotePlace>,
    has_version: bool,
}

/// One address fits better than any network, and everywhere the least.
const ADDRESS: u32 = 129;
const EVERYWHERE: u32 = 1;

impl OrderEntry {
    fn read(connection: &SettingsSection) -> Self {
        let id = side_of(connection, "remote").and_then(|side| side.value("id"));
        let everywhere =
            |network: IpAddr| RemotePlace { prefix: Prefix { network, bits: 0 }, quality: EVERYWHERE };
        let v4 = || everywhere(Ipv4Addr::UNSPECIFIED.into());
        let v6 = || everywhere(Ipv6Addr::UNSPECIFIED.into());
        let mut places = Vec::new();
        for word in words(connection.value("remote_addrs").unwrap_or("%any")) {
            match word.to_ascii_lowercase().as_str() {
                "%any4" => places.push(v4()),
                "%any6" => places.push(v6()),
                word if any(word) => places.extend([v4(), v6()]),
                word => match (word.parse::<IpAddr>(), Prefix::parse(word)) {
                    (Ok(_), Ok(prefix)) => places.push(RemotePlace { prefix, quality: ADDRESS }),
                    (_, Ok(prefix)) => {
                        places.push(RemotePlace { quality: u32::from(prefix.bits) + 1, prefix })
                    }
                    // What stops the import has no place.
                    _ => {}
                },
            }
        }
        Self {
            identity: id.filter(|id| !is_any_identity(id)).map(str::to_ascii_lowercase),
            places,
            has_version: connection.value("version") == Some("2"),
        }
    }

    /// Whether somebody may be of both.
    fn shares_identity(&self, other: &Self) -> bool {
        self.identity.is_none() || other.identity.is_none() || self.identity == other.identity
    }
}

fn overlap(one: &Prefix, other: &Prefix) -> bool {
    one.holds(other.network) || other.holds(one.network)
}

/// Which of two comes before the other for somebody who may be of both; `None`: nobody may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PairOrder {
    First,
    Second,
    /// Now this one and now that one, as addresses are.
    Both,
}

/// Compares a connection with one that stands behind it in the file.
fn compare(first: &OrderEntry, second: &OrderEntry) -> Option<PairOrder> {
    if !first.shares_identity(second) {
        return None;
    }
    let (mut is_first, mut is_second) = (false, false);
    let fit = |place: &RemotePlace, entry: &OrderEntry| place.quality * 4 + u32::from(entry.has_version);
    for mine in &first.places {
        for theirs in second.places.iter().filter(|theirs| overlap(&mine.prefix, &theirs.prefix)) {
            let place = fit(theirs, second).cmp(&fit(mine, first));
            let identity = second.identity.is_some().cmp(&first.identity.is_some());
            // It stands before the other where one of both is better and the other no worse.
            if place.is_ge() && identity.is_ge() && (place.is_gt() || identity.is_gt()) {
                is_second = true;
            } else {
                is_first = true;
            }
        }
    }
    match (is_first, is_second) {
        (false, false) => None,
        (true, false) => Some(PairOrder::First),
        (false, true) => Some(PairOrder::Second),
        (true, true) => Some(PairOrder::Both),
    }
}

/// Connections in the order in which they hold, by their numbers, and those of which no order says that.
pub(super) fn sort(connections: &[&SettingsSection]) -> (Vec<usize>, Vec<usize>) {
    let entries: Vec<OrderEntry> =
        connections.iter().map(|connection| OrderEntry::read(connection)).collect();
    let mut behind: Vec<Vec<usize>> = entries.iter().map(|_| Vec::new()).collect();
    let mut before: Vec<usize> = entries.iter().map(|_| 0).collect();
    let mut conflicts = Vec::new();
    for (j, second) in entries.iter().enumerate() {
        for (i, first) in entries.iter().enumerate().take(j) {
            let (front, back) = match compare(first, second) {
                None => continue,
                Some(PairOrder::First) => (i, j),
                Some(PairOrder::Second) => (j, i),
                Some(PairOrder::Both) => {
                    conflicts.push(j);
                    continue;
                }
            };
            behind[front].push(back);
            before[back] += 1;
        }
    }
    let mut order = Vec::new();
    let mut waiting: Vec<usize> = (0..entries.len()).collect();
    while !waiting.is_empty() {
        // In a circle each is behind another.
        let free = waiting.iter().position(|n| before[*n] == 0);
        conflicts.extend(free.is_none().then(|| waiting[0]));
        let n = waiting.remove(free.unwrap_or(0));
        behind[n].iter().for_each(|back| before[*back] = before[*back].saturating_sub(1));
        order.push(n);
    }
    conflicts.sort_unstable();
    conflicts.dedup();
    (order, conflicts)
}

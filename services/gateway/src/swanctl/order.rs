//! The order of connections. charon takes the best match (`get_ike_match` of its `ike_cfg.c`, `insert_sorted` of its
//! `backend_manager.c`), and ours takes the first match.

use super::settings::SwanctlSection;
use super::words::{PeerAddressOrPrefix, ike_version, is_any_identity, peer_addresses, side_of};
use alloc::string::String;
use alloc::vec::Vec;
use usher_config::Prefix;

/// An address range of a connection's peer, and its rank.
struct RankedPrefix {
    prefix: Prefix,
    quality: u32,
}

/// The rank of a connection.
struct ConnectionRank {
    /// `None` for any identity.
    identity: Option<String>,
    remote_prefixes: Vec<RankedPrefix>,
    has_version: bool,
}

/// A single address ranks above every network.
const ADDRESS: u32 = 129;

impl ConnectionRank {
    fn from_section(connection: &SwanctlSection) -> Self {
        let id = side_of(connection, "remote").and_then(|side| side.value("id"));
        let quality = |place: &PeerAddressOrPrefix| match (place.is_address, place.prefix.bits) {
            (true, _) => ADDRESS,
            (false, bits) => u32::from(bits) + 1,
        };
        let (places, _) = peer_addresses(connection);
        let places =
            places.iter().map(|place| RankedPrefix { prefix: place.prefix, quality: quality(place) });
        Self {
            identity: id.filter(|id| !is_any_identity(id)).map(str::to_ascii_lowercase),
            remote_prefixes: places.collect(),
            has_version: ike_version(connection) == Some(2),
        }
    }

    /// True if a peer may match both.
    fn shares_identity(&self, other: &Self) -> bool {
        self.identity.is_none() || other.identity.is_none() || self.identity == other.identity
    }
}

fn are_overlapping(one: &Prefix, other: &Prefix) -> bool {
    one.contains(other.network) || other.contains(one.network)
}

/// The order of two connections for a peer that may match both; `None` if there is no such peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ConnectionPairOrder {
    First,
    Second,
    /// The order depends on the address.
    Both,
}

/// Compares a connection with a later one of the file.
fn compare_entries(first: &ConnectionRank, second: &ConnectionRank) -> Option<ConnectionPairOrder> {
    if !first.shares_identity(second) {
        return None;
    }
    let (mut is_first, mut is_second) = (false, false);
    let fit = |place: &RankedPrefix, entry: &ConnectionRank| place.quality * 4 + u32::from(entry.has_version);
    for mine in &first.remote_prefixes {
        for theirs in
            second.remote_prefixes.iter().filter(|theirs| are_overlapping(&mine.prefix, &theirs.prefix))
        {
            let place = fit(theirs, second).cmp(&fit(mine, first));
            let identity = second.identity.is_some().cmp(&first.identity.is_some());
            // A connection comes first if one of its two ranks is higher and the other is no lower.
            if place.is_ge() && identity.is_ge() && (place.is_gt() || identity.is_gt()) {
                is_second = true;
            } else {
                is_first = true;
            }
        }
    }
    match (is_first, is_second) {
        (false, false) => None,
        (true, false) => Some(ConnectionPairOrder::First),
        (false, true) => Some(ConnectionPairOrder::Second),
        (true, true) => Some(ConnectionPairOrder::Both),
    }
}

/// Returns the indexes of the connections in order of precedence, and those that cannot be ordered.
pub(super) fn sort_connections(connections: &[&SwanctlSection]) -> (Vec<usize>, Vec<usize>) {
    let entries: Vec<ConnectionRank> =
        connections.iter().map(|connection| ConnectionRank::from_section(connection)).collect();
    let mut behind: Vec<Vec<usize>> = entries.iter().map(|_| Vec::new()).collect();
    let mut before: Vec<usize> = entries.iter().map(|_| 0).collect();
    let mut conflicts = Vec::new();
    for (j, second) in entries.iter().enumerate() {
        for (i, first) in entries.iter().enumerate().take(j) {
            let (front, back) = match compare_entries(first, second) {
                None => continue,
                Some(ConnectionPairOrder::First) => (i, j),
                Some(ConnectionPairOrder::Second) => (j, i),
                Some(ConnectionPairOrder::Both) => {
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
        // If every waiting connection comes after another one, there is a cycle. The first of them is taken and
        // reported as a conflict.
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

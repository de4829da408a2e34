//! The layout of map entries, as in `program.c`. They are octets, since Rust and C share no types.

use crate::forward::OctetRateLimiter;
use crate::session::{DataPlaneCounters, DataPlaneSession, DataPlaneUsage, SessionInstallError};
use std::net::IpAddr;

/// Maximum networks of each IP version per session.
pub(super) const NETWORKS: usize = 8;
/// Octets of `struct session`.
pub(super) const SESSION: usize = 408;
/// Offsets of the rate limits' state in it: cost and until, from the host and to the host.
const LIMITS: [usize; 2] = [0, 24];
/// Offset of the network counts. While they are zero, no packet belongs to the session.
pub(super) const COUNTS: usize = 404;
/// Octets of `struct usage`.
pub(super) const USAGE: usize = 48;
/// Number of counters.
pub(super) const COUNTERS: usize = DataPlaneCounters::DECLARED.len();

/// Octets of the TCP and IP headers.
const TCP_IPV4: u16 = 40;
const TCP_IPV6: u16 = 60;

/// Encodes a session at a port with this interface index and address. `before` is the earlier entry: unchanged rate
/// limits keep its state.
///
/// # Errors
/// The session has more than [`NETWORKS`] networks of an IP version.
pub(super) fn encode_session(
    session: &DataPlaneSession,
    index: u32,
    address: [u8; 6],
    before: Option<&[u8; SESSION]>,
) -> Result<[u8; SESSION], SessionInstallError> {
    let mut all = Vec::with_capacity(SESSION);
    for (limit, at) in [session.rate_up, session.rate_down].into_iter().zip(LIMITS) {
        let (cost, burst) =
            limit.map(OctetRateLimiter::new).map_or((0, 0), |bucket| (bucket.cost, bucket.burst));
        let cost = cost.to_ne_bytes();
        let until =
            before.filter(|before| before[at..at + 8] == cost).map(|before| &before[at + 16..at + 24]);
        all.extend_from_slice(&cost);
        all.extend_from_slice(&burst.to_ne_bytes());
        all.extend_from_slice(until.unwrap_or(&[0; 8]));
    }
    let of = |v4: bool| session.all_networks().filter(move |(network, _)| network.is_ipv4() == v4);
    for (version, v4) in [(6, false), (4, true)] {
        let count = of(v4).count();
        if count > NETWORKS {
            return Err(SessionInstallError::TooMany { count, version, most: NETWORKS });
        }
        let mut room = NETWORKS;
        for (network, bits) in of(v4) {
            let (address, mask) = network_and_mask(network, bits);
            all.extend_from_slice(&address);
            all.extend_from_slice(&mask);
            room -= 1;
        }
        all.resize(all.len() + room * if v4 { 8 } else { 32 }, 0);
    }
    all.extend_from_slice(&index.to_ne_bytes());
    all.extend_from_slice(&u32::from(session.link_local.is_some()).to_ne_bytes());
    all.extend_from_slice(&session.link_local.unwrap_or_default());
    all.extend_from_slice(&session.mtu.to_ne_bytes());
    for headers in [TCP_IPV4, TCP_IPV6] {
        let most = if session.clamp_mss { session.mtu.saturating_sub(headers).max(1) } else { 0 };
        all.extend_from_slice(&most.to_ne_bytes());
    }
    all.extend_from_slice(&session.number.to_be_bytes());
    all.extend_from_slice(&session.peer);
    all.extend_from_slice(&address);
    all.extend_from_slice(&(of(true).count() as u16).to_ne_bytes());
    all.extend_from_slice(&(of(false).count() as u16).to_ne_bytes());
    let mut octets = [0; SESSION];
    octets.copy_from_slice(&all);
    Ok(octets)
}

/// Returns a network's first address and its mask.
fn network_and_mask(network: IpAddr, bits: u8) -> (Vec<u8>, Vec<u8>) {
    let octets = match network {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let mask = (0..octets.len()).map(|n| {
        let left = usize::from(bits).saturating_sub(n * 8).min(8);
        (0xff00u16 >> left) as u8
    });
    let mask: Vec<u8> = mask.collect();
    (octets.iter().zip(&mask).map(|(octet, mask)| octet & mask).collect(), mask)
}

fn decode_u64_words<const N: usize>(octets: &[u8]) -> [u64; N] {
    let mut all = [0; N];
    for (word, octets) in all.iter_mut().zip(octets.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*octets);
    }
    all
}

/// Decodes one processor's usage of a session.
pub(super) fn decode_usage(octets: &[u8; USAGE]) -> DataPlaneUsage {
    let [octets_in, octets_out, packets_in, packets_out, spoofed, limited] = decode_u64_words(octets);
    DataPlaneUsage { octets_in, octets_out, packets_in, packets_out, spoofed, limited }
}

/// Decodes the counters in their order.
pub(super) fn decode_counters(n: [u64; COUNTERS]) -> DataPlaneCounters {
    DataPlaneCounters {
        frames_in: n[0],
        frames_out: n[1],
        control: n[2],
        malformed: n[3],
        no_session: n[4],
        wrong_station: n[5],
        spoofed: n[6],
        limited: n[7],
        no_host: n[8],
        too_long: n[9],
        not_sent: n[10],
        not_delivered: n[11],
        other_protocol: n[12],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_count_under_the_same_names() {
        let text = include_str!("program.c");
        let (_, list) = text.split_once("enum counter {").unwrap();
        let (list, _) = list.split_once("COUNTERS").unwrap();
        let names: Vec<String> =
            list.split(',').map(|name| name.trim().to_lowercase()).filter(|name| !name.is_empty()).collect();
        let declared: Vec<&str> = DataPlaneCounters::DECLARED.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, declared);
        let mut n = [0; COUNTERS];
        for (at, n) in n.iter_mut().enumerate() {
            *n = at as u64;
        }
        assert!(decode_counters(n).iter().map(|(_, n)| n).eq(0..COUNTERS as u64));
    }

    #[test]
    fn masks_have_as_many_bits_as_the_network() {
        for (network, first, mask) in [
            ("10.1.2.3/32", vec![10, 1, 2, 3], vec![0xff; 4]),
            ("10.1.255.3/17", vec![10, 1, 128, 0], vec![0xff, 0xff, 0x80, 0]),
            ("10.1.2.3/0", vec![0; 4], vec![0; 4]),
        ] {
            let (address, bits) = network.split_once('/').unwrap();
            assert_eq!(
                network_and_mask(address.parse().unwrap(), bits.parse().unwrap()),
                (first, mask),
                "{network}"
            );
        }
        let (first, mask) = network_and_mask("2001:db8:ffff::1".parse().unwrap(), 44);
        assert_eq!((first[4..6].to_vec(), mask[4..7].to_vec()), (vec![0xff, 0xf0], vec![0xff, 0xf0, 0]));
    }

    #[test]
    fn limits_that_stay_go_on() {
        let of = |rate_up| DataPlaneSession {
            number: 1,
            port: 0,
            peer: [2; 6],
            mtu: 1492,
            ipv4: None,
            gateway: None,
            networks: vec![([10, 0, 0, 0].into(), 24); 8],
            ipv6: Vec::new(),
            link_local: None,
            rate_up,
            rate_down: Some(1_000_000),
            clamp_mss: true,
        };
        let mut before = encode_session(&of(Some(64_000)), 7, [4; 6], None).unwrap();
        before[16] = 9;
        before[40] = 8;
        let until = |octets: [u8; SESSION]| (octets[16], octets[40]);
        assert_eq!(until(encode_session(&of(Some(64_000)), 7, [4; 6], Some(&before)).unwrap()), (9, 8));
        assert_eq!(until(encode_session(&of(Some(65_000)), 7, [4; 6], Some(&before)).unwrap()), (0, 8));
        let many = DataPlaneSession { networks: vec![([10, 0, 0, 0].into(), 24); 9], ..of(None) };
        let error = SessionInstallError::TooMany { count: 9, version: 4, most: 8 };
        assert_eq!(encode_session(&many, 7, [4; 6], None), Err(error));
    }
}

//! Entry points for fuzzers. Each returns false on a defect.

use super::{ForwardingTable, HEADROOM, UpstreamVerdict};
use crate::session::DataPlaneSession;
use std::net::{IpAddr, Ipv4Addr};
use usher_core::Instant;

const PORT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const HOST: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Gives a table with one session octets as a frame of its host, with and without valid headers in front. Packets that
/// pass must have the session's source address and fit its MTU. Every frame must be counted.
pub fn check_forwarding(octets: &[u8]) -> bool {
    let mut forwarder = ForwardingTable::new(vec![PORT], 1);
    let session = DataPlaneSession {
        number: 0x0102,
        port: 0,
        peer: HOST,
        mtu: 1492,
        ipv4: Some(ADDRESS),
        gateway: None,
        networks: Vec::new(),
        ipv6: vec![([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0].into(), 64)],
        link_local: Some([1; 8]),
        rate_up: None,
        rate_down: None,
        clamp_mss: true,
    };
    if forwarder.install(session).is_err() {
        return false;
    }
    let mut framed = [&PORT[..], &HOST[..], &[0x88, 0x64, 0x11, 0, 1, 2]].concat();
    framed.extend_from_slice(octets);
    let mut good = true;
    for mut frame in [octets.to_vec(), framed] {
        match forwarder.process_upstream(Instant::from_nanos(1), 0, &mut frame, false) {
            UpstreamVerdict::Packet(range) => {
                let packet = &frame[range.clone()];
                let own = match packet[0] >> 4 {
                    4 => packet[12..16] == ADDRESS.octets(),
                    _ => packet[8..16] == [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0],
                };
                good &= own && range.start == HEADROOM && range.len() <= 1492;
            }
            UpstreamVerdict::Control | UpstreamVerdict::Dropped => {}
        }
    }
    let counted = forwarder.counters;
    let passed = forwarder.usage(0x0102).map_or(0, |usage| usage.packets_in);
    let lost =
        counted.malformed + counted.no_session + counted.wrong_station + counted.spoofed + counted.too_long;
    good &= counted.frames_in == 2 && counted.frames_in == counted.control + passed + lost;
    let mut packet = octets.to_vec();
    let to = forwarder.process_downstream(
        Instant::from_nanos(2),
        &mut packet,
        false,
        1,
        octets.len(),
        octets.len(),
    );
    let own = |address: IpAddr| address == IpAddr::V4(ADDRESS);
    let for_it = match octets.first().map(|first| first >> 4) {
        Some(4) => octets.get(16..20).and_then(<[u8]>::first_chunk::<4>).is_some_and(|to| own((*to).into())),
        Some(6) => {
            octets.get(24..32).is_some_and(|to| *to == [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0]) && octets.len() >= 40
        }
        _ => false,
    };
    good && to.is_some() == (for_it && octets.len() <= 1492)
}

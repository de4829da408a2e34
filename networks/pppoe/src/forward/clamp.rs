//! Clamps the maximum segment size of TCP (RFC 9293 §3.7.1) to a session's MTU. Hosts behind a router with a larger MTU
//! would otherwise depend on path MTU discovery, which firewalls break (RFC 4638 §1, RFC 2923 §2.1).

use usher_esp::ip::{IPV4_HEADER, IPV6_HEADER, protocol};

/// Octets of a TCP header without options.
const TCP_HEADER: usize = 20;
const SYN: u8 = 0x02;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const MAXIMUM_SEGMENT_SIZE: u8 = 2;

/// Returns the offset of TCP in a whole IP packet or first fragment. Packets with IPv6 extension headers are left
/// alone: a SYN has none in practice.
fn tcp_offset(packet: &[u8]) -> Option<usize> {
    match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 15) * 4;
            let later = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x1fff != 0;
            (header >= IPV4_HEADER && *packet.get(9)? == protocol::TCP && !later).then_some(header)
        }
        6 => (*packet.get(6)? == protocol::TCP).then_some(IPV6_HEADER),
        _ => None,
    }
}

/// Lowers the MSS of a SYN; true if it did. `partial`: the checksum field has only the sum of the pseudo-header.
pub(crate) fn clamp_mss(packet: &mut [u8], mtu: u16, partial: bool) -> bool {
    let Some(at) = tcp_offset(packet) else { return false };
    let fixed = if packet[0] >> 4 == 4 { IPV4_HEADER } else { IPV6_HEADER } + TCP_HEADER;
    let most = mtu.saturating_sub(fixed as u16);
    let Some(segment) = packet.get_mut(at..) else { return false };
    let Some(header) = segment.first_chunk::<TCP_HEADER>() else { return false };
    let (flags, length) = (header[13], usize::from(header[12] >> 4) * 4);
    if flags & SYN == 0 {
        return false;
    }
    let mut option = TCP_HEADER;
    let end = length.min(segment.len());
    while option + 1 < end {
        match segment[option] {
            END_OF_OPTIONS => return false,
            NO_OPERATION => option += 1,
            MAXIMUM_SEGMENT_SIZE if segment[option + 1] == 4 && option + 4 <= end => {
                return clamp_mss_option(segment, option + 2, most, partial);
            }
            _ => match segment[option + 1] {
                0 | 1 => return false,
                long => option += usize::from(long),
            },
        }
    }
    false
}

fn clamp_mss_option(segment: &mut [u8], at: usize, most: u16, partial: bool) -> bool {
    let old = [segment[at], segment[at + 1]];
    if u16::from_be_bytes(old) <= most {
        return false;
    }
    let new = most.to_be_bytes();
    segment[at..at + 2].copy_from_slice(&new);
    if !partial {
        // RFC 1071 §2 B: at an odd offset the octets count in swapped order.
        let of = |octets: [u8; 2]| {
            if at.is_multiple_of(2) { u16::from_be_bytes(octets) } else { u16::from_le_bytes(octets) }
        };
        let code = u16::from_be_bytes([segment[16], segment[17]]);
        segment[16..18].copy_from_slice(&update_checksum(code, of(old), of(new)).to_be_bytes());
    }
    true
}

/// Updates a checksum after a word has changed (RFC 1624 §3, equation 3).
fn update_checksum(code: u16, old: u16, new: u16) -> u16 {
    let mut sum = u32::from(!code) + u32::from(!old) + u32::from(new);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::IpAddr;
    use usher_esp::ip::{fold_checksum, pseudo_header_sum, sum_octets, write_header};

    /// Builds a TCP segment with these flags and options.
    pub(crate) fn tcp_segment(
        source: IpAddr,
        destination: IpAddr,
        flags: u8,
        options: &[u8],
        data: &[u8],
    ) -> Vec<u8> {
        let mut own = vec![0x30, 0x39, 0, 80, 1, 2, 3, 4, 0, 0, 0, 0, 0, flags, 1, 0, 0, 0, 0, 0];
        own[12] = (((TCP_HEADER + options.len()) / 4) << 4) as u8;
        own.extend_from_slice(options);
        own.extend_from_slice(data);
        let code =
            fold_checksum(sum_octets(&own, pseudo_header_sum(source, destination, protocol::TCP, own.len())));
        own[16..18].copy_from_slice(&code);
        let mut packet = Vec::new();
        write_header(&mut packet, source, destination, protocol::TCP, 0, own.len());
        packet.extend_from_slice(&own);
        packet
    }

    fn is_checksum_valid(packet: &[u8], ends: (IpAddr, IpAddr)) -> bool {
        let at = if ends.0.is_ipv4() { 20 } else { 40 };
        let own = &packet[at..];
        fold_checksum(sum_octets(own, pseudo_header_sum(ends.0, ends.1, protocol::TCP, own.len()))) == [0, 0]
    }

    fn test_endpoints(v4: bool) -> (IpAddr, IpAddr) {
        match v4 {
            true => ([10, 0, 0, 1].into(), [192, 0, 2, 1].into()),
            false => ("2001:db8::1".parse().unwrap(), "2001:db8:1::1".parse().unwrap()),
        }
    }

    proptest! {
        #[test]
        fn a_lowered_size_keeps_the_checksum_right(v4: bool, size: u16, mtu in 1280u16..9000, before in 0usize..4) {
            let (a, b) = test_endpoints(v4);
            let mut options = vec![NO_OPERATION; before];
            options.extend([MAXIMUM_SEGMENT_SIZE, 4]);
            options.extend(size.to_be_bytes());
            options.resize(8, END_OF_OPTIONS);
            let mut packet = tcp_segment(a, b, SYN, &options, b"");
            let most = mtu - if v4 { 40 } else { 60 };
            prop_assert_eq!(clamp_mss(&mut packet, mtu, false), size > most);
            let at = if v4 { 40 } else { 60 } + before + 2;
            prop_assert_eq!(u16::from_be_bytes([packet[at], packet[at + 1]]), size.min(most));
            prop_assert!(is_checksum_valid(&packet, (a, b)));
        }

        #[test]
        fn whatever_it_is_it_stays_as_long(mut octets in proptest::collection::vec(any::<u8>(), 0..120), version in 4u8..7) {
            if let Some(first) = octets.first_mut() {
                *first = *first & 15 | version << 4;
            }
            if let Some(flags) = octets.get_mut(33) {
                *flags |= SYN;
            }
            let before = octets.clone();
            let changed = clamp_mss(&mut octets, 1492, false);
            prop_assert!(changed || before == octets);
        }
    }

    #[test]
    fn what_announces_nothing_is_left_alone() {
        let (a, b) = test_endpoints(true);
        let mss = [MAXIMUM_SEGMENT_SIZE, 4, 0x05, 0xb4];
        for (flags, options) in
            [(0x10, &mss[..]), (SYN, &[]), (SYN, &[0, 2, 4, 9]), (SYN, &[3, 0, 2, 4]), (SYN, &[2, 3, 5, 5])]
        {
            let packet = tcp_segment(a, b, flags, options, b"");
            let mut after = packet.clone();
            assert!(!clamp_mss(&mut after, 1400, false) && after == packet, "{flags} {options:?}");
        }
        // The sum of the pseudo-header does not include options.
        let mut packet = tcp_segment(a, b, SYN, &mss, b"");
        let code = [packet[36], packet[37]];
        assert!(clamp_mss(&mut packet, 1400, true));
        assert_eq!([packet[36], packet[37]], code);
    }
}

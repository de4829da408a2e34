//! IP, UDP and Ethernet headers as bytes, written only for captured links.

use crate::addr::{HostAddresses, HostId, IpVersion};
use crate::link::LinkFraming;
use crate::packet::{Datagram, Packet, PacketBody, UDP_HEADER};
use std::net::IpAddr;
use usher_core::OctetWriter;

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_V6_FRAGMENT: u8 = 44;
const PROTOCOL_ESP: u8 = 50;
/// The port of ESP within UDP (RFC 3948).
const ESP_PORT: u16 = 4500;
const PROTOCOL_SCTP: u8 = 132;
/// Bytes of an IPv6 fragment header.
pub(crate) const V6_FRAGMENT_HEADER: u32 = 8;

/// Adds bytes to a one's complement sum (RFC 1071); odd lengths are padded.
fn ones_complement_sum(bytes: &[u8], mut acc: u64) -> u64 {
    let mut chunks = bytes.chunks_exact(2);
    for c in &mut chunks {
        acc += u64::from(u16::from_be_bytes([c[0], c[1]]));
    }
    if let [last] = chunks.remainder() {
        acc += u64::from(*last) << 8;
    }
    acc
}

fn fold_checksum(mut acc: u64) -> u16 {
    while acc >> 16 != 0 {
        acc = (acc & 0xffff) + (acc >> 16);
    }
    !(acc as u16)
}

fn put_address(w: &mut OctetWriter<'_>, ip: IpAddr) {
    match ip {
        IpAddr::V4(a) => w.write_bytes(&a.octets()),
        IpAddr::V6(a) => w.write_bytes(&a.octets()),
    };
}

fn pseudo_header(addresses: &HostAddresses, src: HostId, dst: HostId, protocol: u8, len: u32) -> u64 {
    let mut bytes = Vec::with_capacity(40);
    let mut w = OctetWriter::new(&mut bytes);
    put_address(&mut w, addresses.address_of(src));
    put_address(&mut w, addresses.address_of(dst));
    w.write_u32(len).write_u32(u32::from(protocol));
    ones_complement_sum(&bytes, 0)
}

/// Writes a transport checksum at `at` of `transport`; UDP writes a computed zero as all ones.
fn put_checksum(transport: &mut [u8], at: usize, pseudo: u64, udp: bool) {
    let mut c = fold_checksum(ones_complement_sum(transport, pseudo));
    if udp && c == 0 {
        c = 0xffff;
    }
    transport[at..at + 2].copy_from_slice(&c.to_be_bytes());
}

fn udp_bytes(addresses: &HostAddresses, src: HostId, dst: HostId, d: &Datagram) -> Vec<u8> {
    let len = UDP_HEADER + d.payload.len;
    let mut out = Vec::with_capacity(len as usize);
    OctetWriter::new(&mut out).write_u16(d.src_port).write_u16(d.dst_port).write_u16(len as u16).write_u16(0);
    d.payload.write_to(&mut out);
    put_checksum(&mut out, 6, pseudo_header(addresses, src, dst, PROTOCOL_UDP, len), true);
    out
}

/// Serialises a packet as on a link with this framing: Ethernet header if any, IP header, transport header,
/// payload. All checksums are valid; a damaged packet has one bit of its last octet flipped.
pub(crate) fn serialise_packet(
    addresses: &HostAddresses,
    packet: &Packet,
    (framing, session): (LinkFraming, u16),
    from: HostId,
    to: (HostId, u32),
    corrupted: bool,
    out: &mut Vec<u8>,
) {
    out.clear();
    if let PacketBody::Frame(frame) = &packet.body {
        frame.write_to(out);
    } else {
        let v4 = addresses.ip_version() == IpVersion::V4;
        let mut w = OctetWriter::new(out);
        match framing {
            LinkFraming::None => {}
            LinkFraming::Ethernet => {
                let ethertype = if v4 { 0x0800 } else { 0x86dd };
                w.write_bytes(&to.0.mac_address(to.1)).write_bytes(&from.mac_address(0)).write_u16(ethertype);
            }
            // RFC 2516 §4: version, type and code, the session, the length of what follows; and PPP's protocol.
            LinkFraming::Pppoe => {
                let length = u16::try_from(packet.len + 2).unwrap_or(u16::MAX);
                w.write_bytes(&to.0.mac_address(to.1)).write_bytes(&from.mac_address(0)).write_u16(0x8864);
                w.write_u16(0x1100).write_u16(session).write_u16(length).write_u16(if v4 {
                    0x0021
                } else {
                    0x0057
                });
            }
        }
        write_ip(addresses, packet, out);
    }
    if corrupted && let Some(last) = out.last_mut() {
        *last ^= 1;
    }
}

fn write_ip(addresses: &HostAddresses, packet: &Packet, out: &mut Vec<u8>) {
    let (version, src, dst) = (addresses.ip_version(), packet.src, packet.dst);
    let mut fragment = None;
    let mut path = 0;
    let (protocol, transport) = match &packet.body {
        PacketBody::Udp(d) => (PROTOCOL_UDP, udp_bytes(addresses, src, dst, d)),
        PacketBody::Fragment(f) => {
            fragment = Some((f.id, f.offset, f.more));
            let whole = udp_bytes(addresses, src, dst, &f.datagram);
            let (from, to) = (f.offset as usize, (f.offset + f.len) as usize);
            (PROTOCOL_UDP, whole[from..to].to_vec())
        }
        PacketBody::Tcp { src_port, dst_port, segment, .. } => {
            let mut bytes = Vec::new();
            segment.encode_into(*src_port, *dst_port, &mut bytes);
            let pseudo = pseudo_header(addresses, src, dst, PROTOCOL_TCP, bytes.len() as u32);
            // RFC 9293, 3.1: the sender computes the checksum.
            put_checksum(&mut bytes, 16, pseudo, false);
            (PROTOCOL_TCP, bytes)
        }
        PacketBody::Sctp { src_port, dst_port, path: p, packet } => {
            let mut bytes = Vec::new();
            packet.encode_into(*src_port, *dst_port, &mut bytes);
            path = *p;
            (PROTOCOL_SCTP, bytes)
        }
        PacketBody::Esp(esp) => {
            // The ciphertext is written as zeros, because the simulator does not encrypt.
            let mut bytes = Vec::new();
            if esp.encapsulated {
                let len = packet.len - version.header_len();
                OctetWriter::new(&mut bytes)
                    .write_u16(ESP_PORT)
                    .write_u16(ESP_PORT)
                    .write_u16(len as u16)
                    .write_u16(0);
            }
            bytes.extend_from_slice(&esp.sealed[..usher_esp::HEADER_LEN]);
            bytes.resize((packet.len - version.header_len()) as usize, 0);
            (if esp.encapsulated { PROTOCOL_UDP } else { PROTOCOL_ESP }, bytes)
        }
        PacketBody::Frame(_) => return,
    };
    let (source, destination) = (addresses.of_path(src, path), addresses.of_path(dst, path));
    let mut w = OctetWriter::new(out);
    match version {
        IpVersion::V4 => {
            let start = w.len();
            let flags = match fragment {
                // TCP and SCTP set DF, as stacks that do path MTU discovery do.
                None => u16::from(![PROTOCOL_UDP, PROTOCOL_ESP].contains(&protocol)) << 14,
                Some((_, offset, more)) => u16::from(more) << 13 | (offset / 8) as u16,
            };
            let ident = fragment.map_or(packet.ident, |(id, ..)| id as u16);
            w.write_u8(0x45).write_u8(0).write_u16(packet.len as u16).write_u16(ident).write_u16(flags);
            w.write_u8(64).write_u8(protocol).write_u16(0);
            put_address(&mut w, source);
            put_address(&mut w, destination);
            let checksum = fold_checksum(ones_complement_sum(&w.written_bytes()[start..], 0));
            w.overwrite_at(start + 10, &checksum.to_be_bytes());
        }
        IpVersion::V6 => {
            let next = if fragment.is_some() { PROTOCOL_V6_FRAGMENT } else { protocol };
            let payload_len = packet.len - version.header_len();
            w.write_u32(6 << 28).write_u16(payload_len as u16).write_u8(next).write_u8(64);
            put_address(&mut w, source);
            put_address(&mut w, destination);
            if let Some((id, offset, more)) = fragment {
                w.write_u8(protocol).write_u8(0).write_u16(offset as u16 | u16::from(more)).write_u32(id);
            }
        }
    }
    w.write_bytes(&transport);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Payload;

    #[test]
    fn checksums_hold_over_the_finished_packet() {
        for (version, payload) in [(IpVersion::V4, &b"odd"[..]), (IpVersion::V6, &b"even"[..])] {
            let (a, b) = (HostId(0), HostId(1));
            let d = Datagram { src_port: 1812, dst_port: 9, payload: Payload::copy_from_slice(payload) };
            let packet = Packet::from_datagram(version, a, b, 7, d);
            let mut out = Vec::new();
            serialise_packet(
                &HostAddresses::new(version),
                &packet,
                (LinkFraming::Ethernet, 0),
                a,
                (b, 0),
                false,
                &mut out,
            );
            assert_eq!(out.len() as u32, packet.len + 14);
            let ip = &out[14..];
            let header = version.header_len() as usize;
            if version == IpVersion::V4 {
                assert_eq!(fold_checksum(ones_complement_sum(&ip[..header], 0)), 0);
            }
            let pseudo =
                pseudo_header(&HostAddresses::new(version), a, b, PROTOCOL_UDP, (ip.len() - header) as u32);
            assert_eq!(fold_checksum(ones_complement_sum(&ip[header..], pseudo)), 0);
        }
    }

    fn serialise_body(version: IpVersion, ident: u16, body: PacketBody) -> Vec<u8> {
        let mut out = Vec::new();
        let packet = Packet { src: HostId(0), dst: HostId(1), len: 1500, ident, body };
        let addresses = HostAddresses::new(version);
        serialise_packet(
            &addresses,
            &packet,
            (LinkFraming::None, 0),
            HostId(0),
            (HostId(1), 0),
            false,
            &mut out,
        );
        out
    }

    #[test]
    fn only_transports_that_know_the_path_forbid_fragments() {
        // RFC 791 section 3.1: the bit "don't fragment" is the second of the flags.
        let datagram = Datagram { src_port: 1, dst_port: 2, payload: Payload::with_length(4) };
        let segment = crate::tcp::Segment::default();
        let tcp = PacketBody::Tcp { src_port: 1, dst_port: 2, conn: 0, from_conn: 0, segment };
        let packet = crate::sctp::SctpPacket { vtag: 1, chunks: Vec::new() };
        let sctp = PacketBody::Sctp { src_port: 1, dst_port: 2, path: 0, packet };
        for (body, flags, protocol) in
            [(PacketBody::Udp(datagram), [0, 0], 17), (tcp, [0x40, 0], 6), (sctp, [0x40, 0], 132)]
        {
            let ip = serialise_body(IpVersion::V4, 0x0203, body);
            assert_eq!(ip[..10], [0x45, 0, 0x05, 0xdc, 2, 3, flags[0], flags[1], 64, protocol]);
            assert_eq!(
                (fold_checksum(ones_complement_sum(&ip[..20], 0)), &ip[12..20]),
                (0, &[10, 0, 0, 1, 10, 0, 0, 2][..])
            );
        }
    }

    #[test]
    fn a_fragment_says_where_it_belongs() {
        let whole = Datagram { src_port: 1, dst_port: 2, payload: Payload::copy_from_slice(&[7; 4000]) };
        let whole = std::sync::Arc::new(whole);
        let piece = |more| crate::packet::IpFragment {
            id: 0x0001_0203,
            offset: 1480,
            len: 16,
            more,
            datagram: whole.clone(),
        };
        let body = |more| PacketBody::Fragment(Box::new(piece(more)));
        for (more, flags) in [(true, 0x20), (false, 0)] {
            // RFC 791 section 3.1: the offset counts eight octets, under the bit "more fragments".
            let ip = serialise_body(IpVersion::V4, 9, body(more));
            assert_eq!(ip[4..8], [2, 3, flags, (1480 / 8) as u8]);
            assert_eq!(ip[20..], [7; 16]);
            // RFC 8200 section 4.5: the offset is above three bits, of which the last is M.
            let ip = serialise_body(IpVersion::V6, 9, body(more));
            assert_eq!(ip[..8], [0x60, 0, 0, 0, 0x05, 0xb4, 44, 64]);
            assert_eq!(ip[40..48], [17, 0, 0x05, 0xc8 | u8::from(more), 0, 1, 2, 3]);
            assert_eq!(ip[48..], [7; 16]);
        }
    }

    #[test]
    fn a_computed_checksum_of_zero_is_written_as_ones_by_udp_alone() {
        // RFC 768: all zeros would say that there is none.
        for (udp, written) in [(true, [0xff, 0xff]), (false, [0, 0])] {
            let mut bytes = [0xff, 0xff, 0, 0];
            put_checksum(&mut bytes, 2, 0, udp);
            assert_eq!(bytes[2..], written);
        }
    }

    #[test]
    fn the_internet_checksum_matches_its_rfc() {
        // RFC 1071 §3.
        assert_eq!(
            fold_checksum(ones_complement_sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0)),
            !0xddf2
        );
    }
}

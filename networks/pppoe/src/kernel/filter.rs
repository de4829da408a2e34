//! Classic BPF programs: they select the frames for the kernel's PPPoE, and a host's valid packets. Conditional jumps
//! reach only 255 steps, so the code for each condition follows it.

use crate::session::DataPlaneSession;
use std::net::IpAddr;

/// An instruction: code, jumps, operand (linux/filter.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BpfInstruction {
    pub(super) code: u16,
    pub(super) jt: u8,
    pub(super) jf: u8,
    pub(super) k: u32,
}

/// The return value that keeps the whole packet, or that means a match.
pub(super) const ALL: u32 = u32::MAX;
/// The offset of the Ethernet header, wherever the packet itself begins.
const ETHERNET: u32 = libc::SKF_LL_OFF as u32;
/// Octets from the Ethernet header to PPP's protocol field.
pub(super) const PPP: u32 = 20;

const IPV4: u32 = 0x0021;
const IPV6: u32 = 0x0057;

#[derive(Default)]
struct BpfProgram(Vec<BpfInstruction>);

impl BpfProgram {
    fn push_instruction(&mut self, code: u32, (jt, jf): (u8, u8), k: u32) {
        self.0.push(BpfInstruction { code: code as u16, jt, jf, k });
    }
    fn load_field(&mut self, size: u32, at: u32) {
        self.push_instruction(libc::BPF_LD | size | libc::BPF_ABS, (0, 0), at);
    }
    fn and_mask(&mut self, mask: u32) {
        self.push_instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, (0, 0), mask);
    }
    fn push_return(&mut self, what: u32) {
        self.push_instruction(libc::BPF_RET | libc::BPF_K, (0, 0), what);
    }
    /// Returns `otherwise` unless the loaded field equals `value`.
    fn return_unless(&mut self, value: u32, otherwise: u32) {
        self.push_instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (1, 0), value);
        self.push_return(otherwise);
    }
    /// Returns `answer` if the loaded field equals `value`.
    fn return_if(&mut self, value: u32, answer: u32) {
        self.push_instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, 1), value);
        self.push_return(answer);
    }
    /// Runs `part` only if the loaded field equals `value`.
    fn push_part_if_equal(&mut self, value: u32, part: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        part(&mut inner);
        self.push_instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (1, 0), value);
        self.push_instruction(libc::BPF_JMP | libc::BPF_JA, (0, 0), inner.0.len() as u32);
        self.0.append(&mut inner.0);
    }
    /// Returns `answer` if the IPv6 packet at offset `at` has link scope (RFC 4291 §2.5.6, §2.7).
    fn on_link(&mut self, at: u32, answer: u32) {
        for address in [at + 8, at + 24] {
            self.load_field(libc::BPF_H, address);
            self.and_mask(0xffc0);
            self.return_if(0xfe80, answer);
        }
        self.load_field(libc::BPF_H, at + 24);
        self.and_mask(0xff0f);
        for scope in [0xff00, 0xff01, 0xff02] {
            self.return_if(scope, answer);
        }
        // Check for the unspecified source address.
        let mut inner = Self::default();
        for word in (4..16).step_by(4) {
            inner.load_field(libc::BPF_W, at + 8 + word);
            let rest = (12 - word) / 2 + 1;
            inner.push_instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, rest as u8), 0);
        }
        inner.push_return(answer);
        self.load_field(libc::BPF_W, at + 8);
        self.push_part_if_equal(0, |this| this.0.append(&mut inner.0));
    }
}

/// Selects packets for the kernel's PPPoE. Returns `taken` for those, and `other` for control frames and malformed
/// ones. `ppp` is the offset of PPP's protocol field in the program's packet.
fn packet_filter(ppp: u32, taken: u32, other: u32) -> Vec<BpfInstruction> {
    let mut program = BpfProgram::default();
    program.load_field(libc::BPF_B, (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32);
    program.return_unless(u32::from(libc::PACKET_HOST), other);
    // RFC 2516 §6: version and type 1, code 0.
    program.load_field(libc::BPF_H, ETHERNET.wrapping_add(14));
    program.return_unless(0x1100, other);
    let ip = ppp + 2;
    // PPPoE's LENGTH includes PPP's protocol field. The length in the IP header must fit into it.
    let fits = |program: &mut BpfProgram, field: u32, beside: u32| {
        program.load_field(libc::BPF_H, field);
        program.push_instruction(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, (0, 0), beside);
        program.push_instruction(libc::BPF_MISC | libc::BPF_TAX, (0, 0), 0);
        program.load_field(libc::BPF_H, ETHERNET.wrapping_add(18));
        program.push_instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_X, (1, 0), 0);
        program.push_return(other);
    };
    program.load_field(libc::BPF_H, ppp);
    program.push_part_if_equal(IPV4, |program| {
        program.load_field(libc::BPF_B, ip);
        program.and_mask(0xf0);
        program.return_unless(0x40, other);
        program.load_field(libc::BPF_H, ip + 2);
        program.push_instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, (1, 0), 20);
        program.push_return(other);
        fits(program, ip + 2, 2);
        program.push_return(taken);
    });
    program.return_unless(IPV6, other);
    program.load_field(libc::BPF_B, ip);
    program.and_mask(0xf0);
    program.return_unless(0x60, other);
    fits(&mut program, ip + 4, 42);
    program.on_link(ip, other);
    program.push_return(taken);
    program.0
}

/// The filter of a session's socket, whose packets begin with PPP's protocol field.
pub(super) fn session_socket_filter() -> Vec<BpfInstruction> {
    packet_filter(0, ALL, 0)
}

/// The filter of the control socket: frames that no session socket takes.
pub(super) fn control_socket_filter() -> Vec<BpfInstruction> {
    let mut program = BpfProgram::default();
    program.load_field(libc::BPF_B, (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32);
    // Accept only frames to this station or to the broadcast address.
    program.push_instruction(
        libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K,
        (0, 1),
        u32::from(libc::PACKET_BROADCAST),
    );
    program.push_return(0);
    program.0.extend(packet_filter(PPP, 0, ALL));
    program.0
}

/// Matches IP packets from a session's own addresses.
pub(super) fn match_own_sources(session: &DataPlaneSession) -> Vec<BpfInstruction> {
    let (mut ipv4, mut ipv6) = (BpfProgram::default(), BpfProgram::default());
    for (network, bits) in session.all_networks() {
        let (program, octets, at) = match network {
            IpAddr::V4(ip) => (&mut ipv4, ip.octets().to_vec(), 12),
            IpAddr::V6(ip) => (&mut ipv6, ip.octets().to_vec(), 8),
        };
        let words: Vec<(u32, u32, u32)> = octets
            .chunks_exact(4)
            .zip(0_u32..)
            .filter_map(|(word, n)| {
                let counted = u32::from(bits).saturating_sub(32 * n).min(32);
                let mask = u32::MAX.checked_shl(32 - counted).unwrap_or(0);
                let word = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
                (mask != 0).then_some((at + 4 * n, mask, word & mask))
            })
            .collect();
        for (n, (at, mask, word)) in words.iter().enumerate() {
            program.load_field(libc::BPF_W, *at);
            program.and_mask(*mask);
            let rest = (words.len() - n - 1) * 3 + 1;
            program.push_instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, rest as u8), *word);
        }
        program.push_return(ALL);
    }
    let mut program = BpfProgram::default();
    program.load_field(libc::BPF_B, 0);
    program.and_mask(0xf0);
    program.push_part_if_equal(0x40, |this| {
        this.0.append(&mut ipv4.0);
        this.push_return(0);
    });
    program.0.append(&mut ipv6.0);
    program.push_return(0);
    program.0
}

/// Returns `drop` for the system's own link-scope packets to a host, and `on` for all others.
pub(super) fn link_message_filter(drop: u32, on: u32) -> Vec<BpfInstruction> {
    let mut program = BpfProgram::default();
    program.load_field(libc::BPF_B, 0);
    program.and_mask(0xf0);
    program.return_unless(0x60, on);
    program.on_link(0, drop);
    program.push_return(on);
    program.0
}

/// Matches every packet.
pub(super) fn match_all_packets() -> Vec<BpfInstruction> {
    let mut program = BpfProgram::default();
    program.push_return(ALL);
    program.0
}

#[cfg(test)]
mod tests {
    use super::{ALL, BpfInstruction, link_message_filter, match_own_sources};
    use crate::forward::is_link_scope;
    use crate::session::DataPlaneSession;
    use proptest::prelude::*;
    use socket2::{Domain, SockFilter, Socket, Type};
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    /// Runs a program in the kernel, at a socket whose packets are the given octets.
    fn passes_filter(program: &[BpfInstruction], packet: &[u8]) -> bool {
        let (from, to) = Socket::pair(Domain::UNIX, Type::DGRAM, None).unwrap();
        let steps: Vec<SockFilter> =
            program.iter().map(|step| SockFilter::new(step.code, step.jt, step.jf, step.k)).collect();
        to.attach_filter(&steps).unwrap();
        to.set_nonblocking(true).unwrap();
        from.send(packet).unwrap();
        to.recv(&mut [std::mem::MaybeUninit::uninit(); 100]).is_ok()
    }

    fn test_packet(source: IpAddr, destination: IpAddr) -> Vec<u8> {
        let mut packet = Vec::new();
        usher_esp::ip::write_header(&mut packet, source, destination, 17, 0, 8);
        packet.extend([0; 8]);
        packet
    }

    fn test_session(
        ipv4: Ipv4Addr,
        networks: Vec<(Ipv4Addr, u8)>,
        ipv6: Vec<(Ipv6Addr, u8)>,
    ) -> DataPlaneSession {
        DataPlaneSession {
            number: 1,
            port: 0,
            peer: [2; 6],
            mtu: 1492,
            ipv4: Some(ipv4),
            gateway: None,
            networks,
            ipv6,
            link_local: None,
            rate_up: None,
            rate_down: None,
            clamp_mss: false,
        }
    }

    fn is_within(source: IpAddr, session: &DataPlaneSession) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
            IpAddr::V6(ip) => ip.to_bits(),
        };
        session.all_networks().any(|(network, length)| {
            let apart = bits(network) ^ bits(source);
            network.is_ipv4() == source.is_ipv4()
                && apart.checked_shr(128 - u32::from(length)).unwrap_or(0) == 0
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn sources_are_a_sessions_own_or_not(
            own: u32,
            networks in prop::collection::vec((any::<u32>(), 0..=32_u8), 0..4),
            prefixes in prop::collection::vec((any::<u128>(), 0..=128_u8), 0..20),
            flipped in 0..128_u32,
            which: prop::sample::Index,
        ) {
            let networks = networks.into_iter().map(|(ip, bits)| (Ipv4Addr::from(ip), bits)).collect();
            let prefixes = prefixes.into_iter().map(|(ip, bits)| (Ipv6Addr::from(ip), bits)).collect();
            let session = test_session(own.into(), networks, prefixes);
            let all: Vec<_> = session.all_networks().collect();
            // An address of one of the networks, or one with a flipped bit.
            let source = match which.get(&all).0 {
                IpAddr::V4(ip) => IpAddr::from(Ipv4Addr::from(ip.to_bits() ^ 1_u32.checked_shl(flipped).unwrap_or(0))),
                IpAddr::V6(ip) => IpAddr::from(Ipv6Addr::from(ip.to_bits() ^ 1 << flipped)),
            };
            let to = if source.is_ipv4() { IpAddr::from([192, 0, 2, 1]) } else { IpAddr::from([7; 16]) };
            prop_assert_eq!(passes_filter(&super::match_own_sources(&session), &test_packet(source, to)), is_within(source, &session));
        }

        #[test]
        fn what_is_said_on_the_link_is_told_from_the_rest(source: [u8; 16], destination: [u8; 16], kind in 0..6) {
            let (mut source, mut destination) = (source, destination);
            match kind {
                0 => source = [0; 16],
                1 => (source[0], source[1]) = (0xfe, 0x80 | source[1] & 0x3f),
                2 => (destination[0], destination[1]) = (0xfe, 0x80 | destination[1] & 0x3f),
                3 => destination[0] = 0xff,
                4 => source[..15].fill(0),
                _ => {}
            }
            let packet = test_packet(Ipv6Addr::from(source).into(), Ipv6Addr::from(destination).into());
            prop_assert_eq!(!passes_filter(&link_message_filter(0, ALL), &packet), is_link_scope(&source, &destination));
        }
    }

    #[test]
    fn other_versions_of_ip_are_nobodys() {
        let session = test_session(Ipv4Addr::UNSPECIFIED, vec![(Ipv4Addr::UNSPECIFIED, 0)], Vec::new());
        let mut packet = test_packet(Ipv4Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into());
        assert!(
            passes_filter(&match_own_sources(&session), &packet)
                && passes_filter(&super::match_all_packets(), &packet)
        );
        packet[0] = 0x55;
        assert!(!passes_filter(&match_own_sources(&session), &packet));
    }
}

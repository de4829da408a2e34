//! Entry points for fuzzers. Each returns false for a defect.

use crate::ip::IpPacket;
use crate::plane::{
    EspDataPlane, EspDataPlaneConfig, IpsecMode, IpsecOperation, OutboundDecision, OuterAddresses,
    PacketArrival, ReceivedPacket, SaPair,
};
use crate::policy::{PolicyAction, SecurityPolicy, SecurityPolicyId};
use crate::selector::TrafficSelector;
use crate::transform::{EspKeys, EspTransform, IntegrityAlgorithm};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};
use usher_core::{Instant, SecureRng};
use usher_crypto::cipher::CipherAlgorithm;
use usher_crypto::mac::MacAlgorithm;

/// Parses octets as an IP packet. All offsets must lie within it.
pub fn fuzz_ip_packet(octets: &[u8]) -> bool {
    IpPacket::parse(octets)
        .is_ok_and(|packet| {
            packet.header > packet.upper || packet.upper > packet.length || packet.length > octets.len()
        })
        .eq(&false)
}

fn fuzz_transforms() -> [EspTransform; 4] {
    let aead =
        |cipher| EspTransform { cipher: Some(cipher), integrity: None, extended_sequence_numbers: true };
    let code = |cipher, mac, len| EspTransform {
        cipher,
        integrity: Some(IntegrityAlgorithm { mac, len }),
        extended_sequence_numbers: false,
    };
    [
        aead(CipherAlgorithm::AesGcm),
        aead(CipherAlgorithm::ChaCha20Poly1305),
        code(Some(CipherAlgorithm::AesCbc), MacAlgorithm::HmacSha256, 16),
        code(None, MacAlgorithm::HmacSha1, 12),
    ]
}

/// A pair of one host that matches the other host's.
fn fuzz_sa_pair(n: u8, transform: EspTransform, mode: IpsecMode, first: bool) -> SaPair {
    let length = transform.cipher.map_or(Some(0), |cipher| cipher.key_len(128).or(cipher.key_len(0)));
    let integrity = transform.integrity.map_or(0, |integrity| integrity.mac.output_len());
    let keys = |octet: u8| EspKeys {
        cipher: vec![octet; length.unwrap_or(0)].into(),
        integrity: vec![octet; integrity].into(),
    };
    let (spi, end) = (0x1000 + u32::from(n) * 2, |n| SocketAddr::from((Ipv4Addr::new(192, 0, 2, n), 4500)));
    let everything =
        || TrafficSelector::from_network(Ipv4Addr::UNSPECIFIED.into(), 0).into_iter().collect::<Vec<_>>();
    let (ours, theirs) = if first { (0, 1) } else { (1, 0) };
    SaPair {
        inbound: spi + ours,
        outbound: spi + theirs,
        transform,
        inbound_keys: keys(ours as u8),
        outbound_keys: keys(theirs as u8),
        mode,
        local: everything(),
        remote: everything(),
        outer: OuterAddresses { local: end(ours as u8), remote: end(theirs as u8), encapsulated: true },
        policy: None,
        lifetime: Default::default(),
        window: 64,
        replaces: None,
        after_peer: false,
        follow: true,
    }
}

/// Two hosts carry these octets in their SAs, as packets and as the invalid contents of an authentic peer. Some
/// octets are altered on the way. All results must lie within the input, and memory must stay bounded.
pub fn fuzz_data_plane(octets: &[u8]) -> bool {
    let [which, how, rest @ ..] = octets else { return true };
    let transform = fuzz_transforms()[usize::from(which % 4)];
    let mode = if how & 1 == 0 { IpsecMode::Tunnel } else { IpsecMode::Transport };
    let config = EspDataPlaneConfig {
        max_queued_packets: 4,
        max_queued_octets: 4096,
        flows: 8,
        ..EspDataPlaneConfig::default()
    };
    let mut hosts = [true, false].map(|_| EspDataPlane::new(config, SecureRng::from_seed([7; 32])));
    for (host, first) in hosts.iter_mut().zip([true, false]) {
        let install = IpsecOperation::Install(Box::new(fuzz_sa_pair(0, transform, mode, first)));
        if host.apply_operation(Instant::ZERO, install).is_err() {
            return false;
        }
    }
    let [a, b] = &mut hosts;
    let (inbound, arrival) =
        (0x1000, PacketArrival { outer: fuzz_sa_pair(0, transform, mode, false).outer, traffic_class: *how });
    for piece in rest.chunks(97) {
        // The octets are sealed unchanged, since a peer that has the keys may send any content.
        let mut buf = vec![0; transform.packet_len(piece.len())];
        let at = transform.headroom();
        buf[at..at + piece.len()].copy_from_slice(piece);
        let Some(length) = a.seal(inbound, &mut buf, piece.len(), how >> 1) else { return false };
        if how & 0x40 != 0 {
            let at = usize::from(*which) % length;
            buf[at] ^= 0x80;
        }
        let within = match b.open(Instant::ZERO, &arrival, &mut buf[..length]) {
            Some(ReceivedPacket::Packet(range) | ReceivedPacket::Payload { payload: range, .. }) => {
                range.end <= length
            }
            None => true,
        };
        let mut strange = piece.to_vec();
        if !within || b.open(Instant::ZERO, &arrival, &mut strange).is_some() {
            return false;
        }
        // The octets are also handled as packets that a policy queues.
        let policy = SecurityPolicy {
            id: SecurityPolicyId(1),
            local: fuzz_sa_pair(0, transform, mode, true).local,
            remote: fuzz_sa_pair(0, transform, mode, true).remote,
            action: PolicyAction::Protect,
        };
        if a.apply_operation(Instant::ZERO, IpsecOperation::Policies(vec![policy])).is_err() {
            return false;
        }
        if let Ok(packet) = IpPacket::parse(piece)
            && let OutboundDecision::Queue(policy) = a.decide_outbound(Instant::ZERO, &packet)
        {
            a.queue_packet(Instant::ZERO, policy, piece);
        }
    }
    while a.poll_event().is_some() {}
    let held = a.counters().queued - a.counters().queue_dropped;
    held <= 4 && a.poll_released_packet().is_none()
}

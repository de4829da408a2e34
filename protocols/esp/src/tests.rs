mod arbitrary;
mod packets;
mod plane;
mod vectors;

use crate::plane::{IpsecMode, OuterAddresses, SaPair};
use crate::transform::{EspKeys, EspTransform, IntegrityAlgorithm};
use crate::{SaLifetime, TrafficSelector};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_crypto::cipher::CipherAlgorithm;
use usher_crypto::mac::MacAlgorithm;

pub(crate) fn octets_from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// All documented transforms: cipher, bits of its key, integrity algorithm, length of the ICV.
pub(crate) fn all_transforms() -> Vec<(EspTransform, usize)> {
    use CipherAlgorithm::{AesCbc, AesGcm, ChaCha20Poly1305, TripleDesCbc};
    use MacAlgorithm::{AesXcbc, HmacSha1, HmacSha256, HmacSha384, HmacSha512};
    let mut all = Vec::new();
    for extended_sequence_numbers in [false, true] {
        let aead = [(AesGcm, 128), (AesGcm, 192), (AesGcm, 256), (ChaCha20Poly1305, 0)];
        for (cipher, bits) in aead {
            let transform = EspTransform { cipher: Some(cipher), integrity: None, extended_sequence_numbers };
            all.push((transform, cipher.key_len(bits).unwrap()));
        }
        let ciphers = [Some((AesCbc, 128)), Some((AesCbc, 256)), Some((TripleDesCbc, 0)), None];
        let codes = [(HmacSha1, 12), (HmacSha256, 16), (HmacSha384, 24), (HmacSha512, 32), (AesXcbc, 12)];
        for cipher in ciphers {
            for (mac, len) in codes {
                let integrity = Some(IntegrityAlgorithm { mac, len });
                let (algorithm, key) =
                    cipher.map_or((None, 0), |(c, bits)| (Some(c), c.key_len(bits).unwrap()));
                all.push((EspTransform { cipher: algorithm, integrity, extended_sequence_numbers }, key));
            }
        }
    }
    all
}

pub(crate) fn test_keys(transform: &EspTransform, cipher: usize, octet: u8) -> EspKeys {
    let integrity = transform.integrity.map_or(0, |integrity| integrity.mac.output_len());
    EspKeys { cipher: vec![octet; cipher].into(), integrity: vec![octet ^ 0x55; integrity].into() }
}

pub(crate) fn gcm_transform() -> EspTransform {
    all_transforms()[0].0
}

pub(crate) fn ipv4_address(text: &str) -> IpAddr {
    IpAddr::from(text.parse::<Ipv4Addr>().unwrap())
}

pub(crate) fn network_selector(text: &str) -> TrafficSelector {
    let (address, prefix) = text.split_once('/').unwrap();
    TrafficSelector::from_network(address.parse().unwrap(), prefix.parse().unwrap()).unwrap()
}

/// The pair of one end; the pair of the other end is its mirror.
pub(crate) fn test_pair(first: bool, transform: EspTransform, cipher_key: usize) -> SaPair {
    let end = |n| SocketAddr::from((Ipv4Addr::new(192, 0, 2, n), 4500));
    let one = SaPair {
        inbound: 0x1001,
        outbound: 0x1002,
        transform,
        inbound_keys: test_keys(&transform, cipher_key, 1),
        outbound_keys: test_keys(&transform, cipher_key, 2),
        mode: IpsecMode::Tunnel,
        local: vec![network_selector("10.1.0.0/16")],
        remote: vec![network_selector("10.2.0.0/16")],
        outer: OuterAddresses { local: end(1), remote: end(2), encapsulated: true },
        policy: None,
        lifetime: SaLifetime::default(),
        window: SaPair::WINDOW,
        replaces: None,
        after_peer: false,
        follow: false,
    };
    if first { one } else { mirror_pair(&one) }
}

pub(crate) fn mirror_pair(pair: &SaPair) -> SaPair {
    SaPair {
        inbound: pair.outbound,
        outbound: pair.inbound,
        inbound_keys: pair.outbound_keys.clone(),
        outbound_keys: pair.inbound_keys.clone(),
        local: pair.remote.clone(),
        remote: pair.local.clone(),
        outer: OuterAddresses { local: pair.outer.remote, remote: pair.outer.local, ..pair.outer },
        ..pair.clone()
    }
}

/// A UDP packet between two addresses and ports.
pub(crate) fn udp_packet(source: &str, destination: &str, ports: (u16, u16), data: &[u8]) -> Vec<u8> {
    let (source, destination): (IpAddr, IpAddr) = (source.parse().unwrap(), destination.parse().unwrap());
    let mut packet = Vec::new();
    crate::ip::write_header(&mut packet, source, destination, 17, 0, 8 + data.len());
    let at = packet.len();
    for word in [ports.0, ports.1, 8 + data.len() as u16, 0xffff] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend(data);
    crate::ip::recompute_transport_checksum(17, source, destination, &mut packet[at..]);
    packet
}

//! Has tshark decrypt our packets with their keys, and check their content and ICV.

use std::fs;
use std::net::IpAddr;
use std::process::Command;
use usher_crypto::cipher::CipherAlgorithm;
use usher_crypto::mac::MacAlgorithm;
use usher_esp::ip::write_header;
use usher_esp::{EspKeys, EspTransform, IntegrityAlgorithm, OutboundSa, SaLifetime};

/// Makes a pcap file (link type 101: IP without a link layer).
fn pcap_file(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 65_535, 101] {
        file.extend(word.to_ne_bytes());
    }
    file[4..8].copy_from_slice(&[2u16, 4].map(u16::to_ne_bytes).concat());
    for packet in packets {
        for word in [0, 0, packet.len() as u32, packet.len() as u32] {
            file.extend(word.to_ne_bytes());
        }
        file.extend(packet);
    }
    file
}

fn to_hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Returns tshark's values of these fields, packet by packet. Debian 12's tshark lacks ChaCha20-Poly1305 in ESP.
fn dissect_fields(file: &str, sa: &str, fields: &[&str]) -> String {
    let mut command = Command::new("tshark");
    command.args(["-r", file, "-T", "fields", "-o", "esp.enable_encryption_decode:TRUE"]);
    command.args(["-o", "esp.enable_authentication_check:TRUE", "-o", &format!("uat:esp_sa:{sa}")]);
    for field in fields {
        command.args(["-e", field]);
    }
    let done = command.output().expect("tshark is installed: scripts/setup test");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn tshark_opens_our_packets_and_finds_their_icv_good() {
    use CipherAlgorithm::{AesCbc, AesGcm, TripleDesCbc};
    let sha1 = Some((MacAlgorithm::HmacSha1, 12, "HMAC-SHA-1-96 [RFC2404]"));
    let sha256 = Some((MacAlgorithm::HmacSha256, 16, "HMAC-SHA-256-128 [RFC4868]"));
    let [source, destination]: [IpAddr; 2] =
        ["192.0.2.1", "192.0.2.2"].map(|a| a.parse().expect("an address"));
    for (n, (cipher, name, key, code)) in [
        (AesGcm, "AES-GCM with 16 octet ICV [RFC4106]", 20, None),
        (AesGcm, "AES-GCM with 16 octet ICV [RFC4106]", 36, None),
        (AesCbc, "AES-CBC [RFC3602]", 16, sha256),
        (AesCbc, "AES-CBC [RFC3602]", 32, sha1),
        (TripleDesCbc, "TripleDES-CBC [RFC2451]", 24, sha1),
    ]
    .into_iter()
    .enumerate()
    {
        let integrity = code.map(|(mac, len, _)| IntegrityAlgorithm { mac, len });
        let transform = EspTransform { cipher: Some(cipher), integrity, extended_sequence_numbers: false };
        let code_key: Vec<u8> = (0..integrity.map_or(0, |i| i.mac.output_len() as u8)).collect();
        let keys =
            EspKeys { cipher: (100..100 + key).collect::<Vec<u8>>().into(), integrity: code_key.into() };
        let mut sa =
            OutboundSa::new(0x1234, transform, &keys, SaLifetime::default(), [5; 32]).expect("an SA");
        let mut packet = |size: usize, encapsulated: bool| {
            let (mut inner, mut outer) = (Vec::new(), Vec::new());
            let ends: [IpAddr; 2] = ["10.1.0.1", "10.2.0.1"].map(|a| a.parse().expect("an address"));
            write_header(&mut inner, ends[0], ends[1], 17, 0, 8 + size);
            inner.extend([7000, 7001, 8 + size as u16, 0].map(u16::to_be_bytes).concat());
            inner.resize(inner.len() + size, b'x');
            let mut buf = vec![0; transform.packet_len(inner.len())];
            buf[transform.headroom()..][..inner.len()].copy_from_slice(&inner);
            sa.seal(&mut buf, inner.len(), 4).expect("it is sealed");
            match encapsulated {
                true => {
                    write_header(&mut outer, source, destination, 17, 0, 8 + buf.len());
                    outer.extend([4500, 4500, 8 + buf.len() as u16, 0].map(u16::to_be_bytes).concat());
                }
                false => write_header(&mut outer, source, destination, 50, 0, buf.len()),
            }
            outer.extend(buf);
            outer
        };
        let packets = [(0, false), (1, false), (77, true), (1300, true)].map(|(size, udp)| packet(size, udp));
        let mut forged = packets.to_vec();
        let last = forged[3].len() - 1;
        forged[3][last] ^= 1;
        let path = std::env::temp_dir().join(format!("usher-esp-{}-{n}.pcap", std::process::id()));
        fs::write(&path, pcap_file(&forged)).expect("a file can be written");
        let file = path.display().to_string();
        let auth = code.map_or("NULL", |(_, _, name)| name);
        let (cipher_key, code_key) = (to_hex(&keys.cipher), to_hex(&keys.integrity));
        let code_key = if code_key.is_empty() { code_key } else { format!("0x{code_key}") };
        let sa = format!(r#""IPv4","*","*","0x00001234","{name}","0x{cipher_key}","{auth}","{code_key}""#);
        let said =
            dissect_fields(&file, &sa, &["esp.sequence", "esp.icv_good", "esp.icv_bad", "udp.dstport"]);
        let _ = fs::remove_file(&path);
        // Decrypted packets with the ports of their content. The last one was altered.
        let want = "1\t1\t0\t7001\n2\t1\t0\t7001\n3\t1\t0\t4500,7001\n4\t0\t1\t4500,7001\n";
        assert_eq!(said, want, "{name}");
    }
}

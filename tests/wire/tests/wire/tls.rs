//! EAP-TLS as tshark decrypts it with the capture's own keys.

use std::collections::{BTreeMap, BTreeSet};
use usher_eap::packet::{EapPacket, EapType};
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::RadiusPacket;
use usher_wire_tests::{CapturedRun, udp_datagram};

/// One station, which authenticates once. tshark puts EAP-TLS messages together by
/// pairs of address and port, so that one conversation at a time is all that it can follow.
fn tls_study(version: &str, aaa: &str) -> String {
    format!(
        r#"
[run]
duration = "20 s"
[run.replications]
min = 1
max = 1
[hosts.station]
[hosts.nas]
[hosts.server]
[links.access]
between = ["station", "nas"]
rate = "10 Mb/s"
[links.core]
between = ["nas", "server"]
rate = "1.5 Mb/s"
delay = "10 ms"
[workload]
kind = "eap"
stations = "station"
nas = "nas"
server = "server"
method = "eap-tls"
aaa = "{aaa}"
arrivals = {{ kind = "constant", interval = "100 s", start = "1 s", count = 1 }}
[workload.eap_tls]
version = "{version}"
handshake = "real"
[capture]
links = ["core"]
"#
    )
}

/// The types of all handshake messages that tshark can decode.
fn handshake_types(run: &CapturedRun) -> BTreeSet<u8> {
    let rows = run.tshark_fields("tls.handshake.type", &["tls.handshake.type"]);
    rows.iter().flat_map(|r| r[0].split(',')).map(|n| n.parse().unwrap()).collect()
}

#[test]
fn tshark_reads_the_whole_handshake_of_tls_1_2() {
    let run = CapturedRun::new(&tls_study("1.2", "radius"));
    run.assert_clean();
    assert_eq!(run.metric("completed"), 1.0);
    assert_eq!(run.frame_count("tls.alert_message"), 0);
    let seen = handshake_types(&run);
    // ClientHello, ServerHello, Certificate, ServerKeyExchange, CertificateRequest, ServerHelloDone,
    // CertificateVerify, ClientKeyExchange, and Finished, which only the keys show.
    for kind in [1, 2, 11, 12, 13, 14, 15, 16, 20] {
        assert!(seen.contains(&kind), "{kind} in {seen:?}");
    }
    assert!(run.frame_count("eap.tls.fragments") > 0);
    assert_eq!(run.frame_count("eap.code == 3"), 1);
}

#[test]
fn tshark_decrypts_tls_1_3_with_the_capture_s_keys() {
    let run = CapturedRun::new(&tls_study("1.3", "radius"));
    run.assert_clean();
    assert_eq!(run.metric("completed"), 1.0);
    assert_eq!(run.frame_count("tls.alert_message"), 0);
    let seen = handshake_types(&run);
    // All but the hellos is encrypted: EncryptedExtensions, CertificateRequest, Certificate,
    // CertificateVerify, Finished.
    for kind in [1, 2, 8, 11, 13, 15, 20] {
        assert!(seen.contains(&kind), "{kind} in {seen:?}");
    }
    // The server's last word, one octet of zero (RFC 9190, 2.1.1).
    // Its type within the record is seen only when it is decrypted.
    assert_eq!(run.frame_count("tls.record.content_type == 23"), 1);
}

#[test]
fn without_its_keys_a_capture_of_tls_1_3_stays_closed() {
    let run = CapturedRun::new(&tls_study("1.3", "radius"));
    let mut file = std::fs::read(run.capture_path()).unwrap();
    // Other labels: tshark takes the lines for keys of something else.
    let (from, to) = (b"TRAFFIC_SECRET", b"TRAFFIC_SPOILT");
    let places: Vec<usize> =
        file.windows(from.len()).enumerate().filter(|(_, w)| w == from).map(|(i, _)| i).collect();
    assert!(places.len() >= 4, "two of the handshake, two of what follows");
    places.iter().for_each(|&i| file[i..i + to.len()].copy_from_slice(to));
    std::fs::write(run.capture_path(), file).unwrap();
    let seen = handshake_types(&run);
    assert_eq!(run.frame_count("tls.record.content_type == 23"), 0);
    assert!(seen.contains(&1) && !seen.contains(&11) && !seen.contains(&8), "{seen:?}");
}

/// A TLS record: whether the server sent it, its content type and its length.
type TlsRecord = (bool, u8, u16);

/// The TLS records of each user's conversation, in order, put together from the EAP-TLS fragments in a
/// capture of RADIUS. Requests name their user, replies belong to the request whose identifier they have.
fn conversation_records(run: &CapturedRun) -> BTreeMap<String, Vec<TlsRecord>> {
    let mut users = BTreeMap::new();
    let mut pieces: BTreeMap<(String, bool), Vec<u8>> = BTreeMap::new();
    let mut records: BTreeMap<String, Vec<TlsRecord>> = BTreeMap::new();
    let packets = run.captured_packets();
    for datagram in packets.iter().filter_map(udp_datagram) {
        let packet = RadiusPacket::parse(datagram.data).unwrap();
        let attributes = AttributeList::parse_attribute_list(packet.attribute_bytes()).unwrap();
        let from_server = datagram.from.1 == 1812;
        let client = if from_server { datagram.to.1 } else { datagram.from.1 };
        if let Some(name) = attributes.get_text(kind::USER_NAME).filter(|_| !from_server) {
            users.insert((client, packet.identifier()), name.to_owned());
        }
        let user = users[&(client, packet.identifier())].clone();
        let mut eap = Vec::new();
        assert!(attributes.read_eap_packet(&mut eap));
        let eap = EapPacket::parse(&eap).unwrap();
        let [flags, data @ ..] = eap.data() else { continue };
        if eap.kind() != Some(EapType::TLS) {
            continue;
        }
        // RFC 5216, 3.1: the length is included, more fragments follow.
        let data = if flags & 0x80 != 0 { &data[4..] } else { data };
        let message = pieces.entry((user.clone(), from_server)).or_default();
        message.extend_from_slice(data);
        if flags & 0x40 == 0 {
            let message = std::mem::take(message);
            let mut rest = &message[..];
            while let [content, _, _, hi, lo, body @ ..] = rest {
                let length = u16::from_be_bytes([*hi, *lo]);
                records.entry(user.clone()).or_default().push((from_server, *content, length));
                rest = &body[usize::from(length)..];
            }
            assert!(rest.is_empty());
        }
    }
    assert!(pieces.values().all(Vec::is_empty), "a message lacks its end");
    records
}

#[test]
fn tshark_finds_nothing_wrong_in_eap_tls_over_diameter() {
    for version in ["1.2", "1.3"] {
        let run = CapturedRun::new(&tls_study(version, "diameter"));
        run.assert_clean();
        assert_eq!(run.metric("completed"), 1.0);
        assert_eq!(run.frame_count("tls.alert_message"), 0);
        let (requests, answers) = (
            run.frame_count("diameter.cmd.code == 268 && diameter.flags.request == 1"),
            run.frame_count("diameter.cmd.code == 268 && diameter.flags.request == 0"),
        );
        assert!(requests == answers && requests > 5, "{requests} {answers}");
        assert!(run.frame_count("eap.type == 13") > 8);
    }
}

#[test]
fn interleaved_handshakes_have_the_records_of_one_alone() {
    for version in ["1.2", "1.3"] {
        let alone = CapturedRun::new(&tls_study(version, "radius"));
        let alone = conversation_records(&alone);
        assert_eq!(alone.len(), 1);
        let alone = &alone["station-00000@example.org"];
        assert!(alone.len() >= 6, "{alone:?}");

        let text = tls_study(version, "radius")
            .replace("[hosts.station]", "[hosts.station]\ncount = 8")
            .replace("start = \"1 s\"", "start = \"1 s\", stagger = \"7 ms\"");
        let together = CapturedRun::new(&text);
        assert_eq!(together.metric("completed"), 8.0);
        let all = conversation_records(&together);
        assert_eq!(all.len(), 8);
        for (user, records) in &all {
            assert_eq!(records, alone, "{user}, TLS {version}");
        }
        // They do overlap: the last begins before the first has ended.
        let ends = together.tshark_fields("radius.code == 2", &["frame.time_epoch"]);
        assert!(ends.iter().all(|t| t[0].parse::<f64>().unwrap() > 1.0 + 7.0 * 0.007), "{ends:?}");
    }
}

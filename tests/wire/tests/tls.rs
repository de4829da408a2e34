//! EAP-TLS as tshark decrypts it with the capture's own keys.

use std::collections::BTreeSet;
use usher_wire_tests::Run;

/// One station in its NAS, which authenticates once over RADIUS. tshark puts EAP-TLS messages together by
/// pairs of address and port, so that one conversation at a time is all that it can follow.
fn study(version: &str, aaa: &str) -> String {
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

/// The types of all handshake messages that tshark can read.
fn handshake(run: &Run) -> BTreeSet<u8> {
    let rows = run.fields("tls.handshake.type", &["tls.handshake.type"]);
    rows.iter().flat_map(|r| r[0].split(',')).map(|n| n.parse().unwrap()).collect()
}

#[test]
fn tshark_reads_the_whole_handshake_of_tls_1_2() {
    let run = Run::new(&study("1.2", "radius"));
    run.assert_clean();
    assert_eq!(run.metric("completed"), 1.0);
    assert_eq!(run.count("tls.alert_message"), 0);
    let seen = handshake(&run);
    // ClientHello, ServerHello, Certificate, ServerKeyExchange, CertificateRequest, ServerHelloDone,
    // CertificateVerify, ClientKeyExchange, and Finished, which only the keys show.
    for kind in [1, 2, 11, 12, 13, 14, 15, 16, 20] {
        assert!(seen.contains(&kind), "{kind} in {seen:?}");
    }
    assert!(run.count("eap.tls.fragments") > 0);
    assert_eq!(run.count("eap.code == 3"), 1);
}

#[test]
fn tshark_decrypts_tls_1_3_with_the_capture_s_keys() {
    let run = Run::new(&study("1.3", "radius"));
    run.assert_clean();
    assert_eq!(run.metric("completed"), 1.0);
    assert_eq!(run.count("tls.alert_message"), 0);
    let seen = handshake(&run);
    // All but the hellos is encrypted: EncryptedExtensions, CertificateRequest, Certificate,
    // CertificateVerify, Finished.
    for kind in [1, 2, 8, 11, 13, 15, 20] {
        assert!(seen.contains(&kind), "{kind} in {seen:?}");
    }
    // The server's last word, one octet of zero (RFC 9190, 2.1.1).
    assert!(run.count("tls.app_data") > 0 || run.count("tls.record.content_type == 23") > 0);
}

#[test]
fn without_its_keys_a_capture_of_tls_1_3_stays_closed() {
    let run = Run::new(&study("1.3", "radius"));
    let mut file = std::fs::read(run.capture()).unwrap();
    // Other labels: tshark takes the lines for keys of something else.
    let (from, to) = (b"HANDSHAKE_TRAFFIC_SECRET", b"HANDSHAKE_TRAFFIC_XXXXXX");
    let places: Vec<usize> =
        file.windows(from.len()).enumerate().filter(|(_, w)| w == from).map(|(i, _)| i).collect();
    assert!(places.len() >= 2);
    places.iter().for_each(|&i| file[i..i + to.len()].copy_from_slice(to));
    std::fs::write(run.capture(), file).unwrap();
    let seen = handshake(&run);
    assert!(seen.contains(&1) && !seen.contains(&11) && !seen.contains(&8), "{seen:?}");
}

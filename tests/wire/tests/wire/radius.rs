//! RADIUS with EAP-MD5 from stations to the server, as tshark and the RADIUS codec read it.

use std::collections::{BTreeMap, BTreeSet};
use usher_radius::auth::{
    MessageAuthenticator, SharedSecret, check_message_authenticator, check_response, covered_authenticator,
};
use usher_radius::packet::{PacketCode, RadiusPacket};
use usher_wire_tests::{CapturedRun, DAMAGE, udp_datagram};

/// Returns a study of six stations behind a NAS, with a link of these properties from the NAS to the server.
fn radius_study(ip: &str, core: &str) -> String {
    format!(
        r#"
[run]
duration = "20 s"
drain = "120 s"
ip = "{ip}"
[run.replications]
min = 1
max = 1
[hosts.station]
count = 6
[hosts.nas]
[hosts.router]
[hosts.server]
[links.access]
between = ["station", "nas"]
rate = "10 Mb/s"
delay = "1 ms"
[links.core]
between = ["nas", "router"]
rate = "1.5 Mb/s"
delay = "10 ms"
{core}
[links.lan]
between = ["router", "server"]
rate = "100 Mb/s"
[workload]
kind = "eap"
stations = "station"
nas = "nas"
server = "server"
method = "eap-md5"
aaa = "radius"
arrivals = {{ kind = "closed", pause = {{ kind = "exponential", mean = "2 s" }} }}
wrong_credentials = "20 %"
[capture]
links = ["access", "core"]
"#
    )
}

fn count_on_interface(run: &CapturedRun, interface: u32, filter: &str) -> usize {
    run.frame_count(&format!("frame.interface_id == {interface} && ({filter})"))
}

/// Checks a capture: tshark finds no fault in any frame, and the authenticator of every reply is valid.
#[track_caller]
fn assert_proven(run: &CapturedRun) {
    run.assert_clean();
    let replies = run.frame_count("radius.code == 2 || radius.code == 3 || radius.code == 11");
    assert!(replies > 40, "{replies}");
    assert_eq!(run.frame_count("radius.authenticator.valid == 1"), replies);
}

#[test]
fn without_loss_tshark_and_the_simulator_count_the_same() {
    for (ip, core) in
        [("v4", ""), ("v4", "framing = \"ethernet\""), ("v6", ""), ("v6", "framing = \"ethernet\"")]
    {
        let run = CapturedRun::new(&radius_study(ip, core));
        assert_proven(&run);
        let begun = run.metric("started") as usize;
        let completed = run.metric("completed") as usize;
        let rejected = run.metric("rejected") as usize;
        assert!(
            completed > 10 && rejected > 0 && begun == completed + rejected,
            "{begun} {completed} {rejected}"
        );

        // Identity and challenge response, each with an answer: four datagrams per authentication.
        assert_eq!(count_on_interface(&run, 1, "radius"), 4 * begun);
        assert_eq!((run.metric("packets.core") * completed as f64).round() as usize, 4 * begun);
        assert_eq!(count_on_interface(&run, 1, "radius.code == 1"), 2 * begun);
        assert_eq!(count_on_interface(&run, 1, "radius.code == 11"), begun);
        assert_eq!(count_on_interface(&run, 1, "radius.code == 2"), completed);
        assert_eq!(count_on_interface(&run, 1, "radius.code == 3"), rejected);
        assert_eq!(count_on_interface(&run, 1, "radius.dup"), 0);
        // Identity responses, and MD5's challenge and response. Success and Failure have no type.
        assert_eq!(count_on_interface(&run, 1, "eap.type == 1"), begun);
        assert_eq!(count_on_interface(&run, 1, "eap.type == 4"), 2 * begun);
        assert_eq!(count_on_interface(&run, 1, "eap.code == 3"), completed);
        assert_eq!(count_on_interface(&run, 1, "eap.code == 4"), rejected);
        // The capture has the IP version and the framing of the study.
        assert_eq!(count_on_interface(&run, 1, if ip == "v4" { "ip" } else { "ipv6" }), 4 * begun);
        assert_eq!(count_on_interface(&run, 1, "eth"), if core.is_empty() { 0 } else { 4 * begun });
    }
}

#[test]
fn tshark_sees_the_eapol_frames_of_a_station() {
    let text = radius_study("v4", "").replace("count = 6", "count = 1");
    let run = CapturedRun::new(&text);
    run.assert_clean();
    let begun = run.metric("started") as usize;
    let completed = run.metric("completed") as usize;
    assert!(begun > 10);
    // Start; request and response of Identity and of MD5; Success or Failure.
    assert_eq!(count_on_interface(&run, 0, "eapol"), 6 * begun);
    assert_eq!((run.metric("packets.access") * completed as f64).round() as usize, 6 * begun);
    assert_eq!(count_on_interface(&run, 0, "eapol.type == 1"), begun);
    assert_eq!(count_on_interface(&run, 0, "eap.type == 1"), 2 * begun);
    assert_eq!(count_on_interface(&run, 0, "eap.type == 4 && eap.code == 1"), begun);
    assert_eq!(count_on_interface(&run, 0, "eap.type == 4 && eap.code == 2"), begun);
    assert_eq!(count_on_interface(&run, 0, "eap.code == 3"), completed);
    assert_eq!(count_on_interface(&run, 0, "eap.code == 4"), begun - completed);
    // A station sends only to the group address of port access entities or to its NAS.
    let strangers = "eth.dst == ff:ff:ff:ff:ff:ff || eth.src == eth.dst";
    assert_eq!(count_on_interface(&run, 0, strangers), 0);
}

#[test]
fn tshark_finds_no_fault_under_loss_duplication_and_reordering() {
    let core = "loss = \"10 %\"\nduplicate = \"10 %\"\nreorder = \"20 %\"\nreorder_delay = \"30 ms\"\njitter = \"5 ms\"";
    for ip in ["v4", "v6"] {
        let run = CapturedRun::new(&radius_study(ip, core));
        assert_proven(&run);
        let repeated = (run.metric("retransmissions") * run.metric("completed")).round() as usize;
        assert!(repeated > 5, "{repeated}");
        // The capture at the sender has every retransmitted request.
        let requests =
            run.tshark_fields("frame.interface_id == 1 && radius.code == 1", &["radius.authenticator"]);
        let distinct: BTreeSet<_> = requests.iter().collect();
        assert_eq!(requests.len() - distinct.len(), repeated);
    }
}

#[test]
fn tshark_flags_damaged_packets() {
    let run = CapturedRun::new(&radius_study("v4", "corrupt = \"30 %\""));
    let damaged = run.tshark_fields(DAMAGE, &["udp.checksum.status", "frame.interface_id"]);
    assert!(damaged.len() > 5, "{}", damaged.len());
    // The link damages packets in transit, so at the NAS only those of the server are damaged.
    assert_eq!(run.frame_count(&format!("({DAMAGE}) && radius.code == 1")), 0);
    // A checksum reveals each damaged packet, and tshark finds no other fault.
    assert_eq!(run.frame_count("udp.checksum.status == \"Bad\""), damaged.len());
    let distinct =
        run.tshark_fields("frame.interface_id == 1 && radius.code == 1", &["radius.authenticator"]);
    assert!(distinct.len() > 2 * run.metric("started") as usize, "what was damaged is sent again");
}

#[test]
fn a_wrong_byte_makes_authenticators_invalid_for_tshark() {
    // The authenticator covers the last byte of a reply. To keep UDP's checksum valid, the byte two places
    // before changes by the opposite amount: both are in the same column of the sum.
    let run = CapturedRun::new(&radius_study("v4", ""));
    let mut file = std::fs::read(run.capture_path()).unwrap();
    let packets = run.captured_packets();
    let reply = packets.iter().find(|p| udp_datagram(p).is_some_and(|u| u.from.1 == 1812)).unwrap();
    let at = file.windows(reply.bytes.len()).position(|w| w == reply.bytes).unwrap() + reply.bytes.len();
    let (a, b) = (file[at - 1], file[at - 3]);
    (file[at - 1], file[at - 3]) = (b, a);
    assert_ne!(a, b, "the exchange must change something");
    std::fs::write(run.capture_path(), file).unwrap();
    assert_eq!(run.frame_count("udp.checksum.status == \"Bad\""), 0);
    assert_eq!(run.frame_count("radius.authenticator.invalid == 1"), 1);
    assert_eq!(run.frame_count(DAMAGE), 1);
}

#[test]
fn every_message_and_response_authenticator_is_right() {
    let core = "loss = \"5 %\"\nduplicate = \"5 %\"\nreorder = \"10 %\"\nreorder_delay = \"30 ms\"";
    let run = CapturedRun::new(&radius_study("v4", core));
    let secret = SharedSecret::new(b"usher-simulation");
    let other = SharedSecret::new(b"usher-simulatiom");
    // Requests by client port and identifier. A client reuses an identifier only after the end of its request.
    let mut requests: BTreeMap<(u16, u8), [u8; 16]> = BTreeMap::new();
    let mut seen = BTreeMap::<PacketCode, u32>::new();
    let packets = run.captured_packets();
    for datagram in packets.iter().filter(|p| p.interface == 1).filter_map(udp_datagram) {
        let packet = RadiusPacket::parse(datagram.data).unwrap();
        *seen.entry(packet.code()).or_default() += 1;
        let request = if datagram.to.1 == 1812 {
            requests.insert((datagram.from.1, packet.identifier()), *packet.authenticator());
            None
        } else {
            let request = requests.get(&(datagram.to.1, packet.identifier())).unwrap();
            assert!(check_response(&packet, request, &secret));
            assert!(!check_response(&packet, request, &other));
            Some(request)
        };
        let covered = covered_authenticator(packet.code(), packet.authenticator(), request);
        assert_eq!(check_message_authenticator(&packet, &covered, &secret), MessageAuthenticator::Good);
        assert_eq!(check_message_authenticator(&packet, &covered, &other), MessageAuthenticator::Bad);
    }
    for code in [
        PacketCode::ACCESS_REQUEST,
        PacketCode::ACCESS_CHALLENGE,
        PacketCode::ACCESS_ACCEPT,
        PacketCode::ACCESS_REJECT,
    ] {
        assert!(seen.get(&code).is_some_and(|n| *n > 3), "{code:?}: {seen:?}");
    }
}

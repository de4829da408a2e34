//! Servers that speak Diameter to each other, and translate EAP to it.

use super::daemon::{
    DaemonProcess, ServerPorts, eapol_test, get_page, metric_value, pap_login, wait_until_metric,
};
use super::others::{ANN, create_certificates, listening_config, tls_section};
use crate::place::{TempDir, own_socket, wait_or_fail};
use std::path::Path;

/// Waits until a metric has at least this value.
#[track_caller]
pub(super) fn wait_for_metric_value(ports: &ServerPorts, name: &str, value: f64) {
    wait_until_metric(ports.metrics, name, |found| found >= value);
}

/// Logs in by EAP-MD5 and EAP-TLS. The peer compares its keys with those of the server (`MPPE keys OK`).
fn logs_in(place: &TempDir, pki: &Path, port: u16) {
    let md5 = |password: &str| format!("eap=MD5\nidentity=\"ann@hotel.example\"\npassword=\"{password}\"");
    assert!(eapol_test(place, port, &md5("right"), &["-n"]));
    assert!(!eapol_test(place, port, &md5("wrong"), &["-n"]));
    let issued = pki.join("issued/ann@hotel.example");
    let tls = format!(
        "eap=TLS\nidentity=\"ann@hotel.example\"\nca_cert=\"{}\"\nclient_cert=\"{}.crt\"\nprivate_key=\"{}.key\"",
        pki.join("ca.crt").display(),
        issued.display(),
        issued.display()
    );
    assert!(eapol_test(place, port, &tls, &[]));
}

const ORDER: &str = "[methods]\norder = [\"eap-tls\", \"eap-md5\", \"pap\"]\n";

/// Runs a front that translates for a Diameter home server over `transport`, each with two shards.
fn run_translation(transport: &str, listen: &str) {
    let cert = create_certificates();
    let pki = cert.path("pki");
    let (home_place, home_ports, diameter) = (TempDir::new(), ServerPorts::reserve_free(), own_socket());
    let peer = format!("[[diameter.peer]]\nidentity = \"front.example.net\"\ntransport = \"{transport}\"\n");
    let home = DaemonProcess::start(
        &home_place,
        &listening_config(
            &home_ports,
            2,
            &format!("{listen} = [\"{diameter}\"]"),
            &format!(
                "{ORDER}{}{ANN}[diameter]\nidentity = \"home.hotel.example\"\nrealm = \"hotel.example\"\n{peer}",
                tls_section(&pki, "home.hotel.example")
            ),
        ),
    );
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let front = DaemonProcess::start(
        &place,
        &ports.server_config(
            2,
            &format!(
                "{}[users]\nstore = \"memory\"\n[diameter]\nidentity = \"front.example.net\"\nrealm = \"example.net\"\n\
                 [[diameter.peer]]\nidentity = \"home.hotel.example\"\ntransport = \"{transport}\"\n\
                 connect = \"{diameter}\"\n\
                 [[realm]]\nname = \"hotel.example\"\ndiameter = [\"home.hotel.example\"]\n",
                tls_section(&pki, "front.example.net")
            ),
        ),
    );
    wait_for_metric_value(&ports, "usher_aaa_diameter_peers", 1.0);
    // Each login comes from another port and so reaches either shard, one of which has the peer. Repeats until the
    // other shard gets one.
    let handed = || {
        metric_value(&get_page(ports.metrics, "/metrics"), "usher_aaa_aaa_events_total{kind=\"handed_over\"}")
    };
    wait_or_fail(
        || front.log(),
        || {
            logs_in(&place, &pki, ports.auth);
            handed() > 0.0
        },
    );
    assert!(home.log().contains("accept user=\"ann@hotel.example\" method=\"eap-tls\""), "{}", home.log());
    // PAP is not translated (RFC 4072): the user is rejected without a request.
    pap_login(ports.auth, "ann@hotel.example", "right").with_code(1);
    assert_eq!((front.terminate(), home.terminate()), (Some(0), Some(0)));
}

#[test]
fn a_realm_may_be_known_to_a_diameter_server_by_tcp() {
    run_translation("tcp", "diameter");
}

#[test]
fn a_realm_may_be_known_to_a_diameter_server_by_tls() {
    run_translation("tls", "diameter_tls");
}

#[test]
fn a_diameter_peer_that_bears_another_name_is_refused() {
    let cert = create_certificates();
    let pki = cert.path("pki");
    let (place, ports, diameter) = (TempDir::new(), ServerPorts::reserve_free(), own_socket());
    let home = DaemonProcess::start(
        &place,
        &listening_config(
            &ports,
            1,
            &format!("diameter_tls = [\"{diameter}\"]"),
            &format!(
                "{}{ANN}[diameter]\nidentity = \"home.hotel.example\"\nrealm = \"hotel.example\"\npeers = [\"nas.example.net\"]\n",
                tls_section(&pki, "home.hotel.example")
            ),
        ),
    );
    let (front_place, front_ports) = (TempDir::new(), ServerPorts::reserve_free());
    // It has a certificate of the authority and claims to be the peer.
    let front = DaemonProcess::start(
        &front_place,
        &front_ports.server_config(
            1,
            &format!(
                "{}[users]\nstore = \"memory\"\n[diameter]\nidentity = \"nas.example.net\"\nrealm = \"example.net\"\n\
                 [[diameter.peer]]\nidentity = \"home.hotel.example\"\ntransport = \"tls\"\nconnect = \"{diameter}\"\n",
                tls_section(&pki, "front.example.net")
            ),
        ),
    );
    wait_for_metric_value(&ports, "usher_aaa_diameter_events_total{kind=\"unauthenticated_peer\"}", 1.0);
    assert_eq!(metric_value(&get_page(ports.metrics, "/metrics"), "usher_aaa_diameter_peers"), 0.0);
    assert_eq!((front.terminate(), home.terminate()), (Some(0), Some(0)));
}

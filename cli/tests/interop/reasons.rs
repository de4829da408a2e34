//! Reject causes with wpa_supplicant's client: the log names why a login of another implementation failed.

use crate::certificates::{write_chain, write_host_certificates};
use crate::place::{AaaServer, SECRET, TempDir, run_program};

const USERS: &str = r#"
[[user]]
name = "ann"
password = "password"
[[user]]
name = "bob"
"#;

/// Starts a server with these further settings from `[tls]` on.
fn start_tls_server(place: &TempDir, more: &str) -> AaaServer {
    write_chain(place, "server", 2);
    write_chain(place, "client", 2);
    write_host_certificates(place, &[]);
    let tls = "[tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nca = \"root.pem\"\n";
    let hash = usher_crypto::password::argon2_hash(b"password", &[7; 16]);
    let hashed = format!("[[user]]\nname = \"hashed\"\nargon2 = \"{hash}\"\n");
    AaaServer::start(place, &format!("reject_delay = \"0 s\"\n{tls}{more}{USERS}{hashed}"))
}

/// Counts the logins with this cause in the log.
fn count_cause(server: &AaaServer, cause: &str) -> usize {
    server.running.log().matches(&format!("cause=\"{cause}\"")).count()
}

#[track_caller]
fn expect_reject_cause(place: &TempDir, server: &mut AaaServer, cause: &str, network: &str) {
    let before = count_cause(server, cause);
    place.write_private("reason.conf", &format!("network={{\nkey_mgmt=WPA-EAP\n{network}\n}}\n"));
    let port = server.port.to_string();
    let words = ["-c", "reason.conf", "-a", "127.0.0.1", "-p", &port, "-s", SECRET, "-t", "10"];
    // Some clients leave at the server's alert, before a reject.
    let (_, said) = run_program(&place.path(""), "eapol_test", &words, "");
    assert!(!said.contains("(Access-Accept)"), "{cause}: {said}");
    let named = format!("cause=\"{cause}\"");
    server.running.wait_until(&named, |log| log.matches(&named).count() > before);
}

fn tunnel_network(eap: &str, identity: &str, phase2: &str, more: &str) -> String {
    format!(
        "eap={eap}\nanonymous_identity=\"anonymous\"\nidentity=\"{identity}\"\npassword=\"password\"\n\
         phase2=\"{phase2}\"\n{more}"
    )
}

#[test]
fn what_a_device_complains_of_or_lacks_is_named() {
    let place = TempDir::new();
    let mut server = start_tls_server(&place, "");
    let root = "ca_cert=\"root.pem\"";
    let old = "phase1=\"tls_disable_tlsv1_3=1\"";
    for version in [old, "phase1=\"tls_disable_tlsv1_3=0\""] {
        // The client expects another authority or another server.
        for (eap, phase2) in [("PEAP", "auth=MSCHAPV2"), ("TTLS", "auth=PAP")] {
            let other = tunnel_network(eap, "ann", phase2, &format!("ca_cert=\"ca.pem\"\n{version}"));
            expect_reject_cause(&place, &mut server, "alert-unknown-ca", &other);
        }
        // The certificate's user is unknown under this name.
        let another = format!(
            "eap=TLS\nidentity=\"bob\"\n{root}\nclient_cert=\"client.pem\"\nprivate_key=\"client.key\"\n{version}"
        );
        expect_reject_cause(&place, &mut server, "certificate-other-name", &another);
    }
    let weak = format!("{root}\n{old}\nopenssl_ciphers=\"AES128-SHA\"");
    expect_reject_cause(
        &place,
        &mut server,
        "tls-cipher",
        &tunnel_network("PEAP", "ann", "auth=MSCHAPV2", &weak),
    );
    let mschapv2 = |who| tunnel_network("PEAP", who, "auth=MSCHAPV2", root);
    expect_reject_cause(&place, &mut server, "password-form", &mschapv2("hashed"));
    expect_reject_cause(&place, &mut server, "no-password", &mschapv2("bob"));
    expect_reject_cause(&place, &mut server, "unknown-user", &mschapv2("nobody"));
    let wrong = mschapv2("ann").replace("password=\"password\"", "password=\"wrong\"");
    expect_reject_cause(&place, &mut server, "wrong-password", &wrong);
    expect_reject_cause(
        &place,
        &mut server,
        "no-inner-method",
        &tunnel_network("PEAP", "ann", "auth=OTP", root),
    );
    expect_reject_cause(&place, &mut server, "no-method", "eap=MD5\nidentity=\"ann\"\npassword=\"password\"");
    assert!(
        server.running.log().contains("detail=\"the device wants MD5-Challenge\""),
        "{}",
        server.running.log()
    );
}

#[test]
fn a_device_without_a_common_version_is_told_apart() {
    let place = TempDir::new();
    let mut server = start_tls_server(&place, "min_version = \"1.3\"\n");
    let old = tunnel_network(
        "PEAP",
        "ann",
        "auth=MSCHAPV2",
        "ca_cert=\"root.pem\"\nphase1=\"tls_disable_tlsv1_3=1\"",
    );
    expect_reject_cause(&place, &mut server, "tls-version", &old);
}

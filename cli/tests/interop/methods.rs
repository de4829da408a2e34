//! Every EAP method with eapol_test, wpa_supplicant's test client, which also compares the keys of both sides.

use crate::certificates::write_chain;
use crate::place::{AaaServer, SECRET, TempDir, run_program};

const TLS: &str = r#"
[tls]
certificate = "server.pem"
key = "server.key"
ca = "root.pem"
"#;

/// A user, and users whose passwords are stored as hashes.
fn user_tables() -> String {
    let nt = "8846f7eaee8fb117ad06bdd830b7586c";
    format!(
        r#"
[[user]]
name = "user"
password = "password"
[[user]]
name = "hashed"
nt_hash = "{nt}"
[[user]]
name = "user@example.org"
password = "password"
"#
    )
}

/// Logs in once, with a network block as in wpa_supplicant.conf.
#[track_caller]
fn run_eapol_test(
    place: &TempDir,
    server: &AaaServer,
    name: &str,
    network: &str,
    more: &[&str],
) -> (bool, String) {
    let file = format!("{name}.conf");
    place.write_private(&file, &format!("network={{\nkey_mgmt=WPA-EAP\n{network}\n}}\n"));
    let port = server.port.to_string();
    let arguments = ["-c", &file, "-a", "127.0.0.1", "-p", &port, "-s", SECRET, "-t", "120"];
    let arguments: Vec<&str> = arguments.iter().copied().chain(more.iter().copied()).collect();
    run_program(&place.path(""), "eapol_test", &arguments, "")
}

#[track_caller]
pub(crate) fn expect_accept(place: &TempDir, server: &AaaServer, name: &str, network: &str, more: &[&str]) {
    let (right, said) = run_eapol_test(place, server, name, network, more);
    let tail: Vec<&str> = said.lines().rev().take(60).collect();
    assert!(right && said.contains("SUCCESS"), "{name}: {network}\n{}", tail.join("\n"));
    if network.contains("phase1") {
        let version = if network.contains("tlsv1_3=0") { "TLSv1.3" } else { "TLSv1.2" };
        assert!(said.contains(&format!("Using TLS version {version}")), "{name}: not {version}");
    }
    if !more.contains(&"-n") {
        assert!(said.contains("MPPE keys OK: 1  mismatch: 0"), "{name}: {}", tail.join("\n"));
    }
}

#[track_caller]
pub(crate) fn expect_reject(place: &TempDir, server: &AaaServer, name: &str, network: &str) {
    let (right, said) = run_eapol_test(place, server, name, network, &["-n"]);
    let got_answer = said.contains("code=3 (Access-Reject)");
    assert!(!right && got_answer, "{name}: {}", said.lines().rev().take(40).collect::<Vec<_>>().join("\n"));
}

fn password_credentials(identity: &str) -> String {
    format!("identity=\"{identity}\"\npassword=\"password\"")
}

#[test]
fn methods_without_a_tunnel() {
    let place = TempDir::new();
    let order = "[methods]\norder = [\"eap-mschapv2\", \"eap-md5\", \"eap-gtc\"]\n";
    let server = AaaServer::start(&place, &format!("reject_delay = \"0 s\"\n{order}{}", user_tables()));
    for (method, keys) in [("MD5", false), ("GTC", false), ("MSCHAPV2", true)] {
        let more: &[&str] = if keys { &[] } else { &["-n"] };
        expect_accept(
            &place,
            &server,
            method,
            &format!("eap={method}\n{}", password_credentials("user")),
            more,
        );
        let wrong = format!("eap={method}\nidentity=\"user\"\npassword=\"wrong\"");
        expect_reject(&place, &server, &format!("{method}-wrong"), &wrong);
        let nobody = format!("eap={method}\n{}", password_credentials("nobody"));
        expect_reject(&place, &server, &format!("{method}-nobody"), &nobody);
    }
    expect_accept(
        &place,
        &server,
        "hashed",
        &format!("eap=MSCHAPV2\n{}", password_credentials("hashed")),
        &[],
    );
    expect_reject(&place, &server, "hashed-md5", &format!("eap=MD5\n{}", password_credentials("hashed")));
}

#[test]
fn tunnels_over_both_versions_of_tls() {
    let place = TempDir::new();
    write_chain(&place, "server", 2);
    let server = AaaServer::start(&place, &format!("reject_delay = \"0 s\"\n{TLS}{}", user_tables()));
    for version in ["1.2", "1.3"] {
        let phase1 = match version {
            "1.2" => "tls_disable_tlsv1_3=1",
            _ => "tls_disable_tlsv1_3=0",
        };
        for (eap, inner) in [
            ("PEAP", "auth=MSCHAPV2"),
            ("PEAP", "auth=GTC"),
            ("PEAP", "auth=MD5"),
            ("TTLS", "auth=PAP"),
            ("TTLS", "auth=CHAP"),
            ("TTLS", "auth=MSCHAP"),
            ("TTLS", "auth=MSCHAPV2"),
            ("TTLS", "autheap=MSCHAPV2"),
            ("TTLS", "autheap=GTC"),
            ("TTLS", "autheap=MD5"),
        ] {
            let name = format!("{eap}-{inner}-{version}").replace('=', "-");
            let network = |password: &str| {
                format!(
                    "eap={eap}\nanonymous_identity=\"anonymous\"\nidentity=\"user\"\npassword=\"{password}\"\n\
                     ca_cert=\"root.pem\"\nphase1=\"{phase1}\"\nphase2=\"{inner}\""
                )
            };
            expect_accept(&place, &server, &name, &network("password"), &[]);
            expect_reject(&place, &server, &format!("{name}-wrong"), &network("wrong"));
        }
    }
}

#[test]
fn eap_tls_works_with_each_chain_length_and_fragment_size() {
    for (length, fragment) in [(2, 1024), (3, 600), (4, 1300), (4, 256)] {
        let place = TempDir::new();
        write_chain(&place, "server", length);
        write_chain(&place, "client", length);
        let methods = format!("[methods]\nfragment_size = {fragment}\n");
        let text = format!("{TLS}{methods}[[user]]\nname = \"{}\"\n", CLIENT);
        let server = AaaServer::start(&place, &text);
        for (version, phase1) in [("1.2", "tls_disable_tlsv1_3=1"), ("1.3", "tls_disable_tlsv1_3=0")] {
            let network = format!(
                "eap=TLS\nidentity=\"{CLIENT}\"\nca_cert=\"root.pem\"\nclient_cert=\"client.pem\"\n\
                 private_key=\"client.key\"\nfragment_size={fragment}\nphase1=\"{phase1}\""
            );
            expect_accept(&place, &server, &format!("tls-{length}-{fragment}-{version}"), &network, &[]);
        }
    }
}

/// The common name of the repository's client certificates.
const CLIENT: &str = "station@usher.test";

#[test]
fn a_certificate_admits_nobody_but_the_one_whose_name_it_bears() {
    let place = TempDir::new();
    write_chain(&place, "server", 2);
    write_chain(&place, "client", 2);
    let text =
        format!("reject_delay = \"0 s\"\n{TLS}[[user]]\nname = \"{CLIENT}\"\n[[user]]\nname = \"boss\"\n");
    let mut server = AaaServer::start(&place, &text);
    let network = |identity: &str| {
        format!(
            "eap=TLS\nidentity=\"{identity}\"\nca_cert=\"root.pem\"\nclient_cert=\"client.pem\"\n\
             private_key=\"client.key\""
        )
    };
    expect_accept(&place, &server, "own", &network(CLIENT), &[]);
    expect_reject(&place, &server, "other", &network("boss"));
    // The reply leaves before the line is logged.
    server.running.wait_for("cause=\"certificate-other-name\"");
}

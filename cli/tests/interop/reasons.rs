//! Why wpa_supplicant's client was refused, or refuses: what the log says of devices that others wrote.

use crate::certificates::{chain, hosts};
use crate::place::{Folder, SECRET, Server, run};

const USERS: &str = r#"
[[user]]
name = "ann"
password = "password"
[[user]]
name = "bob"
"#;

/// A server whose `[tls]` and what follows says this besides.
fn server(place: &Folder, more: &str) -> Server {
    chain(place, "server", 2);
    chain(place, "client", 2);
    hosts(place, &[]);
    let tls = "[tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nca = \"root.pem\"\n";
    let hash = usher_crypto::password::argon2_hash(b"password", &[7; 16]);
    let hashed = format!("[[user]]\nname = \"hashed\"\nargon2 = \"{hash}\"\n");
    Server::start(place, &format!("reject_delay = \"0 s\"\n{tls}{more}{USERS}{hashed}"))
}

/// Logins for which the log names this cause.
fn counted(server: &Server, cause: &str) -> usize {
    server.running.log().matches(&format!("cause=\"{cause}\"")).count()
}

#[track_caller]
fn because(place: &Folder, server: &mut Server, cause: &str, network: &str) {
    let before = counted(server, cause);
    place.write("reason.conf", &format!("network={{\nkey_mgmt=WPA-EAP\n{network}\n}}\n"));
    let port = server.port.to_string();
    let words = ["-c", "reason.conf", "-a", "127.0.0.1", "-p", &port, "-s", SECRET, "-t", "10"];
    // Some leave at an alert of the server's, and are not turned away.
    let (_, said) = run(&place.path(""), "eapol_test", &words, "");
    assert!(!said.contains("(Access-Accept)"), "{cause}: {said}");
    let named = format!("cause=\"{cause}\"");
    server.running.wait_until(&named, |log| log.matches(&named).count() > before);
}

fn tunnel(eap: &str, identity: &str, phase2: &str, more: &str) -> String {
    format!(
        "eap={eap}\nanonymous_identity=\"anonymous\"\nidentity=\"{identity}\"\npassword=\"password\"\n\
         phase2=\"{phase2}\"\n{more}"
    )
}

#[test]
fn what_a_device_complains_of_or_lacks_is_named() {
    let place = Folder::new();
    let mut server = server(&place, "");
    let root = "ca_cert=\"root.pem\"";
    let old = "phase1=\"tls_disable_tlsv1_3=1\"";
    for version in [old, "phase1=\"tls_disable_tlsv1_3=0\""] {
        // It has another authority for the server's, or expects another server.
        for (eap, phase2) in [("PEAP", "auth=MSCHAPV2"), ("TTLS", "auth=PAP")] {
            let other = tunnel(eap, "ann", phase2, &format!("ca_cert=\"ca.pem\"\n{version}"));
            because(&place, &mut server, "alert-unknown-ca", &other);
        }
        // The certificate is nobody's who is known under this name.
        let another = format!(
            "eap=TLS\nidentity=\"bob\"\n{root}\nclient_cert=\"client.pem\"\nprivate_key=\"client.key\"\n{version}"
        );
        because(&place, &mut server, "certificate-other-name", &another);
    }
    let weak = format!("{root}\n{old}\nopenssl_ciphers=\"AES128-SHA\"");
    because(&place, &mut server, "tls-cipher", &tunnel("PEAP", "ann", "auth=MSCHAPV2", &weak));
    let mschapv2 = |who| tunnel("PEAP", who, "auth=MSCHAPV2", root);
    because(&place, &mut server, "password-form", &mschapv2("hashed"));
    because(&place, &mut server, "no-password", &mschapv2("bob"));
    because(&place, &mut server, "unknown-user", &mschapv2("nobody"));
    let wrong = mschapv2("ann").replace("password=\"password\"", "password=\"wrong\"");
    because(&place, &mut server, "wrong-password", &wrong);
    because(&place, &mut server, "no-inner-method", &tunnel("PEAP", "ann", "auth=OTP", root));
    because(&place, &mut server, "no-method", "eap=MD5\nidentity=\"ann\"\npassword=\"password\"");
    assert!(
        server.running.log().contains("detail=\"the device wants MD5-Challenge\""),
        "{}",
        server.running.log()
    );
}

#[test]
fn a_device_without_a_common_version_is_told_apart() {
    let place = Folder::new();
    let mut server = server(&place, "min_version = \"1.3\"\n");
    let old =
        tunnel("PEAP", "ann", "auth=MSCHAPV2", "ca_cert=\"root.pem\"\nphase1=\"tls_disable_tlsv1_3=1\"");
    because(&place, &mut server, "tls-version", &old);
}

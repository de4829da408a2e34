//! TLS session resumption by eapol_test and its limits, cryptobinding, and the Extended Master Secret.

use crate::certificates::write_chain;
use crate::methods::{expect_accept, expect_reject};
use crate::place::{AaaServer, SECRET, TEST_TIMEOUT, TempDir, USHER, run_program, udp_ports};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

const TLS: &str = r#"
[tls]
certificate = "server.pem"
key = "server.key"
ca = "root.pem"
"#;

/// The common name of the repository's client certificates.
const CLIENT: &str = "station@usher.test";

const VERSIONS: [(&str, &str); 2] = [("1.2", "tls_disable_tlsv1_3=1"), ("1.3", "tls_disable_tlsv1_3=0")];

fn tunnel_network(eap: &str, inner: &str, phase1: &str, password: &str) -> String {
    format!(
        "eap={eap}\nanonymous_identity=\"anonymous\"\nidentity=\"ann\"\npassword=\"{password}\"\n\
         ca_cert=\"root.pem\"\nphase1=\"{phase1}\"\nphase2=\"{inner}\""
    )
}

fn certificate_network(phase1: &str) -> String {
    format!(
        "eap=TLS\nidentity=\"{CLIENT}\"\nca_cert=\"root.pem\"\nclient_cert=\"client.pem\"\n\
         private_key=\"client.key\"\nphase1=\"{phase1}\""
    )
}

/// A relay between a client and the server. It passes all replies, but holds the client's packets after the first
/// Access-Accept until they are released.
struct AccessAcceptGate {
    port: u16,
    accepted: Receiver<()>,
    go_on: Sender<()>,
}

impl AccessAcceptGate {
    fn for_server(server: u16) -> Self {
        let inside = UdpSocket::bind((Ipv4Addr::LOCALHOST, udp_ports())).unwrap();
        let outside = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        outside.connect((Ipv4Addr::LOCALHOST, server)).unwrap();
        for socket in [&inside, &outside] {
            socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        }
        let port = inside.local_addr().unwrap().port();
        let ((accepts, accepted), (go_on, goes_on)) = (channel(), channel::<()>());
        std::thread::spawn(move || {
            let mut packet = [0; 4096];
            let mut shut = true;
            while let Ok((length, client)) = inside.recv_from(&mut packet) {
                outside.send(&packet[..length]).unwrap();
                let Ok(length) = outside.recv(&mut packet) else { return };
                inside.send_to(&packet[..length], client).unwrap();
                if packet[0] == 2 && std::mem::take(&mut shut) {
                    // The test may have ended.
                    let _ = accepts.send(());
                    let _ = goes_on.recv();
                }
            }
        });
        Self { port, accepted, go_on }
    }
}

/// Logs in, calls `between`, and logs in again by the same program. True if both logins succeed.
#[track_caller]
fn log_in_twice(place: &TempDir, server: &AaaServer, network: &str, between: impl FnOnce()) -> bool {
    place.write_private("twice.conf", &format!("network={{\nkey_mgmt=WPA-EAP\n{network}\n}}\n"));
    let gate = AccessAcceptGate::for_server(server.port);
    let mut child = Command::new("eapol_test")
        .args(["-c", "twice.conf", "-a", "127.0.0.1", "-p", &gate.port.to_string(), "-s", SECRET])
        .args(["-r", "1", "-t", "120"])
        .current_dir(place.path(""))
        .stdout(Stdio::null())
        .spawn()
        .expect("eapol_test is installed; `scripts/setup test` installs what these tests need");
    gate.accepted.recv_timeout(TEST_TIMEOUT).expect("the first login");
    between();
    gate.go_on.send(()).unwrap();
    child.wait().unwrap().success()
}

/// Runs `usher aaa user` with this password.
#[track_caller]
fn change_user(place: &TempDir, words: &[&str], password: &str) {
    let words = [&["aaa", "user"], words, &["--password-file", "-", "--config", "aaa.toml"]].concat();
    let (right, said) = run_program(&place.path(""), USHER, &words, password);
    assert!(right, "{said}");
}

/// Counts the resumed sessions in the log.
fn count_resumptions(server: &AaaServer) -> usize {
    count_resumed_logins(&server.running.log())
}

fn count_resumed_logins(log: &str) -> usize {
    log.lines().filter(|l| l.contains(" accept ") && l.contains("resumed=true")).count()
}

#[test]
fn a_session_is_taken_up_again_and_ends_with_the_password() {
    for (version, phase1) in VERSIONS {
        for (eap, inner) in [("PEAP", "auth=MSCHAPV2"), ("TTLS", "auth=PAP")] {
            let place = TempDir::new();
            write_chain(&place, "server", 2);
            let mut server = AaaServer::start(&place, &format!("shards = 2\nreject_delay = \"0 s\"\n{TLS}"));
            change_user(&place, &["add", "ann"], "password");
            let network = tunnel_network(eap, inner, phase1, "password");
            assert!(log_in_twice(&place, &server, &network, || {}), "{eap} {version}");
            server.running.wait_for("resumed=true");
            assert_eq!(count_resumptions(&server), 1, "{eap} {version}: {}", server.running.log());
            let changed = || change_user(&place, &["set", "ann"], "another");
            assert!(!log_in_twice(&place, &server, &network, changed), "{eap} {version}");
            server.running.wait_for("reason=wrong password");
            assert_eq!(count_resumptions(&server), 1, "{eap} {version}: {}", server.running.log());
        }
    }
}

#[test]
fn a_session_of_a_certificate_ends_with_its_revocation() {
    for (version, phase1) in VERSIONS {
        let place = TempDir::new();
        let usher = |words: &[&str]| {
            let (right, said) = run_program(&place.path(""), USHER, &[&["aaa"], words].concat(), "");
            assert!(right, "{said}");
            said
        };
        usher(&["cert", "init", "--dir", "pki", "--server", "radius.test", "--key", "rsa-2048"]);
        usher(&["cert", "issue", CLIENT, "--dir", "pki", "--key", "rsa-2048"]);
        let issued = |name: &str| ["crt", "key"].map(|end| format!("pki/issued/{name}.{end}"));
        let ([server_pem, server_key], [client_pem, client_key]) = (issued("radius.test"), issued(CLIENT));
        let tls = format!(
            "[tls]\ncertificate = \"{server_pem}\"\nkey = \"{server_key}\"\nca = \"pki/ca.crt\"\ncrl = [\"pki/ca.crl\"]\n"
        );
        usher(&["cert", "crl", "--dir", "pki"]);
        let mut server = AaaServer::start(
            &place,
            &format!("reject_delay = \"0 s\"\n{tls}[[user]]\nname = \"{CLIENT}\"\n"),
        );
        let network = format!(
            "eap=TLS\nidentity=\"{CLIENT}\"\nca_cert=\"pki/ca.crt\"\nclient_cert=\"{client_pem}\"\n\
             private_key=\"{client_key}\"\nphase1=\"{phase1}\""
        );
        assert!(log_in_twice(&place, &server, &network, || {}), "{version}");
        server.running.wait_for("resumed=true");
        let revoke = || {
            let said = usher(&["cert", "revoke", CLIENT, "--dir", "pki", "--config", "aaa.toml"]);
            assert!(said.contains("the running server has read it"), "{said}");
        };
        assert!(!log_in_twice(&place, &server, &network, revoke), "{version}");
        server.running.wait_for(" reject ");
        assert_eq!(count_resumptions(&server), 1, "{version}: {}", server.running.log());
    }
}

#[test]
fn tls_1_2_without_extended_master_secret_needs_an_exception() {
    let no_ems = "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = none\n\
                  [none]\nOptions = -ExtendedMasterSecret\n";
    for excepted in [false, true] {
        let place = TempDir::new();
        write_chain(&place, "server", 2);
        write_chain(&place, "client", 2);
        place.write_private("openssl-without.cnf", no_ems);
        let client = format!(
            "[[client]]\nname = \"old\"\nprefix = \"127.0.0.1\"\nsecret = \"{SECRET}\"\nextended_master_secret = \"{}\"\n",
            if excepted { "optional" } else { "required" }
        );
        let users =
            format!("[[user]]\nname = \"ann\"\npassword = \"password\"\n[[user]]\nname = \"{CLIENT}\"\n");
        let mut server = AaaServer::start(&place, &format!("reject_delay = \"0 s\"\n{TLS}{client}{users}"));
        let networks = |phase1: &str| {
            [
                tunnel_network("PEAP", "auth=MSCHAPV2", phase1, "password"),
                tunnel_network("TTLS", "auth=PAP", phase1, "password"),
                certificate_network(phase1),
            ]
        };
        for network in networks(VERSIONS[0].1) {
            // With it, the login succeeds.
            expect_accept(&place, &server, "with", &network, &[]);
            let (right, said) = log_in_without_ems(&place, &server, &network);
            assert_eq!(right, excepted, "{network}: {said}");
            assert!(excepted || said.contains("handshake failure"), "{said}");
        }
        // The line is logged after the reply.
        let cause = "cause=\"tls-extended-master-secret\"";
        let named = |log: &str| log.matches(cause).count();
        if !excepted {
            server.running.wait_until(cause, |log| named(log) >= 3);
        }
        assert_eq!(named(&server.running.log()), if excepted { 0 } else { 3 }, "{}", server.running.log());
        // TLS 1.3 needs no Extended Master Secret.
        for network in networks(VERSIONS[1].1) {
            assert!(log_in_without_ems(&place, &server, &network).0, "{network}");
        }
    }
}

/// Logs in by a client without the Extended Master Secret.
fn log_in_without_ems(place: &TempDir, server: &AaaServer, network: &str) -> (bool, String) {
    place.write_private("without.conf", &format!("network={{\nkey_mgmt=WPA-EAP\n{network}\n}}\n"));
    let cnf = format!("OPENSSL_CONF={}", place.path_text("openssl-without.cnf"));
    let port = server.port.to_string();
    let words =
        [&cnf, "eapol_test", "-c", "without.conf", "-a", "127.0.0.1", "-p", &port, "-s", SECRET, "-t", "120"];
    run_program(&place.path(""), "env", &words, "")
}

#[test]
fn cryptobinding_is_done_with_who_can() {
    // The server's setting and eapol_test's behaviour.
    for (server_wants, takes) in
        [("off", [true, true, false]), ("optional", [true, true, true]), ("required", [false, true, true])]
    {
        let place = TempDir::new();
        write_chain(&place, "server", 2);
        let methods = format!("[methods]\npeap_cryptobinding = \"{server_wants}\"\n");
        let user = "[[user]]\nname = \"ann\"\npassword = \"password\"\n";
        let mut server = AaaServer::start(&place, &format!("reject_delay = \"0 s\"\n{TLS}{methods}{user}"));
        for (version, phase1) in VERSIONS {
            for (inner, method) in [("auth=MSCHAPV2", "mschapv2"), ("auth=GTC", "gtc"), ("auth=MD5", "md5")] {
                for (binding, takes) in takes.into_iter().enumerate() {
                    let phase1 = format!("{phase1} crypto_binding={binding}");
                    let network = tunnel_network("PEAP", inner, &phase1, "password");
                    let name = format!("{server_wants}-{binding}-{method}-{version}");
                    if takes {
                        // Both sides have the same keys, also after a resumption.
                        let (right, said) =
                            run_eapol_test(&place, &server, &network, &["-t", "120", "-r", "1"]);
                        assert!(right && said.contains("MPPE keys OK: 2  mismatch: 0"), "{name}: {said}");
                        let bound = server_wants != "off" && binding > 0;
                        assert_eq!(
                            said.contains("Valid cryptobinding TLV received"),
                            bound,
                            "{name}: {said}"
                        );
                    } else if server_wants == "required" {
                        expect_reject(&place, &server, &name, &network);
                    } else {
                        // The client ends the conversation.
                        assert!(!run_eapol_test(&place, &server, &network, &["-t", "3"]).0, "{name}");
                    }
                }
            }
        }
        let logins = takes.iter().filter(|taken| **taken).count() * VERSIONS.len() * 3;
        // The line is logged after the reply.
        server
            .running
            .wait_until("each session is taken up again", |log| count_resumed_logins(log) >= logins);
        assert_eq!(count_resumptions(&server), logins, "{}", server.running.log());
    }
}

/// Logs in as often as `more` says. Returns the success and the output.
fn run_eapol_test(place: &TempDir, server: &AaaServer, network: &str, more: &[&str]) -> (bool, String) {
    place.write_private("bound.conf", &format!("network={{\nkey_mgmt=WPA-EAP\n{network}\n}}\n"));
    let port = server.port.to_string();
    let words = [&["-c", "bound.conf", "-a", "127.0.0.1", "-p", &port, "-s", SECRET], more].concat();
    run_program(&place.path(""), "eapol_test", &words, "")
}

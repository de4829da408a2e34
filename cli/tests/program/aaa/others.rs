//! Servers that connect to each other by RadSec with mutual authentication.

use super::daemon::{
    DaemonProcess, ServerPorts, get_page, metric_value, pap_login, pap_unanswered, wait_until_metric,
    write_private,
};
use crate::place::{TempDir, own_socket};
use std::fmt::Write as _;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use usher_radius::SharedSecret;
use usher_radius::auth::response_authenticator;

/// Creates a folder with an authority, and certificates of two servers and a user.
pub(crate) fn create_certificates() -> TempDir {
    let place = TempDir::new();
    let cert = |arguments: &[&str]| {
        place.run_usher(&[&["aaa", "cert", "--dir", "pki"], arguments].concat()).with_code(0);
    };
    cert(&["init", "--server", "home.hotel.example"]);
    cert(&["issue", "front.example.net", "--server"]);
    cert(&["issue", "ann@hotel.example"]);
    place
}

/// Returns `[tls]` with the certificate of this name.
pub(super) fn tls_section(pki: &Path, name: &str) -> String {
    let pki = pki.display();
    format!(
        "[tls]\ncertificate = \"{pki}/issued/{name}.crt\"\nkey = \"{pki}/issued/{name}.key\"\nca = \"{pki}/ca.crt\"\n"
    )
}

pub(super) const ANN: &str =
    "[users]\nstore = \"memory\"\n[[user]]\nname = \"ann@hotel.example\"\npassword = \"right\"\n";

/// Returns a configuration with one more listener.
pub(super) fn listening_config(ports: &ServerPorts, shards: u16, listen: &str, more: &str) -> String {
    ports.server_config(shards, more).replace("[listen]\n", &format!("[listen]\n{listen}\n"))
}

/// The end of a login at a front whose home server shows a certificate and verifies the front's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LoginOutcome {
    Accepted,
    /// The front rejects the home server's certificate.
    RefusedByFront,
    /// The home server rejects the front's certificate.
    RefusedByHome,
}

/// Checks the end of a login. A rejected server gets no requests.
#[track_caller]
fn by_radsec(home_expects: &str, front_expects: &str, ends: LoginOutcome) {
    let cert = create_certificates();
    let pki = cert.path("pki");
    let (home_place, home_ports, radsec) = (TempDir::new(), ServerPorts::reserve_free(), own_socket());
    let client = format!("[[client]]\nname = \"front\"\nprefix = \"127.0.0.1\"\n{home_expects}\n");
    let home = DaemonProcess::start(
        &home_place,
        &listening_config(
            &home_ports,
            1,
            &format!("radsec = [\"{radsec}\"]"),
            &format!("{client}{}{ANN}", tls_section(&pki, "home.hotel.example")),
        ),
    );
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let front = DaemonProcess::start(
        &place,
        &ports.server_config(
            1,
            &format!(
                "{}[users]\nstore = \"memory\"\n\
                 [[home_server]]\nname = \"h\"\naddress = \"{radsec}\"\ntransport = \"tls\"\n{front_expects}\n\
                 [[realm]]\nname = \"hotel.example\"\nservers = [\"h\"]\n",
                tls_section(&pki, "front.example.net")
            ),
        ),
    );
    match ends {
        LoginOutcome::Accepted => drop(pap_login(ports.auth, "ann@hotel.example", "right").with_code(0)),
        _ => pap_unanswered(ports.auth, "ann@hotel.example", "right"),
    }
    let refuses = match ends {
        LoginOutcome::Accepted => None,
        LoginOutcome::RefusedByFront => Some(ports),
        LoginOutcome::RefusedByHome => Some(home_ports),
    };
    if let Some(ports) = refuses {
        // It has verified the certificate, which is of the right authority.
        let seen = "usher_aaa_driver_events_total{kind=\"tls_handshakes\"}";
        wait_until_metric(ports.metrics, seen, |seen| seen > 0.0);
    }
    let asked = metric_value(
        &get_page(home_ports.metrics, "/metrics"),
        "usher_aaa_radius_events_total{kind=\"requests\"}",
    );
    assert_eq!(asked, f64::from(u8::from(ends == LoginOutcome::Accepted)));
    assert_eq!((front.terminate(), home.terminate()), (Some(0), Some(0)));
}

/// Returns the SHA-256 fingerprint of a certificate, in OpenSSL's form.
fn certificate_fingerprint(certificate: &Path) -> String {
    let said = Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
        .arg(certificate)
        .output()
        .expect("openssl is installed");
    let said = String::from_utf8(said.stdout).unwrap();
    said.trim().split_once('=').unwrap().1.to_owned()
}

#[test]
fn a_radsec_home_server_must_bear_the_expected_name() {
    let front = "certificate = \"front.example.net\"";
    by_radsec(front, "certificate = \"home.hotel.example\"", LoginOutcome::Accepted);
    // The same authority certified another server. It must not receive the users.
    by_radsec(front, "certificate = \"front.example.net\"", LoginOutcome::RefusedByFront);
    let another = "certificate = \"another.example.net\"";
    by_radsec(another, "certificate = \"home.hotel.example\"", LoginOutcome::RefusedByHome);
}

/// `usher aaa test` uses any transport of the server's listeners.
#[test]
fn a_test_login_goes_by_radsec_and_by_diameter_too() {
    let (cert, place, ports) = (create_certificates(), TempDir::new(), ServerPorts::reserve_free());
    let pki = cert.path("pki");
    write_private(&place, "right", "right\n");
    write_private(&place, "wrong", "wrong\n");
    let listen = ["radsec", "diameter", "diameter_tls"]
        .map(|key| format!("{key} = [\"{}\"]", own_socket()))
        .join("\n");
    let more = format!(
        "[[client]]\nname = \"front\"\nprefix = \"127.0.0.1\"\ncertificate = \"front.example.net\"\n{}{ANN}\
         [diameter]\nidentity = \"home.hotel.example\"\nrealm = \"hotel.example\"\npeers = [\"front.example.net\"]\n",
        tls_section(&pki, "home.hotel.example")
    );
    let home = DaemonProcess::start(&place, &listening_config(&ports, 1, &listen, &more));
    let test = |password: &str, by: &[&str]| {
        let login = ["aaa", "test", "ann@hotel.example", "--config", "aaa.toml", "--password-file", password];
        place.run_usher(&[&login, by].concat())
    };
    let file = |name: &str| pki.join(name).display().to_string();
    let of = ["ca.crt", "issued/front.example.net.crt", "issued/front.example.net.key"].map(file);
    let files = ["--ca", &of[0], "--certificate", &of[1], "--key", &of[2]];
    let tls = [&["--tls", "--server-name", "home.hotel.example"][..], &files].concat();
    let peer = ["--peer", "home.hotel.example", "--identity", "front.example.net"];
    for (by, plain, eap) in [
        (tls.clone(), ["Access-Request with", "Access-Accept"], "Access-Accept"),
        (peer.to_vec(), ["AA-Request with", "AA-Answer of success"], "Diameter-EAP-Answer of success"),
        (
            [&peer[..], &tls].concat(),
            ["AA-Request with", "AA-Answer of success"],
            "Diameter-EAP-Answer of success",
        ),
    ] {
        let said = test("right", &by).with_code(0);
        assert!(plain.iter().all(|word| said.out.contains(word)), "{by:?}: {said:?}");
        let said = test("wrong", &by).with_code(1);
        assert!(said.out.contains("cause: wrong-password"), "{by:?}: {said:?}");
        let inside = ["--method", "ttls"];
        let more = if by.contains(&"--tls") { &inside[..] } else { &[&inside[..], &files].concat() };
        let said = test("right", &[&by[..], more].concat()).with_code(0);
        assert!(said.out.contains(eap), "{by:?}: {said:?}");
    }
    test("right", &["--server-name", "home.hotel.example"]).with_code(2);
    test("right", &["--tls", "--secret-file", "right"]).with_code(2);
    assert_eq!(home.terminate(), Some(0));
}

/// A TLS failure is reported as such at once, and not as a missing reply after a timeout.
#[test]
fn a_test_login_says_why_the_tls_to_its_server_ends() {
    let (cert, other, place, ports) =
        (create_certificates(), create_certificates(), TempDir::new(), ServerPorts::reserve_free());
    write_private(&place, "right", "right\n");
    let listen = ["radsec", "diameter_tls"].map(|key| format!("{key} = [\"{}\"]", own_socket())).join("\n");
    let more = format!(
        "[[client]]\nname = \"front\"\nprefix = \"127.0.0.1\"\ncertificate = \"front.example.net\"\n{}{ANN}\
         [diameter]\nidentity = \"home.hotel.example\"\nrealm = \"hotel.example\"\npeers = [\"front.example.net\"]\n",
        tls_section(&cert.path("pki"), "home.hotel.example")
    );
    let home = DaemonProcess::start(&place, &listening_config(&ports, 1, &listen, &more));
    let file = |of: &TempDir, name: &str| of.path("pki").join(name).display().to_string();
    let name = ["issued/front.example.net.crt", "issued/front.example.net.key"];
    let (right, wrong) = ((&cert, "home.hotel.example"), (&other, "home.hotel.example"));
    for (trusted, shown, fault) in [
        (wrong, &cert, "Is --ca"),
        ((&cert, "another.example"), &cert, "another.example"),
        (right, &other, "alert"),
    ] {
        let files = [file(trusted.0, "ca.crt"), file(shown, name[0]), file(shown, name[1])];
        for by in [&[][..], &["--peer", "home.hotel.example", "--identity", "front.example.net"]] {
            let login =
                ["aaa", "test", "ann@hotel.example", "--config", "aaa.toml", "--password-file", "right"];
            let by_tls = ["--tls", "--server-name", trusted.1, "--ca", &files[0]];
            let own = ["--certificate", &files[1], "--key", &files[2]];
            let said = place.run_usher(&[&login[..], &by_tls, &own, by].concat()).with_code(1);
            assert!(said.out.contains("TLS fails: ") && said.out.contains(fault), "{fault}: {said:?}");
            assert!(said.out.contains("cause, as seen by the client: "), "{said:?}");
            assert!(!said.out.contains("No answer"), "{said:?}");
        }
    }
    assert_eq!(home.terminate(), Some(0));
}

#[test]
fn certificates_may_be_known_by_their_fingerprints() {
    let (cert, mut config) = (create_certificates(), String::new());
    let print = certificate_fingerprint(&cert.path("pki/issued/home.hotel.example.crt"));
    write!(config, "[[home_server]]\nname = \"h\"\naddress = \"127.0.0.1:2083\"\ntransport = \"tls\"\n")
        .unwrap();
    write!(config, "fingerprint = \"{print}\"\n{}", tls_section(&cert.path("pki"), "front.example.net"))
        .unwrap();
    write_private(&cert, "aaa.toml", &config);
    cert.run_usher(&["aaa", "check", "aaa.toml"]).with_code(0);
    write_private(&cert, "aaa.toml", &config.replacen(':', "", 3).replace(&print[..8], "zz"));
    cert.run_usher(&["aaa", "check", "aaa.toml"]).with_code(2);
}

/// "No answer" would suggest a firewall.
#[test]
fn answers_that_are_not_believed_are_no_silence() {
    let place = TempDir::new();
    write_private(&place, "secret", "one secret of ours");
    write_private(&place, "right", "right");
    for (signed, why) in [
        (true, "the server has another shared secret"),
        (false, "they have no Message-Authenticator; servers from before 2024 send none"),
    ] {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let other = std::thread::spawn(move || {
            let mut request = [0; 4096];
            // An empty datagram ends it.
            while let Ok((1.., from)) = server.recv_from(&mut request) {
                let length: u8 = if signed { 38 } else { 20 };
                let mut reject = [0; 38];
                (reject[0], reject[1], reject[3]) = (3, request[1], length);
                // A Message-Authenticator by another secret, or a reply without one that is otherwise valid.
                (reject[20], reject[21]) = (80, 18);
                let reject = &mut reject[..usize::from(length)];
                if !signed {
                    let asked = request[4..20].try_into().unwrap();
                    let secret = SharedSecret::new(b"one secret of ours");
                    let proof = response_authenticator(reject, &asked, &secret);
                    reject[4..20].copy_from_slice(&proof);
                }
                server.send_to(reject, from).unwrap();
            }
        });
        let at = address.to_string();
        let login =
            ["aaa", "test", "ann", "--server", &at, "--secret-file", "secret", "--password-file", "right"];
        let said = place.run_usher(&login).with_code(1);
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[], address).unwrap();
        other.join().unwrap();
        assert!(said.out.contains(&format!("answers were dropped: {why}.")), "{said:?}");
        assert!(!said.out.contains("No answer"), "{said:?}");
    }
}

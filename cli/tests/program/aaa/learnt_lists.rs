//! Revocation lists from the distribution points in users' certificates.

use super::daemon::{DaemonProcess, ServerPorts, get_page, wait_for_metric};
use super::lists::{create_authority, logs_in, revocation_config, start_publisher, wait_for_daemon};
use crate::place::TempDir;
use std::sync::{Arc, Mutex};

/// Creates an authority below the server's by `usher`, and users' certificates by OpenSSL with a distribution point.
fn create_subordinate(pki: &TempDir, folder: &str, called: &str, users: &[(&str, &str)], url: &str) {
    pki.run_usher(&["aaa", "cert", "--dir", folder, "init", "--name", called, "--under", "pki"]).with_code(0);
    pki.write(
        "ext.cnf",
        &format!(
            "basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=clientAuth\n\
             crlDistributionPoints=URI:ldap://127.0.0.1/cn=users,URI:{url}\n"
        ),
    );
    for (name, serial) in users {
        let script = format!(
            "set -e\n\
             openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} \
               -keyout pki/issued/{name}.key -out {name}.csr\n\
             openssl x509 -req -in {name}.csr -CA {folder}/ca.crt -CAkey {folder}/ca.key -set_serial {serial} \
               -days 30 -extfile ext.cnf -out {name}.pem\n\
             cat {name}.pem {folder}/ca.crt > pki/issued/{name}.crt"
        );
        pki.run_shell(&script).with_code(0);
    }
}

/// Creates that authority's list with bob on it.
fn user_revocation_list(pki: &TempDir) -> Vec<u8> {
    pki.write("index.txt", "R\t361231235959Z\t260101000000Z\t1002\tunknown\t/CN=bob\n");
    pki.write("number", "01\n");
    pki.write(
        "ca.cnf",
        "[ca]\ndefault_ca = d\n[d]\ndatabase = index.txt\ncrlnumber = number\ndefault_md = sha256\n\
         crl_extensions = e\n[e]\nauthorityKeyIdentifier = keyid\n",
    );
    let make = "openssl ca -gencrl -config ca.cnf -cert users/ca.crt -keyfile users/ca.key -crldays 1 -out users.crl";
    pki.run_shell(make).with_code(0);
    std::fs::read(pki.path("users.crl")).unwrap()
}

#[test]
fn a_list_that_user_certificates_name_is_fetched_checked_kept() {
    let pki = create_authority();
    let given: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let url = start_publisher(&given, "users.crl");
    create_subordinate(&pki, "users", "Users", &[("ann", "0x1001"), ("bob", "0x1002")], &url);
    // It has the root's name, but its list could verify none of the root's certificates.
    let of_namesake = url.replace("users.crl", "namesake.crl");
    create_subordinate(&pki, "namesake", "Usher AAA", &[("eve", "0x1003")], &of_namesake);
    // A host that is always queried. Once its list is there, earlier ones have been processed.
    let beside = start_publisher(&Arc::default(), "beside.crl");
    create_subordinate(&pki, "beside", "Beside", &[("dan", "0x1004")], &beside);
    // A list of a trusted authority, but not the one that issued the certificates.
    *given.lock().unwrap() = Some(std::fs::read(pki.path("pki/ca.crl")).unwrap());
    let host = |url: &str| {
        let (host, _) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        format!("\"{host}\"")
    };
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let text = |hosts: &str| {
        let user = |name: &str| format!("[[user]]\nname = \"{name}\"\npassword = \"right\"\n");
        let lists = format!("crl_from_users = [{hosts}]\ncrl_interval = \"1 s\"");
        revocation_config(&ports, &pki, &lists) + &user("eve") + &user("dan")
    };
    let learnt = |daemon: &DaemonProcess, url: &str| {
        let said = "a user's certificate names a revocation list of its issuer";
        daemon.log().lines().any(|line| line.contains(said) && line.contains(url))
    };

    // Lists are not fetched from hosts that the configuration does not name.
    let daemon = DaemonProcess::start(
        &place,
        &text(&format!("\"crl.example.org\", \"127.0.0.1\", {}", host(&beside))),
    );
    for name in ["bob", "dan"] {
        assert!(logs_in(&place, &pki, &ports, name), "{}", daemon.log());
    }
    wait_for_daemon(&daemon, || learnt(&daemon, &beside));
    assert!(!learnt(&daemon, &url), "{}", daemon.log());
    assert_eq!(daemon.terminate(), Some(0));

    let text = text(&host(&url));
    let daemon = DaemonProcess::start(&place, &text);
    assert!(logs_in(&place, &pki, &ports, "eve"), "{}", daemon.log());
    assert!(logs_in(&place, &pki, &ports, "bob"), "nobody knows of a list yet: {}", daemon.log());
    wait_for_daemon(&daemon, || learnt(&daemon, &url));
    assert!(!learnt(&daemon, &of_namesake), "{}", daemon.log());
    daemon.wait_for_log("the certificates' issuer has not signed this list");
    assert!(logs_in(&place, &pki, &ports, "bob"), "{}", daemon.log());
    *given.lock().unwrap() = Some(user_revocation_list(&pki));
    wait_for_daemon(&daemon, || !logs_in(&place, &pki, &ports, "bob"));
    daemon.wait_for_log("certificate-revoked");
    assert!(logs_in(&place, &pki, &ports, "ann"), "{}", daemon.log());
    let page = get_page(ports.metrics, "/metrics");
    wait_for_metric(
        ports.metrics,
        &format!("usher_aaa_crl_updates_total{{from=\"{url}\",result=\"new\"}}"),
        1.0,
    );
    assert!(page.contains(&format!("usher_aaa_crl_next_update_seconds{{list=\"{url}\"")), "{page}");
    let status = place.run_usher(&["aaa", "status", "--config", "aaa.toml"]).with_code(0).out;
    assert!(status.contains(&url), "{status}");

    // The publisher goes down, and the server restarts: it still has the URL and the list.
    *given.lock().unwrap() = None;
    daemon.wait_for_log("no new revocation list");
    assert_eq!(daemon.terminate(), Some(0));
    let daemon = DaemonProcess::start(&place, &text);
    assert!(!logs_in(&place, &pki, &ports, "bob"), "{}", daemon.log());
    assert!(logs_in(&place, &pki, &ports, "ann"), "{}", daemon.log());
    assert_eq!(daemon.terminate(), Some(0));
}

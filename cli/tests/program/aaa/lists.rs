//! Revocation lists over their lifetimes, at a running server.

use super::daemon::{DaemonProcess, ServerPorts, eapol_test, get_page, wait_for_metric, write_private};
use super::others::tls_section;
use crate::place::{TempDir, wait_or_fail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use usher_core::WallTime;
use usher_pki::{CertificateAuthority, RevokeReason};

pub(super) fn now() -> WallTime {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    WallTime::from_unix_secs(since.as_secs())
}

/// Creates an authority with certificates of a server and two users.
pub(super) fn create_authority() -> TempDir {
    let place = TempDir::new();
    let cert = |arguments: &[&str]| {
        place.run_usher(&[&["aaa", "cert", "--dir", "pki"], arguments].concat()).with_code(0);
    };
    cert(&["init", "--server", "radius.example.net"]);
    cert(&["issue", "ann"]);
    cert(&["issue", "bob"]);
    place
}

/// Publishes the authority's list with a validity of `seconds`.
pub(super) fn publish_list(place: &TempDir, seconds: u64) {
    let mut authority = CertificateAuthority::open(&place.path("pki")).unwrap();
    authority.publish_list_with_lifetime(now(), usher_core::Duration::from_secs(seconds)).unwrap();
}

pub(super) const USERS: &str = "[users]\nstore = \"memory\"\n[[user]]\nname = \"ann\"\npassword = \"right\"\n[[user]]\nname = \"bob\"\npassword = \"right\"\n";

pub(super) fn revocation_config(ports: &ServerPorts, pki: &TempDir, settings: &str) -> String {
    let tls = tls_section(&pki.path("pki"), "radius.example.net");
    ports.server_config(2, &format!("{tls}{settings}\n{USERS}"))
}

pub(super) fn logs_in(place: &TempDir, pki: &TempDir, ports: &ServerPorts, name: &str) -> bool {
    let file = |kind: &str| pki.path(&format!("pki/issued/{name}.{kind}")).display().to_string();
    let ca = pki.path("pki/ca.crt").display().to_string();
    let network = format!(
        "eap=TLS\nidentity=\"{name}\"\nca_cert=\"{ca}\"\nclient_cert=\"{}\"\nprivate_key=\"{}\"",
        file("crt"),
        file("key")
    );
    eapol_test(place, ports.auth, &network, &[])
}

/// Waits until a condition holds.
#[track_caller]
pub(super) fn wait_for_daemon(daemon: &DaemonProcess, what: impl FnMut() -> bool) {
    wait_or_fail(|| format!("it did not come to that: {}", daemon.log()), what);
}

#[test]
fn an_expiring_list_warns_rejects_with_a_cause_and_is_reread() {
    let pki = create_authority();
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let list = pki.path("pki/ca.crl").display().to_string();
    let text = revocation_config(&ports, &pki, &format!("crl = [\"{list}\"]"));
    write_private(&place, "aaa.toml", &text);
    // The server warns in the last third of a list's lifetime. If it served too late, a list with a longer lifetime
    // is made.
    let served_in_time = |seconds: u64| {
        let published = now().unix_secs();
        publish_list(&pki, seconds);
        let checked = place.run_usher(&["aaa", "check", "aaa.toml"]).with_code(0);
        let daemon = DaemonProcess::start(&place, &text);
        let is_in = logs_in(&place, &pki, &ports, "ann");
        (now().unix_secs() < published + seconds * 2 / 3).then(|| {
            assert!(checked.err.is_empty() && is_in, "{checked:?} {}", daemon.log());
            daemon
        })
    };
    let daemon = [12, 24, 48, 96].into_iter().find_map(served_in_time).expect("a server starts in a minute");
    daemon.wait_for_log("expires in");
    let said = daemon.log();
    let line = said.lines().find(|line| line.contains("expires in")).unwrap();
    assert!(line.contains("WARN") && line.contains(&list) && line.contains("Usher AAA"), "{line}");
    assert!(place.run_usher(&["aaa", "check", "aaa.toml"]).with_code(0).err.contains("expires in"));
    daemon.wait_for_log("has expired: certificates");
    assert!(!logs_in(&place, &pki, &ports, "ann"));
    daemon.wait_for_log("crl-expired");
    let page = get_page(ports.metrics, "/metrics");
    let end = page.lines().find_map(|line| line.strip_prefix("usher_aaa_crl_next_update_seconds{")).unwrap();
    let end: u64 = end.rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!(end <= now().unix_secs());
    let status = place.run_usher(&["aaa", "status", "--config", "aaa.toml"]).with_code(0).out;
    assert!(status.contains("revocation list") && status.contains("has expired"), "{status}");
    let folder = pki.path("pki").display().to_string();
    let crl = |more: &[&str]| {
        let all = ["aaa", "cert", "--dir", &folder, "crl", "--config", "aaa.toml"];
        place.run_usher(&[&all[..], more].concat()).with_code(0).err
    };
    assert!(crl(&["--expiring", "10"]).contains("the running server has read it"));
    assert!(logs_in(&place, &pki, &ports, "ann"), "{}", daemon.log());
    assert!(crl(&["--expiring", "10"]).contains("is valid for more than 10 days"));
    assert_eq!(daemon.terminate(), Some(0));
}

#[test]
fn the_list_of_an_authority_at_hand_is_made_anew_before_it_ends() {
    let pki = create_authority();
    publish_list(&pki, 9);
    let first_ends = now().unix_secs() + 9;
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let folder = pki.path("pki").display().to_string();
    let daemon = DaemonProcess::start(
        &place,
        &revocation_config(&ports, &pki, &format!("crl_authority = \"{folder}\"\ncrl_interval = \"1 s\"")),
    );
    wait_for_daemon(&daemon, || {
        let page = get_page(ports.metrics, "/metrics");
        let end = page.lines().find_map(|l| l.strip_prefix("usher_aaa_crl_next_update_seconds{")).unwrap();
        let end: u64 = end.rsplit_once(' ').unwrap().1.parse().unwrap();
        end > now().unix_secs() + 29 * 86_400
    });
    wait_for_daemon(&daemon, || now().unix_secs() > first_ends);
    assert!(logs_in(&place, &pki, &ports, "ann"), "{}", daemon.log());
    let made = format!("usher_aaa_crl_updates_total{{from=\"{folder}\",result=\"new\"}}");
    wait_for_metric(ports.metrics, &made, 1.0);
    assert_eq!(daemon.terminate(), Some(0));
}

/// Starts a web server with this content, or an error while there is none. Returns the URL.
pub(crate) fn start_publisher(given: &Arc<Mutex<Option<Vec<u8>>>>, page: &str) -> String {
    counting_publisher(given, page).0
}

/// The same with a count of its responses.
pub(crate) fn counting_publisher(
    given: &Arc<Mutex<Option<Vec<u8>>>>,
    page: &str,
) -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/{page}", listener.local_addr().unwrap());
    let (body, answers) = (given.clone(), Arc::<AtomicU32>::default());
    let count = answers.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).is_ok_and(|_| !line.trim().is_empty()) {
                if let Some(said) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = said.trim().parse().unwrap();
                }
                line.clear();
            }
            // Unread data would reset the connection.
            let _ = reader.read_exact(&mut vec![0; length]);
            let (status, body) = match body.lock().unwrap().clone() {
                Some(body) => ("200 OK", body),
                None => ("503 Away", Vec::new()),
            };
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(&[head.as_bytes(), &body].concat());
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    (url, answers)
}

#[test]
fn a_fetched_list_rejects_revoked_users_and_outlives_its_server() {
    let pki = create_authority();
    publish_list(&pki, 600);
    let given: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let url = start_publisher(&given, "users.crl");
    let list = || Some(std::fs::read(pki.path("pki/ca.crl")).unwrap());
    *given.lock().unwrap() = list();
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    // A file has the list, too, and stays as it is.
    std::fs::copy(pki.path("pki/ca.crl"), place.path("first.crl")).unwrap();
    let lists = format!("crl = [\"first.crl\"]\ncrl_url = [\"{url}\"]\ncrl_interval = \"1 s\"");
    let text = revocation_config(&ports, &pki, &lists);
    let daemon = DaemonProcess::start(&place, &text);
    assert!(logs_in(&place, &pki, &ports, "ann") && logs_in(&place, &pki, &ports, "bob"), "{}", daemon.log());
    CertificateAuthority::open(&pki.path("pki"))
        .unwrap()
        .revoke("ann", RevokeReason::KeyCompromise, now())
        .unwrap();
    *given.lock().unwrap() = list();
    daemon.wait_for_log("a new revocation list");
    wait_for_daemon(&daemon, || !logs_in(&place, &pki, &ports, "ann"));
    daemon.wait_for_log("certificate-revoked");
    assert!(logs_in(&place, &pki, &ports, "bob"), "{}", daemon.log());
    // The publisher goes down, and the server restarts.
    *given.lock().unwrap() = None;
    daemon.wait_for_log("no new revocation list");
    assert_eq!(daemon.terminate(), Some(0));
    let daemon = DaemonProcess::start(&place, &text);
    assert!(
        !logs_in(&place, &pki, &ports, "ann") && logs_in(&place, &pki, &ports, "bob"),
        "{}",
        daemon.log()
    );
    assert_eq!(daemon.terminate(), Some(0));
}

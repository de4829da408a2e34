//! Revocation lists over their lives, at a server that runs on.

use super::daemon::{Daemon, Ports, eapol_test, get, private, wait_for_metric};
use super::others::tls;
use crate::place::{Folder, wait_or_say};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use usher_core::WallTime;
use usher_pki::{Authority, Reason};

pub(super) fn now() -> WallTime {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    WallTime::from_unix_secs(since.as_secs())
}

/// An authority with certificates of a server and of two users.
pub(super) fn authority() -> Folder {
    let place = Folder::new();
    let cert = |arguments: &[&str]| {
        place.usher(&[&["aaa", "cert", "--dir", "pki"], arguments].concat()).with_code(0);
    };
    cert(&["init", "--server", "radius.example.net"]);
    cert(&["issue", "ann"]);
    cert(&["issue", "bob"]);
    place
}

/// Writes the list of an authority for so many seconds.
pub(super) fn publish(place: &Folder, seconds: u64) {
    let mut authority = Authority::open(&place.path("pki")).unwrap();
    authority.publish_for(now(), usher_core::Duration::from_secs(seconds)).unwrap();
}

pub(super) const USERS: &str = "[users]\nstore = \"memory\"\n[[user]]\nname = \"ann\"\npassword = \"right\"\n[[user]]\nname = \"bob\"\npassword = \"right\"\n";

pub(super) fn config(ports: &Ports, pki: &Folder, settings: &str) -> String {
    let tls = tls(&pki.path("pki"), "radius.example.net");
    ports.config(2, &format!("{tls}{settings}\n{USERS}"))
}

pub(super) fn logs_in(place: &Folder, pki: &Folder, ports: &Ports, name: &str) -> bool {
    let file = |kind: &str| pki.path(&format!("pki/issued/{name}.{kind}")).display().to_string();
    let ca = pki.path("pki/ca.crt").display().to_string();
    let network = format!(
        "eap=TLS\nidentity=\"{name}\"\nca_cert=\"{ca}\"\nclient_cert=\"{}\"\nprivate_key=\"{}\"",
        file("crt"),
        file("key")
    );
    eapol_test(place, ports.auth, &network, &[])
}

/// Waits until something is so.
#[track_caller]
pub(super) fn until(daemon: &Daemon, what: impl FnMut() -> bool) {
    wait_or_say(|| format!("it did not come to that: {}", daemon.log()), what);
}

#[test]
fn a_list_that_ends_is_told_of_refuses_with_its_reason_and_is_read_anew() {
    let pki = authority();
    let (place, ports) = (Folder::new(), Ports::free());
    let list = pki.path("pki/ca.crl").display().to_string();
    let text = config(&ports, &pki, &format!("crl = [\"{list}\"]"));
    private(&place, "aaa.toml", &text);
    // In the last third of its time a list is told of. One of a longer time is made where the server did not serve before that.
    let served_in_time = |seconds: u64| {
        let published = now().unix_secs();
        publish(&pki, seconds);
        let checked = place.usher(&["aaa", "check", "aaa.toml"]).with_code(0);
        let daemon = Daemon::start(&place, &text);
        let is_in = logs_in(&place, &pki, &ports, "ann");
        (now().unix_secs() < published + seconds * 2 / 3).then(|| {
            assert!(checked.err.is_empty() && is_in, "{checked:?} {}", daemon.log());
            daemon
        })
    };
    let daemon = [12, 24, 48, 96].into_iter().find_map(served_in_time).expect("a server starts in a minute");
    daemon.wait("is out of date in");
    let said = daemon.log();
    let line = said.lines().find(|line| line.contains("is out of date in")).unwrap();
    assert!(line.contains("WARN") && line.contains(&list) && line.contains("Usher AAA"), "{line}");
    assert!(place.usher(&["aaa", "check", "aaa.toml"]).with_code(0).err.contains("out of date"));
    daemon.wait("is out of date: nobody");
    assert!(!logs_in(&place, &pki, &ports, "ann"));
    daemon.wait("crl-expired");
    let page = get(ports.metrics, "/metrics");
    let end = page.lines().find_map(|line| line.strip_prefix("usher_aaa_crl_next_update_seconds{")).unwrap();
    let end: u64 = end.rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!(end <= now().unix_secs());
    let status = place.usher(&["aaa", "status", "--config", "aaa.toml"]).with_code(0).out;
    assert!(status.contains("revocation list") && status.contains("is out of date"), "{status}");
    let folder = pki.path("pki").display().to_string();
    let crl = |more: &[&str]| {
        let all = ["aaa", "cert", "--dir", &folder, "crl", "--config", "aaa.toml"];
        place.usher(&[&all[..], more].concat()).with_code(0).err
    };
    assert!(crl(&["--expiring", "10"]).contains("the running server has read it"));
    assert!(logs_in(&place, &pki, &ports, "ann"), "{}", daemon.log());
    assert!(crl(&["--expiring", "10"]).contains("holds for more than 10 days"));
    assert_eq!(daemon.end(), Some(0));
}

#[test]
fn the_list_of_an_authority_at_hand_is_made_anew_before_it_ends() {
    let pki = authority();
    publish(&pki, 9);
    let first_ends = now().unix_secs() + 9;
    let (place, ports) = (Folder::new(), Ports::free());
    let folder = pki.path("pki").display().to_string();
    let daemon = Daemon::start(
        &place,
        &config(&ports, &pki, &format!("crl_authority = \"{folder}\"\ncrl_interval = \"1 s\"")),
    );
    until(&daemon, || {
        let page = get(ports.metrics, "/metrics");
        let end = page.lines().find_map(|l| l.strip_prefix("usher_aaa_crl_next_update_seconds{")).unwrap();
        let end: u64 = end.rsplit_once(' ').unwrap().1.parse().unwrap();
        end > now().unix_secs() + 29 * 86_400
    });
    until(&daemon, || now().unix_secs() > first_ends);
    assert!(logs_in(&place, &pki, &ports, "ann"), "{}", daemon.log());
    let made = format!("usher_aaa_crl_updates_total{{from=\"{folder}\",result=\"new\"}}");
    wait_for_metric(ports.metrics, &made, 1.0);
    assert_eq!(daemon.end(), Some(0));
}

/// A web server that gives whatever is given to it, or says that it is away; the URL.
pub(crate) fn publisher(given: &Arc<Mutex<Option<Vec<u8>>>>, page: &str) -> String {
    counting_publisher(given, page).0
}

/// The same with how often it has answered.
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
            // What is not read would reset the connection.
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
fn a_fetched_list_refuses_whom_it_names_and_outlasts_its_publisher() {
    let pki = authority();
    publish(&pki, 600);
    let given: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let url = publisher(&given, "users.crl");
    let list = || Some(std::fs::read(pki.path("pki/ca.crl")).unwrap());
    *given.lock().unwrap() = list();
    let (place, ports) = (Folder::new(), Ports::free());
    // A file has the list, too, and is not made anew.
    std::fs::copy(pki.path("pki/ca.crl"), place.path("first.crl")).unwrap();
    let lists = format!("crl = [\"first.crl\"]\ncrl_url = [\"{url}\"]\ncrl_interval = \"1 s\"");
    let text = config(&ports, &pki, &lists);
    let daemon = Daemon::start(&place, &text);
    assert!(logs_in(&place, &pki, &ports, "ann") && logs_in(&place, &pki, &ports, "bob"), "{}", daemon.log());
    Authority::open(&pki.path("pki")).unwrap().revoke("ann", Reason::KeyCompromise, now()).unwrap();
    *given.lock().unwrap() = list();
    daemon.wait("a new revocation list");
    until(&daemon, || !logs_in(&place, &pki, &ports, "ann"));
    daemon.wait("certificate-revoked");
    assert!(logs_in(&place, &pki, &ports, "bob"), "{}", daemon.log());
    // The publisher goes away, and the server starts again.
    *given.lock().unwrap() = None;
    daemon.wait("no new revocation list");
    assert_eq!(daemon.end(), Some(0));
    let daemon = Daemon::start(&place, &text);
    assert!(
        !logs_in(&place, &pki, &ports, "ann") && logs_in(&place, &pki, &ports, "bob"),
        "{}",
        daemon.log()
    );
    assert_eq!(daemon.end(), Some(0));
}

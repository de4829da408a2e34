//! Serving: logins, first start, several shards.

use super::daemon::{
    ANN, DaemonProcess, SECRET, ServerPorts, eapol_test, get_page, metric_value, pap_login,
    radclient_unanswered, usher_path, write_private,
};
use crate::place::{TEST_TIMEOUT, TempDir, own_address, own_socket};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn clients_that_others_wrote_are_served() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let server = DaemonProcess::start(&place, &ports.server_config(1, ANN));
    assert!(pap_login(ports.auth, "ann", "right").with_code(0).out.contains("Received Access-Accept"));
    assert!(pap_login(ports.auth, "ann", "wrong").with_code(1).out.contains("Received Access-Reject"));
    assert!(pap_login(ports.auth, "bob", "right").with_code(1).out.contains("Received Access-Reject"));
    let md5 = |password| format!("eap=MD5\nidentity=\"ann\"\npassword=\"{password}\"");
    assert!(eapol_test(&place, ports.auth, &md5("right"), &["-n"]));
    assert!(!eapol_test(&place, ports.auth, &md5("wrong"), &["-n"]));
    server.wait_for_log("reject user=\"bob\"");
    let log = server.log();
    assert!(log.contains("accept user=\"ann\" method=\"pap\" client=\"tests\""), "{log}");
    assert!(log.contains("accept user=\"ann\" method=\"eap-md5\" client=\"tests\""), "{log}");
    for secret in [SECRET, "right", "wrong"] {
        assert!(!log.contains(&format!("\"{secret}\"")), "{log}");
    }
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_server_that_crashes_leaves_no_core_dump() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    write_private(&place, "aaa.toml", &ports.server_config(1, ANN));
    // Its limits would allow one shard.
    let mut command = Command::new("bash");
    let line = format!("ulimit -c unlimited && exec {} aaa serve --config aaa.toml", usher_path());
    let server = DaemonProcess::run_command(command.args(["-c", &line]).current_dir(place.path(".")));
    server.wait_for_log("started");
    let ended = server.end_by("ABRT");
    assert_eq!((ended.signal(), ended.core_dumped()), (Some(6), false));
}

#[test]
fn metrics_say_what_happened() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let _server = DaemonProcess::start(&place, &ports.server_config(1, ANN));
    assert!(get_page(ports.metrics, "/health").contains("serving"));
    pap_login(ports.auth, "ann", "right").with_code(0);
    pap_login(ports.auth, "ann", "right").with_code(0);
    pap_login(ports.auth, "ann", "wrong").with_code(1);
    pap_login(ports.auth, "bob", "wrong").with_code(1);
    // Without a Message-Authenticator, the request is dropped and counted.
    radclient_unanswered(ports.auth, "auth", "User-Name=ann,User-Password=right");
    let page = get_page(ports.metrics, "/metrics");
    for (name, value) in [
        ("usher_aaa_requests_total{client=\"tests\",code=\"Access-Request\"}", 5.0),
        ("usher_aaa_logins_total{method=\"pap\",inner=\"\",result=\"accept\",reason=\"\"}", 2.0),
        (
            "usher_aaa_logins_total{method=\"pap\",inner=\"\",result=\"reject\",reason=\"wrong-password\"}",
            1.0,
        ),
        ("usher_aaa_login_latency_seconds_count", 4.0),
        ("usher_aaa_login_latency_seconds_bucket{le=\"+Inf\"}", 4.0),
        ("usher_aaa_radius_events_total{kind=\"missing_message_authenticator\"}", 1.0),
        ("usher_aaa_radius_events_total{kind=\"requests\"}", 4.0),
        ("usher_aaa_half_open", 0.0),
        ("usher_aaa_sessions", 0.0),
    ] {
        assert_eq!(metric_value(&page, name), value, "{name} in {page}");
    }
    let unknown = page.lines().filter(|l| l.contains("reason=\"unknown-user\"")).count();
    assert_eq!(unknown, 1, "{page}");
    // The format: each family has a type, the page has an end, and each sample is a name and a number.
    assert!(page.trim_end().ends_with("# EOF"), "{page}");
    let body = page.split_once("\r\n\r\n").unwrap().1;
    let mut family = String::new();
    for line in body.lines() {
        if let Some(described) = line.strip_prefix("# ") {
            family = described.split(' ').nth(1).unwrap_or("EOF").to_owned();
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with(&family), "{line} in family {family}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
}

#[test]
fn a_start_without_configuration_serves_loopback_with_hints() {
    let place = TempDir::new();
    if std::path::Path::new("/etc/usher/aaa.toml").exists() {
        panic!("this machine has an /etc/usher/aaa.toml; the test is about machines without one");
    }
    // In a separate network, where ports 1812 and 1813 are free.
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "bash", "-c"]);
    command.arg(
        "ip link set lo up\n\
         $USHER aaa serve 2> log & server=$!\n\
         for i in $(seq 2400); do grep -q started log && break; sleep 0.05; done\n\
         echo right | $USHER aaa user add ann --password-file - || exit 3\n\
         echo right | $USHER aaa test ann --password-file - > explained || exit 4\n\
         echo wrong | $USHER aaa test ann --password-file - > refused && exit 5\n\
         $USHER aaa test ann --password-file <(echo right) --method eap-md5 --server '[::1]:1812' || exit 6\n\
         stat -c %a state/usher/secret state/usher/usher.db state/usher/control.sock > modes\n\
         kill -TERM $server; wait $server",
    );
    command.env("USHER", super::daemon::usher_path()).env("XDG_STATE_HOME", place.path("state"));
    let done = command.current_dir(place.path(".")).output().unwrap();
    let read = |name| std::fs::read_to_string(place.path(name)).unwrap_or_default();
    assert_eq!(done.status.code(), Some(0), "{done:?} {}", read("log"));
    let log = read("log");
    for said in ["There is no configuration", "usher aaa user add", "usher aaa test", "usher aaa cert init"] {
        assert!(log.contains(said), "{log}");
    }
    assert!(read("explained").contains("Access-Accept"), "{}", read("explained"));
    // Both sides of the login, and the cause of a rejected one.
    assert!(read("explained").contains("server: Access-Request from 127.0.0.1"), "{}", read("explained"));
    assert!(
        read("refused").contains("server: ") && read("refused").contains("wrong password"),
        "{}",
        read("refused")
    );
    assert_eq!(read("modes"), "600\n600\n600\n");
}

/// EAP-MD5 with a new source port for every round, so that rounds reach any of the shards.
#[test]
fn every_round_of_a_login_may_come_from_another_port() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let methods = "[methods]\norder = [\"eap-md5\"]\n";
    let _server = DaemonProcess::start(&place, &ports.server_config(2, &format!("{methods}{ANN}")));
    let relay = UdpSocket::bind(own_socket()).unwrap();
    let port = relay.local_addr().unwrap().port();
    relay.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let (server, over) = (ports.auth, AtomicBool::new(false));
    let pass = || {
        let (mut request, mut answer) = ([0; 4096], [0; 4096]);
        // Retransmissions are answered from the duplicate cache.
        let mut answers = BTreeMap::<Vec<u8>, Vec<u8>>::new();
        while !over.load(Ordering::Relaxed) {
            let Ok((n, from)) = relay.recv_from(&mut request) else { continue };
            let answered = answers.entry(request[..n].to_vec()).or_insert_with(|| {
                let fresh = UdpSocket::bind("127.0.0.1:0").unwrap();
                fresh.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
                fresh.send_to(&request[..n], (own_address(), server)).unwrap();
                let n = fresh.recv(&mut answer).expect("the server answers");
                answer[..n].to_vec()
            });
            relay.send_to(answered, from).unwrap();
        }
    };
    std::thread::scope(|scope| {
        let _over = FlagOnDrop(&over);
        scope.spawn(pass);
        let (begun, mut logins) = (Instant::now(), 0.0);
        // Until a login has moved from one shard to the other.
        loop {
            assert!(eapol_test(&place, port, "eap=MD5\nidentity=\"ann\"\npassword=\"right\"", &["-n"]));
            logins += 1.0;
            let page = get_page(ports.metrics, "/metrics");
            let accepts =
                "usher_aaa_logins_total{method=\"eap-md5\",inner=\"\",result=\"accept\",reason=\"\"}";
            assert_eq!(metric_value(&page, accepts), logins);
            if metric_value(&page, "usher_aaa_diverted_total") > 0.0 {
                break;
            }
            assert!(begun.elapsed() < TEST_TIMEOUT, "none has crossed: {page}");
        }
    });
}

/// Sets a flag when dropped, on any exit.
struct FlagOnDrop<'a>(&'a AtomicBool);

impl Drop for FlagOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

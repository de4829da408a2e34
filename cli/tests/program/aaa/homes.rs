//! Home servers that stop and resume, and the proxy's behaviour and reports.

use super::daemon::{get_page, metric_value, pap_login, wait_for_metric};
use super::others::ANN;
use super::revoked::TestServer;
use crate::place::own_address;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// The home servers' response window: longer than a reply takes on a busy machine.
const WINDOW: Duration = Duration::from_secs(5);

/// A front with two shards, and the home servers of a realm in order.
struct HomeServersFixture {
    front: TestServer,
    homes: Vec<TestServer>,
}

impl HomeServersFixture {
    fn start(settings: &str) -> Self {
        let homes: Vec<TestServer> =
            (0..2).map(|_| TestServer::start(|ports| ports.server_config(1, ANN))).collect();
        let front = TestServer::start(|ports| {
            let mut more = "[users]\nstore = \"memory\"\n".to_owned();
            for (n, home) in homes.iter().enumerate() {
                let (host, auth, acct) = (own_address(), home.ports.auth, home.ports.acct);
                let window = WINDOW.as_secs();
                write!(
                    more,
                    "[[home_server]]\nname = \"hotel-{n}\"\naddress = \"{host}:{auth}\"\n\
                     acct_address = \"{host}:{acct}\"\nsecret = \"{}\"\nresponse_window = \"{window} s\"\n{settings}\n",
                    super::daemon::SECRET
                )
                .unwrap();
            }
            more += "[[realm]]\nname = \"hotel.example\"\nservers = [\"hotel-0\", \"hotel-1\"]\n";
            ports.server_config(2, &more)
        });
        Self { front, homes }
    }
    #[track_caller]
    fn logs_in(&self) {
        let said = pap_login(self.front.ports.auth, "ann@hotel.example", "right");
        assert_eq!(said.code, Some(0), "{}", self.front.daemon.log());
    }
    fn front_metric(&self, name: &str) -> f64 {
        metric_value(&get_page(self.front.ports.metrics, "/metrics"), &format!("usher_aaa_{name}"))
    }
    fn state_name(home: usize, state: &str) -> String {
        let labels = format!("home_server=\"hotel-{home}\",service=\"authentication\",state=\"{state}\"");
        format!("home_server_state{{{labels}}}")
    }
    fn is_in_state(&self, home: usize, state: &str) -> bool {
        self.front_metric(&Self::state_name(home, state)) > 0.5
    }
    /// Waits until all shards have a home server in this state. The status reports the worst.
    #[track_caller]
    fn wait_for_state(&self, home: usize, state: &str) {
        let name = format!("usher_aaa_{}", Self::state_name(home, state));
        wait_for_metric(self.front.ports.metrics, &name, 1.0);
    }
    fn home_counter(&self, what: &str, home: usize) -> f64 {
        self.front_metric(&format!("{what}{{home_server=\"hotel-{home}\",service=\"authentication\"}}"))
    }
    /// Returns the log line with a message about a home server.
    fn log_line(&self, message: &str, home: usize) -> String {
        self.front.daemon.wait_for_log(message);
        let log = self.front.daemon.log();
        let of = |line: &&str| line.contains(message) && line.contains(&format!("hotel-{home}"));
        log.lines().find(of).unwrap_or_else(|| panic!("no {message:?} of hotel-{home}: {log}")).to_owned()
    }
}

#[test]
fn a_stopped_home_server_delays_one_login_and_comes_back() {
    let scene = HomeServersFixture::start(
        "zombie_period = \"2 s\"\ncheck_interval = \"6 s\"\nnum_answers_to_alive = 1",
    );
    scene.logs_in();
    assert_eq!(
        (
            scene.home_counter("home_server_requests_total", 0),
            scene.home_counter("home_server_answers_total", 1)
        ),
        (1.0, 0.0)
    );
    assert!(scene.is_in_state(0, "alive"));
    scene.homes[0].daemon.send_signal("STOP");
    let begun = Instant::now();
    scene.logs_in();
    assert!(begun.elapsed() >= WINDOW, "{:?}", begun.elapsed());
    // Later requests avoid it on either shard and do not wait.
    let asked = scene.home_counter("home_server_requests_total", 0);
    (0..8).for_each(|_| scene.logs_in());
    assert_eq!(scene.home_counter("home_server_requests_total", 0), asked);
    assert_eq!(scene.home_counter("home_server_answers_total", 1), 9.0);
    let line = scene.log_line("a home server does not answer", 0);
    for part in ["WARN", "hotel.example", "authentication", "not answered for 5.0 s"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(scene.log_line("a home server is dead", 0).contains("WARN"));
    scene.wait_for_state(0, "dead");
    assert!(scene.is_in_state(1, "alive") && !scene.is_in_state(0, "alive"));
    assert_eq!(scene.home_counter("home_server_timeouts_total", 0), 1.0);
    let status = scene.front.temp_dir.run_usher(&["aaa", "status", "--config", "aaa.toml"]).with_code(0);
    assert!(
        status.out.contains("hotel-0 (authentication") && status.out.contains(": dead; "),
        "{}",
        status.out
    );
    let asked = scene.home_counter("home_server_requests_total", 0);
    scene.homes[0].daemon.send_signal("CONT");
    assert!(scene.log_line("a home server is back", 0).contains("INFO"));
    scene.wait_for_state(0, "alive");
    for _ in 0..4 {
        scene.logs_in();
    }
    assert_eq!(scene.home_counter("home_server_requests_total", 0), asked + 4.0, "each shard asks it again");
    let said = scene.front.daemon.log().matches("a home server is back").count();
    assert_eq!(said, 1, "what several shards know is said once: {}", scene.front.daemon.log());
}

#[test]
fn a_dead_home_server_without_status_check_is_tried_again() {
    let scene =
        HomeServersFixture::start("zombie_period = \"1 s\"\nstatus_check = false\nrevive_interval = \"3 s\"");
    scene.homes[0].daemon.send_signal("STOP");
    scene.logs_in();
    assert!(scene.log_line("a home server is dead", 0).contains("WARN"));
    let line = scene.log_line("a dead home server gets requests again", 0);
    for part in ["INFO", "hotel.example", "authentication", "tried again after 3.0 s"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    // Until it stops again.
    scene.wait_for_state(0, "alive");
    let asked = scene.home_counter("home_server_requests_total", 0);
    scene.homes[0].daemon.send_signal("CONT");
    scene.logs_in();
    assert_eq!(scene.home_counter("home_server_requests_total", 0), asked + 1.0);
    assert!(!scene.front.daemon.log().contains("a home server is back"), "nothing had said that it was away");
}

#[test]
fn settings_of_home_servers_that_make_no_sense_are_refused() {
    let place = crate::place::TempDir::new();
    for (setting, why) in [
        ("response_window = \"50 ms\"", "100 ms"),
        ("check_interval = \"5 s\"", "RFC 3539"),
        ("num_answers_to_alive = 0", "a server is never alive"),
    ] {
        let home =
            "[[home_server]]\nname = \"h\"\naddress = \"192.0.2.1:1812\"\nsecret = \"0123456789abcdef\"\n";
        super::daemon::write_private(&place, "aaa.toml", &format!("{home}{setting}\n"));
        let said = place.run_usher(&["aaa", "check", "aaa.toml"]).with_code(2);
        assert!(said.err.contains(why), "{setting}: {}", said.err);
    }
}

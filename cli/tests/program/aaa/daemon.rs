//! Servers for tests, and their clients.

use crate::place::{
    ProgramOutput, TEST_TIMEOUT, TempDir, USHER, bound_command, own_address, own_port, wait_or_fail,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The shared secret of loopback clients.
pub(super) const SECRET: &str = "a secret of the tests";

/// Ports of the test's own address.
#[derive(Clone, Copy)]
pub(super) struct ServerPorts {
    pub(super) auth: u16,
    pub(super) acct: u16,
    pub(super) metrics: u16,
}

impl ServerPorts {
    pub(super) fn reserve_free() -> Self {
        Self { auth: own_port(), acct: own_port(), metrics: own_port() }
    }

    /// Returns a configuration with users in memory. `more` is appended.
    pub(super) fn server_config(&self, shards: u16, more: &str) -> String {
        let (Self { auth, acct, metrics }, host) = (self, own_address());
        format!(
            "shards = {shards}\nstate_dir = \"state\"\nreject_delay = \"0 s\"\n\
             [listen]\nauth = [\"{host}:{auth}\"]\nacct = [\"{host}:{acct}\"]\n\
             [[client]]\nname = \"tests\"\nprefix = \"127.0.0.0/8\"\nsecret = \"{SECRET}\"\n\
             [metrics]\nlisten = \"{host}:{metrics}\"\n{more}"
        )
    }
}

/// Users in memory: ann with password "right".
pub(super) const ANN: &str = "[users]\nstore = \"memory\"\n[[user]]\nname = \"ann\"\npassword = \"right\"\n";

/// Writes a file that only its owner can read.
pub(crate) fn write_private(place: &TempDir, name: &str, text: &str) {
    place.write(name, text);
    std::fs::set_permissions(place.path(name), std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// A running server, killed when dropped.
pub(crate) struct DaemonProcess {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl DaemonProcess {
    /// Starts a server with this `aaa.toml` and waits until it serves.
    pub(super) fn start(place: &TempDir, config: &str) -> Self {
        write_private(place, "aaa.toml", config);
        let daemon = Self::run_command(&mut place.usher_command(&["aaa", "serve", "--config", "aaa.toml"]));
        daemon.wait_for_log("started");
        daemon
    }

    /// Starts a server by a command and captures its output.
    pub(crate) fn run_command(asked: &mut Command) -> Self {
        let mut command = bound_command(asked.get_program());
        command.args(asked.get_args());
        command.envs(asked.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if let Some(folder) = asked.get_current_dir() {
            command.current_dir(folder);
        }
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let kept = log.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                writeln!(kept.lock().unwrap(), "{line}").unwrap();
            }
        });
        Self { child, log }
    }

    /// Returns its process id.
    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until the log contains a text.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, text: &str) {
        wait_or_fail(
            || format!("the server never said {text:?}: {}", self.log()),
            || self.log().contains(text),
        );
    }

    pub(crate) fn send_signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Kills it (SIGKILL), as a power failure would.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Terminates it (SIGTERM) and returns its exit code.
    pub(crate) fn terminate(self) -> Option<i32> {
        self.end_by("TERM").code()
    }

    /// Ends it by a signal and returns its exit status.
    pub(super) fn end_by(mut self, signal: &str) -> ExitStatus {
        self.send_signal(signal);
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "the server does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request by radclient. Code 0: accepted. Fails without a reply.
#[track_caller]
pub(super) fn run_radclient(port: u16, kind: &str, attributes: &str) -> ProgramOutput {
    let said = run_radclient_once(TEST_TIMEOUT, port, kind, attributes);
    assert!(!is_unanswered(&said), "no answer: {said:?}");
    said
}

/// Sends a request that must not be answered. The wait is short: a late reply on a busy machine would be missed, but
/// does not fail the test.
#[track_caller]
pub(super) fn radclient_unanswered(port: u16, kind: &str, attributes: &str) {
    let said = run_radclient_once(Duration::from_secs(5), port, kind, attributes);
    assert!(is_unanswered(&said), "an answer: {said:?}");
}

fn is_unanswered(said: &ProgramOutput) -> bool {
    said.code == Some(1) && (said.err.contains("No reply") || said.out.contains("No reply"))
}

/// Sends a request once and waits this long for the reply.
pub(super) fn run_radclient_once(
    patience: Duration,
    port: u16,
    kind: &str,
    attributes: &str,
) -> ProgramOutput {
    let (patience, server) = (patience.as_secs().to_string(), format!("{}:{port}", own_address()));
    let mut child = Command::new("radclient")
        .args(["-x", "-r", "1", "-t", &patience, &server, kind, SECRET])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("radclient is installed (freeradius-utils)");
    child.stdin.take().unwrap().write_all(attributes.as_bytes()).unwrap();
    ProgramOutput::from_output(child.wait_with_output().unwrap())
}

/// Logs in by PAP and expects a reply.
#[track_caller]
pub(super) fn pap_login(port: u16, name: &str, password: &str) -> ProgramOutput {
    run_radclient(port, "auth", &login_attributes(name, password))
}

/// Logs in by PAP and expects no reply.
#[track_caller]
pub(super) fn pap_unanswered(port: u16, name: &str, password: &str) {
    radclient_unanswered(port, "auth", &login_attributes(name, password));
}

fn login_attributes(name: &str, password: &str) -> String {
    format!("User-Name={name},User-Password={password},Message-Authenticator=0x00")
}

/// Logs in by eapol_test. True: accepted.
pub(super) fn eapol_test(place: &TempDir, port: u16, network: &str, more: &[&str]) -> bool {
    place.write("eapol.conf", &format!("network={{\nkey_mgmt=IEEE8021X\n{network}\n}}\n"));
    let done = Command::new("eapol_test")
        .args(["-c", "eapol.conf", "-a", &own_address().to_string(), "-p", &port.to_string(), "-s", SECRET])
        .args(["-t", &TEST_TIMEOUT.as_secs().to_string()])
        .args(more)
        .current_dir(place.path("."))
        .output()
        .expect("eapol_test is installed (eapoltest)");
    String::from_utf8_lossy(&done.stdout).trim_end().ends_with("SUCCESS")
}

/// The server's timeout for its threads' counters, after which it serves the page without them.
const COLLECTING: Duration = Duration::from_secs(1);

/// Returns the HTTP response at the metrics' address.
pub(super) fn http_answer(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect((own_address(), port)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Returns a page at the metrics' address, with the counters of all threads.
#[track_caller]
pub(super) fn get_page(port: u16, path: &str) -> String {
    let mut text = String::new();
    wait_or_fail(
        || "a thread of the server has no turn".to_owned(),
        || {
            let begun = Instant::now();
            text = http_answer(port, path);
            begun.elapsed() < COLLECTING
        },
    );
    assert!(text.starts_with("HTTP/1.0 200"), "{text}");
    if path == "/metrics" {
        check_documented(&text);
    }
    text
}

/// Returns the rows of a page's table whose first column has this title.
fn table_rows<'a>(page: &'a str, title: &str) -> impl Iterator<Item = Vec<&'a str>> + use<'a> {
    let (_, table) =
        page.split_once(&format!("\n| {title} |")).unwrap_or_else(|| panic!("no {title} in the page"));
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').skip(1).map(|cell| cell.trim().trim_matches('`')).collect())
}

/// Checks that the operators' page documents each metric with its labels, and the counters' page each kind of event.
/// `usher-aaa-daemon` tests the reverse.
fn check_documented(exposition: &str) {
    let (operation, counters) = (
        include_str!("../../../../docs/reference/aaa-server.md"),
        include_str!("../../../../docs/reference/counters.md"),
    );
    let work = include_str!("../../../../docs/reference/study-files.md");
    let metrics: BTreeMap<&str, &str> = table_rows(operation, "metric").map(|row| (row[0], row[1])).collect();
    let mut seen = 0;
    for sample in exposition.lines().filter_map(|line| line.strip_prefix("usher_aaa_")) {
        let end = sample.find(['{', ' ']).unwrap();
        let (name, rest) = sample.split_at(end);
        let parts = ["_bucket", "_count", "_sum"];
        let whole = parts.iter().find_map(|part| name.strip_suffix(part)).filter(|n| metrics.contains_key(n));
        let name = whole.unwrap_or(name);
        let labels = rest.strip_prefix('{').map_or("", |rest| rest.rsplit_once('}').unwrap().0);
        let keys: Vec<&str> = labels
            .split(',')
            .filter_map(|label| label.split_once("=\"").map(|(key, _)| key))
            .filter(|key| *key != "le")
            .collect();
        assert_eq!(
            metrics.get(name),
            Some(&keys.join(", ").as_str()),
            "{sample}: docs/reference/aaa-server.md"
        );
        if let Some(kind) = labels.strip_prefix("kind=\"").and_then(|kind| kind.strip_suffix('"')) {
            let (page, written) = match name {
                // Kinds of work are those that studies charge.
                "work_total" => ("docs/reference/study-files.md", work.contains(&format!("`{kind}`"))),
                _ => (
                    "docs/reference/counters.md",
                    table_rows(counters, &format!("kind of `{name}`")).any(|row| row[0] == kind),
                ),
            };
            assert!(written, "{sample}: {page}");
        }
        seen += 1;
    }
    assert!(seen > 100, "the samples were not found: {exposition}");
}

/// Returns the value of a metric, by its full name with labels.
#[track_caller]
pub(super) fn metric_value(page: &str, name: &str) -> f64 {
    find_metric(page, name).unwrap_or_else(|| panic!("no {name} in {page}"))
}

/// The same for a metric that may be absent.
pub(super) fn find_metric(page: &str, name: &str) -> Option<f64> {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

/// Waits until a metric has a value.
#[track_caller]
pub(super) fn wait_for_metric(port: u16, name: &str, value: f64) {
    wait_until_metric(port, name, |found| found == value);
}

/// Waits until a metric satisfies a condition.
#[track_caller]
pub(super) fn wait_until_metric(port: u16, name: &str, is_so: impl Fn(f64) -> bool) {
    let read = || get_page(port, "/metrics");
    wait_or_fail(
        || format!("{name} never was so: {}", read()),
        || find_metric(&read(), name).is_some_and(&is_so),
    );
}

/// Returns the program's path, for a shell.
pub(super) fn usher_path() -> &'static str {
    USHER
}

//! A server that a test starts, and clients for it.

use crate::place::{Folder, ProgramOutput, USHER};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The secret shared with loopback clients.
pub(super) const SECRET: &str = "a secret of the tests";
const LONG: Duration = Duration::from_secs(30);

/// Ports that nobody uses just now.
#[derive(Clone, Copy)]
pub(super) struct Ports {
    pub(super) auth: u16,
    pub(super) acct: u16,
    pub(super) metrics: u16,
}

impl Ports {
    /// Below those that the system hands out, and no test's twice.
    pub(super) fn free() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let port = || loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let port = 10_000 + (std::process::id().wrapping_mul(67).wrapping_add(n) % 20_000) as u16;
            let free = UdpSocket::bind(("127.0.0.1", port)).is_ok()
                && TcpListener::bind(("127.0.0.1", port)).is_ok();
            if free {
                return port;
            }
        };
        Self { auth: port(), acct: port(), metrics: port() }
    }

    /// A configuration with users in memory; `more` is appended.
    pub(super) fn config(&self, shards: u16, more: &str) -> String {
        let Self { auth, acct, metrics } = self;
        format!(
            "shards = {shards}\nstate_dir = \"state\"\nreject_delay = \"0 s\"\n\
             [listen]\nauth = [\"127.0.0.1:{auth}\"]\nacct = [\"127.0.0.1:{acct}\"]\n\
             [[client]]\nname = \"tests\"\nprefix = \"127.0.0.0/8\"\nsecret = \"{SECRET}\"\n\
             [metrics]\nlisten = \"127.0.0.1:{metrics}\"\n{more}"
        )
    }
}

/// Users in memory: ann with password "right".
pub(super) const ANN: &str = "[users]\nstore = \"memory\"\n[[user]]\nname = \"ann\"\npassword = \"right\"\n";

/// Writes a file that only its owner can read.
pub(crate) fn private(place: &Folder, name: &str, text: &str) {
    place.write(name, text);
    std::fs::set_permissions(place.path(name), std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// A server that runs; killed where a test leaves it.
pub(crate) struct Daemon {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Daemon {
    /// Starts a server in a place, in which `aaa.toml` is its configuration, and waits until it serves.
    pub(super) fn start(place: &Folder, config: &str) -> Self {
        private(place, "aaa.toml", config);
        let daemon = Self::run(&mut place.command(&["aaa", "serve", "--config", "aaa.toml"]));
        daemon.wait("started");
        daemon
    }

    /// Starts a server by a command, and keeps what it says.
    pub(crate) fn run(command: &mut Command) -> Self {
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

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until the log holds a text.
    #[track_caller]
    pub(crate) fn wait(&self, text: &str) {
        let until = Instant::now() + LONG;
        while !self.log().contains(text) {
            assert!(Instant::now() < until, "the server never said {text:?}: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Ends it by SIGKILL, as a power failure would.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it by SIGTERM; its exit code.
    pub(crate) fn end(self) -> Option<i32> {
        self.end_by("TERM").code()
    }

    /// Ends it by a signal; how it ended.
    pub(super) fn end_by(mut self, signal: &str) -> ExitStatus {
        self.signal(signal);
        let until = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "the server does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request by FreeRADIUS's client; code 0: accepted.
pub(super) fn radclient(port: u16, kind: &str, attributes: &str) -> ProgramOutput {
    let mut child = Command::new("radclient")
        .args(["-x", "-r", "1", "-t", "5", &format!("127.0.0.1:{port}"), kind, SECRET])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("radclient is installed (freeradius-utils)");
    child.stdin.take().unwrap().write_all(attributes.as_bytes()).unwrap();
    ProgramOutput::of(child.wait_with_output().unwrap())
}

/// A login by PAP.
pub(super) fn pap(port: u16, name: &str, password: &str) -> ProgramOutput {
    radclient(port, "auth", &format!("User-Name={name},User-Password={password},Message-Authenticator=0x00"))
}

/// A login by wpa_supplicant's client; true: accepted.
pub(super) fn eapol_test(place: &Folder, port: u16, network: &str, more: &[&str]) -> bool {
    place.write("eapol.conf", &format!("network={{\nkey_mgmt=IEEE8021X\n{network}\n}}\n"));
    let done = Command::new("eapol_test")
        .args(["-c", "eapol.conf", "-a", "127.0.0.1", "-p", &port.to_string(), "-s", SECRET, "-t", "10"])
        .args(more)
        .current_dir(place.path("."))
        .output()
        .expect("eapol_test is installed (eapoltest)");
    String::from_utf8_lossy(&done.stdout).trim_end().ends_with("SUCCESS")
}

/// A page of the metrics' address.
pub(super) fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.0 200"), "{text}");
    if path == "/metrics" {
        documented(&text);
    }
    text
}

/// The rows of a page's table whose first column has this title.
fn table<'a>(page: &'a str, title: &str) -> impl Iterator<Item = Vec<&'a str>> + use<'a> {
    let (_, table) =
        page.split_once(&format!("\n| {title} |")).unwrap_or_else(|| panic!("no {title} in the page"));
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').skip(1).map(|cell| cell.trim().trim_matches('`')).collect())
}

/// Each metric of an exposition is on the page for operators with its labels, and each kind of event on that of counters.
/// That pages have all that is declared, `usher-daemon` tests.
fn documented(exposition: &str) {
    let (operation, counters) =
        (include_str!("../../../../docs/aaa-server.md"), include_str!("../../../../docs/counters.md"));
    let work = include_str!("../../../../docs/study-files.md");
    let metrics: BTreeMap<&str, &str> = table(operation, "metric").map(|row| (row[0], row[1])).collect();
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
        assert_eq!(metrics.get(name), Some(&keys.join(", ").as_str()), "{sample}: docs/aaa-server.md");
        if let Some(kind) = labels.strip_prefix("kind=\"").and_then(|kind| kind.strip_suffix('"')) {
            let (page, written) = match name {
                // Kinds of work are what studies charge a processor for.
                "work_total" => ("docs/study-files.md", work.contains(&format!("`{kind}`"))),
                _ => (
                    "docs/counters.md",
                    table(counters, &format!("kind of `{name}`")).any(|row| row[0] == kind),
                ),
            };
            assert!(written, "{sample}: {page}");
        }
        seen += 1;
    }
    assert!(seen > 100, "the samples were not found: {exposition}");
}

/// The value of one metric, by its whole name with labels.
#[track_caller]
pub(super) fn metric(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

/// The program, so that it is found in a shell.
pub(super) fn usher() -> &'static str {
    USHER
}

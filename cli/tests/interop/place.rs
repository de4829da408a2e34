//! Common parts of these tests: a folder and a network each, programs that end with the test, and the server.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::cell::Cell;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The program.
pub(crate) const USHER: &str = env!("CARGO_BIN_EXE_usher");
/// The shared secret of all RADIUS programs here.
pub(crate) const SECRET: &str = "testing123";
/// The timeout of a program's start or of a login on a busy machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Moves this thread and its children into a new network, whose ports no other test uses. The network ends with its
/// last program. Without the right to create one, the thread stays in the machine's network.
fn enter_own_network() {
    thread_local!(static HAS_OWN_NETWORK: Cell<bool> = const { Cell::new(false) });
    if HAS_OWN_NETWORK.replace(true) {
        return;
    }
    let ip = |arguments: &[&str]| {
        let done = find_program("ip").args(arguments).stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    let thread = std::thread::current().id();
    let name = format!("usher-interop-{}-{thread:?}", std::process::id()).replace(['(', ')'], "");
    if !ip(&["netns", "add", &name]) {
        return;
    }
    let namespace = fs::File::open(format!("/run/netns/{name}")).unwrap();
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    // Without a name, nothing of it remains.
    assert!(ip(&["netns", "del", &name]) && ip(&["link", "set", "lo", "up"]));
}

/// The folder of a test, removed when dropped. Creating it moves the test into its own network.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        enter_own_network();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("usher-interop-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        // Servers that drop root's rights read their files here.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the path as text, for configuration files.
    pub(crate) fn path_text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a file that only its owner can read.
    pub(crate) fn write_private(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// Starts a program in this folder, with its output in `NAME.log`. Waits until the output contains `ready`.
    #[track_caller]
    pub(crate) fn start_program(&self, name: &str, command: &mut Command, ready: &str) -> RunningProgram {
        let log = self.path(&format!("{name}.log"));
        let file = fs::File::create(&log).unwrap();
        let child = command
            .current_dir(&self.0)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap_or_else(|e| panic!("{name}: {e}; `scripts/setup test` installs what these tests need"));
        let mut running = RunningProgram { child, log };
        running.wait_for(ready);
        running
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("kept for a look: {}", self.0.display());
        } else {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }
}

/// A program that ends with the test.
pub(crate) struct RunningProgram {
    child: Child,
    log: PathBuf,
}

impl RunningProgram {
    /// Returns its output so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until its output contains `text`.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |log| log.contains(text));
    }

    /// Waits until its output satisfies `fulfilled`.
    #[track_caller]
    pub(crate) fn wait_until(&mut self, what: &str, fulfilled: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        while !fulfilled(&self.log()) {
            if let Some(status) = self.child.try_wait().unwrap() {
                // The last output may have arrived after the check.
                if fulfilled(&self.log()) {
                    return;
                }
                panic!("it ended ({status}) without saying {what:?}:\n{}", self.log());
            }
            assert!(begun.elapsed() < TEST_TIMEOUT, "it never said {what:?}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal to it, such as `STOP`.
    #[track_caller]
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Terminates it (SIGTERM) and returns its exit code.
    #[track_caller]
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        self.signal("TERM");
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begun.elapsed() < TEST_TIMEOUT, "it does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
    }
}

/// Returns a UDP port of the test's loopback that is free, with the next one.
pub(crate) fn udp_ports() -> u16 {
    loop {
        let first = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        if port < u16::MAX && UdpSocket::bind((Ipv4Addr::LOCALHOST, port + 1)).is_ok() {
            return port;
        }
    }
}

/// Returns a free TCP port of the test's loopback.
pub(crate) fn tcp_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// A running `usher aaa serve`.
pub(crate) struct AaaServer {
    pub(crate) running: RunningProgram,
    /// The authentication port. The accounting port is the next one.
    pub(crate) port: u16,
}

impl AaaServer {
    /// Starts it on loopback with one client there, one shard and the settings in `more`.
    #[track_caller]
    pub(crate) fn start(place: &TempDir, more: &str) -> Self {
        Self::start_listening(place, "", more)
    }

    /// The same with more listeners.
    #[track_caller]
    pub(crate) fn start_listening(place: &TempDir, listen: &str, more: &str) -> Self {
        let port = udp_ports();
        let shards = if more.contains("shards =") { "" } else { "shards = 1\n" };
        let (scalars, tables) = more.split_at(more.find('[').unwrap_or(more.len()));
        let text = format!(
            r#"{shards}{scalars}
state_dir = "{state}"
[listen]
auth = ["127.0.0.1:{port}"]
acct = ["127.0.0.1:{acct}"]
{listen}
{tables}
[[client]]
name = "here"
prefix = "127.0.0.0/8"
secret = "{SECRET}"
message_authenticator = "off"
"#,
            state = place.path_text("state"),
            acct = port + 1,
        );
        place.write_private("aaa.toml", &text);
        let mut command = Command::new(USHER);
        command.args(["aaa", "serve", "--config", "aaa.toml"]);
        let running = place.start_program("usher", &mut command, "started");
        Self { running, port }
    }
}

/// Returns the command of a program, which may be in a folder for servers outside of PATH.
pub(crate) fn find_program(name: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// Runs a Debian program to its end with this standard input. Returns its success and output.
#[track_caller]
pub(crate) fn run_program(folder: &Path, name: &str, arguments: &[&str], input: &str) -> (bool, String) {
    use std::io::Write;
    let mut child = find_program(name)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{name}: {e}; `scripts/setup test` installs what these tests need"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

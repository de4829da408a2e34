//! Two hosts within a guest: a network namespace each, and links with delay and loss. Programs end with their test.
//!
//! The guest runs one test at a time. `./x test guest` starts it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The timeout of a program's start or of a login, on an emulated processor.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// The timeout of a test. None takes half of it. A test that hangs ends all with diagnostics. Otherwise the guest
/// would end first and leave none.
const LIMIT: Duration = Duration::from_secs(240);

/// Returns the program under test, from the environment of the guest.
#[must_use]
#[track_caller]
pub fn usher_program() -> String {
    std::env::var("USHER_PROGRAM").expect("USHER_PROGRAM names the program: ./x test guest does")
}

/// Runs a program to its end and returns its output.
///
/// # Panics
/// The program failed.
#[track_caller]
pub fn run_program(folder: &Path, words: &[&str]) -> String {
    let (program, arguments) = words.split_first().expect("a program");
    let out = Command::new(program).args(arguments).current_dir(folder).stdin(Stdio::null()).output();
    let out =
        out.unwrap_or_else(|e| panic!("{program}: {e}; `scripts/setup test` installs what these tests need"));
    let (said, complained) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{words:?}: {}\n{said}\n{complained}", out.status);
    said.into_owned()
}

/// The impairment of a link, in each direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkImpairment {
    /// One-way delay in milliseconds.
    pub delay_ms: u32,
    /// Packet loss in per cent.
    pub loss: f64,
}

/// One of the two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuestHost {
    /// The network access server's host, the client.
    Nas,
    /// The AAA server's host.
    Aaa,
}

impl GuestHost {
    const ALL: [Self; 2] = [Self::Nas, Self::Aaa];

    const fn name(self) -> &'static str {
        match self {
            Self::Nas => "nas",
            Self::Aaa => "aaa",
        }
    }

    /// Returns its address on a link. Links count from 1.
    #[must_use]
    pub fn address(self, link: u32) -> String {
        format!("10.99.{link}.{}", self as u32 + 1)
    }
}

/// The diagnostics of a hanging test: programs with their kernel wait channels, logs, and the hosts' connections and
/// SAs.
const HANGING: &str = "
ps axo pid,ppid,stat,wchan:30,etimes,args | grep -v ']$'
for task in /proc/[0-9]*/task/*; do
    grep -qE 'ppp|usher|guest' $task/comm && { echo \"--- $task $(cat $task/comm)\"; cat $task/stack; }
done
for log in *.log; do echo \"--- $log\"; tail -n 100 $log; done
for host in nas aaa; do
    echo \"--- $host\"
    for look in 'ss -tunap' 'ip address' 'ip xfrm state' 'ip xfrm policy' 'cat /proc/net/xfrm_stat'; do
        ip netns exec $host $look
    done
done
dmesg | tail -n 30
";

/// Two hosts, joined by two links, and a folder.
#[derive(Debug)]
pub struct GuestTestNetwork {
    folder: PathBuf,
    /// Dropping it tells the watchdog that the test has ended.
    _watched: Sender<()>,
}

/// Ends the process with diagnostics if the test does not end in time.
fn start_watchdog(folder: PathBuf) -> Sender<()> {
    let (watched, ended) = channel();
    std::thread::spawn(move || {
        if ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            eprintln!("the test is not done after {} s:", LIMIT.as_secs());
            let _ = Command::new("sh").args(["-c", HANGING]).current_dir(folder).status();
            std::process::exit(101);
        }
    });
    watched
}

impl GuestTestNetwork {
    /// Creates the hosts and links with this impairment.
    #[must_use]
    #[track_caller]
    pub fn new(impairment: LinkImpairment) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let folder = std::env::temp_dir().join(format!("world-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let world = Self { _watched: start_watchdog(folder.clone()), folder };
        for host in GuestHost::ALL {
            world.run_ip(&format!("netns add {}", host.name()));
            world.run_ip(&format!("-n {} link set lo up", host.name()));
        }
        for link in 1..=2 {
            world.run_ip(&format!("link add nas{link} netns nas type veth peer name aaa{link} netns aaa"));
            for host in GuestHost::ALL {
                let (name, address) = (host.name(), host.address(link));
                world.run_ip(&format!("-n {name} address add {address}/24 dev {name}{link}"));
                world.run_ip(&format!("-n {name} link set {name}{link} up"));
            }
        }
        world.impair_links(impairment);
        world
    }

    #[track_caller]
    fn run_ip(&self, words: &str) {
        run_program(&self.folder, &[&["ip"], &words.split(' ').collect::<Vec<_>>()[..]].concat());
    }

    /// Changes the impairment of both links.
    #[track_caller]
    pub fn impair_links(&self, impairment: LinkImpairment) {
        let LinkImpairment { delay_ms, loss } = impairment;
        for (host, link) in GuestHost::ALL.into_iter().flat_map(|host| [(host, 1), (host, 2)]) {
            let name = host.name();
            let rule = format!(
                "-n {name} qdisc replace dev {name}{link} root netem delay {delay_ms}ms loss {loss}%"
            );
            run_program(&self.folder, &[&["tc"], &rule.split(' ').collect::<Vec<_>>()[..]].concat());
        }
    }

    /// Returns the folder in which programs run.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.folder
    }

    /// Writes a file that only its owner can read.
    pub fn write_file(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Runs a program on a host to its end and returns its output.
    #[track_caller]
    pub fn run_on(&self, host: GuestHost, words: &[&str]) -> String {
        run_program(&self.folder, &[&["ip", "netns", "exec", host.name()], words].concat())
    }

    /// Starts a program on a host, with its output in `NAME.log`. Waits until the output contains `ready`.
    #[track_caller]
    pub fn start_on(&self, host: GuestHost, name: &str, words: &[&str], ready: &str) -> RunningProgram {
        let log = self.folder.join(format!("{name}.log"));
        let file = fs::File::create(&log).unwrap();
        let child = Command::new("ip")
            .args(["netns", "exec", host.name()])
            .args(words)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        let mut running = RunningProgram { child, log };
        running.wait_for(ready);
        running
    }

    /// Writes `ca.pem` of an authority, and a host's `NAME.pem` and `NAME.key`.
    #[track_caller]
    pub fn write_certificates(&self, name: &str) {
        let make = |name: &str, extensions: &str, above: &[&str]| {
            let text = format!(
                "[req]\ndistinguished_name = name\nx509_extensions = extensions\nprompt = no\n[name]\nCN = {name}\n\
                 [extensions]\n{extensions}\n"
            );
            self.write_file("openssl.cnf", &text);
            let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
            let own = [
                "openssl",
                "req",
                "-x509",
                "-config",
                "openssl.cnf",
                "-nodes",
                "-days",
                "2",
                "-newkey",
                "ec",
            ];
            let more = ["-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", &key, "-out", &certificate];
            run_program(&self.folder, &[&own[..], &more, above].concat());
        };
        make("ca", "basicConstraints = critical, CA:TRUE\nkeyUsage = keyCertSign", &[]);
        let extensions = format!("basicConstraints = CA:FALSE\nsubjectAltName = DNS:{name}");
        make(name, &extensions, &["-CA", "ca.pem", "-CAkey", "ca.key"]);
    }
}

impl Drop for GuestTestNetwork {
    fn drop(&mut self) {
        for host in GuestHost::ALL {
            // The links end with their namespaces.
            let removed = Command::new("ip").args(["netns", "del", host.name()]).status();
            if !std::thread::panicking() {
                assert!(removed.unwrap().success(), "{} is not removed", host.name());
            }
        }
    }
}

/// A program that ends with the test.
#[derive(Debug)]
pub struct RunningProgram {
    child: Child,
    log: PathBuf,
}

impl RunningProgram {
    /// Returns its output so far.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until its output contains `text`.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |log| log.contains(text));
    }

    /// Waits until its output satisfies `fulfilled`.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, fulfilled: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        while !fulfilled(&self.log()) {
            if let Some(status) = self.child.try_wait().unwrap() {
                // The last output may have arrived after the check.
                if fulfilled(&self.log()) {
                    return;
                }
                panic!("it ended ({status}) without saying {what:?}:\n{}", self.log());
            }
            assert!(begun.elapsed() < PROGRAM_TIMEOUT, "it never said {what:?}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills it, so that it cannot clean up.
    #[track_caller]
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Terminates it (SIGTERM) and returns its exit code.
    #[track_caller]
    pub fn terminate(&mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begun.elapsed() < PROGRAM_TIMEOUT, "it does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
    }
}

//! Two hosts within a guest: a network namespace each, joined by links that delay and lose as a test says, and programs that
//! end with the test. The guest is the test's alone: `./x test guest` starts it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long a program may take to come up, or a login to end, in a processor that is emulated.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a test may take: none takes half of it. One that hangs ends all, with what tells why, or the guest's end would come first
/// and leave nothing.
const LIMIT: Duration = Duration::from_secs(240);

/// The program under test, as the one who starts the guest names it.
#[must_use]
#[track_caller]
pub fn usher_program() -> String {
    std::env::var("USHER_PROGRAM").expect("USHER_PROGRAM names the program: ./x test guest does")
}

/// Runs a program to its end and gives what it printed.
///
/// # Panics
/// It failed.
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

/// What a link does to packets, each way.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkImpairment {
    /// One way, milliseconds.
    pub delay_ms: u32,
    /// Per cent of the packets.
    pub loss: f64,
}

/// A network access server's host, or an AAA server's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuestHost {
    /// Asks.
    Nas,
    /// Answers.
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

    /// Its address on a link, from 1.
    #[must_use]
    pub fn address(self, link: u32) -> String {
        format!("10.99.{link}.{}", self as u32 + 1)
    }
}

/// What is looked at when a test hangs: programs and where in the kernel they wait, logs, and the hosts' connections and SAs.
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

/// Two hosts, joined by two links, and a folder of files.
#[derive(Debug)]
pub struct GuestTestNetwork {
    folder: PathBuf,
    /// Its end tells the thread that watches that the test has not hung.
    _watched: Sender<()>,
}

/// Ends everything when nobody has ended the test in time.
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
    /// A world whose links do this.
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

    /// Has both links do this from now on.
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

    /// The folder in which programs run.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.folder
    }

    /// Writes a file that only its owner reads.
    pub fn write_file(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Runs a program of a host to its end and gives what it printed.
    #[track_caller]
    pub fn run_on(&self, host: GuestHost, words: &[&str]) -> String {
        run_program(&self.folder, &[&["ip", "netns", "exec", host.name()], words].concat())
    }

    /// Starts a program on a host, its output in `NAME.log`, and waits until that has `ready` in it.
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

    /// Writes `ca.pem`, an authority, and `NAME.pem` and `NAME.key` of a host below it.
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
    /// What it has printed.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until it has printed this.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |log| log.contains(text));
    }

    /// Waits until what it has printed fulfils this.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, fulfilled: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        while !fulfilled(&self.log()) {
            if let Some(status) = self.child.try_wait().unwrap() {
                // What it printed last may have come after the look.
                if fulfilled(&self.log()) {
                    return;
                }
                panic!("it ended ({status}) without saying {what:?}:\n{}", self.log());
            }
            assert!(begun.elapsed() < PROGRAM_TIMEOUT, "it never said {what:?}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills it, so that it cleans nothing up.
    #[track_caller]
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end (SIGTERM) and gives its exit code.
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
        // One that has ended cannot be ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
    }
}

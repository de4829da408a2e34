//! A namespace with charon in it, and a folder for its files.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const CHARON: &str = "/usr/lib/ipsec/charon";
const PLUGINS: &str = "random nonce openssl aes sha1 sha2 md5 hmac kdf gcm chapoly pem pkcs1 pkcs8 x509 revocation constraints pubkey curve25519 gmp \
                       kernel-libipsec kernel-netlink socket-default vici eap-identity eap-md5 eap-mschapv2 eap-tls";

/// The longest start of charon on a busy machine.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(120);

/// Removed on drop.
pub(crate) struct CharonNamespace {
    name: String,
    folder: PathBuf,
    charon: Child,
}

#[track_caller]
fn run_ip(arguments: &[&str]) {
    let done = Command::new("ip").args(arguments).status().expect("ip is installed: scripts/setup test");
    assert!(done.success(), "ip {arguments:?}: this needs root");
}

impl CharonNamespace {
    #[track_caller]
    pub(crate) fn new(connections: &str) -> Self {
        Self::with_files(connections, &[])
    }
    /// Creates it with these files in its folder, such as `x509/gw.der`.
    #[track_caller]
    pub(crate) fn with_files(connections: &str, files: &[(&str, &[u8])]) -> Self {
        Self::with_settings(connections, files, "")
    }
    /// Creates it with additional settings of strongswan.conf, such as `make_before_break = yes`.
    #[track_caller]
    pub(crate) fn with_settings(connections: &str, files: &[(&str, &[u8])], more: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("usher-ike-{}-{n}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        fs::create_dir_all(folder.join("run")).expect("a folder can be made");
        let path = |file: &str| folder.join(file).display().to_string();
        let settings = format!(
            "charon {{\n load = {PLUGINS}\n install_routes = no\n port = 500\n port_nat_t = 4500\n {more}\n \
             filelog {{ log {{ path = {}\n default = 1\n flush_line = yes }} }}\n plugins {{ vici {{ socket = unix://{} }} }}\n}}\n",
            path("log"),
            path("vici")
        );
        fs::write(folder.join("strongswan.conf"), settings).expect("a file can be written");
        fs::write(folder.join("swanctl.conf"), connections).expect("a file can be written");
        for (file, octets) in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder can be made");
            fs::write(path, octets).expect("a file can be written");
        }
        run_ip(&["netns", "add", &name]);
        run_ip(&["-n", &name, "link", "set", "lo", "up"]);
        // An address of the protected traffic, without which charon installs nothing.
        run_ip(&["-n", &name, "addr", "add", "10.2.0.1/32", "dev", "lo"]);
        // charon's pid file and sockets are below /run, which is its own here.
        let script = format!("mount --bind {} /run && exec {CHARON}", path("run"));
        let charon = Command::new("ip")
            .args(["netns", "exec", &name, "sh", "-c", &script])
            .env("STRONGSWAN_CONF", path("strongswan.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("ip can be run");
        let place = Self { name, folder, charon };
        let begun = Instant::now();
        while UnixStream::connect(place.folder.join("vici")).is_err() {
            assert!(begun.elapsed() < STARTUP_TIMEOUT, "charon does not come up:\n{}", place.charon_log());
            std::thread::sleep(Duration::from_millis(20));
        }
        let file = place.folder.join("swanctl.conf").display().to_string();
        let loaded = place.run_swanctl(&["--load-all", "--file", &file]);
        assert!(loaded.contains("successfully loaded"), "{loaded}");
        place
    }
    /// The namespace's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
    /// charon's log.
    pub(crate) fn charon_log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
    /// Runs swanctl and returns its output.
    #[track_caller]
    pub(crate) fn run_swanctl(&self, arguments: &[&str]) -> String {
        self.start_swanctl(arguments).wait_for_output()
    }
    /// Starts a swanctl command that takes its time.
    #[track_caller]
    pub(crate) fn start_swanctl(&self, arguments: &[&str]) -> RunningSwanctl {
        let socket = format!("unix://{}", self.folder.join("vici").display());
        let mut command = Command::new("swanctl");
        command
            .args(arguments)
            .args(["--uri", &socket])
            .env("STRONGSWAN_CONF", self.folder.join("strongswan.conf"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        RunningSwanctl(command.spawn().expect("swanctl is installed: scripts/setup test"))
    }
}

/// A running swanctl command.
pub(crate) struct RunningSwanctl(Child);

impl RunningSwanctl {
    /// Returns its output.
    pub(crate) fn wait_for_output(self) -> String {
        let done = self.0.wait_with_output().expect("swanctl ends");
        [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
    }
}

impl Drop for CharonNamespace {
    fn drop(&mut self) {
        // `ip` has become `sh`, and `sh` has become charon.
        let _ = self.charon.kill();
        let _ = self.charon.wait();
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

//! Packets through CHILD_SAs of `usher ike`, with strongSwan's charon (kernel-libipsec, ESP in user space) and with
//! ours. A cable joins two network namespaces. Each has a network that the other reaches only through the tunnel. The
//! test counts packets in and out.

mod charon;
mod messages;
mod ours;
mod outside;
mod traffic;

use crate::charon::CharonNamespace;
use crate::place::{RunningProgram, TEST_TIMEOUT, TempDir, USHER, find_program};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Namespaces `a` and `b` with addresses 192.0.2.1 and 192.0.2.2, 2001:db8::1 and 2001:db8::2 on `eth0`.
struct TunnelTestNetwork {
    /// Removed before charon's namespace, which charon removes.
    own: Vec<String>,
    a: String,
    b: String,
}

#[track_caller]
fn run_ip(arguments: &str) {
    let done = find_program("ip").args(arguments.split(' ')).status().unwrap();
    assert!(done.success(), "ip {arguments}: this needs root");
}

/// The same for commands that may fail.
fn try_ip(arguments: &str) -> bool {
    find_program("ip").args(arguments.split(' ')).output().unwrap().status.success()
}

fn add_namespace(end: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("usher-tun-{}-{}-{end}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    run_ip(&format!("netns add {name}"));
    run_ip(&format!("-n {name} link set lo up"));
    name
}

impl TunnelTestNetwork {
    /// Creates two namespaces.
    #[track_caller]
    fn new() -> Self {
        let (a, b) = (add_namespace("a"), add_namespace("b"));
        let cable = Self { own: vec![a.clone(), b.clone()], a, b };
        cable.lay_cable();
        cable
    }
    /// Creates one namespace, with charon's as `b`.
    #[track_caller]
    fn with_charon(charon: &CharonNamespace) -> Self {
        let a = add_namespace("a");
        let cable = Self { own: vec![a.clone()], a, b: charon.name().to_owned() };
        cable.lay_cable();
        cable
    }
    fn lay_cable(&self) {
        let (a, b) = (&self.a, &self.b);
        run_ip(&format!("-n {a} link add eth0 type veth peer name eth0 netns {b}"));
        for (n, name) in (1..).zip([a, b]) {
            run_ip(&format!("-n {name} addr add 192.0.2.{n}/24 dev eth0"));
            run_ip(&format!("-n {name} addr add 2001:db8::{n}/64 dev eth0 nodad"));
            run_ip(&format!("-n {name} link set eth0 up"));
        }
        for (n, name) in (1..).zip([a, b]) {
            until_in_use(name, &format!("2001:db8::{n}"));
        }
    }
    /// Returns a command in one of them.
    fn program_in(&self, space: &str, name: &str) -> Command {
        let mut command = find_program("ip");
        command.args(["netns", "exec", space, name]);
        command
    }
    /// Starts `usher ike` in one of them with a new file.
    #[track_caller]
    fn start_usher(
        &self,
        place: &TempDir,
        space: &str,
        name: &str,
        words: &[&str],
        text: &str,
    ) -> RunningProgram {
        let file = format!("{name}.toml");
        place.write_private(
            &file,
            &format!("esp_key_log = \"{name}.esp_sa\"\nkey_log = \"{name}.ikev2\"\n[listen]\ncontrol = \"{name}.sock\"\n{text}"),
        );
        let mut command = self.program_in(space, USHER);
        command.args(["ike"]).args(words).args(["--config", &file]);
        place.start_program(name, &mut command, "started")
    }
}

impl Drop for TunnelTestNetwork {
    fn drop(&mut self) {
        for name in &self.own {
            let _ = find_program("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Queries a running gateway by its file.
#[track_caller]
fn query_gateway(place: &TempDir, name: &str, words: &[&str]) -> String {
    let mut command = find_program(USHER);
    command.args(["ike"]).args(words).args(["--config", &format!("{name}.toml")]).current_dir(place.path(""));
    let done = command.output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Returns its status as JSON.
#[track_caller]
fn gateway_status(place: &TempDir, name: &str) -> serde_json::Value {
    serde_json::from_str(&query_gateway(place, name, &["status", "--json"])).unwrap()
}

/// Waits until an IPv6 address is in use. Packets sent earlier are lost.
#[track_caller]
fn until_in_use(name: &str, address: &str) {
    wait_until("the address is in use", || {
        let said = find_program("ip").args(["-n", name, "route", "get", address]).output();
        said.expect("ip is there").stdout.starts_with(b"local ")
    });
}

#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the common part of a connection with a shared key.
fn psk_connection(local: &str, remote: &str) -> String {
    format!(
        "[[connection]]\nname = \"site\"\nlocal_id = \"{local}\"\nremote_id = \"{remote}\"\nlocal_auth = \"psk\"\n\
         remote_auth = \"psk\"\nsecret = \"a shared secret\"\n"
    )
}

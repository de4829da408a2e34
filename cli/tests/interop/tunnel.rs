//! Packets through CHILD_SAs of `usher ike`: with strongSwan's charon at the other end, which has ESP in user space
//! (kernel-libipsec), and with ours. Two network namespaces with a cable between them, each with a network behind it that the
//! other reaches through the tunnel alone. What goes in is counted, and so is what comes out.

mod charon;
mod messages;
mod ours;
mod outside;
mod traffic;

use crate::charon::Place;
use crate::place::{Folder, PATIENCE, Running, USHER, program};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Namespaces `a` and `b` with addresses 192.0.2.1 and 192.0.2.2, 2001:db8::1 and 2001:db8::2 on `eth0`.
struct Cable {
    /// They go before charon's, which is charon's to remove.
    own: Vec<String>,
    a: String,
    b: String,
}

#[track_caller]
fn ip(arguments: &str) {
    let done = program("ip").args(arguments.split(' ')).status().unwrap();
    assert!(done.success(), "ip {arguments}: this needs root");
}

/// The same where it may be done already, or not be possible any more.
fn try_ip(arguments: &str) -> bool {
    program("ip").args(arguments.split(' ')).output().unwrap().status.success()
}

fn namespace(end: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("usher-tun-{}-{}-{end}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    ip(&format!("netns add {name}"));
    ip(&format!("-n {name} link set lo up"));
    name
}

impl Cable {
    /// Two of our own.
    #[track_caller]
    fn new() -> Self {
        let (a, b) = (namespace("a"), namespace("b"));
        let cable = Self { own: vec![a.clone(), b.clone()], a, b };
        cable.lay();
        cable
    }
    /// One of our own, and charon's as `b`.
    #[track_caller]
    fn to(charon: &Place) -> Self {
        let a = namespace("a");
        let cable = Self { own: vec![a.clone()], a, b: charon.name().to_owned() };
        cable.lay();
        cable
    }
    fn lay(&self) {
        let (a, b) = (&self.a, &self.b);
        ip(&format!("-n {a} link add eth0 type veth peer name eth0 netns {b}"));
        for (n, name) in (1..).zip([a, b]) {
            ip(&format!("-n {name} addr add 192.0.2.{n}/24 dev eth0"));
            ip(&format!("-n {name} addr add 2001:db8::{n}/64 dev eth0 nodad"));
            ip(&format!("-n {name} link set eth0 up"));
        }
        for (n, name) in (1..).zip([a, b]) {
            until_in_use(name, &format!("2001:db8::{n}"));
        }
    }
    /// A program in one of them.
    fn command(&self, space: &str, name: &str) -> Command {
        let mut command = program("ip");
        command.args(["netns", "exec", space, name]);
        command
    }
    /// `usher ike` in one of them, by a file that is written.
    #[track_caller]
    fn usher(&self, place: &Folder, space: &str, name: &str, words: &[&str], text: &str) -> Running {
        let file = format!("{name}.toml");
        place.write(
            &file,
            &format!("esp_key_log = \"{name}.esp_sa\"\nkey_log = \"{name}.ikev2\"\n[listen]\ncontrol = \"{name}.sock\"\n{text}"),
        );
        let mut command = self.command(space, USHER);
        command.args(["ike"]).args(words).args(["--config", &file]);
        place.start(name, &mut command, "started")
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in &self.own {
            let _ = program("ip").args(["netns", "del", name]).status();
        }
    }
}

/// What a gateway that runs by a file says when it is asked.
#[track_caller]
fn ask(place: &Folder, name: &str, words: &[&str]) -> String {
    let mut command = program(USHER);
    command.args(["ike"]).args(words).args(["--config", &format!("{name}.toml")]).current_dir(place.path(""));
    let done = command.output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// The same as JSON.
#[track_caller]
fn status(place: &Folder, name: &str) -> serde_json::Value {
    serde_json::from_str(&ask(place, name, &["status", "--json"])).unwrap()
}

/// The kernel has an IPv6 address in use some time after it was given: what is sent to it before is lost.
#[track_caller]
fn until_in_use(name: &str, address: &str) {
    eventually("the address is in use", || {
        let said = program("ip").args(["-n", name, "route", "get", address]).output();
        said.expect("ip is there").stdout.starts_with(b"local ")
    });
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A connection by a shared key: what both sides have in common.
fn psk(local: &str, remote: &str) -> String {
    format!(
        "[[connection]]\nname = \"site\"\nlocal_id = \"{local}\"\nremote_id = \"{remote}\"\nlocal_auth = \"psk\"\n\
         remote_auth = \"psk\"\nsecret = \"a shared secret\"\n"
    )
}

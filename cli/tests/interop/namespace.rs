//! Network namespaces: a separate network for a test, with all ports free. They need root.

use crate::place::{RunningProgram, TempDir, USHER, find_program, run_program};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A second loopback address in each namespace.
pub(crate) const ADDRESS: &str = "10.99.0.1";

/// A namespace with loopback up, removed when dropped. Its programs must end first.
pub(crate) struct NetworkNamespace(String);

impl NetworkNamespace {
    #[track_caller]
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("usher-interop-{}-{n}", std::process::id());
        run_ip(&["netns", "add", &name]);
        let space = Self(name);
        space.run_ip(&["link", "set", "lo", "up"]);
        space.run_ip(&["addr", "add", ADDRESS, "dev", "lo"]);
        space
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// Runs `ip` on this namespace's network.
    #[track_caller]
    pub(crate) fn run_ip(&self, arguments: &[&str]) {
        run_ip(&[&["-n", &self.0], arguments].concat());
    }

    /// Returns a command that runs in it.
    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = find_program("ip");
        command.args(["netns", "exec", &self.0, name]);
        command
    }

    /// Runs a program in it to its end and returns its success and output.
    #[track_caller]
    pub(crate) fn run_program(
        &self,
        place: &TempDir,
        name: &str,
        arguments: &[&str],
        input: &str,
    ) -> (bool, String) {
        let words = [&["netns", "exec", &self.0, name], arguments].concat();
        run_program(&place.path(""), "ip", &words, input)
    }

    /// Starts our server in it.
    #[track_caller]
    pub(crate) fn start_server(&self, place: &TempDir, configuration: &str) -> RunningProgram {
        place.write_private("aaa.toml", configuration);
        let mut command = self.command(USHER);
        command.args(["aaa", "serve", "--config", "aaa.toml"]);
        place.start_program("usher", &mut command, "started")
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        let done = find_program("ip").args(["netns", "del", &self.0]).status();
        if !std::thread::panicking() {
            assert!(done.unwrap().success(), "{} is not removed", self.0);
        }
    }
}

#[track_caller]
fn run_ip(arguments: &[&str]) {
    let (right, said) = run_program(std::path::Path::new("/"), "ip", arguments, "");
    assert!(right, "ip {}: {said}; root may do it", arguments.join(" "));
}

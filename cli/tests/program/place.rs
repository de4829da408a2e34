//! Common parts of the program's tests.

pub(crate) use crate::own::{
    TEST_TIMEOUT, bound_command, own_address, own_port, own_socket, wait_or_fail, wait_until,
};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// The program.
pub(crate) const USHER: &str = env!("CARGO_BIN_EXE_usher");

/// The folder of a test, in which the program runs. Removed when dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("usher-cli-{}-{n}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // A killed test of a process with this id left it.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Returns the command of the program with these arguments.
    pub(crate) fn usher_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(USHER);
        command.args(arguments).current_dir(&self.0);
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run_usher(&self, arguments: &[&str]) -> ProgramOutput {
        ProgramOutput::from_output(self.usher_command(arguments).output().unwrap())
    }

    /// Runs a line in a shell in which `usher` is the program.
    pub(crate) fn run_shell(&self, line: &str) -> ProgramOutput {
        let folder = Path::new(USHER).parent().unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
        ProgramOutput::from_output(
            Command::new("bash").args(["-c", line]).env("PATH", path).current_dir(&self.0).output().unwrap(),
        )
    }

    /// Returns the rows of a run as CSV and as Parquet.
    pub(crate) fn result_files(&self, folder: &str) -> [Vec<u8>; 2] {
        ["results.csv", "results.parquet"].map(|name| std::fs::read(self.path(folder).join(name)).unwrap())
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// The output of a finished program.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl ProgramOutput {
    pub(crate) fn from_output(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Checks the exit code and returns the output.
    #[track_caller]
    pub(crate) fn with_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Returns the standard output as JSON.
    pub(crate) fn stdout_json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// A small study: four points, a few milliseconds each.
pub(crate) const STUDY: &str = r#"
title = "A small study"
question = "What does loss cost a dialogue?"

[run]
duration = "20 s"
drain = "20 s"

[run.replications]
min = 3
max = 12
precision = "2 %"

[hosts.client]
[hosts.server]

[links.line]
between = ["client", "server"]
rate = "1 Mb/s"
delay = "5 ms"
loss = "0 %"

[workload]
kind = "dialogue"
clients = "client"
server = "server"
transport = "tcp"
rounds = [{ request = "200 B", answer = "300 B" }]
arrivals = { kind = "poisson", rate = "50 /s" }

[[axes]]
name = "loss"
set = "links.line.loss"
values = ["0 %", "5 %"]
quick = ["0 %"]

[[axes]]
name = "protocol"
[axes.cases."TCP, plain"]
"workload.transport" = "tcp"
[axes.cases.UDP]
"workload.transport" = "udp"

[[figures]]
name = "delay"
title = "Delay by loss"
x = "loss"
y = "delay.mean"
series = ["protocol"]
"#;

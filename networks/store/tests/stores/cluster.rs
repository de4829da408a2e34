//! A PostgreSQL server of the tests' own, in a folder of its own, at a Unix socket and, where it is asked to, by TCP.

use crate::folder::Folder;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// A server; it ends with this value.
#[derive(Debug)]
pub(crate) struct Cluster {
    folder: Folder,
    programs: PathBuf,
    databases: AtomicU32,
    /// The TCP port, which the Unix socket's name has, too.
    pub(crate) port: u16,
    /// Where it listens by TCP.
    listens: &'static str,
    /// Options that it is started with.
    pub(crate) settings: Mutex<String>,
}

/// Debian keeps these programs out of the search path, one folder for each version.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders =
        versions.map(|version| version.path().join("bin")).filter(|bin| bin.join("initdb").exists());
    folders.max().expect("no PostgreSQL server in /usr/lib/postgresql: install Debian's package postgresql")
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self::with(5432, "")
    }

    /// One with a TCP port, that listens by TCP there, too.
    pub(crate) fn with(port: u16, listens: &'static str) -> Self {
        let cluster = Self {
            folder: Folder::new(),
            programs: programs(),
            databases: AtomicU32::new(0),
            port,
            listens,
            settings: Mutex::default(),
        };
        if is_root() {
            // The server refuses to run as root; Debian's package brings a user for it.
            done(Command::new("chown").arg("postgres").arg(cluster.folder.path()));
        }
        let data = cluster.data();
        done(
            cluster
                .program("initdb")
                .args(["-U", "usher", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-D"])
                .arg(&data),
        );
        cluster.start();
        cluster
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// One of PostgreSQL's programs, as the user that may run it.
    pub(crate) fn program(&self, name: &str) -> Command {
        let path = self.programs.join(name);
        let mut command = Command::new(if is_root() { "runuser".into() } else { path.clone() });
        if is_root() {
            command.args(["-u", "postgres", "--"]).arg(path);
        }
        command.current_dir(self.folder.path());
        command
    }

    pub(crate) fn start(&self) {
        let (port, listens) = (self.port, self.listens);
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let options = format!(
            "-c listen_addresses='{listens}' -c port={port} -c unix_socket_directories='{}' {settings}",
            self.folder.path().display()
        );
        let log = self.folder.path().join("log");
        done(
            self.program("pg_ctl")
                .args(["-w", "-s", "-o", &options, "-D"])
                .arg(self.data())
                .arg("-l")
                .arg(log)
                .arg("start"),
        );
    }

    /// Ends the server: `fast` in an orderly way, `immediate` as a crash would.
    pub(crate) fn stop(&self, mode: &str) {
        done(self.program("pg_ctl").args(["-w", "-s", "-m", mode, "-D"]).arg(self.data()).arg("stop"));
    }

    /// The URL of a database, for a role.
    pub(crate) fn url(&self, role: &str, database: &str) -> String {
        format!("host={} port={} user={role} dbname={database}", self.folder.path().display(), self.port)
    }

    /// A new, empty database; its name.
    pub(crate) fn database(&self) -> String {
        let name = format!("d{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        name
    }

    /// Runs statements as the superuser; what they answer, unaligned.
    pub(crate) fn sql(&self, database: &str, text: &str) -> String {
        let mut command = self.program("psql");
        command.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "usher",
            "-d",
            database,
            "-c",
            text,
            "-p",
            &self.port.to_string(),
            "-h",
        ]);
        let answer = command.arg(self.folder.path()).output().expect("psql runs");
        assert!(answer.status.success(), "{text}: {}", String::from_utf8_lossy(&answer.stderr));
        String::from_utf8_lossy(&answer.stdout).trim().to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may have been stopped already.
        let mut stop = self.program("pg_ctl");
        stop.args(["-w", "-s", "-m", "immediate", "-D"]).arg(self.data()).arg("stop");
        let _stopped = stop.stderr(Stdio::null()).status();
    }
}

pub(crate) fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("this process is there")) == 0
}

pub(crate) fn done(command: &mut Command) {
    // A server that is started keeps what it is given, so its output goes to its log.
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) => assert!(status.success(), "{command:?}: {status}"),
        Err(error) => panic!("{command:?}: {error}"),
    }
}

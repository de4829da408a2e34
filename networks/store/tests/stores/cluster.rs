//! A PostgreSQL server for tests, in a folder of its own, on a Unix socket and optionally on TCP.

use crate::folder::StoreTempDir;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// A server. Dropping it stops the server.
#[derive(Debug)]
pub(crate) struct PostgresCluster {
    folder: StoreTempDir,
    programs: PathBuf,
    databases: AtomicU32,
    /// The TCP port, which is also part of the Unix socket's name.
    pub(crate) port: u16,
    /// The TCP address that it listens on.
    listens: Option<Ipv4Addr>,
    /// The options of its next start.
    pub(crate) settings: Mutex<String>,
}

/// Debian keeps these programs outside the search path, one folder per version.
fn find_programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders =
        versions.map(|version| version.path().join("bin")).filter(|bin| bin.join("initdb").exists());
    folders.max().expect("no PostgreSQL server in /usr/lib/postgresql: install Debian's package postgresql")
}

impl PostgresCluster {
    pub(crate) fn new() -> Self {
        Self::with_port(5432, None)
    }

    /// Creates a server with a port, optionally listening on TCP.
    pub(crate) fn with_port(port: u16, listens: Option<Ipv4Addr>) -> Self {
        let cluster = Self {
            folder: StoreTempDir::new(),
            programs: find_programs(),
            databases: AtomicU32::new(0),
            port,
            listens,
            settings: Mutex::default(),
        };
        if is_root() {
            // The server refuses to run as root. Debian's package has a user for it.
            run_checked(Command::new("chown").arg("postgres").arg(cluster.folder.path()));
        }
        cluster.fill_data();
        cluster.start();
        cluster
    }

    /// Fills in the data of an empty server. The first test creates them, which takes a second, and the others copy
    /// them.
    fn fill_data(&self) {
        let version = self.programs.parent().and_then(Path::file_name).unwrap_or_default().display();
        let user = if is_root() { "root" } else { "user" };
        // Cargo gives tests a temporary folder, but not examples, which include this file too.
        let folder = option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let kept = folder.join(format!("postgresql-{version}-{user}"));
        fs::create_dir_all(folder).expect("a folder can be made");
        let lock = File::create(kept.with_extension("lock")).expect("a file can be made");
        lock.lock().expect("a file can be locked");
        let copy = |from: &Path, to: &Path| run_checked(Command::new("cp").arg("-a").args([from, to]));
        if kept.exists() {
            drop(lock);
            return copy(&kept, &self.data_folder());
        }
        let words = ["-U", "usher", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "-D"];
        run_checked(self.program_command("initdb").args(words).arg(self.data_folder()));
        // Rename at the end, so that a killed process leaves no partial copy.
        let whole = kept.with_extension("new");
        let _ = fs::remove_dir_all(&whole);
        copy(&self.data_folder(), &whole);
        fs::rename(&whole, &kept).expect("a folder can be renamed");
    }

    pub(crate) fn data_folder(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Returns a command for one of PostgreSQL's programs, with the user that may run it.
    pub(crate) fn program_command(&self, name: &str) -> Command {
        let path = self.programs.join(name);
        let mut command = Command::new(if is_root() { "runuser".into() } else { path.clone() });
        if is_root() {
            command.args(["-u", "postgres", "--"]).arg(path);
        }
        // On a busy machine the server needs seconds to start and stop.
        command.current_dir(self.folder.path()).env("PGCTLTIMEOUT", "300");
        command
    }

    pub(crate) fn start(&self) {
        let (port, listens) =
            (self.port, self.listens.map(|address| address.to_string()).unwrap_or_default());
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // No fsync: written data survive unless the machine crashes, which no test provokes.
        let options = format!(
            "-c fsync=off -c shared_buffers=16MB -c listen_addresses='{listens}' -c port={port} \
             -c unix_socket_directories='{}' {settings}",
            self.folder.path().display()
        );
        let log = self.folder.path().join("log");
        run_checked(
            self.program_command("pg_ctl")
                .args(["-w", "-s", "-o", &options, "-D"])
                .arg(self.data_folder())
                .arg("-l")
                .arg(log)
                .arg("start"),
        );
    }

    /// Stops the server: `fast` is orderly, `immediate` is like a crash.
    pub(crate) fn stop_server(&self, mode: &str) {
        run_checked(
            self.program_command("pg_ctl")
                .args(["-w", "-s", "-m", mode, "-D"])
                .arg(self.data_folder())
                .arg("stop"),
        );
    }

    /// Returns the URL of a database for a role.
    pub(crate) fn database_url(&self, role: &str, database: &str) -> String {
        format!("host={} port={} user={role} dbname={database}", self.folder.path().display(), self.port)
    }

    /// Creates an empty database and returns its name.
    pub(crate) fn create_database(&self) -> String {
        let name = format!("d{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.run_sql("postgres", &format!("CREATE DATABASE {name}"));
        name
    }

    /// Returns a superuser's psql command.
    pub(crate) fn psql_command(&self, database: &str) -> Command {
        let mut command = self.program_command("psql");
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "usher", "-d", database]);
        command.args(["-p", &self.port.to_string(), "-h"]).arg(self.folder.path());
        command
    }

    /// Runs statements as the superuser. Returns the unaligned output.
    pub(crate) fn run_sql(&self, database: &str, text: &str) -> String {
        let answer = self.psql_command(database).args(["-c", text]).output().expect("psql runs");
        assert!(answer.status.success(), "{text}: {}", String::from_utf8_lossy(&answer.stderr));
        String::from_utf8_lossy(&answer.stdout).trim().to_owned()
    }
}

impl Drop for PostgresCluster {
    fn drop(&mut self) {
        // It may have been stopped already.
        let mut stop = self.program_command("pg_ctl");
        stop.args(["-w", "-s", "-m", "immediate", "-D"]).arg(self.data_folder()).arg("stop");
        let _stopped = stop.stderr(Stdio::null()).status();
    }
}

pub(crate) fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("this process is there")) == 0
}

pub(crate) fn run_checked(command: &mut Command) {
    // A started server inherits the output, so it goes to the log.
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) => assert!(status.success(), "{command:?}: {status}"),
        Err(error) => panic!("{command:?}: {error}"),
    }
}

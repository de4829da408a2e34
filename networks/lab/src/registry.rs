//! The list of running labs, and the removal of remains. A lab's network has no name and ends with its process. Two
//! things can outlive a killed process: its entry in this list, and programs that it started on hosts.

use crate::error::{ErrorContext, LabError};
use crate::namespace::NetworkNamespace;
use crate::topology::LabTopology;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The environment variable that marks programs of a lab, so that they can be found after its end.
const MARK: &str = "USHER_LAB";

/// The list of a user's labs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabRegistry {
    folder: PathBuf,
}

/// The removed remains of labs that ended irregularly.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct RemovedStaleLabs {
    /// The names of labs whose process ended without removing its entry.
    pub labs: Vec<String>,
    /// Their programs that still ran: process id and name.
    pub programs: Vec<(i32, String)>,
}

impl RemovedStaleLabs {
    /// True if there were no remains.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labs.is_empty() && self.programs.is_empty()
    }
}

/// A running lab, as its process described it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct RunningLabInfo {
    /// Its process id.
    pub process: i32,
    /// Its name for people.
    pub name: String,
    /// Its hosts.
    pub hosts: Vec<LabHostInfo>,
    /// Its links: name, and the names of both hosts.
    pub links: Vec<(String, [String; 2])>,
}

/// A host of a running lab.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct LabHostInfo {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The descriptor of its namespace in the lab's process: `nsenter --net=/proc/PROCESS/fd/DESCRIPTOR` enters it.
    pub descriptor: i32,
}

/// A unique identity of a process: its PID namespace, its id, and its start in ticks since boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ProcessIdentity {
    space: u64,
    process: i32,
    start_time: u64,
}

impl ProcessIdentity {
    fn for_this_process() -> io::Result<Self> {
        let process = rustix::process::getpid().as_raw_nonzero().get();
        Ok(Self { space: pid_namespace()?, process, start_time: start_ticks(process)? })
    }

    /// Parses `SPACE-PROCESS-BEGAN`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '-');
        let (space, process, began) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            space: space.parse().ok()?,
            process: process.parse().ok()?,
            start_time: began.parse().ok()?,
        })
    }

    /// True if it is known to have ended. That is unknown for a process of another container.
    fn has_ended(self) -> bool {
        pid_namespace().is_ok_and(|space| space == self.space)
            && start_ticks(self.process)
                .map_or_else(|e| e.kind() == io::ErrorKind::NotFound, |b| b != self.start_time)
    }

    fn to_text(self) -> String {
        format!("{}-{}-{}", self.space, self.process, self.start_time)
    }
}

/// Returns the PID namespace of this process (pid_namespaces(7)).
fn pid_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// Returns field 22 of `/proc/PROCESS/stat` (proc_pid_stat(5)). The second field is a name in parentheses with
/// arbitrary characters.
fn start_ticks(process: i32) -> io::Result<u64> {
    // Reading the files of a process that ends meanwhile gives ESRCH. Treat it as a missing file.
    let gone = |error: io::Error| match error.raw_os_error() {
        Some(libc::ESRCH) => io::Error::from(io::ErrorKind::NotFound),
        _ => error,
    };
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).map_err(gone)?;
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    // A zombie counts as a process that has ended.
    let there = fields.first().is_some_and(|state| !matches!(*state, "Z" | "X"));
    let began = fields.get(19).filter(|_| there).and_then(|began| began.parse().ok());
    began.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

impl LabRegistry {
    /// Opens the user's list: `/run/usher/lab` for root, otherwise a folder in `$XDG_RUNTIME_DIR` or the temporary
    /// folder.
    ///
    /// # Errors
    /// [`LabError::Kernel`] if the folder cannot be created.
    pub fn of_user() -> Result<Self, LabError> {
        if let Ok(registry) = Self::open_at(Path::new("/run/usher/lab")) {
            return Ok(registry);
        }
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
        if let Some(runtime) = runtime
            && let Ok(registry) = Self::open_at(&Path::new(&runtime).join("usher/lab"))
        {
            return Ok(registry);
        }
        Self::open_at(&std::env::temp_dir().join(format!("usher-lab-{}", outer_user_id())))
    }

    /// Opens the list in a folder, which it creates if missing, and which must belong to the user.
    ///
    /// # Errors
    /// [`LabError::Kernel`].
    pub fn open_at(folder: &Path) -> Result<Self, LabError> {
        let make = || {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
            let owner = fs::symlink_metadata(folder)?;
            let own = owner.is_dir() && owner.uid() == rustix::process::geteuid().as_raw();
            if own && rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok() {
                return Ok(());
            }
            Err(io::Error::from(io::ErrorKind::PermissionDenied))
        };
        let made: io::Result<()> = make();
        made.with_context(|| format!("keep a list of labs in {}", folder.display()))?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Returns the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds a lab of this process.
    pub(crate) fn record_lab(
        &self,
        topology: &LabTopology,
        hosts: &[NetworkNamespace],
    ) -> Result<LabRegistryEntry, LabError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let owner = ProcessIdentity::for_this_process().with_context(|| "read /proc/self/stat".to_owned())?;
        let name = |host: usize| topology.hosts[host].name.clone();
        let listed = RunningLabInfo {
            process: owner.process,
            name: topology.name.clone(),
            hosts: topology
                .hosts
                .iter()
                .zip(hosts)
                .map(|(host, namespace)| LabHostInfo {
                    name: host.name.clone(),
                    addresses: host.addresses.clone(),
                    descriptor: namespace.descriptor(),
                })
                .collect(),
            links: topology
                .links
                .iter()
                .map(|l| (l.name.clone(), l.ends.map(|end| name(end.host))))
                .collect(),
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = self.folder.join(format!("{}-{number}.json", owner.to_text()));
        let text = serde_json::to_string(&listed).map_err(io::Error::other);
        text.and_then(|text| fs::write(&file, text)).with_context(|| format!("write {}", file.display()))?;
        Ok(LabRegistryEntry { file, owner })
    }

    /// Returns the entries and their processes.
    fn registry_entry_files(&self) -> Result<Vec<(PathBuf, ProcessIdentity)>, LabError> {
        let listed = fs::read_dir(&self.folder).with_context(|| format!("read {}", self.folder.display()))?;
        let owner = |path: &Path| {
            let name = path.file_name()?.to_str()?.strip_suffix(".json")?;
            ProcessIdentity::parse(name.rsplit_once('-')?.0)
        };
        let mut files: Vec<_> =
            listed.flatten().filter_map(|entry| Some((entry.path(), owner(&entry.path())?))).collect();
        files.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(files)
    }

    /// Returns the running labs.
    ///
    /// # Errors
    /// [`LabError::Kernel`].
    pub fn running_labs(&self) -> Result<Vec<RunningLabInfo>, LabError> {
        let read = |file: &Path| serde_json::from_str(&fs::read_to_string(file).ok()?).ok();
        let files = self.registry_entry_files()?;
        Ok(files.iter().filter(|(_, owner)| !owner.has_ended()).filter_map(|(file, _)| read(file)).collect())
    }

    /// Removes the remains of labs whose process has ended: their entries, and the programs that they started.
    ///
    /// # Errors
    /// [`LabError::Kernel`].
    pub fn remove_remains(&self) -> Result<RemovedStaleLabs, LabError> {
        let mut left = RemovedStaleLabs::default();
        for (file, owner) in self.registry_entry_files()? {
            if !owner.has_ended() {
                continue;
            }
            let listed: Option<RunningLabInfo> =
                fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok());
            match fs::remove_file(&file) {
                // Another lab that started at the same time has already removed the file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                removed => removed.with_context(|| format!("remove {}", file.display()))?,
            }
            left.labs.push(listed.map_or_else(|| format!("of process {}", owner.process), |l| l.name));
        }
        let processes = fs::read_dir("/proc").with_context(|| "read /proc".to_owned())?;
        for process in processes.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()) {
            if let Some(name) = kill_orphaned_program(process) {
                left.programs.push((process, name));
            }
        }
        Ok(left)
    }
}

/// Ends a program whose lab has ended. Returns its name, if it was one.
fn kill_orphaned_program(process: i32) -> Option<String> {
    check_orphaned(process)?;
    let held = pidfd_open(Pid::from_raw(process)?, PidfdFlags::empty()).ok()?;
    // Check again: with the descriptor open, the process id cannot be reused.
    check_orphaned(process)?;
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    pidfd_send_signal(&held, Signal::KILL).ok()?;
    Some(name.trim().to_owned())
}

fn check_orphaned(process: i32) -> Option<()> {
    let environment = fs::read(format!("/proc/{process}/environ")).ok()?;
    let marked = environment.split(|octet| *octet == 0).find_map(|variable| {
        let value = variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"=")?;
        ProcessIdentity::parse(std::str::from_utf8(value).ok()?)
    })?;
    marked.has_ended().then_some(())
}

/// Returns the user's id outside a user namespace of this process.
fn outer_user_id() -> u32 {
    let inner = rustix::process::geteuid().as_raw();
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let outer = map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map_while(|word| word.parse::<u32>().ok());
        let (within, without, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let place = inner.checked_sub(within).filter(|place| *place < count)?;
        without.checked_add(place)
    });
    outer.unwrap_or(inner)
}

/// A lab's entry, removed on drop.
#[derive(Debug)]
pub(crate) struct LabRegistryEntry {
    file: PathBuf,
    owner: ProcessIdentity,
}

impl LabRegistryEntry {
    /// Marks a program as started by this process.
    pub(crate) fn mark_lab_command(&self, command: &mut Command) {
        command.env(MARK, self.owner.to_text());
    }
}

impl Drop for LabRegistryEntry {
    fn drop(&mut self) {
        // If this fails, the next lab removes the file.
        let _ = fs::remove_file(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_more_than_its_number() {
        let this = ProcessIdentity::for_this_process().unwrap();
        assert_eq!(ProcessIdentity::parse(&this.to_text()), Some(this));
        assert!(!this.has_ended());
        assert!(
            ProcessIdentity { start_time: this.start_time + 1, ..this }.has_ended(),
            "its number is another's now"
        );
        assert!(
            !ProcessIdentity { space: this.space + 1, start_time: 1, ..this }.has_ended(),
            "it is of another container"
        );
        for text in ["", "1-2", "1-2-x", "a-1-2"] {
            assert_eq!(ProcessIdentity::parse(text), None, "{text}");
        }
        let mut child = Command::new("true").spawn().unwrap();
        let began = (0..1000).map_while(|_| start_ticks(child.id() as i32).ok()).last();
        child.wait().unwrap();
        let ended = ProcessIdentity {
            process: child.id() as i32,
            start_time: began.unwrap_or(this.start_time),
            ..this
        };
        assert!(ended.has_ended());
    }
}

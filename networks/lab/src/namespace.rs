//! Network namespaces without a name: each is held by an open file of this process and by the threads within it, and is gone
//! with them, however they end.

use crate::error::{ErrorContext, LabError};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// The file by which the calling thread's namespace can be opened; `/proc/self` would be that of the process's first thread.
const OF_THIS_THREAD: &str = "/proc/thread-self/ns/net";

/// A network namespace. Copies are the same one; it is there as long as one of them, or a thread or socket within it.
#[derive(Clone, Debug)]
pub struct NetworkNamespace {
    file: Arc<File>,
}

impl NetworkNamespace {
    /// Moves the calling thread into a new, empty one.
    pub(crate) fn unshare() -> io::Result<Self> {
        unshare(CloneFlags::CLONE_NEWNET)?;
        Self::current()
    }

    /// The one that the calling thread is in.
    ///
    /// # Errors
    /// What the system says.
    pub fn current() -> io::Result<Self> {
        Ok(Self { file: Arc::new(File::open(OF_THIS_THREAD)?) })
    }

    /// Moves the calling thread into this namespace for good: sockets that it opens and threads and processes that it starts
    /// are of this namespace. For threads that are a host's; the others take [`run`](Self::run_inside).
    ///
    /// # Errors
    /// What the system says: the thread needs the rights of [`acquire`](crate::acquire_rights).
    pub fn enter(&self) -> io::Result<()> {
        Ok(setns(&self.file, CloneFlags::CLONE_NEWNET)?)
    }

    /// Does something in this namespace, in a thread of its own, and waits for it: what it opens stays of this namespace.
    ///
    /// # Errors
    /// [`LabError::Kernel`] if the namespace cannot be entered, [`LabError::Ended`] if the work panics.
    pub fn run_inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        std::thread::scope(|scope| {
            let entered = || self.enter().map(|()| work());
            let thread = std::thread::Builder::new()
                .name("lab-setup".to_owned())
                .spawn_scoped(scope, entered)
                .with_context(|| "start a thread".to_owned())?;
            let done = thread.join().map_err(|_| LabError::Ended("thread in a namespace"))?;
            done.with_context(|| "enter a network namespace".to_owned())
        })
    }

    /// Its number, which is the same for all who are in it and for no other that is there at the time.
    ///
    /// # Errors
    /// What the system says.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.ino())
    }

    /// By which descriptor this process holds it: `nsenter --net=/proc/PID/fd/NUMBER` enters it.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Writes a setting of the calling thread's namespace, by its path below `/proc/sys/net`.
pub(crate) fn write_sysctl(path: &str, value: &str) -> Result<(), LabError> {
    let file = format!("/proc/sys/net/{path}");
    fs::write(&file, value).with_context(|| format!("write {value} to {file}"))
}

//! Network namespaces without a name. An open file of this process and the threads within hold a namespace, and it
//! ends with them.

use crate::error::{ErrorContext, LabError};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// The namespace file of the calling thread. `/proc/self` would be the process's first thread.
const OF_THIS_THREAD: &str = "/proc/thread-self/ns/net";

/// A network namespace. Copies refer to the same one. It exists as long as a copy, a thread or a socket within it.
#[derive(Clone, Debug)]
pub struct NetworkNamespace {
    file: Arc<File>,
}

impl NetworkNamespace {
    /// Moves the calling thread into a new, empty namespace.
    pub(crate) fn unshare() -> io::Result<Self> {
        unshare(CloneFlags::CLONE_NEWNET)?;
        Self::current()
    }

    /// Returns the calling thread's namespace.
    ///
    /// # Errors
    /// An error of the system.
    pub fn current() -> io::Result<Self> {
        Ok(Self { file: Arc::new(File::open(OF_THIS_THREAD)?) })
    }

    /// Moves the calling thread into this namespace for good, with its future sockets, threads and processes. This is
    /// for threads of one host; others use [`run_inside`](Self::run_inside).
    ///
    /// # Errors
    /// An error of the system: the thread needs the rights of [`acquire_rights`](crate::acquire_rights).
    pub fn enter(&self) -> io::Result<()> {
        Ok(setns(&self.file, CloneFlags::CLONE_NEWNET)?)
    }

    /// Runs `work` in this namespace, on a thread of its own, and waits for it. Sockets that it opens stay in this
    /// namespace.
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

    /// Returns its inode number, which identifies it among existing namespaces.
    ///
    /// # Errors
    /// An error of the system.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.ino())
    }

    /// Returns the descriptor by which this process holds it: `nsenter --net=/proc/PID/fd/NUMBER` enters it.
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

/// Writes a sysctl of the calling thread's namespace, by its path below `/proc/sys/net`.
pub(crate) fn write_sysctl(path: &str, value: &str) -> Result<(), LabError> {
    let file = format!("/proc/sys/net/{path}");
    fs::write(&file, value).with_context(|| format!("write {value} to {file}"))
}

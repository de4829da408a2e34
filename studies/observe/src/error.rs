//! Errors of the files of a run.

use std::io;
use std::path::{Path, PathBuf};

/// An error of reading or writing a run's file. Each message names the file, the cause and, if there is one, the
/// remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunFileError {
    /// The system reports an error: no space, no permission, no such folder.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action, as a verb: "write", "read", "create".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file's content violates its format.
    #[error("{}:{line}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The fault.
        reason: String,
    },
    /// The folder holds an unfinished run of another plan.
    #[error(
        "{} holds results of another plan ({found}, this one is {expected}): \
         choose another output folder, or delete the file to start afresh",
        path.display()
    )]
    PlanMismatch {
        /// The journal.
        path: PathBuf,
        /// The hash of the requested plan.
        expected: String,
        /// The hash in the journal's header.
        found: String,
    },
    /// The folder holds an unfinished run of an earlier version, which computed plan hashes differently.
    #[error(
        "{} is from an earlier version of usher, whose runs this version cannot continue: choose another output \
         folder, or delete the file to start afresh",
        path.display()
    )]
    VersionMismatch {
        /// The journal.
        path: PathBuf,
    },
    /// Another process is running in the same folder.
    #[error("{} is in use by another run: wait for it, or choose another output folder", path.display())]
    InUse {
        /// The journal.
        path: PathBuf,
    },
    /// An axis has the name of one of the fixed columns.
    #[error("axis '{0}' has the name of a fixed column (study, replication, metric, value): rename it")]
    ReservedAxis(String),
    /// The Parquet encoder's error.
    #[error("cannot encode the rows as Parquet: {0}")]
    Parquet(String),
}

impl RunFileError {
    pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// Creates an error for a line, from 1, with its fault.
    pub fn malformed_line(path: &Path, line: usize, reason: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), line, reason: reason.into() }
    }
}

//! Files that are written atomically.

use crate::RunFileError;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes a file through a temporary one in the same folder, which replaces `path` only when it is complete and on
/// disk. After an error the earlier file remains. Missing folders are created.
///
/// # Errors
/// [`RunFileError::Io`] with the path and the system's reason (no space, no permission).
pub fn write_file(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), RunFileError> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(RunFileError::io_error("create", folder))?;
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".partial");
    let temporary = folder.join(name);
    let written = (|| {
        let mut out = BufWriter::new(File::create(&temporary)?);
        content(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&temporary, path)
    })();
    written.map_err(|source| {
        // An error is ignored: the first one is returned, and a leftover temporary file is harmless.
        let _ = fs::remove_file(&temporary);
        RunFileError::io_error("write", path)(source)
    })
}

/// Reads a whole text file.
///
/// # Errors
/// [`RunFileError::Io`], also for a file that is not UTF-8.
pub fn read_file(path: &Path) -> Result<String, RunFileError> {
    fs::read_to_string(path).map_err(RunFileError::io_error("read", path))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A test's own folder, removed at its end.
    pub(crate) struct TempDir(PathBuf);

    impl TempDir {
        pub(crate) fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("usher-observe-{}-{n}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
        pub(crate) fn file_path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_failed_write_keeps_the_earlier_file() {
        let folder = TempDir::new();
        let path = folder.file_path("results.csv");
        write_file(&path, |w| w.write_all(b"earlier")).unwrap();
        let full = write_file(&path, |w| {
            w.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        let text = full.unwrap_err().to_string();
        assert!(text.contains("results.csv") && text.contains("no storage space"), "{text}");
        assert_eq!(read_file(&path).unwrap(), "earlier");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_full_device_is_named() {
        let text = write_file(Path::new("/dev/full/x"), |_| Ok(())).unwrap_err().to_string();
        assert!(text.starts_with("cannot create /dev/full: "), "{text}");
    }

    #[test]
    fn folders_are_made_on_the_way() {
        let folder = TempDir::new();
        let path = folder.file_path("figures/delay.svg");
        write_file(&path, |w| w.write_all(b"<svg/>")).unwrap();
        assert_eq!(read_file(&path).unwrap(), "<svg/>");
    }
}

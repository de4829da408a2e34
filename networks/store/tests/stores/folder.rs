//! A folder for one test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new folder, gone with this value.
#[derive(Debug)]
pub(crate) struct StoreTempDir(PathBuf);

impl StoreTempDir {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("usher-store-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        // A process that had this number and was killed may have left one.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self(path)
    }
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for StoreTempDir {
    fn drop(&mut self) {
        // A folder that stays is no fault of what was tested.
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

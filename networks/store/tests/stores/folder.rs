//! A temporary folder for one test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new folder, removed on drop.
#[derive(Debug)]
pub(crate) struct StoreTempDir(PathBuf);

impl StoreTempDir {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("usher-store-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        // A killed process with the same id may have left one.
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
        // A folder that cannot be removed is no test failure.
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

//! Folders that a server creates at its start.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Creates a folder and its parents, accessible only to the owner, if absent.
///
/// # Errors
/// The folder cannot be created.
pub fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Checks that the folder exists or could be created. Creates none.
///
/// # Errors
/// The error with which [`create_private`] would fail.
pub fn check_private(path: &Path) -> io::Result<()> {
    match path.ancestors().find(|above| above.exists()) {
        // If a file of another kind has this name, the call fails and creates nothing.
        Some(above) if above == path || !above.is_dir() => create_private(path),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_check_ends_as_making_would_and_makes_nothing() {
        let folder = std::env::temp_dir().join(format!("usher-folders-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        create_private(&folder).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        check_private(&folder).unwrap();
        check_private(&folder.join("a/b")).unwrap();
        assert!(!folder.join("a").exists());
        check_private(Path::new("usher-no-such-folder")).unwrap();
        for wrong in ["file", "file/a", "file/a/b"] {
            let path = folder.join(wrong);
            assert_eq!(
                check_private(&path).unwrap_err().to_string(),
                create_private(&path).unwrap_err().to_string(),
                "{wrong}"
            );
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}

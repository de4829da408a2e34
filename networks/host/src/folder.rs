//! Folders that a server makes at its start.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes a folder with those above it, for its owner only, where there is none.
///
/// # Errors
/// It cannot be made.
pub fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Whether there is such a folder, or could be one; none is made.
///
/// # Errors
/// What [`make`] would end with.
pub fn check(path: &Path) -> io::Result<()> {
    match path.ancestors().find(|above| above.exists()) {
        // Another kind of file is there, or in the way: nothing is made.
        Some(above) if above == path || !above.is_dir() => make(path),
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
        make(&folder).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        check(&folder).unwrap();
        check(&folder.join("a/b")).unwrap();
        assert!(!folder.join("a").exists());
        check(Path::new("usher-no-such-folder")).unwrap();
        for wrong in ["file", "file/a", "file/a/b"] {
            let path = folder.join(wrong);
            assert_eq!(
                check(&path).unwrap_err().to_string(),
                make(&path).unwrap_err().to_string(),
                "{wrong}"
            );
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}

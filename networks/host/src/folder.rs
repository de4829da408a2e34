//! Folders that a server makes at its start.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes a folder with those above it, for its owner only, where there is none.
///
/// # Errors
/// It cannot be made.
pub fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Whether there is such a folder, or could be one; none is made.
///
/// # Errors
/// What [`create_private`] would end with.
pub fn check_private(path: &Path) -> io::Result<()> {
    match path.ancestors().find(|above| above.exists()) {
        // Another kind of file is there, or in the way: nothing is made.
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

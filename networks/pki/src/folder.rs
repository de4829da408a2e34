//! Folders in which root may write.
//!
//! The owner of a folder in a path can put a link in its place, and so make root read, replace or give away another
//! file. As root, an authority is therefore kept only where root alone can change the path.

use crate::PkiError;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The most links that a path may follow (Linux's own limit).
const MAX_LINKS: u32 = 40;
/// Mode bits: writable by the group, by others, and sticky.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Rejects a folder that is unsafe for root. Other users can use any folder. Missing parts of the path are skipped.
pub(crate) fn check_folder(folder: &Path) -> Result<(), PkiError> {
    if is_root().map_err(|cause| PkiError::File { path: folder.to_path_buf(), cause })? {
        check_folder_for_root(folder)
    } else {
        Ok(())
    }
}

/// True if the effective user is root (proc_pid_status(5)).
fn is_root() -> io::Result<bool> {
    let status = fs::read_to_string("/proc/self/status")?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    Ok(users.and_then(|users| users.split_whitespace().nth(1)) == Some("0"))
}

fn check_folder_for_root(folder: &Path) -> Result<(), PkiError> {
    let file = |path: &Path| {
        let path = path.to_path_buf();
        move |cause| PkiError::File { path, cause }
    };
    let refused = |path: &Path, why: String| {
        Err(PkiError::Foreign { folder: folder.to_path_buf(), path: path.to_path_buf(), why })
    };
    let absolute = std::path::absolute(folder).map_err(file(folder))?;
    let mut at = PathBuf::from("/");
    let mut rest = path_names(&absolute);
    let mut links = 0;
    loop {
        let metadata = fs::symlink_metadata(&at).map_err(file(&at))?;
        if let Some(why) = writable_by_others_reason(&metadata, rest.is_empty()) {
            return refused(&at, why);
        }
        let Some(name) = rest.pop() else { return Ok(()) };
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        let metadata = match fs::symlink_metadata(&next) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            metadata => metadata.map_err(file(&next))?,
        };
        if !metadata.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if metadata.uid() != 0 || links > MAX_LINKS {
            return refused(&next, format!("is a link of user {}", metadata.uid()));
        }
        let target = fs::read_link(&next).map_err(file(&next))?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        rest.extend(path_names(&target));
    }
}

/// Returns the names of a path, the last one first.
fn path_names(path: &Path) -> Vec<OsString> {
    let named = |c: Component<'_>| match c {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(named).collect()
}

/// Returns why users other than root can change a folder's entries, if they can. In a sticky folder such as /tmp they
/// can create files, but not replace root's. That is acceptable within the path, but not at its end.
fn writable_by_others_reason(metadata: &Metadata, last: bool) -> Option<String> {
    let mode = metadata.mode();
    let others = mode & OTHERS_WRITE != 0 || (mode & GROUP_WRITES != 0 && metadata.gid() != 0);
    if metadata.uid() != 0 {
        Some(format!("belongs to user {}", metadata.uid()))
    } else if others && (last || mode & STICKY == 0) {
        Some(format!("has mode {:04o}", mode & 0o7777))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    /// Creates a folder for one test, below a sticky one.
    fn test_folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("usher-folder-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("pki")).unwrap();
        folder
    }

    fn folder_check_error(folder: &Path) -> Option<String> {
        check_folder(folder).err().map(|e| e.to_string())
    }

    #[test]
    fn root_writes_only_on_paths_it_controls_and_others_anywhere() {
        let root = is_root().unwrap();
        let folder = test_folder("ways");
        let pki = folder.join("pki");
        assert_eq!(folder_check_error(&pki), None);
        assert_eq!(folder_check_error(&pki.join("not/there/yet")), None);
        symlink("pki", folder.join("link")).unwrap();
        symlink(folder.join("link"), folder.join("longer")).unwrap();
        assert_eq!(
            folder_check_error(&folder.join("longer")),
            None,
            "root's own links lead where root wants"
        );
        assert_eq!(folder_check_error(&pki.join("../link/../pki")), None);
        symlink("self", folder.join("self")).unwrap();
        assert_eq!(folder_check_error(&folder.join("self")).is_some(), root);
        for mode in [0o777, 0o1777, 0o702] {
            fs::set_permissions(&pki, Permissions::from_mode(mode)).unwrap();
            assert_eq!(folder_check_error(&pki).is_some(), root, "{mode:o}");
            let on_the_way = root && mode & STICKY == 0;
            assert_eq!(folder_check_error(&pki.join("below")).is_some(), on_the_way, "{mode:o}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn root_does_not_write_in_the_folder_of_a_service() {
        if !is_root().unwrap() {
            assert_eq!(folder_check_error(&std::env::temp_dir()), None, "it is the system that refuses");
            return;
        }
        let folder = test_folder("service");
        let (state, pki) = (folder.join("state"), folder.join("state/pki"));
        fs::create_dir_all(&pki).unwrap();
        chown(&state, Some(1), Some(1)).unwrap();
        let said = folder_check_error(&pki).expect("its owner can move it away");
        assert!(said.contains("belongs to user 1") && said.contains("/etc/usher/pki"), "{said}");
        assert!(folder_check_error(&state).is_some() && folder_check_error(&state.join("new")).is_some());
        // The check follows a symbolic link to the real folder, so it fails there too.
        symlink(&state, folder.join("link")).unwrap();
        assert!(folder_check_error(&folder.join("link/pki")).is_some());
        // A link of another user in a folder open to all.
        let open = folder.join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
        symlink(folder.join("pki"), open.join("link")).unwrap();
        assert_eq!(folder_check_error(&open.join("link")), None);
        std::os::unix::fs::lchown(open.join("link"), Some(1), Some(1)).unwrap();
        assert!(folder_check_error(&open.join("link")).unwrap().contains("link of user 1"));
        // A group with write permission.
        let pki = folder.join("pki");
        chown(&pki, Some(0), Some(1)).unwrap();
        assert_eq!(folder_check_error(&pki), None);
        fs::set_permissions(&pki, Permissions::from_mode(0o770)).unwrap();
        assert!(folder_check_error(&pki).unwrap().contains("0770"));
        fs::remove_dir_all(&folder).unwrap();
    }
}

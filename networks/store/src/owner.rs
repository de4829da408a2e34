//! Ownership of files that root creates for a service of another user.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

/// Gives an open file that root has just created to the owner and the group of a folder. So the service that owns the
/// folder can use the file. Does nothing unless root owns the file and not the folder.
///
/// It changes the open file, not the path: the folder's owner could put a link to another file there.
///
/// # Errors
/// The folder is absent, or the file system has no owners.
pub fn set_file_owner_from_folder(folder: &Path, file: &File) -> io::Result<()> {
    let (folder, made) = (fs::metadata(folder)?, file.metadata()?);
    if made.uid() == 0 && folder.uid() != 0 {
        fchown(file, Some(folder.uid()), Some(folder.gid()))?;
    }
    Ok(())
}

/// Lets the group of a folder read an open file that root has just created. The folder must be root's, with access
/// for that group alone (mode 0750), such as /etc/usher. Otherwise does nothing.
///
/// # Errors
/// The folder is absent, or the file system has no owners.
pub fn allow_group_read(folder: &Path, file: &File) -> io::Result<()> {
    let (folder, made) = (fs::metadata(folder)?, file.metadata()?);
    let private = folder.uid() == 0 && folder.mode() & 0o027 == 0;
    if made.uid() == 0 && private && folder.gid() != 0 {
        fchown(file, None, Some(folder.gid()))?;
        file.set_permissions(Permissions::from_mode(0o640))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    #[test]
    fn a_link_in_the_place_of_the_file_gives_nothing_else_away() {
        let folder = std::env::temp_dir().join(format!("usher-store-owner-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let root = fs::metadata(&folder).unwrap().uid() == 0;
        if root {
            chown(&folder, Some(1), Some(1)).unwrap();
        }
        let (path, other) = (folder.join("key"), folder.join("other"));
        fs::write(&other, "of root").unwrap();
        let file = File::create_new(&path).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&other, &path).unwrap();
        let own = fs::metadata(&other).unwrap().uid();
        set_file_owner_from_folder(&folder, &file).unwrap();
        assert_eq!(fs::metadata(&other).unwrap().uid(), own);
        assert_eq!(file.metadata().unwrap().uid(), if root { 1 } else { own });
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_group_of_a_folder_of_root_reads_what_root_makes_for_it() {
        let folder = std::env::temp_dir().join(format!("usher-store-group-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let root = fs::metadata(&folder).unwrap().uid() == 0;
        for (n, (mode, owner, given)) in
            [(0o750, 0, true), (0o755, 0, false), (0o770, 0, false), (0o750, 1, false)].iter().enumerate()
        {
            fs::set_permissions(&folder, Permissions::from_mode(*mode)).unwrap();
            if root {
                chown(&folder, Some(*owner), Some(1)).unwrap();
            }
            let file = File::create_new(folder.join(n.to_string())).unwrap();
            file.set_permissions(Permissions::from_mode(0o600)).unwrap();
            allow_group_read(&folder, &file).unwrap();
            let made = file.metadata().unwrap();
            let read = (made.gid(), made.mode() & 0o777) == (1, 0o640);
            assert_eq!(read, root && *given, "{mode:o} of {owner}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}

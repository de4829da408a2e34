//! Files that root makes for a service of another user.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

/// Gives a file that root has just made to the owner and the group of a folder, so that the service whose folder that is
/// can use what root prepared for it. Where either is not so, nothing is done.
///
/// # Errors
/// One of them is not there, or the file system knows no owners.
pub fn give_to_owner_of(folder: &Path, file: &Path) -> io::Result<()> {
    let (folder, made) = (fs::metadata(folder)?, fs::metadata(file)?);
    if made.uid() == 0 && folder.uid() != 0 {
        chown(file, Some(folder.uid()), Some(folder.gid()))?;
    }
    Ok(())
}

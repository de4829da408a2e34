//! Atomic writing of files.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The temporary names that are tried. A name is taken only if an attacker or a dead process has used it.
const TRIES: u32 = 100;

/// Writes a file of this mode atomically, prepared before it gets its name. It writes to a new temporary name in the
/// same folder, and never opens an existing file. As root that matters: the folder's owner could have put a link
/// there.
///
/// # Errors
/// The file cannot be written or prepared. The old file then remains.
pub fn write_whole(
    path: &Path,
    content: &[u8],
    mode: u32,
    prepare: impl FnOnce(&fs::File) -> io::Result<()>,
) -> io::Result<()> {
    let (beside, mut file) = create_temp_file(path)?;
    // Set the exact mode, regardless of the umask.
    let done = file
        .set_permissions(fs::Permissions::from_mode(mode))
        .and_then(|()| file.write_all(content))
        .and_then(|()| prepare(&file))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&beside, path));
    if done.is_err() {
        // An error is ignored here, because the caller gets the first one.
        let _ = fs::remove_file(&beside);
    }
    done
}

/// Creates a new file beside a path, accessible only to its owner.
fn create_temp_file(path: &Path) -> io::Result<(PathBuf, fs::File)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut tried = 0;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut own = std::ffi::OsString::from(".");
        own.push(name);
        own.push(std::format!(".{}-{number}.new", std::process::id()));
        let beside = path.with_file_name(own);
        tried += 1;
        match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside) {
            // A file of this name exists: a killed process with the same id left it, or an attacker put it there. Try
            // another name.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tried < TRIES => {}
            file => return Ok((beside, file?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_at_one_time_does_not_mix_what_is_written() {
        let folder = std::env::temp_dir().join(std::format!("usher-whole-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("list");
        let contents: Vec<Vec<u8>> = (0..8_u8).map(|n| vec![n; 1 << 16]).collect();
        std::thread::scope(|scope| {
            for content in &contents {
                scope.spawn(|| {
                    for _ in 0..20 {
                        write_whole(&path, content, 0o640, |_| Ok(())).unwrap();
                        assert!(contents.contains(&fs::read(&path).unwrap()));
                    }
                });
            }
        });
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        let before = fs::read(&path).unwrap();
        assert!(write_whole(&path, b"other", 0o600, |_| Err(io::ErrorKind::Other.into())).is_err());
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_was_put_there_before_is_not_opened() {
        let folder = std::env::temp_dir().join(std::format!("usher-whole-link-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let other = folder.join("other");
        fs::write(&other, "other's").unwrap();
        for number in 0..50 {
            let name = std::format!(".key.{}-{number}.new", std::process::id());
            std::os::unix::fs::symlink(&other, folder.join(name)).unwrap();
        }
        write_whole(&folder.join("key"), b"secret", 0o600, |_| Ok(())).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"other's");
        assert_eq!(fs::read(folder.join("key")).unwrap(), b"secret");
        fs::remove_dir_all(folder).unwrap();
    }
}

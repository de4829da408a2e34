//! Files of lines, one per day in UTC, that only the owner can read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use usher_concentrator::track::parse_time;
use usher_core::WallTime;

pub(super) const SECONDS_OF_A_DAY: u64 = 86_400;

/// Formats the UTC day of a time: `2026-11-26`.
pub(super) fn utc_day(at: WallTime) -> String {
    at.to_string().split('T').next().unwrap_or_default().to_owned()
}

/// Returns the start of a day. `None`: the text is not a day.
fn day_start(day: &str) -> Option<WallTime> {
    parse_time(&format!("{day}T00:00:00Z"))
}

/// Returns the day `days` days before another.
pub(super) fn days_before(day: &str, days: u32) -> Option<String> {
    let kept = day_start(day)?.unix_secs().saturating_sub(u64::from(days) * SECONDS_OF_A_DAY);
    Some(self::utc_day(WallTime::from_unix_secs(kept)))
}

/// Returns the day `days` days after another.
pub(super) fn days_after(day: &str, days: u32) -> Option<String> {
    let after = day_start(day)?.unix_secs().saturating_add(u64::from(days) * SECONDS_OF_A_DAY);
    Some(self::utc_day(WallTime::from_unix_secs(after)))
}

/// Opens a file for appending.
fn open_private_for_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Reads the lines of a file one at a time. Replaces invalid UTF-8.
pub(super) fn read_lines(path: &Path) -> io::Result<impl Iterator<Item = io::Result<String>>> {
    let octets = BufReader::new(File::open(path)?).split(b'\n');
    Ok(octets.map(|line| line.map(|line| String::from_utf8_lossy(&line).into_owned())))
}

/// A series of daily files, such as `sessions-2026-11-26.jsonl`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DailyLogFiles {
    folder: PathBuf,
    kind: String,
    extension: String,
}

impl DailyLogFiles {
    /// The files of `folder` whose names begin with `kind`.
    pub(super) fn new(folder: &Path, kind: &str) -> Self {
        Self { folder: folder.to_owned(), kind: kind.to_owned(), extension: "jsonl".to_owned() }
    }
    /// The files with the name of `path` and the day added: `audit.jsonl`.
    pub(super) fn from_path(path: &Path) -> Self {
        let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        Self {
            folder: path.parent().unwrap_or(Path::new("")).to_owned(),
            kind: text(path.file_stem()),
            extension: text(path.extension()),
        }
    }
    pub(super) fn kind(&self) -> &str {
        &self.kind
    }
    pub(super) fn day_path(&self, day: &str) -> PathBuf {
        let name = format!("{}-{day}", self.kind);
        self.folder.join(if self.extension.is_empty() { name } else { format!("{name}.{}", self.extension) })
    }
    /// Lists the days that have a file, in order.
    pub(super) fn existing_days(&self) -> io::Result<Vec<String>> {
        let mut days = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let of = |name: &str| {
                let day = name.strip_prefix(&self.kind)?.strip_prefix('-')?.strip_suffix(&self.extension)?;
                let day = if self.extension.is_empty() { day } else { day.strip_suffix('.')? };
                day_start(day).map(|_| day.to_owned())
            };
            days.extend(name.to_str().and_then(of));
        }
        days.sort();
        Ok(days)
    }
    /// Opens a day's file for appending.
    pub(super) fn open_day(&self, day: &str) -> io::Result<File> {
        open_private_for_append(&self.day_path(day))
    }
    /// Rewrites a day's file durably with its content and the lines `more`. On an error the old file stays. Returns
    /// the file, open for appending.
    pub(super) fn rewrite_day(&self, day: &str, more: &[String]) -> io::Result<File> {
        let path = self.day_path(day);
        let new = path.with_extension("new");
        let emptied = fs::remove_file(&new);
        if let Err(error) = emptied
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = open_private_for_append(&new)?;
        match File::open(&path) {
            Ok(mut old) => {
                if io::copy(&mut old, &mut file)? > 0 {
                    // End the last line, which may be incomplete after a crash. Readers skip an empty line.
                    file.write_all(b"\n")?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        for line in more {
            file.write_all(line.as_bytes())?;
        }
        file.sync_all()?;
        fs::rename(&new, &path)?;
        self.sync_folder()?;
        Ok(file)
    }
    /// Makes new files of the folder durable.
    pub(super) fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
    /// Deletes the files of the days before `oldest`.
    pub(super) fn delete_before(&self, oldest: &str) {
        let kind = self.kind();
        for old in self.existing_days().unwrap_or_default().iter().filter(|day| day.as_str() < oldest) {
            match fs::remove_file(self.day_path(old)) {
                Ok(()) => tracing::info!(day = old, kind, "expired log deleted"),
                Err(error) => {
                    tracing::error!(day = old, kind, %error, "cannot delete an expired log")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_bear_their_days() {
        let audit = DailyLogFiles::from_path(Path::new("a/audit.jsonl"));
        assert_eq!(audit.day_path("2026-11-26"), Path::new("a/audit-2026-11-26.jsonl"));
        assert_eq!(
            DailyLogFiles::from_path(Path::new("asked")).day_path("2026-11-26"),
            Path::new("asked-2026-11-26")
        );
        assert_eq!(days_before("2026-03-01", 2).unwrap(), "2026-02-27");
        let folder = std::env::temp_dir().join(format!("usher-daily-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        for name in [
            "a-2026-11-26.jsonl",
            "a-2026-11-25.jsonl",
            "a-2026-13-01.jsonl",
            "a-2026-11-27.new",
            "ab-2026-11-26.jsonl",
        ] {
            fs::write(folder.join(name), "").unwrap();
        }
        let a = DailyLogFiles::new(&folder, "a");
        assert_eq!(a.existing_days().unwrap(), ["2026-11-25", "2026-11-26"]);
        a.delete_before("2026-11-26");
        assert_eq!(a.existing_days().unwrap(), ["2026-11-26"]);
        // The rewritten file has the old lines and the new ones. Later writes append.
        fs::write(a.day_path("2026-11-26"), "one\ntorn").unwrap();
        let mut file = a.rewrite_day("2026-11-26", &["two\n".to_owned()]).unwrap();
        file.write_all(b"three\n").unwrap();
        let all: Vec<String> = read_lines(&a.day_path("2026-11-26")).unwrap().map(Result::unwrap).collect();
        assert_eq!(all, ["one", "torn", "two", "three"]);
        fs::remove_dir_all(&folder).unwrap();
    }
}

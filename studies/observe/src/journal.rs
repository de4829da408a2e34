//! The journal of a run: each finished replication as one line, so that an interrupted sweep can resume.
//!
//! ```text
//! usher-journal 2 <plan hash>
//! <crc32>→<replication>→loss=0.05→transport=tcp→→delay_mean=0.125→failures=0
//! ```
//!
//! Tabs (here →) separate fields, and an empty field separates axes from results. `%`, `=`, control characters and
//! non-ASCII characters are percent-encoded. One system call writes a line. A replication whose line is torn by a crash
//! or a full disk, or fails its checksum, runs again.
//!
//! The plan hash of version 1 also covered settings that do not change rows, such as titles, so it matches no plan of
//! version 2.

use crate::RunFileError;
use crate::row::{GridPoint, format_number};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const MAGIC: &str = "usher-journal 2 ";
/// The header of version 1.
const FIRST: &str = "usher-journal 1 ";

/// The results of one replication: (metric, value) in the study's order.
pub type ReplicationResults = Vec<(String, f64)>;

/// An open journal, locked by one process at a time.
#[derive(Debug)]
pub struct RunJournal {
    path: PathBuf,
    file: File,
    finished: HashMap<(GridPoint, u32), ReplicationResults>,
    damaged: usize,
}

impl RunJournal {
    /// Opens the journal at `path` for the plan with this hash, or creates it. Missing folders are created, and a torn
    /// last line is removed.
    ///
    /// # Errors
    /// [`RunFileError::PlanMismatch`] if it belongs to another plan. [`RunFileError::VersionMismatch`] if an earlier
    /// version wrote it. [`RunFileError::InUse`] if another process writes to it. [`RunFileError::Malformed`] if it is
    /// not a journal. [`RunFileError::Io`].
    pub fn open(path: &Path, plan: &str) -> Result<Self, RunFileError> {
        if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(RunFileError::io_error("create", folder))?;
        }
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = opened.map_err(RunFileError::io_error("open", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(RunFileError::InUse { path: path.to_owned() }),
            // Without file locks on this file system, the run goes on unlocked.
            Err(TryLockError::Error(_)) => {}
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(RunFileError::io_error("read", path))?;
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        let text = String::from_utf8_lossy(&bytes[..whole]);
        let mut lines = text.lines();
        let mut journal = Self { path: path.to_owned(), file, finished: HashMap::new(), damaged: 0 };
        // A crash may have torn the header itself, either of this version or of the first one.
        let torn = |magic: &str| magic.as_bytes().starts_with(&bytes[..bytes.len().min(magic.len())]);
        match lines.next() {
            None if !torn(MAGIC) && !torn(FIRST) => {
                return Err(RunFileError::malformed_line(path, 1, "this is not an usher journal"));
            }
            None => {
                journal.truncate_journal_at(0)?;
                journal.write_line(&format!("{MAGIC}{}\n", escape_text(plan)))?;
            }
            Some(header) if header.starts_with(FIRST) => {
                return Err(RunFileError::VersionMismatch { path: path.to_owned() });
            }
            Some(header) => {
                let found = header.strip_prefix(MAGIC).and_then(unescape_text);
                let found = found
                    .ok_or_else(|| RunFileError::malformed_line(path, 1, "this is not an usher journal"))?;
                if found != plan {
                    return Err(RunFileError::PlanMismatch {
                        path: path.to_owned(),
                        expected: plan.to_owned(),
                        found,
                    });
                }
                for line in lines {
                    match decode_line(line) {
                        Some((key, results)) => {
                            journal.finished.entry(key).or_insert(results);
                        }
                        None => journal.damaged += 1,
                    }
                }
                journal.truncate_journal_at(whole as u64)?;
            }
        }
        Ok(journal)
    }

    /// Returns the results of a replication that this run or an earlier one has finished.
    pub fn get(&self, point: &GridPoint, replication: u32) -> Option<&ReplicationResults> {
        // Clone the point, because a pair of borrowed values cannot be the key. Points are cheap to clone.
        self.finished.get(&(point.clone(), replication))
    }

    /// Returns the number of finished replications.
    pub fn len(&self) -> usize {
        self.finished.len()
    }

    /// True if no replication is finished.
    pub fn is_empty(&self) -> bool {
        self.finished.is_empty()
    }

    /// Returns the number of lines that failed their checksum and were skipped.
    pub fn damaged_journal_lines(&self) -> usize {
        self.damaged
    }

    /// Adds a finished replication; an existing one stays unchanged.
    ///
    /// # Errors
    /// [`RunFileError::Io`], such as a full disk; earlier lines remain.
    pub fn append(
        &mut self,
        point: &GridPoint,
        replication: u32,
        results: ReplicationResults,
    ) -> Result<(), RunFileError> {
        let key = (point.clone(), replication);
        if self.finished.contains_key(&key) {
            return Ok(());
        }
        self.write_line(&encode_line(point, replication, &results))?;
        self.finished.insert(key, results);
        Ok(())
    }

    /// Flushes everything to disk, for the end of a run or an interrupt.
    ///
    /// # Errors
    /// [`RunFileError::Io`].
    pub fn sync(&self) -> Result<(), RunFileError> {
        self.file.sync_all().map_err(RunFileError::io_error("write", &self.path))
    }

    fn write_line(&mut self, line: &str) -> Result<(), RunFileError> {
        let before = self.file.stream_position().map_err(RunFileError::io_error("write", &self.path))?;
        self.file.write_all(line.as_bytes()).map_err(|source| {
            // A full disk leaves half a line. Cut it off here if possible; otherwise the next open does.
            let _ = self.truncate_journal_at(before);
            RunFileError::io_error("write", &self.path)(source)
        })
    }

    fn truncate_journal_at(&mut self, at: u64) -> Result<(), RunFileError> {
        let cut = self.file.set_len(at).and_then(|()| self.file.seek(SeekFrom::Start(at)));
        cut.map(drop).map_err(RunFileError::io_error("write", &self.path))
    }
}

fn encode_line(point: &GridPoint, replication: u32, results: &ReplicationResults) -> String {
    let mut body = replication.to_string();
    for (axis, value) in point.axes() {
        let _ = write!(body, "\t{}={}", escape_text(axis), escape_text(value));
    }
    body.push('\t');
    for (metric, value) in results {
        let _ = write!(body, "\t{}={}", escape_text(metric), format_number(*value));
    }
    format!("{:08x}\t{body}\n", crc32(body.as_bytes()))
}

fn decode_line(line: &str) -> Option<((GridPoint, u32), ReplicationResults)> {
    let (sum, body) = line.split_once('\t')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32(body.as_bytes()) {
        return None;
    }
    let mut fields = body.split('\t');
    let replication = fields.next()?.parse().ok()?;
    let mut axes = Vec::new();
    for field in fields.by_ref().take_while(|f| !f.is_empty()) {
        let (axis, value) = field.split_once('=')?;
        axes.push((unescape_text(axis)?, unescape_text(value)?));
    }
    let mut results = Vec::new();
    for field in fields {
        let (metric, value) = field.split_once('=')?;
        results.push((unescape_text(metric)?, value.parse().ok()?));
    }
    Some(((GridPoint::new(axes), replication), results))
}

fn escape_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for &b in text.as_bytes() {
        if matches!(b, b' '..=b'~') && b != b'%' && b != b'=' {
            out.push(char::from(b));
        } else {
            let _ = write!(out, "%{b:02x}");
        }
    }
    out
}

fn unescape_text(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            out.push((high * 16 + low) as u8);
        } else {
            out.push(b);
        }
    }
    String::from_utf8(out).ok()
}

/// CRC-32 of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    let crc = bytes.iter().fold(u32::MAX, |crc, &b| {
        (0..8).fold(crc ^ u32::from(b), |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 })
    });
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::TempDir;
    use proptest::prelude::*;
    use std::fs;

    fn test_point(loss: &str) -> GridPoint {
        GridPoint::new([("loss", loss), ("transport", "tcp")])
    }

    fn test_results(value: f64) -> ReplicationResults {
        vec![("delay_mean".into(), value), ("failures".into(), 0.0)]
    }

    #[test]
    fn what_was_finished_is_found_again() {
        let folder = TempDir::new();
        let path = folder.file_path("run/journal");
        let mut journal = RunJournal::open(&path, "abc").unwrap();
        assert!(journal.is_empty());
        journal.append(&test_point("0.1"), 0, test_results(0.1 + 0.2)).unwrap();
        journal.append(&test_point("0.1"), 1, test_results(f64::INFINITY)).unwrap();
        journal.append(&test_point("0.1"), 0, test_results(9.0)).unwrap();
        journal.sync().unwrap();
        drop(journal);
        let again = RunJournal::open(&path, "abc").unwrap();
        assert_eq!((again.len(), again.damaged_journal_lines()), (2, 0));
        assert_eq!(again.get(&test_point("0.1"), 0), Some(&test_results(0.1 + 0.2)));
        assert_eq!(again.get(&test_point("0.1"), 1), Some(&test_results(f64::INFINITY)));
        assert_eq!(again.get(&test_point("0.2"), 0), None);
    }

    #[test]
    fn a_torn_line_is_cut_wherever_it_tore() {
        let folder = TempDir::new();
        let path = folder.file_path("journal");
        let mut journal = RunJournal::open(&path, "abc").unwrap();
        journal.append(&test_point("0.1"), 0, test_results(1.0)).unwrap();
        let kept = fs::metadata(&path).unwrap().len();
        journal.append(&test_point("0.1"), 1, test_results(2.0)).unwrap();
        drop(journal);
        let whole = fs::read(&path).unwrap();
        for end in 0..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            let mut journal = RunJournal::open(&path, "abc").unwrap();
            let first = end as u64 >= kept;
            assert_eq!(journal.len(), usize::from(first), "torn at {end}");
            if !first {
                journal.append(&test_point("0.1"), 0, test_results(1.0)).unwrap();
            }
            journal.append(&test_point("0.1"), 1, test_results(2.0)).unwrap();
            drop(journal);
            assert_eq!(fs::read(&path).unwrap(), whole, "torn at {end}");
        }
    }

    #[test]
    fn a_journal_that_tore_as_it_was_begun_is_begun_again() {
        let folder = TempDir::new();
        let path = folder.file_path("journal");
        for header in ["usher-journal 1 abc", "usher-journal 2 abc"] {
            for end in 0..=header.len() {
                fs::write(&path, &header[..end]).unwrap();
                assert!(RunJournal::open(&path, "new").unwrap().is_empty(), "{header} torn at {end}");
                assert_eq!(fs::read_to_string(&path).unwrap(), "usher-journal 2 new\n");
            }
        }
    }

    #[test]
    fn a_damaged_line_counts_as_not_run() {
        let folder = TempDir::new();
        let path = folder.file_path("journal");
        let mut journal = RunJournal::open(&path, "abc").unwrap();
        journal.append(&test_point("0.1"), 0, test_results(1.5)).unwrap();
        journal.append(&test_point("0.1"), 1, test_results(2.5)).unwrap();
        drop(journal);
        let text = fs::read_to_string(&path).unwrap().replace("=1.5", "=1.6");
        fs::write(&path, text).unwrap();
        let journal = RunJournal::open(&path, "abc").unwrap();
        assert_eq!((journal.len(), journal.damaged_journal_lines()), (1, 1));
        assert_eq!(journal.get(&test_point("0.1"), 1), Some(&test_results(2.5)));
    }

    #[test]
    fn another_plan_another_process_and_another_file_are_refused() {
        let folder = TempDir::new();
        let path = folder.file_path("journal");
        let held = RunJournal::open(&path, "abc").unwrap();
        assert!(matches!(RunJournal::open(&path, "abc"), Err(RunFileError::InUse { .. })));
        drop(held);
        let text = RunJournal::open(&path, "def").unwrap_err().to_string();
        assert!(text.contains("another plan (abc, this one is def)"), "{text}");
        fs::write(&path, "usher-journal 1 abc\n").unwrap();
        assert!(matches!(RunJournal::open(&path, "abc"), Err(RunFileError::VersionMismatch { .. })));
        fs::write(&path, "study,loss\n").unwrap();
        assert!(matches!(RunJournal::open(&path, "abc"), Err(RunFileError::Malformed { line: 1, .. })));
        fs::write(&path, "someone's notes").unwrap();
        assert!(matches!(RunJournal::open(&path, "abc"), Err(RunFileError::Malformed { line: 1, .. })));
        assert_eq!(fs::read(&path).unwrap(), b"someone's notes");
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_file_and_cause() {
        let path = PathBuf::from("/dev/full");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let mut journal = RunJournal { path, file, finished: HashMap::new(), damaged: 0 };
        let error = journal.append(&test_point("0"), 0, test_results(1.0)).unwrap_err();
        assert!(journal.get(&test_point("0"), 0).is_none());
        let text = error.to_string();
        assert!(text.contains("/dev/full") && text.contains("space"), "{text}");
    }

    #[test]
    fn checksum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    proptest! {
        #[test]
        fn lines_read_back(
            axes in proptest::collection::vec((".{1,5}", ".{1,5}"), 0..4),
            replication: u32,
            results in proptest::collection::vec((".{0,5}", -1e300f64..1e300), 0..4),
        ) {
            let point = GridPoint::new(axes);
            let line = encode_line(&point, replication, &results);
            prop_assert!(line.is_ascii() && line.lines().count() == 1);
            prop_assert_eq!(decode_line(line.trim_end_matches('\n')), Some(((point, replication), results)));
        }

        #[test]
        fn arbitrary_lines_never_panic(line in ".{0,100}") {
            prop_assert_eq!(decode_line(&line), None);
        }
    }
}

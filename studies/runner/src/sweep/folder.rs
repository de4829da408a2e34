//! The folder of a run: its owner, its files, and how to continue a run there.

use super::{SweepPlan, SweepResults};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use usher_observe::journal::RunJournal;
use usher_observe::manifest::RunManifest;
use usher_observe::{ResultRowUnits, RunFileError, csv, file, parquet, summary};
use usher_scenario::{PlanOverrides, Study, StudyMode};

const JOURNAL: &str = "journal";
/// The name of the folder of captures within a run's folder.
pub const CAPTURES: &str = "captures";
/// The file in that folder that lists the links of each capture.
const LINKS: &str = "links.txt";
/// The folder of message-flow figures within a run's folder.
pub const LADDERS: &str = "ladders";
/// The files that a run writes beside its journal.
const FILES: [&str; 7] = [
    "results.csv",
    "results.parquet",
    "summary.csv",
    "summary.parquet",
    "manifest.json",
    "claims.json",
    "report.html",
];
/// The folder of the study within a run's folder.
const STUDY: &str = "study";
const FOLDERS: [&str; 4] = ["figures", CAPTURES, LADDERS, STUDY];
/// The files in that folder: the study as written, and the request to run it.
const WRITTEN: &str = "as-written.txt";
const RUN_FILE: &str = "run.json";

/// Why a folder cannot take a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// It holds files of something else than a run.
    #[error("{} holds other files ({found}): choose another folder with --out", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// One of the files.
        found: String,
    },
    /// It holds a run of another plan.
    #[error(
        "{} holds a run of another plan (another study, seed, mode or setting): \
         start it anew with --force, or choose another folder with --out",
        path.display()
    )]
    PlanMismatch {
        /// The folder.
        path: PathBuf,
    },
    /// It holds a run of an earlier version of the program, which named plans differently.
    #[error(
        "{} holds a run by an earlier version of usher, whose rows may differ: \
         start it anew with --force, or choose another folder with --out",
        path.display()
    )]
    VersionMismatch {
        /// The folder.
        path: PathBuf,
    },
    /// It holds a run of the same plan by another build of the program, whose rows may differ.
    #[error(
        "{} holds a run of the same plan by another build of usher, whose rows may differ: \
         start it anew with --force, or choose another folder with --out",
        path.display()
    )]
    BuildMismatch {
        /// The folder.
        path: PathBuf,
    },
    /// The system reports an error, or a file is damaged.
    #[error(transparent)]
    Observe(#[from] RunFileError),
}

/// A run's folder, locked by this process.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    journal: RunJournal,
}

impl RunFolder {
    /// Opens the folder for the run of this plan by this build, and creates it if it is missing. It continues a run of
    /// the same plan. With `anew`, it first removes an earlier run's files.
    ///
    /// # Errors
    /// [`FolderError`]: nothing was changed.
    pub fn open(path: &Path, plan: &str, build: &str, anew: bool) -> Result<Self, FolderError> {
        let file = path.join(JOURNAL);
        if !file.exists() {
            let found = fs::read_dir(path).ok().and_then(|mut entries| entries.find_map(Result::ok));
            if let Some(entry) = found {
                let found = entry.file_name().to_string_lossy().into_owned();
                return Err(FolderError::Foreign { path: path.to_owned(), found });
            }
        }
        let identity = format!("{plan} {build}");
        let opened = match RunJournal::open(&file, &identity) {
            Err(RunFileError::PlanMismatch { found, .. }) if anew => {
                // Opening the other plan's journal by its own identity fails if it is in use, and then no file is
                // removed.
                drop(RunJournal::open(&file, &found)?);
                None
            }
            Err(RunFileError::PlanMismatch { found, .. }) => {
                let path = path.to_owned();
                let same_plan = found.split(' ').next() == Some(plan);
                return Err(if same_plan {
                    FolderError::BuildMismatch { path }
                } else {
                    FolderError::PlanMismatch { path }
                });
            }
            Err(RunFileError::VersionMismatch { .. }) if anew => None,
            Err(RunFileError::VersionMismatch { .. }) => {
                return Err(FolderError::VersionMismatch { path: path.to_owned() });
            }
            Err(error) => return Err(error.into()),
            Ok(journal) => Some(journal).filter(|j| !anew || j.is_empty()),
        };
        let journal = match opened {
            Some(journal) => journal,
            None => {
                remove_run_files(path)?;
                RunJournal::open(&file, &identity)?
            }
        };
        Ok(Self { path: path.to_owned(), journal })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the journal for [`super::execute_sweep`].
    pub fn journal(&mut self) -> &mut RunJournal {
        &mut self.journal
    }

    /// Stores the study so that the folder alone can run it again: one file with all its parts, the file as written,
    /// and the request.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn store_study(&self, study: &Study, asked: &RunRequest) -> Result<(), RunFileError> {
        let (resolved, outside) = study.resolved_text();
        let mut text = format!(
            "# {} as one file, with all files that it names: run the folder above this one, or this file.\n\
             # The original file is {WRITTEN}.\n",
            study.name()
        );
        for path in outside {
            text.push_str(&format!(
                "# It still reads {}, which may be secret and is not copied.\n",
                path.display()
            ));
        }
        text.push_str(&resolved);
        let asked = asked.to_json();
        let file_name = format!("{}.toml", study.name());
        for (name, text) in
            [(file_name.as_str(), text.as_str()), (WRITTEN, study.file_text()), (RUN_FILE, asked.as_str())]
        {
            file::write_file(&self.path.join(STUDY).join(name), |out| out.write_all(text.as_bytes()))?;
        }
        Ok(())
    }

    /// Records the captured links of each point. Removes each capture of other or unknown links, so that
    /// [`super::execute_sweep`] makes it again.
    ///
    /// # Errors
    /// A file cannot be removed or written.
    pub fn update_captured_links(
        &self,
        sweep: &SweepPlan,
        links: impl IntoIterator<Item = Vec<String>>,
    ) -> Result<(), RunFileError> {
        let list = self.path.join(CAPTURES).join(LINKS);
        let before = if list.exists() { file::read_file(&list)? } else { String::new() };
        let before: HashSet<&str> = before.lines().collect();
        let mut text = String::new();
        for (index, links) in (0..sweep.goals.len()).zip(links) {
            let capture = sweep.capture_path(index);
            let name = capture.file_name().unwrap_or_default().to_string_lossy();
            let line = format!("{name}\t{}", links.join("\t"));
            if !before.contains(line.as_str()) {
                let file = self.path.join(&capture);
                ignore_not_found(fs::remove_file(&file), &file)?;
            }
            text.push_str(&line);
            text.push('\n');
        }
        file::write_file(&list, |out| out.write_all(text.as_bytes()))
    }

    /// Writes `results.csv`, `results.parquet`, `summary.csv` and `summary.parquet` with intervals at this level
    /// (0.95), and `manifest.json`. Each file is written atomically.
    ///
    /// # Errors
    /// The first file that cannot be written; the others are still tried.
    pub fn write_results(
        &self,
        results: &SweepResults,
        level: f64,
        manifest: &RunManifest,
        units: &ResultRowUnits,
    ) -> Result<(), RunFileError> {
        let rows = &results.rows;
        let at = |name: &str| self.path.join(name);
        let csv = csv::write_csv(&at("results.csv"), rows);
        let parquet = parquet::write_parquet(&at("results.parquet"), rows, units);
        let summary = summary::write_summary_csv(&at("summary.csv"), rows, level, units);
        let summarised = parquet::write_summary(&at("summary.parquet"), rows, level, units);
        let manifest = manifest.write_file(&at("manifest.json"));
        csv.and(parquet).and(summary).and(summarised).and(manifest)
    }
}

/// The request to run a study.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RunRequest {
    /// The mode's name.
    pub mode: String,
    /// The arguments of `--set`.
    #[serde(default)]
    pub set: Vec<String>,
    /// The seed that replaces the study's.
    pub seed: Option<u64>,
    /// The number of replications of every point.
    pub replications: Option<u32>,
}

impl RunRequest {
    fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("texts and numbers are JSON");
        format!("{text}\n")
    }

    /// Returns the mode and the overrides for a plan.
    ///
    /// # Errors
    /// The mode is unknown, or a setting is malformed.
    pub fn mode_and_overrides(&self) -> Result<(StudyMode, PlanOverrides), String> {
        let mode = StudyMode::ALL.into_iter().find(|mode| mode.name() == self.mode);
        let mode = mode.ok_or_else(|| format!("there is no mode \"{}\"", self.mode))?;
        let mut overrides =
            PlanOverrides { seed: self.seed, replications: self.replications, ..PlanOverrides::default() };
        for set in &self.set {
            overrides.add_setting(set)?;
        }
        Ok((mode, overrides))
    }

    /// Returns the study file and the request of a run's folder; `None` if it is not such a folder.
    ///
    /// # Errors
    /// The folder holds a run whose files cannot be read.
    pub fn of_folder(path: &Path) -> Result<Option<(PathBuf, Self)>, RunFileError> {
        let kept = path.join(STUDY).join(RUN_FILE);
        if !kept.exists() {
            return Ok(None);
        }
        let manifest = RunManifest::read_file(&path.join("manifest.json"))?;
        let asked = serde_json::from_str(&file::read_file(&kept)?).map_err(|e| {
            RunFileError::malformed_line(&kept, e.line(), format!("this is not a run of usher: {e}"))
        })?;
        Ok(Some((path.join(STUDY).join(format!("{}.toml", manifest.study)), asked)))
    }
}

/// Removes the files of a run, and no others.
fn remove_run_files(path: &Path) -> Result<(), RunFileError> {
    for name in FILES.iter().chain([&JOURNAL]) {
        let file = path.join(name);
        ignore_not_found(fs::remove_file(&file), &file)?;
    }
    for name in FOLDERS {
        let folder = path.join(name);
        ignore_not_found(fs::remove_dir_all(&folder), &folder)?;
    }
    Ok(())
}

/// Turns "not found" of a removal into success.
fn ignore_not_found(removed: std::io::Result<()>, path: &Path) -> Result<(), RunFileError> {
    match removed {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(RunFileError::Io { action: "remove", path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Returns an identifier of this build: the checksum of its file, or its version if the file cannot be read.
pub fn build_id() -> String {
    build_of(&std::env::current_exe().unwrap_or_default())
}

/// Returns the identifier of a build embedded in another program, by the file that contains this code.
pub fn build_of(file: &Path) -> String {
    file_checksum(file).map_or_else(|_| env!("CARGO_PKG_VERSION").to_owned(), |sum| format!("{sum:016x}"))
}

/// Returns FNV-1a over the words of the program's file, read in pieces because the file exceeds the memory of a small
/// run. It detects accidents only.
fn file_checksum(file: &Path) -> std::io::Result<u64> {
    let mut file = fs::File::open(file)?;
    let mut piece = [0; 1 << 16];
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    loop {
        let n = file.read(&mut piece)?;
        if n == 0 {
            return Ok(sum);
        }
        sum = update_checksum(sum, &piece[..n]);
    }
}

/// Adds a piece to the sum, eight bytes a word; the rest is a shorter word.
fn update_checksum(sum: u64, piece: &[u8]) -> u64 {
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    let (words, rest) = piece.as_chunks();
    // The sum takes whole words: byte by byte, it took half the time of a short run.
    let sum = words.iter().fold(sum, |sum, word| mix(sum, u64::from_be_bytes(*word)));
    if rest.is_empty() {
        return sum;
    }
    mix(sum, rest.iter().fold(0, |word, b| word << 8 | u64::from(*b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_words_and_what_is_left_over() {
        let bytewise = |piece: &[u8]| {
            piece.chunks(8).fold(7u64, |sum, c| {
                let word = c.iter().fold(0u64, |w, b| w << 8 | u64::from(*b));
                (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
            })
        };
        let piece: Vec<u8> = (0..100u8).map(|b| b.wrapping_mul(37)).collect();
        for len in [0, 1, 7, 8, 9, 16, 100] {
            assert_eq!(update_checksum(7, &piece[..len]), bytewise(&piece[..len]), "{len}");
        }
    }
}

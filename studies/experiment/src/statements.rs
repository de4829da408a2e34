//! Verdicts on published statements, in a study's report and for the runs on disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use usher_claims::{ClaimJudgement, DEFAULT_VARIANT, RunResults};
use usher_observe::manifest::{ManifestValue, RunManifest};
use usher_observe::{ResultRow, RunFileError, csv, file};
use usher_report::{HtmlReport, ReportSection};
use usher_scenario::StudyPlan;

/// Default folder of runs.
pub const OUT: &str = "out";
/// The mode whose runs vary the choices.
const SENSITIVITY: &str = "sensitivity";
/// The file of verdicts.
pub const FILE: &str = "claims.json";
/// The fact of a manifest that identifies the text of the study file.
pub const STUDY_HASH: &str = "study_hash";

/// Verdicts by the runs on disk.
#[derive(Debug)]
pub struct JudgedClaims {
    /// The statements of the studies that were run. Without a folder argument: all statements.
    pub list: Vec<ClaimJudgement>,
    /// Rows with other choices than the defaults, for the sensitivity of verdicts.
    pub varied: RunResults,
    /// The folders of the runs.
    pub runs: Vec<PathBuf>,
}

/// An error that prevents verdicts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JudgeError {
    /// The given folder contains no run.
    #[error(
        "{} is not the folder of a run: give a folder with results.csv, or a folder of such folders",
        path.display()
    )]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// A file of a run could not be read.
    #[error(transparent)]
    Observe(#[from] RunFileError),
}

/// Judges the statements by the runs in a folder, or by the best run of each study below [`OUT`].
///
/// # Errors
/// [`JudgeError`].
pub fn judge_statements(folder: Option<&Path>) -> Result<JudgedClaims, JudgeError> {
    let runs = find_runs(folder.unwrap_or(Path::new(OUT)))?;
    let (results, varied) = read_best_run_results(&runs, |r| r.read_rows())?;
    let list = match folder {
        Some(path) if runs.is_empty() => return Err(JudgeError::NoRun { path: path.to_owned() }),
        Some(_) => usher_claims::evaluate_claims(&results, DEFAULT_VARIANT),
        None => usher_claims::evaluate_all_claims(&results, DEFAULT_VARIANT),
    };
    let runs = select_best_runs(&runs).into_iter().map(|run| run.path.clone()).collect();
    Ok(JudgedClaims { list, varied, runs })
}

/// A run's folder.
struct RecordedRun {
    path: PathBuf,
    manifest: RunManifest,
}

impl RecordedRun {
    /// Reads the run in this folder, if there is one.
    fn read_run(path: &Path) -> Result<Option<Self>, RunFileError> {
        if !path.join("results.csv").exists() {
            return Ok(None);
        }
        let manifest = RunManifest::read_file(&path.join("manifest.json"))?;
        Ok(Some(Self { path: path.to_owned(), manifest }))
    }

    fn read_rows(&self) -> Result<Vec<ResultRow>, RunFileError> {
        csv::read_csv(&self.path.join("results.csv"))
    }

    fn is_sensitivity(&self) -> bool {
        self.manifest.mode == SENSITIVITY
    }

    /// Returns the rank of a run, most significant part first: the study's own settings, all points, a more thorough
    /// mode, a later time.
    fn rank(&self) -> (bool, bool, u8, &str) {
        let mode = match self.manifest.mode.as_str() {
            "full" => 2,
            "default" => 1,
            _ => 0,
        };
        (changed_settings(&self.manifest).is_empty(), self.manifest.complete, mode, &self.manifest.started)
    }
}

/// Returns the runs in a folder, in its folders, and in the folders of groups in it.
fn find_runs(path: &Path) -> Result<Vec<RecordedRun>, RunFileError> {
    let mut found = Vec::new();
    let mut level = vec![path.to_owned()];
    for _ in 0..3 {
        let mut next = Vec::new();
        for path in level {
            match RecordedRun::read_run(&path)? {
                Some(run) => found.push(run),
                None => next.extend(list_folders(&path)),
            }
        }
        level = next;
    }
    Ok(found)
}

/// Returns the folders in a folder, by name; empty if the folder cannot be read.
fn list_folders(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| p.is_dir()).collect();
    folders.sort();
    folders
}

/// Returns the best run of each study with the default choices, and the best with other choices.
fn select_best_runs(runs: &[RecordedRun]) -> Vec<&RecordedRun> {
    let mut chosen: BTreeMap<(&str, bool), &RecordedRun> = BTreeMap::new();
    for run in runs {
        let known = chosen.entry((&run.manifest.study, run.is_sensitivity())).or_insert(run);
        if run.rank() > known.rank() {
            *known = run;
        }
    }
    chosen.into_values().collect()
}

/// Returns the rows of the best runs with default choices, and of those with other choices. If a study has only one of
/// the two, its rows count for both.
fn read_best_run_results(
    runs: &[RecordedRun],
    rows: impl Fn(&RecordedRun) -> Result<Vec<ResultRow>, RunFileError>,
) -> Result<(RunResults, RunResults), RunFileError> {
    let best = select_best_runs(runs);
    let mut pair = Vec::new();
    for varied in [false, true] {
        let mut all = Vec::new();
        let mut taken = Vec::new();
        for run in &best {
            let other =
                best.iter().any(|r| r.manifest.study == run.manifest.study && r.is_sensitivity() == varied);
            if run.is_sensitivity() == varied || !other {
                all.extend(rows(run)?);
                taken.push(*run);
            }
        }
        let mut results = RunResults::new(&all);
        for run in taken {
            add_run_facts(&mut results, &run.manifest);
        }
        pair.push(results);
    }
    let varied = pair.pop().unwrap_or_default();
    Ok((pair.pop().unwrap_or_default(), varied))
}

/// Adds the facts of a run's manifest to the results.
pub fn add_run_facts(results: &mut RunResults, manifest: &RunManifest) {
    if let Some(setup) = usher_claims::ClaimStudySetup::from_facts(&manifest.facts) {
        results.set_up(&manifest.study, setup);
    }
    let changed = changed_settings(manifest);
    if !changed.is_empty() {
        let with = changed.join(", ");
        let study = &manifest.study;
        let sentence = format!("{study} ran with {with}; verdicts need its default parameters.");
        results.exclude_study(study, &sentence);
    }
    let founding = usher_scenario::founding::find_founding_study(&manifest.study)
        .map(|f| ManifestValue::from(f.digest()));
    if let (Some(founding), Some(run)) = (founding, manifest.facts.get(STUDY_HASH))
        && founding != *run
    {
        let study = &manifest.study;
        let sentence = format!("The run's file of {study} differs from the one of this Usher.");
        results.add_caution(study, &sentence);
    }
    if !manifest.complete {
        results.add_caution(&manifest.study, &format!("The results of {} are partial.", manifest.study));
    }
}

/// True if a run has the text and settings of the founding study.
pub fn is_own(manifest: &RunManifest) -> bool {
    let founding = usher_scenario::founding::find_founding_study(&manifest.study)
        .map(|f| ManifestValue::from(f.digest()));
    changed_settings(manifest).is_empty()
        && founding.is_some()
        && manifest.facts.get(STUDY_HASH) == founding.as_ref()
}

/// Returns the settings that a run changed. An axis name has no dot: its values select points and change no setting.
fn changed_settings(manifest: &RunManifest) -> Vec<String> {
    let changed = manifest.parameters.iter().filter(|(name, _)| name.contains('.'));
    changed.map(|(name, value)| format!("{name}={value}")).collect()
}

/// Adds the claims to a study's report: each beside its figure, and all of them in a section. Returns their verdicts.
/// If `own` is true, the study ran with its own settings, and the points of ns-2 are drawn.
pub fn add_claim_judgements(
    report: &mut HtmlReport,
    plan: &StudyPlan,
    results: &RunResults,
    own: bool,
) -> Vec<ClaimJudgement> {
    if own {
        usher_claims::add_ns2_series(&mut report.sections, plan);
    }
    let judged = usher_claims::evaluate_claims(results, DEFAULT_VARIANT);
    let figures = plan.figures.iter().map(|f| (f.name.as_str(), f.claims.as_slice()));
    usher_claims::add_claim_tables(&mut report.sections, figures, &judged);
    // Insert the claims before the table of all points, which may be long.
    let place = report.sections.iter().position(|s| s.figures.is_empty()).unwrap_or(report.sections.len());
    report.sections.splice(place..place, build_claim_sections(&judged, results));
    judged
}

/// Returns the sections with all claims, and with the choices under which they hold.
pub fn build_claim_sections(judged: &[ClaimJudgement], varied: &RunResults) -> Vec<ReportSection> {
    let all = (!judged.is_empty()).then(|| usher_claims::judgement_section(judged));
    all.into_iter().chain(usher_claims::sensitivity_map(varied)).collect()
}

/// Writes the verdicts into a run's folder, whole or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_judgements(folder: &Path, judged: &[ClaimJudgement]) -> Result<(), RunFileError> {
    file::write_file(&folder.join(FILE), |out| {
        out.write_all(usher_claims::judgements_json(judged).as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_recorded_run(path: &str, mode: &str, started: &str, complete: bool, set: &[&str]) -> RecordedRun {
        let manifest = RunManifest {
            usher_version: "0".into(),
            study: "aaa-hol".into(),
            seed: 1,
            mode: mode.into(),
            parameters: set.iter().map(|name| ((*name).to_owned(), "9".to_owned())).collect(),
            plan_hash: String::new(),
            host: usher_observe::manifest::RunHostInfo::detect(),
            started: started.into(),
            elapsed_s: 1.0,
            points: 1,
            replications: 1,
            complete,
            facts: BTreeMap::new(),
        };
        RecordedRun { path: path.into(), manifest }
    }

    #[test]
    fn the_best_run_is_judged_and_not_the_newest() {
        // Each run ranks above all later ones, and is older.
        let runs = [
            make_recorded_run("full", "full", "2", true, &["loss"]),
            make_recorded_run("default, newer", "default", "4", true, &[]),
            make_recorded_run("default", "default", "3", true, &[]),
            make_recorded_run("quick", "quick", "5", true, &[]),
            make_recorded_run("partial", "full", "6", false, &[]),
            make_recorded_run("other settings", "full", "7", true, &["run.time"]),
        ];
        for least in 0..runs.len() {
            for order in [false, true] {
                let mut some: Vec<RecordedRun> = runs[least..]
                    .iter()
                    .map(|r| RecordedRun { path: r.path.clone(), manifest: r.manifest.clone() })
                    .collect();
                if order {
                    some.reverse();
                }
                let best = select_best_runs(&some);
                assert_eq!(best.len(), 1);
                assert_eq!(best[0].path, runs[least].path);
            }
        }
        let varied = make_recorded_run("varied", SENSITIVITY, "1", true, &[]);
        assert_eq!(select_best_runs(&[varied, make_recorded_run("quick", "quick", "5", true, &[])]).len(), 2);
    }

    #[test]
    fn what_was_run_otherwise_is_said() {
        let rows = ["0", "1", "2"].map(|v| ResultRow {
            study: "aaa-many-nas".into(),
            point: usher_observe::GridPoint::new([("x", "1")]),
            replication: v.parse().unwrap(),
            metric: "delay.mean".into(),
            value: 1.0,
        });
        let judged = |hash: &str, set: &[&str]| {
            let mut manifest = make_recorded_run("one", "quick", "1", true, set).manifest;
            manifest.study = "aaa-many-nas".into();
            manifest.facts.insert(STUDY_HASH.to_owned(), ManifestValue::from(hash));
            let mut results = RunResults::new(&rows);
            add_run_facts(&mut results, &manifest);
            let judged = usher_claims::evaluate_claims(&results, DEFAULT_VARIANT);
            let surge = judged.into_iter().find(|j| j.id == "aaa.surge").unwrap();
            (surge.verdict, surge.reason)
        };
        let own = usher_scenario::founding::find_founding_study("aaa-many-nas").unwrap().digest();
        let (verdict, reason) = judged(&own, &["loss"]);
        assert!(
            verdict == usher_claims::Verdict::NotComparable && !reason.contains("differs from"),
            "{reason}"
        );
        let (verdict, reason) = judged("another", &[]);
        assert!(verdict == usher_claims::Verdict::NotComparable, "{reason}");
        assert!(reason.ends_with("differs from the one of this Usher."), "{reason}");
        let (verdict, reason) = judged(&own, &["run.time"]);
        assert_eq!(verdict, usher_claims::Verdict::NotComparable);
        assert!(reason.contains("run.time=9"), "{reason}");
    }
}

//! Published statements beside what was run: in a study's report, and of the runs that are on disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use usher_claims::{DEFAULT_VARIANT, Judgement, Results};
use usher_observe::manifest::{Fact, Manifest};
use usher_observe::{Error, Row, csv, file};
use usher_report::{Report, Section};
use usher_scenario::Plan;

/// Where runs go that are not told where to go.
pub const OUT: &str = "out";
/// The mode whose runs are of other choices than the defaults.
const SENSITIVITY: &str = "sensitivity";
/// The file that lists the judgements.
pub const FILE: &str = "claims.json";
/// The fact of a manifest that tells one study file's text from another's.
pub const STUDY_HASH: &str = "study_hash";

/// What runs on disk say of published statements.
#[derive(Debug)]
pub struct Judged {
    /// The statements: those of the studies that were run, or all of them where no folder was named.
    pub list: Vec<Judgement>,
    /// The rows of other choices than the defaults, for what holds with each.
    pub varied: Results,
    /// The folders that were judged by.
    pub runs: Vec<PathBuf>,
}

/// Why runs could not be judged by.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JudgeError {
    /// The folder that was named has no run in it.
    #[error("{} is no folder of a run: give one that holds results.csv, or that holds such folders", path.display())]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// A file of a run could not be read.
    #[error(transparent)]
    Observe(#[from] Error),
}

/// Judges what the runs in this folder gave, or the best run of each study below [`OUT`].
///
/// # Errors
/// [`JudgeError`].
pub fn judge(folder: Option<&Path>) -> Result<Judged, JudgeError> {
    let runs = find(folder.unwrap_or(Path::new(OUT)))?;
    let (results, varied) = gather(&runs, |r| r.rows())?;
    let list = match folder {
        Some(path) if runs.is_empty() => return Err(JudgeError::NoRun { path: path.to_owned() }),
        Some(_) => usher_claims::evaluate(&results, DEFAULT_VARIANT),
        None => usher_claims::evaluate_all(&results, DEFAULT_VARIANT),
    };
    let runs = chosen(&runs).into_iter().map(|run| run.path.clone()).collect();
    Ok(Judged { list, varied, runs })
}

/// A run's folder.
struct Run {
    path: PathBuf,
    manifest: Manifest,
}

impl Run {
    /// The run in this folder, if there is one.
    fn at(path: &Path) -> Result<Option<Self>, Error> {
        if !path.join("results.csv").exists() {
            return Ok(None);
        }
        let manifest = Manifest::read(&path.join("manifest.json"))?;
        Ok(Some(Self { path: path.to_owned(), manifest }))
    }

    fn rows(&self) -> Result<Vec<Row>, Error> {
        csv::read(&self.path.join("results.csv"))
    }

    fn varied(&self) -> bool {
        self.manifest.mode == SENSITIVITY
    }

    /// What makes a run a better one to judge by, the weightiest first: the study's own settings, every point, a mode
    /// with more points and replications, and being newer.
    fn rank(&self) -> (bool, bool, u8, &str) {
        let mode = match self.manifest.mode.as_str() {
            "full" => 2,
            "default" => 1,
            _ => 0,
        };
        (changed(&self.manifest).is_empty(), self.manifest.complete, mode, &self.manifest.started)
    }
}

/// The runs in a folder, in the folders in it, and in those of groups in it.
fn find(path: &Path) -> Result<Vec<Run>, Error> {
    let mut found = Vec::new();
    let mut level = vec![path.to_owned()];
    for _ in 0..3 {
        let mut next = Vec::new();
        for path in level {
            match Run::at(&path)? {
                Some(run) => found.push(run),
                None => next.extend(folders(&path)),
            }
        }
        level = next;
    }
    Ok(found)
}

/// The folders in a folder, by name; none in what cannot be read.
fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| p.is_dir()).collect();
    folders.sort();
    folders
}

/// The best run of each study, of its defaults and of its other choices, by study.
fn chosen(runs: &[Run]) -> Vec<&Run> {
    let mut chosen: BTreeMap<(&str, bool), &Run> = BTreeMap::new();
    for run in runs {
        let known = chosen.entry((&run.manifest.study, run.varied())).or_insert(run);
        if run.rank() > known.rank() {
            *known = run;
        }
    }
    chosen.into_values().collect()
}

/// The rows at the defaults of the best runs, and those of other choices. Where a study has only the one, it stands for both.
fn gather(runs: &[Run], rows: impl Fn(&Run) -> Result<Vec<Row>, Error>) -> Result<(Results, Results), Error> {
    let best = chosen(runs);
    let mut pair = Vec::new();
    for varied in [false, true] {
        let mut all = Vec::new();
        let mut taken = Vec::new();
        for run in &best {
            let other = best.iter().any(|r| r.manifest.study == run.manifest.study && r.varied() == varied);
            if run.varied() == varied || !other {
                all.extend(rows(run)?);
                taken.push(*run);
            }
        }
        let mut results = Results::new(&all);
        for run in taken {
            about(&mut results, &run.manifest);
        }
        pair.push(results);
    }
    let varied = pair.pop().unwrap_or_default();
    Ok((pair.pop().unwrap_or_default(), varied))
}

/// Tells the results what is known of a run besides its rows.
pub fn about(results: &mut Results, manifest: &Manifest) {
    if let Some(setup) = usher_claims::Setup::from_facts(&manifest.facts) {
        results.set_up(&manifest.study, setup);
    }
    let changed = changed(manifest);
    if !changed.is_empty() {
        let with = changed.join(", ");
        let study = &manifest.study;
        let sentence =
            format!("{study} was run with {with}, and verdicts are of its default parameters only.");
        results.set_apart(study, &sentence);
    }
    let founding = usher_scenario::founding::find(&manifest.study).map(|f| Fact::from(f.digest()));
    if let (Some(founding), Some(run)) = (founding, manifest.facts.get(STUDY_HASH))
        && founding != *run
    {
        let study = &manifest.study;
        let sentence = format!("The file of {study} that was run is not the one that comes with this Usher.");
        results.caution(study, &sentence);
    }
    if !manifest.complete {
        results.caution(&manifest.study, &format!("The results of {} are partial.", manifest.study));
    }
}

/// True where a run has a founding study's own text and settings.
pub fn is_own(manifest: &Manifest) -> bool {
    let founding = usher_scenario::founding::find(&manifest.study).map(|f| Fact::from(f.digest()));
    changed(manifest).is_empty() && founding.is_some() && manifest.facts.get(STUDY_HASH) == founding.as_ref()
}

/// The settings that a run changed. The names of axes have no dot: their values choose points and change no setting.
fn changed(manifest: &Manifest) -> Vec<String> {
    let changed = manifest.parameters.iter().filter(|(name, _)| name.contains('.'));
    changed.map(|(name, value)| format!("{name}={value}")).collect()
}

/// Puts the claims into a study's report: each beside its figure, and all of them in a part of their own. Gives
/// their list.
/// ns-2's points are drawn where `own` says that the study was run at its own settings.
pub fn report(report: &mut Report, plan: &Plan, results: &Results, own: bool) -> Vec<Judgement> {
    if own {
        usher_claims::beside_ns2(&mut report.sections, plan);
    }
    let judged = usher_claims::evaluate(results, DEFAULT_VARIANT);
    let figures = plan.figures.iter().map(|f| (f.name.as_str(), f.claims.as_slice()));
    usher_claims::beside(&mut report.sections, figures, &judged);
    // Before the table of all points, which may be long.
    let place = report.sections.iter().position(|s| s.figures.is_empty()).unwrap_or(report.sections.len());
    report.sections.splice(place..place, sections(&judged, results));
    judged
}

/// All claims, and under which choices they hold.
pub fn sections(judged: &[Judgement], varied: &Results) -> Vec<Section> {
    let all = (!judged.is_empty()).then(|| usher_claims::section(judged));
    all.into_iter().chain(usher_claims::map(varied)).collect()
}

/// Writes the list into a run's folder, whole or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write(folder: &Path, judged: &[Judgement]) -> Result<(), Error> {
    file::write(&folder.join(FILE), |out| out.write_all(usher_claims::json(judged).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(path: &str, mode: &str, started: &str, complete: bool, set: &[&str]) -> Run {
        let manifest = Manifest {
            usher_version: "0".into(),
            study: "aaa-hol".into(),
            seed: 1,
            mode: mode.into(),
            parameters: set.iter().map(|name| ((*name).to_owned(), "9".to_owned())).collect(),
            plan_hash: String::new(),
            host: usher_observe::manifest::Host::detect(),
            started: started.into(),
            elapsed_s: 1.0,
            points: 1,
            replications: 1,
            complete,
            facts: BTreeMap::new(),
        };
        Run { path: path.into(), manifest }
    }

    #[test]
    fn the_best_run_is_judged_and_not_the_newest() {
        // Each is better than all after it, and older.
        let runs = [
            run("full", "full", "2", true, &["loss"]),
            run("default, newer", "default", "4", true, &[]),
            run("default", "default", "3", true, &[]),
            run("quick", "quick", "5", true, &[]),
            run("partial", "full", "6", false, &[]),
            run("other settings", "full", "7", true, &["run.time"]),
        ];
        for least in 0..runs.len() {
            for order in [false, true] {
                let mut some: Vec<Run> = runs[least..]
                    .iter()
                    .map(|r| Run { path: r.path.clone(), manifest: r.manifest.clone() })
                    .collect();
                if order {
                    some.reverse();
                }
                let best = chosen(&some);
                assert_eq!(best.len(), 1);
                assert_eq!(best[0].path, runs[least].path);
            }
        }
        let varied = run("varied", SENSITIVITY, "1", true, &[]);
        assert_eq!(chosen(&[varied, run("quick", "quick", "5", true, &[])]).len(), 2);
    }

    #[test]
    fn what_was_run_otherwise_is_said() {
        let rows = ["0", "1", "2"].map(|v| Row {
            study: "aaa-many-nas".into(),
            point: usher_observe::Point::new([("x", "1")]),
            replication: v.parse().unwrap(),
            metric: "delay.mean".into(),
            value: 1.0,
        });
        let judged = |hash: &str, set: &[&str]| {
            let mut manifest = run("one", "quick", "1", true, set).manifest;
            manifest.study = "aaa-many-nas".into();
            manifest.facts.insert(STUDY_HASH.to_owned(), Fact::from(hash));
            let mut results = Results::new(&rows);
            about(&mut results, &manifest);
            let judged = usher_claims::evaluate(&results, DEFAULT_VARIANT);
            let surge = judged.into_iter().find(|j| j.id == "aaa.surge").unwrap();
            (surge.verdict, surge.reason)
        };
        let own = usher_scenario::founding::find("aaa-many-nas").unwrap().digest();
        let (verdict, reason) = judged(&own, &["loss"]);
        assert!(
            verdict == usher_claims::Verdict::NotComparable && !reason.contains("comes with"),
            "{reason}"
        );
        let (verdict, reason) = judged("another", &[]);
        assert!(verdict == usher_claims::Verdict::NotComparable, "{reason}");
        assert!(reason.ends_with("is not the one that comes with this Usher."), "{reason}");
        let (verdict, reason) = judged(&own, &["run.time"]);
        assert_eq!(verdict, usher_claims::Verdict::NotComparable);
        assert!(reason.contains("run.time=9"), "{reason}");
    }
}
